"""Results that are computed once and kept, for all threads of the process.

A cache hands the same object to every caller, so nothing in it may change: `cached` makes all arrays of a
result read-only. Functions that it decorates must be pure. Two threads that miss at the same time compute
the same result twice, and one of them is kept; no lock is held, so a child made by `fork` finds none taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

import numpy as np

__all__ = ["cached", "frozen"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Result = TypeVar("_Result")


def cached(maxsize: int | None) -> Callable[[_Function], _Function]:
    """Cache the results of a function, as `functools.lru_cache` does, with their arrays made read-only."""

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def compute(*args: Any, **kwargs: Any) -> Any:
            return frozen(function(*args, **kwargs))

        return cast(_Function, lru_cache(maxsize=maxsize)(compute))

    return decorate


def frozen(value: _Result) -> _Result:
    """Make the arrays of a result read-only: its own, and those in its tuples, dicts and fields."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif isinstance(value, tuple | list):
        for each in value:
            frozen(each)
    elif isinstance(value, dict):
        for each in value.values():
            frozen(each)
    elif is_dataclass(value):
        for field in fields(value):
            frozen(getattr(value, field.name))
    return value
