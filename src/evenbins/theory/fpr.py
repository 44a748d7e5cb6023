"""False-positive rates of Bloom filters: exact, at every size, in both directions.

The idea. An absent key is a false positive when its `hashes` probes all fall on set bits. Do not
follow the filter's X set bits (as many states as bits): follow the *probe*. Its positions cover j
distinct bits; while keys are thrown in, the number u of those bits not yet set can only fall:

    u ──(u/bits)──▶ u-1        a throw hits one of them
    u ──(1-u/bits)─▶ u         it does not

At most `hashes` + 1 states, whatever the size of the filter, and the answer is P(u reaches 0). All
throws are one power of one small triangular matrix, taken by repeated squaring, so that a filter
of 2**56 bits costs about 60 products of 65 x 65 matrices.

A block is the same with another step: with chance 1/blocks a key comes here and throws `hashes`
times, otherwise nothing happens. The load of the block is then Binomial(keys, 1/blocks) exactly,
so few blocks are predicted as well as many; many blocks make it Poisson(keys/blocks).

Invariants:

- Only positive terms are added; the diagonal, where rounding errors would grow with the number of
  throws, is written down in closed form each time. Relative error below 1e-13, small rates too.
- Two keys of one 64-bit digest cannot be told apart: every rate includes that `digest_floor`.
- `standard_bits` and `blocked_blocks` invert `standard` and `blocked` to the last bit.

Tried and dropped: the distribution of X itself for every rate (`occupancy`, kept as the definition
and the tests' oracle: too slow beyond 1e5 bits); inclusion-exclusion (loses rates below 1e-10);
mean and variance of X for large filters (correct to second order only, and no longer needed).

`levels` predicts a balanced filter level by level, from `rate_by_load`.

Sources: F. Putze, P. Sanders, J. Singler, "Cache-, hash- and space-efficient Bloom filters" (2007),
for blocks and their Poisson load; K. Christensen, A. Roginsky, M. Jimeno, "A new analysis of the
false positive rate of a Bloom filter" (2010), for why the textbook formula is too low;
S. Swamidass, P. Baldi, "Mathematical correction for fingerprint similarity measures" (2007), for
the number of keys from the number of set bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory.caching import cached

__all__ = [
    "MAX_BITS", "MAX_HASHES_BLOCKED", "MAX_HASHES_STANDARD", "best_hashes_blocked", "best_hashes_standard",
    "blocked", "blocked_blocks", "blocked_fill", "checked_sizes", "digest_floor",
    "keys_from_blocked_fill", "keys_from_standard_fill", "occupancy", "rate_by_load",
    "round_up", "standard", "standard_bits", "standard_fill", "standard_miss_reads",
]  # fmt: skip

Vector = npt.NDArray[np.float64]

MAX_BITS = 2**56
"""Largest filter the inverse functions consider: 8 PiB."""
MAX_HASHES_STANDARD = 64
MAX_HASHES_BLOCKED = 32

_ROUNDING = Fraction(1, 2**50)
_NEGLIGIBLE = 1e-290  # dropped from distributions: far below every rate, and no slow subnormals


# --- distributions of the number of set bits -----------------------------------------------------


def occupancy(bits: int, throws: int) -> Vector:
    """Distribute the number of set bits after `throws` uniform throws into `bits` bits.

    Entry x is P(X = x); x runs to min(bits, throws), beyond which nothing is possible.
    Costs `throws` steps on the part of the vector that is not negligible.
    """
    bits = _whole("bits", bits, 1)
    throws = _whole("throws", throws, 0)
    most = min(bits, throws)
    chance = np.zeros(most + 1)
    chance[0] = 1.0
    hit_set = np.arange(most + 1) / bits
    hit_new = (float(bits) - np.arange(most + 1)) / bits
    first, last = 0, 0
    for _ in range(throws):
        first, last = _throw(chance, hit_set, hit_new, first, last)
    return chance


def _throw(chance: Vector, hit_set: Vector, hit_new: Vector, first: int, last: int) -> tuple[int, int]:
    """Do one throw, in place; entries outside first..last are zero, before and after."""
    grown = min(last + 1, len(chance) - 1)
    moved = chance[first:grown] * hit_new[first:grown]
    chance[first : grown + 1] *= hit_set[first : grown + 1]
    chance[first + 1 : grown + 1] += moved
    while first < grown and chance[first] < _NEGLIGIBLE:
        chance[first] = 0.0
        first += 1
    while grown > first and chance[grown] < _NEGLIGIBLE:
        chance[grown] = 0.0
        grown -= 1
    return first, grown


# --- the chain of a probe's unset bits -----------------------------------------------------------


def _power(strict: Vector, log_diagonal: Vector, times: int) -> Vector:
    """Raise strict + diagonal to a power by squaring; return the strictly lower part.

    The diagonal to any power is exp(times * log_diagonal): exact where squaring it would double its
    relative error each time.
    """
    result = strict
    step = np.exp(log_diagonal)
    done = 1
    for digit in bin(times)[3:]:
        diagonal = np.exp(done * log_diagonal)
        result = diagonal[:, None] * result + result * diagonal + result @ result
        done *= 2
        if digit == "1":
            diagonal = np.exp(done * log_diagonal)
            result = step[:, None] * result + strict * diagonal + strict @ result
            done += 1
    return result


def _one_throw(bits: int, most: int) -> tuple[Vector, Vector]:
    """Return strict part and logarithm of the diagonal of one throw, for up to `most` unset bits."""
    unset = np.arange(most + 1, dtype=np.float64)
    strict = np.diag(unset[1:] / bits, -1)
    with np.errstate(divide="ignore"):
        return strict, np.log1p(-unset / bits)


@cached(4096)
def _distinct(bits: int, hashes: int) -> Vector:
    """Compute the distribution of the number of distinct bits of a probe."""
    chance = occupancy(bits, hashes)
    chance.flags.writeable = False
    return chance


@cached(4096)
def _one_key(block_bits: int, hashes: int) -> tuple[Vector, Vector]:
    """Return the step of one key in one block: strict part, and the diagonal minus one."""
    strict, log_diagonal = _one_throw(block_bits, min(block_bits, hashes))
    strict = _power(strict, log_diagonal, hashes)
    change = np.expm1(hashes * log_diagonal)
    strict.flags.writeable = change.flags.writeable = False
    return strict, change


def _all_set(distinct: Vector, strict: Vector) -> float:
    """Compute P(every bit of the probe is set) from its distinct bits and the chain's power."""
    return min(float(distinct[1:] @ strict[1:, 0]), 1.0)


