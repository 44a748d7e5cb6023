"""Standard output carries the answer alone; standard error what people should know."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from evenbins.cli._inputs import Input


_WAY_OUT = {
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


class OutputError(Exception):
    """Standard output cannot be written; the cause is the first argument."""


def complain(message: str) -> int:
    click.echo("evenbins: " + " ".join(message.splitlines()), err=True)
    return 2


def about(error: OSError, place: str | None = None) -> str:
    """Return what failed where, and a way out if one is known."""
    place = place or (os.fsdecode(error.filename) if error.filename is not None else None)
    what = error.strerror or str(error)
    way_out = _WAY_OUT.get(error.errno or 0)
    return (f"{place}: " if place else "") + what[:1].lower() + what[1:] + (f": {way_out}" if way_out else "")


@contextlib.contextmanager
def output_stream() -> Iterator[None]:
    """Distinguish failures of standard output from those of files."""
    if sys.stdout is None:  # started with it closed
        raise OutputError(OSError(errno.EBADF, "it is closed"))
    try:
        yield
    except OSError as error:
        raise OutputError(error) from None


def abandon_output() -> None:
    """Let the interpreter's last flush go nowhere; it would fail again."""
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_by_sigpipe() -> NoReturn:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise SystemExit(128 + signal.SIGPIPE)  # where the signal is blocked


def write(data: bytes) -> None:
    with output_stream():
        rest = memoryview(data)
        while rest:  # with PYTHONUNBUFFERED a write may be partial
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()


def show(text: str) -> None:
    with output_stream():
        click.echo(text)


def leave_at_once() -> None:
    """Declare that nothing is left to clean up: `main` ends the process without Python's teardown.

    With NumPy in memory that took 26 of the 171 ms of a query of one line (processor time, a busy machine).
    """
    global _leaves_at_once
    _leaves_at_once = True


def leaves_at_once() -> bool:
    """Return whether `warn` was called."""
    return _leaves_at_once


def note(text: str) -> None:
    """Print what was done, on standard error."""
    click.echo(text, err=True)


def warn(text: str) -> None:
    """Print a message on standard error that does not stop the command."""
    click.echo(f"evenbins: warning: {text}", err=True)


def tell(sources: Sequence[Input]) -> None:
    """Print what was odd about inputs."""
    for each in sources:
        name = "standard input" if each.name == "-" else each.name
        if each.nulls:
            warn(f"{name}: {each.nulls:_} rows are null, and were left out")
        if each.one_line_of_many:
            warn(rf"{name}: \r and no \n, so it is one line: tr '\r' '\n' makes lines of it")


def show_json(value: object) -> None:
    show(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: object) -> object:
    """Replace infinities and nan, which JSON lacks, by null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rendered(sheet: RenderableType) -> str:
    """Lay out for the terminal; for a file or a pipe as wide as it needs to be."""
    import shutil

    from rich.console import Console

    for_people = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if for_people else 1000
    page = io.StringIO()  # not Console.capture(), which writes to standard output all the same
    Console(file=page, highlight=False, markup=False, width=width, force_terminal=for_people).print(sheet)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())
