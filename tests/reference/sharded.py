"""A filter in shards: which shard a key belongs to, and the order in which workers fill them.

    digest ──splitmix(·, SHARD_WORD)──▶ word ──mulhi(·, shards)──▶ shard, an ordinary filter

The word is a hash of its own, since the digest itself chooses the block inside the shard. `canonical` is
the order in which `cluster.dask` adds keys: by their words, each key once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reference import keys
from reference.bloom import ReferenceFilter
from reference.keys import mulhi, splitmix

SHARD_WORD = 0x73686172


def shard_word(digest: int) -> int:
    """Give the word that chooses the shard of a digest."""
    return splitmix(digest, SHARD_WORD)


def canonical(digests: Iterable[int]) -> list[int]:
    """Put digests into the order of their words, each once."""
    return sorted(set(digests), key=shard_word)


class ReferenceSharded:
    """Shards made by `make`, all alike."""

    def __init__(self, shards: int, make: Callable[[], ReferenceFilter]) -> None:
        self.parts = [make() for _ in range(shards)]
        self.seed = self.parts[0].seed

    def _part(self, digest: int) -> ReferenceFilter:
        return self.parts[mulhi(shard_word(digest), len(self.parts))]

    def add_digest(self, digest: int) -> None:
        """Add a key by its digest."""
        self._part(digest).add_digest(digest)

    def contains_digest(self, digest: int) -> bool:
        """Tell whether a key's digest counts as present."""
        return self._part(digest).contains_digest(digest)

    def add(self, key: object) -> None:
        """Add a key."""
        self.add_digest(keys.digest(key, self.seed))

    def __contains__(self, key: object) -> bool:
        return self.contains_digest(keys.digest(key, self.seed))

    def merge(self, other: ReferenceSharded) -> None:
        """Take in the keys of another, shard by shard."""
        for mine, theirs in zip(self.parts, other.parts, strict=True):
            mine.merge(theirs)

    def payloads(self) -> list[bytes]:
        """Give the bytes of every shard."""
        return [part.payload() for part in self.parts]
