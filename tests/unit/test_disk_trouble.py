"""Full disks, read-only folders, permissions that change, files cut short while they are mapped.

Every writer of the library takes part: all kinds of files, tables as pages, folders of shards, changes
to an open one-read table, the command line. A write that cannot be finished is an OSError that names the
file; what was there before is there as it was, and nothing is left beside it.

A disk is filled for real: a tmpfs of 4 MiB in a mount namespace of its own, or, where nobody may mount, a
limit on the size of files (RLIMIT_FSIZE), which stops a write halfway just as well. The limit is tried in any
case; the test prints which it was. Permissions are tried as another user than root, who may do everything.

*A file that is cut short while it is mapped* is a documented limit (`open`, SECURITY.md): the system ends the
process that reads behind the end (SIGBUS). Tried and dropped: a handler for the signal. It belongs to the
whole process, which is the program's, not a library's. Files are replaced (`save`), and that is safe. A
one-read table is read, not mapped: there a cut is a FormatError.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / "tools"

WRITERS = """
import contextlib, errno, os, resource, signal, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import kill_writes
from kill_writes import MAKERS, _fill, _same, _save
from evenbins import PagedTable

how, root = sys.argv[2], Path(sys.argv[3])
kill_writes.KEYS = 20_000
if how == "tmpfs":
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", root], check=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
CODE = {"tmpfs": errno.ENOSPC, "limit": errno.EFBIG}[how]

@contextlib.contextmanager
def full(room):
    if how == "tmpfs":
        ballast = root / "ballast"
        with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        os.truncate(ballast, max(ballast.stat().st_size - room, 0))
        try:
            yield
        finally:
            ballast.unlink()
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

def everything(folder):
    return sorted((str(each), each.stat().st_size) for each in folder.rglob("*") if each.name != "ballast")

def fails(call, name):
    try:
        call()
    except OSError as error:
        assert error.errno == CODE, error
        assert os.fspath(error.filename).startswith(str(name)), error
        assert ".tmp" not in str(error), error
        return
    raise AssertionError(f"{name}: written to a full disk")

tried = 0
ROOMS = (0, 4096, 8192) if how == "tmpfs" else (0, 4096)  # a shard's file has six thousand bytes
for name in MAKERS:
    folder = root / name
    folder.mkdir()
    path = folder / "saved"
    old, new = (_fill(MAKERS[name](), first, 1000 if name == "pages" else 10_000) for first in (0, 10**6))
    for room in ROOMS:
        with full(room):
            fails(lambda: _save(name, new, path), path)
            left = [each for each, _ in everything(folder) if each != str(path)]
            assert left == [], left
        tried += 1
        if path.is_dir():
            path.rmdir()
    _save(name, old, path)
    before = everything(folder)
    for room in ROOMS:
        with full(room):
            fails(lambda: _save(name, new, path), path)
            assert everything(folder) == before, (name, before, everything(folder))
        assert _same(name, path, old), name
        tried += 1
    _save(name, new, path)
    assert _same(name, path, new), name

# An open one-read table: a change that finds no room has not happened, and others go on when there is room.
folder = root / "open"
folder.mkdir()
path = folder / "table"
with full(4096):
    fails(lambda: PagedTable.create(path, 1000), path)
    assert everything(folder) == []
table = PagedTable.create(path, 2000)
table.insert_many(range(1000), range(1000))
table.checkpoint()
truth = dict(table.items())
for room in (0, 4096, 20_000):
    with full(room):
        for key in range(2000, 2300):
            try:
                table[key] = key
            except OSError as error:
                assert error.errno == CODE and error.filename == f"{path}.journal", error
                break
            truth[key] = key
        else:
            raise AssertionError("never full")
        fails(lambda: table.insert_many(range(3000, 3400), 1), f"{path}.journal")
        fails(lambda: table.delete_many(range(900)), f"{path}.journal")
        assert dict(table.items()) == truth
        table._check()
        tried += 3
    table[5] = truth[5] = room
with full(0):
    if how == "tmpfs":
        table.close()  # pages have their place; a summary that cannot be written is made anew
    else:
        fails(table.close, path)  # no file may be written at all: the journal keeps what was acknowledged
