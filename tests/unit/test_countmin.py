"""The count-min sketch: plans, keys and weights, limits, merging, files, threads, heavy hitters."""

from __future__ import annotations

import copy
import json
import math
import pickle
import runpy
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import evenbins
from evenbins import BloomFilter, CountMinSketch, FormatError, HeavyHitters, SketchPlan, _core
from evenbins.sketches import plan_countmin
from evenbins.sketches.countmin import plan_of_sketch_core
from evenbins.theory import sketch
from reference import ReferenceCountMin
from reference import format as reference_format

MOST = 2**64 - 1
SHAPES: dict[str, dict[str, Any]] = {
    "classic": {},
    "two-hash": {"construction": "two-hash"},
    "copies": {"construction": "two-hash", "delta": 1e-4},
    "conservative": {"conservative": True},
    "two-hash-conservative": {"construction": "two-hash", "conservative": True},
}
MERGING = [name for name in SHAPES if "conservative" not in name]


def make(name: str, **changes: Any) -> CountMinSketch:
    return CountMinSketch(**{"epsilon": 0.01, "delta": 0.01, "seed": 11, **SHAPES[name], **changes})


@pytest.fixture(params=SHAPES)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


# --- plans ---------------------------------------------


@pytest.mark.parametrize("epsilon", [0.9, 0.5, 0.1, 0.037, 1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("delta", [0.5, 0.1, 1e-2, 1e-3, 1e-6, 1e-9])
def test_plans_are_the_formulas_and_keep_the_promise(epsilon: float, delta: float) -> None:
    classic = plan_countmin(epsilon, delta)
    assert (classic.width, classic.depth) == (math.ceil(math.e / epsilon), math.ceil(math.log(1 / delta)))
    assert classic.copies == 1
    assert classic.failure == (1 / (epsilon * classic.width)) ** classic.depth <= delta
    two = plan_countmin(epsilon, delta, construction="two-hash")
    assert two.width >= 2 * math.e / epsilon
    assert sketch.is_prime(two.width)
    assert not any(sketch.is_prime(n) for n in range(math.ceil(2 * math.e / epsilon), two.width))
    assert two.depth == math.ceil(math.log(1 / (epsilon * (1 - 1 / (2 * math.e**2)))))
    assert two.copies - math.log(delta) / math.log(epsilon) < 1 + 1e-9
    assert two.failure <= delta
    assert two.hashes == 2 * two.copies
    for plan in (classic, two):
        assert plan.nbytes == 8 * (plan.width * plan.depth * plan.copies + 2)
        assert plan_of_sketch_core(plan.core, seed=plan.seed) == plan
        assert plan.error_bound(1000) == 1000 * epsilon


def test_primes_are_those_of_a_sieve() -> None:
    sieve = np.ones(20_000, bool)
    sieve[:2] = False
    for n in range(2, 142):
        if sieve[n]:
            sieve[n * n :: n] = False
    assert [sketch.is_prime(n) for n in range(20_000)] == sieve.tolist()
    assert sketch.is_prime(2**61 - 1)
    assert not sketch.is_prime((2**31 - 1) * (2**19 - 1))
    assert not sketch.is_prime(3_215_031_751)  # a strong pseudoprime to 2, 3, 5, 7


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"epsilon": 0}, ValueError, "epsilon must be a number between 0 and 1"),
        ({"epsilon": 1.0}, ValueError, "epsilon"),
        ({"epsilon": math.nan}, ValueError, "epsilon"),
        ({"epsilon": "0.1"}, TypeError, "epsilon"),
        ({"epsilon": 1e-9, "delta": 1e-11}, ValueError, r"delta must be at least 2\*\*-63/epsilon"),
        ({"epsilon": 1e-10, "delta": 0.5}, ValueError, "epsilon must be at least"),
        ({"delta": True}, TypeError, "delta"),
        ({"delta": 2}, ValueError, "delta"),
        ({"delta": 1e-30}, ValueError, "64-bit digests"),
        ({"construction": "three-hash"}, ValueError, '"two-hash" or "classic"'),
        ({"construction": 2}, TypeError, "construction"),
        ({"epsilon": 0.999, "construction": "two-hash"}, ValueError, "at most 1024 rows"),
        ({"conservative": 1}, TypeError, "conservative"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        CountMinSketch(**arguments)


def test_cores_are_checked() -> None:
    good = plan_countmin(0.01, 0.01, construction="two-hash").core
    for i, value in [(0, 3), (1, 544), (1, 0), (2, 0), (2, 1), (3, 0), (4, 2), (5, 0), (6, 2**63)]:
        core = [*good[:i], value, *good[i + 1 :]]
        with pytest.raises(ValueError, match=r"core|epsilon|delta"):
            plan_of_sketch_core(core, seed=0)
    with pytest.raises(ValueError, match="core"):
        plan_of_sketch_core(good[:-1], seed=0)
    with pytest.raises(TypeError, match="core"):
        plan_of_sketch_core("core", seed=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="copies"):
        plan_of_sketch_core([2, 272, 5, 2, *good[4:]], seed=0)


def test_a_plan_and_statistics_show_themselves() -> None:
    s = make("two-hash")
    s.add_many(range(1000))
    for shown in (s.plan, s.stats()):
        assert repr(shown).startswith(type(shown).__name__)
        assert "nbytes" in str(shown)
        assert "<table>" in shown._repr_html_()
        json.dumps(shown.to_dict())
        with pytest.raises(AttributeError):
            shown.failure = 0  # type: ignore[misc]
    assert "<table>" in s._repr_html_()
    assert "11" not in repr(s)
    assert "total=1_000" in repr(s)
    assert CountMinSketch.from_plan(s.plan).plan == s.plan
    with pytest.raises(TypeError, match="SketchPlan"):
        CountMinSketch.from_plan(3)  # type: ignore[arg-type]
    assert s.plan != plan_countmin(0.01, 0.02, construction="two-hash", seed=11)
    assert isinstance(s.plan, SketchPlan)


def test_statistics_are_those_of_the_counters(name: str) -> None:
    s = make(name)
    twin = ReferenceCountMin(s.plan.core, s.seed)
    for i in range(3000):
        s.add(i % 700, i % 5)
        twin.add(i % 700, i % 5)
    stats = s.stats()
    bound = s.plan.epsilon * twin.total
    assert (stats.total, stats.updates, stats.error_bound) == (6000, 2400, bound)
    counters = np.array(twin.rows)
    assert stats.fill == pytest.approx(np.count_nonzero(counters) / counters.size, rel=1e-12)
    assert stats.failure == pytest.approx(np.prod((counters > bound).mean(axis=1)), rel=1e-12)
    assert stats.failure <= s.plan.failure
    assert stats.nbytes == s.nbytes == s.plan.nbytes
    s._check()


# --- keys and weights ---------------------------------------------


def test_keys_are_those_of_filters(name: str, mixed_keys: list[Any]) -> None:
    s, one_by_one = make(name), make(name)
    s.add_many(mixed_keys)
    for key in mixed_keys:
        one_by_one.add(key)
    assert s == one_by_one
    assert s.count_many(mixed_keys).tolist() == [s.count(key) for key in mixed_keys]
    assert s.count_many(mixed_keys).min() >= 1
    for key, same in [("é", "é".encode()), (1, True), (7, np.uint8(7)), (b"b", bytearray(b"b"))]:
        assert s.count(key) == s.count(same)
    for bad in (1.5, None, [1], np.arange(3), s, 2**64):
        before = s.to_bytes()
        with pytest.raises((TypeError, ValueError), match="key"):
            s.add(bad)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError), match="key"):
            s.count(bad)  # type: ignore[arg-type]
        assert s.to_bytes() == before


