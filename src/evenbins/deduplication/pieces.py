"""A batch in pieces: answers for all its rows, or an exception that has those of the rows which are in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["Mask", "Words", "answers_of"]

Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


def answers_of(digests: Words, rows: int, add: Callable[[Words, Mask], int]) -> Mask:
    """Return the answers for all digests, added by at most `rows` at a time.

    `add` gets digests and the place for their answers, adds as many as it can, and returns how many.
    An exception that it raises gets the answers so far as its attribute `answers`.
    """
    answers = np.zeros(len(digests), dtype=np.bool_)
    done = 0
    try:
        while done < len(digests):
            done += add(digests[done : done + rows], answers[done : done + rows])
    except BaseException as error:
        error.answers = answers[:done]  # type: ignore[attr-defined]
        raise
    return answers
