"""Keys out of a filter in shards, and how often they are in: what fingerprint shards add to it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from evenbins import _bulk, _core
from evenbins._bulk import Key
from evenbins.filters.fingerprint import FingerprintFilter

__all__ = ["ShardRemoval"]

_T = TypeVar("_T", np.bool_, np.int64)


class ShardRemoval:
    """The calls of `ShardedFilter` that need fingerprint shards."""

    __slots__ = ()
    _parts: Any

    @property
    @abstractmethod
    def _seed(self) -> int: ...

    @abstractmethod
    def shard_of(self, key: Key) -> int:
        """Return the number of a key's shard."""

    @abstractmethod
    def _require_writable(self) -> None: ...

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
        parts = self._parts
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