def test_sources_of_keys_agree(name: str) -> None:
    numbers = np.random.default_rng(1).integers(-500, 500, 5000)
    wanted = make(name)
    wanted.add_many(numbers.tolist())
    for keys in (
        numbers, numbers.astype(">i2"), numbers[::-1][::-1], numbers.reshape(50, 100), iter(numbers.tolist()),
        pa.array(numbers), pa.chunked_array([numbers[:7], numbers[7:]]), pl.Series(numbers),
        pd.Series(numbers),
    ):  # fmt: skip
        s = make(name)
        s.add_many(keys)
        assert s == wanted
    s = make(name)
    s.add_many(evenbins.digest_many(numbers, seed=11), digests=True)
    assert s == wanted
    s = make(name)
    s.update(numbers[:10], numbers[10:].tolist())
    assert s == wanted
    assert s.count_many(numbers.reshape(50, 100)).shape == (50, 100)
    assert s.count_many([]).dtype == np.uint64
    for one in ("abc", b"abc"):
        with pytest.raises(TypeError, match="many keys"):
            s.add_many(one)


def test_every_kernel_leaves_the_same_bytes(name: str, kernel: str) -> None:
    s = make(name)
    s.add_many(np.arange(3000, dtype=np.uint64))
    twin = ReferenceCountMin(s.plan.core, s.seed)
    for key in range(3000):
        twin.add(key)
    assert s.to_bytes().endswith(twin.payload())


