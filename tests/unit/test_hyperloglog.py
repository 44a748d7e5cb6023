"""HyperLogLog: the number of different keys; the same bytes for the same keys; errors as planned.

The estimator's own accuracy is tested by its registers' exact law: with n keys the count has the relative
standard error that the plan names, and a bias far below it.
"""

from __future__ import annotations

import math
import pickle
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenbins
from evenbins import ArgumentError, FormatError, HyperLogLog
from evenbins.theory import distinct
from reference import ReferenceHyperLogLog

GOLDEN = Path(__file__).parents[1] / "golden"
MAKER = runpy.run_path(str(GOLDEN / "make_golden.py"))


def payload(made: HyperLogLog) -> bytes:
    return made.to_bytes()[128:]


@given(
    st.integers(4, 9), st.lists(st.integers(-50, 300) | st.text(max_size=3), max_size=120), st.integers(0, 3)
)
def test_it_has_the_twins_bytes(precision: int, keys: list[Any], seed: int) -> None:
    made, twin = HyperLogLog(precision, seed=seed), ReferenceHyperLogLog(precision, seed)
    made.add_many(keys)
    for key in keys:
        twin.add(key)
    assert payload(made) == twin.payload()
    assert tuple(made._core) == twin.core
    made._check()
    half = len(keys) // 2
    left, right = HyperLogLog(precision, seed=seed), HyperLogLog(precision, seed=seed)
    twins = ReferenceHyperLogLog(precision, seed), ReferenceHyperLogLog(precision, seed)
    for part, each, some in ((left, twins[0], keys[:half]), (right, twins[1], keys[half:])):
        part.update(some)
        for key in some:
            each.add(key)
    twins[0].merge(twins[1])
    assert payload(left | right) == twins[0].payload() == payload(made)


@pytest.mark.parametrize("precision", [4, 10, 18])
@pytest.mark.parametrize("keys", [0, 3, 100, 5000, 300_000])
def test_order_threads_and_batches_leave_no_trace(precision: int, keys: int) -> None:
    made = HyperLogLog(precision)
    made.add_many(np.arange(keys))
    shuffled = np.random.default_rng(1).permutation(keys)
    for threads in (1, 2, 5):
        other = HyperLogLog(precision)
        other.add_many(shuffled, threads=threads)
        assert other == made
        assert other.to_bytes() == made.to_bytes()
    single = HyperLogLog(precision)
    for key in shuffled[:2000].tolist():
        single.add(key)
    single.add_many(shuffled)
    assert single == made
    made._check()


def test_few_keys_are_counted_one_by_one_and_a_repeat_never() -> None:
    h = HyperLogLog()
    assert h.count() == 0.0
    for _ in range(3):
        h.add_many(range(1000))
    assert h.stats().sparse
    assert h.count() == pytest.approx(1000, abs=1.5)  # two of 1,000 share their 25 bits with chance 1.5 %
    assert h.nbytes == 8 + 4 * 1024
    h.add_many(range(2000))
    assert not h.stats().sparse
    assert h.nbytes == 2**14


@pytest.mark.parametrize(("precision", "keys"), [(6, 200), (8, 30_000), (12, 3000), (12, 500_000)])
def test_the_error_is_the_planned_one(precision: int, keys: int) -> None:
    """60 sketches: the mean within 6 standard errors of 0, the deviation within a factor of 1.6 of the plan.

    (Chi-square with 59 degrees of freedom: outside of that with a chance of 1e-7 below, 1e-8 above.) Where
    half of the registers are empty the estimator is better than planned.
    """
    planned = HyperLogLog(precision).plan.error
    found = []
    for seed in range(60):
        h = HyperLogLog(precision, seed=seed + 1)
        h.add_many(np.arange(keys))
        found.append(h.count() / keys - 1)
    assert abs(np.mean(found)) < 6 * planned / math.sqrt(60)
    assert planned / 1.6 / (2 if keys < 4 * 2**precision else 1) < np.std(found) < 1.6 * planned


def test_the_estimator_is_exact_where_the_law_is_known() -> None:
    """Registers of n keys, each rank in its expected number: the estimate is n, but for a bias."""
    m, q = 2.0**14, 50
    for n in (1e3, 1e5, 1e8, 1e12):
        below = [math.exp(-n / m * 2.0**-k) for k in range(q + 1)] + [1.0]
        histogram = [m * (b - a) for a, b in zip([0.0, *below], below, strict=False)]
        assert distinct.estimate_dense(histogram) == pytest.approx(n, rel=2e-4)  # type: ignore[arg-type]
    assert distinct.estimate_dense([0] * 51 + [16]) == math.inf


