"""Bytes of inputs: blocks of what is there, a buffer that is filled, and what the first bytes say.

A line from a slow pipe is not kept waiting: a block is what one read returns, at most BLOCK_BYTES.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import IO, Any

import click

from evenbins import _compressed

__all__ = [
    "BLOCK_BYTES", "PlainBytes", "arrow_modules", "ends_as_parquet", "first_bytes", "read_blocks",
    "read_of", "readinto_of",
]  # fmt: skip

BLOCK_BYTES = 1 << 20  # stays in a core's cache while it is read, answered and selected
_PARQUET = b"PAR1"  # its first and its last bytes


def arrow_modules(error: Callable[[str], click.ClickException]) -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.parquet; if they are missing, raise what `error` makes of a text."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise error("Parquet needs pyarrow: pip install 'evenbins[arrow]'") from None


def first_bytes(file: IO[bytes]) -> bytes:
    """Read the bytes that determine a format."""
    first = b""
    for block in read_blocks(file):
        first += block
        if not _compressed.may_become(first):
            break
    return first


def ends_as_parquet(file: IO[bytes]) -> bool:
    """Return whether a file ends as Parquet does; its position stays."""
    at = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - len(_PARQUET)))
    ends = file.read(len(_PARQUET)) == _PARQUET
    file.seek(at)
    return ends and size > 2 * len(_PARQUET)


def read_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Return what is there, at most a block of it: a line from a slow pipe is not kept waiting."""
    read1: Callable[[int], bytes] = file.read1  # type: ignore[attr-defined]
    while block := read1(BLOCK_BYTES):
        yield block


class PlainBytes:
    """What is in a file, as chunks or into a buffer; its first bytes have been read."""

    def __init__(self, first: bytes, file: IO[bytes], advance: Callable[[int], None]) -> None:
        self._first, self._blocks, self._advance = first, read_blocks(file), advance
        self._readinto1: Callable[[memoryview], int] = file.readinto1  # type: ignore[attr-defined]

    def __iter__(self) -> PlainBytes:
        return self

    def __next__(self) -> bytes:
        chunk, self._first = self._first or next(self._blocks), b""
        self._advance(len(chunk))
        return chunk

    def readinto(self, view: memoryview) -> int:
        """Fill a buffer with what is there; return the number of bytes, 0 at the end."""
        if self._first:
            size = min(len(view), len(self._first))
            view[:size], self._first = self._first[:size], self._first[size:]
        else:
            size = self._readinto1(view)
        self._advance(size)
        return size


def readinto_of(chunks: Iterator[bytes]) -> Callable[[memoryview], int]:
    """Return a function that fills a buffer with what is there, and returns the number of bytes."""
    if isinstance(chunks, PlainBytes):
        return chunks.readinto
    read = read_of(chunks)

    def readinto(view: memoryview) -> int:
        found = read(len(view))
        view[: len(found)] = found
        return len(found)

    return readinto


def read_of(chunks: Iterator[bytes]) -> Callable[[int], bytes]:
    """Return a function that reads at most so many bytes of the chunks."""
    rest = memoryview(b"")

    def read(size: int) -> bytes:
        nonlocal rest
        if not rest:
            rest = memoryview(next(chunks, b""))
        given, rest = rest[:size], rest[size:]
        return bytes(given)

    return read
