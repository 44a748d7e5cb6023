"""A filter on a real server does what the local one does, to the last byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio
from filter_servers import HOST, Server, cluster_of, running
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.cluster import LoadBalancingStrategy

from evenbins import BalancedBloomFilter, BlockedBloomFilter, BloomFilter, FilterPlan, filters
from evenbins.cluster import AsyncRedisFilter, RedisFilter, RedisFilterError, _leases, _many_keys
from evenbins.filters import plan_balanced, plan_blocked, plan_standard
from evenbins.study.levels import plan_levels

PLANS: dict[str, Callable[[], FilterPlan]] = {
    "standard": lambda: plan_standard(400, bits_per_key=10.1),
    "blocked": lambda: plan_blocked(400, bits_per_key=12, seed=3),
    "blocked-256": lambda: plan_blocked(400, bits_per_key=12, block_bits=256),
    "single": lambda: plan_levels(
        400, policy="single", blocks=(40,), thresholds=(8,), coin=0.5, hashes=5, overflow_limit=300
    ),
    "multilevel": lambda: plan_levels(
        400, policy="multilevel", blocks=(17, 6, 2), thresholds=(12, 11, 0), coin=0.3, hashes=7,
        overflow_limit=400, seed=9,
    ),
    "multilevel-256": lambda: plan_levels(
        400, policy="multilevel", blocks=(33, 9), thresholds=(6, 300), hashes=20, block_bits=256,
        overflow_limit=300,
    ),
    "fill": lambda: plan_levels(
        400, policy="fill", blocks=(11, 6, 3), thresholds=(90, 200), hashes=9
    ),
    "two-choice": lambda: plan_levels(400, policy="two-choice", blocks=(21,), hashes=12),
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with server.client() as found:
        found.flushall()
        yield found


def same_bytes(shared: Any, local: Any) -> None:
    found = shared.to_local()
    found._check()
    assert found == local
    assert found.to_bytes() == local.to_bytes()


@pytest.mark.parametrize("swap_from", [4, 10**9])
@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=7)
@given(
    batches=st.lists(st.lists(st.integers(0, 500), max_size=90), max_size=5),
    singly=st.lists(st.integers(0, 500), max_size=12),
    segment_bytes=st.sampled_from([64, 256, 65_408]),
    traverse_on=st.sampled_from(["client", "server"]),
)
def test_the_same_keys_in_the_same_order_give_the_same_bytes(
    server: Server,
    name: str,
    swap_from: int,
    batches: list[list[int]],
    singly: list[int],
    segment_bytes: int,
    traverse_on: str,
) -> None:
    plan = PLANS[name]()
    local = filters.build(plan)
    before, _many_keys.SWAP_FROM = _many_keys.SWAP_FROM, swap_from  # type: ignore[misc]
    try:
        with server.client() as client:
            client.flushall()
            shared = RedisFilter.create(
                client, "x", plan, segment_bytes=segment_bytes, traverse_on=traverse_on
            )
            for batch in batches:
                shared.add_many(batch)
                local.add_many(batch)
                same_bytes(shared, local)
            for key in singly:
                shared.add(key)
                local.add(key)
            same_bytes(shared, local)
            asked = np.arange(600)
            answers = shared.contains_many(asked)
            assert (answers == local.contains_many(asked)).all()
            assert [key in shared for key in range(470, 530)] == answers[470:530].tolist()
    finally:
        _many_keys.SWAP_FROM = before  # type: ignore[misc]


@pytest.mark.parametrize("spill", ["least", "random"])
@pytest.mark.parametrize("limit", [0, 7])
@pytest.mark.parametrize("traverse_on", ["client", "server"])
def test_spilled_keys_lie_where_the_local_filter_has_them(
    client: Any, spill: str, limit: int, traverse_on: str
) -> None:
    plan = plan_levels(
        100, policy="multilevel", blocks=(5, 2), thresholds=(4, 4), hashes=5, block_bits=256,
        overflow_limit=limit, spill=spill,
    )  # fmt: skip
    local = filters.build(plan)
    shared = RedisFilter.create(client, "x", plan, segment_bytes=64, traverse_on=traverse_on)
    for key in range(80):
        shared.add(key)
        local.add(key)
    same_bytes(shared, local)
    assert local.stats().spilled > 0.1
    assert shared.contains_many(np.arange(80)).all()


@pytest.mark.parametrize("traverse_on", ["client", "server"])
def test_keys_that_find_every_level_full_lie_where_the_local_filter_has_them(
    client: Any, traverse_on: str
) -> None:
    """Of a "fill" filter whose last level has a threshold: one by one, then a batch in which none spills."""
    plan = plan_levels(100, policy="fill", blocks=(5, 2), thresholds=(40, 50), hashes=5, block_bits=256)
    local = filters.build(plan)
    shared = RedisFilter.create(client, "x", plan, segment_bytes=64, traverse_on=traverse_on)
    shared.add_many(np.arange(20))
    local.add_many(np.arange(20))
    same_bytes(shared, local)
    for key in range(20, 120):
        shared.add(key)
        local.add(key)
    same_bytes(shared, local)
    fewest = min(row[1] for table in local._histograms() for row in table.tolist())
    assert fewest > 50, "every level is full"
    asked = np.arange(400)
    assert (shared.contains_many(asked) == local.contains_many(asked)).all()
    assert shared.contains_many(asked[:120]).all()


@pytest.mark.parametrize(
    "make_plan",
    [
        lambda: plan_levels(
            100, policy="multilevel", blocks=(5, 2), thresholds=(4, 4), hashes=5, block_bits=256,
            overflow_limit=7,
        ),
        lambda: plan_levels(
            100, policy="fill", blocks=(5, 2), thresholds=(40, 50), hashes=5, block_bits=256
        ),
    ],
    ids=["multilevel", "fill"],
)  # fmt: skip
def test_bulk_adds_beyond_all_room_lose_nothing(client: Any, make_plan: Callable[[], FilterPlan]) -> None:
    """There bytes may differ from the local filter's, answers for added keys never."""
    shared = RedisFilter.create(client, "x", make_plan(), segment_bytes=64)
    shared.add_many(np.arange(90))
    assert shared.contains_many(np.arange(90)).all()
    assert all(key in shared for key in range(90))
    found = shared.to_local()
    found._check()
    assert found.contains_many(np.arange(90)).all()


