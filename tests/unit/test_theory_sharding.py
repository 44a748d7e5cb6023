"""The mathematics of shards: tails against sums of their own terms, placements against counting, plans."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest

from evenbins import design
from evenbins.filters import (
    plan_blocked,
    plan_sharded,  # fmt: skip
)
from evenbins.filters.sharded import ShardedFilter
from evenbins.theory import sharding
from evenbins.theory.sharding import (
    largest_shard,
    moved,
    overflow_probability,
    shard_capacity,
    shards_touched,
)
from reference.keys import mulhi, splitmix


def tail_by_terms(keys: int, shards: int, most: int) -> float:
    """P(Bin > most) as a sum of terms, the first by Loader's saddle point (exact to ~1e-15 for any size)."""

    def stirling_error(n: float) -> float:
        if n < 16:
            return math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2 * math.pi)
        return 1 / (12 * n) - 1 / (360 * n**3) + 1 / (1260 * n**5) - 1 / (1680 * n**7)

    def deviance(x: float, mean: Fraction) -> float:  # x ln(x/mean) + mean - x
        v = float((Fraction(x) - mean) / (Fraction(x) + mean))
        if abs(v) > 0.1:
            return x * math.log(float(Fraction(x) / mean)) + float(mean - Fraction(x))
        total, term, j = float(Fraction(x) - mean) * v, 2 * x * v, 1
        while True:
            term *= v * v
            more = total + term / (2 * j + 1)
            if more == total:
                return total
            total, j = more, j + 1

    k, p = most + 1, Fraction(1, shards)
    log_term = stirling_error(keys) - stirling_error(k) - stirling_error(keys - k)
    log_term -= deviance(k, keys * p) + deviance(keys - k, keys * (1 - p))
    term = math.exp(log_term) * math.sqrt(keys / (2 * math.pi * k * (keys - k)))
    total, odds = 0.0, float(p / (1 - p))
    while term > total * 1e-17:
        total += term
        term *= (keys - k) / (k + 1) * odds
        k += 1
    return total


@pytest.mark.parametrize(
    ("keys", "shards", "sigmas"),
    [
        (1000, 10, 2), (10**6, 100, 5), (10**9, 1000, 5), (10**12, 1000, 5.9), (10**12, 2000, 3),
        (10**13, 2**20, 6),
    ],
)  # fmt: skip
def test_the_tail_is_the_sum_of_its_terms(keys: int, shards: int, sigmas: float) -> None:
    mean = keys / shards
    most = round(mean + sigmas * math.sqrt(mean))
    expected = tail_by_terms(keys, shards, most)
    assert float(sharding._tail(keys, shards, most)) == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("keys", [1, 7, 1000, 10**6, 10**9, 10**12])
