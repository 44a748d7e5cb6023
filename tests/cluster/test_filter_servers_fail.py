"""Filters on Redis, and servers that fail in one particular way each: what was wrong once, what is promised.

test_redis_faults.py has what is wrong *under* a filter's keys; test_fault_study.py cuts at random. Here: slow
and silent servers, restarts with data, replicas, a cluster's failover, threads that end, signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio
from fault_proxy import FaultProxy
from filter_servers import HOST, Server, cluster_of, running
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry
from router_servers import until

from evenbins.cluster import AsyncRedisFilter, FilterMissingError, RedisFilter, RedisFilterError
from evenbins.filters import FilterPlan
from evenbins.study.levels import plan_levels

MANY = np.arange(200)


def plan() -> FilterPlan:
    return plan_levels(
        400, policy="multilevel", blocks=(17, 6), thresholds=(12, 11), hashes=7, overflow_limit=400
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with server.client() as found:
        found.flushall()
        yield found


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.port) as found:
        yield found


def made(client: Any, **options: Any) -> RedisFilter:
    shared = RedisFilter.create(client, "x", plan(), segment_bytes=256, **options)
    shared.add_many(MANY)
    return shared


# --- the proxy ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "reset", "hang"])
def test_the_proxy_lets_exactly_a_prefix_pass(how: str) -> None:
    """Before a server that answers whatever it gets by the same, twice."""
    line, got = b"hello\n", []  # what each connection brought
    listener = socket.create_server((HOST, 0))

    def serve(near: socket.socket, mine: bytearray) -> None:
        with near, contextlib.suppress(OSError):
            while data := near.recv(100):
                mine += data
                near.sendall(2 * data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                got.append(bytearray())
                threading.Thread(target=serve, args=(near, got[-1]), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    ways = (("up", 0), ("up", 3), ("down", 0), ("down", 9), ("up", 6), ("down", 12))
    with listener, FaultProxy(listener.getsockname()[1]) as proxy:
        for number, (way, size) in enumerate(ways):
            comes = number < 4  # else the byte after the last one never comes
            proxy.cut(**{way: size}, how=how)
            brought = line[: size if way == "up" else 6]
            answered = (2 * brought)[: size if way == "down" else 12]
            with socket.create_connection((HOST, proxy.port), timeout=20) as near:
                near.sendall(line)
                until(lambda comes=comes: not (comes and proxy.pending))
                # A cut ends both ways, a reset overtakes what came before it: then less may arrive.
                exact = not comes or (way == "down" and how != "reset")
                found = read_all(near, len(answered) if exact else 0)
            until(lambda n=number, b=brought: len(got) > n and (how == "reset" or got[n] == b))
            assert line.startswith(bytes(got[number]))
            assert found == answered if exact else answered.startswith(found)
            assert proxy.pending is not comes
            proxy.heal()
        assert proxy.cuts == 4
        listener.shutdown(socket.SHUT_RDWR)


def read_all(near: socket.socket, expected: int) -> bytes:
    """Read until there is an end; or, once as many bytes have come as are expected, nothing for a while."""
    found = b""
    with contextlib.suppress(OSError):
        while True:
            near.settimeout(20 if len(found) < expected else 0.05)
            piece = near.recv(100)
            if not piece:
                break
            found += piece
    return found


def patiently(call: Callable[[], Any]) -> Any:
    """Repeat a call that times out: where timeouts are short, a busy machine may be slower."""
    answers: list[Any] = []

    def answered() -> bool:
        with contextlib.suppress(redis.TimeoutError):
            answers.append(call())
        return bool(answers)

    until(answered, seconds=60)
    return answers[0]


# --- slow and silent ---------------------------------------------------------------------------------------


def test_a_slow_server_answers_or_times_out(server: Server, client: Any, proxy: FaultProxy) -> None:
    made(client)
    with server.client(proxy.port) as patient:
        shared = RedisFilter.open(patient, "x")
        proxy.delay = 0.02
        assert shared.contains(7)
        assert shared.contains_many(MANY).all()
    proxy.delay = 0.0
    with server.client(proxy.port, socket_timeout=0.2) as hasty:
        shared = patiently(lambda: RedisFilter.open(hasty, "x"))
        proxy.delay = 0.6
        for call in (lambda: shared.contains(7), lambda: shared.contains_many(MANY), lambda: shared.add("a")):
            begun = time.monotonic()
            with pytest.raises(redis.TimeoutError):
                call()
            assert time.monotonic() - begun < 60
        proxy.delay = 0.0
        time.sleep(0.7)  # late answers come now: to nobody
        absent = [key for key in range(1000, 1200) if not patiently(lambda key=key: shared.contains(key))]
        assert len(absent) > 150
        assert not any(patiently(lambda key=key: shared.contains(key)) for key in absent)
        assert patiently(lambda: shared.contains_many(MANY)).all()


def test_silence_is_a_timeout_and_what_is_late_is_not_taken_for_another_answer(
    server: Server, client: Any, proxy: FaultProxy
) -> None:
    direct = made(client)
    absent = [key for key in range(1000, 1100) if not direct.contains(key)]
    with server.client(proxy.port, socket_timeout=0.1) as weak:
        shared = patiently(lambda: RedisFilter.open(weak, "x"))
        for _ in range(5):
            proxy.freeze()
            with pytest.raises(redis.TimeoutError):
                shared.contains(MANY[3].item())
            proxy.thaw()
            assert not any(patiently(lambda key=key: shared.contains(key)) for key in absent[:10])
            assert all(patiently(lambda key=key: shared.contains(key)) for key in MANY[:10].tolist())


# --- threads and signals -----------------------------------------------------------------------------------


def test_threads_that_end_give_their_connections_back(server: Server, client: Any) -> None:
    """150 threads, each once; a pool has 100 connections by default, a thread keeps one while it lives."""
    shared: RedisFilter | None = made(client)
    errors: list[Exception] = []

    def ask(mine: RedisFilter) -> None:
        try:
            assert mine.contains(7)
        except Exception as error:
            errors.append(error)

    for _ in range(150):
        thread = threading.Thread(target=ask, args=(shared,))
        thread.start()
        thread.join()
    assert not errors
    assert client.info("clients")["connected_clients"] < 10
    kept = client.connection_pool._in_use_connections
    assert len(kept) == 1  # this thread's, of adding
    shared = None
    gc.collect()
    assert len(kept) == 0  # nobody has the filter


class _AlarmError(Exception):
    pass


def test_an_exception_between_sending_and_reading_leaves_no_answer_behind(client: Any) -> None:
    """As a signal's handler raises it (Ctrl-C, a time limit): the next call must not read this reply.

    test_cluster_interrupted.py does this before every line of a call.
    """
    shared = made(client)
    absent = next(key for key in range(1000, 2000) if not shared.contains(key))
    connection = shared._servers._connection(client.connection_pool).connection
    send = connection.send_packed_command

    def interrupted(*arguments: Any, **options: Any) -> None:
        send(*arguments, **options)
        raise _AlarmError

    for first, second in ((7, absent), (absent, 7)):
        connection.send_packed_command = interrupted
        with pytest.raises(_AlarmError):
            shared.contains(first)
        connection.send_packed_command = send
        assert shared.contains(second) is (second == 7)


def test_asyncio_leaves_nothing_under_way_after_an_error() -> None:
    async def test() -> None:
        with (
            running() as one,
            running() as two,
            FaultProxy(one.port) as first,
            FaultProxy(two.port) as second,
        ):
            options: dict[str, Any] = {"socket_timeout": 20, "retry": AsyncRetry(NoBackoff(), 0)}
            clients = [redis.asyncio.Redis(host=HOST, port=each.port, **options) for each in (first, second)]
            shared = await AsyncRedisFilter.create(clients, "x", plan(), segment_bytes=256)
            await shared.add_many(MANY)
            first.cut(down=0)
            second.delay = 0.3
            before = asyncio.all_tasks()
            with pytest.raises(redis.ConnectionError):
                await shared.contains_many(MANY)
            assert asyncio.all_tasks() == before
            second.delay = 0.0
            assert (await shared.contains_many(MANY)).all()
            for each in clients:
                await each.aclose()

    asyncio.run(asyncio.wait_for(test(), 120))


# --- restarts ----------------------------------------------------------------------------------------------


def test_a_server_killed_in_the_middle_of_adds_returns_with_all_that_was_acknowledged() -> None:
    """appendfsync always: the promise for who must not lose a key. Three kills, wherever the adds are."""
    with running("--appendonly", "yes", "--appendfsync", "always") as server, server.client() as client:
        shared = RedisFilter.create(client, "x", plan(), segment_bytes=256)
        acknowledged: list[int] = []
        for turn in range(3):
            killer = threading.Thread(target=kill_at, args=(server, acknowledged, 15 * turn + 15))
            killer.start()
            with contextlib.suppress(redis.ConnectionError):
                for key in itertools.count(1_000_000 * turn):  # until it is killed
                    shared.add(key)
                    acknowledged.append(key)
            killer.join()
            server.stop()
            server.start()
            assert shared.contains_many(acknowledged).all()
            assert all(shared.contains(key) for key in acknowledged[-20:])
        shared.to_local()._check()
        assert len(acknowledged) >= 45


def kill_at(server: Server, acknowledged: list[int], number: int) -> None:
    """Kill a server when so many adds have returned, wherever the next one is."""
    until(lambda: len(acknowledged) >= number)
    assert server.process is not None
    server.process.kill()


def test_a_snapshot_brings_an_older_state_of_the_same_filter_which_nobody_can_tell() -> None:
    """The limit that docs/redis.md states: the epoch tells another filter, not an older one."""
    with running() as server, server.client() as client:
        shared = made(client)
        client.save()
        shared.add_many(MANY + 5000)
        server.stop()
        server.start()
        assert shared.contains_many(MANY).all()
        assert shared.contains_many(MANY + 5000).mean() < 0.5
        shared.add_many(MANY + 5000)  # the way out: the source of the keys
        assert shared.contains_many(MANY + 5000).all()


def test_one_of_three_servers_returns_empty() -> None:
    with running() as one, running() as two, running() as three:
        servers = (one, two, three)
        shared = made([each.client() for each in servers])
        three.stop()
        answers = []
        for key in MANY.tolist():
            try:
                answers.append(shared.contains(key))
            except redis.ConnectionError:
                continue
        assert all(answers)
        assert 0 < len(answers) < len(MANY)
        three.start()
        with pytest.raises(FilterMissingError, match="is missing"):
            shared.contains_many(MANY)
        with pytest.raises(FilterMissingError):
            shared.verify()


# --- names and scripts -------------------------------------------------------------------------------------


def test_a_creation_whose_reply_is_lost_is_not_taken_for_somebody_elses(
    client: Any, proxy: FaultProxy
) -> None:
    """A client that repeats (redis-py does by default) meets its own claim: SET NX would refuse it."""
    made(client).add("warm")  # the server knows the scripts
    with redis.Redis(host=HOST, port=proxy.port, retry=Retry(NoBackoff(), 3)) as weak:
        weak.ping()
        down = 0
        while True:
            proxy.cut(down=down)
            RedisFilter.create(weak, "y", plan(), segment_bytes=1024)
            assert RedisFilter.delete(client, "y")
            if proxy.pending:
                break
            down += 3  # an answer to a claim has four bytes
        assert proxy.cuts > 20
    with pytest.raises(RedisFilterError, match="already"):
        RedisFilter.create(client, "x", plan())


def test_scripts_are_taught_to_the_server_that_lacks_them_alone() -> None:
    with running() as one, running() as two:
        clients = [one.client(), two.client()]
        shared = made(clients)
        where = {key: shared._layout.server_of(segment_of(shared, key)) for key in MANY.tolist()}
        clients[0].script_flush()
        two.stop()
        served = [key for key, server in where.items() if server == 0][:5]
        assert served
        for key in served:
            shared.add(key)  # would once ask both servers to load the script
        with pytest.raises(redis.ConnectionError):
            shared.add(next(key for key, server in where.items() if server == 1))


def segment_of(shared: RedisFilter, key: int) -> int:
    from evenbins import digest
    from evenbins.cluster._one_key import Place

    return Place(shared._layout, digest(key, shared.seed), 0).segment


def test_scripts_flushed_all_the_time(server: Server, client: Any) -> None:
    shared = made(client)
    stop = threading.Event()

    def flush() -> None:
        with server.client() as own:
            while not stop.is_set():
                own.script_flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for key in range(300, 400):
            shared.add(key)
            assert shared.contains(key)
        shared.add_many(MANY + 1000)
        assert shared.contains_many(MANY + 1000).all()
    finally:
        stop.set()
        thread.join()


# --- servers that refuse -----------------------------------------------------------------------------------


def test_replicas_are_refused_since_they_lag_behind(server: Server, client: Any) -> None:
    shared = made(client)
    client.config_set("repl-diskless-sync-delay", 0)
    with running("--replicaof", f"{HOST} {server.port}") as replica, replica.client() as copy:
        deadline = time.monotonic() + 60
        while copy.info("replication")["master_link_status"] != "up" or not copy.exists("{x}:meta"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for call in (
            lambda: RedisFilter.open(copy, "x"),
            lambda: RedisFilter.create(copy, "y", plan()),
            lambda: asyncio.run(opened(replica.port)),
        ):
            with pytest.raises(RedisFilterError, match=f"replica of .*{server.port}.*client of the primary"):
                call()
        # One that becomes a replica later: writes say so at once, `verify` when asked.
        copy.replicaof("NO", "ONE")
        later = RedisFilter.open(copy, "x")
        copy.replicaof(HOST, server.port)
        while copy.info("replication")["master_link_status"] != "up":
            time.sleep(0.02)
        with pytest.raises(RedisFilterError, match="pass a client of its primary"):
            later.add("new")
        with pytest.raises(RedisFilterError, match="replica"):
            later.verify()
    shared.verify()


async def opened(port: int) -> None:
    async with redis.asyncio.Redis(host=HOST, port=port) as client:
        await AsyncRedisFilter.open(client, "x")


def test_a_full_server_says_what_to_do() -> None:
    with running() as server, server.client() as client:
        shared = made(client)
        client.config_set("maxmemory", "1mb")
        with pytest.raises(RedisFilterError, match="raise maxmemory or delete something"):
            shared.add_many(MANY + 9000)
        assert shared.contains_many(MANY).all()
        client.config_set("maxmemory", "0")
        shared.add_many(MANY + 9000)
        assert shared.contains_many(MANY + 9000).all()


def test_a_user_without_rights_is_told(server: Server, client: Any) -> None:
    made(client)
    client.acl_setuser("weak", enabled=True, nopass=True, keys=["*"], categories=["+@all", "-@scripting"])
    with (
        server.client(username="weak", password="") as weak,
        pytest.raises(RedisFilterError, match="more rights"),
    ):
        RedisFilter.open(weak, "x").add("a")
    client.acl_deluser("weak")


# --- a cluster ---------------------------------------------------------------------------------------------


def test_a_cluster_whose_node_is_replaced() -> None:
    """A replica takes over from a primary that was killed: bulk and single calls find it, and all keys."""
    with cluster_of(2) as servers, running("--cluster-enabled", "yes") as spare, spare.client() as copy:
        shared = made(redis.RedisCluster(host=HOST, port=servers[1].port, socket_timeout=5))
        number = servers[0].client().execute_command("CLUSTER MYID").decode()
        servers[0].client().config_set("repl-diskless-sync-delay", 0)
        for each in servers:
            copy.execute_command("CLUSTER", "MEET", HOST, each.port)
        deadline = time.monotonic() + 60
        while True:
            try:
                copy.execute_command("CLUSTER", "REPLICATE", number)
                break
            except redis.ResponseError:  # it has not heard of it
                assert time.monotonic() < deadline
                time.sleep(0.05)
        until(lambda: copy.info("replication").get("master_link_status") == "up")
        with servers[1].client() as witness:  # who will vouch for it
            until(lambda: str(spare.port) in str(witness.execute_command("CLUSTER", "REPLICAS", number)))
        servers[0].client().wait(1, 2000)
        servers[0].stop()
        copy.execute_command("CLUSTER", "FAILOVER", "TAKEOVER")
        deadline = time.monotonic() + 60
        while True:  # errors while the cluster settles, then answers, in bulk first
            try:
                assert shared.contains_many(MANY).all()
                break
            except (redis.RedisError, RedisFilterError):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        shared.add_many(MANY + 700)
        assert shared.contains_many(MANY + 700).all()
        assert all(shared.contains(key) for key in MANY[:20].tolist())


def test_a_cluster_that_forgot_its_scripts_in_asyncio() -> None:
    async def test(servers: list[Server]) -> None:
        async with redis.asyncio.RedisCluster(host=HOST, port=servers[0].port) as client:
            shared = await AsyncRedisFilter.create(client, "x", plan(), segment_bytes=256)
            await shared.add_many(MANY)
            for each in servers:
                each.client().script_flush()
            await shared.add_many(MANY + 500)
            assert (await shared.contains_many(np.concatenate([MANY, MANY + 500]))).all()

    with cluster_of(2) as servers:
        asyncio.run(asyncio.wait_for(test(servers), 120))
