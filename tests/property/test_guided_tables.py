"""Tables with a summary against a dict: no key is lost, wrong answers cost reads alone, steps are bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from evenbins import MultilevelTable, TableFull
from evenbins._guided import FORGETFUL, RISING, GuideState
from evenbins.theory.summary_plan import KINDS, SummaryPlan, plan_summary
from evenbins.theory.table_plan import SCHEMES

NUMBERS = st.integers(0, 60)


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
    """The same calls on a table with a summary and on a dict."""

    @initialize(design=designs())
    def make(self, design: dict[str, Any]) -> None:
        is_narrow = design.pop("narrow")
        self.key_dtype = design["key_dtype"]
        keys = sum(design["shares"]) * design["slots"]
        if is_narrow:
            levels = len(design["shares"]) + (design["overflow_limit"] > 0)
            design["summary"] = narrow(design["summary"], levels, keys)
        self.table = MultilevelTable(keys, **design)
        self.dict: dict[Any, int] = {}
        self.can_delete = design["deletions"] == "lazy" or self.table.plan.summary.kind in FORGETFUL  # type: ignore[union-attr]
        self.cursor = 0

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
        except TableFull:
            assert key not in self.dict
            assert self.table.to_bytes() == before
            return
        self.dict[key] = value

    @rule(numbers=st.lists(NUMBERS, max_size=40), value=st.integers(0, 9))
    def insert_many(self, numbers: list[int], value: int) -> None:
        keys = [self.key(number) for number in numbers]
        try:
            self.table.insert_many(keys, value)
        except TableFull as full:
            keys = keys[: full.inserted]
        self.dict |= dict.fromkeys(keys, value)

    @precondition(lambda self: self.can_delete)
    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        key = self.key(number)
        assert (self.table.pop(key, None) is not None) == (self.dict.pop(key, None) is not None)

    @precondition(lambda self: self.can_delete)
    @rule(numbers=st.lists(NUMBERS, max_size=30))
    def delete_many(self, numbers: list[int]) -> None:
        keys = {self.key(number) for number in numbers}
        assert self.table.delete_many(list(keys)) == len(keys & self.dict.keys())
        for key in keys:
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
        before = self.guide
        self.table.rebuild()
        assert self.guide.reserved == 0 if before.due else self.guide.rebuilds == 0

    @rule()
    def copy(self) -> None:
        twin = self.table.copy()
        assert twin == self.table
        assert GuideState(*twin._guide_state()) == self.guide
        self.table = twin

    @invariant()
    def the_table_is_the_dict(self) -> None:
        self.table._check()
        assert len(self.table) == len(self.dict)
        numbers = [self.key(number) for number in range(61)]
        expected = [self.dict.get(key, -1) for key in numbers]
        assert self.table.get_many(numbers, default=-1).tolist() == expected
        assert self.table.contains_many(numbers).tolist() == [key in self.dict for key in numbers]

    @invariant()
    def a_rebuild_ends_before_the_next_is_due(self) -> None:
        guide = self.guide
        if guide.due:
            assert guide.reserved <= 2 * guide.due + 1


TestGuidedTables = GuidedTables.TestCase
TestGuidedTables.settings = settings(max_examples=80, stateful_step_count=25, deadline=None, derandomize=True)


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
    assert steps <= 1 + 2 * (sum(t.plan.buckets) + t.plan.overflow_limit) / t.plan.due
    assert t.stats().rebuilds >= 10
    assert t.get_many(keys).size == 2900
    assert t.stats().reads <= 1.01
    t._check()
