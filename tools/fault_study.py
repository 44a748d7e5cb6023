"""Thousands of cut connections, at random bytes: no wrong answer, nothing lost, no hang, all recover.

    clients ──▶ FaultProxy ──▶ Redis, memcached, HTTP replicas on loopback

Before a call a cut is ordered: up or down, after a random number of bytes, by FIN, by RST, or by silence. If
the call fails it is repeated without a fault, as a user would. The oracle is exact:

filter    a local twin gets the same keys. Answers, of absent keys too, are the twin's or an error; at the end
          the bytes are the twin's. One server, three, a cluster of three; blocking and asyncio, where tasks
          are also cancelled at random moments.
values    ShardedRedis, AsyncShardedRedis, RingMemcache: a dictionary. A read gives the last value whose write
          returned; writes that may be repeated never fail of one cut; a counter that failed counted once or
          not at all.
router    an answer is the replica's, byte for byte, or an error that the client can see; no POST is executed
          twice; no place stays taken.
loads     no replica is above its limit over all clients; places come back.

    python tools/fault_study.py                     2,000 calls of each kind
    python tools/fault_study.py filter-one --calls 20000

The exit status is 1 if anything was wrong. "longest" is the longest call, in seconds: a call has at most the
timeouts of its attempts (here 0.25 s each, `failures` = 2 of them for values).

Timeouts and a busy machine. An answer that comes after the timeout is a failure as a cut is: two in a row
take a server down, as they should, and its keys are elsewhere then. So the pace of the machine is measured
all the time: how late a thread wakes up, how long a server takes behind its proxy. If something was wrong in
a run in which either came near the timeout, the run is repeated with four times the timeout, and then once
more (`at_the_machines_pace`). Wrong answers of filters and lost keys are never excused.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import inspect
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np
import records
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))

import filter_servers
import router_servers
from fault_proxy import FaultProxy
from http_replicas import served

from evenbins import HashRing, RingFullError, filters
from evenbins.cluster import AsyncRedisFilter, RedisFilter
from evenbins.cluster.health import Backoff, ServerDownError
from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.memcached import RingMemcache
from evenbins.cluster.sharded_redis import AsyncShardedRedis, ShardedRedis
from evenbins.cluster.shared_loads import AsyncRedisLoads, RedisLoads
from evenbins.filters import FilterPlan, plan_blocked, plan_standard
from evenbins.study.levels import plan_levels

HOST, TIMEOUT = "127.0.0.1", 0.25
TIMEOUTS = (TIMEOUT, 4 * TIMEOUT, 16 * TIMEOUT)
QUICK = Backoff(first=0.02, factor=1.5, most=0.1)
POLICIES = ("standard", "blocked", "multilevel", "fill", "two-choice")


@dataclass
class Outcome:
    """What one run counted; `wrong` and `lost` must be 0."""

    kind: str
    calls: int = 0
    cuts: int = 0
    failed: Counter[str] = field(default_factory=Counter)  # calls that raised, by the error
    wrong: int = 0  # answers that are not the oracle's
    lost: int = 0  # what was acknowledged and is not there
    unrecovered: int = 0  # calls that failed again without a fault
    longest: float = 0.0
    timeout: float = TIMEOUT

    @property
    def good(self) -> bool:
        """Whether every promise was kept, and no call took longer than its attempts may."""
        return self.wrong == self.lost == self.unrecovered == 0 and self.longest < 4 * self.timeout + 2.0

    @property
    def certain(self) -> bool:
        """Whether what was wrong was so on a machine of any speed."""
        return self.kind.startswith("filter") and bool(self.wrong or self.lost)

    def __str__(self) -> str:
        errors = ", ".join(f"{name} {number}" for name, number in sorted(self.failed.items())) or "none"
        return (
            f"{self.kind:22} calls {self.calls:6}  cuts {self.cuts:6}  wrong {self.wrong}  lost {self.lost}  "
            f"not recovered {self.unrecovered}  longest {self.longest:.2f}  errors: {errors}"
        )


Run = Callable[..., Coroutine[Any, Any, Outcome]]
"""One of the run_ functions, with all its arguments but `timeout`."""


class _Faults:
    """Proxies before servers, and the next fault."""

    def __init__(self, proxies: list[FaultProxy], rng: random.Random, outcome: Outcome) -> None:
        self.proxies, self.rng, self.outcome = proxies, rng, outcome

    def order(self, most: int, hang: float = 0.08) -> None:
        """Order a cut at each server, or none, after a number of bytes: small ones as often as large ones."""
        for proxy in self.proxies:
            if len(self.proxies) > 1 and self.rng.random() < 0.4:
                continue
            size = int(2 ** self.rng.uniform(0, np.log2(most))) - 1
            way = self.rng.choice(("up", "down"))
            how = "hang" if self.rng.random() < hang else self.rng.choice(("close", "reset"))
            proxy.cut(**{way: size}, how=how)

    def heal(self) -> None:
        for each in self.proxies:
            each.heal()

    def count(self) -> None:
        self.outcome.cuts = sum(each.cuts for each in self.proxies)


class Pace:
    """Measures how late this process wakes up, and how late servers answer, while the block runs."""

    def __enter__(self) -> Self:
        self.slowest, self._stop = 0.0, threading.Event()
        FaultProxy.slowest = 0.0
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self.slowest = max(self.slowest, FaultProxy.slowest)

    def _beat(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(0.005):
            now = time.monotonic()
            self.slowest, before = max(self.slowest, now - before - 0.005), now


def at_the_machines_pace(run: Run) -> Outcome:
    """Return the outcome of `run`; with a longer timeout, if the usual one was too short for the machine."""
    for timeout in TIMEOUTS:
        outcome, failure = None, None
        with Pace() as pace:
            try:
                outcome = asyncio.run(run(timeout=timeout))
            except Exception as error:
                failure = error
        excused = pace.slowest > timeout / 4 and timeout < TIMEOUTS[-1]
        if outcome is not None and (outcome.good or outcome.certain or not excused):
            return outcome
        if failure is not None and not excused:
            raise failure
    raise AssertionError("the last timeout is never too short")


async def _resolve(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def _repeat(call: Callable[[], Any], outcome: Outcome) -> Any:
    """Repeat a call that failed, without a fault; a busy machine may be slow, so more than once."""
    for _ in range(4):
        with contextlib.suppress(redis.TimeoutError):
            return await _resolve(call())
    outcome.unrecovered += 1
    return await _resolve(call())


# --- filters -----------------------------------------------------------------------------------------------


def _plan(policy: str, keys: int) -> FilterPlan:
    if policy == "standard":
        return plan_standard(keys, bits_per_key=10.1)
    if policy == "blocked":
        return plan_blocked(keys, bits_per_key=12)
    if policy == "multilevel":  # with a list that is used
        blocks = (keys // 24 + 1, keys // 60 + 1)
        return plan_levels(
            keys, policy=policy, blocks=blocks, thresholds=(12, 11), hashes=7, overflow_limit=keys
        )
    if policy == "fill":
        blocks = (keys // 36 + 1, keys // 60 + 1)
        return plan_levels(keys, policy=policy, blocks=blocks, thresholds=(90,), hashes=9)
    return plan_levels(keys, policy=policy, blocks=(keys // 19,), hashes=12)


@contextlib.asynccontextmanager
async def _filter_clients(
    kind: str, *, quick: bool, timeout: float
) -> AsyncIterator[tuple[list[FaultProxy], Any, Any]]:
    """Return proxies, a client that goes through them, and a blocking one that does not."""
    options: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    options["retry"] = (Retry if quick else AsyncRetry)(NoBackoff(), 0)
    module: Any = redis if quick else redis.asyncio
    with contextlib.ExitStack() as stack:
        if kind == "cluster":
            servers = stack.enter_context(filter_servers.cluster_of(3))
        else:
            servers = [
                stack.enter_context(filter_servers.running()) for _ in range(1 if kind == "one" else 3)
            ]
        proxies = [stack.enter_context(FaultProxy(each.port)) for each in servers]
        if kind == "cluster":
            ports = {each.port: proxy.port for each, proxy in zip(servers, proxies, strict=True)}
            weak = module.RedisCluster(
                host=HOST, port=proxies[0].port, address_remap=lambda at: (HOST, ports.get(at[1], at[1])),
                **options,
            )  # fmt: skip
            strong: Any = redis.RedisCluster(host=HOST, port=servers[0].port)
        else:
            every = [module.Redis(host=HOST, port=each.port, **options) for each in proxies]
            direct = [each.client() for each in servers]
            weak, strong = (every[0], direct[0]) if kind == "one" else (every, direct)
        yield proxies, weak, strong
        for each in weak if isinstance(weak, list) else [weak]:
            with contextlib.suppress(redis.RedisError, OSError):
                await _resolve(each.close() if quick else each.aclose())


async def run_filter(
    kind: str, policy: str, *, calls: int, seed: int, quick: bool, timeout: float = TIMEOUT
) -> Outcome:
    """Cut connections of a shared filter, and compare it with a local twin."""
    rng = random.Random(f"{kind} {policy} {seed} {quick}")
    outcome = Outcome(f"filter-{kind} {'sync' if quick else 'async'} {policy}", timeout=timeout)
    keys = max(400, 8 * calls)
    async with _filter_clients(kind, quick=quick, timeout=timeout) as (proxies, weak, strong):
        faults = _Faults(proxies, rng, outcome)
        plan = _plan(policy, keys)
        segment_bytes = max(256, plan.nbytes // 24 // 64 * 64)
        direct = RedisFilter.create(strong, "study", plan, segment_bytes=segment_bytes)
        twin = filters.build(direct.plan.filter)
        shared: Any = await _resolve((RedisFilter if quick else AsyncRedisFilter).open(weak, "study"))
        added = 0
        for turn in range(calls):
            some = [rng.randrange(2 * keys) for _ in range(rng.choice((3, 120)))]
            name = rng.choice(("add", "add", "contains", "contains_many", "add_many", "add_many", "to_local"))
            new = np.arange(added, added + rng.choice((2, 11)))
            argument = {
                "add": (added,), "contains": (some[0],), "contains_many": (some,), "add_many": (new,),
            }.get(name, ())  # fmt: skip
            if name == "to_local" and turn % 5:
                name, argument = "contains", (added // 2,)

            def call(name: str = name, argument: Any = argument) -> Any:
                return getattr(shared, name)(*argument)

            faults.order(3000 if name in ("add", "contains") else 60_000)
            outcome.calls += 1
            begun = time.monotonic()
            try:
                task = asyncio.ensure_future(call()) if not quick else None
                if task is not None and rng.random() < 0.1:
                    asyncio.get_running_loop().call_later(rng.random() * 2e-3, task.cancel)
                answer = await task if task is not None else call()
            except (redis.ConnectionError, redis.TimeoutError, asyncio.CancelledError) as error:
                outcome.failed[type(error).__name__] += 1
                outcome.longest = max(outcome.longest, time.monotonic() - begun)
                faults.heal()
                answer = await _repeat(call, outcome)
            faults.heal()
            if name in ("add", "add_many"):
                added += 1 if name == "add" else len(new)
                twin.add_many(new if name == "add_many" else np.array(argument))
            elif name == "to_local":
                outcome.wrong += answer.to_bytes() != twin.to_bytes()
            else:
                expected = twin.contains_many(some if name == "contains_many" else list(argument))
                outcome.wrong += int(np.count_nonzero(np.atleast_1d(answer) != expected))
        faults.count()
        outcome.lost = int(np.count_nonzero(~direct.contains_many(np.arange(added))))
        found = direct.to_local()
        found._check()
        outcome.wrong += found.to_bytes() != twin.to_bytes()
        direct.close()
        if quick:
            shared.close()
    return outcome


# --- values ------------------------------------------------------------------------------------------------


async def run_values(kind: str, *, calls: int, seed: int, timeout: float = TIMEOUT) -> Outcome:
    """Cut connections of a client of many servers, and compare with a dictionary."""
    rng = random.Random(f"{kind} {seed}")
    outcome = Outcome(f"values-{kind}", timeout=timeout)
    command = router_servers.memcached if kind == "memcached" else router_servers.redis_server
    make: Any = {"redis": ShardedRedis, "async": AsyncShardedRedis, "memcached": RingMemcache}[kind]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        servers = stack.enter_context(router_servers.running(command, 3, Path(folder)))
        proxies = [stack.enter_context(FaultProxy(each.port)) for each in servers]
        faults = _Faults(proxies, rng, outcome)
        changes: list[str] = []
        client = make(
            [each.name for each in proxies], timeout=timeout, connect_timeout=timeout, failures=2,
            backoff=QUICK, on_change=lambda server, state: changes.append(state),
        )  # fmt: skip
        keys = [f"key:{number}" for number in range(60)]
        values: dict[str, bytes] = {}
        counts: dict[str, set[int]] = {f"n:{number}": {0} for number in range(10)}  # what each may be
        for name in counts:
            await _resolve(client.set(name, b"0"))
        many_get, many_set = ("get_many", "set_many") if kind == "memcached" else ("mget", "mset")
        for turn in range(calls):
            name = rng.choice(("set", "get", "get", "delete", "many_set", "many_get", "incr"))
            key, some, value = (
                rng.choice(keys),
                rng.sample(keys, 12),
                b"%d" % turn + b"." * rng.choice((1, 900)),
            )
            counter = rng.choice(list(counts))
            faults.order(4000 if name.startswith("many") else 800)
            outcome.calls += 1
            begun = time.monotonic()
            try:
                if name == "set":
                    await _resolve(client.set(key, value))
                    values[key] = value
                elif name == "get":
                    outcome.wrong += (await _resolve(client.get(key))) != values.get(key)
                elif name == "delete":
                    await _resolve(client.delete(key))
                    values.pop(key, None)
                elif name == "many_set":
                    await _resolve(getattr(client, many_set)(dict.fromkeys(some, value)))
                    values |= dict.fromkeys(some, value)
                elif name == "many_get":
                    found = await _resolve(getattr(client, many_get)(some))
                    found = [found.get(each) for each in some] if kind == "memcached" else found
                    outcome.wrong += found != [values.get(each) for each in some]
                else:
                    before = counts[counter]
                    counts[counter] = before | {each + 1 for each in before}  # if it fails
                    answer = int(await _resolve(client.incr(counter, 1)))
                    outcome.wrong += answer not in {each + 1 for each in before}
                    counts[counter] = {answer}
            except ServerDownError as error:
                outcome.failed[f"{name} {type(error).__name__}"] += 1
                outcome.unrecovered += name != "incr"  # all else may be repeated, and one cut is one failure
                faults.heal()
                await _resolve(client.get(counter))  # failures in a row are two calls' otherwise
            outcome.longest = max(outcome.longest, time.monotonic() - begun)
            faults.heal()
        faults.count()
        outcome.lost = sum([await _resolve(client.get(key)) != values.get(key) for key in keys])
        for name, may_be in counts.items():
            outcome.lost += int(await _resolve(client.get(name))) not in may_be
        outcome.wrong += any(client.ring.lease_loads().values()) + len(changes)  # one cut takes nobody down
        await _resolve(client.close())
    return outcome


# --- the router --------------------------------------------------------------------------------------------


class _Pages:
    """A replica: a page for each number, by length or in chunks; it counts what it executes."""

    def __init__(self) -> None:
        self.executed: Counter[str] = Counter()

    @staticmethod
    def page(number: str) -> bytes:
        return random.Random(number).randbytes(random.Random(number).choice((10, 3000, 90_000)))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return  # not all of it came: nothing is executed
            body, more = body + message.get("body", b""), message.get("more_body", False)
        number = scope["path"].strip("/")
        self.executed[f"{scope['method']} {number}"] += 1
        page = self.page(number)
        headers = [(b"content-length", b"%d" % len(page))] if int(number) % 2 else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for start in range(0, len(page), 20_000):
            piece = {"body": page[start : start + 20_000], "more_body": True}
            await send({"type": "http.response.body", **piece})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def run_router(*, calls: int, seed: int, timeout: float = TIMEOUT) -> Outcome:
    """Cut connections between the router and its replicas."""
    rng = random.Random(f"router {seed}")
    outcome = Outcome("router", timeout=timeout)
    async with contextlib.AsyncExitStack() as stack:
        replicas = [_Pages() for _ in range(3)]
        urls = [await stack.enter_async_context(served(each)) for each in replicas]
        proxies = [stack.enter_context(FaultProxy(int(url.rpartition(":")[2]))) for url in urls]
        router = Router(RouterConfig(
            [f"http://{each.name}" for each in proxies], read_timeout=timeout, connect_timeout=timeout,
            failures=2, backoff=QUICK,
        ))  # fmt: skip
        base = await stack.enter_async_context(served(router))
        options: dict[str, Any] = {"base_url": base, "trust_env": False, "verify": False, "timeout": 60}
        client = await stack.enter_async_context(httpx.AsyncClient(**options))
        faults = _Faults(proxies, rng, outcome)
        for turn in range(calls):
            method, body = rng.choice((("GET", b""), ("POST", b"x" * 10), ("POST", b"x" * 50_000)))
            faults.order(120_000)
            outcome.calls += 1
            begun = time.monotonic()
            try:
                answer = await client.request(method, f"/{turn}", content=body)
                if answer.status_code == 200:
                    outcome.wrong += answer.content != _Pages.page(str(turn))
                else:
                    outcome.failed[f"{method} {answer.status_code}"] += 1
                    outcome.wrong += answer.status_code not in (502, 503, 504)
            except (httpx.RemoteProtocolError, httpx.ReadError) as error:
                outcome.failed[f"{method} {type(error).__name__}"] += 1
            outcome.longest = max(outcome.longest, time.monotonic() - begun)
            faults.heal()
        faults.count()
        executed = Counter[str]()
        for each in replicas:
            executed.update(each.executed)
        outcome.wrong += sum(n > 1 for name, n in executed.items() if name.startswith("POST"))
        async with asyncio.timeout(60):
            while any(each["state"] != "up" for each in router.status()["upstreams"].values()):
                await asyncio.sleep(0.02)
        for turn in range(30):
            outcome.unrecovered += (await client.get(f"/{turn}")).content != _Pages.page(str(turn))
        outcome.lost = router.status()["in_flight"]
    return outcome


# --- shared loads ------------------------------------------------------------------------------------------


def _leases(server: filter_servers.Server, ring: HashRing) -> int:
    with server.client() as client:
        return sum(RedisLoads(client, "study").loads(ring).values())


async def run_loads(*, calls: int, seed: int, timeout: float = TIMEOUT) -> Outcome:
    """Cut connections to the Redis that counts requests of three clients."""
    rng = random.Random(f"loads {seed}")
    outcome = Outcome("loads", timeout=timeout)
    limit, ttl, nodes = 2, 4 * timeout, [f"node{number}" for number in range(4)]
    held: Counter[str] = Counter()
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(filter_servers.running())
        proxy = stack.enter_context(FaultProxy(server.port))
        faults = _Faults([proxy], rng, outcome)
        ring = HashRing(nodes, limit=limit)
        options: dict[str, Any] = {"socket_timeout": timeout, "retry": AsyncRetry(NoBackoff(), 1)}
        clients = [redis.asyncio.Redis(host=HOST, port=proxy.port, **options) for _ in range(3)]
        loads = [AsyncRedisLoads(each, "study", ttl=ttl) for each in clients]

        async def work(number: int) -> None:
            own = random.Random(f"{seed} {number}")
            for _ in range(calls // 12):
                if number == 0:
                    faults.order(1500, hang=0.03)
                outcome.calls += 1
                begun = time.monotonic()
                try:
                    async with loads[number % 3].admit(ring, own.randrange(1000)) as node:
                        outcome.longest = max(outcome.longest, time.monotonic() - begun)
                        held[node] += 1
                        outcome.wrong += held[node] > limit
                        await asyncio.sleep(own.random() * 0.004)
                        held[node] -= 1
                except RingFullError:
                    outcome.failed["RingFullError"] += 1
                    await asyncio.sleep(0.002)
                except (redis.ConnectionError, redis.TimeoutError) as error:
                    outcome.failed[type(error).__name__] += 1
                    outcome.longest = max(outcome.longest, time.monotonic() - begun)

        await asyncio.gather(*(work(number) for number in range(12)))
        faults.heal()
        faults.count()
        deadline = (
            time.monotonic() + 3 * ttl + 5
        )  # what was admitted and not answered, or not taken back, ends
        while left := _leases(server, ring):
            if time.monotonic() > deadline:
                outcome.lost = left
                break
            await asyncio.sleep(0.05)
        for each, client in zip(loads, clients, strict=True):
            await each.close()
            await client.aclose()
    return outcome


def _all_filters(kind: str, calls: int, seed: int) -> list[Run]:
    return [
        functools.partial(run_filter, kind, policy, calls=calls // len(POLICIES), seed=seed, quick=quick)
        for quick in (True, False)
        for policy in POLICIES
    ]


RUNS: dict[str, Callable[[int, int], list[Run]]] = {
    **{f"filter-{kind}": functools.partial(_all_filters, kind) for kind in ("one", "several", "cluster")},
    **{
        f"values-{kind}": lambda calls, seed, kind=kind: [  # type: ignore[misc]
            functools.partial(run_values, kind, calls=calls, seed=seed)
        ]
        for kind in ("redis", "async", "memcached")
    },
    "router": lambda calls, seed: [functools.partial(run_router, calls=calls, seed=seed)],
    "loads": lambda calls, seed: [functools.partial(run_loads, calls=calls, seed=seed)],
}


def main() -> None:
    """Run what is asked for, and print what it counted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(RUNS))
    parser.add_argument("--calls", type=int, default=2000, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    good, cuts, calls, begun = True, 0, 0, time.perf_counter()
    for kind in options.kinds or RUNS:
        for run in RUNS[kind](options.calls, options.seed):
            outcome = at_the_machines_pace(run)
            print(outcome, flush=True)
            good, cuts, calls = good and outcome.good, cuts + outcome.cuts, calls + outcome.calls
    said = f"all: calls {calls}, cuts {cuts}: {'every promise kept' if good else 'BROKEN'}"
    print(said)
    if len(sys.argv) == 1:
        records.keep("faults", "make faults", [said], time.perf_counter() - begun)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
