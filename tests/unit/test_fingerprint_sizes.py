"""Fingerprint filters as sets of fingerprints: differences, other sizes, growth, fuse filters from them."""

from __future__ import annotations

import contextlib
import operator
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenbins
from evenbins import ArgumentError, FilterFullError, FingerprintFilter, FuseFilter, _core
from evenbins.filters import plan_fingerprint, plan_of_core
from evenbins.filters.fingerprint_plan import FingerprintCore
from evenbins.theory import fingerprint_design as design
from reference import ReferenceFingerprint

RNG = np.random.default_rng(27)
WORDS = RNG.integers(0, 2**64, 3000, dtype=np.uint64)
isub: Any = operator.isub
ixor: Any = operator.ixor
SMALL = (16, 10, 64, 1, 64, 505, 0, 4)  # 500 keys in one block, four doublings


def made(*core: int, seed: int = 0) -> FingerprintFilter:
    keys = design.planned_keys(core[5])
    plan: Any = plan_of_core("fingerprint", core, capacity=keys, seed=seed, hashing="lanes")
    return FingerprintFilter.from_plan(plan)


def with_digests(f: FingerprintFilter, words: Any) -> FingerprintFilter:
    f.add_many(words, digests=True, threads=1)
    return f


def built(like: FingerprintFilter, words: Any) -> FingerprintFilter:
    """Return a filter of one's present core, which does not grow, with some digests."""
    f = made(*like._numbers[:7], 0, seed=like.seed)
    for word in words[::-1].tolist():
        f.add_many(np.array([word], np.uint64), digests=True)
    return f


def payload(f: FingerprintFilter) -> bytes:
    return bytes(memoryview(f))


# --- differences of sets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("core", [(32, 8, 50, 2, 64, 3000, 1, 0), (32, 5, 40, 1, 2000, 9000, 1, 0)])
def test_differences_are_those_of_the_fingerprints(core: tuple[int, ...]) -> None:
    a, b = WORDS[:1200], WORDS[600:1700]
    f, g = with_digests(made(*core), a), with_digests(made(*core), b)
    modulus = f._numbers.shape.fingerprints
    left, right = ({int(word) * modulus >> 64 for word in words.tolist()} for words in (a, b))
    by_number = {int(word) * modulus >> 64: word for word in WORDS.tolist()}
    for operate, wanted in [
        (operator.sub, left - right),
        (operator.xor, left ^ right),
        (operator.or_, left | right),
    ]:
        direct = with_digests(made(*core), np.array([by_number[each] for each in wanted], np.uint64))
        found = operate(f, g)
        assert found.to_bytes() == direct.to_bytes()
        found._check()
    for operate in (isub, ixor):
        h = f.copy()
        h = operate(h, g)
        assert h == (f - g if operate is isub else f ^ g)
        assert not operate(h, h)
    assert (f ^ g) == (f - g) | (g - f)


def test_multisets_name_what_they_have() -> None:
    f, g = FingerprintFilter(100), FingerprintFilter(100)
    for operate in (operator.sub, operator.xor, isub, ixor):
        with pytest.raises(TypeError, match=r"no [-^]: .*Use \+, and remove_many"):
            operate(f, g)
    one, other = (FingerprintFilter(100, semantics="set", seed=i) for i in range(2))
    with pytest.raises(ValueError, match="cannot subtract: their seeds differ"):
        one - other
    with pytest.raises(TypeError):
        one - 3  # type: ignore[operator]


def test_a_symmetric_difference_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    f, g = (with_digests(made(16, 10, 64, 1, 8, 505, 1, 0), words) for words in (WORDS[:400], WORDS[400:800]))
    before = f.to_bytes()
    with pytest.raises(FilterFullError, match="do not fit in one"):
        f ^= g
    assert f.to_bytes() == before
    f.save(tmp_path / "f")
    with pytest.raises(ValueError, match="read-only"):
        isub(FingerprintFilter.open(tmp_path / "f"), g)


