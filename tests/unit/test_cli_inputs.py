"""What the command line reads: compressed files, columns of CSV and Parquet, any newline; what it refuses.

The exact list is held against the system's grep: `query` of a file of `build --exact` prints, byte for
byte, what `grep -F -x -f LIST` prints.
"""

import contextlib
import csv
import gzip
import io
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli import build, one_line, run

import evenbins
from evenbins import MultilevelTable, _compressed, _core
from evenbins.cli import _blocks, _inputs

# --- exact: grep is the model --------------------------------------------------------------------------

_LINE = st.one_of(
    st.sampled_from([b"", b"a", b"b", b"ab", b" a", b"a ", b"\xff", b"\xc3\xa9", b"a\r", b"\r"]),
    st.binary(max_size=6),
)


def grep(folder: Path, patterns: bytes, lines: bytes, *flags: str) -> tuple[int, bytes]:
    (folder / "patterns").write_bytes(patterns)
    done = subprocess.run(
        ["grep", "-a", "-F", "-x", "-f", folder / "patterns", *flags],
        input=lines, capture_output=True, env={**os.environ, "LC_ALL": "C"}, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@settings(max_examples=60, deadline=None)
@given(
    listed=st.lists(_LINE, max_size=12), asked=st.lists(_LINE, max_size=12), last=st.booleans(),
    null=st.booleans(), flag=st.sampled_from([(), ("-v",), ("-c",), ("-q",), ("-v", "-c")]),
)  # fmt: skip
def test_an_exact_list_answers_as_grep(tmp_path_factory, listed, asked, last, null, flag):
    """Empty and repeated lines, no last newline, NULs, \\r, bytes that are no text, an empty list."""
    folder = tmp_path_factory.mktemp("grep")
    end, other = (b"\0", b"\n") if null else (b"\n", b"\0")
    drop = bytes.maketrans(
        end + (other if null else b""), b"." * (2 if null else 1)
    )  # a pattern holds no newline
    listed, asked = ([line.translate(drop) for line in lines] for lines in (listed, asked + listed[:4]))
    keys, lines = (end.join([*each, b""]) if each else b"" for each in (listed, asked))
    if last and lines:
        lines += b"last"
    more = ["-U", "-0"] if null else ["-U"]
    (folder / "list").write_bytes(keys)
    assert run("build", folder / "list", "-o", folder / "f", "--exact", *more).status == 0
    done = run("query", folder / "f", *flag, *more, stdin=lines)
    if flag == ("-c",) and not keys:  # GNU grep ends at once, and does not print its 0
        assert (done.status, done.out) == (1, b"0\n")
        return
    patterns = keys.replace(b"\0", b"\n") if null else keys
    assert (done.status, done.out) == grep(folder, patterns, lines, *flag, *(["-z"] if null else []))
    assert done.err == ""


def test_an_exact_list_of_many_lines(tmp_path):
    rng = random.Random(1)
    keys = b"".join(b"%d\n" % rng.randrange(50_000) for _ in range(30_000))
    lines = b"".join(b"%d\n" % i for i in range(50_000))
    (tmp_path / "list").write_bytes(keys)
    report = json.loads(run("build", tmp_path / "list", "-o", tmp_path / "f", "--exact", "--json").out)
    assert report["kind"] == "exact set"
    assert (report["lines"], report["stats"]["keys"]) == (30_000, len(set(keys.split())))
    for flag in ([], ["-v"]):
        assert (run("query", tmp_path / "f", *flag, stdin=lines).out) == grep(tmp_path, keys, lines, *flag)[1]
    table = MultilevelTable.open(tmp_path / "f")
    assert table.key_dtype == "digest"
    assert b"%d" % int(keys.split()[0]) in table


def test_an_exact_list_drops_carriage_returns_unless_told_not_to(tmp_path):
    (tmp_path / "list").write_bytes(b"a\r\nb\nc\r\r\n")
    assert run("build", tmp_path / "list", "-o", tmp_path / "f", "--exact").status == 0
    assert run("query", tmp_path / "f", stdin=b"a\nb\r\nc\nc\r\r\n").out == b"a\nb\r\nc\r\r\n"
    assert run("build", tmp_path / "list", "-o", tmp_path / "f", "--exact", "--binary").status == 0
    assert run("query", tmp_path / "f", "-U", stdin=b"a\nb\r\na\r\nb\n").out == b"a\r\nb\n"


# --- lines ---------------------------------------------------------------------------------------------


def test_selected_lines_are_those_of_python():
    rng = np.random.default_rng(1)
    for count in (0, 1, 2, 50, 1000):
        lines = [b"x" * int(n) + b"\n" for n in rng.integers(0, 9, count)]
        block = b"".join(lines)
        mask = rng.random(count) < 0.5
        assert _core.count_byte(block, "\n") == count
        for invert in (False, True):
            expected = b"".join(line for line, yes in zip(lines, mask, strict=True) if yes != invert)
            assert _core.select_lines(block, "\n", mask, invert) == expected
    for wrong in (1, 3):
        with pytest.raises(ValueError, match="one answer for each line"):
            _core.select_lines(b"a\nb\n", "\n", np.ones(wrong, bool), False)


def test_pieces_outside_their_buffer_are_refused():
    for offsets in ([], [0, 4], [2, 1]):
        with pytest.raises(ValueError, match="offsets must rise"):
            _core.span_keys(b"abc", np.array(offsets, np.uint64))
    with pytest.raises(ValueError, match="within the block"):
        _core.select_spans(
            b"abc", np.array([0], np.uint64), np.array([4], np.uint64), np.ones(1, bool), False
        )


def test_offsets_that_change_after_they_were_checked_change_nothing():
    """They were used where they lay: an offset changed in between led out of the buffer."""
    offsets = np.array([0, 1, 3], np.uint64)
    keys = _core.span_keys(b"abc", offsets)
    offsets[1:] = 2**40
    assert _core.digest_from(keys, 0).tolist() == [evenbins.digest("a"), evenbins.digest("bc")]


def test_carriage_returns_alone_are_one_line_and_told(tmp_path):
    (tmp_path / "mac").write_bytes(b"a\rb\rc\r")
    file = tmp_path / "f"
    done = run("build", tmp_path / "mac", "-o", file, "--json")
    assert (done.status, json.loads(done.out)["lines"]) == (0, 1)
    assert "warning" in done.err
    assert "tr '\\r' '\\n'" in done.err
    assert "tr '\\r' '\\n'" in run("query", file, tmp_path / "mac").err
    assert run("query", file, tmp_path / "mac", "-U").err == ""
    assert run("query", file, stdin=b"a\r\n").err == ""


# --- compressed ----------------------------------------------------------------------------------------


def packed(format: str, data: bytes) -> bytes:
    return gzip.compress(data) if format == "gz" else zstandard.compress(data)


@pytest.mark.parametrize("format", ["gz", "zst"])
@pytest.mark.parametrize("name", ["list.SUFFIX", "list", "-"])
def test_compressed_lines_by_name_by_content_and_by_pipe(tmp_path, format, name):
    data = b"".join(b"%d\n" % i for i in range(2000))
    both = packed(format, data[:5000]) + packed(format, data[5000:])  # two members are one file
    plain = build(tmp_path, data)
    stdin = both if name == "-" else b""
    if name != "-":
        name = str(tmp_path / name.replace("SUFFIX", format))
        Path(name).write_bytes(both)
    assert run("build", name, "-o", tmp_path / "f", "--fpr", "1e-12", stdin=stdin).status == 0
    assert (tmp_path / "f").read_bytes() == plain.read_bytes()
    assert run("query", plain, name, stdin=stdin).out == data
    assert run("query", plain, name, "-U", "-c", stdin=stdin).status == 1  # not unpacked


@pytest.mark.parametrize("format", ["gz", "zst"])
def test_damaged_archives(tmp_path, format, hundred):
    whole = packed(format, random.Random(1).randbytes(50_000))
    cases = [whole[:-9], whole[:20], whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:]]
    if format == "zst":  # without a check sum a flipped bit may pass; the tool itself writes one
        cases[2] = whole[:6] + b"\xff\xff" + whole[8:]
    for data in cases:
        (tmp_path / "x").write_bytes(data)
        done = run("query", hundred, tmp_path / "x", "-c")
        one_line(done, str(tmp_path / "x"), "gzip -t" if format == "gz" else "zstd -t")
        one_line(run("build", tmp_path / "x", "-o", tmp_path / "f"), "-t")
    (tmp_path / f"x.{format}").write_bytes(b"plain text\n")
    one_line(run("query", hundred, tmp_path / f"x.{format}"), "by its name", "rename it")
    (tmp_path / f"x.{format}").write_bytes(b"")
    assert run("query", hundred, tmp_path / f"x.{format}").status == 1
    assert not (tmp_path / "f").exists()


