"""Less hashing: the parts of the law against enumeration, the law against simulation, bounds, the framework.

Enumeration goes through all hash values of small filters. Simulations have a fixed seed; a mean of trials
lies in Student's interval, missed once in a million, widened by half a per cent, by which the law may
be wrong.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import t as student
from sizes import size

from evenbins.study.papers.simulation import simulate_hashing
from evenbins.study.theory import hashing_law as laws
from evenbins.study.theory import hashing_schemes
from evenbins.study.theory import less_hashing as less
from evenbins.theory import fpr

SCHEMES = [
    ("independent", "square"),
    ("partition", "square"),
    ("double", "square"),
    ("enhanced-double", "square"),
    ("enhanced-double", "cube"),
    ("enhanced-double", "tetrahedral"),
    ("triple", "square"),
]
OFFSETS = {
    "none": lambda i: 0,
    "square": lambda i: i * i,
    "cube": lambda i: i**3,
    "tetrahedral": lambda i: (i**3 - i) // 6,
}


# --- the parts, by enumeration ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("bits", [1, 2, 7, 12, 30, 31, 64])
def test_distinct_positions_are_those_of_all_h2(name: str, bits: int) -> None:
    for hashes in (1, 2, 5, 9):
        offsets = [OFFSETS[name](i) for i in range(hashes)]
        counted = Counter(len({(i * h2 + f) % bits for i, f in enumerate(offsets)}) for h2 in range(bits))
        assert laws._distinct(bits, offsets) == pytest.approx(
            [counted[d] / bits for d in range(hashes + 1)], abs=1e-14
        )


def triple_distinct(bits: int, hashes: int) -> list[float]:
    counted = Counter(
        len({(i * h2 + i * (i - 1) // 2 * h3) % bits for i in range(hashes)})
        for h2 in range(bits)
        for h3 in range(bits)
    )
    return [counted[d] / bits**2 for d in range(hashes + 1)]


def test_distinct_positions_of_triple_hashing() -> None:
    for bits, hashes in ((101, 5), (89, 8)):
        assert laws._triple_distinct(bits, hashes) == pytest.approx(triple_distinct(bits, hashes), abs=1e-12)
    for bits, hashes in ((64, 5), (90, 6)):
        assert laws._triple_distinct(bits, hashes) == pytest.approx(triple_distinct(bits, hashes), abs=0.01)


@pytest.mark.parametrize("bits", [7, 12, 30, 36])
@pytest.mark.parametrize("name", OFFSETS)
def test_pairs_are_those_of_all_h2_of_both_keys(name: str, bits: int) -> None:
    """A pair of positions of z and one of x meet for (h2(x), h2(z)) that solve one equation; h1 follows."""
    hashes = 5
    f = [OFFSETS[name](i) for i in range(hashes)]
    h2x, h2z = np.meshgrid(np.arange(bits), np.arange(bits))
    total = 0
    for (i1, i2), (j1, j2) in itertools.product(
        itertools.combinations(range(hashes), 2), itertools.permutations(range(hashes), 2)
    ):
        left = (j2 - j1) * h2x + f[j2] - f[j1] - (i2 - i1) * h2z - f[i2] + f[i1]
        total += int((left % bits == 0).sum())
    hashing, offset = ("double", "square") if name == "none" else ("enhanced-double", name)
    assert laws._pairs(hashing, bits, hashes, offset) == pytest.approx(total / bits)


@pytest.mark.parametrize("bits", [6, 7])
def test_pairs_of_triple_hashing(bits: int) -> None:
    hashes, total = 4, 0
    h2x, h3x, h2z, h3z = np.meshgrid(*[np.arange(bits)] * 4)
    for (i1, i2), (j1, j2) in itertools.product(
        itertools.combinations(range(hashes), 2), itertools.permutations(range(hashes), 2)
    ):
        of_x = (j2 - j1) * h2x + (math.comb(j2, 2) - math.comb(j1, 2)) * h3x
        of_z = (i2 - i1) * h2z + (math.comb(i2, 2) - math.comb(i1, 2)) * h3z
        total += int(((of_x - of_z) % bits == 0).sum())
    assert laws._pairs("triple", bits, hashes, "square") == pytest.approx(total / bits**3)


def shared(bits: int, offsets: Sequence[int], h2: int) -> Counter[int]:
    """Count, by how many positions they share with z = (0, h2), all other keys' values (h1, h2)."""
    hashes = len(offsets)
    of_z = [(i * h2 + f) % bits for i, f in enumerate(offsets)]
    out: Counter[int] = Counter()
    for step in range(bits):
        starts = Counter((at - j * step - f) % bits for at in of_z for j, f in enumerate(offsets))
        out.update(Counter(min(each, hashes) for each in starts.values()))
    return out


