"""`evenbins demo` and `make demo`: what the library promises, shown on keys that it generates.

Each step stands alone: it takes a `Demo`, prints what it shows, and states its claims by `Demo.claim`. The
demo's exit status is 1 if a claim does not hold, so that it is a test as well. To extend it, write a
step and put it into `STEPS`.

What is printed is recorded, with figures, for a report in HTML (`report`).

Keys come from a fixed seed. A rate is *counted* on keys that are certainly absent; beside it stands its
exact binomial interval (Clopper and Pearson, 1934), which misses the true rate once in a million.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import evenbins
from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    CountingBloomFilter,
    CountMinSketch,
    Filter,
    FormatError,
    GrowingFilter,
    HashRing,
    MultilevelTable,
    PagedTable,
    ShardedFilter,
    _show,
)
from evenbins.filters import FilterPlan, plan_blocked, plan_standard
from evenbins.study.demo import figures
from evenbins.study.demo.parts import binomial_interval, million_keys_a_second, plain_table
from evenbins.study.demo.report import Report
from evenbins.study.ring import ring as study_ring

__all__ = ["LEAST_KEYS", "MOST_KEYS", "STEPS", "Demo", "run"]

LEAST_KEYS = 1_000
MOST_KEYS = 200_000_000
_FPR = 1e-3
_SEED = 20
_KINDS: tuple[type[BloomFilter] | type[BlockedBloomFilter], ...] = (BloomFilter, BlockedBloomFilter)
_POLICIES = ("fill", "two-choice", "multilevel")


@dataclass
class Demo:
    """What the steps share: how many keys, where to write, and the claims made so far."""

    keys: int
    folder: Path
    console: Console
    failed: list[str] = field(default_factory=list)
    report: Report = field(default_factory=lambda: Report(""))

    def begin(self, title: str) -> None:
        """Print the title of a step."""
        self.console.print()
        self.console.print(title, style="bold", markup=False, highlight=False)
        self.report.begin(title)

    def say(self, text: str) -> None:
        """Print a line as it is."""
        self._print(text)
        self.report.text(text)

    def show(self, table: Table) -> None:
        """Print a table."""
        self.console.print(table)
        self.report.table(table)

    def claim(self, holds: bool, text: str) -> None:
        """State what must be true, and remember if it is not."""
        mark, style = ("  ok     ", "green") if holds else ("  FAILED ", "bold red")
        self.console.print(mark, style=style, end="")
        self._print(text)
        self.report.claim(holds, text)
        if not holds:
            self.failed.append(text)

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    @cached_property
    def present(self) -> npt.NDArray[np.uint64]:
        """The integers that go into filters: random, below 2**63."""
        return np.random.default_rng(_SEED).integers(0, 2**63, self.keys, dtype=np.uint64)

    @cached_property
    def absent(self) -> npt.NDArray[np.uint64]:
        """As many integers that do not, 2**63 and above; at least a million, to count false positives."""
        count = max(self.keys, 1_000_000)
        return np.random.default_rng(_SEED + 1).integers(2**63, 2**64 - 1, count, dtype=np.uint64)

    @cached_property
    def words(self) -> list[str]:
        """Strings that go into filters: a tenth of the keys."""
        return [f"user-{i}@example.org" for i in range(self.keys // 10)]

    @cached_property
    def other_words(self) -> list[str]:
        """Strings that do not; at least a hundred thousand."""
        return [f"guest-{i}@example.org" for i in range(max(self.keys // 10, 100_000))]


def plan(demo: Demo) -> None:
    """Ask for a rate, and see what it costs; ask for memory, and see the rate."""
    names = ("bits_per_key", "hashes", "fpr", "reads", "miss_reads", "nbytes")
    table = plain_table("", *names)
    wishes: tuple[dict[str, Any], ...] = ({"fpr": _FPR}, {"fpr": 1e-6}, {"bits_per_key": 16})
    for wish in wishes:
        table.add_row(*(f"{name}={value:g}" for name, value in wish.items()))
        planners: tuple[Callable[..., FilterPlan], ...] = (plan_standard, plan_blocked)
        for kind, planner in zip(_KINDS, planners, strict=True):
            found = planner(demo.keys, **wish)
            table.add_row(f"  {kind.__name__}", *(_show.text(name, getattr(found, name)) for name in names))
    demo.show(table)


def integers(demo: Demo) -> None:
    """Add a NumPy array of random integers."""
    _predict_and_measure(demo, demo.present, demo.absent)


def strings(demo: Demo) -> None:
    """Add a list of strings."""
    _predict_and_measure(demo, demo.words, demo.other_words)


def design(demo: Demo) -> None:
    """Ask for a rate; see every design that reaches it."""
    from evenbins import design as designs

    found = designs.filter(demo.keys, fpr=1e-6)
    names = ("policy", "hashes", "bits_per_key", "nbytes", "reads", "miss_reads", "overflow")
    table = plain_table("", *names)
    table.columns[1].justify = "left"
    for each in found:
        cells = (_show.text(name, getattr(each.plan, name)) for name in names)
        table.add_row("*" if each.pareto else "", *cells)
    demo.show(table)
    demo.say("* on the Pareto front. The same: evenbins design filter --keys N --fpr 1e-6")
    demo.report.figure(
        "Bits per key for a rate of 1e-6, everything counted, and memory reads of an absent key.",
        partial(figures.designs, [each.plan for each in found]),
    )
    small = min((each.plan for each in found if each.plan.miss_reads <= 2), key=lambda plan: plan.nbytes)
    blocked = found.by_policy("blocked").plan
    demo.claim(
        small.nbytes < blocked.nbytes,
        f"{small.policy}: {small.bits_per_key:.1f} bits per key and at most 2 reads; blocked needs "
        f"{blocked.bits_per_key:.1f}",
    )


def balanced(demo: Demo) -> None:
    """Full blocks pass keys on: three policies on the same bits."""
    _lay_beside(
        demo, demo.present, demo.absent, ("keys", "fpr", "reads", "miss_reads", "overflow"),
        [(each, partial(BalancedBloomFilter, bits_per_key=16, policy=each)) for each in _POLICIES],
    )  # fmt: skip
    plain = BlockedBloomFilter(demo.keys, bits_per_key=16)
    full = BalancedBloomFilter(demo.keys, bits_per_key=16, policy="fill")
    for filter_ in (plain, full):
        filter_.add_many(demo.present)
    demo.report.figure(
        "Blocks of 512 bits by their set bits: the planned distribution (lines) and what is counted in the "
        "filter (areas). On the right a full block sends keys on to the next level, so that none is much "
        "fuller than the others.",
        partial(figures.loads, [plain, full]),
    )
    once = BalancedBloomFilter(demo.keys, bits_per_key=16, policy="multilevel")
    once.add_many(demo.present)
    before = once.to_bytes()
    once.add_many(demo.present[::-1])
    demo.claim(once.to_bytes() == before, "adding all keys again, in another order, changes not one bit")


def removal(demo: Demo) -> None:
    """Add keys to a counting filter, and take half of them out again."""
    keys = demo.present[: demo.keys // 10]
    half = keys.size // 2
    filter_ = CountingBloomFilter(keys.size, fpr=_FPR)
    filter_.add_many(keys)
    full, planned = filter_.stats(), filter_.plan
    filter_.remove_many(keys[:half])
    demo.say(
        f"{keys.size:_} keys in counters of {filter_.counter_bits} bits: fpr {planned.fpr:.2e} planned, "
        f"{full.fpr:.2e} measured;\nfull counters {planned.saturated:.1e} planned, {full.saturated} measured"
    )
    demo.claim(
        bool(filter_.contains_many(keys[half:]).all()),
        f"{half:_} keys removed: none of the other {keys.size - half:_} is missed",
    )
    fresh = CountingBloomFilter(keys.size, fpr=_FPR)
    fresh.add_many(keys[half:])
    demo.claim(
        fresh.to_bytes() == filter_.to_bytes(), "and the bytes are those of a filter that never had them"
    )


def stream(demo: Demo) -> None:
    """Count a stream of keys that come unequally often."""
    weights = 1 / np.arange(1, 100_001)
    ranks = np.random.default_rng(_SEED + 2).choice(weights.size, demo.keys // 10, p=weights / weights.sum())
    exact = np.bincount(ranks, minlength=weights.size)
    sketch = CountMinSketch(epsilon=1e-3, delta=1e-3)
    sketch.add_many(ranks)
    excess = sketch.count_many(np.arange(weights.size)) - exact
    bound = sketch.plan.epsilon * ranks.size
    demo.say(
        f"{ranks.size:_} additions of 100_000 keys, {_show.size(sketch.nbytes)} of counters: estimates "
        f"{excess.mean():.3g} too high in the mean"
    )
    demo.claim(bool((excess >= 0).all()), "no estimate is too low")
    beyond = int((excess > bound).sum())
    demo.claim(
        beyond <= sketch.plan.delta * excess.size,
        f"{beyond} of 100_000 are more than {bound:.4g} too high, where {sketch.plan.delta:g} of them may be",
    )


def table(demo: Demo) -> None:
    """Put keys with values into a table; replace some of them."""
    keys = np.unique(demo.present[: demo.keys // 10])
    values = keys[::-1].copy()
    made = MultilevelTable(keys.size, key_dtype="uint64", value_dtype="uint64")
    begun = time.perf_counter()
    made.insert_many(keys, values)
    seconds = time.perf_counter() - begun
    planned, measured = made.plan, made.stats()
    names = ("keys", "overflow", "moves", "reads", "miss_reads", "nbytes")
    sheet = plain_table("", *names)
    for title, source in (("planned", planned), ("measured", measured)):
        sheet.add_row(title, *(_show.text(name, getattr(source, name)) for name in names))
    demo.show(sheet)
    demo.say(
        f"{made.nbytes / keys.size:.2f} bytes per key; "
        f"{keys.size / seconds / 1e6:.0f} million insertions a second"
    )
    demo.claim(bool((made.get_many(keys) == values).all()), "every key has its value")
    half = keys.size // 2
    listed = []
    for part in np.array_split(np.arange(half), 10):
        made.delete_many(keys[part])
        made.insert_many(demo.absent[part], 7)
        listed.append(made.stats().overflow)
    demo.report.figure(
        "Fraction of keys on the table's overflow list while half of the keys are replaced by others.",
        partial(figures.overflow, [measured.overflow, *listed], planned.overflow),
        height=2.6,
    )
    demo.claim(
        bool((made.get_many(keys[half:]) == values[half:]).all())
        and not made.contains_many(keys[:half]).any(),
        f"{half:_} keys deleted and as many others inserted: the rest is as it was",
    )
    reads = max(made.probe(key)[1] for key in keys[: min(half, 10_000)].tolist())
    demo.claim(reads <= 2, f"no look-up reads more than {planned.levels} buckets and the list")


def one_read(demo: Demo) -> None:
    """Save a table in pages; look keys up in the file."""
    keys = np.unique(demo.present[: demo.keys // 10])
    made = MultilevelTable(keys.size, key_dtype="uint64", value_dtype="uint64")
    made.insert_many(keys, keys)
    path = demo.folder / "pages.evb"
    made.save(path, layout="pages")
    with PagedTable.open(path) as table:
        found, absent = table.get_many(keys), table.contains_many(demo.absent[: keys.size])
        planned, measured = table.plan, table.stats()
        demo.say(
            f"{keys.size:_} keys, {_show.size(table.nbytes)} in the file, "
            f"{_show.size(table.summary_bytes)} of summary in memory;\n"
            f"reads of an absent key: {planned.miss_reads:.1e} planned, {measured.miss_reads:.1e} measured"
        )
        demo.claim(
            bool((found == keys).all()) and not absent.any() and measured.reads < 1.001,
            f"every key has its value, by {measured.reads:.4f} page reads each",
        )


def ring(demo: Demo) -> None:
    """Assign keys to servers that never exceed their limit; let one join, let one fail."""
    servers = [f"server{i:03}" for i in range(500)]
    keys = np.unique(demo.present[: max(demo.keys // 20, 5000)])
    made = HashRing(servers, epsilon=0.1)
    begun = time.perf_counter()
    before = made.assign_many(keys)
    seconds = time.perf_counter() - begun
    names = ("nodes", "keys", "limit", "variance", "full", "searches", "max_load")
    sheet = plain_table("", *names)
    for title, source in (("planned", made.plan), ("measured", made.stats())):
        sheet.add_row(title, *(_show.text(name, getattr(source, name)) for name in names))
    demo.show(sheet)
    cascade = study_ring(servers, policy="clockwise", layout="sparse", epsilon=0.1)
    cascade.assign_many(keys[: keys.size // 5], indices=True)
    looks = cascade.stats()
    demo.say(
        f"{keys.size / seconds / 1e6:.0f} million assignments a second, "
        f"{made.stats().placed_searches:.2f} searches for each. By neighbours (CH-BL),\n"
        f"a fifth of the keys: {looks.placed_searches:.0f} searches, {looks.full:.0%} of the servers full"
    )
    limit = made.stats().limit
    plain = study_ring(servers, policy="plain", layout="sparse")
    plain.assign_many(keys[: keys.size // 5], indices=True)
    demo.report.figure(
        "Keys of each of 500 servers over their mean, fullest first: plain consistent hashing, bounded loads "
        "by neighbours (CH-BL) and by jumps, both with the limit 1.1 (rounded up to whole keys).",
        partial(figures.servers, {"plain": plain, "neighbours": cascade, "jump": made}),
    )
    demo.claim(
        limit is not None and max(made.loads().values()) <= limit,
        f"no server has more than {limit} keys, ceil(1.1 * keys / servers)",
    )
    moves = made.add_node("new")
    after = made.locate_many(keys)
    demo.claim(
        len(moves) == int((before != after).sum()) and {new for _, _, new in moves} == {"new"},
        f"a server joins: {len(moves):_} keys move to it ({len(moves) * 501 / keys.size:.2f} of its share), "
        "no other key moves",
    )
    gone = made.mark_down("server007")
    back = made.mark_up("server007")
    demo.claim(
        bool((made.locate_many(keys) == after).all()) and len(gone) == len(back),
        f"a server fails: its {len(gone):_} keys go to all others; it is back: they return",
    )


def shards(demo: Demo) -> None:
    """Plan a filter that no machine here holds; build a small one of the same kind."""
    from evenbins import design as designs

    plan = designs.sharded_filter(keys=1e12, fpr=_FPR, shard_bytes=2**30).by_policy("blocked").plan
    demo.say(
        f"a trillion keys at {_FPR:g}: {plan.shards:_} shards of {_show.size(plan.shard_bytes)}, "
        f"{_show.size(plan.nbytes)} in all;\n"
        f"{plan.moved:.2%} of the keys move if one shard is added"
    )
    keys = demo.present[: demo.keys // 10]
    made = ShardedFilter(keys.size, shards=16, fpr=_FPR)
    made.add_many(keys)
    made.save(demo.folder / "shards")
    again = ShardedFilter.open(demo.folder / "shards")
    demo.claim(
        bool(again.contains_many(keys).all()) and again == made,
        f"{keys.size:_} keys in 16 files and a manifest: none is missed by whoever opens them",
    )


def growing(demo: Demo) -> None:
    """Nobody knows how many keys will come."""
    filter_ = GrowingFilter(_FPR, first=max(demo.keys // 50, 1))
    filter_.add_many(demo.present)
    measured = filter_.stats()
    answers = filter_.contains_many(demo.absent)
    low, high = binomial_interval(int(answers.sum()), answers.size)
    demo.say(
        f"{filter_!r}: {measured.bits_per_key:.1f} bits per planned key, "
        f"{measured.miss_reads:.1f} reads of an absent key"
    )
    demo.claim(bool(filter_.contains_many(demo.present).all()), "no present key is missed")
    demo.claim(
        measured.fpr <= _FPR and low <= _FPR,
        f"fpr {measured.fpr:.2e}, counted within {low:.2e} .. {high:.2e}; promised {_FPR:g}",
    )


def paper(demo: Demo) -> None:
    """Run one of the papers' experiments."""
    from evenbins.study import papers

    result = papers.run("kanizo-fig4a", quick=True)
    table = plain_table("where", "quantity", "paper", "ours")
    for each in result.rows:
        if each.paper is not None:
            where = ", ".join(f"{name} {value}" for name, value in each.where.items())
            table.add_row(where, each.quantity, f"{each.paper:g}", f"{each.ours:.4g}")
    demo.show(table)
    demo.say(f"{result.source}; the first is a misprint. All of them: evenbins reproduce --list")
    exact = next(each for each in result.rows if each.paper == 0.005)
    demo.claim(
        abs(exact.ours - 0.005) < 5e-5, "overflow of the multilevel scheme at 1.2 reads, as the paper says"
    )


