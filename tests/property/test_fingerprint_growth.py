"""A fingerprint filter that grows against its twin, through any history across its doublings.

Filters have two blocks and more, so that many steps find them in the middle of a growth, in which half of the
keys are in the old lines. Bytes are compared in a copy: a copy is complete, and leaves the filter as it is.
"""

from __future__ import annotations

import collections
import pickle
from typing import Any

import numpy as np
from hypothesis import settings
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

from evenbins import FingerprintFilter
from evenbins.filters import plan_of_core
from reference import ReferenceFingerprint

KEYS = st.integers(0, 3000)
RUNS = st.builds(lambda first, count: range(first, first + count), KEYS, st.sampled_from([1, 3, 20, 300]))


def pair(core: tuple[int, ...], seed: int) -> tuple[FingerprintFilter, ReferenceFingerprint]:
    plan: Any = plan_of_core("fingerprint", core, capacity=100, seed=seed, hashing="lanes")
    return FingerprintFilter.from_plan(plan), ReferenceFingerprint(*core, seed=seed)  # type: ignore[misc]


class GrowthMachine(RuleBasedStateMachine):
    """A filter, its twin, and the keys that are in; the list has room for whatever comes."""

    @initialize(
        group=st.integers(1, 2),
        blocks=st.integers(1, 6),
        remainder=st.sampled_from([11, 14, 19, 28]),
        keys=st.sampled_from([100, 300, 1000]),
        is_set=st.integers(0, 1),
        seed=st.integers(0, 2**64 - 1),
    )
    def make(self, group: int, blocks: int, remainder: int, keys: int, is_set: int, seed: int) -> None:
        core = (16 * group * blocks, remainder, 61, group, 4000, keys + keys // 100, is_set, 7)
        self.filter, self.twin = pair(core, seed)
        self.model: collections.Counter[int] = collections.Counter()

    def count(self, keys: Any) -> None:
        for key in keys:
            self.twin.add(key)
            self.model[key] += not (self.twin.shape.set and self.model[key])

    @rule(keys=RUNS)
    def add(self, keys: range) -> None:
        self.count(keys)
        for key in keys:
            self.filter.add(key)

    @rule(keys=RUNS, threads=st.sampled_from([1, 2]))
    def add_many(self, keys: range, threads: int) -> None:
        self.count(keys)
        self.filter.add_many(np.array(keys), threads=threads)

    @rule(keys=RUNS, one=st.booleans())
    def add_new(self, keys: range, one: bool) -> None:
        new = [key for key in keys if key not in self.twin]
        found = [self.filter.add_new(key) for key in keys] if one else self.filter.add_new_many(list(keys))
        collided = {key for key, is_new in zip(keys, found, strict=True) if key in new and not is_new}
        assert all(key in new for key, is_new in zip(keys, found, strict=True) if is_new)
        self.count(key for key in new if key not in collided)

    @precondition(lambda self: not self.twin.shape.set and self.model)
    @rule(data=st.data(), threads=st.sampled_from([0, 1, 2]))
    def remove(self, data: st.DataObject, threads: int) -> None:
        held = sorted(self.model.elements())
        first = data.draw(st.integers(0, len(held) - 1))
        keys = held[first : first + data.draw(st.sampled_from([1, 10, 500]))]
        if threads:
            assert self.filter.remove_many(np.array(keys), threads=threads).all()
        else:
            for key in keys:
                self.filter.remove(key)
        assert all(self.twin.remove(key) for key in keys)
        self.model -= collections.Counter(keys)

    @rule(way=st.sampled_from(["pickle", "bytes", "copy"]))
    def store(self, way: str) -> None:
        if way == "pickle":
            self.filter = pickle.loads(pickle.dumps(self.filter))
        elif way == "bytes":
            self.filter = FingerprintFilter.from_bytes(self.filter.to_bytes())
        else:
            self.filter = self.filter.copy()

    @invariant()
    def the_bytes_are_the_twins(self) -> None:
        twin = self.filter.copy()
        assert tuple(twin.plan.core) == tuple(self.filter.plan.core) == self.twin.core
        assert bytes(memoryview(twin)) == self.twin.payload()
        assert twin == self.filter

    @invariant()
    def every_key_is_found(self) -> None:
        keys = [*self.model, *range(10_000, 10_300)]
        assert self.filter.contains_many(keys).tolist() == [key in self.twin for key in keys]
        assert self.filter.count_many(keys).tolist() == [self.twin.count(key) for key in keys]


def test_any_history_leaves_the_bytes_of_a_direct_build() -> None:
    run_state_machine_as_test(
        GrowthMachine, settings=settings(max_examples=size(12, 60), stateful_step_count=15, deadline=None)
    )