# --- other sizes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_set", [0, 1])
@pytest.mark.parametrize("shape", [(32, 8, 50, 2), (48, 18, 64, 3), (16, 5, 33, 1), (64, 28, 64, 1)])
@pytest.mark.parametrize("threads", [1, 3])
def test_doubled_and_halved_are_the_bytes_of_a_direct_build(shape: Any, is_set: int, threads: int) -> None:
    words = np.concatenate([WORDS[:700], WORDS[:20]])
    f = with_digests(made(*shape, 800, 1010, is_set, 0), words)
    twice = f.doubled(threads=threads)
    assert twice._numbers[:4] == (2 * shape[0], shape[1] - 1, *shape[2:])
    assert twice.to_bytes() == built(twice, words).to_bytes()
    assert twice.halved(threads=threads) == f
    assert twice.count_many(words, digests=True).tolist() == f.count_many(words, digests=True).tolist()
    assert twice.stats().fpr == f.stats().fpr
    twice._check()
    twin = ReferenceFingerprint(*f._numbers)
    for word in words.tolist():
        twin.add_digest(word)
    twin.resize(twin.shape.doubled())
    assert payload(twice) == twin.payload()
    assert tuple(twice._numbers) == twin.core


def test_sizes_that_there_are_not() -> None:
    with pytest.raises(ValueError, match=r"have 4 bits, and 3 are not possible"):
        made(16, 4, 64, 1, 64, 505, 0, 0).doubled()
    with pytest.raises(ValueError, match=r"have 28 bits, and 29 are not possible"):
        made(32, 28, 64, 1, 64, 505, 0, 0).halved()
    with pytest.raises(ValueError, match="odd number of blocks"):
        made(48, 20, 64, 1, 64, 505, 0, 0).halved()
    full = with_digests(made(32, 8, 64, 1, 64, 1010, 0, 0), WORDS[:1010])
    with pytest.raises(FilterFullError, match="do not fit in a filter for"):
        full.halved()


# --- frozen ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semantics", ["multiset", "set"])
def test_a_frozen_filter_holds_the_fingerprints(semantics: str) -> None:
    f = FingerprintFilter(20_000, 1e-3, semantics=semantics, seed=5)
    f.add_many(np.arange(20_000))
    if semantics == "multiset":
        f.add_many(np.arange(100))
    frozen = f.freeze(2**-10, threads=2)
    assert isinstance(frozen, FuseFilter)
    assert frozen.contains_many(np.arange(20_000)).all()
    assert frozen.stats().keys == f.stats().distinct
    assert frozen.plan.fpr == pytest.approx(f.stats().fpr + 2**-10, rel=2e-3)
    absent = np.arange(10**6, 10**6 + 400_000)
    assert frozen.contains_many(absent)[f.contains_many(absent)].all()
    expected = frozen.plan.fpr * len(absent)
    assert abs(frozen.contains_many(absent).sum() - expected) < 5 * expected**0.5
    assert frozen.to_bytes() == f.doubled().freeze(2**-10).to_bytes()
    assert f.freeze().plan.fpr < 2 * f.plan.fpr
    assert not FingerprintFilter(10).freeze()
    with pytest.raises(ArgumentError):
        f.freeze(1.5)


# --- growth ------------------------------------------------------------------------------------------------


def test_a_filter_grows_without_a_key_lost_and_with_the_rate_planned() -> None:
    f = FingerprintFilter(4000, fpr=1e-3, max_capacity=60_000)
    keys = np.arange(60_000)
    assert 4000 <= f.capacity < 8000
    assert 60_000 <= f.max_capacity <= 60_100
    sizes = {f.capacity: f.nbytes}
    for key in keys[:30_000].tolist():
        f.add(key)
        sizes[f.capacity] = f.nbytes
    f.add_many(keys[30_000:])
    assert len(sizes) >= 3
    assert f.contains_many(keys).all()
    found = f.stats()
    assert (found.keys, f.plan.core.doublings) == (60_000, 0)
    assert found.fpr <= 1e-3
    assert found.reads <= 1.05
    assert f.plan.keys == f.capacity == f.max_capacity
    assert payload(f) == payload(
        built(f, np.array([evenbins.digest(key) for key in keys.tolist()], np.uint64))
    )
    with pytest.raises(FilterFullError, match="at most"):
        f.add_many(np.arange(60_000, 70_000))
    f.add_many(np.arange(60_000, 60_500))


