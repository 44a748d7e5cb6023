"""A result as a table for people: the paper's numbers beside ours, a verdict, notes below.

How a number of a paper and ours are compared: `=` if ours, rounded to the digits that the paper prints, is
the paper's; `≈` if it is within 5 %; `≠` otherwise. Most of the last have a note below the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from evenbins.study.papers.registry import PAPERS, Experiment, Result, Row

__all__ = ["VERDICTS", "difference", "listing", "notes", "shown", "summary", "table", "verdict"]

NEAR = 0.05
VERDICTS = {"=": "as printed", "≈": "within 5 %", "≠": "further"}


def shown(result: Result, *, every_row: bool) -> Sequence[Row]:
    """Return the rows with a number of the paper, or all: on request, and if the paper has no number."""
    printed = [each for each in result.rows if each.paper is not None]
    return result.rows if every_row or not printed else printed


def table(rows: Sequence[Row]) -> Table:
    """Lay out rows."""
    numbers = _note_numbers(rows)
    sheet = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (("where", "left"), ("quantity", "left"), ("paper", "right"), ("ours", "left"),
                          ("difference", "right"), ("", "left"), ("", "left")):  # fmt: skip
        sheet.add_column(name, justify=justify, no_wrap=name != "where")  # type: ignore[arg-type]
    for each in rows:
        where = ", ".join(f"{name} {_text(value)}" for name, value in each.where.items())
        ours = f"{each.ours:.4g}" + (f" ± {each.sd:.2g}" if each.sd is not None else "")
        paper = "" if each.paper is None else f"{each.paper:g}"
        mark = "" if each.note is None else f"({numbers[each.note]})"
        sheet.add_row(where, each.quantity, paper, ours, difference(each), verdict(each), mark)
    return sheet


def notes(rows: Sequence[Row]) -> list[str]:
    """Return the notes that the rows point to, each once."""
    return [f"({number}) {note}" for note, number in _note_numbers(rows).items()]


def verdict(row: Row) -> str:
    """Compare: = as printed, ≈ near, ≠ not; nothing where the paper has no number.

    >>> from evenbins.study.papers import row
    >>> [verdict(row("x", ours, paper=2.6)) for ours in (2.64, 2.7, 3.0)], verdict(row("x", 1.0))
    (['=', '≈', '≠'], '')
    """
    if row.paper is None:
        return ""
    digits = f"{row.paper:.6g}".lstrip("-")
    mantissa, _, exponent = digits.partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    if abs(row.ours - row.paper) <= 0.5000001 * 10.0**-decimals and decimals >= 0:
        return "="
    return "≈" if row.paper and abs(row.ours / row.paper - 1) <= NEAR else "≠"


def summary(rows: Sequence[Row]) -> str:
    """Return in one line how the paper's numbers and ours agree."""
    counts = Counter(verdict(each) for each in rows if each.paper is not None)
    if not counts:
        return "The text of the paper has no number to compare with."
    parts = [f"{counts[mark]} {VERDICTS[mark]} ({mark})" for mark in VERDICTS if counts[mark]]
    return f"Numbers of the paper: {counts.total()}; {', '.join(parts)}."


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


def _note_numbers(rows: Sequence[Row]) -> dict[str, int]:
    found = dict.fromkeys(each.note for each in rows if each.note is not None)
    return {note: number for number, note in enumerate(found, 1)}
