"""The passes of `evenbins dedup` over its inputs: one with the keys in memory, or two with them on disk.

    in memory    rows ──▶ keep(keys) ──▶ the rows of the mask
    on disk      rows ──▶ digests in parts on disk ──▶ one bit per row; rows again ──▶ those whose bit is set

Both keep the first row of each key, in the order of the inputs, and count for each input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenbins.cli._pipeline import run_stages
from evenbins.cli._rows import Buffers, Head, RowInput, Rows
from evenbins.cli._sinks import Sink, named_errors
from evenbins.cli._spill import Spill, answers_in_turn
from evenbins.deduplication.columns import null_digest
from evenbins.deduplication.fields import keys_of
from evenbins.tables.exact_sets import digest_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from evenbins.cli._window import SeenLately
    from evenbins.deduplication.deduplicator import Deduplicator

    Mask = npt.NDArray[np.bool_]

__all__ = ["Outputs", "batches_of", "dedup_in_memory", "dedup_on_disk"]

_Advance = Callable[[int], None]
_Batch = tuple[RowInput, Rows]


class Outputs:
    """Where rows go: the kept ones, and the others if they are wanted."""

    def __init__(self, kept: tuple[str, Sink], dropped: tuple[str, Sink] | None) -> None:
        self._kept, self._dropped = kept, dropped

    def write(self, rows: Rows, mask: Mask) -> None:
        """Write the rows of a batch, each to its place; an error names the file."""
        if self._dropped is not None:
            self._write(self._dropped, rows, rows.select, ~mask)
        self._write(self._kept, rows, rows.take, mask)
        rows.release()

    @staticmethod
    def _write(output: tuple[str, Sink], rows: Rows, choose: Callable[[Mask], Any], mask: Mask) -> None:
        name, sink = output
        with named_errors(name):
            if rows.head is not None:
                sink.begin(rows.head)
            if len(mask):
                sink.write(choose(mask))


_SMALL_BLOCK_BYTES = 1 << 20  # where memory is short


def batches_of(
    inputs: Sequence[RowInput], advance: _Advance, *, keys: bool = True, small: bool = False
) -> Iterator[_Batch]:
    """Yield the batches of all inputs, each with its input."""
    head, buffers = Head(), Buffers(_SMALL_BLOCK_BYTES) if small else Buffers()
    for source in inputs:
        for rows in source.batches_of_rows(advance, head, buffers, keys=keys):
            yield source, rows


def _count(source: RowInput, mask: Mask) -> None:
    source.rows += len(mask)
    source.kept += int(np.count_nonzero(mask))


# --- in memory ---------------------------------------------------------------------------------------------


def dedup_in_memory(
    inputs: Sequence[RowInput], outputs: Outputs, seen: Deduplicator | SeenLately, advance: _Advance, *,
    threads: int | None, check: Callable[[], None], small: bool,
) -> None:  # fmt: skip
    """Write the rows whose key was not seen before; `check` is called after every batch."""

    def decide(batch: _Batch) -> tuple[Rows, Mask]:
        source, rows = batch
        mask = _decide(rows, source.rule.nulls, lambda keys: seen.keep(keys, threads=threads), keep_null)
        _count(source, mask)
        check()
        return rows, mask

    def keep_null() -> Mask:
        return seen._keep_with([], np.ones(1, np.bool_), null_digest(seen.seed, exact=seen.exact))

    def digested() -> Iterator[_Batch]:
        for source, rows in batches_of(inputs, advance, small=small):
            if not _is_empty(rows.keys):
                rows.keys = seen._digests(rows.keys)  # by the thread that reads
            yield source, rows

    run_stages(digested(), decide, lambda batch: outputs.write(*batch))


def _is_empty(keys: object) -> bool:
    return isinstance(keys, list) and not keys


def _decide(rows: Rows, nulls: str, keep: Callable[[object], Mask], keep_null: Callable[[], Mask]) -> Mask:
    """Return which rows to write; of those without a key all, or the first, as `nulls` says."""
    if rows.nulls is None:
        return np.zeros(0, np.bool_) if _is_empty(rows.keys) else keep(rows.keys)
    mask = np.zeros(len(rows.nulls), np.bool_)
    there = ~rows.nulls
    if there.any():
        mask[there] = keep(rows.keys)
    if nulls == "keep":
        mask[rows.nulls] = True
    else:
        mask[np.argmax(rows.nulls)] = keep_null()[0]
    return mask


# --- on disk -----------------------------------------------------------------------------------------------


def dedup_on_disk(
    inputs: Sequence[RowInput], outputs: Outputs, spill: Spill, begin: Callable[[str], _Advance], seed: int
) -> None:
    """Write the first row of each key, with the digests in parts on disk; reads the inputs twice."""

    def digest(batch: _Batch) -> tuple[Any, Mask | None]:
        source, rows = batch
        found = _digests(rows, source.rule.nulls, seed)
        rows.release()
        return found

    run_stages(
        batches_of(inputs, begin("digesting keys"), small=True), digest, lambda found: spill.add(*found)
    )
    take = answers_in_turn(spill.answers())

    def decide(batch: _Batch) -> tuple[Rows, Mask]:
        source, rows = batch
        try:
            mask = take(rows.count())
        except StopIteration:
            raise _changed(source) from None
        _count(source, mask)
        return rows, mask

    run_stages(
        batches_of(inputs, begin("writing rows"), keys=False, small=True),
        decide,
        lambda batch: outputs.write(*batch),
    )
    if sum(source.rows for source in inputs) != spill.rows:
        raise _changed(inputs[-1])


def _changed(source: RowInput) -> click.ClickException:
    return click.ClickException(f"{source.title}: it was changed while it was read: run the command again")


def _digests(rows: Rows, nulls: str, seed: int) -> tuple[Any, Mask | None]:
    """Return the 128-bit digests of rows, and which rows are kept whatever these are."""
    count = rows.count()
    if rows.nulls is None:
        return digest_words(keys_of(rows.keys, seed) if count else [], seed), None
    words = np.zeros((count, 2), np.uint64)
    there = ~rows.nulls
    if there.any():
        words[there] = digest_words(keys_of(rows.keys, seed), seed)
    if nulls == "keep":
        return words, rows.nulls
    words[rows.nulls] = null_digest(seed, exact=True)
    return words, None
