"""The balancing theory, against high precision, linear programming, the equations, and simulation.

Simulations have a fixed seed; their intervals are two-sided at 1e-6 for each number, and the sample
size stands in the docstring.
"""

from __future__ import annotations

import doctest
import math
import random
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import linprog
from sizes import size

from evenbins.study.theory import balance
from evenbins.study.theory import balance as study_balance
from evenbins.study.theory.balance import (
    Balance,
    Fluid,
    chain_variance,
    lower_bound,
    multilevel,
    multilevel_equations,
    optimal_multilevel,
    optimal_sequential,
    optimal_single,
    optimality_region,
    sequential,
    sequential_equations,
    single,
    uniform_deviation,
    uniform_overall,
)
from evenbins.theory import over_time
from evenbins.theory.bucket import best as best_distribution

LEVEL = 1e-6

# --- other ways to the same numbers --------------------------------------------------------------


def decimal_poisson(mean: Decimal, count: int) -> list[Decimal]:
    chance = [(-mean).exp()]
    for i in range(1, count):
        chance.append(chance[-1] * mean / i)
    return chance


def decimal_at_threshold(mean: Decimal, threshold: int, coin: Decimal) -> Decimal:
    """f_h by (7) as printed: cancels, but not on very many digits."""
    chance = decimal_poisson(mean, threshold + 1)
    if coin == 1:
        return chance[threshold]
    stay = 1 - coin
    head = sum((p * stay**i for i, p in enumerate(chance[:-1])), Decimal(0))
    return ((-coin * mean).exp() - head) / stay**threshold


def decimal_bound(reads: float, load: float, overflow: float) -> tuple[int, list[Decimal], Decimal]:
    """Theorem 1 by its definition, from below, and the coin by bisection."""
    with localcontext(prec=150):
        mean = Decimal(reads) * Decimal(load)
        kept = Decimal(load) * (1 - Decimal(overflow))
        chance = decimal_poisson(mean, 200)
        cut, below, threshold = Decimal(0), chance[0], 0  # E[min(N, threshold)], P(N <= threshold)
        while cut + (1 - below) < kept:
            cut += 1 - below
            threshold += 1
            below += chance[threshold]
        top = kept - cut
        bound = chance[:threshold]
        bound += [1 - sum(bound) - top, top]
        low, high = Decimal(0), Decimal(1)
        for _ in range(80):
            middle = (low + high) / 2
            if decimal_at_threshold(mean, threshold, middle) > bound[threshold]:
                low = middle
            else:
                high = middle
        return threshold, bound, low


def simulated(
    load: float,
    buckets: list[int],
    thresholds: list[int],
    coin: float,
    seed: int,
    *,
    poisson: bool = False,
) -> tuple[list[list[int]], int, int]:
    """Throw keys, one bucket of each list in turn; give the loads, the reads, the overflow."""
    rng = np.random.default_rng(seed)
    loads = [[0] * m for m in buckets]
    total = sum(buckets)
    keys = int(rng.poisson(load * total)) if poisson else round(load * total)
    spots = [rng.integers(m, size=keys).tolist() for m in buckets]
    coins = [(rng.random(keys) < coin).tolist() for _ in buckets]
    reads = overflow = 0
    for key in range(keys):
        for table, spot, accepts, threshold in zip(loads, spots, coins, thresholds, strict=True):
            reads += 1
            held = table[spot[key]]
            if held < threshold or (held == threshold and accepts[key]):
                table[spot[key]] = held + 1
                break
        else:
            overflow += 1
    return loads, reads, overflow


def simulated_sequential(
    load: float, buckets: int, threshold: int, coin: float, choices: int, budget: float, seed: int
) -> tuple[list[int], int, int]:
    rng = random.Random(seed)
    loads = [0] * buckets
    keys = round(load * buckets)
    reads = overflow = 0
    for _ in range(keys):
        for _ in range(choices):
            if reads >= budget * keys:
                overflow += 1
                break
            reads += 1
            spot = rng.randrange(buckets)
            if loads[spot] < threshold or (loads[spot] == threshold and rng.random() < coin):
                loads[spot] += 1
                break
        else:
            overflow += 1
    return loads, reads, overflow


def fractions_of(loads: list[int], length: int) -> list[float]:
    return [count / len(loads) for count in np.bincount(loads, minlength=length)]


def assert_means(samples: list[list[float]], expected: list[float]) -> None:
    """Each mean lies within its t-interval; one that never varied is exact to 1e-3."""
    values = np.array(samples)
    reach = stats.t.isf(LEVEL / 2, len(values) - 1)
    error = reach * values.std(axis=0, ddof=1) / math.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - expected) <= np.maximum(error, 1e-3)).all(), (
        values.mean(axis=0),
        expected,
        error,
    )


# --- Theorem 1 -----------------------------------------------------------------------------------

