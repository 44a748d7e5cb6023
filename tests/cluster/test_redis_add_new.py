"""`add_new` on servers: the local filter's answers and bytes, and True for exactly one of all clients."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio
from fault_proxy import FaultProxy
from filter_servers import HOST, Server, cluster_of, running
from hypothesis import given, settings
from hypothesis import strategies as st
from interruptions import InterruptError, before_line, lines_in, no_hang
from redis.backoff import NoBackoff
from redis.retry import Retry
from sizes import size

from evenbins import FilterPlan, filters
from evenbins.cluster import AsyncRedisFilter, RedisFilter, RedisFilterError, _leases, _many_keys, _one_key
from evenbins.cluster._scripts import SCRIPTS
from evenbins.filters import plan_balanced, plan_blocked, plan_standard
from evenbins.hashing import digest_many
from evenbins.study.levels import plan_levels

SMALL: dict[str, Callable[[], FilterPlan]] = {
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
    "fill": lambda: plan_levels(400, policy="fill", blocks=(11, 6, 3), thresholds=(90, 200), hashes=9),
    "two-choice": lambda: plan_levels(400, policy="two-choice", blocks=(21,), hashes=12),
}  # fmt: skip
"""Nearly full at 400 keys, so that many keys are taken for present, and the list is used."""

POLICIES = ("standard", "blocked", "single", "multilevel", "fill", "two-choice")


def wide(policy: str, keys: int = 4000) -> FilterPlan:
    """Plan a filter whose answers are those of a set: under 1e-6 false positives among 4,000 keys."""
    if policy in ("standard", "blocked"):
        return (plan_standard if policy == "standard" else plan_blocked)(keys, fpr=1e-10, seed=1)
    return plan_balanced(keys, bits_per_key=64, policy=policy, seed=1)


def spilling(spill: str) -> FilterPlan:
    """Plan a filter that has no room for most of 80 keys: they are forced into full blocks."""
    return plan_levels(
        100, policy="multilevel", blocks=(5, 2), thresholds=(4, 4), hashes=5, block_bits=256,
        overflow_limit=7, spill=spill,
    )  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with server.client() as found:
        found.flushall()
        yield found


def same_bytes(shared: Any, local: Any) -> None:
    found = shared.to_local()
    found._check()
    assert found.to_bytes() == local.to_bytes()


KEYS = st.lists(st.integers(0, 500), max_size=90)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add_new_many", "add_many"]), KEYS),
        st.tuples(st.sampled_from(["add_new", "add"]), st.integers(0, 500)),
    ),
    max_size=9,
)


@pytest.mark.parametrize("swap_from", [4, 10**9])
@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=size(4, 20))
@given(
    calls=CALLS,
    segment_bytes=st.sampled_from([64, 256, 65_408]),
    traverse_on=st.sampled_from(["client", "server"]),
    batch=st.sampled_from([32, 1 << 17]),
)
def test_answers_and_bytes_are_those_of_the_local_filter(
    server: Server,
    name: str,
    swap_from: int,
    calls: list[tuple[str, Any]],
    segment_bytes: int,
    traverse_on: str,
    batch: int,
) -> None:
    plan = SMALL[name]()
    local = filters.build(plan)
    with pytest.MonkeyPatch.context() as patch, server.client() as client:
        patch.setattr(_many_keys, "SWAP_FROM", swap_from)
        patch.setattr(_many_keys, "BATCH", batch)
        client.flushall()
        shared = RedisFilter.create(client, "x", plan, segment_bytes=segment_bytes, traverse_on=traverse_on)
        for call, keys in calls:
            expected, found = getattr(local, call)(keys), getattr(shared, call)(keys)
            assert np.array_equal(found, expected), call
            assert type(found) is type(expected)
        same_bytes(shared, local)
        assert client.keys("*leases") == []


@pytest.mark.parametrize("traverse_on", ["client", "server"])
@pytest.mark.parametrize("spill", ["least", "random"])
def test_a_key_that_finds_no_room_is_new_once(client: Any, spill: str, traverse_on: str) -> None:
    local = filters.build(spilling(spill))
    shared = RedisFilter.create(client, "x", spilling(spill), segment_bytes=64, traverse_on=traverse_on)
    keys = [key // 2 for key in range(160)]
    assert [shared.add_new(key) for key in keys] == [local.add_new(key) for key in keys]
    same_bytes(shared, local)
    assert local.stats().spilled > 0.1
    assert not shared.add_new_many(keys).any()


def test_sources_shapes_and_refused_keys(client: Any) -> None:
    shared = RedisFilter.create(client, "x", wide("multilevel"))
    assert shared.add("a") is None  # type: ignore[func-returns-value]
    assert shared.add_many(["b"]) is None  # type: ignore[func-returns-value]
    assert (shared.add_new("a"), shared.add_new(b"c"), shared.add_new("c")) == (False, True, False)
    assert shared.add_new_many(iter(["b", "d", "d"])).tolist() == [False, True, False]
    answers = shared.add_new_many(np.array([[1, 2], [2, 3]]))
    assert answers.tolist() == [[True, True], [False, True]]
    assert answers.dtype == np.bool_
    assert shared.add_new_many([]).tolist() == []
    assert shared.add_new_many(np.empty((0, 3), int)).shape == (0, 3)
    digests = np.array([5, 6, 5], np.uint64)
    assert shared.add_new_many(digests, digests=True).tolist() == [True, True, False]
    assert shared.add_new_many([10, 10], threads=2).tolist() == [True, False]
    with pytest.raises(TypeError, match="NoneType"):
        shared.add_new(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"keys\[1\].*keys before it have been added"):
        shared.add_new_many(["e", None])
    assert "e" in shared
    with pytest.raises(ValueError, match="threads"):
        shared.add_new_many([1], threads=0)
    with pytest.raises(TypeError):
        shared.add_new_many(np.array([1.5]))


@pytest.mark.parametrize("name", SMALL)
def test_a_server_that_forgot_its_scripts_learns_them_again(client: Any, name: str) -> None:
    shared, local = RedisFilter.create(client, "x", SMALL[name]()), filters.build(SMALL[name]())
    for start in range(0, 300, 100):
        client.script_flush()
        assert shared.add_new(start) == local.add_new(start)
        client.script_flush()
        keys = np.arange(start, start + 130)
        assert (shared.add_new_many(keys) == local.add_new_many(keys)).all()
    same_bytes(shared, local)


def test_memory_is_that_of_a_batch(server: Server, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless source: whatever was read more than two batches ago is on the server."""
    monkeypatch.setattr(_many_keys, "BATCH", 32)
    shared = RedisFilter.create(client, "x", wide("standard"))
    seen = []
    with server.client() as other:
        witness = RedisFilter.open(other, "x")

        def endless() -> Iterator[int]:
            for number in itertools.count():
                if number == 640:
                    raise EOFError
                if number % 32 == 5 and number > 32:
                    seen.append(bool(witness.contains_many(range(number // 32 * 32)).all()))
                yield number

        with pytest.raises(EOFError):
            shared.add_new_many(endless())
    assert seen == 18 * [True] or seen == 19 * [True]


# --- many clients -------------------------------------------------------------------------------------------


def run_threads(work: Callable[[int], None], count: int) -> None:
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if errors:
        raise errors[0]


def mixed_calls(shared: RedisFilter, keys: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Add keys, in bulk and one by one; return how often each was new, at its number."""
    wins = np.zeros(4000, np.int64)
    for part in np.array_split(keys, 8):
        wins[part[20:]] += shared.add_new_many(part[20:])
        for key in part[:20].tolist():
            wins[key] += shared.add_new(key)
    return wins


@pytest.mark.parametrize("traverse_on", ["client", "server"])
@pytest.mark.parametrize("policy", POLICIES)
def test_of_many_threads_exactly_one_gets_each_key(
    server: Server, client: Any, policy: str, traverse_on: str
) -> None:
    """Four threads add the same 2,000 keys, each in an order of its own; two of them share one filter."""
    RedisFilter.create(client, "x", wide(policy), segment_bytes=2048)
    wins = np.zeros(4000, np.int64)
    lock, both = threading.Lock(), RedisFilter.open(client, "x", traverse_on=traverse_on)

    def work(number: int) -> None:
        with server.client() as own:
            mine = both if number < 2 else RedisFilter.open(own, "x", traverse_on=traverse_on)
            found = mixed_calls(mine, np.random.default_rng(number).permutation(2000))
        with lock:
            wins[:] += found

    run_threads(work, 4)
    assert (wins[:2000] == 1).all()
    assert not wins[2000:].any()
    assert client.keys("*leases") == []


@pytest.mark.parametrize("policy", ["standard", "two-choice", "multilevel"])
def test_of_many_threads_in_one_order_exactly_one_gets_each_key(
    server: Server, client: Any, policy: str
) -> None:
    """They meet at every key."""
    RedisFilter.create(client, "x", wide(policy), segment_bytes=256)
    wins: list[Any] = [None] * 4
    start = threading.Barrier(4)

    def work(number: int) -> None:
        with server.client() as own:
            mine = RedisFilter.open(own, "x", traverse_on="server" if number == 3 else "client")
            start.wait(60)
            wins[number] = [mine.add_new(key) for key in range(150)]

    run_threads(work, 4)
    assert np.sum(wins, axis=0).tolist() == 150 * [1]


@pytest.mark.parametrize("spill", ["least", "random"])
def test_of_many_threads_one_at_most_gets_a_key_that_finds_no_room(
    server: Server, client: Any, spill: str
) -> None:
    """80 keys for 35 places: 4 threads, in one order, one by one and in bulk."""
    shared = RedisFilter.create(client, "x", spilling(spill), segment_bytes=64)
    wins: list[Any] = [None] * 4
    start = threading.Barrier(4)

    def work(number: int) -> None:
        with server.client() as own:
            mine = RedisFilter.open(own, "x")
            start.wait(60)
            if number % 2:
                wins[number] = [mine.add_new(key) for key in range(80)]
            else:
                parts = np.array_split(np.arange(80), 10)
                wins[number] = np.concatenate([mine.add_new_many(part) for part in parts])

    run_threads(work, 4)
    total = np.sum(wins, axis=0)
    assert total.max() == 1
    assert total.sum() > 35
    found = shared.to_local()
    found._check()
    assert found.stats().keys == total.sum()  # which the blocks count: each key that was new once


def deduplicate(port: int, keys: Any, kept: Any) -> None:
    """Be one of several processes: keep what nobody kept before."""
    with redis.Redis(host=HOST, port=port, socket_timeout=60) as client:
        frontier = RedisFilter.open(client, "frontier")
        kept.put(
            [url for part in np.array_split(keys, 5) for url in part[frontier.add_new_many(part)].tolist()]
        )


@pytest.mark.parametrize(
    "policy",
    [
        "multilevel",
        pytest.param("blocked", marks=pytest.mark.long),
        pytest.param("standard", marks=pytest.mark.long),
    ],
)
def test_processes_that_share_a_stream_keep_each_key_once(server: Server, client: Any, policy: str) -> None:
    """The how-to: four processes, 12,000 addresses of which 3,000 are distinct.

    The union of what they keep is the set of distinct keys, up to the filter's rate of false positives,
    which is below 1e-6 for all keys together.
    """
    RedisFilter.create(client, "frontier", wide(policy))
    stream = np.random.default_rng(4).permutation(np.repeat(np.arange(3000), 4))
    urls = np.array([f"https://example.org/{number}" for number in stream.tolist()])
    context = multiprocessing.get_context("spawn")
    kept = context.Queue()
    workers = [
        context.Process(target=deduplicate, args=(server.port, part, kept))
        for part in np.array_split(urls, 4)
    ]
    for each in workers:
        each.start()
    answers = [kept.get(timeout=120) for _ in workers]
    for each in workers:
        each.join()
    assert [each.exitcode for each in workers] == 4 * [0]
    assert sorted(itertools.chain(*answers)) == sorted(set(urls.tolist()))


@pytest.mark.parametrize("policy", POLICIES)
def test_of_many_tasks_exactly_one_gets_each_key(server: Server, client: Any, policy: str) -> None:
    RedisFilter.create(client, "x", wide(policy), segment_bytes=2048)

    async def main() -> list[Any]:
        pools = [redis.asyncio.BlockingConnectionPool(host=HOST, port=server.port) for _ in range(2)]
        clients = [redis.asyncio.Redis(connection_pool=pool) for pool in pools]
        shared = [await AsyncRedisFilter.open(each, "x") for each in clients]
        singles = [shared[i % 2].add_new(i // 4) for i in range(160)]
        bulk = [shared[i % 2].add_new_many(np.arange(20, 400)) for i in range(4)]
        answers = await asyncio.gather(*singles, *bulk)
        for each in pools:
            await each.aclose()
        return answers

    answers = asyncio.run(main())
    wins = sum(each.astype(int) for each in answers[160:])
    total = np.zeros(400, int)
    total[20:] += wins
    total[:40] += np.reshape(answers[:160], (40, 4)).sum(axis=1)
    assert total.tolist() == 400 * [1]


def test_a_cluster_and_several_servers() -> None:
    with cluster_of(2) as nodes, redis.RedisCluster(host=HOST, port=nodes[0].port) as cluster:
        for name in SMALL:
            local = filters.build(SMALL[name]())
            shared = RedisFilter.create(cluster, name, SMALL[name](), segment_bytes=256)
            compare(shared, local)
        asyncio.run(ask_a_cluster(nodes[0].port))
        for policy in ("standard", "two-choice"):
            RedisFilter.create(cluster, f"wide-{policy}", wide(policy), segment_bytes=2048)
            contend(lambda policy=policy: RedisFilter.open(cluster, f"wide-{policy}"))  # type: ignore[misc]
    with running() as first, running() as second:
        clients = [first.client(), second.client()]
        for name in SMALL:
            local = filters.build(SMALL[name]())
            compare(RedisFilter.create(clients, name, SMALL[name](), segment_bytes=256), local)
        for policy in ("standard", "two-choice"):
            RedisFilter.create(clients, f"wide-{policy}", wide(policy), segment_bytes=2048)
            contend(lambda policy=policy: RedisFilter.open(clients, f"wide-{policy}"))  # type: ignore[misc]
        for each in clients:
            each.close()


def compare(shared: RedisFilter, local: Any) -> None:
    for start in (0, 50, 100):
        keys = np.arange(start, start + 120).repeat(2)
        assert (shared.add_new_many(keys) == local.add_new_many(keys)).all()
        singles = range(300 + start // 2, 340 + start // 2)
        assert [shared.add_new(key) for key in singles] == [local.add_new(key) for key in singles]
    same_bytes(shared, local)


def contend(open_filter: Callable[[], RedisFilter]) -> None:
    wins: list[Any] = [None] * 3

    def work(number: int) -> None:
        shared = open_filter()
        singles = [shared.add_new(key) for key in range(60)]
        wins[number] = np.concatenate([singles, shared.add_new_many(np.arange(60, 400))])

    run_threads(work, 3)
    assert np.sum(wins, axis=0).tolist() == 400 * [1]


async def ask_a_cluster(port: int) -> None:
    async with redis.asyncio.RedisCluster(host=HOST, port=port) as cluster:
        for policy in POLICIES:
            shared = await AsyncRedisFilter.create(cluster, f"async-{policy}", wide(policy))
            answers = await asyncio.gather(*(shared.add_new(key // 3) for key in range(60)))
            assert np.reshape(answers, (20, 3)).sum(axis=1).tolist() == 20 * [1]
            many = await asyncio.gather(*(shared.add_new_many(range(10, 60)) for _ in range(3)))
            assert np.sum(many, axis=0).tolist() == 10 * [0] + 40 * [1]


# --- every order of requests --------------------------------------------------------------------------------


class Caller:
    """A call of one client, request by request: others may come between any two of them."""

    def __init__(self, shared: RedisFilter, keys: list[int], *, singly: bool) -> None:
        self._servers, self.answers = shared._servers, np.zeros(0)
        layout, digests = shared._layout, digest_many(np.array(keys), shared.seed)
        lease = _leases.Lease(layout, own_thread=False)
        self._operation: Any = (
            _one_key.add_one(layout, int(digests[0]), lease)
            if singly
            else _many_keys.add_many(layout, digests, lease)
        )
        self._requests, self._replies = next(self._operation), list[Any]()
        self.ended = False

    def step(self) -> None:
        """Send one request; after the last of those that go out together, find the next."""
        if self._requests:
            (reply,) = self._servers.run([self._requests[len(self._replies)]])
            assert not isinstance(reply, Exception), reply
            self._replies.append(reply)
        if len(self._replies) == len(self._requests):
            try:
                self._requests, self._replies = self._operation.send(self._replies), []
            except StopIteration as end:
                self.answers, self.ended = np.atleast_1d(end.value), True


@pytest.mark.parametrize("policy", [*POLICIES, "spill-least", "spill-random"])
@settings(max_examples=size(12, 100))
@given(
    schedule=st.lists(st.integers(0, 2), max_size=60),
    orders=st.lists(st.permutations([100, 101, 102]), min_size=3, max_size=3),
    singly=st.lists(st.booleans(), min_size=3, max_size=3),
    traverse_on=st.lists(st.sampled_from(["client", "server"]), min_size=3, max_size=3),
    swap_from=st.sampled_from([2, 96]),
)
def test_in_whatever_order_requests_arrive_one_client_gets_each_key(
    server: Server,
    policy: str,
    schedule: list[int],
    orders: list[list[int]],
    singly: list[bool],
    traverse_on: list[str],
    swap_from: int,
) -> None:
    """Three clients, each with one key or three. In a filter without room keys collide: one at most."""
    with pytest.MonkeyPatch.context() as patch, server.client() as client:
        patch.setattr(_many_keys, "SWAP_FROM", swap_from)
        client.flushall()
        for script in SCRIPTS:
            client.script_load(script.text)
        full = policy.startswith("spill")
        plan = spilling(policy.removeprefix("spill-")) if full else wide(policy, 100)
        shared = RedisFilter.create(client, "x", plan, segment_bytes=64)
        shared.add_many(range(60 if full else 20))
        before = shared.contains_many([100, 101, 102])
        callers = []
        for keys, one, side in zip(orders, singly, traverse_on, strict=True):
            callers.append(Caller(RedisFilter.open(client, "x", traverse_on=side), keys, singly=one))
        for number in itertools.chain(schedule, itertools.cycle(range(3))):
            if not callers[number].ended:
                callers[number].step()
            elif all(each.ended for each in callers):
                break
        wins = dict.fromkeys([100, 101, 102], 0)
        for caller, keys in zip(callers, orders, strict=True):
            for key, new in zip(keys, caller.answers.tolist(), strict=False):
                wins[key] += new
        asked = {key for keys, one in zip(orders, singly, strict=True) for key in (keys[:1] if one else keys)}
        for key, present in zip(wins, before.tolist(), strict=True):
            assert wins[key] <= 1
            assert wins[key] == (key in asked and not present) or full
        assert shared.contains_many(list(asked)).all()
        shared.to_local()._check()


# --- faults -------------------------------------------------------------------------------------------------


def evaluations(client: Any) -> int:
    stats = client.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{each}", {"calls": 0})["calls"]) for each in ("eval", "evalsha"))


@pytest.mark.parametrize("traverse_on", ["client", "server"])
@pytest.mark.parametrize("policy", ["blocked", "multilevel", "standard"])
def test_a_lost_reply_is_an_error_and_nothing_is_sent_twice(
    server: Server, client: Any, policy: str, traverse_on: str
) -> None:
    """The client would repeat commands three times; `add` lets it, `add_new` does not."""
    RedisFilter.create(client, "x", wide(policy))
    retry = Retry(NoBackoff(), 3)
    with FaultProxy(server.port) as proxy, server.client(proxy.port, retry=retry) as weak:
        shared = RedisFilter.open(weak, "x", traverse_on=traverse_on)
        assert shared.add_new("before")
        for each in (shared.add_new, lambda key: shared.add_new_many([key])):
            key = f"key of {each}"
            shared.add("a connection is there")
            client.config_resetstat()
            proxy.cut(down=0)
            with pytest.raises(redis.ConnectionError) as caught:
                each(key)
            assert not proxy.pending
            assert evaluations(client) <= 2  # a lease that is released, or ends by itself
            (note,) = caught.value.__notes__
            assert "known" in note
            assert "added" in note
        if policy != "standard" or traverse_on == "server":  # which failed before its bits were set
            assert not shared.add_new(f"key of {shared.add_new}")  # the note's "may have been added"
        proxy.cut(down=0)
        assert shared.add("another") is None  # type: ignore[func-returns-value]
        assert shared.add_new("after")


def test_a_lost_reply_of_an_asyncio_client(server: Server, client: Any) -> None:
    direct = RedisFilter.create(client, "x", wide("blocked"))

    async def main(port: int, proxy: FaultProxy) -> None:
        async with redis.asyncio.Redis(host=HOST, port=port, socket_timeout=20) as weak:
            shared = await AsyncRedisFilter.open(weak, "x")
            assert await shared.add_new("before")
            for keys in ("one", ["two", "three"]):
                await shared.add("a connection is there")
                client.config_resetstat()
                proxy.cut(down=0)
                with pytest.raises(redis.ConnectionError) as caught:
                    await (shared.add_new(keys) if isinstance(keys, str) else shared.add_new_many(keys))
                assert "known" in caught.value.__notes__[0]
                assert evaluations(client) == 1
            assert await shared.add_new("after")

    with FaultProxy(server.port) as proxy:
        asyncio.run(main(proxy.port, proxy))
    assert direct.contains_many(["before", "one", "two", "three", "after"]).all()


def test_a_cluster_sends_nothing_twice_and_finds_its_nodes_again() -> None:
    """Connections that the nodes closed before a call are renewed; a node that is down is an error."""
    with cluster_of(2) as nodes, redis.RedisCluster(host=HOST, port=nodes[0].port) as cluster:
        shared = RedisFilter.create(cluster, "x", wide("blocked"), segment_bytes=2048)
        assert shared.add_new("before")
        for each in nodes:
            with each.client() as direct:
                direct.client_kill_filter(_type="normal", skipme=True)
        assert shared.add_new("after")  # a connection that ended before the call is no loss
        assert shared.add_new_many(np.arange(500)).all()
        nodes[1].stop()
        answers = [answer(shared, key) for key in range(1000, 1040)]
        assert set(answers) == {True, "unknown"}


def answer(shared: RedisFilter, key: int) -> object:
    """Return what `add_new` answers, "unknown" after an error of the connection or of the cluster."""
    try:
        return shared.add_new(key)
    except (redis.ConnectionError, RedisFilterError) as error:
        return "unknown" if "known" in error.__notes__[0] else error


def test_a_kept_connection_that_the_server_closed_is_renewed(server: Server, client: Any) -> None:
    with server.client() as own:
        shared = RedisFilter.create(own, "x", wide("blocked"))
        assert shared.add_new(1)
        client.client_kill_filter(_type="normal", skipme=True)
        assert shared.add_new(2)
        client.client_kill_filter(_type="normal", skipme=True)
        assert shared.add_new_many([1, 2, 3]).tolist() == [False, False, True]


def take_all(shared: RedisFilter, milliseconds: int) -> None:
    """Take all leases of a filter, as a client does that dies at once."""
    other = _leases.Lease(shared._layout, own_thread=False)
    taking = other.around(np.arange(256, dtype=np.uint64) << np.uint64(56), iter(()))  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_leases, "LEASE_MS", milliseconds)
        assert shared._servers.run(next(taking)) == [b""]
    other.forget()


@pytest.mark.parametrize("traverse_on", ["client", "server"])
@pytest.mark.parametrize("policy", ["standard", "two-choice"])
def test_a_client_that_died_is_waited_for_until_its_lease_ends(
    client: Any, policy: str, traverse_on: str
) -> None:
    shared = RedisFilter.create(client, "x", wide(policy), traverse_on=traverse_on)
    shared.add_new(0)  # the scripts are known
    shared.add_new_many([0])
    for call in (lambda: shared.add_new(1), lambda: shared.add_new_many([2])):
        take_all(shared, 200)
        with no_hang(30):
            assert call()


@pytest.mark.parametrize("traverse_on", ["client", "server"])
def test_a_client_that_stood_still_has_no_answer(
    client: Any, monkeypatch: pytest.MonkeyPatch, traverse_on: str
) -> None:
    """Its lease ends between its steps, and another client comes: that one has the answer."""
    shared = RedisFilter.create(client, "x", wide("standard"), segment_bytes=2048)
    other = RedisFilter.open(client, "x", traverse_on=traverse_on)
    shared.add_new("a")
    run, answers = shared._servers.run, list[bool]()
    # Both calls are of this thread: the second must not take the first for one that it interrupted.
    monkeypatch.setattr(_leases, "_HOLDERS", NoHolders())
    monkeypatch.setattr(_leases, "LEASE_MS", 50)

    def slow(requests: Any, **options: Any) -> Any:
        replies = run(requests, **options)
        if "take" in requests[0].command:
            monkeypatch.setattr(_leases, "LEASE_MS", 20_000)
            answers.append(other.add_new("b"))  # waits for the lease, and gets it
        return replies

    monkeypatch.setattr(shared._servers, "run", slow)
    with no_hang(30), pytest.raises(RedisFilterError, match=r"stood still.*not known") as caught:
        shared.add_new("b")
    assert answers == [True]
    assert "may have been added" in caught.value.__notes__[0]


class NoHolders(dict[bytes, tuple[int, int]]):
    """Forgets at once who holds a lease."""

    def __setitem__(self, token: bytes, holder: tuple[int, int]) -> None:
        return


def test_a_call_that_takes_long_renews_its_lease(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = RedisFilter.create(client, "x", wide("two-choice"), segment_bytes=256)
    shared.add_new(0)
    monkeypatch.setattr(_leases, "LEASE_MS", 20_000)
    clock = itertools.count(0, 7)  # seconds, each time somebody looks
    monkeypatch.setattr(_leases.time, "monotonic", lambda: next(clock))
    sent: list[str] = []
    run = shared._servers.run

    def watched(requests: Any, **options: Any) -> Any:
        sent.extend(each.command[6] for each in requests if each.key.endswith("leases"))
        return run(requests, **options)

    monkeypatch.setattr(shared._servers, "run", watched)
    assert shared.add_new_many(np.arange(1, 50)).all()
    assert sent[0] == "take"
    assert sent[-1] == "end"
    assert set(sent[1:-1]) == {"keep"}


# --- signals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["add_new", "add_new_many"])
@pytest.mark.parametrize("policy", ["standard", "two-choice"])
def test_a_handler_that_adds_the_same_key_gets_an_answer_or_an_error(
    client: Any, policy: str, call: str
) -> None:
    """Never a deadlock, never two answers "new"; the interrupted call has its own answer."""
    shared = RedisFilter.create(client, "x", wide(policy), segment_bytes=2048)
    numbers = itertools.count()
    ask: Callable[[int], object] = {
        "add_new": shared.add_new,
        "add_new_many": lambda key: shared.add_new_many([key]).tolist()[0],
    }[call]
    ask(next(numbers))
    lines = lines_in(lambda: ask(next(numbers)))
    errors = 0
    with no_hang():
        for line in range(1, lines + 1, max(1, lines // 150)):
            key, inner = next(numbers), []

            def handler(key: int = key, inner: list[object] = inner) -> None:
                try:
                    inner.append(ask(key))
                except RedisFilterError as error:
                    inner.append(str(error))

            outer = before_line(line, lambda key=key: ask(key), handler)  # type: ignore[misc]
            errors += "that the handler interrupted; it added nothing" in str(inner)
            assert [outer, *inner].count(True) == 1, line
            assert not ask(key)
            assert client.keys("*leases") == [], line
    assert errors > 5


@pytest.mark.parametrize("call", ["add_new", "add_new_many"])
@pytest.mark.parametrize("policy", ["standard", "multilevel"])
def test_a_handler_that_raises_leaves_no_lease(client: Any, policy: str, call: str) -> None:
    shared = RedisFilter.create(client, "x", wide(policy), segment_bytes=2048)
    numbers = itertools.count()

    def ask(key: int) -> object:
        return shared.add_new(key) if call == "add_new" else shared.add_new_many([key]).tolist()[0]

    def interrupt() -> None:
        raise InterruptError

    assert ask(next(numbers))
    lines = lines_in(lambda: ask(next(numbers)))
    raised = 0
    with no_hang():
        for line in range(1, lines + 1, max(1, lines // 150)):
            try:
                assert before_line(line, lambda: ask(next(numbers)), interrupt)
            except InterruptError:
                raised += 1
            assert client.keys("*leases") == [], line
            assert ask(next(numbers)), line
            assert not _leases._HOLDERS
    assert raised > 20


def test_a_cancelled_task_leaves_no_lease(server: Server, client: Any) -> None:
    RedisFilter.create(client, "x", wide("standard"), segment_bytes=2048)

    async def main() -> None:
        async with redis.asyncio.Redis(host=HOST, port=server.port, socket_timeout=20) as own:
            shared = await AsyncRedisFilter.open(own, "x")
            await shared.add_new(0)
            for steps in range(30):
                task = asyncio.create_task(shared.add_new(steps + 1))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    assert await task
                assert client.keys("*leases") == [], steps

    asyncio.run(main())
