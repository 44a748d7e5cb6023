"""Tables with a summary against a dict and a twin: the same bytes of both after each step.

No key is lost, wrong answers cost reads alone, steps are bounded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sizes import size

from evenbins import MultilevelTable, TableFullError
from evenbins.study.stepwise import Full
from evenbins.tables.multilevel import GuideState, plan_multilevel
from evenbins.tables.multilevel_plan import FORGETFUL, RISING, SCHEMES, attachment
from evenbins.tables.summaries import SummaryPlan, plan_summary
from evenbins.tables.summary_plan import KINDS
from reference.guided import ReferenceGuided
from reference.summaries import ReferenceInterpolation, ReferenceMultipleBloom, ReferenceSingleFilter

NUMBERS = st.integers(0, 60)
COUNT = 61


@st.composite
def designs(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(KINDS))
    scheme = draw(st.sampled_from(SCHEMES if kind in FORGETFUL else RISING))
    sizes = draw(st.lists(st.integers(1, 8), min_size=2, max_size=4))
    return {
        "scheme": scheme,
        "slots": draw(st.sampled_from([1, 2, 8])),
        "shares": sizes,
        "space": 1.0,
        "overflow_limit": draw(st.integers(0, 6)),
        "key_dtype": draw(st.sampled_from(["int64", "digest"])),
        "summary": kind,
        "deletions": "lazy" if kind not in FORGETFUL and scheme == "standard" else False,
        "narrow": draw(st.booleans()),
    }


def narrow(kind: str, levels: int, keys: int) -> SummaryPlan:
    """Plan a summary so small that it is often wrong."""
    match kind:
        case "interpolation":
            return plan_summary(keys, kind=kind, levels=levels, digest_bits=8)
        case "single-filter" | "counting-single-filter":
            return plan_summary(keys, kind=kind, levels=levels, filters=[(2 * (keys // 2 + 4), 2)])
    filters = [(keys + 8, 2), *[(6, 1)] * (levels - 2), (2, 0)]
    return plan_summary(keys, kind=kind, levels=levels, filters=filters[:levels])


class GuidedTables(RuleBasedStateMachine):
    """The same calls on a table with a summary, its twin and a dict."""

    @initialize(design=designs(), seed=st.sampled_from([0, 3]))
    def make(self, design: dict[str, Any], seed: int) -> None:
        is_narrow = design.pop("narrow")
        keys = sum(design["shares"]) * design["slots"]
        if is_narrow:
            levels = len(design["shares"]) + (design["overflow_limit"] > 0)
            design["summary"] = narrow(design["summary"], levels, keys)
        self.start(MultilevelTable.from_plan(plan_multilevel(keys, seed=seed, **design)), seed)

    def start(self, table: MultilevelTable, seed: int) -> None:
        self.table, plan = table, table.plan
        assert plan.summary is not None
        self.key_dtype = table.key_dtype
        number, core, due = attachment(plan)
        twins = {9: ReferenceInterpolation, 10: ReferenceSingleFilter, 11: ReferenceMultipleBloom}
        self.twin = ReferenceGuided(plan.core, lambda: twins[number](core, seed), seed, due=due)
        self.dict: dict[Any, int] = {}
        self.can_delete = due > 0 or plan.summary.kind in FORGETFUL

    def key(self, number: int) -> Any:
        return number - 20 if self.key_dtype == "int64" else f"k{number}"

    @property
    def guide(self) -> GuideState:
        return GuideState(*self.table._guide_state())

    @rule(number=NUMBERS, value=st.integers(0, 9))
    def insert(self, number: int, value: int) -> None:
        key, before = self.key(number), self.table.to_bytes()
        try:
            self.table[key] = value
        except TableFullError:
            assert key not in self.dict
            assert self.table.to_bytes() == before
            with pytest.raises(Full):
                self.twin.insert(self.twin.stored(key), value)
            return
        self.twin.insert(self.twin.stored(key), value)
        self.dict[key] = value

    @rule(numbers=st.lists(NUMBERS, max_size=40), value=st.integers(0, 9))
    def insert_many(self, numbers: list[int], value: int) -> None:
        keys = [self.key(number) for number in numbers]
        try:
            self.table.insert_many(keys, value)
        except TableFullError as full:
            keys = keys[: full.inserted]
        for key in keys:
            self.twin.insert(self.twin.stored(key), value)
        self.dict |= dict.fromkeys(keys, value)

    @precondition(lambda self: self.can_delete)
    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        key = self.key(number)
        present = self.dict.pop(key, None) is not None
        assert (self.table.pop(key, None) is not None) == present == self.twin.delete(self.twin.stored(key))

    @precondition(lambda self: self.can_delete)
    @rule(numbers=st.lists(NUMBERS, max_size=30))
    def delete_many(self, numbers: list[int]) -> None:
        keys = list({self.key(number): None for number in numbers})
        assert self.table.delete_many(keys) == len(set(keys) & self.dict.keys())
        for key in keys:
            self.twin.delete(self.twin.stored(key))
            self.dict.pop(key, None)

    @rule(number=NUMBERS)
    def a_lookup_is_counted(self, number: int) -> None:
        """One read, or none of a key on the list; a wrong level or a false positive costs more."""
        key, before = self.key(number), self.guide
        level, reads, listed = self.table.probe(key)
        assert self.table.get(key) == self.dict.get(key)
        after = self.guide
        present = key in self.dict
        assert (after.hits - before.hits, after.misses - before.misses) == (present, not present)
        wrong = after.wrong - before.wrong
        if present:
            assert after.hit_reads - before.hit_reads == reads
            assert (reads == (1 if level else 0)) or wrong
            assert reads <= self.table.plan.levels
        else:
            assert after.miss_reads - before.miss_reads == reads
            false_positive = after.false_positives - before.false_positives
            assert reads == (self.table.plan.levels if false_positive else 0)
        assert listed or level or not present

    @rule()
    def rebuild(self) -> None:
        self.table.rebuild()
        if self.twin.due:
            self.twin.new = self.twin.new or self.twin.make()
            while self.twin.new:
                self.twin.step()

    @rule()
    def copy(self) -> None:
        twin = self.table.copy()
        assert twin.same_bytes(self.table)
        assert GuideState(*twin._guide_state()) == self.guide
        self.table = twin

    @invariant()
    def the_state_is_the_twins(self) -> None:
        payload, summary = self.twin.payload(), self.twin.summary.payload()
        assert self.table.to_bytes()[-len(payload) :] == payload
        assert self.table._summary_bytes()[-len(summary) :] == summary
        guide, twin = self.guide, self.twin
        assert (guide.reserved, guide.rebuilds, guide.rebuild_moves, guide.cursor, guide.rebuilding) == (
            len(twin.reserved), twin.rebuilds, twin.rebuild_moves, twin.cursor, twin.new is not None
        )  # fmt: skip
        for number in range(0, COUNT, 3):
            key = self.key(number)
            found, read = twin.look(twin.stored(key))
            assert self.table.probe(key)[1] == len(read)
            assert (found is not None) == (key in self.dict)

    @invariant()
    def the_table_is_the_dict(self) -> None:
        self.table._check()
        assert len(self.table) == len(self.dict)
        numbers = [self.key(number) for number in range(COUNT)]
        expected = [self.dict.get(key, -1) for key in numbers]
        assert self.table.get_many(numbers, default=-1).tolist() == expected
        assert self.table.contains_many(numbers).tolist() == [key in self.dict for key in numbers]

    @invariant()
    def a_rebuild_ends_before_the_next_is_due(self) -> None:
        guide = self.guide
        if guide.due:
            assert guide.reserved <= 2 * guide.due + 1


class LazyTables(GuidedTables):
    """The same with lazy deletions, in tables large enough that a rebuild takes several operations."""

    @initialize(
        kind=st.sampled_from(["single-filter", "multiple-bloom"]),
        sizes=st.tuples(st.integers(15, 30), st.integers(6, 12), st.integers(2, 6)),
        slots=st.sampled_from([1, 2]),
        limit=st.integers(0, 6),
        due=st.integers(8, 25),
        is_narrow=st.booleans(),
        seed=st.integers(0, 50),
    )
    def make(  # type: ignore[override]
        self, kind: str, sizes: tuple[int, ...], slots: int, limit: int, due: int, is_narrow: bool, seed: int
    ) -> None:
        keys = sum(sizes) * slots
        summary = narrow(kind, 3 + (limit > 0), keys) if is_narrow else kind
        table = MultilevelTable.from_plan(plan_multilevel(
            keys, scheme="standard", slots=slots, shares=sizes, space=1.0, overflow_limit=limit,
            summary=summary, deletions="lazy", seed=seed,
        ))  # fmt: skip
        self.start(MultilevelTable.from_plan(replace(table.plan, rebuild_threshold=due)), seed)
        assert self.guide.steps == self.twin.steps < sum(sizes)

    @rule(start=NUMBERS, count=st.integers(1, 40), value=st.integers(0, 9))
    def insert_some(self, start: int, count: int, value: int) -> None:
        self.insert_many([(start + i) % COUNT for i in range(count)], value)

    @rule(start=NUMBERS, count=st.integers(1, 30))
    def delete_some(self, start: int, count: int) -> None:
        self.delete_many([(start + 3 * i) % COUNT for i in range(count)])

    @rule(start=NUMBERS, count=st.integers(5, 40), value=st.integers(0, 9))
    def churn(self, start: int, count: int, value: int) -> None:
        """Delete and insert by turns, so that keys come and go in the middle of a rebuild."""
        for i in range(count):
            self.delete((start + 7 * i) % COUNT)
            self.insert((start + 7 * i + 30) % COUNT, value)


TestLazyTables = LazyTables.TestCase
TestLazyTables.settings = settings(
    max_examples=size(25, 50), stateful_step_count=15, deadline=None, derandomize=True
)
TestGuidedTables = GuidedTables.TestCase
TestGuidedTables.settings = settings(
    max_examples=size(30, 80), stateful_step_count=25, deadline=None, derandomize=True
)


def test_an_operation_does_so_many_steps_and_no_more() -> None:
    """Every insertion and deletion scans at most `steps` buckets; rebuilds come and go all the while."""
    rng = np.random.default_rng(3)
    t = MultilevelTable(3000, scheme="standard", summary="multiple-bloom", deletions="lazy")
    keys = list(range(2900))
    t.insert_many(keys, 0)
    steps, before, most = GuideState(*t._guide_state()).steps, 0, 0
    for i in range(6000):
        at = int(rng.integers(len(keys)))
        del t[keys[at]]
        keys[at] = 10_000 + i
        t[keys[at]] = i
        cursor = GuideState(*t._guide_state()).cursor
        most = max(most, cursor - before if cursor >= before else cursor)
        before = cursor
    assert most <= 2 * steps
    assert steps <= 1 + 2 * (sum(t.plan.buckets) + t.plan.overflow_limit) / t.plan.rebuild_threshold
    assert t.stats().rebuilds >= 10
    assert t.get_many(keys).size == 2900
    assert t.stats().reads <= 1.01
    t._check()
