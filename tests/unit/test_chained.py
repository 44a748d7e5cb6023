"""The chained table: a mapping, its bulk calls, errors, files, and what it measures on itself."""

from __future__ import annotations

import copy
import hashlib
import pickle
import runpy
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenbins
from evenbins import (
    ChainedTable,
    ChainPlan,
    FormatError,
    KeyRangeError,
    MultilevelTable,
    TableFullError,
    _core,
)
from evenbins.tables import plan_chains
from reference.format import pack, unpack

POLICIES = ("single", "sequential", "multilevel", "least-loaded", "d-left")
GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_golden.py"))
each_policy = pytest.mark.parametrize("policy", POLICIES)


@pytest.fixture(params=POLICIES)
def table(request: pytest.FixtureRequest) -> ChainedTable:
    return ChainedTable(1000, policy=request.param, load=3, seed=7)


# --- a mapping ------------------------------------------------------------------------------------------


def test_it_behaves_as_a_dict(table: ChainedTable) -> None:
    table[5] = 50
    table[-5] = -50
    table[True] = 1
    table[np.int8(3)] = np.uint16(30)
    assert dict(table) == {5: 50, -5: -50, 1: 1, 3: 30}
    assert (table[5], table.get(-5), table.get(6), table.get(6, "no")) == (50, -50, None, "no")
    assert 5 in table
    assert 6 not in table
    assert table.setdefault(5, 7) == 50
    assert table.setdefault(8, 7) == 7
    assert table.pop(8) == 7
    assert table.pop(8, None) is None
    with pytest.raises(KeyError, match="8"):
        table.pop(8)
    with pytest.raises(KeyError, match="8"):
        table[8]
    with pytest.raises(KeyError, match="8"):
        del table[8]
    del table[5]
    table.update({10: 11})
    table.update([(12, 13)])
    other = ChainedTable(10)
    other[14] = 15
    table.update(other)
    assert list(table.keys()) == list(table)
    assert sorted(table.items()) == [(-5, -50), (1, 1), (3, 30), (10, 11), (12, 13), (14, 15)]
    assert sorted(table.values()) == [-50, 1, 11, 13, 15, 30]
    assert len(table.keys()) == len(table) == 6
    assert 14 in table.keys()  # noqa: SIM118
    assert 15 in table.values()
    assert (14, 15) in table.items()
    assert (14, 16) not in table.items()
    table._check()
    table.clear()
    assert len(table) == 0
    assert not list(table.items())
    assert table.same_bytes(ChainedTable.from_plan(table.plan))


def test_keys_come_in_the_order_of_insertion_until_some_are_deleted() -> None:
    table = ChainedTable(5000)
    keys = np.random.default_rng(1).permutation(4000)
    table.insert_many(keys, keys)
    assert list(table) == keys.tolist()
    assert list(table.values()) == keys.tolist()


def test_a_change_ends_an_iteration(table: ChainedTable) -> None:
    table.insert_many(range(10), 0)
    for view in (table, table.keys(), table.values(), table.items()):
        iterator = iter(view)  # type: ignore[call-overload]
        next(iterator)
        table[3] = 1  # a new value is no change of the keys
        next(iterator)
        table[100] = 1
        with pytest.raises(RuntimeError, match="changed"):
            next(iterator)
        del table[100]
    iterator = iter(table)
    next(iterator)
    table.clear()
    with pytest.raises(RuntimeError, match="changed"):
        next(iterator)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int64", [0, -(2**63), 2**63 - 1]),
        ("uint64", [0, 2**63, 2**64 - 1]),
        ("float64", [0.5, -0.0, float("inf")]),
    ],
)
def test_values_of_each_type(dtype: str, values: list[Any]) -> None:
    table = ChainedTable(10, value_dtype=dtype)
    for key, value in enumerate(values):
        table[key] = value
    assert [table[key] for key in range(3)] == values
    found = table.get_many([0, 1, 2])
    assert found.dtype == dtype
    assert found.tolist() == values
    with pytest.raises(TypeError):
        table[0] = "a"
    with pytest.raises(TypeError):
        table.insert_many([1, 2], ["a", "b"])
    if dtype != "float64":
        with pytest.raises(ValueError, match="value_dtype"):
            table[0] = 2**64
        with pytest.raises(TypeError):
            table[0] = 1.5


