"""Dates, times and durations as two words: whole seconds, and what is beyond them, without rounding.

    low     seconds, two's complement
    high    nanoseconds, and in its upper half attoseconds (NumPy has units below a nanosecond)

Equal moments have equal words, whatever unit they came in.
"""

from __future__ import annotations

import datetime
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["PER_SECOND", "time_words", "words_of_ticks", "words_of_time_of_day"]

_Array = np.ndarray[Any, np.dtype[Any]]
_Words = npt.NDArray[np.uint64]
_Pair = tuple[_Words, _Words]

PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_SECONDS: Final = {"m": 60, "h": 3600, "D": 86_400, "W": 604_800}
_MONTHS: Final = {"M": 1, "Y": 12}
_ATTO: Final = 10**18
_MOST_MONTHS: Final = 12 * 290_000_000_000  # beyond them seconds have more than 64 bits


def words_of_ticks(ticks: _Array, per_second: int) -> _Pair:
    """Return the words of whole numbers of a unit of which a second has so many."""
    seconds, rest = np.divmod(ticks.astype(np.int64), per_second)
    if per_second <= 10**9:
        return seconds.view(np.uint64), (rest * (10**9 // per_second)).astype(np.uint64)
    nanoseconds, beyond = np.divmod(rest * (_ATTO // per_second), 10**9)
    return seconds.view(np.uint64), nanoseconds.astype(np.uint64) | beyond.astype(np.uint64) << np.uint64(32)


def time_words(column: _Array) -> _Pair:
    """Return the words of datetime64 or timedelta64 without NaT, of any unit.

    Raises
    ------
    TypeError
        A duration is in months or years, which have no fixed length, or it has no unit.
    ValueError
        A value has more than 2**63 seconds.
    """
    kind = column.dtype.kind
    unit, count = np.datetime_data(column.dtype)
    if not len(column):
        return words_of_ticks(np.zeros(0, dtype=np.int64), 1)
    if unit in _MONTHS and kind == "M":
        ticks = column.astype(column.dtype.newbyteorder("=")).view(np.int64)
        _check_range(ticks, _MOST_MONTHS // (count * _MONTHS[unit]), column)
        column, unit, count = column.astype("M8[D]"), "D", 1
    per_second, times = PER_SECOND.get(unit, 1), count * _SECONDS.get(unit, 1)
    if unit not in PER_SECOND and unit not in _SECONDS:
        raise TypeError(
            f"a duration must have a unit of fixed length, from weeks to attoseconds, not {column.dtype}: "
            'convert the column before, for example with .astype("int64")'
        )
    shared = math.gcd(per_second, times)
    per_second, times = per_second // shared, times // shared
    ticks = column.astype(column.dtype.newbyteorder("=")).view(np.int64)
    if times == 1:
        return words_of_ticks(ticks, per_second)
    if per_second == 1:
        _check_range(ticks, (2**63 - 1) // times, column)
        return words_of_ticks(ticks * times, 1)
    return _words_of_numbers([each * times for each in ticks.tolist()], per_second, column)


def _words_of_numbers(numbers: list[int], per_second: int, column: _Array) -> _Pair:
    """Return the words of numbers that may have more than 64 bits."""
    pairs = [divmod(each, per_second) for each in numbers]
    seconds = np.array([each[0] for each in pairs], dtype=object)
    _check_range(seconds, 2**63 - 1, column)
    low = seconds.astype(np.int64).view(np.uint64)
    return low, words_of_ticks(np.array([each[1] for each in pairs], dtype=np.int64), per_second)[1]


def _check_range(ticks: _Array, most: int, column: _Array) -> None:
    wrong = (ticks > most) | (ticks < -most)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{column.dtype}: a value must be within 2**63 seconds; got {int(column[row].astype(np.int64))}. "
            'Convert the column before, for example with .astype("int64")'
        )


def words_of_time_of_day(value: datetime.time) -> tuple[bool, tuple[int, int]]:
    """Return whether a time of day has an offset from UTC, and its words, in UTC if it has."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    offset = value.utcoffset()
    if offset is None:
        return False, (seconds, value.microsecond * 1000)
    span = datetime.timedelta(seconds=seconds, microseconds=value.microsecond) - offset
    return True, ((span.days * 86_400 + span.seconds) % 2**64, span.microseconds * 1000)
