"""The mathematics of every structure: numbers in, numbers out.

`fpr` predicts filters and inverts the predictions, `levels` predicts balanced filters, `counting`
counters; `balanced_design` finds the integers of a balanced filter. Nothing here imports a structure,
so that a plan costs milliseconds and no memory.

An argument of the wrong type raises `ArgumentTypeError`, one outside its range `ArgumentError`; a function
documents what else it raises.
"""

import importlib
from types import ModuleType

_ON_DEMAND = frozenset(
    ["balance", "chains", "counting", "fluid", "fpr", "fuse", "levels", "optimise", "over_time", "sharding"]
)  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    if name in _ON_DEMAND:
        return importlib.import_module(f"evenbins.theory.{name}")
    raise AttributeError(f"module 'evenbins.theory' has no attribute {name!r}")
