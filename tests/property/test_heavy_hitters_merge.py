"""What HeavyHitters promises after merges, against a Counter; its state, against a dictionary of all keys.

A stream is divided into parts, which are merged in any order, with keys added in between and afterwards.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from evenbins import HeavyHitters, digest

KEYS = st.integers(0, 25)
STREAMS = st.lists(st.tuples(KEYS, st.integers(0, 5)), max_size=40)
SHAPES = st.fixed_dictionaries({
    "epsilon": st.sampled_from([0.9, 0.3, 0.05]), "delta": st.sampled_from([0.5, 0.05]),
    "construction": st.sampled_from(["classic", "two-hash"]), "conservative": st.booleans(),
    "seed": st.integers(0, 3),
})  # fmt: skip


class Watched:
    """Heavy hitters beside the exact counts of their stream, and whether every estimate was close so far."""

    def __init__(self, k: int, shape: dict[str, Any]) -> None:
        self.hitters, self.truth, self.close = HeavyHitters(k, **shape), Counter[int](), True

    def add(self, stream: list[tuple[int, int]]) -> None:
        self.hitters.add_many(np.array([key for key, _ in stream], int), [weight for _, weight in stream])
        for key, weight in stream:
            self.truth[key] += weight
        self._look()

    def merge(self, other: Watched) -> None:
        self.close &= other.close
        self.hitters |= other.hitters
        self.truth = self.truth + other.truth
        self._look()

    def _look(self) -> None:
        bound = self.hitters.plan.epsilon * self.hitters.total
        self.close &= all(self.hitters[key] - self.truth[key] <= bound for key in range(26))

    def check(self) -> None:
        h, truth = self.hitters, self.truth
        h._check()
        assert h.total == sum(truth.values())
        top, stats = dict(h.top()), h.stats()
        came = {key for key, n in truth.items() if n}
        assert all(h[key] >= n for key, n in truth.items())
        # the first: only the number survives a merge
        assert all(truth[key] <= stats.untracked_bound for key in came - top.keys())
        assert len(top) == min(h.k, len(came))
        assert (stats.untracked_bound == 0) <= (top.keys() == came)
        assert stats.untracked_bound >= (stats.least if len(top) == h.k else 0)
        # the second
        if self.close:
            event("every estimate is close")
            heavy = {key for key, n in truth.items() if n > (1 / h.k + h.plan.epsilon) * h.total}
            assert heavy <= top.keys()
        # the third
        assert all(truth[key] <= estimate <= h[key] for key, estimate in top.items())  # type: ignore[index]


@given(
    k=st.integers(1, 8),
    shape=SHAPES,
    parts=st.lists(STREAMS, min_size=2, max_size=5),
    merges=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), STREAMS), max_size=4),
)
def test_promises_after_merges(k: int, shape: dict[str, Any], parts: Any, merges: Any) -> None:
    made = [Watched(k, shape) for _ in parts]
    for each, stream in zip(made, parts, strict=True):
        each.add(stream)
        each.check()
    for i, j, more in merges:
        one, other = made[i % len(made)], made[j % len(made)]
        one.merge(other)
        one.check()
        one.add(more)
        one.check()


@given(k=st.integers(1, 8), shape=SHAPES, parts=st.lists(STREAMS, min_size=2, max_size=2))
def test_a_merge_is_symmetric(k: int, shape: dict[str, Any], parts: Any) -> None:
    a, b = (Watched(k, shape) for _ in range(2))
    a.add(parts[0])
    b.add(parts[1])
    one, other = a.hitters | b.hitters, b.hitters | a.hitters
    assert one == other
    assert one.to_bytes() == other.to_bytes()
    assert HeavyHitters.from_bytes(one.to_bytes()) == one


@given(k=st.integers(1, 8), shape=SHAPES, stream=STREAMS, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_the_state_is_that_of_a_dictionary_of_all_keys(
    k: int, shape: dict[str, Any], stream: Any, cuts: Any
) -> None:
    """The k largest of (estimate when it last came, digest), of all keys that came: whatever the batches."""
    bulk, single = HeavyHitters(k, **shape), HeavyHitters(k, **shape)
    values: dict[int, tuple[int, int]] = {}
    for key, weight in stream:
        single.add(key, weight)
        if weight:
            values[key] = single.count(key), digest(key, seed=shape["seed"])
    places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    for start, end in itertools.pairwise(places):
        part = stream[start:end]
        bulk.add_many([key for key, _ in part], [weight for _, weight in part])
    largest = heapq.nlargest(k, ((value, key) for key, value in values.items()))
    assert single.top() == [(key, estimate) for (estimate, _), key in largest]
    assert bulk.to_bytes() == single.to_bytes()
