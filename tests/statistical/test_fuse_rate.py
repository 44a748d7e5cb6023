"""The rate of fuse filters: exactly 2**-bits, counted, with two-sided binomial intervals at 1e-6.

Given the slots, an absent key with an ideal hash is found with probability 2**-bits: its remainder does not
follow from its slots. So the count over absent keys is binomial, whatever the set is. With fingerprints the
probability is the sum that `theory.fuse.rate` computes. Seeds are fixed; the power test shows that a filter
with one bit less would not pass.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from evenbins import FuseFilter, digest_many
from evenbins.filters.fuse import freeze_fingerprints
from evenbins.theory import fuse as theory

LEVEL = 1e-6
ASKED = 2_000_000


def is_within(found: int, rate: float) -> bool:
    low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], ASKED, rate)
    return bool(low <= found <= high)


def absent(seed: int) -> npt.NDArray[np.int64]:
    return np.arange(10**9 * seed, 10**9 * seed + ASKED)


@pytest.mark.parametrize("keys", [3, 100, 5000, 1_100_000])
@pytest.mark.parametrize("bits", [4, 8, 9, 13])
def test_the_rate_is_a_power_of_two(keys: int, bits: int) -> None:
    """2,000,000 consecutive absent integers, for sets of consecutive integers."""
    f = FuseFilter.from_keys(np.arange(keys), 2.0**-bits, seed=bits)
    found = int(f.contains_many(absent(1)).sum())
    assert is_within(found, f.stats().fpr)
    assert not is_within(found, 2 * f.stats().fpr)


@pytest.mark.parametrize("bits", [4, 10])
def test_the_rate_of_fingerprints_is_the_sum(bits: int) -> None:
    """50,000 keys of 3,000,000 fingerprints; 2,000,000 absent integers."""
    count = 3_000_000
    digests = digest_many(np.arange(50_000))
    prints = np.array([int(each) * count >> 64 for each in digests], dtype=np.uint64)
    f = freeze_fingerprints(prints, count, 2.0**-bits, seed=0)
    found = int(f.contains_many(absent(2)).sum())
    assert is_within(found, f.stats().fpr)
    assert not is_within(found, 2.0**-bits)


def test_slots_are_filled_as_planned() -> None:
    """The fraction of slots that are not zero, of 1,000,000 keys: binomial among those of the keys."""
    keys = 1_000_000
    f = FuseFilter.from_keys(np.arange(keys), 2**-6)
    used = round(f.stats().fill * f.plan.slots)
    low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], keys, 1 - 2**-6)
    assert low <= used <= high
    assert f.plan.fill == theory.fill(keys, f.plan.slots, 6)


def test_blocks_that_are_tried_again() -> None:
    """2000 sets of 1000 keys: failed attempts are those of pairs, keys / (2.25 L**2) per set, to a third."""
    sets = 2000
    retried = sum(FuseFilter.from_keys(np.arange(1000), seed=seed).stats().retried for seed in range(sets))
    length = theory.shape(1000).segment_length
    expected = sets * 1000 / (2.25 * length**2)
    assert 0.67 * expected < retried < 1.33 * expected
