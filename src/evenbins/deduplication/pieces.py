"""A batch in pieces, and a mark for each of its rows: not in yet, in and a repeat, in and new.

Marks are written by the call that adds the keys, into memory that the caller has: so an exception from a
signal handler, wherever it comes, finds a mark for every row that is in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["NOT_IN", "Marks", "Mask", "Words", "add_in_pieces", "answers_in", "count_in", "new_marks"]

Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Marks = npt.NDArray[np.uint8]

NOT_IN: Final = 2
"""The mark of a row that is not in; the others are 0 for a repeat and 1 for a new key."""


def new_marks(rows: int) -> Marks:
    """Return the marks of rows of which none is in."""
    return np.full(rows, NOT_IN, dtype=np.uint8)


def count_in(marks: Marks) -> int:
    """Return how many rows are in before the first that is not."""
    if not len(marks):
        return 0
    first = int(np.argmax(marks))  # 2 is the largest mark
    return first if marks[first] == NOT_IN else len(marks)


def answers_in(marks: Marks) -> Mask:
    """Return the answers of the rows that are in, up to the first that is not."""
    return marks[: count_in(marks)].view(np.bool_)


def add_in_pieces(digests: Words, marks: Marks, rows: int, add: Callable[[Words, Marks], int]) -> Mask:
    """Add all digests, at most `rows` at a time; return their answers, which are the marks.

    `add` gets digests and their marks, adds as many as it can, and returns how many.
    """
    done = 0
    while done < len(digests):
        done += add(digests[done : done + rows], marks[done : done + rows])
    return marks.view(np.bool_)
