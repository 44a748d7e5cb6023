"""What the filters share: one set of methods (`protocols.Filter`) over the core's class.

Single keys go through the compiled core's type slots; bulk calls release the GIL. Bulk calls, threads and
single calls leave the same bytes.
"""

from __future__ import annotations

import inspect
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sized
from functools import wraps
from types import MethodDescriptorType
from typing import Any, ClassVar, Concatenate, ParamSpec, Self

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core, structure
from evenbins._keywords import check_call
from evenbins.filters.answered import answers_in_errors
from evenbins.filters.from_keys import FromKeys
from evenbins.filters.plan import OVERFILLED, FilterPlan, FilterStats
from evenbins.filters.protocols import OverfilledWarning, side_by_side
from evenbins.filters.set_algebra import SetAlgebra, require_same_plan
from evenbins.structure import Mergeable

__all__ = ["HASHING", "HASHING_NAMES", "BaseFilter", "build", "class_for", "file_header", "planned_by"]

HASHING = {
    "independent": 1, "lanes": 2, "partition": 3, "double": 4, "enhanced-double": 5,
    "enhanced-double-cube": 6, "enhanced-double-tetrahedral": 7, "triple": 8,
}  # fmt: skip
_KEYS_PER_CHECK = 100_000  # at least so many between two checks whether a filter is overfilled
HASHING_NAMES = {number: name for name, number in HASHING.items()}
_P = ParamSpec("_P")


def planned_by(
    planner: Callable[_P, FilterPlan],
) -> Callable[[Callable[[Any], None]], Callable[Concatenate[Any, _P], None]]:
    """Return a decorator that makes `__init__` take what the planner takes, and build what it plans."""

    asked = inspect.signature(planner)

    def decorate(method: Callable[[Any], None]) -> Callable[Concatenate[Any, _P], None]:
        @wraps(method)
        def plan_and_build(self: Any, /, *args: _P.args, **options: _P.kwargs) -> None:
            try:
                plan = planner(*args, **options)
            except TypeError:
                check_call(type(self).__name__, asked, args, options)  # not in the planner's name
                raise
            self._warn_of_plan(plan)
            self._build(plan)

        first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = asked.replace(parameters=[first, *asked.parameters.values()], return_annotation=None)
        plan_and_build.__signature__ = signature  # type: ignore[attr-defined]
        return plan_and_build

    return decorate


_IN_CACHE = 1 << 25  # bytes