@pytest.fixture
def hundred(tmp_path):
    return build(tmp_path, b"".join(b"%d\n" % i for i in range(100)))


@pytest.mark.parametrize(
    "hidden", [("zstandard", "compression.zstd"), ("zstandard", "compression.zstd", "pyarrow")]
)
def test_zstd_by_whatever_there_is(tmp_path, hundred, hidden):
    (tmp_path / "x.zst").write_bytes(packed("zst", b"5\n500\n" * 100_000))
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({hidden!r}));"
        f"from evenbins.cli import main; main(['query', '-c', {str(hundred)!r}, {str(tmp_path / 'x.zst')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "pyarrow" in hidden:
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "pip install zstandard" in done.stderr
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, "100000\n", "")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, hundred):
    (tmp_path / "x").write_bytes(b"PAR1....PAR1")
    code = (
        "import sys; sys.modules['pyarrow'] = None;"
        f"from evenbins.cli import main; main(['query', {str(hundred)!r}, {str(tmp_path / 'x')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "pip install 'evenbins[arrow]'" in done.stderr


def test_first_bytes_that_come_one_by_one():
    assert _compressed.may_become(b"")
    assert _compressed.may_become(b"\x1f")
    assert not _compressed.may_become(b"a")
    assert _compressed.format_of(b"\x1f\x8b\x08\0") == "gzip"
    assert _compressed.format_of(b"text") is None


# --- CSV -----------------------------------------------------------------------------------------------


def csv_of(rows: list[list[str]], **options: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, **options).writerows(rows)
    return text.getvalue().encode()


@settings(max_examples=60, deadline=None)
@given(
    fields=st.lists(st.lists(st.text("ab\",;\n\r\t é", max_size=5), min_size=3, max_size=3), max_size=8),
    column=st.integers(0, 2), delimiter=st.sampled_from(",;\t"), end=st.sampled_from(["\n", "\r\n"]),
    size=st.integers(1, 40),
)  # fmt: skip
def test_columns_are_those_that_pythons_reader_gives(tmp_path_factory, fields, column, delimiter, end, size):
    """Quoted newlines, doubled quotes, any delimiter and newline, blocks that end anywhere."""
    folder = tmp_path_factory.mktemp("csv")
    names = ["x", "y y", "z"]
    data = csv_of([names, *fields], delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    (folder / "t.csv").write_bytes(data)
    how = _inputs.How(column=names[column])
    with pytest.MonkeyPatch.context() as patch:
        for module in (_inputs, _blocks):
            patch.setattr(module, "BLOCK_BYTES", size)
        batches = list(_inputs.Input(str(folder / "t.csv"), how).batches())
    found = [
        each.fields.data[int(start) : int(stop)]
        for each in batches
        for start, stop in zip(each.fields.offsets, each.fields.offsets[1:], strict=False)
    ]
    assert found == [row[column].encode() for row in fields]
    records = b"".join(each.select(np.ones(len(each), bool), invert=False) for each in batches)
    assert (
        records
        == data[len(csv_of([names], delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)) :]
    )


def test_query_prints_records_as_they_came(tmp_path):
    (tmp_path / "t.csv").write_bytes(
        b'\xef\xbb\xbfid,name\r\n1,"a ""b"""\r\n\n2,"two\nlines"\n3,\xff\n4,a "b"'
    )
    assert (
        run("build", tmp_path / "t.csv", "-o", tmp_path / "f", "--column", "name", "--fpr", "1e-12").status
        == 0
    )
    f = evenbins.load(tmp_path / "f")
    assert f.plan.keys == 4
    assert all(key in f for key in (b'a "b"', b"two\nlines", b"\xff"))
    (tmp_path / "q.csv").write_bytes(b'name;n\n"two\nlines";1\nthree;2\n"a ""b""";3')
    done = run("query", tmp_path / "f", tmp_path / "q.csv", "--column", "name")
    assert (done.status, done.out, done.err) == (0, b'"two\nlines";1\n"a ""b""";3\n', "")
    assert run("query", tmp_path / "f", tmp_path / "q.csv", "--column", "name", "-v").out == b"three;2\n"
    assert run("query", tmp_path / "f", "--column", "name", "-c", stdin=b"name\n\xff\n").out == b"1\n"


# --- Parquet -------------------------------------------------------------------------------------------


def test_parquet_columns(tmp_path):
    table = pa.table({"url": ["a", None, "b", "c"], "id": [1, 2, 3, 4], "raw": [b"a", b"\xff", b"", b"c"]})
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "abc").write_bytes(b"a\nb\nc\n")
    done = run("build", tmp_path / "t.parquet", "-o", tmp_path / "f", "--column", "url", "--json")
    assert (done.status, json.loads(done.out)["lines"], json.loads(done.out)["nulls"]) == (0, 3, 1)
    assert "1 rows are null" in done.err
    assert run("build", tmp_path / "abc", "-o", tmp_path / "g").status == 0
    assert (tmp_path / "f").read_bytes() == (tmp_path / "g").read_bytes()
    assert run("query", tmp_path / "f", tmp_path / "t.parquet", "--column", "raw").out == b"a\nc\n"
    assert run("query", tmp_path / "f", tmp_path / "t.parquet", "--column", "raw", "-v").out == b"\xff\n\n"
    assert run("build", tmp_path / "t.parquet", "-o", tmp_path / "f", "--column", "id").status == 0
    assert 3 in evenbins.load(tmp_path / "f")  # integers stay integers
    assert run("query", tmp_path / "f", tmp_path / "t.parquet", "--column", "id").out == b"1\n2\n3\n4\n"
    assert run("build", tmp_path / "t.parquet", "-o", tmp_path / "f", "--column", "id", "--exact").status == 0
    assert run("query", tmp_path / "f", stdin=b"3\n5\n").out == b"3\n"  # in an exact list they are text
    assert run("query", tmp_path / "f", tmp_path / "t.parquet", "--column", "id", "-c").out == b"4\n"
    with open(tmp_path / "t.parquet", "rb") as file:  # from a pipe, through a copy
        data = file.read()
    assert run("build", "-", "-o", tmp_path / "f", "--column", "url", stdin=data).status == 0
    assert (tmp_path / "f").read_bytes() == (tmp_path / "g").read_bytes()


def test_parquet_of_one_column_needs_no_name(tmp_path, hundred):
    pq.write_table(pa.table({"n": ["5", "500"]}), tmp_path / "t")
    assert run("query", hundred, tmp_path / "t").out == b"5\n"


# --- pipes with names, and names that say what is in a file -----------------------------------------------


@contextlib.contextmanager
def pipe_of(data: bytes, path: Path | None = None) -> Iterator[str]:
    """Yield the name of a pipe with the data: a FIFO at `path`, or /dev/fd/N, as of <(command)."""
    if path is None:
        source, sink = os.pipe()
    else:
        os.mkfifo(path)

    def feed() -> None:
        with open(path if path is not None else sink, "wb") as file, contextlib.suppress(BrokenPipeError):
            file.write(data)

    writer = threading.Thread(target=feed)
    writer.start()
    try:
        yield str(path) if path is not None else f"/dev/fd/{source}"
    finally:
        if path is None:
            os.close(source)
        else:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))  # if nobody has read it
        writer.join()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("options", [[], ["--exact"], ["--capacity", "5000"]], ids=str)
