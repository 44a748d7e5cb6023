"""The plan of a sketch that tracks the most frequent keys, and what it measures on itself."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from evenbins import _arguments as arguments
from evenbins.sketches.countmin import SketchPlan, SketchStats, plan_countmin

__all__ = ["HittersPlan", "HittersStats", "plan_heavy_hitters"]

MAX_K = 2**20


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HittersStats(SketchStats):
    """What a `HeavyHitters` measures on itself; names of `SketchStats` mean the same here.

    Attributes
    ----------
    keys : keys tracked
    least : the least estimate among them; 0 if there is none
    untracked_bound : how often a key that is not tracked can have been seen, at most
    nbytes : bytes of the sketch, and of the tracked keys as a file holds them
    """

    keys: int
    least: int
    untracked_bound: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class HittersPlan(SketchPlan):
    """The design of a `HeavyHitters`: that of its sketch, and how many keys it tracks.

    Equality and hash look at k, seed and core alone. `nbytes` is the size of the sketch; the tracked keys
    come on top of it.

    Attributes
    ----------
    k : the most keys tracked
    """

    _identity: ClassVar[tuple[str, ...]] = ("k", "seed", "core")
    _in_one_line: ClassVar[tuple[str, ...]] = (
        "k",
        "epsilon",
        "delta",
        "construction",
        "failure",
        "conservative",
        "nbytes",
    )

    k: int


def plan_heavy_hitters(
    k: int, *, epsilon: float = 1e-3, delta: float = 1e-3, construction: str = "classic",
    conservative: bool = True, seed: int = 0,
) -> HittersPlan:  # fmt: skip
    """Plan a `HeavyHitters`; parameters as in the class.

    Examples
    --------
    >>> plan_heavy_hitters(100, epsilon=1e-4)
    HittersPlan(k=100, epsilon=0.0001, delta=0.001, construction='classic', failure=0.0009118, \
conservative=True, nbytes=1.52 MB)
    """
    k = arguments.integer("k", k, 1, MAX_K, "Pass the number of keys wanted, such as 100")
    plan = plan_countmin(epsilon, delta, construction=construction, conservative=conservative, seed=seed)
    return plan_with_keys(plan, k)


def plan_with_keys(plan: SketchPlan, k: int) -> HittersPlan:
    """Return the plan of this sketch with k tracked keys."""
    return HittersPlan(**{each.name: getattr(plan, each.name) for each in fields(SketchPlan)}, k=k)
