"""What the modules of cases share: sizes, keys, and how a case is made of subjects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Case, Contender, Goal, MissingPeerError, import_peer, publish, run
from benchmarks.peers import Answers, Keys, Subject

__all__ = [
    "FULL",
    "MIB",
    "QUICK",
    "SEED",
    "Sizes",
    "all_found",
    "arrow_column",
    "comparison",
    "count_text",
    "few_found",
    "hex_text",
    "int_keys",
    "main_of",
    "make_subjects",
    "measured_facts",
    "positives",
    "renew",
    "size_text",
    "str_keys",
    "strings",
]

MIB = 2**20
SEED = 20_240_601


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much each case does. Numbers of keys, and bytes of filters."""

    scalar_keys: int = 1_000_000
    bulk_keys: int = 10_000_000
    absent_keys: int = 1_000_000  # to measure false-positive rates
    line_bytes: tuple[int, ...] = (1 * MIB, 32 * MIB, 256 * MIB)
    line_keys: int = 10_000_000
    standard_bytes: int = 32 * MIB
    string_keys: int = 10_000_000
    thread_bytes: int = 256 * MIB
    thread_keys: int = 10_000_000
    memory_keys: int = 20_000_000
    fingerprint_keys: int = 100_000_000
    peer_keys: int = 200_000  # of peers written in Python


FULL = Sizes()
QUICK = Sizes(
    scalar_keys=100_000, bulk_keys=500_000, absent_keys=200_000, line_bytes=(1 * MIB, 32 * MIB),
    line_keys=1_000_000, standard_bytes=1 * MIB, string_keys=300_000, thread_bytes=64 * MIB,
    thread_keys=1_000_000, memory_keys=4_000_000, fingerprint_keys=500_000, peer_keys=10_000,
)  # fmt: skip


# --- keys ------------------------------------------------------------------------------------------


def int_keys(present: int, absent: int) -> tuple[Keys, Keys]:
    """Return random numbers: those that will be added, and others."""
    # Distinct but for a chance of n²/2⁶⁴, 2e-5 for 20M.
    numbers = np.random.default_rng(SEED).integers(0, 2**63, present + absent, dtype=np.uint64)
    both = Keys(numbers, numbers.tolist())
    return both[:present], both[present:]


def hex_text(count: int) -> npt.NDArray[np.uint8]:
    """Return the text of `count` random keys of 16 hexadecimal digits, one after the other."""
    octets = np.random.default_rng(SEED).integers(0, 2**64, count, dtype=np.uint64).view(np.uint8)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    return np.stack([digits[octets >> 4], digits[octets & 15]], axis=1).ravel()


def strings(text: npt.NDArray[np.uint8]) -> list[str]:
    """Return new str objects, whose hash nobody has computed yet."""
    whole = text.tobytes().decode("ascii")
    return [whole[start : start + 16] for start in range(0, len(whole), 16)]


def str_keys(text: npt.NDArray[np.uint8]) -> Keys:
    """Return the text as keys for all."""
    items = strings(text)
    return Keys(items, items)


def renew(keys: Keys, text: npt.NDArray[np.uint8]) -> None:
    """Replace the list's strings by new objects."""
    keys.items.clear()  # first: both together might not fit
    keys.items.extend(strings(text))


def arrow_column(text: npt.NDArray[np.uint8]) -> Any:
    """Return the text as an Arrow column."""
    pyarrow = import_peer("pyarrow", "pyarrow")
    count = text.size // 16
    offsets = np.arange(0, text.size + 1, 16, dtype=np.int32)
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(text)]
    return pyarrow.Array.from_buffers(pyarrow.string(), count, buffers)


# --- cases --------------------------------------------------------------------------------------------


def make_subjects(
    classes: Sequence[type[Any]], kind: str, capacity: int, fpr: float, peers: Sequence[str]
) -> list[Subject]:
    """Build those that take this kind of key: ours, and the peers that take part."""
    return [
        each(capacity, fpr, kind)
        for each in classes
        if kind in each.key_kinds and (each.peer is None or each.peer in peers)
    ]


def measured_facts(subject: Subject, answers: Answers, keys: int) -> dict[str, float]:
    """Return what makes the work comparable, from the answers for absent keys."""
    return {"FPR": positives(answers) / len(answers), "bits/key": subject.bits / keys}


def positives(answers: Answers) -> int:
    """Count the answers "present"."""
    return int(np.count_nonzero(answers)) if isinstance(answers, np.ndarray) else answers.count(True)


def all_found(answers: Answers) -> bool:
    """Check answers for present keys."""
    return bool(np.all(answers)) if isinstance(answers, np.ndarray) else all(answers)


def few_found(answers: Answers, fpr: float, count: int) -> bool:
    """Check answers for absent keys: far more positives than asked for mean a broken filter."""
    return len(answers) == count and positives(answers) <= 10 * fpr * count + 20


def count_text(count: int) -> str:
    """Return a number of keys for a name."""
    return f"{count // 1_000_000}M" if count % 1_000_000 == 0 else f"{count:,}"


def size_text(nbytes: int) -> str:
    """Return a number of bytes for a name."""
    return f"{nbytes // MIB} MiB" if nbytes % MIB == 0 else f"{nbytes // 1024} KiB"


def comparison(
    name: str,
    subjects: Sequence[Subject],
    work: Callable[[Subject], object],
    *,
    operations: int,
    facts: Mapping[str, Mapping[str, float]],
    targets: Sequence[Goal] = (),
    notes: str,
    prepare: Callable[[Subject], object] | None = None,
    check: Callable[[Subject, Any], bool] | None = None,
) -> Case:
    """Return the case in which every subject does the same work."""
    return Case(
        name=name,
        contenders={
            each.label: Contender(
                run=partial(work, each),
                prepare=None if prepare is None else partial(prepare, each),
                check=None if check is None else partial(check, each),
                facts=facts[each.label],
            )
            for each in subjects
        },
        operations=operations,
        targets=targets,
        notes=notes,
    )


# --- running a suite -------------------------------------------------------------------------------


def main_of(
    suite: str,
    cases: Callable[[Sizes], Iterable[Case]],
    peers: Mapping[str, str],
    quick: bool,
    rounds: int | None,
    json_path: str | None,
    markdown: bool,
) -> int:
    """Run a suite's cases, print the tables, write the JSON; the exit status: 0, or 2 if it cannot run.

    `peers` are the modules that it compares with, and the packages that have them.
    """
    try:
        for module, package in peers.items():
            import_peer(module, package)
    except MissingPeerError as error:
        print(error, file=sys.stderr)
        return 2
    report = run(
        cases(QUICK if quick else FULL),
        rounds or 3,
        seconds=0.1 if quick else 3.0,
        packages=list(peers.values()),
        quick=quick,
    )
    publish(report, suite, json_path=json_path, markdown=markdown, whole=not quick)
    return 0
