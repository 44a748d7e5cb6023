"""Fingerprint filters in the memory of a GPU.

Their bytes are a function of the multiset of fingerprints alone, so a call that adds keys makes all lines
anew:

    fingerprints of the filter and of the keys ──sort──▶ level 1 ──sort──▶ level 2 ──▶ level 3 ──▶ the rest

in new memory, which takes the place of the old one when everything fits. See cpp/cuda/fingerprint.cuh.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from evenbins.cuda.errors import DeviceError
from evenbins.cuda.filters import DeviceFilter
from evenbins.filters.fingerprint import fingerprint_stats, full_error
from evenbins.filters.fingerprint_plan import FingerprintCore, FingerprintPlan, FingerprintStats

__all__ = ["DeviceFingerprintFilter"]

_LEVELS = (1, 2, 3)
_VIEW_BYTES = 1024  # kViewBytes
_STATE_WORDS, _LINE_WORDS = 8, 8
_MOST_KEYS = 1 << 32  # that one call sorts: 32 bits number them
_REST = 2  # the word of the state that counts the overflow list


class DeviceFingerprintFilter(DeviceFilter):
    """A fingerprint filter in device memory.

    A call that adds keys sorts them and the fingerprints that are in, and needs memory for all of them: add
    many keys at a time. If they do not fit, `FilterFullError`, and none is added.
    """

    _text = "fingerprint.cuh"
    _plan: FingerprintPlan

    def __init__(self, plan: FingerprintPlan, f: Any) -> None:
        core = plan.core
        if (core.lines // (16 * core.group)) << (core.remainder + 14) > 1 << 64:
            raise DeviceError(
                f"a fingerprint filter on a GPU has cells of 64 bits, and those of this one need "
                f"{(core.lines // (16 * core.group)).bit_length() + core.remainder + 14}: keep it on the CPU"
            )
        super().__init__(plan, f)
        with self._call(self._cupy.cuda.get_current_stream(), "reading the filter's shape", _VIEW_BYTES):
            self._view = self._view_of(self._words)

    @property
    def _core(self) -> FingerprintCore:
        return self._plan.core

    def _view_of(self, words: Any) -> Any:
        """Return the FingerprintView of a payload, in device memory."""
        core, view = self._core, self._cupy.zeros(_VIEW_BYTES // 8, np.uint64)  # zeros: it has gaps
        sizes = (np.uint64(core.lines), np.uint32(core.remainder), np.uint64(core.quotients))
        arguments = (words, *sizes, np.uint64(core.group), np.uint64(core.limit), view)
        self._kernels.compiled(self._text, "make_fingerprint_view")((1,), (1,), arguments)
        return view

    def _lines(self, level: int) -> int:
        core = self._core
        return (core.lines, core.lines // core.group, core.lines // (16 * core.group))[level - 1]

    def _scratch(self, n: int) -> int:
        return 24 * (n + self._plan.keys) + self.nbytes

    # --- look-ups ----------------------------------------------------------------------------------

    def _count(self, keys: Any, out: Any) -> None:
        planes = min(self._core.remainder // 8, 1)
        what = "uint8_t" if out.dtype.itemsize == 1 else "int64_t"
        self._per_key(f"fingerprint_count<{planes},{what},{keys.type}>", keys, out, words=(self._view,))

    _contains = _count

    def count_many(self, keys: object, *, digests: bool = False) -> Any:
        """Return how many copies of each key's fingerprint are in, as int64."""
        return self._answer(keys, digests, "counting keys", self._count, ordered=True, dtype=np.int64)

    def _measure(self) -> FingerprintStats:
        rows = []
        for level in _LEVELS:
            found = self._cupy.empty(self._lines(level), np.uint32)
            self._per_line("measure_lines", level, self._view, found)
            rows.append(self._rows(found))
        held = self._held()
        held.sort()
        distinct = int(held.size) - int(_equal_to_previous(held).sum())
        return fingerprint_stats(self._plan, rows, distinct, int(self._words[_REST]))

    # --- additions ---------------------------------------------------------------------------------

    def add_many(self, keys: object, *, digests: bool = False) -> None:
        """Add keys; the bytes are those that the filter on the host would have.

        Raises
        ------
        FilterFullError
            They do not fit, and none was added.
        """
        with self._adding(keys, "adding keys"):
            pieces = [self._fingerprints(each) for each in self._pieces(keys, digests)[0]]
            self._rebuild(self._joined(pieces))

    def add_new_many(self, keys: object, *, digests: bool = False) -> Any:
        """Add the keys that are not present; return for each key whether it was new.

        The answers are those of the CPU: one key after the other, the first occurrence wins.

        Raises
        ------
        FilterFullError
            They do not fit, and none was added.
        """
        from evenbins.cuda import _keys

        cupy = self._cupy
        with self._adding(keys, "adding new keys"):
            pieces, shape = self._pieces(keys, digests)
            found, present = [], []
            for each in pieces:
                found.append(self._fingerprints(each))
                present.append(cupy.empty(each.n, np.uint8))
                self._count(each, present[-1])
            fingerprints, new = self._joined(found), self._joined(present, np.uint8) == 0
            if new.size:
                order = cupy.argsort(fingerprints)  # stable: the first of equal ones comes first
                new[order[1:][_equal_to_previous(fingerprints[order])]] = False
            self._rebuild(fingerprints[new])
            new = new.reshape(shape)
        if _keys.on_device(keys):
            return _keys.answers_for(keys, new)
        return cupy.asnumpy(new)

    def __ior__(self, other: Self) -> Self:
        """Unite with a set of the same plan on the same GPU; a multiset has `+=`."""
        if isinstance(other, DeviceFingerprintFilter) and not self._core.set:
            raise TypeError("a multiset has no |: use +=, which adds the copies")
        return self._merge(other)

    def __iadd__(self, other: Self) -> Self:
        """Add the copies of a multiset of the same plan on the same GPU; a set has `|=`."""
        if isinstance(other, DeviceFingerprintFilter) and self._core.set:
            raise TypeError("a set has no +: use |=")
        return self._merge(other)

    def _merge(self, other: Self) -> Self:
        if not isinstance(other, DeviceFingerprintFilter):
            return NotImplemented
        self._require_same_plan(other)
        stream = self._cupy.cuda.get_current_stream()
        with self._adding(None, "uniting filters"):
            stream.wait_event(other._last)
            self._rebuild(other._held())
        return self

    @contextmanager
    def _adding(self, keys: object, action: str) -> Iterator[None]:
        """Run a call that adds keys, on the stream of their library."""
        from evenbins.cuda import _keys

        if self._core.doublings:
            raise DeviceError(
                "a filter with max_capacity grows on the CPU alone: add the keys there, and call to_device "
                "again, or plan one without it"
            )
        on_device = keys is not None and _keys.on_device(keys)
        stream = _keys.stream_of(keys) if on_device else self._cupy.cuda.get_current_stream()
        with stream, self._call(stream, action, self._scratch(self._plan.keys)):
            yield

    def _pieces(self, keys: object, digests: bool) -> tuple[Iterator[Any], tuple[int, ...] | int]:
        """Return keys in device memory, from wherever they are, in pieces; and the shape of their answers."""
        from evenbins.cuda import _keys, _streams

        if _keys.on_device(keys):
            prepared = _keys.device_keys(keys, digests=digests, device=self._device)
            return iter([prepared]), prepared.shape
        held = _streams.host_keys(keys, self._plan.seed, digests=digests)
        return _streams.sent(held), -1 if held.shape is None else held.shape

    def _fingerprints(self, keys: Any) -> Any:
        made = self._cupy.empty(keys.n, np.uint64)
        self._per_key(f"make_fingerprints<{keys.type}>", keys, made, words=(self._view,))
        return made

    def _joined(self, pieces: list[Any], dtype: type[np.generic] = np.uint64) -> Any:
        if len(pieces) == 1:
            return pieces[0]
        return self._cupy.concatenate(pieces) if pieces else self._cupy.empty(0, dtype)

    # --- lines from fingerprints, and back ---------------------------------------------------------

    def _per_line(self, name: str, level: int, *arguments: Any) -> None:
        kernel = self._kernels.compiled(self._text, f"{name}<{level}>")
        self._kernels.launch_per_key(kernel, self._lines(level), arguments, threads=128)

    def _held(self) -> Any:
        """Return the fingerprints that are in, in no order."""
        cupy = self._cupy
        state = cupy.asnumpy(self._words[:_STATE_WORDS])
        rest = _STATE_WORDS + _LINE_WORDS * sum(map(self._lines, _LEVELS))
        found = [self._words[rest : rest + int(state[_REST])]]
        for level in _LEVELS if state[0] else ():
            counts = cupy.empty(self._lines(level), np.uint32)
            self._per_line("count_held", level, self._view, counts)
            ends = cupy.cumsum(counts, dtype=np.uint32)
            found.append(cupy.empty(int(ends[-1]), np.uint64))
            self._per_line("write_held", level, self._view, ends, found[-1])
        return cupy.concatenate(found)

    def _rebuild(self, more: Any) -> None:
        """Make all lines anew, with more fingerprints.

        FilterFullError, and nothing has changed, if they are too many.
        """
        cupy, core = self._cupy, self._core
        if more.size == 0:
            return
        held = self._held()
        if not core.set and held.size + more.size > core.limit:
            raise self._full(held.size, more.size)
        cells = cupy.concatenate([held, more])
        cells.sort()
        if core.set:
            keep = cupy.empty(cells.size, np.bool_)
            keep[0] = True
            keep[1:] = ~_equal_to_previous(cells)
            cells = cells[keep]
        copies = cells.size
        if copies > core.limit:
            raise self._full(held.size, more.size)
        if copies >= _MOST_KEYS:
            raise DeviceError(
                f"a fingerprint filter on a GPU holds fewer than 2**32 keys, and these would be {copies:,}"
            )
        words = cupy.zeros(self._words.size, np.uint64)
        view = self._view_of(words)
        for level in _LEVELS:
            if cells.size == 0:
                break
            sent = cupy.empty(self._lines(level), np.uint32)
            self._per_line("fill_lines", level, view, cells, np.uint64(cells.size), sent)
            ends = cupy.cumsum(sent, dtype=np.uint32)
            following = cupy.empty(int(ends[-1]), np.uint64)
            if following.size:
                self._per_line("send_cells", level, view, cells, np.uint64(cells.size), ends, following)
                following.sort()
            cells = following
        if cells.size > core.rest:
            raise self._full(held.size, more.size)
        rest = _STATE_WORDS + _LINE_WORDS * sum(map(self._lines, _LEVELS))
        words[rest : rest + cells.size] = cells
        words[0], words[_REST] = copies, cells.size
        self._words, self._view = words, view

    def _full(self, held: int, more: int) -> Exception:
        core = self._core
        return full_error(
            f"the filter holds {held} of at most {core.limit} keys: {more} more do not fit, and none was "
            f"added: they are too many, or the overflow list ({core.rest} fingerprints) is full, as it is "
            "with many copies of the same keys. Plan for more keys"
        )


def _equal_to_previous(ascending: Any) -> Any:
    return ascending[1:] == ascending[:-1]
