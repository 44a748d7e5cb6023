"""One block, after n arrivals: what `levels`, `spilling` and `shapes` are made of.

A block's state depends on the number of keys that came to it, and on nothing else. So everything
is a table over n = 0, 1, 2, …, computed once for each (bits, hashes) and kept; a mean number of
arrivals is then a row of Poisson weights before it.

    counted_level    F_n and C_n of a block that counts its keys, for many thresholds at once
    fill_level       the same for a block that is full from so many set bits on

F_n is the chance that an absent key finds all its bits set, C_n that it does not and is turned away.

Invariants: only positive terms are added; what is below 1e-100 is dropped (subnormal numbers make
matrix products twenty times slower). Arrays that are kept are read-only, and few: a table takes up to 4 MiB,
and a search over hashes comes back to the last ones only.

Sources: as for `levels`. Tried and dropped: the joint chain of (load, set bits): 500 times the
states, for a difference below 1e-4 (keys per block are many, and their set bits vary little).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from evenbins.theory import fpr as theory
from evenbins.theory.caching import cached

__all__ = [
    "KEYS_PER_BIT", "advance", "arrivals", "chain", "counted_level", "effective_rates", "fill_distribution",
    "fill_level", "geometric", "hashes_log", "key_bands", "key_matrix", "loads_to_follow", "more_than",
    "per_key", "poisson", "reach", "running_integral", "set_bits", "set_bits_at_load",
]  # fmt: skip

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

KEYS_PER_BIT = 4
"""More arrivals than that change nothing worth knowing: (nearly) all bits of a block are set."""

_MANY_BLOCKS = 100_000  # from here on, arrivals are Poisson to all digits that matter
_TINY = 1e-40
_NO_SUBNORMALS = 1e-100  # products of three such numbers are still normal, and so fast


# --- sums ----------------------------------------------------------------------------------------


def running_integral(values: Vector, step: float) -> Vector:
    """Integrate along the first axis, from the first point to each: parabolas through three points."""
    total = np.zeros_like(values)
    total[1:-1] = 5.0 * values[:-2] + 8.0 * values[1:-1] - values[2:]
    total[-1] = 5.0 * values[-1] + 8.0 * values[-2] - values[-3]
    summed: Vector = np.cumsum(total * (step / 12.0), axis=0)
    return summed


def advance(change: Callable[[Vector], Vector], state: Vector, step: float) -> Vector:
    """Take one step of Runge and Kutta along state' = change(state)."""
    k1 = change(state)
    k2 = change(state + 0.5 * step * k1)
    k3 = change(state + 0.5 * step * k2)
    k4 = change(state + step * k3)
    moved: Vector = state + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    return moved


def geometric(ratio: Vector, terms: int) -> Vector:
    """Sum 1 + ratio + … of so many terms."""
    total = np.ones_like(ratio)
    for _ in range(terms - 1):
        total = 1.0 + ratio * total
    return total


def per_key(positive: Vector, passes: Vector, choices: int) -> tuple[Vector, Vector, Vector]:
    """Return reads, and the chances to change the filter and to be listed, of a key with so many choices.

    `positive` and `passes` are F and C of each of its blocks.
    """
    accepted = np.maximum(1.0 - positive - passes, 0.0)
    listed: Vector = passes**choices
    spent, changed = choices * listed, listed.copy()
    for j in range(choices):
        changed += passes**j * accepted
        spent += (j + 1) * passes**j * accepted
    return spent, changed, listed


def hashes_log(bits: int, hashes: int) -> float:
    """Compute ln P(a key of so many throws leaves a given bit alone)."""
    return hashes * math.log1p(-1.0 / bits)


# --- arrivals at a block -------------------------------------------------------------------------


