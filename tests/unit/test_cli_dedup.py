"""`evenbins dedup` and `query -o`: formats, options, and what goes wrong.

That the bytes are those of a set is shown by tests/property/test_dedup_cli.py. Here: an error is one line
that names file and row, nothing is left behind, and a file that was there stays as it was.
"""

import gzip
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from test_cli import COMMAND, Done, one_line, run, spawn

import evenbins
from evenbins import _core
from evenbins.cli import _estimate, _normalize, _pipeline, _sinks, _spill, _state
from evenbins.cli._keys import key_of_value

command = importlib.import_module("evenbins.cli.dedup")


def failed(done: Done, *words: str) -> None:
    """Assert that it ended with one line of error; a note on what was planned may come before."""
    assert (done.status, done.out) == (2, b""), done.err
    *notes, error = done.err.splitlines()
    assert error.startswith("evenbins: ")
    assert not any(note.startswith("evenbins: ") for note in notes)
    for word in words:
        assert word in error


@pytest.fixture
def lines(tmp_path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"b\na\nb\nc\na\n")
    return path


# --- what it does ------------------------------------------------------------------------------------------


def test_first_rows_in_their_order(tmp_path, lines):
    out = tmp_path / "out.txt"
    done = run("dedup", lines, "-o", out)
    assert (done.status, done.out, out.read_bytes()) == (0, b"", b"b\na\nc\n")
    planned, counted = done.err.splitlines()
    assert planned.startswith("5 rows; a filter with a rate of 1e-09, ")
    assert planned.endswith(" MB: 5e-09 rows expected to be dropped wrongly")
    assert f"{out}: 5 rows, 3 kept, 2 dropped; " in counted
    assert " rows expected to be dropped wrongly; " in counted
    assert counted.endswith(" rows a second")


def test_standard_input_to_standard_output():
    done = run("dedup", stdin=b"b\na\nb")
    assert (done.status, done.out) == (0, b"b\na\n")
    assert done.err.startswith(
        "standard input is a pipe: memory grows with the keys; a filter with a rate of 1e-09"
    )
    assert run("dedup", "--exact", "-", stdin=b"x\r\nx\nx\r\n").out == b"x\r\n"
    assert run("dedup", "-U", stdin=b"x\r\nx\nx\r\n").out == b"x\r\nx\n"
    assert run("dedup", "-0", stdin=b"x\ny\0z\0x\ny\0").out == b"x\ny\0z\0"
    assert run("dedup", stdin=b"").out == b""


def test_a_file_without_newlines_is_one_line(tmp_path):
    done = run("dedup", "-o", tmp_path / "out", stdin=b"a\rb\ra")
    assert "\\r and no \\n, so it is one line" in done.err
    assert (tmp_path / "out").read_bytes() == b"a\rb\ra\n"


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_in_and_out(tmp_path, suffix):
    data = b"".join(b"line %d\n" % (i % 1000) for i in range(5000))
    packed = gzip.compress(data) if suffix == ".gz" else zstandard.compress(data)
    (tmp_path / f"in.txt{suffix}").write_bytes(packed)
    out = tmp_path / f"out.txt{suffix}"
    assert run("dedup", tmp_path / f"in.txt{suffix}", "-o", out).status == 0
    program = "gzip" if suffix == ".gz" else "zstd"
    unpacked = subprocess.run([program, "-dc", out], capture_output=True, check=True).stdout
    assert unpacked == b"".join(b"line %d\n" % i for i in range(1000))
    assert out.stat().st_size < len(unpacked) / 2


def test_zstd_by_arrow_alone(tmp_path, lines, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    assert run("dedup", lines, "-o", tmp_path / "out.zst").status == 0
    assert (
        zstandard.ZstdDecompressor().stream_reader((tmp_path / "out.zst").read_bytes()).read() == b"b\na\nc\n"
    )
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    one_line(run("dedup", lines, "-o", tmp_path / "other.zst"), "other.zst", "pip install zstandard")


def test_parquet_without_arrow_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"url": ["a", "b", "a"]}), path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    found = run("dedup", path, "--key", "url", "-o", tmp_path / "out.parquet")
    one_line(found, "rows.parquet", "pip install 'evenbins[arrow]'")


