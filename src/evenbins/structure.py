"""What every structure is, the registry of their kinds, and `load` and `open`, which read any of them.

    file ──number in its header──▶ Kind ──▶ class ──▶ the object

`load`, `open`, the command line, merging and the design search derive their lists from `KINDS`. Growing,
sharded and shared filters have lists of policies of their own, whose order is in files;
tests/unit/test_kinds.py compares them with `KINDS`. A new family is a row here. Classes are imported when
they are first used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from evenbins import _arguments as arguments
from evenbins import _core, _files, _mapped_files, _show
from evenbins._core import FormatError
from evenbins._files import StrPath
from evenbins._plan_integers import check_integers, unbuildable
from evenbins.errors import ArgumentError

__all__ = [
    "KINDS", "Kind", "Mergeable", "Plan", "Structure", "kind_of_file", "kind_of_number", "kind_of_object",
    "kind_of_policy", "load", "open", "refuse_damaged", "that_can",
]  # fmt: skip


_P = TypeVar("_P")


class Plan(_show.ReprMixin):
    """A design and what it predicts: equality and hash look at the fields that `_identity` names, alone."""

    __slots__ = ()
    _identity: ClassVar[tuple[str, ...]] = ("keys", "seed", "core")

    def _identifying(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self._identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._identifying() == other._identifying()

    def __hash__(self) -> int:
        return hash(self._identifying())


class Structure(_files.Persistent, Generic[_P]):
    """A plan's integer core, filled: what filters, tables, sketches and summaries in memory have in common.

    A class derives from one of the core and from this one, and implements how its plan becomes the core's
    arguments, how a plan follows from a core, and what `repr` shows.
    """

    if TYPE_CHECKING:
        __slots__ = ("_cached_plan",)
    else:
        __slots__ = ()  # a class of the core has its layout, and a class of ours adds this slot
    _kind: ClassVar[int | None] = None  # for classes that share one of the core
    _plan_class: ClassVar[type]
    _side_by_side: ClassVar[tuple[str, ...]] = ()
    _noun: ClassVar[str] = "table"  # what a message about a header calls it
    _cached_plan: _P | None

    if TYPE_CHECKING:

        @property
        def _seed(self) -> int: ...
        @property
        def _read_only(self) -> bool: ...
        @property
        def _core(self) -> list[int]: ...
        def _invariant(self) -> str: ...

    # --- what a class implements ---------------------------------------------------------------------------

    def _core_arguments(self, plan: _P) -> tuple[Any, ...]:
        """Return the arguments of the core's constructor: those of a table, unless a class says otherwise."""
        design: Any = plan
        return design.keys, design.seed, list(design.core)

    def _plan_of_core(self) -> _P:
        """Predict the behaviour of this structure from its core."""
        raise NotImplementedError

    def _shown(self) -> list[tuple[str, object]]:
        """Return what `repr` shows: name and value."""
        raise NotImplementedError

    def _compared(self) -> list[tuple[str, object, object]]:
        """Return what a notebook shows: name, planned value, measured value."""
        plan, stats = self.plan, self.stats()
        return [(name, getattr(plan, name), getattr(stats, name)) for name in self._side_by_side]

    def stats(self) -> Any:
        """Measure this very structure."""
        raise NotImplementedError

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        broken = self._invariant()
        assert not broken, broken
        plan: Any = self.plan
        assert self.nbytes == plan.nbytes  # type: ignore[attr-defined]
        assert plan.core == tuple(self._core)

    # --- what follows --------------------------------------------------------------------------------

    @classmethod
    def _core_class(cls) -> Any:
        return next(each for each in cls.__mro__ if each.__module__ == _core.__name__)

    @classmethod
    def from_plan(cls, plan: _P) -> Self:
        """Build the structure of a plan, as the constructor does after planning."""
        if not isinstance(plan, cls._plan_class):
            raise TypeError(f"plan must be a {cls._plan_class.__name__}, not {type(plan).__name__}")
        check_integers(plan)
        structure = cls.__new__(cls)
        try:
            structure._build(plan)
        except ValueError as error:
            raise unbuildable(plan, error) from None
        return structure

    def _build(self, plan: _P) -> None:
        self._core_class().__init__(self, *self._core_arguments(plan))
        self._cached_plan = plan

    @property
    def plan(self) -> _P:
        """The design, and the behaviour it predicts with as many keys as it was planned for."""
        plan = getattr(self, "_cached_plan", None)
        if plan is None:
            plan = self._plan_of_core()
            self._cached_plan = plan
        return plan

    @property
    def seed(self) -> int:
        """The seed of the digests. Structures with different seeds cannot be merged."""
        return self._seed

    def copy(self) -> Self:
        """Make an independent copy; it can be changed even if this one is open read-only.

        Raises
        ------
        FormatError
            A table, or a filter that holds fingerprints, is open read-only and unverified, and its file is
            damaged: look-ups tolerate that, changes do not.
        """
        self._refuse_damaged()
        twin = type(self).__new__(type(self))
        self._core_class().__init__(twin, self)
        twin._cached_plan = getattr(self, "_cached_plan", None)
        _files.attributes_of(twin).update(_files.attributes_of(self))
        return twin

    def _refuse_damaged(self) -> None:
        """Check what a copy would rely on, if it is mapped and unverified: `refuse_damaged`, for some."""

    @classmethod
    def _from_data(cls, data: Any, *, mapped: bool, verify: bool) -> Self:
        structure = cls.__new__(cls)
        kind = () if cls._kind is None else (cls._kind,)
        cls._core_class().__init__(structure, data, *kind, mapped, verify)
        try:
            structure._check_core()
        except ArgumentError as error:
            raise FormatError(f"the header describes no possible {cls._noun}: {error}") from None
        return structure

    def _check_core(self) -> None:
        """Raise ArgumentError if no plan has this core; for what the compiled class does not check."""

    __array_ufunc__ = None  # `structure | array` is an error; NumPy must not handle it

    def __repr__(self) -> str:
        rows = self._shown()
        if self._seed:
            rows.append(("seed", "set"))  # a seed may be a secret
        if self._read_only:
            rows.append(("open", "read-only"))
        return _show.line(type(self).__name__, rows)

    def _repr_html_(self) -> str:
        return _show.html_comparison(type(self).__name__, ("plan", "stats()"), self._compared())


