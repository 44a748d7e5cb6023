"""Round trips: what the plan predicts, the client counts and the server counts (INFO commandstats) agree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from filter_servers import running

from evenbins import FilterPlan
from evenbins.cluster import RedisFilter, _one_key
from evenbins.cluster._scripts import SCRIPTS
from evenbins.filters import plan_balanced, plan_blocked, plan_standard
from evenbins.hashing import digest_many
from evenbins.study.levels import plan_levels

KEYS = 40_000


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with running() as server, server.client() as found:
        for script in SCRIPTS:
            found.script_load(script.text)
        yield found


def scripts_run(client: Any) -> int:
    """Ask the server how many requests it answered: scripts are all that single calls send."""
    return int(client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


def in_lockstep(shared: RedisFilter, keys: Sequence[int], at_once: int = 500) -> list[bool]:
    """Ask for keys one by one, many of them side by side, so that it does not take long.

    Each key sends the requests that it would send alone.
    """
    answers: list[bool] = []
    digests = digest_many(np.array(keys), shared.seed).tolist()
    for start in range(0, len(digests), at_once):
        operations = [
            _one_key.contains_one(shared._layout, each) for each in digests[start : start + at_once]
        ]
        found: dict[int, bool] = {}
        waiting = {number: next(each) for number, each in enumerate(operations)}
        while waiting:
            requests = [request for own in waiting.values() for request in own]
            answered = shared._servers.run(requests)
            assert all(isinstance(each, bytes) for each in answered)
            replies = iter(answered)
            going: dict[int, Any] = {}
            for number, own in waiting.items():
                try:
                    going[number] = operations[number].send([next(replies) for _ in own])
                except StopIteration as end:
                    found[number] = end.value
            waiting = going
        answers += [found[number] for number in range(len(operations))]
    return answers


def _plan(kind: str) -> FilterPlan:
    if kind == "best":  # without a list
        return plan_balanced(KEYS, bits_per_key=24, policy="multilevel", reads=1.2, choices=3, seed=1)
    return plan_levels(  # equal thresholds, as in the paper: 0.4 % of the keys on the list
        KEYS, policy="multilevel", blocks=(1560, 270, 45), thresholds=(21, 21, 21), coin=0.5, hashes=15,
        overflow_limit=800, seed=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "traverse_on"), [("best", "client"), ("paper's", "client"), ("paper's", "server")]
)
def test_round_trips_of_the_multilevel_filter_at_24_bits(client: Any, kind: str, traverse_on: str) -> None:
    """40,000 keys; every fourth of them, and 10,000 absent keys: within 2 % of the plan, three deviations."""
    client.flushall()
    plan = _plan(kind)
    assert bool(plan.list_reads > 0.4) == (kind == "paper's")
    shared = RedisFilter.create(client, "x", plan, traverse_on=traverse_on)
    shared.add_many(np.arange(KEYS))
    client.config_resetstat()
    assert all(in_lockstep(shared, range(0, KEYS, 4)))
    present = scripts_run(client) / (KEYS / 4)
    client.config_resetstat()
    assert sum(in_lockstep(shared, range(10**6, 10**6 + 10_000))) < 20
    absent = scripts_run(client) / 10_000
    assert present == pytest.approx(shared.plan.round_trips, rel=0.02)
    assert absent == pytest.approx(shared.plan.miss_round_trips, rel=0.02)
    if traverse_on == "client":
        assert present == pytest.approx(1.2, abs=0.1)
        assert 2.0 < absent < 2.9
        assert plan_standard(KEYS, fpr=plan.fpr).hashes >= 14  # the naive filter's
    else:
        assert present < 1.01
        assert 1.4 < absent < 1.5  # the list's


@pytest.mark.parametrize(
    ("policy", "traverse_on"),
    [("fill", "client"), ("two-choice", "client"), ("two-choice", "server"), ("blocked", "client"),
     ("standard", "client"), ("standard", "server")],
)  # fmt: skip
def test_round_trips_of_the_others(client: Any, policy: str, traverse_on: str) -> None:
    client.flushall()
    planner: Any = {"blocked": plan_blocked, "standard": plan_standard}.get(policy)
    if planner is None:
        plan = plan_balanced(20_000, bits_per_key=24, policy=policy, seed=1)
    else:
        plan = planner(20_000, bits_per_key=24, seed=1)
    shared = RedisFilter.create(client, "x", plan, segment_bytes=8192, traverse_on=traverse_on)
    shared.add_many(np.arange(20_000))
    client.config_resetstat()
    assert all(in_lockstep(shared, range(0, 20_000, 40)))
    assert scripts_run(client) / 500 == pytest.approx(shared.plan.round_trips, rel=0.07)
    client.config_resetstat()
    in_lockstep(shared, range(10**6, 10**6 + 500))
    assert scripts_run(client) / 500 == pytest.approx(shared.plan.miss_round_trips, rel=0.07)


@pytest.mark.parametrize("traverse_on", ["client", "server"])
@pytest.mark.parametrize("policy", ["multilevel", "fill", "two-choice"])
def test_a_client_counts_what_the_server_counts(client: Any, policy: str, traverse_on: str) -> None:
    """1,000 single adds into an empty filter, then look-ups of 200 present and of 200 absent keys."""
    client.flushall()
    plan = plan_balanced(1000, bits_per_key=24, policy=policy, seed=1)
    shared = RedisFilter.create(client, "x", plan, traverse_on=traverse_on, segment_bytes=512)
    shared.add(0)
    _ = 0 in shared
    shared = RedisFilter.open(client, "x", traverse_on=traverse_on)
    client.config_resetstat()
    counted = []
    for key in range(1000):
        shared.add(key)
    counted.append(scripts_run(client))
    for key in range(0, 1000, 5):
        assert key in shared
    counted.append(scripts_run(client))
    for key in range(-200, 0):
        _ = key in shared
    counted.append(scripts_run(client))
    stats = shared.stats()
    per_call = [counted[0] / 1000, (counted[1] - counted[0]) / 200, (counted[2] - counted[1]) / 200]
    assert [stats.add_round_trips, stats.round_trips, stats.miss_round_trips] == pytest.approx(per_call)
    assert (stats.added, stats.found, stats.absent) == (1000, 200, 200)
    assert stats.add_round_trips == pytest.approx(shared.plan.add_round_trips, rel=0.05)
    assert stats.to_dict()["round_trips"] == stats.round_trips
    assert stats.requests >= counted[2]


@pytest.mark.parametrize("traverse_on", ["client", "server"])
@pytest.mark.parametrize("policy", ["standard", "blocked", "single", "multilevel", "fill", "two-choice"])
def test_add_new_takes_the_requests_of_add_and_two_for_a_lease(
    client: Any, policy: str, traverse_on: str
) -> None:
    """The figures of docs/redis.md: 300 keys one by one, then batches of 100 and of 5,000 keys.

    Of a standard filter and of two choices a lease is taken and ended, unless the server traverses.
    """
    planner: Any = {"blocked": plan_blocked, "standard": plan_standard}.get(policy)
    if planner is None:
        plan = plan_balanced(20_000, bits_per_key=24, policy=policy, seed=1)
    else:
        plan = planner(20_000, bits_per_key=24, seed=1)
    requests: dict[str, list[int]] = {}
    for kind in ("add", "add_new"):
        client.flushall()
        shared = RedisFilter.create(client, "x", plan, segment_bytes=8192, traverse_on=traverse_on)
        requests[kind] = []
        for keys in (np.arange(300), np.arange(300, 400), np.arange(400, 5400)):
            before = shared.stats().requests
            if len(keys) == 300:
                for key in keys.tolist():
                    getattr(shared, kind)(key)
            else:
                getattr(shared, f"{kind}_many")(keys)
            requests[kind].append(shared.stats().requests - before)
    leased = policy in ("standard", "two-choice")
    extra = [new - plain for new, plain in zip(requests["add_new"], requests["add"], strict=True)]
    assert extra[1:] == [2 * leased, 2 * leased]
    if not leased:
        assert extra[0] == 0
    elif traverse_on == "client":
        assert extra[0] == 600
    elif policy == "standard":
        assert requests["add_new"][0] == 300  # where `add` asks each segment
    else:
        assert extra[0] == 0


def test_single_calls_keep_one_connection_and_give_it_back(client: Any) -> None:
    client.flushall()
    with RedisFilter.create(client, "x", plan_blocked(100)) as shared:
        shared.add(1)
        before = int(client.info("stats")["total_connections_received"])
        for key in range(50):
            shared.add(key)
        assert int(client.info("stats")["total_connections_received"]) == before
    kept = len(client.connection_pool._in_use_connections)
    shared.add(2)
    assert len(client.connection_pool._in_use_connections) == kept + 1
    shared.close()
    assert len(client.connection_pool._in_use_connections) == kept


def test_a_kept_connection_that_the_server_closed_is_renewed() -> None:
    with running() as server, server.client() as client, server.client() as other:
        shared = RedisFilter.create(client, "x", plan_blocked(100))
        shared.add(1)
        other.client_kill_filter(_type="normal", skipme=True)
        shared.add(2)
        assert 1 in shared
        assert 2 in shared


def test_a_child_process_takes_a_connection_of_its_own() -> None:
    with running() as server, server.client() as client:
        shared = RedisFilter.create(client, "x", plan_blocked(1000, fpr=1e-6))
        shared.add(0)
        child = os.fork()
        if child == 0:
            try:
                for key in range(100, 200):
                    shared.add(key)
            finally:
                os._exit(0)
        for key in range(100):
            shared.add(key)
        assert os.waitpid(child, 0)[1] == 0
        assert all(key in shared for key in range(200))
