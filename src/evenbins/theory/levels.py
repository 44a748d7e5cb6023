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
from evenbins.theory import block, spilling
from evenbins.theory import fpr as theory
from evenbins.theory.caching import cached
from evenbins.theory.cores import COIN_UNIT, COUNTED, POLICIES, SPILLS, Design, counter_bits

__all__ = [
    "COIN_UNIT",
    "COUNTED",
    "POLICIES",
    "SPILLS",
    "Behaviour",
    "Design",
    "counter_bits",
    "keys_from_fill_bits",
    "overflow_limit",
    "passed_on",
    "predict",
    "steady",
]

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Behaviour:
    """What a balanced filter is expected to do after some number of keys were added.

    Attributes
    ----------
    fpr : false-positive rate, digest floor included
    reads : block reads of the insertion of a key (a), and of a look-up of it
    miss_reads : block reads of a look-up of an absent key (E(P))
    list_reads : fraction of absent keys that consult the overflow list
    overflow : keys on the list, as a fraction of those that changed the filter
    overflow_sd : standard deviation of the number of keys on the list
    spilled : keys put into a full block by the spill rule, as a fraction of the same
    changed : fraction of the keys added that changed the filter; the others answered "present"
        by accident
    fill : fraction of set bits among the bits that keys can set
    loads : a table's distribution of loads, 0 to threshold + 1, as its counter shows them; for
        "fill" and "two-choice" the distribution of set bits, 0 to block_bits
    exhausted : whether the budget of a sequential filter runs out
    """

    fpr: float
    reads: float
    miss_reads: float
    list_reads: float
    overflow: float
    overflow_sd: float
    spilled: float
    changed: float
    fill: float
    loads: tuple[Vector, ...]
    exhausted: bool = False


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
    if stop not in ("coin", "threshold"):
        raise ValueError(f'stop must be "coin" or "threshold"; got {stop!r}')
    if keys < 0:
        raise arguments.unmet("keys", f" must be at least 0; got {keys!r}")
    return _predict(tuple(core), int(keys), stop)


_ENDLESS = 2**40
FEW_SPILLED = 1e-4
"""Fraction of keys that may spill and yet be left out of a prediction: they raise the rate by under 1 %."""


@cached(1024)
def _predict(core: tuple[int, ...], keys: int, stop: str) -> Behaviour:
    design = Design.of_core(core)
    if keys == 0:
        return _empty(design)
    if design.policy == "two-choice":
        return _two_choice(design, keys)
    if design.policy == "fill":
        return _fill(design, keys, stop)
    found = _unlimited((*core[:5], _ENDLESS, 0, *core[7:]), keys, stop)
    if design.overflow_limit == 0:
        found = replace(found, list_reads=0.0)
    waiting = found.overflow * found.changed * keys
    if design.overflow_limit == 0 and (waiting < 0.01 or found.overflow <= FEW_SPILLED):
        return replace(found, overflow=0.0, overflow_sd=0.0, spilled=found.overflow)
    if waiting + 3.0 * found.overflow_sd <= design.overflow_limit or waiting < 0.01:
        return found
    return _spilling(design, keys, stop, found)


@cached(1024)
def _unlimited(core: tuple[int, ...], keys: int, stop: str) -> Behaviour:
    """Predict a counted filter whose list has no end."""
    design = Design.of_core(core)
    if design.policy == "sequential" and design.thresholds[0] < keys:  # else no block is ever full
        return _sequential(design, keys, stop)
    return _levels(design, keys, stop)


def passed_on(core: Sequence[int], keys: int) -> float:
    """Return the fraction of keys that every level of a "fill" or multilevel filter turns away."""
    core = tuple(core)
    if POLICIES[core[0] - 1] == "fill":
        return _levels(Design.of_core(core), keys, "coin").overflow
    return _unlimited((*core[:5], _ENDLESS, 0, *core[7:]), keys, "coin").overflow


def steady(core: Sequence[int], keys: int) -> Behaviour:
    """Predict a single or sequential filter of endless list; no variance, no digest floor."""
    return _sequential(Design.of_core(core), keys, "coin", noise=False)


