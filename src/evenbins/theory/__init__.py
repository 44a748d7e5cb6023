"""The mathematics of every structure: numbers in, numbers out.

`fpr` predicts filters and inverts the predictions, `levels` predicts balanced filters, `counting`
counters; `plan` and `balanced_plan` turn what a user asks for into the integers a filter is built
from, with the predictions beside them. Nothing here imports a structure, so that a plan costs
milliseconds and no memory.

An argument of the wrong type raises `ArgumentTypeError`, one outside its range `ArgumentError`; a function
documents what else it raises.
"""

import importlib
from types import ModuleType

from evenbins.theory.balanced_plan import plan_balanced, plan_levels
from evenbins.theory.counting import plan_counting
from evenbins.theory.plan import FilterPlan, plan_blocked, plan_of_core, plan_standard
from evenbins.theory.ring_plan import RingPlan, plan_ring
from evenbins.theory.sharding import ShardedPlan, plan_sharded

__all__ = [
    "FilterPlan", "RingPlan", "ShardedPlan", "plan_balanced", "plan_blocked", "plan_counting", "plan_levels",
    "plan_of_core", "plan_ring", "plan_sharded", "plan_standard",
]  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    if name in (
        "balance",
        "chains",
        "fluid",
        "optimise",
    ):  # on demand: some need scipy
        return importlib.import_module(f"evenbins.theory.{name}")
    raise AttributeError(f"module 'evenbins.theory' has no attribute {name!r}")