def speed(demo: Demo) -> None:
    """Time the bulk calls."""
    threads = os.cpu_count() or 1
    workers = sorted({1, threads})
    measured: dict[str, list[float]] = {}
    table = plain_table("million keys a second", *(f"threads={each}" for each in workers))
    kinds: list[tuple[str, Callable[[], Filter]]] = [
        ("standard", lambda: BloomFilter(demo.keys, fpr=_FPR)),
        ("blocked", lambda: BlockedBloomFilter(demo.keys, fpr=_FPR)),
        *((each, partial(BalancedBloomFilter, demo.keys, fpr=_FPR, policy=each)) for each in _POLICIES),
    ]
    for name, make in kinds:
        filters = [make() for _ in workers]
        for call, keys in (
            ("add_many", "present"),
            ("contains_many", "present"),
            ("contains_many", "absent"),
        ):
            rates = [
                million_keys_a_second(getattr(filter_, call), getattr(demo, keys), each)
                for filter_, each in zip(filters, workers, strict=True)
            ]
            measured[f"{name}.{call}({keys})"] = rates
            table.add_row(f"{name}.{call}({keys})", *(f"{rate:.0f}" for rate in rates))
    demo.show(table)
    demo.report.figure(
        f"Million keys a second, one thread: {demo.keys:_} integers in a NumPy array.",
        partial(figures.rates, {name: rates[0] for name, rates in measured.items()}), height=4.2,
    )  # fmt: skip


