"""Keys of rows: which fields, what a value of JSON is as a key, and what happens to rows without one.

    text                       its bytes, so that it is the key that a line of the same text is
    a whole number             an integer, as in Parquet; 1, 1.0 and 1e0 are one number
    other numbers, true, false, arrays, objects     bytes with their type: true, 1 and "1" are three keys
    several fields             type, length and bytes of each: ("a", "bc") and ("ab", "c") are two keys

An object is compared by its fields, whatever their order. A key is null if all its fields are null or missing;
--nulls says what becomes of the row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from evenbins.cli._normalize import normalizer

__all__ = ["NULL_KEY", "NULLS", "BadValueError", "KeyRule", "encode_fields", "json_parser", "key_of_value"]

NULLS = ("error", "keep", "one")
_Key = bytes | int
_LEAST, _MOST = -(2**63), 2**64 - 1
_EXACT = float(2**53)  # every whole number below it is a float


class BadValueError(ValueError):
    """A row has no key that can be read; says what is wrong, without file and row."""


class KeyRule:
    """Which fields make up a row's key, how they are normalised, and what becomes of rows without one."""

    __slots__ = ("fields", "normalize", "nulls")

    def __init__(self, fields: Sequence[str] = (), rules: Sequence[str] = (), nulls: str = "error") -> None:
        self.fields, self.normalize, self.nulls = tuple(fields), normalizer(rules), nulls

    @property
    def title(self) -> str:
        """The fields as they are named on the command line."""
        return ",".join(self.fields)

    def key_of(self, values: Sequence[Any]) -> _Key | None:
        """Return the key of a row's values; None if all of them are null."""
        if len(values) == 1:
            return key_of_value(values[0], self.normalize)
        if all(value is None for value in values):
            return None
        return encode_fields(values, self.normalize)


def _text(value: str, normalize: Callable[[bytes], bytes] | None) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return data if normalize is None else normalize(data)


def key_of_value(value: Any, normalize: Callable[[bytes], bytes] | None = None) -> _Key | None:
    """Return a value as a key: text as its bytes, a whole number as an integer; None for null."""
    if value is None:
        return None
    if isinstance(value, str):
        return _text(value, normalize)
    if isinstance(value, bytes):
        return value if normalize is None else normalize(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and _LEAST <= value <= _MOST:
        return value
    return encode_fields([value], normalize)


def encode_fields(values: Sequence[Any], normalize: Callable[[bytes], bytes] | None = None) -> bytes:
    """Return several values as one key: of each its type, its length and its bytes.

    Examples
    --------
    >>> encode_fields(["a", "bc"]) == encode_fields(["ab", "c"])
    False
    """
    pieces = []
    for value in values:
        tag, data = _tagged(value, normalize)
        pieces += [tag, len(data).to_bytes(8, "little"), data]
    return b"".join(pieces)


def _tagged(value: Any, normalize: Callable[[bytes], bytes] | None) -> tuple[bytes, bytes]:
    if value is None:
        return b"n", b""
    if isinstance(value, str):
        return b"s", _text(value, normalize)
    if isinstance(value, bytes):
        return b"s", value if normalize is None else normalize(value)
    if isinstance(value, bool):
        return b"b", b"%d" % value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return b"i", b"%d" % value
    if isinstance(value, float):
        return b"f", repr(value).encode()
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return b"j", text.encode("utf-8", "surrogatepass")


NULL_KEY = encode_fields([None])

# --- JSON --------------------------------------------------------------------------------------------------


def _refuse_constant(text: str) -> None:
    raise BadValueError(f"{text} is no JSON: replace it by null")


def _parse_slowly(line: bytes) -> Any:
    """Parse by the standard library: integers of any size, and an error that says where."""
    try:
        return json.loads(line, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise BadValueError(f"malformed JSON ({error.msg} at column {error.pos + 1}): repair it") from None
    except UnicodeDecodeError as error:
        raise BadValueError(f"malformed JSON (no UTF-8 at byte {error.start}): repair it") from None
    except RecursionError:
        raise BadValueError("JSON nested too deeply: repair it") from None


def _getter(name: str) -> Callable[[Any], Any]:
    """Return a function that finds a field: by its name, or by a path of names with dots."""
    path = name.split(".")

    def get(row: Any) -> Any:
        if name in row:
            return row[name]
        for step in path:
            row = row.get(step) if isinstance(row, dict) else None
        return row

    return get


def json_parser(rule: KeyRule) -> Callable[[bytes], _Key | None]:
    """Return a function from a line of JSON to its key; None for null. It raises BadValueError."""
    try:
        fast: Callable[[bytes], Any] = import_module("orjson").loads
    except ImportError:
        fast = _parse_slowly
    getters = [_getter(name) for name in rule.fields]

    def parse(line: bytes) -> _Key | None:
        try:
            row = fast(line)
        except ValueError:
            row = _parse_slowly(line)
        if not isinstance(row, dict):
            raise BadValueError(
                f"a row must be an object, such as {{{json.dumps(rule.fields[0])}: …}}, not {line[:40]!r}"
            )
        values = [get(row) for get in getters]
        if fast is not _parse_slowly and any(map(_may_be_rounded, values)):
            row = _parse_slowly(line)
            values = [get(row) for get in getters]
        return rule.key_of(values)

    return parse


def _may_be_rounded(value: Any) -> bool:
    """Return whether a value may hold a long integer, which orjson reads as a float."""
    return isinstance(value, list | dict) or (isinstance(value, float) and abs(value) >= _EXACT)
