"""Failures, back-off, probes and drain, by a clock that the test moves."""

from __future__ import annotations

import asyncio
import pickle
import random
import threading

import pytest
from router_servers import until

from evenbins import HashRing, RingFullError
from evenbins.cluster.fleet import AsyncFleet, Fleet
from evenbins.cluster.health import Backoff, Health, ServerDownError

NAMES = ["a", "b", "c"]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make(**options: object) -> tuple[HashRing, Health, Clock, list[tuple[str, str]]]:
    clock, told = Clock(), []
    ring = HashRing(NAMES)
    health = Health(ring, clock=clock, on_change=lambda *change: told.append(change), **options)  # type: ignore[arg-type]
    return ring, health, clock, told


def test_delays_double_up_to_the_most_and_jitter_shortens_them():
    backoff = Backoff(first=0.1, factor=2, most=5, jitter=0.5)
    rng = random.Random(3)
    for failures in range(1, 2000):
        whole = min(5, 0.1 * 2.0 ** min(failures - 1, 60))
        assert backoff.delay(failures) == pytest.approx(whole)
        assert whole / 2 <= backoff.delay(failures, rng) <= whole


@pytest.mark.parametrize(
    ("name", "value"), [("first", 0), ("factor", 0.5), ("most", -1), ("jitter", 1.5), ("most", float("nan"))]
)
def test_impossible_delays_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a number from"):
        Backoff(**{name: value})


def test_failures_in_a_row_take_a_server_down_and_a_success_begins_anew():
    ring, health, _, told = make(failures=3)
    for _ in range(5):
        assert not health.failed("a", OSError("x"))
        assert not health.failed("a", OSError("x"))
        health.succeeded("a")
    assert ring.states["a"] == "up"
    assert [health.failed("a", OSError("x")) for _ in range(4)] == [False, False, True, False]
    assert ring.states["a"] == "down"
    assert told == [("a", "down")]
    assert health.status()["a"]["error"] == "OSError: x"


def test_probes_come_after_growing_delays_and_one_at_a_time():
    ring, health, clock, told = make(backoff=Backoff(first=1, factor=2, most=4, jitter=0))
    health.failed("b", OSError("x"))
    for delay in (1, 2, 4, 4):
        assert health.next_probe() == pytest.approx(delay)
        clock.now += delay - 0.01
        assert health.due() == []
        clock.now += 0.02
        assert health.due() == ["b"]
        assert health.due() == []  # it is being probed
        assert health.next_probe() is None
        clock.now -= 0.01
        health.probe_failed("b", OSError("x"))
    clock.now += 4
    assert health.due() == ["b"]
    health.recovered("b")
    assert ring.states["b"] == "up"
    assert told == [("b", "down"), ("b", "up")]
    health.failed("b", OSError("x"))
    assert health.next_probe() == pytest.approx(1)  # from the beginning


def test_a_report_of_an_earlier_life_changes_nothing():
    ring, health, clock, _ = make(backoff=Backoff(jitter=0))
    epoch = health.epoch("a")
    health.failed("a", OSError("x"), epoch=epoch)
    clock.now += 1
    health.due()
    health.recovered("a")
    assert not health.failed("a", OSError("late"), epoch=epoch)
    assert ring.states["a"] == "up"
    assert health.failed("a", OSError("new"), epoch=health.epoch("a"))


def test_a_drained_server_stays_drained_through_failure_and_recovery():
    ring, health, clock, _ = make()
    health.drain("a")
    health.failed("a", OSError("x"))
    clock.now += 10
    assert health.due() == ["a"]
    health.recovered("a")
    assert ring.states["a"] == health.state("a") == "draining"
    health.undrain("a")
    assert ring.states["a"] == health.state("a") == "up"


def test_undrained_while_down_it_serves_when_it_is_back():
    ring, health, clock, _ = make()
    health.drain("a")
    health.failed("a", OSError("x"))
    health.undrain("a")
    assert ring.states["a"] == "down"
    clock.now += 10
    health.due()
    health.recovered("a")
    assert ring.states["a"] == "up"


