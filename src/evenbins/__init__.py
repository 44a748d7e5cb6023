"""evenbins: keys into bounded bins by hashing, evenly, in few memory accesses, with a known overflow.

    >>> from evenbins import BlockedBloomFilter
    >>> f = BlockedBloomFilter(10_000, fpr=1e-3)     # planned: bits, hashes, predicted behaviour
    >>> f.add_many(["apple", "pear"])
    >>> "apple" in f, "plum" in f
    (True, False)
    >>> f.plan.fpr <= 1e-3                           # predicted; f.stats() measures
    True
"""

from importlib.metadata import version as _version

from evenbins import theory
from evenbins._core import FormatError, KeyRangeError, kernel, kernels
from evenbins.filters import (
    BlockedBloomFilter,
    BloomFilter,
    Filter,
    FilterStats,
    digest,
    digest_many,
    load,
    open,
)
from evenbins.theory import FilterPlan

__all__ = [
    "BlockedBloomFilter",
    "BloomFilter",
    "Filter",
    "FilterPlan",
    "FilterStats",
    "FormatError",
    "KeyRangeError",
    "digest",
    "digest_many",
    "kernel",
    "kernels",
    "load",
    "open",
    "theory",
]

__version__ = _version("evenbins")
