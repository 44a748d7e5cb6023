"""A ring of nodes whose loads are bounded: four policies (five with section 2.5's variant), two layouts.

    digest d ──draw c──▶ w_c = splitmix(d, c) ──▶ slot ──▶ its owner, if it serves: a visit
                                                  empty, coin refused, down, draining: the next draw

The *walk* of a key is the sequence of nodes it visits; a key goes to the first node of its walk that takes
one more. Source: Chen, Coleman, Shrivastava, "Revisiting consistent hashing with bounded loads" (RJ-CH is
"jump", CH-BL is "clockwise", Appendix Q is "rehash", section 2.5's h(i) is "rehash-bin"). The paper's array
of 2**array_bits places is layout "sparse"; "dense" has m numbered slots and a function f(word, m)
(`dense_slot`).

    weights   quanta q of 2**20 parts of a unit; `copies` slots to a unit: ceil(copies * q / 2**20) slots, all
              whole but the last; a slot with fraction F accepts a draw iff F = 2**20 or the draw's coin < F
    bound     n keys, the new one counted; w a node's weight, an exact fraction (its quanta, if none is
              given), W that of all nodes that serve. A node takes one more iff
              load * 10**9 * W < rate * n * w   (so load + 1 <= ceil((1 + epsilon) * n * w / W));
              without a rate, iff load < cap

Invariants (`check`): `where` and `members` tell the same; no placement lifts a node above the limit of that
moment; f(w, m + 1) is f(w, m) or m; a joining node takes keys from others and moves none between two others.

Choices where a first draft left some:
 1. A ring of caps is full when no node that serves has room. (Not: when the sum of their caps is below n.
    Keys on a draining node would count against nodes that have room.) `remove_node` asks whether the *room*
    of the other serving nodes suffices for its keys.
 2. A key gets on the list `away` of a node that goes down only if this gave it its home; one with an older
    home keeps that and is on that list already. `mark_down` of a node that is down tries its remaining keys
    again.
 3. `compact` leaves keys of nodes that do not serve where they are (as `add_node` does). The pass over the
    keys is made in both layouts and also when no slot changed its number. A node's keys are listed when its
    turn comes.
 4. `set_weight`: a key placed anew on the same node is no move, though it stands last among the members
    then. A node that does not serve changes its slots only.
 5. A node stays lazy until it is removed. Lazy moves, like all others but those of `mark_up`, leave
    homes alone.
 6. `searches` has one number for each placement: by `assign`, `remove_node`, `mark_down`, falling
    `set_weight`. Walks that only pull a key to a node, `rebalance` and leases add none.
 7. Leases of a removed node leave the total with it; to end one later does nothing.
 8. Slots freed by one call join the queue of free slots in ascending order, whatever the order in the node.
 9. A node for which the sparse array has not places enough is refused (ValueError), and nothing changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fractions import Fraction
from typing import Final, Self

from evenbins.rings.errors import NoNodesError, RingFullError
from reference.ring_slots import POLICIES, WHOLE, Node, Slots, dense_slot

__all__ = ["BILLION", "POLICIES", "WHOLE", "Move", "Node", "Ring", "dense_slot"]

BILLION: Final = 10**9  # rate is (1 + epsilon) in billionths
Move = tuple[int, str, str]  # digest, old name, new name


class Ring(Slots):
    """A ring without nodes; `Ring.of` makes one of several.

    Parameters
    ----------
    policy, layout
        Of `POLICIES` and "dense", "sparse".
    copies
        Slots of a node of unit weight.
    rate
        (1 + epsilon) * 10**9, an integer >= 10**9; None: every node has a cap. "plain" has no bound.
    seed, array_bits
        Of the names' places and the circle; the size of the sparse array.

    Examples
    --------
    >>> from reference.keys import splitmix
    >>> ring = Ring.of({"c": WHOLE, "a": WHOLE, "b": 2 * WHOLE}, "jump", "dense", rate=1_250_000_000)
    >>> ring.slots
    ['a', 'b', 'b', 'c']
    >>> for key in range(8):
    ...     _ = ring.assign(splitmix(7, key))
    >>> ring.loads()
    {'a': 2, 'b': 5, 'c': 1}
    >>> [(old, new) for digest, old, new in ring.add_node("d")]
    [('a', 'd'), ('b', 'd')]
    """

    def __init__(
        self,
        policy: str = "jump",
        layout: str = "dense",
        *,
        copies: int = 1,
        rate: int | None = None,
        seed: int = 0,
        array_bits: int = 20,
    ) -> None:
        super().__init__(policy, layout, copies=copies, seed=seed, array_bits=array_bits)
        if rate is not None and rate < BILLION:
            raise ValueError(f"rate must be an integer >= 10**9, or None; got {rate}")
        self.rate = rate
        self.created = 0
        self.where: dict[int, Node] = {}
        self.homes: dict[int, str] = {}
        self.leased = 0
        self.searches: list[int] = []
        self.moves: list[Move] = []  # all there ever were

    @classmethod
    def of(
        cls,
        nodes: dict[str, int] | Iterable[str],
        policy: str = "jump",
        layout: str = "dense",
        *,
        caps: dict[str, int] | None = None,
        weights: dict[str, Fraction] | None = None,
        copies: int = 1,
        rate: int | None = None,
        seed: int = 0,
        array_bits: int = 20,
    ) -> Self:
        """Make a ring of these names, sorted, with their quanta (names alone: unit weight).

        `weights` are exact, for the bound; when None, the quanta.
        """
        ring = cls(policy, layout, copies=copies, rate=rate, seed=seed, array_bits=array_bits)
        quanta = nodes if isinstance(nodes, dict) else dict.fromkeys(nodes, WHOLE)
        for name in sorted(quanta):
            ring.add_node(
                name,
                quanta[name],
                cap=None if caps is None else caps[name],
                weight=None if weights is None else weights[name],
            )
        return ring

    # ── the bound ─────────────────────────────────────────────────────────────────────────────────────────

    def takes(self, node: Node, n: int, load: int) -> bool:
        """Whether a node of this load takes one of n keys."""
        if self.policy == "plain":
            return True
        if self.rate is None:
            assert node.cap is not None
            return load < node.cap
        return load * BILLION * self.weight < self.rate * n * node.weight

    def limit(self, node: Node) -> int | None:
        """Return the load that the node may reach with the keys there are; None: any."""
        if self.policy == "plain" or self.rate is None:
            return None if self.policy == "plain" else node.cap
        return -int(-self.rate * len(self.where) * node.weight // (BILLION * self.weight))

    def _takes_key(self, node: Node) -> bool:
        return self.takes(node, len(self.where), len(node.members))

    def _need_room(self, wanted: int, loads: dict[str, int], *, without: Node | None = None) -> None:
        """Refuse before anything changes, if the nodes that serve (but one) have no room for so many more."""
        nodes = [node for node in self.nodes_by_name.values() if node.serves and node is not without]
        if wanted and not nodes:
            raise NoNodesError("no node serves; add one, or mark one up")
        if self.policy != "plain" and self.rate is None:
            room = sum(max(0, node.cap - loads[node.name]) for node in nodes if node.cap is not None)
            if wanted > room:
                raise RingFullError(f"{wanted} keys need room, {room} have it; add a node or raise limits")

    # ── keys ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def names(self) -> tuple[str, ...]:
        """Names in the order of their numbers."""
        return tuple(self.nodes_by_name)

    @property
    def members(self) -> dict[str, list[int]]:
        """The digests on each node, in order."""
        return {name: node.members for name, node in self.nodes_by_name.items()}

    @property
    def moved(self) -> int:
        """Moves there ever were."""
        return len(self.moves)

    def loads(self) -> dict[str, int]:
        """Return the number of keys of each node."""
        return {name: len(node.members) for name, node in self.nodes_by_name.items()}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def key_count(self) -> int:
        """The number of assigned keys."""
        return len(self.where)

    def locate(self, digest: int) -> str | None:
        """Return the node that holds the key."""
        return self.where[digest].name if digest in self.where else None

    def assign(self, digest: int) -> str:
        """Place a key, once; a key already there may move to a lazy node that its walk meets first."""
        if digest in self.where:
            if self.where[digest].serves:
                self._pull(digest, [node for node in self.nodes_by_name.values() if node.lazy])
            return self.where[digest].name
        self._need_room(1, self.loads())
        for visits, node in enumerate(self.walk(digest), 1):
            if self.takes(node, len(self.where) + 1, len(node.members)):
                self.searches.append(visits)
                self._put(digest, node)
                break
        return self.where[digest].name

    def release(self, digest: int) -> bool:
        """Forget a key."""
        if digest not in self.where:
            return False
        self._take_out(digest)
        self.homes.pop(digest, None)
        return True

    def _put(self, digest: int, node: Node) -> None:
        node.members.append(digest)
        self.where[digest] = node

    def _take_out(self, digest: int) -> Node:
        node = self.where.pop(digest)
        last = node.members.pop()
        if last != digest:
            node.members[node.members.index(digest)] = last
        return node

    def _move(self, digest: int, node: Node) -> None:
        old = self._take_out(digest)
        self._put(digest, node)
        if old is not node:
            self.moves.append((digest, old.name, node.name))

    def _pull(self, digest: int, wanted: Collection[Node]) -> None:
        """Move the key to the first wanted node with room that its walk visits before its own."""
        for node in self.walk(digest):
            if node is self.where[digest]:
                return
            if node in wanted and self._takes_key(node):
                self._move(digest, node)
                return

    def _pull_all(self, wanted: Collection[Node]) -> None:
        for node in list(self.nodes_by_name.values()):
            if node.serves:
                for digest in list(node.members):
                    self._pull(digest, wanted)

    # ── churn: what returns moves returns those it made ──────────────────────────────────────────────

    def add_node(
        self,
        name: str,
        quanta: int = WHOLE,
        cap: int | None = None,
        move: str = "now",
        *,
        weight: Fraction | None = None,
    ) -> list[Move]:
        """Add a node; keys whose walk visits it before their own node move to it while it has room."""
        if name in self.nodes_by_name or quanta < 1 or move not in ("now", "lazy"):
            raise ValueError(f"a new name, quanta >= 1, move 'now' or 'lazy'; got {name, quanta, move}")
        if cap is None and self.rate is None and self.policy != "plain":
            raise ValueError(f"a ring without a rate needs the cap of node {name!r}")
        before = len(self.moves)
        exact = Fraction(quanta) if weight is None else weight
        node = Node(name, self.created, quanta, exact, cap, lazy=move == "lazy")
        self._check_places(node, quanta)
        self.created += 1
        self.nodes_by_name[name] = node
        self._fit(node, quanta)
        if not node.lazy:
            self._pull_all([node])
        return self.moves[before:]

    def remove_node(self, name: str) -> list[Move]:
        """Remove a node; its keys are placed anew, in order."""
        node = self.nodes_by_name[name]
        self._need_room(len(node.members), self.loads(), without=node)
        before = len(self.moves)
        del self.nodes_by_name[name]
        self._fit(node, 0)
        self.leased -= node.leases
        self.homes = {digest: home for digest, home in self.homes.items() if home != name}
        for digest in list(node.members):
            self._place_anew(digest)
        return self.moves[before:]

    def drain(self, name: str) -> None:
        """Let a node take nothing more; its keys stay."""
        self.nodes_by_name[name].draining = True
        self._settle()

    def mark_down(self, name: str) -> list[Move]:
        """Skip a node; its keys go elsewhere as far as there is room, and remember their home."""
        node = self.nodes_by_name[name]
        before = len(self.moves)
        node.down = True
        self._settle()
        for digest in list(node.members):
            if self._place_anew(digest) and digest not in self.homes:
                self.homes[digest] = name
                node.away.append(digest)
        return self.moves[before:]

    def mark_up(self, name: str) -> list[Move]:
        """Let a node serve again; its keys come home while it has room, the others stay for good."""
        node = self.nodes_by_name[name]
        before = len(self.moves)
        node.down = node.draining = False
        self._settle()
        for digest in node.away:
            if self.homes.get(digest) == name:
                del self.homes[digest]
                if self._takes_key(node):
                    self._move(digest, node)
        node.away = []
        return self.moves[before:]

    def set_weight(self, name: str, quanta: int, *, weight: Fraction | None = None) -> list[Move]:
        """Change a weight: keys come as to a new node, or those go whose first visit it no longer is."""
        node = self.nodes_by_name[name]
        if quanta < 1:
            raise ValueError(f"quanta must be >= 1; got {quanta}")
        self._check_places(node, quanta)
        weight = Fraction(quanta) if weight is None else weight
        before, rises = len(self.moves), weight > node.weight
        first = [digest for digest in node.members if next(self.walk(digest), None) is node]
        node.weight = weight
        self._fit(node, quanta)
        if rises:
            self._pull_all([node])
        else:
            for digest in first:
                if next(self.walk(digest)) is not node:
                    self._place_anew(digest)
        return self.moves[before:]

    def rebalance(self, max_moves: int | None = None) -> list[Move]:
        """Move keys off nodes above their limit: first those whose first visit is another node."""
        before = len(self.moves)
        for node in self.nodes_by_name.values():
            limit = self.limit(node) if node.serves else None
            if limit is None:
                continue
            for every in (False, True):
                for digest in reversed(list(node.members)):
                    if len(node.members) <= limit or len(self.moves) - before == max_moves:
                        break
                    if every or next(self.walk(digest)) is not node:
                        self._push(digest)
        return self.moves[before:]

    def compact(self) -> list[Move]:
        """Give the occupied slots the lowest numbers, forget the empty ones; keys follow their walks."""
        before = len(self.moves)
        if self.dense:
            self._renumber()
        self._pull_all(self.nodes_by_name.values())
        return self.moves[before:]

    def _place_anew(self, digest: int) -> bool:
        """Take a key out and place it; it stays if nobody takes it."""
        old = self.where[digest]
        n = len(self.where)
        # the old node serves only when set_weight calls: then the key itself must not count against it
        for visits, node in enumerate(self.walk(digest), 1):
            if self.takes(node, n, len(node.members) - (node is old)):
                self.searches.append(visits)
                self._move(digest, node)
                return True
        return False

    def _push(self, digest: int) -> None:
        """Move a key to the first other node that takes it."""
        for node in self.walk(digest):
            if node is not self.where[digest] and self._takes_key(node):
                self._move(digest, node)
                return

    # ── leases: a second load of each node, not of keys that stay ───────────────────────────────────────────

    def lease(self, digest: int) -> Node:
        """Admit one use of a key: the first visited node whose leases are below the bound."""
        self._need_room(1, {name: node.leases for name, node in self.nodes_by_name.items()})
        node = next(node for node in self.walk(digest) if self.takes(node, self.leased + 1, node.leases))
        node.leases += 1
        node.lease_load += 1
        self.leased += 1
        return node

    def lease_weighted(self, digest: int, load: Fraction) -> tuple[str, bool]:
        """Admit a use of this load: the first visited node that keeps the bound, else the least loaded."""
        serving = [node for node in self.nodes_by_name.values() if node.serves]
        total = load + sum(node.lease_load for node in self.nodes_by_name.values())

        def keeps(node: Node) -> bool:
            after = node.lease_load + load
            if self.policy == "plain":
                return True
            if self.rate is None:
                assert node.cap is not None
                return after <= node.cap
            return after * BILLION * self.weight <= self.rate * total * node.weight

        if not serving:
            raise NoNodesError("no node serves")
        forced = not any(map(keeps, serving))
        if forced and self.rate is None:
            raise RingFullError("every node is at its limit")
        if forced:
            node = min(serving, key=lambda each: each.lease_load / each.weight)
        else:
            node = next(node for node in self.walk(digest) if keeps(node))
        node.leases += 1
        node.lease_load += load
        self.leased += 1
        return node.name, forced

    def end_lease(self, node: Node, load: Fraction = Fraction(1)) -> None:
        """End one lease of a node; nothing, if the node has been removed."""
        if self.nodes_by_name.get(node.name) is node:
            node.leases -= 1
            node.lease_load -= load
            self.leased -= 1

    def check(self) -> None:
        """Assert every invariant that can be read off the state."""
        nodes = list(self.nodes_by_name.values())
        assert self.where == {digest: node for node in nodes for digest in node.members}
        assert len(self.where) == sum(len(node.members) for node in nodes)
        assert self.owners == {slot: node for node in nodes for slot in node.slots}
        assert self.fractions.keys() == self.owners.keys()
        for node in nodes:
            assert sum(self.fractions[slot] for slot in node.slots) == self.copies * node.quanta
            if self.rate is None and self.policy != "plain":
                assert node.cap is not None
                assert max(len(node.members), node.leases) <= node.cap
        if self.dense:
            assert self.owners.keys() | set(self.free) == set(range(self.size))
            assert self.remembered.keys() == set(self.free)
            assert len(self.free) + len(self.owners) == self.size
        assert self.homes.keys() <= self.where.keys()
        for digest, home in self.homes.items():
            assert self.nodes_by_name[home].down
            assert digest in self.nodes_by_name[home].away
        assert self.leased == sum(node.leases for node in nodes)
