"""Fingerprint filters against the raw limit of memory, our other families, and the peers of PyPI that delete.

    peer                     add              look up            remove
    pyprobables, cuckoo      loop of add      loop of check      loop of remove
    pyprobables, quotient    loop of add      loop of check      loop of remove
    cuckoopy                 loop of insert   loop of contains   loop of delete
    pyfusefilter             populate         loop of contains   none: its set never changes

None of them has a call for many keys but pyfusefilter's `populate`. They are written in Python and take some
10 µs a key, so they get fewer keys; a filter of ours with as many is in the processor's cache, as theirs is.
pyprobables' cuckoo filter takes whole bytes: with two of them it finds a sixth of all absent keys, so it has
three. pyfusefilter 1.3 hashes str objects, which xxhash no longer takes: it gets a hash function that encodes
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Case, Contender, Goal, Limit, Target, Within, import_peer
from benchmarks.peers import Answers, Keys, Subject
from benchmarks.shared import (
    FULL,
    Sizes,
    all_found,
    comparison,
    count_text,
    few_found,
    int_keys,
    main_of,
    make_subjects,
    measured_facts,
)
from evenbins import BlockedBloomFilter, CountingBloomFilter, FingerprintFilter, FuseFilter, _core

__all__ = ["fingerprint_cases", "main_fingerprint"]

Numbers = npt.NDArray[np.uint64]

FPR = 1e-3
PEERS = {"probables": "pyprobables", "cuckoopy": "cuckoopy", "pyfusefilter": "pyfusefilter"}
OURS = "evenbins fingerprint"


# --- memory ----------------------------------------------------------------------------------------


def _space_cases(sizes: Sizes) -> Iterator[Case]:
    """Bits per key, of a filter that is full to capacity and of its measured reads."""
    count = sizes.bulk_keys
    keys = np.random.default_rng(1).integers(0, 2**63, count, dtype=np.uint64)
    for fpr, most in ((1e-3, 14.0), (1e-4, 18.4), (1e-6, 27.2)):
        filter_ = FingerprintFilter(count, fpr)
        filter_.add_many(keys)
        stats = filter_.stats()
        facts = {"FPR": stats.fpr, "reads": stats.reads, "miss reads": stats.miss_reads}
        for what, value, bound in (
            ("bits per key", 8 * filter_.nbytes / count, most),
            ("lines read, present", stats.reads, 1.05),
            ("lines read, absent", stats.miss_reads, 1.02),
        ):
            yield Case(
                name=f"{what}, {count_text(count)} keys, fpr {fpr:g}",
                contenders={OURS: Contender(run=partial(float, value), facts=facts)},
                unit=what.split(",")[0],
                targets=[Limit(text=f"≤ {bound:g}", at_most=bound)],
                notes="everything included; full to capacity.",
                once=True,
            )


# --- speed -----------------------------------------------------------------------------------------


def _line_cases(sizes: Sizes) -> Iterator[Case]:
    """One thread against loops that touch one line a key, and against a blocked filter of as many bits."""
    count = sizes.fingerprint_keys
    numbers = np.random.default_rng(2).integers(0, 2**63, 2 * count, dtype=np.uint64)
    present, absent = numbers[:count], numbers[count:]
    filter_ = FingerprintFilter(count, FPR)
    blocked = BlockedBloomFilter(count, bits_per_key=8 * filter_.nbytes / count)
    words = np.zeros(filter_.nbytes // 64 * 8, np.uint64)
    for each in (filter_, blocked):
        each.add_many(present, threads=1)
    asked = {
        OURS: partial(filter_.contains_many, threads=1),
        "evenbins blocked, as many bits": partial(blocked.contains_many, threads=1),
    }
    facts = {label: {"FPR": float(ask(absent[: 10**7]).mean())} for label, ask in asked.items()}
    for what, keys in (("present", present), ("absent", absent)):
        yield Case(
            name=f"look-up, {what}, {count_text(count)} uint64",
            contenders={
                **{
                    label: Contender(
                        run=partial(ask, keys),
                        check=all_found if what == "present" else partial(few_found, fpr=0.01, count=count),
                        facts=facts[label],
                    )
                    for label, ask in asked.items()
                },
                "raw limit, reads": Contender(run=partial(_core.line_reads, words, keys)),
            },
            operations=count,
            targets=[
                Target(text="≥ 0.65 of the raw line rate", against=("raw limit, reads",), at_least=0.65),
                Target(text="≥ 0.75 × our blocked filter", against=(next(reversed(asked)),), at_least=0.75),
            ],
            notes="full to capacity, one thread; the raw limit hashes each key, asks for its line early and "
            "reads it. Lower is faster.",
        )
    del blocked, asked
    raw = {"raw limit, updates": Contender(run=partial(_core.line_updates, words, present))}
    target = Target(text="≥ 0.7 of the raw line-update rate", against=tuple(raw), at_least=0.70)

    def refill() -> None:
        filter_.clear()
        filter_.add_many(present)

    for what, prepare, work, check in (
        (
            "insertion, empty to full",
            filter_.clear,
            filter_.add_many,
            lambda _: filter_.stats().keys == count,
        ),
        ("removal, full to empty", refill, filter_.remove_many, all_found),
    ):
        yield Case(
            name=f"{what}, {count_text(count)} uint64",
            contenders={
                OURS: Contender(run=partial(work, present, threads=1), prepare=prepare, check=check),
                **raw,
            },
            operations=count,
            targets=[target],
            notes="one thread; the raw limit changes one word of each key's line.",
        )


def _churn_case(sizes: Sizes) -> Iterator[Case]:
    """A full filter in which keys are replaced."""
    count, piece = sizes.bulk_keys, sizes.bulk_keys // 100
    numbers = np.random.default_rng(3).integers(0, 2**63, count + 100 * piece, dtype=np.uint64)
    filter_ = FingerprintFilter(count, FPR)
    filter_.add_many(numbers[:count])

    def turn_over() -> bool:
        found = True
        for start in range(0, 100 * piece, piece):
            found &= bool(filter_.remove_many(numbers[start : start + piece], threads=1).all())
            filter_.add_many(numbers[count + start : count + start + piece], threads=1)
        return found

    def back() -> None:  # what the last round added, out; what it removed, in
        if not bool(filter_.contains_many(numbers[:1000]).all()):
            filter_.clear()
            filter_.add_many(numbers[:count])

    yield Case(
        name=f"churn at full load, {count_text(count)} uint64",
        contenders={OURS: Contender(run=turn_over, prepare=back, check=bool)},
        operations=2 * 100 * piece,
        targets=[Limit(text="≤ 35 ns an operation", at_most=35.0)],
        notes="one thread; every key is replaced once, in pieces of a hundredth: removed, and another added.",
    )


# --- other families, and peers ------------------------------------------------------------------------


def _counting_cases(sizes: Sizes) -> Iterator[Case]:
    """Against the counting filter, which can remove too."""
    count = sizes.bulk_keys
    keys = np.random.default_rng(4).integers(0, 2**63, count, dtype=np.uint64)
    filters: dict[str, Any] = {
        OURS: FingerprintFilter(count, FPR),
        "evenbins counting": CountingBloomFilter(count, fpr=FPR),
        "evenbins counting, flat": CountingBloomFilter(count, fpr=FPR, layout="flat"),
    }

    def refill(filter_: Any) -> None:
        filter_.clear()
        filter_.add_many(keys)

    yield Case(
        name=f"bits per key of filters that remove, {count_text(count)} keys, fpr {FPR:g}",
        contenders={
            label: Contender(run=partial(float, 8 * each.nbytes / count)) for label, each in filters.items()
        },
        unit="bits per key",
        targets=[
            Within(text="at most a quarter of the counting filter's", of=OURS, against=label, at_most=0.25)
            for label in list(filters)[1:]
        ],
        once=True,
    )
    yield Case(
        name=f"removal, {count_text(count)} uint64",
        contenders={
            label: Contender(
                run=partial(each.remove_many, keys, threads=1), prepare=partial(refill, each), check=all_found
            )
            for label, each in filters.items()
        },
        operations=count,
        targets=[
            Target(text="≥ 2 × the counting filter", against=tuple(list(filters)[1:]), at_least=2.0),
        ],
        notes="one thread, full to empty.",
    )


class Fingerprint(Subject):
    label = OURS

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter: Any = FingerprintFilter(capacity, fpr)

    def fill(self, keys: Keys) -> None:
        self.filter.add_many(keys.column, threads=1)

    def ask(self, keys: Keys) -> Answers:
        answers: Answers = self.filter.contains_many(keys.column, threads=1)
        return answers

    def take(self, keys: Keys) -> bool:
        return bool(self.filter.remove_many(keys.column, threads=1).all())

    @property
    def bits(self) -> int:
        return 8 * int(self.filter.nbytes)


class _InPython(Subject):
    """A peer that takes one key at a time; a subclass says by which calls."""

    add: Callable[[Any], object]
    contains: Callable[[Any], bool]
    remove: Callable[[Any], object]

    def fill(self, keys: Keys) -> None:
        for key in keys.items:
            self.add(key)

    def ask(self, keys: Keys) -> Answers:
        contains = self.contains
        return [contains(key) for key in keys.items]

    def take(self, keys: Keys) -> bool:
        for key in keys.items:
            self.remove(key)
        return True


class _Probables(_InPython):
    label = "pyprobables, cuckoo"
    peer = distribution = "pyprobables"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter = import_peer("probables", "pyprobables").CuckooFilter(
            capacity=round(capacity / 4 / 0.9), bucket_size=4, finger_size=3, auto_expand=False
        )
        self.add, self.contains, self.remove = self.filter.add, self.filter.check, self.filter.remove

    @property
    def bits(self) -> int:  # three bytes a slot; the lists that hold them are much larger
        return 24 * 4 * int(self.filter.capacity)


class _Quotient(_InPython):
    label = "pyprobables, quotient"
    peer = distribution = "pyprobables"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.quotient = (capacity - 1).bit_length() + (capacity > 0.85 * 2 ** (capacity - 1).bit_length())
        self.filter = import_peer("probables", "pyprobables").QuotientFilter(
            quotient=self.quotient, auto_expand=False
        )
        self.add, self.contains, self.remove = self.filter.add, self.filter.check, self.filter.remove

    @property
    def bits(self) -> int:  # 32-bit fingerprints, and three bits a slot
        return int((32 - self.quotient + 3) << self.quotient)


class _Cuckoopy(_InPython):
    label = peer = distribution = "cuckoopy"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter = import_peer("cuckoopy", "cuckoopy").CuckooFilter(
            capacity=round(capacity / 0.9), bucket_size=4, fingerprint_size=13
        )
        self.add, self.contains, self.remove = self.filter.insert, self.filter.contains, self.filter.delete

    @property
    def bits(self) -> int:
        return int(13 * self.filter.capacity)


def _peer_cases(sizes: Sizes, peers: Sequence[str]) -> Iterator[Case]:
    """Against filters of PyPI that remove: the same keys, in bulk."""
    count = sizes.peer_keys
    numbers, others = int_keys(count, count)
    present, absent = (Keys(each.column, list(map(str, each.items))) for each in (numbers, others))
    subjects: list[Any] = make_subjects(
        (Fingerprint, _Probables, _Quotient, _Cuckoopy), "int", count, FPR, peers
    )
    for subject in subjects:
        subject.fill(present)
    facts = {each.label: measured_facts(each, each.ask(absent), count) for each in subjects}
    compare = partial(
        comparison,
        subjects=subjects,
        facts=facts,
        notes="ours takes numbers, they take strings of them, made off the clock; one thread; slots of "
        "Python's lists are counted with the bits that they stand for.",
    )
    target: list[Goal] = [
        Target(
            text="≥ 20 × faster than the fastest peer",
            against=tuple(each.label for each in subjects[1:]),
            at_least=20.0,
        )
    ]
    name = f"{{}}, {count_text(count)} keys, against filters that remove"
    yield compare(
        name.format("look-up"), work=lambda each: each.ask(present), operations=count, targets=target,
        check=lambda _, answers: all_found(answers),
    )  # fmt: skip

    def remove_and_add(subject: Any) -> bool:
        removed = subject.take(present)
        subject.fill(present)
        return bool(removed)

    yield compare(
        name.format("remove and add"), work=remove_and_add, operations=2 * count, targets=[
            Target(text=target[0].text, against=(_Probables.label, _Cuckoopy.label), at_least=20.0)
        ],
        # pyprobables' quotient filter is full after as many additions as it has room for, removals or not.
        subjects=[each for each in subjects if not isinstance(each, _Quotient)],
        check=lambda _, removed: bool(removed),
    )  # fmt: skip


class _Fuse(Subject):
    label = "evenbins fuse"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter: Any = None

    def fill(self, keys: Keys) -> None:
        self.filter = FuseFilter.from_keys(keys.column, 2**-8, threads=1)

    def ask(self, keys: Keys) -> Answers:
        answers: Answers = self.filter.contains_many(keys.column, threads=1)
        return answers

    @property
    def bits(self) -> int:
        return 8 * int(self.filter.nbytes)


class _PyFuse(Subject):
    label = peer = distribution = "pyfusefilter"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        package, xxhash = import_peer("pyfusefilter", "pyfusefilter"), import_peer("xxhash", "xxhash")
        package.pyfusefilter.hash = lambda item: xxhash.xxh64_intdigest(str(item).encode())
        self.filter = package.Fuse8(capacity)

    def fill(self, keys: Keys) -> None:
        self.filter.populate(keys.items)

    def ask(self, keys: Keys) -> Answers:
        return list(map(self.filter.contains, keys.items))

    @property
    def bits(self) -> int:
        return 8 * int(self.filter.size_in_bytes())


def _fuse_cases(sizes: Sizes, peers: Sequence[str]) -> Iterator[Case]:
    """A set that never changes, against pyfusefilter's."""
    count = sizes.bulk_keys
    present, absent = int_keys(count, sizes.absent_keys)
    subjects: list[Any] = make_subjects((_Fuse, _PyFuse), "int", count, 2**-8, peers)
    for subject in subjects:
        subject.fill(present)
    facts = {each.label: measured_facts(each, each.ask(absent), count) for each in subjects}
    yield Case(
        name=f"bits per key, fuse filters, {count_text(count)} keys, fpr 2^-8",
        contenders={
            subjects[0].label: Contender(
                run=partial(float, subjects[0].bits / count), facts=facts[subjects[0].label]
            )
        },
        unit="bits per key",
        targets=[Limit(text="≤ 9.1", at_most=9.1)],
        notes="the peer's bits stand beside its times.",
        once=True,
    )
    compare = partial(
        comparison,
        subjects=subjects,
        facts=facts,
        targets=[Target(text="no slower", against=tuple(each.label for each in subjects[1:]), at_least=1.0)],
        notes="one thread; pyfusefilter hashes the text of every key in Python.",
    )
    name = f"fuse filter, {{}}, {count_text(count)} uint64"
    yield compare(name.format("build"), work=lambda each: each.fill(present), operations=count)
    yield compare(
        name.format("look-up"), work=lambda each: each.ask(present), operations=count,
        check=lambda _, answers: all_found(answers),
    )  # fmt: skip


def fingerprint_cases(sizes: Sizes = FULL, peers: Sequence[str] = tuple(PEERS.values())) -> Iterator[Case]:
    """Return the cases of this module, one at a time."""
    yield from _space_cases(sizes)
    yield from _line_cases(sizes)
    yield from _churn_case(sizes)
    yield from _counting_cases(sizes)
    yield from _peer_cases(sizes, peers)
    yield from _fuse_cases(sizes, peers)


def main_fingerprint(
    quick: bool = False, rounds: int | None = None, json_path: str | None = None, markdown: bool = False
) -> int:
    """Run the cases, print the tables, write the JSON; the exit status: 0, or 2 if it cannot run."""
    return main_of("fingerprint", fingerprint_cases, PEERS, quick, rounds, json_path, markdown)
