"""A table as a mapping: what every class of tables can do, whatever is behind it.

    t[key] = value, t[key], del t[key], key in t, len(t)    the core's own (cpp/bindings/mapping.hpp)
    get, setdefault, pop, update, keys, values, items       as a dict's
    insert_many, get_many, contains_many, delete_many       many keys: arrays, Arrow columns, iterables

A class of tables inherits from a class of the core and from `TableMapping`, and adds its plan and its
measurements.

Invariants: bulk calls leave what single calls in key order would; a key or value that does not fit is refused
before anything is stored; a table that was changed while somebody iterates over it raises RuntimeError.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np
import numpy.typing as npt

from evenbins import _bulk, _files, _table_keys
from evenbins._table_keys import Words
from evenbins.protocols import Key, StrPath
from evenbins.theory import _arguments as arguments

__all__ = ["TableMapping"]

_STRETCH = 1024  # items that an iteration fetches together
_MISSING: Final = object()


class TableMapping(_files.Stored):
    """The methods that all tables share; the core's class beside it does the work."""

    __slots__ = ()

    if TYPE_CHECKING:  # what the core's class has

        @property
        def _key_type(self) -> int: ...
        @property
        def _value_type(self) -> int: ...
        @property
        def _seed(self) -> int: ...
        @property
        def _capacity(self) -> int: ...
        @property
        def _core(self) -> list[int]: ...
        @property
        def _read_only(self) -> bool: ...
        @property
        def _version(self) -> int: ...
        def __init__(self, *arguments: Any) -> None: ...
        def __len__(self) -> int: ...
        def __getitem__(self, key: Key, /) -> Any: ...
        def __setitem__(self, key: Key, value: Any, /) -> None: ...
        def __delitem__(self, key: Key, /) -> None: ...
        def __contains__(self, key: object, /) -> bool: ...
        def _get(self, key: object, other: Any) -> Any: ...
        def _take(self, key: object, other: Any) -> Any: ...
        def _put_from(self, keys: Words, values: Words, new: bool) -> None: ...
        def _find_from(self, keys: Words, threads: int) -> tuple[Words, npt.NDArray[np.bool_]]: ...
        def _contains_from(self, keys: Words, threads: int) -> npt.NDArray[np.bool_]: ...
        def _erase_from(self, keys: Words) -> int: ...
        def _items(self, cursor: int, most: int) -> tuple[Words, Words, int]: ...
        def _equal(self, other: Any) -> bool: ...
        def _clear(self) -> None: ...
        def _to_bytes(self) -> bytes: ...
        def _write_to(self, descriptor: int) -> None: ...

    # --- one key -------------------------------------------------------------------------------------

    def get(self, key: Key, default: Any = None) -> Any:
        """Give the value of a key, or `default` if it is not in the table."""
        return self._get(key, default)

    def setdefault(self, key: Key, default: Any) -> Any:
        """Give the value of a key; if it is not in the table, store `default` for it first.

        Raises
        ------
        TableFull
            The key is not in the table, and there is no room for it.
        """
        if self._get(key, _MISSING) is _MISSING:
            self[key] = default
        return self[key]

    def pop(self, key: Key, default: Any = _MISSING) -> Any:
        """Delete a key and give its value; if it is not in the table, give `default`.

        Raises
        ------
        KeyError
            The key is not in the table, and there is no default.
        """
        value = self._take(key, default)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def update(self, other: object = (), /) -> None:
        """Store all items of a mapping, or of an iterable of (key, value) pairs; see `insert_many`."""
        if isinstance(other, TableMapping):
            other = list(other.items())
        if isinstance(other, Mapping) or hasattr(other, "keys"):
            found = cast("Mapping[Any, Any]", other)
            keys = list(found.keys())
            self.insert_many(keys, [found[key] for key in keys])
            return
        if isinstance(other, str | bytes | bytearray) or not isinstance(other, Iterable):
            rule = "a mapping, or an iterable of (key, value) pairs"
            raise TypeError(arguments.problem("other", rule, other, "For arrays call insert_many"))
        pairs = []
        for place, item in enumerate(other):
            pair = tuple(item)
            if len(pair) != 2:
                raise ValueError(f"item {place} must be a pair (key, value); it has {len(pair)} parts")
            pairs.append(pair)
        self.insert_many([key for key, _ in pairs], [value for _, value in pairs])

    # --- many keys -----------------------------------------------------------------------------------

    def insert_many(self, keys: object, values: object, *, new: bool = False) -> None:
        """Store many keys with their values, in order: of equal keys the last one wins.

        The GIL is released. Ctrl-C stops the call; the keys before are in, and the table is usable.

        Parameters
        ----------
        keys
            A NumPy array, an Arrow column, or any iterable of keys.
        values
            As many values as keys, or one number for all.
        new
            Your promise that no key is in the table or comes twice: then none is looked for. A promise that
            was broken leaves a key stored twice (look-ups find one of them; `_check()` finds out).

        Raises
        ------
        TableFull
            There is no room for a key; `error.inserted` keys are in, exactly the first ones.
        TypeError, ValueError
            A key or value does not fit; nothing has been stored.
        """
        words, _ = self._words(keys)
        count = len(words) // (2 if self._key_type == 3 else 1)
        self._put_from(words, _table_keys.stored_values(values, self._value_type, count), bool(new))

    def get_many(self, keys: object, default: object = _MISSING, *, threads: int = 1) -> npt.NDArray[Any]:
        """Give the values of many keys: an array of `value_dtype`, in the shape of an array of keys.

        Parameters
        ----------
        keys
            As for `insert_many`.
        default
            The value for keys that are not in the table.
        threads
            Threads that look keys up.

        Raises
        ------
        KeyError
            Some keys are not in the table, and there is no default.
        """
        words, shape = self._words(keys)
        found, there = self._find_from(words, _bulk.checked_threads(threads))
        if not there.all():
            if default is _MISSING:
                first = int(np.argmin(there))
                raise KeyError(
                    f"{int((~there).sum())} of {len(there)} keys are not in the table, the first at index "
                    f"{first}: pass a default"
                )
            found[~there] = _table_keys.stored_values(default, self._value_type, 1, name="default")[0]
        values = _table_keys.values_of(found, self._value_type)
        return values if shape is None else values.reshape(shape)

    def contains_many(self, keys: object, *, threads: int = 1) -> npt.NDArray[np.bool_]:
        """Tell of many keys whether they are in the table: an array, in the shape of an array of keys."""
        words, shape = self._words(keys)
        found = self._contains_from(words, _bulk.checked_threads(threads))
        return found if shape is None else found.reshape(shape)

    def delete_many(self, keys: object, *, missing: str = "ignore") -> int:
        """Delete many keys, and give the number of those that were in the table.

        Parameters
        ----------
        keys
            As for `insert_many`; a key that comes twice is deleted once.
        missing
            What to do with keys that are not in the table: "ignore" them, or "error": raise KeyError and
            delete none.

        Raises
        ------
        KeyError
            With missing="error": some keys are not in the table; nothing was deleted.
        """
        if missing not in ("ignore", "error"):
            kind = ValueError if isinstance(missing, str) else TypeError
            raise kind(arguments.problem("missing", '"ignore" or "error"', missing, "Leave it out to ignore"))
        words, _ = self._words(keys)
        if missing == "error":
            there = self._contains_from(words, 1)
            if not there.all():
                first = int(np.argmin(there))
                raise KeyError(
                    f"{int((~there).sum())} of {len(there)} keys are not in the table, the first at index "
                    f"{first}; nothing was deleted"
                )
        return self._erase_from(words)

    def _words(self, keys: object) -> tuple[Words, tuple[int, ...] | None]:
        return _table_keys.stored_keys(keys, self._key_type, self._seed)

    # --- all keys ------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[int]:
        return self._iterate(lambda keys, _: self._key_objects(keys))

    def keys(self) -> KeysView[int]:
        """View the keys; of a table with key_dtype="digest" their 128-bit digests."""
        return _Keys(self)

    def values(self) -> ValuesView[Any]:
        """View the values, in the order of the keys."""
        return _Values(self)

    def items(self) -> ItemsView[int, Any]:
        """View the pairs of keys and values."""
        return _Items(self)

    def _iterate(self, pick: Callable[[Words, Words], Iterable[Any]]) -> Iterator[Any]:
        version, cursor = self._version, 0
        while True:
            keys, values, cursor = self._items(cursor, _STRETCH)
            for item in pick(keys, values):
                yield item
                if self._version != version:
                    raise RuntimeError("the table was changed during an iteration: iterate over list(table)")
            if cursor == 0:
                return

    def _key_objects(self, words: Words) -> list[int]:
        if self._key_type == 1:
            return cast("list[int]", words.view(np.int64).tolist())
        if self._key_type == 2:
            return cast("list[int]", words.tolist())
        halves = words.tolist()
        return [low | high << 64 for low, high in zip(halves[::2], halves[1::2], strict=True)]

    def _value_objects(self, words: Words) -> list[Any]:
        return cast("list[Any]", _table_keys.values_of(words, self._value_type).tolist())

    def clear(self) -> None:
        """Delete all keys; counters of what happened start anew."""
        self._clear()

    # --- the table as a whole ------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """The number of keys the table is planned for."""
        return self._capacity

    @property
    def seed(self) -> int:
        """The seed of the digests."""
        return self._seed

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._equal(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def copy(self) -> Self:
        """Make an independent copy; it can be changed even if this table is open read-only."""
        twin = type(self).__new__(type(self))
        self._core_class().__init__(twin, self)
        for name in getattr(type(self), "__slots__", ()):
            setattr(twin, name, getattr(self, name, None))
        _attributes(twin).update(_attributes(self))
        return twin

    @classmethod
    def _core_class(cls) -> Any:
        """Give the class of the core that does the work."""
        return next(base for base in cls.__mro__ if base.__module__ == "evenbins._core")

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = self.copy()
        _attributes(twin).update(copy.deepcopy(_attributes(self), memo))
        return twin

    def to_bytes(self) -> bytes:
        """Give the table as bytes: those that `save` writes."""
        return self._to_bytes()

    def save(self, path: StrPath) -> None:
        """Write a file, atomically and durably: after a crash the old or the new one is there."""
        _files.replace_file(path, self._write_to)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(),), _attributes(self) or None


class _Keys(KeysView[int]):
    __slots__ = ()
    _mapping: TableMapping

    def __contains__(self, key: object) -> bool:
        return key in self._mapping

    def __iter__(self) -> Iterator[int]:
        return iter(self._mapping)


class _Values(ValuesView[Any]):
    __slots__ = ()
    _mapping: TableMapping

    def __contains__(self, value: object) -> bool:
        return any(value == each for each in self)

    def __iter__(self) -> Iterator[Any]:
        table = self._mapping
        return table._iterate(lambda _, values: table._value_objects(values))


class _Items(ItemsView[int, Any]):
    __slots__ = ()
    _mapping: TableMapping

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, tuple) or len(item) != 2:
            return False
        value = self._mapping._get(item[0], _MISSING)
        return value is not _MISSING and bool(value == item[1])

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        table = self._mapping
        return table._iterate(
            lambda keys, values: zip(table._key_objects(keys), table._value_objects(values), strict=True)
        )


def _attributes(table: TableMapping) -> dict[str, Any]:
    """Give the attributes that a subclass written in Python put on its object; ours has none."""
    found: dict[str, Any] = getattr(table, "__dict__", {})
    return found
