"""Strings, dictionaries and narrow integers in bulk: the digests of single keys, however they are laid out.

The core hashes 64 keys together by their lengths, narrows NumPy's code points by vector, looks for the end
of padding 16 bytes at a time, and keeps the digests of a dictionary from one chunk to the next. Each of these
has its own limits (64 keys, 16 bytes, 256 rows, …), so sizes here lie around them.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbins import BlockedBloomFilter, MultilevelTable, digest, digest_many

THREADS = (1, 2, 3, 7, 16)
SEED = 2**63 + 11


def assert_digests(keys: Any, expected: list[Any]) -> None:
    """Every element has the digest of the single key."""
    assert digest_many(keys, SEED).ravel().tolist() == [digest(key, SEED) for key in expected]


def of_length(n: int, letters: str = "abcdefgh\0é東𝄞") -> str:
    """A string of n characters that does not end in NUL."""
    text = "".join(random.Random(n).choices(letters, k=n))
    return text[:-1] + "z" if text.endswith("\0") else text


# --- length classes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("longest", [3, 8, 16, 32, 64, 65, 128, 240, 300])
def test_every_length_alone_and_among_others(longest: int) -> None:
    """In order, backwards and shuffled: groups of one class, of several, and with long keys among them."""
    keys = [of_length(n, "abc\0").encode() for n in range(longest + 1)] * 3
    shuffled = random.Random(longest).sample(keys, len(keys))
    for some in (keys, keys[::-1], sorted(keys, key=len), shuffled, [keys[longest]] * 200):
        expected = [xxhash.xxh3_64_intdigest(key, SEED) for key in some]
        for form in (some, tuple(some), pa.array(some), pa.array(some, pa.binary_view())):
            assert digest_many(form, SEED).tolist() == expected


@given(st.lists(st.binary(max_size=70), max_size=300), st.integers(0, 2**64 - 1))
@settings(max_examples=40, deadline=None)
def test_any_bytes_have_the_digest_of_the_specification(keys: list[bytes], seed: int) -> None:
    expected = [xxhash.xxh3_64_intdigest(key, seed) for key in keys]
    assert digest_many(keys, seed).tolist() == expected
    assert digest_many(pa.array(keys, pa.large_binary()), seed).tolist() == expected


# --- NumPy's strings -----------------------------------------------------------------------------------

WIDTHS = [*range(1, 36), 47, 48, 49, 63, 64, 65, 66, 79, 80, 81, 127, 128, 129, 130, 192, 200, 300, 2100]


@pytest.mark.parametrize("letters", ["abc", "ab\0", "aé\0", "東𝄞"], ids=ascii)
def test_padding_of_every_width_and_length(letters: str) -> None:
    for width in WIDTHS:
        lengths = [*range(min(width, 140) + 1), width, width - 1]
        texts = [of_length(n, letters) for n in lengths]
        wide = np.array(texts, f"U{width}")
        for form in (wide, wide.astype(wide.dtype.newbyteorder()), wide[::-1][::-1], np.repeat(wide, 2)[::2]):
            assert_digests(form, texts)
        raw = [text.encode()[:width].rstrip(b"\0") for text in texts]
        narrow = np.array(raw, f"S{width}")
        assert_digests(narrow, raw)
        assert_digests(narrow[::-1], raw[::-1])


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=24), min_size=1, max_size=300),
    st.data(),
)
@settings(max_examples=40, deadline=None)
def test_any_text_in_a_numpy_array(texts: list[str], data: st.DataObject) -> None:
    """Sliced, reversed, swapped, in two dimensions, at odd addresses: each element is what indexing gives."""
    keys = np.array(texts)
    if data.draw(st.booleans(), "swapped"):
        keys = keys.astype(keys.dtype.newbyteorder())
    if data.draw(st.booleans(), "unaligned"):
        room = np.zeros(keys.nbytes + 1, np.uint8)
        room[1:] = np.frombuffer(keys.tobytes(), np.uint8)
        keys = room[1:].view(keys.dtype)
    start, step = data.draw(st.integers(0, 3), "start"), data.draw(st.sampled_from([1, 2, -1]), "step")
    keys = keys[start::step]
    assert_digests(keys, keys.tolist())
    assert_digests(np.broadcast_to(keys, (2, keys.size)), keys.tolist() * 2)


def test_a_surrogate_in_an_array_is_refused_with_its_position() -> None:
    for at in (0, 1, 63, 64, 255, 256, 999):
        texts = [f"é{i}" if i % 7 else f"plain {i}" for i in range(1000)]
        keys = np.array(texts, "U9")
        keys.view(np.uint32).reshape(1000, 9)[at, 2] = 0xD800
        for some in (keys, keys.astype(">U9")):
            f, expected = BlockedBloomFilter(1000), BlockedBloomFilter(1000)
            with pytest.raises(ValueError, match=rf"^keys\[{at}\]: .*surrogate"):
                f.add_many(some)
            expected.add_many(texts[:at])
            assert f == expected


# --- integers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_narrow_integers_with_every_offset(width: str) -> None:
    rng = np.random.default_rng(5)
    limits = np.iinfo(width)
    keys = rng.integers(limits.min, limits.max, 2500, np.dtype(width), endpoint=True)
    column = pa.array(keys)
    validity = pa.array([True] * 2500).buffers()[1]
    unknown_nulls = pa.Array.from_buffers(column.type, 2500, [validity, column.buffers()[1]])
    for start, n in ((0, 2500), (1, 1025), (7, 64), (13, 1024), (2499, 1), (5, 0)):
        part = keys[start : start + n]
        assert_digests(part, part.tolist())
        assert_digests(column.slice(start, n), part.tolist())
        assert_digests(unknown_nulls.slice(start, n), part.tolist())


# --- dictionaries ---------------------------------------------------------------------------------------

VALUES = [of_length(i % 50) + str(i) for i in range(600)]


@st.composite
def chunks(draw: st.DrawFn) -> tuple[list[pa.DictionaryArray], list[str]]:
    """Chunks with a few dictionaries between them, some slices of others, in any order; and their keys."""
    values = pa.array(VALUES, draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view()])))
    dictionaries = []
    for _ in range(draw(st.integers(1, 3))):
        start, size = draw(st.integers(0, 300)), draw(st.sampled_from([1, 2, 40, 300]))
        dictionaries.append(values.slice(start, size))
    found, keys = [], []
    for _ in range(draw(st.integers(1, 8))):
        dictionary = draw(st.sampled_from(dictionaries))
        rows, seed = draw(st.sampled_from([0, 1, 30, 256, 257, 900])), draw(st.integers(0, 99))
        at = np.random.default_rng(seed).integers(0, len(dictionary), rows, np.int32)
        cut = draw(st.integers(0, 5))
        chunk = pa.DictionaryArray.from_arrays(pa.array(at), dictionary).slice(cut)
        found.append(chunk)
        keys += chunk.to_pylist()
    return found, keys


@given(chunks())
@settings(max_examples=60, deadline=None)
def test_dictionaries_that_stay_and_change(drawn: tuple[list[pa.DictionaryArray], list[str]]) -> None:
    arrays, keys = drawn
    column = pa.chunked_array(arrays)
    assert_digests(column, keys)
    table = MultilevelTable(len(keys) + 1, key_dtype="digest")
    table.insert_many(column, 1)
    assert table.contains_many(keys).all()
    assert len(table) == len(set(keys))


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("rows", [20_000, 400_000])
def test_threads_share_the_words_of_a_dictionary(threads: int, rows: int) -> None:
    """50,000 values: with few rows each reads its value; with many, threads keep words for each other."""
    values = pa.array([f"value {i}" for i in range(50_000)])
    at = np.random.default_rng(1).integers(0, 50_000, rows)
    column = pa.DictionaryArray.from_arrays(pa.array(at), values)
    f, expected = BlockedBloomFilter(50_000, seed=3), BlockedBloomFilter(50_000, seed=3)
    f.add_many(column, threads=threads)
    expected.add_many(values.take(pa.array(np.unique(at))))
    assert f == expected
    assert f.contains_many(column, threads=threads).all()


def test_the_memory_of_a_dictionary_is_not_taken_for_another() -> None:
    """Each chunk's dictionary is freed before the next is made, so that they may lie at one address."""

    def made() -> Any:
        for i in range(60):
            values = pa.array([f"{i} {j}" for j in range(50)])
            at = pa.array(np.arange(300, dtype=np.int32) % 50)
            yield pa.record_batch([pa.DictionaryArray.from_arrays(at, values)], names=["key"])

    kind = pa.dictionary(pa.int32(), pa.string())
    reader = pa.RecordBatchReader.from_batches(pa.schema([("key", kind)]), made())
    assert_digests(reader, [f"{i} {j % 50}" for i in range(60) for j in range(300)])


