"""How much a test does: in `make test` what a change needs, in `make test-long` (EVENBINS_ROUNDS=20) more."""

from __future__ import annotations

import os

__all__ = ["ROUNDS", "size"]

ROUNDS = int(os.environ.get("EVENBINS_ROUNDS", "1"))


def size(short: int, long: int) -> int:
    """Return `short`, or `long` in a long run."""
    return long if ROUNDS > 1 else short
