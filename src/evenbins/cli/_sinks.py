"""Rows out: a file that is replaced in one step, a device, or standard output; compressed by its name.

    open_sink(path, format, body)    rows go to a temporary file beside the target; body returns ──▶ fsync,
                                     rename, fsync of the folder (_files.py); body raises ──▶ nothing is left

A name that ends in .gz or .zst is compressed, of Parquet none is: it is compressed in itself. What is not a
regular file (/dev/null, a FIFO) is written as it is.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol, TypeVar

import click

from evenbins import _platform
from evenbins._compressed import no_zstd_error
from evenbins._console import output_stream
from evenbins._files import replace_file, write_all
from evenbins.cli import _names
from evenbins.cli._output import describe, write

__all__ = ["Sink", "check_sink", "named_errors", "open_sink"]

_T = TypeVar("_T")
_GZIP_LEVEL = 6  # that of gzip
_ZSTD_LEVEL = 3  # that of zstd


class Sink(Protocol):
    """What rows are written to."""

    def begin(self, head: Any) -> None:
        """Write what comes before the first row."""

    def write(self, rows: Any) -> None:
        """Append rows."""

    def finish(self) -> None:
        """Write what comes behind the last row."""

    def abandon(self) -> None:
        """Close what is open; the file is of no use."""


class ByteSink:
    """Bytes to a descriptor, or to standard output; compressed or not."""

    def __init__(self, descriptor: int | None, name: str) -> None:
        self._descriptor = descriptor
        _, packed = _names.suffixes_of(name)
        self._packer: Any = _packer(packed, name) if packed else None

    def begin(self, head: bytes) -> None:
        """Write the line of names."""
        self.write(head)

    def write(self, rows: bytes | memoryview) -> None:
        """Append bytes."""
        self._put(rows if self._packer is None else self._packer.compress(rows))

    def finish(self) -> None:
        """Write the rest of what is compressed."""
        if self._packer is not None:
            self._put(self._packer.flush())

    def abandon(self) -> None:
        """Do nothing: the descriptor is closed by who opened it."""

    def _put(self, data: bytes | memoryview) -> None:
        if not data:
            return
        if self._descriptor is None:
            write(data)
        else:
            write_all(self._descriptor, data)


class _ArrowPacker:
    """zstd by pyarrow, with the interface of a compressor."""

    def __init__(self, arrow: Any) -> None:
        self._codec = arrow.Codec("zstd", _ZSTD_LEVEL)

    def compress(self, data: bytes | memoryview) -> bytes:
        """Return one frame: frames behind one another are one file of zstd."""
        return bytes(self._codec.compress(data, asbytes=True)) if data else b""

    def flush(self) -> bytes:
        """Return nothing: every frame is whole."""
        return b""


def _packer(suffix: str, name: str) -> Any:
    if suffix == ".gz":
        import zlib

        return zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 31)
    for module in ("compression.zstd", "zstandard"):  # Python 3.14; PyPI
        try:
            found: Any = import_module(module)
        except ImportError:
            continue
        return found.ZstdCompressor(level=_ZSTD_LEVEL).compressobj() if module == "zstandard" else (
            found.ZstdCompressor(level=_ZSTD_LEVEL)
        )  # fmt: skip
    try:
        return _ArrowPacker(import_module("pyarrow"))
    except ImportError:
        raise no_zstd_error(name) from None


@contextmanager
def named_errors(place: str) -> Iterator[None]:
    """Turn an OSError of the block into one line that names the file."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(describe(error, place)) from None


def check_sink(option: str, path: str | None, format: str, inputs: list[str]) -> None:
    """Raise an error for an output that cannot, or must not, be written: before the work, not after it."""
    if path is None or path == "-":
        if format == "parquet":
            raise click.ClickException(
                f"Parquet is not written to standard output: name a file with {option}"
            )
        return
    suffix, packed = _names.suffixes_of(path)
    if packed:
        _packer(packed, path)
    is_parquet = suffix in _names.PARQUET_SUFFIXES
    if is_parquet != (format == "parquet") and (is_parquet or suffix or packed):
        what = "Parquet" if format == "parquet" else format
        raise click.ClickException(
            f"{option} {path}: the inputs are {what}, and so is the output: choose a name that says so"
        )
    if packed and format == "parquet":
        raise click.ClickException(f"{option} {path}: Parquet is compressed in itself: leave out {packed}")
    folder = os.path.dirname(os.path.realpath(path))
    with named_errors(folder):
        if not os.path.isdir(folder):
            raise click.ClickException(f"{folder}: no such folder: check the name")
        if not os.path.lexists(path) and not os.access(folder, os.W_OK | os.X_OK):
            raise click.ClickException(f"{folder}: permission denied: check its owner and mode")
        if os.path.isdir(path):
            raise click.ClickException(f"{option} {path}: is a directory: name a file")
    if os.path.isfile(path):
        for name in inputs:
            if name != "-" and os.path.samefile(name, path):
                raise click.ClickException(f"{option} {path} is one of the inputs: choose another name")


def open_sink(path: str | None, format: str, body: Callable[[Sink], _T]) -> _T:
    """Run the body with a sink; the file appears when the body has returned, or not at all."""
    if path is None or path == "-":
        result = _fill(ByteSink(None, ""), body)
        _sync_standard_output()
        return result
    results: list[_T] = []
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with named_errors(path):
            descriptor = os.open(path, os.O_WRONLY | _platform.OPEN)
        try:
            return _fill(_sink(descriptor, path, format), body)
        finally:
            os.close(descriptor)
    with named_errors(path):
        replace_file(path, lambda descriptor: results.append(_fill(_sink(descriptor, path, format), body)))
    return results[0]


def _sync_standard_output() -> None:
    """Wait until the rows are on the disk, if standard output is a file: a state may follow."""
    with contextlib.suppress(AttributeError, io.UnsupportedOperation):  # closed, or no file at all
        descriptor = sys.stdout.fileno()
        with output_stream():
            sys.stdout.flush()
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                _platform.flush(descriptor)


def _sink(descriptor: int, path: str, format: str) -> Sink:
    if format == "parquet":
        from evenbins.cli._parquet import ParquetSink

        return ParquetSink(descriptor)
    return ByteSink(descriptor, path)


def _fill(sink: Sink, body: Callable[[Sink], _T]) -> _T:
    try:
        result = body(sink)
        sink.finish()
    except BaseException:
        sink.abandon()
        raise
    return result
