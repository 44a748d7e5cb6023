"""The API of the package uhashring, with bounds: `from evenbins.compat.uhashring import HashRing`.

    key ──md5, ketama or hash_fn──▶ a place on the circle ──▶ the next point ──▶ its node
                                                   lease: ──▶ the next node whose leases are below its limit

Names, arguments, answers and errors are those of uhashring 2.5, and so is placement: a node has vnodes *
weight points, point w at the hash of "name-w", and a key belongs to the next point. So a program that changes
its import sends every key where it went before, and rings with the same nodes agree whatever their history.
(The slots of `evenbins.HashRing` are faster, and depend on history.)

What is different: an argument that the constructor does not know is a TypeError; a call that raises changes
nothing; a node whose `vnodes` change has as many points at once; `runtime` and names with an underscore are
missing. Where two points fall together, as hashes of 32 bits may do, the node added last has it. (uhashring
2.3 also keeps the old points of a node whose weight changes, and its `regenerate` does not call `weight_fn`;
while nodes only join and leave it is the same.)

What is new: with `epsilon`, `with ring.lease(key) as node` counts uses under way, and no admission lifts a
node above ceil((1 + epsilon) * leases * points / all points), the new one counted. Threads may share a ring.
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, KeysView, Sequence
from hashlib import md5
from typing import Any, cast

from evenbins.rings.errors import NoNodesError
from evenbins.rings.lease import Lease
from evenbins.theory.ring_limits import RATE_UNIT, checked_epsilon, rate_units

__all__ = ["HashRing"]

_VNODES, _KETAMA_VNODES = 160, 40


class HashRing:
    """A circle of nodes.

    Parameters
    ----------
    nodes
        A name, a list of names, or a dict of names to weights or to dicts with any of "hostname", "instance",
        "nodename", "port", "vnodes", "weight".
    hash_fn
        Returns the place of a key, an integer; "ketama" for libketama's; left out: MD5.
    vnodes
        Points of a node of weight 1; 160, with ketama 40.
    weight_fn
        Called with the fields of a node as keywords; returns its weight.
    replicas
        With ketama: places for each of its vnodes, 1 to 4.
    epsilon
        For `lease`: how far a node may exceed its share, 0 to 1000000.

    Raises
    ------
    TypeError, ValueError
        A function cannot be called, nodes are neither list nor dict, or a node's configuration is neither
        dict nor int.

    Examples
    --------
    >>> ring = HashRing(["node1", "node2", "node3"], epsilon=0.25)
    >>> ring.get_node("coconut"), sorted(ring.distribution.items())
    ('node2', [('node1', 160), ('node2', 160), ('node3', 160)])
    >>> with ring.lease("coconut") as first, ring.lease("coconut") as second:
    ...     first, second                        # a node may have one of two leases
    ('node2', 'node1')
    """

    def __init__(
        self, nodes: str | list[str] | dict[str, Any] | None = None, *,
        hash_fn: Callable[[Any], int] | str | None = None, vnodes: int | None = None,
        weight_fn: Callable[..., int] | None = None, replicas: int = 4, epsilon: float | None = None,
    ) -> None:  # fmt: skip
        self._replicas = replicas if hash_fn == "ketama" else None
        if hash_fn and hash_fn != "ketama" and not callable(hash_fn):
            raise TypeError("hash_fn should be a callable function")
        if weight_fn and not callable(weight_fn):
            raise TypeError("weight_fn should be a callable function")
        self._hash_fn, self._weight_fn = hash_fn, weight_fn
        default = _VNODES if self._replicas is None else _KETAMA_VNODES
        self._default_vnodes = default if vnodes is None else vnodes
        self._rate = None if epsilon is None else rate_units(checked_epsilon(epsilon))
        self._lock = threading.RLock()
        self._leases: dict[int, str] = {}
        self._loads: Counter[str] = Counter()
        self._ids = itertools.count()
        self._cached: dict[str, list[int]] = {}  # the points of each node
        self._replace(self._configured([] if nodes is None else nodes))

    # --- nodes ----------------------------------------------------------------------------------------------

    def add_node(self, nodename: str, conf: Any = 1) -> None:
        """Add a node, or replace its configuration: a weight, or a dict of fields."""
        with self._lock:
            self._replace(self._conf | self._configured({nodename: conf}))

    def remove_node(self, nodename: str) -> None:
        """Remove a node; KeyError if it is not there."""
        with self._lock:
            if nodename not in self._conf:
                raise KeyError(f"node {nodename!r} not found, available nodes: {list(self._conf)}")
            self._replace({name: conf for name, conf in self._conf.items() if name != nodename})

    def regenerate(self) -> None:
        """Call `weight_fn` again for every node."""
        with self._lock:
            self._replace(self._configured(self._conf))

    __setitem__, __delitem__ = add_node, remove_node

    def _configured(self, nodes: Any) -> dict[str, dict[str, Any]]:
        """Return the whole configuration of nodes."""
        if isinstance(nodes, str):
            nodes = [nodes]
        elif not isinstance(nodes, dict | list):
            raise ValueError(f"nodes configuration should be a list or a dict, got {type(nodes)}")
        configured = {}
        for name in nodes:
            conf = {
                "hostname": name, "instance": None, "nodename": name, "port": None,
                "vnodes": self._default_vnodes, "weight": 1,
            }  # fmt: skip
            fields = nodes[name] if isinstance(nodes, dict) else {}
            if isinstance(fields, int):
                fields = {"weight": fields}
            elif not isinstance(fields, dict):
                raise ValueError(f"node configuration should be a dict or an int, got {type(fields)}")
            conf |= {field: value for field, value in fields.items() if field in conf}
            if self._weight_fn:
                conf["weight"] = self._weight_fn(**conf)
            configured[name] = conf
        return configured

    def _replace(self, conf: dict[str, dict[str, Any]]) -> None:
        """Compute the circle of a configuration, and make both the ring's."""
        owners: dict[int, str] = {}
        counts: Counter[str] = Counter()
        places_of = {name: self._places(name, conf) for name in conf}
        for name, places in places_of.items():
            owners |= dict.fromkeys(places, name)
            if places:
                counts[name] = len(places)
        self._cached = places_of
        self._conf, self._owners, self._points, self._counts = conf, owners, sorted(owners), counts

    def _places(self, name: str, conf: dict[str, dict[str, Any]]) -> list[int]:
        vnodes, weight = conf[name]["vnodes"], conf[name]["weight"]
        if self._replicas is None:
            known = self._cached.get(name, [])
            if len(known) != vnodes * weight:
                known = [self.hashi(f"{name}-{number}") for number in range(vnodes * weight)]
            return known
        vnodes = vnodes * len(conf) * weight // sum(each["weight"] for each in conf.values())
        numbers = itertools.product(range(vnodes), range(self._replicas))
        return [_ketama(f"{name}-{number}", replica) for number, replica in numbers]

    # --- keys -----------------------------------------------------------------------------------------------

    def hashi(self, key: Any, replica: int = 0) -> int:
        """Return the place of a key."""
        if self._replicas is not None:
            return _ketama(key, replica)
        if callable(self._hash_fn):
            return self._hash_fn(key)
        return int.from_bytes(md5(str(key).encode()).digest())

    get_key = hashi

    def get_node_pos(self, key: Any) -> int | None:
        """Return the index of a key's point; None if there are no points."""
        points = self._points
        return bisect(points, self.hashi(key)) % len(points) if points else None

    def get_server(self, key: Any) -> tuple[int, str] | None:
        """Return a key's point and node; None if there are no points."""
        with self._lock:
            pos = self.get_node_pos(key)
            return None if pos is None else (self._points[pos], self._owners[self._points[pos]])

    def get_node(self, key: Any) -> str | None:
        """Return the name of a key's node; None if there are no points."""
        server = self.get_server(key)
        return None if server is None else server[1]

    def get(self, key: Any) -> dict[str, Any] | None:
        """Return the configuration of a key's node; None if there are no points."""
        with self._lock:
            node = self.get_node(key)
            return None if node is None else self._conf[node]

    def get_node_hostname(self, key: Any) -> Any:
        """Return the hostname of a key's node."""
        return self._field(key, "hostname")

    def get_node_instance(self, key: Any) -> Any:
        """Return the instance of a key's node."""
        return self._field(key, "instance")

    __getitem__ = get_node_instance

    def get_node_port(self, key: Any) -> Any:
        """Return the port of a key's node."""
        return self._field(key, "port")

    def get_node_weight(self, key: Any) -> Any:
        """Return the weight of a key's node."""
        return self._field(key, "weight")

    def _field(self, key: Any, field: str) -> Any:
        conf = self.get(key)
        return None if conf is None else conf[field]

    def range(self, key: Any, size: int | None = None, unique: bool = True) -> Iterator[dict[str, Any]]:
        """Yield the configurations of the nodes that follow a key, once round the circle.

        At most `size` of them; each node once, or with `unique=False` once for each of its points.
        """
        with self._lock:
            conf, names = self._conf, list(self._names_from(key))
        if unique:
            names = list(dict.fromkeys(names))
        yield from (conf[name] for name in (names[:size] if size and size > 0 else names))

    def iterate_nodes(self, key: Any, distinct: bool = True) -> Iterator[str | None]:
        """Yield the names of the nodes that follow a key, as `range` does; None if there are no points."""
        if not self._points:
            yield None
        yield from (conf["nodename"] for conf in self.range(key, unique=distinct))

    def _names_from(self, key: Any) -> Iterator[str]:
        pos = self.get_node_pos(key) or 0
        for point in itertools.chain(itertools.islice(self._points, pos, None), self._points[:pos]):
            yield self._owners[point]

    # --- uses under way -------------------------------------------------------------------------------------

    def lease(self, key: Any) -> Lease:
        """Count one use of a key's node while it lasts: `with ring.lease(key) as node`, or `async with`.

        It goes to the first node of `range(key)` that is below its limit.

        Raises
        ------
        ValueError
            The ring has no `epsilon`.
        """
        if self._rate is None:
            raise ValueError("lease needs a bound: make the ring with epsilon=0.25, say")
        return Lease(cast(Any, self), key)

    def lease_loads(self) -> dict[str, int]:
        """Return the leases under way of each node."""
        with self._lock:
            return {name: self._loads[name] for name in self._conf}

    def _lease(self, key: Any, avoid: Sequence[str], units: int) -> tuple[str, int]:  # called by Lease
        assert self._rate is not None
        with self._lock:
            allowed = self._rate * (sum(self._loads[name] for name in self._counts) + 1)
            whole = RATE_UNIT * sum(self._counts.values())
            for name in self._names_from(key):
                if self._loads[name] < -(-allowed * self._counts[name] // whole):
                    number = next(self._ids)
                    self._leases[number] = name
                    self._loads[name] += 1
                    return name, number
        raise NoNodesError("no node has points on the ring: use add_node")

    def _unlease(self, number: int, units: int) -> None:  # called by Lease
        with self._lock:
            name = self._leases.pop(number)
            self._loads[name] -= 1
            if not self._loads[name]:  # it may have been removed
                del self._loads[name]

    # --- what it holds --------------------------------------------------------------------------------------

    def get_nodes(self) -> KeysView[str]:
        """Return the names of the nodes."""
        return self._conf.keys()

    def get_instances(self) -> list[Any]:
        """Return the instances of the nodes that have one."""
        return [conf["instance"] for conf in self._conf.values() if conf["instance"]]

    def get_points(self) -> list[tuple[int, str]]:
        """Return all points, in their order, with their nodes."""
        with self._lock:
            return [(point, self._owners[point]) for point in self._points]

    def print_continuum(self) -> None:
        """Print all points."""
        points = self.get_points()
        print(f"Numpoints in continuum: {len(points)}" if points else "Continuum empty")
        for point, node in points:
            print(f"{node} ({point})")

    @property
    def conf(self) -> dict[str, dict[str, Any]]:
        """The configuration of each node."""
        return self._conf

    nodes = conf

    @property
    def distribution(self) -> Counter[str]:
        """The points of each node."""
        return self._counts

    @property
    def ring(self) -> dict[int, str]:
        """The node of each point."""
        return self._owners

    continuum = ring

    @property
    def size(self) -> int:
        """The number of points."""
        return len(self._owners)


def _ketama(key: Any, replica: int) -> int:
    return int.from_bytes(md5(str(key).encode()).digest()[4 * replica : 4 * replica + 4], "little")
