"""The twin of `evenbins.routing.PrefixRouter`: its index with one dict per node, its policies by loops.

It makes the same choices to the last bit, because sums and quotients are formed in the same order, as long as
no two blocks have the same fingerprint: the index (cpp/include/evenbins/block_index.hpp) keeps 19 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from evenbins import HashRing
from evenbins.hashing import splitmix

PARTS, MOST_STEPS = 32, 84


class StepCache:
    """The blocks of one node: LRU, in steps of a 32nd of the capacity."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.step_blocks = capacity, -(-capacity // PARTS)
        self.steps: dict[int, int] = {}  # of each block
        self.count = {0: 0}  # blocks of each step that has not expired, the oldest first
        self.total = 0

    def __contains__(self, block: int) -> bool:
        return self.steps.get(block, -1) >= next(iter(self.count))

    def note(self, block: int) -> None:
        """Make a block the most recently used one."""
        now = next(reversed(self.count))
        if self.count[now] >= self.step_blocks:
            if len(self.count) >= MOST_STEPS:
                self._expire()
            now += 1
            self.count[now] = 0
        if block in self:
            self.count[self.steps[block]] -= 1
            self.total -= 1
        self.steps[block] = now
        self.count[now] += 1
        self.total += 1
        while self.total > self.capacity:
            self._expire()

    def _expire(self) -> None:
        self.total -= self.count.pop(next(iter(self.count)))


class LruCache:
    """The same, exactly: the least recently used block is evicted."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.blocks: dict[int, None] = {}

    def __contains__(self, block: int) -> bool:
        return block in self.blocks

    def note(self, block: int) -> None:
        """Make a block the most recently used one."""
        self.blocks.pop(block, None)
        self.blocks[block] = None
        if len(self.blocks) > self.capacity:
            del self.blocks[next(iter(self.blocks))]

    @property
    def total(self) -> int:
        """How many blocks it holds."""
        return len(self.blocks)


class Node:
    """A node: its blocks, and what it has to do."""

    def __init__(self, weight: float, cache: StepCache | LruCache) -> None:
        self.weight, self.cache = weight, cache
        self.load, self.requests, self.serves = 0.0, 0, True


class Router:
    """A `PrefixRouter`; `route` returns (name, depth, reason) and a ticket for `done`."""

    def __init__(
        self, weights: dict[str, float], *, policy: str, cache_blocks: int, requests: bool = False,
        spread: bool = True, seed: int = 0, epsilon: float = 0.25,
        cache: type[StepCache | LruCache] = StepCache,
    ) -> None:  # fmt: skip
        self.policy, self.cache_blocks, self.requests, self.spread = policy, cache_blocks, requests, spread
        self.seed, self.rate, self.routed, self.cache = seed, 1 + epsilon, 0, cache
        self.ring = HashRing(list(weights), weights=weights, seed=seed)  # for its probe order
        self.nodes = {name: Node(weights[name], cache(cache_blocks)) for name in sorted(weights)}

    def add_node(self, name: str, weight: float) -> None:
        """Add a node without blocks."""
        self.ring.add_node(name, weight)
        self.nodes[name] = Node(weight, self.cache(self.cache_blocks))

    def remove_node(self, name: str) -> None:
        """Remove a node."""
        self.ring.remove_node(name)
        del self.nodes[name]

    def drain(self, name: str) -> None:
        """Let a node take nothing new."""
        self.ring.drain(name)
        self.nodes[name].serves = False

    def mark_up(self, name: str) -> None:
        """Let a drained node serve again."""
        self.ring.mark_up(name)
        self.nodes[name].serves = True

    def set_weight(self, name: str, weight: float) -> None:
        """Change a node's weight."""
        self.ring.set_weight(name, weight)
        self.nodes[name].weight = weight

    def route(
        self, blocks: Sequence[int], work: float, avoid: Collection[str] = ()
    ) -> tuple[tuple[str, int, str], tuple[Node, float]]:
        """Choose a node; at least one serves."""
        work = 1.0 if self.requests else work
        serving = [name for name, node in self.nodes.items() if node.serves and name not in avoid]
        depths = {name: self._depth(self.nodes[name].cache, blocks) for name in serving}
        start = splitmix(self.seed, self.routed) % len(serving) if self.spread else 0
        name, reason = self._pick(serving, serving[start:] + serving[:start], blocks, work, depths)
        node = self.nodes[name]
        load = work if self.requests else _missing(work, len(blocks), depths[name])
        for block in reversed(blocks):
            node.cache.note(block)
        node.load += load
        node.requests += 1
        self.routed += 1
        return (name, depths[name], reason), (node, load)

    def done(self, ticket: tuple[Node, float]) -> None:
        """Take a request off its node."""
        node, load = ticket
        node.requests -= 1
        node.load = max(0.0, node.load - load) if node.requests else 0.0

    @staticmethod
    def _depth(cache: StepCache | LruCache, blocks: Sequence[int]) -> int:
        return next((i for i, block in enumerate(blocks) if block not in cache), len(blocks))

    def _pick(
        self, serving: list[str], order: list[str], blocks: Sequence[int], work: float, depths: dict[str, int]
    ) -> tuple[str, str]:
        nodes, deepest = self.nodes, max(depths.values())

        def relative(name: str) -> float:
            return nodes[name].load / nodes[name].weight

        def score(name: str) -> tuple[float, float]:
            missing = _missing(work, len(blocks), depths[name])
            return (nodes[name].load + missing) / nodes[name].weight, relative(name)

        def fits(name: str) -> bool:
            loads = weights = 0.0
            for each in serving:
                loads += nodes[each].load
                weights += nodes[each].weight
            return nodes[name].load < self.rate * (loads + work) * nodes[name].weight / weights

        least = min(order, key=relative)
        if self.policy == "hash" and blocks:
            key = blocks[min(2, len(blocks)) - 1]
            probes = [name for name in self.ring.candidates(key) if name in serving]
            name = next(filter(fits, probes), least)
            return name, "hash" if name == probes[0] and fits(name) else "load"
        if self.policy == "score":
            name = min(order, key=score)
            return name, "new" if not deepest else "prefix" if depths[name] == deepest else "load"
        if deepest:
            name = min((name for name in order if depths[name] == deepest), key=relative)
            if fits(name):
                return name, "prefix"
        return least, "load" if deepest else "new"


def _missing(work: float, count: int, depth: int) -> float:
    return work * (count - min(depth, count - 1)) / count if count else work
