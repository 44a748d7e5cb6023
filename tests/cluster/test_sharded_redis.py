"""Keys on real, independent Redis servers: clients for threads and for asyncio; servers die and return."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import redis
from fault_proxy import FaultProxy
from router_servers import redis_server, running, until

from evenbins import NoNodesError, RingFullError
from evenbins.cluster.health import Backoff, ServerDownError
from evenbins.cluster.sharded_redis import AsyncShardedRedis, ShardedRedis

QUICK = Backoff(first=0.05, factor=1.5, most=0.2)
KEYS = [f"key:{number}" for number in range(200)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with running(redis_server, 3, tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture
def names(servers):
    for each in servers:
        if not each.answers():
            each.start()
        redis.Redis(port=each.port).flushall()
    return [each.name for each in servers]


def test_commands_answer_as_redis_does(names):
    with ShardedRedis(names, decode_responses=True, timeout=20) as client:
        assert client.get("a") is None
        assert client.set("a", "1") is True
        assert client.set("a", "2", nx=True) is None
        assert client.set("a", "3", get=True) == "1"
        assert client.get("a") == "3"
        assert client.incr("n") == 1
        assert client.incr("n", 41) == 42
        assert client.expire("a", 100) is True
        assert 0 < client.ttl("a") <= 100
        assert client.ttl("none") == -2
        assert client.mset({key: key for key in KEYS}) is True
        assert client.mget([*KEYS, "none", KEYS[0]]) == [*KEYS, None, KEYS[0]]
        assert client.exists(*KEYS, KEYS[0], "none") == len(KEYS) + 1
        assert sorted(client.scan_iter("key:*")) == sorted(KEYS)
        assert client.delete(*KEYS, "none") == len(KEYS)
        pipe = (
            client.pipeline()
            .set("p", "1")
            .get("p")
            .incr("p", 4)
            .expire("p", 9)
            .exists("p")
            .delete("p")
            .get("p")
        )
        pipe.command("hset", "h", "field", "value")
        assert len(pipe) == 8
        assert pipe.execute() == [True, "1", 5, True, 1, 1, None, 1]
        assert pipe.execute() == []
        with pytest.raises(redis.ResponseError):
            client.pipeline().set("s", "text").incr("s").execute()
        answers = client.pipeline().set("s", "text").incr("s").get("s").execute(raise_on_error=False)
        assert [answers[0], answers[2]] == [True, "text"]


def test_the_asyncio_twin_answers_alike(names):
    async def run():
        async with AsyncShardedRedis(names, decode_responses=True, timeout=20) as client:
            assert await client.get("a") is None
            assert await client.set("a", "1") is True
            assert await client.set("a", "2", nx=True) is None
            assert await client.incr("n", 41) == 41
            assert await client.expire("a", 100) is True
            assert 0 < await client.ttl("a") <= 100
            assert await client.mset({key: key for key in KEYS}) is True
            assert await client.mget([*KEYS, "none"]) == [*KEYS, None]
            assert await client.exists(*KEYS, "none") == len(KEYS)
            assert sorted([key async for key in client.scan_iter("key:*")]) == sorted(KEYS)
            assert await client.delete(*KEYS) == len(KEYS)
            pipe = client.pipeline().set("p", "1").get("p").incr("p", 4).get("q")
            assert await pipe.execute() == [True, "1", 5, None]

    asyncio.run(run())


def test_both_put_keys_where_the_ring_says(servers, names):
    with ShardedRedis(names, timeout=20) as client:
        client.mset(dict.fromkeys(KEYS, "1"))
        for each in servers:
            assert redis.Redis(port=each.port).dbsize() == sum(
                client.server_for(key) == each.name for key in KEYS
            )
        twin = AsyncShardedRedis(names)
        assert [twin.server_for(key) for key in KEYS] == [client.server_for(key) for key in KEYS]


def test_a_password_is_no_part_of_a_name(servers):
    with ShardedRedis([f"redis://user:secret@127.0.0.1:{servers[0].port}/3"], timeout=20) as client:
        assert client.ring.names == (f"redis://127.0.0.1:{servers[0].port}/3",)
        assert "secret" not in repr(client.status())


def test_a_refused_server_changes_nothing(servers):
    """A wrong password for a server that is there, and a weight that the ring refuses."""
    urls = [f"redis://127.0.0.1:{each.port}" for each in servers]

    def refuse(client):
        clients = dict(client._clients)
        for url, weight in ((urls[0].replace("//", "//:wrong@"), 1.0), (urls[2], -5)):
            with pytest.raises(ValueError, match=r"already|weight"):
                client.add_server(url, weight)
            assert client._clients == clients

    with ShardedRedis(urls[:2], timeout=20) as client:
        refuse(client)
        client.mset(dict.fromkeys(KEYS, "1"))
        assert client.mget(KEYS) == [b"1"] * len(KEYS)
        client.add_server(urls[2])
        client.remove_server(urls[2])
        with pytest.raises(ValueError, match="weight"):
            client.add_server(urls[2], -5)
        client.add_server(urls[2])
        client.mset(dict.fromkeys(KEYS, "2"))
        assert client.mget(KEYS) == [b"2"] * len(KEYS)

    async def run():
        async with AsyncShardedRedis(urls[:2], timeout=20) as client:
            refuse(client)
            await client.mset(dict.fromkeys(KEYS, "3"))
            assert await client.mget(KEYS) == [b"3"] * len(KEYS)

    asyncio.run(run())


def test_keys_that_redis_takes_for_one_are_one(names):
    numbers = range(-20, 20)
    with ShardedRedis(names, timeout=20) as client:
        for number in numbers:
            text = str(number)
            assert len({client.server_for(each) for each in (number, text, text.encode())}) == 1
            assert client.set(number, text)
            assert client.get(text) == client.get(bytearray(text.encode())) == text.encode()
            assert client.incr(number) == number + 1
            assert client.expire(text, 100)
            assert 0 < client.ttl(number) <= 100
            assert client.exists(number, text, memoryview(text.encode())) == 3
            assert client.pipeline().get(number).incr(text, 4).delete(number).get(text).execute() == [
                str(number + 1).encode(), number + 5, 1, None,
            ]  # fmt: skip
        client.mset({number: number for number in numbers})
        assert client.mget(map(str, numbers)) == client.mget(numbers) == [b"%d" % each for each in numbers]
        assert client.delete(*map(str, numbers)) == len(numbers)
        assert client.mget([0, "0", b"0"]) == [None] * 3


@pytest.mark.parametrize("key", [True, 5.0, None, ("a", "b")])
def test_other_keys_are_refused_before_anything_is_sent(names, key):
    with ShardedRedis(names, timeout=20) as client:
        for call in (
            lambda: client.get(key), lambda: client.set(key, 1), lambda: client.delete("a", key),
            lambda: client.exists(key), lambda: client.expire(key, 1), lambda: client.ttl(key),
            lambda: client.incr(key), lambda: client.mget(["a", key]), lambda: client.mset({"a": 1, key: 1}),
            lambda: client.pipeline().get(key), lambda: client.server_for(key),
        ):  # fmt: skip
            with pytest.raises(TypeError, match=f"must be str, bytes or int, not {type(key).__name__}: pass"):
                call()
        assert client.get("a") is None


def test_the_asyncio_twin_converts_keys_too(names):
    async def run():
        async with AsyncShardedRedis(names, timeout=20) as client:
            for number in range(20):
                await client.set(number, "1")
                assert await client.get(str(number)) == b"1"
                assert await client.pipeline().get(bytearray(b"%d" % number)).execute() == [b"1"]
            with pytest.raises(TypeError, match="must be str, bytes or int, not float"):
                await client.get(5.0)

    asyncio.run(run())


@pytest.mark.parametrize(("given", "error"), [("a:1", TypeError), ([], ValueError), ([3], TypeError)])
def test_bad_servers_are_refused(given, error):
    with pytest.raises(error):
        ShardedRedis(given)


def test_a_key_waits_for_its_full_server(names):
    with ShardedRedis(names, limit=1, wait=0.05, timeout=20) as client:
        with client.ring.lease("a"), pytest.raises(RingFullError, match="at its limit"):
            client.set("a", "1")
        client.set("a", "1")


def test_pipelines_are_refused_as_servers():
    pipeline = redis.Redis().pipeline()
    for kind in (ShardedRedis, AsyncShardedRedis):
        for given in (pipeline, [pipeline]):
            with pytest.raises(TypeError, match=r"'host:port' or a URL|several addresses"):
                kind(given)


def one_key_each(client, names):
    """Return a key of each server, in this order."""
    return [next(key for key in KEYS if client.server_for(key) == name) for name in names]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_server_that_dies_under_its_part_of_a_pipeline_keeps_no_other_from_its_own(servers, names, first):
    """Its connection is cut before the reply; the parts of the others come before it and after it."""
    with FaultProxy(servers[0].port) as proxy:
        weak = [proxy.name, *names[1:]]
        with ShardedRedis(weak, protocol=2, timeout=20) as client:
            for raise_on_error in (True, False):
                order = weak[1 : first + 1] + weak[:1] + weak[first + 1 :]
                keys = one_key_each(client, order)
                for key in keys:
                    client.set(key, "0")
                proxy.cut(down=0)
                pipe = client.pipeline()
                for key in keys:
                    pipe.incr(key, 5)
                if raise_on_error:
                    with pytest.raises(ServerDownError, match=proxy.name):
                        pipe.execute()
                else:
                    answers = pipe.execute(raise_on_error=False)
                    assert isinstance(answers[first], ServerDownError)
                    assert answers[:first] + answers[first + 1 :] == [5, 5]
                assert len(pipe) == 0
                assert [client.get(key) for key in keys if key != keys[first]] == [b"5", b"5"]
                assert set(client.ring.lease_loads().values()) == {0}


def test_the_asyncio_pipeline_reports_each_server_too(servers, names):
    async def run():
        with FaultProxy(servers[0].port) as proxy:
            weak = [proxy.name, *names[1:]]
            async with AsyncShardedRedis(weak, protocol=2, timeout=20) as client:
                keys = one_key_each(client, weak)
                for key in keys:
                    await client.set(key, "0")
                proxy.cut(down=0)
                pipe = client.pipeline()
                for key in keys:
                    pipe.incr(key, 5)
                answers = await pipe.execute(raise_on_error=False)
                assert isinstance(answers[0], ServerDownError)
                assert answers[1:] == [5, 5]

    asyncio.run(run())


def test_a_refusal_of_one_server_keeps_no_other_from_its_values(servers, names):
    """`mset` on three servers of which one is a replica: the values of the other two are stored."""
    with ShardedRedis(names, timeout=20) as client:
        keys = one_key_each(client, names)
        direct = redis.Redis(port=servers[0].port)
        direct.replicaof("127.0.0.1", 1)
        try:
            with pytest.raises(redis.ResponseError):
                client.mset(dict.fromkeys(keys, "new"))
        finally:
            direct.replicaof("NO", "ONE")
        assert [client.get(key) for key in keys] == [None, b"new", b"new"]


def test_drained_servers_keep_their_keys(names):
    with ShardedRedis(names, timeout=20) as client:
        client.mset(dict.fromkeys(KEYS, "1"))
        name = names[0]
        mine = [key for key in KEYS if client.server_for(key) == name]
        assert client.drain(name) is True
        assert client.mget(mine) == [None] * len(mine)
        assert len(list(client.scan_iter())) == len(KEYS)
        client.undrain(name)
        assert client.mget(mine) == [b"1"] * len(mine)


def test_one_server_dies_under_threads_and_returns(servers, names):
    victim = servers[1]
    failed: list[BaseException] = []
    stop = threading.Event()
    with ShardedRedis(names, backoff=QUICK, wait=5.0, timeout=20) as client:
        before = {key: client.server_for(key) for key in KEYS}

        def work(number: int) -> None:
            counted = 0
            for turn in range(10**9):
                if stop.is_set():
                    break
                key = KEYS[(turn * 7 + number) % len(KEYS)]
                try:
                    client.set(key, str(turn))
                    client.mget([key, *KEYS[:20]])
                    client.delete(key)
                    client.incr("n:" + key)
                except ServerDownError as error:
                    counted += 1
                    if counted > 1 or error.server != victim.name:
                        failed.append(error)
                except BaseException as error:
                    failed.append(error)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for worker in workers:
            worker.start()
        time.sleep(0.3)
        victim.kill()
        until(lambda: client.ring.states[victim.name] == "down")
        during = {key: client.server_for(key) for key in KEYS}
        with pytest.raises(ServerDownError, match="a scan would miss its keys"):
            list(client.scan_iter())
        assert isinstance(list(client.scan_iter(partial=True)), list)
        victim.start()
        until(lambda: client.ring.states[victim.name] == "up")
        time.sleep(0.2)
        stop.set()
        for worker in workers:
            worker.join()
        assert failed == []
        assert all(during[key] == before[key] for key in KEYS if before[key] != victim.name)
        assert {key: client.server_for(key) for key in KEYS} == before
        assert client.status()["repeats"] > 0


def test_one_server_dies_under_tasks_and_returns(servers, names):
    victim = servers[2]

    async def run():
        failed: list[BaseException] = []
        stop = asyncio.Event()
        async with AsyncShardedRedis(
            names, backoff=QUICK, wait=5.0, flush_returning=True, timeout=20
        ) as client:
            before = {key: client.server_for(key) for key in KEYS}

            async def work(number: int) -> None:
                for turn in range(10**9):
                    if stop.is_set():
                        break
                    key = KEYS[(turn * 7 + number) % len(KEYS)]
                    try:
                        await client.set(key, str(turn))
                        await client.mget([key, *KEYS[:20]])
                    except BaseException as error:
                        failed.append(error)

            tasks = [asyncio.create_task(work(number)) for number in range(10)]
            await asyncio.sleep(0.2)
            victim.kill()
            while client.ring.states[victim.name] != "down":
                await asyncio.sleep(0.01)
            during = {key: client.server_for(key) for key in KEYS}
            await asyncio.to_thread(victim.start)
            while client.ring.states[victim.name] != "up":
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            stop.set()
            await asyncio.gather(*tasks)
            assert failed == []
            assert all(during[key] == before[key] for key in KEYS if before[key] != victim.name)
            assert {key: client.server_for(key) for key in KEYS} == before
            assert client.ring.lease_loads() == dict.fromkeys(names, 0)

    asyncio.run(asyncio.wait_for(run(), 200))


def test_a_cancelled_task_gives_its_place_back_and_leaves_no_answer_behind(servers, names):
    async def run():
        async with AsyncShardedRedis(names, timeout=5.0) as client:
            one, other = [each for each in KEYS if client.server_for(each) == servers[0].name][:2]
            await client.mset({one: "1", other: "2"})
            servers[0].stop()
            try:
                task = asyncio.create_task(client.get(one))
                await asyncio.sleep(0.1)
                assert client.ring.lease_loads()[servers[0].name] == 1
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert client.ring.lease_loads()[servers[0].name] == 0
            finally:
                servers[0].go_on()
            for _ in range(5):
                assert [await client.get(other), await client.get(one)] == [b"2", b"1"]

    asyncio.run(asyncio.wait_for(run(), 200))


def test_without_a_living_server_errors_say_so(tmp_path):
    with (
        running(redis_server, 1, tmp_path) as started,
        ShardedRedis([started[0].name], failures=1, timeout=20) as client,
    ):
        client.set("a", "1")
        started[0].kill()
        with pytest.raises((NoNodesError, ServerDownError)):
            client.get("a")
        with pytest.raises(NoNodesError, match=r"no server is left to ask: 127\.0\.0\.1:\d+ failed: .*rror"):
            client.incr("a")
        with pytest.raises(NoNodesError, match="no server is left to ask"):
            client.mget(["a"])
