"""Mapped files: read into memory by `preload=True`, and what the system is told about them (madvise).

What is in memory is read from /proc/self/smaps: `Rss` of the file's mapping, and its flags (`rr`: read at
random places, `sr`: in sequence).
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from structures import FIXED, KEYS, STRUCTURES, Structure

import evenbins
from evenbins import BlockedBloomFilter, MultilevelTable, PagedTable, ShardedFilter, _mapped_files
from evenbins.cli import main

WITH_FILES = [each for each in (*STRUCTURES, *FIXED) if "Summary" not in each.name]


def forget_pages(folder: Path) -> list[Path]:
    """Drop the pages of all files in a folder from the system's cache; return the files."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    for each in files:
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return files


def mappings(path: Path) -> list[tuple[int, int, list[str]]]:
    """Return bytes, resident bytes and flags of each mapping of a file."""
    found: list[tuple[int, int, list[str]]] = []
    ours = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            ours = line.endswith(str(path))
            first, last = (int(each, 16) for each in words[0].split("-"))
        elif ours and words[0] == "Rss:":
            resident = 1024 * int(words[1])
        elif ours and words[0] == "VmFlags:":
            found.append((last - first, resident, words[1:]))
    return found


def flags_of(path: Path) -> set[str]:
    return {flag for _, _, flags in mappings(path) for flag in flags}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    f = BlockedBloomFilter(1_000_000, bits_per_key=16)
    f.add_many(KEYS)
    f.save(tmp_path / "filter")
    forget_pages(tmp_path)
    return tmp_path / "filter"


# --- preload ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", WITH_FILES, ids=lambda each: each.name)
@pytest.mark.parametrize("verify", [False, True])
def test_every_kind_opens_preloaded(structure: Structure, tmp_path: Path, verify: bool) -> None:
    made = structure.filled(tmp_path, KEYS[:2000])
    if isinstance(made, PagedTable):
        made.close()
        where = made.path
    else:
        where = str(tmp_path / "saved")
        made.save(where)
    forget_pages(tmp_path)
    for open_ in (evenbins.open, type(made).open):
        opened = open_(where, verify=verify, preload=True)
        assert structure.holds(opened, KEYS[:2000]).all()
        if isinstance(opened, PagedTable):
            opened.close()


def test_preloaded_pages_are_resident(path: Path) -> None:
    opened = BlockedBloomFilter.open(path)
    ((size, before, _),) = mappings(path)
    assert before < size / 2
    del opened
    opened = BlockedBloomFilter.open(path, preload=True)
    assert [(total, resident) for total, resident, _ in mappings(path)] == [(size, size)]
    assert opened.contains_many(KEYS).all()


def test_a_system_without_the_call_touches_the_pages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_mapped_files, "_POPULATE_READ", None)
    opened = evenbins.open(path, preload=True)
    ((size, resident, _),) = mappings(path)
    assert resident == size
    del opened
    monkeypatch.setattr(_mapped_files, "_POPULATE_READ", 12345)  # EINVAL, as of an older Linux
    opened = evenbins.open(path, preload=True)
    ((size, resident, _),) = mappings(path)
    assert resident == size
    assert opened.contains_many(KEYS).all()


def test_all_shards_are_resident(tmp_path: Path) -> None:
    f = ShardedFilter(300_000, shards=3)
    f.add_many(KEYS)
    f.save(tmp_path / "shards")
    files = [each for each in forget_pages(tmp_path) if each.suffix == ".evb"]
    opened = ShardedFilter.open(tmp_path / "shards", preload=True)
    assert len(files) == 3
    for each in files:
        ((size, resident, _),) = mappings(each)
        assert resident == size
    assert opened.contains_many(KEYS).all()


