"""Deduplication against what one would use instead: sort -u, awk, Polars, DuckDB; and our own two calls.

    add_new      add_new_many of 10M uint64, half of them repeats      contains_many + add_many
    lines        evenbins dedup, with a filter and exactly             sort -u; mawk '!s[$0]++'; Polars
                                                                       unique(maintain_order=True); DuckDB
                                                                       DISTINCT
    parquet      evenbins dedup --key url, Parquet to Parquet          Polars scan, unique, sink
    on disk      evenbins dedup --memory 256M, distinct lines          the same without --memory

Every run of a command is a process of its own, from its start to its end. Its peak memory is what the system
reports of it (wait4); a small process in between starts it, since a child inherits the peak of the process
that forks it. Files lie in memory (/dev/shm) if that has room, else in a temporary folder: ours are synced
before they get their name, the others' are not.

Lines are URLs of 71 bytes, in random order, 55 % of them different. What is kept must have the bytes of the
first occurrences, computed from the numbers behind the lines; of DuckDB and sort, which reorder, the number
of lines.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Case, Contender, Goal, Limit, Target, Within, import_peer
from benchmarks.shared import FULL, SEED, Sizes, count_text, main_of
from evenbins import BalancedBloomFilter, BlockedBloomFilter

__all__ = ["dedup_cases", "main_dedup"]

_COMMAND = [sys.executable, "-m", "evenbins", "dedup"]
_FILTER, _EXACT, _DISK = "evenbins dedup", "evenbins dedup --exact", "evenbins dedup --memory 256M"
_SORT, _MAWK, _POLARS, _DUCKDB = "sort -u", "mawk '!s[$0]++'", "Polars unique", "DuckDB DISTINCT"
_DISTINCT = 0.55
_LINE = 72  # bytes, the newline included
_BLOCK = 1 << 18
_MEMORY = 256

# Starts a command, waits for it, and prints its seconds, its peak in KiB and its status.
_LAUNCHER = """
import json, os, sys, time
output, *command = sys.argv[1:]
actions = [(os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
           (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
began = time.perf_counter()
child = os.posix_spawnp(command[0], command, os.environ, file_actions=actions)
_, status, usage = os.wait4(child, 0)
print(json.dumps([time.perf_counter() - began, usage.ru_maxrss, os.waitstatus_to_exitcode(status)]))
"""

_BY_POLARS = """
import sys, polars
polars.read_csv(sys.argv[1], has_header=False, new_columns=["url"], quote_char=None, separator="\\t").unique(
    maintain_order=True).write_csv(sys.argv[2], include_header=False, quote_style="never")
"""
_BY_DUCKDB = """
import sys, duckdb
source, target = sys.argv[1:]
columns = "header=false, columns={'url': 'VARCHAR'}, delim='\\t', quote='', escape=''"
rows = f"select distinct url from read_csv('{source}', {columns})"
duckdb.connect().execute(f"copy ({rows}) to '{target}' (header false, quote '')")
"""
_BY_LAZY_POLARS = """
import sys, polars
rows = polars.scan_parquet(sys.argv[1]).unique(subset=["url"], keep="first", maintain_order=True)
rows.sink_parquet(sys.argv[2])
"""


class _Process:
    """A command, and what its runs took."""

    def __init__(self, command: list[str], output: Path | None = None) -> None:
        self._command, self._output = command, output
        self.peak = 0.0  # MiB, the least of all runs

    def run(self) -> float:
        """Run it to its end; return its seconds."""
        environment = {**os.environ, "LC_ALL": "C"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        launcher = [sys.executable, "-S", "-c", _LAUNCHER, str(self._output or os.devnull), *self._command]
        done = subprocess.run(launcher, stdout=subprocess.PIPE, env=environment, check=True)
        seconds, peak, status = json.loads(done.stdout)
        if status:
            raise RuntimeError(f"{' '.join(self._command)} ended with status {status}")
        self.peak = min(self.peak or peak / 1024, peak / 1024)
        return float(seconds)


# --- data --------------------------------------------------------------------------------------------------


def _numbers(rows: int, distinct: float) -> npt.NDArray[np.uint64]:
    """Return the number behind each line, in random order."""
    rng = np.random.default_rng(SEED)
    different = int(rows * distinct)
    numbers = np.concatenate([np.arange(different), rng.integers(0, different, rows - different)])
    rng.shuffle(numbers)
    return numbers.astype(np.uint64)


def _lines_of(numbers: npt.NDArray[np.uint64]) -> bytes:
    """Return lines of 71 bytes: https://www.example-0a1.com/articles/archive/2024/0123456789abcdef.html."""
    octets = (numbers * np.uint64(0x9E3779B97F4A7C15)).view(np.uint8).reshape(-1, 8)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.stack([digits[octets >> 4], digits[octets & 15]], axis=2).reshape(-1, 16)
    lines = np.empty((len(numbers), _LINE), np.uint8)
    begin = 0
    for part in (b"https://www.example-", text[:, :3], b".com/articles/archive/2024/", text, b".html\n"):
        width = len(part) if isinstance(part, bytes) else part.shape[1]
        lines[:, begin : begin + width] = np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
        begin += width
    return lines.tobytes()


def _write_lines(path: Path, numbers: npt.NDArray[np.uint64]) -> str:
    """Write the lines; return the digest of the first occurrences."""
    first = np.zeros(len(numbers), np.bool_)
    first[np.unique(numbers, return_index=True)[1]] = True
    expected = hashlib.blake2b()
    with open(path, "wb") as file:
        for start in range(0, len(numbers), _BLOCK):
            block = numbers[start : start + _BLOCK]
            file.write(_lines_of(block))
            expected.update(_lines_of(block[first[start : start + _BLOCK]]))
    return expected.hexdigest()


def _write_parquet(path: Path, numbers: npt.NDArray[np.uint64]) -> None:
    """Write the same URLs with two more columns, in row groups of a million."""
    arrow, parquet = import_peer("pyarrow", "pyarrow"), import_peer("pyarrow.parquet", "pyarrow")
    writer: Any = None
    for start in range(0, len(numbers), 1 << 20):
        block = numbers[start : start + (1 << 20)]
        text = np.frombuffer(_lines_of(block), np.uint8).reshape(-1, _LINE)[:, :-1].copy()
        offsets = np.arange(0, text.size + 1, _LINE - 1, dtype=np.int32)
        buffers = [None, arrow.py_buffer(offsets), arrow.py_buffer(text)]
        urls = arrow.Array.from_buffers(arrow.string(), len(block), buffers)
        rows = np.arange(start, start + len(block))
        scores = np.random.default_rng(start).random(len(block))
        table = arrow.table({"url": urls, "row": rows, "score": scores})
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _folder(nbytes: int) -> str | None:
    """Return a place in memory if it has room for so much, and the machine for the processes besides."""
    place = "/dev/shm"
    return place if os.access(place, os.W_OK) and shutil.disk_usage(place).free > 2 * nbytes else None


# --- cases -------------------------------------------------------------------------------------------------


def dedup_cases(sizes: Sizes = FULL) -> Iterator[Case]:
    """Return the cases of this module, one at a time."""
    yield from _adding(sizes.bulk_keys)
    rows, distinct = 2 * sizes.string_keys, 5 * sizes.string_keys
    with tempfile.TemporaryDirectory(prefix="evenbins-bench-", dir=_folder(4 * _LINE * rows)) as name:
        yield from _lines(Path(name), rows)
    with tempfile.TemporaryDirectory(prefix="evenbins-bench-", dir=_folder(3 * _LINE * rows)) as name:
        yield from _parquet(Path(name), rows)
    with tempfile.TemporaryDirectory(prefix="evenbins-bench-", dir=_folder(3 * _LINE * distinct)) as name:
        yield from _on_disk(Path(name), distinct)


def _adding(count: int) -> Iterator[Case]:
    keys = _numbers(count, 0.5) * np.uint64(0x9E3779B97F4A7C15)
    one, two = "add_new_many", "contains_many, then add_many"
    for kind in (BlockedBloomFilter, BalancedBloomFilter):
        plan = kind(count // 2, fpr=1e-9)
        current: dict[str, Any] = {}

        def renew(label: str, plan: Any = plan, current: dict[str, Any] = current) -> Callable[[], None]:
            def prepare() -> None:
                current[label] = plan.copy()

            return prepare

        def both(current: dict[str, Any] = current) -> Any:
            found = current[two].contains_many(keys)
            current[two].add_many(keys)
            return ~found

        def at_once(current: dict[str, Any] = current) -> Any:
            return current[one].add_new_many(keys)

        yield Case(
            name=f"add_new_many, {count_text(count)} uint64, half repeats, {kind.__name__}",
            contenders={
                one: Contender(
                    run=at_once, prepare=renew(one), check=lambda new: int(new.sum()) == count // 2
                ),
                two: Contender(run=both, prepare=renew(two)),
            },
            operations=count,
            targets=[Within(text="≤ 0.75 × the two calls", of=one, against=two, at_most=0.75)],
            notes="Rate 1e-9. The two calls take repeats within the batch for new; add_new_many does not.",
        )


def _lines(folder: Path, rows: int) -> Iterator[Case]:
    source, different = folder / "lines.txt", int(rows * _DISTINCT)
    expected = _write_lines(source, _numbers(rows, _DISTINCT))
    outputs = {
        label: folder / f"out{i}" for i, label in enumerate((_FILTER, _EXACT, _SORT, _MAWK, _POLARS, _DUCKDB))
    }
    python = [sys.executable, "-c"]
    commands = {
        _FILTER: [*_COMMAND, str(source), "-o", str(outputs[_FILTER])],
        _EXACT: [*_COMMAND, str(source), "--exact", "-o", str(outputs[_EXACT])],
        _SORT: ["sort", "-u", "-o", str(outputs[_SORT]), str(source)],
        _MAWK: ["mawk", "!s[$0]++", str(source)],
        _POLARS: [*python, _BY_POLARS, str(source), str(outputs[_POLARS])],
        _DUCKDB: [*python, _BY_DUCKDB, str(source), str(outputs[_DUCKDB])],
    }
    processes = {
        label: _Process(command, outputs[label] if label == _MAWK else None)
        for label, command in commands.items()
    }

    def check(label: str) -> Callable[[object], bool]:
        def good(_: object) -> bool:
            path = outputs[label]
            right = path.stat().st_size == different * _LINE
            if label not in (_SORT, _DUCKDB):
                right = right and _digest(path) == expected
            path.unlink()  # memory holds one output at a time
            return right

        return good

    peers = ((_SORT, 3.0), (_MAWK, 10.0), (_POLARS, 3.0), (_DUCKDB, 2.0))
    targets: list[Goal] = [
        Target(text=f"{ours[9:]}: ≥ {least:g} × faster than {peer}", against=(peer,), at_least=least, of=ours)
        for ours in (_FILTER, _EXACT)
        for peer, least in peers
    ]
    name = f"dedup of {count_text(rows)} lines of 71 bytes, 45 % duplicates"
    notes = "Whole processes. Output to a file; ours is synced. sort and DuckDB reorder the lines."
    yield Case(
        name=name,
        contenders={
            label: Contender(run=process.run, check=check(label)) for label, process in processes.items()
        },
        unit="s",
        targets=targets,
        notes=notes,
    )
    yield Case(
        name=f"{name}: peak memory",
        contenders={
            label: Contender(run=partial(getattr, process, "peak")) for label, process in processes.items()
        },
        unit="MiB",
        targets=[
            Target(text=f"{ours[9:]}: ≤ 1/4 of Polars", against=(_POLARS,), at_least=4.0, of=ours)
            for ours in (_FILTER, _EXACT)
        ],
        notes="Of the same processes, Python included; the least of all rounds.",
        once=True,
    )


def _parquet(folder: Path, rows: int) -> Iterator[Case]:
    source, different = folder / "in.parquet", int(rows * _DISTINCT)
    _write_parquet(source, _numbers(rows, _DISTINCT))
    parquet = import_peer("pyarrow.parquet", "pyarrow")
    first = np.sort(np.unique(_numbers(rows, _DISTINCT), return_index=True)[1])
    outputs = {_FILTER: folder / "ours.parquet", _POLARS: folder / "theirs.parquet"}
    processes = {
        _FILTER: _Process([*_COMMAND, str(source), "--key", "url", "-o", str(outputs[_FILTER])]),
        _POLARS: _Process([sys.executable, "-c", _BY_LAZY_POLARS, str(source), str(outputs[_POLARS])]),
    }

    def check(label: str) -> Callable[[object], bool]:
        def good(_: object) -> bool:
            found = parquet.read_table(outputs[label], columns=["row"])["row"].to_numpy()
            outputs[label].unlink()
            return len(found) == different and bool((found == first).all())

        return good

    name = f"dedup of {count_text(rows)} rows of Parquet by one of three columns"
    yield Case(
        name=name,
        contenders={
            label: Contender(run=process.run, check=check(label)) for label, process in processes.items()
        },
        unit="s",
        targets=[Target(text="≥ 2.5 × faster than Polars", against=(_POLARS,), at_least=2.5)],
        notes="Whole processes, file to file. Polars: scan_parquet, unique(keep='first', "
        "maintain_order=True), sink_parquet. Row order is checked.",
    )
    yield Case(
        name=f"{name}: peak memory",
        contenders={
            label: Contender(run=partial(getattr, process, "peak")) for label, process in processes.items()
        },
        unit="MiB",
        targets=[Target(text="≤ 1/5 of Polars", against=(_POLARS,), at_least=5.0)],
        notes="Of the same processes, Python included; the least of all rounds.",
        once=True,
    )


def _on_disk(folder: Path, rows: int) -> Iterator[Case]:
    source, one, out = folder / "lines.txt", folder / "one.txt", folder / "out"
    expected = _write_lines(source, _numbers(rows, 1.0))
    one.write_bytes(b"one\n")
    small = _Process([*_COMMAND, str(one), "-o", str(out)])
    processes = {
        _DISK: _Process([*_COMMAND, str(source), "--memory", f"{_MEMORY}M", "-o", str(out)]),
        _FILTER: _Process([*_COMMAND, str(source), "-o", str(out)]),
    }

    def check(_: object) -> bool:
        right = _digest(out) == expected
        out.unlink()
        return right

    name = f"dedup of {count_text(rows)} different lines with --memory {_MEMORY}M"
    yield Case(
        name=name,
        contenders={label: Contender(run=process.run, check=check) for label, process in processes.items()},
        unit="s",
        targets=[Within(text="≤ 3 × the time in memory", of=_DISK, against=_FILTER, at_most=3.0)],
        notes="Whole processes. Digests in parts beside the output; the inputs are read twice.",
    )
    facts: dict[str, float] = {}

    def beyond() -> float:
        small.run()
        facts["peak MiB"], facts["of one line, MiB"] = processes[_DISK].peak, small.peak
        return processes[_DISK].peak - small.peak

    yield Case(
        name=f"{name}: peak memory beyond that of one line",
        contenders={_DISK: Contender(run=beyond, facts=facts)},
        unit="MiB",
        targets=[Limit(text=f"≤ {_MEMORY} MiB", at_most=float(_MEMORY))],
        notes="The largest resident size less that of the same command for a single line.",
        once=True,
    )


def main_dedup(
    quick: bool = False, rounds: int | None = None, json_path: str | None = None, markdown: bool = False
) -> int:
    """Run the cases, print the tables, write the JSON; the exit status: 0, or 2 if it cannot run."""
    peers = {"polars": "polars", "duckdb": "duckdb", "pyarrow": "pyarrow"}
    return main_of("dedup", dedup_cases, peers, quick, rounds, json_path, markdown)
