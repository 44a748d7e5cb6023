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

The index and the decisions are compiled: cpp/include/evenbins/block_index.hpp and prefix_router.hpp. An entry
of the index takes four bytes, replica and age included, and the index is nine tenths full when all nodes hold
`cache_blocks`: 4.8 bytes per entry. Memory is allocated when nodes are added. It is LRU in steps of a 32nd of
`cache_blocks`. A block that nobody holds is found with a chance of at most 5.7e-5 for each 64 nodes; then
one request goes to the wrong node.

Threads: any number. A decision is one step under the interpreter's lock; nothing waits or does I/O, so
coroutines may call everything. The same calls in the same order with the same seed make the same choices.
"""

from __future__ import annotations

import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _core
from evenbins._core import KeyRangeError
from evenbins._show import ReprMixin
from evenbins.rings.config import Weights
from evenbins.rings.errors import NoNodesError
from evenbins.rings.ring import HashRing

__all__ = ["Choice", "PrefixRouter", "RouterStats"]

_POLICIES = ("hash", "prefix", "score")
_NONE: tuple[str, ...] = ()


class Choice:
    """Where a request goes; returned by `PrefixRouter.route`, for `PrefixRouter.done`.

    Attributes
    ----------
    node : the node's name
    depth : how many of the request's first blocks the node was sent before, and should still hold
    reason : "prefix": no node holds more of it; "hash": it is the first node of its probe order; "load": such
        a node had too much to do; "new": no node holds its first block
    """

    __slots__ = ("_load", "_node_id", "_router", "depth", "node", "reason")

    def __init__(
        self, router: PrefixRouter, node: str, depth: int, reason: str, load: float, node_id: int
    ) -> None:
        self.node = node
        self.depth = depth
        self.reason = reason
        self._router = router
        self._load = load
        self._node_id = node_id

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Choice stands for one request of its router: it cannot be copied or pickled")

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
    nbytes : memory of the index, which has room for `cache_blocks` entries of each node
    """

    nodes: int
    serving: int
    reasons: dict[str, int]
    routed: int
    in_flight: int
    entries: int
    nbytes: int


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
        Blocks that a node's cache holds. The index keeps as many per node, the most recently used; to a
        thirty-second part of them exactly.
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
    MemoryError
        There is no memory for `cache_blocks` of each node.

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
        policy = arguments.one_of("policy", policy, _POLICIES, "Leave it out for 'prefix'")
        load = arguments.one_of("load", load, ("work", "requests"), "Leave it out for 'work'")
        ties = arguments.one_of("ties", ties, ("spread", "first"), "Leave it out for 'spread'")
        cache_blocks = arguments.integer(
            "cache_blocks", cache_blocks, 1, 2**40, "Pass the blocks that fit into a replica's cache"
        )
        hash_blocks = arguments.integer("hash_blocks", hash_blocks, 1, 2**40, "Leave it out for 2")
        self._hash_blocks = hash_blocks if policy == "hash" else 0
        self._ring = HashRing(nodes, epsilon=epsilon, weights=weights, seed=seed)  # checks them, too
        self._core = _core.Router(
            _POLICIES.index(policy), float(epsilon), cache_blocks, load == "requests", ties == "spread",
            self._ring.seed,
        )  # fmt: skip
        weights_by_name = self._ring.weights
        self._core.reserve(len(weights_by_name))
        self._places = {name: self._core.add_node(name, weight) for name, weight in weights_by_name.items()}
        self._lock = threading.RLock()  # of changes of nodes; a signal's handler may make some, too
        self._is_changing = False
        self._applied = {name: (weight, "up") for name, weight in weights_by_name.items()}  # in the core
        _routers.add(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PrefixRouter cannot be copied or pickled: make another one")

    # --- requests -------------------------------------------------------------------------------------------

    def route(
        self,
        blocks: Sequence[int] | npt.NDArray[np.integer],
        work: float = 1.0,
        *,
        avoid: Iterable[str] = _NONE,
    ) -> Choice:
        """Choose the node of a request, and count its work there until `done`; O(blocks + nodes).

        Parameters
        ----------
        blocks
            Its chain of blocks, as `blocks_of` returns it: integers of 64 bits each of which stands for the
            prompt up to its block. A list, a tuple or an array; others take longer.
        work
            What the request costs a node that holds none of its blocks, in any unit: tokens, say. Above 0.
        avoid
            Nodes that must not be chosen, because they have just failed, say. For this request they count as
            drained.

        Raises
        ------
        NoNodesError
            No node serves, apart from those to avoid.
        TypeError, ValueError
            An argument is of the wrong type or outside its range.
        """
        if avoid is not _NONE:
            avoid = _checked_names(avoid)
        try:
            if avoid or self._hash_blocks or self._is_changing:
                work = _checked_work(work)
                found = self._route_among(blocks, work, avoid)
            else:
                found = self._core.route(blocks, work)
        except TypeError as error:  # a KeyRangeError, too
            number = _checked_work(work)
            if type(work) not in (float, int):
                return self.route(blocks, number)
            raise _blocks_error(blocks, error) from None
        if found is None:
            raise NoNodesError("no node serves: use add_node, or mark_up for one that is drained")
        return Choice(self, *found)

    def _route_among(
        self, blocks: Sequence[int] | npt.NDArray[np.integer], work: float, avoid: Iterable[str]
    ) -> tuple[str, int, str, float, int] | None:
        with self._lock:
            self._settle()
            probes: list[int] = []
            if self._hash_blocks:
                blocks = _as_sequence(blocks)
                if len(blocks):
                    key = operator.index(blocks[min(self._hash_blocks, len(blocks)) - 1])
                    names = self._ring.candidates(key) if self._core.serving else ()
                    probes = [self._places[name] for name in names if name not in avoid]
            places = [self._places[name] for name in avoid if name in self._places]
            return self._core.route_among(blocks, work, places, probes)

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
            node_id, choice._node_id = choice._node_id, 0
            if node_id:
                self._core.done(node_id, choice._load)

    # --- nodes ----------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes, in the order in which they were added; those of the constructor sorted."""
        with self._lock:
            self._settle()
            return tuple(self._places)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each node."""
        return self._in_order("weights")

    @property
    def states(self) -> dict[str, str]:
        """Each node is "up" or "draining"."""
        return self._in_order("states")

    def _in_order(self, attribute: str) -> dict[str, Any]:
        """Return what the ring has of each node, in the order of `names`."""
        with self._lock:
            self._settle()
            found = getattr(self._ring, attribute)
            return {name: found[name] for name in self._places}

    def add_node(self, name: str, weight: float = 1.0) -> None:
        """Add a node, with nothing in its cache."""
        self._change(self._ring.add_node, name, weight)

    def remove_node(self, name: str) -> None:
        """Remove a node and what the index has of it. `done` may still be called for its requests."""
        self._change(self._ring.remove_node, name)

    def drain(self, name: str) -> None:
        """Let a node take nothing new; `mark_up` ends it. Its entries in the index stay."""
        self._change(self._ring.drain, name)

    def mark_up(self, name: str) -> None:
        """Let a drained node serve again."""
        self._change(self._ring.mark_up, name)

    def set_weight(self, name: str, weight: float) -> None:
        """Change a node's weight."""
        self._change(self._ring.set_weight, name, weight)

    def _change(self, change: Callable[..., object], *arguments_: object) -> None:
        with self._lock:
            self._is_changing = True
            try:
                change(*arguments_)
            finally:
                self._settle()

    def _settle(self) -> None:
        """Let the core follow the ring, after a change or one that an interrupt left half done.

        Call it with the lock held. A node is added to the core and to `_places`, or removed from both,
        without a bytecode in between: a signal handler cannot raise there.
        """
        if not self._is_changing:
            return
        weights, states = self._ring.weights, self._ring.states
        for name in [each for each in self._places if each not in weights]:
            self._applied.pop(name, None)
            next(map(self._core.remove_node, map(self._places.pop, [name])))
        for name in [each for each in weights if each not in self._places]:
            self._applied.pop(name, None)
            try:
                self._places.update(
                    zip([name], map(self._core.add_node, [name], [weights[name]]), strict=True)
                )
            except MemoryError:
                self._ring.remove_node(name)
                raise
        for name, place in self._places.items():
            weight, state = weights[name], states[name]
            if self._applied.get(name) != (weight, state):
                self._core.set_weight(place, weight)
                self._core.set_serving(place, state == "up")
                self._applied[name] = weight, state
        self._is_changing = False

    # --- what it knows --------------------------------------------------------------------------------------

    def loads(self) -> dict[str, float]:
        """Return the load of each node: work that was routed to it and is not done."""
        with self._lock:
            self._settle()
            return {name: self._core.load(place) for name, place in self._places.items()}

    def stats(self) -> RouterStats:
        """Return what has been routed, and why."""
        with self._lock:
            self._settle()
            reasons = self._core.reasons
            return RouterStats(
                nodes=len(self._places), serving=self._core.serving, routed=sum(reasons.values()),
                in_flight=self._core.in_flight, entries=self._core.entries, nbytes=self._core.nbytes,
                reasons=reasons,
            )  # fmt: skip


_routers: weakref.WeakSet[PrefixRouter] = weakref.WeakSet()


def _reset_locks() -> None:
    """Make new locks in a child process: a thread that it does not have may hold those of its parent."""
    for router in list(_routers):
        router._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_locks)

_RULE, _REMEDY = "a list of integers", "Pass what evenbins.routing.blocks_of returns"


def _checked_work(work: object) -> float:
    return arguments.real("work", work, "", "Pass the tokens of the prompt", above=0, most=1e100)


def _checked_names(avoid: object) -> frozenset[str]:
    if not isinstance(avoid, str | bytes) and isinstance(avoid, Iterable):
        names = tuple(avoid)
        if all(isinstance(name, str) for name in names):
            return frozenset(names)
    raise arguments.type_error("avoid", "several names", avoid, "Pass a list of names of nodes")


def _as_sequence(blocks: object) -> Sequence[int] | npt.NDArray[np.integer]:
    if isinstance(blocks, list | tuple | np.ndarray):
        return blocks
    if isinstance(blocks, str | bytes | bytearray | memoryview) or not isinstance(blocks, Iterable):
        raise TypeError("blocks")
    return tuple(blocks)


def _blocks_error(blocks: object, error: TypeError) -> Exception:
    if isinstance(error, KeyRangeError):
        return arguments.error("blocks", "integers from -2**63 to 2**64 - 1", blocks, _REMEDY)
    return arguments.type_error("blocks", _RULE, blocks, _REMEDY)