def test_folders_and_patterns(tmp_path):
    for name, text in {
        "b.txt": "b\n", "a.txt": "a\n", "deep/c.log": "c\na\n", "deep/x.bin": "x\n", ".hidden.txt": "h\n",
        ".git/config.txt": "g\n",
    }.items():  # fmt: skip
        path = tmp_path / "crawl" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folder = tmp_path / "crawl"
    assert run("dedup", folder).out == b"a\nb\nc\n"
    assert run("dedup", folder / "*.txt").out == b"a\nb\n"
    assert run("dedup", f"{folder}/**/*.log", folder / "b.txt").out == b"c\na\nb\n"
    assert run("dedup", folder / "deep" / "x.b[hi]n").out == b"x\n"
    one_line(run("dedup", folder / "*.csv"), "*.csv: no file matches this pattern")
    (tmp_path / "empty").mkdir()
    one_line(run("dedup", tmp_path / "empty"), "no file below this folder ends in .txt", "or a pattern")
    star = tmp_path / "a*.txt"
    star.write_text("star\n")
    assert run("dedup", star).out == b"star\n"


def test_other_commands_take_folders_and_patterns(tmp_path):
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "a.txt").write_text("a\nb\n")
    (folder / "b.txt").write_text("c\n")
    target = tmp_path / "f.evb"
    done = run("build", folder / "*.txt", "-o", target, "--fpr", "1e-9")
    assert done.status == 0, done.err
    assert "3 lines" in done.err
    assert run("build", folder, "-o", target, "--exact").status == 0
    assert run("query", target, folder).out == b"a\nb\nc\n"
    assert run("query", target, f"{folder}/[a]*").out == b"a\nb\n"


def test_a_report(tmp_path, lines):
    out, report = tmp_path / "out.txt", tmp_path / "report.json"
    assert run("dedup", lines, lines, "-o", out, "--report", report, "--exact").status == 0
    found = json.loads(report.read_text())
    assert (found["rows"], found["kept"], found["dropped"]) == (10, 3, 7)
    assert found["inputs"] == [
        {"name": str(lines), "rows": 5, "kept": 3, "dropped": 2},
        {"name": str(lines), "rows": 5, "kept": 0, "dropped": 5},
    ]
    assert found["exact"] is True
    assert 0 <= found["expected_wrong"] < 1e-30
    assert found["mode"] == "memory"
    assert found["seconds"] > 0
    assert found["rows_per_second"] > 0
    assert found["peak_memory_bytes"] > 1e6
    assert found["key_bytes"] > 0
    printed = run("dedup", lines, "-o", out, "--json")
    assert json.loads(printed.out)["kept"] == 3
    one_line(run("dedup", lines, "--json"), "need -o FILE")


def test_normalized_keys_and_rows_as_they_came(tmp_path):
    rows = (
        b"HTTP://Example.org:80/a#top\nhttp://example.org/a\nhttp://EXAMPLE.org/%61\nhttp://example.org/A\n"
    )
    assert (
        run("dedup", "--normalize", "url", stdin=rows).out
        == rows.splitlines(True)[0] + rows.splitlines(True)[3]
    )
    assert run("dedup", "--normalize", "strip,lower", stdin=b" A\na \nb\n").out == b" A\nb\n"
    assert run("dedup", "--normalize", "nfc", stdin="é\ne\u0301\n".encode()).out == "é\n".encode()
    (tmp_path / "x.csv").write_text("url,n\nA,1\na,2\n")
    assert run("dedup", tmp_path / "x.csv", "-k", "url", "--normalize", "lower").out == b"url,n\nA,1\n"
    (tmp_path / "x.jsonl").write_text('{"u": "A"}\n{"u": "a"}\n{"u": 5}\n')
    assert (
        run("dedup", tmp_path / "x.jsonl", "-k", "u", "--normalize", "lower").out == b'{"u": "A"}\n{"u": 5}\n'
    )
    pq.write_table(pa.table({"u": ["A", "a"], "n": [1, 2]}), tmp_path / "x.parquet")
    for fields, kept in (("u", [1]), ("u,n", [1, 2])):
        done = run(
            "dedup", tmp_path / "x.parquet", "-k", fields, "--normalize", "lower", "-o", tmp_path / "y.pq"
        )
        assert done.status == 0, done.err
        assert pq.read_table(tmp_path / "y.pq")["n"].to_pylist() == kept
    one_line(run("dedup", "--normalize", "upper", stdin=b""), "--normalize upper", "nfc, lower, strip, url")


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("https://a.org", "https://a.org/"),
        ("HTTPS://A.ORG:443/B?q=%7e%2f#f", "https://a.org/B?q=~%2F"),
        ("http://a.org:8080/?b=2&a=1", "http://a.org:8080/?b=2&a=1"),
        ("http://User@A.org/", "http://User@a.org/"),
        ("http://[::1]:80/x", "http://[::1]/x"),
        ("http://[::1]/x", "http://[::1]/x"),
        ("http://a%2Fb.org/", "http://a%2Fb.org/"),
        ("http://a.org?x", "http://a.org/?x"),
        ("http://a.org:/", "http://a.org/"),
        ("mailto:A@b.org", "mailto:A@b.org"),
        ("no url", "no url"),
        ("http://a.org/%zz", "http://a.org/%zz"),
    ],
)
def test_rules_of_urls(text, normal):
    rule = _normalize.NORMALIZATIONS["url"]
    assert rule(text) == normal
    assert rule(normal) == normal


