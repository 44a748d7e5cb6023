"""What a `set` can do, for filters: union, intersection, subset, and why a filter has no length.

    |   union          every filter            holds all keys of both, as if they had been added to one
    &   intersection   standard and blocked    the bits that both have: it holds every common key, and more
    <=  issubset       standard and blocked    every bit of the one is set in the other
    approx_intersection                        |A| + |B| - |A or B|, each estimated from bits

Only in standard and blocked filters are a key's bits its own, whatever else was added; `Kind.can` says so
("intersect"). For the others `&` and `<=` raise a TypeError with the reason.

The intersection of filters is not the filter of the intersection (Broder and Mitzenmacher, "Network
applications of Bloom filters", 2004, section 2.2): a bit may be set in both by different keys. So it holds
more than a filter of the common keys alone would, and `stats()` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from evenbins.structure import kind_of_object

__all__ = ["SetAlgebra", "items_by_shard", "items_in_one_stage", "require_same_plan"]

_WHY_NOT = {
    "balanced": "where a key's bits are depends on the keys that were added before it, so a key that both "
    "filters have may have no bit in common. Use standard or blocked filters, which have &, <=, >= and "
    "approx_intersection",
    "counting": "the lesser of two counters also counts keys that only one filter has, and removing the "
    "common keys would leave these behind. approx_intersection estimates the number of common keys",
    "fingerprint": "a line holds fingerprints in order, and no bit of it belongs to one key. "
    "approx_intersection estimates the number of common keys",
    "fuse": "a slot is shared by several keys, so equal slots say nothing about common keys. Use standard or "
    "blocked filters",
    "window": "a line holds fingerprints with their ages, and no bit of it belongs to one key. Use "
    "standard or blocked filters",
    "growing": "which stage a key is in depends on the keys that were added before it, so a key that both "
    "filters have may be in stages of different size. approx_intersection estimates the number of common "
    "keys where one stage holds them all",
    "sharded": "each shard is a filter of its own. If the shards are standard or blocked filters, use "
    "ShardedFilter.from_shards([a & b for a, b in zip(f.parts, g.parts)], f.capacity). "
    "approx_intersection estimates the number of common keys",
}
_OTHERS = "the bits of a key depend on other keys. Use standard or blocked filters"
_COMPARED = (
    "nbytes", "policy", "hashing", "hashes", "block_bits", "counter_bits", "choices", "thresholds", "coin",
    "overflow_limit", "spill", "semantics",
)  # fmt: skip


_Items = tuple[float, float, float]


class SetAlgebra:
    """The set operations of all filters; `_core.Filter` or a composite filter has the rest."""

    __slots__ = ()

    def __len__(self) -> int:
        raise TypeError(
            f"{type(self).__name__} has no len(): it does not store its keys; use approx_items() for an "
            "estimate of their number"
        )

    def __bool__(self) -> bool:
        """Return False for an empty filter, as a set does; reads bits up to the first that is set."""
        me: Any = self
        return not me._is_empty()

    def union(self, *others: Self) -> Self:
        """Return a new filter with the keys of this one and of all others: `self | other | …`.

        All must have the same plan. Add keys by `update`.

        Examples
        --------
        >>> from evenbins import BloomFilter
        >>> f, g = BloomFilter(100), BloomFilter(100)
        >>> f.add("a"); g.add("b")
        >>> h = f.union(g)
        >>> "a" in h, "b" in h, "b" in f
        (True, True, False)
        """
        return self._combined("union", "__ior__", others)

    def intersection(self, *others: Self) -> Self:
        """Return a new filter with the bits that this one and all others have: `self & other & …`.

        Every key that all of them hold is in it. It is an upper bound: a bit may be set in each by another
        key, so its rate is higher than that of a filter of the common keys alone. A key that is in one filter
        only is found with the other's rate; a key that is in none, with `stats().fpr` of the result. The
        result's `stats().keys` is too high: `approx_intersection` estimates how many keys are in both.

        Raises
        ------
        TypeError
            The filters are not standard or blocked: the message says why they have no intersection.
        ValueError
            Their plans differ.

        Examples
        --------
        >>> from evenbins import BlockedBloomFilter
        >>> f, g = BlockedBloomFilter(100, 1e-6), BlockedBloomFilter(100, 1e-6)
        >>> f.update(["a", "b"]); g.update(["b", "c"])
        >>> both = f & g
        >>> "a" in both, "b" in both, "c" in both
        (False, True, False)
        """
        self._require_bits_of_keys()
        return self._combined("intersection", "__iand__", others)

    def __and__(self, other: Self) -> Self:
        return self.intersection(other) if self._is_comparable(other) else NotImplemented

    def __iand__(self, other: Self) -> Self:
        if not self._is_comparable(other):
            return NotImplemented
        self._require_bits_of_keys()
        require_same_plan(self, other, "intersect")
        me: Any = self
        me._intersect(other)
        return self

    def issubset(self, other: Self) -> bool:
        """Return whether every bit of this filter is set in the other: `self <= other`.

        True whenever every key of this filter was added to the other. It may be True although some was not:
        for a single key with the other's false-positive rate, for several keys far more rarely. So False is
        certain, and True is not.

        Raises
        ------
        TypeError, ValueError
            As for `intersection`.

        Examples
        --------
        >>> from evenbins import BloomFilter
        >>> f, g = BloomFilter(100), BloomFilter(100)
        >>> f.update("ab".split()); g.update(["ab", "cd"])
        >>> f <= g, g <= f
        (True, False)
        """
        if not self._is_comparable(other):
            raise TypeError(f"other must be a {type(self).__name__}, not {type(other).__name__}")
        self._require_bits_of_keys()
        require_same_plan(self, other, "compare")
        me: Any = self
        return me._is_subset(other)  # type: ignore[no-any-return]

    def issuperset(self, other: Self) -> bool:
        """Return whether every bit of the other filter is set in this one: `self >= other`, as `issubset`."""
        if not self._is_comparable(other):
            raise TypeError(f"other must be a {type(self).__name__}, not {type(other).__name__}")
        return other.issubset(self)

    def __le__(self, other: Self) -> bool:
        return self.issubset(other) if self._is_comparable(other) else NotImplemented

    def __ge__(self, other: Self) -> bool:
        return self.issuperset(other) if self._is_comparable(other) else NotImplemented

    def approx_intersection(self, other: Self) -> float:
        """Estimate the number of different keys that both filters hold: ``|A| + |B| - |A or B|``.

        Each of the three is estimated from set bits (`approx_items`), and the difference keeps the errors of
        large sets: as long as the union has no more keys than a filter was planned for, its standard
        deviation is 0.1 to 0.3 times the square root of the number of keys in the union; with more keys it
        is larger. So an overlap of a few times that cannot be told from none. The result is cut at 0 and at
        the smaller of the two sets. It takes the memory of one more filter.

        Raises
        ------
        TypeError
            The filters are of different classes, or of a kind that cannot tell: balanced filters, growing
            filters of more than one stage or with balanced stages, sharded ones with balanced shards.
        ValueError
            Their plans differ, or so many keys were added that every bit is set.

        Examples
        --------
        >>> from evenbins import BloomFilter
        >>> f, g = BloomFilter(20_000, 1e-3), BloomFilter(20_000, 1e-3)
        >>> f.update(range(10_000)); g.update(range(9_000, 19_000))
        >>> 900 < f.approx_intersection(g) < 1100
        True
        """
        if not self._is_comparable(other):
            raise TypeError(f"other must be a {type(self).__name__}, not {type(other).__name__}")
        mine, theirs, together = self._items_with(other)
        if math.isinf(together):
            raise ValueError(
                "the overlap cannot be estimated: every bit of the two filters together is set. Plan for "
                "more keys"
            )
        return min(max(mine + theirs - together, 0.0), mine, theirs)

    def _items_with(self, other: Self) -> _Items:
        """Estimate the keys of this filter, of the other, and of both together."""
        if (name := kind_of_object(self).name) == "balanced":
            raise TypeError(f"the overlap of balanced filters cannot be estimated: {_WHY_NOT[name]}")
        require_same_plan(self, other, "compare")
        me: Any = self
        them: Any = other
        union = me.copy()
        mine = union.approx_items()
        union |= them
        return mine, them.approx_items(), union.approx_items()

    def _combined(self, name: str, operator: str, others: Sequence[Self]) -> Self:
        """Return a copy that was changed by an in-place operator with each of the others."""
        me: Any = self
        result: Self = me.copy()
        for each in others:
            if getattr(result, operator)(each) is NotImplemented:
                raise TypeError(
                    f"{name} takes filters of the same class, {type(self).__name__}, not "
                    f"{type(each).__name__}: add keys by update"
                )
        return result

    def _is_comparable(self, other: object) -> bool:
        return isinstance(other, type(self))

    def _require_bits_of_keys(self) -> None:
        kind = kind_of_object(self)
        if "intersect" not in kind.can:
            why = _WHY_NOT.get(kind.name, _OTHERS)
            raise TypeError(f"{type(self).__name__} has no &, <= or >=: {why}")


def items_in_one_stage(mine: Sequence[SetAlgebra], theirs: Sequence[SetAlgebra]) -> _Items:
    """Estimate as `_items_with`, for growing filters: from the bits of their only stages."""
    if len(mine) > 1 or len(theirs) > 1:
        raise TypeError(
            f"the overlap of growing filters of several stages cannot be estimated ({len(mine)} and "
            f"{len(theirs)} stages): a common key may be in stages of different size. Pass a first= so large "
            "that one stage holds all keys, or use BlockedBloomFilter"
        )
    return mine[0]._items_with(theirs[0])


def items_by_shard(mine: Sequence[SetAlgebra], theirs: Sequence[SetAlgebra]) -> _Items:
    """Estimate as `_items_with`, for sharded filters: a key is in the same shard of both."""
    found = [a._items_with(b) for a, b in zip(mine, theirs, strict=True)]
    one, other, union = (math.fsum(each) for each in zip(*found, strict=True))
    return one, other, union


def require_same_plan(mine: Any, theirs: Any, verb: str) -> None:
    """Raise ValueError if two filters of one class have different plans, and say where they differ."""
    if mine._seed != theirs._seed:  # not which: a seed may be a secret
        what = "their seeds differ"
    elif (mine._hashing, mine._core) == (theirs._hashing, theirs._core):
        return
    else:
        what = f"their plans differ ({_difference(mine.plan, theirs.plan)})"
    raise ValueError(f"cannot {verb}: {what}. Build both with the same arguments")


def _difference(mine: Any, theirs: Any) -> str:
    """Return capacity and rate of two plans, and what else differs, with both values."""
    rows = [("capacity", mine.keys, theirs.keys), ("fpr", f"{mine.fpr:.3g}", f"{theirs.fpr:.3g}")]
    more = [(name, getattr(mine, name), getattr(theirs, name)) for name in _COMPARED]
    rows += [(name, a, b) for name, a, b in more if a != b]
    return ", ".join(f"{name} {a} and {b}" for name, a, b in rows)
