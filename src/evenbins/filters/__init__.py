"""Membership filters: "is this key in the set?", with no false negative and a known rate of false positives.

    standard   BloomFilter           k bits anywhere: the fewest bits per key, up to k memory reads
    blocked    BlockedBloomFilter    k bits within one cache line: one memory read, somewhat more bits
    balanced   BalancedBloomFilter   the same, with full blocks passing keys on: one or two reads
    counting   CountingBloomFilter   counters instead of bits: keys can be removed
    growing    GrowingFilter         stages for a number of keys that nobody knows
    sharded    ShardedFilter         one filter in many files

All filters share one set of methods (`protocols.Filter`; base.py). Threads: look-ups may run at any time,
from any number of threads. Writers, and calls that read the whole filter (save, copy, ==, …), take turns by
themselves. docs/concurrency.md has all rules.
"""

from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins.filters.balanced import BalancedBloomFilter
    from evenbins.filters.base import build
    from evenbins.filters.blocked import BlockedBloomFilter
    from evenbins.filters.counting import CountingBloomFilter
    from evenbins.filters.growing import GrowingFilter
    from evenbins.filters.protocols import Filter, FilterStats, OverfilledWarning
    from evenbins.filters.sharded import ShardedFilter
    from evenbins.filters.standard import BloomFilter

__all__ = [
    "BalancedBloomFilter",
    "BlockedBloomFilter",
    "BloomFilter",
    "CountingBloomFilter",
    "Filter",
    "FilterStats",
    "GrowingFilter",
    "OverfilledWarning",
    "ShardedFilter",
    "build",
]

_HOMES = {
    "balanced": "BalancedBloomFilter",
    "blocked": "BlockedBloomFilter",
    "counting": "CountingBloomFilter",
    "growing": "GrowingFilter",
    "protocols": "Filter FilterStats OverfilledWarning",
    "sharded": "ShardedFilter",
    "standard": "BloomFilter",
    "base": "build",
}

__getattr__ = lazy_names(globals(), _HOMES)