@pytest.mark.parametrize("name", PLANS)
def test_a_local_filter_moves_to_the_server_and_back(client: Any, name: str) -> None:
    local = filters.build(PLANS[name]())
    local.add_many(np.arange(380))
    local.add(0)
    shared = RedisFilter.from_local(client, "x", local, segment_bytes=256)
    same_bytes(shared, local)
    for key in range(380, 420):
        shared.add(key)
        local.add(key)
    same_bytes(RedisFilter.open(client, "x"), local)


def test_a_merged_filter_keeps_its_counts_when_it_moves(client: Any) -> None:
    plan = PLANS["multilevel"]()
    local, other = filters.build(plan), filters.build(plan)
    local.add_many(np.arange(300))
    other.add_many(np.arange(200, 500))
    local |= other
    same_bytes(RedisFilter.from_local(client, "x", local), local)


def test_digest_zero_can_be_listed(client: Any) -> None:
    plan = plan_levels(
        10, policy="single", blocks=(1,), thresholds=(0,), hashes=3, block_bits=256, overflow_limit=5
    )
    local, digests = filters.build(plan), np.array([0, 5, 0, 6], np.uint64)
    shared = RedisFilter.create(client, "x", plan)
    shared.add_many(digests, digests=True)
    local.add_many(digests, digests=True)
    same_bytes(shared, local)
    assert shared.contains_many(digests.reshape(2, 2), digests=True).tolist() == [[True] * 2] * 2


def test_two_choices_of_few_keys_in_a_large_filter(client: Any) -> None:
    plan = plan_balanced(200_000, bits_per_key=16, policy="two-choice")
    shared, local = RedisFilter.create(client, "x", plan, segment_bytes=8192), filters.build(plan)
    for start in range(0, 900, 300):
        keys = np.arange(start, start + 300)
        shared.add_many(keys)
        local.add_many(keys)
    same_bytes(shared, local)


