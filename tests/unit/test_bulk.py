"""Bulk calls: however keys arrive, digests, bytes and answers are those of single calls.

    NumPy     integers of any width, order, shape and strides; bool, S, U, StringDType, object; masked
    Arrow     pyarrow, Polars, pandas: strings, binary, integers, dictionaries; chunked, sliced, with nulls
    iterables lists, sets, generators, …; what fails in the middle
    calls     Ctrl-C, the GIL, memory

Every test is about exact equality: the same keys, by whatever route, leave the same bytes.
"""

from __future__ import annotations

import array
import collections
import contextlib
import functools
import gc
import itertools
import os
import re
import signal
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    GrowingFilter,
    KeyRangeError,
    MultilevelTable,
    column,
    digest,
    digest_many,
)
from evenbins.filters import plan_balanced, plan_blocked, plan_standard
from evenbins.study.levels import plan_levels

TEXTS = [
    "",
    "a",
    "é",
    "ключ",
    "東京",
    "𝄞",
    "thirteen chars",
    "x" * 300,
    *(f"key number {i}" for i in range(1500)),
]
RAW = [text.encode() for text in TEXTS]
NUMBERS = [0, 1, 2**63, 2**64 - 1, *range(100, 1600)]
SEED = 77


def balanced(capacity: int, *, bits_per_key: float, seed: int) -> BalancedBloomFilter:
    """Three levels and a list, all of which get keys: the order in which they come shows in the bytes."""
    blocks = int(capacity * bits_per_key / 512)
    plan = plan_levels(
        capacity, policy="multilevel", blocks=[blocks, blocks // 4, 2], thresholds=[15, 15, 15], hashes=11,
        coin=0.5, overflow_limit=capacity // 5, seed=seed,
    )  # fmt: skip
    return BalancedBloomFilter.from_plan(plan)


def single(keys: Any, *, cls: Any = BloomFilter) -> Any:
    """A filter that got the keys one by one."""
    f = cls(500, bits_per_key=20, seed=SEED)
    for key in keys:
        f.add(key)
    return f


def taken(keys: Any, *, cls: Any = BloomFilter, **options: Any) -> Any:
    """A filter that got the keys in one call."""
    f = cls(500, bits_per_key=20, seed=SEED)
    f.add_many(keys, **options)
    return f


def assert_keys(make: Callable[[], Any], keys: Any, shape: tuple[int, ...] | None = None) -> None:
    """What `make` gives stands for exactly these keys, in this order, in every bulk call."""
    keys = list(keys)
    shape = (len(keys),) if shape is None else shape
    found = digest_many(make(), SEED)
    assert found.shape == shape
    assert found.ravel().tolist() == [digest(key, SEED) for key in keys]
    for cls in (BloomFilter, BlockedBloomFilter, balanced):
        expected = single(keys, cls=cls)
        assert taken(make(), cls=cls) == expected
        assert taken(make(), cls=cls, threads=3) == expected
    half = single(keys[::2])
    for threads in (1, 3):
        answers = half.contains_many(make(), threads=threads)
        assert answers.shape == shape
        assert answers.ravel().tolist() == [key in half for key in keys]


def assert_refused(
    make: Callable[[], Any], error: type[Exception], match: str, before: Any = (), *, threads: int = 1
) -> None:
    """Every bulk call raises the error, and `before` are the keys that went in."""
    f = single(())
    for call in (
        lambda: f.add_many(make(), threads=threads),
        lambda: f.contains_many(make(), threads=threads),
        lambda: digest_many(make()),
    ):
        with pytest.raises(error, match=match):
            call()
    assert f == single(before)


# --- NumPy: integers -----------------------------------------------------------------------------------

WIDTHS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
each_width = pytest.mark.parametrize("width", WIDTHS)


def integers(width: str, n: int = 3000) -> np.ndarray[Any, Any]:
    """Random integers of all magnitudes, the limits first."""
    limits = np.iinfo(width)
    drawn = np.random.default_rng(3).integers(limits.min, limits.max, n, dtype=width, endpoint=True)
    drawn[:4] = [limits.min, limits.max, 0, 1]
    return drawn


@each_width
@pytest.mark.parametrize("order", "<>")
def test_integer_arrays_of_every_width_and_byte_order(width: str, order: str) -> None:
    keys = integers(width)
    assert_keys(lambda: keys.astype(order + width), keys.tolist())


@each_width
@pytest.mark.parametrize("step", [2, 3, -1, -2, 7])
def test_strided_and_backward_arrays(width: str, step: int) -> None:
    keys = integers(width)[::step]
    assert_keys(lambda: keys, keys.tolist())
    swapped = keys.astype(keys.dtype.newbyteorder())[::step]
    assert_keys(lambda: swapped, keys[::step].tolist())


LAYOUTS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "C order": lambda a: a.reshape(50, 60),
    "Fortran order": lambda a: np.asfortranarray(a.reshape(50, 60)),
    "transposed": lambda a: a.reshape(50, 60).T,
    "three dimensions": lambda a: a.reshape(10, 20, 15),
    "axes exchanged": lambda a: a.reshape(10, 20, 15).transpose(2, 0, 1),
    "a window": lambda a: a.reshape(50, 60)[3:-3, 5:41:4],
    "both axes backwards": lambda a: a.reshape(50, 60)[::-1, ::-1],
    "one column": lambda a: a.reshape(50, 60)[:, 7],
    "one column, kept": lambda a: a.reshape(50, 60)[:, 7:8],
    "broadcast rows": lambda a: np.broadcast_to(a[:60], (30, 60)),
    "broadcast columns": lambda a: np.broadcast_to(a[:60, None], (60, 30)),
    "one element, many times": lambda a: np.broadcast_to(a[0], (2000,)),
    "sliding windows": lambda a: np.lib.stride_tricks.sliding_window_view(a, 7)[::5],
    "new axes": lambda a: a[None, :, None],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("dtype", ["i8", ">i8", "u8", "i2", ">u4", "?", "S4", "U4", ">U4", "O"])
def test_any_shape_and_strides_are_read_in_c_order(layout: Any, dtype: str) -> None:
    numbers = integers("i2")
    keys = (numbers > 0) if dtype == "?" else numbers.view("u2").astype(dtype)
    view = layout(keys)
    assert_keys(lambda: view, view.ravel().tolist(), view.shape)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i4", "u2", ">i8", "U3", "S5"])
@pytest.mark.parametrize("shift", [1, 3, 4])
def test_unaligned_arrays(dtype: str, shift: int) -> None:
    keys = np.arange(40, 140).astype(dtype)
    raw = b"\xff" * shift + keys.tobytes()
    unaligned = np.frombuffer(raw, dtype=dtype, offset=shift)
    assert not unaligned.flags.writeable
    assert_keys(lambda: unaligned, keys.tolist())


def test_a_field_of_a_packed_record_array() -> None:
    records = np.zeros(2000, dtype=[("tag", "u1"), ("number", "i8"), ("text", "S3"), ("name", "U2")])
    records["number"] = np.arange(-1000, 1000)
    records["text"] = np.arange(2000) % 1000
    records["name"] = np.arange(2000) % 100
    for name in records.dtype.names or ():
        assert_keys(lambda name=name: records[name], records[name].tolist())


def test_a_read_only_array() -> None:
    keys = np.arange(100)
    keys.flags.writeable = False
    assert_keys(lambda: keys, range(100))


@pytest.mark.parametrize("dtype", [*WIDTHS, "?", "S3", "U3", "O", ">i8", "T"])
@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
def test_empty_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    keys = np.empty(shape, dtype=np.dtypes.StringDType() if dtype == "T" else dtype)
    assert_keys(lambda: keys, [], shape)
    assert_keys(lambda: keys.T, [], shape[::-1])


@pytest.mark.parametrize("order", "<>")
def test_minus_one_and_the_largest_integer_differ_in_arrays(order: str) -> None:
    signed, unsigned = np.array([-1], order + "i8"), np.array([2**64 - 1], order + "u8")
    assert digest_many(signed).tolist() == [digest(-1)]
    assert digest_many(unsigned).tolist() == [digest(2**64 - 1)]
    f = taken(signed)
    assert -1 in f
    assert 2**64 - 1 not in f


def test_bool_arrays_are_zeros_and_ones() -> None:
    keys = np.array([True, False] * 700)
    assert_keys(lambda: keys, keys.tolist())
    assert_keys(lambda: keys, keys.astype(int).tolist())
    odd = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)  # not as NumPy makes them, but as C may
    assert taken(odd) == single([0, 1])


