"""The counting filter: removal, counts, full counters, refusals; what the shared suite does not ask.

The shared suite (test_filters.py, test_threads.py, test_kernels.py, …) runs over it as over every filter:
bulk and single calls, files, pickles, merges, threads, kernels. Here is what only a counting filter can do.
"""

from __future__ import annotations

import collections
import math
import pickle
import threading
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenbins
import reference
from evenbins import (
    BloomFilter,
    CountingBloomFilter,
    FormatError,
    OverfilledWarning,
    digest,
    digest_many,
    filters,
)
from evenbins.filters import plan_counting, plan_of_core
from evenbins.filters.counting import SATURATION_BOUND
from evenbins.study.theory import counters
from evenbins.theory import counting
from evenbins.theory import fpr as rates

WIDTHS = (2, 4, 8, 16)
LAYOUTS = ("flat", "blocked")
SHAPES = [(layout, bits) for layout in LAYOUTS for bits in WIDTHS]
each_shape = pytest.mark.parametrize(("layout", "bits"), SHAPES)
KEYS: list[Any] = ["a", b"b", 3, -4, "ключ", 2**64 - 1]


def make(capacity: int = 1000, *, layout: str = "flat", bits: int = 4, **more: Any) -> CountingBloomFilter:
    """Build without the warning of narrow counters."""
    more = {"hashes": 7, "bits_per_key": 12 * bits} | more
    return CountingBloomFilter.from_plan(plan_counting(capacity, layout=layout, counter_bits=bits, **more))


def payload(f: Any) -> bytes:
    return bytes(memoryview(f))


# --- adding and removing -------------------------------------------------------------------------------


@each_shape
def test_what_was_added_can_be_removed_and_nothing_remains(layout: str, bits: int) -> None:
    """With one exception: a counter that was full."""
    f = make(layout=layout, bits=bits)
    f.add_many(range(200))
    before = payload(f)
    full = f.stats().saturated
    for key in KEYS:
        f.add(key)
    assert all(key in f for key in KEYS)
    for key in KEYS:
        f.remove(key)
    if f.stats().saturated == full:
        assert payload(f) == before
    assert f.contains_many(range(200)).all()
    assert f.remove_many(range(200)).all()
    assert (f.stats().fill == 0) == (f.stats().saturated == 0)
    assert bits == 2 or f == make(layout=layout, bits=bits)


@each_shape
def test_a_removal_of_what_is_not_there_is_refused_and_changes_nothing(layout: str, bits: int) -> None:
    f = make(layout=layout, bits=bits)
    f.add("in")
    before = payload(f)
    with pytest.raises(KeyError) as caught:
        f.remove("out")
    assert caught.value.args == ("out",)
    assert f.remove_many(["out", "other"]).tolist() == [False, False]
    assert payload(f) == before
    f.remove("in")
    with pytest.raises(KeyError, match="in"):
        f.remove("in")
    assert f.stats().fill == 0


def test_keys_are_removed_as_often_as_they_are_in() -> None:
    f = make()
    f.add_many(["a", "a", "b"])
    assert f.remove_many(["a", "b", "b", "a", "a"]).tolist() == [True, True, False, True, False]
    assert f.stats().keys == 0


@pytest.mark.parametrize("bad", [None, 1.5, 2**64, ("a",), "\ud800"])
def test_what_is_no_key_is_refused_by_name(bad: Any) -> None:
    f = make()
    f.add_many(["a", "b"])
    for call in (f.remove, f.count):
        with pytest.raises((TypeError, ValueError)) as caught:
            call(bad)
        assert not isinstance(caught.value, KeyError)
    with pytest.raises((TypeError, ValueError), match=r"^keys\[1\].*before it have been removed"):
        f.remove_many(["a", bad, "b"])
    assert f.count_many(["a", "b"]).tolist() == [0, 1]
    with pytest.raises((TypeError, ValueError), match=r"^keys\[2\]"):
        f.count_many(["a", "b", bad])