def test_build_and_query_read_pipes_of_any_name(tmp_path, named, options):
    lines = b"".join(b"%d\n" % i for i in range(5000))
    (tmp_path / "lines").write_bytes(lines)
    assert run("build", tmp_path / "lines", "-o", tmp_path / "f", *options).status == 0
    with pipe_of(lines, tmp_path / "p" if named else None) as name:
        done = run("build", name, "-o", tmp_path / "g", *options)
    assert (done.status, (tmp_path / "f").read_bytes()) == (0, (tmp_path / "g").read_bytes()), done.err
    with pipe_of(b"17\nx\n", tmp_path / "q" if named else None) as name:
        assert run("query", tmp_path / "g", name).out == b"17\n"
    with pipe_of(gzip.compress(lines), tmp_path / "p.gz" if named else None) as name:
        assert run("build", name, "-o", tmp_path / "g", *options).status == 0
    assert (tmp_path / "f").read_bytes() == (tmp_path / "g").read_bytes()


def test_several_pipes_and_dev_stdin(tmp_path):
    """By the shell itself: `build <(seq 500) <(seq 501 1000)`, and `… | build /dev/stdin`."""
    command = f"{sys.executable} -m evenbins"
    for line in (
        f"{command} build <(seq 500) <(seq 501 1000) -o a",
        f"seq 1000 | {command} build /dev/stdin -o b",
    ):
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, "1_000 lines added" in done.stderr) == (0, True), done.stderr
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_pipe_cannot_be_named_twice(tmp_path):
    os.mkfifo(tmp_path / "p")
    one_line(run("build", tmp_path / "p", tmp_path / "p", "-o", tmp_path / "f"), "read only once")


