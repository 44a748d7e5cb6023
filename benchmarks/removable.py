"""The fingerprint filter, which can remove keys, against Bloom filters of PyPI, which cannot.

The same keys, capacity and requested rate for all; each peer by its fastest public interface (peers.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fingerprint import FPR, Fingerprint
from benchmarks.harness import Case, Target
from benchmarks.peers import Abloom, Rbloom
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

__all__ = ["main_removable", "removable_cases"]

PEERS = {"rbloom": "rbloom", "abloom": "abloom"}


def removable_cases(sizes: Sizes = FULL) -> Iterator[Case]:
    """Look-ups of present and absent keys, and additions; bits per key stand beside each time."""
    count = sizes.bulk_keys
    present, absent = int_keys(count, count)
    subjects = make_subjects((Fingerprint, Abloom, Rbloom), "int", count, FPR, list(PEERS))
    for subject in subjects:
        subject.fill(present)
    facts = {each.label: measured_facts(each, each.ask(absent), count) for each in subjects}
    labels = tuple(each.label for each in subjects[1:])
    targets = [Target(text="≥ 3 × faster than the fastest peer", against=labels, at_least=3.0)]
    notes = "one thread; the peers take Python integers, made off the clock."
    name = f"{{}}, {count_text(count)} uint64, fpr {FPR:g}, against Bloom filters"
    yield comparison(
        name.format("look-up, present"), subjects, lambda each: each.ask(present), operations=count,
        facts=facts, targets=targets, notes=notes, check=lambda _, answers: all_found(answers),
    )  # fmt: skip
    yield comparison(
        name.format("look-up, absent"), subjects, lambda each: each.ask(absent), operations=count,
        facts=facts, targets=targets, notes=notes, check=lambda _, answers: few_found(answers, FPR, count),
    )  # fmt: skip
    yield comparison(
        name.format("add"), subjects, lambda each: each.fill(present), operations=count,
        facts=facts, targets=targets, notes=notes, prepare=lambda each: each.clear(),
    )  # fmt: skip


def main_removable(
    quick: bool = False, rounds: int | None = None, json_path: str | None = None, markdown: bool = False
) -> int:
    """Run the suite; the exit status."""
    return main_of("removable", removable_cases, PEERS, quick, rounds, json_path, markdown)
