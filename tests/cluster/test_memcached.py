"""Keys on real memcached servers: pymemcache's client with our hasher, and ours; servers die and return."""

from __future__ import annotations

import functools
import sys
import threading
import time
from pathlib import Path

import pytest
from pymemcache.client.hash import HashClient
from router_servers import memcached, running, until

from evenbins import HashRing, NoNodesError, RingFullError
from evenbins.cluster.health import Backoff, ServerDownError
from evenbins.cluster.memcached import RingHasher, RingMemcache

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import kill_study

QUICK = Backoff(first=0.05, factor=1.5, most=0.2)
KEYS = [f"key:{number}" for number in range(400)]


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with running(memcached, 3, tmp_path_factory.mktemp("memcached")) as servers:
        yield servers


@pytest.fixture
def client(three):
    with RingMemcache([each.name for each in three], backoff=QUICK, timeout=20) as client:
        client.flush_all()
        yield client


# --- the hasher -----------------------------------------------------------------------------------------


def test_hasher_does_not_care_for_the_order_of_servers():
    one, other = RingHasher(seed=5), RingHasher(seed=5)
    for name in "abc":
        one.add_node(name)
    for name in "cba":
        other.add_node(name)
    assert [one.get_node(key) for key in KEYS] == [other.get_node(key) for key in KEYS]
    assert one.get_node("key:1") == HashRing(list("abc"), seed=5).node(b"key:1") == one.get_node(b"key:1")


def test_hasher_without_servers_answers_none_and_refuses_strangers():
    hasher = RingHasher()
    assert hasher.get_node("key") is None
    with pytest.raises(ValueError, match="no such server"):
        hasher.remove_node("a")


def test_hasher_keeps_a_dead_servers_place():
    hasher = RingHasher()
    for name in "abcd":
        hasher.add_node(name)
    before = [hasher.get_node(key) for key in KEYS]
    hasher.remove_node("b")
    during = [hasher.get_node(key) for key in KEYS]
    assert all(old == new for old, new in zip(before, during, strict=True) if old != "b")
    assert "b" not in during
    hasher.add_node("b")
    assert [hasher.get_node(key) for key in KEYS] == before
    hasher.forget("b")
    assert "b" not in hasher.ring.names


def test_hash_client_with_our_hasher_loses_a_server_and_finds_it_again(tmp_path):
    with running(memcached, 3, tmp_path) as servers:
        client = HashClient(
            [("127.0.0.1", each.port) for each in servers], hasher=functools.partial(RingHasher, seed=1),
            retry_attempts=0, dead_timeout=0.2, ignore_exc=True, connect_timeout=20, timeout=20,
            default_noreply=False,
        )  # fmt: skip
        client.set_many(dict.fromkeys(KEYS, b"1"))
        before = {key: client.hasher.get_node(key) for key in KEYS}
        assert client.get_many(KEYS) == dict.fromkeys(KEYS, b"1")
        victim = servers[0]
        victim.kill()
        mine = [key for key in KEYS if before[key] == victim.name]
        assert mine
        client.get(mine[0])  # the connection was closed, which this client takes for no failure
        client.get(mine[0])
        assert client.hasher.ring.states[victim.name] == "down"
        after = {key: client.hasher.get_node(key) for key in KEYS}
        assert all(after[key] == before[key] for key in KEYS if key not in mine)
        victim.start()
        time.sleep(0.3)
        until(lambda: client.set(mine[0], b"2") and client.hasher.get_node(mine[0]) == victim.name)
        assert {key: client.hasher.get_node(key) for key in KEYS} == before


# --- the client -----------------------------------------------------------------------------------------


def test_methods_answer_as_pymemcache_does(client):
    assert client.get("a") is None
    assert client.get("a", 7) == 7
    assert client.set("a", b"1") is True
    assert client.get("a") == b"1"
    assert client.add("a", b"2") is False
    assert client.add("b", b"2") is True
    assert client.replace("none", b"2") is False
    assert client.append("b", b"3")
    assert client.prepend("b", b"1")
    assert client.get(b"b") == b"123"
    assert client.incr("a", 4) == 5
    assert client.decr("a", 1) == 4
    assert client.incr("none", 1) is None
    _, token = client.gets("a")
    assert client.cas("a", b"9", token) is True
    assert client.cas("a", b"8", token) is False
    assert client.touch("a", 100) is True
    assert client.delete("a") is True
    assert client.delete("a") is False
    assert client.set_many({key: key.encode() for key in KEYS}) == []
    assert client.get_many([*KEYS, "none", KEYS[0]]) == {key: key.encode() for key in KEYS}
    assert client.delete_many(KEYS[:300]) is True
    assert len(client.get_many(KEYS)) == 100
    assert client.flush_all() is True
    assert client.get_many(KEYS) == {}
    assert all("uptime" in each for each in client.stats().values())
    assert len(client.version()) == 3


