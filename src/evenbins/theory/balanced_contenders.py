"""Which policies can be the best of a balanced filter, so that the others need no plan.

Without a bound below two reads, "fill" or "two-choice" is best: the counted policies spend bits on counters,
a list and their state. "two-choice" needs the least memory from 11 bits per key on, by a percent there and by
four at 24; below 10 one level of "fill", which is a blocked filter, does. Filters of few keys are rounded to
the same number of lines, and then reads decide: so both are planned. A test plans with all policies and
compares.
"""

from __future__ import annotations

from evenbins.theory.balanced_request import Request
from evenbins.theory.cores import POLICIES

__all__ = ["contenders"]

_MANY_KEYS = 20_000
_TWO_CHOICE_BITS, _TWO_CHOICE_RATE = 12.0, 0.004
"""From here on "two-choice" is the best by far."""


def contenders(request: Request, keys: int) -> tuple[str, ...]:
    """Return the policies of which one is the best for a request."""
    given = (request.hashes, request.thresholds, request.coin, request.shares)
    if min(request.reads, request.miss_reads, request.choices) < 2 or any(each is not None for each in given):
        return POLICIES
    if request.bits_per_key is not None:
        many_bits = request.bits_per_key >= _TWO_CHOICE_BITS
    else:
        many_bits = request.fpr is not None and request.fpr <= _TWO_CHOICE_RATE
    if many_bits and keys >= _MANY_KEYS:
        return ("two-choice",)
    return ("fill", "two-choice")
