"""Multilevel tables and summaries: the calculators against exact integers, brute force and the thesis.

Exact laws are compared with fractions of Python's integers, entry by entry, and at the thesis' sizes with
80-bit arithmetic (digits for 100,000 keys are constants here: `_long_law` takes two minutes for them).
"""

from __future__ import annotations

import doctest
import importlib
import itertools
import math
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from evenbins.study.theory import multilevel, summary_failures
from evenbins.theory import counting, fpr, multilevel_law, summary_rates

SMALL = (40_000, 10_000, 5_000, 2_500, 2_500)
LARGE = (400_000, 100_000, 50_000, 25_000, 12_500, 12_500)
FILTERS = ((106_000, 7), (87_500, 49), (5_500, 49), (500, 49), (100, 49))
LARGE_FILTERS = ((1_060_000, 7), (875_000, 49), (550_000, 49), (1_000, 49), (1_000, 49), (1_000, 49))


@cache
def exact_laws(keys: int, sizes: tuple[int, ...]) -> list[dict[int, tuple[Fraction, Fraction]]]:
    """Give P(|S_i| = l) and E[keys in T_i; |S_i| = l] as fractions, for i = 1 ... d."""
    prior = {keys: Fraction(1)}
    out = []
    for size in sizes:
        found: dict[int, list[Fraction]] = {}
        ways = {0: 1}  # of j keys, by those turned away: out of size**j
        for j in range(max(prior) + 1):
            if prior.get(j):
                for left, number in ways.items():
                    chance = prior[j] * Fraction(number, size**j)
                    entry = found.setdefault(left, [Fraction(0), Fraction(0)])
                    entry[0] += chance
                    entry[1] += chance * (j - left)
            after: dict[int, int] = {}
            for left, number in ways.items():
                if size > j - left:
                    after[left] = after.get(left, 0) + number * (size - j + left)
                if j > left:
                    after[left + 1] = after.get(left + 1, 0) + number * (j - left)
            ways = after
        out.append({left: (chance, held) for left, (chance, held) in found.items()})
        prior = {left: chance for left, (chance, _) in found.items()}
    return out


def relative(ours: float, exact: Fraction) -> float:
    return abs(float(Fraction(ours) / exact - 1)) if exact else abs(ours)


@pytest.mark.parametrize(
    ("keys", "sizes"),
    [
        (1, (1,)), (7, (3,)), (5, (1, 1)), (12, (4, 30, 2)), (40, (160, 40, 20, 10, 10)), (60, (20, 20, 20)),
        (150, (600, 150, 75)), (10, (50,) * 8),
    ],
)  # fmt: skip
def test_laws_are_those_of_exact_integers(keys: int, sizes: tuple[int, ...]) -> None:
    """Every entry above 1e-250, to a relative error of 1e-12."""
    laws = multilevel.distribution(keys, sizes)
    assert (laws[0].first, laws[0].chance.tolist()) == (keys, [1.0])
    for law, exact in zip(laws[1:], exact_laws(keys, sizes), strict=True):
        assert law.exact
        for left, (chance, held) in exact.items():
            if chance > Fraction(10) ** -250:
                assert relative(law.probability(left), chance) < 1e-12
                assert relative(float(law.held[left - law.first]), held) < 1e-12
        assert relative(law.mean, sum(left * each[0] for left, each in exact.items())) < 1e-12
    crisis = sum(chance for left, (chance, _) in exact_laws(keys, sizes)[-1].items() if left)
    assert relative(multilevel.crisis_probability(keys, sizes), crisis) < 1e-12
    means = [sum(held for _, held in each.values()) for each in exact_laws(keys, sizes)]
    for ours, exact_mean in zip(multilevel.expected_keys(keys, sizes), means, strict=True):
        assert relative(ours, exact_mean) < 1e-12


def test_a_tiny_crisis_is_no_rounding_error() -> None:
    """Ten keys, eight sub-tables: 1 - P(0) would be 0 or 1e-16."""
    sizes = (1000,) * 8
    crisis = multilevel.crisis_probability(10, sizes)
    exact = sum(chance for left, (chance, _) in exact_laws(10, sizes)[-1].items() if left)
    assert 0 < crisis < 1e-20
    assert relative(crisis, exact) < 1e-12


