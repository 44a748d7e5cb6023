"""The one-read table: what it does as a mapping, what it refuses, what it counts."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import pickle
import random
import shutil
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats as distributions
from together import together

import evenbins
from evenbins import FormatError, MultilevelTable, PagedStats, PagedTable, TableFullError
from evenbins.tables import page_files
from evenbins.tables.paged import PagedPlan, plan_of_paged_core, plan_paged
from evenbins.tables.paged_plan import page_slots
from evenbins.theory.paged import passed_on
from reference.paged import ReferencePaged, read_table
from reference.xxh3 import xxh3_64


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def filled(path: str, count: int = 3000, **options: object) -> PagedTable:
    table = PagedTable.create(path, count, durable=False, **options)  # type: ignore[arg-type]
    table.insert_many(range(count), range(0, 2 * count, 2))
    return table


# --- the mapping -----------------------------------------------------------------------------------------


def test_single_keys(path: str) -> None:
    with PagedTable.create(path, 100) as t:
        t[5] = 7
        t[-3] = 8
        assert (t[5], t[-3], t.get(6), t.get(6, -1)) == (7, 8, None, -1)
        assert (5 in t, 6 in t, len(t)) == (True, False, 2)
        t[5] = 9
        del t[-3]
        with pytest.raises(KeyError):
            t[-3]
        with pytest.raises(KeyError):
            del t[-3]
        assert dict(t.items()) == {5: 9}
        assert t.pop(5) == 9
        assert t.setdefault(1, 2) == 2
        t._check()


def test_many_keys(path: str) -> None:
    with filled(path) as t:
        asked = np.array([[0, 1, 2], [2999, 3000, -1]])
        assert t.get_many(asked, default=-5).tolist() == [[0, 2, 4], [5998, -5, -5]]
        assert t.contains_many(asked).tolist() == [[True] * 3, [True, False, False]]
        with pytest.raises(KeyError, match="2 of 6 keys are not in the table, the first at index 4"):
            t.get_many(asked)
        assert t.delete_many([0, 1, 5000]) == 2
        assert len(t) == 2998
        assert t.get_many([], default=0).size == 0
        t.insert_many([7, 7, 7], [1, 2, 3])
        assert t[7] == 3
        t.update({1: 5})
        assert sorted(t.items())[:2] == [(1, 5), (2, 4)]
        t._check()
        t.clear()
        assert len(t) == 0
        assert list(t) == []
        t._check()


@pytest.mark.parametrize("in_flight", [1, 4, 64])
def test_reads_in_flight_change_no_answer(path: str, in_flight: int) -> None:
    with filled(path, 20_000) as t:
        t.checkpoint()
        keys = np.random.default_rng(1).integers(-10_000, 30_000, 50_000)
        right = np.where((keys >= 0) & (keys < 20_000), 2 * keys, -1)
        assert (t.get_many(keys, default=-1, in_flight=in_flight) == right).all()


@pytest.mark.parametrize("key_dtype", ["int64", "uint64", "digest"])
@pytest.mark.parametrize("value_dtype", ["int64", "uint64", "float64"])
@pytest.mark.parametrize("page_bytes", [4096, 65536])
def test_types_and_page_sizes(path: str, key_dtype: str, value_dtype: str, page_bytes: int) -> None:
    t = PagedTable.create(
        path, 2000, key_dtype=key_dtype, value_dtype=value_dtype, page_bytes=page_bytes, seed=3
    )
    keys = [f"key {i}" for i in range(2000)] if key_dtype == "digest" else list(range(2000))
    values = (np.arange(2000) / 2 if value_dtype == "float64" else np.arange(2000)).astype(value_dtype)
    with t:
        t.insert_many(keys, values)
        t._check()
        assert t.key_dtype == key_dtype
        assert t.value_dtype == value_dtype
    with PagedTable.open(path) as t:
        assert (t.get_many(keys) == values).all()
        assert t[keys[5]] == values[5]
        assert t.seed == 3
        t._check()


def test_keys_and_values_that_do_not_fit_are_refused(path: str) -> None:
    with PagedTable.create(path, 100, key_dtype="uint64") as t:
        with pytest.raises(ValueError, match="key_dtype='int64'"):
            t[-1] = 0
        with pytest.raises(TypeError, match="digest"):
            t["a"] = 0
        with pytest.raises(TypeError, match="float64"):
            t[1] = 1.5
        with pytest.raises(ValueError, match="as many as keys"):
            t.insert_many([1, 2], [1])
        assert len(t) == 0


def test_iteration_notices_changes(path: str) -> None:
    with filled(path) as t:
        seen = iter(t)
        next(seen)
        t[10**6] = 1
        with pytest.raises(RuntimeError, match="changed during iteration"):
            next(seen)


# --- plans and counted reads -------------------------------------------------------------------------------


def test_reads_are_counted_and_as_planned(path: str) -> None:
    """200,000 present keys: one read each. 400,000 absent ones: a binomial number, two-sided 1e-6."""
    rng = np.random.default_rng(7)
    keys = rng.permutation(200_000)
    with PagedTable.create(path, 200_000, durable=False, load=0.95) as t:
        t.insert_many(keys, keys)
        assert (t.get_many(keys) == keys).all()
        for key in keys[:1000].tolist():
            assert t[key] == key
        found = t.stats()
        assert isinstance(found, PagedStats)
        assert (found.lookups, found.reads, found.wrong) == (201_000, 1.0, 0)
        assert not t.contains_many(np.arange(10**9, 10**9 + 400_000)).any()
        misses = t.stats()
        low, high = distributions.binom.interval(1 - 1e-6, 400_000, t.plan.miss_reads)
        assert low <= round(misses.miss_reads * misses.misses) <= high
        assert t.plan.miss_reads <= 0.001
        assert t.summary_bytes <= 4 * 200_000
        assert t.summary_bytes == t.plan.summary_bytes
        # keys of level 2: normal with the planned mean and deviation
        going = passed_on(200_000, t.plan.pages[0], t.plan.slots)
        assert abs(found.level_keys[1] - going.mean) <= 4.9 * going.variance**0.5 + 1
        assert t.probe(int(keys[0]))[1] == 1


def test_passed_on_agrees_with_simulation() -> None:
    """Mean and variance of 4,000 trials with 2,000 keys in 9 pages of 230, two-sided 1e-6."""
    rng = np.random.default_rng(5)
    loads = rng.multinomial(2000, [1 / 9] * 9, 4000)
    passed = np.maximum(0, loads - 230).sum(axis=1)
    plan = passed_on(2000, 9, 230)
    assert abs(passed.mean() - plan.mean) <= 4.9 * passed.std() / 4000**0.5
    assert plan.variance == pytest.approx(passed.var(), rel=0.15)
    assert passed_on(0, 9, 230) == (0.0, 0.0)
    assert passed_on(100, 1, 30) == (70.0, 0.0)


def test_deletions_cost_no_false_positives(path: str) -> None:
    with filled(path, 20_000) as t:
        t.delete_many(range(10_000))
        for key in range(10_000, 10_100):
            del t[key]
        assert not t.contains_many(range(10_100)).any()
        assert t.stats().miss_reads < 1e-3  # of half the keys: far below the plan's
        t._check()


def test_upper_levels_and_overflow_pages_cost_one_read(path: str) -> None:
    with PagedTable.create(path, 1000, durable=False, load=0.98, overflow_pages=2) as t:
        with pytest.raises(TableFullError, match="planned for 1000 keys") as caught:
            t.insert_many(range(5000), range(5000))
        assert caught.value.inserted == len(t)
        for key in range(5000):
            with contextlib.suppress(TableFullError):
                t[key] = key
        inside = len(t)
        assert t.stats().level_keys[-1] == 2 * 255
        t._check()
        present = t.contains_many(range(5000))
        assert present.sum() == inside
        assert t.stats().reads == 1.0
        absent = int(np.argmin(present))
        with pytest.raises(TableFullError):
            t[absent] = 1
        assert len(t) == inside
        one = int(np.argmax(present))
        t[one] = 77  # a key that is there has its place
        assert t[one] == 77
        for key in np.flatnonzero(present)[::3].tolist():
            del t[key]
        t._check()
        t[absent] = 1
        assert t.probe(absent)[1] == 1


def test_plan_is_sound() -> None:
    plan = plan_paged(10_000_000)
    assert (plan.slots, plan.reads) == (255, 1.0)
    assert plan.summary_bytes <= 4 * plan.keys
    assert plan.pages[-1] == plan.pages[-2]
    assert plan.overrun < 1e-9
    assert plan == plan_of_paged_core(plan.core, keys=plan.keys)
    assert sum(plan.level_keys) == pytest.approx(plan.keys)
    assert isinstance(plan, PagedPlan)
    assert plan.to_dict()["pages"] == list(plan.pages)
    assert "PagedPlan(" in repr(plan)
    assert "<table>" in plan._repr_html_()
    assert plan_paged(100, bits_per_key=20).bits_per_key >= 20
    assert page_slots(65536) == 4095


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"capacity": 0}, "capacity must be"),
        ({"load": 1.0}, "load must be a number from 0.1 to 0.98"),
        ({"levels": 9}, "levels must be an integer from 1 to 8"),
        ({"page_bytes": 5000}, "page_bytes must be 4096"),
        ({"overflow_pages": 9}, "overflow_pages must be an integer from 0 to 8"),
        ({"miss_reads": 0}, "miss_reads must be"),
        ({"miss_reads": 0.1, "bits_per_key": 3}, "exclude each other"),
        ({"key_dtype": "int32"}, "key_dtype must be one of"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_plans_that_cannot_be_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        plan_paged(**({"capacity": 100} | options))  # type: ignore[arg-type]


@pytest.mark.parametrize("levels", [1, 2, 3, 5])
def test_numbers_of_levels(path: str, levels: int) -> None:
    with PagedTable.create(path, 3000, levels=levels, durable=False) as t:
        t.insert_many(range(3000), range(3000))
        assert len(t.plan.pages) == levels
        t._check()


# --- files -----------------------------------------------------------------------------------------


def test_save_and_open_through_the_table_in_memory(path: str) -> None:
    memory = MultilevelTable(5000, key_dtype="uint64", value_dtype="float64", seed=9)
    memory.insert_many(range(5000), np.arange(5000) / 4)
    memory.save(path, layout="pages")
    with MultilevelTable.open(path, summary="multiple-bloom") as t:
        assert isinstance(t, PagedTable)
        assert dict(t.items()) == dict(memory.items())
        assert not t.writable
        t._check()
        memory[5] = -1.0
        memory.save(path, layout="pages", load=0.5, capacity=10_000)  # over one that is open for reading
        assert t[5] == 1.25
    with PagedTable.open(path, verify=True) as t:
        assert t[5] == -1.0
        assert t.plan.keys == 10_000
    MultilevelTable(10).save(path, layout="pages")  # empty
    with PagedTable.open(path) as t:
        assert len(t) == 0
    memory.save(path)
    assert MultilevelTable.open(path) == memory
    with pytest.raises(ValueError, match="layout='pages'"):
        MultilevelTable.open(path, summary="multiple-bloom")
    with pytest.raises(ValueError, match="'memory' or 'pages'"):
        memory.save(path, layout="columns")
    with pytest.raises(TypeError, match="load: options of layout='pages'"):
        memory.save(path, load=0.5)


def test_a_table_that_is_written_to_is_not_replaced(path: str) -> None:
    with filled(path, 100) as t:
        with pytest.raises(BlockingIOError, match="open for writing"):
            MultilevelTable(10).save(path, layout="pages")
        assert len(t) == 100
    assert [p.name for p in Path(path).parent.iterdir() if p.name.startswith(".")] == []


def test_one_writer_or_many_readers(path: str) -> None:
    with filled(path, 100):
        with pytest.raises(BlockingIOError, match="open already"):
            PagedTable.open(path, writable=True)
        with pytest.raises(BlockingIOError, match="open for writing"):
            PagedTable.open(path)
    with PagedTable.open(path) as a, PagedTable.open(path) as b:
        assert a[5] == b[5] == 10
        with pytest.raises(BlockingIOError):
            PagedTable.open(path, writable=True)
        changes = (lambda: a.__setitem__(1, 2), lambda: a.insert_many([1], 1), lambda: a.delete_many([1]))
        for change in changes:
            with pytest.raises(ValueError, match="writable=True"):
                change()


def test_closed_tables_say_so(path: str) -> None:
    t = filled(path, 100)
    t.close()
    t.close()
    assert t.closed
    assert "closed" in repr(t)
    uses = [
        lambda: t[1], lambda: t.get(1), lambda: 1 in t, lambda: t.get_many([1]), lambda: t.__setitem__(1, 1),
        lambda: t.insert_many([1], 1), lambda: list(t), lambda: t.probe(1), lambda: t.checkpoint(),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(ValueError, match="closed"):
            use()


def test_what_lives_in_a_file_is_not_copied(path: str) -> None:
    with filled(path, 100) as t:
        for use in (t.copy, t.to_bytes, lambda: pickle.dumps(t), lambda: t.save(path)):
            with pytest.raises(TypeError, match="lives in its file"):
                use()
    for use in (lambda: PagedTable.load(path), lambda: PagedTable.from_bytes(b""), PagedTable):
        with pytest.raises(TypeError):
            use()
    with pytest.raises(RuntimeError, match="__init__"):
        PagedTable.__new__(PagedTable).get(1)


def test_create_takes_no_place_that_is_taken(path: str) -> None:
    filled(path, 100).close()
    with pytest.raises(FileExistsError):
        PagedTable.create(path, 100)
    os.unlink(path)
    Path(path + ".journal").write_bytes(b"x")
    with pytest.raises(FileExistsError, match="journal"):
        PagedTable.create(path, 100)


def test_summary_is_made_anew_unless_it_fits(path: str) -> None:
    filled(path).close()
    summary = Path(path + ".summary")
    fitting = summary.read_bytes()
    # of an earlier time: never believed, for it does not know the new keys
    with PagedTable.open(path, writable=True) as t:
        t.insert_many(range(3000, 3100), 1)
    for data in (fitting, b"", fitting[:-1], bytes([fitting[0] ^ 1]) + fitting[1:], None):
        summary.unlink()
        if data is not None:
            summary.write_bytes(data)
        with PagedTable.open(path) as t:
            assert len(t) == 3100
            assert t.contains_many(range(3100)).all()
            t._check()
        with PagedTable.open(path) as t:
            assert t._read_summary(summary.read_bytes())
    changed = bytearray(summary.read_bytes())
    changed[5000] ^= 4
    summary.write_bytes(changed)
    with PagedTable.open(path) as t:
        assert t.contains_many(range(3100)).all()


def test_a_summary_of_the_same_table_restored_from_a_copy_is_stale(path: str) -> None:
    filled(path).close()
    shutil.copy(path, path + ".old")
    with PagedTable.open(path, writable=True) as t:
        t.delete_many(range(0, 3000, 2))
    shutil.copy(path + ".old", path)
    with PagedTable.open(path) as t:
        assert t.contains_many(range(3000)).all()


def test_damaged_pages_are_refused_by_name(path: str) -> None:
    filled(path).close()
    data = bytearray(Path(path).read_bytes())
    data[4096 * (2 + 3) + 100] ^= 1
    Path(path).write_bytes(data)
    with PagedTable.open(path) as t:  # the summary fits: nothing has been read
        with pytest.raises(FormatError, match=r"page 3 .at byte 20480.: its checksum is wrong"):
            t.get_many(range(3000))
        bad = [key for key in range(3000) if _fails(t, key)]
        assert 0 < len(bad) < 300
    with pytest.raises(FormatError, match="page 3"):
        PagedTable.open(path, verify=True)
    with PagedTable.open(path, writable=True) as t:
        with pytest.raises(FormatError, match="page 3"):
            t[bad[0]] = 1
        with pytest.raises(FormatError, match="page 3"):
            t.insert_many(range(3000), 1)
        good = next(key for key in range(3000) if key not in bad)
        t[good] = 99
        assert t[good] == 99
    os.unlink(path + ".summary")
    with pytest.raises(FormatError, match=r"table: page 3"):
        PagedTable.open(path)


def _fails(t: PagedTable, key: int) -> bool:
    try:
        t[key]
    except FormatError:
        return True
    return False


def test_every_byte_of_a_page_is_checked(path: str) -> None:
    filled(path, 200, overflow_pages=0, levels=1).close()
    data = Path(path).read_bytes()
    for at in [*range(8192, 8192 + 4096, 97), 8192 + 4095]:
        Path(path).write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(FormatError, match="page 0"):
            PagedTable.open(path, verify=True)
    swapped = bytearray(data)
    swapped[8192:12288] = data[8192:12288]
    Path(path).write_bytes(swapped)
    PagedTable.open(path, verify=True).close()


def test_pages_that_changed_places_are_refused(path: str) -> None:
    filled(path).close()
    data = Path(path).read_bytes()
    a, b = data[8192:12288], data[12288:16384]
    Path(path).write_bytes(data[:8192] + b + a + data[16384:])
    with pytest.raises(FormatError, match="page 0"):
        PagedTable.open(path, verify=True)


@pytest.mark.parametrize("slot", [0, 1])
def test_one_header_is_enough(path: str, slot: int) -> None:
    filled(path).close()
    data = bytearray(Path(path).read_bytes())
    data[slot * 4096 : slot * 4096 + 4096] = bytes(4096)
    Path(path).write_bytes(data)
    with MultilevelTable.open(path) as t:
        assert t.contains_many(range(3000)).all()
    data[:8192] = bytes(8192)
    Path(path).write_bytes(data)
    with pytest.raises(FormatError, match="does not begin with EVENBINS"):
        PagedTable.open(path)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d[:-4096], "it was cut short"),
        (lambda d: d + bytes(8), "something follows it"),
        (lambda d: d[:100], "ends within its header"),
        (lambda d: d[:8] + b"\x02" + d[9:4104] + b"\x02" + d[4105:], "version 2"),
        (lambda d: b"", "does not begin"),
    ],
)
def test_files_of_another_shape_are_refused(path: str, change: object, text: str) -> None:
    filled(path).close()
    Path(path).write_bytes(change(Path(path).read_bytes()))  # type: ignore[operator]
    with pytest.raises(FormatError, match=text):
        PagedTable.open(path)


def test_other_kinds_are_refused(path: str) -> None:
    MultilevelTable(10).save(path)
    with pytest.raises(FormatError, match="another kind"):
        PagedTable.open(path)
    with pytest.raises(FileNotFoundError):
        PagedTable.open(path + ".none")
    with pytest.raises(ValueError, match="summary must be"):
        PagedTable.open(path, summary="single-filter")


GOLDEN = Path(__file__).parents[1] / "golden" / "paged"


def test_what_was_written_once_is_read_forever(path: str) -> None:
    """A table of 0.1.0 that was never closed: 300 keys in its pages, two changes in its journal."""
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in GOLDEN.glob("table*")}
    written = dict(reversed(line.split()) for line in (GOLDEN / "SHA256SUMS").read_text().splitlines())
    assert sums == written
    for name in sums:
        shutil.copy(GOLDEN / name, Path(path).parent / name)
    expected = {key: key * key for key in range(-100, 200)}
    expected[5] = -1
    del expected[6]
    with PagedTable.open(path, writable=True) as t:
        assert dict(t.items()) == expected
        assert tuple(t._core) == (1, 1, 4096, 1, 5, 10, 2, 1, 1)
        assert t.seed == 42
        t._check()
        twin = ReferencePaged(t._core, uid=t._uid, seed=42)
    twin.insert_many(range(-100, 200), [key * key for key in range(-100, 200)])
    twin.insert(5, -1)
    twin.delete(6)
    assert read_table(Path(path).read_bytes()).pages == twin.pages()


def test_two_names_of_one_table_have_one_journal(path: str) -> None:
    other = path + "-link"
    t = filled(path, 100)
    os.symlink(path, other)
    t._close()
    with PagedTable.open(other) as t:
        assert len(t) == 100
        assert t.path == os.path.realpath(path)


def test_errors_name_the_file(path: str) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        PagedTable.create(path + "/missing/table", 100)
    assert caught.value.filename == path + "/missing/table"
    with pytest.raises(OSError, match="cannot be replaced"):
        MultilevelTable(10).save(Path(path).parent, layout="pages")


def test_others_say_how_to_open_it(path: str) -> None:
    filled(path).close()
    for use in (evenbins.load, evenbins.open):
        with use(path) as table:
            assert isinstance(table, PagedTable)
    for use in (MultilevelTable.load, evenbins.ChainedTable.open):
        with pytest.raises(FormatError, match=r"use evenbins.PagedTable.open"):
            use(path)


def test_reading_needs_no_permission_to_write(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path).close()
    flags = []
    plain, plain_descriptor = os.open, page_files.Descriptor

    def watch(name: object, mode: int, *rest: object, **more: object) -> int:
        flags.append(mode)
        return plain(name, mode, *rest, **more)  # type: ignore[arg-type]

    def watch_descriptor(name: bytes, mode: int, permissions: int) -> page_files.Descriptor:
        flags.append(mode)
        return plain_descriptor(name, mode, permissions)

    monkeypatch.setattr(os, "open", watch)
    monkeypatch.setattr(page_files, "Descriptor", watch_descriptor)
    with PagedTable.open(path) as t:
        assert t[1] == 2
    assert len(flags) >= 2  # the table, its journal
    assert all(mode & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) == 0 for mode in flags)


def test_recovery_without_permission_says_so(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    t = filled(path)
    t._close()  # as if the process had died: the journal is full
    plain = page_files.Descriptor

    def refuse(name: bytes, mode: int, permissions: int) -> page_files.Descriptor:
        if mode & os.O_RDWR:
            raise PermissionError(errno.EACCES, "no", path)
        return plain(name, mode, permissions)

    with monkeypatch.context() as patch:
        patch.setattr(page_files, "Descriptor", refuse)
        with pytest.raises(PermissionError, match="a writer died and left changes in the journal"):
            PagedTable.open(path)
    with PagedTable.open(path) as t:  # with permission it recovers
        assert t.contains_many(range(3000)).all()
    assert stat.S_IMODE(os.stat(path + ".journal").st_mode) == stat.S_IMODE(os.stat(path).st_mode)


# --- the caller's memory -----------------------------------------------------------------------------


class Rewritten:
    """An array of keys that another thread overwrites, over and over, in a `with` block."""

    def __init__(self, keys: npt.NDArray[np.int64], step: int) -> None:
        self.keys, self.first, self.step = keys, keys.copy(), step
        self._stop, self._begun = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        times = 0
        while not self._stop.is_set():
            times += 1
            np.add(self.first, times % 16 * self.step, out=self.keys)
            self._begun.set()

    def __enter__(self) -> npt.NDArray[np.int64]:
        self._thread.start()
        self._begun.wait()
        return self.keys

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_an_array_that_changes_meanwhile_does_no_harm(path: str) -> None:
    """Inserted, updated, deleted and looked up: each key ends up where it belongs, and the file opens.

    Before keys and digests came from one copy, such an insertion made the file unreadable.
    """
    with PagedTable.create(path, 400_000, durable=False, page_bytes=65536) as t:
        for chance in range(6):
            with Rewritten(np.arange(20_000) + 1_000_000 * chance, 50_000) as keys:
                values = keys.copy()
                t.insert_many(keys, values)
                t.contains_many(keys)
                t.get_many(keys, default=-1)
            assert not t._invariant()
            with Rewritten(np.arange(20_000) + 1_000_000 * chance, 50_000) as keys:
                t.delete_many(keys)
            assert not t._invariant()
        count = len(t)
    with PagedTable.open(path, verify=True) as t:
        assert len(t) == count


# --- processes ---------------------------------------------------------------------------------------


def in_child(work: Callable[[], object]) -> str:
    """Run a function in a child made by fork; return what it returned or raised. One that hangs is killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        try:
            text = str(work())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {os.waitstatus_to_exitcode(status)} after {text!r}"
    return text


