"""Structures on disk, each beside an oracle in memory: tables in pages, mapped filters, sharded folders.

    pages     churn in bulk and singly; closed and opened, abandoned as a crash leaves it and opened, saved as
              pages from memory and opened; the file does not grow, the journal is bounded
    mapped    a structure that changes in memory is saved over its file again and again; who has the old
              file open keeps the old answers, who opens anew has the new ones
    sharded   the same for a folder of shards, which never holds more than two generations of them

Files lie in a temporary folder of the system's (TMPDIR), synced as they always are.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    GrowingFilter,
    PagedTable,
    ShardedFilter,
)
from soaks.harness import Case, Soak
from soaks.in_memory import TableSoak, universe

__all__ = ["CASES"]

_KEYS = 20_000
_ASKED = 500  # keys after each change; all of them when there is an audit


class PagesSoak(TableSoak):
    """A one-read table: what a table in memory goes through, and ends of all kinds."""

    def __init__(self, rng: np.random.Generator, **options: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="evenbins-soak-"))
        self.path = self.folder / "pages"
        super().__init__(rng, lambda: PagedTable.create(self.path, _KEYS, **options), _KEYS, copies=False)
        self.durable = options.get("durable", True)
        self.bytes = self.path.stat().st_size

    def step(self) -> int:
        match int(self.rng.integers(12)):
            case 0:
                self.table.close()
                self.reopen("closed")
            case 1:
                self.table._close()  # the process ends here: pages as they are, changes in the journal
                self.reopen("abandoned")
            case 2:
                self.table.checkpoint()
                self.done["checkpoints"] += 1
        return super().step()

    def reopen(self, how: str) -> None:
        """Open again, sometimes after a look at every page, sometimes without the summary's file."""
        self.done[how] += 1
        summary = Path(f"{self.path}.summary")
        if self.rng.random() < 0.3 and summary.exists():
            summary.unlink()
        verify = self.rng.random() < 0.3
        self.table = PagedTable.open(self.path, writable=True, durable=self.durable, verify=verify)

    def ask(self, some: slice) -> int:
        """Look up fewer keys than a table in memory does: what is to be tried here are changes."""
        if some.start is not None:
            some = slice(some.start, some.start + _ASKED)
        return super().ask(some)

    def singly(self, places: Any) -> int:
        return super().singly(places[:20])  # each change is a sync of the disk

    def audit(self) -> None:
        super().audit()
        stats = self.table.stats()
        self.same((stats.nbytes, self.path.stat().st_size), (self.bytes, self.bytes), "bytes of the file")
        self.same(sum(stats.level_keys), int(self.there.sum()), "stats().level_keys")
        self.holds(stats.journal_bytes <= 33 << 20, f"a journal of {stats.journal_bytes} bytes")
        names = {each.name for each in self.folder.iterdir()}
        self.same(names <= {"pages", "pages.journal", "pages.summary"}, True, f"files {sorted(names)}")

    def close(self) -> None:
        self.table.close()
        shutil.rmtree(self.folder)


class MappedSoak(Soak):
    """A filter that grows in memory; its file, or folder, is replaced while readers have it open."""

    def __init__(self, rng: np.random.Generator, make: Callable[[], Any]) -> None:
        super().__init__(rng)
        self.folder = Path(tempfile.mkdtemp(prefix="evenbins-soak-"))
        self.path = self.folder / "filter"
        self.keys = universe(rng, _KEYS)
        self.there = np.zeros(_KEYS, bool)
        self.filter = make()
        self.filter.save(self.path)
        self.readers: list[tuple[Any, Any]] = []  # mapped filters, and the oracle as it was then

    def step(self) -> int:
        rng, cls, done = self.rng, type(self.filter), 0
        if self.there.mean() > 0.9:
            self.filter.clear()
            self.there[:] = False
        places = rng.integers(0, _KEYS, int(10 ** rng.uniform(0, 3.3)))
        self.filter.add_many(self.keys[places])
        self.there[places] = True
        self.filter.save(self.path)
        self.done["saves"] += 1
        self.readers.append((cls.open(self.path, verify=bool(rng.integers(2))), self.there.copy()))
        self.readers = self.readers[-3:]
        for reader, there in self.readers:
            start = int(rng.integers(0, _KEYS - _ASKED))
            some = slice(start, start + _ASKED)
            self.lose(
                (there[some] & ~reader.contains_many(self.keys[some])).sum(), "keys that are in, missed"
            )
            done += _ASKED
        if rng.random() < 0.1:
            loaded = cls.load(self.path)
            self.lose(int(loaded != self.filter), "files that differ from what was saved")
            self.filter = loaded
            self.done["loads"] += 1
        return done + len(places)

    def audit(self) -> None:
        self.sound(self.filter)
        opened = type(self.filter).open(self.path, verify=True)
        for reader, there in [*self.readers, (opened, self.there)]:
            self.lose((there & ~reader.contains_many(self.keys)).sum(), "keys that are in, missed")
        self.sound(opened)
        self.same(opened == self.filter, True, "the file is the filter")
        self.same(opened.stats(), self.filter.stats(), "stats() of the file")
        self.same([each.name for each in self.folder.iterdir()], ["filter"], "files left")
        if self.path.is_dir():
            self.same(len(list(self.path.glob("shards-*"))), 1, "generations of shards")

    def close(self) -> None:
        self.readers.clear()
        shutil.rmtree(self.folder)


def _mapped_case(name: str, make: Callable[[], Any], share: float = 1.0) -> Case:
    return Case(name, lambda rng: MappedSoak(rng, make), share)


CASES = [
    Case("pages", lambda rng: PagesSoak(rng), 3),
    Case("pages, not durable", lambda rng: PagesSoak(rng, durable=False), 3),
    Case("pages of 8192 bytes", lambda rng: PagesSoak(rng, page_bytes=8192, levels=2), 2),
    _mapped_case("mapped, standard", lambda: BloomFilter(_KEYS)),
    _mapped_case("mapped, blocked", lambda: BlockedBloomFilter(_KEYS)),
    _mapped_case("mapped, balanced", lambda: BalancedBloomFilter(_KEYS)),
    _mapped_case("mapped, growing", lambda: GrowingFilter(1e-3, first=1_000)),
    _mapped_case("sharded folder", lambda: ShardedFilter(_KEYS, shards=4)),
]
