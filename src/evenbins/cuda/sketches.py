"""Count-min sketches in the memory of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins import _core
from evenbins.cuda._device import OnDevice
from evenbins.cuda.errors import DeviceError
from evenbins.sketches.countmin import CountMinSketch, SketchPlan

__all__ = ["DeviceSketch"]

_KIND, _INDEPENDENT, _TWO_HASH = 6, 1, 1
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

    def add_many(self, keys: object, *, digests: bool = False) -> None:
        """Add keys, each once for each time that it comes; the bytes are those of the sketch on the host."""
        if self._plan.conservative:
            raise DeviceError(
                "a conservative sketch is filled on the CPU, since its counters depend on the order of the "
                "keys: add them there, and call to_device again"
            )

        def work(prepared: Any, out: Any) -> None:
            none = np.uint64(0)  # no weights
            total = int(self._words[-_STATE])
            if total + prepared.n >= 1 << 64:
                raise OverflowError(
                    "the total of a sketch must stay below 2**64: merge no more into this one"
                )
            self._per_key(f"countmin_add<{prepared.type}>", prepared, none, words=self._sizes())
            self._words[-_STATE:] += np.uint64(prepared.n)

        self._answer(keys, digests, "adding keys", work, ordered=True)

    def to_host(self) -> CountMinSketch:
        """Return the sketch on the host: the one that the CPU would have, byte for byte."""
        payload = self._payload()
        header = _core.file_header(_KIND, _INDEPENDENT, self._plan.seed, 1, list(self._plan.core), payload)
        data: Any = np.concatenate([np.frombuffer(header, np.uint8), payload.view(np.uint8)])
        return CountMinSketch.from_bytes(data)
