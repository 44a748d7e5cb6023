"""Simulations for the papers (cpp/study/simulate.hpp, simulate_tables.hpp).

    simulate           keys into bins with a limit: the balancing schemes
    simulate_hashing   Bloom filters whose positions come from few hash functions
    simulate_table     multilevel tables that move at most one key, with and without deletions

All speak the library's names; what they return holds the counts of all trials and gives the fractions that
the theory predicts. Fast enough, some 100 million keys a second and core (tables: 40), that none need be a
small one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from evenbins import _study
from evenbins.study.papers.trials import Counts, Floats, Run, Trials, check_choice, checked_run, share, whole
from evenbins.study.theory.hashing_law import HASHINGS, OFFSETS

__all__ = [
    "Simulated",
    "SimulatedFilters",
    "SimulatedTables",
    "simulate",
    "simulate_hashing",
    "simulate_table",
    "split",
]

_POLICIES = ("plain", "single", "sequential", "multilevel")
_SCHEMES = ("standard", "conservative", "second-chance", "extreme-second-chance")
_PROCESSES = ("insert", "replace", "poisson")
_SIDES = ("any", "right")
_MOST_THRESHOLD = 65534


@dataclass(frozen=True)
class Simulated:
    """Counts of all trials, at all checkpoints.

    Parameters
    ----------
    bins
        Bins of each table.
    checkpoints
        Keys inserted so far, at each checkpoint.
    loads
        ``loads[trial, checkpoint, table, i]``: bins of the table that hold i keys.
    overflow, spilled, accesses
        ``[trial, checkpoint]``: keys on the list; keys put into a full bin; bins read.
    """

    bins: tuple[int, ...]
    checkpoints: tuple[int, ...]
    loads: Counts
    overflow: Counts
    spilled: Counts
    accesses: Counts

    @property
    def occupancy(self) -> Floats:
        """``[trial, checkpoint, i]``: fraction of all bins that hold i keys."""
        return share(self.loads.sum(axis=2), sum(self.bins))

    @property
    def overflow_share(self) -> Floats:
        """``[trial, checkpoint]``: fraction of the keys that are on the list; 0 without keys."""
        return self._per_key(self.overflow)

    @property
    def reads(self) -> Floats:
        """``[trial, checkpoint]``: bins read for a key, on average; 0 without keys."""
        return self._per_key(self.accesses)

    @property
    def variance(self) -> Floats:
        """``[trial, checkpoint]``: variance of the load over all bins."""
        occupancy = self.occupancy
        load = np.arange(occupancy.shape[-1])
        mean = occupancy @ load
        variance: Floats = occupancy @ load**2 - mean**2
        return variance

    def _per_key(self, counts: Counts) -> Floats:
        return share(counts, self.checkpoints)


def simulate(
    policy: str, *, keys: int, bins: int | Sequence[int], thresholds: int | Sequence[int] | None = None,
    coin: float = 0.0, choices: int | None = None, shares: Sequence[float] | None = None,
    budget: int | None = None, overflow_limit: int | None = None, spill: str = "random",
    checkpoints: Sequence[int] | None = None, **run: Unpack[Trials],
) -> Simulated:  # fmt: skip
    """Put keys into bins, by one of the paper's schemes, in several independent trials.

    Parameters
    ----------
    policy
        ``"plain"`` (no limit), ``"single"``, ``"sequential"`` or ``"multilevel"`` (the paper's MHT).
    keys
        n, the keys of each trial.
    bins
        m, in all; for ``"multilevel"`` also the bins of each table.
    thresholds
        h: a bin with fewer keys accepts one more. One number, or one for each table.
    coin
        p: a bin with exactly that many accepts with this probability.
    choices
        d, the bins a key may use, at most 8. Follows from the tables for ``"multilevel"``.
    shares
        alpha, the parts of the tables in `bins`, for ``"multilevel"``.
    budget
        Bins that may be read by all keys together; a key that comes later goes to the list unread.
    overflow_limit
        Keys the list may hold. What finds it full goes into one of its bins, by `spill`.
    spill
        ``"random"`` (section 9.2) or ``"least"``: of least load, ties to the earlier level.
    checkpoints
        Numbers of keys, ascending, at which to look; `keys` alone if not given.
    run
        `trials`, `seed`, `threads`: `evenbins.study.papers.trials.Trials`.

    Examples
    --------
    >>> seen = simulate("single", keys=25_000, bins=10_000, thresholds=2, coin=0.5, trials=100, seed=1)
    >>> round(float(seen.overflow_share.mean()), 3)
    0.225
    """
    check_choice("policy", policy, _POLICIES)
    tables = _tables(policy, bins, shares)
    if policy == "plain" and thresholds is not None:
        raise ValueError(f"thresholds must be left out for policy 'plain', not {thresholds!r}")
    if policy != "plain" and thresholds is None:
        raise ValueError(
            f"thresholds must be given for policy {policy!r}: the keys a bin accepts for certain"
        )
    if policy == "multilevel":
        if choices not in (None, len(tables)):
            raise ValueError(
                f"choices must be the number of tables, {len(tables)}, or left out, not {choices}"
            )
        choices = len(tables)
    elif policy == "sequential":
        choices = 1 if choices is None else whole("choices", choices, 1, 8)
    elif choices not in (None, 1):
        raise ValueError(f"choices must be 1 for policy {policy!r}, not {choices}: take 'sequential'")
    limits = [_MOST_THRESHOLD] if thresholds is None else _sequence(thresholds, len(tables))
    limits = [whole("thresholds", each, 0, _MOST_THRESHOLD) for each in limits]
    if not 0 <= coin <= 1:
        raise ValueError(f"coin must be a probability, 0 to 1, not {coin}")
    check_choice("spill", spill, ("random", "least"))
    keys = whole("keys", keys, 0, 2**48)
    looks = [keys] if checkpoints is None else [whole("checkpoints", each, 0, keys) for each in checkpoints]
    if not looks or looks != sorted(looks):
        raise ValueError(f"checkpoints must be one or more numbers in ascending order, not {checkpoints}")
    counts = _study.simulate_balance(
        bins=tables,
        thresholds=limits,
        coin=round(coin * 2**32),
        choices=choices or 1,
        budget=None if budget is None else whole("budget", budget, 0, 2**63),
        overflow_limit=None if overflow_limit is None else whole("overflow_limit", overflow_limit, 0, 2**63),
        spill_least=spill == "least",
        checkpoints=looks,
        **checked_run(run, Trials),
    )
    return Simulated(tuple(tables), tuple(looks), *counts)


@dataclass(frozen=True)
class SimulatedFilters:
    """Counts of all trials, each of one filter.

    Parameters
    ----------
    bits
        Of a filter, those counted that a partition leaves over.
    queries
        Absent keys that each filter was asked for.
    positives
        ``[trial]``: how many of them it took for its own; the thesis' Q.
    set_bits
        ``[trial]``: bits that are set.
    """

    bits: int
    queries: int
    positives: Counts
    set_bits: Counts

    @property
    def fpr(self) -> Floats:
        """``[trial]``: fraction of false positives; 0 without queries."""
        return share(self.positives, self.queries)

    @property
    def fill(self) -> Floats:
        """``[trial]``: fraction of the bits that are set."""
        return share(self.set_bits, self.bits)


def simulate_hashing(
    hashing: str, *, bits: int, hashes: int, keys: int, queries: int, offset: str = "square",
    **run: Unpack[Trials],
) -> SimulatedFilters:  # fmt: skip
    """Fill Bloom filters and ask them for absent keys; hash functions are fully random.

    Parameters
    ----------
    hashing
        ``"independent"``, ``"partition"``, ``"double"``, ``"enhanced-double"`` or ``"triple"``, as
        `evenbins.study.theory.hashing_law` defines them. A partition has parts of ``bits // hashes`` bits.
    bits
        m, 1 to 2**32.
    hashes
        k, 1 to 64.
    keys
        n, put into each filter.
    queries
        Absent keys that each filter is asked for.
    offset
        f(i) of ``"enhanced-double"``: ``"square"``, ``"cube"`` or ``"tetrahedral"``.
    run
        `trials`, `seed`, `threads`: `evenbins.study.papers.trials.Trials`.

    Examples
    --------
    >>> seen = simulate_hashing("double", bits=8000, hashes=6, keys=1000, queries=500, trials=1000, seed=1)
    >>> round(float(seen.fpr.mean()), 3), round(float(seen.fill.mean()), 2)
    (0.021, 0.53)
    """
    check_choice("hashing", hashing, HASHINGS)
    check_choice("offset", offset, OFFSETS)
    bits, hashes = whole("bits", bits, 1, 2**32), whole("hashes", hashes, 1, 64)
    if hashing == "partition" and bits < hashes:
        raise ValueError(f"bits must be one for each of {hashes} parts at least, not {bits}")
    queries = whole("queries", queries, 0, 2**48)
    counts = _study.simulate_hashing(
        hashing=f"{hashing} {offset}" if hashing == "enhanced-double" else hashing,
        bits=bits,
        hashes=hashes,
        keys=whole("keys", keys, 0, 2**48),
        queries=queries,
        **checked_run(run, Trials),
    )
    return SimulatedFilters(bits, queries, *counts)


@dataclass(frozen=True)
class SimulatedTables:
    """Counts of all trials, each of one table, at all samples.

    Parameters
    ----------
    keys
        n: keys in the table; with process ``"poisson"`` their mean.
    buckets
        Of each level.
    slots
        Cells of a bucket.
    arrivals, moves, overflow
        ``[trial, sample]``: keys inserted so far; insertions so far that moved a key; keys on the list now.
    held
        ``[trial, sample, level]``: keys in the level now.
    """

    keys: int
    buckets: tuple[int, ...]
    slots: int
    arrivals: Counts
    moves: Counts
    overflow: Counts
    held: Counts

    @property
    def overflow_share(self) -> Floats:
        """``[trial, sample]``: keys on the list by `keys`; 0 without keys."""
        return share(self.overflow, self.keys)

    @property
    def moves_share(self) -> Floats:
        """``[trial, sample]``: fraction of all insertions so far that moved a key; 0 without keys."""
        return share(self.moves, self.arrivals)

    @property
    def late_moves(self) -> Floats:
        """``[trial]``: that fraction among the insertions between the first and the last sample.

        0 where there are none, as without deletions.
        """
        arrivals, moves = (
            counts[:, -1].astype(np.float64) - counts[:, 0] for counts in (self.arrivals, self.moves)
        )
        return share(moves, arrivals)

    @property
    def fills(self) -> Floats:
        """``[trial, sample, level]``: fraction of the level's cells that hold a key."""
        return share(self.held, np.array(self.buckets) * self.slots)


def simulate_table(
    scheme: str, *, keys: int, shares: Iterable[float] | None = None, buckets: Iterable[int] | None = None,
    slots: int = 1, process: str = "insert", side: str = "any", burn_in: float = 30.0,
    samples: int | None = None, interval: int = 1, **run: Unpack[Run],
) -> SimulatedTables:  # fmt: skip
    """Put keys into multilevel hash tables that move at most one key for an insertion.

    Hashing is fully random.

    Parameters
    ----------
    scheme
        ``"standard"``, ``"conservative"``, ``"second-chance"`` or ``"extreme-second-chance"``: Kirsch's
        thesis, sections 5.2 to 5.7; cpp/study/simulate_tables.hpp says what each does.
    keys
        n, at most 2**28.
    shares
        alpha_i: level i has ``floor(shares[i] * keys)`` buckets, as in the thesis; so `slots` times their sum
        is the space. 1 to 16 levels.
    buckets
        Instead of shares, the buckets of each level.
    slots
        Cells of a bucket, 1 to 8. The thesis has 1, and 2 for the standard and the second-chance scheme.
    process
        ``"insert"``: n insertions. ``"replace"``: then, again and again, one more and the deletion of a
        random other key (section 5.9, the first model). ``"poisson"``: arrivals at rate n, lifetimes
        exponential of mean 1 (the second model).
    side
        For ``"extreme-second-chance"``: ``"any"`` lets a key move to either side, ``"right"`` only to the
        right. The same without deletions.
    burn_in
        Time before the samples, in mean lifetimes, which are n replacements: 30 in the thesis.
    samples
        States looked at in each trial: 10 by default, as in the thesis; 1 without deletions.
    interval
        Steps from one sample to the next: replacements, or arrivals and departures.
    run
        `trials`, `seed`, `threads`, `progress`: `evenbins.study.papers.trials.Run`.

    Examples
    --------
    >>> shares = [0.4694, 0.4562, 0.2512, 0.1082]
    >>> seen = simulate_table("second-chance", keys=10_000, shares=shares, trials=100)
    >>> round(float(seen.overflow_share.mean()), 3), round(float(seen.moves_share.mean()), 3)
    (0.002, 0.129)
    """
    check_choice("scheme", scheme, _SCHEMES)
    check_choice("process", process, _PROCESSES)
    check_choice("side", side, _SIDES)
    if side != "any" and scheme != "extreme-second-chance":
        raise ValueError(f"side must be left out for scheme {scheme!r}: its keys move to the right only")
    keys = whole("keys", keys, 0 if process == "insert" else 1, 2**28)
    slots = whole("slots", slots, 1, 8)
    levels = _levels(keys, slots, shares, buckets)
    if not 0 <= burn_in <= 1e6:
        raise ValueError(f"burn_in must be 0 to 1000000 mean lifetimes, not {burn_in}")
    if process == "insert" and samples not in (None, 1):
        raise ValueError(f"samples must be 1 or left out for process 'insert', not {samples}: it has one end")
    looks = (1 if process == "insert" else 10) if samples is None else whole("samples", samples, 1, 2**24)
    counts = _study.simulate_table(
        scheme=f"{scheme} {side}" if scheme == "extreme-second-chance" else scheme,
        buckets=levels,
        slots=slots,
        process=process,
        keys=keys,
        burn_in=float(burn_in),
        samples=looks,
        interval=whole("interval", interval, 1, 2**32),
        **checked_run(run),
    )
    return SimulatedTables(keys, tuple(levels), slots, *counts)


def _levels(
    keys: int, slots: int, shares: Iterable[float] | None, buckets: Iterable[int] | None
) -> list[int]:
    if shares is not None and buckets is None:
        name, levels = "shares", [_rounded_down(keys, float(each)) for each in shares]
    elif buckets is not None and shares is None:
        name, levels = "buckets", [whole("buckets", each, 1, 2**30) for each in buckets]
    else:
        raise ValueError(f"shares or buckets must be given, not both; got shares={shares}, buckets={buckets}")
    if not 1 <= len(levels) <= 16:
        raise ValueError(f"{name} must be of 1 to 16 levels, not {len(levels)}")
    if sum(levels) * slots > 2**30:
        raise ValueError(f"buckets must have at most 2**30 slots in all, not {sum(levels) * slots}")
    return levels


def _rounded_down(keys: int, share: float) -> int:
    """Return floor(share * keys); what misses a whole number by a rounding error is that number."""
    exact = share * keys
    if not math.isfinite(exact) or not 1 - 1e-12 <= exact <= 2**30:
        raise ValueError(
            f"shares must give each level at least one bucket and at most 2**30; share {share} of {keys} keys"
            f" is {exact:g}: give `buckets` instead"
        )
    nearest = round(exact)
    return nearest if abs(exact - nearest) <= 1e-12 * exact else math.floor(exact)


def split(bins: int, shares: Sequence[float]) -> list[int]:
    """Divide bins into tables by their shares: whole numbers, at least 1 each, by largest remainder.

    >>> split(1024, [0.833, 0.142, 0.025])
    [853, 145, 26]
    """
    bins = whole("bins", bins, 1, 2**30)
    if not shares or not all(math.isfinite(each) and each > 0 for each in shares):
        raise ValueError(f"shares must be positive numbers, not {list(shares)}")
    if len(shares) > bins:
        raise ValueError(f"bins must be one for each of {len(shares)} tables at least, not {bins}")
    exact = [bins * each / math.fsum(shares) for each in shares]
    parts = [max(1, math.floor(each)) for each in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: parts[i] - exact[i])
    for i in range(bins - sum(parts)):
        parts[by_remainder[i % len(parts)]] += 1
    while sum(parts) > bins:  # tables below one bin were lifted to one: the largest pays
        parts[parts.index(max(parts))] -= 1
    return parts


def _tables(policy: str, bins: int | Sequence[int], shares: Sequence[float] | None) -> list[int]:
    if policy != "multilevel":
        if shares is not None:
            raise ValueError(f"shares must be left out for policy {policy!r}, not {list(shares)}")
        if isinstance(bins, Sequence):
            raise ValueError(f"bins must be one number for policy {policy!r}, not {list(bins)}")
        return [whole("bins", bins, 1, 2**30)]
    if isinstance(bins, Sequence) != (shares is None):
        raise ValueError(
            f"bins must be one number with shares, or those of each table without, not {bins} with {shares}"
        )
    tables = list(bins) if isinstance(bins, Sequence) else split(bins, shares or ())
    if not 1 <= len(tables) <= 8:
        raise ValueError(f"bins must be of 1 to 8 tables, not {len(tables)}")
    return [whole("bins", each, 1, 2**30) for each in tables]


def _sequence(thresholds: int | Sequence[int], tables: int) -> list[int]:
    if not isinstance(thresholds, Sequence):
        return [thresholds] * tables
    if len(thresholds) != tables:
        raise ValueError(
            f"thresholds must be one number, or one for each of {tables} tables, not {list(thresholds)}"
        )
    return list(thresholds)
