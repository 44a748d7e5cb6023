"""SVG from a few shapes: what every picture of README and docs is drawn with.

    p = Picture("name", 640, 300, title="...", desc="...")      a card with a background of its own
    p.rect(...); p.text(...); p.arrow(...)
    p.svg()                                                      the file's text

Colours are names (`KEY`, `FULL`, `SENT` ...), which the picture's own style maps to two palettes: light, and
dark by `prefers-color-scheme`. A picture shown by <img> follows the page, or the system where a page says
nothing; since it brings its own background it can be read even if the two disagree.

Invariants
- The same calls give the same bytes: coordinates are rounded to a tenth, nothing depends on the time.
- Text is 16 units or more in a picture of 640: about 9 pixels on a phone of 390.
- A picture has a title and a description, for readers who do not see it.

Tried and dropped: matplotlib. Its text is either paths (large, not searchable) or placed for a font that the
reader lacks, and it has one palette a file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

BACK, INK, MUTED, LINE, PANEL = "back", "ink", "muted", "line", "panel"
KEY, SOFT, FULL, SENT, LIST, FAINT = "key", "soft", "full", "sent", "list", "faint"

_LIGHT = {
    BACK: "#fbfaf7", PANEL: "#ffffff", INK: "#22303c", MUTED: "#5d6b78", LINE: "#c3ccd4", FAINT: "#e9edf0",
    KEY: "#2f6f9f", SOFT: "#b9d4e7", FULL: "#c2514a", SENT: "#cf7322", LIST: "#2f8a72",
}  # fmt: skip
_DARK = {
    BACK: "#191f25", PANEL: "#202830", INK: "#e8ebee", MUTED: "#a5b1bc", LINE: "#4a5763", FAINT: "#2a333c",
    KEY: "#72b3df", SOFT: "#31536e", FULL: "#ea867c", SENT: "#f2a55f", LIST: "#62bfa5",
}  # fmt: skip


def _style() -> str:
    def palette(colours: dict[str, str]) -> str:
        return "".join(f"--{name}:{value};" for name, value in colours.items())

    classes = "".join(f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}" for name in _LIGHT)
    return (
        f"svg{{{palette(_LIGHT)}}}"
        f"@media(prefers-color-scheme:dark){{svg{{{palette(_DARK)}}}}}"
        "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}"
        ".mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
        ".b{font-weight:600}.none{fill:none}"
        f"{classes}"
    )


def number(value: float) -> str:
    """Return a coordinate: a tenth is enough.

    >>> number(3.0), number(2.04), number(-0.01)
    ('3', '2', '0')
    """
    rounded = round(value * 10) / 10 + 0.0
    return f"{rounded:.1f}".removesuffix(".0")


def points(pairs: Iterable[tuple[float, float]]) -> str:
    """Return points as a path's lines."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in pairs)


