"""`evenbins query`: the lines that are in a filter, in the manner of grep."""

from __future__ import annotations

from collections.abc import Sequence

import click

from evenbins._console import FILE, show, show_json
from evenbins.cli._inputs import LINES, How, Input, binary_option, null_option, open_inputs
from evenbins.cli._output import leave_at_once, warn_of_inputs, write
from evenbins.cli._progress import Bar
from evenbins.cli._structures import Members, open_members
from evenbins.cli._threads import threads_option

__all__ = ["query"]


@click.command(short_help="Print the lines that are in a filter.")
@click.argument("file", type=FILE)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1, type=LINES)
@click.option("-v", "--invert-match", "invert", is_flag=True, help="Select the lines not in the filter.")
@click.option("-c", "--count", is_flag=True, help="Print only the number of selected lines, of all inputs.")
@click.option("-o", "--output", type=FILE, help="Write whole rows to this file, in the format of the inputs.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; stop at the first selected line.")
@null_option
@binary_option
@click.option("--column", help="Read CSV or Parquet, and look up this column.")
@threads_option
@click.option("--verify", is_flag=True, help="Check every byte of FILE first, not only its header.")
@click.option("--preload", is_flag=True, help="Read FILE into memory first: faster if there are many lines.")
@click.option("--json", "as_json", is_flag=True, help="Print only counts, as JSON.")
def query(
    file: str, inputs: tuple[str, ...], invert: bool, count: bool, output: str | None, quiet: bool, null:
    bool, binary: bool, column: str | None, threads: int | None, verify: bool, preload: bool,
    as_json: bool,
) -> int:  # fmt: skip
    r"""Print the lines of the INPUTs (standard input) that are in the filter FILE.

    In the manner of `grep -F -x -h -f LIST`: lines come out as they came in, \r\n included, in their order;
    a last line without newline gets one. Every line of LIST is found; of the others a few are, at the
    filter's false-positive rate, and with -v these few are missing. A FILE of `build --exact` has none.

    INPUTs that are gzip or zstd are unpacked, unless -U is given. With --column they are CSV, whose records
    are printed as they came, without the line of names; or Parquet, of which the keys are printed. With -o
    the output is a file like the inputs: CSV with its line of names, Parquet with all columns.

    Exit status: 0 if a line was selected, 1 if none was, 2 after an error.
    """
    if as_json and (count or quiet):
        raise click.ClickException("--json prints counts by itself: leave out -c and -q")
    leave_at_once()
    how = How(b"\0" if null else b"\n", binary, column)
    if output is not None:
        from evenbins.cli._selection import write_selection

        refused = {"-c": count, "-q": quiet}
        rows = write_selection(file, inputs or ("-",), output, how, refused, invert, threads, verify, preload)
        if as_json:
            _show_counts(file, *rows)
        return 0 if rows[-1] else 1
    sources = open_inputs(inputs or ("-",), how)
    members = open_members(file, verify=verify, preload=preload)
    selected = lines = 0
    with Bar([source.name for source in sources], beside_output=not (count or quiet or as_json)) as bar:
        bar.begin("looking up")
        for source in sources:
            for batch in source.batches(bar.advance):
                answers = members.contains(batch, threads=threads)
                found = int(answers.sum())
                selected += answers.size - found if invert else found
                lines += answers.size
                if quiet and selected:
                    return 0
                if not (quiet or count or as_json):
                    write(batch.select(answers, invert=invert))
    if as_json:
        _show_counts(file, members, sources, lines, selected)
    elif count and not quiet:
        show(str(selected))
    if not quiet:
        warn_of_inputs(sources)
    return 0 if selected else 1


def _show_counts(file: str, members: Members, sources: Sequence[Input], lines: int, selected: int) -> None:
    nulls = sum(source.nulls for source in sources)
    show_json({"file": file, "exact": members.exact, "lines": lines, "selected": selected, "nulls": nulls})