def test_laws_are_those_of_all_cases() -> None:
    """All hash values of four keys in sub-tables of 3, 2 and 1 buckets."""
    sizes, keys = (3, 2, 1), 4
    cases: list[Counter[int]] = [Counter() for _ in sizes]
    own = list(itertools.product(*map(range, sizes)))
    for hashed in itertools.product(own, repeat=keys):
        taken: set[tuple[int, int]] = set()
        left = [0] * len(sizes)
        for key in hashed:
            for place in enumerate(key):
                if place not in taken:
                    taken.add(place)
                    break
                left[place[0]] += 1
        for count, number in zip(cases, left, strict=True):
            count[number] += 1
    for law, count in zip(multilevel.distribution(keys, sizes)[1:], cases, strict=True):
        for number in range(keys + 1):
            assert law.probability(number) == pytest.approx(count[number] / len(own) ** keys, rel=1e-13)


def _long_law(first: int, prior: np.ndarray, size: int) -> tuple[int, np.ndarray]:
    """Do what cpp/leftover.cpp does, in long doubles and without its normalisation."""
    most = first + len(prior) - 1
    chance, low = np.ones(1, dtype=np.longdouble), 0
    out = np.zeros(most + 1, dtype=np.longdouble)
    numbers = np.arange(most + 2).astype(np.longdouble)
    for j in range(most + 1):
        if j >= first:
            out[low : low + len(chance)] += prior[j - first] * chance
        turned = numbers[low : low + len(chance)]
        after = np.zeros(len(chance) + 1, dtype=np.longdouble)
        after[:-1] = chance * (size - j + turned)
        after[1:] += chance * (j - turned)
        after /= size
        if j % 16 == 0:
            kept = np.flatnonzero(after >= 1e-60)
            after, low = after[kept[0] : kept[-1] + 1], low + int(kept[0])
        chance = after
    kept = np.flatnonzero(out > 1e-60)
    return int(kept[0]), out[kept[0] : kept[-1] + 1]


def test_the_thesis_small_table_in_long_doubles() -> None:
    first, chance = 10_000, np.ones(1, dtype=np.longdouble)
    for law, size in zip(multilevel.distribution(10_000, SMALL)[1:], SMALL, strict=True):
        first, chance = _long_law(first, chance, size)
        ours = law.chance[first - law.first :][: len(chance)]
        seen = chance > 1e-40
        assert np.abs(ours[seen] / chance[seen] - 1).max() < 1e-12
    assert float(chance[1 - first :].sum()) == pytest.approx(1.0070201815563955e-12, rel=1e-12)


def test_the_thesis_large_table_to_the_digits_of_long_doubles() -> None:
    """P(|S_i| >= 1) from i = 3 on, E|S_1| and E|S_2|; constants of `_long_law`, with 1e-250 for 1e-60."""
    laws = multilevel.distribution(100_000, LARGE)
    assert [law.mean for law in laws[1:3]] == pytest.approx(LONG_MEANS, rel=1e-12)
    assert [law.tail(1) for law in laws[3:]] == pytest.approx(LONG_TAILS, rel=1e-12)
    assert max(law.lost for law in laws) < 1e-280


LONG_MEANS = [11520.215878317023906, 638.7977909418046835]
LONG_TAILS = [
    0.9825029979838809431,
    0.00033083658354674586583,
    5.8578355781086040786e-12,
    6.641358843389217835e-24,
]


def test_the_thesis_crises() -> None:
    assert multilevel.crisis_probability(10_000, SMALL) == pytest.approx(1.00702e-12, rel=5e-6)
    assert multilevel.crisis_probability(100_000, LARGE) == pytest.approx(6.6414e-24, rel=1e-5)


