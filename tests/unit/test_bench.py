"""The benchmark harness and the cases of the filters. Nothing here depends on how long anything takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import filters, harness
from benchmarks.__main__ import bench
from benchmarks.harness import (
    Case,
    Contender,
    Limit,
    MissingPeerError,
    Report,
    Result,
    Target,
    Within,
    WrongAnswerError,
    run,
)
from benchmarks.sketches import sketch_cases

TINY = filters.Sizes(
    scalar_keys=2_000,
    bulk_keys=3_000,
    absent_keys=1_000,
    line_bytes=(64 * 1024, 256 * 1024),
    line_keys=2_000,
    standard_bytes=16 * 1024,
    string_keys=2_000,
    thread_bytes=64 * 1024,
    thread_keys=3_000,
    memory_keys=200_000,
)


class Clock:
    """A clock that only moves when a contender says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def taking(self, *seconds: float) -> Callable[[], None]:
        """Give work that takes these times, one after the other, then the last again and again."""
        times = list(seconds)

        def work() -> None:
            self.now += times.pop(0) if len(times) > 1 else times[0]

        return work


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(harness, "time", fake)
    return fake


def result(best: dict[str, float], *targets: harness.Goal, unit: str = "ns") -> Result:
    return Result(
        name="case", unit=unit, operations=1, notes="", targets=targets,
        rounds={label: [value] for label, value in best.items()}, facts={label: {} for label in best},
    )  # fmt: skip


# --- rounds ----------------------------------------------------------------------------------------


def test_contenders_take_turns_and_the_start_moves_on() -> None:
    order: list[str] = []
    contenders = {label: Contender(run=lambda label=label: order.append(label)) for label in "abc"}
    run([Case(name="turns", contenders=contenders)], rounds=4)
    assert "".join(order) == "abcbcacababc"


def test_prepare_and_check_surround_every_run_off_the_clock(clock: Clock) -> None:
    log: list[str] = []

    def logged(word: str, seconds: float) -> Callable[..., bool]:
        def work(*_: object) -> bool:
            log.append(word)
            clock.now += seconds
            return True

        return work

    contender = Contender(
        run=logged("run", 1.0), prepare=logged("prepare", 100.0), check=logged("check", 100.0)
    )
    report = run([Case(name="case", contenders={"a": contender}, operations=10)], rounds=2)
    assert log == ["prepare", "run", "check"] * 2
    assert report.results[0].rounds == {"a": pytest.approx([1e8, 1e8])}


def test_check_sees_what_the_run_returned_and_a_wrong_answer_stops_everything() -> None:
    seen: list[object] = []
    good = Contender(run=lambda: 7, check=lambda answer: seen.append(answer) or True)
    bad = Contender(run=lambda: 8, check=lambda answer: answer == 7)
    run([Case(name="fine", contenders={"good": good})], rounds=1)
    assert seen == [7]
    with pytest.raises(WrongAnswerError, match="keys: bad gave a wrong answer"):
        run([Case(name="keys", contenders={"good": good, "bad": bad})], rounds=1)


def test_the_best_round_counts_and_is_per_operation(clock: Clock) -> None:
    contenders = {"a": Contender(run=clock.taking(3.0, 1.0, 2.0)), "b": Contender(run=clock.taking(4.0))}
    found = run([Case(name="case", contenders=contenders, operations=1000)], rounds=3).results[0]
    assert found.best == pytest.approx({"a": 1e6, "b": 4e6})
    assert found.rounds["a"] == pytest.approx([3e6, 1e6, 2e6])


def test_cheap_cases_get_more_rounds_up_to_ten_times(clock: Clock) -> None:
    def rounds_of(seconds_each: float, *, once: bool = False) -> int:
        case = Case(name="case", contenders={"a": Contender(run=clock.taking(seconds_each))}, once=once)
        return len(run([case], rounds=3, seconds=6.0).results[0].rounds["a"])

    assert rounds_of(10.0) == 3
    assert rounds_of(1.0) == 6
    assert rounds_of(0.001) == 30
    assert rounds_of(0.001, once=True) == 1


def test_cases_are_taken_one_at_a_time() -> None:
    alive: list[str] = []

    def cases() -> Iterator[Case]:
        for name in "ab":
            yield Case(name=name, contenders={"x": Contender(run=lambda name=name: alive.append(name))})
            assert alive[-1] == name, "the next case was asked for before this one ran"

    assert [each.name for each in run(cases(), rounds=1).results] == ["a", "b"]


