"""The fingerprint filter: what its lines hold, what they pass on, and so what a look-up reads.

The way of a key::

    digest ──▶ fingerprint F = (line i, quotient q, remainder r), one of M = lines * quotients * 2**bits

    level 1   a line holds the runs of its first quotients, up to s slots; the first run that does not fit,
       │      and all after it, go on:     T = max{t : elements with q < t are at most s}
    level 2   a line for `group` lines of level 1; runs of the same kind, 64 quotients
       │
    level 3   16 entries (8 if the remainder is wide) for 16 lines of level 2: the largest stay
       │
    the rest  a sorted list

A look-up is wrong if an absent key shares the fingerprint of a present one: the rate is 1 - exp(-keys/M),
whatever the levels do. All else follows from how the keys fall, and is computed from their law; nothing here
is fitted.

Level 1. Line and quotient of a key are uniform, so the runs of a line are independent Poisson variables X_q
of mean λ = load/quotients, C(t) = X_0 + … + X_(t-1) is Poisson(tλ), and run q leaves when C(q+1) > s:

    share of keys that leave    Σ_q P(C(q+1) + 1 > s) / quotients         (a key sees itself and the others)
    misses that go on           Σ_q P(X_q > 0, C(q+1) > s) / quotients    (the absent key's run must exist)

These two use the binomial law of a finite number of keys. The levels below use the Poisson law, under which
lines are independent; a filter of few lines passes on slightly less.

Level 2. Run q of line i = group*j + m goes to line 16*(j//16) + (j + q) % 16, quotient 4m + q%4. So line a of
level 2 gets from each of the 16 j of its block the runs with q % 16 = (a - j) % 16, and its quotient 4m + b
gets them from four lines of level 1, one for each of the residues b, b+4, b+8, b+12. All its quotients have
different lines of level 1: they are independent, and the same rule with s2 slots gives exactly what leaves
level 2. If quotient t is the first to leave a line, those after it are unconditioned Poisson variables.

Level 3 and the rest. The 16 lines of level 2 in a block share their lines of level 1, so what they pass on is
correlated, and the rest is 2 to 3 times what independent lines would leave. Their mean correlation is known
exactly, from the variances of one line and of the whole block. A common normal factor of this correlation (a
Gaussian copula) joins the 16 exact marginal laws: the one approximation here, within a tenth of simulations
(tests/unit/test_theory_fingerprint.py).

Sources: P. Pandey, M. Bender, R. Johnson, R. Patro, "A general-purpose counting filter" (SIGMOD 2017), for
runs with end bits; T. Even, G. Even, A. Morrison, "Prefix filter" (VLDB 2022), for lines that pass on their
largest fingerprints.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins.theory.caching import cached

__all__ = [
    "ENTRIES",
    "LINE_BITS",
    "FingerprintLaw",
    "Groups",
    "LevelOne",
    "fpr",
    "groups",
    "law",
    "level_one",
    "slots",
]

LINE_BITS = 512
ENTRIES = 16
"""Entries of 32 bits in a line of level 3; half as many, of 64 bits, if the remainder is wide."""
NARROW = 17
"""The most remainder bits with which an entry of level 3 takes 32 bits."""
MAX_GROUP = 16
QUOTIENTS = 64
"""Quotients of a line of level 2, and the most of one of level 1."""
MORE_BITS = 4
"""Bits by which the remainders of level 2 are wider."""
_SUPPORT = 127  # runs and excesses of a line of level 2 above this have no weight at any planned load
_SIZES = np.arange(_SUPPORT + 1)
_SIZES.flags.writeable = False
_LENGTH = 4 * (_SUPPORT + 1)
_OVERLOAD = 1.5  # keys per slot, above which only the rate is computed: no filter takes as many
_FACTORS = np.linspace(-5.0, 7.0, 25)  # of the common normal factor; the far right is what fills the rest

_Floats = npt.NDArray[np.float64]


def slots(remainder: int, quotients: int) -> int:
    """Return the slots of a line: each takes its remainder and an end bit, each quotient a bit.

    Examples
    --------
    >>> slots(8, 64), slots(10, 39), slots(16, 64)
    (49, 43, 26)
    """
    return (LINE_BITS - quotients) // (remainder + 1)


def entries(remainder: int) -> int:
    """Return the entries of a line of level 3."""
    return ENTRIES if remainder <= NARROW else ENTRIES // 2


def fpr(keys: float, fingerprints: int) -> float:
    """Compute the false-positive rate: the chance that a fingerprint is one of those of `keys` keys.

    Examples
    --------
    >>> f"{fpr(1000, 2**20):.6e}"
    '9.532197e-04'
    """
    return -math.expm1(-keys / fingerprints)


class LevelOne(NamedTuple):
    """What leaves level 1: the share of the keys, and the share of the look-ups of absent keys."""

    keys: float
    misses: float


class Groups(NamedTuple):
    """What leaves level 2, for lines that serve 1, 2, … 16 lines of level 1 each; first axis: group - 1.

    Attributes
    ----------
    keys, misses : keys, and runs of level 1, that leave a line of level 2, expected
    left : the law of the number of keys that leave it
    correlation : between the loads of two lines of level 2 in a block
    """

    keys: _Floats
    misses: _Floats
    left: _Floats
    correlation: float


class FingerprintLaw(NamedTuple):
    """What a filter does with its keys.

    Attributes
    ----------
    fpr : false-positive rate
    reads, miss_reads : lines read by a look-up of a present and of an absent key
    shares : of the keys that are in level 1, level 2, level 3 and the rest
    rest, deviation : the number in the rest, and its standard deviation
    """

    fpr: float
    reads: float
    miss_reads: float
    shares: tuple[float, float, float, float]
    rest: float
    deviation: float


@cached(256)
def law(keys: float, lines: int, remainder: int, quotients: int, group: int) -> FingerprintLaw:
    """Compute the law of a filter with `keys` different fingerprints or copies in it.

    Examples
    --------
    >>> found = law(1_000_000, 14 * 16 * 97, 8, 64, 14)
    >>> f"{found.fpr:.3e} {found.reads:.3f} {found.miss_reads:.3f}"
    '2.805e-03 1.036 1.017'
    """
    s = slots(remainder, quotients)
    rate = fpr(keys, lines * quotients << remainder)
    keys = min(keys, _OVERLOAD * s * lines)
    first = level_one(keys, lines, s, quotients)
    below = groups(keys / lines, quotients, s, slots(remainder + MORE_BITS, QUOTIENTS))
    mean, variance = _rest(below.left[group - 1], below.correlation, entries(remainder))
    blocks, per_line = lines // (MAX_GROUP * group), keys / (lines // group)
    third = float(below.keys[group - 1]) / per_line
    last = blocks * mean / keys
    third, last = min(third, first.keys), min(last, third, first.keys)
    missed = float(below.misses[group - 1]) / (quotients * group)
    return FingerprintLaw(
        rate,
        1.0 + first.keys + third + last,
        1.0 + first.misses + min(missed, first.misses),
        (1.0 - first.keys, first.keys - third, third - last, last),
        last * keys,
        math.sqrt(blocks * variance),
    )


def level_one(keys: float, lines: int, s: int, quotients: int) -> LevelOne:
    """Compute what leaves level 1, by the binomial law of `keys` keys in so many lines of s slots.

    Examples
    --------
    >>> found = level_one(1_000_000, 25_000, 43, 39)
    >>> f"{found.keys:.4f} {found.misses:.4f}"
    '0.0376 0.0217'
    """
    chance = np.arange(quotients + 1) / (
        lines * quotients
    )  # that a key is in the first t quotients of a line
    others = _at_most(keys - 1.0, chance[1:], s - 1)
    first = 1.0 - _at_most(keys, chance, s)
    empty = math.exp(keys * math.log1p(-1.0 / (lines * quotients))) if lines * quotients > 1 else 0.0
    # Given that its run is empty, the keys fall among the other quotients.
    rest = 1.0 - _at_most(keys, chance[:-1] / (1.0 - chance[1]), s)
    return LevelOne(float(np.mean(1.0 - others)), max(float(np.mean(first[1:] - empty * rest)), 0.0))


def _at_most(trials: float, chances: _Floats, most: int) -> _Floats:
    """Compute P(Binomial(trials, chance) <= most) for each chance; the Poisson law for many trials."""
    k = np.arange(most + 1)
    if trials < most:
        return np.ones(len(chances))
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(chances) - np.log1p(-chances)
        logs = k * (math.log(max(trials, 1e-300)) + odds[:, None]) + (trials * np.log1p(-chances))[:, None]
    logs[chances <= 0.0] = np.where(k == 0, 0.0, -np.inf)
    falling = np.concatenate(
        ([0.0], np.cumsum(np.log1p(-np.minimum(np.arange(most) / max(trials, 1.0), 1.0 - 1e-16))))
    )
    result: _Floats = np.exp(logs + falling - _log_factorials(most)).sum(axis=1)
    return np.minimum(result, 1.0)


@cached(maxsize=None)
def _log_factorials(most: int) -> _Floats:
    return np.array([math.lgamma(k + 1.0) for k in range(most + 1)])


@cached(maxsize=256)
def groups(load: float, quotients: int, s: int, s2: int) -> Groups:
    """Compute what leaves a line of level 2, for each size of group.

    Sums of independent numbers are products of their transforms; every law has room for sums of four.

    Parameters
    ----------
    load, quotients, s
        Keys per line of level 1, its quotients and slots.
    s2
        Slots of a line of level 2.
    """
    spectra, runs, pieces, correlation = _runs(load, quotients, s)
    steps = 4 * MAX_GROUP
    held = np.zeros((steps + 1, s2 + 1))  # law of the keys in the quotients before, where they fit
    held[0, 0] = 1.0
    moves = [np.array([np.r_[np.zeros(x), run[: s2 + 1 - x]] for x in range(s2 + 1)]) for run in runs]
    for step in range(steps):
        held[step + 1] = held[step] @ moves[step % 4]
    classes = np.arange(steps) % 4
    free = held[:-1, ::-1]  # by the slots that are left: 0 … s2
    gone = 1.0 - held[:-1].sum(axis=1)

    def leaving(amounts: _Floats) -> _Floats:
        """Sum what runs of each class bring, by their number of keys, over the runs that do not fit."""
        total = amounts.sum(axis=1)
        fitting = np.cumsum(amounts[:, : s2 + 1], axis=1)
        parts = np.sum(free * (total[:, None] - fitting)[classes], axis=1) + gone * total[classes]
        result: _Floats = np.cumsum(parts)[3::4]
        return result

    fewer = np.concatenate(
        (np.zeros((steps, 1)), np.cumsum(free, axis=1)), axis=1
    )  # P(fewer than x slots are left)
    first = runs[classes] * fewer[:, np.minimum(_SIZES, s2 + 1)]
    left = np.zeros(_LENGTH // 2 + 1, dtype=np.complex128)
    laws = []
    for step, spectrum in enumerate(np.fft.rfft(first, _LENGTH)):
        left = left * spectra[step % 4] + spectrum
        if step % 4 == 3:
            laws.append(left)
    result = np.maximum(np.fft.irfft(np.array(laws), _LENGTH)[:, : _SUPPORT + 1], 0.0)
    result[:, 0] += held[4::4].sum(axis=1)
    return Groups(leaving(runs * _SIZES), leaving(pieces), result, correlation)


def _runs(load: float, quotients: int, s: int) -> tuple[npt.NDArray[np.complex128], _Floats, _Floats, float]:
    """Return the laws of a run of level 2 for each class b, and the correlation of two lines.

    Their transforms; the laws; and the runs of level 1 in one, expected, by its number of keys.
    """
    mean = load / quotients
    before = _poisson(mean * np.arange(float(quotients)), s).cumsum(axis=1)  # P(C(t) <= k)
    fewer = np.where(s >= _SIZES, before[:, np.maximum(s - _SIZES, 0)], 0.0)
    # first[t, x]: quotient t is the first to leave its line, with x keys
    first = _poisson(np.array([mean]), _SUPPORT)[0] * (before[:, s:] - fewer)
    chance = first.sum(axis=1)
    spectra = np.fft.rfft(first, _LENGTH)
    # One quotient after it: its keys, and those of them that make a run.
    one = np.exp(mean * (np.exp(-2j * np.pi * np.arange(_LENGTH // 2 + 1) / _LENGTH) - 1.0))
    run = one - math.exp(-mean)
    number = np.arange(quotients)
    laws, pieces = [], []
    for residue in range(MAX_GROUP):
        mine = number % MAX_GROUP == residue
        after = np.cumsum(mine[::-1])[::-1] - mine  # quotients of this residue after t
        powers = one ** np.arange(after[0] + 2)[:, None]
        counts = np.arange(after[0] + 2)[:, None] * run * powers[[0, *range(after[0] + 1)]]
        weights = np.bincount(after, np.where(mine, 0.0, chance), after[0] + 2)
        own, last = spectra[mine], after[mine]
        laws.append(1.0 - chance.sum() + weights @ powers + np.sum(own * powers[last], axis=0))
        pieces.append(weights @ counts + np.sum(own * (powers[last] + counts[last]), axis=0))
    law, piece = np.reshape(laws, (4, 4, -1)), np.reshape(pieces, (4, 4, -1))  # residue 4k + b
    runs = law.prod(axis=0)
    others = np.array([np.delete(law, k, axis=0).prod(axis=0) for k in range(4)])
    both = np.fft.irfft(np.concatenate((runs, np.sum(piece * others, axis=0))), _LENGTH)[:, : _SUPPORT + 1]
    both = np.maximum(both, 0.0)
    return runs, both[:4], both[4:], _correlation(both[:4], first, mean)


def _correlation(runs: _Floats, first: _Floats, mean: float) -> float:
    """Compute the mean correlation of two lines of level 2: by what a block's variance exceeds theirs."""
    line = float(np.sum(runs @ _SIZES**2 - (runs @ _SIZES) ** 2))
    later = mean * np.arange(len(first))[::-1]  # keys in the quotients after t
    own, square, chance = first @ _SIZES, first @ _SIZES**2, first.sum(axis=1)
    mean_left = float(np.sum(own + chance * later))
    squares = float(np.sum(square + 2.0 * own * later + chance * (later + later**2)))
    block = squares - mean_left**2
    if line <= 0.0:
        return 0.0
    return min(max((block / line - 1.0) / (MAX_GROUP - 1), 0.0), 0.99)


