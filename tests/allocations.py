"""Memory allocations that fail: each operation of a structure under std::bad_alloc at its n-th allocation.

    case      make a state, operate on it, check its invariants; rows of a test file's `CASES`
    attempt   a fresh state; the n-th allocation of the core fails (the second time: and all after it); the
              operation must raise MemoryError, or do without; the invariants hold; the same operation again,
              with memory, succeeds

n = 1, 2, ... until the operation no longer reaches the n-th allocation. The failures are injected by
allocations.cpp, which is loaded with LD_PRELOAD into a server process; each case runs in a fork of the
server, so a crash is one test's failure. Run as a program this file is the server: it reads names of cases
and writes reports, as JSON lines. With EVENBINS_EVERY_ALLOCATION=1 in the environment no n is left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Case", "Injector", "built_library", "injected"]

TESTS = Path(__file__).parent
# The first allocations fail one by one, later ones in steps that grow with n; one by one in the long form.
EVERY = 10**9 if os.environ.get("EVENBINS_EVERY_ALLOCATION") else 6
STEP = 1  # steps of (n - EVERY) / STEP
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where a sync takes no time


@dataclass(frozen=True)
class Case:
    """One operation of a structure.

    Attributes
    ----------
    make : returns a fresh state; its argument is an empty folder
    operate : the operation; allocations fail only while it runs. After a failure it is called again
    check : asserts the invariants of a state, after a failed operation and after a successful one
    """

    make: Callable[[Path], Any]
    operate: Callable[[Any], object]
    check: Callable[[Any], object]


def built_library(folder: Path) -> Path:
    """Compile allocations.cpp into a folder and return the library."""
    library = folder / "allocations.so"
    command = [
        "c++",
        "-std=c++17",
        "-O1",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(TESTS / "allocations.cpp"),
        "-ldl",
    ]
    subprocess.run(command, check=True, timeout=240)
    return library


@contextlib.contextmanager
def injected(n: int, *, always: bool) -> Iterator[Callable[[], int]]:
    """Make the n-th allocation of the core fail in this block, and with `always` all after it.

    Yields a function that returns the number of allocations that have failed.
    """
    library = ctypes.CDLL(None)
    library.allocations_failed.restype = ctypes.c_uint64
    fail_at, disarm = library.allocations_fail_at, library.allocations_disarm
    number, from_then_on = ctypes.c_uint64(n), ctypes.c_int(always)
    fail_at(number, from_then_on)
    try:
        yield library.allocations_failed
    finally:
        disarm()


def run_case(case: Case) -> dict[str, int]:
    """Fail each allocation of a case; raise AssertionError if one is not survived."""
    gc.disable()
    failures = unnoticed = n = 0
    reached = True
    while reached:
        n += max(1, (n - EVERY) // STEP)
        reached = False
        for always in False, True:
            with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
                state = case.make(Path(folder))
                error: MemoryError | None = None
                with injected(n, always=always) as failed:
                    try:
                        case.operate(state)
                    except MemoryError as memory:
                        error = memory
                count = failed()
                where = f"allocation {n} failed" + (" and all after it" if always else "")
                try:
                    assert error is None or count, f"MemoryError without a failure: {error!r}"
                    case.check(state)
                    if error is not None:
                        case.operate(state)
                        case.check(state)
                except BaseException as problem:
                    problem.add_note(f"{where} of the operation, which raised {error!r}")
                    raise
                reached |= count > 0
                failures += count > 0
                unnoticed += count > 0 and error is None
                del state
    assert failures, "the operation allocates nothing: this case proves nothing"
    return {"failures": failures, "survived": unnoticed, "last": n}


class Injector:
    """The server process; used as a context manager."""

    def __init__(self, folder: Path) -> None:
        paths = [str(TESTS), str(TESTS / "unit"), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "LD_PRELOAD": str(built_library(folder)),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._server = subprocess.Popen(
            [sys.executable, str(TESTS / "allocations.py")],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, module: str, name: str) -> dict[str, int]:
        """Run one case of a module's `CASES`; return its report, or raise AssertionError."""
        assert self._server.stdin
        assert self._server.stdout
        print(json.dumps([module, name]), file=self._server.stdin, flush=True)
        line = self._server.stdout.readline()
        assert line, f"the server ended with {self._server.poll()}"
        report = json.loads(line)
        assert "problem" not in report, report["problem"]
        found: dict[str, int] = report
        return found

    def __enter__(self) -> Injector:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait(60)


def _in_fork(case: Case) -> dict[str, Any]:
    """Run a case in a child process of this one; a crash is a report too."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        case.make(Path(folder))  # fills caches, of plans for instance, for all cases
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            report: dict[str, Any] = dict(run_case(case))
        except BaseException:
            report = {"problem": traceback.format_exc()}
        with os.fdopen(writer, "w") as out:
            json.dump(report, out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as out:
        text = out.read()
    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    if ended or not text:
        return {
            "problem": f"the process ended with {ended}: an allocation that fails must not end it\n{text}"
        }
    found: dict[str, Any] = json.loads(text)
    return found


def _grow_instance_table() -> None:
    """Make nanobind's table of instances large, in advance.

    It grows inside a callback of C, through which no exception can pass: without memory nanobind ends the
    process. That cannot be changed here, and is not what is tested.
    """
    from evenbins import BloomFilter

    original = BloomFilter(1)
    copies = [original.copy() for _ in range(500)]
    del copies


def main() -> None:
    """Answer requests until the input ends."""
    _grow_instance_table()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a case prints goes to the errors
    for line in sys.stdin:
        module, name = json.loads(line)
        try:
            report = _in_fork(importlib.import_module(module).CASES[name])
        except Exception:
            report = {"problem": traceback.format_exc()}
        print(json.dumps(report), file=out, flush=True)


if __name__ == "__main__":
    main()
