"""The command line's readers: lines, CSV, gzip, zstd, Parquet, whole or damaged.

One line that names the input (a ClickException, CompressedError), or keys: as many as `count` said, each
batch selected by a mask
gives its records back byte for byte.
"""

from __future__ import annotations

import gzip
import io
import os
import tempfile
from typing import Any

import click
import numpy as np
import pyarrow
import pyarrow.parquet
import zstandard
from provider import Provider

import evenbins
from evenbins._compressed import CompressedError
from evenbins.cli import _inputs

_FOLDER = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
_SUFFIXES = ["", ".txt", ".csv", ".gz", ".zst", ".parquet"]
_COLUMNS = [None, None, "a", "b", "", "\ud800", "x,y"]
_TABLES: list[dict[str, Any]] = [
    {"a": ["x", "y", None, "z"]}, {"a": [1, 2, 3], "b": ["p", "q", "r"]}, {"a": [1.5]}, {"a": [b"x"] * 50},
]  # fmt: skip


def _parquet(number: int) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(_TABLES[number]), file, compression="NONE")
    return file.getvalue()


_PARQUET = [_parquet(number) for number in range(len(_TABLES))]


def content(given: Provider, with_parquet: bool = True) -> bytes:
    """Choose what is in a file: the input itself, packed, packed and damaged, a Parquet file that was
    patched."""
    how = given.below(8)
    patches = [(given.below(65536), given.below(256)) for _ in range(given.below(4))] if how >= 4 else []
    if how == 7 and with_parquet:
        found = _PARQUET[given.below(len(_PARQUET))]
    elif how in (1, 4):
        found = gzip.compress(given.rest(), 1, mtime=0)
    elif how in (2, 5):
        found = zstandard.compress(given.rest(), 1)
    else:
        return given.rest()
    changed = bytearray(found)
    for place, value in patches:
        changed[place % len(changed)] ^= value
    return bytes(changed)


def one(data: bytes) -> None:
    """Read one input as a file."""
    given = Provider(data)
    path = os.path.join(_FOLDER.name, "input" + _SUFFIXES[given.below(len(_SUFFIXES))])
    separator = (b"\n", b"\n", b"\0", b",")[given.below(4)]
    how = _inputs.How(separator, given.below(4) == 0, _COLUMNS[given.below(len(_COLUMNS))])
    if how.binary and how.column is not None:
        how.column = None
    with open(path, "wb") as file:
        file.write(content(given))
    try:
        opened = _inputs.open_inputs([path], how)[0]
        keys = opened.count(lambda _: None)
        seen = 0
        for batch in opened.batches():
            digests = evenbins.digest_many(batch.keys(as_text=given.below(2) == 0))
            assert len(digests) == len(batch), "a batch has other keys than it says"
            seen += len(batch)
            every = np.ones(len(batch), bool)
            assert batch.select(every, invert=True) == b""
            whole = batch.select(every, invert=False)
            if isinstance(batch, _inputs.LineBatch):
                assert whole == bytes(batch.block)
        assert seen == keys, "counted and read, two numbers"
    except (click.ClickException, CompressedError) as error:
        assert os.path.basename(path) in str(error) or path in str(error) or "-U" in str(error), error
