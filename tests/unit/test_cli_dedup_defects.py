"""Defects of `evenbins dedup` and `query -o` that a tester found on the command line, each with its test."""

import importlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import COMMAND, build, run, spawn

from evenbins import Deduplicator
from evenbins.cli import _places
from evenbins.cli._keys import KeyRule, json_parser


@pytest.fixture
def lines(tmp_path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"b\na\nb\nc\na\n")
    return path


def refused(done, *words: str) -> None:
    """Assert that it ended with an error of one line, which is no bug, and has these words."""
    assert done.status == 2, done.err
    error = done.err.splitlines()[-1]
    assert error.startswith("evenbins: ")
    assert "this is a bug" not in error
    for word in words:
        assert word in error


# --- the report comes after the state ----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["missing/report.json", "."])
def test_the_place_of_a_report_is_checked_first(tmp_path, lines, place):
    out, state = tmp_path / "out.txt", tmp_path / "seen.evb"
    refused(run("dedup", lines, "-o", out, "--state", state, "--report", tmp_path / place), "--report")
    assert not out.exists()
    assert not state.exists()


def test_a_report_that_fails_after_the_state_is_a_warning(tmp_path, lines, monkeypatch):
    out, state, report = tmp_path / "out.txt", tmp_path / "seen.evb", tmp_path / "report.json"

    def fail(*_):
        raise OSError(28, "No space left on device", str(report))

    monkeypatch.setattr(_places, "replace_file", fail)
    done = run("dedup", lines, "-o", out, "--state", state, "--report", report)
    assert done.status == 0, done.err
    assert "do not run the command again" in done.err
    assert "no space left" in done.err
    assert out.read_bytes() == b"b\na\nc\n"
    assert Deduplicator.load(state).stats().kept == 3
    refused(run("dedup", lines, "-o", out, "--report", report), "no space left")


def test_a_report_to_a_closed_reader_after_the_state_is_a_warning(tmp_path, lines):
    out, state = tmp_path / "out.txt", tmp_path / "seen.evb"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "dedup", str(lines), "-o", str(out), "--state", str(state), "--json"],
            stdout=full, stderr=subprocess.PIPE, timeout=240, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"do not run the command again" in done.stderr


def test_a_report_to_a_device(tmp_path, lines):
    assert run("dedup", lines, "-o", tmp_path / "out.txt", "--report", "/dev/null").status == 0


_SLOW_SAVE = """
import os, signal, sys
from evenbins import Deduplicator
from evenbins.cli import main
save = Deduplicator.save
def slow(self, path):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(os.getpid(), number)
    save(self, path)
Deduplicator.save = slow
main(sys.argv[1:])
"""


def test_signals_between_output_and_state_are_ignored(tmp_path, lines):
    out, state = tmp_path / "out.txt", tmp_path / "seen.evb"
    done = subprocess.run(
        [COMMAND[0], "-c", _SLOW_SAVE, "dedup", str(lines), "-o", str(out), "--state", str(state)],
        capture_output=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Deduplicator.load(state).stats().kept == 3
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


# --- every file is another ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pair",
    [("-o", "--report"), ("-o", "--state"), ("--dropped", "--report"), ("--dropped", "--state"),
     ("--report", "--state")],
)  # fmt: skip
def test_outputs_are_different_files(tmp_path, lines, pair):
    both = tmp_path / "both"
    (tmp_path / "link").symlink_to(both)
    options = {"-o": tmp_path / "out.txt", pair[0]: both, pair[1]: tmp_path / "link"}
    refused(run("dedup", lines, *(each for item in options.items() for each in item)), *pair, "of its own")
    assert not both.exists()


@pytest.mark.parametrize("option", ["--report", "--state", "--dropped", "-o"])
def test_an_output_is_no_input(tmp_path, lines, option):
    twin = tmp_path / "twin.txt"
    os.link(lines, twin)
    options = {"-o": tmp_path / "out.txt", option: twin}
    done = run("dedup", lines, *(each for item in options.items() for each in item))
    refused(done, option, "one of the inputs")
    assert lines.read_bytes() == b"b\na\nb\nc\na\n"