def refuse_damaged(mapped: Any) -> None:
    """Check a structure that is mapped, maybe unverified, before others are made of what it holds."""
    if mapped._read_only and (broken := mapped._invariant()):
        text = f"the mapped file is damaged: {broken}. Open it with verify=True to be told at once"
        raise FormatError(text)


class Mergeable(Structure[_P]):
    """A structure that unites with another of the same plan."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _merge(self, other: Self, /) -> None: ...

    def __ior__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        self._merge(other)
        return self

    def __or__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        merged = self.copy()
        merged |= other
        return merged


class Kind(NamedTuple):
    """A kind of structure: how files number it, what it is called, which class it has, what it can do.

    Attributes
    ----------
    number : its number in files; 0 for a folder of files
    name, title : as options and as messages name it
    home : module and class, as "filters.standard:BloomFilter"
    can : what it can do besides what every structure can
        members  answer whether a key is in it         merge    unite with another of the same plan
        remove   remove keys                           shard    be a part of a `ShardedFilter`
        grow     be a stage of a `GrowingFilter`       redis    be shared through Redis
        dask     be built by Dask workers              design   be proposed by `design`
        build    be built by `evenbins build`          lab      be shown on a page of `evenbins lab`
        intersect  be intersected and compared bit by bit: a key's bits are its own
        fixed-set  be built from all its keys at once, and never change
        window   let keys expire                       cuda     be in the memory of a GPU
    policies : the policies of plans that this class builds
    """

    number: int
    name: str
    title: str
    home: str
    can: frozenset[str]
    policies: tuple[str, ...]

    @property
    def cls(self) -> Any:
        """The class, imported if need be."""
        module, name = self.home.split(":")
        return getattr(import_module(f"evenbins.{module}"), name)

    @property
    def family(self) -> str:
        """The package that it is in: filters, tables, sketches, rings, deduplication or study."""
        return self.home.split(".")[0]


def _kind(number: int, name: str, title: str, home: str, can: str, policies: str = "") -> Kind:
    return Kind(number, name, title, home, frozenset(can.split()), tuple(policies.split()))


_PLAIN = "members merge shard grow redis dask design build lab cuda"
_BITS = _PLAIN + " intersect"
_PAGED = 13
_SUMMARY = "tables.summaries:"

KINDS: tuple[Kind, ...] = (
    _kind(1, "standard", "a standard filter", "filters.standard:BloomFilter", _BITS, "standard"),
    _kind(2, "blocked", "a blocked filter", "filters.blocked:BlockedBloomFilter", _BITS, "blocked"),
    _kind(3, "balanced", "a balanced filter", "filters.balanced:BalancedBloomFilter", _PLAIN,
          "single sequential multilevel fill two-choice"),
    _kind(4, "growing", "a growing filter", "filters.growing:GrowingFilter", "members merge build"),
    _kind(5, "counting", "a counting filter", "filters.counting:CountingBloomFilter",
          "members merge remove design build", "counting"),
    _kind(6, "count-min", "a count-min sketch", "sketches.countmin:CountMinSketch", "merge cuda"),
    _kind(7, "multilevel-table", "a multilevel table", "tables.multilevel:MultilevelTable",
          "members merge remove design build lab"),
    _kind(8, "chained-table", "a chained table", "tables.chained:ChainedTable", "members remove"),
    _kind(9, "interpolation-summary", "a summary", _SUMMARY + "InterpolationSummary", "design"),
    _kind(10, "single-filter-summary", "a summary", _SUMMARY + "SingleFilterSummary", "design"),
    _kind(11, "multiple-bloom-summary", "a summary", _SUMMARY + "MultipleBloomSummary", "design"),
    _kind(12, "counter-summary", "a summary", "study.counter_summary:CounterSummary", ""),
    _kind(_PAGED, "paged-table", "a table in pages", "tables.paged:PagedTable", "members remove"),
    _kind(14, "ring", "a hash ring", "rings.ring:HashRing", "design lab"),
    _kind(15, "hyperloglog", "a HyperLogLog", "sketches.hyperloglog:HyperLogLog", "merge"),
    _kind(16, "heavy-hitters", "a list of heavy hitters", "sketches.heavy_hitters:HeavyHitters", "merge"),
    _kind(17, "deduplicator", "a Deduplicator", "deduplication.deduplicator:Deduplicator", "members merge"),
    _kind(18, "fingerprint", "a fingerprint filter", "filters.fingerprint:FingerprintFilter",
          "members merge remove grow shard dask design build cuda", "fingerprint"),
    _kind(19, "fuse", "a fuse filter", "filters.fuse:FuseFilter", "members fixed-set design build", "fuse"),
    _kind(20, "window", "a window filter", "filters.window:WindowFilter", "members window design", "window"),
    _kind(0, "sharded", "a filter in shards", "filters.sharded:ShardedFilter", "members design"),
)  # fmt: skip

_BY_NUMBER = {kind.number: kind for kind in KINDS}
_BY_POLICY = {policy: kind for kind in KINDS for policy in kind.policies}


def that_can(capability: str) -> Iterable[Kind]:
    """Return the kinds that can do something."""
    return [kind for kind in KINDS if capability in kind.can]


def kind_of_number(number: int) -> Kind | None:
    """Return the kind of a number in files; None if this version does not know it."""
    return _BY_NUMBER.get(number)


def kind_of_policy(policy: str) -> Kind:
    """Return the kind of filter that builds plans of a policy."""
    return _BY_POLICY[arguments.one_of("policy", policy, tuple(_BY_POLICY), "Pass a filter's plan.policy")]


def kind_of_object(structure: object) -> Kind:
    """Return the kind of an object, also of a subclass of ours."""
    homes = {f"evenbins.{kind.home}".replace(":", "."): kind for kind in KINDS}
    names = (f"{cls.__module__}.{cls.__qualname__}" for cls in type(structure).__mro__)
    return next(homes[name] for name in names if name in homes)


def kind_of_file(path: StrPath) -> Kind:
    """Return the kind that a file or folder holds.

    Raises
    ------
    FormatError
        It is not a file of evenbins, or of a kind that this version does not know.
    """
    name = os.fsdecode(path)
    if os.path.isfile(os.path.join(name, "manifest.json")):  # the one structure that is a folder
        return _BY_NUMBER[0]
    try:
        number = _number_in(_mapped_files.map_file(path))
        if number not in _BY_NUMBER:
            raise FormatError(f"it holds kind {number}, which this version does not know")
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None
    return _BY_NUMBER[number]


def _number_in(data: Any) -> int:
    head = next((data[at : at + 16] for at in (0, 4096) if data[at : at + 8] == b"EVENBINS"), b"")
    if int.from_bytes(head[12:16], "little") == _PAGED:  # it has two headers, of which one may be damaged
        return _PAGED
    return _core.file_kind(data)


def load(path: StrPath) -> Any:
    """Read a structure of any kind from a file into memory, every byte checked; see `BloomFilter.load`.

    A table in pages stays in its file: it is opened.
    """
    kind = kind_of_file(path)
    return kind.cls.open(path) if kind.number == _PAGED else kind.cls.load(path)


def open(path: StrPath, *, verify: bool = False, preload: bool = False) -> Any:
    """Map a structure of any kind from a file, read-only; see `BloomFilter.open`."""
    return kind_of_file(path).cls.open(path, verify=verify, preload=preload)
