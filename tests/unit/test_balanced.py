"""The balanced filter's promises, as promises: no key lost, ever; repeats change nothing; bytes depend on the
keys and their order alone; what it says of itself is what lies in its memory.

The shapes are explicit integers (`plan_levels`), so that everything happens: loads at every threshold, coins,
lists that fill, budgets that end, keys that spill by either rule. Bytes against the readable twin are another
suite's (property/test_balanced_twin.py); here nothing is compared with it.
"""

from __future__ import annotations

import copy
import json
import operator
import os
import pickle
import random
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import evenbins
from evenbins import BalancedBloomFilter, BlockedBloomFilter, BloomFilter, FormatError, _core, digest_many
from evenbins.filters import FilterPlan, build, plan_balanced, plan_blocked, plan_standard
from evenbins.study.levels import plan_levels
from reference.format import CHECKSUM, FIXED, unpack
from reference.xxh3 import xxh3_64

Words = npt.NDArray[np.uint64]
COUNTED = ("single", "sequential", "multilevel")


def planned(policy: str, blocks: Any, thresholds: Any = (), capacity: int = 1000, **rest: Any) -> FilterPlan:
    defaults: dict[str, Any] = {"hashes": 8, "block_bits": 512}
    return plan_levels(capacity, policy=policy, blocks=blocks, thresholds=thresholds, **defaults | rest)


# About 1000 keys fill each; the tests add twice as many.
SHAPES: dict[str, FilterPlan] = {
    "single": planned("single", [32], [28], coin=0.5, overflow_limit=2000),
    "single, list overruns": planned("single", [32], [28], coin=0.5, overflow_limit=50, seed=3),
    "single, no list": planned("single", [63], [15], block_bits=256, hashes=7, coin=1.0),
    "single, no list, random": planned("single", [63], [15], block_bits=256, spill="random"),
    "sequential": planned("sequential", [32], [31], choices=3, coin=0.25, overflow_limit=1500),
    "sequential, no list": planned("sequential", [65], [15], block_bits=256, choices=8, coin=0.5),
    "sequential, random": planned("sequential", [32], [31], choices=2, overflow_limit=9, spill="random"),
    "budget": planned("sequential", [32], [31], choices=3, coin=0.25, overflow_limit=1900, budget=500),
    "budget, list overruns": planned(
        "sequential", [65], [15], choices=3, block_bits=256, coin=0.5, overflow_limit=80, budget=300
    ),
    "multilevel": planned("multilevel", [25, 6, 2], [30, 30, 30], coin=0.5, overflow_limit=1500, hashes=11),
    "multilevel, list overruns": planned(
        "multilevel", [51, 11, 3], [14, 14, 12], block_bits=256, overflow_limit=40, spill="random", seed=9
    ),
    "multilevel, no list": planned("multilevel", [25, 6, 2], [30, 30, 30], coin=0.3),
    "multilevel, eight levels": planned("multilevel", [9] * 8, [3] * 8, overflow_limit=100, block_bits=256),
    "fill": planned("fill", [28, 4], [260], hashes=9),
    "fill, three levels": planned("fill", [51, 11, 3], [130, 140], block_bits=256, hashes=10),
    "two-choice": planned("two-choice", [33], hashes=11),
    "two-choice, 256": planned("two-choice", [65], block_bits=256, hashes=9, seed=2**64 - 1),
    # tiny ones, where everything overflows
    "one block": planned("single", [1], [0], overflow_limit=1, capacity=1),
    "one block, no list": planned("single", [1], [0], block_bits=256, capacity=1),
    "one block eight times": planned("sequential", [1], [2], choices=8, overflow_limit=1, capacity=2),
    "spent at once": planned("sequential", [3], [5], choices=2, overflow_limit=3, budget=1, capacity=2),
    "levels of one block": planned("multilevel", [1, 1, 1], [0, 1, 2], coin=0.5, capacity=3),
    "levels of one set bit": planned("fill", [1, 1], [1], hashes=3, capacity=1),
    "two choices of one block": planned("two-choice", [1], block_bits=256, hashes=3, capacity=1),
}
each_shape = pytest.mark.parametrize("plan", SHAPES.values(), ids=SHAPES.keys())
MANY = [name for name in SHAPES if sum(SHAPES[name].core[8::2]) > 10]
each_counted = pytest.mark.parametrize(
    "plan", [SHAPES[name] for name in MANY if SHAPES[name].policy in COUNTED],
    ids=[name for name in MANY if SHAPES[name].policy in COUNTED],
)  # fmt: skip

KEYS: list[Any] = [*range(1500), *(f"key-{i}" for i in range(400)), *(b"%d!" % i for i in range(100))]
OTHERS: list[Any] = [*range(-900, 300), *(f"other-{i}" for i in range(300))]
ABSENT = [f"absent-{i}" for i in range(500)]


def empty(plan: FilterPlan) -> BalancedBloomFilter:
    return BalancedBloomFilter.from_plan(plan)


def filled(plan: FilterPlan, keys: Any = KEYS) -> BalancedBloomFilter:
    f = empty(plan)
    for key in keys:
        f.add(key)
    return f


def payload(f: Any) -> bytes:
    return bytes(memoryview(f))


def assert_none_lost(f: Any, keys: list[Any]) -> None:
    """By every way to ask."""
    assert [key for key in keys if key not in f] == []
    for threads in (1, 2, 3):
        assert f.contains_many(keys, threads=threads).all()
    assert f.contains_many(digest_many(keys, f.seed), digests=True).all()
    f._check()


# --- no false negative ---------------------------------------------------------------------------------


