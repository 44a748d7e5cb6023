"""`evenbins build`: lines, or a column, into a filter; with --exact into an exact set of their digests.

The set holds 128 bits of XXH3 for each different line. Two of n lines are taken for one with a probability of
n²/2^129, so `query` answers as `grep -F -x -f LIST` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from evenbins import _show
from evenbins._console import COUNT, FILE, NUMBER, RATE, check_output, integer, with_option_errors
from evenbins._core import FilterFullError
from evenbins.cli._distinct import ExactSet, read_first, survey
from evenbins.cli._inputs import LINES, Batch, How, Input, binary_option, null_option, open_inputs
from evenbins.cli._kinds import CHOICES, Maker
from evenbins.cli._output import note, warn, warn_of_inputs
from evenbins.cli._progress import Bar
from evenbins.cli._threads import threads_option
from evenbins.cli.inspect import report
from evenbins.cli.seed import SecretSeed, keep_private, seed_option

__all__ = ["build"]

_MOST_EXACT = 60_000_000_000  # a table's level has at most 2**32 buckets, of 8 slots
_FAR_FEWER = 0.7  # of the keys planned for: a remark says what would do


@click.command(short_help="Build a filter from lines.")
@click.argument("keys", nargs=-1, required=True, type=LINES)
@click.option("-o", "--output", required=True, type=FILE, help="The file to write; replaced in one step.")
@click.option("--kind", type=click.Choice(CHOICES),
              help="blocked: one memory read per look-up; standard: the fewest bits; balanced, or one of the "
              "policies after it: few more bits, about two reads; counting, fingerprint: keys can be "
              "removed; fuse: the fewest bits of all, for keys that never change; growing: any number of "
              "keys.  "
              "[default: the first of 'evenbins design filter']")  # fmt: skip
@click.option("--fpr", type=RATE, help="False-positive rate to keep.  [default: 0.001]")
@click.option("--bits-per-key", type=NUMBER, help="Memory instead of --fpr.")
@click.option("--exact", is_flag=True, help="Keep 128 bits of each line, in 17 bytes: no false positives.")
@click.option("--hashes", type=integer, help="Bits set for each key.  [default: the best number]")
@click.option("--capacity", type=COUNT,
              help="Keys to plan for.  [default: the different lines, estimated first]")  # fmt: skip
@seed_option
@click.option("--block-bits", type=click.Choice(["512", "256"]), help="Bits of a block.  [default: 512]")
@click.option("--reads", type=NUMBER, help="Balanced: mean memory reads of a present key, at most.")
@click.option("--miss-reads", type=NUMBER, help="Balanced: mean memory reads of an absent key, at most.")
@click.option("--overflow", type=RATE, help="Balanced: fraction of keys on the overflow list, at most.")
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes that share the work, by Dask.")
@click.option("--scheduler", help="A Dask cluster's address, such as tcp://host:8786.")
@click.option("--column", help="Of Parquet or CSV files: the keys' column.")
@threads_option
@null_option
@binary_option
@click.option("--json", "as_json", is_flag=True, help="Print plan and stats as JSON, on standard output.")
def build(
    keys: tuple[str, ...], output: str, exact: bool, seed: int, capacity: int | None, workers: int | None,
    scheduler: str | None, column: str | None, null: bool, binary: bool, threads: int | None, as_json: bool,
    **design: Any,
) -> None:  # fmt: skip
    r"""Build a filter from the lines of the files KEYS (- for standard input).

    A key is the bytes of a line without its newline, \n or \r\n. Nothing else is removed or decoded: an
    empty line is the empty key, as it is for grep, and blanks count. Without --capacity the number of
    different lines is estimated in a first pass; what comes from a pipe goes through a temporary file then.

    KEYS that are gzip or zstd are unpacked, unless -U is given. With --column they are CSV (with a line of
    names), whose fields are keys as text, or Parquet, where integers stay integers: as in Python, 5 and "5"
    are two keys.

    With --workers or --scheduler Dask does it (pip install 'evenbins[dask]'): KEYS are then files or
    patterns of Parquet, CSV or text, and the result does not depend on the number of workers.

    Prints what was planned beside what is measured, on standard error.
    """
    how = How(b"\0" if null else b"\n", binary, column)
    if isinstance(seed, SecretSeed):  # who reads the file reads the seed
        click.get_current_context().with_resource(keep_private(0o077))
        seed = int(seed)
    if exact:
        _refuse_with_exact({**design, "workers": workers, "scheduler": scheduler})
        return _build_exactly(keys, output, how, capacity=capacity, seed=seed, as_json=as_json)
    maker = Maker(**design, seed=seed)
    if workers is not None or scheduler is not None:
        if null or binary or threads is not None:
            raise click.ClickException("-0, -U and --threads are for lines without --workers and --scheduler")
        check_output(output, keys)
        return _build_by_dask(
            keys, output, as_json, column=column, workers=workers, scheduler=scheduler, keys=capacity,
            **maker.for_dask(capacity),
        )  # fmt: skip
    maker.check(capacity)
    inputs = open_inputs(keys, how)
    names = [each.name for each in inputs]
    check_output(output, names)

    if maker.is_fixed:
        return _build_fixed(maker, inputs, output, capacity=capacity, threads=threads, as_json=as_json)
    planned, lines = capacity, None
    with Bar(names) as bar:
        if capacity is None and maker.needs_capacity:
            lines, planned = survey(inputs, bar, threads=threads)
            planned = lines if maker.counts_all else planned
            if not lines:
                raise click.ClickException(
                    f"no keys: {', '.join(keys)} has no line. Give --capacity to build an empty filter"
                )
        filter_ = maker.make(planned)
        try:
            added = _add(inputs, bar, lambda batch: filter_.add_many(batch.keys(), threads=threads), lines)
        except FilterFullError as error:
            raise click.ClickException(f"{error}: raise --capacity, or use another --kind") from None
    filter_.save(output)
    estimated = capacity is None and planned is not None and planned < added
    what = f"{filter_.plan.policy} filter, {added:_} lines added" + (
        f", about {planned:_} of them different{bar.summary(added)}" if estimated else bar.summary(added)
    )
    report(filter_, output, what, as_json, lines=added, nulls=sum(each.nulls for each in inputs))
    warn_of_inputs(inputs)
    if capacity is not None and maker.needs_capacity:
        _compare_with_capacity(filter_, capacity, added)


def _build_fixed(
    maker: Maker, inputs: Sequence[Input], output: str, *, capacity: int | None, threads: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Build a filter of all keys at once: they are counted in a first pass, and stored in a second."""
    from evenbins._bulk import checked_threads
    from evenbins.filters.fuse import FuseFilter, FuseKeys

    if capacity is not None:
        raise click.ClickException(
            f"--capacity is for filters to which keys are added, not for --kind {maker.kind}: leave out one "
            "of the two"
        )
    keys = FuseKeys(maker.options["seed"], checked_threads(threads))
    with Bar([each.name for each in inputs]) as bar:
        lines = read_first(inputs, bar, lambda batch: keys.count(batch.keys()))
        added = _add(inputs, bar, lambda batch: keys.take(batch.keys()), lines)
        filter_ = with_option_errors(
            partial(keys.build, FuseFilter, maker.options.get("fpr"), maker.options.get("bits_per_key"))
        )
    filter_.save(output)
    what = f"fuse filter, {added:_} lines, {filter_.approx_items():_.0f} different ones{bar.summary(added)}"
    report(filter_, output, what, as_json, lines=added, nulls=sum(each.nulls for each in inputs))
    warn_of_inputs(inputs)


