"""Traces: text and Parquet, packed or not. A trace, or a TraceError that names the file."""

from __future__ import annotations

import io
import os
import tempfile
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from inputs import content
from provider import Provider

from evenbins.study.traces import TraceError, read_trace

_FOLDER = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
_COLUMNS = [None, None, None, 0, 1, 2, "time", "url", "digest", "b"]
_FORMATS = [None, None, None, "s", "ms", "us", "ns", "iso", "%Y-%m-%d", "%d/%b/%Y:%H:%M:%S %z", "%"]
_TIMES: list[Any] = [
    [1, 2, 3], [1.5, float("nan"), 2.0], ["2020-01-01", "x", ""], [None, 1, 2], [2**62, 1, -(2**62)],
    [b"a", b"b", b"c"],
]  # fmt: skip


def _parquet(number: int) -> bytes:
    file = io.BytesIO()
    table = pyarrow.table({"time": _TIMES[number], "url": ["a", None, "c"]})
    pyarrow.parquet.write_table(table, file, compression="NONE")
    return file.getvalue()


_PARQUET = [_parquet(number) for number in range(len(_TIMES))]


def one(data: bytes) -> None:
    """Read one input as a trace."""
    given = Provider(data)
    suffix = (".csv", ".tsv", ".csv.gz", ".csv.zst", ".parquet")[given.below(5) if given.below(4) == 0 else 0]
    path = os.path.join(_FOLDER.name, "trace" + suffix)
    time, key = _COLUMNS[given.below(len(_COLUMNS))], _COLUMNS[given.below(len(_COLUMNS))]
    format = _FORMATS[given.below(len(_FORMATS))]
    if suffix == ".parquet":
        written = bytearray(_PARQUET[given.below(len(_PARQUET))])
        for _ in range(given.below(4)):
            written[given.below(65536) % len(written)] ^= given.below(256)
    else:
        written = bytearray(
            given.rest() if suffix in (".csv", ".tsv") else content(given, with_parquet=False)
        )
    with open(path, "wb") as file:
        file.write(written)
    try:
        trace = read_trace(path, time_column=time, key_column=key, time_format=format)
    except TraceError as error:
        assert "trace" in str(error)
        return
    assert len(trace) == len(trace.digests) > 0
    assert (np.diff(trace.times) >= 0).all(), "a trace is not sorted"
