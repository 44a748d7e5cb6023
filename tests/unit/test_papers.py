"""The papers' experiments: registry, the rows' contract, the command, figures, and what the rows must say.

Every experiment runs once, `--quick`, for all tests here. What is drawn at random is compared with exact
predictions at 1e-6; the number of trials stands in the docstring.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from experiments import run_or_reuse
from scipy.stats import t as student
from sizes import size

from evenbins import cli
from evenbins.study import papers
from evenbins.study.papers import Context, Row, plots, registry, row, table
from evenbins.study.papers.simulation import simulate
from evenbins.study.theory import balance

COMMAND = [sys.executable, "-m", "evenbins"]

# what kirsch's figures of chapter 5 say of a level's keys and of the list
NORMAL = {
    f"{each}{level}" for each in ("held", "skewness", "kurtosis", "correlation") for level in range(1, 5)
}
NORMAL |= {f"held{level}_theory" for level in range(1, 5)}
NORMAL |= {
    f"{name}({chance:g})"
    for name in ("quantile", "quantile_normal")
    for chance in (0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995,
                   0.999, 0.9999)
}  # fmt: skip
LIST = {"mean", "variance_ratio", "distance", "largest", "tail_poisson", "tail_dispersed"}

CACHE = {"misses_baseline", "failures", "dropped", "searches", "ratio"}
RING = {"keys", "epsilon", "copies", "policy"}  # where of chen's tables

# id: source, keys of `where`, quantities (the contract), quantities beside them
CONTRACT: dict[str, tuple[str, set[str], set[str], set[str]]] = {
    "kanizo-fig2": ("kanizo, Figure 2", {"reads"}, {f"P({i})" for i in range(21)}, set()),
    "kanizo-fig3": (
        "kanizo, Figure 3", {"time"}, {"f0", "f1", "f2", "f3", "overflow"},
        {"f0_fluid", "f1_fluid", "f2_fluid", "f3_fluid", "overflow_fluid"},
    ),
    "kanizo-fig4a": ("kanizo, Figure 4(a)", {"policy", "reads"}, {"overflow"}, set()),
    "kanizo-fig4b": ("kanizo, Figure 4(b)", {"policy", "load"}, {"overflow"}, set()),
    "kanizo-fig5": ("kanizo, Figure 5", {"filter", "bits_per_key"}, {"fpr"}, {"fpr_formula"}),
    "kanizo-fig6": (
        "kanizo, Figure 6", {"block_bits", "bits_per_key", "filter"}, {"fpr", "reads", "overflow"},
        {"fpr_coin", "fpr_median", "fpr_theory"},
    ),
    "kanizo-appC": (
        "kanizo, Appendix C", {"policy", "reads"}, {"variance"}, {"variance_theory", "variance_bound"},
    ),
    "kirsch-sec2.1.2": (
        "kirsch, Section 2.1.2", {"counter_bits"}, {"overflow"},
        {"overflow_cancelled", "overflow_simulated", "fpr"},
    ),
    "kirsch-fig3.1": (
        "kirsch, Figure 3.1", {"hashing", "keys", "bits_per_key"}, {"fpr"}, {"fpr_theory", "fpr_limit"},
    ),
    "kirsch-fig3.2": (
        "kirsch, Figure 3.2", {"scheme"}, {"mean", "sd", "fit"},
        {"p", "queries", "fit_theory", "fit_normal", *(f"P({q})" for q in range(25))},
    ),
    "kirsch-sec3.5": (
        "kirsch, Section 3.5", {"scheme", "keys"}, {"gap"}, {"gap_error", "gap_theory", "gap_bound"},
    ),
    "kirsch-thm3.8.1": (
        "kirsch, Theorem 3.8.1", {"stream", "epsilon"}, {"failure"},
        {"failure_bound", "failure_classical", "failure_theory", "underestimates", "width", "depth"},
    ),
    "kirsch-table4.1": ("kirsch, Table 4.1", {"level"}, {"keys"}, {"keys_approximate"}),
    "kirsch-table4.2": ("kirsch, Table 4.2", {"level"}, {"keys"}, {"keys_approximate"}),
    "kirsch-table4.3": (
        "kirsch, Table 4.3", {"scheme", "keys"}, {"bytes", "false_positives", "failure"},
        {"buckets", "crisis", "failure_exact"},
    ),
    "kirsch-sec4.3": (
        "kirsch, Section 4.3", {"keys", "buckets", "hashes"}, {"false_positives", "load"},
        {"false_positives_theory", "load_mean", "crowded", "crisis", "counter", "stuck"},
    ),
    "kirsch-sec4.9": (
        "kirsch, Section 4.9", {"cells", "hashes"}, {"failures", "crises"},
        {"trials", "failures_theory", "failure", "failure_theory"}
        | {"false_positives", "false_positives_theory"},
    ),
    "kirsch-sec4.10.1": (
        "kirsch, Section 4.10.1", {"model"}, {"moves"},
        {"moves_theory", "moves_share", "moves_least", "moves_largest", "into_first", "into_first_theory"},
    ),
    "kirsch-sec4.10.2": (
        "kirsch, Section 4.10.2", {"filter"}, {"counter"},
        {"counter_theory", "counter_mean", "overflow", "overflow_less", "bytes", "bytes_less"},
    ),
    "kirsch-fig5.4": ("kirsch, Figure 5.4", {"scheme", "slots"}, NORMAL, set()),
    "kirsch-fig5.5": (
        "kirsch, Figure 5.5", {"scheme", "slots"}, LIST,
        {f"cdf({k})" for k in range(46)} | {"variance_ratio_theory"},
    ),
    "kirsch-sec5.8": (
        "kirsch, Section 5.8", {"shares", "levels", "scheme", "slots", "space", "keys"},
        {"overflow", "moves"},
        {f"{each}_{view}" for each in ("overflow", "moves") for view in ("theory", "error", "noise")},
    ),
    "kirsch-fig5.8": (
        "kirsch, Figure 5.8", {"scheme", "slots", "space", "shares", "model", "side"},
        NORMAL | {"overflow", "moves", "variance_ratio"},
        {f"{each}_{view}" for each in ("overflow", "moves") for view in ("theory", "error", "noise")}
        | {"fill3_error"},
    ),
    "kirsch-fig5.9": ("kirsch, Figure 5.9", {"scheme", "slots"}, LIST, {f"cdf({k})" for k in range(41)}),
    "chen-table1": ("chen, Table 1", {"configuration", "policy", "copies"}, {"misses"}, CACHE),
    "chen-table2": ("chen, Table 2", {"configuration", "policy", "copies"}, {"misses"}, CACHE),
    "chen-table5": ("chen, Table 5", RING, {"variance", "full"}, {"variance_theory", "full_theory"}),
    "chen-table6": ("chen, Table 6", RING, {"variance"}, {"variance_theory"}),
    "chen-table7": (
        "chen, Table 7", RING, {"searches"}, {"searches_theory", "searches_bound", "searches_formula"},
    ),
    "chen-table8": ("chen, Table 8", RING, {"first_full"}, {"first_full_theory"}),
    "chen-table9": ("chen, Table 9", RING, {"full"}, {"full_theory"}),
    "chen-table10": ("chen, Table 10", RING, {"variance"}, set()),
    "chen-table11": ("chen, Table 11", RING, {"searches"}, set()),
    "chen-table12": ("chen, Table 12", RING, {"full"}, set()),
    "chen-table13": ("chen, Table 13", RING, {"variance"}, {"variance_theory"}),
    "chen-table14": ("chen, Table 14", RING, {"searches"}, {"searches_theory"}),
    "chen-table15": ("chen, Table 15", RING, {"full"}, {"full_theory"}),
    "chen-table16": ("chen, Table 16", RING, {"steps"}, set()),
    "chen-sweep": (
        "chen, Figures 5 and 8-19", RING, {"variance", "full", "searches", "first_full", "steps"}, set(),
    ),
    "chen-fig6": ("chen, Figure 6", RING, {"nanoseconds"}, {"speedup"}),
    "chen-fig7": (
        "chen, Figure 7", {"arcs", "full"}, {"variance"},
        {"variance_model", "variance_theory", "variance_bound"},
    ),
    "chen-fig20": ("chen, Figure 20", RING, {"searches"}, set()),
    "chen-fig21": ("chen, Figure 21", RING, {"steps"}, set()),
    "chen-fig22": ("chen, Figure 22", RING, {"nanoseconds"}, {"speedup"}),
    "chen-appN": (
        "chen, Appendix N", {"bias", "epsilon", "policy"}, {"variance", "full", "first_full"}, set(),
    ),
    "chen-thm1": (
        "chen, Theorem 1", {"keys", "epsilon", "policy"}, {"variance", "full"},
        {"variance_theory", "full_theory", "excess", "excess_error", "holds"},
    ),
    "chen-thm4": (
        "chen, Theorem 4", {"limit", "shares"}, {"first_full"},
        {"first_full_theory", "no_full", "no_full_theory"},
    ),
}  # fmt: skip


def run(*args: object) -> tuple[int, str, str]:
    """Run the command in this process: status, standard output, standard error."""
    with CliRunner().isolation() as streams:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(each) for each in args])
        return ended.value.code, streams[0].getvalue().decode(), streams[1].getvalue().decode()


def one_line(done: tuple[int, str, str], *words: str) -> None:
    """Assert the form of every error: exit code 2, nothing on stdout, one line that names these things."""
    status, out, err = done
    assert (status, out) == (2, "")
    assert err.startswith("evenbins: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """All experiments, quick, as the command prints them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(papers, "run", run_or_reuse)
        status, out, err = run("reproduce", "--all", "--quick", "--json", "--threads", 2)
    assert (status, err) == (0, "")
    return {each["id"]: each for each in json.loads(out)}


