"""Progress on standard error, for people: on a terminal, and once a run has taken two seconds.

    adding keys ━━━━━━━╸━━━━━━━━━━━  1.4 of 3.9 GB, 19.8M lines, 4.52M a second, 0:00:08 left

Both bytes and keys are counted; the time that is left follows from the bytes read, or from the keys where
their number is known (a Parquet file's bytes are read in one go).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Bar"]


class Bar:
    """A progress bar on standard error: on a terminal only, and only if the work takes long."""

    AFTER_SECONDS = 2.0
    _REDRAW_SECONDS = 0.1

    def __init__(
        self,
        names: Iterable[str],
        *,
        beside_output: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        sizes = [os.stat(name).st_size if name != "-" and os.path.isfile(name) else None for name in names]
        self._bytes = None if None in sizes else sum(size or 0 for size in sizes)
        self._for_people = sys.stderr is not None and sys.stderr.isatty()
        if beside_output and sys.stdout is not None and sys.stdout.isatty():
            self._for_people = False  # lines that scroll by show progress enough
        self._clock, self._born = clock, clock()
        self._progress: Progress | None = None
        self.begin("")

    def begin(self, title: str, *, keys: int | None = None) -> None:
        """Start from zero, with the title of what is done next and the number of keys if it is known."""
        self._title, self._begun, self._drawn = title, self._clock(), 0.0
        self._keys, self._done_bytes, self._done_keys = keys, 0, 0

    def advance(self, nbytes: int) -> None:
        """Count the bytes done."""
        self._done_bytes += nbytes
        self._show()

    def advance_keys(self, keys: int) -> None:
        """Count the keys done."""
        self._done_keys += keys
        self._show()

    @property
    def seconds(self) -> float:
        """How long it all has taken so far."""
        return self._clock() - self._born

    def summary(self, keys: int, noun: str = "lines") -> str:
        """Return how long it took and how fast that was, to be put behind a sentence; "" for a short run."""
        seconds = self.seconds
        if seconds < self.AFTER_SECONDS:
            return ""
        return f"; {seconds:.1f} s, {_short(keys / seconds)} {noun} a second"

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
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        if self._progress is None:
            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}")
            if not (self._done_bytes or self._done_keys):
                columns = (*columns[:2], TimeElapsedColumn())  # type: ignore[assignment]
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.add_task(self._title, total=None, status="")
            self._progress.start()
        self._drawn = now + self._REDRAW_SECONDS
        part = self.fraction()
        self._progress.update(
            self._progress.task_ids[0], description=self._title, status=self.status(),
            total=None if part is None else 1.0, completed=part or 0.0,
        )  # fmt: skip

    def fraction(self) -> float | None:
        """Return how much is done, 0 to 1; None where that is not known."""
        by_keys = self._done_keys / self._keys if self._keys else None
        by_bytes = self._done_bytes / self._bytes if self._bytes else None
        known = [part for part in (by_keys, by_bytes) if part is not None]
        return min(1.0, max(known)) if known else None

    def status(self) -> str:
        """Return what is done, how fast it goes, and how long the rest will take."""
        seconds = self._clock() - self._begun
        texts = []
        if self._done_bytes and self._bytes != 0:
            whole = "" if self._bytes is None else f" of {_short(self._bytes)}"
            texts.append(f"{_short(self._done_bytes)}{whole} bytes")
        if self._done_keys:
            texts.append(f"{_short(self._done_keys)} keys")
        done = self._done_keys or self._done_bytes
        if done and seconds > 0:
            texts.append(f"{_short(done / seconds)} a second")
        part = self.fraction()
        if part:
            left = round(seconds * (1 - part) / part)
            texts.append(f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left")
        return ", ".join(texts)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def _short(number: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.0f}"
