"""HashRing: what it answers, what it promises, what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
import pickle
import runpy
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenbins
from evenbins import FormatError, HashRing, NoNodesError, RingFullError
from evenbins.study.ring import ring as study_ring

NODES = ["a:1", "b:1", "c:1", "d:1"]
GOLDEN_FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = runpy.run_path(str(GOLDEN_FOLDER / "make_golden.py"))


def ring_of(n: int, **more: Any) -> HashRing:
    return study_ring([f"node{i:03}" for i in range(n)], **more)


# --- without state -----------------------------------------------------------------------------------------


def test_order_of_nodes_does_not_matter() -> None:
    a, b = HashRing(NODES), HashRing(reversed(NODES))
    assert a.fingerprint() == b.fingerprint()
    assert a == b
    assert (a.node_many(range(1000)) == b.node_many(range(1000))).all()


def test_node_is_the_first_candidate() -> None:
    ring = ring_of(20)
    for key in range(200):
        order = ring.candidates(key)
        assert sorted(order) == sorted(ring.names)
        assert ring.node(key) == order[0]
        assert ring.nodes(key, 3) == order[:3]


def test_keys_are_what_filters_take() -> None:
    ring = ring_of(50)
    assert ring.node("key") == ring.node(b"key") == ring.node(bytearray(b"key"))
    assert ring.node(7) == ring.node(np.int64(7))
    for wrong in (None, 1.5, ["a"], np.arange(3)):
        with pytest.raises(TypeError, match="a key must be str, bytes or int"):
            ring.node(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="-2\\*\\*63"):
        ring.assign(2**64)


def test_bulk_is_one_by_one() -> None:
    ring = ring_of(30)
    keys = [f"key{i}" for i in range(500)]
    assert ring.node_many(keys).tolist() == [ring.node(key) for key in keys]
    grid = np.arange(12).reshape(3, 4)
    assert ring.node_many(grid).shape == (3, 4)
    positions = ring.node_many(grid, indices=True)
    assert positions.dtype == np.int32
    assert [ring.names[i] for i in positions.ravel()] == ring.node_many(grid).ravel().tolist()
    digests = evenbins.digest_many(keys)
    assert (ring.node_many(digests, digests=True) == ring.node_many(keys)).all()


def test_seed_is_private() -> None:
    a, b = ring_of(100), ring_of(100, seed=9)
    assert (a.node_many(range(1000)) != b.node_many(range(1000))).mean() > 0.9
    assert "seed='set'" in repr(b)


def test_skips_nodes_that_do_not_serve() -> None:
    ring = HashRing(NODES)
    order = {key: ring.candidates(key) for key in range(100)}
    ring.mark_down("b:1")
    ring.drain("c:1")
    assert ring.states == {"a:1": "up", "b:1": "down", "c:1": "draining", "d:1": "up"}
    for key, before in order.items():
        assert ring.candidates(key) == tuple(each for each in before if each in ("a:1", "d:1"))
    ring.mark_up("b:1")
    ring.mark_up("c:1")
    assert all(ring.candidates(key) == before for key, before in order.items())


def test_no_node_serves() -> None:
    ring = HashRing()
    with pytest.raises(NoNodesError, match="use add_node"):
        ring.node("key")
    with pytest.raises(NoNodesError):
        ring.node_many([1, 2])
    with pytest.raises(NoNodesError):
        ring.assign("key")
    assert ring.candidates("key") == ()
    assert ring.node_many([]).size == 0
    ring.add_node("a")
    assert ring.node("key") == "a"
    ring.drain("a")
    with pytest.raises(NoNodesError, match="all are down or drained"):
        ring.node("key")
    with pytest.raises(NoNodesError, match="0 serve"):
        ring.nodes("key", 1)


# --- with state --------------------------------------------------------------------------------------------


def test_assign_locate_release() -> None:
    ring = HashRing(NODES)
    assert ring.locate("key") is None
    node = ring.assign("key")
    assert ring.assign("key") == node
    assert ring.locate("key") == node
    assert "key" not in ring
    assert node in ring
    assert ring.key_count == 1
    assert sum(ring.loads().values()) == 1
    assert ring.release("key") is True
    assert ring.release("key") is False
    assert ring.key_count == 0


@pytest.mark.parametrize("policy", ["jump", "clockwise", "rehash"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_limit_at_every_moment(policy: str, layout: str, epsilon: float) -> None:
    small = {"array_bits": 8} if layout == "sparse" else {}
    ring = study_ring(NODES, policy=policy, layout=layout, epsilon=epsilon, **small)
    for n in range(1, 200):
        ring.assign(n)
        assert max(ring.loads().values()) <= math.ceil(round((1 + epsilon) * n * 1000) / 4000)


def test_limit_follows_weights() -> None:
    ring = HashRing(NODES, weights={"a:1": 2.5, "b:1": 0.5}, epsilon=0.1)
    ring.assign_many(range(5000))
    loads, limits = ring.loads(), ring.limits()
    assert limits == {"a:1": 2750, "b:1": 550, "c:1": 1100, "d:1": 1100}
    assert all(loads[name] <= limits[name] for name in NODES)  # type: ignore[operator]


def test_plain_has_no_limit() -> None:
    ring = ring_of(4, policy="plain")
    ring.assign_many(range(1000))
    assert (ring.locate_many(range(1000)) == ring.node_many(range(1000))).all()
    assert set(ring.limits().values()) == {None}
    assert ring.stats().limit is None
    assert ring.rebalance() == []


@pytest.mark.parametrize("options", [{"epsilon": 0.5}, {"limit": 9}, {"policy": "plain"}], ids=str)
def test_a_node_that_does_not_serve_may_hold_nothing(options: dict[str, Any]) -> None:
    ring = HashRing(NODES, **options)
    ring.assign_many(range(8))
    ring.mark_down("a:1")
    ring.drain("b:1")
    limits = ring.limits()
    assert limits["a:1"] == limits["b:1"] == 0 != limits["c:1"]


def test_absolute_limit_is_full_in_the_end() -> None:
    ring = HashRing(NODES, limit=10, weights={"a:1": 0.25})
    assert ring.limits() == {"a:1": 3, "b:1": 10, "c:1": 10, "d:1": 10}
    with pytest.raises(RingFullError, match="at its limit, 33 keys in all") as caught:
        ring.assign_many(range(100))
    assert caught.value.assigned == 33  # type: ignore[attr-defined]
    assert "keys[33]" in str(caught.value)
    assert ring.key_count == 33
    before = ring.to_bytes()
    with pytest.raises(RingFullError):
        ring.assign("one more")
    with pytest.raises(RingFullError, match="nothing was changed"):
        ring.remove_node("b:1")
    assert ring.to_bytes() == before
    ring.release(0)
    assert ring.assign("one more") in NODES


@pytest.mark.parametrize(("nodes", "bits"), [(1, 22), (4, 20), (40, 8)])
def test_a_full_sparse_ring_says_so_at_once(nodes: int, bits: int) -> None:
    """Not after all the draws that would come to its few nodes, nor stats() after 4096 times as many."""
    ring = study_ring([f"n{i}" for i in range(nodes)], layout="sparse", array_bits=bits, limit=2)
    ring.assign_many(range(2 * nodes))
    before = ring.to_bytes()
    start = time.process_time()
    for _ in range(20):
        with pytest.raises(RingFullError, match="at its limit"):
            ring.assign("one more")
    assert ring.stats().searches == 0.0
    assert time.process_time() - start < 10  # minutes, if each draw that comes to a node were made
    assert ring.to_bytes() == before
    with contextlib.ExitStack() as leases:
        for i in range(2 * nodes):
            leases.enter_context(ring.lease(i))
        with pytest.raises(RingFullError, match="leases"):
            leases.enter_context(ring.lease("one more"))
    ring.release(0)
    assert ring.stats().searches >= 1


def test_stats_of_a_nearly_full_sparse_ring_end() -> None:
    ring = study_ring(["a", "b", "c"], layout="sparse", array_bits=22, limit=3)
    ring.assign_many(range(8))
    start = time.process_time()
    assert 1 <= ring.stats().searches < 30  # 3 on average
    assert time.process_time() - start < 20  # under a sanitizer; minutes if all 4096 keys were tried


def test_a_fallen_limit_evicts_nobody() -> None:
    ring = HashRing(NODES, epsilon=0.0)
    ring.assign_many(range(400))
    ring.release_many([key for key in range(400) if ring.locate(key) != "a:1"][:200])
    assert ring.loads()["a:1"] == 100
    stats = ring.stats()
    assert (stats.limit, stats.over) == (50, 1)
    for key in range(1000, 1100):
        assert ring.assign(key) != "a:1"
    assert ring.loads()["a:1"] == 100
    moves = ring.rebalance(5)
    assert len(moves) == 5
    assert {old for _, old, _ in moves} == {"a:1"}
    ring.rebalance()
    assert ring.stats().over == 0
    assert ring.stats().moved == 25


def test_bulk_takes_keys_before_a_bad_one() -> None:
    ring = HashRing(NODES)
    with pytest.raises(TypeError, match=r"keys\[2\]"):
        ring.assign_many(["a", "b", None, "c"])
    assert ring.key_count == 2
    import pyarrow as pa

    with pytest.raises(ValueError, match=r"keys\[3\]"):
        ring.assign_many(pa.array(["x", "y", "z", None]))
    assert ring.key_count == 5
    assert ring.locate_many(["a", "z", "none"]).tolist()[2] is None
    assert ring.release_many(["a", "none"]).tolist() == [True, False]
    ring.clear()
    assert ring.key_count == 0
    assert set(ring.loads().values()) == {0}


# --- churn
# ---------------------------------------------------------------------------------------------------


def test_joining_moves_keys_to_the_new_node_only() -> None:
    ring = ring_of(10, epsilon=0.5)
    ring.assign_many(range(10_000))
    before = ring.locate_many(range(10_000))
    moves = ring.add_node("new")
    after = ring.locate_many(range(10_000))
    assert set(after[before != after]) == {"new"}
    assert len(moves) == (before != after).sum() == ring.loads()["new"]
    assert {evenbins.digest(int(key)) for key in np.flatnonzero(before != after)} == {m[0] for m in moves}
    assert 700 < len(moves) < 1250


def test_joining_lazily() -> None:
    ring = ring_of(10, epsilon=0.5)
    ring.assign_many(range(10_000))
    heard: list[Any] = []
    end = ring.on_move(heard.extend)
    assert ring.add_node("new", move="lazy") == []
    assert ring.loads()["new"] == 0
    assert ring.locate(5) is not None
    ring.assign_many(range(5_000))
    ring.assign(5_000)
    assert 300 < len(heard) == ring.loads()["new"] < 700
    assert {new for _, _, new in heard} == {"new"}
    end()
    count = len(heard)
    ring.assign_many(range(10_000))
    assert len(heard) == count


def test_leaving_moves_its_keys_only() -> None:
    ring = ring_of(10, epsilon=0.5)
    ring.assign_many(range(10_000))
    before = ring.locate_many(range(10_000))
    moves = ring.remove_node("node003")
    after = ring.locate_many(range(10_000))
    assert ((before != after) == (before == "node003")).all()
    assert {old for _, old, _ in moves} == {"node003"}
    assert "node003" not in ring.names
    with pytest.raises(KeyError, match="no node 'node003'"):
        ring.remove_node("node003")


def test_a_returning_name_takes_its_old_slot() -> None:
    ring = ring_of(20)
    before = ring.node_many(range(5000))
    print_ = ring.fingerprint()
    ring.remove_node("node007")
    ring.remove_node("node011")
    ring.add_node("node011")
    ring.add_node("node007")
    assert (ring.node_many(range(5000)) == before).all()
    assert ring.fingerprint() == print_


def test_a_failed_node_gets_its_keys_back() -> None:
    ring = ring_of(10)
    ring.assign_many(range(5000))
    before = ring.locate_many(range(5000))
    out = ring.mark_down("node004")
    assert len(out) == (before == "node004").sum()
    assert "node004" not in set(ring.locate_many(range(5000)))
    ring.assign_many(range(5000, 5100))
    gone = next(key for key in range(5000) if before[key] == "node004")
    ring.release(gone)
    back = ring.mark_up("node004")
    assert len(back) == len(out) - 1
    after = ring.locate_many(range(5000))
    after[gone] = before[gone]
    assert (after == before).all()


def test_the_last_node_that_fails_keeps_its_keys() -> None:
    ring = HashRing(["a"])
    ring.assign_many(range(10))
    assert ring.mark_down("a") == []
    assert ring.locate(3) == "a"
    with pytest.raises(NoNodesError):
        ring.assign("new")
    with pytest.raises(NoNodesError, match="no other node serves"):
        ring.remove_node("a")
    assert ring.mark_up("a") == []
    assert ring.loads() == {"a": 10}


def test_set_weight_moves_to_or_from_that_node_only() -> None:
    ring = ring_of(10, epsilon=0.5)
    ring.assign_many(range(10_000))
    up = ring.set_weight("node002", 2)
    assert {new for _, _, new in up} == {"node002"}
    assert 500 < len(up) < 1200
    down = ring.set_weight("node002", 0.5)
    assert {old for _, old, _ in down} == {"node002"}
    assert ring.weights["node002"] == 0.5
    assert 300 < ring.loads()["node002"] < 900


def test_compact_after_deep_shrinking() -> None:
    ring = ring_of(100)
    for i in range(10, 100):
        ring.remove_node(f"node{i:03}")
    ring.assign_many(range(1000))
    assert ring.stats().slots == 100
    assert ring.stats().steps > 5
    before = ring.locate_many(range(1000))
    moves = ring.compact()
    after = ring.locate_many(range(1000))
    assert ring.stats().slots == 10
    assert len(moves) >= (before != after).sum() > 0
    fresh = ring.copy()
    fresh.clear()
    fresh.assign_many(range(1000, 2000))
    assert fresh._counters()[3] - ring._counters()[3] < 2000


def test_a_callback_that_raises_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    ring = HashRing(NODES)
    ring.assign_many(range(100))
    heard: list[Any] = []

    def fail(moves: list[Any]) -> None:
        raise OSError("no")

    ring.on_move(fail)
    ring.on_move(heard.extend)
    moves = ring.mark_down("a:1")
    assert ring.states["a:1"] == "down"
    assert moves
    assert heard == moves
    assert [record.name for record in caplog.records] == ["evenbins.rings"]
    with pytest.raises(TypeError, match="callable"):
        ring.on_move(7)  # type: ignore[arg-type]


# --- leases
# --------------------------------------------------------------------------------------------------


def test_leases_are_counted_apart() -> None:
    ring = HashRing(NODES, epsilon=0.25)
    ring.assign_many(range(100))
    with ring.lease("key") as node:
        assert node == ring.node("key")
        assert ring.lease_loads()[node] == 1
        assert sum(ring.loads().values()) == 100
        with ring.lease("key") as second:  # 2 under way: 1 may be on each
            assert second != node
    assert set(ring.lease_loads().values()) == {0}
    assert ring.stats().leases == 0


def test_lease_comes_back_on_errors() -> None:
    ring = HashRing(NODES)
    with pytest.raises(OSError, match="x"), ring.lease("key"):
        raise OSError("x")
    assert ring.stats().leases == 0

    async def work() -> None:
        async with ring.lease("key"):
            await asyncio.sleep(60)

    async def cancel() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        assert ring.stats().leases == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert ring.stats().leases == 0


def test_leases_with_weights_keep_the_bound_of_loads() -> None:
    ring = HashRing(["a", "b"], epsilon=0.25, weights={"a": 3, "b": 1})
    with contextlib.ExitStack() as under_way:
        first = under_way.enter_context(ring.lease("key", weight=8))  # no other load: no node could
        assert ring.stats().forced == 1
        assert ring.lease_weights()[first] == 8
        for i in range(200):
            forced, before = ring.stats().forced, ring.lease_weights()
            node = under_way.enter_context(ring.lease(i, weight=0.5))
            share = {"a": Fraction(3, 4), "b": Fraction(1, 4)}
            most = Fraction(5, 4) * (Fraction(sum(before.values())) + Fraction(1, 2))
            keeps = {
                name: (Fraction(load) + Fraction(1, 2)) / share[name] <= most for name, load in before.items()
            }
            if ring.stats().forced > forced:
                assert not any(keeps.values())
                assert node == min(before, key=lambda name: before[name] / share[name])
            else:
                assert keeps[node]
        assert ring.lease_loads() != ring.lease_weights()
    assert ring.lease_weights() == {"a": 0, "b": 0}
    assert ring.stats().leases == 0


def test_leases_with_and_without_weights() -> None:
    ring = HashRing(["a"], limit=3)
    with ring.lease(1), ring.lease(2, weight=2):
        assert ring.lease_weights() == {"a": 3}
        with pytest.raises(RingFullError, match="limit"):
            ring.lease(3, weight=1e-6).acquire()
        ring.lease(4).acquire()  # the third: it counts leases, not their loads
    with pytest.raises(NoNodesError):
        HashRing([]).lease(1, weight=2).acquire()
    with pytest.raises(RingFullError, match="avoided"):
        HashRing(["a"]).lease(1, weight=2, avoid=["a"]).acquire()
    huge = HashRing(["a"])
    leases = [huge.lease(i, weight=1e9) for i in range(9223)]
    for lease in leases:
        lease.acquire()
    with pytest.raises(RingFullError, match="millionths"):
        huge.lease(0, weight=1e9).acquire()
    for bad in (0, -1, float("nan"), float("inf"), 1e10, 1e-7):
        with pytest.raises(ValueError, match="weight"):
            ring.lease(1, weight=bad)
    with pytest.raises(TypeError, match="weight"):
        ring.lease(1, weight="2")  # type: ignore[arg-type]


def test_a_removed_node_takes_its_load_along() -> None:
    ring = HashRing(["a", "b"], epsilon=0.25)
    leases = [ring.lease(i, weight=2) for i in range(10)]
    for lease in leases:
        lease.acquire()
    ring.remove_node("a")
    assert ring.lease_weights()["b"] == 2 * sum(lease.node == "b" for lease in leases)
    for lease in leases:
        lease.release()
    assert ring.lease_weights() == {"b": 0}


def test_lease_by_hand() -> None:
    ring = HashRing(NODES, limit=1)
    leases = [ring.lease("key") for _ in range(4)]
    assert {lease.acquire() for lease in leases} == set(NODES)
    with pytest.raises(RingFullError, match="leases"):
        ring.lease("key").acquire()
    with pytest.raises(RuntimeError, match="in use"):
        leases[0].acquire()
    leases[0].release()
    leases[0].release()
    assert ring.stats().leases == 3
    assert leases[0].acquire() in NODES
    assert "Lease(key='key'" in repr(leases[0])


def test_lease_avoids() -> None:
    ring = HashRing(NODES, epsilon=3)
    first = ring.node("key")
    with ring.lease("key", avoid=[first]) as node:
        assert node == ring.candidates("key")[1]
    with pytest.raises(RingFullError, match="avoided"):
        ring.lease("key", avoid=NODES).acquire()
    with pytest.raises(TypeError, match="several names"):
        ring.lease("key", avoid="a:1")


def test_lease_of_a_node_that_is_removed() -> None:
    ring = HashRing(NODES)
    lease = ring.lease("key")
    node = lease.acquire()
    ring.remove_node(node)
    assert ring.stats().leases == 0
    for i in range(5):
        ring.add_node(f"new{i}")
    lease.release()
    assert set(ring.lease_loads().values()) == {0}
    ring._check()


# --- threads
# ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [{"epsilon": 0.05}, {"limit": 2500}])
def test_bound_under_threads_and_churn(bound: dict[str, Any]) -> None:
    """Writers of single and bulk calls, leases, readers and churn at once: every placement is judged."""
    ring = ring_of(20, **bound)
    ring._start_audit()
    problems: list[BaseException] = []
    stop = threading.Event()

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            problems.append(error)

    def bulk(start: int) -> None:
        for i in range(12):
            keys = np.arange(start + i * 2000, start + (i + 1) * 2000)
            ring.assign_many(keys, indices=True)
            if i >= 3:
                ring.release_many(keys - 6000)

    def single() -> None:
        for i in range(8000):
            with ring.lease(i % 50):
                ring.assign(f"s{i % 500}")
            if i % 3 == 0:
                ring.release(f"s{i % 500}")

    def churn() -> None:
        i = 0
        while not stop.is_set():
            name = f"node{i % 15:03}"
            ring.mark_down(name)
            ring.add_node(f"extra{i}", 1 + i % 3)
            ring.mark_up(name)
            ring.set_weight(name, 1 + i % 2)
            ring.rebalance(50)
            ring.remove_node(f"extra{i}")
            i += 1

    def read() -> None:
        while not stop.is_set():
            ring.node_many(np.arange(5000))
            ring.locate_many(np.arange(5000))
            ring.stats()

    work = [lambda: bulk(0), lambda: bulk(10**6), single]
    threads = [threading.Thread(target=run, args=(each,)) for each in (*work, churn, read)]
    for thread in threads:
        thread.start()
    for thread in threads[: len(work)]:
        thread.join()
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    ring._check()
    placements, broken = ring._audit()
    assert placements > 48_000
    assert broken == 0


def test_audit_can_fail() -> None:
    """The judge of the test above sees a broken bound: a ring of epsilon 0.05, judged by 0.01."""
    ring = ring_of(20, epsilon=0.05)
    ring._start_audit(1_010_000_000)
    ring.assign_many(range(20_000))
    placements, broken = ring._audit()
    assert placements == 20_000
    assert broken > 100


# --- the ring as a whole
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [{}, {"policy": "clockwise", "layout": "sparse", "copies": 3}, {"limit": 700}]
)
def test_copies_and_files(more: dict[str, Any], tmp_path: Any) -> None:
    ring = study_ring(NODES, seed=3, weights={"a:1": 1.5}, **more)
    ring.assign_many(range(1000))
    ring.mark_down("b:1")
    ring.drain("c:1")
    ring.add_node("e", move="lazy")
    ring.remove_node("d:1")
    path = tmp_path / "ring.evb"
    ring.save(path)
    twins = [
        ring.copy(),
        copy.copy(ring),
        copy.deepcopy(ring),
        pickle.loads(pickle.dumps(ring)),
        HashRing.load(path),
        HashRing.open(path),
        HashRing.from_bytes(ring.to_bytes()),
    ]
    for twin in twins:
        assert twin == ring
        assert twin.fingerprint() == ring.fingerprint()
        assert twin.to_bytes() == ring.to_bytes()
        assert twin.loads() == ring.loads()
        assert twin.states == ring.states
        assert twin.version == ring.version
        assert repr(twin) == repr(ring)
    back = [twin.mark_up("b:1") for twin in (*twins, ring)]
    assert all(each == back[0] for each in back)
    twins[0].assign("another")
    assert twins[0] != ring
    assert ring != "ring"
    with pytest.raises(TypeError, match="unhashable"):
        hash(ring)


def test_damaged_files_are_refused() -> None:
    ring = HashRing(NODES, seed=3)
    ring.assign_many(range(5))
    ring.mark_down("b:1")
    ring.remove_node("c:1")
    data = ring.to_bytes()
    for length in range(0, len(data), 7):
        with pytest.raises(FormatError):
            HashRing.from_bytes(data[:length])
    with pytest.raises(FormatError):
        HashRing.from_bytes(data + b"\0")
    for bit in range(0, 8 * len(data), 5):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            HashRing.from_bytes(bytes(damaged))


def _forged(ring: HashRing, word: int, value: int) -> bytes:
    """A file whose payload is another, with right checksums."""
    kind, seed, capacity, core, offset = evenbins._core.file_parts(ring.to_bytes(), True)
    payload = np.frombuffer(ring.to_bytes()[offset:], np.uint64).copy()
    payload[word] = value
    return evenbins._core.file_header(kind, 1, seed, capacity, core, payload.tobytes()) + payload.tobytes()


def test_forged_files_are_refused() -> None:
    """Whatever word of the payload is changed: a possible ring, or FormatError. Never a crash."""
    ring = HashRing(NODES)
    ring.assign_many(range(8))
    ring.remove_node("d:1")
    words = (len(ring.to_bytes()) - evenbins._core.file_parts(ring.to_bytes(), True)[4]) // 8
    refused = 0
    for word in range(words):
        for value in (0, 1, 5, 2**20, 2**32, 2**63, 2**64 - 1):
            try:
                other = HashRing.from_bytes(_forged(ring, word, value))
            except FormatError:
                refused += 1
            else:
                other._check()
                other.assign_many(range(20))
    assert refused > words


def test_other_kinds_of_files() -> None:
    filter_ = evenbins.BloomFilter(10)
    with pytest.raises(FormatError, match="another kind"):
        HashRing.from_bytes(filter_.to_bytes())
    with pytest.raises(FormatError, match="another kind"):
        evenbins.BloomFilter.from_bytes(HashRing(NODES).to_bytes())


@pytest.mark.parametrize("name", GOLDEN["RINGS"])
def test_golden_files_are_read_and_written_for_ever(name: str) -> None:
    data = (GOLDEN_FOLDER / f"{name}.evenbins").read_bytes()
    ring = HashRing.from_bytes(data)
    ring._check()
    assert GOLDEN["golden_ring"](name).to_bytes() == ring.to_bytes() == data
    assert len(ring.mark_up("b:1")) > 0


def test_load_returns_a_ring(tmp_path: Any) -> None:
    HashRing(NODES).save(tmp_path / "ring.evb")
    assert evenbins.load(tmp_path / "ring.evb") == HashRing(NODES)


def test_fingerprint() -> None:
    ring = ring_of(5)
    seen = {ring.fingerprint()}
    for change in (
        lambda: ring.mark_down("node001"),
        lambda: ring.add_node("x"),
        lambda: ring.set_weight("x", 2),
        lambda: ring.remove_node("node002"),
    ):
        version = ring.version
        change()
        assert ring.fingerprint() not in seen
        assert ring.version > version
        seen.add(ring.fingerprint())
    routing, assigned = ring.fingerprint(), ring.fingerprint(assigned=True)
    ring.assign("key")
    assert ring.fingerprint() == routing
    assert ring.fingerprint(assigned=True) != assigned
    ring.release("key")
    assert ring.fingerprint(assigned=True) == assigned


def test_stats_and_plan() -> None:
    ring = ring_of(100, epsilon=0.1)
    ring.assign_many(range(10_000))
    stats, plan = ring.stats(), ring.plan
    assert (stats.nodes, stats.keys, stats.limit, stats.over) == (100, 10_000, 110, 0)
    assert (plan.nodes, plan.keys, plan.limit) == (100, 10_000, 110)
    assert stats.loads == ring.loads()
    assert stats.mean == 100
    assert stats.max_load == max(ring.loads().values())
    assert stats.to_dict()["loads"] == ring.loads()
    for shown in (repr(stats), str(stats), stats._repr_html_(), ring._repr_html_()):
        assert "searches" in shown
    empty = HashRing().stats()
    assert (empty.nodes, empty.keys, empty.full) == (0, 0, 0.0)
    assert HashRing(NODES).plan.keys == 0


def test_repr() -> None:
    assert repr(HashRing(NODES)) == "HashRing(policy='jump', nodes=4, keys=0, epsilon=0.25)"
    sparse = study_ring(NODES, policy="clockwise", layout="sparse", copies=7, limit=5)
    assert repr(sparse) == "HashRing(policy='clockwise', nodes=4, keys=0, layout='sparse', limit=5, copies=7)"


def test_subclasses_keep_their_attributes() -> None:
    class Mine(HashRing):
        pass

    ring = Mine(NODES)
    ring.label = "x"  # type: ignore[attr-defined]
    assert copy.deepcopy(ring).label == "x"  # type: ignore[attr-defined]
    twin = pickle.loads(pickle.dumps(HashRing(NODES)))
    assert twin.names == ring.names


# --- bad input
# -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"nodes": "abc"}, TypeError, "several names, not one str"),
        ({"nodes": 7}, TypeError, "several names"),
        ({"nodes": ["a", 1]}, TypeError, "must be str, not int"),
        ({"nodes": ["a", ""]}, ValueError, "1 to 4096 bytes"),
        ({"nodes": ["a", "\ud800"]}, ValueError, "valid Unicode"),
        ({"nodes": ["a", "a"]}, ValueError, "'a' twice"),
        ({"policy": "ring"}, ValueError, "policy must be one of"),
        ({"layout": "ring"}, ValueError, '"dense" or "sparse"'),
        ({"rehash": "x"}, ValueError, '"object" or "bin"'),
        ({"rehash": "bin"}, ValueError, "belongs to policy='rehash'"),
        ({"epsilon": -0.1}, ValueError, "from 0 to 1000"),
        ({"epsilon": math.nan}, ValueError, "from 0 to 1000"),
        ({"epsilon": "0.1"}, TypeError, "epsilon must be"),
        ({"epsilon": 0.1, "limit": 5}, ValueError, "exclude each other"),
        ({"limit": 0}, ValueError, "limit must be"),
        ({"limit": 1.5}, TypeError, "limit must be"),
        ({"policy": "plain", "epsilon": 0.1}, ValueError, "plain ring has no limit"),
        ({"weights": {"z": 1}}, ValueError, "'z', which is no node"),
        ({"weights": {"a": 0}}, ValueError, "positive"),
        ({"weights": {"a": math.inf}}, ValueError, "positive"),
        ({"weights": {1, 2}}, TypeError, "a dict of names"),
        ({"copies": 0}, ValueError, "copies must be"),
        ({"array_bits": 30}, ValueError, "array_bits must be"),
        ({"array_bits": 12}, ValueError, "belongs to layout='sparse'"),
        ({"seed": -1}, ValueError, "seed must be"),
    ],
)
def test_refused(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        study_ring(**{"nodes": ["a", "b"], **arguments})


def test_refused_calls() -> None:
    ring = HashRing(NODES)
    with pytest.raises(ValueError, match="a node 'a:1' already"):
        ring.add_node("a:1")
    with pytest.raises(ValueError, match='"now" or "lazy"'):
        ring.add_node("x", move="later")
    with pytest.raises(ValueError, match="weight must be a positive"):
        ring.add_node("x", -1)
    for call in (ring.remove_node, ring.drain, ring.mark_down, ring.mark_up, ring.keys_of):
        with pytest.raises(KeyError, match="no node 'x'"):
            call("x")
        with pytest.raises(TypeError, match="must be str"):
            call(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_moves"):
        ring.rebalance(-1)
    with pytest.raises(ValueError, match="n must be"):
        ring.nodes("key", 0)
    with pytest.raises(TypeError, match="keys must be many keys"):
        ring.assign_many("abc")
    small = study_ring([f"n{i}" for i in range(100)], layout="sparse", array_bits=8)
    with pytest.raises(ValueError, match="slots"):
        small.add_node("big", 100)
    assert len(small.names) == 100
    small._check()
    with pytest.raises(RuntimeError, match="__init__"):
        HashRing.__new__(HashRing).node("x")


# --- memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 10])
def test_memory_follows_the_distinct_keys(nodes: int) -> None:
    ring = ring_of(nodes)
    keys = np.arange(20_000)
    ring.assign_many(np.tile(keys, 20), indices=True)
    assert 34 < ring.nbytes / ring.key_count < 62
    ring.assign_many(np.zeros(10**6, np.uint8), indices=True)
    assert 34 < ring.nbytes / ring.key_count < 62
    ring.clear()
    assert ring.nbytes < 2000 * (nodes + 4)


@pytest.mark.parametrize("spread", [1, 2**20])
def test_new_keys_of_an_array_find_memory_made_at_once(spread: int) -> None:
    # digests with equal low bits too: the estimate of how many are new must not depend on them
    digests = np.arange(100_000, dtype=np.uint64) * np.uint64(spread)
    ring = ring_of(10)
    ring.assign_many(np.tile(digests, 3), digests=True, indices=True)
    assert ring.key_count == 100_000
    ring._check()
    assert 34 < ring.nbytes / ring.key_count < 60
    before = ring.nbytes
    ring.assign_many(np.tile(digests, 3), digests=True, indices=True)
    assert ring.nbytes == before  # none is new


def test_memory_made_at_once_is_no_more_than_the_limits_allow() -> None:
    ring = HashRing([f"n{i}" for i in range(10)], limit=100)
    with pytest.raises(RingFullError) as caught:
        ring.assign_many(np.arange(10**6), indices=True)
    assert caught.value.assigned == ring.key_count == 1000
    assert ring.nbytes < 100_000


def test_answers_that_fit_no_memory_change_nothing() -> None:
    ring = HashRing(["a"])
    with pytest.raises(MemoryError):
        ring.assign_many(np.broadcast_to(np.int64(5), 2**46))
    with pytest.raises(MemoryError, match="fewer keys in one call"):
        ring.assign_many(np.broadcast_to(np.int64(5), 2**46), indices=True)
    assert ring.key_count == 0


def test_names_of_nodes_that_left_are_released() -> None:
    ring = ring_of(10)
    before = ring.nbytes
    for i in range(3000):
        ring.add_node(f"pod-{i:08}.cluster.local")
        ring.remove_node(f"pod-{i:08}.cluster.local")
    assert ring._label_count <= 13
    assert ring.nbytes < before + 2000
    assert ring.names == tuple(f"node{i:03}" for i in range(10))


def test_a_name_that_returns_takes_its_slot_while_it_is_free() -> None:
    ring = HashRing(["a", "b", "c"])
    routes = ring.node_many(range(1000))
    for name in "abc":
        ring.remove_node(name)
    for name in "cab":
        ring.add_node(name)
    assert (ring.node_many(range(1000)) == routes).all()


def test_bulk_answers_name_nodes_of_their_moment_while_nodes_come_and_go() -> None:
    ring = HashRing([f"s{i}" for i in range(20)])
    ring.assign_many(np.arange(500))
    absent = np.arange(10**6, 10**6 + 3)
    wrong: list[Any] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            found = ring.locate_many(absent, indices=True).tolist()
            names = ring.locate_many(absent).tolist()
            nodes = ring.node_many(absent).tolist()
            if found != [-1] * 3 or names != [None] * 3 or not all(isinstance(each, str) for each in nodes):
                wrong.append((found, names, nodes))
                return

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for i in range(400):
            ring.add_node(f"new{i}", move="lazy")
            ring.remove_node(f"new{i}")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    names_kept = ring._label_count
    for i in range(100):  # nobody has seen the others any more: their places are used again
        ring.add_node(f"newer{i}")
        ring.remove_node(f"newer{i}")
    assert ring._label_count <= names_kept + 2


def test_an_iterable_that_changes_the_ring_is_numbered_by_the_last_nodes() -> None:
    ring = HashRing(["a", "b", "c"])

    def keys() -> Any:
        yield from range(1024)  # one piece
        ring.remove_node("b")
        ring.add_node("d")
        yield from range(1024)

    numbers = ring.node_many(keys(), indices=True)
    assert ring.names == ("a", "c", "d")
    assert set(numbers[:1024].tolist()) == {0, 1, -1}
    assert set(numbers[1024:].tolist()) == {0, 1, 2}
    ring.remove_node("d")
    ring.add_node("b")
    names = ring.node_many(keys())
    assert set(names[:1024]) == {"a", "b", "c"}
    assert set(names[1024:]) == {"a", "c", "d"}


@pytest.mark.parametrize("policy", ["plain", "jump"])
def test_a_node_holds_no_more_keys_than_positions(policy: str) -> None:
    ring = HashRing(["a", "b"], policy=policy)
    ring._limit_node_keys(50)  # instead of 2**32 - 1
    assert ring.assign_many(range(100), indices=True).size == 100
    assert ring.loads() == {"a": 50, "b": 50}
    with pytest.raises(RingFullError, match="holds 50 keys, the most that a node can hold"):
        ring.assign(100)
    before = ring.to_bytes()
    with pytest.raises(RingFullError, match="nothing was changed"):
        ring.remove_node("a")
    assert ring.to_bytes() == before
    ring._check()


# --- edges -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [{}, {"limit": 3}, {"policy": "plain"}])
def test_rings_without_a_serving_node_describe_themselves(bound: dict[str, Any]) -> None:
    empty, down, drained = (
        study_ring([], **bound),
        study_ring(["a", "b"], **bound),
        study_ring(["a"], **bound),
    )
    down.assign_many(range(4))
    for name in down.names:
        down.mark_down(name)
    drained.drain("a")
    for ring in (empty, down, drained):
        assert ring.plan.nodes == 0
        assert ring.plan.max_load is None
        assert ring.stats().serving == 0
        for text in (repr(ring), str(ring.plan), repr(ring.plan), str(ring.stats()), ring._repr_html_()):
            assert text
        assert ring.candidates(1) == ()
        for indices in (False, True):
            with pytest.raises(NoNodesError):
                ring.node_many([1, 2], indices=indices)


def test_a_ring_above_its_limits_has_a_plan() -> None:
    ring = HashRing(["a", "b"], limit=3)
    ring.assign_many(range(6))
    ring.mark_down("a")
    assert ring.plan.keys == 3
    ring.set_weight("b", 0.3)
    assert ring.plan.keys == ring.plan.limit == 1
    assert ring._repr_html_()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda ring: ring.nodes(1, 2**70),
            NoNodesError,
            "more than 2\\*\\*32 nodes were asked for, 4 serve",
        ),
        (lambda ring: ring.nodes(1, 10**5000), NoNodesError, "more than 2\\*\\*32 nodes"),
        (lambda ring: ring.remove_node("\ud800"), KeyError, "has no node"),
        (lambda ring: ring.keys_of("\ud800"), KeyError, "has no node"),
        (lambda ring: ring.keys_of(b"a:1"), TypeError, "must be str, not bytes"),
        (lambda ring: ring.add_node("\ud800"), ValueError, "valid Unicode"),
        (lambda ring: ring.lease(1, avoid=[1]), TypeError, "must be str, not int"),
        (lambda ring: ring.lease(1, avoid=["\ud800"]), ValueError, "valid Unicode"),
        (lambda ring: ring.rebalance(2**70), ValueError, "max_moves must be"),
    ],
)
def test_errors_are_our_own(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(HashRing(NODES))


def test_equal_fingerprints_route_alike_and_not_the_other_way_round() -> None:
    a, b = HashRing(NODES), HashRing(NODES)
    a.mark_down("d:1")
    b.remove_node("d:1")
    assert (a.node_many(range(1000)) == b.node_many(range(1000))).all()
    assert a.fingerprint() != b.fingerprint()  # documented


def test_a_lease_is_not_copied() -> None:
    """Each copy would give its place back once."""
    ring = HashRing(["a", "b"], epsilon=0.25)
    with ring.lease("key", weight=2.5):
        lease = ring.lease("key")
        lease.acquire()
        for copies in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                copies(lease)
        lease.release()
    assert ring.stats().leases == 0
