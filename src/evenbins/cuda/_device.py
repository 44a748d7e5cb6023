"""What structures in device memory share: the payload, the order of calls, keys in and answers out.

The payload of the host's structure lies in device memory, byte for byte; kernels change it as the core would.
A call runs on the caller's current stream, after all earlier calls of the same structure on any stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins.cuda.errors import DeviceError, device_errors, library

__all__ = ["OnDevice"]

_TOO_MANY_BITS = 1 << 40  # positions and key numbers share a word (cpp/cuda/standard.cuh)

Work = Callable[[Any, Any], None]  # of keys and where their answers go


class OnDevice:
    """The payload of a structure in the memory of a GPU."""

    _text: str  # of cpp/cuda

    def __init__(self, plan: Any, on_host: Any) -> None:
        """Copy the payload of `on_host`, or make one of zeros if it is None."""
        cupy = library()
        from evenbins.cuda import _kernels

        self._cupy, self._kernels = cupy, _kernels
        self._plan = plan
        self._device = cupy.cuda.Device().id
        if 8 * plan.nbytes >= _TOO_MANY_BITS:
            raise DeviceError(
                f"a structure on a GPU has fewer than 2**40 bits, and this one has {8 * plan.nbytes:,}"
            )
        with device_errors(cupy, "copying the filter to the GPU", plan.nbytes):
            if on_host is None:
                self._words = cupy.zeros(plan.nbytes // 8, np.uint64)
            else:
                self._words = cupy.empty(plan.nbytes // 8, np.uint64)
                self._words.set(self._payload_of(on_host))
            self._hash = cupy.empty(4, np.uint64)
            kernel = _kernels.compiled("keys.cuh", "make_key_hash")
            kernel((1,), (1,), (np.uint64(plan.seed), self._hash))
            self._last = cupy.cuda.Event(disable_timing=True)
            self._last.record()

    @staticmethod
    def _payload_of(on_host: Any) -> npt.NDArray[np.uint64]:
        return np.frombuffer(memoryview(on_host), np.uint64)

    @property
    def nbytes(self) -> int:
        """The device memory of the structure, in bytes."""
        return int(self._words.nbytes)

    def _answer(
        self,
        keys: object,
        digests: bool,
        action: str,
        work: Work,
        *,
        ordered: bool,
        answers: bool = True,
        dtype: type[np.generic] = np.uint8,
    ) -> Any:
        """Run `work` on the keys; return its answers, one of `dtype` for each key (uint8: as bool)."""
        from evenbins.cuda import _keys, _streams

        cupy = self._cupy
        shown = np.bool_ if dtype is np.uint8 else dtype
        if not _keys.on_device(keys):
            with self._call(cupy.cuda.get_current_stream(), action, self._scratch(_streams.PIECE)):
                held = _streams.host_keys(keys, self._plan.seed, digests=digests)
                if ordered:
                    found = _streams.in_order(held, work, dtype)
                else:
                    self._words.device.synchronize()  # the streams below know nothing of earlier calls
                    found = _streams.overlapped(held, work, answers=answers)
            if not answers:
                return None
            return found.view(shown) if held.shape is None else found.view(shown).reshape(held.shape)
        stream = _keys.stream_of(keys)
        with stream:
            prepared = _keys.device_keys(keys, digests=digests, device=self._device)
            with self._call(stream, action, prepared.n + self._scratch(prepared.n)):
                out = cupy.empty(prepared.n if answers else 0, dtype)
                work(prepared, out)
            return _keys.answers_for(keys, out.view(shown).reshape(prepared.shape)) if answers else None

    @contextmanager
    def _call(self, stream: Any, action: str, nbytes: int) -> Iterator[None]:
        """Run a call on a stream, after earlier calls of this structure on any."""
        cupy = self._cupy
        if cupy.cuda.Device().id != self._device:
            raise DeviceError(
                f"the filter is on GPU {self._device}, and the current one is {cupy.cuda.Device().id}: "
                f"use `with cupy.cuda.Device({self._device})`"
            )
        with device_errors(cupy, action, nbytes):
            stream.wait_event(self._last)
            try:
                yield
            finally:
                self._last.record(stream)

    def _scratch(self, n: int) -> int:
        """Return the device memory that a call with n keys needs, in bytes, for messages."""
        return 16 * n

    def _per_key(self, name: str, keys: Any, *more: Any, words: tuple[Any, ...] = ()) -> None:
        """Run a kernel that takes the payload, `words`, the keys and `more`."""
        kernel = self._kernels.compiled(self._text, name)
        arguments = (self._words, *words, keys.data, keys.more, self._hash, np.uint64(keys.n), *more)
        self._kernels.launch_per_key(kernel, keys.n, arguments)

    def _payload(self) -> npt.NDArray[np.uint64]:
        """Return a copy of the payload on the host."""
        with self._call(self._cupy.cuda.get_current_stream(), "copying the filter to the host", 0):
            found: npt.NDArray[np.uint64] = self._cupy.asnumpy(self._words)
        return found
