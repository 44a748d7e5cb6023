"""Counts of a stream, in bounded memory.

countmin        CountMinSketch   how often has this key been seen? never too low
heavy_hitters   HeavyHitters     which keys have been seen most often?
"""

from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins.sketches.countmin import CountMinSketch, SketchPlan, SketchStats, plan_countmin
    from evenbins.sketches.heavy_hitters import HeavyHitters

__all__ = ["CountMinSketch", "HeavyHitters", "SketchPlan", "SketchStats", "plan_countmin"]

_HOMES = {"countmin": "CountMinSketch SketchPlan SketchStats plan_countmin", "heavy_hitters": "HeavyHitters"}

__getattr__ = lazy_names(globals(), _HOMES)
