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
- No list, or too short a list: the mean-field equation of all levels together (`_spilling`), since
  then the time at which a key comes does matter.

Invariants:

- `predict` never looks at bits or keys: core and number of keys in, expectations out.
- Nothing is fitted to simulations. Accuracy at 1e7 keys, against filters: rates within 1 %,
  reads and overflow within 0.5 %; rates of filters that spill within a few per cent (the tail
  of the fullest blocks decides them, and varies from seed to seed as well).
- Levels of few blocks use Binomial arrivals; what remains of order 1/blocks is neglected.

Tried and dropped: the joint chain of (load, set bits): 500 times the states for a difference below
1e-4; closed forms of the loads (kanizo (7), (A.8): they know no thinning, and cancel near p = 1).

Sources: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient Balanced Bloom Filters" (2013), sections
5 to 7 and appendix A; T. Kurtz, "Approximation of population processes" (1981), for the variance
of the list; M. Mitzenmacher's thesis (1996) for mean-field equations of two choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from evenbins.theory import fpr as theory

__all__ = [
    "COIN_UNIT",
    "COUNTED",
    "POLICIES",
    "Behaviour",
    "Design",
    "counter_bits",
    "keys_from_fill_bits",
    "overflow_limit",
    "predict",
]

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

POLICIES = ("single", "sequential", "multilevel", "fill", "two-choice")
"""The policies in the order of their numbers in a core, from 1."""
COUNTED = frozenset(POLICIES[:3])
SPILLS = ("least", "random")
COIN_UNIT = 2**32
"""A core's coin is a probability in these units."""

_MANY_BLOCKS = 100_000  # from here on, arrivals are Poisson to all digits that matter
_KEYS_PER_BIT = 4  # more arrivals than that change nothing worth knowing: (nearly) all bits are set
_TINY = 1e-40
_NO_SUBNORMALS = 1e-150  # products of two such numbers are still normal, and so fast


def counter_bits(threshold: int) -> int:
    """Count the bits of a block's counter, which runs to threshold + 1."""
    return (threshold + 1).bit_length()


@dataclass(frozen=True, slots=True)
class Design:
    """A core by names: what `predict` reads."""

    policy: str
    block_bits: int
    hashes: int
    choices: int
    coin: float
    overflow_limit: int
    spill: str
    budget: int
    blocks: tuple[int, ...]
    thresholds: tuple[int, ...]

    @classmethod
    def of_core(cls, core: Sequence[int]) -> Design:
        """Read a core that is known to be right; `plan_of_core` checks."""
        if len(core) < 10 or len(core) % 2 or not 1 <= core[0] <= len(POLICIES):
            raise ValueError(f"core must be the integers of a balanced filter; got {tuple(core)!r}")
        number, block_bits, hashes, choices, coin, limit, spill, budget, *tables = core
        return cls(
            policy=POLICIES[number - 1],
            block_bits=block_bits,
            hashes=hashes,
            choices=choices,
            coin=coin / COIN_UNIT,
            overflow_limit=limit,
            spill=SPILLS[spill],
            budget=budget,
            blocks=tuple(tables[0::2]),
            thresholds=tuple(tables[1::2]),
        )

    @property
    def counted(self) -> bool:
        """Whether blocks count their keys."""
        return self.policy in COUNTED

    @property
    def key_bits(self) -> tuple[int, ...]:
        """Bits of a block that keys can set, for each table."""
        if not self.counted:
            return (self.block_bits,) * len(self.blocks)
        return tuple(self.block_bits - counter_bits(each) for each in self.thresholds)


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
    1.24
    """
    if stop not in ("coin", "threshold"):
        raise ValueError(f'stop must be "coin" or "threshold"; got {stop!r}')
    if keys < 0:
        raise ValueError(f"keys must be at least 0; got {keys!r}")
    return _predict(tuple(core), int(keys), stop)


@lru_cache(maxsize=1024)
def _predict(core: tuple[int, ...], keys: int, stop: str) -> Behaviour:
    design = Design.of_core(core)
    if keys == 0:
        return _empty(design)
    if design.policy == "two-choice":
        return _two_choice(design, keys)
    if design.policy == "sequential" and design.thresholds[0] < keys:  # else no block is ever full
        found = _sequential(design, keys, stop)
    else:
        found = _levels(design, keys, stop)
    if not design.counted:
        return found
    waiting = found.overflow * found.changed * keys
    if waiting + 3.0 * found.overflow_sd <= design.overflow_limit or waiting < 0.01:
        return found
    return _spilling(design, keys, stop, found)


def steady(core: Sequence[int], keys: int) -> Behaviour:
    """Predict a single or sequential filter of endless list, without the list's variance and the digest floor."""
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


