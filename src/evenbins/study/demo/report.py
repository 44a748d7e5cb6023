"""The demo's report: what `evenbins demo` prints, with figures, in one HTML file that needs nothing else.

    Demo.say, claim, show ──▶ Report (sections of parts) ──html──▶ one file: no script, no outside link

Text, claims and tables are those of the terminal: a part is recorded where it is printed, so that the two
cannot differ. Figures (`figures`) are drawn by matplotlib (`evenbins[plot]`) and stand in the page as
SVG; without it the report says how to get them.
Their black is the page's colour of text, so that one drawing serves light and dark.

Dropped: figures as `<img>` with a data URL, which do not take the page's colours.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import evenbins

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["COLOURS", "Report"]

COLOURS = ("#2f7ed8", "#e07b39", "#3a9a68", "#a05cb5", "#c94f5b")
"""Of series, in their order: distinct in light and dark, and for the colour-blind by lightness too."""

_INK = "#010203"  # replaced by the colour of the page's text


class Report:
    """What a demo showed, section by section."""

    def __init__(self, facts: str) -> None:
        self.facts = facts
        self._sections: list[tuple[str, list[str]]] = []
        self._claims: list[bool] = []
        self._figures = 0

    def begin(self, title: str) -> None:
        """Open a section; what follows belongs to it."""
        self._sections.append((title, []))

    def _part(self, text: str) -> None:
        if not self._sections:
            self.begin("")
        self._sections[-1][1].append(text)

    def text(self, text: str) -> None:
        """Take a line, or several, as they were printed."""
        self._part(f"<pre>{html.escape(text)}</pre>")

    def claim(self, holds: bool, text: str) -> None:
        """Take a claim, and whether it holds."""
        mark, name = ("✓", "ok") if holds else ("✗", "failed")
        self._claims.append(holds)
        self._part(f'<li class="{name}"><b>{mark}</b><span>{html.escape(text)}</span></li>')

    def table(self, table: Table) -> None:
        """Take a table that was printed."""
        aligned = ['class="l"' if column.justify == "left" else "" for column in table.columns]
        head = "".join(
            f"<th {how}>{html.escape(str(column.header))}</th>"
            for how, column in zip(aligned, table.columns, strict=True)
        )
        rows = zip(*(list(column.cells) for column in table.columns), strict=False)
        body = "".join(
            "<tr>"
            + "".join(
                f"<td {how}>{html.escape(str(cell))}</td>" for how, cell in zip(aligned, row, strict=False)
            )
            + "</tr>"
            for row in rows
        )
        self._part(
            f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def figure(self, caption: str, draw: Callable[[Figure], None], *, height: float = 3.2) -> None:
        """Draw a figure, as wide as the page and `height` inches high (of 8), with what it shows below."""
        self._figures += 1
        try:
            drawing = _svg(draw, caption, self._figures, height)
        except ImportError:
            drawing = "<p class=\"facts\">Figures need matplotlib: pip install 'evenbins[plot]'</p>"
        self._part(f"<figure>{drawing}<figcaption>{html.escape(caption)}</figcaption></figure>")

    def html(self) -> str:
        """Return the whole page."""
        failed = self._claims.count(False)
        name = "failed" if failed else "ok"
        verdict = f"{failed} claims FAILED" if failed else f"All {len(self._claims)} claims hold"
        contents = "".join(
            f'<li><a href="#s{number}">{html.escape(title)}</a></li>'
            for number, (title, _) in enumerate(self._sections, 1)
        )
        sections = "\n".join(
            f'<section><h2 id="s{number}">{html.escape(title)}</h2>\n{_group_claims(parts)}</section>'
            for number, (title, parts) in enumerate(self._sections, 1)
        )
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>evenbins {evenbins.__version__}: the demo's report</title>\n"
            f"<style>{files('evenbins.study.demo').joinpath('report.css').read_text()}</style></head>\n"
            "<body><main><h1>evenbins: prediction beside measurement</h1>\n"
            f'<p class="facts">{html.escape(self.facts)}</p>\n'
            f'<p class="verdict {name}">{verdict}</p>\n<nav><ol>{contents}</ol></nav>\n{sections}\n'
            "</main></body></html>\n"
        )


def _group_claims(parts: Sequence[str]) -> str:
    """Put claims that follow one another into one list."""
    lines: list[str] = []
    inside = False
    for part in parts:
        is_claim = part.startswith("<li")
        if is_claim != inside:
            lines.append('<ul class="claims">' if is_claim else "</ul>")
            inside = is_claim
        lines.append(part)
    return "\n".join([*lines, "</ul>"] if inside else lines)


def _svg(draw: Callable[[Figure], None], caption: str, number: int, height: float) -> str:
    """Draw, and make the drawing a part of a page: its names its own, its black the colour of text."""
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure

    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    look: Any = {
        "svg.hashsalt": f"demo-{number}", "svg.fonttype": "none", "font.size": 10,
        "axes.spines.top": False, "axes.spines.right": False, "axes.prop_cycle": cycler(color=COLOURS),
        "legend.frameon": False, "axes.grid": True, "grid.alpha": 0.2, "grid.color": _INK,
        "axes.axisbelow": True, **dict.fromkeys(ink, _INK),
    }  # fmt: skip
    page = io.StringIO()
    with matplotlib.rc_context(look):
        figure = Figure(figsize=(8, height), layout="constrained")
        draw(figure)
        figure.savefig(page, format="svg", transparent=True, metadata={"Date": None})
    text = page.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>f{number}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px system-ui, sans-serif", text).replace(
        _INK, "currentColor"
    )
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(caption)}" ', 1)
