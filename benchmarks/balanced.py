"""The balanced filters: what balance costs beside the blocked filter, what it gains beside the peers.

    same bytes    16 bits per key, full, 1 MiB to 256 MiB: add, hits, misses     against our blocked filter
    threads       the same filters of the largest size, built by two threads     against one
    same rate     fpr 1e-6, present and absent keys, ours and PyPI's             against the fastest peer
    memory        bits per key at 1e-3 and 1e-6                                  side by side

At the same bytes the blocked filter is the measure, so it comes first and a ratio is the price of balance in
time; what it buys is the lower rate beside it. The filters are filled to their capacity, since an emptier one
seldom sends a key on and would look faster than it is; the overflow list counts as bytes and, where a look-up
asks it, as time. Single keys: filters.py.

Every group adds before it asks: the last round of "add" leaves the filters full for the cases behind it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Case, Contender, Goal, Target, Within
from benchmarks.peers import (
    FILTER_PEERS,
    POLICIES,
    Abloom,
    Answers,
    Blocked,
    Fastbloom,
    Fill,
    Growing,
    Mmap3,
    Multilevel,
    Rbloom,
    Standard,
    Subject,
    TwoChoice,
)
from benchmarks.shared import (
    SEED,
    Sizes,
    all_found,
    comparison,
    count_text,
    few_found,
    int_keys,
    make_subjects,
    measured_facts,
    size_text,
)
from evenbins import BalancedBloomFilter, BlockedBloomFilter
from evenbins.filters import plan_balanced

__all__ = ["balanced_cases"]

_Filters = Mapping[str, BlockedBloomFilter | BalancedBloomFilter]
_Numbers = npt.NDArray[np.uint64]

_PRICES = {"fill": 1.5, "multilevel": 1.5, "two-choice": 2.0}  # × the blocked filter's time for present keys
_PEERS = (Abloom, Rbloom, Fastbloom, Mmap3)
_IN_MEMORY = (Standard, Blocked, Fill, TwoChoice, Multilevel, Growing, *_PEERS)


def balanced_cases(sizes: Sizes, peers: Sequence[str]) -> Iterator[Case]:
    """Return the cases of this module, one at a time."""
    for nbytes in sizes.line_bytes:
        yield from _same_bytes(nbytes, sizes)
    yield from _same_rate(sizes, peers)
    yield from _memory_cases(1e-3, sizes, peers)


# --- the same bytes ----------------------------------------------------------------------------------


def _same_bytes(nbytes: int, sizes: Sizes) -> Iterator[Case]:
    """Full filters of 16 bits per key: the blocked one, and each policy."""
    capacity, count = nbytes // 2, sizes.line_keys
    largest = nbytes == max(sizes.line_bytes)
    filters: _Filters = {Blocked.label: BlockedBloomFilter(capacity, bits_per_key=16)} | {
        each.label: BalancedBloomFilter(capacity, bits_per_key=16, policy=each.policy) for each in POLICIES
    }
    keys = np.arange(capacity, dtype=np.uint64)
    rng = np.random.default_rng(SEED)
    present = rng.integers(0, capacity, count, dtype=np.uint64)
    absent = rng.integers(2**62, 2**63, count, dtype=np.uint64)
    facts: dict[str, dict[str, float]] = {label: {} for label in filters}

    def check_added(label: str, _: object) -> bool:
        filter_ = filters[label]
        if not facts[label]:
            rate = float(np.count_nonzero(filter_.contains_many(absent)) / count)
            facts[label].update({"FPR": rate, "bits/key": 8 * filter_.nbytes / capacity})
        return bool(filter_.contains_many(present).all())

    notes = (
        f"16 bits per key, overflow lists included, {count_text(capacity)} keys: full to capacity; one "
        "thread. The same bytes, so the rates differ. The filters are cleared off the clock before each "
        "build."
    )
    yield Case(
        name=f"add_many, balanced, {size_text(nbytes)}",
        contenders={
            label: Contender(
                run=partial(each.add_many, keys),
                prepare=each.clear,
                check=partial(check_added, label),
                facts=facts[label],
            )
            for label, each in filters.items()
        },
        operations=capacity,
        notes=notes,
    )
    prices = [
        Within(
            text=f"{each.policy}: ≤ {_PRICES[each.policy]:g} × the time of the blocked filter",
            of=each.label,
            against=Blocked.label,
            at_most=_PRICES[each.policy],
        )
        for each in POLICIES
        if each.policy in _PRICES
    ]
    for what, asked in (("hits", present), ("misses", absent)):
        yield Case(
            name=f"contains_many, balanced, {size_text(nbytes)}, {what}",
            contenders={
                label: Contender(
                    run=partial(each.contains_many, asked),
                    check=all_found if what == "hits" else partial(few_found, fpr=each.plan.fpr, count=count),
                    facts=facts[label],
                )
                for label, each in filters.items()
            },
            operations=count,
            targets=prices if largest and what == "hits" else (),
            notes=notes,
        )
    if largest:
        yield from _two_threads(nbytes, filters, keys, present)


def _two_threads(nbytes: int, filters: _Filters, keys: _Numbers, present: _Numbers) -> Iterator[Case]:
    """Build by two threads and by one; the bytes must not depend on it."""
    for policy in (Fill, Multilevel):
        filter_ = filters[policy.label]
        expected = _fold(filter_)  # built by one thread

        def check(_: object, filter_: Any = filter_, expected: int = expected) -> bool:
            return _fold(filter_) == expected and bool(filter_.contains_many(present).all())

        yield Case(
            name=f"2 threads, build, {policy.policy}, {size_text(nbytes)}",
            contenders={
                label: Contender(
                    run=partial(filter_.add_many, keys, threads=threads), prepare=filter_.clear, check=check
                )
                for label, threads in (("2 threads", 2), ("1 thread", 1))
            },
            operations=len(keys),
            notes=f"16 bits per key, {count_text(len(keys))} keys: full to capacity; cleared off the clock "
            f"before each build; {os.cpu_count()} cores. Both leave the same bytes.",
        )


def _fold(filter_: Any) -> int:
    """Return a checksum of a filter's memory that depends on the places."""
    words = np.frombuffer(filter_, np.uint64)
    return hash(tuple(np.bitwise_xor.reduce(part) for part in np.array_split(words, 1024)))


