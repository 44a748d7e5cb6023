"""What a look-up costs: nanoseconds by a small model, and the cost by which designs are ranked.

    a plan ──▶ reads of a present and an absent key, memory ──▶ ns ──▶ cost = ns^time * memory^memory

**Time.** The time of one look-up in a bulk call of one thread, with half of the keys present: `KEY_NS` for a
text key until its digest is known, and the reads. A blocked filter reads one block. A two-choice filter
reads two at once. The other balanced filters compare a block with its threshold, and read the next block only
where the first one was full: what that costs is the branch, since the reads of many keys overlap. So does a
fingerprint filter, which looks for a run in its line. A standard
filter reads bits anywhere, and stops at the first that is not set. What a read takes depends on where the
filter lies: a filter larger than a cache has the part in it that fits.

**Cost.** ns to the power of one weight, times bytes to the power of another: with equal weights, which are
the default, one percent of time counts as much as one percent of memory. Units cancel out, and so does
everything that is equal for all designs. Less than a page of memory, 4 KiB, counts as a page. Where the
memory is given and the rates differ, bytes are divided by ln(1/fpr): the memory for a unit of rate.

The constants `KEY_NS`, `READS` and `STEPS` were computed from the times that one run of
`tools/lookup_times.py` printed, on a shared AMD EPYC (Zen 4, AVX-512, 1 MiB and 32 MiB of caches). Another
machine has others; their ratios differ less. Left out: a step from one cache to the next (designs of nearly
equal size swap places near it), and a term for each hash (a few hundredths of a nanosecond in a block of 512
bits; it changes no order).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from evenbins import _arguments as arguments

__all__ = ["COSTS", "KEY_NS", "READS", "STEPS", "Reads", "Steps", "cost_order", "lookup_ns"]


class Reads(NamedTuple):
    """What reads cost where a filter lies, in ns.

    Attributes
    ----------
    block : the block of a blocked filter, everything included
    independent : one more block that is read at the same time
    anywhere : a bit of a standard filter
    """

    block: float
    independent: float
    anywhere: float


class Steps(NamedTuple):
    """What the steps of balanced filters cost besides the first block, wherever they lie, in ns.

    Attributes
    ----------
    threshold : comparing blocks with thresholds
    dependent : one more block that is read only if the first was full
    sequential : the same of a sequential filter, whose keys are then looked up one by one
    """

    threshold: float
    dependent: float
    sequential: float


KEY_NS = 9.0
"""A text key of 28 characters from a list, until its digest is known."""

READS = (
    (2**20, Reads(block=3.2, independent=5.5, anywhere=1.6)),
    (2**25, Reads(block=3.9, independent=5.4, anywhere=2.1)),
    (math.inf, Reads(block=8.2, independent=16.5, anywhere=11.1)),
)
"""The bytes of the second-level cache, of the third-level cache and of memory, and the reads in each."""

STEPS = Steps(threshold=2.0, dependent=7.3, sequential=33.8)

COSTS: dict[str, Callable[[Any], float]] = {
    "time": lambda plan: lookup_ns(plan),
    "memory": lambda plan: plan.nbytes,
    "fpr": lambda plan: plan.fpr,
    "reads": lambda plan: plan.reads,
    "miss_reads": lambda plan: plan.miss_reads,
}
"""What may be weighed, by name; less is better."""

_PAGE = 4096  # bytes; a filter that takes less saves nothing
_THEN = {"memory": "miss_reads"}  # which quantity decides between equal ones; "memory" for the others
_FORMS = 'Pass one of these names, or weights such as {"time": 1, "memory": 2}'


def lookup_ns(plan: Any) -> float:
    """Return the predicted time of a look-up in ns: of a bulk call, half of the keys present.

    Examples
    --------
    >>> from evenbins.filters import plan_blocked, plan_standard
    >>> lookup_ns(plan_blocked(1000)) < lookup_ns(plan_standard(1000)) < lookup_ns(plan_standard(10**9))
    True
    """
    lookup = getattr(plan, "shard", plan)  # of a filter in shards: the same reads, in more memory
    more = (lookup.reads + lookup.miss_reads) / 2 - 1
    by_runs = lookup.policy in ("fingerprint", "window")
    cached, ns = 0.0, KEY_NS
    for size, reads in READS:
        if lookup.block_bits is None and not by_runs:
            here = reads.anywhere * (1 + more)
        elif not lookup.thresholds and not by_runs:
            here = reads.block + reads.independent * more
        else:
            each = STEPS.sequential if lookup.policy == "sequential" else STEPS.dependent
            here = reads.block + STEPS.threshold + each * more
        part = min(1.0, size / max(plan.nbytes, 1))
        ns += here * max(0.0, part - cached)
        cached = max(cached, part)
    return ns


def cost_order(cost: str | Mapping[str, float] | None, by_rate: bool) -> Callable[[Any], tuple[float, ...]]:
    """Return the key by which designs are sorted, least first.

    Parameters
    ----------
    cost
        The name of a quantity, which then decides alone; or weights by name; None for time and memory.
    by_rate
        Whether the rate was given, and the memory differs; else the memory was, and the rate differs.
    """
    if isinstance(cost, str):
        arguments.one_of("cost", cost, tuple(COSTS), _FORMS)
        first, second = COSTS[cost], COSTS[_THEN.get(cost, "memory")]
        return lambda design: (first(design.plan), second(design.plan))
    weights = {"time": 1.0, "memory": 1.0} if cost is None else _checked_weights(cost)
    measures = COSTS | {"memory": lambda plan: max(plan.nbytes, _PAGE)}
    quantities = [(measures[name], weight) for name, weight in weights.items()]
    spent = 0.0 if by_rate else weights.get("memory", 0.0)

    def order(design: Any) -> tuple[float, ...]:
        plan = design.plan
        powers = [weight * math.log(measure(plan)) for measure, weight in quantities if weight]
        if spent:
            powers.append(-spent * math.log(max(-math.log(plan.fpr), 1e-9)))
        return math.fsum(powers), plan.nbytes

    return order


def _checked_weights(cost: object) -> dict[str, float]:
    rule = f"one of {', '.join(COSTS)}, or their weights by name"
    if not isinstance(cost, Mapping):
        raise arguments.type_error("cost", rule, cost, _FORMS)
    if not cost or not set(cost) <= set(COSTS):
        raise arguments.error("cost", rule, dict(cost), _FORMS)
    weights = {
        name: arguments.real(f"cost[{name!r}]", weight, "a number from 0 to 1000", _FORMS, least=0, most=1000)
        for name, weight in cost.items()
    }
    if not any(weights.values()):
        raise arguments.error("cost", "weights of which one is above 0", dict(cost), _FORMS)
    return weights
