"""Write the golden files: filters of every kind with known keys, and files that must be refused.

    python tests/golden/make_golden.py

It writes only what is missing and changes nothing that exists: a golden file is written once and read
forever. A new kind of file gets a new name here; see README.md.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    ChainedTable,
    CountingBloomFilter,
    CountMinSketch,
    Deduplicator,
    FilterPlan,
    FingerprintFilter,
    GrowingFilter,
    HashRing,
    HeavyHitters,
    HyperLogLog,
    MultilevelTable,
    WindowFilter,
    digest,
)
from evenbins.filters import plan_of_core
from evenbins.filters.fuse import FuseFilter, FuseKeys
from evenbins.sketches.countmin import plan_of_sketch_core
from evenbins.structure import kind_of_number
from evenbins.study.ring import ring as study_ring
from evenbins.tables.chained import plan_of_chain_core
from evenbins.tables.multilevel import plan_of_table_core
from evenbins.tables.summaries import Summary, plan_of_summary_core
from reference.format import CHECKSUM, FIXED
from reference.xxh3 import xxh3_64

AnyFilter = (
    BloomFilter
    | BlockedBloomFilter
    | BalancedBloomFilter
    | GrowingFilter
    | CountingBloomFilter
    | FingerprintFilter
)

HERE = Path(__file__).parent
SUMS = HERE / "SHA256SUMS"

# Texts of every length at which XXH3 takes another path; the integers at the ends of their range.
TEXTS: list[str | bytes | int] = ["x" * n for n in (1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025)]
KEYS: list[str | bytes | int] = [
    "", "ключ", "key-000001", b"\x00", b"\xff\xfe", b"\x00" * 100, *TEXTS,
    0, 1, -1, 255, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63), *range(1000, 1040),
]  # fmt: skip

# Every number that decides a byte is given, so that a better plan of tomorrow changes nothing here.
POLICIES = ("single", "sequential", "multilevel", "fill", "two-choice")


def _balanced(*core: int, seed: int = 0) -> BalancedBloomFilter:
    """Build from [policy, block_bits, hashes, choices, coin, list, spill, budget, blocks, threshold, …]."""
    plan = plan_of_core(POLICIES[core[0] - 1], core, capacity=70, seed=seed)
    return BalancedBloomFilter.from_plan(plan)


def _counting(*core: int, seed: int = 0) -> CountingBloomFilter:
    """Build from [counters, counter_bits, hashes, block_bits]."""
    return CountingBloomFilter.from_plan(plan_of_core("counting", core, capacity=70, seed=seed))


def _fingerprint(*core: int, copies: int = 0, seed: int = 0) -> FingerprintFilter:
    """Build from [lines, remainder, quotients, group, rest, limit, set, doublings]; some keys are in often.

    So there is something on every level and on the overflow list.
    """
    plan: Any = plan_of_core("fingerprint", core, capacity=70, seed=seed, hashing="lanes")
    f = FingerprintFilter.from_plan(plan)
    f.add_many(KEYS[:20] * copies)
    return f


def _growing(policy: str, *cores: tuple[int, ...], seed: int = 0) -> GrowingFilter:
    """Build with stages of 20, 40, … keys and these cores."""

    class Frozen(GrowingFilter):
        def _stage_plan(self, stage: int) -> FilterPlan:
            return plan_of_core(policy, cores[stage], capacity=20 * 2**stage, seed=seed)

    return Frozen(0.01, first=20, policy=policy, seed=seed)


FILTERS: dict[str, Callable[[], AnyFilter]] = {
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
    "balanced-single": lambda: _balanced(1, 512, 9, 1, 2**31, 40, 0, 0, 3, 15),
    "balanced-single-random": lambda: _balanced(1, 256, 7, 1, 2**32, 0, 1, 0, 5, 9, seed=3),
    "balanced-sequential": lambda: _balanced(2, 256, 8, 3, 2**30, 25, 0, 0, 5, 10),
    "balanced-sequential-budget": lambda: _balanced(2, 512, 11, 2, 0, 70, 0, 50, 3, 20, seed=2**64 - 1),
    "balanced-multilevel": lambda: _balanced(3, 512, 10, 3, 2**31, 8, 0, 0, 2, 13, 1, 13, 1, 9),
    "balanced-multilevel-no-list": lambda: _balanced(3, 256, 17, 2, 0, 0, 0, 0, 5, 7, 3, 6, seed=42),
    "balanced-fill": lambda: _balanced(4, 512, 9, 2, 0, 0, 0, 0, 2, 200, 1, 513),
    "balanced-fill-256": lambda: _balanced(4, 256, 24, 3, 0, 0, 0, 0, 5, 110, 2, 120, 1, 257, seed=1),
    "balanced-two-choice": lambda: _balanced(5, 512, 12, 2, 0, 0, 0, 0, 3, 0),
    "balanced-two-choice-256": lambda: _balanced(5, 256, 32, 2, 0, 0, 0, 0, 7, 0, seed=42),
    "growing": lambda: _growing(
        "fill",
        (4, 512, 8, 1, 0, 0, 0, 0, 1, 513),
        (4, 512, 9, 2, 0, 0, 0, 0, 1, 200, 1, 513),
        (4, 512, 10, 2, 0, 0, 0, 0, 2, 210, 1, 513),
        seed=7,
    ),
    "growing-standard": lambda: _growing("standard", (221, 8), (570, 10), (1301, 11)),
    "counting": lambda: _counting(1001, 4, 10, 0),
    "counting-2-bits": lambda: _counting(300, 2, 7, 0, seed=42),
    "counting-8-bits": lambda: _counting(37, 8, 64, 0),
    "counting-16-bits": lambda: _counting(1, 16, 1, 0, seed=2**64 - 1),
    "counting-blocked": lambda: _counting(1152, 4, 8, 512),
    "counting-blocked-2-bits": lambda: _counting(768, 2, 24, 512, seed=7),
    "counting-blocked-8-bits": lambda: _counting(320, 8, 16, 512),
    "counting-blocked-16-bits": lambda: _counting(64, 16, 32, 512),
    "fingerprint": lambda: _fingerprint(16, 28, 64, 1, 300, 1000, 0, 0, copies=8),
    "fingerprint-11-bits": lambda: _fingerprint(16, 11, 50, 1, 400, 2000, 0, 0, copies=20, seed=2**64 - 1),
    "fingerprint-4-bits": lambda: _fingerprint(16, 4, 32, 1, 16, 400, 0, 0, seed=7),
    "fingerprint-grown": lambda: _fingerprint(16, 12, 50, 1, 16, 60, 0, 3, seed=11),
    "fingerprint-set": lambda: _fingerprint(32, 8, 40, 2, 8, 400, 1, 0, copies=1, seed=42),
}


def golden_filter(name: str) -> AnyFilter:
    """Build the filter of that name, with its keys."""
    f = FILTERS[name]()
    f.add_many(KEYS)
    return f


# Cores, whose fifth number is that of the keys, and seeds.
FUSED: dict[str, tuple[tuple[int, ...], int]] = {
    "fuse": ((1, 16, 10, 8, 70, 0), 0),
    "fuse-4-bits": ((1, 32, 6, 4, 70, 0), 42),
    "fuse-13-bits": ((1, 8, 19, 13, 70, 0), 2**64 - 1),
    "fuse-blocks": ((3, 64, 3, 9, 70, 0), 7),
    "fuse-32-bits-fingerprints": ((2, 64, 3, 32, 70, 10**9 + 7), 1),
    "fuse-empty": ((1, 4, 3, 8, 0, 0), 0),
}


def golden_fuse(name: str) -> FuseFilter:
    """Build the fuse filter of that name: all keys, some of them twice."""
    core, seed = FUSED[name]
    numbers = [digest(key, seed) for key in [*KEYS, *KEYS[:9]][: 2 * core[4]]]
    if core[5]:
        numbers = [number * core[5] >> 64 for number in numbers]
    keys = FuseKeys(seed, 1)
    for read in (keys.count, keys.take):
        read(np.array(numbers, dtype=np.uint64), digests=True)
    plan = plan_of_core("fuse", core, capacity=max(keys.finish(), 1), seed=seed)
    return keys.fill(FuseFilter, plan)


# Cores, the times in microseconds at which keys are added, and seeds.
WINDOWS: dict[str, tuple[tuple[int, ...], Sequence[int], int]] = {
    "window": ((16, 23, 64, 1, 300, 1000, 8, 400, 0), range(-450, 400, 42), 0),
    "window-30-steps": ((32, 9, 40, 2, 80, 900, 30, 3000, 0), (5, 905, 2000, 3300), 42),
    "window-of-additions": ((48, 4, 50, 1, 8, 400, 3, 90, 1), (0, 0, 0), 2**64 - 1),
    "window-empty": ((16, 8, 32, 1, 0, 1, 1, 1, 1), (), 0),
}


def golden_window(name: str) -> WindowFilter:
    """Build the window filter of that name: at each time 40 keys are added, at the last one all of KEYS."""
    core, times, seed = WINDOWS[name]
    plan: Any = plan_of_core("window", core, capacity=70, seed=seed, hashing="lanes")
    f = WindowFilter.from_plan(plan)
    for number, now in enumerate(times):
        f.clock = partial(float, (now + 0.5) / 1e6)
        f.add_many(range(2000 + 40 * number, 2040 + 40 * number))
    if times:
        f.add_many(KEYS)
    return f


def _sketch(*core: int, seed: int = 0) -> CountMinSketch:
    """Build from [construction, width, depth, copies, conservative] with epsilon 0.1, delta 0.05."""
    promise = struct.unpack("<2Q", struct.pack("<2d", 0.1, 0.05))
    return CountMinSketch.from_plan(plan_of_sketch_core((*core, *promise), seed=seed))


SKETCHES: dict[str, Callable[[], CountMinSketch]] = {
    "count-min-classic": lambda: _sketch(2, 28, 3, 1, 0),
    "count-min-classic-conservative": lambda: _sketch(2, 28, 3, 1, 1, seed=2**64 - 1),
    "count-min-two-hash": lambda: _sketch(1, 59, 3, 2, 0, seed=42),
    "count-min-two-hash-conservative": lambda: _sketch(1, 59, 3, 2, 1),
}


def golden_sketch(name: str) -> CountMinSketch:
    """Build the sketch of that name, with its keys: weight 1 for the first, 2 for the second, …"""
    s = SKETCHES[name]()
    s.add_many(KEYS, range(1, len(KEYS) + 1))
    return s


DISTINCT: dict[str, Callable[[], HyperLogLog]] = {
    "hyperloglog-sparse": lambda: HyperLogLog(12),
    "hyperloglog-dense": lambda: HyperLogLog(6, seed=42),
}


def golden_distinct(name: str) -> HyperLogLog:
    """Build the HyperLogLog of that name, with its keys."""
    h = DISTINCT[name]()
    h.add_many(KEYS)
    return h


HITTERS: dict[str, Callable[[], HeavyHitters]] = {
    "heavy-hitters": lambda: HeavyHitters(10, epsilon=0.1, delta=0.1),
    "heavy-hitters-few": lambda: HeavyHitters(200, epsilon=0.3, delta=0.3, seed=42),
    "heavy-hitters-merged": lambda: HeavyHitters(4, epsilon=0.2, delta=0.3, conservative=False, seed=7),
}


def golden_hitters(name: str) -> HeavyHitters:
    """Build the heavy hitters of that name, with their keys: weight 1 for the first, 2 for the second, …"""
    h = HITTERS[name]()
    h.add_many(KEYS, range(1, len(KEYS) + 1))
    if name == "heavy-hitters-merged":
        other = HITTERS[name]()
        other.add_many(KEYS[::-1], range(1, len(KEYS) + 1))
        h.merge(other)
    return h


DEDUPLICATORS: dict[str, Callable[[], Deduplicator]] = {
    "deduplicator": lambda: Deduplicator(capacity=60),
    "deduplicator-seed": lambda: Deduplicator(fpr=1e-9, capacity=80, seed=2**64 - 1),
    "deduplicator-exact": lambda: Deduplicator(exact=True, capacity=80, seed=42),
}


def golden_deduplicator(name: str) -> Deduplicator:
    """Build the Deduplicator of that name: its keys, some of them twice."""
    d = DEDUPLICATORS[name]()
    d.keep([*KEYS[:60], *KEYS[:10]])
    return d


def _table(*core: int, seed: int = 0) -> MultilevelTable:
    """Build from [scheme, slots, key type, value type, flags, overflow_limit, buckets of each level]."""
    return MultilevelTable.from_plan(plan_of_table_core(core, keys=70, seed=seed))


TABLES: dict[str, Callable[[], MultilevelTable]] = {
    "table-standard": lambda: _table(1, 1, 1, 1, 1, 40, 40, 20, 10),
    "table-conservative": lambda: _table(2, 1, 2, 3, 3, 40, 30, 20, 10, seed=42),
    "table-second-chance": lambda: _table(3, 2, 1, 2, 3, 20, 15, 10, 5, 3, seed=2**64 - 1),
    "table-extreme-second-chance": lambda: _table(4, 4, 3, 1, 0, 20, 6, 5, 4, seed=7),
    "table-least-loaded": lambda: _table(5, 8, 1, 1, 1, 16, 3, 3),
    "table-least-loaded-digest": lambda: _table(5, 8, 3, 3, 2, 30, 2, 2, seed=1),
}


def table_items(t: MultilevelTable) -> dict[str | bytes | int, int]:
    """Give the items of a golden table: the keys of `KEYS` that fit it, with their numbers as values."""
    rest = {"int64": range(-(2**63), 2**63), "uint64": range(2**64), "digest": ()}[t.key_dtype]
    texts = t.key_dtype == "digest"
    fit = (
        key for key in KEYS if (texts and not isinstance(key, int)) or (isinstance(key, int) and key in rest)
    )
    return {key: i for i, key in enumerate(fit)}


def golden_table(name: str) -> MultilevelTable:
    """Build the table of that name: its items, and before them some keys that come and go."""
    t = TABLES[name]()
    passing = [f"passing {i}" if t.key_dtype == "digest" else 3 * i + 5000 for i in range(30)]
    t.insert_many(passing, 1)
    t.delete_many(passing[::2])
    t.update(table_items(t))
    t.delete_many(passing)
    return t


SETS: dict[str, Callable[[], MultilevelTable]] = {
    "set-int64": lambda: _table(5, 8, 1, 0, 1, 16, 3, 3),
    "set-uint64-conservative": lambda: _table(2, 2, 2, 0, 3, 30, 10, 6, 4, seed=42),
    "set-digest": lambda: _table(5, 8, 3, 0, 1, 30, 4, 4, seed=7),
}


def golden_set(name: str) -> MultilevelTable:
    """Build the exact set of that name: the keys of `KEYS` that fit it, after other keys came and went.

    A set of digests has them all.
    """
    s = SETS[name]()
    passing = [3 * i + 5000 for i in range(20)]
    s.add_many(passing)
    s.discard_many(passing[::2])
    s.add_many(set_keys(s))
    s.discard_many(passing)
    return s


def set_keys(s: MultilevelTable) -> list[str | bytes | int]:
    """Return the keys of a golden set."""
    return list(KEYS) if s.key_dtype == "digest" else list(table_items(s))


def _chained(*core: int, seed: int = 0) -> ChainedTable:
    """Build for 70 keys from [policy, choices, coin, types, overflow bins, bins, threshold, …]."""
    return ChainedTable.from_plan(plan_of_chain_core(core, keys=70, seed=seed))


def _summary(kind: int, *core: int, seed: int = 0) -> Summary:
    """Build for 70 keys from the number of a kind and its core."""
    plan = plan_of_summary_core(core, number=kind, keys=70, seed=seed)
    found = kind_of_number(kind)
    assert found is not None
    summary: Summary = found.cls.from_plan(plan)
    return summary


SUMMARIES: dict[str, Callable[[], Summary]] = {
    "summary-interpolation": lambda: _summary(9, 5, 55, 90),
    "summary-interpolation-12-bits": lambda: _summary(9, 9, 12, 40, seed=42),
    "summary-single-filter": lambda: _summary(10, 5, 615, 15),
    "summary-single-filter-3-bits": lambda: _summary(10, 7, 220, 11, seed=2**64 - 1),
    "summary-single-filter-counting": lambda: _summary(10, 4, 120, 6, 4, 3, 3, 2, seed=7),
    "summary-multiple-bloom": lambda: _summary(11, 4, 0, 700, 7, 1, 400, 13, 1, 120, 9, 1, 20, 0, 1),
    "summary-multiple-bloom-wide": lambda: _summary(11, 3, 1, 701, 7, 1, 400, 13, 1, 97, 33, 1, seed=1),
    "summary-multiple-bloom-counting": lambda: _summary(11, 3, 2, 700, 7, 4, 400, 13, 3, 30, 0, 1, seed=3),
    "summary-counters": lambda: _summary(12, 10, 917, 3),
}


def golden_summary(name: str) -> Summary:
    """Build the summary of that name: all of `KEYS`, in changing levels; some come and go, if it can."""
    s = SUMMARIES[name]()
    levels = s.plan.levels
    passing = [f"passing {i}" for i in range(10)]
    if s._can_remove:
        s.add_many(passing, 1)
    s.add_many(KEYS, [i * i % levels + 1 for i in range(len(KEYS))])
    if s._can_remove:
        s.remove_many(passing, 1)
    return s


CHAINED: dict[str, Callable[[], ChainedTable]] = {
    "chained-single": lambda: _chained(1, 1, 2**31, 1, 1, 5, 30, 2),
    "chained-single-plain": lambda: _chained(1, 1, 2**32, 2, 2, 1, 20, 2**31, seed=1),
    "chained-sequential": lambda: _chained(2, 3, 2**30, 2, 1, 4, 17, 3, seed=42),
    "chained-multilevel": lambda: _chained(3, 3, 2**31, 3, 3, 3, 18, 2, 5, 2, 2, 2, seed=2**64 - 1),
    "chained-least-loaded": lambda: _chained(6, 2, 0, 1, 2, 0, 16, 0),
    "chained-d-left": lambda: _chained(7, 4, 0, 3, 1, 0, 5, 0, 5, 0, 5, 0, 4, 0, seed=7),
}


def golden_chained(name: str) -> ChainedTable:
    """Build the table of that name: the values 0, 1, 2, … for the keys that fit it, every fifth deleted."""
    t = CHAINED[name]()
    strings = t._key_type == 3
    keys = [
        key for key in KEYS
        if (not strings if isinstance(key, int) else strings)
        and not (isinstance(key, int) and (key >= 2**63 if t._key_type == 1 else key < 0))
    ]  # fmt: skip
    t.insert_many(keys, range(len(keys)))
    t.delete_many(keys[::5])
    t.insert_many(keys[::10], 77)
    return t


RINGS: dict[str, dict[str, Any]] = {
    "ring": {"epsilon": 0.25},
    "ring-weights": {"epsilon": 0.1, "weights": {"b:1": 2.5, "d:1": 0.75}, "seed": 42},
    "ring-limit": {"limit": 40, "copies": 3, "policy": "clockwise", "seed": 2**64 - 1},
    "ring-sparse": {"epsilon": 0.5, "layout": "sparse", "array_bits": 10, "copies": 2, "policy": "rehash"},
    "ring-rehash-bin": {"epsilon": 1, "policy": "rehash", "rehash": "bin"},
    "ring-plain": {"policy": "plain", "seed": 1},
}


def golden_ring(name: str) -> HashRing:
    """Build the ring of that name: keys, a node that failed, one that left, one that came lazily."""
    ring = study_ring(["a:1", "b:1", "c:1", "d:1", "é:1"], **RINGS[name])
    ring.assign_many(KEYS)
    ring.mark_down("b:1")
    ring.remove_node("c:1")
    ring.add_node("f:1", 1.5, move="lazy")
    ring.release_many(KEYS[::7])
    ring.assign_many(KEYS[::3])
    ring.drain("a:1")
    return ring


def _flipped(data: bytes, byte: int, bit: int) -> bytes:
    return data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]


def _with(data: bytes, field: int, value: int) -> bytes:
    """Change a field of the header, by its number in the table of docs/format.md; the checksum is right."""
    fields = list(FIXED.unpack_from(data))
    fields[field] = value
    header = FIXED.pack(*fields) + data[FIXED.size : 120]
    return header + CHECKSUM.pack(xxh3_64(header)) + data[128:]


def _words_with(name: str, word: int, value: int) -> bytes:
    """Change a word of the payload, behind a header of 192 bytes, counted from its end if negative."""
    data = golden_filter(name).to_bytes()
    words = list(struct.unpack(f"<{(len(data) - 192) // 8}Q", data[192:]))
    words[word] = value
    payload = struct.pack(f"<{len(words)}Q", *words)
    fields = list(FIXED.unpack_from(data))
    fields[9] = xxh3_64(payload)
    header = FIXED.pack(*fields) + data[FIXED.size : 184]
    return header + CHECKSUM.pack(xxh3_64(header)) + payload


def _out_of_reach() -> bytes:
    """Move a key of a list to the end of another line, behind empty slots, where no look-up comes."""
    data = golden_filter("balanced-single").to_bytes()
    slots = list(struct.unpack("<64Q", data[192 + 192 : 192 + 192 + 512]))
    lines = [slots[i : i + 8] for i in range(0, 64, 8)]
    source = next(i for i, line in enumerate(lines) if line[0] and not line[7])
    target = next(i for i, line in enumerate(lines) if i != source and not line[6] and not line[7])
    lines[target][7], lines[source][0] = lines[source][0], 0
    body = struct.pack("<64Q", *(slot for line in lines for slot in line))
    payload = data[192:384] + body + data[384 + 512 :]
    fields = list(FIXED.unpack_from(data))
    fields[9] = xxh3_64(payload)
    header = FIXED.pack(*fields) + data[FIXED.size : 184]
    return header + CHECKSUM.pack(xxh3_64(header)) + payload


def _spare_bit() -> bytes:
    data = golden_filter("standard-odd-bits").to_bytes()  # 923 bits in 15 words
    payload = _flipped(data[128:], 119, 7)
    return _with(data[:128] + payload, 9, xxh3_64(payload))


_BLOCKED = golden_filter("blocked-512").to_bytes()
_BALANCED = golden_filter("balanced-single").to_bytes()
_GROWING = golden_filter("growing").to_bytes()
_COUNTING = golden_filter("counting").to_bytes()


def _spare_counter() -> bytes:
    payload = _flipped(_COUNTING[128:], 503, 7)  # 1001 counters in 504 bytes
    return _with(_COUNTING[:128] + payload, 9, xxh3_64(payload))


_FINGERPRINT = golden_filter("fingerprint").to_bytes()


def _fingerprint_core(place: int, value: int) -> bytes:
    """Change a number of the core; the header's checksum is right."""
    at = FIXED.size + 8 * place
    header = _FINGERPRINT[:at] + struct.pack("<Q", value) + _FINGERPRINT[at + 8 : 184]
    return header + CHECKSUM.pack(xxh3_64(header)) + _FINGERPRINT[192:]


