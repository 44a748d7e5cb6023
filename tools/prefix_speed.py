"""Measure `PrefixRouter`: microseconds per request of 32 blocks over 64 replicas, and bytes per entry.

    python tools/prefix_speed.py

    known      prompts that were routed before, a hundred of them over and over: an index of 3,200 entries
    full       the same while the index is full: a million entries
    new        lists: prompts that nobody has seen, into the full index, where each evicts 32 blocks

A request is `route` of a list, as `blocks_of` returns it, and `done`; the second figure is for an array in
place of the list. Times are the thread's own (a busy machine disturbs them less), the best of several rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evenbins.routing import PrefixRouter

BLOCKS, REPLICAS = 32, 64


def best_time(call: Callable[[Any], object], chains: Callable[[], Sequence[Any]], rounds: int) -> float:
    """Return the microseconds of one call, in the best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        items = chains()
        begun = time.thread_time()
        for item in items:
            call(item)
        best = min(best, (time.thread_time() - begun) / len(items))
    return 1e6 * best


def measure(policy: str, cache_blocks: int, rounds: int, rng: np.random.Generator) -> None:
    """Print the rows of one policy."""

    def chains(count: int) -> list[list[int]]:
        return list(rng.integers(2**64 - 1, size=(count, BLOCKS), dtype=np.uint64).tolist())

    router = PrefixRouter([f"replica-{i}" for i in range(REPLICAS)], policy=policy, cache_blocks=cache_blocks)

    def request(chain: Any) -> None:
        router.done(router.route(chain, 32.0))

    def new() -> list[list[int]]:
        return chains(100)

    known = chains(100)
    arrays = [np.array(chain, np.uint64) for chain in known]
    full = chains(2 * REPLICAS * cache_blocks // BLOCKS)
    for name in ("known", "full", "new"):
        if name == "full":
            for chain in full:
                request(chain)
        for chain in known:
            request(chain)
        listed = best_time(request, new if name == "new" else lambda: known, rounds)
        array = best_time(request, lambda: arrays, rounds)
        stats = router.stats()
        print(
            f"{policy:7} {name:6} {listed:5.2f} us  array {array:5.2f} us  {stats.entries:9_} entries  "
            f"{stats.nbytes / stats.entries:5.2f} bytes per entry"
        )


def main() -> None:
    """Measure the two policies that have an index."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache-blocks", type=int, default=16_384, help="blocks of each replica")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of which the best counts")
    options = parser.parse_args()
    for policy in ("prefix", "score"):
        measure(policy, options.cache_blocks, options.rounds, np.random.default_rng(1))


if __name__ == "__main__":
    main()
