"""The pure-Python twins by themselves: digests, filters and the file format."""

from __future__ import annotations

import array
import enum
import random
import struct
from collections.abc import Callable

import numpy as np
import pytest
import xxhash

from reference import ReferenceBlocked, ReferenceBloom, digest, mix, mulhi, splitmix
from reference.bloom import ReferenceFilter
from reference.format import Parsed, pack, unpack

Make = Callable[[], ReferenceFilter]

FILTERS: dict[str, Make] = {
    "one bit": lambda: ReferenceBloom(1, 1),
    "standard": lambda: ReferenceBloom(1003, 7, seed=5),
    "most hashes": lambda: ReferenceBloom(4096, 64),
    "one block": lambda: ReferenceBlocked(1, 256, 1),
    "blocked 256": lambda: ReferenceBlocked(5, 256, 16, seed=5),
    "blocked 512": lambda: ReferenceBlocked(3, 512, 32, seed=2**64 - 1),
}
each_filter = pytest.mark.parametrize("make", FILTERS.values(), ids=FILTERS.keys())
KEYS: list[object] = ["", "a", b"b", "ключ", 0, 1, -1, 2**64 - 1, -(2**63), *range(1000, 1020)]


# Digests.


def test_splitmix_gives_the_published_sequence() -> None:
    """Seed 1234567: the sequence with which splitmix64 implementations are commonly checked."""
    assert [splitmix(1234567, i) for i in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
    assert splitmix(0, 0) == 0xE220A8397B1DCDAF == mix(0x9E3779B97F4A7C15)


def test_mulhi_covers_its_range_evenly() -> None:
    assert [mulhi(x << 62, 4) for x in range(4)] == [0, 1, 2, 3]
    assert mulhi(0, 7) == 0
    assert mulhi(2**64 - 1, 7) == 6


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
@pytest.mark.parametrize("text", ["", "a", "ключ", "\0", "x" * 300])
def test_a_str_is_its_utf8_bytes(text: str, seed: int) -> None:
    data = text.encode()
    expected = xxhash.xxh3_64_intdigest(data, seed)
    same: list[object] = [
        text, data, bytearray(data), memoryview(data), array.array("B", data), np.str_(text),
    ]  # fmt: skip
    assert {digest(key, seed) for key in same} == {expected}


def name_of(key: object) -> str:
    """Give a name without an address, the same in every process."""
    return repr(key).partition(" object at")[0]


class Number:
    """An integer by `__index__` alone."""

    def __index__(self) -> int:
        return 1


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "key", [True, Number(), Colour.RED, np.True_, np.int8(1), np.uint64(1), np.int64(1)], ids=name_of
)
def test_everything_that_holds_one_is_one(key: object) -> None:
    assert digest(key, 3) == digest(1, 3)


def test_numpy_scalars_keep_their_sign() -> None:
    assert digest(np.int64(-1)) == digest(np.int8(-1)) == digest(-1)
    assert digest(np.uint64(2**64 - 1)) == digest(2**64 - 1) != digest(-1)


def test_integers_agree_with_numpy_arithmetic() -> None:
    """The definition once more, on real 64-bit words."""
    rng = random.Random(1)
    for x in [0, 1, 2**63, 2**64 - 1, -1, -(2**63), *(rng.getrandbits(64) for _ in range(100))]:
        for seed in (0, rng.getrandbits(64)):
            with np.errstate(over="ignore"):
                z = np.uint64(x % 2**64) ^ np.uint64(splitmix(seed, 0 if x >= 0 else 2))
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x3C79AC492BA7B653)
                z = z + np.uint64(splitmix(seed, 1))
                z = (z ^ (z >> np.uint64(33))) * np.uint64(0x1C69B3F74AC4AE35)
                assert digest(x, seed) == int(z ^ (z >> np.uint64(27)))


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_no_two_small_keys_meet(seed: int) -> None:
    """Integers of both signs, their 64-bit patterns, their bytes and their digits."""
    numbers = {*range(-300, 300), *(x % 2**64 for x in range(-300, 0)), 2**63, -(2**63)}
    strings = {str(x).encode() for x in numbers} | {bytes([x]) for x in range(256)}
    strings |= {struct.pack("<q", x) for x in range(-300, 300)}
    distinct: list[object] = [*numbers, *strings]
    assert len({digest(key, seed) for key in distinct}) == len(distinct)