# --- false-positive rates ------------------------------------------------------------------------


def digest_floor(keys: int) -> float:
    """Compute P(a key shares its 64-bit digest with one of `keys` others)."""
    return -math.expm1(keys * math.log1p(-(2.0**-64)))


def _with_floor(rate: float, keys: int) -> float:
    floor = digest_floor(keys)
    return min(rate + (1.0 - rate) * floor, 1.0)


@cached(4096)
def standard(bits: int, hashes: int, keys: int) -> float:
    """Predict the false-positive rate of a standard filter.

    E[(X/bits)**hashes], X the number of set bits, and the digest floor.
    Exact for every size. Cost: log2(keys * hashes) products of (hashes + 1)-square matrices.
    """
    bits, hashes, keys = checked_sizes(bits=bits, hashes=hashes, keys=keys)
    if keys == 0:
        return 0.0
    distinct = _distinct(bits, hashes)
    strict, log_diagonal = _one_throw(bits, len(distinct) - 1)
    return _with_floor(_all_set(distinct, _power(strict, log_diagonal, keys * hashes)), keys)


@cached(4096)
def blocked(blocks: int, block_bits: int, hashes: int, keys: int) -> float:
    """Predict the false-positive rate of a blocked filter whose keys choose blocks uniformly.

    E[(X/block_bits)**hashes], X the set bits of a block of Binomial(keys, 1/blocks) keys, and the
    digest floor. Exact for every size. Cost: log2(keys) products of (hashes + 1)-square matrices.
    """
    blocks, block_bits, hashes, keys = checked_sizes(
        blocks=blocks, block_bits=block_bits, hashes=hashes, keys=keys
    )
    if keys == 0:
        return 0.0
    strict, change = _one_key(block_bits, hashes)
    with np.errstate(divide="ignore"):
        log_diagonal = np.log1p(change / blocks)
    power = _power(strict / blocks, log_diagonal, keys)
    return _with_floor(_all_set(_distinct(block_bits, hashes), power), keys)


