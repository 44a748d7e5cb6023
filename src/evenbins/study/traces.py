"""Traces: who asked for what, and when. Read from a log, drawn at random, written.

    log.csv, .tsv, .gz, .zst, .parquet ──read_trace──▶ Trace (times, digests) ──▶ simulate.replay_cache
                                 synthetic_trace ──▶

A trace is two arrays: times in milliseconds, ascending, and the 64-bit digests of what was asked for.
Nothing else of a log is kept, so 3.8 million requests are 61 MB. In a text file a key is the bytes of its
field, whatever their encoding. A row whose key is empty asked for nothing (in the AOL log: a query without a
click) and is skipped, counted.

Times are whole or decimal numbers, or ISO 8601 (without a zone: UTC; only differences matter). Numbers are
seconds, unless the first one is so large (1e11, the year 5138) that it must be milliseconds, and so on by
steps of a thousand; `time_format`, or a column's name such as `time_ms`, says it outright. Requests of one
time stay in the order of the file.

`synthetic_trace` has exactly the requests and the distinct urls it is asked for: each url once, the rest
drawn by Zipf's law. What it leaves out that a real log has: sessions, fashions, weekdays. Dropped:
apportioning the counts by rounding c / rank^s, which has no law to test against.
"""

from __future__ import annotations

import csv
import io
import math
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _show
from evenbins._arguments import integer, real
from evenbins._arguments import seed as checked_seed
from evenbins.errors import EvenbinsError
from evenbins.hashing import digest_many
from evenbins.study.compressed_files import CompressedError, open_named

__all__ = ["SYNTHETIC", "Trace", "TraceError", "read_trace", "synthetic_trace", "write_trace"]

_BATCH = 1 << 16
_MOST_TIME = 2**60  # milliseconds
_UNITS = {"s": 1_000.0, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
_TIME_NAMES = ("time", "timestamp", "datetime", "date", "querytime", "ts", "when",
               *(f"time_{unit}" for unit in _UNITS), *(f"timestamp_{unit}" for unit in _UNITS))  # fmt: skip
_KEY_NAMES = ("url", "key", "clickurl", "uri", "request", "object", "path", "host", "id", "digest")

SYNTHETIC: dict[str, dict[str, Any]] = {
    "aol": {"requests": 3_826_181, "urls": 607_782, "minutes": 92 * 1440, "exponent": 0.8, "swing": 0.6},
    "indiana": {"requests": 1_000_000, "urls": 26_062, "minutes": 24, "exponent": 0.8},
}
"""Arguments of `synthetic_trace` for the counts of the chen paper.

AOL: its log covers 1 March to 31 May 2006, 92 days, so nights are in it: at noon 1.6 times the mean rate, at
midnight 0.4 times, a guess. Indiana: "the first 1,000,000"; its collectors give 60 million requests a day,
which makes 24 minutes. The exponent is of the range 0.64 to 0.83 that Breslau, Cao, Fan, Phillips and
Shenker found for six proxies ("Web caching and Zipf-like distributions", INFOCOM 1999).
"""


class TraceError(EvenbinsError, ValueError):
    """A file that is not a trace; the message names file, line and remedy."""


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """Requests in the order of their times.

    Parameters
    ----------
    times
        Milliseconds since any moment, ascending (int64).
    digests
        What was asked for (uint64).
    name
        Where it comes from.
    skipped
        Rows of the file that had no key.

    Examples
    --------
    >>> trace = Trace([0, 500, 60_000], [7, 8, 7])
    >>> trace
    Trace(name='trace', requests=3, distinct=2, minutes=1, skipped=0)
    >>> trace.head(2).distinct
    2
    """

    times: npt.NDArray[np.int64]
    digests: npt.NDArray[np.uint64]
    name: str = "trace"
    skipped: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        times, digests = np.asarray(self.times), np.asarray(self.digests)
        if times.ndim != 1 or times.shape != digests.shape:
            raise ValueError(
                f"times and digests must be two arrays of one length; got shapes {times.shape} and "
                f"{digests.shape}. Pass one digest for each time"
            )
        if times.size and (times.dtype.kind not in "iu" or digests.dtype.kind not in "iu"):
            raise TypeError(
                f"times and digests must be whole numbers; got {times.dtype} and {digests.dtype}. "
                "Pass milliseconds, and digests as evenbins.digest_many gives them"
            )
        times = np.ascontiguousarray(times, dtype=np.int64)
        if (np.diff(times) < 0).any():
            at = int(np.argmax(np.diff(times) < 0)) + 1
            raise ValueError(
                f"times must ascend; got {times[at]} at {at} after {times[at - 1]}. Sort both arrays before"
            )
        if times.size and max(-int(times[0]), int(times[-1])) > _MOST_TIME:
            raise arguments.error(
                "times", "-2**60 to 2**60", (int(times[0]), int(times[-1])), "Pass milliseconds"
            )
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "digests", np.ascontiguousarray(digests, dtype=np.uint64))

    def __len__(self) -> int:
        return int(self.times.size)

    @property
    def requests(self) -> int:
        """How many there are."""
        return len(self)

    @cached_property
    def distinct(self) -> int:
        """How many different things were asked for."""
        return int(np.unique(self.digests).size)

    @property
    def minutes(self) -> float:
        """From the first request to the last."""
        return float(self.times[-1] - self.times[0]) / 60_000 if len(self) else 0.0

    def head(self, requests: int) -> Trace:
        """Return the first of them."""
        requests = integer("requests", requests, 0, None, "Pass how many to keep")
        return Trace(self.times[:requests], self.digests[:requests], self.name, skipped=self.skipped)

    def __repr__(self) -> str:
        names = ("name", "requests", "distinct", "minutes", "skipped")
        return _show.line("Trace", [(name, getattr(self, name)) for name in names])


