"""Lines in."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import click

BLOCK_BYTES = 1 << 22


class Input:
    """Lines of a file or of standard input ("-"), which can be counted before they are read.

    What cannot be rewound (a pipe) is copied to a temporary file while it is counted.
    """

    def __init__(self, name: str, separator: bytes) -> None:
        self.name = name
        self._separator = separator
        self._copy: IO[bytes] | None = None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        if self._copy is not None:
            self._copy.seek(0)
            with self._copy:
                yield self._copy
        elif self.name != "-":
            with open(self.name, "rb") as file:
                yield file
        elif sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed", "standard input")
        else:
            yield sys.stdin.buffer

    def count(self, advance: Callable[[int], None]) -> int:
        """Count the lines; `blocks` gives them still."""
        lines, ends = 0, self._separator
        with self._opened() as file:
            start = file.tell() if file.seekable() else None
            copy = tempfile.TemporaryFile() if start is None else None  # noqa: SIM115 (blocks closes it)
            for block in _read(file):
                lines += block.count(self._separator)
                ends = block[-1:]
                if copy is not None:
                    _write_copy(copy, block)
                advance(len(block))
            if start is not None:
                file.seek(start)
        self._copy = copy
        return lines + (ends != self._separator)

    def blocks(self) -> Iterator[bytes]:
        """Give blocks of whole lines; to a last line that has no newline one is added."""
        pending: list[bytes] = []
        with self._opened() as file:
            for block in _read(file):
                end = block.rfind(self._separator) + 1
                if not end:
                    pending.append(block)
                    continue
                yield b"".join([*pending, block[:end]])
                pending = [block[end:]] if end < len(block) else []
        if pending:
            yield b"".join([*pending, self._separator])


def _read(file: IO[bytes]) -> Iterator[bytes]:
    """Give what is there, at most a block of it: a line from a slow pipe is not kept waiting."""
    read1: Callable[[int], bytes] = file.read1  # type: ignore[attr-defined]
    while block := read1(BLOCK_BYTES):
        yield block


def _write_copy(copy: IO[bytes], block: bytes) -> None:
    try:
        copy.write(block)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} (the copy of a pipe; TMPDIR says where)",
                      tempfile.gettempdir()) from None  # fmt: skip


def split_lines(block: bytes, separator: bytes) -> list[bytes]:
    """Split a block of whole lines."""
    lines = block.split(separator)
    lines.pop()  # behind the last newline is nothing
    return lines


def open_inputs(names: Sequence[str], *, null: bool) -> list[Input]:
    """Check that all inputs can be read, before anything is done."""
    if names.count("-") > 1:
        raise click.ClickException("standard input (-) can be read only once")
    for name in names:
        if name != "-":
            check_readable(name)
    return [Input(name, b"\0" if null else b"\n") for name in names]


def check_readable(name: str) -> int:
    mode = os.stat(name).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory", name)
    if not os.access(name, os.R_OK):
        raise PermissionError(errno.EACCES, "permission denied", name)
    return mode
