"""Signals at a line of one's choice: what a handler does, it does before the n-th line of a call.

    lines_in(call)                    how many lines of Python the call runs, in the modules that matter
    before_line(n, call, act)         runs the call, and act() once, before its n-th line

A trace function acts as a signal's handler would: in the thread of the call, between two of its lines; what
it raises comes out of that line. So every line of a call can be tried, and a failure comes again.
"""

from __future__ import annotations

import gc
import linecache
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
MODULES = ("evenbins/cluster", "site-packages/redis/", "site-packages/pymemcache/")


class InterruptError(Exception):
    """What a handler raises."""


def _has_no_handler(frame: FrameType) -> bool:
    """Return whether the line is one at which Python runs no handler: that of a `with` or a `try`.

    The end of a `with` has an event of its line too, before `__exit__`; and a `try` that begins its body has
    one before the body is protected. What was raised there would leave a lock of redis-py's taken, and
    whoever drops the client in another thread would wait for ever.
    """
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return line.lstrip().startswith(("with ", "async with ", "try:"))


def _run(call: Callable[[], T], at: Callable[[int], None]) -> T:
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if event == "call":
            return trace if any(each in frame.f_code.co_filename for each in MODULES) else None
        if event == "line" and not _has_no_handler(frame):
            count += 1
            at(count)
        return trace

    before, collecting = sys.gettrace(), gc.isenabled()
    gc.disable()  # the finalizers of what other tests left behind have lines too
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()


def lines_in(call: Callable[[], object]) -> int:
    """Count the lines that a call runs."""
    most = 0

    def at(number: int) -> None:
        nonlocal most
        most = number

    _run(call, at)
    return most


def before_line(number: int, call: Callable[[], T], act: Callable[[], object]) -> T:
    """Run a call; before its line of this number, `act`, once."""
    acted = False

    def at(count: int) -> None:
        nonlocal acted
        if count == number and not acted:
            acted = True
            tracing = sys.gettrace()
            sys.settrace(None)  # Python traces nothing within a trace function; here nothing else either
            try:
                act()
            finally:
                sys.settrace(tracing)

    return _run(call, at)


@contextmanager
def no_hang(seconds: int = 60) -> Iterator[None]:
    """Fail instead of waiting for ever: for locks that the same thread holds already."""

    def expired(*_: object) -> None:
        raise AssertionError(f"nothing happened for {seconds} s: a deadlock")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def in_child(work: Callable[[], object], meanwhile: Callable[[], object] = lambda: None) -> None:
    """Run `work` in a forked child, and `meanwhile` here; fail if either does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    try:
        meanwhile()
    finally:
        _, status = os.waitpid(child, 0)
    assert status == 0, "the child failed"
