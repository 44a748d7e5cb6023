"""Digests seen before, approximately: filters of growing size whose rates sum to at most the promise.

    without a capacity   2**16 │ 2**19 │ 2**21 │ 2**22 │ 2**23 │ … twelve stages, each with a twelfth of fpr
    with one             capacity, with half of fpr │ then half the capacity, the capacity, twice it, …, with
                         a sixteenth of fpr each

A stage is a balanced filter ("fill"). A digest that no older stage has goes to the newest; when that has as
many keys as it was planned for, the next begins with the next new key. The twelfths cost 3.6 * 1.44 = 5.2
bits per key.

Why "fill": 5 million new keys and 5 million repeats by `add_new_many` at fpr=1e-9 took 27 ns per row in a
blocked filter (80 bits per key), 33 in "fill" (48), 100 in "two-choice" (46), 440 in a standard filter (43).
A GrowingFilter is not used: it places keys in batches of 1,024 so as to change bits and count in one step
(240 ns with a single stage), and its rates fall as 1/i**2, which ends at 67 million keys for 1e-9.

Expected errors: a new key is dropped with the rate of its moment, so each kept row stands for rate/(1-rate)
wrongly dropped ones. The rates of full stages are constants. That of the newest is measured when it is a
quarter, half, three quarters and all full, and taken for a power of its keys in between.

Invariants: stages end, and rates are measured, at exact numbers of keys, so that answers, bytes and the
expected errors do not depend on how rows are divided into batches. A count is raised before bits change and
corrected afterwards: an exception in between leaves it too high, never too low.

Planning a shape takes a second, and all stages of one rate have the same, so it is planned once per rate, and
known in advance for the default rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, structure
from evenbins._core import FormatError
from evenbins.deduplication.pieces import Marks, Mask, Words, add_in_pieces, count_in, new_marks
from evenbins.errors import EvenbinsError
from evenbins.filters import BalancedPlan, plan_balanced
from evenbins.filters.balanced import BalancedBloomFilter
from evenbins.hashing import digest_many
from evenbins.theory.fpr import digest_floor

__all__ = ["MOST_STAGES", "DeduplicatorFullError", "Part", "Stages", "predicted_stages"]

MOST_STAGES: Final = 64
"""Stages of one Deduplicator, also after merges."""

_FIRST_BITS: Final = (16, 19, 21)  # of the first sizes without a capacity; then each doubles the one before
_STAGES, _SHARE = 12, 1 / 12  # without a capacity
_FIRST_SHARE, _LATER_STAGES, _LATER_SHARE = 1 / 2, 8, 1 / 16  # with one
_LEAST_LATER = 1 << 16
_ABOVE_FLOOR = 2.001  # the least rate of a stage, in units of the chance that 64-bit digests collide
_PIECE = 1 << 18  # rows of one step: a few milliseconds
_MARKS = (0.25, 0.5, 0.75, 1.0)  # shares of a stage's capacity at which its rate is measured
_MOST_KEYS = 1 << 48
_SHAPE_KEYS = 1 << 18  # keys of the filter whose shape all of a rate have


class DeduplicatorFullError(EvenbinsError, RuntimeError):
    """No stage can follow: with 64-bit digests the promised rate cannot be kept for more keys.

    `answers` has the answers for the rows of the batch that are in, all of them before the one that is not.
    """

    answers: Mask


class Part(NamedTuple):
    """A filter or a set inside a file: its number, its counts, and its own file."""

    number: int
    keys: int
    measured_at: int
    rate: float
    data: Any


class _Shape(NamedTuple):
    """What all "fill" filters of one rate have in common, whatever their size."""

    bits_per_key: float
    hashes: int
    thresholds: tuple[int, ...]
    shares: tuple[float, ...]


# As `_planned_shape` finds them for the stages of the default rate, 1e-9, rounded; a test compares the rates.
_KNOWN = {
    1e-9 * _SHARE: _Shape(53.95, 32, (237, 236, 237), (0.7251, 0.2265, 0.0484)),
    1e-9 * _FIRST_SHARE: _Shape(49.32, 31, (247, 243, 247), (0.7392, 0.2140, 0.0468)),
    1e-9 * _LATER_SHARE: _Shape(54.62, 32, (235, 233, 235), (0.7200, 0.2284, 0.0516)),
}


@lru_cache(64)
def _planned_shape(rate: float) -> _Shape:
    plan = plan_balanced(_SHAPE_KEYS, fpr=rate, policy="fill")
    return _Shape(1.0005 * plan.bits_per_key, plan.hashes, tuple(plan.thresholds), tuple(plan.shares))


@lru_cache(256)
def plan_stage(keys: int, rate: float, seed: int) -> BalancedPlan:
    """Plan a stage by the shape of its rate; by a search of its own if that does not reach the rate."""
    if not _is_possible(_SHAPE_KEYS, rate):
        return plan_balanced(keys, fpr=rate, policy="fill", seed=seed)
    shape = _KNOWN.get(rate) or _planned_shape(rate)
    plan = plan_balanced(
        keys, bits_per_key=shape.bits_per_key, policy="fill", hashes=shape.hashes,
        thresholds=shape.thresholds, shares=shape.shares, seed=seed,
    )  # fmt: skip
    return plan if plan.fpr <= rate else plan_balanced(keys, fpr=rate, policy="fill", seed=seed)


def _is_possible(keys: int, rate: float) -> bool:
    return keys <= _MOST_KEYS and rate >= _ABOVE_FLOOR * digest_floor(keys)


def stage_goal(fpr: float, capacity: int | None, number: int) -> tuple[int, float] | None:
    """Return keys and rate of a stage, or None if there can be no such stage."""
    if capacity is None:
        bits = _FIRST_BITS[number] if number < len(_FIRST_BITS) else _FIRST_BITS[-1] + number - 2
        keys, rate = 1 << bits, fpr * _SHARE
        possible = number < _STAGES
    elif number == 0:
        keys, rate = capacity, fpr * _FIRST_SHARE
        if not _is_possible(keys, rate):
            rate = fpr  # it cannot grow
        possible = True
    else:
        keys, rate = max(_LEAST_LATER, capacity // 2) << (number - 1), fpr * _LATER_SHARE
        possible = number <= _LATER_STAGES and _is_possible(capacity, fpr * _FIRST_SHARE)
    return (keys, rate) if possible and _is_possible(keys, rate) else None


def most_keys(fpr: float, capacity: int | None) -> int:
    """Return the keys of all stages that are possible."""
    total = number = 0
    while (goal := stage_goal(fpr, capacity, number)) is not None:
        total, number = total + goal[0], number + 1
    return total


def predicted_stages(fpr: float, capacity: int | None, keys: int) -> tuple[int, float]:
    """Return the bytes of all stages with so many keys, and how many new keys are expected to be dropped.

    Raises
    ------
    ValueError
        64-bit digests cannot keep this rate for so many keys.

    Examples
    --------
    >>> nbytes, wrong = predicted_stages(1e-9, 10**8, 10**8)
    >>> nbytes, 0 < wrong < 1e-9 * 10**8
    (615495616, True)
    """
    most = most_keys(fpr, capacity)
    if not most:
        raise _rate_error(fpr, capacity)
    if keys > most:
        raise arguments.unmet(
            "fpr",
            f"={fpr!r} has room for at most {most} keys, and there are {keys}. Pass a capacity, a larger "
            "fpr, or exact=True",
        )
    nbytes, wrong, number = 0, 0.0, 0
    full: list[float] = []
    while keys > 0:
        goal = stage_goal(fpr, capacity, number)
        assert goal is not None
        plan = plan_stage(*goal, 0)
        here = min(keys, goal[0])
        nbytes, wrong = nbytes + plan.nbytes, wrong + here * _odds(_at_least_one(full))
        before, first = 0, 0.0
        marks = (math.ceil(share * goal[0]) for share in _MARKS)
        for mark in (*(mark for mark in marks if mark < here), here):
            last = plan.with_keys(mark).fpr
            wrong += _errors_between(before, first, mark, last, plan.hashes)
            before, first = mark, last
        full.append(first)
        keys, number = keys - here, number + 1
    return nbytes, wrong


def _rate_error(fpr: float, capacity: int | None) -> ValueError:
    keys = 1 << _FIRST_BITS[0] if capacity is None else capacity
    least = 1.001 * _ABOVE_FLOOR * digest_floor(keys) / (1.0 if capacity else _SHARE)
    return arguments.unmet(
        "fpr",
        f" must be at least {least:.4g} for {keys} keys (64-bit digests); got {fpr!r}. Pass a larger "
        "fpr, or exact=True",
    )


def _errors_between(before: int, first: float, now: int, last: float, hashes: int) -> float:
    """Return the errors that keys `before` to `now` stand for, if the rate rises from `first` to `last`."""
    first, last = _odds(first), _odds(last)
    if now <= before or last <= 0.0:
        return 0.0
    if not before or first <= 0.0:
        return last * now / (hashes + 1)  # at first it rises with this power
    power = max(0.0, math.log(last / first) / math.log(now / before))
    return (last * now - first * before) / (power + 1.0)


class _Stage:
    """A filter, its number among the stages, the keys it has, and its rate when it was measured last."""

    __slots__ = ("filter", "keys", "measured_at", "number", "rate")

    def __init__(
        self, number: int, filter_: BalancedBloomFilter, keys: int = 0, at: int = 0, rate: float = 0.0
    ) -> None:
        self.number, self.filter, self.keys, self.measured_at, self.rate = number, filter_, keys, at, rate

    @property
    def mark(self) -> int:
        """The number of keys at which it is to be measured next, or is full; 0 if it is full."""
        return next((mark for mark in self._marks() if mark > self.keys), 0)

    @property
    def is_due(self) -> bool:
        """Whether it has the number of keys at which it is to be measured, and was not."""
        return self.measured_at < self.keys and self.keys in self._marks()

    def _marks(self) -> Iterator[int]:
        capacity = self.filter.capacity
        return (max(1, math.ceil(share * capacity)) for share in _MARKS)

    def copy(self) -> _Stage:
        return _Stage(self.number, self.filter.copy(), self.keys, self.measured_at, self.rate)

    def errors_since(self, rate: float) -> float:
        """Return the errors that its keys since it was measured stand for, if its rate is `rate` now."""
        return _errors_between(self.measured_at, self.rate, self.keys, rate, self.filter.plan.hashes)


class Stages:
    """The filters of an approximate Deduplicator. The caller holds its lock.

    Attributes
    ----------
    wrong : expected number of new keys that were dropped, up to the last measurements
    """

    exact = False

    def __init__(self, fpr: float, capacity: int | None, seed: int) -> None:
        self.fpr, self.capacity, self.seed, self.wrong = fpr, capacity, seed, 0.0
        goal = stage_goal(fpr, capacity, 0)
        if goal is None:
            raise _rate_error(fpr, capacity)
        self._stages: tuple[_Stage, ...] = (self._new_stage(0),)

    def _new_stage(self, number: int) -> _Stage:
        goal = stage_goal(self.fpr, self.capacity, number)
        if goal is None:
            most = most_keys(self.fpr, self.capacity)
            raise DeduplicatorFullError(
                f"this Deduplicator is full: with fpr={self.fpr!r} and capacity={self.capacity} it holds at "
                f"most {most} keys. Build one with a larger capacity or fpr, or with exact=True"
            )
        return _Stage(number, BalancedBloomFilter.from_plan(plan_stage(*goal, self.seed)))

    # --- keys in, answers out ----------------------------------------------------------------------

    def digests(self, keys: object) -> Words:
        """Return what identifies each key: 64 bits."""
        return np.ravel(digest_many(keys, self.seed))

    def add_new(self, digests: Words, threads: int, marks: Marks | None = None) -> Mask:
        """Add the digests that are new; return which were. After an error `marks` says which rows are in."""
        own = new_marks(len(digests)) if marks is None else marks
        return add_in_pieces(digests, own, _PIECE, lambda piece, out: self._add_piece(piece, out, threads))

    def _add_piece(self, digests: Words, marks: Marks, threads: int) -> int:
        """Add the first rows of a piece, up to a number of keys at which the newest stage is measured."""
        if self._stages[-1].is_due:  # an interrupt came before it was measured
            self._measure(self._stages[-1])
        if not (mark := self._stages[-1].mark):  # full: the next stage begins with a new key, not before
            places = np.flatnonzero(~self.contains(digests, threads))
            repeats = int(places[0]) if len(places) else len(digests)
            if repeats:
                marks[:repeats] = 0
                return repeats
            self._begin_stage()
            mark = self._stages[-1].mark
        *older, newest = self._stages
        rows: npt.NDArray[np.intp] | None = None
        fresh = digests
        for stage in older:
            absent = ~stage.filter.contains_many(fresh, digests=True, threads=threads)
            rows = np.flatnonzero(absent) if rows is None else rows[absent]
            fresh = fresh[absent]
        used = len(fresh)
        if used > mark - newest.keys:
            used = _rows_before(newest.filter, fresh, mark - newest.keys, threads)
        source, _ = _bulk.key_source(fresh[:used], digests=True)
        added, before = marks[:used] if rows is None else new_marks(used), newest.keys

        def finish() -> int:
            newest.keys = before + int(np.count_nonzero(added == 1))
            return used if rows is None else _mark_rows(marks, rows, added)

        newest.keys += used  # at most
        try:
            newest.filter._add_new_into(source, threads, added)
            done = finish()
        except BaseException:  # from a signal handler it may come anywhere
            finish()
            raise
        if newest.is_due:
            self._measure(newest)
        return done

    def _begin_stage(self) -> None:
        stage = self._new_stage(self._stages[-1].number + 1)
        self._stages = (*self._stages, stage)

    def _measure(self, newest: _Stage) -> None:
        rate = newest.filter.stats().fpr
        self.wrong += self._errors_since(newest, rate)
        newest.measured_at, newest.rate = newest.keys, rate

    def _errors_since(self, newest: _Stage, rate: float) -> float:
        """Return the errors since the newest stage was measured: its own, and those of the full stages."""
        older = _odds(_at_least_one([stage.rate for stage in self._stages[:-1]]))
        return newest.errors_since(rate) + (newest.keys - newest.measured_at) * older

    def contains(self, digests: Words, threads: int) -> Mask:
        """Return which digests some stage has."""
        found = np.zeros(len(digests), dtype=np.bool_)
        left = np.arange(len(digests))
        for stage in reversed(self._stages):
            found[left] = stage.filter.contains_many(digests[left], digests=True, threads=threads)
            left = left[~found[left]]
        return found

    # --- the whole ---------------------------------------------------------------------------------

    def measure(self) -> tuple[int, float, float]:
        """Return the keys, the rate and the expected errors now."""
        newest = self._stages[-1]
        rate = newest.filter.stats().fpr if newest.keys else 0.0
        now = _at_least_one([*(stage.rate for stage in self._stages[:-1]), rate])
        return self.keys, now, self.wrong + self._errors_since(newest, rate)

    def expected_errors(self, rows: int) -> float:
        """Return an upper bound of the errors among `rows` more rows: the promise times the rows."""
        return rows * self.fpr

    @property
    def keys(self) -> int:
        """Keys in all stages."""
        return sum(stage.keys for stage in self._stages)

    @property
    def planned_keys(self) -> int:
        """Keys that the stages so far were planned for."""
        return sum(stage.filter.capacity for stage in self._stages)

    @property
    def max_keys(self) -> int:
        """Keys that all possible stages hold."""
        return most_keys(self.fpr, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes of all stages."""
        return sum(stage.filter.nbytes for stage in self._stages)

    @property
    def read_only(self) -> bool:
        """Whether it is mapped from a file."""
        return self._stages[-1].filter._read_only

    def copy(self) -> Self:
        """Make an independent copy."""
        twin = type(self).__new__(type(self))
        twin.fpr, twin.capacity, twin.seed, twin.wrong = self.fpr, self.capacity, self.seed, self.wrong
        twin._stages = tuple(stage.copy() for stage in self._stages)
        return twin

    def clear(self) -> None:
        """Remove all keys, and all stages but the first."""
        self._stages, self.wrong = (self._new_stage(0),), 0.0

    def merge(self, other: Stages) -> None:
        """Add the stages of `other`, which nobody else has.

        Two of one number are united if their keys fit into one; otherwise there are both, so that the rate
        is at most the sum of both rates. One that is here already, bit for bit, is left out.
        """
        wrong = self.measure()[2] + other.measure()[2]
        merged = [stage.copy() for stage in self._stages]
        for source in other._stages:
            if any(stage.number == source.number and stage.filter == source.filter for stage in self._stages):
                continue
            fits = (
                stage for stage in merged
                if stage.number == source.number
                and stage.keys + source.keys <= stage.filter.capacity
                and stage.filter.plan.core == source.filter.plan.core
            )  # fmt: skip
            if (stage := next(fits, None)) is None:
                merged.append(source)
                continue
            stage.filter |= source.filter
            stage.keys += source.keys
        if len(merged) > MOST_STAGES:
            raise ValueError(
                f"cannot merge: there would be {len(merged)} stages, more than {MOST_STAGES}. Build all with "
                "the capacity of their union, so that stages can be united, or with exact=True"
            )
        for stage in merged:
            stage.measured_at, stage.rate = stage.keys, stage.filter.stats().fpr
        merged.sort(key=lambda stage: (stage.number, -stage.keys))  # the last is the one to add to
        self._stages, self.wrong = tuple(merged), wrong

    def equals(self, other: Stages) -> bool:
        """Return whether both have the same design, keys and bytes."""
        if (self.fpr, self.capacity, self.seed) != (other.fpr, other.capacity, other.seed):
            return False
        mine, theirs = self._stages, other._stages
        return len(mine) == len(theirs) and all(
            (a.number, a.keys, a.measured_at, a.rate) == (b.number, b.keys, b.measured_at, b.rate)
            and a.filter == b.filter
            for a, b in zip(mine, theirs, strict=True)
        )

    # --- files -------------------------------------------------------------------------------------

    @property
    def part_count(self) -> int:
        """The number of stages."""
        return len(self._stages)

    def to_parts(self) -> Iterator[Part]:
        """Yield the stages as they are in a file."""
        for stage in self._stages:
            yield Part(stage.number, stage.keys, stage.measured_at, stage.rate, stage.filter.to_bytes())

    @classmethod
    def from_parts(
        cls, parts: Sequence[Part], fpr: float, capacity: int | None, seed: int, wrong: float,
        *, mapped: bool, verify: bool,
    ) -> Self:  # fmt: skip
        """Read the stages of a file."""
        made = cls.__new__(cls)
        made.fpr, made.capacity, made.seed, made.wrong = fpr, capacity, seed, wrong
        stages: list[_Stage] = []
        for part in parts:
            number = part.number
            goal = stage_goal(fpr, capacity, number) if number < MOST_STAGES else None
            kind = structure.kind_of_number(_kind_in(part.data))
            if goal is None or kind is None or kind.name != "balanced":
                raise FormatError(f"stage {number} does not belong to this Deduplicator")
            found = BalancedBloomFilter._from_data(part.data, mapped=mapped, verify=verify)
            if (found.capacity, found.seed, found.plan.policy) != (goal[0], seed, "fill"):
                raise FormatError(f"stage {number} does not belong to this Deduplicator")
            if part.keys > found.capacity or (stages and number < stages[-1].number):
                raise FormatError(f"stage {number} cannot have {part.keys} keys, or cannot be there")
            if not part.measured_at <= part.keys or not 0.0 <= part.rate <= 1.0:
                raise FormatError(f"stage {number} has an impossible rate")
            stages.append(_Stage(number, found, part.keys, part.measured_at, part.rate))
        if not stages or not 0.0 <= wrong < math.inf:
            raise FormatError("the header describes no possible Deduplicator")
        made._stages = tuple(stages)
        return made

    def check(self) -> None:
        """Assert every invariant; for tests."""
        numbers = [stage.number for stage in self._stages]
        assert numbers == sorted(numbers)
        for stage in self._stages:
            stage.filter._check()
            assert 0 <= stage.measured_at <= stage.keys <= stage.filter.capacity
            goal = stage_goal(self.fpr, self.capacity, stage.number)
            assert goal is not None
            assert stage.filter.capacity == goal[0]