def another_process(demo: Demo) -> None:
    """Save a filter; a process of its own opens it and answers."""
    filter_ = BlockedBloomFilter(len(demo.words), fpr=_FPR)
    filter_.add_many(demo.words)
    path = demo.folder / "demo.evb"
    filter_.save(path)
    demo.say(f"saved {path} ({_show.size(path.stat().st_size)})")
    command = ["query", "-c", str(path)]
    for name, words in (("present", demo.words), ("absent", demo.other_words)):
        lines = demo.folder / f"{name}.txt"
        lines.write_text("".join(word + "\n" for word in words))
        demo.say(f"$ evenbins {' '.join(command)} < {lines}")
        begun = time.perf_counter()
        with lines.open("rb") as stdin:
            done = subprocess.run(
                [sys.executable, "-m", "evenbins", *command], stdin=stdin, capture_output=True, check=False
            )
        seconds = time.perf_counter() - begun
        if done.returncode not in (0, 1):
            raise RuntimeError(f"evenbins {' '.join(command)}: {done.stderr.decode(errors='replace')}")
        counted = int(done.stdout)
        demo.say(f"{counted}      ({len(words):_} lines, {seconds:.2f} s with the start of Python)")
        expected = int(filter_.contains_many(words).sum())
        demo.claim(counted == expected, f"{counted:_} of {len(words):_} {name} strings, as in this process")


