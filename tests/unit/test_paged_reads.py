"""How a one-read table reads its pages: from the system's cache, from the disk, by which threads.

Every way gives the same answers and the same bytes: pages that are cached and pages that are not, a file
system that does not tell which are (/dev/shm, or `_set_knows_cache(False)`), any `in_flight` and `threads`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbins import FormatError, PagedTable, _core
from evenbins.tables.paged_bulk import reads_of

THREADS = [1, 2, 3, 7, 16]
KEYS = 90_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = str(tmp_path_factory.mktemp("pages") / "table")
    with PagedTable.create(made, KEYS, load=0.1, durable=False) as table:  # pages for more than one thread
        table.insert_many(range(KEYS), range(0, 2 * KEYS, 2))
        assert sum(table.plan.pages) > 3 * 1024
    return made


def forget_pages(path: str) -> None:
    """Ask the system to drop a file's pages from its cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def asked(count: int, seed: int = 1) -> tuple[Any, Any]:
    keys = np.random.default_rng(seed).integers(-KEYS // 3, KEYS + KEYS // 3, count)
    return keys, np.where((keys >= 0) & (keys < KEYS), 2 * keys, -1)


@pytest.mark.parametrize("threads", [*THREADS, None])
@pytest.mark.parametrize("in_flight", [1, 32])
@pytest.mark.parametrize("knows_cache", [True, False])
def test_no_way_of_reading_changes_an_answer(
    path: str, threads: int | None, in_flight: int, knows_cache: bool
) -> None:
    with PagedTable.open(path) as table:
        table._set_knows_cache(knows_cache and table._knows_cache)
        how: dict[str, Any] = {"in_flight": in_flight, "threads": threads}
        for count in (1, 10, 20_000):
            keys, right = asked(count)
            for cached in (False, True):
                if not cached:
                    forget_pages(path)
                assert (table.get_many(keys, default=-1, **how) == right).all()
                assert (table.contains_many(keys, **how) == (right >= 0)).all()


def test_counted_reads_do_not_depend_on_the_way(path: str) -> None:
    counted = set()
    keys, _ = asked(3000)
    for knows_cache in (True, False):
        for threads in THREADS:
            with PagedTable.open(path) as table:
                table._set_knows_cache(knows_cache and table._knows_cache)
                table.contains_many(keys, threads=threads)
                counted.add(tuple(table._counters()))
    assert len(counted) == 1


@pytest.mark.parametrize("knows_cache", [True, False])
def test_changes_leave_the_same_pages(tmp_path: Path, knows_cache: bool) -> None:
    contents = set()
    rng = np.random.default_rng(3)
    keys = rng.permutation(20_000)
    for number, threads in enumerate(THREADS):
        path = str(tmp_path / f"table {number}")
        with PagedTable.create(path, 20_000, durable=False) as table:
            table._set_knows_cache(knows_cache and table._knows_cache)
            how: dict[str, Any] = {"threads": threads, "in_flight": 1 + 4 * number}
            table.insert_many(keys[:15_000], keys[:15_000] * 3, **how)
            table.checkpoint()
            forget_pages(path)
            table.insert_many(keys[10_000:], keys[10_000:] * 5, **how)
            table.checkpoint()
            forget_pages(path)
            assert table.delete_many(keys[:5000], **how) == 5000
            table._check()
            right = keys * 5
            right[:5000], right[5000:10_000] = -1, keys[5000:10_000] * 3
            assert (table.get_many(keys, default=-1, **how) == right).all()
        found = Path(path).read_bytes()
        # Without the checksums, which depend on the table's random uid.
        slots = [found[at + 8 : at + 4096] for at in range(8192, len(found), 4096)]
        contents.add(hashlib.sha256(b"".join(slots)).digest())
    assert len(contents) == 1


def test_a_file_system_that_does_not_tell_is_no_error(tmp_path: Path) -> None:
    """On tmpfs preadv2 fails with EOPNOTSUPP: found out once, when the table is opened."""
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else tmp_path
    path = f"{folder}/evenbins-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        with PagedTable.create(path, 1000, durable=False) as table:
            table.insert_many(range(1000), range(1000))
            assert (table.get_many(np.arange(1000)) == np.arange(1000)).all()
            assert (table.get_many(np.arange(1000), in_flight=1) == np.arange(1000)).all()
            assert table.delete_many(range(10)) == 10
    finally:
        for end in ("", ".journal", ".summary"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + end)


@contextlib.contextmanager
def kernel(name: str) -> Iterator[None]:
    before = _core.kernel()
    _core.use_kernel(name)
    try:
        yield
    finally:
        _core.use_kernel(before)


@given(
    st.data(), st.sampled_from(["int64", "uint64", "digest"]), st.sampled_from([4096, 16384]),
    st.integers(0, 700),
)  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_every_kernel_finds_the_same_slots(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, key_dtype: str, page_bytes: int, count: int
) -> None:
    """Pages with any number of keys, after deletions that move the last key; against a dict."""
    path = str(tmp_path_factory.mktemp("kernels") / "table")
    name: Any = str if key_dtype == "digest" else int
    keys = [name(i * i) for i in range(count)]
    gone = data.draw(st.sets(st.sampled_from(keys), max_size=count // 2)) if keys else set()
    twin = {key: i for i, key in enumerate(keys) if key not in gone}
    probes = [*keys, *(name(i * i + 1) for i in range(1, 50)), name(0)]
    right = [twin.get(key, -1) for key in probes]
    shape: Any = {"page_bytes": page_bytes, "key_dtype": key_dtype, "durable": False}
    with PagedTable.create(path, max(1, count), **shape) as table:
        table.insert_many(keys, range(count))
        table.delete_many(list(gone))
        for each in _core.kernels():
            with kernel(each):
                assert table.get_many(probes, default=-1).tolist() == right
                assert [table.get(key, -1) for key in probes[-60:]] == right[-60:]


@pytest.mark.parametrize("knows_cache", [True, False])
@pytest.mark.parametrize("cached", [True, False])
def test_damage_and_cuts_are_found_by_every_way(tmp_path: Path, knows_cache: bool, cached: bool) -> None:
    path = str(tmp_path / "table")
    with PagedTable.create(path, 10_000, durable=False) as table:
        table.insert_many(range(10_000), range(10_000))
    whole = Path(path).read_bytes()
    at = 8192 + 5 * 4096 + 100
    for content, message in (
        (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], r"page 5 \(at byte 28672\): its checksum"),
        (whole, "the file ends before page .*: it was cut short"),
    ):
        Path(path).write_bytes(content)
        with PagedTable.open(path) as table:
            table._set_knows_cache(knows_cache and table._knows_cache)
            if content is whole:
                os.truncate(path, at)
            if not cached:
                forget_pages(path)
            for how in ({"in_flight": 1}, {"threads": 1}, {"threads": 7}):
                with pytest.raises(FormatError, match=message):
                    table.get_many(np.arange(10_000), **how)


def test_few_cached_pages_start_no_thread(path: str) -> None:
    """Ten keys, and a hundred: the calling thread answers, if the file system tells what is cached."""
    program = """
import os, sys, numpy as np
from evenbins import PagedTable
with PagedTable.open(sys.argv[1]) as table:
    keys = np.arange(0, 90_000, 900)
    for key in keys:
        table[int(key)]
    before = len(os.listdir("/proc/self/task"))
    started = []
    for part in (keys[:10], keys):
        assert (table.get_many(part) == 2 * part).all()
        started.append(len(os.listdir("/proc/self/task")) - before)
    print(started if table._knows_cache else [0, 0])
"""
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 0]\n"


@pytest.mark.parametrize("knows_cache", [True, False])
def test_a_signal_stops_a_bulk_call(path: str, knows_cache: bool) -> None:
    """And the table is as usable as before. The alarm comes during a call of many keys, or between two."""

    class AlarmError(Exception):
        pass

    def ring(*_: object) -> None:
        raise AlarmError

    keys, right = asked(2_000_000)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with PagedTable.open(path) as table:
            table._set_knows_cache(knows_cache and table._knows_cache)
            for threads in (1, 3):
                with pytest.raises(AlarmError):  # noqa: PT012
                    signal.setitimer(signal.ITIMER_REAL, 0.02)
                    while True:
                        table.get_many(keys, default=-1, threads=threads)
                assert (table.get_many(keys[:1000], default=-1) == right[:1000]).all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_both_arguments_are_checked(path: str) -> None:
    with PagedTable.open(path) as table:
        calls: list[Any] = [table.get_many, table.contains_many, table.delete_many]
        calls.append(lambda keys, **how: table.insert_many(keys, keys, **how))
        for call in calls:
            with pytest.raises(ValueError, match="in_flight must be an integer from 1 to 1024"):
                call([1], in_flight=0)
            with pytest.raises(TypeError, match="in_flight"):
                call([1], in_flight="many")
            with pytest.raises(ValueError, match="threads must be 1 to 1024"):
                call([1], threads=0)
            with pytest.raises(TypeError, match="threads must be"):
                call([1], threads="many")


def test_the_two_arguments_travel_in_one_number() -> None:
    assert reads_of(1024, 1024) == 1024 + (1024 << 16)
    assert reads_of(5, 3) == 5 + 3 * 65536
    assert reads_of() & 0xFFFF == 32
    assert reads_of() >> 16 >= 1