@pytest.mark.parametrize(
    "key",
    [
        None, 1.0, 1j, (), [1], {1}, object(), int, np.int64,
        np.float64(1), np.float32(1), np.datetime64(1, "ns"), np.timedelta64(1, "ns"),
        np.void(b"a"), np.array(1), np.array([1]), np.zeros(3, np.uint8), np.array("a"),
        array.array("i", [1]),
    ],
    ids=name_of,
)  # fmt: skip
def test_anything_else_is_a_type_error(key: object) -> None:
    with pytest.raises(TypeError):
        digest(key)


@pytest.mark.parametrize(
    "key",
    [2**64, -(2**63) - 1, 10**5000, "\ud800", "a\udfff"],
    ids=lambda key: ascii(key) if isinstance(key, str) else hex(key)[:20],
)
def test_what_has_no_64_bits_or_no_utf8_is_a_value_error(key: object) -> None:
    with pytest.raises(ValueError, match=r"^key must be"):
        digest(key)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_is_an_unsigned_word(seed: int) -> None:
    with pytest.raises(ValueError, match=r"^seed must be"):
        digest("a", seed)
    with pytest.raises(ValueError, match=r"^seed must be"):
        ReferenceBloom(8, 1, seed)


# Filters.


@each_filter
def test_an_empty_filter_contains_nothing(make: Make) -> None:
    empty = make()
    assert empty.set_bits() == 0
    assert not any(key in empty for key in KEYS)


@each_filter
def test_no_key_is_ever_lost_and_bits_only_grow(make: Make) -> None:
    f = make()
    for count, key in enumerate(KEYS, start=1):
        before = int.from_bytes(f.payload(), "little")
        f.add(key)
        after = int.from_bytes(f.payload(), "little")
        assert before & ~after == 0
        assert f.set_bits() == after.bit_count()
        assert all(known in f for known in KEYS[:count])


@each_filter
def test_order_and_repetition_leave_no_trace(make: Make) -> None:
    forth, back = make(), make()
    for key in KEYS:
        forth.add(key)
    for key in [*reversed(KEYS), *KEYS]:
        back.add(key)
    assert forth.payload() == back.payload()


@each_filter
def test_a_merge_is_the_union_of_the_adds(make: Make) -> None:
    left, right, both = make(), make(), make()
    for i, key in enumerate(KEYS):
        (left if i % 3 else right).add(key)
        both.add(key)
    untouched = right.payload()
    left.merge(right)
    assert left.payload() == both.payload()
    assert right.payload() == untouched


@each_filter
def test_a_key_and_its_digest_set_the_same_bits(make: Make) -> None:
    by_key, by_digest = make(), make()
    for key in KEYS:
        by_key.add(key)
        by_digest.add_digest(digest(key, by_key.seed))
        assert by_key.contains_digest(digest(key, by_key.seed))
    assert by_key.payload() == by_digest.payload()


