"""Digests in chunks: those of the whole, and those before an error, whatever the keys come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbins import _bulk, digest_many


def texts(count: int) -> list[str]:
    return [f"key {number}" for number in range(count)]


def spans(count: int) -> _bulk.Spans:
    data = [each.encode() for each in texts(count)]
    return _bulk.Spans(b"".join(data), np.cumsum([0, *map(len, data)], dtype=np.uint64))


def split(count: int) -> list[list[str]]:
    """Cut the keys into arrays of 0, 1, 4, 9 … keys."""
    keys, found, size = texts(count), [], 0
    while keys:
        found.append(keys[: size**2])
        keys, size = keys[size**2 :], size + 1
    return found


SOURCES: dict[str, Callable[[int], object]] = {
    "list": texts,
    "iterator": lambda n: iter(texts(n)),
    "array": lambda n: np.array(texts(n), dtype="U9"),
    "bytes": lambda n: np.array(texts(n), dtype="S9"),
    "objects": lambda n: np.array(texts(n), dtype=object),
    "column": lambda n: pa.array(texts(n), pa.string()),
    "stream": lambda n: pa.chunked_array(split(n), pa.string()),
    "dictionary": lambda n: pa.array(texts(n), pa.string()).dictionary_encode(),
    "lines": lambda n: _bulk.Lines("".join(f"{each}\n" for each in texts(n)).encode(), b"\n"),
    "spans": spans,
}


@pytest.mark.parametrize("kind", SOURCES)
@settings(max_examples=15)
@given(count=st.integers(0, 60), chunk=st.integers(1, 25), seed=st.integers(0, 2**64 - 1))
def test_chunks_are_full_and_together_the_digests_of_the_whole(
    kind: str, count: int, chunk: int, seed: int
) -> None:
    chunks = list(_bulk.digest_chunks(SOURCES[kind](count), seed, chunk=chunk))
    assert [each.size for each in chunks] == [chunk] * (count // chunk) + [count % chunk] * (
        count % chunk > 0
    )
    found = np.concatenate([np.empty(0, np.uint64), *chunks])
    assert (found == digest_many(texts(count), seed=seed)).all()


@settings(max_examples=15)
@given(shape=st.tuples(st.integers(1, 5), st.integers(0, 12)), chunk=st.integers(1, 25))
def test_arrays_of_any_strides_are_read_in_their_order(shape: tuple[int, int], chunk: int) -> None:
    keys = np.arange(2 * shape[0] * shape[1], dtype=np.int32).reshape(shape[1], 2 * shape[0])[:, ::-2].T
    found = np.concatenate([np.empty(0, np.uint64), *_bulk.digest_chunks(keys, 7, chunk=chunk)])
    assert (found == digest_many(keys, seed=7).ravel()).all()
    words = found.reshape(-1, 1)[::2]
    again = np.concatenate(
        [np.empty(0, np.uint64), *_bulk.digest_chunks(words, 7, digests=True, chunk=chunk)]
    )
    assert (again == words.ravel()).all()


def raising(position: int) -> Iterator[str]:
    yield from texts(position)
    raise OSError("lost")


BROKEN: dict[str, Callable[[int], Any]] = {
    "a bad type": lambda i: [*texts(i), 1.5, *texts(9)],
    "a generator": raising,
    "an element": lambda i: np.array([*texts(i), "\ud800", *texts(9)]),
    "a null": lambda i: pa.array([*texts(i), None, *texts(9)]),
    "a null of a stream": lambda i: pa.chunked_array([texts(i), [None, *texts(9)]], pa.string()),
    "a null of a dictionary": lambda i: pa.array([*texts(i), None, *texts(9)]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", BROKEN)
@settings(max_examples=15)
@given(position=st.integers(0, 60), chunk=st.integers(1, 25))
def test_an_error_comes_after_all_keys_before_it_and_names_its_place(
    kind: str, position: int, chunk: int
) -> None:
    found = [np.empty(0, np.uint64)]
    chunks = _bulk.digest_chunks(BROKEN[kind](position), 0, chunk=chunk)

    def read() -> None:
        for each in chunks:
            found.append(each)

    with pytest.raises((TypeError, ValueError, OSError)) as caught:
        read()
    notes = "".join(getattr(caught.value, "__notes__", ()))
    assert f"keys[{position}]" in str(caught.value) or f"item {position} of" in notes
    assert (np.concatenate(found) == digest_many(texts(position))).all()


def test_what_holds_no_keys_is_refused_before_the_first_chunk() -> None:
    for bad in ("text", 5, np.zeros(3), np.array(1)):
        with pytest.raises(TypeError):
            _bulk.digest_chunks(bad, 0)
