"""One filter in many shards: each an ordinary filter of one plan, chosen by a hash of the digest.

    key ──hash──▶ digest ──splitmix──▶ word ──mulhi──▶ shard ──▶ an ordinary filter: its file, its machine

A filter that no file, disk or machine should hold whole, or that many should build at once. It has the
methods of the other filters. A look-up asks one shard, so reads and rates are those of a shard.

The word that chooses the shard is a second hash of the digest (cpp/include/evenbins/sharding.hpp), never
the digest's own leading bits: those choose the block inside the shard, and keys of one shard would crowd
into a small part of its blocks.

Invariants: all shards have the same integer core, seed and capacity; the same keys in the same order give
the same bytes, one by one or in bulk, whatever the threads. sharded_files.py tells
what a directory holds.

Threads: look-ups may run at any time; writers take turns in each shard, so of two bulk calls at once the
one may come first in this shard and last in that (docs/concurrency.md).

Tried and dropped: the digest's trailing bits as the shard (the lanes inside a block draw on them);
one file with an index (shards could not live on several disks, or be written by several processes).
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self, SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins import _core, _mapped_files, _show
from evenbins._bulk import Key
from evenbins._core import FilterFullError, FormatError
from evenbins._files import StrPath
from evenbins._keywords import explain_keywords
from evenbins.filters.base import BaseFilter, build
from evenbins.filters.composite import CompositeFilter, CompositePlan, CompositeStats
from evenbins.filters.fingerprint import FingerprintFilter
from evenbins.filters.set_algebra import items_by_shard
from evenbins.filters.sharded_files import (
    Manifest,
    ShardFile,
    begin_directory,
    discard,
    finish_directory,
    header_checksum,
    manifest_of,
    manifest_text,
    shard_name,
    write_shard,
)
from evenbins.filters.sharded_plan import ShardedPlan, plan_sharded, sharded_plan_of
from evenbins.filters.sharded_removal import ShardRemoval

__all__ = ["ShardedFilter"]

_MAGIC = b"EVBSHARD"
_OPEN_TRIES = 3


def _core_of(part: BaseFilter) -> tuple[Any, ...]:
    return part._policy, part._hashing, tuple(part._core)


def _identity(part: BaseFilter) -> tuple[Any, ...]:
    return type(part), *_core_of(part), part.seed, part.capacity


class ShardedFilter(_core.Shards, CompositeFilter, ShardRemoval):
    """A membership filter in shards, each an ordinary filter; saved as a directory.

    Parameters
    ----------
    capacity
        Number of keys of all shards together. Each shard is planned for its part and for the tail of
        the imbalance: with probability 1 - 1e-6 none gets more (`sharding.exceed`).
    shards, shard_bytes
        One of them: how many shards, or the most bytes of one.
    policy
        Of the shards: "blocked" (the default), "standard", "fingerprint" (keys can be removed), a policy of
        `BalancedBloomFilter`, or None for the best of those.
    semantics
        Of fingerprint shards: "multiset" (the default) or "set".
    fpr, bits_per_key, hashes, block_bits, seed
        As for the other filters; `bits_per_key` counts all shards.

    Examples
    --------
    >>> f = ShardedFilter(100_000, fpr=1e-3, shards=8)
    >>> f.add_many(range(100_000))
    >>> 99_999 in f, f.shards, f.stats().fpr < 1.1e-3
    (True, 8, True)
    """

    _own = ("_keys", "_cached")
    __slots__ = ("__dict__", *_own)
    _parts: tuple[BaseFilter, ...]  # of the core
    _bind_single_keys = staticmethod(_core.bind_add_to_shards)
    _cached: ShardedPlan | None

    @explain_keywords
    def __init__(
        self, capacity: SupportsIndex | SupportsFloat, fpr: float | None = None, *, shards: int | None = None,
        shard_bytes: int | None = None, policy: str | None = "blocked",
        bits_per_key: float | None = None, hashes: int | None = None, block_bits: int | None = None,
        semantics: str | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self._set_up(
            plan_sharded(
                capacity, shards=shards, shard_bytes=shard_bytes, policy=policy, fpr=fpr,
                bits_per_key=bits_per_key, hashes=hashes, block_bits=block_bits, semantics=semantics,
                seed=seed,
            )
        )  # fmt: skip

    @classmethod
    def from_plan(cls, plan: ShardedPlan) -> Self:
        """Build the filter of a plan, as `design.sharded_filter` and `filters.plan_sharded` give it.

        Raises
        ------
        MemoryError
            The machine has less memory than the plan asks for.
        """
        if not isinstance(plan, ShardedPlan):
            raise TypeError(f"plan must be a ShardedPlan, not {type(plan).__name__}")
        made = cls.__new__(cls)
        made._set_up(plan)
        return made

    def _set_up(self, plan: ShardedPlan) -> None:
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if plan.nbytes > most:  # the system would promise it, and kill the process later
            raise MemoryError(
                f"the plan's {plan.shards} shards take {_show.size(plan.nbytes)} and this machine has "
                f"{_show.size(most)}: build the shards elsewhere (evenbins.cluster.dask), or fewer keys"
            )
        self._assemble([build(plan.shard) for _ in range(plan.shards)], plan.keys, plan)

    def _assemble(self, parts: Iterable[BaseFilter], keys: int, plan: ShardedPlan | None = None) -> None:
        _core.Shards.__init__(self, tuple(parts))
        self._keys = keys
        self._cached = plan

    @classmethod
    def from_shards(cls, shards: Sequence[BaseFilter], keys: int) -> Self:
        """Put shards together that were filled elsewhere; shard i holds the keys of shard i, and no other.

        Raises
        ------
        ValueError
            The shards are not of one plan.
        """
        parts = list(shards)
        if not parts:
            raise ValueError("shards must be one filter at least; got none. Pass them in order")
        first = parts[0]
        for number, each in enumerate(parts):
            if _identity(each) != _identity(first):
                raise ValueError(f"shards must be of one plan; shard {number} differs from shard 0")
        made = cls.__new__(cls)
        made._assemble(parts, arguments.capacity(keys))
        return made

    # --- shards ------------------------------------------------------------------------------------

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self._parts)

    @property
    def _filters(self) -> tuple[BaseFilter, ...]:
        return self._parts

    @property
    def parts(self) -> tuple[BaseFilter, ...]:
        """The shards, in order."""
        return self._parts

    def shard_of(self, key: Key, /) -> int:
        """Return the number of the shard that a key belongs to."""
        return _core.shard_of(_core.digest(key, self._seed), len(self._parts))

    @property
    def sharding(self) -> ShardedPlan:
        """The plan of the shards: sizes, the imbalance, what it costs to add some."""
        if self._cached is None:
            self._cached = sharded_plan_of(self._keys, self.shards, self._parts[0].plan)
        return self._cached

    # --- the filter as a whole ---------------------------------------------------------------------

    @property
    def plan(self) -> CompositePlan:
        """The design of the whole, and the behaviour it predicts; `sharding` tells more."""
        return self.sharding.filter_plan()

    def stats(self) -> CompositeStats:
        """Measure this very filter: its shards together, computed from their bits."""
        found = [part.stats() for part in self._parts]
        keys = math.fsum(each.keys for each in found)

        def mean(name: str) -> float:  # an absent key asks each shard alike
            return math.fsum(getattr(each, name) for each in found) / len(found)

        def by_keys(name: str) -> float:  # a present key asks the shard it is in
            if not 0 < keys < math.inf:
                return mean(name)
            return math.fsum(getattr(each, name) * each.keys for each in found) / keys

        loads = [
            tuple(sum(counts) for counts in zip_longest(*levels, fillvalue=0))
            for levels in zip(*(each.loads for each in found), strict=True)
        ]
        return CompositeStats(
            keys=keys,
            fpr=mean("fpr"),
            reads=by_keys("reads"),
            miss_reads=mean("miss_reads"),
            list_reads=mean("list_reads"),
            overflow=by_keys("overflow"),
            spilled=by_keys("spilled"),
            fill=mean("fill"),
            loads=tuple(loads),
            nbytes=self.nbytes,
            bits_per_key=8 * self.nbytes / self._keys,
        )

    def approx_items(self) -> float:
        """Estimate the number of distinct keys added, from the set bits of all shards."""
        return math.fsum(part.approx_items() for part in self._parts)

    @property
    def capacity(self) -> int:
        """The number of keys that the whole was planned for."""
        return self._keys

    def clear(self) -> None:
        """Remove all keys."""
        self._require_writable()
        for part in self._parts:
            part.clear()

    def _copy_parts_to(self, twin: Self) -> None:
        _core.Shards.__init__(twin, tuple(part.copy() for part in self._parts))

    def __ior__(self, other: Self) -> Self:
        """Add the keys of `other`, shard by shard; an error leaves all shards as they were."""
        if not isinstance(other, ShardedFilter):
            return NotImplemented
        if self._is_multiset:
            raise TypeError("shards that are multisets have no |: use +, which adds the copies of both")
        return self._joined(other, "merge")

    def __iadd__(self, other: Self) -> Self:
        """Add the copies of `other`, shard by shard; an error leaves all shards as they were."""
        if not isinstance(other, ShardedFilter):
            return NotImplemented
        if not self._is_multiset:
            raise TypeError("+ adds copies, which only multisets of fingerprints hold: use |")
        return self._joined(other, "add")

    def __add__(self, other: Self) -> Self:
        return self.copy().__iadd__(other) if isinstance(other, ShardedFilter) else NotImplemented

    @property
    def _is_multiset(self) -> bool:
        return getattr(self._parts[0], "semantics", "set") == "multiset"

    def _joined(self, other: Self, verb: str) -> Self:
        self._require_writable()
        self._require_same_shards(other, verb)
        for part in other._parts:
            part._refuse_damaged()
        try:
            self._merge_shards(other)
        except ValueError as error:
            if not isinstance(self._parts[0], FingerprintFilter):
                raise
            raise FilterFullError(f"{error}; all shards are as they were") from None
        return self

    def _require_same_shards(self, other: Self, verb: str) -> None:
        what, mine, theirs = "", self._parts[0], other._parts[0]
        if self.shards != other.shards:
            what = f"{self.shards} shards and {other.shards}"
        elif type(mine) is not type(theirs) or _core_of(mine) != _core_of(theirs):
            what = "their plans differ"
        elif mine.seed != theirs.seed:
            what = "their seeds differ"
        if what:
            raise ValueError(f"cannot {verb}: {what}. Build both with the same arguments")

    def _items_with(self, other: Self) -> tuple[float, float, float]:
        self._require_same_shards(other, "compare")
        return items_by_shard(self._parts, other._parts)

    def _is_empty(self) -> bool:
        return all(part._is_empty() for part in self._parts)

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and isinstance(other, ShardedFilter)
            and self.shards == other.shards
            and all(a == b for a, b in zip(self._parts, other._parts, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    # --- bytes and files ---------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return the filter as bytes: the manifest, and the files of the shards in order."""
        files = [part.to_bytes() for part in self._parts]
        entries = [ShardFile(shard_name(i), len(data), header_checksum(data)) for i, data in enumerate(files)]
        text = manifest_text(self._parts[0], self._keys, "", entries)
        return b"".join([_MAGIC, struct.pack("<Q", len(text)), text, *files])

    @classmethod
    def _from_data(cls, data: Any, *, mapped: bool, verify: bool) -> Self:
        view = memoryview(data)
        if bytes(view[:8]) != _MAGIC:
            raise FormatError("these are not the bytes of a sharded filter: they do not begin with EVBSHARD")
        if len(view) < 16:
            raise FormatError("the bytes end within their header")
        (length,) = struct.unpack("<Q", view[8:16])
        if length > len(view) - 16:
            raise FormatError("the bytes end within the manifest")
        manifest = Manifest.read(bytes(view[16 : 16 + length]))
        if len(view) != 16 + length + sum(each.nbytes for each in manifest.files):
            raise FormatError("the sizes in the manifest do not sum to the number of bytes")
        parts, at = [], 16 + length
        for each in manifest.files:
            part = view[at : at + each.nbytes]
            parts.append(manifest.shard(each, part, mapped=mapped, verify=verify))
            at += each.nbytes
        return cls._from_manifest(manifest, parts)

    @classmethod
    def _from_manifest(cls, manifest: Manifest, parts: Sequence[BaseFilter]) -> Self:
        made = cls.__new__(cls)
        made._assemble(parts, manifest.keys)
        return made

    @classmethod
    def open(cls, path: StrPath, *, verify: bool = False, preload: bool = False) -> Self:
        """Map all shards of a directory read-only: ready at once, their memory shared between processes.

        Manifest and headers are checked; `verify=True` checks the payloads too, by reading all of them;
        `preload=True` reads all of them into memory.
        Each shard takes a file descriptor: `ulimit -n` must allow for them.
        """
        return cls._from_file(path, mapped=True, verify=verify, preload=preload)

    @classmethod
    def _from_file(cls, path: StrPath, *, mapped: bool, verify: bool, preload: bool = False) -> Self:
        _mapped_files.checked_preload(preload)
        folder = Path(os.fsdecode(path))
        for attempt in range(1, _OPEN_TRIES + 1):
            text = manifest_of(folder)
            try:
                manifest = Manifest.read(text)
                parts = manifest.shards_in(folder, mapped=mapped, verify=verify, preload=preload)
                return cls._from_manifest(manifest, parts)
            except FormatError as error:
                # Somebody may have saved anew while we read: then the old shards are gone, and rightly so.
                if attempt == _OPEN_TRIES or manifest_of(folder) == text:
                    raise FormatError(f"{os.fsdecode(path)}: {error}") from None
        raise AssertionError("unreachable")

    def save(self, path: StrPath) -> None:
        """Write a directory: a file for each shard, then the manifest, in one step; durably.

        A directory that holds a sharded filter is replaced: after a crash the old or the new filter is
        there. Any other directory must be empty.
        """
        target = begin_directory(path)
        try:
            entries = [write_shard(target, i, part) for i, part in enumerate(self._parts)]
            finish_directory(target, self._parts[0], self._keys, entries)
        except BaseException:
            discard(target)
            raise

    # --- for people --------------------------------------------------------------------------------

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        assert self._parts
        for part in self._parts:
            part._check()
            assert _identity(part) == _identity(self._parts[0])

    def _shown(self) -> list[tuple[str, object]]:
        plan = self.sharding
        return [
            ("capacity", plan.keys), ("shards", plan.shards), ("policy", plan.policy), ("fpr", plan.fpr),
            ("nbytes", plan.nbytes),
        ]  # fmt: skip