# --- arrivals at a block -------------------------------------------------------------------------


def reach(mean: float) -> int:
    """Choose how many arrivals to follow: all but 1e-20 of them, in steps that keep tables shared."""
    return -(-int(mean + 10.0 * math.sqrt(mean) + 33.0) // 32) * 32


def poisson(means: Vector, most: int) -> Vector:
    """Give P(N = n), n = 0 .. most, a row for each mean."""
    log_factorial = _log_factorials(most)
    logs = np.log(np.maximum(means, 1e-300))[:, None]
    exponent = logs * np.arange(most + 1.0) - means[:, None] - log_factorial
    chance: Vector = np.exp(exponent)
    chance[chance < _NO_SUBNORMALS] = 0.0
    return chance


@lru_cache(maxsize=64)
def _log_factorials(most: int) -> Vector:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, most + 1.0)))])


def more_than(chance: Vector) -> Vector:
    """Give P(N > n) from P(N = n), along the last axis."""
    tail = np.zeros_like(chance)
    tail[..., :-1] = chance[..., :0:-1].cumsum(axis=-1)[..., ::-1]
    return tail


def _arrivals(mean: float, most: int, keys: int, blocks: int) -> Vector:
    """Give P(N = n) of one block's arrivals: Poisson, or Binomial where blocks are few."""
    if blocks >= _MANY_BLOCKS or keys <= mean:
        if keys <= mean and keys <= most:  # one block takes them all
            return np.eye(1, most + 1, keys)[0]
        return poisson(np.array([mean]), most)[0]
    top = min(most, keys)
    n = np.arange(1.0, top + 1.0)
    odds = mean / keys / (1.0 - mean / keys)
    exponent = np.concatenate([[0.0], np.cumsum(np.log((keys + 1.0 - n) / n * odds))])
    chance = np.zeros(most + 1)
    chance[: top + 1] = np.exp(exponent + keys * math.log1p(-mean / keys))
    return chance


# --- one block of a counted policy ---------------------------------------------------------------


@lru_cache(maxsize=256)
def effective_rates(bits: int, hashes: int, most: int) -> tuple[Vector, Vector]:
    """Give q_i, the rate of a block of i keys that each set a new bit, and the throws/hashes behind it.

    The i-th effective key is about the n_i-th thrown, n_(i+1) = n_i + 1/(1 - q_i), and q_i the
    exact occupancy's rate there (between whole n, on logarithmic scale).
    """
    size = 2 * most + 64
    raw = theory.rate_by_load(bits, hashes, size)
    if raw[most] < 1e-12:  # no thinning to speak of
        return raw[: most + 1], np.arange(most + 1.0)
    logs: list[float] = np.log(np.maximum(raw, 1e-300)).tolist()
    rates, thrown = np.empty(most + 1), np.empty(most + 1)
    n, q = 0.0, 0.0
    for load in range(most + 1):
        rates[load], thrown[load] = q, n
        n = min(n + 1.0 / max(1.0 - q, 1e-9), size - 1.0)
        whole = int(n)
        part = n - whole
        q = math.exp(logs[whole] * (1.0 - part) + logs[whole + 1] * part)
    rates.flags.writeable = thrown.flags.writeable = False
    return rates, thrown


def _chain(bits: int, hashes: int, most: int) -> tuple[Vector, Vector]:
    return _kept_chain(bits, hashes, most) if most <= 1024 else _new_chain(bits, hashes, most)


def _new_chain(bits: int, hashes: int, most: int) -> tuple[Vector, Vector]:
    """Give P(load = i after n arrivals) without a threshold, [n, i], and the rates q_i."""
    rates, _ = effective_rates(bits, hashes, most + 2)
    chain = np.zeros((most + 1, most + 1))
    chain[0, 0] = 1.0
    stay = rates[: most + 1]
    leave = 1.0 - stay[:-1]
    first = 0
    for n in range(most):
        top = n + 2
        chain[n + 1, first:top] = chain[n, first:top] * stay[first:top]
        chain[n + 1, first + 1 : top] += chain[n, first : top - 1] * leave[first : top - 1]
        while chain[n + 1, first] < _NO_SUBNORMALS:
            chain[n + 1, first] = 0.0
            first += 1
    chain.flags.writeable = False
    return chain, rates


_kept_chain = lru_cache(maxsize=32)(_new_chain)


@lru_cache(maxsize=16)
def _chain_sums(bits: int, hashes: int, most: int) -> tuple[Vector, Vector]:
    """Give the sum of q_i over loads i below h, and the chance of the others, [n, h], h = 0 .. most + 1."""
    chain, rates = _chain(bits, hashes, most)
    none = np.zeros((most + 1, 1))
    below = np.concatenate([none, np.cumsum(chain * rates[: most + 1], axis=1)], axis=1)
    above = np.concatenate([chain[:, ::-1].cumsum(axis=1)[:, ::-1], none], axis=1)
    return below, above


