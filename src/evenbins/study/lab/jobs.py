"""Long work in the background: a thread for each job, few at once, each with progress and an end.

    start ──▶ running ──▶ done (result) | failed (error) | cancelled

A job's function gets `progress(done, total)`. The call notes how far it is, and raises Cancelled if the page
has asked to stop or has gone: no look at the job for `patience` seconds. So cancelling needs no help of the
function, and a job nobody looks at ends by itself. Bulk calls of the core release the GIL, so that pages stay
quick while jobs run; and while a page is being answered (`first`) jobs wait in `progress`, a second at most.

Invariants
- At most `at_once` threads; at most `keep` jobs are remembered, ended ones for `remember` seconds at most.
- An id is 128 random bits: who does not know it cannot read or cancel the job.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from evenbins.study.lab.parameters import RefusedError

__all__ = ["Cancelled", "Job", "Jobs"]

_POLITE = 1.0  # seconds that a job waits for pages between two steps


class Cancelled(BaseException):  # like KeyboardInterrupt: `except Exception` must not stop it
    """The job shall end: raised by `progress`."""


@dataclass
class Job:
    """One piece of work."""

    id: str
    path: str
    patience: float
    state: str = "running"
    progress: tuple[int, int] = (0, 0)
    result: Any = None
    error: str | None = None
    seen: float = field(default_factory=time.monotonic)
    ended: float | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def advance(self, done: int, total: int) -> None:
        """Note the progress; raise Cancelled if nobody wants the job any more."""
        self.progress = (int(done), int(total))
        if self._stop.is_set() or time.monotonic() - self.seen > self.patience:
            raise Cancelled

    def stop(self) -> None:
        """Ask it to end."""
        self._stop.set()

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON's types; a job that was asked to stop is called cancelled at once."""
        state = "cancelled" if self.state == "running" and self._stop.is_set() else self.state
        answer: dict[str, Any] = {
            "id": self.id,
            "path": self.path,
            "state": state,
            "progress": list(self.progress),
        }
        if state == "done":
            answer["result"] = self.result
        if state == "failed":
            answer["error"] = self.error
        return answer


class Jobs:
    """The jobs of one server.

    Parameters
    ----------
    at_once
        Jobs that may run at the same time; one more is refused with status 429.
    keep, remember
        Jobs remembered at most, and seconds after their end.
    patience
        Seconds without a look after which a job is taken for abandoned.

    Examples
    --------
    >>> jobs = Jobs()
    >>> job = jobs.start("sum", lambda progress: sum(range(10)))
    >>> jobs.join(job.id).to_dict()["result"]
    45
    """

    def __init__(
        self, *, at_once: int = 3, keep: int = 32, remember: float = 300.0, patience: float = 30.0
    ) -> None:
        self._at_once, self._keep, self._remember, self._patience = at_once, keep, remember, patience
        self._jobs: dict[str, Job] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._answers = 0  # pages that are being answered

    @contextlib.contextmanager
    def first(self) -> Iterator[None]:
        """Let jobs wait meanwhile."""
        self._answers += 1
        try:
            yield
        finally:
            self._answers -= 1

    def start(self, path: str, function: Callable[..., Any], **arguments: Any) -> Job:
        """Begin a job; RefusedError with status 429 if too many run already."""
        with self._lock:
            self._drop_old_jobs()
            if len(self._threads) >= self._at_once:
                raise RefusedError(
                    f"{len(self._threads)} jobs are running, at most {self._at_once} may: wait until one "
                    "ends or cancel one",
                    status=429,
                )
            job = Job(secrets.token_hex(16), path, self._patience)
            thread = threading.Thread(
                target=self._work, args=(job, function, arguments), name=f"lab {path}", daemon=True
            )
            self._jobs[job.id] = job
            self._threads[job.id] = thread
            thread.start()
        return job

    def find(self, id: str) -> Job:
        """Return a job, noting that someone looks; RefusedError with status 404 if there is none."""
        with self._lock:
            self._drop_old_jobs()
            job = self._jobs.get(id)
        if job is None:
            raise RefusedError("there is no such job: it has ended long ago, start it again", status=404)
        job.seen = time.monotonic()
        return job

    def cancel(self, id: str) -> Job:
        """Ask a job to end; one that has ended stays as it is, since the two may cross on the way."""
        job = self.find(id)
        if job.state == "running":
            job.stop()
        return job

    def join(self, id: str, timeout: float | None = None) -> Job:
        """Wait for a job's end."""
        with self._lock:
            thread = self._threads.get(id)
        if thread is not None:
            thread.join(timeout)
        return self.find(id)

    def close(self) -> None:
        """Ask all jobs to end."""
        with self._lock:
            for job in self._jobs.values():
                job.stop()

    def _work(self, job: Job, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        def advance(done: int, total: int) -> None:
            job.advance(done, total)
            until = time.monotonic() + _POLITE
            while self._answers and time.monotonic() < until:
                time.sleep(0.005)

        try:
            job.result = function(**arguments, progress=advance)
            state = "done"
        except Cancelled:
            state = "cancelled"
        except (RefusedError, ValueError, LookupError, ImportError) as error:  # in words for people
            job.error, state = str(error), "failed"
        except MemoryError:
            job.error, state = "not enough memory for this: use fewer keys", "failed"
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            job.error, state = f"the lab failed ({type(error).__name__}): its terminal says where", "failed"
        with self._lock:
            job.state, job.ended = state, time.monotonic()
            self._threads.pop(job.id, None)

    def _drop_old_jobs(self) -> None:
        """Drop ended jobs that are old or too many; the lock is held."""
        now = time.monotonic()
        ended = sorted((job.ended, id) for id, job in self._jobs.items() if job.ended is not None)
        surplus = len(self._jobs) - self._keep + 1
        for index, (moment, id) in enumerate(ended):
            if index < surplus or now - moment > self._remember:
                del self._jobs[id]
