"""A module that can take the place of `cupy` in tests: its arrays are NumPy's, its kernels the emulator's."""

from __future__ import annotations

import ctypes
import types
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["make"]


class Kernel:
    """A kernel of the emulator, called as CuPy's are."""

    max_dynamic_shared_size_bytes = 0

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self._library, self._name = library, name

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], *, shared_mem: int = 0
    ) -> None:
        assert shared_mem <= max(48 << 10, self.max_dynamic_shared_size_bytes) <= 227 << 10
        words = np.array([_word(each) for each in arguments], np.uint64)
        result = self._library.emulate(
            self._name.encode(), grid[0], grid[1] if len(grid) > 1 else 1, block[0],
            words.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(words.size),
        )  # fmt: skip
        assert result == 0, f"{self._name}: {'unknown kernel' if result == 1 else 'wrong number of arguments'}"


def _word(argument: Any) -> int:
    if isinstance(argument, np.ndarray):
        return int(argument.ctypes.data)
    assert isinstance(argument, np.generic), f"arguments of kernels must have a type: {argument!r}"
    return int(argument)


def make(library: Path) -> types.ModuleType:
    """Return the module, with the kernels of a compiled emulator."""
    loaded = ctypes.CDLL(str(library))
    cupy = types.ModuleType("cupy")

    class RawModule:
        def __init__(self, *, code: str, options: tuple[str, ...], name_expressions: tuple[str, ...]) -> None:
            assert code

        def get_function(self, name: str) -> Kernel:
            return Kernel(loaded, name)

    attributes = {"MaxThreadsPerMultiProcessor": 512, "MultiProcessorCount": 3}
    device = types.SimpleNamespace(id=0, attributes=attributes)
    cupy.__dict__.update(
        {name: getattr(np, name) for name in ("arange", "asarray", "cumsum", "empty", "zeros", "full", "minimum", "concatenate", "ndarray")},
        RawModule=RawModule,
        asnumpy=np.asarray,
        cuda=types.SimpleNamespace(Device=lambda _=0: device),
    )  # fmt: skip
    return cupy