@dataclass
class Picture:
    """A picture under construction.

    Parameters
    ----------
    name
        Of the file, without suffix.
    width, height
        Of the view box; what is shown scales.
    title, desc
        What it is, in some words; what it shows, in a sentence or two.
    """

    name: str
    width: float
    height: float
    title: str
    desc: str
    parts: list[str] = field(default_factory=list)

    def rect(
        self, x: float, y: float, width: float, height: float, *, fill: str | None = None,
        stroke: str | None = None, line: float = 1.5, corner: float = 0, opacity: float = 1, dash: str = "",
    ) -> None:  # fmt: skip
        """Draw a rectangle, perhaps with round corners."""
        corners = f' rx="{number(corner)}"' if corner else ""
        self.parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
            f"{corners}"
            f"{_paint(fill, stroke, line, opacity, dash)}/>"
        )

    def circle(
        self, x: float, y: float, radius: float, *, fill: str | None = None, stroke: str | None = None,
        line: float = 1.5, opacity: float = 1, dash: str = "",
    ) -> None:  # fmt: skip
        """Draw a circle."""
        self.parts.append(
            f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"'
            f"{_paint(fill, stroke, line, opacity, dash)}/>"
        )

    def path(
        self, d: str, *, stroke: str | None = LINE, fill: str | None = None, line: float = 1.5,
        opacity: float = 1, dash: str = "",
    ) -> None:  # fmt: skip
        """Draw a path, given in SVG's own letters."""
        self.parts.append(
            f'<path d="{d}" stroke-linecap="round" stroke-linejoin="round"'
            f"{_paint(fill, stroke, line, opacity, dash)}/>"
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, *, stroke: str = LINE, line: float = 1.5,
        dash: str = "", opacity: float = 1,
    ) -> None:  # fmt: skip
        """Draw a straight line."""
        self.path(points([(x1, y1), (x2, y2)]), stroke=stroke, line=line, dash=dash, opacity=opacity)

    def text(
        self, x: float, y: float, text: str, *, size: float = 17, fill: str = INK, anchor: str = "start",
        bold: bool = False, mono: bool = False,
    ) -> None:  # fmt: skip
        """Write one line of text; y is its base line."""
        names = " ".join([f"f-{fill}", *(["b"] if bold else []), *(["mono"] if mono else [])])
        where = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(
            f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" class="{names}"{where}>'
            f"{escape(text)}</text>"
        )

    def arrow(
        self, x1: float, y1: float, x2: float, y2: float, *, stroke: str = MUTED, line: float = 2.2,
        bend: float = 0, head: float = 9, dash: str = "", opacity: float = 1,
    ) -> None:  # fmt: skip
        """Draw an arrow; `bend` shifts its middle to the left of its direction, in units."""
        dx, dy = x2 - x1, y2 - y1
        length = math.hypot(dx, dy) or 1.0
        cx = (x1 + x2) / 2 + 2 * bend * dy / length
        cy = (y1 + y2) / 2 - 2 * bend * dx / length
        ax, ay = x2 - cx, y2 - cy  # its direction at the head
        norm = math.hypot(ax, ay) or 1.0
        ux, uy = ax / norm, ay / norm
        ex, ey = x2 - ux * head * 0.8, y2 - uy * head * 0.8
        if bend:
            body = f"M{number(x1)} {number(y1)}Q{number(cx)} {number(cy)} {number(ex)} {number(ey)}"
        else:
            body = points([(x1, y1), (ex, ey)])
        self.path(body, stroke=stroke, line=line, dash=dash, opacity=opacity)
        half = head * 0.5
        tip = [(x2, y2), (x2 - ux * head - uy * half, y2 - uy * head + ux * half),
               (x2 - ux * head + uy * half, y2 - uy * head - ux * half)]  # fmt: skip
        self.path(points(tip) + "Z", stroke=None, fill=stroke, opacity=opacity)

    def chip(
        self,
        x: float,
        y: float,
        text: str,
        *,
        colour: str = KEY,
        size: float = 17,
        width: float | None = None,
    ) -> float:
        """Draw a key: a small rounded label with its centre at x, y; its width comes back."""
        width = width or 18 + size * 0.62 * len(text)
        self.rect(
            x - width / 2,
            y - size * 0.85,
            width,
            size * 1.7,
            fill=PANEL,
            stroke=colour,
            line=2,
            corner=size * 0.85,
        )
        self.text(x, y + size * 0.35, text, size=size, fill=colour, anchor="middle", bold=True, mono=True)
        return width

    def axis(
        self, x1: float, x2: float, y: float, ticks: Sequence[tuple[float, str]], label: str = ""
    ) -> None:
        """Draw a horizontal axis with ticks at given places, and a label below."""
        self.line(x1, y, x2, y, stroke=MUTED, line=1.2)
        for at, text in ticks:
            self.line(at, y, at, y + 5, stroke=MUTED, line=1.2)
            self.text(at, y + 22, text, size=16, fill=MUTED, anchor="middle")
        if label:
            self.text((x1 + x2) / 2, y + 44, label, size=16, fill=MUTED, anchor="middle")

    def svg(self) -> str:
        """Return the file's text."""
        body = "\n".join(self.parts)
        width, height = number(self.width), number(self.height)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-labelledby="t d">\n'
            f'<title id="t">{escape(self.title)}</title>\n<desc id="d">{escape(self.desc)}</desc>\n'
            f"<style>{_style()}</style>\n"
            f'<rect width="{width}" height="{height}" rx="14" class="f-{BACK}"/>\n{body}\n</svg>\n'
        )


def _paint(fill: str | None, stroke: str | None, line: float, opacity: float, dash: str) -> str:
    names = [f"f-{fill}" if fill else "none"]
    more = ""
    if stroke:
        names.append(f"s-{stroke}")
        more = f' stroke-width="{number(line)}"'
    if dash:
        more += f' stroke-dasharray="{dash}"'
    if opacity < 1:
        more += f' opacity="{round(opacity, 2):g}"'
    return f' class="{" ".join(names)}"{more}'