CASES = [
    (1.2, 8.0, 0.005),
    (1.1, 8.0, 0.0),
    (1.0, 8.0, 1e-9),
    (1.0001, 8.0, 0.0),
    (1.0001, 8.0, 1e-9),
    (1.0, 8.0, 0.5),
    (1.5, 3.0, 0.9),
    (2.9, 0.5, 0.95),
    (1.2, 60.0, 0.005),
    (1.0, 0.01, 1e-9),
    (3.0, 4.0, 0.0),
    (0.9, 8.0, 0.2),
]


@pytest.mark.parametrize(("reads", "load", "overflow"), CASES)
def test_the_bound_and_its_coin_to_the_last_digits(reads: float, load: float, overflow: float) -> None:
    """Every entry, tiny ones too, relative to Theorem 1 on 150 digits; the coin by Theorem 3's (ii)."""
    threshold, expected, coin = decimal_bound(reads, load, overflow)
    bound = lower_bound(reads, load, overflow)
    assert bound.threshold == threshold
    assert len(bound.distribution) == threshold + 2
    for value, exact in zip(bound.distribution, expected, strict=True):
        assert float(value) == pytest.approx(float(exact), rel=1e-12)
    _, ours, _ = best_distribution(reads, load, overflow)
    assert ours == pytest.approx(float(coin), rel=1e-12)
    assert 1 - ours == pytest.approx(float(1 - coin), rel=1e-12)


@pytest.mark.parametrize("cost", [lambda i: i * i, lambda i: 1.5**i, lambda i: max(i - 4, 0) ** 3])
@pytest.mark.parametrize(("reads", "load", "overflow"), [(1.2, 3.0, 0.01), (1.5, 1.3, 0.2), (1.0, 4.0, 0.1)])
def test_no_distribution_costs_less(
    reads: float, load: float, overflow: float, cost: Callable[[int], float]
) -> None:
    """The least cost under (B.1) and (B.2) by a linear program."""
    size = 40
    before = stats.poisson.cdf(np.arange(size), reads * load)
    answer = linprog(
        [cost(i) for i in range(size)],
        A_ub=-np.tril(np.ones((size, size))),
        b_ub=-before,
        A_eq=[np.ones(size), np.arange(size)],
        b_eq=[1.0, load * (1 - overflow)],
    )
    assert lower_bound(reads, load, overflow).cost(cost) == pytest.approx(answer.fun, rel=1e-7)


def test_nothing_to_remove_is_poisson() -> None:
    for reads, overflow in [(1, 0), (0.9, 0.1), (0.7, 0.3)]:
        bound = lower_bound(reads, 8, overflow)
        assert bound.threshold is None
        assert bound.max_load is None
        counts = np.arange(len(bound.distribution))
        assert np.allclose(bound.distribution, stats.poisson.pmf(counts, reads * 8), rtol=1e-11, atol=0)
        assert bound.variance == pytest.approx(reads * 8, rel=1e-13)


def test_figure_2() -> None:
    """Load 8, no overflow: the loads of 1, 1.1 and 1.2 reads agree below the threshold with Poisson(8a)."""
    assert [lower_bound(a, 8).threshold for a in (1, 1.1, 1.2)] == [None, 9, 8]
    variances = [chain_variance(a, 8) for a in (1, 1.1, 1.2)]
    assert variances == pytest.approx([8.0, 3.779574, 2.147351], abs=1e-6)
    assert np.allclose(
        lower_bound(1.1, 8).distribution[:9], stats.poisson.pmf(np.arange(9), 8.8), rtol=1e-12, atol=0
    )


@settings(max_examples=size(50, 150), deadline=None)
@given(
    reads=st.floats(1.0, 20.0),
    load=st.floats(1e-3, 1e4),
    overflow=st.one_of(st.just(0.0), st.floats(1e-12, 0.999)),
)
def test_every_bound_is_a_distribution_of_its_mean(reads: float, load: float, overflow: float) -> None:
    bound = lower_bound(reads, load, overflow)
    chance = bound.distribution
    assert (chance >= 0).all()
    assert chance.sum() == pytest.approx(1.0, abs=1e-12)
    assert bound.mean == pytest.approx(load * (1 - overflow), rel=1e-11)
    assert bound.variance <= bound.mean * (1 + 1e-9)  # thinning to Poisson is possible, too
    if bound.threshold is not None:
        assert bound.max_load == bound.threshold + 1 == len(chance) - 1
        assert chance[-1] > 0
        # (B.1): elements were only removed
        before = stats.poisson.cdf(np.arange(len(chance)), reads * load)
        assert (np.cumsum(chance) >= before - 1e-11).all()
        # and the coin leads there
        _, coin, _ = best_distribution(reads, load, overflow)
        assert 0.0 <= coin <= 1.0
        held = single(reads * load, bound.threshold, coin) if reads * load <= 1e6 else None
        if held is not None:
            assert np.abs(held.occupancy[0] - chance).max() < 1e-11
            removed = (reads - 1 + overflow) / reads
            assert held.overflow[0] == pytest.approx(removed, rel=1e-9, abs=1e-15)