@each_filter
@pytest.mark.parametrize("word", [0, 1, 2**64 - 1])
def test_positions_stay_inside_at_the_ends(make: Make, word: int) -> None:
    f = make()
    f.add_digest(word)
    assert f.contains_digest(word)
    if isinstance(f, ReferenceBloom):
        assert len(f.payload()) == (f.bits + 63) // 64 * 8
        assert max(f.positions(word)) < f.bits
    if isinstance(f, ReferenceBlocked):
        assert len(f.payload()) == f.blocks * f.block_bits // 8
        assert len({p // f.block_bits for p in f.positions(word)}) == 1


def test_positions_are_frozen() -> None:
    """Files outlive programs: these numbers may never change."""
    word = 0xFEDCBA9876543210
    assert list(ReferenceBloom(1000, 5).positions(word)) == [480, 35, 670, 639, 191]
    assert list(ReferenceBlocked(10, 256, 18).positions(word)) == [
        2457,
        2453,
        2370,
        2470,
        2492,
        2478,
        2393,
        2454,
        2343,
        2444,
        2372,
        2503,
        2405,
        2347,
        2530,
        2318,
        2387,
        2514,
    ]
    assert list(ReferenceBlocked(10, 512, 18).positions(word)) == [
        4915,
        4906,
        4741,
        4941,
        4984,
        4957,
        4787,
        4909,
        4687,
        4889,
        4744,
        5007,
        4810,
        4694,
        5061,
        4637,
        4775,
        5028,
    ]
    assert [digest(key, 1) for key in (0, 1, -1, "a")] == [
        12555273581560815948,
        15496918464395077889,
        1576132972692767318,
        15201566949650179872,
    ]


def test_a_bit_is_counted_from_the_low_end_of_its_byte() -> None:
    f = ReferenceBloom(1000, 1)
    f.add("key")
    (p,) = f.positions(digest("key"))
    assert int.from_bytes(f.payload(), "little") == 1 << p


@pytest.mark.parametrize(
    "other",
    [
        ReferenceBloom(101, 3), ReferenceBloom(100, 4), ReferenceBloom(100, 3, 1),
        ReferenceBlocked(1, 256, 3),
    ],
    ids=["bits", "hashes", "seed", "kind"],
)  # fmt: skip
def test_a_merge_of_different_filters_is_refused(other: ReferenceFilter) -> None:
    with pytest.raises(ValueError, match=r"^other must have"):
        ReferenceBloom(100, 3).merge(other)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: ReferenceBloom(0, 1), "bits"),
        (lambda: ReferenceBloom(2**64, 1), "bits"),
        (lambda: ReferenceBloom(8, 0), "hashes"),
        (lambda: ReferenceBloom(8, 65), "hashes"),
        (lambda: ReferenceBlocked(0, 256, 1), "blocks"),
        (lambda: ReferenceBlocked(1, 128, 1), "block_bits"),
        (lambda: ReferenceBlocked(1, 512, 33), "hashes"),
    ],
)
def test_constructors_name_the_bad_argument(make: Make, argument: str) -> None:
    with pytest.raises(ValueError, match=f"^{argument} must be"):
        make()


# The file format.


def filled(f: ReferenceFilter) -> ReferenceFilter:
    for key in KEYS:
        f.add(key)
    return f


def file_of(f: ReferenceFilter, capacity: int = 20) -> bytes:
    return pack(f.kind, f.hashing, f.seed, capacity, f.core, f.payload())


SMALL = {
    "standard": file_of(filled(ReferenceBloom(100, 3, seed=9))),
    "blocked": file_of(filled(ReferenceBlocked(1, 256, 4, seed=9))),
}
each_small_file = pytest.mark.parametrize("data", SMALL.values(), ids=SMALL.keys())


@each_filter
def test_a_file_says_what_was_packed(make: Make) -> None:
    f = filled(make())
    data = file_of(f)
    assert unpack(data) == Parsed(f.kind, f.hashing, f.seed, 20, f.core, f.payload())
    assert data[-len(f.payload()) :] == f.payload()


def test_the_header_lies_as_the_table_says() -> None:
    payload = bytes(range(12)) + b"\x0f\0\0\0"  # 100 bits
    data = pack(1, 1, 2, 3, [100, 7], payload)
    assert len(data) == 128 + 16
    assert data[:24] == b"EVENBINS" + struct.pack("<IIII", 1, 1, 1, 1)
    assert data[24:88] == struct.pack("<8Q", 2, 3, 128, 16, xxhash.xxh3_64_intdigest(payload), 2, 100, 7)
    assert data[88:120] == bytes(32)
    assert data[120:128] == struct.pack("<Q", xxhash.xxh3_64_intdigest(data[:120]))
    assert data[128:] == payload


@each_small_file
def test_every_flipped_bit_is_refused(data: bytes) -> None:
    for bit in range(8 * len(data)):
        with pytest.raises(ValueError):  # noqa: PT011 - the message depends on the field
            unpack(flipped(data, bit))


@each_small_file
def test_every_truncation_is_refused(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"^file too short"):
            unpack(data[:length])


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def sealed(data: bytes) -> bytes:
    """Forge both checksums, so that the checks behind them are reached."""
    payload = data[128:]
    header = data[:56] + struct.pack("<Q", xxhash.xxh3_64_intdigest(payload)) + data[64:120]
    return header + struct.pack("<Q", xxhash.xxh3_64_intdigest(header)) + payload


def patched(data: bytes, offset: int, layout: str, value: int) -> bytes:
    field = struct.pack(layout, value)
    return sealed(data[:offset] + field + data[offset + len(field) :])


