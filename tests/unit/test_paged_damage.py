"""One-read tables that are damaged or forged: refused, or exactly what they were; never a crash.

tools/damage_pages.py flips every bit of a small table, its journal and its summary; here every sixty-first
byte. A forged file has right checksums over wrong fields: whoever can write the file can compute them.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evenbins import FormatError, PagedTable
from reference.keys import splitmix
from reference.xxh3 import xxh3_64

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from damage_pages import damage, read_table, small_table

CAPACITY, WORDS, UID, CORE = 32, 40, 48, 80  # of a header (page_store.hpp)
HUGE = (0, 2**31, 2**32, 2**40, 2**56, 2**63, 2**64 - 1)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory if there is one: these tests sync very often."""
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None)
    yield Path(made)
    shutil.rmtree(made)


def test_no_damage_is_taken_for_whole(folder: Path) -> None:
    found = damage(folder, 61)
    print(dict(found))
    assert found["table: refused"] > 150
    assert found["table: the other header"] > 100
    assert found["journal: refused"] > 100
    assert found["journal: without the last group"] > 50
    assert found["summary: made anew"] > 1


def with_header(data: bytes, offset: int, value: int, width: int = 8) -> bytes:
    """Put a number into both headers, their checksums right."""
    changed = bytearray(data)
    for start in (0, 4096):
        changed[start + offset : start + offset + width] = value.to_bytes(width, "little")
        checksum = xxh3_64(bytes(changed[start : start + 4088]))
        changed[start + 4088 : start + 4096] = checksum.to_bytes(8, "little")
    return bytes(changed)


FORGED = """
import resource, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
import test_paged_damage as here

path = Path(sys.argv[2])
states = here.small_table(path)
assert here.read_table(path) == states[-1]
data = path.read_bytes()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), used + (1 << 30)))
words = int.from_bytes(data[here.WORDS : here.WORDS + 8], "little")
tried = 0
for offset in (here.CAPACITY, here.WORDS, *(here.CORE + 8 * i for i in range(words))):
    for value in here.HUGE:
        path.write_bytes(here.with_header(data, offset, value))
        here.read_table(path)  # refused, or it was no size: no MemoryError, no crash
        tried += 1
for offset, values in ((8, (0, *range(2, 20), 2**32 - 1)), (12, (*range(13), *range(14, 64), 2**32 - 1))):
    for value in values:  # version and kind
        path.write_bytes(here.with_header(data, offset, value, 4))
        assert here.read_table(path) is None, (offset, value)
        tried += 1
print(tried)
"""


def test_forged_headers_are_refused_without_the_memory(folder: Path, run_python: Callable[..., Any]) -> None:
    """In a process that may take one GiB more."""
    done = run_python(FORGED, str(Path(__file__).parent), str(folder / "table"))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 130


def page_with_count(image: bytes, number: int, uid: int, count: int) -> bytes:
    """Let a page say that it holds so many keys, its checksum right."""
    body = count.to_bytes(4, "little") + image[12:]
    return xxh3_64(body, splitmix(uid, number)).to_bytes(8, "little") + body


@pytest.mark.parametrize("count", [256, 10_000, 2**31, 2**32 - 1])
def test_a_page_that_says_it_holds_more_than_it_can(folder: Path, count: int) -> None:
    """In the file, and in the journal: 255 keys of 8 bytes, with their values, fill a page."""
    path = folder / "table"
    journal = folder / "table.journal"
    states = small_table(path)
    before, changes = path.read_bytes(), journal.read_bytes()
    (uid,) = struct.unpack_from("<Q", before, UID)
    forged = bytearray(before)
    forged[8192 : 8192 + 4096] = page_with_count(before[8192 : 8192 + 4096], 0, uid, count)
    path.write_bytes(forged)
    journal.write_bytes(b"")
    for verify in (False, True):
        with pytest.raises(FormatError, match="page 0 says that it holds more keys than it has slots"):
            _read(path, verify)
    # One group of one page: head (48 bytes), number, page, checksum of the last two seeded by the group.
    group = bytearray(changes[: 48 + 8 + 4096 + 8])
    number, which = struct.unpack_from("<Q", group, 16)[0], struct.unpack_from("<Q", group, 48)[0]
    group[56 : 56 + 4096] = page_with_count(bytes(group[56 : 56 + 4096]), which, uid, count)
    group[-8:] = xxh3_64(bytes(group[48:-8]), number).to_bytes(8, "little")
    path.write_bytes(before)
    journal.write_bytes(group)
    for verify in (False, True):
        with pytest.raises(FormatError, match=f"page {which} says that it holds more keys than it has slots"):
            _read(path, verify)
    journal.write_bytes(changes)
    assert read_table(path) == states[-1]


def _read(path: Path, verify: bool) -> None:
    with PagedTable.open(path, verify=verify) as table:
        table.get_many(range(400), default=0)
        list(table.items())
