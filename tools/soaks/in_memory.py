"""Structures in memory, each beside an oracle that knows every key: bit sets, counts, values, levels.

    filters    which keys are in (a bit set): none missed; the rate as stats() says; the bytes of a fresh
               filter with the same keys, where order leaves no trace
    fingerprint  how many copies of each fingerprint are in (fingerprints.py): every answer; the bytes of a
               fresh filter
    fuse       which keys it was built from: none missed; the bytes of another order of the keys
    windows    when each key was added last (windows.py): found within the window, gone after it and a step
    counting   how often each key is in: none missed through removals; the bytes of a fresh filter
    sketches   how often each key came: never an underestimate, seldom above the bound; merges
    tables     which value each key has, through churn; len, stats and all invariants
    summaries  in which level each key is: a key that is in is never answered 0
    rings      which keys are assigned: located where they are, loads recounted, no limit exceeded

The universe of a soak is some 10**5 keys drawn at random: small enough for caches, so that a billion
operations take minutes, and churned all the time.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    ChainedTable,
    CountingBloomFilter,
    CountMinSketch,
    Deduplicator,
    FingerprintFilter,
    FuseFilter,
    GrowingFilter,
    HeavyHitters,
    HyperLogLog,
    MultilevelTable,
    NoNodesError,
    RingFullError,
    ShardedFilter,
    TableFullError,
)
from evenbins.study.counter_summary import CounterSummary
from evenbins.study.hashing import plan_scheme
from evenbins.study.ring import ring as study_ring
from evenbins.tables import summaries
from soaks.fingerprints import FingerprintSoak
from soaks.harness import Case, Soak
from soaks.windows import WindowSoak

__all__ = ["CASES", "FilterSoak", "TableSoak"]

_KEYS = 100_000
_BATCH = 20_000
_SINGLY = 200
Places = npt.NDArray[np.int64]


def universe(rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """Draw distinct keys."""
    drawn = np.unique(rng.integers(-(2**63), 2**63, count + 1000))
    return rng.permutation(drawn)[:count]


def part(rng: np.random.Generator, size: int) -> slice:
    """Choose a fifth of the universe to ask for: all of it is asked when there is an audit."""
    start = int(rng.integers(0, 5)) * (size // 5)
    return slice(start, start + size // 5)


def rebuild(rng: np.random.Generator, made: Any) -> Any:
    """Send a structure through one of the ways out and back."""
    match int(rng.integers(3)):
        case 0:
            return made.copy()
        case 1:
            return pickle.loads(pickle.dumps(made))
        case _:
            return type(made).from_bytes(made.to_bytes())


class FilterSoak(Soak):
    """A filter that only grows; cleared when nearly all keys are in."""

    def __init__(self, rng: np.random.Generator, make: Callable[[], Any], *, ordered: bool) -> None:
        super().__init__(rng)
        self.make, self.filter, self.ordered = make, make(), ordered
        self.keys = universe(rng, _KEYS)
        self.there = np.zeros(_KEYS, bool)

    def _batch(self) -> Places:
        return self.rng.integers(0, _KEYS, int(10 ** self.rng.uniform(0, np.log10(_BATCH / 4))))

    def step(self) -> int:
        """Change something, and look for every key."""
        rng, done = self.rng, 0
        if self.there.mean() > 0.9:
            self.filter.clear()
            self.there[:] = False
            self.done["cleared"] += 1
        match int(rng.integers(10)):
            case 0:
                places = self._batch()[:_SINGLY]
                for key in self.keys[places].tolist():
                    self.filter.add(key)
                self.lose(sum(key not in self.filter for key in self.keys[places].tolist()), "missed singly")
                done = 2 * len(places)
            case 1 if not self.ordered:
                places = self._batch()
                other = self.make()
                other.add_many(self.keys[places])
                self.filter |= other
                self.done["merged"] += 1
                done = len(places)
            case 2:
                self.filter, places = rebuild(rng, self.filter), np.zeros(0, np.int64)
                self.done["rebuilt"] += 1
            case _:
                places = self._batch()
                self.filter.add_many(self.keys[places], threads=int(rng.integers(1, 3)))
                done = len(places)
        self.there[places] = True
        return done + self.ask(part(rng, _KEYS))

    def ask(self, some: slice) -> int:
        """Look for keys of the universe."""
        found = self.filter.contains_many(self.keys[some], threads=int(self.rng.integers(1, 3)))
        self.lose((self.there[some] & ~found).sum(), "keys that are in, missed")
        return len(found)

    def audit(self) -> None:
        """Recount."""
        self.sound(self.filter)
        self.ask(slice(None))
        stats, n = self.filter.stats(), int(self.there.sum())
        fresh = np.unique(self.rng.integers(-(2**63), 2**63, 200_000))
        wrong = int(self.filter.contains_many(fresh).sum())
        spread = 6 * (stats.fpr * len(fresh)) ** 0.5 + 6
        expected = stats.fpr * len(fresh)
        self.holds(abs(wrong - expected) <= spread, f"{wrong} false positives, {expected:.1f} by stats()")
        twin = self.make()
        twin.add_many(self.keys[self.there])
        if not self.ordered:
            self.same(self.filter == twin, True, "the bytes of a fresh filter with these keys")
        other = twin.stats()
        room = 0.02 * n + 10
        self.holds(abs(stats.keys - other.keys) <= room, f"stats().keys {stats.keys}, fresh {other.keys}")
        self.holds(abs(stats.keys - n) <= 0.05 * n + 20, f"stats().keys {stats.keys} of {n}")


class FuseSoak(Soak):
    """A filter that never changes, built anew from other keys, some of them twice."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.keys = universe(rng, _KEYS)
        self.build()

    def build(self) -> int:
        """Build the filter of some keys."""
        rng = self.rng
        places = rng.integers(0, _KEYS, int(10 ** rng.uniform(0, np.log10(2 * _KEYS))))
        self.there = np.zeros(_KEYS, bool)
        self.there[places] = True
        self.bits, threads = int(rng.integers(4, 33)), int(rng.integers(1, 3))
        self.filter = FuseFilter.from_keys(self.keys[places], 2.0**-self.bits, threads=threads)
        self.done["built"] += 1
        return len(places)

    def step(self) -> int:
        """Build one, and look for every key, through files too."""
        done = self.build()
        if self.rng.integers(4) == 0:
            self.filter = rebuild(self.rng, self.filter)
            self.done["rebuilt"] += 1
        found = self.filter.contains_many(self.keys, threads=int(self.rng.integers(1, 3)))
        self.lose((self.there & ~found).sum(), "keys that are in, missed")
        some = self.keys[self.there][:_SINGLY].tolist()
        self.lose(sum(key not in self.filter for key in some), "missed singly")
        return done + len(found) + len(some)

    def audit(self) -> None:
        """Recount."""
        self.sound(self.filter)
        stats = self.filter.stats()
        self.same(stats.keys, float(self.there.sum()), "stats().keys")
        fresh = np.unique(self.rng.integers(-(2**63), 2**63, 200_000))
        wrong, expected = int(self.filter.contains_many(fresh).sum()), stats.fpr * len(fresh)
        self.holds(
            abs(wrong - expected) <= 6 * expected**0.5 + 6,
            f"{wrong} false positives, {expected:.1f} by stats()",
        )
        twin = FuseFilter.from_keys(self.keys[self.there], 2.0**-self.bits, threads=1)
        self.same(self.filter == twin, True, "the bytes of a filter with these keys in another order")