def test_query_does_not_overwrite_its_filter(tmp_path, lines):
    filter = build(tmp_path, b"a\nb\n")
    before = filter.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(filter)
    for output in (filter, link):
        refused(run("query", filter, lines, "-o", output), "the filter itself")
    assert filter.read_bytes() == before


# --- folders -----------------------------------------------------------------------------------------------


@pytest.fixture
def locked(tmp_path, monkeypatch) -> Path:
    """A folder with a file, and one below it that cannot be read, whoever runs the tests."""
    folder = tmp_path / "crawl"
    hidden = folder / "locked"
    hidden.mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"a\n")
    (hidden / "b.txt").write_bytes(b"b\n")
    scan, access = os.scandir, os.access

    def scandir(path="."):
        if os.fspath(path).rstrip("/") == str(hidden):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(
        os, "access", lambda path, mode: os.fspath(path).rstrip("/") != str(hidden) and access(path, mode)
    )
    return folder


@pytest.mark.parametrize("pattern", ["", "**/*.txt", "*/*.txt"])
def test_an_unreadable_folder_is_an_error(locked, pattern):
    refused(run("dedup", os.path.join(locked, pattern)), str(locked / "locked"), "cannot be read")


def test_a_pipe_in_a_folder_is_passed_over(tmp_path, lines):
    os.mkfifo(tmp_path / "pipe.txt")
    done = spawn("dedup", tmp_path)
    assert (done.returncode, done.stdout) == (0, b"b\na\nc\n")


# --- the state ---------------------------------------------------------------------------------------------


def test_a_damaged_state(tmp_path, lines):
    state = tmp_path / "seen.evb"
    state.write_bytes(b"no state at all" * 100)
    refused(run("dedup", lines, "--state", state), f"--state {state}: ", "evenbins dedup --state")


def test_an_exact_state_with_a_rate(tmp_path, lines):
    state = tmp_path / "seen.evb"
    assert run("dedup", lines, "--state", state, "--exact").status == 0
    refused(run("dedup", lines, "--state", state, "--fpr", "1e-3"), "exact digests", "leave out --fpr")


def test_only_the_state_is_private(tmp_path, lines):
    out, other, state = tmp_path / "out.txt", tmp_path / "dropped.txt", tmp_path / "seen.evb"
    before = os.umask(0o022)
    try:
        done = run("dedup", lines, "-o", out, "--dropped", other, "--state", state, "--seed", "random")
    finally:
        os.umask(before)
    assert done.status == 0, done.err
    assert [stat.S_IMODE(path.stat().st_mode) for path in (out, other, state)] == [0o644, 0o644, 0o600]


# --- options -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", ["0", "-1", "1", "2"])
def test_a_rate_that_is_none(lines, rate):
    refused(run("dedup", lines, "--fpr", rate), "--fpr")


def test_a_capacity_that_is_none(lines):
    refused(run("dedup", lines, "--capacity", "1e30"), "--capacity")


# --- numbers of JSON ---------------------------------------------------------------------------------------


def kept_rows(tmp_path, values: list[str], *options: str, form: str = '{"k": %s}') -> list[str]:
    """Return the values whose rows are kept."""
    source, out = tmp_path / "rows.jsonl", tmp_path / "kept.jsonl"
    source.write_text("".join(form % value + "\n" for value in values))
    done = run("dedup", source, "--key", "k", "-o", out, *options)
    assert done.status == 0, done.err
    rows = out.read_text().splitlines()
    return [value for value in dict.fromkeys(values) if form % value in rows]


