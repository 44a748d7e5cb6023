"""Tables from items and keys alone: the types of keys and values that hold all of them.

    keys      all int            int64 if they fit, else uint64, else digest
              str, bytes, mixed  digest
    values    all int            int64 if they fit, else uint64
              with a float       float64

Other values raise TypeError; None too: an exact set has keys alone (`from_keys`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from evenbins import _arguments as arguments
from evenbins._bulk import Lines, Spans, is_array_like
from evenbins.tables._keys import KEY_TYPES, stored_keys
from evenbins.tables.mapping import TableMapping

__all__ = ["FromItems", "FromKeys", "Items", "inferred_items"]

_RANGES = {"int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1)}


class Items(NamedTuple):
    """Keys and values, and the types that hold them."""

    keys: Any
    values: Any
    key_dtype: str
    value_dtype: str


class FromItems:
    """The constructor of a table from its items."""

    __slots__ = ()

    @classmethod
    def from_items(
        cls, items: object, *, capacity: int | None = None, key_dtype: str | None = None,
        value_dtype: str | None = None, **options: Any,
    ) -> Self:  # fmt: skip
        """Build a table of the items of a mapping, or of pairs of key and value.

        Parameters
        ----------
        items
            A mapping or pairs. Of a key that comes twice, the last value stays.
        capacity
            Keys to plan for; the number of items, unless more are to come.
        key_dtype, value_dtype
            By default inferred: "int64" or "uint64" if all keys are int, else "digest"; values likewise,
            "float64" if one of them is a float.
        **options
            Of the constructor.

        Examples
        --------
        >>> from evenbins import MultilevelTable
        >>> t = MultilevelTable.from_items([("a", 1.5), ("b", 2)], capacity=1000)
        >>> t.key_dtype, str(t.value_dtype), t["b"], t.capacity
        ('digest', 'float64', 2.0, 1000)
        >>> MultilevelTable({1: 10, 2: 20}) == {1: 10, 2: 20}
        True
        """
        found = inferred_items(items, key_dtype=key_dtype, value_dtype=value_dtype)
        n = max(1, len(found.values)) if capacity is None else capacity
        make: Any = cls
        table: Any = make(n, key_dtype=found.key_dtype, value_dtype=found.value_dtype, **options)
        table.insert_many(found.keys, found.values)
        return table  # type: ignore[no-any-return]


class FromKeys(FromItems):
    """The same, and that of an exact set from its keys."""

    __slots__ = ()

    @classmethod
    def from_keys(
        cls, keys: object, *, capacity: int | None = None, key_dtype: str | None = None, **options: Any
    ) -> Self:
        """Build an exact set of keys: a NumPy array, an Arrow column or any iterable.

        Parameters
        ----------
        keys
            The keys; repeated ones count once.
        capacity
            Keys to plan for; the number of keys, unless more are to come.
        key_dtype
            By default inferred: "int64" or "uint64" for integers, else "digest".
        **options
            Of the constructor.

        Examples
        --------
        >>> from evenbins import MultilevelTable
        >>> s = MultilevelTable.from_keys(["a", "b", "a", 7])
        >>> len(s), 7 in s, s.key_dtype
        (3, True, 'digest')
        """
        known: Any = keys if _is_column(keys) else _listed(keys)
        chosen = key_dtype or _column_dtype(known) or _key_dtype(known)
        seed = arguments.seed(options.get("seed", 0))
        words = stored_keys(known, _number_of(chosen), seed)
        n = words.size // (2 if chosen == "digest" else 1)
        make: Any = cls
        made: Any = make(
            max(1, n) if capacity is None else capacity, key_dtype=chosen, value_dtype=None, **options
        )
        made._add_new_many(words)
        return made  # type: ignore[no-any-return]


def inferred_items(items: object, *, key_dtype: str | None = None, value_dtype: str | None = None) -> Items:
    """Return the keys and values of a mapping or of pairs, with the types that hold them."""
    if isinstance(items, TableMapping):
        raise TypeError(
            "items must be a mapping of keys, or pairs: a table is copied by table.copy() or "
            "table.grown(capacity), and added to another by update(table)"
        )
    if isinstance(items, Mapping):
        pairs: list[Any] = list(items.items())
    elif isinstance(items, Iterable) and not isinstance(items, str | bytes):
        pairs = list(items)
    else:
        raise arguments.type_error("items", "a mapping or pairs of key and value", items, "Pass a dict")
    for i, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"item {i} is not a (key, value) pair: {arguments.shown(pair)}")
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    return Items(keys, values, key_dtype or _key_dtype(keys), value_dtype or _value_dtype(values))


def _listed(keys: object) -> list[Any]:
    if not isinstance(keys, Iterable) or isinstance(keys, str | bytes | bytearray | memoryview):
        raise arguments.type_error("keys", "many keys", keys, "Put one key into a list")
    return list(keys)


def _is_column(keys: object) -> bool:
    """Return whether keys have one type, which is known before they are read."""
    arrow = hasattr(keys, "__arrow_c_array__") or hasattr(keys, "__arrow_c_stream__")
    return isinstance(keys, Lines | Spans | range) or is_array_like(keys) or arrow


def _column_dtype(keys: Any) -> str | None:
    """Return the type of the keys of an array or column; None for a list of any keys."""
    if isinstance(keys, range):
        return _key_dtype([keys[0], keys[-1]] if keys else [])
    if not _is_column(keys):
        return None
    name = str(getattr(keys, "type", getattr(keys, "dtype", ""))).lower()
    kind = np.dtype(keys.dtype).kind if is_array_like(keys) else ""
    if kind == "O":
        return _key_dtype(np.asarray(keys).ravel().tolist())
    if kind == "u" or name.startswith("uint"):
        return "uint64"
    return "int64" if kind in ("i", "b") or name.startswith("int") else "digest"


def _number_of(key_dtype: object) -> int:
    return KEY_TYPES[
        arguments.one_of("key_dtype", key_dtype, tuple(KEY_TYPES), 'Pass "digest" for str and bytes')
    ]


def _key_dtype(keys: list[Any]) -> str:
    if all(_is_int(key) for key in keys):
        for name in _RANGES:
            if _fit(keys, name):
                return name
    return "digest"


def _value_dtype(values: list[Any]) -> str:
    for i, value in enumerate(values):
        if not _is_int(value) and not isinstance(value, float | np.floating):
            raise TypeError(
                f"values must be int or float; item {i} is {arguments.shown(value)}. A table holds 64-bit "
                "numbers: use from_keys(keys) for a set of keys without values"
            )
    if not all(_is_int(value) for value in values):
        return "float64"
    for name in _RANGES:
        if _fit(values, name):
            return name
    raise ValueError(
        "values must all lie in -2**63 ... 2**63-1, or all in 0 ... 2**64-1: pass them as floats"
    )


def _is_int(number: object) -> bool:
    return isinstance(number, int | np.integer | np.bool_)


def _fit(numbers: list[Any], name: str) -> bool:
    low, high = _RANGES[name]
    return all(low <= int(number) <= high for number in numbers)
