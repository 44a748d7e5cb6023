"""The one-read table and crashes: every acknowledged change comes back, and nothing is ever half done.

Two ways. *Replay*: the core records every write, sync and truncation; a simulated disk keeps what was
synced, any subset of what was not, and tears writes at sectors; each such disk must open as the state after
some group of changes, not before the last acknowledged one. *Kill*: a child process writes and reports;
SIGKILL at a random moment; what it reported must be there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from sizes import size

from evenbins import FormatError, PagedTable
from reference.paged import read_journal, read_table

SECTOR = 512
Step = tuple[int, str, int, bytes]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory if there is one: these tests sync very often."""
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None)
    yield Path(made)
    shutil.rmtree(made)


def apply(content: bytearray, step: Step) -> None:
    _, what, offset, data = step
    if what == "w":
        if len(content) < offset + len(data):
            content.extend(bytes(offset + len(data) - len(content)))
        content[offset : offset + len(data)] = data
    elif what == "t":
        del content[offset:]


def torn(step: Step, rng: random.Random) -> Step:
    """Some sectors of a write, not all."""
    file, what, offset, data = step
    start = rng.randrange(0, len(data), SECTOR)
    end = min(len(data), rng.randrange(start, len(data) + SECTOR, SECTOR))
    return file, what, offset + start, data[start:end]


def crash(start: tuple[bytes, bytes], steps: list[Step], mode: str, rng: random.Random) -> list[bytes]:
    """What is on disk when the machine stops after these steps."""
    disks = []
    for file in (0, 1):
        mine = [step for step in steps if step[0] == file and step[1] in "wst"]
        synced = max((i + 1 for i, step in enumerate(mine) if step[1] == "s"), default=0)
        content = bytearray(start[file])
        for step in mine[:synced]:
            apply(content, step)
        for step in mine[synced:]:
            if mode == "nothing":
                continue
            if mode == "all" or rng.random() < 0.4:
                apply(content, step)
            elif step[1] == "w" and rng.random() < 0.7:
                apply(content, torn(step, rng))
        disks.append(bytes(content))
    return disks


def changes() -> list[Callable[[PagedTable, dict[int, int]], None]]:
    """Groups of changes: each is one commit."""
    made: list[Callable[[PagedTable, dict[int, int]], None]] = []

    def single(key: int, value: int) -> None:
        made.append(lambda t, d: (t.__setitem__(key, value), d.__setitem__(key, value)))  # type: ignore[arg-type, return-value]

    def delete(key: int) -> None:
        made.append(lambda t, d: (t.__delitem__(key), d.__delitem__(key)))  # type: ignore[arg-type, return-value]

    def many(keys: range, value: int) -> None:
        made.append(lambda t, d: (t.insert_many(keys, value), d.update(dict.fromkeys(keys, value))))  # type: ignore[arg-type, return-value]

    def drop(keys: range) -> None:
        made.append(lambda t, d: (t.delete_many(keys), [d.pop(key) for key in keys]))  # type: ignore[arg-type, return-value]

    for i in range(3):
        single(1000 + i, i)
    many(range(2000, 2200), 5)
    delete(1001)
    single(1000, 77)
    drop(range(0, 400, 2))
    many(range(100, 500), -1)
    single(9999, 1)
    delete(2000)
    return made


def record(folder: Path, durable: bool) -> tuple[tuple[bytes, bytes], list[Step], list[dict[int, int]]]:
    path = str(folder / "recorded")
    with PagedTable.create(path, 1000, durable=False) as t:
        t.insert_many(range(600), range(600))
    start = Path(path).read_bytes(), b""
    states = [{key: key for key in range(600)}]
    t = PagedTable.open(path, writable=True, durable=durable)
    t._record(True)
    for i, change in enumerate(changes()):
        now = dict(states[-1])
        change(t, now)
        states.append(now)
        if i in (4, 7):
            t.checkpoint()
    t.checkpoint()
    steps = t._steps()
    t._record(False)
    t.close()
    return start, steps, states