def test_shared_progressions_of_double_hashing_are_those_of_all_keys() -> None:
    """A prime, and an h2 of no small relation to it: the closed form is exact."""
    bits, hashes = 10_007, 6
    seen = shared(bits, [0] * hashes, 1234)
    seen[hashes] -= 1  # h2(x) = 0: its one position, counted k times
    predicted = laws._progressions(bits, hashes)
    assert [seen[s] for s in range(2, hashes)] == [predicted[s] for s in range(2, hashes)]
    assert predicted[hashes] == 2  # the same, and reversed


def test_the_square_keeps_shifts_and_reversals_and_the_cubes_do_not() -> None:
    bits, hashes = 10_007, 7
    square = shared(bits, [i * i for i in range(hashes)], 1234)
    assert (square[hashes], *(square[s] for s in range(4, hashes))) == (2, 4, 4, 4)
    for name in ("cube", "tetrahedral"):
        cubes = shared(bits, [OFFSETS[name](i) for i in range(hashes)], 1234)
        assert (cubes[hashes], *(cubes[s] for s in range(4, hashes))) == (1, 0, 0, 0)


@pytest.mark.parametrize("size", [5, 12, 13, 16])
def test_a_partition_is_exact(size: int) -> None:
    hashes = 6
    counted = Counter(
        sum((a + i * b) % size == 0 for i in range(hashes)) for a in range(size) for b in range(size)
    )
    shape = laws._partition_shape(size, hashes)
    assert [shape.shared[s] for s in range(2, hashes + 1)] == pytest.approx(
        [counted[s] / size**2 for s in range(2, hashes + 1)]
    )
    assert shape.shared_of(hashes) == pytest.approx([counted[s] / size**2 for s in range(hashes + 1)])


def test_covering_by_single_hits_is_inclusion_and_exclusion() -> None:
    chance = np.array([0.7, 0.3, 0.0, 0.0])
    expected = sum((-1) ** u * math.comb(3, u) * (1 - 0.1 * u) ** 20 for u in range(4))
    assert laws._cover_chance(3, chance, 20) == pytest.approx(expected, rel=1e-12)
    assert laws._cover_chance(2, np.array([0.5, 0.0, 0.5]), 3) == pytest.approx(1 - 0.5**3)


# --- the law against simulation --------------------------------------------------------------------------


def assert_lies_at(samples: np.ndarray, predicted: float, slack: float = 0.005) -> None:
    trials = len(samples)
    reach = student.ppf(1 - 0.5e-6, trials - 1) * samples.std(ddof=1) / math.sqrt(trials)
    assert abs(samples.mean() - predicted) <= reach + slack * predicted, (samples.mean(), predicted)


@pytest.mark.parametrize(("bits", "hashes", "keys"), [(4000, 3, 1000), (8192, 6, 1000), (16_000, 11, 1000)])
@pytest.mark.parametrize(("hashing", "offset"), SCHEMES)
def test_the_law_agrees_with_simulation(hashing: str, offset: str, bits: int, hashes: int, keys: int) -> None:
    """250 filters, 1000 in a long run, each asked for 200/p keys."""
    queries = math.ceil(200 / less.limit(hashes**2 * keys / bits, hashes))
    seen = simulate_hashing(hashing, bits=bits, hashes=hashes, keys=keys, queries=min(queries, 60_000),
                            offset=offset, trials=size(250, 1000), seed=3, threads=2)  # fmt: skip
    assert_lies_at(seen.fpr, less.rate(hashing, bits, hashes, keys, offset=offset))


def test_the_interval_tells_the_schemes_apart() -> None:
    """1000 filters: the law of independent hashing is refuted by double hashing."""
    seen = simulate_hashing("double", bits=16_000, hashes=11, keys=1000, queries=20_000, trials=1000, seed=3,
                            threads=2)  # fmt: skip
    with pytest.raises(AssertionError):
        assert_lies_at(seen.fpr, less.rate("independent", 16_000, 11, 1000))


def test_the_floor_of_double_hashing() -> None:
    """500 filters of 1000 keys, 1000 in a long run, 200,000 queries each: law and measurement within 5 %."""
    seen = simulate_hashing("double", bits=28_755, hashes=20, keys=1000, queries=200_000,
                            trials=size(500, 1000), seed=5, threads=2)  # fmt: skip
    law = less.law("double", 28_755, 20, 1000)
    assert law.fpr == pytest.approx(3.93e-5, rel=0.01)
    assert seen.fpr.mean() == pytest.approx(law.fpr, rel=0.05)
    assert_lies_at(seen.fpr, law.fpr)
    assert sum(law.terms.values()) == pytest.approx(law.floor, rel=0.02)


