"""Growing filters of fingerprint filters, which double by themselves: one read for 256-fold growth."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import evenbins
from evenbins import FormatError, GrowingFilter, design
from evenbins.design.needs import policies_for
from evenbins.filters import stage_plans
from evenbins.filters.stage_plans import StageRequest

KEYS = np.arange(300_000)


def made(fpr: float = 1e-3, first: int = 1000) -> GrowingFilter:
    return GrowingFilter(fpr, first=first, policy="fingerprint")


@pytest.fixture(scope="module")
def full() -> GrowingFilter:
    """A filter with one stage, which holds 256 times its first keys."""
    f = made()
    f.add_many(KEYS[:255_000], threads=2)
    return f


def test_one_stage_holds_256_times_the_first_keys(full: GrowingFilter) -> None:
    f = full.copy()
    assert made().nbytes < 20_000
    assert f.stages == 1
    assert f.contains_many(KEYS[:255_000]).all()
    found = f.stats()
    assert found.fpr <= 1e-3 * 6 / np.pi**2
    assert found.reads <= 1.05
    assert f.plan.keys == f.capacity >= 255_000
    f._check()
    absent = np.arange(10**6, 10**6 + 300_000)
    expected = found.fpr * len(absent)
    assert abs(f.contains_many(absent).sum() - expected) < 5 * expected**0.5
    f.add_many(KEYS)
    assert f.stages == 2
    assert f.contains_many(KEYS).all()
    assert all(key in f for key in KEYS[::1000].tolist())
    assert f.stats().fpr <= 1e-3
    f._check()


def test_single_calls_bulk_calls_and_threads_leave_the_same_bytes(full: GrowingFilter) -> None:
    one, many = made(), made()
    for key in KEYS[:12_000].tolist():
        one.add(key)
        assert one.add_new(key) is False
    assert many.add_new_many(KEYS[:12_000], threads=1).sum() == one.approx_items()
    assert one == many
    assert one.to_bytes() == many.to_bytes()
    many.add_many(KEYS[:255_000], threads=1)
    assert many.to_bytes() == full.to_bytes()


def test_files_and_copies(full: GrowingFilter, tmp_path: Path) -> None:
    full.save(tmp_path / "f")
    opened = GrowingFilter.open(tmp_path / "f", verify=True)
    for f in (evenbins.load(tmp_path / "f"), opened, pickle.loads(pickle.dumps(full)), full.copy()):
        assert f == full
        f._check()
    with pytest.raises(ValueError, match="read-only"):
        opened.add(1)
    other = GrowingFilter(1e-3, first=2000, policy="fingerprint")
    data = bytearray(full.to_bytes())
    inner = other._stages[0].to_bytes()
    at = data.index(inner[:8])  # the file of the stage begins as every file does
    at = data.index(inner[:8], at + 1)
    with pytest.raises(FormatError):
        GrowingFilter.from_bytes(bytes(data[:at] + inner + data[at + len(inner) :]))


def test_filters_that_have_grown_differently_are_united() -> None:
    small, large = made(), made()
    small.add_many(KEYS[:3000])
    large.add_many(KEYS[2000:60_000])
    for a, b in ((small, large), (large, small)):
        both = a | b
        assert both.contains_many(KEYS[:60_000]).all()
        assert both.approx_items() == small.approx_items() + large.approx_items()
        both._check()
    assert small.contains_many(KEYS[:3000]).all()
    assert small.capacity < large.capacity


@pytest.mark.parametrize("fpr", [1e-6, 1e-7, 1e-8, 1e-9 * np.pi**2])
def test_a_low_rate_has_stages_that_double_less_often_and_takes_no_more_memory(fpr: float) -> None:
    """It took 1,339 bits per key at 1e-8: remainders that are too short are made up for by lines."""
    f, other = made(fpr, 20_000), GrowingFilter(fpr, first=20_000, policy="fill")
    assert f.nbytes < 2.5 * other.nbytes
    f.add_many(KEYS)
    assert f.contains_many(KEYS).all()
    assert f.nbytes * 8 < 200 * len(KEYS)
    assert f.stats().fpr <= fpr
    f._check()
    assert GrowingFilter.from_bytes(f.to_bytes()) == f


def test_an_impossible_rate_is_refused() -> None:
    f = made(1e-8)
    with pytest.raises(ValueError, match="fpr must be at least"):
        made(1e-18)
    with pytest.raises(ValueError, match=r"fpr must be at least .*e-0[89]"):
        made(1e-9)
    assert not hasattr(f, "remove")


def test_design_proposes_it_for_unknown_sizes() -> None:
    found = design.filter(10_000, fpr=1e-3, needs=["unknown size"], policies=["blocked", "fingerprint"])
    assert {each.policy for each in found} == {"blocked", "fingerprint"}
    f = found.by_policy("fingerprint").build(KEYS[:20_000])
    assert isinstance(f, GrowingFilter)
    assert f.stages == 1
    assert f.contains_many(KEYS[:20_000]).all()
    assert found.by_policy("fingerprint").plan == f.copy()._next_stage(0).plan
    assert "fingerprint" in policies_for(["unknown size"], None)
    assert "fingerprint" not in policies_for([], None)


def test_a_stage_whose_overflow_list_is_full_is_saved():
    digests = np.arange(1, 1000, dtype=np.uint64) << np.uint64(40)  # all in one block
    f = GrowingFilter(1e-3, first=10, policy="fingerprint")
    f.add_many(digests, digests=True)
    assert f.stages > 1
    assert f._counts[0] < f._stages[0]._most_keys
    f._check()
    again = GrowingFilter.from_bytes(f.to_bytes())
    assert again == f
    assert again.contains_many(digests, digests=True).all()


def test_an_interrupt_while_a_thread_begins_is_raised_as_it_is(monkeypatch):
    def start(self):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            {}.pop(self)  # as CPython's Thread.start may

    monkeypatch.setattr(stage_plans.threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        stage_plans._Planning(StageRequest("fingerprint", 100, 0.01, 512)).start()
