"""Clients of servers under signals and forks: no answer is ever another call's, no limit is lost.

A handler that uses the same client, or raises, before each line of a call (interruptions.py); a child that
goes on using what its parent had open.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from filter_servers import HOST, Server, running
from interruptions import InterruptError, before_line, in_child, lines_in, no_hang
from router_servers import memcached, until
from router_servers import running as running_servers

from evenbins import HashRing, RingFullError
from evenbins.cluster import RedisFilter
from evenbins.cluster.fleet import Fleet
from evenbins.cluster.health import Backoff
from evenbins.cluster.memcached import RingHasher, RingMemcache
from evenbins.cluster.sharded_redis import ShardedRedis
from evenbins.cluster.shared_loads import RedisLoads
from evenbins.filters import plan_blocked

KEYS = 300


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running("--maxclients", "20000") as found:
        yield found


@pytest.fixture(scope="module")
def cache(tmp_path_factory: Any) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("memcached")
    with running_servers(memcached, 1, folder) as (found,):
        yield found.name


Asked = Callable[[int], object]
"""Asks for a key, 0 to KEYS - 1, and returns whether the answer is right."""


@contextlib.contextmanager
def filter_calls(server: Server) -> Iterator[dict[str, Asked]]:
    with redis.Redis(host=HOST, port=server.port, max_connections=10_000, socket_timeout=20) as client:
        client.flushall()
        shared = RedisFilter.create(client, "x", plan_blocked(KEYS, fpr=1e-9), segment_bytes=256)
        shared.add_many(range(0, KEYS + 2, 2))
        yield {
            "contains": lambda key: shared.contains(key) == (key % 2 == 0),
            "contains_many": lambda key: (
                shared.contains_many([key, key + 1]).tolist() == [key % 2 == 0, key % 2 == 1]
            ),
            "add": lambda key: shared.add(key // 2 * 2) is None,
            "add_new": lambda key: shared.add_new(key // 2 * 2) is False,
            "add_new_many": lambda key: shared.add_new_many([key // 2 * 2, 0]).tolist() == [False, False],
        }


@contextlib.contextmanager
def sharded_calls(server: Server) -> Iterator[dict[str, Asked]]:
    with ShardedRedis([f"{HOST}:{server.port}"], timeout=20) as client:
        client.mset({f"k{key}": str(key) for key in range(KEYS + 1)})
        yield {
            "get": lambda key: client.get(f"k{key}") == b"%d" % key,
            "mget": lambda key: client.mget([f"k{key}", f"k{key + 1}"]) == [b"%d" % key, b"%d" % (key + 1)],
            "pipeline": lambda key: (
                client.pipeline().get(f"k{key}").exists(f"k{key}").execute() == [b"%d" % key, 1]
            ),
        }


@contextlib.contextmanager
def memcached_calls(name: str) -> Iterator[dict[str, Asked]]:
    with RingMemcache([name], timeout=20) as client:
        client.set_many({f"k{key}": b"%d" % key for key in range(KEYS + 1)})
        yield {
            "get": lambda key: client.get(f"k{key}") == b"%d" % key,
            "get_many": lambda key: (
                client.get_many([f"k{key}", f"k{key + 1}"])
                == {f"k{key}": b"%d" % key, f"k{key + 1}": b"%d" % (key + 1)}
            ),
        }


@contextlib.contextmanager
def loads_calls(server: Server) -> Iterator[dict[str, Asked]]:
    with redis.Redis(host=HOST, port=server.port, max_connections=10_000, socket_timeout=20) as client:
        client.flushall()
        ring = HashRing([f"node{number}" for number in range(7)], limit=1000)
        loads = RedisLoads(client, "x", ttl=600)

        def admitted(key: int) -> bool:
            with loads.admit(ring, key) as node:
                return node == ring.node(key)

        yield {"admitted": admitted}
        loads.close()


CLIENTS: dict[str, Any] = {
    "filter": filter_calls, "sharded": sharded_calls, "memcached": memcached_calls, "loads": loads_calls,
}  # fmt: skip
CALLS = [
    (client, call)
    for client, calls in {
        "filter": ("contains", "contains_many", "add", "add_new", "add_new_many"),
        "sharded": ("get", "mget", "pipeline"),
        "memcached": ("get", "get_many"), "loads": ("admitted",),
    }.items()
    for call in calls
]  # fmt: skip


def points(lines: int) -> range:
    """Choose about 150 lines of a call, the first and the last among them."""
    return range(1, lines + 1, max(1, lines // 150))


@pytest.mark.parametrize(("client", "call"), CALLS)
def test_a_handler_that_uses_the_same_client_gets_and_leaves_right_answers(
    server: Server, cache: str, client: str, call: str
) -> None:
    with CLIENTS[client](cache if client == "memcached" else server) as calls, no_hang():
        ask, key = calls[call], itertools.cycle(range(KEYS))
        assert ask(0)
        answers: list[object] = []
        for line in points(lines_in(lambda: ask(1))):
            assert before_line(line, lambda: ask(next(key)), lambda: answers.append(ask(next(key)))), line
        assert len(answers) > 20
        assert all(answers)


@pytest.mark.parametrize(("client", "call"), [each for each in CALLS if each[0] != "loads"])
def test_a_handler_that_raises_leaves_no_answer_behind(
    server: Server, cache: str, client: str, call: str
) -> None:
    """(A RedisLoads sends by the caller's own redis-py client, whose connections are not ours to close.)"""

    def interrupt() -> None:
        raise InterruptError

    with CLIENTS[client](cache if client == "memcached" else server) as calls, no_hang():
        ask, key = calls[call], itertools.cycle(range(KEYS))
        assert ask(0)
        raised = 0
        for line in points(lines_in(lambda: ask(1))):
            answer: object = True
            try:
                answer = before_line(line, lambda: ask(next(key)), interrupt)
            except Exception:  # the handler's; pymemcache makes a ValueError of it at some lines
                raised += 1
            assert answer, line
            assert ask(next(key)), line
            assert ask(next(key)), line
        assert raised > 20


def test_a_handler_that_raises_leaves_no_shared_lease_to_be_renewed() -> None:
    """A place that was taken and not given back ends after `ttl`, unless this process goes on renewing it."""

    class Client:  # of few lines: each of them is tried
        def register_script(self, text: str) -> Callable[..., int]:
            return lambda **arguments: 1

        def zrem(self, key: str, lease: str) -> int:
            return 1

    def interrupt() -> None:
        raise InterruptError

    ring, loads = HashRing(["a", "b"], limit=1000), RedisLoads(Client(), "x", ttl=600)
    inside = []

    def admitted() -> None:
        with loads.admit(ring, 1):
            inside.append(True)

    admitted()
    lines = lines_in(admitted)
    assert lines > 20
    for line in range(1, lines + 1):
        inside.clear()
        with contextlib.suppress(InterruptError):
            before_line(line, admitted, interrupt)
        assert inside or not loads._live, line
        loads._live.clear()
    loads.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_parent_and_child_have_connections_of_their_own(server: Server, cache: str, client: str) -> None:
    with CLIENTS[client](cache if client == "memcached" else server) as calls:
        for ask in calls.values():
            assert ask(0)

        def work(start: int) -> None:
            for key in range(start, KEYS, 2):
                for ask in calls.values():
                    assert ask(key)

        in_child(lambda: work(1), lambda: work(0))


def test_the_child_of_a_process_that_holds_a_shared_lease_takes_its_own(server: Server) -> None:
    """Both count: a limit of 3 has one place left for whoever comes first, and none after."""
    with redis.Redis(host=HOST, port=server.port) as client:
        client.flushall()
        ring = HashRing(["a"], limit=3)
        loads = RedisLoads(client, "x", ttl=600)

        def work() -> None:
            with loads.admit(ring, 2):
                assert loads.loads(ring) == {"a": 3}
                assert loads._thread is not None  # who renews it
                assert loads._thread.is_alive()
                with pytest.raises(RingFullError), loads.admit(ring, 3):
                    pass

        with loads.admit(ring, 0), loads.admit(ring, 1):
            in_child(work)
            assert loads.loads(ring) == {"a": 2}
        assert loads.loads(ring) == {"a": 0}
        loads.close()


def test_a_child_that_leaves_its_parents_lease_leaves_it_to_the_parent(server: Server) -> None:
    with redis.Redis(host=HOST, port=server.port) as client:
        client.flushall()
        ring, loads = HashRing(["a"], limit=3), RedisLoads(client, "x", ttl=600)
        with contextlib.ExitStack() as held:
            held.enter_context(loads.admit(ring, 0))
            in_child(held.close)
            assert loads.loads(ring) == {"a": 1}
        assert loads.loads(ring) == {"a": 0}
        loads.close()


def test_a_child_probes_servers_that_were_down_and_does_not_count_other_threads_leases() -> None:
    alive, inside, leave = {"a": False, "b": True}, threading.Event(), threading.Event()

    def probe(name: str) -> None:
        if not alive[name]:
            raise OSError("refused")

    def operate(name: str) -> str:
        probe(name)
        return name

    def wait(name: str) -> None:
        inside.set()
        leave.wait(60)

    quick = Backoff(first=0.001, factor=1, most=0.001)
    fleet = Fleet(["a", "b"], probe=probe, broken=(OSError,), limit=1, wait=0.05, backoff=quick)
    keys = {fleet.ring.node(key): key for key in range(99)}
    assert fleet.call(keys["a"], operate) == "b"
    holder = threading.Thread(target=lambda: fleet.call(keys["b"], wait))
    holder.start()
    assert inside.wait(20)

    def work() -> None:
        alive["a"] = True
        assert fleet.call(keys["b"], operate) == "b"  # the limit is 1: the parent's thread is not here
        until(lambda: fleet.call(keys["a"], operate) == "a")

    try:
        in_child(work)
        assert fleet.ring.lease_loads() == {"a": 0, "b": 1}
    finally:
        leave.set()
        holder.join()
        fleet.close()


def test_a_hasher_is_made_once_even_if_a_handler_comes_between() -> None:
    def fresh() -> RingHasher:
        hasher = RingHasher()
        for name in "abc":
            hasher.add_node(name)
        return hasher

    with no_hang():
        hasher = fresh()
        for line in points(lines_in(lambda: hasher.ring)):  # noqa: B023
            hasher = fresh()
            ring = before_line(line, lambda: hasher.ring, lambda: hasher.remove_node(hasher.ring.names[0]))  # noqa: B023
            assert hasher.ring is ring
            assert list(ring.states.values()).count("down") == 1


def test_a_filter_can_be_closed_by_a_handler_while_a_call_is_under_way(server: Server) -> None:
    with redis.Redis(host=HOST, port=server.port, socket_timeout=20) as client, no_hang():
        client.flushall()
        shared = RedisFilter.create(client, "x", plan_blocked(KEYS, fpr=1e-9))
        shared.add_many(range(KEYS))
        for line in range(1, lines_in(lambda: shared.contains(1)) + 1):
            assert before_line(line, lambda: shared.contains(1), shared.close)
            in_use = client.connection_pool._in_use_connections
            assert len(in_use) <= 1, line


def test_real_signals_while_filters_are_asked(server: Server) -> None:
    """A timer every millisecond, whose handler asks too, for half a second."""
    with redis.Redis(host=HOST, port=server.port, socket_timeout=20) as client:
        client.flushall()
        shared = RedisFilter.create(client, "x", plan_blocked(KEYS, fpr=1e-9))
        shared.add_many(range(KEYS))
        wrong, asked, depth = [0, 0], itertools.count(), [0]

        def handler(*_: object) -> None:
            if depth[0] > 2:  # the next signal has come before this one was served: a slow machine
                return
            depth[0] += 1
            wrong[0] += not shared.contains(next(asked) % KEYS)
            depth[0] -= 1

        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        try:
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                wrong[1] += not shared.contains(next(asked) % KEYS)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert wrong == [0, 0]