def test_forms_of_weights_agree(name: str) -> None:
    rng = np.random.default_rng(2)
    keys, weights = rng.integers(0, 300, 4000), rng.integers(0, 9, 4000)
    wanted = make(name)
    for key, weight in zip(keys.tolist(), weights.tolist(), strict=True):
        wanted.add(key, weight)
    for form in (
        weights, weights.astype("u1"), weights.astype(">i4"), weights.tolist(), tuple(weights.tolist()),
        iter(weights.tolist()), weights.astype(object), pa.array(weights), pl.Series(weights),
        pd.Series(weights), np.repeat(weights, 2)[::2], pa.chunked_array([weights[:5], weights[5:]]),
    ):  # fmt: skip
        s = make(name)
        s.add_many(keys, form)
        assert s == wanted
    s = make(name)
    s.add_many(keys.reshape(40, 100), weights.reshape(40, 100))
    assert s == wanted
    s = make(name)
    s.add_many(iter(keys.tolist()), weights)
    assert s == wanted
    assert s.total == weights.sum()
    assert s.stats().updates == np.count_nonzero(weights)


@pytest.mark.parametrize("seven", [7, np.int64(7), np.array(7)])
def test_one_weight_for_all(name: str, seven: Any) -> None:
    s, wanted = make(name), make(name)
    s.add_many(range(2000), seven)
    for key in range(2000):
        wanted.add(key, 7)
    assert s == wanted
    s.add_many(range(2000), weights=0)
    s.add("key", 0)
    assert s == wanted


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (-1, ValueError, "weights must be integers from 0"),
        ([1, 2, -3], ValueError, r"weights\[2\].*got -3"),
        (np.array([1, -2, 3]), ValueError, r"negative; weights\[1\] is -2"),
        ([1, 2, 2**64], ValueError, r"weights\[2\]"),
        (np.array([1.0, 2.0, 3.0]), TypeError, "float64"),
        (pa.array([1, None, 3]), TypeError, "missing values"),
        ([1, 2.0, 3], TypeError, r"weights\[1\]"),
        ([1, True, 3], TypeError, r"weights\[1\]"),
        (np.ones(3, bool), TypeError, "bool"),
        (np.ma.array([1, 2, 3], mask=[0, 1, 0]), TypeError, "masked"),
        ("123", TypeError, "weights"),
        (True, TypeError, "weights"),
        (2.5, TypeError, "weights"),
        ([1, 2], ValueError, "2 weights for 3 keys"),
        ([1, 2, 3, 4], ValueError, "4 weights for 3 keys"),
    ],
)
def test_wrong_weights_are_refused_before_anything_happens(
    weights: Any, error: type[Exception], message: str
) -> None:
    s = make("classic")
    h = HeavyHitters(3)
    for target in (s, h):
        with pytest.raises(error, match=message):
            target.add_many(["a", "b", "c"], weights)  # type: ignore[attr-defined]
    assert s.total == h.total == 0
    with pytest.raises(ValueError, match="shape"):
        s.add_many(np.ones((2, 3), int), np.ones((3, 2), int))


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        (-1, ValueError, "negative; got -1"),
        (-(2**80), ValueError, "negative"),
        (2**64, OverflowError, "2.*64"),
        (1.0, TypeError, "weight"),
        (True, TypeError, "weight"),
        (None, TypeError, "weight"),
        ("1", TypeError, "weight"),
    ],
)
def test_a_wrong_weight_is_refused(weight: Any, error: type[Exception], message: str) -> None:
    s = make("classic")
    for target in (s, HeavyHitters(3)):
        with pytest.raises(error, match=message):
            target.add("a", weight)  # type: ignore[attr-defined]
    assert s == make("classic")


