"""The set operations of filters against those of Python's sets.

What holds for the sets must hold for the filters, one-sidedly: no key that the exact answer has is missed,
no true subset is denied, and bits are the very bits that a filter of the keys would have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    CountingBloomFilter,
    CountMinSketch,
    GrowingFilter,
    ShardedFilter,
)

KEYS = st.sets(
    st.one_of(st.integers(-(2**63), 2**64 - 1), st.text(max_size=5), st.binary(max_size=5)), max_size=40
)
FEW = st.sets(st.integers(0, 30), max_size=20)
MAKERS: dict[str, Any] = {
    "standard": lambda: BloomFilter(40, 0.1),
    "standard, odd bits": lambda: BloomFilter(13, bits_per_key=5),
    "blocked": lambda: BlockedBloomFilter(200, 0.1),
    "blocked 256": lambda: BlockedBloomFilter(40, 0.1, block_bits=256),
}
ALL: dict[str, Any] = MAKERS | {
    "balanced": lambda: BalancedBloomFilter(40, 0.1),
    "counting": lambda: CountingBloomFilter(40, 0.1),
    "growing": lambda: GrowingFilter(0.1, first=10),
    "sharded": lambda: ShardedFilter(40, 0.1, shards=3),
}
each_bitwise = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
each_filter = pytest.mark.parametrize("make", ALL.values(), ids=ALL)


def filled(make: Any, keys: set[Any]) -> Any:
    made = make()
    made.update(sorted(keys, key=repr))
    return made


@each_bitwise
@given(st.lists(KEYS, min_size=2, max_size=4))
def test_the_intersection_holds_what_the_sets_have_in_common(make: Any, sets: list[set[Any]]) -> None:
    filters = [filled(make, keys) for keys in sets]
    both = filters[0].intersection(*filters[1:])
    assert both.contains_many(list(set.intersection(*sets))).all()
    for each in filters:
        assert both <= each
    wanted = np.bitwise_and.reduce([np.frombuffer(each, np.uint8) for each in filters])
    assert bytes(memoryview(both)) == wanted.tobytes()
    both._check()


@each_bitwise
@given(FEW, FEW)
def test_a_true_subset_is_never_denied(make: Any, mine: set[int], theirs: set[int]) -> None:
    f, g = filled(make, mine), filled(make, theirs)
    if mine <= theirs:
        assert f <= g
        assert g >= f
    if not f <= g:
        assert mine - theirs
    assert (f <= g) == ((f | g) == g) == ((f & g) == f) == (g >= f)
    assert (f <= g and g <= f) == (f == g)


@each_filter
@given(st.lists(KEYS, min_size=1, max_size=4))
def test_the_union_holds_every_key(make: Any, sets: list[set[Any]]) -> None:
    filters = [filled(make, keys) for keys in sets]
    before = [each.to_bytes() for each in filters]
    union = filters[0].union(*filters[1:])
    assert union.contains_many(list(set.union(*sets))).all()
    assert bool(union) == any(sets)
    assert [each.to_bytes() for each in filters] == before
    union._check()


@each_filter
@given(KEYS)
def test_a_filter_is_true_exactly_when_it_has_a_key(make: Any, keys: set[Any]) -> None:
    assert bool(filled(make, keys)) == bool(keys)


@pytest.mark.parametrize("name", ["standard", "blocked", "counting", "sharded"])
@given(FEW, FEW)
def test_an_estimated_overlap_lies_between_none_and_all(name: str, mine: set[int], theirs: set[int]) -> None:
    f, g = filled(ALL[name], mine), filled(ALL[name], theirs)
    found = f.approx_intersection(g)
    assert 0.0 <= found <= min(f.approx_items(), g.approx_items())
    if not mine or not theirs:
        assert found == 0.0


@given(st.lists(st.tuples(FEW, FEW), max_size=3))
def test_plus_and_or_are_one(pairs: list[tuple[set[int], set[int]]]) -> None:
    for mine, theirs in pairs:
        for make in (lambda: CountingBloomFilter(40), lambda: CountMinSketch(0.1, 0.1)):
            f, g = filled(make, mine), filled(make, theirs)
            assert f + g == f | g
            both = f | g
            f += g
            assert f == both


@pytest.mark.parametrize(
    "cls", [BloomFilter, BlockedBloomFilter, BalancedBloomFilter, CountingBloomFilter, GrowingFilter]
)
@given(st.lists(st.one_of(st.integers(0, 20), st.text("ab", max_size=3)), max_size=60))
def test_from_keys_plans_for_the_set_and_holds_it(cls: Any, keys: list[Any]) -> None:
    for source in (keys, iter(keys), tuple(keys)):
        made = cls.from_keys(source, 0.01)
        assert made.contains_many(keys).all() or not keys
        distinct = max(len(set(keys)), 1)
        assert distinct <= made.capacity <= distinct + 1
