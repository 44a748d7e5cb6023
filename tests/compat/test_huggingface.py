"""Rows to keep of Hugging Face datasets: the same with any number of processes."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from evenbins.compat.huggingface import first_rows

RANDOM = random.Random(4)
URLS = [f"https://example.org/{RANDOM.randrange(300)}" for _ in range(1000)]
GROUPS = [RANDOM.randrange(3) for _ in URLS]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> datasets.Dataset:
    """One that lies in a file, as those of users do."""
    made = datasets.Dataset.from_dict({"url": URLS, "group": GROUPS, "n": range(1000)})
    path = tmp_path_factory.mktemp("data") / "saved"
    made.save_to_disk(path)
    return datasets.load_from_disk(path)


def expected(keys: list[Any]) -> list[int]:
    return list({key: place for place, key in reversed(list(enumerate(keys)))}.values())[::-1]


def firsts(keys: list[Any]) -> list[int]:
    return sorted(expected(keys))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("num_proc", [None, 2, 3])
def test_filter_with_processes(exact: bool, num_proc: int | None, dataset: datasets.Dataset) -> None:
    keep = first_rows(dataset, "url", exact=exact)
    found = dataset.filter(keep, with_indices=True, num_proc=num_proc, load_from_cache_file=False)
    assert found["n"][:] == firsts(URLS)
    assert keep.stats.rows == 1000
    assert keep.stats.kept == len(found)
    assert keep.stats.expected_wrong < 1e-6


def test_batches_several_columns_whole_rows_and_indices(dataset: datasets.Dataset) -> None:
    both = first_rows(dataset, ["url", "group"])
    found = dataset.filter(both, with_indices=True, batched=True, batch_size=77, load_from_cache_file=False)
    wanted = firsts(list(zip(URLS, GROUPS, strict=True)))
    assert found["n"][:] == wanted
    assert both.indices.tolist() == wanted
    assert dataset.select(both.indices)["n"][:] == wanted
    assert first_rows(dataset).indices.tolist() == [*range(1000)]
    shuffled = dataset.shuffle(seed=3)
    keys = shuffled["url"][:]
    assert first_rows(shuffled, "url").indices.tolist() == firsts(keys)


def test_it_is_pickled_and_cached(dataset: datasets.Dataset, tmp_path: Path) -> None:
    keep = first_rows(dataset, "url")
    again = first_rows(dataset, "url")
    assert pickle.dumps(keep) == pickle.dumps(again)
    twin = pickle.loads(pickle.dumps(keep))
    assert [twin({}, n) for n in range(1000)] == [keep({}, n) for n in range(1000)]
    assert keep({}, [0, 1]) == [keep({}, 0), keep({}, 1)]
    assert isinstance(keep({}, np.int64(0)), bool)
    with pytest.raises(IndexError, match="index must be 0 to 999"):
        keep({}, 1000)


def test_what_is_refused(dataset: datasets.Dataset) -> None:
    with pytest.raises(TypeError, match=r"must be a datasets\.Dataset, not list"):
        first_rows(["a"])
    with pytest.raises(KeyError, match="no such column"):
        first_rows(dataset, "missing")
    with_null = datasets.Dataset.from_dict({"x": ["a", None, None, "a"]})
    with pytest.raises(ValueError, match="row 1 has a null as its key"):
        first_rows(with_null, "x")
    assert first_rows(with_null, "x", nulls="one").indices.tolist() == [0, 1]
    assert first_rows(with_null, "x", nulls="keep").indices.tolist() == [0, 1, 2]
    empty = datasets.Dataset.from_dict({"x": []})
    assert first_rows(empty, "x").indices.tolist() == []