class DedupSoak(Soak):
    """A Deduplicator of keys that come again and again, within batches too; begun anew when all are in."""

    def __init__(self, rng: np.random.Generator, make: Callable[[], Deduplicator]) -> None:
        super().__init__(rng)
        self.make, self.seen = make, make()
        self.keys = universe(rng, _KEYS)
        self.there = np.zeros(_KEYS, bool)
        self.rows = 0

    def step(self) -> int:
        rng = self.rng
        if self.there.mean() > 0.95:
            self.seen.clear()
            self.there[:], self.rows = False, 0
            self.done["cleared"] += 1
        if rng.integers(10) == 0:
            self.seen = rebuild(rng, self.seen)
            self.done["rebuilt"] += 1
        places = rng.integers(0, _KEYS, int(10 ** rng.uniform(0, np.log10(_BATCH))))
        kept = self.seen.keep(self.keys[places], threads=int(rng.integers(1, 3)))
        first = np.zeros(len(places), bool)
        first[np.unique(places, return_index=True)[1]] = True
        self.lose((kept != (first & ~self.there[places])).sum(), "rows kept or dropped wrongly")
        self.there[places] = True
        self.rows += len(places)
        return len(places)

    def audit(self) -> None:
        self.sound(self.seen)
        stats = self.seen.stats()
        counts = (stats.rows, stats.kept, stats.keys)
        self.same(counts, (self.rows, self.there.sum(), self.there.sum()), "rows, kept, keys")
        self.holds(stats.expected_wrong < 1e-3, f"{stats.expected_wrong} rows expected to be dropped wrongly")
        self.lose((~self.seen.contains_many(self.keys[self.there])).sum(), "keys that are in, missed")