@settings(max_examples=size(25, 50), deadline=None)
@given(st.floats(1.0, 3.0), st.floats(0.1, 100.0), st.floats(0.0, 0.9), st.floats(0.001, 0.09))
def test_more_reads_or_overflow_never_cost_more(a: float, load: float, overflow: float, more: float) -> None:
    least = chain_variance(a, load, overflow)
    assert chain_variance(a + more, load, overflow) <= least * (1 + 1e-9)

    def above(bound: balance.LowerBound) -> float:
        return bound.cost(lambda i: max(i - load, 0.0))

    assert above(lower_bound(a, load, overflow + more)) <= above(lower_bound(a, load, overflow)) + 1e-12


def test_large_loads_and_tiny_overflow() -> None:
    bound = lower_bound(1.0001, 1e4, 1e-9)
    assert bound.threshold is not None
    assert 10_000 < bound.threshold < 10_500
    assert bound.mean == pytest.approx(1e4 * (1 - 1e-9), rel=1e-13)
    best = optimal_single(1e4, 1e-9).threshold
    assert best is not None
    tails = stats.poisson.sf(np.arange(best, best + 2000), 1e4)
    assert tails.sum() > 1e-5 >= tails[1:].sum()
    assert lower_bound(1.2, 1e6, 0.005).mean == pytest.approx(995_000, rel=1e-12)
    assert lower_bound(1000, 1e6).variance < 1e-9
    assert lower_bound(1.0, 8, 1e-250).mean == pytest.approx(8, rel=1e-14)


def test_a_bound_with_room_for_everyone_is_a_point() -> None:
    """Very many reads: all buckets hold the mean, rounded down or up."""
    assert lower_bound(500, 8).distribution[8] == pytest.approx(1.0, abs=1e-12)
    assert lower_bound(500, 8.25).distribution[8:10] == pytest.approx([0.75, 0.25], abs=1e-12)


# --- costs ---------------------------------------------------------------------------------------


def test_costs_are_functions_or_tables() -> None:
    bound = lower_bound(1.2, 8, 0.005)
    squares = [i * i for i in range(100)]
    assert bound.cost(squares) == pytest.approx(bound.cost(lambda i: i * i), rel=1e-14)
    assert bound.cost(np.array(squares)) == pytest.approx(bound.variance + bound.mean**2, rel=1e-13)
    assert bound.cost(lambda i: np.float64(i)) == pytest.approx(bound.mean, rel=1e-14)
    assert bound.cost(math.factorial) > 0  # a function of integers only
    assert bound.cost(lambda i: [0, 1][i > 8]) == pytest.approx(float(bound.distribution[-1]))
    best = optimal_multilevel(1.2, 8, 3)
    shift = best.mean**2
    assert best.cost(lambda i: i * i - shift) == pytest.approx(best.variance, rel=1e-12)  # (C.1)
    assert chain_variance(1.2, 8, best.overflow) == best.variance


def test_a_cost_that_is_neither_says_so() -> None:
    bound = lower_bound(1.2, 8)
    with pytest.raises(ValueError, match=r"phi must be a function .* at least 10 numbers.*got"):
        bound.cost([1, 2, 3])
    with pytest.raises(TypeError, match="phi must be"):
        bound.cost("squares")


# --- Theorem 2 -----------------------------------------------------------------------------------


def test_the_tables_of_multilevel_are_uniform_overall() -> None:
    best = optimal_multilevel(1.2, 8, 3)
    end = multilevel(8, best.threshold or 0, best.coin, best.shares)
    fractions = end.attempts[0] / end.accesses[0]
    assert fractions == pytest.approx(best.shares, rel=1e-12)
    buckets = [600, 300, 100]
    rows = np.zeros((3, 1000))
    rows[0, :600], rows[1, 600:900], rows[2, 900:] = 1 / 600, 1 / 300, 1 / 100
    assert uniform_overall(np.array(buckets) / 1000, rows)
    assert not uniform_overall(fractions, rows)
    assert uniform_deviation([0.5, 0.3, 0.2], rows) == pytest.approx(1.0)
    assert uniform_overall([0.5, 0.3, 0.2], rows, tolerance=1.0 + 1e-9)


# --- fluid limits --------------------------------------------------------------------------------


@pytest.mark.parametrize("coin", [0.0, 1e-9, 0.3, 0.999, 1 - 1e-12, 1.0])
@pytest.mark.parametrize(("load", "threshold"), [(2.5, 2), (8.0, 12), (0.01, 3), (40.0, 45), (3.0, 0)])
def test_single_near_every_coin(load: float, threshold: int, coin: float) -> None:
    """All fractions and the overflow, relative to (7) and (A.9) on 700 digits."""
    end = single(load, threshold, coin)
    with localcontext(prec=700):
        mean, p = Decimal(load), Decimal(coin)
        exact = decimal_poisson(mean, threshold + 1)
        exact[threshold] = decimal_at_threshold(mean, threshold, p)
        exact.append(1 - sum(exact))
        lost = 1 - sum(i * f for i, f in enumerate(exact)) / mean
    for value, expected in zip(end.occupancy[0], exact, strict=True):
        assert float(value) == pytest.approx(float(expected), rel=1e-12, abs=1e-300)
    assert float(end.overflow[0]) == pytest.approx(float(lost), rel=1e-12)


