"""Tables against a dict, and exact sets against a set, with the whole interface of these, step by step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sizes import size

from evenbins import ChainedTable, MultilevelTable, TableFullError
from evenbins.study.stepwise import Full
from evenbins.tables.multilevel import plan_multilevel
from evenbins.tables.multilevel_plan import SCHEMES
from reference import ReferenceMultilevel

KEYS = {
    "int64": st.integers(-15, 15) | st.just(-(2**63)),
    "uint64": st.integers(0, 30) | st.just(2**64 - 1),
    "digest": st.integers(-9, 9) | st.integers(0, 15).map(str) | st.just(2**64 - 1) | st.just(-1),
}
DTYPES = st.sampled_from([*KEYS])


class Mappings(RuleBasedStateMachine):
    """A table and a dict under the verbs of a MutableMapping."""

    @initialize(key_dtype=DTYPES, chained=st.booleans(), seed=st.sampled_from([0, 2**64 - 1]))
    def make(self, key_dtype: str, chained: bool, seed: int) -> None:
        cls: Any = ChainedTable if chained else MultilevelTable
        self.key_dtype = key_dtype
        self.table: Any = cls(60, key_dtype=key_dtype, seed=seed)
        self.dict: dict[Any, int] = {}

    @rule(data=st.data(), value=st.integers(0, 9))
    def assign(self, data: st.DataObject, value: int) -> None:
        key = data.draw(KEYS[self.key_dtype])
        self.table[key] = self.dict[key] = value

    @rule(data=st.data(), value=st.integers(0, 9))
    def set_default(self, data: st.DataObject, value: int) -> None:
        key = data.draw(KEYS[self.key_dtype])
        assert self.table.setdefault(key, value) == self.dict.setdefault(key, value)

    @rule(data=st.data())
    def pop(self, data: st.DataObject) -> None:
        key = data.draw(KEYS[self.key_dtype])
        assert self.table.pop(key, None) == self.dict.pop(key, None)

    @rule()
    def popitem(self) -> None:
        if not self.dict:
            return
        key, value = self.table.popitem()
        if self.key_dtype == "digest":  # whose digest is it?
            key = next(key for key in self.dict if key not in self.table)
        assert self.dict.pop(key) == value

    @rule(data=st.data(), right=st.booleans())
    def unite(self, data: st.DataObject, right: bool) -> None:
        other = data.draw(st.dictionaries(KEYS[self.key_dtype], st.integers(0, 9), max_size=9))
        assert (self.table | other if right else other | self.table) == (
            self.dict | other if right else other | self.dict
        )
        self.table |= other
        self.dict |= other

    @rule(data=st.data())
    def compare(self, data: st.DataObject) -> None:
        other = data.draw(st.dictionaries(KEYS[self.key_dtype], st.integers(0, 9), max_size=4))
        assert (self.table == other) == (self.dict == other)
        made = MultilevelTable.from_items(other, key_dtype=self.key_dtype, seed=self.table.seed)
        assert (self.table == made) == (made == self.table) == (self.dict == other)

    @invariant()
    def same_items(self) -> None:
        if not hasattr(self, "table"):
            return
        assert self.table == self.dict
        assert self.table == self.table.copy()
        assert len(self.table) == len(self.dict) == len(self.table.items())
        assert sorted(self.table.values()) == sorted(self.dict.values())
        if self.key_dtype != "digest":
            assert dict(self.table) == self.dict
            assert self.table.keys() == self.dict.keys()
            assert self.table.items() == self.dict.items()
        self.table._check()


class Sets(RuleBasedStateMachine):
    """An exact set, its readable twin and a Python set: the same answers, and the bytes of the twin."""

    @initialize(
        key_dtype=DTYPES, scheme=st.sampled_from(SCHEMES), slots=st.sampled_from([1, 2, 4, 8]),
        limit=st.integers(0, 6), seed=st.sampled_from([0, 7]),
    )  # fmt: skip
    def make(self, key_dtype: str, scheme: str, slots: int, limit: int, seed: int) -> None:
        self.key_dtype = key_dtype
        plan = plan_multilevel(
            16, scheme=scheme, slots=slots, space=1.0, overflow_limit=limit, key_dtype=key_dtype,
            value_dtype=None, seed=seed,
        )  # fmt: skip
        self.table = MultilevelTable.from_plan(plan)
        self.twin = ReferenceMultilevel(plan.core, seed)
        self.set: set[Any] = set()

    def add_to_twin(self, key: Any) -> bool:
        self.twin.insert(self.twin.stored(key), 0)
        is_new = key not in self.set
        self.set.add(key)
        return is_new

    @rule(data=st.data(), only_add=st.booleans())
    def add(self, data: st.DataObject, only_add: bool) -> None:
        key = data.draw(KEYS[self.key_dtype])
        try:
            expected = self.add_to_twin(key)
        except Full:
            before = self.table.to_bytes()
            try:
                self.table.add_new(key)
            except TableFullError:
                assert self.table.to_bytes() == before
                return
            raise AssertionError("it was not full") from None
        assert (self.table.add(key) is None) if only_add else (self.table.add_new(key) == expected)  # type: ignore[func-returns-value]

    @rule(data=st.data())
    def add_many(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(KEYS[self.key_dtype], max_size=30))
        expected = []
        for key in keys:
            try:
                expected.append(self.add_to_twin(key))
            except Full:
                break
        if len(expected) == len(keys):
            assert self.table.add_new_many(keys).tolist() == expected
            return
        with pytest.raises(TableFullError) as raised:
            self.table.add_new_many(keys)
        assert raised.value.inserted == len(expected)
        assert raised.value.answers.tolist() == expected

    @rule(data=st.data(), how=st.sampled_from(["discard", "remove", "many"]))
    def discard(self, data: st.DataObject, how: str) -> None:
        key = data.draw(KEYS[self.key_dtype])
        there = key in self.set
        assert self.twin.delete(self.twin.stored(key)) == there
        self.set.discard(key)
        if how == "discard":
            assert self.table.discard(key) == there
        elif how == "many":
            assert self.table.discard_many([key, key]) == there
        else:
            try:
                self.table.remove(key)
                assert there
            except KeyError:
                assert not there

    @rule(data=st.data())
    def unite(self, data: st.DataObject) -> None:
        keys = data.draw(st.sets(KEYS[self.key_dtype], max_size=9))
        other = MultilevelTable.from_keys(keys, key_dtype=self.key_dtype, seed=self.table.seed)
        for united in (self.table | other, other | self.table, self.table | keys, keys | self.table):
            assert united == self.set | keys
        assert (self.table == other) == (self.table == keys) == (self.set == keys)

    @rule()
    def store_and_load(self) -> None:
        self.table = MultilevelTable.from_bytes(self.table.to_bytes())
        self.twin = ReferenceMultilevel.from_payload(self.twin.core, self.twin.seed, self.twin.payload())

    @invariant()
    def same_state(self) -> None:
        if not hasattr(self, "table"):
            return
        self.table._check()
        assert self.table == self.set
        assert len(self.table) == len(self.set)
        assert self.table.to_bytes().endswith(self.twin.payload())


TestMappings = Mappings.TestCase
TestMappings.settings = settings(max_examples=size(12, 200), stateful_step_count=25)
TestSets = Sets.TestCase
TestSets.settings = settings(max_examples=size(12, 250), stateful_step_count=30)