def at(result: dict[str, Any], quantity: str, **where: object) -> dict[str, Any]:
    """Give the one row of a result."""
    (found,) = [each for each in result["rows"] if each["quantity"] == quantity and each["where"] == where]
    return found


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    """An experiment that was not there before, with an option; gone after the test."""
    papers.experiments()
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))

    @papers.experiment(
        "kanizo-toy",
        source="kanizo, a toy",
        title="A toy",
        plot=plots.lines(x="reads", y="y"),
        options=["trace"],
    )
    def toy(context: Context) -> Iterator[Row]:
        for reads in context.track([1, 2]):
            yield row(
                "y", context.rng(reads).random(), paper=0.0, note=context.options.get("trace"), reads=reads
            )

    return "kanizo-toy"


# --- the registry ----------------------------------------------------------------------------------------


def test_every_experiment_of_the_contract_is_there() -> None:
    known = papers.experiments()
    assert {id: known[id].source for id in CONTRACT} == {id: each[0] for id, each in CONTRACT.items()}
    for id, each in known.items():
        assert id == each.id
        assert each.title
        assert each.source.startswith(id.split("-")[0] + ", ")


def test_names_select_ids_papers_and_patterns() -> None:
    def ids(*names: str) -> list[str]:
        return [each.id for each in papers.select(names)]

    assert ids("kanizo-fig5", "kanizo-fig2") == ["kanizo-fig5", "kanizo-fig2"]
    assert ids("kanizo") == [id for id in papers.experiments() if id.startswith("kanizo-")]
    assert ids("kanizo-fig4?", "kanizo-fig4a") == ["kanizo-fig4a", "kanizo-fig4b"]
    assert ids() == []


