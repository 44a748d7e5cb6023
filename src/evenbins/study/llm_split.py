"""What is lost if several workers route, each of which knows only the prefixes that it sent itself.

    request ── worker, at random ──▶ its own index of prefixes, the loads of all ──▶ replica

The rules are those of `evenbins.routing.PrefixRouter` (ties="first"), written once more with one index per
worker and replica; with one worker the choices are the same, which a test demands. A client that keeps its
connection keeps its worker, so this is the worst case: every request may come to another one.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from evenbins.hashing import splitmix
from evenbins.study.llm_peers import BlockCache, PeerSetting

__all__ = ["SPLIT", "SplitRouter"]

SPLIT = {f"{rule}-split-{workers}": (rule, workers) for rule in ("prefix", "score") for workers in (2, 4)}
"""Policies of a replay: a rule, and over how many workers its index is split."""


class SplitRouter:
    """Workers that share loads and know their own prefixes."""

    def __init__(self, rule: str, workers: int, setting: PeerSetting) -> None:
        replicas = range(setting.replicas)
        self._rule, self._rate, self._seed = rule, 1 + setting.epsilon, setting.seed
        self._indexes = [[BlockCache(setting.cache_blocks) for _ in replicas] for _ in range(workers)]
        self._loads, self._requests = [0.0 for _ in replicas], [0 for _ in replicas]
        self._open: list[tuple[float, int, int, float]] = []  # when it ends, its number, replica, load
        self._count, self._last = 0, 0.0

    def choose(self, seconds: float, blocks: Sequence[int], tokens: int) -> int:
        """Return the replica of a request that comes now."""
        loads = self._loads
        while self._open and self._open[0][0] <= seconds:
            _, _, replica, load = heapq.heappop(self._open)
            self._requests[replica] -= 1
            loads[replica] = loads[replica] - load if self._requests[replica] else 0.0
        index = self._indexes[splitmix(self._seed, self._count) % len(self._indexes)]
        depths = [each.depth(blocks) for each in index]
        work, count = max(tokens, 1), len(blocks)
        missing = [work * (count - min(depth, count - 1)) / count if count else work for depth in depths]
        replicas = range(len(loads))
        if self._rule == "score":
            replica = min(replicas, key=lambda each: (loads[each] + missing[each], loads[each]))
        else:
            deepest = max(depths)
            holders = [each for each in replicas if depths[each] == deepest] if deepest else replicas
            replica = min(holders, key=loads.__getitem__)
            if deepest and loads[replica] >= self._rate * (sum(loads) + work) / len(loads):
                replica = min(replicas, key=loads.__getitem__)
        index[replica].use(blocks)
        self._last = missing[replica]
        return replica

    def began(self, replica: int, prefill: float, first_token: float, answered: float) -> None:
        """Count the work of the request chosen last until its first token."""
        self._count += 1
        self._loads[replica] += self._last
        self._requests[replica] += 1
        heapq.heappush(self._open, (first_token, self._count, replica, self._last))
