"""Plans: from what a user asks for to the integers a filter is built from.

    capacity, fpr or bits_per_key, hashes ──▶ integer core ──▶ predictions
                                             (stored, compared,   (floats beside it,
                                              merged by)           outside equality)

A plan's *core* says everything about where a key's bits go, but the seed: `(bits, hashes)` for
"standard", `(blocks, block_bits, hashes)` for "blocked", `(counters, counter_bits, hashes,
block_bits)` for "counting", which `plan_counting` plans, and for the balanced policies, which
`plan_balanced` plans, `(policy, block_bits, hashes, choices, coin, overflow_limit, spill, budget,
blocks_0, threshold_0, …)`. Predictions follow from the core and the
number of keys (`plan_of_core`), so a loaded file gets the same plan that built it.

Invariants:

- Two plans are equal exactly when policy, hashing, seed and core are: then filters can be merged.
- A plan that is returned can be built: every argument is checked here, and every message names the
  argument, the rule, the value received and a way out.
- bits_per_key * capacity is computed exactly and rounded up, but a product that differs from an
  integer by at most 2**-50 of itself *is* that integer, since the float may lie that far from
  the number the user meant: 28.755 * 1000 is 28755 bits, not 28756.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins.theory import fpr as theory
from evenbins.theory.filter_plan import OVERFILLED, Family, FilterPlan, plan_of_core, rate_of_core, register

__all__ = ["OVERFILLED", "FilterPlan", "plan_blocked", "plan_of_core", "plan_standard"]

SCHEMES = (
    "independent", "partition", "double", "enhanced-double", "enhanced-double-cube",
    "enhanced-double-tetrahedral", "triple",
)  # fmt: skip
_ROUNDING = Fraction(1, 2**50)
_OF_CORE = "Pass a filter's plan.core"


def plan_standard(
    capacity: SupportsIndex | SupportsFloat,
    *,
    fpr: float | None = None,
    bits_per_key: float | None = None,
    hashes: int | None = None,
    hashing: str = "independent",
    seed: int = 0,
) -> FilterPlan:
    """Plan a standard filter: the fewest bits for `fpr`, or the best use of `bits_per_key`.

    Parameters
    ----------
    capacity, fpr, bits_per_key, hashes, hashing, seed
        As for `BloomFilter`: 1 to 2**48 keys, up to 4096 bits per key, 1 to 64 hashes. A plan whose `hashing`
        cannot reach `fpr` warns, and its own `fpr` is what to expect.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or no filter reaches `fpr`.

    Examples
    --------
    >>> plan = plan_standard(1000, bits_per_key=28.755)
    >>> plan.core
    (28755, 20)
    >>> plan_standard(10_000_000, fpr=1e-3)
    FilterPlan(policy='standard', keys=10_000_000, bits_per_key=14.38, hashes=10, fpr=1.00e-03, \
reads=10, miss_reads=2.003, nbytes=18.0 MB)
    """
    plan, problem = plan_scheme(
        capacity, fpr=fpr, bits_per_key=bits_per_key, hashes=hashes, hashing=hashing, seed=seed
    )
    if problem is not None:
        warnings.warn(problem, UserWarning, stacklevel=3)
    return plan


def plan_scheme(
    capacity: SupportsIndex | SupportsFloat,
    *,
    fpr: float | None = None,
    bits_per_key: float | None = None,
    hashes: int | None = None,
    hashing: str = "independent",
    seed: int = 0,
) -> tuple[FilterPlan, str | None]:
    """Plan as `plan_standard` does; return the plan, and what it warns of if the rate is out of reach."""
    keys = arguments.capacity(capacity)
    rate, per_key = arguments.goal(fpr, bits_per_key)
    k = arguments.hashes(hashes, theory.MAX_HASHES_STANDARD)
    seed = arguments.seed(seed)
    scheme = _scheme(hashing)
    if per_key is None:
        bits = theory.standard_bits(keys, rate, k)
    else:
        bits = round_up(keys, per_key, 1)
        arguments.check_total(bits, "bits_per_key", bits_per_key)
    if k is None:
        k = theory.best_hashes_standard(bits, keys)
    if scheme == "independent":
        return _plan_standard(keys, bits, k, seed), None
    if per_key is None:
        bits = _bits_of_scheme(scheme, keys, rate, bits, k)
    plan = _plan_standard(keys, _whole_parts(scheme, bits, k), k, seed, scheme)
    return plan, _floor_problem(plan, rate) if per_key is None and plan.fpr > rate * 1.01 else None


def _scheme(value: object) -> str:
    return arguments.one_of("hashing", value, SCHEMES, 'Leave it out for "independent"')


def _whole_parts(scheme: str, bits: int, hashes: int) -> int:
    """Round up to what a partition needs: equal parts."""
    return -(-bits // hashes) * hashes if scheme == "partition" else bits


def _bits_of_scheme(scheme: str, keys: int, rate: float, bits: int, hashes: int) -> int:
    """Find the least bits at which the scheme has the rate.

    Up to a quarter more than independent hashes need; beyond that the floor rules, and more bits would
    be wasted.
    """

    def met(size: int) -> bool:
        return _law_of(scheme, _whole_parts(scheme, size, hashes), hashes, keys)[0] <= rate

    low, high = bits, bits + bits // 4
    if met(low):
        return low
    if not met(high):
        return bits
    while high - low > max(1, bits >> 12):
        middle = (low + high) // 2
        low, high = (low, middle) if met(middle) else (middle, high)
    return high


def _law_of(scheme: str, bits: int, hashes: int, keys: int) -> tuple[float, float]:
    """Predict rate and floor of a scheme with fewer hashes than positions."""
    from evenbins.theory import less_hashing

    name, _, offset = scheme.partition("-double-")
    hashing = "enhanced-double" if offset else name
    found = less_hashing.law(hashing, bits, hashes, keys, offset=offset or "square")
    return found.fpr, found.floor


def floor_of_scheme(scheme: str, bits: int, hashes: int, keys: int) -> float:
    """Predict what a hashing scheme adds to the rate of independent hashes; see `less_hashing.floor`."""
    return _law_of(scheme, bits, hashes, keys)[1] if keys else 0.0


def _floor_problem(plan: FilterPlan, rate: float) -> str:
    bits, _ = plan.core
    _, floor = _law_of(plan.hashing, bits, plan.hashes, plan.keys)
    return (
        f'hashing="{plan.hashing}" has a floor of {floor:.3g} with {bits} bits, {plan.hashes} hashes '
        f"and {plan.keys} keys: expect fpr={plan.fpr:.3g}, not {rate:g}. "
        "Leave hashing out for independent hashes"
    )


def plan_blocked(
    capacity: SupportsIndex | SupportsFloat,
    *,
    fpr: float | None = None,
    bits_per_key: float | None = None,
    hashes: int | None = None,
    block_bits: int = 512,
    seed: int = 0,
) -> FilterPlan:
    """Plan a blocked filter: the fewest blocks for `fpr`, or the best use of `bits_per_key`.

    Parameters
    ----------
    capacity, fpr, bits_per_key, hashes, block_bits, seed
        As for `BlockedBloomFilter`; bits are rounded up to whole blocks.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or no filter reaches `fpr`.

    Examples
    --------
    >>> plan_blocked(10_000_000, bits_per_key=16).core
    (312500, 512, 9)
    """
    keys = arguments.capacity(capacity)
    rate, per_key = arguments.goal(fpr, bits_per_key)
    k = arguments.hashes(hashes, theory.MAX_HASHES_BLOCKED)
    block_bits = arguments.block_bits(block_bits)
    seed = arguments.seed(seed)
    if per_key is None:
        blocks = theory.blocked_blocks(keys, rate, block_bits, k)
    else:
        blocks = round_up(keys, per_key, block_bits)
        arguments.check_total(blocks * block_bits, "bits_per_key", bits_per_key)
    if k is None:
        k = theory.best_hashes_blocked(blocks, block_bits, keys)
    return _plan_blocked(keys, blocks, block_bits, k, seed)


def _of_standard_core(_: str, core: Sequence[int], keys: int, seed: int, hashing: str) -> FilterPlan:
    bits, hashes = core
    bits = arguments.integer("core[0] (bits)", bits, 1, theory.MAX_BITS, _OF_CORE)
    k = arguments.integer("core[1] (hashes)", hashes, 1, theory.MAX_HASHES_STANDARD, _OF_CORE)
    scheme = _scheme(hashing)
    if _whole_parts(scheme, bits, k) != bits:
        raise arguments.error("core[0] (bits)", "a multiple of hashes", bits, _OF_CORE)
    return _plan_standard(keys, bits, k, seed, scheme)


def _of_blocked_core(_: str, core: Sequence[int], keys: int, seed: int, __: str) -> FilterPlan:
    blocks, block_bits, hashes = core
    blocks = arguments.integer("core[0] (blocks)", blocks, 1, theory.MAX_BITS, _OF_CORE)
    k = arguments.integer("core[2] (hashes)", hashes, 1, theory.MAX_HASHES_BLOCKED, _OF_CORE)
    block_bits = arguments.block_bits(block_bits, "core[1] (block_bits)")
    arguments.check_total(blocks * block_bits, "core[0] (blocks)", blocks)
    return _plan_blocked(keys, blocks, block_bits, k, seed)


def _plan_standard(keys: int, bits: int, hashes: int, seed: int, hashing: str = "independent") -> FilterPlan:
    nbytes = -(-bits // 64) * 8
    if hashing == "independent":
        rate, fill = theory.standard(bits, hashes, keys), theory.standard_fill(bits, hashes, keys)
    else:
        rate, _ = _law_of(hashing, bits, hashes, keys)
        parts = hashes if hashing == "partition" else 1
        fill = theory.standard_fill(bits // parts, hashes // parts, keys)
    return FilterPlan(
        keys=keys,
        policy="standard",
        bits_per_key=nbytes * 8 / keys,
        block_bits=None,
        hashes=hashes,
        fpr=rate,
        reads=float(hashes),
        miss_reads=theory.standard_miss_reads(fill, hashes),
        fill=fill,
        nbytes=nbytes,
        hashing=hashing,
        seed=seed,
        core=(bits, hashes),
    )


def _plan_blocked(keys: int, blocks: int, block_bits: int, hashes: int, seed: int) -> FilterPlan:
    nbytes = blocks * block_bits // 8
    return FilterPlan(
        keys=keys,
        policy="blocked",
        bits_per_key=nbytes * 8 / keys,
        block_bits=block_bits,
        hashes=hashes,
        fpr=theory.blocked(blocks, block_bits, hashes, keys),
        reads=1.0,
        miss_reads=1.0,
        fill=theory.blocked_fill(blocks, block_bits, hashes, keys),
        nbytes=nbytes,
        hashing="lanes",
        seed=seed,
        core=(blocks, block_bits, hashes),
    )


def round_up(keys: int, bits_per_key: float, unit: int) -> int:
    """Count the units for keys * bits_per_key bits, rounded as the module's head says."""
    exact = Fraction(bits_per_key) * keys / unit
    nearest = round(exact)
    return nearest if abs(exact - nearest) <= exact * _ROUNDING else math.ceil(exact)


register("standard", family=Family(rate_of_core, _of_standard_core, ("bits", "hashes")))
register("blocked", family=Family(rate_of_core, _of_blocked_core, ("blocks", "block_bits", "hashes")))