def test_bytes_that_are_no_text_are_not_normalized():
    normalize = _normalize.normalizer(["lower"])
    assert normalize(b"\xffA") == b"\xffA"
    assert normalize(b"A") == b"a"


def test_values_of_json_as_keys():
    """Type and value count; 1 and 1.0 are one number."""
    values = ["1", 1, True, 1.5, None, [1], {"a": 1}, 2**70, "\0bool\0001", 2.0**80]
    keys = [key_of_value(value) for value in values]
    assert len(set(keys)) == len(values)
    assert key_of_value(1.0) == key_of_value(1)
    assert key_of_value({"a": 1, "b": [2.0]}) == key_of_value({"b": [2], "a": 1})
    assert key_of_value(float(2**70)) == key_of_value(2**70)
    assert key_of_value("\ud800") is not None


def test_long_integers_of_json_are_exact(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(
        '{"k": 123456789012345678901}\n{"k": 123456789012345678902}\n{"k": [123456789012345678901]}\n'
    )
    assert run("dedup", path, "-k", "k").out == path.read_bytes()


def test_columns_of_csv_and_their_names(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfurl;n\r\nx;1\r\n\r\nx;2\r\n")
    (tmp_path / "b.csv").write_bytes(b"url;n\nx;3\ny;4")
    done = run("dedup", tmp_path / "a.csv", tmp_path / "b.csv", "--key", "url")
    assert done.out == b"\xef\xbb\xbfurl;n\r\nx;1\r\ny;4\n"
    (tmp_path / "c.csv").write_bytes(b"url;m\nx;3\n")
    done = run("dedup", tmp_path / "a.csv", tmp_path / "c.csv", "--key", "url", "-o", tmp_path / "out.csv")
    failed(done, "c.csv: its columns differ from those of", "a.csv")
    (tmp_path / "only_names.csv").write_bytes(b"url;n\n")
    assert run("dedup", tmp_path / "only_names.csv", "--key", "url").out == b"url;n\n"


def test_parquet_of_every_type(tmp_path):
    """Keys of types that are no text and no integers are compared by type and value."""
    table = pa.table(
        {
            "when": pa.array([1, 2, 1, None], pa.timestamp("us")), "flag": [True, False, True, None],
            "name": pa.array(["a", "b", "a", None]).dictionary_encode(), "many": [[1], [2], [1], None],
            "n": [0, 1, 2, 3],
        }
    )  # fmt: skip
    pq.write_table(table, tmp_path / "in.parquet", compression="zstd")
    for column in ("when", "flag", "name", "many"):
        done = run(
            "dedup", tmp_path / "in.parquet", "-k", column, "--nulls", "one", "-o", tmp_path / "out.parquet"
        )
        assert done.status == 0, done.err
        found = pq.read_table(tmp_path / "out.parquet")
        assert found["n"].to_pylist() == [0, 1, 3]
        assert found.schema.equals(table.schema)
    assert pq.ParquetFile(tmp_path / "out.parquet").metadata.row_group(0).column(0).compression == "ZSTD"


def test_parquet_without_rows(tmp_path):
    table = pa.table({"a": pa.array([], pa.string())})
    pq.write_table(table, tmp_path / "in.parquet")
    assert run("dedup", tmp_path / "in.parquet", "-o", tmp_path / "out.parquet").status == 0
    assert pq.read_table(tmp_path / "out.parquet").schema.equals(table.schema)


def test_parquet_from_a_pipe(tmp_path):
    pq.write_table(pa.table({"a": ["x", "x", "y"]}), tmp_path / "in.parquet")
    data = (tmp_path / "in.parquet").read_bytes()
    done = spawn("dedup", "--format", "parquet", "-k", "a", "-o", tmp_path / "out.parquet", input=data)
    assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "out.parquet")["a"].to_pylist() == ["x", "y"]


def test_formats_by_content_and_by_option(tmp_path):
    """Without a telling name the first bytes decide where they can be read twice."""
    (tmp_path / "rows").write_text('{"a": 1}\n{"a": 1, "b": 2}\n')
    assert run("dedup", tmp_path / "rows", "-k", "a").out == b'{"a": 1}\n'
    (tmp_path / "table").write_text("a,b\n1,2\n1,3\n")
    assert run("dedup", tmp_path / "table", "-k", "a").out == b"a,b\n1,2\n"
    assert run("dedup", "-k", "a", "--format", "csv", stdin=b"a\n1\n1\n").out == b"a\n1\n"
    one_line(run("dedup", "-k", "a", stdin=b""), "standard input", "give --format jsonl, csv or parquet")
    one_line(run("dedup", "-k", "a", "--format", "lines", stdin=b""), "--key is for JSONL, CSV and Parquet")
    (tmp_path / "x.jsonl").write_text("{}\n")
    one_line(
        run("dedup", tmp_path / "x.jsonl", tmp_path / "table", "-k", "a"), "table is csv, but", "is jsonl"
    )
    assert run("dedup", tmp_path / "x.jsonl", stdin=b"").out == b"{}\n"


# --- how many keys? ----------------------------------------------------------------------------------------


def test_rows_are_estimated_from_a_sample(tmp_path):
    path = tmp_path / "many.txt"
    path.write_bytes(b"".join(b"%019d\n" % (i % 60_000) for i in range(120_000)))
    done = run("dedup", path, "-o", tmp_path / "out")
    assert done.err.startswith("119_996 rows estimated from a sample (±0.1 %)")
    assert (tmp_path / "out").read_bytes() == path.read_bytes()[: 60_000 * 20]
    (tmp_path / "many.txt.gz").write_bytes(gzip.compress(path.read_bytes(), 1))
    assert run("dedup", tmp_path / "many.txt.gz").out == (tmp_path / "out").read_bytes()


def test_keys_are_counted_where_rows_would_take_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_CHEAP_BYTES", 100)
    path = tmp_path / "many.txt"
    path.write_bytes(b"".join(b"%d\n" % (i % 1000) for i in range(5000)))
    done = run("dedup", path)
    assert done.err.startswith("1_000 different keys estimated (HyperLogLog, ±")
    assert done.out == path.read_bytes()[: len(b"".join(b"%d\n" % i for i in range(1000)))]


def test_a_capacity_that_is_too_small(tmp_path, lines):
    many = tmp_path / "many"
    many.write_bytes(b"".join(b"%d\n" % i for i in range(200_000)))
    done = run("dedup", many, "--capacity", "1000", "-o", tmp_path / "out")
    assert "planned for 1_000 different keys, as --capacity says" in done.err
    assert "warning: more than the 1_000 keys of --capacity" in done.err
    assert (tmp_path / "out").read_bytes() == many.read_bytes()
    one_line(run("dedup", lines, "--capacity", "0"), "--capacity", "0")
    one_line(run("dedup", lines, "--fpr", "2"), "--fpr", "2")


def test_numbers_for_people():
    assert [_estimate.count_text(each) for each in (950, 12_345, 11e6, 20e6, 3.2e9)] == [
        "950", "12_345", "11.0 million", "20.0 million", "3.2 billion",
    ]  # fmt: skip


# --- on disk -----------------------------------------------------------------------------------------------


@pytest.fixture
def no_memory(monkeypatch):
    """Let --memory 64M have no room for keys, and parts be small."""
    monkeypatch.setattr(command, "_OWN_BYTES", 64 << 20)
    monkeypatch.setattr(_spill, "_LEAST_ROWS", 10)
    monkeypatch.setattr(_spill, "_ROW_BYTES", 1 << 18)


def test_more_keys_than_memory(tmp_path, no_memory):
    path = tmp_path / "many.txt"
    rng = np.random.default_rng(1)
    path.write_bytes(b"".join(b"%d\n" % i for i in rng.integers(0, 500, 1_400)))
    out, report = tmp_path / "out", tmp_path / "report"
    done = run("dedup", path, "-o", out, "--memory", "64M", "--report", report)
    assert "more keys than memory: compared in parts on disk, exactly" in done.err
    assert out.read_bytes().split() == list(dict.fromkeys(path.read_bytes().split()))
    found = json.loads(report.read_text())
    assert (found["mode"], found["exact"]) == ("disk", True)
    assert found["disk_bytes"] > 16 * 500
    assert sorted(os.listdir(tmp_path)) == ["many.txt", "out", "report"]
    piped = run("dedup", "--memory", "64M", stdin=path.read_bytes())
    assert piped.out == out.read_bytes()


def test_options_that_need_memory(tmp_path, lines, no_memory):
    failed(
        run("dedup", lines, "--memory", "64M", "--state", tmp_path / "s"),
        "with --state all keys are in memory",
    )
    one_line(run("dedup", lines, "--memory", "1M"), "--memory must be at least 64M")


def test_a_disk_without_room_for_the_digests(tmp_path, lines, no_memory, monkeypatch):
    usage = type("usage", (), {"free": 10})
    monkeypatch.setattr(_spill.shutil, "disk_usage", lambda folder: usage)
    done = run("dedup", lines, "--memory", "64M", "-o", tmp_path / "out")
    failed(done, "bytes are needed for the digests of 5 rows, and 10 are free", "TMPDIR")
    assert os.listdir(tmp_path) == ["lines.txt"]


def test_a_disk_that_fills_up_while_digests_are_written(tmp_path, lines, no_memory, monkeypatch):
    def full(descriptor: int, data: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_spill, "write_all", full)
    done = run("dedup", lines, "--memory", "64M", "-o", tmp_path / "out")
    failed(done, f"{tmp_path} (digests that do not fit into memory): no space left on device", "TMPDIR")
    assert os.listdir(tmp_path) == ["lines.txt"]


def test_a_file_that_changes_between_the_passes(tmp_path, lines, no_memory, monkeypatch):
    answers = _spill.Spill.answers

    def changed(self):
        with open(lines, "ab") as file:
            file.write(b"more\n")
        return answers(self)

    monkeypatch.setattr(_spill.Spill, "answers", changed)
    done = run("dedup", lines, "--memory", "64M", "-o", tmp_path / "out")
    failed(done, "lines.txt: it was changed while it was read")
    assert os.listdir(tmp_path) == ["lines.txt"]


def test_digests_lie_beside_the_output_or_in_tmpdir(tmp_path, monkeypatch):
    monkeypatch.delenv("TMPDIR", raising=False)
    assert _spill.folder_for(str(tmp_path / "out")) == str(tmp_path)
    for output in (None, "/dev/null"):
        assert _spill.folder_for(output) == _spill.tempfile.gettempdir()
    monkeypatch.setenv("TMPDIR", "/somewhere")
    assert _spill.folder_for(str(tmp_path / "out")) == _spill.tempfile.gettempdir()


def test_lines_that_are_kept_in_place():
    """As select_lines, for every mask of a few lines; a wrong mask or a read-only block raises."""
    for text in (b"", b"a\n", b"a\nbc\n\nd\n", b"a\nbc\n\nlast"):
        lines = text.splitlines(keepends=True)
        for bits in range(2 ** len(lines)):
            mask = np.array([bits >> i & 1 for i in range(len(lines))], np.bool_)
            block = bytearray(text)
            size = _core.keep_lines(block, "\n", mask)
            assert block[:size] == _core.select_lines(text, "\n", mask, False)
    for count in (1, 3):
        with pytest.raises(ValueError, match="one answer for each line"):
            _core.keep_lines(bytearray(b"a\nb\n"), "\n", np.ones(count, np.bool_))
    with pytest.raises((TypeError, BufferError)):
        _core.keep_lines(b"a\n", "\n", np.ones(1, np.bool_))


def test_the_first_of_equal_digests():
    rng = np.random.default_rng(3)
    for n in (0, 1, 2, 1000):
        words = rng.integers(0, 3, 2 * n, dtype=np.uint64)
        seen: set[tuple[int, int]] = set()
        expected = []
        for low, high in words.reshape(-1, 2).tolist():
            expected.append((low, high) not in seen)
            seen.add((low, high))
        assert _core.first_of_digests(words).tolist() == expected
    with pytest.raises(ValueError, match="two for each"):
        _core.first_of_digests(np.zeros(3, np.uint64))


# --- states ------------------------------------------------------------------------------------------------


def test_a_state_is_saved_and_checked(tmp_path, lines):
    state, out = tmp_path / "seen.evb", tmp_path / "out"
    assert run("dedup", lines, "-o", out, "--state", state, "--seed", "5").status == 0
    assert run("dedup", "--state", state, stdin=b"a\nd\n").out == b"d\n"
    assert run("dedup", "--state", state, stdin=b"a\nd\ne\n").out == b"e\n"
    done = run("dedup", "--state", state, stdin=b"")
    assert f"{state}: 5 keys of 10 rows so far; a filter" in done.err
    one_line(run("dedup", "--state", state, "--exact", stdin=b""), "it holds filters", "leave out --exact")
    one_line(run("dedup", "--state", state, "--seed", "6", stdin=b""), "another --seed")
    one_line(run("dedup", "--state", state, "--fpr", "0.1", stdin=b""), "made with --fpr 1e-09, not 0.1")
    assert run("dedup", "--state", state, "--fpr", "1e-9", "--seed", "5", stdin=b"").status == 0
    exact = tmp_path / "exact.evb"
    assert run("dedup", "--state", exact, "--exact", stdin=b"a\n").status == 0
    assert run("dedup", "--state", exact, stdin=b"a\nb\n").out == b"b\n"
    assert evenbins.Deduplicator.load(exact).exact
    one_line(run("dedup", "--state", exact, "--fpr", "0.1", stdin=b""), "exact digests, which have no rate")
    one_line(run("dedup", "--state", tmp_path, stdin=b""), "is a directory: name a file")
    assert sorted(os.listdir(tmp_path)) == ["exact.evb", "lines.txt", "out", "seen.evb"]


def test_a_damaged_state(tmp_path, lines):
    state = tmp_path / "seen.evb"
    run("dedup", lines, "--state", state)
    data = bytearray(state.read_bytes())
    data[len(data) // 2] ^= 1
    state.write_bytes(data)
    before = state.read_bytes()
    one_line(run("dedup", lines, "--state", state, "-o", tmp_path / "out"), str(state))
    state.write_bytes(b"")
    one_line(run("dedup", lines, "--state", state), "the file is empty")
    state.write_bytes(before[:100])
    one_line(run("dedup", lines, "--state", state), str(state))
    assert not (tmp_path / "out").exists()


def test_two_writers_of_one_state(tmp_path, lines):
    state = tmp_path / "seen.evb"
    with _state.locked_state(str(state)):
        one_line(
            run("dedup", lines, "--state", state), "another process is using it", "or name another state"
        )
    assert run("dedup", lines, "--state", state).status == 0
    assert sorted(os.listdir(tmp_path)) == ["lines.txt", "seen.evb"]


def test_a_lock_that_was_removed_is_made_again(tmp_path, monkeypatch):
    """The holder removes the file while another waits for the descriptor it has opened."""
    state, lock, rounds = tmp_path / "s", _state._platform.lock, []

    def removed(descriptor: int, *, exclusive: bool) -> None:
        lock(descriptor, exclusive=exclusive)
        if not rounds:
            os.unlink(tmp_path / ".s.lock")
        rounds.append(descriptor)

    monkeypatch.setattr(_state._platform, "lock", removed)
    with _state.locked_state(str(state)):
        assert os.listdir(tmp_path) == [".s.lock"]
    assert len(rounds) == 2
    assert os.listdir(tmp_path) == []


def test_the_state_is_never_ahead_of_the_output(tmp_path, lines, monkeypatch):
    """A failure of the output leaves the state; one of the state leaves the output, and can be repeated."""
    state, out = tmp_path / "seen.evb", tmp_path / "out"
    run("dedup", "--state", state, stdin=b"z\n")
    before = state.read_bytes()
    events = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (events.append(Path(new).name), replace(old, new))[1])
    assert run("dedup", lines, "--state", state, "-o", out, "--dropped", tmp_path / "rest").status == 0
    assert events == ["rest", "out", "seen.evb"]
    monkeypatch.setattr(os, "replace", replace)
    state.write_bytes(before)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_sinks, "write_all", full)
        failed(run("dedup", lines, "--state", state, "-o", out), f"{out}: no space left on device")
    assert state.read_bytes() == before
    with monkeypatch.context() as patch:
        patch.setattr(evenbins.Deduplicator, "save", full)
        failed(run("dedup", lines, "--state", state, "-o", out), f"{state}: no space left on device")
    assert (state.read_bytes(), out.read_bytes()) == (before, b"b\na\nc\n")
    assert run("dedup", lines, "--state", state, "-o", out).status == 0
    assert out.read_bytes() == b"b\na\nc\n"