def test_figure_3() -> None:
    """SINGLE, r = 2.5, p = 0.5, h = 2, against simulation: 40,000 buckets, about 100,000 keys.

    A Poisson number of keys makes the buckets independent, so that counts are binomial exactly.
    """
    for t in (0.25, 0.5, 1.0):
        (loads,), _, _ = simulated(2.5 * t, [40_000], [2], 0.5, seed=int(100 * t), poisson=True)
        expected = single(2.5, 2, 0.5, t).occupancy[0]
        for count, chance in zip(np.bincount(loads, minlength=4), expected, strict=True):
            low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], 40_000, chance)
            assert low <= count <= high


@pytest.mark.parametrize("budget", [math.inf, 1.15])
def test_sequential_against_simulation(budget: float) -> None:
    """20 runs of 1,500 buckets and 6,000 keys."""
    samples = []
    for seed in range(20):
        loads, reads, overflow = simulated_sequential(4, 1500, 4, 0.4, 3, budget, seed)
        samples.append([*fractions_of(loads, 6), reads / 6000, overflow / 6000])
    end = sequential(4, 4, 0.4, 3, reads=None if budget == math.inf else budget)
    assert_means(samples, [*end.occupancy[0].tolist(), float(end.accesses[0]), float(end.overflow[0])])


def test_multilevel_against_simulation() -> None:
    """20 runs of 1,200 + 500 + 300 buckets and 8,000 keys; three thresholds."""
    samples = []
    for seed in range(20):
        loads, reads, overflow = simulated(4, [1200, 500, 300], [4, 5, 3], 0.4, seed)
        each = [value for table in loads for value in fractions_of(table, 7)]
        samples.append([*each, reads / 8000, overflow / 8000])
    end = multilevel(4, [4, 5, 3], 0.4, [0.6, 0.25, 0.15])
    expected = [*end.occupancy[0].ravel().tolist(), float(end.accesses[0]), float(end.overflow[0])]
    assert_means(samples, expected)


def assert_same_course(exact: Fluid, ode: Fluid) -> None:
    assert np.abs(exact.times - ode.times).max() == 0.0
    assert exact.occupancy.shape == ode.occupancy.shape
    assert np.abs(exact.occupancy - ode.occupancy).max() < 1e-10
    assert np.abs(exact.attempts - ode.attempts).max() < 1e-11
    assert np.abs(exact.overflow - ode.overflow).max() < 1e-11
    assert np.allclose(exact.overflow, ode.overflow, rtol=1e-6, atol=1e-13)


TIMES = [1.0, 0.0, 0.3, 0.7, 0.7, 1.4]


@pytest.mark.parametrize("reads", [None, 1.05, 1000.0])
@pytest.mark.parametrize(
    ("load", "threshold", "coin", "choices"),
    [
        (2.5, 2, 0.5, 1),
        (2.5, 2, 0.5, 3),
        (8, 9, 0.3, 3),
        (8, 9, 0.0, 3),
        (8, 9, 1.0, 3),
        (8, 0, 0.3, 2),
        (8, 3, 0.001, 5),
        (60, 66, 0.9, 3),
        (60, 50, 0.02, 4),
        (3, 4, 0.5, 64),
        (0.05, 1, 0.5, 3),
    ],
)
def test_sequential_two_ways(
    load: float, threshold: int, coin: float, choices: int, reads: float | None
) -> None:
    exact = sequential(load, threshold, coin, choices, TIMES, reads=reads)
    ode = sequential_equations(load, threshold, coin, choices, TIMES, reads=reads)
    assert_same_course(exact, ode)
    kept = exact.occupancy @ np.arange(threshold + 2) / load
    assert np.abs(kept + exact.overflow - exact.times).max() < 1e-12


@pytest.mark.parametrize(
    ("load", "thresholds", "coin", "shares"),
    [
        (2.5, 2, 0.5, (0.7, 0.2, 0.1)),
        (8, (9, 8, 12), 0.3, [0.8, 0.15, 0.05]),
        (8, np.array([9, 0]), 0.0, np.array([0.5, 0.5])),
        (8, 9, 1.0, (0.8, 0.15, 0.05)),
        (60, 66, 0.9, (0.9, 0.1)),
        (4, 4, 0.5, (1.0,)),
    ],
)
def test_multilevel_two_ways(load: float, thresholds: object, coin: float, shares: object) -> None:
    exact = multilevel(load, thresholds, coin, shares, TIMES)  # type: ignore[arg-type]
    ode = multilevel_equations(load, thresholds, coin, shares, TIMES)  # type: ignore[arg-type]
    assert_same_course(exact, ode)
    held = exact.occupancy @ np.arange(exact.occupancy.shape[2])
    kept = held @ np.array(shares) / load
    assert np.abs(kept + exact.overflow - exact.times).max() < 1e-12


