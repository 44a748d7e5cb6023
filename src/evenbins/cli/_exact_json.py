"""JSON whose numbers are compared by their exact value, however many digits or how large an exponent.

    1, 1.0, 10e-1                  one number, an int
    0.1, 1e-1                      one number, a float: what its shortest text says is its value
    0.1000000000000000000001       another one, that no float says: an ExactNumber, as are 1e400 and 2**70

orjson rounds. A text of up to 15 digits is the shortest of its float, so that only a line with a longer
number, or a value out of the range of floats, is parsed a second time, by the standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

__all__ = ["ExactNumber", "NoNumberError", "canonical_json", "exact_json", "may_be_rounded", "plain_number"]

_LEAST, _MOST = -(2**63), 2**64 - 1  # integers that are keys by themselves
_DIGITS = 20  # of _MOST
_SMALLEST, _LARGEST = 1e-290, float(2**53)  # between them a float has 15 digits, and a whole one is exact
_LONG = re.compile(rb"[0-9.]{16,}(?:[eE][-+]?[0-9]+)?")
_PARTS = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]+))?")
_MOST_EXPONENT_DIGITS = 1000


class NoNumberError(ValueError):
    """A text that is no number of JSON, or one with an exponent of absurd length."""


class ExactNumber:
    """A number that is neither an integer of 64 bits nor said by the shortest text of a float."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def _canonical(text: str) -> str:
    """Return a number as digits without zeros at either end, and an exponent; equal values, equal texts."""
    match = _PARTS.fullmatch(text)
    assert match is not None, text
    sign, whole, fraction, exponent = match.groups("")
    if len(exponent) > _MOST_EXPONENT_DIGITS:
        raise NoNumberError(f"a number with an exponent of {len(exponent):_} digits: repair it")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0e0"
    short = digits.rstrip("0")
    return f"{sign}{short}e{int(exponent or 0) - len(fraction) + len(digits) - len(short)}"


def _number(text: str) -> int | float | ExactNumber:
    """Return the number that a text says: an int of 64 bits, a float, or an ExactNumber."""
    exact = _canonical(text)
    digits, _, exponent = exact.partition("e")
    if len(exponent) <= 2 and int(exponent) >= 0 and len(digits) + int(exponent) <= _DIGITS + 1:
        number: int = int(digits) * 10 ** int(exponent)
        if _LEAST <= number <= _MOST:
            return number
    elif exponent.startswith("-"):
        real = float(text)
        if real and exact == _canonical(repr(real)):
            return real
    return ExactNumber(exact)


def plain_number(value: int | float | ExactNumber) -> int | float | ExactNumber:
    """Return a number as it is compared: an int of 64 bits, a float that is not whole, or an ExactNumber.

    Examples
    --------
    >>> plain_number(1.0), plain_number(0.5), str(plain_number(2**70)), str(plain_number(2.0**70))
    (1, 0.5, '1180591620717411303424e0', '1180591620717411303424e0')
    """
    if isinstance(value, float):
        if not value.is_integer():
            return value
        value = int(value)
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return _number(str(value))
    return value


def _refuse_constant(text: str) -> None:
    raise NoNumberError(f"{text} is no JSON: replace it by null")


def exact_json(line: bytes) -> Any:
    """Parse a line; no number is rounded."""
    return json.loads(line, parse_float=_number, parse_int=_number, parse_constant=_refuse_constant)


def canonical_json(value: Any) -> str:
    """Return JSON with the fields of objects sorted; equal values have equal texts, whatever their form."""
    if isinstance(value, list):
        return "[" + ", ".join(map(canonical_json, value)) + "]"
    if isinstance(value, dict):
        names = sorted(value)
        return "{" + ", ".join([f"{json.dumps(name)}: {canonical_json(value[name])}" for name in names]) + "}"
    if isinstance(value, bool) or not isinstance(value, int | float | ExactNumber):
        return json.dumps(value)
    return str(plain_number(value))


def may_be_rounded(values: Sequence[Any], line: bytes) -> bool:
    """Return whether orjson may have rounded one of the values of a line."""
    floats = []
    for value in values:
        if isinstance(value, list | dict):
            return True
        if isinstance(value, float):
            if not _SMALLEST <= abs(value) < _LARGEST:
                return True
            floats.append(repr(abs(value)).encode())
    return bool(floats) and not set(_LONG.findall(line)) <= set(floats)
