"""What a ring measures on itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenbins._show import ReprMixin
from evenbins.rings.nodes import RingNodes
from evenbins.theory.ring_limits import RATE_UNIT

__all__ = ["RingStats", "ring_stats"]

_SAMPLES = 4096


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RingStats(ReprMixin):
    """What a ring measures on itself; each name means the same as in its plan.

    Attributes
    ----------
    nodes, serving : nodes; those neither down nor drained
    keys : assigned keys
    loads : keys of each node, by name
    limit : what a node of mean weight may hold now; None: no limit
    over : serving nodes above their limit, which has fallen since
    full : fraction of serving nodes that take nothing more
    mean, variance, max_load : of the loads of serving nodes, each divided by its weight over the mean weight
    max_mean : max_load / mean
    searches : mean nodes that one key more would look at, the one that takes it included; over 4096 random
        keys (fewer in a sparse array of millions of places); 0 if no node would take it
    placed_searches : the same over all placements since the ring was made
    searches_p99, searches_max : 99 of 100 placements looked at no more than this; the most
    steps : mean draws of a placement
    moved : keys that churn and `rebalance` moved, in all
    leases : uses under way
    forced : leases with a weight that no node could take within the bound, so far
    slots : slots of the layout, empty ones included
    version : changes of nodes so far
    nbytes : memory
    """

    _not_shown = ("loads",)

    nodes: int
    serving: int
    keys: int
    loads: dict[str, int]
    limit: int | None
    over: int
    full: float
    mean: float
    variance: float
    max_load: float
    max_mean: float
    searches: float
    placed_searches: float
    searches_p99: int
    searches_max: int
    steps: float
    moved: int
    leases: int
    forced: int
    slots: int
    version: int
    nbytes: int


def ring_stats(ring: RingNodes) -> RingStats:
    """Measure a ring."""
    rows, config, keys = ring._node_rows(), ring._ring_config, ring.key_count
    serving = [row for row in rows if row.serves]
    limit: int | None = config.limit or None
    if config.rate:
        limit = -(-config.rate * keys // (RATE_UNIT * len(serving))) if serving else 0
    weights = np.array([row.weight for row in serving], np.float64)
    loads = np.array([row.load for row in serving], np.float64)
    even = loads / (weights / weights.mean()) if serving else np.zeros(1)
    bounded = [(row.load, row.limit) for row in serving if row.limit is not None]
    moved, placements, searches, draws, longest, *histogram = ring._counters()
    below = np.searchsorted(np.cumsum(histogram), 0.99 * placements) if placements else 0
    mean = float(even.mean())
    return RingStats(
        nodes=len(rows),
        serving=len(serving),
        keys=keys,
        loads={row.name: row.load for row in rows},
        limit=limit,
        over=sum(load > most for load, most in bounded),
        full=sum(load >= most for load, most in bounded) / len(serving) if serving else 0.0,
        mean=mean,
        variance=float(even.var()),
        max_load=float(even.max()),
        max_mean=float(even.max()) / mean if mean else 0.0,
        searches=ring._expected_searches(_SAMPLES) if serving else 0.0,
        placed_searches=searches / placements if placements else 0.0,
        searches_p99=int(below) if below < len(histogram) - 1 else longest,
        searches_max=longest,
        steps=draws / placements if placements else 0.0,
        moved=moved,
        leases=ring._leases,
        forced=ring._forced_leases,
        slots=ring._slots,
        version=ring.version,
        nbytes=ring.nbytes,
    )
