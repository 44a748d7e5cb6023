"""How many keys will come? Decided before anything is kept, so that the structure has the right size.

    --capacity         as it says
    a pipe             nobody knows: it grows
    files              rows, from the bytes of a sample; exactly for Parquet and for small files. As many
                       keys as rows are planned for if that is cheap, else a HyperLogLog counts them in a pass

A sample cannot tell how many rows are duplicates: they may be far apart. It tells how long a row is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import IO, Any

from evenbins.cli._blocks import arrow_modules
from evenbins.cli._names import suffixes_of
from evenbins.cli._rows import Buffers, Head, RowInput

__all__ = ["Estimate", "count_text", "estimate_keys", "estimate_rows", "filter_bytes"]

_BLOCKS, _BLOCK_BYTES = 16, 1 << 16  # of a sample, in one file
_FILES = 64  # of a sample
_UNPACKED_BYTES = 1 << 22  # of a compressed file's beginning
EXACT_BYTES = 18.0  # per key, at most


class Estimate:
    """How many rows and different keys there will be, at most, and how that is known.

    Attributes
    ----------
    rows, keys : None if nobody knows
    text : a sentence for people
    """

    def __init__(self, rows: int | None, keys: int | None, text: str) -> None:
        self.rows, self.keys, self.text = rows, keys, text


def count_text(count: float) -> str:
    """Return a number for people: 950, 12_345, 11.0 million, 3.20 billion."""
    if count < 1e6:
        return f"{round(count):_}"
    for size, word in ((1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:.3g} {word}" if count < 9.995 * size else f"{count / size:.1f} {word}"
    raise AssertionError(count)


def filter_bytes(keys: float, fpr: float, *, exact: bool) -> float:
    """Return about how much memory so many keys will take."""
    return keys * (EXACT_BYTES if exact else max(1.0, 0.2 * math.log2(2.0 / fpr)))


def estimate_rows(inputs: Sequence[RowInput]) -> Estimate:
    """Return about how many rows files have."""
    step = -(-len(inputs) // _FILES)
    rows, spread, known, size, exactly = 0.0, 0.0, 0, 0, step == 1
    for source in inputs[::step]:
        found, error, whole = _sample(source)
        nbytes = _size_of(source)
        rows, spread, known, exactly = rows + found, spread + error**2, known + nbytes, exactly and whole
    size = sum(_size_of(source) for source in inputs)
    scale = size / known if known and step > 1 else 1.0
    rows, percent = rows * scale, 100 * math.sqrt(spread) / max(rows, 1.0)
    if exactly:
        return Estimate(round(rows), round(rows), f"{count_text(rows)} rows")
    text = f"{count_text(rows)} rows estimated from a sample (±{max(percent, 0.1):.1f} %)"
    most = math.ceil(rows * (1.02 + 4 * percent / 100)) + 1000
    return Estimate(most, most, text)


def _size_of(source: RowInput) -> int:
    with source.reopened() as file:
        return os.fstat(file.fileno()).st_size


def _sample(source: RowInput) -> tuple[float, float, bool]:
    """Return the rows of a file, their standard error, and whether they were counted."""
    with source.reopened() as file:
        if source.format == "parquet":
            return float(_parquet_rows(source, file)), 0.0, True
        if suffixes_of(source.name)[1] or source.is_packed(file):
            return _sample_packed(source, file)
        return _sample_plain(file, source.separator)


def _parquet_rows(source: RowInput, file: IO[bytes]) -> int:
    arrow, parquet = arrow_modules(source.error)
    try:
        rows: int = parquet.ParquetFile(file).metadata.num_rows
    except (arrow.ArrowException, OSError):
        return 0  # the pass itself says what is wrong
    return rows


def _sample_plain(file: IO[bytes], separator: bytes) -> tuple[float, float, bool]:
    size = os.fstat(file.fileno()).st_size
    if size <= _BLOCKS * _BLOCK_BYTES:
        data = file.read()
        return float(data.count(separator) + (not data.endswith(separator) and bool(data))), 0.0, True
    counts = []
    for block in range(_BLOCKS):
        file.seek(block * (size - _BLOCK_BYTES) // (_BLOCKS - 1))
        counts.append(file.read(_BLOCK_BYTES).count(separator))
    mean = sum(counts) / _BLOCKS
    variance = sum((count - mean) ** 2 for count in counts) / (_BLOCKS - 1)
    blocks = size / _BLOCK_BYTES
    return mean * blocks, math.sqrt(variance / _BLOCKS) * blocks, False


def _sample_packed(source: RowInput, file: IO[bytes]) -> tuple[float, float, bool]:
    rows = unpacked = packed = 0

    def advance(nbytes: int) -> None:
        nonlocal packed
        packed += nbytes

    for chunk in source.unpacked(file, advance):
        rows += chunk.count(source.separator)
        unpacked += len(chunk)
        if unpacked >= _UNPACKED_BYTES:
            size = os.fstat(file.fileno()).st_size
            found = rows * size / max(packed, 1)
            return found, 0.05 * found, False
    return float(rows + 1), 0.0, True


def estimate_keys(
    inputs: Sequence[RowInput], seed: int, keys_of: Callable[[object], object], advance: Callable[[int], None]
) -> Estimate:
    """Count the different keys of files by a pass over all of them; nulls are not counted."""
    from evenbins.cli._pipeline import run_stages
    from evenbins.sketches.hyperloglog import HyperLogLog

    sketch, buffers, rows = HyperLogLog(seed=seed), Buffers(), 0

    def decide(batch: Any) -> Any:
        nonlocal rows
        sketch.add_many(keys_of(batch.keys))
        rows += batch.count()
        return batch

    head = Head()
    batches = (batch for source in inputs for batch in source.batches_of_rows(advance, head, buffers))
    run_stages(batches, decide, lambda batch: batch.release())
    error = sketch.stats().error
    keys = round(sketch.count())
    text = f"{count_text(keys)} different keys estimated (HyperLogLog, ±{100 * error:.1f} %)"
    return Estimate(rows, min(rows, math.ceil(keys * (1 + 4 * error))) or 1, text)
