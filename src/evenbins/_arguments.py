"""The arguments of plans and of the mathematics behind them, checked: one place for rules and messages.

Every message names the argument, the rule, the value received and a remedy. A wrong type is a TypeError, a
wrong value a ValueError; a bool is not a number.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _show
from evenbins.errors import ArgumentError, ArgumentTypeError, literal, shown

__all__ = [
    "block_bits", "capacity", "check_total", "error", "flag", "goal", "hashes", "integer", "integers",
    "one_of", "rate", "real", "reals", "seed", "shown", "type_error", "unmet",
]  # fmt: skip

MAX_CAPACITY = 2**48
MAX_BITS = 2**56
MAX_BITS_PER_KEY = 4096
DEFAULT_FPR = 0.01
BLOCK_BITS = (256, 512)


def capacity(value: object) -> int:
    """Check the number of keys."""
    remedy = "Pass the number of keys the filter is planned for"
    rule = "a whole number of keys from 1 to 2**48"
    if isinstance(value, float | np.floating):
        if not float(value).is_integer():  # nan and infinity are not whole either
            raise error("capacity", rule, value, remedy)
        value = int(value)
    return integer("capacity", value, 1, MAX_CAPACITY, remedy, rule=rule)


def goal(fpr: object, bits_per_key: object) -> tuple[float, float | None]:
    """Check the rate to reach and, if given instead, the bits for each key."""
    if fpr is not None and bits_per_key is not None:
        got = f"got fpr={shown(fpr)} and bits_per_key={shown(bits_per_key)}"
        raise unmet(
            "fpr", f" and bits_per_key exclude each other; {got}. Pass one: the other follows from it"
        )
    if bits_per_key is not None:
        remedy = "Pass bits such as 16, or an fpr instead"
        return DEFAULT_FPR, real("bits_per_key", bits_per_key, "", remedy, above=0.0, most=MAX_BITS_PER_KEY)
    if fpr is None:
        return DEFAULT_FPR, None
    return rate(fpr), None


def rate(value: object) -> float:
    """Check a false-positive rate."""
    return real("fpr", value, "", "Pass a rate such as 0.001", above=0.0, below=1.0)


def hashes(value: object, most: int) -> int | None:
    """Check the number of hashes; None stays None."""
    if value is None:
        return None
    return integer("hashes", value, 1, most, "Leave it out for the best number")


def block_bits(value: object, name: str = "block_bits") -> int:
    """Check the size of a block."""
    number = integer(name, value, 0, None, "Pass 512, a cache line")
    if number not in BLOCK_BITS:
        raise error(name, "256 or 512", value, "Pass 512, a cache line")
    return number


def seed(value: object) -> int:
    """Check the argument `seed`."""
    remedy = "Pass for example secrets.randbits(64)"
    rule = "an integer from 0 to 2**64 - 1"
    return integer("seed", value, 0, 2**64 - 1, remedy, rule=rule)


def check_total(bits: int, name: str, value: object) -> None:
    """Raise ValueError for a filter of too many bits; `name` is the argument that asks for them."""
    if bits > MAX_BITS:
        limit = _show.size(MAX_BITS // 8)
        raise ValueError(
            f"the filter must have at most 2**56 bits ({limit}); {name}={shown(value)} asks for "
            f"{bits} bits ({_show.size(bits // 8)}). Use fewer bits or a smaller capacity"
        )


def integer(name: str, value: object, least: int, most: int | None, remedy: str, *, rule: str = "") -> int:
    """Check an integer in a range."""
    if type(value) is int and least <= value and (most is None or value <= most):
        return value
    if not rule:
        rule = f"an integer from {least} to {most}" if most is not None else "an integer"
    if isinstance(value, bool | np.bool_) or not isinstance(value, SupportsIndex):
        raise type_error(name, rule, value, remedy)
    try:
        number = operator.index(value)
    except TypeError:  # an array of several numbers has __index__ too
        raise type_error(name, rule, value, remedy) from None
    if number < least or (most is not None and number > most):
        raise error(name, rule, value, remedy)
    return number


def flag(name: str, value: object, remedy: str = "Pass a bool") -> bool:
    """Check a bool."""
    if not isinstance(value, bool):
        raise type_error(name, "True or False", value, remedy)
    return value


def integers(name: str, value: object, rule: str, remedy: str) -> tuple[int, ...]:
    """Check a sequence of integers of any size."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise type_error(name, rule, value, remedy)
    return tuple(integer(f"{name}[{i}]", each, -(2**64), 2**64, remedy) for i, each in enumerate(value))


def real(
    name: str,
    value: object,
    rule: str,
    remedy: str,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """Check a real number: of any size, or within the bounds given (`below=math.inf`: a finite one).

    An empty `rule` is derived from the bounds: "a number above 0 and at most 64".
    """
    bounds = (above, least, below, most)
    rule = rule or _rule_of(*bounds)
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise type_error(name, rule, value, remedy)
    try:
        number = float(value)
    except OverflowError:
        raise error(name, rule, value, remedy) from None
    if not _is_within(number, *bounds):
        raise error(name, rule, value, remedy)
    return number


def _is_within(
    number: float, above: float | None, least: float | None, below: float | None, most: float | None
) -> bool:
    return (
        (above is None or number > above)
        and (least is None or number >= least)
        and (below is None or number < below)
        and (most is None or number <= most)
    )


def _rule_of(above: float | None, least: float | None, below: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f"a number from {least:g} to {most:g}"
    if above is not None and below is not None and below < math.inf:
        return f"a number between {above:g} and {below:g}, both excluded"
    words = (("above", above), ("at least", least), ("below", below), ("at most", most))
    parts = [f"{word} {bound:g}" for word, bound in words if bound is not None and math.isfinite(bound)]
    return " ".join(["a number", " and ".join(parts)]).rstrip()


def reals(name: str, value: object, rule: str, remedy: str) -> npt.NDArray[np.float64]:
    """Check a number, or an array or nested sequence of numbers of any size and shape."""
    try:
        given = np.asarray(value)
    except ValueError:  # rows of different length
        raise error(name, rule, value, remedy) from None
    if given.dtype.kind not in "iuf":
        raise type_error(name, rule, value, remedy)
    return given.astype(np.float64)


def one_of(name: str, value: object, choices: Sequence[str], remedy: str, *, rule: str = "") -> str:
    """Check a word that must be one of some."""
    if isinstance(value, str) and value in choices:
        return value
    if not rule:
        quoted = [f'"{choice}"' for choice in choices]
        rule = " or ".join(quoted) if len(quoted) <= 2 else f"one of {', '.join(quoted)}"
    raise (error if isinstance(value, str) else type_error)(name, rule, value, remedy)


def unmet(name: str, text: str) -> ArgumentError:
    """Return the exception for an argument that cannot be met; `text` goes on after its name."""
    return ArgumentError.of(name, text.strip(), None, "", "{name}" + literal(text))


def error(name: str, rule: str, value: object, remedy: str) -> ArgumentError:
    """Return the exception for a value that breaks a rule."""
    return ArgumentError.of(name, rule, value, remedy)


def type_error(name: str, rule: str, value: object, remedy: str) -> ArgumentTypeError:
    """Return the exception for a value of the wrong type."""
    return ArgumentTypeError.of(name, rule, value, remedy)