def _empty(design: Design) -> Behaviour:
    width = [design.block_bits + 1] * len(design.blocks)
    if design.counted:
        width = [each + 2 for each in design.thresholds]
    loads = tuple(np.eye(1, each)[0] for each in width)
    reads = 2.0 if design.policy == "two-choice" else 1.0
    return Behaviour(
        fpr=0.0, reads=reads, miss_reads=reads, list_reads=0.0, overflow=0.0, overflow_sd=0.0,
        spilled=0.0, changed=1.0, fill=0.0, loads=loads,
    )  # fmt: skip


def _floored(rate: float, keys: int) -> float:
    return min(rate + (1.0 - rate) * theory.digest_floor(keys), 1.0)


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


def _level(design: Design, table: int, arrivals: float, keys: int, stop: str) -> _Level:
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
        loads = _counted_loads(design, table, chance, at, over, most)
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


def _counted_loads(design: Design, table: int, chance: Vector, at: Vector, over: Vector, most: int) -> Vector:
    threshold = design.thresholds[table]
    width = block.loads_to_follow(most, threshold)
    chain, _ = block.chain(design.key_bits[table], design.hashes, most, width)
    loads = np.zeros(threshold + 2)
    top = min(threshold, width + 1)
    loads[:top] = chance @ chain[:, :top]
    if threshold <= most:
        loads[threshold], loads[threshold + 1] = chance @ at, chance @ over
    return loads


