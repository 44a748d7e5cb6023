"""Sketches, rings and summaries by several threads, and count-min by every kernel.

The bytes and the answers are those of one thread.

Calls are long enough for sixteen threads: a thread is started for 8,192 keys, or for 32,768 counters.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbins import CountMinSketch, HashRing, HyperLogLog, NoNodesError, RingFullError, digest_many
from evenbins.tables.summaries import InterpolationSummary, MultipleBloomSummary, SingleFilterSummary
from reference.countmin import ReferenceCountMin

THREADS = (2, 3, 7, 16)
N = 140_001
KEYS = np.random.default_rng(5).zipf(1.3, N) % 50_000
WEIGHTS = np.random.default_rng(6).integers(0, 4, N).astype(np.uint64)
TEXTS = KEYS.astype("S")


def sketch(epsilon: float = 1e-3, **arguments: Any) -> CountMinSketch:
    return CountMinSketch(epsilon, 1e-3, **arguments)


# --- count-min: kernels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("construction", ["classic", "two-hash"])
@pytest.mark.parametrize("conservative", [False, True])
@pytest.mark.parametrize("epsilon", [0.3, 1e-2, 6e-5])  # the last: rows whose counters are prefetched
def test_every_kernel_counts_as_the_twin_does(
    kernel: str, construction: str, conservative: bool, epsilon: float
) -> None:
    """Over the ends of a group of 1,024 keys and of eight keys of it."""
    s = sketch(epsilon, construction=construction, conservative=conservative)
    twin = ReferenceCountMin(s.plan.core, s.seed)
    digests = digest_many(KEYS[:2100])
    start = 0
    for n in (0, 1, 7, 8, 9, 1023, 1024, 28):
        part, weights = digests[start : start + n], WEIGHTS[start : start + n]
        start += n
        counts = s.add_many(part, weights, digests=True, return_counts=True)
        expected = []
        for digest, weight in zip(part.tolist(), weights.tolist(), strict=True):
            expected.append(twin.add_digest(digest, weight))
        assert counts is not None
        assert counts.tolist() == expected
    assert s.to_bytes().endswith(twin.payload())
    probes = digest_many(np.arange(1030))
    answers = [twin.count_digest(digest) for digest in probes.tolist()]
    for n in (0, 1, 8, 33, 1024, 1025, 1030):
        assert s.count_many(probes[:n], digests=True).tolist() == answers[:n]
    s._check()


# --- count-min: threads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("construction", ["classic", "two-hash"])
@pytest.mark.parametrize("conservative", [False, True])
@pytest.mark.parametrize("weights", [None, 5, WEIGHTS], ids=["ones", "five", "many"])
def test_any_number_of_threads_leaves_the_same_counters_and_counts(
    kernel: str, construction: str, conservative: bool, weights: Any
) -> None:
    make = lambda: sketch(construction=construction, conservative=conservative)  # noqa: E731
    expected = make()
    counts = expected.add_many(KEYS, weights, return_counts=True, threads=1)
    one = make()
    one.add_many(KEYS, weights, threads=1)
    assert one == expected
    for threads in THREADS:
        s, other = make(), make()
        s.add_many(KEYS, weights, threads=threads)
        assert s == expected, threads
        assert np.array_equal(other.add_many(KEYS, weights, return_counts=True, threads=threads), counts), (
            threads
        )
        assert other == expected, threads
        assert np.array_equal(s.count_many(KEYS, threads=threads), expected.count_many(KEYS, threads=1))
    s._check()


@settings(max_examples=25, deadline=None)
@given(
    epsilon=st.floats(1e-4, 0.5),
    delta=st.floats(1e-12, 0.5),
    two_hash=st.booleans(),
    n=st.integers(0, 120_000),
    start=st.integers(0, 20_000),
    threads=st.integers(2, 40),
)
def test_any_shape_of_sketch(
    epsilon: float, delta: float, two_hash: bool, n: int, start: int, threads: int
) -> None:
    construction = "two-hash" if two_hash else "classic"
    one, many = (CountMinSketch(epsilon, delta, construction=construction) for _ in range(2))
    keys = KEYS[start : start + n]
    counts = one.add_many(keys, WEIGHTS[: len(keys)], return_counts=True, threads=1)
    assert np.array_equal(
        many.add_many(keys, WEIGHTS[: len(keys)], return_counts=True, threads=threads), counts
    )
    assert one == many
    many._check()


@pytest.mark.parametrize("threads", [1, *THREADS])
@pytest.mark.parametrize("conservative", [False, True])
def test_a_total_that_would_overflow_stops_all_threads_at_one_key(conservative: bool, threads: int) -> None:
    one, s = (sketch(conservative=conservative) for _ in range(2))
    place = 100_003
    for each in (one, s):
        each.add("much", 2**64 - 1 - place)
    one.add_many(KEYS[:place])
    with pytest.raises(OverflowError, match=rf"keys\[{place}\]"):
        s.add_many(KEYS, threads=threads)
    assert s == one
    assert s.total == 2**64 - 1


@pytest.mark.parametrize("threads", [1, *THREADS])
def test_weights_that_are_too_few_stop_all_threads_at_one_key(threads: int) -> None:
    one, s = sketch(), sketch()
    one.add_many(KEYS[:130_000], WEIGHTS[:130_000])
    keys = (int(key) for key in KEYS)  # their number is not known
    with pytest.raises(ValueError, match=r"keys\[130000\].*weights must be as many as the keys"):
        s.add_many(keys, WEIGHTS[:130_000], threads=threads)
    assert s == one


@pytest.mark.parametrize("threads", [1, *THREADS])
@pytest.mark.parametrize("place", [0, 70_000, 139_999])
def test_the_keys_before_a_bad_one_are_in(threads: int, place: int) -> None:
    column = pa.array(KEYS, mask=np.arange(N) == place)
    for make in (sketch, HyperLogLog):
        one, s = make(), make()
        one.add_many(KEYS[:place])
        with pytest.raises(ValueError, match=rf"keys\[{place}\]"):
            s.add_many(column, threads=threads)
        assert s == one
    with pytest.raises(ValueError, match=rf"keys\[{place}\]"):
        sketch().count_many(column, threads=threads)
    ring, expected = HashRing(["a", "b", "c"]), HashRing(["a", "b", "c"])
    expected.assign_many(KEYS[:place])
    with pytest.raises(ValueError, match=rf"keys\[{place}\]"):
        ring.assign_many(column, threads=threads)
    assert ring.fingerprint(assigned=True) == expected.fingerprint(assigned=True)


# --- HyperLogLog -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", [4, 14, 18])
@pytest.mark.parametrize("different", [1, 1024, 1025, 10**9])
def test_registers_do_not_depend_on_threads(precision: int, different: int) -> None:
    """Sparse and dense, added to a sparse one and to a dense one."""
    keys = np.random.default_rng(different).integers(0, different, N)
    for before in (10, 30_000):
        expected = HyperLogLog(precision=precision)
        expected.add_many(np.arange(-before, 0), threads=1)
        start = expected.copy()
        expected.add_many(keys, threads=1)
        for threads in THREADS:
            h = start.copy()
            h.add_many(keys, threads=threads)
            assert h.to_bytes() == expected.to_bytes(), threads
            h._check()


# --- rings -------------------------------------------------------------------------------------------------

RINGS: dict[str, Callable[[], HashRing]] = {
    "jump": lambda: HashRing([f"n{i}" for i in range(37)], epsilon=0.05),
    "weights": lambda: HashRing([f"n{i}" for i in range(5)], weights=[1, 2, 3, 0.5, 2.25], copies=4),
    "clockwise": lambda: HashRing([f"n{i}" for i in range(9)], policy="clockwise"),
    "plain": lambda: HashRing([f"n{i}" for i in range(300)], policy="plain"),
}


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.parametrize("keys", [KEYS, TEXTS], ids=["ints", "bytes"])
def test_a_ring_answers_and_assigns_as_with_one_thread(name: str, keys: Any) -> None:
    one = RINGS[name]()
    one.mark_down("n1")
    start = one.to_bytes()
    nodes = one.node_many(keys, threads=1)
    assigned = one.assign_many(keys, threads=1)
    positions = one.locate_many(keys[::2], indices=True, threads=1)
    full = one.to_bytes()
    released = one.release_many(keys[::3], threads=1)
    for threads in THREADS:
        ring = HashRing.from_bytes(start)
        assert np.array_equal(ring.node_many(keys, threads=threads), nodes)
        assert np.array_equal(ring.assign_many(keys, threads=threads), assigned)
        assert np.array_equal(ring.locate_many(keys[::2], indices=True, threads=threads), positions)
        assert ring.to_bytes() == full
        assert np.array_equal(ring.release_many(keys[::3], threads=threads), released)
        assert ring.to_bytes() == one.to_bytes()
        ring._check()


@pytest.mark.parametrize("threads", [1, *THREADS])
def test_a_full_ring_stops_at_the_same_key(threads: int) -> None:
    ring = HashRing(["a", "b"], limit=10_001)
    with pytest.raises(RingFullError, match=r"^keys\[20002\]") as caught:
        ring.assign_many(np.arange(N), threads=threads)
    assert caught.value.assigned == ring.key_count == 20_002


@pytest.mark.parametrize("threads", [1, *THREADS])
def test_a_ring_without_nodes_says_so(threads: int) -> None:
    ring = HashRing()
    with pytest.raises(NoNodesError, match="no node of the ring serves"):
        ring.node_many(KEYS, threads=threads)
    with pytest.raises(NoNodesError, match=r"keys\[0\]"):
        ring.assign_many(KEYS, threads=threads)
    assert (ring.locate_many(KEYS, indices=True, threads=threads) == -1).all()


# --- summaries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [InterpolationSummary, SingleFilterSummary, MultipleBloomSummary])
@pytest.mark.parametrize("counting", [False, True])
def test_a_summary_answers_as_with_one_thread(kind: Any, counting: bool) -> None:
    levels = np.random.default_rng(7).integers(1, 6, 20_000)
    one = kind(20_000, counting=counting)
    one.add_many(np.arange(20_000), levels, threads=1)
    expected = one.level_many(KEYS, threads=1)
    for threads in THREADS:
        s = kind(20_000, counting=counting)
        s.add_many(np.arange(20_000), levels, threads=threads)
        assert s == one
        assert np.array_equal(s.level_many(KEYS, threads=threads), expected)
        assert np.array_equal(s.level_many(TEXTS, threads=threads), one.level_many(TEXTS, threads=1))
        if s._can_remove:
            gone, twin = s.copy(), one.copy()
            removed = gone.remove_many(np.arange(10_000), levels[:10_000], threads=threads)
            assert np.array_equal(removed, twin.remove_many(np.arange(10_000), levels[:10_000], threads=1))
            assert gone == twin


# --- arguments and interrupts ------------------------------------------------------------------------------

CALLS: dict[str, Callable[[Any], object]] = {
    "sketch add": lambda threads: sketch().add_many([1], threads=threads),
    "sketch count": lambda threads: sketch().count_many([1], threads=threads),
    "distinct": lambda threads: HyperLogLog().add_many([1], threads=threads),
    "node": lambda threads: HashRing(["a"]).node_many([1], threads=threads),
    "assign": lambda threads: HashRing(["a"]).assign_many([1], threads=threads),
    "locate": lambda threads: HashRing(["a"]).locate_many([1], threads=threads),
    "release": lambda threads: HashRing(["a"]).release_many([1], threads=threads),
    "level": lambda threads: InterpolationSummary(10).level_many([1], threads=threads),
    "summary add": lambda threads: InterpolationSummary(10).add_many([1], 1, threads=threads),
    "summary remove": lambda threads: InterpolationSummary(10).remove_many([1], 1, threads=threads),
}


@pytest.mark.parametrize("name", CALLS)
def test_threads_are_checked(name: str) -> None:
    call = CALLS[name]
    for threads in (None, 1, np.int8(2), 1024):
        call(threads)
    for wrong in (0, -1, 1025):
        with pytest.raises(ValueError, match=rf"^threads must be 1 to 1024, not {wrong}"):
            call(wrong)
    for odd in (1.0, "2", True):
        with pytest.raises(TypeError, match=f"^threads must be an int or None, not {type(odd).__name__}"):
            call(odd)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_an_interrupt_leaves_a_sketch_of_the_first_keys(threads: int) -> None:
    """The counters are those of a number of whole rounds, which the message says."""
    keys = np.tile(KEYS, 40)
    s = sketch(1e-4)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def add_until_stopped() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        for _ in range(1000):
            s.clear()
            s.add_many(keys, threads=threads)

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            add_until_stopped()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    s._check()
    one = sketch(1e-4)
    one.add_many(keys[: s.total], threads=1)
    assert s == one
    s.add_many(KEYS, threads=threads)
    s._check()
