"""Benchmarks: contenders interleaved in one process, the best of several rounds, ratios against targets.

`harness` times and reports and knows no structure; `filters` has the cases of the filters and runs those of
`balanced` too; `shared` is what these two share, `peers` the contenders. The peers come with the extra
`bench`: pip install 'evenbins[bench]'. Run: evenbins bench filters, or python -m evenbins.bench filters.
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