def test_it_merges_and_refuses_others() -> None:
    a, b = HyperLogLog(10), HyperLogLog(10)
    a.add_many(range(3000))
    b.add_many(range(2000, 5000))
    both = a | b
    assert both.count() == pytest.approx(5000, rel=0.2)
    a |= a
    assert a.count() == pytest.approx(3000, rel=0.2)
    with pytest.raises(ValueError, match="different precisions"):
        a |= HyperLogLog(11)
    with pytest.raises(ValueError, match="seeds differ"):
        a |= HyperLogLog(10, seed=1)
    with pytest.raises(TypeError):
        a | {1, 2}  # type: ignore[operator]


@pytest.mark.parametrize("keys", [10, 10_000])
def test_copies_pickles_and_files(keys: int, tmp_path: Path) -> None:
    h = HyperLogLog(9, seed=7)
    h.add_many(range(keys))
    h.save(tmp_path / "h")
    opened = HyperLogLog.open(tmp_path / "h")
    for twin in (h.copy(), pickle.loads(pickle.dumps(h)), evenbins.load(tmp_path / "h"), opened):
        assert twin == h
        assert twin.count() == h.count()
        assert twin.plan == h.plan
    with pytest.raises(ValueError, match="read-only"):
        opened.add(1)
    h.clear()
    assert h == HyperLogLog(9, seed=7)
    assert opened.copy().stats().sparse == (keys == 10)


def test_arguments() -> None:
    assert HyperLogLog(error=0.01).plan.precision == 14
    assert HyperLogLog(error=0.2).plan.precision == 5
    for wrong in ({"precision": 3}, {"precision": 19}, {"error": 0.5}, {"error": 1e-4}):
        with pytest.raises(ArgumentError):
            HyperLogLog(**wrong)
    with pytest.raises(ArgumentError, match="one of the two"):
        HyperLogLog(14, error=0.01)
    with pytest.raises(TypeError, match=r"keys\[1\].*have been added"):
        HyperLogLog().add_many([1, 2.5])
    assert "keys=" in repr(HyperLogLog())


def test_a_bad_key_leaves_those_before_it_whatever_the_threads() -> None:
    keys = np.array([*range(300_000), None, 5], object)
    h = HyperLogLog(12)
    with pytest.raises(TypeError, match=r"keys\[300000\]"):
        h.add_many(keys, threads=3)
    expected = HyperLogLog(12)
    expected.add_many(np.arange(300_000))
    assert h == expected


@pytest.mark.parametrize("golden", MAKER["DISTINCT"])
def test_golden_files_are_read_and_written_the_same(golden: str) -> None:
    data = (GOLDEN / f"{golden}.evenbins").read_bytes()
    h = HyperLogLog.from_bytes(data)
    h._check()
    assert h.to_bytes() == data == MAKER["golden_distinct"](golden).to_bytes()
    assert h.stats().sparse == (golden == "hyperloglog-sparse")


def test_forged_files_are_refused() -> None:
    """Registers that no digest makes, and entries out of order: with checksums that are right."""
    from reference.format import pack

    for core, wrong in (
        ((6, 1), bytes([60]) + bytes(63)),
        ((6, 0), (2).to_bytes(8, "little") + bytes([65, 1, 0, 0, 65, 0, 0, 0]) + bytes(8)),
        ((6, 0), (5).to_bytes(8, "little") + bytes(16)),
        ((6, 0), (0).to_bytes(8, "little") + bytes([1]) + bytes(15)),
    ):
        with pytest.raises(ValueError, match="payload damaged"):
            pack(15, 1, 0, 1, core, wrong)
        good = HyperLogLog(6)
        if core[1]:
            good.add_many(range(100))
        data = _packed(core, wrong)
        with pytest.raises(FormatError):
            HyperLogLog.from_bytes(data)


def _packed(core: tuple[int, int], payload: bytes) -> bytes:
    """Return a file whose checksums are right, whatever it holds."""
    from evenbins import _core

    return _core.file_header(15, 1, 0, 1, list(core), payload) + payload


def test_the_length_is_an_estimate_and_says_so() -> None:
    """And a HyperLogLog is true, as it was before it had a length to refuse."""
    h = HyperLogLog()
    for each in (h, h.copy()):
        with pytest.raises(TypeError, match=r"use count\(\)"):
            len(each)
        assert each
        each.add("a")
        assert each


def test_merged_in_place_it_equals_the_sketch_of_both() -> None:
    h, g, both = HyperLogLog(10), HyperLogLog(10), HyperLogLog(10)
    h.add_many(np.arange(50_000), threads=2)
    g.add_many(np.arange(40_000, 90_000), threads=2)
    both.add_many(np.arange(90_000))
    h |= g
    assert h == both
    assert h != g
    assert h.stats().error == h.plan.error
    assert abs(h.count() / 90_000 - 1) < 6 * h.stats().error
