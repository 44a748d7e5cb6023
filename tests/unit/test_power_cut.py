"""Power cuts: the calls of a real run are recorded, and every disk that they permit is tried.

    a child process ──strace──▶ create, write, fsync, rename, … ──any prefix and subset──▶ a folder, opened

A cut may come after any call. What was synced is there; of what was not, any subset may be, in any order, and
a write may be torn at sectors. The same for names: a file that was created, renamed or removed has its old
name or its new one until its *folder* is synced (POSIX promises no more; ext4 does). Each such disk is made,
in memory, and must open as a state that was saved: not older than the last one acknowledged, not newer than
the one under way.

All subsets are tried where there are at most `_WHOLE` unsynced calls, otherwise a seeded sample of them. The
power tests leave out the sync of a file or of a folder, and must be found out.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from evenbins import BlockedBloomFilter, FormatError, MultilevelTable, PagedTable, ShardedFilter

_SECTOR = 512
_WHOLE = 7
_SAMPLE = 40
_TORN = 8
_CALLS = (
    "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir,mkdir,"
    "mkdirat,ftruncate,fallocate,close,lseek"
)

_NAMING = (
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None)
    yield Path(made)
    shutil.rmtree(made)


# --- what was recorded --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A change to the disk: of a file's bytes, of a folder's names, or the sync of one of the two."""

    what: str  # write, truncate, sync; link, unlink, move, mkdir, rmdir, sync-folder; done
    file: int = -1
    place: int = 0
    data: bytes = b""
    name: str = ""
    other: str = ""

    @property
    def folders(self) -> set[str]:
        return {os.path.dirname(each) for each in (self.name, self.other) if each}


@dataclass
class Recorder:
    """From the lines of strace to calls."""

    root: str
    calls: list[Call] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)  # of names
    open: dict[int, tuple[int, int]] = field(default_factory=dict)  # of descriptors: file and position
    made: int = 0

    def read(self, text: str) -> list[Call]:
        for line in text.splitlines():
            found = re.match(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)", line)
            if found and int(found[3]) >= 0:
                self._take(found[1], found[2], int(found[3]))
        return self.calls

    def _take(self, name: str, text: str, result: int) -> None:
        strings = [
            bytes.fromhex(each.replace("\\x", "")) for each in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', text)
        ]
        if name == "write" and strings and strings[0].startswith(b"done "):
            self.calls.append(Call("done", place=int(strings[0][5:])))
        elif name == "openat":
            self._opened(self._path(text, strings[0]), text, result)
        elif name in _NAMING:
            self._named(name, text, [self._path(text, each) for each in strings])
        else:
            self._changed(name, text, strings, result)

    def _path(self, text: str, name: bytes) -> str:
        path = os.fsdecode(name)
        if not path.startswith("/"):
            base = re.search(r"<((?:\\x[0-9a-f]{2})+|[^>]*)>", text)
            assert base is not None
            path = os.path.join(self._plain(base[1]), path)
        return path

    @staticmethod
    def _plain(text: str) -> str:
        return os.fsdecode(bytes.fromhex(text.replace("\\x", ""))) if text.startswith("\\x") else text

    def _opened(self, path: str, text: str, descriptor: int) -> None:
        self.open.pop(descriptor, None)
        if not path.startswith(self.root):
            return
        if "O_DIRECTORY" in text or os.path.isdir(path):
            self.open[descriptor] = (-1, 0)
            return
        if path not in self.files and "O_CREAT" in text:
            self.files[path] = self.made
            self.calls.append(Call("link", self.made, name=path))
            self.made += 1
        if path in self.files:
            self.open[descriptor] = (self.files[path], 0)
            if "O_TRUNC" in text:
                self.calls.append(Call("truncate", self.files[path]))

    def _named(self, name: str, text: str, paths: list[str]) -> None:
        if not paths[0].startswith(self.root):
            return
        first = paths[0]
        if name.startswith("mkdir"):
            self.calls.append(Call("mkdir", name=first))
        elif name.startswith("rename"):
            self.files[paths[1]] = self.files.pop(first)
            self.calls.append(Call("move", self.files[paths[1]], name=first, other=paths[1]))
        elif name.startswith("link"):
            self.files[paths[1]] = self.files[first]
            self.calls.append(Call("link", self.files[first], name=paths[1]))
        elif name == "rmdir" or "AT_REMOVEDIR" in text:
            self.calls.append(Call("rmdir", name=first))
        else:
            self.calls.append(Call("unlink", self.files.pop(first), name=first))

    def _changed(self, name: str, text: str, strings: list[bytes], result: int) -> None:
        descriptor = int(re.match(r"\d+", text)[0])  # type: ignore[index]
        if descriptor not in self.open:
            return
        file, position = self.open[descriptor]
        if name == "close":
            del self.open[descriptor]
        elif name in ("fsync", "fdatasync"):
            named = re.match(r"\d+<([^>]*)>", text)
            assert named is not None
            path = self._plain(named[1])
            self.calls.append(Call("sync", file) if file >= 0 else Call("sync-folder", name=path))
        elif name == "write":
            self.calls.append(Call("write", file, position, strings[0][:result]))
            self.open[descriptor] = (file, position + result)
        elif name == "pwrite64":
            self.calls.append(Call("write", file, int(text.rsplit(",", 1)[1]), strings[0][:result]))
        elif name == "ftruncate":
            self.calls.append(Call("truncate", file, int(text.rsplit(",", 1)[1])))
        elif name == "lseek":
            self.open[descriptor] = (file, result)
        else:
            raise AssertionError(f"{name} is not modelled")


