"""Balanced filters do what their plans predict: rates, reads, overflow; every policy, both block sizes.

    plan ───── blocks, loads, list ─────▶ stats() ───── answers ─────▶ counted false positives
            mean of several filters                     binomial, exact

stats    Filters of one plan differ in their seeds and keys. The mean of what they measure on themselves has
         a t interval at 1e-6 from their own spread (twenty filters: 7.2 standard errors). The predictions are
         approximations; `TOLERANCE` says how good they must be, and the interval of the mean must reach
         into plan·(1 ± tolerance). How wide the intervals are is asserted too (`blur`): what a test
         could not see, it does not claim.
answers  Given a filter's memory an absent key is a false positive with probability stats().fpr, whatever
         the other keys: the count is binomial; over several filters a sum of binomials, which scatters less
         than the binomial of their mean rate (Hoeffding 1956).

The power tests show that the same checks find a wrong stop rule, words that do not differ from level to
level, digests of 32 bits, and one per cent more keys than the filter was told of.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from evenbins import BalancedBloomFilter, FilterPlan, FilterStats, digest_many
from evenbins.filters import plan_balanced
from evenbins.study.levels import plan_levels
from evenbins.theory import levels
from reference import ReferenceBalanced
from reference.balanced import Choice
from reference.keys import mulhi

LEVEL = 1e-6
KEYS, FILTERS = 300_000, 20
TOLERANCE = {
    "fpr": 0.01, "reads": 0.005, "miss_reads": 0.005, "list_reads": 0.005, "overflow": 0.005, "fill": 0.005,
}  # fmt: skip
POLICIES = ("single", "sequential", "multilevel", "fill", "two-choice")
each_policy = pytest.mark.parametrize("policy", POLICIES)

Keys = npt.NDArray[np.uint64]


def random_keys(keys: int, absent: int, seed: int) -> tuple[Keys, Keys]:
    """Draw random 64-bit integers: that an absent one is a key has a chance below 1e-6 a test."""
    drawn = np.random.default_rng([20_240_701, seed]).integers(0, 2**64, keys + absent, dtype=np.uint64)
    return drawn[:keys], drawn[keys:]


@dataclasses.dataclass
class Measured:
    """Filters of one plan, what they say of themselves, and of absent keys."""

    plan: FilterPlan
    found: list[FilterStats] = dataclasses.field(default_factory=list)
    queries: int = 0
    false_positives: int = 0

    def values(self, name: str) -> npt.NDArray[np.float64]:
        return np.array([getattr(each, name) for each in self.found])

    def reach(self, name: str) -> float:
        """Half the width of the interval of the mean."""
        values = self.values(name)
        quantile = float(stats.t.isf(LEVEL / 2, len(values) - 1))
        return quantile * float(values.std(ddof=1)) / math.sqrt(len(values))

    def blur(self, name: str) -> float:
        """The same, relative to the prediction."""
        return self.reach(name) / float(getattr(self.plan, name))


def measure(
    plan: FilterPlan, *, absent: int = 0, keys: int | None = None, filters: int = FILTERS
) -> Measured:
    """Build filters of the plan with the seeds 0, 1, …, fill them, query as many absent keys."""
    found = Measured(plan)
    for seed in range(filters):
        inside, outside = random_keys(keys or plan.keys, absent, seed)
        f = BalancedBloomFilter.from_plan(dataclasses.replace(plan, seed=seed))
        f.add_many(inside)
        assert f.contains_many(inside).all()
        found.found.append(f.stats())
        found.queries += absent
        found.false_positives += int(f.contains_many(outside).sum())
    return found


def surprises(found: Measured, tolerance: dict[str, float] = TOLERANCE) -> list[str]:
    """Name the checks that are out of their interval, with the numbers; none if all is as predicted."""
    out = []
    for name, allowed in tolerance.items():
        predicted, mean = float(getattr(found.plan, name)), float(found.values(name).mean())
        if predicted * found.plan.keys < 1.0 and name in ("overflow", "list_reads"):
            continue  # not one key of the filter, on average: no per cent to speak of
        if abs(mean - predicted) > allowed * predicted + found.reach(name):
            out.append(
                f"{name}: {mean:.6g} for {predicted:.6g} ± {found.reach(name):.2g} ({found.plan.core})"
            )
    if found.queries:
        own = float(found.values("fpr").mean())
        low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], found.queries, own)
        if not low <= found.false_positives <= high:
            out.append(
                f"answers: {found.false_positives} is not in {low:.0f} … {high:.0f} ({found.plan.core})"
            )
    return out


def names(found: Measured, **changes: Any) -> set[str]:
    return {each.split(":")[0] for each in surprises(found, **changes)}


# --- predictions ---------------------------------------------------------------------------------


@each_policy
@pytest.mark.parametrize(
    ("block_bits", "bits_per_key"),
    [(256, 8), *(pytest.param(*each, marks=pytest.mark.long) for each in ((512, 8), (256, 16))), (512, 16)],
)
def test_the_best_plan_of_each_policy_is_kept(policy: str, block_bits: int, bits_per_key: int) -> None:
    """20 filters of 300,000 keys, 2,000,000 absent keys in all.

    The intervals of the mean rates reach 2 % to either side at most, those of reads 0.5 %.
    """
    plan = plan_balanced(KEYS, policy=policy, bits_per_key=bits_per_key, block_bits=block_bits)
    found = measure(plan, absent=100_000)
    assert surprises(found) == []
    assert found.blur("fpr") < 0.02
    assert found.blur("miss_reads") < 0.01
    assert found.blur("reads") < 0.005


@each_policy
@pytest.mark.parametrize(
    ("block_bits", "bits_per_key"),
    [(256, 24), *(pytest.param(*each, marks=pytest.mark.long) for each in ((512, 24), (256, 32))), (512, 32)],
)
def test_at_low_rates_the_blocks_give_the_predicted_one(
    policy: str, block_bits: int, bits_per_key: int
) -> None:
    """20 filters of 200,000 keys, rates of 1e-4 … 3e-7, which no count would show: from the blocks alone.

    The intervals reach 2 … 4 % to either side, 13 % at 32 bits per key.
    """
    plan = plan_balanced(200_000, policy=policy, bits_per_key=bits_per_key, block_bits=block_bits)
    found = measure(plan)
    assert surprises(found) == []
    assert found.blur("fpr") < (0.05 if bits_per_key < 32 else 0.2)


def crowded(policy: str, block_bits: int, **arguments: Any) -> FilterPlan:
    """A plan with a long list: some per cent of the keys are on it, and every level is busy."""
    per_block = block_bits // 16
    total = KEYS // per_block
    blocks, choices = {
        "single": ([total], {}),
        "sequential": ([total], {"choices": 2}),
        "multilevel": ([total * 3 // 4, total // 6, total // 16], {}),
    }[policy]
    return plan_levels(
        KEYS, policy=policy, blocks=blocks, thresholds=[per_block - 1] * len(blocks), block_bits=block_bits,
        hashes=8, **{"coin": 0.5, "overflow_limit": KEYS // 4} | choices | arguments,
    )  # fmt: skip


def _crowds() -> Iterator[Any]:
    """Every policy with a list, block size and coin; in a short run every two of them together."""
    for (i, policy), (j, bits), (k, coin) in itertools.product(
        enumerate(POLICIES[:3]), enumerate((256, 512)), enumerate((0.0, 0.5, 1.0))
    ):
        yield pytest.param(policy, bits, coin, marks=[pytest.mark.long] if (i + j + k) % 2 else [])


@pytest.mark.parametrize(("policy", "block_bits", "coin"), list(_crowds()))
def test_the_overflow_is_the_predicted_one(policy: str, block_bits: int, coin: float) -> None:
    """20 filters of 300,000 keys of which 2 … 10 % go on the list: within 0.5 %, the mean known to 1.5 %."""
    found = measure(crowded(policy, block_bits, coin=coin), absent=20_000)
    assert 0.01 < found.plan.overflow < 0.15
    assert surprises(found) == []
    assert found.blur("overflow") < 0.015
    assert found.blur("reads") < 0.003
    assert found.blur("list_reads") < 0.02
    assert (found.values("spilled") == 0).all()


@pytest.mark.parametrize("policy", POLICIES[:3])
@pytest.mark.parametrize("spill", ["least", "random"])
def test_keys_that_spill_raise_the_rate_about_as_predicted(policy: str, spill: str) -> None:
    """20 filters of 300,000 keys without a list: the prediction of such filters is good to 5 %, no better."""
    found = measure(crowded(policy, 512, overflow_limit=0, spill=spill), absent=20_000)
    spilled = found.values("spilled").mean()
    assert spilled == pytest.approx(found.plan.spilled, rel=0.05)
    assert spilled > 0.005
    assert surprises(found, TOLERANCE | {"fpr": 0.05, "miss_reads": 0.01, "reads": 0.01}) == []


def test_a_spent_budget_is_predicted() -> None:
    """20 filters of 300,000 keys: reads for three quarters of them, then keys go to the list unread."""
    plan = crowded("sequential", 512, budget=KEYS * 3 // 4, overflow_limit=KEYS // 2)
    found = measure(plan, absent=20_000)
    assert found.plan.overflow > 0.2
    assert found.plan.list_reads > 0.99
    assert surprises(found) == []


@each_policy
def test_keys_are_counted_or_estimated_as_closely_as_said(policy: str) -> None:
    """20 filters of 300,000 keys, half full and full: the mean of the estimates within 0.2 %."""
    plan = plan_balanced(KEYS, policy=policy, bits_per_key=16)
    for keys in (KEYS // 2, KEYS):
        values = measure(plan, keys=keys).values("keys")
        assert values.mean() == pytest.approx(keys, rel=0.002)
        assert values.std(ddof=1) / keys < 0.003


def _rows() -> Iterator[Any]:
    """Every policy and row of keys; in a short run two rows with each policy."""
    for (i, policy), (j, keys) in itertools.product(
        enumerate(POLICIES), enumerate(("sequential", "negative", "texts", "strided"))
    ):
        yield pytest.param(policy, keys, marks=[pytest.mark.long] if (i + j) % 2 else [])


@pytest.mark.parametrize(("policy", "keys"), list(_rows()))
def test_keys_in_a_row_behave_like_random_ones(policy: str, keys: str) -> None:
    """4 filters of 200,000 keys each, 500,000 others queried; the rate from the answers and from the bits."""
    n, absent = 200_000, 500_000
    numbers = np.arange(n + absent)
    row: Any = {
        "sequential": numbers, "negative": -numbers - 1, "strided": numbers << 40,
        "texts": np.char.add("key-", numbers[: n + absent].astype("U6")),
    }[keys]  # fmt: skip
    plan = plan_balanced(n, policy=policy, bits_per_key=12)
    found = Measured(plan)
    for seed in range(4):
        f = BalancedBloomFilter.from_plan(dataclasses.replace(plan, seed=seed))
        f.add_many(row[:n])
        found.found.append(f.stats())
        found.queries += absent
        found.false_positives += int(f.contains_many(row[n:]).sum())
    assert surprises(found, {}) == []
    assert found.values("fpr").mean() == pytest.approx(plan.fpr, rel=0.03)


# --- power: what is broken is found --------------------------------------------------------------


def test_a_wrong_stop_rule_is_found() -> None:
    """A query that stopped only below the threshold, as the paper's does, would read 2 … 10 % more blocks."""
    for policy in POLICIES[:3]:
        plan = crowded(policy, 512)
        found = measure(plan)
        assert surprises(found) == []
        paper = levels.predict(plan.core, plan.keys, stop="threshold")
        found.plan = dataclasses.replace(plan, miss_reads=paper.miss_reads, list_reads=paper.list_reads)
        wrong = names(found)
        assert wrong == {"list_reads"} | ({"miss_reads"} if policy != "single" else set())