def test_what_makes_no_case_is_refused() -> None:
    with pytest.raises(ValueError, match="no contenders"):
        Case(name="empty", contenders={})
    with pytest.raises(ValueError, match="operations must be at least 1, not 0"):
        Case(name="case", contenders={"a": Contender(run=int)}, operations=0)
    with pytest.raises(ValueError, match="rounds must be at least 1, not 0"):
        run([], rounds=0)


# --- targets ---------------------------------------------------------------------------------------


def test_a_ratio_above_one_means_that_ours_is_faster() -> None:
    assert result({"ours": 2.0, "theirs": 6.0}).ratios == {"ours": 1.0, "theirs": 3.0}


@pytest.mark.parametrize(("at_least", "met"), [(2.9, True), (3.0, True), (3.1, False)])
def test_a_target_compares_with_the_fastest_of_those_named(at_least: float, met: bool) -> None:
    target = Target(text="faster", against=("slow", "fast", "absent"), at_least=at_least)
    (verdict,) = result({"ours": 2.0, "slow": 9.0, "fast": 6.0, "unnamed": 1.0}, target).verdicts
    assert verdict is not None
    assert (verdict.number, verdict.against, verdict.met) == (3.0, "fast", met)


def test_a_ratio_that_cannot_be_true_is_neither_met_nor_missed() -> None:
    target = Target(text="near the limit", against=("limit",), at_least=0.75, ceiling=1.05)
    assert [
        verdict.met
        for ours in (2.0, 1.0, 0.9)
        for verdict in result({"ours": ours, "limit": 1.0}, target).verdicts
        if verdict is not None
    ] == [False, True, None]


def test_the_spread_is_the_median_over_the_best(clock: Clock) -> None:
    case = Case(name="case", contenders={"a": Contender(run=clock.taking(3.0, 1.0, 2.0))})
    assert run([case], rounds=3).results[0].spreads == {"a": pytest.approx(2.0)}


def test_without_anybody_to_compare_with_there_is_no_verdict() -> None:
    target = Target(text="faster", against=("absent",), at_least=1.0)
    alone = result({"ours": 2.0}, target)
    assert alone.verdicts == [None]
    assert alone.to_dict()["targets"][0]["met"] is None
    assert result({"ours": 2.0, "other": 1.0}).verdicts == []


@pytest.mark.parametrize(("at_most", "met"), [(5.0, True), (4.9, False)])
def test_a_limit_binds_the_worst(at_most: float, met: bool) -> None:
    found = result({"a": 0.0, "b": 5.0}, Limit(text="small", at_most=at_most), unit="MiB")
    (verdict,) = found.verdicts
    assert verdict is not None
    assert (verdict.number, verdict.met) == (5.0, met)
    assert found.ratios == {"a": None, "b": None}


@pytest.mark.parametrize(("at_most", "met"), [(1.4, False), (1.5, True), (1.6, True)])
def test_within_bounds_the_time_of_one_by_that_of_another(at_most: float, met: bool) -> None:
    target = Within(text="near", of="balanced", against="blocked", at_most=at_most)
    (verdict,) = result({"blocked": 4.0, "other": 1.0, "balanced": 6.0}, target).verdicts
    assert verdict is not None
    assert (verdict.number, verdict.against, verdict.met) == (1.5, "blocked", met)


def test_every_target_of_a_case_has_its_own_verdict() -> None:
    """One is about the first contender, as by default, the other about the second."""
    targets = [Target(text="faster", against=("peer",), at_least=5.0, of=label) for label in (None, "second")]
    found = result({"first": 1.0, "second": 3.0, "peer": 6.0}, *targets)
    assert [(each.number, each.met) for each in found.verdicts if each is not None] == [
        (6.0, True),
        (2.0, False),
    ]


def test_other_units_than_time_are_what_the_run_returns() -> None:
    case = Case(name="memory", contenders={"a": Contender(run=lambda: 12.5)}, operations=10, unit="MiB")
    assert run([case], rounds=2).results[0].rounds == {"a": [12.5, 12.5]}


# --- the report ------------------------------------------------------------------------------------


