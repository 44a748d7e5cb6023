"""The commands around build and query: merge, seed, completion, inspect of every kind; and all wrong uses.

Whatever is wrong, a command says so in one line that names a way out, with exit code 2 and no traceback: a
walk over all commands holds them to it, a bug that nobody expected included.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest
from test_cli import COMMAND, build, one_line, run, spawn

import evenbins
from evenbins import (
    BlockedBloomFilter,
    ChainedTable,
    CountingBloomFilter,
    CountMinSketch,
    GrowingFilter,
    HashRing,
    MultilevelTable,
    PagedTable,
    ShardedFilter,
    cli,
)
from evenbins._lazy import homes_of
from evenbins.cli import _structures
from evenbins.cli import seed as seed_command
from evenbins.tables import summaries  # fmt: skip

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    """A file of every kind, each with the keys 0 … 99 as text."""
    keys = [str(i) for i in range(100)]
    made = {
        "blocked": BlockedBloomFilter(100, fpr=1e-9), "counting": CountingBloomFilter(100, fpr=1e-9),
        "growing": GrowingFilter(fpr=1e-9), "sharded": ShardedFilter(100, fpr=1e-9, shards=2),
        "balanced": evenbins.BalancedBloomFilter(100, fpr=1e-9),
        "standard": evenbins.BloomFilter(100, fpr=1e-9),
        "sketch": CountMinSketch(epsilon=0.01, delta=0.01),
        "table": MultilevelTable(100, key_dtype="digest"), "chained": ChainedTable(100, key_dtype="digest"),
        "integers": MultilevelTable(100), "summary": summaries.InterpolationSummary(100, levels=3),
        "ring": HashRing(["a", "b"]),
    }  # fmt: skip
    for name, each in made.items():
        if name in ("table", "chained"):
            each.insert_many(keys, 0)
        elif name not in ("integers", "summary", "ring"):
            each.add_many(keys)
        each.save(tmp_path / name)
    with PagedTable.create(tmp_path / "pages", 100, key_dtype="digest") as pages:
        pages.insert_many(keys, 0)
    return {name: tmp_path / name for name in [*made, "pages"]}


# --- inspect and query, of every kind ------------------------------------------------------------------


def test_query_asks_every_kind_that_knows_its_keys(files):
    for name in (
        "blocked",
        "standard",
        "balanced",
        "counting",
        "growing",
        "sharded",
        "table",
        "chained",
        "pages",
    ):
        done = run("query", files[name], stdin=b"5\n500\n7")
        assert (done.status, done.out, done.err) == (0, b"5\n7\n", ""), name
    for name in ("sketch", "summary", "ring"):
        one_line(run("query", files[name]), "has no membership test", "evenbins inspect")
    one_line(run("query", files["integers"]), "of integers", "key_dtype='digest'")


def test_inspect_every_kind(files):
    for name, path in files.items():
        shown = run("inspect", path)
        assert (shown.status, shown.err) == (0, ""), name
        assert b"every byte verified" in shown.out
        report = json.loads(run("inspect", path, "--json").out)
        assert report["verified"]
        assert report["file_bytes"] > 0
        assert {"kind", "plan", "stats"} <= report.keys()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.evenbins")), ids=lambda path: path.stem)
def test_inspect_every_golden_file(path):
    done = run("inspect", path)
    assert (done.status, done.err) == (0, "")


def test_kinds_are_those_of_the_library(files):
    expected = {
        "blocked": 2, "counting": 5, "growing": 4, "sharded": 0, "balanced": 3, "standard": 1, "sketch": 6,
        "table": 7, "chained": 8, "integers": 7, "summary": 9, "ring": 14, "pages": 13,
    }  # fmt: skip
    assert {name: _structures.kind_of(str(path)).number for name, path in files.items()} == expected


# --- merge ---------------------------------------------------------------------------------------------


def test_merged_filters_are_those_built_from_all_keys(tmp_path):
    parts = []
    for part in range(3):
        (tmp_path / "keys").write_bytes(b"".join(b"%d\n" % i for i in range(part * 50, part * 50 + 100)))
        parts.append(tmp_path / f"{part}.evb")
        options = ["--capacity", "200", "--fpr", "1e-9"]
        assert run("build", tmp_path / "keys", "-o", parts[-1], *options).status == 0
    before = [part.read_bytes() for part in parts]
    (tmp_path / "keys").write_bytes(b"".join(b"%d\n" % i for i in range(200)))
    assert run("build", tmp_path / "keys", "-o", tmp_path / "all", *options).status == 0
    done = run("merge", *parts, "-o", tmp_path / "merged")
    assert (done.status, done.out) == (0, b"")
    assert "of 3 files" in done.err
    assert (tmp_path / "merged").read_bytes() == (tmp_path / "all").read_bytes()
    assert [part.read_bytes() for part in parts] == before
    report = json.loads(run("merge", *parts, "-o", tmp_path / "merged", "--json").out)
    assert report["merged"] == [str(part) for part in parts]
    assert report["stats"]["keys"] == pytest.approx(200, rel=0.1)


def test_everything_that_merges(files, tmp_path):
    for name in ("blocked", "standard", "counting", "growing", "sketch", "table"):
        done = run("merge", files[name], files[name], "-o", tmp_path / "m")
        assert done.status == 0, done.err
        assert run("inspect", tmp_path / "m").status == 0
    assert run("query", tmp_path / "m", stdin=b"5\n500\n").out == b"5\n"  # the last one: an exact list
    sketch = CountMinSketch.load(files["sketch"])
    run("merge", files["sketch"], files["sketch"], "-o", tmp_path / "m")
    assert CountMinSketch.load(tmp_path / "m").count("5") == 2 * sketch.count("5")


def test_exact_lists_of_any_sizes_merge(tmp_path):
    for name, data in (("a", b"1\n2\n2\n"), ("b", b"2\n3\n4\n5\n"), ("c", b"")):
        (tmp_path / "keys").write_bytes(data)
        assert run("build", tmp_path / "keys", "-o", tmp_path / name, "--exact").status == 0
    assert run("merge", *(tmp_path / name for name in "abc"), "-o", tmp_path / "m").status == 0
    assert len(MultilevelTable.load(tmp_path / "m")) == 5
    assert run("query", tmp_path / "m", stdin=b"1\n3\n6\n").out == b"1\n3\n"


def test_exact_lists_of_earlier_versions_are_read_and_merged(tmp_path):
    """They were tables of digests with values; merged with an exact set they become one."""
    for name, keys in (("old", ["1", "2"]), ("older", ["2", "9"])):
        table = MultilevelTable(10, key_dtype="digest", value_dtype="uint64")
        table.insert_many(keys, 0)
        table.save(tmp_path / name)
    (tmp_path / "keys").write_bytes(b"2\n3\n")
    assert run("build", tmp_path / "keys", "-o", tmp_path / "new", "--exact").status == 0
    assert MultilevelTable.load(tmp_path / "new").value_dtype is None
    assert b"exact set" in run("inspect", tmp_path / "new").out
    assert json.loads(run("inspect", tmp_path / "new", "--json").out)["kind"] == "exact set"
    assert run("query", tmp_path / "old", stdin=b"1\n3\n").out == b"1\n"
    for files, dtype in ((["old", "older"], "uint64"), (["old", "new"], None), (["new", "old"], None)):
        assert run("merge", *(tmp_path / name for name in files), "-o", tmp_path / "m").status == 0
        merged = MultilevelTable.load(tmp_path / "m")
        assert (len(merged), merged.plan.value_dtype) == (3, dtype)
        assert run("query", tmp_path / "m", stdin=b"1\n2\n4\n").out == b"1\n2\n"


def test_merge_names_the_first_difference(tmp_path, files):
    lists = {
        "small": ["--capacity", "100"], "large": ["--capacity", "1000"],
        "seeded": ["--capacity", "100", "--seed", "1"],
        "hashes": ["--capacity", "100", "--hashes", "3"], "exact": ["--exact"],
        "secret": ["--exact", "--seed", "5"],
    }  # fmt: skip
    (tmp_path / "keys").write_bytes(b"a\n")
    for name, options in lists.items():
        assert run("build", tmp_path / "keys", "-o", tmp_path / name, *options).status == 0
    cases = [
        (["small", "large"], ["cannot merge", "hashes is 10 in the first", "same --capacity"]),
        (["small", "seeded"], ["their seeds differ", "--seed"]),
        (["small", "hashes"], ["hashes is", "3 in the second"]),
        (["small", "exact"], ["a blocked filter", "a multilevel table"]),
        (["exact", "secret"], ["their seeds differ", "--seed"]),
        (["exact", "integers"], ["key_dtype is digest in the first"]),
        (["small"], ["two or more files"]),
        (["ring", "ring"], ["cannot be merged"]),
        (["sharded", "sharded"], ["cannot be merged"]),
        (["small", "keys"], ["not an evenbins file"]),
        (["small", "nowhere"], ["no such file"]),
    ]
    for names, words in cases:
        one_line(run("merge", *(tmp_path / name for name in names), "-o", tmp_path / "out"), *words)
        assert not (tmp_path / "out").exists()
    one_line(
        run("merge", tmp_path / "small", tmp_path / "small", "-o", tmp_path / "small"), "choose another name"
    )


# --- seeds ---------------------------------------------------------------------------------------------


def test_a_seed_is_written_once_for_its_owner_alone(tmp_path):
    file = tmp_path / "seed"
    done = run("seed", "-o", file)
    assert (done.status, done.out) == (0, b"")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    number = int(file.read_text(), 0)
    assert 0 < number < 2**64
    assert str(number) not in done.err
    one_line(run("seed", "-o", file), "never overwritten", "another name")
    assert int(file.read_text(), 0) == number
    (tmp_path / "keys").write_bytes(b"a\n")
    for output, given in (("f", f"@{file}"), ("g", str(number))):
        done = run("build", tmp_path / "keys", "-o", tmp_path / output, "--seed", given, "--json")
        assert json.loads(done.out)["plan"]["seed"] is None
    assert (tmp_path / "f").read_bytes() == (tmp_path / "g").read_bytes()
    assert evenbins.load(tmp_path / "f").seed == number


def test_random_seeds_differ_and_are_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(seed_command.os, "urandom", lambda n: bytes(range(n)))
    file = build(tmp_path, b"a\n", "--seed", "random")
    assert evenbins.load(file).seed == int.from_bytes(bytes(range(8)), "little")
    assert run("query", file, stdin=b"a\nb\n").out == b"a\n"


# --- completion ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_the_command(shell):
    done = run("completion", shell)
    assert (done.status, done.err) == (0, "")
    assert f"_EVENBINS_COMPLETE={shell}_complete".encode() in done.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.out, check=True)


def completed(words: str, current: int) -> list[str]:
    env = {
        **os.environ,
        "_EVENBINS_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(current),
    }
    done = subprocess.run([*COMMAND], env=env, capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_completion_answers():
    assert {"build", "query", "merge", "inspect", "design"} <= set(completed("evenbins ", 1))
    assert completed("evenbins qu", 1) == ["query"]
    assert "--exact" in completed("evenbins build --e", 2)
    assert completed("evenbins design su", 2) == ["summary"]
    assert "two-choice" in completed("evenbins build --kind t", 3)


# --- commands are imported when they are called --------------------------------------------------------


def test_rows_say_what_the_commands_say():
    for row in cli._ROWS:
        command = row.load()
        assert command.name == row.name
        assert row.help == command.get_short_help_str(100), row.name
    shown = run("--help").out.decode()
    for row in cli._ROWS:
        assert row.help in shown


def test_help_imports_no_command():
    code = "import sys\nfrom evenbins.cli import _run\n_run(['--help'])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "evenbins.cli" in loaded
    assert not {"numpy", "rich", "evenbins.cli.build", "evenbins.cli.query", "evenbins.theory"} & set(loaded)


def test_names_of_the_package_are_where_it_says():
    assert set(evenbins.__all__) == set(homes_of(evenbins._HOMES)) - {"open"} | {"design", "theory"}
    for name in [*evenbins.__all__, "open"]:
        assert getattr(evenbins, name) is not None
        assert name in dir(evenbins)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        evenbins.nonsense  # noqa: B018
    with pytest.raises(ImportError):
        from evenbins import nonsense  # noqa: F401


# --- wrong use -----------------------------------------------------------------------------------------


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        return [leaf for name, each in command.commands.items() for leaf in leaves(each, (*path, name))]
    return [(path, command)]


def test_every_command_refuses_unknown_options_and_values(tmp_path, monkeypatch):
    """All commands and all their options: an unknown one, one without its value, a value that cannot be."""
    monkeypatch.chdir(tmp_path)
    walked = 0
    for path, command in leaves(cli.commands):
        one_line(run(*path, "--no-such-option"), "--no-such-option", "--help")
        for option in command.params:
            if not isinstance(option, click.Option) or option.is_flag:
                continue
            one_line(run(*path, option.opts[-1]), option.opts[-1])
            if isinstance(option.type, click.Choice | click.IntRange) or option.type in (
                click.FLOAT,
                click.INT,
            ):
                one_line(run(*path, option.opts[-1], "no such value"), option.opts[-1])
            walked += 1
    assert walked > 80
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["build", "KEYS", "-o", "OUT", "--seed", "x"], ["--seed", "random, or @FILE"]),
        (["build", "KEYS", "-o", "OUT", "--seed", "@nowhere"], ["nowhere", "no such file"]),
        (["build", "KEYS", "-o", "OUT", "--seed", "@KEYS"], ["must hold one number", "evenbins seed -o"]),
        (["build", "KEYS", "-o", "OUT", "--seed", "2e19"], ["--seed must be", "2**64-1"]),
        (["build", "KEYS", "-o", "OUT", "--exact", "--fpr", "0.1"], ["--fpr is for filters"]),
        (["build", "KEYS", "-o", "OUT", "--exact", "--kind", "fill"], ["--kind is for filters"]),
        (["build", "KEYS", "-o", "OUT", "--exact", "--workers", "2"], ["--workers is for filters"]),
        (["build", "MANY", "-o", "OUT", "--exact", "--capacity", "3"], ["--capacity 3", "more different"]),
        (["build", "KEYS", "-o", "OUT", "--exact", "--capacity", "0"], ["--capacity must be"]),
        (["build", "KEYS", "-o", "OUT", "--exact", "--capacity", "1e14"], ["use a filter"]),
        (["build", "KEYS", "-o", "OUT", "--workers", "1", "-0"], ["-0, -U and --threads"]),
        (["merge", "FILTER"], ["Missing option", "-o"]),
        (["merge", "-o", "OUT"], ["Missing argument"]),
        (["merge", "FILTER", "FOLDER", "-o", "OUT"], ["is a directory"]),
        (["merge", "FILTER", "DAMAGED", "-o", "OUT"], ["DAMAGED", "checksum"]),
        (["merge", "FILTER", "FILTER", "-o", "FOLDER/no/OUT"], ["no such folder"]),
        (["merge", "FILTER", "FILTER", "-o", "-"], ["-o needs the name of a file"]),
        (["seed"], ["Missing option", "-o"]),
        (["seed", "-o", "FOLDER"], ["is a directory"]),
        (["seed", "-o", "FOLDER/no/OUT"], ["no such folder"]),
        (["completion"], ["Missing argument"]),
        (["completion", "tcsh"], ["'bash', 'zsh', 'fish'"]),
        (["inspect", "FOLDER"], ["is a directory"]),
        (["inspect", "KEYS"], ["not an evenbins file"]),
        (["inspect", "/dev/null"], ["not a regular file"]),
        (["design", "filter", "--keys", "-5"], ["--keys must be"]),
        (["design", "table", "--keys", "1e6", "--overflow", "7"], ["--overflow must be"]),
        (["design", "ring", "--nodes", "0", "--keys", "9"], ["--nodes must be"]),
        (["design", "summary", "--keys", "nan"], ["--keys", "not a whole number"]),
        (["simulate", "cache"], ["--trace and --synthetic", "give one"]),
        (["simulate", "cache", "--trace", "nowhere", "--config", "aol-1"], ["nowhere: no such file"]),
        (["reproduce"], ["--list lists them"]),
        (["reproduce", "nothing"], ["nothing"]),
        (["reproduce", "kanizo-fig5", "--plot", "x.doc"], ["must end in"]),
        (["route"], ["--upstream is missing"]),
    ],
)  # fmt: skip
def test_wrong_uses_of_the_other_commands(tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    Path("FOLDER").mkdir()
    Path("KEYS").write_bytes(b"a\nb\n")
    Path("MANY").write_bytes(b"".join(b"%d\n" % i for i in range(1000)))
    good = BlockedBloomFilter(10)
    good.save("FILTER")
    data = good.to_bytes()
    Path("DAMAGED").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    one_line(run(*args), *words)
    assert not Path("OUT").exists()


def test_damaged_golden_files_are_refused_in_one_line():
    for path in sorted((GOLDEN / "damaged").iterdir()):
        one_line(run("inspect", path), path.name)
        one_line(run("query", path, "--verify"), path.name)


def test_a_bug_is_one_line_too(tmp_path, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(_structures, "kind_of", broken)
    one_line(
        run("inspect", "x"), "this is a bug in evenbins: ZeroDivisionError: division", "EVENBINS_DEBUG=1"
    )
    monkeypatch.setenv("EVENBINS_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli._run(["inspect", "x"])


def test_closed_streams_of_the_other_commands(tmp_path):
    BlockedBloomFilter(10).save(tmp_path / "f")
    cases = [
        (f"merge {tmp_path}/f {tmp_path}/f -o {tmp_path}/m --json >/dev/full", b"no space left"),
        (f"inspect {tmp_path}/f >&-", b"standard output: it is closed"),
        ("completion bash >/dev/full", b"no space left"),
    ]
    for line, message in cases:
        done = subprocess.run(["sh", "-c", f'"$0" -m evenbins {line}', sys.executable], capture_output=True)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
        assert message in done.stderr
    assert spawn("--version").stdout.startswith(b"evenbins ")


# --- the benchmark -------------------------------------------------------------------------------------


def test_the_benchmark_runs_and_checks_its_answers():
    from dataclasses import replace

    from benchmarks.cli import cli_cases
    from benchmarks.shared import QUICK

    names = []
    for case in cli_cases(replace(QUICK, string_keys=20_000)):
        names.append(case.name)
        for label, each in case.contenders.items():
            if "start-up" in case.name and label != "evenbins --version":
                continue  # processes like those of the other cases
            value = each.run()
            assert isinstance(value, float)
            assert each.check is None or each.check(value), (case.name, label)
    assert len(names) == len(set(names)) == 5