class BaseFilter(_core.Filter, SetAlgebra, FromKeys, Mergeable[FilterPlan]):
    """The methods that all filters share; a subclass says its kind, its policy and how it measures itself."""

    # No instance dictionary: Python finds `add` faster on objects that have none.
    __slots__ = ("_cached_plan", "_keys_to_check")

    _kind: ClassVar[int]
    _keys_for_threads: ClassVar[int] = 0  # with fewer, None is one thread
    _plan_class: ClassVar[type[FilterPlan]]
    _planner: ClassVar[Callable[..., FilterPlan]]
    _policies: ClassVar[tuple[str, ...]]
    _keys_to_check: float  # that bulk calls may add before the filter is measured; unset: 1.1 * capacity

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        kind = structure.kind_of_number(cls._kind)
        assert kind is not None
        cls._policies = kind.policies
        if all(isinstance(each, MethodDescriptorType) for each in (cls.add, cls.add_new)):
            _core.bind_add(cls)  # unless somebody overrides one in Python

    @property
    def _policy(self) -> str:
        """The plan's policy, as the integer core tells it."""
        return self._policies[0]

    @staticmethod
    def _warn_of_plan(plan: FilterPlan) -> None:
        """Warn of what a plan that the constructor made has to be known for."""

    @classmethod
    def from_plan(cls, plan: FilterPlan) -> Self:
        """Build the filter of a plan, as the constructor does after planning.

        Examples
        --------
        >>> from evenbins.filters import BloomFilter, plan_standard
        >>> BloomFilter.from_plan(plan_standard(1000, fpr=1e-3)).plan.hashes
        10
        """
        if isinstance(plan, FilterPlan) and plan.policy not in cls._policies:
            got = f"got {plan.policy!r}. Use {class_for(plan).__name__}.from_plan"
            raise ValueError(f"plan must have one of the policies {', '.join(cls._policies)}; {got}")
        return super().from_plan(plan)

    def _core_arguments(self, plan: FilterPlan) -> tuple[Any, ...]:
        remedy = "Pass a plan as its planner returns it"
        hashing = HASHING[arguments.one_of("plan.hashing", plan.hashing, tuple(HASHING), remedy)]
        return self._kind, hashing, plan.seed, plan.keys, list(plan.core)

    def _plan_of_core(self) -> FilterPlan:
        hashing = HASHING_NAMES[self._hashing]
        return self._plan_class.of_core(self._policy, self._core, self._capacity, self._seed, hashing)

    def _shown(self) -> list[tuple[str, object]]:
        plan = self.plan
        return [
            ("capacity", plan.keys), ("fpr", plan.fpr), ("bits_per_key", plan.bits_per_key),
            ("hashes", plan.hashes), ("nbytes", plan.nbytes),
        ]  # fmt: skip

    def _compared(self) -> list[tuple[str, object, object]]:
        return side_by_side(self.plan, self.stats())

    # --- keys in, answers out ----------------------------------------------------------------------

    def update(self, *keys: object) -> None:
        """Add the keys of each argument, as `set.update` does; see `add_many`.

        Examples
        --------
        >>> from evenbins import BloomFilter
        >>> f = BloomFilter(100)
        >>> f.update(["a", b"b", 3], range(10))
        >>> "a" in f and "b" in f and 9 in f
        True
        """
        for each in keys:
            self.add_many(each)

    def add_many(self, keys: object, *, digests: bool = False, threads: int | None = None) -> None:
        """Add many keys: a NumPy array, an Arrow column or stream, or any iterable.

        The GIL is released where the keys can be read without Python. If a key is refused, the keys
        before it are in and the error says where it was. Ctrl-C stops the call; the filter stays usable.

        Parameters
        ----------
        keys
            Integers, strings or bytes. NumPy `S` and `U` arrays hold no trailing NULs: pass keys that
            end in NUL as a list or an Arrow column.
        digests
            The keys are digests already, as `digest_many` makes them with this filter's seed (uint64).
        threads
            The most threads that share the work (None: as many as pay off, up to the cores of this process);
            the result does not depend on it. An iterable is hashed by one.

        Warns
        -----
        OverfilledWarning
            Once per filter: it holds over 1.1 times the keys that it was planned for. Measured when bulk
            calls have added as many, repeats included, and seldom enough to cost little;
            `stats().overfilled` is exact at any time.
        """
        source, shape = _bulk.key_source(keys, digests=digests)
        number = math.prod(shape) if shape is not None else _length(keys)
        few = threads is None and 0 < number < self._keys_for_threads
        self._add_from(source, _bulk.checked_threads(1 if few else threads))
        self._count_added(number)

    def add_new_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Add the keys that are not present; return for each key whether it was new.

        True for the first occurrence of each key that was not in before: one pass, in the order of the keys,
        so that answers and bytes depend neither on `threads` nor on how the keys are divided into calls.
        A new key that collides with those before it gets False, with probability `stats().fpr`. Takes what
        `add_many` takes; the answers have the shape of a NumPy array of keys. Calls from several threads take
        turns: of two that add one key, one gets True. A counting filter counts a key once, however often it
        comes. An exception (a bad key, Ctrl-C, FilterFullError) has the attribute `answers`: those of the
        keys before, which are in.

        Examples
        --------
        >>> from evenbins import BlockedBloomFilter
        >>> f = BlockedBloomFilter(100, fpr=1e-6)
        >>> f.add_new_many(["a", "b", "a"])
        array([ True,  True, False])
        >>> f.add_new("b"), f.add_new("c")
        (False, True)
        """
        with answers_in_errors() as found:
            source, shape = _bulk.key_source(keys, digests=digests)
            alone = threads is None and self.nbytes < _IN_CACHE  # two threads take 1.4 times as long there
            found.append(self._add_new_from(source, _bulk.checked_threads(1 if alone else threads)))
            self._count_added(int(np.count_nonzero(found[0])))
        return found[0] if shape is None else found[0].reshape(shape)

    def _count_added(self, count: int) -> None:
        """Count the keys that a bulk call has added, and measure the filter when they may be too many."""
        left = getattr(self, "_keys_to_check", OVERFILLED * self._capacity) - count
        self._keys_to_check = left
        if left < 0:
            self._warn_if_overfilled()

    def _warn_if_overfilled(self) -> None:
        """Measure the filter, and set the keys that may be added before it is measured again."""
        keys, found = self.approx_items(), self.stats()  # distinct keys, of counting filters too
        if keys <= OVERFILLED * self._capacity or found.fpr <= self.plan.fpr:
            self._keys_to_check = max(self._capacity, _KEYS_PER_CHECK)
            return
        self._keys_to_check = math.inf  # before the warning, which may be an error
        warnings.warn(
            f"{type(self).__name__} planned for {self._capacity} keys holds about {keys:.3g}: "
            f"its fpr is {found.fpr:.2g}, planned {self.plan.fpr:.2g}. "
            "Plan for more keys, or use GrowingFilter",
            OverfilledWarning,
            stacklevel=3,
        )

    def contains_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Answer `key in self` for many keys: an array of bool, in the shape of a NumPy array of keys.

        Takes what `add_many` takes, `threads` included.

        Examples
        --------
        >>> from evenbins import BlockedBloomFilter
        >>> f = BlockedBloomFilter(100, fpr=1e-6)
        >>> f.add_many(["one", "two"])
        >>> f.contains_many(["two", "three"])
        array([ True, False])
        """
        source, shape = _bulk.key_source(keys, digests=digests, single="`key in f`")
        answers = self._contains_from(source, _bulk.checked_threads(threads))
        return answers if shape is None else answers.reshape(shape)

    def _remove_all(self, keys: object, digests: bool, threads: int | None) -> npt.NDArray[np.bool_]:
        """Remove many keys, of a filter that can."""
        source, shape = _bulk.key_source(keys, digests=digests, single="remove(key)")
        removed = self._remove_from(source, _bulk.checked_threads(threads))
        return removed if shape is None else removed.reshape(shape)

    def _count_all(self, keys: object, digests: bool, threads: int | None) -> npt.NDArray[np.int64]:
        """Count the copies of many keys, of a filter that can."""
        source, shape = _bulk.key_source(keys, digests=digests, single="count(key)")
        counts = self._count_from(source, _bulk.checked_threads(threads)).view(np.int64)  # by this name
        return counts if shape is None else counts.reshape(shape)

    # --- the filter as a whole ---------------------------------------------------------------------

    def _require_room_for(self, other: Self) -> None:
        """Raise what a merge with this filter would, if that cannot be told before a filter has grown."""

    def _as_large(self, other: Self) -> Self:
        """Return a filter to merge with this one in its size, where filters have several."""
        return other

    def __ior__(self, other: Self) -> Self:
        if isinstance(other, type(self)):
            require_same_plan(self, other, "merge")
        return super().__ior__(other)

    @abstractmethod
    def stats(self) -> FilterStats:
        """Measure this very filter: computed from its bits, in one pass over them."""

    def approx_items(self) -> float:
        """Estimate the number of distinct keys added, from the set bits; infinite when all are set."""
        return self.stats().keys

    @property
    def capacity(self) -> int:
        """The number of keys the filter was planned for."""
        return self._capacity

    def clear(self) -> None:
        """Remove all keys."""
        self._clear()
        self._keys_to_check = OVERFILLED * self._capacity

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        broken = self._invariant()
        assert not broken, broken
        assert memoryview(self).nbytes == self.nbytes == self.plan.nbytes
        assert self.plan.core == tuple(self._core)
        assert 0 <= self._set_bits() <= 8 * self.nbytes


def _length(keys: object) -> int:
    """Return len(keys), or 0 for keys that have none: some have the method, and it raises (tqdm's)."""
    try:
        return len(keys) if isinstance(keys, Sized) else 0
    except Exception:  # nothing that a length is asked for may fail the call
        return 0


def build(plan: FilterPlan) -> BaseFilter:
    """Build the filter of a plan, whatever its policy."""
    return class_for(plan).from_plan(plan)


def class_for(plan: FilterPlan) -> type[BaseFilter]:
    """Return the class that builds a plan."""
    cls: type[BaseFilter] = structure.kind_of_policy(plan.policy).cls
    return cls


def file_header(plan: FilterPlan, payload: object) -> bytes:
    """Return the header of the file of a filter that has this plan and these bytes."""
    kind, hashing = structure.kind_of_policy(plan.policy).number, HASHING[plan.hashing]
    return _core.file_header(kind, hashing, plan.seed, plan.keys, list(plan.core), payload)
