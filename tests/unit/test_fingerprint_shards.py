"""Fingerprint filters in shards and by Dask workers: keys come and go, copies are summed, sets united."""

from __future__ import annotations

from pathlib import Path

import dask.bag
import numpy as np
import pytest

from evenbins import FilterFullError, FingerprintFilter, ShardedFilter
from evenbins.cluster.dask import build

KEYS = np.arange(3000)


def made(semantics: str | None = None, keys: object = KEYS, capacity: int = 4000) -> ShardedFilter:
    f = ShardedFilter(capacity, 1e-4, shards=5, policy="fingerprint", semantics=semantics)
    f.add_many(keys)
    return f


def test_keys_are_removed_from_their_shards_one_by_one_and_in_bulk(tmp_path: Path) -> None:
    f, g = made(), made()
    gone = np.concatenate([KEYS[::3], KEYS[:10]])
    removed = f.remove_many(gone.reshape(2, -1), threads=2)
    assert removed.shape == (2, 505)
    single = [g.discard(key) for key in gone.tolist()]
    assert removed.ravel().tolist() == single
    rest = made(keys=np.setdiff1d(KEYS, gone[removed.ravel()]))
    assert f == g == rest
    assert f.to_bytes() == rest.to_bytes()
    f.save(tmp_path / "shards")
    opened = ShardedFilter.open(tmp_path / "shards")
    assert opened == rest
    assert opened.count_many(np.array([13, 0, 5000])).tolist() == [1, 0, 0]
    assert f.stats().keys == 3000 - removed.sum()
    with pytest.raises(KeyError):
        f.remove(0)
    f.remove(13)
    assert f.count(13) == 0
    with pytest.raises(ValueError, match="read-only"):
        opened.remove_many([1])


def test_sums_of_multisets_and_unions_of_sets() -> None:
    a, b = made(keys=KEYS[:1000]), made(keys=KEYS[500:2000])
    both = a + b
    assert both.count_many(np.array([0, 700, 1999, 2000])).tolist() == [1, 2, 1, 0]
    assert both == made(keys=np.concatenate([KEYS[:1000], KEYS[500:2000]]))
    with pytest.raises(TypeError, match=r"use \+"):
        a | b
    one, other = made("set", KEYS[:1000]), made("set", KEYS[500:2000])
    assert one | other == made("set", KEYS[:2000])
    with pytest.raises(TypeError, match=r"use \|"):
        one + other
    with pytest.raises(TypeError, match="semantics"):
        one.remove(0)
    assert one.count(0) == 1


def test_what_does_not_fit_and_what_cannot_remove() -> None:
    f = made()
    before = f.to_bytes()
    with pytest.raises(FilterFullError, match="as they were"):
        f += f.copy()
    assert f.to_bytes() == before
    with pytest.raises(FilterFullError, match="some keys of this call"):
        f.add_many(np.arange(10_000, 20_000))
    f._check()
    blocked = ShardedFilter(100, shards=2)
    for call in (blocked.remove, blocked.discard, blocked.count, blocked.remove_many, blocked.count_many):
        with pytest.raises(TypeError, match=r"policy 'blocked'.*policy=\"fingerprint\""):
            call([1] if call.__name__.endswith("many") else 1)
    with pytest.raises(ValueError, match=r'semantics must be for policy="fingerprint"'):
        ShardedFilter(100, shards=2, semantics="set")


@pytest.mark.parametrize("partitions", [1, 7])
@pytest.mark.parametrize("shards", [None, 3])
def test_dask_builds_the_sum_of_a_multiset_and_the_union_of_a_set(
    partitions: int, shards: int | None
) -> None:
    words = [f"word {i % 300}" for i in range(500)]
    bag = dask.bag.from_sequence(words, npartitions=partitions)
    for semantics, keys in (("multiset", words), ("set", words[:300])):
        found = build(
            bag, policy="fingerprint", semantics=semantics, fpr=1e-6, keys=500, shards=shards,
            scheduler="synchronous",
        )  # fmt: skip
        if shards is None:
            expected = FingerprintFilter(500, 1e-6, semantics=semantics)
        else:
            expected = ShardedFilter(500, 1e-6, shards=3, policy="fingerprint", semantics=semantics)
        expected.add_many(keys)
        assert found == expected
        assert found.to_bytes() == expected.to_bytes()


def test_a_multiset_is_planned_for_all_rows() -> None:
    bag = dask.bag.from_sequence(["a"] * 20, npartitions=2)
    assert build(bag, policy="fingerprint", scheduler="synchronous").count("a") == 20
    with pytest.raises(ValueError, match='keys must not be "distinct"'):
        build(bag, policy="fingerprint", keys="distinct", scheduler="synchronous")