def counted_level(
    bits: int, hashes: int, thresholds: Integers, coin: float, most: int
) -> tuple[Vector, Vector, Vector, Vector]:
    """Follow blocks of each threshold through n = 0 .. most arrivals.

    Returns F and C of the module's head, [n, threshold], and P(load = threshold), P(load =
    threshold + 1).
    """
    chain, rates = _chain(bits, hashes, most)
    h = np.minimum(thresholds, most + 1)
    below, above = _chain_sums(bits, hashes, most)
    rate_h, rate_over = rates[np.minimum(h, most + 1)], rates[np.minimum(h + 1, most + 2)]
    if coin == 0.0:
        at, over = above[:, h], np.zeros((most + 1, len(h)))
    else:
        enters = np.where(h > 0, chain[:, h - 1] * (1.0 - rates[h - 1]), 0.0)
        goes = coin * (1.0 - rate_h)
        at, over = np.zeros((most + 1, len(h))), np.zeros((most + 1, len(h)))
        at[0] = h == 0
        stays = 1.0 - goes
        for n in range(most):
            np.multiply(at[n], stays, out=at[n + 1])
            at[n + 1] += enters[n]
        over[1:] = np.cumsum(at[:-1] * goes, axis=0)
    positive = below[:, h] + at * rate_h + over * rate_over
    passes = (1.0 - coin) * at * (1.0 - rate_h) + over * (1.0 - rate_over)
    return positive, passes, at, over


# --- one block that fills ------------------------------------------------------------------------


@lru_cache(maxsize=64)
def key_bands(bits: int, hashes: int) -> Vector:
    """Give P(a key sets j new bits in a block of x set ones), [x, j]."""
    x = np.arange(bits + 1.0)[:, None]
    j = np.arange(hashes + 1.0)
    old = np.minimum(x + j, bits) / bits
    bands = np.zeros((bits + 1, hashes + 1))
    bands[:, 0] = 1.0
    for _ in range(hashes):
        grown = bands * old
        grown[:, 1:] += bands[:, :-1] * (1.0 - old[:, :-1])
        bands = grown
    bands.flags.writeable = False
    return bands


@lru_cache(maxsize=16)
def key_matrix(bits: int, hashes: int) -> Vector:
    """Give the same as a square matrix, [set bits before, set bits after]."""
    bands = key_bands(bits, hashes)
    matrix = np.zeros((bits + 1, bits + 1 + hashes))
    rows = np.arange(bits + 1)
    for j in range(hashes + 1):
        matrix[rows, rows + j] = bands[:, j]
    matrix = matrix[:, : bits + 1]
    matrix.flags.writeable = False
    return matrix


def set_bits(bits: int, hashes: int, most: int) -> Vector:
    """Give P(x set bits after n keys were thrown), [n, x], n = 0 .. most."""
    return _kept_set_bits(bits, hashes, most) if most <= 1024 else _new_set_bits(bits, hashes, most)


def _new_set_bits(bits: int, hashes: int, most: int) -> Vector:
    matrix = key_matrix(bits, hashes)
    table = np.zeros((most + 1, bits + 1))
    table[0, 0] = 1.0
    first, last = 0, 1
    for n in range(most):
        grown = min(last + hashes, bits + 1)
        table[n + 1, first:grown] = row = table[n, first:last] @ matrix[first:last, first:grown]
        kept = np.flatnonzero(row > _TINY)
        first, last = first + int(kept[0]), first + int(kept[-1]) + 1
    table.flags.writeable = False
    return table


_kept_set_bits = lru_cache(maxsize=32)(_new_set_bits)


@lru_cache(maxsize=16)
def _fill_sums(bits: int, hashes: int, most: int) -> Vector:
    """Give E[(X/bits)**hashes; X < x] after n keys, [n, x], x = 0 .. bits + 1."""
    rate = (np.arange(bits + 1) / bits) ** hashes
    summed = np.cumsum(set_bits(bits, hashes, most) * rate, axis=1)
    return np.concatenate([np.zeros((most + 1, 1)), summed], axis=1)


@lru_cache(maxsize=64)
def _crossings(bits: int, hashes: int) -> tuple[Vector, Vector]:
    """Give, for a block of x bits and j = 1 .. hashes: P(x + j or more after a key), and the same
    times the rate it then has; [x, j].
    """
    bands = key_bands(bits, hashes)
    after = np.minimum(np.arange(bits + 1)[:, None] + np.arange(hashes + 1), bits) / bits
    weighted = bands * after**hashes
    return bands[:, ::-1].cumsum(axis=1)[:, ::-1], weighted[:, ::-1].cumsum(axis=1)[:, ::-1]


