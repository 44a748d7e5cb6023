"""The fuse filter against its twin: the same bytes and answers, for any set, shape and width."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import size

import reference
from evenbins import FuseFilter, digest
from evenbins.filters.fuse import FuseCore, FuseKeys, FusePlan
from reference import format as file_format

KEYS = st.one_of(st.integers(-(2**63), 2**64 - 1), st.text(max_size=5), st.binary(max_size=4))


@st.composite
def shapes(draw: st.DrawFn, keys: int) -> tuple[int, int, int]:
    """Draw blocks, segment_length and segments with slots enough for so many keys."""
    blocks = draw(st.integers(1, 4))
    length = draw(st.sampled_from([64, 128] if blocks > 1 else [4, 8, 16, 64]))
    least = max(3, -(-3 * keys // length) + 2)
    return blocks, length, least + draw(st.integers(0, 3))


@settings(max_examples=size(60, 1000), deadline=None)
@given(data=st.data(), keys=st.lists(KEYS, max_size=60), seed=st.integers(0, 2**64 - 1))
def test_bytes_and_answers_are_the_twins(data: Any, keys: list[Any], seed: int) -> None:
    digests = [digest(key, seed) for key in keys]
    fingerprints = data.draw(st.sampled_from([0, 997, 2**40 + 1, 2**64 - 1]))
    numbers = [each * fingerprints >> 64 for each in digests] if fingerprints else digests
    found = FuseKeys(seed, data.draw(st.integers(1, 2)))
    for read in (found.count, found.take):
        read(np.array(data.draw(st.permutations(numbers)), dtype=np.uint64), digests=True)
    held = found.finish()
    assert held == len(set(numbers))
    core = FuseCore(*data.draw(shapes(held)), data.draw(st.integers(4, 32)), held, fingerprints)
    f = found.fill(FuseFilter, FusePlan.of_core("fuse", core, max(held, 1), seed, "independent"))
    f._check()
    twin = reference.ReferenceFuse(core, numbers, seed)
    assert bytes(memoryview(f)) == twin.payload()
    assert all(key in f for key in keys)
    asked = [*keys, *range(50)]
    assert f.contains_many(asked).tolist() == [key in f for key in asked] == [key in twin for key in asked]
    parsed = file_format.unpack(f.to_bytes())
    assert (parsed.kind, parsed.core, parsed.payload) == (19, tuple(core), twin.payload())


@settings(max_examples=size(30, 300), deadline=None)
@given(keys=st.lists(KEYS, max_size=300), order=st.randoms(use_true_random=False), fpr=st.floats(1e-9, 0.5))
def test_planned_filters_are_the_twins(keys: list[Any], order: Any, fpr: float) -> None:
    f = FuseFilter.from_keys(keys, fpr)
    shuffled = [*keys, *keys[:7]]
    order.shuffle(shuffled)
    assert FuseFilter.from_keys(iter(shuffled), fpr).to_bytes() == f.to_bytes()
    assert f.plan.fpr <= fpr
    twin = reference.ReferenceFuse(f.plan.core, {digest(key) for key in keys})
    assert bytes(memoryview(f)) == twin.payload()