def bytes_of(path: str) -> dict[str, bytes]:
    """Return the files of a table: pages, journal, summary, by name."""
    folder = Path(path).parent
    return {each.name: each.read_bytes() for each in sorted(folder.iterdir())}


CALLS: dict[str, Callable[[PagedTable], object]] = {
    "set": lambda t: t.__setitem__(1, 1),
    "delete": lambda t: t.__delitem__(1),
    "pop": lambda t: t.pop(1, None),
    "setdefault": lambda t: t.setdefault(1, 1),
    "insert_many": lambda t: t.insert_many([1, 2], 0),
    "delete_many": lambda t: t.delete_many([1, 2]),
    "update": lambda t: t.update({1: 1}),
    "clear": lambda t: t.clear(),
    "checkpoint": lambda t: t.checkpoint(),
    "get": lambda t: t.get(1),
    "get an absent key": lambda t: t.get(-1),
    "in": lambda t: 1 in t,
    "[]": lambda t: t[1],
    "get_many": lambda t: t.get_many([1, 2]),
    "contains_many": lambda t: t.contains_many([1, 2]),
    "len": len,
    "iterate": lambda t: list(t),
    "items": lambda t: list(t.items()),
    "probe": lambda t: t.probe(1),
    "stats": lambda t: t.stats(),
    "summary_bytes": lambda t: t.summary_bytes,
}


