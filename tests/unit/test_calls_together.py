"""Threads, forks and signals as dimensions of every public call of every structure (tests/structures.py).

    pairs     every pair of public calls on one object, from two threads that begin together
    fork      every public call after `fork`, in the child and in the parent
    signals   every public call, again and again until a signal's handler raises in the middle of it

After each: the invariants hold, and every key that was in before is found. A short run has half of the pairs;
EVENBINS_ROUNDS=20 repeats each so often (`make test-long`); tools/sanitize.py runs the pairs under
ThreadSanitizer.
"""

from __future__ import annotations

import inspect
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sizes import ROUNDS
from structures import FIXED, STABLE, STRUCTURES, Call, Scene, Structure, calls

from evenbins import PagedTable
from evenbins.errors import MissingName


@pytest.fixture(params=[*STRUCTURES, *FIXED], ids=lambda each: each.name)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """Each structure, filled."""
    structure: Structure = request.param
    made = Scene(structure, tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _eager_switching() -> Iterator[None]:
    """Let Python switch between threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


# Names that are no call on a structure that others use: they make one, or end it.
ELSEWHERE = {
    "close": "PagedTable: ends its use; tests/unit/test_paged.py",
    "create": "PagedTable: makes one",
    "forget": "HashRing: part of a protocol with servers; tests/unit/test_forwarding.py",
    "place": "HashRing: part of a protocol with servers; tests/unit/test_forwarding.py",
    "bucket_many": "CounterSummary: arithmetic alone",
    "inner_product": "CountMinSketch: refused by conservative ones",
    "loads": "CounterSummary: counts the keys it is given",
    "move": "summaries: needs a key at a known level; tests/unit/test_summaries.py",
    "count": "ShardedFilter: of fingerprint shards alone; tests/unit/test_fingerprint_shards.py",
    "count_many": "ShardedFilter: likewise",
    "discard": "ShardedFilter: likewise",
    "remove": "summaries: only those with removal; tests/unit/test_summaries.py",
    "remove_many": "summaries: only those with removal; tests/unit/test_summaries.py",
    "copy": "PagedTable: refused",
    "from_bytes": "PagedTable: refused",
    "load": "PagedTable: refused",
    "open": "PagedTable: makes one",
    "save": "PagedTable: refused",
    "to_bytes": "PagedTable: refused",
    "same_bytes": "PagedTable: refused",
    "from_plan": "makes one",
    "attach_summary": "MultilevelTable: with a summary, it is called",
    "rebuild": "MultilevelTable: with a summary, it is called",
    "summary": "MultilevelTable: with a summary, it is called",
    "stages": "GrowingFilter: a number of stats()",
    "max_keys": "GrowingFilter: arithmetic alone",
}


def test_every_public_name_is_among_the_calls(scene: Scene) -> None:
    """A new method of a structure is run beside all others, or says here why not."""
    words = {word for call in calls(scene.made) for word in call.name.split()}
    named = {"keys": "iteration", "values": "iteration", "items": "iteration"}
    cls = type(scene.made)
    missing = {name for name in dir(cls) if isinstance(inspect.getattr_static(cls, name), MissingName)}
    public = {name for name in dir(cls) if not name.startswith("_")} - missing
    assert {name for name in public if named.get(name, name) not in words} <= {*ELSEWHERE}


def _attempt(call: Call, scene: Scene, errors: list[str], wait: Callable[[], object]) -> None:
    wait()
    try:
        for _ in range(2):
            call.run(scene)
    except Exception as error:
        errors.append(f"{call.name}: {type(error).__name__}: {error}")


def test_every_pair_of_calls_from_two_threads(scene: Scene) -> None:
    """No error, no hang, no broken invariant, no key that is missing."""
    barrier = threading.Barrier(2, timeout=240)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            for (i, a), (j, b) in itertools.combinations_with_replacement(enumerate(calls(scene.made)), 2):
                if ROUNDS == 1 and (j - i) % 4:  # every fourth pair, and each call beside itself
                    continue
                errors: list[str] = []
                cleared = a.clears or b.clears
                works = [pool.submit(_attempt, call, scene, errors, barrier.wait) for call in (a, b)]
                for work in works:
                    work.result(timeout=240)
                # A table that somebody clears does not have the keys whose values are asked for.
                errors = [error for error in errors if not (cleared and "KeyError" in error)]
                assert not errors, f"{a.name} beside {b.name}: {errors}"
                scene.check(stable=not cleared)


def _run_all(scene: Scene) -> None:
    for call in calls(scene.made):
        if not call.clears:
            call.run(scene)
    scene.check()


def _exit_code(work: Callable[[], object]) -> int:
    """Run the work in a child made by `fork`; return how it ended."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(f"in the child: {type(error).__name__}: {error}", file=sys.__stderr__)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_every_call_works_after_fork_in_child_and_parent(scene: Scene) -> None:
    """The child has a copy of its own; the parent does not see what it does. A file has one owner."""

    def refused() -> None:
        for change in (lambda: scene.made.insert_many(STABLE, 1), lambda: scene.made.pop(7, None)):
            with pytest.raises(RuntimeError, match=str(os.getppid())):
                change()
        scene.made.close()

    _run_all(scene)
    paged = isinstance(scene.made, PagedTable)
    before = scene.structure.state(scene.made)
    assert _exit_code(refused if paged else lambda: _run_all(scene)) == 0
    assert scene.structure.state(scene.made) == before
    _run_all(scene)


class Interrupted(Exception):
    """What the handler of the signal raises."""


def _until_interrupted(run: Callable[[], Any], seconds: float) -> None:
    """Repeat a call until a signal's handler raises in it, `seconds` from now.

    Or a little longer: Python drops what is raised in a destructor or in a callback of the collector.
    """
    armed = False
    end = time.monotonic() + seconds + 0.01

    def handler(*_: object) -> None:
        if armed:
            raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while time.monotonic() < end:
            run()
    except Interrupted:
        pass
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_every_call_may_be_interrupted_at_any_point(scene: Scene) -> None:
    """A handler that raises: keys that were in are found, invariants hold, every call still works."""
    points = random.Random(17)
    for call in calls(scene.made):
        for _ in range(3 * ROUNDS):
            _until_interrupted(lambda call=call: call.run(scene), points.uniform(2e-5, 2e-3))  # type: ignore[misc]
            scene.check(stable=not call.clears)
    _run_all(scene)
