"""Benchmarks: contenders interleaved in one process, the best of several rounds, ratios against targets.

`harness` times and reports and knows no structure; each family has a module of cases (`filters`). The
peers come with the extra `bench`: pip install 'evenbins[bench]'. Run: evenbins bench filters, or
python -m evenbins.bench filters.
"""

from evenbins.bench.harness import (
    Case,
    Contender,
    Limit,
    MissingPeerError,
    Report,
    Target,
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
    "WrongAnswerError",
    "run",
]
