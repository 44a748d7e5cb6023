"""Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient balanced Bloom filters" (2013): its figures.

The figures themselves are lost in our copy of the paper: `paper` has what its text prints. `policy`
"multilevel" is the paper's MHT; bits per key count the blocks alone, as the paper does, not the list.

Where the paper errs, its number is shown, and beside it the right one with a note. Its formula (9) takes a
block to be large; the exact rates here come from the distribution of the number of set bits, and so do, by
all evidence, the numbers of section 10.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins import BalancedBloomFilter, BlockedBloomFilter, Filter, FilterPlan, FilterStats
from evenbins.study.levels import plan_levels
from evenbins.study.papers import plots
from evenbins.study.papers.registry import Context, Row, experiment, measured, row
from evenbins.study.papers.simulation import simulate, split
from evenbins.study.theory import asymptotic
from evenbins.theory import fpr, levels
from evenbins.theory.measured import measure

_READS = 1.2  # a of sections 9 and 10
_CHOICES = 3  # d of sections 8 to 10
_LOAD = 8  # r of figures 2, 4(a) and of our Appendix C
_BLOCKS = 1024  # of section 10

_NO_LIMIT = "a = 1 and overflow 0: nothing is removed, k0 of (3) is infinite, and P is Poisson(8)"
_ABOUT_ONE_PERCENT = "section 8 reads 'approximately 1 %' off its figure; by its own theorem 4 it is 0.587 %"
_HALF_PERCENT = (
    "sections 9 and 10: 'approximately 0.5 %'; exactly q**3 with 1 + q + q**2 = 1.2, at every load"
)
_HEAVY_TAIL = (
    "cannot be pinned down: an overflow key goes to one of its full blocks at random, and few blocks make"
    " most of the rate (compare the standard deviation)"
)
_ONE_FILTER = (
    "the paper shows one filter; rates of single filters vary that much (compare the standard deviation)"
)
_ALREADY_PRESENT = (
    "lower than the paper's where false positives are many: a key that already answers 'present' is not"
    " inserted again by this library"
)


# --- balancing: sections 4 to 8, Appendix C --------------------------------------------------------------


@experiment(
    "kanizo-fig2",
    title="The most even loads that some reads a key allow: load 8, no overflow",
    plot=plots.lines(x=lambda each: float(each.quantity[2:-1]), y="P(i)", xlabel="keys in the bucket, i"),
)
def fig2(context: Context) -> Iterator[Row]:
    """Theorem 1 for three values of `reads`; P(i) to i = 20."""
    from evenbins.study.theory import balance

    for reads in context.track([1.0, 1.1, 1.2]):
        chances = balance.lower_bound(reads, _LOAD).distribution
        for keys in range(21):
            chance = float(chances[keys]) if keys < len(chances) else 0.0
            note = _NO_LIMIT if reads == 1 and keys == 0 else None
            yield row(f"P({keys})", chance, note=note, reads=reads)


@experiment(
    "kanizo-fig3",
    title="SINGLE over time, simulation and fluid limit: load 2.5, threshold 2, coin 0.5",
    plot=plots.lines(x="time", y="fraction of the buckets; of the keys so far"),
)
def fig3(context: Context) -> Iterator[Row]:
    """25,000 keys into 10,000 buckets, as in the paper, but many times; f_i is the fraction with i keys."""
    from evenbins.study.theory import balance

    keys, bins, threshold, coin = 25_000, 10_000, 2, 0.5
    times = [step / 20 for step in range(1, 21)]
    seen = simulate(
        "single", keys=keys, bins=bins, thresholds=threshold, coin=coin,
        checkpoints=[round(time * keys) for time in times], trials=context.pick(2000, 100),
        seed=context.stream(), threads=context.threads,
    )  # fmt: skip
    fluid = balance.single(keys / bins, threshold, coin, times)
    for look, time in enumerate(context.track(times)):
        for load in range(threshold + 2):
            yield measured(f"f{load}", _column(seen.occupancy[:, look], load), time=time)
            yield row(f"f{load}_fluid", fluid.occupancy[look, load], time=time)
        yield measured("overflow", seen.overflow_share[:, look], time=time)
        yield row("overflow_fluid", fluid.overflow[look] / time, time=time)


def _regions(context: Context, points: Sequence[tuple[float, float]], varied: str) -> Iterator[Row]:
    """Yield the least overflow with which a policy is optimal, for reads and loads (Theorems 4 and 5)."""
    from evenbins.study.theory import balance

    printed: dict[tuple[str, float, float], tuple[float, str]] = {
        ("sequential", 1.1, _LOAD): (0.01, _ABOUT_ONE_PERCENT),
        ("multilevel", _READS, _LOAD): (0.005, _HALF_PERCENT),
    }
    for policy in context.track(["sequential", "multilevel"]):
        for reads, load in points:
            paper, note = printed.get((policy, reads, load)) or (None, None)
            overflow = float(balance.optimality_region(policy, _CHOICES, reads=reads, load=load))
            where = {varied: {"reads": reads, "load": load}[varied]}
            yield row("overflow", overflow, paper=paper, note=note, policy=policy, **where)


@experiment(
    "kanizo-fig4a",
    title="The least overflow with which a policy is optimal, by reads: load 8, 3 choices",
    plot=plots.lines(x="reads", y="overflow"),
)
def fig4a(context: Context) -> Iterator[Row]:
    """Theorems 4 and 5."""
    return _regions(context, [(1 + step / 50, _LOAD) for step in range(1, 26)], "reads")


@experiment(
    "kanizo-fig4b",
    title="The least overflow with which a policy is optimal, by load: reads 1.2, 3 choices",
    plot=plots.lines(x="load", y="overflow"),
)
def fig4b(context: Context) -> Iterator[Row]:
    """Theorems 4 and 5; MHT's overflow does not depend on the load, SEQUENTIAL's grows."""
    loads = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
    return _regions(context, [(_READS, load) for load in loads], "load")


@experiment(
    "kanizo-appC",
    title="Variance of the bucket load, simulation and theory: load 8, 3 choices",
    plot=plots.lines(x="reads", y="variance"),
)
def app_c(context: Context) -> Iterator[Row]:
    """Each policy at its least overflow, SINGLE with the list of MHT at 1.2 reads, and plain hashing.

    `variance_bound` is the least that any scheme of these reads and this overflow can have.
    """
    from evenbins.study.theory import balance

    bins = 10_000
    keys = _LOAD * bins
    trials = context.pick(500, 40)
    list_size = balance.optimal_multilevel(_READS, _LOAD, _CHOICES).overflow
    points = [("plain", 1.0), ("single", 1.0)]
    points += [(policy, reads) for policy in ("sequential", "multilevel") for reads in (1.1, 1.2, 1.3)]
    for policy, reads in context.track(points):
        arguments: dict[str, Any] = {}
        if policy == "plain":
            overflow, variance = 0.0, float(_LOAD)
        else:
            scheme = (
                balance.optimal_single(_LOAD, list_size) if policy == "single"
                else balance.optimal_sequential(reads, _LOAD, _CHOICES) if policy == "sequential"
                else balance.optimal_multilevel(reads, _LOAD, _CHOICES)
            )  # fmt: skip
            overflow, variance = scheme.overflow, scheme.variance
            arguments = {"thresholds": scheme.threshold, "coin": scheme.coin}
            if policy == "sequential":
                arguments |= {"choices": _CHOICES, "budget": round(reads * keys)}
            elif policy == "multilevel":
                arguments |= {"shares": scheme.shares}
        seen = simulate(policy, keys=keys, bins=bins, trials=trials, seed=context.stream(policy, reads),
                        threads=context.threads, **arguments)  # fmt: skip
        bound = balance.lower_bound(reads, _LOAD, overflow).variance
        yield measured("variance", seen.variance[:, 0], policy=policy, reads=reads)
        yield row("variance_theory", variance, policy=policy, reads=reads)
        yield row("variance_bound", bound, policy=policy, reads=reads)


# --- filters: sections 9 and 10 --------------------------------------------------------------------------


@experiment(
    "kanizo-fig5",
    title="False-positive rates in blocks of 256 bits: reads 1.2, 3 choices, overflow 0.5 %",
    plot=plots.lines(x="bits_per_key", y="false-positive rate", log=True),
)
def fig5(context: Context) -> Iterator[Row]:
    """`fpr` is exact in the limit of many blocks; `fpr_formula` is what the paper computes, by (9).

    A look-up goes on at a block of threshold or more keys, as in the paper; the library's own filter stops
    there if the key's coin says so, and reads a little less.
    """
    block_bits = 256
    for bits_per_key in context.track(range(5, 41)):
        hashes = round(bits_per_key * math.log(2))
        keys = _BLOCKS * 1000
        exact = fpr.standard(keys * bits_per_key, hashes, keys)
        formula = asymptotic.standard_asymptotic(keys * bits_per_key, hashes, keys)
        yield row("fpr", exact, filter="standard", bits_per_key=bits_per_key)
        yield row("fpr_formula", formula, filter="standard", bits_per_key=bits_per_key)
        load = block_bits / bits_per_key
        for name in ("blocked", "single", "multilevel"):
            exact, formula = _limit_rates(name, block_bits, hashes, load)
            yield row("fpr", exact, filter=name, bits_per_key=bits_per_key)
            yield row("fpr_formula", formula, filter=name, bits_per_key=bits_per_key)


def _limit_rates(name: str, block_bits: int, hashes: int, load: float) -> tuple[float, float]:
    """Return exact rate and the paper's formula, for many blocks."""
    from evenbins.study.theory import balance

    if name == "blocked":
        loads = balance.lower_bound(1.0, load).distribution  # plain hashing: Poisson
        bits, choices, first_full = block_bits, 1, len(loads)
    else:
        levels = balance.optimal_multilevel(_READS, load, _CHOICES)
        scheme = levels if name == "multilevel" else balance.optimal_single(load, levels.overflow)
        threshold = scheme.threshold or 0
        loads, choices, first_full = scheme.occupancy, scheme.choices, threshold
        bits = block_bits - (threshold + 1).bit_length()  # the counter takes ceil(log2(threshold + 2))
    rates = fpr.rate_by_load(bits, hashes, len(loads) - 1)
    match = float(loads @ rates)
    full = float(loads[first_full:].sum())
    passed = float(loads[first_full:] @ (1 - rates[first_full:]))  # full, and no match
    formula = asymptotic.balanced_asymptotic(
        loads, block_bits, block_bits - bits, hashes, _geometric(full, choices)
    )
    return match * _geometric(passed, choices), formula


