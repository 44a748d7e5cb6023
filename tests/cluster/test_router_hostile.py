"""The router between hostile clients and hostile replicas: no good request is refused.

The clients, the replicas and what must hold are in tools/router_hostile.py, which runs random pairs for long.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from fault_study import Pace
from router_hostile import CLIENTS, PARSED, REPLICAS, SLOTLESS, Outcome, all_pairs, hostile_run


def run(pairs: list[tuple[str, str]], **options: int) -> Outcome:
    """Run the pairs; again with longer timeouts, if the machine was too slow for those of the first run."""
    for read_timeout in (3.0, 12.0):
        with Pace() as pace:
            outcome = asyncio.run(hostile_run(pairs, read_timeout=read_timeout, at_once=100, **options))
        if not outcome.problems or pace.slowest < read_timeout / 10:
            break
    return outcome


def test_no_good_request_is_refused_among_hostile_clients_and_replicas():
    """Every client that reaches a replica with every replica: 300 pairs, 100 at a time."""
    pairs = all_pairs()
    outcome = run(pairs, limit=1000, idle=100)
    assert outcome.problems == []
    assert outcome.exchanges == len(pairs)
    assert len(pairs) > len(REPLICAS) * (len(CLIENTS) - len(SLOTLESS) - len(PARSED))
    assert outcome.good > 50


def test_clients_whose_request_does_not_arrive_take_no_place():
    """Each replica has one place; the good requests need it, one at a time."""
    pairs = [(client, "half") for client in SLOTLESS for _ in range(3)]
    outcome = run(pairs, limit=1, idle=20, good=1)
    assert outcome.problems == []
    assert outcome.exchanges == len(pairs)
    assert outcome.good > 10
