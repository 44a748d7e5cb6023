"""The best design alone, planned faster than all of them.

`design.filter(...).best` plans every policy to compare them, in half a second. Only four of them ever win by
the default cost (tests/unit/test_design_cost.py goes through rates and numbers of keys), and two of these
need not be planned where they could not win with the standard filter's memory, which is the least of all,
and one read.
"""

from __future__ import annotations

from types import SimpleNamespace

from evenbins.design.cost import cost_order
from evenbins.design.filters import Request, designs_for
from evenbins.filters.plan import FilterPlan

__all__ = ["WINNERS", "best_plan"]

WINNERS = ("blocked", "standard", "two-choice", "fill")
"""The policies that come first somewhere, by the default cost and without other requirements."""


def best_plan(
    keys: int, *, fpr: float | None = None, bits_per_key: float | None = None, seed: int = 0
) -> FilterPlan:
    """Return the plan of `design.filter(keys, ...).best`.

    Examples
    --------
    >>> best_plan(1_000_000, fpr=1e-3).policy, best_plan(1_000_000, fpr=1e-9).policy
    ('blocked', 'two-choice')
    """
    asked = Request(keys, fpr, bits_per_key, seed=seed)
    quick = designs_for(asked, policies=WINNERS[:2])
    if asked.by_rate and bits_per_key is None:
        order, least = cost_order(None, by_rate=True), quick.by_policy("standard").plan.nbytes
        bound = SimpleNamespace(
            nbytes=least, reads=1.0, miss_reads=1.0, block_bits=512, thresholds=(1,), policy="fill"
        )
        if order(quick.best) <= order(SimpleNamespace(plan=bound)):
            return quick.best.plan
    return designs_for(asked, policies=WINNERS).best.plan
