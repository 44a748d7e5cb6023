"""The kinds of structures, one row each; and `load` and `open`, which read whatever a file holds.

    file ──number in its header──▶ Kind ──▶ class ──▶ the object

Everything that treats several kinds derives its list from `KINDS`: the command line, merging, growing,
sharded and shared filters, the design search, the shared tests. A new family is a row here. Classes are
imported when they are first used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

from evenbins import _core, _files
from evenbins._core import FormatError
from evenbins._files import StrPath

__all__ = [
    "KINDS", "Kind", "kind_of_file", "kind_of_number", "kind_of_object", "kind_of_policy", "load", "named",
    "open", "that_can",
]  # fmt: skip


class Kind(NamedTuple):
    """A kind of structure: how files number it, what it is called, which class it has, what it can do.

    Attributes
    ----------
    number : its number in files; 0 for a folder of files
    name, title : as options and as messages name it
    home : module and class, as "filters.standard:BloomFilter"
    can : what it can do beside what every structure can
        members  answer whether a key is in it         merge    unite with another of the same plan
        remove   remove keys                           shard    be a part of a `ShardedFilter`
        grow     be a stage of a `GrowingFilter`       redis    be shared through Redis
        dask     be built by Dask workers              design   be proposed by `design`
        build    be built by `evenbins build`
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
        """The package that it is in: filters, tables, sketches or rings."""
        return self.home.split(".")[0]


def _kind(number: int, name: str, title: str, home: str, can: str, policies: str = "") -> Kind:
    return Kind(number, name, title, home, frozenset(can.split()), tuple(policies.split()))


_PLAIN = "members merge shard grow redis dask design build"
_PAGED = 13
_SUMMARY = "tables.summaries:"

KINDS: tuple[Kind, ...] = (
    _kind(1, "standard", "a standard filter", "filters.standard:BloomFilter", _PLAIN, "standard"),
    _kind(2, "blocked", "a blocked filter", "filters.blocked:BlockedBloomFilter", _PLAIN, "blocked"),
    _kind(3, "balanced", "a balanced filter", "filters.balanced:BalancedBloomFilter", _PLAIN,
          "single sequential multilevel fill two-choice"),
    _kind(4, "growing", "a growing filter", "filters.growing:GrowingFilter", "members merge build"),
    _kind(5, "counting", "a counting filter", "filters.counting:CountingBloomFilter", "members merge remove",
          "counting"),
    _kind(6, "count-min", "a count-min sketch", "sketches.countmin:CountMinSketch", "merge"),
    _kind(7, "multilevel-table", "a multilevel table", "tables.multilevel:MultilevelTable",
          "members merge remove design build"),
    _kind(8, "chained-table", "a chained table", "tables.chained:ChainedTable", "members remove design"),
    _kind(9, "interpolation-summary", "a summary", _SUMMARY + "InterpolationSummary", ""),
    _kind(10, "single-filter-summary", "a summary", _SUMMARY + "SingleFilterSummary", ""),
    _kind(11, "multiple-bloom-summary", "a summary", _SUMMARY + "MultipleBloomSummary", ""),
    _kind(12, "counter-summary", "a summary", _SUMMARY + "CounterSummary", ""),
    _kind(_PAGED, "paged-table", "a table in pages", "tables.paged:PagedTable", "members remove"),
    _kind(14, "ring", "a hash ring", "rings.ring:HashRing", "design"),
    _kind(0, "sharded", "a filter in shards", "filters.sharded:ShardedFilter", "members build design"),
)  # fmt: skip

_BY_NUMBER = {kind.number: kind for kind in KINDS}
_BY_POLICY = {policy: kind for kind in KINDS for policy in kind.policies}


def named(name: str) -> Kind:
    """Return the kind of a name."""
    return next(kind for kind in KINDS if kind.name == name)


def that_can(capability: str) -> Iterable[Kind]:
    """Return the kinds that can do something."""
    return [kind for kind in KINDS if capability in kind.can]


def kind_of_number(number: int) -> Kind | None:
    """Return the kind of a number in files; None if this version does not know it."""
    return _BY_NUMBER.get(number)


def kind_of_policy(policy: str) -> Kind:
    """Return the kind of filter that builds plans of a policy."""
    return _BY_POLICY[policy]


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
        It is nothing of ours, or of a kind that this version does not know.
    """
    name = os.fsdecode(path)
    if os.path.isfile(os.path.join(name, "manifest.json")):  # the one structure that is a folder
        return _BY_NUMBER[0]
    try:
        number = _number_in(_files.map_file(path))
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
    """Read a structure of any kind from a file into memory, every byte checked; see `BloomFilter.load`."""
    return kind_of_file(path).cls.load(path)


def open(path: StrPath, *, verify: bool = False) -> Any:
    """Map a structure of any kind from a file, read-only; see `BloomFilter.open`."""
    return kind_of_file(path).cls.open(path, verify=verify)
