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
from evenbins.theory.chain_plan import ChainPlan, plan_chains, plan_of_chain_core
from evenbins.theory.counting import plan_counting
from evenbins.theory.paged import PagedPlan, plan_of_paged_core, plan_paged
from evenbins.theory.plan import FilterPlan, plan_blocked, plan_of_core, plan_standard
from evenbins.theory.sharding import ShardedPlan, plan_sharded
from evenbins.theory.sketch import SketchPlan, plan_countmin, plan_of_sketch_core
from evenbins.theory.table_plan import TablePlan, plan_of_table_core, plan_table

__all__ = [
    "ChainPlan", "FilterPlan", "PagedPlan", "ShardedPlan", "SketchPlan", "TablePlan",
    "plan_balanced", "plan_blocked", "plan_chains", "plan_counting", "plan_countmin", "plan_levels",
    "plan_of_chain_core", "plan_of_core", "plan_of_paged_core", "plan_of_sketch_core", "plan_of_table_core",
    "plan_paged", "plan_sharded", "plan_standard", "plan_table",
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
