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
the first family the loads at a moment are those of `balance`, and what a bin still gets is Poisson. For the
second, with u_i the fraction of bins of at least i keys and t in keys per bin,

    least-loaded   du_i/dt = u_(i-1)**d - u_i**d
    d-left         du_(j,i)/dt = (u_(j,i-1) - u_(j,i)) · bins/bins_j · prod_(q<j) u_(q,i) · prod_(q>j)
    u_(q,i-1)

and the final load of a bin that has l keys at t follows from the same rates, backwards in time.

Invariants: fluid limits, for many bins; the error is of the order 1/bins. The tail of the longest chain is
where they end: bins times u_i is the expected number of chains of i keys or more, and the number is near
Poisson where it is small. (With d choices the tail falls doubly exponentially, so that only one height is in
doubt.)

Not done: the second moments as if the bins of a walk were independent of each other. They are so only given
the moment at which the key came: a late key passes more bins.

Sources: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient balanced Bloom filters", Appendix C, which keeps
the overflow list of the schemes (its mean load is (1 - gamma) n/m); A. Kirsch's thesis, section 2.1.3, where
d-left's maximum is printed as ln ln n/(d phi_d): Vöcking has ln ln n/(d ln phi_d). M. Mitzenmacher's
equations for both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numpy.polynomial import legendre

from evenbins import _arguments as arguments
from evenbins.theory import balance
from evenbins.theory.caching import cached

__all__ = [
    "BALANCED", "COIN_UNIT", "MAX_CHOICES", "NEVER_FULL", "POLICIES", "Chains", "Layout", "absent_query",
    "asymptotic_max_load", "growth_rate", "max_load_chances", "median_of_max", "predict",
]  # fmt: skip

Vector = npt.NDArray[np.float64]

BALANCED = ("single", "sequential", "multilevel")
"""The policies of kanizo: thresholds, a coin, overflow chains."""
POLICIES = {"single": 1, "sequential": 2, "multilevel": 3, "least-loaded": 6, "d-left": 7}
"""Policies and their numbers in a core; 4 and 5 belong to filters."""
COIN_UNIT = 2**32
MAX_CHOICES = 8
NEVER_FULL = 2**31
"""A threshold that no chain reaches."""

_PANELS, _NODES = 12, 8  # of the quadrature over the moments
_FAR = 1e-18  # a chance that is none


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
    mean, variance : of `loads`
    overflow : fraction of keys in the overflow chains (gamma)
    overflow_loads : entry i: fraction of the overflow chains with i keys
    insertion_reads : mean bins whose load an insertion looks at
    reads, miss_reads : mean bins that a look-up of a present and of an absent key reads
    query_mean, query_variance : entries that a look-up of a present key compares, over the keys in the table
    miss_mean, miss_variance : the same for an absent key
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
    return _balanced(layout, keys) if layout.balanced else _least(layout, keys)


# --- times of a walk: [chance, mean, mean square] ------------------------------------------------
# Arrays whose last axis has length 3; the chance need not be 1: the mean and the square are of the part only.

_NOTHING = np.array([1.0, 0.0, 0.0])


def _then(a: Vector, b: Vector) -> Vector:
    """Combine two independent times into their sum."""
    return np.stack(
        [
            a[..., 0] * b[..., 0],
            a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0],
            a[..., 0] * b[..., 2] + 2.0 * a[..., 1] * b[..., 1] + a[..., 2] * b[..., 0],
        ],
        axis=-1,
    )


def _moments(time: Vector) -> tuple[float, float]:
    mean = float(time[1] / time[0])
    return mean, max(float(time[2] / time[0]) - mean * mean, 0.0)


def _load_time(chance: Vector) -> Vector:
    """Give the time of a bin whose entries are all compared: chance[..., i] is that of i entries."""
    i = np.arange(chance.shape[-1], dtype=np.float64)
    return np.stack([chance.sum(-1), (chance * i).sum(-1), (chance * i * i).sum(-1)], axis=-1)


def _moments_of(chance: Vector) -> tuple[float, float]:
    i = np.arange(len(chance))
    mean = float((chance * i).sum())
    return mean, float((chance * (i - mean) ** 2).sum())


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
    time, so_far, reads = np.zeros(3), _NOTHING, 0.0
    for level in range(choices):
        table = min(level, len(tables) - 1)
        whole, goes_on = _load_time(tables[table]), _load_time(passed[table])
        reads += float(so_far[0])
        time = time + _then(so_far, whole - goes_on)
        so_far = _then(so_far, goes_on)
    mean, variance = _moments(time + _then(so_far, _load_time(overflow_loads)))
    return reads, mean, variance


@cached(4)
def _quadrature(panels: int = _PANELS) -> tuple[Vector, Vector]:
    """Give moments between 0 and 1, and their weights."""
    x, w = legendre.leggauss(_NODES)
    starts = np.arange(panels) / panels
    moments = (starts[:, None] + (x + 1.0) / (2.0 * panels)).ravel()
    return moments, np.tile(w / (2.0 * panels), panels)


# --- single, sequential, multilevel --------------------------------------------------------------