def _geometric(ratio: float, terms: int) -> float:
    return math.fsum(ratio**term for term in range(terms))


_FILTERS = ("multilevel", "multilevel, no list", "multilevel, no list, random", "blocked")
_PRINTED = {
    ("multilevel", 256, 40): (2.0e-7, None),
    ("multilevel", 512, 40): (3.7e-8, None),
    ("multilevel, no list, random", 256, 40): (3.6e-7, _HEAVY_TAIL),
    ("multilevel, no list, random", 512, 40): (1.1e-7, _HEAVY_TAIL),
    ("blocked", 256, 40): (3.4e-5, _ONE_FILTER),
}


@experiment(
    "kanizo-fig6",
    title="Real filters of 1024 blocks, with and without list: reads 1.2, 3 choices",
    plot=plots.lines(
        x="bits_per_key",
        y="false-positive rate",
        quantities=["fpr", "fpr_theory"],
        log=True,
        panel="block_bits",
    ),
)
def fig6(context: Context) -> Iterator[Row]:
    """Filters of the library, filled with flows of a made-up link; rates from their set bits and counters.

    `fpr` is the mean of many filters, with look-ups that stop where the paper's do; `fpr_coin` the same where
    the library's stop, which know what the coin said; `fpr_median` what half of them exceed, `fpr_theory` the
    prediction. Without a list a key whose three blocks are full goes to the one with the fewest set bits,
    or to one of them at random, as in the paper. The paper's trace is not public; a hash that works makes
    no difference between traces of distinct flows.
    """
    points = [
        (block_bits, bits_per_key)
        for block_bits in (256, 512)
        for bits_per_key in context.pick((5, 10, 15, 20, 25, 30, 35, 40), (20, 40))
    ]
    for block_bits, bits_per_key in context.track(points):
        keys = _BLOCKS * block_bits // bits_per_key
        stats: dict[str, list[FilterStats]] = {name: [] for name in _FILTERS}
        rates: dict[str, list[float]] = {name: [] for name in _FILTERS}
        planned = dict.fromkeys(_FILTERS, 0.0)
        printed = any(place[1:] == (block_bits, bits_per_key) for place in _PRINTED)
        for trial in range(context.pick(1000 if printed else 100, 100 if printed else 16)):
            flows = _flows(keys, context.rng("flows", block_bits, bits_per_key, trial))
            for name in _FILTERS:
                seed = context.stream(name, block_bits, bits_per_key, trial)
                filter_ = _filter(name, block_bits, bits_per_key, keys, seed)
                filter_.add_many(flows)
                stats[name].append(filter_.stats())
                rates[name].append(_rate_of_paper(filter_))
                planned[name] = _planned_by_paper(filter_.plan)
        for name in _FILTERS:
            where: dict[str, Any] = {"block_bits": block_bits, "bits_per_key": bits_per_key, "filter": name}
            paper, note = _PRINTED.get((name, block_bits, bits_per_key), (None, None))
            yield measured("fpr", rates[name], paper=paper, note=note, **where)
            if name != "blocked":
                yield measured("fpr_coin", [each.fpr for each in stats[name]], **where)
            yield row("fpr_median", float(np.median(rates[name])), **where)
            yield row("fpr_theory", planned[name], **where)
            said = name == "multilevel"  # "approximately", of all experiments with a list
            note = _ALREADY_PRESENT if said and bits_per_key < 20 else None
            for quantity, number in (("reads", _READS), ("overflow", 0.005)):
                samples = [getattr(each, quantity) for each in stats[name]]
                yield measured(quantity, samples, paper=number if said else None, note=note, **where)


