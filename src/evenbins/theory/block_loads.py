"""How full the blocks of a filter are planned to be: what a histogram of its loads is drawn beside.

    plan ──planned_loads──▶ one distribution a level ──beside──▶ stats().loads, counted on the filter itself

A load is the number of keys of a block for the policies that count them, of counters in use for a blocked
counting filter, of set bits for all others: what `stats().loads` counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evenbins.theory import fpr, levels
from evenbins.theory.plan import FilterPlan

__all__ = ["load_unit", "planned_loads"]


def planned_loads(plan: FilterPlan, *, blocks: int) -> list[npt.NDArray[np.float64]]:
    """Return, for each level, the planned shares of blocks with load 0, 1, 2, …; [] if there are no blocks.

    Parameters
    ----------
    plan
        Of any filter.
    blocks
        How many blocks its first level has (`sum(stats().loads[0])`).

    Examples
    --------
    >>> from evenbins import BlockedBloomFilter
    >>> f = BlockedBloomFilter(10_000, fpr=1e-3)
    >>> (share,) = planned_loads(f.plan, blocks=sum(f.stats().loads[0]))
    >>> round(float(share.sum()), 6), int(share.argmax())
    (1.0, 225)
    """
    if plan.block_bits is None or plan.policy == "growing":
        return []
    if plan.policy in ("blocked", "counting"):
        size = plan.block_bits // (plan.counter_bits or 1)
        return [fpr.blocked_set_bits(size, plan.hashes, plan.keys / blocks)]
    return list(levels.predict(plan.core, plan.keys).loads)


def load_unit(plan: FilterPlan) -> str:
    """Return what a block's load counts: "keys", "counters" or "set bits"."""
    return "keys" if plan.policy in levels.COUNTED else "counters" if plan.counter_bits else "set bits"