def fill_level(bits: int, hashes: int, thresholds: Integers, most: int) -> tuple[Vector, Vector]:
    """Follow blocks that are full from `thresholds` set bits on: F and C, [n, threshold]."""
    table = set_bits(bits, hashes, most)
    below = _fill_sums(bits, hashes, most)
    crosses, positive = _crossings(bits, hashes)
    step = np.zeros((bits + 1, 2 * len(thresholds)))
    for column, threshold in enumerate(thresholds.tolist()):
        x = np.arange(max(threshold - hashes, 0), min(threshold, bits + 1))
        x = x[threshold - x <= hashes]
        step[x, column] = crosses[x, threshold - x]
        step[x, column + len(thresholds)] = positive[x, threshold - x]
    used = np.flatnonzero(step.any(axis=1))
    flow = np.zeros((most + 1, 2 * len(thresholds)))
    if len(used):
        low, high = int(used[0]), int(used[-1]) + 1
        flow[1:] = np.cumsum(table[:-1, low:high] @ step[low:high], axis=0)
    full, full_positive = flow[:, : len(thresholds)], flow[:, len(thresholds) :]
    return below[:, np.minimum(thresholds, bits + 1)] + full_positive, full - full_positive


def _fill_distribution(bits: int, hashes: int, threshold: int, chance: Vector, tail: Vector) -> Vector:
    """Distribute the set bits of a block stopped at `threshold`, for a random number of arrivals."""
    table = set_bits(bits, hashes, len(chance) - 1)
    spread = chance @ table
    if threshold > bits:
        return spread
    spread[threshold:] = 0.0
    low = max(threshold - hashes, 0)
    leaving = tail @ table[:, low:threshold]
    spread[threshold:] += (leaving @ key_matrix(bits, hashes)[low:threshold])[threshold:]
    return spread


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
    mean = min(arrivals / blocks, float(_KEYS_PER_BIT * design.block_bits))
    most = reach(mean)
    chance = _arrivals(mean, most, keys, blocks)
    tail = more_than(chance)
    if design.policy == "fill":
        positive, passes = (each[:, 0] for each in fill_level(bits, hashes, np.array([threshold]), most))
        loads = _fill_distribution(bits, hashes, threshold, chance, tail)
        occupied = float(loads @ np.arange(bits + 1))
        noise = 0.0
        ends = float(chance @ passes)
    else:
        found = counted_level(bits, hashes, np.array([threshold]), design.coin, most)
        positive, passes, at, over = (each[:, 0] for each in found)
        loads = _counted_loads(design, table, chance, at, over, most)
        _, thrown = effective_rates(bits, hashes, most + 2)
        mean_set = -bits * np.expm1(hashes * thrown * math.log1p(-1.0 / bits))
        top = min(len(loads), len(mean_set))
        occupied = float(loads[:top] @ mean_set[:top])
        rates, _ = effective_rates(bits, hashes, most + 2)
        noise = _pass_noise(design, threshold, rates, chance, at, over, mean)
        ends = float(chance @ passes)
        if stop == "threshold" and threshold <= most:
            ends += design.coin * float(chance @ at) * (1.0 - float(rates[threshold]))
    return _Level(
        positive=min(float(chance @ positive), 1.0),
        passes=ends,
        thinned=float(tail @ positive) / mean if mean else 0.0,
        passed=float(tail @ passes) / mean if mean else 0.0,
        set_bits=occupied,
        loads=loads,
        noise=noise,
    )


def _counted_loads(design: Design, table: int, chance: Vector, at: Vector, over: Vector, most: int) -> Vector:
    threshold = design.thresholds[table]
    chain, _ = _chain(design.key_bits[table], design.hashes, most)
    loads = np.zeros(threshold + 2)
    top = min(threshold, most + 1)
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


def running_integral(values: Vector, step: float) -> Vector:
    """Integrate along the first axis, from the first point to each: parabolas through three points."""
    total = np.zeros_like(values)
    total[1:-1] = 5.0 * values[:-2] + 8.0 * values[1:-1] - values[2:]
    total[-1] = 5.0 * values[-1] + 8.0 * values[-2] - values[-3]
    summed: Vector = np.cumsum(total * (step / 12.0), axis=0)
    return summed


