"""Arrow columns through the C data interface, built by hand: wrong formats, lengths, offsets, nulls,
missing buffers.

The interface has no lengths of buffers, so a producer is trusted with memory: what offsets name must
exist. Here it always does;
all else lies. A column gives the digests of its keys, or TypeError, ValueError, OSError (a stream that
fails).
"""

from __future__ import annotations

import ctypes
from typing import Any

from provider import Provider

import evenbins

_FORMATS = [b"c", b"C", b"s", b"S", b"i", b"I", b"l", b"L", b"b", b"u", b"z", b"U", b"Z", b"vu", b"vz",
b"n", b"w:4",
            b"w:0", b"w:", b"w:-1", b"w:99999999999999999999", b"g", b"e", b"+s", b"+l", b"+r", b"tdD",
            b"d:3,2", b"",
            b"\xff\xfe", b"lu", None]  # fmt: skip
_DATA_BYTES = 64


class Schema(ctypes.Structure):
    """ArrowSchema."""


class Array(ctypes.Structure):
    """ArrowArray."""


class Stream(ctypes.Structure):
    """ArrowArrayStream."""


_ReleaseSchema = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))
_ReleaseArray = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
_ReleaseStream = ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))
_GetSchema = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema))
_GetNext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))
_GetError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Stream))
_MINE = ctypes.create_string_buffer(b"mine")
Schema._fields_ = [
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64), ("n_children", ctypes.c_int64), ("children", ctypes.c_void_p),
    ("dictionary", ctypes.POINTER(Schema)), ("release", _ReleaseSchema), ("private_data", ctypes.c_void_p),
]  # fmt: skip
Array._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64), ("n_children", ctypes.c_int64), ("buffers",
    ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.c_void_p), ("dictionary", ctypes.POINTER(Array)), ("release", _ReleaseArray),
    ("private_data", ctypes.c_void_p),
]  # fmt: skip
Stream._fields_ = [
    ("get_schema", _GetSchema), ("get_next", _GetNext), ("get_last_error", _GetError),
    ("release", _ReleaseStream), ("private_data", ctypes.c_void_p),
]  # fmt: skip

_released = [0]


def _release(pointer: Any) -> None:
    _released[0] += 1
    ctypes.memset(ctypes.addressof(pointer.contents) + type(pointer.contents).release.offset, 0, 8)


