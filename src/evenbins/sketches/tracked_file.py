"""The file of a sketch with its tracked keys, kind 16 (docs/format.md).

    header │ the sketch's own file (kind 6), zeros to a whole line │ the tracked keys, the largest value first

    core      k, number of keys, merged_bound, bytes of the sketch's file, bytes of the keys
    a key     its estimate; 4 * bytes + form (0 bytes, 1 text, 2 an integer from 0 on, 3 one below 0);
              its bytes, zeros to a whole word

A state has one file: digests are computed anew, and keys that are out of order, there twice, or padded
otherwise, or a state that no stream can leave, raise FormatError.
"""

from __future__ import annotations

import struct
from typing import Any

from evenbins import _core
from evenbins._core import FormatError
from evenbins.sketches.countmin import CountMinSketch
from evenbins.sketches.tracked_keys import PlainKey, TrackedKeys

__all__ = ["HITTERS_KIND", "from_file", "keys_bytes", "to_file"]

HITTERS_KIND = 16
_INDEPENDENT = 1  # how a sketch draws its positions
_LINE, _WORD = 64, 8
_HEAD = struct.Struct("<2Q")
_BYTES, _TEXT, _NATURAL, _NEGATIVE = range(4)


def keys_bytes(tracked: TrackedKeys) -> int:
    """Return the bytes that the tracked keys have in a file."""
    return sum(_HEAD.size + _padded(_size_of(key), _WORD) for _, key in tracked.found.values())


def to_file(tracked: TrackedKeys) -> bytes:
    """Return the bytes of the file."""
    sketch = tracked.sketch.to_bytes()
    keys = b"".join(_entry(key, estimate) for key, estimate in tracked.ranked())
    payload = sketch.ljust(_padded(len(sketch), _LINE), b"\0") + keys
    core = [tracked.k, len(tracked.found), tracked.merged_bound, len(sketch), len(keys)]
    header = _core.file_header(HITTERS_KIND, _INDEPENDENT, tracked.sketch.seed, 1, core, payload)
    return header + payload


def from_file(data: Any, *, mapped: bool, verify: bool) -> TrackedKeys:
    """Read the file; `mapped` and `verify` are those of the sketch, and the keys are always checked."""
    view = memoryview(data)
    if not mapped and not isinstance(view.obj, bytes):
        view = memoryview(bytes(view))  # what is verified is what is read
    kind, seed, _, core, offset = _core.file_parts(view, verify)
    if kind != HITTERS_KIND:
        raise FormatError(f"the file holds another kind ({kind}): use evenbins.load or evenbins.open")
    k, count, merged_bound, size, _ = core
    sketch = CountMinSketch._from_data(view[offset : offset + size], mapped=mapped, verify=verify)
    if sketch.seed != seed:
        raise FormatError("the sketch in the file has another seed than the header")
    begin = offset + _padded(size, _LINE)
    if any(view[offset + size : begin]):
        raise FormatError("the padding behind the sketch is not zero")
    tracked = TrackedKeys(k, sketch, _entries(view[begin:], count, sketch), merged_bound)
    if merged_bound and (not tracked.is_full or merged_bound > sketch.total):
        raise FormatError(f"keys that are not tracked cannot have been seen {merged_bound} times")
    return tracked


def _padded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _size_of(key: PlainKey) -> int:
    if isinstance(key, int):
        return _WORD
    return len(key) if isinstance(key, bytes) or key.isascii() else len(key.encode())


def _entry(key: PlainKey, estimate: int) -> bytes:
    if isinstance(key, str):
        form, data = _TEXT, key.encode()
    elif isinstance(key, bytes):
        form, data = _BYTES, key
    else:
        form, data = (_NEGATIVE if key < 0 else _NATURAL), (key % 2**64).to_bytes(_WORD, "little")
    return _HEAD.pack(estimate, 4 * len(data) + form) + data.ljust(_padded(len(data), _WORD), b"\0")


def _entries(view: memoryview, count: int, sketch: CountMinSketch) -> dict[int, tuple[int, PlainKey]]:
    found: dict[int, tuple[int, PlainKey]] = {}
    at, before = 0, (2**64, 0)
    for number in range(count):
        if len(view) - at < _HEAD.size:
            raise FormatError(f"tracked key {number} is cut short")
        estimate, word = _HEAD.unpack_from(view, at)
        size, form = divmod(word, 4)
        begin = at + _HEAD.size
        at = begin + _padded(size, _WORD)
        if at > len(view):
            raise FormatError(f"tracked key {number} is cut short")
        key = _key(bytes(view[begin : begin + size]), form, number)
        digest = _core.digest(key, sketch.seed)
        if any(view[begin + size : at]) or not (estimate, digest) < before:
            raise FormatError(f"tracked key {number} is out of order, or its padding is not zero")
        if not 1 <= estimate <= sketch.count(key):
            raise FormatError(f"tracked key {number} has an estimate that the sketch does not have")
        found[digest] = estimate, key
        before = estimate, digest
    if at != len(view) or len(found) != count:
        raise FormatError("the tracked keys do not fill their part of the file, or one is there twice")
    return found


def _key(data: bytes, form: int, number: int) -> PlainKey:
    if form == _BYTES:
        return data
    if form == _TEXT:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise FormatError(f"tracked key {number} is not valid UTF-8") from None
    value = int.from_bytes(data, "little", signed=form == _NEGATIVE)
    if len(data) != _WORD or (form == _NEGATIVE and value >= 0):
        raise FormatError(f"tracked key {number} is no integer of 64 bits")
    return value
