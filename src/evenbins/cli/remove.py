"""`evenbins remove`: lines out of a counting or a fingerprint filter.

The file is read into memory, every byte checked, and replaced in one step when all keys are out: an error on
the way leaves it as it was. Of two commands that change a file at the same time one is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from evenbins._console import FILE, check_output, show_json
from evenbins.cli._inputs import LINES, Batch, How, LineBatch, binary_option, null_option, open_inputs
from evenbins.cli._output import note, warn_of_inputs
from evenbins.cli._progress import Bar
from evenbins.cli._structures import kind_of
from evenbins.cli._threads import threads_option

__all__ = ["remove"]


@click.command(short_help="Remove keys from a filter.")
@click.argument("file", type=FILE)
@click.argument("keys", metavar="[KEYS]...", nargs=-1, type=LINES)
@click.option("-k", "--key", "given", multiple=True, help="Remove this key; can be given several times.")
@null_option
@binary_option
@click.option("--column", help="Of Parquet or CSV files: the keys' column.")
@threads_option
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON, on standard output.")
def remove(
    file: str, keys: tuple[str, ...], given: tuple[str, ...], null: bool, binary: bool, column: str | None,
    threads: int | None, as_json: bool,
) -> int:  # fmt: skip
    r"""Remove the lines of the files KEYS (standard input, without any and without -k) from the filter FILE.

    FILE is a filter of `build --kind fingerprint` or `--kind counting`. Each line removes one copy: a key
    that was added twice is removed by two. Keys are read as `build` reads them. FILE is replaced in one
    step, unless nothing was removed.

    Remove only keys that were added. One that never was, but is found in the filter (at its false-positive
    rate), takes away what belongs to other keys, and these are missed from then on.

    Exit status: 0 if a key was removed, 1 if none was, 2 after an error.
    """
    how = How(b"\0" if null else b"\n", binary, column)
    filter_ = _open_to_remove(file)
    sources = open_inputs(keys or (() if given else ("-",)), how)
    names = [source.name for source in sources]
    check_output(file, names, option="FILE")
    removed = lines = 0
    with Bar(names) as bar:
        bar.begin("removing keys")

        def batches() -> Iterator[Batch]:
            for key in given:
                yield LineBatch(key.encode("utf-8", "surrogateescape") + b"\0", How(b"\0", binary=True))
            for source in sources:
                yield from source.batches(bar.advance)

        for batch in batches():
            answers = filter_.remove_many(batch.keys(), threads=threads)
            removed += int(answers.sum())
            lines += answers.size
    if removed:
        filter_.save(file)
    absent, nulls = lines - removed, sum(source.nulls for source in sources)
    if as_json:
        show_json({"file": file, "removed": removed, "absent": absent, "nulls": nulls})
    else:
        are = "keys were" if absent != 1 else "key was"
        note(
            f"{click.format_filename(file)}: {removed:_} key{'s' * (removed != 1)} removed, {absent:_} {are} "
            f"not in it{bar.summary(lines)}"
        )
    warn_of_inputs(sources)
    return 0 if removed else 1


def _open_to_remove(file: str) -> Any:
    """Load a filter from which keys can be removed; raise a one-line error for anything else."""
    kind = kind_of(file)
    remedy = "name a filter of 'evenbins build --kind fingerprint' or '--kind counting'"
    if "remove" not in kind.can or kind.family != "filters":
        raise click.ClickException(
            f"{file}: it holds {kind.title}, from which 'evenbins remove' removes nothing: {remedy}"
        )
    filter_ = kind.cls.load(file)
    if getattr(filter_, "semantics", "multiset") == "set":
        raise click.ClickException(
            f'{file}: it holds {kind.title} with semantics="set", from which nothing can be removed: {remedy}'
        )
    return filter_
