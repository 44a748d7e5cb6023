"""Fingerprint filters beside an oracle that knows how many copies of each fingerprint are in.

The oracle computes the fingerprint of every key of its universe from the digest, by the formula of the
documentation. So every answer is compared, not a rate: also those of removals of absent keys, and of keys
that share a fingerprint. An audit builds a filter from the surviving keys: it must have the same bytes.
"""

from __future__ import annotations

import math
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins import FilterFullError, FingerprintFilter, digest_many
from soaks.harness import Soak

__all__ = ["FingerprintSoak"]

_SINGLY = 200
Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


def times(a: Words, b: int) -> tuple[Words, Words]:
    """Return the high and the low word of a · b."""
    mask, half = np.uint64(2**32 - 1), np.uint64(32)
    low_b, high_b = np.uint64(b & (2**32 - 1)), np.uint64(b >> 32)
    low, high = a & mask, a >> half
    first = low * low_b
    middle = high * low_b + (first >> half)
    cross = low * high_b + (middle & mask)
    return high * high_b + (middle >> half) + (cross >> half), (cross << half) | (first & mask)


def fingerprints_of(keys: Places, plan: Any) -> Words:
    """Return the fingerprint of each key: floor(digest · M / 2**64), by line, quotient and remainder."""
    core = plan.core
    line, low = times(digest_many(keys, seed=plan.seed), core.lines)
    quotient, low = times(low, core.quotients)
    bits = np.uint64(core.remainder)
    return ((line * np.uint64(core.quotients) + quotient) << bits) | (low >> (np.uint64(64) - bits))


