"""Measure what a look-up costs, and print the constants of `evenbins.design.cost`.

    python tools/lookup_times.py

Filters of three sizes (in the second-level cache, in the third-level cache, in memory) and several rates are
filled and asked by `contains_many`, one thread: half of the keys present, half absent. Times are the
process's own (a busy machine disturbs them less), the best of many rounds. Each line shows what was measured
and what the constants of the package predict; the last lines are the constants that fit this machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from evenbins import design
from evenbins.design import cost
from evenbins.filters import build
from evenbins.filters.plan import FilterPlan

SIZES = {"L2": 2**18, "L3": 2**23, "memory": 2**28}
RATES = (1e-2, 1e-4, 1e-6, 1e-9)
POLICIES = ("blocked", "two-choice", "single", "fill", "multilevel", "sequential", "standard")
BATCH = 1 << 16
ROUNDS = 64
BATCHES = 32  # one after the other: their blocks do not fit in a cache
MOST_KEYS = 10**12  # fewer for a quick look


class Row(NamedTuple):
    """One filter: its plan, ns per look-up without the key's digest."""

    plan: FilterPlan
    ns: float

    @property
    def reads(self) -> float:
        """Mean reads of the keys that were asked."""
        return (self.plan.reads + self.plan.miss_reads) / 2


def measure(policy: str, rate: float, nbytes: int, rng: np.random.Generator) -> Row:
    """Build, fill and ask one filter."""
    trial = design.filter(10**6, fpr=rate, policies=[policy]).best.plan
    keys = min(MOST_KEYS, int(nbytes * 8 / trial.bits_per_key))
    filter_ = build(design.filter(keys, fpr=rate, policies=[policy]).best.plan)
    digests = rng.integers(0, 2**63, keys, dtype=np.uint64)
    filter_.add_many(digests, digests=True)
    asked = []
    for _ in range(BATCHES):
        batch = rng.integers(2**63, 2**64 - 1, BATCH, dtype=np.uint64)
        batch[::2] = rng.choice(digests, BATCH // 2)
        asked.append(batch)
    times = []
    for number in range(ROUNDS):
        begun = time.thread_time()
        filter_.contains_many(asked[number % BATCHES], digests=True, threads=1)
        times.append(time.thread_time() - begun)
    return Row(filter_.plan, min(times) / BATCH * 1e9)


def measure_key() -> float:
    """Return the ns of a text key from a list: what `contains_many` takes for it before the first read."""
    keys = [f"https://example.org/{i:08}" for i in range(1 << 14)]
    filter_ = build(design.filter(len(keys), fpr=1e-3, policies=["blocked"]).best.plan)
    digests = np.arange(len(keys), dtype=np.uint64)
    texts, words = [], []
    for _ in range(6 * ROUNDS):
        for given, times, options in ((keys, texts, {}), (digests, words, {"digests": True})):
            begun = time.thread_time()
            filter_.contains_many(given, threads=1, **options)
            times.append(time.thread_time() - begun)
    return (min(texts) - min(words)) / len(keys) * 1e9


def fit_reads(rows: list[Row]) -> cost.Reads:
    """Return what reads cost in filters of one size."""
    block = _median(row.ns for row in rows if row.plan.policy == "blocked")
    both = _median(row.ns for row in rows if row.plan.policy == "two-choice")
    anywhere = _median(row.ns / row.reads for row in rows if row.plan.policy == "standard")
    return cost.Reads(block, both - block, anywhere)


def fit_steps(rows: list[Row], block: float) -> cost.Steps:
    """Return what the steps of balanced filters cost beyond a block, in filters of one size."""
    threshold = _median(row.ns for row in rows if row.plan.policy == "single") - block
    several = [row for row in rows if row.plan.thresholds and row.reads > 1.1]
    dependent, sequential = (
        _median((row.ns - block - threshold) / (row.reads - 1)
                for row in several if (row.plan.policy == "sequential") == alone)
        for alone in (False, True)
    )  # fmt: skip
    return cost.Steps(threshold, dependent, sequential)


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def unmix(found: dict[str, cost.Reads]) -> dict[str, cost.Reads]:
    """Take away the part of the reads that met a smaller cache."""
    pure: dict[str, cost.Reads] = {}
    before: tuple[float, cost.Reads] | None = None
    for (name, reads), (size, _) in zip(found.items(), cost.READS, strict=True):
        if before is not None:
            part = min(1.0, before[0] / SIZES[name])
            reads = cost.Reads(
                *((each - part * less) / (1 - part) for each, less in zip(reads, before[1], strict=True))
            )
        pure[name], before = reads, (size, reads)
    return pure


def show(name: str, values: cost.Reads | cost.Steps) -> None:
    """Print constants as the module writes them."""
    print(name, *(f"{what}={ns:.1f}" for what, ns in zip(values._fields, values, strict=True)))


def main() -> None:
    """Measure all, and print."""
    rng = np.random.default_rng(1)
    key = measure_key()
    print(f"a text key: {key:.1f} ns")
    found, steps = {}, []
    for name, nbytes in SIZES.items():
        rows = []
        for rate in RATES:
            for policy in POLICIES:
                row = measure(policy, rate, nbytes, rng)
                predicted = cost.lookup_ns(row.plan) - cost.KEY_NS
                print(f"{name:6}  {rate:5.0e}  {policy:10}  {row.reads:6.2f} reads  {row.ns:6.1f} ns measured"
                      f"  {predicted:6.1f} predicted", flush=True)  # fmt: skip
                rows.append(row)
        found[name] = fit_reads(rows)
        steps.append(fit_steps(rows, found[name].block))
    print(f"KEY_NS = {key:.1f}")
    for name, reads in unmix(found).items():
        show(name, reads)
    show("steps", cost.Steps(*(statistics.mean(each) for each in zip(*steps, strict=True))))


if __name__ == "__main__":
    main()
