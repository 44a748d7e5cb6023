"""Which replica gets a request: one that holds much of its prefix, and does not have too much to do.

    blocks ──index──▶ depth of the prefix on each node ──policy──▶ node ──▶ its load and its index grow

    policy     the node of a request
    "prefix"   the least loaded of those that hold the deepest known prefix, if it is within the bound;
               else the least loaded node of all
    "score"    the one with the least (load + own missing work): what the request itself would wait for
    "hash"     the first one within the bound, in the probe order (`HashRing.candidates`) of its first blocks

Load is work that was routed and is not done. A request's `work` is its cost for a node that holds none of it;
a node that holds d of its n blocks is charged (n - d) / n of that, at least one block's part. With
load="requests" each request counts one instead: for callers of `done` at the end of the answer.

The bound. A node takes a request if its load before it is below (1 + epsilon) * (total load + work) * share,
where share is its weight over that of all nodes that serve. So an idle node is always within the bound, and
with work 1 the bound is that of `HashRing.lease`. Policy "score" has no bound: it counts the load itself.

Ties. When replicas are idle many have the same load. "first" takes the one that was added first: its cache
overflows while others have room. "spread" begins at another node for every request. docs/prefix_routing.md
compares them on a trace. Tried on that trace, for "prefix", and dropped: to look for shallower holders within
the bound when the deepest are above it (0.275 of the blocks were found instead of 0.297).

Threads: any number. One lock is held for the time of one decision; nothing waits or does I/O, so coroutines
may call everything. The same calls in the same order with the same seed make the same choices.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from evenbins import _arguments as arguments
from evenbins._show import ReprMixin
from evenbins.hashing import splitmix
from evenbins.rings.config import Weights
from evenbins.rings.errors import NoNodesError
from evenbins.rings.ring import HashRing
from evenbins.routing.index import BlockIndex, LruIndex

__all__ = ["Choice", "PrefixRouter", "RouterStats"]

_POLICIES = ("hash", "prefix", "score")


class Choice:
    """Where a request goes; returned by `PrefixRouter.route`, for `PrefixRouter.done`.

    Attributes
    ----------
    node : the node's name
    depth : how many of the request's first blocks the node was sent before, and should still hold
    reason : "prefix": no node holds more of it; "hash": it is the first node of its probe order; "load": such
        a node had too much to do; "new": no node holds its first block
    """

    __slots__ = ("_load", "_place", "_router", "depth", "node", "reason")

    def __init__(self, router: PrefixRouter, place: _Place, depth: int, reason: str, load: float) -> None:
        self.node, self.depth, self.reason = place.name, depth, reason
        self._router, self._place, self._load = router, place, load

    def __repr__(self) -> str:
        return f"Choice(node={self.node!r}, depth={self.depth}, reason={self.reason!r})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RouterStats(ReprMixin):
    """What a router has done.

    Attributes
    ----------
    nodes, serving : nodes; those that are not drained
    reasons : requests by the reason of their choice; see `Choice`
    routed, in_flight : requests so far; those that are not done
    entries : blocks in the index, once for each node that holds them
    """

    nodes: int
    serving: int
    reasons: dict[str, int]
    routed: int
    in_flight: int
    entries: int


class _Place:
    """A node, its number in the index, and what it has to do."""

    __slots__ = ("bit", "load", "name", "number", "requests", "weight")

    def __init__(self, name: str, number: int, weight: float) -> None:
        self.name, self.number, self.weight = name, number, weight
        self.bit = 1 << number
        self.load, self.requests = 0.0, 0


class PrefixRouter:
    """Route requests to replicas by the prefixes that their caches hold, and by their loads.

    Parameters
    ----------
    nodes
        Names of nodes, each once.
    policy
        "prefix", "score" or "hash": see the module. "score" finds most; it needs `work` to be in the units of
        the nodes' loads, which is so if each request's `work` is what a node without its prefix would do.
    epsilon
        How far a node's load may exceed its share: 0 to 1000.
    cache_blocks
        Blocks that a node's cache holds. The index keeps as many per node, the most recently used.
    hash_blocks
        For policy "hash": how many first blocks make the key.
    load
        "work": the work of the blocks that a node lacks. "requests": one for each request.
    ties
        "spread": of equally good nodes one that depends on the seed and the number of requests so far.
        "first": the one that was added first; those of the constructor in the order of their names.
    weights
        Weights of nodes, as for `HashRing`: a node of weight 2 does twice the work in the same time.
    seed
        0 to 2**64 - 1.

    Raises
    ------
    TypeError, ValueError
        An argument is not what it must be.

    Examples
    --------
    >>> from evenbins.routing import blocks_of
    >>> router = PrefixRouter(["gpu0", "gpu1", "gpu2"], cache_blocks=4000)
    >>> prompt = "A question about bins. " * 20
    >>> first = router.route(blocks_of(prompt, 64), work=len(prompt))
    >>> router.done(first)                                # its first token has come
    >>> longer = prompt + "The answer, and one more question. "
    >>> again = router.route(blocks_of(longer, 64), work=len(longer))
    >>> again.node == first.node, first.reason, again.reason, again.depth
    (True, 'new', 'prefix', 7)
    """

    def __init__(
        self, nodes: Iterable[str] = (), *, policy: str = "prefix", epsilon: float = 0.25,
        cache_blocks: int = 16_384, hash_blocks: int = 2, load: str = "work", ties: str = "spread",
        weights: Weights | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self._policy = arguments.one_of("policy", policy, _POLICIES, "Leave it out for 'prefix'")
        load = arguments.one_of("load", load, ("work", "requests"), "Leave it out for 'work'")
        ties = arguments.one_of("ties", ties, ("spread", "first"), "Leave it out for 'spread'")
        cache_blocks = arguments.integer(
            "cache_blocks", cache_blocks, 1, 2**40, "Pass the blocks that fit into a replica's cache"
        )
        self._hash_blocks = arguments.integer("hash_blocks", hash_blocks, 1, 2**40, "Leave it out for 2")
        self._counts_requests, self._spreads = load == "requests", ties == "spread"
        self._ring = HashRing(nodes, epsilon=epsilon, weights=weights, seed=seed)  # checks them, too
        self._rate, self._seed = 1 + float(epsilon), self._ring.seed
        self._index: BlockIndex = LruIndex(cache_blocks)
        self._places: dict[str, _Place] = {}
        for name, weight in self._ring.weights.items():
            self._add_place(name, weight)
        self._serving = list(self._places.values())
        self._routed, self._in_flight = 0, 0
        self._reasons = dict.fromkeys(("prefix", "hash", "load", "new"), 0)
        self._lock = threading.RLock()  # a signal's handler may route, too

    # --- requests -------------------------------------------------------------------------------------------

    def route(self, blocks: Sequence[int], work: float = 1.0) -> Choice:
        """Choose the node of a request, and count its work there until `done`; O(blocks + nodes).

        Parameters
        ----------
        blocks
            Its chain of blocks, as `blocks_of` returns it: integers each of which stands for the prompt up to
            its block.
        work
            What the request costs a node that holds none of its blocks, in any unit: tokens, say. Above 0.

        Raises
        ------
        NoNodesError
            No node serves.
        TypeError, ValueError
            An argument is of the wrong type or outside its range.
        """
        chain = _checked_blocks(blocks)
        work = arguments.real("work", work, "", "Pass the tokens of the prompt", above=0, most=1e100)
        if self._counts_requests:
            work = 1.0
        with self._lock:
            if not self._serving:
                raise NoNodesError("no node serves: use add_node, or mark_up for one that is drained")
            depths = self._depths(chain)
            place, reason = self._pick(chain, work, depths)
            depth = depths[place.number]
            load = work if self._counts_requests else _missing(work, len(chain), depth)
            for block in reversed(chain):  # the first block is needed longest: it is the most recent
                self._index.note(block, place.number)
            choice = Choice(self, place, depth, reason, load)
            place.load += load
            place.requests += 1
            self._routed += 1
            self._in_flight += 1
            self._reasons[reason] += 1
            return choice

    def done(self, choice: Choice) -> None:
        """Take a request's work off its node; a second call for the same choice does nothing.

        Call it when the node has done the work: for load="work" when the first token has come, for
        load="requests" when the answer is complete; and in both cases when the request has failed.
        """
        if not isinstance(choice, Choice) or choice._router is not self:
            raise arguments.error(
                "choice", "one that this router returned", choice, "Pass what route returned"
            )
        with self._lock:
            load, choice._load = choice._load, 0.0
            if not load:
                return
            place = choice._place
            place.requests -= 1
            place.load = place.load - load if place.requests else 0.0  # no rounding errors pile up
            self._in_flight -= 1

    # --- nodes ----------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes, in the order in which they were added; those of the constructor sorted."""
        with self._lock:
            return tuple(self._places)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each node."""
        with self._lock:
            return {place.name: place.weight for place in self._places.values()}

    @property
    def states(self) -> dict[str, str]:
        """Each node is "up" or "draining"."""
        with self._lock:
            return {name: self._ring.states[name] for name in self._places}

    def add_node(self, name: str, weight: float = 1.0) -> None:
        """Add a node, with nothing in its cache."""
        with self._lock:
            self._ring.add_node(name, weight)
            self._add_place(name, float(weight))
            self._update_serving()

    def remove_node(self, name: str) -> None:
        """Remove a node and what the index has of it. `done` may still be called for its requests."""
        with self._lock:
            self._ring.remove_node(name)
            self._index.forget(self._places.pop(name).number)
            self._update_serving()

    def drain(self, name: str) -> None:
        """Let a node take nothing new; `mark_up` ends it. Its entries in the index stay."""
        with self._lock:
            self._ring.drain(name)
            self._update_serving()

    def mark_up(self, name: str) -> None:
        """Let a drained node serve again."""
        with self._lock:
            self._ring.mark_up(name)
            self._update_serving()

    def set_weight(self, name: str, weight: float) -> None:
        """Change a node's weight."""
        with self._lock:
            self._ring.set_weight(name, weight)
            self._places[name].weight = float(weight)

    # --- what it knows --------------------------------------------------------------------------------------

    def loads(self) -> dict[str, float]:
        """Return the load of each node: work that was routed to it and is not done."""
        with self._lock:
            return {place.name: place.load for place in self._places.values()}

    def stats(self) -> RouterStats:
        """Return what has been routed, and why."""
        with self._lock:
            return RouterStats(
                nodes=len(self._places), serving=len(self._serving), routed=self._routed,
                in_flight=self._in_flight, entries=len(self._index),
                reasons=dict(self._reasons),
            )  # fmt: skip

    # --- decisions ------------------------------------------------------------------------------------------

    def _depths(self, chain: Sequence[int]) -> dict[int, int]:
        """Return how many first blocks each serving node holds, by its number."""
        depths = dict.fromkeys((place.number for place in self._serving), 0)
        holders = sum(place.bit for place in self._serving)
        for depth, block in enumerate(chain):
            left = holders & self._index.holders(block)
            for number in _bits(holders & ~left):
                depths[number] = depth
            holders = left
            if not holders:
                break
        for number in _bits(holders):
            depths[number] = len(chain)
        return depths

    def _pick(self, chain: Sequence[int], work: float, depths: dict[int, int]) -> tuple[_Place, str]:
        places = self._in_turn()
        if self._policy == "hash" and chain:
            return self._pick_by_hash(chain, work, places)
        deepest = max(depths.values())
        if self._policy == "score":
            count = len(chain)
            place = min(
                places,
                key=lambda place: (
                    (place.load + _missing(work, count, depths[place.number])) / place.weight,
                    place.load / place.weight,
                ),
            )
            return place, _reason(depths[place.number], deepest)
        if deepest:
            place = _least_loaded(place for place in places if depths[place.number] == deepest)
            if place.load < self._bound(work, place):
                return place, "prefix"
        return _least_loaded(places), "load" if deepest else "new"

    def _pick_by_hash(self, chain: Sequence[int], work: float, places: list[_Place]) -> tuple[_Place, str]:
        reason = "hash"
        for name in self._ring.candidates(chain[: self._hash_blocks][-1]):
            place = self._places[name]
            if place.load < self._bound(work, place):
                return place, reason
            reason = "load"
        return _least_loaded(places), reason

    def _bound(self, work: float, place: _Place) -> float:
        loads = sum(each.load for each in self._serving)
        return self._rate * (loads + work) * place.weight / sum(each.weight for each in self._serving)

    def _in_turn(self) -> list[_Place]:
        """Return the nodes that serve; of equals the first one is taken."""
        if not self._spreads:
            return self._serving
        start = splitmix(self._seed, self._routed) % len(self._serving)
        return self._serving[start:] + self._serving[:start]

    def _add_place(self, name: str, weight: float) -> None:
        used = {place.number for place in self._places.values()}
        number = next(number for number in range(len(used) + 1) if number not in used)
        self._places[name] = _Place(name, number, weight)

    def _update_serving(self) -> None:
        states = self._ring.states
        self._serving = [place for place in self._places.values() if states[place.name] == "up"]


def _checked_blocks(blocks: object) -> tuple[int, ...]:
    rule, remedy = "a list of integers", "Pass what evenbins.routing.blocks_of returns"
    if isinstance(blocks, str | bytes | bytearray | memoryview) or not isinstance(blocks, Iterable):
        raise arguments.type_error("blocks", rule, blocks, remedy)
    try:
        return tuple(map(operator.index, blocks))
    except TypeError:
        raise arguments.type_error("blocks", rule, blocks, remedy) from None


def _missing(work: float, count: int, depth: int) -> float:
    """Return the work of the blocks that a node lacks; the last one is never for nothing."""
    return work * (count - min(depth, count - 1)) / count if count else work


def _least_loaded(places: Iterable[_Place]) -> _Place:
    return min(places, key=lambda place: place.load / place.weight)


def _reason(depth: int, deepest: int) -> str:
    return "new" if not deepest else "prefix" if depth == deepest else "load"


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
