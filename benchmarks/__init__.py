"""Benchmarks: contenders interleaved in one process, the best of several rounds, ratios against targets.

`harness` times and reports and knows no structure; `filters` has the cases of the filters and runs those of
`balanced` too, `sketches` those of the count-min sketch; `shared` is what they share, `peers` the contenders
among filters. The peers are in requirements.txt (`make bench` installs them). Run from the root of the
repository: python -m benchmarks filters.
"""

from benchmarks.harness import (
    Case,
    Contender,
    Limit,
    MissingPeerError,
    Report,
    Target,
    Within,
    WrongAnswerError,
    run,
)

__all__ = [
    "Case",
    "Contender",
    "Limit",
    "MissingPeerError",
    "Report",
    "Target",
    "Within",
    "WrongAnswerError",
    "run",
]
