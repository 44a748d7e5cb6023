"""Files of traces: opened by their names to read or to write, compressed or not."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from importlib import import_module
from typing import IO, Any

from evenbins._compressed import CompressedError, check_package, no_zstd_error, unpack

__all__ = ["CompressedError", "open_named"]

_SUFFIXES = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_BUFFER_BYTES = 1 << 17


def open_named(name: str, mode: str) -> IO[bytes]:
    """Open a file to read or write, compressed or not, by its suffix: .gz, .zst, .zstd."""
    format = _SUFFIXES.get(os.path.splitext(name)[1].lower())
    if format is None:
        return open(name, mode)
    if mode == "rb":
        check_package(format, name)  # a missing package is reported before a missing file
        raw = open(name, "rb")  # noqa: SIM115 (the reader closes it)
        return io.BufferedReader(_Reader(raw, unpack(raw.read, format, name)), _BUFFER_BYTES)
    if format == "gzip":
        import gzip

        return gzip.open(name, mode)  # type: ignore[return-value]
    return _zstd_writer(name, mode)


class _Reader(io.RawIOBase):
    """Blocks as a file."""

    def __init__(self, raw: IO[bytes], blocks: Iterator[bytes]) -> None:
        self._raw, self._blocks, self._rest = raw, blocks, memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Return what is there of the block under way."""
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def close(self) -> None:
        """Close the file below too."""
        self._raw.close()
        super().close()


def _zstd_writer(name: str, mode: str) -> IO[bytes]:
    for module in ("compression.zstd", "zstandard"):
        try:
            opened: IO[bytes] = import_module(module).open(name, mode)
        except ImportError:
            continue
        return opened
    try:
        arrow: Any = import_module("pyarrow")
    except ImportError:
        raise no_zstd_error(name) from None
    raw = open(name, mode)  # noqa: SIM115 (the stream closes it)
    found: IO[bytes] = arrow.CompressedOutputStream(arrow.PythonFile(raw, mode[0]), "zstd")
    return found
