"""How unevenly keys fall on shards: real digests against the exact law, and the rate of the whole.

Fixed seeds; every interval is two-sided at 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evenbins import _core, digest_many
from evenbins.filters.sharded import ShardedFilter
from evenbins.theory.sharding import largest_shard, overflow_probability, shard_capacity

LEVEL = 1e-6


def counts_of(keys: int, shards: int, trial: int) -> np.ndarray:
    digests = digest_many(np.arange(keys), seed=trial)
    _, starts, _ = _core.split_by_shard(digests, shards, False)
    return np.diff(starts.astype(np.int64))


def between(found: int, trials: int, low: float, high: float) -> bool:
    return bool(stats.binom.ppf(LEVEL / 2, trials, low) <= found <= stats.binom.isf(LEVEL / 2, trials, high))


@pytest.mark.parametrize(
    ("keys", "shards", "exceed"), [(20_000, 16, 0.1), (20_000, 200, 0.05), (3_000, 50, 0.3)]
)
def test_some_shard_exceeds_its_capacity_as_often_as_the_bracket_says(
    keys: int, shards: int, exceed: float
) -> None:
    """600 trials of all keys; the count lies between the quantiles of the bracket's two ends."""
    capacity = shard_capacity(keys, shards, exceed)
    low, high = overflow_probability(keys, shards, capacity)
    over = sum(int(counts_of(keys, shards, trial).max() > capacity) for trial in range(600))
    assert between(over, 600, low, high)
    assert high <= exceed


def test_the_counts_are_multinomial() -> None:
    """Chi square of 1000 shards with a million keys; the upper and lower 5e-7 points."""
    counts = counts_of(1_000_000, 1000, 5)
    square = float(((counts - 1000) ** 2 / 1000).sum())
    assert stats.chi2.ppf(LEVEL / 2, 999) < square < stats.chi2.isf(LEVEL / 2, 999)


@pytest.mark.parametrize(("keys", "shards"), [(10_000, 100), (50_000, 20)])
def test_the_fullest_shard_has_the_keys_predicted(keys: int, shards: int) -> None:
    """400 trials; the mean within 4.9 standard errors."""
    found = np.array([counts_of(keys, shards, 1000 + trial).max() for trial in range(400)])
    error = 4.9 * found.std() / np.sqrt(len(found))
    assert abs(found.mean() - largest_shard(keys, shards)) < error


def test_blocks_inside_a_shard_are_loaded_as_in_a_filter_of_its_own() -> None:
    """The second hash: keys of a shard spread evenly over its blocks. 64 shards, 200,000 keys.

    Set bits of the blocks of one shard, halves of the block range compared: had the shard been chosen by the
    digest's leading bits, all keys of a shard would lie in 1/64 of its blocks.
    """
    f = ShardedFilter(200_000, fpr=1e-3, shards=64)
    f.add_many(np.arange(200_000))
    for part in f.parts[::9]:
        blocks, block_bits, _ = part._core
        rows = np.frombuffer(memoryview(part), dtype=np.uint8).reshape(blocks, block_bits // 8)
        half = blocks // 2
        first, second = np.unpackbits(rows[:half]).mean(), np.unpackbits(rows[-half:]).mean()
        assert abs(first - second) < 0.05
        assert (rows.any(axis=1)).all()  # 30 keys a block: an empty one has probability e**-30


@pytest.mark.parametrize("policy", ["standard", "blocked", "fill"])
def test_the_rate_is_the_planned_one(policy: str) -> None:
    """40,000 keys in 8 shards, 2,000,000 absent ones: false positives binomial with the plan's rate.

    The rate of one filter varies round the plan's by what its bits do, 1 % here, added to the interval.
    """
    f = ShardedFilter(40_000, fpr=1e-2, shards=8, policy=policy)
    f.add_many(np.arange(40_000))
    found = int(f.contains_many(np.arange(10**7, 12 * 10**6)).sum())
    rate = f.plan.fpr
    assert between(found, 2_000_000, rate * 0.97, rate * 1.03)
    assert f.stats().fpr == pytest.approx(rate, rel=0.03)