def test_a_partition_of_1000_keys_costs_a_factor_of_two() -> None:
    limit = less.limit(11**2 / 16, 11)
    assert less.rate("partition", 16_000, 11, 1000) / limit == pytest.approx(2.05, abs=0.02)


def test_prime_sizes_have_the_lowest_floor_of_double_hashing() -> None:
    prime, smooth = less.floor("double", 28_759, 20, 1000), less.floor("double", 30_030, 20, 1000)
    assert less.floor("double", 28_755, 20, 1000) > 1.4 * prime
    assert smooth > 1.5 * prime


# --- the law by itself -----------------------------------------------------------------------------------


def test_one_hash_and_no_keys_are_what_they_always_are() -> None:
    for hashing, offset in SCHEMES:
        assert less.rate(hashing, 1000, 1, 77, offset=offset) == fpr.standard(1000, 1, 77)
        assert less.rate(hashing, 1000, 5, 0, offset=offset) == 0.0
    assert less.rate("independent", 5000, 7, 500) == fpr.standard(5000, 7, 500)
    assert less.law("independent", 5000, 7, 500).floor == 0


@pytest.mark.parametrize(("hashing", "offset"), SCHEMES)
def test_every_rate_is_a_probability_and_grows_with_the_keys(hashing: str, offset: str) -> None:
    for bits, hashes in ((1, 1), (3, 3), (8, 8), (20, 2), (64, 64), (100, 7), (2**56, 30), (720_720, 64)):
        rates = [less.rate(hashing, bits, hashes, keys, offset=offset) for keys in (0, 1, 3, 10, 1000, 10**9)]
        assert all(0 <= each <= 1 for each in rates)
        assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(rates))


@pytest.mark.parametrize(("hashing", "offset"), SCHEMES)
def test_rates_tend_to_the_limit_as_one_over_n(hashing: str, offset: str) -> None:
    limit = less.limit(36 / 8, 6)
    gaps = [
        keys * abs(less.rate(hashing, 8 * keys, 6, keys, offset=offset) - limit)
        for keys in (3000, 12_000, 48_000)
    ]
    assert gaps == pytest.approx([gaps[0]] * 3, rel=0.05)
    assert gaps[0] < 0.6


def test_the_order_of_the_schemes() -> None:
    for bits, hashes in ((16_001, 11), (28_759, 20)):
        rates = [
            less.rate(hashing, bits, hashes, 1000, offset=offset)
            for hashing, offset in (
                ("independent", "square"), ("triple", "square"), ("enhanced-double", "square"),
                ("double", "square"), ("partition", "square"),
            )
        ]  # fmt: skip
        assert rates == sorted(rates)
    cube = less.rate("enhanced-double", 28_759, 20, 1000, offset="cube")
    assert cube < less.rate("enhanced-double", 28_759, 20, 1000) / 2


# --- bounds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hashing", "offset"), SCHEMES)
def test_the_convergence_bound_bounds(hashing: str, offset: str) -> None:
    for bits_per_key, hashes in ((4, 3), (8, 6), (16, 11)):
        for keys in (300, 3000, 10**5, 10**7):
            bits = bits_per_key * keys // hashes * hashes
            limit = less.limit(hashes**2 * keys / bits, hashes)
            bound = less.convergence_bound(hashing, bits, hashes, keys, offset=offset)
            assert abs(less.rate(hashing, bits, hashes, keys, offset=offset) - limit) <= bound <= 1
        assert bound * keys < 1000 * (hashes / 6) ** 4
    assert less.convergence_bound(hashing, 100, 4, 0, offset=offset) == 0
    assert less.convergence_bound(hashing, 64, 64, 10**6, offset=offset) == 1


def test_concentration_is_the_theorems_exponent() -> None:
    n, load = 10**6, 4.5
    around_mean = less.concentration(0.01, "double", 8 * n, 6, n, around="probability")
    assert around_mean == pytest.approx(2 * math.exp(-2 * n * 0.01**2 / load**2), rel=1e-12)
    bias = abs(less.rate("double", 8 * n, 6, n) - less.limit(load, 6))
    around_limit = less.concentration(0.01, "double", 8 * n, 6, n)
    assert around_limit == pytest.approx(2 * math.exp(-2 * n * (0.01 - bias) ** 2 / load**2), rel=1e-9)
    assert less.concentration(1e-9, "partition", 8000, 6, 1000) == 1
    assert less.concentration(0.5, "triple", 8000, 6, 0) == 0


