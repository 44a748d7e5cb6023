"""Damaged files are refused: every bit, every length, other versions, kinds and sizes, of every kind of file.

The golden files are small files of all kinds (1 to 16, in several shapes), written once. For each of them

    each bit flipped ─────────┐
    each prefix ──────────────┤──▶ from_bytes, and for the smallest file of a kind load and open(verify=True):
    bytes behind the end ─────┤                                   FormatError, always
    other version, kind, size ┘

A long run samples nothing: 600,000 damaged files. Sizes in headers are believed only after they fit the file:
a header that asks for an exabyte is refused without the memory (measured in a process with little of it).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sizes import size

from evenbins import FormatError, structure
from reference.xxh3 import xxh3_64

GOLDEN = Path(__file__).parents[1] / "golden"
ELSEWHERE = ("paged-table", "sharded")  # test_paged_damage.py, test_sharded.py
KINDS = [kind for kind in structure.KINDS if kind.name not in ELSEWHERE]
FILES = sorted(GOLDEN.glob("*.evenbins"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def class_of(path: Path) -> Any:
    return structure.kind_of_file(path).cls


@functools.cache
def smallest_of_each_class() -> list[Path]:
    found: dict[Any, Path] = {}
    for path in sorted(FILES, key=lambda path: path.stat().st_size):
        found.setdefault(class_of(path), path)
    return sorted(found.values())


each_class = pytest.mark.parametrize("path", smallest_of_each_class(), ids=lambda path: path.stem)


def accepted(damaged: Iterator[bytearray | bytes], read: Callable[[Any], object]) -> list[int]:
    """The numbers of the damaged files that were not refused; what is raised but FormatError goes through."""
    found = []
    for number, data in enumerate(damaged):
        try:
            read(data)
        except FormatError:
            continue
        found.append(number)
    return found


def flips(data: bytes) -> Iterator[bytearray]:
    """The file with each of its bits flipped, in turn."""
    work = bytearray(data)
    for place in range(len(work)):
        for bit in range(8):
            work[place] ^= 1 << bit
            yield work
            work[place] ^= 1 << bit


def one_bit_of_each_byte(data: bytes) -> Iterator[bytearray]:
    """The file with one bit of each byte flipped, the next bit in the next byte."""
    work = bytearray(data)
    for place in range(len(work)):
        work[place] ^= 1 << place % 8
        yield work
        work[place] ^= 1 << place % 8


def prefixes(data: bytes, step: int = 1) -> Iterator[bytes]:
    return (data[:length] for length in range(0, len(data), step))


def test_there_is_a_file_of_every_class() -> None:
    assert {class_of(path) for path in FILES} == {kind.cls for kind in KINDS}


@each_file
def test_every_flipped_bit_of_every_kind_is_refused(path: Path) -> None:
    """In a short run a bit of every byte of the smallest file of each class, of every eleventh of others."""
    from sizes import ROUNDS  # here: processes that have only this folder on their path import this module

    data = path.read_bytes()
    class_of(path).from_bytes(data)
    step = 1 if path in smallest_of_each_class() else 11
    damaged = flips(data) if ROUNDS > 1 else itertools.islice(one_bit_of_each_byte(data), 0, None, step)
    assert accepted(damaged, class_of(path).from_bytes) == []


@each_file
def test_every_prefix_of_every_kind_is_refused(path: Path) -> None:
    """In a short run every prefix of the smallest file of each class, and every seventh of the others."""
    from sizes import ROUNDS

    step = 1 if ROUNDS > 1 or path in smallest_of_each_class() else 7
    assert accepted(prefixes(path.read_bytes(), step), class_of(path).from_bytes) == []


@each_file
def test_bytes_behind_the_end_of_every_kind_are_refused(path: Path) -> None:
    data = path.read_bytes()
    more = (data + tail for tail in (b"\0", b"\xff", b"\0" * 64, data, data[:64]))
    assert accepted(more, class_of(path).from_bytes) == []


@each_class
def test_files_are_refused_as_bytes_are(path: Path, tmp_path: Path) -> None:
    """By `load` and by `open(verify=True)`: a flipped bit of every seventh byte, and every 17th prefix.

    In a long run of every third byte, and every seventh prefix.
    """
    place = tmp_path / "damaged"
    data = path.read_bytes()

    with place.open("wb") as file:

        def read(damaged: bytes) -> None:
            file.seek(0)
            file.write(damaged)
            file.truncate()
            file.flush()
            with pytest.raises(FormatError):
                class_of(path).load(place)
            class_of(path).open(place, verify=True)

        assert accepted(itertools.islice(one_bit_of_each_byte(data), 0, None, size(7, 3)), read) == []
        assert accepted(prefixes(data, size(17, 7)), read) == []


# --- right checksums over wrong fields --------------------------------------------------------------------

VERSION, KIND, SEED, CAPACITY, OFFSET, SIZE, WORDS, CORE = 8, 12, 24, 32, 40, 48, 64, 72  # docs/format.md
HUGE = (2**31, 2**32, 2**40, 2**56, 2**63, 2**64 - 1)


def forged(data: bytes, changes: dict[int, tuple[int, int]]) -> bytes:
    """Put numbers (value, bytes) at offsets of the header, and make its checksum right again."""
    changed = bytearray(data)
    size = int.from_bytes(data[OFFSET : OFFSET + 8], "little")
    for offset, (value, width) in changes.items():
        changed[offset : offset + width] = value.to_bytes(width, "little")
    changed[size - 8 : size] = xxh3_64(bytes(changed[: size - 8])).to_bytes(8, "little")
    return bytes(changed)


@each_class
def test_the_forge_makes_files_that_would_be_read(path: Path) -> None:
    """Power: with nothing changed, or another seed, the forged file is accepted."""
    data = path.read_bytes()
    assert forged(data, {}) == data
    if not path.stem.startswith(
        (
            "growing",
            "deduplicator",
            "heavy",
            "summary-multiple",
            "summary-single",
            "chained",
            "table",
            "set",
            "ring",
        )
    ):
        class_of(path).from_bytes(forged(data, {SEED: (77, 8)}))


@each_class
def test_another_version_and_another_kind_are_refused(path: Path) -> None:
    data = path.read_bytes()
    (kind,) = data[KIND : KIND + 1]
    others = [{KIND: (other, 4)} for other in (*range(64), 2**31, 2**32 - 1) if other != kind]
    versions = [{VERSION: (other, 4)} for other in (0, *range(2, 40), 2**32 - 1)]
    assert accepted((forged(data, each) for each in others + versions), class_of(path).from_bytes) == []


FORGED_SIZES = """
import resource, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
import test_corruption as here

