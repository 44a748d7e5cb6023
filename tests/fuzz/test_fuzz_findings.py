"""What fuzzing, and reading for it, found: one test each, with files as a forger writes them (right
checksums).

Each of these was memory read behind a page, a process that hangs, memory out of proportion to the file,
or an error of the wrong
kind; the corpus keeps the inputs, these tests say what was wrong.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import zstandard

from evenbins import ChainedTable, FormatError, HashRing, MultilevelTable, PagedTable, _compressed, _core
from evenbins.cli import _inputs

FUZZ = Path(__file__).parents[2] / "fuzz"
GOLDEN = Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(FUZZ / "python"))

from forge import forged  # noqa: E402

CORE, CAPACITY = 72, 32
PAGE, GROUP_HEAD = 4096, 48


def changed(data: bytes, offset: int, value: int) -> bytes:
    return forged(data[:offset] + value.to_bytes(8, "little") + data[offset + 8 :])


def splitmix(seed: int, number: int) -> int:
    from reference.keys import splitmix as twin

    return twin(seed, number)


# --- the one-read table ---------------------------------------------------------------------------------


def left_by_a_crash(folder: Path) -> Path:
    """A table whose journal holds a group: what a process that died leaves behind."""
    path = folder / "table"
    code = (
        "import os, sys; from evenbins import PagedTable; "
        "t = PagedTable.create(sys.argv[1], 500, durable=False); "
        "t.insert_many(range(100), range(100)); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert os.path.getsize(f"{path}.journal") > PAGE
    return path


def test_a_page_of_the_journal_with_more_keys_than_slots_is_refused(tmp_path: Path) -> None:
    """The count of a page in the journal was believed, and so many keys were read behind the page."""
    path = left_by_a_crash(tmp_path)
    journal = bytearray(Path(f"{path}.journal").read_bytes())
    uid, number, pages = struct.unpack_from("<QQQ", journal, 8)
    image = GROUP_HEAD + 8 * pages
    (page,) = struct.unpack_from("<Q", journal, GROUP_HEAD)
    struct.pack_into("<I", journal, image + 8, 2**31)
    struct.pack_into(
        "<Q", journal, image, _core.xxh3_64(bytes(journal[image + 8 : image + PAGE]), splitmix(uid, page))
    )
    end = GROUP_HEAD + pages * (8 + PAGE)
    struct.pack_into("<Q", journal, end, _core.xxh3_64(bytes(journal[GROUP_HEAD:end]), number))
    Path(f"{path}.journal").write_bytes(journal)
    with pytest.raises(FormatError, match="more keys than it has slots"):
        PagedTable.open(path, writable=True)


# --- rings, tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [9, 10], ids=["nodes", "slots"])
def test_a_ring_of_more_nodes_or_slots_than_its_file_can_tell_is_refused(word: int) -> None:
    """A file of a kilobyte asked for 256 MiB of slots before its description was read."""
    data = (GOLDEN / "ring.evenbins").read_bytes()
    with pytest.raises(FormatError, match="too short for its nodes and slots"):
        HashRing.from_bytes(changed(data, CORE + 8 * word, 2**22))


@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
def test_a_ring_whose_names_are_no_text_is_refused(bad: bytes) -> None:
    """It was a RuntimeError of the binding."""
    data = HashRing(["abcd"], epsilon=0.25).to_bytes()
    assert data.count(b"abcd") == 1
    with pytest.raises(FormatError, match="UTF-8"):
        HashRing.from_bytes(forged(data.replace(b"abcd", bad.ljust(4, b"x"))))
    text = "aé€😀"
    assert HashRing.from_bytes(HashRing([text], epsilon=0.25).to_bytes()).names == (text,)


def test_a_table_whose_capacity_does_not_fit_its_levels_is_refused() -> None:
    """It was read, and then had no plan, no stats and no pickle."""
    data = (GOLDEN / "table-standard.evenbins").read_bytes()
    with pytest.raises(FormatError, match="buckets for each key"):
        MultilevelTable.from_bytes(changed(data, CAPACITY, 2**40))


def test_a_chain_that_runs_in_a_circle_ends(tmp_path: Path, run_python: Callable[..., Any]) -> None:
    """An unverified file: a bin says 2**32 - 1 entries, and the entry links to itself; a look-up took
    minutes."""
    (crash,) = (FUZZ / "crashes" / "chained").glob("load-of-a-cycle")
    path = tmp_path / "table"
    path.write_bytes(forged(crash.read_bytes()))
    with pytest.raises(FormatError):
        ChainedTable.load(path)
    code = (
        "import sys, evenbins; t = evenbins.ChainedTable.open(sys.argv[1]); "
        "t.contains_many(range(1000)); t.stats()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0 or "FormatError" in done.stderr, done.stderr


# --- the command line's readers --------------------------------------------------------------------------


def read(path: Path, content: bytes, column: str) -> list[int]:
    path.write_bytes(content)
    (opened,) = _inputs.open_inputs([str(path)], _inputs.How(column=column))
    return [len(batch) for batch in opened.batches()]


def test_csv_that_begins_with_empty_lines_is_read(tmp_path: Path) -> None:
    """It was an error of Python's csv module, with a traceback."""
    assert read(tmp_path / "x.csv", b"\n\r\na,b\n1,2\n", "b") == [1]


@pytest.mark.parametrize("names", [b"a\rb,c\n1,2\n", b"a" * 200_000 + b",b\n1,2\n"], ids=["return", "long"])
def test_names_that_cannot_be_read_are_one_line(tmp_path: Path, names: bytes) -> None:
    with pytest.raises(click.ClickException, match="line of names cannot be read"):
        read(tmp_path / "x.csv", names, "b")


def test_csv_without_a_line_of_names_does_not_fill_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_inputs, "_MOST_RECORD_BYTES", 1 << 21)
    with pytest.raises(click.ClickException, match="no line of names"):
        read(tmp_path / "x.csv", b"x" * (5 << 20), "b")


def test_zstd_is_unpacked_in_bounded_pieces() -> None:
    """128 KiB of zstd can unpack to gigabytes: they were asked for at once."""
    packed = zstandard.compress(bytes(1 << 27), 1)
    at = [0]

    def take(size: int) -> bytes:
        piece = packed[at[0] : at[0] + size]
        at[0] += len(piece)
        return piece

    sizes = [len(block) for block in _compressed.unpack(take, "zstd", "bomb")]
    assert sum(sizes) == 1 << 27
    assert max(sizes) <= (1 << 26) + (1 << 17)
