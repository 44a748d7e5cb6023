"""A filter for an unknown number of keys: stages of growing size, whose rates sum to the promise.

    stage 0   │ 2**16 keys │   rate  r
    stage 1   │ 2**17 keys     │   r/4
    stage 2   │ 2**18 keys             │   r/9          r = fpr * 6/pi**2, so that r (1 + 1/4 + 1/9 + …) = fpr
    …

A key goes into the newest stage, unless some stage has it already; when the stage has as many keys as it
was planned for, the next begins. A look-up asks the stages in turn, the newest, which has most keys, first.
So the rate is at most the promise however many keys come (in the mean: a filter whose stages have few blocks
may lie above it), at the price of more reads (the sum over the stages) and of somewhat more memory: the
rate of stage i shrinks as 1/(i+1)**2, which costs 2.9 log2(i+1) bits per key.

Invariants: every stage but the newest has the keys it was planned for, and no more, unless filters were
merged; the newest has fewer; no count exceeds 2**48. A file that says otherwise is refused. A stage of
fingerprints may have fewer: digests that somebody chose can fill its overflow list, and the next stage
begins. The same keys in the same order give the same bytes, one by one or in bulk. A stage's bits and its
count of keys change in one step of the core, and the key that fills a stage goes in together with the next
stage, so all this holds after an exception at any point, one raised by a signal handler included
(cpp/bindings/stages.cpp).

The end: a key shares its 64-bit digest with one of n others with probability n / 2**64, and no stage can be
planned for less than twice that. Rates fall and stages grow, so some stage is the last: `max_keys` says how
many keys all of them hold. The key after these is refused, and is not in.

Threads: look-ups may run at any time; writers take turns, a bulk call on an array being one step
(docs/concurrency.md).

Tried and dropped: rates that halve from stage to stage, as scalable Bloom filters are usually built
(Almeida, Baquero, Preguiça, Hutchison, "Scalable Bloom filters", 2007): they cost 1.44 bits per key for
each stage, 13 more in the tenth, where the squares cost 9.6.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from evenbins import _arguments as arguments
from evenbins import _core, _files, structure
from evenbins._core import FormatError
from evenbins._files import StrPath
from evenbins._keywords import explain_keywords
from evenbins.filters.base import BaseFilter, build
from evenbins.filters.composite import CompositeFilter, CompositePlan, CompositeStats
from evenbins.filters.plan import FilterPlan, FilterStats
from evenbins.filters.set_algebra import items_in_one_stage
from evenbins.filters.stage_plans import LEAST_FINGERPRINT_RATE, StageRequest, keys_of_stage
from evenbins.theory.fpr import digest_floor

__all__ = ["GrowingFilter", "GrowingPlan"]

_T = TypeVar("_T")

_KIND, _LANES = 4, 2
_POLICIES = ("single", "sequential", "multilevel", "fill", "two-choice", "blocked", "standard", "fingerprint")
_MOST_STAGES = 48
_MOST_KEYS = 1 << 48  # of a stage; counts of filters merged again and again stop there
_LEAST_GROWTH = 8  # the least number of keys that a filter must be able to hold, in units of its first stage
_ABOVE_FLOOR = 2.001  # the least rate of a stage, in units of the digests' own: what every planner reaches
_LINE = 64


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GrowingPlan(CompositePlan):
    """The plan of a growing filter as large as it is now; hashes and the like are the newest stage's."""

    _to_merge = "Plan a stage, with plan_balanced"

    def with_keys(self, keys: int) -> FilterPlan:
        """Return this plan: with more keys there is one more stage, and the rate does not rise."""
        return self


