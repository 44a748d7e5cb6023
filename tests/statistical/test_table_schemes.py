"""Simulated multilevel tables against exact laws.

insertions   All hash values of a tiny table are listed and each case is played by the twin: the exact chance
             of every outcome. For the standard scheme in larger tables a level is an occupancy problem for
             the keys that come to it, so that the law of the overflow follows level by level.
deletions    One level of m buckets, n keys. With replacement the number of full buckets is a birth-death
             chain, up with (1 - F/m)(1 - F/n), down with F/m F/n, so that it is hypergeometric:
             C(m, F) C(n, F) / C(m+n, n). With Poisson arrivals it goes up at rate n (1 - F/m) and down at
             rate F: Binomial(m, n/(m+n)).

equations    In larger tables: the steady states of `evenbins.theory.fluid`, by Student's interval for the
             mean of independent tables, with half a percent for tables that are not infinitely large.

Every count is compared with its binomial interval, two-sided at 1e-6; seeds are fixed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom, hypergeom
from scipy.stats import t as student

from evenbins.study.papers.simulation import simulate_table
from evenbins.theory import fluid
from reference.multilevel_simulation import Key, TableTwin

LEVEL = 1e-6
SCHEMES = ["standard", "conservative", "second-chance", "extreme-second-chance"]

Vector = npt.NDArray[np.float64]


def surprises(outcomes: npt.NDArray[Any], chances: dict[Any, float]) -> list[Any]:
    """Give the outcomes whose number among all is out of the interval that it misses once in a million."""
    codes = outcomes  # one number for each row, which sorts faster
    if outcomes.ndim == 2:
        codes = outcomes.astype(np.int64) @ (int(outcomes.max()) + 1) ** np.arange(outcomes.shape[1])
    _, firsts, numbers = np.unique(codes, return_index=True, return_counts=True)
    kinds = outcomes[firsts].tolist()
    names = kinds if outcomes.ndim == 1 else map(tuple, kinds)
    counts = Counter(dict(zip(names, numbers.tolist(), strict=True)))
    strange = [each for each in counts if each not in chances]
    for outcome, chance in chances.items():
        low, high = binom.ppf([LEVEL / 2, 1 - LEVEL / 2], len(outcomes), chance)
        if not low <= counts[outcome] <= high:
            strange.append(outcome)
    return strange


def law(chances: Vector) -> dict[int, float]:
    return {i: float(chance) for i, chance in enumerate(chances) if chance > 0}


@cache
def all_cases(scheme: str, buckets: tuple[int, ...], slots: int, keys: int) -> dict[tuple[int, ...], float]:
    """Give the exact chances of (moves, overflow, keys of each level)."""
    cases: Counter[tuple[int, ...]] = Counter()
    choices = list(itertools.product(*map(range, buckets)))
    for hashed in itertools.product(choices, repeat=keys):
        twin = TableTwin(scheme, buckets, slots)
        for each in hashed:
            twin.insert(Key(list(each)))
        end = twin.sample()
        cases[(end.moves, end.overflow, *end.held)] += 1
    return {case: count / len(choices) ** keys for case, count in cases.items()}


TINY = [((2, 1, 2), 1, 5), ((3, 2), 1, 4), ((2, 2), 2, 5)]


@cache
def outcomes(scheme: str, buckets: tuple[int, ...], slots: int, keys: int) -> npt.NDArray[Any]:
    seen = simulate_table(scheme, keys=keys, buckets=buckets, slots=slots, trials=200_000, seed=5, threads=2)
    return np.concatenate([seen.moves, seen.overflow, seen.held[:, 0]], axis=1)


@pytest.mark.parametrize(("buckets", "slots", "keys"), TINY)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_tiny_tables_have_the_exact_law(scheme: str, buckets: tuple[int, ...], slots: int, keys: int) -> None:
    """200,000 tables; all outcomes."""
    chances = all_cases(scheme, buckets, slots, keys)
    assert sum(chances.values()) == pytest.approx(1)
    assert surprises(outcomes(scheme, buckets, slots, keys), chances) == []


def test_no_scheme_passes_for_another() -> None:
    """200,000 tables of three levels tell the schemes apart."""
    for true, claimed in itertools.permutations(SCHEMES, 2):
        assert surprises(outcomes(true, (2, 1, 2), 1, 5), all_cases(claimed, (2, 1, 2), 1, 5)) != []


def occupied(keys: int, buckets: int) -> Vector:
    """Give the chances that 0 ... keys buckets are hit by the keys."""
    chances = np.zeros(keys + 1)
    chances[0] = 1
    at = np.arange(keys + 1)
    for _ in range(keys):
        stay = chances * at / buckets
        chances = stay + np.concatenate([[0], (chances * (1 - at / buckets))[:-1]])
    return chances


def standard_overflow(keys: int, buckets: list[int]) -> Vector:
    """Give the chances that 0 ... keys keys overflow, one slot a bucket."""
    left = np.zeros(keys + 1)
    left[keys] = 1
    for size in buckets:
        passed = np.zeros(keys + 1)
        for arriving in range(keys + 1):
            hit = occupied(arriving, size)
            passed[: arriving + 1] += left[arriving] * hit[::-1]
        left = passed
    return left


@pytest.mark.parametrize("buckets", [[150], [90], [60, 40, 20], [30, 30, 30, 30]])
def test_standard_has_the_exact_overflow(buckets: list[int]) -> None:
    """100,000 tables of 100 keys."""
    seen = simulate_table("standard", keys=100, buckets=buckets, trials=100_000, seed=6, threads=2)
    assert surprises(seen.overflow[:, 0], law(standard_overflow(100, buckets))) == []


def test_one_bucket_more_would_fail() -> None:
    """100,000 tables tell 90 buckets from 91."""
    seen = simulate_table("standard", keys=100, buckets=[91], trials=100_000, seed=6, threads=2)
    assert surprises(seen.overflow[:, 0], law(standard_overflow(100, [90]))) != []


def full_under_replacement(keys: int, buckets: int) -> dict[int, float]:
    return law(hypergeom.pmf(np.arange(buckets + 1), keys + buckets, keys, buckets))


@pytest.mark.parametrize(("keys", "buckets"), [(50, 60), (40, 20)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_replacement_in_one_level_is_hypergeometric(scheme: str, keys: int, buckets: int) -> None:
    """20,000 tables, after 15 n replacements."""
    seen = simulate_table(scheme, keys=keys, buckets=[buckets], process="replace", burn_in=15, samples=1,
                          trials=20_000, seed=7, threads=2)  # fmt: skip
    assert surprises(seen.held[:, 0, 0], full_under_replacement(keys, buckets)) == []
    assert (seen.held[:, 0, 0] + seen.overflow[:, 0] == keys).all()


def test_poisson_arrivals_in_one_level_are_binomial() -> None:
    """10,000 tables of 75 buckets for 60 keys, at time 15.

    A sample stands behind a transition, not at a fixed time: a difference of some 1/n of a key.
    """
    keys, buckets = 60, 75
    seen = simulate_table("standard", keys=keys, buckets=[buckets], process="poisson", burn_in=15, samples=1,
                          trials=10_000, seed=8, threads=2)  # fmt: skip
    full = law(binom.pmf(np.arange(buckets + 1), buckets, keys / (keys + buckets)))
    assert surprises(seen.held[:, 0, 0], full) == []


def test_a_lifetime_that_is_a_little_wrong_would_fail() -> None:
    """20,000 tables tell 50 buckets from 51 under replacement."""
    seen = simulate_table("standard", keys=50, buckets=[51], process="replace", burn_in=15, samples=1,
                          trials=20_000, seed=7, threads=2)  # fmt: skip
    assert surprises(seen.held[:, 0, 0], full_under_replacement(50, 50)) != []


STEADY = {
    ("standard", 1): (0.7113, 0.5635, 0.4252, 0.3001),
    ("standard", 2): (0.3, 0.2, 0.12, 0.06),
    ("second-chance", 1): (0.5, 0.5, 0.3, 0.15),
}


def distance(scheme: str, slots: int, process: str, claimed: Any) -> tuple[float, float]:
    """Give the relative distance of 60 tables' mean overflow from a claim, and the interval's half."""
    seen = simulate_table(scheme, keys=10_000, shares=STEADY[scheme, slots], slots=slots, process=process,
                          burn_in=12, interval=10_000, trials=60, seed=2, threads=2)  # fmt: skip
    means = seen.overflow_share.mean(axis=1)
    reach = float(student.ppf(1 - LEVEL / 2, 59)) * means.std(ddof=1) / np.sqrt(60)
    return float(means.mean()) / claimed.overflow - 1, float(reach) / claimed.overflow


@pytest.mark.parametrize("process", ["replace", "poisson"])
@pytest.mark.parametrize(("scheme", "slots"), STEADY)
def test_steady_states_meet_the_equations(scheme: str, slots: int, process: str) -> None:
    """60 tables of 10,000 keys, ten samples each."""
    error, reach = distance(scheme, slots, process, fluid.steady_state(scheme, STEADY[scheme, slots], slots))
    assert abs(error) <= reach + 0.005
    assert reach < 0.08


def test_the_equations_of_other_schemes_would_fail() -> None:
    """60 tables of 10,000 keys: neither the law without deletions nor the one without moves."""
    shares = STEADY["second-chance", 1]
    for claimed in (fluid.solve("second-chance", shares), fluid.steady_state("standard", shares)):
        error, reach = distance("second-chance", 1, "replace", claimed)
        assert abs(error) > reach + 0.005
