"""Keys of all Python types, NumPy arrays of all dtypes, strides and byte orders.

A key has a digest, or a TypeError or ValueError (KeyRangeError) says what to pass. One key and many keys
agree; an array gives
what its elements give, whatever its strides.
"""

from __future__ import annotations

import array
from typing import Any

import numpy as np
from provider import Provider

import evenbins
from evenbins import BloomFilter, ChainedTable, CountMinSketch, HashRing, MultilevelTable

_FILTER = BloomFilter(1000, fpr=0.01)
_SKETCH = CountMinSketch(epsilon=0.01, delta=0.01)
_RING = HashRing(["a", "b", "c"], epsilon=0.25)
_TABLES = (
    MultilevelTable(4000), MultilevelTable(4000, key_dtype="digest"), MultilevelTable(4000,
    key_dtype="uint64"),
    ChainedTable(4000), ChainedTable(4000, key_dtype="digest"),
)  # fmt: skip
_DTYPES = [
    "?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i2", ">u4", ">i8", ">u8", "f2", "f4", "f8",
    "c8", "S0",
    "S1", "S5", "S12", "U1", "U3", ">U2", "O", "M8[s]", "m8[ms]", "V4", [("a", "i4"), ("b", "S3")],
]  # fmt: skip
_REFUSED = (TypeError, ValueError, OverflowError, UnicodeError)


class _Index:
    def __init__(self, value: Any) -> None:
        self._value = value

    def __index__(self) -> Any:
        if self._value == "raise":
            raise RuntimeError("mine")
        return self._value


class _Iterable:
    def __init__(self, items: list[Any], fails: bool) -> None:
        self._items, self._fails = items, fails

    def __iter__(self) -> Any:
        yield from self._items
        if self._fails:
            raise RuntimeError("mine")


def one(data: bytes) -> None:
    """Take one input for keys."""
    given = Provider(data)
    if given.below(2):
        _scalar(_object(given, 0))
    else:
        _array(given)


def _object(given: Provider, depth: int) -> Any:
    number = given.signed(9)
    makers: list[Any] = [
        lambda: number, lambda: given.text(), lambda: given.bytes(12), lambda: bytearray(given.bytes(12)),
        lambda: memoryview(given.bytes(12)), lambda: memoryview(given.bytes(12))[::2], lambda:
        bool(number & 1),
        lambda: None, lambda: float(number), lambda: _Index(number), lambda: _Index("raise"), lambda:
        _Index("text"),
        lambda: np.int64(number % 2**63), lambda: np.uint8(number % 256), lambda: np.str_(given.text()),
        lambda: np.bytes_(given.bytes(5)), lambda: np.float32(1.5), lambda: np.bool_(number & 1),
        lambda: array.array("Q", [number % 2**64]), lambda: memoryview(array.array("i", [1, 2])),
        lambda: 1 << (number % 80), lambda: -(1 << (number % 80)), lambda: "\ud800" + given.text(),
        lambda: np.zeros(()), lambda: np.zeros(3), lambda: object(), lambda: int, lambda: ..., lambda: 1j,
        lambda: type("MyStr", (str,), {})(given.text()), lambda: type("MyInt", (int,), {})(number),
        lambda: np.datetime64("2020"), lambda: {given.text(): number}, lambda: (number,), lambda:
        range(number % 9),
    ]  # fmt: skip
    if depth < 2:
        makers += [
            lambda: [_object(given, depth + 1) for _ in range(given.below(5))],
            lambda: _Iterable([_object(given, depth + 1) for _ in range(given.below(5))], number % 3 == 0),
        ]
    return makers[given.below(len(makers))]()


def _digest(key: Any) -> int | type[BaseException]:
    try:
        return evenbins.digest(key)
    except _REFUSED as error:
        assert str(error), "an error without words"
        return TypeError
    except RuntimeError as error:
        assert str(error) == "mine"
        return TypeError


def _scalar(key: Any) -> None:
    found = _digest(key)
    for call in (
        _FILTER.add,
        _FILTER.__contains__,
        _SKETCH.count,
        _RING.node,
        lambda key: key in _SKETCH_NONE,
    ):
        try:
            call(key)
            worked = True
        except (*_REFUSED, RuntimeError):
            worked = False
        assert worked == isinstance(found, int), (call, type(key))
    if isinstance(found, int):
        assert key in _FILTER
        assert evenbins.digest_many([key])[0] == found
    for table in _TABLES:
        try:
            table[key] = 5
        except (*_REFUSED, RuntimeError, evenbins.TableFullError):
            continue
        assert table[key] == 5
        assert table.get_many([key])[0] == 5
        del table[key]
    try:
        digests = evenbins.digest_many(key)
    except (*_REFUSED, RuntimeError):
        return
    _FILTER.add_many(key)
    assert len(digests) >= 0


_SKETCH_NONE = BloomFilter(10, fpr=0.5)


def _array(given: Provider) -> None:
    dtype = np.dtype(_DTYPES[given.below(len(_DTYPES))])
    shape = tuple(given.below(5) for _ in range(given.below(4)))
    if dtype.kind == "O":
        whole = np.empty(shape, dtype)
        whole.flat = [_object(given, 2) for _ in range(whole.size)] or None
    else:
        size = int(np.prod(shape, dtype=int)) * dtype.itemsize
        raw = given.bytes(size).ljust(size, b"\x01")
        try:
            whole = np.frombuffer(raw, dtype).reshape(shape) if size else np.zeros(shape, dtype)
        except ValueError:
            return
    for _ in range(given.below(3)):
        axis = given.below(max(whole.ndim, 1))
        step = (slice(None, None, -1), slice(None, None, 2), slice(1, None), slice(None))[given.below(4)]
        if whole.ndim:
            whole = whole[(slice(None),) * axis + (step,)]
        if given.below(3) == 0:
            whole = whole.T
        if given.below(5) == 0 and whole.ndim:
            whole = np.broadcast_to(whole, (2, *whole.shape))
    if given.below(6) == 0 and dtype.kind in "iub":
        whole = np.ma.masked_array(whole, mask=given.below(2))
    try:
        many = evenbins.digest_many(whole)
    except _REFUSED as error:
        assert str(error)
        return
    except RuntimeError as error:
        assert str(error) == "mine"
        return
    assert many.shape == whole.shape, (many.shape, whole.shape)
    if dtype.kind in "iubSU":
        each = [evenbins.digest(item) for item in np.asarray(whole).ravel().tolist()]
        assert many.ravel().tolist() == each, "an array gives other digests than its elements"
    _FILTER.add_many(whole)
    assert np.asarray(_FILTER.contains_many(whole)).all()
    _SKETCH.count_many(whole)
    try:
        _RING.node_many(whole)
    except AttributeError:
        return