def rate_by_load(bits: int, hashes: int, most: int) -> Vector:
    """Compute g_i = E[(X_i/bits)**hashes], i = 0 .. `most`: the rate of a block that i keys were thrown into.

    X_i is the number of set bits after i*hashes throws into `bits` bits: exact occupancy, by the
    chain of the module's head; read-only. Without the digest floor. Cost: `most` products of a
    vector of hashes + 1 by a matrix, remembered.
    """
    bits, hashes = checked_sizes(bits=bits, hashes=hashes)
    most = _whole("most", most, 0)
    return _rate_by_load(bits, hashes, 1 << max(most, 63).bit_length())[: most + 1]


@cached(256)
def _rate_by_load(bits: int, hashes: int, most: int) -> Vector:
    strict, change = _one_key(bits, hashes)
    step = strict + np.diag(1.0 + change)
    unset = np.zeros(len(change))
    unset[: min(bits, hashes) + 1] = _distinct(bits, hashes)
    rates = np.empty(most + 1)
    for load in range(most + 1):
        rates[load] = unset[0]
        unset = unset @ step
    np.minimum(rates, 1.0, out=rates)
    return rates


# --- fill, reads, and keys from fill -------------------------------------------------------------


def standard_fill(bits: int, hashes: int, keys: int) -> float:
    """Predict the fraction of set bits of a standard filter."""
    bits, hashes, keys = checked_sizes(bits=bits, hashes=hashes, keys=keys)
    return -math.expm1(keys * hashes * _log_not(1 / bits)) if keys else 0.0


def blocked_fill(blocks: int, block_bits: int, hashes: int, keys: int) -> float:
    """Predict the fraction of set bits of a blocked filter."""
    blocks, block_bits, hashes, keys = checked_sizes(
        blocks=blocks, block_bits=block_bits, hashes=hashes, keys=keys
    )
    return -math.expm1(keys * _log_key_misses(blocks, block_bits, hashes)) if keys else 0.0


def standard_miss_reads(fill: float, hashes: int) -> float:
    """Predict the probes of an absent key: up to and with the first zero bit, or all `hashes`."""
    hashes = _whole("hashes", hashes, 1)
    if not 0.0 <= fill <= 1.0:
        raise ValueError(f"fill must be a fraction from 0 to 1; got {fill!r}")
    return math.fsum(fill**probe for probe in range(hashes))


def keys_from_standard_fill(bits: int, hashes: int, set_bits: int) -> float:
    """Estimate the keys in a standard filter from its number of set bits; inf when full."""
    bits, hashes, set_bits = checked_sizes(bits=bits, hashes=hashes, set_bits=set_bits)
    return _keys_from_fill(bits, set_bits, lambda: hashes * _log_not(1 / bits))


def keys_from_blocked_fill(blocks: int, block_bits: int, hashes: int, set_bits: int) -> float:
    """Estimate the keys in a blocked filter from its number of set bits; inf when full.

    A key leaves a given bit unset with chance 1 - (1 - (1 - 1/block_bits)**hashes)/blocks, whence
    for many blocks keys = -blocks*ln(1 - fill)/(1 - (1 - 1/block_bits)**hashes).
    """
    blocks, block_bits, hashes, set_bits = checked_sizes(
        blocks=blocks, block_bits=block_bits, hashes=hashes, set_bits=set_bits
    )
    return _keys_from_fill(blocks * block_bits, set_bits, lambda: _log_key_misses(blocks, block_bits, hashes))