_RELEASE_SCHEMA, _RELEASE_ARRAY = _ReleaseSchema(_release), _ReleaseArray(_release)
_RELEASE_STREAM = _ReleaseStream(_release)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Column:
    """A column that some producer made, and its memory."""

    def __init__(self, given: Provider) -> None:
        self._kept: list[Any] = []
        self._given = given
        self._formats = [_FORMATS[given.below(len(_FORMATS))]]
        while given.below(4) == 0 and len(self._formats) < 4:  # a dictionary, perhaps of dictionaries
            self._formats.append(_FORMATS[given.below(len(_FORMATS))])
        self.schema = self._schema(0)
        self.array = self._array(0)

    def _keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value

    def _schema(self, depth: int) -> Schema:
        found: Schema = self._keep(Schema())
        found.format, found.name, found.release = self._formats[depth], b"x", _RELEASE_SCHEMA
        if depth + 1 < len(self._formats):
            found.dictionary = ctypes.pointer(self._schema(depth + 1))
        return found

    def _array(self, depth: int) -> Array:
        given, format = self._given, self._formats[depth]
        found: Array = self._keep(Array())
        length, offset = given.below(20), given.below(10)
        places = length + offset + 1
        found.length, found.offset, found.release = length, offset, _RELEASE_ARRAY
        found.null_count = (0, 0, -1, 1, 5, -7)[given.below(6)]
        validity = self._buffer(given.bytes(places // 8 + 1).ljust(places // 8 + 1, b"\xff"))
        data = self._buffer(given.bytes(8).ljust(_DATA_BYTES, b"x"))
        second = data
        if format in (b"u", b"z", b"U", b"Z"):
            width = 4 if format in (b"u", b"z") else 8
            numbers = sorted(given.below(_DATA_BYTES + 1) for _ in range(places + 1))
            for _ in range(given.below(3)):  # lies: backwards, or negative
                lie = (0, -1, -(1 << (8 * width - 1)), 5)[given.below(4)]
                numbers[given.below(len(numbers))] = lie
            first = self._buffer(b"".join(x.to_bytes(width, "little", signed=True) for x in numbers))
        elif format in (b"vu", b"vz"):
            views = b""
            for _ in range(places):
                size = (given.below(13), given.below(_DATA_BYTES + 9), -1, -(2**31))[given.below(4) % 3]
                where = (given.below(4) - 1).to_bytes(4, "little", signed=True)
                at = (given.below(_DATA_BYTES + 9) - 4).to_bytes(4, "little", signed=True)
                views += size.to_bytes(4, "little", signed=True) + b"pref" + where + at
            first = self._buffer(views)
        else:
            first = self._buffer(given.bytes(8 * places).ljust(max(8 * places, 80), b"\x01"))
        sizes = self._buffer(_DATA_BYTES.to_bytes(8, "little") * 4)
        pointers = [validity, first, second, sizes]
        if format in (b"vu", b"vz") and given.below(2):
            pointers = [validity, first, second, second, sizes]
        count = len(pointers) if format in (b"vu", b"vz") else 3
        if given.below(4) == 0:
            pointers[given.below(len(pointers))] = 0
        if given.below(6) == 0:
            count = given.below(len(pointers) + 1) if format not in (b"vu", b"vz") else given.below(3)
        found.n_buffers = count
        found.buffers = self._keep((ctypes.c_void_p * 6)(*pointers))
        if given.below(12) == 0:
            found.length = (-1, -(2**63), 2**63 - 1)[given.below(3)]
        if given.below(12) == 0:
            found.offset = (-1, -(2**63))[given.below(2)]
        if given.below(20) == 0:
            found.buffers = None
        if depth + 1 < len(self._formats) and given.below(9):  # else it lacks its dictionary
            found.dictionary = ctypes.pointer(self._array(depth + 1))
        return found

    def _buffer(self, content: bytes) -> int:
        return ctypes.addressof(self._keep(ctypes.create_string_buffer(content, max(len(content), 1))))

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        """Give the two capsules."""
        return (
            _new_capsule(ctypes.addressof(self.schema), b"arrow_schema", None),
            _new_capsule(ctypes.addressof(self.array), b"arrow_array", None),
        )


class Columns:
    """A stream of columns, which may fail."""

    def __init__(self, given: Provider) -> None:
        self._columns = [Column(given)]
        self._left = given.below(3)
        self._fails = given.below(5)
        self._stream = Stream()
        self._calls = (
            _GetSchema(self._get_schema),
            _GetNext(self._get_next),
            _GetError(lambda _: ctypes.addressof(_MINE)),
        )
        self._stream.get_schema, self._stream.get_next, self._stream.get_last_error = self._calls
        self._stream.release = _RELEASE_STREAM

    def _get_schema(self, _: Any, out: Any) -> int:
        if self._fails == 1:
            return 5
        ctypes.memmove(out, ctypes.addressof(self._columns[0].schema), ctypes.sizeof(Schema))
        return 0

    def _get_next(self, _: Any, out: Any) -> int:
        if self._left == 0:
            if self._fails == 2:
                return 5
            ctypes.memset(out, 0, ctypes.sizeof(Array))
            return 0
        self._left -= 1
        ctypes.memmove(out, ctypes.addressof(self._columns[0].array), ctypes.sizeof(Array))
        return 0

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Give the capsule."""
        return _new_capsule(ctypes.addressof(self._stream), b"arrow_array_stream", None)


_FILTER = evenbins.BloomFilter(1000, fpr=0.01)
_TABLE = evenbins.MultilevelTable(4000, key_dtype="digest")
_INTS = evenbins.MultilevelTable(4000)


def one(data: bytes) -> None:
    """Take one input for a column."""
    choice, rest = data[:1], data[1:]
    make: Any = Columns if choice and choice[0] % 4 == 0 else Column
    calls: list[Any] = [evenbins.digest_many, _FILTER.add_many, _FILTER.contains_many, _TABLE.contains_many,
                        _INTS.contains_many]  # fmt: skip
    call = calls[choice[0] // 4 % len(calls)] if choice else evenbins.digest_many
    for each in (evenbins.digest_many, call):
        column = make(Provider(rest))
        try:
            each(column)
        except (TypeError, ValueError) as error:
            assert str(error)
        except OSError as error:
            assert "mine" in str(error)
