"""Digests seen before, exactly: 128 bits of each key in sets that grow one by one.

    digest ──its lowest six bits──▶ one of 64 sets ──▶ an exact set (`MultilevelTable`, value_dtype=None)

Up to 2**20 keys there is one set; above, or with such a capacity, 64. A set that is full is replaced by one a
third larger, so that a growing Deduplicator never copies more than a 64th of its keys at a time. With a
capacity each set is planned for its share and four standard deviations more. The lowest bits choose the set
and the highest a bucket in it (cpp/include/evenbins/multilevel.hpp); the second word is no hash where keys
are integers.

Two of n keys are taken for one with probability n**2 / 2**129.

Invariants: answers are in the order of the rows, whatever the sets; a key is in the set of its digest. Which
size a set has depends on its keys alone, not on batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from evenbins import _bulk
from evenbins._core import FormatError, TableFullError
from evenbins.deduplication.pieces import Marks, Mask, Words, add_in_pieces, count_in, new_marks
from evenbins.deduplication.stages import Part
from evenbins.tables.exact_sets import digest_words
from evenbins.tables.multilevel import MultilevelTable
from evenbins.tables.multilevel_plan import plan_multilevel

__all__ = ["DigestSets", "predicted_sets"]

_PARTS: Final = 64
_FIRST = 1 << 12  # keys of the first set without a capacity
_ONE = 1 << 20  # keys of one set, at most
_GROWTH = 4 / 3  # of a set of many; a single one doubles
_PIECE = 1 << 18  # rows of one step


def _new_set(capacity: int, seed: int) -> MultilevelTable:
    return MultilevelTable(capacity, key_dtype="digest", value_dtype=None, seed=seed)


def _share(capacity: int) -> int:
    """Return the keys to plan a set for, if all have `capacity`."""
    mean = capacity / _PARTS
    return math.ceil(mean + 4.0 * math.sqrt(mean))


def predicted_sets(keys: int) -> tuple[int, float]:
    """Return the bytes of sets planned for so many keys, and how many new keys are expected to be dropped.

    Examples
    --------
    >>> predicted_sets(10**6)
    (16977728, 1.4693679385278594e-27)
    """
    parts = 1 if keys <= _ONE else _PARTS
    plan = plan_multilevel(keys if parts == 1 else _share(keys), key_dtype="digest", value_dtype=None)
    return parts * plan.nbytes, keys**2 / 2.0**129


class DigestSets:
    """The sets of an exact Deduplicator. The caller holds its lock."""

    exact = True
    fpr = 0.0
    wrong = 0.0

    def __init__(self, capacity: int | None, seed: int) -> None:
        self.capacity, self.seed = capacity, seed
        self._sets = self._first_sets()

    def _first_sets(self) -> list[MultilevelTable]:
        if self.capacity is None or self.capacity <= _ONE:
            return [_new_set(self.capacity or _FIRST, self.seed)]
        first = _new_set(_share(self.capacity), self.seed)
        return [first, *(first.copy() for _ in range(_PARTS - 1))]

    # --- keys in, answers out ----------------------------------------------------------------------

    def digests(self, keys: object) -> Words:
        """Return what identifies each key: 128 bits, as a row of two words."""
        return digest_words(keys, self.seed)

    def add_new(self, digests: Words, threads: int, marks: Marks | None = None) -> Mask:
        """Add the digests that are new; return which were. After an error `marks` says which rows are in."""
        own = new_marks(len(digests)) if marks is None else marks
        return add_in_pieces(digests, own, _PIECE, lambda piece, out: self._add_piece(piece, out, threads))

    def _add_piece(self, digests: Words, marks: Marks, threads: int) -> int:
        if len(self._sets) == 1:
            return self._add_some(0, digests, marks)
        self._add_to_parts(digests, marks, threads)
        return len(digests)

    def _add_to_parts(self, digests: Words, marks: Marks, threads: int) -> None:
        """Add all digests, also after an interrupt: sets take them in another order than that of the rows."""
        rows, ends, ordered = _by_part(digests)
        in_order = new_marks(len(digests))

        def add(part: int) -> None:
            begin, end = ends[part], ends[part + 1]
            begin += count_in(in_order[begin:end])
            while begin < end:
                begin += self._add_some(part, ordered[begin:end], in_order[begin:end])

        try:
            _in_threads(add, _bulk.useful_threads(threads, len(digests)))
        except BaseException:
            _in_threads(add, 1)
            raise
        finally:
            marks[rows] = in_order

    def _add_some(self, part: int, digests: Words, marks: Marks) -> int:
        """Add digests of one set as far as it has room, or let it grow; return how many are done."""
        table = self._sets[part]
        room = table.plan.keys - len(table)
        if room <= 0:  # it grows for a new key, not before
            words = np.ascontiguousarray(digests).reshape(-1)
            absent = np.flatnonzero(~table._contains_many(words, 1))
            repeats = int(absent[0]) if len(absent) else len(digests)
            marks[:repeats] = 0
            if not repeats:
                self._grow(part)
            return repeats
        piece = digests[:room]
        try:
            table._add_new_into(np.ascontiguousarray(piece).reshape(-1), marks[: len(piece)])
        except TableFullError as error:
            self._grow(part)
            return error.inserted
        return len(piece)

    def _grow(self, part: int) -> None:
        table = self._sets[part]
        if len(self._sets) > 1:
            self._sets[part] = table.grown(math.ceil(_GROWTH * table.plan.keys))
        elif 2 * table.plan.keys <= _ONE:
            self._sets = [table.grown(2 * table.plan.keys)]
        else:
            self._sets = _divided(table)

    def contains(self, digests: Words, threads: int) -> Mask:
        """Return which digests are in."""
        sets = self._sets
        if len(sets) == 1:
            return sets[0]._contains_many(np.ascontiguousarray(digests).reshape(-1), threads)
        answers = np.empty(len(digests), dtype=np.bool_)
        rows, ends, ordered = _by_part(digests)

        def find(part: int) -> None:
            begin, end = ends[part], ends[part + 1]
            answers[rows[begin:end]] = sets[part]._contains_many(ordered[begin:end].reshape(-1), 1)

        _in_threads(find, _bulk.useful_threads(threads, len(digests)))
        return answers

    # --- the whole ---------------------------------------------------------------------------------

    def measure(self) -> tuple[int, float, float]:
        """Return the keys, the rate and the expected errors now."""
        keys = self.keys
        return keys, keys / 2.0**128, keys**2 / 2.0**129

    def expected_errors(self, rows: int) -> float:
        """Return the errors to expect among `rows` more rows, if all their keys are new."""
        keys = self.keys
        return ((keys + rows) ** 2 - keys**2) / 2.0**129

    @property
    def keys(self) -> int:
        """Keys in all sets."""
        return sum(map(len, self._sets))

    @property
    def planned_keys(self) -> int:
        """Keys that the sets so far were planned for."""
        return sum(each.plan.keys for each in self._sets)

    @property
    def max_keys(self) -> int:
        """The most keys of any structure."""
        return 1 << 48

    @property
    def nbytes(self) -> int:
        """Bytes of all sets."""
        return sum(each.nbytes for each in self._sets)

    @property
    def read_only(self) -> bool:
        """Whether it is mapped from a file."""
        return self._sets[0]._read_only

    def copy(self) -> Self:
        """Make an independent copy."""
        twin = type(self).__new__(type(self))
        twin.capacity, twin.seed = self.capacity, self.seed
        twin._sets = [each.copy() for each in self._sets]
        return twin

    def clear(self) -> None:
        """Remove all keys."""
        self._sets = self._first_sets()

    def merge(self, other: DigestSets) -> None:
        """Add the keys of `other`, which nobody else has."""
        merged = self.copy()
        for digests in other.batches():
            merged.add_new(digests, 1)
        self._sets = merged._sets

    def batches(self) -> Iterator[Words]:
        """Yield the digests of all keys, in arrays."""
        for table in self._sets:
            yield from _digests_of(table)

    def equals(self, other: DigestSets) -> bool:
        """Return whether both have the same design, keys and bytes."""
        mine, theirs = self._sets, other._sets
        same = (self.capacity, self.seed, len(mine)) == (other.capacity, other.seed, len(theirs))
        return same and all(a._equal(b) for a, b in zip(mine, theirs, strict=True))

    # --- files -------------------------------------------------------------------------------------

    @property
    def part_count(self) -> int:
        """The number of sets."""
        return len(self._sets)

    def to_parts(self) -> Iterator[Part]:
        """Yield the sets as they are in a file."""
        for number, table in enumerate(self._sets):
            yield Part(number, len(table), 0, 0.0, table.to_bytes())

    @classmethod
    def from_parts(
        cls, parts: Sequence[Part], capacity: int | None, seed: int, *, mapped: bool, verify: bool
    ) -> Self:
        """Read the sets of a file."""
        made = cls.__new__(cls)
        made.capacity, made.seed = capacity, seed
        if len(parts) not in (1, _PARTS):
            raise FormatError(f"an exact Deduplicator has 1 or {_PARTS} sets, not {len(parts)}")
        made._sets = []
        for number, part in enumerate(parts):
            if (part.number, part.measured_at, part.rate) != (number, 0, 0.0):
                raise FormatError(f"set {number} does not belong to this Deduplicator")
            table = MultilevelTable._from_data(part.data, mapped=mapped, verify=verify)
            plan = table.plan
            if (plan.key_dtype, plan.value_dtype, plan.seed) != ("digest", None, seed):
                raise FormatError(f"set {number} does not belong to this Deduplicator")
            if len(table) != part.keys:
                raise FormatError(f"set {number} has {len(table)} keys, and the header says {part.keys}")
            made._sets.append(table)
        return made

    def check(self) -> None:
        """Assert every invariant; for tests."""
        for number, table in enumerate(self._sets):
            table._check()
            if len(self._sets) > 1:
                for digests in _digests_of(table):
                    assert (digests[:, 0] % _PARTS == number).all()


def _by_part(digests: Words) -> tuple[npt.NDArray[np.intp], list[int], Words]:
    """Return the rows in the order of their parts, where each part begins and ends, and its digests."""
    parts = (digests[:, 0] % np.uint64(_PARTS)).astype(np.uint8)
    rows = np.argsort(parts, kind="stable")
    pairs = np.ascontiguousarray(digests).view(np.complex128).reshape(-1)  # 16 bytes at a time: twice as fast
    ordered: Words = pairs[rows].view(np.uint64).reshape(-1, 2)
    return rows, [0, *np.cumsum(np.bincount(parts, minlength=_PARTS)).tolist()], ordered


def _in_threads(work: Callable[[int], None], threads: int) -> None:
    """Do the work for every part."""
    if threads == 1:
        for part in range(_PARTS):
            work(part)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(_PARTS)))


def _divided(table: MultilevelTable) -> list[MultilevelTable]:
    """Return 64 sets with the keys of one, with room for a third more."""
    first = _new_set(_share(math.ceil(_GROWTH * len(table))), table.seed)
    sets = [first, *(first.copy() for _ in range(_PARTS - 1))]
    made = DigestSets.__new__(DigestSets)
    made._sets = sets
    for digests in _digests_of(table):
        made._add_to_parts(digests, new_marks(len(digests)), 1)
    return sets


def _digests_of(table: MultilevelTable) -> list[Words]:
    """Return the digests in a set, in arrays."""
    found: list[Words] = []
    table._each_batch(lambda keys, _: found.append(keys.reshape(-1, 2).copy()), _PIECE)
    return found