def _poisson(means: _Floats, most: int) -> _Floats:
    """Compute the Poisson laws of some means, up to `most`."""
    k = np.arange(most + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = k * np.log(means)[:, None] - means[:, None] - _log_factorials(most)
    logs[means <= 0.0] = np.where(k == 0, 0.0, -np.inf)
    result: _Floats = np.exp(logs)
    return result


def _rest(left: _Floats, correlation: float, room: int) -> tuple[float, float]:
    """Compute mean and variance of what a block sends to the rest: more than `room` from its 16 lines.

    Given the common factor z, the lines are independent, and one sends at most k with probability
    Φ((Φ⁻¹(P(at most k)) - √ρ z) / √(1-ρ)).
    """
    at_most = np.minimum(np.cumsum(left), 1.0 - 1e-15)
    normal = NormalDist()
    levels = np.array([normal.inv_cdf(p) if p > 0.0 else -40.0 for p in at_most.tolist()])
    shifted = (levels - math.sqrt(correlation) * _FACTORS[:, None]) / math.sqrt(1.0 - correlation)
    given = np.diff(_normal_cdf(shifted), axis=1, prepend=0.0)
    weights = np.exp(-(_FACTORS**2) / 2.0)
    weights /= weights.sum()
    total = np.fft.irfft(weights @ np.fft.rfft(given, _LENGTH) ** MAX_GROUP, _LENGTH)
    over = np.maximum(np.arange(_LENGTH) - room, 0)
    mean = max(float(total @ over), 0.0)
    return mean, max(float(total @ over**2) - mean**2, 0.0)


def _normal_cdf(x: _Floats) -> _Floats:
    values = [0.5 * math.erfc(-each) for each in (x.ravel() * math.sqrt(0.5)).tolist()]
    return np.array(values).reshape(x.shape)