def test_an_unknown_name_lists_close_ones() -> None:
    with pytest.raises(papers.UnknownExperimentError, match=r"'kanizo-fig9': did you mean .*kanizo-fig5.*\?"):
        papers.select(["kanizo-fig9"])
    with pytest.raises(papers.UnknownExperimentError, match=r"did you mean kanizo-fig6, chen-fig6\?"):
        papers.select(["fig6"])
    with pytest.raises(papers.UnknownExperimentError, match="no experiment 'xyz': --list lists all"):
        papers.run("xyz")
    with pytest.raises(papers.UnknownExperimentError, match="'kanizo' is several experiments"):
        papers.run("kanizo")


def test_an_experiment_is_one_decorated_function(toy: str) -> None:
    calls: list[tuple[int, int]] = []
    result = papers.run(toy, seed=5, options={"trace": "file"}, progress=lambda *step: calls.append(step))
    assert calls == [(0, 2), (1, 2), (2, 2)]
    assert [each.note for each in result.rows] == ["file", "file"]
    assert result.rows == papers.run(toy, seed=5, options={"trace": "file"}).rows
    assert result.rows != papers.run(toy, seed=6, options={"trace": "file"}).rows
    assert result.to_dict()["rows"][0]["where"] == {"reads": 1}


def test_misuse_of_the_registry_is_refused(toy: str) -> None:
    plot = plots.lines(x="reads", y="y")
    with pytest.raises(ValueError, match="id 'kanizo-toy' is taken by"):
        papers.experiment("kanizo-toy", source="", title="", plot=plot)
    for id in ("knuth-fig1", "kanizo"):
        with pytest.raises(
            ValueError, match=rf"id must be one of kanizo.*, a hyphen and the rest, not '{id}'"
        ):
            papers.experiment(id, source="", title="", plot=plot)
    with pytest.raises(ValueError, match=r"option 'trace' is not for kanizo-fig2: .*kanizo-toy take it"):
        papers.run("kanizo-fig2", options={"trace": "file"})
    with pytest.raises(ValueError, match="option 'wish' is not for kanizo-toy: no experiment takes it"):
        papers.run(toy, options={"wish": 1})
    with pytest.raises(ValueError, match=r"seed must be 0 to .*, not -1"):
        papers.run(toy, seed=-1)
    with pytest.raises(ValueError, match="threads must be 1 or more, not 0"):
        papers.run(toy, threads=0)


