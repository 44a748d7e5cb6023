"""How balanced filters behave: every policy predicted from its integer core.

The idea. Blocks are many, so one block sees a Poisson number of arrivals, and what it looks like
depends on their *number* alone, not on when they came (kanizo, Theorem 6: each table is a SINGLE
of its own). For one block after n arrivals two numbers say all that the other levels need:

    F_n  P(an absent key finds all its bits set here)        a false positive, the walk ends
    C_n  P(it does not, and the block turns it away)         the walk goes on

         arrivals ──▶ level 0 ──C──▶ level 1 ──C──▶ … ──C──▶ list, or the spill rule
                        │F             │F
                        ▼              ▼
    rate = F_0 + C_0*(F_1 + C_1*(…)),       arrivals at level 1 = sum of C_n * P(more than n came)

A key that answers "present" by accident when it is added changes nothing: the same F_n, read while
the filter grows, thins the arrivals. At 8 bits per key that moves the overflow by several per cent.

- Counted policies: a block is a pure-birth chain over its load i, left at an arrival with chance
  1 - q_i, q_i the rate of a block of i effective keys; a coin at the threshold.
- "fill": the chain of the set bits themselves, stopped at the threshold.
- "sequential": attempts are arrivals at one table; keys advance by 1/(1 + C + … + C**(d-1)).
- "two-choice": the mean-field equation of the set bits, integrated once for each (block, hashes).
- No list, or too short a list: the mean-field equation of all levels together (`spilling`), since
  then the time at which a key comes does matter.

Invariants:

- `predict` never looks at bits or keys: core and number of keys in, expectations out.
- Nothing is fitted to simulations. Accuracy at 1e7 keys, against filters: rates within 1 %,
  reads and overflow within 0.5 %; rates of filters that spill within a few per cent (the tail
  of the fullest blocks decides them, and varies from seed to seed as well).
- Levels of few blocks use Binomial arrivals; what remains of order 1/blocks is neglected.

Tried and dropped: closed forms of the loads (kanizo (7), (A.8)): they know no thinning, and cancel
near p = 1.

Sources: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient Balanced Bloom Filters" (2013), sections
5 to 7 and appendix A; T. Kurtz, "Approximation of population processes" (1981), for the variance
of the list; M. Mitzenmacher's thesis (1996) for mean-field equations of two choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory import block, spilling, two_choices
from evenbins.theory.behaviour import Behaviour, Walk, counted_loads, with_digest_floor, without_keys
from evenbins.theory.caching import cached
from evenbins.theory.cores import BalancedCore
from evenbins.theory.overflow_list import overflow_limit
from evenbins.theory.sequential_filter import predict_sequential

__all__ = [
    "Behaviour", "keys_from_fill_bits", "overflow_limit", "passed_on", "predict", "steady",
]  # fmt: skip

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def predict(core: Sequence[int], keys: int, *, stop: str = "coin") -> Behaviour:
    """Predict a balanced filter of this core after `keys` different keys were added.

    Parameters
    ----------
    core
        The integers (policy, block_bits, hashes, choices, coin, overflow_limit, spill, budget,
        blocks, threshold, blocks, threshold, …) of a plan.
    keys
        Number of keys added (n).
    stop
        "coin": an absent key stops at a block that would have accepted it, the coin included, as
        our filters do. "threshold": it stops only below the threshold, as the paper's does.

    Raises
    ------
    ValueError
        The core is not one, `keys` is negative, or `stop` is unknown.

    Notes
    -----
    Exact in the limit of many blocks up to the averaging of q_i over a block's set bits (below
    1e-4). Without a list, with too short a one, or with an exhausted budget, the rate is right
    to a few per cent only; a budget that ends while the list is full is not followed further.

    Examples
    --------
    >>> core = (4, 512, 10, 2, 0, 0, 0, 0, 28_000, 290, 3_250, 513)
    >>> round(predict(core, 1_000_000).miss_reads, 2)
    1.13
    """
    arguments.one_of("stop", stop, ("coin", "threshold"), 'Leave it out for "coin"')
    if keys < 0:
        raise arguments.unmet("keys", f" must be at least 0; got {keys!r}")
    return _predict(tuple(core), int(keys), stop)


_ENDLESS = 2**40
FEW_SPILLED = 1e-4
"""Fraction of keys that may spill and yet be left out of a prediction: they raise the rate by under 1 %."""


@cached(1024)
def _predict(core: tuple[int, ...], keys: int, stop: str) -> Behaviour:
    design = BalancedCore(core)
    if keys == 0:
        return without_keys(design)
    if design.policy == "two-choice":
        return _predict_two_choice(design, keys)
    if design.policy == "fill":
        return _predict_fill(design, keys, stop)
    found = _predict_unlimited(design.with_list(_ENDLESS, spill=0), keys, stop)
    if design.overflow_limit == 0:
        found = replace(found, list_reads=0.0)
    waiting = found.overflow * found.changed * keys
    if design.overflow_limit == 0 and (waiting < 0.01 or found.overflow <= FEW_SPILLED):
        return replace(found, overflow=0.0, overflow_sd=0.0, spilled=found.overflow)
    if waiting + 3.0 * found.overflow_sd <= design.overflow_limit or waiting < 0.01:
        return found
    return _predict_spilling(design, keys, stop, found)


@cached(1024)
def _predict_unlimited(core: tuple[int, ...], keys: int, stop: str) -> Behaviour:
    """Predict a counted filter whose list has no end."""
    design = BalancedCore(core)
    if design.policy == "sequential" and design.thresholds[0] < keys:  # else no block is ever full
        return predict_sequential(design, keys, stop)
    return _predict_levels(design, keys, stop)


def passed_on(core: Sequence[int], keys: int) -> float:
    """Return the fraction of keys that every level of a "fill" or multilevel filter turns away."""
    design = BalancedCore(core)
    if design.policy == "fill":
        return _predict_levels(design, keys, "coin").overflow
    return _predict_unlimited(design.with_list(_ENDLESS, spill=0), keys, "coin").overflow


def steady(core: Sequence[int], keys: int) -> Behaviour:
    """Predict a single or sequential filter of endless list; no variance, no digest floor."""
    return predict_sequential(BalancedCore(core), keys, "coin", noise=False)


# --- single, multilevel, fill: level after level -------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Level:
    """One table at the end: what an absent key meets, what arrivals met on average."""

    positive: float  # F
    passes: float  # C
    thinned: float  # mean of F over the arrivals
    passed: float  # mean of C over the arrivals
    set_bits: float
    loads: Vector
    noise: float  # variance of the number of passes of one block, arrivals in all given


def _level(design: BalancedCore, table: int, arrivals: float, keys: int, stop: str) -> _Level:
    bits, hashes, threshold = design.key_bits[table], design.hashes, design.thresholds[table]
    blocks = design.blocks[table]
    all_arrivals = arrivals / blocks
    mean = min(all_arrivals, float(block.KEYS_PER_BIT * design.block_bits))
    most = block.reach(mean)
    chance = block.arrivals(mean, most, keys, blocks)
    tail = block.more_than(chance)
    if design.policy == "fill":
        positive, passes = (
            each[:, 0] for each in block.fill_level(bits, hashes, np.array([threshold]), most)
        )
        loads = block.fill_distribution(bits, hashes, threshold, chance, tail)
        occupied = float(loads @ np.arange(bits + 1))
        noise = 0.0
        ends = float(chance @ passes)
    else:
        found = block.counted_level(bits, hashes, np.array([threshold]), design.coin, most)
        positive, passes, at, over = (each[:, 0] for each in found)
        loads = counted_loads(design, table, chance, at, over, most)
        rates, thrown = block.effective_rates(bits, hashes, block.loads_to_follow(most, threshold) + 2)
        mean_set = -bits * np.expm1(hashes * thrown * math.log1p(-1.0 / bits))
        top = min(len(loads), len(mean_set))
        occupied = float(loads[:top] @ mean_set[:top])
        noise = _pass_noise(design, threshold, rates, chance, at, over, mean)
        ends = float(chance @ passes)
        if stop == "threshold" and threshold <= most:
            ends += design.coin * float(chance @ at) * (1.0 - float(rates[threshold]))
    beyond = all_arrivals - mean  # they find the block as it is in the end
    return _Level(
        positive=min(float(chance @ positive), 1.0),
        passes=ends,
        thinned=(float(tail @ positive) + beyond * float(chance @ positive)) / all_arrivals if mean else 0.0,
        passed=(float(tail @ passes) + beyond * float(chance @ passes)) / all_arrivals if mean else 0.0,
        set_bits=occupied,
        loads=loads,
        noise=noise,
    )


def _pass_noise(
    design: BalancedCore, threshold: int, rates: Vector, chance: Vector, at: Vector, over: Vector, mean: float
) -> float:
    """Compute the variance of one block's passes, for a fixed sum of all blocks' arrivals.

    Second moments of the passes so far, by state, along the arrivals; then, since Cov(passes, N) =
    mean * C for Poisson arrivals, mean * C**2 less for the fixed sum.
    """
    most = len(chance) - 1
    if threshold > most:
        return 0.0
    coin = design.coin
    q, q_over = float(rates[threshold]), float(rates[threshold + 1])
    go, turn = coin * (1.0 - q), (1.0 - coin) * (1.0 - q)  # at the threshold: accepted, passed on
    turn_over = 1.0 - q_over
    first = second = first_over = second_over = 0.0  # E[passes; state], E[passes**2; state]
    mean_passes = mean_square = 0.0
    p_at, p_over, weights = at.tolist(), over.tolist(), chance.tolist()
    for n in range(most + 1):
        mean_passes += weights[n] * (first + first_over)
        mean_square += weights[n] * (second + second_over)
        second_over += turn_over * (2.0 * first_over + p_over[n]) + go * second
        first_over += turn_over * p_over[n] + go * first
        second += turn * (2.0 * first + p_at[n]) - go * second
        first += turn * p_at[n] - go * first
    ends = float(chance @ (turn * at + turn_over * over))
    return max(mean_square - mean_passes**2 - mean * ends**2, 0.0)


def _predict_levels(design: BalancedCore, keys: int, stop: str) -> Behaviour:
    arrivals, variance = float(keys), 0.0
    stored, reads = 0.0, 0.0
    set_bits_all = 0.0
    met: list[_Level] = []
    for table, blocks in enumerate(design.blocks):
        level = _level(design, table, arrivals, keys, stop)
        accepted = arrivals * max(1.0 - level.thinned - level.passed, 0.0)
        stored += accepted
        reads += (table + 1) * accepted
        variance = blocks * level.noise + level.passes**2 * variance
        arrivals *= level.passed
        set_bits_all += blocks * level.set_bits
        met.append(level)
    stored += arrivals
    reads += len(design.blocks) * arrivals
    walk = Walk.of([level.positive for level in met], [level.passes for level in met])
    all_bits = sum(b * each for b, each in zip(design.blocks, design.key_bits, strict=True))
    return Behaviour(
        fpr=with_digest_floor(walk.fpr, keys),
        reads=reads / stored if stored else 1.0,
        miss_reads=walk.reads,
        list_reads=walk.passed if design.overflow_limit else 0.0,
        overflow=arrivals / stored if stored else 0.0,
        overflow_sd=math.sqrt(variance),
        changed=min(stored / keys, 1.0),
        fill=min(set_bits_all / all_bits, 1.0),
        loads=tuple(level.loads for level in met),
    )


# --- two choices ---------------------------------------------------------------------------------


def _predict_two_choice(design: BalancedCore, keys: int) -> Behaviour:
    equation = two_choices.pair(design.block_bits, design.hashes)
    load = min(keys / design.blocks[0], float(block.KEYS_PER_BIT * design.block_bits))
    state = equation.at(load)
    positive = min(float(state @ equation.rate), 1.0)
    return Behaviour(
        fpr=with_digest_floor(positive * (2.0 - positive), keys),
        reads=2.0,
        miss_reads=2.0,
        changed=1.0 - equation.lost(load),
        fill=float(state @ np.arange(design.block_bits + 1)) / design.block_bits,
        loads=(state,),
    )


# --- keys that no block and no list takes --------------------------------------------------------


def _predict_spilling(design: BalancedCore, keys: int, stop: str, found: Behaviour) -> Behaviour:
    waiting = found.overflow * found.changed * keys
    room = design.overflow_limit - waiting
    if room > 0.0 and design.overflow_limit > 0:  # only chance can overrun the list
        z = room / max(found.overflow_sd, 1e-9)
        excess = found.overflow_sd * max(
            math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) - 0.5 * z * math.erfc(z / math.sqrt(2.0)), 0.0
        )
        return replace(found, spilled=excess / (found.changed * keys))
    equation = spilling.Spilling(design, keys)
    state = equation.end()
    positive, _, passes = equation.meets(state)
    loads: list[Vector] = []
    set_all, all_bits = 0.0, 0
    for table, (begin, at, over, end) in enumerate(equation.places):
        h, threshold = equation.below[table], design.thresholds[table]
        shown = np.zeros(threshold + 2)
        shown[:h] = state[begin:at]
        shown[threshold] += float(state[at:over].sum())
        shown[threshold + 1] += float(state[over:end].sum())
        loads.append(shown)
        bits, blocks = design.key_bits[table], design.blocks[table]
        _, thrown = block.effective_rates(bits, design.hashes, h + 2)
        low_set = -bits * np.expm1(block.hashes_log(bits, design.hashes) * thrown[:h])
        filled = (state[at:over] + state[over:end]) @ equation.x
        set_all += blocks * float(state[begin:at] @ low_set + filled)
        all_bits += blocks * bits
        if stop == "threshold":
            turned = 1.0 - equation.rate[table]
            passes[table] += design.coin * float(state[at:over] @ turned)
    if equation.shared:
        positive, passes = positive * design.choices, passes * design.choices
    walk = Walk.of(positive, passes)
    listed, spilled, stored, reads = (float(each) for each in state[-4:])
    return Behaviour(
        fpr=with_digest_floor(min(walk.fpr, 1.0), keys),
        reads=reads / stored,
        miss_reads=walk.reads,
        list_reads=walk.passed if design.overflow_limit else 0.0,
        overflow=listed / stored,
        spilled=spilled / stored,
        changed=min(stored, 1.0),
        fill=min(set_all / all_bits, 1.0),
        loads=tuple(loads),
        exhausted=found.exhausted,
    )


def _predict_fill(design: BalancedCore, keys: int, stop: str) -> Behaviour:
    found = _predict_levels(design, keys, stop)
    if found.overflow <= FEW_SPILLED or len(design.blocks) == 1:
        return replace(found, overflow=0.0, spilled=found.overflow)
    equation = spilling.FillSpilling(design, keys)
    state, (spilled, stored, reads) = equation.end()
    positive, _, passes = equation.meets(state)
    walk = Walk.of(positive, passes)
    mean = state @ np.arange(design.block_bits + 1)
    return Behaviour(
        fpr=with_digest_floor(min(walk.fpr, 1.0), keys),
        reads=float(reads / stored),
        miss_reads=walk.reads,
        spilled=float(spilled / stored),
        changed=min(float(stored), 1.0),
        fill=float(mean @ np.array(design.blocks)) / (sum(design.blocks) * design.block_bits),
        loads=tuple(np.maximum(state, 0.0)),
    )


# --- keys from set bits -------------------------------------------------------


def keys_from_fill_bits(core: Sequence[int], histograms: Sequence[Sequence[int] | Integers]) -> float:
    """Estimate the keys in a "fill" or "two-choice" filter from the set bits of its blocks.

    For "fill" every block of x set bits stands for the throws that x set bits take on average,
    the sum of block_bits/(block_bits - y) over y < x: their difference to the throws made is a
    martingale, so the estimate has no bias at any stopping time, full blocks included. For
    "two-choice" the predicted mean of set bits is inverted.

    Parameters
    ----------
    core
        The integers of the filter's plan.
    histograms
        For each table, how many of its blocks have x set bits, x = 0 .. block_bits.

    Raises
    ------
    ValueError
        The policy counts its keys itself, or the histograms are not of this core.
    """
    design = BalancedCore(core)
    if design.counted:
        raise ValueError(f"a {design.policy} filter counts its keys; read its state instead of its bits")
    counts = [np.asarray(each, dtype=np.float64) for each in histograms]
    bits = design.block_bits
    if len(counts) != len(design.blocks) or any(each.shape != (bits + 1,) for each in counts):
        raise ValueError(
            f"histograms must be {len(design.blocks)} of {bits + 1} entries; "
            f"got shapes {[each.shape for each in counts]}"
        )
    last = counts[-1]
    if last.sum() > 0 and last[bits] == last.sum():
        return math.inf
    if design.policy == "fill":
        throws = np.zeros(bits + 1)
        throws[1:] = np.cumsum(bits / (bits - np.arange(float(bits))))
        return math.fsum(float(each @ throws) for each in counts) / design.hashes
    blocks = float(last.sum())
    mean = float(last @ np.arange(bits + 1.0)) / blocks if blocks else 0.0
    return blocks * two_choices.load_of_mean(bits, design.hashes, mean)
