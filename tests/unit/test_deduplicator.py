"""Deduplicator: counts, growth, errors, files, merging. tests/property/test_dedup.py compares it to a set."""

from __future__ import annotations

import pickle
import runpy
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenbins
from evenbins import Deduplicator, FormatError
from evenbins._bulk import Lines, Spans
from evenbins.deduplication import DeduplicatorFullError, Fields, digests, stages

GOLDEN = Path(__file__).parents[1] / "golden"
MAKER = runpy.run_path(str(GOLDEN / "make_golden.py"))
both_modes = pytest.mark.parametrize("exact", [False, True], ids=["approximate", "exact"])
KEYS = np.random.default_rng(5).integers(0, 2**62, 40_000)


def first_occurrences(keys: Any) -> np.ndarray[Any, Any]:
    mask = np.zeros(len(keys), bool)
    mask[np.unique(keys, return_index=True)[1]] = True
    return mask


# --- answers -----------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.parametrize("capacity", [None, 1, 1000, 50_000])
@pytest.mark.parametrize("batch", [7919, 100_000])
@pytest.mark.parametrize("threads", [None, 3])
def test_first_occurrences_over_batches(
    exact: bool, capacity: int | None, batch: int, threads: int | None
) -> None:
    keys = np.concatenate([KEYS, KEYS[::3], KEYS[::-1]])
    d = Deduplicator(exact=exact, capacity=capacity)
    got = [d.keep(keys[i : i + batch], threads=threads) for i in range(0, len(keys), batch)]
    assert (np.concatenate(got) == first_occurrences(keys)).all()
    d._check()
    stats = d.stats()
    assert (stats.rows, stats.kept, stats.dropped) == (len(keys), len(KEYS), len(keys) - len(KEYS))
    assert stats.keys == len(KEYS) <= stats.capacity
    assert stats.expected_wrong < 1e-4
    assert d.contains_many(KEYS).all()
    assert not d.contains_many(-KEYS - 1).any()


@both_modes
def test_bytes_do_not_depend_on_batches_or_threads(exact: bool) -> None:
    """Across the ends of stages, and of one set and of 64."""
    keys = np.random.default_rng(6).integers(0, 1_300_000, 2_000_000)
    whole, parts = (Deduplicator(exact=exact, fpr=1e-6) for _ in range(2))
    answers = whole.keep(keys)
    cuts = [0, 1, 5, 65_535, 65_536, 700_000, 700_001, 1_999_999, 2_000_000]
    pieces = [parts.keep(keys[a:b], threads=1 + i % 2) for i, (a, b) in enumerate(pairwise(cuts))]
    assert (np.concatenate(pieces) == answers).all()
    assert whole == parts
    assert whole.to_bytes() == parts.to_bytes()


@both_modes
def test_every_kind_of_keys(exact: bool) -> None:
    pyarrow, polars, pandas = (pytest.importorskip(name) for name in ("pyarrow", "polars", "pandas"))
    words = ["a", "b", "a", ""]
    offsets = np.array([0, 1, 2, 3, 3], dtype=np.uint64)
    for batch in (
        words, tuple(words), iter(words), [word.encode() for word in words], np.array(words, object),
        pyarrow.array(words), pyarrow.chunked_array([words[:1], words[1:]]), polars.Series(words),
        pandas.Series(words), Lines(b"a\nb\na\n\n", b"\n"), Spans(b"aba", offsets),
    ):  # fmt: skip
        d = Deduplicator(exact=exact)
        assert d.keep(batch).tolist() == [True, True, False, True], type(batch)
        assert all(word in d for word in words)
        assert "c" not in d
    for numbers in (
        [1, 2, 1],
        np.array([1, 2, 1], np.uint8),
        pyarrow.array([1, 2, 1]),
        pandas.Series([1, 2, 1]),
    ):
        assert Deduplicator(exact=exact).keep(numbers).tolist() == [True, True, False]
    assert Deduplicator(exact=exact).keep([1, "1", b"1", -1, 2**64 - 1, True]).tolist() == [1, 1, 0, 1, 1, 0]
    assert Deduplicator(exact=exact).keep([]).tolist() == []


