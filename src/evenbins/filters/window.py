"""A filter that forgets: a key is found for a window after its last addition, then no longer.

    add, add_new   store the key's fingerprint with the present time, or renew its time
    in             has the key been added within the window? Changes nothing
    window         a timedelta, or a number of additions

    ├───────────────── window, 8 steps ─────────────────┤ step │
    added                                        always found  │ gone, except at the false-positive rate

What to know first:

- Time is the clock's. If it jumps forward, keys expire that much earlier. If it jumps back, time stands still
  until the clock has caught up: nothing expires early, and nothing expires. After a jump far forward and back
  call `clear`.
- `capacity` is the number of *different* keys in a window. The filter has slots for those of one or two steps
  more, and raises `FilterFullError` when more come; it never drops a key before its time.
- A file has the step of its last addition by the clock. When it is loaded, its keys have aged by what the
  clock says has passed. So use a wall clock (`time.time`) for filters that are saved.

The keys are the fingerprints of a `FingerprintFilter`, and one cache line is read for a look-up. The bytes
follow from the keys and the steps of their additions: batches and threads leave no trace, as long as there is
room. theory/window.py predicts how many keys are held and found.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn, Self, SupportsFloat, SupportsIndex

import numpy as np

from evenbins import _arguments as arguments
from evenbins.filters.base import BaseFilter
from evenbins.filters.fingerprint_levels import level_rows, measured_levels
from evenbins.filters.fingerprint_plan import FingerprintCore, FingerprintPlan
from evenbins.filters.plan import OF_CORE, FilterStats
from evenbins.structure import refuse_damaged
from evenbins.theory import fingerprint_design
from evenbins.theory import window as theory
from evenbins.theory.fingerprint import fpr as fpr_of

__all__ = ["WindowCore", "WindowFilter", "WindowPlan", "WindowStats", "plan_window"]

MAX_STEPS = 1000
MAX_TIME = 2**56
_MICROSECOND = timedelta(microseconds=1)


class WindowCore(NamedTuple):
    """The integers of a window filter.

    Attributes
    ----------
    lines : lines of level 1
    remainder : bits of a remainder, without the age
    quotients : quotients of a line of level 1
    group : lines of level 1 for each line of level 2
    rest : fingerprints that the overflow list holds
    slots_limit : fingerprints that the filter holds, expired ones included
    steps : steps of a window
    window : microseconds, or additions
    counted : 1 if the window counts additions
    """

    lines: int
    remainder: int
    quotients: int
    group: int
    rest: int
    slots_limit: int
    steps: int
    window: int
    counted: int

    @property
    def slot_bits(self) -> int:
        """Bits of a slot: remainder and age."""
        return self.remainder + theory.age_bits(self.steps)

    @property
    def inner(self) -> FingerprintCore:
        """The integers of a set of fingerprints with the same lines, whose remainders include the age."""
        return FingerprintCore(self.lines, self.slot_bits, *self[2:6], 1, 0)

    @property
    def fingerprints(self) -> int:
        """The number of fingerprints, M."""
        return self.lines * self.quotients << self.remainder


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WindowPlan(FingerprintPlan):
    """The plan of a window filter, with `keys` different keys in a window, which come evenly.

    Attributes
    ----------
    window : a timedelta, or a number of additions
    steps : steps of a window
    ages : keys that were added 0, 1, … steps ago, in the middle of a step
    expired : expired fingerprints that have not been swept yet, in the mean
    fpr : false-positive rate at the end of a step, when the most keys are found
    remainder_bits : of a fingerprint; a slot has those of an age as well
    semantics : "set": a fingerprint is stored once
    """

    _core_names = WindowCore._fields
    _in_one_line = ("policy", "window", "keys", "bits_per_key", "fpr", "reads", "miss_reads", "nbytes")

    window: timedelta | int = field(compare=False)
    steps: int = field(compare=False)
    ages: tuple[float, ...] = field(compare=False)
    expired: float = field(compare=False)
    core: WindowCore  # type: ignore[assignment]

    @classmethod
    def of_core(cls, policy: str, core: Sequence[int], keys: int, seed: int, hashing: str) -> WindowPlan:
        """Check the integers of a core and predict a filter with them."""
        steps, length, counted = core[6:]
        steps = arguments.integer("core[6] (steps)", steps, 1, MAX_STEPS, OF_CORE)
        length = arguments.integer("core[7] (window)", length, steps, MAX_TIME, OF_CORE)
        counted = arguments.integer("core[8] (counted)", counted, 0, 1, OF_CORE)
        most = fingerprint_design.MOST_REMAINDER - theory.age_bits(steps)
        arguments.integer("core[1] (remainder)", core[1], fingerprint_design.LEAST_REMAINDER, most, OF_CORE)
        checked = WindowCore(*core)
        found = theory.most_found(keys, steps)
        inner = FingerprintPlan.of_core("fingerprint", checked.inner, max(round(found), 1), seed, hashing)
        same = {each.name: getattr(inner, each.name) for each in fields(inner)}
        other = {
            "keys": keys,
            "policy": "window",
            "bits_per_key": 8 * inner.nbytes / keys,
            "fpr": fpr_of(found, checked.fingerprints),
            "remainder_bits": checked.remainder,
            "max_capacity": keys,
            "core": checked,
        }
        return cls(
            **(same | other),
            window=length if counted else timedelta(microseconds=length),
            steps=steps,
            ages=theory.ages(keys, steps),
            expired=theory.expired(checked.lines),
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WindowStats(FilterStats):
    """What a window filter measures on itself at the present time; `keys`, `expired` and `fpr` are exact.

    Attributes
    ----------
    keys : fingerprints that are found
    expired : fingerprints that have expired, and whose lines have not been swept yet
    ages : fingerprints that are found, by the steps since their keys were added: 0, 1, … steps
    fpr : those that are found, over all that there could be
    shares : of all fingerprints that are in level 1, level 2, level 3 and the overflow list
    overflow : share of the fingerprints on the overflow list
    fill : share of the slots of level 1 in use
    loads : for levels 1, 2 and 3, how many lines hold 0, 1, 2, … fingerprints
    """

    expired: int
    ages: tuple[int, ...]
    shares: tuple[float, ...]
    overflow: float
    loads: tuple[tuple[int, ...], ...]


def plan_window(
    window: timedelta | SupportsIndex, capacity: SupportsIndex | SupportsFloat, fpr: float | None = None, *,
    bits_per_key: float | None = None, steps: int = 8, seed: int = 0,
) -> WindowPlan:  # fmt: skip
    """Plan a window filter: the fewest bits for `fpr`, or the lowest rate for `bits_per_key`.

    Parameters and errors are those of `WindowFilter`.

    Examples
    --------
    >>> plan = plan_window(timedelta(hours=1), 10_000_000, fpr=1e-3)
    >>> f"{plan.bits_per_key:.1f} bits per key of a window, {plan.reads:.2f} reads"
    '25.5 bits per key of a window, 1.01 reads'
    """
    keys = arguments.capacity(capacity)
    rate, per_key = arguments.goal(fpr, bits_per_key)
    steps = arguments.integer("steps", steps, 1, MAX_STEPS, "Pass the number of steps of a window")
    length, counted = length_of(window, steps)
    seed = arguments.seed(seed)
    if per_key is None:
        shape = theory.fewest_bits(keys, rate, steps, counted=counted)
        if shape is None:
            remedy = "Pass a higher rate, or fewer steps: ages take bits of a fingerprint"
            raise arguments.error("fpr", f"higher, for {keys} keys and {steps} steps", rate, remedy)
    else:
        shape = theory.lowest_rate(keys, per_key * keys, steps, counted=counted)
        if shape is None:
            smallest = theory.fewest_bits(keys, 0.5, steps, counted=counted)
            assert smallest is not None
            least = f"at least {8 * smallest.nbytes / keys:.4g} for {keys} keys"
            raise arguments.error("bits_per_key", least, per_key, "Pass more bits, or fewer steps")
    arguments.check_total(8 * shape.nbytes, "fpr" if per_key is None else "bits_per_key", per_key or rate)
    lines, slot_bits, quotients, group, rest = shape
    limit = fingerprint_design.copies_limit(theory.held(keys, steps, counted=counted))
    core = WindowCore(
        lines, slot_bits - theory.age_bits(steps), quotients, group, rest, limit, steps, length, int(counted)
    )
    return WindowPlan.of_core("window", core, keys, seed, "lanes")


def _plan_of_additions(
    capacity: SupportsIndex | SupportsFloat, fpr: float | None = None, *, bits_per_key: float | None = None,
    steps: int = 8, seed: int = 0,
) -> WindowPlan:  # fmt: skip
    """Plan a filter of the last `capacity` additions."""
    window = max(arguments.capacity(capacity), steps)
    return plan_window(window, capacity, fpr, bits_per_key=bits_per_key, steps=steps, seed=seed)


def length_of(window: object, steps: int) -> tuple[int, bool]:
    """Return the length of a window in microseconds, or in additions, and whether it is the latter."""
    remedy = "Pass a timedelta such as timedelta(hours=1), or a number of additions"
    if isinstance(window, timedelta):
        length = window // _MICROSECOND
        rule = f"a time of at least {steps} microseconds ({steps} steps), and at most 2283 years"
        if not steps <= length <= MAX_TIME:
            raise arguments.error("window", rule, window, remedy)
        return length, False
    rule = f"a timedelta, or a number of additions of at least {steps} (its steps), and at most 2**48"
    return arguments.integer("window", window, steps, arguments.MAX_CAPACITY, remedy, rule=rule), True


class WindowFilter(BaseFilter):
    """The window filter: keys expire by themselves, one memory read per look-up.

    A key added within the window is always found; after the window and one step of it the key is gone, except
    at the false-positive rate. `add` and `add_new` renew a key, `in` does not.

    Parameters
    ----------
    window
        How long a key is found after its last addition: a timedelta, or a number of additions to the filter
        (every key of `add`, `add_new` and the bulk calls is one, whether or not it is new).
    capacity
        Number of different keys in a window. There are slots for the keys of one step more (two steps, for a
        window of time), then the filter raises `FilterFullError`: no key is dropped before its time.
    fpr, bits_per_key, seed
        As for `BloomFilter`; bits for each of the `capacity` keys.
    steps
        Into how many steps the window is divided, 1 to 1000. With more of them keys are gone sooner after the
        window, an age takes more bits, and lines are swept more often.
    clock
        Called without arguments for the time in seconds; not for a window of additions. It is read once for a
        call, or for each batch of an iterable. Files need one that goes on between processes.

    Examples
    --------
    >>> from datetime import timedelta
    >>> now = 0.0
    >>> f = WindowFilter(timedelta(minutes=10), 1000, fpr=1e-6, clock=lambda: now)
    >>> f.add("apple")
    >>> now = 600.0
    >>> "apple" in f, f.add_new("pear"), f.add_new("pear")
    (True, True, False)
    >>> now = 600.0 + 75.0  # one step more
    >>> "apple" in f, "pear" in f
    (False, True)
    >>> g = WindowFilter(100, 100, fpr=1e-6)
    >>> g.add_many(range(1000))
    >>> bool(g.contains_many(range(900, 1000)).all()), int(g.contains_many(range(800)).sum())
    (True, 0)
    """

    __slots__ = ()
    _kind = 20
    _plan_class = WindowPlan
    _planner = staticmethod(_plan_of_additions)

    def __init__(
        self, window: timedelta | SupportsIndex, capacity: SupportsIndex | SupportsFloat,
        fpr: float | None = None, *, bits_per_key: float | None = None, steps: int = 8,
        clock: Callable[[], float] = time.time, seed: int = 0,
    ) -> None:  # fmt: skip
        plan = plan_window(window, capacity, fpr, bits_per_key=bits_per_key, steps=steps, seed=seed)
        checked = _checked_clock(clock)
        self._build(plan)
        self._clock = checked

    @property
    def _numbers(self) -> WindowCore:
        return WindowCore(*self._core)

    @property
    def window(self) -> timedelta | int:
        """How long a key is found after its last addition: a timedelta, or a number of additions."""
        core = self._numbers
        return core.window if core.counted else timedelta(microseconds=core.window)

    @property
    def steps(self) -> int:
        """Into how many steps the window is divided."""
        return self._numbers.steps

    @property
    def clock(self) -> Callable[[], float]:
        """What is called for the time in seconds. A filter that was loaded has `time.time`; it can be set."""
        clock: Any = self._clock
        return time.time if clock is None else clock

    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None:
        self._clock = _checked_clock(clock)

    def _shown(self) -> list[tuple[str, object]]:
        plan = self.plan
        names = ("fpr", "bits_per_key", "window", "steps", "nbytes")
        return [("capacity", plan.keys), *((name, getattr(plan, name)) for name in names)]

    def copy(self) -> Self:
        """Make an independent copy, with the same clock; it can be changed even if this one is read-only."""
        twin = super().copy()
        twin._clock = self._clock
        return twin

    def _refuse_damaged(self) -> None:
        refuse_damaged(self)  # a copy is swept, and moves the fingerprints that it holds

    def _count_added(self, count: int) -> None:
        """Do nothing: the filter raises FilterFullError before it is overfilled."""

    def stats(self) -> WindowStats:
        """Measure this very filter at the present time, in two passes over its lines."""
        self._tell_time()
        core = self._numbers
        since = np.array(self._level_histogram(3), dtype=np.int64).reshape(-1, 3)
        found = since[since[:, 1] == 1]
        ages = np.bincount(found[:, 0], found[:, 2], core.steps + 1).astype(int)
        _, levels = measured_levels(level_rows(self), self._state()[2], core.inner.shape)
        return WindowStats(
            keys=int(ages.sum()),
            expired=int(since[:, 2].sum() - ages.sum()),
            ages=tuple(ages.tolist()),
            fpr=float(ages.sum()) / core.fingerprints,
            nbytes=self.nbytes,
            bits_per_key=8 * self.nbytes / self._capacity,
            **levels,
        )

    def approx_items(self) -> float:
        """Estimate the number of distinct keys that are found, from the number of their fingerprints."""
        self._tell_time()
        fingerprints = self._numbers.fingerprints
        return -fingerprints * math.log1p(-self._set_bits() / fingerprints)

    def _is_empty(self) -> bool:
        self._tell_time()
        return self._set_bits() == 0

    # --- what it refuses ---------------------------------------------------------------------------

    def __or__(self, other: object) -> NoReturn:
        raise TypeError(_NO_MERGE)

    __ior__ = __or__

    def union(self, *others: Self) -> NoReturn:
        """Raise TypeError: two filters may have seen different times."""
        raise TypeError(_NO_MERGE)

    def approx_intersection(self, other: Self) -> NoReturn:
        """Raise TypeError: it would need a union."""
        raise TypeError("a WindowFilter cannot estimate an overlap: count the keys of one that the other has")

    def _check(self) -> None:
        super()._check()
        slots, _, in_rest, *_ = self._state()
        assert slots <= self._numbers.slots_limit
        assert in_rest <= self._numbers.rest


_NO_MERGE = (
    "a WindowFilter cannot be merged: the two may have seen different times, and a union might not fit. Ask "
    "both filters, or add the keys of both to one"
)


def _checked_clock(clock: Any) -> Callable[[], float] | None:
    """Return the clock as the core takes it: None for the system's."""
    if not callable(clock):
        remedy = "Pass time.time, or a function without arguments"
        raise arguments.type_error("clock", "a function that returns seconds", clock, remedy)
    return None if clock is time.time else clock
