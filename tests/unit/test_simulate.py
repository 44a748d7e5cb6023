"""The simulator of the balancing schemes: its twin, its exact expectations, its promises.

The twin below is the same scheme in plain Python, with the generators from their published definition; the
simulator must give its numbers exactly. Expectations are exact too: a bin of one table is hit by
Binomial(keys, 1/bins) keys, whatever the scheme, and the rest follows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import reference
from evenbins import _study
from evenbins.study.papers.simulation import Simulated, simulate, split

MISS = 1e-6
WORD = 2**64


# --- the twin --------------------------------------------------------------------------------------------


def rotated(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) % WORD


@dataclass
class Xoshiro:
    """xoshiro256++, from the definition of Blackman and Vigna."""

    s: list[int]

    @classmethod
    def seeded(cls, seed: int) -> Xoshiro:
        return cls([reference.keys.splitmix(seed, i) for i in range(4)])

    def __call__(self) -> int:
        s = self.s
        out = (rotated((s[0] + s[3]) % WORD, 23) + s[0]) % WORD
        shifted = (s[1] << 17) % WORD
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = rotated(s[3], 45)
        return out


@dataclass
class Twin:
    bins: list[int]
    thresholds: list[int]
    coin: int
    choices: int
    seed: int
    trial: int
    budget: float = float("inf")
    overflow_limit: float = float("inf")
    spill: str = "random"
    overflow: int = 0
    spilled: int = 0
    accesses: int = 0
    loads: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        own = reference.keys.splitmix(self.seed, self.trial)
        self.first, self.rest = (Xoshiro.seeded(reference.keys.splitmix(own, i)) for i in range(2))
        self.loads = [[0] * each for each in self.bins]

    def table(self, level: int) -> int:
        return level if len(self.bins) > 1 else 0

    def draw(self, level: int) -> int:
        return self.rest() * self.bins[self.table(level)] // WORD

    def insert(self) -> None:
        at = [self.first() * self.bins[0] // WORD]
        read = self.accesses < self.budget
        for level in range(self.choices if read else 0):
            if level:
                at.append(self.draw(level))
            self.accesses += 1
            table = self.table(level)
            load, threshold = self.loads[table][at[level]], self.thresholds[table]
            if load < threshold or (load == threshold and self.rest() >> 32 < self.coin):
                self.loads[table][at[level]] += 1
                return
        if self.overflow < self.overflow_limit:
            self.overflow += 1
            return
        self.accesses += 0 if read else self.choices
        at += [self.draw(level) for level in range(len(at), self.choices)]
        if self.spill == "random":
            level = self.rest() * self.choices // WORD
        else:
            level = min(range(self.choices), key=lambda j: self.loads[self.table(j)][at[j]])
        self.loads[self.table(level)][at[level]] += 1
        self.spilled += 1


def test_the_twins_generator_gives_the_published_numbers() -> None:
    """The first outputs for the state 1, 2, 3, 4, as in the test suites of other implementations."""
    generator = Xoshiro([1, 2, 3, 4])
    assert [generator() for _ in range(5)] == [
        41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "arguments"),
    [
        ("plain", {"bins": 50}),
        ("single", {"bins": 50, "thresholds": 2, "coin": 0.5}),
        ("single", {"bins": 50, "thresholds": 0, "coin": 1.0}),
        ("single", {"bins": 50, "thresholds": 300, "coin": 0.5}),
        ("sequential", {"bins": 50, "thresholds": 3, "coin": 0.25, "choices": 3}),
        ("sequential", {"bins": 50, "thresholds": 3, "coin": 0.25, "choices": 3, "budget": 210}),
        ("sequential", {"bins": 50, "thresholds": 3, "coin": 0.0, "choices": 8, "budget": 210,
                        "overflow_limit": 5}),
        ("multilevel", {"bins": [40, 8, 2], "thresholds": 3, "coin": 0.75}),
        ("multilevel", {"bins": [40, 8, 2], "thresholds": [3, 2, 1], "coin": 0.75, "overflow_limit": 7}),
        ("multilevel", {"bins": [40, 8, 2], "thresholds": [3, 2, 1], "overflow_limit": 0, "spill": "least"}),
        ("multilevel", {"bins": [40, 8, 2], "thresholds": 3, "budget": 180, "overflow_limit": 9,
                        "spill": "least"}),
    ],
)  # fmt: skip
def test_the_simulator_is_its_twin(policy: str, arguments: dict[str, Any]) -> None:
    checkpoints = [0, 1, 63, 64, 65, 150, 200]
    seen = simulate(policy, keys=200, checkpoints=checkpoints, trials=3, seed=9, threads=2, **arguments)
    given = {"thresholds": 65534, "coin": 0.0, "choices": len(seen.bins)} | arguments
    thresholds = given["thresholds"]
    given |= {
        "bins": list(seen.bins),
        "coin": round(given["coin"] * 2**32),
        "thresholds": thresholds if isinstance(thresholds, list) else [thresholds] * len(seen.bins),
    }
    for trial in range(3):
        twin = Twin(**given, seed=9, trial=trial)
        done = 0
        for look, keys in enumerate(checkpoints):
            for _ in range(keys - done):
                twin.insert()
            done = keys
            most = seen.loads.shape[-1]
            counted = [np.bincount(table, minlength=most).tolist() for table in twin.loads]
            assert seen.loads[trial, look].tolist() == counted
            assert seen.overflow[trial, look] == twin.overflow
            assert seen.spilled[trial, look] == twin.spilled
            assert seen.accesses[trial, look] == twin.accesses


# --- exact expectations ----------------------------------------------------------------------------------


def expected(keys: int, bins: int, threshold: int, coin: float) -> np.ndarray:
    """Chances that a bin holds 0 ... threshold + 1 keys, when each of `keys` hits it with chance 1/bins."""
    hits = np.arange(0, min(keys, 400) + 1)
    chance = binom.pmf(hits, keys, 1 / bins)
    below = chance[:threshold]
    at = float(chance[threshold:] @ (1 - coin) ** (hits[threshold:] - threshold))
    return np.array([*below, at, 1 - below.sum() - at])


def assert_within(counts: np.ndarray, samples: int, chances: np.ndarray, slack: int = 0) -> None:
    """Assert that each count lies in the two-sided binomial interval that it misses once in a million.

    Bins of one trial depend on each other negatively, so that counts vary less: the interval is a safe one.
    """
    assert len(counts) == len(chances)
    for count, chance in zip(counts.tolist(), chances.tolist(), strict=True):
        low, high = binom.ppf([MISS / 2, 1 - MISS / 2], samples, min(max(chance, 0.0), 1.0))
        assert low - slack <= count <= high + slack


@pytest.mark.parametrize(("threshold", "coin"), [(2, 0.5), (0, 0.3), (4, 0.0), (3, 1.0)])
def test_single_has_the_exact_loads(threshold: int, coin: float) -> None:
    """400 trials of 1000 bins: 400,000 samples of a bin, after 1250 and 2500 keys."""
    seen = simulate("single", keys=2500, bins=1000, thresholds=threshold, coin=coin,
                    checkpoints=[1250, 2500], trials=400, seed=3)  # fmt: skip
    for look, keys in enumerate(seen.checkpoints):
        chances = expected(keys, 1000, threshold, coin)
        counts = np.zeros(threshold + 2)
        counts[: seen.loads.shape[-1]] = seen.loads[:, look, 0].sum(axis=0)
        assert_within(counts, 400_000, chances)


def test_a_coin_that_is_a_little_wrong_would_fail() -> None:
    """400,000 samples tell a coin of 0.48 from one of 0.5."""
    seen = simulate("single", keys=2500, bins=1000, thresholds=2, coin=0.48, trials=400, seed=3)
    with pytest.raises(AssertionError):
        assert_within(seen.loads[:, 0, 0].sum(axis=0), 400_000, expected(2500, 1000, 2, 0.5))


def test_sequential_has_the_loads_of_single_after_as_many_accesses() -> None:
    """The paper's theorem 4; 400 trials of 1000 bins; the last key may read up to two bins too many."""
    budget = 2750
    seen = simulate("sequential", keys=2500, bins=1000, thresholds=2, coin=0.5, choices=3, budget=budget,
                    trials=400, seed=4)  # fmt: skip
    assert ((budget <= seen.accesses) & (seen.accesses <= budget + 2)).all()
    assert_within(seen.loads[:, 0, 0].sum(axis=0), 400_000, expected(budget, 1000, 2, 0.5), slack=2 * 400)