@pytest.mark.parametrize(
    "n", [1, 2, 15, 16, 17, 127, 128, 129, 1023, 1024, 1025, 2048, 65_535, 65_536, 65_537]
)
def test_lengths_around_every_batch_size(n: int) -> None:
    keys = np.arange(n) * 3
    expected = single(range(0, 3 * n, 3), cls=BlockedBloomFilter)
    assert taken(keys, cls=BlockedBloomFilter) == expected
    assert taken(keys.tolist(), cls=BlockedBloomFilter) == expected
    probes = np.arange(n) * 2
    assert expected.contains_many(probes).tolist() == [x in expected for x in range(0, 2 * n, 2)]


# --- NumPy: text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", "<>")
def test_arrays_of_text(order: str) -> None:
    keys = np.array(TEXTS).astype(np.array(TEXTS).dtype.newbyteorder(order))
    assert_keys(lambda: keys, TEXTS)
    assert_keys(lambda: keys[::-3], TEXTS[::-3])


def test_arrays_of_bytes() -> None:
    assert_keys(lambda: np.array(RAW), RAW)
    assert_keys(lambda: np.array(RAW), TEXTS)
    assert_keys(lambda: np.array(RAW)[::-3], RAW[::-3])


def test_string_dtype_and_object_arrays() -> None:
    strings = np.array(TEXTS[:1500], np.dtypes.StringDType())
    assert_keys(lambda: strings, TEXTS[:1500])
    assert_keys(lambda: strings[::-3], TEXTS[:1500][::-3])
    table = strings.reshape(30, 50)
    for view in (table, table.T, np.asfortranarray(table), table[3:-3:2, ::-1]):
        assert_keys(lambda view=view: view, view.ravel().tolist(), view.shape)
    mixed = [*TEXTS, *RAW, *NUMBERS, -1, True, np.int8(-3), bytearray(b"abc")]
    assert_keys(lambda: np.array(mixed, object), mixed)


def test_numpy_drops_trailing_nuls_and_the_documentation_says_so() -> None:
    """An `S` or `U` element is what indexing it gives; lists, object arrays and Arrow keep every byte."""
    keys = [b"a\0", b"a\0\0", b"\0", b"\0a\0b\0", b"a"]
    dropped = [b"a", b"a", b"", b"\0a\0b", b"a"]
    assert np.array(keys).tolist() == dropped
    assert_keys(lambda: np.array(keys), dropped)
    texts = [key.decode() for key in keys]
    assert_keys(lambda: np.array(texts), dropped)
    for kept in (
        lambda: keys,
        lambda: np.array(keys, object),
        lambda: np.array(texts, object),
        lambda: np.array(texts, np.dtypes.StringDType()),
        lambda: pa.array(keys),
        lambda: pa.array(texts),
    ):
        assert_keys(kept, keys)
    for call in (BloomFilter.add_many, BlockedBloomFilter.add_many):
        assert "trailing NUL" in str(call.__doc__)


def test_a_surrogate_in_a_text_array_is_refused_with_its_position() -> None:
    keys = np.array([*TEXTS[:1200], "a\ud800", "later"])
    assert_refused(lambda: keys, ValueError, r"keys\[1200\].*surrogate", TEXTS[:1200])
    wrong = np.array([ord("a"), 0x110000], "u4").view("U1")
    assert_refused(lambda: wrong, ValueError, r"keys\[1\]", ["a"])


# --- NumPy: masked, other types, other dimensions ------------------------------------------------------


def test_masked_arrays_are_refused_where_a_key_is_masked() -> None:
    keys = np.ma.array(np.arange(12).reshape(3, 4))
    assert_keys(lambda: keys, range(12), (3, 4))
    keys[1, 2] = np.ma.masked
    for masked in (keys, keys.astype("U5"), keys.astype(object)):
        assert_refused_at_all(masked, ValueError, r"keys\[6\].*masked.*compressed")
    assert_keys(lambda: keys.compressed(), [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11])


def assert_refused_at_all(keys: Any, error: type[Exception], match: str, **options: Any) -> None:
    f = single(())
    for call in (lambda: f.add_many(keys, **options), lambda: f.contains_many(keys, **options)):
        with pytest.raises(error, match=match):
            call()


@pytest.mark.parametrize(
    "dtype",
    ["f2", "f4", "f8", "g", "c8", "c16", "M8[s]", "M8[ns]", "m8[s]", "V4", [("a", "i8"), ("b", "S3")]],
    ids=str,
)
@pytest.mark.parametrize("n", [0, 3])
def test_arrays_of_anything_else_are_a_type_error(dtype: Any, n: int) -> None:
    assert_refused(lambda: np.zeros(n, dtype), TypeError, r"^keys must be integers, strings or bytes.*astype")


@pytest.mark.parametrize("dtype", ["i8", "u1", "?", "S3", "U3", "O", "f8"])
def test_an_array_without_dimensions_is_a_type_error(dtype: str) -> None:
    assert_refused(lambda: np.zeros((), dtype), TypeError, r"dimension.*add\(key\)")


@pytest.mark.parametrize("scalar", [np.int64(3), np.uint8(3), np.True_, np.float64(3)])
def test_a_numpy_scalar_is_a_type_error(scalar: Any) -> None:
    assert_refused(lambda: scalar, TypeError, "keys must")


def test_a_bad_object_in_an_array_is_refused_with_its_position() -> None:
    keys = np.array([["a", "b"], ["c", 1.5], ["d", None]], object)
    assert_refused(lambda: keys, TypeError, r"keys\[3\]: a key must be str, bytes or int, not float", "abc")


# --- iterables -----------------------------------------------------------------------------------------

ITERABLES: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "iterator": iter,
    "generator": lambda keys: (key for key in keys),
    "chain": lambda keys: itertools.chain(keys[:7], keys[7:]),
    "dict": lambda keys: dict.fromkeys(keys, 1),
    "keys of a dict": lambda keys: dict.fromkeys(keys).keys(),
    "values of a dict": lambda keys: dict(enumerate(keys)).values(),
    "deque": collections.deque,
    "counter": collections.Counter,
    "only __getitem__": lambda keys: iter(Sequence(keys)),
    "object array": lambda keys: np.array(keys, dtype=object),
}


class Sequence:
    """An iterable in the old way."""

    def __init__(self, keys: list[Any]) -> None:
        self.keys = keys

    def __getitem__(self, i: int) -> Any:
        return self.keys[i]


@pytest.mark.parametrize("form", ITERABLES.values(), ids=ITERABLES.keys())
def test_iterables_of_every_sort(form: Callable[[list[Any]], Any], mixed_keys: list[Any]) -> None:
    for keys in ([], mixed_keys[:1], mixed_keys[:1024], mixed_keys[:1025], mixed_keys):
        assert_keys(lambda keys=keys: form(keys), keys)