def _rate_of_paper(filter_: Filter) -> float:
    """Compute a filter's rate from its blocks, with the paper's rule: go on at load = threshold."""
    if not isinstance(filter_, BalancedBloomFilter):
        return filter_.stats().fpr
    return measure(filter_.plan.core, filter_._histograms(), filter_._state(), stop="threshold").fpr


def _planned_by_paper(plan: FilterPlan) -> float:
    if plan.policy == "blocked":
        return plan.fpr
    return levels.predict(plan.core, plan.keys, stop="threshold").fpr


def _filter(name: str, block_bits: int, bits_per_key: int, keys: int, seed: int) -> Filter:
    """Make an empty filter of exactly 1024 blocks."""
    from evenbins.study.theory import balance

    hashes = round(bits_per_key * math.log(2))
    if name == "blocked":
        exactly = _BLOCKS * block_bits / keys
        return BlockedBloomFilter(keys, bits_per_key=exactly, hashes=hashes, block_bits=block_bits, seed=seed)
    scheme = balance.optimal_multilevel(_READS, keys / _BLOCKS, _CHOICES)
    plan = plan_levels(
        keys,
        policy="multilevel",
        block_bits=block_bits,
        hashes=hashes,
        blocks=split(_BLOCKS, scheme.shares),
        thresholds=[scheme.threshold or 0] * _CHOICES,
        coin=scheme.coin,
        overflow_limit=keys // 20 if name == "multilevel" else 0,  # ten times what is expected
        spill="random" if name == "multilevel, no list, random" else "least",
        seed=seed,
    )
    return BalancedBloomFilter.from_plan(plan)


