"""A hashing scheme of your own, checked against the conditions of Lemma 3.3.1 by sampling.

Source: A. Kirsch, "Hash-Based Data Structures for Extreme Conditions", section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.study.theory.less_hashing import limit

__all__ = ["Scheme", "SchemeAtSize", "SchemeCheck", "check_scheme"]

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SchemeAtSize:
    """What was measured at one number of keys; the errors are half-widths of 99.9 % intervals.

    Parameters
    ----------
    keys, hashes
        n and k.
    locations
        Distinct locations that occurred.
    collisions, collisions_error
        n E[C]: keys of n that meet an absent one, counted by positions. Tends to lambda.
    several, several_error
        n P(C >= 2): those that meet it more than once. Must vanish.
    location_excess, location_noise
        The largest abs(p_i/mean - 1) of the chances p_i of all locations; what it may be by chance (1e-6).
    index_excess, index_noise
        The same of the k positions of the absent key, among keys that meet it once.
    """

    keys: int
    hashes: int
    locations: int
    collisions: float
    collisions_error: float
    several: float
    several_error: float
    location_excess: float
    location_noise: float
    index_excess: float
    index_noise: float


@dataclass(frozen=True)
class SchemeCheck:
    """Whether a scheme keeps the conditions of Lemma 3.3.1, as far as samples tell, and its limit then.

    Parameters
    ----------
    sizes
        What was measured, by number of keys.
    conditions
        By name: True (the samples agree), False (they contradict), None (they do not tell). ``even``: 3.,
        every location equally likely; ``apart``: 4., two given locations come together with chance o(1/n);
        ``index``: 4. of the theorem, which follows from both; ``linear``: 5., O(n) locations. 1. is
        assumed: calls, and the rows of an array, are independent and alike. 2. is required: `check_scheme`
        raises otherwise.
    collisions
        lambda, at the largest number of keys.
    limit, limit_low, limit_high
        (1 - exp(-lambda/k))**k, and the same for the ends of lambda's interval.
    """

    sizes: tuple[SchemeAtSize, ...]
    conditions: dict[str, bool | None]
    collisions: float
    limit: float
    limit_low: float
    limit_high: float

    @property
    def holds(self) -> bool | None:
        """True if all conditions hold, False if one fails, None if the samples do not tell."""
        found = set(self.conditions.values())
        return False if False in found else None if None in found else True


Scheme = Callable[[np.random.Generator, int], npt.ArrayLike]
_BATCHES = 16
_DOUBT = 1e-6


def check_scheme(
    scheme: Scheme,
    keys: Sequence[int] = (500, 1000, 2000, 4000),
    *,
    rng: np.random.Generator | int = 0,
    samples: int = 96_000,
) -> SchemeCheck:
    """Check a hashing scheme of your own against Lemma 3.3.1, by sampling, and predict its limit.

    The lemma says: if locations are equally likely, and two of them rarely come together, a filter with
    this scheme has the false-positive probability of a fully random one when keys are many. Samples can
    refute that and support it, not prove it.

    Parameters
    ----------
    scheme
        ``scheme(rng, n)`` gives the k locations of one new key in a filter planned for n keys, as integers;
        or those of many keys, one in each row. k must not depend on anything.
    keys
        Numbers n, ascending, two at least; a factor 8 between the ends tells growth from noise.
    rng
        Generator, or its seed.
    samples
        Keys drawn at each n, half as members and half as absent keys: each of sixteen batches compares all
        members with all absent keys.

    Raises
    ------
    ValueError
        If the scheme returns something else, or an argument is out of its range.

    Examples
    --------
    Double hashing with 8 bits per key, and a scheme that knows only n different sets of positions:

    >>> def double(rng, n, k=6):
    ...     h1, h2 = rng.integers(0, 8 * n, (2, 1000, 1))
    ...     return (h1 + h2 * np.arange(k)) % (8 * n)
    >>> found = check_scheme(double)
    >>> found.holds, found.limit_low < limit(36 / 8, 6) < found.limit_high
    (True, True)
    >>> def one_word(rng, n, k=6):
    ...     return (rng.integers(0, 8 * n, (1000, 1)) + np.arange(k)) % (8 * n)
    >>> check_scheme(one_word).conditions["apart"]
    False
    """
    if not callable(scheme):
        raise arguments.type_error("scheme", "a function of (rng, n)", scheme, "Pass a function")
    sizes_asked = [arguments.integer("keys", n, 2, 2**40, "Pass numbers such as 500, 4000") for n in keys]
    if len(sizes_asked) < 2 or sizes_asked != sorted(set(sizes_asked)):
        raise arguments.error("keys", "two or more numbers, ascending", keys, "Pass (500, 1000, 2000, 4000)")
    samples = arguments.integer("samples", samples, 64, 2**24, "Pass a number such as 96000")
    rng = np.random.default_rng(rng)
    sizes = tuple(_measure_scheme(scheme, n, rng, samples) for n in sizes_asked)
    if len({each.hashes for each in sizes}) > 1:
        found = [each.hashes for each in sizes]
        raise arguments.error("scheme", "one of as many locations for every n", found, "Keep k constant")
    last = sizes[-1]
    ends = [max(last.collisions + sign * last.collisions_error, 0.0) for sign in (-1, 0, 1)]
    low, middle, high = (limit(each, last.hashes) for each in ends)
    conditions = {
        "even": _is_even(sizes),
        "apart": _vanishes(sizes),
        "index": last.index_excess <= last.index_noise,
        "linear": _growth([each.locations for each in sizes], sizes_asked) < 1.2,
    }
    return SchemeCheck(sizes, conditions, last.collisions, middle, low, high)


def _measure_scheme(scheme: Scheme, n: int, rng: np.random.Generator, samples: int) -> SchemeAtSize:
    each = samples // (2 * _BATCHES)
    met, several = np.zeros(_BATCHES), np.zeros(_BATCHES)
    singles: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    seen: list[npt.NDArray[np.int64]] = []
    hashes = 0
    for batch in range(_BATCHES):
        drawn = _draw(scheme, n, rng, 2 * each, hashes)
        hashes = drawn.shape[1]
        members, absent = drawn[:each], drawn[each:]
        seen.append(drawn)
        owner = np.repeat(np.arange(each), hashes)
        held = np.unique(np.stack([members.ravel(), owner]), axis=1)  # each location once a key, sorted
        first = np.searchsorted(held[0], absent.ravel(), "left")
        count = np.searchsorted(held[0], absent.ravel(), "right") - first
        asked = np.repeat(np.arange(absent.size), count)  # (absent key, its index), for each meeting
        within = np.arange(len(asked)) - np.repeat(np.cumsum(count) - count, count)
        who = held[1][np.repeat(first, count) + within]
        _, index, times = np.unique(asked // hashes * each + who, return_index=True, return_counts=True)
        met[batch] = n * times.sum() / each**2
        several[batch] = n * (times >= 2).sum() / each**2
        once = np.bincount(asked[index[times == 1]] % hashes, minlength=hashes)
        singles = once if batch == 0 else singles + once
    everything = np.sort(np.concatenate(seen), axis=1)
    fresh = np.ones(everything.shape, dtype=bool)
    fresh[:, 1:] = np.diff(everything, axis=1) != 0
    _, hits = np.unique(everything[fresh], return_counts=True)
    return SchemeAtSize(
        n, hashes, len(hits),
        float(met.mean()), _half_width(met), float(several.mean()), _half_width(several),
        *_excess(hits), *_excess(singles),
    )  # fmt: skip


def _draw(
    scheme: Scheme, n: int, rng: np.random.Generator, wanted: int, hashes: int
) -> npt.NDArray[np.int64]:
    """Collect the locations of `wanted` keys, a row each; `hashes` is how many there must be, 0 if any."""
    rows: list[npt.NDArray[np.int64]] = []
    got = 0
    while got < wanted:
        given = np.asarray(scheme(rng, n))
        if given.ndim == 1:
            given = given[None, :]
        rule = "a function that gives integers: k locations, or k in each row"
        if given.ndim != 2 or given.size == 0 or given.dtype.kind not in "iu":
            found = f"an array of {given.dtype}, shape {given.shape}"
            raise arguments.error("scheme", rule, found, "Number the locations")
        if hashes and given.shape[1] != hashes:
            found = f"{hashes} and then {given.shape[1]}"
            raise arguments.error("scheme", "one of as many locations each time", found, "Keep k constant")
        hashes = given.shape[1]
        rows.append(given.astype(np.int64))
        got += len(given)
    return np.concatenate(rows)[:wanted]


def _half_width(means: _Floats) -> float:
    """Return half of a 99.9 % interval for the mean of sixteen batches: 4.07 is Student's."""
    return 4.07 * float(means.std(ddof=1)) / math.sqrt(len(means))


