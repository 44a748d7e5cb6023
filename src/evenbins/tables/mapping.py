"""What every table of this library can do as a mapping, single keys and bulk, on top of a compiled core.

A class that mixes this in has a core with raw `in`, `[]`, `[] =`, `del`, `len` and `get`, and with

    _insert_many(keys, values, are_new, before)   _erase_many(keys, strict)   _pop(key, default)
    _get_many(keys, missing, threads)   _contains_many(keys, threads)   _setdefault(key, default)
    _page(slot, entry, most)   _each_batch(store, most)   _clear()   _version   _core   _seed

all in words (`_keys`), and says by `_types_at` where its core has what the words mean.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk
from evenbins._bulk import Key
from evenbins.structure import refuse_damaged
from evenbins.tables import _keys, equality
from evenbins.tables._keys import (
    KEY_TYPES,
    NO_VALUES,
    VALUE_DTYPES,
    Words,
    stored_keys,
    stored_values,
    wanted_keys,
)
from evenbins.tables.views import TableItems, TableKeys, TableValues

__all__ = ["MISSING", "Shape", "TableMapping"]

MISSING: Any = object()
_PAGE = 1024  # keys that an iterator fetches at a time
_BATCH = 1 << 20  # items that go from one table to another at a time

# Who copies one table into another holds off changes of the one while it waits to change the other. So that
# two who copy in opposite directions do not wait for each other, both tables' locks are taken first, in the
# order of this list; a table's is found by its address. Tables share these locks, so a child process gets new
# ones: its tables need not be those that a thread of the parent copied at the time of the fork.
_TRANSFERS = [threading.RLock() for _ in range(61)]
_this_thread = threading.local()  # `copies`: whether it is in the middle of a transfer


def _renew_transfers() -> None:
    _TRANSFERS[:] = [threading.RLock() for _ in _TRANSFERS]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_transfers)

Value = int | float
Shape = tuple[int, ...] | None


if TYPE_CHECKING:

    class _TableCore:
        """What the compiled class behind a table offers."""

        def _insert_many(self, keys: Words, values: Words, are_new: bool, before: int = 0) -> None: ...
        def _erase_many(self, keys: Words, strict: bool, threads: int = 1, /) -> tuple[int, int, int]: ...
        def _pop(self, key: Key, default: Any) -> object: ...
        def _pop_item(self) -> tuple[int, Value] | None: ...
        def _setdefault(self, key: Key, default: Any) -> Value: ...
        def _each_batch(self, store: Callable[[Words, Words], object], most: int) -> None: ...
        def _get_many(self, keys: Words, missing: int, threads: int) -> tuple[Words, int, int]: ...
        def _contains_many(self, keys: Words, threads: int) -> npt.NDArray[np.bool_]: ...
        def _page(self, slot: int, entry: int, most: int) -> tuple[Words, Words, int, int]: ...
        def _clear(self) -> None: ...
        @property
        def _core(self) -> list[int]: ...
        @property
        def _version(self) -> int: ...
        @property
        def _seed(self) -> int: ...
        @property
        def _read_only(self) -> bool: ...
        @property
        def _capacity(self) -> int: ...
        def _equal(self, other: Any, /) -> bool: ...
        def _invariant(self) -> str: ...
        def copy(self) -> Self: ...
        def grown(self, capacity: int) -> Self: ...
        def __contains__(self, key: Key, /) -> bool: ...
        def __getitem__(self, key: Key, /) -> Value: ...
        def __setitem__(self, key: Key, value: Any, /) -> None: ...
        def __delitem__(self, key: Key, /) -> None: ...
        def __len__(self) -> int: ...

else:
    _TableCore = object  # the compiled class comes first among a table's bases


class TableMapping(_TableCore):
    """The mapping that every table is."""

    __slots__ = ()
    _types_at: ClassVar[int]  # where the core has the number of the keys' type; that of the values follows

    @property
    def _key_type(self) -> int:
        return self._core[self._types_at]

    @property
    def _value_type(self) -> int:
        return self._core[self._types_at + 1]

    # --- one key -------------------------------------------------------------------------------------

    def setdefault(self, key: Key, default: Value) -> Value:
        """Return the value of a key; if it is not there, store the default first. One step for other threads.

        Examples
        --------
        >>> from evenbins import MultilevelTable
        >>> t = MultilevelTable(100)
        >>> t.setdefault(5, 7), t.setdefault(5, 8)
        (7, 7)
        """
        return self._setdefault(key, default)

    def pop(self, key: Key, default: Any = MISSING) -> Any:
        """Remove a key and return its value, or the default; KeyError if there is neither.

        One step for other threads: of several that pop a key, one gets its value.

        Examples
        --------
        >>> from evenbins import MultilevelTable
        >>> t = MultilevelTable(100)
        >>> t[5] = 7
        >>> t.pop(5), t.pop(5, None), len(t)
        (7, None, 0)
        """
        value = self._pop(key, default)
        if value is MISSING:
            raise KeyError(key)
        return value

    def popitem(self) -> tuple[int, Value]:
        """Remove some key and return it with its value; KeyError if the table is empty.

        One step for other threads. Of a table of digests the key is a digest.

        Examples
        --------
        >>> from evenbins import MultilevelTable
        >>> t = MultilevelTable({5: 7})
        >>> t.popitem(), len(t)
        ((5, 7), 0)
        """
        item = self._pop_item()
        if item is None:
            raise KeyError("popitem(): the table is empty")
        return item

    # --- many keys -------------------------------------------------------------------------------------

    def insert_many(self, keys: object, values: object, *, assume_unique: bool = False) -> None:
        """Store many keys with their values, as single assignments in the same order would, to the byte.

        Parameters, errors and the guarantees after an error are those of `MultilevelTable.insert_many`, which
        has `threads` too; here one thread stores.
        """
        self._require_values()
        words = stored_keys(keys, self._key_type, self._seed)
        stored = stored_values(values, self._value_type, self._count(words))
        self._store(words, stored, bool(assume_unique), 0)

    def _store(self, keys: Words, values: Words, are_new: bool, before: int) -> None:
        self._insert_many(keys, values, are_new, before)

    def get_many(
        self, keys: object, default: Any = MISSING, *, threads: int | None = None
    ) -> npt.NDArray[Any]:
        """Return the values of many keys: an array of the value_dtype, in the shape of a NumPy array of keys.

        Parameters
        ----------
        keys
            As for `insert_many`; an integer outside the range of the `key_dtype` is not there.
        default
            The value for keys that are not there. Without it, a missing key raises KeyError.
        threads
            The most threads that share the work (None: as many as pay off, up to the cores of this process);
            the result does not depend on it. The GIL is released.
        """
        return self._values_of_many(keys, default, _bulk.checked_threads(threads))

    def _values_of_many(self, keys: object, default: Any, threads: int) -> npt.NDArray[Any]:
        self._require_values()
        missing = 0
        if default is not MISSING:
            if np.ndim(default):
                raise TypeError("default must be one number: for one each, use contains_many and numpy.where")
            missing = int(stored_values(default, self._value_type, 1, name="default")[0])
        found, absent, first, shape = self._look_up(keys, missing, threads)
        if absent and default is MISSING:
            raise KeyError(
                f"{absent} of {found.size} keys are not in the table, the first at index {first}: "
                "pass default= for a value in their place"
            )
        values = _keys.values_of(found, self._value_type)
        return values if shape is None else values.reshape(shape)

    def _look_up(self, keys: object, missing: int, threads: int) -> tuple[Words, int, int, Shape]:
        """Return the values as words, how many keys are absent, the first of these, and the keys' shape."""
        words, shape, unfit = wanted_keys(keys, self._key_type, self._seed)
        fitting = words if unfit is None else words[~unfit]
        found, absent, first = self._get_many(fitting, missing, threads)
        if unfit is not None:
            of_fitting, found = found, np.full(words.size, missing, np.uint64)
            found[~unfit] = of_fitting
            absent, first = _with_unfit(unfit, absent, first)
        return found, absent, first, shape

    def contains_many(self, keys: object, *, threads: int | None = None) -> npt.NDArray[np.bool_]:
        """Return for many keys whether they are there: bools, in the shape of a NumPy array of keys."""
        return self._presence_of_many(keys, _bulk.checked_threads(threads))

    def _presence_of_many(self, keys: object, threads: int) -> npt.NDArray[np.bool_]:
        found, shape = self._find(keys, threads)
        return found if shape is None else found.reshape(shape)

    def _find(self, keys: object, threads: int) -> tuple[npt.NDArray[np.bool_], Shape]:
        words, shape, unfit = wanted_keys(keys, self._key_type, self._seed)
        if unfit is None:
            return self._contains_many(words, threads), shape
        found = np.zeros(words.size, bool)
        found[~unfit] = self._contains_many(words[~unfit], threads)
        return found, shape

    def delete_many(self, keys: object, *, missing: str = "ignore") -> int:
        """Delete many keys, in order; return the number deleted (see `MultilevelTable.delete_many`)."""
        return self._delete(keys, missing)

    def _delete(self, keys: object, missing: str, *how: int, threads: int = 1) -> int:
        """Delete keys on `threads` threads; `how`: what the core takes beside them."""
        if missing not in ("ignore", "error"):
            raise arguments.error("missing", "'ignore' or 'error'", missing, "Leave it out to ignore")
        words, _, unfit = wanted_keys(keys, self._key_type, self._seed, threads)
        strict = missing == "error"
        if unfit is None:
            deleted, absent, first = self._erase_many(words, strict, *how)
        elif strict:  # a key that cannot be there: nothing will be deleted
            found = self._contains_many(words[~unfit], *(how or (1,)))
            absent, first = _with_unfit(
                unfit, int((~found).sum()), int(np.argmin(found)) if found.size else 0
            )
        else:
            deleted, absent, first = self._erase_many(words[~unfit], False, *how)
        if absent:
            raise KeyError(
                f"{absent} of {self._count(words)} keys are not in the table, the first at index {first}; "
                "nothing has been deleted"
            )
        return deleted

    def update(self, items: object = (), /) -> None:
        """Store the items of a mapping, or pairs of key and value.

        Another table's items are those of one moment: changes of that table wait until they are stored.

        Examples
        --------
        >>> from evenbins import MultilevelTable
        >>> t = MultilevelTable(100)
        >>> t.update({1: 10, 2: 20})
        >>> t.update([(3, 30)])
        >>> sorted(t.items())
        [(1, 10), (2, 20), (3, 30)]
        """
        if isinstance(items, TableMapping):
            return self._update_from(items)
        if isinstance(items, Mapping) or hasattr(items, "keys"):
            pairs: list[Any] = [(key, items[key]) for key in items.keys()]  # type: ignore[index]  # noqa: SIM118
        elif isinstance(items, Iterable) and not isinstance(items, str | bytes):
            pairs = list(items)
        else:
            raise TypeError(f"update takes a mapping or pairs of key and value, not {type(items).__name__}")
        for i, pair in enumerate(pairs):
            try:
                _, _ = pair
            except (TypeError, ValueError):
                raise TypeError(
                    f"update takes pairs of key and value; item {i} is not a pair: {arguments.shown(pair)}"
                ) from None
        self.insert_many([key for key, _ in pairs], [value for _, value in pairs])

    def _update_from(self, other: TableMapping) -> None:
        if other is self:
            return
        if other._value_type == NO_VALUES != self._value_type:
            raise TypeError(
                "the other table is an exact set (value_dtype=None): it has keys and no values. "
                "Use insert_many(keys, values)"
            )
        digest = KEY_TYPES["digest"]
        if other._key_type == digest and (self._key_type != digest or self._seed != other._seed) and other:
            raise ValueError(
                "the other table keeps 128-bit digests of its keys, which are not keys of this one: both "
                'must have key_dtype="digest" and the same seed'
            )
        if self._shares_words(other):
            if getattr(_this_thread, "copies", False):
                return self._store_snapshot(other)
            with _transfer(self, other):
                return self._store_all(other, are_new=False)
        keys: list[int] = []
        values: list[Value] = []

        def take(key_words: Words, value_words: Words) -> None:
            keys.extend(other._key_list(key_words))
            values.extend(_keys.values_of(value_words, other._value_type).tolist())

        other._each_batch(take, _BATCH)
        self.insert_many(keys, values)

    def _store_all(self, source: TableMapping, *, are_new: bool) -> None:
        """Store all items that a table has at one moment; its words must mean the same as those of this."""
        stored = 0

        def store(keys: Words, values: Words) -> None:
            nonlocal stored
            self._store(keys, values, are_new, stored)
            stored += values.size

        source._each_batch(store, _BATCH)

    def _store_snapshot(self, source: TableMapping) -> None:
        """Store all items of a table from a copy: in a signal handler, in the middle of another transfer.

        That transfer's locks come first, so the locks of these two tables could not be taken in order.
        """
        batches: list[tuple[Words, Words]] = []
        source._each_batch(lambda keys, values: batches.append((keys.copy(), values.copy())), _BATCH)
        stored = 0
        for keys, values in batches:
            self._store(keys, values, False, stored)
            stored += values.size

    def clear(self) -> None:
        """Take out everything; the counters of insertions and moves start anew."""
        self._clear()

    # --- all keys ----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[int]:
        for keys, _ in self._batches():
            yield from self._guarded(keys)

    def keys(self) -> KeysView[Any]:
        """View the keys: integers, or digests as integers of 128 bits; in no order that means something."""
        return TableKeys(self)

    def values(self) -> ValuesView[Any]:
        """View the values, in the order of the keys."""
        self._require_values()
        return TableValues(self)

    def items(self) -> ItemsView[Any, Any]:
        """View pairs of key and value."""
        self._require_values()
        return TableItems(self)

    def _pages(self, most: int) -> Iterator[tuple[Words, Words]]:
        slot = entry = 0
        while True:
            keys, values, slot, entry = self._page(slot, entry, most)
            if not values.size:
                return
            yield keys, values

    def _batches(self) -> Iterator[tuple[list[int], list[Value]]]:
        version = self._version
        for keys, values in self._pages(_PAGE):
            yield self._key_list(keys), _keys.values_of(values, self._value_type).tolist()
            if self._version != version:
                self._changed()

    def _guarded(self, batch: list[Any]) -> Iterator[Any]:
        version = self._version
        for each in batch:
            yield each
            if self._version != version:
                self._changed()

    def _changed(self) -> None:
        raise RuntimeError(
            f"the keys of this {type(self).__name__} changed during iteration: "
            "iterate over list(table) instead"
        )

    def _key_list(self, words: Words) -> list[int]:
        if self._key_type == KEY_TYPES["digest"]:
            low, high = words[0::2].tolist(), words[1::2].tolist()
            return [b << 64 | a for a, b in zip(low, high, strict=True)]
        if self._key_type == KEY_TYPES["int64"]:
            return words.view(np.int64).tolist()  # type: ignore[no-any-return]
        return words.tolist()  # type: ignore[no-any-return]

    def _count(self, words: Words) -> int:
        return words.size // (2 if self._key_type == KEY_TYPES["digest"] else 1)

    def _require_values(self) -> None:
        if self._value_type == NO_VALUES:
            raise TypeError(
                "this table is an exact set (value_dtype=None): it has keys and no values. "
                "Use add_many(keys), add_new_many(keys), contains_many(keys) or iterate over it"
            )

    def _unchanging(self) -> TableMapping:
        """Return a table of the items at one moment; this one if nobody can change it."""
        return self if self._read_only else self.copy()

    def _shares_words(self, other: TableMapping) -> bool:
        digest = self._key_type == KEY_TYPES["digest"]
        return (
            self._key_type == other._key_type
            and self._value_type in (other._value_type, NO_VALUES)  # a set takes the keys of a table
            and (not digest or self._seed == other._seed)
        )

    def _refuse_damaged(self) -> None:
        refuse_damaged(self)  # changes follow links, and look-ups check them

    # --- the table as a whole -------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """Return whether a mapping or another table has the same items (see `equality`)."""
        if self is other:
            return True
        if isinstance(other, TableMapping):
            return equality.equals_table(self, other)
        return equality.equals_collection(self, other)  # type: ignore[no-any-return]

    __hash__ = None  # type: ignore[assignment]  # it changes

    def same_bytes(self, other: object) -> bool:
        """Return whether another table is of the same class and has the same bytes.

        So the same integer core and seed, and the same keys and values in the same places after the same
        counts of insertions and moves. `==` compares the items alone.

        Examples
        --------
        >>> from evenbins import MultilevelTable
        >>> a, b = MultilevelTable(100), MultilevelTable(200)
        >>> a[5] = b[5] = 7
        >>> a == b, a.same_bytes(b), a.same_bytes(a.copy())
        (True, False, True)
        """
        return type(other) is type(self) and self._equal(other)

    def __or__(self, other: object) -> Self:
        """Return a new table with the items of both, large enough for all; of equal keys the right one's."""
        if not isinstance(other, Mapping):
            return NotImplemented
        united = self._with_room(len(other))
        united.update(other)
        return united

    def __ror__(self, other: object) -> Self:
        if not isinstance(other, Mapping):
            return NotImplemented
        self._require_values()
        united = self._with_room(len(other))
        for key, value in other.items():
            united.setdefault(key, value)
        return united

    def __ior__(self, other: object) -> Self:
        if not isinstance(other, Iterable):
            return NotImplemented
        self.update(other)
        return self

    def _with_room(self, more: int) -> Self:
        total = len(self) + more
        return self.copy() if total <= self._capacity else self.grown(total)

    @property
    def capacity(self) -> int:
        """The number of keys that the table was planned for."""
        return self._capacity

    @property
    def key_dtype(self) -> str:
        """What keys are: "int64", "uint64" or "digest"."""
        return next(name for name, number in KEY_TYPES.items() if number == self._key_type)

    @property
    def value_dtype(self) -> np.dtype[Any] | None:
        """What values are: int64, uint64 or float64; None for an exact set, which has none."""
        return VALUE_DTYPES.get(self._value_type)


@contextlib.contextmanager
def _transfer(one: TableMapping, other: TableMapping) -> Iterator[None]:
    """Hold the locks of two tables between which items go (_TRANSFERS).

    By `with` alone: in Python code between taking a lock and noting it a signal handler could raise.
    """
    first, second = sorted(id(each) // 16 % len(_TRANSFERS) for each in (one, other))
    try:
        _this_thread.copies = True
        with _TRANSFERS[first], _TRANSFERS[second]:
            yield
    finally:
        _this_thread.copies = False


def _with_unfit(unfit: npt.NDArray[np.bool_], absent: int, first: int) -> tuple[int, int]:
    """Return the number of absent keys and the first, of all keys, from those of the keys that fit."""
    starts = [int(np.argmax(unfit))]
    if absent:
        starts.append(int(np.flatnonzero(~unfit)[first]))
    return absent + int(unfit.sum()), min(starts)


MutableMapping.register(TableMapping)  # not a base: the metaclass of a compiled class is another