def add_singly(f: Any, keys: list[Any]) -> None:
    for i, key in enumerate(keys):
        f.add(key)
        assert key in f
        assert keys[i // 2] in f


def add_in_pieces(f: Any, keys: list[Any]) -> None:
    rng = random.Random(4)
    while keys:
        n = rng.choice([1, 3, 16, 100, 700])
        f.add_many(keys[:n])
        keys = keys[n:]


def add_by(threads: int) -> Callable[[Any, list[Any]], None]:
    return lambda f, keys: f.add_many(digest_many(keys, f.seed), digests=True, threads=threads)


WAYS: dict[str, Callable[[Any, list[Any]], None]] = {
    "single": add_singly,
    "pieces": add_in_pieces,
    **{f"{n} threads": add_by(n) for n in (1, 2, 3)},
}


@each_shape
def test_no_key_is_lost_however_it_came_and_the_bytes_are_the_same(plan: FilterPlan) -> None:
    """2,000 keys: twice as many as the filters are made for, and a thousand times for the tiny ones."""
    found = set()
    for add in WAYS.values():
        f = empty(plan)
        add(f, KEYS)
        assert_none_lost(f, KEYS)
        found.add(f.to_bytes())
    assert len(found) == 1


@each_shape
def test_no_key_is_lost_by_whatever_happens_to_the_filter(plan: FilterPlan, tmp_path: Path) -> None:
    f = filled(plan)
    f.save(tmp_path / "f")
    found: list[Any] = [
        f.copy(), copy.deepcopy(f), pickle.loads(pickle.dumps(f)),
        BalancedBloomFilter.from_bytes(f.to_bytes()), evenbins.load(tmp_path / "f"),
        evenbins.open(tmp_path / "f"), BalancedBloomFilter.open(tmp_path / "f", verify=True),
        BalancedBloomFilter.open(tmp_path / "f").copy(),
    ]  # fmt: skip
    answers = f.contains_many(ABSENT).tolist()
    for g in found:
        assert type(g) is BalancedBloomFilter
        assert g == f
        assert_none_lost(g, KEYS)
        assert g.contains_many(ABSENT).tolist() == answers
        assert g.stats() == f.stats()


@each_shape
def test_no_key_is_lost_by_merging(plan: FilterPlan) -> None:
    """Both nearly empty, one of them, none; into one another, and what comes in later."""
    for left, right in [
        (KEYS, OTHERS),
        (KEYS[:20], OTHERS),
        (KEYS, OTHERS[:20]),
        (KEYS, []),
        (KEYS[:5], OTHERS[:5]),
    ]:
        a, b = filled(plan, left), filled(plan, right)
        merged = a | b
        assert_none_lost(merged, [*left, *right])
        for key in ABSENT:
            merged.add(key)
        assert_none_lost(merged, [*left, *right, *ABSENT])
        merged |= a
        merged |= merged.copy()
        assert_none_lost(merged, [*left, *right, *ABSENT])


@each_shape
def test_no_key_is_lost_in_a_long_random_history(plan: FilterPlan) -> None:
    """60 steps: adds of all sorts, merges, copies, files; after each one, all keys so far."""
    rng = random.Random(11)
    f, known = empty(plan), []
    for _ in range(60):
        keys = [rng.randrange(3000) for _ in range(rng.choice([1, 5, 60]))]
        match rng.randrange(6):
            case 0:
                for key in keys:
                    f.add(key)
            case 1 | 2:
                f.add_many(np.array(keys), threads=rng.choice([1, 2]))
            case 3:
                f |= filled(plan, keys)
            case 4:
                f = filled(plan, keys) | f
            case 5:
                keys, f = [], pickle.loads(pickle.dumps(f))
        known += keys
        assert f.contains_many(known).all()
    f._check()


def test_the_shapes_do_what_they_are_called() -> None:
    """Lists that overrun have spilled, others have room left; budgets are spent; nothing is idle."""
    for name in MANY:
        f = filled(SHAPES[name])
        if f.plan.policy not in COUNTED:
            continue
        keys, listed, reads, flags, spilled = f._state()[:5]
        assert keys > 1000
        assert reads >= keys if "budget" not in name else reads < 2 * keys
        assert bool(flags & 2) == ("budget" in name)
        if "overruns" in name or "eight" in name or "sequential, random" in name:
            assert listed == f.plan.overflow_limit
            assert spilled > 0
        elif "no list" in name:
            assert listed == 0 < spilled
        else:
            assert 0 < listed < f.plan.overflow_limit
            assert spilled == 0


def test_the_digest_zero_is_a_key_like_others() -> None:
    """An empty slot of the list is 0, so this one has a flag of its own."""
    zero = np.zeros(1, np.uint64)
    for plan in SHAPES.values():
        for before in (0, 50):
            f = empty(plan)
            f.add_many(digest_many(range(before)), digests=True)
            f.add_many(zero, digests=True)
            assert f.contains_many(zero, digests=True).all()
            f._check()
            state = f.to_bytes()
            f.add_many(np.zeros(5000, np.uint64), digests=True, threads=2)
            assert f.to_bytes() == state
            assert (f | empty(plan)).contains_many(zero, digests=True).all()
            assert BalancedBloomFilter.from_bytes(state) == f
    f = empty(SHAPES["one block"])
    f.add_many(np.array([5, 0], np.uint64), digests=True)  # one has the block's coin against it, and the list
    assert f._state()[3] in (0, 1)


# --- repeats -------------------------------------------------------------------------------------------


@each_shape
def test_repeats_change_nothing(plan: FilterPlan) -> None:
    """Singly, in bulk, by threads, in other orders, and within one call."""
    f = filled(plan)
    before = f.to_bytes()
    shuffled = random.Random(1).sample(KEYS, len(KEYS))
    for add in WAYS.values():
        add(f, shuffled)
        assert f.to_bytes() == before
    twice = empty(plan)
    for add in (add_singly, add_by(1)):
        twice.clear()
        add(twice, [key for key in KEYS for _ in range(3)])
        assert twice.to_bytes() == before


@each_shape
def test_repeats_change_nothing_after_a_merge(plan: FilterPlan) -> None:
    merged = filled(plan) | filled(plan, OTHERS)
    before = merged.to_bytes()
    for add in WAYS.values():
        add(merged, [*OTHERS, *KEYS])
        assert merged.to_bytes() == before


# --- bulk, threads, kernels ----------------------------------------------------------------------------

# 200,000 different keys and 100,000 repeats among them, near and far: several rounds of three threads.
POOL = np.random.default_rng(6).integers(-(2**63), 2**63, 200_000)
NUMBERS = np.random.default_rng(7).permutation(
    np.concatenate([POOL, POOL[:50_000], np.repeat(POOL[-25_000:], 2)])
)
LARGE: dict[str, FilterPlan] = {
    "single": planned("single", [5000], [36], capacity=200_000, coin=0.5, overflow_limit=60_000),
    "single, list overruns": planned("single", [5000], [36], capacity=200_000, overflow_limit=10_000),
    "sequential": planned("sequential", [5000], [38], capacity=200_000, choices=3, overflow_limit=20_000),
    "budget": planned(
        "sequential", [10_000], [19], block_bits=256, capacity=200_000, choices=3, coin=0.5,
        overflow_limit=30_000, budget=200_000,
    ),
    "multilevel": planned(
        "multilevel", [4000, 800, 200], [36, 36, 36], capacity=200_000, coin=0.5, overflow_limit=40_000
    ),
    "multilevel, list overruns": planned(
        "multilevel", [8001, 1601, 401], [17, 17, 17], block_bits=256, capacity=200_000, overflow_limit=9000,
    ),
    "multilevel, no list": planned("multilevel", [4000, 800, 200], [36, 36, 36], capacity=200_000),
    "fill": planned("fill", [8001, 1601, 401], [130, 130], block_bits=256, capacity=200_000),
    "two-choice": planned("two-choice", [6000], capacity=200_000),
}  # fmt: skip
each_large = pytest.mark.parametrize("plan", LARGE.values(), ids=LARGE.keys())


@each_large
def test_batches_larger_than_internal_rounds_leave_the_bytes_of_single_adds(plan: FilterPlan) -> None:
    """300,000 keys, a third of them repeats, singly, whole and cut, by one to three threads.

    Where the list overruns, it does so in the midst of a call: level by level before, one by one after.
    """
    expected = filled(plan, NUMBERS.tolist())
    for threads in (1, 2, 3):
        whole, cut = empty(plan), empty(plan)
        whole.add_many(NUMBERS, threads=threads)
        for part in np.split(NUMBERS, [1, 1000, 5000, 140_001, 140_002, 250_000]):
            cut.add_many(part, threads=threads)
        assert whole == expected
        assert cut == expected
        assert whole.contains_many(NUMBERS, threads=threads).all()
    before = expected.to_bytes()
    expected.add_many(NUMBERS[::-1], threads=2)
    assert expected.to_bytes() == before


def test_the_lists_of_the_large_shapes_overrun_in_the_midst_of_a_call() -> None:
    for name in ("single, list overruns", "multilevel, list overruns"):
        plan = LARGE[name]
        f = empty(plan)
        f.add_many(NUMBERS[:200_000])
        assert plan.overflow_limit - f._state()[1] > 2048  # rooms for whole batches of two threads
        f.add_many(NUMBERS[200_000:])
        assert f._state()[1] == plan.overflow_limit
        assert f._state()[4] > 1000


@each_shape
def test_every_kernel_leaves_the_same_bytes(kernel: str, plan: FilterPlan) -> None:
    _core.use_kernel("generic")
    expected = filled(plan, KEYS[:700])
    answers = [key in expected for key in ABSENT]
    merged = expected | filled(plan, OTHERS[:300])
    _core.use_kernel(kernel)
    f, g = empty(plan), empty(plan)
    f.add_many(KEYS[:700])
    add_singly(g, KEYS[:700])
    assert payload(f) == payload(g) == payload(expected)
    assert f.contains_many(ABSENT).tolist() == [key in f for key in ABSENT] == answers
    assert f | filled(plan, OTHERS[:300]) == merged
    assert f.stats() == expected.stats()


# --- merging -------------------------------------------------------------------------------------------


@each_shape
def test_a_merge_is_commutative_to_the_byte(plan: FilterPlan) -> None:
    a, b = filled(plan), filled(plan, OTHERS)
    before = a.to_bytes(), b.to_bytes()
    assert (a | b).to_bytes() == (b | a).to_bytes()
    assert (a.to_bytes(), b.to_bytes()) == before
    c = a.copy()
    c |= b
    assert c == a | b
    assert c.capacity == plan.keys


@each_counted
def test_a_merge_counts_both(plan: FilterPlan) -> None:
    a, b = filled(plan), filled(plan, OTHERS)
    mine, theirs, both = a._state(), b._state(), (a | b)._state()
    assert both[0] == mine[0] + theirs[0]
    assert both[2] == mine[2] + theirs[2]
    assert both[3] == mine[3] | theirs[3]
    assert both[1] <= min(mine[1] + theirs[1], plan.overflow_limit)
    assert both[4] >= mine[4] + theirs[4]


CHANGES: dict[str, dict[str, Any]] = {
    "blocks": {"blocks": [26, 6, 2]},
    "thresholds": {"thresholds": [30, 30, 29]},
    "coin": {"coin": 0.25},
    "hashes": {"hashes": 10},
    "levels": {"blocks": [25, 6], "thresholds": [30, 30]},
    "block bits": {"block_bits": 256},
    "list": {"overflow_limit": 1501},
    "spill": {"spill": "random"},
    "policy": {"policy": "fill", "thresholds": [30, 30], "coin": 0, "overflow_limit": 0},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_merge_needs_the_same_plan_and_says_what_differs(name: str) -> None:
    changes = CHANGES[name]
    fields = {"blocks": "nbytes", "levels": "choices", "block bits": "block_bits", "list": "overflow_limit"}
    named = fields.get(name, name)
    arguments: dict[str, Any] = {
        "policy": "multilevel", "blocks": [25, 6, 2], "thresholds": [30, 30, 30], "coin": 0.5,
        "overflow_limit": 1500, "hashes": 11,
    }  # fmt: skip
    f, g = empty(planned(**arguments)), empty(planned(**arguments | changes))
    f.update(KEYS)
    before = f.to_bytes()
    for merge in (operator.or_, operator.ior):
        with pytest.raises(ValueError, match=r"plans differ \(capacity .*same arguments") as caught:
            merge(f, g)
        assert f" {named} {getattr(f.plan, named)} and {getattr(g.plan, named)}" in str(caught.value)
    assert f.to_bytes() == before
    assert f != g


def test_a_merge_needs_the_same_seed() -> None:
    f, g = (empty(planned("single", [32], [28], overflow_limit=9, seed=seed)) for seed in (1, 2))
    with pytest.raises(ValueError, match=r"seeds differ"):
        f |= g


# --- what it says of itself ----------------------------------------------------------------------------


@dataclass
class Memory:
    """A payload taken apart by the specification."""

    loads: list[npt.NDArray[np.int64]]  # for each table, of each block
    bits: list[npt.NDArray[np.int64]]  # set by keys
    key_bits: list[int]
    listed: list[int]
    state: list[int]

    @classmethod
    def of(cls, f: Any) -> Memory:
        policy, block_bits, _, _, _, limit, _, _, *tables = f.plan.core
        words = np.frombuffer(payload(f), "<u8")
        found = cls([], [], [], [], [])
        for blocks, threshold in zip(tables[::2], tables[1::2], strict=True):
            width = block_bits // 64
            table, words = (
                words[: blocks * width].reshape(blocks, width),
                words[-(-blocks * width // 8) * 8 :],
            )
            counter = (threshold + 1).bit_length() if policy <= 3 else 0
            bits = np.bitwise_count(table).sum(axis=1, dtype=np.int64)
            loads = np.zeros(blocks, np.int64)
            if counter:
                loads = (table[:, -1] >> np.uint64(64 - counter)).astype(np.int64)
                bits -= np.bitwise_count(loads)
            found.loads.append(loads)
            found.bits.append(bits)
            found.key_bits.append(block_bits - counter)
        if policy <= 3:
            slots = (limit + limit // 3 + 15) // 8 * 8 if limit else 0
            found.listed = [int(word) for word in words[:slots] if word]
            found.state = words[slots:].tolist()
            assert len(found.state) == 8
        else:
            assert len(words) == 0
        return found


def walk(f: Any, memory: Memory) -> tuple[float, float, float]:
    """Rate, block reads and list reads of an absent key: block by block, as the specification walks."""
    policy, _, hashes, choices, coin, limit, _, _, *tables = f.plan.core
    rate, reads, here = 0.0, 0.0, 1.0
    for level in range(choices):
        table = level if len(memory.bits) > 1 else 0
        hit = (memory.bits[table] / memory.key_bits[table]) ** hashes
        threshold = tables[2 * table + 1]
        if policy == 4:
            full = (memory.bits[table] >= threshold).astype(float)
        elif policy == 5:
            full = np.ones(len(hit))
        else:
            load = memory.loads[table]
            full = (load > threshold) + (load == threshold) * (1 - coin / 2**32)
        rate += here * hit.mean()
        reads += here
        here *= ((1 - hit) * full).mean()
    if policy == 5:
        reads = 2.0  # both blocks are read, whatever the first says
    exhausted = bool(memory.state and memory.state[3] & 2)
    return rate, reads, (1 - rate if exhausted else here) if limit else 0.0


def assert_stats_are_those_of_the_memory(f: Any) -> None:
    stats, memory = f.stats(), Memory.of(f)
    rate, reads, list_reads = walk(f, memory)
    assert stats.fpr == pytest.approx(rate, rel=1e-9, abs=1e-300)
    assert stats.miss_reads == pytest.approx(reads, rel=1e-9)
    assert stats.list_reads == pytest.approx(list_reads, rel=1e-9, abs=1e-12)
    bits = sum(len(each) * width for each, width in zip(memory.bits, memory.key_bits, strict=True))
    assert stats.fill == pytest.approx(sum(map(np.sum, memory.bits)) / bits, rel=1e-12)
    assert f._set_bits() == sum(map(np.sum, memory.bits))
    assert len(stats.loads) == len(memory.bits)
    for shown, table in zip(stats.loads, memory.loads if memory.state else memory.bits, strict=True):
        assert list(shown) == np.bincount(table, minlength=len(shown)).tolist()
    if memory.state:
        keys, listed, read, flags, spilled, *rest = memory.state
        assert rest == [0, 0, 0]
        assert listed == len(memory.listed) + (flags & 1)
        assert len(set(memory.listed)) == len(memory.listed)
        assert stats.keys == f.approx_items() == keys
        assert stats.reads == pytest.approx(read / keys if keys else 1.0)
        assert stats.overflow == pytest.approx(listed / keys if keys else 0.0)
        assert stats.spilled == pytest.approx(spilled / keys if keys else 0.0)
    else:
        assert stats.overflow == stats.spilled == stats.list_reads == 0.0
        assert 1.0 <= stats.reads <= f.plan.choices
    assert stats.nbytes == f.nbytes == len(payload(f))
    json.dumps(stats.to_dict())


@each_shape
def test_stats_are_what_lies_in_memory(plan: FilterPlan) -> None:
    """Empty, with some keys, with all, after a merge, and when that went on growing."""
    f = empty(plan)
    assert_stats_are_those_of_the_memory(f)
    for keys in (KEYS[:10], KEYS[10:900], KEYS[900:]):
        f.add_many(keys)
        assert_stats_are_those_of_the_memory(f)
    f |= filled(plan, OTHERS)
    assert_stats_are_those_of_the_memory(f)
    f.add_many(ABSENT)
    assert_stats_are_those_of_the_memory(f)


@pytest.mark.parametrize("name", MANY)
def test_the_number_of_keys_is_right(name: str) -> None:
    """Counted, but for keys that were present by accident; "fill" and "two-choice" estimate within 3 %."""
    f = empty(SHAPES[name])
    accidents = 0
    for key in KEYS[:1000]:
        accidents += key in f
        f.add(key)
    if f.plan.policy in COUNTED:
        assert f.approx_items() == 1000 - accidents
    else:
        assert f.approx_items() == pytest.approx(1000, rel=0.03)
    f.add_many(KEYS[:1000])
    assert f.approx_items() == f.stats().keys == pytest.approx(1000 - accidents, rel=0.03)


def test_reads_of_present_keys_are_what_insertions_read() -> None:
    """Multilevel with a long list: the first level's loads say how many keys read one block and no more."""
    f = filled(SHAPES["multilevel"], KEYS[:1000])
    memory = Memory.of(f)
    assert max(int(loads.max()) for loads in memory.loads) <= 31
    stats = f.stats()
    beyond = 1000 - memory.loads[0].sum()
    assert beyond > 100
    assert 1 + beyond / 1000 <= stats.reads <= 1 + 2 * beyond / 1000


@pytest.mark.parametrize("name", [name for name in MANY if SHAPES[name].policy in COUNTED])
def test_stats_say_when_the_list_overran(name: str) -> None:
    plan = SHAPES[name]
    f = filled(plan)
    room = plan.overflow_limit - len(Memory.of(f).listed)
    assert (f.stats().spilled > 0) == (room == 0)
    assert empty(plan).stats().spilled == 0


def test_lists_that_fit_one_by_one_may_overrun_when_merged() -> None:
    plan = planned("single", [32], [28], overflow_limit=60, coin=0.5)
    a, b = filled(plan, range(850)), filled(plan, range(10_000, 10_850))
    assert a.stats().spilled == b.stats().spilled == 0
    merged = a | b
    assert a.stats().overflow * a.stats().keys + b.stats().overflow * b.stats().keys > 60
    assert merged._state()[1] == 60
    assert merged.stats().spilled > 0
    assert_none_lost(merged, [*range(850), *range(10_000, 10_850)])


def test_clear_leaves_a_new_filter() -> None:
    for plan in SHAPES.values():
        f = filled(plan)
        f.clear()
        assert f == empty(plan)
        assert f.to_bytes() == empty(plan).to_bytes()
        f.add_many(KEYS)
        assert f == filled(plan)


# --- files ---------------------------------------------------------------------------------------------


def forged(f: Any, words: Words) -> bytes:
    """The file of a filter with another payload, its checksums right."""
    data, body = f.to_bytes(), words.tobytes()
    offset = len(data) - len(body)
    fields = list(FIXED.unpack_from(data))
    fields[9] = xxh3_64(body)
    header = FIXED.pack(*fields) + data[FIXED.size : offset - 8]
    return header + CHECKSUM.pack(xxh3_64(header)) + body


@pytest.fixture
def listed() -> BalancedBloomFilter:
    """Three half lines and padding; 12 keys on a list of 24 slots; loads of 0 to 9, in 4 bits."""
    f = empty(planned("single", [3], [8], block_bits=256, coin=0.5, overflow_limit=12, capacity=30))
    f.add_many(range(60))
    assert f._state()[1] == 12
    assert f.nbytes == 128 + 24 * 8 + 64
    return f


TABLE, SLOTS, STATE = 0, 16, 40  # where the words of its parts begin


def set_word(at: int, value: int) -> Callable[[Words], None]:
    return lambda words: operator.setitem(words, at, value)


def move_out_of_reach(words: Words) -> None:
    """Put an entry behind a line that has an empty slot, where its home is not."""
    slots = words[SLOTS:STATE].reshape(3, 8)
    line = next(i for i in range(3) if (slots[i] == 0).any() and (slots[i] != 0).any())
    place = int(np.flatnonzero(slots[line])[0])
    other = next(i for i in range(3) if i != line and (slots[i] == 0).any())
    hole = int(np.flatnonzero(slots[other] == 0)[-1])
    slots[other, hole], slots[line, place] = slots[line, place], 0


def forget_one(words: Words) -> None:
    words[SLOTS + int(np.flatnonzero(words[SLOTS:STATE])[0])] = 0


DAMAGE: dict[str, tuple[Callable[[Words], None], str]] = {
    "load above its threshold": (set_word(TABLE + 3, 15 << 60), "load"),
    "load above it by one": (set_word(TABLE + 11, 10 << 60), "load"),
    "padding of a table": (set_word(TABLE + 12, 1), "padding"),
    "last word of the padding": (set_word(TABLE + 15, 1 << 63), "padding"),
    "one key fewer than it says": (forget_one, "as many keys"),
    "a count one too high": (set_word(STATE + 1, 13), "limit|as many keys"),
    "a count one too low": (set_word(STATE + 1, 11), "as many keys"),
    "no count": (set_word(STATE + 1, 0), "as many keys"),
    "the largest count": (set_word(STATE + 1, 2**64 - 1), "limit"),
    "a key out of reach": (move_out_of_reach, "cannot be found"),
    "digest 0 by its flag alone": (set_word(STATE + 3, 1), "as many keys"),
    "a budget that it has not": (set_word(STATE + 3, 2), "flags"),
    "an unknown flag": (set_word(STATE + 3, 4), "flags"),
    "the highest flag": (set_word(STATE + 3, 1 << 63), "flags"),
    **{f"reserved word {i}": (set_word(STATE + i, 1), "reserved") for i in (5, 6, 7)},
}
AT_ONCE = ("the largest count", "a budget", "an unknown", "the highest", "reserved")  # what `open` sees too


@pytest.mark.parametrize("name", DAMAGE)
def test_a_payload_that_no_adds_leave_is_refused(name: str, listed: Any, tmp_path: Path) -> None:
    """Its checksums are right: such a file was not damaged on its way but made by another program."""
    damage, message = DAMAGE[name]
    words = np.frombuffer(payload(listed), np.uint64).copy()
    damage(words)
    data = forged(listed, words)
    path = tmp_path / "f"
    path.write_bytes(data)
    for read in (
        lambda: BalancedBloomFilter.from_bytes(data),
        lambda: BalancedBloomFilter.load(path),
        lambda: evenbins.load(path),
        lambda: BalancedBloomFilter.open(path, verify=True),
    ):
        with pytest.raises(FormatError, match=message):
            read()
    with pytest.raises(ValueError, match="payload"):
        unpack(data)
    if name.startswith(AT_ONCE):
        with pytest.raises(FormatError, match=message):
            BalancedBloomFilter.open(path)


def test_the_forger_is_sound(listed: Any) -> None:
    words = np.frombuffer(payload(listed), np.uint64).copy()
    assert forged(listed, words) == listed.to_bytes()
    assert BalancedBloomFilter.from_bytes(forged(listed, words)) == listed


@pytest.mark.parametrize("fill", [1, 0x5555555555555555, 2**64 - 1])
def test_an_unverified_list_without_an_end_does_not_hang(fill: int, listed: Any, tmp_path: Path) -> None:
    """`open` does not read the slots: all in use, though the words of state look right."""
    words = np.frombuffer(payload(listed), np.uint64).copy()
    words[SLOTS:STATE] = fill
    (tmp_path / "f").write_bytes(forged(listed, words))
    f = BalancedBloomFilter.open(tmp_path / "f")
    assert f.contains_many(range(1000)).dtype == np.bool_
    assert ("x" in f) in (True, False)
    f.stats()
    g = BalancedBloomFilter.open(tmp_path / "f").copy()
    assert g.contains_many(range(1000), threads=2).shape == (1000,)


def test_fill_and_two_choice_have_nothing_but_bits() -> None:
    """And the padding of odd half lines, which is checked."""
    for plan in (planned("fill", [3, 1], [99], block_bits=256), planned("two-choice", [3], block_bits=256)):
        f = filled(plan, range(50))
        words = np.frombuffer(payload(f), np.uint64).copy()
        words[15] = 1
        with pytest.raises(FormatError, match="padding"):
            BalancedBloomFilter.from_bytes(forged(f, words))
        assert len(words) == sum(-(-blocks // 2) * 8 for blocks in plan.core[8::2])


def test_an_opened_filter_lies_in_the_file_and_is_read_only(tmp_path: Path) -> None:
    for plan in SHAPES.values():
        f = filled(plan)
        f.save(tmp_path / "f")
        opened = BalancedBloomFilter.open(tmp_path / "f")
        assert memoryview(opened).readonly
        assert "read-only" in repr(opened)
        writes: list[Callable[[], Any]] = [
            lambda g=opened: g.add("x"), lambda g=opened: g.add(0), lambda g=opened: g.add_many([1, 2]),
            lambda g=opened: g.add_many(np.arange(5000), threads=2), opened.clear,
            lambda g=opened, f=f: operator.ior(g, f),
        ]  # fmt: skip
        for write in writes:
            with pytest.raises(ValueError, match=r"read-only.*copy\(\)"):
                write()
        assert (tmp_path / "f").read_bytes() == f.to_bytes()
        assert opened.stats() == f.stats()
        assert (opened | filled(plan, OTHERS)) == (f | filled(plan, OTHERS))


def test_the_words_of_state_lie_where_the_format_says(listed: Any) -> None:
    state = struct.unpack("<8Q", payload(listed)[-64:])
    assert list(state) == listed._state()
    assert state[1] == 12
    for f in (empty(SHAPES["fill"]), empty(SHAPES["two-choice"])):
        assert f._state() == []


# --- threads of the user, Ctrl-C -----------------------------------------------------------------------


def together(*works: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("name", MANY)
def test_keys_that_are_in_are_found_while_others_add(name: str) -> None:
    """Look-ups never wait: they meet blocks, loads and the list half-way."""
    f = empty(SHAPES[name])
    known = digest_many(KEYS[:600], f.seed)
    f.add_many(known, digests=True)
    done = threading.Event()

    def add() -> None:
        try:
            for start in range(0, 60_000, 2000):
                f.add_many(np.arange(start, start + 1900), threads=1 + start % 3)
                for key in range(start + 1900, start + 2000):
                    f.add(key)
        finally:
            done.set()

    def ask() -> None:
        while not done.is_set():
            assert f.contains_many(known, digests=True).all()

    together(add, ask)
    assert f.contains_many(np.arange(60_000)).all()


@each_large
@pytest.mark.parametrize("threads", [2, 3])
def test_keys_that_are_in_are_found_while_threads_add(plan: FilterPlan, threads: int) -> None:
    """Calls of 300,000 keys, rounds of several threads; where the list overruns, in the midst of one."""
    f = empty(plan)
    known = np.arange(20_000)
    f.add_many(known)
    expected = f.copy()
    expected.add_many(NUMBERS)
    done = threading.Event()

    def add() -> None:
        try:
            f.add_many(NUMBERS, threads=threads)
        finally:
            done.set()

    def ask() -> None:
        while not done.is_set():
            assert f.contains_many(known).all()

    together(add, ask)
    assert f == expected


@pytest.mark.parametrize("name", MANY)
def test_keys_that_are_in_are_found_while_others_merge(name: str) -> None:
    """A merge writes the list anew; who asks meanwhile must find its keys nevertheless."""
    f, other = empty(SHAPES[name]), filled(SHAPES[name], OTHERS[:200])
    known = digest_many(KEYS, f.seed)
    f.add_many(known, digests=True)
    done = threading.Event()

    def merge() -> None:
        nonlocal f
        try:
            for _ in range(3000):
                f |= other
        finally:
            done.set()

    def ask() -> None:
        while not done.is_set():
            assert f.contains_many(known, digests=True).all()

    together(merge, ask)


@pytest.fixture
def default_interrupt() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_interrupt")
@pytest.mark.parametrize("threads", [1, 2])
@each_large
def test_ctrl_c_leaves_the_keys_so_far_and_a_usable_filter(plan: FilterPlan, threads: int) -> None:
    """200,000 keys over and over, more than a test can wait for; the signal comes when the first is in."""
    f = empty(plan)
    endless = np.broadcast_to(POOL, (1_000_000, len(POOL)))

    def interrupt() -> None:
        while int(POOL[0]) not in f:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt, daemon=True)
    watcher.start()
    with pytest.raises(KeyboardInterrupt, match=r"stopped after \d+ keys.*usable") as caught:
        f.add_many(endless, threads=threads)
    watcher.join()
    count = int(str(caught.value).split()[2])
    expected = empty(plan)
    expected.add_many(POOL[:count])
    assert f == expected
    assert f.contains_many(POOL[:count]).all()
    f.add("usable")
    assert "usable" in f
    f._check()


# --- constructors --------------------------------------------------------------------------------------

BAD: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (ValueError, "policy", {"policy": "best"}),
    (ValueError, "policy", {"policy": "standard"}),
    (TypeError, "policy", {"policy": 3}),
    (ValueError, "thresholds", {"policy": "single", "thresholds": [1, 2]}),
    (TypeError, "thresholds", {"policy": "single", "thresholds": "12"}),
    (ValueError, r"thresholds\[0\]", {"policy": "single", "thresholds": [65535]}),
    (ValueError, r"thresholds\[0\]", {"policy": "single", "thresholds": [-1]}),
    (TypeError, r"thresholds\[1\]", {"policy": "multilevel", "thresholds": [5, 1.5]}),
    (ValueError, r"thresholds\[0\]", {"policy": "fill", "thresholds": [0]}),
    (ValueError, r"thresholds\[0\]", {"policy": "fill", "thresholds": [600]}),
    (ValueError, "thresholds", {"policy": "two-choice", "thresholds": [3]}),
    (ValueError, "coin", {"policy": "single", "coin": 1.5}),
    (ValueError, "coin", {"policy": "single", "coin": -0.1}),
    (TypeError, "coin", {"policy": "single", "coin": "0.5"}),
    (ValueError, "coin", {"policy": "fill", "coin": 0.5}),
    (ValueError, "coin", {"policy": "two-choice", "coin": 0.5}),
    (ValueError, "choices", {"choices": 0}),
    (ValueError, "choices", {"choices": 9}),
    (TypeError, "choices", {"choices": 2.0}),
    (ValueError, "choices", {"policy": "two-choice", "choices": 1}),
    (ValueError, "reads", {"reads": 0.5}),
    (TypeError, "reads", {"reads": "1.5"}),
    (ValueError, "reads", {"policy": "two-choice", "reads": 1.5}),
    (ValueError, "miss_reads", {"miss_reads": 0.9}),
    (ValueError, "miss_reads", {"policy": "two-choice", "miss_reads": 1.5}),
    (ValueError, "overflow", {"overflow": -0.01}),
    (ValueError, "overflow", {"overflow": 1.01}),
    (TypeError, "overflow", {"overflow": "0.01"}),
    (ValueError, "shares", {"shares": []}),
    (ValueError, r"shares\[1\]", {"policy": "multilevel", "shares": [1, -1]}),
    (ValueError, "shares", {"policy": "multilevel", "thresholds": [3, 3], "shares": [1, 1, 1]}),
    (TypeError, "shares", {"policy": "multilevel", "shares": "ab"}),
    (ValueError, "spill", {"spill": "most"}),
    (TypeError, "spill", {"spill": 0}),
    (ValueError, "block_bits", {"block_bits": 1024}),
    (ValueError, "hashes", {"hashes": 33}),
]


@pytest.mark.parametrize(
    ("error", "name", "arguments"), BAD, ids=lambda each: str(each) if isinstance(each, dict) else ""
)
def test_a_bad_argument_is_an_error_that_names_it(
    error: type[Exception], name: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(error, match=rf"^{name} (must|has)") as caught:
        BalancedBloomFilter.from_plan(plan_balanced(1000, **arguments))
    assert "got " in str(caught.value)


@pytest.mark.parametrize("policy", BalancedBloomFilter._policies)
@pytest.mark.parametrize("block_bits", [256, 512])
def test_the_constructor_builds_what_was_asked_for(policy: str, block_bits: int) -> None:
    f = BalancedBloomFilter(3000, bits_per_key=20, policy=policy, block_bits=block_bits, seed=5)
    assert f.plan.policy == policy
    assert f.plan.block_bits == block_bits
    assert f.plan.bits_per_key == pytest.approx(20, rel=0.02)
    assert f.nbytes * 8 / 3000 == f.plan.bits_per_key
    assert f.plan == plan_balanced(3000, bits_per_key=20, policy=policy, block_bits=block_bits, seed=5)
    assert f == BalancedBloomFilter.from_plan(f.plan)
    f.add_many(range(3000))
    assert_none_lost(f, list(range(3000)))
    g = BalancedBloomFilter.from_bytes(f.to_bytes())
    assert g.plan.to_dict() == f.plan.to_dict()


def test_bounds_are_kept_by_the_plan() -> None:
    f = BalancedBloomFilter.from_plan(
        plan_balanced(
            50_000, bits_per_key=16, policy="multilevel", reads=1.2, choices=2, overflow=0.01, miss_reads=1.6
        )
    )
    assert f.plan.reads <= 1.2
    assert f.plan.choices <= 2
    assert f.plan.overflow <= 0.01
    assert f.plan.miss_reads <= 1.6
    f.add_many(range(50_000))
    stats = f.stats()
    assert stats.reads <= 1.21
    assert stats.overflow <= 0.011
    assert stats.miss_reads <= 1.62
    no_list = BalancedBloomFilter.from_plan(
        plan_balanced(5000, bits_per_key=16, policy="multilevel", overflow=0, spill="random")
    )
    assert no_list.plan.overflow_limit == 0
    assert no_list.plan.spill == "random"


def test_a_plan_goes_to_its_own_class() -> None:
    balanced = SHAPES["multilevel"]
    with pytest.raises(ValueError, match=r"plan must have .* got 'standard'.*BloomFilter.from_plan"):
        BalancedBloomFilter.from_plan(plan_standard(100))
    with pytest.raises(
        ValueError, match=r"plan must have .* got 'multilevel'.*BalancedBloomFilter.from_plan"
    ):
        BloomFilter.from_plan(balanced)
    with pytest.raises(ValueError, match=r"BalancedBloomFilter.from_plan"):
        BlockedBloomFilter.from_plan(balanced)
    with pytest.raises(TypeError, match="BalancedPlan"):
        BalancedBloomFilter.from_plan(balanced.core)  # type: ignore[arg-type]
    assert type(build(balanced)) is BalancedBloomFilter
    assert type(build(plan_blocked(100))) is BlockedBloomFilter


def test_the_repr_and_the_table_tell_the_plan() -> None:
    f = filled(SHAPES["multilevel, list overruns"])
    assert repr(f).startswith("BalancedBloomFilter(capacity=1_000, fpr=")
    assert "hashes=8" in repr(f)
    assert "overflow" in f._repr_html_()


@pytest.mark.parametrize("defect", ["an entry twice", "an entry behind a gap"])
def test_a_list_out_of_order_is_refused(defect: str) -> None:
    """Both would be found all the same, but no sequence of keys leaves them so."""
    plan = plan_levels(
        100, policy="single", block_bits=512, hashes=4, blocks=(1,), thresholds=(0,), coin=0.0,
        overflow_limit=40,
    )  # fmt: skip
    f = BalancedBloomFilter.from_plan(plan)
    f.add_many(np.arange(3))
    payload = np.frombuffer(bytes(memoryview(f)), dtype=np.uint64).copy()
    slots, state = payload[8:-8], payload[-8:]
    here = int(np.flatnonzero(slots)[0])
    line = slots[here // 8 * 8 : here // 8 * 8 + 8]
    assert line[-1] == 0
    line[-1] = line[0]
    if defect == "an entry twice":
        state[1] += 1
    else:
        line[0] = 0
    forged = payload.tobytes()
    header = _core.file_header(3, 2, 0, 100, list(plan.core), forged)
    with pytest.raises(FormatError, match=r"twice|cannot be found"):
        BalancedBloomFilter.from_bytes(header + forged)


@pytest.mark.parametrize("fpr", [1e-3, 1e-6])
def test_an_overfilled_fill_filter_does_not_depend_on_batches_or_threads(kernel: str, fpr: float) -> None:
    """Keys that find every level full come in the middle of batches, of all sizes, and on several threads."""
    keys = np.arange(30_000)
    plan = BalancedBloomFilter(20_000, fpr=fpr, policy="fill").plan
    one_by_one = BalancedBloomFilter.from_plan(plan)
    for key in keys.tolist():
        one_by_one.add(key)
    for step, threads in ((30_000, 1), (30_000, 2), (9_000, 3), (1_000, 1), (37, 1)):
        f = BalancedBloomFilter.from_plan(plan)
        for start in range(0, len(keys), step):
            f.add_many(keys[start : start + step], threads=threads)
        assert f == one_by_one, (step, threads)
    f._check()
    assert f.contains_many(keys).all()
    again = BalancedBloomFilter.from_bytes(f.to_bytes())
    assert again == f
    assert again.plan == plan
    assert again.plan.thresholds[-1] <= 512


def test_a_fill_filter_with_a_last_level_that_is_never_full_is_as_it_was() -> None:
    """The core of older files: the last level takes all that comes."""
    old = plan_levels(2000, policy="fill", hashes=10, blocks=(50, 5), thresholds=(266,))
    new = plan_levels(2000, policy="fill", hashes=10, blocks=(50, 5), thresholds=(266, 266))
    assert old.core[-1] == 513
    assert old.overfilled_fpr > 5 * new.overfilled_fpr
    filters = [BalancedBloomFilter.from_plan(plan) for plan in (old, new)]
    for f in filters:
        f.add_many(range(4000))
        assert f.contains_many(range(4000)).all()
    emptiest = [int(f._histograms()[1][:, 1].min()) for f in filters]  # of the last level's blocks
    assert emptiest[0] > 500 > emptiest[1]
    with pytest.raises(ValueError, match="their plans differ"):
        filters[0] |= filters[1]