def test_a_child_process_cannot_use_a_table_that_is_open_for_writing(path: str) -> None:
    """Every call names the owner, and neither they nor the end of the child change a byte of any file."""
    with filled(path) as t:
        before = bytes_of(path)

        def use_all() -> str:
            for call in CALLS.values():
                with pytest.raises(RuntimeError, match=f"process {os.getppid()}, .* process {os.getpid()},"):
                    call(t)
            assert repr(t) == f"<PagedTable {path!r}, open for writing in process {os.getppid()}>"
            with t:
                pass
            t.close()
            return f"closed: {t.closed}"

        assert in_child(use_all) == "closed: True"
        assert bytes_of(path) == before
        t[1] = -1
        assert (len(t), t[1]) == (3000, -1)
        with pytest.raises(BlockingIOError):  # the child's close has not unlocked it
            PagedTable.open(path)
        t._check()
    with PagedTable.open(path, verify=True) as t:
        assert (len(t), t[1]) == (3000, -1)


@pytest.mark.parametrize("end", ["collected", "exit"])
def test_a_child_that_ends_writes_nothing(path: str, end: str, run_python: Callable[..., Any]) -> None:
    """Nor does garbage collection in it, nor the end of its interpreter with all its handlers."""
    code = """
import gc, os, sys
from evenbins import PagedTable
t = PagedTable.create(sys.argv[1], 1000, durable=False)
t.insert_many(range(500), 7)
folder = os.path.dirname(sys.argv[1])
files = lambda: {e.name: open(e.path, "rb").read() for e in os.scandir(folder)}
before = files()
child = os.fork()
if child == 0:
    if sys.argv[2] == "collected":
        del t
        gc.collect()
        os._exit(0)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert files() == before
t[1] = 8
t.close()
"""
    done = run_python(code, path, end)
    assert (done.returncode, done.stderr) == (0, "")
    with PagedTable.open(path, verify=True) as t:
        assert (len(t), t[1], t[2]) == (500, 8, 7)


