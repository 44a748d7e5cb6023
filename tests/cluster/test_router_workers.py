"""Workers of `evenbins route`: one port, one bound, one state; a worker that dies is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import multiprocessing
import os
import random
import signal
import subprocess
import time

import pytest
from router_servers import until
from test_route_command import COMMAND, ask, replica  # noqa: F401

from evenbins import HashRing
from evenbins.cluster.http_settings import settings_from
from evenbins.cluster.http_workers import Journal, WorkerLoads
from evenbins.rings import NoNodesError, RingFullError


def take(loads, ring, key, **options):
    return asyncio.run(loads.take(ring, key, **options))


@pytest.mark.parametrize("bound", [{"epsilon": 0.25}, {"limit": 3}])
def test_one_process_admits_as_a_ring_does(bound):
    names = [f"n{number}" for number in range(5)]
    weights = {"n0": 2.0, "n3": 0.5}
    ring, twin = (HashRing(names, weights=weights, **bound) for _ in range(2))
    loads = WorkerLoads(3)
    loads.use_row(1)
    rng = random.Random(1)
    held = []
    for step in range(600):
        if held and rng.random() < 0.45:
            release, lease = held.pop(rng.randrange(len(held)))
            release()
            lease.release()
        else:
            lease = twin.lease(step)
            try:
                expected = lease.acquire()
            except RingFullError:
                with pytest.raises(RingFullError):
                    take(loads, ring, step)
                continue
            name, release = take(loads, ring, step)
            assert name == expected
            held.append((release, lease))
    assert loads.counts(twin.names) == [twin.lease_loads()[name] for name in twin.names]
    with pytest.raises(NoNodesError):
        take(loads, ring, 1, avoid=names)


def _load(loads, row, ring, seconds, over):
    loads.use_row(row)
    end = time.monotonic() + seconds
    held = []
    while time.monotonic() < end:
        with contextlib.suppress(RingFullError):
            held.append(take_now(loads, ring, len(held)))
        over.value = max(over.value, max(loads.counts(ring.names)))
        if len(held) > 2:
            held.pop(0)()
    for release in held:
        release()


def take_now(loads, ring, key):
    step = loads.take(ring, key)
    try:
        step.send(None)
    except StopIteration as done:
        return done.value[1]
    raise AssertionError("it waited")


def test_no_process_exceeds_the_bound_of_all():
    context = multiprocessing.get_context("fork")
    ring, loads, over = HashRing(["a", "b"], limit=2), WorkerLoads(3), context.Value("i", 0)
    processes = [context.Process(target=_load, args=(loads, row, ring, 0.5, over)) for row in range(3)]
    for each in processes:
        each.start()
    for each in processes:
        each.join(60)
        assert each.exitcode == 0
    assert over.value == 2
    assert loads.counts(["a", "b"]) == [0, 0]


def test_a_journal_is_read_in_order_and_anew_after_it_was_emptied():
    writer = Journal()
    writer.write("add", {"upstream": "x"})
    writer.write("drain", {"upstream": "x"})
    assert writer.new() == [("add", {"upstream": "x"}), ("drain", {"upstream": "x"})]
    assert writer.new() == []
    writer.write("drain", {"upstream": "y"})
    writer.write("undrain", {"upstream": "y"})
    writer.write("weight", {"upstream": "x", "weight": "2"})
    writer.empty()
    assert writer.new() == [("drain", {"upstream": "x"})]  # as it is in workers that reload
    writer.write("undrain", {"upstream": "x"})
    assert writer.new() == [("undrain", {"upstream": "x"})]
    writer.empty()
    assert writer.new() == []


def statuses(port):
    """The status of each worker, by process; connections are spread by chance."""
    found = {}
    for _ in range(24):
        status = json.loads(ask(port, "/-/status")[1])
        found[status["process"]] = status
    return found


def test_workers_share_a_port_follow_changes_and_are_replaced(replica, tmp_path):  # noqa: F811
    file = tmp_path / "route.toml"
    text = f'upstreams = ["{replica}", "http://127.0.0.1:1"]\nport = 0\nworkers = 2\n'
    file.write_text(text)
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen(
            [*COMMAND, "--config", str(file)], stderr=subprocess.PIPE, text=True,
            env=os.environ | {"EVENBINS_ADMIN_TOKEN": "t"},
        )  # fmt: skip
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stderr is not None
        stack.callback(process.stderr.close)
        port = int(process.stderr.readline().rpartition(":")[2])

        def answers():
            with contextlib.suppress(OSError, http.client.HTTPException):
                return len(statuses(port)) == 2
            return False

        until(answers, what="the answers of two workers")

        def change(what):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("POST", f"/-/{what}", headers={"Authorization": "Bearer t"})
            assert connection.getresponse().status == 200
            connection.close()

        for _ in range(20):
            assert ask(port, "/x") == (200, b"ok")
        line = f'evenbins_route_requests_total{{upstream="{replica}",code="200"}} 20\n'
        until(lambda: line in ask(port, "/-/metrics")[1].decode(), what="the sum of all workers' counts")
        change("remove?upstream=http://127.0.0.1:1")
        change(f"weight?upstream={replica}&weight=3")

        def same(weight, count=1):
            found = statuses(port).values()
            shown = [[each["weight"] for each in status["upstreams"].values()] for status in found]
            return len(shown) == 2 and all(each[-1:] == [weight] and len(each) == count for each in shown)

        until(lambda: same(3.0), what="a change in all workers")
        victim = next(iter(statuses(port)))
        os.kill(victim, signal.SIGKILL)
        assert "ended (signal 9): another one takes its place" in process.stderr.readline()
        until(lambda: answers() and victim not in statuses(port), what="a new worker")
        until(lambda: same(3.0), what="the change in the new worker")
        assert ask(port, "/x") == (200, b"ok")
        file.write_text(f'upstreams = ["{replica}=5"]\nport = 0\nworkers = 2\n')
        process.send_signal(signal.SIGHUP)
        until(lambda: same(5.0), what="a reload of all workers")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.parametrize("policy", ["prefix", "score"])
def test_policies_that_remember_prefixes_need_one_process(policy):
    """docs/routing.md says what several would lose."""
    options = {"upstreams": ["http://a:1"], "policy": policy}
    assert settings_from(options).config.policy == policy
    with pytest.raises(ValueError, match=r"workers must be 1 .* got 2: each worker would know only its own"):
        settings_from(options | {"workers": 2})


def test_a_journal_that_grew_as_long_again_is_read_anew():
    """A reload empties it; the next change may be as long as those before, or longer."""
    journal = Journal()
    for upstream in ("http://a:1", "http://a:1", "http://longer:1"):
        journal.write("add", {"upstream": upstream})
        assert journal.new() == [("add", {"upstream": upstream})]
        journal.empty()


def test_the_bound_of_a_pool_does_not_count_requests_of_others():
    loads = WorkerLoads(2)
    busy, ring = (HashRing([f"{name}{number}" for number in range(8)], epsilon=0.25) for name in "ab")
    for number in range(400):
        take(loads, busy, number)
    for _ in range(40):
        take(loads, ring, "hot")
    assert max(loads.counts(ring.names)) == 7  # ceil(1.25 * 40 / 8)


def test_workers_end_when_their_parent_was_killed(replica):  # noqa: F811
    """Otherwise a router that is started anew would share its port with them."""
    command = [*COMMAND, "--upstream", replica, "--port", "0", "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition(":")[2])

        def status():
            with contextlib.suppress(OSError, http.client.HTTPException):
                return statuses(port)
            return {}

        until(lambda: len(status()) == 2, what="the answers of two workers")
    finally:
        process.kill()
        process.wait()
    assert process.stderr.read() is not None  # until the last one has closed it
    process.stderr.close()
    assert status() == {}
