"""Plans and statistics of filters: what every family has, and the way from a request to a plan.

    capacity, fpr or bits_per_key, … ──▶ integer core ──▶ predictions
                                         (stored, compared,   (floats beside it,
                                          merged by)           outside equality)

A family has a module: its core (a tuple whose integers have names), its plan and its stats (classes derived
from `FilterPlan` and `FilterStats`), its planner, its class. A core says everything about where a key's bits
go, except the seed. Predictions follow from it and the number of keys (`plan_of_core`), so a loaded file
gets the same plan that built it.

Invariants:

- Two plans are equal exactly when policy, hashing, seed and core are: then filters can be merged.
- A plan that is returned can be built: planners check every argument, and every message names the argument,
  the rule, the value received and a way out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self, SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins._plan_integers import checked_keys
from evenbins._show import ReprMixin
from evenbins.structure import kind_of_policy
from evenbins.theory.fpr import round_up

__all__ = [
    "OF_CORE", "OVERFILLED", "FilterPlan", "FilterStats", "Request", "keywords_of",
    "plan_of_core", "planner_of",
]  # fmt: skip

OVERFILLED = 1.1
"""Keys of an overfilled filter, times those planned for: `overfilled_fpr` is predicted for as many."""
OF_CORE = "Pass a filter's plan.core"
_FIRST = ("keys", "policy", "bits_per_key")
_LAST = ("fpr", "overfilled_fpr", "reads", "miss_reads", "fill", "nbytes", "hashing", "seed", "core")
_NO_INTEGER: int | None = None
_NO_NUMBER: float | None = None
_NO_WORD: str | None = None
_NO_INTEGERS: tuple[int, ...] = ()
_ONE_TABLE: tuple[float, ...] = (1.0,)
_NO_LOADS: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FilterPlan(ReprMixin):
    """A filter's design and its predicted behaviour with `keys` keys in it: what every family has.

    Equality and hash look at policy, hashing, seed and core alone. A family's own plan has more fields; a
    plan without one of them still answers for it: block_bits None, hashes 0, counter_bits None, choices 1,
    thresholds (), coin None, shares (1.0,), list_reads 0, spilled 0, saturated 0, overflow 0,
    overflow_limit 0, spill None, semantics None.

    Attributes
    ----------
    keys : number of keys planned for (the papers' n)
    policy : "standard", "blocked", "counting", "fingerprint", "fuse", "window", or a balanced filter's
        "single", "sequential", "multilevel", "fill", "two-choice"
    bits_per_key : memory in bits for each key, everything counted (beta)
    fpr : false-positive rate
    reads, miss_reads : memory reads of a look-up of a present and of an absent key
    fill : fraction of set bits, or of counters above zero
    nbytes : bytes of the filter
    hashing : how positions follow from the digest: "independent", every position from its own
        64-bit hash; "lanes", positions in one block from multiples of the remixed digest's halves
    seed : seed of the digests
    core : the integers stored, compared and merged by
    overfilled_fpr : false-positive rate with a tenth more keys than planned
    """

    _in_one_line = ("policy", "keys", "bits_per_key", "hashes", "fpr", "reads", "miss_reads", "nbytes")
    _core_names: ClassVar[tuple[str, ...]] = ()

    block_bits = _NO_INTEGER
    hashes = 0
    counter_bits = _NO_INTEGER
    choices = 1
    thresholds = _NO_INTEGERS
    coin = _NO_NUMBER
    shares = _ONE_TABLE
    list_reads = 0.0
    spilled = 0.0
    saturation = 0.0
    saturated = 0.0
    overflow = 0.0
    overflow_limit = 0
    spill = _NO_WORD
    semantics = _NO_WORD

    keys: int = field(compare=False)
    policy: str
    bits_per_key: float = field(compare=False)
    fpr: float = field(compare=False)
    reads: float = field(compare=False)
    miss_reads: float = field(compare=False)
    fill: float = field(compare=False)
    nbytes: int = field(compare=False)
    hashing: str
    seed: int
    core: tuple[int, ...]

    def sizes(self) -> dict[str, Any]:
        """Return the sizes of a filter as its stats have them."""
        return {"nbytes": self.nbytes, "bits_per_key": 8 * self.nbytes / self.keys}

    @classmethod
    def of_core(cls, policy: str, core: Sequence[int], keys: int, seed: int, hashing: str) -> Self:
        """Check the integers of a core, whose number is right, and predict a filter with them."""
        raise NotImplementedError

    @classmethod
    def _fits(cls, length: int) -> bool:
        """Return whether a core may have so many integers."""
        return length == len(cls._core_names)

    def with_keys(self, keys: int) -> FilterPlan:
        """Predict the same filter with another number of keys in it: 1 to 2**48, and 0 counts as 1."""
        return self.of_core(self.policy, self.core, checked_keys(keys), self.seed, self.hashing)

    @property
    def overfilled_fpr(self) -> float:
        """The false-positive rate with `OVERFILLED` times the keys planned for; predicted when asked for.

        A growing filter has a new stage by then, and its rate does not rise.
        """
        return self.with_keys(min(round(OVERFILLED * self.keys), arguments.MAX_CAPACITY)).fpr

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
        >>> from evenbins.filters import plan_blocked
        >>> plan = plan_blocked(10_000, fpr=1e-3)
        >>> plan.merged(4).fpr == plan.fpr
        True
        """
        parts = arguments.integer("parts", parts, 1, self.keys, "Pass how many filters are merged")
        return self if parts == 1 else self._merged(parts)

    def _merged(self, parts: int) -> FilterPlan:
        return self

    @property
    def load_unit(self) -> str:
        """What a block's load in `stats().loads` counts: "keys", "counters" or "set bits"."""
        return "set bits"

    def planned_loads(self, blocks: int) -> Sequence[npt.NDArray[np.float64]]:
        """Return, for each level, the planned shares of blocks with load 0, 1, 2, …; none without blocks.

        Parameters
        ----------
        blocks
            How many blocks the first level has (`sum(stats().loads[0])`).

        Examples
        --------
        >>> from evenbins import BlockedBloomFilter
        >>> f = BlockedBloomFilter(10_000, fpr=1e-3)
        >>> (share,) = f.plan.planned_loads(blocks=sum(f.stats().loads[0]))
        >>> round(float(share.sum()), 6), int(share.argmax())
        (1.0, 225)
        """
        return ()

    def _rows(self) -> list[tuple[str, object]]:
        own = [each.name for each in fields(self) if each.name not in (*_FIRST, *_LAST)]
        return [(name, getattr(self, name)) for name in (*_FIRST, *own, *_LAST)]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FilterStats(ReprMixin):
    """What a filter measures on itself; each name means the same as in its plan.

    A family's own stats have more fields; without them overflow, list_reads, spilled and saturated are 0,
    loads ().

    Attributes
    ----------
    keys : number of distinct keys, estimated from the set bits
    fpr : probability that a random absent key is reported present, computed from the actual bits
    reads, miss_reads : memory reads of a look-up of a present and of an absent key
    fill : fraction of set bits, or of counters above zero
    nbytes, bits_per_key : memory; per planned key
    overfilled : by what fraction the keys exceed the number planned for; 0 if they do not
    """

    _not_shown = ("loads",)

    overflow = 0.0
    list_reads = 0.0
    spilled = 0.0
    saturated = 0
    loads = _NO_LOADS

    keys: float
    fpr: float
    reads: float
    miss_reads: float
    fill: float
    nbytes: int
    bits_per_key: float

    @property
    def overfilled(self) -> float:
        """By what fraction the keys exceed the number planned for; 0 if they do not."""
        planned = 8 * self.nbytes / self.bits_per_key
        return max(self.keys / planned - 1.0, 0.0)

    def _rows(self) -> list[tuple[str, object]]:
        return [*ReprMixin._rows(self), ("overfilled", self.overfilled)]


# --- planning ------------------------------------------------------------------------------------


class Request(NamedTuple):
    """What planners of filters without levels are asked for, checked.

    Attributes
    ----------
    keys : 1 to 2**48
    fpr, bits_per_key : rate to reach; memory to use instead, or None
    hashes : None for the best number
    """

    keys: int
    fpr: float
    bits_per_key: float | None
    hashes: int | None
    seed: int

    @classmethod
    def of(
        cls, capacity: object, fpr: object, bits_per_key: object, hashes: object, seed: object, *, most: int
    ) -> Request:
        """Check the arguments; at most `most` hashes."""
        keys = arguments.capacity(capacity)
        rate, per_key = arguments.goal(fpr, bits_per_key)
        return cls(keys, rate, per_key, arguments.hashes(hashes, most), arguments.seed(seed))

    def size(self, unit: int, fewest: Callable[[int, float, int | None], int]) -> int:
        """Return the units of so many bits: what `bits_per_key` allows, or `fewest` (keys, fpr, hashes)."""
        if self.bits_per_key is None:
            return fewest(self.keys, self.fpr, self.hashes)
        units = round_up(self.keys, self.bits_per_key, unit)
        arguments.check_total(units * unit, "bits_per_key", self.bits_per_key)
        return units


def planner_of(policy: str | None) -> Callable[..., FilterPlan]:
    """Return the function that plans filters of a policy, None for the best balanced one.

    It takes the capacity and the keywords of the family's planner; those that are None are left out.
    """
    kind = kind_of_policy("fill" if policy is None else policy)
    chosen = {"policy": policy} if len(kind.policies) > 1 else {}

    def plan(capacity: SupportsIndex | SupportsFloat, **options: Any) -> FilterPlan:
        given = {name: value for name, value in options.items() if value is not None}
        found: FilterPlan = kind.cls._planner(capacity, **chosen, **given)
        return found

    return plan


def keywords_of(policy: str) -> frozenset[str]:
    """Return the names of what the planner of a policy takes, except capacity and fpr."""
    return frozenset(kind_of_policy(policy).cls._planner.__kwdefaults__)


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
    family: type[FilterPlan] = kind_of_policy(policy).cls._plan_class
    more = ", …" if family._fits(len(family._core_names) + 2) else ""
    rule = f"the integers ({', '.join(family._core_names)}{more}) of a {policy} filter"
    if isinstance(core, str | bytes) or not isinstance(core, Sequence):
        raise arguments.type_error("core", rule, core, OF_CORE)
    if not family._fits(len(core)):
        raise arguments.error("core", rule, core, OF_CORE)
    return family.of_core(policy, core, arguments.capacity(capacity), arguments.seed(seed), hashing)
