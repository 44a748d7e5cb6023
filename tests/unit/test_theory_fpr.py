"""The rates of filters, against enumeration, exact rational arithmetic, and themselves inverted.

Nothing here is random and nothing depends on time: every expected value is computed another way.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from evenbins.study.theory import asymptotic
from evenbins.theory import block, fpr

# --- other ways to the same numbers --------------------------------------------------------------


def enumerated_occupancy(bits: int, throws: int) -> list[Fraction]:
    """Every sequence of throws, counted."""
    counts = [0] * (min(bits, throws) + 1)
    for sequence in itertools.product(range(bits), repeat=throws):
        counts[len(set(sequence))] += 1
    return [Fraction(count, bits**throws) for count in counts]


def decimal_standard(bits: int, hashes: int, keys: int) -> Decimal:
    """E[(X/bits)**hashes] and the floor, by inclusion-exclusion on 600 digits."""
    with localcontext(prec=600):
        distinct = {0: Decimal(1)}
        for _ in range(hashes):
            grown: dict[int, Decimal] = {}
            for j, p in distinct.items():
                grown[j] = grown.get(j, Decimal(0)) + p * j / bits
                grown[j + 1] = grown.get(j + 1, Decimal(0)) + p * (bits - j) / bits
            distinct = grown
        rate = Decimal(0)
        for j, p in distinct.items():
            if p:
                missing = (
                    (-1) ** i * math.comb(j, i) * (1 - Decimal(i) / bits) ** (keys * hashes)
                    for i in range(j + 1)
                )
                rate += p * sum(missing)
        floor = 1 - (1 - Decimal(2) ** -64) ** keys
        return rate + (1 - rate) * floor


def fraction_blocked(blocks: int, block_bits: int, hashes: int, keys: int) -> Fraction:
    """Sum over binomial loads and set bits, in rational arithmetic, and the floor."""
    rate = Fraction(0)
    chance = [Fraction(1)] + [Fraction(0)] * block_bits
    for load in range(keys + 1):
        here = Fraction(math.comb(keys, load) * (blocks - 1) ** (keys - load), blocks**keys)
        given = sum((p * Fraction(x, block_bits) ** hashes for x, p in enumerate(chance)))
        rate += here * given
        for _ in range(hashes):
            chance = [
                chance[x] * Fraction(x, block_bits)
                + (chance[x - 1] * Fraction(block_bits - x + 1, block_bits) if x else 0)
                for x in range(block_bits + 1)
            ]
    floor = 1 - (1 - Fraction(1, 2**64)) ** keys
    return rate + (1 - rate) * floor


def mean_and_variance(bits: int, throws: int) -> tuple[float, float]:
    """Of the number of set bits, in closed form, on 60 digits."""
    with localcontext(prec=60):
        one_unset = (Decimal(bits - 1) / bits) ** throws
        two_unset = (Decimal(bits - 2) / bits) ** throws
        variance = bits * one_unset + bits * (bits - 1) * two_unset - (bits * one_unset) ** 2
        return float(bits * (1 - one_unset)), float(variance)


# --- distributions of the number of set bits -----------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "throws"), [(1, 0), (1, 3), (2, 1), (2, 5), (3, 4), (4, 6), (5, 5), (7, 4), (6, 0)]
)
def test_occupancy_is_what_enumeration_counts(bits: int, throws: int) -> None:
    expected = [float(p) for p in enumerated_occupancy(bits, throws)]
    np.testing.assert_allclose(fpr.occupancy(bits, throws), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize(("bits", "throws"), [(10, 100), (256, 200), (512, 448), (1000, 3000)])
def test_occupancy_has_the_known_mean_and_variance(bits: int, throws: int) -> None:
    chance = fpr.occupancy(bits, throws)
    x = np.arange(len(chance))
    mean, variance = mean_and_variance(bits, throws)
    assert chance.sum() == pytest.approx(1, rel=1e-12)
    assert chance @ x == pytest.approx(mean, rel=1e-12)
    assert chance @ (x - mean) ** 2 == pytest.approx(variance, rel=1e-8)
    assert mean / bits == pytest.approx(fpr.standard_fill(bits, 1, throws), rel=1e-12)


def test_occupancy_of_a_huge_filter_is_short() -> None:
    chance = fpr.occupancy(2**56, 3)
    assert len(chance) == 4
    assert chance[2] == pytest.approx(3 * 2.0**-56, rel=1e-12)
    assert chance[1] == pytest.approx(2.0**-112, rel=1e-12)


@pytest.mark.parametrize("load", [0, 1e-6, 0.3, 1, 12.8, 40.5, 700])
def test_set_bits_of_a_block_have_the_mean_of_a_compound_poisson(load: float) -> None:
    chance = block.set_bits_at_load(512, 8, load)
    assert len(chance) == 513
    assert chance.sum() == pytest.approx(1, rel=1e-12)
    unset = math.exp(-load * -math.expm1(8 * math.log1p(-1 / 512)))
    assert chance @ np.arange(513) / 512 == pytest.approx(1 - unset, rel=1e-9, abs=1e-15)


def test_set_bits_of_an_overloaded_block_are_all() -> None:
    chance = block.set_bits_at_load(256, 16, 10_000)
    assert chance[256] == pytest.approx(1, rel=1e-12)


# --- false-positive rates ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "hashes", "keys"),
    [
        (1, 4, 2),
        (5, 8, 3),
        (64, 64, 3),
        (1000, 7, 100),
        (10**6, 64, 10**4),
        (2**30, 40, 2**24),
        (2**45, 1, 10**13),
        (2**45, 5, 10**13),
        (2**45, 20, 10**12),
        (2**56, 3, 2**48),
    ],
)
def test_standard_is_exact_to_fourteen_digits(bits: int, hashes: int, keys: int) -> None:
    expected = decimal_standard(bits, hashes, keys)
    assert abs(Decimal(fpr.standard(bits, hashes, keys)) / expected - 1) < Decimal("3e-14")


@pytest.mark.parametrize(("bits", "hashes", "keys"), [(1, 1, 1), (30, 2, 9), (512, 8, 40), (3000, 11, 200)])
def test_standard_is_the_moment_of_the_occupancy(bits: int, hashes: int, keys: int) -> None:
    chance = fpr.occupancy(bits, hashes * keys)
    moment = chance @ (np.arange(len(chance)) / bits) ** hashes
    assert fpr.standard(bits, hashes, keys) == pytest.approx(moment, rel=1e-12)


@pytest.mark.parametrize(("bits", "hashes", "keys"), [(10**4, 7, 1000), (10**5, 10, 7000)])
def test_standard_is_the_mean_field_with_its_second_order(bits: int, hashes: int, keys: int) -> None:
    mean, variance = mean_and_variance(bits, hashes * keys)
    correction = 1 + hashes * (hashes - 1) / 2 * variance / mean**2
    expected = (mean / bits) ** hashes * correction
    assert fpr.standard(bits, hashes, keys) == pytest.approx(expected, rel=1e-6)
    assert fpr.standard(bits, hashes, keys) != pytest.approx((mean / bits) ** hashes, rel=1e-6)


@pytest.mark.parametrize(
    ("blocks", "block_bits", "hashes", "keys"),
    [
        (1, 1, 1, 1),
        (1, 8, 3, 5),
        (2, 8, 9, 4),
        (7, 16, 4, 20),
        (1000, 16, 8, 6),
        (10**6, 32, 5, 12),
        (3, 64, 6, 30),
    ],
)
def test_blocked_is_exact_for_few_blocks_and_small_rates(
    blocks: int, block_bits: int, hashes: int, keys: int
) -> None:
    expected = float(fraction_blocked(blocks, block_bits, hashes, keys))
    assert fpr.blocked(blocks, block_bits, hashes, keys) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("load", "hashes"),
    [(0.01, 8), (0.5, 4), (3.2, 27), (13, 16), (32, 10), (100, 3), (600, 1), (2000, 14)],
)
def test_blocked_is_the_moment_of_the_set_bits_of_many_blocks(load: float, hashes: int) -> None:
    blocks = 10**10
    keys = round(load * blocks)
    chance = block.set_bits_at_load(512, hashes, load)
    moment = chance @ (np.arange(513) / 512) ** hashes
    floor = fpr.digest_floor(keys)
    assert fpr.blocked(blocks, 512, hashes, keys) == pytest.approx(moment + (1 - moment) * floor, rel=1e-8)


def test_one_block_is_a_standard_filter() -> None:
    for hashes, keys in [(1, 1), (5, 30), (9, 60), (16, 400)]:
        assert fpr.blocked(1, 512, hashes, keys) == pytest.approx(fpr.standard(512, hashes, keys), rel=1e-13)
        assert fpr.blocked_fill(1, 512, hashes, keys) == pytest.approx(
            fpr.standard_fill(512, hashes, keys), rel=1e-13
        )


@pytest.mark.parametrize(
    ("bits_per_key", "hashes", "expected"),
    [(16, 10, 8.461198e-4), (24, 12, 5.329837e-5), (32, 14, 5.382226e-6)],
)
def test_blocked_gives_the_known_rates(bits_per_key: int, hashes: int, expected: float) -> None:
    keys = 10**9
    rate = fpr.blocked(keys * bits_per_key // 512, 512, hashes, keys) - fpr.digest_floor(keys)
    assert rate == pytest.approx(expected, rel=2e-7)


def test_the_textbook_formulas_are_too_low() -> None:
    keys = 10**8
    for bits_per_key, hashes, too_low in [(16, 10, 1.03), (24, 12, 1.05), (39, 16, 1.09)]:
        large = (keys * bits_per_key // 512, 512, hashes, keys)
        small = (keys * bits_per_key // 256, 256, hashes, keys)
        ratio = fpr.blocked(*large) / asymptotic.blocked_asymptotic(*large)
        assert ratio == pytest.approx(too_low, abs=0.005)
        assert fpr.blocked(*small) / asymptotic.blocked_asymptotic(*small) > 1 + 1.7 * (ratio - 1)
    for bits in (10, 100, 1000):
        assert fpr.standard(bits, 7, bits // 10) > asymptotic.standard_asymptotic(bits, 7, bits // 10)
    rate = fpr.standard(10**9, 7, 10**8) - fpr.digest_floor(10**8)
    assert rate == pytest.approx(asymptotic.standard_asymptotic(10**9, 7, 10**8), rel=1e-7)


def test_no_keys_no_false_positives_and_too_many_keys_only_those() -> None:
    assert fpr.standard(100, 3, 0) == fpr.blocked(10, 512, 3, 0) == 0
    assert fpr.standard_fill(100, 3, 0) == fpr.blocked_fill(10, 512, 3, 0) == 0
    assert fpr.standard(1, 64, 1) == 1
    assert fpr.standard_fill(1, 1, 1) == fpr.blocked_fill(1, 1, 1, 1) == 1
    assert fpr.standard(64, 5, 10**9) == pytest.approx(1, abs=1e-12)
    assert fpr.blocked(1, 512, 8, 10**9) == pytest.approx(1, abs=1e-12)


def test_no_rate_is_below_the_digest_floor() -> None:
    for keys in (1, 1000, 10**9, 2**48):
        floor = fpr.digest_floor(keys)
        assert floor == pytest.approx(keys * 2.0**-64, rel=1e-4)
        assert fpr.standard(2**56, 64, keys) >= floor
        assert fpr.blocked(2**47, 512, 32, keys) >= floor
    assert fpr.standard(2**40, 64, 1000) == fpr.digest_floor(1000)


def test_rates_fall_with_size_and_rise_with_keys() -> None:
    for hashes in (1, 4, 13):
        by_size = [fpr.standard(bits, hashes, 50) for bits in range(1, 1500, 7)]
        by_keys = [fpr.standard(700, hashes, keys) for keys in range(0, 300, 3)]
        by_blocks = [fpr.blocked(blocks, 256, hashes, 300) for blocks in range(1, 60)]
        by_load = [fpr.blocked(9, 256, hashes, keys) for keys in range(0, 900, 9)]
        # Full filters agree to rounding; hence <= up to the last digits there, and < below.
        for falling in (by_size, by_blocks, by_keys[::-1], by_load[::-1]):
            pairs = list(itertools.pairwise(falling))
            assert all(b <= a * (1 + 1e-13) for a, b in pairs)
            assert all(b < a for a, b in pairs if a < 0.999)


# --- hashes --------------------------------------------------------------------------------------


def test_best_hashes_of_standard_filters_are_the_best_of_all() -> None:
    for keys in (1, 2, 10, 1000):
        for bits in (1, 2, 3, 5, 8, 13, 40, 150, 1000, 9600, 30_000):
            rates = [fpr.standard(bits, k, keys) for k in range(1, 65)]
            best = fpr.best_hashes_standard(bits, keys)
            assert rates[best - 1] == pytest.approx(min(rates), rel=1e-13)


def test_best_hashes_of_blocked_filters_are_the_best_of_all() -> None:
    for block_bits in (256, 512):
        for blocks, keys in itertools.product((1, 2, 7, 100), (1, 10, 60, 1000, 20_000)):
            rates = [fpr.blocked(blocks, block_bits, k, keys) for k in range(1, 33)]
            best = fpr.best_hashes_blocked(blocks, block_bits, keys)
            assert rates[best - 1] == pytest.approx(min(rates), rel=1e-13)


def test_blocks_want_fewer_hashes_than_the_textbook_says() -> None:
    keys = 10**7
    assert fpr.best_hashes_standard(32 * keys, keys) == round(32 * math.log(2)) == 22
    assert fpr.best_hashes_blocked(32 * keys // 512, 512, keys) == 15
    assert fpr.best_hashes_blocked(32 * keys // 256, 256, keys) == 12


def test_hashes_beyond_the_floor_are_not_spent() -> None:
    few = fpr.best_hashes_standard(4096 * 1000, 1000)
    assert few < 64
    assert fpr.standard(4096 * 1000, few, 1000) == fpr.standard(4096 * 1000, 64, 1000)


# --- from the rate to the size -------------------------------------------------------------------

KEYS = (1, 2, 17, 1000, 10**6, 10**9, 10**13, 2**48)
RATES = (0.999, 0.5, 0.1, 0.01, 1e-3, 1e-6, 1e-9, 1e-12, 1e-15)


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("hashes", [None, 1, 3, 16])
def test_standard_bits_inverts_standard(keys: int, hashes: int | None) -> None:
    def rate_of(bits: int) -> float:
        return fpr.standard(bits, hashes or fpr.best_hashes_standard(bits, keys), keys)

    for rate in RATES:
        if rate < rate_of(fpr.MAX_BITS):
            with pytest.raises(ValueError, match="fpr must be at least"):
                fpr.standard_bits(keys, rate, hashes)
            continue
        bits = fpr.standard_bits(keys, rate, hashes)
        assert rate_of(bits) <= rate
        assert bits == 1 or rate < rate_of(bits - 1)


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("hashes", [None, 1, 8, 32])
@pytest.mark.parametrize("block_bits", [256, 512])
def test_blocked_blocks_inverts_blocked(keys: int, hashes: int | None, block_bits: int) -> None:
    def rate_of(blocks: int) -> float:
        k = hashes or fpr.best_hashes_blocked(blocks, block_bits, keys)
        return fpr.blocked(blocks, block_bits, k, keys)

    for rate in RATES:
        if rate < rate_of(fpr.MAX_BITS // block_bits):
            with pytest.raises(ValueError, match="fpr must be at least"):
                fpr.blocked_blocks(keys, rate, block_bits, hashes)
            continue
        blocks = fpr.blocked_blocks(keys, rate, block_bits, hashes)
        assert rate_of(blocks) <= rate
        assert blocks == 1 or rate < rate_of(blocks - 1)


def test_the_least_size_is_the_least_of_all() -> None:
    for keys, rate in [(1, 0.3), (3, 0.02), (9, 0.001), (20, 0.1)]:
        sizes = range(1, 1000)
        expected = next(
            bits for bits in sizes if any(fpr.standard(bits, k, keys) <= rate for k in range(1, 17))
        )
        assert fpr.standard_bits(keys, rate) == expected
        expected = next(b for b in sizes if fpr.blocked(b, 8, 3, keys) <= rate)
        assert fpr.blocked_blocks(keys, rate, 8, 3) == expected


def test_a_rate_returns_the_size_it_came_from() -> None:
    for bits, hashes, keys in [(1000, 7, 100), (12_345, 3, 999), (10**9, 10, 10**8)]:
        assert fpr.standard_bits(keys, fpr.standard(bits, hashes, keys), hashes) == bits
    for blocks, hashes, keys in [(10, 7, 300), (12_345, 10, 400_000), (10**7, 14, 10**8)]:
        rate = fpr.blocked(blocks, 512, hashes, keys)
        assert fpr.blocked_blocks(keys, rate, 512, hashes) == blocks


def test_bits_per_key_for_a_millionth() -> None:
    keys = 10**7
    assert fpr.standard_bits(keys, 1e-6) / keys == pytest.approx(28.7553, abs=1e-4)
    assert fpr.blocked_blocks(keys, 1e-6, 512) * 512 / keys == pytest.approx(38.825, abs=1e-3)


@pytest.mark.parametrize("keys", [1, 10**6, 2**48])
@pytest.mark.parametrize("hashes", [None, 2])
def test_the_least_rate_named_by_the_message_can_be_had(keys: int, hashes: int | None) -> None:
    with pytest.raises(ValueError, match="or split the keys over several filters") as caught:
        fpr.standard_bits(keys, 1e-30, hashes)
    least = float(str(caught.value).split()[5])
    assert fpr.standard_bits(keys, least, hashes) <= fpr.MAX_BITS
    with pytest.raises(ValueError, match="got 1e-30") as caught:
        fpr.blocked_blocks(keys, 1e-30, 512, hashes)
    least = float(str(caught.value).split()[5])
    assert fpr.blocked_blocks(keys, least, 512, hashes) * 512 <= fpr.MAX_BITS


# --- reads, and keys from fill -------------------------------------------------------------------


def test_miss_reads_are_a_geometric_sum() -> None:
    assert fpr.standard_miss_reads(0.0, 7) == 1
    assert fpr.standard_miss_reads(1.0, 7) == 7
    assert fpr.standard_miss_reads(0.5, 10) == pytest.approx((1 - 0.5**10) / 0.5, rel=1e-15)


def test_keys_come_back_from_the_expected_fill() -> None:
    for keys in (1, 100, 5000):
        bits, blocks = 2**40, 2**31
        set_bits = round(bits * fpr.standard_fill(bits, 7, keys * 10**6))
        estimate = fpr.keys_from_standard_fill(bits, 7, set_bits)
        assert estimate == pytest.approx(keys * 10**6, rel=1e-6)
        set_bits = round(blocks * 512 * fpr.blocked_fill(blocks, 512, 7, keys * 10**6))
        estimate = fpr.keys_from_blocked_fill(blocks, 512, 7, set_bits)
        assert estimate == pytest.approx(keys * 10**6, rel=1e-6)


def test_keys_from_fill_of_many_blocks_is_the_poisson_formula() -> None:
    blocks, hashes, fill = 10**9, 8, 0.4
    expected = -blocks * math.log(1 - fill) / (1 - (1 - 1 / 512) ** hashes)
    estimate = fpr.keys_from_blocked_fill(blocks, 512, hashes, round(fill * blocks * 512))
    assert estimate == pytest.approx(expected, rel=1e-9)


def test_empty_filters_have_no_keys_and_full_ones_any_number() -> None:
    assert fpr.keys_from_standard_fill(1, 3, 0) == fpr.keys_from_blocked_fill(1, 512, 3, 0) == 0
    assert fpr.keys_from_standard_fill(1, 3, 1) == math.inf
    assert fpr.keys_from_standard_fill(64, 3, 64) == math.inf
    assert fpr.keys_from_blocked_fill(2, 256, 3, 512) == math.inf
    assert fpr.keys_from_standard_fill(1000, 1, 1) == pytest.approx(1, rel=1e-12)


# --- arguments -----------------------------------------------------------------------------------


def test_values_outside_their_range_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"bits must be .* at least 1; got 0"):
        fpr.standard(0, 3, 10)
    with pytest.raises(ValueError, match=r"hashes must be .* at least 1; got 0"):
        fpr.blocked(5, 512, 0, 10)
    with pytest.raises(ValueError, match=r"keys must be .* at least 0; got -1"):
        fpr.standard_fill(10, 3, -1)
    with pytest.raises(ValueError, match=r"keys must be .* at least 1; got 0"):
        fpr.standard_bits(0, 0.1)
    with pytest.raises(ValueError, match=r"set_bits must be at most the 64 bits .* got 65"):
        fpr.keys_from_standard_fill(64, 3, 65)
    with pytest.raises(ValueError, match=r"fill must be .* got 1\.5"):
        fpr.standard_miss_reads(1.5, 3)
    for load in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="load must be"):
            asymptotic.poisson_loads(load)
    for rate in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="fpr must be a rate between 0 and 1"):
            fpr.blocked_blocks(10, rate, 512)
    with pytest.raises(TypeError):
        fpr.standard(10.5, 3, 10)  # type: ignore[arg-type]
