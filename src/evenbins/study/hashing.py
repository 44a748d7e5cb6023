"""Standard filters that compute two or three hashes instead of k: plans for `BloomFilter.from_plan`.

`evenbins.study.theory.hashing_law` says what they cost: a floor below which the rate does not fall.
"""

from __future__ import annotations

import warnings
from typing import SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins.filters.standard import SCHEMES, StandardPlan, plan_standard
from evenbins.study.theory.hashing_law import law_of_scheme

__all__ = ["plan_scheme"]


def plan_scheme(
    hashing: str, capacity: SupportsIndex | SupportsFloat, *, fpr: float | None = None,
    bits_per_key: float | None = None, hashes: int | None = None, seed: int = 0,
) -> StandardPlan:  # fmt: skip
    """Plan a standard filter of a hashing scheme.

    Parameters
    ----------
    hashing
        "independent", "partition", "double", "enhanced-double" (also with -cube or -tetrahedral), "triple".
    capacity, fpr, bits_per_key, hashes, seed
        As for `BloomFilter`.

    Warns
    -----
    UserWarning
        The scheme cannot reach `fpr`; the plan's own `fpr` is what to expect.

    Examples
    --------
    >>> plan_scheme("double", 1000, bits_per_key=28.755).fpr > 30 * plan_scheme("triple", 1000, fpr=1e-6).fpr
    True
    """
    hashing = arguments.one_of("hashing", hashing, SCHEMES, 'Leave it out for "independent"')
    plan = plan_standard(capacity, fpr, bits_per_key=bits_per_key, hashes=hashes, seed=seed)
    if hashing == "independent":
        return plan
    rate, per_key = arguments.goal(fpr, bits_per_key)
    bits, k = plan.core
    if per_key is None:
        bits = _least_bits(hashing, plan.keys, rate, bits, k)
    core = (_whole_parts(hashing, bits, k), k)
    plan = StandardPlan.of_core("standard", core, plan.keys, plan.seed, hashing)
    if per_key is None and plan.fpr > rate * 1.01:
        floor = law_of_scheme(hashing, plan.core.bits, k, plan.keys).floor
        warnings.warn(
            f'hashing="{hashing}" has a floor of {floor:.3g} with {plan.core.bits} bits, {k} hashes '
            f"and {plan.keys} keys: expect fpr={plan.fpr:.3g}, not {rate:g}. "
            "Leave hashing out for independent hashes",
            UserWarning,
            stacklevel=2,
        )
    return plan


def _whole_parts(scheme: str, bits: int, hashes: int) -> int:
    """Round up to what a partition needs: equal parts."""
    return -(-bits // hashes) * hashes if scheme == "partition" else bits


def _least_bits(scheme: str, keys: int, rate: float, bits: int, hashes: int) -> int:
    """Find the least bits at which the scheme has the rate.

    Up to a quarter more than independent hashes need; beyond that the floor rules, and more bits would
    be wasted.
    """

    def met(size: int) -> bool:
        return law_of_scheme(scheme, _whole_parts(scheme, size, hashes), hashes, keys).fpr <= rate

    low, high = bits, bits + bits // 4
    if met(low):
        return low
    if not met(high):
        return bits
    while high - low > max(1, bits >> 12):
        middle = (low + high) // 2
        low, high = (low, middle) if met(middle) else (middle, high)
    return high
