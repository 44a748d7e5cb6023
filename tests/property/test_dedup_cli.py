"""`evenbins dedup` against a Python set: the same bytes for any format, blocks, threads and memory.

Blocks are a few bytes long, parts on disk a few rows, so that rows cross every border; keys repeat within a
block and far apart. What is kept and what is dropped make up the input together.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import importlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import size

from evenbins import cli
from evenbins.cli import _blocks, _parquet, _passes, _rows, _spill

command_module = importlib.import_module("evenbins.cli.dedup")  # the name in the package is the command
_ROUNDS = size(30, 400)
_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files are synced: in memory that is cheap
_TEXT = st.sampled_from(["", "a", "b", "ab", " a", "A", "é", "x" * 70, 'q"q', "line\nbreak", "c,d", "\x00"])
_FIELD = _TEXT.filter(lambda text: "\x00" not in text)
_VALUE = st.one_of(
    _TEXT, st.integers(-3, 3), st.sampled_from([0.5, 1.0, True, False, None, [1], {"a": 1}, 2**70])
)
_MODES = st.sampled_from([(), ("--exact",), ("--memory", "64M"), ("--threads", "3")])


def dedup(*args: object, block: int = 64) -> None:
    """Run the command with tiny blocks; --memory 64M always leads to the disk."""
    small: dict[tuple[Any, str], int] = {
        (_rows, "ROW_BLOCK_BYTES"): block, (_blocks, "BLOCK_BYTES"): block,
        (_passes, "_SMALL_BLOCK_BYTES"): block, (_parquet, "_BATCH_ROWS"): 1 + block // 16,
        (_parquet, "_GROUP_ROWS"): 7, (_spill, "_GATHERED"): 5, (_spill, "_ROWS"): 6,
        (_spill, "_LEAST_ROWS"): 3, (_spill, "_ROW_BYTES"): 1 << 21, (_spill, "_RECENT"): 4,
        (_spill, "_BITS"): 2, (_spill, "_PARTS"): 4,
        (command_module, "_OWN_BYTES"): 64 << 20,
    }  # fmt: skip
    with contextlib.ExitStack() as patches:
        for (place, name), value in small.items():
            patches.enter_context(mock.patch.object(place, name, value))
        streams = patches.enter_context(CliRunner().isolation())
        with pytest.raises(SystemExit) as ended:
            cli.main([str(each) for each in args])
        assert ended.value.code in (0, None), streams[1].getvalue().decode()


def first_rows(rows: list[Any], keys: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the rows with new keys, and the others: the model."""
    seen: set[Any] = set()
    kept, dropped = [], []
    for row, key in zip(rows, keys, strict=True):
        (dropped if key in seen else kept).append(row)
        seen.add(key)
    return kept, dropped


@settings(max_examples=_ROUNDS, deadline=None)
@given(
    lines=st.lists(st.one_of(st.sampled_from([b"", b"a", b"b", b"\xff", b"a\r", b"y" * 100]),
    st.binary(max_size=3)),
                   max_size=60),
    last=st.booleans(), null=st.booleans(), mode=_MODES, block=st.sampled_from([8, 64, 1 << 20]),
    packed=st.booleans(), cut=st.integers(0, 60),
)  # fmt: skip
def test_lines(lines, last, null, mode, block, packed, cut) -> None:
    """With -U the bytes are those of awk '!s[$0]++'."""
    end = b"\0" if null else b"\n"
    lines = [line.replace(end, b".") for line in lines]
    with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
        folder = Path(name)
        halves = [lines[:cut], lines[cut:]]
        for i, half in enumerate(halves):
            data = end.join(half) + end * (bool(half) and (last or half[-1:] == [b""]))
            suffix = ".txt.gz" if packed else ".txt"
            (folder / f"{i}{suffix}").write_bytes(gzip.compress(data) if packed else data)
        out, dropped = folder / "out", folder / "dropped"
        inputs = sorted(folder.glob("*.txt*"))
        dedup("dedup", "-U" if not packed else "--nulls=keep", *(["-0"] if null else []), *inputs, "-o", out,
        "--dropped", dropped,
              *mode, block=block)  # fmt: skip
        keys = [line.removesuffix(b"\r") if packed and not null else line for line in lines]
        kept, others = first_rows(lines, keys)
        assert out.read_bytes() == b"".join(line + end for line in kept)
        assert dropped.read_bytes() == b"".join(line + end for line in others)
        assert len(os.listdir(folder)) == 4


def canonical(value: Any) -> Any:
    """Return a value of JSON so that equal ones are equal in Python: bool apart from numbers."""
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int | float):
        return "number", value
    return type(value).__name__, json.dumps(value, sort_keys=True)


