"""The best shape of a balanced filter: thresholds, shares and hashes, before there are keys.

The idea. A filter's behaviour depends on keys per block, not on keys: so search in the limit of
many blocks, with real numbers, and make integers at the end (`plan_balanced`). For one level with
`load` arrivals per block and a threshold, `levels` gives three numbers:

    F  false positives here     C  an absent key goes on     w  a key that arrives goes on

and a filter of several levels nests twice, once for memory and once for its rate:

    blocks = 1/load_0 + w_0*(1/load_1 + w_1*(…))       rate = F_0 + C_0*(F_1 + C_1*(…))

So the least rate for a memory, or memory for a rate, is a dynamic programme over what is left of it
(`level_fronts`), exact for whole thresholds; on a grid of (load, threshold) at first, and then with the best
loads of thresholds around the choice (`level_descent`, `level_loads`). Bounds on reads, overflow and reads of
absent keys are prices at first, raised until the bounds hold, and then equations.

"single" and "sequential" (`shapes_of_one_table`) have one table: their whole grid is looked at, bounds and
all. "two-choice" has only its load; its hashes come from a table (`two_choice_hashes`).

Invariants: every shape returned was evaluated by the exact functions of `levels`, off the grid,
at the load that meets the goal; the grid only chooses. No result depends on time or chance.

Tried and dropped: simplex search over (thresholds, shares, hashes): a hundred times slower, and
it stops in valleys of the integer thresholds; equal occupancy at all levels (kanizo, Theorem 5),
which minimises the reads of insertions, not the rate: it costs 1 to 2 bits per key; a price on the rate,
which finds the convex envelope alone: at 48 bits per key the rate was four times the least.
"""

from __future__ import annotations

import math

from evenbins.theory.caching import cached
from evenbins.theory.cores import COUNTED, counter_bits
from evenbins.theory.shape_search import Bounds, Given, Goal, Search, Shape
from evenbins.theory.shapes_by_level import Stepped
from evenbins.theory.shapes_of_one_table import OneTable, Paired

__all__ = ["Bounds", "Given", "Goal", "Shape", "best_shape"]


@cached(512)
def best_shape(
    policy: str, block_bits: int, goal: Goal, bounds: Bounds, given: Given, list_price: float
) -> Shape:
    """Find the shape that serves the goal best within the bounds.

    `list_price` is the memory, in bits, that a key turned away by all its blocks is taken to cost.
    """
    search: type[Search] = {"fill": Stepped, "multilevel": Stepped, "two-choice": Paired}.get(
        policy, OneTable
    )
    found = search(policy, block_bits, goal, bounds, given, list_price)
    if found.load > block_bits and given.thresholds is None and given.shares is None:
        return _crowded_shape(policy, block_bits, goal)
    return found.best()


def _crowded_shape(policy: str, block_bits: int, goal: Goal) -> Shape:
    """Return the shape for less than a bit per key, where nothing is to be balanced: one bit a key."""
    counted = policy in COUNTED
    threshold = block_bits if counted else block_bits + 1  # effective keys are never more than bits
    key_bits = block_bits - (counter_bits(threshold) if counted else 0)
    looks = 2.0 if policy == "two-choice" else 1.0
    if goal.fpr is not None:
        load = -key_bits * math.log1p(-goal.fpr) / looks
    else:
        assert goal.bits is not None
        load = block_bits / goal.bits
    return Shape(
        policy=policy, hashes=1, choices=int(looks), coin=0.0,
        thresholds=() if policy == "two-choice" else (threshold,),
        blocks=(1.0 / load,), bits=block_bits / load, fpr=-math.expm1(-load * looks / key_bits),
        reads=looks, miss_reads=looks, overflow=0.0,
    )  # fmt: skip
