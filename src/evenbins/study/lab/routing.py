"""The page Routing: what policies find in the caches of LLM replicas, on conversations drawn at random.

    routing/replay     a job: hits and times to first token of each policy, as `evenbins simulate llm`

The trace is `study.llm_synthetic`'s, so that a view needs no file and its address says all of it. Traces of
one's own are for the command line, which the answer names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evenbins.study.lab.parameters import Choice, Endpoint, Number
from evenbins.study.llm import FURTHER, PEERS, POLICIES, replay_llm
from evenbins.study.llm_synthetic import synthetic_requests

__all__ = ["ENDPOINTS", "replay"]

GROUPS = {"main": POLICIES, "all": (*POLICIES, *FURTHER), "peers": (*POLICIES, *PEERS)}


def replay(
    *, requests: int, per_second: float, turns: float, shared: int, replicas: int, cache_blocks: int,
    epsilon: float, policies: str, seed: int, progress: Callable[[int, int], object],
) -> dict[str, Any]:  # fmt: skip
    """Return the rows of a replay, what the trace holds, and texts to copy.

    Examples
    --------
    >>> found = replay(requests=50, per_second=5, turns=3, shared=1, replicas=2, cache_blocks=100,
    ...                epsilon=0.25, policies="main", seed=1, progress=lambda done, total: None)
    >>> [row["policy"] for row in found["rows"]]
    ['global', 'round-robin', 'least-work', 'hash', 'prefix', 'score']
    """
    trace = synthetic_requests(
        requests=requests, per_second=per_second, turns=turns, shared_blocks=shared, seed=seed
    )
    names = GROUPS[policies]
    report = replay_llm(
        trace, replicas=replicas, cache_blocks=cache_blocks, epsilon=epsilon, policies=names, seed=seed,
        progress=progress,
    )  # fmt: skip
    group = {"main": "", "all": " --all", "peers": " --peers"}[policies]
    return report.to_dict() | {
        "requests": report.requests,
        "blocks": report.blocks,
        "minutes": report.minutes,
        "longest": max(each.tokens for each in trace),
        "command": (
            f"evenbins simulate llm --trace TRACE --replicas {replicas} --cache-blocks {cache_blocks} "
            f"--epsilon {epsilon:g} --seed {seed}{group}"
        ),
        "python": (
            "from evenbins.study.llm import replay_llm\n"
            "from evenbins.study.llm_synthetic import synthetic_requests\n\n"
            f"trace = synthetic_requests(requests={requests}, per_second={per_second!r}, turns={turns!r}, "
            f"shared_blocks={shared}, seed={seed})\n"
            f"report = replay_llm(trace, replicas={replicas}, cache_blocks={cache_blocks}, "
            f"epsilon={epsilon!r}, policies={list(names)}, seed={seed})\n"
            "print(report)\n"
        ),
    }


ENDPOINTS = [
    Endpoint(
        "routing/replay",
        replay,
        [
            Number("requests", least=10, most=10_000, default=1500, whole=True, help="requests of the trace"),
            Number("per_second", least=0.1, most=100, default=4, help="requests per second"),
            Number("turns", least=1, most=50, default=3, help="mean requests of a conversation"),
            Number("shared", least=0, most=50, default=1, whole=True, help="blocks all prompts begin with"),
            Number("replicas", least=1, most=64, default=8, whole=True, help="number of replicas"),
            Number("cache_blocks", least=1, most=100_000, default=1000, whole=True, help="blocks in a cache"),
            Number("epsilon", least=0, most=10, default=0.25, help="how far a load may exceed the mean"),
            Choice("policies", choices=tuple(GROUPS), default="main", help="which policies"),
            Number("seed", least=0, most=2**32 - 1, default=1, whole=True, help="of trace and routers"),
        ],
        "A replay of conversations through replicas that cache prefixes, by policies",
        job=True,
    ),
]
