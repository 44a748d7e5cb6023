"""The end of a task that works beside requests: renewals, checks, probes."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["end_task"]


async def end_task(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task until it has ended; its outcome is nobody's concern any more.

    Once is not enough: a cancellation that arrives together with a timeout or an answer can be lost in a
    library's code (`asyncio.wait_for` of Python 3.11, redis-py), and the task would go on for ever.
    """
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.05)
    if task is not None and not task.cancelled():
        task.exception()  # has been seen: asyncio need not report it