NUMBERS = [
    ["1e400", "10e399", "0.1e401"], ["2e400"], ["-1e400"], ["1e-400", "10E-401"], ["2e-400"],
    ["0", "0.0", "-0", "-0.0", "0e99", "0E-400"],
    ["0.1", "0.10", "1e-1", "0.1000000000000000000000"], ["0.1000000000000000000001"],
    ["0.1000000000000000055511151231257827021181583404541015625"],
    ["0.30000000000000004", "3.0000000000000004e-1"], ["0.300000000000000044"],
    ["1", "1.0", "1e0", "1.00000000000000000000"], ["1.0000000000000000000001"],
    ["9007199254740993", "9007199254740993.0"], ["9007199254740992"],
    ["18446744073709551615"], ["18446744073709551616", "18446744073709551616.0"], ["18446744073709551617"],
    ["-9223372036854775808"], ["-9223372036854775809"], ["-1"], ["-0.1"],
    ["1e300", "1" + "0" * 300], ["1" + "0" * 5000, "1e5000"], ["1" * 5000], ["-" + "1" * 5000], ["1" * 5001],
    ["1e999999999"], ["1e999999998"],
]  # fmt: skip


@pytest.mark.parametrize("form", ['{"k": %s}', '{"k": [%s]}', '{"k": {"a": %s}}', '{"o": 0.1, "k": %s}'])
@pytest.mark.parametrize("parser", ["orjson", "json"])
def test_numbers_are_compared_by_their_exact_value(tmp_path, monkeypatch, form, parser):
    """Those of a group are one key, and every group is another."""
    if parser == "json":
        monkeypatch.setitem(sys.modules, "orjson", None)
    values = [value for group in NUMBERS for value in group]
    assert kept_rows(tmp_path, values, form=form) == [group[0] for group in NUMBERS]


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_decimals_are_compared_as_a_set_does(values):
    parse = json_parser(KeyRule(("k",)))
    keys = [parse(b'{"k": %s}' % str(value).encode()) for value in values]
    for first, one in zip(values, keys, strict=True):
        for second, other in zip(values, keys, strict=True):
            assert (first == second) == (one == other)


