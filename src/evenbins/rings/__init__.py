"""Consistent hashing with bounded loads: which server owns this key?

ring        HashRing (nodes: they join and leave)     lease   a key held for the time of a request
plan        plan_ring: what to expect                 stats   what a ring measures on itself
forwarding  look-ups by clients that have no map of the keys
"""

from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins.rings.errors import NoNodesError, RingFullError
    from evenbins.rings.lease import Lease
    from evenbins.rings.nodes import Move
    from evenbins.rings.plan import RingPlan, plan_ring
    from evenbins.rings.ring import HashRing
    from evenbins.rings.stats import RingStats

__all__ = ["HashRing", "Lease", "Move", "NoNodesError", "RingFullError", "RingPlan", "RingStats", "plan_ring"]

_HOMES = {
    "errors": "NoNodesError RingFullError",
    "lease": "Lease",
    "nodes": "Move",
    "plan": "RingPlan plan_ring",
    "ring": "HashRing",
    "stats": "RingStats",
}

__getattr__ = lazy_names(globals(), _HOMES)
