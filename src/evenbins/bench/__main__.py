"""`python -m evenbins.bench filters`: the benchmarks without the command `evenbins`."""

import sys

import click

from evenbins.bench.filters import main_filters
from evenbins.bench.sketches import main_sketches


@click.group()
def bench() -> None:
    """Measure evenbins against its peers."""


@bench.command()
@click.option("--quick", is_flag=True, help="Small sizes: seconds instead of minutes.")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of each case, at least.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False), help="Write the report to this file.")
@click.option("--markdown", is_flag=True, help="Print Markdown tables.")
@click.option("--peers", help="Only these peers: names separated by commas.")
def filters(
    quick: bool, rounds: int | None, json_path: str | None, markdown: bool, peers: str | None
) -> None:
    """Bloom filters."""
    chosen = None if peers is None else [name.strip() for name in peers.split(",") if name.strip()]
    sys.exit(main_filters(quick, rounds, json_path, markdown, chosen))


@bench.command()
@click.option("--quick", is_flag=True, help="Small sizes: seconds instead of minutes.")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of each case, at least.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False), help="Write the report to this file.")
@click.option("--markdown", is_flag=True, help="Print Markdown tables.")
def sketches(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> None:
    """Count-min sketches."""
    sys.exit(main_sketches(quick, rounds, json_path, markdown))


if __name__ == "__main__":
    bench(prog_name="python -m evenbins.bench")