def test_sets_ranges_and_arrays_of_the_standard_library() -> None:
    found = {*TEXTS, *NUMBERS}
    assert taken(found) == taken(frozenset(found)) == single(found)
    for numbers in (range(0), range(2000), range(-1000, 1000), range(100, 0, -3)):
        assert_keys(lambda numbers=numbers: numbers, numbers)
    for code in "bBhHiIlLqQ":
        assert_keys(lambda code=code: array.array(code, range(100)), range(100))
    for code in "fd":
        assert_refused(lambda code=code: array.array(code, [1.0]), TypeError, "keys must be integers")


def test_a_dict_stands_for_its_keys_and_a_file_for_its_lines(tmp_path: Any) -> None:
    (tmp_path / "words").write_bytes(b"one\ntwo\nthree")
    with (tmp_path / "words").open("rb") as lines:
        assert taken(lines) == single([b"one\n", b"two\n", b"three"])
    with (tmp_path / "words").open() as lines:
        assert taken(map(str.strip, lines)) == single(["one", "two", "three"])


def test_threads_do_not_matter_to_an_iterable(mixed_keys: list[Any]) -> None:
    assert taken(iter(mixed_keys), threads=5) == single(mixed_keys)


class Mine(Exception):
    """An error of the user's own."""


POSITIONS = [0, 1, 2, 1000, 1023, 1024, 1025, 2047, 2048, 3000]
each_position = pytest.mark.parametrize("at", POSITIONS)


@each_position
@pytest.mark.parametrize("error_class", [Mine, ValueError, TypeError, KeyError, MemoryError])
def test_an_iterable_that_fails_at_item_i(at: int, error_class: type[Exception]) -> None:
    """The very exception comes out, with a note that says i; the keys before are in, later ones are not."""
    error = error_class("boom")

    def failing() -> Iterator[int]:
        yield from range(at)
        raise error

    f = single(())
    for call in (f.add_many, f.contains_many, digest_many):
        error.__notes__ = []
        with pytest.raises(type(error)) as caught:
            call(failing())
        assert caught.value is error
        assert any(re.search(rf"\bitem {at} of the keys\b", note) for note in error.__notes__)
    assert f == single(range(at))


@each_position
@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [(1.5, TypeError, "not float"), (None, TypeError, "not NoneType"), ("a\ud800", ValueError, "surrogate"),
     (2**64, KeyRangeError, "2\\*\\*64"), ([1], TypeError, "not list"), (np.arange(3), TypeError, "ndarray")],
)  # fmt: skip
def test_a_key_that_is_none_is_named_by_its_position(
    at: int, bad: Any, error: type[Exception], text: str
) -> None:
    keys = [*range(at), bad, "later", *range(5000, 7000)]
    for make in (lambda: keys, lambda: iter(keys), lambda: (key for key in keys)):
        assert_refused(make, error, rf"^keys\[{at}\]: .*{text}", range(at))


@each_position
def test_a_key_whose_index_fails_passes_the_error_on(at: int) -> None:
    class Broken:
        def __index__(self) -> int:
            raise Mine("boom")

    f = single(())
    with pytest.raises(Mine, match="boom") as caught:
        f.add_many([*range(at), Broken(), 9999])
    assert any(f"item {at} of" in note for note in caught.value.__notes__)
    assert f == single(range(at))


def test_an_iterable_whose_iter_fails() -> None:
    class Broken:
        def __iter__(self) -> Iterator[int]:
            raise Mine("boom")

    f = single(())
    for call in (f.add_many, f.contains_many, digest_many):
        with pytest.raises(Mine, match="boom"):
            call(Broken())


def test_the_filter_can_be_asked_while_it_takes_an_iterable() -> None:
    """`f.update(key for key in keys if key not in f)` is an idiom."""
    f = single(())
    f.update(key for key in [*range(3000), *range(3000)] if key not in f)
    assert f.contains_many(range(3000)).all()
    f._check()


def test_an_iterable_that_uses_the_filter_itself_does_not_hang(run_python: Any, tmp_path: Any) -> None:
    """Either it works, or it is refused with an error: a generator is the user's code."""
    code = """
import sys
from evenbins import BloomFilter

def inside(name, use):
    print(name, end=": ", flush=True)
    f, other = BloomFilter(5000), BloomFilter(5000)
    other.add("inner")

    def keys():
        for i in range(3000):
            if i == 1500:
                use(f, other)
            yield i

    try:
        f.add_many(keys())
    except RuntimeError as error:
        print("refused", error)
    else:
        assert f.contains_many(range(1500, 3000)).all()
        print("done")
    f._check()

inside("in", lambda f, other: "inner" in f)
inside("stats", lambda f, other: f.stats())
inside("add", lambda f, other: f.add("inner"))
inside("add_many", lambda f, other: f.add_many(["inner"]))
inside("|=", lambda f, other: f.__ior__(other))
inside("copy", lambda f, other: f.copy())
inside("to_bytes", lambda f, other: f.to_bytes())
inside("save", lambda f, other: f.save(sys.argv[1]))
inside("==", lambda f, other: f == other)
inside("clear", lambda f, other: f.clear())
inside("check", lambda f, other: f._check())
"""
    result = run_python(code, str(tmp_path / "f"))
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 11


def test_a_thread_that_feeds_an_iterable_may_use_the_filter(run_python: Any) -> None:
    """A bulk call that waits for its next key must not keep others from adding theirs."""
    code = """
import queue, threading
from evenbins import BloomFilter
f, queued, started = BloomFilter(100), queue.Queue(), threading.Event()

def keys():
    started.set()
    yield from iter(queued.get, None)

def feed():
    started.wait()
    for i in range(50):
        f.add(f"side-{i}")
        queued.put(i)
    queued.put(None)

feeder = threading.Thread(target=feed, daemon=True)
feeder.start()
f.add_many(keys())
feeder.join()
assert all(i in f and f"side-{i}" in f for i in range(50))
print("done")
"""
    result = run_python(code)
    assert result.stdout.strip() == "done", result.stderr