def damage(demo: Demo) -> None:
    """Flip one bit of a file."""
    filter_ = BlockedBloomFilter(1_000, fpr=_FPR)
    filter_.add_many(demo.present[:1_000])
    path = demo.folder / "damaged.evb"
    data = bytearray(filter_.to_bytes())
    bit = int(np.random.default_rng(_SEED).integers(8 * len(data)))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    try:
        BlockedBloomFilter.load(path)
    except FormatError as error:
        demo.say(f"FormatError: {error}")
        demo.claim(True, f"bit {bit:_} of {8 * len(data):_} was flipped, and the file is refused")
    else:
        demo.claim(False, f"bit {bit:_} of {8 * len(data):_} was flipped, and the file was loaded")


STEPS: list[tuple[str, Callable[[Demo], None]]] = [
    ("The plan: what a filter for {keys:_} keys needs, and what it will do", plan),
    ("Prediction beside measurement: {keys:_} integers from a NumPy array", integers),
    ("Prediction beside measurement: {words:_} strings from a list", strings),
    ("Design by requirement: a rate of 1e-6 for {keys:_} keys", design),
    ("Balanced filters: three policies at 16 bits per key", balanced),
    ("A growing filter: the number of keys is not known", growing),
    ("A counting filter: keys that can be removed", removal),
    ("A count-min sketch: how often did each key come?", stream),
    ("A hash table: at most two buckets for a look-up, one move for an insertion", table),
    ("A table on disk: one page read for a look-up", one_read),
    ("A ring of servers: none above its limit, least moves", ring),
    ("A filter in shards, and one for a trillion keys, planned", shards),
    ("A number of a paper beside ours", paper),
    ("Speed of the bulk calls", speed),
    ("A file, and another process", another_process),
    ("A damaged file", damage),
]