def test_one_choice_is_single() -> None:
    times = np.linspace(0, 2, 21)
    alone = single(6, 7, 0.3, times)
    assert np.abs(sequential(6, 7, 0.3, 1, times).occupancy - alone.occupancy).max() < 1e-13
    assert np.abs(multilevel(6, 7, 0.3, [1.0], times).occupancy[:, 0] - alone.occupancy).max() == 0.0
    assert np.allclose(sequential(6, 7, 0.3, 1, times).overflow, alone.overflow, rtol=1e-11, atol=0)
    assert np.abs(alone.accesses - times).max() == 0.0
    assert (np.diff(alone.overflow) >= 0).all()


def test_no_threshold_is_poisson() -> None:
    for end in (single(5, None, 1.0), sequential(5, None, 0.2, 3)):
        assert end.overflow[0] == 0.0
        assert end.accesses[0] == 1.0
        counts = np.arange(end.occupancy.shape[1])
        assert np.allclose(end.occupancy[0], stats.poisson.pmf(counts, 5), rtol=1e-11, atol=0)
    half = sequential(5, None, 0.2, 3, [0.25, 1.0], reads=0.5)
    assert half.overflow.tolist() == [0.0, 0.5]
    assert half.accesses.tolist() == [0.25, 0.5]


def test_the_beginning_is_empty() -> None:
    for start in (
        single(5, 3, 0.5, 0),
        sequential_equations(5, 3, 0.5, 3, 0),
        sequential(5, 3, 0.5, 3, 0),
    ):
        assert start.occupancy.tolist() == [[1.0, 0.0, 0.0, 0.0, 0.0]]
        assert start.overflow.tolist() == start.accesses.tolist() == [0.0]


@settings(max_examples=size(25, 60), deadline=None)
@given(st.floats(0.01, 300.0), st.integers(0, 400), st.floats(0.0, 1.0), st.integers(1, 64))
def test_sequential_keeps_its_books(load: float, threshold: int, coin: float, choices: int) -> None:
    course = sequential(load, threshold, coin, choices, [0.5, 1.0])
    assert np.abs(course.occupancy.sum(axis=1) - 1.0).max() < 1e-12
    kept = course.occupancy @ np.arange(threshold + 2) / load
    assert np.abs(kept + course.overflow - course.times).max() < 1e-11
    assert course.attempts[:, 0] == pytest.approx(course.times, abs=1e-12)
    steps = np.column_stack([course.attempts, course.overflow])
    assert (np.diff(steps, axis=1) <= 1e-15).all()  # who reads bucket j + 1 has read bucket j
    assert (steps >= 0).all()


# --- schemes that reach the bound ----------------------------------------------------------------


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference of two distributions; one may end a load later."""
    length = max(len(a), len(b))
    return float(np.abs(np.pad(a, (0, length - len(a))) - np.pad(b, (0, length - len(b)))).max())


def reached(best: Balance) -> Fluid:
    assert best.threshold is not None
    if best.policy == "single":
        return single(best.load, best.threshold, best.coin)
    if best.policy == "sequential":
        return sequential(best.load, best.threshold, best.coin, best.choices)
    return multilevel(best.load, best.threshold, best.coin, best.shares)


@pytest.mark.parametrize("load", [0.01, 0.3, 1, 8, 64, 1000, 1e4])
@pytest.mark.parametrize(("reads", "choices"), [(1.0001, 3), (1.2, 2), (1.2, 3), (2.9, 3), (1.1, 8)])
def test_the_optimal_schemes_reach_the_bound(reads: float, choices: int, load: float) -> None:
    """Reads and overflow as promised, and Theorem 1's distribution in every table."""
    for make in (optimal_sequential, optimal_multilevel):
        best = make(reads, load, choices)
        bound = lower_bound(reads, load, best.overflow)
        assert difference(best.occupancy, bound.distribution) < 1e-11
        assert best.variance == pytest.approx(bound.variance, rel=1e-9, abs=1e-9)
        assert best.mean == pytest.approx(load * (1 - best.overflow), rel=1e-12)
        end = reached(best)
        assert end.accesses[0] == pytest.approx(reads, abs=1e-11)
        assert end.overflow[0] == pytest.approx(best.overflow, rel=1e-8)
        for held in np.atleast_2d(end.occupancy[0]):
            assert difference(held, best.occupancy) < 1e-9


@pytest.mark.parametrize("overflow", [1e-9, 1e-4, 0.005, 0.5, 0.99])
@pytest.mark.parametrize("load", [0.01, 1, 8, 1e4])
def test_optimal_single(load: float, overflow: float) -> None:
    best = optimal_single(load, overflow)
    assert (best.policy, best.reads, best.choices, best.shares) == ("single", 1.0, 1, (1.0,))
    end = reached(best)
    assert end.overflow[0] == pytest.approx(overflow, rel=1e-9)
    assert np.abs(end.occupancy[0] - lower_bound(1, load, overflow).distribution).max() < 1e-12
    assert best.miss_reads == best.miss_reads_coin == 1.0


def test_single_without_overflow_is_never_full() -> None:
    best = optimal_single(8, 0)
    assert (best.threshold, best.coin, best.max_load, best.overflow) == (None, 1.0, None, 0.0)
    assert best.variance == pytest.approx(8.0)
    assert best.miss_reads == 1.0


