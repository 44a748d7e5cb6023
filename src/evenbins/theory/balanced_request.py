"""What `plan_balanced` is asked for, checked: each argument by itself, then what its policy makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evenbins import _arguments as arguments
from evenbins.errors import ArgumentError
from evenbins.theory import fpr as theory
from evenbins.theory.balanced_core import (
    MAX_CHOICES,
    MAX_THRESHOLD,
    checked_coin,
    checked_integers,
    checked_policy,
    checked_spill,
)
from evenbins.theory.cores import COIN_UNIT

__all__ = ["DEFAULT_CHOICES", "DEFAULT_OVERFLOW", "Request"]

DEFAULT_OVERFLOW = 0.005
DEFAULT_CHOICES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Checked arguments of `plan_balanced`."""

    policy: str | None
    fpr: float | None
    bits_per_key: float | None
    reads: float
    choices: int
    overflow: float | None
    miss_reads: float
    block_bits: int
    hashes: int | None
    thresholds: tuple[int, ...] | None
    coin: float | None
    shares: tuple[float, ...] | None
    spill: str
    last_threshold: int | None = None  # "fill": of the last table, if given

    @classmethod
    def of(
        cls, *, policy: object = None, fpr: object = None, bits_per_key: object = None, reads: object = None,
        choices: object = None, overflow: object = None, miss_reads: object = None, block_bits: object = 512,
        hashes: object = None, thresholds: object = None, coin: object = None, shares: object = None,
        spill: object = "least",
    ) -> Request:  # fmt: skip
        """Check each argument by itself."""
        rate, per_key = arguments.goal(fpr, bits_per_key)
        name = None if policy is None else checked_policy(policy)
        most = DEFAULT_CHOICES
        if choices is not None:
            most = arguments.integer("choices", choices, 1, MAX_CHOICES, "Leave it out for up to 3")
        return cls(
            policy=name,
            fpr=rate if per_key is None else None,
            bits_per_key=per_key,
            reads=_bound("reads", reads, "every insertion reads a block"),
            choices=most,
            overflow=_overflow(overflow),
            miss_reads=_bound("miss_reads", miss_reads, "every look-up reads a block"),
            block_bits=arguments.block_bits(block_bits),
            hashes=arguments.hashes(hashes, theory.MAX_HASHES_BLOCKED),
            thresholds=None if thresholds is None else checked_integers("thresholds", thresholds),
            coin=None if coin is None else checked_coin(coin) / COIN_UNIT,
            shares=None if shares is None else _shares(shares),
            spill=checked_spill(spill),
        )

    def for_policy(self, policy: str) -> Request:
        """Check what the policy makes of the arguments."""
        request = replace(self, policy=policy)
        tables = 1 if policy in ("single", "sequential") else None
        if policy == "two-choice":
            for name in ("reads", "miss_reads", "choices"):
                if getattr(self, name) < 2:
                    rule, remedy = 'at least 2 for policy="two-choice"', "Raise it, or take another policy"
                    raise arguments.error(name, rule, getattr(self, name), remedy)
            for name in ("thresholds", "coin", "shares"):
                if getattr(self, name) is not None:
                    raise _no_such(name, policy, getattr(self, name))
        if policy == "fill" and self.coin:
            raise _no_such("coin", policy, self.coin)
        if self.thresholds is not None:
            marks, last = self.thresholds, None
            filling = policy == "fill"
            every = self.shares is not None and len(self.shares) == len(marks)
            if filling and marks and (every or marks[-1] == self.block_bits + 1):
                *above, last = marks
                marks, remedy = tuple(above), "Leave it out for the best"
                arguments.integer(f"thresholds[{len(marks)}]", last, 1, self.block_bits + 1, remedy)
            least, most = (1, self.block_bits) if filling else (0, MAX_THRESHOLD)
            remedy = "Leave thresholds out for the best"
            for place, each in enumerate(marks):
                arguments.integer(f"thresholds[{place}]", each, least, most, remedy)
            if (tables is not None and len(marks) != tables) or not (filling or marks):
                rule = "one number" if tables else "a number for each table"
                raise arguments.error("thresholds", f"{rule} for policy={policy!r}", marks, "Pass as many")
            request = replace(request, thresholds=marks, last_threshold=last)
        count = None
        if request.thresholds is not None:
            count = len(request.thresholds) + (policy == "fill")
        if self.shares is not None:
            if tables is not None and len(self.shares) != 1:
                rule = f"one number for policy={policy!r}"
                raise arguments.error("shares", rule, self.shares, "Leave them out")
            if count not in (None, len(self.shares)):
                rule = f"{count} numbers, as thresholds has"
                raise arguments.error("shares", rule, self.shares, "Pass as many")
            count = len(self.shares)
        if count is not None and count > self.choices and policy in ("multilevel", "fill"):
            rule = f"at least {count}, the number of tables given"
            raise arguments.error("choices", rule, self.choices, "Raise it or give fewer thresholds")
        return request


def _no_such(name: str, policy: str, value: object) -> ArgumentError:
    got = arguments.shown(value)
    return arguments.unmet(name, f" has no meaning for policy={policy!r}; got {got}. Leave it out")


def _bound(name: str, value: object, reason: str) -> float:
    """Check an upper bound on reads; without one it is infinite."""
    if value is None:
        return math.inf
    rule = f"a number of at least 1, since {reason}"
    return arguments.real(name, value, rule, "Leave it out for no bound", least=1.0)


def _overflow(value: object) -> float | None:
    if value is None:
        return None
    remedy = "Pass 0 for no list, or leave it out for up to 0.005"
    return arguments.real("overflow", value, "a fraction from 0 to 1", remedy, least=0.0, most=1.0)


def _shares(value: object) -> tuple[float, ...]:
    rule, remedy = "positive numbers, one for each table", "Pass for example (0.9, 0.1)"
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
        raise arguments.type_error("shares", rule, value, remedy)
    parts = [
        arguments.real(f"shares[{i}]", each, "a positive number", remedy, above=0.0, below=math.inf)
        for i, each in enumerate(value)
    ]
    if not 1 <= len(parts) <= MAX_CHOICES:
        raise arguments.error("shares", rule, value, remedy)
    return tuple(each / math.fsum(parts) for each in parts)
