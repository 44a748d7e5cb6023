"""Exact sets: a multilevel table without values, against a Python set and the readable twin."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import runpy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenbins
from evenbins import ChainedTable, KeyRangeError, MultilevelTable, PagedTable, TableFullError, _core
from evenbins._bulk import Lines, Spans
from evenbins.study.stepwise import Full
from evenbins.tables.exact_sets import digest_words
from evenbins.tables.multilevel import plan_multilevel
from evenbins.tables.multilevel_plan import SCHEMES, plan_of_table_core
from reference import ReferenceMultilevel
from reference import format as reference_format

GOLDEN = Path(__file__).parents[1] / "golden"
MAKER = runpy.run_path(str(GOLDEN / "make_golden.py"))
TYPES = ["int64", "uint64", "digest"]


def exact(capacity: int = 1000, key_dtype: str = "digest", **options: Any) -> MultilevelTable:
    return MultilevelTable(capacity, key_dtype=key_dtype, value_dtype=None, **options)


def normal(key: Any) -> Any:
    """Return a key such that equal keys are equal in Python: a str and its bytes are one."""
    return key.encode() if isinstance(key, str) else key


def first_occurrences(keys: list[Any], seen: set[Any]) -> list[bool]:
    """Return for each key whether it is new, and add it."""
    answers = []
    for key in map(normal, keys):
        answers.append(key not in seen)
        seen.add(key)
    return answers


def mixed_keys(rng: random.Random, n: int) -> list[Any]:
    makers: list[Callable[[int], Any]] = [
        str, lambda i: str(i).encode(), lambda i: i, lambda i: i - 200, lambda i: 2**64 - 1 - i, "ä{}".format,
    ]  # fmt: skip
    return [rng.choice(makers)(rng.randrange(200)) for _ in range(n)]


# --- one key ----------------------------------------------------------------------------------------------


def test_the_verbs_of_a_set() -> None:
    s = exact()
    assert s.add("a") is None  # type: ignore[func-returns-value]
    assert s.add("a") is None  # type: ignore[func-returns-value]
    assert (s.add_new("a"), s.add_new(b"a"), s.add_new("b"), s.add_new(7), s.add_new("7")) == (
        False, False, True, True, True,
    )  # fmt: skip
    assert ("a" in s, b"b" in s, 7 in s, 8 in s, len(s)) == (True, True, True, False, 4)
    assert (s.discard("a"), s.discard("a"), "a" in s, len(s)) == (True, False, False, 3)
    s.remove(7)
    with pytest.raises(KeyError, match="7"):
        s.remove(7)
    s.update(["x", "y"], iter([1, 2]))
    s.add_many(["x", "z"])
    assert s.contains_many(["x", "y", "z", 1, 2, 3, "b"]).tolist() == [True] * 5 + [False, True]
    assert s.discard_many(["x", "nobody"]) == 1
    assert s.delete_many(["y"], missing="error") == 1
    with pytest.raises(KeyError, match="1 of 1 keys"):
        s.delete_many(["y"], missing="error")
    s._check()
    s.clear()
    assert len(s) == 0
    assert s.to_bytes() == exact().to_bytes()


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s["a"],
        lambda s: s.get("a"),
        lambda s: s.__setitem__("a", 1),
        lambda s: s.__delitem__("a"),
        lambda s: s.pop("a"),
        lambda s: s.pop("a", None),
        lambda s: s.setdefault("a", 1),
        lambda s: s.items(),
        lambda s: s.values(),
        lambda s: s.get_many(["a"]),
        lambda s: s.insert_many(["a"], [1]),
        lambda s: s.save("nowhere", layout="pages"),
    ],
)
def test_a_set_has_no_values(call: Callable[[Any], Any]) -> None:
    s = exact()
    s.add("a")
    before = s.to_bytes()
    with pytest.raises(TypeError, match=r"exact set \(value_dtype=None\).*Use add"):
        call(s)
    assert s.to_bytes() == before


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.add(1),
        lambda t: t.add_new(1),
        lambda t: t.discard(1),
        lambda t: t.remove(1),
        lambda t: t.add_many([1]),
        lambda t: t.add_new_many([1]),
        lambda t: t.discard_many([1]),
        lambda t: t.union([1]),
    ],
)
def test_a_table_with_values_is_not_a_set(call: Callable[[Any], Any]) -> None:
    t = MultilevelTable(100)
    t[1] = 2
    with pytest.raises(TypeError, match=r"this table has values: use table\[key\] = value"):
        call(t)
    assert dict(t.items()) == {1: 2}


@pytest.mark.parametrize("key", [1.5, None, [1], ("a", "b"), np.arange(2), object()])
def test_what_is_no_key_is_refused(key: Any) -> None:
    s = exact()
    calls: list[Callable[[Any], Any]] = [s.add, s.add_new, s.discard, s.remove, lambda key: key in s]
    for call in (*calls, lambda key: s.add_new_many(["a", key]), lambda key: s.discard_many([key])):
        with pytest.raises(TypeError, match="key"):
            call(key)
    assert len(s) == 0


def test_ranges_of_integers() -> None:
    s = exact(key_dtype="int64")
    assert not s.discard(2**63)  # it cannot be there
    with pytest.raises(KeyRangeError, match="uint64"):
        s.add(2**63)
    with pytest.raises(KeyRangeError, match=r"keys\[1\]"):
        s.add_new_many([1, 2**63])
    with pytest.raises(TypeError, match="digest"):
        s.add("a")
    assert len(s) == 0
    d = exact()
    d.add_many([-1, 2**64 - 1, -(2**63), 2**63])
    assert len(d) == 4
    with pytest.raises(KeyRangeError, match="not its keys"):
        d.add(2**64)


@pytest.mark.parametrize("wrong", [True, 1.5, "two", 0, -1, 2000])
def test_threads_are_checked(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="threads must be"):
        exact().add_new_many(["a"], threads=wrong)


@pytest.mark.parametrize("make", [ChainedTable, lambda n, **o: PagedTable.create("nowhere", n, **o)])
def test_other_tables_have_values(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="value_dtype must be one of"):
        make(100, value_dtype=None)


# --- many keys --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key_dtype", TYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_answers_and_bytes_are_those_of_single_calls(scheme: str, key_dtype: str) -> None:
    rng = random.Random(f"{scheme} {key_dtype}")
    keys = mixed_keys(rng, 900) if key_dtype == "digest" else [rng.randrange(300) for _ in range(900)]
    seen: set[Any] = set()
    expected = first_occurrences(keys, seen)
    single, whole, batches = (exact(len(seen), key_dtype, scheme=scheme, seed=3) for _ in range(3))
    assert [single.add_new(key) for key in keys] == expected
    assert whole.add_new_many(keys).tolist() == expected
    at, answers = 0, []
    while at < len(keys):
        n = rng.choice([1, 2, 7, 8, 9, 63, 64, 65, 200])
        answers += batches.add_new_many(keys[at : at + n], threads=rng.choice([None, 1, 2])).tolist()
        at += n
    assert answers == expected
    assert single.to_bytes() == whole.to_bytes() == batches.to_bytes()
    assert len(whole) == len(seen)
    assert whole.contains_many(keys).all()
    assert not whole.add_new_many(keys).any()
    whole._check()


def test_a_union_has_room_although_the_plan_of_the_set_has_little() -> None:
    """No list, no spare bucket: some of these sets of a few keys do not fit into a copy planned for 16."""
    plan = plan_multilevel(
        16, scheme="least-loaded", slots=1, space=1.0, overflow_limit=0, key_dtype="uint64", value_dtype=None
    )
    full = 0
    for number in range(200):
        keys = set(random.Random(number).sample(range(1000), 6))
        s = MultilevelTable.from_plan(plan)
        try:
            s.copy().update(keys)
        except TableFullError:
            full += 1
        other = MultilevelTable.from_keys(keys, key_dtype="uint64")
        for united in (s | keys, keys | s, s | other, other | s, s.union(list(keys), other)):
            assert united == keys
            united._check()
        assert not s
    assert full > 0


def _sets() -> Iterator[Any]:
    """Every scheme, slots and type of keys; in a short run every two of them together."""
    for (i, scheme), (j, slots), (k, key_dtype) in itertools.product(
        enumerate(SCHEMES), enumerate((1, 2, 4, 8)), enumerate(TYPES)
    ):
        marks = [] if (i + j + k) % 2 == 0 else [pytest.mark.long]
        yield pytest.param(scheme, slots, key_dtype, marks=marks)


@pytest.mark.parametrize(("scheme", "slots", "key_dtype"), list(_sets()))
def test_every_kernel_leaves_the_bytes_of_the_twin(
    kernel: str, scheme: str, slots: int, key_dtype: str
) -> None:
    plan = plan_multilevel(
        200, scheme=scheme, slots=slots, space=1.05, overflow_limit=40, key_dtype=key_dtype, value_dtype=None,
        next_hashes=slots == 2,
    )  # fmt: skip
    s, twin, rng = MultilevelTable.from_plan(plan), ReferenceMultilevel(plan.core), random.Random(slots)
    for n in (0, 1, 7, 8, 9, 64, 65, 200):
        numbers = [rng.randrange(230) for _ in range(n)]
        keys = [str(i) if key_dtype == "digest" and i % 2 else i for i in numbers]
        expected = []
        try:
            for key in keys:
                is_new = twin.find(twin.stored(key)) is None
                twin.insert(twin.stored(key), 0)
                expected.append(is_new)
            assert s.add_new_many(keys).tolist() == expected
        except Full:
            with pytest.raises(TableFullError) as raised:
                s.add_new_many(keys)
            assert raised.value.inserted == len(expected)
            assert raised.value.answers.tolist() == expected
        gone = keys[::3]
        assert s.discard_many(gone) == sum(twin.delete(twin.stored(key)) for key in gone)
    assert s.to_bytes().endswith(twin.payload())
    s._check()
    asked = [*range(-20, 300), *map(str, range(300))] if key_dtype == "digest" else list(range(300))
    found = [twin.find(twin.stored(key)) is not None for key in asked]
    assert s.contains_many(asked).tolist() == [key in s for key in asked] == found
    again = ReferenceMultilevel.from_payload(twin.core, 0, twin.payload())
    assert again.payload() == twin.payload()


def test_a_full_set_says_what_it_has_answered() -> None:
    s = exact(20)
    keys = [f"k{i // 2}" for i in range(400)]
    with pytest.raises(TableFullError, match="grown") as raised:
        s.add_new_many(keys)
    done = raised.value.inserted
    answers = raised.value.answers
    assert answers.dtype == bool
    assert answers.size == done < 400
    assert len(s) == answers.sum()
    s._check()
    rest = s.grown(400).add_new_many(keys[done:])  # what a deduplicator does
    assert [*answers, *rest] == [i % 2 == 0 for i in range(400)]
    with pytest.raises(TableFullError, match="the table is full"):
        list(map(s.add, map(str, range(400))))


@pytest.mark.parametrize(
    "keys",
    [
        np.array([3, 1, 3, -1, 1]),
        np.array([3, 1, 3, -1, 1], np.int8),
        np.array([3, 1, 3, -1, 1], ">i4"),
        np.array([3, 1, 3, 7, 1], np.uint64),
        np.array([[3, 1], [3, 7]], np.uint16).T,
        np.arange(20)[::-3],
        np.array([True, False, True]),
        np.array(["a", "bä", "a", ""]),
        np.array(["a", "bä", "a", ""]).astype(">U5"),
        np.array([b"a", b"b", b"a"]),
        np.array(["a", 3, b"a", "3"], object),
        pa.array(["a", "b", "a"]),
        pa.array([1, -2, 1], pa.int16()),
        pa.chunked_array([[b"x", b"y"], [b"x"]]),
        ["a", 1, "1", b"a"],
        range(4),
        Lines(b"a\nb\r\na\nc", b"\n"),
        Lines(b"a\0b\0a", b"\0"),
        Spans(b"abcabc", np.array([0, 2, 3, 3, 5, 6], np.uint64)),
    ],
)
def test_every_source_has_the_keys_of_its_items(keys: Any) -> None:
    """Bulk conversion, on whatever way, stores what single keys store."""
    match keys:
        case Lines():
            items: list[Any] = [line.rstrip(b"\r") for line in keys.block.split(keys.separator)]
        case Spans():
            offsets = keys.offsets.tolist()
            items = [keys.data[a:b] for a, b in itertools.pairwise(offsets)]
        case np.ndarray():
            items = keys.ravel().tolist()
        case pa.Array() | pa.ChunkedArray():
            items = keys.to_pylist()
        case _:
            items = list(keys)
    s, single = exact(seed=9), exact(seed=9)
    answers = s.add_new_many(keys)
    assert answers.ravel().tolist() == [single.add_new(item) for item in items]
    assert answers.ravel().tolist() == first_occurrences(items, set())
    assert answers.shape == (keys.shape if isinstance(keys, np.ndarray) else (len(items),))
    assert s.to_bytes() == single.to_bytes()
    words = digest_words(keys, 9)
    twin = ReferenceMultilevel(s.plan.core, 9)
    assert [a | b << 64 for a, b in words.tolist()] == [twin.stored(item) for item in items]
    assert exact(seed=9).add_new_many(words, digests=True).tolist() == answers.ravel().tolist()


def test_digests_are_checked() -> None:
    s = exact()
    words = digest_words(["a", 5])
    assert words.tolist()[1] == [evenbins.digest(5), 5]
    assert words.tolist()[0] == [_core.xxh3_128(b"a", 0) & (2**64 - 1), _core.xxh3_128(b"a", 0) >> 64]
    for wrong in (words.ravel(), words.astype(np.int64), words.tolist(), None, words[:, :1]):
        with pytest.raises(TypeError, match="digest_words returns"):
            s.add_new_many(wrong, digests=True)
    with pytest.raises(TypeError, match="key_dtype='digest'"):
        exact(key_dtype="int64").add_new_many(words, digests=True)
    s.add_many(words[::-1], digests=True)
    assert sorted(s) == sorted(a | b << 64 for a, b in words.tolist())
    assert digest_words([]).shape == (0, 2)


def test_threads_agree_on_who_was_first() -> None:
    """Eight threads add the same keys, one by one and in bulk: every key is new exactly once."""
    s = exact(5000)
    keys = [f"key {i}" for i in range(3000)]
    counts = np.zeros(len(keys), int)
    lock = threading.Lock()

    def add(number: int) -> None:
        rng = random.Random(number)
        order = rng.sample(range(len(keys)), len(keys))
        for start in range(0, len(order), 500):
            part = order[start : start + 500]
            if number % 2:
                answers = s.add_new_many([keys[i] for i in part])
            else:
                answers = np.array([s.add_new(keys[i]) for i in part])
            with lock:
                counts[part] += answers

    threads = [threading.Thread(target=add, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counts == 1).all()
    s._check()


# --- the whole set ----------------------------------------------------------------------------------------


def test_memory_is_that_of_the_keys() -> None:
    """At most 18 bytes per key for digests and 9 for integers, at the planned capacity."""
    for n in (10**5, 10**6, 10**7):
        assert plan_multilevel(n, key_dtype="digest", value_dtype=None).nbytes <= 18 * n
        assert plan_multilevel(n, value_dtype=None).nbytes <= 9 * n
    s = exact(1000)
    assert s.plan.nbytes == s.nbytes
    assert s.plan.value_dtype is None is s.value_dtype


@pytest.mark.parametrize("key_dtype", TYPES)
def test_round_trips(key_dtype: str, tmp_path: Path) -> None:
    s = exact(300, key_dtype, seed=11)
    s.add_many(range(250))
    path = tmp_path / "set.evenbins"
    s.save(path)
    twins = [
        s.copy(), copy.copy(s), copy.deepcopy(s), pickle.loads(pickle.dumps(s)),
        MultilevelTable.from_bytes(s.to_bytes()), MultilevelTable.load(path), MultilevelTable.open(path),
        evenbins.load(path), evenbins.open(path, verify=True),
    ]  # fmt: skip
    for twin in twins:
        assert twin == s
        assert twin.to_bytes() == s.to_bytes()
        assert twin.value_dtype is None
        assert len(twin) == 250
        assert twin.contains_many(range(250)).all()
    with pytest.raises(ValueError, match="read-only"):
        twins[6].add(1)
    with pytest.raises(ValueError, match="read-only"):
        twins[6].add_new_many([1])
    with pytest.raises(ValueError, match="read-only"):
        twins[6].discard(1)
    assert "value_dtype=none" in repr(s)
    grown = s.grown(5000)
    grown._check()
    assert sorted(grown) == sorted(s)
    assert grown.add_new_many(range(5000)).sum() == 4750


def test_unions() -> None:
    a, b = exact(10, seed=4), exact(2000, seed=4)
    a.update(["a", "b"])
    b.update(["b", *range(1000)])
    united = a | b
    assert len(united) == 1002
    assert united.contains_many(["a", "b", *range(1000)]).all()
    assert len(a) == 2
    b |= a
    assert len(b) == 1002
    assert sorted(b) == sorted(united)
    assert sorted(a.union(["c"], iter(["d"]))) == sorted(digest_sum("abcd", 4))
    a.update(a)
    assert len(a) == 2
    with pytest.raises(ValueError, match="same seed"):
        a | exact(10, seed=5)
    with pytest.raises(TypeError, match="same key_dtype"):
        a |= exact(10, "int64")
    with pytest.raises(TypeError):
        a | MultilevelTable(10, key_dtype="digest", seed=4)
    with pytest.raises(TypeError):
        a |= ["c"]


def digest_sum(text: str, seed: int) -> list[int]:
    return [_core.xxh3_128(each.encode(), seed) for each in text]


def test_iteration_sees_changes() -> None:
    s = exact(100, "int64")
    s.update([-5, 3, 0])
    assert sorted(s) == sorted(s.keys()) == [-5, 0, 3]
    with pytest.raises(RuntimeError, match="changed during iteration"):
        list(map(s.discard, s))


@pytest.mark.parametrize("summary", ["interpolation", "counting-multiple-bloom"])
def test_a_set_with_a_summary(summary: str) -> None:
    plain, guided = exact(500), exact(500, summary=summary)
    keys = mixed_keys(random.Random(summary), 700)
    assert guided.add_new_many(keys).tolist() == plain.add_new_many(keys).tolist()
    assert guided.discard_many(keys[::2]) == plain.discard_many(keys[::2])
    assert guided.contains_many(keys).tolist() == plain.contains_many(keys).tolist()
    assert list(guided) == list(plain)
    guided._check()


def test_a_set_with_lazy_deletions() -> None:
    s = exact(300, scheme="standard", levels=4, slots=1, summary="multiple-bloom", deletions="lazy")
    seen: set[str] = set()
    rng = random.Random(1)
    for _ in range(20):
        keys = [str(rng.randrange(300)) for _ in range(60)]
        expected = [not (key in seen or seen.add(key)) for key in keys]  # type: ignore[func-returns-value]
        assert s.add_new_many(keys).tolist() == expected
        gone = keys[::2]
        assert s.discard_many(gone) == len(set(gone) & seen)
        seen -= set(gone)
        s._check()
    s.rebuild()
    assert len(s) == len(seen)
    assert s.contains_many(sorted(seen)).all()


@pytest.mark.parametrize("golden", MAKER["SETS"])
def test_golden_sets_are_read_and_written_the_same(golden: str) -> None:
    data = (GOLDEN / f"{golden}.evenbins").read_bytes()
    s = MultilevelTable.from_bytes(data)
    s._check()
    assert s.value_dtype is None
    made = MAKER["golden_set"](golden)
    assert s.to_bytes() == data == made.to_bytes()
    keys = MAKER["set_keys"](s)
    assert len(s) == len({normal(key) for key in keys})
    assert s.contains_many(keys).all()
    assert not s.add_new_many(keys).any()
    reference_format.unpack(data)


def test_every_flipped_bit_is_refused() -> None:
    s = MultilevelTable.from_plan(plan_of_table_core((5, 2, 3, 0, 1, 4, 2, 2), keys=8))
    s.add_many(range(8))
    data = bytearray(s.to_bytes())
    for bit in range(0, 8 * len(data), 3):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(evenbins.FormatError):
            MultilevelTable.from_bytes(bytes(data))
        data[bit // 8] ^= 1 << bit % 8
