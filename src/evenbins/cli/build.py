"""`evenbins build`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from evenbins import theory
from evenbins._bulk import Lines
from evenbins.cli._inputs import open_inputs
from evenbins.cli._options import FILE, LINES, check_output, integer, null_option, planned
from evenbins.cli._output import show_json
from evenbins.cli._progress import Bar
from evenbins.cli.inspect import comparison, measured
from evenbins.filters import BalancedBloomFilter
from evenbins.filters import build as build_filter
from evenbins.protocols import Filter
from evenbins.theory import FilterPlan

__all__ = ["build"]


_POLICIES = BalancedBloomFilter._policies


@click.command(short_help="Build a filter from lines.")
@click.argument("keys", nargs=-1, required=True, type=LINES)
@click.option("-o", "--output", required=True, type=FILE, help="The file to write; replaced in one step.")
@click.option("--kind", type=click.Choice(["blocked", "standard", "balanced", *_POLICIES]), default="blocked",
              show_default=True, help="One memory read a look-up; the fewest bits; few more bits and about "
              "two reads (balanced: the best of the policies that follow).")  # fmt: skip
@click.option("--fpr", type=float, help="False-positive rate to keep.  [default: 0.001]")
@click.option("--bits-per-key", type=float, help="Memory instead of --fpr.")
@click.option("--hashes", type=integer, help="Bits set for each key.  [default: the best number]")
@click.option("--capacity", type=integer, help="Keys to plan for.  [default: the number of lines]")
@click.option("--seed", type=integer, default=0, help="Seed of the hashes: 0 to 2**64-1.")
@click.option("--block-bits", type=click.Choice(["512", "256"]), help="Bits of a block.  [default: 512]")
@click.option("--reads", type=float, help="Balanced: mean memory reads of a present key, at most.")
@click.option("--miss-reads", type=float, help="Balanced: mean memory reads of an absent key, at most.")
@click.option("--overflow", type=float, help="Balanced: fraction of keys on the overflow list, at most.")
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes that share the work, by Dask.")
@click.option("--scheduler", help="A Dask cluster's address, such as tcp://host:8786.")
@click.option("--column", help="Of Parquet or CSV files: the keys' column.")
@null_option
@click.option("--threads", type=click.IntRange(1, 1024), default=1, help="Threads that share the work.")
@click.option("--json", "as_json", is_flag=True, help="Print plan and stats as JSON, on standard output.")
def build(
    keys: tuple[str, ...], output: str, kind: str, fpr: float | None, bits_per_key: float | None,
    hashes: int | None, capacity: int | None, seed: int, block_bits: str | None, reads: float | None,
    miss_reads: float | None, overflow: float | None, workers: int | None, scheduler: str | None,
    column: str | None, null: bool, threads: int, as_json: bool,
) -> None:  # fmt: skip
    r"""Build a filter from the lines of the files KEYS (- for standard input).

    A key is the bytes of a line without its newline, \n or \r\n. Nothing else is removed or decoded: an
    empty line is the empty key, as it is for grep, and blanks count. Without --capacity the lines are
    counted first, repeated ones too; what comes from a pipe goes through a temporary file then.

    With --workers, --scheduler or --column Dask does it (pip install 'evenbins[dask]'): KEYS are then files
    or patterns of Parquet, CSV or text, and the result does not depend on the number of workers.

    Prints what was planned beside what is measured, on standard error.
    """
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
        planner: Callable[..., FilterPlan] = (
            theory.plan_blocked if kind == "blocked" else theory.plan_standard
        )
    else:
        planner = theory.plan_balanced
        arguments |= bounds | {"policy": None if kind == "balanced" else kind}
    plan = partial(planner, **arguments)
    if workers is not None or scheduler is not None or column is not None:
        if null or threads != 1:
            raise click.ClickException(
                "-0 and --threads are for lines without --workers, --scheduler and --column"
            )
        policy = {"policy": kind} if kind in ("standard", "blocked") else {}
        check_output(output, keys)
        return _build_by_dask(
            keys, output, as_json, column=column, workers=workers, scheduler=scheduler, keys=capacity,
            **(arguments | policy),
        )  # fmt: skip
    planned(partial(plan, 1 if capacity is None else capacity))  # refused now, not after reading for an hour
    inputs = open_inputs(keys, null=null)
    check_output(output, keys)
    separator = b"\0" if null else b"\n"

    with Bar(keys) as bar:
        if capacity is None:
            bar.begin("counting lines")
            capacity = sum([each.count(bar.advance) for each in inputs])
            if capacity == 0:
                raise click.ClickException(
                    f"no keys: {', '.join(keys)} has no line. Give --capacity to build an empty filter"
                )
        filter_: Filter = build_filter(planned(partial(plan, capacity)))
        bar.begin("adding keys")
        added = 0
        for each in inputs:
            for block in each.blocks():
                filter_.add_many(Lines(block, separator), threads=threads)
                added += block.count(separator)
                bar.advance(len(block))
    filter_.save(output)

    if as_json:
        show_json({"file": output, "lines": added} | measured(filter_))
    else:
        lines = [f"{click.format_filename(output)}: {filter_.plan.policy} filter, {added:_} lines added"]
        click.echo("\n".join([*lines, *comparison(filter_.plan, filter_.stats())]), err=True)
    if added > capacity:
        click.echo(
            f"evenbins: warning: {added:_} keys in a filter planned for {capacity:_}, so more false positives"
            " than planned. Raise --capacity or leave it out", err=True,
        )  # fmt: skip


def _build_by_dask(paths: Sequence[str], output: str, as_json: bool, **request: Any) -> None:
    from evenbins.cluster import dask

    try:
        built = planned(
            partial(
                dask.build_files,
                list(paths),
                output=output,
                **{k: v for k, v in request.items() if v is not None},
            )
        )
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename or paths[0]}: {error.strerror or error}") from None
    if as_json:
        return show_json(
            {"file": output, "rows": built.rows, "seconds": built.seconds} | measured(built.filter)
        )
    what = f"{click.format_filename(output)}: {built.filter.plan.policy} filter, {built.rows:_} rows added"
    click.echo("\n".join([what, *comparison(built.filter.plan, built.filter.stats())]), err=True)
