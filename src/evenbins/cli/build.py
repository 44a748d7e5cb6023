"""`evenbins build`: lines, or a column, into a filter; with --exact into an exact set of their digests.

The set holds 128 bits of XXH3 for each different line. Two of n lines are taken for one with a probability of
n²/2^129, so `query` answers as `grep -F -x -f LIST` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from evenbins._console import FILE, check_output, integer, with_option_errors
from evenbins.cli._inputs import LINES, Batch, How, Input, binary_option, null_option, open_inputs
from evenbins.cli._output import warn, warn_of_inputs
from evenbins.cli._progress import Bar
from evenbins.cli.inspect import report
from evenbins.cli.seed import SecretSeed, keep_private, seed_of
from evenbins.filters import BalancedBloomFilter, plan_balanced, plan_blocked, plan_standard
from evenbins.filters import build as build_filter

if TYPE_CHECKING:
    from evenbins.filters import FilterPlan
    from evenbins.tables import MultilevelTable

__all__ = ["build"]

_POLICIES = BalancedBloomFilter._policies
_MOST_EXACT = 60_000_000_000  # a table's level has at most 2**32 buckets, of 8 slots


@click.command(short_help="Build a filter from lines.")
@click.argument("keys", nargs=-1, required=True, type=LINES)
@click.option("-o", "--output", required=True, type=FILE, help="The file to write; replaced in one step.")
@click.option("--kind", type=click.Choice(["blocked", "standard", "balanced", *_POLICIES]),
              help="One memory read a look-up; the fewest bits; few more bits and about two reads "
              "(balanced: the best of the policies that follow).  [default: blocked]")  # fmt: skip
@click.option("--fpr", type=float, help="False-positive rate to keep.  [default: 0.001]")
@click.option("--bits-per-key", type=float, help="Memory instead of --fpr.")
@click.option("--exact", is_flag=True, help="Keep 128 bits of each line, in 17 bytes: no false positives.")
@click.option("--hashes", type=integer, help="Bits set for each key.  [default: the best number]")
@click.option("--capacity", type=integer, help="Keys to plan for.  [default: the number of lines]")
@click.option(
    "--seed",
    type=seed_of,
    default="0",
    metavar="N|random|@FILE",
    help="Of the hashes: 0 to 2**64-1; a new one; from a file (a new output is then its owner's alone).",
)
@click.option("--block-bits", type=click.Choice(["512", "256"]), help="Bits of a block.  [default: 512]")
@click.option("--reads", type=float, help="Balanced: mean memory reads of a present key, at most.")
@click.option("--miss-reads", type=float, help="Balanced: mean memory reads of an absent key, at most.")
@click.option("--overflow", type=float, help="Balanced: fraction of keys on the overflow list, at most.")
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes that share the work, by Dask.")
@click.option("--scheduler", help="A Dask cluster's address, such as tcp://host:8786.")
@click.option("--column", help="Of Parquet or CSV files: the keys' column.")
@null_option
@binary_option
@click.option("--threads", type=click.IntRange(1, 1024), default=1, help="Threads that share the work.")
@click.option("--json", "as_json", is_flag=True, help="Print plan and stats as JSON, on standard output.")
def build(
    keys: tuple[str, ...], output: str, exact: bool, seed: int, capacity: int | None, workers: int | None,
    scheduler: str | None, column: str | None, null: bool, binary: bool, threads: int, as_json: bool,
    **design: Any,
) -> None:  # fmt: skip
    r"""Build a filter from the lines of the files KEYS (- for standard input).

    A key is the bytes of a line without its newline, \n or \r\n. Nothing else is removed or decoded: an
    empty line is the empty key, as it is for grep, and blanks count. Without --capacity the lines are
    counted first, repeated ones too; what comes from a pipe goes through a temporary file then.

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
    planner, arguments = _planner(**design, seed=seed)
    if workers is not None or scheduler is not None:
        if null or binary or threads != 1:
            raise click.ClickException("-0, -U and --threads are for lines without --workers and --scheduler")
        kind = design["kind"] or "blocked"
        policy = {"policy": kind} if kind in ("standard", "blocked") else {}
        check_output(output, keys)
        return _build_by_dask(
            keys, output, as_json, column=column, workers=workers, scheduler=scheduler, keys=capacity,
            **(arguments | policy),
        )  # fmt: skip
    plan = partial(planner, **arguments)
    with_option_errors(
        partial(plan, 1 if capacity is None else capacity)
    )  # refused now, not after reading for an hour
    inputs = open_inputs(keys, how)
    check_output(output, keys)

    with Bar(keys) as bar:
        capacity = capacity or _count(inputs, bar)
        if capacity == 0:
            raise click.ClickException(
                f"no keys: {', '.join(keys)} has no line. Give --capacity to build an empty filter"
            )
        filter_ = build_filter(with_option_errors(partial(plan, capacity)))
        added = _add(inputs, bar, lambda batch: filter_.add_many(batch.keys(), threads=threads))
    filter_.save(output)
    what = f"{filter_.plan.policy} filter, {added:_} lines added"
    report(filter_, output, what, as_json, lines=added, nulls=sum(each.nulls for each in inputs))
    warn_of_inputs(inputs)
    if added > capacity:
        warn(
            f"{added:_} keys in a filter planned for {capacity:_}, so more false positives"
            " than planned. Raise --capacity or leave it out"
        )