# --- the same rate -----------------------------------------------------------------------------------


def _same_rate(sizes: Sizes, peers: Sequence[str]) -> Iterator[Case]:
    """Bulk queries at 1e-6: the design that `BalancedBloomFilter` chooses and "fill", against the peers."""
    fpr, count = 1e-6, sizes.bulk_keys
    chosen = plan_balanced(count, fpr=fpr).policy
    ours = sorted((TwoChoice, Fill, Multilevel), key=lambda each: each.policy != chosen)
    present, absent = int_keys(count, count)
    subjects = make_subjects((*ours, Blocked, Standard, *_PEERS), "int", count, fpr, peers)
    for subject in subjects:
        subject.fill(present)
    # So small a rate needs all absent keys: the first case measures it along with the time.
    facts: dict[str, dict[str, float]] = {each.label: {} for each in subjects}

    def check_absent(subject: Subject, answers: Answers) -> bool:
        facts[subject.label].update(measured_facts(subject, answers, count))
        return few_found(answers, fpr, count)

    goals: list[Goal] = [
        Target(
            text=f"{each.policy}: ≥ 5 × faster than the fastest peer",
            against=FILTER_PEERS,
            at_least=5.0,
            of=each.label,
        )
        for each in ours
        if each is ours[0] or each is Fill
    ]
    compare = partial(
        comparison,
        subjects=subjects,
        operations=count,
        facts=facts,
        targets=goals,
        notes=f"capacity {count_text(count)}; one thread; lists are made off the clock; FPR measured on "
        f'{count_text(count)} absent keys. "{chosen}" is what BalancedBloomFilter chooses for this request.',
    )
    what = f"{count_text(count)} uint64, balanced, fpr {fpr:g}"
    yield compare(
        f"contains_many, {what}, absent", work=lambda subject: subject.ask(absent), check=check_absent
    )
    yield compare(
        f"contains_many, {what}, present",
        work=lambda subject: subject.ask(present),
        check=lambda _, answers: len(answers) == count and all_found(answers),
    )
    growing = Growing(count, fpr, "int")
    growing.fill(present)
    facts[growing.label] = measured_facts(growing, growing.ask(absent), count)
    yield _memory_case(fpr, count, [*subjects, growing], facts)


# --- memory ------------------------------------------------------------------------------------------


def _memory_cases(fpr: float, sizes: Sizes, peers: Sequence[str]) -> Iterator[Case]:
    """Build everything for one rate and look at its size."""
    count = sizes.bulk_keys
    present, absent = int_keys(count, sizes.absent_keys)
    subjects = make_subjects(_IN_MEMORY, "int", count, fpr, peers)
    for subject in subjects:
        subject.fill(present)
    facts = {each.label: measured_facts(each, each.ask(absent), count) for each in subjects}
    yield _memory_case(fpr, count, subjects, facts)


def _memory_case(
    fpr: float, count: int, subjects: Sequence[Subject], facts: Mapping[str, Mapping[str, float]]
) -> Case:
    """Return the case of filters that are full: bits per key, with the measured rate beside."""
    contenders: dict[str, Contender] = {}
    for each in sorted(subjects, key=lambda subject: _IN_MEMORY.index(type(subject))):
        rate = {"FPR": facts[each.label]["FPR"]}
        contenders[each.label] = Contender(run=partial(_bits_per_key, each, count), facts=rate)
        if isinstance(each, Growing):
            contenders[f"{each.label}, per key of its stages"] = Contender(
                run=partial(_bits_per_key, each, each.filter.capacity)
            )
    return Case(
        name=f"memory, {count_text(count)} keys, fpr {fpr:g}",
        contenders=contenders,
        unit="bits/key",
        notes="all that a filter holds, by its own account; peers likewise. growing: told no number of keys, "
        "first stage 65,536; its last stage still has room, so both the bits per key added and those per key "
        "that its stages can take.",
        once=True,
    )


def _bits_per_key(subject: Subject, keys: int) -> float:
    return subject.bits / keys
