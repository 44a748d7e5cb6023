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
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins._show import ReprMixin
from evenbins.theory import fpr as theory
from evenbins.theory import levels

__all__ = ["FilterPlan", "plan_blocked", "plan_of_core", "plan_standard"]

SCHEMES = (
    "independent", "partition", "double", "enhanced-double", "enhanced-double-cube",
    "enhanced-double-tetrahedral", "triple",
)  # fmt: skip
OVERFILLED = 1.1
"""Keys of an overfilled filter, times those planned for: `overfilled_fpr` is predicted for as many."""
_ROUNDING = Fraction(1, 2**50)
_BALANCED_CORE = (
    "policy", "block_bits", "hashes", "choices", "coin", "overflow_limit", "spill", "budget",
    "blocks_0", "threshold_0",
)  # fmt: skip
_CORE_NAMES = {
    "standard": ("bits", "hashes"),
    "blocked": ("blocks", "block_bits", "hashes"),
    "counting": ("counters", "counter_bits", "hashes", "block_bits"),
    **dict.fromkeys(levels.POLICIES, _BALANCED_CORE),  # and further pairs of blocks and threshold
}
_POLICIES = "one of " + ", ".join(f'"{name}"' for name in _CORE_NAMES)
_IN_ONE_LINE = (
    "policy", "keys", "bits_per_key", "hashes", "fpr", "reads", "miss_reads", "nbytes",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FilterPlan(ReprMixin):
    """A filter's design and its predicted behaviour with `keys` keys in it.

    Equality and hash look at policy, hashing, seed and core alone.

    Attributes
    ----------
    keys : number of keys planned for (the papers' n)
    policy : "standard", "blocked", "counting", or a balanced filter's "single", "sequential", "multilevel",
        "fill", "two-choice"
    bits_per_key : memory in bits for each key, everything counted (beta)
    block_bits : bits of a block (B), None without blocks
    hashes : bits set for each key (k)
    counter_bits : bits of a counter, None without counters
    choices : blocks a key may use, at most (d)
    thresholds, coin, shares : levels of a balanced filter (h, p, alpha): a block of level j with
        thresholds[j] keys accepts one more with probability coin; "fill" counts set bits instead
    fpr : false-positive rate
    reads, miss_reads : memory reads of a look-up of a present and of an absent key
    list_reads : fraction of absent keys that consult the overflow list
    fill : fraction of set bits, or of counters above zero
    saturation, saturated : probability that a counter is full, and the number expected to be
    overflow : fraction of keys on the overflow list, of which `overflow_limit` fit
    spill : where a key goes that finds its blocks and the list full: into the block of "least" set
        bits, or a "random" one of its blocks; None without thresholds on keys
    nbytes : bytes of the filter
    hashing : how positions follow from the digest: "independent", every position from its own
        64-bit hash; "lanes", positions in one block from multiples of the remixed digest's halves
    seed : seed of the digests
    core : the integers stored, compared and merged by
    overfilled_fpr : false-positive rate with a tenth more keys than planned
    """

    _in_one_line = _IN_ONE_LINE

    keys: int = field(compare=False)
    policy: str
    bits_per_key: float = field(compare=False)
    block_bits: int | None = field(compare=False)
    hashes: int = field(compare=False)
    counter_bits: int | None = field(compare=False, default=None)
    choices: int = field(compare=False, default=1)
    thresholds: tuple[int, ...] = field(compare=False, default=())
    coin: float | None = field(compare=False, default=None)
    shares: tuple[float, ...] = field(compare=False, default=(1.0,))
    fpr: float = field(compare=False)
    reads: float = field(compare=False)
    miss_reads: float = field(compare=False)
    list_reads: float = field(compare=False, default=0.0)
    spilled: float = field(compare=False, default=0.0)
    fill: float = field(compare=False)
    saturation: float = field(compare=False, default=0.0)
    saturated: float = field(compare=False, default=0.0)
    overflow: float = field(compare=False, default=0.0)
    overflow_limit: int = field(compare=False, default=0)
    spill: str | None = field(compare=False, default=None)
    nbytes: int = field(compare=False)
    hashing: str
    seed: int
    core: tuple[int, ...]

    @property
    def overfilled_fpr(self) -> float:
        """The false-positive rate with `OVERFILLED` times the keys planned for; predicted when asked for.

        A growing filter has a new stage by then, and its rate does not rise.
        """
        if self.policy == "sharded":
            from evenbins.theory.sharding import overfilled_rate

            return overfilled_rate(self, OVERFILLED)
        if self.policy not in _CORE_NAMES:
            return self.fpr
        keys = min(round(OVERFILLED * self.keys), arguments.MAX_CAPACITY)
        return plan_of_core(self.policy, self.core, capacity=keys, seed=self.seed, hashing=self._scheme).fpr

    def merged(self, parts: int) -> FilterPlan:
        """Predict a filter merged (`|`) from `parts` filters of this plan, which share the keys equally.

        A merged standard, blocked or counting filter is what one filter of all keys would be. The keys of
        balanced filters lie where a part of the keys found room, so the rate of the merged one is higher.

        Parameters
        ----------
        parts
            How many filters, 1 to `keys`.

        Returns
        -------
        FilterPlan
            This plan with `fpr`, `reads`, `miss_reads`, `list_reads` and `fill` of the merged filter.

        Raises
        ------
        TypeError, ValueError
            `parts` is not an integer of this range, or the plan is that of a growing or sharded filter.

        Examples
        --------
        >>> plan = plan_blocked(10_000, fpr=1e-3)
        >>> plan.merged(4).fpr == plan.fpr
        True
        """
        if self.policy not in _CORE_NAMES:
            sharded = self.policy == "sharded"
            way_out = "Take a shard's plan, sharding.shard" if sharded else "Plan a stage, with plan_balanced"
            raise arguments.error("policy", _POLICIES, self.policy, way_out)
        way_out = "Pass how many filters are merged"
        parts = arguments.integer("parts", parts, 1, self.keys, way_out)
        if parts == 1 or self.policy not in levels.POLICIES:
            return self
        from evenbins.theory.merging import merge

        found = merge(self.core, self.keys, parts)
        return replace(self, **{each.name: getattr(found, each.name) for each in fields(found)})

    @property
    def _scheme(self) -> str:
        return self.hashing if self.policy == "standard" else "independent"

    def _rows(self) -> list[tuple[str, object]]:
        names = [each.name for each in fields(self)]
        names.insert(names.index("fpr") + 1, "overfilled_fpr")
        return [(name, getattr(self, name)) for name in names]


# --- planning ------------------------------------------------------------------------------------


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
    capacity
        Number of keys (n), 1 to 2**48.
    fpr
        False-positive rate not to be exceeded at `capacity` keys; 0.01 when `bits_per_key` is not
        given either.
    bits_per_key
        Bits for each key (beta), up to 4096, instead of `fpr`.
    hashes
        Bits set for each key (k), 1 to 64; the best number when None.
    hashing
        How positions follow from a digest: "independent", or by fewer hashes "partition", "double",
        "enhanced-double" (f(i) = i²; "-cube" and "-tetrahedral" appended for i³ and (i³-i)/6) and
        "triple". These have a floor below which no memory brings the rate (`less_hashing`): a plan
        that meets it warns, and its `fpr` says what to expect.
    seed
        Seed of the digests, 0 to 2**64 - 1.

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
        return _standard(keys, bits, k, seed), None
    if per_key is None:
        bits = _bits_of_scheme(scheme, keys, rate, bits, k)
    plan = _standard(keys, _whole_parts(scheme, bits, k), k, seed, scheme)
    return plan, _floor_problem(plan, rate) if per_key is None and plan.fpr > rate * 1.01 else None


def _scheme(value: object) -> str:
    rule = f"one of {', '.join(SCHEMES)}"
    if not isinstance(value, str):
        raise arguments.type_error("hashing", rule, value, 'Leave it out for "independent"')
    if value not in SCHEMES:
        raise arguments.error("hashing", rule, value, 'Leave it out for "independent"')
    return value


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
    _, floor = _law_of(plan.hashing, plan.core[0], plan.hashes, plan.keys)
    return (
        f'hashing="{plan.hashing}" has a floor of {floor:.3g} with {plan.core[0]} bits, {plan.hashes} hashes '
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
    capacity, fpr, bits_per_key, seed
        As for `plan_standard`; bits are rounded up to whole blocks.
    hashes
        Bits set for each key (k), 1 to 32; the best number when None.
    block_bits
        Bits of a block (B), 256 or 512.

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
    return _blocked(keys, blocks, block_bits, k, seed)


def plan_of_core(
    policy: str,
    core: Sequence[int],
    *,
    capacity: SupportsIndex | SupportsFloat,
    seed: int,
    hashing: str = "independent",
) -> FilterPlan:
    """Check an integer core and predict anew: the plan of a file that was loaded.

    Raises
    ------
    TypeError, ValueError
        The policy is unknown, or the core is none that a plan of this policy could have.
    """
    if not isinstance(policy, str):
        raise arguments.type_error("policy", _POLICIES, policy, "Pass a filter's plan.policy")
    names = _CORE_NAMES.get(policy)
    if names is None:
        raise arguments.error("policy", _POLICIES, policy, "Pass a filter's plan.policy")
    is_balanced = policy in levels.POLICIES
    more = ", …" if is_balanced else ""
    rule = f"the integers ({', '.join(names)}{more}) of a {policy} filter"
    way_out = "Pass a filter's plan.core"
    if isinstance(core, str | bytes) or not isinstance(core, Sequence):
        raise arguments.type_error("core", rule, core, way_out)
    extra = len(core) - len(names)
    if extra != 0 and not (is_balanced and extra > 0 and extra % 2 == 0):
        raise arguments.error("core", rule, core, way_out)
    keys = arguments.capacity(capacity)
    seed = arguments.seed(seed)
    if is_balanced:
        from evenbins.theory.balanced_plan import plan_of_balanced_core  # it stands on this module

        return plan_of_balanced_core(policy, core, keys, seed)
    if policy == "counting":
        from evenbins.theory.counting import plan_of_counting_core

        return plan_of_counting_core(core, keys, seed)
    size = arguments.integer(f"core[0] ({names[0]})", core[0], 1, theory.MAX_BITS, way_out)
    last = len(names) - 1
    most = theory.MAX_HASHES_STANDARD if policy == "standard" else theory.MAX_HASHES_BLOCKED
    k = arguments.integer(f"core[{last}] (hashes)", core[last], 1, most, way_out)
    if policy == "standard":
        scheme = _scheme(hashing)
        if _whole_parts(scheme, size, k) != size:
            raise arguments.error("core[0] (bits)", "a multiple of hashes", size, way_out)
        return _standard(keys, size, k, seed, scheme)
    block_bits = arguments.block_bits(core[1], "core[1] (block_bits)")
    arguments.check_total(size * block_bits, "core[0] (blocks)", size)
    return _blocked(keys, size, block_bits, k, seed)


def _standard(keys: int, bits: int, hashes: int, seed: int, hashing: str = "independent") -> FilterPlan:
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


def _blocked(keys: int, blocks: int, block_bits: int, hashes: int, seed: int) -> FilterPlan:
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