def test_laws_that_are_taken_as_normal(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 keys, as if that were too many: means, variances, and the crisis to a few percent."""
    exact = multilevel.distribution(100_000, LARGE)
    multilevel_law._laws.cache_clear()
    monkeypatch.setattr(multilevel_law, "EXACT_KEYS", 5000)
    normal = multilevel.distribution(100_000, LARGE)
    multilevel_law._laws.cache_clear()
    assert [law.exact for law in normal] == [True, False, False, False, False, False, False]
    for law, other in zip(normal[1:], exact[1:], strict=True):
        assert law.mean == pytest.approx(other.mean, rel=1e-3)
        assert math.fsum(law.held) == pytest.approx(math.fsum(other.held), rel=1e-3)
    for law, other in zip(normal[1:4], exact[1:4], strict=True):
        assert law.mean == pytest.approx(other.mean, rel=1e-5)
        assert law.variance == pytest.approx(other.variance, rel=1e-3)
    assert normal[-1].tail(1) == pytest.approx(exact[-1].tail(1), rel=0.05)


def test_many_keys_in_few_buckets() -> None:
    for size in (1, 2, 3, 1000):
        law = multilevel.distribution(10**6, [size])[1]
        assert law.mean == pytest.approx(10**6 - size)
        assert math.fsum(law.held) == pytest.approx(size)


def test_ten_million_keys_are_quick_and_plausible() -> None:
    sizes = multilevel.skewed_sizes(10**7, 7)
    laws = multilevel.distribution(10**7, sizes)
    rough = multilevel.expected_keys(10**7, sizes, approximate=True)
    assert multilevel.expected_keys(10**7, sizes)[:3] == pytest.approx(rough[:3], rel=1e-4)
    assert 0 < laws[-1].tail(1) < 1e-15


# --- bounds and moves ------------------------------------------------------------------------------------


def test_the_bound_of_the_theorem_is_one() -> None:
    for keys, sizes in ((10_000, SMALL), (100_000, LARGE), (40, (160, 40, 20, 10, 10))):
        assert multilevel.crisis_probability(keys, sizes) <= multilevel.crisis_bound(keys, sizes) <= 1
    far = multilevel.crisis_bound(10**9, multilevel.skewed_sizes(10**9, 12))
    assert far < 1e-9  # where the asymptotics begin


def test_the_lemma_has_c2_to_the_i() -> None:
    z = 1000.0
    closed = multilevel.collision_sequence(1000, first=3, factor=0.5, levels=6)
    for i in range(7):
        assert closed[i] == pytest.approx(z, rel=1e-12)
        z = z * z / (3 * 0.5**i * 1000)
    assert multilevel.collision_sequence(1000, first=3, factor=0.5, levels=64)[64] == 0.0
    with pytest.raises(ValueError, match=r"first \* factor must be above 1"):
        multilevel.collision_sequence(1000, first=1, factor=0.5, levels=3)


def test_moves_of_a_rebuild() -> None:
    assert multilevel.rebuild_moves(9_999, 909, SMALL) == pytest.approx(100.02, abs=0.005)
    assert multilevel.rebuild_moves(9_999, 909, SMALL, model="first") == pytest.approx(118.34, abs=0.005)
    for model in multilevel.DELETIONS:
        assert multilevel.rebuild_moves(100, 0, (50, 50), model=model) == 0.0
    assert multilevel.rebuild_moves(100, 100, (50, 50)) == 0.0
    assert multilevel.rebuild_moves(5, 4, (1, 9), model="first") == 1.0  # |S_1| = 4 > n = 1


def test_moves_into_the_first_sub_table_of_all_cases() -> None:
    """All hash values and deletions of five keys in three buckets."""
    keys, size = 5, 3
    for deleted in range(keys + 1):
        total = 0
        subsets = list(itertools.combinations(range(keys), deleted))
        for hashed in itertools.product(range(size), repeat=keys):
            for gone in map(set, subsets):
                for bucket in range(size):
                    here = [x for x in range(keys) if hashed[x] == bucket]
                    total += bool(here) and here[0] in gone and not gone.issuperset(here)
        exact = total / (size**keys * len(subsets))
        assert multilevel.moves_into_first(keys, deleted, size) == pytest.approx(exact, rel=1e-12)


# --- summaries -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "sizes", "bits", "single", "filters", "printed"),
    [
        (10_000, SMALL, 55, (120_000, 15), FILTERS, (1.3886e-9, 7.6398e-10, 4.972e-12)),
        (100_000, LARGE, 61, (1_200_000, 15), LARGE_FILTERS, (2.1684e-9, 7.2677e-9, 1.38e-11)),
    ],
)
def test_table_43(
    keys: int, sizes: tuple[int, ...], bits: int, single: tuple[int, int],
    filters: tuple[tuple[int, int], ...], printed: tuple[float, float, float],
) -> None:  # fmt: skip
    crisis = multilevel.crisis_probability(keys, sizes)
    found = (
        multilevel.interpolation_failure(keys, bits),
        sum(multilevel.single_filter_failures(keys, sizes, *single)),
        sum(multilevel.multiple_bloom_failures(keys, sizes, filters)),
    )
    assert [each + crisis for each in found] == pytest.approx(list(printed), rel=1e-3)
    exact = (
        sum(multilevel.single_filter_failures(keys, sizes, *single, partitioned=False)),
        sum(multilevel.multiple_bloom_failures(keys, sizes, filters, partitioned=False)),
    )
    for part, whole in zip(found[1:], exact, strict=True):
        assert 0.9 * part < whole < part


def test_failures_are_the_sum_of_the_thesis() -> None:
    """(4.4), with the factor that its print lost: 60 keys, all terms by fractions' laws."""
    keys, sizes, m, k = 60, (100, 40, 20), 90, 3
    found = multilevel.single_filter_failures(keys, sizes, m, k)
    for ours, exact in zip(found, exact_laws(keys, sizes)[:-1], strict=True):
        rates = {left: (1 - (1 - Fraction(k, m)) ** left) ** k for left in exact}
        assert relative(ours, sum(held * rates[left] for left, (_, held) in exact.items())) < 1e-12


def test_rates_of_filters() -> None:
    for keys in (0, 1, 5, 300):
        exact = (1 - (1 - Fraction(7, 100)) ** keys) ** 7
        assert relative(multilevel.filter_rate(100, 7, keys), exact) < 1e-12
        set_bits = fpr.occupancy(100, 7 * keys)
        mean = float(np.sum(set_bits * (np.arange(len(set_bits)) / 100) ** 7))
        assert multilevel.filter_rate(100, 7, keys, partitioned=False) == pytest.approx(mean, rel=1e-11)
    assert multilevel.filter_rate(7, 7, 0) == 0.0
    assert multilevel.filter_rate(7, 7, 1) == 1.0


def test_rates_of_unpartitioned_filters_are_interpolated_for_many_keys() -> None:
    size = multilevel.FilterSize(2_000_000, 9)
    band = summary_failures.rates_of_filter(size, 199_000, 2001, False)
    for at in (0, 17, 1000, 1999, 2000):
        exact = summary_rates.unpartitioned_rate(*size, 199_000 + at)
        assert band[at] == pytest.approx(exact, rel=1e-11)


def test_digests() -> None:
    exact = 1 - math.prod(Fraction(2**20 - i, 2**20) for i in range(50))
    assert relative(multilevel.interpolation_failure(50, 20), exact) < 1e-12
    exact = 1 - math.prod(Fraction(2**40 - i, 2**40) for i in range(200))
    assert relative(multilevel.interpolation_failure(200, 40), exact) < 1e-12
    assert multilevel.interpolation_failure(5, 2) == 1.0
    assert multilevel.interpolation_failure(2**21, 30) == 1.0
    assert multilevel.interpolation_false_positives(10_000, 55) == pytest.approx(2.7756e-13, rel=1e-4)
    assert multilevel.interpolation_false_positives(100_000, 61) == pytest.approx(4.3368e-14, rel=1e-4)


def test_tails_of_counters() -> None:
    """B_0 has a fixed number of keys; B_2 an average over |S_2|, listed by fractions."""
    ours = multilevel.counter_tail(10_000, SMALL, 0, 106_000, 7, 12)
    assert ours == pytest.approx(106_000 * counting.binomial_tail(70_000, 1 / 106_000, 12), rel=1e-12)
    keys, sizes, m, k = 40, (60, 20, 10), 30, 2
    for once in (False, True):
        expected = 0.0
        for left, (chance, _) in exact_laws(keys, sizes)[1].items():
            hits, rate = (left, 1 - (1 - 1 / m) ** k) if once else (left * k, 1 / m)
            tail = sum(math.comb(hits, i) * rate**i * (1 - rate) ** (hits - i) for i in range(3, hits + 1))
            expected += float(chance) * min(m * tail, 1.0)
        found = multilevel.counter_tail(keys, sizes, 2, m, k, 3, once=once)
        assert found == pytest.approx(expected, rel=1e-11)


def test_bytes_of_table_43() -> None:
    assert multilevel.occupancy_bytes(SMALL) == 7_500
    assert multilevel.interpolation_bytes(100_000, LARGE, 61) == 875_000
    assert multilevel.single_filter_bytes(LARGE, 1_200_000) == 525_000
    assert multilevel.multiple_bloom_bytes(LARGE, LARGE_FILTERS) == 386_000
    assert multilevel.multiple_bloom_bytes(LARGE[:-1], LARGE_FILTERS[:-1]) == 385_875 - 1_562
    assert multilevel.level_bits([5]) == 1
    assert [multilevel.level_bits([5] * levels) for levels in (2, 4, 5, 8, 9)] == [1, 2, 3, 3, 4]


# --- sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", multilevel.KINDS)
@pytest.mark.parametrize(
    ("keys", "failure", "positives"), [(1, 1e-3, 0.01), (500, 1e-6, 1e-3), (10_000, 5e-12, 0.006)]
)
def test_a_size_meets_its_need(kind: str, keys: int, failure: float, positives: float) -> None:
    size = multilevel.size_summary(keys, failure, positives, kind)
    assert size.crisis == multilevel.crisis_probability(keys, size.sizes)
    assert size.crisis + size.failure <= failure * (1 + 1e-9)
    assert size.false_positives <= positives
    assert size.occupancy_bytes == multilevel.occupancy_bytes(size.sizes) <= size.nbytes
    if kind == "interpolation":
        assert size.digest_bits > 0
        fewer = multilevel.interpolation_failure(keys, size.digest_bits - 1) if size.digest_bits > 1 else 1.0
        rate = multilevel.interpolation_false_positives(keys, max(size.digest_bits - 1, 1))
        assert size.digest_bits == 1 or fewer > failure - size.crisis or rate > positives
    else:
        assert size.digest_bits == 0
        (cells, hashes), *_ = size.filters
        if kind == "multiple-bloom":
            assert len(size.filters) == len(size.sizes)
            assert multilevel.filter_rate(cells - 1, hashes, keys) > positives
    assert size.to_dict()["kind"] == kind
    assert kind in str(size)


def test_a_size_is_smaller_than_the_thesis_for_the_same_need() -> None:
    """32,450 bytes fail with 4.97e-12 in Table 4.3; false positives 0.0062."""
    ours = multilevel.size_summary(10_000, 4.972e-12, 0.00617)
    assert ours.sizes[0] == 40_000
    assert ours.nbytes < 32_450
    single = multilevel.size_summary(10_000, 7.65e-10, 0.0064, "single-filter")
    assert single.filters[0].cells <= 120_000


def test_many_keys_are_sized_too() -> None:
    size = multilevel.size_summary(20_000_000, 1e-9, 0.01)
    assert size.crisis + size.failure <= 1e-9
    assert 18 < size.bits_per_key < 30
    assert size.space == pytest.approx(6, rel=0.02)


def test_a_size_that_no_table_reaches_is_refused() -> None:
    with pytest.raises(ValueError, match=r"failure must be one that sub-tables of first=0\.1"):
        multilevel.size_summary(1000, 1e-9, 0.01, first=0.1, factor=0.1)
    for keys, failure, positives, kind, name in (
        (0, 0.1, 0.1, "interpolation", "keys"),
        (10, 0.0, 0.1, "interpolation", "failure"),
        (10, 0.1, 1.0, "interpolation", "false_positives"),
        (10, 0.1, 0.1, "counters", "kind"),
    ):
        with pytest.raises(ValueError, match=f"{name} must be"):
            multilevel.size_summary(keys, failure, positives, kind)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="keys must be an integer"):
        multilevel.distribution(1.5, [3])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keys must be"):
        multilevel.distribution(-1, [3])
    with pytest.raises(TypeError, match="sizes must be the buckets of 1 to 16 sub-tables"):
        multilevel.distribution(1, 7)  # type: ignore[arg-type]
    for sizes in ([], [3] * 17):
        with pytest.raises(ValueError, match="sizes must be the buckets of 1 to 16 sub-tables"):
            multilevel.distribution(1, sizes)
    with pytest.raises(ValueError, match="sizes must be an integer from 1"):
        multilevel.crisis_probability(1, [0])
    with pytest.raises(ValueError, match="deleted must be an integer from 0 to 5"):
        multilevel.rebuild_moves(5, 6, [3])
    with pytest.raises(ValueError, match='model must be "random" or "first"'):
        multilevel.rebuild_moves(5, 2, [3], model="last")
    with pytest.raises(ValueError, match=r"cells must be .*one for each hash"):
        multilevel.filter_rate(3, 4, 1)
    with pytest.raises(ValueError, match=r"filters must be one for each of 2 sub-tables, B_0 ... B_1; got 1"):
        multilevel.multiple_bloom_failures(5, [3, 3], [(9, 2)])
    with pytest.raises(ValueError, match="factor must be a number above 0"):
        multilevel.skewed_sizes(5, 3, factor=1.5)


def test_the_door_needs_no_scipy() -> None:
    code = "import sys; from evenbins.study.theory import multilevel; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "name",
    [
        "theory.multilevel_law",
        "theory.summary_rates",
        "theory.summary_size",
        "study.theory.multilevel",
        "study.theory.summary_failures",
        "study.papers.summary_simulation",
    ],
)
def test_the_examples_of_the_docstrings(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"evenbins.{name}"))
    assert failed == 0
    assert tried > 0