class CountingSoak(Soak):
    """A filter from which keys are removed; no key more often in than its counters can tell."""

    def __init__(self, rng: np.random.Generator, make: Callable[[], Any], most: int) -> None:
        super().__init__(rng)
        self.make, self.filter, self.most = make, make(), most
        self.keys = universe(rng, _KEYS)
        self.count = np.zeros(_KEYS, np.int64)

    def step(self) -> int:
        rng, done = self.rng, 0
        places = np.unique(rng.integers(0, _KEYS, int(10 ** rng.uniform(0, 3.7))))
        full = self.count.sum() > 0.8 * _KEYS
        match int(rng.integers(10)):
            case 0:
                for place in places[:_SINGLY].tolist():
                    key = int(self.keys[place])
                    if self.count[place]:
                        self.filter.remove(key)
                        self.count[place] -= 1
                    elif not full:
                        self.filter.add(key)
                        self.count[place] += 1
                done = len(places[:_SINGLY])
            case 1:
                self.filter = rebuild(rng, self.filter)
                self.done["rebuilt"] += 1
            case 2 | 3 | 4 | 5 if not full:
                places = places[self.count[places] < self.most]
                self.filter.add_many(self.keys[places])
                self.count[places] += 1
                done = len(places)
            case _:
                places = places[self.count[places] > 0]
                removed = self.filter.remove_many(self.keys[places])
                self.lose((~removed).sum(), "keys that are in could not be removed")
                self.count[places] -= 1
                done = len(places)
        return done + self.ask(part(rng, _KEYS))

    def ask(self, some: slice) -> int:
        """Look for keys, and how often they are in."""
        there, count = self.filter.contains_many(self.keys[some]), self.count[some]
        self.lose(((count > 0) & ~there).sum(), "keys that are in, missed")
        counts = self.filter.count_many(self.keys[some])
        highest = 2 ** getattr(self.filter, "counter_bits", 32) - 1
        self.lose((counts < np.minimum(count, highest)).sum(), "counts too small")
        return 2 * len(there)

    def audit(self) -> None:
        self.sound(self.filter)
        self.ask(slice(None))
        stats = self.filter.stats()
        if stats.saturated == 0:
            twin = self.make()
            twin.add_many(np.repeat(self.keys, self.count))
            self.same(self.filter == twin, True, "the bytes of a fresh filter with these keys")
            self.same(stats, twin.stats(), "stats()")
        else:
            self.done["audits with full counters"] += 1