def test_multilevels_overflow_in_closed_form() -> None:
    """Section 9: 0.5 % at a = 1.2, d = 3, whatever the load; and d = 2, 3 solved by hand."""
    q = (math.sqrt(1.8) - 1) / 2  # q + q*q = 0.2
    for load in (0.1, 8, 25.6, 1e4):
        best = optimal_multilevel(1.2, load, 3)
        assert 0.0048 < best.overflow < 0.0052
        assert best.overflow == pytest.approx(q**3, rel=1e-13)
        assert best.shares == pytest.approx([1 / 1.2, q / 1.2, q * q / 1.2], rel=1e-13)
        two = optimal_multilevel(1.2, load, 2)
        assert two.overflow == pytest.approx(0.04, rel=1e-13)
        assert two.shares == pytest.approx([5 / 6, 1 / 6], rel=1e-13)
    assert optimal_multilevel(1 + 1e-6, 8, 3).overflow == pytest.approx(1e-18, rel=1e-5)
    for reads, choices in [(1.5, 4), (3.99, 4), (1.0001, 64), (63.0, 64)]:
        best = optimal_multilevel(reads, 8, choices)
        q = best.overflow ** (1 / choices)
        assert sum(q**j for j in range(choices)) == pytest.approx(reads, rel=1e-12)
        assert sum(best.shares) == pytest.approx(1.0, abs=1e-15)


def test_sequential_in_the_paper() -> None:
    """Section 8 reads "1 %" off its Figure 4(a) at a = 1.1, load 8: it is 0.587 %."""
    assert optimal_sequential(1.1, 8, 3).overflow == pytest.approx(0.00587, abs=5e-6)
    best = optimal_sequential(1.2, 8, 3)
    assert best.threshold is not None
    ode = sequential_equations(8, best.threshold, best.coin, 3)
    assert ode.accesses[0] == pytest.approx(1.2, abs=1e-10)
    assert ode.overflow[0] == pytest.approx(best.overflow, rel=1e-8)
    # With more overflow allowed the budget ends early, and the bound is reached as well.
    bound = lower_bound(1.2, 8, 0.1)
    _, coin, _ = best_distribution(1.2, 8.0, 0.1)
    early = sequential(8, bound.threshold, coin, 3, reads=1.2)
    assert early.overflow[0] == pytest.approx(0.1, rel=1e-10)
    assert np.abs(early.occupancy[0] - bound.distribution).max() < 1e-12


def test_figure_4() -> None:
    reads = np.linspace(1.01, 2.9, 15)
    loads = np.array([0.1, 0.5, 1, 2, 4, 8, 16, 64, 256, 4096])
    by_reads = {p: optimality_region(p, 3, reads=reads, load=8) for p in ("sequential", "multilevel")}
    by_load = {p: optimality_region(p, 3, reads=1.2, load=loads) for p in ("sequential", "multilevel")}
    for region in (by_reads, by_load):
        assert (region["sequential"] > region["multilevel"]).all()
    assert (np.diff(by_reads["sequential"]) > 0).all()
    assert (np.diff(by_reads["multilevel"]) > 0).all()
    assert (np.diff(by_load["sequential"]) > 0).all()  # "MHT scales better to higher loads"
    assert np.ptp(by_load["multilevel"]) == 0.0
    # Between refusals that never vary, and refusals of nobody and then of everybody:
    assert by_load["sequential"][0] == pytest.approx(by_load["multilevel"][0], rel=0.1)
    assert 0.09 < by_load["sequential"][-1] < 0.2 / 2
    assert optimality_region("single", 1, reads=1, load=loads).tolist() == [0.0] * 10
    assert optimality_region("multilevel", 3, reads=[[1.1], [1.2]], load=loads).shape == (2, 10)
    assert optimality_region("sequential", 3, reads=1.2, load=8) == optimal_sequential(1.2, 8, 3).overflow


@settings(max_examples=size(12, 25), deadline=None)
@given(st.integers(2, 64), st.floats(0.001, 0.999), st.floats(0.01, 1000.0))
def test_sequential_lies_between(choices: int, part: float, load: float) -> None:
    reads = 1.0 + part * (choices - 1)
    flat = optimal_multilevel(reads, load, choices).overflow
    best = optimal_sequential(reads, load, choices)
    assert flat * (1 - 1e-9) <= best.overflow <= part * (1 + 1e-9)
    end = reached(best)
    assert end.overflow[0] == pytest.approx(best.overflow, rel=1e-8)
    assert end.accesses[0] == pytest.approx(reads, rel=1e-10)


def test_reads_of_an_absent_key() -> None:
    """2.1 to 2.9 at a = 1.2, d = 3, far from the 1.2 of a present one; the coin saves some."""
    for load in (4, 8, 16, 25.6, 64):
        best = optimal_multilevel(1.2, load, 3)
        assert best.threshold is not None
        full = float(best.occupancy[best.threshold :].sum())
        assert best.miss_reads == pytest.approx(1 + full + full**2, rel=1e-12)
        assert 2.1 < best.miss_reads < 2.9
        assert 1.2 < best.miss_reads_coin < best.miss_reads