def test_two_processes_and_one_table_lose_no_acknowledged_key(path: str) -> None:
    with PagedTable.create(path, 5000, durable=False) as t:

        def write() -> str:
            with contextlib.suppress(RuntimeError):
                for i in range(200):
                    t[100_000 + i] = i
                return "accepted"
            return "refused"

        assert in_child(write) == "refused"
        for i in range(200):
            t[i] = i
        t._close()  # as if it had died
    with PagedTable.open(path, writable=True) as t:
        assert t.contains_many(range(200)).all()
        assert len(t) == 200


def test_the_owner_can_close_and_open_again_while_a_child_lives(path: str) -> None:
    """The child has the file open still; what is locked is the owner's, and the owner unlocks it."""
    reader, writer = os.pipe()
    t = filled(path)
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    try:
        t.close()
        with PagedTable.open(path, writable=True) as t:
            t[1] = 5
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)


def test_a_child_reads_a_table_that_is_open_for_reading(path: str) -> None:
    """And its end leaves the parent's lock: nobody can write meanwhile."""
    filled(path).close()
    with PagedTable.open(path) as t:

        def read() -> str:
            assert (t.get_many(range(3000)) == np.arange(0, 6000, 2)).all()
            assert (t[5], t.get(-1), len(t), t.closed) == (10, None, 3000, False)
            t._check()
            t.close()
            return "read"

        assert in_child(read) == "read"
        assert t[5] == 10
        with pytest.raises(BlockingIOError):
            PagedTable.open(path, writable=True)


