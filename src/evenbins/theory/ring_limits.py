"""Limits of a ring's nodes, ceil((1 + epsilon) n/k), and the arguments of all laws of rings, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from evenbins import _arguments as arguments

__all__ = [
    "LEAST_WEIGHT", "MAX_COPIES", "MAX_KEYS", "MAX_NODES", "MOST_WEIGHT", "RATE_UNIT", "as_written",
    "checked", "checked_copies", "checked_epsilon", "checked_weights", "rate_units", "ring_limit",
    "ring_limits",
]  # fmt: skip

MAX_KEYS = 2**48
MAX_NODES = 2**24
MAX_COPIES = 2**20
LEAST_WEIGHT, MOST_WEIGHT, MOST_RATIO = 1e-100, 1e100, 1e30  # of two weights in one ring
RATE_UNIT = 10**9


_RANGES = {
    "keys": (0, MAX_KEYS, "Pass the number of assigned keys"),
    "nodes": (1, MAX_NODES, "Pass the number of nodes, or their weights"),
    "copies": (1, MAX_COPIES, "Pass 1, or leave it out for equal shares"),
    "limit": (0, MAX_KEYS, "Pass for example ring_limit(keys, nodes, 0.25)"),
}


def checked(**numbers: object) -> tuple[int, ...]:
    """Check keys, nodes, copies, a node's limit: those that are passed, by these names."""
    return tuple(arguments.integer(name, value, *_RANGES[name]) for name, value in numbers.items())


def checked_copies(value: object) -> int | None:
    """Check the number of random points of a node; None stays None."""
    return None if value is None else checked(copies=value)[0]


def checked_epsilon(value: object) -> float:
    """Check epsilon."""
    rule, remedy = "a number from 0 to 1000000", "Pass for example 0.25: a quarter above the mean"
    return arguments.real("epsilon", value, rule, remedy, least=0.0, most=1e6)


def checked_weights(values: object) -> tuple[float, ...]:
    """Check the nodes' weights."""
    rule = f"one or more positive numbers from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
    remedy = "Pass for example [1, 1, 2.5]"
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray) or not len(values):
        raise arguments.type_error("weights", rule, values, remedy)
    numbers = tuple(
        arguments.real("weights", each, rule, remedy, least=LEAST_WEIGHT, most=MOST_WEIGHT) for each in values
    )
    if max(numbers) / min(numbers) > MOST_RATIO:
        raise ValueError(
            f"weights of one ring must differ by a factor of at most {MOST_RATIO:g}; got "
            f"{min(numbers)!r} and {max(numbers)!r}"
        )
    return numbers


def ring_limit(keys: int, nodes: int, epsilon: float) -> int:
    """Return the most keys a node may hold (C): ceil((1 + epsilon) * keys / nodes), exactly.

    1 + epsilon is taken in billionths, in integers: 1.1 * 110 is 121, not the 122 that floating point
    makes of its 121.00000000000001.

    >>> ring_limit(10_000, 1000, 0.1), ring_limit(3000, 1000, 0.3), ring_limit(0, 7, 0.25)
    (11, 4, 0)
    """
    keys, nodes = checked(keys=keys, nodes=nodes)
    return -(-rate_units(checked_epsilon(epsilon)) * keys // (RATE_UNIT * nodes))


def ring_limits(keys: int, weights: Sequence[float], epsilon: float) -> tuple[int, ...]:
    """Return each node's limit: ceil((1 + epsilon) * keys * weight / sum of weights), exactly.

    Weights are read as the decimals they are written as.

    >>> ring_limits(100, [1, 1, 2], 0.1), ring_limits(30, [0.1, 0.2], 0)
    ((28, 28, 55), (10, 20))
    """
    (keys,), rate = checked(keys=keys), rate_units(checked_epsilon(epsilon))
    exact = [as_written(each) for each in checked_weights(weights)]
    unit = RATE_UNIT * sum(exact, Fraction(0))
    known: dict[Fraction, int] = {}
    for each in exact:
        if each not in known:
            known[each] = math.ceil(rate * keys * each / unit)
    return tuple(known[each] for each in exact)


def as_written(number: float) -> Fraction:
    """Return the decimal number that was written: 0.1 is a tenth."""
    return Fraction(repr(float(number)))


def rate_units(epsilon: float) -> int:
    """Return 1 + epsilon in units of 1/RATE_UNIT."""
    return round((1.0 + epsilon) * RATE_UNIT)