class StopsTooEarly(ReferenceBalanced):
    """Ends a query at a load of exactly the threshold, whatever the coin says."""

    def contains_digest(self, digest: int) -> bool:
        for choice in self.path(digest):
            if choice.present():
                return True
            if choice.table.loads[choice.block] <= choice.table.threshold:
                return False
        return digest in self.list


def test_a_query_that_stops_too_early_loses_keys() -> None:
    """2,000 keys in a filter of three levels: the suites that look for lost keys would find dozens."""
    core = (3, 512, 8, 3, 2**28, 500, 0, 0, 55, 31, 10, 31, 4, 31)
    digests = digest_many(np.arange(2000)).tolist()
    good, bad = ReferenceBalanced(core), StopsTooEarly(core)
    for digest in digests:
        good.add_digest(digest)
        bad.add_digest(digest)
    assert all(good.contains_digest(digest) for digest in digests)
    assert sum(not bad.contains_digest(digest) for digest in digests) > 20


class OneWord(ReferenceBalanced):
    """Every level takes its block, positions and coin from the digest itself: a broken word function."""

    def path(self, digest: int) -> Iterator[Choice]:
        first, *_ = super().path(digest)
        for table in self.levels:
            yield dataclasses.replace(first, table=table, block=mulhi(digest, table.blocks))


