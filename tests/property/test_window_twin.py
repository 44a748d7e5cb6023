"""The window filter against its twin and a dictionary of last additions, through any history of the clock.

Filters have one block or two, so that lines overflow, runs come back, and the overflow list fills up. After
every step the bytes are the twin's. The dictionary knows nothing of steps: a key added within the window must
be found; one older than the window and a step must be found only where the twin, by fingerprints, finds it.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sizes import size

from evenbins import FilterFullError, WindowFilter
from evenbins.filters import plan_of_core
from reference import ReferenceWindow

KEYS = st.integers(0, 400)
LISTS = st.lists(KEYS, max_size=60) | st.builds(range, st.integers(0, 300), st.integers(300, 700))
ALL = range(0, 750, 3)


@st.composite
def cores(draw: st.DrawFn, *, counted: int) -> tuple[int, ...]:
    steps = draw(st.sampled_from([1, 2, 3, 8, 8, 14, 30]))
    most = 28 - (2 * steps + 2).bit_length()
    remainder = draw(
        st.sampled_from([each for each in (4, 5, 8, 11, 13, 16, 19, 20, 23, 25) if each <= most])
    )
    group = draw(st.integers(1, 2))
    lines = 16 * group * draw(st.integers(1, 2))
    rest, limit = draw(st.sampled_from([0, 5, 64])), draw(st.sampled_from([200, 1500, 10_000]))
    window = draw(st.sampled_from([30, 100, 777, 5000]))
    return lines, remainder, draw(st.integers(32, 64)), group, rest, limit, steps, window, counted


class WindowMachine(RuleBasedStateMachine):
    """A filter, its twin, and when each key was added last."""

    counted = 0

    @initialize(data=st.data(), seed=st.integers(0, 2**64 - 1))
    def make(self, data: st.DataObject, seed: int) -> None:
        core = data.draw(cores(counted=self.counted))
        plan: Any = plan_of_core("window", core, capacity=100, seed=seed, hashing="lanes")
        self.filter = WindowFilter.from_plan(plan)
        self.filter.clock = self.read_clock
        self.twin = ReferenceWindow(*core, seed=seed)  # type: ignore[misc]
        self.clock = 10_000  # microseconds
        self.latest = self.additions = 0
        self.added: dict[int, int] = {}

    def read_clock(self) -> float:
        return (self.clock + 0.5) / 1e6

    @property
    def now(self) -> int:
        """The time that the window counts: it never goes back."""
        return self.additions if self.counted else max(self.clock, self.latest)

    def note(self, keys: Any) -> None:
        self.latest = max(self.latest, self.clock) if len(keys) else self.latest
        for key in keys:
            self.added[key] = self.now
            self.additions += 1

    def add_to_twin(self, keys: Any) -> list[bool]:
        self.twin.clock = self.clock
        found = []
        for key in keys:
            try:
                found.append(self.twin.add_new(key))
            except OverflowError:
                break
        return found

    @rule(jump=st.sampled_from([1, 3, 10, 12, 40, 90, 100, 110, 200, 600, 5000, 100_000, -1, -50, -20_000]))
    def move_clock(self, jump: int) -> None:
        self.clock += jump

    @rule(fraction=st.integers(0, 40))
    def move_clock_by_steps(self, fraction: int) -> None:
        self.clock += self.twin.shape.window * fraction // (4 * self.twin.shape.steps)

    @rule(keys=st.lists(KEYS, max_size=20))
    def add_each(self, keys: list[int]) -> None:
        found = self.add_to_twin(keys)
        for key, is_new in zip(keys, found, strict=False):
            assert self.filter.add_new(key) is is_new
        if len(found) < len(keys):
            with pytest.raises(FilterFullError):
                self.filter.add(keys[len(found)])
        self.note(keys[: len(found)])

    @rule(keys=LISTS, threads=st.sampled_from([1, 2]), as_array=st.booleans(), new=st.booleans())
    def add_many(self, keys: Any, threads: int, as_array: bool, new: bool) -> None:
        before = self.filter.copy()
        found = self.add_to_twin(keys)
        given = np.array(keys, np.int64) if as_array else list(keys)
        call = self.filter.add_new_many if new else self.filter.add_many
        if len(found) == len(keys):
            answers: Any = call(given, threads=threads)
            assert not new or answers.tolist() == found
        else:  # a bulk call sweeps its lines first, so it may stop later: as the same keys one by one
            self.filter = before
            for key in list(keys)[: len(found)]:
                self.filter.add(key)
            with pytest.raises(FilterFullError):
                self.filter.add_many(list(keys)[len(found) :])
            with pytest.raises(FilterFullError):
                self.filter.add(keys[len(found)])
        self.note(list(keys)[: len(found)])

    @rule(way=st.sampled_from(["pickle", "bytes", "copy"]), later=st.sampled_from([0, 0, 25, 10_000]))
    def store(self, way: str, later: int) -> None:
        """A restart: the content ages by what the clock says has passed."""
        data = self.filter.to_bytes()
        if way == "pickle":
            self.filter = pickle.loads(pickle.dumps(self.filter))
        elif way == "bytes":
            self.filter = WindowFilter.from_bytes(data)
        else:
            self.filter = self.filter.copy()
        assert self.filter.to_bytes() == data
        self.filter.clock = self.read_clock
        self.clock += later

    @rule()
    def clear(self) -> None:
        self.filter.clear()
        self.twin.forget()
        self.added.clear()
        self.additions = 0
        self.latest = -(10**9)

    @invariant()
    def the_bytes_are_the_twins(self) -> None:
        assert bytes(memoryview(self.filter)) == self.twin.payload()
        self.filter._check()
        self.twin.check()

    @invariant()
    def answers_are_those_of_the_last_additions(self) -> None:
        self.twin.clock = self.clock
        before = bytes(memoryview(self.filter))
        found = self.filter.contains_many(ALL)
        assert found.tolist() == [key in self.twin for key in ALL]
        assert [key in self.filter for key in ALL[::7]] == found.tolist()[::7]
        core, now = self.twin.shape, self.now
        within = [key for key, then in self.added.items() if now - then <= core.window]
        assert self.filter.contains_many(within).all()
        live: set[Any] = set()
        for key, then in self.added.items():
            line, element = self.twin.place(self.digest(key))
            if now - then < core.window + core.window / core.steps:
                live.add((id(line), element))
        for key, answer in zip(ALL, found.tolist(), strict=True):
            line, element = self.twin.place(self.digest(key))
            assert not answer or (id(line), element) in live
        assert bytes(memoryview(self.filter)) == before  # looking changes nothing
        stats = self.filter.stats()
        assert (stats.keys, stats.keys + stats.expired) == (self.twin.set_bits(), self.twin.slots)
        assert sum(stats.ages) == stats.keys

    def digest(self, key: int) -> int:
        from reference.keys import digest

        return digest(key, self.twin.seed)


class CountedMachine(WindowMachine):
    """The same for windows that count additions."""

    counted = 1


@pytest.mark.parametrize("machine", [WindowMachine, CountedMachine])
def test_any_history_leaves_the_bytes_of_the_twin(machine: type[WindowMachine]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=size(15, 150), stateful_step_count=15, deadline=None)
    )
