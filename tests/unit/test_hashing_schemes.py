"""The hashing schemes of the standard filter: positions as the twin says, predicted rates, floors told."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

from evenbins import BloomFilter, _core
from evenbins.filters import plan_of_core, plan_standard
from evenbins.study.hashing import plan_scheme
from reference.bloom import HASHING, ReferenceBloom
from reference.format import unpack

SCHEMES = [name for name in HASHING if name != "independent"]
SIZES = [(1, 1), (7, 3), (64, 5), (1009, 7), (4096, 20), (65_536, 64), (99_991, 13)]


@pytest.mark.parametrize("hashing", SCHEMES)
@pytest.mark.parametrize(("bits", "hashes"), SIZES)
def test_bits_are_those_of_the_twin(hashing: str, bits: int, hashes: int, kernel: str) -> None:
    """Primes, powers of two, more hashes than bits: bulk, threads and single keys alike."""
    if hashing == "partition":
        bits *= hashes
    plan = plan_of_core("standard", (bits, hashes), capacity=500, seed=3, hashing=hashing)
    f = BloomFilter.from_plan(plan)
    twin = ReferenceBloom(bits, hashes, seed=3, hashing=hashing)
    keys = np.arange(500)
    f.add_many(keys)
    for key in keys:
        twin.add(int(key))
    assert bytes(memoryview(f)) == twin.payload()
    single = BloomFilter.from_plan(plan)
    for key in keys:
        single.add(int(key))
    assert single == f
    many = np.arange(9000)
    one, three = BloomFilter.from_plan(plan), BloomFilter.from_plan(plan)
    one.add_many(many)
    three.add_many(many, threads=3)
    assert one == three
    asked = np.arange(3000)
    assert f.contains_many(keys).all()
    assert (f.contains_many(asked) == [int(key) in f for key in asked]).all()


@pytest.mark.parametrize("hashing", SCHEMES)
def test_files_keep_the_scheme(hashing: str) -> None:
    f = BloomFilter.from_plan(plan_scheme(hashing, 1000, bits_per_key=12, seed=9))
    f.add_many(range(1000))
    again = BloomFilter.from_bytes(f.to_bytes())
    assert again == f
    assert again.plan == f.plan
    assert again.plan.hashing == hashing
    assert unpack(f.to_bytes()).hashing == HASHING[hashing]
    other = BloomFilter.from_plan(plan_of_core("standard", f.plan.core, capacity=1000, seed=9))
    assert other != f
    with pytest.raises(ValueError, match="cannot merge"):
        f |= other


@pytest.mark.parametrize("hashing", SCHEMES)
@pytest.mark.parametrize("bits_per_key", [8, 12])
def test_rates_are_those_of_the_plan(hashing: str, bits_per_key: int) -> None:
    """200 filters of 1000 keys, 50,000 absent keys each: the mean inside its t-interval at 1e-6, and 2 %."""
    found = []
    for seed in range(200):
        f = BloomFilter.from_plan(plan_scheme(hashing, 1000, bits_per_key=bits_per_key, seed=seed))
        f.add_many(np.arange(1000))
        found.append(f.contains_many(np.arange(10**6, 10**6 + 50_000)).mean())
    error = stats.sem(found) * stats.t.isf(5e-7, len(found) - 1)
    assert abs(np.mean(found) - f.plan.fpr) < error + 0.02 * f.plan.fpr


def test_the_rate_of_this_filter_includes_the_floor() -> None:
    """28.755 bits a key, 20 hashes: 1e-6 by independent hashes, forty times that by two."""
    plan = plan_of_core("standard", (28_755, 20), capacity=1000, seed=0, hashing="double")
    f = BloomFilter.from_plan(plan)
    f.add_many(np.arange(1000))
    assert 3.7e-5 < plan.fpr < 4.2e-5
    assert f.stats().fpr == pytest.approx(plan.fpr, rel=0.1)
    assert f.stats().fill ** 20 < 2e-6


def test_a_rate_below_the_floor_warns_with_the_number() -> None:
    with pytest.warns(UserWarning, match=r'hashing="double" has a floor of 2\.\d+e-05 .* not 1e-08'):
        BloomFilter.from_plan(plan_scheme("double", 1000, fpr=1e-8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BloomFilter(1000, fpr=1e-8)
        BloomFilter.from_plan(plan_scheme("double", 100_000_000, fpr=1e-6))


@pytest.mark.parametrize("hashing", SCHEMES)
def test_a_rate_above_the_floor_is_met(hashing: str) -> None:
    plan = plan_scheme(hashing, 10_000, fpr=1e-3)
    assert plan.fpr <= 1e-3
    assert plan.bits_per_key <= 1.25 * plan_standard(10_000, fpr=1e-3).bits_per_key


@pytest.mark.parametrize("hashing", SCHEMES)
@pytest.mark.parametrize("fpr", [1e-2, 1e-4, 1e-6, 1e-8])
def test_a_plan_reaches_its_rate_or_warns(hashing: str, fpr: float) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        plan = plan_scheme(hashing, 10_000, fpr=fpr)
    assert plan.hashing == hashing
    assert (plan.fpr > 1.01 * fpr) == bool(seen)


@pytest.mark.parametrize(
    ("hashing", "error"), [("best", ValueError), ("lanes", ValueError), (4, TypeError), (None, TypeError)]
)
def test_a_scheme_that_is_none_is_refused(hashing: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match='hashing must be one of "independent", "partition"'):
        BloomFilter.from_plan(plan_scheme(hashing, 100))


def test_parts_must_be_equal() -> None:
    with pytest.raises(ValueError, match="multiple of hashes"):
        plan_of_core("standard", (100, 7), capacity=10, seed=0, hashing="partition")
    with pytest.raises(ValueError, match="hashes must divide bits"):
        _core.Filter(1, HASHING["partition"], 0, 10, [100, 7])
    with pytest.raises(ValueError, match="no such hashing"):
        _core.Filter(1, 2, 0, 10, [100, 7])
