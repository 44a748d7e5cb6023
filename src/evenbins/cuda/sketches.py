"""Count-min sketches in the memory of a GPU."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from evenbins import _core
from evenbins.cuda._device import OnDevice
from evenbins.cuda.errors import DeviceError
from evenbins.sketches.countmin import CountMinSketch, SketchPlan, SketchStats, checked_weights

__all__ = ["DeviceSketch"]

_KIND, _INDEPENDENT, _TWO_HASH = 6, 1, 1
_LOW = np.uint64(2**32 - 1)
_STATE = 2  # words at the end of the payload: the total, and the number of additions


class DeviceSketch(OnDevice):
    """A count-min sketch in device memory; made by `to_device`. Keys are those of `DeviceFilter`."""

    _text = "countmin.cuh"
    _plan: SketchPlan

    @staticmethod
    def _payload_of(on_host: CountMinSketch) -> npt.NDArray[np.uint64]:
        return np.frombuffer(on_host.to_bytes()[-on_host.nbytes :], np.uint64)

    @property
    def plan(self) -> SketchPlan:
        """The plan of the sketch, as on the host."""
        return self._plan

    def _sizes(self) -> tuple[np.generic, ...]:
        core = self._plan.core
        rows, two_hash = core.depth * core.copies, core.construction == _TWO_HASH
        return np.uint64(core.width), np.uint64(core.depth), np.uint64(rows), np.uint32(two_hash)

    def count_many(self, keys: object, *, digests: bool = False) -> Any:
        """Estimate the counts of many keys, as uint64."""

        def work(prepared: Any, out: Any) -> None:
            self._per_key(f"countmin_count<{prepared.type}>", prepared, out, words=self._sizes())

        return self._answer(keys, digests, "counting keys", work, ordered=True, dtype=np.uint64)

    def add_many(self, keys: object, weights: object = None, *, digests: bool = False) -> None:
        """Add keys, each once for each time that it comes; the bytes are those of the sketch on the host.

        `weights` are those of `CountMinSketch.add_many`, or an array of integers in device memory. If the
        total would overflow, or a weight is invalid, nothing is added.
        """
        if self._plan.conservative:
            raise DeviceError(
                "a conservative sketch is filled on the CPU, since its counters depend on the order of the "
                "keys: add them there, and call to_device again"
            )
        from evenbins.cuda import _keys

        given, each = self._checked_weights(weights, keys)
        in_pieces, before, done = not _keys.on_device(keys), None, 0

        def work(prepared: Any, out: Any) -> None:
            nonlocal before, done
            part = np.uint64(0)  # null: 1 for each
            total = updates = prepared.n
            if given is not None:
                part = given[done : done + prepared.n]
                if part.size < prepared.n or not (in_pieces or part.size == given.size):
                    raise _not_as_many(given.size, prepared.n)
                halves = [int(half.sum(dtype=np.uint64)) for half in (part >> np.uint64(32), part & _LOW)]
                total, updates = (halves[0] << 32) + halves[1], int((part != 0).sum())
            elif each != 1:
                part = self._cupy.full(prepared.n, each, np.uint64)
                total, updates = each * prepared.n, prepared.n if each else 0
            if int(self._words[-_STATE]) + total >= 1 << 64:
                raise OverflowError(
                    "the total of the weights would exceed 2**64 - 1, where counters end: nothing was added"
                )
            if in_pieces and before is None:
                before = self._words.copy()
            self._per_key(f"countmin_add<{prepared.type}>", prepared, part, words=self._sizes())
            self._words[-_STATE] += np.uint64(total)
            self._words[1 - _STATE] += np.uint64(updates)
            done += prepared.n

        try:
            self._answer(keys, digests, "adding keys", work, ordered=True)
            if given is not None and done < given.size:
                raise _not_as_many(given.size, done)
        except (OverflowError, ValueError):
            if before is not None:
                with self._call(self._cupy.cuda.get_current_stream(), "taking keys out", 0):
                    self._words[...] = before
            raise

    def _checked_weights(self, weights: object, keys: object) -> tuple[Any, int]:
        """Return weights in device memory, or None and one number for all."""
        from evenbins.cuda import _keys

        if not _keys.on_device(weights):
            host, each = checked_weights(weights, None if _keys.on_device(keys) else keys)
            return (None, each) if host is None else (self._cupy.asarray(host), 1)
        found = _keys.as_cupy(weights, "weights", self._device)
        if found.dtype.kind not in "iu":
            raise TypeError(f"weights must be integers from 0 to 2**64 - 1, not an array of {found.dtype}")
        if found.dtype.kind == "i" and bool((found < 0).any()):
            raise ValueError("weights must not be negative: a count-min sketch cannot take back")
        return self._cupy.ascontiguousarray(found).ravel().astype(np.uint64), 1

    def __ior__(self, other: DeviceSketch) -> Self:
        """Add the counters of a sketch of the same plan on the same GPU, as on the host."""
        if not isinstance(other, DeviceSketch):
            return NotImplemented
        if other._plan != self._plan or other._device != self._device:
            raise ValueError("only sketches of the same plan, seed and GPU can be merged")
        stream = self._cupy.cuda.get_current_stream()
        with self._call(stream, "merging sketches", 0):
            stream.wait_event(other._last)
            if int(self._words[-_STATE]) + int(other._words[-_STATE]) >= 1 << 64:
                raise OverflowError("the total of the weights would exceed 2**64 - 1; nothing was changed")
            self._words += other._words
        return self

    __iadd__ = __ior__

    def stats(self) -> SketchStats:
        """Measure this very sketch, as `stats` of the host's sketch does: on a copy there."""
        return self.to_host().stats()

    def to_host(self) -> CountMinSketch:
        """Return the sketch on the host: the one that the CPU would have, byte for byte."""
        payload = self._payload()
        header = _core.file_header(_KIND, _INDEPENDENT, self._plan.seed, 1, list(self._plan.core), payload)
        data: Any = np.concatenate([np.frombuffer(header, np.uint8), payload.view(np.uint8)])
        return CountMinSketch.from_bytes(data)


def _not_as_many(weights: int, keys: int) -> ValueError:
    return ValueError(f"weights must be as many as the keys; got {weights} weights for {keys} keys")
