"""The command `evenbins`: filters for the shell.

    evenbins build keys.txt -o keys.evb      lines ──▶ a filter in a file
    evenbins query keys.evb < lines          grep's manners: prints the lines that are in it
    evenbins inspect keys.evb                plan beside stats, blocks by their load, checks
    evenbins design filter --keys 1e9 --fpr 1e-6    every design that meets it, best first
    evenbins reproduce kanizo-fig5           a paper's numbers beside ours

A key is the bytes of one line, without its newline. Nothing is decoded, nothing is trimmed, an empty line
is the empty key: so `query` prints every line of the file a filter was built from, whatever is in it.
Lines travel in blocks of whole lines and meet the core in bulk.

Invariants
- Standard output carries the answer alone, bytes as they came in; all else goes to standard error.
- Exit codes are grep's: 0 something selected (or done), 1 nothing selected, 2 an error; 130 after Ctrl-C. A
  reader that has gone (`| head`) ends the command as it ends grep, by SIGPIPE.
- An error is one line which says what to do. Commands raise; `_run` alone writes it.
- What a command does not need it does not import: rich, scipy and the benchmarks come in where they are used.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import math
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import click

import evenbins
from evenbins import BalancedBloomFilter, Filter, FilterPlan, FilterStats, FormatError, theory
from evenbins._bulk import Lines
from evenbins.cli_route import route
from evenbins.cli_simulate import simulate
from evenbins.filters import build as build_filter
from evenbins.protocols import side_by_side
from evenbins.theory import _show

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress

    from evenbins import papers
    from evenbins.design._designs import Designs

__all__ = ["commands", "main"]

_T = TypeVar("_T")
_POLICIES = BalancedBloomFilter._policies
_BLOCK_BYTES = 1 << 22
_HISTOGRAM_ROWS = 20
_BAR_WIDTH = 40

_WAY_OUT = {
    errno.ENOENT: "check the name",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "check the name",
    errno.EACCES: "check its owner and mode",
    errno.EPERM: "check its owner and mode",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "free some space or choose another place",
    errno.EDQUOT: "free some space or choose another place",
    errno.EFBIG: "raise the limit (ulimit -f) or choose another place",
}


class _OutputError(Exception):
    """Standard output cannot be written; the cause is the first argument."""


def integer(text: object) -> int:
    """Read a whole number as people write it: 10000000, 10_000_000, 1e7, 0xff."""
    with contextlib.suppress(ValueError):
        return int(str(text), 0)
    with contextlib.suppress(ValueError):
        number = float(str(text))
        if number.is_integer():
            return int(number)
    raise click.BadParameter(f"{text!r} is not a whole number such as 1000000 or 1e6")


_FILE = click.Path(readable=False)  # for completion; the commands check by themselves, with better words
_LINES = click.Path(readable=False, allow_dash=True)
_null_option = click.option(
    "-0", "--null", "null", is_flag=True, help="Lines end with a NUL byte; newlines are ordinary bytes."
)


# --- the command and its one place for errors ----------------------------------------------------------


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="evenbins", message="%(prog)s %(version)s")
def commands() -> None:
    """Bloom filters that know their own behaviour: build, query and inspect them."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: the console script `evenbins`."""
    sys.exit(_run(args))


