"""The one-read table against a dict and its twin: the same bytes, whatever happens in between."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from evenbins import PagedTable, TableFullError
from reference.paged import ReferencePaged, read_table

KEYS = st.integers(-40, 600)
MANY = st.lists(KEYS, max_size=200)
MEMORY = Path("/dev/shm")


class PagedMachine(RuleBasedStateMachine):
    """Three pages in level 1, one each in two more, one for overflow: a table that fills up."""

    @initialize(seed=st.integers(0, 2**64 - 1), levels=st.integers(1, 3), count=st.integers(0, 700))
    def create(self, seed: int, levels: int, count: int) -> None:
        self.folder = tempfile.mkdtemp(dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
        self.path = os.path.join(self.folder, "table")
        self.table = PagedTable.create(self.path, 400, levels=levels, load=0.8, seed=seed, durable=False)
        self.twin = ReferencePaged(self.table._core, uid=self.table._uid, seed=seed)
        self.model: dict[int, int] = {}
        self.insert_many(list(range(1000, 1000 + count)), 1)

    @rule(key=KEYS, value=st.integers(-(2**63), 2**63 - 1))
    def set(self, key: int, value: int) -> None:
        try:
            self.table[key] = value
        except TableFullError:
            assert not self.twin.insert(key, value)
            assert key not in self.model
            return
        assert self.twin.insert(key, value)
        self.model[key] = value

    @rule(keys=MANY, value=st.integers(0, 9))
    def insert_many(self, keys: list[int], value: int) -> None:
        values = [value * i for i in range(len(keys))]
        try:
            self.table.insert_many(keys, values)
            assert self.twin.insert_many(keys, values)
        except TableFullError:
            assert not self.twin.insert_many(keys, values)
        self.model = {key: item for page in self.twin.data for key, item in page}

    @rule(key=KEYS)
    def delete(self, key: int) -> None:
        assert (key in self.table) == (key in self.model)
        if key in self.model:
            del self.table[key], self.model[key]
            assert self.twin.delete(key)

    @rule(keys=MANY)
    def delete_many(self, keys: list[int]) -> None:
        there = {key for key in keys if key in self.model}
        assert self.table.delete_many(keys) == len(there)
        for key in sorted(dict.fromkeys(keys), key=lambda key: self.twin.places(key)[0]):
            self.twin.delete(key)
            self.model.pop(key, None)

    @rule(keys=MANY)
    def look(self, keys: list[int]) -> None:
        assert self.table.get_many(keys, default=-7).tolist() == [self.model.get(key, -7) for key in keys]
        for key in keys[:5]:
            assert self.table.get(key) == self.model.get(key)

    @rule(how=st.sampled_from(["close", "die", "close, summary lost", "checkpoint"]))
    def reopen(self, how: str) -> None:
        if how == "checkpoint":
            self.table.checkpoint()
            return
        if how == "die":
            self.table._close()
        else:
            self.table.close()
        if how == "close, summary lost":
            os.unlink(self.path + ".summary")
        with PagedTable.open(self.path) as readers:
            assert len(readers) == len(self.model)
        self.table = PagedTable.open(self.path, writable=True, durable=False)
        assert read_table(Path(self.path).read_bytes()).pages == self.twin.pages()

    @invariant()
    def the_same(self) -> None:
        if not hasattr(self, "table"):
            return
        assert len(self.table) == len(self.model)
        self.table._check()
        assert self.table.stats().reads in (0.0, 1.0)

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        assert dict(self.table.items()) == self.model
        self.table.close()
        assert read_table(Path(self.path).read_bytes()).pages == self.twin.pages()
        shutil.rmtree(self.folder)


TestPaged = PagedMachine.TestCase
TestPaged.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