def reach(mean: float) -> int:
    """Choose how many arrivals to follow: all but 1e-20 of them, in steps that keep tables shared."""
    return -(-int(mean + 10.0 * math.sqrt(mean) + 33.0) // 32) * 32


def poisson(means: Vector, most: int) -> Vector:
    """Compute P(N = n), n = 0 .. most, a row for each mean."""
    log_factorial = _log_factorials(most)
    logs = np.log(np.maximum(means, 1e-300))[:, None]
    exponent = logs * np.arange(most + 1.0) - means[:, None] - log_factorial
    chance: Vector = np.exp(exponent)
    chance[chance < _NO_SUBNORMALS] = 0.0
    return chance


@cached(64)
def _log_factorials(most: int) -> Vector:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, most + 1.0)))])


def more_than(chance: Vector) -> Vector:
    """Compute P(N > n) from P(N = n), along the last axis."""
    tail = np.zeros_like(chance)
    tail[..., :-1] = chance[..., :0:-1].cumsum(axis=-1)[..., ::-1]
    return tail


def arrivals(mean: float, most: int, keys: int, blocks: int) -> Vector:
    """Compute P(N = n) of one block's arrivals: Poisson, or Binomial where blocks are few."""
    if blocks >= _MANY_BLOCKS or keys <= mean:
        if keys <= mean and keys <= most:  # one block takes them all
            all_here: Vector = np.eye(1, most + 1, keys)[0]
            return all_here
        many: Vector = poisson(np.array([mean]), most)[0]
        return many
    top = min(most, keys)
    n = np.arange(1.0, top + 1.0)
    odds = mean / keys / (1.0 - mean / keys)
    exponent = np.concatenate([[0.0], np.cumsum(np.log(np.maximum((keys + 1.0 - n) / n * odds, 1e-300)))])
    chance = np.zeros(most + 1)
    chance[: top + 1] = np.exp(exponent + keys * math.log1p(-mean / keys))
    return chance


# --- one block of a counted policy ---------------------------------------------------------------


