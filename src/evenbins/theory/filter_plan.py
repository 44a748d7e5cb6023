"""A filter's plan: what it is built from and what it will do; and the families that predict it.

`FilterPlan` stands below the planners. Each of them registers its policies here (`register`), with the
function that predicts a filter from its integer core, so that a plan can be predicted for another number of
keys without importing its planner.

Invariant: two plans are equal exactly when policy, hashing, seed and core are: then filters can be merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins._show import ReprMixin
from evenbins.theory.cores import POLICIES

__all__ = ["OVERFILLED", "Family", "FilterPlan", "plan_of_core", "register"]

OVERFILLED = 1.1
"""Keys of an overfilled filter, times those planned for: `overfilled_fpr` is predicted for as many."""
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
        family = _FAMILIES.get(self.policy)
        if family is None:
            return self.fpr
        keys = min(round(OVERFILLED * self.keys), arguments.MAX_CAPACITY)
        return family.rate_with(self, keys)

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
        >>> from evenbins.theory import plan_blocked
        >>> plan = plan_blocked(10_000, fpr=1e-3)
        >>> plan.merged(4).fpr == plan.fpr
        True
        """
        if self.policy not in _FAMILIES or _FAMILIES[self.policy].of_core is None:
            sharded = self.policy == "sharded"
            remedy = "Take a shard's plan, sharding.shard" if sharded else "Plan a stage, with plan_balanced"
            raise arguments.error("policy", _policies(), self.policy, remedy)
        remedy = "Pass how many filters are merged"
        parts = arguments.integer("parts", parts, 1, self.keys, remedy)
        if parts == 1 or self.policy not in POLICIES:
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


@dataclass(frozen=True, slots=True)
class Family:
    """How the filters of one policy, or of several, are predicted.

    Attributes
    ----------
    rate_with : predicts the false-positive rate of a plan's filter with another number of keys
    of_core : checks the core of a policy and predicts a filter with it: (policy, core, keys, seed, hashing);
        None if the policy's core is not one filter's
    core_names : names of the core's integers
    more_tables : whether pairs of integers may follow them
    """

    rate_with: Callable[[FilterPlan, int], float]
    of_core: Callable[[str, Sequence[int], int, int, str], FilterPlan] | None = None
    core_names: tuple[str, ...] = ()
    more_tables: bool = False


_FAMILIES: dict[str, Family] = {}


def register(*policies: str, family: Family) -> None:
    """Register the family that predicts the plans of these policies."""
    _FAMILIES.update(dict.fromkeys(policies, family))


def rate_of_core(plan: FilterPlan, keys: int) -> float:
    """Predict the false-positive rate of the plan's filter with another number of keys."""
    return plan_of_core(plan.policy, plan.core, capacity=keys, seed=plan.seed, hashing=plan._scheme).fpr


def _policies() -> str:
    names = (f'"{name}"' for name, family in _FAMILIES.items() if family.of_core is not None)
    return f"one of {', '.join(names)}"


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
        The policy is unknown, or no plan of this policy could have the core.
    """
    family = _FAMILIES.get(policy) if isinstance(policy, str) else None
    if family is None or family.of_core is None:
        fault = arguments.error if isinstance(policy, str) else arguments.type_error
        raise fault("policy", _policies(), policy, "Pass a filter's plan.policy")
    names = family.core_names
    rule = f"the integers ({', '.join(names)}{', …' if family.more_tables else ''}) of a {policy} filter"
    remedy = "Pass a filter's plan.core"
    if isinstance(core, str | bytes) or not isinstance(core, Sequence):
        raise arguments.type_error("core", rule, core, remedy)
    extra = len(core) - len(names)
    if extra != 0 and not (family.more_tables and extra > 0 and extra % 2 == 0):
        raise arguments.error("core", rule, core, remedy)
    return family.of_core(policy, core, arguments.capacity(capacity), arguments.seed(seed), hashing)
