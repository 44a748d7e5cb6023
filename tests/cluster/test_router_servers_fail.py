"""Clients of many servers, and servers that fail in one particular way each: what was wrong, what is kept.

Memcached, independent Redis servers, counts shared by routers, the HTTP router; connections go through a
proxy that cuts them where a test says. test_fault_study.py cuts at random.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import httpx
import pytest
import redis
import redis.asyncio
from fault_proxy import FaultProxy
from http_replicas import fleet, go, served
from pymemcache.exceptions import MemcacheServerError
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry
from router_servers import memcached, redis_server, running, until

from evenbins import HashRing, NoNodesError
from evenbins.cluster.fleet import AsyncFleet, Fleet
from evenbins.cluster.health import Backoff, ServerDownError
from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.http_keys import RequestKey
from evenbins.cluster.memcached import RingMemcache
from evenbins.cluster.sharded_redis import AsyncShardedRedis, ShardedRedis
from evenbins.cluster.shared_loads import AsyncRedisLoads, RedisLoads

QUICK = Backoff(first=0.05, factor=1.5, most=0.2)
KEYS = [f"key:{number}" for number in range(60)]
ONCE = Retry(NoBackoff(), 0)


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    with running(memcached, 2, tmp_path_factory.mktemp("memcached")) as servers:
        yield servers


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    with running(redis_server, 2, tmp_path_factory.mktemp("redis")) as servers:
        yield servers


@contextlib.contextmanager
def proxies(servers):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(FaultProxy(each.port)) for each in servers]


# --- a request stays with its server until that is down ----------------------------------------------------


@pytest.mark.parametrize(("way", "size"), [("up", 0), ("up", 9), ("down", 0), ("down", 3)])
def test_a_cut_brings_no_old_value_back_to_a_cache(caches, way, size):
    """One cut is no death: what was set or deleted must not go elsewhere and leave the old value here."""
    with (
        proxies(caches) as (one, two),
        RingMemcache([one.name, two.name], backoff=QUICK, timeout=20) as client,
    ):
        client.flush_all()
        mine = [key for key in KEYS if client.server_for(key) == one.name]
        client.set_many(dict.fromkeys(mine, b"old"))
        one.cut(**{way: size})
        client.set(mine[0], b"new")
        assert client.get(mine[0]) == b"new"
        one.cut(**{way: size})
        client.delete(mine[1])
        assert client.get(mine[1]) is None
        one.cut(**{way: size})
        assert client.set_many(dict.fromkeys(mine[2:9], b"new")) == []
        assert client.get_many(mine[2:9]) == dict.fromkeys(mine[2:9], b"new")
        one.cut(**{way: size})
        client.delete_many(mine[2:9])
        assert client.get_many(mine[2:9]) == {}
        assert (one.cuts, two.cuts) == (4, 0)
        assert set(client.ring.states.values()) == {"up"}
        assert client.get_many(mine[9:]) == dict.fromkeys(mine[9:], b"old")  # nothing was flushed


def test_a_deletion_reaches_copies_through_a_cut(caches):
    with proxies(caches) as (one, two), RingMemcache([one.name, two.name], limit=1, timeout=20) as client:
        key = next(each for each in KEYS if client.server_for(each) == one.name)
        with client.ring.lease(key):
            client.set(key, b"copy")  # jumps: its server is full
        two.cut(up=4)
        client.delete(key)
        with client.ring.lease(key):
            assert client.get(key) is None  # from the other server, where the copy was
        assert two.cuts == 1


@pytest.mark.parametrize(("way", "size"), [("up", 0), ("up", 20), ("down", 0), ("down", 2)])
def test_a_cut_leaves_acknowledged_writes_where_they_are_looked_for(stores, way, size):
    for each in stores:
        redis.Redis(port=each.port).flushall()
    with (
        proxies(stores) as (one, two),
        ShardedRedis([one.name, two.name], backoff=QUICK, timeout=20) as client,
    ):
        mine = [key for key in KEYS if client.server_for(key) == one.name]
        client.mset(dict.fromkeys(KEYS, "old"))
        one.cut(**{way: size})
        client.set(mine[0], "new")
        assert client.get(mine[0]) == b"new"
        one.cut(**{way: size})
        client.mset(dict.fromkeys(KEYS, "new"))
        assert client.mget(KEYS) == [b"new"] * len(KEYS)
        one.cut(**{way: size})
        client.delete(*mine[:5])
        assert client.mget(mine[:5]) == [None] * 5
        assert one.cuts == 3
        client.set("n", 0)
        proxy = one if client.server_for("n") == one.name else two
        proxy.cut(**{way: size})
        with pytest.raises(ServerDownError, match="cannot be repeated safely"):
            client.incr("n")
        assert client.get("n") == (b"0" if way == "up" else b"1")  # once, or not at all
        assert client.incr("n") == (1 if way == "up" else 2)


def test_a_server_that_hangs_costs_its_timeouts_and_no_more(stores):
    """failures=2: a request waits twice for a silent server, the next ones not at all."""
    wait = 0.6  # enough for an answer of a busy machine
    options = {"timeout": wait, "connect_timeout": wait, "backoff": QUICK}
    with proxies(stores) as (one, two), ShardedRedis([one.name, two.name], **options) as client:
        key = next(each for each in KEYS if client.server_for(each) == one.name)
        client.set(key, "before")
        one.freeze()
        begun = time.monotonic()
        client.set(key, "elsewhere")
        assert 1.9 * wait < time.monotonic() - begun < 30
        assert client.ring.states[one.name] == "down"
        assert client.get(key) == b"elsewhere"
        one.thaw()
        until(lambda: client.ring.states[one.name] == "up")
        assert client.get(key) in (b"before", b"elsewhere")  # what was held back may be done late, or not


def test_groups_part_when_their_server_goes_down():
    """Keys of a server that goes down between grouping and sending go each to a server of its own."""
    names = [f"s{number}" for number in range(5)]
    fleet_ = Fleet(names, probe=print, broken=(OSError,))
    keys = [f"k{number}" for number in range(200)]
    groups = fleet_._groups

    def grouped(pending):
        found = groups(pending)
        fleet_.ring.mark_down("s3")
        return found

    fleet_._groups = grouped
    where = {}
    fleet_.call_many(keys, lambda node, group: where.update(dict.fromkeys(group, node)))
    assert where == {key: fleet_.ring.node(key) for key in keys}
    assert "s3" not in where.values()

    async def test():
        fleet_ = AsyncFleet(names, probe=print, broken=(OSError,))
        groups = fleet_._groups

        def grouped(pending):
            found = groups(pending)
            fleet_.ring.mark_down("s3")
            return found

        fleet_._groups = grouped
        there = {}

        async def operate(node, group):
            there.update(dict.fromkeys(group, node))

        await fleet_.call_many(keys, operate)
        assert there == where

    asyncio.run(test())


def test_a_server_that_always_fails_ends_in_an_error_of_few_attempts():
    """Successes of others in between keep it up: a call ends all the same."""
    fleet_ = Fleet(["a", "b"], probe=print, broken=(OSError,), failures=2)
    attempts = []

    def operate(node):
        attempts.append(node)
        fleet_.health.succeeded(node)
        raise OSError("cut")

    with pytest.raises(ServerDownError, match="cut"):
        fleet_.call("key", operate)
    assert len(attempts) == 6  # failures * (servers + 1)
    with pytest.raises(ServerDownError, match="try again"):
        fleet_.on("a", operate)
    fleet_.health.failed("a", OSError(), at_once=True)
    fleet_.health.failed("b", OSError(), at_once=True)
    with pytest.raises(NoNodesError):
        fleet_.call("key", operate)
    fleet_.close()


# --- restarts and refusals ---------------------------------------------------------------------------------


def test_restarts_with_and_without_data(tmp_path):
    def durable(port):
        return [*redis_server(port)[:-1], "yes", "--appendfsync", "always", "--dir", str(tmp_path)]

    for command, value in ((redis_server, None), (durable, b"kept")):
        with (
            running(command, 1, tmp_path) as (server,),
            ShardedRedis([server.name], backoff=QUICK, timeout=20) as client,
        ):
            client.mset(dict.fromkeys(KEYS, "kept"))
            server.kill()
            with pytest.raises(NoNodesError, match="no server is left"):
                client.get("a")
            server.start()
            until(lambda c=client, s=server: c.ring.states[s.name] == "up")
            assert client.mget(KEYS) == [value] * len(KEYS)


def test_refusals_name_the_server_and_a_way_out(stores):
    with ShardedRedis([each.name for each in stores], backoff=QUICK, timeout=20) as client:
        client.client(client.server_for("list")).rpush("list", 1)
        refused = [("WRONGTYPE", "delete that, or choose another name", lambda: client.get("list"))]
        pipe = client.pipeline().set("fine", 1).incr("list")
        refused.append(("WRONGTYPE", "delete that", pipe.execute))
        for text, way_out, call in refused:
            with pytest.raises(redis.ResponseError, match=text) as caught:
                call()
            assert caught.value.__notes__[-1].startswith(f"server {client.server_for('list')}: ")
            assert way_out in caught.value.__notes__[-1]
        for each in stores:
            client.client(each.name).config_set("maxmemory", "1mb")
        for call in (lambda: client.set("b", 1), lambda: client.mset({"b": 1}), lambda: client.incr("b")):
            with pytest.raises(redis.OutOfMemoryError) as caught:
                call()
            assert "raise maxmemory" in caught.value.__notes__[-1]
        for each in stores:
            client.client(each.name).config_set("maxmemory", "0")
            client.client(each.name).replicaof("127.0.0.1", 1)
        with pytest.raises(redis.exceptions.ReadOnlyError) as caught:
            client.set("b", 1)
        assert "client of its primary" in caught.value.__notes__[-1]

        async def test():
            async with AsyncShardedRedis([each.name for each in stores], timeout=20) as twin:
                for call in (lambda: twin.set("b", 1), lambda: twin.mset({"b": 1}), lambda: twin.delete("b")):
                    with pytest.raises(redis.exceptions.ReadOnlyError) as caught:
                        await call()
                    assert "client of its primary" in caught.value.__notes__[-1]

        asyncio.run(test())
        for each in stores:
            client.client(each.name).replicaof("NO", "ONE")
        assert client.set("b", 1) is True
        assert set(client.ring.states.values()) == {"up"}  # a refusal is no failure of a server


def test_a_full_cache_that_may_not_evict_refuses_and_goes_on(tmp_path):
    with (
        running(lambda port: [*memcached(port), "-M", "-m", "2"], 1, tmp_path) as (server,),
        RingMemcache([server.name], timeout=20) as client,
    ):
        client.set("small", b"1")
        stored = []

        def fill():
            for number in range(100):
                client.set(f"big:{number}", bytes(500_000))
                stored.append(f"big:{number}")

        with pytest.raises(MemcacheServerError, match="out of memory"):
            fill()
        assert stored
        with pytest.raises(MemcacheServerError):
            client.set_many(dict.fromkeys(KEYS[:5], bytes(500_000)))
        assert client.get("small") == b"1"  # answers are not mixed up afterwards
        assert client.get(stored[0]) == bytes(500_000)
        client.delete_many(stored)
        assert client.set("big:0", bytes(500_000)) is True
        assert client.status()["repeats"] == 0


# --- counts shared through Redis ---------------------------------------------------------------------------


def test_an_admission_that_is_repeated_takes_one_place(stores):
    """The reply is lost, the client repeats: the same place, not a second one at the next node."""
    ring = HashRing(["a", "b", "c"], limit=1)
    with FaultProxy(stores[0].port) as proxy:
        client = redis.Redis(port=proxy.port, socket_timeout=2, retry=Retry(NoBackoff(), 3))
        client.flushall()
        loads = RedisLoads(client, "repeated", ttl=60)
        with loads.admit(ring, "warm"):
            pass
        for down in range(4):
            proxy.cut(down=down)
            with loads.admit(ring, "key") as node:
                assert node == ring.candidates("key")[0]
                assert sum(loads.loads(ring).values()) == 1
            assert sum(loads.loads(ring).values()) == 0
        assert proxy.cuts == 4
        loads.close()


def test_a_place_whose_admission_was_not_answered_ends_by_itself(stores):
    ring = HashRing(["a"], limit=1)
    with FaultProxy(stores[0].port) as proxy:
        client = redis.Redis(port=proxy.port, socket_timeout=20, retry=ONCE)
        loads = RedisLoads(client, "unanswered", ttl=2.0)
        with loads.admit(ring, "warm"):
            pass
        proxy.cut(down=0)
        with pytest.raises(redis.ConnectionError), loads.admit(ring, "key"):
            pytest.fail("there was no answer")
        assert loads.loads(ring) == {"a": 1}  # it is held: too few are admitted, never too many
        until(lambda: loads.loads(ring) == {"a": 0})
        with loads.admit(ring, "key"):
            client.script_flush()
            assert loads.loads(ring) == {"a": 1}
        loads.close()


def test_a_redis_that_restarts_empty_learns_the_places_again(tmp_path):
    ring = HashRing(["a", "b"], limit=2)
    with running(redis_server, 1, tmp_path) as (server,):
        client = redis.Redis(port=server.port, socket_timeout=2, retry=ONCE)
        loads = RedisLoads(client, "again", ttl=0.9)
        with loads.admit(ring, "key"), loads.admit(ring, "key"), loads.admit(ring, "key"):
            before = loads.loads(ring)
            server.kill()
            server.start()
            until(lambda: loads.loads(ring) == before)  # within ttl / 3
        assert sum(loads.loads(ring).values()) == 0
        loads.close()


def test_loads_that_redis_refuses_say_why(stores):
    ring = HashRing(["a"], limit=1)
    client = redis.Redis(port=stores[0].port, socket_timeout=2, retry=ONCE)
    client.set("{wrong}:a", "text")
    with (
        pytest.raises(redis.ResponseError, match="WRONGTYPE") as caught,
        RedisLoads(client, "wrong").admit(ring, "key"),
    ):
        pass
    assert "keys {wrong}:*: Something else lies under the key: delete that" in caught.value.__notes__[0]

    async def test():
        async with redis.asyncio.Redis(port=stores[0].port, retry=AsyncRetry(NoBackoff(), 0)) as own:
            with pytest.raises(redis.ResponseError) as caught:
                async with AsyncRedisLoads(own, "wrong").admit(ring, "key"):
                    pass
            assert "delete that" in caught.value.__notes__[0]
            async with fleet(1) as (inner, _, replicas):  # a router goes on by counts of its own
                router = Router(RouterConfig(list(replicas), limit=1, loads=AsyncRedisLoads(own, "wrong")))
                await own.set("{wrong}:" + next(iter(replicas)), "text")
                place = await router.pools["default"].admit(RequestKey("key", (1,)))
                assert place.name in inner.ring.names
                place.release()
                assert router.status()["shared_errors"] == 1
                await router.close()

    go(test())


# --- the router --------------------------------------------------------------------------------------------


def test_a_silent_replica_is_a_504_in_time_and_serves_again(tmp_path):
    async def test():
        async with fleet(1) as (_, _, replicas):
            port = int(next(iter(replicas)).rpartition(":")[2])
            with FaultProxy(port) as proxy:
                router = Router(RouterConfig([f"http://{proxy.name}"], read_timeout=1.0, backoff=QUICK))
                async with (
                    served(router) as base,
                    httpx.AsyncClient(base_url=base, trust_env=False, timeout=60) as client,
                ):
                    assert (await client.get("/a")).status_code == 200
                    proxy.freeze()
                    begun = time.monotonic()
                    answer = await client.get("/a")
                    assert (answer.status_code, time.monotonic() - begun < 30) == (504, True)
                    assert router.status()["in_flight"] == 0
                    proxy.thaw()
                    assert (await client.get("/a")).status_code == 200
                    proxy.delay = 0.05  # slow is not dead
                    assert (await client.post("/a", content=b"x")).status_code == 200
                    assert set(router.ring.states.values()) == {"up"}

    go(test())