def test_a_state_with_a_secret_seed_is_private(tmp_path, lines):
    state = tmp_path / "seen.evb"
    assert run("dedup", lines, "--state", state, "--seed", "random").status == 0
    assert state.stat().st_mode & 0o777 == 0o600
    assert run("dedup", lines, "--state", state).out == b""


# --- what goes wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "options", "words"),
    [
        ("x.jsonl", b'{"a": 1}\n{"a": \n', ("-k", "a"), ("x.jsonl, line 2: malformed JSON", "repair it")),
        ("x.jsonl", b'{"a": 1}\n\n[1]\n', ("-k", "a"), ("x.jsonl, line 3: a row must be an object",)),
        ("x.jsonl", b'{"a": NaN}\n', ("-k", "a"), ("line 1: NaN is no JSON",)),
        ("x.jsonl", b'{"a": "\xff"}\n', ("-k", "a"), ("line 1: malformed JSON (no UTF-8",)),
        ("x.jsonl", b'{"a": 1}\n{"b": 1}\n', ("-k", "a"), ("line 2: no value for --key a", "--nulls keep")),
        ("x.jsonl", b'{"a": {"b": null}}\n', ("-k", "a.b"), ("line 1: no value for --key a.b",)),
        ("x.jsonl", b'{"a": 1}\n{"c": 1}\n', ("-k", "a,b"), ("line 2: no value for --key a,b",)),
        ("x.csv", b"a,b\n1,2\n,3\n", ("-k", "a"), ("x.csv, record 2: no value for --key a",)),
        ("x.csv", b"a,b\n1,2\n3\n", ("-k", "b"), ("record 2: 1 column, but 'b' is number 2",)),
        ("x.csv", b"a,b\n1,2\n", ("-k", "c"), ("x.csv: no column 'c': --key must be one of a, b",)),
        ("x.csv", b'a,b\n1,2\n"3,4\n', ("-k", "a"), ("record 2: a quote is opened and never closed",)),
        ("x.csv", b"", ("-k", "a"), ("x.csv: empty: CSV begins with a line of names",)),
        ("x.txt.gz", gzip.compress(b"a\n" * 9999, mtime=0)[:-9], (), ("x.txt.gz: it ends too early",)),
        ("x.txt.zst", zstandard.compress(b"a\n" * 9999)[:-3], (), ("x.txt.zst: it ends too early",)),
        ("x.txt.gz", b"a\n", (), ("by its name gzip",)),
        ("x.parquet", b"PAR1" + b"x" * 40 + b"PAR1", ("-o", "OUT"), ("not a whole Parquet file",)),
        ("x.parquet", b"", ("-o", "OUT"), ("x.parquet",)),
    ],
)  # fmt: skip
def test_damaged_and_wrong_inputs(tmp_path, name, data, options, words):
    """Each is one line that names file and row; no output appears, and one that was there stays."""
    (tmp_path / name).write_bytes(data)
    out = tmp_path / ("out.parquet" if name.endswith("parquet") else "out.txt")
    out.write_bytes(b"before")
    options = tuple(each for each in options if each not in ("-o", "OUT"))
    failed(run("dedup", tmp_path / name, *options, "-o", out), *words)
    assert out.read_bytes() == b"before"
    assert sorted(os.listdir(tmp_path)) == sorted([name, out.name])