def test_fork_while_another_thread_is_in_a_call(path: str) -> None:
    """The child has the locks as they were and nobody to open them: it must not wait for them."""
    keys = np.arange(20_000)
    for writable in True, False:
        t = PagedTable.create(path, 50_000, durable=False) if writable else PagedTable.open(path)
        stop, begun = threading.Event(), threading.Event()

        def work(t: PagedTable = t, stop: threading.Event = stop, begun: threading.Event = begun) -> None:
            while not stop.is_set():
                if t.writable:
                    t.insert_many(keys, keys)
                else:
                    t.contains_many(keys)
                    t._invariant()  # takes the lock alone
                begun.set()

        def use(t: PagedTable = t) -> str:
            answers = set()
            for call in (len, lambda t: t.get(5), lambda t: t.contains_many([1]), lambda t: t._invariant()):
                try:
                    answers.add(f"{call(t)}"[:0])
                except RuntimeError:
                    answers.add("refused")
            t.close()
            return f"{sorted(answers)} {t.closed}"

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        try:
            for _ in range(10):
                assert in_child(use) == ("['refused'] True" if writable else "[''] True")
        finally:
            stop.set()
            thread.join()
        t.close()


# --- threads and signals -----------------------------------------------------------------------------


class Rung(Exception):
    """What the signal handler of a test raises."""


