"""Progress on standard error, for people: on a terminal, and once a run has taken two seconds.

adding keys ━━━━━━━╸━━━━━━━━━━━  1.4G of 3.9G bytes, 19.8M keys, 4.52M a second, 0:00:08 left
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from evenbins.cli._meter import Meter, short

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Bar"]


class Bar:
    """A progress bar on standard error: on a terminal only, and only if the work takes long."""

    AFTER_SECONDS = 2.0
    _REDRAW_SECONDS = 0.1

    def __init__(
        self, names: Iterable[str], *, beside_output: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        sizes = [os.stat(name).st_size if name != "-" and os.path.isfile(name) else None for name in names]
        self._for_people = sys.stderr is not None and sys.stderr.isatty()
        if beside_output and sys.stdout is not None and sys.stdout.isatty():
            self._for_people = False  # lines that scroll by show progress enough
        self._clock, self._born, self._drawn, self._title = clock, clock(), 0.0, ""
        self.meter = Meter(None if None in sizes else sum(size or 0 for size in sizes), clock)
        self._progress: Progress | None = None

    def begin(self, title: str, *, keys: int | None = None) -> None:
        """Start from zero, with the title of what is done next and the number of keys if it is known."""
        self._title, self._drawn = title, 0.0
        self.meter.begin(keys)

    def advance(self, nbytes: int) -> None:
        """Count the bytes done."""
        self.meter.done_bytes += nbytes
        self._show()

    def advance_keys(self, keys: int) -> None:
        """Count the keys done."""
        self.meter.done_keys += keys
        self._show()

    @property
    def seconds(self) -> float:
        """How long it all has taken so far."""
        return self._clock() - self._born

    def summary(self, keys: int, noun: str = "lines") -> str:
        """Return how long it took and how fast that was, to be put behind a sentence; "" for a short run."""
        seconds = self.seconds
        long = seconds >= self.AFTER_SECONDS
        return f"; {seconds:.1f} s, {short(keys / seconds)} {noun} a second" if long else ""

    @contextlib.contextmanager
    def waiting(self, title: str) -> Iterator[None]:
        """Show that something goes on that reports nothing, and for how long."""
        self.begin(title)
        timer = threading.Timer(self.AFTER_SECONDS, self._show)
        if self._for_people:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            if timer.is_alive():
                timer.join()

    def _show(self) -> None:
        now = self._clock()
        if not self._for_people or now - self._born < self.AFTER_SECONDS or now < self._drawn:
            return
        if self._progress is None:
            self._progress = self._start()
        self._drawn, part = now + self._REDRAW_SECONDS, self.meter.fraction()
        self._progress.update(
            self._progress.task_ids[0], description=self._title, status=self.meter.status(),
            total=None if part is None else 1.0, completed=part or 0.0,
        )  # fmt: skip

    def _start(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        counted = self.meter.done_bytes or self.meter.done_keys
        last: Any = TextColumn("{task.fields[status]}") if counted else TimeElapsedColumn()
        columns = TextColumn("{task.description}"), BarColumn(), last
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        progress.add_task(self._title, total=None, status="")
        progress.start()
        return progress

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
