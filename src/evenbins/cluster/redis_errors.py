"""What can be wrong with a filter on a server. Lost connections and timeouts stay the client library's own.

RedisFilterError
├─ FilterMissing     there is none, or a part of it is gone: deleted, evicted, an empty server
├─ FilterDamaged     something else lies under one of its keys
└─ PlanMismatch      there is one, but not the one that was asked for
"""

from __future__ import annotations

__all__ = ["FilterDamaged", "FilterMissing", "PlanMismatch", "RedisFilterError"]


class RedisFilterError(Exception):
    """A filter on a server cannot answer; the message says why, and what to do."""


class FilterMissing(RedisFilterError):  # noqa: N818
    """The filter, or a part of it, is not there: it was deleted or evicted, or the server lost its data."""


class FilterDamaged(RedisFilterError):  # noqa: N818
    """A key of the filter holds something else: another type, another filter's part, too few bytes."""


class PlanMismatch(RedisFilterError):  # noqa: N818
    """The filter has another plan than the one asked for, or its servers came in another order."""
