"""Keys of rows: which fields, what a value of JSON is as a key, and what happens to rows without one.

    text                       its bytes, so that it is the key that a line of the same text is
    a whole number             an integer, as in Parquet; 1, 1.0 and 1e0 are one number (_exact_json.py)
    other numbers, true, false, arrays, objects     bytes with their type: true, 1 and "1" are three keys
    several fields             the type and the value of each: ("a", "bc") and ("ab", "c") are two keys

An object is compared by its fields, whatever their order. A key is null if all its fields are null or
missing;
--nulls says what becomes of the row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from evenbins.cli._exact_json import (
    ExactNumber,
    NoNumberError,
    canonical_json,
    exact_json,
    may_be_rounded,
    plain_number,
)
from evenbins.cli._normalize import normalizer

__all__ = ["NULLS", "BadValueError", "KeyRule", "json_parser", "key_of_value", "normalized"]

NULLS = ("error", "keep", "one")


class BadValueError(ValueError):
    """A row has no key that can be read; says what is wrong, without file and row."""


class KeyRule:
    """Which fields make up a row's key, how they are normalised, and what becomes of rows without one.

    `empty_is_null`: a field of CSV without a character is null. `option` names the fields in messages.
    """

    __slots__ = ("empty_is_null", "fields", "normalize", "nulls", "option")

    def __init__(
        self, fields: Sequence[str] = (), rules: Sequence[str] = (), nulls: str = "error", *,
        empty_is_null: bool = True, option: str = "--key",
    ) -> None:  # fmt: skip
        self.fields, self.normalize, self.nulls = tuple(fields), normalizer(rules), nulls
        self.empty_is_null, self.option = empty_is_null, option

    @property
    def title(self) -> str:
        """The fields as they are named on the command line."""
        return ",".join(self.fields)


def normalized(values: Sequence[Any], rule: KeyRule) -> list[bytes | None]:
    """Return texts as the rule normalises them; nulls stay null."""
    return [None if value is None else _text(value, rule.normalize) for value in values]


def _text(value: str | bytes, normalize: Callable[[bytes], bytes] | None) -> bytes:
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return data if normalize is None else normalize(data)


def key_of_value(value: Any, normalize: Callable[[bytes], bytes] | None = None) -> Any:
    """Return a value of JSON as a key: text as bytes, a whole number as an int, all else with its type.

    Examples
    --------
    >>> [key_of_value(each) for each in ("1", 1, 1.0, None)]
    [b'1', 1, 1, None]
    """
    if value is None:
        return None
    if isinstance(value, str):
        text = _text(value, normalize)
        return b"\0text" + text if text.startswith(b"\0") else text
    if isinstance(value, bool):
        return b"\0bool\0%d" % value
    if isinstance(value, int | float | ExactNumber):
        number = plain_number(value)
        if isinstance(number, int):
            return number
        return (b"\0float\0" if isinstance(number, float) else b"\0number\0") + str(number).encode()
    return b"\0json\0" + canonical_json(value).encode("utf-8", "surrogatepass")


# --- JSON --------------------------------------------------------------------------------------------------


def _parse_slowly(line: bytes) -> Any:
    """Parse by the standard library: numbers by their exact value, and an error that says where."""
    try:
        return exact_json(line)
    except json.JSONDecodeError as error:
        raise BadValueError(f"malformed JSON ({error.msg} at column {error.pos + 1}): repair it") from None
    except UnicodeDecodeError as error:
        raise BadValueError(f"malformed JSON (no UTF-8 at byte {error.start}): repair it") from None
    except NoNumberError as error:
        raise BadValueError(str(error)) from None


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


def json_parser(rule: KeyRule) -> Callable[[bytes], Any]:
    """Return a function from a line of JSON to its key, a tuple of several; None for null.

    It raises BadValueError for a line that is no object of JSON.
    """
    try:
        fast: Callable[[bytes], Any] = import_module("orjson").loads
    except ImportError:
        fast = _parse_slowly
    getters = [_getter(name) for name in rule.fields]

    def parse(line: bytes) -> Any:
        try:
            return key_of_line(line)
        except RecursionError:
            raise BadValueError("JSON nested too deeply: repair it") from None

    def key_of_line(line: bytes) -> Any:
        try:
            row = fast(line)
        except ValueError:
            row = _parse_slowly(line)
        if not isinstance(row, dict):
            raise BadValueError(
                f"a row must be an object, such as {{{json.dumps(rule.fields[0])}: …}}, not {line[:40]!r}"
            )
        values = [get(row) for get in getters]
        if fast is not _parse_slowly and may_be_rounded(values, line):
            row = _parse_slowly(line)
            values = [get(row) for get in getters]
        keys = [key_of_value(value, rule.normalize) for value in values]
        if len(keys) == 1:
            return keys[0]
        return None if all(key is None for key in keys) else tuple(keys)

    return parse
