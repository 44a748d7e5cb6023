"""`evenbins.compat.uhashring` beside the real package: random operations, and the bound of leases."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import threading
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest
import uhashring
from sizes import size

from evenbins import NoNodesError
from evenbins.compat.uhashring import HashRing
from evenbins.hashing import mix

Rings = tuple[Any, Any]
NAMES = [f"node{i}" for i in range(9)]


def own_hash(key: object) -> int:
    return mix(crc32(str(key).encode()) << 20 | len(str(key)))


OPTIONS: dict[str, dict[str, Any]] = {
    "md5": {},
    "few points": {"vnodes": 7},
    "own hash": {"hash_fn": own_hash, "vnodes": 20},
    "ketama": {"hash_fn": "ketama"},
    "ketama, two replicas": {"hash_fn": "ketama", "replicas": 2, "vnodes": 10},
    "weights by function": {"weight_fn": lambda **conf: 1 + len(str(conf["port"])) % 3, "vnodes": 10},
}


def answer(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the type of what it raises."""
    try:
        found = call()
        return found if isinstance(found, dict | int | str | tuple) or found is None else list(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return type(error)


def assert_alike(rings: Rings, rng: random.Random) -> None:
    """Compare all that two rings answer."""
    key: Any = rng.choice([f"key{rng.random()}", rng.randrange(10**6), b"bytes", None, ("a", 1), "näme"])
    count = rng.choice([None, 0, 1, 2, 5, 1000, -1])
    unique = rng.random() < 0.5
    ours, theirs = (
        {
            **{name: answer(lambda: getattr(ring, name)(key)) for name in BY_KEY},  # noqa: B023
            **{name: answer(lambda: getattr(ring, name)()) for name in WITHOUT_KEY},  # noqa: B023
            **{name: getattr(ring, name) for name in PROPERTIES},
            "[]": answer(lambda: ring[key]),  # noqa: B023
            "range": answer(lambda: ring.range(key, size=count, unique=unique)),  # noqa: B023
            "iterate_nodes": answer(lambda: ring.iterate_nodes(key, distinct=unique)),  # noqa: B023
        }
        for ring in rings
    )
    assert ours == theirs


BY_KEY = ["get", "get_key", "get_node", "get_node_hostname", "get_node_instance", "get_node_port",
          "get_node_pos", "get_node_weight", "get_server", "hashi"]  # fmt: skip
WITHOUT_KEY = ["get_instances", "get_nodes", "get_points"]
PROPERTIES = ["conf", "continuum", "distribution", "nodes", "ring", "size"]
CHANGES = {"add_node", "remove_node", "regenerate", "print_continuum", "range", "iterate_nodes"}


def test_every_public_name_is_there_and_compared() -> None:
    theirs = {name for name in dir(uhashring.HashRing) if not name.startswith("_")}
    assert theirs == {*BY_KEY, *WITHOUT_KEY, *PROPERTIES, *CHANGES} - {"hashi"}  # set by its constructor
    ours = {name for name in dir(HashRing) if not name.startswith("_")}
    assert ours == theirs | {"hashi", "lease", "lease_loads"}


@pytest.mark.parametrize("name", OPTIONS)
def test_random_operations(name: str) -> None:
    """Nodes come, change and go; every answer is the real package's, placement included."""
    options, rng = OPTIONS[name], random.Random(name)
    default = options.get("vnodes", 40 if options.get("hash_fn") == "ketama" else 160)
    start = rng.sample(NAMES, 3)
    rings: Rings = (HashRing(start, **options), uhashring.HashRing(start, **options))
    for _ in range(size(60, 1500)):
        node = rng.choice(NAMES)
        if rng.random() < 0.35:
            assert len({answer(lambda: ring.remove_node(node)) for ring in rings}) == 1  # noqa: B023
        elif rng.random() < 0.2:
            for ring in rings:
                ring[node] = 2
        elif rng.random() < 0.2:
            for ring in rings:
                ring.add_node(node)
                ring.regenerate()
        else:
            conf = {"hostname": f"{node}.example", "port": rng.randrange(10**rng.randrange(1, 5)),
                    "instance": rng.choice([None, object()]), "weight": rng.randrange(1, 4),
                    "vnodes": default, "unknown": 7}  # fmt: skip
            for ring in rings:
                ring.add_node(node, conf)
        assert_alike(rings, rng)


@pytest.mark.parametrize(
    "nodes",
    [None, [], "alone", {}, {"a": 3, "b": {"port": 5}}, {"a": True}, {"a": {"nodename": "other"}}, ["a"]],
)
def test_constructors(nodes: Any) -> None:
    arguments = () if nodes is None else (nodes,)
    rings: Rings = (HashRing(*arguments), uhashring.HashRing(*arguments))
    printed = []
    for ring in rings:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            ring.print_continuum()
        printed.append(out.getvalue())
    assert printed[0] == printed[1]
    rng = random.Random(1)
    for _ in range(20):
        assert_alike(rings, rng)


@pytest.mark.parametrize(
    ("nodes", "options"),
    [
        (7, {}),
        (("a", "b"), {}),
        ({"a": "heavy"}, {}),
        ({"a": 1.5}, {}),
        ({"a": {"weight": 1.5}}, {}),
        ({"a": {"vnodes": "many"}}, {}),
        (["a"], {"hash_fn": 7}),
        (["a"], {"weight_fn": "x"}),
    ],
)
def test_errors_are_of_the_same_type(nodes: Any, options: dict[str, Any]) -> None:
    def errors(make: Any) -> type[Exception]:
        with pytest.raises((TypeError, ValueError)) as raised:
            make(nodes, **options)
        return raised.type

    assert errors(HashRing) is errors(uhashring.HashRing)


def test_a_call_that_raises_changes_nothing() -> None:
    ring = HashRing(["a", "b"])
    before = ring.get_points(), dict(ring.conf)
    for call in (lambda: ring.add_node("c", 1.5), lambda: ring.add_node("a", {"weight": None}),
                 lambda: ring.remove_node("z")):  # fmt: skip
        with pytest.raises((TypeError, ValueError, KeyError)):
            call()
    assert (ring.get_points(), ring.conf) == before
    with pytest.raises(TypeError):
        HashRing(["a"], vnode=3)  # type: ignore[call-arg]


# --- leases -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0, 0.25, 1])
def test_no_admission_exceeds_the_bound(epsilon: float) -> None:
    """Hot keys, and the first node of `range` that is below its limit takes each lease."""
    rng = random.Random(epsilon)
    ring = HashRing({"a": 1, "b": 2, "c": 1, "d": 4}, vnodes=10, epsilon=epsilon)
    held = []
    passed_on = 0
    for _ in range(size(400, 8000)):
        key = f"key{rng.randrange(3)}"
        before = ring.lease_loads()
        lease = ring.lease(key)
        node = lease.acquire()
        limits = {name: (1 + epsilon) * (sum(before.values()) + 1) * points / 80
                  for name, points in ring.distribution.items()}  # fmt: skip
        assert before[node] < limits[node]
        order = [conf["nodename"] for conf in ring.range(key)]
        for full in order[: order.index(node)]:
            assert before[full] >= limits[full]
        passed_on += node != ring.get_node(key)
        held.append(lease)
        while held and rng.random() < 0.48:
            held.pop(rng.randrange(len(held))).release()
    assert passed_on > 20
    for lease in held:
        lease.release()
        lease.release()
    assert set(ring.lease_loads().values()) == {0}


def test_leases_survive_changes_of_nodes() -> None:
    ring = HashRing(["a", "b"], epsilon=0.25)
    with ring.lease("x") as node:
        ring.remove_node(node)
        ring.add_node("c")
        assert set(ring.lease_loads().values()) == {0}
        ring.add_node(node)
        assert ring.lease_loads()[node] == 1
    assert set(ring.lease_loads().values()) == {0}


def test_leases_need_a_bound_and_a_node() -> None:
    with pytest.raises(ValueError, match="epsilon"):
        HashRing(["a"]).lease("x")
    with pytest.raises(NoNodesError, match="add_node"):
        HashRing(epsilon=0.25).lease("x").acquire()
    with pytest.raises(ValueError, match="epsilon"):
        HashRing(epsilon=-1)


def test_threads_and_coroutines_share_the_counts() -> None:
    ring = HashRing(NAMES, vnodes=10, epsilon=0.25)

    def work(number: int) -> None:
        rng = random.Random(number)
        for _ in range(size(100, 3000)):
            with ring.lease(rng.randrange(5)), ring.lease(rng.randrange(5)):
                if number == 0:
                    ring.add_node("extra")
                    ring.remove_node("extra")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def use(number: int) -> None:
        async with ring.lease(number % 3):
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(use(number) for number in range(50)))

    asyncio.run(main())
    assert ring.lease_loads() == dict.fromkeys(NAMES, 0)


def test_nodes_that_came_and_went_leave_nothing_behind():
    ring = HashRing(["a"], epsilon=0.25)
    for number in range(50):
        ring.add_node(f"pod{number}")
        leases = [ring.lease(str(key)) for key in range(8)]
        for lease in leases:
            lease.acquire()
        ring.remove_node(f"pod{number}")
        for lease in leases:
            lease.release()
    assert not ring._loads
    assert ring.lease_loads() == {"a": 0}
