"""What a ring is built from, checked: nodes, weights, policy, the bound; and the weight that one slot has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from evenbins import _arguments as arguments
from evenbins.theory.ring_limits import LEAST_WEIGHT, MOST_WEIGHT, RATE_UNIT, as_written

__all__ = [
    "NodeRow", "RingConfig", "Weights", "checked_name", "checked_names", "checked_nodes", "checked_weight",
    "checked_weights", "ring_config", "some_names",
]  # fmt: skip

Weights = Mapping[str, float] | Sequence[float]
"""Weights by name, or one for each node in the order of the nodes."""

QUANTA = 2**20  # in one slot
MAX_QUANTA = 2**44
MAX_CAP = 2**60
_POLICIES = {"plain": 1, "clockwise": 2, "rehash": 3, "jump": 5}
_REHASH_BIN = 4
_LAYOUTS = {"dense": 1, "sparse": 2}
_MAX_NAME = 4096
_NO_LIMIT = 2**64 - 1
_MANY_SLOTS = 64  # a node may have, on average
_SLOTS_AT_LEAST = 16  # a node has, on average, if they cannot be whole


class RingConfig(NamedTuple):
    """The core's description of a ring."""

    policy: int  # by number
    layout: int
    copies: int  # slots for each unit of weight
    array_bits: int  # size of a sparse array
    rate: int  # 1 + epsilon in billionths; 0 without epsilon
    unit: float  # the weight of one slot
    epsilon: float  # as passed; 0 for none
    limit: int
    seed: int

    @property
    def policy_name(self) -> str:
        """The policy, as users write it."""
        number = _POLICIES["rehash"] if self.policy == _REHASH_BIN else self.policy
        return next(name for name, each in _POLICIES.items() if each == number)

    @property
    def layout_name(self) -> str:
        """The layout, as users write it."""
        return next(name for name, number in _LAYOUTS.items() if number == self.layout)

    def quanta(self, name: str, weight: float) -> int:
        """Return a node's share of draws, in quanta."""
        quanta = max(1, round(as_written(weight) / as_written(self.unit) * QUANTA))
        if quanta > MAX_QUANTA:
            raise ValueError(
                f"the weight of {name!r} must be at most 2**24 times the ring's unit, {self.unit!r}: "
                f"{self.unit * MAX_QUANTA / QUANTA:g}; got {weight!r}. Make a new ring, whose unit follows "
                "its weights"
            )
        return quanta

    def cap(self, weight: float) -> int:
        """Return the absolute limit of a node; 0 for none."""
        if not self.limit:
            return 0
        cap = max(1, math.ceil(self.limit * as_written(weight)))
        if cap > MAX_CAP:
            raise ValueError(
                f"limit times weight must be at most 2**60; got {self.limit} times {weight!r}. Pass a "
                "smaller limit, or smaller weights"
            )
        return cap


class NodeRow(NamedTuple):
    """The core's description of a node."""

    name: str
    weight: float
    quanta: int
    cap: int
    down: bool
    draining: bool
    lazy: bool
    load: int
    leases: int
    current_limit: int
    lease_units: int
    slots: list[int]

    @property
    def serves(self) -> bool:
        """Whether it takes keys."""
        return not (self.down or self.draining)

    @property
    def limit(self) -> int | None:
        """What it may hold now; None for no limit."""
        return None if self.current_limit == _NO_LIMIT else self.current_limit


def ring_config(
    weights: Iterable[float], policy: str, epsilon: float | None, limit: int | None, copies: int,
    seed: int, *, layout: str = "dense", rehash: str = "object", array_bits: int = 20,
) -> RingConfig:  # fmt: skip
    """Check what describes a ring, beside its nodes, whose weights are given."""
    policy = arguments.one_of("policy", policy, tuple(_POLICIES), "Leave it out for 'jump'")
    rehash = arguments.one_of("rehash", rehash, ("object", "bin"), "Leave it out for 'object'")
    if rehash == "bin" and policy != "rehash":
        text = f"='bin' belongs to policy='rehash'; the policy is {policy!r}. Leave it out"
        raise arguments.unmet("rehash", text)
    layout = arguments.one_of("layout", layout, tuple(_LAYOUTS), "Leave it out for 'dense'")
    epsilon, limit = _checked_bound(policy, epsilon, limit)
    copies = arguments.integer("copies", copies, 1, 65536, "Leave it out for 1")
    array_bits = arguments.integer("array_bits", array_bits, 8, 26, "Leave it out for 20")
    if layout == "dense" and array_bits != 20:
        raise arguments.unmet("array_bits", f" belongs to layout='sparse'; got {array_bits}. Leave it out")
    return RingConfig(
        policy=_REHASH_BIN if rehash == "bin" else _POLICIES[policy],
        layout=_LAYOUTS[layout],
        copies=copies,
        array_bits=array_bits,
        rate=0 if epsilon is None else round((1 + as_written(epsilon)) * RATE_UNIT),
        unit=_unit(list(weights)),
        epsilon=epsilon or 0.0,
        limit=limit or 0,
        seed=arguments.seed(seed),
    )