def geometric(ratio: Vector, terms: int) -> Vector:
    """Sum 1 + ratio + … of so many terms."""
    total = np.ones_like(ratio)
    for _ in range(terms - 1):
        total = 1.0 + ratio * total
    return total


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
    found = counted_level(
        design.key_bits[0], design.hashes, np.array([design.thresholds[0]]), design.coin, most
    )
    chance = poisson(attempts, most)
    positive, passes = chance @ found[0][:, 0], chance @ found[1][:, 0]
    choices = design.choices
    pace = 1.0 / geometric(passes, choices)  # keys to an attempt
    accepted = np.maximum(1.0 - positive - passes, 0.0)
    listed = passes**choices
    spent = choices * listed
    changed = listed.copy()
    for j in range(choices):
        changed += passes**j * accepted
        spent += (j + 1) * passes**j * accepted
    step = attempts[1] - attempts[0]
    sums = running_integral(np.stack([pace, spent * pace, changed * pace, listed * pace], axis=1), step)
    return _Path(attempts, positive, passes, sums[:, 0], sums[:, 1], sums[:, 2], sums[:, 3])


def _sequential(design: Design, keys: int, stop: str, *, noise: bool = True) -> Behaviour:
    blocks, choices = design.blocks[0], design.choices
    load = min(keys / blocks, float(_KEYS_PER_BIT * design.block_bits))
    end = _attempts(design, load)
    path = _path(design, end, reach(end))
    exhausted = False
    later = 0.0  # keys per block that come when the budget is spent
    if design.budget and design.overflow_limit and path.spent[-1] * blocks > design.budget:
        exhausted = True
        end = float(np.interp(design.budget / blocks, path.spent, path.attempts))
        path = _path(design, end, reach(end))
        later = max(load - float(path.keys[-1]), 0.0)
    positive, passes = float(path.positive[-1]), float(path.passes[-1])
    most = reach(end)
    threshold = design.thresholds[0]
    found = counted_level(design.key_bits[0], design.hashes, np.array([threshold]), design.coin, most)
    chance = poisson(np.array([end]), most)[0]
    at, over = found[2][:, 0], found[3][:, 0]
    rates, thrown = effective_rates(design.key_bits[0], design.hashes, most + 2)
    loads = _counted_loads(design, 0, chance, at, over, most)
    if stop == "threshold" and threshold <= most:
        passes += design.coin * float(chance @ at) * (1.0 - float(rates[threshold]))
    walks = float(geometric(np.array([passes]), choices)[0])
    rate = min(positive * walks, 1.0)
    unread = later * (1.0 - rate)
    changed = float(path.changed[-1]) + unread
    listed = float(path.listed[-1]) + unread
    bits = design.key_bits[0]
    mean_set = -bits * np.expm1(hashes_log(bits, design.hashes) * thrown)
    top = min(len(loads), len(mean_set))
    sd = math.sqrt(blocks * _list_noise(design, path, rates, most)) if noise else 0.0
    if exhausted:
        sd += 2.0 * math.sqrt(unread * blocks)
    list_reads = 0.0
    if design.overflow_limit:
        list_reads = 1.0 - rate if exhausted else passes**choices
    return Behaviour(
        fpr=_floored(rate, keys) if noise else rate,
        reads=float(path.spent[-1]) / changed if changed else 1.0,
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


def hashes_log(bits: int, hashes: int) -> float:
    """Compute ln P(a key of so many throws leaves a given bit alone)."""
    return hashes * math.log1p(-1.0 / bits)


def _attempts(design: Design, load: float) -> float:
    """Find the attempts per block that `load` keys per block make."""
    if design.choices == 1:
        return load
    end = 1.25 * load + 1.0
    while True:
        path = _path(design, end, reach(end))
        if path.keys[-1] >= load or end >= design.choices * load:
            break
        end = min(1.7 * end, design.choices * load + 1.0)
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
    q = rates[: threshold + 2]
    accepts = 1.0 - q
    accepts[threshold] *= coin
    accepts[threshold + 1] = 0.0
    turns = np.zeros(threshold + 2)
    turns[threshold], turns[threshold + 1] = (1.0 - coin) * (1.0 - q[threshold]), 1.0 - q[threshold + 1]
    found = counted_level(design.key_bits[0], design.hashes, np.array([threshold]), coin, most)
    chance = poisson(path.attempts, most)
    chain, _ = _chain(design.key_bits[0], design.hashes, most)
    state = np.concatenate(
        [chance @ chain[:, :threshold], chance @ found[2][:, :1], chance @ found[3][:, :1]], axis=1
    )
    flow = state * accepts
    c = path.passes
    walks = geometric(c, choices)
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
    return max(float(running_integral(noise, step)[-1]), 0.0)


# --- two choices: the mean-field equation --------------------------------------------------------


class _Pair:
    """Set bits of a block that two-choice keys fill, at every load: integrated as far as asked."""

    def __init__(self, bits: int, hashes: int) -> None:
        self.bits, self.hashes = bits, hashes
        self.rate = (np.arange(bits + 1) / bits) ** hashes
        self.bands = key_bands(bits, hashes)[:, 1:]  # a key that sets no new bit changes nothing
        phi = [2**62] * (bits + 1)
        for x in range(bits + 1):
            for _ in range(hashes):
                phi[x] = phi[x] * x // bits
        harm = np.array(phi, dtype=np.int64)
        after = np.minimum(np.arange(bits + 1)[:, None] + np.arange(1, hashes + 1), bits)
        self.harm = harm[after] - harm[:, None]
        self.loads = [0.0]
        self.states = [np.eye(1, bits + 1)[0]]
        self.window = (-1, -1)

    def _look_at(self, first: int, last: int) -> None:
        """Sort the pairs (set bits, new bits) of a window by the harm they would do."""
        self.window = (first, last)
        flat = self.harm[first:last].ravel()
        self.order = np.argsort(flat, kind="stable")
        in_order = flat[self.order]
        starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
        group = np.cumsum(np.concatenate([[0], in_order[1:] != in_order[:-1]]))
        self.equal_from = starts[group]
        self.above_from = np.concatenate([starts[1:], [len(flat)]])[group]

    def _change(self, state: Vector) -> Vector:
        first, last = self.window
        width, k = last - first, self.hashes
        offered = (state[first:last, None] * self.bands[first:last]).ravel()[self.order]
        least = np.zeros(len(offered) + 1)
        least[:-1] = offered[::-1].cumsum()[::-1]
        chosen = offered * (least[self.equal_from] + least[self.above_from])
        moves = np.empty(len(offered))
        moves[self.order] = chosen
        moves = moves.reshape(width, k)
        change = np.zeros(self.bits + 1 + k)
        change[first:last] = -moves.sum(axis=1)
        for j in range(k):
            change[first + j + 1 : last + j + 1] += moves[:, j]
        return change[: self.bits + 1]

    def _advance(self, state: Vector, step: float) -> Vector:
        present = np.flatnonzero(state > _TINY)
        first, last = int(present[0]), int(present[-1]) + 1
        last = min(last + 4 * self.hashes, self.bits + 1)
        if not (self.window[0] <= first and last <= self.window[1]) or self.window[1] - self.window[0] > (
            last - first + 8 * self.hashes
        ):
            self._look_at(first, min(last + 4 * self.hashes, self.bits + 1))
        k1 = self._change(state)
        k2 = self._change(state + 0.5 * step * k1)
        k3 = self._change(state + 0.5 * step * k2)
        k4 = self._change(state + step * k3)
        moved: Vector = np.maximum(state + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4), 0.0)
        return moved

    def at(self, load: float) -> Vector:
        """Give P(x set bits) at `load` keys per block."""
        while self.loads[-1] < load:
            step = 0.25 if self.loads[-1] < 4.0 else 0.5 if self.loads[-1] < 128.0 else 1.0
            self.states.append(self._advance(self.states[-1], step))
            self.loads.append(self.loads[-1] + step)
        place = int(np.searchsorted(self.loads, load, side="right")) - 1
        rest = load - self.loads[place]
        return self._advance(self.states[place], rest) if rest > 1e-12 else self.states[place]

    def positive(self, load: float) -> float:
        """Compute F, the rate of one of the two blocks."""
        return min(float(self.at(load) @ self.rate), 1.0)


