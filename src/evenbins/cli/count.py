"""`evenbins count`: the number of different lines, estimated by a HyperLogLog or exactly by their digests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from evenbins._console import FILE, RATE, check_output, show, show_json, with_option_errors
from evenbins.cli._distinct import ExactSet
from evenbins.cli._inputs import LINES, Batch, How, Input, binary_option, null_option, open_inputs
from evenbins.cli._output import note, warn_of_inputs
from evenbins.cli._progress import Bar
from evenbins.cli._structures import open_structure
from evenbins.cli._threads import threads_option
from evenbins.cli.seed import SecretSeed, keep_private, seed_option

if TYPE_CHECKING:
    from evenbins.sketches.hyperloglog import HyperLogLog
    from evenbins.tables import MultilevelTable

__all__ = ["count"]

_SUFFIX = ".evb"
_FIRST = 1 << 16  # lines that an exact list has room for at first


@click.command(short_help="Count the different lines.")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=LINES)
@click.option("--exact", is_flag=True, help="Count exactly, by 128 bits of each line, in 17 bytes.")
@click.option("--error", type=RATE, help="Relative standard error of the estimate.  [default: 0.0081]")
@click.option("--save", type=FILE, help="Write the sketch, or with --exact the list, to this file.")
@click.option("--column", help="Read CSV or Parquet, and count this column's values.")
@null_option
@binary_option
@seed_option
@threads_option
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON.")
def count(
    files: tuple[str, ...], exact: bool, error: float | None, save: str | None, column: str | None,
    null: bool, binary: bool, seed: int, threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Print the number of different lines of the FILEs (standard input).

    By a HyperLogLog of 16 kB, whatever the number of lines: the estimate is printed on standard output, its
    standard error on standard error. With --exact a digest of every different line is kept in memory.

    A FILE that ends in .evb was written by --save: its lines count too, and a line in several files counts
    once. So a day's files can be counted today and the week's number be had from seven small files.
    """
    if exact and error is not None:
        raise click.ClickException("--error is for estimates, not for --exact: leave out one of the two")
    if isinstance(seed, SecretSeed):
        click.get_current_context().with_resource(keep_private(0o077))
    names = files or ("-",)
    saved = [name for name in names if name.endswith(_SUFFIX)]
    how = How(b"\0" if null else b"\n", binary, column)
    sources = open_inputs([name for name in names if name not in saved], how)
    if save is not None:
        check_output(save, [source.name for source in sources], option="--save")
    counter = _Exact(int(seed)) if exact else _Estimate(error, int(seed), threads)
    for path in saved:
        counter.merge(path)
    with Bar([source.name for source in sources]) as bar:
        bar.begin("counting")
        lines = 0
        for source in sources:
            for batch in source.batches(bar.advance):
                counter.add(batch)
                lines += len(batch)
                bar.advance_keys(len(batch))
    if save is not None:
        counter.structure.save(save)
    _print(counter, lines, sources, bar, saved, as_json)
    warn_of_inputs(sources)


class _Estimate:
    """A HyperLogLog that counts."""

    def __init__(self, error: float | None, seed: int, threads: int | None) -> None:
        from evenbins.sketches.hyperloglog import HyperLogLog

        self.structure: HyperLogLog = with_option_errors(partial(HyperLogLog, error=error, seed=seed))
        self._threads, self._chosen = threads, error is not None or seed != 0

    def add(self, batch: Batch) -> None:
        """Add the keys of a batch, integers as text."""
        self.structure.add_many(batch.keys(as_text=True), threads=self._threads)

    def merge(self, path: str) -> None:
        """Add what another sketch has counted; the first one decides precision and seed, unless given."""
        kind, other = open_structure(path, verify=True)
        if kind.name != "hyperloglog":
            raise click.ClickException(
                f"{path}: it holds {kind.title}, and the lines in it cannot be counted: name text, or a file "
                "that 'evenbins count --save' wrote; for one of 'count --exact --save' give --exact"
            )
        if not self._chosen:
            self.structure, self._chosen = type(self.structure)(other.plan.precision, seed=other.seed), True
        try:
            self.structure |= other
        except ValueError as problem:
            raise click.ClickException(
                f"{path}: {problem}. Count all files with the same --error and --seed"
            ) from None

    def result(self) -> tuple[int, float]:
        """Return the number of different lines and its relative standard error."""
        stats = self.structure.stats()
        return round(stats.keys), stats.error


class _Exact(ExactSet):
    """A set that counts."""

    def __init__(self, seed: int) -> None:
        super().__init__(_FIRST, seed)

    @property
    def structure(self) -> MultilevelTable:
        """The set."""
        return self.table

    def merge(self, path: str) -> None:
        """Add the lines of another list."""
        kind, other = open_structure(path, verify=True)
        if kind.name != "multilevel-table" or other.key_dtype != "digest":
            raise click.ClickException(
                f"{path}: it holds {kind.title}, which is no list of lines: name text, or a file that "
                "'evenbins count --exact --save' or 'evenbins build --exact' wrote"
            )
        if not len(self):
            self.table = other.copy()
        else:
            self.table = self.table.union(other)

    def result(self) -> tuple[int, float]:
        """Return the number of different lines; its error is 0."""
        return len(self), 0.0


def _print(
    counter: _Estimate | _Exact, lines: int, sources: Sequence[Input], bar: Bar, saved: Sequence[str],
    as_json: bool,
) -> None:  # fmt: skip
    different, error = counter.result()
    if as_json:
        return show_json({
            "lines": lines, "different": different, "error": error, "exact": isinstance(counter, _Exact),
            "sketches": list(saved), "nulls": sum(each.nulls for each in sources), "seconds": bar.seconds,
        })  # fmt: skip
    show(str(different))
    of = f"of {lines:_} lines" + (f" and {len(saved)} files of --save" if saved else "")
    how = "exactly" if not error else f"standard error {error:.2%}, {round(error * different):_} lines"
    note(f"different ones {of}: {how}{bar.summary(lines)}")
