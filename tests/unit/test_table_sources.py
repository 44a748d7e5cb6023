"""Keys that tables read in place, NumPy arrays and Arrow columns, against a dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbins import MultilevelTable

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
NUMBERS = st.integers(-(2**63), 2**64 - 1)


def column_of(keys: list[Any], cuts: int) -> pa.ChunkedArray:
    """Return keys as an Arrow column in several chunks."""
    whole = pa.array(keys)
    size = max(1, len(keys) // cuts)
    return pa.chunked_array([whole[i : i + size] for i in range(0, len(keys), size)], type=whole.type)


def sources_of(keys: list[Any], cuts: int) -> list[Any]:
    """Return the same keys in every form that a column of them may have."""
    kinds = {type(each) for each in keys}
    if kinds == {str}:
        arrays = [np.array(keys), np.array(keys).astype(">U20"), pd_strings(keys)]
        views = [pa.array(keys, each) for each in (pa.large_string(), pa.string_view())]
        return [*arrays, column_of(keys, cuts), *views, pa.array(keys).dictionary_encode()]
    if kinds == {bytes}:
        fitting = [np.array(keys)] if not any(each.endswith(b"\0") for each in keys) else []
        return [*fitting, column_of(keys, cuts), pa.array(keys, pa.large_binary())]
    dtype = np.uint64 if min(keys) >= 0 else np.int64
    array = np.array(keys, dtype)
    wide = np.array([keys, keys], dtype)[0]
    return [array, array.astype(array.dtype.newbyteorder()), wide, np.repeat(array, 2)[::2], pa.array(array)]


def pd_strings(keys: list[str]) -> Any:
    import pandas as pd

    return pd.Series(keys, dtype="str" if hasattr(pd, "ArrowDtype") else object)


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Draw some keys of one type, and others to look up besides."""
    signed = st.integers(-(2**63), 2**63 - 1)
    unsigned = st.integers(0, 2**64 - 1)
    keys = draw(st.sampled_from([TEXT, st.binary(max_size=20), signed, unsigned]))
    return (
        draw(st.lists(keys, min_size=1, max_size=60)),
        draw(st.lists(keys, max_size=30)),
    )