def _sort_trace(
    times: npt.NDArray[np.int64], digests: npt.NDArray[np.uint64], name: str, skipped: int
) -> Trace:
    if (np.diff(times) < 0).any():
        order = np.argsort(times, kind="stable")
        times, digests = times[order], digests[order]
    return Trace(times, digests, name, skipped=skipped)


# --- synthetic -------------------------------------------------------------------------------------------


def synthetic_trace(
    *,
    requests: int,
    urls: int,
    minutes: float,
    exponent: float = 0.8,
    swing: float = 0.0,
    bursts: float = 0.0,
    burst_minutes: float = 5.0,
    seed: int = 0,
) -> Trace:
    """Draw a trace by Zipf's law, with exactly these requests and distinct urls.

    Parameters
    ----------
    requests, urls
        How many; every url is asked for at least once.
    minutes
        The time they take.
    exponent
        Beyond its first request the url of rank r has weight ``r**-exponent``; 0: all are alike.
    swing
        Day and night: the rate is ``1 - swing * cos(2 pi t / day)`` times its mean; 0 to 1, 0 a steady rate.
    bursts
        Fraction of a url's later requests that follow the one before, after an exponential time of mean
        ``burst_minutes``, instead of coming at any time.
    seed
        Of all randomness. The draws are NumPy's, so another version of NumPy may give other ones.

    Raises
    ------
    ValueError
        If an argument is out of its range, or there are more urls than requests.

    Examples
    --------
    >>> synthetic_trace(requests=1000, urls=300, minutes=60, seed=1).distinct
    300
    """
    requests = integer("requests", requests, 1, 2**31, "Pass how many requests to draw")
    urls = integer("urls", urls, 1, requests, "Pass at most as many as there are requests")
    minutes = _check_range("minutes", minutes, 0, 1e9, "Pass the time that the trace takes")
    exponent = _check_range("exponent", exponent, 0, 10, "Pass for example 0.8")
    swing = _check_range("swing", swing, 0, 1, "Pass 0 for a steady rate")
    bursts = _check_range("bursts", bursts, 0, 1, "Pass 0 for none")
    burst_minutes = _check_range("burst_minutes", burst_minutes, 0, 1e9, "Pass for example 5")
    rng = np.random.default_rng(checked_seed(seed))
    span = minutes * 60_000
    weights = np.arange(1, urls + 1, dtype=float) ** -exponent
    counts = 1 + rng.multinomial(requests - urls, weights / weights.sum())
    chosen = rng.permutation(np.repeat(np.arange(urls), counts))
    times = np.sort(_moments(rng.random(requests), minutes / 1440, swing)) * span
    if bursts:
        order = np.argsort(chosen, kind="stable")
        chosen, times = chosen[order], times[order]
        follows = rng.random(requests) < bursts
        follows[np.flatnonzero(np.diff(chosen, prepend=-1))] = False  # a url's first request
        leader = np.maximum.accumulate(np.where(follows, 0, np.arange(requests)))
        later = times[leader] + rng.exponential(burst_minutes * 60_000, requests)
        times = np.where(follows & (later <= span), later, times[leader])
    digests = digest_many(np.arange(urls), checked_seed(seed))[chosen]  # integers of one sign: no two alike
    return _sort_trace(np.floor(times).astype(np.int64), digests, "synthetic", 0)