def _count(inputs: Sequence[Input], bar: Bar) -> int:
    bar.begin("counting lines")
    return sum([each.count(bar.advance) for each in inputs])


def _add(inputs: Sequence[Input], bar: Bar, add: Callable[[Batch], object]) -> int:
    """Add every batch of the inputs; return the number of their keys."""
    bar.begin("adding keys")
    added = 0
    for each in inputs:
        for batch in each.batches(bar.advance):
            add(batch)
            added += len(batch)
    return added


def _planner(
    kind: str | None, fpr: float | None, bits_per_key: float | None, hashes: int | None,
    block_bits: str | None, reads: float | None, miss_reads: float | None, overflow: float | None, seed: int,
) -> tuple[Callable[..., FilterPlan], dict[str, Any]]:  # fmt: skip
    """Return the function that plans, and its arguments but the keys; refuse what does not go together."""
    kind = kind or "blocked"
    if fpr is not None and bits_per_key is not None:
        raise click.ClickException("--fpr and --bits-per-key exclude each other: give one")
    if kind == "standard" and block_bits is not None:
        raise click.ClickException(
            "--block-bits is for --kind blocked and balanced: leave out one of the two"
        )
    bounds = {"reads": reads, "miss_reads": miss_reads, "overflow": overflow}
    given = [name for name, value in bounds.items() if value is not None]
    if kind in ("standard", "blocked") and given:
        option = "--" + given[0].replace("_", "-")
        raise click.ClickException(
            f"{option} is for --kind balanced and its policies: leave out one of the two"
        )
    arguments: dict[str, Any] = {"bits_per_key": bits_per_key, "hashes": hashes, "seed": seed}
    arguments["fpr"] = 1e-3 if fpr is None and bits_per_key is None else fpr
    if kind != "standard":
        arguments["block_bits"] = int(block_bits or 512)
    if kind in ("standard", "blocked"):
        return (plan_blocked if kind == "blocked" else plan_standard), arguments
    return plan_balanced, arguments | bounds | {"policy": None if kind == "balanced" else kind}


# --- exactly -----------------------------------------------------------------------------------------------


def _refuse_with_exact(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            option = "--" + name.replace("_", "-")
            raise click.ClickException(f"{option} is for filters, not for --exact: leave out one of the two")


def _build_exactly(
    keys: Sequence[str], output: str, how: How, *, capacity: int | None, seed: int, as_json: bool
) -> None:
    from evenbins.tables import TableFullError

    if capacity is not None and capacity > _MOST_EXACT:
        raise click.ClickException(
            f"--capacity {capacity}: an exact list holds {_MOST_EXACT:_} lines at most: use a filter"
        )
    if capacity is not None:
        with_option_errors(partial(_empty_set, capacity, seed))
    inputs = open_inputs(keys, how)
    check_output(output, keys)
    with Bar(keys) as bar:
        capacity = capacity if capacity is not None else _count(inputs, bar)
        lines: MultilevelTable = with_option_errors(partial(_empty_set, max(1, capacity), seed))
        try:
            added = _add(inputs, bar, lambda batch: lines.add_many(batch.keys(as_text=True)))
        except TableFullError:
            raise click.ClickException(
                f"--capacity {capacity}: there are more different lines: raise it or leave it out"
            ) from None
    lines.save(output)
    what = f"exact, {added:_} lines, {len(lines):_} different ones"
    report(lines, output, what, as_json, lines=added, nulls=sum(each.nulls for each in inputs))
    warn_of_inputs(inputs)


def _empty_set(capacity: int, seed: int) -> MultilevelTable:
    from evenbins.tables import MultilevelTable

    return MultilevelTable(capacity, key_dtype="digest", value_dtype=None, seed=seed)


# --- by many -----------------------------------------------------------------------------------------------


def _build_by_dask(paths: Sequence[str], output: str, as_json: bool, **request: Any) -> None:
    from evenbins.cluster import dask

    given = {name: value for name, value in request.items() if value is not None}
    try:
        built = with_option_errors(partial(dask.build_files, list(paths), output=output, **given))
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename or paths[0]}: {error.strerror or error}") from None
    what = f"{built.filter.plan.policy} filter, {built.rows:_} rows added"
    report(built.filter, output, what, as_json, rows=built.rows, seconds=built.seconds)
