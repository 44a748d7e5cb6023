"""Bloom filters with two or three hash functions: what they cost, at every size.

    law(hashing, bits, hashes, keys, *, offset) -> Law      the false-positive probability, with its causes

A key's k positions in m bits, from h1, h2, h3 that are independent and uniform:

    independent       k hash functions
    partition         part i of k: h1 + i h2        mod m' = m/k (rounded down)
    double                         h1 + i h2        mod m
    enhanced-double                h1 + i h2 + f(i) mod m, f(i) = i^2, i^3 or (i^3 - i)/6 (`offset`)
    triple                         h1 + i h2 + i(i-1)/2 h3 mod m

The idea. Fix the absent key z and follow its positions, as `fpr` does: u of them are not yet set. A key of
the filter covers s of z's d distinct positions with some chance q_s, so that

    u ──(hypergeometric: t of the u among s of d)──▶ u - t,    once for each key;    rate = P(u reaches 0)

Independent hashing has almost only s = 0 and s = 1, each key one position at a time. Less hashing differs in
two ways, and the law is these two: the distribution of d, and q_s for s >= 2.

d: z meets itself. h2 = 0 (chance 1/m) leaves one position; h2 of order o < k modulo m leaves o. With i^2, and
with triple hashing, a sequence that is symmetric (h2 = -sigma for i^2) folds onto its half. All h2 for which
any two positions meet are enumerated, so that d is exact for every m, prime or not.

q_s: one key meets z often. (Delta i) h2(z) = (Delta j) h2(x) puts both on a common progression of steps
(P, Q) in (i, j). A chain of s such steps lies N_s = (k - (s-1)P)(k - (s-1)Q) times in the square k x k, so
N_s - 2 N_{s+1} + N_{s+2} chains are of length s exactly. Each has chance phi(g)/m^2, g = gcd(P, Q), if g
divides m, else 0: these are the solutions of Q h2(x) - P h2(z) = tau, tau of order g. So double hashing has

    q_s = 2/m^2 sum over P, Q >= 1, g | m, of phi(g) (N_s - 2 N_{s+1} + N_{s+2}),        s >= 2,

which contains the same (h1, h2), its shifts by j (s = k - j), the reversals (h2 -> -h2), and ratios such as
2:1. i^2 keeps shifts and reversals, (h1 + t h2 + t^2, h2 + 2t), and has pairs otherwise; i^3 and the
tetrahedral numbers keep the same (h1, h2) alone; triple hashing keeps shifts and reversals, at 1/m^3. In a
partition scheme x and z meet at i if A + i B = 0 mod m': all k at once with chance 1/m'^2, or every o-th if B
has order o.

Invariants
- q_s is the mean over z. Which s positions a key covers is taken to be uniform: exact while z owes its fate
  to one such key, wrong in second order only. docs/less_hashing.md has it beside simulations.
- A rate is a probability for all arguments; below some hundred bits it is a guess.
- Rates include `fpr.digest_floor`, as all rates of the library do. Nothing here needs scipy.

Tried and dropped: first-order sums over collisions alone (`Law.terms` keeps them, to explain; some per cent
off where collisions are many); enumerating all pairs of positions for q_s (k^4/2 of them; a test does, for
small k, and finds the closed forms).

Source: A. Kirsch, "Hash-Based Data Structures for Extreme Conditions", chapter 3; P. Dillinger, P. Manolios,
"Bloom filters in probabilistic verification" (2004), for enhanced double and triple hashing. Their letters: n
`keys`, m `bits`, k `hashes`. `evenbins.study.theory.less_hashing` has the theorems.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory import fpr
from evenbins.theory.caching import cached

__all__ = ["HASHINGS", "OFFSETS", "Law", "checked_hashes", "checked_scheme", "law", "law_of_scheme"]

HASHINGS = ("independent", "partition", "double", "enhanced-double", "triple")
OFFSETS = ("square", "cube", "tetrahedral")

_Floats = npt.NDArray[np.float64]
_CLASSES = 12  # of h3 by its divisors, in triple hashing: the rest of the weight is a per cent or less


# --- limit and law ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Law:
    """A false-positive probability and its causes.

    Parameters
    ----------
    fpr
        The probability, everything included.
    independent
        That of k independent hash functions.
    floor
        The difference, 0 at least: what less hashing costs.
    terms
        The floor by cause, each to first order, so that they add up to it roughly: ``same`` (a key of the
        same hash values), ``shift`` and ``reversal`` (the same progression, shifted or reversed), ``ratio``
        (several positions shared otherwise), ``degenerate`` (the absent key's own positions coincide).
    """

    fpr: float
    independent: float
    floor: float
    terms: dict[str, float]


def law(hashing: str, bits: int, hashes: int, keys: int, *, offset: str = "square") -> Law:
    """Predict the false-positive probability of a Bloom filter, its floor included, with its causes.

    Parameters
    ----------
    hashing
        One of `HASHINGS`.
    bits
        m, of the filter; any number.
    hashes
        k, 1 to 64.
    keys
        n, in the filter.
    offset
        f(i) of ``"enhanced-double"``: ``"square"``, ``"cube"`` or ``"tetrahedral"``.

    Raises
    ------
    ValueError
        If an argument is out of its range, or a partition has fewer bits than hashes.

    Examples
    --------
    Three is a divisor of 28,755, and so is five: h2 of order 1, 3 and 5 is the worst of double hashing here.

    >>> for cause, part in law("double", 28_755, 20, 1000).terms.items():
    ...     print(f"{cause:10} {part:.1e}")
    same       1.2e-06
    shift      2.4e-06
    reversal   3.6e-06
    ratio      1.7e-07
    degenerate 3.1e-05
    """
    hashing, bits, hashes, keys, offset = checked_scheme(hashing, bits, hashes, keys, offset)
    found = _law(hashing, bits, hashes, keys, offset)
    return replace(found, terms=dict(found.terms))  # the caller's own: the rest cannot be changed


def law_of_scheme(scheme: str, bits: int, hashes: int, keys: int) -> Law:
    """Predict a filter by the name that its plan has for the scheme, such as "enhanced-double-cube"."""
    name, _, offset = scheme.partition("-double-")
    return law("enhanced-double" if offset else name, bits, hashes, keys, offset=offset or "square")


@cached(1024)
def _law(hashing: str, bits: int, hashes: int, keys: int, offset: str) -> Law:
    independent = fpr.standard(bits, hashes, keys)
    if hashing == "independent" or keys == 0 or hashes == 1:
        return Law(independent, independent, 0.0, {})
    shape = _shape(hashing, bits, hashes, offset)
    total = 0.0
    for distinct in range(1, hashes + 1):
        weight = float(shape.distinct[distinct])
        if weight > 0:
            total += weight * _cover_chance(distinct, shape.shared_of(distinct), keys)
    total = min(total, 1.0)
    total = min(total + (1.0 - total) * fpr.digest_floor(keys), 1.0)
    fill = -math.expm1(keys * math.log1p(-min(shape.hit, 1.0 - 1e-16)))
    return Law(total, independent, max(total - independent, 0.0), shape.terms(keys, fill))


@dataclass(frozen=True)
class _Shape:
    """What distinguishes a scheme: how z meets itself, how one key meets z. Arrays by number, 0 to k."""

    hit: float  # chance that a key covers one given position
    distinct: _Floats  # [d]: chance that z has d distinct positions
    shared: _Floats  # [s]: chance that a key covers s of z's k, s >= 2
    pairs: float  # E[s choose 2], of all k
    named: dict[str, _Floats]  # parts of `shared`, by cause

    def shared_of(self, distinct: int) -> _Floats:
        """Compute the chances of 0 to d positions covered, of a z that has only d."""
        most = len(self.shared) - 1
        chance = np.zeros(distinct + 1)
        if distinct == most:
            chance[2:] = self.shared[2:]
        elif distinct >= 2:
            chance[2] = self.pairs * math.comb(distinct, 2) / math.comb(most, 2)
        sizes = np.arange(distinct + 1)
        met = distinct * self.hit  # E[s]
        several = float(chance @ sizes)
        if several > met:  # a filter of a few bits: no pretence of accuracy
            chance *= met / several
            several = met
        chance[1] += met - several
        chance /= max(float(chance.sum()), 1.0)
        chance[0] = 1.0 - float(chance.sum())
        return chance

    def terms(self, keys: int, fill: float) -> dict[str, float]:
        most = len(self.shared) - 1
        sizes = np.arange(most + 1)
        gain = fill ** (most - sizes) - fill**most
        terms = {name: keys * float(part @ gain) for name, part in self.named.items()}
        usual = most * (most - 1) / 2 * (self.hit / most) ** 2 * most * (most - 1)  # pairs by chance
        rest = self.shared - sum(self.named.values())
        terms["ratio"] = max(keys * (float(rest @ gain) - usual * float(gain[2])), 0.0)
        chance_of_one_less = math.comb(most, 2) * self.hit / most
        degenerate = float(self.distinct[:-1] @ (fill ** sizes[:-1] - fill**most))
        if self.distinct[most] < 1.0:
            degenerate -= chance_of_one_less * (fill ** (most - 1) - fill**most)
        terms["degenerate"] = max(degenerate, 0.0)
        return terms


def _cover_chance(distinct: int, chance: _Floats, keys: int) -> float:
    """Compute P(all positions are covered) after `keys` keys, each of which covers s with chance[s]."""
    strict = np.zeros((distinct + 1, distinct + 1))
    stays = np.zeros(distinct + 1)  # log of the chance that none of the unset is covered
    sizes = [s for s in range(1, distinct + 1) if chance[s] > 0]
    for unset in range(1, distinct + 1):
        gone = 0.0
        for s in sizes:
            ways = math.comb(distinct, s)
            gone += chance[s] * (1 - math.comb(distinct - unset, s) / ways)
            for covered in range(1, min(s, unset) + 1):
                here = math.comb(unset, covered) * math.comb(distinct - unset, s - covered)
                strict[unset, unset - covered] += chance[s] * (here / ways)
        stays[unset] = math.log1p(-gone) if gone < 1 else -math.inf
    return min(float(fpr._power(strict, stays, keys)[distinct, 0]), 1.0)


# --- the shapes of the schemes ---------------------------------------------------------------------------


@cached(1024)
def _shape(hashing: str, bits: int, hashes: int, offset: str) -> _Shape:
    if hashing == "partition":
        return _partition_shape(bits // hashes, hashes)
    if hashing == "triple":
        distinct = _triple_distinct(bits, hashes)
    else:
        distinct = _distinct(
            bits, [_offset(offset, i) if hashing == "enhanced-double" else 0 for i in range(hashes)]
        )
    pairs = _pairs(hashing, bits, hashes, offset) / bits**2
    one = 1.0 / bits**3 if hashing == "triple" else 1.0 / bits**2
    named = {name: np.zeros(hashes + 1) for name in ("same", "shift", "reversal")}
    named["same"][hashes] = one
    if hashing != "enhanced-double" or offset == "square":  # shifts stay within the scheme
        named["shift"][2:hashes] = 2 * one
        named["reversal"][2:hashes] = 2 * one
        named["reversal"][hashes] = one
    if hashing == "double":
        shared = _progressions(bits, hashes) / bits**2
    else:
        shared = named["same"] + named["shift"] + named["reversal"]
        shared[2] = 0.0
        counted = sum(math.comb(s, 2) * shared[s] for s in range(3, hashes + 1))
        shared[2] = max(pairs - counted, 0.0)
    if hashes >= 3:  # three by chance, as with independent hashing
        shared[3] += math.comb(hashes, 3) * hashes * (hashes - 1) * (hashes - 2) / bits**3
    hit = min(float(distinct @ np.arange(hashes + 1)) / bits, 1.0)
    return _Shape(hit, distinct, shared, pairs, named)


def _partition_shape(size: int, hashes: int) -> _Shape:
    """Two keys meet in part i iff A + i B = 0 mod size; A, B uniform."""
    shared, same = np.zeros(hashes + 1), np.zeros(hashes + 1)
    for order in range(1, hashes):
        if size % order == 0:  # B of this order: every order-th part, from each of the first ones
            for first in range(order):
                shared[len(range(first, hashes, order))] += _totient(order) / size**2
    same[hashes] = 1.0 / size**2
    shared[:2] = 0.0
    distinct = np.zeros(hashes + 1)
    distinct[hashes] = 1.0
    pairs = sum(math.comb(s, 2) * float(shared[s]) for s in range(2, hashes + 1))
    return _Shape(1.0 / size, distinct, shared, pairs, {"same": same})


def _progressions(bits: int, hashes: int) -> _Floats:
    """Count, by length, the common progressions of two keys: bits**2 q_s of the module's head."""
    steps = np.arange(1, hashes)
    weight = np.array([_totient(g) if g and bits % g == 0 else 0 for g in range(hashes)], dtype=float)
    weights = weight[np.gcd.outer(steps, steps)]
    sizes = np.arange(2, hashes + 3)
    room = np.maximum(hashes - np.multiply.outer(sizes - 1, steps), 0).astype(float)  # [s, P]
    chains = np.einsum("sp,pq,sq->s", room, weights, room)
    out = np.zeros(hashes + 1)
    out[2:] = 2 * (chains[:-2] - 2 * chains[1:-1] + chains[2:])
    return out


@cached(1024)
def _pairs(hashing: str, bits: int, hashes: int, offset: str) -> float:
    """Count pairs of positions of z and of x that may meet: bits**2 E[s choose 2], the mean over z.

    Two positions of each, dI and dJ apart, meet if dJ h2(x) - dI h2(z) = c: g = gcd(dI, dJ, bits) chances in
    `bits` if g divides c, else none.
    """
    if hashing == "triple":  # three unknowns and four coefficients: d and d(i + j - 1)/2 of either key
        steps: dict[int, int] = {}
        for j in range(hashes):
            for i in range(j):
                step = math.gcd(j - i, (j - i) * (i + j - 1) // 2, bits)
                steps[step] = steps.get(step, 0) + 1
        return float(sum(2 * a * b * math.gcd(p, q) for p, a in steps.items() for q, b in steps.items()))
    total = 0.0
    offsets = [_offset(offset, i) if hashing == "enhanced-double" else 0 for i in range(hashes)]
    rises = [np.array([offsets[i + d] - offsets[i] for i in range(hashes - d)]) for d in range(hashes)]
    for p in range(1, hashes):
        for q in range(1, hashes):
            g = math.gcd(p, q, bits)
            if g == 1:
                total += 2.0 * (hashes - p) * (hashes - q)
                continue
            of_z, of_x = np.bincount(rises[p] % g, minlength=g), np.bincount(rises[q] % g, minlength=g)
            reversed_x = np.bincount(-rises[q] % g, minlength=g)
            total += g * float(of_z @ of_x + of_z @ reversed_x)
    return total


def _distinct(bits: int, offsets: Sequence[int]) -> _Floats:
    """Distribute the number of distinct positions i h2 + offsets[i] mod bits, h2 uniform; exact.

    Every h2 for which two positions meet solves (j - i) h2 = offsets[i] - offsets[j] for some i < j.
    """
    hashes = len(offsets)
    steps: set[int] = set()
    for j in range(1, hashes):
        for i in range(j):
            right = offsets[i] - offsets[j]
            g = math.gcd(j - i, bits)
            if right % g == 0:
                period = bits // g
                first = right // g * pow((j - i) // g, -1, period) % period if period > 1 else 0
                steps.update(range(first, bits, period))
    chance = np.zeros(hashes + 1)
    if steps:
        index, offset = np.arange(hashes), np.array([each % bits for each in offsets])
        positions = (np.array(sorted(steps), dtype=np.int64)[:, None] * index + offset) % bits
        positions.sort(axis=1)
        distinct = 1 + (np.diff(positions, axis=1) != 0).sum(axis=1)
        chance += np.bincount(distinct, minlength=hashes + 1) / bits
    chance[hashes] += (bits - len(steps)) / bits
    return chance


def _triple_distinct(bits: int, hashes: int) -> _Floats:
    """Distribute the distinct positions of triple hashing: given h3, it is double hashing with offsets.

    A unit of the ring scales all positions alike, so that h3 matters only by its divisors shared with `bits`,
    and if it has itself a small order.
    """

    def given(h3: int) -> _Floats:
        return _distinct(bits, [i * (i - 1) // 2 * h3 % bits for i in range(hashes)])

    small = math.gcd(bits, math.lcm(*range(1, 2 * hashes)) ** 2)  # the part of small primes
    weights = {g: _totient(small // g) / small for g in _divisors(small)}
    kept = sorted(weights, key=lambda g: -weights[g])[:_CLASSES]
    orders = [order for order in range(1, hashes + 1) if bits % order == 0]
    special = sum(_totient(order) for order in orders) / bits
    usual = max(1.0 - special, 0.0) / sum(weights[g] for g in kept)
    chance = np.zeros(hashes + 1)
    for g in kept:
        chance += usual * weights[g] * given(g)
    for order in orders:
        chance += _totient(order) / bits * given(bits // order % bits)
    chance /= chance.sum()
    return chance


def _offset(name: str, i: int) -> int:
    return i * i if name == "square" else i**3 if name == "cube" else (i**3 - i) // 6


def _totient(number: int) -> int:
    """Count the residues that have no divisor in common with `number`, which has small ones only."""
    result, rest, prime = number, number, 2
    while rest > 1:
        if rest % prime == 0:
            result -= result // prime
            while rest % prime == 0:
                rest //= prime
        prime += 1
    return result


def _divisors(number: int) -> list[int]:
    """List the divisors of a number that has small prime factors only."""
    out, rest, prime = [1], number, 2
    while rest > 1:
        power, found = 1, list(out)
        while rest % prime == 0:
            rest //= prime
            power *= prime
            out += [each * power for each in found]
        prime += 1
    return out


# --- how fast, how surely --------------------------------------------------------------------------------


def checked_scheme(
    hashing: object, bits: object, hashes: object, keys: object, offset: object
) -> tuple[str, int, int, int, str]:
    """Check hashing, bits, hashes, keys and offset."""
    hashing = arguments.one_of("hashing", hashing, HASHINGS, 'Pass "independent"')
    offset = arguments.one_of("offset", offset, OFFSETS, 'Pass "cube"')
    m = arguments.integer("bits", bits, 1, fpr.MAX_BITS, "Pass the bits of the filter")
    k = checked_hashes(hashes)
    n = arguments.integer("keys", keys, 0, arguments.MAX_CAPACITY, "Pass the keys in the filter")
    if hashing == "partition" and m < k:
        raise arguments.error("bits", f"at least hashes={k}, one for each part", m, "Pass more bits")
    return hashing, m, k, n, offset


def checked_hashes(value: object) -> int:
    """Check the number of positions of a key."""
    return arguments.integer("hashes", value, 1, fpr.MAX_HASHES_STANDARD, "Pass a number such as 7")
