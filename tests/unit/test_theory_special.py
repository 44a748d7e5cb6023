"""Tails of Poisson and binomial laws, and roots, against SciPy and against exact sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, special

from evenbins.theory.special import (
    beta_below,
    log_factorial,
    poisson,
    poisson_at_least,
    poisson_below,
    poisson_up_to,
    root,
)

SIZES = {1: 1e-12, 5: 1e-12, 30: 1e-12, 200: 1e-12, 10_000: 1e-10}  # with the error that is allowed


def _near(found: object, expected: object, error: float = 1e-12) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=error, atol=1e-300)


@pytest.mark.parametrize(("size", "error"), SIZES.items())
def test_poisson_tails_are_scipys(size: int, error: float) -> None:
    """Up to four standard deviations off; further out SciPy's own error exceeds 1e-12."""
    rng = np.random.default_rng(size)
    count = rng.integers(1, size, 300, endpoint=True)
    mean = np.maximum(count + np.clip(rng.normal(size=300), -2, 2) * 2 * np.sqrt(count), 1e-3)
    _near(poisson_at_least(count, mean), special.gammainc(count, mean), error)
    _near(poisson_below(count, mean), special.gammaincc(count, mean), error)
    logarithm = special.xlogy(count, mean) - mean - special.gammaln(count + 1)
    _near(poisson(count, mean), np.exp(logarithm), error)


@pytest.mark.parametrize(("size", "error"), SIZES.items())
def test_beta_tails_are_scipys(size: int, error: float) -> None:
    rng = np.random.default_rng(size)
    a, b = rng.integers(1, size, (2, 300), endpoint=True)
    deviation = np.sqrt(a * b / (a + b + 1.0)) / (a + b)
    x = np.clip(a / (a + b) + np.clip(rng.normal(size=300), -2, 2) * 2 * deviation, 1e-6, 1 - 1e-6)
    _near(beta_below(a, b, x), special.betainc(a, b, x), error)


@pytest.mark.parametrize("other", [10**5, 10**7, 10**9])
@pytest.mark.parametrize("few", [10, 1_000, 50_000])
def test_beta_tails_of_few_among_many(few: int, other: int) -> None:
    """The density is as narrow as `few` makes it, on both sides: SciPy's own error is up to 3e-8 here."""
    mean = few / (few + other)
    x = mean * (1.0 + np.array([-3.0, -1.0, -0.01, 0.01, 1.0, 3.0]) / math.sqrt(few))
    _near(beta_below(few, other, x), special.betainc(few, other, x), 1e-7)
    _near(beta_below(other, few, 1.0 - x), special.betainc(other, few, 1.0 - x), 1e-7)


@pytest.mark.parametrize("least", [1e-160, 1e-250, 1e-300])
def test_tails_of_next_to_nothing(least: float) -> None:
    _near(poisson_at_least(1, least), least)
    _near(beta_below(1, 50, least), 50 * least)
    assert poisson_at_least(3, least) == beta_below(3, 50, least) == 0.0
    assert poisson_below(1, least) == poisson_below(3, least) == 1.0


def test_what_is_not_a_number() -> None:
    for found in (
        poisson(math.nan, 1.0), poisson(1, math.nan), poisson_at_least(math.nan, 1.0),
        poisson_below(1, math.nan), beta_below(math.nan, 3, 0.5), beta_below(2, 3, math.nan),
        log_factorial(math.nan),
    ):  # fmt: skip
        assert np.isnan(found)
    assert poisson(-1, 2.0) == poisson_at_least(math.inf, 2.0) == poisson_below(3, math.inf) == 0.0


def test_small_tails_are_exact_sums() -> None:
    """P(Bin(n, p) >= k) in fractions: far out, where the answer is 1e-109."""
    for k, n, p in ((30, 42, 0.0001125), (24, 47, 0.002), (3, 10, 0.1), (1, 50, 1e-9)):
        chance = Fraction(p)
        terms = (math.comb(n, i) * chance**i * (1 - chance) ** (n - i) for i in range(k, n + 1))
        assert float(beta_below(k, n - k + 1, p)) == pytest.approx(float(sum(terms)), rel=2e-12)


def test_tails_of_many_keys() -> None:
    """A billion keys: eight standard deviations below and above, where series would take 10**5 terms.

    Both tails are a normal law's with the first correction of its skewness, (z**3 - 3 z) / (6 sqrt(k)), here
    to 1e-3; SciPy 1.17 is 20 % off.
    """
    k = 10**9
    for z in (-8.0, 8.0):
        mean = k + z * math.sqrt(k)
        found = float(poisson_at_least(k, mean) if z < 0 else poisson_below(k, mean))
        plain = 0.5 * math.erfc(8.0 / math.sqrt(2.0))
        assert found == pytest.approx(plain, rel=2e-2)


def test_edges() -> None:
    assert poisson_at_least(0, 3.0) == poisson_below(5, 0.0) == 1.0
    assert poisson_below(0, 3.0) == poisson_at_least(5, 0.0) == 0.0
    assert beta_below(3, 4, 0.0) == 0.0
    assert beta_below(3, 4, 1.0) == 1.0
    assert poisson_below(2**62, 10.0) == beta_below(7, 2**62, 0.5) == 1.0
    _near(poisson([0, 0, 2], [0.0, 2.0, 0.0]), [1.0, math.exp(-2.0), 0.0])
    _near(poisson_at_least(3, 1e9), 1.0)


def test_factorials_are_scipys() -> None:
    n = np.concatenate([np.arange(300), 10 ** np.arange(3, 13)])
    _near(log_factorial(n), special.gammaln(n + 1.0))


@pytest.mark.parametrize("mean", [0.3, 5.0, 300.0, 20_000.0])
def test_many_poisson_probabilities_at_once(mean: float) -> None:
    most = int(mean + 12 * math.sqrt(mean) + 20)
    np.testing.assert_allclose(poisson_up_to(most, mean), poisson(np.arange(most + 1), mean), rtol=2e-10)
    assert poisson_up_to(2, 0.0).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("f", "low", "high"),
    [
        (math.cos, 1.0, 2.0),
        (lambda x: x**9 - 1e-5, 0.0, 5.0),
        (lambda x: math.exp(x) - 1e5, -10.0, 100.0),
        (lambda x: math.atan(1e6 * (x - 0.3)), 0.0, 1.0),
        (lambda x: x - 0.5, 0.5, 1.0),
    ],
)
def test_roots_are_scipys(f: object, low: float, high: float) -> None:
    calls = []

    def counted(x: float) -> float:
        calls.append(x)
        return float(f(x))  # type: ignore[operator]

    assert root(counted, low, high) == pytest.approx(optimize.brentq(f, low, high, xtol=1e-300, rtol=1e-15))
    assert len(calls) < 80


def test_no_change_of_sign_is_an_error() -> None:
    with pytest.raises(ArithmeticError, match="no root between"):
        root(lambda x: 1.0 + x * x, 0.0, 1.0)
