"""The exception of evenbins.cuda, and what fails before any work is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evenbins.errors import EvenbinsError

__all__ = ["DeviceError", "device_errors", "library"]


class DeviceError(EvenbinsError, RuntimeError):
    """The GPU cannot do what was asked: there is none, or it has too little memory, or it failed."""


def library() -> Any:
    """Return CuPy, and check that it finds a GPU."""
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            "evenbins.cuda needs CuPy, which is not installed: pip install 'evenbins[cuda]'", name=error.name
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CUDARuntimeError; without a driver
        raise DeviceError(f"no GPU can be used, since CUDA's driver does not answer: {error}") from None
    if count == 0:
        raise DeviceError("no GPU can be used, since CUDA's driver finds none")
    return cupy


@contextmanager
def device_errors(cupy: Any, action: str, nbytes: int) -> Iterator[None]:
    """Turn errors of CUDA into DeviceError; `nbytes` is what the action needs in device memory."""
    try:
        yield
    except MemoryError:  # CuPy's, and that of its sort, which is Python's own
        cupy.get_default_memory_pool().free_all_blocks()
        free, total = cupy.cuda.runtime.memGetInfo()
        raise DeviceError(
            f"{action} needs {nbytes:,} bytes of device memory, and {free:,} of {total:,} are free: "
            "free some, or pass fewer keys at a time"
        ) from None
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        raise DeviceError(
            f"{action} failed on the GPU, and the filter on the host is unchanged: {error}"
        ) from None
