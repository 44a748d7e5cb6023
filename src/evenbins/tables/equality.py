"""When two tables, or a table and a dict, have the same items.

    table == dict             every key of the dict is looked up: also in a table of digests
    table == table            integer keys by value; digests by their 128 bits, if both have one seed
    set == set                an exact set and another, or a Python set

Values compare as numbers do, so 1 equals 1.0, and NaN equals nothing. Digests of different seeds say nothing
about the keys: such tables are equal only if both are empty. Byte equality is `same_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from evenbins.tables._keys import KEY_TYPES, NO_VALUES, Words, stored_keys, values_of

if TYPE_CHECKING:
    from evenbins.tables.mapping import TableMapping

__all__ = ["equals_collection", "equals_table"]

_PAGE = 1 << 16
_ABSENT = object()
_DIGEST, _INT64 = KEY_TYPES["digest"], KEY_TYPES["int64"]


def equals_collection(table: TableMapping, other: object) -> Any:
    """Return whether a mapping has the items of a table, or a Python set the keys of an exact set."""
    if table._value_type == NO_VALUES:
        if not isinstance(other, Set):
            return NotImplemented
        return len(table) == len(other) and _are_distinct(table, other) and _all_in(table, other)
    if not isinstance(other, Mapping):
        return NotImplemented
    if len(table) != len(other) or not _are_distinct(table, other):
        return False
    try:
        return all(bool(table.get(key, _ABSENT) == value) for key, value in other.items())  # type: ignore[attr-defined]
    except (TypeError, ValueError):  # a key that no such table can hold
        return False


def _all_in(table: TableMapping, keys: Iterable[Any]) -> bool:
    try:
        return all(key in table for key in keys)
    except (TypeError, ValueError):
        return False


def _are_distinct(table: TableMapping, keys: Iterable[Any]) -> bool:
    """Return whether a table of digests tells keys apart: "a" and b"a", two to a dict, are one to it."""
    if table._key_type != _DIGEST:
        return True
    texts = [key.encode("utf-8", "surrogatepass") for key in keys if isinstance(key, str)]
    others = [bytes(key) for key in keys if isinstance(key, bytes | memoryview)]
    return not others or len({*texts, *others}) == len(texts) + len(others)


class _Different(Exception):  # noqa: N818  # ends a comparison
    pass


def equals_table(one: TableMapping, other: TableMapping) -> bool:
    """Return whether two tables have the same items, or two exact sets the same keys.

    Each is seen between two changes: `other` holds off its writers, and its keys are looked up in a copy of
    `one` (or in its pages, if it is in a file).
    """
    is_set = one._value_type == NO_VALUES
    if is_set != (other._value_type == NO_VALUES) or len(one) != len(other):
        return False
    if one._key_type != _DIGEST and other._key_type == _DIGEST:
        one, other = other, one  # the keys of the one with integers are looked up
    one = one._unchanging()
    compared = 0

    def compare(keys: Words, values: Words) -> None:
        nonlocal compared
        compared += values.size
        words = _words_in(one, other, keys)
        if words is None:
            raise _Different
        if is_set:
            if not one._contains_many(words, 1).all():
                raise _Different
            return
        found, absent, _ = one._get_many(words, 0, 1)
        if absent or not _same_values(one, found, other, values):
            raise _Different

    try:
        other._each_batch(compare, _PAGE)
    except _Different:
        return False
    return compared == len(one)


def _words_in(one: TableMapping, other: TableMapping, keys: Words) -> Words | None:
    """Return keys of one table as words of another; None if one of them cannot be there."""
    if one._key_type == other._key_type:
        return keys if one._key_type != _DIGEST or one._seed == other._seed else None
    if one._key_type == _DIGEST:
        numbers = keys.view(np.int64) if other._key_type == _INT64 else keys
        return stored_keys(numbers, _DIGEST, one._seed)
    return None if (keys >> np.uint64(63)).any() else keys  # int64 and uint64: the same below 2**63


def _same_values(one: TableMapping, found: Words, other: TableMapping, values: Words) -> bool:
    a, b = values_of(found, one._value_type), values_of(values, other._value_type)
    if a.dtype == b.dtype:
        return bool((a == b).all())
    return bool(a.tolist() == b.tolist())  # exactly: NumPy would compare integers as floats
