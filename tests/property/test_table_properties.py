"""The multilevel table against a dict and its twin: the same bytes after each step, one move at most."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sizes import size

from evenbins import MultilevelTable, TableFullError
from evenbins.study.stepwise import Full
from evenbins.tables.multilevel import plan_multilevel
from evenbins.tables.multilevel_plan import SCHEMES
from reference import ReferenceMultilevel

NUMBERS = st.integers(0, 45)  # few keys and few slots, so that buckets fill up
VALUES = st.integers(0, 2**63 - 1)


class Tables(RuleBasedStateMachine):
    """The same calls on a table, its twin and a dict."""

    @initialize(
        scheme=st.sampled_from(SCHEMES),
        slots=st.sampled_from([1, 2, 4, 8]),
        sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
        limit=st.integers(0, 6),
        key_dtype=st.sampled_from(["int64", "uint64", "digest"]),
        helpers=st.tuples(st.booleans(), st.booleans()),
        seed=st.sampled_from([0, 7, 2**64 - 1]),
    )
    def make(
        self, scheme: str, slots: int, sizes: list[int], limit: int, key_dtype: str, helpers: Any, seed: int
    ) -> None:
        if scheme == "least-loaded" and len(sizes) == 1:
            sizes = sizes * 2
        self.key_dtype = key_dtype
        self.table = MultilevelTable.from_plan(
            plan_multilevel(
                sum(sizes) * slots,
                scheme=scheme,
                slots=slots,
                space=1.0,
                shares=sizes,
                overflow_limit=limit,
                key_dtype=key_dtype,
                occupancy_bits=helpers[0],
                next_hashes=helpers[1],
                seed=seed,
            )
        )
        self.twin = ReferenceMultilevel(self.table.plan.core, seed)
        self.dict: dict[Any, int] = {}

    def key(self, number: int) -> Any:
        if self.key_dtype == "digest":
            return f"k{number}" if number else ""
        return number - 20 if self.key_dtype == "int64" else number

    def places(self) -> dict[int, int]:
        return {each[0]: slot for slot, each in enumerate(self.twin.table) if each is not None}

    def both(self, number: int, value: int, *, new: bool, single: bool) -> None:
        """Insert one key on all sides; one resident at most changes its place."""
        key = self.key(number)
        before = self.places()
        bytes_before = self.table.to_bytes()
        full = False
        try:
            self.twin.insert(self.twin.stored(key), value, new=new)
        except Full:
            full = True
        try:
            if single:
                self.table[key] = value
            else:
                self.table.insert_many([key], [value], assume_unique=new)
        except TableFullError:
            assert full
            assert self.table.to_bytes() == bytes_before
            return
        assert not full
        self.dict[key] = value
        after = self.places()
        assert sum(after.get(each) != slot for each, slot in before.items()) <= 1

    @rule(number=NUMBERS, value=VALUES)
    def assign(self, number: int, value: int) -> None:
        self.both(number, value, new=False, single=True)

    @rule(number=NUMBERS, value=VALUES)
    def insert_new(self, number: int, value: int) -> None:
        self.both(number, value, new=self.key(number) not in self.dict, single=False)

    @rule(batch=st.lists(st.tuples(NUMBERS, VALUES), max_size=40))
    def insert_many(self, batch: list[tuple[int, int]]) -> None:
        taken = 0
        for number, value in batch:
            try:
                self.twin.insert(self.twin.stored(self.key(number)), value)
            except Full:
                break
            self.dict[self.key(number)] = value
            taken += 1
        keys, values = [self.key(number) for number, _ in batch], [value for _, value in batch]
        inserted = len(batch)
        try:
            self.table.insert_many(keys, values)
        except TableFullError as error:
            inserted = error.inserted
        assert inserted == taken

    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        key = self.key(number)
        there = self.twin.delete(self.twin.stored(key))
        assert self.table.pop(key, None) == self.dict.pop(key, None)
        assert there == (self.table.delete_many([key]) == 0 and there)

    @rule(numbers=st.lists(NUMBERS, max_size=20))
    def delete_many(self, numbers: list[int]) -> None:
        keys = [self.key(number) for number in numbers]
        gone = sum(self.twin.delete(self.twin.stored(key)) for key in keys)
        assert self.table.delete_many(keys) == gone
        for key in keys:
            self.dict.pop(key, None)

    @rule(numbers=st.lists(NUMBERS, max_size=80), threads=st.integers(1, 2))
    def look(self, numbers: list[int], threads: int) -> None:
        keys = [self.key(number) for number in numbers]
        assert self.table.contains_many(keys, threads=threads).tolist() == [key in self.dict for key in keys]
        found = self.table.get_many(keys, default=-1, threads=threads)
        assert found.dtype == np.int64
        assert found.tolist() == [self.dict.get(key, -1) for key in keys]

    @rule(number=NUMBERS)
    def probe(self, number: int) -> None:
        key = self.key(number)
        level, reads, listed = self.table.probe(key)
        assert reads <= self.table.plan.levels
        found = self.twin.find(self.twin.stored(key))
        if found is not None and found[0] == "slot":
            assert (level, reads, listed) == (
                self.twin.level_of(found[1] // self.twin.slots) + 1,
                level,
                False,
            )
        else:
            assert (level, reads, listed) == (0, self.table.plan.levels, bool(self.twin.order))
            assert listed or key not in self.dict

    @rule()
    def store_and_load(self) -> None:
        self.table = MultilevelTable.from_bytes(self.table.to_bytes())
        self.twin = ReferenceMultilevel.from_payload(self.twin.core, self.twin.seed, self.twin.payload())

    @rule()
    def grow(self) -> None:
        larger = self.table.grown(4 * self.table.plan.keys + 60)
        assert sorted(larger.items()) == sorted(self.table.items())
        larger._check()

    @precondition(lambda self: len(self.dict) > 20)
    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.twin.clear()
        self.dict.clear()

    @invariant()
    def same_state(self) -> None:
        if not hasattr(self, "table"):
            return
        self.table._check()
        assert self.table.to_bytes().endswith(self.twin.payload())
        assert len(self.table) == len(self.dict)
        stats = self.table.stats()
        assert stats.moves <= 1
        assert stats.overflow_used == len(self.twin.order) <= stats.overflow_limit
        signed = self.key_dtype == "int64"
        items = [(key - 2**64 if signed and key >= 2**63 else key, value) for key, value in self.twin.items()]
        assert list(self.table.items()) == items


TestTables = Tables.TestCase
TestTables.settings = settings(max_examples=size(40, 250), stateful_step_count=30)