def test_every_table_of_multilevel_is_a_single_scheme_for_the_keys_that_come_to_it() -> None:
    """100 trials of tables of 800, 150 and 50 bins: 80,000, 15,000 and 5,000 samples."""
    bins = [800, 150, 50]
    seen = simulate("multilevel", keys=6000, bins=bins, thresholds=6, coin=0.4, trials=100, seed=5)
    arriving = np.full(100, 6000)
    for table, size in enumerate(bins):
        loads = seen.loads[:, 0, table]
        chances = np.mean([expected(int(keys), size, 6, 0.4) for keys in arriving], axis=0)
        assert_within(loads.sum(axis=0), 100 * size, chances)
        arriving = arriving - (loads @ np.arange(8, dtype=np.uint64)).astype(int)
    assert (seen.overflow[:, 0] == arriving).all()


def test_plain_hashing_has_the_variance_of_the_binomial() -> None:
    """1000 trials of 1000 bins; the variance within a trial has mean keys/bins * (1 - 1/bins)."""
    seen = simulate("plain", keys=8000, bins=1000, trials=1000, seed=6)
    variance = seen.variance[:, 0]
    standard_error = variance.std(ddof=1) / np.sqrt(1000)
    assert abs(variance.mean() - 8 * (1 - 1 / 1000)) < 4.9 * standard_error


