"""From the argument of a bulk call to keys in device memory, and back to the caller's library.

CuPy, PyTorch, JAX    __dlpack__ or __cuda_array_interface__: read in place, on the caller's stream
Strings               Arrow's offsets and bytes on the device, hashed there
anything else         keys on the host, as the filters of the CPU take them: streamed (_streams.py)
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import cupy
import numpy as np

from evenbins.cuda.errors import DeviceError
from evenbins.cuda.strings import Strings

__all__ = ["DeviceKeys", "answers_for", "as_cupy", "device_keys", "on_device", "stream_of"]

_CUDA = 2  # the number of GPUs in DLPack
_NONE = np.uint64(0)


class DeviceKeys(NamedTuple):
    """Keys in device memory: the type of cpp/cuda/keys.cuh that reads them, and its arguments."""

    type: str
    data: Any
    more: np.uint64 | Any  # offsets of strings
    n: int
    shape: tuple[int, ...]

    def piece(self, first: int, last: int) -> DeviceKeys:
        """Return keys first … last−1."""
        if self.type.startswith("Strings"):
            offsets: Any = self.more
            return self._replace(more=offsets[first : last + 1], n=last - first)
        return self._replace(data=self.data[first:last], n=last - first)


def on_device(keys: object) -> bool:
    """Return whether an array lies in a GPU's memory."""
    if isinstance(keys, Strings) or hasattr(keys, "__cuda_array_interface__"):
        return True
    return hasattr(keys, "__dlpack_device__") and keys.__dlpack_device__()[0] == _CUDA


def as_cupy(array: Any, name: str, device: int) -> Any:
    """Return an array in device memory as one of CuPy's; `name` is what a message calls it."""
    if isinstance(array, cupy.ndarray):
        found = array
    elif hasattr(array, "__dlpack_device__"):
        where = array.__dlpack_device__()
        if where[0] != _CUDA:
            raise TypeError(f"{name} must be in device memory, not a {type(array).__name__} on the host")
        if where[1] != device:
            raise _elsewhere(name, where[1], device)
        found = cupy.from_dlpack(array)
    elif hasattr(array, "__cuda_array_interface__"):
        found = cupy.asarray(array)
    else:
        raise TypeError(f"{name} must be an array in device memory, not {type(array).__name__}")
    if found.device.id != device:
        raise _elsewhere(name, found.device.id, device)
    return found


def _elsewhere(name: str, where: int, device: int) -> DeviceError:
    return DeviceError(f"{name} are on GPU {where} and the filter on GPU {device}: copy them there")


def device_keys(keys: object, *, digests: bool, device: int) -> DeviceKeys:
    """Return keys that lie in device memory as the kernels read them."""
    if isinstance(keys, Strings):
        data, offsets = as_cupy(keys.data, "strings", device), as_cupy(keys.offsets, "offsets", device)
        if offsets.dtype.name not in ("int32", "int64") or data.dtype.itemsize != 1 or offsets.size == 0:
            raise TypeError(
                f"Strings need bytes and at least one offset of int32 or int64, not {data.dtype} and "
                f"{offsets.size} of {offsets.dtype}"
            )
        offsets = cupy.ascontiguousarray(offsets).ravel()
        n = offsets.size - 1
        return DeviceKeys(
            f"Strings<{offsets.dtype}_t>", cupy.ascontiguousarray(data).ravel(), offsets, n, (n,)
        )
    found = as_cupy(keys, "keys", device)
    kind, dtype, wrong = "u" if found.dtype.kind == "b" else found.dtype.kind, found.dtype, ""
    if found.ndim == 0:
        wrong = "keys must have at least one dimension: put one key into an array"
    elif kind not in "iu":
        wrong = f"keys on a GPU must be integers, digests or cuda.Strings, not an array of {dtype}"
    elif digests and dtype != np.uint64:
        wrong = f"digests must be uint64, not {dtype}: leave out digests=True if these are keys"
    if wrong:
        raise TypeError(wrong)
    name = f"{'u' if kind == 'u' else ''}int{8 * found.dtype.itemsize}_t"
    data = cupy.ascontiguousarray(found).ravel()
    return DeviceKeys("Digests" if digests else f"Integers<{name}>", data, _NONE, data.size, found.shape)


def _is_torch(keys: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(keys, torch.Tensor)


def stream_of(keys: object) -> Any:
    """Return the stream that the caller works on: PyTorch's for its tensors, otherwise CuPy's."""
    first = keys.data if isinstance(keys, Strings) else keys
    if not _is_torch(first):
        return cupy.cuda.get_current_stream()
    stream = sys.modules["torch"].cuda.current_stream()
    if hasattr(stream, "__cuda_stream__") and hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(stream)
    return cupy.cuda.ExternalStream(stream.cuda_stream)  # of older versions of either


def answers_for(keys: object, answers: Any) -> Any:
    """Return answers in the library that the keys came in."""
    first = keys.data if isinstance(keys, Strings) else keys
    if _is_torch(first):
        return sys.modules["torch"].from_dlpack(answers)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(first, jax.Array):
        return jax.dlpack.from_dlpack(answers)
    return answers
