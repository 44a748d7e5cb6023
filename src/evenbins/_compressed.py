"""Files that may be compressed: one place that unpacks them, for traces and for the command line.

    first bytes ──▶ gzip, zstd, Parquet or none       format_of: the content decides, not the name
    a binary file, a format ──▶ blocks of what is in it       unpacked

zstd needs Python 3.14 or a package: zstandard, or pyarrow. A file that ends too early, or has a wrong check
sum, is a CompressedError that names the file and the tool that shows more; nothing is guessed.

Tried and dropped: gzip.GzipFile, which reads 8 KiB at a time (half the speed), and zstandard's stream_reader,
which takes a file cut short for a whole one. All that was read given to zstd at once: 128 KiB of a hostile
file unpack to 4 GiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from evenbins.errors import EvenbinsError

__all__ = ["CompressedError", "check_package", "format_of", "may_become", "no_zstd_error", "unpack"]

_MAGIC = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd", "parquet": b"PAR1"}
_PACKED_BYTES = 1 << 17  # read at a time
_BLOCK_BYTES = 1 << 22  # unpacked at a time, where that can be bounded
_ZSTD_BYTES = 1 << 11  # of zstd given at a time: four bytes may unpack to 128 KiB, so these to 64 MiB at most


class CompressedError(EvenbinsError, ValueError):
    """A compressed file cannot be unpacked; says which, why, and what to do."""


def format_of(first: bytes) -> str | None:
    """Return a format by a file's first bytes: "gzip", "zstd", "parquet" or None."""
    return next((name for name, magic in _MAGIC.items() if first.startswith(magic)), None)


def may_become(first: bytes) -> bool:
    """Return whether these bytes may be the beginning of a format's first bytes."""
    return len(first) < 4 and any(magic.startswith(first) for magic in _MAGIC.values())


def check_package(format: str, name: str) -> None:
    """Raise CompressedError if the package that unpacks a format is missing."""
    _UNPACKERS[format](name)


def unpack(read: Callable[[int], bytes], format: str, name: str) -> Iterator[bytes]:
    """Unpack what `read(size)` gives, block by block.

    Raises
    ------
    CompressedError
        It is damaged, cut short or followed by something else, or a package is missing.
    """
    new, error_type = _UNPACKERS[format](name)
    tool = "gzip" if format == "gzip" else "zstd"
    unpacker, begun = new(), False
    if hasattr(unpacker, "CompressedInputStream"):
        yield from _unpack_by_arrow(read, name, unpacker)
        return
    while packed := read(_PACKED_BYTES):
        blocks: list[bytes] = []
        size = 0
        while packed:
            begun = True
            try:
                if format == "gzip":
                    block = unpacker.decompress(packed, _BLOCK_BYTES)
                    packed = unpacker.unconsumed_tail
                else:
                    block, packed = unpacker.decompress(packed[:_ZSTD_BYTES]), packed[_ZSTD_BYTES:]
            except error_type as error:
                if blocks:
                    yield b"".join(blocks)
                what = "not a whole gzip file" if tool == "gzip" else "cannot be unpacked"
                raise CompressedError(f"{name}: {what} ({error}): check it with {tool} -t") from None
            if block:
                blocks.append(block)
                size += len(block)
            if unpacker.eof:
                packed = unpacker.unused_data + packed * (format == "zstd")
                if format == "gzip":
                    packed = packed.lstrip(b"\0")  # padding, as on tapes
                unpacker, begun = new(), False
            if size >= _PACKED_BYTES:
                yield b"".join(blocks)
                blocks, size = [], 0
        if blocks:
            yield b"".join(blocks)
    if begun:
        raise CompressedError(f"{name}: it ends too early, and is not whole: check it with {tool} -t")


def _gzip_unpacker(name: str) -> tuple[Callable[[], Any], type[Exception]]:
    import zlib

    return lambda: zlib.decompressobj(31), zlib.error  # 31: a gzip header, any window


def _zstd_unpacker(name: str) -> tuple[Callable[[], Any], type[Exception]]:
    for module in ("compression.zstd", "zstandard"):  # Python 3.14; PyPI
        try:
            found: Any = import_module(module)
        except ImportError:
            continue
        if module == "zstandard":
            return found.ZstdDecompressor().decompressobj, found.ZstdError
        return found.ZstdDecompressor, found.ZstdError
    try:
        arrow: Any = import_module("pyarrow")
    except ImportError:
        raise no_zstd_error(name) from None
    return lambda: arrow, OSError


class _Packed:
    """The interface of a file that pyarrow needs."""

    closed = False

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.read = read

    def close(self) -> None:
        """Leave it open: it belongs to the caller."""


def _unpack_by_arrow(read: Callable[[int], bytes], name: str, arrow: Any) -> Iterator[bytes]:
    try:
        stream = arrow.CompressedInputStream(arrow.PythonFile(_Packed(read), "r"), "zstd")
        while block := stream.read(_BLOCK_BYTES):
            yield block
    except OSError as error:
        if error.errno is not None:  # of the file itself
            raise
        raise CompressedError(f"{name}: cannot be unpacked ({error}): check it with zstd -t") from None


def no_zstd_error(name: str) -> CompressedError:
    """Return the error for a file of zstd without a package that reads or writes it."""
    return CompressedError(
        f"{name}: zstd needs a package: pip install zstandard (or 'evenbins[zstd]'), or unpack it before "
        "(zstd -d)"
    )


_UNPACKERS = {"gzip": _gzip_unpacker, "zstd": _zstd_unpacker}
