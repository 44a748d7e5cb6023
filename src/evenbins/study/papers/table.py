"""A result as a table for people: the paper's numbers beside ours, notes below."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from evenbins.study.papers.registry import PAPERS, Experiment, Result, Row

__all__ = ["difference", "listing", "notes", "table"]


def table(result: Result) -> Table:
    """Lay out the rows."""
    numbers = _note_numbers(result)
    sheet = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (("where", "left"), ("quantity", "left"), ("paper", "right"), ("ours", "left"),
                          ("difference", "right"), ("", "left")):  # fmt: skip
        sheet.add_column(name, justify=justify, no_wrap=name != "where")  # type: ignore[arg-type]
    for each in result.rows:
        where = ", ".join(f"{name} {_text(value)}" for name, value in each.where.items())
        ours = f"{each.ours:.4g}" + (f" ± {each.sd:.2g}" if each.sd is not None else "")
        paper = "" if each.paper is None else f"{each.paper:g}"
        mark = "" if each.note is None else f"({numbers[each.note]})"
        sheet.add_row(where, each.quantity, paper, ours, difference(each), mark)
    return sheet


def notes(result: Result) -> list[str]:
    """Return the notes that the rows point to, each once."""
    return [f"({number}) {note}" for note, number in _note_numbers(result).items()]


def difference(row: Row) -> str:
    """Return how far ours is from the paper's number: in percent, or as a factor if that is far.

    >>> from evenbins.study.papers import row
    >>> difference(row("fpr", 2.1e-7, paper=2.0e-7)), difference(row("fpr", 8e-7, paper=2.0e-7))
    ('+5.0 %', '× 4')
    """
    if row.paper is None:
        return ""
    if not row.paper:
        return f"{row.ours:+.2g}"
    ratio = row.ours / row.paper
    return f"{100 * (ratio - 1):+.1f} %" if 0.5 < ratio < 2 else f"× {ratio:.3g}"


def listing(experiments: Sequence[Experiment]) -> Table:
    """Lay out experiments, by paper."""
    sheet = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(2):
        sheet.add_column(no_wrap=True)
    sheet.add_column()
    for paper, title in PAPERS.items():
        members = [each for each in experiments if each.id.startswith(f"{paper}-")]
        if members:
            sheet.add_row(Text(paper, style="bold"), "", title)
        for each in members:
            sheet.add_row(f"  {each.id}", each.source.partition(", ")[2], each.title)
    return sheet


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _note_numbers(result: Result) -> dict[str, int]:
    found = dict.fromkeys(each.note for each in result.rows if each.note is not None)
    return {note: number for number, note in enumerate(found, 1)}