def test_keys_of_every_sort(client: Any) -> None:
    shared = RedisFilter.create(client, "x", plan_blocked(100, fpr=1e-9, seed=5))
    shared.update(["a", b"b", 3], np.array([2**63], np.uint64))
    shared.add(-1)
    assert all(key in shared for key in ("a", "b", 3, 2**63, -1))
    assert "c" not in shared
    assert shared.contains_many(["a", "zz"]).tolist() == [True, False]
    assert shared.contains_many([]).tolist() == []
    shared.add_many([])
    with pytest.raises(TypeError, match="many keys"):
        shared.add_many("abc")
    with pytest.raises(TypeError):
        shared.add(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threads"):
        shared.add_many([1], threads=0)


def test_several_independent_servers() -> None:
    with running() as one, running() as two, one.client() as a, two.client() as b:
        for name, plan in PLANS.items():
            local = filters.build(plan())
            shared = RedisFilter.create([a, b], name, plan(), segment_bytes=128)
            keys = np.arange(300)
            shared.add_many(keys)
            local.add_many(keys)
            for key in range(300, 340):
                shared.add(key)
                local.add(key)
            same_bytes(RedisFilter.open([a, b], name), local)
            assert all(key in shared for key in range(290, 340))
        assert 0.7 < a.dbsize() / b.dbsize() < 1.5
        with pytest.raises(ValueError, match="traverse_on"):
            RedisFilter.open([a, b], "fill", traverse_on="server")
        with pytest.raises(ValueError, match="traverse_on"):
            RedisFilter.create(a, "y", PLANS["fill"](), traverse_on="someone")
        assert RedisFilter.delete([a, b], "fill")
        assert not RedisFilter.delete([a, b], "fill")


def test_a_cluster() -> None:
    with cluster_of(3) as nodes, redis.RedisCluster(host=HOST, port=nodes[0].port) as cluster:
        for name in ("multilevel", "two-choice", "standard"):
            plan = PLANS[name]()
            local = filters.build(plan)
            shared = RedisFilter.create(cluster, name, plan, segment_bytes=64)
            keys = np.arange(300)
            shared.add_many(keys)
            local.add_many(keys)
            for key in range(300, 330):
                shared.add(key)
                local.add(key)
            same_bytes(RedisFilter.open(cluster, name), local)
            assert all(key in shared for key in range(290, 330))
        sizes = [int(each.client().dbsize()) for each in nodes]
        assert min(sizes) > 0
        asyncio.run(_ask_a_cluster(nodes[0].port, 300))
        strategy = LoadBalancingStrategy.ROUND_ROBIN
        replicas = redis.RedisCluster(host=HOST, port=nodes[0].port, load_balancing_strategy=strategy)
        with replicas, pytest.raises(ValueError, match="replicas"):
            RedisFilter.open(replicas, "multilevel")
        with pytest.raises(ValueError, match="traverse_on"):
            RedisFilter.open(cluster, "multilevel", traverse_on="server")
        # A slot moves to another node while clients are connected: they follow.
        moved = RedisFilter.open(cluster, "two-choice")
        _move_slot(nodes, cluster, moved._layout.segment_key(0))
        assert moved.contains_many(np.arange(300)).all()
        for key in (moved._layout.segment_key(1), _leases.lease_key(moved._layout)):
            _move_slot(nodes, cluster, key)
            assert not moved.add_new_many(np.arange(300)).any()
            _move_slot(nodes, cluster, key)
            assert not any(moved.add_new(key) for key in range(30))
        assert all(key in moved for key in range(300))
        assert RedisFilter.delete(cluster, "multilevel")


async def _ask_a_cluster(port: int, keys: int) -> None:
    async with redis.asyncio.RedisCluster(host=HOST, port=port) as cluster:
        for name in ("multilevel", "two-choice", "standard"):
            shared = await AsyncRedisFilter.open(cluster, name)
            assert (await shared.contains_many(np.arange(keys))).all()
            await shared.add("a")
            assert await shared.contains("a")


def _move_slot(nodes: list[Server], cluster: Any, key: str) -> None:
    slot = cluster.keyslot(key)
    owner = cluster.get_node_from_key(key).port
    source = next(each for each in nodes if each.port == owner)
    target = next(each for each in nodes if each.port != owner)
    ids = {each.port: each.client().execute_command("CLUSTER MYID").decode() for each in (source, target)}
    target.client().execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
    source.client().execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.port])
    for each in source.client().execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
        source.client().execute_command("MIGRATE", HOST, target.port, each, 0, 5000)
    for node in (target, source):
        node.client().execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target.port])


