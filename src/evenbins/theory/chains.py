"""Tables of chains: how long the chains are, and how many entries a look-up compares, predicted.

A key is an entry in one of the chains (bins) it may use; a look-up compares it with the entries of these
chains in turn. Two families of policies:

    single, sequential, multilevel   a bin takes a key while it has fewer than `threshold`, at exactly that
                                     by a coin; else the next bin; else the overflow chains
    least-loaded, d-left             the shortest of the key's chains, the first of them when several are

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
second is in `chains_of_choice`.

The longest chain. The fluid limit ends where few chains are that long: bins times u_i is the expected number
of chains of i keys or more, and the number is near Poisson where it is small. (With d choices the tail falls
doubly exponentially, so that only one height is in doubt.)

Invariants: fluid limits, for many bins; the error is of the order 1/bins.

Not done: the second moments as if the bins of a walk were independent of each other. They are so only given
the moment at which the key came: a late key passes more bins.

Sources: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient balanced Bloom filters", Appendix C, which keeps
the overflow list of the schemes (its mean load is (1 - gamma) n/m); A. Kirsch's thesis, section 2.1.3, where
d-left's maximum is printed as ln ln n/(d phi_d): Vöcking has ln ln n/(d ln phi_d).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory import chain_walk as walk
from evenbins.theory.balance_arguments import MAX_CHOICES
from evenbins.theory.block import poisson
from evenbins.theory.caching import cached
from evenbins.theory.chain_walk import BALANCED, Chains, Layout, absent_query
from evenbins.theory.chains_of_choice import predict_least
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
    """Predict chains and query times of a table with `keys` keys (n), inserted one after the other.

    Examples
    --------
    >>> two = predict(Layout(policy="least-loaded", choices=2, bins=(1000,)), 1000)
    >>> [round(float(f), 4) for f in two.loads[:4]]
    [0.2384, 0.5321, 0.2206, 0.0089]
    >>> one = predict(Layout(policy="single", choices=1, bins=(1000,), thresholds=(NEVER_FULL,)), 1000)
    >>> round(one.query_mean, 6), round(one.miss_mean, 6)  # 1 + load/2, load
    (1.5, 1.0)
    """
    return _predict(layout, arguments.integer("keys", keys, 1, 2**48, "Pass the number of keys in the table"))


@cached(64)
def _predict(layout: Layout, keys: int) -> Chains:
    return _predict_balanced(layout, keys) if layout.balanced else predict_least(layout, keys)


# --- single, sequential, multilevel --------------------------------------------------------------


class _Table:
    """One table of bins with a threshold, at many moments and at the end.

    `attempts[t]` is how many keys a bin was offered until then, on average; the last moment is the end.
    """

    def __init__(self, threshold: int | None, coin: float, attempts: Vector) -> None:
        end = float(attempts[-1])
        now, later = attempts[:-1], np.maximum(end - attempts[:-1], 0.0)
        length = int(end + 12.0 * math.sqrt(end + 1.0) + 24.0)
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
        return float(threshold == 0)
    return float(single(attempts, threshold, coin).occupancy[0][threshold])


def _predict_balanced(layout: Layout, keys: int) -> Chains:
    bins = sum(layout.bins)
    load = keys / bins
    coin = layout.coin / COIN_UNIT
    moments, weights = walk.quadrature()
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
    so_far = np.broadcast_to(walk.NOTHING, (len(moments), 3))
    total = np.zeros((len(moments), 3))
    reads = 0.0
    for level in range(layout.choices):
        table = tables[min(level, len(tables) - 1)]
        reads += float(weights @ so_far[:, 0])
        total = total + walk.then(so_far, table.placed)
        so_far = walk.then(so_far, table.passed)
    total = total + walk.then(so_far, listed.placed)
    return walk.assemble(
        layout, [table.loads for table in tables], [table.goes_on for table in tables], weights @ total,
        reads=reads, insertion_reads=float(fluid.accesses[-1]), overflow=float(fluid.overflow[-1]),
        overflow_loads=listed.loads,
    )  # fmt: skip


# --- the longest chain ---------------------------------------------------------------------------


def max_load_chances(layout: Layout, tables: Vector, overflow_loads: Vector) -> Vector:
    """Return the distribution of the longest chain's length, overflow chains counted.

    Chains are taken as independent: P(longest < i) is the product of their chances.

    Parameters
    ----------
    tables, overflow_loads
        Fractions of chains by length, as `Chains` has them.

    Examples
    --------
    >>> layout = Layout(policy="d-left", choices=4, bins=(25_000,) * 4)
    >>> seen = predict(layout, 100_000)
    >>> max_load_chances(layout, seen.tables, seen.overflow_loads)[:5].round(4).tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0]
    """
    groups = [(float(n), each) for n, each in zip(layout.bins, tables, strict=True)]
    if layout.overflow_bins:
        groups.append((float(layout.overflow_bins), overflow_loads))
    longest = max(len(each) for _, each in groups)
    below = np.zeros(longest + 1)  # log P(longest < i)
    for n, each in groups:
        tail = np.zeros(longest + 1)
        tail[: len(each)] = np.cumsum(each[::-1])[::-1]
        with np.errstate(divide="ignore"):
            below += n * np.log1p(-np.minimum(tail, 1.0))
    chances: Vector = np.diff(np.exp(below))
    return chances


def median_of_max(chances: Vector) -> int:
    """Return the median of the longest chain: the first length that at least half of all tables stay within.

    Examples
    --------
    >>> median_of_max(np.array([0.0, 0.1, 0.3, 0.6]))
    3
    """
    return int(np.searchsorted(np.cumsum(chances), 0.5 * (1.0 - 1e-12)))


def growth_rate(choices: int) -> float:
    """Compute phi_d, at which Fibonacci numbers of order d grow: the root of x**d = 1 + x + ... + x**(d-1).

    Examples
    --------
    >>> round(growth_rate(2), 6), round(growth_rate(3), 6)
    (1.618034, 1.839287)
    """
    choices = arguments.integer("choices", choices, 2, MAX_CHOICES, "Pass for example 2")
    x = 2.0
    for _ in range(200):  # x**(d+1) - 2 x**d + 1 = 0: Newton comes down from 2
        step = (x ** (choices + 1) - 2 * x**choices + 1) / (
            (choices + 1) * x**choices - 2 * choices * x ** (choices - 1)
        )
        x -= step
        if step <= 1e-16:
            break
    return x


def asymptotic_max_load(policy: str, choices: int, keys: int) -> float:
    """Compute what the longest chain grows like when there are as many bins as keys, but for a constant.

    One choice: ln n / ln ln n. "least-loaded": ln ln n / ln d (Azar et al.); "d-left": ln ln n / (d ln phi_d)
    (Vöcking). The constants are as large as these numbers: `max_load_chances` has the answer for a finite
    table.

    Raises
    ------
    ValueError
        The policy has no such law: with thresholds the longest chain is threshold + 1, but for overflow
        chains.

    Examples
    --------
    >>> [round(asymptotic_max_load(policy, 2, 10**6), 2) for policy in ("least-loaded", "d-left")]
    [3.79, 2.73]
    """
    log = math.log(max(keys, 3))
    if policy == "single":
        return log / math.log(max(log, 1.0 + 1e-9))
    if policy == "least-loaded":
        return math.log(log) / math.log(choices)
    if policy == "d-left":
        return math.log(log) / (choices * math.log(growth_rate(choices)))
    rule = 'one of "single", "least-loaded" and "d-left"'
    raise arguments.error("policy", rule, policy, "Other policies have a bound: threshold + 1")
