"""Several processes that serve one port, share their loads, and change together.

    parent ── fork ──▶ worker 0 ── SO_REUSEPORT ── its part of the connections
       │               worker 1 ── …
       │   memory of all: requests in flight by worker and replica        (WorkerLoads)
       │   a journal of changes by requests (http_admin), in their order  (Journal)
       │   the metrics of each worker, at most a second old               (WorkerMetrics)
       └── SIGTERM, SIGINT, SIGHUP, SIGUSR1 go on to all workers; a worker that dies is replaced

The bound holds over all workers: a place is taken under a lock between processes, which the system releases
if its holder dies. A worker's counts end with it: its row is cleared before another one takes it. A worker
whose parent was killed ends within a second, as by SIGTERM: the port is free for another router. A change by
a request is written to the journal, and every worker makes the changes of the journal in their order, the one
that was asked included, so all end in the same state. A reload empties the journal except for drains.

/-/metrics is the sum over all workers. Not shared: health (each worker finds out by itself), and /-/status,
which is that of the worker that answers.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import json
import mmap
import operator
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from evenbins._bulk import Key
from evenbins.cluster.http_metrics import PREFIX
from evenbins.cluster.shared_loads import integer_bounds
from evenbins.hashing import digest
from evenbins.rings import HashRing, NoNodesError, RingFullError

__all__ = ["SIGNALS", "Journal", "WorkerLoads", "WorkerMetrics", "run_workers"]

_SLOTS = 4096  # replicas, at most
_MOST_RINGS = 64
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_TEXT_BYTES = 2**22
_UP, _OPEN = PREFIX + "up{", PREFIX + "breaker_open{"
_PAUSE = 0.5  # seconds before a worker that died is replaced


class _Bounds(NamedTuple):
    """The bounds of a ring's nodes, see `integer_bounds`; a pool has a ring of its own."""

    ring: HashRing
    version: int
    names: tuple[str, ...]
    denominator: int
    numerators: dict[str, int]


class WorkerLoads:
    """Requests in flight of several processes, in memory that they share; a process has one row.

    Make one before forking; each child calls `use_row`.

    >>> loads = WorkerLoads(2)
    >>> import asyncio
    >>> ring = HashRing(["a", "b"], limit=1)
    >>> first, release = asyncio.run(loads.take(ring, "key"))
    >>> second, _ = asyncio.run(loads.take(ring, "key"))
    >>> first != second, loads.counts(["a", "b"])
    (True, [1, 1])
    >>> release(); sum(loads.counts(["a", "b"]))
    1
    """

    def __init__(self, workers: int) -> None:
        self._cells = memoryview(mmap.mmap(-1, 8 * _SLOTS * (workers + 1))).cast("q")
        # The first row has digests of names (0: free), each other one a worker's counts; slot 0 is not used.
        self._rows = [_SLOTS * number for number in range(1, workers + 1)]
        self._row = self._rows[0]
        self._lock = _Lock()
        self._slots: dict[str, int] = {}
        self._known: dict[int, _Bounds] = {}  # by the id of the ring, which is kept too

    def use_row(self, number: int) -> None:
        """Count in this row, from zero."""
        self._row = self._rows[number]
        for cell in range(self._row, self._row + _SLOTS):
            self._cells[cell] = 0

    async def take(
        self, ring: HashRing, key: Key, *, avoid: Iterable[str] = ()
    ) -> tuple[str, Callable[[], None]]:
        """Take a place until the function that comes with its node is called."""
        candidates = ring.candidates(key)
        open_ones = [name for name in candidates if name not in avoid] if avoid else candidates
        if not open_ones:
            raise NoNodesError("no upstream is left to ask")
        bounds = self._bounds(ring, candidates)
        denominator, numerators = bounds.denominator, bounds.numerators
        with self._lock:
            total = sum(self._count(self._slot(name)) for name in bounds.names) + 1 if denominator else 1
            for name in open_ones:
                slot = self._slot(name)
                if self._count(slot) * (denominator or 1) < total * numerators[name]:
                    self._add(slot, 1)
                    return name, functools.partial(self._add, slot, -1)
        raise RingFullError("every upstream is at its limit of requests over all workers")

    async def close(self) -> None:
        """Do nothing: the memory ends with its processes."""

    def counts(self, names: Iterable[str]) -> list[int]:
        """Return the requests in flight at each of these, over all workers."""
        with self._lock:
            return [self._count(self._slot(name)) for name in names]

    def _count(self, slot: int) -> int:
        cells = self._cells
        return sum([cells[row + slot] for row in self._rows])

    def _add(self, slot: int, number: int) -> None:
        self._cells[self._row + slot] += number  # only this process writes its row

    def _bounds(self, ring: HashRing, serving: tuple[str, ...]) -> _Bounds:
        known, version = self._known.get(id(ring)), ring.version  # which changes with the nodes that serve
        if known is None or known.version != version:
            if len(self._known) >= _MOST_RINGS:  # a reload makes others
                self._known.clear()
            known = _Bounds(ring, version, ring.names, *integer_bounds(ring, serving))
            self._known[id(ring)] = known
        return known

    def _slot(self, name: str) -> int:
        """Return the slot of a name, the same in all processes; under the lock."""
        slot = self._slots.get(name)
        if slot is None:
            mark = digest(name) >> 1 or 1
            for number in range(_SLOTS - 1):
                slot = 1 + (mark + number) % (_SLOTS - 1)
                if self._cells[slot] in (0, mark):
                    self._cells[slot] = mark
                    self._slots[name] = slot
                    return slot
            raise NoNodesError(f"workers share the loads of at most {_SLOTS} upstreams: restart the router")
        return slot