def test_keys_are_where_the_ring_says(three, client):
    client.set_many(dict.fromkeys(KEYS, b"1"))
    counts = {name: int(stats["curr_items"]) for name, stats in client.stats().items()}
    assert counts == {each.name: sum(client.server_for(key) == each.name for key in KEYS) for each in three}


def test_bad_keys_are_refused_before_anything_is_sent(client):
    from pymemcache.exceptions import MemcacheIllegalInputError

    with pytest.raises(MemcacheIllegalInputError):
        client.set("with space", b"1")
    assert client.status()["repeats"] == 0
    assert set(client.ring.states.values()) == {"up"}


@pytest.mark.parametrize(
    ("servers", "error"),
    [("a:1", TypeError), ([], ValueError), ([3], TypeError), (["a:1", "a:1"], ValueError)],
)
def test_bad_servers_are_refused(servers, error):
    with pytest.raises(error):
        RingMemcache(servers)


def test_without_a_living_server_errors_say_so(tmp_path):
    with (
        running(memcached, 1, tmp_path) as servers,
        RingMemcache([servers[0].name], failures=1, timeout=20) as client,
    ):
        client.set("a", b"1")
        servers[0].kill()
        with pytest.raises((NoNodesError, ServerDownError)):
            client.get("a")
        with pytest.raises(NoNodesError, match=r"no server is left to ask: 127\.0\.0\.1:\d+ failed: .*rror"):
            client.incr("a", 1)
        with pytest.raises(NoNodesError, match="no server is left to ask"):
            client.get_many(["a"])


def test_full_servers_let_reads_jump_and_changes_wait(three):
    names = [each.name for each in three]
    with RingMemcache(names, limit=1, wait=0.05, timeout=20) as client:
        key = "hot"
        home = client.ring.node(key)
        with client.ring.lease(key) as node:
            assert node == home
            client.set(key, b"copy")  # jumps
            assert client.status()["jumps"] == 1
            assert client.get(key) == b"copy"
            with pytest.raises(RingFullError, match=f"server {home} is at its limit"):
                client.incr(key, 1)
            with (
                client.ring.lease(key),
                client.ring.lease(key),
                pytest.raises(RingFullError, match="every server"),
            ):
                client.get(key)
        assert client.get(key) is None  # its own server never had it
        client.delete(key)
        with client.ring.lease(key):
            assert client.get(key) is None  # the copy went with it
    with RingMemcache(names, limit=1, wait=5.0, when_full="wait", timeout=20) as client:
        lease = client.ring.lease(key)
        assert lease.acquire() == home
        threading.Timer(0.1, lease.release).start()
        client.set(key, b"waited")
        assert client.get(key) == b"waited"
        assert client.status()["jumps"] == 0


def test_deleting_many_waits_for_full_servers_as_deleting_one_does(three):
    with RingMemcache([each.name for each in three], limit=1, wait=0.05, timeout=20) as client:
        client.set_many(dict.fromkeys(KEYS[:20], b"old"))
        with client.ring.lease(KEYS[0]) as home:
            for delete in (lambda: client.delete(KEYS[0]), lambda: client.delete_many(KEYS[:20])):
                with pytest.raises(RingFullError, match=f"server {home} is at its limit"):
                    delete()
        assert client.get(KEYS[0]) == b"old"  # and the caller knows
        assert client.delete_many(KEYS[:20]) is True
        assert client.get_many(KEYS[:20]) == {}
        client.set(KEYS[0], b"old")
    with RingMemcache([each.name for each in three], limit=1, wait=20.0, timeout=20) as client:
        lease = client.ring.lease(KEYS[0])
        lease.acquire()
        threading.Timer(0.1, lease.release).start()
        assert client.delete_many(KEYS[:1]) is True
        assert client.get(KEYS[0]) is None