@lru_cache(maxsize=64)
def pair(bits: int, hashes: int) -> _Pair:
    """Give the two-choice equation of a block, which remembers how far it was integrated."""
    return _Pair(bits, hashes)


def _two_choice(design: Design, keys: int) -> Behaviour:
    equation = pair(design.block_bits, design.hashes)
    load = min(keys / design.blocks[0], float(_KEYS_PER_BIT * design.block_bits))
    state = equation.at(load)
    positive = min(float(state @ equation.rate), 1.0)
    grid = np.linspace(0.0, load, 17)
    thinned = np.array([1.0 - (1.0 - equation.positive(each)) ** 2 for each in grid.tolist()])
    lost = float(running_integral(thinned, grid[1] - grid[0])[-1]) / load
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


class _Spilling:
    """Mean-field equation of all tables in time: loads below the threshold, set bits from it on."""

    def __init__(self, design: Design, keys: int) -> None:
        self.design, self.keys = design, keys
        self.shared = design.policy == "sequential"
        tables = range(len(design.blocks))
        self.x = np.arange(design.block_bits + 1)
        self.pace = [min(keys / each, float(_KEYS_PER_BIT * design.block_bits)) for each in design.blocks]
        self.below: list[int] = []
        self.accepts: list[Vector] = []
        self.rates: list[Vector] = []
        self.enters: list[Vector] = []
        self.rate: list[Vector] = []
        self.kernel: list[Vector] = []
        low = design.block_bits
        for table in tables:
            bits, hashes = design.key_bits[table], design.hashes
            h = min(design.thresholds[table], reach(self.pace[table]))
            rates, thrown = effective_rates(bits, hashes, h + 2)
            rate = np.ones(design.block_bits + 1)
            rate[: bits + 1] = (np.arange(bits + 1) / bits) ** hashes
            n = float(thrown[h])
            rows = set_bits(bits, hashes, reach(n))
            enters = np.zeros(design.block_bits + 1)
            enters[: bits + 1] = rows[int(n)] * (1.0 - n % 1.0) + rows[int(n) + 1] * (n % 1.0)
            low = min(low, int(np.flatnonzero(enters > 1e-20)[0]))
            matrix = key_matrix(bits, hashes)
            change = np.zeros((design.block_bits + 1, design.block_bits + 1))
            stay = np.diagonal(matrix)
            change[: bits + 1, : bits + 1] = matrix / np.maximum(1.0 - stay, 1e-300)[:, None]
            np.fill_diagonal(change, 0.0)
            change[bits, bits] = 1.0
            self.below.append(h)
            self.rates.append(rates[:h])
            self.accepts.append(1.0 - rates[:h])
            self.enters.append(enters)
            self.rate.append(rate)
            self.kernel.append(change)
        self.low = low
        width = design.block_bits + 1 - low
        for table in tables:
            self.enters[table] = self.enters[table][low:]
            self.rate[table] = self.rate[table][low:]
            self.kernel[table] = np.ascontiguousarray(self.kernel[table][low:, low:])
        self.x = self.x[low:]
        sizes = [h + 2 * width for h in self.below]
        ends = np.cumsum([0, *sizes])
        self.places = [
            (int(s), int(s) + h, int(s) + h + width, int(s) + h + 2 * width)
            for s, h in zip(ends[:-1], self.below, strict=True)
        ]
        self.start = np.zeros(int(ends[-1]) + 4)  # then: listed, spilled, stored, reads, per key
        for table in tables:
            begin, at, _, _ = self.places[table]
            if self.below[table]:
                self.start[begin] = 1.0
            else:
                self.start[at : at + width] = self.enters[table]

    def meets(self, state: Vector) -> tuple[list[float], list[Vector], list[float]]:
        """Give F, the passing blocks by set bits, and C, of each table."""
        positive, passing, passes = [], [], []
        for table, (begin, at, over, end) in enumerate(self.places):
            here, above = state[at:over], state[over:end]
            rate = self.rate[table]
            positive.append(float(state[begin:at] @ self.rates[table] + (here + above) @ rate))
            passing.append(((1.0 - self.design.coin) * here + above) * (1.0 - rate))
            passes.append(float(passing[-1].sum()))
        return positive, passing, passes

    def _wins(self, passing: list[Vector], passes: list[float]) -> list[Vector]:
        """Give, by set bits, P(a key that all blocks turn away is put into this table's block)."""
        choices = self.design.choices
        if self.design.spill == "random":
            if self.shared:
                return [np.full_like(passing[0], passes[0] ** (choices - 1))]
            every = [math.prod(passes[:j] + passes[j + 1 :]) / choices for j in range(choices)]
            return [np.full_like(each, share) for each, share in zip(passing, every, strict=True)]
        at_least = [each[::-1].cumsum()[::-1] for each in passing]
        above = [whole - each for whole, each in zip(at_least, passing, strict=True)]
        if self.shared:
            win = np.zeros_like(passing[0])
            for j in range(choices):
                win += above[0] ** j * at_least[0] ** (choices - 1 - j)
            return [win]
        wins = []
        for table in range(choices):
            win = np.ones_like(passing[table])
            for other in range(choices):
                if other != table:
                    win = win * (above[other] if other < table else at_least[other])
            wins.append(win)
        return wins

    def change(self, state: Vector, listing: bool) -> Vector:
        """Give the state's change per unit of time, all keys coming in one unit."""
        coin, choices = self.design.coin, self.design.choices
        positive, passing, passes = self.meets(state)
        if self.shared:
            walk = [passes[0] ** j for j in range(choices)]
            waiting = passes[0] ** choices
            attempts = [self.pace[0] * math.fsum(walk)]
            accepted = [each * max(1.0 - positive[0] - passes[0], 0.0) for each in walk]
        else:
            walk = [math.prod(passes[:j]) for j in range(choices)]
            waiting = math.prod(passes)
            attempts = [pace * each for pace, each in zip(self.pace, walk, strict=True)]
            accepted = [
                each * max(1.0 - f - c, 0.0) for each, f, c in zip(walk, positive, passes, strict=True)
            ]
        wins = None if listing else self._wins(passing, passes)
        result = np.zeros_like(state)
        for table, (begin, at, over, end) in enumerate(self.places):
            arrive = attempts[table]
            turned = 1.0 - self.rate[table]
            here, above = state[at:over], state[over:end]
            coming = arrive * coin * here * turned
            if self.below[table]:
                flow = arrive * state[begin:at] * self.accepts[table]
                result[begin:at] -= flow
                result[begin + 1 : at] += flow[:-1]
                result[at:over] += flow[-1] * self.enters[table]
            result[at:over] -= coming
            if wins is not None:
                spill = self.pace[table] * turned * wins[table]
                spill_here = (1.0 - coin) * here * spill
                result[at:over] -= spill_here
                spill_above = above * spill
                result[over:end] -= spill_above
                coming = coming + spill_here + spill_above
            result[over:end] += coming @ self.kernel[table]
        stored = math.fsum(accepted) + waiting
        reads = math.fsum((j + 1) * each for j, each in enumerate(accepted)) + choices * waiting
        result[-4:] = (waiting if listing else 0.0, 0.0 if listing else waiting, stored, reads)
        return result

    def end(self) -> Vector:
        """Integrate over all keys; the list takes what it can, then spilling begins."""
        state, time = self.start, 0.0
        room = self.design.overflow_limit / self.keys
        listing = room > 0.0
        while time < 1.0 - 1e-12:
            step = min(0.8 / max(self._fastest(state), 0.1), 1.0 - time, 0.125)
            moved = self._step(state, step, listing)
            if listing and moved[-4] > room:
                part = (room - float(state[-4])) / float(moved[-4] - state[-4])
                moved = self._step(state, step * part, listing) if part > 0.0 else state
                time += step * part - step
                listing = False
            state, time = moved, time + step
        return state

    def _fastest(self, state: Vector) -> float:
        """Give the most arrivals per unit of time at a block of any table, soon."""
        _, _, passes = self.meets(state)
        if self.shared:
            return self.pace[0] * math.fsum(passes[0] ** j for j in range(self.design.choices))
        walk, most = 1.0, 0.0
        for pace, each in zip(self.pace, passes, strict=True):
            most = max(most, pace * walk)
            walk *= min(1.3 * each + 0.01, 1.0)
        return most

    def _step(self, state: Vector, step: float, listing: bool) -> Vector:
        k1 = self.change(state, listing)
        k2 = self.change(state + 0.5 * step * k1, listing)
        k3 = self.change(state + 0.5 * step * k2, listing)
        k4 = self.change(state + step * k3, listing)
        moved: Vector = state + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        return moved


