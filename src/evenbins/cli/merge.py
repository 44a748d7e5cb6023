"""`evenbins merge`: several files into one that holds the keys of all.

    filters, counting and growing ones, sketches    built with the same arguments: bits or counters are joined
    fingerprint filters                             the same: fingerprints are added, those of sets united
    exact lists (sets and tables of digests)        of the same seed, whatever their sizes

The files that are merged are opened read-only; the result is written in one step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, iadd, ior
from typing import Any

import click

from evenbins._console import FILE, check_output
from evenbins._core import FilterFullError
from evenbins.cli._structures import open_structure
from evenbins.cli.inspect import report
from evenbins.cli.seed import keep_private

__all__ = ["merge"]

_PLANS = (
    "policy", "hashing", "construction", "conservative", "block_bits", "counter_bits", "hashes", "width",
    "depth", "copies", "nbytes", "thresholds", "core",
)  # fmt: skip


@click.command(short_help="Merge files into one with the keys of all.")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="The file to write; replaced in one step.")
@click.option("--json", "as_json", is_flag=True, help="Print plan and stats as JSON.")
def merge(files: tuple[str, ...], output: str, as_json: bool) -> None:
    """Merge filters, sketches or exact lists FILES into one that holds the keys of all.

    Filters, counting and growing ones, and sketches must have been built with the same arguments: build with
    the same --capacity, --fpr (or --bits-per-key), --kind and --seed. Exact lists (`build --exact`) need the
    same --seed only. Every byte of every file is checked first. A new output is
    readable only by users who can read all of FILES: it has their seed.
    """
    if len(files) < 2:
        raise click.ClickException("merge needs two or more files")
    check_output(output, files)
    first, *rest = files
    kind, head = open_structure(first, verify=True)
    if "merge" not in kind.can:
        raise click.ClickException(f"{first}: it holds {kind.title}, which cannot be merged here: merge "
                                   "filters, sketches or exact lists")  # fmt: skip
    others = []
    for path in rest:
        its_kind, other = open_structure(path, verify=True)
        if its_kind != kind:
            raise click.ClickException(
                f"cannot merge {first} and {path}: one holds {kind.title}, the other "
                f"{its_kind.title}. Build both with the same arguments"
            )
        others.append((path, other))
    merged = (_merge_tables if kind.family == "tables" else _merge_bits)(first, head, others)
    shared = reduce(and_, (os.stat(path).st_mode for path in files))
    with keep_private(~shared & 0o077):
        merged.save(output)
    report(merged, output, f"{kind.title}, of {len(files)} files", as_json, merged=list(files))


def _merge_bits(first: str, head: Any, others: list[tuple[str, Any]]) -> Any:
    """Merge filters or sketches of one plan."""
    merged = head.copy()
    join: Callable[[Any, Any], Any] = iadd if getattr(head, "semantics", None) == "multiset" else ior
    for path, other in others:
        try:
            merged = join(merged, other)
        except (ValueError, OverflowError, TypeError, FilterFullError) as error:
            _check_same(
                first, head, path, other, _PLANS, "Build both with the same --capacity, --fpr and --kind"
            )
            raise click.ClickException(f"{first} and {path}: {error}") from None
    return merged


def _merge_tables(first: str, head: Any, others: list[tuple[str, Any]]) -> Any:
    """Make a table for all keys; the value of a key in several is that of the last.

    If one of them is an exact set, so is the result: lists of earlier versions have values without meaning.
    """
    from evenbins.tables import MultilevelTable

    tables, plan = [head, *(other for _, other in others)], head.plan
    is_set = any(table.value_dtype is None for table in tables)
    for path, other in others:
        same = ("key_dtype",) if is_set else ("key_dtype", "value_dtype")
        _check_same(first, head, path, other, same, "Merge tables of one kind")
    merged = MultilevelTable(
        max(1, sum(len(table) for table in tables)), scheme=plan.scheme, levels=plan.levels, slots=plan.slots,
        key_dtype=plan.key_dtype, value_dtype=None if is_set else plan.value_dtype, seed=plan.seed,
    )  # fmt: skip
    for table in tables:
        merged.update(table)
    return merged


def _check_same(first: str, one: Any, path: str, other: Any, names: Sequence[str], remedy: str) -> None:
    """Raise an error that names the first of these things in which two plans differ, and the remedy."""
    ours, theirs = one.plan.to_dict(), other.plan.to_dict()
    difference = next((name for name in ("seed", *names) if ours.get(name) != theirs.get(name)), None)
    if difference is None:
        return
    what = f"{difference} is {ours.get(difference)} in the first and {theirs.get(difference)} in the second"
    if difference == "seed":  # it may be a secret
        what, remedy = "their seeds differ", "Build both with the same --seed, such as --seed @FILE"
    raise click.ClickException(f"cannot merge {first} and {path}: {what}. {remedy}")