_WINDOW = golden_window("window").to_bytes()


def _window_with(place: int, value: int, *, core: bool = False) -> bytes:
    """Change a word of the core, or of the payload; the checksums are right."""
    at = FIXED.size + 8 * place if core else 192 + 8 * place
    data = _WINDOW[:at] + struct.pack("<Q", value % 2**64) + _WINDOW[at + 8 :]
    fields = list(FIXED.unpack_from(data))
    fields[9] = xxh3_64(data[192:])
    header = FIXED.pack(*fields) + data[FIXED.size : 184]
    return header + CHECKSUM.pack(xxh3_64(header)) + data[192:]


_FUSE = golden_fuse("fuse").to_bytes()


def _fuse_core(place: int, value: int) -> bytes:
    """Change a number of the core; the header's checksum is right."""
    at = FIXED.size + 8 * place
    return _with(_FUSE[:at] + struct.pack("<Q", value) + _FUSE[at + 8 :], 1, 1)


def _fuse_spare(name: str, byte: int) -> bytes:
    """Set a bit of the payload that belongs to no slot and to no block; checksums are right."""
    data = golden_fuse(name).to_bytes()
    payload = _flipped(data[128:], byte % (len(data) - 128), 7)
    return _with(data[:128] + payload, 9, xxh3_64(payload))


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
    "kind-9": (_with(_BLOCKED, 2, 9), "no possible filter"),  # a kind that was unknown once
    "kind-99": (_with(_BLOCKED, 2, 99), "unknown kind 99"),
    "hash-9": (_with(_BLOCKED, 3, 9), "hash 9"),
    "hashing-1": (_with(_BLOCKED, 4, 1), "lane hashing"),
    "capacity-0": (_with(_BLOCKED, 6, 0), "capacity"),
    "huge-core-count": (_with(_BLOCKED, 10, 2**61), "contradict"),
    "huge-blocks": (_with(_BLOCKED[:72] + struct.pack("<Q", 2**47) + _BLOCKED[80:], 8, 2**53), "cut short"),
    "spare-bit": (_spare_bit(), "beyond the last"),
    "balanced-cut": (_BALANCED[:-64], "cut short"),
    "balanced-flipped": (_flipped(_BALANCED, 300, 3), "payload's checksum"),
    "balanced-load": (_words_with("balanced-single", 7, 31 << 59), "load"),
    "balanced-padding": (_words_with("balanced-single-random", 23, 1), "padding"),
    "balanced-list-count": (_words_with("balanced-single", -7, 1), "as many keys"),
    "balanced-list-limit": (_words_with("balanced-single", -7, 41), "limit"),
    "balanced-out-of-reach": (_out_of_reach(), "cannot be found"),
    "balanced-flags": (_words_with("balanced-single", -5, 2), "flags"),
    "balanced-reserved": (_words_with("balanced-single", -1, 1), "reserved"),
    "growing-cut": (_GROWING[:-64], "cut short"),
    "counting-cut": (_COUNTING[:-8], "cut short"),
    "counting-flipped": (_flipped(_COUNTING, 200, 3), "payload's checksum"),
    "counting-spare": (_spare_counter(), "beyond the last"),
    "counting-hashing": (_with(_COUNTING, 4, 2), "independent hashing"),
    "counting-3-bits": (_with(_COUNTING[:80] + struct.pack("<Q", 3) + _COUNTING[88:], 6, 70), "counter_bits"),
    "counting-part-of-a-block": (
        _with(_COUNTING[:96] + struct.pack("<Q", 512) + _COUNTING[104:], 4, 2),
        "whole blocks",
    ),
    "fingerprint-cut": (_FINGERPRINT[:-8], "cut short"),
    "fingerprint-flipped": (_flipped(_FINGERPRINT, 300, 3), "payload's checksum"),
    "fingerprint-lines": (_fingerprint_core(0, 24), "multiple of 16 groups"),
    "fingerprint-29-bits": (_fingerprint_core(1, 29), "remainder must be"),
    "fingerprint-31-quotients": (_fingerprint_core(2, 31), "quotients must be"),
    "fingerprint-group": (_fingerprint_core(3, 0), "group must be"),
    "fingerprint-limit": (_fingerprint_core(5, 0), "limit must be"),
    "fingerprint-set-of-copies": (_fingerprint_core(6, 1), "repeated fingerprints"),
    "fingerprint-doublings": (_fingerprint_core(7, 25), "four bits"),
    "fingerprint-copies": (_words_with("fingerprint", 0, 231), "number of copies"),
    "fingerprint-state": (_words_with("fingerprint", 3, 1), "unused words"),
    "fingerprint-line": (_words_with("fingerprint", 8, 2**64 - 1), "is damaged"),
    "fingerprint-rest": (_words_with("fingerprint", -300, 2**63), "in order|too large"),
    "fingerprint-after-the-rest": (_words_with("fingerprint", -1, 1), "unused words"),
    "window-cut": (_WINDOW[:-8], "cut short"),
    "window-flipped": (_flipped(_WINDOW, 300, 3), "payload's checksum"),
    "window-24-bits": (_window_with(1, 24, core=True), "remainder must be"),
    "window-steps": (_window_with(6, 0, core=True), "steps must be"),
    "window-length": (_window_with(7, 7, core=True), "window must be"),
    "window-counted": (_window_with(8, 2, core=True), "counted must be"),
    "window-slots": (_window_with(0, 1), "number of copies"),
    "window-additions": (_window_with(1, 1), "unused words"),
    "window-now": (_window_with(3, 2**60), "impossible"),
    "window-turn": (_window_with(4, -(2**20)), "steps of the turns"),
    "window-next-line": (_window_with(6, 17), "does not exist"),
    "window-line": (_window_with(8, 2**64 - 1), "is damaged"),
    "fuse-cut": (_FUSE[:-8], "cut short"),
    "fuse-flipped": (_flipped(_FUSE, 200, 3), "payload's checksum"),
    "fuse-hashing": (_with(_FUSE, 4, 2), "independent hashing"),
    "fuse-blocks-0": (_fuse_core(0, 0), "blocks must be"),
    "fuse-blocks-of-short-segments": (_fuse_core(0, 2), "several blocks"),
    "fuse-length-24": (_fuse_core(1, 24), "power of two"),
    "fuse-2-segments": (_fuse_core(2, 2), "segments must be"),
    "fuse-33-bits": (_fuse_core(3, 33), "bits must be"),
    "fuse-keys": (_fuse_core(4, 71), "number of keys"),
    "fuse-fingerprints": (_fuse_core(5, 69), "at most the fingerprints"),
    "fuse-spare": (_fuse_spare("fuse-13-bits", 247), "beyond the last slot"),
    "fuse-attempts": (_fuse_spare("fuse-blocks", -1), "beyond the last block"),
    "growing-flipped": (_flipped(_GROWING, 700, 3), "payload's checksum"),
}


