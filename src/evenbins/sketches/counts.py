"""Counts by `s[key]`, for structures that estimate how often a key was seen.

A sketch keeps no keys, so it cannot be iterated over. Python would try `s[0]`, `s[1]`, … without end for
`for key in s` and for `key in s` if a class with `__getitem__` did not say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from evenbins._bulk import Key
from evenbins.errors import MissingName

__all__ = ["CountAccess", "KeylessCounts"]

_NO_KEYS = "a count-min sketch keeps no keys: use HeavyHitters for the keys that were seen most often"


class CountAccess:
    """`s[key]` is `s.count(key)`, as in a `collections.Counter`: 0 for a key that was never seen."""

    __slots__ = ()
    __iter__: ClassVar[None] = None
    __contains__: ClassVar[None] = None

    if TYPE_CHECKING:

        def count(self, key: Key) -> int:
            """Estimate how often a key was seen."""

    def __getitem__(self, key: Key) -> int:
        return self.count(key)


class KeylessCounts(CountAccess):
    """The same where keys are not kept: other names of a Counter are errors that say what to use."""

    __slots__ = ()

    most_common = MissingName(_NO_KEYS)
    top = MissingName(_NO_KEYS)
    elements = MissingName(_NO_KEYS)
    keys = MissingName(_NO_KEYS)
    items = MissingName(_NO_KEYS)
    values = MissingName(_NO_KEYS)
