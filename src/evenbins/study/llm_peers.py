"""How other routers choose a replica: their rules, as read in their sources, for `evenbins simulate llm`.

    policy        key, or what is matched      what is bounded; what happens at the bound
    "envoy"       hash of the first blocks     requests in flight; in the key's order, then the least loaded
    "haproxy"     the same                     requests in flight, strictly; the next one on the ring
    "kubeai"      the same                     requests in flight; the next one, and the first if all are full
    "sglang"      longest prefix in a tree     no single replica: all go to the fewest requests while the
                                               numbers of requests differ by more than 64 and a factor of 1.5
    "sglang-4"    the same                     as "sglang", with 4 instead of 64
    "production-stack"  longest prefix in a tree that never shrinks     nothing
    "llm-d"       longest prefix by LRU lists  nothing: 3 times the part found plus 2 times the free queue

docs/routing_comparison.md names the sources and what is simplified. In common: all replicas have the same
weight; the probe order of a key is that of a HashRing, where theirs is a walk over a ring of virtual nodes or
a shuffle; a prompt is known by its blocks, where they see characters. Requests in flight end with the answer.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from evenbins.hashing import splitmix
from evenbins.rings import HashRing

__all__ = ["RULES", "BlockCache", "Peer", "PeerSetting", "make_peer"]

_HASH_BLOCKS = 2  # of the key: all prompts of a service may begin with the same block
_TREE_CHARS = 2**26  # SGLang's limit for the tree of a worker
_TOKEN_CHARS = 4  # characters of a token, about


class BlockCache:
    """Blocks of prompts, the least recently used first; the first block of a prompt is used last."""

    def __init__(self, size: float) -> None:
        self._size = size
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def depth(self, blocks: Sequence[int]) -> int:
        """Return how many first blocks are there."""
        held = self._blocks
        return next((i for i, block in enumerate(blocks) if block not in held), len(blocks))

    def use(self, blocks: Sequence[int]) -> int:
        """Return how many first blocks were there; then all of them are, as far as they fit."""
        depth, held = self.depth(blocks), self._blocks
        for block in reversed(blocks):
            held[block] = None
            held.move_to_end(block)
        while len(held) > self._size:
            held.popitem(last=False)
        return depth


class PeerSetting(NamedTuple):
    """What a rule may depend on: as for `replay_llm`."""

    replicas: int
    cache_blocks: int
    block_tokens: int
    epsilon: float
    seed: int


class Peer(ABC):
    """A router of another project: it counts the requests at each replica, and a rule chooses.

    Attributes
    ----------
    loads : requests in flight at each replica, until the end of their answers
    queues : requests at each replica whose prefill has not begun
    """

    def __init__(self, setting: PeerSetting) -> None:
        self.loads, self.queues = [0] * setting.replicas, [0] * setting.replicas
        self._ends: list[tuple[float, int, list[int]]] = []  # when a count falls: of which replica, which one

    @abstractmethod
    def pick(self, blocks: Sequence[int], tokens: int) -> int:
        """Return the replica of a request."""

    def choose(self, seconds: float, blocks: Sequence[int], tokens: int) -> int:
        """Return the replica of a request that comes now."""
        while self._ends and self._ends[0][0] <= seconds:
            _, replica, counts = heapq.heappop(self._ends)
            counts[replica] -= 1
        return self.pick(blocks, tokens)

    def began(self, replica: int, prefill: float, first_token: float, answered: float) -> None:
        """Count a request at its replica, until its prefill begins and until its answer ends."""
        for end, counts in ((prefill, self.queues), (answered, self.loads)):
            counts[replica] += 1
            heapq.heappush(self._ends, (end, replica, counts))


class _Hashed(Peer):
    """A key's replicas in the order of a ring; `_is_open` says whether one may take one more request."""

    def __init__(self, setting: PeerSetting) -> None:
        super().__init__(setting)
        self._factor = 1 + setting.epsilon
        self._ring = HashRing([f"{number:04}" for number in range(setting.replicas)], seed=setting.seed)

    def pick(self, blocks: Sequence[int], tokens: int) -> int:
        key = blocks[:_HASH_BLOCKS][-1] if blocks else 0
        order = [int(name) for name in self._ring.candidates(key)]
        return next((replica for replica in order if self._is_open(replica)), self._if_none(order))

    @abstractmethod
    def _is_open(self, replica: int) -> bool: ...

    def _if_none(self, order: Sequence[int]) -> int:
        return order[0]

    def _slots(self) -> int:
        """Return the requests that may be in flight at all replicas together, the new one included."""
        return math.ceil((sum(self.loads) + 1) * self._factor)