# --- digests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda d: d,
        lambda d: d.tolist(),
        lambda d: tuple(d.tolist()),
        lambda d: d.astype(">u8"),
        lambda d: np.repeat(d, 2)[::2],
        lambda d: np.asfortranarray(d[: len(d) // 2 * 2].reshape(2, -1)).ravel(),
        lambda d: array.array("Q", d.tolist()),
        lambda d: pa.array(d),
        lambda d: pl.Series(d),
        lambda d: pd.Series(d),
    ],
    ids=[
        "array",
        "list",
        "tuple",
        "byte order",
        "strided",
        "fortran",
        "array.array",
        "pyarrow",
        "polars",
        "pandas",
    ],
)
def test_digests_give_what_their_keys_give(form: Callable[[Any], Any], mixed_keys: list[Any]) -> None:
    keys = mixed_keys[: len(mixed_keys) // 2 * 2]
    for cls in (BloomFilter, BlockedBloomFilter):
        expected = single(keys[::2], cls=cls)
        digests = form(digest_many(keys[::2], SEED))
        assert taken(digests, cls=cls, digests=True) == expected
        every = form(digest_many(keys, SEED))
        assert expected.contains_many(every, digests=True).tolist() == expected.contains_many(keys).tolist()


def test_digests_keep_their_shape_and_may_be_empty() -> None:
    digests = digest_many(np.arange(12).reshape(3, 4), SEED)
    f = single(range(0, 12, 2))
    assert f.contains_many(digests, digests=True).shape == (3, 4)
    assert f.contains_many([], digests=True).shape == (0,)
    assert f.contains_many(digests[:0], digests=True).shape == (0, 4)
    f.add_many([], digests=True)
    assert f == single(range(0, 12, 2))


NO_DIGESTS: dict[str, Callable[[], Any]] = {
    "int64": lambda: np.array([1, 2]),
    "uint32": lambda: np.array([1, 2], np.uint32),
    "float64": lambda: np.array([1.0]),
    "bool": lambda: np.array([True]),
    "text": lambda: np.array(["1"]),
    "objects": lambda: np.array([1, 2], object),
    "list of floats": lambda: [1.5],
    "list of whole floats": lambda: [1.0, 2.0],
    "list of str": lambda: ["5"],
    "list of bytes": lambda: [b"5"],
    "list of None": lambda: [None],
    "list of bool": lambda: [True, False],
    "negative": lambda: [-1],
    "too large": lambda: [2**64],
    "mixed": lambda: [2**64 - 1, -1],
    "pandas, signed": lambda: pd.Series([-1, 2]),
    "pandas, float": lambda: pd.Series([1.5, 2.0]),
    "pandas, NA": lambda: pd.Series([1, None], dtype="UInt64"),
    "arrow, signed": lambda: pa.array([1, 2], pa.int64()),
    "arrow, null": lambda: pa.array([1, None], pa.uint64()),
    "polars, null": lambda: pl.Series([1, None], dtype=pl.UInt64),
    "one number": lambda: 5,
    "text alone": lambda: "abc",
    "none": lambda: None,
    "no dimension": lambda: np.uint64(5),
}


@pytest.mark.parametrize("make", NO_DIGESTS.values(), ids=NO_DIGESTS.keys())
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_what_is_no_digest_is_refused(make: Callable[[], Any]) -> None:
    """A wrong digest would be a key that nobody finds again: nothing is converted in silence."""
    f = single(())
    for call in (f.add_many, f.contains_many):
        with pytest.raises((TypeError, ValueError), match=r"digests|keys"):
            call(make(), digests=True)
    assert f == single(())


def test_a_masked_digest_is_refused() -> None:
    digests = np.ma.array(np.array([1, 2, 3], np.uint64), mask=[False, True, False])
    assert_refused_at_all(digests, ValueError, r"keys\[1\].*masked", digests=True)


# --- Arrow ---------------------------------------------------------------------------------------------

ARROW_TEXT = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
]
ARROW_NUMBERS = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
]  # fmt: skip
INDICES = ARROW_NUMBERS


