"""Kirsch's chapters 2.1 and 3: the simulator of hashing schemes against its twin, and what the rows must say.

Means of trials are compared with predictions by Student's interval, missed once in a million.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from experiments import run_once
from scipy.stats import binom
from scipy.stats import t as student

import reference
from evenbins import _study
from evenbins.study import papers
from evenbins.study.papers import Result, kirsch
from evenbins.study.papers.simulation import simulate_hashing
from evenbins.study.theory import less_hashing
from evenbins.theory import fpr

WORD = 2**64
SCHEMES = [
    ("independent", "square"),
    ("partition", "square"),
    ("double", "square"),
    ("enhanced-double", "square"),
    ("enhanced-double", "cube"),
    ("enhanced-double", "tetrahedral"),
    ("triple", "square"),
]


# --- the simulator and its twin --------------------------------------------------------------------------


class Xoshiro:
    """xoshiro256++, from the definition of Blackman and Vigna."""

    def __init__(self, seed: int) -> None:
        self.s = [reference.keys.splitmix(seed, i) for i in range(4)]

    def below(self, most: int) -> int:
        s = self.s
        total = (s[0] + s[3]) % WORD
        out = ((total << 23 | total >> 41) + s[0]) % WORD
        shifted = (s[1] << 17) % WORD
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = (s[3] << 45 | s[3] >> 19) % WORD
        return out * most >> 64


def positions(hashing: str, offset: str, bits: int, hashes: int, rng: Xoshiro) -> Any:
    """Give a key's positions, one after the other, as the thesis defines them."""
    if hashing == "independent":
        for _ in range(hashes):
            yield rng.below(bits)
        return
    size = bits // hashes if hashing == "partition" else bits
    h1, h2 = rng.below(size), rng.below(size)
    h3 = rng.below(size) if hashing == "triple" else 0
    for i in range(hashes):
        f = {"square": i * i, "cube": i**3, "tetrahedral": (i**3 - i) // 6}[offset]
        if hashing == "partition":
            yield i * size + (h1 + i * h2) % size
        elif hashing == "triple":
            yield (h1 + i * h2 + i * (i - 1) // 2 * h3) % size
        else:
            yield (h1 + i * h2 + (f if hashing == "enhanced-double" else 0)) % size


@pytest.mark.parametrize(
    ("bits", "hashes", "keys"), [(97, 5, 12), (64, 8, 7), (700, 64, 9), (3, 2, 1), (5, 1, 2)]
)
@pytest.mark.parametrize(("hashing", "offset"), SCHEMES)
def test_the_simulator_is_its_twin(hashing: str, offset: str, bits: int, hashes: int, keys: int) -> None:
    seen = simulate_hashing(hashing, bits=bits, hashes=hashes, keys=keys, queries=200, offset=offset,
                            trials=3, seed=4, threads=2)  # fmt: skip
    for trial in range(3):
        rng = Xoshiro(reference.keys.splitmix(4, trial))
        held = {at for _ in range(keys) for at in positions(hashing, offset, bits, hashes, rng)}
        assert seen.set_bits[trial] == len(held)
        found = sum(
            all(at in held for at in positions(hashing, offset, bits, hashes, rng)) for _ in range(200)
        )
        assert seen.positives[trial] == found


def test_threads_and_further_trials_change_nothing() -> None:
    given: dict[str, Any] = {"bits": 800, "hashes": 6, "keys": 100, "queries": 300, "seed": 2}
    one = simulate_hashing("triple", trials=50, **given)
    more = simulate_hashing("triple", trials=90, threads=3, **given)
    assert one.positives.tolist() == more.positives[:50].tolist()
    assert one.set_bits.tolist() == more.set_bits[:50].tolist()
    assert (
        one.positives.tolist()
        != simulate_hashing("triple", trials=50, **given | {"seed": 3}).positives.tolist()
    )


def test_no_keys_no_positives_and_no_queries_no_rate() -> None:
    empty = simulate_hashing("double", bits=10, hashes=3, keys=0, queries=10, trials=2)
    assert empty.positives.tolist() == empty.set_bits.tolist() == [0, 0]
    assert simulate_hashing("double", bits=10, hashes=3, keys=9, queries=0).fpr.tolist() == [0.0]


@pytest.mark.parametrize("hashing", ["independent", "partition"])
def test_fills_are_exact(hashing: str) -> None:
    """2000 filters."""
    seen = simulate_hashing(hashing, bits=6000, hashes=6, keys=800, queries=0, trials=2000, seed=1, threads=2)
    chance = 1 / 6000 if hashing == "independent" else 1 / 1000
    fill = 1 - (1 - chance) ** (4800 if hashing == "independent" else 800)
    assert_mean(seen.fill, fill)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hashing": "quadruple"}, "hashing must be one of independent, .*, not 'quadruple'"),
        ({"offset": "root"}, "offset must be one of square, cube, tetrahedral, not 'root'"),
        ({"bits": 0}, "bits must be 1 to 4294967296, not 0"),
        ({"hashes": 65}, "hashes must be 1 to 64, not 65"),
        ({"hashing": "partition", "bits": 4}, "bits must be one for each of 5 parts at least, not 4"),
        ({"keys": -1}, "keys must be 0 to"),
        ({"queries": -1}, "queries must be 0 to"),
        ({"trials": 0}, "trials must be 1 to"),
        ({"threads": 0}, "threads must be 1 to"),
    ],
)
def test_misuse_is_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"hashing": "double", "bits": 100, "hashes": 5, "keys": 9, "queries": 9}
    with pytest.raises(ValueError, match=message):
        simulate_hashing(**given | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hashing": "quadruple"}, "unknown hashing: quadruple"),
        ({"bits": 0}, "bits must be 1 to"),
        ({"hashes": 0}, "hashes must be 1 to 64, not 0"),
        ({"hashing": "partition", "bits": 4}, "bits must be one for each of 5 parts"),
        ({"trials": 0}, "trials must be 1 or more"),
        ({"threads": 0}, "threads must be 1 or more"),
    ],
)
def test_the_core_checks_by_itself(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"hashing": "double", "bits": 100, "hashes": 5, "keys": 9, "queries": 9,
                             "trials": 1, "seed": 0, "threads": 1}  # fmt: skip
    with pytest.raises(ValueError, match=message):
        _study.simulate_hashing(**given | changes)