class WorkerMetrics:
    """The metrics of several processes, as texts in memory that they share.

    >>> metrics = WorkerMetrics(2)
    >>> metrics.publish(0, 'a 1\\n'); metrics.publish(1, 'a 2\\nb{c="d"} 1.5\\n')
    >>> metrics.merged()
    'a 3\\nb{c="d"} 1.5\\n'
    """

    def __init__(self, workers: int) -> None:
        self._memory = mmap.mmap(-1, workers * _TEXT_BYTES)  # pages that nobody writes to take no memory
        self._workers, self._lock = workers, _Lock()

    def publish(self, number: int, text: str) -> None:
        """Replace the text of a worker; one that is too long is left as it was."""
        data = text.encode()
        start = number * _TEXT_BYTES
        if len(data) <= _TEXT_BYTES - 8:
            with self._lock:
                self._memory[start : start + 8 + len(data)] = len(data).to_bytes(8, "little") + data

    def merged(self) -> str:
        """Return one text with the sums of all: a replica is up if all say so, a breaker open if one does."""
        texts = []
        with self._lock:
            for start in range(0, self._workers * _TEXT_BYTES, _TEXT_BYTES):
                size = int.from_bytes(self._memory[start : start + 8], "little")
                texts.append(self._memory[start + 8 : start + 8 + size].decode())
        families: dict[str, dict[str, float]] = {}  # by their comments, in order
        comment = ""
        for line in itertools.chain.from_iterable(text.splitlines() for text in texts):
            if line.startswith("#"):
                comment = line
                families.setdefault(comment, {})
                continue
            name, _, value = line.rpartition(" ")
            values, number = families.setdefault(comment, {}), float(value)
            add = min if name.startswith(_UP) else max if name.startswith(_OPEN) else operator.add
            values[name] = add(values[name], number) if name in values else number
        return "".join(
            (comment + "\n" if comment else "")
            + "".join(f"{name} {value:.15g}\n" for name, value in values.items())
            for comment, values in families.items()
        )


class _Lock:
    """A lock between processes, which the system releases when its holder ends."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as this lives

    def __enter__(self) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def __exit__(self, *error: object) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN)


class Journal:
    """Changes that all workers make; a file without a name."""

    def __init__(self) -> None:
        handle, path = tempfile.mkstemp(prefix="evenbins-")
        os.close(handle)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        os.unlink(path)
        self._times_emptied = memoryview(mmap.mmap(-1, 8)).cast("q")  # by the parent
        self._lock = _Lock()
        self._read, self._seen = 0, 0

    def write(self, change: str, parameters: Mapping[str, str]) -> None:
        """Append a change."""
        with self._lock:
            os.write(self._file, _line(change, parameters))

    def new(self) -> list[tuple[str, dict[str, str]]]:
        """Return the changes since the last call, or since the journal was emptied."""
        with self._lock:
            if self._seen != self._times_emptied[0]:
                self._read, self._seen = 0, self._times_emptied[0]
            size = os.fstat(self._file).st_size
            data = os.pread(self._file, size - self._read, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return _changes(whole)

    def empty(self) -> None:
        """Remove all changes but drains, which a reload leaves as they are."""
        with self._lock:  # what is written next may be as long as what was read before
            drained: dict[str, bytes] = {}
            for change, parameters in _changes(os.pread(self._file, os.fstat(self._file).st_size, 0)):
                if change == "drain":
                    drained[parameters["upstream"]] = _line(change, parameters)
                elif change != "weight":
                    drained.pop(parameters["upstream"], None)
            os.ftruncate(self._file, 0)
            os.write(self._file, b"".join(drained.values()))
            self._times_emptied[0] += 1


def _line(change: str, parameters: Mapping[str, str]) -> bytes:
    return json.dumps([change, dict(parameters)]).encode() + b"\n"


def _changes(data: bytes) -> list[tuple[str, dict[str, str]]]:
    return [tuple(json.loads(line)) for line in data.splitlines()]


def run_workers(
    count: int, work: Callable[[int], None], journal: Journal, say: Callable[[str], object]
) -> None:
    """Run `work(number)` in so many processes until SIGTERM or SIGINT; replace those that die.

    Parameters
    ----------
    count
        Processes.
    work
        What each does; it begins with SIGNALS blocked, and ends by SIGTERM or SIGINT.
    journal
        Is emptied by SIGHUP, before the workers get that signal.
    say
        Writes a line.
    """
    children: dict[int, int] = {}  # process: number
    stopping = False

    def forward(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = stopping or number in (signal.SIGTERM, signal.SIGINT)
        if number == signal.SIGHUP:
            journal.empty()
        for process in list(children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def start(number: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # `work` unblocks them when it has handlers
        process = os.fork()
        if process == 0:
            code = 1
            try:
                work(number)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children[process] = number
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    before = {each: signal.signal(each, forward) for each in SIGNALS}
    try:
        for number in range(count):
            start(number)
        while children:
            process, status = os.wait()
            number = children.pop(process, -1)
            if number >= 0 and not stopping:
                say(f"evenbins: worker {number} ended ({_ending(status)}): another one takes its place")
                time.sleep(_PAUSE)
                if not stopping:
                    start(number)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _ending(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"
