"""Keys that end with a newline: nearly always lines of a file that were not stripped.

`f.add_many(open(path))` adds "apple\\n", and "apple" is not found afterwards. So a bulk call on an iterable
looks at its first keys, and warns if each of them ends with a newline. The keys are added as they are.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain, islice

__all__ = ["NewlineWarning", "watched"]

_FIRST = 8  # keys that are looked at
_LEAST = 2  # keys that there must be


class NewlineWarning(UserWarning):
    """The keys of a bulk call end with a newline, as the lines of an open file do."""


def watched(keys: Iterable[object]) -> Iterable[object]:
    """Return the same keys; reading them warns if the first ones all end with a newline."""
    if isinstance(keys, list | tuple):
        if keys and _ends_with_newline(keys[0]):
            _warn_if_all(keys[:_FIRST])
        return keys
    rest = iter(keys)
    return chain(_first_of(rest), rest)


def _first_of(keys: Iterator[object]) -> Iterator[object]:
    """Yield the first keys, one by one as they are asked for, as long as they end with a newline."""
    seen = []
    for key in islice(keys, _FIRST):
        yield key
        if not _ends_with_newline(key):
            return
        seen.append(key)
    _warn_if_all(seen)


def _ends_with_newline(key: object) -> bool:
    if isinstance(key, str):
        return key.endswith("\n")
    return isinstance(key, bytes) and key.endswith(b"\n")


def _warn_if_all(keys: Iterable[object]) -> None:
    found = list(keys)
    if len(found) < _LEAST or not all(map(_ends_with_newline, found)):
        return
    warnings.warn(
        f"the first {len(found)} keys all end with a newline, as lines of a file do: {found[0]!r:.40} and "
        f"{found[0].strip()!r:.40} are different keys. Pass (line.rstrip('\\n') for line in file), or "  # type: ignore[attr-defined]
        "text.splitlines()",
        NewlineWarning,
        stacklevel=_frames_of_ours(),
    )


def _frames_of_ours() -> int:
    """Return the `stacklevel` of the caller's frame: the first that is not of this package."""
    level, frame = 1, sys._getframe(1)  # this function's caller, which warns, is level 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("evenbins."):
        level, frame = level + 1, frame.f_back
    return level
