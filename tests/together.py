"""Threads that begin at once: what the tests of concurrency share."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["together"]


def together(*works: Callable[[], object], seconds: float = 60) -> None:
    """Run all at once; the first error of any of them is raised here, and a thread that hangs is one."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        try:
            barrier.wait()
            work()
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(seconds)
        assert errors or not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