def _kind_in(data: Any) -> int:
    return int.from_bytes(bytes(data[12:16]), "little")


def _odds(rate: float) -> float:
    """Return the wrongly dropped rows that one kept row stands for."""
    return rate / (1.0 - rate) if rate < 1.0 else math.inf


def _at_least_one(rates: Sequence[float]) -> float:
    """Compute the chance of at least one of independent events, small ones without cancellation."""
    if any(rate >= 1.0 for rate in rates):
        return 1.0
    return -math.expm1(math.fsum(math.log1p(-rate) for rate in rates))


def _rows_before(filter_: BalancedBloomFilter, digests: Words, room: int, threads: int) -> int:
    """Return how many of the digests can be added without more than `room` new keys; at least one is."""
    candidates = np.flatnonzero(~filter_.contains_many(digests, digests=True, threads=threads))
    return len(digests) if len(candidates) <= room else int(candidates[room])


def _mark_rows(marks: Marks, rows: npt.NDArray[np.intp], added: Marks) -> int:
    """Mark `rows` as `added` says, up to the first that is not in, and the rows between them as repeats.

    Return how many rows are done. After each line the marks are right for all rows before the first without.
    """
    keys = count_in(added)
    done = len(marks) if keys == len(rows) else int(rows[keys])
    marks[rows[:keys]] = added[:keys]
    between = np.ones(done, dtype=np.bool_)
    between[rows[:keys]] = False
    marks[:done][between] = 0
    return done
