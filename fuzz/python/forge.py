"""Files as a forger writes them: damaged where the input says, with right checksums
(fuzz/cpp/harness.hpp's twin)."""

from __future__ import annotations

import struct

from evenbins import _core

__all__ = ["forged", "forged_growing"]

_VERSION, _KIND, _HASH, _OFFSET, _SIZE, _CHECKSUM, _WORDS, _CORE = (
    8,
    12,
    16,
    40,
    48,
    56,
    64,
    72,
)  # docs/format.md


def forged(data: bytes) -> bytes:
    """Make magic, version, sizes and checksums right; all else stays as it is."""
    file = bytearray(data.ljust(_CORE, b"\0"))
    file[:8] = b"EVENBINS"
    struct.pack_into("<I", file, _VERSION, 1)
    struct.pack_into("<I", file, _HASH, 1)
    (words,) = struct.unpack_from("<Q", file, _WORDS)
    words = words if words <= 64 else words % 32
    offset = (_CORE + 8 * words + 8 + 63) // 64 * 64
    file.extend(bytes(max(0, offset - len(file))))
    file[_CORE + 8 * words : offset] = bytes(offset - _CORE - 8 * words)
    struct.pack_into("<Q", file, _WORDS, words)
    struct.pack_into("<QQ", file, _OFFSET, offset, len(file) - offset)
    if file[_KIND] == 4:
        forged_growing(file, words, offset)
    struct.pack_into("<Q", file, _CHECKSUM, _core.xxh3_64(bytes(file[offset:]), 0))
    struct.pack_into("<Q", file, offset - 8, _core.xxh3_64(bytes(file[: offset - 8]), 0))
    return bytes(file)


def forged_growing(file: bytearray, words: int, offset: int) -> None:
    """Make the stages of a growing filter right, which are files in the file."""
    for number in range(6, words, 2):
        (size,) = struct.unpack_from("<Q", file, _CORE + 8 * number)
        if size == 0 or offset + size > len(file):
            return
        stage = forged(bytes(file[offset : offset + size]))
        if len(stage) == size:
            file[offset : offset + size] = stage
        offset += -(-size // 64) * 64