def run(
    *,
    keys: int,
    out: str | os.PathLike[str] | None = None,
    report: str | os.PathLike[str] | None = None,
    console: Console | None = None,
) -> int:
    """Run all steps.

    Parameters
    ----------
    keys
        Integers to generate; strings are a tenth of them.
    out
        Folder for the files; a temporary one, removed at the end, if not given.
    report
        Where to write the report, one HTML file; `out`/report.html, or nowhere, if not given.
    console
        Where to print.

    Returns
    -------
    int
        0, or 1 if a claim did not hold.
    """
    begun = time.perf_counter()
    with ExitStack() as stack:
        folder = Path(out or stack.enter_context(tempfile.TemporaryDirectory(prefix="evenbins-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        demo = Demo(keys, folder, console or Console(highlight=False))
        demo.report.facts = (
            f"evenbins {evenbins.__version__}, kernel {evenbins.kernel()}, "
            f"Python {platform.python_version()}, {os.cpu_count()} processors, "
            f"{keys:_} keys, {date.today().isoformat()}"
        )
        demo._print(f"evenbins {evenbins.__version__}, kernel {evenbins.kernel()}")
        for number, (title, step) in enumerate(STEPS, 1):
            demo.begin(f"{number}. " + title.format(keys=keys, words=keys // 10))
            step(demo)
        demo.console.print()
        if out is not None:
            demo._print(f"The files are in {folder}.")
        place = Path(report) if report is not None else folder / "report.html" if out is not None else None
        if place is not None:
            place.write_text(demo.report.html(), encoding="utf-8")
            demo._print(f"The report, with figures: {place.resolve()}")
        demo._print(
            "To try it yourself: make lab, or evenbins lab, opens a page; evenbins --help lists the commands."
        )
    seconds = time.perf_counter() - begun
    if demo.failed:
        demo._print(f"{len(demo.failed)} claims FAILED ({seconds:.1f} s).")
        return 1
    demo._print(f"Every claim holds ({seconds:.1f} s).")
    return 0


# --- parts of steps ---------------------------------------------------------------------------------------


def _predict_and_measure(demo: Demo, present: npt.NDArray[np.uint64] | list[str], absent: object) -> None:
    """Build both plain filters at one rate."""
    makers = [(kind.__name__, partial(kind, fpr=_FPR)) for kind in _KINDS]
    _lay_beside(demo, present, absent, ("keys", "fpr", "fill", "reads", "nbytes"), makers)


def _lay_beside(
    demo: Demo,
    present: npt.NDArray[np.uint64] | list[str],
    absent: object,
    names: tuple[str, ...],
    makers: Sequence[tuple[str, Callable[[int], Filter]]],
) -> None:
    """Build filters; lay plan, stats and what is counted below each other."""
    table = plain_table("", "", *names)
    table.columns[1].justify = "left"
    claims: list[tuple[bool, str]] = []
    for title, make in makers:
        filter_ = make(len(present))
        filter_.add_many(present)
        found = int(filter_.contains_many(present).sum())
        answers = filter_.contains_many(absent)
        rate = int(answers.sum()) / answers.size
        low, high = binomial_interval(int(answers.sum()), answers.size)
        planned, measured = filter_.plan, filter_.stats()
        table.add_row(title, "planned", *(_show.text(name, getattr(planned, name)) for name in names))
        table.add_row("", "measured", *(_show.text(name, getattr(measured, name)) for name in names))
        table.add_row("", "counted", _show.text("keys", found), _show.text("fpr", rate))
        claims += [
            (found == len(present), f"{title}: no present key is missed"),
            (
                low <= measured.fpr <= high,
                f"{title}: measured on {answers.size:_} absent keys: fpr within {low:.2e} .. {high:.2e}",
            ),
        ]
    demo.show(table)
    for holds, text in claims:
        demo.claim(holds, text)
