"""Modules in the place of `cupy` and `cupyx` for tests: arrays are NumPy's, kernels the emulator's."""

from __future__ import annotations

import ctypes
import types
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["make"]


class Array(np.ndarray[Any, np.dtype[Any]]):
    """An array in the memory of the GPU that is emulated."""

    device = types.SimpleNamespace(id=0, synchronize=lambda: None)

    def set(self, source: Any, stream: object = None) -> None:
        self[...] = source

    def get(self, *, out: Any, stream: object = None, blocking: bool = True) -> None:
        out[...] = self

    def __dlpack_device__(self) -> tuple[int, int]:  # type: ignore[override]
        return 2, self.device.id


class Kernel:
    """A kernel of the emulator, called as CuPy's are."""

    max_dynamic_shared_size_bytes = 0

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self._library, self._name = library, name

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: tuple[Any, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        assert shared_mem <= max(48 << 10, self.max_dynamic_shared_size_bytes) <= 227 << 10
        words = np.array([_word(each) for each in arguments], np.uint64)
        result = self._library.emulate(
            self._name.encode(), grid[0], grid[1] if len(grid) > 1 else 1, block[0],
            words.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(words.size),
        )  # fmt: skip
        assert result == 0, (
            f"{self._name}: {'unknown kernel' if result == 1 else 'wrong number of arguments'}"
        )


def _word(argument: Any) -> int:
    if isinstance(argument, np.ndarray):
        assert isinstance(argument, Array), "a kernel gets an array of the host"
        return int(argument.ctypes.data)
    assert isinstance(argument, np.generic), f"arguments of kernels must have a type: {argument!r}"
    return int(argument)


class Stream:
    """A stream; everything that it is given has been done already."""

    def __init__(self, non_blocking: bool = False) -> None: ...
    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None: ...
    def wait_event(self, event: object) -> None: ...
    def synchronize(self) -> None: ...


class Event:
    """An event; it has happened."""

    def __init__(self, disable_timing: bool = False) -> None: ...
    def record(self, stream: object = None) -> None: ...


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""


def _made(function: Any) -> Any:
    return lambda *args, **options: function(*args, **options).view(Array)


def make(library: Path) -> tuple[types.ModuleType, types.ModuleType]:
    """Return the modules `cupy` and `cupyx`, with the kernels of a compiled emulator."""
    loaded = ctypes.CDLL(str(library))
    cupy, cupyx = types.ModuleType("cupy"), types.ModuleType("cupyx")

    class RawModule:
        def __init__(self, *, code: str, options: tuple[str, ...], name_expressions: tuple[str, ...]) -> None:
            assert code

        def get_function(self, name: str) -> Kernel:
            return Kernel(loaded, name)

    attributes = {"MaxThreadsPerMultiProcessor": 512, "MultiProcessorCount": 2}
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1,
        memGetInfo=lambda: (1 << 30, 1 << 31),
        CUDARuntimeError=CUDARuntimeError,
        pointerGetAttributes=lambda _: types.SimpleNamespace(type=0),
    )
    cuda = types.SimpleNamespace(
        Device=lambda _=0: types.SimpleNamespace(id=0, attributes=attributes),
        Event=Event,
        Stream=Stream,
        get_current_stream=Stream,
        runtime=runtime,
        driver=types.SimpleNamespace(CUDADriverError=CUDARuntimeError),
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    )
    names = (
        "arange", "array", "ascontiguousarray", "asarray", "concatenate", "cumsum", "empty", "flatnonzero",
        "full", "zeros",
    )  # fmt: skip
    cupy.__dict__.update(
        {name: _made(getattr(np, name)) for name in names},
        RawModule=RawModule,
        argsort=lambda array: np.argsort(array, kind="stable").view(Array),
        asnumpy=lambda array: np.array(array),
        cuda=cuda,
        from_dlpack=lambda array: array,
        get_default_memory_pool=lambda: types.SimpleNamespace(
            free_bytes=lambda: 0, free_all_blocks=lambda: None
        ),
        ndarray=Array,
        unique=np.unique,
    )
    cupyx.__dict__["empty_pinned"] = np.empty
    return cupy, cupyx
