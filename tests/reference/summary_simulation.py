"""Summaries of multilevel tables, simulated: the twin of cpp/study/simulate_summaries.cpp.

The same draws in plain Python, with plain sets and dictionaries, so that all counts must be equal, trial by
trial. What is simulated stands in cpp/study/simulate_summaries.hpp; Kirsch's thesis, chapter 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from reference.keys import splitmix
from reference.multilevel_simulation import Xoshiro

__all__ = ["counters_trial", "rebuild_trial", "song_trial", "summary_trial"]


def _left(random: Xoshiro, keys: int, sizes: Sequence[int]) -> list[int]:
    """Give |S_0| ... |S_d|."""
    left = [keys]
    for size in sizes:
        left.append(left[-1] - len({random.below(size) for _ in range(left[-1])}))
    return left


class _Filter:
    """A set of cells, and how a key draws its own."""

    def __init__(self, random: Xoshiro, cells: int, hashes: int, partitioned: bool) -> None:
        self.random, self.hashes = random, hashes
        self.span = cells // hashes if partitioned else cells
        self.stride = self.span if partitioned else 0
        self.cells: set[int] = set()

    def position(self, h: int) -> int:
        return h * self.stride + self.random.below(self.span)

    def key(self) -> list[int]:
        return [self.position(h) for h in range(self.hashes)]

    def has_new(self) -> bool:
        """Draw a key, up to its first cell that is not covered."""
        return all(self.position(h) in self.cells for h in range(self.hashes))


def summary_trial(
    keys: int, sizes: Sequence[int], filters: Sequence[tuple[int, int]], *, partitioned: bool, queries: int,
    seed: int, trial: int,
) -> tuple[list[int], list[int], int]:  # fmt: skip
    """Give |S_1| ... |S_d|, the failures of each type, and the queries that were not told absent."""
    random = Xoshiro(splitmix(seed, trial))
    left = _left(random, keys, sizes)
    held = [before - after for before, after in pairwise(left)]
    failures = [0] * len(sizes)
    first = _Filter(random, *filters[0], partitioned)
    if len(filters) == 1:
        for _ in range(left[-1]):
            first.cells.update(first.key())
        for i in reversed(range(len(sizes))):
            if i == 0 and queries == 0:
                failures[0] = sum(first.has_new() for _ in range(held[0])) if left[1] else 0
                break
            own = [first.key() for _ in range(held[i])]
            failures[i] = sum(first.cells.issuperset(key) for key in own)
            for key in own:
                first.cells.update(key)
    else:
        for i in range(1, len(sizes)):
            if left[i] == 0:
                break
            here = _Filter(random, *filters[i], partitioned)
            for _ in range(left[i]):
                here.cells.update(here.key())
            failures[i - 1] = sum(here.has_new() for _ in range(held[i - 1]))
        for _ in range(keys if queries else 0):
            first.cells.update(first.key())
    return left[1:], failures, sum(first.has_new() for _ in range(queries))


def counters_trial(
    keys: int, sizes: Sequence[int], filters: Sequence[tuple[int, int]], once: Sequence[bool], *, seed: int,
    trial: int,
) -> list[int]:  # fmt: skip
    """Give the largest counter of each filter."""
    random = Xoshiro(splitmix(seed, trial))
    left = _left(random, keys, sizes)
    largest = []
    for number, (cells, hashes), single in zip(left, filters, once, strict=False):
        counters: Counter[int] = Counter()
        for _ in range(number):
            own = [random.below(cells) for _ in range(hashes)]
            counters.update(set(own) if single else own)
        largest.append(max(counters.values(), default=0))
    return largest


def rebuild_trial(
    keys: int, deleted: int, sizes: Sequence[int], *, first_only: bool, seed: int, trial: int
) -> tuple[int, int, int]:
    """Give moves, those into the first sub-table, and keys that found no place."""
    random = Xoshiro(splitmix(seed, trial))
    tables: list[dict[int, int]] = [{} for _ in sizes]
    paths: list[list[int]] = []
    levels: list[int] = []
    for x in range(keys):
        path: list[int] = []
        for table, size in zip(tables, sizes, strict=True):
            path.append(random.below(size))
            if path[-1] not in table:
                table[path[-1]] = x
                levels.append(len(path) - 1)
                break
        else:
            levels.append(len(sizes))
        paths.append(path)
    victims = [x for x in range(keys) if not first_only or levels[x] == 0]
    for t in range(min(deleted, len(victims))):
        other = t + random.below(len(victims) - t)
        victims[t], victims[other] = victims[other], victims[t]
        if (level := levels[victims[t]]) < len(sizes):
            del tables[level][paths[victims[t]][level]]
    moves = into_first = 0
    for i, table in enumerate(tables):
        for bucket, x in sorted(table.items()):
            for j in range(i):
                if paths[x][j] not in tables[j]:
                    tables[j][paths[x][j]] = table.pop(bucket)
                    moves += 1
                    into_first += j == 0
                    break
    return moves, into_first, levels.count(len(sizes))


def song_trial(
    keys: int, buckets: int, hashes: int, *, full: int, seed: int, trial: int
) -> tuple[int, int, int, int, int]:
    """Give largest load, crowded keys, counters above zero, largest counter, stuck keys."""
    random = Xoshiro(splitmix(seed, trial))
    own = [[random.below(buckets) for _ in range(hashes)] for _ in range(keys)]
    counters = Counter(bucket for each in own for bucket in each)
    best = [min(each, key=lambda bucket: (counters[bucket], bucket)) for each in own]
    loads = Counter(best)
    return (
        max(loads.values(), default=0),
        keys - len(loads),
        len(counters),
        max(counters.values(), default=0),
        sum(counters[bucket] >= full for bucket in best),
    )
