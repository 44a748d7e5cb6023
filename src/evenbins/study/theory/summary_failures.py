"""The failures of a multilevel table's summary, type by type (kirsch, section 4.11.3).

`evenbins.theory.summary_rates` says what a failure is, and which rates are exact; here each rate is computed
for every number of keys that a law has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from evenbins.theory import fpr
from evenbins.theory.multilevel_law import Law, checked_table, distribution
from evenbins.theory.summary_rates import FilterSize, checked_filter, checked_filters, unpartitioned_rate

__all__ = ["multiple_bloom_failures", "rates_of_filter", "single_filter_failures"]

_STEPWISE = 2**15  # keys up to which all rates of an unpartitioned filter are computed, key by key
_NODES = 24  # of the interpolation of its logarithm beyond that


def rates_of_filter(size: FilterSize, first: int, count: int, partitioned: bool) -> npt.NDArray[np.float64]:
    """Compute q_l for l = first ... first + count - 1."""
    m, k = size
    last = first + count - 1
    if partitioned:
        with np.errstate(divide="ignore", invalid="ignore"):
            filled = -np.expm1(np.arange(first, last + 1) * np.log1p(-k / m))
        if k == m and first == 0:
            filled[0] = 0.0  # 0 times infinity
        return np.asarray(filled**k)
    if last <= _STEPWISE and m <= 2**53:
        return np.array(fpr.rate_by_load(m, k, last)[first : last + 1])
    if count <= _NODES:
        return np.array([unpartitioned_rate(m, k, keys) for keys in range(first, last + 1)])
    nodes = np.unique(
        np.rint(np.polynomial.chebyshev.chebpts2(_NODES) * (count - 1) / 2 + (first + last) / 2)
    )
    logs = [math.log(max(unpartitioned_rate(m, k, int(keys)), 1e-300)) for keys in nodes]
    fit = np.polynomial.Chebyshev.fit(nodes, logs, min(len(nodes) - 1, 14))
    return np.asarray(np.exp(fit(np.arange(first, last + 1))))


def _failures(law: Law, size: FilterSize, partitioned: bool) -> float:
    """Sum E[keys in T_i; |S_i| = l] q_l, smallest terms included."""
    return math.fsum(law.held * rates_of_filter(size, law.first, len(law.held), partitioned))


def single_filter_failures(
    keys: int, sizes: Sequence[int], cells: int, hashes: int, *, partitioned: bool = True
) -> tuple[float, ...]:
    """Compute the expected failures of each type 1 ... d - 1 with a single filter.

    Their sum bounds the chance that there is one.

    Parameters
    ----------
    keys, sizes
        As of `distribution`.
    cells, hashes
        Of the filter: m and k.
    partitioned
        As of `filter_rate`. The union bound is all that is lost in the partitioned case, and in the other.

    Examples
    --------
    >>> sizes = [40_000, 10_000, 5_000, 2_500, 2_500]
    >>> f"{sum(single_filter_failures(10_000, sizes, 120_000, 15)):.3e}"
    '7.630e-10'
    """
    size = checked_filter(FilterSize(cells, hashes), partitioned)
    return tuple(_failures(law, size, partitioned) for law in distribution(keys, sizes)[1:-1])


def multiple_bloom_failures(
    keys: int, sizes: Sequence[int], filters: Sequence[tuple[int, int]], *, partitioned: bool = True
) -> tuple[float, ...]:
    """Compute the expected failures of each type 1 ... d - 1 with filters B_0 ... B_{d-1}.

    Parameters
    ----------
    keys, sizes
        As of `distribution`.
    filters
        Bits and hashes of B_0 ... B_{d-1}, one for each sub-table; B_0 makes no failures.
    partitioned
        As of `filter_rate`.

    Examples
    --------
    >>> sizes = [40_000, 10_000, 5_000, 2_500, 2_500]
    >>> filters = [(106_000, 7), (87_500, 49), (5_500, 49), (500, 49), (100, 49)]
    >>> f"{sum(multiple_bloom_failures(10_000, sizes, filters)):.2e}"
    '3.96e-12'
    """
    number, checked = checked_table(keys, sizes)
    each = checked_filters(filters, len(checked), partitioned)
    laws = distribution(number, checked)
    return tuple(_failures(law, size, partitioned) for law, size in zip(laws[1:-1], each[1:], strict=True))
