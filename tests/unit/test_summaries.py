"""Summaries, and tables that keep one: what they accept, refuse, store and say."""

from __future__ import annotations

import copy
import pickle
import runpy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenbins
from evenbins import FormatError, MultilevelTable
from evenbins.structure import kind_of_number
from evenbins.study.counter_summary import CounterSummary, plan_counters
from evenbins.tables.multilevel import plan_multilevel
from evenbins.tables.multilevel_plan import FORGETFUL, RISING, SCHEMES
from evenbins.tables.summaries import (
    InterpolationSummary,
    MultipleBloomSummary,
    SingleFilterSummary,
    Summary,
    SummaryPlan,
    plan_summary,
)
from evenbins.tables.summary_plan import KINDS, NUMBERS
from reference import format as reference_format

GOLDEN = Path(__file__).parents[1] / "golden"
MAKER = runpy.run_path(str(GOLDEN / "make_golden.py"))
SECRET = 0xC0FFEE_5EED_C0FFEE
SUMMARIES: dict[str, Any] = {
    "interpolation": lambda **more: InterpolationSummary(1000, levels=4, **more),
    "single-filter": lambda **more: SingleFilterSummary(1000, levels=4, **more),
    "multiple-bloom": lambda **more: MultipleBloomSummary(1000, levels=4, **more),
    "counting-single-filter": lambda **more: SingleFilterSummary(1000, levels=4, counting=True, **more),
    "counting-multiple-bloom": lambda **more: MultipleBloomSummary(1000, levels=4, counting=True, **more),
    "counters": lambda **more: CounterSummary(1000, **more),
}
SKEW = np.array([1] * 880 + [2] * 110 + [3] * 9 + [4])


def planned(kind: str, keys: int = 1000, **options: Any) -> Summary:
    """Build a summary with options that only planners have."""
    found = kind_of_number(NUMBERS[kind])
    assert found is not None
    summary: Summary = found.cls.from_plan(plan_summary(keys, kind=kind, **options))
    return summary


@pytest.fixture(params=SUMMARIES)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def filled(kind: str) -> Summary:
    """A summary with a thousand keys, most of them in level 1."""
    summary: Summary = SUMMARIES[kind]()
    summary.add_many(np.arange(1000), SKEW)
    return summary


# --- keys -----------------------------------------------------------------------------------------


def test_every_key_is_answered_its_level(filled: Summary, kind: str) -> None:
    answers = filled.level_many(np.arange(1000))
    assert answers.dtype == np.uint8
    assert (answers > 0).all()
    if kind != "counters":
        assert (answers == SKEW).all()
    assert (filled.level_many(np.arange(10_000, 20_000)) > 0).mean() < 0.03
    assert filled.level(5) == answers[5]
    assert 5 in filled
    assert filled.stats().keys == 1000 or kind in ("single-filter", "multiple-bloom")
    assert 990 <= filled.stats().keys <= 1000


def test_keys_are_those_of_the_filters(kind: str, mixed_keys: list[object]) -> None:
    one, many = SUMMARIES[kind](seed=SECRET), SUMMARIES[kind](seed=SECRET)
    for i, key in enumerate(mixed_keys[:300]):
        one.add(key, i % 4 + 1)
    many.add_many(mixed_keys[:300], [i % 4 + 1 for i in range(300)])
    assert one == many
    assert [one.level(key) for key in mixed_keys[:300]] == many.level_many(mixed_keys[:300]).tolist()
    digests = evenbins.digest_many(mixed_keys[:300], seed=SECRET)
    assert many.level_many(digests, digests=True).tolist() == many.level_many(mixed_keys[:300]).tolist()
    with pytest.raises(TypeError, match="str, bytes or int"):
        one.level(1.5)
    shaped = np.arange(6).reshape(2, 3)
    assert many.level_many(shaped).shape == (2, 3)


