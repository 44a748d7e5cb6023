"""The cache replay and the synthetic trace against exact laws; two-sided intervals at 1e-6, fixed seeds.

jump        url i of i distinct ones meets i full servers of k with one place each: geometric, k / (k - i)
clockwise   two urls have the same first server with chance 2 / (k + 1): arcs are uniform spacings
synthetic   a url's count is 1 + Binomial; so is the number of requests before any moment, without the 1
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from evenbins.study.simulate import replay_cache
from evenbins.study.traces import Trace, synthetic_trace

REACH = float(norm.ppf(1 - 0.5e-6))


def assert_binomial(seen: int, trials: int, chance: float) -> None:
    assert binom.ppf(0.5e-6, trials, chance) <= seen <= binom.isf(0.5e-6, trials, chance)


def test_jumps_meet_full_servers_by_the_geometric_law() -> None:
    """500 placements, 20 urls on 40 servers with room for one: the mean of all searches, normal."""
    k, n, repeat = 40, 20, 500
    trace = Trace(np.arange(n), np.arange(n))
    report = replay_cache(
        trace, servers=k, cache_size=1, limit=None, stale_minutes=10, served_minutes=1, recovery_minutes=1,
        policies=["jump"], repeat=repeat, seed=1,
    )  # fmt: skip
    assert report.values("jump", "dropped") == [0.0] * repeat
    searches = sum(report.values("jump", "searches")) * n
    mean = sum(k / (k - i) for i in range(n))
    variance = sum(i * k / (k - i) ** 2 for i in range(n))
    assert abs(searches - repeat * mean) <= REACH * math.sqrt(repeat * variance)


@pytest.mark.parametrize(("servers", "copies"), [(5, 1), (30, 1), (6, 5)])
def test_two_urls_share_their_first_server_as_spacings_do(servers: int, copies: int) -> None:
    """3000 placements. With v copies a server owns v of the kv spacings: chance (v + 1) / (kv + 1)."""
    repeat = 3000
    report = replay_cache(
        Trace([0, 1], [1, 2]), servers=servers, cache_size=1, limit=None, stale_minutes=10, served_minutes=1,
        recovery_minutes=1, policies=["plain", "clockwise"], copies=copies, repeat=repeat, seed=1,
    )  # fmt: skip
    chance = (copies + 1) / (servers * copies + 1)
    plain = report.values("plain", "dropped")
    assert_binomial(int(sum(plain)), repeat, chance)
    walked = [longest > 1 for longest in report.values("clockwise", "longest")]
    assert walked == [dropped == 1 for dropped in plain]  # the same places


@pytest.mark.parametrize("bursts", [0.0, 0.5])
def test_counts_of_a_synthetic_trace_follow_zipf(bursts: float) -> None:
    """100,000 requests, 2000 urls: the five most popular ones, and all beyond rank 1000."""
    requests, urls, exponent = 100_000, 2000, 0.9
    trace = synthetic_trace(
        requests=requests, urls=urls, minutes=600, exponent=exponent, bursts=bursts, seed=3
    )
    assert (trace.requests, trace.distinct) == (requests, urls)
    weights = np.arange(1, urls + 1) ** -exponent
    weights /= weights.sum()
    counts = np.sort(np.unique(trace.digests, return_counts=True)[1])[::-1] - 1
    for rank in range(5):  # their intervals do not overlap, so that the rank is known
        assert_binomial(int(counts[rank]), requests - urls, float(weights[rank]))
    assert counts.sum() == requests - urls


@pytest.mark.parametrize("swing", [0.0, 0.6, 1.0])
def test_requests_of_a_synthetic_trace_follow_the_day(swing: float) -> None:
    """200,000 requests in two days: those between six and eighteen o'clock."""
    trace = synthetic_trace(requests=200_000, urls=100, minutes=2 * 1440, swing=swing, seed=4)
    hour = trace.times / 3_600_000 % 24
    day = int(((hour >= 6) & (hour < 18)).sum())
    assert_binomial(day, trace.requests, 0.5 + swing / math.pi)


def test_bursts_of_a_synthetic_trace() -> None:
    """One url: of 50,000 requests half follow the one that came at random, at once."""
    trace = synthetic_trace(requests=50_000, urls=1, minutes=1e6, bursts=0.5, burst_minutes=0, seed=5)
    leaders = int(np.unique(trace.times).size)
    assert_binomial(trace.requests - leaders, trace.requests - 1, 0.5)