class OnlyArray:
    """What offers `__arrow_c_array__` and nothing else."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.values.__arrow_c_array__(requested_schema)


class OnlyStream(OnlyArray):
    """What offers `__arrow_c_stream__` and nothing else."""

    __arrow_c_array__ = None  # type: ignore[assignment]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.values.__arrow_c_stream__(requested_schema)


def arrow_forms(column: pa.Array, keys: list[Any]) -> None:
    """The column whole, sliced at every offset modulo 8, chunked, and through each protocol."""
    n = len(keys)
    assert_keys(lambda: column, keys)
    assert_keys(lambda: OnlyArray(column), keys)
    for start in (1, 2, 3, 5, 7, 8, 9, 13, n - 1, n):
        assert_keys(lambda start=start: column.slice(start), keys[start:])
        assert_keys(lambda start=start: column.slice(start, 11), keys[start : start + 11])
    empty = column.slice(0, 0)
    chunks = [
        empty,
        column.slice(0, 3),
        column.slice(3, 0),
        column.slice(3, n - 10),
        column.slice(n - 7),
        empty,
    ]
    chunked = pa.chunked_array(chunks, type=column.type)
    assert_keys(lambda: chunked, keys)
    assert_keys(lambda: chunked.slice(5), keys[5:])
    assert_keys(lambda: chunked.slice(2, 9), keys[2:11])
    assert_keys(lambda: pa.chunked_array([], type=column.type), [])


@pytest.mark.parametrize("arrow_type", ARROW_TEXT, ids=str)
def test_arrow_strings_and_binary(arrow_type: pa.DataType) -> None:
    texts = TEXTS[:60]
    arrow_forms(pa.array(RAW[:60] if "binary" in str(arrow_type) else texts, arrow_type), texts)


@pytest.mark.parametrize("arrow_type", ARROW_TEXT, ids=str)
def test_arrow_strings_in_long_columns(arrow_type: pa.DataType) -> None:
    values = RAW if "binary" in str(arrow_type) else TEXTS
    assert_keys(lambda: pa.array(values * 3, arrow_type), TEXTS * 3)


def test_string_views_of_all_lengths_around_the_inlined_ones() -> None:
    texts = ["x" * n for n in range(40)] + ["é" * n for n in range(20)]
    arrow_forms(pa.array(texts, pa.string_view()), texts)
    many_buffers = pa.concat_arrays([pa.array([text * 3], pa.string_view()) for text in texts])
    assert_keys(lambda: many_buffers, [text * 3 for text in texts])


@pytest.mark.parametrize("width", [0, 1, 3, 8, 16, 100])
def test_arrow_fixed_size_binary_keeps_every_byte(width: int) -> None:
    keys = [bytes([i % 7] * width) if i % 3 else bytes(width) for i in range(40)]
    arrow_forms(pa.array(keys, pa.binary(width)), keys)


@pytest.mark.parametrize("arrow_type", ARROW_NUMBERS, ids=str)
def test_arrow_integers(arrow_type: pa.DataType) -> None:
    keys = integers(np.dtype(arrow_type.to_pandas_dtype()).str[1:], 50)
    arrow_forms(pa.array(keys), keys.tolist())
    long = integers(keys.dtype.str[1:], 5000)
    assert_keys(lambda: pa.array(long), long.tolist())


def test_arrow_booleans() -> None:
    keys = np.random.default_rng(1).integers(0, 2, 70).astype(bool).tolist()
    arrow_forms(pa.array(keys), keys)


@pytest.mark.parametrize("index_type", INDICES, ids=str)
@pytest.mark.parametrize(
    "values", [TEXTS[:50], RAW[:50], list(range(-25, 25))], ids=["text", "bytes", "ints"]
)
def test_arrow_dictionaries_of_all_index_widths(index_type: pa.DataType, values: list[Any]) -> None:
    at = np.random.default_rng(2).integers(0, 50, 80)
    column = pa.DictionaryArray.from_arrays(pa.array(at, index_type), pa.array(values))
    arrow_forms(column, [values[i] for i in at])


def test_arrow_dictionaries_differ_from_chunk_to_chunk() -> None:
    parts = [TEXTS[:20], TEXTS[10:40], TEXTS[5:15]]
    chunked = pa.chunked_array([pa.array(part).dictionary_encode() for part in parts])
    assert_keys(lambda: chunked, [text for part in parts for text in part])
    offset = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1]), pa.array(TEXTS[:9]).slice(4, 3))
    assert_keys(lambda: offset, [TEXTS[4], TEXTS[6], TEXTS[5]])


def test_a_null_in_a_dictionary_counts_only_where_it_is_used() -> None:
    values = pa.array(["a", None, "c"])
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 2, 0, 2]), values)
    assert_keys(lambda: unused, ["a", "c", "a", "c"])
    used = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1, 0]), values)
    assert_refused(lambda: used, ValueError, r"keys\[2\].*null", ["a", "c"])
    absent = pa.DictionaryArray.from_arrays(pa.array([0, None, 2]), values)
    assert_refused(lambda: absent, ValueError, r"keys\[1\].*null", ["a"])
    numbers = pa.DictionaryArray.from_arrays(pa.array([2, 1], pa.int8()), pa.array([1, None, 3]))
    assert_refused(lambda: numbers, ValueError, r"keys\[1\].*null", [3])


def with_null(arrow_type: pa.DataType, n: int, at: int) -> tuple[pa.Array, list[Any]]:
    """A column of n keys with a null at one position, and the keys before it."""
    if pa.types.is_dictionary(arrow_type):
        column, keys = with_null(arrow_type.value_type, n, at)
        return column.dictionary_encode(), keys
    if pa.types.is_boolean(arrow_type):
        keys = [i % 3 == 0 for i in range(n)]
    elif pa.types.is_integer(arrow_type):
        keys = [i % 120 for i in range(n)]
    else:
        keys = [b"key %05d, some of them long" % i for i in range(n)]
        if pa.types.is_fixed_size_binary(arrow_type):
            keys = [key[:9] for key in keys]
        elif "string" in str(arrow_type):
            keys = [key.decode() for key in keys]
    return pa.array([*keys[:at], None, *keys[at + 1 :]], arrow_type), keys[:at]


NULLABLE = [
    *ARROW_TEXT, *ARROW_NUMBERS, pa.bool_(), pa.binary(9),
    pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.int64()),
]  # fmt: skip


@pytest.mark.parametrize("arrow_type", NULLABLE, ids=str)
def test_a_null_is_refused_with_its_position_and_the_keys_before_are_in(arrow_type: pa.DataType) -> None:
    for n, at in [(1, 0), (20, 0), (20, 7), (20, 8), (20, 19), (3000, 1023), (3000, 1024), (3000, 2999)]:
        column, before = with_null(arrow_type, n, at)
        for threads in (1, 2):
            assert_refused(
                lambda c=column: c, ValueError, rf"^keys\[{at}\]: .*null.*drop_nulls", before, threads=threads
            )
        for start in {0, 1, 3, 7, 8} & set(range(at + 1)):
            sliced = column.slice(start)
            assert_refused(lambda c=sliced: c, ValueError, rf"^keys\[{at - start}\]", before[start:])
        if at + 1 < n and not pa.types.is_dictionary(arrow_type):
            column, keys = column.slice(at + 1), pa.array(column.slice(at + 1)).to_pylist()
            assert_keys(lambda c=column: c, keys)


@pytest.mark.parametrize("arrow_type", NULLABLE, ids=str)
def test_the_position_of_a_null_counts_all_chunks_before(arrow_type: pa.DataType) -> None:
    column, before = with_null(arrow_type, 50, 13)
    chunked = pa.chunked_array([column.slice(0, 6), column.slice(0, 0), column.slice(2, 5), column.slice(3)])
    keys = [*before[:6], *before[2:7], *before[3:]]
    assert_refused(lambda: chunked, ValueError, rf"^keys\[{6 + 5 + 10}\]: .*null", keys)
    assert_refused(lambda: chunked.slice(4), ValueError, r"^keys\[17\]: .*null", keys[4:])
    assert_refused(lambda: chunked, ValueError, r"^keys\[21\]", keys, threads=4)


def test_a_column_of_type_null_is_refused() -> None:
    assert_refused(lambda: pa.nulls(3), ValueError, r"^keys\[0\]: .*null")
    assert_keys(lambda: pa.nulls(0), [])


OTHER_COLUMNS: dict[str, Callable[[], Any]] = {
    "float64": lambda: pa.array([1.0]),
    "float32": lambda: pa.array([1.0], pa.float32()),
    "float16": lambda: pa.array([np.float16(1)], pa.float16()),
    "decimal": lambda: pa.array([1], pa.decimal128(5)),
    "timestamp": lambda: pa.array([1], pa.timestamp("s")),
    "date": lambda: pa.array([1], pa.date32()),
    "duration": lambda: pa.array([1], pa.duration("s")),
    "list": lambda: pa.array([[1]]),
    "map": lambda: pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
    "dictionary of floats": lambda: pa.array([1.0, 2.0]).dictionary_encode(),
    "run-end encoded": lambda: pa.RunEndEncodedArray.from_arrays([2], ["a"]),
    "chunked": lambda: pa.chunked_array([[1.0], [2.0]]),
    "empty": lambda: pa.array([], pa.float64()),
    "no chunk at all": lambda: pa.chunked_array([], type=pa.float64()),
    "polars": lambda: pl.Series([1.0]),
    "polars date": lambda: pl.Series([1]).cast(pl.Date),
    "pandas": lambda: pd.Series([1.0]),
    "pandas Float64": lambda: pd.Series([1.0], dtype="Float64"),
    "pandas time": lambda: pd.Series(pd.to_datetime(["2024-01-01"])),
}


@pytest.mark.parametrize("make", OTHER_COLUMNS.values(), ids=OTHER_COLUMNS.keys())
def test_other_columns_are_a_type_error(make: Callable[[], Any]) -> None:
    assert_refused(make, TypeError, r"^keys must be .*integers.* not .*(cast|astype)")


TABLES: dict[str, Callable[[], Any]] = {
    "table": lambda: pa.table({"a": [1], "b": ["x"]}),
    "record batch": lambda: pa.record_batch({"a": [1], "b": ["x"]}),
    "reader": lambda: pa.table({"a": [1], "b": ["x"]}).to_reader(),
    "struct": lambda: pa.array([{"a": 1, "b": "x"}]),
    "polars": lambda: pl.DataFrame({"a": [1], "b": ["x"]}),
    "pandas": lambda: pd.DataFrame({"a": [1], "b": ["x"]}),
    "empty": lambda: pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}),
}


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES.keys())
def test_a_table_is_a_type_error_that_names_its_columns(make: Callable[[], Any]) -> None:
    assert_refused(
        make, TypeError, r"^keys must be one column, not a table of 2 \('a', 'b'\): .*column\(keys, 'a'\)"
    )


def test_a_stream_and_an_array_are_read_through_their_protocols_alone() -> None:
    column = pa.array(TEXTS)
    assert_keys(lambda: OnlyArray(column), TEXTS)
    assert_keys(lambda: OnlyStream(pa.chunked_array([column.slice(0, 9), column.slice(9)])), TEXTS)


def test_capsules_that_are_none_or_used_up_are_errors() -> None:
    class Wrong:
        def __init__(self, capsule: Any) -> None:
            self.capsule = capsule

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return self.capsule

    f = single(())
    for capsule in (5, None, pa.array([1]).__arrow_c_array__()[0]):
        with pytest.raises((TypeError, ValueError)):
            f.add_many(Wrong(capsule))
    once = Wrong(pa.chunked_array([["a"]]).__arrow_c_stream__())
    f.add_many(once)
    with pytest.raises(ValueError, match="used already"):
        f.add_many(once)
    assert f == single(["a"])


def test_broken_columns_are_refused_and_do_not_crash() -> None:
    def column(arrow_type: pa.DataType, n: int, *buffers: bytes | None) -> pa.Array:
        return pa.Array.from_buffers(
            arrow_type, n, [None if each is None else pa.py_buffer(each) for each in buffers], null_count=0
        )

    def offsets(*numbers: int) -> bytes:
        return np.array(numbers, np.int32).tobytes()

    backwards = column(pa.string(), 3, None, offsets(0, 2, 1, 3), b"abc")
    assert_refused(lambda: backwards, ValueError, r"keys\[1\].*negative length", ["ab"])
    for view in ((20, 0, 7, 0), (20, 0, 0, 5), (20, 0, -1, 0), (20, 0, 0, -1), (-1, 0, 0, 0)):
        raw = np.array(view, np.int32).tobytes()
        broken = column(pa.string_view(), 1, None, raw, b"twenty-two characters.")
        assert_refused(lambda broken=broken: broken, ValueError, r"keys\[0\].*broken")
    outside = pa.DictionaryArray.from_arrays(pa.array([0, 5]), pa.array(["a"]), safe=False)
    assert_refused(lambda: outside, ValueError, r"keys\[1\].*outside the dictionary", ["a"])
    below = pa.DictionaryArray.from_arrays(pa.array([-1], pa.int8()), pa.array(["a"]), safe=False)
    assert_refused(lambda: below, ValueError, r"keys\[0\].*outside the dictionary")


def shifted(column: pa.Array, by: int) -> pa.Array:
    """The same column with every buffer at an address that is no multiple of anything."""

    def moved(buffer: pa.Buffer | None) -> pa.Buffer | None:
        return buffer and pa.py_buffer(bytes(by) + buffer.to_pybytes()).slice(by)

    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(shifted(column.indices, by), shifted(column.dictionary, by))
    return pa.Array.from_buffers(column.type, len(column), [moved(each) for each in column.buffers()])


UNALIGNED = [
    pa.array([*range(-3000, 3000)], pa.int64()), pa.array([*range(3000)], pa.uint64()),
    pa.array([5, None, 7], pa.int64()).fill_null(6), pa.array([1, -2, 3], pa.int16()),
    pa.array([1, 2], pa.uint32()),
    pa.array(TEXTS), pa.array(TEXTS, pa.large_string()), pa.array(TEXTS, pa.string_view()),
    pa.array([b"12345678", b"abcdefgh"], pa.binary(8)), pa.array(TEXTS).dictionary_encode(),
]  # fmt: skip


@pytest.mark.parametrize("column", UNALIGNED, ids=lambda column: str(column.type))
@pytest.mark.parametrize("by", [1, 3, 4])
def test_arrow_buffers_need_not_be_aligned(column: pa.Array, by: int) -> None:
    """The C interface recommends it only. (Without a sanitizer an x86 does not mind either.)"""
    moved = shifted(column, by)
    keys = column.to_pylist()
    assert digest_many(moved).tolist() == [digest(key) for key in keys]
    table = MultilevelTable(len(keys), key_dtype="digest" if isinstance(keys[0], str | bytes) else "int64")
    table.insert_many(moved, 1)
    assert all(key in table for key in keys)


# --- types whose storage is not the value ----------------------------------------------------------------

IDS = [uuid.UUID(int=i) for i in range(50)]


class Degrees(pa.ExtensionType):  # type: ignore[misc]
    """An extension type that nobody knows."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "test.degrees")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