def test_removal_and_moves(filled: Summary, kind: str) -> None:
    if kind in FORGETFUL:
        filled.remove(3)
        filled.move(4, 1, 3)
        filled.move(4, 3, 2)
        assert filled.level(3) == 0
        assert filled.level(4) == 2
        removed = filled.remove_many(np.arange(10, 1000), SKEW[10:])
        assert removed.all()
        assert filled.stats().keys == 9
        with pytest.raises(KeyError):
            filled.remove(3)
        assert (filled.level_many([0, 1, 2, 5, 6, 7, 8, 9]) == 1).all()
        filled._check()
        return
    with pytest.raises(TypeError, match="counting=True"):
        filled.remove(3)
    with pytest.raises(TypeError, match="counting=True"):
        filled.remove_many([3], 1)
    if kind != "counters":
        filled.move(4, 1, 3)
        assert filled.level(4) == 3
        with pytest.raises(TypeError, match="cannot forget"):
            filled.move(4, 3, 2)


@pytest.mark.parametrize(
    ("levels", "error", "words"),
    [
        (0, ValueError, "1 to 4"),
        (5, ValueError, "1 to 4"),
        ([1, 2], ValueError, "as many as the keys"),
        ([1.0, 2.0, 3.0], TypeError, "integers"),
        ([1, 2, 300], ValueError, "1 to 4"),
        ("one", TypeError, "integers"),
    ],
)
def test_levels_that_are_none_are_refused(levels: Any, error: type[Exception], words: str) -> None:
    summary = SUMMARIES["multiple-bloom"]()
    with pytest.raises(error, match=words):
        summary.add_many([1, 2, 3], levels)
    assert summary.stats().keys == 0
    with pytest.raises((ValueError, TypeError), match="level must be"):
        summary.add(1, 9)


def test_a_full_counter_sticks_and_no_key_is_lost() -> None:
    for summary in (
        planned("counting-single-filter", 50, levels=2, filters=[(20, 2)], counter_bits=2),
        planned("counting-multiple-bloom", 50, levels=2, filters=[(20, 2), (12, 2)], counter_bits=2),
    ):
        summary.add_many(range(50), 1)
        assert summary.stats().saturated > 0
        assert summary.remove_many(range(40), 1).all()
        assert (summary.level_many(range(40, 50)) > 0).all()
        summary._check()


def test_a_list_that_is_full_knows_every_key() -> None:
    summary = planned("counting-multiple-bloom", 100, levels=2, filters=[(1000, 7), (5, 0)])
    summary.add_many(range(10), 2)
    assert (summary.level_many(range(10)) == 2).all()
    summary.add(50, 1)
    assert summary.level(50) == 2  # wrong, not 0
    summary.remove_many(range(5), 2)
    assert (summary.level_many(range(5, 10)) == 2).all()
    summary._check()


def test_counters_prune(kind: str) -> None:
    s = CounterSummary(1000)
    s.add_many(range(1000))
    buckets = s.bucket_many(range(1000))
    assert (buckets >= 0).all()
    assert s.bucket_many([10**9 + i for i in range(100)]).min() == -1
    assert sum(i * n for i, n in enumerate(s.loads(range(1000)))) == 1000
    assert sum(s.loads(range(1000))) == s.plan.core[1]


# --- copies and files -----------------------------------------------------------------------------


def test_copies_are_independent(filled: Summary) -> None:
    for twin in (filled.copy(), copy.copy(filled), copy.deepcopy(filled), pickle.loads(pickle.dumps(filled))):
        assert twin == filled
        assert type(twin) is type(filled)
        twin.add_many(range(5000, 5100), 1)
        assert twin != filled
        twin.clear()
        assert twin.stats().keys == 0
        twin._check()
    filled._check()


