"""The fingerprint filter against its twin and a multiset of fingerprints, through any history.

Filters have one block or two and short lines, so that lines overflow, runs come back, and the overflow list
fills up. After every step the bytes are the twin's: they depend on the fingerprints alone.
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

from evenbins import FilterFullError, FingerprintFilter
from evenbins.filters import plan_of_core
from reference import ReferenceFingerprint
from reference.keys import digest

KEYS = st.integers(0, 400)
LISTS = st.lists(KEYS, max_size=60) | st.builds(range, st.integers(0, 300), st.integers(300, 900))


@st.composite
def cores(draw: st.DrawFn, *, is_set: int | None = None) -> tuple[int, ...]:
    remainder = draw(st.sampled_from([4, 7, 8, 11, 16, 17, 18, 20, 24, 27, 28]))
    group = draw(st.integers(1, 3))
    lines = 16 * group * draw(st.integers(1, 2))
    rest, limit = draw(st.sampled_from([0, 5, 64])), draw(st.sampled_from([200, 1500, 10_000]))
    kind = draw(st.integers(0, 1)) if is_set is None else is_set
    return lines, remainder, draw(st.integers(32, 64)), group, rest, limit, kind, 0


def pair(core: tuple[int, ...], seed: int = 0) -> tuple[FingerprintFilter, ReferenceFingerprint]:
    plan: Any = plan_of_core("fingerprint", core, capacity=100, seed=seed, hashing="lanes")
    return FingerprintFilter.from_plan(plan), ReferenceFingerprint(*core, seed=seed)  # type: ignore[misc]


def add_to_twin(twin: ReferenceFingerprint, keys: Any) -> int:
    """Add keys up to the first that does not fit; return how many are in."""
    for i, key in enumerate(keys):
        try:
            twin.add(key)
        except OverflowError:
            return i
    return len(keys)


class FingerprintMachine(RuleBasedStateMachine):
    """A multiset, its twin, and the keys that are in."""

    @initialize(core=cores(is_set=0), seed=st.integers(0, 2**64 - 1))
    def make(self, core: tuple[int, ...], seed: int) -> None:
        self.filter, self.twin = pair(core, seed)
        self.model: collections.Counter[int] = collections.Counter()

    @rule(key=KEYS, times=st.integers(1, 60))
    def add(self, key: int, times: int) -> None:
        added = add_to_twin(self.twin, [key] * times)
        for _ in range(added):
            self.filter.add(key)
        if added < times:
            with pytest.raises(FilterFullError):
                self.filter.add(key)
        self.model[key] += added

    @rule(keys=LISTS)
    def add_list(self, keys: Any) -> None:
        added = add_to_twin(self.twin, keys)
        if added == len(keys):
            self.filter.add_many(list(keys))
        else:
            with pytest.raises(FilterFullError) as error:
                self.filter.add_many(list(keys))
            assert error.value.added == added
        self.model.update(list(keys)[:added])

    @rule(keys=LISTS, threads=st.sampled_from([1, 2]))
    def add_array(self, keys: Any, threads: int) -> None:
        """All keys or none."""
        added = add_to_twin(self.twin, keys)
        if added == len(keys):
            self.filter.add_many(np.array(keys, np.int64), threads=threads)
            self.model.update(keys)
            return
        for key in list(keys)[:added]:
            assert self.twin.remove(key)
        with pytest.raises(FilterFullError) as error:
            self.filter.add_many(np.array(keys, np.int64), threads=threads)
        assert error.value.added == 0

    @precondition(lambda self: self.model)
    @rule(data=st.data(), whole=st.booleans())
    def remove_many(self, data: st.DataObject, whole: bool) -> None:
        held = sorted(self.model.elements())
        keys = held if whole else data.draw(st.lists(st.sampled_from(held), max_size=80, unique=True))
        assert self.filter.remove_many(keys).all()
        assert all(self.twin.remove(key) for key in keys)
        self.model -= collections.Counter(keys)

    @rule(keys=st.lists(st.integers(1000, 1100), max_size=6))
    def absent_keys_are_not_removed(self, keys: list[int]) -> None:
        absent = [key for key in keys if key not in self.twin]
        assert not self.filter.remove_many(absent).any()
        assert not any(self.filter.discard(key) for key in absent)

    @rule(keys=LISTS)
    def add_filter(self, keys: Any) -> None:
        other, twin = pair(self.twin.core, self.twin.seed)
        added = list(keys)[: add_to_twin(twin, keys)]
        for key in added:
            other.add(key)
        try:
            self.twin.merge(twin)
        except OverflowError:
            with pytest.raises(FilterFullError, match="do not fit in one"):
                self.filter += other
            return
        self.filter += other
        self.model.update(added)

    @rule(way=st.sampled_from(["pickle", "bytes", "copy"]))
    def store(self, way: str) -> None:
        data = self.filter.to_bytes()
        if way == "pickle":
            self.filter = pickle.loads(pickle.dumps(self.filter))
        elif way == "bytes":
            self.filter = FingerprintFilter.from_bytes(data)
        else:
            self.filter = self.filter.copy()
        assert self.filter.to_bytes() == data

    @invariant()
    def the_bytes_are_the_twins(self) -> None:
        assert bytes(memoryview(self.filter)) == self.twin.payload()
        self.filter._check()

    @invariant()
    def counts_are_those_of_the_fingerprints(self) -> None:
        keys = range(0, 1100, 3)
        counts = [self.twin.count(key) for key in keys]
        assert self.filter.count_many(keys).tolist() == counts
        assert self.filter.contains_many(keys).tolist() == [count > 0 for count in counts]
        assert self.filter.contains_many(list(self.model.elements())).all()
        found = self.filter.stats()
        assert (found.keys, found.distinct) == (self.twin.copies, self.twin.set_bits())
        assert found.overflow * max(found.keys, 1) == pytest.approx(len(self.twin.rest()))


def test_any_history_leaves_the_bytes_of_the_twin() -> None:
    run_state_machine_as_test(
        FingerprintMachine,
        settings=settings(max_examples=size(25, 150), stateful_step_count=15, deadline=None),
    )


@settings(max_examples=size(30, 150), deadline=None)
@given(core=cores(is_set=1), mine=LISTS, theirs=LISTS, threads=st.sampled_from([1, 2]))
def test_sets_hold_each_fingerprint_once(core: tuple[int, ...], mine: Any, theirs: Any, threads: int) -> None:
    f, twin = pair(core)
    g, other = pair(core)
    for made, reference, keys in ((f, twin, mine), (g, other, theirs)):
        if add_to_twin(reference, keys) < len(keys):
            return
        made.add_many(np.array(keys, np.int64), threads=threads)
        made.add_many(list(keys))
        assert not made.add_new_many(list(keys)).any()
        assert bytes(memoryview(made)) == reference.payload()
    assert f.count_many(mine).tolist() == [1] * len(mine)
    try:
        twin.merge(other)
    except OverflowError:
        with pytest.raises(FilterFullError, match="do not fit in one"):
            f |= g
        return
    assert bytes(memoryview(f | g)) == twin.payload()


def test_the_fingerprint_is_the_digest_times_their_number() -> None:
    f, twin = pair((48, 20, 64, 3, 8, 100, 0, 0), seed=9)
    f.add("key")
    run, remainder = divmod(digest("key", 9) * twin.shape.fingerprints >> 64, 1 << 20)
    line, quotient = divmod(run, 64)
    assert twin.place(digest("key", 9)) == (twin.lines[line], (quotient, remainder))
    words = np.frombuffer(memoryview(f), np.uint64).reshape(-1, 8)
    assert int(words[1 + line, 0]) == 1 << quotient
    assert int(words[1 + line, 1]) & 1 == 1