class DistinctSoak(Soak):
    """A HyperLogLog of keys that come again and again; begun anew after a while."""

    def __init__(self, rng: np.random.Generator, make: Callable[[], HyperLogLog]) -> None:
        super().__init__(rng)
        self.make, self.sketch = make, make()
        self.keys = universe(rng, _KEYS)
        self.seen = np.zeros(_KEYS, np.bool_)

    def step(self) -> int:
        rng = self.rng
        places = rng.integers(0, _KEYS, int(10 ** rng.uniform(0, 4)))
        match int(rng.integers(8)):
            case 0:
                places = places[:_SINGLY]
                for key in self.keys[places].tolist():
                    self.sketch.add(key)
            case 1:
                other = self.make()
                other.add_many(self.keys[places])
                self.sketch |= other
                self.done["merged"] += 1
            case 2:
                self.sketch = rebuild(rng, self.sketch)
                places = places[:0]
                self.done["rebuilt"] += 1
            case 3 if self.seen.all():
                self.sketch.clear()
                self.seen[:] = False
                places = places[:0]
            case _:
                self.sketch.add_many(self.keys[places], threads=1 + int(rng.integers(3)))
        self.seen[places] = True
        return len(places)

    def audit(self) -> None:
        self.sound(self.sketch)
        twin = self.make()
        twin.add_many(self.keys[self.seen])
        self.same(self.sketch.to_bytes(), twin.to_bytes(), "the bytes of a fresh sketch with these keys")
        known, found = int(self.seen.sum()), self.sketch.count()
        self.same(abs(found - known) <= 7 * self.sketch.plan.error * known, True, f"count {found} of {known}")


class SketchSoak(Soak):
    """A sketch of a stream in which some keys come often; begun anew after a while."""

    def __init__(self, rng: np.random.Generator, make: Callable[[], CountMinSketch]) -> None:
        super().__init__(rng)
        self.make, self.sketch = make, make()
        self.keys = universe(rng, _KEYS)
        self.count = np.zeros(_KEYS, np.uint64)
        self.updates = 0

    def step(self) -> int:
        rng = self.rng
        places = np.minimum(rng.zipf(1.3, int(10 ** rng.uniform(0, 4))), _KEYS) - 1
        done = len(places)
        weights = np.ones(done, np.uint64)
        match int(rng.integers(8)):
            case 0:
                places, weights = (
                    places[:_SINGLY],
                    rng.integers(1, 100, len(places[:_SINGLY])).astype(np.uint64),
                )
                for key, weight in zip(self.keys[places].tolist(), weights.tolist(), strict=True):
                    self.sketch.add(key, weight)
                done = len(places)
            case 1 if not self.sketch.plan.conservative:
                other = self.make()
                other.add_many(self.keys[places])
                self.sketch |= other
                self.done["merged"] += 1
            case 2:
                weights = rng.integers(1, 1000, done).astype(np.uint64)
                self.sketch.add_many(self.keys[places], weights)
            case 3:
                self.sketch = rebuild(rng, self.sketch)
                places, weights, done = places[:0], weights[:0], 0
                self.done["rebuilt"] += 1
            case _:
                self.sketch.add_many(self.keys[places])
        np.add.at(self.count, places, weights)
        self.updates += len(places)
        return done + self.ask(part(rng, _KEYS))

    def ask(self, some: slice) -> int:
        """Look how often keys came."""
        found = self.sketch.count_many(self.keys[some])
        self.lose((found < self.count[some]).sum(), "estimates too small")
        return len(found)

    def audit(self) -> None:
        self.sound(self.sketch)
        self.ask(slice(None))
        stats, plan, total = self.sketch.stats(), self.sketch.plan, int(self.count.sum())
        self.same((stats.total, stats.updates), (total, self.updates), "stats(): total, updates")
        over = (self.sketch.count_many(self.keys) - self.count) > stats.error_bound
        bound = plan.delta * _KEYS
        self.holds(
            over.sum() <= bound + 6 * bound**0.5 + 3,
            f"{over.sum()} above the error bound, {bound:.1f} planned",
        )
        if total > 10**9:
            self.sketch.clear()
            self.count[:] = 0
            self.updates = 0
            self.done["cleared"] += 1


