"""File format, version 1: a header that describes itself, then the bits; little endian.

    offset    size  field
    0         8     magic b"EVENBINS"
    8         4     version = 1
    12        4     kind: 1 standard, 2 blocked, 3 balanced, 5 counting, 6 count-min, 7 multilevel, 8 chained,
                    9 interpolation, 10 single filter, 11 multiple Bloom, 12 counters (`summaries`),
                    15 HyperLogLog, 18 fingerprint, 19 fuse, 20 window
    16        4     hash id = 1: strings by XXH3-64, integers by keyed moremur (`keys`)
    20        4     hashing: 2 lanes (`blocked`, `balanced`), the others `bloom.HASHING`; `counting`: 1 or 2
    24        8     seed
    32        8     capacity; 1 for count-min
    40        8     payload offset = header size, a multiple of 64
    48        8     payload size in bytes
    56        8     payload checksum: XXH3-64 of the payload, seed 0
    64        8     number of core words c
    72        8*c   the integer core: [bits, hashes], [blocks, block_bits, hashes], or as `balanced.shape_of`,
                    `counting`, `countmin` and `multilevel` say
    ...             zeros
    offset-8  8     header checksum: XXH3-64, seed 0, of all header bytes before it
    offset          the payload, which ends the file

The payload starts on a cache line, so that a file can be mapped and used as it lies.

Invariants: one filter has one file (every byte is either a field that is checked or a zero that is
checked); a file that is accepted describes a valid filter; a file with any bit flipped, any byte
missing or any byte too many is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evenbins.study import stepwise as multilevel
from reference import balanced, chained, counting, countmin, fingerprint, fuse, hyperloglog, summaries, window
from reference.xxh3 import xxh3_64

MAGIC: Final = b"EVENBINS"
VERSION: Final = 1
HASH_ID: Final = 1
STANDARD: Final = 1
BLOCKED: Final = 2
BALANCED: Final = 3
COUNTING: Final = 5
COUNT_MIN: Final = 6
MULTILEVEL: Final = 7
CHAINED: Final = 8
SUMMARIES: Final = (9, 10, 11, 12)
HYPERLOGLOG: Final = 15
FINGERPRINT: Final = 18
FUSE: Final = 19
WINDOW: Final = 20
PARTITION: Final = 3
HASHING: Final = {  # the schemes by which each kind draws its positions
    STANDARD: (1, 3, 4, 5, 6, 7, 8),
    BLOCKED: (2,),
    BALANCED: (2,),
    COUNT_MIN: (1,),
    HYPERLOGLOG: (1,),
    MULTILEVEL: (1,),
    CHAINED: (1,),
    FINGERPRINT: (2,),
    FUSE: (1,),
    WINDOW: (2,),
    **dict.fromkeys(SUMMARIES, (1,)),
}

CORE: Final = {  # what `payload_bytes` accepts, for its error
    STANDARD: "[bits >= 1, hashes in 1 .. 64]",
    BLOCKED: "[blocks >= 1, block_bits 256 or 512, hashes in 1 .. 32]",
    BALANCED: "[policy 1 .. 5, block_bits, hashes, choices, coin, overflow_limit, spill, budget,"
    " then blocks and threshold of each table]",
    COUNTING: "[counters >= 1, counter_bits 2, 4, 8 or 16, hashes, block_bits 0 or 512]",
    CHAINED: "[policy, choices, coin, key type, value type, overflow_bins,"
    " then bins and threshold of each table]",
    COUNT_MIN: "[construction 1 or 2, width, depth, copies, conservative 0 or 1, epsilon, delta]",
    HYPERLOGLOG: "[precision 4 .. 18, form 0 or 1]",
    MULTILEVEL: "[scheme 1 .. 5, slots, key type, value type, flags, overflow_limit, buckets of each level]",
    FINGERPRINT: "[lines, remainder 4 .. 28, quotients 32 .. 64, group 1 .. 16, rest, limit, set 0 or 1,"
    " doublings]",
    FUSE: "[blocks, segment_length, segments, bits in 4 .. 32, keys, fingerprints]",
    WINDOW: "[lines, remainder, quotients 32 .. 64, group 1 .. 16, rest, limit, steps 1 .. 1000, window,"
    " counted 0 or 1]",
    **dict.fromkeys(SUMMARIES, "a core as `summaries` says"),
}

FIXED: Final = struct.Struct("<8s4I6Q")  # magic .. number of core words
CHECKSUM: Final = struct.Struct("<Q")
LINE: Final = 64


@dataclass(frozen=True)
class Parsed:
    """What a valid file says."""

    kind: int
    hashing: int
    seed: int
    capacity: int
    core: tuple[int, ...]
    payload: bytes


def header_bytes(core_words: int) -> int:
    """Return the size of the header: whole cache lines."""
    used = FIXED.size + 8 * core_words + CHECKSUM.size
    return -(-used // LINE) * LINE


def hashing_of(kind: int, core: Sequence[int]) -> tuple[int, ...]:
    """Return the schemes by which a kind draws its positions: a counting filter's depends on its layout."""
    return HASHING[kind] if kind != COUNTING else (2,) if core[-1:] == (counting.BLOCK_BITS,) else (1,)


