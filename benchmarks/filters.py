"""The filters against their peers from PyPI, against the raw limit of memory, and against themselves.

Equal work: every contender of a case gets the same capacity, the same requested false-positive rate and
the same keys, and is called by its fastest public interface. Filters spend bits differently for the same
request, so the measured rate (on absent keys) and the bits per key stand beside each time.
How each contender is called: peers.py. The cases of the balanced filters: balanced.py; of growing and sharded
ones: composites.py; counting: counting.py.

Integer keys are random 63-bit numbers: fastbloom-rs takes no larger ones. abloom and rbloom hash a str with
Python's hash(), which a str computes once and keeps: where the same objects come again in each round, the
best round of these two hashes nothing. So strings are measured both ways, as objects that come again and as
new objects, which is what a program has that reads its keys. abloom also appears in its mode "serializable",
which hashes the bytes as ours does; the comparison is with the faster mode. Filters that are added to are
cleared off the clock, so that nobody pays for fresh pages; only in "build from strings" they are new.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.balanced import balanced_cases
from benchmarks.composites import composite_cases
from benchmarks.harness import Case, Contender, Limit, MissingPeerError, Target, import_peer, publish, run
from benchmarks.peers import (
    FILTER_PEERS,
    OTHERS,
    OURS,
    PEERS,
    STANDARD_PEERS,
    Abloom,
    Answers,
    Blocked,
    Fastbloom,
    Fill,
    Keys,
    Mmap3,
    Multilevel,
    Rbloom,
    Set,
    Standard,
    Subject,
    TwoChoice,
)
from benchmarks.shared import (
    FULL,
    MIB,
    QUICK,
    SEED,
    Sizes,
    all_found,
    arrow_column,
    comparison,
    count_text,
    few_found,
    hex_text,
    int_keys,
    make_subjects,
    measured_facts,
    renew,
    size_text,
    str_keys,
    strings,
)
from evenbins import BlockedBloomFilter, BloomFilter, _core
from evenbins.filters import plan_standard

__all__ = ["FULL", "PEERS", "QUICK", "Sizes", "cases", "main_filters", "memory_probe"]

_SET_NOTE = "set: no filter, for orientation; its bits are those of its table, without the key objects."

# --- single keys -----------------------------------------------------------------------------------


def _scalar_cases(sizes: Sizes, peers: Sequence[str]) -> Iterator[Case]:
    """Loops over ints, over str objects that come again in each round, and over new str objects."""
    count = sizes.scalar_keys
    numbers = int_keys(count, count)
    against_abloom = Target(
        text="no slower than abloom, the fastest peer",
        against=("abloom", "abloom, serializable"),
        at_least=1.0,
    )
    everybody = partial(
        _loops, classes=(*OURS, *OTHERS), peers=peers, targets=[against_abloom], notes=f" {_SET_NOTE}"
    )
    yield from everybody("int", "int", *numbers)
    some = (Blocked, Fill, TwoChoice, Multilevel, Abloom)
    yield from _loops("int, balanced", "int", *numbers, classes=some, peers=peers)
    del numbers
    text = hex_text(2 * count)
    texts = text[: 16 * count], text[16 * count :]
    for name, again in (("16-byte str", True), ("16-byte str, new objects", False)):
        present, absent = (str_keys(each) for each in texts)
        renewals = (
            [] if again else [partial(renew, *each) for each in zip((present, absent), texts, strict=True)]
        )
        yield from everybody(name, "str", present, absent, renewals=renewals)


def _loops(
    name: str,
    kind: str,
    present: Keys,
    absent: Keys,
    *,
    classes: Sequence[type[Any]],
    peers: Sequence[str],
    targets: Sequence[Target] = (),
    notes: str = "",
    renewals: Sequence[Callable[[], object]] = (),
) -> Iterator[Case]:
    """Loops of `k in f` and of `f.add(k)`; `renewals` give new key objects before each run."""
    fpr, count = 0.01, len(present)
    subjects = make_subjects(classes, kind, count, fpr, peers)
    for subject in subjects:
        subject.fill(present)
    compare = partial(
        comparison,
        subjects=subjects,
        operations=count,
        facts={each.label: measured_facts(each, each.ask(absent), count) for each in subjects},
        targets=targets,
        notes=f"capacity {count_text(count)}, fpr {fpr}; the Python loop is part of every time.{notes}",
    )

    def prepare(subject: Subject) -> None:
        for again in renewals:
            again()

    def prepare_empty(subject: Subject) -> None:
        prepare(subject)
        subject.clear()

    def check(subject: Subject, _: object) -> bool:
        return all_found(subject.ask(present))

    yield compare(
        f"in, hit, {name}",
        work=lambda subject: subject.look_up_each(present),
        prepare=prepare,
        check=check,
    )
    yield compare(f"in, miss, {name}", work=lambda subject: subject.look_up_each(absent), prepare=prepare)
    yield compare(
        f"add, {name}",
        work=lambda subject: subject.add_each(present),
        prepare=prepare_empty,
        check=check,
    )


# --- bulk calls ------------------------------------------------------------------------------------


def _bulk_cases(sizes: Sizes, peers: Sequence[str]) -> Iterator[Case]:
    """10M integers at once; ours from the uint64 array, peers from the list of the same numbers."""
    fpr, count = 0.01, sizes.bulk_keys
    present, absent = int_keys(count, count)
    sample, some_absent = present[::100], absent[: sizes.absent_keys]
    subjects = make_subjects((*OURS, *OTHERS), "int", count, fpr, peers)
    for subject in subjects:
        subject.fill(present)
    compare = partial(
        comparison,
        subjects=subjects,
        operations=count,
        facts={each.label: measured_facts(each, each.ask(some_absent), count) for each in subjects},
        notes=f"capacity {count_text(count)}, fpr {fpr}; one thread; lists are made off the clock. "
        f"{_SET_NOTE}",
    )
    query = Target(text="≥ 8 × faster than the fastest peer's bulk call", against=FILTER_PEERS, at_least=8.0)
    build = Target(text="≥ 6 × faster than the fastest peer's bulk call", against=FILTER_PEERS, at_least=6.0)
    what = f"{count_text(count)} uint64"
    yield compare(
        f"contains_many, {what}, present",
        work=lambda subject: subject.ask(present),
        check=lambda _, answers: len(answers) == count and all_found(answers),
        targets=[query],
    )
    yield compare(
        f"contains_many, {what}, absent",
        work=lambda subject: subject.ask(absent),
        check=lambda subject, answers: few_found(answers, fpr, count),
        targets=[query],
    )
    yield compare(
        f"add_many, {what}",
        work=lambda subject: subject.fill(present),
        prepare=lambda subject: subject.clear(),
        check=lambda subject, _: all_found(subject.ask(sample)),
        targets=[build],
    )


def _standard_cases(sizes: Sizes, peers: Sequence[str]) -> Iterator[Case]:
    """A standard filter of 32 MiB with as many keys as it holds at 1e-6."""
    fpr = 1e-6
    count = int(8 * sizes.standard_bytes / plan_standard(1_000_000, fpr=fpr).bits_per_key)
    present, absent = int_keys(count, count)
    subjects = make_subjects((Standard, Abloom, Rbloom, Fastbloom, Mmap3), "int", count, fpr, peers)
    for subject in subjects:
        subject.fill(present)
    # So small a rate needs all absent keys, so the first case measures it along with the time.
    facts: dict[str, dict[str, float]] = {each.label: {} for each in subjects}

    def check_absent(subject: Subject, answers: Answers) -> bool:
        facts[subject.label].update(measured_facts(subject, answers, count))
        return few_found(answers, fpr, count)

    compare = partial(
        comparison,
        subjects=subjects,
        operations=count,
        facts=facts,
        notes=f"capacity {count:,}, fpr {fpr:g}; one thread; FPR measured on {count:,} absent keys. The "
        "target refers to the standard filters among the peers; abloom is a split block filter, which buys "
        "one read of memory with many more bits.",
    )
    what = f"standard filter, {size_text(sizes.standard_bytes)}, fpr {fpr:g}"
    yield compare(
        f"{what}, absent",
        work=lambda subject: subject.ask(absent),
        check=check_absent,
        targets=[Target(text="≥ 4 × faster than the fastest peer", against=STANDARD_PEERS, at_least=4.0)],
    )
    yield compare(
        f"{what}, present",
        work=lambda subject: subject.ask(present),
        check=lambda _, answers: len(answers) == count and all_found(answers),
        targets=[Target(text="≥ 2 × faster than the fastest peer", against=STANDARD_PEERS, at_least=2.0)],
    )


def _string_cases(sizes: Sizes, peers: Sequence[str]) -> Iterator[Case]:
    """A filter built from strings: ours from an Arrow column, peers from a list of the same strings."""
    fpr, count = 0.01, sizes.string_keys
    text = hex_text(count + sizes.absent_keys)
    everything = Keys(arrow_column(text), strings(text))
    present, absent = everything[:count], everything[count:]
    text = text[: 16 * count].copy()
    sample = present[:: max(1, count // 100_000)]
    new = Keys(present.column, [])  # filled before each run that uses it

    def contender(
        each: type[Any], keys: Keys = present, prepare: Callable[[], object] | None = None
    ) -> Contender:
        facts: dict[str, float] = {}

        def build() -> Subject:
            subject: Subject = each(count, fpr, "str")
            subject.fill(keys)
            return subject

        def check(subject: Subject) -> bool:
            if not facts:
                facts.update(measured_facts(subject, subject.ask(absent), count))
            return all_found(subject.ask(sample))

        return Contender(run=build, prepare=prepare, check=check, facts=facts)

    contenders = {
        "evenbins blocked, Arrow": contender(Blocked),
        "evenbins blocked, list": contender(Blocked, Keys(present.items, present.items)),
    }
    for each in OTHERS:
        if each.peer in peers and each is not Set:
            contenders[each.label] = contender(each)
    if "rbloom" in peers:
        contenders["rbloom, new str objects"] = contender(Rbloom, new, partial(renew, new, text))
    yield Case(
        name=f"build from {count_text(count)} strings",
        contenders=contenders,
        operations=count,
        targets=[
            Target(
                text="≥ 4 × faster than rbloom's update",
                against=("rbloom", "rbloom, new str objects"),
                at_least=4.0,
            )
        ],
        notes=f"16 bytes each, fpr {fpr}; one thread; making the filter is part of the time. Peers keep the "
        "same list in all rounds, so Python has hashed its strings already; 'new str objects' are made each "
        "round, as a reader of files would have them.",
    )


# --- against the machine ---------------------------------------------------------------------------


def _line_cases(nbytes: int, sizes: Sizes) -> Iterator[Case]:
    """A full blocked filter against a loop that hashes, prefetches and reads one line a key."""
    capacity, count = nbytes // 2, sizes.line_keys  # 16 bits per key
    filter_ = BlockedBloomFilter(capacity, bits_per_key=16)
    step = 2**22
    for start in range(0, capacity, step):
        filter_.add_many(np.arange(start, min(start + step, capacity), dtype=np.uint64))
    rng = np.random.default_rng(SEED)
    present = rng.integers(0, capacity, count, dtype=np.uint64)
    absent = rng.integers(2**62, 2**63, count, dtype=np.uint64)
    words = np.frombuffer(filter_, np.uint64)  # type: ignore[call-overload]  # a buffer since it has the slot
    share = 0.45 if nbytes <= MIB else 0.75
    target = Target(
        text=f"≥ {share:g} of the raw limit's speed",
        against=("raw limit",),
        at_least=share,
        ceiling=1.05,  # ours reads the same lines and does more
    )
    facts = {
        "FPR": float(np.count_nonzero(filter_.contains_many(absent)) / count),
        "bits/key": 8 * filter_.nbytes / capacity,
    }
    for what, keys, check in (
        ("hits", present, all_found),
        ("misses", absent, partial(few_found, fpr=filter_.plan.fpr, count=count)),
    ):
        yield Case(
            name=f"contains_many, blocked, {size_text(nbytes)}, {what}",
            contenders={
                "evenbins blocked": Contender(
                    run=partial(filter_.contains_many, keys), check=check, facts=facts
                ),
                "raw limit": Contender(run=partial(_core.line_reads, words, keys)),
            },
            operations=count,
            targets=[target],
            notes="full to capacity, one thread; raw limit: a loop in the core that hashes each key, "
            "prefetches and reads its 64-byte line, and does nothing else.",
        )


def _thread_cases(sizes: Sizes) -> Iterator[Case]:
    """Two threads against one, on filters far larger than the caches."""
    capacity, count = sizes.thread_bytes // 2, sizes.thread_keys
    keys = np.random.default_rng(SEED).integers(0, 2**63, count, dtype=np.uint64)
    target = Target(text="≥ 1.7 × one thread", against=("1 thread",), at_least=1.7, ceiling=2.2)
    for name, filter_ in (
        ("blocked", BlockedBloomFilter(capacity, bits_per_key=16)),
        ("standard", BloomFilter(capacity, bits_per_key=16)),
    ):
        filter_.add_many(keys)
        notes = (
            f"16 bits per key, {count_text(count)} keys in a filter for {count_text(capacity)}, which is "
            f"cleared off the clock before each build; {os.cpu_count()} cores."
        )
        yield Case(
            name=f"2 threads, query, {name}, {size_text(sizes.thread_bytes)}",
            contenders={
                label: Contender(run=partial(filter_.contains_many, keys, threads=threads), check=all_found)
                for label, threads in (("2 threads", 2), ("1 thread", 1))
            },
            operations=count,
            targets=[target],
            notes=notes,
        )
        yield Case(
            name=f"2 threads, build, {name}, {size_text(sizes.thread_bytes)}",
            contenders={
                label: Contender(
                    run=partial(filter_.add_many, keys, threads=threads),
                    prepare=filter_.clear,
                    check=partial(_holds, filter_, keys),
                )
                for label, threads in (("2 threads", 2), ("1 thread", 1))
            },
            operations=count,
            targets=[target],
            notes=notes,
        )


def _holds(filter_: BlockedBloomFilter | BloomFilter, keys: npt.NDArray[np.uint64], _: object) -> bool:
    return bool(filter_.contains_many(keys, threads=2).all())


# --- memory ----------------------------------------------------------------------------------------


def _memory_cases(sizes: Sizes) -> Iterator[Case]:
    """Growth of the process while it builds a filter, beyond the filter itself."""
    contenders = {}
    for label, kind, threads in (
        ("uint64 array, 1 thread", "uint64", 1),
        ("uint64 array, 2 threads", "uint64", 2),
        ("int32 array", "int32", 1),
        ("S16 array", "S16", 1),
    ):
        contenders[label] = Contender(
            run=partial(_probe_memory, kind, sizes.memory_keys, threads),
        )
    yield Case(
        name=f"memory beyond the filter, build from {count_text(sizes.memory_keys)} keys",
        contenders=contenders,
        unit="MiB",
        targets=[Limit(text="filter + O(1), no copy of the keys: at most 16 MiB more", at_most=16.0)],
        notes="peak of the resident memory during the build, minus that before it, minus the filter's "
        "nbytes; each in a process of its own. A copy of the uint64 keys would be "
        f"{sizes.memory_keys * 8 / MIB:.0f} MiB.",
        once=True,
    )


def _probe_memory(kind: str, count: int, threads: int) -> float:
    code = f"from benchmarks.filters import memory_probe; memory_probe({kind!r}, {count}, {threads})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    measured: dict[str, int] = json.loads(done.stdout)
    return (measured["peak"] - measured["before"] - measured["nbytes"]) / MIB


def memory_probe(kind: str, count: int, threads: int) -> None:
    """Build one filter in this process and print its memory as JSON; run in a process of its own."""
    keys: npt.NDArray[Any] = hex_text(count).view("S16") if kind == "S16" else np.arange(count, dtype=kind)
    # Once in small: modules that are imported late and the like are no part of a build.
    BlockedBloomFilter(1000, bits_per_key=16).add_many(keys[:5000], threads=threads)
    before = _reset_peak()
    filter_ = BlockedBloomFilter(count, bits_per_key=16)
    filter_.add_many(keys, threads=threads)
    json.dump({"before": before, "peak": _peak(), "nbytes": filter_.nbytes}, sys.stdout)


def _status_bytes(name: str) -> int | None:
    """Return a line of /proc/self/status in bytes; None where there is no such file."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _reset_peak() -> int:
    """Set the peak back to the present memory, and give that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak()
    return _status_bytes("VmRSS") or _peak()


def _peak() -> int:
    found = _status_bytes("VmHWM")
    if found is None:  # not Linux
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return found


# --- all of it -------------------------------------------------------------------------------------


def cases(sizes: Sizes = FULL, peers: Sequence[str] = PEERS) -> Iterator[Case]:
    """Return every case, one at a time: the data of the largest fill gigabytes."""
    yield from _scalar_cases(sizes, peers)
    yield from _bulk_cases(sizes, peers)
    yield from _standard_cases(sizes, peers)
    if "rbloom" in peers:
        yield from _string_cases(sizes, peers)
    for nbytes in sizes.line_bytes:
        yield from _line_cases(nbytes, sizes)
    yield from _thread_cases(sizes)
    yield from balanced_cases(sizes, peers)
    yield from composite_cases(sizes)
    yield from _memory_cases(sizes)


def _packages(peers: Sequence[str]) -> list[str]:
    """Import all that the cases will need, so that what is missing is said at once; give the names."""
    needed = {
        "abloom": "abloom",
        "rbloom": "rbloom",
        "fastbloom-rs": "fastbloom_rs",
        "pybloomfiltermmap3": "pybloomfilter",
    }
    names = [name for name in peers if name in needed]
    for name in names:
        import_peer(needed[name], name)
    if "rbloom" in peers:
        import_peer("pyarrow", "pyarrow")
        names.append("pyarrow")
    return names


def main_filters(
    quick: bool = False,
    rounds: int | None = None,
    json_path: str | None = None,
    markdown: bool = False,
    peers: list[str] | None = None,
    *,
    sizes: Sizes | None = None,
) -> int:
    """Run the cases, print the tables, write the JSON; the exit status: 0, or 2 if it cannot run.

    A missed target does not change the status: times depend on the machine. Without `json_path` a complete
    run in a checkout writes benchmarks/results/<date>-filters.json; a quick or partial one writes nothing.
    """
    chosen = list(PEERS) if peers is None else peers
    unknown = [name for name in chosen if name not in PEERS]
    if unknown:
        print(f"no peer {', '.join(unknown)}: choose from {', '.join(PEERS)}", file=sys.stderr)
        return 2
    try:
        packages = _packages(chosen)
    except MissingPeerError as error:
        print(error, file=sys.stderr)
        return 2
    if sizes is None:
        sizes = QUICK if quick else FULL
    report = run(
        cases(sizes, chosen),
        rounds or 3,
        seconds=0.1 if quick else 3.0,
        packages=packages,
        quick=quick,
    )
    publish(report, "filters", json_path=json_path, markdown=markdown, whole=not quick and peers is None)
    return 0
