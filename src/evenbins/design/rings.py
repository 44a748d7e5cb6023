"""Rings by requirement: from the number of nodes and keys to the limits that meet it, and what they cost.

    nodes, keys, overload,        jump with each of several epsilons,      the plans, the cheapest even ones
    searches, full, move_rate ──▶ and plain hashing, predicted        ──▶  first, the Pareto front marked,
                                                                           each with .build()

A small epsilon keeps loads even, and makes keys look at more nodes; what a look costs only the user knows.
Nothing is built to plan: 10,000 nodes and 10**10 keys take some seconds. What changes when nodes come and
go does not depend on epsilon: a node that joins k others takes 1/(k+1) of the keys, and nothing else moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evenbins import _arguments, _show
from evenbins.design._designs import Designs, beats
from evenbins.rings import HashRing
from evenbins.rings.plan import RingPlan, plan_ring

__all__ = ["RingDesign", "RingDesigns", "ring"]

EPSILONS = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
_CHEAP = 1.2  # searches: designs that need no more come first, the most even of them at the head
_RESPECTS = ("max_load", "searches")  # in what designs are compared
_COLUMNS = (
    ("policy", "policy"), ("epsilon", "epsilon"), ("limit", "limit"), ("max_load", "fullest"),
    ("overload", "fullest/mean"), ("full", "full"), ("searches", "searches"), ("searches_p99", "99 %"),
    ("moved", "moved by +1"), ("map_bytes", "map"), ("join_seconds", "join"), ("rebuild_seconds", "rebuild"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RingDesign:
    """One design: its plan, what churn and memory cost, and whether none beats it.

    Attributes
    ----------
    plan : what the theory predicts
    move_rate : keys that can be moved in a second, if it was given
    pareto : no other design is as even, and as cheap to search
    """

    plan: RingPlan
    move_rate: float | None
    pareto: bool

    @property
    def policy(self) -> str:
        """The plan's policy."""
        return self.plan.policy

    @property
    def overload(self) -> float:
        """The fullest node's keys over the mean."""
        assert self.plan.max_load is not None
        return self.plan.max_load / self.plan.mean if self.plan.mean else 1.0

    @property
    def searches_p99(self) -> int:
        """99 of 100 new keys look at no more nodes than this: geometric."""
        passed = 1.0 - 1.0 / (self.plan.searches or 1.0)
        return 1 if passed <= 0.01 else math.ceil(math.log(0.01) / math.log(passed))

    @property
    def moved(self) -> float:
        """The fraction of keys that moves when one node of mean weight joins."""
        return 1.0 / (self.plan.nodes + 1)

    @property
    def map_bytes(self) -> int:
        """Bytes of a ring that has all keys assigned; without `assign` it needs about 300 a node."""
        places = 1 << max(6, math.ceil(math.log2(self.plan.keys * 8 / 5 + 1)))
        return 16 * places + 8 * math.ceil(1.05 * self.plan.keys) + 300 * self.plan.nodes

    @property
    def join_seconds(self) -> float | None:
        """Time to move the keys of a node that joins."""
        return None if self.move_rate is None else self.moved * self.plan.keys / self.move_rate

    @property
    def rebuild_seconds(self) -> float | None:
        """Time to place all keys anew."""
        return None if self.move_rate is None else self.plan.keys / self.move_rate

    def build(self, nodes: Sequence[str] | None = None, **options: object) -> HashRing:
        """Build the ring, without keys; of these names, or of node0, node1, …

        Examples
        --------
        >>> made = ring(nodes=5, keys=1000).build()
        >>> made.names[0], made.node("key") in made.names
        ('node0', True)
        """
        names = [f"node{i}" for i in range(self.plan.nodes)] if nodes is None else list(nodes)
        if len(names) != self.plan.nodes:
            raise _arguments.unmet(
                "nodes", f" must be {self.plan.nodes} names; got {len(names)}. Design for as many"
            )
        return HashRing(names, policy=self.policy, epsilon=self.plan.epsilon, **options)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, object]:
        """Return the plan and the rest as JSON-serialisable values."""
        names = ("overload", "searches_p99", "moved", "map_bytes", "join_seconds", "rebuild_seconds")
        return self.plan.to_dict() | {name: getattr(self, name) for name in (*names, "pareto")}

    def cell(self, name: str) -> str:
        """Return a quantity as text."""
        value = getattr(self.plan if hasattr(self.plan, name) else self, name)
        if value is None:
            return "-"
        if name == "moved":
            return f"{value:.2%}" if value >= 1e-3 else f"{value:.2e}"
        if name == "full":
            return f"{value:.2%}"
        if name.endswith("seconds"):
            return f"{value:.3g} s"
        return _show.text(name, value)