def test_parquet_from_a_pipe(tmp_path, hundred):
    pq.write_table(pa.table({"n": ["5", "500"]}), tmp_path / "t.parquet")
    data = (tmp_path / "t.parquet").read_bytes()
    for path in (None, tmp_path / "p", tmp_path / "q.parquet"):
        with pipe_of(data, path) as name:
            assert run("query", hundred, name).out == b"5\n"
    assert run("query", hundred, stdin=data).out == b"5\n"
    with pipe_of(data, tmp_path / "r.parquet") as name:
        assert run("build", name, "-o", tmp_path / "f").status == 0
    assert "500" in evenbins.load(tmp_path / "f")


PARTS = b"PAR1\nPAR1234\nPAR1"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("parts.txt", PARTS),
        ("parts.txt", b"PAR1"),
        ("parts.csv", PARTS),
        ("parts", PARTS + b"\n"),
        ("parts", b"PAR1"),
    ],
)
def test_a_text_whose_first_key_is_par1_is_a_text(tmp_path, name, data):
    """The name decides; without one, both ends of the file."""
    (tmp_path / name).write_bytes(data)
    assert run("build", tmp_path / name, "-o", tmp_path / "f", "--exact").status == 0
    assert run("query", tmp_path / "f", tmp_path / name).out == data.rstrip(b"\n") + b"\n"
    assert run("query", tmp_path / "f", stdin=b"PAR1\n").out == b"PAR1\n"
    with pipe_of(data, tmp_path / ("pipe-" + name)) as pipe:
        assert run("query", tmp_path / "f", pipe, "-c").out == b"%d\n" % len(data.split())