# --- what the rows say -----------------------------------------------------------------------------------


def result(id: str) -> Result:
    return run_once(id)


def at(found: Result, quantity: str, **where: object) -> papers.Row:
    (one,) = [each for each in found.rows if each.quantity == quantity and dict(each.where) == where]
    return one


def assert_mean(samples: np.ndarray, predicted: float) -> None:
    reach = student.ppf(1 - 0.5e-6, len(samples) - 1) * samples.std(ddof=1) / math.sqrt(len(samples))
    assert abs(samples.mean() - predicted) <= reach


def test_section_212_sums_the_tail() -> None:
    """500 filters of 80,000 counters."""
    found = result("kirsch-sec2.1.2")
    misprint = at(found, "overflow", counter_bits=4)
    assert misprint.paper == 1.78e-11
    assert misprint.ours == pytest.approx(5.658e-12, rel=1e-4)
    assert "2**-52" in (misprint.note or "")
    seen, bound = at(found, "overflow_simulated", counter_bits=3), at(found, "overflow", counter_bits=3)
    low, high = binom.ppf([0.5e-6, 1 - 0.5e-6], 500, bound.ours)
    assert low <= seen.ours * 500 <= high
    assert at(found, "fpr", counter_bits=4).ours == pytest.approx(0.0214, abs=5e-5)


def test_figure_31_the_law_is_met() -> None:
    """200 filters a point, about ten false positives in each."""
    found = result("kirsch-fig3.1")
    points = [each for each in found.rows if each.quantity == "fpr"]
    assert len(points) == 5 * 3 * 4
    for each in points:
        theory = at(found, "fpr_theory", **each.where).ours
        reach = student.ppf(1 - 0.5e-6, 199) * (each.sd or 0) / math.sqrt(200)
        assert abs(each.ours - theory) <= reach + 0.005 * theory
    limit = at(found, "fpr_limit", hashing="independent", keys=1000, bits_per_key=16).ours
    partition = at(found, "fpr_theory", hashing="partition", keys=1000, bits_per_key=16).ours
    assert partition / limit == pytest.approx(2.05, abs=0.02)
    assert at(found, "fpr_limit", hashing="independent", keys=5000, bits_per_key=8).paper == 0.021577