def _moments(uniform: npt.NDArray[np.float64], days: float, swing: float) -> npt.NDArray[np.float64]:
    """Turn uniform numbers into moments from 0 to 1 of the days, by the inverse of the rate's integral."""
    if not swing:
        return uniform
    grid = np.linspace(0, 1, 1024 * math.ceil(days) + 1)
    turn = 2 * math.pi * days
    integral = grid - swing * np.sin(turn * grid) / turn if turn else grid
    moments: npt.NDArray[np.float64] = np.interp(uniform * integral[-1], integral, grid)
    return moments


def _check_range(name: str, value: float, least: float, most: float, remedy: str) -> float:
    rule = f"a number from {least:g} to {most:g}"
    number = real(name, value, rule, remedy)
    if not least <= number <= most:
        raise arguments.error(name, rule, value, remedy)
    return number


# --- writing ---------------------------------------------------------------------------------------------


def write_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace as text, columns `time_ms` and `digest` (hexadecimal); `read_trace` reads it back.

    Parameters
    ----------
    path
        Ends in .csv or .tsv, or in one of these and .gz or .zst.

    Raises
    ------
    ValueError
        If the name ends otherwise.
    OSError
        If the file cannot be written.
    """
    name = os.fspath(path)
    plain = name.lower().removesuffix(".gz").removesuffix(".zst")
    if not plain.endswith((".csv", ".tsv")):
        raise arguments.error("path", "a name that ends in .csv or .tsv, and then .gz or .zst if you like",
                                 name, "Choose for example trace.csv.gz")  # fmt: skip
    separator = "\t" if plain.endswith(".tsv") else ","
    with _open(name, "wb") as file:
        file.write(f"time_ms{separator}digest\n".encode())
        for start in range(0, len(trace), _BATCH):
            times = trace.times[start : start + _BATCH].tolist()
            digests = trace.digests[start : start + _BATCH].tolist()
            rows = (f"{time}{separator}{digest:016x}\n" for time, digest in zip(times, digests, strict=True))
            file.write("".join(rows).encode())


def _open(name: str, mode: str) -> IO[bytes]:
    """Open a file, compressed or not, by its name."""
    try:
        return open_named(name, mode)
    except CompressedError as error:
        raise TraceError(str(error)) from None


# --- reading ---------------------------------------------------------------------------------------------


def read_trace(
    path: str | os.PathLike[str],
    *,
    time_column: str | int | None = None,
    key_column: str | int | None = None,
    time_format: str | None = None,
    progress: Callable[[int], object] | None = None,
) -> Trace:
    """Read a trace from a log.

    Parameters
    ----------
    path
        Text, separated by commas, tabs or semicolons, with or without a line of names; .gz and .zst are
        unpacked (.zst needs Python 3.14, zstandard or pyarrow). Or .parquet, which needs pyarrow.
    time_column, key_column
        Names, or numbers from 0. Left out: columns of a well-known name (time, timestamp, QueryTime, …; url,
        key, ClickURL, …), or else the first and the second. In a text file a column called `digest` holds
        hexadecimal digests.
    time_format
        "s", "ms", "us", "ns" for numbers, "iso", or a pattern of `datetime.strptime` such as
        "%d/%b/%Y:%H:%M:%S %z". Left out: by the first row, see the head of this module.
    progress
        Called with the number of rows read, every so often.

    Raises
    ------
    TraceError
        If the file is not such a log; names the line.
    ValueError
        If `time_format` is none of these.
    OSError
        If the file cannot be read.
    """
    name = os.fspath(path)
    if time_format is not None and time_format not in (*_UNITS, "iso") and "%" not in time_format:
        raise arguments.error("time_format", f"one of {', '.join(_UNITS)}, iso or a pattern with %",
                                 time_format, "Pass for example '%Y-%m-%d %H:%M:%S'")  # fmt: skip
    wanted = (time_column, key_column)
    if name.lower().endswith((".parquet", ".pq")):
        return _read_parquet(name, wanted, time_format)
    try:
        with _open(name, "rb") as file:
            text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
            return _read_text(name, text, wanted, time_format, progress)
    except CompressedError as error:
        raise TraceError(str(error)) from None


def _read_text(name: str, text: io.TextIOWrapper, wanted: tuple[str | int | None, str | int | None],
               time_format: str | None, progress: Callable[[int], object] | None) -> Trace:  # fmt: skip
    first = text.readline()
    if "\0" in first or first.startswith(("\udcff\udcfe", "\udcfe\udcff")):
        raise TraceError(f"{name}, line 1: UTF-16 or no text: convert it, as iconv -f UTF-16 -t UTF-8 does")
    separator = next((each for each in "\t,;" if each in first), ",")
    quoting = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL

    def again() -> Iterator[str]:
        yield first
        yield from text

    rows = csv.reader(again(), delimiter=separator, quoting=quoting)  # type: ignore[arg-type]
    times, digests = array("q"), [np.empty(0, np.uint64)]
    keys: list[bytes] = []
    skipped = done = 0
    layout: _Layout | None = None
    try:
        for fields in rows:
            if not fields:
                continue
            if layout is None:
                layout = _Layout.of(name, rows.line_num, fields, wanted, time_format)
                if layout.header:
                    continue
            try:
                when, key = fields[layout.time], fields[layout.key]
            except IndexError:
                raise TraceError(
                    f"{name}, line {rows.line_num}: {len(fields)} columns, but column "
                    f"{max(layout.time, layout.key)} is needed (from 0): repair or remove the line"
                ) from None
            if not key:
                skipped += 1
                continue
            times.append(layout.milliseconds(name, rows.line_num, when))
            keys.append(key.encode("utf-8", "surrogateescape"))
            if len(keys) == _BATCH:
                digests.append(layout.digests(name, keys))
                keys.clear()
                done += _BATCH
                if progress is not None:
                    progress(done)
    except csv.Error as error:
        raise TraceError(f"{name}, line {rows.line_num}: {error}: repair or remove the line") from None
    if layout is None or not (times or skipped):
        what = "empty" if layout is None else "only a line of names"
        raise TraceError(f"{name}: {what}: a trace needs at least one row of a time and a key")
    if not times:
        raise TraceError(f"{name}: all {skipped} rows have an empty key: name another key column")
    digests.append(layout.digests(name, keys))
    return _sort_trace(np.array(times, np.int64), np.concatenate(digests), os.path.basename(name), skipped)


@dataclass
class _Layout:
    """Which columns hold what, and how a time is written."""

    time: int
    key: int
    header: bool
    hexadecimal: bool  # keys are digests
    time_format: str | None
    parse: Callable[[str], int] | None = None

    @classmethod
    def of(cls, name: str, line: int, fields: list[str], wanted: tuple[str | int | None, str | int | None],
           time_format: str | None) -> _Layout:  # fmt: skip
        """Look at the first line: it holds names unless its time is one."""
        time_column, key_column = wanted
        if isinstance(time_column, str) or isinstance(key_column, str):
            header = True
        else:
            at = time_column if time_column is not None else 0
            header = at >= len(fields) or _parser(fields[at], time_format) is None
        names = [each.strip() for each in fields] if header else None
        where = f"{name}, line {line}"
        time, key = _columns(where, names, len(fields), wanted)
        hexadecimal = names is not None and names[key].lower() == "digest"
        unit = names[time].rpartition("_")[2] if names is not None and "_" in names[time] else ""
        return cls(time, key, header, hexadecimal, time_format or (unit if unit in _UNITS else None))

    def milliseconds(self, name: str, line: int, when: str) -> int:
        """Read a time."""
        if self.parse is None:
            self.parse = _parser(when, self.time_format)
        try:
            if self.parse is None:
                raise ValueError
            found = self.parse(when)
            if abs(found) > _MOST_TIME:
                raise ValueError
        except (ValueError, OverflowError):
            how = f"of the format {self.time_format!r}" if self.time_format else (
                "a number, or as 2006-03-01 07:17:12, and like those of the lines before"
            )  # fmt: skip
            shown = when if len(when) <= 40 else when[:37] + "..."
            raise TraceError(
                f"{name}, line {line}: the time (column {self.time}, from 0) must be {how}; got "
                f"{shown.encode('utf-8', 'backslashreplace').decode()!r}. Name the column (time_column) "
                "or its format (time_format), or repair the line"
            ) from None
        return found

    def digests(self, name: str, keys: list[bytes]) -> npt.NDArray[np.uint64]:
        """Digest the keys, or read digests."""
        if not self.hexadecimal:
            return digest_many(list(keys))
        try:
            return np.array([int(each, 16) for each in keys], np.uint64)
        except (ValueError, OverflowError) as error:
            raise TraceError(
                f"{name}: column 'digest' must hold 64 bits in hexadecimal ({error}): rename it if not"
            ) from None


def _columns(where: str, names: Sequence[str] | None, width: int,
             wanted: tuple[str | int | None, str | int | None]) -> tuple[int, int]:  # fmt: skip
    """Find the columns of times and keys."""
    lower = [each.lower() for each in names] if names is not None else []
    found: list[int] = []
    for column, known, argument, default in (
        (wanted[0], _TIME_NAMES, "time_column", 0),
        (wanted[1], _KEY_NAMES, "key_column", 1),
    ):
        if column is None:
            at = next((lower.index(each) for each in known if each in lower), None)
            if at is None:
                other = found[0] if found else None
                at = default if default != other else 1 - default
        elif isinstance(column, str):
            if column.lower() not in lower:
                there = ", ".join(names or [])
                raise TraceError(f"{where}: no column {column!r}: {argument} must be one of {there}")
            at = lower.index(column.lower())
        else:
            at = integer(argument, column, 0, None, "Pass a column's name, or its number from 0")
        if at >= width:
            raise TraceError(
                f"{where}: {width} column{'s' * (width != 1)}, and {argument} is {at} (from 0): separate "
                f"columns by commas, tabs or semicolons, or pass {argument}"
            )
        found.append(at)
    return found[0], found[1]


def _parser(sample: str, time_format: str | None) -> Callable[[str], int] | None:
    """Return the function that reads times like this one as milliseconds; None if it is not a time."""
    if time_format is None or time_format in _UNITS:
        try:
            number = float(sample)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return _numbers(time_format or _unit(number))
        if time_format is not None:
            return None
    parse = _pattern(time_format) if time_format is not None and "%" in time_format else _iso
    try:
        parse(sample)
    except ValueError:
        return None
    return parse


def _unit(number: float) -> str:
    """Guess the unit of a time since 1970 from its size."""
    size = abs(number)
    return "s" if size < 1e11 else "ms" if size < 1e14 else "us" if size < 1e17 else "ns"


def _numbers(unit: str) -> Callable[[str], int]:
    factor, divisor = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}[unit]

    def parse(text: str) -> int:
        try:
            return int(text) * factor // divisor
        except ValueError:
            return math.floor(float(text) * _UNITS[unit])

    return parse


def _iso(text: str) -> int:
    return _since_1970(datetime.fromisoformat(text.strip()))


def _pattern(time_format: str) -> Callable[[str], int]:
    return lambda text: _since_1970(datetime.strptime(text.strip(), time_format))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _since_1970(when: datetime) -> int:
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    passed = when - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1000 + passed.microseconds // 1000


def _read_parquet(name: str, wanted: tuple[str | int | None, str | int | None],
                  time_format: str | None) -> Trace:  # fmt: skip
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise TraceError(f"{name}: Parquet needs pyarrow: pip install 'evenbins[arrow]'") from None
    with open(name, "rb"):  # a plain OSError for what is not there
        pass
    try:
        names = parquet.read_schema(name).names
        time, key = _columns(name, names, len(names), wanted)
        table = parquet.read_table(name, columns=[names[time], names[key]])
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: names that are no text
        raise TraceError(f"{name}: not a Parquet file ({error}): check the name") from None
    rows = table.num_rows
    table = table.filter(table.column(1).is_valid())
    when, keys = table.column(0), table.column(1)
    if not table.num_rows:
        raise TraceError(f"{name}: no row with a key: a trace needs at least one")
    if when.null_count:
        raise TraceError(f"{name}: {when.null_count} rows of {names[time]!r} have no time: remove them")
    if arrow.types.is_timestamp(when.type):
        times = when.cast(arrow.timestamp("ms"), safe=False).cast("int64").to_numpy()
    elif arrow.types.is_integer(when.type) or arrow.types.is_floating(when.type):
        numbers = when.to_numpy()
        unit = time_format if time_format in _UNITS else _unit(float(numbers[0]))
        with np.errstate(invalid="ignore"):
            scaled = np.floor(numbers * _UNITS[unit or "s"])
        if not (np.abs(scaled) <= _MOST_TIME).all():
            raise TraceError(f"{name}: column {names[time]!r} must hold finite times: name another column")
        times = scaled.astype(np.int64)
    else:
        layout = _Layout(time, key, True, False, time_format)
        try:
            texts = when.to_pylist()
        except UnicodeDecodeError as error:
            raise TraceError(f"{name}: column {names[time]!r} is not text ({error}): name another") from None
        times = np.array(
            [layout.milliseconds(name, i + 1, str(each)) for i, each in enumerate(texts)], np.int64
        )
    try:
        digests = digest_many(keys)
    except TypeError as error:
        raise TraceError(f"{name}: column {names[key]!r} holds no keys ({error}): name another") from None
    return _sort_trace(times, digests, os.path.basename(name), rows - table.num_rows)
