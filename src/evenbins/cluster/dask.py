"""Filters built by many workers: Dask dataframes and bags, Parquet, CSV and text files.

    standard, blocked, one filter               any other policy, or shards

    pieces ──▶ a filter for each group of them     pieces ──▶ words of the keys' digests, sorted
                   │  OR, as a tree                              │  by range: a range is some whole shards
                   ▼                                             ▼
               the filter                              each shard filled in the order of its words

The bytes do not depend on workers, pieces or the order of the files. Bits that are ORed know no order. Where
blocks pass keys on, the order of the keys leaves a trace, so there is one order for all: that of the words
which also choose the shard (cpp/include/evenbins/sharding.hpp), a hash of the digest. The result is the
filter to which the distinct keys were added in that order:

    filter.add_many(_core.shard_digests(np.unique(_core.shard_words(digest_many(keys)))), digests=True)

A fingerprint filter that is a multiset gets every row, repeated ones too: it is the sum of the filters of the
pieces. One that is a set is their union.

Not the order of the digests themselves: a digest's leading bits are its block, so blocks would fill one
after the other, the last of them with the list and the budget used up, and the plan's predictions, made for
keys in any order, would not hold.

"fill" could be merged by OR without losing a key, but parts of it have hardly full blocks, so that all
keys stay in the first level: the union has another rate than planned. It goes by words too.

Tasks are pure and repeatable: a worker that is killed changes nothing, its tasks run elsewhere. Shards are
written by the workers that fill them when `output` is given, under names of their own, each in one step;
the manifest comes last, from the caller.

Sizes: a group's filter is as large as the whole, so with files there is one group a worker; words take 8
bytes a distinct key, over all workers together. With many workers shards are the better choice.

Tried and dropped: filters as results of tasks (they are pickled, copied and read again; arrays of their
bits are sent as they lie); four groups a worker for files too (more filters to send).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _core, _files
from evenbins._files import StrPath
from evenbins.cluster._pieces import Piece, count_of, file_pieces, group_by_weight, key_batches, one_column
from evenbins.cluster.dask_dedup import dedup
from evenbins.cluster.libraries import library
from evenbins.filters import FilterPlan, ShardedPlan, plan_sharded
from evenbins.filters import build as build_filter
from evenbins.filters.base import BaseFilter, class_for, file_header
from evenbins.filters.sharded import ShardedFilter
from evenbins.filters.sharded_files import ShardFile, begin_directory, discard, finish_directory, write_shard
from evenbins.hashing import digest_many

__all__ = ["Built", "build", "build_files", "dedup"]

GROUPS = 4
"""Groups of pieces for each worker: enough that workers end together, few enough tasks."""
_FAN_IN = 4
_LEAST = 1 << 16  # smallest digests kept to estimate the distinct keys: 0.4 %, five times that is added
_BY_OR = ("standard", "blocked")
_CONNECT_SECONDS = 30

Words = npt.NDArray[np.uint64]


class Built(NamedTuple):
    """What `build_files` made: the filter, the rows that were read, the seconds it took without set-up."""

    filter: BaseFilter | ShardedFilter
    rows: int
    seconds: float


def build(
    collection: Any, column: str | None = None, *, policy: str | None = "blocked", fpr: float | None = None,
    bits_per_key: float | None = None, keys: int | str | None = None, shards: int | None = None,
    shard_bytes: int | None = None, seed: int = 0, scheduler: Any = None, workers: int | None = None,
    format: str | None = None, output: StrPath | None = None, timeout: float | None = None, **plan: Any,
) -> BaseFilter | ShardedFilter:  # fmt: skip
    """Build a filter of all keys of a collection, by many workers.

    Parameters
    ----------
    collection
        A Dask dataframe, series or bag; or paths and globs of Parquet, CSV or text files.
    column
        Of a dataframe, of Parquet, CSV, or of the items of a bag; not needed if there is one.
    policy, fpr, bits_per_key, seed, plan
        As for the filters; `policy=None` is the best balanced one. `plan`: hashes, block_bits, reads,
        semantics, …
    keys
        Distinct keys to plan for. None: the number of rows (Parquet knows it; otherwise a first pass counts).
        "distinct": estimated in a first pass, which reads and hashes everything; 2 % are added.
    shards, shard_bytes
        Number of shards, or bytes of each, of a `ShardedFilter`; None: one filter.
    scheduler
        None: processes on this machine, started for this call. "tcp://…": a cluster that runs. A
        `distributed.Client`. "threads" or "synchronous": in this process.
    workers
        Processes to start, the cores of this machine by default; only without a scheduler.
    format
        "parquet", "csv" or "text", if the suffix does not determine it.
    output
        Save there: a file, or with shards a directory that the workers write; all must see it.
    timeout
        Seconds for the whole; none by default.

    Raises
    ------
    ImportError
        Dask is missing.
    TimeoutError
        No worker answers within 30 seconds, or the work is not done within `timeout`.

    Processes import the calling script anew: guard it with `if __name__ == "__main__":`.

    Examples
    --------
    >>> import dask.bag
    >>> words = dask.bag.from_sequence(["ant", "bee", "cat", "dog"], npartitions=2)
    >>> f = build(words, fpr=1e-3, scheduler="synchronous")
    >>> "bee" in f, "elk" in f, f.capacity
    (True, False, 4)
    """
    plan |= {"policy": policy, "fpr": fpr, "bits_per_key": bits_per_key, "seed": seed}
    job = _Job(collection, column, keys, shards, shard_bytes, format, output, plan)
    with _start_engine(scheduler, workers, timeout) as engine:
        return job.run(engine).filter


def build_files(
    paths: StrPath | Sequence[StrPath], *, output: StrPath, column: str | None = None,
    workers: int | None = None, scheduler: Any = None, keys: int | str | None = None,
    shards: int | None = None, shard_bytes: int | None = None, format: str | None = None,
    timeout: float | None = None, **plan: Any,
) -> Built:  # fmt: skip
    """Build a filter of the keys in files and save it: what `evenbins build --workers` does.

    Takes the arguments of `build`; returns the filter, open read-only, with the number of rows.
    """
    names = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    plan = {"policy": "blocked", "seed": 0} | plan
    job = _Job(names, column, keys, shards, shard_bytes, format, output, plan)
    with _start_engine(scheduler, workers, timeout) as engine:
        return job.run(engine)


def _fold(plan: FilterPlan, parts: Sequence[Any], column: str | None) -> tuple[Words, int]:
    """Return the bits of a filter of the keys of some parts, and the number of rows.

    Bits and not the filter: Dask sends arrays as they lie, without a copy.
    """
    made, rows = build_filter(plan), 0
    for part in parts:
        for batch in key_batches(part, column):
            rows += count_of(batch)
            made.add_many(batch, threads=1)  # as many tasks as cores run beside this one
    return np.frombuffer(memoryview(made), dtype=np.uint64), rows


def _merge(found: Sequence[tuple[Words, int]]) -> tuple[Words, int]:
    bits = found[0][0]
    if len(found) > 1:
        bits = bits | found[1][0]  # a new array: what a task is given it must not change
        for other, _ in found[2:]:
            np.bitwise_or(bits, other, out=bits)
    return bits, sum(rows for _, rows in found)


def _merge_into(plan: FilterPlan, found: Sequence[tuple[Words, int]], path: str) -> int:
    """Merge, and write the file of the filter; doing it again changes nothing."""
    bits, rows = _merge(found)

    def write(descriptor: int) -> None:
        _files.write_all(descriptor, file_header(plan, bits))
        _files.write_all(descriptor, bits.view(np.uint8).data)

    _files.replace_file(path, write)
    return rows


def _words(
    parts: Sequence[Any], column: str | None, seed: int, cuts: Sequence[int], copies: bool
) -> list[Any]:
    """Return the words of some parts, sorted, cut into ranges; and the number of rows."""
    found, rows = [np.empty(0, dtype=np.uint64)], 0
    for part in parts:
        for batch in key_batches(part, column):
            rows += count_of(batch)
            found.append(_core.shard_words(np.ravel(digest_many(batch, seed))))
    words = _ordered(found, copies)
    ends = [0, *np.searchsorted(words, np.array(cuts, dtype=np.uint64)).tolist(), len(words)]
    return [*(words[a:b] for a, b in pairwise(ends)), rows]


def _ordered(words: Sequence[Words], copies: bool) -> Words:
    return np.sort(np.concatenate(words)) if copies else _distinct(words)


def _distinct(words: Sequence[Words]) -> Words:
    found = np.sort(np.concatenate(words))
    new = np.empty(len(found), dtype=np.bool_)
    new[:1] = True
    np.not_equal(found[1:], found[:-1], out=new[1:])
    return found if new.all() else found[new]


def _fill(
    plan: FilterPlan, shards: int, first: int, last: int, pieces: Sequence[Words], target: str | None
) -> list[Any]:
    """Fill the shards first … last-1 from the words of their range; write them if there is a target."""
    words = _ordered(pieces, plan.semantics == "multiset")
    ends = np.searchsorted(
        words, np.array([_begin(s, shards) for s in range(first + 1, last)], dtype=np.uint64)
    )
    found: list[Any] = []
    for shard, mine in enumerate(np.split(words, ends), first):
        made = build_filter(plan)
        made.add_many(_core.shard_digests(np.ascontiguousarray(mine)), digests=True, threads=1)
        found.append(made if target is None else write_shard(Path(target), shard, made))
    return found


def _begin(shard: int, shards: int) -> int:
    """Return the least word of a shard: mulhi(word, shards) = shard from there on."""
    return -(-(shard << 64) // shards)


def _count(parts: Sequence[Any], column: str | None) -> int:
    return sum(count_of(batch) for part in parts for batch in key_batches(part, column))


def _smallest(parts: Sequence[Any], column: str | None, seed: int) -> Words:
    """Return the smallest distinct words of some parts: a sample of the distinct keys."""
    least = np.empty(0, dtype=np.uint64)
    for part in parts:
        for batch in key_batches(part, column):
            words = _core.shard_words(np.ravel(digest_many(batch, seed)))
            if len(least) == _LEAST:
                words = words[words < least[-1]]
            least = _distinct([least, words])[:_LEAST]
    return least


def _estimate(samples: Sequence[Words]) -> int:
    """Estimate the distinct keys from the smallest of their words (k minimum values), five sigmas added."""
    least = _distinct(samples)[:_LEAST]
    if len(least) < _LEAST:
        return max(1, len(least))
    return int((_LEAST - 1) / (int(least[-1]) / 2**64) * (1 + 5 / math.sqrt(_LEAST)))


class _Job:
    """What is to be built, checked as far as possible before anything starts."""

    def __init__(
        self, collection: Any, column: str | None, keys: int | str | None, shards: int | None,
        shard_bytes: int | None, format: str | None, output: StrPath | None, plan: dict[str, Any],
    ) -> None:  # fmt: skip
        if isinstance(keys, str) and keys != "distinct":
            rule = 'a number of keys, None for the number of rows, or "distinct"'
            raise arguments.error("keys", rule, keys, "Leave it out")
        if shards is not None and shard_bytes is not None:
            raise ValueError("shards and shard_bytes exclude each other: pass one, or none for one filter")
        self.column, self.keys, self.output, self.seed = column, keys, output, arguments.seed(plan["seed"])
        self.in_shards = shards is not None or shard_bytes is not None
        self.request = {**plan, "shards": shards if self.in_shards else 1, "shard_bytes": shard_bytes}
        trial = keys if isinstance(keys, int) else 2**20 if self.in_shards else 1
        trial_plan = plan_sharded(trial, **self.request)  # refused now, not after reading for an hour
        if keys == "distinct" and trial_plan.shard.semantics == "multiset":
            raise ValueError(
                'keys must not be "distinct" for a multiset of fingerprints, which holds every row: leave it '
                'out, or pass semantics="set"'
            )
        self.parts = _parts(collection, column, format)
        if not self.parts:
            raise ValueError("the collection has no partition with keys: pass one that has, or other files")
        self.from_files = all(isinstance(each, Piece) for each in self.parts)
        if self.from_files:
            self.column = None  # the pieces know it

    def plan(self, engine: _Engine) -> ShardedPlan:
        keys: Any = self.keys
        groups = group_by_weight(self.parts, GROUPS * engine.workers)
        if keys == "distinct":
            samples = [engine.task(_smallest, group, self.column, self.seed) for group in groups]
            keys = engine.run(_estimate, samples)
        elif keys is None:
            known = [each.rows if isinstance(each, Piece) else None for each in self.parts]
            if None in known:
                known = engine.run(list, [engine.task(_count, group, self.column) for group in groups])
            keys = sum(known)
        return plan_sharded(max(1, keys), **self.request)

    def run(self, engine: _Engine) -> Built:
        begun = time.perf_counter()
        plan = self.plan(engine)
        made: BaseFilter | ShardedFilter
        if plan.policy in _BY_OR and not self.in_shards:
            made, rows = self._by_or(engine, plan.shard)
        else:
            made, rows = self._by_words(engine, plan, group_by_weight(self.parts, GROUPS * engine.workers))
        return Built(made, rows, time.perf_counter() - begun)

    def _by_or(self, engine: _Engine, plan: FilterPlan) -> tuple[BaseFilter, int]:
        # A group's filter is as large as the whole: to send and merge it costs more than to wait for the
        # last worker, if the work can be shared out evenly beforehand.
        groups = group_by_weight(self.parts, engine.workers if self.from_files else GROUPS * engine.workers)
        level = [engine.task(_fold, plan, group, self.column) for group in groups]
        while len(level) > _FAN_IN:
            level = [engine.task(_merge, level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        cls = class_for(plan)
        if self.output is not None and self.from_files:  # then the workers see the same files as we do
            path = os.path.abspath(self.output)
            rows: int = engine.run(_merge_into, plan, level, path)
            return cls.open(path), rows
        bits, rows = engine.run(_merge, level)
        made = cls.from_bytes(b"".join([file_header(plan, bits), bits.view(np.uint8).data]))
        return self._save(made), rows

    def _save(self, made: BaseFilter) -> BaseFilter:
        if self.output is None:
            return made
        made.save(self.output)
        return type(made).open(self.output)

    def _by_words(
        self, engine: _Engine, plan: ShardedPlan, groups: Sequence[Sequence[Any]]
    ) -> tuple[BaseFilter | ShardedFilter, int]:
        shards, copies = plan.shards, plan.shard.semantics == "multiset"
        ranges = min(shards, GROUPS * engine.workers)
        firsts = [i * shards // ranges for i in range(ranges + 1)]
        cuts = [_begin(first, shards) for first in firsts[1:-1]]
        target = None
        if self.in_shards and self.output is not None:
            target = begin_directory(os.path.abspath(self.output))
        try:
            words = [engine.task(_words, group, self.column, self.seed, cuts, copies) for group in groups]
            name = None if target is None else os.fspath(target)
            filled = [
                engine.task(_fill, plan.shard, shards, a, b, [each[i] for each in words], name)
                for i, (a, b) in enumerate(pairwise(firsts))
            ]
            found, rows = engine.run(_collect, filled, [each[ranges] for each in words])
            if target is None:
                if not self.in_shards:
                    return self._save(found[0]), rows
                return ShardedFilter.from_shards(found, plan.keys), rows
            entries = [ShardFile(*each) for each in found]
            finish_directory(target, build_filter(plan.shard), plan.keys, entries)
        except BaseException:
            if target is not None:
                discard(target)
            raise
        assert self.output is not None
        return ShardedFilter.open(self.output), rows


def _collect(filled: Sequence[Sequence[Any]], rows: Sequence[int]) -> tuple[list[Any], int]:
    return [each for some in filled for each in some], sum(rows)


def _parts(collection: Any, column: str | None, format: str | None) -> list[Any]:
    """Return pieces of files, or the delayed partitions of a collection."""
    if isinstance(collection, str | os.PathLike | list | tuple):
        return list(file_pieces(collection, column=column, format=format))
    if format is not None:
        raise ValueError(
            f"format is for files; got {format!r} with a {type(collection).__name__}. Leave it out"
        )
    if not hasattr(collection, "to_delayed"):
        raise TypeError(
            "collection must be a Dask dataframe, series or bag, or paths of files, not "
            f"{type(collection).__name__}: use filter.add_many for what is in memory"
        )
    if getattr(collection, "ndim", 0) == 2:  # a dataframe
        collection = collection[one_column(column, list(map(str, collection.columns)))]
    return list(collection.to_delayed())


class _Engine:
    """Somewhere to run tasks: a Dask cluster, or threads of this process."""

    def __init__(self, client: Any, local: str | None, workers: int, timeout: float | None) -> None:
        self._client, self._local, self.workers = client, local, workers
        self._deadline = None if timeout is None else time.monotonic() + timeout

    def task(self, function: Any, *values: Any) -> Any:
        return library("dask", "dask").delayed(function, pure=False)(*values)

    def run(self, function: Any, *values: Any) -> Any:
        """Run the last task and all that it needs; return its result."""
        last = self.task(function, *values)
        if self._client is None:
            return library("dask", "dask").compute(last, scheduler=self._local)[0]
        slow = library("distributed", "dask").TimeoutError
        future = self._client.compute(last)
        try:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            return future.result(timeout=left)
        except (slow, TimeoutError):
            raise TimeoutError("the work was not done within `timeout`: allow more, or add workers") from None
        finally:
            future.cancel()  # releases what the workers hold; nothing if it is done


@contextlib.contextmanager
def _silence(name: str) -> Iterator[None]:
    """Keep a library's remarks on its own starting and stopping from the terminal; warnings pass."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def _start_engine(scheduler: Any, workers: int | None, timeout: float | None) -> Iterator[_Engine]:
    """Yield an engine; start and stop one of our own if none is named."""
    distributed = library("distributed", "dask")
    if workers is not None:
        if scheduler is not None:
            raise arguments.unmet(
                "workers", f" is for a cluster of our own; got workers={workers} and a scheduler. Pass one"
            )
        workers = arguments.integer("workers", workers, 1, 1024, "Leave it out for all cores")
    if isinstance(scheduler, str) and scheduler in ("threads", "synchronous"):
        yield _Engine(None, scheduler, os.cpu_count() or 1 if scheduler == "threads" else 1, timeout)
        return
    with contextlib.ExitStack() as stack:
        if isinstance(scheduler, distributed.Client):
            client = scheduler
        elif scheduler is None or scheduler == "processes":
            stack.enter_context(_silence("distributed"))
            cluster = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=workers or os.cpu_count() or 1, threads_per_worker=1, processes=True,
                    host="127.0.0.1", dashboard_address="127.0.0.1:0",
                )
            )  # fmt: skip
            client = stack.enter_context(distributed.Client(cluster))
        elif isinstance(scheduler, str) and "://" in scheduler:
            try:
                client = stack.enter_context(distributed.Client(scheduler, timeout=_CONNECT_SECONDS))
            except OSError as error:
                raise TimeoutError(f"no scheduler answers at {scheduler}: {error}") from None
        else:
            rule = 'None, an address ("tcp://host:8786"), a distributed.Client, "threads" or "synchronous"'
            raise arguments.error("scheduler", rule, scheduler, "Leave it out for processes of our own")
        try:
            client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
        except (TimeoutError, distributed.TimeoutError):
            raise TimeoutError(f"no worker has joined within {_CONNECT_SECONDS} s: start some") from None
        count = max(1, sum(client.nthreads().values()))
        yield _Engine(client, None, count, timeout)
