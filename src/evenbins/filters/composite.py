"""Filters made of filters: what growing and sharded ones share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MethodDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core, _files, _show
from evenbins.filters.answered import answers_in_errors
from evenbins.filters.balanced import BalancedPlan, BalancedStats
from evenbins.filters.base import BaseFilter
from evenbins.filters.from_keys import FromKeys
from evenbins.filters.plan import FilterPlan
from evenbins.filters.protocols import side_by_side
from evenbins.filters.set_algebra import SetAlgebra
from evenbins.structure import KINDS

__all__ = ["CompositeFilter", "CompositePlan", "CompositeStats"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompositePlan(BalancedPlan):
    """The plan of a filter made of filters, as one; its parts may be balanced filters or others.

    `core` is the integers that the whole was built with.
    """

    _to_merge: ClassVar[str]  # how to predict a merged one

    def planned_loads(self, blocks: int) -> Sequence[npt.NDArray[np.float64]]:
        """Return nothing: the parts have loads of their own."""
        return ()

    def merged(self, parts: int) -> FilterPlan:
        """Raise ValueError: only the parts are merged."""
        quoted = ", ".join(f'"{policy}"' for kind in KINDS for policy in kind.policies)
        raise arguments.error("policy", f"one of {quoted}", self.policy, self._to_merge)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompositeStats(BalancedStats):
    """What a filter made of filters measures on itself: its parts together."""


class CompositeFilter(SetAlgebra, FromKeys, _files.Persistent):
    """The methods that do not depend on how keys find their part.

    A class has its own attributes in `__slots__`, so that `__dict__` holds those of subclasses alone.
    """

    __slots__ = ()
    _own: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if all(isinstance(each, MethodDescriptorType) for each in (cls.add, cls.add_new)):
            cls._bind_single_keys(cls)  # unless somebody overrides one in Python

    if TYPE_CHECKING:  # what a class says

        @property
        def _seed(self) -> int: ...
        @property
        def _filters(self) -> tuple[BaseFilter, ...]: ...
        @property
        def plan(self) -> CompositePlan:
            """The design of the whole, and the behaviour it predicts."""

        def stats(self) -> CompositeStats:
            """Measure this very filter: its parts together."""

        @staticmethod
        def _bind_single_keys(cls: Any, /) -> None: ...
        def add(self, key: _bulk.Key, /) -> None:
            """Add one key."""

        def add_new(self, key: _bulk.Key, /) -> bool:
            """Add the key unless it is present, and return whether it was new."""

        def _add_from(self, keys: _core.KeySource, threads: int) -> None: ...
        def _add_new_from(self, keys: _core.KeySource, threads: int) -> npt.NDArray[np.bool_]: ...
        def _contains_from(self, keys: _core.KeySource, threads: int) -> npt.NDArray[np.bool_]: ...
        def _copy_parts_to(self, twin: Self) -> None: ...
        def __ior__(self, other: Self) -> Self: ...
        def _shown(self) -> list[tuple[str, object]]: ...

    def update(self, *keys: object) -> None:
        """Add the keys of each argument, as `set.update` does; see `add_many`."""
        for each in keys:
            self.add_many(each)

    def add_many(self, keys: object, *, digests: bool = False, threads: int | None = None) -> None:
        """Add many keys; takes what `BloomFilter.add_many` takes.

        Keys are added piece by piece, in constant memory. If a key is refused or the call is interrupted, the
        keys before it are in, no other, and the error says how many these are. The bytes do not depend on
        `threads`. These hash the keys; in a growing filter they ask all stages but the newest, and share the
        newest if it is a standard or blocked filter; in a sharded filter each adds to a shard of its own.
        """
        threads = _bulk.checked_threads(threads)
        source, _ = _bulk.key_source(keys, digests=digests)
        self._require_writable()
        self._add_from(source, threads)

    def add_new_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Add the keys that are not present; return for each key whether it was new.

        As `BloomFilter.add_new_many`; for `threads` see `add_many`. If a shard is full, some keys after those
        that `answers` has may be in.
        """
        with answers_in_errors():
            threads = _bulk.checked_threads(threads)
            source, shape = _bulk.key_source(keys, digests=digests)
            self._require_writable()
            answers = self._add_new_from(source, threads)
        return answers if shape is None else answers.reshape(shape)

    def contains_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Answer `key in self` for many keys: an array of bool, in the shape of a NumPy array of keys."""
        threads = _bulk.checked_threads(threads)
        source, shape = _bulk.key_source(keys, digests=digests, single="`key in f`")
        answers = self._contains_from(source, threads)
        return answers if shape is None else answers.reshape(shape)

    def _require_writable(self) -> None:
        if self._filters[-1]._read_only:
            raise ValueError(
                "this filter is open read-only: use load() or copy() for one that can be changed"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self._filters)

    @property
    def seed(self) -> int:
        """The seed of the digests. Filters with different seeds cannot be merged."""
        return self._seed

    def copy(self) -> Self:
        """Make an independent copy; it can be changed even if this filter is open read-only."""
        twin = type(self).__new__(type(self))
        for name in self._own:
            setattr(twin, name, getattr(self, name))
        self._copy_parts_to(twin)
        _files.attributes_of(twin).update(_files.attributes_of(self))
        return twin

    def __or__(self, other: Self) -> Self:
        return self.copy().__ior__(other) if isinstance(other, CompositeFilter) else NotImplemented

    __array_ufunc__ = None

    def __repr__(self) -> str:
        rows = self._shown()
        if self._seed:
            rows.append(("seed", "set"))
        if self._filters[-1]._read_only:
            rows.append(("open", "read-only"))
        return _show.line(type(self).__name__, rows)

    def _repr_html_(self) -> str:
        rows: Any = side_by_side(self.plan, self.stats())
        return _show.html_comparison(type(self).__name__, ("plan", "stats()"), rows)
