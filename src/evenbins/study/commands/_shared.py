"""What these commands share: threads, and progress on standard error, on a terminal only."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Steps", "cores", "threads_option"]

threads_option = click.option(
    "--threads", type=click.IntRange(1, 1024), help="Threads; no number depends on it.  [default: all cores]"
)


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Steps:
    """A bar for the step under way and, with a number of experiments, one for all of them."""

    def __init__(self, experiments: int | None = None) -> None:
        self._experiments = experiments
        self._progress: Progress | None = None
        self._step: TaskID | None = None

    def begin(self, title: str) -> Callable[[int, int | None], None]:
        """Show a bar for what begins now, in place of the one before; return the function that moves it."""
        if self._progress is None:
            return lambda done, total: None
        self._remove()
        progress, task = self._progress, self._progress.add_task(title, total=None)
        self._step = task
        return lambda done, total: progress.update(task, completed=done, total=total)

    def end(self) -> None:
        """Remove the bar, and count an experiment."""
        self._remove()
        if self._progress is not None:
            self._progress.advance(self._progress.task_ids[0])

    def _remove(self) -> None:
        if self._progress is not None and self._step is not None:
            self._progress.remove_task(self._step)
            self._step = None

    def above(self, write: Callable[[], None]) -> None:
        """Hide the bars while something is printed."""
        if self._progress is not None:
            self._progress.stop()
        write()
        if self._progress is not None:
            self._progress.start()

    def __enter__(self) -> Steps:
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            if self._experiments is not None:
                self._progress.add_task("experiments", total=self._experiments)
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
