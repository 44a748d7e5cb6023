"""Balanced filters in the memory of a GPU.

    keys ──▶ level 1, by block ──those that passed──▶ level 2 … ──▶ the overflow list

Level by level leaves the bytes of key by key (cpp/cuda/balanced.cuh) unless a key finds neither a block nor a
list with room, and spills. A batch with such a key is added by the CPU.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from evenbins.cuda.errors import DeviceError
from evenbins.cuda.filters import DeviceFilter
from evenbins.filters.balanced import balanced_stats
from evenbins.filters.base import BaseFilter
from evenbins.filters.plan import FilterPlan, FilterStats
from evenbins.theory.cores import BalancedCore, counter_bits

__all__ = ["DeviceBalancedFilter"]

_BATCH = 1 << 26  # keys
_KEYS, _LISTED, _READS, _FLAGS = range(4)  # words of the state, eight at the end of the payload
_STATE_WORDS = 8
_ZERO_LISTED = 1  # kZeroListed
_PRESENT, _ADDED, _PASSED = range(3)  # Step
_NOBODY = np.uint32(2**32 - 1)  # kNobody


class DeviceBalancedFilter(DeviceFilter):
    """A balanced filter in device memory."""

    _text = "balanced.cuh"
    _rules: ClassVar[dict[str, str]] = {"fill": "fill", "two-choice": "two_choice"}  # otherwise by load
    _by_level: ClassVar[tuple[str, ...]] = ("single", "multilevel", "fill")

    def __init__(self, plan: FilterPlan, f: BaseFilter | None) -> None:
        super().__init__(plan, f)
        self._core = self._cupy.array(np.array(plan.core, np.uint64))

    @property
    def _rule(self) -> str:
        return self._rules.get(self._plan.policy, "counted")

    @property
    def _template(self) -> str:
        return f"{self._numbers.block_bits.bit_length() - 1},evenbins::Rule::{self._rule}"

    @property
    def _numbers(self) -> BalancedCore:
        return BalancedCore(self._plan.core)

    def _shape(self) -> tuple[Any, np.uint32]:
        return self._core, np.uint32(self._core.size)

    def _scratch(self, n: int) -> int:
        return 64 * min(n, _BATCH) + self.nbytes

    def _contains(self, keys: Any, out: Any) -> None:
        self._per_key(f"balanced_contains<{self._template},{keys.type}>", keys, out, words=self._shape())

    def add_many(self, keys: object, *, digests: bool = False) -> None:
        """Add keys; the bytes are those that the filter on the host would have.

        A batch in which a key finds neither a block nor a list with room is added by the CPU.
        """
        self._require_levels()
        self._answer(keys, digests, "adding keys", self._add_new, ordered=True)

    def add_new_many(self, keys: object, *, digests: bool = False) -> Any:
        """Add the keys that are not present; return for each key whether it was new: see `add_many`."""
        self._require_levels()
        return super().add_new_many(keys, digests=digests)

    def _require_levels(self) -> None:
        if self._plan.policy not in self._by_level:
            raise DeviceError(
                f"a filter of policy {self._plan.policy!r} is filled on the CPU, since its keys must go in "
                "one after the other: add them there, and call to_device again"
            )

    def __ior__(self, other: Self) -> Self:
        """Unite with a filter of the same plan on the same GPU, if it has no overflow list."""
        if isinstance(other, DeviceBalancedFilter) and self._rule == "counted":
            raise DeviceError(
                f"filters of policy {self._plan.policy!r} are united on the CPU, which merges their overflow "
                "lists: use to_host"
            )
        return super().__ior__(other)

    def _measure(self) -> FilterStats:
        core, first, tables = self._numbers, 0, []
        words = core.block_bits // 64
        for blocks, threshold in zip(core.blocks, core.thresholds, strict=True):
            shift = 64 - counter_bits(threshold) if core.counted else 64
            tables.append(self._blocks_measured(self._words[first:], blocks, words, shift))
            first += -(-blocks * words // 8) * 8  # whole lines
        state = self._cupy.asnumpy(self._words[-_STATE_WORDS:]).tolist() if core.counted else []
        return balanced_stats(self._plan, tables, state)

    # --- additions -----------------------------------------------------------------------------------

    def _add_new(self, keys: Any, out: Any) -> None:
        for first in range(0, keys.n, _BATCH):
            piece = keys.piece(first, min(first + _BATCH, keys.n))
            digests = self._cupy.empty(piece.n, np.uint64)
            kernel = self._kernels.compiled("keys.cuh", f"make_digests<{piece.type}>")
            arguments = (piece.data, piece.more, self._hash, np.uint64(piece.n), digests)
            self._kernels.launch_per_key(kernel, piece.n, arguments)
            before = self._words.copy()
            try:
                steps = self._add_by_level(digests)
            except Exception:  # too little memory, for example
                self._words = before
                raise
            if steps is None:
                self._words = before
                steps = self._add_on_host(digests)
            out[first : first + piece.n] = steps

    def _run(self, name: str, n: int, *arguments: Any) -> None:
        kernel = self._kernels.compiled(self._text, name)
        self._kernels.launch_per_key(kernel, n, arguments)

    def _add_by_level(self, digests: Any) -> Any:
        """Add keys; return for each whether it was new. None, and the payload is of no use, if one spills."""
        cupy = self._cupy
        steps = cupy.zeros(digests.size, np.uint8)
        alive = digests
        numbers: Any = None
        for level, blocks in enumerate(self._numbers.blocks):
            here = self._add_level(level, blocks, alive)
            if numbers is None:
                steps = here
            else:
                steps[numbers] = here
            self._count(int((here == _ADDED).sum()), level + 1)
            passed = cupy.flatnonzero(here == _PASSED)
            numbers = passed if numbers is None else numbers[passed]
            alive = alive[passed]
            if alive.size == 0:
                return steps
        if self._rule != "counted":
            return None
        firsts = self._first_of_equal(alive)
        listed = cupy.empty(firsts.size, np.uint8)
        candidates = alive[firsts]
        self._run(
            "on_list",
            firsts.size,
            self._words,
            *self._shape(),
            candidates,
            np.uint64(candidates.size),
            listed,
        )
        firsts = firsts[cupy.flatnonzero(listed == 0)]
        if not self._put_on_list(alive[firsts]):
            return None
        steps[numbers] = _PRESENT
        steps[numbers[firsts]] = _ADDED
        return steps

    def _add_level(self, level: int, blocks: int, digests: Any) -> Any:
        cupy, n = self._cupy, np.uint64(digests.size)
        steps = cupy.empty(digests.size, np.uint8)
        if digests.size == 0:
            return steps
        found = cupy.empty(digests.size, np.uint32)
        self._run("level_blocks", digests.size, digests, n, np.uint32(level), np.uint64(blocks), found)
        order = cupy.argsort(found)  # stable: the keys of a block in their order
        found = found[order]
        starts = cupy.concatenate(
            [cupy.zeros(1, np.int64), cupy.flatnonzero(found[1:] != found[:-1]).astype(np.int64) + 1]
        )
        arguments = (
            *self._shape(),
            np.uint32(level),
            digests,
            n,
            order,
            starts,
            np.uint64(starts.size),
            steps,
        )
        self._run(f"add_level<{self._template}>", starts.size, self._words, *arguments)
        return steps

    def _count(self, keys: int, reads: int) -> None:
        if self._rule == "counted":
            self._words[_KEYS - _STATE_WORDS] += np.uint64(keys)
            self._words[_READS - _STATE_WORDS] += np.uint64(keys * reads)

    def _first_of_equal(self, digests: Any) -> Any:
        """Return the numbers of the keys that are the first with their digest, ascending."""
        cupy = self._cupy
        order = cupy.argsort(digests)
        ascending = digests[order]
        first = cupy.empty(digests.size, np.bool_)
        first[0] = True
        first[1:] = ascending[1:] != ascending[:-1]
        numbers = order[first]
        numbers.sort()
        return numbers

    def _put_on_list(self, digests: Any) -> bool:
        """Put keys on the overflow list, which has none of them; False if it has no room for all."""
        cupy, core, n = self._cupy, self._numbers, digests.size
        if n == 0:
            return True
        if int(self._words[_LISTED - _STATE_WORDS]) + n > core.overflow_limit:
            return False
        claims = cupy.full(2 * core.overflow_limit + 16, _NOBODY, np.uint32)  # more than there are slots
        self._run("claim_slots", n, self._words, *self._shape(), digests, np.uint64(n), claims)
        self._run("fill_slots", claims.size, self._words, *self._shape(), digests, claims)
        if bool((digests == 0).any()):
            self._words[_FLAGS - _STATE_WORDS] |= np.uint64(_ZERO_LISTED)
        self._words[_LISTED - _STATE_WORDS] += np.uint64(n)
        self._count(n, core.choices)
        return True

    def _add_on_host(self, digests: Any) -> Any:
        f = self.to_host()
        new = f.add_new_many(self._cupy.asnumpy(digests), digests=True)
        self._words.set(self._payload_of(f))
        return self._cupy.asarray(new.view(np.uint8))