@each_small_file
def test_every_flipped_header_bit_is_refused_under_a_forged_checksum(data: bytes) -> None:
    """All but the seed, the capacity and the core, which only the checksum can guard; nor can a standard
    filter's hashing be told from another."""
    core_words = len(unpack(data).core)
    sure = 20 if unpack(data).kind == 1 else 24
    for byte in [*range(sure), *range(40, 56), *range(64, 72), *range(72 + 8 * core_words, 120)]:
        for bit in range(8 * byte, 8 * byte + 8):
            with pytest.raises(ValueError):  # noqa: PT011 - the message depends on the field
                unpack(sealed(flipped(data, bit)))


STANDARD, BLOCKED = SMALL["standard"], SMALL["blocked"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "file too short: 0 bytes"),
        (b"EVENBIN", "file too short: 7 bytes"),
        (b"not a filter at all", "not an evenbins file: it starts with b'not a fi'"),
        (STANDARD[:11], "file too short: 11 bytes, no version"),
        (patched(STANDARD, 8, "<I", 2), "unknown version 2"),
        (STANDARD[:8] + b"\x02\0\0\0", "unknown version 2"),  # before the rest is even read
        (STANDARD[:71], "file too short: 71 bytes, the header"),
        (patched(STANDARD, 40, "<Q", 192), "header damaged: size 192 does not fit 2 core words"),
        (patched(STANDARD, 40, "<Q", 0), "header damaged: size 0"),
        (patched(STANDARD, 64, "<Q", 2**64 - 1), "header damaged: size 128 does not fit 18446"),
        (STANDARD[:127], "file too short: 127 bytes, the header alone has 128"),
        (flipped(STANDARD, 8 * 24), "header damaged: its checksum"),
        (patched(STANDARD, 112, "<Q", 1), "header damaged: its padding"),
        (patched(STANDARD, 12, "<I", 0), "unknown kind 0"),
        (patched(STANDARD, 12, "<I", 99), "unknown kind 99"),
        (patched(STANDARD, 16, "<I", 2), "unknown hash id 2"),
        (patched(STANDARD, 20, "<I", 2), "unknown hashing 2: kind 1 has hashing 1"),
        (patched(BLOCKED, 20, "<I", 3), "unknown hashing 3: kind 2 has hashing 2"),
        (patched(STANDARD, 72, "<Q", 0), r"invalid core \[0, 3\]: kind 1 has"),
        (patched(STANDARD, 80, "<Q", 65), r"invalid core \[100, 65\]"),
        (patched(STANDARD, 64, "<Q", 3), r"invalid core \[100, 3, 0\]: kind 1"),
        (patched(BLOCKED, 80, "<Q", 128), r"invalid core \[1, 128, 4\]: kind 2 has"),
        (patched(BLOCKED, 88, "<Q", 33), r"invalid core \[1, 256, 33\]"),
        (patched(STANDARD, 48, "<Q", 24), r"payload size 24 disagrees with .*: 16 bytes"),
        (patched(STANDARD, 72, "<Q", 129), r"payload size 16 disagrees with .*: 24 bytes"),
        (patched(BLOCKED, 72, "<Q", 2**62), "payload size 32 disagrees"),
        (STANDARD[:-1], "file too short: 1 bytes of the payload are missing"),
        (STANDARD + b"\0", "file too long: 1 bytes after the payload"),
        (flipped(STANDARD, 8 * 128), "payload damaged: its checksum"),
        (sealed(flipped(STANDARD, 8 * 128 + 100)), "payload damaged: spare bits"),
        (sealed(flipped(STANDARD, 8 * 128 + 127)), "payload damaged: spare bits"),
    ],
)
def test_each_defect_is_named(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        unpack(data)


def test_a_forged_file_that_is_consistent_is_read() -> None:
    """The forger of these tests is sound: what it leaves intact is accepted."""
    assert sealed(STANDARD) == STANDARD
    assert sealed(BLOCKED) == BLOCKED
    assert unpack(patched(STANDARD, 32, "<Q", 77)).capacity == 77


@pytest.mark.parametrize(
    ("kind", "hashing", "core", "payload"),
    [
        (3, 1, [100, 3], bytes(16)),
        (1, 2, [100, 3], bytes(16)),
        (1, 1, [100, 0], bytes(16)),
        (1, 1, [100, 3], bytes(8)),
        (1, 1, [100, 3], b"\xff" * 16),
    ],
    ids=["kind", "hashing", "core", "size", "spare bits"],
)
def test_what_could_not_be_read_is_not_written(
    kind: int, hashing: int, core: list[int], payload: bytes
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the messages are tested above
        pack(kind, hashing, 0, 1, core, payload)
