"""`evenbins dedup`: the first of equal rows, in their order and format; of lines, JSONL, CSV and Parquet.

    options ──▶ inputs, outputs checked ──▶ how many keys? ──▶ in memory: a filter or exact digests; or on
    disk
            ──▶ the rows to a temporary file ──▶ fsync, rename ──▶ the state ──▶ the report

Nothing is written under a name before it is whole, and the state is never ahead of the output (_state.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading as _threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import click

from evenbins import _arguments as arguments
from evenbins import _platform
from evenbins._console import COUNT, FILE, RATE, SIZE, with_option_errors
from evenbins.cli._budget import KeyBudget, KeysExceedMemoryError, check_state_size, is_replaced
from evenbins.cli._inputs import LINES, How, binary_option, null_option
from evenbins.cli._keys import NULLS, KeyRule
from evenbins.cli._output import leave_at_once, note, warn, warn_of_inputs
from evenbins.cli._places import HeldSignals, check_distinct, check_folder_of, warn_instead, write_report
from evenbins.cli._progress import Bar
from evenbins.cli._rows import FORMATS, RowInput, open_rows
from evenbins.cli._sinks import Sink, check_sink, named_errors, open_sink
from evenbins.cli.seed import SecretSeed, keep_private, seed_of

if TYPE_CHECKING:
    from datetime import timedelta

    from evenbins.cli._estimate import Estimate
    from evenbins.cli._window import SeenLately
    from evenbins.deduplication.deduplicator import Deduplicator

__all__ = ["dedup"]

_FPR = 1e-9
_OWN_BYTES = 48 << 20  # of --memory for buffers and batches; the rest is for keys
_LEAST_MEMORY = 64 << 20
_SMALL_MEMORY = 1 << 29  # less than this is shared with small blocks of rows
_CHEAP_BYTES = 1 << 30  # as many keys as rows are planned for, up to this
_SHARE = 0.8  # of the memory that is available, without --memory


def _list_of(_: click.Context, parameter: click.Parameter, value: Sequence[str] | str | None) -> list[str]:
    texts = [value] if isinstance(value, str) else value or []
    if parameter.name == "fields" and not all(each for text in texts for each in text.split(",")):
        raise click.ClickException("--key has an empty name: name a field, or leave it out for whole rows")
    return [each for text in texts for each in text.split(",") if each]


@click.command(short_help="Keep the first of equal rows.")
@click.argument("inputs", metavar="[INPUT]...", nargs=-1, type=LINES)
@click.option(
    "-o", "--output", type=FILE, help="The file to write; replaced in one step.  [default: standard output]"
)
@click.option(
    "-k",
    "--key",
    "fields",
    multiple=True,
    metavar="FIELD[,FIELD]",
    callback=_list_of,
    help="Of JSONL (a.b.c for nested ones, of JSONL alone), CSV or Parquet: the fields to compare.  "
    "[default: all]",
)
@click.option(
    "--format", "format", type=click.Choice(FORMATS), help="Of the inputs.  [default: by their names]"
)
@click.option(
    "--exact",
    is_flag=True,
    help="Keep 128 bits of each key: no row is dropped wrongly. Takes 17 bytes for each of --capacity keys, "
    "or of the rows of files if it is not given; more from a pipe, while it grows.",
)
@click.option("--fpr", type=RATE, help="Rate of rows that are dropped wrongly, at most.  [default: 1e-9]")
@click.option("--capacity", type=COUNT, help="Different keys to plan for.  [default: estimated]")
@click.option(
    "--memory",
    type=SIZE,
    help="The most to use; more keys are compared in parts, on disk, exactly. A line, or a row group of "
    "Parquet, must fit beside them.",
)
@click.option(
    "--window",
    metavar="DURATION|ROWS",
    help="Compare with the rows of the last 90s, 10min, 1h or 7d, or with the last 10M rows; older ones are "
    "kept again. A duration of a pipe needs --capacity, the most different keys in it.",
)
@click.option("--state", type=FILE, help="Continue where the last run with this file ended.")
@click.option(
    "--normalize",
    "rules",
    metavar="RULES",
    callback=_list_of,
    help="Of keys: nfc, lower, strip, url, separated by commas. Rows stay as they are.",
)
@click.option(
    "--nulls",
    type=click.Choice(NULLS),
    default="error",
    show_default=True,
    help="Rows without a key: an error, keep all, or keep the first.",
)
@click.option("--dropped", type=FILE, help="Write the other rows to this file.")
@click.option("--report", metavar="FILE|-", help="Write counts, seconds and memory as JSON.")
@null_option
@binary_option
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    help="The most threads that share the look-ups, beside those that read and write.  [default: the cores]",
)
@click.option("--seed", type=seed_of, metavar="N|random|@FILE", help="Of the hashes.  [default: 0]")
@click.option("--json", "as_json", is_flag=True, help="Print the report: --report -.")
def dedup(
    inputs: tuple[str, ...], output: str | None, fields: list[str], format: str | None, exact: bool,
    fpr: float | None, capacity: int | None, memory: int | None, window: str | None, state: str | None,
    rules: list[str],
    nulls: str, dropped: str | None, report: str | None, null: bool, binary: bool, threads: int | None,
    seed: int | None, as_json: bool,
) -> None:  # fmt: skip
    r"""Write the first of equal rows of the INPUTs (standard input), in their order and format.

    INPUTs are files, folders (all files below with a known suffix) or patterns ('crawl/**/*.jsonl.gz').
    Lines, JSONL, CSV and Parquet are known by their names, gzip and zstd are unpacked. Rows come out as they
    came in, with all columns; the line of names of CSV once. OUTPUT is compressed if its name ends in .gz
    or .zst.

    Without --exact keys are kept in a filter of about 7 bytes per key, with a known number of keys: every
    repeated row is dropped, and of the others a share of --fpr at most, so of 20 million rows 0.02 are
    expected to be dropped wrongly.

    With --window a row is dropped if an equal one came within the window before it, and each renews the
    window of its key: for streams without end, in memory for one window.

    No --capacity is needed: the rows of files are estimated from a sample, and for a pipe the filter grows.
    With more keys than memory they are compared in parts, on disk and exactly.

    Prints what is planned before, and what was done after, on standard error.
    """
    leave_at_once()
    _keep_freed_memory()
    report = "-" if as_json and report is None else report
    if output == "-":
        output = None
    if report == "-" and output is None:
        raise click.ClickException("--report - and --json need -o FILE: standard output has the rows")
    how = How(b"\0" if null else b"\n", binary)
    sources = open_rows(inputs or ("-",), how, KeyRule(fields, rules, nulls), format)
    names = [source.name for source in sources]
    check_sink("-o", output, sources[0].format, names)
    if dropped is not None:
        if dropped == "-" or (output is not None and os.path.realpath(dropped) == os.path.realpath(output)):
            raise click.ClickException(f"--dropped {dropped}: name a file of its own, other than that of -o")
        check_sink("--dropped", dropped, sources[0].format, names)
    check_distinct([("-o", output), ("--dropped", dropped), ("--report", report), ("--state", state)], names)
    check_folder_of("--report", report)
    check_folder_of("--state", state)
    if fpr is not None:
        with_option_errors(partial(arguments.rate, fpr))
    if capacity is not None:
        with_option_errors(partial(arguments.capacity, capacity))
    if memory is not None and memory < _LEAST_MEMORY:
        raise click.ClickException(f"--memory must be at least 64M, not {memory:_} bytes: raise it")
    if window is not None and exact:
        raise click.ClickException("--exact keeps all keys, and --window those of a while: leave out one")
    job = _Job(
        sources, output=output, dropped=dropped, state=state, exact=exact, fpr=fpr, capacity=capacity,
        memory=memory, window=window, threads=threads, seed=seed,
    )  # fmt: skip
    with _orderly_end(), job.held:
        job.run()
        if state is None:
            job.finish(report)
            return
        with warn_instead(
            f"{output or 'standard output'} and {state} are complete, but this run's report is not: do not "
            "run the command again"
        ):
            job.finish(report)


class _Job:
    """One deduplication: what was asked for, and what has come of it."""

    def __init__(
        self, sources: list[RowInput], *, output: str | None, dropped: str | None, state: str | None,
        exact: bool, fpr: float | None, capacity: int | None, memory: int | None, window: str | None,
        threads: int | None, seed: int | None,
    ) -> None:  # fmt: skip
        self.sources, self.output, self.dropped, self.state = sources, output, dropped, state
        self.exact, self.fpr, self.capacity, self.memory = exact, fpr, capacity, memory
        self.threads, self.secret = threads, isinstance(seed, SecretSeed)
        self.seed = None if seed is None else int(seed)
        self.seen: Deduplicator | SeenLately | None = None
        self.window: timedelta | int | None = None
        if window is not None:
            from evenbins.cli._window import window_of

            self.window = window_of(window)
        self.earlier_rows, self.earlier_wrong, self.estimate = 0, 0.0, ""
        self.spilled_bytes, self.seconds = 0, 0.0
        self.held = HeldSignals()

    # --- before ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Deduplicate: output, then state."""
        from evenbins.cli._state import load_state, locked_state

        began = time.perf_counter()
        with (
            locked_state(self.state),
            Bar([s.name for s in self.sources], beside_output=not self.output) as bar,
        ):
            check_state_size(self.state, self._most_key_bytes)
            if self.window is not None:
                loaded, on_disk = self._prepare_window(self.window, bar), False
            else:
                loaded = load_state(self.state)
                on_disk = self._prepare(loaded, bar)
            self._write(bar, on_disk)
            if self.state is not None and self.seen is not None:
                with _private(self.secret and loaded is None), named_errors(self.state):
                    self.seen.save(self.state)
        self.seconds = time.perf_counter() - began

    @property
    def _most_key_bytes(self) -> int | None:
        """What --memory leaves for keys; None without it."""
        return None if self.memory is None else self.memory - _OWN_BYTES

    def _prepare(self, loaded: Deduplicator | None, bar: Bar) -> bool:
        """Make or take over what remembers keys; return whether they go to disk instead."""
        from evenbins.cli._state import check_state

        rate = _FPR if self.fpr is None else self.fpr
        if loaded is not None:
            assert self.state is not None
            check_state(self.state, loaded, exact=self.exact, fpr=self.fpr, seed=self.seed)
            self.seen, self.exact, self.seed = loaded, loaded.exact, loaded.seed
            if self.capacity is not None:
                warn(f"--capacity is ignored: {self.state} has its own size, and grows")
                self.capacity = None
            stats = loaded.stats()
            self.earlier_rows, self.earlier_wrong = stats.rows, stats.expected_wrong
            self.estimate = f"{self.state}: {stats.keys:_} keys of {stats.rows:_} rows so far"
            note(f"{self.estimate}{self._promise(None)}")
            return False
        self.seed = self.seed or 0
        estimate, fits = self._estimate(rate, bar)
        self.estimate = estimate.text
        if not fits:
            if self.state is not None:
                raise click.ClickException(
                    f"{estimate.text}: with --state all keys are in memory: raise --memory, or leave out "
                    "--state"
                )
            note(f"{estimate.text}; more keys than memory: compared in parts on disk, exactly")
            return True
        from evenbins.deduplication.deduplicator import Deduplicator

        make = partial(Deduplicator, exact=self.exact, fpr=rate, seed=self.seed)
        keys = estimate.keys if estimate.keys is None or self.capacity is not None else max(1, estimate.keys)
        self.seen = with_option_errors(partial(make, capacity=keys))
        note(f"{estimate.text}{self._promise(estimate.rows)}")
        return False

    def _prepare_window(self, window: timedelta | int, bar: Bar) -> Any:
        """Make or take over the filter of a window; return the one that was loaded."""
        from evenbins.cli._window import WINDOW_FPR, SeenLately, load_window

        self.seen = loaded = load_window(self.state, window, self.fpr, self.seed, self.capacity)
        if loaded is not None:
            self.estimate = f"{self.state}: {loaded.filter.stats().keys:_.0f} keys of the window"
            note(f"{self.estimate}{self._promise(None)}")
            return loaded
        rate, self.seed = WINDOW_FPR if self.fpr is None else self.fpr, self.seed or 0
        keys, rows = self.capacity, None
        if keys is None:
            readable = all(source.can_be_read_twice for source in self.sources)
            found = self._estimate(rate, bar)[0] if readable else None
            rows = found.rows if found is not None else None
            if isinstance(window, int):
                keys = window  # with a state later runs may have more rows, and an estimate may be too low
                if rows is not None and self.state is None:
                    keys = min(window, 2 * rows + 1)
            elif rows is None:
                raise click.ClickException(
                    f"{self.sources[0].title} is a pipe: give --capacity, the most different keys in a window"
                )
            else:
                keys = max(1, rows)
        self.capacity = None
        self.seen = SeenLately.planned(window, max(1, keys), rate, self.seed, self._most_key_bytes)
        what = f"{window:_} rows" if isinstance(window, int) else f"{window} (h:mm:ss)"
        self.estimate = f"a window of {what}, at most {keys:_} different keys"
        note(f"{self.estimate}{self._promise(rows)}")
        return None

    def _promise(self, rows: int | None) -> str:
        """Return the memory planned for and, if the number of rows is known, the errors to expect."""
        assert self.seen is not None
        what = "exact digests" if self.seen.exact else f"a filter with a rate of {self.seen.fpr:g}"
        text = f"; {what}, {self.seen.nbytes / 1e6:.3g} MB"
        if rows is not None:
            text += f": {_number(self.seen.expected_wrong(rows))} rows expected to be dropped wrongly"
        return text

    def _estimate(self, rate: float, bar: Bar) -> tuple[Estimate, bool]:
        """Return how many rows and keys will come, and whether the keys fit into memory."""
        from evenbins.cli import _estimate

        if self.capacity is not None:
            text = f"planned for {_estimate.count_text(self.capacity)} different keys, as --capacity says"
            found = _estimate.Estimate(None, self.capacity, text)
        else:
            pipes = [source for source in self.sources if not source.can_be_read_twice]
            if pipes and self.memory is None:
                what = "is read once" if pipes[0].is_regular else "is a pipe"
                text = f"{pipes[0].title} {what}: memory grows with the keys"
                return _estimate.Estimate(None, None, text), True
            for source in pipes:
                with bar.waiting("copying a pipe to disk"):
                    source.make_readable_twice()
            found = _estimate.estimate_rows(self.sources)
        limit = self.memory or int(_SHARE * _platform.available_memory())
        usable = limit - _OWN_BYTES
        needed = _estimate.filter_bytes(found.keys or 0, rate, exact=self.exact)
        if self.memory is None and self.capacity is None and needed > min(_CHEAP_BYTES, usable):
            from evenbins.deduplication.fields import keys_of

            bar.begin("counting different keys")
            assert self.seed is not None
            found = _estimate.estimate_keys(
                self.sources, self.seed, lambda keys: keys_of(keys, self.seed or 0), bar.advance
            )
            needed = _estimate.filter_bytes(found.keys or 0, rate, exact=self.exact)
        return found, needed <= usable

    # --- rows -----------------------------------------------------------------------------------------

    def _write(self, bar: Bar, on_disk: bool) -> None:
        """Write the rows; on disk after all if the keys turn out to take too much memory."""
        try:
            return self._write_once(bar, on_disk)
        except KeysExceedMemoryError as error:
            if self.state is not None:
                raise click.ClickException(f"{error}, and with --state all are in memory: raise it") from None
            if not self._can_begin_anew():
                raise click.ClickException(
                    f"{error}, and rows have been written: raise it, leave out --capacity, or name files "
                    "for input and output, which can be read and written anew"
                ) from None
            note(f"{error}: compared in parts on disk, from the beginning, exactly")
        self.seen = None  # here: the error's traceback has the keys too
        _return_freed_memory()
        for source in self.sources:
            source.rows = source.kept = source.nulls = 0
        self._write_once(bar, True)

    def _can_begin_anew(self) -> bool:
        """Return whether inputs can be read again, and nothing has been written or saved for good."""
        outputs = [self.output] if self.dropped is None else [self.output, self.dropped]
        readable = all(source.can_be_read_twice for source in self.sources)
        return self.state is None and readable and all(map(is_replaced, outputs))

    def _write_once(self, bar: Bar, on_disk: bool) -> None:
        from evenbins.cli._passes import Outputs

        format, name = self.sources[0].format, self.output or "standard output"

        def with_kept(kept: Sink) -> None:
            if self.dropped is None:
                self._pass(Outputs((name, kept), None), bar, on_disk)
            else:
                path = self.dropped
                open_sink(
                    path, format,
                    lambda others: self._pass(Outputs((name, kept), (path, others)), bar, on_disk),
                )  # fmt: skip

        open_sink(self.output, format, with_kept)

    def _pass(self, outputs: Any, bar: Bar, on_disk: bool) -> None:
        from evenbins.cli import _passes
        from evenbins.deduplication.deduplicator import Deduplicator, DeduplicatorFullError

        if on_disk:
            return self._pass_on_disk(outputs, bar)
        assert self.seen is not None
        bar.begin("comparing rows")
        try:
            _passes.dedup_in_memory(
                self.sources, outputs, self.seen, bar.advance, threads=self.threads,
                small=self.memory is not None and self.memory < _SMALL_MEMORY,
                check=KeyBudget(self._most_key_bytes, self.seen, early=self._can_begin_anew()).check,
            )  # fmt: skip
            if self.state is not None:
                self.held.hold()  # the output is renamed next, and the state must follow
        except DeduplicatorFullError:
            assert isinstance(self.seen, Deduplicator)
            raise click.ClickException(
                f"there are more different keys than a filter with this rate holds ({self.seen.max_keys:_}): "
                "give --exact, a larger --fpr, or --capacity"
            ) from None

    def _pass_on_disk(self, outputs: Any, bar: Bar) -> None:
        from evenbins.cli import _estimate, _passes, _spill

        limit = self.memory or int(_SHARE * _platform.available_memory())
        folder = _spill.folder_for(self.output)
        _spill.check_space(folder, _estimate.estimate_rows(self.sources).rows or 0)

        def begin(title: str) -> Any:
            bar.begin(title)
            return bar.advance

        with _spill.Spill(folder, max(1 << 22, (limit - _OWN_BYTES) // 2)) as spill:
            _passes.dedup_on_disk(self.sources, outputs, spill, begin, self.seed or 0)
            self.spilled_bytes = spill.nbytes

    # --- after ----------------------------------------------------------------------------------------

    def finish(self, report: str | None) -> None:
        """Print what was done; write the report."""
        from evenbins.cli._estimate import count_text

        found = self._report()
        text = f"{found['rows']:_} rows, {found['kept']:_} kept, {found['dropped']:_} dropped"
        wrong = f"{_number(found['expected_wrong'])} rows expected to be dropped wrongly"
        speed = f"{self.seconds:.1f} s, {count_text(found['rows_per_second'])} rows a second"
        note(f"{self.output or 'standard output'}: {text}; {wrong}; {speed}")
        warn_of_inputs(self.sources)
        planned = self.capacity
        if planned is not None and self.seen is not None and self.seen.stats().keys > planned:
            warn(
                f"more than the {planned:_} keys of --capacity: it took more memory. Raise it or leave it out"
            )
        if report is not None:
            with named_errors(report) if self.state is None else contextlib.nullcontext():
                write_report(report, found)

    def _report(self) -> dict[str, Any]:
        rows, kept = sum(s.rows for s in self.sources), sum(s.kept for s in self.sources)
        stats = None if self.seen is None else self.seen.stats()
        wrong = rows**2 / 2.0**129 if stats is None else max(0.0, stats.expected_wrong - self.earlier_wrong)
        return {
            "output": self.output, "format": self.sources[0].format,
            "rows": rows, "kept": kept, "dropped": rows - kept, "expected_wrong": wrong,
            "exact": stats is None or stats.exact, "fpr": None if stats is None else stats.fpr,
            "mode": "memory" if stats is not None else "disk", "estimate": self.estimate,
            "seconds": self.seconds, "rows_per_second": rows / max(self.seconds, 1e-9),
            "key_bytes": None if stats is None else stats.nbytes, "disk_bytes": self.spilled_bytes,
            "peak_memory_bytes": _platform.peak_memory(),
            "state": self.state, "earlier_rows": self.earlier_rows,
            "inputs": [
                {"name": s.name, "rows": s.rows, "kept": s.kept, "dropped": s.rows - s.kept}
                for s in self.sources
            ],
        }  # fmt: skip


def _number(value: float) -> str:
    """Return a small number for people: 0, 0.02, 3e-12."""
    return f"{value:.2g}"


def _keep_freed_memory() -> None:
    """Let glibc use freed blocks again: fetching their pages anew took a third of the system time."""
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 64 << 20)  # M_MMAP_THRESHOLD
        mallopt(-1, 256 << 20)  # M_TRIM_THRESHOLD


def _return_freed_memory() -> None:
    """Return to the system what `_keep_freed_memory` keeps."""
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def _private(wanted: bool) -> Iterator[None]:
    """Create files that only their owner can read: a state has the seed in it."""
    if not wanted:
        yield
        return
    with keep_private(0o077):
        yield


@contextlib.contextmanager
def _orderly_end() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does: temporary files are removed."""

    def leave(number: int, _: object) -> NoReturn:
        raise click.exceptions.Exit(128 + number)

    if _threading.current_thread() is not _threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, leave) for number in _platform.ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