with full(0):
    with PagedTable.open(path) if how == "tmpfs" else contextlib.nullcontext({}) as table:
        assert dict(table.items()) == (truth if how == "tmpfs" else {})
with PagedTable.open(path, verify=True) as table:
    assert dict(table.items()) == truth
    table._check()
names = {each.name for each in folder.iterdir()}
assert names <= {"table", "table.journal", "table.summary"}, names

# The command line: the error names the file, and the old one is there.
keys, built = root / "keys", root / "built"
keys.write_text("".join(f"key{i}\\n" for i in range(40_000)))
cli = [sys.executable, "-c", "from evenbins.cli import main; main()", "build", str(keys), "-o"]
command = [*cli, str(built)]
subprocess.run(command, check=True, capture_output=True)
before = built.read_bytes()
with full(4096):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and str(built) in done.stderr, done
    assert "Traceback" not in done.stderr, done
    done = subprocess.run([*cli, str(root / "other")], capture_output=True, text=True)
    assert done.returncode != 0 and not (root / "other").exists(), done
assert built.read_bytes() == before
tried += 2

if how == "tmpfs":  # the same with a file system that became read-only
    subprocess.run(["mount", "-o", "remount,ro", root], check=True)
    CODE = errno.EROFS
    for name in MAKERS:
        old = _fill(MAKERS[name](), 0, 10)
        before = everything(root / name)
        fails(lambda: _save(name, old, root / name / "saved"), root / name / "saved")
        assert everything(root / name) == before
        tried += 1
    with PagedTable.open(path) as table:
        assert dict(table.items()) == truth
print(how, tried)
"""


def run(how: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script, for tmpfs in a mount namespace of its own."""
    command = [sys.executable, "-c", code, *arguments]
    if how == "tmpfs":
        users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        command = ["unshare", *users, "--mount", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def may_mount(folder: Path) -> bool:
    script = (
        "import subprocess, sys; sys.exit(subprocess.call(['mount', '-t', 'tmpfs', 'tmpfs', sys.argv[1]]))"
    )
    try:
        return run("tmpfs", script, str(folder)).returncode == 0
    except FileNotFoundError:  # no unshare
        return False


@pytest.mark.parametrize("how", ["limit", "tmpfs"])
def test_a_full_disk_leaves_everything_as_it_was(how: str, tmp_path: Path) -> None:
    if how == "tmpfs" and not may_mount(tmp_path):
        print("nobody may mount here: the limit on the size of files stands for the full disk")
        how = "limit"
    done = run(how, WRITERS, str(TOOLS), how, str(tmp_path))
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert int(done.stdout.split()[-1]) >= (100 if how == "tmpfs" else 70)


PERMISSIONS = """
import contextlib, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from kill_writes import MAKERS, _fill, _same, _save
from evenbins import PagedTable, ShardedFilter
from evenbins import _files

root = Path(sys.argv[2])
made = {name: (_fill(MAKERS[name](), 0, 100), _fill(MAKERS[name](), 10**6, 100)) for name in MAKERS}
for name, (old, _) in made.items():  # modules are imported by that: another user may not read them
    (root / name).mkdir()
    _save(name, old, root / name / "saved")
    assert _same(name, root / name / "saved", old)
table = PagedTable.create(root / "open", 1000)
table[1] = 1
table.close()
if os.geteuid() == 0:
    for each in (root, *root.rglob("*")):
        os.chown(each, 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)

def listed(folder, mode):
    os.chmod(folder, 0o700)
    found = sorted(str(each) for each in folder.rglob("*"))
    os.chmod(folder, mode)
    return found

tried = 0
for name, (old, new) in made.items():
    path = root / name / "saved"
    inner = path if path.is_dir() else path.parent
    for mode in (0o500, 0o300, 0o000):  # not to be written; not to be read, so not to be synced; neither
        before = listed(inner, mode)
        try:
            _save(name, new, path)
        except PermissionError as error:
            assert str(path) in str(error) and ".tmp" not in str(error), error
        else:
            raise AssertionError(f"{name}: written with mode {mode:o}")
        assert listed(inner, mode) == before, name
        os.chmod(inner, 0o700)
        assert _same(name, path, old), name
        tried += 1

    def forbid(*_, inner=inner):
        os.chmod(inner, 0o500)

    if name != "pages":  # permission is taken away when the new file is written and not yet renamed
        real, os.fsync = os.fsync, lambda descriptor: (real(descriptor), forbid())
        try:
            _save(name, new, path)
        except PermissionError as error:
            assert str(path) in str(error), error
        else:
            raise AssertionError(name)
        finally:
            os.fsync = real
            os.chmod(inner, 0o700)
        assert _same(name, path, old), name
        tried += 1
    _save(name, new, path)
    assert _same(name, path, new), name

# A table that is open for writing goes on when its folder and files are no longer to be written.
with PagedTable.open(root / "open", writable=True) as table:
    for each in ("open", "open.journal", "open.summary"):
        os.chmod(root / each, 0o400)
    os.chmod(root, 0o500)
    table[2] = 2
    table.checkpoint()
    table[3] = 3
with PagedTable.open(root / "open", verify=True) as table:
    assert dict(table.items()) == {1: 1, 2: 2, 3: 3}
try:
    PagedTable.open(root / "open", writable=True)
except PermissionError as error:
    assert str(root / "open") in str(error), error
else:
    raise AssertionError("opened for writing")
os.chmod(root, 0o700)
print(tried)
"""


def test_folders_without_permission_leave_everything_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for each in (tmp_path, *tmp_path.parents):  # another user must get through
        if each.stat().st_uid == os.geteuid() and each != Path(each.anchor):
            each.chmod(each.stat().st_mode | 0o011)
    done = run("limit", PERMISSIONS, str(TOOLS), str(folder))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 55


def test_a_seed_that_cannot_be_written_is_not_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from evenbins.cli import seed as command

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "_new_seed", fail)
    result = CliRunner().invoke(command.seed, ["-o", str(tmp_path / "seed")])
    assert isinstance(result.exception, OSError)
    assert os.listdir(tmp_path) == []


