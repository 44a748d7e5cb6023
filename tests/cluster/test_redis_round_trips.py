"""Round trips: what the plan predicts, the client counts and the server counts (INFO commandstats) agree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from filter_servers import running

from evenbins import theory
from evenbins.cluster import RedisFilter, _one_key
from evenbins.filters import digest_many

KEYS = 40_000


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with running() as server, server.client() as found:
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
            replies = iter(shared._servers.run(requests))
            going: dict[int, Any] = {}
            for number, own in waiting.items():
                try:
                    going[number] = operations[number].send([next(replies) for _ in own])
                except StopIteration as end:
                    found[number] = end.value
            waiting = going
        answers += [found[number] for number in range(len(operations))]
    return answers


@pytest.mark.parametrize("walk", ["client", "server"])
def test_round_trips_of_the_multilevel_filter_at_24_bits(client: Any, walk: str) -> None:
    """40,000 keys; every fourth of them, and 10,000 absent keys: within 2 % of the plan, four deviations."""
    client.flushall()
    plan = theory.plan_balanced(
        KEYS, bits_per_key=24, policy="multilevel", reads=1.2, choices=3, overflow=0.005, seed=1
    )
    shared = RedisFilter.create(client, "x", plan, walk=walk)
    shared.add_many(np.arange(KEYS))
    "a" in shared  # noqa: B015  # the server learns the scripts
    client.config_resetstat()
    assert all(in_lockstep(shared, range(0, KEYS, 4)))
    present = scripts_run(client) / (KEYS / 4)
    client.config_resetstat()
    assert sum(in_lockstep(shared, range(10**6, 10**6 + 10_000))) < 20
    absent = scripts_run(client) / 10_000
    assert present == pytest.approx(shared.plan.round_trips, rel=0.02)
    assert absent == pytest.approx(shared.plan.miss_round_trips, rel=0.02)
    if walk == "client":
        assert (present, absent) == (pytest.approx(1.2, abs=0.1), pytest.approx(2.3, abs=0.4))
    else:
        assert (present, absent) == (pytest.approx(1.0, abs=0.02), pytest.approx(1.1, abs=0.15))


@pytest.mark.parametrize("policy", ["fill", "two-choice", "blocked", "standard"])
@pytest.mark.parametrize("walk", ["client", "server"])
def test_round_trips_of_the_others(client: Any, policy: str, walk: str) -> None:
    client.flushall()
    planner: Any = {"blocked": theory.plan_blocked, "standard": theory.plan_standard}.get(policy)
    if planner is None:
        plan = theory.plan_balanced(20_000, bits_per_key=24, policy=policy, seed=1)
    else:
        plan = planner(20_000, bits_per_key=24, seed=1)
    shared = RedisFilter.create(client, "x", plan, segment_bytes=8192, walk=walk)
    shared.add_many(np.arange(20_000))
    _ = "a" in shared
    client.config_resetstat()
    assert all(in_lockstep(shared, range(0, 20_000, 20)))
    assert scripts_run(client) / 1000 == pytest.approx(shared.plan.round_trips, rel=0.05)
    client.config_resetstat()
    in_lockstep(shared, range(10**6, 10**6 + 1000))
    assert scripts_run(client) / 1000 == pytest.approx(shared.plan.miss_round_trips, rel=0.05)


@pytest.mark.parametrize("walk", ["client", "server"])
@pytest.mark.parametrize("policy", ["multilevel", "fill", "two-choice"])
def test_a_client_counts_what_the_server_counts(client: Any, policy: str, walk: str) -> None:
    """1,000 single adds into an empty filter, then look-ups of 200 present and of 200 absent keys."""
    client.flushall()
    plan = theory.plan_balanced(1000, bits_per_key=24, policy=policy, seed=1)
    shared = RedisFilter.create(client, "x", plan, walk=walk, segment_bytes=512)
    shared.add(0)
    _ = 0 in shared
    shared = RedisFilter.open(client, "x", walk=walk)
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


def test_single_calls_keep_one_connection_and_give_it_back(client: Any) -> None:
    client.flushall()
    with RedisFilter.create(client, "x", theory.plan_blocked(100)) as shared:
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
        shared = RedisFilter.create(client, "x", theory.plan_blocked(100))
        shared.add(1)
        other.client_kill_filter(_type="normal", skipme=True)
        shared.add(2)
        assert 1 in shared
        assert 2 in shared


def test_a_child_process_takes_a_connection_of_its_own() -> None:
    with running() as server, server.client() as client:
        shared = RedisFilter.create(client, "x", theory.plan_blocked(1000, fpr=1e-6))
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