DEGREES = pa.ExtensionArray.from_storage(Degrees(), pa.array([1, 2, 3]))
PERIODS = pd.period_range("2020", periods=3, freq="D")
OPAQUE: dict[str, tuple[Callable[[], Any], str]] = {
    "Polars objects": (lambda: pl.Series(IDS), r"dtype Object.*\[str\(each\) for each in column\]"),
    "Polars objects, text": (lambda: pl.Series("k", ["a", "b"], dtype=pl.Object), "to_list"),
    "Polars objects of a frame": (lambda: pl.DataFrame({"k": pl.Series(IDS)})["k"], "dtype Object"),
    "a frame of Polars objects": (lambda: pl.DataFrame({"k": pl.Series(IDS)}), "dtype Object"),
    "a chosen column of Polars objects": (
        lambda: column(pl.DataFrame({"k": pl.Series(IDS), "n": range(len(IDS))}), "k"), "dtype Object"),
    "no Polars objects": (lambda: pl.Series("k", [], dtype=pl.Object), "dtype Object"),
    "extension": (lambda: DEGREES, r"'test.degrees'.*storage_type"),
    "extension, chunked": (lambda: pa.chunked_array([DEGREES, DEGREES]), "test.degrees"),
    "extension, no chunks": (lambda: pa.chunked_array([], Degrees()), "test.degrees"),
    "extension in a dictionary": (
        lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1]), DEGREES), "test.degrees"),
    "bool8": (lambda: pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 2], pa.int8())), "arrow.bool8"),
    "pandas periods": (lambda: pd.Series(PERIODS), r"pandas.period.*astype\(str\)"),
    "pandas periods, categories": (lambda: pd.Series(PERIODS.astype("category")), "pandas.period"),
    "pandas index of periods": (lambda: PERIODS, "Period"),
    "pandas intervals": (lambda: pd.Series(pd.interval_range(0, 3)), "pandas.interval"),
    "pandas times": (lambda: pd.Series(pd.date_range("2020", periods=3)), "datetime64"),
    "pandas times with a zone": (lambda: pd.Series(pd.date_range("2020", periods=3, tz="UTC")), "time type"),
    "pandas durations": (lambda: pd.Series(pd.to_timedelta([1, 2])), "timedelta64"),
    "pandas times, categories": (
        lambda: pd.Series(pd.date_range("2020", periods=3).astype("category")), "time type"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPAQUE)
def test_a_column_whose_storage_is_not_the_value_is_refused(name: str) -> None:
    """Polars exports the addresses of objects, pandas the ordinals of periods: neither is the value."""
    make, words = OPAQUE[name]
    f, growing, table = single(()), GrowingFilter(), MultilevelTable(10, key_dtype="digest")
    before = f.to_bytes()
    for call in (f.add_many, f.contains_many, digest_many, growing.add_many, table.contains_many):
        with pytest.raises(TypeError, match=words):
            call(make())
    with pytest.raises(TypeError, match=words):
        table.insert_many(make(), 1)
    assert f.to_bytes() == before
    assert len(table) == 0


def test_a_single_value_of_such_a_column_is_refused_too() -> None:
    for value in (
        IDS[0],
        PERIODS[0],
        pd.Interval(0, 1),
        pd.Timestamp(0),
        pd.Timedelta(1),
        np.datetime64(0, "s"),
    ):
        with pytest.raises(TypeError, match="a key must be"):
            digest(value)


def test_extension_types_whose_storage_is_the_value_are_keys() -> None:
    """A UUID is its 16 bytes, a JSON document its text: whole, chunked and in dictionaries."""
    forms: list[tuple[Any, list[Any]]] = [
        (pa.array([each.bytes for each in IDS], pa.uuid()), [each.bytes for each in IDS]),
        (pa.array(["{}", "[1]"], pa.json_()), ["{}", "[1]"]),
    ]
    for each, keys in forms:
        encoded = pa.DictionaryArray.from_arrays(pa.array([*range(len(keys))]), each)
        for form in (each, pa.chunked_array([each.slice(0, 1), each.slice(1)]), encoded):
            assert digest_many(form).tolist() == [digest(key) for key in keys]
            table = MultilevelTable(100, key_dtype="digest")
            table.insert_many(form, 1)
            assert all(key in table for key in keys)


@pytest.mark.parametrize("values", [[3, 0, 0, 7], ["a", "b", "a"], [True, False, True]])
def test_sparse_pandas_columns_hold_the_keys_they_show(values: list[Any]) -> None:
    column = pd.Series(pd.arrays.SparseArray(values))
    assert digest_many(column).tolist() == [digest(each) for each in values]
    table = MultilevelTable(10, key_dtype="digest" if isinstance(values[0], str) else "int64")
    table.insert_many(column, 1)
    assert all(each in table for each in values)


# --- Polars and pandas ---------------------------------------------------------------------------------

