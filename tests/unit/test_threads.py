"""Threads: those of a bulk call (`threads=`) leave no trace, and those of the user lose nothing.

threads=n        the bytes, the answers and the errors of one thread
Python threads   writers take turns by themselves; look-ups and whole-filter reads go on meanwhile
"""

from __future__ import annotations

import itertools
import operator
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kinds import FIRST_OF_CLASS, KINDS, VARIANTS, Kind
from sizes import size
from together import together

from evenbins import BlockedBloomFilter, BloomFilter, digest_many

THREADS = [1, 2, 3, 7, 16]
MANY = 300_000  # several rounds of several threads, whatever their share
NUMBERS, OTHERS = np.random.default_rng(8).integers(-(2**63), 2**63, (2, MANY))
TEXTS = pa.array([f"key number {i}" for i in range(50_000)])


each_class_that_merges = pytest.mark.parametrize(
    "class_kind", [each for each in FIRST_OF_CLASS if each.merges], ids=lambda each: each.cls.__name__
)


def one_thread(kind: Kind, keys: Any, capacity: int = 20_000) -> Any:
    f = kind(capacity)
    f.add_many(keys)
    return f


def roomy(kind: Kind, keys: int) -> int:
    """A capacity for so many keys: few, unless the filter refuses more than it was planned for."""
    return max(keys, 1) if kind.runs else 5000


def assert_holds(kind: Kind, f: Any, keys: Any, expected: Any) -> None:
    """The filter got these keys, nobody knows in which order: it is `expected`, if orders leave no trace."""
    f._check()
    assert f.contains_many(keys).all()
    if kind.ordered:
        before = f.to_bytes()
        f.add_many(keys)
        assert f.to_bytes() == before
    else:
        assert f == expected


# --- threads= ------------------------------------------------------------------------------------------


def test_any_number_of_threads_leaves_the_same_bytes_and_answers(kind: Kind) -> None:
    expected = one_thread(kind, NUMBERS, MANY)
    probes = np.concatenate([NUMBERS[::3], OTHERS[:100_000]])
    expected_answers = expected.contains_many(probes)
    for threads in THREADS:
        f = kind(MANY)
        f.add_many(NUMBERS, threads=threads)
        assert f == expected, threads
        f._check()
        answers = f.contains_many(probes, threads=threads)
        assert np.array_equal(answers, expected_answers), threads
        assert answers[: len(NUMBERS[::3])].all()


def _threads_and_numbers() -> Iterator[Any]:
    """Every number of threads with every number of keys; in a short run every second of these pairs."""
    numbers = (0, 1, 1023, 1024, 1025, 2047, 2048, 2049, 14_335, 14_336, 65_535, 65_537, 131_073)
    for (i, n), (j, threads) in itertools.product(enumerate(numbers), enumerate(THREADS)):
        yield pytest.param(threads, n, marks=[pytest.mark.long] if (i + j) % 2 else [])


@pytest.mark.parametrize(("threads", "n"), list(_threads_and_numbers()))
def test_any_number_of_keys(threads: int, n: int, class_kind: Kind) -> None:
    keys, capacity = NUMBERS[:n], roomy(class_kind, n)
    f = class_kind(capacity)
    f.add_many(keys, threads=threads)
    assert f == one_thread(class_kind, keys, capacity)
    assert f.contains_many(keys, threads=threads).all()
    assert f.contains_many(keys, threads=threads).shape == (n,)


@pytest.mark.parametrize("threads", [2, 3, 7, 16, 64])
@pytest.mark.parametrize("lines", [1, 2, 3, 5, 6, 15, 17])
@pytest.mark.parametrize("block_bits", [256, 512])
def test_more_threads_than_blocks(threads: int, lines: int, block_bits: int) -> None:
    """Also odd numbers of half lines, which two threads must not share."""
    f, expected = (
        BlockedBloomFilter(lines, bits_per_key=block_bits, block_bits=block_bits, hashes=1) for _ in range(2)
    )
    assert f.plan.core[0] == lines
    keys = NUMBERS[:30_000] if lines > 3 else NUMBERS[:2000]
    f.add_many(keys, threads=threads)
    expected.add_many(keys)
    assert f == expected