class GrowingFilter(_core.Stages, CompositeFilter):
    """A membership filter for an unknown number of keys, with a promised false-positive rate.

    It has the methods of the other filters. `plan` describes it as large as it is now. The key after
    `max_keys` raises a ValueError, and is not in.

    Parameters
    ----------
    fpr
        The false-positive rate, for any number of keys up to `max_keys`, which 64-bit digests limit: 8.8e12
        keys for a rate of 1e-3, 1.7e10 for 1e-6, 6.7e7 for 1e-9.
    first
        Keys of the first stage; every stage has `growth` times the keys of the one before. A rate so low
        that the filter could not grow to 8 times `first` is refused.
    policy
        Of the stages: "fill" (the default), or any other policy of `BalancedBloomFilter`, "blocked",
        "standard"; or "fingerprint", whose stages double by themselves: the first from `first` keys to 256
        times as many (fewer at rates below 2e-7), so that a look-up reads one line until then.
    block_bits, seed
        As for the other filters.

    Examples
    --------
    >>> f = GrowingFilter(1e-3, first=1000)
    >>> f.add_many(range(10_000))
    >>> 9_999 in f, f.stages, f.stats().fpr <= 1e-3
    (True, 4, True)
    """

    _own = ("_fpr", "_first", "_growth", "_policy", "_block_bits")
    __slots__ = ("__dict__", *_own)
    _stages: tuple[BaseFilter, ...]  # of the core
    _bind_single_keys = staticmethod(_core.bind_add_to_stages)
    _capacity_name = "first"

    @explain_keywords
    def __init__(
        self,
        fpr: float = 0.01,
        *,
        first: int = 1 << 16,
        growth: int = 2,
        policy: str = "fill",
        block_bits: int = 512,
        seed: int = 0,
    ) -> None:
        self._fpr = arguments.rate(fpr)
        self._first = arguments.integer(
            "first", first, 1, 2**40, "Pass the number of keys you expect at least"
        )
        self._growth = arguments.integer("growth", growth, 1, 64, "Pass 2: each stage doubles the one before")
        if policy not in _POLICIES:
            raise ValueError(f"policy must be one of {', '.join(_POLICIES)}; got {policy!r}. Pass 'fill'")
        self._policy = policy
        self._block_bits = arguments.block_bits(block_bits)
        _core.Stages.__init__(self, arguments.seed(seed))
        if self.max_keys < _LEAST_GROWTH * self._first:
            why = "the policy's fingerprints are short" if policy == "fingerprint" else "64-bit digests"
            raise arguments.unmet(
                "fpr",
                f" must be at least {self._least_fpr():.4g} with first={self._first} and "
                f"growth={self._growth}, so that the filter can grow to {_LEAST_GROWTH} times first ({why}); "
                f"got {fpr!r}. Pass a larger fpr, or use BloomFilter for a known number of keys",
            )
        self._stages = (self._next_stage(0),)

    @classmethod
    def _capacity_for(cls, count: int) -> int:
        return count + 1  # the key that fills a stage begins the next

    # --- stages ------------------------------------------------------------------------------------

    def _planned_rate(self, stage: int) -> float:
        return self._fpr * 6 / math.pi**2 / (stage + 1) ** 2

    def _planned_keys(self, stage: int) -> int:
        keys = self._first * self._growth**stage
        return keys_of_stage(self._policy, keys, self._planned_rate(stage))

    def _least_rate(self, stage: int) -> float:
        """Return the lowest rate of a stage that can be planned."""
        least = LEAST_FINGERPRINT_RATE if self._policy == "fingerprint" else 0.0
        return max(_ABOVE_FLOOR * digest_floor(self._planned_keys(stage)), least)

    def _request(self, stage: int) -> StageRequest:
        return StageRequest(
            self._policy, self._planned_keys(stage), self._planned_rate(stage), self._block_bits
        )

    def _least_keys(self, stage: BaseFilter) -> int:
        """Return the fewest keys of a stage that has a successor; an overflow list may be full before."""
        return 0 if self._policy == "fingerprint" else stage._most_keys

    def _stage_plan(self, stage: int) -> FilterPlan:
        return self._request(stage).plan(self._seed)

    def _plan_ahead(self, keys: int, more: int) -> int:
        """Work on the next plan: the newest stage has so many keys, and so many more come now.

        Returns
        -------
        int
            The number of keys of the newest stage at which to call again.
        """
        stages = self._stages
        number, size = len(stages), stages[-1]._most_keys
        if number >= self._most_stages():
            return size - 1
        if keys + more < size - 1:
            return self._request(number).plan_some(keys, size)
        room = size - 1 - keys
        while room <= more and number < self._most_stages():  # all that a bulk call may need
            self._request(number).plan(self._seed)
            room += self._planned_keys(number)
            number += 1
        return size - 1

    def _most_stages(self) -> int:
        """Return the number of stages that can be planned; older versions planned one more in some files."""
        stages = 0
        while (
            stages < _MOST_STAGES
            and self._planned_keys(stages) <= _MOST_KEYS
            and self._planned_rate(stages) >= self._least_rate(stages)
        ):
            stages += 1
        return max(stages, len(self._stages))

    def _least_fpr(self) -> float:
        """Return the least rate with which the filter can grow to `_LEAST_GROWTH` times its first stage."""
        stages, keys = 1, self._planned_keys(0)
        while keys <= _LEAST_GROWTH * self._first:
            keys += self._planned_keys(stages)
            stages += 1
        return 1.001 * self._least_rate(stages - 1) * stages**2 * math.pi**2 / 6

    @property
    def max_keys(self) -> int:
        """The most keys that the filter can hold with its rate; the key after these is refused.

        Examples
        --------
        >>> GrowingFilter(1e-3).max_keys, GrowingFilter(1e-9).max_keys
        (8796092956671, 67043327)
        """
        return sum(map(self._planned_keys, range(self._most_stages()))) - 1

    def _next_stage(self, number: int) -> BaseFilter:
        """Make an empty stage; raise ValueError if there can be no such stage."""
        if number >= self._most_stages():
            raise ValueError(f"this filter is full: {self._limit()}")
        return build(self._stage_plan(number))

    def _limit(self) -> str:
        if self._most_stages() == _MOST_STAGES:
            return (
                f"a growing filter has at most {_MOST_STAGES} stages, which hold {self.max_keys} keys. "
                f"Build one with a larger first={self._first} or growth={self._growth}"
            )
        return (
            f"with fpr={self._fpr!r}, first={self._first} and growth={self._growth} it holds at most "
            f"{self.max_keys} keys (64-bit digests allow no lower rate). Build one with a larger fpr, "
            f"or divide the keys over several filters"
        )

    @property
    def _filters(self) -> tuple[BaseFilter, ...]:
        return self._stages

    @property
    def stages(self) -> int:
        """The number of stages so far."""
        return len(self._stages)

    @property
    def _counts(self) -> tuple[int, ...]:
        return tuple(part._stage_keys for part in self._stages)

    def _at_one_moment(self, read: Callable[[tuple[BaseFilter, ...]], _T]) -> _T:
        """Return read(stages) between two changes: it is repeated if a signal handler adds keys meanwhile."""
        with self._writing:
            while True:
                stages, counts = self._stages, self._counts
                result = read(stages)
                if self._stages is stages and self._counts == counts:
                    return result

    # --- the filter as a whole ---------------------------------------------------------------------

    @property
    def plan(self) -> GrowingPlan:
        """The design as it is now, and what it predicts when all its stages are full."""
        plans = [stage.plan for stage in self._stages]
        newest = plans[-1]
        return GrowingPlan(
            **_together(plans, [each.keys for each in plans]),
            keys=self.capacity,
            policy="growing",
            bits_per_key=8 * self.nbytes / self.capacity,
            block_bits=newest.block_bits,
            hashes=newest.hashes,
            choices=newest.choices,
            thresholds=(),
            coin=None,
            shares=(1.0,),
            overflow_limit=sum(each.overflow_limit for each in plans),
            spill=None,
            hashing=newest.hashing,
            seed=self._seed,
            core=(*self._parameters(), len(plans)),
        )

    def stats(self) -> CompositeStats:
        """Measure this very filter: its stages together."""
        parts, keys, found = self._at_one_moment(
            lambda stages: (stages, self._counts, [stage.stats() for stage in stages])
        )
        together = _together(found, keys)
        return CompositeStats(
            **together,
            keys=float(sum(keys)),
            loads=tuple(level for each in found for level in each.loads),
            bits_per_key=8 * together["nbytes"] / sum(part.capacity for part in parts),
        )

    def approx_items(self) -> float:
        """Count the keys that were added and were not present: the distinct ones, but for false positives."""
        return float(sum(self._counts))

    @property
    def capacity(self) -> int:
        """The number of keys that the stages so far were planned for."""
        return sum(stage.capacity for stage in self._stages)

    def clear(self) -> None:
        """Remove all keys, and all stages but the first."""
        self._require_writable()
        with self._writing:
            self._stages = (self._next_stage(0),)

    def _copy_parts_to(self, twin: Self) -> None:
        stages = self._at_one_moment(lambda stages: tuple(stage.copy() for stage in stages))
        _core.Stages.__init__(twin, self._seed)
        twin._stages = stages

    def __ior__(self, other: Self) -> Self:
        """Add the keys of `other`: stage by stage.

        No key is lost. A stage may then have more keys than it was planned for and the rate exceed
        the promise; `stats()` reports it. Stages of fingerprints hold no more than that: ValueError if a
        stage of both has too many keys. An error leaves the filter as it was.
        """
        if not isinstance(other, GrowingFilter):
            return NotImplemented
        self._require_writable()
        self._require_same_parameters(other, "merge")
        if self is other:
            return self
        parts = other.copy()._stages  # never two locks at once
        with self._writing:
            while not self._merge_with(parts):
                pass  # a signal handler added keys meanwhile
        return self

    def _require_same_parameters(self, other: Self, verb: str) -> None:
        if (mine := (*self._parameters(), self._seed)) != (theirs := (*other._parameters(), other._seed)):
            what = "their seeds differ" if mine[:-1] == theirs[:-1] else "their parameters differ"
            raise ValueError(f"cannot {verb}: {what}. Build both with the same arguments")

    def _items_with(self, other: Self) -> tuple[float, float, float]:
        self._require_same_parameters(other, "compare")
        return items_in_one_stage(self._stages, other._stages)

    def _is_empty(self) -> bool:
        return not any(self._counts)

    def _merge_with(self, parts: tuple[BaseFilter, ...]) -> bool:
        """Merge the stages, unless the filter changes meanwhile; return whether it was done."""
        mine = self._stages
        number = max(len(mine), len(parts))
        keys = sum(each[number - 1]._stage_keys for each in (mine, parts) if len(each) == number)
        full = keys >= self._planned_keys(number - 1)
        if full and number >= self._most_stages():
            raise ValueError(f"cannot merge: {self._limit()}")
        common = tuple(zip(mine, parts, strict=False))
        for part, source in common:  # before any of them grows
            part._require_room_for(source)
        parts = (*(part._as_large(source) for part, source in common), *parts[len(mine) :])
        for stage, (part, source) in enumerate(zip(mine, parts, strict=False)):
            if part._core != source._core:  # files of versions that planned differently
                raise ValueError(f"cannot merge: the sizes of stage {stage} differ. Add the keys anew")
        return self._merge_stages(mine, parts, self._next_stage(number) if full else None)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, GrowingFilter):
            return False
        if (self._parameters(), self._seed) != (other._parameters(), other._seed):
            return False
        first, second = sorted(
            (self, other), key=id
        )  # in one order: two comparisons never wait for each other
        with first._writing, second._writing:
            mine, theirs = self._stages, other._stages
            return self._counts == other._counts and all(a == b for a, b in zip(mine, theirs, strict=True))

    __hash__ = None  # type: ignore[assignment]  # it changes

    # --- bytes and files ---------------------------------------------------------------------------

    def _parameters(self) -> tuple[int, ...]:
        (rate,) = struct.unpack("<Q", struct.pack("<d", self._fpr))
        return rate, self._growth, self._first, _POLICIES.index(self._policy) + 1, self._block_bits

    def to_bytes(self) -> bytes:
        """Return the filter as bytes: those that `save` writes."""
        core = [*self._parameters()]
        files = self._at_one_moment(
            lambda stages: [(stage.to_bytes(), stage._stage_keys) for stage in stages]
        )
        for file, keys in files:
            core += [keys, len(file)]
        payload = b"".join(file.ljust(-(-len(file) // _LINE) * _LINE, b"\0") for file, _ in files)
        return _core.file_header(_KIND, _LANES, self._seed, self._first, core, payload) + payload

    @classmethod
    def _from_data(cls, data: Any, *, mapped: bool, verify: bool) -> Self:
        view = memoryview(data)
        if not mapped and not isinstance(view.obj, bytes):
            view = memoryview(
                bytes(view)
            )  # what is verified is what is read, though somebody writes to the file
        kind, seed, first, core, offset = _core.file_parts(view, verify)
        if kind != _KIND:
            raise FormatError(
                f"the file holds another kind of filter ({kind}): use evenbins.load or evenbins.open"
            )
        (rate,) = struct.unpack("<d", struct.pack("<Q", core[0]))
        policy, stages = core[3], (len(core) - 5) // 2
        if not 0.0 < rate < 1.0 or not 1 <= policy <= len(_POLICIES) or core[2] != first:
            raise FormatError("the header describes no possible growing filter")
        if not 1 <= core[1] <= 64 or first > 2**40 or core[4] not in (256, 512) or stages > _MOST_STAGES:
            raise FormatError("the header describes no possible growing filter")
        filter_ = cls.__new__(cls)
        filter_._fpr, filter_._growth, filter_._first = rate, core[1], first
        filter_._policy, filter_._block_bits = _POLICIES[policy - 1], core[4]
        _core.Stages.__init__(filter_, seed)
        parts: list[BaseFilter] = []
        for stage, (keys, size) in enumerate(zip(core[5::2], core[6::2], strict=True)):
            inner = view[offset : offset + size]
            part = _stage_of(inner, filter_, stage, mapped=mapped, verify=verify)
            _check_count(keys, filter_._least_keys(part), part._most_keys, stage, newest=stage == stages - 1)
            part._stage_keys = keys
            parts.append(part)
            end = offset + -(-size // _LINE) * _LINE
            if any(view[offset + size : end]):
                raise FormatError(f"the padding behind stage {stage} is not zero")
            offset = end
        filter_._stages = tuple(parts)
        return filter_

    def save(self, path: StrPath) -> None:
        """Write a file, atomically and durably: after a crash the old or the new one is there."""
        data = self.to_bytes()
        _files.replace_file(path, lambda descriptor: _files.write_all(descriptor, data))

    # --- for people --------------------------------------------------------------------------------

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        assert self._stages
        for number, stage in enumerate(self._stages):
            stage._check()
            most = stage._most_keys
            assert self._request(number).is_met_by(most)
            newest, keys = number == len(self._stages) - 1, stage._stage_keys
            assert 0 <= keys < most if newest else self._least_keys(stage) <= keys <= _MOST_KEYS

    def _shown(self) -> list[tuple[str, object]]:
        return [
            ("fpr", self._fpr), ("keys", sum(self._counts)), ("stages", self.stages),
            ("policy", self._policy), ("nbytes", self.nbytes),
        ]  # fmt: skip


def _stage_of(
    data: memoryview, filter_: GrowingFilter, stage: int, *, mapped: bool, verify: bool
) -> BaseFilter:
    kind = structure.kind_of_number(_core.file_kind(data))
    if kind is None or "grow" not in kind.can:
        raise FormatError(f"stage {stage} holds no filter")
    found: BaseFilter = kind.cls._from_data(data, mapped=mapped, verify=verify)
    belongs = (found._policy, found.seed) == (filter_._policy, filter_._seed)
    if not belongs or not filter_._request(stage).is_met_by(found._most_keys):
        raise FormatError(f"stage {stage} does not belong to this filter")
    return found


def _check_count(keys: int, least: int, capacity: int, stage: int, *, newest: bool) -> None:
    """Refuse a number of keys that no filter arrives at: a full stage has a successor, another has none.

    A stage with a successor has at least `least` keys.
    """
    if (keys >= capacity) if newest else not least <= keys <= _MOST_KEYS:
        rule = f"less than {capacity}" if newest else f"{least} to {_MOST_KEYS}"
        raise FormatError(f"stage {stage} must have {rule} keys, and the header says {keys}")


def _at_least_one(rates: Sequence[float]) -> float:
    """Compute the chance of at least one of independent events, small ones without cancellation."""
    if max(rates) >= 1.0:
        return 1.0
    return -math.expm1(math.fsum(math.log1p(-rate) for rate in rates))


def _together(parts: Sequence[FilterPlan | FilterStats], keys: Sequence[int]) -> dict[str, Any]:
    """Return what plans and statistics of all stages come to, by name; `keys` are those of each stage."""
    nbytes, total = sum(each.nbytes for each in parts), math.fsum(each.keys for each in parts)
    reads = newer = 0.0
    for part, count in zip(reversed(parts), reversed(keys), strict=True):
        reads += count * (newer + part.reads)  # a present key reads its stage, and misses every newer one
        newer += part.miss_reads

    def mean(name: str) -> float:
        return math.fsum(getattr(each, name) * each.keys for each in parts) / total if total else 0.0

    return {
        "fpr": _at_least_one([each.fpr for each in parts]),
        "reads": reads / sum(keys) if sum(keys) else parts[-1].reads,
        "miss_reads": math.fsum(each.miss_reads for each in parts),
        "list_reads": math.fsum(each.list_reads for each in parts),
        "overflow": mean("overflow"),
        "spilled": mean("spilled"),
        "fill": math.fsum(each.fill * each.nbytes for each in parts) / nbytes,
        "nbytes": nbytes,
    }