def completed(work: Callable[[], object], rng: random.Random) -> bool:
    """Run a function under a signal after a random time; False if its handler raised, perhaps at the end."""
    armed = True

    def ring(*_: object) -> None:
        if armed:
            raise Rung

    old = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 10 ** rng.uniform(-5.3, -2.2))
        work()
        armed = False
    except Rung:
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    return True


def test_a_signal_handler_that_raises_at_any_point_breaks_nothing(path: str) -> None:
    """Each public call interrupted at random points: acknowledged keys are there, reopening works.

    300 calls in an order of chance. The model holds the values that each key may have: after a call that was
    interrupted the old and the new one.
    """
    rng = random.Random(5)
    model: dict[int, set[int | None]] = {}  # None: absent
    interrupted = 0
    opened = [PagedTable.create(path, 4000, durable=False)]

    def read(t: PagedTable, keys: list[int]) -> None:
        t.get_many(keys, default=0)
        t.contains_many(keys)
        t.stats()
        list(t)

    for turn in range(300):
        if not opened:
            verify = rng.random() < 0.2
            if not completed(
                lambda v=verify: opened.append(PagedTable.open(path, writable=True, verify=v)), rng
            ):
                interrupted += 1
            if not opened:
                opened.append(PagedTable.open(path, writable=True, durable=False))  # nobody has it open
        t, key, many = opened[0], rng.randrange(3000), sorted(rng.sample(range(3000), 400))
        changed: list[int] = many
        value: int | None = turn
        work: Callable[[], object]
        match rng.randrange(10):
            case 0:
                changed, work = [key], functools.partial(t.__setitem__, key, turn)
            case 1 | 2 | 3:
                work = functools.partial(t.insert_many, many, turn)
            case 4:
                value, work = None, functools.partial(t.delete_many, many)
            case 5:
                changed, value, work = [key], None, functools.partial(t.pop, key, None)
            case 6:
                work = functools.partial(t.update, dict.fromkeys(many, turn))
            case 7:
                changed, work = [], functools.partial(read, t, many)
            case 8:
                changed, work = [], t.checkpoint
            case _:
                changed, work = [], t.close
        done = completed(work, rng)
        interrupted += not done
        for each in changed:
            model[each] = {value} if done else model.get(each, {None}) | {value}
        if work == t.close:
            t.close()
            opened.clear()
        elif turn % 5 == 0:
            t._check()
    for t in opened:
        t.close()
    assert interrupted > 20
    with PagedTable.open(path, verify=True) as t:
        t._check()
        for key, values in model.items():
            assert t.get(key) in values, key


