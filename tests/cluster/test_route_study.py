"""The router under 200 streaming requests at a time, of skewed keys, over 8 replicas with prefix caches."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import route_study


def test_no_admission_above_the_bound_and_more_hits_than_without_keys():
    """300 requests a policy; by key a prefix is computed once for each of the few replicas it meets."""
    options = {
        "requests": 300, "concurrency": 200, "replicas": 8, "prefixes": 120, "cache_size": 20,
        "piece_seconds": 0.005, "miss_seconds": 0.02,
    }  # fmt: skip
    found = {
        policy: asyncio.run(asyncio.wait_for(route_study.run(policy, **options), 120))
        for policy in ("jump", "least-loaded")
    }
    jump = found["jump"]
    assert jump.over == 0
    assert jump.most > 1
    assert all(each.failed == 0 for each in found.values())
    assert jump.status["in_flight"] == 0
    assert jump.hit_rate > found["least-loaded"].hit_rate + 0.05
