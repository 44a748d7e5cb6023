"""Exact sets: a multilevel table that has keys and no values (`MultilevelTable(n, value_dtype=None)`).

    add(key)   add_new(key)   discard(key)   remove(key)   key in s   len(s)         one key, in the core
    add_many   add_new_many   discard_many   delete_many   contains_many   update    many keys
    s | t   s |= t   s == t                                                          whole sets

A set is the table's own class, so that files, plans, schemes and summaries are the same; the methods below
raise TypeError on a table with values, and those of mappings (`[]`, `get`, `items`) on a set. With
key_dtype="digest" a set takes every key that a filter takes: str, bytes and int.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from evenbins import _bulk
from evenbins._core import TableFullError
from evenbins.tables._keys import KEY_TYPES, NO_VALUES, Words, stored_keys
from evenbins.tables.bulk import BulkMethods, storing_threads
from evenbins.tables.mapping import TableMapping

__all__ = ["SetMethods", "digest_words"]


def digest_words(keys: object, seed: int = 0) -> Words:
    """Return the 128-bit digests that a set of digests stores of keys: an array of n rows, (low, high).

    Of str and bytes XXH3-128 with the seed; of an int its 64-bit digest with the seed, and its two's
    complement. `keys` is whatever a bulk call takes; arrays, Arrow and lines are read without the GIL.

    Examples
    --------
    >>> from evenbins import MultilevelTable, digest
    >>> words = digest_words(["a", 7])
    >>> words.shape, words[1].tolist() == [digest(7), 7]
    ((2, 2), True)
    >>> seen = MultilevelTable(100, key_dtype="digest", value_dtype=None)
    >>> seen.add_new_many(words, digests=True), 7 in seen
    (array([ True,  True]), True)
    """
    return stored_keys(keys, KEY_TYPES["digest"], seed).reshape(-1, 2)


class SetMethods(BulkMethods):
    """What an exact set can do besides looking up, deleting and iterating."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _add_new_many(self, keys: Words, threads: int) -> npt.NDArray[np.bool_]: ...

    def add_new_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Add many keys to an exact set; return for each whether it was new.

        True for the first occurrence of each key that was not in before. Answers and bytes are those of
        single calls in the order of the keys, however these are divided into calls and on any number of
        threads. All keys are converted first: if one is refused, nothing has been added. The GIL is released
        while they are added.

        Parameters
        ----------
        keys
            A NumPy array, an Arrow column or stream, or any iterable, of the set's `key_dtype`. The answers
            have the shape of a NumPy array of keys.
        digests
            The keys are 128-bit digests, as `digest_words` returns them with the seed of this set.
        threads
            How many threads convert and add, at most, as for `insert_many`.

        Raises
        ------
        TableFullError
            There is no room for one more. `error.inserted` keys have been treated, the first ones, and
            `error.answers` are the answers for these: go on with `keys[error.inserted:]` and `set.grown(n)`.
        KeyboardInterrupt
            Ctrl-C; the exception says how many keys have been added, and has `answers` too.

        Examples
        --------
        >>> from evenbins import MultilevelTable
        >>> seen = MultilevelTable(1000, key_dtype="digest", value_dtype=None)
        >>> seen.add_new_many(["a", "b", "a", 7])
        array([ True,  True, False,  True])
        >>> seen.add_new("b"), seen.add_new("c"), len(seen)
        (False, True, 4)
        """
        number = storing_threads(threads)
        self._require_set()
        if digests:
            return self._add_new_many(self._checked_digests(keys), number)
        words = stored_keys(keys, self._key_type, self._seed, _bulk.checked_threads(threads))
        answers = self._add_new_many(words, number)
        return answers.reshape(np.shape(keys)) if isinstance(keys, np.ndarray) else answers

    def add_many(self, keys: object, *, digests: bool = False, threads: int | None = None) -> None:
        """Add many keys to an exact set, as `add_new_many` does, and return nothing."""
        self.add_new_many(keys, digests=digests, threads=threads)

    def discard_many(self, keys: object, *, threads: int | None = None) -> int:
        """Remove many keys from an exact set, those that are there; return their number."""
        self._require_set()
        return self.delete_many(keys, threads=threads)

    def update(self, items: object = (), /, *more: object) -> None:
        """Store items: of an exact set, the keys of iterables and tables; of a table, a mapping or pairs.

        Examples
        --------
        >>> from evenbins import MultilevelTable
        >>> s = MultilevelTable(100, value_dtype=None)
        >>> s.update([1, 2], range(2, 5))
        >>> sorted(s)
        [1, 2, 3, 4]
        """
        if self._value_type != NO_VALUES:
            if more:
                raise TypeError(f"update takes one mapping or iterable of pairs, not {1 + len(more)}")
            return super().update(items)
        for keys in (items, *more):
            if isinstance(keys, TableMapping):
                self._require_comparable(keys)
                self._update_from(keys)
            else:
                self.add_many(keys)

    def union(self, *others: object) -> Self:
        """Return a new exact set with the keys of this one and of others, large enough for all of them.

        Others are sets of the same `key_dtype` (and, for digests, the same seed), or iterables of keys.

        Examples
        --------
        >>> from evenbins import MultilevelTable
        >>> s = MultilevelTable(10, value_dtype=None)
        >>> s.update([1, 2])
        >>> sorted(s.union([2, 3]))
        [1, 2, 3]
        """
        self._require_set()
        known: list[Any] = [each if hasattr(each, "__len__") else list(each) for each in others]  # type: ignore[call-overload]
        total = len(self) + sum(len(each) for each in known)
        this: Any = self
        capacity = max(total, this._capacity)
        while True:
            try:
                united = this.copy() if capacity == this._capacity else this.grown(capacity)
                united.update(*known)
                return united  # type: ignore[no-any-return]
            except TableFullError:  # a plan with little spare space and a short list may be full earlier
                capacity *= 2

    def __or__(self, other: object) -> Self:
        if self._value_type != NO_VALUES:
            return super().__or__(other)
        return self.union(other) if _is_set(other) else NotImplemented

    def __ror__(self, other: object) -> Self:
        if self._value_type != NO_VALUES:
            return super().__ror__(other)
        return self.union(other) if _is_set(other) else NotImplemented

    def __ior__(self, other: object) -> Self:
        if self._value_type != NO_VALUES:
            return super().__ior__(other)
        if not _is_set(other):
            return NotImplemented
        self.update(other)
        return self

    def _require_set(self) -> None:
        if self._value_type != NO_VALUES:
            raise TypeError(
                "this table has values: use table[key] = value, insert_many(keys, values) or "
                "delete_many(keys). For a set of keys make it with value_dtype=None"
            )

    def _checked_digests(self, digests: object) -> Words:
        """Return 128-bit digests as words; TypeError if they are something else."""
        if self._key_type != KEY_TYPES["digest"]:
            raise TypeError("digests=True is for sets with key_dtype='digest': pass the keys themselves")
        if not isinstance(digests, np.ndarray) or digests.dtype != np.uint64 or digests.shape[1:] != (2,):
            found = digests.shape if isinstance(digests, np.ndarray) else type(digests).__name__
            raise TypeError(
                f"digests must be a uint64 array of n rows of two, as digest_words returns them; got {found}"
            )
        return np.ascontiguousarray(digests).reshape(-1)

    def _require_comparable(self, other: TableMapping) -> None:
        """Raise if the words of two tables do not mean the same keys."""
        if self._key_type != other._key_type:
            raise TypeError(
                f"both sets must have the same key_dtype; got {self.key_dtype!r} and {other.key_dtype!r}"
            )
        if self._key_type == KEY_TYPES["digest"] and self._seed != other._seed:
            raise ValueError(
                "both sets of digests must have the same seed: the digests of one cannot be turned into "
                "those of the other. Add the keys themselves"
            )


def _is_set(other: object) -> bool:
    """Return whether `|` with an exact set takes it: another one, or a Python set."""
    if isinstance(other, TableMapping):
        return other._value_type == NO_VALUES
    return isinstance(other, Set)