limit = 1 << 30
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))
files = 0
for path in here.smallest_of_each_class():
    data = path.read_bytes()
    words = int.from_bytes(data[here.WORDS : here.WORDS + 8], "little")
    offsets = [here.CAPACITY, here.OFFSET, here.SIZE, here.WORDS, *(here.CORE + 8 * i for i in range(words))]
    kept = []
    for offset in offsets:
        for value in here.HUGE:
            if offset == here.OFFSET:  # the checksum is looked for there
                changed = bytearray(data)
                changed[offset : offset + 8] = value.to_bytes(8, "little")
                damaged = bytes(changed)
            else:
                damaged = here.forged(data, {offset: (value, 8)})
            files += 1
            for number in here.accepted(iter([damaged]), here.class_of(path).from_bytes):
                kept.append((offset, value))
    fine = {(here.CAPACITY, value) for value in here.HUGE}
    print(path.stem, sorted(set(kept) - fine))
print(files)
"""


def test_a_huge_size_in_a_header_is_refused_without_the_memory(run_python: Callable[..., Any]) -> None:
    """Every word of the header and the core set to 2**31 … 2**64-1, in a process that may take one GiB more.

    A MemoryError, or any error but FormatError, ends the process. Some words are not sizes (a coin, a rate,
    a budget) and may be large: a file with such a change is read, and costs no memory.
    """
    done = run_python(FORGED_SIZES, str(Path(__file__).parent))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) > 400