def record(folder: Path, script: str) -> list[Call]:
    """Run a script under strace; its argument is the folder it writes to."""
    if shutil.which("strace") is None:
        pytest.fail("this test needs: apt-get install strace", pytrace=False)
    trace = folder.with_name(folder.name + ".trace")
    command = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-o", trace, "-e", f"trace={_CALLS}"]
    done = subprocess.run(
        [*command, sys.executable, "-c", script, folder], capture_output=True, text=True, check=False
    )
    text = trace.read_text()
    trace.unlink()
    assert done.returncode == 0, done.stderr
    return Recorder(str(folder)).read(text)


# --- what may be on disk --------------------------------------------------------------------------------


def unsynced(calls: list[Call]) -> list[int]:
    """The calls that a power cut after the last one may undo."""
    synced: set[int] = set()
    folders: set[str] = set()
    found = []
    for number in range(len(calls) - 1, -1, -1):
        call = calls[number]
        if call.what == "sync":
            synced.add(call.file)
        elif call.what == "sync-folder":
            folders.add(call.name)
        elif call.what in ("write", "truncate"):
            if call.file not in synced:
                found.append(number)
        elif call.what != "done" and not call.folders <= folders:
            found.append(number)
    return found[::-1]


def disk(calls: list[Call], undone: set[int], torn: random.Random | None) -> dict[str, bytes | None]:
    """Names and contents (None: a folder) after the calls, without those undone, or with them torn."""
    contents: dict[int, bytearray] = {}
    names: dict[str, int | None] = {}
    for number, call in enumerate(calls):
        if number in undone and not (torn and call.what == "write"):
            continue
        if call.what == "write":
            data, place = call.data, call.place
            if number in undone and torn:
                start = torn.randrange(0, len(data), _SECTOR)
                data, place = data[start : start + _SECTOR * torn.randrange(0, 3)], place + start
            content = contents.setdefault(call.file, bytearray())
            content.extend(bytes(max(place + len(data) - len(content), 0)))
            content[place : place + len(data)] = data
        elif call.what == "truncate":
            content = contents.setdefault(call.file, bytearray())
            del content[call.place :]
            content.extend(bytes(call.place - len(content)))
        elif call.what == "link":
            names[call.name] = call.file
        elif call.what == "move":
            names.pop(call.name, None)
            names[call.other] = call.file
        elif call.what == "mkdir":
            names[call.name] = None
        elif call.what in ("unlink", "rmdir"):
            names.pop(call.name, None)
    return {name: None if file is None else bytes(contents.get(file, b"")) for name, file in names.items()}


def disks(calls: list[Call], rng: random.Random) -> Iterator[dict[str, bytes | None]]:
    """Every disk that a cut after these calls permits, or a sample of them."""
    open_ = unsynced(calls)
    if len(open_) <= _WHOLE:
        subsets: list[tuple[int, ...]] = [
            each for size in range(len(open_) + 1) for each in itertools.combinations(open_, size)
        ]
    else:
        subsets = [(), tuple(open_)]
        subsets += [tuple(each for each in open_ if rng.random() < 0.5) for _ in range(_SAMPLE)]
    for subset in subsets:
        yield disk(calls, set(subset), None)
        if any(calls[each].what == "write" for each in subset):
            for _ in range(_TORN):
                yield disk(calls, set(subset), rng)