def _flows(count: int, rng: np.random.Generator) -> npt.NDArray[np.uint64]:
    """Make distinct flows as a router sees them, packed into integers.

        network (16 bits) · host (14) · source port (16) · server (10) · service (8)

    512 hosts of 64 networks open one port after the other, towards a few servers and services, some far more
    often than others: neighbours differ in few bits, which a weak hash would show.
    """
    hosts = rng.choice(64 * 1024, 512, replace=False)
    networks = rng.choice(2**16, 64, replace=False)
    flow = rng.permutation(count)
    source = flow % len(hosts)
    port = 32_768 + (rng.integers(0, 28_232, len(hosts))[source] + flow // len(hosts)) % 28_232
    server = np.minimum(rng.geometric(0.02, count), 1023)
    service = rng.choice([187, 80, 53, 22, 25, 123, 144, 225], count, p=_zipf(8))
    fields = ((networks[hosts >> 10][source], 48), (hosts[source] & 1023, 34), (port, 18), (server, 8))
    flows = service.astype(np.uint64)
    for field, shift in fields:
        flows |= field.astype(np.uint64) << np.uint64(shift)
    return flows


def _zipf(ranks: int) -> npt.NDArray[np.float64]:
    weights: npt.NDArray[np.float64] = 1 / np.arange(1.0, ranks + 1)
    weights /= weights.sum()
    return weights


def _column(histogram: npt.NDArray[np.float64], load: int) -> npt.NDArray[np.float64]:
    """Return a column of a histogram, which ends at the highest load that occurred."""
    return histogram[:, load] if load < histogram.shape[1] else np.zeros(len(histogram))
