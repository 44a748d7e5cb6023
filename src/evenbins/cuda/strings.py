"""Strings in device memory."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Strings"]


class Strings(NamedTuple):
    """Strings in device memory, as Arrow and cuDF lay them out: string i is data[offsets[i]:offsets[i + 1]].

    `data` holds bytes (uint8), `offsets` int32 or int64, one more than there are strings; each is anything
    with `__cuda_array_interface__` or DLPack.
    """

    data: Any
    offsets: Any
