"""Keys on the host, streamed through the GPU: while one piece is worked on, the next is on its way.

    host ──copy──▶ pinned buffer ──DMA──▶ device buffer ──kernel──▶ answers ──DMA──▶ pinned ──copy──▶ host
           (only if the keys lie in ordinary memory: pinned arrays need no copy)

Pieces take turns on a few streams, each with buffers of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cupy
import cupyx
import numpy as np
import numpy.typing as npt

from evenbins import _bulk
from evenbins.cuda._keys import DeviceKeys

__all__ = ["PIECE", "host_pieces", "in_order", "overlapped"]

PIECE = 1 << 22  # keys
_STREAMS = 2
_PINNED = 1  # cudaMemoryTypeHost

Work = Callable[[DeviceKeys, Any], None]  # of keys and where their answers go


def host_pieces(
    keys: object, seed: int, *, digests: bool
) -> tuple[Iterator[npt.NDArray[np.generic]], bool, tuple[int, ...] | None]:
    """Return keys of the host in pieces; whether they are digests; and the shape that answers should have.

    Native integers go to the GPU as they are; everything else is hashed on the host.
    """
    if isinstance(keys, np.ndarray) and not isinstance(keys, np.ma.MaskedArray) and keys.ndim > 0:
        plain = keys.dtype.kind in "iub" and keys.dtype.isnative
        if plain and (not digests or keys.dtype == np.uint64):
            flat = np.ascontiguousarray(keys).reshape(-1)
            pieces = (flat[i : i + PIECE] for i in range(0, flat.size, PIECE))
            return pieces, digests, keys.shape
    source, shape = _bulk.key_source(keys, digests=digests)
    return _bulk.digest_chunks(source, seed, chunk=PIECE, threads=_bulk.available_threads()), True, shape


def _is_pinned(array: npt.NDArray[np.generic]) -> bool:
    return array.size > 0 and cupy.cuda.runtime.pointerGetAttributes(array.ctypes.data).type == _PINNED


class _Slot:
    """A stream with its buffers, and the answers that it still owes."""

    def __init__(self) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.device = cupy.empty(8 * PIECE, np.uint8)
        self.answers = cupy.empty(PIECE, np.uint8)
        self.staged: Any = None  # made when keys that are not pinned come
        self.pinned_answers = cupyx.empty_pinned(PIECE, np.uint8)
        self.owed: npt.NDArray[np.uint8] | None = None

    def finish(self) -> npt.NDArray[np.uint8] | None:
        """Wait for the stream, and return a copy of the answers, if there are any."""
        self.stream.synchronize()
        owed, self.owed = self.owed, None
        return None if owed is None else owed.copy()

    def send(self, piece: npt.NDArray[np.generic], digests: bool) -> DeviceKeys:
        """Start the copy of a piece, and return it as keys; the piece may be changed from now on if it is staged."""
        dtype = np.dtype(np.uint8) if piece.dtype.kind == "b" else piece.dtype
        source = piece.view(dtype)
        if not _is_pinned(piece):
            if self.staged is None:
                self.staged = cupyx.empty_pinned(8 * PIECE, np.uint8)
            staged = self.staged[: piece.nbytes].view(dtype)
            staged[:] = source
            source = staged
        data = self.device[: piece.nbytes].view(dtype)
        data.set(source, stream=self.stream)
        name = "Digests" if digests else f"Integers<{dtype.name}_t>"
        return DeviceKeys(name, data, np.uint64(0), piece.size, (piece.size,))


def overlapped(
    pieces: Iterator[npt.NDArray[np.generic]], digests: bool, work: Work, *, answers: bool
) -> npt.NDArray[np.uint8]:
    """Run `work` on each piece, several at once; return the answers of all, if there are to be any."""
    slots: list[_Slot] = []
    found: list[npt.NDArray[np.uint8]] = []
    waiting: list[_Slot] = []

    def take() -> _Slot:
        if len(slots) < _STREAMS:
            slots.append(_Slot())
            return slots[-1]
        slot = waiting.pop(0)
        if (done := slot.finish()) is not None:
            found.append(done)
        return slot

    try:
        for piece in pieces:
            slot = take()
            with slot.stream:
                keys = slot.send(piece, digests)
                work(keys, slot.answers[: keys.n])
                if answers:
                    slot.owed = slot.pinned_answers[: keys.n]
                    slot.answers[: keys.n].get(out=slot.owed, stream=slot.stream, blocking=False)
            waiting.append(slot)
        for slot in waiting:
            if (done := slot.finish()) is not None:
                found.append(done)
    finally:  # no copy may outlive the buffers
        for slot in slots:
            slot.stream.synchronize()
    return np.concatenate(found) if found else np.empty(0, np.uint8)


def in_order(
    pieces: Iterator[npt.NDArray[np.generic]], digests: bool, work: Work, dtype: type[np.generic]
) -> npt.NDArray[np.generic]:
    """Run `work` on one piece after the other, on the current stream; return the answers of all."""
    found = []
    for piece in pieces:
        native = np.dtype(np.uint8) if piece.dtype.kind == "b" else piece.dtype
        answers = cupy.empty(piece.size, dtype)
        name = "Digests" if digests else f"Integers<{native.name}_t>"
        keys = DeviceKeys(name, cupy.asarray(piece.view(native)), np.uint64(0), piece.size, (piece.size,))
        work(keys, answers)
        found.append(cupy.asnumpy(answers))
    return np.concatenate(found) if found else np.empty(0, dtype)
