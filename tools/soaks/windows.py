"""Window filters beside an oracle that knows when every key was added last, through restarts and clock jumps.

The oracle has fingerprints, not keys: two keys with the same fingerprint are the same to the filter. So every
answer is compared, not a rate: a fingerprint added within the window must be found, one that is older than
the window and a step must not.
"""

from __future__ import annotations

import pickle
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins import WindowFilter
from evenbins.hashing import digest_many
from soaks.harness import Soak

__all__ = ["WindowSoak"]

_BATCH = 20_000
_NEVER = -(2**60)
Places = npt.NDArray[np.int64]


class WindowSoak(Soak):
    """A window of time, or of additions, of `keys` keys that come again, at most `batch` of them at once."""

    def __init__(
        self, rng: np.random.Generator, keys: int, fpr: float, steps: int, *, counted: bool,
        batch: int = _BATCH,
    ) -> None:  # fmt: skip
        super().__init__(rng)
        self.counted, self.steps, self.batch = counted, steps, batch
        self.window = keys if counted else 3_600_000_000  # microseconds
        self.clock = 1_700_000_000_000_000
        self.filter = WindowFilter(
            self.window if counted else timedelta(hours=1), keys, fpr, steps=steps, clock=self.read_clock,
            seed=int(rng.integers(2**63)),
        )  # fmt: skip
        self.keys = np.unique(rng.integers(-(2**63), 2**63, keys + keys // (2 if counted else 8)))
        total = self.filter._numbers.fingerprints
        digests = digest_many(self.keys, seed=self.filter.seed).tolist()
        found = np.array([each * total >> 64 for each in digests], dtype=np.uint64)
        self.place = np.unique(found, return_inverse=True)[1].ravel()  # of each key, that of its fingerprint
        self.last = np.full(int(self.place.max()) + 1, _NEVER)
        self.latest, self.additions = _NEVER, 0
        self.reads = 1.0

    def read_clock(self) -> float:
        """Return the seconds of the clock, within a microsecond."""
        return (self.clock + 0.5) / 1e6

    @property
    def now(self) -> int:
        """The time that the window counts; it never goes back."""
        return self.additions if self.counted else max(self.clock, self.latest)

    def ages(self, places: Places) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which fingerprints must be found now, and which must not."""
        age = self.now - self.last[places]
        return age <= self.window, age * self.steps >= self.window * (self.steps + 1)

    def step(self) -> int:
        """Move the clock, change something, and ask for some keys."""
        rng = self.rng
        self._move()
        choice = int(rng.integers(20))
        if choice == 0:
            done = self._restart()
        elif choice == 1 and self.batch == _BATCH:
            done = self._singly()
        else:
            done = self._add(int(10 ** rng.uniform(0, np.log10(self.batch))), threads=int(rng.integers(1, 3)))
        return done + self.ask(rng.integers(0, len(self.keys), int(rng.integers(1, _BATCH))))

    def _move(self) -> None:
        rng, length = self.rng, self.window // self.steps
        choice = int(rng.integers(100))
        if choice < 2:
            self.clock += int(rng.integers(0, 4 * self.window))
            self.done["long jumps"] += 1
        elif choice < 6:
            self.clock -= int(rng.integers(0, self.window))
            self.done["jumps back"] += 1
        elif choice < 30:
            self.clock += int(rng.integers(0, 3 * length))
        elif choice < 80:
            self.clock += int(rng.integers(0, length // 4 + 1))
        if self.clock < self.latest - self.window:  # else time stands still for too long
            self.clock = self.latest

    def _restart(self) -> int:
        match int(self.rng.integers(4)):
            case 0:
                self.filter = self.filter.copy()
            case 1:
                self.filter = pickle.loads(pickle.dumps(self.filter))
            case 2:
                self.filter = WindowFilter.from_bytes(self.filter.to_bytes())
            case _:
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "window"
                    self.filter.save(path)
                    self._move()
                    opened = WindowFilter.open(path)
                    opened.clock = self.read_clock
                    self.ask(self.rng.integers(0, len(self.keys), 1000), opened)
                    self.filter = WindowFilter.load(path)
        self._move()
        self.filter.clock = self.read_clock
        self.done["restarts"] += 1
        return 1

    def _singly(self) -> int:
        some = self.rng.integers(0, len(self.keys), 100)
        for key, place in zip(self.keys[some].tolist(), self.place[some].tolist(), strict=True):
            self.latest = max(self.latest, self.clock)
            young, old = self.ages(np.array([place]))
            new = self.filter.add_new(key)
            self.lose(bool((young & new).any() or (old & (not new)).any()), "wrong answers of add_new")
            self.last[place] = self.now
            self.additions += 1
            self.lose(key not in self.filter, "just added, missed")
        return 200

    def _add(self, count: int, threads: int) -> int:
        """Add keys of different fingerprints in bulk: of equal ones only the first would be new."""
        some = self.rng.integers(0, len(self.keys), count)
        places, first = np.unique(self.place[some], return_index=True)
        some = some[first]
        self.latest = max(self.latest, self.clock)
        if self.rng.integers(2) or self.counted:
            self.filter.add_many(self.keys[some], threads=threads)
        else:
            young, old = self.ages(places)
            new = self.filter.add_new_many(self.keys[some], threads=threads)
            self.lose((young & new).sum(), "within the window, and new")
            self.lose((old & ~new).sum(), "after window and step, and not new")
        self.last[places] = self.additions + np.arange(len(places)) if self.counted else self.now
        self.additions += len(places)
        return len(places)

    def ask(self, some: Places, made: Any = None) -> int:
        """Look for keys."""
        found = (self.filter if made is None else made).contains_many(
            self.keys[some], threads=int(self.rng.integers(1, 3))
        )
        young, old = self.ages(self.place[some])
        self.lose((young & ~found).sum(), "within the window, missed")
        self.lose((old & found).sum(), "after window and step, found")
        return len(found)

    def audit(self) -> None:
        """Ask for all keys, and recount."""
        self.sound(self.filter)
        self.ask(np.arange(len(self.keys)))
        stats = self.filter.stats()
        young, old = self.ages(np.arange(len(self.last)))
        self.holds(
            young.sum() <= stats.keys <= (~old).sum(), f"stats().keys {stats.keys}, {young.sum()} young"
        )
        self.reads = max(self.reads, stats.reads)
        self.holds(stats.reads <= 1.1, f"{stats.reads:.3f} reads")