def test_keys_of_each_type() -> None:
    for dtype, good in (("int64", [-(2**63), 2**63 - 1]), ("uint64", [0, 2**64 - 1])):
        table = ChainedTable(10, key_dtype=dtype)
        table.insert_many(good, [1, 2])
        assert list(table.items()) == list(zip(good, [1, 2], strict=True))
        for bad in (1.0, None, "a", b"a", [1], (1, 2), np.arange(3)):
            for call in (table.__contains__, table.__getitem__, table.get):
                with pytest.raises(TypeError):
                    call(bad)
        with pytest.raises(KeyRangeError, match="key_dtype"):
            table[2**64 if dtype == "uint64" else 2**63] = 1
    names = ChainedTable(10, key_dtype="digest")
    names["a"] = 1
    names[b"b"] = 2
    assert (names[b"a"], names["b"], "c" in names) == (1, 2, False)
    assert set(names) == {_core.xxh3_128(b"a"), _core.xxh3_128(b"b")}
    names[5] = 3
    names.insert_many(np.arange(3), 1)
    assert (names[5], names[2], "5" in names, len(names)) == (3, 1, False, 6)
    names._check()


# --- many keys ------------------------------------------------------------------------------------------


@each_policy
def test_bulk_leaves_the_bytes_of_single_calls(policy: str, kernel: str) -> None:
    rng = np.random.default_rng(5)
    keys, values = rng.integers(-300, 300, 2000), rng.integers(-(2**60), 2**60, 2000)
    gone = rng.integers(-300, 300, 400)
    one = ChainedTable(700, policy=policy, load=2)
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        one[key] = value
    for key in gone.tolist():
        one.pop(key, None)
    many = ChainedTable(700, policy=policy, load=2)
    many.insert_many(keys, values)
    assert many.delete_many(gone) == len(set(keys.tolist()) & set(gone.tolist()))
    assert many.to_bytes() == one.to_bytes()
    many._check()
    truth = dict(zip(keys.tolist(), values.tolist(), strict=True))
    for key in gone.tolist():
        truth.pop(key, None)
    asked = np.arange(-350, 350).reshape(7, 100)
    for threads in (1, 3):
        assert (
            many.get_many(asked, default=-1, threads=threads).ravel().tolist()
            == [truth.get(key, -1) for key in asked.ravel().tolist()]
        )  # fmt: skip
        assert many.contains_many(asked, threads=threads).shape == (7, 100)


def test_bulk_takes_what_filters_take(table: ChainedTable) -> None:
    table.insert_many(pa.array([1, 2, 3]), pa.array([10, 20, 30]))
    table.insert_many(np.array([4, 5], np.uint8), np.array([40, 50], np.int16))
    table.insert_many((k for k in (6, 7)), 60)
    table.insert_many(range(8, 10), [80, 90])
    assert [table[k] for k in range(1, 10)] == [10, 20, 30, 40, 50, 60, 60, 80, 90]
    assert table.get_many(pa.chunked_array([[1], [9]])).tolist() == [10, 90]
    table.insert_many([], [])
    assert table.get_many([]).dtype == np.int64
    assert table.delete_many(np.array([], np.int64)) == 0
    table.insert_many([1, 1, 1], [5, 6, 7])
    assert table[1] == 7


def test_what_bulk_calls_refuse(table: ChainedTable) -> None:
    table.insert_many(range(10), range(10))
    before = table.to_bytes()
    with pytest.raises(KeyError, match=r"2 of 3 keys .* index 1"):
        table.get_many([1, 100, 101])
    with pytest.raises(KeyError, match=r"1 of 2 keys .* nothing has been deleted"):
        table.delete_many([1, 100], missing="error")
    with pytest.raises(ValueError, match="missing"):
        table.delete_many([1], missing="maybe")
    with pytest.raises(ValueError, match=r"as many as keys"):
        table.insert_many([1, 2], [1, 2, 3])
    with pytest.raises(KeyRangeError, match=r"keys\[1\]"):
        table.insert_many(np.array([1, 2**63], np.uint64), 1)
    with pytest.raises(TypeError, match=r"keys\[1\].*no key has been taken"):
        table.insert_many([50, "a"], 1)
    with pytest.raises(TypeError):
        table.insert_many("abc", 1)
    with pytest.raises(TypeError):
        table.update("abc")
    with pytest.raises(TypeError, match="pair"):
        table.update([(1, 2, 3)])
    with pytest.raises(ValueError, match="threads"):
        table.get_many([1], threads=0)
    assert table.to_bytes() == before
    assert table.delete_many([1, 2, 2], missing="error") == 2


