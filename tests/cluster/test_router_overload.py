"""The router when replicas are full or fail: the queue, breakers, repeats; and what its metrics say."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from http_replicas import fleet, go, raw, served, soon
from test_router_defences import Scripted, before

from evenbins.cluster import http_pool
from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.http_breaker import Breaker
from evenbins.cluster.http_keys import RequestKey
from evenbins.cluster.http_pool import Pool
from evenbins.cluster.http_workers import WorkerLoads

# --- the queue ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["hash", "prefix"])
def test_requests_wait_in_their_order_and_those_beyond_the_queue_are_429(policy):
    async def test():
        async with fleet(1, limit=1, wait=20.0, queue=3, policy=policy) as (router, client, replicas):
            (replica,) = replicas.values()
            replica.hold.clear()
            tasks = []
            for number in range(4):
                tasks.append(asyncio.create_task(client.get(f"/{number}")))
                await soon(
                    lambda number=number: (
                        router.status()["in_flight"] + router.status()["waiting"] == number + 1
                    )
                )
            answer = await client.get("/more")
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            assert answer.text == "3 requests wait for an upstream: try again\n"
            left = asyncio.create_task(client.get("/left"))
            left.cancel()
            replica.hold.set()
            assert [(await each).status_code for each in tasks] == [200] * 4
            assert [each["target"] for each in replica.seen] == ["/0?", "/1?", "/2?", "/3?"]
            status = router.status()
            assert (status["waiting"], status["in_flight"]) == (0, 0)
            assert status["rejected"] == {"queue": 1}

    go(test())


def test_a_request_waits_no_longer_than_it_may_and_leaves_the_queue():
    async def test():
        async with fleet(1, limit=1, wait=0.1) as (router, client, replicas):
            (replica,) = replicas.values()
            replica.hold.clear()
            first = asyncio.create_task(client.get("/a"))
            await soon(lambda: router.status()["in_flight"] == 1)
            answer = await client.get("/b")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert router.status()["waiting"] == 0
            replica.hold.set()
            assert (await first).status_code == 200

    go(test())


def test_a_request_may_wait_for_a_replica_to_return():
    async def test():
        async with fleet(1, wait=20.0) as (router, client, _):
            (name,) = router.ring.names
            router.drain(name)
            waiting = asyncio.create_task(client.get("/"))
            await soon(lambda: router.status()["waiting"] == 1)
            router.undrain(name)
            assert (await waiting).status_code == 200

    go(test())


# --- breakers and repeats -------------------------------------------------------------------------------


def test_a_breaker_opens_by_failures_in_a_window_and_tries_again_after_longer_pauses():
    breaker = Breaker(failures=3, window=10.0, pause=1.0)
    assert [breaker.failed(now) for now in (0.0, 6.0, 11.0)] == [False, False, False]  # not in one window
    assert breaker.failed(12.0)
    breaker.open(12.0)
    for now, pause in ((13.0, 2.0), (15.0, 4.0), (19.0, 8.0)):
        assert breaker.blocks(now - 0.01)
        assert not breaker.blocks(now)
        breaker.begin(now)
        assert breaker.blocks(now)  # one at a time
        assert breaker.failed(now)
        breaker.open(now)
        assert breaker.blocks(now + pause - 0.01)
    breaker.begin(27.0)
    breaker.abandoned()
    assert not breaker.blocks(27.0)
    breaker.begin(27.0)
    breaker.succeeded()
    assert (breaker.state, breaker.blocks(27.0)) == ("closed", False)
    assert not breaker.failed(27.0)


@pytest.mark.parametrize("policy", ["hash", "score"])
def test_a_replica_that_answers_with_errors_gets_one_request_after_a_pause(policy):
    async def test():
        ill, well = Scripted(b"HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\nno"), Scripted()
        options = {"breaker_failures": 3, "breaker_pause": 0.3, "policy": policy, "load": "requests"}
        async with before(ill, well, **options) as (router, _, client):
            for number in range(200):
                await client.get(f"/{number}")
                states = {name: each["breaker"] for name, each in router.status()["upstreams"].items()}
                if "open" in states.values():
                    break
            (sick,) = (name for name, state in states.items() if state == "open")
            asked = sum(ill.asked.values())
            assert asked >= 3
            ill.answer = well.answer
            async with asyncio.timeout(60):
                while router.status()["upstreams"][sick]["breaker"] != "closed":
                    number += 1
                    assert (await client.get(f"/{number}")).status_code == 200
                    await asyncio.sleep(0.01)
            assert sum(ill.asked.values()) > asked

    go(test())


def test_errors_that_clients_provoke_do_not_close_all_replicas():
    async def test():
        replicas = [Scripted(b"HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\nno") for _ in range(3)]
        async with before(*replicas, breaker_failures=1, breaker_pause=100.0) as (router, _, client):
            for number in range(60):
                assert (await client.get(f"/{number}")).status_code == 500  # the replica's own answer
            states = [each["breaker"] for each in router.status()["upstreams"].values()]
            assert sorted(states) == ["closed", "closed", "open"]
        async with before(Scripted(), breaker_failures=1) as (router, _, client):
            assert (await client.get("/cut")).status_code == 502
            assert (await client.get("/")).status_code == 200

    go(test())


@pytest.mark.parametrize("allowed", [False, True])
def test_a_request_that_was_not_answered_is_repeated_once_if_that_is_allowed(allowed):
    async def cut(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        asked.append(1)

    async def test():
        async with fleet(1) as (inner, _, _), raw(cut) as rude, raw(cut) as other:
            router = Router(
                RouterConfig([*inner.ring.names, rude, other], failures=100, retry_unanswered=allowed)
            )
            good = inner.ring.names[0]
            async with (
                served(router) as url,
                httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60) as client,
            ):
                for second, status in ((good, 200), (None, 502)):
                    path = next(
                        path for n in range(999)
                        if (order := router.ring.candidates(path := f"/{n}"))[0] == rude
                        and (order[1] == good) == (second == good)
                    )  # fmt: skip
                    asked.clear()
                    answer = await client.post(path, content=b"body")
                    assert answer.status_code == (status if allowed else 502)
                    assert len(asked) == (2 if allowed and second is None else 1)

    asked = []
    go(test())


# --- metrics --------------------------------------------------------------------------------------------


def test_prometheus_client_shows_what_the_router_writes_itself():
    client_library = pytest.importorskip("prometheus_client")
    from evenbins.cluster.http_prometheus import RouterCollector

    async def test():
        async with fleet(2, key="prompt", policy="prefix", breaker_failures=3) as (router, client, _):
            for number in range(6):
                await client.post("/", json={"prompt": "x" * 3000 + str(number % 2)})
            own = (await client.get("/-/metrics")).text
            assert "evenbins_route_blocks_total 18\n" in own
            assert 'evenbins_route_placed_total{reason="prefix"} 5\n' in own
            registry = client_library.CollectorRegistry()
            registry.register(RouterCollector(router))
            theirs = client_library.generate_latest(registry).decode()

            def samples(text):
                lines = (line for line in text.splitlines() if not line.startswith("#"))
                found = {}
                for line in lines:
                    name, _, value = line.rpartition(" ")
                    labels = sorted(name.partition("{")[2].rstrip("}").split(","))
                    found[name.partition("{")[0], tuple(labels)] = float(value)
                return found

            assert samples(own) == samples(theirs)
            assert len(samples(own)) > 30

    go(test())


@pytest.mark.parametrize("shared", [False, True])
def test_an_open_breaker_counts_with_shared_loads_too(shared):
    async def main():
        names = ["http://a:1", "http://b:1"]
        loads = WorkerLoads(1) if shared else None
        config = RouterConfig(names, limit=8, breaker_failures=2, breaker_pause=0.05, loads=loads)
        pool, key = Pool(config, names, {}), RequestKey("key", (1,))
        broken = await pool.admit(key)
        for _ in range(2):
            pool.answered(broken.name, 500)
        places = [await pool.admit(key) for _ in range(8)]
        assert broken.name not in {place.name for place in places}
        last = await pool.admit(key)  # no other one has room
        assert last.name == broken.name
        for place in (broken, last, *places):
            place.release()
        await asyncio.sleep(0.06)
        trial, other = await pool.admit(key), await pool.admit(key)
        assert (trial.name == broken.name, other.name == broken.name) == (True, False)
        pool.answered(trial.name, 200)
        assert pool.breakers[trial.name].state == "closed"

    asyncio.run(main())


def test_only_the_first_of_the_queue_looks_again():
    async def main():
        names = ["http://a:1"]
        pool = Pool(RouterConfig(names, limit=1, wait=20.0), names, {})
        key = RequestKey("key", (1,))
        place = await pool.admit(key)
        waiting = [asyncio.ensure_future(pool.admit(key)) for _ in range(20)]
        await asyncio.sleep(0.01)
        sleeps = 0

        async def count(waiter, seconds):
            nonlocal sleeps
            sleeps += 1
            await sleep(waiter, seconds)

        sleep, http_pool._Waiter.sleep = http_pool._Waiter.sleep, count
        try:
            await asyncio.sleep(0.3)
        finally:
            http_pool._Waiter.sleep = sleep
        assert sleeps < 20
        for each in waiting:  # in their order
            place.release()
            place = await each
        place.release()

    asyncio.run(main())


def test_a_replica_that_is_removed_while_others_decide_is_not_asked():
    class Slow:
        released = 0

        async def take(self, ring, key, *, avoid=()):
            name = ring.candidates(key)[0]
            await asyncio.sleep(0.01)
            return name, self.release

        def release(self):
            self.released += 1

    async def main():
        names, loads = ["http://a:1", "http://b:1"], Slow()
        pool = Pool(RouterConfig(names, limit=8, loads=loads), names, {})
        gone = pool.ring.candidates("key")[0]
        admission = asyncio.ensure_future(pool.admit(RequestKey("key", (1,))))
        await asyncio.sleep(0)
        pool.remove(gone)
        place = await admission
        assert place.name != gone
        assert loads.released == 1
        place.release()

    asyncio.run(main())
