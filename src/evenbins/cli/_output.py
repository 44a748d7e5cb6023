"""Standard output carries the answer alone; standard error what people should know."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from evenbins._console import output_stream

if TYPE_CHECKING:
    from evenbins.cli._inputs import Input


_REMEDIES = {
    errno.ENOENT: "check the name",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "check the name",
    errno.EACCES: "check its owner and mode",
    errno.EPERM: "check its owner and mode",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "free some space or choose another place",
    errno.EDQUOT: "free some space or choose another place",
    errno.EFBIG: "raise the limit (ulimit -f) or choose another place",
}


_leaves_at_once = False


def complain(message: str) -> int:
    """Print an error in one line; return the exit status."""
    click.echo("evenbins: " + " ".join(message.splitlines()), err=True)
    return 2


def describe(error: OSError, place: str | None = None) -> str:
    """Return what failed where, and a remedy if one is known."""
    place = place or (os.fsdecode(error.filename) if error.filename is not None else None)
    what = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    return (f"{place}: " if place else "") + what[:1].lower() + what[1:] + (f": {remedy}" if remedy else "")


def abandon_output() -> None:
    """Let the interpreter's last flush go nowhere; it would fail again."""
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_by_sigpipe() -> NoReturn:
    """End the process as a reader that has gone ends it."""
    if sys.platform == "win32":  # which has no such signal
        raise SystemExit(1)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise SystemExit(128 + signal.SIGPIPE)  # where the signal is blocked


def write(data: bytes | memoryview) -> None:
    """Write bytes to standard output."""
    with output_stream():
        rest = memoryview(data)
        while rest:  # with PYTHONUNBUFFERED a write may be partial
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()


def leave_at_once() -> None:
    """Declare that nothing is left to clean up: `main` ends the process without Python's teardown.

    With NumPy in memory that took 26 of the 171 ms of a query of one line (processor time, a busy machine).
    """
    global _leaves_at_once
    _leaves_at_once = True


def leaves_at_once() -> bool:
    """Return whether `leave_at_once` was called."""
    return _leaves_at_once


def note(text: str) -> None:
    """Print what was done, on standard error."""
    click.echo(text, err=True)


def warn(text: str) -> None:
    """Print a message on standard error that does not stop the command."""
    click.echo(f"evenbins: warning: {text}", err=True)


def warn_of_inputs(sources: Sequence[Input]) -> None:
    """Print a warning for each input with rows that were left out, or that is one line by mistake."""
    for each in sources:
        name = "standard input" if each.name == "-" else each.name
        if each.nulls:
            warn(f"{name}: {each.nulls:_} rows are null, and were left out")
        if each.one_line_of_many:
            warn(rf"{name}: \r and no \n, so it is one line: tr '\r' '\n' makes lines of it")