@pytest.mark.parametrize("is_set", [0, 1])
def test_the_size_follows_from_the_most_keys_there_were(is_set: int) -> None:
    """Not from batches, threads or single calls: a filter doubles with the key that exceeds 95 %."""
    core = (*SMALL[:6], is_set, 4)
    one = made(*core)
    for count in range(476):
        assert one.capacity == 500
        one.add(count)
        assert one.add_new(count) is False
    assert one.capacity == 1100
    assert one._numbers == FingerprintCore(*core).resized(design.doubled)[1]
    keys = np.arange(40_000)
    many, threads, small = (made(*SMALL[:6], is_set, 6) for _ in range(3))
    many.add_many(keys[:20_000], threads=1)
    threads.add_many(keys[:20_000], threads=4)
    threads.add_new_many(keys[:20_000], threads=4)
    for part in np.array_split(keys[:20_000], 300):
        small.add_many(part)
    assert many.to_bytes() == threads.to_bytes() == small.to_bytes()
    if not is_set:
        assert many.remove_many(keys[:20_000], threads=2).all()
        assert many.capacity == small.capacity
        assert not many


@pytest.mark.parametrize("is_set", [0, 1])
def test_threads_double_it_at_the_same_keys(is_set: int) -> None:
    """Enough keys that threads share the work, in calls that end before, at and behind the 95 %."""
    keys = RNG.integers(0, 2**63, 150_000)
    filters = [
        FingerprintFilter(9000, 1e-4, max_capacity=200_000, semantics=("multiset", "set")[is_set])
        for _ in range(2)
    ]
    first = filters[0].capacity * 19 // 20
    for end, start in [
        (first, 0),
        (first + 1, first),
        (60_000, first + 1),
        (130_000, 60_000),
        (150_000, 120_000),
    ]:
        for f, threads in zip(filters, (1, 3), strict=True):
            f.add_many(keys[start:end], threads=threads)
        one, other = filters
        assert one.to_bytes() == other.to_bytes()
    answers = [
        f.add_new_many(keys[::-1], threads=threads) for f, threads in zip(filters, (1, 3), strict=True)
    ]
    assert (answers[0] == answers[1]).all()
    assert one.contains_many(keys).all()
    if not is_set:
        assert other.remove_many(keys, threads=3).all()


def growing(is_set: int = 0) -> tuple[FingerprintFilter, int]:
    """Return a filter of four blocks in the middle of its growth, and how many keys are in it."""
    f = made(64, 12, 64, 1, 64, 1616, is_set, 4)
    for key in range(1540):
        f.add(key)
    assert f.nbytes > f.plan.nbytes  # the old memory is still there
    return f, 1540


@pytest.mark.parametrize("is_set", [0, 1])
def test_everything_works_in_the_middle(is_set: int) -> None:
    f, n = growing(is_set)
    keys, absent = np.arange(n), np.arange(10_000, 60_000)
    assert f.contains_many(keys, threads=2).all()
    assert all(key in f for key in keys.tolist())
    assert f.count_many(keys).min() == 1
    assert (f.add_new(5), f.capacity) == (False, f.plan.keys)
    twin = f.copy()
    assert twin.nbytes < f.nbytes
    assert f == twin
    assert twin == f
    assert (f.contains_many(absent) == twin.contains_many(absent)).all()
    assert f.approx_items() == twin.approx_items()
    assert f.doubled() == twin.doubled()
    assert f.freeze() == twin.freeze()
    f._check()
    f, _ = growing(is_set)
    assert pickle.loads(pickle.dumps(f)) == twin
    f, _ = growing(is_set)
    assert f.stats().to_dict() == twin.stats().to_dict()
    f, _ = growing(is_set)
    view = memoryview(f)
    assert bytes(view) == payload(twin)
    f.add_many(np.arange(n, 9000))  # other memory: that of the view stays where it is
    assert len(bytes(view)) == twin.nbytes
    if not is_set:
        f, _ = growing()
        assert f.remove_many(keys[::2], threads=2).all()
        for key in keys[1::4].tolist():
            f.remove(key)
        with pytest.raises(KeyError):
            f.remove(1)
        assert payload(f) == payload(
            built(f, np.array([evenbins.digest(key) for key in keys[3::4].tolist()], np.uint64))
        )
    f, _ = growing(is_set)
    f.clear()
    assert not f
    assert not any(payload(f))