def _compare_with_capacity(filter_: Any, capacity: int, added: int) -> None:
    """Print what a wrong --capacity costs: a higher rate, or memory."""
    stats = filter_.stats()
    if not math.isfinite(stats.keys):
        warn(
            f"the filter is full: --capacity {capacity:_} is far too small for {added:_} lines, and nearly "
            "every key is found in it. Raise --capacity or leave it out"
        )
    elif stats.keys > capacity * 1.01 + 0.5:
        warn(
            f"about {stats.keys:_.0f} different keys in a filter planned for {capacity:_}, so its "
            f"false-positive rate is {stats.fpr:.2g} instead of {filter_.plan.fpr:.2g}. Raise --capacity or "
            "leave it out"
        )
    elif added and stats.keys < _FAR_FEWER * capacity:
        enough = max(1, math.ceil(stats.keys * 1.02))
        size = _show.size(round(filter_.plan.bits_per_key * enough / 8))
        note(
            f"  about {stats.keys:_.0f} different keys in a filter planned for {capacity:_}: "
            f"--capacity {enough} would make it {size}"
        )


def _add(inputs: Sequence[Input], bar: Bar, add: Callable[[Batch], object], lines: int | None = None) -> int:
    """Add every batch of the inputs; return the number of their keys."""
    bar.begin("adding keys", keys=lines)
    added = 0
    for each in inputs:
        for batch in each.batches(bar.advance):
            add(batch)
            added += len(batch)
            bar.advance_keys(len(batch))
    return added


# --- exactly -----------------------------------------------------------------------------------------------


def _refuse_with_exact(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            option = "--" + name.replace("_", "-")
            raise click.ClickException(f"{option} is for filters, not for --exact: leave out one of the two")


def _build_exactly(
    keys: Sequence[str], output: str, how: How, *, capacity: int | None, seed: int, as_json: bool
) -> None:
    if capacity is not None and capacity > _MOST_EXACT:
        raise click.ClickException(
            f"--capacity {capacity}: an exact list holds {_MOST_EXACT:_} lines at most: use a filter"
        )
    if capacity is not None:
        with_option_errors(partial(ExactSet, capacity, seed))
    inputs = open_inputs(keys, how)
    names = [each.name for each in inputs]
    check_output(output, names)
    with Bar(names) as bar:
        planned = capacity if capacity is not None else survey(inputs, bar)[1]
        exact: ExactSet = with_option_errors(partial(ExactSet, max(1, planned), seed, grows=capacity is None))
        added = _add(inputs, bar, exact.add)
    exact.table.save(output)
    what = f"exact, {added:_} lines, {len(exact):_} different ones{bar.summary(added)}"
    report(exact.table, output, what, as_json, lines=added, nulls=sum(each.nulls for each in inputs))
    warn_of_inputs(inputs)


# --- by many -----------------------------------------------------------------------------------------------


def _build_by_dask(paths: Sequence[str], output: str, as_json: bool, **request: Any) -> None:
    from evenbins.cluster import dask

    given = {name: value for name, value in request.items() if value is not None}
    try:
        with Bar(()) as bar, bar.waiting("building with Dask"):
            built = with_option_errors(partial(dask.build_files, list(paths), output=output, **given))
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename or paths[0]}: {error.strerror or error}") from None
    what = f"{built.filter.plan.policy} filter, {built.rows:_} rows added"
    report(built.filter, output, what, as_json, rows=built.rows, seconds=built.seconds)
