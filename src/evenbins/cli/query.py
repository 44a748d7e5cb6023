"""`evenbins query`."""

from __future__ import annotations

import itertools
import stat

import click

import evenbins
from evenbins._bulk import Lines
from evenbins.cli._inputs import check_readable, open_inputs, split_lines
from evenbins.cli._options import FILE, LINES, null_option
from evenbins.cli._output import show, write
from evenbins.protocols import Filter

__all__ = ["query"]


def open_filter(path: str, *, verify: bool) -> Filter:
    if not stat.S_ISREG(check_readable(path)):
        raise click.ClickException(f"{path}: not a regular file, and cannot be mapped: copy it to one first")
    return evenbins.open(path, verify=verify)


@click.command(short_help="Print the lines that are in a filter.")
@click.argument("file", type=FILE)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1, type=LINES)
@click.option("-v", "--invert-match", "invert", is_flag=True, help="Select the lines not in the filter.")
@click.option("-c", "--count", is_flag=True, help="Print only the number of selected lines, of all inputs.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; stop at the first selected line.")
@null_option
@click.option("--verify", is_flag=True, help="Check every byte of FILE first, not only its header.")
def query(
    file: str, inputs: tuple[str, ...], invert: bool, count: bool, quiet: bool, null: bool, verify: bool
) -> int:
    r"""Print the lines of the INPUTs (standard input) that are in the filter FILE.

    In the manner of `grep -F -x -h -f LIST`: lines come out as they came in, \r\n included, in their order;
    a last line without newline gets one. Every line of LIST is found; of the others a few are, at the
    filter's false-positive rate, and with -v these few are missing.

    Exit status: 0 if a line was selected, 1 if none was, 2 after an error.
    """
    sources = open_inputs(inputs or ("-",), null=null)
    filter_ = open_filter(file, verify=verify)
    separator = b"\0" if null else b"\n"
    selected = 0
    for block in itertools.chain.from_iterable(source.blocks() for source in sources):
        answers = filter_.contains_many(Lines(block, separator)) != invert
        selected += int(answers.sum())
        if quiet and selected:
            return 0
        if not (quiet or count):
            chosen = [*itertools.compress(split_lines(block, separator), answers.tobytes()), b""]
            write(separator.join(chosen))
    if count and not quiet:
        show(str(selected))
    return 0 if selected else 1