def test_a_null_in_a_dictionary_that_stays_is_found_in_every_chunk() -> None:
    values = pa.array([*VALUES[:20], None])
    good = pa.DictionaryArray.from_arrays(pa.array(np.arange(500, dtype=np.int32) % 20), values)
    for rows in (300, 900):
        at = np.arange(rows, dtype=np.int32) % 20
        at[rows - 5] = 20
        bad = pa.DictionaryArray.from_arrays(pa.array(at), values)
        position = 1000 + rows - 5
        f, expected = BlockedBloomFilter(100), BlockedBloomFilter(100)
        with pytest.raises(ValueError, match=rf"^keys\[{position}\]: the key is null"):
            f.add_many(pa.chunked_array([good, good, bad]))
        expected.add_many(VALUES[:20])
        assert f == expected


# --- lists ----------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
            st.binary(max_size=9),
            st.integers(-9, 9),
        ),
        max_size=200,
    )
)
@settings(max_examples=40, deadline=None)
def test_lists_and_tuples_of_mixed_keys(keys: list[Any]) -> None:
    for form in (keys, tuple(keys), iter(keys)):
        assert_digests(form, keys)


def test_a_list_that_a_key_changes_is_read_as_by_an_iterator() -> None:
    class Growing:
        def __init__(self, keys: list[Any], grow: bool) -> None:
            self.keys, self.grow = keys, grow

        def __index__(self) -> int:
            if self.grow:
                self.keys.append("more")
            else:
                self.keys.clear()
            return 5

    for grow in (True, False):
        keys: list[Any] = ["a" * 30, b"bytes"]
        keys += [Growing(keys, grow), "behind"]
        expected = ["a" * 30, b"bytes", 5, *(["behind", "more"] if grow else [])]
        assert_digests(keys, expected)