def test_a_broken_promise_is_found_out(table: ChainedTable) -> None:
    table.insert_many([1, 2], 0, assume_unique=True)
    table._check()
    table.insert_many([2], 5, assume_unique=True)
    with pytest.raises(AssertionError, match="twice"):
        table._check()
    assert len(ChainedTable.from_bytes(table.to_bytes())) == 3


def test_readers_and_a_writer_do_not_see_each_other_half_done(table: ChainedTable) -> None:
    """Two threads look up keys that stay, one after the other or all together, while others come and go."""
    stay, go = np.arange(300), np.arange(1000, 1600)
    table.insert_many(stay, stay)
    stop = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not stop.is_set():
            if not np.array_equal(table.get_many(stay, default=-1), stay) or table.get(7) != 7:
                wrong.append(table.get_many(stay, default=-1))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(50):
        table.insert_many(go, 5)
        table[2000] = 1
        del table[2000]
        table.delete_many(go)
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong
    table._check()


def test_tables_of_both_kinds_take_each_others_items() -> None:
    chained, multilevel = ChainedTable(100), MultilevelTable(100)
    chained.insert_many(range(50), range(50))
    multilevel.update(chained)
    other = ChainedTable(100, policy="d-left", key_dtype="uint64")
    other.update(multilevel)
    assert dict(other) == dict(chained) == dict(multilevel)


# --- full -----------------------------------------------------------------------------------------------


@each_policy
def test_a_full_table_says_so_and_loses_nothing(policy: str) -> None:
    table = ChainedTable(100, policy=policy, load=8)
    with pytest.raises(TableFullError, match=r"keys\[100\].*grown") as caught:
        table.insert_many(range(150), range(150))
    assert caught.value.inserted == 100
    before = table.to_bytes()
    with pytest.raises(TableFullError, match="nothing was changed"):
        table[1000] = 1
    with pytest.raises(TableFullError):
        table.setdefault(1000, 1)
    assert table.to_bytes() == before
    table[5] = 55  # a key that is there needs no room
    assert table.get_many(range(100)).tolist() == [*range(5), 55, *range(6, 100)]
    del table[7]
    table[1000] = 1
    assert 1000 in table
    table._check()
    big = table.grown(250)
    assert dict(big) == dict(table)
    assert big.capacity == 250
    assert big.plan.policy == policy
    big.insert_many(range(2000, 2150), 0)
    big._check()
    with pytest.raises(ValueError, match="100 keys"):
        table.grown(99)


@each_policy
def test_no_key_is_lost_and_no_room_in_endless_churn(policy: str) -> None:
    """Full all the time, a tenth replaced at each of 60 turns: six lives of the table."""
    rng = np.random.default_rng(3)
    table = ChainedTable(2000, policy=policy, load=4)
    live = rng.permutation(2**20)[:2000]
    table.insert_many(live, live)
    fresh = 2**20
    for _ in range(60):
        rng.shuffle(live)
        assert table.delete_many(live[:200]) == 200
        live[:200] = np.arange(fresh, fresh + 200)
        fresh += 200
        table.insert_many(live[:200], live[:200])
        assert np.array_equal(table.get_many(live), live)
    table._check()
    assert table.stats().keys == 2000
    table.delete_many(live)
    assert not table
    assert all(not any(passed) for _, passed in table._measure()[1]), (
        "nobody is there who could have passed a bin"
    )


# --- files ----------------------------------------------------------------------------------------------


def test_files(table: ChainedTable, tmp_path: Path) -> None:
    table.insert_many(range(500), range(500))
    table.delete_many(range(0, 500, 7))
    path = tmp_path / "t.evenbins"
    table.save(path)
    for verify in (False, True):
        mapped = ChainedTable.open(path, verify=verify)
        assert mapped.same_bytes(table)
        assert dict(mapped) == dict(table)
        for change in (
            lambda t: t.__setitem__(1, 1), lambda t: t.pop(1), lambda t: t.clear(), lambda t:
            t.insert_many([1], 1), lambda t: t.delete_many([1]), lambda t: t.__delitem__(1),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="read-only"):
                change(mapped)
        assert "read-only" in repr(mapped)
        free = mapped.copy()
        free[1] = 5
        assert free != table
    assert ChainedTable.load(path).same_bytes(table)
    for twin in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table), copy.copy(table)):
        assert twin.same_bytes(table)
    for load in (evenbins.load, evenbins.open):
        assert load(path).same_bytes(table)
    with pytest.raises(FormatError, match="another kind"):
        ChainedTable.from_bytes(evenbins.BloomFilter(10).to_bytes())
    again = ChainedTable.load(path)
    for t in (again, table):
        t.insert_many(range(1000, 1200), 1)
    assert again.to_bytes() == table.to_bytes()
    assert again.plan == table.plan


