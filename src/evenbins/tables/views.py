"""What `keys()`, `values()` and `items()` of a table return: live views, as those of a dict.

They iterate in pages, without a copy of the table; `repr` shows the first few and counts the rest.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenbins.tables.mapping import TableMapping

__all__ = ["TableItems", "TableKeys", "TableValues"]

_SHOWN = 5


def _first_ones(view: Any) -> str:
    """Return a view as text: `TableKeys([1, 2, ... 998 more])`."""
    shown = [repr(each) for each in islice(iter(view), _SHOWN)]
    left = len(view) - len(shown)
    more = [f"... {left:_} more"] if left > 0 else []
    return f"{type(view).__name__}([{', '.join(shown + more)}])"


class TableKeys(KeysView[Any]):
    """The keys of a table: integers, or digests as integers of 128 bits, which are not its keys."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _first_ones(self)


class TableValues(ValuesView[Any]):
    """The values of a table, in the order of the keys."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        table: TableMapping = self._mapping  # type: ignore[attr-defined]
        for _, values in table._batches():
            yield from table._guarded(values)

    def __contains__(self, value: object) -> bool:
        return any(each == value for each in self)

    def __repr__(self) -> str:
        return _first_ones(self)


class TableItems(ItemsView[Any, Any]):
    """Pairs of key and value."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        table: TableMapping = self._mapping  # type: ignore[attr-defined]
        for keys, values in table._batches():
            yield from table._guarded(list(zip(keys, values, strict=True)))

    def __repr__(self) -> str:
        return _first_ones(self)
