"""Counts of a stream, in bounded memory.

countmin        CountMinSketch   how often has this key been seen? never too low
heavy_hitters   HeavyHitters     which keys have been seen most often?
hyperloglog     HyperLogLog      how many different keys have been seen?
"""

from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins.sketches.countmin import CountMinSketch, SketchPlan, SketchStats, plan_countmin
    from evenbins.sketches.heavy_hitters import HeavyHitters
    from evenbins.sketches.heavy_hitters_plan import HittersPlan, HittersStats, plan_heavy_hitters

__all__ = [
    "CountMinSketch", "HeavyHitters", "HittersPlan", "HittersStats", "SketchPlan", "SketchStats",
    "plan_countmin", "plan_heavy_hitters",
]  # fmt: skip

_HOMES = {
    "countmin": "CountMinSketch SketchPlan SketchStats plan_countmin",
    "heavy_hitters": "HeavyHitters",
    "heavy_hitters_plan": "HittersPlan HittersStats plan_heavy_hitters",
}

__getattr__ = lazy_names(globals(), _HOMES)
