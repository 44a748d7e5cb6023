"""`evenbins design …`: the designs that meet a request, best first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from evenbins._console import COUNT, NUMBER, RATE, SIZE, integer, render, show, show_json, with_option_errors
from evenbins._numbers import parse_number

if TYPE_CHECKING:
    from evenbins.design._designs import Designs

__all__ = ["design"]


def weights(text: str) -> str | dict[str, float]:
    """Read what --cost takes: a name, or weights such as time=1,memory=2."""
    if "=" not in text:
        return text
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        return {name.strip(): parse_number(weight) for name, _, weight in pairs}
    except ValueError as error:
        raise click.BadParameter(f"{error}. Weights are written time=1,memory=2") from None


@click.group()
def design() -> None:
    """Find the designs that meet a request, best first."""


@design.command("filter", short_help="Filters for a number of keys and a false-positive rate.")
@click.option("--keys", required=True, type=COUNT, help="Number of keys.")
@click.option("--fpr", type=RATE, help="False-positive rate not to be exceeded.  [default: 0.01]")
@click.option("--bits-per-key", type=NUMBER, help="Memory not to be exceeded, everything counted.")
@click.option("--reads", type=NUMBER, help="Mean memory reads of a present key, at most.")
@click.option("--miss-reads", type=NUMBER, help="Mean memory reads of an absent key, at most.")
@click.option("--overflow", type=RATE, help="Fraction of keys on an overflow list, at most; 0: no list.")
@click.option("--needs", multiple=True, metavar="NEED",
              help="merge, deletions, unknown-size, shard, shared (by Redis), dask, window, fixed-set or "
              "on-disk; may be given several times.")  # fmt: skip
@click.option("--cost", type=weights, metavar="NAME|NAME=WEIGHT,...",
              help="What comes first, the least: time, memory, fpr, reads or miss_reads; or their weights.  "
              "[default: time=1,memory=1]")  # fmt: skip
@click.option("--shard-bytes", type=SIZE, help="Size of a shard, at most, such as 1G.")
@click.option("--build-rate", type=NUMBER, help="With shards: keys per second that can be added.")
@click.option("--json", "as_json", is_flag=True, help="Print request and designs as JSON.")
def design_filter(
    keys: int, shard_bytes: int | None, build_rate: float | None, as_json: bool, **request: Any
) -> None:
    """Find all filter designs that meet the request: standard, blocked, and each balanced policy.

    Each is planned with its best hashes, thresholds and shares; ns is the predicted time of a look-up, and *
    marks the Pareto front. `evenbins build` takes the first one, `evenbins build --kind POLICY` another.
    """
    import evenbins.design

    find: Callable[[], Designs[Any]] = partial(evenbins.design.filter, keys, **request)
    if shard_bytes is not None:
        shards: dict[str, Any] = {"shard_bytes": shard_bytes, "build_rate": build_rate}
        find = partial(evenbins.design.sharded_filter, keys, **shards, **request)
    elif build_rate is not None:
        raise click.ClickException("--build-rate is for designs in shards: pass --shard-bytes too")
    _print_designs(_find_designs(find), as_json)


@design.command("table", short_help="Hash tables for a number of keys and an overflow list.")
@click.option("--keys", required=True, type=COUNT, help="Number of keys.")
@click.option("--overflow", type=RATE, default=0.002, show_default=True,
              help="Fraction of keys on the overflow list, at most.")  # fmt: skip
@click.option("--levels", type=integer, help="Sub-tables.  [default: 2 for least-loaded, 4 for the others]")
@click.option("--deletions", is_flag=True, help="For endless deletions and insertions.")
@click.option("--value-bytes", type=SIZE, default=8, show_default=True, help="Bytes of a key's record.")
@click.option("--json", "as_json", is_flag=True, help="Print request and designs as JSON.")
def design_table(keys: int, as_json: bool, **request: Any) -> None:
    """Find the least table of each scheme: of the thesis' with 1, 2, 4 and 8 slots, and least-loaded.

    Each is planned with its best shares; list is the size of its overflow list, space its slots per key;
    * marks the Pareto front.
    """
    import evenbins.design

    _print_designs(_find_designs(partial(evenbins.design.table, keys, **request)), as_json)


@design.command("summary", short_help="Summaries that find the level of a table that a key is in.")
@click.option("--keys", required=True, type=COUNT, help="Number of keys.")
@click.option("--failure", type=RATE, default=1e-9, show_default=True,
              help="Chance of a wrong level for any key, or of a key without a place.")  # fmt: skip
@click.option("--false-positives", type=RATE, default=0.01, show_default=True,
              help="Chance that an absent key is taken for a present one.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print request and designs as JSON.")
def design_summary(keys: int, as_json: bool, **request: Any) -> None:
    """Find the smallest summary of each kind, with the table it is for."""
    import evenbins.design

    _print_designs(_find_designs(partial(evenbins.design.summary, keys, **request)), as_json)


@design.command("ring", short_help="Hash rings for a number of nodes and keys.")
@click.option("--nodes", required=True, type=COUNT, help="Number of nodes.")
@click.option("--keys", required=True, type=COUNT, help="Keys assigned at a time.")
@click.option("--overload", type=NUMBER, help="The fullest node over the mean, at most; above 1.")
@click.option("--searches", type=NUMBER, help="Mean nodes that a new key probes, at most.")
@click.option("--full", type=RATE, help="Fraction of nodes at their limit, at most.")
@click.option("--move-rate", type=NUMBER, help="Keys per second that can be moved: how long a join takes.")
@click.option("--json", "as_json", is_flag=True, help="Print request and designs as JSON.")
def design_ring(nodes: int, keys: int, as_json: bool, **request: Any) -> None:
    """Find limits for a hash ring: how even, how many searches, what moves when a node joins."""
    import evenbins.design

    _print_designs(_find_designs(partial(evenbins.design.ring, nodes, keys, **request)), as_json)


def _find_designs(call: Callable[[], Designs[Any]]) -> Designs[Any]:
    return with_option_errors(call, capacity="--keys")  # what plans call their capacity


def _print_designs(found: Designs[Any], as_json: bool) -> None:
    if as_json:
        return show_json(found.to_dict())
    from rich.table import Table

    head, rows = found.table()
    sheet = Table(
        title=found.caption(), title_justify="left", caption="* on the Pareto front", caption_justify="left"
    )
    for number, name in enumerate(head):
        sheet.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for row in rows:
        sheet.add_row(*row)
    show(render(sheet))
