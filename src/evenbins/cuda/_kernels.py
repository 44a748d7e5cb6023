"""Kernels by name, compiled when they are first used; CuPy keeps the compiled ones on disk."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np

from evenbins.cuda._sources import OPTIONS, kernel_text

__all__ = ["THREADS", "compiled", "launch_per_key", "word"]

THREADS = 256  # of a block of the kernels that take one key after the other

word = np.uint64


@cache
def compiled(text: str, name: str) -> Any:
    """Return a kernel: `name` of namespace evenbins::gpu, with its template arguments, in a file of cpp/cuda."""
    module = cupy.RawModule(code=kernel_text(text), options=OPTIONS, name_expressions=(name,))
    return module.get_function(name)


@cache
def _resident_blocks(device: int) -> int:
    """Return how many blocks of `THREADS` threads a device runs at once."""
    attributes = cupy.cuda.Device(device).attributes
    per_processor: int = attributes["MaxThreadsPerMultiProcessor"] // THREADS
    return per_processor * int(attributes["MultiProcessorCount"])


def launch_per_key(kernel: Any, n: int, arguments: tuple[Any, ...]) -> None:
    """Run a kernel whose threads stride over n keys, on the current stream."""
    if n == 0:
        return
    blocks = min(-(-n // THREADS), _resident_blocks(cupy.cuda.Device().id))
    kernel((blocks,), (THREADS,), arguments)