def cached_bytes(path: Path) -> int:
    """Return how many bytes of a file the system can hand over at once."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        total, piece = 0, bytearray(4096)
        for at in range(0, path.stat().st_size, 4096):
            try:
                total += os.preadv(descriptor, [piece], at, os.RWF_NOWAIT)
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                return path.stat().st_size  # a file system in memory
        return total
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("open_", [PagedTable.open, MultilevelTable.open, evenbins.open])
def test_a_table_in_pages_is_read_into_the_cache(tmp_path: Path, open_: Callable[..., Any]) -> None:
    path = tmp_path / "table"
    with PagedTable.create(path, 50_000, durable=False) as table:
        table.insert_many(range(50_000), range(50_000))
    forget_pages(tmp_path)
    with open_(path, preload=True) as table:
        assert cached_bytes(path) == path.stat().st_size
        assert (table.get_many(np.arange(50_000)) == np.arange(50_000)).all()


def test_an_error_of_the_disk_names_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(_mapped_files, "_populate_piece", fail)
    with pytest.raises(OSError, match=f"Input/output error: '{path}'"):
        evenbins.open(path, preload=True)


def test_preload_must_be_a_bool(path: Path, tmp_path: Path) -> None:
    ShardedFilter(1000, shards=2).save(tmp_path / "shards")
    PagedTable.create(tmp_path / "table", 100).close()
    for each in (path, tmp_path / "shards", tmp_path / "table"):
        with pytest.raises(TypeError, match="preload must be True or False"):
            evenbins.open(each, preload="yes")  # type: ignore[arg-type]


def query(*arguments: object) -> str:
    with CliRunner().isolation() as streams:
        with pytest.raises(SystemExit):
            main(["query", *map(str, arguments)])
        return streams[0].getvalue().decode()


@pytest.mark.parametrize("kind", ["filter", "table"])
def test_query_preloads(tmp_path: Path, kind: str) -> None:
    made: Any = BlockedBloomFilter(100) if kind == "filter" else MultilevelTable(100, key_dtype="digest")
    (made.add_many if kind == "filter" else lambda keys: made.insert_many(keys, 1))(["a", "b"])
    made.save(tmp_path / "saved")
    (tmp_path / "lines").write_text("a\nc\nb\n")
    for arguments in (["--preload"], ["--preload", "--verify"]):
        assert query(tmp_path / "saved", tmp_path / "lines", *arguments) == "a\nb\n"


def test_query_uses_threads_for_a_table_in_pages(tmp_path: Path) -> None:
    table = MultilevelTable(1000, key_dtype="digest")
    table.insert_many([str(i) for i in range(500)], 1)
    table.save(tmp_path / "saved", layout="pages")
    (tmp_path / "lines").write_text("".join(f"{i}\n" for i in range(1000)))
    for threads in ("1", "3"):
        assert query("-c", tmp_path / "saved", tmp_path / "lines", "--threads", threads) == "500\n"


# --- advice ----------------------------------------------------------------------------------------------


def test_verifying_and_loading_read_in_sequence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[set[str]] = []
    plain = BlockedBloomFilter._from_data

    def noted(data: Any, *, mapped: bool, verify: bool) -> Any:
        during.append(flags_of(path))
        return plain(data, mapped=mapped, verify=verify)

    monkeypatch.setattr(BlockedBloomFilter, "_from_data", noted)
    opened = BlockedBloomFilter.open(path, verify=True)
    assert "sr" in during.pop()
    assert not {"sr", "rr"} & flags_of(path)
    del opened
    BlockedBloomFilter.load(path)
    assert "sr" in during.pop()
    opened = BlockedBloomFilter.open(path)
    assert not {"sr", "rr"} & (during.pop() | flags_of(path))
    assert opened.contains_many(KEYS).all()


@pytest.mark.parametrize("options", [{}, {"verify": True}, {"preload": True}])
def test_a_file_that_memory_cannot_hold_is_not_read_ahead(
    path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
) -> None:
    monkeypatch.setattr(_mapped_files._platform, "machine_memory", lambda: 2 * path.stat().st_size - 1)
    opened = BlockedBloomFilter.open(path, **options)
    assert "rr" in flags_of(path)
    assert opened.contains_many(KEYS).all()


def test_shards_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    f = ShardedFilter(300_000, shards=3)
    f.save(tmp_path / "shards")
    file = next((tmp_path / "shards").rglob("*.evb"))
    monkeypatch.setattr(_mapped_files._platform, "machine_memory", lambda: 4 * file.stat().st_size)
    opened = ShardedFilter.open(tmp_path / "shards")
    assert "rr" in flags_of(file)
    assert opened.nbytes > 2 * file.stat().st_size


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS])
def test_a_system_without_advice_needs_none(path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    class Deaf(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(_mapped_files.mmap, "mmap", Deaf)
    monkeypatch.setattr(_mapped_files, "_POPULATE_READ", None)
    for options in ({}, {"verify": True}, {"preload": True}):
        opened = BlockedBloomFilter.open(path, **options)
        assert opened.contains_many(KEYS).all()
        del opened