COLUMNS_OF_TEXT: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "iterator": iter,
    "generator": lambda texts: (text for text in texts),
    "bytes": lambda texts: [text.encode() for text in texts],
    "numpy U": np.array,
    "numpy >U": lambda texts: np.array(texts).astype(np.array(texts).dtype.newbyteorder(">")),
    "numpy S": lambda texts: np.array([text.encode() for text in texts]),
    "numpy object": lambda texts: np.array(texts, object),
    "numpy StringDType": lambda texts: np.array(texts, np.dtypes.StringDType()),
    **{str(each): lambda texts, each=each: pa.array(texts, each) for each in ARROW_TEXT},
    "arrow dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "arrow chunked": lambda texts: pa.chunked_array([texts[:100], [], texts[100:]], pa.string()),
    "arrow column": lambda texts: pa.table({"name": texts})["name"],
    "polars": pl.Series,
    "polars categorical": lambda texts: pl.Series(texts, dtype=pl.Categorical),
    "polars enum": lambda texts: pl.Series(texts, dtype=pl.Enum(list(dict.fromkeys(texts)))),
    "polars binary": lambda texts: pl.Series([text.encode() for text in texts]),
    "polars column": lambda texts: pl.DataFrame({"a": texts})["a"],
    "polars chunked": lambda texts: pl.concat([pl.Series(texts[:50]), pl.Series(texts[50:])], rechunk=False),
    "pandas": pd.Series,
    "pandas object": lambda texts: pd.Series(texts, dtype=object),
    "pandas string": lambda texts: pd.Series(texts, dtype="string"),
    "pandas str": lambda texts: pd.Series(texts, dtype="str"),
    "pandas category": lambda texts: pd.Series(texts, dtype="category"),
    "pandas arrow": lambda texts: pd.Series(texts, dtype=pd.ArrowDtype(pa.large_string())),
    "pandas index": pd.Index,
    "pandas array": lambda texts: pd.array(texts, dtype="string"),
    "pandas column": lambda texts: pd.DataFrame({"a": texts, "b": 1})["a"],
    "pandas slice": lambda texts: pd.Series(["none", *texts, "none"], dtype="string").iloc[1:-1],
}

COLUMNS_OF_NUMBERS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "generator": lambda numbers: (number for number in numbers),
    "numpy scalars": lambda numbers: [np.uint64(number) for number in numbers],
    "numpy": lambda numbers: np.array(numbers, np.uint64),
    "numpy >u8": lambda numbers: np.array(numbers, ">u8"),
    "numpy object": lambda numbers: np.array(numbers, object),
    "arrow": lambda numbers: pa.array(numbers, pa.uint64()),
    "arrow dictionary": lambda numbers: pa.array(numbers, pa.uint64()).dictionary_encode(),
    "arrow chunked": lambda numbers: pa.chunked_array([numbers[:100], [], numbers[100:]], pa.uint64()),
    "polars": lambda numbers: pl.Series(numbers, dtype=pl.UInt64),
    "pandas uint64": lambda numbers: pd.Series(numbers, dtype="uint64"),
    "pandas UInt64": lambda numbers: pd.Series(numbers, dtype="UInt64"),
    "pandas object": lambda numbers: pd.Series(numbers, dtype=object),
    "pandas category": lambda numbers: pd.Series(np.array(numbers, np.uint64)).astype("category"),
    "pandas arrow": lambda numbers: pd.Series(numbers, dtype=pd.ArrowDtype(pa.uint64())),
    "pandas index": lambda numbers: pd.Index(np.array(numbers, np.uint64)),
    "pandas slice": lambda numbers: pd.Series([1, *numbers, 1], dtype="uint64").iloc[1:-1],
}


@pytest.mark.parametrize("form", COLUMNS_OF_TEXT.values(), ids=COLUMNS_OF_TEXT.keys())
def test_the_same_texts_by_every_route_give_the_same_bytes(form: Callable[[list[str]], Any]) -> None:
    assert_keys(lambda: form(TEXTS), TEXTS)
    assert taken(form(TEXTS)).to_bytes() == taken(TEXTS).to_bytes()


@pytest.mark.parametrize("form", COLUMNS_OF_NUMBERS.values(), ids=COLUMNS_OF_NUMBERS.keys())
def test_the_same_numbers_by_every_route_give_the_same_bytes(form: Callable[[list[int]], Any]) -> None:
    assert_keys(lambda: form(NUMBERS), NUMBERS)
    assert taken(form(NUMBERS)).to_bytes() == taken(NUMBERS).to_bytes()


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "int64", "Int8", "Int16", "Int32", "Int64", "int64[pyarrow]"]
)
def test_signed_columns(dtype: str) -> None:
    keys = list(range(-100, 100))
    assert_keys(lambda: pd.Series(keys, dtype=dtype), keys)
    if dtype[0] == "I":
        assert_keys(lambda: pl.Series(keys, dtype=getattr(pl, dtype)), keys)


@pytest.mark.parametrize("dtype", ["bool", "boolean"])
def test_boolean_columns(dtype: str) -> None:
    keys = [True, False, False, True, True] * 5
    assert_keys(lambda: pd.Series(keys, dtype=dtype), keys)
    assert_keys(lambda: pl.Series(keys), keys)


def test_missing_keys_in_polars_and_pandas_are_refused_with_their_position() -> None:
    for each in (
        pl.Series(["a", "b", None, "c"]),
        pl.Series(["a", "b", None, "c"], dtype=pl.Categorical),
        pd.Series(["a", "b", None, "c"], dtype="string"),
        pd.Series(["a", "b", None, "c"], dtype="str"),
        pd.Series(["a", "b", None, "c"], dtype="category"),
    ):
        assert_refused(lambda each=each: each, ValueError, r"^keys\[2\]: .*null", "ab")
    objects = pd.Series(["a", "b", None, "c"], dtype=object)
    assert_refused(lambda: objects, TypeError, r"^keys\[2\]: .*None.*missing", "ab")
    for each in (pl.Series([1, 2, None, 3]), pd.Series([1, 2, None, 3], dtype="Int64")):
        assert_refused(lambda each=each: each, ValueError, r"^keys\[2\]: .*null", [1, 2])


# --- Ctrl-C, the GIL, memory ---------------------------------------------------------------------------


@pytest.fixture
def default_interrupt() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def during(ready: Callable[[], bool], then: Callable[[], None]) -> threading.Thread:
    """Run `then` in another thread as soon as `ready`."""

    def watch() -> None:
        while not ready():
            time.sleep(0.001)
        then()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    return watcher


def interrupt() -> None:
    time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)


def said(error: BaseException) -> int:
    """The number of keys that an interrupted call says it took."""
    text = "\n".join([str(error), *getattr(error, "__notes__", [])])
    number = re.search(r"(?:stopped after|item) (\d+)", text)
    assert number, text
    return int(number[1])


# Two million 64-bit integers, one at each byte; `ENDLESS` has them over and over, in no more memory: more
# keys than a test can wait for.
DISTINCT = np.ndarray((2_000_000,), "<u8", np.random.default_rng(5).bytes(2_000_007), strides=(1,))
ENDLESS = np.broadcast_to(DISTINCT, (100_000, len(DISTINCT)))


@pytest.mark.usefixtures("default_interrupt")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("cls", [BloomFilter, BlockedBloomFilter, BalancedBloomFilter])
def test_ctrl_c_stops_a_bulk_call_on_an_array(cls: Any, threads: int) -> None:
    """The signal comes in the midst of the call: another thread sends it when the first key is in."""
    planners = {"BloomFilter": plan_standard, "BlockedBloomFilter": plan_blocked}
    planner: Any = planners.get(cls.__name__, plan_balanced)
    plan = planner(2_000_000, bits_per_key=8, hashes=16)
    f = cls.from_plan(plan)
    watcher = during(lambda: int(DISTINCT[0]) in f, interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"stopped after \d+ keys.*usable") as caught:
        f.add_many(ENDLESS, threads=threads)
    watcher.join()
    count = said(caught.value)
    assert 0 < count < ENDLESS.size
    expected = cls.from_plan(plan)
    expected.add_many(DISTINCT[:count])
    assert f == expected
    f.add("usable")
    assert "usable" in f
    f._check()