def test_keys_of_a_server_that_was_down_return_and_no_other_key_moves():
    ring, health, _, _ = make()
    before = {key: ring.node(key) for key in range(3000)}
    health.failed("a", OSError("x"))
    during = {key: ring.node(key) for key in before}
    assert all(during[key] == node for key, node in before.items() if node != "a")
    assert "a" not in during.values()
    health.recovered("a")
    assert {key: ring.node(key) for key in before} == before


def test_a_callback_that_raises_is_logged_and_changes_nothing(caplog):
    ring = HashRing(NAMES)

    def noisy(name, state):
        raise RuntimeError(f"cannot log {state}")

    health = Health(ring, on_change=noisy, clock=Clock())
    assert health.failed("a", OSError("refused"))
    assert ring.states["a"] == "down"
    health.recovered("a")
    health.drain("a")
    health.undrain("a")
    health.remove("a")
    health.add("a")
    assert set(ring.states.values()) == {"up"}
    assert {each.name for each in caplog.records} == {"evenbins.cluster.health"}
    assert [each.args for each in caplog.records] == [
        ("a", state) for state in ("down", "up", "draining", "up", "removed", "up")
    ]


QUICK = Backoff(first=0.001, factor=1, most=0.001)


class Noisy:
    """Servers that may be down, and a callback that raises once for a state."""

    def __init__(self, state):
        self.alive, self.state, self.told = {"a": True, "b": True}, state, []

    def operate(self, name):
        if not self.alive[name]:
            raise OSError("refused")
        return name

    def on_change(self, name, state):
        self.told.append((name, state))
        if state == self.state and self.told.count((name, state)) == 1:
            raise RuntimeError("logging failed")


@pytest.mark.parametrize("state", ["down", "up"])
def test_a_fleet_recovers_whatever_its_callback_raises(state):
    noisy = Noisy(state)
    fleet = Fleet(
        ["a", "b"], probe=noisy.operate, broken=(OSError,), on_change=noisy.on_change, backoff=QUICK
    )
    keys = {fleet.ring.node(key): key for key in range(99)}
    for name, other in (("a", "b"), ("b", "a"), ("a", "b")):
        noisy.alive[name] = False
        assert fleet.call(keys[name], noisy.operate) == other  # the callback's error is nobody's
        noisy.alive[name] = True
        until(lambda name=name: fleet.ring.states[name] == "up", what="recovery")
    until(lambda: len(noisy.told) == 6)
    fleet.close()


@pytest.mark.parametrize("state", ["down", "up"])
def test_an_asyncio_fleet_recovers_whatever_its_callback_raises(state):
    async def run():
        noisy = Noisy(state)

        async def operate(name):
            return noisy.operate(name)

        fleet = AsyncFleet(
            ["a", "b"], probe=operate, broken=(OSError,), on_change=noisy.on_change, backoff=QUICK
        )
        keys = {fleet.ring.node(key): key for key in range(99)}
        for name, other in (("a", "b"), ("b", "a"), ("a", "b")):
            noisy.alive[name] = False
            assert await fleet.call(keys[name], operate) == other
            noisy.alive[name] = True
            async with asyncio.timeout(20):
                while fleet.ring.states[name] != "up":
                    await asyncio.sleep(0.001)
        assert len(noisy.told) == 6
        await fleet.close()

    asyncio.run(run())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fleet_probes_on_after_a_callback_ends_its_thread():
    """SystemExit is not an error to log: it ends the probing thread, and the next request starts another."""
    noisy = Noisy("up")

    def leave(name, state):
        noisy.told.append((name, state))
        if state == "up" and len(noisy.told) == 2:
            raise SystemExit

    probes = []

    def probe(name):
        probes.append(name)
        if probes.count("b") == 1:
            raise SystemExit
        noisy.operate(name)

    fleet = Fleet(["a", "b"], probe=probe, broken=(OSError,), on_change=leave, backoff=QUICK)
    keys = {fleet.ring.node(key): key for key in range(99)}
    for name in ("a", "b"):
        noisy.alive[name] = False
        fleet.call(keys[name], noisy.operate)
        noisy.alive[name] = True
        until(lambda name=name: fleet.call(keys[name], noisy.operate) == name, what="recovery")
    fleet.close()


