"""evenbins: keys into bounded bins by hashing, evenly, in few memory accesses, with a known overflow.

>>> from evenbins import BlockedBloomFilter, design
>>> f = BlockedBloomFilter(10_000, fpr=1e-3)     # planned: bits, hashes, predicted behaviour
>>> f.add_many(["apple", "pear"])
>>> "apple" in f, "plum" in f
(True, False)
>>> f.plan.fpr <= 1e-3                           # predicted; f.stats() measures
True
>>> design.filter(keys=1e9, fpr=1e-6).best.policy    # every design that meets it, best first
'two-choice'

Modules are imported when a name of theirs is first used: a command that looks up one line needs no theory.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenbins import design, theory
    from evenbins._core import FormatError, KeyRangeError, kernel, kernels
    from evenbins.chained import ChainedTable, ChainStats
    from evenbins.counting import CountingBloomFilter
    from evenbins.filters import (
        BalancedBloomFilter,
        BlockedBloomFilter,
        BloomFilter,
        load,
    )
    from evenbins.filters import open as open  # not in __all__: a star import must not hide Python's open
    from evenbins.growing import GrowingFilter
    from evenbins.hashing import digest, digest_many
    from evenbins.paged import PagedStats, PagedTable
    from evenbins.protocols import Filter, FilterStats, OverfilledWarning
    from evenbins.rings import HashRing, NoNodesError, RingFullError, RingStats
    from evenbins.sharded import ShardedFilter
    from evenbins.sketches import CountMinSketch, HeavyHitters, SketchStats
    from evenbins.tables import MultilevelTable, TableFull, TableStats
    from evenbins.theory import ChainPlan, FilterPlan, PagedPlan, SketchPlan, TablePlan

__all__ = [
    "BalancedBloomFilter",
    "BlockedBloomFilter",
    "BloomFilter",
    "ChainPlan",
    "ChainStats",
    "ChainedTable",
    "CountMinSketch",
    "CountingBloomFilter",
    "Filter",
    "FilterPlan",
    "FilterStats",
    "FormatError",
    "GrowingFilter",
    "HashRing",
    "HeavyHitters",
    "KeyRangeError",
    "MultilevelTable",
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
    "TableFull",
    "TablePlan",
    "TableStats",
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
    "_core": "FormatError KeyRangeError kernel kernels",
    "chained": "ChainedTable ChainStats",
    "counting": "CountingBloomFilter",
    "filters": "BalancedBloomFilter BlockedBloomFilter BloomFilter load open",
    "growing": "GrowingFilter",
    "hashing": "digest digest_many",
    "paged": "PagedStats PagedTable",
    "protocols": "Filter FilterStats OverfilledWarning",
    "rings": "HashRing NoNodesError RingFullError RingStats",
    "sharded": "ShardedFilter",
    "sketches": "CountMinSketch HeavyHitters SketchStats",
    "tables": "MultilevelTable TableFull TableStats",
    "theory": "ChainPlan FilterPlan PagedPlan SketchPlan TablePlan",
}
_MODULES = """
    chained cluster counting design filters forwarding growing hashing paged protocols rings sharded sketches
    study summaries tables theory
""".split()  # noqa: SIM905 (a paragraph, not a page)
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        found = getattr(import_module(f"evenbins.{_HOME_OF[name]}"), name)
        globals()[name] = found
        return found
    if name in _MODULES:
        return import_module(f"evenbins.{name}")
    if name == "__version__":  # on demand: looking it up takes longer than the fastest command
        from importlib.metadata import version

        return version("evenbins")
    raise AttributeError(f"module 'evenbins' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "open"})
