"""`evenbins top`: the most frequent lines, by a count-min sketch and a heap."""

from __future__ import annotations

import base64
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from evenbins._console import COUNT, RATE, show_json, with_option_errors
from evenbins.cli import _inputs
from evenbins.cli._inputs import LINES, Batch, How, binary_option, null_option, open_inputs
from evenbins.cli._output import note, warn_of_inputs, write
from evenbins.cli._progress import Bar
from evenbins.cli.seed import seed_option

if TYPE_CHECKING:
    from evenbins.sketches import HeavyHitters

__all__ = ["top"]

_CONFIDENCE = 0.999
_CANDIDATES = 1000  # at least: lines whose estimates are kept, so that the last ones shown are no accident


@click.command(short_help="Show the most frequent lines.")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=LINES)
@click.option("-n", "--number", type=COUNT, default=20, show_default=True, help="Lines to show, at most.")
@click.option("--error", type=RATE, default="0.01%", show_default=True,
              help="How much too high a count may be, as a fraction of all lines.")  # fmt: skip
@click.option("--column", help="Read CSV or Parquet, and count this column's values.")
@null_option
@binary_option
@seed_option
@click.option("--json", "as_json", is_flag=True, help="Print counts and bounds as JSON.")
def top(
    files: tuple[str, ...], number: int, error: float, column: str | None, null: bool, binary: bool,
    seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Print the most frequent lines of the FILEs (standard input): count, share of all lines, line.

    In fixed memory, whatever the number of different lines. A count is never too low; it is too high by at
    most --error times the number of lines, with a probability of 99.9 % each. Like `sort | uniq -c | sort -rn
    | head`, without sorting.
    """
    from evenbins.sketches import HeavyHitters

    seen: HeavyHitters = with_option_errors(
        partial(HeavyHitters, max(number, _CANDIDATES) if number >= 1 else number, epsilon=error,
                delta=1 - _CONFIDENCE, seed=int(seed)),
        k="-n", epsilon="--error",
    )  # fmt: skip
    separator = b"\0" if null else b"\n"
    sources = open_inputs(files or ("-",), How(separator, binary, column))
    with Bar([source.name for source in sources]) as bar:
        bar.begin("counting")
        for source in sources:
            for batch in source.batches(bar.advance):
                seen.add_many(_keys_of(batch))
                bar.advance_keys(len(batch))
    total, bound = seen.total, int(error * seen.total)
    rows = [(_as_bytes(key), count) for key, count in seen.top()[:number]]
    if as_json:
        show_json({
            "lines": total, "error": error, "bound": bound, "confidence": _CONFIDENCE,
            "nulls": sum(source.nulls for source in sources), "seconds": bar.seconds,
            "top": [_as_json(key) | {"count": count, "share": count / total} for key, count in rows],
        })  # fmt: skip
    else:
        width = len(f"{rows[0][1]:_}") if rows else 1
        lines = [f"{count:>{width}_}  {count / total:>7.3%}  ".encode() + key for key, count in rows]
        write(b"".join(line + separator for line in lines))
        note(
            f"{len(rows)} of {total:_} lines{bar.summary(total)}. No count is too low; each is at most "
            f"{bound:_} too high, with a probability of {_CONFIDENCE:.1%}"
        )
    warn_of_inputs(sources)


def _keys_of(batch: Batch) -> Any:
    """Return the keys as objects that can be kept."""
    if isinstance(batch, _inputs.ColumnBatch):
        return batch.keys()
    if isinstance(batch, _inputs.CsvBatch):
        ends, data = batch.fields.offsets.tolist(), bytes(batch.fields.data)
        return [data[start:end] for start, end in pairwise(ends)]
    lines = bytes(batch.block).split(batch.how.separator)[:-1]
    if batch.how.separator == b"\n" and not batch.how.binary:
        lines = [line.removesuffix(b"\r") for line in lines]
    return lines


def _as_bytes(key: object) -> bytes:
    return key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogateescape")


def _as_json(key: bytes) -> dict[str, str]:
    try:
        return {"line": key.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(key).decode()}
