"""Tables of chains: how long the chains are, and how many entries a look-up compares, predicted.

    Layout(policy, choices, bins, thresholds, coin, overflow_bins)      the integers of a table
    predict(layout, keys) -> Chains                                     what it is like with so many keys
    max_load_chances(layout, loads, overflow_loads) -> array            distribution of the longest chain
    asymptotic_max_load(policy, choices, keys) -> float                 its growth: ln ln n / ln d, …
    growth_rate(choices) -> float                                       phi_d of d-left

A key is an entry in one of the chains (bins) it may use; a look-up compares it with the entries of these
chains in turn. Two families of policies:

    single, sequential, multilevel   a bin takes a key while it has fewer than `threshold`, at exactly
    `threshold` by
                                     a coin; else the next bin; else the overflow chains (kanizo, Appendix C)
    least-loaded, d-left             the shortest of the key's chains, the first of them when several are: of
                                     `choices` bins of one table, or of one bin in each of `choices` tables
                                     (kirsch, section 2.1.3: d-way chaining, and Vöcking's d-left)

What the query time is. The number of entries that a look-up compares: all entries of the chains it leaves
behind, and in the last one those up to the key (new entries come first in a chain) or, if it is absent, all.
Where a look-up may stop is the table's affair (cpp/include/evenbins/chained.hpp): after the bins of the key
that no *stored* key has passed.

    bin of N attempts, threshold h    N <= h        no key has passed it: an absent key stops here
                                      N = h + n     h keys and n have passed, with chance (1-p)**n;
                                                    else h + 1, and n - 1 have passed

How it is computed. Everything that happens to a key is a sum over its walk, and given the moment at which it
came the bins of the walk are independent. So a bin contributes three numbers, [chance, mean, mean square], of
the part of its time that belongs to "passed" or "placed"; two bins in turn are the product (a, b, c)·(a', b',
c') = (aa', ab' + ba', ac' + 2bb' + ca'), and the walk is a sum of products, averaged over the moments. For
the first family the loads at a moment are those of `over_time`, and what a bin still gets is Poisson; the
second is in `chains_of_choice`, the longest chain in `longest_chain`.

Invariants: fluid limits, for many bins; the error is of the order 1/bins.

Not done: the second moments as if the bins of a walk were independent of each other. They are so only given
the moment at which the key came: a late key passes more bins.

Sources: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient balanced Bloom filters", Appendix C, which keeps
the overflow list of the schemes (its mean load is (1 - gamma) n/m); A. Kirsch's thesis, section 2.1.3.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory.block import poisson
from evenbins.theory.caching import cached
from evenbins.theory.chain_walk import (
    BALANCED,
    NOTHING,
    Chains,
    Layout,
    absent_query,
    moments_of,
    moments_of_time,
    quadrature,
    then,
)
from evenbins.theory.chains_of_choice import predict_least
from evenbins.theory.longest_chain import asymptotic_max_load, growth_rate, max_load_chances, median_of_max
from evenbins.theory.over_time import multilevel, sequential, single

__all__ = [
    "BALANCED", "COIN_UNIT", "NEVER_FULL", "Chains", "Layout", "absent_query",
    "asymptotic_max_load", "growth_rate", "max_load_chances", "median_of_max", "predict",
]  # fmt: skip

Vector = npt.NDArray[np.float64]

COIN_UNIT = 2**32
NEVER_FULL = 2**31
"""A threshold that no chain reaches."""


def predict(layout: Layout, keys: int) -> Chains:
    """Predict chains and query times of a table with `keys` keys, inserted one after the other.

    Parameters
    ----------
    layout
        The table.
    keys
        Number of keys (n), at least 1.

    Raises
    ------
    TypeError, ValueError
        `keys` is no integer of at least 1.

    Examples
    --------
    >>> two = predict(Layout(policy="least-loaded", choices=2, bins=(1000,)), 1000)
    >>> [round(float(f), 4) for f in two.loads[:4]]
    [0.2384, 0.5321, 0.2206, 0.0089]
    >>> one = predict(Layout(policy="single", choices=1, bins=(1000,), thresholds=(NEVER_FULL,)), 1000)
    >>> round(one.query_mean, 6), round(one.miss_mean, 6)  # 1 + load/2, load
    (1.5, 1.0)
    """
    keys = arguments.integer("keys", keys, 1, 2**48, "Pass the number of keys in the table")
    return _predict(layout, keys)


@cached(64)
def _predict(layout: Layout, keys: int) -> Chains:
    return _predict_balanced(layout, keys) if layout.balanced else predict_least(layout, keys)


# --- single, sequential, multilevel --------------------------------------------------------------


def _reach(mean: float) -> int:
    return int(mean + 12.0 * math.sqrt(mean + 1.0) + 24.0)


class _Table:
    """One table of bins with a threshold, at many moments and at the end.

    `attempts[t]` is how many keys a bin was offered until then, on average; the last moment is the end.
    """

    def __init__(self, threshold: int | None, coin: float, attempts: Vector) -> None:
        end = float(attempts[-1])
        now, later = attempts[:-1], np.maximum(end - attempts[:-1], 0.0)
        length = _reach(end)
        h = length if threshold is None else min(threshold, length)  # no bin gets as far
        arrived = poisson(now, h)
        # What comes after a key in a bin with room for g more before the threshold, of k later attempts.
        g, k = np.arange(h)[:, None], np.arange(length)[None, :]
        with np.errstate(under="ignore", divide="ignore"):
            stay = np.exp(np.maximum(k - g, 0) * (math.log1p(-coin) if coin < 1.0 else -1e300))
        above = k > g
        first = np.where(above, g + 1.0 - stay, k) + 1.0
        second = np.where(above, (g + 1.0) ** 2 * stay + (g + 2.0) ** 2 * (1.0 - stay), (k + 1.0) ** 2)
        future = poisson(later, length - 1)
        room = arrived[:, h - 1 :: -1] if h else arrived[:, :0]  # a bin of l = h - 1 - g keys now
        below = arrived[:, :h].sum(1)
        # At the threshold: f_h(t) from the end's own formula (`bucket`), then one more by the coin.
        at_now = np.array([_at(float(u), h, coin) for u in now])
        self.placed = np.stack(
            [
                below + coin * at_now,
                (room * (future @ first.T)).sum(1) + coin * at_now,
                (room * (future @ second.T)).sum(1) + coin * at_now,
            ],
            axis=-1,
        )
        refused = np.maximum(1.0 - self.placed[:, 0], 0.0)
        stays = (1.0 - coin) * at_now * np.exp(-coin * later)  # at the threshold still when all keys are in
        grows = np.maximum(refused - stays, 0.0)
        self.passed = np.stack(
            [refused, h * stays + (h + 1.0) * grows, h * h * stays + (h + 1.0) ** 2 * grows], axis=-1
        )
        # At the end.
        self.loads: Vector = single(end, threshold, coin).occupancy[0] if end else np.array([1.0])
        self.goes_on = np.zeros_like(self.loads)  # of these, the bins that somebody passed
        if threshold is not None and end:
            offered = poisson(np.array([end]), threshold + 1)[0]
            on = self.loads[threshold:] - np.array([1.0, coin]) * offered[threshold : threshold + 2]
            self.goes_on[threshold:] = np.maximum(on, 0.0)


def _at(attempts: float, threshold: int, coin: float) -> float:
    if attempts <= 0.0:
        return 1.0 if threshold == 0 else 0.0
    occupancy = single(attempts, threshold, coin).occupancy[0]
    return float(occupancy[threshold])


def _predict_balanced(layout: Layout, keys: int) -> Chains:
    bins = sum(layout.bins)
    load = keys / bins
    coin = layout.coin / COIN_UNIT
    moments, weights = quadrature()
    times = np.append(moments, 1.0)
    thresholds = [None if h >= NEVER_FULL else h for h in layout.thresholds]
    shares = np.array(layout.bins) / bins
    if layout.policy == "multilevel":
        fluid = multilevel(load, layout.thresholds, coin, shares.tolist(), times)
        attempts = fluid.attempts * (load / shares)
    elif layout.policy == "sequential":
        fluid = sequential(load, thresholds[0], coin, layout.choices, times)
        attempts = fluid.accesses[:, None] * load
    else:
        fluid = single(load, thresholds[0], coin, times)
        attempts = fluid.attempts * load
    tables = [_Table(h, coin, attempts[:, j]) for j, h in enumerate(thresholds)]
    spread = max(layout.overflow_bins, 1)
    listed = _Table(None, 1.0, fluid.overflow * (keys / spread))
    # The walk of a present key, at every moment.
    so_far = np.broadcast_to(NOTHING, (len(moments), 3))
    total = np.zeros((len(moments), 3))
    reads = 0.0
    for level in range(layout.choices):
        table = tables[min(level, len(tables) - 1)]
        reads += float(weights @ so_far[:, 0])
        total = total + then(so_far, table.placed)
        so_far = then(so_far, table.passed)
    total = total + then(so_far, listed.placed)
    query_mean, query_variance = moments_of_time(weights @ total)
    miss_reads, miss_mean, miss_variance = absent_query(
        layout.choices, [table.loads for table in tables], [table.goes_on for table in tables], listed.loads
    )
    longest = max(len(table.loads) for table in tables)
    all_loads = np.zeros((len(tables), longest))
    for j, table in enumerate(tables):
        all_loads[j, : len(table.loads)] = table.loads
    loads = shares @ all_loads
    mean, variance = moments_of(loads)
    return Chains(
        tables=all_loads,
        loads=loads,
        mean=mean,
        variance=variance,
        overflow=float(fluid.overflow[-1]),
        overflow_loads=listed.loads,
        insertion_reads=float(fluid.accesses[-1]),
        reads=reads,
        miss_reads=miss_reads,
        query_mean=query_mean,
        query_variance=query_variance,
        miss_mean=miss_mean,
        miss_variance=miss_variance,
    )
