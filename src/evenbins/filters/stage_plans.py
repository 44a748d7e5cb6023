"""Plans of the stages of growing filters, made in advance: the key that begins a stage finds its plan ready.

    keys of the newest stage   0 ──────────── half ─┬─┬─┬─┬─┬─┬─┬─┬─┬─ full
    work on the next plan                           slices of a millisecond

A plan takes up to a tenth of a second. Single keys that go into the second half of a stage share it: a
thread works on the plan, and pauses after each slice; every so many keys, `add` lets it work for another one.
It does not compete with its process for the interpreter meanwhile, and goes on by itself if no key comes.
Bulk calls wait for the whole plan, before they lock the filter.

Plans are kept, for all growing filters of the process with these arguments: they depend on nothing else. A
failure to begin a thread, or in it, is no failure of the filter: whoever needs the plan then makes it.

Processes: a child made by `fork` has the plans, and none of the work under way.

Tried and dropped: a thread that works freely (5 ms pass before the interpreter changes threads, and a stage
of 65,536 keys is full after as many); planning all stages in the constructor (8 plans before the first key);
queue.SimpleQueue for the two tokens (in Python 3.11 its `get` may wait for ever in spite of a timeout, if
another thread takes the item).
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from dataclasses import replace
from typing import NamedTuple

from evenbins.errors import ArgumentError
from evenbins.filters.plan import FilterPlan, planner_of

__all__ = ["LEAST_FINGERPRINT_RATE", "StageRequest", "keys_of_stage"]

_SLICE = 0.001  # seconds of work between two pauses
_PATIENCE = 0.002  # seconds that a key waits for the end of a slice
_PAUSE = 0.05  # seconds without a key after which the thread goes on by itself
_STOPS = 512  # slices in the second half of a stage, at most
_MOST_PLANS = 1024
_DOUBLINGS = 8  # of a stage that grows by itself, at most
LEAST_FINGERPRINT_RATE = 5e-10
"""Of a stage of fingerprints: below, remainders are not long enough, and memory grows as the rate falls."""

_plans: dict[StageRequest, FilterPlan] = {}
_under_way: dict[StageRequest, _Planning] = {}


def keys_of_stage(policy: str, keys: int, fpr: float) -> int:
    """Return the keys that a stage holds in the end, of a policy whose stages begin with so many.

    Examples
    --------
    >>> [keys_of_stage("fingerprint", 1000, fpr) for fpr in (1e-3, 1e-8, 1e-9)]
    [256000, 16000, 2000]
    """
    return keys << _doublings(fpr) if policy == "fingerprint" else keys


def _doublings(fpr: float) -> int:
    """Return how often a stage may double: each takes a bit of the remainders, which have few to spare."""
    return max(min(_DOUBLINGS, math.floor(math.log2(fpr / LEAST_FINGERPRINT_RATE))), 0)


class StageRequest(NamedTuple):
    """What a stage is planned for; its seed is no part of a plan's geometry."""

    policy: str
    keys: int
    fpr: float
    block_bits: int

    def plan(self, seed: int) -> FilterPlan:
        """Return the plan with a seed: the one kept, or the one under way when it is ready, or a new one."""
        planning = _under_way.get(self)
        if planning is not None and self not in _plans:
            planning.finish()
        plan = _plans.get(self)
        return replace(self.make() if plan is None else plan, seed=seed)

    def is_met_by(self, keys: int) -> bool:
        """Return whether a stage holds the keys that it should: one that doubles by itself may hold more."""
        return 0 <= keys - self.keys <= (self.keys // 100 if self.policy == "fingerprint" else 0)

    def is_ready(self) -> bool:
        """Return whether the plan is kept."""
        return self in _plans

    def plan_some(self, done: int, size: int) -> int:
        """Work on the plan for a slice; return at how many keys of the stage before, of `size`, to go on.

        Parameters
        ----------
        done, size
            Keys of the stage before this one: how many it has, and how many it was planned for.
        """
        if self not in _plans and not self._begin().advance():
            return done + max(size // (2 * _STOPS), 1)
        return size - 1

    def _begin(self) -> _Planning:
        planning = _under_way.get(self)
        if planning is None:
            fresh = _Planning(self)
            planning = _under_way.setdefault(self, fresh)
            if planning is fresh:
                planning.start()
        return planning

    def make(self) -> FilterPlan:
        """Make the plan anew, in this thread, and keep it."""
        if self.policy == "fingerprint":
            plan = self._growing_plan()
        else:
            block_bits = None if self.policy == "standard" else self.block_bits
            plan = planner_of(self.policy)(self.keys, fpr=self.fpr, block_bits=block_bits)
        while len(_plans) >= _MOST_PLANS:
            with contextlib.suppress(KeyError, StopIteration, RuntimeError):  # another thread was there
                del _plans[next(iter(_plans))]
        return _plans.setdefault(self, plan)

    def _growing_plan(self) -> FilterPlan:
        """Return the plan of a filter that grows to its keys by itself, from as few of them as it can."""
        planner = planner_of(self.policy)
        for doublings in range(_doublings(self.fpr), 0, -1):
            with contextlib.suppress(ArgumentError):
                first = max(self.keys >> doublings, 1)
                return planner(first, fpr=self.fpr, max_capacity=self.keys, semantics="set")
        return planner(self.keys, fpr=self.fpr, semantics="set")


class _Token:
    """One token, or none: a thread gives it, another one takes it."""

    def __init__(self) -> None:
        self._absent = threading.Lock()
        self._absent.acquire()

    def give(self) -> None:
        """Put the token there; nothing changes if it is there."""
        with contextlib.suppress(RuntimeError):
            self._absent.release()

    def take(self, seconds: float) -> None:
        """Wait for the token, or until the time is over."""
        self._absent.acquire(timeout=seconds)


class _Planning:
    """A plan that a thread makes, slice by slice."""

    def __init__(self, request: StageRequest) -> None:
        self._request = request
        self._continue, self._paused = _Token(), _Token()
        self._ended = threading.Event()
        self._hurried = False
        self._slice_ends = 0.0

    def start(self) -> None:
        """Begin the thread; without one, the plan is made by whoever needs it."""
        thread = threading.Thread(target=self._work, name="evenbins-stage-plan", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads
            self._end()
        except (
            KeyError
        ) as error:  # CPython's: an interrupt came while start() waited for the thread, which runs
            raise (error.__context__ or error) from None

    def advance(self) -> bool:
        """Let the thread work for a slice; return whether it has ended."""
        if not self._ended.is_set():
            self._paused.take(0)  # of a pause that nobody waited for
            self._continue.give()
            self._paused.take(_PATIENCE)
        return self._ended.is_set()

    def finish(self) -> None:
        """Wait for the end of the thread."""
        self._hurried = True
        self._continue.give()
        while not self._ended.wait(0.1):
            if sys.is_finalizing():  # the thread gets the interpreter no more
                return

    def _work(self) -> None:
        profiled = sys.getprofile() is not None  # by somebody else: then there are no pauses
        try:
            self._slice_ends = time.perf_counter() + _SLICE
            if not profiled:
                sys.setprofile(self._pause_after_slice)
            with contextlib.suppress(Exception):  # whoever needs the plan makes it, and raises
                self._request.make()
        finally:
            if not profiled:
                sys.setprofile(None)
            self._end()

    def _pause_after_slice(self, *_: object) -> None:
        """Pause if the slice is over; Python calls this with every function that the thread calls."""
        if time.perf_counter() < self._slice_ends or self._hurried:
            return
        self._paused.give()
        self._continue.take(_PAUSE)
        self._slice_ends = time.perf_counter() + _SLICE

    def _end(self) -> None:
        _under_way.pop(self._request, None)
        self._ended.set()
        self._paused.give()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_under_way.clear)
