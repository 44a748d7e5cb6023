"""`evenbins inspect`: what was planned beside what is measured, of every file that evenbins writes."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import click

from evenbins import _show
from evenbins._console import FILE, show, show_json
from evenbins.cli._output import note
from evenbins.cli._structures import open_structure
from evenbins.study.inspection import compare, describe, draw_loads, name_of

__all__ = ["inspect", "report"]

_BAR_WIDTH = 40


@click.command(short_help="Show a file: plan beside stats, and checks.")
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Check every byte, or the header."
)
@click.option("--show-seed", is_flag=True, help="Print the seed, which may be a secret.")
def inspect(file: str, as_json: bool, verify: bool, show_seed: bool) -> None:
    """Show FILE: what was planned beside what is measured, and how its blocks are filled.

    FILE is whatever evenbins wrote: a filter of any kind, also in shards (a folder), a sketch, a table, a
    summary, a ring.
    """
    _, structure = open_structure(file, verify=verify)
    file_bytes = _size_of(file)
    if as_json:
        return show_json(
            {"file": file, "file_bytes": file_bytes, "verified": verify}
            | _to_dict(structure, show_seed=show_seed)
        )
    stats = structure.stats()
    facts = describe(structure, stats)
    seed = structure.seed
    facts += [
        ("seed", f"{seed}" if show_seed or not seed else "set (--show-seed prints it)"),  # may be a secret
        ("file", f"{_show.size(file_bytes)} ({file_bytes:_} bytes)"),
        ("checks", "every byte verified" if verify else "header verified, payload not (--no-verify)"),
    ]
    width = max(13, *(len(name) for name, _ in facts))
    show(
        "\n".join(
            [
                click.style(click.format_filename(file), bold=True),
                *(f"  {name:<{width}} {value}" for name, value in facts),
                "",
                *_comparison_lines(structure.plan, stats),
                *_histogram_lines(structure, stats),
            ]
        )
    )


def _size_of(path: str) -> int:
    if not os.path.isdir(path):
        return os.stat(path).st_size
    return sum(each.stat().st_size for each in os.scandir(path) if each.is_file())


def report(structure: Any, output: str, what: str, as_json: bool, **facts: object) -> None:
    """Print what was written to a file: on standard error, or as JSON with these facts on standard output."""
    if as_json:
        return show_json({"file": output, **facts, **_to_dict(structure)})
    note(
        "\n".join(
            [
                f"{click.format_filename(output)}: {what}",
                *_comparison_lines(structure.plan, structure.stats()),
            ]
        )
    )


def _to_dict(structure: Any, *, show_seed: bool = False) -> dict[str, Any]:
    """Return plan and stats as JSON holds them; a seed is left out (null) unless it is asked for."""
    plan = structure.plan.to_dict()
    if plan.get("seed") and not show_seed:
        plan["seed"] = None
    return {"kind": name_of(structure), "plan": plan, "stats": structure.stats().to_dict()}


def _comparison_lines(plan: Any, stats: Any) -> list[str]:
    """Write what was planned beside what is measured, in lines."""
    return _show.comparison(("planned", "measured"), compare(plan, stats))


def _histogram_lines(structure: Any, stats: Any) -> list[str]:
    """Draw how full blocks, bins or nodes are, where there are some."""
    lines: list[str] = []
    bar = _bar_character()
    for columns, title, rows in draw_loads(structure, stats):
        lines += ["", f"{_show.row(*columns)}  {title}".rstrip()]
        lines += [
            f"{_show.row(*texts)}  {bar * math.ceil(_BAR_WIDTH * share)}".rstrip() for texts, share in rows
        ]
    return lines


def _bar_character() -> str:
    try:
        "█".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return "#"
    return "█"
