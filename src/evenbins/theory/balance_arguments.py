"""The arguments of `balance` and `over_time`, checked."""

from __future__ import annotations

import math

from evenbins import _arguments as arguments

__all__ = [
    "MAX_CHOICES", "MAX_LOAD", "checked_choices", "checked_coin", "checked_load", "checked_overflow",
    "checked_reads",
]  # fmt: skip

MAX_LOAD = 1e6
"""Largest keys per bucket, and largest threshold."""
MAX_CHOICES = 64
"""Most buckets a key may use."""


def checked_load(value: object) -> float:
    """Check the keys per bucket."""
    rule = f"a number of keys per bucket above 0 and at most {MAX_LOAD:g}"
    return arguments.real("load", value, rule, "Pass keys / buckets, such as 8", above=0.0, most=MAX_LOAD)


def checked_overflow(value: object) -> float:
    """Check the fraction of keys on the overflow list."""
    rule = "a fraction of the keys, at least 0 and below 1"
    remedy = "Pass for example 0.005, or 0 for no overflow list"
    return arguments.real("overflow", value, rule, remedy, least=0.0, below=1.0)


def checked_coin(value: object) -> float:
    """Check the chance that a bucket of exactly `threshold` keys accepts one more."""
    remedy = "Pass 0 if a bucket of threshold keys is full, 1 if it takes one more"
    return arguments.real("coin", value, "a chance from 0 to 1", remedy, least=0.0, most=1.0)


def checked_reads(value: object, choices: int) -> float:
    """Check the mean bucket reads of an insertion, for a scheme of so many choices."""
    rule = f"a number between 1 and choices={choices}"
    reads = arguments.real("reads", value, rule, "Pass for example 1.2", above=-math.inf, below=math.inf)
    rule = f"above 1 and below choices={choices}, both excluded"
    if reads <= 1.0:
        remedy = "Pass for example 1.0001, the nearest useful, or call optimal_single: it reads 1 bucket"
        raise arguments.error("reads", rule, value, remedy)
    if reads >= choices:
        remedy = f"Pass reads={min(choices - 0.1, 1.2):g}, or choices={int(min(reads, 1e15)) + 1} or more"
        if reads >= MAX_CHOICES:
            remedy = f"Pass at most {choices - 0.1:g}"
        raise arguments.error("reads", rule, value, remedy)
    return reads


def checked_choices(value: object, least: int) -> int:
    """Check the buckets a key may use."""
    remedy = "Pass for example 3" if least == 1 else "Pass for example 3; with 1 choice it is optimal_single"
    return arguments.integer("choices", value, least, MAX_CHOICES, remedy)