def test_reads_of_an_absent_key_by_simulation() -> None:
    """20 tables of 2,000 buckets at load 6; 3,000 absent keys in each, by both rules."""
    best = optimal_multilevel(1.25, 6, 3)
    assert best.threshold is not None
    buckets = [round(2000 * share) for share in best.shares]
    samples = []
    for seed in range(20):
        loads, reads, overflow = simulated(6, buckets, [best.threshold] * 3, best.coin, seed)
        rng = random.Random(seed)
        plain = tossed = 0
        for _ in range(3000):
            held = [table[rng.randrange(len(table))] for table in loads]
            accepts = [rng.random() < best.coin for _ in held]
            stops = [k < best.threshold for k in held]
            plain += 1 + (not stops[0]) + (not (stops[0] or stops[1]))
            stops = [s or (k == best.threshold and c) for s, k, c in zip(stops, held, accepts, strict=True)]
            tossed += 1 + (not stops[0]) + (not (stops[0] or stops[1]))
        keys = sum(map(sum, loads)) + overflow
        samples.append([plain / 3000, tossed / 3000, reads / keys])
    assert_means(samples, [best.miss_reads, best.miss_reads_coin, 1.25])


# --- what is returned ----------------------------------------------------------------------------


def test_results_are_values() -> None:
    best = optimal_multilevel(1.2, 8, 3)
    assert best == optimal_multilevel(1.2, 8.0, 3)
    assert hash(best) == hash(optimal_multilevel(1.2, 8.0, 3))
    assert best != optimal_multilevel(1.2, 9, 3)
    assert lower_bound(1.2, 8) == lower_bound(1.2, np.float64(8.0))
    assert "occupancy" not in repr(best)
    with pytest.raises(FrozenInstanceError):
        best.coin = 0.0  # type: ignore[misc]
    course = sequential(8, 9, 0.5, 3)
    for array in (best.occupancy, lower_bound(1.2, 8).distribution, course.occupancy, course.overflow):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_the_times_asked_for_stay_writable() -> None:
    times = np.array([0.5, 1.0])
    single(8, 9, 0.5, times)
    times[0] = 0.25
    assert sequential(8, 9, 0.5, 3, times).times.tolist() == [0.25, 1.0]


def test_the_examples() -> None:
    found = [doctest.testmod(module) for module in (balance, over_time, study_balance)]
    assert sum(each.failed for each in found) == 0
    assert sum(each.attempted for each in found) > 25


# --- wrong arguments -----------------------------------------------------------------------------