def _run(args: Sequence[str] | None) -> int:
    try:
        status = commands.main(args, prog_name="evenbins", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return 130
    except _OutputError as error:
        _abandon_output()
        if isinstance(error.args[0], BrokenPipeError):
            _end_by_sigpipe()
        return _complain(_about(error.args[0], "standard output"))
    except click.UsageError as error:  # click's own; ours are plain ClickExceptions and say what to do
        message = error.format_message()
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            click.echo(message, err=True)
            return 2
        path = error.ctx.command_path if error.ctx else "evenbins"
        return _complain(f"{message.rstrip('.')}. Try '{path} --help'")
    except click.ClickException as error:
        return _complain(error.format_message())
    except FormatError as error:
        return _complain(f"{error}. Name a file that 'evenbins build' wrote, or build it again")
    except MemoryError as error:
        return _complain(str(error) or "not enough memory: use fewer keys or fewer bits")
    except OSError as error:
        return _complain(_about(error))


def _complain(message: str) -> int:
    click.echo("evenbins: " + " ".join(message.splitlines()), err=True)
    return 2


def _about(error: OSError, place: str | None = None) -> str:
    """Say what failed where, and a way out if one is known."""
    place = place or (os.fsdecode(error.filename) if error.filename is not None else None)
    what = error.strerror or str(error)
    way_out = _WAY_OUT.get(error.errno or 0)
    return (f"{place}: " if place else "") + what[:1].lower() + what[1:] + (f": {way_out}" if way_out else "")


@contextlib.contextmanager
def _output() -> Iterator[None]:
    """Tell failures of standard output from those of files."""
    if sys.stdout is None:  # started with it closed
        raise _OutputError(OSError(errno.EBADF, "it is closed"))
    try:
        yield
    except OSError as error:
        raise _OutputError(error) from None


def _abandon_output() -> None:
    """Let the interpreter's last flush go nowhere; it would fail again."""
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_by_sigpipe() -> NoReturn:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise SystemExit(128 + signal.SIGPIPE)  # where the signal is blocked


def _write(data: bytes) -> None:
    with _output():
        rest = memoryview(data)
        while rest:  # with PYTHONUNBUFFERED a write may be partial
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()


def _print(text: str) -> None:
    with _output():
        click.echo(text)


def _print_json(value: object) -> None:
    _print(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: object) -> object:
    """Replace infinities and nan, which JSON lacks, by null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- lines in --------------------------------------------------------------------------------------------


class _Input:
    """Lines of a file or of standard input ("-"), which can be counted before they are read.

    What cannot be rewound (a pipe) is copied to a temporary file while it is counted.
    """

    def __init__(self, name: str, separator: bytes) -> None:
        self.name = name
        self._separator = separator
        self._copy: IO[bytes] | None = None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        if self._copy is not None:
            self._copy.seek(0)
            with self._copy:
                yield self._copy
        elif self.name != "-":
            with open(self.name, "rb") as file:
                yield file
        elif sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed", "standard input")
        else:
            yield sys.stdin.buffer

    def count(self, advance: Callable[[int], None]) -> int:
        """Count the lines; `blocks` gives them still."""
        lines, ends = 0, self._separator
        with self._opened() as file:
            start = file.tell() if file.seekable() else None
            copy = tempfile.TemporaryFile() if start is None else None  # noqa: SIM115 (blocks closes it)
            for block in _read(file):
                lines += block.count(self._separator)
                ends = block[-1:]
                if copy is not None:
                    _write_copy(copy, block)
                advance(len(block))
            if start is not None:
                file.seek(start)
        self._copy = copy
        return lines + (ends != self._separator)

    def blocks(self) -> Iterator[bytes]:
        """Give blocks of whole lines; to a last line that has no newline one is added."""
        pending: list[bytes] = []
        with self._opened() as file:
            for block in _read(file):
                end = block.rfind(self._separator) + 1
                if not end:
                    pending.append(block)
                    continue
                yield b"".join([*pending, block[:end]])
                pending = [block[end:]] if end < len(block) else []
        if pending:
            yield b"".join([*pending, self._separator])


def _read(file: IO[bytes]) -> Iterator[bytes]:
    """Give what is there, at most a block of it: a line from a slow pipe is not kept waiting."""
    read1: Callable[[int], bytes] = file.read1  # type: ignore[attr-defined]
    while block := read1(_BLOCK_BYTES):
        yield block


def _write_copy(copy: IO[bytes], block: bytes) -> None:
    try:
        copy.write(block)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} (the copy of a pipe; TMPDIR says where)",
                      tempfile.gettempdir()) from None  # fmt: skip


def _lines(block: bytes, separator: bytes) -> list[bytes]:
    """Split a block of whole lines."""
    lines = block.split(separator)
    lines.pop()  # behind the last newline is nothing
    return lines


def _inputs(names: Sequence[str], *, null: bool) -> list[_Input]:
    """Check that all inputs can be read, before anything is done."""
    if names.count("-") > 1:
        raise click.ClickException("standard input (-) can be read only once")
    for name in names:
        if name != "-":
            _check_readable(name)
    return [_Input(name, b"\0" if null else b"\n") for name in names]


def _check_readable(name: str) -> int:
    mode = os.stat(name).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory", name)
    if not os.access(name, os.R_OK):
        raise PermissionError(errno.EACCES, "permission denied", name)
    return mode


def _open_filter(path: str, *, verify: bool) -> Filter:
    if not stat.S_ISREG(_check_readable(path)):
        raise click.ClickException(f"{path}: not a regular file, and cannot be mapped: copy it to one first")
    return evenbins.open(path, verify=verify)


class _Bar:
    """A progress bar on standard error, for people: on a terminal only, and only if there is much to read."""

    _WORTH_IT = 2 * _BLOCK_BYTES

    def __init__(self, names: Iterable[str]) -> None:
        sizes = [os.stat(name).st_size if name != "-" and os.path.isfile(name) else None for name in names]
        self._total = None if None in sizes else sum(size or 0 for size in sizes)
        self._for_people = sys.stderr is not None and sys.stderr.isatty()
        self._done = 0
        self._title = ""
        self._progress: Progress | None = None

    def begin(self, title: str) -> None:
        """Start from zero, with the title of what is done next."""
        self._title, self._done = title, 0
        if self._progress is not None:
            self._progress.reset(self._progress.task_ids[0], description=title, total=self._total)

    def advance(self, nbytes: int) -> None:
        """Count the bytes done."""
        self._done += nbytes
        if self._progress is None and self._for_people and self._done > self._WORTH_IT:
            self._show()
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=self._done)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._progress.add_task(self._title, total=self._total)
        self._progress.start()

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


# --- build -----------------------------------------------------------------------------------------------


@commands.command(short_help="Build a filter from lines.")
@click.argument("keys", nargs=-1, required=True, type=_LINES)
@click.option("-o", "--output", required=True, type=_FILE, help="The file to write; replaced in one step.")
@click.option("--kind", type=click.Choice(["blocked", "standard", "balanced", *_POLICIES]), default="blocked",
              show_default=True, help="One memory read a look-up; the fewest bits; few more bits and about "
              "two reads (balanced: the best of the policies that follow).")  # fmt: skip
@click.option("--fpr", type=float, help="False-positive rate to keep.  [default: 0.001]")
@click.option("--bits-per-key", type=float, help="Memory instead of --fpr.")
@click.option("--hashes", type=integer, help="Bits set for each key.  [default: the best number]")
@click.option("--capacity", type=integer, help="Keys to plan for.  [default: the number of lines]")
@click.option("--seed", type=integer, default=0, help="Seed of the hashes: 0 to 2**64-1.")
@click.option("--block-bits", type=click.Choice(["512", "256"]), help="Bits of a block.  [default: 512]")
@click.option("--reads", type=float, help="Balanced: mean memory reads of a present key, at most.")
@click.option("--miss-reads", type=float, help="Balanced: mean memory reads of an absent key, at most.")
@click.option("--overflow", type=float, help="Balanced: fraction of keys on the overflow list, at most.")
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes that share the work, by Dask.")
@click.option("--scheduler", help="A Dask cluster's address, such as tcp://host:8786.")
@click.option("--column", help="Of Parquet or CSV files: the keys' column.")
@_null_option
@click.option("--threads", type=click.IntRange(1, 1024), default=1, help="Threads that share the work.")
@click.option("--json", "as_json", is_flag=True, help="Print plan and stats as JSON, on standard output.")
def build(
    keys: tuple[str, ...], output: str, kind: str, fpr: float | None, bits_per_key: float | None,
    hashes: int | None, capacity: int | None, seed: int, block_bits: str | None, reads: float | None,
    miss_reads: float | None, overflow: float | None, workers: int | None, scheduler: str | None,
    column: str | None, null: bool, threads: int, as_json: bool,
) -> None:  # fmt: skip
    r"""Build a filter from the lines of the files KEYS (- for standard input).

    A key is the bytes of a line without its newline, \n or \r\n. Nothing else is removed or decoded: an
    empty line is the empty key, as it is for grep, and blanks count. Without --capacity the lines are
    counted first, repeated ones too; what comes from a pipe goes through a temporary file then.

    With --workers, --scheduler or --column Dask does it (pip install 'evenbins[dask]'): KEYS are then files
    or patterns of Parquet, CSV or text, and the result does not depend on the number of workers.

    Prints what was planned beside what is measured, on standard error.
    """
    if fpr is not None and bits_per_key is not None:
        raise click.ClickException("--fpr and --bits-per-key exclude each other: give one")
    if kind == "standard" and block_bits is not None:
        raise click.ClickException(
            "--block-bits is for --kind blocked and balanced: leave out one of the two"
        )
    bounds = {"reads": reads, "miss_reads": miss_reads, "overflow": overflow}
    given = [name for name, value in bounds.items() if value is not None]
    if kind in ("standard", "blocked") and given:
        option = "--" + given[0].replace("_", "-")
        raise click.ClickException(
            f"{option} is for --kind balanced and its policies: leave out one of the two"
        )
    arguments: dict[str, Any] = {"bits_per_key": bits_per_key, "hashes": hashes, "seed": seed}
    arguments["fpr"] = 1e-3 if fpr is None and bits_per_key is None else fpr
    if kind != "standard":
        arguments["block_bits"] = int(block_bits or 512)
    if kind in ("standard", "blocked"):
        planner: Callable[..., FilterPlan] = (
            theory.plan_blocked if kind == "blocked" else theory.plan_standard
        )
    else:
        planner = theory.plan_balanced
        arguments |= bounds | {"policy": None if kind == "balanced" else kind}
    plan = partial(planner, **arguments)
    if workers is not None or scheduler is not None or column is not None:
        if null or threads != 1:
            raise click.ClickException(
                "-0 and --threads are for lines without --workers, --scheduler and --column"
            )
        policy = {"policy": kind} if kind in ("standard", "blocked") else {}
        _check_output(output, keys)
        return _build_by_dask(
            keys, output, as_json, column=column, workers=workers, scheduler=scheduler, keys=capacity,
            **(arguments | policy),
        )  # fmt: skip
    _planned(partial(plan, 1 if capacity is None else capacity))  # refused now, not after reading for an hour
    inputs = _inputs(keys, null=null)
    _check_output(output, keys)
    separator = b"\0" if null else b"\n"

    with _Bar(keys) as bar:
        if capacity is None:
            bar.begin("counting lines")
            capacity = sum([each.count(bar.advance) for each in inputs])
            if capacity == 0:
                raise click.ClickException(
                    f"no keys: {', '.join(keys)} has no line. Give --capacity to build an empty filter"
                )
        filter_: Filter = build_filter(_planned(partial(plan, capacity)))
        bar.begin("adding keys")
        added = 0
        for each in inputs:
            for block in each.blocks():
                filter_.add_many(Lines(block, separator), threads=threads)
                added += block.count(separator)
                bar.advance(len(block))
    filter_.save(output)

    if as_json:
        _print_json({"file": output, "lines": added} | _measured(filter_))
    else:
        lines = [f"{click.format_filename(output)}: {filter_.plan.policy} filter, {added:_} lines added"]
        click.echo("\n".join([*lines, *_comparison(filter_.plan, filter_.stats())]), err=True)
    if added > capacity:
        click.echo(
            f"evenbins: warning: {added:_} keys in a filter planned for {capacity:_}, so more false positives"
            " than planned. Raise --capacity or leave it out", err=True,
        )  # fmt: skip


def _build_by_dask(paths: Sequence[str], output: str, as_json: bool, **request: Any) -> None:
    from evenbins.cluster import dask

    try:
        built = _planned(
            partial(
                dask.build_files,
                list(paths),
                output=output,
                **{k: v for k, v in request.items() if v is not None},
            )
        )
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename or paths[0]}: {error.strerror or error}") from None
    if as_json:
        return _print_json(
            {"file": output, "rows": built.rows, "seconds": built.seconds} | _measured(built.filter)
        )
    what = f"{click.format_filename(output)}: {built.filter.plan.policy} filter, {built.rows:_} rows added"
    click.echo("\n".join([what, *_comparison(built.filter.plan, built.filter.stats())]), err=True)


def _planned(call: Callable[[], _T]) -> _T:
    """Plan or construct; what the library says of an argument, say of the option."""
    try:
        return call()
    except (TypeError, ValueError) as error:
        names = (
            r"^(fpr|bits_per_key|hashes|capacity|seed|block_bits|reads|miss_reads|overflow|choices|keys|levels|"
            r"value_bytes|failure|false_positives|shard_bytes|build_rate|nodes|overload|searches|full|move_rate|column|"
            r"workers|scheduler)\b"
        )
        text = re.sub(names, lambda name: "--" + name[0].replace("_", "-"), str(error))
        raise click.ClickException(text) from None


def _check_output(output: str, keys: Sequence[str]) -> None:
    """Refuse a place that cannot be written, or must not be, before the work rather than after it."""
    if output == "-":
        raise click.ClickException("-o needs the name of a file; a filter is not written to standard output")
    folder = os.path.dirname(os.path.realpath(output))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such folder", folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "permission denied", folder)
    if not os.path.exists(output):
        return
    if os.path.isdir(output):
        raise IsADirectoryError(errno.EISDIR, "is a directory", output)
    if not os.path.isfile(output):
        raise click.ClickException(f"-o {output}: not a regular file; the filter would replace it")
    for name in keys:
        if name != "-" and os.path.samefile(name, output):
            raise click.ClickException(f"-o {output} is one of the files of keys: choose another name")


# --- query -----------------------------------------------------------------------------------------------


@commands.command(short_help="Print the lines that are in a filter.")
@click.argument("file", type=_FILE)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1, type=_LINES)
@click.option("-v", "--invert-match", "invert", is_flag=True, help="Select the lines not in the filter.")
@click.option("-c", "--count", is_flag=True, help="Print only the number of selected lines, of all inputs.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; stop at the first selected line.")
@_null_option
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
    sources = _inputs(inputs or ("-",), null=null)
    filter_ = _open_filter(file, verify=verify)
    separator = b"\0" if null else b"\n"
    selected = 0
    for block in itertools.chain.from_iterable(source.blocks() for source in sources):
        answers = filter_.contains_many(Lines(block, separator)) != invert
        selected += int(answers.sum())
        if quiet and selected:
            return 0
        if not (quiet or count):
            chosen = [*itertools.compress(_lines(block, separator), answers.tobytes()), b""]
            _write(separator.join(chosen))
    if count and not quiet:
        _print(str(selected))
    return 0 if selected else 1


# --- inspect ---------------------------------------------------------------------------------------------


@commands.command(short_help="Show a filter: plan beside stats, and checks.")
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Check every byte, or the header."
)
def inspect(file: str, as_json: bool, verify: bool) -> None:
    """Show the filter FILE: what was planned beside what is measured, and how its blocks are filled."""
    filter_ = _open_filter(file, verify=verify)
    file_bytes = os.stat(file).st_size
    if as_json:
        return _print_json({"file": file, "file_bytes": file_bytes, "verified": verify} | _measured(filter_))
    plan, stats = filter_.plan, filter_.stats()
    usual = plan.hashing in ("independent", "lanes")
    facts = [
        ("kind", plan.policy),
        ("hashes", f"{plan.hashes}" + ("" if usual else f" by {plan.hashing} hashing")),
        ("seed", "set (--json shows it)" if plan.seed else "0"),  # may be a secret
        ("file", f"{_show.size(file_bytes)} ({file_bytes:_} bytes)"),
        ("checks", "every byte verified" if verify else "header verified, payload not (--no-verify)"),
    ]
    if plan.block_bits is not None:
        facts[1:1] = _about_blocks(plan, stats)
    _print(
        "\n".join(
            [
                click.style(click.format_filename(file), bold=True),
                *(f"  {name:<13} {value}" for name, value in facts),
                "",
                *_comparison(plan, stats),
                *_histogram(plan, stats),
            ]
        )
    )


def _measured(filter_: Filter) -> dict[str, Any]:
    plan = filter_.plan
    return {"kind": plan.policy, "plan": plan.to_dict(), "stats": filter_.stats().to_dict()}


def _comparison(plan: FilterPlan, stats: FilterStats) -> list[str]:
    return _show.comparison(("planned", "measured"), side_by_side(plan, stats))


def _about_blocks(plan: FilterPlan, stats: FilterStats) -> list[tuple[str, str]]:
    sizes = [sum(level) for level in stats.loads]
    facts = [("blocks", f"{' + '.join(f'{size:_}' for size in sizes)} of {plan.block_bits} bits")]
    if plan.thresholds:
        shown = [str(each) for each in plan.thresholds[: len(sizes) - (plan.policy == "fill")]]
        unit = "set bits" if plan.policy == "fill" else "keys"
        facts.append(("full at", f"{', '.join(shown)} {unit}" if shown else "never"))
    if plan.overflow_limit:
        used = round(stats.overflow * stats.keys)
        facts.append(
            (
                "list",
                f"{used:_} of {plan.overflow_limit:_} keys, {round(stats.spilled * stats.keys):_} spilled",
            )
        )
    return facts


def _histogram(plan: FilterPlan, stats: FilterStats) -> list[str]:
    """Draw how many blocks of each level have which load, in about twenty rows, beside what was planned."""
    if plan.block_bits is None or not stats.loads or plan.policy == "growing":
        return []
    if plan.policy in ("blocked", "counting"):
        size = plan.block_bits // (plan.counter_bits or 1)
        planned = [theory.fpr.blocked_set_bits(size, plan.hashes, plan.keys / sum(stats.loads[0]))]
    else:
        planned = list(theory.levels.predict(plan.core, plan.keys).loads)
    counted = plan.policy in theory.levels.COUNTED
    lines = []
    for level, (counts, share) in enumerate(zip(stats.loads, planned, strict=True)):
        title = "keys" if counted else "counters" if plan.counter_bits else "set bits"
        where = f", level {level}" if len(planned) > 1 else ""
        lines += ["", _show.row(title, "planned", "measured") + f"  blocks with so many {title}{where}"]
        lines += _rows_of_histogram(counts, share)
    return lines


def _rows_of_histogram(counts: Sequence[int], share: Any) -> Iterator[str]:
    occupied = [load for load, count in enumerate(counts) if count]
    first, last = occupied[0], occupied[-1]
    step = -(-(last - first + 1) // _HISTOGRAM_ROWS)
    bins = [(low, min(low + step, len(counts))) for low in range(first, last + 1, step)]
    sums = [sum(counts[low:high]) for low, high in bins]
    bar = _bar_character()
    for (low, high), total in zip(bins, sums, strict=True):
        name = str(low) if high - low == 1 else f"{low} - {high - 1}"
        planned = f"{sum(counts) * share[low:high].sum():_.0f}"
        drawn = bar * math.ceil(_BAR_WIDTH * total / max(sums))
        yield _show.row(name, planned, f"{total:_}") + f"  {drawn}"


def _bar_character() -> str:
    try:
        "█".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return "#"
    return "█"


# --- design ----------------------------------------------------------------------------------------------


@commands.group()
def design() -> None:
    """Find the designs that meet a request, best first."""


@design.command("filter", short_help="Filters for so many keys at such a rate.")
@click.option("--keys", required=True, type=float, help="Number of keys.")
@click.option("--fpr", type=float, help="False-positive rate not to be exceeded.  [default: 0.01]")
@click.option("--bits-per-key", type=float, help="Memory not to be exceeded, everything counted.")
@click.option("--reads", type=float, help="Mean memory reads of a present key, at most.")
@click.option("--miss-reads", type=float, help="Mean memory reads of an absent key, at most.")
@click.option("--overflow", type=float, help="Fraction of keys on an overflow list, at most; 0: no list.")
@click.option("--choices", type=integer, help="Blocks a key may use, at most.")
@click.option("--merge", is_flag=True, help="Only designs that merge by a plain OR of their bits.")
@click.option("--block-bits", type=click.Choice(["512", "256"]), default="512", help="Bits of a block.")
@click.option("--hashing", default="independent", show_default=True,
              help="Hashing scheme of a standard filter; left out if its floor spoils the rate.")  # fmt: skip
@click.option("--sort", type=click.Choice(["memory", "fpr", "reads", "miss_reads"]),
              help="What comes first.  [default: memory, among those with at most 2 miss reads]")  # fmt: skip
@click.option("--shard-bytes", type=float, help="In shards of at most so many bytes.")
@click.option("--build-rate", type=float, help="Keys a second that can be added: how long a rebuild takes.")
@click.option("--json", "as_json", is_flag=True, help="Print request and designs as JSON.")
def design_filter(keys: float, block_bits: str, as_json: bool, **request: Any) -> None:
    """Find all filter designs that meet the request: standard, blocked, and each balanced policy.

    Each is planned with its best hashes, thresholds and shares; * marks the Pareto front. A design is built
    with `evenbins build --kind POLICY` and the same --fpr or --bits-per-key.
    """
    import evenbins.design

    found = _planned(partial(evenbins.design.filter, keys, block_bits=int(block_bits), **request))
    _print_designs(found, as_json)


@design.command("table", short_help="Hash tables for so many keys with so small an overflow list.")
@click.option("--keys", required=True, type=float, help="Number of keys.")
@click.option("--overflow", type=float, default=0.002, show_default=True,
              help="Fraction of keys on the overflow list, at most.")  # fmt: skip
@click.option("--levels", type=integer, help="Sub-tables.  [default: 2 for least-loaded, 4 for the others]")
@click.option("--deletions", is_flag=True, help="For endless deletions and insertions.")
@click.option("--value-bytes", type=integer, default=8, show_default=True, help="Bytes of a key's record.")
@click.option("--json", "as_json", is_flag=True, help="Print request and designs as JSON.")
def design_table(keys: float, as_json: bool, **request: Any) -> None:
    """Find the least table of each scheme: of the thesis' with 1, 2, 4 and 8 slots, and least-loaded.

    Each is planned with its best shares; list is the size of its overflow list, space its slots per key;
    * marks the Pareto front.
    """
    import evenbins.design

    _print_designs(_planned(partial(evenbins.design.table, keys, **request)), as_json)


@design.command("summary", short_help="Summaries that say in which level of a table a key is.")
@click.option("--keys", required=True, type=float, help="Number of keys.")
@click.option("--failure", type=float, default=1e-9, show_default=True,
              help="Chance that a wrong level is told for any key, or that one finds no place.")  # fmt: skip
@click.option("--false-positives", type=float, default=0.01, show_default=True,
              help="Chance that an absent key is not told so.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print request and designs as JSON.")
def design_summary(keys: float, as_json: bool, **request: Any) -> None:
    """Find the smallest summary of each kind, with the table it is for."""
    import evenbins.design

    _print_designs(_planned(partial(evenbins.design.summary, keys, **request)), as_json)


@design.command("ring", short_help="Hash rings for so many nodes and keys.")
@click.option("--nodes", required=True, type=integer, help="Number of nodes.")
@click.option("--keys", required=True, type=float, help="Keys assigned at a time.")
@click.option("--overload", type=float, help="The fullest node over the mean, at most; above 1.")
@click.option("--searches", type=float, help="Nodes that a new key looks at on average, at most.")
@click.option("--full", type=float, help="Fraction of nodes at their limit, at most.")
@click.option("--move-rate", type=float, help="Keys a second that can be moved: how long a join takes.")
@click.option("--json", "as_json", is_flag=True, help="Print request and designs as JSON.")
def design_ring(nodes: int, keys: float, as_json: bool, **request: Any) -> None:
    """Find limits for a hash ring: how even, how many searches, what moves when a node joins."""
    import evenbins.design

    _print_designs(_planned(partial(evenbins.design.ring, nodes, keys, **request)), as_json)


def _print_designs(found: Designs[Any], as_json: bool) -> None:
    if as_json:
        return _print_json(found.to_dict())
    from rich.table import Table

    head, rows = found.table()
    sheet = Table(
        title=found.caption(), title_justify="left", caption="* on the Pareto front", caption_justify="left"
    )
    for number, name in enumerate(head):
        sheet.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for row in rows:
        sheet.add_row(*row)
    _print(_rendered(sheet))


# --- reproduce -------------------------------------------------------------------------------------------


@commands.command(short_help="Repeat the papers' experiments.")
@click.argument("ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All experiments.")
@click.option("--list", "listed", is_flag=True, help="Say what there is, and run nothing.")
@click.option("--quick", is_flag=True, help="Fewer trials: a look, not a result.")
@click.option("--seed", type=integer, default=1, show_default=True, help="Of all randomness: 0 to 2**64-1.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: an object for one ID, otherwise a list.")
@click.option("--plot", type=_FILE, help="Draw an SVG or PNG, by suffix; {id} stands for the id.")
@click.option("--trace", type=_FILE, help="For chen-table1 and -table2: a log of requests of your own.")
@click.option(
    "--threads", type=click.IntRange(1, 1024), help="Threads; no number depends on it.  [default: all cores]"
)
def reproduce(
    ids: tuple[str, ...], everything: bool, listed: bool, quick: bool, seed: int, as_json: bool,
    plot: str | None, trace: str | None, threads: int | None,
) -> None:  # fmt: skip
    """Run experiments of the papers, and print the papers' numbers beside ours.

    An ID is that of one experiment (kanizo-fig5), a paper (kanizo: all of its experiments) or a pattern
    ('kanizo-fig*'). For several experiments the file's name needs {id}: --plot 'figures/{id}.svg'.
    """
    from evenbins import papers

    if everything and ids:
        raise click.ClickException(f"--all and {ids[0]} exclude each other: leave out one of the two")
    try:
        chosen = papers.select(papers.PAPERS if everything or (listed and not ids) else ids)
    except papers.UnknownExperimentError as error:
        raise click.ClickException(str(error)) from None
    if listed:
        return _list_experiments(chosen, as_json=as_json)
    if not chosen:
        raise click.ClickException("no experiment named: give an ID, or --all; --list says what there is")
    if not 0 <= seed < 2**64:
        raise click.ClickException(f"--seed must be 0 to 2**64-1, not {seed}")
    places = _plot_places(plot, [each.id for each in chosen])
    options = _trace_options(trace, chosen)
    results = []
    with _Steps(len(chosen)) as steps:
        for each in chosen:
            try:
                done = papers.run(
                    each,
                    seed=seed,
                    quick=quick,
                    threads=threads or _cores(),
                    progress=steps.begin(each.id),
                    options=options if "trace" in each.options else {},
                )
            except OSError as error:
                raise click.ClickException(f"{error.filename or trace}: {error.strerror or error}") from None
            except ValueError as error:
                if trace is None:
                    raise
                raise click.ClickException(str(error)) from None
            steps.end()
            results.append(done)
            if plot is not None:
                from evenbins.papers import plots

                plots.save(each, done.rows, places[each.id])
            if not as_json:
                steps.above(partial(_print, _result_text(each.title, done)))
    if as_json:
        one = ids == (results[0].id,)
        _print_json(results[0].to_dict() if one else [each.to_dict() for each in results])


def _trace_options(trace: str | None, chosen: Sequence[papers.Experiment]) -> dict[str, Any]:
    if trace is None:
        return {}
    if not any("trace" in each.options for each in chosen):
        raise click.ClickException("--trace is for chen-table1 and chen-table2; none of them is named")
    return {"trace": trace}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _list_experiments(chosen: Sequence[papers.Experiment], *, as_json: bool) -> None:
    from evenbins.papers import table

    if as_json:
        return _print_json([{"id": each.id, "source": each.source, "title": each.title} for each in chosen])
    _print(_rendered(table.listing(chosen)))


def _result_text(title: str, result: papers.Result) -> str:
    from evenbins.papers import table

    how = f"{result.source}; seed {result.seed}{', quick' if result.quick else ''}; {result.seconds:.1f} s"
    head = click.style(result.id, bold=True) + f"  {title} ({how})\n"
    return "\n".join([head, _rendered(table.table(result)), *table.notes(result), ""])


def _rendered(sheet: RenderableType) -> str:
    """Lay out for the terminal; for a file or a pipe as wide as it needs to be."""
    from rich.console import Console

    for_people = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if for_people else 1000
    page = io.StringIO()  # not Console.capture(), which writes to standard output all the same
    Console(file=page, highlight=False, markup=False, width=width, force_terminal=for_people).print(sheet)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def _plot_places(plot: str | None, ids: Sequence[str]) -> dict[str, str]:
    """Say where each figure goes, and refuse what cannot work before the experiments run."""
    if plot is None:
        return {}
    from evenbins.papers import plots

    if not plot.lower().endswith(plots.FORMATS):
        raise click.ClickException(f"--plot {plot}: the name must end in {' or '.join(plots.FORMATS)}")
    places = {id: plot.replace("{id}", id) for id in ids}
    if len(set(places.values())) < len(places):
        stem, suffix = os.path.splitext(plot)
        raise click.ClickException(
            f"--plot {plot} is one file for {len(ids)} experiments: put {{id}} in, as {stem}-{{id}}{suffix}"
        )
    for place in places.values():
        _check_output(place, [])
    try:
        plots.check_available()
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    return places


class _Steps:
    """Progress of experiments on standard error, on a terminal only: all of them, and the one that runs."""

    def __init__(self, experiments: int) -> None:
        self._experiments = experiments
        self._progress: Progress | None = None

    def begin(self, title: str) -> Callable[[int, int], None]:
        """Show a bar for what begins now; give the function that moves it."""
        if self._progress is None:
            return lambda done, total: None
        progress, task = self._progress, self._progress.add_task(title, total=None)
        self._task = task
        return lambda done, total: progress.update(task, completed=done, total=total)

    def end(self) -> None:
        """Remove the bar, and count."""
        if self._progress is not None:
            self._progress.remove_task(self._task)
            self._progress.advance(self._progress.task_ids[0])

    def above(self, write: Callable[[], None]) -> None:
        """Let something be printed while the bars are away."""
        if self._progress is not None:
            self._progress.stop()
        write()
        if self._progress is not None:
            self._progress.start()

    def __enter__(self) -> _Steps:
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.add_task("experiments", total=self._experiments)
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


# --- bench and demo --------------------------------------------------------------------------------------


@commands.group()
def bench() -> None:
    """Measure against other libraries."""


def _bench_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a benchmark the options that all of them have."""
    for option in (
        click.option("--markdown", is_flag=True, help="Print the table as Markdown."),
        click.option("--json", "json_path", type=_FILE, help="Write all numbers to this file."),
        click.option("--rounds", type=click.IntRange(min=1), help="Rounds of which the best counts."),
        click.option("--quick", is_flag=True, help="Small sizes: a look in seconds, not a result."),
    ):
        command = option(command)
    return command


@bench.command()
@_bench_options
@click.option("--peers", help="Only these peers, separated by commas.")
def filters(quick: bool, rounds: int | None, json_path: str | None, markdown: bool, peers: str | None) -> int:
    """Compare the filters with abloom, rbloom and others from PyPI, and with the raw memory limit."""
    try:
        from evenbins.bench.filters import main_filters

        chosen = [name.strip() for name in peers.split(",") if name.strip()] if peers is not None else None
        return main_filters(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown, peers=chosen)
    except ImportError as error:
        raise click.ClickException(f"{error}: pip install 'evenbins[bench]'") from None


@bench.command()
@_bench_options
def counting(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare the counting filter with that of fastbloom-rs."""
    from evenbins.bench.counting import main_counting

    return main_counting(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


@bench.command()
@_bench_options
def sketches(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare the count-min sketch with that of datasketches."""
    from evenbins.bench.sketches import main_sketches

    return main_sketches(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


@bench.command()
@_bench_options
@click.option("--plot", type=_FILE, help="Draw the times of single insertions: SVG or PNG.")
def tables(quick: bool, rounds: int | None, json_path: str | None, markdown: bool, plot: str | None) -> int:
    """Compare the multilevel table with a dict, cykhash, hirola and pandas."""
    from evenbins.bench.tables import main_tables

    return main_tables(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown, plot=plot)


@bench.command()
@_bench_options
@click.option(
    "--folder", type=click.Path(file_okay=False), help="On the disk to measure; kept, with its files."
)
def paged(quick: bool, rounds: int | None, json_path: str | None, markdown: bool, folder: str | None) -> int:
    """Compare the one-read table on disk with LMDB and SQLite, with a cold page cache."""
    from evenbins.bench.paged import main_paged

    return main_paged(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown, folder=folder)


@bench.command()
@_bench_options
def redis(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare the shared filter on Redis with one of GETBIT and SETBIT; starts a server of its own."""
    from evenbins.bench.redis import main_redis

    return main_redis(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


@bench.command()
@_bench_options
def rings(quick: bool, rounds: int | None, json_path: str | None, markdown: bool) -> int:
    """Compare the hash ring with uhashring, and with a ring written by hand."""
    from evenbins.bench.rings import main_rings

    return main_rings(quick=quick, rounds=rounds, json_path=json_path, markdown=markdown)


commands.add_command(simulate)
commands.add_command(route)


@commands.command()
@click.option("--keys", type=integer, default=10_000_000, show_default=True, help="Keys to generate.")
@click.option("--out", type=click.Path(file_okay=False), help="Keep the files in this folder.")
def demo(keys: int, out: str | None) -> int:
    """Show it at work on generated keys.

    Prediction beside measurement, speed, files; a few seconds. Exit status 1 if a claim does not hold.
    """
    from evenbins.demo import LEAST_KEYS, MOST_KEYS, run

    if not LEAST_KEYS <= keys <= MOST_KEYS:
        raise click.ClickException(f"--keys must be {LEAST_KEYS:_} to {MOST_KEYS:_}, not {keys}")
    return run(keys=keys, out=out)