def test_figure_31_takes_the_better_of_two_numbers_of_hashes() -> None:
    assert [kirsch._best_hashes(c)[0] for c in (4, 8, 12, 16)] == [3, 6, 8, 11]


def test_figure_32_the_binomial_fits() -> None:
    """1000 filters a scheme; chi-squared of about 18 cells is below 3.5 of them but once in a million."""
    found = result("kirsch-fig3.2")
    assert at(found, "queries", scheme="limit").ours == 464
    assert at(found, "p", scheme="limit").ours == pytest.approx(0.021577, abs=5e-7)
    for scheme in kirsch._OF_THESIS:
        assert at(found, "fit_theory", scheme=scheme).ours < 3.5
        assert at(found, "mean", scheme=scheme).ours == pytest.approx(
            10.01, abs=4.9 * 3.13 / math.sqrt(1000) + 0.1
        )
        assert at(found, "sd", scheme=scheme).ours == pytest.approx(3.13, rel=0.15)
    chances = kirsch._binomial(464, 0.0216)
    assert chances == pytest.approx(binom.pmf(np.arange(465), 464, 0.0216), rel=1e-9, abs=1e-300)


def test_figure_32_the_fit_tells_laws_apart() -> None:
    rng = np.random.default_rng(1)
    counts = np.bincount(rng.binomial(464, 0.0216, 10_000), minlength=465)
    assert kirsch._fit(counts, kirsch._binomial(464, 0.0216)) < 2.5
    assert kirsch._fit(counts, kirsch._binomial(464, 0.0230)) > 5


def test_section_35_the_gap_is_what_the_law_says_and_below_the_bound() -> None:
    """1000 filters, 4000 queries each."""
    found = result("kirsch-sec3.5")
    for each in found.rows:
        if each.quantity == "gap":
            theory = at(found, "gap_theory", **each.where).ours
            error = at(found, "gap_error", **each.where).ours
            assert abs(each.ours - theory) <= 5 * error + 0.02
            assert each.ours <= at(found, "gap_bound", **each.where).ours
    partition = [at(found, "gap_theory", scheme="partition", keys=keys).ours for keys in (300, 1200)]
    assert partition == pytest.approx([0.5255, 0.5255], rel=0.01)


def test_theorem_381_failures_are_rarer_than_the_bound() -> None:
    """50 sketches a stream, 10,000 queries each."""
    found = result("kirsch-thm3.8.1")
    for each in found.rows:
        if each.quantity == "failure":
            bound = at(found, "failure_bound", **each.where).ours
            assert each.ours <= bound <= float(each.where["epsilon"])
            assert at(found, "underestimates", **each.where).ours == 0
    for epsilon in (0.1, 0.03, 0.01):
        seen = at(found, "failure", stream="heavy", epsilon=epsilon)
        theory = at(found, "failure_theory", stream="heavy", epsilon=epsilon).ours
        reach = student.ppf(1 - 0.5e-6, 49) * (seen.sd or 0) / math.sqrt(50)
        assert abs(seen.ours - theory) <= reach + 0.005 * theory
    assert (
        at(found, "width", stream="zipf", epsilon=0.01).ours,
        at(found, "depth", stream="zipf", epsilon=0.01).ours,
    ) == (547, 5)


def test_the_widths_are_primes() -> None:
    assert [kirsch._next_prime(n) for n in (2, 4, 55, 544)] == [2, 5, 59, 547]


def test_independent_hashing_is_the_standard_filter() -> None:
    """2000 filters of 300 keys, 2000 queries each: exact, no slack."""
    seen = simulate_hashing("independent", bits=2400, hashes=6, keys=300, queries=2000, trials=2000, seed=8,
                            threads=2)  # fmt: skip
    assert_mean(seen.fpr, fpr.standard(2400, 6, 300))
    assert less_hashing.rate("independent", 2400, 6, 300) == fpr.standard(2400, 6, 300)