def test_a_server_is_probed_once_threads_can_be_started_again(monkeypatch):
    noisy = Noisy("")
    fleet = Fleet(["a", "b"], probe=noisy.operate, broken=(OSError,), backoff=QUICK)
    key = next(key for key in range(99) if fleet.ring.node(key) == "a")

    def refuse(self):
        raise RuntimeError("can't start new thread")

    noisy.alive["a"] = False
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert fleet.call(key, noisy.operate) == "b"
        assert fleet.call(key, noisy.operate) == "b"
    noisy.alive["a"] = True
    until(lambda: fleet.call(key, noisy.operate) == "a", what="recovery")
    fleet.close()


def test_an_unknown_server_is_named():
    _, health, _, _ = make()
    with pytest.raises(KeyError, match="no server 'z'"):
        health.drain("z")
    assert not health.failed("z", OSError("x"))  # a request that outlived its server


def test_the_error_of_a_dead_server_travels():
    error = pickle.loads(pickle.dumps(ServerDownError("a:1", "text")))
    assert (error.server, str(error)) == ("a:1", "text")


def test_a_fleet_repeats_what_may_be_repeated_and_no_more():
    asked: list[str] = []

    def operate(server: str) -> str:
        asked.append(server)
        if server == home:
            raise OSError("gone")
        return server

    def gone(server: str) -> None:
        raise OSError("still gone")

    fleet = Fleet(NAMES, probe=gone, broken=(OSError,), backoff=Backoff(first=60, most=60))
    home = fleet.ring.node("key")
    second = fleet.ring.candidates("key")[1]
    with pytest.raises(ServerDownError, match="cannot be repeated safely: OSError: gone"):
        fleet.call("key", operate, again=lambda error: False)
    assert asked == [home]
    assert fleet.call("key", operate) == second  # it is down: not asked again
    assert asked == [home, second]
    assert fleet.ring.lease_loads() == dict.fromkeys(NAMES, 0)
    fleet.close()


def test_other_errors_pass_through_and_mark_nobody_down():
    fleet = Fleet(NAMES, probe=print, broken=(OSError,))
    with pytest.raises(ZeroDivisionError):
        fleet.call("key", lambda server: 1 // 0)
    assert set(fleet.ring.states.values()) == {"up"}
    assert fleet.ring.lease_loads() == dict.fromkeys(NAMES, 0)


def test_requests_that_wait_leave_nothing_behind():
    async def test():
        fleet = AsyncFleet(["a"], probe=print, broken=(OSError,), limit=1, wait=0.3)
        async with fleet.admit("key"):
            with pytest.raises(RingFullError):
                async with fleet.admit("key"):
                    pass
            assert not fleet._waiters

    asyncio.run(test())


def test_batches_that_stay_wait_for_their_servers():
    async def test():
        fleet = AsyncFleet(["a", "b"], probe=print, broken=(OSError,), limit=1, wait=0.05)
        home, other = fleet.ring.candidates("key")
        asked = []

        async def operate(server, keys):
            asked.append(server)

        async with fleet.admit("key"):
            await fleet.call_many(["key"], operate)
            with pytest.raises(RingFullError, match=f"server {home} is at its limit .* within 0.05 s"):
                await fleet.call_many(["key"], operate, stay=True)
        await fleet.call_many(["key"], operate, stay=True)
        assert asked == [other, home]
        await fleet.close()

    asyncio.run(test())
