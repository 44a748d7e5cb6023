"""The slots of a ring and the walks of keys over them: the part of the twin `ring` that knows no load.

    dense     m slots 0 .. m-1, owned or empty. A node takes, in this order: empty slots that remember its
              name, ascending; the longest empty (emptied by one call: ascending); slot m, and m grows
    sparse    2**array_bits places. Copy j of a node stands on the first free place of the sequence
              splitmix(splitmix(xxh3_64(name), j), t), t = 0, 1, ..; m is the number of occupied places

A walk (m slots or occupied places) draws, or goes round a circle from its first draw:

    drawn     draws until the budget is spent, then all slots once, `stride` apart: the tail, without coins
    circular  the first accepted draw; the circle from there, coins accepting; the circle again, without
              coins; the first slot. The circle is ascending, "rehash-bin" shuffles it

The circular policies are "clockwise" and "rehash-bin", and "plain" on the sparse array. Every node that
serves is visited at least once, so a key finds room wherever there is any.

Invariants: f(w, m + 1) is f(w, m) or m (`dense_slot`), so a node that leaves changes only the draws that met
it, and one that joins with whole slots only the draws that meet it; a node's share of accepted draws is its
share of the weight. Both hold up to the end of the budget: a walk reaches its tail with probability
(1 - a)**(2 m + 64), `a` the chance that a draw meets a slot and is accepted.

A *new* slot of fraction F takes draws from old ones and refuses 1 - F of them, and those fall on other old
nodes (dense: 1 / (m + 1) of the draws are taken; "next" on the sparse array: an arc). It is one slot of a
node, so more copies make it rarer: at most 1 / (copies * weight) of what the join moves anyhow. An empty
slot that is used again takes nothing from others, nor does the exact sparse draw. Tried: to send a refused
draw to f(w, slot) disturbs nobody, but favours low slots (1/4 and 3/4 for the weights 1/2 and 1, for 1/3
and 2/3).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from evenbins.rings.errors import NoNodesError
from reference.keys import checked_seed, mulhi, splitmix
from reference.xxh3 import xxh3_64

__all__ = ["POLICIES", "WHOLE", "Node", "Slots", "counted_slot", "dense_slot"]

WHOLE: Final = 2**20  # the fraction of a whole slot; the quanta of unit weight
POLICIES: Final = ("plain", "clockwise", "rehash", "rehash-bin", "jump")  # numbered from 1
LAYOUTS: Final = ("dense", "sparse")  # numbered from 1
TAIL: Final = 0x7A3D5C19E2B84F61  # makes a key's tail independent of its draws
MOST_DRAWS: Final = 2**27  # in a sparse array, before the tail
SHUFFLE: Final = 0x51ED270B9F3A6C85  # the same for the circle of "rehash-bin"


def dense_slot(word: int, m: int) -> int:
    """Return the slot of ``word`` among ``m``: uniform, and dense_slot(w, m + 1) is dense_slot(w, m) or m.

    Examples
    --------
    >>> [dense_slot(12345678901234567890, m) for m in (1, 2, 3, 5, 9, 17)]
    [0, 0, 2, 2, 2, 2]
    """
    return counted_slot(word, m)[0]


def counted_slot(word: int, m: int) -> tuple[int, int]:
    """Return the slot, and how many hashes were computed for it.

    Slots from 2**(b-1) to 2**b - 1 are level b. With all levels full, the low bits of the word choose the
    level and its product with the level's own odd number the slot in it. If the highest level e is not
    full, a draw that misses its slots is made again, until one hits or falls below: then the lower bits of
    the *first* word decide.
    """
    if m == 1:
        return 0, 0
    e = (m - 1).bit_length()
    half, h, hashes = 1 << (e - 1), word, 0  # half < m <= 2 * half
    for _ in range(64):
        if h & (2 * half - 1) < half:
            break
        hashes += 1
        slot = _in_level(h, e)
        if slot < m:
            return slot, hashes
        hashes += 1
        h = splitmix(h, 63)
    y = word & (half - 1)
    return (y, hashes) if y < 2 else (_in_level(word, y.bit_length()), hashes + 1)


def _in_level(word: int, b: int) -> int:
    first = 1 << (b - 1)
    return first + ((word * (splitmix(0, b) | 1) % 2**64 >> 38) & (first - 1))


@dataclass(eq=False)
class Node:
    """One node: its weight, its slots in the order it took them, its keys in the order they came."""

    name: str
    number: int
    quanta: int
    weight: Fraction
    cap: int | None = None
    lazy: bool = False
    down: bool = False
    draining: bool = False
    slots: list[int] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    away: list[int] = field(default_factory=list)
    leases: int = 0
    lease_load: Fraction = Fraction(0)

    @property
    def serves(self) -> bool:
        """Whether the node takes keys at all."""
        return not (self.down or self.draining)


class Slots:
    """The slots of nodes, without keys: what `Ring` stands on."""

    def __init__(self, policy: str, layout: str, *, copies: int, seed: int, array_bits: int) -> None:
        if policy not in POLICIES or layout not in LAYOUTS:
            raise ValueError(
                f"policy must be one of {POLICIES} and layout of {LAYOUTS}; got {policy, layout}"
            )
        if copies < 1 or not 8 <= array_bits <= 26:
            raise ValueError(f"copies must be >= 1 and array_bits 8 .. 26; got {copies, array_bits}")
        self.policy, self.layout, self.copies = policy, layout, copies
        self.seed, self.array_bits = checked_seed(seed), array_bits
        self.dense = layout == "dense"
        self.circular = policy in ("clockwise", "rehash-bin") or (policy == "plain" and not self.dense)
        self.nodes_by_name: dict[str, Node] = {}  # in the order of their numbers
        self.owners: dict[int, Node] = {}  # occupied slot or place
        self.fractions: dict[int, int] = {}  # of the same
        self.size = 0  # dense: slots, empty ones included
        self.free: list[int] = []  # dense: empty slots, the longest free first
        self.remembered: dict[int, str] = {}  # dense: the last owner of an empty slot
        self._settle()

    # ── slots ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def slots(self) -> list[str | None]:
        """Dense: the owner of each slot."""
        return [node.name if (node := self.owners.get(slot)) else None for slot in range(self.size)]

    @property
    def places(self) -> dict[int, str]:
        """Sparse: the owner of each occupied place, ascending."""
        return {place: self.owners[place].name for place in self.occupied}

    def _check_places(self, node: Node, quanta: int) -> None:
        more = -(-self.copies * quanta // WHOLE) - len(node.slots)
        if not self.dense and len(self.owners) + more > 2**self.array_bits:
            raise ValueError(
                f"node {node.name!r} needs {more} places; the array of 2**{self.array_bits} is full"
            )

    def _fit(self, node: Node, quanta: int) -> None:
        """Give the node the slots of this weight; 0 takes all."""
        count = -(-self.copies * quanta // WHOLE)
        freed = sorted(node.slots[count:])
        for slot in freed:
            del self.owners[slot], self.fractions[slot]
            if self.dense:
                self.remembered[slot] = node.name
                self.free.append(slot)
        del node.slots[count:]
        while len(node.slots) < count:
            slot = self._free_slot(node.name) if self.dense else self._free_place(node.name, len(node.slots))
            self.owners[slot] = node
            node.slots.append(slot)
        for i, slot in enumerate(node.slots):
            self.fractions[slot] = min(WHOLE, self.copies * quanta - i * WHOLE)
        node.quanta = quanta
        self._settle()

    def _free_slot(self, name: str) -> int:
        own = [slot for slot in self.free if self.remembered[slot] == name]
        if self.free:
            slot = min(own) if own else self.free[0]
            self.free.remove(slot)
            del self.remembered[slot]
            return slot
        self.size += 1
        return self.size - 1

    def _free_place(self, name: str, copy: int) -> int:
        word = splitmix(xxh3_64(name.encode(), self.seed), copy)
        t = 0
        while (place := splitmix(word, t) >> (64 - self.array_bits)) in self.owners:
            t += 1
        return place

    def _renumber(self) -> None:
        """Dense: give the occupied slots the lowest numbers; no slot is empty then."""
        holes = [slot for slot in range(len(self.owners)) if slot not in self.owners]
        for old, new in zip([slot for slot in self.occupied if slot >= len(self.owners)], holes, strict=True):
            node = self.owners[new] = self.owners.pop(old)
            self.fractions[new] = self.fractions.pop(old)
            node.slots[node.slots.index(old)] = new
        self.size, self.free, self.remembered = len(self.owners), [], {}
        self._settle()

    def _settle(self) -> None:
        """Compute anew what follows from slots and flags."""
        self.occupied = sorted(self.owners)
        self.circle = self.occupied
        if self.policy == "rehash-bin":
            self.circle = sorted(self.owners, key=lambda slot: (splitmix(self.seed ^ SHUFFLE, slot), slot))
        serving = (node.weight for node in self.nodes_by_name.values() if node.serves)
        self.weight = sum(serving, Fraction(0))

    # ── walks ─────────────────────────────────────────────────────────────────────────────────────────────

    def walk(self, digest: int) -> Iterator[Node]:
        """Visit nodes that serve, with repetitions, until each of them has been visited."""
        if not self.weight:
            return
        slots = self._circle_walk(digest) if self.circular else self._drawn_walk(digest)
        yield from (node for slot in slots if (node := self.owners[slot]).serves)

    def _draws(self, digest: int) -> Iterator[int]:
        """Occupied slots that accept, draw by draw; finitely many draws."""
        m = self.size if self.dense else len(self.occupied)
        exact = not self.dense and self.policy == "jump"
        budget = min((2 * m + 64) * -(-(2**self.array_bits) // m), MOST_DRAWS) if exact else 2 * m + 64
        for c in range(budget):
            word = splitmix(digest, c)
            if self.dense:
                slot = dense_slot(word, m)
            else:
                slot = word >> (64 - self.array_bits)
                if not exact:  # the next occupied place, cyclic
                    slot = self.occupied[bisect_left(self.occupied, slot) % m]
            if slot in self.owners and self._accepts(slot, word, 62):
                yield slot

    def _accepts(self, slot: int, word: int, coin: int) -> bool:
        fraction = self.fractions[slot]
        return fraction == WHOLE or splitmix(word, coin) >> 44 < fraction

    def _drawn_walk(self, digest: int) -> Iterator[int]:
        yield from self._draws(digest)
        m = self.size if self.dense else len(self.occupied)
        start = mulhi(splitmix(digest ^ TAIL, 0), m)
        stride = 1 if m == 1 else 1 + mulhi(splitmix(digest ^ TAIL, 1), m - 1)
        while math.gcd(stride, m) != 1:
            stride = stride + 1 if stride + 1 < m else 1
        for i in range(m):
            index = (start + i * stride) % m
            slot = index if self.dense else self.occupied[index]
            if slot in self.owners:
                yield slot

    def _circle_walk(self, digest: int) -> Iterator[int]:
        first = next(self._draws(digest), self.occupied[0])
        at = self.circle.index(first)
        others = self.circle[at + 1 :] + self.circle[:at]
        yield first
        yield from (slot for slot in others if self._accepts(slot, digest, 2**32 + slot))
        yield from others
        yield first

    def candidates(self, digest: int) -> Iterator[str]:
        """Distinct nodes of the walk, in order: lazily, for most callers need few."""
        seen = set()
        for node in self.walk(digest):
            if node.name not in seen:
                seen.add(node.name)
                yield node.name

    def nodes(self, digest: int, n: int) -> list[str]:
        """Return the first n candidates (fewer, if fewer serve)."""
        return [name for _, name in zip(range(n), self.candidates(digest), strict=False)]

    def node(self, digest: int) -> str:
        """Return the first candidate."""
        for node in self.walk(digest):
            return node.name
        raise NoNodesError("no node serves; add one, or mark one up")