def _checked_bound(policy: str, epsilon: object, limit: object) -> tuple[float | None, int | None]:
    if policy == "plain":
        if epsilon is not None or limit is not None:
            raise ValueError("a plain ring has no limit: leave out epsilon and limit, or take policy='jump'")
        return None, None
    if epsilon is not None and limit is not None:
        got = f"{arguments.shown(epsilon)} and {arguments.shown(limit)}"
        raise arguments.unmet("epsilon", f" and limit exclude each other; got {got}. Pass one")
    if limit is not None:
        return None, arguments.integer("limit", limit, 1, 2**40, "Pass the keys that a node may hold")
    epsilon = 0.25 if epsilon is None else epsilon
    return arguments.real("epsilon", epsilon, "", "Pass for example 0.25", least=0, most=1000), None


def is_unicode(name: str) -> bool:
    """Return whether a name can be one of a node: it holds no lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_name(name: object) -> str:
    """Check a node's name."""
    if not isinstance(name, str):
        raise TypeError(f"a node's name must be str, not {type(name).__name__}: pass str(name)")
    if not is_unicode(name):
        raise ValueError(f"a node's name must be valid Unicode; got {name!r}")
    size = len(name.encode())
    if not 0 < size <= _MAX_NAME:
        raise ValueError(f"a node's name must have 1 to {_MAX_NAME} bytes; got {size}")
    return name


def checked_names(nodes: object) -> list[str]:
    """Check the names of a ring's nodes."""
    if isinstance(nodes, str | bytes) or not isinstance(nodes, Iterable):
        raise TypeError(f"nodes must be several names, not one {type(nodes).__name__}; put it into a list")
    names = [checked_name(name) for name in nodes]
    for name, count in Counter(names).items():
        if count > 1:
            text = f" must be distinct; got {name!r} twice. Give it a weight of 2 instead"
            raise arguments.unmet("nodes", text)
    return names


def checked_weight(what: str, weight: object) -> float:
    """Check a node's weight."""
    rule = f"a positive number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
    way_out = "Pass for example 2.5; use drain for a node that takes nothing"
    return arguments.real(what, weight, rule, way_out, least=LEAST_WEIGHT, most=MOST_WEIGHT)


def checked_weights(weights: object, names: list[str]) -> dict[str, float]:
    """Check the weights; return that of each node."""
    if weights is None:
        return dict.fromkeys(names, 1.0)
    if isinstance(weights, Sequence) and not isinstance(weights, str | bytes | bytearray | memoryview):
        if len(weights) != len(names):
            text = f" must have a number for each of the {len(names)} nodes; got {len(weights)}. Pass as many"
            raise arguments.unmet("weights", text + ", or a dict of names to numbers")
        each = (checked_weight(f"weights[{i}]", weight) for i, weight in enumerate(weights))
        return dict(zip(names, each, strict=True))
    if not isinstance(weights, Mapping):
        rule = "a dict of names to numbers, or a list with a number for each node"
        raise TypeError(f"weights must be {rule}, not {type(weights).__name__}")
    known = dict.fromkeys(names, 1.0)
    for name, weight in weights.items():
        if name not in known:
            text = f" names {name!r}, which is no node; nodes are {some_names(names)}"
            raise arguments.unmet("weights", text)
        known[name] = checked_weight(f"weights[{name!r}]", weight)
    return known


def checked_nodes(nodes: object, weights: object) -> dict[str, float]:
    """Check a ring's nodes and their weights; return the weight of each node."""
    names = checked_names(nodes)
    if isinstance(nodes, set | frozenset) and isinstance(weights, Sequence):
        raise TypeError("weights in a list need nodes in a list: a set has no order. Pass a dict of weights")
    return checked_weights(weights, names)


def _unit(weights: list[float]) -> float:
    """Choose the weight that one slot stands for: the greatest of which all weights are multiples.

    Then all slots are whole. If that asks for many slots: a sixteenth of the mean, and the last slot of a
    node refuses some draws. A slot like this that is new takes draws from others and refuses them, so that
    keys move between two old nodes when its node joins: for one of mean weight fewer than a sixteenth of
    those that move to it.
    """
    if not weights:
        return 1.0
    counts = {as_written(weight): count for weight, count in Counter(weights).items()}
    denominator = math.lcm(*(weight.denominator for weight in counts))
    common = Fraction(math.gcd(*(int(weight * denominator) for weight in counts)), denominator)
    mean = sum((weight * count for weight, count in counts.items()), Fraction()) / len(weights)
    return float(common if mean <= _MANY_SLOTS * common else mean / _SLOTS_AT_LEAST)


def some_names(names: Iterable[str]) -> str:
    """Return the first names, for a message."""
    names = list(names)
    return ", ".join(repr(name) for name in names[:5]) + (" …" if len(names) > 5 else "") or "none"