def test_summary_bytes_and_the_journal_are_read_beside_a_writer(path: str) -> None:
    """Both wait for the change under way: the list of the summary grows meanwhile."""
    with PagedTable.create(path, 20_000, durable=False, load=0.95) as t:
        works = [
            lambda: t.insert_many(np.arange(15_000), 1),
            lambda: [t.summary_bytes for _ in range(300)],
            lambda: [t._groups_due() for _ in range(30)],
        ]
        together(*works)
        t._check()
        assert t._groups_due() > 0


def test_readers_and_a_writer_in_threads(path: str) -> None:
    with filled(path, 5000) as t:
        wrong: list[object] = []
        stop = threading.Event()

        def read() -> None:
            keys = np.arange(5000)
            while not stop.is_set():
                values = t.get_many(keys)
                if not ((values == 2 * keys) | (values == -keys)).all():
                    wrong.append(values)
                if t[17] not in (34, -17):
                    wrong.append(17)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for each in threads:
            each.start()
        for start in range(0, 5000, 500):
            t.insert_many(range(start, start + 500), range(-start, -start - 500, -1))
            t[17] = -17
        stop.set()
        for each in threads:
            each.join()
        assert not wrong
        t._check()


def test_ctrl_c_stops_a_bulk_call(path: str) -> None:
    with PagedTable.create(path, 200_000, durable=False) as t:
        keys = np.arange(200_000)
        t.insert_many(keys, keys)
        asked = np.tile(keys, 100)
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt, match="stopped after"):
            t.get_many(asked)
        assert (t.get_many(keys[:1000]) == keys[:1000]).all()