def _poisson(means: Vector, length: int) -> Vector:
    """Give P(N = i) for each of the means, i = 0 ... length - 1."""
    i = np.arange(1.0, length)
    means = np.maximum(means[..., None], 1e-300)
    with np.errstate(under="ignore"):
        logs = np.concatenate([[0.0], np.cumsum(np.log(i))])
        return np.asarray(np.exp(np.arange(length) * np.log(means) - means - logs))


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
        arrived = _poisson(now, h + 1)
        # What comes after a key in a bin with room for g more before the threshold, of k later attempts.
        g, k = np.arange(h)[:, None], np.arange(length)[None, :]
        with np.errstate(under="ignore", divide="ignore"):
            stay = np.exp(np.maximum(k - g, 0) * (math.log1p(-coin) if coin < 1.0 else -1e300))
        above = k > g
        first = np.where(above, g + 1.0 - stay, k) + 1.0
        second = np.where(above, (g + 1.0) ** 2 * stay + (g + 2.0) ** 2 * (1.0 - stay), (k + 1.0) ** 2)
        future = _poisson(later, length)
        room = arrived[:, h - 1 :: -1] if h else arrived[:, :0]  # a bin of l = h - 1 - g keys now
        below = arrived[:, :h].sum(1)
        # At the threshold: f_h(t) from the end's own formula (balance), then one more by the coin.
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
        self.loads: Vector = balance.single(end, threshold, coin).occupancy[0] if end else np.array([1.0])
        self.goes_on = np.zeros_like(self.loads)  # of these, the bins that somebody passed
        if threshold is not None and end:
            offered = _poisson(np.array([end]), max(threshold + 2, 2))[0]
            on = self.loads[threshold:] - np.array([1.0, coin]) * offered[threshold : threshold + 2]
            self.goes_on[threshold:] = np.maximum(on, 0.0)


def _at(attempts: float, threshold: int, coin: float) -> float:
    if attempts <= 0.0:
        return 1.0 if threshold == 0 else 0.0
    occupancy = balance.single(attempts, threshold, coin).occupancy[0]
    return float(occupancy[threshold])


def _balanced(layout: Layout, keys: int) -> Chains:
    bins = sum(layout.bins)
    load = keys / bins
    coin = layout.coin / COIN_UNIT
    moments, weights = _quadrature()
    times = np.append(moments, 1.0)
    thresholds = [None if h >= NEVER_FULL else h for h in layout.thresholds]
    shares = np.array(layout.bins) / bins
    if layout.policy == "multilevel":
        fluid = balance.multilevel(load, layout.thresholds, coin, shares.tolist(), times)
        attempts = fluid.attempts * (load / shares)
    elif layout.policy == "sequential":
        fluid = balance.sequential(load, thresholds[0], coin, layout.choices, times)
        attempts = fluid.accesses[:, None] * load
    else:
        fluid = balance.single(load, thresholds[0], coin, times)
        attempts = fluid.attempts * load
    tables = [_Table(h, coin, attempts[:, j]) for j, h in enumerate(thresholds)]
    spread = max(layout.overflow_bins, 1)
    listed = _Table(None, 1.0, fluid.overflow * (keys / spread))
    # The walk of a present key, at every moment.
    so_far = np.broadcast_to(_NOTHING, (len(moments), 3))
    total = np.zeros((len(moments), 3))
    reads = 0.0
    for level in range(layout.choices):
        table = tables[min(level, len(tables) - 1)]
        reads += float(weights @ so_far[:, 0])
        total = total + _then(so_far, table.placed)
        so_far = _then(so_far, table.passed)
    total = total + _then(so_far, listed.placed)
    query_mean, query_variance = _moments(weights @ total)
    miss_reads, miss_mean, miss_variance = absent_query(
        layout.choices, [table.loads for table in tables], [table.goes_on for table in tables], listed.loads
    )
    longest = max(len(table.loads) for table in tables)
    all_loads = np.zeros((len(tables), longest))
    for j, table in enumerate(tables):
        all_loads[j, : len(table.loads)] = table.loads
    loads = shares @ all_loads
    mean, variance = _moments_of(loads)
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


# --- least-loaded, d-left ------------------------------------------------------------------------


class _Choice:
    """The equations of the shortest of d chains; u[j, i]: fraction of table j's bins with i keys or more."""

    def __init__(self, layout: Layout, keys: int) -> None:
        bins = sum(layout.bins)
        self.load = keys / bins
        self.choices = layout.choices
        self.shared = layout.policy == "least-loaded"
        self.weight = np.array([[bins / each] for each in layout.bins])
        self.tables = len(layout.bins)
        self.top = math.ceil(self.load) + 26  # above this no bin has grown: the tail is doubly exponential

    def rates(self, u: Vector) -> Vector:
        """Give the rate at which a bin of table j with l keys gets one more; u has columns 0 ... top + 1."""
        low, high = u[:, :-1], u[:, 1:]  # at least l, more than l
        if self.shared:
            return np.asarray(
                sum(low**s * high ** (self.choices - 1 - s) for s in range(self.choices)), dtype=np.float64
            )
        left, right = np.ones_like(low), np.ones_like(low)  # products over the tables before and after
        np.cumprod(high[:-1], axis=0, out=left[1:])
        right[:-1] = np.cumprod(low[:0:-1], axis=0)[::-1]
        rates: Vector = left * right * self.weight
        return rates

    def grow(self, _: float, state: Vector) -> Vector:
        u = self.full(state)
        change: Vector = (self.rates(u) * (u[:, :-1] - u[:, 1:]))[:, :-1]  # into 1 ... top
        return change.ravel()

    def full(self, state: Vector) -> Vector:
        """Add the columns u_0 = 1 and u_(top+1) = 0."""
        u = np.zeros((self.tables, self.top + 2))
        u[:, 0] = 1.0
        u[:, 1:-1] = np.clip(state.reshape(self.tables, self.top), 0.0, 1.0)
        return u