def twin_overflow(twin: type[ReferenceBalanced]) -> tuple[FilterPlan, float]:
    """The plan of a small crowded filter, and the twin's fraction of keys on the list."""
    plan = plan_levels(
        8000, policy="multilevel", blocks=[187, 42, 16], thresholds=[31] * 3, hashes=8, coin=0.5,
        overflow_limit=3000,
    )  # fmt: skip
    f = twin(plan.core)
    for digest in digest_many(np.arange(8000)).tolist():
        f.add_digest(digest)
    return plan, f.state().listed / f.state().keys


def test_words_that_do_not_differ_are_found() -> None:
    """8,000 keys through the readable twin, against 40 filters of the plan: far out, the sound one is in."""
    plan, sound = twin_overflow(ReferenceBalanced)
    _, broken = twin_overflow(OneWord)
    values = measure(plan, filters=40).values("overflow")
    reach = float(stats.t.isf(LEVEL / 2, 39)) * math.sqrt(1 + 1 / 40) * values.std(ddof=1)
    assert abs(sound - values.mean()) < reach
    assert abs(broken - values.mean()) > reach


@each_policy
def test_digests_of_32_bits_are_found(policy: str) -> None:
    """500,000 keys and as many absent ones, each a hash of 32 bits in both halves, at 24 bits per key."""
    digests = digest_many(np.arange(1_000_000)) >> np.uint64(32)
    weak = digests << np.uint64(32) | digests
    plan = plan_balanced(500_000, policy=policy, bits_per_key=24)
    for digest_set, sound in ((weak, False), (digest_many(np.arange(1_000_000)), True)):
        f = BalancedBloomFilter.from_plan(plan)
        f.add_many(digest_set[:500_000], digests=True)
        count = int(f.contains_many(digest_set[500_000:], digests=True).sum())
        low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], 500_000, f.stats().fpr)
        assert (low <= count <= high) == sound