def test_the_asyncio_twin(server: Server, client: Any) -> None:
    async def use() -> None:
        async with redis.asyncio.Redis(host=HOST, port=server.port) as connection:
            for name, plan in PLANS.items():
                local = filters.build(plan())
                shared = await AsyncRedisFilter.create(connection, name, plan(), segment_bytes=128)
                await shared.add_many(np.arange(200))
                local.add_many(np.arange(200))
                for key in range(200, 230):
                    await shared.add(key)
                    local.add(key)
                found = await (await AsyncRedisFilter.open(connection, name)).to_local()
                assert found.to_bytes() == local.to_bytes()
                await asyncio.gather(*(shared.add(key) for key in range(230, 300)))
                for start in range(0, 300, 60):  # a pool has its limit
                    asked = (shared.contains(key) for key in range(start, start + 60))
                    assert all(await asyncio.gather(*asked))
                await shared.update(["a", "b"])
                assert (await shared.contains_many(["a", "b"])).all()
                stats = shared.stats()
                assert (stats.added, stats.found) == (100, 300)
                assert stats.bulk_keys == 204
                await shared.verify()
            assert await AsyncRedisFilter.delete(connection, "fill")
            moved = await AsyncRedisFilter.from_local(connection, "fill", local)
            assert (await moved.to_local()).to_bytes() == local.to_bytes()
            with pytest.raises(RedisFilterError, match="already"):
                await AsyncRedisFilter.create(connection, "fill", PLANS["fill"]())

    asyncio.run(use())


def test_the_asyncio_twin_on_several_servers(server: Server) -> None:
    async def use(other: Server) -> None:
        async with (
            redis.asyncio.Redis(host=HOST, port=server.port) as a,
            redis.asyncio.Redis(host=HOST, port=other.port) as b,
        ):
            shared = await AsyncRedisFilter.create([a, b], "both", PLANS["multilevel"](), segment_bytes=128)
            await shared.add_many(np.arange(300))
            assert (await shared.contains_many(np.arange(300))).all()

    with running() as other:
        asyncio.run(use(other))


def test_a_filter_shows_itself(client: Any) -> None:
    shared = RedisFilter.create(client, "x", BloomFilter(100).plan)
    assert repr(shared).startswith("RedisFilter(name='x', policy='standard'")
    assert shared.nbytes == client.strlen(shared._layout.segment_key(0))
    assert shared.name == "x"
    assert shared.seed == 0
    for each in (BlockedBloomFilter(10), BalancedBloomFilter(10)):
        assert isinstance(RedisFilter.from_local(client, type(each).__name__, each).to_local(), type(each))
    with pytest.raises(TypeError, match="filter must be"):
        RedisFilter.from_local(client, "y", {1, 2})  # type: ignore[arg-type]


def test_memory_is_what_the_plan_says(client: Any) -> None:
    """A whole segment, its head and the server's own words fit 64 KiB."""
    plan = plan_blocked(65_408 * 8 * 3 // 16, bits_per_key=16)
    shared = RedisFilter.create(client, "x", plan)
    assert shared.plan.segments == 3
    shared.add_many(np.arange(5000))
    for segment in range(3):
        assert client.memory_usage(shared._layout.segment_key(segment)) < 65_536 + 200


def pipelines() -> dict[str, Any]:
    """Pipelines of every client; those of clusters without their clusters."""
    return {
        "redis": redis.Redis().pipeline(),
        "cluster": object.__new__(redis.cluster.ClusterPipeline),
        "asyncio": redis.asyncio.Redis().pipeline(),
        "asyncio cluster": object.__new__(redis.asyncio.cluster.ClusterPipeline),
    }


@pytest.mark.parametrize("kind", ["redis", "cluster", "asyncio", "asyncio cluster"])
def test_a_pipeline_is_refused_as_a_client(kind: str) -> None:
    """A redis-py pipeline is a client whose replies are itself: reading them would never end."""
    pipeline, plan = pipelines()[kind], PLANS["blocked"]()
    calls: list[Callable[[], object]] = [
        lambda: RedisFilter.open(pipeline, "x"),
        lambda: RedisFilter.create(pipeline, "x", plan),
        lambda: RedisFilter.from_local(pipeline, "x", filters.build(plan)),
        lambda: RedisFilter.delete(pipeline, "x"),
        lambda: RedisFilter.open([redis.Redis(), pipeline], "x"),
        lambda: asyncio.run(AsyncRedisFilter.open(pipeline, "x")),
        lambda: asyncio.run(AsyncRedisFilter.create(pipeline, "x", plan)),
        lambda: asyncio.run(AsyncRedisFilter.delete(pipeline, "x")),
        lambda: asyncio.run(AsyncRedisFilter.open([redis.asyncio.Redis(), pipeline], "x")),
    ]
    for call in calls:
        with pytest.raises(
            TypeError, match=r"must not be a pipeline; got .*Pipeline\. Pass the client that made it"
        ):
            call()
