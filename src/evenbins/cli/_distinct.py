"""Different keys: a first pass that estimates their number, and a set that holds them exactly.

inputs ──▶ survey ──▶ lines; HyperLogLog ──▶ keys to plan for: the estimate and three standard errors
batches ──▶ ExactSet ──▶ digests of all different keys, in a table that grows
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from evenbins.cli._inputs import Batch, Input
from evenbins.cli._progress import Bar

if TYPE_CHECKING:
    from evenbins.tables import MultilevelTable

__all__ = ["ExactSet", "read_first", "survey"]

_PRECISION = 16  # a standard error of 0.4 %, in 64 KiB
_ERRORS = 3.0  # standard errors by which the estimate is raised: it is too low once in 700 times


def survey(inputs: Sequence[Input], bar: Bar, *, threads: int | None = None) -> tuple[int, int]:
    """Return the number of keys of inputs, which can be read again, and that of the different ones.

    The second number is an estimate, raised so that it is hardly ever too low, and at most the first. The
    same keys give the same number, in any order and with any number of threads.
    """
    from evenbins.sketches.hyperloglog import HyperLogLog

    sketch = HyperLogLog(_PRECISION)
    keys = read_first(inputs, bar, lambda batch: sketch.add_many(batch.keys(), threads=threads))
    stats = sketch.stats()
    return keys, min(keys, math.ceil(stats.keys * (1 + _ERRORS * stats.error)))


def read_first(inputs: Sequence[Input], bar: Bar, see: Callable[[Batch], object]) -> int:
    """Show every batch of inputs to a function; they can be read again. Return the number of keys."""
    bar.begin("counting lines")

    def count(batch: Batch) -> None:
        see(batch)
        bar.advance_keys(len(batch))

    return sum(_pass_over(each, count, bar.advance) for each in inputs)


def _pass_over(source: Input, see: Callable[[Batch], None], advance: Callable[[int], None]) -> int:
    """Show every batch of an input to a function, and rewind; return the number of keys."""
    keys = 0
    with source._open() as opened:
        file = opened if opened.seekable() else source._spool(b"", opened)
        start = file.tell()
        file, chunks, format = source._chunks(file, advance)
        for batch in source._batches(file, chunks, format):
            see(batch)
            keys += len(batch)
        file.seek(start)
    source.nulls, source.one_line_of_many = 0, False  # of the pass that follows
    return keys


class ExactSet:
    """The digests of all different keys of batches, in a table that grows when it is full."""

    def __init__(self, capacity: int, seed: int, *, grows: bool = True) -> None:
        from evenbins.tables import MultilevelTable

        self._grows = grows
        self.table: MultilevelTable = MultilevelTable(
            capacity, key_dtype="digest", value_dtype=None, seed=seed
        )

    def add(self, batch: Batch) -> None:
        """Add the keys of a batch, integers as text."""
        from evenbins.errors import TableFullError
        from evenbins.tables.exact_sets import digest_words

        words = digest_words(batch.keys(as_text=True), self.table.seed)
        while True:
            try:
                return self.table.add_many(words, digests=True)
            except TableFullError as error:
                if not self._grows:
                    raise click.ClickException(
                        f"--capacity {self.table.plan.keys}: there are more different lines: raise it or "
                        "leave it out"
                    ) from None
                words = words[error.inserted :]
                self.table = self.table.grown(2 * max(self.table.plan.keys, len(self.table)))

    def __len__(self) -> int:
        return len(self.table)
