"""How plans and statistics look: one line, an aligned table, an HTML table.

All three take a title and rows of (name, value); the name decides how the value is written, so
that a quantity looks the same in a plan and in the statistics beside it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any, ClassVar

__all__ = ["ReprMixin", "comparison", "html_comparison", "html_table", "line", "row", "size", "table", "text"]

_RATES = frozenset({"fpr", "saturation", "saturated", "overflow", "exceed"})
_SHOWN_ITEMS = 6

Row = tuple[str, object]


class ReprMixin:
    """How a dataclass of a plan or of statistics looks: one line, a table, HTML; and as JSON.

    Attributes
    ----------
    _in_one_line : the names that `repr` shows; None for all
    _not_shown : fields that only `to_dict` has
    """

    __slots__ = ()
    _in_one_line: ClassVar[Sequence[str] | None] = None
    _not_shown: ClassVar[Sequence[str]] = ()

    def _rows(self) -> list[Row]:
        """Return name and value of every field."""
        return [(each.name, getattr(self, each.name)) for each in fields(self)]  # type: ignore[arg-type]

    def _shown_rows(self) -> list[Row]:
        return [row for row in self._rows() if row[0] not in self._not_shown]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-serialisable values."""
        return {name: plain(value) for name, value in self._rows()}

    def __repr__(self) -> str:
        names = self._in_one_line
        rows = self._shown_rows() if names is None else [(name, getattr(self, name)) for name in names]
        return line(type(self).__name__, rows)

    def __str__(self) -> str:
        return table(type(self).__name__, self._shown_rows())

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._shown_rows())


def plain(value: Any) -> Any:
    """Return a value as JSON has it: tuples as lists, times in seconds, plans as dictionaries, no NaN."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.to_dict() if hasattr(value, "to_dict") else value


def line(title: str, rows: Iterable[Row]) -> str:
    """Write the rows as `Title(name=value, ...)`; strings in quotes."""
    written = [(name, repr(value) if isinstance(value, str) else text(name, value)) for name, value in rows]
    return f"{title}({', '.join(f'{name}={value}' for name, value in written)})"


def table(title: str, rows: Iterable[Row]) -> str:
    """Write the rows as lines of two aligned columns under the title."""
    written = [(name, text(name, value)) for name, value in rows]
    width = max((len(name) for name, _ in written), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in written)])


def html_table(title: str, rows: Iterable[Row]) -> str:
    """Write the rows as an HTML table for notebooks; every text escaped."""
    body = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text(name, value))}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{html.escape(title)}</caption><tbody>{body}</tbody></table>"


def comparison(columns: tuple[str, str], rows: Iterable[tuple[str, object, object]]) -> list[str]:
    """Write rows of (name, value, value) as lines of aligned columns under two names."""
    written = [("", *columns), *((name, text(name, a), text(name, b)) for name, a, b in rows)]
    return [row(*each) for each in written]


def row(name: str, first: str, second: str) -> str:
    """Write one line of a comparison."""
    return f"  {name:<13} {first:>13} {second:>13}"


def html_comparison(title: str, columns: tuple[str, str], rows: Iterable[tuple[str, object, object]]) -> str:
    """Write rows of (name, value, value) as an HTML table with two named columns; every text escaped."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in ("", *columns))
    body = "".join(
        f"<tr><th>{html.escape(name)}</th>"
        + "".join(f"<td>{html.escape(text(name, value))}</td>" for value in values)
        + "</tr>"
        for name, *values in rows
    )
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text(name: str, value: object) -> str:
    """Format one value for people: rates 1.23e-03, bytes 18.0 MB, integers 10_000_000."""
    if hasattr(value, "tolist"):  # NumPy arrays and scalars
        value = value.tolist()
    if value is None:
        return "none"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return size(value) if name.endswith("bytes") else f"{value:_}"
    if isinstance(value, float):
        if name in _RATES:
            return f"{value:.2e}" if value else "0"
        return f"{value:_.0f}" if 1000 <= abs(value) < math.inf else f"{value:.4g}"
    if isinstance(value, tuple | list):
        shown = [text(name, item) for item in value[:_SHOWN_ITEMS]]
        if len(value) > _SHOWN_ITEMS:
            shown.append(f"… {len(value)} in all")
        return f"({', '.join(shown)})"
    return str(value)


def size(nbytes: int) -> str:
    """Write bytes in decimal units with three digits: 64 B, 18.0 MB, 1.25 GB."""
    if abs(nbytes) < 1000:
        return f"{nbytes} B"
    units = ["kB", "MB", "GB", "TB", "PB", "EB"]
    amount = nbytes / 1000
    while abs(amount) >= 999.5 and len(units) > 1:
        amount /= 1000
        del units[0]
    digits = 2 if abs(amount) < 9.995 else 1 if abs(amount) < 99.95 else 0
    return f"{amount:.{digits}f} {units[0]}"
