"""evenbins: keys into bounded bins by hashing, evenly, in few memory accesses, with a known overflow.

>>> from evenbins import BlockedBloomFilter, design
>>> f = BlockedBloomFilter(10_000, fpr=1e-3)     # planned: bits, hashes, predicted behaviour
>>> f.add_many(["apple", "pear"])
>>> "apple" in f, "plum" in f
(True, False)
>>> f.plan.fpr <= 1e-3                           # predicted; f.stats() measures
True
>>> design.filter(keys=1e9, fpr=1e-6).best.policy    # every design that meets it, best first
'blocked'

Modules are imported when a name of theirs is first used: a command that looks up one line needs no theory.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins import design, theory
    from evenbins._core import FilterFullError, kernel, kernels
    from evenbins._newlines import NewlineWarning
    from evenbins.columns import column
    from evenbins.deduplication.containers import dedup
    from evenbins.deduplication.deduplicator import Deduplicator, DedupStats
    from evenbins.errors import ArgumentError, ArgumentTypeError, EvenbinsError, FormatError, KeyRangeError
    from evenbins.filters.balanced import BalancedBloomFilter
    from evenbins.filters.blocked import BlockedBloomFilter
    from evenbins.filters.counting import CountingBloomFilter
    from evenbins.filters.fingerprint import FingerprintFilter
    from evenbins.filters.fuse import FuseFilter
    from evenbins.filters.growing import GrowingFilter
    from evenbins.filters.plan import FilterPlan, FilterStats
    from evenbins.filters.protocols import Filter, OverfilledWarning
    from evenbins.filters.sharded import ShardedFilter
    from evenbins.filters.standard import BloomFilter
    from evenbins.filters.window import WindowFilter
    from evenbins.hashing import digest, digest_many
    from evenbins.rings.errors import NoNodesError, RingFullError
    from evenbins.rings.ring import HashRing
    from evenbins.rings.stats import RingStats
    from evenbins.sketches.countmin import CountMinSketch, SketchPlan, SketchStats
    from evenbins.sketches.heavy_hitters import HeavyHitters
    from evenbins.sketches.hyperloglog import HyperLogLog
    from evenbins.structure import load
    from evenbins.structure import open as open  # not in __all__: a star import must not hide Python's open
    from evenbins.tables.chained import ChainedTable, ChainPlan, ChainStats
    from evenbins.tables.multilevel import MultilevelTable, TableFullError, TablePlan, TableStats
    from evenbins.tables.paged import PagedPlan, PagedStats, PagedTable

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "BalancedBloomFilter",
    "BlockedBloomFilter",
    "BloomFilter",
    "ChainPlan",
    "ChainStats",
    "ChainedTable",
    "CountMinSketch",
    "CountingBloomFilter",
    "DedupStats",
    "Deduplicator",
    "EvenbinsError",
    "Filter",
    "FilterFullError",
    "FilterPlan",
    "FilterStats",
    "FingerprintFilter",
    "FormatError",
    "FuseFilter",
    "GrowingFilter",
    "HashRing",
    "HeavyHitters",
    "HyperLogLog",
    "KeyRangeError",
    "MultilevelTable",
    "NewlineWarning",
    "NoNodesError",
    "OverfilledWarning",
    "PagedPlan",
    "PagedStats",
    "PagedTable",
    "RingFullError",
    "RingStats",
    "ShardedFilter",
    "SketchPlan",
    "SketchStats",
    "TableFullError",
    "TablePlan",
    "TableStats",
    "WindowFilter",
    "column",
    "dedup",
    "design",
    "digest",
    "digest_many",
    "kernel",
    "kernels",
    "load",
    "theory",
]

# Where the names above come from; a test compares the two.
_HOMES = {
    "_core": "FilterFullError kernel kernels",
    "_newlines": "NewlineWarning",
    "columns": "column",
    "deduplication.containers": "dedup",
    "deduplication.deduplicator": "Deduplicator DedupStats",
    "errors": "ArgumentError ArgumentTypeError EvenbinsError FormatError KeyRangeError",
    "filters.balanced": "BalancedBloomFilter",
    "filters.blocked": "BlockedBloomFilter",
    "filters.counting": "CountingBloomFilter",
    "filters.fingerprint": "FingerprintFilter",
    "filters.fuse": "FuseFilter",
    "filters.growing": "GrowingFilter",
    "filters.plan": "FilterPlan FilterStats",
    "filters.protocols": "Filter OverfilledWarning",
    "filters.sharded": "ShardedFilter",
    "filters.standard": "BloomFilter",
    "filters.window": "WindowFilter",
    "hashing": "digest digest_many",
    "rings.errors": "NoNodesError RingFullError",
    "rings.ring": "HashRing",
    "rings.stats": "RingStats",
    "sketches.countmin": "CountMinSketch SketchPlan SketchStats",
    "sketches.heavy_hitters": "HeavyHitters",
    "sketches.hyperloglog": "HyperLogLog",
    "structure": "load open",
    "tables.chained": "ChainedTable ChainPlan ChainStats",
    "tables.multilevel": "MultilevelTable TableFullError TablePlan TableStats",
    "tables.paged": "PagedPlan PagedStats PagedTable",
}
_MODULES = {"cluster", "compat", "cuda", "design", "routing", "study"}
_MODULES |= {home.partition(".")[0] for home in _HOMES}
_named = lazy_names(globals(), _HOMES)


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"evenbins.{name}")
    if name == "__version__":  # on demand: looking it up takes longer than the fastest command
        from importlib.metadata import version

        return version("evenbins")
    return _named(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "open"})