def test_one_key_is_not_many() -> None:
    f = make()
    for call in (f.remove_many, f.count_many):
        with pytest.raises(TypeError, match="put it into a list"):
            call("abc")
        with pytest.raises(ValueError, match="threads must be 1"):
            call(["abc"], threads=0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bulk_calls_take_every_form_of_keys_and_give_its_shape(layout: str) -> None:
    f = make(layout=layout)
    numbers = np.arange(12).reshape(3, 4)
    f.add_many(numbers)
    f.add_many(numbers)
    assert f.count_many(numbers).shape == (3, 4)
    assert f.count_many(numbers).dtype == np.int64
    assert (f.count_many(numbers, threads=2) >= 2).all()
    removed = f.remove_many(numbers[:, ::2])
    assert removed.shape == (3, 2)
    assert removed.dtype == np.bool_
    assert f.remove_many(pa.chunked_array([[0], [2, 4]])).all()
    assert f.remove_many(digest_many([6, 8, 10], f.seed), digests=True).all()
    assert f.remove_many(x for x in (1, 3)).all()
    assert f.count_many(digest_many(numbers, f.seed), digests=True).tolist() == [
        [0, 1, 0, 1], [0, 2, 0, 2], [0, 2, 0, 2],
    ]  # fmt: skip
    assert f.remove_many([]).shape == f.count_many(np.array([], int)).shape == (0,)


@pytest.mark.usefixtures("kernel")
@each_shape
def test_bulk_and_single_calls_are_those_of_the_twin_under_every_kernel(layout: str, bits: int) -> None:
    """5,000 operations on 300 keys, in batches and one by one; the bytes of the twin after every stretch."""
    f, alone = make(100, layout=layout, bits=bits), make(100, layout=layout, bits=bits)
    twin = reference.ReferenceCounting(*f.plan.core)
    rng = np.random.default_rng(bits)
    for _ in range(2):
        keys = rng.integers(0, 300, 1250)
        for k in keys.tolist():
            twin.add(k)
            alone.add(k)
        f.add_many(keys)
        assert payload(f) == payload(alone) == twin.payload()
        gone = rng.integers(0, 310, 1250)
        expected = [twin.remove(k) for k in gone.tolist()]
        assert f.remove_many(gone).tolist() == expected
        for k, was_in in zip(gone.tolist(), expected, strict=True):
            if was_in:
                alone.remove(k)
            else:
                with pytest.raises(KeyError):
                    alone.remove(k)
        assert payload(f) == payload(alone) == twin.payload()
        counts = [twin.count(k) for k in range(310)]
        assert f.count_many(range(310)).tolist() == f.count_many(np.arange(310)).tolist() == counts
        assert [f.count(k) for k in range(310)] == counts
        assert f.contains_many(range(310)).tolist() == [count > 0 for count in counts]
        f._check()


@each_shape
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_leave_the_same_bytes_and_give_the_same_answers(layout: str, bits: int, threads: int) -> None:
    """200,000 keys, a quarter of them twice: counters fill up, and sums of threads stop where one's would."""
    keys = np.concatenate([np.arange(150_000), np.arange(50_000)])
    one, several = (make(50_000, layout=layout, bits=bits) for _ in range(2))
    one.add_many(keys)
    several.add_many(keys, threads=threads)
    assert one == several
    assert one.count_many(keys).tolist() == several.count_many(keys, threads=threads).tolist()
    one.remove_many(keys[:100_000])
    several.remove_many(keys[:100_000], threads=threads)
    assert one == several


def test_removals_of_several_python_threads_lose_nothing() -> None:
    """Four threads, bulk and single; every key is removed once by somebody."""
    f = make(40_000)
    f.add_many(range(40_000))
    removed = [0] * 4

    def work(t: int) -> None:
        if t % 2:
            removed[t] = int(f.remove_many(np.arange(t * 10_000, (t + 1) * 10_000)).sum())
            return
        for key in range(t * 10_000, (t + 1) * 10_000):
            f.remove(key)
            removed[t] += 1

    workers = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert removed == [10_000] * 4
    assert f == make(40_000)


# --- full counters -------------------------------------------------------------------------------------


@each_shape
def test_a_full_counter_sticks(layout: str, bits: int) -> None:
    most = 2**bits - 1
    f = make(10, layout=layout, bits=bits)
    f.add_many(np.full(most - 1, 7))
    assert f.count(7) == most - 1
    assert f.stats().saturated == 0
    f.remove(7)
    f.add(7)
    f.add(7)  # now it is full
    assert f.count(7) == most
    full = f.stats().saturated
    assert full == len(reference.ReferenceCounting(*f.plan.core).positions(digest(7)))
    before = payload(f)
    f.add(7)
    f.remove(7)
    f.remove(7)
    assert f.remove_many([7] * 20).all()
    assert payload(f) == before
    assert 7 in f


@each_shape
def test_no_false_negative_after_saturation(layout: str, bits: int) -> None:
    """Half of the keys of an overfull filter removed: the others are all found, their counts not too low."""
    f = make(20, layout=layout, bits=bits)
    keys = [*range(300)] * 2
    f.add_many(keys)
    assert f.remove_many([*range(150)] * 2).all()
    assert f.contains_many(range(150, 300)).all()
    counts = f.count_many(range(150, 300))
    assert ((counts >= 2) | (counts == 2**bits - 1)).all()


def test_count_bounds_the_multiplicity_from_above() -> None:
    f = make(500, bits=8)
    truth = collections.Counter(np.random.default_rng(3).zipf(1.6, 2000).tolist())
    f.add_many(truth.elements())
    for key, times in truth.items():
        assert f.count(key) >= min(times, 255)
    exact = sum(f.count(key) == min(times, 255) for key, times in truth.items())
    assert exact > 0.95 * len(truth)


@each_shape
def test_positions_that_coincide_move_their_counter_once(layout: str, bits: int) -> None:
    """A filter so small that every key's positions coincide: one block, or three counters."""
    f = (
        make(1, layout=layout, bits=bits, bits_per_key=512, hashes=32)
        if layout == "blocked"
        else make(1, bits=bits, bits_per_key=3 * bits, hashes=9)
    )
    twin = reference.ReferenceCounting(*f.plan.core)
    f.add("key")
    twin.add("key")
    assert f.count("key") == 1
    assert payload(f) == twin.payload()
    f.remove("key")
    assert f.stats().fill == 0


# --- merging -------------------------------------------------------------------------------------------


@each_shape
def test_a_merge_adds_the_counters_and_stops_when_they_are_full(layout: str, bits: int) -> None:
    rng = np.random.default_rng(bits)
    left, right = rng.integers(0, 400, 1000), rng.integers(200, 600, 1500)
    f, g, both = (make(100, layout=layout, bits=bits) for _ in range(3))
    f.add_many(left)
    g.add_many(right)
    both.add_many(left)
    both.add_many(right)
    assert f | g == g | f == both
    f |= g
    assert f == both
    assert f.contains_many(left).all()
    assert f.remove_many(right).all()
    assert f.contains_many(left).all()


def test_a_merge_with_itself_doubles() -> None:
    f = make()
    f.add_many(["a", "b"])
    g = f | f
    f |= f
    assert f == g
    assert f.count_many(["a", "b"]).tolist() == [2, 2]


def test_filters_of_different_widths_or_layouts_do_not_merge() -> None:
    f = make(512)
    for other in (make(512, bits=8), make(512, layout="blocked")):
        with pytest.raises(ValueError, match="cannot merge"):
            f |= other
    assert f.__or__(BloomFilter(10)) is NotImplemented


# --- files ---------------------------------------------------------------------------------------------


@each_shape
def test_files_and_pickles_keep_the_counts(layout: str, bits: int, tmp_path: Path) -> None:
    f = make(layout=layout, bits=bits, seed=99)
    f.add_many([*range(100), *range(50)])
    counts = f.count_many(range(120)).tolist()
    f.save(tmp_path / "f")
    loaded = evenbins.load(tmp_path / "f")
    assert isinstance(loaded, CountingBloomFilter)
    for g in (loaded, pickle.loads(pickle.dumps(f)), CountingBloomFilter.from_bytes(f.to_bytes()), f.copy()):
        assert g == f
        assert (g.layout, g.counter_bits) == (layout, bits)
        assert g.count_many(range(120)).tolist() == counts
        assert g.plan.to_dict() == f.plan.to_dict()
        g.remove(3)
        assert g != f or g.count(3) == 2**bits - 1
    opened = CountingBloomFilter.open(tmp_path / "f")
    assert opened.count_many(range(120)).tolist() == counts
    for change in (opened.remove, lambda key: opened.remove_many([key])):
        with pytest.raises(ValueError, match="read-only"):
            change(3)
    with pytest.raises(FormatError, match="another kind"):
        BloomFilter.load(tmp_path / "f")


def test_a_flipped_bit_anywhere_is_refused() -> None:
    f = make(20, layout="blocked")
    f.add_many(range(20))
    data = f.to_bytes()
    for byte in range(0, len(data), 7):
        with pytest.raises(FormatError):
            CountingBloomFilter.from_bytes(data[:byte] + bytes([data[byte] ^ 16]) + data[byte + 1 :])


# --- other filters -------------------------------------------------------------------------------------


def test_other_filters_neither_count_nor_remove() -> None:
    f: Any = BloomFilter(10)
    assert not hasattr(f, "remove")
    assert not hasattr(f, "count")
    for call in (lambda: f._remove("a"), lambda: f._count("a"), f._counter_histogram):
        with pytest.raises(TypeError, match="use CountingBloomFilter"):
            call()


@pytest.mark.filterwarnings("ignore:nanobind")
def test_a_filter_that_was_never_made_raises() -> None:
    f = CountingBloomFilter.__new__(CountingBloomFilter)
    for call in (f.remove, f.count, f.add):
        with pytest.raises((RuntimeError, TypeError)):
            call("a")


# --- plan and stats ------------------------------------------------------------------------------------


@each_shape
def test_stats_are_computed_from_the_counters(layout: str, bits: int) -> None:
    f = make(300, layout=layout, bits=bits)
    f.add_many([*range(250), *range(40)])
    raw = int.from_bytes(payload(f), "little")
    counters = f.plan.core[0]
    values = np.array([raw >> i * bits & 2**bits - 1 for i in range(counters)])
    stats = f.stats()
    assert stats.fill == np.count_nonzero(values) / counters
    assert stats.saturated == np.count_nonzero(values == 2**bits - 1)
    assert stats.nbytes == f.nbytes == len(payload(f))
    assert stats.bits_per_key == f.plan.bits_per_key
    if layout == "flat":
        assert stats.fpr == pytest.approx(stats.fill**7, rel=1e-12)
        assert stats.loads == ()
    else:
        used = (values.reshape(-1, 512 // bits) > 0).sum(axis=1)
        assert stats.fpr == pytest.approx(np.mean((used / (512 // bits)) ** 7), rel=1e-12)
        assert stats.loads == (tuple(np.bincount(used, minlength=512 // bits + 1).tolist()),)
        assert stats.reads == stats.miss_reads == f.plan.reads == 1
    if stats.saturated == 0:
        assert stats.keys == pytest.approx(290, rel=0.03)  # distinct positions of a key vary a little
        assert f.approx_items() == pytest.approx(250, rel=0.1)


def test_the_constructor_warns_of_counters_that_will_be_full() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = CountingBloomFilter(10_000, fpr=1e-3)
        CountingBloomFilter(
            100_000_000, fpr=0.5, layout="blocked"
        )  # nothing is touched, so it takes no memory
        assert f.plan.saturated < SATURATION_BOUND
    with pytest.warns(UserWarning, match=r"counter_bits=2.*4\.83e\+03 of 143779.*counter_bits=4") as caught:
        CountingBloomFilter(10_000, fpr=1e-3, counter_bits=2)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"counter_bits=16.*larger capacity, or give more bits_per_key"):
        CountingBloomFilter(1_000_000, bits_per_key=1 / 1000, hashes=8, counter_bits=16)


def test_a_plan_is_rebuilt_from_its_core_and_builds_its_filter() -> None:
    plan = plan_counting(5000, fpr=1e-4, counter_bits=8, layout="blocked", seed=5)
    assert plan.policy == "counting"
    assert (plan.counter_bits, plan.block_bits, plan.hashing) == (8, 512, "lanes")
    assert plan_of_core("counting", plan.core, capacity=5000, seed=5).to_dict() == plan.to_dict()
    assert type(evenbins.filters.build(plan)) is CountingBloomFilter
    with pytest.raises(ValueError, match=r"CountingBloomFilter\.from_plan"):
        BloomFilter.from_plan(plan)
    assert plan.fpr <= 1e-4
    flat = plan_counting(5000, bits_per_key=40)
    assert flat.core[0] == 50_000
    assert flat.fpr == rates.standard(50_000, flat.hashes, 5000)
    assert plan_counting(5000, fpr=1e-3).core[0] == rates.standard_bits(5000, 1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"counter_bits": 3}, r"counter_bits must be 2, 4, 8 or 16; got 3"),
        ({"counter_bits": True}, r"counter_bits must be"),
        ({"counter_bits": 4.0}, r"counter_bits must be"),
        ({"layout": "round"}, r'layout must be "flat" or "blocked"; got \'round\''),
        ({"layout": None}, r"layout must be"),
        ({"hashes": 65}, r"hashes must be an integer from 1 to 64"),
        ({"layout": "blocked", "hashes": 33}, r"hashes must be an integer from 1 to 32"),
        ({"fpr": 0}, r"fpr must be"),
        ({"fpr": 0.1, "bits_per_key": 3}, r"exclude each other"),
        ({"seed": -1}, r"seed must be"),
    ],
)
def test_a_wrong_argument_is_named_with_the_rule(arguments: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        CountingBloomFilter(100, **arguments)


@pytest.mark.parametrize(
    "core",
    [(0, 4, 3, 0), (10, 3, 3, 0), (10, 4, 0, 0), (10, 4, 65, 0), (10, 4, 3, 256), (100, 4, 3, 512),
     (128, 4, 33, 512), (2**55, 4, 3, 0), (10, 4, 3)],
)  # fmt: skip
def test_a_core_that_no_filter_has_is_refused_by_plan_core_and_twin(core: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="core"):
        plan_of_core("counting", core, capacity=10, seed=0)
    for hashing in (1, 2):
        with pytest.raises(ValueError, match=r"must be|must fill|four numbers|needs"):
            evenbins._core.Filter(5, hashing, 0, 10, list(core))
    with pytest.raises(ValueError, match=r"must|four numbers"):
        reference.counting.payload_bytes(core)


# --- the mathematics -----------------------------------------------------------------------------------


def exact_binomial_tail(n: int, p: Fraction, least: int) -> Fraction:
    return sum((math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(least, n + 1)), Fraction(0))


@pytest.mark.parametrize(("n", "p"), [(1, "1/2"), (10, "1/3"), (50, "1/100"), (60, "9/10"), (200, "1/7")])
def test_the_binomial_tail_is_exact(n: int, p: str) -> None:
    for least in (0, 1, 2, 3, n // 2, n - 1, n, n + 1):
        expected = float(exact_binomial_tail(n, Fraction(p), least))
        assert counting.binomial_tail(n, float(Fraction(p)), least) == pytest.approx(expected, rel=1e-12)


def test_tails_at_the_ends() -> None:
    assert counting.binomial_tail(10, 0.0, 1) == 0
    assert counting.binomial_tail(10, 1.0, 10) == 1
    assert counters.poisson_tail(0.0, 1) == 0
    assert counters.poisson_tail(3.0, 0) == 1
    assert counters.poisson_tail(100.0, 3) == pytest.approx(1.0)
    # Many trials of small chance: the Poisson limit, at a size where factorials would have lost every digit.
    many = counting.binomial_tail(2**48, math.log(2) / 2**48, 15)
    assert many == pytest.approx(counters.poisson_tail(math.log(2), 15), rel=1e-9)


def test_the_thesis_overflow_bound_with_its_digits_right() -> None:
    """Section 2.1.2 prints 1.78e-11, which is 80000 * 2**-52; 40 digits give 5.658265805e-12."""
    bound = counters.overflow_bound(10_000, 80_000, 8 * math.log(2), 4)
    assert bound == pytest.approx(5.658265805383964e-12, rel=1e-12)
    assert pytest.approx(1.78e-11, rel=3e-3) == 80_000 * 2**-52


def test_the_prediction_of_full_counters_is_that_of_small_filters_counted_out() -> None:
    """Every outcome of three keys with two positions among four counters of two bits: 16**3 of them."""
    full = 0
    for throws in np.ndindex(*(4,) * 6):
        values = collections.Counter(p for key in range(3) for p in {throws[2 * key], throws[2 * key + 1]})
        full += sum(value >= 3 for value in values.values())
    plan = plan_of_core("counting", (4, 2, 2, 0), capacity=3, seed=0)
    assert plan.saturated == pytest.approx(full / 4**6, rel=1e-12)
    assert plan.saturation == pytest.approx(plan.saturated / 4, rel=1e-12)


def test_theory_names_are_public() -> None:
    assert filters.plan_counting is plan_counting
    for name in counting.__all__:
        assert hasattr(counting, name)


def test_repeated_keys_alone_do_not_overfill() -> None:
    """The warning is about distinct keys: repeats fill no further counters, and leave the rate as planned."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverfilledWarning)
        for seed in range(10):  # rates a little above the plan's and below
            f = CountingBloomFilter(1000, fpr=1e-3, seed=seed)
            for _ in range(5):
                f.add_many(range(1000))
    with pytest.warns(OverfilledWarning, match="holds about"):
        f.add_many(range(105_000))