@each_policy
def test_one_percent_more_keys_than_it_was_told_of_are_found(policy: str) -> None:
    """20 filters of 303,000 keys, planned for 300,000, at 12 bits per key: the rate grows by 4 … 5 %."""
    plan = plan_balanced(KEYS, policy=policy, bits_per_key=12)
    found = measure(plan, keys=KEYS + 3000)
    assert {"fpr", "fill"} <= names(found)


def test_counts_a_few_percent_off_are_found() -> None:
    found = measure(plan_balanced(KEYS, policy="fill", bits_per_key=8), absent=200_000)
    assert surprises(found) == []
    found.false_positives = int(found.false_positives * 1.03)
    assert names(found) == {"answers"}


@pytest.mark.parametrize("policy", ["fill", "multilevel"])
def test_a_small_filter_keeps_its_rate_whatever_the_seed(policy: str) -> None:
    """Levels below the second have blocks enough for chance: 200 filters of 4000 keys.

    With a third level of one block (as once planned) the mean rate is 1.24 times the planned one and single
    filters reach 43 times: the mean of these would miss by far, and so would the worst.
    """
    made = [BalancedBloomFilter(4_000, policy=policy, fpr=6.08e-4, seed=seed) for seed in range(200)]
    for seed, filter_ in enumerate(made):
        filter_.add_many(np.random.default_rng(seed).integers(0, 2**63, 4_000, dtype=np.uint64))
    rates = np.array([filter_.stats().fpr for filter_ in made]) / made[0].plan.fpr
    assert abs(rates.mean() - 1) <= 4.9 * rates.std() / math.sqrt(rates.size) + 0.01
    assert rates.max() < 3
