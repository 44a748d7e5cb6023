"""Membership filters: "is this key in the set?", with no false negative and a known rate of false positives.

    standard   BloomFilter           k bits anywhere: the fewest bits per key, up to k memory reads
    blocked    BlockedBloomFilter    k bits within one cache line: one memory read, somewhat more bits
    balanced   BalancedBloomFilter   the same, with full blocks passing keys on: one or two reads
    counting   CountingBloomFilter   counters instead of bits: keys can be removed
    fingerprint  FingerprintFilter   fingerprints in cache lines: keys can be removed, in few bits
    fuse       FuseFilter            a set that never changes: the fewest bits of all, three memory reads
    window     WindowFilter          keys expire when a time, or a number of additions, has passed
    growing    GrowingFilter         stages for a number of keys that nobody knows
    sharded    ShardedFilter         one filter in many files

All filters share one set of methods (`protocols.Filter`; base.py). Threads: look-ups may run at any time,
from any number of threads. Writers, and calls that read the whole filter (save, copy, ==, …), take turns by
themselves. docs/concurrency.md has all rules.
"""

from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins.filters.balanced import BalancedBloomFilter, BalancedPlan, BalancedStats, plan_balanced
    from evenbins.filters.base import build
    from evenbins.filters.blocked import BlockedBloomFilter, BlockedPlan, BlockedStats, plan_blocked
    from evenbins.filters.counting import CountingBloomFilter, CountingPlan, CountingStats, plan_counting
    from evenbins.filters.fingerprint import FingerprintFilter
    from evenbins.filters.fingerprint_plan import FingerprintPlan, FingerprintStats, plan_fingerprint
    from evenbins.filters.fuse import FuseFilter, FusePlan, FuseStats, plan_fuse
    from evenbins.filters.growing import GrowingFilter, GrowingPlan
    from evenbins.filters.plan import FilterPlan, FilterStats, plan_of_core
    from evenbins.filters.protocols import Filter, OverfilledWarning
    from evenbins.filters.sharded import ShardedFilter
    from evenbins.filters.sharded_plan import ShardedPlan, plan_sharded
    from evenbins.filters.standard import BloomFilter, StandardPlan, plan_standard
    from evenbins.filters.window import WindowFilter, WindowPlan, WindowStats, plan_window

__all__ = [
    "BalancedBloomFilter", "BalancedPlan", "BalancedStats", "BlockedBloomFilter", "BlockedPlan",
    "BlockedStats", "BloomFilter", "CountingBloomFilter", "CountingPlan", "CountingStats", "Filter",
    "FilterPlan", "FilterStats", "FingerprintFilter", "FingerprintPlan", "FingerprintStats", "FuseFilter",
    "FusePlan", "FuseStats", "GrowingFilter", "GrowingPlan", "OverfilledWarning", "ShardedFilter",
    "ShardedPlan", "StandardPlan", "WindowFilter", "WindowPlan", "WindowStats", "build", "plan_balanced",
    "plan_blocked", "plan_counting", "plan_fingerprint", "plan_fuse", "plan_of_core",
    "plan_sharded", "plan_standard", "plan_window",
]  # fmt: skip

_HOMES = {
    "balanced": "BalancedBloomFilter BalancedPlan BalancedStats plan_balanced",
    "base": "build",
    "blocked": "BlockedBloomFilter BlockedPlan BlockedStats plan_blocked",
    "counting": "CountingBloomFilter CountingPlan CountingStats plan_counting",
    "fingerprint": "FingerprintFilter",
    "fingerprint_plan": "FingerprintPlan FingerprintStats plan_fingerprint",
    "fuse": "FuseFilter FusePlan FuseStats plan_fuse",
    "growing": "GrowingFilter GrowingPlan",
    "plan": "FilterPlan FilterStats plan_of_core",
    "protocols": "Filter OverfilledWarning",
    "sharded": "ShardedFilter",
    "sharded_plan": "ShardedPlan plan_sharded",
    "standard": "BloomFilter StandardPlan plan_standard",
    "window": "WindowFilter WindowPlan WindowStats plan_window",
}

__getattr__ = lazy_names(globals(), _HOMES)
