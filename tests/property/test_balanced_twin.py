"""The balanced filter against its readable twin: after every step the same bytes, and no key lost.

Here the order of the keys leaves a trace, in loads, in the list, in what is spilled: so the bytes after
each step say that single adds, batches, kernels and threads all keep to it. Filters are tiny and everything
overflows; keys repeat within a batch and between batches.
"""

from __future__ import annotations

import copy
import functools
import pickle
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sizes import size

import evenbins
from evenbins.study.levels import plan_levels
from reference import ReferenceBalanced
from reference import format as file_format

Digests = npt.NDArray[np.uint64]

POLICIES = {"single": 1, "sequential": 2, "multilevel": 3, "fill": 4, "two-choice": 5}
SPILLS = {"least": 0, "random": 1}
EDGES = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]


@dataclass(frozen=True)
class Shape:
    """A balanced filter, by the arguments of `plan_levels`."""

    policy: str
    blocks: tuple[int, ...]
    thresholds: tuple[int, ...]
    block_bits: int = 256
    hashes: int = 5
    choices: int = 0  # of sequential; the others have as many as they must
    coin: int = 0  # of 2**32
    overflow_limit: int = 0
    spill: str = "least"
    budget: int = 0
    seed: int = 0

    def core(self) -> tuple[int, ...]:
        """Write the integer core by the specification."""
        choices = {"sequential": self.choices, "two-choice": 2}.get(self.policy, len(self.blocks))
        tables = (word for table in zip(self.blocks, self.thresholds, strict=True) for word in table)
        return (
            POLICIES[self.policy], self.block_bits, self.hashes, choices, self.coin,
            self.overflow_limit, SPILLS[self.spill], self.budget, *tables,
        )  # fmt: skip

    def twin(self) -> ReferenceBalanced:
        return ReferenceBalanced(self.core(), self.seed)


@functools.cache
def plan_of(shape: Shape) -> Any:
    """Plan the filter. The one place that knows how; predicting takes longer than all else here."""
    arguments: dict[str, Any] = {"choices": shape.choices} if shape.choices else {}
    if shape.policy in ("single", "sequential", "multilevel"):
        arguments |= {"coin": shape.coin / 2**32, "overflow_limit": shape.overflow_limit}
        arguments |= {"spill": shape.spill, "budget": shape.budget}
    return plan_levels(
        100,
        policy=shape.policy,
        block_bits=shape.block_bits,
        hashes=shape.hashes,
        blocks=shape.blocks,
        thresholds=shape.thresholds,
        seed=shape.seed,
        **arguments,
    )


def make(shape: Shape) -> Any:
    """Make the compiled filter, under the kernel in force."""
    made = evenbins.BalancedBloomFilter.from_plan(plan_of(shape))
    assert made.plan.core == shape.core()
    return made