def main() -> None:
    """Write the files that are missing, and their checksums."""
    wanted = {f"{name}.evenbins": golden_filter(name).to_bytes() for name in FILTERS}
    wanted |= {f"{name}.evenbins": golden_fuse(name).to_bytes() for name in FUSED}
    wanted |= {f"{name}.evenbins": golden_window(name).to_bytes() for name in WINDOWS}
    wanted |= {f"{name}.evenbins": golden_sketch(name).to_bytes() for name in SKETCHES}
    wanted |= {f"{name}.evenbins": golden_distinct(name).to_bytes() for name in DISTINCT}
    wanted |= {f"{name}.evenbins": golden_hitters(name).to_bytes() for name in HITTERS}
    wanted |= {f"{name}.evenbins": golden_deduplicator(name).to_bytes() for name in DEDUPLICATORS}
    wanted |= {f"{name}.evenbins": golden_table(name).to_bytes() for name in TABLES}
    wanted |= {f"{name}.evenbins": golden_set(name).to_bytes() for name in SETS}
    wanted |= {f"{name}.evenbins": golden_chained(name).to_bytes() for name in CHAINED}
    wanted |= {f"{name}.evenbins": golden_summary(name).to_bytes() for name in SUMMARIES}
    wanted |= {f"{name}.evenbins": golden_ring(name).to_bytes() for name in RINGS}
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
