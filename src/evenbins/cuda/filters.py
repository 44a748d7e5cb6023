"""Filters in the memory of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from evenbins.cuda._device import OnDevice
from evenbins.filters.base import BaseFilter, class_for, file_header
from evenbins.filters.blocked import blocked_stats
from evenbins.filters.plan import FilterPlan, FilterStats
from evenbins.filters.standard import standard_stats

__all__ = ["DeviceBlockedFilter", "DeviceFilter", "DeviceStandardFilter"]

_BATCH = 1 << 28  # keys that one partition has, at most


class DeviceFilter(OnDevice):
    """A filter in device memory; made by `to_device` and `build`.

    Keys are arrays in device memory (anything with DLPack or `__cuda_array_interface__`: CuPy, PyTorch,
    JAX), `cuda.Strings`, or whatever the filters of the CPU take, which is streamed from the host. For keys
    in device memory the answers are arrays there, of the same library, and the call returns before the GPU
    has finished; for keys on the host they are a NumPy array.
    """

    _plan: FilterPlan

    @property
    def plan(self) -> FilterPlan:
        """The plan of the filter, as on the host."""
        return self._plan

    def __repr__(self) -> str:
        name = class_for(self._plan).__name__
        return (
            f"<{name} of {self.nbytes:,} bytes on GPU {self._device}, planned for {self._plan.keys:,} keys>"
        )

    def contains_many(self, keys: object, *, digests: bool = False) -> Any:
        """Return for each key whether it is in the filter: see the class for what keys may be."""
        return self._answer(keys, digests, "looking up keys", self._contains, ordered=False)

    def add_many(self, keys: object, *, digests: bool = False) -> None:
        """Add keys; the bytes are those that the filter on the host would have."""
        self._answer(keys, digests, "adding keys", self._add, ordered=False, answers=False)

    def add_new_many(self, keys: object, *, digests: bool = False) -> Any:
        """Add the keys that are not present; return for each key whether it was new.

        The answers are those of the CPU: one key after the other, the first occurrence wins.
        """
        return self._answer(keys, digests, "adding new keys", self._add_new, ordered=True)

    def _contains(self, keys: Any, out: Any) -> None:
        raise NotImplementedError

    def _add(self, keys: Any, out: Any) -> None:
        raise NotImplementedError

    def _add_new(self, keys: Any, out: Any) -> None:
        raise NotImplementedError

    def __ior__(self, other: Self) -> Self:
        """Unite with a filter of the same plan on the same GPU: plain OR, as on the host."""
        if not isinstance(other, DeviceFilter):
            return NotImplemented
        self._require_same_plan(other)
        with self._call(self._cupy.cuda.get_current_stream(), "uniting filters", self.nbytes):
            self._cupy.cuda.get_current_stream().wait_event(other._last)
            self._words |= other._words
        return self

    def _require_same_plan(self, other: DeviceFilter) -> None:
        if other._plan != self._plan or other._device != self._device:
            raise ValueError("only filters of the same plan, seed and GPU can be united")

    def to_host(self) -> BaseFilter:
        """Return the filter on the host: the one that the CPU would have built, byte for byte."""
        payload = self._payload()
        header = np.frombuffer(file_header(self._plan, payload), np.uint8)
        data: Any = np.concatenate([header, payload.view(np.uint8)])
        return class_for(self._plan).from_bytes(data)

    def stats(self) -> FilterStats:
        """Measure this very filter, as `stats` of the host's filter does: what is counted is counted here."""
        with self._call(self._cupy.cuda.get_current_stream(), "measuring the filter", self.nbytes // 8):
            return self._measure()

    def _measure(self) -> FilterStats:
        raise NotImplementedError

    def _blocks_measured(
        self, words: Any, blocks: int, block_words: int, shift: int = 64
    ) -> npt.NDArray[np.int64]:
        """Return rows of load, set bits, and how many blocks have both; `shift` is that of the load."""
        found = self._cupy.empty(blocks, np.uint32)
        kernel = self._kernels.compiled("measure.cuh", "measure_blocks")
        arguments = (words, np.uint64(blocks), np.uint32(block_words), np.uint32(shift), found)
        self._kernels.launch_per_key(kernel, blocks, arguments)
        return self._rows(found)

    def _rows(self, found: Any) -> npt.NDArray[np.int64]:
        """Return rows of both halves of words, and how often they occur."""
        which, times = (self._cupy.asnumpy(each) for each in self._cupy.unique(found, return_counts=True))
        return np.stack([which >> 16, which & 0xFFFF, times], axis=1).astype(np.int64)


class DeviceBlockedFilter(DeviceFilter):
    """A blocked filter in device memory."""

    _text = "blocked.cuh"

    def _scratch(self, n: int) -> int:
        from evenbins.cuda import _partition

        return _partition.scratch_bytes(min(n, _BATCH), numbered=True)

    def _table(self) -> Any:
        from evenbins.cuda import _partition

        core: Any = self._plan.core
        return _partition.Blocks(self._words, core.blocks, core.block_bits.bit_length() - 1, core.hashes)

    def _measure(self) -> FilterStats:
        table = self._table()
        rows = self._blocks_measured(table.words, table.blocks, 1 << (table.block_log - 6))
        histogram = np.bincount(rows[:, 1], rows[:, 2], minlength=(1 << table.block_log) + 1)
        return blocked_stats(self._plan, histogram.astype(int).tolist())

    def _contains(self, keys: Any, out: Any) -> None:
        table = self._table()
        name = f"blocked_contains<{table.template},{keys.type},1>"
        self._per_key(name, keys, out, words=(np.uint64(table.blocks),))

    def _add(self, keys: Any, out: Any) -> None:
        from evenbins.cuda import _partition

        table = self._table()
        for piece in self._batches(keys, numbered=False):
            if _partition.pays(table, piece.n):
                _partition.add(table, piece, self._hash)
            else:
                self._per_key(
                    f"blocked_add<{table.template},{keys.type}>", piece, words=(np.uint64(table.blocks),)
                )

    def _add_new(self, keys: Any, out: Any) -> None:
        from evenbins.cuda import _partition

        first = 0
        for piece in self._batches(keys, numbered=True):
            _partition.add_new(self._table(), piece, self._hash, out[first : first + piece.n])
            first += piece.n

    def _batches(self, keys: Any, *, numbered: bool) -> Iterator[Any]:
        """Yield the keys in pieces for which the device has memory."""
        from evenbins.cuda import _partition

        size = _BATCH
        if numbered:  # few keys of a block in one batch: they take turns
            size = min(size, max(4 * self._table().blocks, 1 << 20))
        free = self._cupy.cuda.runtime.memGetInfo()[0] + self._cupy.get_default_memory_pool().free_bytes()
        while size > 1 << 20 and _partition.scratch_bytes(min(size, keys.n), numbered=numbered) > free // 2:
            size //= 2
        for first in range(0, keys.n, size):
            yield keys.piece(first, min(first + size, keys.n))


class DeviceStandardFilter(DeviceFilter):
    """A standard filter in device memory."""

    _text = "standard.cuh"

    def _sizes(self) -> tuple[np.generic, ...]:
        core: Any = self._plan.core
        return np.uint64(core.bits), np.uint32(core.hashes)

    def _measure(self) -> FilterStats:
        rows = self._blocks_measured(self._words, self._words.size, 1)
        return standard_stats(self._plan, int(rows[:, 1] @ rows[:, 2]))

    def _contains(self, keys: Any, out: Any) -> None:
        self._per_key(f"standard_contains<{keys.type}>", keys, out, words=self._sizes())

    def _add(self, keys: Any, out: Any) -> None:
        self._per_key(f"standard_add<{keys.type}>", keys, words=self._sizes())

    def _add_new(self, keys: Any, out: Any) -> None:
        core: Any = self._plan.core
        hashes = int(core.hashes)
        most = max((1 << 24) // hashes, 1)  # keys, so that the table of claims has at most 2^25 words
        slots = 1 << (2 * min(most, max(keys.n, 1)) * hashes - 1).bit_length()
        claims = self._cupy.empty(slots, np.uint64)
        for first in range(0, keys.n, most):
            piece = keys.piece(first, min(first + most, keys.n))
            claims.fill(np.uint64(2**64 - 1))
            for step in ("claim", "decide"):
                self._per_key(
                    f"standard_new_{step}<{keys.type}>",
                    piece,
                    claims,
                    np.uint64(slots),
                    out[first:],
                    words=self._sizes(),
                )
            self._add(piece, out)