@pytest.mark.parametrize("name", ["paper", "ours", "sd"])
def test_a_row_holds_finite_numbers_only(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be finite, not nan: fpr at {{'reads': 1}}"):
        row("fpr", **({"ours": 1.0} | {name: math.nan}), reads=1)


def test_streams_differ_by_experiment_label_and_seed() -> None:
    seeds = [
        Context(id, seed=seed).stream(*labels)
        for id in ("a-1", "a-2")
        for seed in (1, 2)
        for labels in ((), ("x",), ("x", 1), ("x", 2))
    ]
    assert len(set(seeds)) == len(seeds)
    assert Context("a-1").stream("x") == Context("a-1", threads=8, quick=True).stream("x")


def test_looking_at_the_list_imports_neither_scipy_nor_matplotlib() -> None:
    code = (
        "import sys; from evenbins.study import papers; papers.experiments();"
        "print(sorted({'scipy', 'matplotlib', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- the contract ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", CONTRACT)
def test_the_json_of_every_experiment_keeps_the_contract(id: str, results: dict[str, dict[str, Any]]) -> None:
    result = results[id]
    source, keys, quantities, more = CONTRACT[id]
    assert list(result) == ["id", "source", "seed", "quick", "seconds", "rows"]
    assert (result["id"], result["source"], result["seed"], result["quick"]) == (id, source, 1, True)
    assert isinstance(result["seconds"], float)
    points = set()
    for each in result["rows"]:
        assert list(each) == ["where", "quantity", "paper", "ours", "sd", "note"]
        assert set(each["where"]) == keys
        assert all(type(value) in (str, int, float) for value in each["where"].values())
        assert type(each["ours"]) is float
        assert each["paper"] is None or type(each["paper"]) is float
        assert each["sd"] is None or (type(each["sd"]) is float and each["sd"] >= 0)
        assert each["note"] is None or isinstance(each["note"], str)
        points.add((each["quantity"], *each["where"].values()))
    assert len(points) == len(result["rows"])
    assert {each["quantity"] for each in result["rows"]} == quantities | more


def test_no_number_depends_on_threads() -> None:
    for id in ("kanizo-fig3", "kanizo-appC", "kirsch-sec3.5"):
        assert papers.run(id, quick=True, threads=1).rows == papers.run(id, quick=True, threads=3).rows


def test_another_seed_gives_other_numbers() -> None:
    assert papers.run("kanizo-fig3", quick=True).rows != papers.run("kanizo-fig3", quick=True, seed=2).rows


# --- what the rows say -----------------------------------------------------------------------------------


def assert_agrees(measured: dict[str, Any], predicted: float, trials: int) -> None:
    """Assert that the mean of some trials lies in Student's interval, which it misses once in a million."""
    reach = student.ppf(1 - 0.5e-6, trials - 1) * measured["sd"] / math.sqrt(trials)
    assert abs(measured["ours"] - predicted) <= reach, measured


def test_figure_2_is_a_distribution_of_mean_8(results: dict[str, dict[str, Any]]) -> None:
    for reads in (1.1, 1.2):
        chances = [at(results["kanizo-fig2"], f"P({i})", reads=reads)["ours"] for i in range(21)]
        assert sum(chances) == pytest.approx(1)
        assert sum(i * chance for i, chance in enumerate(chances)) == pytest.approx(8)
    assert at(results["kanizo-fig2"], "P(8)", reads=1.0)["ours"] == pytest.approx(math.exp(-8) * 8**8 / 40320)


def test_figure_3_the_simulation_agrees_with_the_fluid_limit(results: dict[str, dict[str, Any]]) -> None:
    """100 trials of 25,000 keys in 10,000 buckets, at 20 moments."""
    for step in range(1, 21):
        for quantity in CONTRACT["kanizo-fig3"][2]:
            seen = at(results["kanizo-fig3"], quantity, time=step / 20)
            fluid = at(results["kanizo-fig3"], f"{quantity}_fluid", time=step / 20)
            assert_agrees(seen, fluid["ours"], 100)
    assert at(results["kanizo-fig3"], "f0_fluid", time=1.0)["ours"] == pytest.approx(math.exp(-2.5))


def test_figure_4_the_boundaries(results: dict[str, dict[str, Any]]) -> None:
    misprint = at(results["kanizo-fig4a"], "overflow", policy="sequential", reads=1.1)
    assert misprint["paper"] == 0.01
    assert misprint["ours"] == pytest.approx(0.00587, abs=5e-6)
    assert "0.587 %" in misprint["note"]
    q = (math.sqrt(1.8) - 1) / 2
    for each in results["kanizo-fig4b"]["rows"]:
        if each["where"]["policy"] == "multilevel":
            assert each["ours"] == pytest.approx(q**3)
        else:
            assert each["ours"] > 2 * q**3
    assert at(results["kanizo-fig4a"], "overflow", policy="multilevel", reads=1.2)["paper"] == 0.005


def test_figure_4_a_simulation_takes_our_side_in_the_misprint() -> None:
    """400 trials of 80,000 keys in 10,000 buckets: SEQUENTIAL at its boundary for 1.1 reads, no budget."""
    scheme = balance.optimal_sequential(1.1, 8, 3)
    seen = simulate("sequential", keys=80_000, bins=10_000, thresholds=scheme.threshold, coin=scheme.coin,
                    choices=3, trials=400, seed=1, threads=2)  # fmt: skip
    for samples, predicted in ((seen.overflow_share, 0.00587), (seen.reads, 1.1)):
        assert_agrees({"ours": samples.mean(), "sd": samples.std(ddof=1)}, predicted, 400)


def test_figure_5_balance_pays_above_some_bits_per_key(results: dict[str, dict[str, Any]]) -> None:
    def rate(filter_: str, bits_per_key: int, quantity: str = "fpr") -> float:
        return float(at(results["kanizo-fig5"], quantity, filter=filter_, bits_per_key=bits_per_key)["ours"])

    for bits_per_key in range(5, 41):
        assert rate("standard", bits_per_key) < rate("multilevel", bits_per_key)
        assert (rate("multilevel", bits_per_key) < rate("blocked", bits_per_key)) == (bits_per_key >= 17)
    assert rate("blocked", 40) > 100 * rate("multilevel", 40)  # two orders of magnitude
    assert rate("multilevel", 40) == pytest.approx(2.0e-7, rel=0.1)  # as section 10 measures
    assert rate("blocked", 40, "fpr_formula") < rate("blocked", 40) < 3.4e-5


def test_figure_6_the_papers_numbers_where_they_can_be_had(results: dict[str, dict[str, Any]]) -> None:
    """16 filters a point, the paper has one. Without a list single blocks rule the rate, and it varies."""
    result = results["kanizo-fig6"]
    printed = [each for each in result["rows"] if each["paper"] and each["quantity"] == "fpr"]
    assert sorted(each["paper"] for each in printed) == [3.7e-8, 1.1e-7, 2.0e-7, 3.6e-7, 3.4e-5]
    for each in printed:
        if each["where"]["filter"] == "multilevel":
            assert each["ours"] == pytest.approx(each["paper"], rel=0.25)
        else:
            assert "compare the standard deviation" in each["note"]
    for block_bits in (256, 512):
        point = {"block_bits": block_bits, "bits_per_key": 40}
        rates = {
            name: at(result, "fpr", filter=name, **point)["ours"]
            for name in ("multilevel", "multilevel, no list", "multilevel, no list, random", "blocked")
        }
        assert list(rates.values()) == sorted(rates.values())
        assert rates["blocked"] > 10 * rates["multilevel, no list"]
        for name in ("multilevel", "multilevel, no list", "blocked"):
            theory = at(result, "fpr_theory", filter=name, **point)["ours"]
            assert rates[name] == pytest.approx(theory, rel=0.5)
        assert at(result, "reads", filter="blocked", **point)["ours"] == 1
        assert at(result, "overflow", filter="multilevel, no list", **point)["ours"] == 0
        assert at(result, "reads", filter="multilevel", **point)["ours"] == pytest.approx(1.2, abs=0.02)
        assert at(result, "overflow", filter="multilevel", **point)["ours"] == pytest.approx(0.005, abs=0.002)


def test_appendix_c_every_policy_reaches_the_bound(results: dict[str, dict[str, Any]]) -> None:
    """40 trials of 80,000 keys in 10,000 buckets."""
    for each in results["kanizo-appC"]["rows"]:
        if each["quantity"] == "variance":
            theory = at(results["kanizo-appC"], "variance_theory", **each["where"])["ours"]
            bound = at(results["kanizo-appC"], "variance_bound", **each["where"])["ours"]
            assert theory == pytest.approx(bound)
            assert_agrees(each, theory, 40)


def test_the_intervals_would_notice_a_wrong_prediction(results: dict[str, dict[str, Any]]) -> None:
    """40 trials tell the variance of SEQUENTIAL from that of MHT."""
    seen = at(results["kanizo-appC"], "variance", policy="sequential", reads=1.1)
    other = at(results["kanizo-appC"], "variance_theory", policy="multilevel", reads=1.1)
    with pytest.raises(AssertionError):
        assert_agrees(seen, other["ours"], 40)


def test_the_made_up_flows_are_distinct_and_far_from_uniform() -> None:
    from evenbins.study.papers.kanizo import _flows

    flows = _flows(50_000, Context("kanizo-fig6").rng())
    assert len(set(flows.tolist())) == 50_000
    assert len(set((flows >> 48).tolist())) <= 64
    assert len(set((flows >> 34).tolist())) == 512
    assert len(set((flows & 255).tolist())) <= 8


# --- the command -----------------------------------------------------------------------------------------


def test_list_says_what_there_is() -> None:
    status, out, _ = run("reproduce", "--list")
    assert status == 0
    for id in CONTRACT:
        assert id in out
    status, out, _ = run("reproduce", "--list", "--json", "kanizo-fig4?")
    assert [each["id"] for each in json.loads(out)] == ["kanizo-fig4a", "kanizo-fig4b"]


def test_one_id_gives_an_object_and_several_a_list() -> None:
    assert json.loads(run("reproduce", "kanizo-fig2", "--json")[1])["id"] == "kanizo-fig2"
    assert isinstance(json.loads(run("reproduce", "kanizo-fig4?", "--json")[1]), list)
    two = json.loads(run("reproduce", "kanizo-fig2", "kanizo-fig4a", "--json", "--seed", 7)[1])
    assert [(each["id"], each["seed"]) for each in two] == [("kanizo-fig2", 7), ("kanizo-fig4a", 7)]


def test_the_table_shows_paper_ours_and_difference() -> None:
    status, out, err = run("reproduce", "kanizo-fig4a")
    assert (status, err) == (0, "")
    head = next(line for line in out.splitlines() if line.startswith("where"))
    assert head.split() == ["where", "quantity", "paper", "ours", "difference"]
    misprint = next(line for line in out.splitlines() if "sequential, reads 1.1 " in line)
    assert misprint.split()[-7:] == ["overflow", "0.01", "0.005874", "-41.3", "%", "=", "(1)"]
    assert "(1) section 8" in out


def test_the_paper_s_rows_are_printed_or_all() -> None:
    """Rows without a number of the paper come with --rows all, and if the paper has no number at all."""
    short, full = (run("reproduce", "kanizo-fig4a", *more)[1] for more in ((), ("--rows", "all")))
    numbers = "Numbers of the paper: 2; 2 as printed (=)."
    assert f"{numbers} 48 more rows have none: --rows all.\n" in short
    assert f"{numbers}\n" in full
    assert full.count(" overflow ") == 51  # one in the title
    assert short.count(" overflow ") == 3
    assert "reads 1.2" in run("reproduce", "kanizo-fig2")[1]  # no number in the text: all rows


@pytest.mark.parametrize(
    ("ours", "paper", "text"),
    [(1.0, None, ""), (1.0, 2.0, "× 0.5"), (1.9, 2.0, "-5.0 %"), (4.0, 2.0, "× 2"), (0.5, 0.0, "+0.5")],
)
def test_differences(ours: float, paper: float | None, text: str) -> None:
    assert table.difference(row("x", ours, paper=paper)) == text


def test_errors_are_one_line(tmp_path: Path) -> None:
    one_line(run("reproduce"), "no experiment named", "--all", "--list")
    one_line(run("reproduce", "kanizo-fig9"), "no experiment 'kanizo-fig9'", "did you mean", "kanizo-fig5")
    one_line(run("reproduce", "--list", "nothing"), "no experiment 'nothing'")
    one_line(run("reproduce", "--all", "kanizo-fig2"), "--all and kanizo-fig2 exclude each other")
    one_line(run("reproduce", "kanizo-fig2", "--seed", -1), "--seed must be 0 to 2**64-1, not -1")
    one_line(run("reproduce", "kanizo-fig2", "--seed", "x"), "'x' is not a whole number")
    one_line(run("reproduce", "kanizo-fig2", "--threads", 0), "--threads", "evenbins reproduce --help")
    one_line(run("reproduce", "kanizo-fig2", "--plot", "a.pdf"), "--plot a.pdf", ".svg or .png")
    one_line(
        run("reproduce", "kanizo", "--plot", tmp_path / "a.svg"),
        "one file for", "{id}", f"{tmp_path}/a-{{id}}.svg",
    )  # fmt: skip
    one_line(run("reproduce", "kanizo-fig2", "--plot", tmp_path / "no" / "a.svg"), "no such folder")
    (tmp_path / "folder.svg").mkdir()
    one_line(run("reproduce", "kanizo-fig2", "--plot", tmp_path / "folder.svg"), "is a directory")


def test_a_full_disk_is_told_from_a_failed_experiment() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "reproduce", "kanizo-fig2"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith(b"evenbins: standard output: no space left on device")
    assert done.stderr.count(b"\n") == 1


def test_a_missing_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    one_line(run("reproduce", "kanizo-fig2", "--plot", tmp_path / "a.svg"), "pip install 'evenbins[plot]'")
    assert run("reproduce", "kanizo-fig2")[0] == 0


def test_ctrl_c_ends_it(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(context: Context) -> Iterator[Row]:
        raise KeyboardInterrupt

    monkeypatch.setitem(
        registry._registered, toy, registry.Experiment(toy, "s", "t", interrupted, plots.lines(x="x", y="y"))
    )
    assert run("reproduce", toy)[:2] == (130, "")


def test_a_terminal_shows_progress_on_standard_error_alone() -> None:
    """Read all the time: a terminal holds less than 20 KB, and the longer the work, the more is drawn."""
    ours, theirs = os.openpty()
    shown: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # Linux: the other end was closed
            while block := os.read(ours, 4096):
                shown.append(block)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        done = subprocess.run([*COMMAND, "reproduce", "kanizo-fig3", "--quick", "--json"],
                              stdout=subprocess.PIPE, stderr=theirs, timeout=240, check=True)  # fmt: skip
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    assert b"experiments" in b"".join(shown)
    assert json.loads(done.stdout)["id"] == "kanizo-fig3"


# --- figures ---------------------------------------------------------------------------------------------


def test_every_experiment_has_a_figure(results: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    for id, result in list(results.items())[:: size(12, 1)]:
        rows = [Row(**each) for each in result["rows"]]
        path = tmp_path / f"{id}.svg"
        plots.save(papers.experiments()[id], rows, path)
        assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        assert result["source"] in path.read_text()


def test_the_suffix_chooses_the_format_and_the_id_the_name(tmp_path: Path) -> None:
    status, out, err = run("reproduce", "kanizo-fig2", "kanizo-fig4a", "--plot", tmp_path / "of-{id}.png")
    assert (status, err) == (0, "")
    assert "kanizo-fig4a" in out
    assert sorted(each.name for each in tmp_path.iterdir()) == ["of-kanizo-fig2.png", "of-kanizo-fig4a.png"]
    for each in tmp_path.iterdir():
        assert each.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert run("reproduce", "kanizo-fig2", "--plot", tmp_path / "one.SVG")[0] == 0
    ET.parse(tmp_path / "one.SVG")


def test_same_rows_same_bytes(tmp_path: Path) -> None:
    result = papers.run("kanizo-fig4a")
    for name in ("a.svg", "b.svg"):
        plots.save(papers.experiments()["kanizo-fig4a"], result.rows, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with pytest.raises(ValueError, match=r"path must end in \.svg or \.png, not 'a\.pdf'"):
        plots.save(papers.experiments()["kanizo-fig4a"], result.rows, "a.pdf")
