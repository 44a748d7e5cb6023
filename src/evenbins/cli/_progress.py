"""Progress on standard error, for people: on a terminal only."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from evenbins.cli._inputs import BLOCK_BYTES

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """A progress bar on standard error, for people: on a terminal only, and only if there is much to read."""

    _WORTH_IT = 2 * BLOCK_BYTES

    def __init__(self, names: Iterable[str], *, beside_output: bool = False) -> None:
        sizes = [os.stat(name).st_size if name != "-" and os.path.isfile(name) else None for name in names]
        self._total = None if None in sizes else sum(size or 0 for size in sizes)
        self._for_people = sys.stderr is not None and sys.stderr.isatty()
        if beside_output and sys.stdout is not None and sys.stdout.isatty():
            self._for_people = False  # lines that scroll by show progress enough
        self._done = 0
        self._title = ""
        self._progress: Progress | None = None

    def begin(self, title: str) -> None:
        """Start from zero, with the title of what is done next."""
        self._title, self._done = title, 0
        if self._progress is not None:
            self._progress.reset(self._progress.task_ids[0], description=title, total=self._total)

    def advance(self, nbytes: int) -> None:
        """Count the bytes done."""
        self._done += nbytes
        if self._progress is None and self._for_people and self._done > self._WORTH_IT:
            self._show()
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=self._done)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._progress.add_task(self._title, total=self._total)
        self._progress.start()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
