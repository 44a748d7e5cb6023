"""Rings as the papers have them: a sparse array of places, or a bin's own hash after a full one."""

from __future__ import annotations

from collections.abc import Iterable

from evenbins.rings.config import Weights, checked_nodes, ring_config
from evenbins.rings.ring import HashRing

__all__ = ["ring"]


def ring(
    nodes: Iterable[str] = (), *, policy: str = "jump", layout: str = "dense", epsilon: float | None = None,
    limit: int | None = None, weights: Weights | None = None, copies: int = 1,
    rehash: str = "object", array_bits: int = 20, seed: int = 0,
) -> HashRing:  # fmt: skip
    """Build a ring of a paper; look-ups in a sparse array take about 1000 hashes.

    Parameters
    ----------
    nodes, policy, epsilon, limit, weights, copies, seed
        As for `HashRing`. "plain" and "clockwise" need copies when sparse.
    layout
        "dense", or "sparse": the paper's array.
    rehash
        For the policy "rehash": "object", or "bin" for section 2.5's h(i), which cascades as "clockwise"
        does.
    array_bits
        The sparse array has 2**array_bits places; 8 to 26.

    Examples
    --------
    >>> ring(["a", "b"], layout="sparse", array_bits=10).layout
    'sparse'
    """
    known = checked_nodes(nodes, weights)
    config = ring_config(
        known.values(), policy, epsilon, limit, copies, seed, layout=layout, rehash=rehash,
        array_bits=array_bits,
    )  # fmt: skip
    made = HashRing.__new__(HashRing)
    made._start(known, config)
    return made
