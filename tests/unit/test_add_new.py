"""`add_new`: a key's addition that answers whether it was new; the promises of docs/filters.md.

The answers are those of `key not in f` before each key, in order, whatever the batches, threads, kernel and
kind of source; the bytes are those of adding the keys that got True one by one.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, Kind

from evenbins import (
    BlockedBloomFilter,
    BloomFilter,
    CountingBloomFilter,
    GrowingFilter,
    OverfilledWarning,
    ShardedFilter,
    _core,
)

KEYS = np.random.default_rng(5).integers(0, 6000, 9000)


@functools.cache
def _plan(name: str) -> Any:
    """Plan a filter for 1,000 keys, once: hypothesis makes many of them."""
    return next(kind for kind in KINDS if kind.name == name)(1000).plan


def one_by_one(made: Any, keys: Any) -> list[bool]:
    """Add the keys that are absent with `in` and `add`; return which these were."""
    answers = []
    for key in keys:
        answers.append(key not in made)
        if answers[-1]:
            made.add(key)
    return answers


@pytest.mark.parametrize("name", _core.kernels())
def test_answers_and_bytes_are_those_of_one_key_after_the_other(kind: Kind, name: str) -> None:
    """At 4,500 of 5,000 planned keys some new keys look present: these must agree too."""
    before = _core.kernel()
    _core.use_kernel(name)
    try:
        plan = kind(4500).plan
        slow = kind.cls.from_plan(plan)
        expected = one_by_one(slow, KEYS.tolist())
        for threads in (None, 2, 3):
            fast = kind.cls.from_plan(plan)
            assert fast.add_new_many(KEYS, threads=threads).tolist() == expected, threads
            assert fast.to_bytes() == slow.to_bytes(), threads
        parts = kind.cls.from_plan(plan)
        found = [answer for part in np.array_split(KEYS, 7) for answer in parts.add_new_many(part)]
        assert found == expected
        single = kind.cls.from_plan(plan)
        assert [single.add_new(key) for key in KEYS.tolist()] == expected
        texts = kind.cls.from_plan(plan)
        assert texts.add_new_many(KEYS.tolist()).tolist() == expected
        assert parts.to_bytes() == single.to_bytes() == texts.to_bytes() == slow.to_bytes()
    finally:
        _core.use_kernel(before)


@given(st.lists(st.integers(0, 60), max_size=200), st.integers(1, 4))
@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.name)
def test_the_first_of_equal_keys_is_new_and_no_other(kind: Kind, keys: list[int], threads: int) -> None:
    made = kind.cls.from_plan(_plan(kind.name))
    answers = made.add_new_many(np.array(keys, np.int64), threads=threads).tolist()
    assert not any(made.add_new_many(keys))
    firsts = [keys.index(key) == i for i, key in enumerate(keys)]
    assert all(first or not new for first, new in zip(firsts, answers, strict=True))
    if not kind.ordered:  # at 16 bits per key and less than a tenth of them, collisions are rare
        assert sum(answers) >= sum(firsts) - 2


def test_a_counting_filter_counts_a_new_key_once() -> None:
    f = CountingBloomFilter(100)
    assert f.add_new_many(["a", "a", "b"]).tolist() == [True, False, True]
    assert not f.add_new("a")
    assert f.count("a") == 1
    f.remove("a")
    assert "a" not in f
    assert f.add_new("a")


def grown() -> GrowingFilter:
    return GrowingFilter(1e-2, first=500)


def sharded() -> ShardedFilter:
    return ShardedFilter(5000, fpr=1e-2, shards=3)


@pytest.mark.parametrize("make", [grown, sharded])
def test_growing_and_sharded_filters_answer_alike(make: Any) -> None:
    slow = make()
    expected = one_by_one(slow, KEYS.tolist())
    for threads in (1, 2, 5):
        fast = make()
        assert fast.add_new_many(KEYS, threads=threads).tolist() == expected
        assert fast.to_bytes() == slow.to_bytes()
    single, listed, pieces = make(), make(), make()
    assert [single.add_new(key) for key in KEYS.tolist()] == expected
    assert listed.add_new_many(KEYS.tolist()).tolist() == expected
    found = [pieces.add_new_many(KEYS[i : i + 333]) for i in range(0, 9000, 333)]
    assert np.concatenate(found).tolist() == expected
    assert single.to_bytes() == listed.to_bytes() == pieces.to_bytes() == slow.to_bytes()


def test_a_growing_filter_grows_within_one_call() -> None:
    f = grown()
    assert f.add_new_many(np.arange(5000)).sum() > 4900
    assert f.stages > 2
    assert not f.add_new_many(np.arange(5000)).any()


@pytest.mark.parametrize(
    "make", [lambda: BlockedBloomFilter(100_000), lambda: BloomFilter(100_000), grown, sharded]
)
def test_of_several_threads_exactly_one_gets_a_key(make: Any) -> None:
    f = make()
    batch = np.random.default_rng(3).permutation(20_000)
    masks: list[Any] = [None] * 4

    def work(i: int) -> None:
        masks[i] = np.zeros(20_000, bool)
        for part in np.array_split(np.roll(batch, 5000 * i), 20):
            masks[i][part] = f.add_new_many(part, threads=1 + i % 2)
            masks[i][part[0]] |= f.add_new(int(part[0]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = sum(mask.astype(int) for mask in masks)
    assert winners.max() == 1
    assert winners.sum() > 15_000  # the others are false positives: two of these filters are overfilled


def test_answers_have_the_shape_of_the_keys() -> None:
    f = BlockedBloomFilter(100)
    assert f.add_new_many(np.array([[1, 2], [2, 3]])).tolist() == [[True, True], [False, True]]
    assert f.add_new_many([]).tolist() == []
    assert f.add_new_many(np.array([f.seed], np.uint64), digests=True).dtype == np.bool_


def test_refused_keys_leave_those_before_them() -> None:
    f = BlockedBloomFilter(100)
    with pytest.raises(TypeError, match=r"keys\[2\].*the keys before it have been added"):
        f.add_new_many(["a", "b", None])
    assert "a" in f
    assert "b" in f
    with pytest.raises(TypeError):
        f.add_new(None)  # type: ignore[arg-type]


def test_a_filter_opened_read_only_refuses(tmp_path: Any) -> None:
    f = BlockedBloomFilter(100)
    f.save(tmp_path / "f")
    opened = BlockedBloomFilter.open(tmp_path / "f")
    with pytest.raises(ValueError, match="read-only"):
        opened.add_new("a")
    with pytest.raises(ValueError, match="read-only"):
        opened.add_new_many(["a"])


def test_new_keys_beyond_the_plan_warn_and_repeats_do_not() -> None:
    f = BlockedBloomFilter(1000)
    for _ in range(20):
        f.add_new_many(np.arange(1000))
    with pytest.warns(OverfilledWarning):
        f.add_new_many(np.arange(5000))


def test_a_subclass_with_its_own_add_new_keeps_it() -> None:
    class Mine(BlockedBloomFilter):
        def add_new(self, key: Any, /) -> bool:
            return super().add_new(str(key))

    f = Mine(100)
    assert f.add_new(7)
    assert "7" in f