class HittersSoak(Soak):
    """The most frequent keys: all whose count exceeds what k keys and the sketch's error leave room for."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.k, self.hitters = 100, HeavyHitters(100)
        self.keys = universe(rng, _KEYS)
        self.count = np.zeros(_KEYS, np.int64)

    def step(self) -> int:
        places = np.minimum(self.rng.zipf(1.2, 20_000), _KEYS) - 1
        match int(self.rng.integers(12)):
            case 0:
                part = HeavyHitters(self.k)
                part.add_many(self.keys[places])
                self.hitters |= part
                self.done["merged"] += 1
            case 1:
                self.hitters = rebuild(self.rng, self.hitters)
                self.hitters.add_many(self.keys[places])
                self.done["rebuilt"] += 1
            case _:
                self.hitters.add_many(self.keys[places])
        np.add.at(self.count, places, 1)
        return len(places)

    def audit(self) -> None:
        self.sound(self.hitters)
        self.same(self.hitters.total, int(self.count.sum()), "total")
        place = {int(key): i for i, key in enumerate(self.keys.tolist())}
        top = self.hitters.top()
        self.lose(sum(told < self.count[place[int(key)]] for key, told in top), "estimates too small")
        bound = self.hitters.stats().untracked_bound
        found = {int(key) for key, _ in top}
        missed = [
            key
            for key, n in zip(self.keys.tolist(), self.count, strict=True)
            if n > bound and key not in found
        ]
        self.lose(len(missed), "keys that came more often than untracked_bound")


class TableSoak(Soak):
    """A mapping through churn, near its capacity."""

    def __init__(self, rng: np.random.Generator, make: Callable[[], Any], capacity: int = _KEYS, *,
                 copies: bool = True) -> None:  # fmt: skip
        super().__init__(rng)
        self.table, self.capacity, self.copies = make(), capacity, copies
        self.size = int(1.5 * capacity)
        self.keys = universe(rng, self.size)
        self.value = np.zeros(self.size, np.int64)
        self.there = np.zeros(self.size, bool)

    def step(self) -> int:
        """Change something, and look for every key."""
        rng, done = self.rng, 0
        count = int(10 ** rng.uniform(0, np.log10(self.capacity / 8)))
        places = np.unique(rng.integers(0, self.size, count))
        match int(rng.integers(8)):
            case 0:
                done = self.singly(places[:_SINGLY])
            case 1 if self.copies:
                self.table = rebuild(rng, self.table)
                self.done["rebuilt"] += 1
            case 2 | 3:
                deleted = self.table.delete_many(self.keys[places])
                self.lose(deleted != self.there[places].sum(), "deletions miscounted")
                self.there[places] = False
                done = len(places)
            case _:
                done = self.insert(places)
        return done + self.ask(part(rng, self.size))

    def singly(self, places: Places) -> int:
        """Set, or delete, one by one."""
        for place, key in zip(places.tolist(), self.keys[places].tolist(), strict=True):
            if self.there[place]:
                self.lose(self.table[key] != self.value[place], "value read singly")
                del self.table[key]
                self.there[place] = False
            elif self.there.sum() < 0.98 * self.capacity:
                with contextlib.suppress(TableFullError):
                    self.table[key] = place
                    self.value[place], self.there[place] = place, True
        return 2 * len(places)

    def insert(self, places: Places) -> int:
        """Store new keys as far as there is room, and other values of those that are there."""
        room = int(0.98 * self.capacity) - int(self.there.sum())
        new = places[~self.there[places]][: max(room, 0)]
        places = np.concatenate([places[self.there[places]], new])
        values = self.rng.integers(-(2**63), 2**63, len(places))
        try:
            self.table.insert_many(self.keys[places], values)
        except TableFullError:  # those that are in are told by looking
            self.done["refused"] += 1
            found = self.table.get_many(self.keys[places], default=0)
            there = self.table.contains_many(self.keys[places])
            fresh = there & (found == values)
            stale = there & ~fresh
            self.lose((stale & (found != self.value[places])).sum(), "values that never were")
            places, values = places[fresh], values[fresh]
        self.value[places], self.there[places] = values, True
        return len(places)

    def ask(self, some: slice) -> int:
        """Look up keys of the universe."""
        there = self.there[some]
        self.lose((self.table.contains_many(self.keys[some]) != there).sum(), "keys lost or too many")
        found = self.table.get_many(self.keys[some], default=7)
        self.lose((found != np.where(there, self.value[some], 7)).sum(), "values lost")
        return 2 * len(found)

    def audit(self) -> None:
        """Recount."""
        self.sound(self.table)
        self.ask(slice(None))
        n = int(self.there.sum())
        self.same((len(self.table), self.table.stats().keys), (n, n), "len and stats().keys")
        order = np.argsort(self.keys[self.there])
        found = np.array(sorted(self.table.items()), np.int64).reshape(-1, 2)
        wanted = np.stack([self.keys[self.there][order], self.value[self.there][order]], 1)
        self.same(np.array_equal(found, wanted), True, "items()")


class SummarySoak(Soak):
    """Levels of keys; with `removal` they go and come."""

    def __init__(self, rng: np.random.Generator, make: Callable[[], Any], *, removal: bool) -> None:
        super().__init__(rng)
        self.make, self.summary, self.removal = make, make(), removal
        counters = isinstance(self.summary, CounterSummary)  # they choose the levels themselves
        self.levels = 1 if counters else self.summary.plan.levels
        self.keys = universe(rng, _KEYS)
        self.level = np.zeros(_KEYS, np.uint8)

    def step(self) -> int:
        rng = self.rng
        places = np.unique(rng.integers(0, _KEYS, int(10 ** rng.uniform(0, 3.7))))
        absent = places[self.level[places] == 0]
        there = places[self.level[places] > 0]
        done = 0
        if (self.level > 0).mean() < 0.9:
            levels = np.minimum(rng.geometric(0.9, len(absent)), self.levels).astype(np.uint8)
            self.summary.add_many(self.keys[absent], levels)
            self.level[absent] = levels
            done = len(absent)
        elif not self.removal:
            self.summary.clear()
            self.level[:] = 0
            self.done["cleared"] += 1
        if self.removal and rng.random() < 0.7:
            gone = self.summary.remove_many(self.keys[there], self.level[there])
            self.lose((~gone).sum(), "keys that are in could not be removed")
            self.level[there] = 0
            done += len(there)
        if rng.random() < 0.1:
            self.summary = rebuild(rng, self.summary)
            self.done["rebuilt"] += 1
        return done + self.ask(part(rng, _KEYS))

    def ask(self, some: slice) -> int:
        """Look in which level keys are."""
        found, level = self.summary.level_many(self.keys[some]), self.level[some]
        self.lose(((level > 0) & (found == 0)).sum(), "keys that are in, answered absent")
        self.done["wrong levels"] += int(((level > 0) & (found != level)).sum())
        self.done["levels asked"] += int((level > 0).sum())
        return len(found)

    def audit(self) -> None:
        self.sound(self.summary)
        self.ask(slice(None))
        stats = self.summary.stats()
        if self.removal and not stats.saturated:
            self.same(stats.keys, int((self.level > 0).sum()), "stats().keys")


class RingSoak(Soak):
    """Keys that are assigned and released while nodes come, go and fail."""

    def __init__(self, rng: np.random.Generator, **options: Any) -> None:
        super().__init__(rng)
        self.ring = study_ring([f"node{i:02}" for i in range(40)], **options)
        self.ring._start_audit()
        self.keys = universe(rng, _KEYS)
        self.there = np.zeros(_KEYS, bool)

    def step(self) -> int:
        rng, ring = self.rng, self.ring
        places = np.unique(rng.integers(0, _KEYS, int(10 ** rng.uniform(0, 4))))
        done = len(places)
        match int(rng.integers(10)):
            case 0 | 1 | 2:
                gone = ring.release_many(self.keys[places])
                self.lose((gone != self.there[places]).sum(), "releases told wrongly")
                self.there[places] = False
            case 3:
                done = self.singly(places[:_SINGLY])
            case 4:
                done = self.churn()
            case _:
                try:
                    ring.assign_many(self.keys[places])
                    self.there[places] = True
                except RingFullError as error:
                    self.there[places[: error.assigned]] = True
                    self.done["refused"] += 1
        some = part(rng, _KEYS)
        found = ring.locate_many(self.keys[some], indices=True)
        self.lose(((found >= 0) != self.there[some]).sum(), "keys lost or too many")
        return done + len(found)

    def singly(self, places: Places) -> int:
        """Assign, or release, one by one."""
        for place, key in zip(places.tolist(), self.keys[places].tolist(), strict=True):
            if self.there[place]:
                self.lose(not self.ring.release(key), "releases told wrongly")
                self.there[place] = False
            else:
                with contextlib.suppress(RingFullError):
                    node = self.ring.assign(key)
                    self.there[place] = True
                    self.lose(self.ring.locate(key) != node, "assigned keys elsewhere")
        return 2 * len(places)

    def churn(self) -> int:
        """Change one node."""
        rng, ring = self.rng, self.ring
        name = f"node{rng.integers(40):02}"
        self.done["changes of nodes"] += 1
        with contextlib.suppress(KeyError, RingFullError, NoNodesError):
            match int(rng.integers(6)):
                case 0 if name not in ring.names:
                    ring.add_node(name, move=str(rng.choice(["now", "lazy"])))
                case 1 if len(ring.names) > 30:
                    ring.remove_node(name)
                case 2 if sum(state == "up" for state in ring.states.values()) > 30:
                    ring.mark_down(name)
                case 3:
                    ring.rebalance(1000)
                case _:
                    ring.mark_up(name)
        return 1

    def audit(self) -> None:
        ring = self.ring
        self.sound(ring)
        found = ring.locate_many(self.keys, indices=True)
        self.lose(((found >= 0) != self.there).sum(), "keys lost or too many")
        recount = dict(
            zip(ring.names, np.bincount(found[found >= 0], minlength=len(ring.names)).tolist(), strict=True)
        )
        stats = ring.stats()
        loads = ring.loads() if callable(ring.loads) else ring.loads
        self.same(loads, recount, "loads")
        self.same((stats.keys, ring.key_count), (int(self.there.sum()),) * 2, "stats().keys and key_count")
        self.same(stats.loads, recount, "stats().loads")
        _, broken = ring._audit()
        self.holds(broken == 0, f"{broken} placements beyond a limit")


def _filter(name: str, make: Callable[[], Any], share: float = 1.0, *, ordered: bool = False) -> Case:
    return Case(name, lambda rng: FilterSoak(rng, make, ordered=ordered), share)


def _cases() -> list[Case]:
    cases = [
        _filter("standard", lambda: BloomFilter(_KEYS), 4),
        _filter("standard, partition", lambda: BloomFilter.from_plan(plan_scheme("partition", _KEYS))),
        _filter("standard, double hashing", lambda: BloomFilter.from_plan(plan_scheme("double", _KEYS))),
        _filter("blocked 256", lambda: BlockedBloomFilter(_KEYS, block_bits=256), 4),
        _filter("blocked 512", lambda: BlockedBloomFilter(_KEYS), 4),
        _filter("sharded", lambda: ShardedFilter(_KEYS, shards=4), 3),
    ]
    for policy in ("single", "sequential", "multilevel", "fill", "two-choice"):
        make = lambda policy=policy: BalancedBloomFilter(_KEYS, policy=policy)  # noqa: E731
        cases.append(_filter(f"balanced, {policy}", make, 3, ordered=True))
    cases.append(_filter("growing", lambda: GrowingFilter(1e-3, first=2_000), 1, ordered=True))
    for layout in ("flat", "blocked"):
        for bits, most in ((4, 3), (8, 20), (16, 200)):
            make = lambda layout=layout, bits=bits: CountingBloomFilter(  # noqa: E731
                _KEYS, bits_per_key=12 * bits, counter_bits=bits, layout=layout
            )
            name = f"counting, {layout}, {bits} bits"
            cases.append(Case(name, lambda rng, make=make, most=most: CountingSoak(rng, make, most)))
    for fpr in (1e-2, 1e-6):
        make = lambda fpr=fpr: FingerprintFilter(2 * _KEYS, fpr)  # noqa: E731
        cases.append(Case(f"fingerprint, {fpr:g}", lambda rng, make=make: CountingSoak(rng, make, 3)))
    cases.append(Case("fingerprint, full", lambda rng: FingerprintSoak(rng, _KEYS, 1e-3)))
    cases.append(_filter("fingerprint, set", lambda: FingerprintFilter(_KEYS, 1e-3, semantics="set")))
    cases.append(Case("fuse", FuseSoak))
    for counted in (False, True):
        make_window = lambda rng, counted=counted: WindowSoak(rng, _KEYS, 1e-3, 8, counted=counted)  # noqa: E731
        cases.append(Case(f"window of {'additions' if counted else 'time'}", make_window))
    for construction in ("classic", "two-hash"):
        for conservative in (False, True):
            make = lambda construction=construction, conservative=conservative: CountMinSketch(  # noqa: E731
                1e-3, 1e-3, construction=construction, conservative=conservative
            )
            name = f"count-min, {construction}" + ", conservative" * conservative
            cases.append(Case(name, lambda rng, make=make: SketchSoak(rng, make)))
    for precision in (8, 14):
        make = lambda precision=precision: HyperLogLog(precision)  # noqa: E731
        cases.append(Case(f"hyperloglog, {precision}", lambda rng, make=make: DistinctSoak(rng, make)))
    for exact in (False, True):
        make = lambda exact=exact: Deduplicator(exact=exact)  # noqa: E731
        name = f"deduplicator, {'exact' if exact else 'approximate'}"
        cases.append(Case(name, lambda rng, make=make: DedupSoak(rng, make)))
    cases.append(Case("heavy hitters", HittersSoak, 0.1))
    for scheme in ("standard", "conservative", "second-chance", "extreme-second-chance", "least-loaded"):
        make = lambda scheme=scheme: MultilevelTable(  # noqa: E731
            _KEYS, scheme=scheme, deletions=scheme != "least-loaded"
        )
        cases.append(Case(f"table, {scheme}", lambda rng, make=make: TableSoak(rng, make), 0.7))
    cases.append(Case(
        "table with a summary",
        lambda rng: TableSoak(
            rng, lambda: MultilevelTable(_KEYS, scheme="standard", summary="counting-multiple-bloom")
        ),
    ))  # fmt: skip
    for policy in ("single", "sequential", "multilevel", "d-left", "least-loaded"):
        make = lambda policy=policy: ChainedTable(_KEYS, policy=policy, load=4)  # noqa: E731
        cases.append(Case(f"chained, {policy}", lambda rng, make=make: TableSoak(rng, make)))
    for name, make, removal in (
        ("interpolation", lambda: summaries.InterpolationSummary(_KEYS), True),
        ("single filter", lambda: summaries.SingleFilterSummary(_KEYS), False),
        ("single filter, counting", lambda: summaries.SingleFilterSummary(_KEYS, counting=True), True),
        ("multiple bloom", lambda: summaries.MultipleBloomSummary(_KEYS), False),
        ("multiple bloom, counting", lambda: summaries.MultipleBloomSummary(_KEYS, counting=True), True),
        ("counters", lambda: CounterSummary(_KEYS), False),
    ):
        cases.append(
            Case(
                f"summary, {name}",
                lambda rng, make=make, removal=removal: SummarySoak(rng, make, removal=removal),
                0.6,
            )
        )
    for name, options in (
        ("epsilon 0.05", {"epsilon": 0.05}), ("limit", {"limit": 3_000}),
        ("clockwise", {"epsilon": 0.1, "policy": "clockwise"}),
    ):  # fmt: skip
        cases.append(Case(f"ring, {name}", lambda rng, options=options: RingSoak(rng, **options), 0.5))
    return cases


CASES = _cases()