def test_lengths_that_nobody_knew_are_compared_on_the_way(name: str) -> None:
    s = make(name)
    with pytest.raises(ValueError, match=r"keys\[2000\]: weights must be as many"):
        s.add_many(iter(range(3000)), np.ones(2000, int))
    assert s.total == 2000
    s = make(name)
    with pytest.raises(ValueError, match="4000 weights for 3000 keys"):
        s.add_many(iter(range(3000)), np.ones(4000, int))
    assert s.total == 3000
    s = make(name)
    with pytest.raises(ValueError, match=r"keys\[0\]"):
        s.add_many(iter([1]), [])


def test_a_bad_key_leaves_those_before_it(name: str) -> None:
    for keys in ([*range(1500), None, 3], pa.array([*range(1500), None, 3]), [*range(1500), 2.5]):
        s, wanted = make(name), make(name)
        wanted.add_many(range(1500))
        with pytest.raises((TypeError, ValueError), match=r"keys\[1500\]"):
            s.add_many(keys)
        assert s == wanted

    def failing() -> Iterator[int]:
        yield from range(1500)
        raise LookupError("gone")

    s = make(name)
    with pytest.raises(LookupError, match="gone"):
        s.add_many(failing())
    assert s == wanted


# --- the end of the counters ---------------------------------------------


def test_an_addition_that_would_overflow_changes_nothing(name: str) -> None:
    s = make(name)
    s.add("a", MOST - 2)
    s.add("b", 2)
    assert s.total == MOST
    assert s.count("a") >= MOST - 2
    before = s.to_bytes()
    for key in ("a", "b", "c"):
        with pytest.raises(OverflowError, match="not added"):
            s.add(key)
        s.add(key, 0)
    with pytest.raises(OverflowError, match=r"keys\[0\]"):
        s.add_many(["a"])
    assert s.to_bytes() == before
    s._check()
    assert CountMinSketch.from_bytes(before) == s


@pytest.mark.parametrize("form", [list, np.array, iter, pa.array])
def test_in_bulk_the_keys_before_an_overflow_are_in(name: str, form: Any) -> None:
    weights = np.full(5000, 2**52, np.uint64)
    s, wanted = make(name), make(name)
    with pytest.raises(OverflowError, match=r"keys\[4095\].*2\*\*64 - 1.*before it have been added"):
        s.add_many(form(list(range(5000))) if form is not iter else iter(range(5000)), weights + 1)
    wanted.add_many(range(4095), weights[:4095] + 1)
    assert s == wanted
    s = make(name)
    s.add("first", MOST - 1234)
    with pytest.raises(OverflowError, match=r"keys\[1234\]"):
        s.add_many(form(list(range(5000))) if form is not iter else iter(range(5000)))
    assert s.total == MOST
    s._check()


@pytest.mark.parametrize("name", MERGING)
def test_a_merge_that_would_overflow_changes_nothing(name: str) -> None:
    s, t = make(name), make(name)
    s.add("a", 2**63)
    t.add("b", 2**63)
    before = s.to_bytes()
    with pytest.raises(OverflowError, match="nothing was changed"):
        s |= t
    with pytest.raises(OverflowError, match="nothing was changed"):
        s |= s
    assert s.to_bytes() == before


# --- the sketch as a whole ---------------------------------------------


@pytest.mark.parametrize("name", MERGING)
def test_a_merge_is_the_sketch_of_both_streams(name: str) -> None:
    a, b, both = make(name), make(name), make(name)
    a.add_many(range(2000), 3)
    b.add_many(range(1000, 5000))
    both.add_many(range(2000), 3)
    both.add_many(range(1000, 5000))
    assert a | b == both == b | a
    kept = a
    a |= b
    assert a is kept
    assert a == both
    a |= a
    assert a.count(7) == 2 * both.count(7)
    assert a.total == 2 * both.total
    a._check()


