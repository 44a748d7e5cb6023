"""Kernels differ in speed alone: tables under each of them have the bytes and answers of the readable twin.

The fixture `kernel` puts each kernel of this machine in force; a table keeps the kernel it was made under.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from evenbins import MultilevelTable, TableFullError
from evenbins.study.stepwise import Full
from evenbins.theory.table_plan import SCHEMES
from reference import ReferenceMultilevel

BATCHES = [0, 1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 129, 200]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("slots", [1, 2, 4, 8])
@pytest.mark.parametrize("key_dtype", ["int64", "uint64", "digest"])
def test_every_kernel_leaves_the_bytes_of_the_twin(
    kernel: str, scheme: str, slots: int, key_dtype: str
) -> None:
    rng = random.Random(f"{scheme} {slots} {key_dtype}")
    t = MultilevelTable(
        300,
        scheme=scheme,
        slots=slots,
        space=1.05,
        overflow_limit=60,
        key_dtype=key_dtype,
        next_hashes=slots == 2,
    )
    twin = ReferenceMultilevel(t.plan.core)
    least = -60 if key_dtype == "int64" else 0

    def key(number: int) -> Any:
        return str(number) if key_dtype == "digest" else number + least

    for n in BATCHES:
        numbers = [rng.randrange(380) for _ in range(n)]
        values = [rng.getrandbits(63) for _ in range(n)]
        taken = 0
        try:
            for number, value in zip(numbers, values, strict=True):
                twin.insert(twin.stored(key(number)), value)
                taken += 1
        except Full:
            with pytest.raises(TableFullError) as raised:
                t.insert_many([key(number) for number in numbers], values)
            assert raised.value.inserted == taken
        else:
            t.insert_many([key(number) for number in numbers], values)
        gone = [rng.randrange(380) for _ in range(n // 3)]
        assert t.delete_many([key(number) for number in gone]) == sum(
            twin.delete(twin.stored(key(number))) for number in gone
        )
    assert t.to_bytes().endswith(twin.payload())
    t._check()
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