@cached(256)
def effective_rates(bits: int, hashes: int, most: int) -> tuple[Vector, Vector]:
    """Compute q_i, the rate of a block of i keys that each set a new bit, and the throws/hashes behind it.

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
    return rates, thrown


def chain(bits: int, hashes: int, most: int, width: int) -> tuple[Vector, Vector]:
    """Compute P(load = i after n arrivals) without a threshold, [n, i], i = 0 .. width, and the rates q_i."""
    kept = most * width <= 2**20
    return _kept_chain(bits, hashes, most, width) if kept else _new_chain(bits, hashes, most, width)


def _new_chain(bits: int, hashes: int, most: int, width: int) -> tuple[Vector, Vector]:
    rates, _ = effective_rates(bits, hashes, width + 2)
    table = np.zeros((most + 1, width + 1))
    table[0, 0] = 1.0
    stay = rates[: width + 1]
    leave = 1.0 - stay
    first = 0
    for n in range(most):
        top = min(n + 2, width + 1)
        row = table[n, first:top]
        table[n + 1, first:top] = row * stay[first:top]
        table[n + 1, first + 1 : top] += row[:-1] * leave[first : top - 1]
        while first < width and table[n + 1, first] < _NO_SUBNORMALS:
            table[n + 1, first] = 0.0
            first += 1
    return table, rates


_kept_chain = cached(32)(_new_chain)


@cached(16)
def _chain_sums(bits: int, hashes: int, most: int, width: int) -> Vector:
    """Compute the sum of q_i over loads i below h, [n, h], h = 0 .. width + 1."""
    table, rates = chain(bits, hashes, most, width)
    return np.concatenate([np.zeros((most + 1, 1)), np.cumsum(table * rates[: width + 1], axis=1)], axis=1)


def loads_to_follow(most: int, threshold: int) -> int:
    """Choose the width of the chain: loads up to the threshold, in steps that keep tables shared."""
    return min(most, -(-(threshold + 1) // 64) * 64)


def counted_level(
    bits: int, hashes: int, thresholds: Integers, coin: float, most: int
) -> tuple[Vector, Vector, Vector, Vector]:
    """Follow blocks of each threshold through n = 0 .. most arrivals.

    Returns F and C of the module's head, [n, threshold], and P(load = threshold), P(load =
    threshold + 1).
    """
    width = loads_to_follow(most, int(thresholds.max()))
    table, rates = chain(bits, hashes, most, width)
    h = np.minimum(thresholds, width + 1)
    rate_h, rate_over = rates[h], rates[np.minimum(h + 1, width + 2)]
    enters = np.where(h > 0, table[:, h - 1] * (1.0 - rates[h - 1]), 0.0)
    at, over = np.zeros((most + 1, len(h))), np.zeros((most + 1, len(h)))
    at[0] = h == 0
    if coin == 0.0:
        at[1:] = at[0] + np.cumsum(enters[:-1], axis=0)
    else:
        goes = coin * (1.0 - rate_h)
        stays = 1.0 - goes
        for n in range(most):
            np.multiply(at[n], stays, out=at[n + 1])
            at[n + 1] += enters[n]
        over[1:] = np.cumsum(at[:-1] * goes, axis=0)
    positive = _chain_sums(bits, hashes, most, width)[:, h] + at * rate_h + over * rate_over
    passes = (1.0 - coin) * at * (1.0 - rate_h) + over * (1.0 - rate_over)
    positive[positive < _NO_SUBNORMALS] = 0.0
    passes[passes < _NO_SUBNORMALS] = 0.0
    return positive, passes, at, over


# --- one block that fills ------------------------------------------------------------------------


@cached(64)
def key_bands(bits: int, hashes: int) -> Vector:
    """Compute P(a key sets j new bits in a block of x set ones), [x, j]."""
    x, j = np.arange(bits + 1.0), np.arange(hashes + 1.0)[:, None]
    old = np.minimum(x + j, bits) / bits
    new = 1.0 - old
    bands = np.zeros((hashes + 1, bits + 1))
    bands[0] = 1.0
    for throw in range(1, hashes + 1):
        moved = bands[:throw] * new[:throw]
        bands[:throw] *= old[:throw]
        bands[1 : throw + 1] += moved
    return np.ascontiguousarray(bands.T)


@cached(4)
def key_matrix(bits: int, hashes: int) -> Vector:
    """Return the same as a square matrix, [set bits before, set bits after]."""
    bands = key_bands(bits, hashes)
    matrix = np.zeros((bits + 1, bits + 1 + hashes))
    rows = np.arange(bits + 1)
    for j in range(hashes + 1):
        matrix[rows, rows + j] = bands[:, j]
    matrix = matrix[:, : bits + 1]
    return matrix


def set_bits(bits: int, hashes: int, most: int) -> Vector:
    """Compute P(x set bits after n keys were thrown), [n, x], n = 0 .. most."""
    return _kept_set_bits(bits, hashes, most) if most <= 1024 else _new_set_bits(bits, hashes, most)


def set_bits_at_load(bits: int, hashes: int, load: float) -> Vector:
    """Compute P(x set bits) of a block of Poisson(load) keys, x = 0 .. bits."""
    load = min(load, float(KEYS_PER_BIT * bits))
    most = reach(load)
    chance = poisson(np.array([load]), most)[0]
    spread: Vector = (chance / chance.sum()) @ set_bits(bits, hashes, most)
    return spread


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
    return table


_kept_set_bits = cached(8)(_new_set_bits)


@cached(4)
def _fill_sums(bits: int, hashes: int, most: int) -> Vector:
    """Compute E[(X/bits)**hashes; X < x] after n keys, [n, x], x = 0 .. bits + 1."""
    rate = (np.arange(bits + 1) / bits) ** hashes
    summed = np.cumsum(set_bits(bits, hashes, most) * rate, axis=1)
    return np.concatenate([np.zeros((most + 1, 1)), summed], axis=1)


@cached(64)
def _crossings(bits: int, hashes: int) -> tuple[Vector, Vector]:
    """Return, for a block of x bits and j = 1 .. hashes: P(x + j or more after a key), and the same
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
    found = below[:, np.minimum(thresholds, bits + 1)] + full_positive
    passes = full - full_positive
    found[found < _NO_SUBNORMALS] = 0.0
    passes[passes < _NO_SUBNORMALS] = 0.0
    return found, passes


def fill_distribution(bits: int, hashes: int, threshold: int, chance: Vector, tail: Vector) -> Vector:
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
