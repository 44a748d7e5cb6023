"""What pytest needs under a sanitizer: a leak check while everything that lives is still reachable.

At the end of a Python process the interpreter leaves much behind on purpose, and LeakSanitizer would have to
be told to look away, with suppressions that match any stack in which Python takes part: all of them. So the
check at exit is off, and this plugin asks for one when the last test is over, before the interpreter comes
down: what Python still knows is reachable then, and what is reported is lost. tools/sanitize.py counts the
reports in which the compiled module allocated.
"""

from __future__ import annotations

import ctypes
import gc
import time

import pytest
from hypothesis import HealthCheck, settings

# Sanitizers slow everything down: an example that takes long is no failure.
settings.register_profile(
    "sanitized", deadline=None, derandomize=True, print_blob=True, suppress_health_check=list(HealthCheck)
)


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Take the patient profile, after conftest.py has chosen its own."""
    settings.load_profile("sanitized")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Check for leaks, if this process runs under LeakSanitizer."""
    gc.unfreeze()  # tests/conftest.py freezes: what tests were parametrised with would never go
    try:
        check = ctypes.CDLL(None).__lsan_do_recoverable_leak_check
    except AttributeError:
        return
    for _ in range(3):
        gc.collect()
        time.sleep(0.05)  # threads that end
    check()