# --- promises --------------------------------------------------------------------------------------------


def numbers(seen: Simulated) -> list[Any]:
    return [each.tolist() for each in (seen.loads, seen.overflow, seen.spilled, seen.accesses)]


def test_threads_change_nothing() -> None:
    def with_threads(threads: int) -> list[Any]:
        seen = simulate("multilevel", keys=4000, bins=500, shares=[5, 2, 1], thresholds=7, coin=0.5,
                        checkpoints=range(0, 4001, 500), trials=17, seed=7, threads=threads)  # fmt: skip
        return numbers(seen)

    assert with_threads(1) == with_threads(2) == with_threads(64)


def test_a_trial_depends_on_the_seed_and_its_position_alone() -> None:
    def loads(**changes: int) -> np.ndarray:
        return simulate(
            "single", **({"keys": 3000, "bins": 1000, "thresholds": 9, "trials": 5, "seed": 1} | changes)
        ).loads

    assert (loads(trials=9)[:5] == loads()).all()
    assert not (loads(seed=2) == loads()).all()
    assert not (loads()[0] == loads()[1]).all()


@pytest.mark.parametrize("limit", [None, 0, 20])
def test_no_key_is_lost(limit: int | None) -> None:
    seen = simulate("multilevel", keys=5000, bins=[300, 100], thresholds=10, coin=0.5, overflow_limit=limit,
                    checkpoints=[0, 100, 5000], trials=4, seed=8)  # fmt: skip
    held = (seen.loads @ np.arange(seen.loads.shape[-1], dtype=np.uint64)).sum(axis=2)
    assert (held + seen.overflow == np.array(seen.checkpoints, dtype=np.uint64)).all()
    assert (seen.loads.sum(axis=3) == np.array([300, 100], dtype=np.uint64)).all()
    assert seen.occupancy.sum(axis=-1) == pytest.approx(1)
    if limit is not None:
        assert seen.overflow.max() == limit
        assert seen.spilled[:, -1].min() > 0
    assert (seen.reads[:, 0] == 0).all()
    assert (seen.overflow_share[:, -1] == seen.overflow[:, -1] / 5000).all()


def test_least_spill_is_more_even_than_random() -> None:
    """50 trials; 1000 bins of mean load 8, thresholds 6: almost all is spilled at the end."""
    of = {
        spill: simulate("sequential", keys=8000, bins=1000, thresholds=6, choices=3, overflow_limit=0,
                        spill=spill, trials=50, seed=2).variance.mean()
        for spill in ("random", "least")
    }  # fmt: skip
    assert of["least"] < 0.5 * of["random"]


def test_ctrl_c_stops_it() -> None:
    def press() -> None:
        ready.wait()
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    ready = threading.Event()
    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        ready.set()
        simulate(
            "single", keys=2**40, bins=1000, thresholds=65534, trials=4, threads=2
        )  # it would take hours
    thread.join()


def test_other_threads_run_meanwhile() -> None:
    ticks = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    simulate("single", keys=30_000_000, bins=1000, thresholds=9)
    counted = len(ticks)
    stop.set()
    thread.join()
    assert counted > 10


def test_split_divides_all_bins() -> None:
    assert split(1024, [1, 0.1708, 0.0292]) == [853, 146, 25]
    assert split(10, [1, 1e-9, 1e-9]) == [8, 1, 1]
    assert split(3, [100, 1, 1]) == [1, 1, 1]
    for bins in range(3, 200):
        parts = split(bins, [0.83, 0.14, 0.03])
        assert sum(parts) == bins
        assert min(parts) >= 1