def _least(layout: Layout, keys: int) -> Chains:
    from scipy.integrate import solve_ivp

    rule = _Choice(layout, keys)
    moments, weights = _quadrature()
    times = moments * rule.load
    start = np.zeros(rule.tables * rule.top)
    forward = solve_ivp(
        rule.grow, (0.0, rule.load), start, "DOP853", dense_output=True, rtol=1e-9, atol=1e-13
    )
    path = forward.sol
    assert path is not None
    end = rule.full(forward.y[:, -1])
    # Backwards: mean and mean square of the final load of a bin that has l keys now, l = 0 ... top.
    final = np.broadcast_to(np.arange(rule.top + 1.0), (rule.tables, rule.top + 1))
    last = np.stack([final, final**2])

    def back(s: float, state: Vector) -> Vector:
        rates = rule.rates(rule.full(path(rule.load - s)))[:, :-1]
        value = state.reshape(2, rule.tables, rule.top + 1)
        change = np.zeros_like(value)
        change[:, :, :-1] = rates * np.diff(value, axis=2)
        return change.ravel()

    backward = solve_ivp(
        back, (0.0, rule.load), last.ravel(), "DOP853", (rule.load - times)[::-1], rtol=1e-9, atol=1e-8
    )
    values = backward.y.T[::-1].reshape(len(times), 2, rule.tables, rule.top + 1)
    found = np.zeros(3)
    reads = 0.0
    for t, weight, value in zip(times.tolist(), weights.tolist(), values, strict=True):
        time, read = _choose(rule, rule.full(path(t)), value)
        found = found + weight * time
        reads += weight * read
    reads /= float(found[0])
    query_mean, query_variance = _moments(found)
    tables = -np.diff(end, axis=1)
    _, miss_mean, miss_variance = absent_query(rule.choices, tables, tables, np.array([1.0]))
    loads = np.array(layout.bins) / sum(layout.bins) @ tables
    mean, variance = _moments_of(loads)
    return Chains(
        tables=tables,
        loads=loads,
        mean=mean,
        variance=variance,
        overflow=0.0,
        overflow_loads=np.array([1.0]),
        insertion_reads=float(rule.choices),
        reads=reads,
        miss_reads=float(rule.choices),
        query_mean=query_mean,
        query_variance=query_variance,
        miss_mean=miss_mean,
        miss_variance=miss_variance,
    )


def _choose(rule: _Choice, u: Vector, value: Vector) -> tuple[Vector, float]:
    """Give the time of the key that comes now, and the mean place of its bin among its choices.

    u as in `_Choice`; value[0], value[1]: mean and mean square of a bin's final load.
    """
    exact = (u[:, :-1] - u[:, 1:])[:, : rule.top + 1]  # l = 0 ... top
    weighted = np.stack([exact, exact * value[0], exact * value[1]], axis=-1)
    at_least = np.flip(np.cumsum(np.flip(weighted, 1), axis=1), 1)
    more = np.concatenate([at_least[:, 1:], np.zeros((rule.tables, 1, 3))], axis=1)
    i = np.arange(rule.top)
    mean, square = value[0][:, 1:], value[1][:, 1:]  # of a bin that has l + 1 now
    placed = exact[:, :-1, None] * np.stack(
        [np.ones_like(mean), mean - i, square - 2.0 * i * mean + i * i], axis=-1
    )
    time, reads = np.zeros(3), 0.0
    for k in range(rule.choices):
        mine = k if not rule.shared else 0
        part = placed[mine]
        for j in range(rule.choices):
            other = j if not rule.shared else 0
            if j < k:
                part = _then(more[other, :-1], part)
            elif j > k:
                part = part * at_least[other, :-1, :1]
        time = time + part.sum(axis=0)
        reads += (k + 1) * float(part[:, 0].sum())
    return time, reads


# --- the longest chain ---------------------------------------------------------------------------


def max_load_chances(layout: Layout, tables: Vector, overflow_loads: Vector) -> Vector:
    """Give the distribution of the longest chain's length, overflow chains counted.

    Chains are taken as independent: P(longest < i) is the product of their chances.

    Parameters
    ----------
    layout
        The table.
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
    """Give the median of the longest chain: the first length that at least half of all tables stay within.

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
    choices = arguments.integer("choices", choices, 2, balance.MAX_CHOICES, "Pass for example 2")
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