def test_files(filled: Summary, tmp_path: Path) -> None:
    path = tmp_path / "summary"
    filled.save(path)
    loaded, opened = type(filled).load(path), type(filled).open(path)
    assert loaded == opened == filled
    assert loaded.plan == filled.plan
    assert "read-only" in repr(opened)
    with pytest.raises(ValueError, match="read-only"):
        opened.add(1, 1)
    assert reference_format.unpack(path.read_bytes()).core == filled.plan.core
    assert evenbins.load(path) == filled
    with pytest.raises(FormatError, match="another kind"):
        (InterpolationSummary if filled._kind != 9 else SingleFilterSummary).load(path)


def test_damaged_files_are_refused(filled: Summary) -> None:
    data = filled.to_bytes()
    for at in [*range(0, 128, 7), *range(128, len(data), max(1, len(data) // 60))]:
        with pytest.raises(FormatError):
            type(filled).from_bytes(data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :])
    for cut in (5, 100, len(data) - 1):
        with pytest.raises(FormatError):
            type(filled).from_bytes(data[:cut])


def test_a_payload_that_lies_is_refused() -> None:
    """Right checksums around wrong contents."""

    def lying(s: Summary, at: int, value: int) -> bytes:
        parts = reference_format.unpack(s.to_bytes())
        payload = bytearray(parts.payload)
        payload[at] = value
        return reference_format.pack(
            parts.kind, parts.hashing, parts.seed, parts.capacity, parts.core, bytes(payload)
        )

    interpolation, single = (
        InterpolationSummary(20, levels=3),
        planned("single-filter", 20, levels=5, filters=[(24, 2)]),
    )
    lists = planned("multiple-bloom", 20, levels=2, filters=[(100, 3), (4, 0)])
    interpolation.add_many(range(20), 1)
    for s, at, value, words in (
        (interpolation, 0, 3, "count"),
        (interpolation, 8, 99, "contradict"),
        (interpolation, 16, 1, "spare"),
        (interpolation, 64, 255, "summary"),
        (single, 64, 216, "out of range"),
        (single, 8, 1, "spare"),
        (lists, 64 + 15, 128, "beyond"),
        (lists, 128, 1, "count"),
        (lists, 128 + 8 * 9, 1, "found|count"),
    ):
        with pytest.raises(FormatError, match=words):
            type(s).from_bytes(lying(s, at, value))


@pytest.mark.parametrize("golden", MAKER["SUMMARIES"])
def test_golden_summaries_are_read_and_written_the_same(golden: str) -> None:
    data = (GOLDEN / f"{golden}.evenbins").read_bytes()
    made = MAKER["golden_summary"](golden)
    read = type(made).from_bytes(data)
    read._check()
    assert read == made
    assert read.to_bytes() == data == made.to_bytes()
    assert (read.level_many(MAKER["KEYS"]) > 0).all()
    reference_format.unpack(data)


# --- plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_a_plan_meets_the_need(name: str) -> None:
    plan = plan_summary(10_000, kind=name, levels=5, false_positives=0.006, failure=1e-9)
    assert plan.false_positives <= 0.006 * 1.0001
    assert plan.failure is not None
    assert plan.failure <= 1e-9
    assert plan == plan_summary(10_000, kind=name, levels=5, false_positives=0.006, failure=1e-9)
    assert plan.to_dict()["kind"] == name
    built = planned(name, 10_000, levels=5, false_positives=0.006, failure=1e-9)
    assert built.nbytes == plan.nbytes
    assert "nbytes" in repr(plan)
    assert "failure" in str(plan)
    assert "<table" in plan._repr_html_()


def test_plans_of_the_thesis() -> None:
    """Table 4.3: the bytes without occupancy bits (7500, 75_000), and the failures of `multilevel`."""
    single = plan_summary(10_000, kind="single-filter", levels=5, filters=[(120_000, 15)])
    assert single.nbytes - 64 == 47_500 - 7500
    assert single.failure == pytest.approx(7.6298e-10, rel=1e-3)
    large = plan_summary(100_000, kind="single-filter", levels=6, filters=[(1_200_000, 15)])
    assert large.nbytes - 64 == 525_000 - 75_000
    assert large.failure == pytest.approx(7.2677e-9, rel=1e-3)
    filters = [(106_000, 7), (87_500, 49), (5_500, 49), (500, 49), (100, 49)]
    multiple = plan_summary(10_000, kind="multiple-bloom", levels=5, filters=filters)
    assert 32_450 - 7500 <= multiple.nbytes - 64 < 32_450 - 7500 + 5 * 64
    assert multiple.failure == pytest.approx(4.972e-12 - 1.007e-12, rel=1e-3)
    assert plan_counters(10_000, buckets=131_072).nbytes - 64 == 49_152


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"kind": "bloom"}, ValueError, "one of"),
        ({"kind": 3}, TypeError, "kind must be one of"),
        ({"levels": 10}, ValueError, "levels"),
        ({"levels": 3, "shares": [0.5, 0.5]}, ValueError, "each of 3 levels"),
        ({"shares": [0.5, 0.2]}, ValueError, "1 in all"),
        ({"shares": "ab"}, TypeError, "sequence"),
        ({"shares": [1.0], "sizes": [100]}, ValueError, "exclude"),
        ({"levels": 4, "sizes": [100, 50]}, ValueError, "one more for the list"),
        ({"failure": 0}, ValueError, "failure"),
        ({"false_positives": 1.0}, ValueError, "false_positives"),
        ({"kind": "interpolation", "filters": [(10, 1)]}, ValueError, "not for kind"),
        ({"digest_bits": 40}, ValueError, "not for kind"),
        ({"counter_bits": 4}, ValueError, "not for kind"),
        ({"kind": "interpolation", "digest_bits": 62}, ValueError, "digest_bits"),
        ({"filters": [(10, 1)]}, ValueError, "5 pairs"),
        ({"levels": 1, "filters": [(10, 0)]}, ValueError, r"filters\[0\]"),
        ({"levels": 1, "filters": [(10, 65)]}, ValueError, "hashes"),
        ({"levels": 1, "filters": [(3, 5)]}, ValueError, "cells"),
        ({"kind": "counting-multiple-bloom", "counter_bits": [3, 3]}, ValueError, "counter_bits"),
        ({"kind": "counting-multiple-bloom", "counter_bits": 17}, ValueError, "counter_bits"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_plans_refuse(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        plan_summary(1000, **arguments)


def test_classes_refuse() -> None:
    with pytest.raises(ValueError, match="filters must have 1 pairs"):
        plan_summary(100, kind="single-filter", filters=[(50, 1), (20, 1)])
    with pytest.raises(TypeError, match="SummaryPlan"):
        InterpolationSummary.from_plan(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="choices"):
        CounterSummary(100, choices=0)


# --- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_serves_its_schemes(name: str, scheme: str) -> None:
    if name not in FORGETFUL and scheme not in RISING:
        with pytest.raises(ValueError, match="counting-"):
            MultilevelTable(1000, scheme=scheme, summary=name)
        return
    t = MultilevelTable.from_plan(plan_multilevel(1000, scheme=scheme, summary=name, failure=1e-6))
    plain = MultilevelTable(1000, scheme=scheme)
    keys = np.arange(1000)
    t.insert_many(keys, keys)
    plain.insert_many(keys, keys)
    assert dict(t.items()) == dict(plain.items())
    assert list(t) == list(plain)  # in the same slots
    assert (t.get_many(keys, threads=2) == keys).all()
    t.contains_many(np.arange(10_000, 30_000))
    stats, plan = t.stats(), t.plan
    assert stats.reads == pytest.approx(1 - stats.overflow)
    assert stats.summary_wrong == 0
    assert stats.miss_reads < 0.2
    assert plan.miss_reads is not None
    assert plan.reads is None or abs(plan.reads - 1) < 0.01
    assert stats.summary == name == t.summary.plan.kind  # type: ignore[union-attr]
    t._check()


def test_plans_of_tables_with_a_summary() -> None:
    t = MultilevelTable.from_plan(
        plan_multilevel(5000, scheme="standard", summary="multiple-bloom", false_positives=1e-3)
    )
    assert t.plan.summary is not None
    assert t.plan.summary.false_positives <= 1e-3 * 1.0001
    assert t.plan.miss_reads == pytest.approx(4 * t.plan.summary.false_positives)
    assert isinstance(t.plan.to_dict()["summary"], dict)
    assert "summary" in str(t.plan)
    assert "summary" not in str(MultilevelTable(100).plan)
    assert "summary" not in MultilevelTable(100).stats().to_dict()
    assert t.stats().to_dict()["summary"] == "multiple-bloom"
    again = MultilevelTable.from_plan(t.plan)
    assert again.plan.summary == t.plan.summary
    assert again._guide_state()
    own = plan_summary(5000, kind="single-filter", levels=5, filters=[(90_000, 15)])
    assert MultilevelTable(5000, scheme="standard", summary=own).summary.plan == own  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"deletions": "lazy"}, "summary=None"),
        ({"deletions": "lazy", "summary": "interpolation"}, "Leave it out"),
        ({"deletions": "lazy", "summary": "multiple-bloom", "scheme": "second-chance"}, "'standard'"),
        ({"summary": "bloom"}, "summary must be one of"),
        ({"summary": "counters"}, "summary must be one of"),
        ({"failure": 1e-3}, "summary=None"),
        ({"false_positives": 1e-3}, "summary=None"),
        ({"summary": "interpolation", "failure": 2}, "failure"),
    ],
)
def test_tables_refuse_summaries_that_cannot_work(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MultilevelTable.from_plan(plan_multilevel(1000, **arguments))


def test_a_summary_with_too_few_levels_is_refused() -> None:
    with pytest.raises(ValueError, match="3 levels"):
        MultilevelTable(1000, summary=plan_summary(1000, kind="interpolation", levels=2))


@pytest.mark.parametrize("name", ["single-filter", "multiple-bloom"])
def test_deletions_need_a_summary_that_forgets(name: str) -> None:
    t = MultilevelTable(1000, scheme="standard", summary=name)
    t[5] = 7
    with pytest.raises(TypeError, match="lazy"):
        del t[5]
    with pytest.raises(TypeError, match="counting"):
        t.delete_many([5])
    assert t[5] == 7
    t.clear()
    assert len(t) == 0
    assert 5 not in t
    t._check()


def test_a_key_that_returns_takes_its_slot_again() -> None:
    t = MultilevelTable(1000, scheme="standard", summary="multiple-bloom", deletions="lazy")
    keys = np.arange(1000)
    t.insert_many(keys, keys)
    before = list(t)
    summary = t.summary
    t.delete_many(keys[:60])
    assert t.stats().reserved == 60
    t.insert_many(keys[:60][::-1], 0)
    assert t.stats().reserved == 0
    assert list(t) == before
    assert t.summary == summary
    t._check()


def test_a_slot_of_a_deleted_key_is_not_given_to_another() -> None:
    t = MultilevelTable.from_plan(
        plan_multilevel(
            1000, scheme="standard", slots=1, shares=[1, 1], summary="single-filter", deletions="lazy"
        )
    )
    t.insert_many(range(500), 0)
    slots = {key: t.probe(key)[0] for key in range(500)}
    gone = [key for key in range(500) if slots[key] == 1][:40]
    t.delete_many(gone)
    placed = t.stats().fills
    t.insert_many(range(10_000, 10_100), 0)
    assert t.stats().reserved == 40
    assert t.stats().fills > placed
    t.rebuild()
    stats = t.stats()
    assert (stats.reserved, stats.rebuilds) == (0, 1)
    assert len(t) == 560
    t._check()


def test_summaries_and_files_of_tables(tmp_path: Path) -> None:
    """A file has no summary, and deleted keys are not in it, whether their slots are reserved or not."""
    t = MultilevelTable(1000, scheme="standard", summary="multiple-bloom", deletions="lazy")
    t.insert_many(range(1000), 5)
    t.delete_many(range(90))
    t.save(tmp_path / "table")
    plain = MultilevelTable.load(tmp_path / "table")
    assert plain.plan.summary is None
    assert plain.summary is None
    assert 3 not in plain
    assert len(plain) == 910
    plain._check()
    loaded = MultilevelTable.load(tmp_path / "table", summary="multiple-bloom")
    assert loaded == t == plain
    assert loaded.probe(500)[1] == 1
    loaded._check()
    opened = MultilevelTable.open(tmp_path / "table")
    opened.attach_summary("interpolation")
    assert opened.probe(500)[1] <= 1
    assert opened.probe(10**9)[1] == 0
    opened.attach_summary(None)
    assert opened.probe(10**9)[1] == 4
    again = pickle.loads(pickle.dumps(t))
    assert again == t
    assert again.stats().summary == "multiple-bloom"
    assert again.plan.rebuild_threshold == t.plan.rebuild_threshold
    del again[500]
    again._check()


def test_growing_keeps_the_summary() -> None:
    for arguments in (
        {"summary": "interpolation"},
        {"summary": "multiple-bloom", "scheme": "standard", "deletions": "lazy"},
    ):
        t = MultilevelTable.from_plan(plan_multilevel(500, **arguments))  # type: ignore[arg-type]
        t.insert_many(range(500), 1)
        larger = t.grown(3000)
        larger.insert_many(range(3000), 2)
        larger._check()
        assert larger.stats().summary == arguments["summary"]
        assert larger.plan.keys >= 3000
        assert bool(larger.plan.rebuild_threshold) == bool(t.plan.rebuild_threshold)


def test_digests_of_strings() -> None:
    t = MultilevelTable(1000, key_dtype="digest", summary="counting-multiple-bloom")
    words = [f"word {i}" for i in range(1000)]
    t.insert_many(words, range(1000))
    del t["word 3"]
    assert t.get_many(words, default=-1).tolist() == [i if i != 3 else -1 for i in range(1000)]
    assert t.stats().summary_wrong == 0
    t._check()


def test_attaching_and_reads_are_exact() -> None:
    t = MultilevelTable(2000)
    t.insert_many(range(2000), 0)
    plain = t.stats()
    t.attach_summary("counting-single-filter")
    levels = [t.probe(key)[0] for key in range(2000)]
    summary = t.summary
    assert summary is not None
    assert [level or 3 for level in levels] == summary.level_many(range(2000)).tolist()
    assert t.stats().fills == plain.fills
    with pytest.raises(ValueError, match="one of"):
        t.attach_summary("nothing")
    assert t.summary == summary


def test_many_threads_look_up_and_are_counted() -> None:
    t = MultilevelTable(50_000, summary="interpolation")
    keys = np.arange(50_000)
    t.insert_many(keys, keys)
    threads = [threading.Thread(target=lambda: t.get_many(keys, threads=2)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hits, hit_reads, *_ = t._guide_state()
    assert hits == 150_000
    assert hit_reads == 150_000 - 3 * t.stats().overflow_used


def test_insertion_reads_with_a_summary() -> None:
    """A new key is known to be new without a read, but for false positives."""
    t = MultilevelTable(2000, scheme="standard", summary="multiple-bloom")
    t.insert_many(range(2000), 0)
    plain = MultilevelTable(2000, scheme="standard")
    plain.insert_many(range(2000), 0)
    assert plain.stats().insertion_reads == 4
    assert t.stats().insertion_reads < 0.05


def test_plan_objects() -> None:
    plan = plan_summary(1000)
    assert isinstance(plan, SummaryPlan)
    assert plan.wrong == plan.failure / 1000  # type: ignore[operator]
    assert plan_counters(1000).wrong is None
    stats = MultipleBloomSummary(1000).stats()
    assert stats.to_dict()["keys"] == 0
    assert "fills" in str(stats)
    assert "<table" in stats._repr_html_()
    assert "SummaryStats" in repr(stats)
