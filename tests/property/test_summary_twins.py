"""Summaries against their twins: the same bytes after each step; and no key that is in is answered 0."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sizes import size

from evenbins.study.counter_summary import CounterSummary
from evenbins.tables.summaries import (
    InterpolationSummary,
    MultipleBloomSummary,
    SingleFilterSummary,
    Summary,
    plan_of_summary_core,
)
from reference import summaries as reference

CLASSES: dict[int, Any] = {
    9: (InterpolationSummary, reference.ReferenceInterpolation),
    10: (SingleFilterSummary, reference.ReferenceSingleFilter),
    11: (MultipleBloomSummary, reference.ReferenceMultipleBloom),
    12: (CounterSummary, reference.ReferenceCounters),
}
KEYS = st.integers(0, 60)  # few, and few cells, so that they meet


def core_of(draw: st.DrawFn, kind: int) -> tuple[int, ...]:
    levels = draw(st.integers(1, 9))
    if kind == 9:
        return levels, draw(st.sampled_from([8, 9, 31, 60])), draw(st.integers(1, 80))
    if kind == 10:
        hashes = draw(st.integers(1, 9))
        cells = hashes * draw(st.integers(1, 40))
        widths = draw(st.lists(st.integers(1, 5), min_size=levels, max_size=levels))
        return (levels, cells, hashes, *(widths if draw(st.booleans()) else []))
    if kind == 11:
        flags = draw(st.integers(0, 3))
        core = [levels, flags]
        for j in range(levels):
            hashes = draw(st.integers(0 if j else 1, 8))
            width = draw(st.integers(1, 5)) if flags & 2 and hashes else 1
            core += [draw(st.integers(1, 90)), hashes, width]
        return tuple(core)
    return draw(st.integers(1, 12)), draw(st.integers(1, 90)), draw(st.integers(1, 5))


@st.composite
def cores(draw: st.DrawFn) -> tuple[int, tuple[int, ...]]:
    kind = draw(st.sampled_from(sorted(CLASSES)))
    return kind, core_of(draw, kind)


def made(kind: int, core: tuple[int, ...], seed: int = 0) -> tuple[Summary, reference.ReferenceSummary]:
    cls, twin = CLASSES[kind]
    return cls.from_plan(plan_of_summary_core(core, number=kind, keys=50, seed=seed)), twin(core, seed)


class Summaries(RuleBasedStateMachine):
    """The same calls on a summary, its twin and a multiset of keys with levels."""

    @initialize(core=cores(), seed=st.sampled_from([0, 5, 2**64 - 1]))
    def make(self, core: tuple[int, tuple[int, ...]], seed: int) -> None:
        self.summary, self.twin = made(*core, seed=seed)
        self.held: Counter[tuple[int, int]] = Counter()

    def some_level(self, number: int) -> int:
        return number % self.twin.levels + 1

    @rule(key=KEYS, number=st.integers(0, 8))
    def add(self, key: int, number: int) -> None:
        level = self.some_level(number)
        self.summary.add(key, level)
        self.twin.add(key, level)
        self.held[key, level] += 1

    @rule(keys=st.lists(KEYS, max_size=30), number=st.integers(0, 8))
    def add_many(self, keys: list[int], number: int) -> None:
        levels = [self.some_level(number + i) for i in range(len(keys))]
        self.summary.add_many(keys, levels)
        for key, level in zip(keys, levels, strict=True):
            self.twin.add(key, level)
            self.held[key, level] += 1

    @precondition(lambda self: self.summary._can_remove and self.held)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key, level = data.draw(st.sampled_from(sorted(self.held)))
        assert self.summary.remove_many([key], [level]).tolist() == [self.twin.remove(key, level)] == [True]
        self.held[key, level] -= 1
        self.held += Counter()

    @precondition(lambda self: self.held and not isinstance(self.summary, CounterSummary))
    @rule(data=st.data(), number=st.integers(0, 8))
    def move(self, data: st.DataObject, number: int) -> None:
        key, level = data.draw(st.sampled_from(sorted(self.held)))
        target = self.some_level(number)
        if target < level and not self.summary._can_remove:
            with pytest.raises(TypeError, match="cannot forget"):
                self.summary.move(key, level, target)
            return
        self.summary.move(key, level, target)
        self.twin.move(key, level, target)
        self.held[key, level] -= 1
        self.held[key, target] += 1
        self.held += Counter()

    @rule()
    def copy(self) -> None:
        twin = self.summary.copy()
        assert twin == self.summary
        self.summary = type(twin).from_bytes(twin.to_bytes())

    @invariant()
    def the_bytes_are_the_twins(self) -> None:
        payload = self.twin.payload()
        assert len(payload) == self.summary.nbytes
        assert self.summary.to_bytes()[-len(payload) :] == payload
        self.summary._check()

    @invariant()
    def the_answers_are_the_twins_and_no_key_is_lost(self) -> None:
        answers = self.summary.level_many(range(70)).tolist()
        assert answers == [self.twin.level(key) for key in range(70)]
        for key, level in self.held:
            assert answers[key] > 0
            if not self.summary._can_remove and not isinstance(self.summary, CounterSummary):
                assert answers[key] >= level


TestSummaries = Summaries.TestCase
TestSummaries.settings = settings(
    max_examples=size(30, 60), stateful_step_count=20, deadline=None, derandomize=True
)


@pytest.mark.parametrize(
    ("core", "keys"),
    [((3, 20, 50), 1100), ((2, 40, 2900), 3200)],
    ids=["behind the last slot", "a long stretch"],
)
def test_an_interpolation_summary_that_is_too_full_loses_no_key(core: tuple[int, ...], keys: int) -> None:
    """What finds no room, or would make too long a stretch, is counted; then nothing is answered 0."""
    summary, twin = made(9, core)
    levels = [i % core[0] + 1 for i in range(keys)]
    summary.add_many(range(keys), levels)
    summary._check()
    state = int.from_bytes(summary.to_bytes()[-summary.nbytes + 8 :][:8], "little")
    assert state > 0
    assert (summary.level_many(range(2 * keys)) > 0).all()
    if keys < 2000:
        for key, level in enumerate(levels):
            twin.add(key, level)
        assert summary.to_bytes().endswith(twin.payload())
    for key, level in enumerate(levels[:-1]):
        assert summary.remove_many([key], [level]).all()
        if key % 100 == 0:
            assert (summary.level_many(range(key + 1, keys)) > 0).all()
    summary._check()
    assert summary.level(keys - 1) > 0
    assert summary.stats().keys == 1