HALF = 2**31
SHAPES = {
    "single": Shape("single", (5,), (3,), coin=HALF, overflow_limit=20),
    "single-no-list": Shape("single", (6,), (2,), 512, hashes=17, coin=2**32),
    "sequential": Shape("sequential", (9,), (3,), choices=3, coin=HALF, overflow_limit=12, seed=7),
    "sequential-no-list": Shape("sequential", (9,), (2,), choices=8, coin=HALF, spill="random"),
    "sequential-one-block": Shape("sequential", (1,), (5,), 512, choices=2, overflow_limit=3),
    "budget": Shape("sequential", (9,), (4,), choices=3, coin=HALF, overflow_limit=400, budget=20),
    "budget-small-list": Shape("sequential", (9,), (4,), choices=3, coin=HALF, overflow_limit=5, budget=20),
    "budget-random": Shape(
        "sequential", (9,), (4,), 512, choices=3, overflow_limit=5, spill="random", budget=9
    ),
    "multilevel": Shape("multilevel", (8, 4, 1), (4, 3, 2), coin=HALF, overflow_limit=30),
    "multilevel-long-list": Shape("multilevel", (8, 4, 1), (4, 3, 2), coin=HALF, overflow_limit=2000),
    "multilevel-no-list": Shape("multilevel", (7, 3), (4, 3), 512, hashes=9, coin=2**30),
    "multilevel-random": Shape("multilevel", (7, 3), (4, 3), coin=2**30, overflow_limit=4, spill="random"),
    "multilevel-thresholds-0": Shape("multilevel", (3,) * 8, (0,) * 8, coin=HALF, overflow_limit=10),
    "multilevel-coin-0": Shape("multilevel", (8, 3), (7, 6), hashes=32, overflow_limit=1),
    "fill": Shape("fill", (7, 3, 1), (60, 90, 257)),
    "fill-512": Shape("fill", (5, 2), (120, 513), 512, hashes=16),
    "fill-one-table": Shape("fill", (5,), (257,), hashes=1),
    "fill-spilling": Shape("fill", (7, 3, 1), (60, 90, 70)),
    "fill-spilling-512": Shape("fill", (60, 20), (120, 110), 512, hashes=16),
    "two-choice": Shape("two-choice", (9,), (0,)),
    "two-choice-512": Shape("two-choice", (5,), (0,), 512, hashes=20),
    "two-choice-one-block": Shape("two-choice", (1,), (0,), hashes=3),
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def draw_digests(count: int, seed: int, pool: int = 2**62) -> Digests:
    """Digests of a pool, so that they repeat; edges of the range among them."""
    rng = np.random.default_rng(seed)
    known = np.random.default_rng(pool).integers(0, 2**64, min(pool, 20_000), np.uint64, endpoint=False)
    known[: len(EDGES)] = np.array(EDGES, np.uint64)[: len(known)]
    return rng.choice(known, count)


def bytes_of(f: Any) -> bytes:
    return bytes(memoryview(f))


def add_all(twin: ReferenceBalanced, digests: Digests) -> None:
    for digest in digests.tolist():
        twin.add_digest(digest)


class BalancedMachine(RuleBasedStateMachine):
    """A balanced filter, its twin and the set of the digests."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        super().__init__()
        self.shape = shape
        self.path = folder / "filter"
        self.filter = make(shape)
        self.twin = shape.twin()
        self.known: set[int] = set()

    def expect(self, digests: Digests) -> None:
        """Tell the twin and the set what went in."""
        add_all(self.twin, digests)
        self.known.update(digests.tolist())

    @rule(key=st.one_of(st.integers(-3, 30), st.text("ab", max_size=2)))
    def add_key(self, key: Any) -> None:
        self.filter.add(key)
        self.expect(np.array([evenbins.digest(key, self.shape.seed)], np.uint64))
        assert key in self.filter

    @rule(digest=st.one_of(st.sampled_from(EDGES), st.integers(0, 2**64 - 1)))
    def add_one_digest(self, digest: int) -> None:
        one = np.array([digest], np.uint64)
        self.filter.add_many(one, digests=True)
        self.expect(one)

    @rule(
        count=st.one_of(st.integers(0, 20), st.integers(0, 80)),
        seed=st.integers(0, 9),
        pool=st.sampled_from([5, 30, 1000]),
        threads=st.integers(1, 3),
    )
    def add_many(self, count: int, seed: int, pool: int, threads: int) -> None:
        digests = draw_digests(count, seed, pool)
        self.filter.add_many(digests, digests=True, threads=threads)
        self.expect(digests)

    @rule(seed=st.integers(0, 99), threads=st.integers(1, 3))
    def contains(self, seed: int, threads: int) -> None:
        probes = np.concatenate([draw_digests(40, seed), draw_digests(20, seed, 1000)])
        expected = [self.twin.contains_digest(digest) for digest in probes.tolist()]
        assert self.filter.contains_many(probes, digests=True, threads=threads).tolist() == expected

    @rule(count=st.integers(0, 60), seed=st.integers(0, 9), swap=st.booleans())
    def merge(self, count: int, seed: int, swap: bool) -> None:
        digests = draw_digests(count, seed, 1000)
        other, twin = make(self.shape), self.shape.twin()
        other.add_many(digests, digests=True)
        add_all(twin, digests)
        if swap:
            self.filter, other = other, self.filter
        before = bytes_of(other)
        self.filter |= other
        assert bytes_of(other) == before
        self.twin.merge(twin)
        self.known.update(digests.tolist())

    @rule()
    def merge_with_itself(self) -> None:
        self.filter |= self.filter.copy()
        self.twin.merge(self.twin)

    @rule(
        duplicate=st.sampled_from(
            [lambda f: f.copy(), copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))]
        )
    )
    def copy(self, duplicate: Any) -> None:
        old, self.filter = self.filter, duplicate(self.filter)
        assert old == self.filter
        old.add("only in the old one")
        old.clear()

    @rule(any_kind=st.booleans(), load=st.booleans())
    def save_and_back(self, any_kind: bool, load: bool) -> None:
        self.filter.save(self.path)
        assert file_format.unpack(self.path.read_bytes()).payload == self.twin.payload()
        where: Any = evenbins if any_kind else evenbins.BalancedBloomFilter
        self.filter = where.load(self.path) if load else where.open(self.path, verify=True).copy()

    @rule()
    def clear(self) -> None:
        self.filter.clear()
        self.twin = self.shape.twin()
        self.known.clear()

    @invariant()
    def the_bytes_are_those_of_the_twin(self) -> None:
        assert bytes_of(self.filter) == self.twin.payload()
        self.filter._check()

    @invariant()
    def nothing_is_lost(self) -> None:
        known = np.array(sorted(self.known), np.uint64)
        assert self.filter.contains_many(known, digests=True).all()

    @invariant()
    def it_is_still_the_same_filter(self) -> None:
        assert self.filter.plan.core == self.shape.core()
        assert self.filter.seed == self.shape.seed


@each_shape
def test_a_balanced_filter_and_its_twin_stay_the_same(kernel: str, shape: Shape) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_state_machine_as_test(
            lambda: BalancedMachine(shape, Path(folder)),
            settings=settings(max_examples=size(2, 8), stateful_step_count=20),
        )


# --- examples --------------------------------------------------------------------------------------------

BATCHES = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 127, 129, 255, 257]


@functools.cache
def twin_of(shape: Shape, count: int, seed: int, pool: int) -> ReferenceBalanced:
    """The twin with its keys, made once for all kernels and threads; not to be changed."""
    twin = shape.twin()
    add_all(twin, draw_digests(count, seed, pool))
    return twin


@each_shape
def test_batches_of_many_sizes(kernel: str, shape: Shape) -> None:
    """One after the other; then the answers, in all sizes too."""
    f, twin = make(shape), shape.twin()
    rest = draw_digests(sum(BATCHES), 3, 300)
    for n in BATCHES:
        f.add_many(rest[:n], digests=True)
        add_all(twin, rest[:n])
        rest = rest[n:]
        assert bytes_of(f) == twin.payload()
    probes = draw_digests(400, 4)
    expected = [twin.contains_digest(digest) for digest in probes.tolist()]
    for n in [*BATCHES, len(probes)]:
        assert f.contains_many(probes[:n], digests=True).tolist() == expected[:n]


@each_shape
def test_one_by_one_is_in_bulk(kernel: str, shape: Shape) -> None:
    """Integer keys by `add`, and by a bulk call: the same bytes, the twin's."""
    single, bulk, twin = make(shape), make(shape), shape.twin()
    keys = [*range(150), *range(0, 150, 3), -1]
    for key in keys:
        single.add(key)
        twin.add(key)
    bulk.add_many(keys)
    assert bytes_of(single) == bytes_of(bulk) == twin.payload()
    assert single == bulk
    assert all(key in single for key in keys)
    assert [key in single for key in range(1000, 1300)] == [twin.contains(key) for key in range(1000, 1300)]


@each_shape
@pytest.mark.parametrize(
    ("threads", "pool"),
    [
        (1, 300),
        (2, 3000),
        *(pytest.param(*pair, marks=pytest.mark.long) for pair in ((3, 300), (1, 3000), (2, 300), (3, 3000))),
    ],
)
def test_more_keys_than_a_batch(kernel: str, shape: Shape, threads: int, pool: int) -> None:
    """6000 keys: several internal batches; far more than the filters are made for."""
    digests = draw_digests(6000, 5, pool)
    f, twin = make(shape), twin_of(shape, 6000, 5, pool)
    f.add_many(digests, digests=True, threads=threads)
    assert bytes_of(f) == twin.payload()
    assert f.contains_many(digests, digests=True, threads=threads).all()


LARGE = {
    "single": Shape("single", (400,), (16,), coin=HALF, overflow_limit=3000),
    "sequential": Shape("sequential", (350,), (16,), choices=3, coin=HALF, overflow_limit=400, budget=7000),
    "multilevel": Shape("multilevel", (300, 80, 20), (12, 12, 12), coin=HALF, overflow_limit=2000),
    "multilevel-spills": Shape("multilevel", (300, 80, 20), (12, 12, 12), coin=HALF, overflow_limit=100),
    "fill": Shape("fill", (300, 80, 20), (60, 60, 257)),
    "two-choice": Shape("two-choice", (400,), (0,)),
}


@pytest.mark.parametrize("shape", LARGE.values(), ids=LARGE.keys())
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_blocks_for_several_threads(kernel: str, shape: Shape, threads: int) -> None:
    """Hundreds of blocks, some 6600 keys in 12000 digests: each thread has blocks enough of its own."""
    digests = np.concatenate([first := draw_digests(8000, 6, 2**40), first[::2]])
    f = make(shape)
    f.add_many(digests, digests=True, threads=threads)
    twin = twin_of(shape, 8000, 6, 2**40)  # the repeated ones change nothing
    assert bytes_of(f) == twin.payload()
    probes = draw_digests(2000, 7, 2**41)
    expected = [twin.contains_digest(digest) for digest in probes.tolist()]
    assert f.contains_many(probes, digests=True, threads=threads).tolist() == expected


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("block_bits", [256, 512])
def test_every_number_of_hashes(kernel: str, name: str, block_bits: int) -> None:
    """A few keys in each of 1 .. 32 hashes; in a short run the policies share the numbers out."""
    shape = SHAPES[name]
    for hashes in range(1 + (list(POLICIES).index(name) + block_bits // 512) % size(3, 1), 33, size(3, 1)):
        changes: dict[str, Any] = {"hashes": hashes, "block_bits": block_bits}
        if shape.policy == "fill":
            changes["thresholds"] = (*(4 * hashes for _ in shape.blocks[1:]), block_bits + 1)
        changed = Shape(**{**shape.__dict__, **changes})
        f, twin = make(changed), changed.twin()
        digests = draw_digests(60, hashes, 50)
        f.add_many(digests, digests=True)
        add_all(twin, digests)
        assert bytes_of(f) == twin.payload()


@settings(max_examples=size(25, 60))
@given(
    thresholds=st.lists(st.sampled_from([0, 1, 2, 3, 6, 7, 14, 15, 254, 255, 65534]), min_size=1, max_size=8),
    blocks=st.lists(st.integers(1, 6), min_size=8, max_size=8),
    block_bits=st.sampled_from([256, 512]),
    coin=st.sampled_from([0, 1, 2**30, HALF, 2**32 - 1, 2**32]),
    overflow_limit=st.integers(0, 30),
    spill=st.sampled_from(["least", "random"]),
    seed=st.integers(0, 2**64 - 1),
    count=st.integers(0, 120),
)  # fmt: skip
def test_a_multilevel_filter_of_any_shape(
    thresholds: list[int], blocks: list[int], block_bits: int, coin: int, overflow_limit: int, spill: str,
    seed: int, count: int,
) -> None:  # fmt: skip
    shape = Shape(
        "multilevel", tuple(blocks[: len(thresholds)]), tuple(thresholds), block_bits,
        coin=coin, overflow_limit=overflow_limit, spill=spill, seed=seed,
    )  # fmt: skip
    f, twin = make(shape), shape.twin()
    digests = draw_digests(count, seed % 2**32, 100)
    f.add_many(digests, digests=True)
    add_all(twin, digests)
    assert bytes_of(f) == twin.payload()


@settings(max_examples=size(25, 60))
@given(
    choices=st.integers(1, 8), blocks=st.integers(1, 9), threshold=st.integers(0, 5),
    coin=st.integers(0, 2**32), overflow_limit=st.integers(1, 30), budget=st.integers(0, 60),
    spill=st.sampled_from(["least", "random"]), count=st.integers(0, 120), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_sequential_filter_of_any_budget(
    choices: int, blocks: int, threshold: int, coin: int, overflow_limit: int, budget: int, spill: str,
    count: int, seed: int,
) -> None:  # fmt: skip
    shape = Shape(
        "sequential", (blocks,), (threshold,), choices=choices, coin=coin,
        overflow_limit=overflow_limit, budget=budget, spill=spill,
    )  # fmt: skip
    f, twin = make(shape), shape.twin()
    digests = draw_digests(count, seed, 100)
    f.add_many(digests, digests=True)
    add_all(twin, digests)
    assert bytes_of(f) == twin.payload()
    assert f.contains_many(digests, digests=True).all()


@each_shape
def test_merges_in_both_directions(kernel: str, shape: Shape) -> None:
    """Full lists, saturated loads, spent budgets on both sides."""
    left, right = draw_digests(150, 8, 1000), draw_digests(150, 9, 1000)
    a, b, twin, other = make(shape), make(shape), shape.twin(), shape.twin()
    a.add_many(left, digests=True)
    b.add_many(right, digests=True)
    add_all(twin, left)
    add_all(other, right)
    twin.merge(other)
    assert bytes_of(a | b) == bytes_of(b | a) == twin.payload()
    merged = a | b
    assert merged.contains_many(np.concatenate([left, right]), digests=True).all()
    merged.add_many(right[::-1].copy(), digests=True)
    assert bytes_of(merged) == twin.payload()
