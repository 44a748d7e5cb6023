"""Filters in the memory of a GPU.

The payload of the host's filter lies in device memory, byte for byte; kernels change it as the core would. A
call runs on the caller's current stream, after all earlier calls of the same filter, whatever their streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from evenbins.cuda.errors import DeviceError, device_errors, library
from evenbins.filters.base import BaseFilter, class_for, file_header
from evenbins.filters.plan import FilterPlan, FilterStats

__all__ = ["DeviceFilter", "build", "to_device"]

_TOO_MANY_BITS = 1 << 40  # positions and key numbers share a word (cpp/cuda/standard.cuh)
_BALANCED = 3  # the kind
_BATCH = 1 << 28  # keys that one partition has, at most


def to_device(f: BaseFilter) -> DeviceFilter:
    """Return a copy of a filter in the memory of the current GPU; `f` stays as it is.

    Parameters
    ----------
    f
        A `BlockedBloomFilter`, a `BloomFilter` with independent hashing, or, for look-ups, a
        `BalancedBloomFilter`.

    Raises
    ------
    DeviceError
        No GPU can be used, or the filter does not fit into its memory.
    TypeError
        It is another kind of structure.
    """
    if not isinstance(f, BaseFilter):
        raise TypeError(f"to_device needs a filter, not {type(f).__name__}")
    return _family(f.plan)(f.plan, f)


def build(plan: FilterPlan, keys: object, *, digests: bool = False) -> DeviceFilter:
    """Build the filter of a plan on the current GPU and add keys to it; see `DeviceFilter.add_many`."""
    made = _family(plan)(plan, None)
    made.add_many(keys, digests=digests)
    return made


def _family(plan: FilterPlan) -> type[DeviceFilter]:
    cls = next((each for each in _FAMILIES if each.fits(plan)), None)
    if cls is None:
        raise TypeError(
            f"no filter of policy {plan.policy!r} and hashing {plan.hashing!r} can be in device memory: "
            "use a BlockedBloomFilter, a BloomFilter with independent hashing, or a BalancedBloomFilter"
        )
    return cls


class DeviceFilter:
    """A filter in device memory; made by `to_device` and `build`.

    Keys are arrays in device memory (anything with DLPack or `__cuda_array_interface__`: CuPy, PyTorch, JAX),
    `cuda.Strings`, or whatever the filters of the CPU take, which is streamed from the host. For keys in device
    memory the answers are arrays there, of the same library, and the call returns before the GPU has finished;
    for keys on the host they are a NumPy array.
    """

    _text: str  # of cpp/cuda

    def __init__(self, plan: FilterPlan, f: BaseFilter | None) -> None:
        cupy = library()
        from evenbins.cuda import _kernels

        self._cupy, self._kernels = cupy, _kernels
        self._plan = plan
        self._device = cupy.cuda.Device().id
        if 8 * plan.nbytes >= _TOO_MANY_BITS:
            raise DeviceError(f"a filter on a GPU has fewer than 2**40 bits, and this one has {8 * plan.nbytes:,}")
        with device_errors(cupy, "copying the filter to the GPU", plan.nbytes):
            if f is None:
                self._words = cupy.zeros(plan.nbytes // 8, np.uint64)
            else:
                self._words = cupy.empty(plan.nbytes // 8, np.uint64)
                self._words.set(np.frombuffer(memoryview(f), np.uint64))
            self._hash = cupy.empty(4, np.uint64)
            kernel = _kernels.compiled("keys.cuh", "make_key_hash")
            kernel((1,), (1,), (np.uint64(self._plan.seed), self._hash))
            self._last = cupy.cuda.Event(disable_timing=True)
            self._last.record()

    @staticmethod
    def fits(plan: FilterPlan) -> bool:
        """Return whether this class has filters of that plan."""
        raise NotImplementedError

    @property
    def plan(self) -> FilterPlan:
        """The plan of the filter, as on the host."""
        return self._plan

    @property
    def nbytes(self) -> int:
        """The device memory of the filter, in bytes."""
        return int(self._words.nbytes)

    def __repr__(self) -> str:
        name = class_for(self._plan).__name__
        return f"<{name} of {self.nbytes:,} bytes on GPU {self._device}, planned for {self._plan.keys:,} keys>"

    # --- keys in, answers out ----------------------------------------------------------------------

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

    def _answer(
        self, keys: object, digests: bool, action: str, work: Any, *, ordered: bool, answers: bool = True
    ) -> Any:
        from evenbins.cuda import _keys, _streams

        cupy = self._cupy
        if not _keys.on_device(keys):
            with self._call(cupy.cuda.get_current_stream(), action, self._scratch(_streams.PIECE)):
                pieces, hashed, shape = _streams.host_pieces(keys, self._plan.seed, digests=digests)
                if ordered:
                    found = _streams.in_order(pieces, hashed, work)
                else:
                    self._words.device.synchronize()  # the streams below know nothing of earlier calls
                    found = _streams.overlapped(pieces, hashed, work, answers=answers)
            if not answers:
                return None
            return found if shape is None else found.reshape(shape)
        stream = _keys.stream_of(keys)
        with stream:
            prepared = _keys.device_keys(keys, digests=digests, device=self._device)
            with self._call(stream, action, prepared.n + self._scratch(prepared.n)):
                out = cupy.empty(prepared.n if answers else 0, np.uint8)
                work(prepared, out)
            return _keys.answers_for(keys, out.view(np.bool_).reshape(prepared.shape)) if answers else None

    @contextmanager
    def _call(self, stream: Any, action: str, nbytes: int) -> Iterator[None]:
        """Run a call on a stream, after earlier calls of this filter on any."""
        cupy = self._cupy
        if cupy.cuda.Device().id != self._device:
            raise DeviceError(
                f"the filter is on GPU {self._device}, and the current one is {cupy.cuda.Device().id}: "
                f"use `with cupy.cuda.Device({self._device})`"
            )
        with device_errors(cupy, action, nbytes):
            stream.wait_event(self._last)
            yield
            self._last.record(stream)

    def _scratch(self, n: int) -> int:
        """Return the device memory that a call with n keys needs, in bytes, for messages."""
        return 16 * n

    def _per_key(self, name: str, keys: Any, *more: Any, words: Any = ()) -> None:
        """Run a kernel that takes the filter, the keys and `more`."""
        kernel = self._kernels.compiled(self._text, name)
        arguments = (self._words, *words, keys.data, keys.more, self._hash, np.uint64(keys.n), *more)
        self._kernels.launch_per_key(kernel, keys.n, arguments)

    def _contains(self, keys: Any, out: Any) -> None:
        raise NotImplementedError

    def _add(self, keys: Any, out: Any) -> None:
        raise NotImplementedError

    def _add_new(self, keys: Any, out: Any) -> None:
        raise NotImplementedError

    # --- the filter as a whole ---------------------------------------------------------------------

    def __ior__(self, other: Self) -> Self:
        """Unite with a filter of the same plan on the same GPU: plain OR, as on the host."""
        if not isinstance(other, DeviceFilter):
            return NotImplemented
        if other._plan != self._plan or other._device != self._device:
            raise ValueError("only filters of the same plan, seed and GPU can be united")
        with self._call(self._cupy.cuda.get_current_stream(), "uniting filters", self.nbytes):
            self._cupy.cuda.get_current_stream().wait_event(other._last)
            self._words |= other._words
        return self

    def to_host(self) -> BaseFilter:
        """Return the filter on the host: the one that the CPU would have built, byte for byte."""
        with self._call(self._cupy.cuda.get_current_stream(), "copying the filter to the host", 0):
            payload: npt.NDArray[np.uint64] = self._cupy.asnumpy(self._words)
        data = np.concatenate([np.frombuffer(file_header(self._plan, payload), np.uint8), payload.view(np.uint8)])
        return class_for(self._plan).from_bytes(data)  # type: ignore[arg-type]

    def stats(self) -> FilterStats:
        """Measure this very filter, as `stats` of the host's filter does: on a copy there."""
        return self.to_host().stats()