def test_every_flipped_bit_and_cut_is_refused() -> None:
    table = ChainedTable(4, load=2)
    table.insert_many(range(3), 1)
    data = table.to_bytes()
    for byte in range(0, len(data), 3):
        with pytest.raises(FormatError):
            ChainedTable.from_bytes(data[:byte] + bytes([data[byte] ^ 1 << byte % 8]) + data[byte + 1 :])
        with pytest.raises(FormatError):
            ChainedTable.from_bytes(data[:byte])


def words_of(table: ChainedTable) -> list[int]:
    payload = unpack(table.to_bytes()).payload
    return list(struct.unpack(f"<{len(payload) // 4}I", payload))


def with_words(table: ChainedTable, words: list[int]) -> bytes:
    """Give a file whose checksums are right, whatever the words of 32 bits."""
    file = unpack(table.to_bytes())
    payload = struct.pack(f"<{len(words)}I", *words)
    return pack(8, 1, file.seed, file.capacity, file.core, payload)


@pytest.mark.parametrize("policy", ["sequential", "multilevel", "d-left"])
def test_structural_damage_is_refused_and_never_leads_astray(policy: str, tmp_path: Path) -> None:
    """Any one of the 32-bit words changed, checksums right: refused, or another table that is sound."""
    table = ChainedTable(12, policy=policy, load=4)
    table.insert_many(range(11), range(11))
    table.delete_many([3, 4])
    words = words_of(table)
    path = tmp_path / "t.evenbins"
    values_start = len(words) - 32
    entries_start = values_start - 48  # twelve entries of a link and two words of a key, in three lines
    for place in range(values_start):
        for value in (0, 7, 2**31 + 5, 2**32 - 1):
            if words[place] == value:
                continue
            changed = with_words(table, [*words[:place], value, *words[place + 1 :]])
            try:
                ChainedTable.from_bytes(changed)
            except FormatError:
                path.write_bytes(changed)
                try:
                    lies = ChainedTable.open(path)  # unverified: wrong answers, but no fault
                except FormatError:
                    continue
                lies.get_many(range(100), default=0)
                list(lies.items())
                lies.stats()
                with pytest.raises(FormatError):
                    lies.copy()
            else:
                counters, passed_is_full = place in range(8, 12), value == 2**32 - 1
                other_key = place >= entries_start and (place - entries_start) % 3 != 0
                assert counters or passed_is_full or other_key, (place, value)


def test_a_core_that_no_plan_makes_is_refused() -> None:
    good = [3, 2, 0, 1, 1, 1, 4, 2, 2, 2]
    _core.Chains(10, 0, good)
    for place, value in [
        (0, 4),
        (1, 9),
        (1, 3),
        (2, 2**33),
        (3, 4),
        (4, 0),
        (5, 0),
        (6, 0),
        (7, 2**31),
        (6, 2**41),
    ]:
        core = [*good[:place], value, *good[place + 1 :]]
        with pytest.raises(ValueError, match=r"must|policy|choices|type"):
            _core.Chains(10, 0, core)
        with pytest.raises(ValueError, match="core"):
            evenbins.tables.chained.plan_of_chain_core(core, keys=10, seed=0)
        with pytest.raises(ValueError, match="core"):
            pack(8, 1, 0, 10, core, b"")
    for capacity in (0, 2**31 - 1):
        with pytest.raises(ValueError, match="keys"):
            _core.Chains(capacity, 0, good)


@pytest.mark.filterwarnings("ignore:nanobind:RuntimeWarning")
def test_an_object_without_a_table_raises() -> None:
    ghost = ChainedTable.__new__(ChainedTable)
    for call in (
        lambda: 1 in ghost, lambda: len(ghost), lambda: ghost[1], lambda: ghost.__setitem__(1, 1), lambda:
        list(ghost), lambda: ghost.__delitem__(1), ghost.to_bytes, ghost.stats, lambda: repr(ghost),
        ghost.clear, ghost.copy, lambda: ghost.get(1), lambda: ghost.get_many([1]), lambda:
        ghost.insert_many([1], 1),
    ):  # fmt: skip
        with pytest.raises((RuntimeError, TypeError)):
            call()


