"""Bloom filters with two or three hash functions: the theorems on what they cost.

    limit(collisions, hashes) -> float                          many keys: as if fully random (Theorem 3.3.1)
    rate(hashing, bits, hashes, keys, *, offset) -> float       the false-positive probability, floor included
    floor(...) -> float                                         what is above independent hashing
    convergence_bound(...) -> float                             Theorem 3.5.1 with its constants
    concentration(epsilon, ...) -> float                        Theorem 3.6.1: a filter's own rate

`law`, which predicts a rate and its causes, is in `hashing_law`, and here too; section 3.3
for a scheme of your own is in `hashing_schemes`.

Source: A. Kirsch, "Hash-Based Data Structures for Extreme Conditions", chapter 3. Letters: n `keys`, m
`bits`, k `hashes`, lambda `collisions` (k^2 n/m). Misprint corrected: in Theorem 3.6.1 xi is nk Delta (2
lambda + nk Delta), as its own proof requires (d = lambda/n + k Delta, and n d^2 is squared out). By Remark
3.6.2 it is 0 for all schemes here.
"""

from __future__ import annotations

import math

from evenbins import _arguments as arguments
from evenbins.study.theory.hashing_law import HASHINGS, OFFSETS, Law, checked_hashes, checked_scheme, law

__all__ = [
    "HASHINGS", "OFFSETS", "Law", "concentration", "convergence_bound", "floor", "law", "limit", "rate",
]  # fmt: skip


def limit(collisions: float, hashes: int) -> float:
    """Return (1 - exp(-collisions/hashes))**hashes: the rate when keys are many (Theorem 3.3.1).

    Parameters
    ----------
    collisions
        lambda: keys of the filter that meet an absent key, on average. ``hashes**2 * keys / bits`` for
        every scheme of this module.
    hashes
        k, positions of a key.

    Examples
    --------
    >>> round(limit(6**2 / 8, 6), 6)                            # 8 bits per key, 6 hashes
    0.021577
    """
    remedy = "Pass hashes**2 * keys / bits"
    rule = "a number of keys, 0 or more"
    number = arguments.real("collisions", collisions, rule, remedy, least=0.0, below=math.inf)
    hashes = checked_hashes(hashes)
    return float((-math.expm1(-number / hashes)) ** hashes)


def rate(hashing: str, bits: int, hashes: int, keys: int, *, offset: str = "square") -> float:
    """Predict the false-positive probability of a Bloom filter, its floor included.

    Parameters and errors as for `law`.

    Examples
    --------
    Small rates are where less hashing shows: 28.755 bits per key would give a millionth.

    >>> for hashing in HASHINGS:
    ...     print(f"{hashing:16} {rate(hashing, 28_755, 20, 1000):.3g}")
    independent      1e-06
    partition        0.000485
    double           3.95e-05
    enhanced-double  8.39e-06
    triple           1.22e-06
    """
    return law(hashing, bits, hashes, keys, offset=offset).fpr


def floor(hashing: str, bits: int, hashes: int, keys: int, *, offset: str = "square") -> float:
    """Return what a scheme adds to the false-positive probability of independent hashing; as `rate`.

    Examples
    --------
    >>> floor("independent", 28_755, 20, 1000)
    0.0
    >>> f"{floor('double', 28_755, 20, 1000):.2e}"
    '3.85e-05'
    """
    return law(hashing, bits, hashes, keys, offset=offset).floor


def convergence_bound(hashing: str, bits: int, hashes: int, keys: int, *, offset: str = "square") -> float:
    """Bound abs(probability - limit): Theorem 3.5.1, every constant of its proof kept.

    n E[Z1] + lambda E[Z2] + lambda**2/n, and the chance that z has fewer than k positions. A key meets two
    given positions with chance g/m**2 for each of two of its own, g = gcd(their distance, m); B2 is the sum
    over all pairs. Then E[Z1] <= 2 B2 (plus what z's positions lack of lambda/kn), and
    E[Z2] <= 2 B2/(lambda/n - 2 B2).
    O(1/n) for fixed bits per key. It is a bound and no estimate: `rate` is mostly a hundred times closer.

    Parameters as for `rate`. At most 1, which says nothing.

    Examples
    --------
    >>> for keys in (10**4, 10**6, 10**8):
    ...     print(f"{convergence_bound('double', 8 * keys, 6, keys) * keys:.1f}")
    94.6
    94.6
    94.6
    """
    hashing, bits, hashes, keys, offset = checked_scheme(hashing, bits, hashes, keys, offset)
    if keys == 0:
        return 0.0
    size = bits // hashes if hashing == "partition" else bits
    collisions = hashes * keys / size if hashing == "partition" else hashes**2 * keys / bits
    differences = [(j - i, i + j) for j in range(hashes) for i in range(j)]
    if hashing == "independent":
        steps = [1] * len(differences)
    elif hashing == "triple":
        steps = [math.gcd(d, d * (total - 1) // 2, size) for d, total in differences]
    else:
        steps = [math.gcd(d, size) for d, _ in differences]
    if hashing == "partition":
        pairs, fewer, lacking = sum(steps) / size**2, 0.0, 0.0
    else:
        pairs = len(differences) * 2 * sum(steps) / size**2
        fewer = sum(steps) / size
        lacking = hashes * hashes * fewer / size  # k positions, each hit with chance (k - coincidences)/m
    several = 2 * pairs
    single = collisions / keys - lacking - several
    if single <= 0:
        return 1.0
    bound = fewer + keys * (several + lacking) + collisions * several / single + collisions**2 / keys
    return min(bound, 1.0)


def concentration(
    epsilon: float,
    hashing: str,
    bits: int,
    hashes: int,
    keys: int,
    *,
    offset: str = "square",
    around: str = "limit",
) -> float:
    """Bound P(abs(R - p) > epsilon), R a filter's own rate (Theorem 3.6.1, misprint corrected).

    The false-positive *probability* is of a filter yet to be filled; once it is, the false positives among
    other keys come at its own *rate* R, a random number of that mean. One key changes R by lambda/n at most:
    P(abs(R - E[R]) > delta) <= 2 exp(-2 n delta**2/lambda**2); around the limit p, delta is epsilon less
    abs(E[R] - p). xi of the theorem is 0 for all schemes here. Far from sharp: R's standard deviation is much
    below what it allows (`evenbins reproduce kirsch-fig3.1` shows it).

    Parameters
    ----------
    epsilon
        The distance, above 0.
    hashing, bits, hashes, keys, offset
        As for `rate`.
    around
        p: ``"limit"``, as in the theorem, or ``"probability"``, E[R] itself.

    Examples
    --------
    >>> concentration(0.001, "double", 8_000_000, 6, 1_000_000)
    1.0
    >>> f"{concentration(0.01, 'double', 8_000_000, 6, 1_000_000):.1e}"
    '1.0e-04'
    """
    distance = arguments.real("epsilon", epsilon, "", "Pass a distance such as 0.001", above=0.0)
    arguments.one_of("around", around, ("limit", "probability"), 'Pass "limit", as in the theorem')
    hashing, bits, hashes, keys, offset = checked_scheme(hashing, bits, hashes, keys, offset)
    if keys == 0:
        return 0.0
    size = bits // hashes if hashing == "partition" else bits
    collisions = hashes * keys / size if hashing == "partition" else hashes**2 * keys / bits
    if around == "limit":
        distance -= abs(law(hashing, bits, hashes, keys, offset=offset).fpr - limit(collisions, hashes))
        if distance <= 0:
            return 1.0
    return min(2 * math.exp(-2 * keys * distance**2 / collisions**2), 1.0)
