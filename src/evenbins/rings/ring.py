"""Which server owns a key: consistent hashing whose servers never exceed their limit.

    key ──digest──▶ draw 0 ──▶ slot ──▶ node ── full, down or drained? ──▶ draw 1 ──▶ another node

    policy         a key that finds its node full goes to           source (chen)
    "jump"         another node drawn for this key alone            RJ-CH, section 3; the default
    "clockwise"    the next node of the circle                      CH-BL, section 2.3
    "rehash"       another draw, then clockwise from there          Appendix Q
                   the same with `rehash="bin"`: h(i)               section 2.5
    "plain"        it stays: there is no limit                      consistent hashing

With "clockwise" a full node passes everything to its neighbour, which fills up sooner: the cascade that the
paper is about. With "jump" it spreads over all nodes that have room.

Three ways to use a ring:

    without state     node, nodes, candidates           the probe order alone; nothing is counted
    with state        assign, locate, release           an exact map of keys to nodes; the limit holds
    in flight         with ring.lease(key) as node      counts uses under way; the limit holds at admission

The bound. No placement lifts a node above ceil((1 + epsilon) * n * w / W), the new key counted, W over the
nodes that serve; w and W are exact, the decimals that were passed. When keys leave or nodes join the limit
falls; no key is evicted then; a node above it takes nothing until it is below, `stats().over` counts such
nodes, and `rebalance` moves keys off them. A node holds at most 2**32 - 1 keys.

Layouts. "dense": slots numbered 0 … m-1 and a draw that is uniform over them, O(1); a node that joins takes
its share from all others, and nothing moves between two of those. The map of slots depends on history: a
new ring sorts its nodes, a returning name takes its old slots while they are free, so a *failure is
`mark_down`, never `remove_node`*. Rings with one `fingerprint()` route alike. "sparse" is the paper's array,
for study.

Threads: any number, readers and writers, of single and bulk calls: each change is alone with the ring.
docs/rings.md has more; `reference.ring` is the readable twin. `nodes` is the part that changes nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core, _files, _show
from evenbins._bulk import Key
from evenbins._files import attributes_of
from evenbins.rings import forwarding
from evenbins.rings.config import RingConfig, Weights, checked_name, checked_nodes, ring_config
from evenbins.rings.errors import NoNodesError, RingFullError
from evenbins.rings.forwarding.client import Dropped, Held, Offered
from evenbins.rings.lease import LEASE_UNITS, Lease
from evenbins.rings.nodes import Move, RingNodes
from evenbins.rings.plan import RingPlan, plan_of_nodes
from evenbins.rings.stats import RingStats, ring_stats

__all__ = ["HashRing", "Lease", "Move", "NoNodesError", "RingFullError", "RingStats"]

_MANY_NODES = 2**32  # more than a ring can have
_AHEAD = 4  # candidates that a search by questions computes at once

_SIDE_BY_SIDE = ("nodes", "keys", "limit", "variance", "full", "searches", "max_load")


class HashRing(RingNodes, _files.Persistent):
    """A ring of nodes, each of which owns keys, none too many.

    As a container it holds its nodes: iteration yields their names, `in`, `len` and `bool` are about them.
    `ring[key]` and `ring.get_node(key)` are `ring.node(key)`. So `"a" in ring` asks for a node, `ring["a"]`
    for the node of a key, also where the key equals a node's name. `key_count` counts the assigned keys.

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
        Weights of nodes by name, 1 for those not named; or a list or tuple with one for each node, in the
        order of `nodes`. Numbers from 1e-100 to 1e100, of which the largest is at most 1e30 times the
        smallest. Limits follow them exactly, shares of first probes in steps of
        2**-20 of the ring's unit (see `copies`), of which a node has at least one step and at most 2**24
        units.
    copies
        Slots for each unit of weight: virtual copies, which "plain" and "clockwise" need when sparse. (The
        unit is the greatest common measure of the weights.) With weights that will change take 16:
        then few keys move between two old nodes when a third one joins or changes.
    seed
        0 … 2**64-1. With a secret random seed nobody can choose keys that all meet one node.

    Raises
    ------
    ValueError, TypeError
        An argument is outside its range or of the wrong type, or does not belong to the policy.

    Examples
    --------
    >>> ring = HashRing(["a:1", "b:1", "c:1"], epsilon=0.25)
    >>> ring.node("user:7"), ring.nodes("user:7", 2)
    ('a:1', ('a:1', 'b:1'))
    >>> ring["user:7"], "b:1" in ring, len(ring), list(ring)
    ('a:1', True, 3, ['a:1', 'b:1', 'c:1'])
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

    __slots__ = ()

    def __init__(
        self, nodes: Iterable[str] = (), *, policy: str = "jump", epsilon: float | None = None,
        limit: int | None = None, weights: Weights | None = None, copies: int = 1, seed: int = 0,
    ) -> None:  # fmt: skip
        known = checked_nodes(nodes, weights)
        self._start(known, ring_config(known.values(), policy, epsilon, limit, copies, seed))

    def _start(self, weights: dict[str, float], config: RingConfig) -> None:
        """Build the ring. `evenbins.study.ring` passes the papers' variants: sparse arrays, rehashed bins."""
        _core.Ring.__init__(self, *config)
        self._callbacks = []
        nodes = sorted(weights.items())
        first = {weight: name for name, weight in nodes}
        numbers = {
            weight: (config.quanta(name, weight), config.cap(weight)) for weight, name in first.items()
        }
        self._add_all([(name, weight, *numbers[weight]) for name, weight in nodes])

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
        self, keys: object, *, digests: bool = False, indices: bool = False, threads: int | None = None
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
        threads
            At most so many threads look up; None: as many as this process has cores.

        Raises
        ------
        NoNodesError
            No node serves.
        """
        return self._answers(self._node_from, keys, threads, digests=digests, indices=indices)

    # --- with state ---------------------------------------------------------------------------------------

    def assign_many(
        self, keys: object, *, digests: bool = False, indices: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.object_] | npt.NDArray[np.int32]:
        """Assign many keys, in order, as `assign` does; arguments and answers as for `node_many`.

        Where a key goes depends on those before it: one thread decides, the others hash the keys.

        Raises
        ------
        RingFullError
            A key found no room. Those before it are assigned; `error.assigned` counts them.
        """
        try:
            return self._answers(self._assign_from, keys, threads, digests=digests, indices=indices)
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
        self, keys: object, *, digests: bool = False, indices: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.object_] | npt.NDArray[np.int32]:
        """Return the nodes of many assigned keys; None (position -1) for those that are not.

        Arguments as for `node_many`.
        """
        return self._answers(self._locate_from, keys, threads, digests=digests, indices=indices)

    def release_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Release many keys, in order; return for each whether it was assigned.

        At most `threads` threads hash the keys; None: as many as this process has cores.
        """
        source, shape = _bulk.key_source(keys, digests=digests)
        found = self._release_from(source, _bulk.checked_threads(threads))
        return found if shape is None else found.reshape(shape)

    def clear(self) -> None:
        """Release all keys and the memory that they took; nodes and leases stay."""
        self._release_all()

    def keys_of(self, name: str) -> npt.NDArray[np.uint64]:
        """Return the digests of the keys that a node has."""
        return self._members(self._existing(name))

    # --- for clients without the map ------------------------------------------------------------------------

    def place(
        self, key: Key, *, offer: Callable[[str], Offered], drop: Callable[[str], object] | None = None
    ) -> str:
        """Offer a key to nodes in probe order until one stores it; the ring's own map is left alone.

        `offer` is called with a node's name and answers "stored" or "full"; a node that says "full" keeps a
        forwarding mark for the key (`rings.forwarding`). If no node stores it, `drop` takes the marks back.

        Raises
        ------
        RingFullError
            Every node said "full".
        """
        return forwarding.place(self._probes(key), offer, drop=drop)

    def forget(
        self, key: Key, *, drop: Callable[[str], Dropped], holds: Callable[[str], Held] | None = None
    ) -> str | None:
        """Notify nodes in probe order that a key is deleted: its holder drops it, others their marks.

        With `holds` nodes are asked first, so that forgetting a key that is not stored removes no other key's
        mark: useful where marks are fingerprints.
        """
        return forwarding.forget(self._probes(key), drop, holds=holds)

    def _probes(self, key: Key) -> Iterator[str]:
        """Yield the candidates, few at first: most searches end at once."""
        first = self._candidates(key, _AHEAD)
        yield from first
        if len(first) == _AHEAD:
            yield from self._candidates(key, _MANY_NODES)[_AHEAD:]

    # --- in flight ----------------------------------------------------------------------------------------

    def lease(self, key: Key, *, weight: float | None = None, avoid: Iterable[str] = ()) -> Lease:
        """Count one use of a key's node while it lasts: `with ring.lease(key) as node`, or `async with`.

        The limit is of leases under way, checked at admission: ceil((1 + epsilon) * leases * w / W), the new
        one counted, or ceil(limit * w). Equal keys may be leased many times, each counts one. Leases and
        assigned keys are counted apart.

        With a weight the limit is of loads, the sums of the weights of leases under way (1 for one without):
        (load + weight) / share <= (1 + epsilon) * (total load + weight), where share is the node's part of
        the weight of all that serve. If no node can keep it, the one with the least load / share gets the
        lease, and `stats().forced` counts it. With `limit=` a node's load stays at most ceil(limit * w).

        Parameters
        ----------
        key
            The key.
        weight
            What the use costs, in any unit: tokens of a prompt, say. From 1e-6 to 1e9, exact to a millionth.
        avoid
            Nodes to pass over, because they have just failed, say.
        """
        if isinstance(avoid, str):
            raise TypeError(f"avoid must be several names, not one str; pass [{avoid!r}]")
        units = 0
        if weight is not None:
            weight = arguments.real("weight", weight, "", "Leave it out for 1", least=1e-6, most=1e9)
            units = round(weight * LEASE_UNITS)
        return Lease(self, key, tuple(checked_name(name) for name in avoid), units)

    def lease_loads(self) -> dict[str, int]:
        """Return the leases under way of each node."""
        return {row.name: row.leases for row in self._node_rows()}

    def lease_weights(self) -> dict[str, float]:
        """Return the sum of the weights of the leases under way of each node."""
        return {row.name: row.lease_units / LEASE_UNITS for row in self._node_rows()}

    # --- the ring as a whole --------------------------------------------------------------------------------

    @property
    def policy(self) -> str:
        """How keys are placed."""
        return self._ring_config.policy_name

    @property
    def layout(self) -> str:
        """ "dense" or "sparse"."""
        return self._ring_config.layout_name

    @property
    def copies(self) -> int:
        """Slots of a node of unit weight."""
        return self._ring_config.copies

    @property
    def epsilon(self) -> float | None:
        """What a node may have above its share; None if limits are absolute, or there is none."""
        config = self._ring_config
        return config.epsilon if config.rate else None

    @property
    def limit(self) -> int | None:
        """The absolute limit of a node of weight 1; None with `epsilon`, and for "plain"."""
        return self._ring_config.limit or None

    @property
    def seed(self) -> int:
        """The seed of the digests."""
        return self._ring_config.seed

    def loads(self) -> dict[str, int]:
        """Return the number of keys assigned to each node."""
        return {row.name: row.load for row in self._node_rows()}

    def limits(self) -> dict[str, int | None]:
        """Return what each node may hold now, one key more not counted; 0 if it does not serve, None: no
        limit."""
        return {row.name: row.limit if row.serves else 0 for row in self._node_rows()}

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
        return plan_of_nodes(self._node_rows(), self._ring_config)

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
        return ring_stats(self)

    def _answers(
        self, find: Callable[[_core.KeySource, bool, int], Any], keys: object, threads: int | None, *,
        digests: bool, indices: bool,
    ) -> npt.NDArray[np.object_] | npt.NDArray[np.int32]:  # fmt: skip
        number = _bulk.checked_threads(threads)
        source, shape = _bulk.key_source(keys, digests=digests)
        if indices:
            positions: npt.NDArray[np.int32] = find(source, True, number)
            return positions if shape is None else positions.reshape(shape)
        # the answers of an array first: if there is no memory for them nothing has been done
        answers = None if shape is None else np.empty(math.prod(shape), object)
        found, names = find(source, False, number)
        answers = np.asarray(names.take(found, out=answers, mode="wrap"))  # -1: the last, None
        return answers if shape is None else answers.reshape(shape)

    # --- copies and files -----------------------------------------------------------------------------------

    def copy(self) -> Self:
        """Make an independent copy: nodes, slots and keys; no leases and no callbacks."""
        twin = type(self).__new__(type(self))
        _core.Ring.__init__(twin, self)
        twin._callbacks = []
        attributes_of(twin).update(attributes_of(self))
        return twin

    def to_bytes(self) -> bytes:
        """Return the ring as bytes, those that `save` writes: nodes, slots and keys, no leases."""
        return self._to_bytes()

    @classmethod
    def _from_data(cls, data: Any, *, mapped: bool, verify: bool) -> Self:
        ring = cls.__new__(cls)  # read whole and checked, mapped or not: it is no larger than its keys
        _core.Ring.__init__(ring, data)
        ring._callbacks = []
        return ring

    # --- for people -----------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        broken = self._invariant()
        assert not broken, broken

    def __repr__(self) -> str:
        rows: list[tuple[str, object]] = [
            ("policy", self.policy), ("nodes", len(self)), ("keys", self.key_count),
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