def test_what_does_not_fit_is_not_merged() -> None:
    s = make("classic")
    others = [
        make("classic", seed=12),
        make("classic", epsilon=0.02),
        make("classic", delta=0.02),
        make("two-hash"),
    ]
    others.append(make("classic", delta=0.0101))  # the same counters, another promise
    for other in others:
        for call in (lambda t: s | t, s.inner_product):
            with pytest.raises(ValueError, match=r"cannot .*(seeds|parameters)"):
                call(other)
        assert s != other
    with pytest.raises(TypeError):
        s |= BloomFilter(10)  # type: ignore[misc]
    with pytest.raises(TypeError):
        s | np.arange(3)  # type: ignore[operator]
    with pytest.raises(TypeError, match="CountMinSketch"):
        s.inner_product(3)  # type: ignore[arg-type]
    c = make("conservative")
    with pytest.raises(ValueError, match="cannot merge: conservative"):
        c |= make("conservative")
    with pytest.raises(ValueError, match=r"cannot take the inner product.*conservative=False"):
        c.inner_product(c)


@pytest.mark.parametrize("name", MERGING)
def test_inner_products_bound_the_truth(name: str) -> None:
    rng = np.random.default_rng(3)
    s, t = make(name), make(name)
    a, b = rng.zipf(1.3, 3000) % 1000, rng.zipf(1.3, 2000) % 1000
    s.add_many(a)
    t.add_many(b)
    twins = [ReferenceCountMin(s.plan.core, s.seed) for _ in "st"]
    for twin, keys in zip(twins, (a, b), strict=True):
        for key in keys.tolist():
            twin.add(key)
    counts = Counter(b.tolist())
    truth = sum(n * counts[key] for key, n in Counter(a.tolist()).items())
    assert s.inner_product(t) == t.inner_product(s) == twins[0].inner_product(twins[1])
    assert truth <= s.inner_product(t) <= truth + s.plan.epsilon * s.total * t.total
    huge = make(name)
    huge.add("key", MOST)
    assert huge.inner_product(huge) == MOST**2


def test_copies_are_independent_and_clear_forgets(name: str) -> None:
    s = make(name)
    s.add_many(range(100))
    twins = [s.copy(), copy.copy(s), copy.deepcopy(s), pickle.loads(pickle.dumps(s))]
    assert all(each == s and each.plan == s.plan for each in twins)
    s.add("more")
    assert all(each != s for each in twins)
    s.clear()
    assert s == make(name)
    assert s.stats().fill == 0
    assert s != "sketch"
    with pytest.raises(TypeError, match="unhashable"):
        hash(s)


def test_subclasses_keep_their_attributes() -> None:
    s = Named(0.01, 0.01)
    s.label = ["x"]
    for twin in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s), s.copy()):
        assert type(twin) is Named
        assert twin.label == ["x"]


class Named(CountMinSketch):
    label: list[str]


def test_an_object_without_init_is_no_crash() -> None:
    empty = CountMinSketch.__new__(CountMinSketch)
    for call in (lambda: empty.add("a"), lambda: empty.count("a"), lambda: empty.total, empty.to_bytes):
        with pytest.warns(RuntimeWarning, match="uninitialized"), pytest.raises(TypeError):
            call()


# --- files ---------------------------------------------


def test_files_keep_everything(name: str, tmp_path: Path) -> None:
    s = make(name)
    s.add_many(range(5000), 2)
    s.save(tmp_path / "s")
    assert (tmp_path / "s").read_bytes() == s.to_bytes()
    for read in (
        CountMinSketch.load,
        CountMinSketch.open,
        lambda path: CountMinSketch.open(path, verify=True),
    ):
        again = read(tmp_path / "s")
        assert again == s
        assert again.plan == s.plan
        assert again.plan.to_dict() == s.plan.to_dict()
        again._check()
    mapped = CountMinSketch.open(tmp_path / "s")
    assert "read-only" in repr(mapped)
    for change in (
        lambda: mapped.add("a"), lambda: mapped.add_many(["a"]), mapped.clear, lambda: mapped.__ior__(s),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"read-only.*load\(\) or copy\(\)"):
            change()
    assert mapped.count_many(range(5000)).tolist() == s.count_many(range(5000)).tolist()
    writable = mapped.copy()
    writable.add("a")
    assert writable.total == mapped.total + 1


