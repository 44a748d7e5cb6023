"""Benchmarks: contenders interleaved in one process, the best of several rounds, ratios against targets.

`harness` times and reports and knows no structure; `filters` has the cases of the filters and runs those of
`balanced` too, `sketches` those of the count-min sketch; `shared` is what they share, `peers` the contenders
among filters. The peers come with the extra `bench`: pip install 'evenbins[bench]'. Run: evenbins bench
filters, or python -m evenbins.bench filters.
"""

from evenbins.bench.harness import (
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