def test_a_drained_server_gets_nothing_until_undrained(three, client):
    name = three[0].name
    key = next(each for each in KEYS if client.server_for(each) == name)
    client.set(key, b"old")
    assert client.drain(name) is True
    assert client.server_for(key) != name
    assert client.get(key) is None
    client.set(key, b"new")
    client.undrain(name)
    assert client.server_for(key) == name
    assert client.get(key) is None  # not b"old": it was flushed


def test_drain_waits_for_requests_under_way(three, client):
    name = three[0].name
    key = next(each for each in KEYS if client.server_for(each) == name)
    with client.ring.lease(key):
        assert client.drain(name, timeout=0.1) is False
    assert client.drain(name, timeout=60) is True


def test_a_callback_that_raises_comes_out_of_no_call(tmp_path, caplog):
    def noisy(name, state):
        raise RuntimeError(f"cannot log {state}")

    with (
        running(memcached, 2, tmp_path) as servers,
        RingMemcache([each.name for each in servers], backoff=QUICK, on_change=noisy, timeout=20) as client,
    ):
        victim = servers[0]
        key = next(key for key in KEYS if client.server_for(key) == victim.name)
        client.set(key, b"1")
        victim.kill()
        assert client.get(key) is None
        assert client.ring.states[victim.name] == "down"
        victim.start()
        until(lambda: client.ring.states[victim.name] == "up")
        assert client.set(key, b"2")
        assert client.get(key) == b"2"
    assert {each.name for each in caplog.records} == {"evenbins.cluster.health"}


def test_servers_come_and_go(three):
    names = [each.name for each in three]
    with RingMemcache(names[:2], timeout=20) as client:
        before = {key: client.server_for(key) for key in KEYS}
        client.add_server(("127.0.0.1", three[2].port), 2.0)
        after = {key: client.server_for(key) for key in KEYS}
        assert {after[key] for key in KEYS if after[key] != before[key]} == {names[2]}
        client.remove_server(names[2])
        last = {key: client.server_for(key) for key in KEYS}
        assert all(last[key] == after[key] for key in KEYS if after[key] != names[2])
        client.set("a", b"1")
        assert client.get("a") == b"1"


def test_a_refused_server_leaves_nothing_behind(three):
    names = [each.name for each in three]
    with RingMemcache(names[:2], timeout=20) as client:
        pools = dict(client._pools)
        for name, weight in ((names[2], -5), (names[0], 1.0)):
            with pytest.raises(ValueError, match=r"weight|already"):
                client.add_server(name, weight)
            assert client._pools == pools
        client.add_server(names[2])
        client.remove_server(names[2])
        client.add_server(names[2])
        client.set_many(dict.fromkeys(KEYS, b"1"))
        assert len(client.get_many(KEYS)) == len(KEYS)


def test_a_server_that_hung_returns_empty_so_that_no_old_value_does(tmp_path):
    with running(memcached, 2, tmp_path) as servers:
        names = [each.name for each in servers]
        with RingMemcache(names, timeout=1.0, connect_timeout=1.0, failures=1, backoff=QUICK) as client:
            key = next(each for each in KEYS if client.server_for(each) == names[0])
            client.set(key, b"old")
            servers[0].stop()
            client.set(key, b"new")  # times out, goes to the other
            assert client.ring.states[names[0]] == "down"
            assert client.get(key) == b"new"
            servers[0].go_on()
            until(lambda: client.ring.states[names[0]] == "up")
            assert client.server_for(key) == names[0]
            assert client.get(key) is None


# --- the target: one of eight servers dies under load, and returns --------------------------------------


def test_one_of_eight_killed_under_load_then_restarted(tmp_path):
    """The target, twice; `tools/kill_study.py` does the same at length."""
    found = kill_study.run(tmp_path, kills=2, pause=0.3)
    assert found.failed == 0
    assert found.in_flight_failed <= found.in_flight_most
    assert (found.moved, found.stayed, found.lost) == (0, 0, 0)
    assert 1 < found.most <= found.limit
    assert (found.idle_threads, found.leases_left) == (0, 0)
    assert found.repeats > 0