def test_one_that_grows_for_the_last_time_equals_one_that_never_grew() -> None:
    f = made(64, 12, 64, 1, 64, 1616, 0, 1)
    for key in range(1540):
        f.add(key)
    plain = FingerprintFilter.from_bytes(f.copy().to_bytes())
    assert f.nbytes > plain.nbytes
    assert plain == f
    assert f == plain
    plain.remove(3)
    assert plain != f
    assert (plain + f).count(4) == 2


def test_filters_that_have_grown_differently_are_united() -> None:
    parts = [(0, 300), (300, 1700), (1700, 1900)]
    whole = made(*SMALL)
    whole.add_many(np.arange(1900))
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        filters = [made(*SMALL) for _ in parts]
        for f, (first, end) in zip(filters, parts, strict=True):
            f.add_many(np.arange(first, end))
        total = filters[order[0]] + filters[order[1]] + filters[order[2]]
        assert total == whole
        assert filters[order[0]].contains_many(np.arange(*parts[order[0]])).all()
    full = made(*SMALL[:7], 1)
    full.add_many(np.arange(1000))
    with pytest.raises(FilterFullError, match="do not fit in one"):
        full += full.copy()
    with pytest.raises(ValueError, match="plans differ"):
        full += made(*SMALL[:7], 0)


def test_many_copies_of_a_key_fill_the_list_and_never_lose_one() -> None:
    f = made(64, 12, 64, 1, 64, 1616, 0, 4)
    with pytest.raises(FilterFullError) as caught:
        f.add_many(["hot"] * 5000)
    added = caught.value.added
    assert f.count("hot") == added
    f.add_many([f"key {i}" for i in range(1900)][:1500])
    for i in range(3000):  # through a growth with a list that is full
        f.add(i)
    assert f.count("hot") == added
    assert f.contains_many(np.arange(3000)).all()
    f._check()
    assert FingerprintFilter.from_bytes(f.to_bytes()) == f


def test_files_in_the_middle(tmp_path: Path) -> None:
    f, n = growing()
    f.save(tmp_path / "f")
    for g in (FingerprintFilter.load(tmp_path / "f"), FingerprintFilter.open(tmp_path / "f", verify=True)):
        assert g == f
        assert g.contains_many(np.arange(n)).all()
        assert (g.capacity, g.max_capacity, g.plan) == (f.capacity, f.max_capacity, f.plan)
    g = FingerprintFilter.load(tmp_path / "f")
    for h in (f, g):
        h.add_many(np.arange(n, 12_000))
    assert f.to_bytes() == g.to_bytes()


def test_the_sizes_are_those_of_the_plan() -> None:
    f = made(*SMALL)
    for keys, shape in design.Growth(500, f._numbers.shape, 4).sizes():
        assert (f.capacity, f._numbers.shape) == (keys, shape)
        assert f._numbers.limit == design.copies_limit(keys)
        assert design.planned_keys(f._numbers.limit) == keys
        f.add_many(np.arange(int(f.stats().keys), min(f.capacity + 1, f.max_capacity)))


# --- plans -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "most", "fpr"), [(1_000_000, 256_000_000, 1e-3), (10, 10**6, 1e-2), (1e4, 1e6, 1e-6)]
)
def test_plans_of_filters_that_grow(first: float, most: float, fpr: float) -> None:
    plan = plan_fingerprint(first, fpr, max_capacity=most)
    direct = plan_fingerprint(most, fpr)
    found = design.Growth(plan.keys, plan.core.shape, plan.core.doublings)
    keys, shape = found.last
    assert most <= keys == plan.max_capacity <= 1.001 * most
    assert first <= plan.keys <= max(2.3 * first, 10_000)
    assert keys / shape.fingerprints <= 1.001 * fpr
    assert shape.nbytes <= 1.15 * direct.nbytes
    assert plan.with_keys(int(most)).fpr <= 1.001 * fpr
    for keys, shape in found.sizes():
        options: Any = {"capacity": keys, "seed": 0, "hashing": "lanes"}
        size = plan_of_core("fingerprint", (*shape, design.copies_limit(keys), 0, 0), **options)
        assert size.reads <= 1.05
        assert size.miss_reads <= 1.02
    assert "max_capacity" in repr(FingerprintFilter(1e4, 1e-4, max_capacity=1e6))


