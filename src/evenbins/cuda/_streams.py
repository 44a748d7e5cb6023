"""Keys on the host, streamed through the GPU: while one piece is worked on, the next is on its way.

    host ──copy──▶ pinned buffer ──DMA──▶ device buffer ──kernel──▶ answers ──DMA──▶ result, pinned
           (only if the keys lie in ordinary memory: pinned arrays need no copy)

Pieces take turns on two streams, each with buffers of its own; three are no faster. Answers go straight to
where the caller finds them: to copy them once more would take longer than all the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import cupy
import cupyx
import numpy as np
import numpy.typing as npt

from evenbins import _bulk
from evenbins.cuda._keys import DeviceKeys

__all__ = ["PIECE", "HostKeys", "host_keys", "in_order", "overlapped", "sent"]

PIECE = 1 << 22  # keys
_STREAMS = 2
_COPIERS = 4  # threads that fill a pinned buffer: more are no faster
_PINNED = 1  # cudaMemoryTypeHost

Work = Callable[[DeviceKeys, Any], None]  # of keys and where their answers go


class HostKeys(NamedTuple):
    """Keys on the host, in pieces of at most `PIECE`.

    Attributes
    ----------
    pieces : arrays of integers
    digests : whether these are digests
    total : how many they are; None if that is not known in advance
    shape : of the answers; None for one dimension
    """

    pieces: Iterator[npt.NDArray[Any]]
    digests: bool
    total: int | None
    shape: tuple[int, ...] | None


def host_keys(keys: object, seed: int, *, digests: bool) -> HostKeys:
    """Return keys of the host in pieces: native integers as they are; everything else is hashed here."""
    if isinstance(keys, np.ndarray) and not isinstance(keys, np.ma.MaskedArray) and keys.ndim > 0:
        plain = keys.dtype.kind in "iub" and keys.dtype.isnative
        if plain and (not digests or keys.dtype == np.uint64):
            flat = np.ascontiguousarray(keys).reshape(-1)
            flat = flat.view(np.uint8) if flat.dtype.kind == "b" else flat
            pieces = (flat[i : i + PIECE] for i in range(0, flat.size, PIECE))
            return HostKeys(pieces, digests, flat.size, keys.shape)
    source, shape = _bulk.key_source(keys, digests=digests)
    chunks = _bulk.digest_chunks(source, seed, chunk=PIECE, threads=_bulk.available_threads())
    return HostKeys(chunks, True, None, shape)


def _prepared(data: Any, digests: bool) -> DeviceKeys:
    name = "Digests" if digests else f"Integers<{data.dtype.name}_t>"
    return DeviceKeys(name, data, np.uint64(0), data.size, (data.size,))


def _is_pinned(array: npt.NDArray[Any]) -> bool:
    return bool(cupy.cuda.runtime.pointerGetAttributes(array.ctypes.data).type == _PINNED)


class _Slot:
    """A stream with its buffers."""

    def __init__(self) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.device = cupy.empty(8 * PIECE, np.uint8)
        self.answers = cupy.empty(PIECE, np.uint8)
        self.staged: Any = None  # made when keys that are not pinned come

    def send(self, piece: npt.NDArray[Any], digests: bool, copiers: ThreadPoolExecutor) -> DeviceKeys:
        """Start the copy of a piece to the device, and return it as keys."""
        if not _is_pinned(piece):
            if self.staged is None:
                self.staged = cupyx.empty_pinned(8 * PIECE, np.uint8)
            staged = self.staged[: piece.nbytes].view(piece.dtype)
            parts = [
                slice(i * piece.size // _COPIERS, (i + 1) * piece.size // _COPIERS) for i in range(_COPIERS)
            ]
            list(copiers.map(lambda part: np.copyto(staged[part], piece[part]), parts))
            piece = staged
        data = self.device[: piece.nbytes].view(piece.dtype)
        data.set(piece, stream=self.stream)
        return _prepared(data, digests)


def overlapped(keys: HostKeys, work: Work, *, answers: bool) -> npt.NDArray[np.uint8]:
    """Run `work` on each piece while the next is copied; return the answers of all, if wanted."""
    known = answers and keys.total
    whole: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
    if known:
        whole = cupyx.empty_pinned(keys.total, np.uint8)
    found: list[npt.NDArray[np.uint8]] = []
    slots: list[_Slot] = []
    first = 0
    with ThreadPoolExecutor(_COPIERS) as copiers:
        try:
            for number, piece in enumerate(keys.pieces):
                if number < _STREAMS:
                    slots.append(_Slot())
                slot = slots[number % _STREAMS]
                slot.stream.synchronize()  # its buffers are free
                with slot.stream:
                    prepared = slot.send(piece, keys.digests, copiers)
                    work(prepared, slot.answers[: prepared.n])
                    if answers:
                        n = prepared.n
                        out = whole[first : first + n] if known else cupyx.empty_pinned(n, np.uint8)
                        slot.answers[:n].get(out=out, stream=slot.stream, blocking=False)
                        found.append(out)
                first += piece.size
        finally:  # no copy may outlive the buffers
            for slot in slots:
                slot.stream.synchronize()
    if known:
        return whole
    return np.concatenate(found) if found else np.empty(0, np.uint8)


def sent(keys: HostKeys) -> Iterator[DeviceKeys]:
    """Yield the pieces in device memory, copied on the current stream."""
    for piece in keys.pieces:
        yield _prepared(cupy.asarray(piece), keys.digests)


def in_order(keys: HostKeys, work: Work, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Run `work` on one piece after the other, on the current stream; return the answers of all."""
    found = []
    for piece in sent(keys):
        answers = cupy.empty(piece.n, dtype)
        work(piece, answers)
        found.append(cupy.asnumpy(answers))
    return np.concatenate(found) if found else np.empty(0, dtype)
