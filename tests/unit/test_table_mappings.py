"""Tables as MutableMappings: ==, |, popitem, views, and constructors that infer types."""

from __future__ import annotations

import threading
from collections import OrderedDict, UserDict
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenbins import ChainedTable, MultilevelTable, PagedTable, _core

TABLES: dict[str, Callable[..., Any]] = {
    "multilevel": lambda _, n=100, **options: MultilevelTable(n, **options),
    "chained": lambda _, n=100, **options: ChainedTable(n, **options),
    "paged": lambda path, n=100, **options: PagedTable.create(
        path / f"pages{len([*path.iterdir()])}", n, durable=False, **options
    ),
}


@pytest.fixture(params=TABLES)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    return lambda *size, **options: TABLES[request.param](tmp_path, *size, **options)


@pytest.fixture(params=["multilevel", "chained"])
def in_memory(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    return lambda *size, **options: TABLES[request.param](tmp_path, *size, **options)


def test_every_table_is_a_mutable_mapping(make: Callable[..., Any]) -> None:
    t = make()
    assert isinstance(t, MutableMapping)
    assert isinstance(t, Mapping)
    match t:
        case {}:
            pass
        case _:
            pytest.fail("no mapping to a pattern")
    missing = {name for name in dir(MutableMapping) if not name.startswith("_")} - {*dir(t)}
    assert not missing
    with pytest.raises(TypeError):
        hash(t)


# --- equality -----------------------------------------------------------------------------------------------


def test_a_table_equals_the_dict_of_its_items(make: Callable[..., Any]) -> None:
    t = make()
    items = {-5: 1, 0: 2, 7: -(2**63)}
    assert t == {}
    assert t != items
    t.update(items)
    assert t == items
    assert items == t
    assert t == OrderedDict(items)
    assert t == UserDict(items)
    for other in (
        {**items, 8: 1}, {-5: 1, 0: 2}, {-5: 1, 0: 2, 7: 3}, {-5: 1, 0: 2, 8: 3}, {-5: 1, 0: 2, "7": 3},
        {-5: 1, 0: 2, 2**64: 3}, {-5: 1, 0: 2, None: 3}, list(items.items()), None, 5, set(items),
    ):  # fmt: skip
        assert t != other
        assert other != t
    assert t == {-5: 1.0, 0: 2, 7: -(2**63)}


def test_a_table_of_digests_looks_the_keys_of_a_dict_up(make: Callable[..., Any]) -> None:
    t = make(key_dtype="digest", value_dtype="float64", seed=3)
    t.update({"a": 1.5, b"b": 2, 5: 3})
    assert t == {"a": 1.5, "b": 2, 5: 3}
    assert t == {b"a": 1.5, b"b": 2, 5: 3}
    assert t != {"a": 1.5, "b": 2, "5": 3}
    assert t != {"a": 1.5, b"a": 1.5, 5: 3}  # two keys of a dict, one of the table
    assert t != dict(t.items())  # digests are not its keys
    assert t != {"a": 1.5, "b": 2, "\ud800": 3}
    assert t != {"a": 1.5, "b": float("nan"), 5: 3}


def test_tables_are_equal_as_mappings(in_memory: Callable[..., Any], tmp_path: Path) -> None:
    items = {1: 10, 2: 20, 2**62: 30}
    a, b = in_memory(50), in_memory(500, seed=9)
    a.update(items)
    b.update(dict(reversed(items.items())))
    others: list[Any] = [make(tmp_path, 100) for make in TABLES.values()]
    others += [MultilevelTable(10, value_dtype="float64"), MultilevelTable(10, key_dtype="uint64")]
    others += [ChainedTable(10, key_dtype="digest")]
    for other in (b, *others):
        other.update(items)
        assert a == other
        assert other == a
        other[2] = 21
        assert a != other
        assert other != a
        other[2] = 20
        del other[1]
        other[3] = 10
        assert a != other
        assert other != a
    assert not a.same_bytes(b)
    assert a.same_bytes(a.copy())
    assert a.copy() == a


def test_large_values_are_compared_exactly() -> None:
    ints, floats = MultilevelTable(10), MultilevelTable(10, value_dtype="float64")
    ints[1], floats[1] = 2**53 + 1, 2.0**53
    assert ints != floats
    unsigned = MultilevelTable(10, value_dtype="uint64")
    unsigned[1], ints[1] = 2**64 - 1, -1
    assert ints != unsigned
    keys, unsigned_keys = MultilevelTable(10), MultilevelTable(10, key_dtype="uint64")
    keys[-1] = unsigned_keys[2**64 - 1] = 5
    assert keys != unsigned_keys
    digests = MultilevelTable(10, key_dtype="digest")
    digests[2**64 - 1] = 5
    assert digests == unsigned_keys
    assert unsigned_keys == digests
    assert digests != keys


def test_digests_of_two_seeds_are_not_compared() -> None:
    a, b = (MultilevelTable(10, key_dtype="digest", seed=seed) for seed in (1, 2))
    assert a == b
    a["x"] = b["x"] = 1
    assert a != b
    c = MultilevelTable(10, key_dtype="digest", seed=1)
    c[b"x"] = 1
    assert a == c


def test_exact_sets_compare_their_keys() -> None:
    a, b = MultilevelTable.from_keys(["a", 1]), MultilevelTable.from_keys([1, "a"], capacity=500)
    assert a == b == {"a", 1} == a
    assert a == frozenset([b"a", 1])
    assert a == {"a": 0, 1: 0}.keys()
    assert a != {"a", 2}
    assert a != {"a", b"a"}
    assert a != {"a", 1.5}
    assert a != {"a": 0, 1: 0}
    assert a != ["a", 1]
    assert a != MultilevelTable({"a": 0, 1: 0})
    assert MultilevelTable.from_keys([1, 2]) == MultilevelTable.from_keys([1, 2], key_dtype="digest")
    assert MultilevelTable.from_keys([1, 2]) != MultilevelTable.from_keys([1, 3])
    assert a != MultilevelTable.from_keys(["a", 1], seed=5)


def test_nan_equals_nothing() -> None:
    t = MultilevelTable(10, value_dtype="float64")
    t[1] = float("nan")
    assert t == t
    assert t != t.copy()
    assert t.same_bytes(t.copy())


# --- unions -------------------------------------------------------------------------------------------------


def test_unions_are_those_of_dicts(in_memory: Callable[..., Any]) -> None:
    left, right = dict.fromkeys(range(100), 0), dict.fromkeys(range(50, 300), 1)
    a, b = in_memory(100), in_memory(300)
    a.update(left)
    b.update(right)
    for united in (a | b, a | right):
        assert type(united) is type(a)
        assert united == left | right
        united._check()
    assert left | b == left | right
    assert (b | left) == right | left
    assert a == left
    assert b == right
    larger = a.grown(1000)
    larger |= b
    assert larger == left | right
    larger |= [(5, 55)]
    assert larger[5] == 55
    for wrong in (5, [(1, 2)], None, {1}, np.arange(3)):
        with pytest.raises(TypeError):
            a | wrong
    for wrong in (5, None, "ab", [1, 2]):
        with pytest.raises(TypeError):
            a |= wrong
    assert a == left


def test_a_table_in_pages_is_updated_and_not_copied(tmp_path: Path) -> None:
    t = PagedTable.create(tmp_path / "pages", 100, durable=False)
    t |= {1: 2}
    assert t == {1: 2}
    with pytest.raises(TypeError, match=r"\|= or update"):
        t | {1: 2}
    with pytest.raises(TypeError, match="no bytes"):
        t.same_bytes(t)


# --- popitem ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_popitem_empties_a_table(make: Callable[..., Any], dtype: str) -> None:
    t = make(700, key_dtype=dtype)
    items = {3 * i: i for i in range(700)}
    t.update(items)
    popped = dict(t.popitem() for _ in range(300))
    assert len(popped) == 300
    t.update({10**6 + i: i for i in range(50)})  # some where nothing is left behind
    popped |= dict(t.popitem() for _ in range(len(t)))
    assert popped == items | {10**6 + i: i for i in range(50)}
    assert len(t) == 0
    with pytest.raises(KeyError, match=r"popitem\(\): the table is empty"):
        t.popitem()
    t._check()
    t[5] = 6
    assert t.popitem() == (5, 6)


def test_popitem_of_the_overflow_list_and_of_digests() -> None:
    t = MultilevelTable(20, key_dtype="digest")
    keys = [f"key {i}" for i in range(40)]
    t.insert_many(keys, range(40))
    assert t.stats().overflow_used > 0
    popped = dict(t.popitem() for _ in range(40))
    assert popped == {_core.xxh3_128(key.encode(), 0): i for i, key in enumerate(keys)}
    with pytest.raises(TypeError, match="exact set"):
        MultilevelTable(5, value_dtype=None).popitem()


def test_popitem_from_threads_returns_each_item_once() -> None:
    t = MultilevelTable({i: -i for i in range(4000)})
    popped: list[tuple[int, float]] = []

    def pop() -> None:
        while True:
            try:
                popped.append(t.popitem())
            except KeyError:
                return

    threads = [threading.Thread(target=pop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(popped) == 4000
    assert dict(popped) == {i: -i for i in range(4000)}


def test_popitem_of_what_cannot_be_changed(tmp_path: Path) -> None:
    MultilevelTable({1: 2}).save(tmp_path / "t")
    opened = MultilevelTable.open(tmp_path / "t")
    with pytest.raises(ValueError, match="read-only"):
        opened.popitem()


# --- views --------------------------------------------------------------------------------------------------


def test_views_show_the_first_items(make: Callable[..., Any]) -> None:
    t = make(3000)
    assert repr(t.keys()) == "TableKeys([])"
    t[4] = -1
    assert [repr(view) for view in (t.keys(), t.values(), t.items())] == [
        "TableKeys([4])", "TableValues([-1])", "TableItems([(4, -1)])",
    ]  # fmt: skip
    t.insert_many(range(3000), 7)
    assert repr(t.values()) == "TableValues([7, 7, 7, 7, 7, ... 2_995 more])"
    assert len(repr(t.items())) < 120
    view = t.keys()
    assert len(view) == 3000
    assert 17 in view
    assert view & {1, 2, 10**6} == {1, 2}
    assert (17, 7) in t.items()
    assert (17, 8) not in t.items()
    assert 7 in t.values()


def test_capacity(make: Callable[..., Any]) -> None:
    assert make(123).capacity == 123


# --- constructors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "key_dtype", "value_dtype"),
    [
        ({}, "int64", "int64"),
        ({1: 2, -(2**63): 3}, "int64", "int64"),
        ({1: 2, 2**63: 3}, "uint64", "int64"),
        ({-1: 2, 2**63: 3}, "digest", "int64"),
        ({1: 2**63}, "int64", "uint64"),
        ({True: False}, "int64", "int64"),
        ({np.int32(4): np.uint8(5)}, "int64", "int64"),
        ({"a": 1}, "digest", "int64"),
        ({b"a": 1.5, "b": 2}, "digest", "float64"),
        ({"a": 1, 2: np.float32(0.5)}, "digest", "float64"),
    ],
)
def test_types_are_inferred(items: dict[Any, Any], key_dtype: str, value_dtype: str) -> None:
    for t in (
        MultilevelTable(items), MultilevelTable.from_items(items), MultilevelTable.from_items(items.items()),
        ChainedTable.from_items(list(items.items())),
    ):  # fmt: skip
        assert (t.key_dtype, str(t.value_dtype)) == (key_dtype, value_dtype)
        assert t == items
        assert t.capacity == max(1, len(items))
        t._check()


def test_types_that_are_passed_are_kept() -> None:
    t = MultilevelTable.from_items({1: 2}, key_dtype="digest", value_dtype="float64", capacity=50, seed=4)
    assert (t.key_dtype, str(t.value_dtype), t.capacity, t.seed, t[1]) == ("digest", "float64", 50, 4, 2.0)
    assert MultilevelTable({1: 2}, key_dtype="uint64", scheme="standard").plan.scheme == "standard"
    with pytest.raises(TypeError, match="digest"):
        MultilevelTable({"a": 1}, key_dtype="uint64")


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ({1: None}, "use from_keys"),
        ({1: "b"}, "values must be int or float; item 0"),
        ({1: 1j}, "values must be"),
        ([1, 2], r"item 0 is not a \(key, value\) pair: 1"),
        ([(1, 2), (3,)], r"item 1 is not a \(key, value\) pair"),
        ("ab", "items must be a mapping or pairs"),
        (5, "items must be a mapping or pairs"),
        (None, "items must be"),
        ({1.5: 2}, "not float"),
        ({(1, 2): 3}, "key"),
        (MultilevelTable(5), r"table\.copy\(\)"),
    ],
)
def test_what_are_no_items_is_refused(items: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        MultilevelTable.from_items(items)


def test_values_that_no_type_holds_are_refused() -> None:
    for values in ([-1, 2**63], [2**64]):
        with pytest.raises(ValueError, match="values must all lie"):
            MultilevelTable.from_items(enumerate(values))


@pytest.mark.parametrize(
    ("keys", "key_dtype", "count"),
    [
        ([1, 2, 2], "int64", 2),
        (range(5), "int64", 5),
        (range(0), "int64", 0),
        ([2**63, 1], "uint64", 2),
        ([-1, 2**63], "digest", 2),
        (["a", "b", "a"], "digest", 2),
        (iter(["a", 1]), "digest", 2),
        ({"a", "b"}, "digest", 2),
        (np.array([1, 2], np.int16), "int64", 2),
        (np.array([[1, 2], [3, 1]], np.uint64), "uint64", 3),
        (np.array([True, False]), "int64", 2),
        (np.array(["a", "b"]), "digest", 2),
        (np.array(["a", 5], object), "digest", 2),
        (np.array([3, 5], object), "int64", 2),
        (pa.array([1, 2, 1]), "int64", 2),
        (pa.array([1, 2, 1], pa.uint8()), "uint64", 2),
        (pa.chunked_array([["x", "y"], ["x"]]), "digest", 2),
    ],
)
def test_exact_sets_from_keys(keys: Any, key_dtype: str, count: int) -> None:
    keys = list(keys) if hasattr(keys, "__next__") else keys
    s = MultilevelTable.from_keys(keys)
    assert (s.key_dtype, s.value_dtype, len(s)) == (key_dtype, None, count)
    assert s.contains_many(keys).all()
    larger = MultilevelTable.from_keys(keys, capacity=1000, seed=8)
    assert (larger.capacity, larger.seed, len(larger)) == (1000, 8, count)
    s._check()


@pytest.mark.parametrize("wrong", ["ab", b"ab", 5, None, [None], [1.5]])
def test_what_are_no_keys_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="key"):
        MultilevelTable.from_keys(wrong)
    with pytest.raises(TypeError, match="key_dtype must be"):
        MultilevelTable.from_keys([1], key_dtype=5)  # type: ignore[arg-type]
