"""The contenders: our filters and their peers from PyPI, each by its fastest public interface.

    peer                 bulk add            bulk query                       single key
    abloom               update              [k in f for k in keys]           in, add
    rbloom               update              map(contains, repeat(f), keys)   in, add
    fastbloom-rs         add_int_batch, …    contains_int_batch, …            contains_int, add_int, …
    pybloomfiltermmap3   update              map(contains, repeat(f), keys)   in, add
    set                  update              [k in f for k in keys]           in, add

Only fastbloom-rs has a bulk query; the others get the fastest of three loops: a comprehension, a map of
operator.contains, and a map of f.__contains__, which was the slowest for nearly all. Peers take Python
objects: arrays become lists off the clock. Ours takes the array or the Arrow column in the bulk cases. `set`
is shown for orientation: it is no filter, and no target refers to it.
"""

from __future__ import annotations

import itertools
import operator
import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from benchmarks.harness import import_peer
from evenbins import BalancedBloomFilter, BlockedBloomFilter, BloomFilter, GrowingFilter

__all__ = [
    "FILTER_PEERS",
    "OTHERS",
    "OURS",
    "PEERS",
    "POLICIES",
    "STANDARD_PEERS",
    "Abloom",
    "Answers",
    "Balanced",
    "Blocked",
    "Fastbloom",
    "Fill",
    "Growing",
    "Keys",
    "Mmap3",
    "Multilevel",
    "Rbloom",
    "Set",
    "Standard",
    "Subject",
    "TwoChoice",
]

Answers = Sequence[bool] | npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Keys:
    """The same keys twice: as the column that ours reads in place, and as the list that peers need."""

    column: Any
    items: list[Any]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, part: slice) -> Keys:
        return Keys(self.column[part], self.items[part])


class Subject:
    """A filter in the form that the cases use; the defaults suit all that look like a set."""

    label: ClassVar[str]
    peer: ClassVar[str | None] = None  # its name in PEERS
    distribution: ClassVar[str | None] = None
    key_kinds: ClassVar[tuple[str, ...]] = ("int", "str")
    filter: Any

    def fill(self, keys: Keys) -> None:
        self.filter.update(keys.items)

    def ask(self, keys: Keys) -> Answers:
        filter_ = self.filter
        return [key in filter_ for key in keys.items]

    def look_up_each(self, keys: Keys) -> None:
        filter_ = self.filter
        for key in keys.items:
            key in filter_  # noqa: B015  # the look-up is the work

    def add_each(self, keys: Keys) -> None:
        filter_ = self.filter
        for key in keys.items:
            filter_.add(key)

    def clear(self) -> None:
        self.filter.clear()

    @property
    @abstractmethod
    def bits(self) -> int: ...


class Blocked(Subject):
    label = "evenbins blocked"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter: Any = BlockedBloomFilter(capacity, fpr=fpr)

    def fill(self, keys: Keys) -> None:
        self.filter.add_many(keys.column)

    def ask(self, keys: Keys) -> npt.NDArray[np.bool_]:
        answers: npt.NDArray[np.bool_] = self.filter.contains_many(keys.column)
        return answers

    @property
    def bits(self) -> int:
        return 8 * int(self.filter.nbytes)


class Standard(Blocked):
    label = "evenbins standard"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter = BloomFilter(capacity, fpr=fpr)


class Balanced(Blocked):
    policy: ClassVar[str]

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter = BalancedBloomFilter(capacity, fpr=fpr, policy=self.policy)


class TwoChoice(Balanced):
    label = "evenbins two-choice"
    policy = "two-choice"


class Fill(Balanced):
    label = "evenbins fill"
    policy = "fill"


class Multilevel(Balanced):
    label = "evenbins multilevel"
    policy = "multilevel"


class Sequential(Balanced):
    label = "evenbins sequential"
    policy = "sequential"


class Single(Balanced):
    label = "evenbins single"
    policy = "single"


class Growing(Blocked):
    label = "evenbins growing"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter = GrowingFilter(fpr, first=65_536)  # it is told no capacity: that is its point


class Abloom(Subject):
    label = peer = distribution = "abloom"
    serializable: ClassVar[bool] = False

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        module = import_peer("abloom", "abloom")
        self.filter = module.BloomFilter(capacity, fpr, serializable=self.serializable)

    @property
    def bits(self) -> int:
        return int(self.filter.bit_count)


class AbloomSerializable(Abloom):
    label = "abloom, serializable"
    serializable = True
    key_kinds = ("str",)  # it hashes ints as the other mode does


class Rbloom(Subject):
    label = peer = distribution = "rbloom"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter = import_peer("rbloom", "rbloom").Bloom(capacity, fpr)

    def ask(self, keys: Keys) -> Sequence[bool]:
        return list(map(operator.contains, itertools.repeat(self.filter), keys.items))

    @property
    def bits(self) -> int:
        return int(self.filter.size_in_bits)


class Fastbloom(Subject):
    label = peer = distribution = "fastbloom-rs"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        # The compiled class itself, which the package exports: its Python wrapper is half again as slow.
        self._builder = import_peer("fastbloom_rs", "fastbloom-rs").PyFilterBuilder(capacity, fpr)
        self.filter = self._builder.build_bloom_filter()
        self._add = getattr(self.filter, f"add_{kind}")
        self._contains = getattr(self.filter, f"contains_{kind}")
        self._add_batch = getattr(self.filter, f"add_{kind}_batch")
        self._contains_batch = getattr(self.filter, f"contains_{kind}_batch")

    def fill(self, keys: Keys) -> None:
        self._add_batch(keys.items)

    def ask(self, keys: Keys) -> Sequence[bool]:
        answers: Sequence[bool] = self._contains_batch(keys.items)
        return answers

    def look_up_each(self, keys: Keys) -> None:
        contains = self._contains
        for key in keys.items:
            contains(key)

    def add_each(self, keys: Keys) -> None:
        add = self._add
        for key in keys.items:
            add(key)

    @property
    def bits(self) -> int:
        return int(self._builder.size())


class Mmap3(Subject):
    label = peer = distribution = "pybloomfiltermmap3"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter = import_peer("pybloomfilter", "pybloomfiltermmap3").BloomFilter(capacity, fpr)

    ask = Rbloom.ask

    def clear(self) -> None:
        self.filter.clear_all()

    @property
    def bits(self) -> int:
        return int(self.filter.num_bits)


class Set(Subject):
    label = peer = "set"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter: set[Any] = set()

    @property
    def bits(self) -> int:
        return 8 * sys.getsizeof(self.filter)  # its table; the key objects come on top


OURS: tuple[type[Subject], ...] = (Blocked, Standard)
POLICIES: tuple[type[Balanced], ...] = (Fill, Multilevel, TwoChoice, Sequential, Single)
OTHERS: tuple[type[Subject], ...] = (Abloom, AbloomSerializable, Rbloom, Fastbloom, Mmap3, Set)
FILTER_PEERS = ("abloom", "rbloom", "fastbloom-rs", "pybloomfiltermmap3")
STANDARD_PEERS = ("rbloom", "fastbloom-rs", "pybloomfiltermmap3")
PEERS = (*FILTER_PEERS, "set")
