"""What an exception out of `add_new_many` has for the caller: the answers of the keys that are in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["answers_in_errors"]


@contextmanager
def answers_in_errors() -> Iterator[list[npt.NDArray[np.bool_]]]:
    """Yield a list for the answers; an exception without `answers` of its own gets those in it, or none."""
    answers: list[npt.NDArray[np.bool_]] = []
    try:
        yield answers
    except BaseException as error:
        raised: Any = error
        if not hasattr(raised, "answers"):
            raised.answers = answers[0] if answers else np.zeros(0, dtype=np.bool_)
        raise