@pytest.mark.parametrize("durable", [True, False])
def test_every_prefix_of_the_changes_to_the_disk(folder: Path, durable: bool) -> None:
    start, steps, states = record(folder, durable)
    assert [step[2] for step in steps if step[1] == "a"] == list(range(2, len(states) + 1))
    rng = random.Random(5)
    path = folder / "crashed"
    seen = set()
    for end in range(len(steps) + 1):
        before = steps[:end]
        acknowledged = sum(step[1] == "a" for step in before)
        # without sync at each group only what a checkpoint has finished is promised
        finished = max((i for i, step in enumerate(before) if step[:2] == (0, "s")), default=0)
        promised = acknowledged if durable else sum(step[1] == "a" for step in before[:finished])
        for mode in ("nothing", "all", "some", "some"):
            table, journal = crash(start, before, mode, rng)
            path.write_bytes(table)
            Path(f"{path}.journal").write_bytes(journal)
            with PagedTable.open(path) as t:
                found = dict(t.items())
                t._check()
            assert found in states, f"after {end} steps, {mode}: no state that ever was"
            which = max(i for i, state in enumerate(states) if state == found)
            assert which >= promised, f"after {end} steps, {mode}: group {promised} was acknowledged"
            assert which <= acknowledged + 1
            seen.add(which)
    assert seen == set(range(len(states)))


def test_a_crash_while_a_crash_is_repaired(folder: Path) -> None:
    """Every prefix of what opening writes, after the journal had three groups: all of them are there."""
    path = folder / "table"
    t = PagedTable.create(path, 1000)
    t.insert_many(range(400), range(400))
    t[5] = 6
    del t[7]
    expected = dict(t.items())
    t._close()
    start = path.read_bytes(), Path(f"{path}.journal").read_bytes()
    t = PagedTable._with_locked_file(str(path), True, True)
    t._record(True)
    assert t._recover()
    steps = t._steps()
    t._close()
    assert len(steps) > 5
    rng = random.Random(3)
    for end in range(len(steps) + 1):
        for mode in ("nothing", "all", "some", "some", "some"):
            table, journal = crash(start, steps[:end], mode, rng)
            path.write_bytes(table)
            Path(f"{path}.journal").write_bytes(journal)
            with PagedTable.open(path) as t:
                assert dict(t.items()) == expected
                t._check()


def test_torn_pages_of_a_checkpoint_are_found_without_the_journal(folder: Path) -> None:
    """Every torn write of a page, sector by sector: the checksum sees it."""
    start, steps, _ = record(folder, True)
    pages = [step for step in steps if step[0] == 0 and step[1] == "w" and step[2] >= 8192]
    path = folder / "torn"
    _, _, offset, data = pages[0]
    old = start[0]
    for cut in range(SECTOR, 4096, SECTOR):
        content = bytearray(old)
        content[offset : offset + cut] = data[:cut]
        if content[offset : offset + 4096] in (old[offset : offset + 4096], data[:4096]):
            continue
        path.write_bytes(content)
        with pytest.raises(FormatError, match=f"page {offset // 4096 - 2}"):
            PagedTable.open(path, verify=True)


def test_the_journal_is_as_the_twin_reads_it(folder: Path) -> None:
    path = folder / "table"
    t = PagedTable.create(path, 1000, durable=False)
    t.insert_many(range(300), range(300))
    t[5] = 6
    t._close()
    table = read_table(path.read_bytes())
    groups = read_journal(Path(f"{path}.journal").read_bytes(), table)
    assert table.generation == 0
    assert [len(group) for group in groups] == [5, 1]
    with PagedTable.open(path) as t:
        assert t[5] == 6
        assert len(t) == 300
    after = read_table(path.read_bytes())
    assert (after.generation, after.keys, after.uid) == (2, 300, table.uid)
    assert after.stamp != table.stamp
    assert {number: after.pages[number] for number in groups[1]} == groups[1]
    assert Path(f"{path}.journal").read_bytes() == b""


def test_damage_within_the_journal_is_no_crash(folder: Path) -> None:
    """A group that was on disk when a later one was written cannot be torn: refused, not skipped."""
    path = folder / "table"
    t = PagedTable.create(path, 1000)
    for key in range(3):
        t[key] = key
    t._close()
    journal = Path(f"{path}.journal")
    whole = journal.read_bytes()
    group = len(whole) // 3
    for at in (3, 20, 100, group - 1, group + 5, group + 3000):
        journal.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(FormatError, match="journal"):
            PagedTable.open(path)
    for cut in range(2 * group, 3 * group, 811):  # the last one may be torn: it was not acknowledged then
        journal.write_bytes(whole[:cut])
        shutil.copy(path, f"{path}.copy")
        shutil.copy(journal, f"{path}.copy.journal")
        with PagedTable.open(f"{path}.copy") as t:
            assert dict(t.items()) == {0: 0, 1: 1}


