"""What goes wrong on a network and on servers surfaces as an error, never as "absent"; repeating is safe."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio
from fault_proxy import FaultProxy
from filter_servers import HOST, Server, running

from evenbins import FilterPlan, filters
from evenbins.cluster import (
    AsyncRedisFilter,
    FilterDamagedError,
    FilterMissingError,
    PlanMismatchError,
    RedisFilter,
    RedisFilterError,
)
from evenbins.cluster._redis_servers import AsyncServers, Servers
from evenbins.cluster._segments import Layout
from evenbins.cluster.redis_plan import Counts
from evenbins.filters import plan_balanced, plan_blocked, plan_standard
from evenbins.study.levels import plan_levels

PLANS: dict[str, Callable[[], FilterPlan]] = {
    "standard": lambda: plan_standard(400, bits_per_key=10.1),
    "blocked": lambda: plan_blocked(400, bits_per_key=12),
    "multilevel": lambda: plan_levels(
        400, policy="multilevel", blocks=(17, 6), thresholds=(12, 11), hashes=7, overflow_limit=400
    ),
    "fill": lambda: plan_levels(400, policy="fill", blocks=(11, 6), thresholds=(90,), hashes=9),
    "two-choice": lambda: plan_levels(400, policy="two-choice", blocks=(21,), hashes=12),
}
MANY = np.arange(350)

CALLS: dict[str, Callable[[Any], object]] = {
    "contains": lambda f: [key in f for key in range(100)],
    "add": lambda f: [f.add(key) for key in range(1000, 1100)],
    "contains_many": lambda f: f.contains_many(MANY),
    "contains_few": lambda f: f.contains_many([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
    "add_many": lambda f: f.add_many(MANY + 1000),
    "add_new": lambda f: [f.add_new(key) for key in range(1000, 1100)],
    "add_new_many": lambda f: f.add_new_many(MANY + 1000),
    "to_local": lambda f: f.to_local(),
    "verify": lambda f: f.verify(),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with server.client() as found:
        found.flushall()
        yield found


def made(client: Any, name: str, segment_bytes: int = 65_408) -> RedisFilter:
    shared = RedisFilter.create(client, "x", PLANS[name](), segment_bytes=segment_bytes)
    shared.add_many(MANY)
    return shared


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", PLANS)
def test_an_empty_server_is_an_error(client: Any, name: str, call: str) -> None:
    shared = made(client, name)
    client.flushall()
    with pytest.raises(FilterMissingError, match="is missing"):
        CALLS[call](shared)
    with pytest.raises(FilterMissingError, match="there is no filter"):
        RedisFilter.open(client, "x")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", PLANS)
def test_a_filter_made_anew_under_the_name_is_an_error_for_those_who_had_the_old(
    client: Any, name: str, call: str
) -> None:
    old = made(client, name)
    RedisFilter.delete(client, "x")
    made(client, name)
    with pytest.raises(FilterDamagedError, match="another was made"):
        CALLS[call](old)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", PLANS)
def test_another_type_under_a_key_is_an_error(client: Any, name: str, call: str) -> None:
    shared = made(client, name)
    client.delete(shared._layout.segment_key(0))
    client.rpush(shared._layout.segment_key(0), "a")
    with pytest.raises(FilterDamagedError, match="another type"):
        CALLS[call](shared)
    with pytest.raises(FilterDamagedError, match="another type"):
        RedisFilter.open(client, "x")


@pytest.mark.parametrize("call", ["contains", "add", "add_new", "contains_many", "to_local", "verify"])
@pytest.mark.parametrize("name", PLANS)
def test_a_segment_cut_short_is_an_error(client: Any, name: str, call: str) -> None:
    shared = made(client, name)
    key = shared._layout.segment_key(0)
    client.set(key, client.get(key)[:100])
    with pytest.raises(FilterDamagedError):
        CALLS[call](shared)
    with pytest.raises(FilterDamagedError):
        RedisFilter.open(client, "x")


@pytest.mark.parametrize("name", PLANS)
def test_one_missing_segment_is_an_error_for_its_keys_and_for_opening(client: Any, name: str) -> None:
    shared = made(client, name, segment_bytes=64)
    assert shared.plan.segments > 5
    client.delete(shared._layout.segment_key(4))
    for call in ("contains_many", "add_many", "add_new_many", "to_local", "verify"):
        with pytest.raises(FilterMissingError, match=r"\{x:4\}"):
            CALLS[call](shared)
    answers = []
    for key in range(300):
        with contextlib.suppress(FilterMissingError):
            answers.append(key in shared)
    assert all(answers)  # present, or an error
    with pytest.raises(FilterMissingError):
        RedisFilter.open(client, "x")


def opened(client: Any) -> None:
    RedisFilter.open(client, "x")


def opened_in_asyncio(client: Any) -> None:
    async def use() -> None:
        async with redis.asyncio.Redis(host=HOST, port=port_of(client)) as own:
            await AsyncRedisFilter.open(own, "x")

    asyncio.run(use())


def verified_in_asyncio(clients: list[Any], layout: Layout) -> None:
    async def use() -> None:
        own = [redis.asyncio.Redis(host=HOST, port=port_of(each)) for each in clients]
        try:
            await AsyncRedisFilter(AsyncServers(own), layout, Counts()).verify()
        finally:
            for each in own:
                await each.aclose()

    asyncio.run(use())


def port_of(client: Any) -> int:
    return int(client.connection_pool.connection_kwargs["port"])


def test_the_list_is_checked_as_segments_are(client: Any) -> None:
    plan = plan_levels(
        100, policy="single", blocks=(2,), thresholds=(3,), hashes=5, block_bits=256, overflow_limit=200
    )
    shared = RedisFilter.create(client, "x", plan)
    shared.add_many(np.arange(100))
    key = shared._layout.list_key
    saved = client.hgetall(key)
    client.delete(key)
    for call in ("contains", "add", "contains_many", "add_many", "to_local", "verify"):
        with pytest.raises(FilterMissingError, match="list"):
            CALLS[call](shared)
    for opening in (opened, opened_in_asyncio):
        with pytest.raises(FilterMissingError, match=r"'\{x:list\}:list' is missing"):
            opening(client)
    client.hset(key, "epoch", b"another")
    for call in ("contains", "add", "contains_many", "add_many", "to_local", "verify"):
        with pytest.raises(FilterDamagedError, match="list"):
            CALLS[call](shared)
    for opening in (opened, opened_in_asyncio):
        with pytest.raises(FilterDamagedError, match=r"'\{x:list\}:list' does not hold a part"):
            opening(client)
    client.set(key, "text")
    with pytest.raises(FilterDamagedError, match="another type"):
        RedisFilter.open(client, "x")
    client.delete(key)
    client.hset(key, mapping=saved)
    assert RedisFilter.open(client, "x").contains_many(np.arange(100)).all()


def test_another_plan_is_an_error(client: Any) -> None:
    made(client, "blocked")
    assert RedisFilter.open(client, "x", plan=PLANS["blocked"]()).plan.filter == PLANS["blocked"]()
    with pytest.raises(PlanMismatchError, match="policy 'fill'"):
        RedisFilter.open(client, "x", plan=PLANS["fill"]())
    with pytest.raises(PlanMismatchError, match="another seed"):
        RedisFilter.open(client, "x", plan=plan_blocked(400, bits_per_key=12, seed=1))


def test_descriptions_that_are_none(client: Any) -> None:
    made(client, "blocked")
    key = "{x}:meta"
    saved = client.get(key)
    client.set(key, saved.replace(b"400", b"500"))
    with pytest.raises(FilterDamagedError, match="checksum"):
        RedisFilter.open(client, "x")
    client.delete(key)
    client.rpush(key, 1)
    with pytest.raises(FilterDamagedError, match="another type"):
        RedisFilter.open(client, "x")


def test_verify_reads_the_description_of_every_server(client: Any) -> None:
    with running() as second, second.client() as other:
        clients = [client, other]
        shared = RedisFilter.create(clients, "x", PLANS["multilevel"](), segment_bytes=128)
        shared.add_many(MANY)
        layout, key = shared._layout, "{x}:meta"

        def fails(error: type[RedisFilterError], words: str) -> None:
            for call in (shared.verify, lambda: verified_in_asyncio(clients, layout)):
                with pytest.raises(error, match=words):
                    call()

        for number, each in enumerate(clients):
            saved = each.get(key)
            each.delete(key)
            fails(FilterMissingError, rf"'\{{x\}}:meta' is missing on server {number}")
            each.rpush(key, 1)
            fails(FilterDamagedError, "another type")
            each.set(key, saved.replace(b"400", b"500"))
            fails(FilterDamagedError, "checksum")
            for wrong in (
                layout.meta(1 - number, ready=True),
                layout.meta(number, ready=False),
                replace(layout, epoch=bytes(16)).meta(number, ready=True),
                replace(layout, segment_bytes=256).meta(number, ready=True),
                replace(layout, servers=3).meta(number, ready=True),
                replace(layout, plan=PLANS["fill"]()).meta(number, ready=True),
            ):
                each.set(key, wrong)
                fails(FilterDamagedError, r"'\{x\}:meta' does not hold a part")
            each.set(key, saved)
        shared.verify()
        verified_in_asyncio(clients, layout)
        RedisFilter.open(clients, "x").verify()


@pytest.mark.parametrize("name", PLANS)
def test_a_filter_without_its_description_is_written_back_as_verify_says(client: Any, name: str) -> None:
    shared = made(client, name)
    client.delete("{x}:meta")
    with pytest.raises(FilterMissingError, match=r"Fetch it with `to_local`, delete it, .* `from_local`"):
        shared.verify()
    local = shared.to_local()
    RedisFilter.delete(client, "x")
    RedisFilter.from_local(client, "x", local).verify()
    again = RedisFilter.open(client, "x")
    again.verify()
    assert again.to_local().to_bytes() == local.to_bytes()


def test_a_name_is_taken_once_and_a_creation_cut_short_is_no_filter(client: Any) -> None:
    shared = made(client, "fill")
    with pytest.raises(RedisFilterError, match="already"):
        RedisFilter.create(client, "x", PLANS["fill"]())
    client.set("{x}:meta", shared._layout.meta(0, ready=False))
    with pytest.raises(FilterMissingError, match="interrupted"):
        RedisFilter.open(client, "x")
    assert RedisFilter.delete(client, "x")
    assert client.dbsize() == 0


def test_servers_in_another_order_or_number(client: Any, server: Server) -> None:
    with running() as second, second.client() as other:
        RedisFilter.create([client, other], "x", PLANS["multilevel"](), segment_bytes=128)
        with pytest.raises(PlanMismatchError, match="order"):
            RedisFilter.open([other, client], "x")
        with pytest.raises(PlanMismatchError, match="2 servers"):
            RedisFilter.open(client, "x")
        with pytest.raises(PlanMismatchError, match="2 servers"):
            RedisFilter.delete(other, "x")
        other.flushall()
        with pytest.raises(FilterMissingError, match=r"servers number \[1\]"):
            RedisFilter.open([client, other], "x")
        # The claim on the first server does not outlive a name that is taken on the second.
        client.flushall()
        RedisFilter.create(other, "y", PLANS["blocked"]())
        with pytest.raises(RedisFilterError, match="already"):
            RedisFilter.create([client, other], "y", PLANS["blocked"]())
        assert client.dbsize() == 0


def test_a_server_that_forgot_its_scripts_learns_them_again(client: Any) -> None:
    for name in PLANS:
        client.flushall()
        shared, local = made(client, name), filters.build(PLANS[name]())
        local.add_many(MANY)
        for call in (lambda f: f.add(7000), lambda f: f.add_many(MANY + 5000), lambda f: 7000 in f):
            client.script_flush()
            call(shared)
            call(local)
        assert shared.to_local().to_bytes() == local.to_bytes()


def test_a_restarted_server_is_an_error() -> None:
    with running() as server, server.client() as client:
        shared = made(client, "multilevel")
        server.stop()
        for call in CALLS:
            with pytest.raises(redis.ConnectionError):
                CALLS[call](shared)
        server.start()
        for call in CALLS:
            with pytest.raises(FilterMissingError):
                CALLS[call](shared)


@pytest.mark.parametrize("name", PLANS)
def test_a_connection_cut_in_the_middle_and_the_call_repeated(server: Server, client: Any, name: str) -> None:
    """Cut after more and more bytes; each time the call is repeated: bytes as if nothing had been."""
    plan, local = PLANS[name](), filters.build(PLANS[name]())
    RedisFilter.create(client, "x", plan, segment_bytes=256)
    cuts = 0  # some of them are repeated on a new connection, and nobody notices
    for turn in range(8):
        keys = np.arange(40 * turn, 40 * turn + 40)
        with FaultProxy(server.port) as proxy, server.client(proxy.port) as weak:
            proxy.cut(up=2500 + 1500 * turn)
            with contextlib.suppress(redis.ConnectionError):
                shared = RedisFilter.open(weak, "x")
                shared.add_many(keys)
                for key in keys.tolist():
                    shared.add(key)
            cuts += proxy.cuts
        direct = RedisFilter.open(client, "x")
        direct.add_many(keys)
        local.add_many(keys)
        found = direct.to_local()
        found._check()
        assert found.to_bytes() == local.to_bytes()
    assert cuts >= 4


def hasty(shared: RedisFilter, client: Any) -> RedisFilter:
    """Use a filter by another client, without asking for anything: its timeout may be short."""
    return RedisFilter(Servers(client), shared._layout, Counts())


def test_timeouts_surface(server: Server, client: Any) -> None:
    shared = made(client, "multilevel")
    with FaultProxy(server.port) as proxy:
        proxy.freeze()
        with server.client(proxy.port, socket_timeout=0.05) as weak:
            for call in (lambda f: f.add("a"), lambda f: f.contains("a"), lambda f: f.contains_many(MANY)):
                with pytest.raises(redis.TimeoutError):
                    call(hasty(shared, weak))
        proxy.thaw()
        with server.client(proxy.port) as patient:
            hasty(shared, patient).add("a")
    assert "a" in shared


def test_timeouts_surface_in_asyncio(server: Server, client: Any) -> None:
    direct = made(client, "multilevel")

    async def use(proxy: FaultProxy) -> None:
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        options: dict[str, Any] = {"host": HOST, "port": proxy.port, "retry": Retry(NoBackoff(), 0)}
        proxy.freeze()
        async with redis.asyncio.Redis(**options, socket_timeout=0.1) as weak:
            shared = AsyncRedisFilter(AsyncServers(weak), direct._layout, Counts())
            with pytest.raises(redis.TimeoutError):
                await shared.add("a")
        proxy.thaw()
        async with redis.asyncio.Redis(**options, socket_timeout=20) as patient:
            shared = await AsyncRedisFilter.open(patient, "x")
            await shared.add("a")
            client.flushall()
            with pytest.raises(FilterMissingError):
                await shared.contains("a")
            with pytest.raises(FilterMissingError):
                await shared.add_many(MANY)

    with FaultProxy(server.port) as proxy:
        asyncio.run(use(proxy))


def test_a_server_out_of_memory_refuses_and_keeps_what_it_has() -> None:
    with (
        running("--maxmemory", "4mb", "--maxmemory-policy", "noeviction") as server,
        server.client() as client,
    ):
        shared = made(client, "multilevel")
        with pytest.raises(RedisFilterError, match="maxmemory"):
            RedisFilter.create(client, "large", plan_blocked(10_000_000, bits_per_key=16))
        for call in ("add", "add_many", "add_new", "add_new_many"):
            with pytest.raises(RedisFilterError, match="may be repeated"):
                CALLS[call](shared)
        assert shared.contains_many(MANY).all()
        assert RedisFilter.delete(client, "large")
        CALLS["add_many"](shared)
        assert shared.contains_many(MANY + 1000).all()
        shared.to_local()._check()


def test_eviction_is_refused_or_declared() -> None:
    options = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with running(*options) as server, server.client() as client:
        with pytest.raises(RedisFilterError, match="allkeys-lru"):
            RedisFilter.create(client, "x", PLANS["blocked"]())
        RedisFilter.create(client, "x", PLANS["blocked"](), allow_eviction=True)
        with pytest.raises(RedisFilterError, match="allow_eviction"):
            RedisFilter.open(client, "x")
        client.config_set("maxmemory-policy", "volatile-lru")  # keys of filters never expire
        RedisFilter.open(client, "x")


def test_a_server_that_hides_its_settings_gets_a_warning() -> None:
    with running("--rename-command", "CONFIG", "") as server, server.client() as client:
        with warnings.catch_warnings(record=True) as met:
            warnings.simplefilter("always")
            shared = RedisFilter.create(client, "x", PLANS["blocked"]())
            RedisFilter.open(client, "x")
            RedisFilter.from_local(client, "y", filters.BlockedBloomFilter(100, fpr=0.01))
        assert all("eviction policy" in str(each.message) for each in met)
        assert [each.filename for each in met] == 3 * [__file__]  # whoever called us
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            shared.add("a")
            assert "a" in shared


@pytest.mark.parametrize("name", PLANS)
def test_many_clients_at_once_lose_nothing(server: Server, client: Any, name: str) -> None:
    """Four threads with connections of their own, single and bulk adds, half of the keys in common."""
    wide = plan_balanced(6000, bits_per_key=20, policy=name) if name in ("multilevel", "fill") else None
    shared = RedisFilter.create(client, "x", wide or PLANS[name](), segment_bytes=4096)
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            with server.client() as own:
                mine = RedisFilter.open(own, "x")
                for start in range(0, 3000, 600):
                    keys = np.arange(start, start + 600) + 1500 * number
                    mine.add_many(keys[:500])
                    for key in keys[500:].tolist():
                        mine.add(key)
                    assert mine.contains_many(keys).all()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    keys = np.arange(1500 * 3 + 3000)
    assert shared.contains_many(keys).all()
    local = shared.to_local()
    local._check()
    assert local.contains_many(keys).all()
    if name == "multilevel":
        # Only keys present by accident are not counted; and only those twice that two clients found no room
        # for at the same time, so that each forced them into a block of its choice.
        found = local.stats()
        assert len(keys) * (1 - 20 * found.fpr) - 5 <= found.keys <= len(keys) * (1 + found.spilled) + 1
