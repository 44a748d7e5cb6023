"""What commands share, those of `cli` and those of `study`: options, checks of files, standard output.

Standard output carries the answer alone. A command raises; `evenbins.cli` alone prints errors.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evenbins._numbers import parse_count, parse_number, parse_rate, parse_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    _ParamType = click.ParamType[float]
else:
    _ParamType = click.ParamType

__all__ = [
    "COUNT", "FILE", "NUMBER", "RATE", "SIZE", "OutputError", "check_output", "check_readable", "integer",
    "output_stream", "render", "show", "show_json", "with_option_errors",
]  # fmt: skip

_T = TypeVar("_T")

FILE = click.Path(readable=False)  # for completion; commands check by themselves, with better messages


class _Written(_ParamType):
    """A number as people write it; see `_numbers`."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; a default is one already."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


COUNT = _Written("count", parse_count)
RATE = _Written("rate", parse_rate)
NUMBER = _Written("number", parse_number)
SIZE = _Written("size", parse_size)


def integer(text: object) -> int:
    """Read a whole number, such as a seed: as a count is written, or 0xff."""
    with contextlib.suppress(ValueError):
        return int(str(text), 0)
    try:
        return parse_count(str(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def with_option_errors(call: Callable[[], _T], **options: str) -> _T:
    """Plan or construct; an error about an argument becomes one about the option.

    `options` are those that are not called as the argument is: capacity="--keys".
    """
    from evenbins.errors import ArgumentError, ArgumentTypeError  # here: the core comes with it

    try:
        return call()
    except (ArgumentError, ArgumentTypeError) as error:
        option = options.get(error.name, "--" + error.name.replace("_", "-"))
        raise click.ClickException(error.message_for(option)) from None
    except (TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def check_readable(name: str) -> int:
    """Return a file's mode; raise OSError for what cannot be read as a file."""
    mode = os.stat(name).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory", name)
    if not os.access(name, os.R_OK):
        raise PermissionError(errno.EACCES, "permission denied", name)
    return mode


def check_output(output: str, keys: Sequence[str] = (), *, option: str = "-o") -> None:
    """Raise an error for a file that cannot, or must not, be written: before the work, not after it."""
    if output == "-":
        raise click.ClickException(
            f"{option} needs the name of a file; a filter is not written to standard output"
        )
    folder = os.path.dirname(os.path.realpath(output))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such folder", folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "permission denied", folder)
    if not os.path.exists(output):
        return
    if os.path.isdir(output):
        raise IsADirectoryError(errno.EISDIR, "is a directory", output)
    if not os.path.isfile(output):
        raise click.ClickException(f"{option} {output}: not a regular file; the filter would replace it")
    for name in keys:
        if name != "-" and os.path.samefile(name, output):
            raise click.ClickException(f"{option} {output} is one of the files of keys: choose another name")


class OutputError(Exception):
    """Standard output cannot be written; the cause is the first argument."""


@contextlib.contextmanager
def output_stream() -> Iterator[None]:
    """Distinguish failures of standard output from those of files."""
    if sys.stdout is None:  # started with it closed
        raise OutputError(OSError(errno.EBADF, "it is closed"))
    try:
        yield
    except OSError as error:
        raise OutputError(error) from None


def show(text: str) -> None:
    """Print an answer."""
    with output_stream():
        click.echo(text)


def show_json(value: object) -> None:
    """Print an answer as JSON."""
    show(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: object) -> object:
    """Replace infinities and nan, which JSON lacks, by null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def render(sheet: RenderableType) -> str:
    """Lay out for the terminal; for a file or a pipe as wide as it needs to be."""
    import shutil

    from rich.console import Console

    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else 1000
    page = io.StringIO()  # not Console.capture(), which writes to standard output all the same
    Console(file=page, highlight=False, markup=False, width=width, force_terminal=on_terminal).print(sheet)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())
