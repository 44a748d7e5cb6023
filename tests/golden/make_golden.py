"""Write the golden files: filters of every kind with known keys, and files that must be refused.

    python tests/golden/make_golden.py

It writes only what is missing and changes nothing that exists: a golden file is written once and read
forever. A new kind of file gets a new name here; see README.md.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

from evenbins import BlockedBloomFilter, BloomFilter
from evenbins.reference.format import CHECKSUM, FIXED
from evenbins.reference.xxh3 import xxh3_64

HERE = Path(__file__).parent
SUMS = HERE / "SHA256SUMS"

# Texts of every length at which XXH3 takes another path; the integers at the ends of their range.
TEXTS: list[str | bytes | int] = ["x" * n for n in (1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025)]
KEYS: list[str | bytes | int] = [
    "", "ключ", "key-000001", b"\x00", b"\xff\xfe", b"\x00" * 100, *TEXTS,
    0, 1, -1, 255, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63), *range(1000, 1040),
]  # fmt: skip

# Every number that decides a byte is given, so that a better plan of tomorrow changes nothing here.
FILTERS: dict[str, Callable[[], BloomFilter | BlockedBloomFilter]] = {
    "standard": lambda: BloomFilter(70, bits_per_key=10, hashes=7),
    "standard-seed": lambda: BloomFilter(70, bits_per_key=16, hashes=11, seed=0x0123456789ABCDEF),
    "standard-odd-bits": lambda: BloomFilter(71, bits_per_key=13, hashes=9),
    "standard-one-bit": lambda: BloomFilter(1, bits_per_key=1, hashes=1),
    "standard-64-hashes": lambda: BloomFilter(70, bits_per_key=93, hashes=64),
    "blocked-512": lambda: BlockedBloomFilter(70, bits_per_key=14, hashes=8),
    "blocked-512-seed": lambda: BlockedBloomFilter(70, bits_per_key=20, hashes=16, seed=2**64 - 1),
    "blocked-512-24-hashes": lambda: BlockedBloomFilter(70, bits_per_key=36, hashes=24),
    "blocked-256": lambda: BlockedBloomFilter(70, bits_per_key=14, hashes=7, block_bits=256),
    "blocked-256-32-hashes": lambda: BlockedBloomFilter(
        70, bits_per_key=50, hashes=32, block_bits=256, seed=42
    ),
}


def golden_filter(name: str) -> BloomFilter | BlockedBloomFilter:
    """Build the filter of that name, with its keys."""
    f = FILTERS[name]()
    f.add_many(KEYS)
    return f


def _flipped(data: bytes, byte: int, bit: int) -> bytes:
    return data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]


def _with(data: bytes, field: int, value: int) -> bytes:
    """Change a field of the header, by its number in the table of docs/format.md; the checksum is right."""
    fields = list(FIXED.unpack_from(data))
    fields[field] = value
    header = FIXED.pack(*fields) + data[FIXED.size : 120]
    return header + CHECKSUM.pack(xxh3_64(header)) + data[128:]


def _spare_bit() -> bytes:
    data = golden_filter("standard-odd-bits").to_bytes()  # 923 bits in 15 words
    payload = _flipped(data[128:], 119, 7)
    return _with(data[:128] + payload, 9, xxh3_64(payload))


_BLOCKED = golden_filter("blocked-512").to_bytes()

# name: the bytes, and words that the error must have
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "text": (b"key-000001\n" * 20, "not an evenbins file"),
    "cut-in-magic": (_BLOCKED[:5], "not an evenbins file"),
    "cut-in-header": (_BLOCKED[:100], "ends within its header"),
    "cut-behind-header": (_BLOCKED[:128], "cut short"),
    "cut-in-payload": (_BLOCKED[:-1], "cut short"),
    "longer": (_BLOCKED + b"\n", "something follows"),
    "flipped-seed": (_flipped(_BLOCKED, 24, 0), "header's checksum"),
    "flipped-payload": (_flipped(_BLOCKED, 200, 5), "payload's checksum"),
    "version-0": (_with(_BLOCKED, 1, 0), "version 0"),
    "version-2": (_with(_BLOCKED, 1, 2), "version 2"),
    "kind-9": (_with(_BLOCKED, 2, 9), "unknown kind 9"),
    "hash-9": (_with(_BLOCKED, 3, 9), "hash 9"),
    "hashing-1": (_with(_BLOCKED, 4, 1), "lane hashing"),
    "capacity-0": (_with(_BLOCKED, 6, 0), "capacity"),
    "huge-core-count": (_with(_BLOCKED, 10, 2**61), "contradict"),
    "huge-blocks": (_with(_BLOCKED[:72] + struct.pack("<Q", 2**47) + _BLOCKED[80:], 8, 2**53), "cut short"),
    "spare-bit": (_spare_bit(), "beyond the last"),
}


def main() -> None:
    """Write the files that are missing, and their checksums."""
    wanted = {f"{name}.evenbins": golden_filter(name).to_bytes() for name in FILTERS}
    wanted |= {f"damaged/{name}.evenbins": data for name, (data, _) in DAMAGED.items()}
    known = dict(reversed(line.split()) for line in SUMS.read_text().splitlines()) if SUMS.exists() else {}
    for name, data in wanted.items():
        path = HERE / name
        if path.exists():
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        known[name] = hashlib.sha256(data).hexdigest()
        print(f"wrote {name}: {len(data)} bytes")
    SUMS.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(known.items())))


if __name__ == "__main__":
    main()