def put(folder: Path, content: dict[str, bytes | None], root: Path) -> None:
    """Make the folder that a disk holds; what has lost the folder it was in is lost with it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in sorted(content):
        place = folder / Path(name).relative_to(root)
        data = content[name]
        if not place.parent.is_dir():
            continue
        if data is None:
            place.mkdir(exist_ok=True)
        else:
            place.write_bytes(data)


def replay(calls: list[Call], root: Path, found: Callable[[Path], int]) -> tuple[int, list[str]]:
    """Try all disks: how many, and what was wrong. `found` opens a folder and gives its state's number."""
    rng = random.Random(5)
    tried, wrong = 0, []
    seen: set[Any] = set()
    with tempfile.TemporaryDirectory(dir=root.parent) as place:
        for cut in range(len(calls) + 1):
            done = max((call.place for call in calls[:cut] if call.what == "done"), default=0)
            for content in disks(calls[:cut], rng):
                key = (done, tuple(sorted(content.items())))
                if key in seen:
                    continue
                seen.add(key)
                put(Path(place) / "disk", content, root)
                tried += 1
                try:
                    state = found(Path(place) / "disk")
                except (OSError, FormatError) as error:
                    if done:
                        wrong.append(f"cut {cut} after {done}: {error!r}")
                    continue
                if not done <= state <= done + 1:
                    wrong.append(f"cut {cut}: state {state} after {done} was acknowledged")
    return tried, wrong


# --- the runs -------------------------------------------------------------------------------------------

SAVES = """
import os, sys
from evenbins import BlockedBloomFilter, MultilevelTable, ShardedFilter
{extra}
for number in (1, 2, 3):
    made = {make}
    made.{add}(range(number * 1000, number * 1000 + 100){values})
    made.save(sys.argv[1] + "/saved"{layout})
    os.write(2, b"done %d" % number)
"""
PLAIN = {"make": "BlockedBloomFilter(300)", "add": "add_many", "values": "", "layout": ""}
TABLE = {"make": "MultilevelTable(300)", "add": "insert_many", "values": ", 1", "layout": ""}
AS_PAGES = TABLE | {"layout": ", layout='pages'"}
SHARDS = {"make": "ShardedFilter(300, shards=3)", "add": "add_many", "values": "", "layout": ""}


def state_of(cls: Any) -> Callable[[Path], int]:
    def found(folder: Path) -> int:
        made = (cls.open if cls is PagedTable else cls.load)(folder / "saved")
        states = [
            number
            for number in (1, 2, 3)
            if made.contains_many(range(number * 1000, number * 1000 + 100)).all()
        ]
        (state,) = states  # exactly one of them
        return state

    return found


@pytest.mark.parametrize(
    ("cls", "how", "least"),
    [
        (BlockedBloomFilter, PLAIN, 20),
        (MultilevelTable, TABLE, 20),
        (PagedTable, AS_PAGES, 100),
        (ShardedFilter, SHARDS, 400),
    ],
)
def test_a_save_survives_a_power_cut(cls: Any, how: dict[str, str], least: int, folder: Path) -> None:
    calls = record(folder, SAVES.format(extra="", **how))
    assert [call.place for call in calls if call.what == "done"] == [1, 2, 3]
    tried, wrong = replay(calls, folder, state_of(cls))
    print(f"{cls.__name__}: {len(calls)} calls, {tried} disks")
    assert wrong == []
    assert tried >= least


_SYNC = "import stat; sync = os.fsync; is_folder = lambda d: stat.S_ISDIR(os.fstat(d).st_mode); os.fsync = "
MUTANTS = {
    "no sync of the file": (_SYNC + "lambda d: is_folder(d) and sync(d)", PLAIN, BlockedBloomFilter),
    "no sync of the folder": (_SYNC + "lambda d: is_folder(d) or sync(d)", PLAIN, BlockedBloomFilter),
    "no sync of a new folder": (
        "import evenbins.filters.sharded_files as s; s._make_durably = lambda f: f.mkdir(exist_ok=True)",
        SHARDS, ShardedFilter,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_sync_is_found(name: str, folder: Path) -> None:
    """Power: the replay sees what a kill cannot."""
    extra, how, cls = MUTANTS[name]
    _, wrong = replay(record(folder, SAVES.format(extra=extra, **how)), folder, state_of(cls))
    assert wrong


PAGES = """
import os, sys
from evenbins import PagedTable
with PagedTable.create(sys.argv[1] + "/saved", 300) as table:
    os.write(2, b"done 1")
    for number in range(2, 6):
        if number == 4:
            table.checkpoint()
        table[number] = number
        os.write(2, b"done %d" % number)
"""


def test_a_table_on_disk_survives_a_power_cut(folder: Path) -> None:
    """Creation, single insertions, a checkpoint in between, closing."""

    def found(disk: Path) -> int:
        with PagedTable.open(disk / "saved") as table:
            held = dict(table.items())
        assert held == {number: number for number in range(2, 2 + len(held))}
        return 1 + len(held)

    calls = record(folder, PAGES)
    tried, wrong = replay(calls, folder, found)
    print(f"PagedTable: {len(calls)} calls, {tried} disks")
    assert wrong == []
    assert tried >= 80
