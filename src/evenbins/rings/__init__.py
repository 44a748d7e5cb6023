"""Consistent hashing with bounded loads: which server owns this key?

ring        HashRing             lease   a key held for the time of a request
forwarding  look-ups by clients that have no map of the keys
"""

from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins.rings.errors import NoNodesError, RingFullError
    from evenbins.rings.lease import Lease
    from evenbins.rings.ring import HashRing, Move, RingStats

__all__ = [
    "HashRing",
    "Lease",
    "Move",
    "NoNodesError",
    "RingFullError",
    "RingStats",
]

_HOMES = {
    "errors": "NoNodesError RingFullError",
    "lease": "Lease",
    "ring": "HashRing Move RingStats",
}

__getattr__ = lazy_names(globals(), _HOMES)