@given(columns(), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_table_of_digests_answers_as_a_dict(
    drawn: tuple[list[Any], list[Any]], cuts: int, threads: int
) -> None:
    keys, others = drawn
    model: dict[Any, int] = {}
    wanted = keys + others if keys[0].__class__ is not int or min(keys + others) >= 0 else keys
    for source in sources_of(keys, cuts):
        table = MultilevelTable(100, key_dtype="digest")
        values = np.arange(len(keys))
        table.insert_many(source, values, threads=threads)
        model = dict(zip(keys, values.tolist(), strict=True))
        assert len(table) == len(model)
        for looked_up in sources_of(wanted, cuts) if wanted else []:
            found = table.get_many(looked_up, default=-1, threads=threads)
            assert found.tolist() == [model.get(each, -1) for each in wanted]
            present = table.contains_many(looked_up, threads=threads)
            assert present.tolist() == [each in model for each in wanted]
        assert table.delete_many(source, threads=threads) == len(model)
        assert not len(table)


@pytest.mark.parametrize("key_dtype", ["int64", "uint64"])
@given(st.lists(NUMBERS, min_size=1, max_size=40), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_integers_out_of_range_are_absent(key_dtype: str, numbers: list[int], threads: int) -> None:
    """A look-up takes any integer of 64 bits; one that the key_dtype cannot hold is not there."""
    low, high = (-(2**63), 2**63) if key_dtype == "int64" else (0, 2**64)
    fitting = [each for each in numbers if low <= each < high]
    table = MultilevelTable(100, key_dtype=key_dtype)
    table.insert_many(fitting, range(len(fitting)))
    model = {key: i for i, key in enumerate(fitting)}
    for part in ([each for each in numbers if each >= 0], [each for each in numbers if each < 2**63]):
        dtype = pa.uint64() if all(each >= 0 for each in part) else pa.int64()
        column = pa.chunked_array([pa.array(part[:7], dtype), pa.array(part[7:], dtype)])
        assert table.contains_many(column, threads=threads).tolist() == [each in model for each in part]
        assert table.get_many(column, -1, threads=threads).tolist() == [model.get(each, -1) for each in part]
        absent = [i for i, each in enumerate(part) if each not in model]
        if absent:
            text = f"{len(absent)} of {len(part)} keys are not in the table, the first at index {absent[0]}"
            with pytest.raises(KeyError, match=text):
                table.get_many(column, threads=threads)


def test_digests_that_share_a_word_are_told_apart() -> None:
    """Look-ups compare low words first; the high words decide, and a free slot is no key."""
    rng = np.random.default_rng(1)
    low = rng.integers(0, 2**63, 300, dtype=np.uint64)
    words = np.column_stack([np.repeat(low, 3), np.tile(np.arange(3, dtype=np.uint64), 300)])
    words = np.vstack([words, [[0, 5], [0, 0], [9, 0]]]).astype(np.uint64)
    stored = np.concatenate([words[0::3], words[1::3]])
    s = MultilevelTable(2000, key_dtype="digest", value_dtype=None)
    for empty in (True, False):
        found = s._contains_many(words.ravel(), 2)
        assert found.tolist() == [not empty and row.tolist() in stored.tolist() for row in words]
        s.add_new_many(stored, digests=True)
    table = MultilevelTable(2000, key_dtype="digest")
    table._insert_many(stored.ravel(), np.arange(len(stored), dtype=np.uint64), False)
    values, absent, first = table._get_many(words.ravel(), 2**64 - 1, 1)
    where = {tuple(row): i for i, row in enumerate(stored.tolist())}
    assert values.tolist() == [where.get(tuple(row), 2**64 - 1) for row in words.tolist()]
    assert (absent, first) == (301, 2)


def test_many_keys_in_place_on_threads() -> None:
    """More keys than one stretch, in chunks of odd sizes: the answers of one thread and of single keys."""
    keys = np.array([b"key-%d" % i for i in range(50_000)])
    table = MultilevelTable(50_000, key_dtype="digest")
    table.insert_many(keys[::2], np.arange(25_000), threads=2)
    alone = MultilevelTable(50_000, key_dtype="digest")
    alone.insert_many(keys[::2].tolist(), np.arange(25_000), threads=1)
    assert table.same_bytes(alone)
    expected = np.where(np.arange(50_000) % 2, -1, np.arange(50_000) // 2)
    column = pa.chunked_array([keys[:17_001].tolist(), [], keys[17_001:].tolist()])
    for threads in (1, 2, 3, 7, 16):
        for source in (keys, column, keys.astype("U")):
            assert (table.get_many(source, -1, threads=threads) == expected).all()
            assert (table.contains_many(source, threads=threads) == (expected >= 0)).all()
    assert table.get_many(keys.reshape(100, 500), -1).shape == (100, 500)


@pytest.mark.parametrize("call", ["get_many", "contains_many", "insert_many", "delete_many"])
def test_a_bad_key_of_a_column_is_named(call: str) -> None:
    """The first one, however many threads read; nothing has been done with the others."""
    texts: list[str | None] = [f"key-{i}" for i in range(40_000)]
    texts[30_001] = texts[39_000] = None
    column = pa.chunked_array([texts[:20_000], texts[20_000:]])
    table = MultilevelTable(50_000, key_dtype="digest")
    table["key-1"] = 7
    arguments = (column, 0) if call == "insert_many" else (column,)
    with pytest.raises(ValueError, match=r"keys\[30001\]: the key is null.*\(no key has been taken\)"):
        getattr(table, call)(*arguments, threads=3)
    assert (len(table), table["key-1"]) == (1, 7)
    surrogates = np.array(["ok"] * 40_000 + ["\udc80"])
    arguments = (surrogates, 0) if call == "insert_many" else (surrogates,)
    with pytest.raises(ValueError, match=r"keys\[40000\]: a str key must be valid Unicode"):
        getattr(table, call)(*arguments, threads=2)
    with pytest.raises(TypeError, match="an Arrow column of strings, binary or integers, not float64"):
        table.contains_many(pa.array([1.5]))
    with pytest.raises(TypeError, match="keys must be integers, strings or bytes, not an array of float64"):
        table.contains_many(np.array([1.5]))
    numbers = MultilevelTable(10)
    with pytest.raises(TypeError, match=r"keys\[0\]: a key of this table must be an int"):
        numbers.contains_many(pa.array(["a"]))


def test_keys_of_another_table_are_refused() -> None:
    from evenbins import _core

    table = MultilevelTable(10, key_dtype="digest", seed=1)
    with pytest.raises(ValueError, match="these keys were made for another table"):
        table._contains_from(_core.array_words(np.array([1]), "i", False, 2), 1)
    with pytest.raises(TypeError, match=r"digests of 64 bits are no keys"):
        _core.array_words(np.array([1]), "d", False, 2)