def test_the_column_of_csv_may_be_called_par1(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"PAR1,b\nx,y\n")
    assert run("build", tmp_path / "t.csv", "-o", tmp_path / "f", "--column", "PAR1", "--exact").status == 0
    assert run("query", tmp_path / "f", stdin=b"x\ny\n").out == b"x\n"


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x", b"PAR1\x15\0cut short", ["not a whole Parquet file", "-U"]),
        ("x", b"PAR1 and, at its end, PAR1", ["not a whole Parquet file", "-U"]),
        ("x.txt", b"PAR1\x15\0....PAR1", ["by its name text", "-U"]),
        ("x.parquet", b"a\nb\n", ["by its name parquet", "-U"]),
        ("x.gz", b"a\nb\n", ["by its name gzip", "-U"]),
        ("x", b"\x1f\x8b\x08 and more", ["gzip -t", "-U"]),
        ("x", b"\x28\xb5\x2f\xfd and more", ["zstd -t", "-U"]),
    ],
)
def test_content_that_only_begins_as_a_format_names_the_way_out(tmp_path, hundred, name, data, words):
    (tmp_path / name).write_bytes(data)
    one_line(run("query", hundred, tmp_path / name), *words)
    one_line(run("build", tmp_path / name, "-o", tmp_path / "f"), *words)
    assert run("build", tmp_path / name, "-o", tmp_path / "f", "-U").status == 0
    assert run("query", tmp_path / "f", tmp_path / name, "-U", "-v").status == 1


