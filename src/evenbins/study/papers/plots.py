"""Figures from rows, by matplotlib.

`lines` makes the `plot` of most experiments: it knows nothing of a paper, only which key of `where` is the
axis; `save` then puts the paper's letters in place of our names. A series is what the rows share otherwise.
Colours belong to it, styles to the sort of number:

    ──   exact or predicted       ─ ─  a formula beside it (quantity with a suffix)
    ┼ ●  measured, with its standard deviation      ×  the paper's number

matplotlib is an extra (`evenbins[plot]`) and imported only here, when a figure is drawn. Its pyplot is not
used: it keeps state and wants a display.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evenbins.errors import EvenbinsError
from evenbins.study.papers.registry import Experiment, Plot, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "MissingMatplotlibError", "check_available", "lines", "save"]

FORMATS = (".svg", ".png")

LETTERS: dict[str, dict[str, str]] = {
    "kanizo": {
        "block_bits": "B", "bits_per_key": "β", "choices": "d", "reads": "a", "load": "r", "overflow": "γ",
        "single": "SINGLE", "sequential": "SEQUENTIAL", "multilevel": "MHT",
    },
    "kirsch": {
        "bits_per_key": "c", "keys": "n", "hashes": "k", "levels": "d", "standard": "Std",
        "conservative": "Cons", "second-chance": "SC", "extreme-second-chance": "SCExt",
    },
    "chen": {
        "epsilon": "ε", "keys": "n", "nodes": "k", "limit": "C", "plain": "CH", "clockwise": "CH-BL",
        "jump": "RJ-CH",
    },
}  # fmt: skip
"""Our names, and what a paper calls the same; docs/papers.md has what they mean."""


class MissingMatplotlibError(EvenbinsError, ImportError):
    """matplotlib is not installed."""


def check_available() -> None:
    """Raise MissingMatplotlibError if figures cannot be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingMatplotlibError(
            f"plots need matplotlib: pip install 'evenbins[plot]' ({error})"
        ) from None


def save(experiment: Experiment, rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Draw the rows and write the figure: SVG or PNG, by the suffix of the path. Same rows, same bytes.

    Raises
    ------
    ValueError
        If the suffix is another.
    MissingMatplotlibError
        If matplotlib is not installed.
    OSError
        If the file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"path must end in {' or '.join(FORMATS)}, not {os.fspath(path)!r}")
    check_available()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": experiment.id, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
        figure.suptitle(f"{experiment.title} ({experiment.source})")
        experiment.plot(figure, rows)
        _use_letters(figure, LETTERS.get(experiment.id.partition("-")[0], {}))
        figure.savefig(path, format=suffix[1:], metadata={"Date": None} if suffix == ".svg" else None)


def in_letters(text: str, letters: Mapping[str, str]) -> str:
    """Put a paper's letters in place of our names: alone on an axis beside them, before a number with "=".

    >>> in_letters("block_bits 256, multilevel", LETTERS["kanizo"]), in_letters("reads", LETTERS["kanizo"])
    ('B = 256, MHT', 'a (reads)')
    """
    if len(letters.get(text, "")) == 1:
        return f"{letters[text]} ({text.replace('_', ' ')})"
    for name in sorted(letters, key=len, reverse=True):
        here = rf"(?<![\w-]){re.escape(name)}"
        if len(letters[name]) == 1:
            text = re.sub(rf"{here} (?=[\d.])", f"{letters[name]} = ", text)
        else:
            text = re.sub(rf"{here}(?![\w-])", letters[name], text)
    return text


def _use_letters(figure: Figure, letters: Mapping[str, str]) -> None:
    """Rewrite the labels of all axes, panels and series; titles of the experiment stay words."""
    from matplotlib.text import Text

    if letters:
        for axes in figure.axes:
            for each in axes.findobj(Text):
                each.set_text(in_letters(each.get_text(), letters))


def lines(
    *,
    x: str | Callable[[Row], float],
    y: str,
    quantities: Sequence[str] | None = None,
    xlabel: str | None = None,
    log: bool = False,
    panel: str | None = None,
) -> Plot:
    """Make a plot of lines.

    Parameters
    ----------
    x
        The key of `where` on the horizontal axis, or a function that finds the number in a row.
    y
        The label of the vertical axis.
    quantities
        Which quantities to draw; all if not given.
    xlabel
        The label of the horizontal axis, if not `x`.
    log
        Whether the vertical axis is logarithmic; rows with 0 are left out then.
    panel
        A key of `where`: each of its values has axes of its own.
    """

    def position(each: Row) -> float:
        return float(each.where[x]) if isinstance(x, str) else x(each)

    def draw(figure: Figure, rows: Sequence[Row]) -> None:
        shown = [each for each in rows if quantities is None or each.quantity in quantities]
        panels = sorted({each.where[panel] for each in shown}, key=str) if panel else [None]
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        apart = {x, panel} if isinstance(x, str) else {panel}
        for axes, value in zip(grid, panels, strict=True):
            here = [each for each in shown if panel is None or each.where[panel] == value]
            _draw_lines(axes, here, position, apart, named=isinstance(x, str), log=log)
            axes.set_xlabel(xlabel or (x if isinstance(x, str) else ""))
            if panel is not None:
                axes.set_title(f"{panel} {value}")
            if log:
                axes.set_yscale("log")
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
        grid[0].set_ylabel(y)

    return draw


def _draw_lines(
    axes: Axes,
    rows: Sequence[Row],
    x: Callable[[Row], float],
    apart: set[str | None],
    *,
    named: bool,
    log: bool,
) -> None:
    """Draw the rows of one panel; `named`: the quantity is part of a series' name, not of its axis."""
    several = named and len({each.quantity.split("_")[0] for each in rows}) > 1
    series: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for each in rows:
        if log and each.ours <= 0:
            continue
        names = [str(value) if isinstance(value, str) else f"{key} {value:g}"
                 for key, value in each.where.items() if key not in apart]  # fmt: skip
        base, _, suffix = each.quantity.partition("_") if named else ("", "", "")
        series[", ".join([*names, *([base] if several or not names else [])]), suffix].append(each)
    colours = {name: f"C{i % 10}" for i, name in enumerate(dict.fromkeys(name for name, _ in series))}
    beside = {suffix: None for name, suffix in series if suffix and (name, "") in series}
    for (name, suffix), members in series.items():
        members.sort(key=x)
        at, ours = [x(each) for each in members], [each.ours for each in members]
        label = None if suffix and (name, "") in series else f"{name}, {suffix}" if suffix else name
        if any(each.sd is not None for each in members):
            spread = [min(each.sd or 0.0, 0.999 * each.ours if log else float("inf")) for each in members]
            axes.errorbar(
                at, ours, spread, fmt="o", ms=3, capsize=2, lw=0.8, color=colours[name], label=label
            )
        else:
            style = "--" if suffix else "-"
            axes.plot(
                at, ours, style, marker="." if len(at) < 50 else "", ms=3, color=colours[name], label=label
            )
    for suffix in beside:  # once for all series, whose colours it shares
        axes.plot([], [], "--", color="0.4", label=suffix)
    printed = [each for each in rows if each.paper is not None]
    if printed:
        paper = [each.paper or 0.0 for each in printed]
        axes.plot([x(each) for each in printed], paper, "kx", ms=7, label="the paper's text")