def test_concentration_holds_for_simulated_filters() -> None:
    """2000 filters of 20,000 keys, rates from 20,000 queries each: none strays as far as one in 100 may."""
    seen = simulate_hashing("double", bits=160_000, hashes=6, keys=20_000, queries=20_000, trials=2000,
                            seed=1, threads=2)  # fmt: skip
    epsilon = 0.0522
    assert 0.005 < less.concentration(epsilon, "double", 160_000, 6, 20_000) < 0.01
    assert (np.abs(seen.fpr - less.limit(4.5, 6)) <= epsilon).all()


# --- the framework ---------------------------------------------------------------------------------------


def test_a_partition_scheme_passes_and_predicts_its_limit() -> None:
    def partition(rng: np.random.Generator, n: int) -> np.ndarray:
        h1, h2 = rng.integers(0, 2 * n, (2, 500, 1))
        part = np.arange(4)
        return part * 2 * n + (h1 + part * h2) % (2 * n)

    found = hashing_schemes.check_scheme(partition)
    assert found.holds is True
    assert found.limit_low < less.limit(16 / 8, 4) < found.limit_high
    assert [each.keys for each in found.sizes] == [500, 1000, 2000, 4000]
    assert found.sizes[-1].several < found.sizes[0].several
    assert found.collisions == pytest.approx(2, rel=0.05)


def test_one_key_at_a_time_works_too() -> None:
    def simple(rng: np.random.Generator, n: int) -> list[int]:
        return rng.integers(0, 4 * n, 3).tolist()

    found = hashing_schemes.check_scheme(simple, (100, 200), rng=np.random.default_rng(1), samples=6400)
    assert found.sizes[0].hashes == 3
    assert found.conditions["even"] is True
    assert found.limit_low < less.limit(9 / 4, 3) < found.limit_high


@pytest.mark.parametrize(
    ("broken", "samples"), [("even", 32_000), ("apart", 32_000), ("index", 32_000), ("linear", 96_000)]
)
def test_each_condition_can_fail(broken: str, samples: int) -> None:
    def scheme(rng: np.random.Generator, n: int) -> np.ndarray:
        many = 8 * n if broken != "linear" else round(n**1.6)
        at = rng.integers(0, many, (1000, 5))
        if broken == "even":
            at = np.where(rng.random(at.shape) < 0.5, at // 4, at)
        elif broken == "apart":
            at = (at[:, :1] + np.arange(5)) % many
        elif broken == "index":
            at[:, 0] //= 2
        return at

    assert hashing_schemes.check_scheme(scheme, samples=samples).conditions[broken] is False


def test_misuse_of_check_scheme() -> None:
    with pytest.raises(TypeError, match=r"scheme must be a function of \(rng, n\); got 3"):
        hashing_schemes.check_scheme(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keys must be two or more numbers, ascending"):
        hashing_schemes.check_scheme(lambda rng, n: [1], (5, 5))
    with pytest.raises(ValueError, match=r"integers: k locations, .* Number the locations"):
        hashing_schemes.check_scheme(lambda rng, n: [0.5])
    with pytest.raises(ValueError, match="as many locations each time"):
        hashing_schemes.check_scheme(lambda rng, n: np.arange(rng.integers(1, 9)))
    with pytest.raises(ValueError, match="as many locations for every n"):
        hashing_schemes.check_scheme(lambda rng, n: np.arange(n), (2, 3), samples=64)


# --- arguments -------------------------------------------------------------------------------------------


def test_values_outside_their_range_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r'hashing must be one of "independent", .*; got .triplet.'):
        less.rate("triplet", 100, 3, 10)
    with pytest.raises(ValueError, match=r'offset must be one of "square", "cube", "tetrahedral"; got'):
        less.floor("double", 100, 3, 10, offset="root")
    with pytest.raises(ValueError, match="bits must be an integer from 1"):
        less.law("double", 0, 3, 10)
    with pytest.raises(ValueError, match="bits must be at least hashes=30, one for each part"):
        less.convergence_bound("partition", 29, 30, 10)
    with pytest.raises(ValueError, match="hashes must be an integer from 1 to 64; got 65"):
        less.rate("double", 100, 65, 10)
    with pytest.raises(TypeError, match="keys must be"):
        less.rate("double", 100, 6, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="epsilon must be a number above 0; got 0"):
        less.concentration(0, "double", 100, 6, 10)
    with pytest.raises(ValueError, match='around must be "limit" or "probability"'):
        less.concentration(0.1, "double", 100, 6, 10, around="mean")
    with pytest.raises(ValueError, match="collisions must be a number of keys, 0 or more; got -1"):
        less.limit(-1, 3)
    with pytest.raises(ValueError, match="collisions must be"):
        less.limit(math.inf, 3)
