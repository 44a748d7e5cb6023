"""Simulations of multilevel tables with summaries (cpp/study/simulate_summaries.hpp).

    simulate_summary    do the filters find every key's sub-table? single filter, or B_0 ... B_{d-1}
    simulate_counters   the largest counter of each counting filter
    simulate_rebuild    keys that a rebuild moves after lazy deletions
    simulate_song       Song et al.'s counters with pruning: two keys in one bucket

A key is its hash values, fully random. A trial's numbers depend on `seed` and its position alone; the GIL is
released, Ctrl-C stops the work, `progress` is called some times a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from evenbins import _study
from evenbins.study.papers.trials import Counts, Floats, Run, check_choice, checked_run, whole
from evenbins.study.theory.multilevel import DELETIONS

__all__ = [
    "SimulatedRebuilds",
    "SimulatedSong",
    "SimulatedSummaries",
    "simulate_counters",
    "simulate_rebuild",
    "simulate_song",
    "simulate_summary",
]

_MOST_HASHES = 256


@dataclass(frozen=True)
class SimulatedSummaries:
    """Counts of all trials, each of one table with its summary.

    Parameters
    ----------
    keys, sizes, queries
        As for `simulate_summary`.
    passed
        ``[trial, i]``: size of S(i+1), keys not placed in the first i + 1 sub-tables; the last are a crisis.
    failures
        ``[trial, i]``: keys in sub-table i + 1 that the summary places elsewhere.
    positives
        ``[trial]``: queries of absent keys that were answered as present.
    """

    keys: int
    sizes: tuple[int, ...]
    queries: int
    passed: Counts
    failures: Counts
    positives: Counts


def simulate_summary(
    keys: int,
    sizes: Iterable[int],
    filters: Sequence[tuple[int, int]],
    *,
    partitioned: bool = True,
    queries: int = 0,
    **run: Unpack[Run],
) -> SimulatedSummaries:
    """Fill tables and their summaries, and count what the summaries get wrong.

    Parameters
    ----------
    keys
        n, at most 2**26.
    sizes
        Buckets of the sub-tables, of one slot each: 1 to 16 sub-tables.
    filters
        Cells and hashes. One: the single filter. One for each sub-table: B_0 ... B_{d-1}. (So a table of one
        sub-table has the single filter.)
    partitioned
        Whether each hash has cells of its own, ``cells // hashes`` of them.
    queries
        Absent keys asked for, in each trial; they make it slower, for then all keys' cells are needed.
    run
        `trials`, `seed`, `threads`, `progress`: `evenbins.study.papers.trials.Run`.

    Examples
    --------
    >>> seen = simulate_summary(1000, [4000, 1000, 500, 250, 250], [(2000, 3)], trials=500)
    >>> bool(seen.failures[:, 0].mean() > 1), int(seen.failures[:, 3:].sum())
    (True, 0)
    """
    tables = _sizes(sizes)
    shared = len(filters) == 1
    if len(filters) not in (1, len(tables)):
        raise ValueError(
            f"filters must be one, or one for each of {len(tables)} sub-tables, not {len(filters)}"
        )
    number, asked = whole("keys", keys, 0, 2**26), whole("queries", queries, 0, 2**48)
    counts = _study.simulate_summary(
        keys=number,
        sizes=tables,
        filters=_filters(filters, partitioned),
        shared=shared,
        partitioned=bool(partitioned),
        queries=asked,
        **checked_run(run),
    )
    return SimulatedSummaries(number, tuple(tables), asked, *counts)


def simulate_counters(
    keys: int,
    sizes: Iterable[int],
    filters: Sequence[tuple[int, int]],
    *,
    once: Sequence[bool] | None = None,
    **run: Unpack[Run],
) -> Counts:
    """Fill counting filters B_0 ... B_{d-1}; return ``[trial, i]``, the largest counter of B_i.

    Parameters
    ----------
    keys, sizes, run
        As for `simulate_summary`.
    filters
        Counters and hashes of each filter; not partitioned.
    once
        For each filter, whether a key moves a counter by one though several of its hashes fall there; by
        default for none.

    Examples
    --------
    >>> simulate_counters(0, [10], [(5, 2)]).tolist()
    [[0]]
    """
    tables = _sizes(sizes)
    flags = [False] * len(filters) if once is None else [bool(each) for each in once]
    if not len(filters) == len(flags) == len(tables):
        raise ValueError(
            f"filters and once must be one for each of {len(tables)} sub-tables, not {len(filters)} and "
            f"{len(flags)}"
        )
    return _study.simulate_counters(
        keys=whole("keys", keys, 0, 2**26),
        sizes=tables,
        filters=_filters(filters, partitioned=False),
        once=flags,
        **checked_run(run),
    )


@dataclass(frozen=True)
class SimulatedRebuilds:
    """Counts of all trials, each of one rebuild.

    Parameters
    ----------
    moves
        ``[trial]``: keys that moved (the thesis' M).
    into_first
        ``[trial]``: of these, into the first sub-table.
    crisis
        ``[trial]``: keys that found no place when they were inserted.
    """

    moves: Counts
    into_first: Counts
    crisis: Counts


def simulate_rebuild(
    keys: int,
    deleted: int,
    sizes: Iterable[int],
    *,
    model: str = "random",
    **run: Unpack[Run],
) -> SimulatedRebuilds:
    """Fill tables, delete some keys, rebuild, and count the moves (section 4.10.1).

    Parameters
    ----------
    keys, deleted, sizes, model
        As for `evenbins.study.theory.multilevel.rebuild_moves`.
    run
        As for `simulate_summary`.

    Examples
    --------
    >>> seen = simulate_rebuild(2, 1, [1, 1], trials=1000)     # the key behind moves, or is deleted
    >>> bool(0.4 < seen.moves.mean() < 0.6)
    True
    """
    check_choice("model", model, DELETIONS)
    number = whole("keys", keys, 0, 2**26)
    counts = _study.simulate_rebuild(
        keys=number,
        sizes=_sizes(sizes),
        deleted=whole("deleted", deleted, 0, number),
        first_only=model == "first",
        **checked_run(run),
    )
    return SimulatedRebuilds(*counts)


@dataclass(frozen=True)
class SimulatedSong:
    """Counts of all trials, each of one pruned table of Song et al.

    Parameters
    ----------
    buckets, hashes
        As for `simulate_song`.
    largest
        ``[trial]``: keys in the fullest bucket.
    crowded
        ``[trial]``: keys beyond the first of their bucket.
    counted
        ``[trial]``: counters above zero.
    highest
        ``[trial]``: the largest counter.
    stuck
        ``[trial]``: keys whose counters are all full.
    """

    buckets: int
    hashes: int
    largest: Counts
    crowded: Counts
    counted: Counts
    highest: Counts
    stuck: Counts

    @property
    def false_positives(self) -> Floats:
        """``[trial]``: the chance that none of an absent key's counters is zero."""
        return np.asarray((self.counted / self.buckets) ** self.hashes)


def simulate_song(
    keys: int,
    buckets: int,
    hashes: int,
    *,
    counter_bits: int = 3,
    **run: Unpack[Run],
) -> SimulatedSong:
    """Build Song et al.'s pruned tables (section 4.3).

    Every key is counted in `hashes` buckets, with multiplicity, and kept in that of the least counter, ties
    to the lowest bucket.

    Parameters
    ----------
    keys
        n, at most 2**26.
    buckets
        m, at most 2**30.
    hashes
        d, 1 to 256.
    counter_bits
        A counter is full at ``2**counter_bits - 1``; only `SimulatedSong.stuck` depends on it.
    run
        As for `simulate_summary`.

    Examples
    --------
    >>> simulate_song(3, 1, 2).largest.tolist()      # one bucket for all
    [3]
    """
    size, number = whole("buckets", buckets, 1, 2**30), whole("hashes", hashes, 1, _MOST_HASHES)
    counts = _study.simulate_song(
        keys=whole("keys", keys, 0, 2**26),
        buckets=size,
        hashes=number,
        full=2 ** whole("counter_bits", counter_bits, 1, 32) - 1,
        **checked_run(run),
    )
    return SimulatedSong(size, number, *counts)


def _sizes(sizes: Iterable[int]) -> list[int]:
    tables = [whole("sizes", each, 1, 2**30) for each in sizes]
    if not 1 <= len(tables) <= 16:
        raise ValueError(f"sizes must be of 1 to 16 sub-tables, not {len(tables)}")
    return tables


def _filters(filters: Sequence[tuple[int, int]], partitioned: bool) -> list[tuple[int, int]]:
    checked = []
    for cells, hashes in filters:
        number = whole("hashes", hashes, 1, _MOST_HASHES)
        checked.append((whole("cells", cells, number if partitioned else 1, 2**32), number))
    return checked
