"""The count-min sketch against a Counter and against its twin: no underestimate, identical bytes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbins import CountMinSketch, HeavyHitters
from reference import ReferenceCountMin
from reference.keys import canonical

MOST = 2**64 - 1

# Few keys and few counters, so that keys collide and come again.
KEYS = st.one_of(
    st.integers(-5, 40), st.text("ab", max_size=3), st.binary(max_size=2), st.integers(-(2**63), MOST)
)
WEIGHTS = st.one_of(st.integers(0, 5), st.integers(0, 2**40))
SHAPES = st.fixed_dictionaries(
    {
        "epsilon": st.sampled_from([0.5, 0.2, 0.05]),
        "delta": st.sampled_from([0.3, 0.05, 0.001]),
        "construction": st.sampled_from(["classic", "two-hash"]),
        "conservative": st.booleans(),
        "seed": st.integers(0, MOST),
    }
)
STREAMS = st.lists(st.tuples(KEYS, WEIGHTS), max_size=60)


def twin_of(s: CountMinSketch) -> ReferenceCountMin:
    return ReferenceCountMin(s.plan.core, s.seed)


def same_bytes(s: CountMinSketch, twin: ReferenceCountMin) -> bool:
    s._check()
    return s.to_bytes().endswith(twin.payload()) and s.total == twin.total


@given(SHAPES, STREAMS, st.data())
def test_bulk_single_and_twin_leave_the_same_bytes_and_no_estimate_is_too_small(
    shape: dict[str, Any], stream: list[tuple[Any, int]], data: st.DataObject
) -> None:
    s = CountMinSketch(**shape)
    twin = twin_of(s)
    truth: Counter[int | bytes] = Counter()
    for key, weight in stream:
        twin.add(key, weight)
        truth[canonical(key)] += weight
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        keys, weights = zip(*stream[at : at + size], strict=True)
        if size == 1:
            s.add(keys[0], weights[0])
        else:
            s.add_many(keys, data.draw(st.sampled_from([list, np.array]))(weights))
        at += size
    assert same_bytes(s, twin)
    assert CountMinSketch.from_bytes(s.to_bytes()) == s
    assert s.total == truth.total()
    estimates = s.count_many(list(truth)).tolist()
    assert estimates == [s.count(key) for key in truth] == [twin.count(key) for key in truth]
    assert all(n <= estimate <= s.total for n, estimate in zip(truth.values(), estimates, strict=True))


@given(SHAPES, STREAMS, STREAMS)
def test_a_merge_is_the_stream_of_both(
    shape: dict[str, Any], first: list[tuple[Any, int]], second: list[tuple[Any, int]]
) -> None:
    shape = {**shape, "conservative": False}
    parts = [CountMinSketch(**shape) for _ in range(3)]
    twins = [twin_of(s) for s in parts]
    for part, twin, stream in zip(parts, twins, [first, second, first + second], strict=True):
        for key, weight in stream:
            part.add(key, weight)
            twin.add(key, weight)
    a, b, both = parts
    assert a | b == both
    assert a.inner_product(b) == twins[0].inner_product(twins[1])
    twins[0].merge(twins[1])
    assert same_bytes(a | b, twins[0])
    counts = [Counter[int | bytes](), Counter[int | bytes]()]
    for counter, stream in zip(counts, (first, second), strict=True):
        for key, weight in stream:
            counter[canonical(key)] += weight
    assert a.inner_product(b) >= sum(n * counts[1][key] for key, n in counts[0].items())


@given(SHAPES, st.lists(st.tuples(KEYS, st.integers(0, MOST)), min_size=1, max_size=8))
def test_an_overflow_is_refused_at_the_same_key(shape: dict[str, Any], stream: list[tuple[Any, int]]) -> None:
    single, bulk = CountMinSketch(**shape), CountMinSketch(**shape)
    twin = twin_of(single)
    failed = None
    for i, (key, weight) in enumerate(stream):
        try:
            twin.add(key, weight)
        except OverflowError:
            with pytest.raises(OverflowError, match="not added"):
                single.add(key, weight)
            failed = i
            break
        single.add(key, weight)
    keys, weights = zip(*stream, strict=True)
    if failed is None:
        bulk.add_many(keys, weights)
    else:
        with pytest.raises(OverflowError, match=rf"keys\[{failed}\]"):
            bulk.add_many(keys, weights)
    assert same_bytes(single, twin)
    assert same_bytes(bulk, twin)


@given(SHAPES, st.integers(1, 6), st.lists(st.tuples(st.integers(0, 15), st.integers(0, 4)), max_size=80))
def test_heavy_hitters_keep_their_promise(
    shape: dict[str, Any], k: int, stream: list[tuple[int, int]]
) -> None:
    bulk, single = HeavyHitters(k, **shape), HeavyHitters(k, **shape)
    truth: Counter[int] = Counter()
    for key, weight in stream:
        single.add(key, weight)
        truth[key] += weight
    middle = len(stream) // 2
    for part in (stream[:middle], stream[middle:]):
        bulk.add_many(np.array([key for key, _ in part], int), [weight for _, weight in part])
    came = {key for key, n in truth.items() if n}
    for h in (bulk, single):
        h._check()
        top = dict(h.top())
        assert len(top) == min(k, len(came))
        assert all(truth[key] <= estimate <= h.count(key) for key, estimate in top.items())
        if len(top) == k:
            assert all(truth[key] <= min(top.values()) for key in came - top.keys())
        else:
            assert top.keys() == came
    assert sorted(dict(bulk.top()).values()) == sorted(dict(single.top()).values())
    assert bulk.sketch == single.sketch
