"""A prompt as a chain of blocks, each numbered by all that precedes it.

    text ──▶ block 0 │ block 1 │ block 2 (shorter)
               h0 = digest(block 0, seed)   h1 = digest(block 1, h0)   h2 = digest(block 2, h1)

Two prompts share their first k numbers if, and up to collisions of 64 bits only if, they share their first k
blocks. So one number stands for a whole prefix, and an index of prefixes needs no tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _core

__all__ = ["blocks_of"]

_TOKEN_BYTES = 8
_RULE = "text, bytes, or a list of token ids"
_REMEDY = "Pass the prompt, or the integers that a tokenizer returns"


def blocks_of(
    text_or_tokens: str | bytes | bytearray | memoryview | Sequence[int] | npt.NDArray[np.integer],
    size: int,
    *,
    seed: int = 0,
) -> list[int]:
    """Return the numbers of a prompt's blocks, for `PrefixRouter.route`; O(length).

    Parameters
    ----------
    text_or_tokens
        A str (its UTF-8 bytes count), bytes, or token ids: a sequence or an array of integers.
    size
        Bytes of text, or tokens, in one block. The last block may be shorter; it is numbered too, so that
        equal prompts that are shorter than one block meet.
    seed
        0 to 2**64 - 1. With a secret one nobody can make prompts whose numbers collide.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range.

    Examples
    --------
    >>> first = blocks_of("You are a helpful assistant. Hello!", 16)
    >>> second = blocks_of("You are a helpful assistant. Good morning!", 16)
    >>> len(first), len(second), first[0] == second[0], first[1] == second[1]
    (3, 3, True, False)
    >>> blocks_of([17, 4, 99], 2)[:1] == blocks_of([17, 4], 2)
    True
    """
    step = arguments.integer("size", size, 1, 2**40, "Pass the size of the replicas' cache blocks")
    last = arguments.seed(seed)
    data: memoryview
    if isinstance(text_or_tokens, str):
        data = memoryview(_utf8(text_or_tokens))
    elif isinstance(text_or_tokens, bytes | bytearray | memoryview):
        data = memoryview(text_or_tokens)
        data = data.cast("B") if data.c_contiguous else memoryview(data.tobytes())
    else:
        data = memoryview(_token_bytes(text_or_tokens))
        step *= _TOKEN_BYTES
    blocks = []
    for start in range(0, len(data), step):
        last = _core.digest(data[start : start + step], last)
        blocks.append(last)
    return blocks


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        rule = "text without lone surrogates"
        raise arguments.error("text_or_tokens", rule, text[error.start], "Encode it yourself") from None


def _token_bytes(tokens: object) -> bytes:
    try:
        array = np.asarray(tokens)
    except (ValueError, OverflowError):
        raise arguments.type_error("text_or_tokens", _RULE, tokens, _REMEDY) from None
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise arguments.type_error("text_or_tokens", _RULE, tokens, _REMEDY)
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise arguments.error("text_or_tokens", "token ids below 2**63", int(array.max()), _REMEDY)
    return array.astype("<i8").tobytes()