def _keys_from_fill(bits: int, set_bits: int, log_key_misses: Callable[[], float]) -> float:
    if set_bits > bits:
        raise ValueError(f"set_bits must be at most the {bits} bits of the filter; got {set_bits}")
    if set_bits == bits:
        return math.inf
    return math.log1p(-set_bits / bits) / log_key_misses() if set_bits else 0.0


def _log_key_misses(blocks: int, block_bits: int, hashes: int) -> float:
    """Compute ln P(one key leaves a given bit of a blocked filter alone)."""
    hit_in_block = -math.expm1(hashes * _log_not(1 / block_bits))
    return _log_not(hit_in_block / blocks)


def _log_not(chance: float) -> float:
    return math.log1p(-chance) if chance < 1.0 else -math.inf


# --- best number of hashes -----------------------------------------------------------------------


@cached(4096)
def best_hashes_standard(bits: int, keys: int) -> int:
    """Find the number of hashes, 1 to 64, of least false-positive rate; of equals the smallest."""
    bits, keys = checked_sizes(bits=bits, keys=keys)
    return _best_hashes(lambda hashes: standard(bits, hashes, keys), bits, keys, MAX_HASHES_STANDARD)


@cached(4096)
def best_hashes_blocked(blocks: int, block_bits: int, keys: int) -> int:
    """Find the number of hashes, 1 to 32, of least false-positive rate; of equals the smallest."""
    blocks, block_bits, keys = checked_sizes(blocks=blocks, block_bits=block_bits, keys=keys)
    return _best_hashes(
        lambda hashes: blocked(blocks, block_bits, hashes, keys),
        blocks * block_bits,
        keys,
        MAX_HASHES_BLOCKED,
    )


def _best_hashes(rate: Callable[[int], float], bits: int, keys: int, most: int) -> int:
    """Descend from the textbook's bits/keys * ln 2 to the least rate."""
    guess = math.log(2) * bits / keys if keys else 1.0
    best = max(1, min(most, round(guess)))
    while best > 1 and rate(best - 1) <= rate(best):
        best -= 1
    while best < most and rate(best + 1) < rate(best):
        best += 1
    return best


# --- from the rate to the size -------------------------------------------------------------------


@cached(4096)
def standard_bits(keys: int, fpr: float, hashes: int | None = None) -> int:
    """Find the least bits of a standard filter with a rate of at most `fpr`.

    With `hashes` None, every size uses its best number of them.

    Raises
    ------
    ValueError
        No filter of up to 2**56 bits reaches `fpr`; the message names the least rate that can be.
    """
    rate, best = lambda k, bits: standard(bits, k, keys), lambda bits: best_hashes_standard(bits, keys)
    return _least_size(rate, best, keys, fpr, hashes, 1, MAX_HASHES_STANDARD)


@cached(4096)
def blocked_blocks(keys: int, fpr: float, block_bits: int, hashes: int | None = None) -> int:
    """Find the least blocks of a blocked filter with a rate of at most `fpr`, as `standard_bits` does."""
    unit = _whole("block_bits", block_bits, 1)
    return _least_size(
        lambda k, blocks: blocked(blocks, block_bits, k, keys),
        lambda blocks: best_hashes_blocked(blocks, block_bits, keys),
        keys, fpr, hashes, unit, MAX_HASHES_BLOCKED,
    )  # fmt: skip


