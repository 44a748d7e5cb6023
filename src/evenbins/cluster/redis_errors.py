"""What can be wrong with a filter on a server. Lost connections and timeouts stay the client library's own.

RedisFilterError
├─ FilterMissingError     it, or a part of it, is missing: deleted, evicted, an empty server
├─ FilterDamagedError     something else lies under one of its keys
└─ PlanMismatchError      there is one, but not the one that was asked for
"""

from __future__ import annotations

from typing import Final

from evenbins.errors import EvenbinsError

__all__ = ["FilterDamagedError", "FilterMissingError", "PlanMismatchError", "RedisFilterError"]

WAYS_OUT: Final = {
    "ReadOnlyError": "It is a replica: pass a client of its primary",
    "OutOfMemoryError": "Its memory is full: raise maxmemory or delete something, then repeat the call",
    "NoPermissionError": "Its user needs more rights (ACL SETUSER)",
    "NoScriptError": "It drops scripts at once: find out which client calls SCRIPT FLUSH",
    "BusyLoadingError": "It is reading its data: repeat the call later",
    "ClusterDownError": "Parts of the cluster are gone: repeat the call when it is whole again",
    "MasterDownError": "It is a replica that lost its primary: pass a client of the primary",
    "WRONGTYPE": "Something else lies under the key: delete that, or choose another name",
}
"""What to do about an error reply, by the name of redis-py's class, or the reply's first word."""


def way_out(error: BaseException) -> str:
    """Return what to do about an error reply of a server.

    >>> way_out(ValueError("WRONGTYPE Operation against a key holding the wrong kind of value"))
    'Something else lies under the key: delete that, or choose another name'
    """
    first = str(error).partition(" ")[0]
    return WAYS_OUT.get(type(error).__name__) or WAYS_OUT.get(first) or "Its log may say more"


class RedisFilterError(EvenbinsError):
    """A filter on a server cannot answer; the message says why, and what to do."""


class FilterMissingError(RedisFilterError):
    """The filter, or a part of it, is not there: it was deleted or evicted, or the server lost its data."""


class FilterDamagedError(RedisFilterError):
    """A key of the filter holds something else: another type, another filter's part, too few bytes."""


class PlanMismatchError(RedisFilterError):
    """The filter has another plan than the one asked for, or its servers came in another order."""
