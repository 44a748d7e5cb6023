"""The count-min sketch's promise, measured with secret seeds: estimates beyond the bound on unkind streams.

Each trial is a sketch with a seed of its own and one key asked of it, so the number of failures is binomial.
Where the stream has an exact prediction (equal keys, `study.theory.counters.hit_everywhere`) the interval is
two-sided at 1e-6; elsewhere the failures must lie below the 1 - 1e-6 quantile of Binomial(trials, delta).
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from sizes import size

from evenbins import CountMinSketch
from evenbins.study.theory.counters import hit_everywhere

EPSILON = DELTA = 0.05
SHAPES: dict[str, dict[str, Any]] = {
    "classic": {},
    "two-hash": {"construction": "two-hash"},
    "two-copies": {"construction": "two-hash", "epsilon": 0.25, "delta": 0.1},
    "conservative": {"conservative": True},
}


def make(name: str, seed: int) -> CountMinSketch:
    return CountMinSketch(**{"epsilon": EPSILON, "delta": DELTA, **SHAPES[name], "seed": seed})


def seeds(trials: int, start: int) -> list[int]:
    rng = random.Random(start)
    return [rng.getrandbits(64) for _ in range(trials)]


def test_classic_failures_on_the_worst_stream_are_the_exact_number() -> None:
    """19 equal keys, each above 5 % of the total; 20,000 sketches (60,000 in a long run), one absent
    key each: 510 failures."""
    within_exact_interval("classic", size(20_000, 60_000))


@pytest.mark.parametrize("name", ["two-hash", "two-copies"])
def test_two_hash_failures_on_the_worst_stream_are_the_exact_number(name: str) -> None:
    """The same, by inclusion and exclusion over the tables: 42 and 5 failures."""
    within_exact_interval(name, size(20_000, 60_000))


def within_exact_interval(name: str, trials: int) -> None:
    plan = make(name, 0).plan
    heavy = round(1 / plan.epsilon) - 1
    keys = np.arange(heavy)
    failures = 0
    for seed in seeds(trials, 1):
        s = make(name, seed)
        s.add_many(keys)
        failures += s.count("absent") > plan.error_bound(s.total)
    exact = hit_everywhere(plan, heavy)
    low, high = binom.ppf([5e-7, 1 - 5e-7], trials, exact)
    assert low <= failures <= high
    assert exact <= plan.failure <= plan.delta


@pytest.mark.parametrize("name", SHAPES)
def test_failures_on_zipf_streams_stay_below_delta(name: str) -> None:
    """1500 sketches (3000 in a long run) of 1000 Zipf keys (exponent 1.1), one random key of each; no key is
    underestimated."""
    rng = np.random.default_rng(2)
    trials, failures = size(1500, 3000), 0
    for seed in seeds(trials, 2):
        s = make(name, seed)
        stream = rng.zipf(1.1, 1000)
        s.add_many(stream)
        keys, counts = np.unique(stream, return_counts=True)
        estimates = s.count_many(keys)
        assert (estimates >= counts).all()
        asked = rng.integers(keys.size)
        failures += int(estimates[asked]) > counts[asked] + s.plan.error_bound(s.total)
    assert failures <= binom.ppf(1 - 1e-6, trials, make(name, 0).plan.delta)


@pytest.fixture(scope="module")
def chosen() -> dict[str, list[int]]:
    """Give, for each shape, keys that meet the key "victim" in every row when the seed is 0."""
    found = {}
    for name in SHAPES:
        s = make(name, 0)
        s.add("victim")
        candidates = np.arange(4_000_000)
        found[name] = candidates[s.count_many(candidates) > 0][:19].tolist()
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_keys_chosen_against_a_known_seed_fail_it_and_no_secret_one(
    name: str, chosen: dict[str, list[int]]
) -> None:
    """The power of these tests: the stream breaks the sketch of seed 0, not those of 3000 secret seeds."""
    keys = chosen[name]
    assert len(keys) >= 10
    known = make(name, 0)
    known.add_many(keys)
    assert known.count("victim") > known.plan.error_bound(known.total)
    trials, failures = 3000, 0
    for seed in seeds(trials, 3):
        s = make(name, seed)
        s.add_many(keys)
        failures += s.count("victim") > s.plan.error_bound(s.total)
    assert failures <= binom.ppf(1 - 1e-6, trials, make(name, 0).plan.delta)


@pytest.mark.parametrize("name", SHAPES)
def test_sequential_and_weighted_streams_keep_the_promise(name: str) -> None:
    """3000 sketches of consecutive integers with weights 1, 2, 4, … that repeat; one random key each."""
    rng = np.random.default_rng(4)
    keys, weights = np.arange(60), 1 << (np.arange(60) % 12)
    trials, failures = 3000, 0
    for seed in seeds(trials, 4):
        s = make(name, seed)
        s.add_many(keys, weights)
        assert (s.count_many(keys) >= weights).all()
        asked = int(rng.integers(60))
        failures += s.count(asked) > weights[asked] + s.plan.error_bound(s.total)
    assert failures <= binom.ppf(1 - 1e-6, trials, make(name, 0).plan.delta)


def test_conservative_estimates_are_never_larger_and_mostly_smaller() -> None:
    """One Zipf stream of 20,000 keys: each conservative estimate against the plain one of the same seed."""
    stream = np.random.default_rng(5).zipf(1.1, 20_000)
    plain, conservative = (CountMinSketch(0.005, 0.01, conservative=c, seed=9) for c in (False, True))
    for s in (plain, conservative):
        s.add_many(stream)
    truth = Counter(stream.tolist())
    keys = list(truth)
    a, b = plain.count_many(keys), conservative.count_many(keys)
    assert (b <= a).all()
    excess = [int((each - np.array(list(truth.values()), np.uint64)).sum()) for each in (a, b)]
    assert excess[1] < excess[0] / 2