@pytest.mark.parametrize("threads", [2, 3, 7, 16, 64])
@pytest.mark.parametrize("bits", [1, 63, 65, 511, 512, 513, 1025, 4096])
def test_more_threads_than_cache_lines(threads: int, bits: int) -> None:
    f, expected = (BloomFilter(1, bits_per_key=bits, hashes=1) for _ in range(2))
    keys = NUMBERS[: max(2048, 4 * bits)]
    f.add_many(keys, threads=threads)
    expected.add_many(keys)
    assert f == expected
    f._check()


SOURCES: dict[str, Callable[[], Any]] = {
    "uint64": lambda: NUMBERS.view("u8")[:40_000],
    "backwards": lambda: NUMBERS[:40_000][::-1],
    "byte order": lambda: NUMBERS[:40_000].astype(">i8"),
    "Fortran order": lambda: np.asfortranarray(NUMBERS[:40_000].reshape(200, 200)),
    "int16": lambda: NUMBERS[:40_000].astype("i2"),
    "bytes": lambda: np.arange(40_000).astype("S"),
    "text": lambda: np.arange(40_000).astype("U"),
    "objects": lambda: np.arange(40_000).astype(object),
    "list": lambda: list(range(40_000)),
    "generator": lambda: (str(i) for i in range(40_000)),
    "arrow": lambda: pa.array(NUMBERS[:40_000]),
    "arrow text": lambda: TEXTS,
    "arrow views": lambda: TEXTS.cast(pa.string_view()),
    "arrow slice": lambda: TEXTS.slice(13, 30_001),
    "arrow dictionary": lambda: TEXTS.dictionary_encode(),
    "arrow chunks": lambda: pa.chunked_array(
        [TEXTS.slice(0, 7), TEXTS.slice(7, 20_000), TEXTS.slice(30_000)]
    ),
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())
def test_threads_read_every_source_alike(make: Callable[[], Any], class_kind: Kind) -> None:
    expected = one_thread(class_kind, make())
    half = class_kind(20_000)
    half.add_many(digest_many(make(), half.seed).ravel()[::2], digests=True)
    answers = half.contains_many(make())
    for threads in THREADS[:: size(2, 1)]:
        f = class_kind(20_000)
        f.add_many(make(), threads=threads)
        assert f == expected
        assert np.array_equal(half.contains_many(make(), threads=threads), answers)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_take_digests_too(kind: Kind, threads: int) -> None:
    digests = digest_many(NUMBERS[:50_000], kind().seed)
    f = kind(20_000)
    f.add_many(digests, digests=True, threads=threads)
    assert f == one_thread(kind, NUMBERS[:50_000])
    assert f.contains_many(digests, digests=True, threads=threads).all()


def test_digests_in_any_order_go_to_their_owners(kind: Kind) -> None:
    """Ascending, descending and all equal digests: one owner gets everything, or they come in runs."""
    ascending = np.linspace(0, 2**64 - 2**12, 50_000).astype(np.uint64)
    for digests in (
        ascending,
        ascending[::-1],
        np.full(50_000, 2**64 - 1, np.uint64),
        np.zeros(50_000, np.uint64),
    ):
        expected = kind(20_000)
        expected.add_many(digests, digests=True)
        for threads in (2, 3, 16):
            f = kind(20_000)
            f.add_many(digests, digests=True, threads=threads)
            assert f == expected


BAD_AT = [0, 1, 1023, 1024, 1984, 1985, 1986, 6553, 6554, 65_535, 65_536, 65_537, 131_071, 131_072, 196_608]


def _kinds_and_threads() -> Iterator[Any]:
    """Three threads with every kind, one and two with the first of each class; the others in long runs."""
    for each, threads in itertools.product(KINDS, (1, 2, 3, 7)):
        short = threads == 3 or (threads < 3 and each in FIRST_OF_CLASS)
        marks = [] if short and each.name not in VARIANTS else [pytest.mark.long]
        yield pytest.param(each, threads, id=f"{each.name}-{threads}", marks=marks)