class RingDesigns(Designs[RingDesign]):
    """All designs that meet a request, best first; prints as a table, in notebooks as HTML."""

    _title = "ring designs"
    _columns = _COLUMNS

    def build(self, nodes: Sequence[str] | None = None, **options: object) -> HashRing:
        """Build the best design, as `RingDesign.build` does."""
        return self.best.build(nodes, **options)


def ring(
    nodes: int | Sequence[float], keys: int | float, *, overload: float | None = None,
    searches: float | None = None, full: float | None = None, move_rate: float | None = None,
) -> RingDesigns:  # fmt: skip
    """Find the limits that meet a request, and what they cost.

    Parameters
    ----------
    nodes
        How many, or the weight of each.
    keys
        Keys assigned at a time.
    overload
        Keys of the fullest node over the mean, at most; above 1.
    searches
        Mean number of nodes that a new key may look at.
    full
        Fraction of nodes at their limit, at most.
    move_rate
        Keys that can be moved, or placed anew, in a second: gives times.

    Raises
    ------
    ValueError
        An argument is out of its range, or nothing meets the request.

    Examples
    --------
    >>> designs = ring(nodes=10_000, keys=1e8, overload=1.1)
    >>> designs.best.policy, designs.best.plan.epsilon, designs.best.plan.limit
    ('jump', 0.02, 10200)
    >>> f"{designs.best.moved:.2e}"
    '1.00e-04'
    """
    if isinstance(keys, float) and keys.is_integer():
        keys = int(keys)
    bounds = {"overload": overload, "searches": searches, "full": full}
    for name, value in bounds.items():
        least = 0.0 if name == "full" else 1.0
        if value is not None:
            rule = f"a number from {least:g} on"
            _arguments.real(name, value, rule, "Leave it out for no bound", least=least)
    if move_rate is not None:
        rule = "a positive number of keys a second"
        _arguments.real("move_rate", move_rate, rule, "Leave it out", above=0.0)
    plans = [plan_ring(nodes, keys, epsilon=epsilon) for epsilon in EPSILONS]  # type: ignore[arg-type]
    plans.append(plan_ring(nodes, keys, policy="plain"))  # type: ignore[arg-type]
    designs = [
        RingDesign(plan, move_rate, pareto=not any(beats(other, plan, _RESPECTS) for other in plans))
        for plan in plans
    ]
    fitting = [
        each
        for each in designs
        if (overload is None or each.overload <= overload)
        and (searches is None or (each.plan.searches or math.inf) <= searches)
        and (full is None or (each.plan.full or 0.0) <= full)
    ]
    if not fitting:
        raise ValueError(
            "nothing meets the request: "
            + ", ".join(f"{name}={value:g}" for name, value in bounds.items() if value is not None)
            + ". Allow more searches, or a larger overload"
        )
    request: dict[str, object] = {
        "nodes": nodes if isinstance(nodes, int) else len(nodes), "keys": keys, **bounds, "move_rate":
        move_rate,
    }  # fmt: skip

    def order(design: RingDesign) -> tuple[bool, float, float]:
        searches = design.plan.searches or 1.0
        return searches > _CHEAP, design.overload, searches

    return RingDesigns(sorted(fitting, key=order), request)
