"""Loads shared through a real Redis server: one bound for many routers, leases that end with their router."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import subprocess
import sys
import threading
import time
from fractions import Fraction

import httpx
import pytest
import redis
import redis.asyncio
from http_replicas import fleet, go, served
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from router_servers import redis_server, running, until

from evenbins import HashRing, NoNodesError, RingFullError
from evenbins.cluster import shared_loads
from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.shared_loads import AsyncRedisLoads, RedisLoads

NEVER = Retry(NoBackoff(), 0)
NAMES = [f"node{number}" for number in range(5)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(redis_server, 1, tmp_path_factory.mktemp("redis")) as (started,):
        yield started


@pytest.fixture
def client(server):
    client = redis.Redis(port=server.port, socket_timeout=5)
    client.flushall()
    yield client
    client.close()


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0.25},
        {"epsilon": 0.0},
        {"limit": 3},
        {"epsilon": 0.1, "weights": {"node1": 2.5, "node3": 0.5}},
        {"limit": 10, "weights": {"node0": 1.1, "node1": 0.07, "node2": 2.2, "node4": 0.29}},  # 10 * 1.1 > 11
        {"epsilon": 0.1, "weights": {"node0": 0.1, "node1": 0.2, "node2": 0.3}},
    ],
)
def test_one_client_admits_exactly_as_the_ring_does(client, options):
    """Random admissions and ends: the script and the ring's own leases name the same node each time."""
    ring, loads = HashRing(NAMES, **options), RedisLoads(client, "same", ttl=60)
    rng = random.Random(7)
    held = []
    full = 0
    for _ in range(400):
        if held and rng.random() < 0.45:
            own, shared = held.pop(rng.randrange(len(held)))
            own.release()
            shared.close()
            continue
        key = rng.randrange(20)
        avoid = rng.sample(NAMES, rng.randrange(3)) if rng.random() < 0.2 else []
        own, shared = ring.lease(key, avoid=avoid), contextlib.ExitStack()
        try:
            node = own.acquire()
        except RingFullError:
            full += 1
            with pytest.raises(RingFullError):
                shared.enter_context(loads.admit(ring, key, avoid=avoid))
            continue
        assert shared.enter_context(loads.admit(ring, key, avoid=avoid)) == node
        held.append((own, shared))
    assert loads.loads(ring) == ring.lease_loads()
    assert full < 40 or "limit" in options  # only where nodes are to be avoided
    for own, shared in held:
        own.release()
        shared.close()
    assert set(loads.loads(ring).values()) == {0}
    loads.close()


@pytest.mark.parametrize(
    ("limit", "weight", "most"),
    [(100, 1.1, 110), (100, 0.07, 7), (50, 2.2, 110), (100, 0.29, 29), (3, 0.1, 1)],
)
def test_the_limit_of_a_weight_is_exact(client, limit, weight, most):
    ring, loads = HashRing(["a"], limit=limit, weights={"a": weight}), RedisLoads(client, "exact", ttl=60)
    with contextlib.ExitStack() as held:
        for key in range(most):
            held.enter_context(loads.admit(ring, key))
        with pytest.raises(RingFullError):
            held.enter_context(loads.admit(ring, 0))
    loads.close()


def test_the_script_compares_fractions_exactly(client):
    """At, one below and one above the integers where doubles would err; weights of many digits."""
    compare = client.register_script(
        shared_loads._EXACT
        + "return has_room(tonumber(ARGV[1]), limbs(ARGV[2]), tonumber(ARGV[3]), limbs(ARGV[4])) and 1 or 0"
    )
    rng = random.Random(3)
    for _ in range(300):
        number = rng.randrange(1, 12)
        weights = {
            f"n{i}": rng.choice((rng.random(), rng.randrange(1, 9) / 10, 10.0 ** rng.randrange(-6, 7)))
            for i in range(number)
        }
        epsilon = rng.choice((0.0, 0.1, 0.25, rng.random()))
        names = sorted(weights)
        ring = HashRing(names, epsilon=epsilon, weights=dict.fromkeys(names, 1.0))
        denominator, numerators = shared_loads.exact_bounds(_Weighted(ring, weights), names)
        total = Fraction(sum(Fraction(repr(each)) for each in weights.values()))
        name, n = rng.choice(names), rng.randrange(1, 2 ** rng.randrange(1, 28))
        exact = math.ceil((1 + Fraction(repr(epsilon))) * n * Fraction(repr(weights[name])) / total)
        for count in {max(0, exact - 1), exact, exact + 1, 0}:
            answer = compare(args=[count, denominator, n, numerators[name]])
            assert answer == (count < exact), (weights, epsilon, n, count)