@pytest.mark.parametrize("name", GOLDEN["CHAINED"])
def test_golden_files_are_read_and_written_for_ever(name: str) -> None:
    path = Path(__file__).parents[1] / "golden" / f"{name}.evenbins"
    data = path.read_bytes()
    table = ChainedTable.load(path)
    table._check()
    assert GOLDEN["golden_chained"](name).to_bytes() == table.to_bytes() == data
    assert ChainedTable.open(path, verify=True) == table
    file = unpack(data)
    assert (file.kind, file.capacity, tuple(table._core)) == (8, 70, file.core)
    assert hashlib.sha256(data).hexdigest() in (path.parent / "SHA256SUMS").read_text()


# --- plan and measurement -------------------------------------------------------------------------------


@each_policy
def test_plan_and_stats_lie_side_by_side(policy: str) -> None:
    table = ChainedTable(20_000, policy=policy, load=4)
    table.insert_many(range(20_000), 0)
    plan, stats = table.plan, table.stats()
    assert isinstance(plan, ChainPlan)
    assert stats.nbytes == plan.nbytes == table.nbytes
    assert stats.keys == plan.keys
    assert sum(stats.loads) == plan.bins
    assert sum(stats.overflow_loads) == plan.overflow_bins
    listed = sum(i * n for i, n in enumerate(stats.overflow_loads))
    assert sum(i * n for i, n in enumerate(stats.loads)) + listed == 20_000
    assert stats.overflow == listed / 20_000
    for name in (
        "load",
        "mean",
        "variance",
        "query_mean",
        "query_variance",
        "miss_mean",
        "reads",
        "miss_reads",
    ):
        assert getattr(stats, name) == pytest.approx(getattr(plan, name), rel=0.1), name
    assert len({*stats.to_dict(), *plan.to_dict()}) > 25
    assert "query_variance" in str(stats)
    assert "query_variance" in table._repr_html_()
    assert "ChainStats(" in repr(stats)
    assert f"policy='{policy}'" in repr(table)
    assert "seed" not in repr(table)
    assert ChainedTable.from_plan(plan) == ChainedTable(20_000, policy=policy, load=4)
    again = ChainedTable.from_bytes(table.to_bytes())
    assert again.plan == plan
    assert again.plan.to_dict() == plan.to_dict()
    assert again.stats() == stats


def test_an_empty_table_has_statistics(table: ChainedTable) -> None:
    stats = table.stats()
    assert (stats.keys, stats.max_load, stats.query_mean, stats.miss_mean, stats.variance) == (
        0,
        0,
        0.0,
        0.0,
        0.0,
    )


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"capacity": 0}, ValueError, "capacity"),
        ({"capacity": 2**31 - 1}, ValueError, "32 bits"),
        ({"capacity": "9"}, TypeError, "capacity"),
        ({"policy": "best"}, ValueError, "policy"),
        ({"policy": 3}, TypeError, "policy"),
        ({"choices": 1}, ValueError, "single"),
        ({"choices": 9}, ValueError, "choices"),
        ({"policy": "single", "choices": 2}, ValueError, "multilevel"),
        ({"reads": 1.0}, ValueError, "reads"),
        ({"reads": 3.0}, ValueError, "reads"),
        ({"policy": "d-left", "reads": 1.2}, ValueError, "Leave it out"),
        ({"overflow": 0.1}, ValueError, "Leave it out"),
        ({"policy": "single", "overflow": 1.0}, ValueError, "overflow"),
        ({"load": 0}, ValueError, "load"),
        ({"load": 65}, ValueError, "load"),
        ({"load": "1"}, TypeError, "load"),
        ({"key_dtype": "str"}, ValueError, "digest"),
        ({"value_dtype": object}, TypeError, "value_dtype"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ChainedTable(**{"capacity": 100, **arguments})


def test_plans_are_equal_by_their_integers() -> None:
    assert plan_chains(100) == plan_chains(100.0)
    assert hash(plan_chains(100)) == hash(plan_chains(100))
    assert plan_chains(100) != plan_chains(101)
    assert plan_chains(100) != plan_chains(100, seed=1)
    with pytest.raises(TypeError, match="ChainPlan"):
        ChainedTable.from_plan(5)  # type: ignore[arg-type]
