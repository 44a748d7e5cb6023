"""Counting filters and count-min sketches: the thesis' bound, and the worst stream of a sketch, exactly.

Source: A. Kirsch, "Hash-Based Data Structures for Extreme Conditions", sections 2.1.2 and 3.8.
"""

from __future__ import annotations

import math
from fractions import Fraction

from evenbins.sketches.countmin import SketchPlan
from evenbins.theory.counting import sum_from

__all__ = ["hit_everywhere", "overflow_bound", "poisson_tail"]


def poisson_tail(mean: float, least: int) -> float:
    """Compute P(Poisson(mean) >= least), in the same way.

    Examples
    --------
    >>> f"{poisson_tail(math.log(2), 16):.4e}"
    '7.0728e-17'
    """
    if least <= 0:
        return 1.0
    if mean <= 0.0:
        return 0.0
    if least > mean:
        far = least + 60 + int(20 * math.sqrt(least))
        return sum_from(_log_poisson(mean, least), (mean / (i + 1) for i in range(least, far)))
    return 1.0 - sum_from(_log_poisson(mean, least - 1), (i / mean for i in range(least - 1, 0, -1)))


def _log_poisson(mean: float, i: int) -> float:
    return i * math.log(mean) - math.lgamma(i + 1) - mean


def overflow_bound(keys: int, counters: int, hashes: float, counter_bits: int) -> float:
    """Compute the thesis' bound on the probability that a counter overflows (section 2.1.2).

    m P(Poisson(nk/m) >= 2**b): the union over the counters of the chance that the value does not fit.

    Examples
    --------
    >>> f"{overflow_bound(10_000, 80_000, 8 * math.log(2), 4):.3e}"
    '5.658e-12'
    """
    return counters * poisson_tail(keys * hashes / counters, 2**counter_bits)


def hit_everywhere(plan: SketchPlan, keys: int) -> float:
    """Compute the probability that `keys` others share every counter of a key, each row's with some of them.

    Exact, for ideal hashing. If their weights are equal and they are fewer than 1/epsilon, each weighs more
    than epsilon * total, and this is the probability of failure: the worst stream we know.

    Two-hash: another key, whose h1 and h2 differ from ours by a and b, meets us in table j where a + j·b = 0,
    a line in a plane of w² points; two such lines have one point in common, since w is prime. So one key
    misses s tables with probability 1 - (s(w - 1) + 1)/w²; inclusion and exclusion over the tables that all
    keys miss does the rest.

    Examples
    --------
    >>> from evenbins.sketches import plan_countmin
    >>> round(hit_everywhere(plan_countmin(0.01, 0.01), 99), 5)
    0.00266
    >>> round(hit_everywhere(plan_countmin(0.01, 0.01, construction="two-hash"), 99), 6)
    0.000444
    """
    w = plan.width
    if plan.construction == "classic":
        return float(-math.expm1(keys * math.log1p(-1 / w))) ** plan.depth
    missed = [1 - Fraction(s * (w - 1) + 1, w * w) if s else Fraction(1) for s in range(plan.depth + 1)]
    terms = ((-1) ** s * math.comb(plan.depth, s) * p**keys for s, p in enumerate(missed))
    return float(sum(terms)) ** plan.copies