class FingerprintSoak(Soak):
    """A multiset of `keys` copies at most, with `threads` threads in every call (None: one, two or three)."""

    def __init__(
        self, rng: np.random.Generator, keys: int, fpr: float, *, threads: int | None = None
    ) -> None:
        super().__init__(rng)
        self.filter = FingerprintFilter(keys, fpr, seed=int(rng.integers(2**63)))
        self.capacity, self._threads = keys, threads
        self.keys = rng.permutation(np.arange(4 * keys, dtype=np.int64) * 7_919)
        found, self.place = np.unique(fingerprints_of(self.keys, self.filter.plan), return_inverse=True)
        self.copies = np.zeros(len(found), np.int64)
        self.held = 0
        self._folder = tempfile.TemporaryDirectory()

    @property
    def threads(self) -> int:
        """Threads of the next call."""
        drawn = int(self.rng.integers(1, 4))
        return drawn if self._threads is None else self._threads

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def _compare(self, found: object, expected: object, what: str) -> None:
        self.lose(int(np.count_nonzero(np.asarray(found) != np.asarray(expected))), what)

    def step(self) -> int:
        """Do one thing with some keys; return with how many."""
        rng = self.rng
        size = int(10 ** rng.uniform(1, math.log10(self.capacity / 4)))
        some = self._some(size)
        choice = int(rng.integers(20))
        if choice < 8:  # as much in as out, at every load between empty and full
            goal = rng.uniform(0.5, 1.0) if rng.integers(20) else 0.0
            return self.add(some) if self.held < goal * self.capacity else self.remove(some)
        if choice < 12:  # every second time of present keys alone
            return self.remove(some if choice < 10 else some[self.copies[self.place[some]] > 0])
        if choice < 15:
            return self.ask(some)
        if choice == 15:
            return self.add_new(some)
        if choice == 16:
            return self.merge(some)
        if choice == 17:
            return self.one_by_one(some[:_SINGLY])
        if choice == 18 and self.held < self.capacity:
            return self.add(rng.permutation(np.concatenate([some, some[: size // 8]])))
        return self.rebuild() if rng.integers(4) == 0 else self.add(some)

    def _some(self, size: int) -> Places:
        """Choose keys at random, in any order: of a part of the universe, so that some come back."""
        start = int(self.rng.integers(0, len(self.keys)))
        return (start + self.rng.permutation(size) * 3) % len(self.keys)

    def add(self, some: Places) -> int:
        """Add copies: all of them, or none and an error; sometimes more than there is room for."""
        if self.rng.integers(8):
            some = some[: max(1, self.capacity - self.held)]
        try:
            self.filter.add_many(self.keys[some], threads=self.threads)
        except FilterFullError:
            self.done["refused"] += len(some)
            return len(some) + self.remove(self._some(self.capacity // 8))
        np.add.at(self.copies, self.place[some], 1)
        self.held += len(some)
        self.done["added"] += len(some)
        return len(some)

    def add_new(self, some: Places) -> int:
        """Add keys that are absent."""
        some = some[: max(0, int(0.9 * self.capacity) - self.held)]
        if not len(some):
            return 0
        places = self.place[some]
        first = np.zeros(len(some), bool)
        first[np.unique(places, return_index=True)[1]] = True
        new = first & (self.copies[places] == 0)
        found = self.filter.add_new_many(self.keys[some], threads=self.threads)
        self._compare(found, new, "add_new_many")
        self.copies[places[new]] += 1
        self.held += int(new.sum())
        self.done["added if new"] += len(some)
        return len(some)

    def remove(self, some: Places) -> int:
        """Remove keys, present or not: the k-th of one fingerprint succeeds if k copies are in."""
        if not len(some):
            return 0
        places = self.place[some]
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        lengths = np.diff(np.append(starts, len(ordered)))
        rank = np.arange(len(ordered)) - np.repeat(starts, lengths)
        expected = np.empty(len(some), bool)
        expected[order] = rank < self.copies[ordered]
        removed = self.filter.remove_many(self.keys[some], threads=self.threads)
        self._compare(removed, expected, "remove_many")
        self.copies[ordered[starts]] = np.maximum(self.copies[ordered[starts]] - lengths, 0)
        self.held -= int(expected.sum())
        self.done["removed"] += int(expected.sum())
        self.done["absent, not removed"] += int((~expected).sum())
        return len(some)

    def ask(self, some: Places) -> int:
        """Look keys up, and count them."""
        copies = self.copies[self.place[some]]
        found = self.filter.contains_many(self.keys[some], threads=self.threads)
        self._compare(found, copies > 0, "contains_many")
        counts = self.filter.count_many(self.keys[some], threads=self.threads)
        self._compare(counts, copies, "count_many")
        self.done["asked and counted"] += 2 * len(some)
        return 2 * len(some)

    def one_by_one(self, some: Places) -> int:
        """Add, count and remove single keys."""
        if self.held + len(some) > 0.9 * self.capacity:
            return 0
        for key, place in zip(self.keys[some].tolist(), self.place[some].tolist(), strict=True):
            there = int(self.copies[place])
            self._compare(key in self.filter, there > 0, "in")
            if there:
                self._compare(self.filter.discard(key), True, "discard")
                self.copies[place] -= 1
                self.held -= 1
            else:
                self.filter.add(key)
                self.copies[place] += 1
                self.held += 1
            self._compare(self.filter.count(key), self.copies[place], "count")
        self.done["singly"] += 3 * len(some)
        return 3 * len(some)

    def merge(self, some: Places) -> int:
        """Add a filter of other keys."""
        other = FingerprintFilter.from_plan(self.filter.plan)
        other.add_many(self.keys[some], threads=self.threads)
        try:
            self.filter += other
        except FilterFullError:
            self.done["sums refused"] += 1
            return len(some)
        np.add.at(self.copies, self.place[some], 1)
        self.held += len(some)
        self.done["added by sums"] += len(some)
        return len(some)

    def rebuild(self) -> int:
        """Send the filter through a file, a pickle or a copy."""
        way = int(self.rng.integers(3))
        if way == 0:
            path = Path(self._folder.name) / "filter"
            self.filter.save(path)
            self.filter = FingerprintFilter.load(path)
        elif way == 1:
            self.filter = pickle.loads(pickle.dumps(self.filter))
        else:
            self.filter = self.filter.copy()
        self.done["saved, pickled, copied"] += 1
        return 1

    def audit(self) -> None:
        """Compare with the counts, and with a fresh filter of the surviving keys."""
        self.sound(self.filter)
        stats = self.filter.stats()
        self.same((stats.keys, self.held), (self.copies.sum(), self.copies.sum()), "stats().keys")
        self.same(stats.distinct, (self.copies > 0).sum(), "stats().distinct")
        self.same(fresh_from(self) == self.filter, True, "== of a fresh filter with the surviving keys")
        self.same(
            fresh_from(self).to_bytes() == self.filter.to_bytes(), True,
            "the bytes of a fresh filter with the surviving keys",
        )  # fmt: skip


def fresh_from(soak: FingerprintSoak) -> FingerprintFilter:
    """Build a filter from the surviving keys, in another order and in five pieces."""
    owners = np.zeros(len(soak.copies), np.int64)
    owners[soak.place] = soak.keys
    survivors = soak.rng.permutation(np.repeat(owners, soak.copies))
    fresh = FingerprintFilter.from_plan(soak.filter.plan)
    for piece in np.array_split(survivors, 5):
        fresh.add_many(piece, threads=soak.threads)
    return fresh