def _excess(hits: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Return the largest relative deviation from evenness, and Bernstein's bound for it at 1e-6."""
    mean = float(hits.mean()) if len(hits) else 0.0
    if mean == 0:
        return 0.0, math.inf
    strength = math.log(2 * len(hits) / _DOUBT)
    noise = math.sqrt(2 * strength / mean) + 2 * strength / (3 * mean)
    return float(np.abs(hits / mean - 1).max()), noise


def _is_even(sizes: Sequence[SchemeAtSize]) -> bool:
    """Return whether all locations are equally likely: no single one stands out, nor all of them together.

    With L locations of chances p_i, E[C] is the sum of p_i^2, which is k^2/L if they are equal, and above it
    by their relative variance if not.
    """
    if any(each.location_excess > each.location_noise for each in sizes):
        return False
    last = sizes[-1]
    least = last.collisions - last.collisions_error
    return least * last.locations / (last.keys * last.hashes**2) < 1.02


def _vanishes(sizes: Sequence[SchemeAtSize]) -> bool | None:
    """Return whether n P(C >= 2) falls with n: from the slope of its logarithm between the ends."""
    first, last = sizes[0], sizes[-1]
    if last.several + last.several_error < 1e-3:
        return True
    if first.several <= 0 or last.several <= 0:
        return None
    span = math.log(last.keys / first.keys)
    slope = math.log(last.several / first.several) / span
    error = math.hypot(first.several_error / first.several, last.several_error / last.several) / span
    if slope + error < 0:
        return True
    return False if error < 0.5 and last.several > 0.01 else None


def _growth(numbers: Sequence[float], keys: Sequence[int]) -> float:
    return math.log(numbers[-1] / numbers[0]) / math.log(keys[-1] / keys[0])