def test_wrong_parquet(tmp_path):
    pq.write_table(pa.table({"a": ["x", None], "b": [1, 2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": ["x"], "b": ["2"]}), tmp_path / "2.parquet")
    out = tmp_path / "out.parquet"
    failed(
        run("dedup", tmp_path / "1.parquet", "-k", "a", "-o", out), "1.parquet, row 2: no value for --key a"
    )
    failed(
        run("dedup", tmp_path / "1.parquet", "-k", "c", "-o", out), "no column 'c': --key must be one of a, b"
    )
    done = run("dedup", tmp_path, "-k", "b", "-o", out)
    failed(done, "2.parquet: its columns or their types differ from those of", "1.parquet")
    one_line(run("dedup", tmp_path / "1.parquet", "-k", "a"), "Parquet is not written to standard output")
    one_line(run("dedup", tmp_path / "1.parquet", "-o", tmp_path / "x.txt"), "x.txt: the inputs are Parquet")
    one_line(run("dedup", tmp_path / "1.parquet", "-U", "-o", out), "-0 and -U are for lines")
    assert not out.exists()


def test_outputs_that_must_not_be_written(tmp_path, lines):
    one_line(run("dedup", lines, "-o", lines), "is one of the inputs: choose another name")
    one_line(run("dedup", tmp_path, "-o", lines), "is one of the inputs")
    one_line(run("dedup", lines, "--dropped", lines), "--dropped", "is one of the inputs")
    one_line(run("dedup", lines, "-o", tmp_path / "x", "--dropped", tmp_path / "x"), "name a file of its own")
    one_line(run("dedup", lines, "-o", tmp_path), "is a directory")
    one_line(run("dedup", lines, "-o", tmp_path / "no" / "x"), "no such folder")
    one_line(run("dedup", lines, "-o", tmp_path / "x.parquet"), "x.parquet: the inputs are lines")
    one_line(run("dedup", tmp_path / "missing"), "missing: no such file")
    one_line(run("dedup", "-", "-", stdin=b""), "standard input (-) can be read only once")
    assert run("dedup", lines, "-o", "/dev/null").status == 0


def test_a_full_disk(tmp_path, lines):
    """A limit on the size of files ends as a full disk does: nothing is left, no temporary file either."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    many = tmp_path / "many.txt"
    many.write_bytes(b"".join(b"%d\n" % i for i in range(100_000)))
    done = spawn("dedup", many, "-o", tmp_path / "out", preexec_fn=limit)
    assert done.returncode == 2
    assert b"out: file too large: raise the limit" in done.stderr
    done = spawn("dedup", many, "-o", "/dev/full")
    assert done.returncode == 2
    assert b"/dev/full: no space left on device" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["lines.txt", "many.txt"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_leave_nothing_behind(tmp_path, number):
    read, write = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "dedup", "-o", tmp_path / "out", "--state", tmp_path / "seen"], stdin=read,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(read)
    os.write(write, b"a\n")
    for _ in range(4000):
        if any(name.startswith(".evenbins-") for name in os.listdir(tmp_path)):
            break
        time.sleep(0.05)
    else:
        pytest.fail("it did not begin")
    process.send_signal(number)
    assert process.wait(60) == (130 if number == signal.SIGINT else 128 + number)
    os.close(write)
    assert os.listdir(tmp_path) == []


def test_a_reader_that_has_gone(tmp_path):
    many = tmp_path / "many.txt"
    many.write_bytes(b"".join(b"%d\n" % i for i in range(200_000)))
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} dedup {many} | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.stdout == b"0\n141\n"


def test_an_error_of_any_stage_ends_all():
    def fail(_: int) -> int:
        raise ValueError("here")

    def numbers():
        yield 1
        raise ValueError("there")

    written: list[int] = []
    with pytest.raises(ValueError, match="here"):
        _pipeline.run_stages(iter(range(1000)), fail, written.append)
    with pytest.raises(ValueError, match="here"):
        _pipeline.run_stages(iter(range(1000)), lambda item: item, fail)
    with pytest.raises(ValueError, match="there"):
        _pipeline.run_stages(numbers(), lambda item: item, written.append)
    written.clear()
    _pipeline.run_stages(iter(range(1000)), lambda item: 2 * item, written.append)
    assert written == [2 * i for i in range(1000)]


@pytest.mark.long
def test_the_suite_of_the_benchmark_runs():
    """Tiny: every contender gives the right rows, and every target finds whom it refers to."""
    from benchmarks import harness
    from benchmarks.dedup import dedup_cases
    from benchmarks.shared import QUICK

    report = harness.run(dedup_cases(replace(QUICK, string_keys=2000, bulk_keys=10_000)), 1)
    assert len(report.results) == 8
    for result in report.results:
        assert result.targets
        assert None not in result.verdicts


# --- query -o ----------------------------------------------------------------------------------------------


@pytest.fixture
def listed(tmp_path) -> Path:
    (tmp_path / "list.txt").write_bytes(b"a\nb\n7\n\n")
    assert run("build", tmp_path / "list.txt", "-o", tmp_path / "f.evb", "--fpr", "1e-12").status == 0
    assert run("build", tmp_path / "list.txt", "-o", tmp_path / "exact.evb", "--exact").status == 0
    return tmp_path / "f.evb"


def test_query_writes_rows(tmp_path, listed):
    out = tmp_path / "out.txt"
    (tmp_path / "in.txt").write_bytes(b"a\nx\nb")
    assert run("query", listed, tmp_path / "in.txt", "-o", out).status == 0
    assert out.read_bytes() == b"a\nb\n"
    assert run("query", listed, tmp_path / "in.txt", "-v", "-o", out).status == 0
    assert out.read_bytes() == b"x\n"
    assert run("query", listed, "-o", out, stdin=b"y\n").status == 1
    assert out.read_bytes() == b""
    done = run("query", listed, tmp_path / "in.txt", "-o", tmp_path / "o.gz", "--json")
    assert (json.loads(done.out)["lines"], json.loads(done.out)["selected"]) == (3, 2)
    assert gzip.decompress((tmp_path / "o.gz").read_bytes()) == b"a\nb\n"
    one_line(run("query", listed, "-o", out, "-c", stdin=b""), "-o writes rows, and -c prints none")
    one_line(run("query", listed, tmp_path / "in.txt", "-o", tmp_path / "in.txt"), "is one of the inputs")


def test_query_writes_csv_and_parquet(tmp_path, listed):
    (tmp_path / "in.csv").write_bytes(b'k,n\na,1\nx,2\n"b",3\n,4\n')
    assert run("query", listed, tmp_path / "in.csv", "--column", "k", "-o", tmp_path / "out.csv").status == 0
    assert (tmp_path / "out.csv").read_bytes() == b'k,n\na,1\n"b",3\n,4\n'
    table = pa.table({"k": ["a", None, "x", "b"], "n": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "in.parquet")
    done = run("query", listed, tmp_path / "in.parquet", "--column", "k", "-o", tmp_path / "out.parquet")
    assert "1 rows are null" in done.err
    assert pq.read_table(tmp_path / "out.parquet").equals(table.take([0, 3]))
    done = run(
        "query", listed, tmp_path / "in.parquet", "-v", "--column", "k", "-o", tmp_path / "out.parquet"
    )
    assert pq.read_table(tmp_path / "out.parquet").equals(table.take([2]))
    one_line(
        run("query", listed, tmp_path / "in.parquet", "-o", tmp_path / "x.parquet"), "--column is missing"
    )
    numbers = pa.table({"k": [7, 8]})
    pq.write_table(numbers, tmp_path / "n.parquet")
    assert run("query", tmp_path / "exact.evb", tmp_path / "n.parquet", "-o", tmp_path / "x.pq").status == 0
    assert pq.read_table(tmp_path / "x.pq")["k"].to_pylist() == [7]
