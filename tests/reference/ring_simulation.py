"""Hash rings with bounded loads, simulated: the twin of cpp/study/simulate_rings.cpp.

A ring is a dict from an index of the array (a slot of the dense layout) to a bin; a trial makes the same
draws as the fast simulator and must give the same counts. Here one walks: no pointer skips a full bin.
`literal_jump` does what the fast one leaves out: it draws indices of the array until one has a bin.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field

from reference.keys import splitmix
from reference.multilevel_simulation import Xoshiro
from reference.ring_slots import counted_slot

__all__ = ["RingTwin", "literal_jump"]


@dataclass
class RingTwin:
    """One trial; fields as of `papers.ring_simulation.simulate_ring`."""

    policy: str
    nodes: int
    keys: int
    limit: int
    seed: int
    trial: int
    copies: int = 1
    layout: str = "sparse"
    empty: int = 0
    array_bits: int = 20
    step_bits: int = 32
    bias: float = 0.0
    bias_on_node: bool = False
    churn: bool = False
    remove: bool = False
    loads: list[int] = field(default_factory=list)
    first_full: int | None = None
    all_searches: int = 0
    all_hashes: int = 0

    def run(self) -> dict[str, object]:
        """Do the trial and give its counts by the names of `SimulatedRings`."""
        self.random = Xoshiro(splitmix(self.seed, self.trial))
        if self.churn:
            self.change()
        self.draw_ring()
        self.loads = [0] * self.nodes
        placed: list[tuple[int, int]] = []
        for i in range(self.keys):
            d = self.random.word()
            rank, searches, _, hashes = self.walk(d)
            self.all_searches += searches
            self.all_hashes += hashes
            bin = self.owner[rank]
            placed.append((d, bin))
            self.loads[bin] += 1
            if self.loads[bin] == self.limit and self.first_full is None:
                self.first_full = i + 1
        mean = self.keys / self.nodes
        squares = sum(float(each) ** 2 for each in self.loads)
        out: dict[str, object] = {
            "keys": self.keys, "nodes": self.nodes, "variance": squares / self.nodes - mean * mean,
            "max_load": max(self.loads), "never_full": self.first_full is None,
            "first_full": self.keys if self.first_full is None else self.first_full,
            "all_searches": self.all_searches,
            "all_hashes": self.all_hashes if self.layout == "dense" else 0,
            "loads": [sum(min(load, self.limit) == i for load in self.loads) for i in range(self.limit + 1)],
        }  # fmt: skip
        _, out["searches"], out["steps"], _ = self.walk(self.random.word(), measured=True)
        removed = removed_searches = removed_steps = 0
        if self.remove:
            gone = self.random.below(self.nodes)
            for d, bin in placed:
                if bin == gone:
                    rank, searches, steps, _ = self.walk(d, gone, measured=True)
                    self.loads[self.owner[rank]] += 1
                    removed, removed_searches, removed_steps = (
                        removed + 1, removed_searches + searches, removed_steps + steps,
                    )  # fmt: skip
        return out | {
            "removed": removed, "removed_searches": removed_searches, "removed_steps": removed_steps,
        }  # fmt: skip

    # --- what a trial begins with

    def change(self) -> None:
        """Let keys and nodes arrive and leave (Appendix P)."""
        keys, nodes = self.keys, self.nodes
        while True:
            self.keys, self.nodes, left, possible = keys, nodes, keys, True
            while left:
                about_key = self.random.below(keys + nodes) < keys
                change = 1 if self.random.word() >> 63 else -1
                if about_key:
                    self.keys, left = self.keys + change, left - 1
                else:
                    self.nodes += change
                possible = possible and self.keys >= 0 and self.nodes >= 1
            others = self.nodes - self.remove
            crowded = self.layout == "sparse" and 2 * self.nodes * self.copies > 1 << self.array_bits
            if possible and others >= 1 and others * self.limit > self.keys and not crowded:
                return

    def draw_ring(self) -> None:
        """Give every copy a place: `at` ascending, `owner` beside it."""
        places = self.nodes * self.copies
        ring: dict[int, int] = {}
        self.slots = places + self.empty
        if self.layout == "sparse":
            for i in range(places):
                p = self.random.word() >> (64 - self.array_bits)
                while p in ring:
                    p = self.random.word() >> (64 - self.array_bits)
                ring[p] = i % self.nodes
        else:
            order = list(range(self.slots))
            if self.empty:
                self.shuffle(order)
            ring = {slot: each % self.nodes for slot, each in enumerate(order) if each < places}
        self.at = sorted(ring)
        self.owner = [ring[p] for p in self.at]
        self.order: list[int] = []
        if self.policy == "rehash-bin":
            self.order = list(range(places))
            self.shuffle(self.order)
        self.biased_at, self.biased_rank, self.jump_bias = 0, -1, 0.0
        if self.bias > 0:
            self.draw_bias(ring)

    def draw_bias(self, ring: dict[int, int]) -> None:
        """Choose the favoured index."""
        places = len(self.at)
        if self.layout == "dense" or self.bias_on_node:
            self.biased_rank = self.random.below(places)
            self.biased_at = self.at[self.biased_rank]
            size = float(self.slots if self.layout == "dense" else 1 << self.array_bits)
            self.jump_bias = self.bias / (self.bias + (1 - self.bias) * places / size)
        else:
            self.biased_at = self.random.word() >> (64 - self.array_bits)
            while self.biased_at in ring:
                self.biased_at = self.random.word() >> (64 - self.array_bits)

    def shuffle(self, order: list[int]) -> None:
        """Shuffle in place."""
        for i in range(len(order), 1, -1):
            j = self.random.below(i)
            order[i - 1], order[j] = order[j], order[i - 1]

    # --- walking

    def open(self, rank: int) -> bool:
        """Say whether the bin of a place has room."""
        return self.loads[self.owner[rank]] < self.limit

    def chosen(self, word: int, chance: float) -> bool:
        """Say whether a draw is biased."""
        return (splitmix(word, 62) >> 11) < chance * 2.0**53

    def far(self, rank: int) -> int:
        """Give a place's index in the array of 2^step_bits."""
        return ((self.at[rank] + 1) << (self.step_bits - self.array_bits)) - 1

    def walk(self, d: int, gone: int = -1, *, measured: bool = False) -> tuple[int, int, int, int]:
        """Find a key's place, one bin left out: its rank, searches, steps, hashes."""
        self.draw, self.steps, self.hashes = 0, 0, 0
        rank = self.probe(d, gone, measured)
        searches = 1
        while self.policy != "plain" and not self.open(rank):
            before = rank
            if self.policy == "clockwise":
                rank = self.after(rank, list(range(len(self.at))), gone)
                if self.layout == "dense":
                    self.steps += (self.at[rank] - self.at[before] - 1) % self.slots + 1
                else:
                    self.steps += (self.far(rank) - self.far(before)) % (1 << self.step_bits)
            elif self.policy == "rehash-bin":
                rank = self.after(rank, self.order, gone)
                self.steps += 1
            else:
                rank = self.probe(d, gone, measured)
            searches += 1
        return rank, searches, self.steps, self.hashes

    def after(self, rank: int, order: list[int], gone: int) -> int:
        """Give the next place in a cyclic order that is not of the bin `gone`."""
        turn = order.index(rank)
        while True:
            turn = (turn + 1) % len(order)
            if self.owner[order[turn]] != gone:
                return order[turn]

    def probe(self, d: int, gone: int, measured: bool) -> int:
        """Draw until there is a bin: the rank of its place."""
        while True:
            word = splitmix(d, self.draw)
            self.draw += 1
            self.hashes += 1
            if self.layout == "dense":
                self.steps += 1
                if self.bias > 0 and self.chosen(word, self.bias) and (
                    self.policy != "jump" or self.open(self.biased_rank)
                ):  # fmt: skip
                    slot = self.biased_at
                else:
                    slot, hashes = counted_slot(word, self.slots)
                    self.hashes += hashes
                rank = bisect_left(self.at, slot)
                if rank == len(self.at) or self.at[rank] != slot or self.owner[rank] == gone:
                    continue
            elif self.policy == "jump":
                if measured:
                    uniform = ((self.random.word() >> 11) + 1) * 2.0**-53
                    chance = len(self.at) / float(1 << self.step_bits)
                    self.steps += 1 + int(math.log(uniform) / math.log1p(-chance))
                rank = word * len(self.at) >> 64
                if self.jump_bias and self.open(self.biased_rank) and self.chosen(word, self.jump_bias):
                    rank = self.biased_rank
                if self.owner[rank] == gone:
                    continue
            else:
                index, start = word >> (64 - self.array_bits), word >> (64 - self.step_bits)
                if self.bias > 0 and self.chosen(word, self.bias):
                    index, start = self.biased_at, self.biased_at << (self.step_bits - self.array_bits)
                rank = bisect_left(self.at, index) % len(self.at)
                while self.owner[rank] == gone:
                    rank = (rank + 1) % len(self.at)
                self.steps += (self.far(rank) - start) % (1 << self.step_bits) + 1
            return rank


def literal_jump(
    nodes: int, keys: int, limit: int, array_bits: int, random: Xoshiro
) -> tuple[list[int], int, int]:
    """Place keys by jumps in the array itself; give the loads, and one more key's searches and steps.

    >>> loads, searches, steps = literal_jump(4, 8, 3, 6, Xoshiro(1))
    >>> sum(loads), max(loads) <= 3, steps >= searches >= 1
    (8, True, True)
    """
    ring: dict[int, int] = {}
    for bin in range(nodes):
        p = random.below(1 << array_bits)
        while p in ring:
            p = random.below(1 << array_bits)
        ring[p] = bin
    loads = [0] * nodes

    def jump() -> tuple[int, int, int]:
        searches = steps = 0
        while True:
            steps += 1
            bin = ring.get(random.below(1 << array_bits))
            if bin is not None:
                searches += 1
                if loads[bin] < limit:
                    return bin, searches, steps

    for _ in range(keys):
        loads[jump()[0]] += 1
    _, searches, steps = jump()
    return loads, searches, steps
