"""The soaks themselves: short ones of every structure find nothing, and broken structures are found out.

`make soak` runs them with 10**9, 10**7 and 10**6 operations; `make crash` the kills, 2,000 and 2,000.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sizes import size

from evenbins import BlockedBloomFilter, CountingBloomFilter, CountMinSketch, MultilevelTable

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import kill_writes
from soaks import harness, in_memory, on_disk, over_network
from soaks.fingerprints import FingerprintSoak

STEPS = size(2, 8)
SOME = ["Redis, multilevel", "memcached", "HTTP router"]
ALL = [*in_memory.CASES, *on_disk.CASES, *(case for case in over_network.CASES if case.name in SOME)]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_a_short_soak_finds_nothing(case: harness.Case) -> None:
    soak = case.make(np.random.default_rng(3))
    try:
        assert sum(soak.step() for _ in range(STEPS)) > 0
        soak.audit()
    finally:
        soak.close()
    assert (soak.said, soak.lost, soak.broken, soak.drift) == ([], 0, 0, 0)


class Forgetful(BlockedBloomFilter):
    def contains_many(self, keys: Any, **options: Any) -> Any:
        found = super().contains_many(keys, **options)
        found[np.asarray(keys) % 997 == 0] = False
        return found


class Careless(CountingBloomFilter):
    def add_many(self, keys: Any, **options: Any) -> None:
        super().add_many(keys[1:], **options)


class Timid(CountMinSketch):
    def count_many(self, keys: Any, **options: Any) -> Any:
        return super().count_many(keys, **options) // 2


class Liar(MultilevelTable):
    def stats(self) -> Any:
        import dataclasses

        return dataclasses.replace(super().stats(), keys=7)


class Absent(MultilevelTable):
    def get_many(self, keys: Any, default: Any = 0, **options: Any) -> Any:
        found = super().get_many(keys, default, **options)
        found[::1009] += 1
        return found


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda rng: in_memory.FilterSoak(rng, lambda: Forgetful(100_000), ordered=True), "lost"),
        (lambda rng: in_memory.CountingSoak(rng, lambda: Careless(100_000), 3), "lost"),
        (lambda rng: in_memory.SketchSoak(rng, lambda: Timid(1e-3, 1e-3)), "lost"),
        (lambda rng: in_memory.TableSoak(rng, lambda: Absent(100_000)), "lost"),
        (lambda rng: in_memory.TableSoak(rng, lambda: Liar(100_000)), "drift"),
    ],
    ids=["a filter", "counts", "a sketch", "values", "stats()"],
)
def test_a_broken_structure_is_found_out(make: Any, what: str) -> None:
    """Power: each of these does one thing wrong."""
    soak = make(np.random.default_rng(3))
    for _ in range(30):
        soak.step()
    soak.audit()
    assert getattr(soak, what) > 0
    assert soak.said


def test_a_fingerprint_that_is_gone_is_found_out() -> None:
    soak = FingerprintSoak(np.random.default_rng(3), 5000, 1e-3)
    soak.add(np.arange(2000))
    soak.filter.remove(int(soak.keys[1234]))
    soak.ask(np.arange(2000))
    assert soak.lost == 2  # it is not found, and not counted
    soak.audit()
    assert soak.drift >= 2
    soak.close()


def outcome(rss: list[int], descriptors: list[int]) -> harness.Outcome:
    return harness.Outcome("x", "memory", 1, rss=[each << 20 for each in rss], descriptors=descriptors)


def test_memory_and_descriptors_that_grow_are_found_out() -> None:
    flat = [5] * 10
    assert outcome([60, 66, 65, 66, 70, 66, 71, 66, 66, 72], flat).fine
    assert outcome([60 + 9 * i for i in range(10)], flat).grew > 30 << 20
    assert not outcome([60 + 9 * i for i in range(10)], flat).fine
    assert not outcome([60] * 10, [5 + i for i in range(10)]).fine


def test_an_error_is_told_like_a_loss() -> None:
    class Breaks(harness.Soak):
        def step(self) -> int:
            raise RuntimeError("broken")

    out = harness.run(harness.Case("breaks", Breaks), "memory", 100, 1, 0)
    assert (out.lost, out.fine) == (1, False)
    assert "RuntimeError: broken" in out.said[0]


def test_some_kills_of_every_kind_of_file(tmp_path: Path) -> None:
    found = kill_writes.kill_saves(tmp_path, len(kill_writes.MAKERS), random.Random(3))
    assert sum(counts["old"] + counts["new"] for counts in found.values()) == len(kill_writes.MAKERS)


def test_some_kills_of_writes(tmp_path: Path) -> None:
    found = kill_writes.kill_table_writes(tmp_path, size(5, 10), random.Random(4))
    assert found["kills"] == size(5, 10)
