"""A look-up's walk over chains: what it is asked of, and how its times add up (see `chains`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numpy.polynomial import legendre

from evenbins.theory.caching import cached

__all__ = [
    "BALANCED", "NOTHING", "Chains", "Layout", "absent_query", "assemble", "quadrature", "then",
]  # fmt: skip

Vector = npt.NDArray[np.float64]

BALANCED = ("single", "sequential", "multilevel")
"""The policies of kanizo: thresholds, a coin, overflow chains."""
_PANELS, _NODES = 12, 8  # of the quadrature over the moments


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The integers of a table of chains, but for its arena.

    Attributes
    ----------
    policy : one of `POLICIES`
    choices : bins a key may use (d)
    bins : bins of each table: `choices` tables for "multilevel" and "d-left", else one
    thresholds : keys from which a bin of each table does not simply accept (h); empty for "least-loaded",
        "d-left"
    coin : out of 2**32: the chance (p) that a bin of exactly `threshold` keys accepts one more
    overflow_bins : chains for the keys that all their bins refuse; 0 for "least-loaded", "d-left"
    """

    policy: str
    choices: int
    bins: tuple[int, ...]
    thresholds: tuple[int, ...] = ()
    coin: int = 0
    overflow_bins: int = 0

    @property
    def balanced(self) -> bool:
        """Whether it is one of kanizo's policies, with thresholds and overflow chains."""
        return self.policy in BALANCED


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chains:
    """A table of chains with a number of keys in it, in the limit of many bins.

    Attributes
    ----------
    tables : [table, i]: fraction of the bins of each table with i keys
    loads : entry i: fraction of all bins with i keys; overflow chains are not bins
    overflow_loads : entry i: fraction of the overflow chains with i keys
    mean, variance, overflow, insertion_reads, reads, miss_reads : as in `evenbins.ChainPlan`
    query_mean, query_variance, miss_mean, miss_variance : as there
    """

    tables: Vector = field(repr=False)
    loads: Vector = field(repr=False)
    mean: float
    variance: float
    overflow: float
    overflow_loads: Vector = field(repr=False)
    insertion_reads: float
    reads: float
    miss_reads: float
    query_mean: float
    query_variance: float
    miss_mean: float
    miss_variance: float


# A time of a walk is an array whose last axis is [chance, mean, mean square]; the chance may be below 1: mean
# and square are of that part only.
NOTHING = np.array([1.0, 0.0, 0.0])


def then(a: Vector, b: Vector) -> Vector:
    """Combine two independent times into their sum."""
    return np.stack(
        [
            a[..., 0] * b[..., 0],
            a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0],
            a[..., 0] * b[..., 2] + 2.0 * a[..., 1] * b[..., 1] + a[..., 2] * b[..., 0],
        ],
        axis=-1,
    )


def _moments_of_time(time: Vector) -> tuple[float, float]:
    """Return mean and variance of a time."""
    mean = float(time[1] / time[0])
    return mean, max(float(time[2] / time[0]) - mean * mean, 0.0)


def _load_time(chance: Vector) -> Vector:
    """Return the time of a bin whose entries are all compared: chance[..., i] is that of i entries."""
    i = np.arange(chance.shape[-1], dtype=np.float64)
    return np.stack([chance.sum(-1), (chance * i).sum(-1), (chance * i * i).sum(-1)], axis=-1)


def absent_query(
    choices: int, tables: Sequence[Vector] | Vector, passed: Sequence[Vector] | Vector, overflow_loads: Vector
) -> tuple[float, float, float]:
    """Compute what a look-up of an absent key costs, from the loads of the bins.

    Parameters
    ----------
    choices
        Bins that it may read (d).
    tables, passed
        For each table, entry i is the fraction of its bins with i keys; and of those with i keys which do not
        end the look-up.
    overflow_loads
        Entry i is the fraction of overflow chains with i keys.

    Returns
    -------
    tuple
        Mean of the bins read, mean and variance of the entries compared.

    Examples
    --------
    >>> half = np.array([0.5, 0.5])  # bins of 0 and 1 keys, all read
    >>> absent_query(2, [half], [half], np.array([1.0]))
    (2.0, 1.0, 0.5)
    """
    time, so_far, reads = np.zeros(3), NOTHING, 0.0
    for level in range(choices):
        table = min(level, len(tables) - 1)
        whole, goes_on = _load_time(tables[table]), _load_time(passed[table])
        reads += float(so_far[0])
        time = time + then(so_far, whole - goes_on)
        so_far = then(so_far, goes_on)
    mean, variance = _moments_of_time(time + then(so_far, _load_time(overflow_loads)))
    return reads, mean, variance


def assemble(
    layout: Layout, tables: Sequence[Vector] | Vector, passed: Sequence[Vector] | Vector, time: Vector, *,
    reads: float, insertion_reads: float, overflow: float = 0.0, overflow_loads: Vector | None = None,
) -> Chains:  # fmt: skip
    """Complete what is known of a table: loads as of `absent_query`, and the time of a present key's walk."""
    listed = np.array([1.0]) if overflow_loads is None else overflow_loads
    by_table = np.zeros((len(tables), max(len(each) for each in tables)))
    for row, each in zip(by_table, tables, strict=True):
        row[: len(each)] = each
    loads = np.array(layout.bins) / sum(layout.bins) @ by_table
    i = np.arange(len(loads))
    mean = float(loads @ i)
    query_mean, query_variance = _moments_of_time(time)
    miss_reads, miss_mean, miss_variance = absent_query(layout.choices, tables, passed, listed)
    return Chains(
        tables=by_table,
        loads=loads,
        mean=mean,
        variance=float(loads @ (i - mean) ** 2),
        overflow=overflow,
        overflow_loads=listed,
        insertion_reads=insertion_reads,
        reads=reads,
        miss_reads=miss_reads,
        query_mean=query_mean,
        query_variance=query_variance,
        miss_mean=miss_mean,
        miss_variance=miss_variance,
    )


@cached(4)
def quadrature(panels: int = _PANELS) -> tuple[Vector, Vector]:
    """Return moments between 0 and 1, and their weights."""
    x, w = legendre.leggauss(_NODES)
    starts = np.arange(panels) / panels
    moments = (starts[:, None] + (x + 1.0) / (2.0 * panels)).ravel()
    return moments, np.tile(w / (2.0 * panels), panels)
