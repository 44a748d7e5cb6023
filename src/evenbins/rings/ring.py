"""Which server owns a key: consistent hashing whose servers never exceed their limit.

    key ──digest──▶ draw 0 ──▶ slot ──▶ node ── full, down or drained? ──▶ draw 1 ──▶ another node

    policy         a key that finds its node full goes to           source (chen)
    "jump"         another node drawn for this key alone            RJ-CH, section 3; the default
    "clockwise"    the next node of the circle                      CH-BL, section 2.3
    "rehash"       another draw, then clockwise from there          Appendix Q
                   the same with `rehash="bin"`: h(i)               section 2.5
    "plain"        it stays: there is no limit                      consistent hashing

With "clockwise" a full node passes everything to its neighbour, who is full the sooner: the cascade that the
paper is about. With "jump" it spreads over all nodes that have room.

Three ways to use a ring:

    without state     node, nodes, candidates           the probe order alone; nothing is counted
    with state        assign, locate, release           an exact map of keys to nodes; the limit holds
    in flight         with ring.lease(key) as node      counts uses under way; the limit holds at admission

The bound. No placement lifts a node above ceil((1 + epsilon) * n * w / W), the new key counted, W over the
nodes that serve; w and W are exact, the decimals that were passed. When keys leave or nodes join the limit
falls; nobody is evicted then; a node above it takes nothing until it is below, `stats().over` counts such
nodes, and `rebalance` moves keys off them. A node holds at most 2**32 - 1 keys.

Layouts. "dense": slots numbered 0 … m-1 and a draw that is uniform over them, O(1); a node that joins takes
its share from all others, and nothing moves between two of those. The map of slots depends on history: a
new ring sorts its nodes, a returning name takes its old slots while they are free, so a *failure is
`mark_down`, never `remove_node`*. Rings with one `fingerprint()` route alike. "sparse" is the paper's array,
for study.

Threads: any number, readers and writers, of single and bulk calls: each change is alone with the ring.
docs/rings.md tells more; `reference.ring` is the readable twin.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core, _files, _show
from evenbins._bulk import Key
from evenbins._files import attributes_of
from evenbins._show import ReprMixin
from evenbins.rings import forwarding
from evenbins.rings.errors import NoNodesError, RingFullError
from evenbins.rings.forwarding.client import Dropped, Held, Offered
from evenbins.rings.lease import Lease
from evenbins.theory.ring_limits import LEAST_WEIGHT, MOST_WEIGHT
from evenbins.theory.ring_plan import RingPlan, plan_ring

__all__ = ["HashRing", "Lease", "Move", "NoNodesError", "RingFullError", "RingStats"]

Move = tuple[int, str, str]
"""A key's digest, the node it was on, the node it is on."""

_POLICIES = {"plain": 1, "clockwise": 2, "rehash": 3, "jump": 5}
_REHASH_BIN = 4
_LAYOUTS = {"dense": 1, "sparse": 2}
_WHOLE = 2**20
_MAX_QUANTA = 2**44
_MAX_CAP = 2**60
_MAX_NAME = 4096
_MANY_SLOTS = 64  # a node may have, on average
_SLOTS_AT_LEAST = 16  # a node has, on average, if they cannot be whole
_SAMPLES = 4096
_MANY_NODES = 2**32  # more than a ring can have
_AHEAD = 4  # candidates that a search by questions computes at once

_log = logging.getLogger("evenbins.rings")

_SIDE_BY_SIDE = ("nodes", "keys", "limit", "variance", "full", "searches", "max_load")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RingStats(ReprMixin):
    """What a ring measures on itself; each name means the same as in its plan.

    Attributes
    ----------
    nodes, serving : nodes; those neither down nor drained
    keys : assigned keys
    loads : keys of each node, by name
    limit : what a node of mean weight may hold now; None: no limit
    over : serving nodes above their limit, which has fallen since
    full : fraction of serving nodes that take nothing more
    mean, variance, max_load : of the loads of serving nodes, each divided by its weight over the mean weight
    max_mean : max_load / mean
    searches : mean nodes that one key more would look at, the one that takes it included; over 4096 random
        keys (fewer in a sparse array of millions of places); 0 if no node would take it
    placed_searches : the same over all placements since the ring was made
    searches_p99, searches_max : 99 of 100 placements looked at no more than this; the most
    steps : mean draws of a placement
    moved : keys that churn and `rebalance` moved, in all
    leases : uses under way
    slots : slots of the layout, empty ones included
    version : changes of nodes so far
    nbytes : memory
    """

    _not_shown = ("loads",)

    nodes: int
    serving: int
    keys: int
    loads: dict[str, int]
    limit: int | None
    over: int
    full: float
    mean: float
    variance: float
    max_load: float
    max_mean: float
    searches: float
    placed_searches: float
    searches_p99: int
    searches_max: int
    steps: float
    moved: int
    leases: int
    slots: int
    version: int
    nbytes: int


