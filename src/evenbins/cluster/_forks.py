"""State that a child process must not share with its parent: reset in the child, right after `fork`.

Connections are file descriptors, from which both processes would read; a lock may be held by a thread that
the child does not have; the threads that probe and renew are the parent's.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["reset_in_children"]


class _Resettable(Protocol):
    def _reset_after_fork(self) -> None: ...


_objects: weakref.WeakSet[_Resettable] = weakref.WeakSet()


def reset_in_children(this: _Resettable) -> None:
    """Have `this._reset_after_fork()` called in every child that this process forks."""
    _objects.add(this)


def _reset() -> None:
    for each in list(_objects):
        each._reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)