def test_an_absurd_exponent_names_file_and_line(tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text('{"k": 1}\n{"k": 1e%s}\n' % ("9" * 5000))
    refused(run("dedup", source, "--key", "k"), f"{source}, line 2: ", "exponent")


@pytest.mark.parametrize("depth", [100, 300, 600, 900, 1500, 5000])
def test_deep_nesting_is_a_key_or_an_error_of_its_line(tmp_path, depth):
    source = tmp_path / "rows.jsonl"
    source.write_text('{"k": 1}\n{"k": %s}\n' % ("[" * depth + "]" * depth))
    done = run("dedup", source, "--key", "k")
    if depth > 100:
        assert done.status == 0 or f"{source}, line 2: JSON nested too deeply" in done.err
        assert "bug" not in done.err
    else:
        assert done.status == 0


# --- null is no text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--exact",), ("--memory", "64M", "--capacity", "1e9")])
@pytest.mark.parametrize("text", ["\0null\0", "\0" * 48, "null"])
def test_null_is_no_text(tmp_path, options, text):
    rows = [None, text, None, text]
    table, out = tmp_path / "rows.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"k": rows}), table)
    done = run("dedup", table, "--key", "k", "--nulls", "one", "-o", out, *options)
    assert done.status == 0, done.err
    assert pq.read_table(out).column("k").to_pylist() == [None, text]
    source, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    source.write_text("k,n\n" + "".join(f"{row or ''},1\n" for row in rows))
    assert run("dedup", source, "--key", "k", "--nulls", "one", "-o", out, *options).status == 0
    assert out.read_text() == f"k,n\n,1\n{text},1\n"


def test_null_is_remembered_by_the_state(tmp_path):
    source, state = tmp_path / "rows.csv", tmp_path / "seen.evb"
    source.write_text("k,n\n,1\na,1\n,2\n")
    options = ("--key", "k", "--nulls", "one", "--state", state)
    assert run("dedup", source, *options).out == b"k,n\n,1\na,1\n"
    assert run("dedup", source, *options).out == b"k,n\n"


# --- Parquet -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["NONE", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_parquet_keeps_its_compression(tmp_path, codec):
    source, out = tmp_path / "rows.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"k": ["a", "b", "a"], "n": [1, 2, 3]}), source, compression=codec)
    done = run("dedup", source, "--key", "k", "-o", out)
    assert done.status == 0, done.err
    assert pq.read_table(out).to_pydict() == {"k": ["a", "b"], "n": [1, 2]}
    codecs = [pq.ParquetFile(path).metadata.row_group(0).column(0).compression for path in (source, out)]
    assert codecs[0] == codecs[1]


@pytest.mark.parametrize(
    "options", [("--key", "k"), ("--key", "k", "--normalize", "lower"), (), ("--key", "n")]
)
def test_parquet_with_views(tmp_path, options):
    source, out = tmp_path / "rows.parquet", tmp_path / "out.parquet"
    table = pa.table({
        "k": pa.array(["a", "b", "a", None], pa.string_view()),
        "b": pa.array([b"x", b"y", b"x", None], pa.binary_view()),
        "n": [1, 2, 1, 4],
    })  # fmt: skip
    pq.write_table(table, source)
    done = run("dedup", source, "-o", out, "--nulls", "keep", *options)
    assert done.status == 0, done.err
    assert pq.read_table(out).schema == table.schema
    assert pq.read_table(out).column("k").to_pylist() == ["a", "b", None]


def test_a_view_is_the_key_that_text_is(tmp_path):
    source, lines, state = tmp_path / "rows.parquet", tmp_path / "rows.txt", tmp_path / "seen.evb"
    pq.write_table(pa.table({"k": pa.array(["a", "b"], pa.string_view())}), source)
    lines.write_bytes(b"a\nb\nc\n")
    assert run("dedup", source, "--key", "k", "-o", tmp_path / "o.parquet", "--state", state).status == 0
    assert run("dedup", lines, "--state", state).out == b"c\n"


def test_columns_of_one_name(tmp_path):
    source, out = tmp_path / "rows.parquet", tmp_path / "out.parquet"
    columns = [pa.array([1, 1, 1]), pa.array([2, 3, 2]), pa.array([5, 5, 5])]
    pq.write_table(pa.Table.from_arrays(columns, names=["a", "a", "b"]), source)
    done = run("dedup", source, "-o", out)
    assert done.status == 0, done.err
    assert [column.to_pylist() for column in pq.ParquetFile(out).read().columns] == [[1, 1], [2, 3], [5, 5]]
    refused(run("dedup", source, "-o", out, "--key", "a"), str(source), "2 columns 'a'")
    assert run("dedup", source, "-o", out, "--key", "b").status == 0


# --- --memory ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """Lines whose exact digests take more than --memory 64M leaves for keys."""
    path = tmp_path_factory.mktemp("many") / "many.txt"
    path.write_bytes(b"".join(b"%d\n" % i for i in range(1_200_000)))
    return path


@pytest.fixture
def little_memory(monkeypatch) -> None:
    """Leave 4 MB of --memory 64M for keys."""
    monkeypatch.setattr(importlib.import_module("evenbins.cli.dedup"), "_OWN_BYTES", 60 << 20)


LYING = ("--memory", "64M", "--capacity", "1000", "--exact")


def test_a_capacity_that_is_exceeded_does_not_exceed_the_memory(tmp_path, many, little_memory):
    out, report = tmp_path / "out.txt", tmp_path / "report.json"
    done = run("dedup", many, many, "-o", out, "--report", report, *LYING)
    assert done.status == 0, done.err
    assert "more than --memory leaves" in done.err
    assert out.read_bytes() == many.read_bytes()
    found = json.loads(report.read_text())
    assert (found["mode"], found["rows"], found["kept"]) == ("disk", 2_400_000, 1_200_000)
    assert sorted(os.listdir(tmp_path)) == ["out.txt", "report.json"]


def test_memory_is_exceeded_where_rows_cannot_be_written_anew(tmp_path, many, little_memory):
    state, out = tmp_path / "seen.evb", tmp_path / "out.txt"
    refused(run("dedup", many, "-o", "/dev/null", *LYING), "more than --memory leaves")
    refused(run("dedup", "-", "-o", out, *LYING, stdin=many.read_bytes()), "more than --memory leaves")
    refused(run("dedup", many, "-o", out, "--state", state, *LYING), "more than --memory leaves", "--state")
    assert os.listdir(tmp_path) == []


def test_a_state_that_is_larger_than_the_memory(tmp_path, many, monkeypatch):
    state, out = tmp_path / "seen.evb", tmp_path / "out.txt"
    assert run("dedup", many, "-o", out, "--state", state, "--exact").status == 0
    monkeypatch.setattr(importlib.import_module("evenbins.cli.dedup"), "_OWN_BYTES", 60 << 20)
    before = out.read_bytes()
    refused(
        run("dedup", many, "-o", out, "--state", state, "--memory", "64M"), f"--state {state}", "--memory"
    )
    assert out.read_bytes() == before


def test_a_capacity_beside_a_state_is_ignored(tmp_path, lines):
    state = tmp_path / "seen.evb"
    assert run("dedup", lines, "--state", state).status == 0
    done = run("dedup", lines, "--state", state, "--capacity", "1")
    assert done.status == 0
    assert "--capacity is ignored" in done.err
    assert "Raise it" not in done.err


# --- standard input and output, CSV, --key -----------------------------------------------------------------


def test_standard_output_is_synced_before_the_state_is_saved(tmp_path, lines):
    script = """
import os, sys
from evenbins import Deduplicator
from evenbins.cli import main
synced, fsync, save = [], os.fsync, Deduplicator.save
os.fsync = lambda descriptor: (synced.append(descriptor), fsync(descriptor))
def checked(self, path):
    assert 1 in synced, synced
    save(self, path)
Deduplicator.save = checked
main(sys.argv[1:])
"""
    with open(tmp_path / "out.txt", "wb") as out:
        done = subprocess.run(
            [COMMAND[0], "-c", script, "dedup", str(lines), "--state", str(tmp_path / "seen.evb")],
            stdout=out, stderr=subprocess.PIPE, timeout=240, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.txt").read_bytes() == b"b\na\nc\n"


def test_standard_input_that_is_a_file_is_no_pipe(lines):
    with open(lines, "rb") as file:
        done = spawn("dedup", stdin=file)
    assert done.stdout == b"b\na\nc\n"
    assert b"standard input is read once: memory grows" in done.stderr


@pytest.mark.parametrize("delimiter", [";", "\t", ","])
@pytest.mark.parametrize("empty", ["\n", "\r\n\n", "\ufeff\n"])
def test_csv_that_begins_with_an_empty_line(tmp_path, delimiter, empty):
    source = tmp_path / "rows.csv"
    source.write_text(empty + "k,n\na,1\nb,2\na,3\n".replace(",", delimiter), newline="")
    done = run("dedup", source, "--key", "k")
    assert done.status == 0, done.err
    assert done.out.decode().lstrip("\ufeff\r\n") == "k,n\na,1\nb,2\n".replace(",", delimiter)


@pytest.mark.parametrize("key", ["", ",", "k,", "k,,n"])
def test_a_key_without_a_name(tmp_path, key):
    source = tmp_path / "rows.csv"
    source.write_text("k,n\na,1\n")
    refused(run("dedup", source, "--key", key), "--key", "empty name")


def test_a_named_pipe_is_opened_once(tmp_path):
    """It was opened again for a word of a message: the writer was killed, and the second opening waited."""
    os.mkfifo(tmp_path / "pipe")
    lines = b"".join(b"%d\n" % (i % 1000) for i in range(50_000))
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(lines,), daemon=True)
    writer.start()
    command = [sys.executable, "-m", "evenbins", "dedup", tmp_path / "pipe", "-o", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "is a pipe" in done.stderr) == (0, True), done.stderr
    writer.join(60)
    assert not writer.is_alive()
    assert (tmp_path / "out").read_bytes().split() == [b"%d" % i for i in range(1000)]
