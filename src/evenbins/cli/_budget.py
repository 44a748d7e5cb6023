"""--memory is kept though --capacity, a sample or a state says otherwise: checked after every batch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from evenbins.cli._window import SeenLately
    from evenbins.deduplication.deduplicator import Deduplicator

__all__ = ["KeyBudget", "KeysExceedMemoryError", "check_state_size", "is_replaced"]


class KeysExceedMemoryError(Exception):
    """The keys take more memory than they may."""


class KeyBudget:
    """The most that keys may take, in bytes; None for no limit.

    With `early` the error comes at half of it, once more keys have come than were planned for: the next step
    of growth may take as much again.
    """

    def __init__(self, most: int | None, seen: Deduplicator | SeenLately, *, early: bool) -> None:
        self._seen = seen
        # What was planned is not too much.
        self._most = None if most is None else max(most // 2 if early else most, seen.nbytes)

    def check(self) -> None:
        """Raise an error if the keys take more."""
        if self._most is not None and self._seen.nbytes > self._most:
            raise KeysExceedMemoryError(
                f"the keys take {self._seen.nbytes / 1e6:.3g} MB, more than --memory leaves for them while "
                f"they grow ({self._most / 1e6:.3g} MB)"
            )


def check_state_size(path: str | None, most: int | None) -> None:
    """Raise an error if a state does not fit into memory, before it is loaded."""
    if path is None or most is None or not os.path.isfile(path):
        return
    size = os.path.getsize(path)
    if size > most:
        raise click.ClickException(
            f"--state {path}: it takes {size / 1e6:.3g} MB, more than --memory leaves for keys "
            f"({most / 1e6:.3g} MB): raise --memory"
        )


def is_replaced(path: str | None) -> bool:
    """Return whether an output appears only when it is whole, so that the rows can be written anew."""
    return path is not None and (os.path.isfile(path) or not os.path.exists(path))
