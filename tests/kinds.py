"""Every filter of the library, in several shapes: what the suites run over (conftest.py has the fixtures)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import reference
from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    CountingBloomFilter,
    FingerprintFilter,
    WindowFilter,
)
from evenbins.filters import (
    FilterPlan,
    plan_balanced,
    plan_blocked,
    plan_counting,
    plan_fingerprint,
    plan_of_core,
    plan_standard,
    plan_window,
)
from evenbins.study.hashing import plan_scheme
from evenbins.study.levels import plan_levels
from reference.bloom import ReferenceFilter

AGES = timedelta(days=9999)
SECRET = 0xC0FFEE_5EED_C0FFEE  # a seed that no other number in a test looks like


@dataclass(frozen=True)
class Kind:
    """A filter class with arguments, and its twin in `reference`.

    What filters do not promise alike is a property here, and tests ask for the property:

    ordered   the order of the adds leaves a trace in the bytes (but the same adds give the same bytes)
    counted   the payload holds loads, a list and words of state beside the bits that keys set; a merge
              adds the loads and writes the list anew
    repeats   a key is held as often as it was added: adding it again, or merging a filter with itself,
              changes the bytes; the payload holds counters, and a key's positions are counters of it
    merges    two filters unite by |
    first     arguments of the class before its capacity
    runs      the payload holds fingerprints, not bits, and so many at most: a filter that is full raises
              FilterFullError, instead of a warning that it is overfilled
    """

    name: str
    cls: Any
    twin_class: Any
    arguments: Mapping[str, Any] = field(default_factory=dict)
    plan: Callable[..., Any] | None = None  # of a capacity; otherwise the class plans by itself
    ordered: bool = False
    counted: bool = False
    repeats: bool = False
    runs: bool = False
    merges: bool = True
    first: tuple[Any, ...] = ()

    def __call__(self, capacity: Any = 1000, **changes: Any) -> Any:
        arguments = {**self.arguments, **changes}
        if self.plan:
            return self.cls.from_plan(self.plan(capacity, **arguments))
        return self.make(capacity, **arguments)

    def make(self, *arguments: Any, **options: Any) -> Any:
        """Call the class with its capacity and what follows."""
        return self.cls(*self.first, *arguments, **options)

    def planned(self, capacity: Any, **arguments: Any) -> Any:
        """Make a filter of the class by its planner, which takes more than the constructor."""
        planners = {
            "BloomFilter": plan_standard, "BlockedBloomFilter": plan_blocked,
            "BalancedBloomFilter": plan_balanced, "CountingBloomFilter": plan_counting,
        }  # fmt: skip
        if self.runs:
            return self(capacity)
        planner: Any = planners[self.cls.__name__]
        return self.cls.from_plan(planner(capacity, **arguments))

    def filled(self, keys: Any, capacity: int = 1000) -> Any:
        """Make a filter that holds the keys, each put in by a single `add`."""
        made = self(capacity)
        for key in keys:
            made.add(key)
        return made

    def twin(self, made: Any) -> ReferenceFilter:
        """Make the empty twin of a filter."""
        core = made.plan.core
        how = {"hashing": made.plan.hashing} if made.plan.policy == "standard" else {}
        twin: ReferenceFilter = self.twin_class(*([core] if self.ordered else core), seed=made.seed, **how)
        if isinstance(twin, reference.ReferenceWindow):
            twin.clock = int(1e6 * time.time())
        return twin

    def merged(self, made: Any, *parts: Any) -> bytes:
        """Give the payload of the union of filters with these keys, as the twins merge them."""
        union, *others = (self.twin(made) for _ in parts)
        for twin, keys in zip([union, *others], parts, strict=True):
            for key in keys:
                twin.add(key)
        for twin in others:
            union.merge(twin)
        return union.payload()

    def positions(self, made: Any, digests: Iterable[int]) -> set[int]:
        """Give the bits of the payload that these digests set, by the twin, without the memory of all."""
        if not self.ordered:
            _, *rest = made.plan.core
            how = {"hashing": made.plan.hashing} if made.plan.policy == "standard" else {}
            twin = self.twin_class(1, *rest, seed=made.seed, **how)
            name = {"standard": "bits", "counting": "counters"}.get(made.plan.policy, "blocks")
            setattr(twin, name, made.plan.core[0])
            return {position for digest in digests for position in twin.positions(digest)}
        assert not self.counted
        twin = self.twin(made)
        found, start = set(), 0
        for digest in digests:
            twin.add_digest(digest)
        for table in twin.tables:
            for block, bits in table.bits.items():
                first = start + block * table.block_bits
                found |= {first + i for i in range(table.block_bits) if bits >> i & 1}
            start += -(-table.blocks * table.block_bits // 512) * 512
        return found


def _standard(name: str, **arguments: Any) -> Kind:
    plan: Callable[..., Any] | None = None
    if "hashing" in arguments:  # for study: the constructor does not take it
        plan = partial(plan_scheme, arguments.pop("hashing"))
    return Kind(name, BloomFilter, reference.ReferenceBloom, arguments, plan)


def _blocked(name: str, **arguments: Any) -> Kind:
    return Kind(name, BlockedBloomFilter, reference.ReferenceBlocked, arguments)


def _balanced(name: str, *, counted: bool = False, plan: Any = None, **arguments: Any) -> Kind:
    return Kind(
        name, BalancedBloomFilter, reference.ReferenceBalanced, arguments, plan, ordered=True, counted=counted
    )


def _counting(name: str, **arguments: Any) -> Kind:
    plan = plan_counting  # which does not warn of narrow counters, as the class does
    return Kind(name, CountingBloomFilter, reference.ReferenceCounting, arguments, plan, repeats=True)


def _fingerprint(name: str, **arguments: Any) -> Kind:
    """Make a set with room for many more keys than it is planned for: suites add more, and test the bytes.

    What a full one does is in test_fingerprint.py, multisets also in test_fingerprint_twin.py.
    """

    def plan(capacity: Any, *, seed: int = 0, **goal: Any) -> Any:
        lines, *shape, _, _, _, _ = plan_fingerprint(max(20 * int(capacity), 3000), **goal).core
        core = (lines, *shape, 8192, 2**40, 1, 0)
        return plan_of_core("fingerprint", core, capacity=capacity, seed=seed, hashing="lanes")

    return Kind(
        name, FingerprintFilter, reference.ReferenceFingerprint, arguments, plan, counted=True, runs=True
    )


def _window(name: str, **arguments: Any) -> Kind:
    """Make a window in which nothing expires, and which has room for more keys, as `_fingerprint` does."""

    def plan(capacity: Any, *, steps: int = 8, seed: int = 0, **goal: Any) -> Any:
        roomy = plan_window(AGES, max(20 * int(capacity), 3000), steps=steps, **goal).core
        core = roomy._replace(rest=8192, slots_limit=2**40)
        return plan_of_core("window", core, capacity=capacity, seed=seed, hashing="lanes")

    return Kind(
        name, WindowFilter, reference.ReferenceWindow, arguments, plan, counted=True, runs=True, merges=False,
        first=(AGES,),
    )  # fmt: skip


def _levels(
    capacity: Any,
    *,
    policy: str,
    bits_per_key: float = 16,
    block_bits: int = 512,
    shares: Sequence[float] = (1,),
    on_list: float = 0,
    reads: float = 0,
    **arguments: Any,
) -> FilterPlan:
    """Plan a balanced filter in which, at its capacity, every level, the list and the spill rule have work.

    Explicit integers that grow with the capacity: no better planner of tomorrow changes what is tested.
    """
    keys = int(capacity)
    blocks = [max(1, round(share * keys * bits_per_key / block_bits)) for share in shares]
    if policy in ("single", "sequential", "multilevel"):
        arguments["thresholds"] = [max(1, round(0.95 * keys / sum(blocks)))] * len(blocks)
        arguments["overflow_limit"] = round(on_list * keys) + 2 if on_list else 0
        arguments["budget"] = round(reads * keys)
    elif policy == "fill":
        arguments["thresholds"] = [block_bits // 2] * (len(blocks) - 1)
    return plan_levels(capacity, policy=policy, blocks=blocks, block_bits=block_bits, **arguments)


def _planned(name: str, **arguments: Any) -> Kind:
    counted = arguments["policy"] in ("single", "sequential", "multilevel")
    return _balanced(name, counted=counted, plan=_levels, **arguments)


THREE = (0.8, 0.15, 0.05)
KINDS = [
    _standard("standard", fpr=1e-3),
    _standard("standard-1-hash", bits_per_key=9.3, hashes=1),
    _standard("standard-33-hashes", bits_per_key=50, hashes=33),
    _standard("standard-seeded", fpr=1e-2, seed=SECRET),
    _standard("standard-double", bits_per_key=11, hashing="double"),
    _standard("standard-triple", bits_per_key=11, hashing="triple", seed=SECRET),
    _blocked("blocked-512", fpr=1e-3),
    _blocked("blocked-512-1-hash", bits_per_key=12, hashes=1),
    _blocked("blocked-512-24-hashes", bits_per_key=40, hashes=24),
    _blocked("blocked-512-seeded", fpr=1e-2, seed=SECRET),
    _blocked("blocked-256", fpr=1e-3, block_bits=256),
    _blocked("blocked-256-17-hashes", bits_per_key=31, hashes=17, block_bits=256),
    _balanced("balanced", fpr=1e-3),
    _planned("single", policy="single", hashes=8, coin=0.5, on_list=0.2),
    _planned(
        "sequential-256", policy="sequential", hashes=9, block_bits=256, coin=0.3, on_list=0.3, reads=1.2
    ),
    _planned("multilevel", policy="multilevel", hashes=10, shares=THREE, coin=0.5, on_list=0.05, seed=SECRET),
    _planned("multilevel-256-no-list", policy="multilevel", hashes=7, shares=THREE, block_bits=256),
    _planned("fill-256", policy="fill", hashes=8, shares=THREE, block_bits=256),
    _planned("two-choice", policy="two-choice", hashes=11),
    _counting("counting", fpr=1e-3),
    _counting("counting-2-bits", fpr=1e-2, counter_bits=2),
    _counting("counting-8-bits-33-hashes", bits_per_key=400, hashes=33, counter_bits=8, seed=SECRET),
    _counting("counting-16-bits", bits_per_key=70, hashes=1, counter_bits=16),
    _counting("counting-blocked", fpr=1e-3, layout="blocked"),
    _counting("counting-blocked-2-bits", fpr=1e-3, layout="blocked", counter_bits=2, seed=SECRET),
    _counting("counting-blocked-8-bits", bits_per_key=200, hashes=17, layout="blocked", counter_bits=8),
    _counting("counting-blocked-16-bits", fpr=1e-2, layout="blocked", counter_bits=16),
    _fingerprint("fingerprint", fpr=1e-3),
    _fingerprint("fingerprint-4-bits", bits_per_key=10),
    _fingerprint("fingerprint-wide", fpr=1e-8, seed=SECRET),
    _window("window", fpr=1e-3),
    _window("window-30-steps", fpr=1e-2, steps=30, seed=SECRET),
]
# Shapes that differ from another one by a number of hashes, a seed or a width: in `make test-long`.
VARIANTS = {
    "standard-1-hash", "standard-seeded", "standard-triple", "blocked-512-1-hash", "blocked-512-seeded",
    "blocked-256-17-hashes", "counting-2-bits", "counting-16-bits", "counting-blocked-2-bits",
    "counting-blocked-8-bits", "fingerprint-4-bits", "window-30-steps",
}  # fmt: skip
FIRST_OF_CLASS = list({each.cls: each for each in reversed(KINDS)}.values())
