"""What the papers' simulations share: how trials are run, what is counted, how arguments are checked.

Every simulation raises ValueError for an argument out of its range and TypeError for one of the wrong type.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

__all__ = ["Counts", "Floats", "Progress", "Run", "Trials", "check_choice", "checked_run", "share", "whole"]

Counts = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Progress = Callable[[int, int], object]


class Trials(TypedDict, total=False):
    """Independent trials. A trial's numbers depend on the seed and its position alone.

    Attributes
    ----------
    trials : how many; 1 by default
    seed : 0 to 2**64-1; 0 by default
    threads : that share the trials; 1 by default
    """

    trials: int
    seed: int
    threads: int


class Run(Trials, total=False):
    """Trials that report their progress.

    Attributes
    ----------
    progress : called some times a second with the trials done and the trials in all; None for nothing
    """

    progress: Progress | None


def checked_run(
    run: Trials | Run, kind: type[Trials] | type[Run] = Run, *, most: int = 2**32
) -> dict[str, Any]:
    """Return a simulator's arguments that say how trials are run; `most` is the largest number of trials."""
    unknown = run.keys() - kind.__annotations__.keys()
    if unknown:
        raise TypeError(f"unexpected argument {min(unknown)!r}: there are {', '.join(kind.__annotations__)}")
    found: dict[str, Any] = {"trials": 1, "seed": 0, "threads": 1, "progress": None} | run
    for name, least, limit in (("trials", 1, most), ("seed", 0, 2**64 - 1), ("threads", 1, 1024)):
        found[name] = whole(name, found[name], least, limit)
    return {name: found[name] for name in kind.__annotations__}


def whole(name: str, value: int, least: int, most: int) -> int:
    """Check a whole number in a range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if not least <= number <= most:
        raise ValueError(f"{name} must be {least} to {most}, not {number}")
    return number


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check a word that must be one of some."""
    if value not in choices:
        rule = f"one of {', '.join(choices)}" if len(choices) > 2 else " or ".join(map(repr, choices))
        raise ValueError(f"{name} must be {rule}, not {value!r}")


def share(counts: Counts | Floats, total: object) -> Floats:
    """Return counts as fractions of a total; 0 where that is 0."""
    return np.asarray(counts / np.maximum(total, 1))  # type: ignore[call-overload]