class _DeviceBlocked(DeviceFilter):
    """A blocked filter in device memory."""

    _text = "blocked.cuh"

    @staticmethod
    def fits(plan: FilterPlan) -> bool:
        return plan.policy == "blocked"

    def _scratch(self, n: int) -> int:
        from evenbins.cuda import _partition

        return _partition.scratch_bytes(min(n, _BATCH), numbered=True)

    def _table(self) -> Any:
        from evenbins.cuda import _partition

        core: Any = self._plan.core
        return _partition.Blocks(self._words, core.blocks, core.block_bits.bit_length() - 1, core.hashes)

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


class _DeviceStandard(DeviceFilter):
    """A standard filter in device memory."""

    _text = "standard.cuh"

    @staticmethod
    def fits(plan: FilterPlan) -> bool:
        return plan.policy == "standard" and plan.hashing == "independent"

    def _sizes(self) -> tuple[np.generic, ...]:
        bits, hashes = self._plan.core
        return np.uint64(bits), np.uint32(hashes)

    def _contains(self, keys: Any, out: Any) -> None:
        self._per_key(f"standard_contains<{keys.type}>", keys, out, words=self._sizes())

    def _add(self, keys: Any, out: Any) -> None:
        self._per_key(f"standard_add<{keys.type}>", keys, words=self._sizes())

    def _add_new(self, keys: Any, out: Any) -> None:
        hashes = int(self._plan.core[1])
        most = max((1 << 24) // hashes, 1)  # keys, so that the table of claims has at most 2^25 words
        slots = 1 << (2 * min(most, max(keys.n, 1)) * hashes - 1).bit_length()
        claims = self._cupy.empty(slots, np.uint64)
        for first in range(0, keys.n, most):
            piece = keys.piece(first, min(first + most, keys.n))
            claims.fill(np.uint64(2**64 - 1))
            for step in ("claim", "decide"):
                self._per_key(
                    f"standard_new_{step}<{keys.type}>", piece, claims, np.uint64(slots), out[first:], words=self._sizes()
                )
            self._add(piece, out)


class _DeviceBalanced(DeviceFilter):
    """A balanced filter in device memory: look-ups."""

    _text = "balanced.cuh"
    _rules: ClassVar[dict[str, str]] = {"fill": "fill", "two-choice": "two_choice"}  # otherwise by load

    def __init__(self, plan: FilterPlan, f: BaseFilter | None) -> None:
        super().__init__(plan, f)
        self._core = self._cupy.array(np.array(plan.core, np.uint64))

    @staticmethod
    def fits(plan: FilterPlan) -> bool:
        return plan.policy in class_for(plan)._policies and class_for(plan)._kind == _BALANCED

    def _contains(self, keys: Any, out: Any) -> None:
        log = int(self._plan.core[1]).bit_length() - 1
        rule = self._rules.get(self._plan.policy, "counted")
        name = f"balanced_contains<{log},evenbins::Rule::{rule},{keys.type}>"
        self._per_key(name, keys, out, words=(self._core, np.uint32(self._core.size)))

    def _add(self, keys: Any, out: Any) -> None:
        raise DeviceError(
            f"a filter of policy {self._plan.policy!r} is filled on the CPU, since its keys must go in one after the "
            "other: add them there, and call to_device again"
        )

    _add_new = _add

    def __ior__(self, other: Self) -> Self:
        """Raise: the overflow lists unite on the CPU alone."""
        self._add(None, None)
        return self


_FAMILIES: tuple[type[DeviceFilter], ...] = (_DeviceBlocked, _DeviceStandard, _DeviceBalanced)