def _least_size(
    rate: Callable[[int, int], float],
    best_hashes: Callable[[int], int],
    keys: int,
    fpr: float,
    hashes: int | None,
    unit: int,
    most_hashes: int,
) -> int:
    """Find the least size, in units of `unit` bits, with rate(hashes, size) <= fpr."""
    keys = _whole("keys", keys, 1)
    if not 0.0 < fpr < 1.0:
        raise arguments.unmet("fpr", f" must be a rate between 0 and 1, both excluded; got {fpr!r}")
    limit = MAX_BITS // unit
    ideal = fpr - digest_floor(keys)  # what is left for the bits themselves
    k = hashes
    if k is None:
        k = max(1, min(most_hashes, round(-math.log2(ideal)))) if ideal > 0 else most_hashes
        if rate(k, limit) > fpr:
            k = best_hashes(limit)
    if rate(k, limit) > fpr:
        raise arguments.unmet("fpr", _out_of_reach(fpr, rate(k, limit), keys, hashes))

    while True:
        guess = _mean_field_bits(keys, ideal, k) / unit
        size = _least(partial(rate, k), fpr, guess, limit, slope=-0.7 * k)
        if hashes is not None or size == 1:
            return size
        other = best_hashes(size - 1)
        if rate(other, size - 1) > fpr:
            return size
        k, limit = other, size - 1


def _out_of_reach(fpr: float, least: float, keys: int, hashes: int | None) -> str:
    given = "" if hashes is None else f" and hashes={hashes}"
    leave = "" if hashes is None else "leave hashes out, "
    # A shade more than the least rate, so that the printed number can itself be asked for.
    return (
        f" must be at least {least * 1.001:.3e} for {keys} keys{given} (64-bit digests, at most "
        f"2**56 bits); got {fpr!r}. Ask for a larger fpr, {leave}or split the keys over several "
        f"filters"
    )


def _mean_field_bits(keys: int, rate: float, hashes: int) -> float:
    """Solve (1 - (1 - 1/bits)**(hashes*keys))**hashes = rate: where the search begins."""
    if rate <= 0.0:
        return float(MAX_BITS)
    fill = min(rate ** (1 / hashes), 1.0 - 2.0**-53)
    return -1.0 / math.expm1(math.log1p(-fill) / (hashes * keys))


def _least(value: Callable[[int], float], target: float, guess: float, limit: int, *, slope: float) -> int:
    """Find the least x in 1..limit with value(x) <= target; value falls, value(limit) <= target.

    The bracket value(low) > target >= value(high) closes to high = low + 1: the answer is the least
    one even where rounding hides the slope. Steps: secant on log-log scale, first along `slope`;
    where that leaves the bracket, growing strides from its edge; after 40 of them, halving.
    """
    low, high = 0, limit
    x = max(1, min(limit - 1, math.ceil(min(guess, float(limit)))))
    before: tuple[int, float] | None = None
    stride = 1
    steps = 0
    while high - low > 1:
        steps += 1
        reached = value(x)
        if reached <= target:
            high = x
        else:
            low = x
        if before is not None and before[0] != x:
            run = math.log1p((x - before[0]) / before[0])
            rise = math.log(reached / before[1])
            if rise * run < 0:
                slope = rise / run
        before = (x, reached)
        growth = min(max(math.log(target / reached) / slope, -2.0), 2.0)
        x += math.ceil(x * math.expm1(growth))
        if not low < x < high:
            x = high - stride if x >= high else low + stride
            stride *= 2
        if steps > 40 or not low < x < high:
            x = (low + high) // 2
    return high


# --- arguments -----------------------------------------------------------------------------------


def _whole(name: str, value: int, least: int) -> int:
    rule = f"an integer of at least {least}"
    return arguments.integer(name, value, least, None, f"Pass {least} or more", rule=rule)


def checked_sizes(**values: int) -> tuple[int, ...]:
    """Check integers: counts (keys, set_bits) from 0, everything else from 1."""
    return tuple(
        _whole(name, value, 0 if name in ("keys", "set_bits") else 1) for name, value in values.items()
    )


def round_up(keys: int, bits_per_key: float, unit: int) -> int:
    """Count the units of so many bits that keys * bits_per_key bits take: exactly, rounded up.

    A product that differs from an integer by at most 2**-50 of itself *is* that integer, since the float may
    lie that far from the number the user meant: 28.755 * 1000 is 28755 bits, not 28756.
    """
    exact = Fraction(bits_per_key) * keys / unit
    nearest = round(exact)
    return nearest if abs(exact - nearest) <= exact * _ROUNDING else math.ceil(exact)
