"""`evenbins simulate cache`: what it prints, what it refuses and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from evenbins import cli
from evenbins.study.commands.simulate import _CONFIGURATIONS, simulate
from evenbins.study.simulate import CONFIGURATIONS, POLICIES, replay_cache
from evenbins.study.traces import SYNTHETIC, read_trace, synthetic_trace, write_trace

SMALL = ["--servers", 10, "--cache-size", 30, "--limit", "none", "--stale", 60]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is a command of `evenbins`."""
    monkeypatch.setitem(cli.commands.commands, "simulate", simulate)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "trace.csv.gz"
    write_trace(synthetic_trace(requests=5000, urls=1000, minutes=600, seed=1), path)
    return path


def run(*args: object) -> tuple[int, str, str]:
    with CliRunner().isolation() as streams:
        with pytest.raises(SystemExit) as ended:
            cli.main(["simulate", "cache", *map(str, args)])
        return ended.value.code, streams[0].getvalue().decode(), streams[1].getvalue().decode()


def test_a_log_is_replayed(log: Path) -> None:
    status, out, err = run("--trace", log, *SMALL)
    assert (status, err) == (0, "")
    report = replay_cache(read_trace(log), servers=10, cache_size=30, limit=None, stale_minutes=60,
                          served_minutes=10, recovery_minutes=20)  # fmt: skip
    assert out.startswith(str(report))
    assert f"clockwise over jump: {report.ratio('clockwise', 'jump'):.3g}" in out
    assert json.loads(run("--trace", log, *SMALL, "--json")[1]) == report.to_dict()


def test_options_say_it_all(log: Path) -> None:
    status, out, _ = run("--trace", log, *SMALL, "--policy", "plain", "--policy", "jump", "--copies", 3,
                         "--seed", 5, "--repeat", 2, "--served", 1, "--recovery", 2.5, "--requests", "1e3",
                         "--threads", 1, "--json")  # fmt: skip
    assert status == 0
    found = json.loads(out)
    assert found["requests"] == 1000
    assert found["copies"] == 3
    assert found["configuration"]["recovery_minutes"] == 2.5
    assert [(each["policy"], each["seed"]) for each in found["runs"]] == [
        ("plain", 5), ("plain", 6), ("jump", 5), ("jump", 6)
    ]  # fmt: skip
    assert "clockwise over jump" not in run("--trace", log, *SMALL, "--policy", "plain")[1]


def test_the_papers_configurations_on_a_synthetic_trace() -> None:
    assert tuple(CONFIGURATIONS) == tuple(_CONFIGURATIONS)
    assert set(SYNTHETIC) == {"aol", "indiana"}
    status, out, _ = run("--synthetic", "indiana", "--requests", 20_000, "--config", "indiana-4",
                         "--servers", 7, "--json")  # fmt: skip
    assert status == 0
    found = json.loads(out)
    assert found["configuration"] == CONFIGURATIONS["indiana-4"].to_dict() | {"servers": 7}
    assert (found["trace"], found["requests"]) == ("synthetic indiana", 20_000)
    assert {each["policy"] for each in found["runs"]} == {"clockwise", "jump"} < set(POLICIES)


def test_columns_are_named_or_numbered(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("host,what,at\nx,a,0\nx,b,60\n")
    expected = run("--trace", path, *SMALL, "--time-column", "at", "--key-column", "what")
    assert expected[0] == 0
    assert "2 requests, 2 distinct, 1 minutes" in expected[1]
    path.write_text("x,a,0\nx,b,60\n")
    assert run("--trace", path, *SMALL, "--time-column", 2, "--key-column", 1) == expected


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], ["--trace and --synthetic", "missing"]),
        (["--synthetic", "aol", "--trace", "x"], ["exclude each other"]),
        (["--synthetic", "aol", "--time-column", "x"], ["--time-column is for --trace"]),
        (["--trace", "LOG"], ["--servers is missing", "--config"]),
        (["--trace", "LOG", "--servers", 3], ["--cache-size is missing", "none"]),
        (["--trace", "LOG", *SMALL, "--limit", "x"], ["'x' is not a whole number"]),
        (["--trace", "LOG", *SMALL, "--servers", 0], ["--servers must be"]),
        (["--trace", "LOG", *SMALL, "--cache-size", -1], ["--cache-size must be", "Give 'none' for"]),
        (["--trace", "LOG", *SMALL, "--stale", -1], ["--stale must be"]),
        (["--trace", "LOG", *SMALL, "--seed", -1], ["--seed must be"]),
        (["--trace", "LOG", *SMALL, "--repeat", 0], ["--repeat must be"]),
        (["--trace", "LOG", *SMALL, "--requests", 0], ["trace must have requests"]),
        (["--trace", "LOG", *SMALL, "--policy", "hop"], ["--policy", "Try"]),
        (["--trace", "LOG", *SMALL, "--key-column", "x"], ["no column 'x'", "--key-column must be one of"]),
        (["--trace", "LOG", *SMALL, "--time-format", "x"], ["--time-format must be"]),
        (["--trace", "none.csv", *SMALL], ["none.csv", "check the name"]),
        (["--trace", ".", *SMALL], ["is a directory", "name a file"]),
        (["--synthetic", "aol", "--config", "aol-9"], ["--config"]),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_and_exit_code_2(args: list[object], words: list[str], log: Path) -> None:
    status, out, err = run(*[log if each == "LOG" else each for each in args])
    assert (status, out) == (2, "")
    assert err.startswith("evenbins: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_help_names_the_command() -> None:
    with CliRunner().isolation() as streams:
        with pytest.raises(SystemExit):
            cli.main(["simulate", "--help"])
        assert "cache" in streams[0].getvalue().decode()