def test_the_reference_reads_the_same_file(name: str) -> None:
    s = make(name)
    s.add_many(range(50))
    parsed = reference_format.unpack(s.to_bytes())
    assert (parsed.kind, parsed.hashing, parsed.capacity, parsed.core) == (6, 1, 1, s.plan.core)
    twin = ReferenceCountMin.from_payload(parsed.core, parsed.seed, parsed.payload)
    assert (twin.total, twin.updates, twin.count(7)) == (50, 50, s.count(7))
    assert reference_format.pack(6, 1, s.seed, 1, parsed.core, twin.payload()) == s.to_bytes()


def test_other_kinds_of_files_are_told_apart(tmp_path: Path) -> None:
    make("classic").save(tmp_path / "sketch")
    BloomFilter(10).save(tmp_path / "filter")
    for read in (evenbins.load, evenbins.open):
        assert read(tmp_path / "sketch") == make("classic")
    with pytest.raises(FormatError, match="another kind"):
        BloomFilter.load(tmp_path / "sketch")
    with pytest.raises(FormatError, match="another kind"):
        CountMinSketch.load(tmp_path / "filter")


def small(conservative: bool = False) -> bytes:
    s = CountMinSketch(0.3, 0.3, conservative=conservative)
    s.add_many(["a", "b", "c"], [5, 6, 7])
    return s.to_bytes()


@pytest.mark.parametrize("conservative", [False, True])
def test_every_flipped_bit_and_every_cut_is_refused(conservative: bool) -> None:
    data = small(conservative)
    assert CountMinSketch.from_bytes(data).total == 18
    for byte in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[byte] ^= 1 << bit
            with pytest.raises(FormatError):
                CountMinSketch.from_bytes(bytes(damaged))
    for cut in (*range(len(data)), len(data) + 1):
        with pytest.raises(FormatError):
            CountMinSketch.from_bytes(data[:cut] if cut < len(data) else data + b"\0")


def rewritten(
    data: bytes, *, core: dict[int, int] | None = None, words: dict[int, int] | None = None
) -> bytes:
    """Change numbers of the core or of the payload; checksums and sizes are right."""
    fixed = list(reference_format.FIXED.unpack_from(data))
    count, offset = fixed[10], fixed[7]
    numbers = list(struct.unpack_from(f"<{count}Q", data, 72))
    payload = list(struct.unpack(f"<{(len(data) - offset) // 8}Q", data[offset:]))
    for i, value in (core or {}).items():
        numbers[i] = value
    for i, value in (words or {}).items():
        payload[i] = value
    body = struct.pack(f"<{len(payload)}Q", *payload)
    fixed[9] = reference_format.xxh3_64(body)
    header = reference_format.FIXED.pack(*fixed) + struct.pack(f"<{count}Q", *numbers)
    header = header.ljust(offset - 8, b"\0")
    return header + struct.pack("<Q", reference_format.xxh3_64(header)) + body


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": {-2: 19}}, "row 0 do not fit the total"),
        ({"words": {-1: 19}}, "more additions"),
        ({"words": {-1: 0}}, "without an addition"),
        ({"words": {12: 100}}, "row 1 do not fit"),
        ({"core": {0: 3}}, "construction must be 1 or 2"),
        ({"core": {1: 11}}, "size does not fit"),
        ({"core": {1: 2**60}}, "width"),
        ({"core": {2: 0}}, "rows"),
        ({"core": {2: 2**63, 3: 2}}, "rows"),
        ({"core": {2: 1, 3: 2}}, "one copy"),
        ({"core": {4: 2}}, "conservative"),
        ({"core": {5: 0}}, "epsilon"),
        ({"core": {6: 0x7FF8000000000000}}, "delta"),
        ({"core": {0: 1}}, "no possible sketch.*prime"),
        ({"core": {5: 0x3F00000000000000}}, "no possible sketch.*enough rows"),
    ],
)
def test_a_file_that_no_stream_leaves_is_refused(change: dict[str, Any], message: str) -> None:
    data = small()
    assert rewritten(data) == data
    damaged = rewritten(data, **change)
    with pytest.raises(FormatError, match=message):
        CountMinSketch.from_bytes(damaged)
    if "no possible sketch" not in message:
        with pytest.raises(ValueError, match=r"damaged|invalid core|disagrees"):
            reference_format.unpack(damaged)


