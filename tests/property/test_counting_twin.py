"""The counting filter against its twin and a `collections.Counter`, through any legitimate history.

The machine adds, removes what is in, tries to remove what is not, merges, copies and stores. Filters are
tiny and their counters narrow, so that keys share counters and counters fill up. After every step the bytes
are the twin's, no key that the Counter holds is missed, and no count is too low.
"""

from __future__ import annotations

import collections
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sizes import size

import reference
from evenbins import CountingBloomFilter
from evenbins.filters import plan_of_core
from reference import format as file_format

INTEGERS = st.integers(-5, 40)
KEYS = st.one_of(INTEGERS, st.text("ab", max_size=3), st.binary(max_size=2))


@st.composite
def cores(draw: st.DrawFn) -> tuple[int, ...]:
    bits = draw(st.sampled_from([2, 4, 8, 16]))
    if draw(st.booleans()):
        return draw(st.integers(1, 3)) * (512 // bits), bits, draw(st.integers(1, 32)), 512
    return draw(st.integers(1, 120)), bits, draw(st.integers(1, 64)), 0


def canonical(key: Any) -> Any:
    return key.encode() if isinstance(key, str) else key


class CountingMachine(RuleBasedStateMachine):
    """A filter, its twin and the multiset of the keys that are in."""

    @initialize(core=cores(), seed=st.integers(0, 2**64 - 1))
    def make(self, core: tuple[int, ...], seed: int) -> None:
        self.plan = plan_of_core("counting", core, capacity=10, seed=seed)
        self.filter = CountingBloomFilter.from_plan(self.plan)
        self.twin = reference.ReferenceCounting(*core, seed=seed)
        self.model: collections.Counter[Any] = collections.Counter()

    @rule(key=KEYS)
    def add(self, key: Any) -> None:
        self.filter.add(key)
        self.twin.add(key)
        self.model[canonical(key)] += 1

    @rule(keys=st.lists(INTEGERS, max_size=30), times=st.integers(1, 9), threads=st.sampled_from([1, 2]))
    def add_many(self, keys: list[int], times: int, threads: int) -> None:
        self.filter.add_many(np.array(keys * times, np.int64), threads=threads)
        for key in keys * times:
            self.twin.add(key)
        self.model.update(keys * times)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model, key=repr)))
        self.filter.remove(key)
        assert self.twin.remove(key)
        self.model -= collections.Counter([key])

    @precondition(lambda self: self.model)
    @rule(data=st.data(), whole=st.booleans())
    def remove_many(self, data: st.DataObject, whole: bool) -> None:
        held = sorted(self.model.elements(), key=repr)
        keys = held if whole else data.draw(st.permutations(held))[: data.draw(st.integers(0, len(held)))]
        assert self.filter.remove_many(keys).all()
        assert [self.twin.remove(key) for key in keys] == [True] * len(keys)
        self.model -= collections.Counter(keys)

    @rule(keys=st.lists(KEYS, max_size=6))
    def a_removal_that_shows_is_refused(self, keys: list[Any]) -> None:
        absent = [key for key in keys if key not in self.twin]
        before = bytes(memoryview(self.filter))
        assert not self.filter.remove_many(absent).any()
        for key in absent:
            with pytest.raises(KeyError):
                self.filter.remove(key)
        assert bytes(memoryview(self.filter)) == before

    @rule(keys=st.lists(KEYS, max_size=12), inverse=st.booleans())
    def merge(self, keys: list[Any], inverse: bool) -> None:
        other = CountingBloomFilter.from_plan(self.plan)
        twin = reference.ReferenceCounting(*self.plan.core, seed=self.plan.seed)
        for key in keys:
            other.add(key)
            twin.add(key)
        if inverse:
            self.filter = other | self.filter
        else:
            self.filter |= other
        self.twin.merge(twin)
        self.model.update(map(canonical, keys))

    @rule()
    def merge_with_itself(self) -> None:
        self.filter |= self.filter
        self.twin.merge(self.twin)
        self.model.update(dict(self.model))

    @rule(way=st.sampled_from(["pickle", "bytes", "copy"]))
    def store(self, way: str) -> None:
        data = self.filter.to_bytes()
        assert file_format.unpack(data).payload == self.twin.payload()
        if way == "pickle":
            self.filter = pickle.loads(pickle.dumps(self.filter))
        elif way == "bytes":
            self.filter = CountingBloomFilter.from_bytes(data)
        else:
            self.filter = self.filter.copy()
        assert self.filter.to_bytes() == data

    @rule()
    def clear(self) -> None:
        self.filter.clear()
        self.twin.values.clear()
        self.model.clear()

    @invariant()
    def the_bytes_are_the_twins(self) -> None:
        assert bytes(memoryview(self.filter)) == self.twin.payload()
        self.filter._check()

    @invariant()
    def nothing_is_missed_and_no_count_is_too_low(self) -> None:
        keys = list(self.model)
        assert self.filter.contains_many(keys).all()
        counts = self.filter.count_many(keys).tolist()
        assert counts == [self.filter.count(key) for key in keys] == [self.twin.count(key) for key in keys]
        most = 2**self.filter.counter_bits - 1
        assert all(n >= min(self.model[key], most) for n, key in zip(counts, keys, strict=True))


def test_any_legitimate_history_keeps_the_promise() -> None:
    run_state_machine_as_test(
        CountingMachine, settings=settings(max_examples=size(40, 120), stateful_step_count=25)
    )


@settings(max_examples=size(70, 200))
@given(core=cores(), before=st.lists(KEYS, max_size=20), keys=st.lists(KEYS, max_size=10))
def test_adding_and_removing_restores_the_bytes_unless_a_counter_was_filled(
    core: tuple[int, ...], before: list[Any], keys: list[Any]
) -> None:
    f = CountingBloomFilter.from_plan(plan_of_core("counting", core, capacity=10, seed=1))
    f.add_many(before)
    payload, full = bytes(memoryview(f)), f.stats().saturated
    f.add_many(keys)
    filled = f.stats().saturated != full
    assert f.remove_many(keys).all()
    assert filled or bytes(memoryview(f)) == payload
    assert f.contains_many(before).all()


@settings(max_examples=size(70, 200))
@given(core=cores(), keys=st.lists(INTEGERS, max_size=200))
def test_the_order_of_the_adds_leaves_no_trace(core: tuple[int, ...], keys: list[int]) -> None:
    f, g = (
        CountingBloomFilter.from_plan(plan_of_core("counting", core, capacity=10, seed=2)) for _ in range(2)
    )
    f.add_many(keys)
    for key in sorted(keys, reverse=True):
        g.add(key)
    assert f == g