# --- cut short while mapped -------------------------------------------------------------------------------

CUT = """
import faulthandler, os, sys
from evenbins import BlockedBloomFilter, FormatError, MultilevelTable, PagedTable
what, path = sys.argv[1], sys.argv[2]
f = BlockedBloomFilter(1_000_000)
f.add_many(range(1000))
f.save(path)
if what == "mapped":
    opened = BlockedBloomFilter.open(path)
    os.truncate(path, 4096)
    print("cut", flush=True)
    opened.contains_many(range(1000))
elif what == "loaded":
    loaded = BlockedBloomFilter.load(path)
    os.truncate(path, 4096)
    assert loaded.contains_many(range(1000)).all()
    try:
        BlockedBloomFilter.open(path)
    except FormatError as error:
        print(error)
elif what == "replaced":
    opened = BlockedBloomFilter.open(path)
    BlockedBloomFilter(10).save(path)  # much shorter
    assert opened.contains_many(range(1000)).all()
    os.unlink(path)
    assert opened.contains_many(range(1000)).all()
    print("kept")
else:
    os.unlink(path)
    table = PagedTable.create(path, 10_000)
    table.insert_many(range(10_000), 1)
    table.checkpoint()
    os.truncate(path, 3 * 4096)
    for call in (lambda: table.get_many(range(10_000)), lambda: [table[key] for key in range(10_000)],
                 lambda: list(table.items()), lambda: table.insert_many(range(10_000), 2)):
        try:
            call()
        except FormatError as error:
            print(error)
"""


@pytest.mark.parametrize(
    ("what", "status", "said"),
    [
        ("mapped", -signal.SIGBUS, "cut"),
        ("loaded", 0, "cut short"),
        ("replaced", 0, "kept"),
        ("pages", 0, "cut short"),
    ],
)
def test_a_file_that_is_cut_short_while_it_is_open(
    what: str, status: int, said: str, tmp_path: Path, run_python: Callable[..., Any]
) -> None:
    """A mapped one: the documented limit. What was loaded or replaced does not mind; pages are refused."""
    done = run_python(CUT, what, str(tmp_path / "file"))
    assert done.returncode == status, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == (4 if what == "pages" else 1)
    assert all(said in line for line in lines)
