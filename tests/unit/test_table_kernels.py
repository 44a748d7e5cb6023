"""Kernels differ in speed alone: tables under each of them have the bytes and answers of the readable twin.

The fixture `kernel` puts each kernel of this machine in force; a table keeps the kernel it was made under.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from evenbins import MultilevelTable, TableFullError
from evenbins.study.stepwise import Full
from evenbins.tables.multilevel import plan_multilevel
from evenbins.tables.multilevel_plan import SCHEMES
from reference import ReferenceMultilevel

BATCHES = [0, 1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 129, 200]


@dataclass(frozen=True)
class Batch:
    """A bulk insertion and a bulk deletion, and what the twin did with them."""

    numbers: list[int]
    values: list[int]
    inserted: int  # fewer than there are numbers: the table was full
    gone: list[int]
    deleted: int


def key_of(number: int, key_dtype: str) -> Any:
    return {"digest": str(number), "int64": number - 60}.get(key_dtype, number)


@cache
def twin_and_batches(core: tuple[int, ...], key_dtype: str) -> tuple[ReferenceMultilevel, list[Batch]]:
    """Return the twin of a table after its batches, made once for all kernels; not to be changed."""
    rng = random.Random(f"{core} {key_dtype}")
    twin, batches = ReferenceMultilevel(core), []
    for n in BATCHES:
        numbers = [rng.randrange(380) for _ in range(n)]
        values = [rng.getrandbits(63) for _ in range(n)]
        inserted = 0
        with suppress(Full):
            for number, value in zip(numbers, values, strict=True):
                twin.insert(twin.stored(key_of(number, key_dtype)), value)
                inserted += 1
        gone = [rng.randrange(380) for _ in range(n // 3)]
        deleted = sum(twin.delete(twin.stored(key_of(number, key_dtype))) for number in gone)
        batches.append(Batch(numbers, values, inserted, gone, deleted))
    return twin, batches


def _tables() -> Iterator[Any]:
    """Every scheme, slots and type of keys; in a short run every two of them together."""
    for (i, scheme), (j, slots), (k, key_dtype) in itertools.product(
        enumerate(SCHEMES), enumerate((1, 2, 4, 8)), enumerate(("int64", "uint64", "digest"))
    ):
        marks = [] if (i + j + k) % 2 else [pytest.mark.long]  # the sets of test_exact_sets.py are the others
        yield pytest.param(scheme, slots, key_dtype, marks=marks)


@pytest.mark.parametrize(("scheme", "slots", "key_dtype"), list(_tables()))
def test_every_kernel_leaves_the_bytes_of_the_twin(
    kernel: str, scheme: str, slots: int, key_dtype: str
) -> None:
    t = MultilevelTable.from_plan(
        plan_multilevel(
            300,
            scheme=scheme,
            slots=slots,
            space=1.05,
            overflow_limit=60,
            key_dtype=key_dtype,
            next_hashes=slots == 2,
        )
    )
    twin, batches = twin_and_batches(t.plan.core, key_dtype)
    for batch in batches:
        keys = [key_of(number, key_dtype) for number in batch.numbers]
        if batch.inserted < len(keys):
            with pytest.raises(TableFullError) as raised:
                t.insert_many(keys, batch.values)
            assert raised.value.inserted == batch.inserted
        else:
            t.insert_many(keys, batch.values)
        assert t.delete_many([key_of(number, key_dtype) for number in batch.gone]) == batch.deleted
    assert t.to_bytes().endswith(twin.payload())
    t._check()
    rng = random.Random(f"{scheme} {slots} {key_dtype}")
    probes = [rng.randrange(-100, 500) if key_dtype == "int64" else rng.randrange(500) for _ in range(333)]
    asked = [str(p) if key_dtype == "digest" else p for p in probes]
    expected = [twin.get(twin.stored(each)) for each in asked]
    assert t.contains_many(asked).tolist() == [each is not None for each in expected]
    answers = t.get_many(asked, default=-1).tolist()
    assert answers == [-1 if each is None else each for each in expected]
    for n in BATCHES:
        assert t.get_many(asked[:n], default=-1).tolist() == answers[:n]
    assert [t.get(each, -1) for each in asked] == answers


def test_the_key_of_zero_bits_is_told_from_a_free_slot(kernel: str) -> None:
    """An empty slot holds zeros, and so does the key 0."""
    for slots in (1, 2, 4, 8):
        t = MultilevelTable(64, slots=slots)
        assert not t.contains_many(np.zeros(100, int)).any()
        t.insert_many([0], [7])
        assert t.get_many(np.zeros(100, int)).tolist() == [7] * 100
        t.insert_many([1, 2, 3], 1)
        assert len(t) == 4
        del t[0]
        assert 0 not in t
        assert not t.contains_many([0])[0]
        t.insert_many([0, 0], [1, 2])
        assert t[0] == 2
        assert len(t) == 4
        t._check()