@both_modes
def test_of_threads_that_bring_one_key_one_keeps_it(exact: bool) -> None:
    d = Deduplicator(exact=exact)
    kept: list[int] = []
    threads = [
        threading.Thread(target=lambda: kept.append(int(d.keep(KEYS).sum()))) for _ in range(4)
    ]  # fmt: skip
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(kept) == [0, 0, 0, len(KEYS)]
    assert (d.stats().rows, d.stats().kept) == (4 * len(KEYS), len(KEYS))


# --- refused ------------------------------------------------------------------------------------------------


@both_modes
@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        (["a", None], TypeError, r"keys\[1\].*NoneType"),
        ([1, 1.5], TypeError, r"keys\[1\].*float"),
        ("abc", TypeError, "many keys"),
        (np.array([1.5]), TypeError, "float64"),
        (7, TypeError, "not int"),
        ([("a", object())], TypeError, "row 0: a field must be"),
        ([("a", 1), "b"], TypeError, "row 1 must be a tuple"),
        (Fields([1, 2], [1]), ValueError, "same number of rows; got 2, 1"),
        ([(2**200, 1)], ValueError, "at most 128 bits"),
    ],
    ids=["null", "float", "one str", "array of floats", "int", "field", "mixed", "lengths", "wide"],
)
def test_a_refused_key_leaves_it_as_it_was(exact: bool, batch: Any, error: Any, text: str) -> None:
    d = Deduplicator(exact=exact)
    d.keep(["z"])
    before = d.to_bytes()
    with pytest.raises(error, match=text):
        d.keep(batch)
    assert d.to_bytes() == before


