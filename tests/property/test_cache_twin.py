"""The cache replay against its twin: the same counts on any small trace and on any part of it.

Counts of every beginning are as good as the state: a copy too many or too few shows at some next request.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenbins import _study
from reference import cache_replay as twin

POLICIES = ("plain", "clockwise", "rehash", "jump")


@st.composite
def traces(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Times and urls, few of each, so that they meet."""
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 2, 7]), max_size=50))
    times = np.cumsum([draw(st.integers(-20, 20)), *gaps]).tolist()[: len(gaps)]
    most = draw(st.sampled_from([1, 4, 15]))
    return times, draw(st.lists(st.integers(0, most), min_size=len(gaps), max_size=len(gaps)))


CONFIGURATIONS = st.fixed_dictionaries(
    {
        "servers": st.integers(1, 7),
        "copies": st.integers(1, 3),
        "cache_size": st.sampled_from([None, 0, 1, 2, 3]),
        "limit": st.sampled_from([None, 0, 1, 2, 5]),
        "stale": st.sampled_from([0, 1, 4, 20, 1000]),
        "served": st.sampled_from([0, 1, 4, 20]),
        "recovery": st.sampled_from([0, 1, 4, 20]),
    }
)


def assert_alike(times: list[int], urls: list[int], configuration: dict[str, Any], seed: int) -> None:
    baseline, distinct, counts = _study.simulate_cache(
        np.array(times, np.int64), np.array(urls, np.uint64), **configuration,
        runs=[(policy, seed) for policy in POLICIES], threads=1, progress=None,
    )  # fmt: skip
    assert baseline == twin.baseline_misses(times, urls, stale=configuration["stale"])
    assert distinct == len(set(urls))
    for policy, seen in zip(POLICIES, counts, strict=True):
        assert seen == twin.replay(times, urls, **configuration, policy=policy, seed=seed), policy
        assert seen[0] >= baseline


@settings(max_examples=150, deadline=None)
@given(traces(), CONFIGURATIONS, st.integers(0, 2**64 - 1), st.integers(0, 50))
@example(([0] * 6, [1, 2, 3, 1, 2, 3]),
         {"servers": 2, "copies": 1, "cache_size": 1, "limit": 2, "stale": 5, "served": 5, "recovery": 0},
         0, 4)  # fmt: skip
def test_all_counts_are_those_of_the_twin(
    trace: tuple[list[int], list[int]], configuration: dict[str, Any], seed: int, beginning: int
) -> None:
    times, urls = trace
    assert_alike(times, urls, configuration, seed)
    assert_alike(times[:beginning], urls[:beginning], configuration, seed)


def test_long_walks_are_those_of_the_twin() -> None:
    """150 servers of one url each, nearly all full: some walks use up all draws and go on by a stride."""
    m = 150
    times, urls = list(range(2 * m)), [url for url in range(m) for _ in range(2)]
    configuration = {"servers": m, "copies": 1, "cache_size": 1, "limit": None, "stale": 10**6, "served": 1,
                     "recovery": 1}  # fmt: skip
    _, _, counts = _study.simulate_cache(
        np.array(times, np.int64), np.array(urls, np.uint64), **configuration,
        runs=[("jump", seed) for seed in range(40)], threads=1, progress=None,
    )  # fmt: skip
    long = [seed for seed, seen in enumerate(counts) if seen[5] > 2 * m + 64]
    assert len(long) >= 2
    for seed in long[:2]:
        assert_alike(times, urls, configuration, seed)