class _Weighted:
    """A ring with weights of its own, which no ring need be able to place."""

    limit = None

    def __init__(self, ring, weights):
        self.epsilon, self.weights = ring.epsilon, weights


def test_pipelines_are_refused_as_clients(client):
    for kind, pipeline in (
        (RedisLoads, client.pipeline()),
        (AsyncRedisLoads, redis.asyncio.Redis().pipeline()),
    ):
        with pytest.raises(TypeError, match="must not be a pipeline"):
            kind(pipeline, "x")


def test_many_clients_stay_below_the_bound_together(server, client):
    """Four clients with eight threads each: no admission above ceil(1.25 n / 5), by the ends counted late."""
    ring = HashRing(NAMES, epsilon=0.25)
    lock = threading.Lock()
    now, most, over = dict.fromkeys(NAMES, 0), [0], []

    def work(number: int, loads: RedisLoads) -> None:
        rng = random.Random(number)
        for _ in range(25):
            try:
                with loads.admit(ring, rng.randrange(6)) as node:
                    with lock:
                        now[node] += 1
                        most[0] = max(most[0], now[node])
                    time.sleep(0.004)
                    with lock:
                        now[node] -= 1  # before the lease ends: this count is never above Redis' own
            except RingFullError as error:
                over.append(error)

    clients = [redis.Redis(port=server.port, socket_timeout=5) for _ in range(4)]
    shared = [RedisLoads(each, "many", ttl=60) for each in clients]
    threads = [threading.Thread(target=work, args=(n, shared[n % 4])) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert over == []
    assert 1 < most[0] <= math.ceil(1.25 * 32 / 5)
    assert set(shared[0].loads(ring).values()) == {0}
    for each in shared:
        each.close()
    for each in clients:
        each.close()


def test_leases_of_a_process_that_is_killed_end(server, client):
    program = f"""
import redis, time
from evenbins import HashRing
from evenbins.cluster.shared_loads import RedisLoads
loads = RedisLoads(redis.Redis(port={server.port}), "killed", ttl=1.5)
with loads.admit(HashRing(["a"], limit=1), "key"):
    print("held", flush=True)
    time.sleep(60)
"""
    ring = HashRing(["a"], limit=1)
    loads = RedisLoads(client, "killed", ttl=1.5)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        time.sleep(2.0)  # longer than a lease: it is renewed
        with pytest.raises(RingFullError, match="over all routers"), loads.admit(ring, "key"):
            pass
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    until(lambda: loads.loads(ring) == {"a": 0})
    with loads.admit(ring, "key") as node:
        assert node == "a"
    loads.close()


def test_names_and_rings_are_kept_apart_and_errors_surface(client):
    ring = HashRing(["a"], limit=1)
    one, other = RedisLoads(client, "one"), RedisLoads(client, "other")
    with one.admit(ring, "k"), other.admit(ring, "k"):
        assert one.loads(ring) == other.loads(ring) == {"a": 1}
    ring.mark_down("a")
    with pytest.raises(NoNodesError), one.admit(ring, "k"):
        pass
    for name, ttl in (("", 1), ("{a}", 1), ("a", 0), ("a", float("nan"))):
        with pytest.raises(ValueError, match="must be"):
            RedisLoads(client, name, ttl=ttl)
    with redis.Redis(port=1, retry=None) as nobody:
        ring.mark_up("a")
        with pytest.raises(redis.ConnectionError), RedisLoads(nobody, "x").admit(ring, "k"):
            pass
    one.close()
    other.close()


def test_an_admission_that_is_cancelled_leaves_no_lease(server, client):
    async def test():
        ring = HashRing(["a", "b"], limit=1)
        async with redis.asyncio.Redis(port=server.port, socket_timeout=5, retry=NEVER) as own:
            loads = AsyncRedisLoads(
                own, "cancelled", ttl=2
            )  # should the script come after its withdrawal, it ends by itself
            async with loads.admit(ring, "key"):
                assert sorted((await loads.loads(ring)).values()) == [0, 1]
                server.stop()

                async def hold():
                    async with loads.admit(ring, "key"):
                        pytest.fail("it was cancelled before")

                task = asyncio.create_task(hold())
                await asyncio.sleep(0.1)  # the server has it, and will do it when it goes on
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                server.go_on()
                while sum((await loads.loads(ring)).values()) > 1:
                    await asyncio.sleep(0.01)
            await loads.close()
            assert sum((await loads.loads(ring)).values()) == 0

    go(test())


def test_loads_are_closed_although_the_clients_library_loses_a_cancellation(client):
    """As redis-py does where a cancellation arrives together with a timeout: `close` waited for ever."""

    class Renewal:
        lost = 0

        async def __call__(self, keys, args):
            for _ in range(2):
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    self.lost += 1

    async def test():
        loads = AsyncRedisLoads(redis.asyncio.Redis(port=1), "lost", ttl=0.3)
        loads._live["lease"], loads._renew = "key", Renewal()
        loads._task = asyncio.create_task(loads._keep_renewing())
        await asyncio.sleep(0.2)
        async with asyncio.timeout(60):
            await loads.close()
        assert loads._renew.lost == 2

    go(test())


def test_two_routers_share_one_bound_and_go_on_without_redis(tmp_path):
    async def test():
        with running(redis_server, 1, tmp_path) as (started,):
            async with fleet(2) as (inner, _, replicas):
                routers, clients, stack = [], [], contextlib.AsyncExitStack()
                for _ in range(2):
                    own = redis.asyncio.Redis(port=started.port, socket_timeout=20, retry=NEVER)
                    router = Router(
                        RouterConfig(inner.ring.names, limit=2, loads=AsyncRedisLoads(own, "routers", ttl=5))
                    )
                    url = await stack.enter_async_context(served(router))
                    made = httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60)
                    clients.append(await stack.enter_async_context(made))
                    stack.push_async_callback(own.aclose)
                    routers.append(router)
                async with stack:
                    for each in replicas.values():
                        each.hold.clear()
                    tasks = []
                    for number in range(4):
                        tasks.append(asyncio.create_task(clients[number % 2].get("/hot")))
                        while sum(each.status()["in_flight"] for each in routers) <= number:
                            await asyncio.sleep(0.01)
                    for each in clients:  # two at each replica: both routers know
                        assert (await each.get("/hot")).status_code == 503
                    shared = await routers[0].config.loads.loads(routers[0].ring)
                    assert set(shared.values()) == {2}
                    for each in replicas.values():
                        each.hold.set()
                    assert {(await task).status_code for task in tasks} == {200}
                    while sum((await routers[0].config.loads.loads(routers[0].ring)).values()):
                        await asyncio.sleep(0.01)
                    started.kill()
                    for each in clients:
                        assert (await each.get("/hot")).status_code == 200
                    assert all(each.status()["shared_errors"] == 1 for each in routers)
                    assert "evenbins_route_shared_errors_total 1" in (await clients[0].get("/-/metrics")).text

    go(test())


def test_a_lease_ends_where_no_thread_can_be_started_to_renew_it(client, monkeypatch):
    """Refused, it stayed among the leases that the next thread renews: a place lost for good."""
    ring, loads = HashRing(NAMES, limit=1), RedisLoads(client, "refused", ttl=60)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with loads.admit(ring, "key") as node:
            assert loads.loads(ring)[node] == 1
    assert not loads._live
    with loads.admit(ring, "key") as node:
        assert loads.loads(ring)[node] == 1
        assert loads._thread is not None
    assert sum(loads.loads(ring).values()) == 0
    loads.close()
