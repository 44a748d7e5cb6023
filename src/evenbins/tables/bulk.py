"""Bulk calls of the multilevel table on several threads; its keys are read in place where they can be.

    NumPy S, U and integers of a table of digests    look-ups read them in batches, as a filter does, and
    Arrow columns and streams of any table           release the GIL; no word of a key is kept
    changes of any keys                              converted by all threads first, then stored in rounds

The answers and the bytes are those of one thread (cpp/include/evenbins/table_rounds.hpp).
"""

from __future__ import annotations

import array
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from evenbins import _bulk, _core
from evenbins.tables._keys import KEY_TYPES, Words, array_of, stored_keys, stored_values
from evenbins.tables.mapping import Shape, TableMapping

__all__ = ["BulkMethods", "storing_threads"]


def storing_threads(threads: object) -> int:
    """Check the argument `threads` of insertions; None is 1: two store 1.08 times as fast as one."""
    return 1 if threads is None else _bulk.checked_threads(threads)


def _keys_in_place(keys: object, key_type: int, seed: int) -> tuple[_core.StoredKeys, Shape] | None:
    """Return keys that look-ups can read in place, and their shape; None if they must become words first."""
    if isinstance(keys, str | bytes | bytearray | memoryview | range):
        return None
    if isinstance(keys, array.array) or _bulk.is_array_like(keys):
        found = array_of(keys)
        if key_type != KEY_TYPES["digest"] or found.dtype.kind not in "iubSU":
            return None
        return _core.array_words(found, found.dtype.kind, not found.dtype.isnative, seed), found.shape
    if hasattr(keys, "__arrow_c_stream__"):
        return _core.arrow_words(_bulk.arrow_stream(keys), None, None, key_type, seed), None
    if hasattr(keys, "__arrow_c_array__"):
        schema, column = keys.__arrow_c_array__()
        return _core.arrow_words(None, schema, column, key_type, seed), None
    return None


class BulkMethods(TableMapping):
    """What the multilevel table does with many keys at a time."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _insert_many(
            self, keys: Words, values: Words, are_new: bool, before: int = 0, threads: int = 1
        ) -> None: ...
        def _get_from(
            self, source: _core.StoredKeys, missing: int, threads: int
        ) -> tuple[Words, npt.NDArray[np.bool_]]: ...
        def _contains_from(self, source: _core.StoredKeys, threads: int) -> npt.NDArray[np.bool_]: ...

    def insert_many(
        self, keys: object, values: object, *, assume_unique: bool = False, threads: int | None = None
    ) -> None:
        """Store many keys with their values; of a key that comes twice, the last value stays.

        The same as single assignments in the same order, to the byte, on any number of threads. Keys and
        values are converted first: if one is refused, nothing has been stored. The GIL is released while
        they are stored. Ctrl-C stops the call; the table stays usable, and the exception says how many keys
        are in.

        Parameters
        ----------
        keys
            A NumPy array, an Arrow column or stream, or any iterable, of the table's `key_dtype`. Integers
            of other widths are converted exactly or refused.
        values
            One number for all keys, or as many as keys, of the table's `value_dtype`.
        assume_unique
            A promise that no key is in the table or comes twice, which saves the look-ups. A broken promise
            stores a key twice: look-ups find one of them, a deletion uncovers the other; `_check()` finds it.
        threads
            How many threads convert and store, at most; None: all cores convert, and one thread stores, since
            two store hardly faster and take twice the CPU time. Fewer than 8192
            keys for each, and tables of less than some 130,000 slots, do not pay for them. A table with a
            summary stores its keys on one thread, because each placement depends on the one before.

        Raises
        ------
        TableFullError
            There is no room for one more; its `inserted` is the number of keys that are in, the first ones.
        TypeError, ValueError
            A key or a value does not fit; there are more or fewer values than keys.

        Examples
        --------
        >>> import numpy as np
        >>> from evenbins import MultilevelTable
        >>> t = MultilevelTable(100)
        >>> t.insert_many(np.array([1, 2, 2]), [10, 20, 21], threads=2)
        >>> t.get_many([1, 2, 3], default=-1)
        array([10, 21, -1])
        """
        self._require_values()
        words = stored_keys(keys, self._key_type, self._seed, _bulk.checked_threads(threads))
        stored = stored_values(values, self._value_type, self._count(words))
        self._insert_many(words, stored, bool(assume_unique), 0, storing_threads(threads))

    def delete_many(self, keys: object, *, missing: str = "ignore", threads: int | None = None) -> int:
        """Delete many keys, in order; return the number deleted.

        Parameters
        ----------
        keys
            As for `insert_many`.
        missing
            "ignore" keys that are not there, or "error": KeyError if there is one, and nothing is deleted.
        threads
            As for `insert_many`. While the overflow list of a table with the scheme "least-loaded" is not
            empty, one thread deletes: a deletion may bring back one of its keys, so that the order matters.

        Examples
        --------
        >>> from evenbins import MultilevelTable
        >>> t = MultilevelTable(100)
        >>> t.insert_many([1, 2, 3], 0)
        >>> t.delete_many([2, 3, 4]), len(t)
        (2, 1)
        """
        number = _bulk.checked_threads(threads)
        return self._delete(keys, missing, number, threads=number)

    def _store(self, keys: Words, values: Words, are_new: bool, before: int) -> None:
        self._insert_many(keys, values, are_new, before)

    def _look_up(self, keys: object, missing: int, threads: int) -> tuple[Words, int, int, Shape]:
        in_place = _keys_in_place(keys, self._key_type, self._seed)
        if in_place is None:
            return super()._look_up(keys, missing, threads)
        values, found = self._get_from(in_place[0], missing, threads)
        absent = found.size - int(np.count_nonzero(found))
        return values, absent, int(np.argmin(found)) if absent else found.size, in_place[1]

    def _find(self, keys: object, threads: int) -> tuple[npt.NDArray[np.bool_], Shape]:
        in_place = _keys_in_place(keys, self._key_type, self._seed)
        if in_place is None:
            return super()._find(keys, threads)
        return self._contains_from(in_place[0], threads), in_place[1]