def payload_bytes(kind: int, core: Sequence[int], capacity: int = 1) -> int:
    """Return the size of the payload which a core asks for; ValueError if it is no valid core."""
    match kind, *core:
        case 1, bits, hashes if bits >= 1 and 1 <= hashes <= 64:
            return -(-bits // 64) * 8
        case 2, blocks, (256 | 512) as block_bits, hashes if blocks >= 1 and 1 <= hashes <= 32:
            return blocks * block_bits // 8
        case 3, *_:
            try:
                return balanced.payload_bytes(core)
            except ValueError as error:
                raise ValueError(f"invalid core {list(core)}: {error}; kind 3 has {CORE[3]}") from error
        case 5, *_:
            try:
                return counting.payload_bytes(tuple(core))
            except ValueError as error:
                raise ValueError(f"invalid core {list(core)}: {error}; kind 5 has {CORE[5]}") from error
        case 18, *_:
            try:
                return fingerprint.payload_bytes(core)
            except ValueError as error:
                raise ValueError(f"invalid core {list(core)}: {error}; kind 18 has {CORE[18]}") from error
        case 19, *_:
            try:
                return fuse.payload_bytes(tuple(core))
            except ValueError as error:
                raise ValueError(f"invalid core {list(core)}: {error}; kind 19 has {CORE[19]}") from error
        case 20, *_:
            try:
                return window.payload_bytes(core)
            except ValueError as error:
                raise ValueError(f"invalid core {list(core)}: {error}; kind 20 has {CORE[20]}") from error
        case 6, *_:
            try:
                return countmin.payload_bytes(core)
            except ValueError as error:
                raise ValueError(f"invalid core {list(core)}: {error}; kind 6 has {CORE[6]}") from error
        case 15, _, _:
            return hyperloglog.payload_bytes(core)
        case 7, *_:
            try:
                return multilevel.payload_bytes(core)
            except ValueError as error:
                raise ValueError(f"invalid core {list(core)}: {error}; kind 7 has {CORE[7]}") from error
        case 8, *_:
            try:
                return chained.payload_bytes(core, capacity)
            except ValueError as error:
                raise ValueError(f"invalid core {list(core)}: {error}; kind 8 has {CORE[8]}") from error
        case ((9 | 10 | 11 | 12), *_):
            try:
                return summaries.payload_bytes(kind, core)
            except ValueError as error:
                raise ValueError(
                    f"invalid core {list(core)}: {error}; kind {kind} has {CORE[kind]}"
                ) from error
    raise ValueError(f"invalid core {list(core)}: kind {kind} has {CORE[kind]}")


def pack(kind: int, hashing: int, seed: int, capacity: int, core: Sequence[int], payload: bytes) -> bytes:
    """Return the file of a filter; ValueError if `unpack` would refuse it.

    An integer that is too large for its field is a struct.error.

    Examples
    --------
    >>> len(pack(1, 1, 0, 10, [64, 3], bytes(8)))
    136
    """
    offset = header_bytes(len(core))
    fixed = FIXED.pack(
        MAGIC, VERSION, kind, HASH_ID, hashing,
        seed, capacity, offset, len(payload), xxh3_64(payload), len(core),
    )  # fmt: skip
    header = fixed + struct.pack(f"<{len(core)}Q", *core)
    header = header.ljust(offset - CHECKSUM.size, b"\0")
    data = header + CHECKSUM.pack(xxh3_64(header)) + payload
    unpack(data)
    return data


def unpack(data: bytes) -> Parsed:
    """Return what the file ``data`` says; ValueError, naming the first defect, if it is damaged."""
    if len(data) < len(MAGIC):
        raise ValueError(f"file too short: {len(data)} bytes, not even the magic")
    if not data.startswith(MAGIC):
        raise ValueError(f"not an evenbins file: it starts with {data[:8]!r}, not {MAGIC!r}")
    if len(data) < 12:
        raise ValueError(f"file too short: {len(data)} bytes, no version")
    version = int.from_bytes(data[8:12], "little")
    if version != VERSION:
        raise ValueError(f"unknown version {version}: this reader knows version {VERSION}")

    if len(data) < FIXED.size:
        raise ValueError(f"file too short: {len(data)} bytes, the header has at least 128")
    (
        _, _, kind, hash_id, hashing,
        seed, capacity, offset, payload_size, payload_checksum, core_words,
    ) = FIXED.unpack_from(data)  # fmt: skip
    if offset != header_bytes(core_words):
        raise ValueError(f"header damaged: size {offset} does not fit {core_words} core words")
    if len(data) < offset:
        raise ValueError(f"file too short: {len(data)} bytes, the header alone has {offset}")
    header, (header_checksum,) = data[: offset - 8], CHECKSUM.unpack_from(data, offset - 8)
    if xxh3_64(header) != header_checksum:
        raise ValueError("header damaged: its checksum is wrong")

    core = struct.unpack_from(f"<{core_words}Q", header, FIXED.size)
    if any(header[FIXED.size + 8 * core_words :]):
        raise ValueError("header damaged: its padding is not zero")
    if kind not in CORE:
        raise ValueError(
            f"unknown kind {kind}: this reader knows 1 .. 3, 5 .. 12, 15, 18 .. 20"
            " (standard, blocked, balanced, counting, count-min, multilevel, chained, four summaries,"
            " HyperLogLog, fingerprint, fuse, window)"
        )
    if hash_id != HASH_ID:
        raise ValueError(f"unknown hash id {hash_id}: this reader knows {HASH_ID}")
    if hashing not in (allowed := hashing_of(kind, core)):
        known = ", ".join(map(str, allowed))
        raise ValueError(f"unknown hashing {hashing}: kind {kind} has hashing {known}")
    if (kind, hashing) == (STANDARD, PARTITION) and core[0] % max(core[-1], 1):
        raise ValueError(f"the parts of hashing {PARTITION} must be equal: {core[-1]} hashes, {core[0]} bits")
    if not 1 <= capacity <= 2**48:
        raise ValueError(f"capacity must be 1 .. 2**48, got {capacity}")
    if kind in (COUNT_MIN, HYPERLOGLOG) and capacity != 1:
        raise ValueError(f"capacity must be 1 for a sketch, got {capacity}")
    if payload_size != (wanted := payload_bytes(kind, core, capacity)):
        raise ValueError(f"payload size {payload_size} disagrees with the core {list(core)}: {wanted} bytes")

    surplus = len(data) - offset - payload_size
    if surplus < 0:
        raise ValueError(f"file too short: {-surplus} bytes of the payload are missing")
    if surplus > 0:
        raise ValueError(f"file too long: {surplus} bytes after the payload")
    payload = data[offset:]
    if xxh3_64(payload) != payload_checksum:
        raise ValueError("payload damaged: its checksum is wrong")
    if kind == STANDARD and int.from_bytes(payload, "little") >> core[0]:
        raise ValueError(f"payload damaged: spare bits after the last of {core[0]} are set")
    if kind == COUNTING and int.from_bytes(payload, "little") >> core[0] * core[1]:
        raise ValueError(f"payload damaged: spare bits after the last of {core[0]} counters are set")
    if kind == BALANCED:
        try:
            balanced.ReferenceBalanced.from_payload(core, seed, payload)
        except ValueError as error:
            raise ValueError(f"payload damaged: {error}") from error
    if kind in (COUNT_MIN, HYPERLOGLOG):
        try:
            sketch = countmin.ReferenceCountMin if kind == COUNT_MIN else hyperloglog.ReferenceHyperLogLog
            sketch.from_payload(core, seed, payload)
        except ValueError as error:
            raise ValueError(f"payload damaged: {error}") from error
    if kind in (FINGERPRINT, WINDOW):
        try:
            runs = fingerprint.ReferenceFingerprint if kind == FINGERPRINT else window.ReferenceWindow
            runs.from_payload(core, seed, payload)
        except ValueError as error:
            raise ValueError(f"payload damaged: {error}") from error
    if kind == MULTILEVEL:
        try:
            multilevel.ReferenceMultilevel.from_payload(core, seed, payload)
        except ValueError as error:
            raise ValueError(f"payload damaged: {error}") from error
    return Parsed(kind, hashing, seed, capacity, core, payload)
