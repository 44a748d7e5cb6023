"""Shards of fingerprints: keys are removed and counted in their shards, and filters added shard by shard."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from evenbins import _bulk, _core
from evenbins._bulk import Key
from evenbins._core import FilterFullError
from evenbins.filters.fingerprint import FingerprintFilter

__all__ = ["FingerprintShards"]

_T = TypeVar("_T", np.bool_, np.int64)


class FingerprintShards:
    """What a sharded filter can do if its shards are fingerprint filters; TypeError if they are not."""

    __slots__ = ()

    if TYPE_CHECKING:  # what a sharded filter has

        @property
        def _parts(self) -> tuple[Any, ...]: ...
        @property
        def _seed(self) -> int: ...
        def shard_of(self, key: Key, /) -> int:
            """Return the number of the shard that a key belongs to."""

        def copy(self) -> Self:
            """Make an independent copy."""

        def _require_writable(self) -> None: ...
        def _require_same_shards(self, other: Self, verb: str) -> None: ...
        def _merge_shards(self, other: Any) -> None: ...

    def remove(self, key: Key, /) -> None:
        """Remove one copy of a key from its shard; see `FingerprintFilter.remove`.

        Raises
        ------
        KeyError
            The key is not in the filter; nothing has changed.
        TypeError
            Keys cannot be removed from these shards.

        Examples
        --------
        >>> from evenbins import ShardedFilter
        >>> f = ShardedFilter(1000, 1e-3, shards=4, policy="fingerprint")
        >>> f.add_many(["a", "a", "b"])
        >>> f.remove("a")
        >>> f.count("a"), f.discard("b"), f.discard("b")
        (1, True, False)
        """
        self._holding(key).remove(key)

    def discard(self, key: Key, /) -> bool:
        """Remove one copy of a key if it is present, and return whether it was; see `remove`."""
        return self._holding(key).discard(key)

    def count(self, key: Key, /) -> int:
        """Return how many copies of the key's fingerprint are in its shard."""
        return self._holding(key).count(key)

    def remove_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Remove many keys, those of a shard in their order; return for each whether it was there.

        Takes what `add_many` takes; 8 bytes per key are needed for their digests.

        Examples
        --------
        >>> from evenbins import ShardedFilter
        >>> f = ShardedFilter(1000, 1e-3, shards=4, policy="fingerprint")
        >>> f.add_many(["a", "b"])
        >>> f.remove_many(["a", "a", "b"])
        array([ True, False,  True])
        """
        self._require_writable()
        return self._by_shard(FingerprintFilter.remove_many, np.bool_, keys, digests, threads)

    def count_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.int64]:
        """Count the copies of many keys; takes what `remove_many` takes."""
        return self._by_shard(FingerprintFilter.count_many, np.int64, keys, digests, threads)

    def _fingerprint_shards(self) -> tuple[FingerprintFilter, ...]:
        parts: Any = self._parts
        if not isinstance(parts[0], FingerprintFilter):
            raise TypeError(
                f"shards of policy {parts[0]._policy!r} neither remove nor count keys: build the filter with "
                'policy="fingerprint"'
            )
        return parts  # type: ignore[no-any-return]

    def _holding(self, key: Key) -> FingerprintFilter:
        return self._fingerprint_shards()[self.shard_of(key)]

    def _by_shard(
        self, call: Callable[..., npt.NDArray[_T]], dtype: type[_T], keys: object, digests: bool,
        threads: int | None,
    ) -> npt.NDArray[_T]:  # fmt: skip
        """Make a call of every shard with its keys; return the answers in the order of the keys."""
        parts = self._fingerprint_shards()
        source, shape = _bulk.key_source(keys, digests=digests)
        words = _core.digest_from(source, self._seed, _bulk.checked_threads(threads))
        grouped, starts, origin = _core.split_by_shard(words, len(parts), True)
        answers = np.empty(len(words), dtype)
        for part, (first, last) in zip(parts, pairwise(starts.tolist()), strict=True):
            answers[origin[first:last]] = call(part, grouped[first:last], digests=True, threads=threads)
        return answers if shape is None else answers.reshape(shape)

    # --- two filters -------------------------------------------------------------------------------

    def __iadd__(self, other: Self) -> Self:
        """Add the copies of `other`, shard by shard; an error leaves all shards as they were."""
        if not isinstance(other, type(self)):
            return NotImplemented
        if not self._holds_copies_of_keys:
            raise TypeError("+ adds copies, which only multisets of fingerprints hold: use |")
        return self._joined(other, "add")

    def __add__(self, other: Self) -> Self:
        return self.copy().__iadd__(other) if isinstance(other, type(self)) else NotImplemented

    def _refuse_or(self) -> None:
        if self._holds_copies_of_keys:
            raise TypeError("shards that are multisets have no |: use +, which adds the copies of both")

    @property
    def _holds_copies_of_keys(self) -> bool:
        return getattr(self._parts[0], "semantics", "set") == "multiset"

    def _joined(self, other: Self, verb: str) -> Self:
        """Merge shard by shard; an error leaves all shards as they were."""
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