ROWS = [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: lower_bound("1.2", 8), TypeError, ["reads must be", "'1.2' (str)", "such as 1.2"]),
        (lambda: lower_bound(True, 8), TypeError, ["reads must be", "True (bool)"]),
        (lambda: lower_bound(0, 8), ValueError, ["reads must be a number above 0", "got 0 (int)"]),
        (lambda: lower_bound(1001, 8), ValueError, ["reads", "at most 1000"]),
        (lambda: lower_bound(math.nan, 8), ValueError, ["reads", "nan"]),
        (lambda: lower_bound(0.9, 8), ValueError, ["reads", "1 - overflow = 1", "overflow=0.1"]),
        (lambda: lower_bound(0.5, 8, 0.25), ValueError, ["reads=0.75", "overflow=0.5"]),
        (lambda: lower_bound(1.2, 0), ValueError, ["load must be", "above 0", "got 0", "keys / buckets"]),
        (lambda: lower_bound(1.2, math.inf), ValueError, ["load", "at most 1e+06", "inf"]),
        (lambda: lower_bound(1.2, 10**400), ValueError, ["load", "an int of 1329 bits"]),
        (lambda: lower_bound(1.2, 8, -0.1), ValueError, ["overflow must be", "at least 0", "-0.1", "or 0"]),
        (lambda: lower_bound(1.2, 8, 1), ValueError, ["overflow", "below 1", "got 1 (int)"]),
        (lambda: lower_bound(1.2, 8, None), TypeError, ["overflow", "None (NoneType)"]),
        (lambda: optimal_single(8, 1.5), ValueError, ["overflow", "1.5"]),
        (
            lambda: optimal_sequential(3.2, 8, 3),
            ValueError,
            ["reads", "below choices=3", "choices=4 or more"],
        ),
        (lambda: optimal_multilevel(3, 8, 3), ValueError, ["reads", "below choices=3", "choices=4"]),
        (lambda: optimal_multilevel(70, 8, 3), ValueError, ["reads", "below choices=3", "at most 2.9"]),
        (lambda: optimal_multilevel(1, 8, 3), ValueError, ["reads", "above 1", "optimal_single"]),
        (lambda: optimal_multilevel(math.inf, 8, 3), ValueError, ["reads", "inf"]),
        (lambda: optimal_multilevel(1.2, 8, 1), ValueError, ["choices", "from 2 to 64", "optimal_single"]),
        (lambda: optimal_multilevel(1.2, 8, 3.0), TypeError, ["choices", "an integer", "3.0 (float)"]),
        (lambda: optimal_multilevel(1.2, 8, 65), ValueError, ["choices", "from 2 to 64", "65"]),
        (lambda: optimal_multilevel(1.2, 8, np.array([2, 3])), TypeError, ["choices", "array([2, 3])"]),
        (lambda: single(8, -1, 0.5), ValueError, ["threshold", "from 0 to 1000000", "-1", "None"]),
        (lambda: single(8, 9.5, 0.5), TypeError, ["threshold", "an integer", "9.5"]),
        (lambda: single(8, 9, 1.1), ValueError, ["coin must be a chance from 0 to 1", "1.1"]),
        (lambda: single(8, 9, 0.5, -1), ValueError, ["time must be", "at least 0", "-1"]),
        (lambda: single(8, 9, 0.5, []), ValueError, ["time must be one moment or several"]),
        (lambda: single(8, 9, 0.5, "now"), TypeError, ["time", "'now' (str)"]),
        (lambda: single(8, 9, 0.5, 1e9), ValueError, ["time must be at most 1.25e+08 here"]),
        (lambda: sequential(8, 9, 0.5, 0), ValueError, ["choices", "from 1 to 64"]),
        (lambda: sequential(8, 9, 0.5, 3, [[1.0]]), ValueError, ["times must be", "[[1.0]]"]),
        (lambda: sequential(8, 9, 0.5, 3, [math.nan]), ValueError, ["times must be", "nan"]),
        (lambda: sequential(8, 9, 0.5, 3, reads=0), ValueError, ["reads", "above 0, or None"]),
        (lambda: sequential_equations(8, None, 0.5, 3), TypeError, ["thresholds", "an integer", "None"]),
        (lambda: sequential_equations(8, 9, 0.5, 3, reads=0), ValueError, ["reads", "above 0, or None"]),
        (lambda: multilevel_equations(8, [9], 0.5, [0.5, 0.5]), ValueError, ["thresholds", "2 shares"]),
        (lambda: multilevel(8, 9, 0.5, [0.6, 0.3]), ValueError, ["shares", "sum 1", "[0.666667, 0.333333]"]),
        (lambda: multilevel(8, 9, 0.5, [1.0, 0.0]), ValueError, ["shares", "above 0"]),
        (lambda: multilevel(8, 9, 0.5, []), ValueError, ["shares", "1 to 64 fractions"]),
        (lambda: multilevel(8, 9, 0.5, [math.inf, 0.5]), ValueError, ["shares", "inf"]),
        (lambda: multilevel(8, 9, 0.5, [0.5, [0.5]]), ValueError, ["shares"]),
        (
            lambda: multilevel(8, 0, 0.0, [1 - 1e-10, 1e-10]),
            ValueError,
            ["shares", "Table 2 would receive 8e+10"],
        ),
        (lambda: multilevel(8, [9], 0.5, [0.5, 0.5]), ValueError, ["thresholds", "each of the 2 shares"]),
        (lambda: multilevel(8, [9, "8"], 0.5, [0.5, 0.5]), TypeError, ["thresholds[1]", "'8' (str)"]),
        (lambda: multilevel(8, "9", 0.5, [0.5, 0.5]), TypeError, ["thresholds", "'9' (str)"]),
        (lambda: multilevel(8, None, 0.5, [0.5, 0.5]), TypeError, ["thresholds", "None"]),
        (lambda: optimality_region("fill", 3, reads=1.2, load=8), ValueError, ["policy", "'fill'", "single"]),
        (lambda: optimality_region(3, 3, reads=1.2, load=8), TypeError, ["policy", "3 (int)"]),
        (lambda: optimality_region("single", 3, reads=1, load=8), ValueError, ["choices", '1 for "single"']),
        (lambda: optimality_region("single", 1, reads=1.2, load=8), ValueError, ["reads", '1 for "single"']),
        (lambda: optimality_region("multilevel", 3, reads=[1, 2], load=8), ValueError, ["reads", "above 1"]),
        (lambda: optimality_region("multilevel", 3, reads="a", load=8), TypeError, ["reads", "'a'"]),
        (
            lambda: optimality_region("multilevel", 3, reads=[1.1, 1.2], load=[1, 2, 3]),
            ValueError,
            ["reads and load", "broadcast", "(2,)", "(3,)"],
        ),
        (lambda: uniform_deviation([0.5, 0.4], ROWS), ValueError, ["fractions", "sum 1"]),
        (lambda: uniform_deviation([1.0], ROWS), ValueError, ["fractions", "as many as"]),
        (lambda: uniform_deviation([0.5, 0.5], [0.5, 0.5]), ValueError, ["distributions", "rows"]),
        (lambda: uniform_deviation([0.5, 0.5], [[0.5, 0.5], [1.0]]), ValueError, ["distributions"]),
        (lambda: uniform_deviation([0.5, 0.5], [[1.5, -0.5], [0, 1]]), ValueError, ["distributions"]),
        (lambda: uniform_overall([0.5, 0.5], ROWS, tolerance=-1), ValueError, ["tolerance", "at least 0"]),
    ],
)
def test_wrong_arguments(call: Callable[[], object], kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 400
