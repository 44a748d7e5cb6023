"""Checks of the integers of a plan that may have been altered, by `dataclasses.replace` say.

Predictions are not computed anew: they are those of the core for which the plan was made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evenbins import _arguments as arguments
from evenbins.errors import ArgumentError

__all__ = ["check_integers", "checked_keys", "unbuildable"]

PLANNED = "Pass a plan as its planner returns it"
_WORD = "an integer from 0 to 2**64 - 1"
_KEYS = "an integer from 1 to 2**48"


def check_integers(plan: Any) -> None:
    """Raise ArgumentError or ArgumentTypeError for a plan with integers that no planner returns."""
    core = getattr(plan, "core", ())
    if not isinstance(core, tuple | list):
        raise arguments.type_error("plan.core", "a tuple of integers", core, PLANNED)
    for place, number in enumerate(core):
        arguments.integer(f"plan.core[{place}]", number, 0, 2**64 - 1, PLANNED, rule=_WORD)
    arguments.integer("plan.seed", plan.seed, 0, 2**64 - 1, PLANNED, rule=_WORD)
    for name in ("keys", "k", "precision"):
        if hasattr(plan, name):
            value = getattr(plan, name)
            arguments.integer(f"plan.{name}", value, 1, arguments.MAX_CAPACITY, PLANNED, rule=_KEYS)


def unbuildable(plan: Any, error: ValueError) -> ValueError:
    """Return the error for a plan whose integers are in range and describe no structure."""
    if isinstance(error, ArgumentError):
        return error
    names = [name for name in ("keys", "precision", "hashing", "core") if hasattr(plan, name)]
    got = ", ".join(f"{name}={arguments.shown(getattr(plan, name))}" for name in names)
    return arguments.unmet("plan", f" cannot be built: {error}; got {got}. {PLANNED}")


def checked_keys(keys: object) -> int:
    """Check the argument of `with_keys`: a whole number; 0 counts as 1, for a shard without keys."""
    if isinstance(keys, float | np.floating) and float(keys).is_integer():
        keys = int(keys)
    rule, remedy = "a whole number of keys from 1 to 2**48", "Pass the number of keys in the filter"
    return max(1, arguments.integer("keys", keys, 0, arguments.MAX_CAPACITY, remedy, rule=rule))