@pytest.mark.parametrize(
    ("name", "data", "options", "words"),
    [
        ("t.csv", b"a,b\n1,2\n", ["--column", "c"], ["no column 'c'", "one of a, b"]),
        ("t.csv", b"a,b,a\n1,2,3\n", ["--column", "a"], ["2 columns 'a'", "rename all but one"]),
        ("t.csv", b"a,b\nx,y\n3\n", ["--column", "b"], ["record 2", "1 column", "number 2"]),
        ("t.csv", b'a,b\n1,"2\n3,4\n', ["--column", "b"], ["record 1", "never closed"]),
        ("t.csv", b"", ["--column", "b"], ["empty", "line of names"]),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), ["--column", "b"], ["UTF-16", "iconv"]),
        ("t.csv", b"a,b\n1,2\n", ["--column", "b", "-U"], ["-U is for lines"]),
        ("t.parquet", b"a,b\n1,2\n", ["--column", "b"], ["by its name parquet"]),
        ("t.parquet", b"PAR1xxxxxxxxPAR1", ["--column", "b"], ["not a whole Parquet file"]),
        ("t.parquet", None, ["--column", "c"], ["no column 'c'", "url, x"]),
        ("t.parquet", None, [], ["--column is missing", "url, x"]),
        ("t.parquet", None, ["--column", "x"], ["column 'x' holds double", "another column"]),
    ],
)
def test_columns_that_are_not_there(tmp_path, hundred, name, data, options, words):
    if data is None:
        pq.write_table(pa.table({"url": ["a"], "x": [1.5]}), tmp_path / name)
    else:
        (tmp_path / name).write_bytes(data)
    done = run("query", hundred, tmp_path / name, *options)
    one_line(done, *words)
    one_line(run("build", tmp_path / name, "-o", tmp_path / "f", *options), *words)
    assert not (tmp_path / "f").exists()


def test_query_json(hundred, tmp_path):
    done = run("query", hundred, "--json", stdin=b"1\n2\nx\n")
    assert json.loads(done.out) == {
        "file": str(hundred), "exact": False, "lines": 3, "selected": 2, "nulls": 0,
    }  # fmt: skip
    assert run("query", hundred, "--json", stdin=b"x\n").status == 1
    one_line(run("query", hundred, "--json", "-c"), "--json prints counts")