class HashRing(_core.Ring, _files.Persistent):
    """A ring of nodes, each of which owns keys, none too many.

    Parameters
    ----------
    nodes
        Names of nodes, each once; any order, a ring sorts them.
    policy
        "jump", "clockwise", "rehash" or "plain": see the module.
    epsilon
        A node of weight w holds at most ceil((1 + epsilon) * keys * w / W) keys; 0 to 1000. 0.25 when neither
        it nor `limit` is given.
    limit
        Instead of `epsilon`: a node of weight w holds at most ceil(limit * w) keys, however many there are.
    weights
        Weights of nodes by name, numbers from 1e-100 to 1e100 of which the largest is at most 1e30 times the
        smallest; 1 for those not named. Limits follow them exactly, shares of first probes in steps of
        2**-20 of the ring's unit (see `copies`), of which a node has at least one step and at most 2**24
        units.
    copies
        Slots for each unit of weight: virtual copies, which "plain" and "clockwise" need when sparse. (The
        unit is the greatest common measure of the weights.) With weights that will change take 16: see
        `_unit`.
    seed
        0 … 2**64-1. With a secret random seed nobody can choose keys that all meet one node.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or does not belong to the policy.

    Examples
    --------
    >>> ring = HashRing(["a:1", "b:1", "c:1"], epsilon=0.25)
    >>> ring.node("user:7"), ring.nodes("user:7", 2)
    ('a:1', ('a:1', 'b:1'))
    >>> nodes = ring.assign_many([f"user:{i}" for i in range(300)])
    >>> max(ring.loads().values()) <= 125, ring.locate("user:7") == nodes[7]
    (True, True)
    >>> moves = ring.add_node("d:1")
    >>> {new for digest, old, new in moves}
    {'d:1'}
    >>> with ring.lease("user:7") as node:
    ...     ring.lease_loads()[node]
    1
    """

    __slots__ = ("_callbacks",)
    _callbacks: list[Callable[[list[Move]], object]]

    def __init__(
        self,
        nodes: Iterable[str] = (),
        *,
        policy: str = "jump",
        epsilon: float | None = None,
        limit: int | None = None,
        weights: Mapping[str, float] | None = None,
        copies: int = 1,
        seed: int = 0,
    ) -> None:
        self._start(nodes, policy, epsilon, limit, weights, copies, seed)

    def _start(
        self,
        nodes: Iterable[str],
        policy: str,
        epsilon: float | None,
        limit: int | None,
        weights: Mapping[str, float] | None,
        copies: int,
        seed: int,
        *,
        layout: str = "dense",
        rehash: str = "object",
        array_bits: int = 20,
    ) -> None:
        """Build the ring. `evenbins.study.ring` passes the papers' variants: sparse arrays, rehashed bins."""
        names = _checked_names(nodes)
        given = _checked_weights(weights, names)
        number = _checked_policy(policy, rehash)
        if layout not in _LAYOUTS:
            raise arguments.error("layout", "'dense' or 'sparse'", layout, "Leave it out for 'dense'")
        rate, epsilon, limit = _checked_bound(policy, epsilon, limit)
        copies = arguments.integer("copies", copies, 1, 65536, "Leave it out for 1")
        array_bits = arguments.integer("array_bits", array_bits, 8, 26, "Leave it out for 20")
        if layout == "dense" and array_bits != 20:
            raise ValueError(f"array_bits belongs to layout='sparse'; got {array_bits}. Leave it out")
        unit = _unit([given.get(name, 1.0) for name in names])
        _core.Ring.__init__(
            self, number, _LAYOUTS[layout], copies, array_bits, rate, unit, epsilon or 0.0, limit or 0,
            arguments.seed(seed),
        )  # fmt: skip
        self._begin()
        wanted = [(name, given.get(name, 1.0)) for name in sorted(names)]
        first = {weight: name for name, weight in wanted}
        numbers = {weight: (self._quanta(name, weight), self._cap(weight)) for weight, name in first.items()}
        self._add_all([(name, weight, *numbers[weight]) for name, weight in wanted])

    def _begin(self) -> None:
        self._callbacks = []

    # --- without state ------------------------------------------------------------------------------------

    def nodes(self, key: Key, n: int) -> tuple[str, ...]:
        """Return n distinct nodes for a key, the first of its probe order: for replicas.

        Raises
        ------
        NoNodesError
            Fewer than n nodes serve.
        """
        n = arguments.integer("n", n, 1, None, "Pass how many nodes you want")
        found = self._candidates(key, min(n, _MANY_NODES))
        if len(found) < n:
            wanted = n if n <= _MANY_NODES else "more than 2**32"
            raise NoNodesError(
                f"{wanted} nodes were asked for, {len(found)} serve: ask for fewer, or use add_node or "
                "mark_up"
            )
        return found

    def candidates(self, key: Key) -> tuple[str, ...]:
        """Return all nodes that serve, each once, in the order in which this key probes them."""
        return self._candidates(key, _MANY_NODES)

    def node_many(
        self, keys: object, *, digests: bool = False, indices: bool = False
    ) -> npt.NDArray[np.object_] | npt.NDArray[np.int32]:
        """Return the nodes of many keys, without state: an array of names, in the shape of a NumPy array of
        keys.

        Parameters
        ----------
        keys
            An array, an Arrow column or any iterable of keys.
        digests
            The keys are digests, as `evenbins.digest_many` gives them with this ring's seed.
        indices
            Return int32 positions in `names` instead, which is faster. They are those of one moment: of the
            call for an array, of its last piece for an iterable; -1 stands for a node that has left by then.

        Raises
        ------
        NoNodesError
            No node serves.
        """
        return self._answers(self._node_from, keys, digests=digests, indices=indices)

    # --- with state ---------------------------------------------------------------------------------------

    def assign_many(
        self, keys: object, *, digests: bool = False, indices: bool = False
    ) -> npt.NDArray[np.object_] | npt.NDArray[np.int32]:
        """Assign many keys, in order, as `assign` does; arguments and answers as for `node_many`.

        Raises
        ------
        RingFullError
            A key found no room. Those before it are assigned; `error.assigned` counts them.
        """
        try:
            return self._answers(self._assign_from, keys, digests=digests, indices=indices)
        finally:
            self._report_lazy_moves()

    def locate(self, key: Key, *, holds: Callable[[str], Held] | None = None) -> str | None:
        """Return the node of an assigned key; None if it is not assigned.

        Parameters
        ----------
        key
            The key.
        holds
            Without the ring's own map: asks a node, by name, whether it holds the key. It answers "hit",
            "miss" or "further" (see `evenbins.rings.forwarding`); nodes are asked in probe order.

        Examples
        --------
        >>> ring = HashRing(["a", "b"])
        >>> ring.locate("key") is None, ring.assign("key") == ring.locate("key")
        (True, True)
        >>> other = ring.candidates("key")[1]              # the first says "further", the second has it
        >>> ring.locate("key", holds=lambda node: "hit" if node == other else "further") == other
        True
        """
        if holds is None:
            return self._locate(key)
        return forwarding.locate(self._probes(key), holds)

    def locate_many(
        self, keys: object, *, digests: bool = False, indices: bool = False
    ) -> npt.NDArray[np.object_] | npt.NDArray[np.int32]:
        """Return the nodes of many assigned keys; None (position -1) for those that are not."""
        return self._answers(self._locate_from, keys, digests=digests, indices=indices)

    def release_many(self, keys: object, *, digests: bool = False) -> npt.NDArray[np.bool_]:
        """Release many keys; return for each whether it was assigned."""
        source, shape = _bulk.key_source(keys, digests=digests)
        found = self._release_from(source)
        return found if shape is None else found.reshape(shape)

    def clear(self) -> None:
        """Release all keys and the memory that they took; nodes and leases stay."""
        self._release_all()

    def keys_of(self, name: str) -> npt.NDArray[np.uint64]:
        """Return the digests of the keys that a node has."""
        return self._members(self._known(name))

    # --- for clients without the map ------------------------------------------------------------------------

    def place(
        self,
        key: Key,
        *,
        offer: Callable[[str], Offered],
        drop: Callable[[str], object] | None = None,
    ) -> str:
        """Offer a key to nodes in probe order until one stores it; the ring's own map is left alone.

        `offer` is called with a node's name and answers "stored" or "full"; a node that says "full" keeps a
        forwarding mark for the key (`rings.forwarding`). If nobody stores it, `drop` takes the marks back.

        Raises
        ------
        RingFullError
            Every node said "full".
        """
        return forwarding.place(self._probes(key), offer, drop=drop)

    def forget(
        self,
        key: Key,
        *,
        drop: Callable[[str], Dropped],
        holds: Callable[[str], Held] | None = None,
    ) -> str | None:
        """Notify nodes in probe order that a key is deleted: its holder drops it, others their marks.

        With `holds` nodes are asked first, so that a key that is not there takes nobody's mark away: of use
        where marks are fingerprints.
        """
        return forwarding.forget(self._probes(key), drop, holds=holds)

    def _probes(self, key: Key) -> Iterator[str]:
        """Yield the candidates, few at first: most searches end at once."""
        first = self._candidates(key, _AHEAD)
        yield from first
        if len(first) == _AHEAD:
            yield from self._candidates(key, _MANY_NODES)[_AHEAD:]

    # --- in flight ----------------------------------------------------------------------------------------

    def lease(self, key: Key, *, avoid: Iterable[str] = ()) -> Lease:
        """Count one use of a key's node while it lasts: `with ring.lease(key) as node`, or `async with`.

        The limit is of leases under way, checked at admission: ceil((1 + epsilon) * leases * w / W), the new
        one counted, or ceil(limit * w). Equal keys may be leased many times, each counts one. Leases and
        assigned keys are counted apart.

        Parameters
        ----------
        key
            The key.
        avoid
            Nodes to pass over, because they have just failed, say.
        """
        if isinstance(avoid, str):
            raise TypeError(f"avoid must be several names, not one str; pass [{avoid!r}]")
        return Lease(self, key, tuple(_checked_name(name) for name in avoid))

    def lease_loads(self) -> dict[str, int]:
        """Return the leases under way of each node."""
        return {row[0]: row[8] for row in self._rows()}

    # --- churn --------------------------------------------------------------------------------------------

    def add_node(self, name: str, weight: float = 1.0, *, move: str = "now") -> list[Move]:
        """Add a node; return the moves, all of them to it.

        Parameters
        ----------
        name
            Its name. One that the ring had before takes its old slots, if they are still free.
        weight
            From 1e-100 to 1e100; at most 2**24 times the ring's unit and 1e30 times any other weight.
        move
            "now": assigned keys that meet the new node before their own move to it, as far as it has room.
            "lazy": each moves when it is next assigned; callbacks of `on_move` hear of it.
        """
        name = _checked_name(name)
        weight = _checked_weight("weight", weight)
        if move not in ("now", "lazy"):
            raise arguments.error("move", "'now' or 'lazy'", move, "Leave it out to move keys at once")
        if self._has(name):
            raise ValueError(f"the ring has a node {name!r} already: choose another name, or use set_weight")
        return self._notify(
            self._add(name, weight, self._quanta(name, weight), self._cap(weight), move == "lazy")
        )

    def remove_node(self, name: str) -> list[Move]:
        """Remove a node for good; its keys are placed anew. For a failure use `mark_down`.

        Raises
        ------
        RingFullError, NoNodesError
            The others have no room for its keys, or none serves. Nothing is changed.
        """
        return self._notify(self._remove(self._known(name)))

    def drain(self, name: str) -> None:
        """Let a node take nothing new; its keys stay. `mark_up` ends it."""
        self._drain(self._known(name))

    def mark_down(self, name: str) -> list[Move]:
        """Skip a node that failed: its keys are placed elsewhere, as far as there is room, and remember it.

        It keeps its slots. New keys that would have been its own are placed elsewhere, and stay there.
        """
        return self._notify(self._mark_down(self._known(name)))

    def mark_up(self, name: str) -> list[Move]:
        """Let a node serve again; its keys that are still assigned return, as far as it has room."""
        return self._notify(self._mark_up(self._known(name)))

    def set_weight(self, name: str, weight: float) -> list[Move]:
        """Change a node's weight: keys move to it or away from it, never between two others."""
        name = self._known(name)
        weight = _checked_weight("weight", weight)
        return self._notify(self._set_weight(name, weight, self._quanta(name, weight), self._cap(weight)))

    def rebalance(self, max_moves: int | None = None) -> list[Move]:
        """Move keys off nodes that are above their limit, first those that overflowed to them."""
        most = 2**63
        if max_moves is not None:
            most = arguments.integer("max_moves", max_moves, 0, 2**63, "Leave it out for as many as needed")
        return self._notify(self._rebalance(most))

    def compact(self) -> list[Move]:
        """Drop empty slots, which cost draws after many nodes have left; return the moves.

        Nodes in high slots take the numbers of empty ones, so keys move: about as many as those nodes have.
        Names that left are forgotten: should they return, they get new slots.
        """
        return self._notify(self._compact())

    def on_move(self, callback: Callable[[list[Move]], object]) -> Callable[[], None]:
        """Call `callback(moves)` after every change that moved keys; return a function that ends it.

        It runs in the thread that made the change, after the change. An exception that it raises is logged
        (logger "evenbins.rings"); the change stands, and the other callbacks are called.
        """
        if not callable(callback):
            raise TypeError(f"callback must be callable, not {type(callback).__name__}")
        self._callbacks.append(callback)

        def end() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return end

    def _notify(self, moves: list[Move]) -> list[Move]:
        if moves:
            for callback in tuple(self._callbacks):
                try:
                    callback(moves)
                except Exception:
                    _log.exception("a callback of on_move failed: %r", callback)
        return moves

    def _report_lazy_moves(self) -> None:
        self._notify(self._take_lazy_moves())

    # --- the ring as a whole --------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes, in the order in which they came; a new ring's are sorted."""
        return self._names()

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each node."""
        return {row[0]: row[1] for row in self._rows()}

    @property
    def states(self) -> dict[str, str]:
        """Each node is "up", "down" or "draining"."""
        return {row[0]: "down" if row[4] else "draining" if row[5] else "up" for row in self._rows()}

    @property
    def policy(self) -> str:
        """How keys are placed."""
        return _policy_name(self._config()[0])

    @property
    def layout(self) -> str:
        """ "dense" or "sparse"."""
        return next(name for name, number in _LAYOUTS.items() if number == self._config()[1])

    @property
    def copies(self) -> int:
        """Slots of a node of unit weight."""
        return self._config()[2]

    @property
    def epsilon(self) -> float | None:
        """What a node may have above its share; None if limits are absolute, or there is none."""
        config = self._config()
        return config[6] if config[4] else None

    @property
    def limit(self) -> int | None:
        """The absolute limit of a node of weight 1; None with `epsilon`, and for "plain"."""
        return self._config()[7] or None

    @property
    def seed(self) -> int:
        """The seed of the digests."""
        return self._config()[8]

    @property
    def version(self) -> int:
        """A number that grows with every change of nodes."""
        return self._version

    def loads(self) -> dict[str, int]:
        """Return the number of keys assigned to each node."""
        return {row[0]: row[7] for row in self._rows()}

    def limits(self) -> dict[str, int | None]:
        """Return what each node may hold now, one key more not counted; 0 if it does not serve, None: no
        limit."""
        return {row[0]: _limit(row[9]) for row in self._rows()}

    def fingerprint(self, *, assigned: bool = False) -> str:
        """Return a text of 16 hexadecimal digits; two rings that have the same one route every key alike.

        It covers policy, layout, seed, the slots and shares of the nodes and which of them serve. Rings that
        route alike can still differ in it: one whose node is down and one that never had that node, say.
        With `assigned` it covers the assigned keys and their nodes too. (Texts of two rings that differ are
        equal with probability 2**-64.)

        Examples
        --------
        >>> a, b = HashRing(["x", "y"]), HashRing(["y", "x"])
        >>> a.fingerprint() == b.fingerprint()
        True
        >>> _ = a.mark_down("x")
        >>> a.fingerprint() == b.fingerprint()
        False
        """
        return f"{self._fingerprint(bool(assigned)):016x}"

    @property
    def plan(self) -> RingPlan:
        """What the theory predicts for the nodes that serve and the keys that they have now.

        Without such a node there is nothing to predict: its numbers are 0 or None.
        """
        rows = [row for row in self._rows() if not (row[4] or row[5])]
        limit = None if self.limit is None else max((row[3] for row in rows), default=self.limit)
        keys = sum(row[7] for row in rows)
        if not rows:
            return RingPlan(
                nodes=0, keys=keys, policy=self.policy, layout=self.layout, copies=self.copies,
                epsilon=self.epsilon, limits="none", limit=None, mean=0.0, variance=None, full=None,
                searches=None, searches_bound=None, first_full=None, max_load=None,
            )  # fmt: skip
        if limit is not None:  # a limit that has fallen may be below the loads
            keys = min(keys, limit * len(rows))
        return plan_ring(
            [row[1] for row in rows],
            keys,
            policy=self.policy,
            layout=self.layout,
            copies=self.copies,
            epsilon=self.epsilon,
            limit=limit,
        )

    def stats(self) -> RingStats:
        """Measure this very ring.

        Examples
        --------
        >>> ring = HashRing([f"node{i:03}" for i in range(200)], epsilon=0.1)
        >>> _ = ring.assign_many(range(20_000), indices=True)
        >>> stats, plan = ring.stats(), ring.plan
        >>> stats.limit, plan.limit, stats.over
        (110, 110, 0)
        >>> abs(stats.full - plan.full) < 0.1, abs(stats.searches - plan.searches) < 0.1
        (True, True)
        """
        rows = self._rows()
        serving = [row for row in rows if not (row[4] or row[5])]
        weights = np.array([row[1] for row in serving], np.float64)
        loads = np.array([row[7] for row in serving], np.float64)
        shares = weights / weights.mean() if serving else weights
        even = loads / shares if serving else np.zeros(1)
        limits = [_limit(row[9]) for row in serving]
        bounded = [(row[7], limit) for row, limit in zip(serving, limits, strict=True) if limit is not None]
        moved, placements, searches, draws, longest, *histogram = self._counters()
        below = np.searchsorted(np.cumsum(histogram), 0.99 * placements) if placements else 0
        mean = float(even.mean())
        return RingStats(
            nodes=len(rows),
            serving=len(serving),
            keys=len(self),
            loads={row[0]: row[7] for row in rows},
            limit=self._mean_limit(len(serving)),
            over=sum(load > limit for load, limit in bounded),
            full=sum(load >= limit for load, limit in bounded) / len(serving) if serving else 0.0,
            mean=mean,
            variance=float(even.var()),
            max_load=float(even.max()),
            max_mean=float(even.max()) / mean if mean else 0.0,
            searches=self._expected_searches(_SAMPLES) if serving else 0.0,
            placed_searches=searches / placements if placements else 0.0,
            searches_p99=int(below) if below < len(histogram) - 1 else longest,
            searches_max=longest,
            steps=draws / placements if placements else 0.0,
            moved=moved,
            leases=self._leases,
            slots=self._slots,
            version=self._version,
            nbytes=self.nbytes,
        )

    def _mean_limit(self, serving: int) -> int | None:
        rate, limit = self._config()[4], self.limit
        if not rate:
            return limit
        return -(-rate * len(self) // (10**9 * serving)) if serving else 0

    def _quanta(self, name: str, weight: float) -> int:
        unit = self._config()[5]
        quanta = max(1, round(_exactly(weight) / _exactly(unit) * _WHOLE))
        if quanta > _MAX_QUANTA:
            raise ValueError(
                f"the weight of {name!r} must be at most 2**24 times the ring's unit, {unit!r}: "
                f"{unit * _MAX_QUANTA / _WHOLE:g}; got {weight!r}. Make a new ring, whose unit follows its "
                "weights"
            )
        return quanta

    def _cap(self, weight: float) -> int:
        limit = self._config()[7]
        if not limit:
            return 0
        cap = max(1, math.ceil(limit * _exactly(weight)))
        if cap > _MAX_CAP:
            raise ValueError(
                f"limit times weight must be at most 2**60; got {limit} times {weight!r}. Pass a smaller "
                "limit, or smaller weights"
            )
        return cap

    def _known(self, name: object) -> str:
        if not isinstance(name, str):
            raise TypeError(f"a node's name must be str, not {type(name).__name__}")
        if not (_is_unicode(name) and self._has(name)):
            raise KeyError(f"the ring has no node {name!r}; it has {_some(self._names())}")
        return name

    def _answers(
        self,
        find: Callable[[_core.KeySource, bool], Any],
        keys: object,
        *,
        digests: bool,
        indices: bool,
    ) -> npt.NDArray[np.object_] | npt.NDArray[np.int32]:
        source, shape = _bulk.key_source(keys, digests=digests)
        if indices:
            positions: npt.NDArray[np.int32] = find(source, True)
            return positions if shape is None else positions.reshape(shape)
        # the answers of an array first: if there is no memory for them nothing has been done
        answers = None if shape is None else np.empty(math.prod(shape), object)
        found, names = find(source, False)
        answers = np.asarray(names.take(found, out=answers, mode="wrap"))  # -1: the last, None
        return answers if shape is None else answers.reshape(shape)

    # --- copies and files -----------------------------------------------------------------------------------

    def copy(self) -> Self:
        """Make an independent copy: nodes, slots and keys; no leases and no callbacks."""
        twin = type(self).__new__(type(self))
        _core.Ring.__init__(twin, self)
        twin._begin()
        attributes_of(twin).update(attributes_of(self))
        return twin

    def to_bytes(self) -> bytes:
        """Return the ring as bytes, those that `save` writes: nodes, slots and keys, no leases."""
        return self._to_bytes()

    @classmethod
    def _from_data(cls, data: Any, *, mapped: bool, verify: bool) -> Self:
        ring = cls.__new__(cls)  # read whole and checked, mapped or not: it is no larger than its keys
        _core.Ring.__init__(ring, data)
        ring._begin()
        return ring

    # --- for people -----------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        broken = self._invariant()
        assert not broken, broken

    def __repr__(self) -> str:
        rows: list[tuple[str, object]] = [
            ("policy", self.policy), ("nodes", len(self._names())), ("keys", len(self)),
        ]  # fmt: skip
        if self.layout != "dense":
            rows.append(("layout", self.layout))
        for name in ("epsilon", "limit"):
            if (value := getattr(self, name)) is not None:
                rows.append((name, value))
        if self.copies != 1:
            rows.append(("copies", self.copies))
        if self.seed:
            rows.append(("seed", "set"))  # a seed may be a secret
        return _show.line(type(self).__name__, rows)

    def _repr_html_(self) -> str:
        plan, stats = self.plan, self.stats()
        rows = [(name, getattr(plan, name), getattr(stats, name)) for name in _SIDE_BY_SIDE]
        return _show.html_comparison(type(self).__name__, ("plan", "stats()"), rows)


_core.bind_ring(HashRing)


def _policy_name(number: int) -> str:
    return "rehash" if number == _REHASH_BIN else next(n for n, each in _POLICIES.items() if each == number)


def _checked_policy(policy: object, rehash: object) -> int:
    if policy not in _POLICIES:
        rule = "one of " + ", ".join(repr(each) for each in _POLICIES)
        raise arguments.error("policy", rule, policy, "Leave it out for 'jump'")
    if rehash not in ("object", "bin"):
        raise arguments.error("rehash", "'object' or 'bin'", rehash, "Leave it out for 'object'")
    if rehash == "bin" and policy != "rehash":
        raise ValueError(f"rehash='bin' belongs to policy='rehash'; the policy is {policy!r}. Leave it out")
    return _REHASH_BIN if rehash == "bin" else _POLICIES[str(policy)]


def _checked_bound(policy: str, epsilon: object, limit: object) -> tuple[int, float | None, int | None]:
    """Return rate (0: none), epsilon and limit."""
    if policy == "plain":
        if epsilon is not None or limit is not None:
            raise ValueError("a plain ring has no limit: leave out epsilon and limit, or take policy='jump'")
        return 0, None, None
    if epsilon is not None and limit is not None:
        raise ValueError(
            f"epsilon and limit exclude each other; got {arguments.shown(epsilon)} and "
            f"{arguments.shown(limit)}. Pass one"
        )
    if limit is not None:
        return 0, None, arguments.integer("limit", limit, 1, 2**40, "Pass the keys that a node may hold")
    rule, way_out = "a number from 0 to 1000", "Pass for example 0.25"
    number = arguments.real("epsilon", 0.25 if epsilon is None else epsilon, rule, way_out)
    if not 0 <= number <= 1000:
        raise arguments.error("epsilon", rule, epsilon, way_out)
    return round((1 + _exactly(number)) * 10**9), number, None


def _is_unicode(name: str) -> bool:
    """Return whether a name can be one of a node: it holds no lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a node's name must be str, not {type(name).__name__}: pass str(name)")
    if not _is_unicode(name):
        raise ValueError(f"a node's name must be valid Unicode; got {name!r}")
    size = len(name.encode())
    if not 0 < size <= _MAX_NAME:
        raise ValueError(f"a node's name must have 1 to {_MAX_NAME} bytes; got {size}")
    return name