def test_a_journal_of_another_time_or_table(folder: Path) -> None:
    path = folder / "table"
    with PagedTable.create(path, 1000) as t:
        t[1] = 1
    shutil.copy(path, f"{path}.old")
    t = PagedTable.open(path, writable=True)
    t[2] = 2
    t.checkpoint()
    t[3] = 3
    t._close()
    journal = Path(f"{path}.journal").read_bytes()
    Path(f"{path}.old.journal").write_bytes(journal)
    with pytest.raises(FormatError, match="of another time"):
        PagedTable.open(f"{path}.old")
    with PagedTable.create(folder / "other", 1000):
        pass
    (folder / "other.journal").write_bytes(journal)
    with PagedTable.open(folder / "other") as t:  # another table's: not taken for its own
        assert len(t) == 0


def test_a_full_disk_changes_nothing(folder: Path) -> None:
    path = folder / "table"
    with PagedTable.create(path, 1000) as t:
        t.insert_many(range(500), range(500))
        before = dict(t.items())
        for _ in range(2):
            t._fail_after(0, errno.ENOSPC)
            with pytest.raises(OSError, match="No space left") as caught:
                t[5] = 1000
            assert caught.value.errno == errno.ENOSPC
            assert caught.value.filename == f"{path}.journal"
            t._fail_after(0, errno.ENOSPC)
            with pytest.raises(OSError, match="No space left"):
                t.insert_many(range(400, 700), 1)
            t._fail_after(0, errno.ENOSPC)
            with pytest.raises(OSError, match="No space left"):
                t.delete_many(range(100))
            assert dict(t.items()) == before
            t._check()
        t[5] = 1000  # room again
        before[5] = 1000
    with PagedTable.open(path) as t:
        assert dict(t.items()) == before
        t._check()


@pytest.mark.parametrize("steps", range(10))
def test_failures_at_any_step_lose_nothing(folder: Path, steps: int) -> None:
    """A disk that fails: the call raises, changes are refused while nobody knows, and opening repairs."""
    path = folder / "table"
    t = PagedTable.create(path, 1000)
    t.insert_many(range(500), range(500))
    acknowledged = dict(t.items())
    t._fail_after(steps, errno.EIO)
    tried = dict(acknowledged)
    with contextlib.suppress(OSError):
        for key in (5, 700):
            tried[key] = -1
            t[key] = -1
            acknowledged[key] = -1
        t.checkpoint()
    reads = dict(t.items())
    assert reads in (acknowledged, tried)
    if t._failed:
        with pytest.raises(RuntimeError, match="open it anew"):
            t[6] = 1
    t.close()
    with PagedTable.open(path) as t:
        assert dict(t.items()) in (acknowledged, tried)
        t._check()


def test_many_kills(folder: Path) -> None:
    path = str(folder / "table")
    with PagedTable.create(path, 20_000) as t:
        t.insert_many(range(10_000), 0)
    expected = dict.fromkeys(range(10_000), 0)
    rng = random.Random(11)
    for number in range(size(15, 100)):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            _write_until_killed(path, number, write_end)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as reports:
            first = reports.read(8)  # it is under way
            time.sleep(rng.random() * 0.03)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            done = np.frombuffer(first + reports.read(), np.uint64)
        with PagedTable.open(path) as t:
            found = dict(t.items())
        count = int(done[-1])
        for step in range(count):
            _apply(expected, number, step)
        one_more = dict(expected)
        _apply(one_more, number, count)
        assert found in (expected, one_more), f"kill {number} after {count} reports"
        expected = found
    assert sum(value != 0 for value in expected.values()) > 1000
    with PagedTable.open(path, verify=True) as t:
        t._check()


def _operation(number: int, step: int) -> tuple[str, list[int], int]:
    rng = random.Random(number * 100_003 + step)
    kind = rng.choice(["set", "set", "many", "delete"])
    count = 1 if kind == "set" else rng.randrange(2, 300)
    return kind, [rng.randrange(0, 18_000) for _ in range(count)], rng.randrange(2**40)


def _apply(state: dict[int, int], number: int, step: int) -> None:
    kind, keys, value = _operation(number, step)
    for key in keys:
        if kind == "delete":
            state.pop(key, None)
        else:
            state[key] = value


def _write_until_killed(path: str, number: int, descriptor: int) -> None:
    try:
        t = PagedTable.open(path, writable=True)
        for step in range(10**6):
            os.write(descriptor, int(step).to_bytes(8, "little"))  # so many are done
            kind, keys, value = _operation(number, step)
            if kind == "set":
                t[keys[0]] = value
            elif kind == "many":
                t.insert_many(keys, value)
            else:
                t.delete_many(keys)
            if step % 7 == 6:
                t.checkpoint()
    finally:
        os._exit(1)