# The positions are ends of rounds of two and of three threads.
@pytest.mark.parametrize(("kind", "threads"), list(_kinds_and_threads()))
def test_exactly_the_keys_before_a_bad_one_are_in(kind: Kind, threads: int) -> None:
    """Around the share of one thread (2**16 items: keys, or positions of k hashes), and at random."""
    n = 200_000
    share = 65_536 // max(kind().plan.hashes, 1)
    capacity = roomy(kind, n)
    drawn = random.Random(threads).sample(range(n), 3)
    expected, before = kind(capacity), 0
    for at in sorted(
        {*BAD_AT, *drawn, share - 1, share, share + 1, 2 * share, 3 * share - 1, 7 * share, n - 1}
        & set(range(n))
    ):
        mask = np.zeros(n, bool)
        mask[[at, min(at + 1, n - 1), n - 1]] = True  # later ones must not matter
        column = pa.array(NUMBERS[:n], mask=mask)
        expected.add_many(NUMBERS[before:at])
        before = at
        f = kind(capacity)
        with pytest.raises(ValueError, match=rf"^keys\[{at}\]: .*null"):
            f.add_many(column, threads=threads)
        assert f == expected, at
        with pytest.raises(ValueError, match=rf"^keys\[{at}\]: .*null"):
            f.contains_many(column, threads=threads)


@pytest.mark.parametrize("threads", [2, 5])
def test_a_bad_key_in_a_later_chunk(class_kind: Kind, threads: int) -> None:
    bad = pa.array(NUMBERS[:30_000], mask=np.arange(30_000) == 20_000)
    chunked = pa.chunked_array([pa.array(NUMBERS[100_000:150_000]), bad, pa.array(NUMBERS[:10])])
    f = class_kind(5000)
    with pytest.raises(ValueError, match=r"^keys\[70000\]: .*null"):
        f.add_many(chunked, threads=threads)
    assert f == one_thread(class_kind, np.concatenate([NUMBERS[100_000:150_000], NUMBERS[:20_000]]), 5000)


@pytest.mark.parametrize("threads", [0, -1, 1025, 10**30])
def test_a_number_of_threads_out_of_range_is_a_value_error(kind: Kind, threads: int) -> None:
    f = kind()
    for call in (f.add_many, f.contains_many):
        with pytest.raises(ValueError, match=rf"^threads must be 1 to 1024, not {threads}"):
            call([1], threads=threads)
    assert f == kind()


@pytest.mark.parametrize("threads", [1.0, "2", True, [1]])
def test_threads_that_are_no_int_are_a_type_error(kind: Kind, threads: Any) -> None:
    f = kind()
    for call in (f.add_many, f.contains_many):
        kind_of = type(threads).__name__
        with pytest.raises(TypeError, match=rf"^threads must be an int or None, not {kind_of}"):
            call([1], threads=threads)
    assert f == kind()


def test_threads_is_a_keyword_and_any_integer_will_do(kind: Kind) -> None:
    f = kind()
    f.add_many([1], threads=np.int8(2))
    f.add_many([1], threads=1024)
    assert 1 in f
    with pytest.raises(TypeError):
        f.add_many([1], 2)


# --- several Python threads ----------------------------------------------------------------------------


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Let Python switch between threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def bulk(f: Any, keys: np.ndarray[Any, Any], threads: int) -> Callable[[], None]:
    return lambda: [f.add_many(part, threads=threads) for part in np.array_split(keys, 5)] and None


def singles(f: Any, keys: np.ndarray[Any, Any]) -> Callable[[], None]:
    return lambda: [f.add(key) for key in keys.tolist()] and None


def items(f: Any, keys: np.ndarray[Any, Any]) -> Callable[[], None]:
    return lambda: f.add_many(iter(keys.tolist()))


WRITERS: dict[str, list[Callable[[Any, np.ndarray[Any, Any]], Callable[[], None]]]] = {
    "bulk and bulk": [lambda f, keys: bulk(f, keys, 1), lambda f, keys: bulk(f, keys, 1)],
    "bulk and bulk, threads": [lambda f, keys: bulk(f, keys, 2), lambda f, keys: bulk(f, keys, 3)],
    "bulk and single": [lambda f, keys: bulk(f, keys, 1), singles],
    "single and single": [singles, singles, singles],
    "bulk, items and single": [lambda f, keys: bulk(f, keys, 2), items, singles, singles],
}


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("writers", WRITERS.values(), ids=WRITERS.keys())
def test_writers_at_the_same_time_lose_nothing(kind: Kind, writers: list[Any]) -> None:
    """Small filters, so that all touch the same words; rounds of 4,000 keys a writer."""
    for number in range(size(3, 5)):
        keys = NUMBERS[20_000 * number : 20_000 * number + 4000 * len(writers)]
        f = kind(2000)
        parts = np.array_split(keys, len(writers))
        together(*(write(f, part) for write, part in zip(writers, parts, strict=True)))
        assert_holds(kind, f, keys, one_thread(kind, keys, 2000))