@pytest.fixture
def report(clock: Clock) -> Report:
    contenders = {
        "ours": Contender(run=clock.taking(1.0), facts={"FPR": 0.01}),
        "peer | other": Contender(run=clock.taking(3.0)),
    }
    good = Target(text="≥ 2 × faster", against=("peer | other",), at_least=2.0)
    high = Target(text="≥ 9 × faster", against=("peer | other",), at_least=9.0)
    none = Target(text="unmeasured", against=("nobody",), at_least=1.0)
    cases = [
        Case(name=name, contenders=contenders, operations=10**8, targets=targets, notes="[a note]")
        for name, targets in (("first", [good]), ("second", [high]), ("third", [none]), ("fourth", []))
    ]
    return run(cases, rounds=2, packages=["click"])


def test_json_has_machine_versions_and_every_round(report: Report, tmp_path: Path) -> None:
    report.write_json(tmp_path / "report.json")
    data = json.loads((tmp_path / "report.json").read_text())
    assert data.keys() == {
        "schema", "date", "quick", "rounds", "machine", "versions", "commit", "cases",
    }  # fmt: skip
    assert data["machine"].keys() == {
        "cpu", "cores", "kernel", "memory_bytes", "huge_pages", "system", "load_average",
        "load_average_after",
    }  # fmt: skip
    assert {"python", "numpy", "evenbins", "click"} == data["versions"].keys()
    first = data["cases"][0]
    assert first.keys() == {"name", "unit", "operations", "notes", "contenders", "targets"}
    assert first["contenders"] == [
        {"label": label, "best": best, "ratio": ratio, "spread": 1.0, "rounds": [best, best], "facts": facts}
        for label, best, ratio, facts in (("ours", 10.0, 1.0, {"FPR": 0.01}), ("peer | other", 30.0, 3.0, {}))
    ]
    assert first["targets"] == [{
        "text": "≥ 2 × faster", "among": ["peer | other"], "at_least": 2.0, "ceiling": None, "of": None,
        "number": 3.0, "against": "peer | other", "met": True,
    }]  # fmt: skip
    assert [[each["met"] for each in case["targets"]] for case in data["cases"]] == [
        [True],
        [False],
        [None],
        [],
    ]


def test_a_report_survives_json(report: Report) -> None:
    again = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again.to_dict() == report.to_dict()
    assert again.to_markdown() == report.to_markdown()
    goals = (
        Limit(text="small", at_most=5.0),
        Within(text="near", of="b", against="a", at_most=1.5),
        Target(text="faster", against=("a",), at_least=5.0, of="b"),
    )
    several = result({"a": 1.0, "b": 2.0}, *goals)
    assert Result.from_dict(several.to_dict()).targets == list(goals)
    assert Result.from_dict(several.to_dict()).to_dict() == several.to_dict()
    with pytest.raises(ValueError, match="schema 99"):
        Report.from_dict(report.to_dict() | {"schema": 99})


def test_a_report_of_the_first_schema_with_one_target_a_case_is_read(report: Report) -> None:
    old = report.to_dict() | {"schema": 1}
    for case in old["cases"]:
        case["target"] = next(iter(case.pop("targets")), None)
        if case["target"] is not None:
            del case["target"]["of"]
    assert Report.from_dict(old).to_markdown() == report.to_markdown()


def test_a_short_document_has_what_has_no_target_in_a_line_each(report: Report) -> None:
    text = report.to_markdown(details=False).replace("\\|", "/")
    assert "| fourth | ours 10 ns/op | peer / other × 3 |" in text
    assert text.count("| second |") == 1
    memory = Case(
        name="memory",
        contenders={"a": Contender(run=lambda: 12.5), "b": Contender(run=lambda: 25.0)},
        unit="bits/key",
    )
    assert "| memory | a 12.5 bits/key | b 25 |" in run([memory], rounds=1).to_markdown(details=False)
    all_have_targets = Report.from_dict(report.to_dict() | {"cases": report.to_dict()["cases"][:3]})
    assert "Without a target" not in all_have_targets.to_markdown(details=False)


def test_markdown_has_one_well_formed_row_for_each_target_and_contender(report: Report) -> None:
    text = report.to_markdown()
    rows = [line.replace("\\|", "/") for line in text.splitlines() if line.startswith("|")]
    targets, contenders = rows[:5], rows[5:]
    assert {line.count("|") for line in targets} == {7}
    assert {line.count("|") for line in contenders} == {8}
    assert len(contenders) == 2 + 4 * 2
    assert [line.split(" | ")[-1] for line in targets[2:]] == ["met |", "missed |", "not measured |"]
    assert text.count("[a note]") == 1, "a note that several cases share is printed once"
    assert "**Contenders**" not in report.to_markdown(details=False)