def _spilling(design: Design, keys: int, stop: str, found: Behaviour) -> Behaviour:
    waiting = found.overflow * found.changed * keys
    room = design.overflow_limit - waiting
    if room > 0.0 and design.overflow_limit > 0:  # only chance can overrun the list
        z = room / max(found.overflow_sd, 1e-9)
        excess = found.overflow_sd * max(
            math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) - 0.5 * z * math.erfc(z / math.sqrt(2.0)), 0.0
        )
        return _replaced(found, spilled=excess / (found.changed * keys))
    equation = _Spilling(design, keys)
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
        _, thrown = effective_rates(bits, design.hashes, h + 2)
        low_set = -bits * np.expm1(hashes_log(bits, design.hashes) * thrown[:h])
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


def _replaced(found: Behaviour, *, spilled: float) -> Behaviour:
    names = [name for name in Behaviour.__slots__ if name != "spilled"]
    return Behaviour(spilled=spilled, **{name: getattr(found, name) for name in names})


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
    51439
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
    return int(np.argmax(more_than(chance) <= overrun))


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
    return blocks * _load_of_mean(bits, design.hashes, mean)


def _load_of_mean(bits: int, hashes: int, mean: float) -> float:
    """Find the keys per block at which two-choice blocks have `mean` set bits."""
    if mean <= 0.0:
        return 0.0
    equation = pair(bits, hashes)
    x = np.arange(bits + 1)
    low, high = 0.0, float(_KEYS_PER_BIT * bits)
    load = min(-bits / hashes * math.log1p(-min(mean / bits, 1.0 - 1e-9)), high)
    before: tuple[float, float] | None = None
    for _ in range(60):
        reached = float(equation.at(load) @ x) - mean
        if reached > 0.0:
            high = load
        else:
            low = load
        if abs(reached) < 1e-9 * mean or high - low < 1e-9 * high:
            break
        slope = hashes * (1.0 - mean / bits)
        if before is not None and before[0] != load and reached != before[1]:
            slope = (reached - before[1]) / (load - before[0])
        before = (load, reached)
        load -= reached / slope
        if not low < load < high:
            load = 0.5 * (low + high)
    return load
