"""Tables by requirement: say how many keys and how small a list; get every scheme that has it, best first.

    keys, overflow, levels,       standard, conservative, second-chance,         the plans, least memory
    deletions, value_bytes   ──▶  extreme-second-chance with 1 to 8 slots,  ──▶  first, the Pareto front
                                  least-loaded: least space of each              marked, each with .build()

With deletions only the schemes whose steady state is known are offered. What a read or a move costs only the
user knows; so all are shown. `theory` plans each design; this module compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsFloat, SupportsIndex

from evenbins import _arguments, _show
from evenbins.design._designs import Designs, beats, some_of
from evenbins.tables import MultilevelTable, TablePlan, plan_multilevel
from evenbins.tables.multilevel_plan import SCHEMES, SLOTS, predictable

__all__ = ["TableDesign", "TableDesigns", "table"]

_COLUMNS = (
    ("scheme", "scheme"), ("levels", "levels"), ("slots", "slots"), ("space", "space"),
    ("bytes_per_key", "bytes/key"), ("mebibytes", "MiB"), ("overflow", "overflow"),
    ("overflow_limit", "list"), ("moves", "moves"), ("reads", "reads"), ("miss_reads", "miss reads"),
)  # fmt: skip
RESPECTS = ("nbytes", "reads", "miss_reads", "moves")
"""In what designs are compared."""
_MANY_LEVELS = 4
_LEFT_OUT = (("second-chance", 8), *(("least-loaded", slots) for slots in SLOTS))  # with more levels
_WORD = 8  # bytes of a value, and of an integer key, of a table that can be built


@dataclass(frozen=True, slots=True)
class TableDesign:
    """One design: its plan, its bytes with values of the size asked for, and whether none beats it."""

    plan: TablePlan
    value_bytes: int
    pareto: bool

    @property
    def scheme(self) -> str:
        """The plan's scheme."""
        return self.plan.scheme

    @property
    def nbytes(self) -> int:
        """Bytes of the table, list included, with values of `value_bytes`."""
        values = sum(self.plan.buckets) * self.plan.slots + self.plan.overflow_limit
        return self.plan.nbytes + values * (self.value_bytes - _WORD)

    @property
    def bytes_per_key(self) -> float:
        """The same, per key."""
        return self.nbytes / self.plan.keys

    @property
    def mebibytes(self) -> float:
        """The same in MiB."""
        return self.nbytes / 2**20

    def build(self) -> MultilevelTable:
        """Build the table.

        Raises
        ------
        ValueError
            The design is for values of another size, and a MultilevelTable holds 8 bytes a key. Build that,
            and let its values be places in an array of the records.

        Examples
        --------
        >>> t = table(1000, overflow=0.002)[0].build()
        >>> t[5] = 7
        >>> t[5]
        7
        """
        if self.value_bytes != _WORD:
            raise _arguments.unmet(
                "value_bytes",
                f" must be {_WORD} to build; this design has {self.value_bytes}. Design with "
                f"{_WORD}, and let the values be places in an array of your records",
            )
        return MultilevelTable.from_plan(self.plan)

    def to_dict(self) -> dict[str, object]:
        """Return the plan by name, with the mark, as plain values that JSON can hold."""
        return self.plan.to_dict() | {
            "nbytes": self.nbytes, "bytes_per_key": self.bytes_per_key, "value_bytes": self.value_bytes,
            "pareto": self.pareto,
        }  # fmt: skip

    def cell(self, name: str) -> str:
        """Return a quantity as text."""
        if name == "mebibytes":
            return f"{self.mebibytes:.4g}" if self.mebibytes < 1000 else f"{self.mebibytes:,.0f}"
        if name == "bytes_per_key":
            return f"{self.bytes_per_key:.2f}"
        return _show.text(name, getattr(self.plan, name))


class TableDesigns(Designs[TableDesign]):
    """All designs that meet a request, best first; prints as a table, in notebooks as HTML."""

    _title = "table designs"
    _columns = _COLUMNS

    def by_scheme(self, scheme: str, slots: int | None = None) -> TableDesign:
        """Return the best design of a scheme; KeyError if the request rules it out."""
        for each in self:
            if each.scheme == scheme and slots in (None, each.plan.slots):
                return each
        raise KeyError(scheme if slots is None else (scheme, slots))

    def build(self) -> MultilevelTable:
        """Build the best design."""
        return self.best.build()


def table(
    keys: SupportsIndex | SupportsFloat, *, overflow: float = 0.002, levels: int | None = None,
    deletions: bool = False, value_bytes: int = 8, schemes: Sequence[str] | None = None,
    slots: Sequence[int] | None = None, key_dtype: str = "int64", seed: int = 0,
) -> TableDesigns:  # fmt: skip
    """Find the table of each scheme that has the overflow with the least space; the smallest first.

    Parameters
    ----------
    keys, overflow, key_dtype, seed
        As of `MultilevelTable`; keys is its capacity.
    levels
        Sub-tables: what a look-up of an absent key reads. By default 2 for "least-loaded", 4 for the
        others.
    deletions
        For endless deletions and insertions. Only schemes whose steady state is known are offered.
    value_bytes
        Bytes of a key's record; 8 can be built.
    schemes, slots
        Only these; by default all, but with five levels and more not "least-loaded", of which only up to four
        were measured, nor "second-chance" with 8 slots, whose planning takes a quarter of an hour.

    Raises
    ------
    ValueError
        Nothing meets the request.

    Examples
    --------
    >>> designs = table(1_000_000, overflow=0.002)
    >>> designs.by_scheme("least-loaded").plan.space < 1.05
    True
    >>> round(designs.by_scheme("second-chance", slots=1).plan.space, 2)
    1.29
    """
    wanted = some_of("schemes", schemes, SCHEMES)
    sizes = some_of("slots", slots, SLOTS)
    value_bytes = _arguments.integer("value_bytes", value_bytes, 0, 2**20, "Pass the bytes of a record")
    request: dict[str, object] = {
        "keys": keys, "overflow": overflow, "levels": levels, "deletions": deletions or None,
        "value_bytes": None if value_bytes == _WORD else value_bytes,
    }  # fmt: skip
    plans = []
    for scheme in wanted:
        for size in sizes:
            unknown = schemes is None and (levels or 0) > _MANY_LEVELS and (scheme, size) in _LEFT_OUT
            if unknown or not predictable(scheme, size, deletions):
                continue
            plans.append(
                plan_multilevel(
                    keys, scheme=scheme, levels=levels, slots=size, overflow=overflow, deletions=deletions,
                    key_dtype=key_dtype, seed=seed,
                )
            )  # fmt: skip
    if not plans:
        raise ValueError(
            f"nothing is known of {', '.join(wanted)} with {', '.join(map(str, sizes))} slots"
            + (" under deletions" if deletions else "")
            + '. Ask for "standard" or "least-loaded" too'
        )
    designs = [
        TableDesign(plan, value_bytes, pareto=not any(beats(other, plan, RESPECTS) for other in plans))
        for plan in plans
    ]
    return TableDesigns(sorted(designs, key=lambda each: (each.nbytes, each.plan.reads or 0.0)), request)