@pytest.mark.usefixtures("default_interrupt")
@pytest.mark.parametrize(
    "call",
    [
        lambda keys: BloomFilter(10).contains_many(keys),
        lambda keys: BlockedBloomFilter(10).contains_many(keys, threads=2),
        digest_many,
    ],
    ids=["contains_many", "threads", "digest_many"],
)
def test_ctrl_c_stops_a_query_and_a_digest(call: Callable[[Any], Any]) -> None:
    """Nothing shows that such a call has begun: if the signal came too early, it comes again, later."""
    keys = np.broadcast_to(np.array([b"x" * 10_000]), (20_000_000,))  # 200 GB to hash
    for delay in (0.1, 0.5, 2.0, 5.0):
        begun = threading.Event()
        watcher = during(begun.is_set, lambda delay=delay: (time.sleep(delay), interrupt()))
        with pytest.raises(KeyboardInterrupt) as caught:  # noqa: PT012
            begun.set()
            call(keys)
        watcher.join()
        if str(caught.value):
            break
    assert re.match(r"stopped after \d+ keys", str(caught.value))


@pytest.mark.usefixtures("default_interrupt")
@pytest.mark.parametrize(
    "endless", [itertools.count, lambda: (i for i in itertools.count()), lambda: map(str, itertools.count())],
    ids=["count", "generator", "map"],
)  # fmt: skip
def test_ctrl_c_stops_a_bulk_call_on_an_endless_iterable(endless: Callable[[], Any]) -> None:
    first = next(iter(endless()))
    f = BlockedBloomFilter(1_000_000)
    watcher = during(lambda: first in f, interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        f.add_many(endless())
    watcher.join()
    count = said(caught.value)
    assert count > 0
    expected = BlockedBloomFilter(1_000_000)
    expected.add_many(itertools.islice(endless(), count))
    assert f == expected
    f.add("usable")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_signal_handler_that_raises_stops_the_call_too(threads: int) -> None:
    def handler(*_: Any) -> None:
        raise Mine("from the handler")

    f = BlockedBloomFilter(2_000_000)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        watcher = during(lambda: int(DISTINCT[0]) in f, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        with pytest.raises(Mine, match="from the handler") as caught:
            f.add_many(ENDLESS, threads=threads)
        watcher.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    expected = BlockedBloomFilter(2_000_000)
    expected.add_many(DISTINCT[: said(caught.value)])
    assert f == expected


def test_a_signal_handler_that_uses_the_filter_does_not_hang(run_python: Any) -> None:
    """It runs in the midst of the call, in the same thread: asking works, writing is refused by an error."""
    code = """
import os, signal, threading, time
import numpy as np
from evenbins import BlockedBloomFilter

endless = np.broadcast_to(np.arange(1_000_000), (100_000, 1_000_000))
uses = {
    "in": lambda f: 1 in f and 1 / 0,
    "add": lambda f: f.add("x"),
    "add_many": lambda f: f.add_many(["x"]),
    "array": lambda f: f.add_many(np.arange(5000)),
    "copy": lambda f: f.copy(),
    "to_bytes": lambda f: f.to_bytes(),
    "merge": lambda f: f.__ior__(BlockedBloomFilter(1_000_000)),
    "merge into": lambda f: BlockedBloomFilter(1_000_000).__ior__(f),
    "==": lambda f: f == BlockedBloomFilter(1_000_000),
    "clear": lambda f: f.clear(),
}
for name, use in uses.items():
    for threads in (1, 2):
        f = BlockedBloomFilter(1_000_000)
        signal.signal(signal.SIGUSR1, lambda *_: use(f))

        def send():
            while 0 not in f:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGUSR1)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        try:
            f.add_many(endless, threads=threads)
        except (RuntimeError, ZeroDivisionError) as error:
            print(name, type(error).__name__, *error.__notes__, flush=True)
        sender.join()
        f.add("usable")
        f._check()
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 20
    assert all(re.search(r"(RuntimeError|ZeroDivisionError) .*item \d+ of the keys", line) for line in lines)


@pytest.mark.usefixtures("default_interrupt")
@pytest.mark.parametrize("threads", [1, 2])
def test_other_threads_run_python_during_a_bulk_call(threads: int) -> None:
    """Another thread sees the first key arrive, counts to 100,000, and only then ends the call."""
    counted = []

    def count() -> None:
        counted.append(sum(1 for _ in range(100_000)))
        interrupt()

    f = BlockedBloomFilter(2_000_000)
    watcher = during(lambda: int(DISTINCT[0]) in f, count)
    with pytest.raises(KeyboardInterrupt):
        f.add_many(ENDLESS, threads=threads)
    watcher.join()
    assert counted == [100_000]


class Keys:
    """An iterable that can be weakly referenced."""

    def __init__(self, keys: list[Any]) -> None:
        self.keys = keys

    def __iter__(self) -> Iterator[Any]:
        yield from self.keys


HELD: dict[str, Callable[[], Any]] = {
    "array": lambda: np.arange(3000),
    "text": lambda: np.array(["a", "b"]),
    "bad text": lambda: np.array(["a", "\ud800"]),
    "floats": lambda: np.zeros(3),
    "objects": lambda: np.array(["a", 1.5], object),
    "iterable": lambda: Keys(["a", 2]),
    "bad key": lambda: Keys(["a", None]),
    "failing iterable": lambda: Keys(None),  # type: ignore[arg-type]
    "arrow": lambda: pa.array(np.arange(3000)),
    "arrow with a null": lambda: pa.array(["a", None]),
    "arrow floats": lambda: pa.array([1.0]),
    "dictionary": lambda: pa.array(["a", "b", None]).dictionary_encode(),
    "chunks": lambda: pa.chunked_array([["a"], ["b", None]]),
}


@pytest.fixture(scope="module")
def _few_objects() -> None:
    """Let `gc.collect` leave out what is there: a process that ran many tests has millions of objects."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("_few_objects")
@pytest.mark.parametrize("make", HELD.values(), ids=HELD.keys())
def test_nothing_is_kept_after_a_call_however_it_ended(make: Callable[[], Any]) -> None:
    """Neither the filter nor the keys, nor what is inside an Arrow column."""
    before = pa.total_allocated_bytes()
    f, keys = single(()), make()
    weak = weakref.ref(f), weakref.ref(keys)
    for call in (f.add_many, f.contains_many, digest_many, functools.partial(f.add_many, threads=2)):
        with contextlib.suppress(TypeError, ValueError):
            call(keys)
    del f, keys, call
    gc.collect()
    assert [each() for each in weak] == [None, None]
    assert pa.total_allocated_bytes() == before


def test_building_from_an_array_copies_no_keys(run_python: Any) -> None:
    """Each source holds at least 32 MB of keys; while they are taken, at most 24 MB come on top.

    That is what the threads share out among themselves; it does not grow with the keys.
    """
    code = """
import numpy as np, pyarrow as pa
from evenbins import BlockedBloomFilter, BloomFilter

def kib(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))

filters = [BloomFilter(100_000), BlockedBloomFilter(100_000)]
for f in filters:
    f.add_many(np.arange(100_000), threads=2)
base = np.arange(8_000_000)
base %= 50_000  # code points that are no surrogates
sources = {
    "contiguous": base,
    "strided": base[::2],
    "backwards": base[4_000_000::-1],
    "two dimensions": base.reshape(2000, -1).T,
    "byte order": base.view(">i8"),
    "narrow": base.view("i4"),
    "bytes": base.view("S8"),
    "text": base.view("U2"),
    "arrow": pa.array(base),
    "arrow, bytes": pa.Array.from_buffers(pa.binary(8), len(base), [None, pa.py_buffer(base)]),
}
before = kib("VmRSS")
for name, keys in sources.items():
    filters[0].add_many(keys)
    filters[1].add_many(keys, threads=2)
    print(name, kib("VmHWM") - before, sep=":")
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    more = {name: int(kib) for name, kib in (line.split(":") for line in result.stdout.splitlines())}
    assert len(more) == 10
    assert max(more.values()) < 24 * 1024, more
