"""Structures to the GPU: which kinds can be there, and the class that each of them has there."""

from __future__ import annotations

from typing import Any, overload

from evenbins import structure
from evenbins.cuda.balanced import DeviceBalancedFilter
from evenbins.cuda.filters import DeviceBlockedFilter, DeviceFilter, DeviceStandardFilter
from evenbins.cuda.fingerprints import DeviceFingerprintFilter
from evenbins.cuda.sketches import DeviceSketch
from evenbins.filters.base import BaseFilter
from evenbins.filters.plan import FilterPlan
from evenbins.sketches.countmin import CountMinSketch

__all__ = ["CLASSES", "build", "to_device"]

CLASSES: dict[str, Any] = {  # of the kinds that can "cuda"
    "standard": DeviceStandardFilter,
    "blocked": DeviceBlockedFilter,
    "balanced": DeviceBalancedFilter,
    "fingerprint": DeviceFingerprintFilter,
    "count-min": DeviceSketch,
}


@overload
def to_device(f: BaseFilter) -> DeviceFilter: ...
@overload
def to_device(f: CountMinSketch) -> DeviceSketch: ...
def to_device(f: BaseFilter | CountMinSketch) -> DeviceFilter | DeviceSketch:
    """Return a copy of a filter or sketch in the memory of the current GPU; `f` stays as it is.

    Parameters
    ----------
    f
        A `BlockedBloomFilter`, a `BloomFilter` with independent hashing, a `BalancedBloomFilter`, a
        `FingerprintFilter`, or a `CountMinSketch`.

    Raises
    ------
    DeviceError
        No GPU can be used, or the filter does not fit into its memory.
    TypeError
        It is another kind of structure.
    """
    try:
        kind = structure.kind_of_object(f)
    except StopIteration:
        raise _not_on_a_gpu(f"a {type(f).__name__}") from None
    if isinstance(f, BaseFilter):
        f._settle()  # one that is growing finishes its step, as when it is saved
    made: DeviceFilter | DeviceSketch = _class_of(kind, f.plan)(f.plan, f)
    return made


def build(plan: FilterPlan, keys: object, *, digests: bool = False) -> DeviceFilter:
    """Build the filter of a plan on the current GPU and add keys to it; see `DeviceFilter.add_many`."""
    made: DeviceFilter = _class_of(structure.kind_of_policy(plan.policy), plan)(plan, None)
    made.add_many(keys, digests=digests)
    return made


def _class_of(kind: structure.Kind, plan: Any) -> Any:
    if "cuda" not in kind.can:
        raise _not_on_a_gpu(kind.title)
    if kind.name == "standard" and plan.hashing != "independent":
        raise TypeError(
            f"a standard filter in device memory has independent hashing, not {plan.hashing!r}: build one "
            "with it"
        )
    return CLASSES[kind.name]


def _not_on_a_gpu(title: str) -> TypeError:
    able = ", ".join(kind.home.split(":")[1] for kind in structure.that_can("cuda"))
    return TypeError(f"{title} cannot be in device memory: use one of {able}")
