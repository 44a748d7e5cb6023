"""What is a key, and its digest: the compiled core against its twin in `reference/` and PyPI's xxhash."""

from __future__ import annotations

import array
import ctypes
import datetime
import decimal
import enum
import fractions
import io
import itertools
import mmap
import operator
import pickle
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xxhash

import evenbins
import reference
from evenbins import BloomFilter, KeyRangeError, _core, digest, digest_many

SEEDS = [0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF]
each_seed = pytest.mark.parametrize("seed", SEEDS, ids=hex)

ALPHABETS = {"ascii": "abc xyz", "latin-1": "aéÿ\x80", "bmp": "aéЖ東\uffff", "astral": "aЖ𝄞\U0010ffff"}
BORDERS = [
    -(2**63), -(2**63) + 1, -(2**32), -(2**31), -2, -1, 0, 1, 2, 2**31, 2**32 - 1, 2**32,
    2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1,
]  # fmt: skip


class Text(str):
    pass


class Raw(bytes):
    pass


class Number(int):
    """A subclass that lies about its index: what counts is the int that it is."""

    def __index__(self) -> int:
        return 99


class Index:
    """An integer by `__index__` alone."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value  # type: ignore[no-any-return]


class Colour(enum.IntEnum):
    RED = 7


class Shade(enum.StrEnum):
    DARK = "dark"


# --- strings and bytes ---------------------------------------------------------------------------------


@each_seed
@pytest.mark.parametrize("letters", ALPHABETS.values(), ids=ALPHABETS.keys())
def test_a_str_is_its_utf8_bytes(letters: str, seed: int) -> None:
    """Every way in which CPython stores a str; lengths across all branches of XXH3."""
    rng = random.Random(seed)
    for n in [*range(40), 127, 128, 129, 240, 241, 255, 256, 257, 1023, 1024, 1025]:
        text = letters[-1] + "".join(rng.choices(letters, k=n))
        assert digest(text, seed) == digest(text.encode(), seed) == reference.digest(text, seed)
    assert digest("", seed) == digest(b"", seed) == reference.digest("", seed)


def test_every_code_point_is_encoded_as_utf8_says() -> None:
    points = [*range(0x1000), *range(0xD700, 0xD800), *range(0xE000, 0xE100), *range(0xFF00, 0x10100), 2**20]
    texts = [chr(point) for point in points]
    assert digest_many(texts).tolist() == digest_many([text.encode() for text in texts]).tolist()


def strided() -> memoryview:
    return memoryview(b"k.e.y. .o.f. .b.y.t.e.s.")[::2]


def mapped() -> mmap.mmap:
    found = mmap.mmap(-1, 12)
    found[:] = b"key of bytes"
    return found


BYTES_LIKE: dict[str, Callable[[], Any]] = {
    "bytes": lambda: b"key of bytes",
    "subclass": lambda: Raw(b"key of bytes"),
    "bytearray": lambda: bytearray(b"key of bytes"),
    "memoryview": lambda: memoryview(b"key of bytes"),
    "slice": lambda: memoryview(b"a key of bytes.")[2:-1],
    "strided": strided,
    "backwards": lambda: memoryview(b"setyb fo yek")[::-1],
    "two dimensions": lambda: memoryview(b"key of bytes").cast("B", (3, 4)),
    "signed": lambda: memoryview(b"key of bytes").cast("b"),
    "array": lambda: array.array("B", b"key of bytes"),
    "ctypes": lambda: (ctypes.c_ubyte * 12)(*b"key of bytes"),
    "buffer": lambda: io.BytesIO(b"key of bytes").getbuffer(),
    "pickle buffer": lambda: pickle.PickleBuffer(b"key of bytes"),
    "mmap": mapped,
    "numpy bytes": lambda: np.bytes_(b"key of bytes"),
    "view of an array": lambda: np.frombuffer(b"key of bytes", np.uint8).data,
    "fortran order": lambda: np.asfortranarray(np.frombuffer(b"key of bytes", np.uint8).reshape(3, 4)).data,
    "str": lambda: "key of bytes",
    "str subclass": lambda: Text("key of bytes"),
    "numpy str": lambda: np.str_("key of bytes"),
}


@pytest.mark.parametrize("make", BYTES_LIKE.values(), ids=BYTES_LIKE.keys())
def test_all_that_holds_the_same_bytes_is_the_same_key(make: Callable[[], Any]) -> None:
    expected = reference.digest(b"key of bytes", 5)
    assert digest(make(), 5) == expected
    assert digest_many([make()], 5).tolist() == [expected]
    f = BloomFilter(100, fpr=1e-6)
    assert make() not in f
    f.add(make())
    assert make() in f
    assert b"key of bytes" in f


def test_enums_are_what_they_hold() -> None:
    assert digest(Colour.RED) == digest(7)
    assert digest(Shade.DARK) == digest("dark") == digest(b"dark")


def test_a_buffer_of_wider_items_is_refused() -> None:
    for key in (array.array("i", [1]), memoryview(array.array("d", [1.0])), memoryview(np.arange(3))):
        with pytest.raises(TypeError, match=r"one byte.*bytes\(key\)"):
            digest(key)


def test_a_key_is_not_kept() -> None:
    """A bytearray can be resized afterwards, so its buffer was given back."""
    key = bytearray(b"abc")
    f = BloomFilter(10)
    f.add(key)
    assert key in f
    digest(key)
    with pytest.raises(TypeError):
        digest(memoryview(key + b"d").cast("H"))
    key += b"d"


@pytest.mark.parametrize("key", ["a\ud800", "b\udfffb", "c\udc80", "𝄞\ud834", "é\udcff"], ids=ascii)
def test_a_lone_surrogate_is_a_value_error_whose_advice_works(key: str) -> None:
    f = BloomFilter(10)
    for call in (digest, f.add, f.__contains__):
        with pytest.raises(ValueError, match="surrogate") as caught:
            call(key)
        assert not isinstance(caught.value, UnicodeError)
        handler = re.search(r"key\.encode\('utf-8', '(\w+)'\)", str(caught.value))
        assert handler, caught.value
        f.add(key.encode("utf-8", handler[1]))
    assert not f._read_only


# --- integers ------------------------------------------------------------------------------------------


@each_seed
def test_integers_have_the_digests_of_the_twin(seed: int) -> None:
    rng = random.Random(seed)
    numbers = BORDERS + [rng.getrandbits(64) for _ in range(500)] + [-rng.getrandbits(63) for _ in range(500)]
    expected = [reference.digest(x, seed) for x in numbers]
    assert [digest(x, seed) for x in numbers] == expected
    assert digest_many(numbers, seed).tolist() == expected


@each_seed
def test_minus_one_and_the_largest_integer_differ(seed: int) -> None:
    for x in (-1, -2, -(2**63)):
        assert digest(x, seed) != digest(x % 2**64, seed)
        assert digest(np.int64(x), seed) != digest(np.uint64(x % 2**64), seed)
        signed = digest_many(np.array([x]), seed)
        assert signed != digest_many(np.array([x]).view(np.uint64), seed)


@each_seed
def test_booleans_are_zero_and_one(seed: int) -> None:
    assert digest(True, seed) == digest(np.True_, seed) == digest(1, seed) == reference.digest(1, seed)
    assert digest(False, seed) == digest(np.False_, seed) == digest(0, seed) == reference.digest(0, seed)


WIDTHS = [
    np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.byte, np.ubyte, np.short, np.ushort, np.intc, np.uintc, np.long, np.ulong, np.longlong, np.ulonglong,
    np.intp, np.uintp,
]  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS, ids=lambda width: np.dtype(width).name + np.dtype(width).char)
def test_a_numpy_integer_is_the_int_it_holds(width: type[np.integer[Any]]) -> None:
    limits = np.iinfo(width)
    for value in {int(limits.min), int(limits.max), 0, 1, 100, max(-1, int(limits.min))}:
        assert digest(width(value), 3) == reference.digest(value, 3)


@pytest.mark.parametrize("value", [0, 7, -7, 2**63, 2**64 - 1, -(2**63)])
def test_an_object_with_an_index_is_that_int(value: int) -> None:
    assert digest(Index(value)) == digest(value)


def test_a_subclass_of_int_is_the_int_it_is() -> None:
    assert digest(Number(5)) == digest(5)
    assert digest(Number(2**64 - 1)) == digest(2**64 - 1)


def test_what_an_index_raises_is_passed_on() -> None:
    class Broken:
        def __index__(self) -> int:
            raise ZeroDivisionError("mine")

    f = BloomFilter(10)
    for call in (digest, f.add, f.__contains__):
        with pytest.raises(ZeroDivisionError, match="mine"):
            call(Broken())
        with pytest.raises(TypeError):
            call(Index("no int"))


@pytest.mark.parametrize(
    "key",
    [2**64, -(2**63) - 1, 10**100, -(10**100), 2**64 + 5, Number(2**64), Index(2**64), Index(-(2**63) - 1)],
    ids=lambda key: f"{type(key).__name__}-{hex(int(operator.index(key)))[:12]}",
)
def test_an_integer_out_of_range_is_a_key_range_error(key: Any) -> None:
    f = BloomFilter(10)
    for call in (digest, f.add, f.__contains__):
        with pytest.raises(KeyRangeError, match=r"-2\*\*63 \.\.\. 2\*\*64-1.*bytes"):
            call(key)
    with pytest.raises(KeyRangeError, match=r"keys\[1\]"):
        f.add_many([1, key])
    assert f == BloomFilter(10) | filled_with(1)


def filled_with(key: object) -> BloomFilter:
    f = BloomFilter(10)
    f.add(key)  # type: ignore[arg-type]
    return f


def test_a_key_range_error_is_both_a_value_error_and_a_type_error() -> None:
    assert issubclass(KeyRangeError, ValueError)
    assert issubclass(KeyRangeError, TypeError)
    assert KeyRangeError is evenbins.KeyRangeError is _core.KeyRangeError
    assert KeyRangeError.__module__ == "evenbins"


@each_seed
def test_an_int_and_bytes_never_meet(seed: int) -> None:
    """All bytes of length 0, 1 and 2, and the usual encodings, against 20,000 small integers of both signs.

    Two random sets of these sizes share a 64-bit digest with probability 1e-10.
    """
    numbers = range(-10_000, 10_000)
    texts = [bytes(pair) for n in range(3) for pair in itertools.product(range(256), repeat=n)]
    texts += [x.to_bytes(8, order, signed=True) for x in numbers for order in ("little", "big")]  # type: ignore[arg-type]
    texts += [str(x).encode() for x in numbers]
    of_numbers = set(digest_many(numbers, seed).tolist())
    of_texts = set(digest_many(texts, seed).tolist())
    assert len(of_numbers) == len(numbers)
    assert len(of_texts) == len(set(texts))
    assert not of_numbers & of_texts


# --- what is no key ------------------------------------------------------------------------------------

NO_KEYS: dict[str, tuple[object, str]] = {
    "float": (1.0, r"int\(key\).*repr\(key\)"),
    "nan": (float("nan"), "float"),
    "numpy float64": (np.float64(1), r"int\(key\)"),
    "numpy float32": (np.float32(1), "float32"),
    "numpy longdouble": (np.longdouble(1), "longdouble"),
    "complex": (1j, "complex"),
    "numpy complex": (np.complex128(1), "complex128"),
    "none": (None, "missing"),
    "list": ([1], "add_many"),
    "tuple": ((1, 2), "add_many"),
    "set": ({1}, "add_many"),
    "frozenset": (frozenset([1]), "frozenset"),
    "dict": ({"a": 1}, "dict"),
    "array": (np.array([1, 2]), "add_many or contains_many"),
    "array of one": (np.array([1]), "add_many or contains_many"),
    "array of bytes": (np.zeros(3, np.uint8), "add_many or contains_many"),
    "array of no dimension": (np.array(1), "add_many or contains_many"),
    "object": (object(), "object"),
    "type": (int, "type"),
    "ellipsis": (..., "ellipsis"),
    "datetime": (datetime.datetime(2024, 1, 1), "datetime"),
    "date": (datetime.date(2024, 1, 1), "date"),
    "numpy datetime64": (np.datetime64("2024-01-01"), "datetime64"),
    "numpy timedelta64": (np.timedelta64(1, "s"), "timedelta64"),
    "numpy void": (np.void(b"abc"), "void"),
    "decimal": (decimal.Decimal(1), "Decimal"),
    "fraction": (fractions.Fraction(1), "Fraction"),
    "generator": ((x for x in "ab"), "generator"),
    "range": (range(3), "range"),
}


@pytest.mark.parametrize(("key", "hint"), NO_KEYS.values(), ids=NO_KEYS.keys())
def test_anything_else_is_a_type_error_that_says_what_to_pass(key: Any, hint: str) -> None:
    f = BloomFilter(10)
    for call in (digest, f.add, f.__contains__):
        with pytest.raises(TypeError, match="a key must be str, bytes or int, not ") as caught:
            call(key)
        assert re.search(hint, str(caught.value))
        assert not isinstance(caught.value, KeyRangeError)
    with pytest.raises(TypeError, match=r"keys\[1\]: a key must be str, bytes or int, not "):
        f.add_many([0, key])
    assert f == filled_with(0)
    with pytest.raises(TypeError):
        reference.digest(key)


# --- seeds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [-1, 2**64, 10**100])
def test_a_seed_out_of_range_is_a_value_error(seed: int) -> None:
    for call in (digest, lambda key, seed: digest_many([key], seed)):
        with pytest.raises(ValueError, match=r"^seed must .*2\*\*64"):
            call("a", seed)


@pytest.mark.parametrize("seed", [None, 1.0, "1", b"1", [1]])
def test_a_seed_that_is_no_int_is_a_type_error(seed: Any) -> None:
    for call in (digest, lambda key, seed: digest_many([key], seed)):
        with pytest.raises(TypeError, match=r"^seed must be an int"):
            call("a", seed)


def test_a_seed_may_be_a_numpy_integer() -> None:
    assert digest("a", np.uint64(2**64 - 1)) == digest("a", 2**64 - 1)  # type: ignore[arg-type]
    assert digest("a", seed=3) == digest("a", 3) != digest("a")


def test_every_sort_of_key_depends_on_the_seed() -> None:
    for key in ("", "a", b"x" * 1000, 0, -1, 2**64 - 1):
        assert len({digest(key, seed) for seed in range(50)}) == 50


# --- XXH3 ----------------------------------------------------------------------------------------------


@each_seed
def test_xxh3_is_that_of_the_xxhash_package_for_every_length_to_2048(seed: int) -> None:
    data = random.Random(seed).randbytes(2048)
    for n in range(2049):
        part = data[:n]
        assert _core.xxh3_64(part, seed) == xxhash.xxh3_64_intdigest(part, seed), n
        assert _core.xxh3_128(part, seed) == xxhash.xxh3_128_intdigest(part, seed), n


@each_seed
def test_xxh3_of_long_inputs_and_of_unaligned_ones(seed: int) -> None:
    data = random.Random(seed).randbytes(70_000)
    for n in (4095, 4096, 4097, 8192, 16_385, 65_536, 69_990):
        for start in range(4):
            part = data[start : start + n]
            assert _core.xxh3_64(part, seed) == xxhash.xxh3_64_intdigest(part, seed)
            assert _core.xxh3_128(part, seed) == xxhash.xxh3_128_intdigest(part, seed)
            assert digest(memoryview(data)[start : start + n], seed) == xxhash.xxh3_64_intdigest(part, seed)


# --- many ----------------------------------------------------------------------------------------------


@each_seed
def test_digest_many_gives_the_digest_of_each(mixed_keys: list[Any], seed: int) -> None:
    found = digest_many(mixed_keys, seed)
    assert found.dtype == np.uint64
    assert found.tolist() == [digest(key, seed) for key in mixed_keys]
    assert found[:200].tolist() == [reference.digest(key, seed) for key in mixed_keys[:200]]


def test_digest_many_of_nothing_is_empty() -> None:
    for nothing in ([], (), iter(()), np.array([], np.int64), range(0)):
        found = digest_many(nothing)
        assert found.dtype == np.uint64
        assert found.shape == (0,)