@settings(max_examples=_ROUNDS, deadline=None)
@given(
    rows=st.lists(st.tuples(_VALUE, _VALUE, st.integers(0, 9)), max_size=40), several=st.booleans(),
    mode=_MODES,
    block=st.sampled_from([32, 1 << 20]), blank=st.booleans(), nulls=st.sampled_from(["keep", "one"]),
    fast=st.booleans(),
)  # fmt: skip
def test_jsonl(rows, several, mode, block, blank, nulls, fast) -> None:
    """One field or two, nested; values of every type; empty lines are no rows."""
    texts = [json.dumps({"i": i, "key": a, "in": {"deep": b}}).encode() for a, b, i in rows]
    if several:
        keys = [(canonical(a), canonical(b)) for a, b, _ in rows]
        null = [a is None and b is None for a, b, _ in rows]
    else:
        keys = [canonical(a) for a, _, _ in rows]
        null = [a is None for a, _, _ in rows]
    if nulls == "keep":
        keys = [
            ("unique", n) if is_null else key for n, (key, is_null) in enumerate(zip(keys, null, strict=True))
        ]
    with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
        folder = Path(name)
        (folder / "in.jsonl").write_bytes(b"".join(text + b"\n" + b" \n" * blank for text in texts))
        fields = ["--key", "key,in.deep"] if several else ["-k", "key"]
        hidden = {} if fast else {"orjson": None}
        with mock.patch.dict("sys.modules", hidden):
            dedup("dedup", folder / "in.jsonl", "-o", folder / "out.jsonl", "--dropped", folder /
            "dropped.jsonl",
                  *fields, "--nulls", nulls, *mode, block=block)  # fmt: skip
        kept, others = first_rows(texts, keys)
        assert (folder / "out.jsonl").read_bytes() == b"".join(text + b"\n" for text in kept)
        assert (folder / "dropped.jsonl").read_bytes() == b"".join(text + b"\n" for text in others)


@settings(max_examples=_ROUNDS, deadline=None)
@given(
    rows=st.lists(st.tuples(_FIELD, _FIELD), max_size=40),
    fields=st.sampled_from([("key",), ("key", "other"), ()]), mode=_MODES, block=st.sampled_from([40, 1 <<
    20]), crlf=st.booleans(), files=st.integers(1, 3), nulls=st.sampled_from(["keep", "one"]),
)  # fmt: skip
def test_csv(rows, fields, mode, block, crlf, files, nulls) -> None:
    """Quoted fields with newlines and delimiters; the line of names once; an empty field is null."""

    def text(*values: str) -> bytes:
        page = io.StringIO()
        csv.writer(page, lineterminator="\r\n" if crlf else "\n").writerow(values)
        return page.getvalue().encode()

    records = [text(key, "x", other) for key, other in rows]
    head = text("key", "mid,dle", "other")
    if fields:
        keys: list[Any] = [tuple(value for value in row[: len(fields)]) for row in rows]
        if nulls == "keep":
            keys = [key if any(key) else ("unique", n) for n, key in enumerate(keys)]
    else:
        keys = list(records)
    with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
        folder = Path(name)
        step = -(-len(records) // files) or 1
        for i in range(files):
            (folder / f"{i}.csv").write_bytes(head + b"".join(records[i * step : (i + 1) * step]))
        chosen = ["--key", ",".join(fields)] if fields else []
        dedup("dedup", folder, "-o", folder / "out", "--dropped", folder / "dropped", *chosen, "--nulls",
        nulls,
              *mode, block=block)  # fmt: skip
        kept, others = first_rows(records, keys)
        assert (folder / "out").read_bytes() == head + b"".join(kept)
        assert (folder / "dropped").read_bytes() == head + b"".join(others)


@settings(max_examples=_ROUNDS, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["a", "b", "", None]), st.sampled_from([1, 2, None]), st.sampled_from([0.5,
        1.0, None])), max_size=40,
    ),
    fields=st.sampled_from([("text",), ("number",), ("real",), ("text", "number"), ()]), mode=_MODES,
    block=st.sampled_from([16, 1 << 20]), files=st.integers(1, 2), nulls=st.sampled_from(["keep", "one"]),
)  # fmt: skip
def test_parquet(rows, fields, mode, block, files, nulls) -> None:
    """Text, integers, floats, several columns, whole rows; all columns and the schema stay."""
    names = ["text", "number", "real"]
    schema = pa.schema([("text", pa.string()), ("number", pa.int64()), ("real", pa.float64())])
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=schema)
    wanted = [names.index(each) for each in fields] or [0, 1, 2]
    keys: list[Any] = [tuple(row[i] for i in wanted) for row in rows]
    if fields and nulls == "keep":
        keys = [("unique", n) if set(key) == {None} else key for n, key in enumerate(keys)]
    with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
        folder = Path(name)
        step = -(-len(rows) // files) or 1
        for i in range(files):
            pq.write_table(table.slice(i * step, step), folder / f"{i}.parquet", row_group_size=9)
        chosen = ["--key", ",".join(fields)] if fields else []
        dedup("dedup", folder / "*.parquet", "-o", folder / "out.pq", "--dropped", folder / "dropped.pq",
        *chosen,
              "--nulls", nulls, *mode, block=block)  # fmt: skip
        kept, others = first_rows(rows, keys)
        found, left = pq.read_table(folder / "out.pq"), pq.read_table(folder / "dropped.pq")
        assert [tuple(row.values()) for row in found.to_pylist()] == kept
        assert [tuple(row.values()) for row in left.to_pylist()] == others
        assert found.schema.equals(schema)


@settings(max_examples=_ROUNDS, deadline=None)
@given(
    batches=st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), min_size=1, max_size=4),
    exact=st.booleans(),
)  # fmt: skip
def test_a_state_goes_on_where_it_ended(batches, exact) -> None:
    """The outputs of several runs together are those of one run over everything."""
    with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
        folder = Path(name)
        written = b""
        for i, batch in enumerate(batches):
            (folder / "in.txt").write_text("".join(f"{each}\n" for each in batch))
            dedup("dedup", folder / "in.txt", "-o", folder / "out", "--state", folder / "seen.evb",
                  *(["--exact"] if exact and not i else []))  # fmt: skip
            written += (folder / "out").read_bytes()
        everything = [each for batch in batches for each in batch]
        assert written.decode().split() == list(dict.fromkeys(everything))
        assert sorted(os.listdir(folder)) == ["in.txt", "out", "seen.evb"]
