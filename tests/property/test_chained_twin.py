"""The chained table against a dict and against its twin: no key lost, same bytes after every operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbins import ChainedTable, TableFullError, _core
from reference import ReferenceChained
from reference.format import pack

MASK = 2**64 - 1


def table_of(core: tuple[int, ...], capacity: int, seed: int) -> ChainedTable:
    """Build without a plan, whose predictions would take longer than all else here."""
    table = ChainedTable.__new__(ChainedTable)
    _core.Chains.__init__(table, capacity, seed, list(core))
    return table


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], int, int]:
    """Few bins and low thresholds, so that keys pass bins, meet in them twice, and overflow."""
    policy = draw(st.sampled_from([1, 2, 3, 6, 7]))
    choices = 1 if policy == 1 else draw(st.integers(2, 4))
    balanced = policy <= 3
    core = [policy, choices]
    core.append(draw(st.sampled_from([0, 2**30, 2**31, 2**32])) if balanced else 0)
    core += [draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3)) if balanced else 0]
    for _ in range(choices if policy in (3, 7) else 1):
        core += [draw(st.integers(1, 5)), draw(st.integers(0, 3)) if balanced else 0]
    return tuple(core), draw(st.integers(1, 25)), draw(st.sampled_from([0, 1, MASK]))


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete", "delete", "get", "many", "new", "erase", "clear"]),
        st.integers(0, 40),
        st.integers(0, 2**63 - 1),
        st.lists(st.integers(0, 40), max_size=12),
    ),
    max_size=40,
)


@given(shapes(), OPERATIONS)
def test_after_every_operation_table_twin_and_dict_agree(
    shape: tuple[tuple[int, ...], int, int], operations: list[tuple[str, int, int, list[int]]]
) -> None:
    core, capacity, seed = shape
    table, twin = table_of(core, capacity, seed), ReferenceChained(core, capacity, seed)
    names: Any = [
        lambda i: (i - 20) * 2**57 if i != 40 else -(2**63),
        lambda i: i * 2**58 & MASK,
        lambda i: f"key {i}" * (i % 5),
    ][core[3] - 1]
    floats = core[4] == 3
    truth: dict[Any, int] = {}

    def stored(value: int) -> Any:  # a value as Python knows it; the twin has its bits
        return float(np.uint64(value).view(np.float64)) if floats else value

    def put(keys: list[Any], value: int, *, new: bool = False) -> int:
        for place, key in enumerate(keys):
            if not twin.put(key, value, new=new):
                return place
            truth[key] = value
        return len(keys)

    for kind, number, value, numbers in operations:
        value &= ~(0x7FF << 52)  # no NaN, no infinity
        key, keys = names(number), [names(each) for each in numbers]
        if kind == "put":
            if put([key], value):
                table[key] = stored(value)
            else:
                with pytest.raises(TableFullError):
                    table[key] = stored(value)
        elif kind in ("many", "new"):
            if kind == "new":  # keep the promise
                keys = [each for each in dict.fromkeys(keys) if each not in truth]
            done = put(keys, value, new=kind == "new")
            if done == len(keys):
                table.insert_many(keys, [stored(value)] * len(keys), assume_unique=kind == "new")
            else:
                with pytest.raises(TableFullError) as caught:
                    table.insert_many(keys, stored(value), assume_unique=kind == "new")
                assert caught.value.inserted == done
        elif kind == "delete":
            assert twin.erase(key) == (key in truth)
            if truth.pop(key, None) is None:
                with pytest.raises(KeyError):
                    del table[key]
            else:
                del table[key]
        elif kind == "erase":
            assert table.delete_many(keys) == sum(twin.erase(each) for each in keys)
            for each in keys:
                truth.pop(each, None)
        elif kind == "clear" and number < 4:
            table.clear()
            twin = ReferenceChained(core, capacity, seed)
            truth.clear()
        table._check()
        assert table.to_bytes() == pack(8, 1, seed, capacity, core, twin.payload())
        assert len(table) == len(twin) == len(truth)
    everything = [names(i) for i in range(41)]
    expected = [truth.get(each) for each in everything]
    assert [twin.get(each) for each in everything] == expected
    assert table.contains_many(everything).tolist() == [each is not None for each in expected]
    assert [table.get(each) for each in everything] == [
        None if each is None else stored(each) for each in expected
    ]
    words = table.get_many(everything, default=stored(5)).view(np.uint64).tolist()
    assert words == [5 if each is None else each for each in expected]
    assert [table.probe(each)[1:3] for each in everything] == [twin.query(each) for each in everything]
    if core[3] != 3:
        assert dict(table.items()) == {key: stored(value) for key, value in truth.items()}
    queries = [twin.query(key) for key in truth]
    assert table._measure()[2] == (
        sum(reads for reads, _ in queries), sum(n for _, n in queries), sum(n * n for _, n in queries),
    )  # fmt: skip
    again = ChainedTable.from_bytes(table.to_bytes())
    assert again.same_bytes(table)
    assert table.copy().same_bytes(table)
    assert again == table