class _Envoy(_Hashed):
    def _is_open(self, replica: int) -> bool:
        return self.loads[replica] <= max(math.ceil(self._slots() / len(self.loads)), 1)

    def _if_none(self, order: Sequence[int]) -> int:
        return min(order, key=self.loads.__getitem__)


class _Haproxy(_Hashed):
    def _is_open(self, replica: int) -> bool:
        slots, count = self._slots(), len(self.loads)
        own = (replica + 1) * slots // count - replica * slots // count  # the remainder is spread evenly
        return self.loads[replica] < max(own, 1)


class _Kubeai(_Hashed):
    def _is_open(self, replica: int) -> bool:
        total = sum(self.loads)
        return not total or self.loads[replica] + 1 <= self._factor * (total + 1) / len(self.loads)


class _Indexed(Peer):
    """What was sent to each replica, the last `size` blocks of it."""

    def __init__(self, setting: PeerSetting, size: float) -> None:
        super().__init__(setting)
        self.lists = [BlockCache(size) for _ in range(setting.replicas)]
        self._seed, self._count = setting.seed, 0

    def pick(self, blocks: Sequence[int], tokens: int) -> int:
        best = self._best(blocks, tokens, [each.depth(blocks) for each in self.lists])
        replica = best[splitmix(self._seed, self._count) % len(best)]
        self._count += 1
        self.lists[replica].use(blocks)
        return replica

    @abstractmethod
    def _best(self, blocks: Sequence[int], tokens: int, depths: list[int]) -> list[int]:
        """Return the replicas of which any will do; `depths` are the first blocks that each was sent."""


class _Sglang(_Indexed):
    """Requests in flight may differ by `gap` or by a factor of 1.5; beyond both only they count."""

    def __init__(self, setting: PeerSetting, gap: int = 64) -> None:
        super().__init__(setting, _TREE_CHARS / (_TOKEN_CHARS * setting.block_tokens))
        self._block_tokens, self._gap = setting.block_tokens, gap

    def _best(self, blocks: Sequence[int], tokens: int, depths: list[int]) -> list[int]:
        most, least = max(self.loads), min(self.loads)
        if most - least > self._gap and most > 1.5 * least:
            return [self.loads.index(least)]
        deepest = max(depths)
        if deepest * self._block_tokens > 0.3 * tokens:
            return [depths.index(deepest)]
        return [min(range(len(depths)), key=lambda replica: len(self.lists[replica]))]


class _ProductionStack(_Indexed):
    """Any of the replicas that have the longest prefix: of all that ever was sent to them."""

    def __init__(self, setting: PeerSetting) -> None:
        super().__init__(setting, math.inf)

    def _best(self, blocks: Sequence[int], tokens: int, depths: list[int]) -> list[int]:
        return _maxima(depths)


class _LlmD(_Indexed):
    """The highest sum of scores from 0 to 1: of the prefix (3 times) and of the queue (twice)."""

    def __init__(self, setting: PeerSetting) -> None:
        super().__init__(setting, setting.cache_blocks)

    def _best(self, blocks: Sequence[int], tokens: int, depths: list[int]) -> list[int]:
        longest, shortest = max(self.queues), min(self.queues)
        free = [(longest - queue) / ((longest - shortest) or 1) for queue in self.queues]
        found = [depth / max(len(blocks), 1) for depth in depths]
        return _maxima([3 * part + 2 * queue for part, queue in zip(found, free, strict=True)])


def _maxima(scores: Sequence[float]) -> list[int]:
    most = max(scores)
    return [replica for replica, score in enumerate(scores) if score == most]


_MAKERS: dict[str, Callable[[PeerSetting], Peer]] = {
    "envoy": _Envoy,
    "haproxy": _Haproxy,
    "kubeai": _Kubeai,
    "sglang": _Sglang,
    "sglang-4": partial(_Sglang, gap=4),
    "production-stack": _ProductionStack,
    "llm-d": _LlmD,
}
RULES = tuple(_MAKERS)


def make_peer(policy: str, setting: PeerSetting) -> Peer:
    """Make the router of a policy of RULES.

    Examples
    --------
    >>> setting = PeerSetting(replicas=2, cache_blocks=9, block_tokens=512, epsilon=0.25, seed=0)
    >>> router = make_peer("sglang", setting)
    >>> [router.choose(0.0, blocks, 512 * len(blocks)) for blocks in ([1, 2, 3], [7, 8], [1, 2, 9])]
    [0, 1, 0]
    """
    return _MAKERS[policy](setting)
