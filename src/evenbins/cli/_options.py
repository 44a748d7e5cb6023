"""Options that commands share, and how they are checked."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

_T = TypeVar("_T")


def integer(text: object) -> int:
    """Read a whole number as people write it: 10000000, 10_000_000, 1e7, 0xff."""
    with contextlib.suppress(ValueError):
        return int(str(text), 0)
    with contextlib.suppress(ValueError):
        number = float(str(text))
        if number.is_integer():
            return int(number)
    raise click.BadParameter(f"{text!r} is not a whole number such as 1000000 or 1e6")


FILE = click.Path(readable=False)  # for completion; the commands check by themselves, with better words
LINES = click.Path(readable=False, allow_dash=True)
null_option = click.option(
    "-0", "--null", "null", is_flag=True, help="Lines end with a NUL byte; newlines are ordinary bytes."
)

binary_option = click.option(
    "-U",
    "--binary",
    "binary",
    is_flag=True,
    help=r"Bytes as they are: no \r is dropped, nothing unpacked.",
)


def planned(call: Callable[[], _T], *, capacity: str = "--capacity") -> _T:
    """Plan or construct; an error about an argument becomes one about the option."""
    from evenbins.errors import ArgumentError, ArgumentTypeError  # here: the core comes with it

    try:
        return call()
    except (ArgumentError, ArgumentTypeError) as error:
        option = capacity if error.name == "capacity" else "--" + error.name.replace("_", "-")
        raise click.ClickException(error.message_for(option)) from None
    except (TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def check_output(output: str, keys: Sequence[str]) -> None:
    """Refuse a place that cannot be written, or must not be, before the work rather than after it."""
    if output == "-":
        raise click.ClickException("-o needs the name of a file; a filter is not written to standard output")
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
        raise click.ClickException(f"-o {output}: not a regular file; the filter would replace it")
    for name in keys:
        if name != "-" and os.path.samefile(name, output):
            raise click.ClickException(f"-o {output} is one of the files of keys: choose another name")


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
