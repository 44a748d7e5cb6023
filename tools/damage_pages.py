"""Damage a small one-read table, byte by byte: nothing damaged is taken for whole, nothing crashes.

python tools/damage_pages.py                   every bit of every byte: some minutes
python tools/damage_pages.py --step 61         what `make test` does, on every sixty-first byte

table     a flipped bit of a page is a FormatError; of a header it is one, or the other header serves and
          the content is the exact one (each of the two is enough: a torn header must not cost the table)
prefix    every length is a FormatError; so is anything behind the end
journal   a flipped bit is a FormatError, or the last group, which may have been torn, is left out
summary   a flipped bit is found, and the summary made anew: the answers are the exact ones
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import records

from evenbins import FormatError, PagedTable

State = dict[int, int]


def small_table(path: Path) -> list[State]:
    """Make a table of a few pages with three groups of changes in its journal; return its states."""
    with PagedTable.create(path, 500, levels=1, overflow_pages=1, durable=False) as table:
        table.insert_many(range(400), range(400))
    states = [{key: key for key in range(400)}]
    table = PagedTable.open(path, writable=True)  # synced: what precedes a group was on disk
    for key in (1, 1000, 2):
        states.append({**states[-1], key: -key})
        table[key] = -key
    table._close()
    return states


def flips(data: bytes, step: int, first: int = 0) -> Iterator[tuple[int, bytes]]:
    """Flip all bits of each byte, one at a time; with a step one bit of some bytes."""
    for number, place in enumerate(range(first, len(data), step)):
        for bit in range(8) if step == 1 else (number % 8,):
            yield place, data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def read_table(path: Path) -> State | None:
    """Read all of a table, checked; None if it is rejected."""
    try:
        with PagedTable.open(path, verify=True) as table:
            found = dict(table.items())
            assert all(table.get(key) == value for key, value in list(found.items())[::40])
            return found
    except FormatError:
        return None


def damage(folder: Path, step: int) -> Counter[str]:
    """Try all damages; return how often what happened. Raises if a damaged file was accepted."""
    path, journal, summary = folder / "table", folder / "table.journal", folder / "table.summary"
    states = small_table(path)
    changes, before = journal.read_bytes(), path.read_bytes()
    group = len(changes) // 3
    found: Counter[str] = Counter()
    for place, data in flips(changes, step):
        path.write_bytes(before)
        journal.write_bytes(data)
        state = read_table(path)
        assert state is None or (place >= 2 * group and state in states[2:]), f"journal, byte {place}"
        found["journal: refused" if state is None else "journal: without the last group"] += 1
    path.write_bytes(before)
    journal.write_bytes(changes)
    assert read_table(path) == states[-1]
    whole, short = path.read_bytes(), summary.read_bytes()
    assert journal.read_bytes() == b""
    for place, data in flips(whole, step):
        path.write_bytes(data)
        state = read_table(path)
        assert state is None or (place < 8192 and state == states[-1]), f"table, byte {place}"
        found["table: refused" if state is None else "table: the other header"] += 1
    for length in range(0, len(whole), step):
        path.write_bytes(whole[:length])
        assert read_table(path) is None, f"{length} bytes"
        found["table: prefixes refused"] += 1
    for more in (b"\0", b"\xff", bytes(4096), whole):
        path.write_bytes(whole + more)
        assert read_table(path) is None, "something follows"
        found["table: longer, refused"] += 1
    path.write_bytes(whole)
    for place, data in flips(short, step):
        summary.write_bytes(data)
        with PagedTable.open(path) as table:
            answers = {key: table.get(key) for key in range(-100, 1100)}
        assert answers == {key: states[-1].get(key) for key in answers}, f"summary, byte {place}"
        found["summary: made anew"] += 1
    return found


def main() -> None:
    """Damage everything, and print what happened."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step", type=int, default=1, help="bytes from one damage to the next")
    options = parser.parse_args()
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    begun = time.perf_counter()
    try:
        found = damage(folder, options.step)
    finally:
        shutil.rmtree(folder)
    for what, count in sorted(found.items()):
        print(f"{what:34}{count:10,}")
    print(f"{'all':34}{found.total():10,}: none was taken for whole")
    if len(sys.argv) == 1:
        said = f"{found.total():,} damages, none was taken for whole"
        records.keep("damage", "make damage", [said], time.perf_counter() - begun)


if __name__ == "__main__":
    main()
