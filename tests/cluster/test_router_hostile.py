"""The router between hostile clients and hostile replicas: no good request is refused.

The clients, the replicas and what must hold are in tools/router_hostile.py, which runs random pairs for long.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from router_hostile import CLIENTS, REPLICAS, SLOTLESS, all_pairs, hostile_run


def test_no_good_request_is_refused_among_hostile_clients_and_replicas():
    """Every client that reaches a replica with every replica: 300 pairs, 100 at a time."""
    pairs = all_pairs()
    outcome = asyncio.run(hostile_run(pairs, limit=1000, at_once=100, idle=100, read_timeout=3.0))
    assert outcome.problems == []
    assert outcome.exchanges == len(pairs)
    assert len(pairs) > len(REPLICAS) * (len(CLIENTS) - len(SLOTLESS))
    assert outcome.good > 50


def test_clients_whose_request_does_not_arrive_take_no_place():
    """Each replica has one place; the good requests need it, one at a time."""
    pairs = [(client, "half") for client in SLOTLESS for _ in range(3)]
    outcome = asyncio.run(hostile_run(pairs, limit=1, at_once=100, idle=20, read_timeout=3.0, good=1))
    assert outcome.problems == []
    assert outcome.exchanges == len(pairs)
    assert outcome.good > 10
