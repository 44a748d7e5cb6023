"""Balanced filters as predicted, against simulations of them and against sums done another way.

Two simulators, both independent of the filters and of each other. `tables` throws keys into the
blocks of one table after the other, all blocks at once (a block's fate depends on the number of its
arrivals only); `key_by_key` follows the rules literally, with Python integers for blocks. Seeds are
fixed. Intervals are six standard errors wide to each side: 1e-9 for normal errors, well below 1e-6.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sizes import size

from evenbins.study.theory import asymptotic
from evenbins.theory import block, fpr, levels
from evenbins.theory.cores import COIN_UNIT, POLICIES, BalancedCore, counter_bits
from evenbins.theory.levels import Behaviour, predict

Vector = npt.NDArray[np.float64]
SIGMAS = 6.0
HALF, THIRD = COIN_UNIT // 2, COIN_UNIT // 3
ENDLESS = 2**40


def core_of(policy: str, block_bits: int, hashes: int, *tables: int, **other: int) -> tuple[int, ...]:
    number = POLICIES.index(policy) + 1
    choices = other.get("choices", 2 if policy == "two-choice" else len(tables) // 2)
    coin, limit = other.get("coin", 0), other.get("limit", 0)
    return (
        number,
        block_bits,
        hashes,
        choices,
        coin,
        limit,
        other.get("spill", 0),
        other.get("budget", 0),
        *tables,
    )


# --- all blocks of a table at once ---------------------------------------------------------------


@dataclass
class Table:
    set_bits: Vector
    loads: Vector
    passed: int
    stored: int


def table(
    rng: np.random.Generator, bits: int, hashes: int, arrivals: Any, full: Any, coin: float = 0.0
) -> Table:
    """Send arrivals[b] keys to block b; `full` makes of load and set bits 0: open, 1: coin, 2: full."""
    blocks = len(arrivals)
    has = np.zeros((blocks, bits), dtype=bool)
    loads, passed = np.zeros(blocks, dtype=np.int64), np.zeros(blocks, dtype=np.int64)
    order = np.argsort(-arrivals, kind="stable")
    counts = arrivals[order]
    for n in range(int(counts[0]) if blocks else 0):
        here = order[: int(np.searchsorted(-counts, -n, side="left"))]
        where = rng.integers(0, bits, size=(len(here), hashes))
        new = ~has[here[:, None], where].all(axis=1)
        state = full(loads[here], has[here].sum(axis=1))
        takes = new & ((state == 0) | ((state == 1) & (rng.random(len(here)) < coin)))
        has[here[takes][:, None], where[takes]] = True
        loads[here[takes]] += 1
        passed[here[new & ~takes]] += 1
    return Table(has.sum(axis=1).astype(float), loads, int(passed.sum()), int(loads.sum()))


@dataclass
class Seen:
    fpr: float
    fpr_error: float
    reads: float
    miss_reads: float
    overflow: float
    listed: int
    changed: float
    fill: float
    histograms: list[npt.NDArray[np.int64]]


def tables(core: tuple[int, ...], keys: int, seed: int) -> Seen:
    """Simulate single, multilevel or fill; the error of the rate is from the spread over blocks."""
    design = BalancedCore(core)
    rng = np.random.default_rng(seed)
    left, stored, reads, rate, error, walk, misses, filled = keys, 0, 0, 0.0, 0.0, 1.0, 0.0, 0.0
    histograms = []
    for level, (blocks, threshold, bits) in enumerate(
        zip(design.blocks, design.thresholds, design.key_bits, strict=True)
    ):
        if design.policy == "fill":
            full = lambda load, x, t=threshold: np.where(x < t, 0, 2)  # noqa: E731
        else:
            full = lambda load, x, t=threshold: np.clip(load - t + 1, 0, 2)  # noqa: E731
        arrivals = rng.multinomial(left, np.full(blocks, 1 / blocks))
        found = table(rng, bits, design.hashes, arrivals, full, design.coin)
        hit = (found.set_bits / bits) ** design.hashes
        state = full(found.loads, found.set_bits)
        turned = np.where(state == 2, 1.0, np.where(state == 1, 1.0 - design.coin, 0.0)) * (1.0 - hit)
        rate += walk * float(hit.mean())
        error += walk * float(hit.std()) / math.sqrt(blocks) * (2.0 if level else 1.0)
        misses += walk
        walk *= float(turned.mean())
        stored += found.stored
        reads += (level + 1) * found.stored
        filled += float(found.set_bits.sum())
        left = found.passed
        histograms.append(np.bincount(found.set_bits.astype(int), minlength=bits + 1))
    stored += left
    reads += len(design.blocks) * left
    all_bits = sum(b * r for b, r in zip(design.blocks, design.key_bits, strict=True))
    return Seen(
        rate, error, reads / stored, misses, left / stored, left, stored / keys, filled / all_bits, histograms
    )


TABLES = [
    core_of("single", 256, 5, 8_000, 34, limit=ENDLESS),
    core_of("single", 512, 9, 6_000, 36, coin=THIRD, limit=ENDLESS),
    core_of("multilevel", 256, 5, 6_000, 34, 1_100, 33, coin=HALF, limit=ENDLESS),
    core_of("multilevel", 512, 10, 4_000, 33, 700, 33, 150, 20, coin=THIRD, limit=ENDLESS),
    core_of("multilevel", 256, 14, 9_000, 10, 2_000, 11, limit=ENDLESS),
    core_of("fill", 256, 5, 6_000, 128, 900, 257),
    core_of("fill", 512, 10, 4_500, 262, 400, 513),
    core_of("fill", 512, 16, 4_000, 250, 600, 238, 80, 513),
]
KEYS = [250_000, 190_000, 210_000, 155_000, 120_000, 190_000, 150_000, 110_000]


@pytest.mark.parametrize(("core", "keys"), list(zip(TABLES, KEYS, strict=True)))
def test_level_after_level_as_simulated(core: tuple[int, ...], keys: int) -> None:
    """110,000 to 250,000 keys in 5,000 to 11,000 blocks."""
    seen, found = tables(core, keys, seed=7), predict(core, keys)
    assert found.fpr == pytest.approx(seen.fpr, abs=SIGMAS * seen.fpr_error)
    assert found.changed == pytest.approx(
        seen.changed, abs=SIGMAS * math.sqrt((1 - found.changed) / keys) + 1e-9
    )
    assert found.overflow * found.changed * keys == pytest.approx(
        seen.listed, abs=SIGMAS * found.overflow_sd + 1e-6
    )
    spread = SIGMAS * 3.0 / math.sqrt(keys)
    assert found.reads == pytest.approx(seen.reads, abs=spread * math.sqrt(max(found.reads - 1, 1e-12)))
    assert found.miss_reads == pytest.approx(seen.miss_reads, abs=SIGMAS * 1.5 / math.sqrt(core[8]))
    assert found.fill == pytest.approx(seen.fill, rel=0.003)


def test_without_thinning_the_overflow_would_be_wrong() -> None:
    """Power: a simulation sees that keys which answer by accident change nothing (320,000 keys)."""
    core, keys = core_of("single", 256, 4, 8_000, 44, limit=ENDLESS), 320_000
    mean, threshold = keys / core[8], core[9]
    chance = block.poisson(np.array([mean]), block.reach(mean))[0]
    unthinned = core[8] * float(chance @ np.maximum(np.arange(len(chance)) - threshold, 0))
    seen, found = tables(core, keys, seed=7), predict(core, keys)
    assert abs(found.overflow * found.changed * keys - seen.listed) < SIGMAS * found.overflow_sd
    assert abs(unthinned - seen.listed) > 1.5 * SIGMAS * found.overflow_sd


def test_the_lists_variance_as_simulated() -> None:
    """60 filters of 300 blocks, side by side: 60 lists, whose variance is known to a factor 1.5 at 1e-2."""
    rng = np.random.default_rng(3)
    filters, blocks, keys, threshold, coin = 60, 300, 9_600, 34, 0.25
    arrivals = np.concatenate([rng.multinomial(keys, np.full(blocks, 1 / blocks)) for _ in range(filters)])
    bits = 512 - counter_bits(threshold)
    passed = np.zeros(filters)
    for which in range(filters):
        part = arrivals[which * blocks : (which + 1) * blocks]
        full = lambda load, x: np.clip(load - threshold + 1, 0, 2)  # noqa: E731
        passed[which] = table(rng, bits, 6, part, full, coin).passed
    found = predict(core_of("single", 512, 6, blocks, threshold, coin=COIN_UNIT // 4, limit=ENDLESS), keys)
    mean = found.overflow * found.changed * keys
    assert passed.mean() == pytest.approx(mean, abs=SIGMAS * found.overflow_sd / math.sqrt(filters))
    assert 1 / 1.8 < passed.var(ddof=1) / found.overflow_sd**2 < 1.8
    assert found.overflow_sd > 1.15 * math.sqrt(mean)  # over-dispersed against Poisson


def test_the_lists_variance_of_one_full_table_by_sums() -> None:
    """Without coin and thinning a block passes on (N - threshold)+ keys: moments by summation."""
    blocks, keys, threshold = 10**6, 20 * 10**6, 22
    chance = block.poisson(np.array([20.0]), 200)[0]
    over = np.maximum(np.arange(201) - threshold, 0)
    mean = float(chance @ over)
    covariance = float(chance @ (over * (np.arange(201) - 20.0)))
    variance = float(chance @ over**2) - mean**2 - covariance**2 / 20.0
    found = predict(core_of("single", 512, 32, blocks, threshold, limit=ENDLESS), keys)
    assert found.overflow_sd == pytest.approx(math.sqrt(blocks * variance), rel=2e-4)


# --- key by key ----------------------------------------------------------------------------------


def key_by_key(core: tuple[int, ...], keys: int, seed: int) -> tuple[Seen, dict[str, Any]]:
    """Follow the rules for each key; blocks are integers. Rates are computed from the set bits."""
    design = BalancedCore(core)
    rng = np.random.default_rng(seed)
    d, k, bits = design.choices, design.hashes, design.key_bits
    which = [0] * d if len(design.blocks) == 1 else list(range(d))
    has = [[0] * blocks for blocks in design.blocks]
    loads = [[0] * blocks for blocks in design.blocks]
    phi = [2**62] * (design.block_bits + 1)
    for x in range(len(phi)):
        for _ in range(k):
            phi[x] = phi[x] * x // design.block_bits
    stored = spent = listed = spilled = 0
    exhausted = False
    homes = [rng.integers(0, design.blocks[t], size=keys).tolist() for t in which]
    throws = [rng.integers(0, bits[t], size=(keys, k)).tolist() for t in which]
    coins = rng.random((d, keys)).tolist()
    picks = rng.integers(0, d, size=keys).tolist()
    for key in range(keys):
        masks = [sum(1 << p for p in set(throws[j][key])) for j in range(d)]
        if design.policy == "two-choice":
            x = [has[0][homes[j][key]] for j in range(2)]
            n = [(masks[j] & ~x[j]).bit_count() for j in range(2)]
            if 0 in n:
                continue
            harm = [phi[x[j].bit_count() + n[j]] - phi[x[j].bit_count()] for j in range(2)]
            has[0][homes[harm[0] > harm[1]][key]] |= masks[harm[0] > harm[1]]
            stored, spent = stored + 1, spent + 2
            continue
        unread = bool(design.budget) and spent >= design.budget
        done = False
        for j, t in enumerate(which):
            b = homes[j][key]
            done = not masks[j] & ~has[t][b]
            if done:
                break
            full = loads[t][b] > design.thresholds[t] or (
                loads[t][b] == design.thresholds[t] and coins[j][key] >= design.coin
            )
            if not full:
                done = not unread
                if not unread:
                    has[t][b] |= masks[j]
                    loads[t][b] += 1
                    stored, spent = stored + 1, spent + j + 1
                break
        if done:
            continue
        stored += 1
        exhausted |= unread
        spent += 0 if unread else d
        if listed < design.overflow_limit:
            listed += 1
            continue
        j = picks[key]
        if design.spill == "least":
            j = min(range(d), key=lambda j: has[which[j]][homes[j][key]].bit_count())
        spilled += 1
        has[which[j]][homes[j][key]] |= masks[j]
        loads[which[j]][homes[j][key]] = min(
            loads[which[j]][homes[j][key]] + 1, design.thresholds[which[j]] + 1
        )
    rate, error, walk, misses = 0.0, 0.0, 1.0, 0.0
    for t in which:
        x = np.array([each.bit_count() for each in has[t]], dtype=float)
        hit = (x / bits[t]) ** k
        load = np.array(loads[t])
        turned = np.where(load > design.thresholds[t], 1.0, 0.0)
        turned[load == design.thresholds[t]] = 1.0 - design.coin
        if design.policy == "two-choice":
            turned[:] = 1.0
        rate += walk * float(hit.mean())
        error += walk * float(hit.std()) / math.sqrt(len(hit)) * 1.5
        misses += walk
        walk *= float((turned * (1.0 - hit)).mean())
    if design.policy == "two-choice":
        misses = 2.0
    sizes = [sum(each.bit_count() for each in part) for part in has]
    all_bits = sum(b * r for b, r in zip(design.blocks, bits, strict=True))
    histograms = [
        np.bincount([each.bit_count() for each in part], minlength=design.block_bits + 1) for part in has
    ]
    seen = Seen(
        rate,
        error,
        spent / stored,
        misses,
        listed / stored,
        listed,
        stored / keys,
        sum(sizes) / all_bits,
        histograms,
    )
    return seen, {"spilled": spilled / stored, "exhausted": exhausted}


@pytest.mark.parametrize(
    ("core", "keys"),
    [
        (core_of("sequential", 512, 6, 600, 66, choices=3, coin=THIRD, limit=ENDLESS), 38_000),
        (core_of("sequential", 256, 14, 2_500, 12, choices=2, limit=ENDLESS), 28_000),
        (core_of("two-choice", 512, 6, 600, 0), 38_000),
        (core_of("two-choice", 256, 12, 2_000, 0), 30_000),
    ],
)
def test_key_by_key_as_simulated(core: tuple[int, ...], keys: int) -> None:
    """28,000 to 38,000 keys in 600 to 2,500 blocks."""
    seen, _ = key_by_key(core, keys, seed=11)
    found = predict(core, keys)
    assert found.fpr == pytest.approx(seen.fpr, abs=SIGMAS * seen.fpr_error)
    assert found.reads == pytest.approx(seen.reads, abs=SIGMAS * 3.0 * math.sqrt((found.reads - 1) / keys))
    assert found.changed == pytest.approx(
        seen.changed, abs=SIGMAS * math.sqrt((1 - found.changed) / keys) + 1e-9
    )
    assert found.overflow * found.changed * keys == pytest.approx(
        seen.listed, abs=SIGMAS * found.overflow_sd + 1e-6
    )
    assert found.miss_reads == pytest.approx(seen.miss_reads, abs=SIGMAS * 1.5 / math.sqrt(core[8]))
    assert found.fill == pytest.approx(seen.fill, rel=0.004)


def _spilling() -> Iterator[Any]:
    """Every shape, list and way to spill; in a short run every two of them together."""
    shapes = [("multilevel", (1_300, 13, 160, 13, 40, 12)), ("sequential", (1_450, 14))]
    for (i, (policy, shape)), (j, limit), spill in itertools.product(
        enumerate(shapes), enumerate((0, 300)), (0, 1)
    ):
        yield pytest.param(
            policy, shape, spill, limit, marks=[pytest.mark.long] if (i + j + spill) % 2 else []
        )


@pytest.mark.parametrize(("policy", "shape", "spill", "limit"), list(_spilling()))
def test_spilling_as_simulated(policy: str, shape: tuple[int, ...], spill: int, limit: int) -> None:
    """20,000 keys in 1,500 blocks of 256 bits, too few: without a list, and with one that overruns."""
    core = core_of(policy, 256, 10, *shape, choices=3, limit=limit, spill=spill)
    seen, more = key_by_key(core, 20_000, seed=5)
    found = predict(core, 20_000)
    assert found.spilled == pytest.approx(more["spilled"], rel=0.15)
    assert found.overflow == pytest.approx(seen.overflow, rel=0.02)
    assert found.reads == pytest.approx(seen.reads, rel=0.01)
    assert found.miss_reads == pytest.approx(seen.miss_reads, rel=0.04)
    assert found.fpr == pytest.approx(seen.fpr, rel=0.12)
    assert found.fill == pytest.approx(seen.fill, rel=0.004)
    assert found.spilled > 0.01


def test_least_is_better_than_random() -> None:
    shape = (1_300, 13, 160, 13, 40, 12)
    least, at_random = (
        predict(core_of("multilevel", 256, 10, *shape, choices=3, spill=spill), 20_000) for spill in (0, 1)
    )
    assert least.fpr < 0.8 * at_random.fpr


def test_a_budget_ends_as_simulated() -> None:
    """30,000 keys, reads for 29,000 of them: from then on the list, and every absent key asks it."""
    core = core_of("sequential", 512, 8, 900, 34, choices=3, limit=ENDLESS, budget=29_000)
    seen, more = key_by_key(core, 30_000, seed=2)
    found = predict(core, 30_000)
    assert found.exhausted
    assert more["exhausted"]
    assert found.overflow == pytest.approx(seen.overflow, rel=0.06)
    assert found.reads == pytest.approx(seen.reads, rel=0.002)
    assert found.list_reads == pytest.approx(1 - found.fpr)
    assert not predict((*core[:7], 10**6, *core[8:]), 30_000).exhausted


# --- what must be true anyway --------------------------------------------------------------------

ANY = [*TABLES, core_of("sequential", 512, 9, 5_000, 34, choices=3, coin=HALF, limit=ENDLESS)]
ANY += [core_of("two-choice", 512, 9, 5_000, 0), core_of("multilevel", 512, 9, 4_000, 30, 500, 30, coin=HALF)]


def in_range(found: Behaviour, core: tuple[int, ...]) -> None:
    for name in ("fpr", "list_reads", "overflow", "spilled", "changed", "fill"):
        assert 0.0 <= getattr(found, name) <= 1.0, name
    assert 1.0 <= found.reads <= core[3] + 1e-9
    assert 1.0 <= found.miss_reads <= core[3] + 1e-9
    for load in found.loads:
        assert load.min() >= -1e-12
        assert load.sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("core", ANY)
def test_predictions_grow_with_keys_and_stay_in_range(core: tuple[int, ...]) -> None:
    found = [predict(core, keys) for keys in (0, 1, 1000, 50_000, 100_000, 150_000, 400_000, 10**7)]
    for each in found:
        in_range(each, core)
    for one, two in pairwise(found):
        assert one.fpr < two.fpr or two.fpr > 0.999999
        assert one.fill <= two.fill + 1e-9
        assert one.miss_reads <= two.miss_reads + 1e-9 or two.fpr > 0.1  # they end walks


@pytest.mark.parametrize("core", [core for core in ANY if core[0] <= 3 and core[5]])
def test_every_key_is_in_a_block_or_on_the_list(core: tuple[int, ...]) -> None:
    keys = 160_000
    found = predict(core, keys)
    in_blocks = sum(
        blocks * float(load @ np.arange(len(load)))
        for blocks, load in zip(core[8::2], found.loads, strict=True)
    )
    assert in_blocks + found.overflow * found.changed * keys == pytest.approx(found.changed * keys, rel=2e-4)


@pytest.mark.parametrize("core", ANY)
def test_stopping_at_the_threshold_only_reads_more(core: tuple[int, ...]) -> None:
    coin, threshold = (predict(core, 150_000, stop=stop) for stop in ("coin", "threshold"))
    if core[4]:
        assert threshold.miss_reads > coin.miss_reads or core[3] == 1
        assert threshold.fpr >= coin.fpr
        assert threshold.list_reads >= coin.list_reads
    else:
        assert (threshold.fpr, threshold.miss_reads) == (coin.fpr, coin.miss_reads)


def test_one_level_that_is_never_full_is_a_blocked_filter() -> None:
    for blocks, keys in ((1, 30), (7, 200), (5_000, 160_000), (10**6, 32 * 10**6)):
        found = predict(core_of("fill", 512, 9, blocks, 513), keys)
        close = 1e-9 if blocks < 100_000 else 1e-6  # from there on, arrivals are taken as Poisson
        assert found.fpr == pytest.approx(fpr.blocked(blocks, 512, 9, keys), rel=close)
        assert found.fill == pytest.approx(fpr.blocked_fill(blocks, 512, 9, keys), rel=close)
        assert found.reads == found.miss_reads == 1.0


def test_a_thousand_keys_are_predicted_too() -> None:
    """Few blocks: 100 filters of 1,000 keys in 36 blocks, 300 in a long run, one mean."""
    filters = size(100, 300)
    core = core_of("fill", 512, 10, 30, 262, 6, 513)
    rates = [tables(core, 1_000, seed).fpr for seed in range(filters)]
    error = float(np.std(rates)) / math.sqrt(filters)
    assert predict(core, 1_000).fpr == pytest.approx(float(np.mean(rates)), abs=SIGMAS * error)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="stop must be"):
        predict(ANY[0], 10, stop="never")
    with pytest.raises(ValueError, match="keys must be at least 0; got -1"):
        predict(ANY[0], -1)
    with pytest.raises(ValueError, match="core must be the integers of a balanced filter"):
        predict((9, 512), 10)


# --- the list's length, keys from set bits -------------------------------------------------------


@pytest.mark.parametrize("mean", [0.001, 0.5, 7.0, 300.0, 9_000.0])
@pytest.mark.parametrize("overrun", [1e-2, 1e-6])
def test_a_poisson_list_is_overrun_as_rarely_as_asked(mean: float, overrun: float) -> None:
    limit = levels.overflow_limit(mean, math.sqrt(mean), overrun)
    chance = block.poisson(np.array([mean]), int(mean + 40 * math.sqrt(mean) + 100))[0]
    assert chance[limit + 1 :].sum() <= overrun * (1 + 1e-9)
    assert limit == 0 or chance[limit:].sum() > overrun


def test_the_two_ways_to_the_limit_agree() -> None:
    for mean, sd in ((19_999.0, 180.0), (19_999.0, 141.5)):
        summed = levels.overflow_limit(mean, sd)
        normal = levels.overflow_limit(mean + 2, sd)
        assert normal == pytest.approx(summed + 2, abs=2)
    assert levels.overflow_limit(1e9, 1e5) == pytest.approx(1e9 + 4.7541e5, abs=20)  # 4.7534, and skewness
    assert levels.overflow_limit(100, 20) > levels.overflow_limit(100, 10) > 100
    assert levels.overflow_limit(0, 0) == 0
    for arguments in ((-1, 0), (1, math.nan), (math.inf, 1)):
        with pytest.raises(ValueError, match="mean and sd must be finite"):
            levels.overflow_limit(*arguments)
    with pytest.raises(ValueError, match="overrun must be"):
        levels.overflow_limit(1, 1, 0.0)


@pytest.mark.parametrize(
    ("core", "keys"), [each for each in zip(TABLES, KEYS, strict=True) if each[0][0] == 4]
)
def test_keys_from_the_set_bits_of_a_fill_filter(core: tuple[int, ...], keys: int) -> None:
    """110,000 to 190,000 keys; those that find a full block to contain them by accident leave no trace."""
    seen = tables(core, keys, seed=8)
    estimate = levels.keys_from_fill_bits(core, seen.histograms)
    assert seen.changed * keys * 0.997 < estimate < keys * 1.003


def test_keys_from_the_set_bits_of_a_two_choice_filter() -> None:
    core = core_of("two-choice", 512, 8, 500, 0)
    seen, _ = key_by_key(core, 20_000, seed=4)
    assert levels.keys_from_fill_bits(core, seen.histograms) == pytest.approx(20_000, rel=0.005)


def test_keys_from_set_bits_at_the_ends() -> None:
    for policy, shape in (("fill", (4, 300, 2, 513)), ("two-choice", (4, 0))):
        core = core_of(policy, 512, 8, *shape)
        empty = [np.eye(1, 513, 0, dtype=np.int64)[0] * 4 for _ in shape[::2]]
        full = [np.eye(1, 513, 512, dtype=np.int64)[0] * 4 for _ in shape[::2]]
        assert levels.keys_from_fill_bits(core, empty) == 0.0
        assert levels.keys_from_fill_bits(core, full) == math.inf
        with pytest.raises(ValueError, match="histograms must be"):
            levels.keys_from_fill_bits(core, [*empty, empty[0]])
    with pytest.raises(ValueError, match="counts its keys"):
        levels.keys_from_fill_bits(TABLES[0], [])


# --- the rates they stand on ---------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "hashes"), [(1, 1), (7, 3), (64, 5), (505, 11), (512, 32)])
def test_rate_by_load_is_the_occupancys(bits: int, hashes: int) -> None:
    rates = fpr.rate_by_load(bits, hashes, 70)
    assert len(rates) == 71
    assert rates[0] == 0.0
    for load in (1, 2, 9, 70):
        chance = fpr.occupancy(bits, hashes * load)
        expected = float(chance @ (np.arange(len(chance)) / bits) ** hashes)
        assert rates[load] == pytest.approx(expected, rel=1e-11)
    with pytest.raises(ValueError, match="read-only"):
        rates[0] = 1.0
    assert (fpr.rate_by_load(bits, hashes, 20) == rates[:21]).all()


def test_a_partitioned_filter_is_a_product() -> None:
    assert asymptotic.partitioned(12, 3, 2) == pytest.approx((1 - (3 / 4) ** 2) ** 3, rel=1e-12)
    assert asymptotic.partitioned(14, 3, 2) == pytest.approx(
        (1 - (4 / 5) ** 2) ** 2 * (1 - (3 / 4) ** 2), rel=1e-12
    )
    assert asymptotic.partitioned(100, 5, 0) == 0.0
    assert asymptotic.partitioned(3, 3, 1) == 1.0
    assert asymptotic.partitioned(10**6, 7, 10**5) == pytest.approx(fpr.standard(10**6, 7, 10**5), rel=1e-3)
    with pytest.raises(ValueError, match="bits must be at least hashes=4"):
        asymptotic.partitioned(3, 4, 1)


def test_the_papers_formula_is_the_limit_of_large_blocks() -> None:
    occupancy = block.poisson(np.array([6.4]), 40)[0]
    shown = asymptotic.balanced_asymptotic(occupancy, 256, 4, 10, 2.0)
    summed = sum(p * (1 - math.exp(-10 * i / 252)) ** 10 for i, p in enumerate(occupancy))
    assert shown == pytest.approx(2 * summed, rel=1e-12)
    with pytest.raises(ValueError, match="counter_bits must be an integer from 0 to 3"):
        asymptotic.balanced_asymptotic(occupancy, 4, 4, 1, 1.0)