def test_a_conservative_file_with_too_much_in_a_row_is_refused() -> None:
    data = small(conservative=True)
    for words in ({0: 100}, dict.fromkeys(range(10), 0)):
        with pytest.raises(FormatError, match="row 0"):
            CountMinSketch.from_bytes(rewritten(data, words=words))


def test_a_file_with_another_capacity_is_refused() -> None:
    data = bytearray(small())
    data[32] = 2
    header = bytes(data[:184])
    damaged = header + struct.pack("<Q", reference_format.xxh3_64(header)) + bytes(data[192:])
    with pytest.raises(FormatError, match="capacity"):
        CountMinSketch.from_bytes(damaged)
    with pytest.raises(ValueError, match="capacity"):
        reference_format.unpack(damaged)


# --- golden files ---------------------------------------------

GOLDEN = Path(__file__).parents[1] / "golden"
MAKER = runpy.run_path(str(GOLDEN / "make_golden.py"))


@pytest.mark.parametrize("golden", MAKER["SKETCHES"])
def test_golden_sketches_are_read_and_written_the_same(golden: str) -> None:
    data = (GOLDEN / f"{golden}.evenbins").read_bytes()
    s = CountMinSketch.from_bytes(data)
    keys = MAKER["KEYS"]
    assert (s.count_many(keys) >= np.arange(1, len(keys) + 1)).all()
    assert s.to_bytes() == data == MAKER["golden_sketch"](golden).to_bytes()
    one_by_one = MAKER["SKETCHES"][golden]()
    for weight, key in enumerate(keys, 1):
        one_by_one.add(key, weight)
    assert one_by_one == s
    twin = ReferenceCountMin(s.plan.core, s.seed)
    for weight, key in enumerate(keys, 1):
        twin.add(key, weight)
    assert reference_format.unpack(data).payload == twin.payload()


# --- threads ---------------------------------------------


@pytest.mark.parametrize("construction", ["classic", "two-hash"])
def test_threads_that_add_lose_nothing(construction: str) -> None:
    """Three threads, in bulk from arrays, in bulk from lists, and one by one; another one reads and saves."""
    s = CountMinSketch(1e-3, 1e-3, construction=construction)
    array = np.arange(400_000, dtype=np.uint64) % 1000
    items = (np.arange(100_000) % 1000).tolist()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            assert CountMinSketch.from_bytes(s.to_bytes()).total <= s.total
            s._check()

    def one_by_one() -> None:
        for key in items[:50_000]:
            s.add(key, 2)

    writers = [
        threading.Thread(target=lambda: s.add_many(array)),
        threading.Thread(target=lambda: s.add_many(items, 3)),
        threading.Thread(target=one_by_one),
    ]
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    wanted = CountMinSketch(1e-3, 1e-3, construction=construction)
    wanted.add_many(array)
    wanted.add_many(items, 3)
    wanted.add_many(items[:50_000], 2)
    assert s == wanted