@pytest.mark.parametrize("shards", [1, 2, 7, 1000])
@pytest.mark.parametrize("exceed", [1e-2, 1e-6])
def test_the_capacity_is_the_least_that_holds(keys: int, shards: int, exceed: float) -> None:
    capacity = shard_capacity(keys, shards, exceed)
    assert keys / shards <= capacity <= keys
    assert overflow_probability(keys, shards, capacity)[1] <= exceed
    if capacity > -(-keys // shards):
        assert overflow_probability(keys, shards, capacity - 1)[1] > exceed
    low, high = overflow_probability(keys, shards, capacity)
    assert high - high**2 / 2 <= low * (1 + 1e-9) + 1e-300
    assert low <= high


def test_the_tail_of_small_numbers_is_exact() -> None:
    """All ways of putting 6 keys into 3 shards: the bracket holds the truth."""
    for most in range(7):
        ways = sum(
            math.factorial(6) // (math.factorial(a) * math.factorial(b) * math.factorial(6 - a - b))
            for a in range(7)
            for b in range(7 - a)
            if max(a, b, 6 - a - b) > most
        )
        low, high = overflow_probability(6, 3, most)
        assert low - 1e-12 <= ways / 3**6 <= high + 1e-12


def test_the_fullest_shard_of_two_is_exact() -> None:
    """E max of (X, n - X) is n/2 + E|X - n/2|."""
    n = 1000
    exact = n / 2 + sum(math.comb(n, k) * abs(k - n / 2) for k in range(n + 1)) / 2**n
    found = largest_shard(n, 2)
    assert found - n / 2 == pytest.approx(exact - n / 2, rel=0.03)
    assert largest_shard(5, 1) == 5.0
    coarse, fine = largest_shard(10**9, 1000), 10**6 + 3.2414 * 1000  # E max of 1000 normals: 3.2414
    assert coarse == pytest.approx(fine, abs=10)


@pytest.mark.parametrize(("a", "b"), [(1, 2), (3, 4), (9, 10), (4, 6), (5, 10), (6, 6), (12, 9), (7, 100)])
def test_keys_move_as_the_formulas_say(a: int, b: int) -> None:
    whole = 2 * math.lcm(a, b)
    by_mod = sum(x % a != x % b for x in range(whole)) / whole
    middles = [(2 * x + 1) / (2 * whole) for x in range(whole)]
    by_range = sum(int(x * a) != int(x * b) for x in middles) / whole
    assert moved(a, b, "mod") == pytest.approx(by_mod, abs=1e-12)
    assert moved(a, b, "range") == pytest.approx(by_range, abs=1e-12)
    assert moved(a, b) == pytest.approx(1 - min(a, b) / max(a, b), abs=1e-12)
    assert moved(a, b) <= moved(a, b, "range") + 1e-12
    assert moved(a, b, "mod") == moved(b, a, "mod")


def test_a_batch_touches_the_shards_that_counting_says() -> None:
    every = [(x, y) for x in range(5) for y in range(5)]
    assert shards_touched(5, 2) == pytest.approx(sum(len(set(each)) for each in every) / 25)
    assert shards_touched(1, 9) == 1.0
    assert shards_touched(7, 0) == 0.0
    assert plan_sharded(1000, shards=5).shards_touched(2) == pytest.approx(1.8)


@pytest.mark.parametrize("policy", ["standard", "blocked", "fill"])
@pytest.mark.parametrize("size", [2_000, 40_000, 10**6])
def test_the_fewest_shards_that_fit_are_taken(policy: str, size: int) -> None:
    plan = plan_sharded(100_000, fpr=1e-3, shard_bytes=size, policy=policy)
    assert plan.shard_bytes <= size
    if plan.shards > 1:
        assert plan_sharded(100_000, fpr=1e-3, shards=plan.shards - 1, policy=policy).shard_bytes > size
    assert plan.nbytes == plan.shards * plan.shard_bytes
    assert plan.shard.fpr <= 1e-3
    assert plan.fpr <= plan.shard.fpr
    assert plan.exceed <= 1e-6


def test_one_shard_is_the_plan_of_one_filter() -> None:
    plan = plan_sharded(10_000, fpr=1e-3, shards=1)
    assert plan.shard == plan_blocked(10_000, fpr=1e-3)
    assert plan.shard.keys == 10_000
    assert plan.fpr == plan.shard.fpr
    assert plan.exceed == 0.0


def test_bits_per_key_count_the_whole() -> None:
    plan = plan_sharded(1_000_000, bits_per_key=16, shards=10)
    assert plan.bits_per_key == pytest.approx(16, rel=1e-3)
    assert plan.shard.bits_per_key < 16


def test_the_rate_is_the_mean_over_binomial_shards() -> None:
    """Three points against the whole sum, where shards are small and the rate varies most."""
    plan = plan_sharded(1000, fpr=1e-3, shards=10, policy="standard")
    mean = sum(
        math.comb(1000, k) * 0.1**k * 0.9 ** (1000 - k) * plan.shard.with_keys(k).fpr for k in range(1, 300)
    )
    assert plan.fpr == pytest.approx(mean, rel=2e-2)


def test_times_follow_from_the_rate() -> None:
    plan = plan_sharded(1e12, fpr=1e-3, shards=999, build_rate=1e8, added=1)
    assert plan.rebuild_seconds == 1e4
    assert plan.grow_seconds == pytest.approx(10)
    assert plan.moved == pytest.approx(1e-3)
    assert plan.moved_by_range == pytest.approx(0.5)
    assert plan_sharded(1e6, shards=3).rebuild_seconds is None


# --- design --------------------------------------------------------------------------------------------


def test_a_deployment_of_1e12_keys_is_planned_without_memory() -> None:
    designs = design.sharded_filter(
        keys=1e12, fpr=1e-3, shard_bytes=2**30, build_rate=2e7, policies=["blocked", "standard"]
    )
    assert [each.policy for each in designs] == ["blocked", "standard"]
    best = designs.best.plan
    assert best.shard_bytes <= 2**30 < best.shard_bytes * 1.01
    assert best.fpr <= 1e-3
    assert best.shards == 1811
    assert "13.9 h" in str(designs)
    assert "1_811" in designs._repr_html_()
    json.dumps(designs.to_dict())
    with pytest.raises(MemoryError, match="TB"):
        designs.build()
    with pytest.raises(KeyError):
        designs.by_policy("fill")


@pytest.mark.parametrize("policy", ["standard", "blocked", "fill", "two-choice"])
def test_a_design_that_fits_is_built(policy: str) -> None:
    found = design.sharded_filter(keys=20_000, fpr=1e-2, shard_bytes=8_000, policies=[policy]).build()
    assert isinstance(found, ShardedFilter)
    found.add_many(range(20_000))
    assert found.contains_many(range(20_000)).all()
    assert found.stats().fpr < 1.1e-2
    assert all(part.nbytes <= 8_000 for part in found.parts)


def test_bounds_hold_in_shards_too() -> None:
    request: dict[str, Any] = {"keys": 10**6, "shard_bytes": 10**5}
    for each in design.sharded_filter(fpr=1e-3, miss_reads=1.2, policies=["fill", "blocked"], **request):
        assert each.plan.miss_reads <= 1.2
    alone = design.sharded_filter(bits_per_key=12, policies=["blocked", "standard"], cost="fpr", **request)
    assert [each.policy for each in alone] == ["standard", "blocked"]
    assert all(each.plan.bits_per_key <= 12.2 for each in alone)
    with pytest.raises(ValueError, match="bits_per_key"):
        design.sharded_filter(fpr=1e-3, bits_per_key=14.4, policies=["standard"], **request)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"shard_bytes": 100, "keys": 1e12}, "shard_bytes must be large enough"),
        ({"shards": 2, "build_rate": 0}, "build_rate"), ({"shards": 2, "build_rate": math.nan}, "build_rate"),
        ({"shards": 2, "exceed": 0}, "exceed"), ({"shards": 2, "exceed": 1}, "exceed"),
        ({"shards": 2, "added": 0}, "added"), ({"shards": 2, "keys": 0.5}, "keys"),
        ({"shard_bytes": math.inf}, "shard_bytes"), ({"shards": 1.5}, "shards"),
    ],
)  # fmt: skip
def test_arguments_are_checked(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises((TypeError, ValueError), match=what):
        plan_sharded(**({"keys": 1000} | arguments))
    with pytest.raises(ValueError, match="placement"):
        moved(1, 2, "best")
    with pytest.raises(ValueError, match="capacity"):
        overflow_probability(10, 2, -1)


# --- the consistent function ---------------------------------------------------------------------------


def dense_slot(word: int, slots: int) -> int:
    """f(word, slots) of a HashRing's dense slots, for the comparison of `moved`."""
    if slots == 1:
        return 0
    e = (slots - 1).bit_length()
    half = 1 << (e - 1)
    h = word
    for _ in range(64):
        if h & ((1 << e) - 1) < half:
            break
        x = half + (splitmix(h, e) & (half - 1))
        if x < slots:
            return x
        h = splitmix(h, 63)
    y = word & (half - 1)
    if y < 2:
        return y
    b = y.bit_length()
    return (1 << (b - 1)) + (splitmix(word, b) & ((1 << (b - 1)) - 1))


@pytest.mark.parametrize(("a", "b"), [(9, 10), (5, 8), (16, 17)])
def test_placements_move_what_a_simulation_moves(a: int, b: int) -> None:
    """20,000 words; two-sided 1e-6 (4.9 sigma). The consistent function moves to new shards alone."""
    words = [splitmix(12345, i) for i in range(20_000)]
    for placement, place in {
        "consistent": dense_slot, "mod": lambda word, m: word % m, "range": mulhi,
    }.items():  # fmt: skip
        changed = [place(word, b) for word in words if place(word, a) != place(word, b)]
        share = moved(a, b, placement)
        assert abs(len(changed) / 20_000 - share) < 4.9 * math.sqrt(share * (1 - share) / 20_000)
        if placement == "consistent":
            assert min(changed) >= a
