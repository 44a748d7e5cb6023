"""`evenbins merge`: several files into one that holds the keys of all.

    filters, counting and growing ones, sketches    built with the same arguments: bits or counters are joined
    exact lists (tables of digests)                 of the same seed, whatever their sizes

The files that are merged are opened read-only; the result is written in one step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, reduce
from operator import and_
from typing import Any

import click

from evenbins.cli._options import FILE, check_output
from evenbins.cli._output import note, show_json
from evenbins.cli._structures import open_structure
from evenbins.cli.inspect import compared, measured
from evenbins.cli.seed import keep_private

__all__ = ["merge"]


@click.command(short_help="Merge files into one with the keys of all.")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="The file to write; replaced in one step.")
@click.option("--json", "as_json", is_flag=True, help="Print plan and stats as JSON.")
def merge(files: tuple[str, ...], output: str, as_json: bool) -> None:
    """Merge filters, sketches or exact lists FILES into one that holds the keys of all.

    Filters, counting and growing ones, and sketches must have been built with the same arguments: build with
    the same --capacity, --fpr (or --bits-per-key), --kind and --seed. Exact lists (`build --exact`) need the
    same --seed only. Every byte of every file is checked first. A new output can be read by nobody who cannot
    read all of FILES: it has their seed.
    """
    if len(files) < 2:
        raise click.ClickException("one file is nothing to merge: name two or more")
    check_output(output, files)
    first, *others = files
    kind, head = open_structure(first, verify=True)
    if "merge" not in kind.can:
        raise click.ClickException(f"{first}: it holds {kind.title}, which cannot be merged here: merge "
                                   "filters, sketches or exact lists")  # fmt: skip
    is_table = kind.family == "tables"
    tables = [head] if is_table else []
    merged: Any = None if is_table else head.copy()
    for path in others:
        its_kind, other = open_structure(path, verify=True)
        if its_kind != kind:
            raise click.ClickException(
                f"cannot merge {first} and {path}: one holds {kind.title}, the other "
                f"{its_kind.title}. Build both with the same arguments"
            )
        if is_table:
            tables.append(_like(head, other, first, path))
        else:
            _joined(partial(merged.__ior__, other), head, other, first, path)
    if is_table:
        merged = _one_table(tables)
    shared = reduce(and_, (os.stat(path).st_mode for path in files))
    with keep_private(~shared & 0o077):
        merged.save(output)
    if as_json:
        show_json({"file": output, "merged": list(files)} | measured(merged))
    else:
        what = f"{click.format_filename(output)}: {kind.title}, of {len(files)} files"
        note("\n".join([what, *compared(merged.plan, merged.stats())]))


def _joined(join: Callable[[], Any], head: Any, other: Any, first: str, path: str) -> None:
    try:
        join()
    except (ValueError, OverflowError, TypeError) as error:
        found = _difference(head, other)
        if found is None:
            raise click.ClickException(f"{first} and {path}: {error}") from None
        raise click.ClickException(f"cannot merge {first} and {path}: {found}") from None


def _difference(one: Any, other: Any) -> str | None:
    """Name the first thing in which two plans differ, and the way out."""
    ours, theirs = one.plan.to_dict(), other.plan.to_dict()
    if ours.get("seed") != theirs.get("seed"):
        return "their seeds differ. Build both with the same --seed, such as --seed @FILE"
    names = ("policy", "hashing", "construction", "conservative", "block_bits", "counter_bits", "hashes",
             "width", "depth", "copies", "nbytes", "thresholds", "core")  # fmt: skip
    for name in names:
        if name in ours and ours[name] != theirs.get(name):
            way_out = "Build both with the same --capacity, --fpr and --kind"
            return f"{name} is {ours[name]} in the first and {theirs.get(name)} in the second. {way_out}"
    return None


def _like(head: Any, other: Any, first: str, path: str) -> Any:
    for name in ("key_dtype", "value_dtype", "seed"):
        if getattr(head, name) != getattr(other, name):
            what = "their seeds differ" if name == "seed" else (
                f"{name} is {getattr(head, name)} in the first and {getattr(other, name)} in the second"
            )  # fmt: skip
            way_out = "Build both with the same --seed" if name == "seed" else "Merge tables of one kind"
            raise click.ClickException(f"cannot merge {first} and {path}: {what}. {way_out}")
    return other


def _one_table(tables: list[Any]) -> Any:
    """Make a table for all keys; the value of a key in several is that of the last."""
    from evenbins.tables import MultilevelTable

    plan = tables[0].plan
    merged = MultilevelTable(
        max(1, sum(len(table) for table in tables)), scheme=plan.scheme, levels=plan.levels, slots=plan.slots,
        key_dtype=plan.key_dtype, value_dtype=plan.value_dtype, seed=plan.seed,
    )  # fmt: skip
    for table in tables:
        merged.update(table)
    return merged
