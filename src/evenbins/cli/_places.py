"""The files that a command writes beside its output: checked before the work, so that nothing fails after it.

    -o, --dropped, --report, --state, inputs    all different files
    --report                                    its folder exists and can be written

With --state a run that has saved it must not be repeated with the same -o: all rows would be known. So a
signal that comes between the output's rename and the end is ignored, and a report that fails is a warning.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence

import click

from evenbins import _platform
from evenbins._console import OutputError, show_json
from evenbins._files import replace_file, write_all
from evenbins.cli._output import describe, warn

__all__ = ["HeldSignals", "check_distinct", "check_folder_of", "warn_instead", "write_report"]


def _same(first: str, second: str) -> bool:
    """Return whether two names are one regular file, or would be."""
    if os.path.exists(first) and not os.path.isfile(first):
        return False  # a device or a pipe may be named twice
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    return os.path.exists(first) and os.path.exists(second) and os.path.samefile(first, second)


def check_distinct(outputs: Sequence[tuple[str, str | None]], inputs: Sequence[str]) -> None:
    """Raise an error if an option's file is that of another option, or one of the inputs."""
    named = [(option, path) for option, path in outputs if path is not None and path != "-"]
    for place, (option, path) in enumerate(named):
        for earlier, other in named[:place]:
            if _same(path, other):
                raise click.ClickException(
                    f"{option} {path} is the file of {earlier} too: name a file of its own"
                )
        if any(name != "-" and _same(path, name) for name in inputs):
            raise click.ClickException(f"{option} {path} is one of the inputs: choose another name")


def check_folder_of(option: str, path: str | None) -> None:
    """Raise an error for a file that cannot be written: no such folder, no permission, a directory."""
    if path is None or path == "-":
        return
    if not path or os.path.isdir(path):
        raise click.ClickException(f"{option} {path}: is a directory: name a file")
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise click.ClickException(f"{option} {path}: {folder}: no such folder: check the name")
    is_special = os.path.exists(path) and not os.path.isfile(path)
    place, mode = (path, os.W_OK) if is_special else (folder, os.R_OK | os.W_OK | os.X_OK)
    if not os.access(place, mode):
        raise click.ClickException(f"{option} {path}: {place}: permission denied: check its owner and mode")


def write_report(path: str, found: object) -> None:
    """Write a report: to standard output (-), a device or a pipe, or to a file that is replaced."""
    import json

    if path == "-":
        show_json(found)
        return
    data = json.dumps(found, indent=2).encode() + b"\n"
    if not os.path.exists(path) or os.path.isfile(path):
        replace_file(path, lambda descriptor: write_all(descriptor, data))
        return
    descriptor = os.open(path, os.O_WRONLY | _platform.OPEN)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def warn_instead(what: str) -> Iterator[None]:
    """Turn a failure to print or to write a report into a warning: the work is done, and is not repeated."""
    try:
        yield
    except (OSError, OutputError) as error:
        cause = error.args[0] if isinstance(error, OutputError) else error
        with contextlib.suppress(OSError):
            warn(f"{what} ({describe(cause)})")


class HeldSignals:
    """Signals that end the command, ignored from a moment on until the block is left."""

    def __init__(self) -> None:
        self._before: dict[int, object] = {}

    def hold(self) -> None:
        """Ignore Ctrl-C and the other signals that end a command (SIGTERM, SIGHUP) from now on."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *_platform.ENDING_SIGNALS):
                self._before.setdefault(number, signal.signal(number, signal.SIG_IGN))

    def __enter__(self) -> HeldSignals:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before.clear()
