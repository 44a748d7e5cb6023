"""Numbers as people write them: counts, rates and sizes in bytes, for the command line and the lab.

    count    1000000   1_000_000   1,000,000   1e6   1M   1 million            a whole number
    rate     0.001   1e-3   0.1%   1/1000   1 in 1000   1 in a million         a number
    size     1000000   512KiB   256M   4G   1.5 TB                             bytes

Letters may be small or capital. In a count K, M, B (or G) and T are powers of 1000. In a size KiB, MiB, GiB,
TiB and the letters alone are powers of 1024, as for `sort -S`; KB, MB, GB and TB are powers of 1000. Commas
stand between groups of three digits only: 0,1 is refused, and not read as 1 or 0.1.

A text that is no such number raises ValueError; the message quotes it and shows what is accepted. Whole
numbers are exact, however large.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = ["parse_count", "parse_number", "parse_rate", "parse_size"]

_LONGEST = 60
_LARGEST_EXPONENT = 400  # beyond the range of floats
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)"
_NUMBER = re.compile(
    rf"(?P<number>[+-]?(?:{_DIGITS}(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{{1,4}})?)\s*(?P<unit>[a-zA-Z]*)", re.ASCII
)
_ONE_IN = re.compile(r"(?P<part>.+?)(?:\s*/\s*|\s+[iI][nN]\s+)(?P<whole>.+)", re.ASCII)
_WORDS = {"a": 1, "one": 1, "ten": 10, "hundred": 100}
_THOUSANDS = {
    "": 1, "k": 10**3, "thousand": 10**3, "m": 10**6, "million": 10**6, "b": 10**9, "g": 10**9,
    "billion": 10**9, "t": 10**12, "trillion": 10**12,
}  # fmt: skip
_BYTES = {
    "": 1, "b": 1, "bytes": 1,
    **{f"{letter}{end}": 1024**power for power, letter in enumerate("kmgt", 1) for end in ("", "i", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}  # fmt: skip


def parse_count(text: str) -> int:
    """Return a whole number.

    Examples
    --------
    >>> parse_count("200M"), parse_count("1.5 million"), parse_count("200,000,000"), parse_count("1e9")
    (200000000, 1500000, 200000000, 1000000000)
    >>> parse_count("many")
    Traceback (most recent call last):
    ...
    ValueError: 'many' is not a whole number: write it as 200M, 1e9, 1_000_000 or 1,000,000
    """
    value = _value(text, _THOUSANDS)
    if value is None or value.denominator != 1:
        raise _error(text, "a whole number", "200M, 1e9, 1_000_000 or 1,000,000")
    return int(value)


def parse_rate(text: str) -> float:
    """Return a number, which may be written as a fraction or in percent.

    Examples
    --------
    >>> parse_rate("0.1%"), parse_rate("1e-6"), parse_rate("1/1000"), parse_rate("1 in a million")
    (0.001, 1e-06, 0.001, 1e-06)
    >>> parse_rate("0,1")
    Traceback (most recent call last):
    ...
    ValueError: '0,1' is not a rate: write it as 0.001, 1e-3, 0.1%, 1/1000 or 1 in a million
    """
    value = _rate(text.strip()) if len(text) <= _LONGEST else None
    if value is None:
        raise _error(text, "a rate", "0.001, 1e-3, 0.1%, 1/1000 or 1 in a million")
    return _as_float(value)


def parse_number(text: str) -> float:
    """Return a number that is no rate and need not be whole: bits, reads, keys per second.

    Examples
    --------
    >>> parse_number("12.5"), parse_number("20M"), parse_number("1,500.5")
    (12.5, 20000000.0, 1500.5)
    """
    value = _value(text, _THOUSANDS)
    if value is None:
        raise _error(text, "a number", "12.5, 1e6, 20M or 1,500.5")
    return _as_float(value)


def parse_size(text: str) -> int:
    """Return a size in bytes, rounded down.

    Examples
    --------
    >>> parse_size("4G"), parse_size("512KiB"), parse_size("1.5 MB"), parse_size("1e6")
    (4294967296, 524288, 1500000, 1000000)
    >>> parse_size("4 gallons")
    Traceback (most recent call last):
    ...
    ValueError: '4 gallons' is not a size in bytes: write it as 4G, 256M, 512KiB, 1.5GB or 1000000
    """
    value = _value(text, _BYTES)
    if value is None or value < 0:
        raise _error(text, "a size in bytes", "4G, 256M, 512KiB, 1.5GB or 1000000")
    return int(value)


def _value(text: str, units: dict[str, int]) -> Fraction | None:
    """Return a number with its unit, exactly; None for what is no number."""
    from fractions import Fraction  # here: it takes a millisecond of every start

    found = _NUMBER.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if found is None or found["unit"].lower() not in units:
        return None
    plain = found["number"].replace("_", "").replace(",", "")
    exponent = plain.lower().partition("e")[2]
    if exponent and abs(int(exponent)) > _LARGEST_EXPONENT:
        return None
    return Fraction(plain) * units[found["unit"].lower()]


def _rate(text: str) -> Fraction | None:
    if text.endswith("%"):
        value = _value(text[:-1], {"": 1})
        return None if value is None else value / 100
    parts = _ONE_IN.fullmatch(text)
    if parts is None:
        return _value(text, {"": 1})
    part, whole = _worded(parts["part"]), _worded(parts["whole"])
    return part / whole if part is not None and whole else None


def _worded(text: str) -> Fraction | None:
    """Return a number that may begin with a word: a million, ten thousand."""
    first, _, rest = text.lower().partition(" ")
    if first not in _WORDS:
        return _value(text, _THOUSANDS)
    return _value(f"{_WORDS[first]} {rest}", {**_THOUSANDS, "hundred": 100})


def _as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _error(text: str, what: str, examples: str) -> ValueError:
    quoted = repr(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...")
    return ValueError(f"{quoted} is not {what}: write it as {examples}")
