"""`python -m benchmarks …`, from the root of the repository: measured against other libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

__all__ = ["bench"]

FILE = click.Path(dir_okay=False)


@click.group()
def bench() -> None:
    """Measure against other libraries."""


@bench.result_callback()
def _exit(status: int, /) -> None:
    sys.exit(status)


def _bench_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that all benchmarks have."""
    for option in (
        click.option("--markdown", is_flag=True, help="Print the table as Markdown."),
        click.option("--json", "json_path", type=FILE, help="Write all numbers to this file."),
        click.option("--rounds", type=click.IntRange(min=1), help="Rounds of which the best counts."),
        click.option("--quick", is_flag=True, help="Small sizes: a look in seconds, not a result."),
    ):
        command = option(command)
    return command


@bench.command()
@_bench_options
@click.option("--peers", help="Only these peers, separated by commas.")
def filters(quick: bool, rounds: int | None, json_path: str | None, markdown: bool, peers: str | None) -> int:
    """Compare the filters with abloom, rbloom and others from PyPI, and with the raw memory limit."""
    try:
        from benchmarks.filters import main_filters

        chosen = [name.strip() for name in peers.split(",") if name.strip()] if peers is not None else None
        return main_filters(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown, peers=chosen)
    except ImportError as error:
        raise click.ClickException(
            f"{error}: pip install --requirement benchmarks/requirements.txt"
        ) from None


@bench.command()
@_bench_options
def counting(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare the counting filter with that of fastbloom-rs."""
    from benchmarks.counting import main_counting

    return main_counting(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


@bench.command()
@_bench_options
def fingerprint(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare filters that remove, and fixed ones, with the raw memory limit and with packages of PyPI."""
    from benchmarks.fingerprint import main_fingerprint

    return main_fingerprint(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


@bench.command()
@_bench_options
def removable(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare the fingerprint filter with rbloom and abloom, which cannot remove keys."""
    from benchmarks.removable import main_removable

    return main_removable(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


@bench.command()
@_bench_options
def sketches(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare the count-min sketch with that of datasketches."""
    from benchmarks.sketches import main_sketches

    return main_sketches(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


@bench.command()
@_bench_options
@click.option("--plot", type=FILE, help="Draw the times of single insertions: SVG or PNG.")
def tables(quick: bool, rounds: int | None, json_path: str | None, markdown: bool, plot: str | None) -> int:
    """Compare the multilevel table with a dict, cykhash, hirola and pandas."""
    from benchmarks.tables import main_tables

    return main_tables(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown, plot=plot)


@bench.command()
@_bench_options
@click.option(
    "--folder", type=click.Path(file_okay=False), help="On the disk to measure; kept, with its files."
)
def paged(quick: bool, rounds: int | None, json_path: str | None, markdown: bool, folder: str | None) -> int:
    """Compare the one-read table on disk with LMDB and SQLite, with a cold page cache."""
    from benchmarks.paged import main_paged

    return main_paged(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown, folder=folder)


@bench.command()
@_bench_options
def redis(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare the shared filter on Redis with one of GETBIT and SETBIT; starts a server of its own."""
    from benchmarks.redis import main_redis

    return main_redis(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


@bench.command()
@_bench_options
def rings(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare the hash ring with uhashring, and with a ring written by hand."""
    from benchmarks.rings import main_rings

    return main_rings(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


@bench.command()
@_bench_options
def dedup(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare deduplication with sort -u, awk, Polars and DuckDB: speed and memory."""
    from benchmarks.dedup import main_dedup

    return main_dedup(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


@bench.command()
@_bench_options
def cores(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare 1, 2, 4, … threads in every bulk call: wall time and CPU time per key."""
    from benchmarks.cores import main_cores

    return main_cores(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


@bench.command("cli")
@_bench_options
def command_line(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare this command with grep and with a Python set: speed, memory, start-up."""
    from benchmarks.cli import main_cli

    return main_cli(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


if __name__ == "__main__":
    bench(prog_name="python -m benchmarks")