@each_class_that_merges
@pytest.mark.usefixtures("eager_switching")
def test_single_adds_lose_nothing_while_others_merge_and_read(class_kind: Kind) -> None:
    """Two adders, a merger and a reader on one filter of one hash; the races are rare: many rounds."""
    for _ in range(size(20, 50)):
        f, other = (class_kind.planned(20_000, bits_per_key=8, hashes=1) for _ in range(2))
        other.add_many(["x", "y", "z"])

        def merge(f: Any = f, other: Any = other) -> None:
            for _ in range(300):
                f |= other

        def read(f: Any = f) -> None:
            for _ in range(30):
                f.to_bytes()

        together(singles(f, NUMBERS[:2000]), singles(f, NUMBERS[2000:4000]), merge, read)
        assert f.contains_many(["x", "y", "z"]).all()
        expected = one_shot(class_kind, ["x", "y", "z"], NUMBERS[:4000])
        for _ in range(299 if class_kind.repeats else 0):
            expected |= other
        assert_holds(class_kind, f, NUMBERS[:4000], expected)


def one_shot(class_kind: Kind, *parts: Any) -> Any:
    f = class_kind.planned(20_000, bits_per_key=8, hashes=1)
    f.update(*parts)
    return f


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_filter_can_be_saved_copied_and_asked_while_others_add(
    class_kind: Kind, tmp_path: Path, threads: int
) -> None:
    """Every file and copy is sound in itself, holds what was in before, and nothing that never went in."""
    f = class_kind(MANY)
    first = NUMBERS[:1000]
    f.add_many(first)
    complete = one_thread(class_kind, NUMBERS, MANY)
    done = threading.Event()

    def add() -> None:
        try:
            for part in np.array_split(NUMBERS[1000:], 20):
                f.add_many(part[:-10], threads=threads)
                singles(f, part[-10:])()
        finally:
            done.set()

    def sound(g: Any) -> None:
        g._check()
        assert g.contains_many(first).all()
        if class_kind.repeats:
            assert (g.count_many(NUMBERS) <= complete.count_many(NUMBERS)).all()
        elif not class_kind.ordered and class_kind.merges:
            assert complete | g == complete

    def save() -> None:
        while not done.is_set():
            f.save(tmp_path / "f")
            sound(class_kind.cls.load(tmp_path / "f"))

    def copy() -> None:
        while not done.is_set():
            sound(f.copy())
            sound(class_kind.cls.from_bytes(f.to_bytes()))

    def ask() -> None:
        while not done.is_set():
            assert int(first[7]) in f
            assert f.contains_many(first, threads=threads).all()
            assert f.stats().fill > 0
            assert f.approx_items() > 0
            assert f != class_kind(MANY)

    together(add, save, copy, ask)
    assert f == complete


@each_class_that_merges
@pytest.mark.usefixtures("eager_switching")
def test_filters_merged_into_one_another_at_the_same_time_do_not_block_for_ever(class_kind: Kind) -> None:
    f, g = class_kind.filled(range(100)), class_kind.filled(range(100, 200))

    def into(a: Any, b: Any) -> Callable[[], None]:
        def work() -> None:
            for _ in range(300):
                assert operator.ior(a, b) is a
                assert (a == b) in (True, False)

        return work

    together(into(f, g), into(g, f), into(f, g), into(g, f))
    if class_kind.repeats:  # which counters are full depends on whose turn it was
        assert f.contains_many(range(200)).all()
        assert g.contains_many(range(200)).all()
        return
    assert f == g
    assert_holds(class_kind, f, range(200), class_kind.filled(range(200)))


def test_clear_while_others_add_leaves_a_sound_filter(kind: Kind) -> None:
    f = kind(2000)

    def clear() -> None:
        for _ in range(50):
            f.clear()

    together(bulk(f, NUMBERS[:20_000], 2), singles(f, NUMBERS[:3000]), clear)
    f._check()
    f.clear()
    assert f == kind(2000)
