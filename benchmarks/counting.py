"""The counting filter against the fastest counting filter of PyPI: the same keys added and removed again.

    peer           bulk add        bulk remove
    fastbloom-rs   add_int_batch   none: a loop of remove_int, of the compiled class itself

pyprobables and bloompy have counting filters too, written in Python: 13 µs and more a key in scalar
calls, where fastbloom-rs takes 0.14 µs, so they are left out. Four bits a counter for all. Every round begins
and ends with an empty filter whose pages are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.harness import Case, Target, import_peer
from benchmarks.peers import Answers, Blocked, Fastbloom, Keys, Subject
from benchmarks.shared import (
    FULL,
    Sizes,
    comparison,
    count_text,
    int_keys,
    main_of,
    make_subjects,
    measured_facts,
)
from evenbins import CountingBloomFilter

__all__ = ["counting_cases", "main_counting"]


class _Counting(Blocked):
    """Ours; a subclass says the layout."""

    layout: str

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter = CountingBloomFilter(capacity, fpr=fpr, layout=self.layout)

    def take(self, keys: Keys) -> bool:
        return bool(self.filter.remove_many(keys.column).all())


class _Blocked(_Counting):
    label = "evenbins counting, blocked"
    layout = "blocked"


class _Flat(_Counting):
    label = "evenbins counting, flat"
    layout = "flat"


class _Fastbloom(Subject):
    label = "fastbloom-rs, counting"
    peer = distribution = Fastbloom.peer

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self._builder = import_peer("fastbloom_rs", "fastbloom-rs").PyFilterBuilder(capacity, fpr)
        self._builder.enable_repeat_insert(True)  # else each add is a look-up first
        self.filter = self._builder.build_counting_bloom_filter()

    def fill(self, keys: Keys) -> None:
        self.filter.add_int_batch(keys.items)

    def ask(self, keys: Keys) -> Answers:
        answers: Answers = self.filter.contains_int_batch(keys.items)
        return answers

    def take(self, keys: Keys) -> bool:
        remove = self.filter.remove_int
        for key in keys.items:
            remove(key)
        return True

    @property
    def bits(self) -> int:
        return 4 * int(self._builder.size())


def counting_cases(sizes: Sizes = FULL, peers: Sequence[str] = (Fastbloom.peer,)) -> Iterator[Case]:
    """Return the cases of this module, one at a time."""
    fpr, count = 1e-3, sizes.bulk_keys
    present, absent = int_keys(count, sizes.absent_keys)
    subjects: list[Any] = make_subjects((_Blocked, _Flat, _Fastbloom), "int", count, fpr, peers)
    for subject in subjects:
        subject.fill(present)
    facts = {each.label: measured_facts(each, each.ask(absent), count) for each in subjects}
    for subject in subjects:
        subject.take(present)
    compare = partial(
        comparison,
        subjects=subjects,
        facts=facts,
        notes=f"capacity {count_text(count)}, fpr {fpr:g}, counters of four bits; one thread; lists are "
        "made off the clock. fastbloom-rs has no bulk removal.",
    )

    def add_and_remove(subject: Any) -> bool:
        subject.fill(present)
        return bool(subject.take(present))

    yield compare(
        f"counting filter, add and remove, {count_text(count)} uint64",
        work=add_and_remove,
        operations=2 * count,
        check=lambda subject, removed: bool(removed) and not any(subject.ask(present[::1000])),
        targets=[
            Target(
                text=f"{layout}: ≥ 5 × faster than the fastest peer",
                against=(_Fastbloom.label,),
                at_least=5.0,
                of=label,
            )
            for layout, label in (("blocked", _Blocked.label), ("flat", _Flat.label))
        ],
    )


def main_counting(
    quick: bool = False, rounds: int | None = None, json_path: str | None = None, markdown: bool = False
) -> int:
    """Run the cases, print the tables, write the JSON; the exit status: 0, or 2 if it cannot run."""
    return main_of(
        "counting", counting_cases, {"fastbloom_rs": "fastbloom-rs"}, quick, rounds, json_path, markdown
    )
