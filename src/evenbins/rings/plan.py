"""Plans of hash rings: from what a user asks for to limits and predicted loads.

    nodes or weights, keys, policy, layout, copies, epsilon or limit ──▶ RingPlan

With `epsilon` the limit follows the number of keys, as in a live ring: ceil((1 + epsilon) n w/W), the new key
counted. With `limit` it is fixed. The two are different laws (`ring_laws`); ``limits="fixed"`` predicts the
paper's experiment, where the limit of the n-th key holds from the first on.

What is predicted (else None)

    policy     layout   limit            loads, variance, full   searches   first_full
    plain      both     none or fixed    yes                     1          fixed, equal weights or dense
    jump       both     moving           yes                     yes        None: the first key fills a node
    jump       both     fixed            yes                     yes        yes
    rehash     dense    as jump
    rehash     sparse   fixed            yes                     yes        yes
    clockwise  dense    fixed            yes                     if k large yes
    clockwise  sparse   fixed, 1 copy    yes                     if k large yes
    clockwise  sparse   fixed, copies    None                    None       yes
    others              moving           None                    None       None

Weights: plain, jump, and rehash on the dense layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenbins import _arguments as arguments
from evenbins._show import ReprMixin
from evenbins.rings.config import NodeRow, RingConfig
from evenbins.theory import ring_laws as laws
from evenbins.theory.ring_clockwise import clockwise_loads
from evenbins.theory.ring_first_full import first_full
from evenbins.theory.ring_limits import checked, checked_epsilon, checked_weights, ring_limit, ring_limits

__all__ = ["POLICIES", "RingPlan", "plan_of_nodes", "plan_ring"]

POLICIES = ("plain", "clockwise", "rehash", "jump")
LAYOUTS = ("dense", "sparse")
LIMITS = ("moving", "fixed")
DEFAULT_EPSILON = 0.25
_IN_ONE_LINE = ("nodes", "keys", "policy", "layout", "epsilon", "limit", "variance", "full", "searches")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RingPlan(ReprMixin):
    """What to expect of a ring with this number of nodes and keys.

    Attributes
    ----------
    nodes : number of nodes (k)
    keys : assigned keys (n)
    policy : "plain", "clockwise", "rehash" or "jump"
    layout : "dense" or "sparse"
    copies : slots or places of a node of mean weight, the first counted
    epsilon : what a node may hold above its mean; None with an absolute limit or without one
    limits : "moving", "fixed" or "none"
    limit : the most keys a node may hold (C); with weights the largest node's; None without a bound
    mean : keys of a node (n/k)
    variance : of the nodes' loads
    full : fraction of nodes at their limit
    searches : mean nodes that one more key looks at, the one that takes it counted
    searches_bound : Theorem 3's 1 + 1/epsilon, for jump with equal weights
    first_full : mean keys until a node is full, by a fixed limit
    max_load : the largest load: the median over rings
    """

    _in_one_line = _IN_ONE_LINE

    nodes: int
    keys: int
    policy: str
    layout: str
    copies: int
    epsilon: float | None
    limits: str
    limit: int | None
    mean: float
    variance: float | None = None
    full: float | None = None
    searches: float | None = None
    searches_bound: float | None = None
    first_full: float | None = None
    max_load: int | None = None


def plan_ring(
    nodes: int | Sequence[float], keys: int, *, policy: str = "jump", layout: str = "dense", copies: int = 1,
    epsilon: float | None = None, limit: int | None = None, limits: str | None = None,
) -> RingPlan:  # fmt: skip
    """Predict a ring.

    Parameters
    ----------
    nodes
        How many (k), or the weight of each.
    keys
        Assigned keys (n); 0 is possible.
    policy
        "plain", "clockwise" (CH-BL), "rehash" (Appendix Q) or "jump" (RJ-CH).
    layout
        "dense", where every slot is as likely, or "sparse", the paper's array.
    copies
        Slots or places of a node of mean weight, the first counted.
    epsilon
        What a node may hold above its mean, as a fraction; 0.25 if neither it nor `limit` is given.
    limit
        Instead, the most keys a node of any weight may hold.
    limits
        "moving": by the number of keys when a key comes, as in a live ring; "fixed": by `keys` from the first
        key on, as in the paper. When None, "moving" with `epsilon`, "fixed" with `limit`.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, arguments exclude each other, or the limit
        leaves no room for the keys.

    Examples
    --------
    >>> plan = plan_ring(1000, 10_000, epsilon=0.1, limits="fixed")
    >>> plan.limit, round(plan.full, 3), round(plan.searches, 2), round(plan.first_full)
    (11, 0.626, 2.68, 3299)
    >>> plan_ring(1000, 1_000_000)  # doctest: +ELLIPSIS
    RingPlan(nodes=1_000, keys=1_000_000, policy='jump', layout='dense', epsilon=0.25, limit=1_250, ...)
    """
    weights: tuple[float, ...] | None = None
    if isinstance(nodes, Sequence | np.ndarray) and not isinstance(nodes, str | bytes):
        weights = checked_weights(nodes)
        count = len(weights)
        if min(weights) == max(weights):
            weights = None
    else:
        (count,) = checked(nodes=nodes)
    keys, copies = checked(keys=keys, copies=copies)
    policy = arguments.one_of("policy", policy, POLICIES, f"Leave it out for {POLICIES[-1]!r}")
    layout = arguments.one_of("layout", layout, LAYOUTS, f"Leave it out for {LAYOUTS[-1]!r}")
    if epsilon is not None and limit is not None:
        got = f"epsilon={arguments.shown(epsilon)} and limit={arguments.shown(limit)}"
        raise arguments.unmet("epsilon", f" and limit exclude each other; got {got}. Pass one")
    if limits is not None:
        limits = arguments.one_of("limits", limits, LIMITS, f"Leave it out for {LIMITS[-1]!r}")
    bound, limits = _bound(count, keys, weights, policy, epsilon, limit, limits)
    if epsilon is None and limit is None:
        epsilon = DEFAULT_EPSILON if policy != "plain" else None
    number = None if epsilon is None else checked_epsilon(epsilon)
    arcs = copies if layout == "sparse" and policy != "jump" else None  # of random lengths
    found = _loads(count, keys, weights, policy, arcs, bound, limits, number)
    plain = policy == "plain"
    correction = 1.0 if plain else 1.0 - 1.0 / count  # the loads' sum is known: `plain_loads` has it already
    until_full = searches_bound = None
    if bound is not None and limits == "fixed" and min(bound) >= 1 and (weights is None or arcs is None):
        each_bound = bound[0] if weights is None else bound
        until_full = first_full(count, each_bound, copies=arcs, weights=weights)
    if policy == "jump" and weights is None and number is not None:
        searches_bound = 1.0 + 1.0 / number if number else math.inf
    return RingPlan(
        nodes=count,
        keys=keys,
        policy=policy,
        layout=layout,
        copies=copies,
        epsilon=number,
        limits=limits,
        limit=None if bound is None else max(bound),
        mean=keys / count,
        variance=None if found is None else found.variance * correction,
        full=None if found is None or bound is None else found.full,
        searches=1.0 if plain else None if found is None else found.searches,
        searches_bound=searches_bound,
        first_full=until_full,
        max_load=None if found is None else _largest(found, count, keys, None if plain else bound),
    )


def plan_of_nodes(rows: Sequence[NodeRow], config: RingConfig) -> RingPlan:
    """Predict a ring as it is now: the nodes that serve, and the keys that they have.

    Without such a node there is nothing to predict: its numbers are 0 or None.
    """
    rows = [row for row in rows if row.serves]
    policy, layout, copies = config.policy_name, config.layout_name, config.copies
    epsilon = config.epsilon if config.rate else None
    if not rows:
        return RingPlan(
            nodes=0, keys=0, policy=policy, layout=layout, copies=copies, epsilon=epsilon, limits="none",
            limit=None, mean=0.0,
        )  # fmt: skip
    keys = sum(row.load for row in rows)
    limit = max(row.cap for row in rows) if config.limit else None
    if limit is not None:  # a limit that has fallen may be below the loads
        keys = min(keys, limit * len(rows))
    return plan_ring(
        [row.weight for row in rows], keys, policy=policy, layout=layout, copies=copies, epsilon=epsilon,
        limit=limit,
    )  # fmt: skip


def _bound(
    nodes: int, keys: int, weights: tuple[float, ...] | None, policy: str, epsilon: float | None,
    limit: int | None, limits: str | None,
) -> tuple[tuple[int, ...] | None, str]:  # fmt: skip
    """Return the limits, one for all nodes or one for each, and of which sort they are."""
    if limit is not None:
        if limits == "moving":
            raise ValueError("limits must be 'fixed' with an absolute limit; got 'moving'. Leave it out")
        (most,) = checked(limit=limit)
        if policy != "plain" and most * nodes < keys:
            raise ValueError(
                f"limit must leave room for {keys} keys; {nodes} nodes of limit {most} hold {most * nodes}. "
                "Raise it"
            )
        return (most,) * (1 if weights is None else nodes), "fixed"
    if epsilon is None and policy == "plain":
        return None, "none"
    epsilon = DEFAULT_EPSILON if epsilon is None else epsilon
    sort = "moving" if limits is None else limits
    if weights is None:
        return (ring_limit(keys, nodes, epsilon),), sort
    return ring_limits(keys, weights, epsilon), sort


def _loads(
    nodes: int, keys: int, weights: tuple[float, ...] | None, policy: str, arcs: int | None,
    bound: tuple[int, ...] | None, limits: str, epsilon: float | None,
) -> laws.RingLoads | None:  # fmt: skip
    if keys == 0:
        return laws.RingLoads(np.array([1.0]), 0.0, 0.0, 0.0, 1.0)
    if nodes == 1:  # it has all keys
        full = 0.0 if bound is None else float(keys >= bound[0])
        searches = None if full and policy != "plain" and limits == "fixed" else 1.0
        return laws.RingLoads(np.ones(1), float(keys), 0.0, full, searches, keys)
    if weights is not None and arcs is not None:
        return None
    if policy == "plain":
        most = keys + 1 if bound is None else max(1, bound[0])
        if weights is not None:
            unmet = 8 * math.ceil(keys * max(weights) / sum(weights)) + 64  # a limit that no node reaches
            return laws.jump_loads(keys, nodes, unmet, weights=weights)
        return laws.plain_loads(keys, nodes, most, copies=arcs)
    assert bound is not None
    if policy == "jump" or (policy == "rehash" and arcs is None):
        if limits == "moving":
            assert epsilon is not None
            return laws.growing_loads(keys, nodes, epsilon, weights=weights)
        return laws.jump_loads(keys, nodes, bound[0] if weights is None else bound, weights=weights)
    if limits == "moving" or weights is not None:
        return None
    if policy == "rehash":
        assert arcs is not None
        return laws.rehash_loads(keys, nodes, bound[0], copies=arcs)
    if arcs is not None and arcs > 1:
        return None
    return clockwise_loads(keys, nodes, bound[0], random_arcs=arcs is not None)


def _largest(found: laws.RingLoads, nodes: int, keys: int, bound: tuple[int, ...] | None) -> int:
    """Return the median of the largest load."""
    above = np.cumsum(found.loads[::-1])[::-1]  # P(load >= i)
    rarely = math.log(2.0) / nodes
    at = int(np.flatnonzero(above >= rarely)[-1]) if keys else 0
    largest = min(keys, found.first + found.step * (at + 1) - 1)
    return largest if bound is None else min(largest, max(bound))