def test_arguments_are_checked() -> None:
    for arguments, text in [
        ({"fpr": 0}, "fpr must be"), ({"fpr": 1.0}, "fpr must be"), ({"capacity": 0}, "capacity must be"),
        ({"capacity": 1.5}, "capacity must be"), ({"seed": -1}, "seed must be"),
        ({"exact": 1}, "exact must be"),
        ({"fpr": 1e-16}, "fpr must be at least 8.5.*exact=True"),
        ({"fpr": 1e-9, "capacity": 10**11}, "fpr must be at least .*exact=True"),
    ]:  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=text):
            Deduplicator(**arguments)
    with pytest.raises(ValueError, match="threads must be"):
        Deduplicator().keep([1], threads=0)
    with pytest.raises(TypeError, match="rows must be"):
        Deduplicator().expected_wrong(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one or more columns"):
        Fields()


def test_a_full_one_says_so_and_has_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two stages allowed, and no third."""
    monkeypatch.setattr(stages, "_LATER_STAGES", 1)
    monkeypatch.setattr(stages, "_LEAST_LATER", 100)
    d = Deduplicator(capacity=100)
    assert d.max_keys == 200
    with pytest.raises(DeduplicatorFullError, match=r"holds at most 200 keys.*exact=True") as caught:
        d.keep(np.arange(1000))
    assert caught.value.answers.tolist() == [True] * 200
    assert "the first 200 rows" in caught.value.__notes__[0]
    assert (d.stats().rows, d.stats().kept) == (200, 200)
    assert isinstance(caught.value, evenbins.EvenbinsError)
    d._check()
    assert not d.keep(np.arange(200)).any()


@both_modes
def test_an_interrupt_leaves_the_answers_of_what_is_in(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised between two pieces of a batch."""
    module: Any = digests if exact else stages
    monkeypatch.setattr(module, "_PIECE", 1000)
    d = Deduplicator(exact=exact, capacity=50_000)
    state, done = d._state, []
    add_piece: Any = state._add_piece

    def interrupted(*arguments: Any) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(1)
        return add_piece(*arguments)

    monkeypatch.setattr(state, "_add_piece", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        d.keep(KEYS[:10_000])
    answers = caught.value.answers  # type: ignore[attr-defined]
    assert (answers == first_occurrences(KEYS[:3000])).all()
    assert d.stats().rows == 3000
    monkeypatch.undo()
    rest = d.keep(KEYS[len(answers) : 10_000])
    assert (np.concatenate([answers, rest]) == first_occurrences(KEYS[:10_000])).all()


@both_modes
def test_merges_of_equal_ones_change_nothing_but_counts(exact: bool) -> None:
    """However many: no stage is added again."""
    d = Deduplicator(exact=exact)
    d.keep(np.arange(100_000))
    twin, before = d.copy(), d.stats()
    for _ in range(70):
        d |= twin
    after = d.stats()
    assert (after.nbytes, after.keys, after.fpr) == (before.nbytes, before.keys, before.fpr)
    assert after.rows == 71 * before.rows
    d._check()
    assert Deduplicator.from_bytes(d.to_bytes()) == d


def test_too_many_merges_are_refused() -> None:
    """Their first stages have no room for one another."""
    first, *others = (Deduplicator(capacity=1000) for _ in range(65))
    for number, each in enumerate((first, *others)):
        each.keep(np.arange(1000 * number, 1000 * number + 900))
    for each in others[:-1]:
        first |= each
    assert first._state.part_count == 64
    with pytest.raises(ValueError, match=r"would be 65 stages, more than 64\. Build all with the capacity"):
        first.merge(others[-1])
    assert first._state.part_count == 64
    assert first.contains_many(np.arange(900)).all()
    first._check()


# --- design -------------------------------------------------------------------------------------------------


def test_the_known_shapes_reach_their_rates() -> None:
    """They are rounded copies of what the search finds; with them no second is spent on a search."""
    for rate, shape in stages._KNOWN.items():
        plan = stages.plan_stage(1 << 20, rate, 0)
        assert plan.fpr <= rate
        assert plan.hashes == shape.hashes
        assert plan.bits_per_key == pytest.approx(shape.bits_per_key, rel=1e-3)
        assert shape.bits_per_key == pytest.approx(stages._planned_shape(rate).bits_per_key, rel=2e-3)


@pytest.mark.parametrize("fpr", [0.3, 1e-2, 1e-6, 1e-9])
@pytest.mark.parametrize("capacity", [None, 1, 10**6])
def test_the_rates_of_all_stages_sum_to_the_promise(fpr: float, capacity: int | None) -> None:
    goals = []
    while (goal := stages.stage_goal(fpr, capacity, len(goals))) is not None:
        goals.append(goal)
    assert sum(rate for _, rate in goals) <= fpr * (1 + 1e-12)
    assert len(goals) >= 8
    assert stages.most_keys(fpr, capacity) == sum(keys for keys, _ in goals)


def test_a_capacity_too_large_to_grow_has_the_whole_rate() -> None:
    assert stages.stage_goal(1e-9, 6 * 10**9, 0) == (6 * 10**9, 1e-9)
    assert stages.stage_goal(1e-9, 6 * 10**9, 1) is None


def test_memory_per_key() -> None:
    """At most 18 bytes per key exact with a capacity, 6.3 approximate; while it grows at most 26 and 21."""
    keys = np.arange(1_100_000)
    for exact, planned, growing in ((True, 18.0, 26.0), (False, 6.3, 21.0)):
        for capacity, most in ((len(keys), planned), (None, growing)):
            d = Deduplicator(exact=exact, capacity=capacity)
            d.keep(keys)
            assert d.nbytes / len(keys) <= most, (exact, capacity)


@both_modes
def test_repeats_alone_take_no_more_memory(exact: bool) -> None:
    d = Deduplicator(exact=exact, capacity=5000)
    d.keep(range(5000))
    before = d.nbytes
    assert not d.keep(range(5000)).any()
    assert d.nbytes == before
    assert d.keep([*range(5000), -1, 7, -1]).tolist() == [False] * 5000 + [True, False, False]
    assert d.nbytes > before


def test_expected_wrong_before() -> None:
    assert Deduplicator(fpr=1e-3).expected_wrong(1000) == 1.0
    assert Deduplicator(exact=True).expected_wrong(10**12) == 10**24 / 2**129
    assert Deduplicator().expected_wrong(0) == 0.0


# --- the whole ----------------------------------------------------------------------------------------------


@both_modes
def test_copies_pickles_and_files(exact: bool, tmp_path: Path) -> None:
    d = Deduplicator(exact=exact, capacity=30_000, seed=3)
    d.keep(KEYS)
    d.save(tmp_path / "seen")
    opened = Deduplicator.open(tmp_path / "seen", verify=True)
    for twin in (
        d.copy(), pickle.loads(pickle.dumps(d)), Deduplicator.from_bytes(d.to_bytes()), opened,
        Deduplicator.load(tmp_path / "seen"), evenbins.load(tmp_path / "seen"), opened.copy(),
    ):  # fmt: skip
        assert twin == d
        assert twin.to_bytes() == d.to_bytes()
        assert twin.stats() == d.stats()
        if twin is not opened:
            assert not twin.keep(KEYS).any()
            assert twin.keep(-KEYS - 1).all()
            assert twin != d
    for change in (lambda: opened.keep([1]), opened.clear, lambda: opened.merge(d)):
        with pytest.raises(ValueError, match="open read-only"):
            change()
    assert "read-only" in repr(opened)
    assert "seed='set'" in repr(d)
    d.clear()
    assert d == Deduplicator(exact=exact, capacity=30_000, seed=3)


@both_modes
def test_a_state_is_continued(exact: bool, tmp_path: Path) -> None:
    keys = np.concatenate([KEYS, KEYS[::2]])
    whole, answers = Deduplicator(exact=exact), []
    expected = whole.keep(keys)
    for start in range(0, len(keys), 20_000):
        d = Deduplicator.load(tmp_path / "seen") if start else Deduplicator(exact=exact)
        answers.append(d.keep(keys[start : start + 20_000]))
        d.save(tmp_path / "seen")
    assert (np.concatenate(answers) == expected).all()
    assert d == whole


@both_modes
@pytest.mark.parametrize("capacity", [None, 1000])
def test_merging(exact: bool, capacity: int | None) -> None:
    one, other = (Deduplicator(exact=exact, capacity=capacity, seed=1) for _ in range(2))
    one.keep(KEYS[:25_000])
    other.keep(KEYS[20_000:])
    before = one.to_bytes(), other.to_bytes()
    merged = one | other
    assert (one.to_bytes(), other.to_bytes()) == before
    merged._check()
    assert merged.contains_many(KEYS).all()
    assert not merged.keep(KEYS).any()
    assert merged.keep(-KEYS - 1).all()
    merged._check()
    stats = merged.stats()
    assert (stats.rows, stats.kept) == (45_000 + 80_000, 45_000 + 40_000)
    if exact:
        assert stats.keys == 80_000
    one |= other
    assert one == (Deduplicator.from_bytes(before[0]) | other)
    one.merge(one)
    assert one == (Deduplicator.from_bytes(before[0]) | other)
    with pytest.raises(TypeError):
        one |= 3  # type: ignore[operator]
    with pytest.raises(TypeError, match="must be a Deduplicator"):
        one.merge(3)  # type: ignore[arg-type]


def test_what_differs_is_not_merged() -> None:
    plain = Deduplicator(capacity=100)
    for other, text in [
        (Deduplicator(capacity=100, seed=12345), "their seeds differ"),
        (Deduplicator(capacity=100, exact=True), r"exact \(False, True\)"),
        (Deduplicator(capacity=100, fpr=1e-3), r"fpr \(1e-09, 0.001\) differ"),
        (Deduplicator(), r"capacity \(100, None\) differ"),
    ]:
        with pytest.raises(ValueError, match=f"cannot merge: .*{text}") as caught:
            plain.merge(other)
        assert "12345" not in str(caught.value)
        assert plain != other


# --- files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKER["DEDUPLICATORS"])
def test_a_golden_file_is_read_and_goes_on(name: str, tmp_path: Path) -> None:
    path = GOLDEN / f"{name}.evenbins"
    for d in (evenbins.load(path), Deduplicator.open(path, verify=True)):
        d._check()
        assert d.contains_many(MAKER["KEYS"][:60]).all()
        assert (d.stats().rows, d.stats().kept, d.stats().keys) == (70, 60, 60)
        assert d.to_bytes() == path.read_bytes()
    d = Deduplicator.load(path)
    assert not d.keep(MAKER["KEYS"][:60]).any()
    assert d.keep(MAKER["KEYS"][60:]).all()


@both_modes
def test_a_file_of_another_kind_is_refused(exact: bool, tmp_path: Path) -> None:
    evenbins.BloomFilter(10).save(tmp_path / "filter")
    with pytest.raises(FormatError, match=r"another kind.*evenbins.load opens"):
        Deduplicator.load(tmp_path / "filter")
    d = Deduplicator(exact=exact)
    d.keep([1])
    d.save(tmp_path / "seen")
    with pytest.raises(FormatError):
        evenbins.BloomFilter.load(tmp_path / "seen")


def test_numbers_that_no_deduplicator_has_are_refused() -> None:
    """Right checksums over wrong parts: files put together from others."""
    from evenbins import _core

    def assembled(core: list[int], payload: bytes, seed: int = 0, capacity: int = 100) -> bytes:
        core = [*core, len(payload)]
        return _core.file_header(17, 1, seed, capacity, core, payload) + payload

    d = Deduplicator(capacity=100)
    d.keep(range(50))
    data = d.to_bytes()
    _, _, _, core, offset = _core.file_parts(data, True)
    payload, good = data[offset:], core[:-1]
    Deduplicator.from_bytes(assembled(good, payload))
    wrong = [
        (0, 2),
        (0, 1),
        (1, 0),
        (1, 2**63),
        (2, 99),
        (3, 49),
        (4, 51),
        (5, 2**64 - 1),
        (6, 2),
        (6, 0),
        (6, 65),
    ]
    for place, value in wrong:
        changed = [*good]
        changed[place] = value
        with pytest.raises(FormatError):
            Deduplicator.from_bytes(assembled(changed, payload))
    for cut in (payload + bytes(64), payload[:-64], payload[:32] + b"\1" + payload[33:]):
        with pytest.raises(FormatError):
            Deduplicator.from_bytes(assembled(good, cut))
    with pytest.raises(FormatError, match="does not belong"):
        Deduplicator.from_bytes(assembled(good, payload, seed=5))
    for word, value in ((0, 1), (0, 2**60), (1, 101), (1, 49), (2, 51), (3, 2**62), (4, 2**40), (4, 1)):
        changed_payload = payload[: 8 * word] + value.to_bytes(8, "little") + payload[8 * word + 8 :]
        with pytest.raises(FormatError):
            Deduplicator.from_bytes(assembled(good, changed_payload))


def test_lines_are_looked_up_in_a_state(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from evenbins.cli import commands

    (tmp_path / "lines").write_text("a\nb\nc\n")
    for exact in (False, True):
        d = Deduplicator(exact=exact)
        d.keep(["a", "c"])
        d.save(tmp_path / "seen.evb")
        done = CliRunner().invoke(commands, ["query", str(tmp_path / "seen.evb"), str(tmp_path / "lines")])
        assert done.output == "a\nc\n"
