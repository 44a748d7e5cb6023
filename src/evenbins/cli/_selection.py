"""`evenbins query -o`: the rows whose key is in a filter, in the format of the inputs, with all columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenbins.cli._inputs import How
from evenbins.cli._keys import KeyRule
from evenbins.cli._output import warn_of_inputs
from evenbins.cli._passes import Outputs, batches_of
from evenbins.cli._pipeline import run_stages
from evenbins.cli._progress import Bar
from evenbins.cli._rows import RowInput, Rows, open_rows
from evenbins.cli._sinks import Sink, check_sink, open_sink
from evenbins.cli._structures import Members, open_members

if TYPE_CHECKING:
    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]

__all__ = ["open_selection", "select_rows", "write_selection"]


class _Keys:
    """The keys of a batch, as `Members` takes them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def keys(self, *, as_text: bool = False) -> Any:
        """Return the keys; integers of Parquet as text if that is wanted."""
        found: Any = self._rows.keys
        kind = getattr(found, "type", None)
        if not as_text or kind is None:
            return found
        is_integer = import_module("pyarrow").types.is_integer(kind)
        return found.cast("string") if is_integer else found


def open_selection(names: Sequence[str], output: str, how: How) -> list[RowInput]:
    """Check inputs and output, before anything is done; a column is the key."""
    fields = () if how.column is None else (how.column,)
    rule = KeyRule(fields, nulls="keep", empty_is_null=False, option="--column")
    sources = open_rows(names, how, rule, None)
    if sources[0].format == "csv" and not fields:
        sources = open_rows(names, how, rule, "lines")
    check_sink("-o", output, sources[0].format, [source.name for source in sources])
    return sources


def select_rows(
    sources: list[RowInput], output: str, members: Members, advance: Callable[[int], None], *, invert: bool,
    threads: int | None,
) -> None:  # fmt: skip
    """Write the rows whose key is in the filter, or the others; rows without a key are left out."""

    def decide(batch: tuple[RowInput, Rows]) -> tuple[Rows, Mask]:
        source, rows = batch
        there = np.ones(rows.count(), np.bool_) if rows.nulls is None else ~rows.nulls
        mask = there.copy()
        if there.any():
            found: Any = members.contains(_Keys(rows), threads=threads)  # type: ignore[arg-type]
            mask[there] = found != invert
        source.nulls += int(np.count_nonzero(~there))
        source.rows += int(np.count_nonzero(there))
        source.kept += int(np.count_nonzero(mask))
        return rows, mask

    def with_sink(sink: Sink) -> None:
        outputs = Outputs((output, sink), None)
        run_stages(batches_of(sources, advance), decide, lambda batch: outputs.write(*batch))

    open_sink(output, sources[0].format, with_sink)


def write_selection(
    file: str, inputs: Sequence[str], output: str, how: How, refused: dict[str, bool], invert: bool,
    threads: int | None, verify: bool, preload: bool,
) -> tuple[Members, list[RowInput], int, int]:  # fmt: skip
    """Do what `query -o` does; return the set, the inputs, and the numbers of rows and of those selected."""
    for name, given in refused.items():
        if given:
            raise click.ClickException(f"-o writes rows, and {name} prints none: leave out one of the two")
    sources = open_selection(inputs, output, how)
    if os.path.isfile(output) and os.path.exists(file) and os.path.samefile(file, output):
        raise click.ClickException(f"-o {output} is the filter itself: choose another name")
    members = open_members(file, verify=verify, preload=preload)
    with Bar([source.name for source in sources]) as bar:
        bar.begin("looking up")
        select_rows(sources, output, members, bar.advance, invert=invert, threads=threads)
    warn_of_inputs(sources)
    return members, sources, sum(each.rows for each in sources), sum(each.kept for each in sources)
