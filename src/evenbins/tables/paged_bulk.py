"""Bulk calls of the one-read table: what is done at the same time.

    in_flight    reads that are under way, which is what keeps a disk busy. A page that the system has in its
                 cache is used at once and takes none of them
    threads      threads that check and search the pages that have come

A few threads have any number of reads under way, but no more threads work than `in_flight`, and a call for
few pages uses the calling thread alone. That needs a system that tells what its cache holds (Linux, most file
systems); elsewhere each read under way has a thread that waits for it, and `threads` of these work at a time.
cpp/include/evenbins/page_reads.hpp has the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk
from evenbins.tables._keys import Words, stored_keys, stored_values
from evenbins.tables.mapping import MISSING, TableMapping

__all__ = ["IN_FLIGHT", "PagedBulk", "reads_of"]

IN_FLIGHT = 32


def reads_of(in_flight: object = IN_FLIGHT, threads: object = None) -> int:
    """Check both arguments; return them in one number, as the core takes them."""
    reads = arguments.integer("in_flight", in_flight, 1, 1024, "Leave it out for 32")
    return reads | _bulk.checked_threads(threads) << 16


class PagedBulk(TableMapping):
    """The bulk calls of a `PagedTable`."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _insert_words(self, keys: Words, values: Words, reads: int, before: int = 0) -> None: ...
        def _erase_words(self, keys: Words, reads: int, strict: bool) -> tuple[int, int, int]: ...

    def insert_many(
        self, keys: object, values: object, *, assume_unique: bool = False, in_flight: int = IN_FLIGHT,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        """Store many keys with their values; of a key that comes twice, the last value stays.

        The keys are sorted by page and stored in groups, each of which is on disk whole or not at all. So
        after an error (a full table, a full disk, Ctrl-C) the number in the message says how many keys are
        in, not that they are the first: calling again with the same keys does no harm. Fewer, larger
        calls are faster: each writes a page once.

        Parameters
        ----------
        keys, values
            As for `MultilevelTable.insert_many`.
        assume_unique
            Accepted for the tables' common interface; a key is looked for in any case, by its summary.
        in_flight, threads
            As for `get_many`: of the pages that the keys go to.

        Raises
        ------
        TableFullError
            There is no room for one more; `inserted` is the number of keys that are in.
        """
        words = stored_keys(keys, self._key_type, self._seed)
        stored = stored_values(values, self._value_type, self._count(words))
        self._insert_words(words, stored, reads_of(in_flight, threads))

    def get_many(
        self, keys: object, default: Any = MISSING, *, in_flight: int = IN_FLIGHT, threads: int | None = None
    ) -> npt.NDArray[Any]:
        """Return the values of many keys: an array of the value_dtype, in the shape of a NumPy array of keys.

        Each page is fetched once for all its keys, neighbours together. Pages that the system has in its
        cache are used at once; of the others `in_flight` are on their way at a time.

        Parameters
        ----------
        keys, default
            As for `MultilevelTable.get_many`.
        in_flight
            Reads under way at the same time, 1 ... 1024: what keeps a disk busy.
        threads
            How many threads check and search pages at the same time, at most; by default as many as pay off,
            up to the cores of this process. It does not limit `in_flight`: one thread can have many reads
            under way.
        """
        return self._values_of_many(keys, default, reads_of(in_flight, threads))

    def contains_many(
        self, keys: object, *, in_flight: int = IN_FLIGHT, threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Return for many keys whether they are there: bools, in the shape of a NumPy array of keys.

        `in_flight` and `threads`: as for `get_many`.
        """
        return self._presence_of_many(keys, reads_of(in_flight, threads))

    def delete_many(
        self, keys: object, *, missing: str = "ignore", in_flight: int = IN_FLIGHT, threads: int | None = None
    ) -> int:
        """Delete many keys, in groups as `insert_many` stores them; return the number deleted.

        Parameters
        ----------
        keys, missing
            As for `MultilevelTable.delete_many`.
        in_flight, threads
            As for `get_many`.
        """
        return self._delete(keys, missing, reads_of(in_flight, threads))

    def _insert_many(self, keys: Words, values: Words, are_new: bool, before: int = 0) -> None:
        self._insert_words(keys, values, reads_of(), before)

    def _erase_many(self, keys: Words, strict: bool, reads: int | None = None, /) -> tuple[int, int, int]:
        return self._erase_words(keys, reads_of() if reads is None else reads, strict)
