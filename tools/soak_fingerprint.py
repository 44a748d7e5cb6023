"""The long runs of the fingerprint filter: 10**8 random operations, and its law on 20 filters of 10**7 keys.

    python tools/soak_fingerprint.py churn      --keys 1000000 --operations 100000000
    python tools/soak_fingerprint.py law        --keys 10000000 --filters 20

`churn` adds, removes, asks, counts, merges and saves keys at random, at loads up to 100 %, with each kernel
and several numbers of threads. The oracle knows the fingerprint of every key of the universe (computed here,
by the formula of the documentation, from the digest) and how many copies of each are in: every answer must
be its answer, also those of removals of absent keys and of keys that share a fingerprint. At the end a
filter is built from the surviving keys, in another order: it must have the same bytes, and so must all
kernels and numbers of threads.

`law` compares plans with filters: the rate (counted fingerprints, and absent keys that were found) within
two-sided intervals of 1e-6, reads and shares of the levels, means of all filters, within 0.5 % or, of
level 3, which has too few keys, within such an interval. The rest is printed and not judged.

Both print a table and, as the last line, the result as JSON; runs of the default size write trust/. The exit
status is 1 if anything is wrong.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

sys.path.insert(0, str(Path(__file__).parent))

import records

from evenbins import FilterFullError, FingerprintFilter, _core, digest_many

Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]

CHURN_KEYS, OPERATIONS = 1_000_000, 100_000_000
LAW_KEYS, FILTERS, QUERIES, RATES = 10_000_000, 20, 10_000_000, (1e-3,)
THREADS = (1, 2, 7, 16)
_SINGLY = 200
_SHARES = ("in level 1", "in level 2", "in level 3", "in the rest")


def times(a: Words, b: int) -> tuple[Words, Words]:
    """Return the high and the low word of a · b."""
    mask, half = np.uint64(2**32 - 1), np.uint64(32)
    low_b, high_b = np.uint64(b & (2**32 - 1)), np.uint64(b >> 32)
    low, high = a & mask, a >> half
    first = low * low_b
    middle = high * low_b + (first >> half)
    cross = low * high_b + (middle & mask)
    return high * high_b + (middle >> half) + (cross >> half), (cross << half) | (first & mask)


def fingerprints_of(keys: Places, plan: Any) -> Words:
    """Return the fingerprint of each key: floor(digest · M / 2**64), by line, quotient and remainder."""
    core = plan.core
    line, low = times(digest_many(keys, seed=plan.seed), core.lines)
    quotient, low = times(low, core.quotients)
    bits = np.uint64(core.remainder)
    return ((line * np.uint64(core.quotients) + quotient) << bits) | (low >> (np.uint64(64) - bits))


class Churn:
    """A filter, and how many copies of each fingerprint of a universe of keys are in it."""

    def __init__(self, keys: int, fpr: float, seed: int, threads: int, folder: Path) -> None:
        self.rng, self.threads, self.path = np.random.default_rng(seed), threads, folder / "filter"
        self.filter = FingerprintFilter(keys, fpr, seed=seed)
        self.capacity = keys
        self.keys = self.rng.permutation(np.arange(4 * keys, dtype=np.int64) * 7_919 + seed)
        found, self.place = np.unique(fingerprints_of(self.keys, self.filter.plan), return_inverse=True)
        self.copies = np.zeros(len(found), np.int64)
        self.held = 0
        self.wrong: list[str] = []
        self.done: Counter[str] = Counter()

    def expect(self, right: object, what: str) -> None:
        """Note an answer that is not the oracle's."""
        if not right:
            self.wrong.append(what)

    def step(self) -> int:
        """Do one thing with some keys; return with how many."""
        rng = self.rng
        size = int(10 ** rng.uniform(1, math.log10(self.capacity / 4)))
        some = self._some(size)
        choice = int(rng.integers(20))
        if choice < 8:  # as much in as out, at every load between empty and full
            goal = rng.uniform(0.5, 1.0) if rng.integers(20) else 0.0
            return self.add(some) if self.held < goal * self.capacity else self.remove(some)
        if choice < 12:  # every second time of present keys alone
            return self.remove(some if choice < 10 else some[self.copies[self.place[some]] > 0])
        if choice < 15:
            return self.ask(some)
        if choice == 15:
            return self.add_new(some)
        if choice == 16:
            return self.merge(some)
        if choice == 17:
            return self.one_by_one(some[:_SINGLY])
        if choice == 18 and self.held < self.capacity:
            return self.add(rng.permutation(np.concatenate([some, some[: size // 8]])))
        return self.rebuild() if rng.integers(4) == 0 else self.add(some)

    def _some(self, size: int) -> Places:
        """Choose keys at random, in any order: of a part of the universe, so that some come back."""
        start = int(self.rng.integers(0, len(self.keys)))
        return (start + self.rng.permutation(size) * 3) % len(self.keys)

    def add(self, some: Places) -> int:
        """Add copies: all of them, or none and an error; sometimes more than there is room for."""
        if self.rng.integers(8):
            some = some[: max(1, self.capacity - self.held)]
        try:
            self.filter.add_many(self.keys[some], threads=self.threads)
        except FilterFullError:
            self.done["refused"] += len(some)
            return len(some) + self.remove(self._some(self.capacity // 8))
        np.add.at(self.copies, self.place[some], 1)
        self.held += len(some)
        self.done["added"] += len(some)
        return len(some)

    def add_new(self, some: Places) -> int:
        """Add keys that are absent."""
        some = some[: max(0, int(0.9 * self.capacity) - self.held)]
        if not len(some):
            return 0
        places = self.place[some]
        first = np.zeros(len(some), bool)
        first[np.unique(places, return_index=True)[1]] = True
        new = first & (self.copies[places] == 0)
        found = self.filter.add_new_many(self.keys[some], threads=self.threads)
        self.expect((found == new).all(), "add_new_many")
        self.copies[places[new]] += 1
        self.held += int(new.sum())
        self.done["added if new"] += len(some)
        return len(some)

    def remove(self, some: Places) -> int:
        """Remove keys, present or not: the k-th of one fingerprint succeeds if k copies are in."""
        if not len(some):
            return 0
        places = self.place[some]
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        lengths = np.diff(np.append(starts, len(ordered)))
        rank = np.arange(len(ordered)) - np.repeat(starts, lengths)
        expected = np.empty(len(some), bool)
        expected[order] = rank < self.copies[ordered]
        removed = self.filter.remove_many(self.keys[some], threads=self.threads)
        self.expect((removed == expected).all(), "remove_many")
        self.copies[ordered[starts]] = np.maximum(self.copies[ordered[starts]] - lengths, 0)
        self.held -= int(expected.sum())
        self.done["removed"] += int(expected.sum())
        self.done["absent, not removed"] += int((~expected).sum())
        return len(some)

    def ask(self, some: Places) -> int:
        """Look keys up, and count them."""
        copies = self.copies[self.place[some]]
        found = self.filter.contains_many(self.keys[some], threads=self.threads)
        self.expect((found == (copies > 0)).all(), "contains_many")
        counts = self.filter.count_many(self.keys[some], threads=self.threads)
        self.expect((counts == copies).all(), "count_many")
        self.done["asked and counted"] += 2 * len(some)
        return 2 * len(some)

    def one_by_one(self, some: Places) -> int:
        """Add, count and remove single keys."""
        if self.held + len(some) > 0.9 * self.capacity:
            return 0
        for key, place in zip(self.keys[some].tolist(), self.place[some].tolist(), strict=True):
            there = int(self.copies[place])
            self.expect((key in self.filter) == (there > 0), "in")
            if there:
                self.expect(self.filter.discard(key), "discard")
                self.copies[place] -= 1
                self.held -= 1
            else:
                self.filter.add(key)
                self.copies[place] += 1
                self.held += 1
            self.expect(self.filter.count(key) == self.copies[place], "count")
        self.done["singly"] += 3 * len(some)
        return 3 * len(some)

    def merge(self, some: Places) -> int:
        """Add a filter of other keys."""
        other = FingerprintFilter.from_plan(self.filter.plan)
        other.add_many(self.keys[some], threads=self.threads)
        try:
            self.filter += other
        except FilterFullError:
            self.done["sums refused"] += 1
            return len(some)
        np.add.at(self.copies, self.place[some], 1)
        self.held += len(some)
        self.done["added by sums"] += len(some)
        return len(some)

    def rebuild(self) -> int:
        """Send the filter through a file, a pickle or a copy."""
        way = int(self.rng.integers(3))
        if way == 0:
            self.filter.save(self.path)
            self.filter = FingerprintFilter.load(self.path)
        elif way == 1:
            self.filter = pickle.loads(pickle.dumps(self.filter))
        else:
            self.filter = self.filter.copy()
        self.done["saved, pickled, copied"] += 1
        return 1

    def finish(self) -> str:
        """Compare with a fresh filter of the survivors; return the digest of the bytes."""
        self.filter._check()
        stats = self.filter.stats()
        self.expect(stats.keys == self.held == self.copies.sum(), "stats().keys")
        self.expect(stats.distinct == (self.copies > 0).sum(), "stats().distinct")
        owners = np.zeros(len(self.copies), np.int64)
        owners[self.place] = self.keys
        survivors = self.rng.permutation(np.repeat(owners, self.copies))
        fresh = FingerprintFilter.from_plan(self.filter.plan)
        for piece in np.array_split(survivors, 5):
            fresh.add_many(piece, threads=self.threads)
        self.expect(fresh == self.filter, "== of a fresh filter with the surviving keys")
        ours = self.filter.to_bytes()
        self.expect(fresh.to_bytes() == ours, "the bytes of a fresh filter with the surviving keys")
        return hashlib.sha256(ours).hexdigest()


def progress_bar() -> Progress:
    """Make a bar on standard error."""
    from rich.console import Console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def finish(name: str, command: str, said: list[str], row: dict[str, Any], *, whole: bool) -> None:
    """Print the result as JSON, keep it if the run has the default size, and exit."""
    if whole:
        records.keep(name, command, said, row["seconds"])
    click.echo(json.dumps({"run": name, "cores": os.cpu_count(), **row}))
    sys.exit(0 if row["fine"] else 1)


@click.group()
def main() -> None:
    """Run the long checks of the fingerprint filter."""


@main.command()
@click.option("--keys", default=CHURN_KEYS, show_default=True, help="Capacity of the filter.")
@click.option("--operations", default=OPERATIONS, show_default=True, help="For each kernel and threads.")
@click.option("--fpr", default=1e-3, show_default=True)
@click.option("--threads", multiple=True, type=int, default=THREADS, show_default=True)
@click.option("--seed", default=1, show_default=True)
def churn(keys: int, operations: int, fpr: float, threads: tuple[int, ...], seed: int) -> None:
    """Make random operations beside an exact oracle, then compare with a fresh build."""
    begun, digests, wrong, done = time.perf_counter(), set(), [], Counter[str]()
    kernels = _core.kernels()
    before = _core.kernel()
    total = 0
    with progress_bar() as bar, tempfile.TemporaryDirectory() as folder:
        for kernel in kernels:
            _core.use_kernel(kernel)
            for number in threads:
                started, made = time.perf_counter(), 0
                task = bar.add_task(f"{kernel}, threads={number}", total=operations)
                soak = Churn(keys, fpr, seed, number, Path(folder))
                while made < operations:
                    made += soak.step()
                    bar.update(task, completed=min(made, operations))
                digest = soak.finish()
                digests.add(digest)
                wrong += [f"{kernel}, threads={number}: {each}" for each in soak.wrong]
                done.update(soak.done)
                total += made
                bar.remove_task(task)
                click.echo(
                    f"{kernel:>8}, {number:2} threads: {made:,} operations in "
                    f"{time.perf_counter() - started:.1f} s, "
                    f"{soak.held:,} copies left, bytes {digest[:12]}, {len(soak.wrong)} wrong answers"
                )
    _core.use_kernel(before)
    for each in sorted(set(wrong))[:20]:
        click.echo(f"  wrong: {each}")
    seconds = time.perf_counter() - begun
    said = [
        f"{total:,} operations on filters of {keys:,} keys at {fpr:g}, each answer that of the oracle: "
        f"{len(wrong)} wrong",
        f"a fresh build from the surviving keys, {len(kernels)} kernels ({' '.join(kernels)}) × "
        f"{len(threads)} numbers of threads: {len(digests)} different file",
    ]
    row = {
        "keys": keys, "operations": total, "fpr": fpr, "kernels": kernels, "threads": list(threads),
        "done": dict(done), "wrong": len(wrong), "files": len(digests), "sha256": sorted(digests),
        "seconds": round(seconds, 1), "fine": not wrong and len(digests) == 1,
    }  # fmt: skip
    whole = (keys, operations, threads) == (CHURN_KEYS, OPERATIONS, THREADS)
    finish("fingerprint-churn", "python tools/soak_fingerprint.py churn", said, row, whole=whole)


def interval(expected: float, variance: float) -> float:
    """Return the half width of a two-sided interval of 1e-6 around a number of events."""
    return 4.8917 * math.sqrt(variance) + 4.0  # normal, and what a Poisson law of few events adds


@main.command()
@click.option("--keys", default=LAW_KEYS, show_default=True)
@click.option("--filters", default=FILTERS, show_default=True)
@click.option("--fpr", "rates", multiple=True, type=float, default=RATES, show_default=True)
@click.option("--queries", default=QUERIES, show_default=True, help="Absent keys asked of each filter.")
@click.option("--threads", type=int, help="As many as pay off.")
def law(keys: int, filters: int, rates: tuple[float, ...], queries: int, threads: int | None) -> None:
    """Compare plan and measurement: the rate exactly, reads and shares of the levels within 0.5 %."""
    begun, said, rows = time.perf_counter(), [], []
    for fpr in rates:
        rows.append(compare(keys, filters, fpr, queries, threads))
        said += show(rows[-1])
    row = {
        "keys": keys, "filters": filters, "queries": queries, "rates": rows,
        "seconds": round(time.perf_counter() - begun, 1), "fine": all(each["fine"] for each in rows),
    }  # fmt: skip
    whole = (keys, filters, rates, queries) == (LAW_KEYS, FILTERS, RATES, QUERIES)
    finish("fingerprint-law", "python tools/soak_fingerprint.py law", said, row, whole=whole)


def compare(keys: int, filters: int, fpr: float, queries: int, threads: int | None) -> dict[str, Any]:
    """Fill some filters with different keys and seeds, and measure them."""
    plan = FingerprintFilter(keys, fpr).plan
    fingerprints = plan.core.shape.fingerprints
    distinct, found, expected, outside = 0, 0, 0.0, 0
    measured: list[tuple[float, ...]] = []
    with progress_bar() as bar:
        task = bar.add_task(f"filters of {keys:,} keys at {fpr:g}", total=filters)
        for number in range(filters):
            filter_ = FingerprintFilter(keys, fpr, seed=number)
            start = number * (keys + queries)
            filter_.add_many(np.arange(start, start + keys), threads=threads)
            stats = filter_.stats()
            mean = fingerprints * plan.fpr
            # of n balls in M bins: M·e^-x·(1 − (1 + x)·e^-x) with x = n/M
            load = keys / fingerprints
            variance = fingerprints * math.exp(-load) * (1.0 - (1.0 + load) * math.exp(-load))
            outside += abs(stats.distinct - mean) > interval(mean, variance)
            hits = int(
                filter_.contains_many(np.arange(start + keys, start + keys + queries), threads=threads).sum()
            )
            outside += abs(hits - stats.fpr * queries) > interval(hits, stats.fpr * queries)
            distinct, found, expected = distinct + stats.distinct, found + hits, expected + plan.fpr * queries
            measured.append((stats.reads, stats.miss_reads, *stats.shares))
            bar.update(task, completed=number + 1)
    outside += abs(found - expected) > interval(expected, expected)
    means, spread = np.mean(measured, axis=0), np.std(measured, axis=0) / math.sqrt(filters)
    planned = (plan.reads, plan.miss_reads, *plan.shares)
    ratios = {
        name: {
            "planned": ours, "measured": float(theirs), "difference": float(theirs / ours - 1),
            "error": float(error / theirs),
        }
        for name, ours, theirs, error in zip(
            ("reads", "miss_reads", *_SHARES), planned, means, spread, strict=True
        )
        if ours and theirs
    }  # fmt: skip
    # Level 3 has too few keys for 0.5 %, and the law of the rest is an approximation (theory/fingerprint.py).
    judged = [each for name, each in ratios.items() if name != _SHARES[-1]]
    fine = not outside and all(
        abs(each["difference"]) <= max(0.005, 4.8917 * each["error"]) for each in judged
    )
    return {
        "fpr": fpr, "planned": plan.fpr, "counted": distinct / filters / fingerprints,
        "found": found / filters / queries, "outside": int(outside), "law": ratios, "fine": bool(fine),
    }  # fmt: skip


def show(row: dict[str, Any]) -> list[str]:
    """Print one rate; return the lines."""
    lines = [
        f"rate {row['fpr']:g}: planned {row['planned']:.6e}, counted {row['counted']:.6e}, absent keys found "
        f"{row['found']:.4e}; {row['outside']} outside the intervals of 1e-6"
    ]
    lines += [
        f"{name}: planned {each['planned']:.6g}, measured {each['measured']:.6g}, "
        f"{each['difference']:+.3%} (standard error {each['error']:.3%})"
        for name, each in row["law"].items()
    ]
    for line in lines:
        click.echo(line)
    return lines


if __name__ == "__main__":
    main()