def _pass_noise(
    design: Design, threshold: int, rates: Vector, chance: Vector, at: Vector, over: Vector, mean: float
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


def _levels(design: Design, keys: int, stop: str) -> Behaviour:
    arrivals, variance = float(keys), 0.0
    stored, reads = 0.0, 0.0
    rate, walk, misses = 0.0, 1.0, 0.0
    set_bits_all = 0.0
    loads: list[Vector] = []
    for table, blocks in enumerate(design.blocks):
        level = _level(design, table, arrivals, keys, stop)
        rate += walk * level.positive
        misses += walk
        walk *= level.passes
        accepted = arrivals * max(1.0 - level.thinned - level.passed, 0.0)
        stored += accepted
        reads += (table + 1) * accepted
        variance = blocks * level.noise + level.passes**2 * variance
        arrivals *= level.passed
        set_bits_all += blocks * level.set_bits
        loads.append(level.loads)
    stored += arrivals
    reads += len(design.blocks) * arrivals
    all_bits = sum(b * each for b, each in zip(design.blocks, design.key_bits, strict=True))
    return Behaviour(
        fpr=_floored(rate, keys),
        reads=reads / stored if stored else 1.0,
        miss_reads=misses,
        list_reads=walk if design.overflow_limit else 0.0,
        overflow=arrivals / stored if stored else 0.0,
        overflow_sd=math.sqrt(variance),
        spilled=0.0,
        changed=min(stored / keys, 1.0),
        fill=min(set_bits_all / all_bits, 1.0),
        loads=tuple(loads),
    )


# --- sequential: attempts at one table -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Path:
    """A sequential filter on its way: attempts per block, and what they have come to."""

    attempts: Vector
    positive: Vector  # F
    passes: Vector  # C
    keys: Vector  # per block, as all that follow
    spent: Vector
    changed: Vector
    listed: Vector


_POINTS = 257


def _path(design: Design, end: float, most: int) -> _Path:
    attempts = np.linspace(0.0, end, _POINTS)
    found = block.counted_level(
        design.key_bits[0], design.hashes, np.array([design.thresholds[0]]), design.coin, most
    )
    chance = block.poisson(attempts, most)
    positive, passes = chance @ found[0][:, 0], chance @ found[1][:, 0]
    choices = design.choices
    pace = 1.0 / block.geometric(passes, choices)  # keys to an attempt
    accepted = np.maximum(1.0 - positive - passes, 0.0)
    listed = passes**choices
    spent = choices * listed
    changed = listed.copy()
    for j in range(choices):
        changed += passes**j * accepted
        spent += (j + 1) * passes**j * accepted
    step = attempts[1] - attempts[0]
    sums = block.running_integral(np.stack([pace, spent * pace, changed * pace, listed * pace], axis=1), step)
    return _Path(attempts, positive, passes, sums[:, 0], sums[:, 1], sums[:, 2], sums[:, 3])


def _sequential(design: Design, keys: int, stop: str, *, noise: bool = True) -> Behaviour:
    blocks, choices = design.blocks[0], design.choices
    load = keys / blocks
    end = min(_attempts(design, load), float(block.KEYS_PER_BIT * design.block_bits))
    path = _path(design, end, block.reach(end))
    exhausted = False
    later = 0.0  # keys per block that come when the budget is spent
    if design.budget and design.overflow_limit and path.spent[-1] * blocks > design.budget:
        exhausted = True
        end = float(np.interp(design.budget / blocks, path.spent, path.attempts))
        path = _path(design, end, block.reach(end))
        later = max(load - float(path.keys[-1]), 0.0)
    positive, passes = float(path.positive[-1]), float(path.passes[-1])
    most = block.reach(end)
    threshold = design.thresholds[0]
    found = block.counted_level(design.key_bits[0], design.hashes, np.array([threshold]), design.coin, most)
    chance = block.poisson(np.array([end]), most)[0]
    at, over = found[2][:, 0], found[3][:, 0]
    width = block.loads_to_follow(most, threshold)
    rates, thrown = block.effective_rates(design.key_bits[0], design.hashes, width + 2)
    loads = _counted_loads(design, 0, chance, at, over, most)
    if stop == "threshold" and threshold <= most:
        passes += design.coin * float(chance @ at) * (1.0 - float(rates[threshold]))
    walks = float(block.geometric(np.array([passes]), choices)[0])
    rate = min(positive * walks, 1.0)
    unread = later * (1.0 - rate)
    beyond = 0.0 if exhausted else max(load - float(path.keys[-1]), 0.0)  # they find the table as it ends
    beyond *= float(path.passes[-1]) ** choices if beyond > 1e-3 * load else 0.0
    changed = float(path.changed[-1]) + unread + beyond
    listed = float(path.listed[-1]) + unread + beyond
    spent = float(path.spent[-1]) + choices * beyond
    bits = design.key_bits[0]
    mean_set = -bits * np.expm1(block.hashes_log(bits, design.hashes) * thrown)
    top = min(len(loads), len(mean_set))
    sd = math.sqrt(blocks * _list_noise(design, path, rates, most)) if noise else 0.0
    if exhausted:
        sd += 2.0 * math.sqrt(unread * blocks)
    list_reads = 0.0
    if design.overflow_limit:
        list_reads = 1.0 - rate if exhausted else passes**choices
    return Behaviour(
        fpr=_floored(rate, keys) if noise else rate,
        reads=spent / changed if changed else 1.0,
        miss_reads=walks,
        list_reads=list_reads,
        overflow=listed / changed if changed else 0.0,
        overflow_sd=sd,
        spilled=0.0,
        changed=min(changed / load, 1.0),
        fill=min(float(loads[:top] @ mean_set[:top]) / bits, 1.0),
        loads=(loads,),
        exhausted=exhausted,
    )


def _attempts(design: Design, load: float) -> float:
    """Find the attempts per block that `load` keys per block make."""
    most = float(block.KEYS_PER_BIT * design.block_bits)
    if design.choices == 1 or load >= most:
        return load
    end = min(1.25 * load + 1.0, most)
    while True:
        path = _path(design, end, block.reach(end))
        if path.keys[-1] >= load:
            break
        if end >= min(design.choices * load, most):
            return end
        end = min(1.7 * end, design.choices * load + 1.0, most)
    place = min(int(np.searchsorted(path.keys, load)), _POINTS - 1)
    low = max(min(place - 2, _POINTS - 4), 0)
    x, y = path.keys[low : low + 4], path.attempts[low : low + 4]
    total = 0.0
    for i in range(4):  # Lagrange, through four points of the inverse function
        others = [j for j in range(4) if j != i]
        total += float(y[i]) * math.prod((load - float(x[j])) / (float(x[i]) - float(x[j])) for j in others)
    return total


def _list_noise(design: Design, path: _Path, rates: Vector, most: int) -> float:
    """Compute the variance of the list's length, per block.

    Backwards through the filter's life, by the adjoint of the mean-field equation: worth[i] is by how
    much the final list grows for a block of load i more; each key's outcome varies around its mean.
    """
    threshold, coin, choices = design.thresholds[0], design.coin, design.choices
    if threshold > most:
        return 0.0
    if path.attempts[-1] > 200.0:  # steps would be too long for the equation
        return 2.0 * float(path.listed[-1])
    q = rates[: threshold + 2]
    accepts = 1.0 - q
    accepts[threshold] *= coin
    accepts[threshold + 1] = 0.0
    turns = np.zeros(threshold + 2)
    turns[threshold], turns[threshold + 1] = (1.0 - coin) * (1.0 - q[threshold]), 1.0 - q[threshold + 1]
    found = block.counted_level(design.key_bits[0], design.hashes, np.array([threshold]), coin, most)
    chance = block.poisson(path.attempts, most)
    width = block.loads_to_follow(most, threshold)
    chain, _ = block.chain(design.key_bits[0], design.hashes, most, width)
    state = np.concatenate(
        [chance @ chain[:, :threshold], chance @ found[2][:, :1], chance @ found[3][:, :1]], axis=1
    )
    flow = state * accepts
    c = path.passes
    walks = block.geometric(c, choices)
    slope = np.sum([j * c ** (j - 1) for j in range(1, choices)], axis=0) if choices > 1 else np.zeros_like(c)
    gain = np.zeros(threshold + 2)

    def change(point: int, worth: Vector) -> Vector:
        np.subtract(worth[1:], worth[:-1], out=gain[:-1])
        direct = accepts * gain
        through = slope[point] * float(flow[point] @ gain) + choices * c[point] ** (choices - 1)
        backwards: Vector = direct + turns * (through / walks[point])
        return backwards

    worth = np.zeros(threshold + 2)
    noise = np.zeros(_POINTS // 2 + 1)
    step = 2.0 * float(path.attempts[1] - path.attempts[0])
    for point in range(_POINTS - 1, -1, -2):
        np.subtract(worth[1:], worth[:-1], out=gain[:-1])
        share = walks[point] * flow[point]
        listed = float(c[point]) ** choices
        first = float(share @ gain) + listed
        second = float(share @ (gain * gain)) + listed
        noise[point // 2] = (second - first * first) / walks[point]
        if point:
            k1 = change(point, worth)
            k2 = change(point - 1, worth + 0.5 * step * k1)
            k3 = change(point - 1, worth + 0.5 * step * k2)
            k4 = change(point - 2, worth + step * k3)
            worth = worth + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    return max(float(block.running_integral(noise, step)[-1]), 0.0)


# --- two choices ---------------------------------------------------------------------------------


def _two_choice(design: Design, keys: int) -> Behaviour:
    equation = block.pair(design.block_bits, design.hashes)
    load = min(keys / design.blocks[0], float(block.KEYS_PER_BIT * design.block_bits))
    state = equation.at(load)
    positive = min(float(state @ equation.rate), 1.0)
    grid = np.linspace(0.0, load, 17)
    thinned = np.array([1.0 - (1.0 - equation.positive(each)) ** 2 for each in grid.tolist()])
    lost = float(block.running_integral(thinned, grid[1] - grid[0])[-1]) / load
    return Behaviour(
        fpr=_floored(positive * (2.0 - positive), keys),
        reads=2.0,
        miss_reads=2.0,
        list_reads=0.0,
        overflow=0.0,
        overflow_sd=0.0,
        spilled=0.0,
        changed=min(max(1.0 - lost, 0.0), 1.0),
        fill=float(state @ np.arange(design.block_bits + 1)) / design.block_bits,
        loads=(state,),
    )


# --- keys that no block and no list takes --------------------------------------------------------


def _spilling(design: Design, keys: int, stop: str, found: Behaviour) -> Behaviour:
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
    rate, walk, misses = 0.0, 1.0, 0.0
    for f, c in zip(positive, passes, strict=True):
        rate += walk * f
        misses += walk
        walk *= c
    listed, spilled, stored, reads = (float(each) for each in state[-4:])
    return Behaviour(
        fpr=_floored(min(rate, 1.0), keys),
        reads=reads / stored,
        miss_reads=misses,
        list_reads=walk if design.overflow_limit else 0.0,
        overflow=listed / stored,
        overflow_sd=0.0,
        spilled=spilled / stored,
        changed=min(stored, 1.0),
        fill=min(set_all / all_bits, 1.0),
        loads=tuple(loads),
        exhausted=found.exhausted,
    )


def _fill(design: Design, keys: int, stop: str) -> Behaviour:
    found = _levels(design, keys, stop)
    if found.overflow <= FEW_SPILLED or len(design.blocks) == 1:
        return replace(found, overflow=0.0, spilled=found.overflow)
    equation = spilling.FillSpilling(design, keys)
    state, (spilled, stored, reads) = equation.end()
    positive, _, passes = equation.meets(state)
    rate, walk, misses = 0.0, 1.0, 0.0
    for f, c in zip(positive, passes, strict=True):
        rate += walk * f
        misses += walk
        walk *= c
    mean = state @ np.arange(design.block_bits + 1)
    return Behaviour(
        fpr=_floored(min(rate, 1.0), keys),
        reads=float(reads / stored),
        miss_reads=misses,
        list_reads=0.0,
        overflow=0.0,
        overflow_sd=0.0,
        spilled=float(spilled / stored),
        changed=min(float(stored), 1.0),
        fill=float(mean @ np.array(design.blocks)) / (sum(design.blocks) * design.block_bits),
        loads=tuple(np.maximum(state, 0.0)),
    )


# --- the list's length, keys from set bits -------------------------------------------------------


def overflow_limit(mean: float, sd: float, overrun: float = 1e-6) -> int:
    """Find the length of a list that is overrun with probability `overrun` at most.

    The number of keys on the list is taken as negative binomial of this mean and standard
    deviation (Poisson where it varies less): over-dispersed as the list is, with the longer tail.

    Parameters
    ----------
    mean, sd
        Of the number of keys on the list.
    overrun
        P(more keys come than the list holds), above 0 and below 1.

    Raises
    ------
    ValueError
        An argument is outside its range.

    Examples
    --------
    >>> overflow_limit(50_000, 300)
    51436
    >>> overflow_limit(0, 0)
    0
    """
    if not (math.isfinite(mean) and math.isfinite(sd) and mean >= 0 and sd >= 0):
        raise ValueError(f"mean and sd must be finite numbers of at least 0; got {mean!r} and {sd!r}")
    if not 0.0 < overrun < 1.0:
        raise ValueError(f"overrun must be a probability between 0 and 1, both excluded; got {overrun!r}")
    if mean <= overrun:
        return 0
    variance = max(sd * sd, mean)
    if mean > 20_000.0:  # normal, with the skewness of the negative binomial
        z = _normal_quantile(overrun)
        skew = (2.0 * variance / mean - 1.0) / math.sqrt(variance)
        return math.ceil(mean + math.sqrt(variance) * (z + skew * (z * z - 1.0) / 6.0))
    most = int(mean + 40.0 * math.sqrt(variance) + 60.0 * variance / mean + 60.0)
    n = np.arange(1.0, most + 1.0)
    if variance > mean * (1.0 + 1e-9):
        size = mean * mean / (variance - mean)
        share = 1.0 - mean / variance
        log_first = size * math.log1p(-share)
        logs = np.log((n - 1.0 + size) / n * share)
    else:
        log_first, logs = -mean, np.log(mean / n)
    chance = np.exp(np.concatenate([[log_first], log_first + np.cumsum(logs)]))
    return int(np.argmax(block.more_than(chance) <= overrun))


def _normal_quantile(tail: float) -> float:
    """Find z with P(Z > z) = tail, by Newton's steps on the logarithm."""
    z = math.sqrt(max(-2.0 * math.log(tail), 0.0)) if tail < 0.5 else 0.0
    for _ in range(60):
        above = 0.5 * math.erfc(z / math.sqrt(2.0))
        slope = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) / above
        change = math.log(above / tail) / slope
        z += change
        if abs(change) < 1e-13:
            break
    return z


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
    design = Design.of_core(core)
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
    return blocks * block.load_of_mean(bits, design.hashes, mean)