@pytest.mark.parametrize(
    ("policy", "changes", "message"),
    [
        ("double", {}, "policy must be one of plain, single, sequential, multilevel, not 'double'"),
        ("single", {"keys": -1}, "keys must be 0 to .*, not -1"),
        ("single", {"bins": 0}, "bins must be 1 to 1073741824, not 0"),
        ("single", {"bins": [5, 5]}, "bins must be one number for policy 'single', not \\[5, 5\\]"),
        ("multilevel", {"bins": 5}, "bins must be one number with shares, or those of each table without"),
        ("multilevel", {"bins": [5, 5], "shares": [1, 1]}, "bins must be one number with shares"),
        ("multilevel", {"bins": [1] * 9}, "bins must be of 1 to 8 tables, not 9"),
        ("multilevel", {"bins": 2, "shares": [1, 1, 1]}, "bins must be one for each of 3 tables"),
        ("multilevel", {"bins": 5, "shares": [1, -1]}, "shares must be positive numbers, not \\[1, -1\\]"),
        ("single", {"shares": [1]}, "shares must be left out for policy 'single'"),
        ("single", {"thresholds": None}, "thresholds must be given for policy 'single'"),
        ("plain", {}, "thresholds must be left out for policy 'plain', not 3"),
        ("single", {"thresholds": 65535}, "thresholds must be 0 to 65534, not 65535"),
        ("single", {"thresholds": [1, 2]}, "thresholds must be one number, or one for each of 1 tables"),
        ("single", {"coin": 1.5}, "coin must be a probability, 0 to 1, not 1.5"),
        ("single", {"coin": float("nan")}, "coin must be a probability, 0 to 1, not nan"),
        ("single", {"choices": 2}, "choices must be 1 for policy 'single', not 2: take 'sequential'"),
        ("sequential", {"choices": 9}, "choices must be 1 to 8, not 9"),
        ("multilevel", {"bins": [5, 5], "choices": 3}, "choices must be the number of tables, 2"),
        ("single", {"budget": -1}, "budget must be 0 to .*, not -1"),
        ("single", {"overflow_limit": -1}, "overflow_limit must be 0 to .*, not -1"),
        ("single", {"spill": "best"}, "spill must be 'random' or 'least', not 'best'"),
        ("single", {"checkpoints": []}, "checkpoints must be one or more numbers in ascending order"),
        ("single", {"checkpoints": [5, 4]}, "checkpoints must be one or more numbers in ascending order"),
        ("single", {"checkpoints": [101]}, "checkpoints must be 0 to 100, not 101"),
        ("single", {"trials": 0}, "trials must be 1 to .*, not 0"),
        ("single", {"seed": 2**64}, "seed must be 0 to .*, not 18446744073709551616"),
        ("single", {"threads": 0}, "threads must be 1 to 1024, not 0"),
    ],
)  # fmt: skip
def test_misuse_is_refused(policy: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(policy, **({"keys": 100, "bins": 10, "thresholds": 3} | changes))


def test_a_number_that_is_not_whole_is_refused() -> None:
    with pytest.raises(TypeError, match=r"keys must be a whole number, not 2\.5"):
        simulate("plain", keys=2.5, bins=10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"choices": 0}, "choices must be 1 to 8, not 0"),
        ({"choices": 9}, "choices must be 1 to 8, not 9"),
        ({"bins": []}, "bins must have one number"),
        ({"bins": [1, 1], "choices": 3}, "bins must have one number .* or choices = 3"),
        ({"bins": [0]}, r"bins must be 1 to 2\*\*30 in each table, not 0"),
        ({"bins": [2**30 + 1]}, r"bins must be 1 to 2\*\*30"),
        ({"bins": [2**30, 2**30], "thresholds": [1, 1], "choices": 2}, "at most .* in all tables"),
        ({"thresholds": [1, 2]}, "thresholds must have as many numbers as bins, 1, not 2"),
        ({"thresholds": [65535]}, "thresholds must be 0 to 65534, not 65535"),
        ({"coin": 2**32 + 1}, r"coin must be 0 to 2\*\*32"),
        ({"checkpoints": []}, "checkpoints must not be empty"),
        ({"checkpoints": [2, 1]}, "checkpoints must not descend"),
        ({"trials": 0}, "trials must be 1 or more, not 0"),
        ({"threads": 0}, "threads must be 1 or more, not 0"),
    ],
)
def test_the_core_checks_by_itself(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "bins": [10], "thresholds": [1], "coin": 0, "choices": 1, "budget": None, "overflow_limit": None,
        "spill_least": False, "checkpoints": [5], "trials": 1, "seed": 0, "threads": 1,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        _study.simulate_balance(**(given | changes))


def test_no_structure_loads_the_simulators() -> None:
    script = "import sys, evenbins; evenbins.BloomFilter(10).add(1); print('evenbins._study' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
