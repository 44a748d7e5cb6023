"""A list of designs, best first, that prints as a table: the same for filters and tables."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, overload

from evenbins import _show
from evenbins.filters.plan import FilterPlan
from evenbins.filters.sharded_plan import ShardedPlan


class Design(Protocol):
    """What a row of the table is made from."""

    @property
    def pareto(self) -> bool:
        """Whether no other design is as good in every respect and better in one."""
        ...

    def cell(self, name: str) -> str:
        """Return a quantity as text."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Return the design as plain values that JSON can hold."""
        ...


D = TypeVar("D", bound=Design)
F = TypeVar("F", FilterPlan, ShardedPlan)
P = TypeVar("P", bound="PlanDesign[Any]")
T = TypeVar("T", str, int)


class Designs(Sequence[D], Generic[D]):
    """All designs that meet a request, best first; prints as a table, in notebooks as HTML."""

    _title: ClassVar[str]
    _columns: ClassVar[Sequence[tuple[str, str]]]  # quantity, heading

    def __init__(self, designs: Iterable[D], request: dict[str, object]) -> None:
        self._designs = tuple(designs)
        self.request = request

    @overload
    def __getitem__(self, index: int) -> D: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[D, ...]: ...
    def __getitem__(self, index: int | slice) -> D | tuple[D, ...]:
        return self._designs[index]

    def __len__(self) -> int:
        return len(self._designs)

    def __iter__(self) -> Iterator[D]:
        return iter(self._designs)

    @property
    def best(self) -> D:
        """The first of them."""
        return self._designs[0]

    def to_dict(self) -> dict[str, object]:
        """Return request and designs as plain values that JSON can hold."""
        return {"request": self.request, "designs": [each.to_dict() for each in self]}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the column names and the rows of the table; the mark of the Pareto front comes first."""
        rows = [
            ["*" if each.pareto else "", *(each.cell(name) for name, _ in self._columns)] for each in self
        ]
        return ["", *(title for _, title in self._columns)], rows

    def caption(self) -> str:
        """Return the request in one line."""
        asked = ", ".join(
            f"{name}={_asked(value)}" for name, value in self.request.items() if value is not None
        )
        return f"{self._title} for {asked}"

    def __str__(self) -> str:
        head, rows = self.table()
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        lines = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in [head, *rows]
        ]
        stars = "* Pareto-optimal: no other design is at least as good everywhere and better somewhere"
        return "\n".join([self.caption(), *lines, stars])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, rows = self.table()

        def cells(row: Sequence[str], tag: str) -> str:
            return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)

        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
        return (
            f"<table><caption>{html.escape(self.caption())}; * on the Pareto front</caption>"
            f"<thead><tr>{cells(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"
        )


@dataclass(frozen=True, slots=True)
class PlanDesign(Generic[F]):
    """A filter's design: its plan, and whether no other is as good in every respect and better in one."""

    plan: F
    pareto: bool

    @property
    def policy(self) -> str:
        """The plan's policy."""
        return self.plan.policy

    def to_dict(self) -> dict[str, object]:
        """Return the plan by name, with the mark, as plain values that JSON can hold."""
        return self.plan.to_dict() | {"pareto": self.pareto}

    def cell(self, name: str) -> str:
        """Return a quantity as text."""
        return _show.text(name, getattr(self.plan, name))


class PolicyDesigns(Designs[P], Generic[P]):
    """Designs of which each has a policy."""

    def by_policy(self, policy: str) -> P:
        """Return the design of a policy; KeyError if the request rules it out."""
        for design in self:
            if design.policy == policy:
                return design
        raise KeyError(policy)


def some_of(name: str, given: Sequence[T] | None, known: Sequence[T]) -> list[T]:
    """Check a list of some known ones; None is all of them."""
    if given is None:
        return list(known)
    if isinstance(given, str) or not given or not set(given) <= set(known):
        raise ValueError(
            f"{name} must be a list of some of {', '.join(map(str, known))}; got {given!r}. "
            "Leave it out for all"
        )
    return list(given)


def beats(other: object, plan: object, names: Sequence[str]) -> bool:
    """Return whether `other` is at most `plan` in all these respects, and less in one: less is better."""
    pairs = [(getattr(other, name) or 0.0, getattr(plan, name) or 0.0) for name in names]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def with_marks(plans: Sequence[F], names: Sequence[str]) -> list[tuple[F, bool]]:
    """Return each plan, and whether no other beats it in these respects."""
    return [(plan, not any(beats(other, plan, names) for other in plans)) for plan in plans]


def _asked(value: object) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e18:
        value = int(value)
    return f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) else f"{value}"