def test_bits_are_those_of_the_last_size() -> None:
    plan = plan_fingerprint(10_000, bits_per_key=16, max_capacity=10**6)
    _, shape = design.Growth(plan.keys, plan.core.shape, plan.core.doublings).last
    assert 15 < 8 * shape.nbytes / 10**6 <= 16


def test_growth_that_cannot_be() -> None:
    with pytest.raises(
        ArgumentError, match=r"max_capacity must be at most about \d+ for a filter that begins"
    ):
        FingerprintFilter(10**6, 1e-7, max_capacity=10**12)
    for wrong in (99, 2.5, "9", 2**49, True):
        with pytest.raises((ArgumentError, TypeError), match="max_capacity"):
            FingerprintFilter(100, max_capacity=wrong)  # type: ignore[arg-type]
    assert FingerprintFilter(1000, 1e-3, max_capacity=1000).plan.core.doublings == 0
    for core in [(16, 10, 64, 1, 64, 505, 0, 7), (2**47, 10, 64, 1, 64, 505, 0, 4)]:
        with pytest.raises(ArgumentError, match="core"):
            made(*core)
        with pytest.raises(ValueError, match="doubl"):
            _core.Filter(18, 2, 0, 100, list(core))


@pytest.mark.parametrize(
    ("semantics", "combine"), [("multiset", "__iadd__"), ("set", "__ior__"), ("set", "__ixor__")]
)
def test_a_sum_that_does_not_fit_leaves_a_filter_in_its_size(semantics, combine):
    f, g = (FingerprintFilter(100, 1e-3, max_capacity=10_000, semantics=semantics) for _ in range(2))
    f.add_many(np.arange(1000))
    g.add_many(np.arange(5000, 5000 + g.max_capacity))
    before, other = f.to_bytes(), g.to_bytes()
    with pytest.raises(FilterFullError):
        getattr(f, combine)(g)
    assert (f.to_bytes(), g.to_bytes()) == (before, other)


@pytest.mark.parametrize("semantics", ["multiset", "set"])
def test_the_overlap_of_full_filters(semantics):
    f, g = (FingerprintFilter(10_000, 1e-3, semantics=semantics) for _ in range(2))
    f.add_many(np.arange(10_000))
    g.add_many(np.arange(5000, 15_000))
    assert f.approx_intersection(g) == pytest.approx(5000, rel=0.01)


def test_the_overlap_of_filters_that_have_grown_differently():
    f, g = (FingerprintFilter(1000, 1e-4, max_capacity=50_000) for _ in range(2))
    f.add_many(np.arange(50_000))
    g.add_many(np.arange(49_000, 51_000))
    assert f.approx_intersection(g) == pytest.approx(1000, rel=0.02)
    assert g.approx_intersection(f) == pytest.approx(1000, rel=0.02)


def test_rates_that_no_filter_reaches_warn_of_nothing(recwarn):
    with pytest.raises(ValueError, match="fpr must be at least"):
        FingerprintFilter(10, 5e-324)
    assert not recwarn


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
def test_a_signal_in_a_call_that_does_not_fit():
    """Either exception is raised, whenever the signal comes; the handler's says how many keys are in."""

    class StopError(Exception):
        pass

    def stop(*_: object) -> None:
        raise StopError

    keys, before = np.arange(600_000), signal.signal(signal.SIGALRM, stop)
    try:
        for step in range(20):
            f = FingerprintFilter(400_000, 1e-3, semantics="set")
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.04 + 0.005 * step)
                f.add_many(keys, threads=2)
            except (StopError, FilterFullError):
                pass
            finally:
                with contextlib.suppress(StopError):
                    signal.setitimer(signal.ITIMER_REAL, 0)
            f._check()
    finally:
        signal.signal(signal.SIGALRM, before)