def test_print_shows_verdicts_and_takes_brackets_as_text(
    report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    report.print()
    shown = capsys.readouterr().out
    for word in ("met", "missed", "not measured", "[a note]", "peer | other"):
        assert word in shown


def test_progress_goes_to_stderr_and_only_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(name="some case", contenders={"a": Contender(run=int)})
    run([case], rounds=2)
    assert capsys.readouterr() == ("", "")
    run([case], rounds=2, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "some case: round 2" in shown.err


# --- the cases of the filters ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    path = tmp_path_factory.mktemp("bench") / "report.json"
    assert filters.main_filters(True, 1, str(path), True, None, sizes=TINY) == 0
    return Report.from_dict(json.loads(path.read_text()))


def test_every_row_of_the_table_of_targets_is_measured(tiny_report: Report) -> None:
    names = [each.name for each in tiny_report.results]
    assert len(names) == len(set(names))
    for start, count in (
        ("in, hit, ", 4), ("in, miss, ", 4), ("add, ", 4), ("contains_many, 3,000 uint64, ", 4),
        ("add_many, 3,000 uint64", 1), ("standard filter, 16 KiB", 2), ("build from 2,000 strings", 1),
        ("contains_many, blocked, 64 KiB", 2), ("2 threads, query", 2), ("2 threads, build", 4),
        ("memory beyond the filter", 1), ("add_many, balanced, ", 2), ("contains_many, balanced, ", 4),
        ("contains_many, 3,000 uint64, balanced, fpr 1e-06", 2), ("memory, 3,000 keys, fpr ", 2),
    ):  # fmt: skip
        assert sum(name.startswith(start) for name in names) == count, start
    verdicts = [verdict for each in tiny_report.results for verdict in each.verdicts]
    assert all(each is not None for each in verdicts), "a target without a number"


def test_the_balanced_filters_have_their_targets_at_the_largest_size(tiny_report: Report) -> None:
    targets = {each.name: [target.bound for target in each.targets] for each in tiny_report.results}
    balanced = {name: bounds for name, bounds in targets.items() if "balanced" in name and bounds}
    chosen = "contains_many, 3,000 uint64, balanced, fpr 1e-06, "
    assert balanced == {
        "contains_many, balanced, 256 KiB, hits": ["≤ 1.5", "≤ 1.5", "≤ 2"],
        chosen + "absent": ["≥ 5", "≥ 5"],
        chosen + "present": ["≥ 5", "≥ 5"],
    }


def test_balanced_and_blocked_filters_have_the_same_bytes(tiny_report: Report) -> None:
    """Not one more than the blocked filter, the overflow list counted; at most a block of 64 bytes fewer."""
    measured = [each for each in tiny_report.results if each.name.startswith("add_many, balanced, ")]
    assert [len(each.rounds) for each in measured] == [6, 6]
    for each in measured:
        blocked, *others = (facts["bits/key"] * each.operations / 8 for facts in each.facts.values())
        assert all(blocked - 64 <= nbytes <= blocked for nbytes in others), each.name


def test_memory_is_given_for_every_filter(tiny_report: Report) -> None:
    rows = [each for each in tiny_report.results if each.name.startswith("memory, ")]
    ours = {"standard", "blocked", "fill", "two-choice", "multilevel", "growing"}
    for each in rows:
        assert {f"evenbins {name}" for name in ours} | set(filters.FILTER_PEERS) < each.rounds.keys()
        assert each.unit == "bits/key"


def test_peers_do_equal_work(tiny_report: Report) -> None:
    """Every filter is near the rate it was asked for: on 1000 to 3000 absent keys at most three times it.

    At 0.01 on 1000 keys that is 31 positives where 10 are expected: a chance of 1e-8 for a good filter.
    """
    for each in tiny_report.results:
        asked = 1e-6 if "1e-06" in each.name else 0.01
        for label, facts in each.facts.items():
            if facts and "median ns" not in facts:  # times of single additions have no rate
                assert facts["FPR"] <= 3 * asked + 1 / 1_000, (each.name, label)
                assert facts.get("bits/key", 2) > 1, (each.name, label)
    hits = next(each for each in tiny_report.results if each.name == "in, hit, int")
    assert list(hits.rounds) == ["evenbins blocked", "evenbins standard", *filters.PEERS]


def test_the_report_names_the_versions_of_all_peers(tiny_report: Report) -> None:
    assert {"abloom", "rbloom", "fastbloom-rs", "pybloomfiltermmap3", "pyarrow"} < tiny_report.versions.keys()


@pytest.mark.long
def test_peers_can_be_limited(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the named peer takes part; targets that refer to others have no verdict."""
    assert filters.main_filters(True, 1, None, True, ["abloom"], sizes=TINY) == 0
    shown = capsys.readouterr().out
    assert "abloom" in shown
    assert "rbloom" not in shown
    assert "not measured" in shown


def test_a_missing_peer_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rbloom", None)  # import rbloom now fails
    with pytest.raises(MissingPeerError, match=r"rbloom.*benchmarks/requirements.txt"):
        harness.import_peer("rbloom", "rbloom")
    assert filters.main_filters(True, 1, None, False, None, sizes=TINY) == 2
    assert "benchmarks/requirements.txt" in capsys.readouterr().err


def test_an_unknown_peer_is_an_error_that_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert filters.main_filters(True, 1, None, False, ["boomfilter"]) == 2
    assert "boomfilter" in (error := capsys.readouterr().err)
    assert "pybloomfiltermmap3" in error


@pytest.mark.parametrize(
    ("quick", "peers", "writes"), [(False, None, True), (True, None, False), (False, ["set"], False)]
)
def test_only_a_complete_run_in_a_checkout_leaves_a_result(
    quick: bool,
    peers: list[str] | None,
    writes: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(filters, "cases", lambda *_: [Case(name="a", contenders={"x": Contender(run=int)})])
    assert filters.main_filters(quick, 1, None, True, peers) == 0  # no folder: nothing to write to
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    assert filters.main_filters(quick, 1, None, True, peers) == 0
    assert len(list(results.glob("????-??-??-filters.json"))) == writes


COPYING = """
from benchmarks import filters

class Copying(filters.BlockedBloomFilter):
    def add_many(self, keys, **options):
        super().add_many(keys.copy(), **options)

if {copying}:
    filters.BlockedBloomFilter = Copying
filters.memory_probe("uint64", 4_000_000, 1)
"""


@pytest.mark.parametrize("copying", [False, True])
def test_the_memory_probe_sees_a_copy_of_the_keys(copying: bool) -> None:
    """The probe's power: 4M uint64 keys take 32 MB, and only a build that copies them shows as much."""
    code = COPYING.format(copying=copying)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout)
    assert (measured["peak"] - measured["before"] - measured["nbytes"] > 16_000_000) == copying


def test_python_m_runs_the_benchmarks() -> None:
    """The options themselves are tested with the command line's."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "filters", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--peers" in done.stdout


# --- sketches ----------------------------------------------------------------------------------------------


def test_the_sketches_are_compared_with_datasketches() -> None:
    sizes = filters.Sizes(bulk_keys=3000)
    update, estimate = (harness.run([case], 1).results[0] for case in sketch_cases(sizes))
    ours = ["evenbins classic", "evenbins two-hash", "evenbins conservative"]
    assert list(update.rounds) == list(estimate.rounds) == [*ours, "datasketches"]


def test_bench_passes_its_options_on(monkeypatch: pytest.MonkeyPatch):
    calls: list[dict[str, object]] = []
    monkeypatch.setattr(filters, "main_filters", lambda **options: calls.append(options) or 0)
    assert CliRunner().invoke(bench, ["filters"]).exit_code == 0
    options = ["--quick", "--rounds", "2", "--json", "x.json", "--markdown", "--peers", "set, rbloom"]
    assert CliRunner().invoke(bench, ["filters", *options]).exit_code == 0
    assert calls == [
        {"quick": False, "rounds": None, "json_path": None, "markdown": False, "peers": None},
        {"quick": True, "rounds": 2, "json_path": "x.json", "markdown": True, "peers": ["set", "rbloom"]},
    ]


def test_bench_without_a_peer_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    def missing(**_: object) -> int:
        raise ModuleNotFoundError("No module named 'rbloom'", name="rbloom")

    monkeypatch.setattr(filters, "main_filters", missing)
    done = CliRunner().invoke(bench, ["filters"])
    assert done.exit_code == 1
    assert "rbloom" in done.output
    assert "benchmarks/requirements.txt" in done.output