def _checked_names(nodes: object) -> list[str]:
    if isinstance(nodes, str | bytes) or not isinstance(nodes, Iterable):
        raise TypeError(f"nodes must be several names, not one {type(nodes).__name__}; put it into a list")
    names = [_checked_name(name) for name in nodes]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise arguments.unmet(
                "nodes", f" must be distinct; got {name!r} twice. Give it a weight of 2 instead"
            )
        seen.add(name)
    return names


def _checked_weight(what: str, weight: object) -> float:
    rule = f"a positive number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
    way_out = "Pass for example 2.5; use drain for a node that takes nothing"
    number = arguments.real(what, weight, rule, way_out)
    if not (LEAST_WEIGHT <= number <= MOST_WEIGHT):
        raise arguments.error(what, rule, weight, way_out)
    return number


def _checked_weights(weights: object, names: list[str]) -> dict[str, float]:
    if weights is None:
        return {}
    if not isinstance(weights, Mapping):
        raise TypeError(f"weights must be a mapping of names to numbers, not {type(weights).__name__}")
    known = set(names)
    for name in weights:
        if name not in known:
            raise ValueError(f"weights names {name!r}, which is no node; nodes are {_some(names)}")
    return {name: _checked_weight(f"weights[{name!r}]", weight) for name, weight in weights.items()}


def _unit(weights: list[float]) -> float:
    """Choose the weight that one slot stands for: the greatest of which all weights are multiples.

    Then all slots are whole. If that asks for many slots: a sixteenth of the mean, and the last slot of a
    node refuses some draws. A slot like this that is new takes draws from others and refuses them, so that
    keys move between two old nodes when its node joins: for one of mean weight fewer than a sixteenth of
    those that move to it.
    """
    if not weights:
        return 1.0
    counts = Counter(weights)
    distinct = {_exactly(weight): count for weight, count in counts.items()}
    denominator = math.lcm(*(each.denominator for each in distinct))
    common = Fraction(math.gcd(*(int(each * denominator) for each in distinct)), denominator)
    mean = sum((each * count for each, count in distinct.items()), Fraction()) / len(weights)
    return float(common if mean <= _MANY_SLOTS * common else mean / _SLOTS_AT_LEAST)


def _exactly(number: float) -> Fraction:
    """Return the decimal number that was written: 0.1 is a tenth."""
    return Fraction(repr(float(number)))


def _limit(limit: int) -> int | None:
    return None if limit == 2**64 - 1 else limit


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(repr(each) for each in names[:5]) + (" …" if len(names) > 5 else "") or "none"