def test_two_sketches_that_merge_each_other_do_not_wait_for_ever() -> None:
    a, b = make("classic"), make("classic")
    a.add("key")
    threads = [
        threading.Thread(target=lambda x=x, y=y: [x == y or x.inner_product(y) for _ in range(200)])
        for x, y in [(a, b), (b, a)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)
        assert not thread.is_alive()


# --- heavy hitters ---------------------------------------------


@pytest.fixture(scope="module")
def stream() -> np.ndarray[Any, Any]:
    return np.random.default_rng(4).zipf(1.2, 150_000) % 10_000


@pytest.mark.parametrize("conservative", [False, True])
@pytest.mark.parametrize("k", [1, 10, 300])
def test_heavy_hitters_are_those_of_a_counter(
    stream: np.ndarray[Any, Any], k: int, conservative: bool
) -> None:
    h = HeavyHitters(k, epsilon=1e-3, delta=1e-3, conservative=conservative, seed=5)
    h.add_many(stream)
    h._check()
    truth = Counter(stream.tolist())
    top = h.top()
    assert len(top) == k
    assert [n for _, n in top] == sorted((n for _, n in top), reverse=True)
    assert all(truth[key] <= estimate <= h.count(key) for key, estimate in top)
    found = {key for key, _ in top}
    least = top[-1][1]
    assert all(n <= least for key, n in truth.items() if key not in found)
    heavy = {key for key, n in truth.items() if n > (1 / k + 1e-3) * h.total}
    assert heavy <= found
    assert h.total == len(stream)
    assert h.sketch.total == len(stream)


def test_bulk_and_single_heavy_hitters_agree(stream: np.ndarray[Any, Any]) -> None:
    """Up to the choice among equal estimates in the last place: the estimates are the same."""
    stream = stream[:80_000]
    weights = np.arange(len(stream)) % 4
    bulk, array, single = (HeavyHitters(50, epsilon=0.01, delta=0.01, seed=6) for _ in range(3))
    bulk.add_many(stream.tolist(), weights)
    array.add_many(stream, weights)
    for key, weight in zip(stream.tolist(), weights.tolist(), strict=True):
        single.add(key, weight)
    for h in (bulk, array, single):
        h._check()
        assert [n for _, n in h.top()] == [n for _, n in single.top()]
        assert dict(h.top()[:40]) == dict(single.top()[:40])
        assert h.sketch == single.sketch


def test_heavy_hitters_take_keys_of_all_sorts() -> None:
    words = ["a", "b", "a", "c", "a", "b"]
    for keys in (words, np.array(words), pa.array(words), pl.Series(words), pd.Series(words), iter(words)):
        h = HeavyHitters(2)
        h.add_many(keys)
        assert h.top() == [("a", 3), ("b", 2)]
    h = HeavyHitters(10)
    h.add_many([b"x", bytearray(b"x"), "x", 3, np.uint8(3), True])
    assert h.top() == [("x", 3), (3, 2), (1, 1)]
    h.add("none", 0)
    h.add_many(["none", "none"], 0)
    h.add_many(["none", "y"], [0, 9])
    assert h.top()[0] == ("y", 9)
    assert len(h.top()) == 4
    twin = pickle.loads(pickle.dumps(h))
    h.add("more", 100)
    assert twin.top() != h.top()
    twin.add("more", 100)
    assert twin.top() == h.top()
    assert "k=10" in repr(h)
    assert h.k == 10
    h.clear()
    assert h.top() == []
    assert h.total == 0


def test_heavy_hitters_refuse_what_is_wrong_and_keep_what_was_before() -> None:
    for k in (0, -1, 2**21):
        with pytest.raises(ValueError, match="k must be"):
            HeavyHitters(k)
    with pytest.raises(TypeError, match="k must be"):
        HeavyHitters(1.5)  # type: ignore[arg-type]
    h = HeavyHitters(5)
    with pytest.raises(TypeError, match="must be str") as caught:
        h.add_many(["a", "b", "a", 2.5, "c"])
    assert "item 3 of the keys; the keys before it have been added" in caught.value.__notes__[0]
    assert h.top() == [("a", 2), ("b", 1)]
    with pytest.raises(OverflowError):
        h.add_many(["c", "d"], [2, MOST])
    assert h.top()[0] in {("a", 2), ("c", 2)}
    assert h.total == 5
    for bad in ("abc", b"abc", 7, np.array([1.5])):
        with pytest.raises(TypeError, match="keys must"):
            h.add_many(bad)
    with pytest.raises(ValueError, match="weights must be as many"):
        h.add_many(iter(["e"]), [1, 2])
    with pytest.raises(ValueError, match="weights must be as many"):
        h.add_many(iter(["e", "f"]), [1])

    def failing() -> Iterator[str]:
        yield "z"
        raise LookupError("gone")

    h = HeavyHitters(5)
    with pytest.raises(LookupError, match="gone"):
        h.add_many(failing())
    assert h.top() == [("z", 1)]


def test_the_core_refuses_what_no_plan_makes() -> None:
    for core in ([], [2, 10, 1, 1, 0, 0, 0], [2, 2**50, 1024, 1, 0, *plan_countmin(0.1, 0.1).core[5:]]):
        with pytest.raises(ValueError, match=r"."):
            _core.Sketch(0, core)