# --- journals of another history ---------------------------------------------------------------------------


def test_the_journal_of_a_copy_that_was_changed_apart_is_refused(tmp_path: Path) -> None:
    """Its groups follow in number; they were put over the pages of the other history."""
    path, copy, journal = tmp_path / "table", tmp_path / "copy", tmp_path / "copy.journal"
    with PagedTable.create(path, 10_000) as t:
        t.insert_many(range(1000), range(1000))
    shutil.copy(path, copy)
    with PagedTable.open(path, writable=True) as t:
        for key in range(5000, 5008):  # a group each
            t[key] = 1
        groups = Path(f"{path}.journal").read_bytes()
    journal.write_bytes(groups)  # of the same history: taken over
    with PagedTable.open(copy) as t:
        assert len(t) == 1008
    shutil.copy(path, copy)
    with PagedTable.open(copy, writable=True) as t:
        for key in range(6000, 6004):
            t[key] = 1
        apart = Path(f"{copy}.journal").read_bytes()
    with PagedTable.open(path, writable=True) as t:
        t.insert_many(range(20_000, 23_000), 0)
    kept = path.read_bytes()
    Path(f"{path}.journal").write_bytes(apart)
    for options in ({}, {"verify": True}, {"writable": True}):
        with pytest.raises(FormatError, match=r"changed apart.* move the journal away"):
            PagedTable.open(path, **options)  # type: ignore[arg-type]
        assert path.read_bytes() == kept
    Path(f"{path}.journal").unlink()
    with PagedTable.open(path, verify=True) as t:
        assert len(t) == 4008


def test_journals_of_old_which_have_no_stamp_are_read(tmp_path: Path) -> None:
    path = tmp_path / "table"
    with PagedTable.create(path, 1000) as t:
        t[1] = 2
    before = path.read_bytes()
    with PagedTable.open(path, writable=True) as t:
        t[3] = 4
        groups = bytearray(Path(f"{path}.journal").read_bytes())
    groups[32:40] = (groups[32] & 1).to_bytes(8, "little")
    groups[40:48] = xxh3_64(bytes(groups[:40]), 0).to_bytes(8, "little")
    path.write_bytes(before)
    Path(f"{path}.journal").write_bytes(groups)
    with PagedTable.open(path) as t:
        assert dict(t.items()) == {1: 2, 3: 4}
