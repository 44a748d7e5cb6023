"""Compare plans with filters at ten million keys: every policy, both block sizes, 8 to 32 bits per key.

    python tools/check_targets.py --json targets.json      some minutes on two cores
    python tools/check_targets.py --quick                  a million keys, a quarter of the designs

For each design, the plan beside the mean of what filters of five seeds measure on themselves:

    fpr                within 1 %
    reads, miss_reads  within 0.5 %
    overflow           within 0.5 %, and five of the standard errors that theory predicts: with 0.03 % of the
                       keys on the list, as in the best plans, their number alone scatters by 2 %. So there
                       are plans with a long list too ("crowded"), where that is little.
    answers            counted false positives among 10^8 absent keys, up to 20 bits per key: in the binomial
                       interval of the filters' own rates at 1e-6
    lost               no key of a filter, of a million asked

More seeds are taken, up to twenty, where the mean rate of five is not known to a quarter of its bound. The
exit status is 1 if a design is out of its bounds.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy import stats

from evenbins import BalancedBloomFilter, FilterPlan
from evenbins.filters import plan_balanced
from evenbins.study.levels import plan_levels
from evenbins.theory import levels

POLICIES = ("single", "sequential", "multilevel", "fill", "two-choice")
COUNTED = POLICIES[:3]
BITS = (8, 12, 16, 20, 24, 32)
BOUNDS = {"fpr": 0.01, "reads": 0.005, "miss_reads": 0.005, "overflow": 0.005}
MEASURED = (*BOUNDS, "list_reads", "spilled", "fill")
MOST_SEEDS = 20
LEVEL = 1e-6
PIECE = 1_000_000


@dataclasses.dataclass
class Design:
    """A plan, and what its filters have said so far."""

    name: str
    bits_per_key: int
    plan: FilterPlan
    queries: int  # of each seed
    found: list[dict[str, float]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def mean(self, name: str) -> float:
        """Average over the seeds."""
        return float(np.mean([each[name] for each in self.found]))

    def error(self, name: str) -> float:
        """Return the standard error of the mean."""
        values = [each[name] for each in self.found]
        return float(np.std(values, ddof=1)) / math.sqrt(len(values))

    def off(self, name: str) -> float | None:
        """Return the relative difference to the plan; None where nothing is predicted."""
        planned = float(getattr(self.plan, name))
        return self.mean(name) / planned - 1.0 if planned * self.plan.keys >= 1.0 else None

    def scatter(self) -> float:
        """Return the predicted standard error of the mean overflow, relative to it."""
        found = levels.predict(self.plan.core, self.plan.keys)
        listed = found.overflow * found.changed * self.plan.keys
        return found.overflow_sd / listed / math.sqrt(len(self.found)) if listed else 0.0

    def needs_more_seeds(self) -> bool:
        """Return whether more seeds would help."""
        return self.error("fpr") > BOUNDS["fpr"] / 4 * self.mean("fpr")

    def interval(self) -> tuple[int, int]:
        """Return the counts of false positives to be expected."""
        asked = self.queries * len(self.found)
        low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], asked, self.mean("fpr"))
        return int(low), int(high)

    def count(self) -> int:
        """Count the false positives of all seeds."""
        return int(sum(each["false_positives"] for each in self.found))

    def problems(self) -> list[str]:
        """Name what is out of its bounds."""
        out = []
        for name, bound in BOUNDS.items():
            off = self.off(name)
            noise = 5 * self.scatter() if name == "overflow" else 0.0
            if off is not None and abs(off) > bound + noise:
                out.append(name)
        low, high = self.interval()
        if self.queries and not low <= self.count() <= high:
            out.append("answers")
        if any(each["lost"] for each in self.found):
            out.append("lost")
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "design": self.name, "policy": self.plan.policy, "block_bits": self.plan.block_bits,
            "bits_per_key": self.bits_per_key, "keys": self.plan.keys, "core": list(self.plan.core),
            "seeds": len(self.found), "problems": self.problems(), "seconds": self.seconds,
            "plan": {name: float(getattr(self.plan, name)) for name in MEASURED},
            "measured": {name: self.mean(name) for name in MEASURED},
            "standard_error": {name: self.error(name) for name in MEASURED},
            "queries": self.queries * len(self.found), "false_positives": self.count(),
            "interval": self.interval(), "lost": int(sum(each["lost"] for each in self.found)),
        }  # fmt: skip


def plan_crowded(keys: int, policy: str, bits_per_key: int, block_bits: int) -> FilterPlan:
    """Plan a filter that keeps some per cent of its keys on a long list."""
    load = block_bits / bits_per_key
    total = keys / load
    shares = {"multilevel": (0.77, 0.17, 0.06)}.get(policy, (1.0,))
    return plan_levels(
        keys, policy=policy, blocks=[round(total * share) for share in shares],
        thresholds=[math.floor(load) - 1 if load > 8 else math.floor(load)] * len(shares),
        hashes=max(1, round(0.6 * bits_per_key)), block_bits=block_bits, coin=0.5,
        overflow_limit=keys // 3, **({"choices": 2} if policy == "sequential" else {}),
    )  # fmt: skip


def designs(keys: int, bits: tuple[int, ...], queries: int) -> list[Design]:
    """List all designs: the best plan of each policy, and crowded ones where there is a list."""
    found = []
    for block_bits in (512, 256):
        for policy in POLICIES:
            for per_key in bits:
                asked = queries if per_key <= 20 else 0
                plan = plan_balanced(keys, policy=policy, bits_per_key=per_key, block_bits=block_bits)
                found.append(Design("best", per_key, plan, asked))
                if policy in COUNTED:
                    plan = plan_crowded(keys, policy, per_key, block_bits)
                    found.append(Design("crowded", per_key, plan, asked))
    return found


def measure(plan: FilterPlan, seed: int, queries: int) -> dict[str, float]:
    """Build one filter of the plan: the keys 0, 1, …, then as many absent ones as are to be asked."""
    started = time.perf_counter()
    f = BalancedBloomFilter.from_plan(dataclasses.replace(plan, seed=seed))
    for start in range(0, plan.keys, PIECE):
        f.add_many(np.arange(start, min(start + PIECE, plan.keys)))
    count = 0
    for start in range(plan.keys, plan.keys + queries, PIECE):
        count += int(f.contains_many(np.arange(start, min(start + PIECE, plan.keys + queries))).sum())
    present = np.random.default_rng(seed).integers(0, plan.keys, PIECE)
    found = f.stats()
    return {name: float(getattr(found, name)) for name in MEASURED} | {
        "false_positives": count,
        "lost": int((~f.contains_many(present)).sum()),
        "seconds": time.perf_counter() - started,
    }


def run(console: Console, todo: list[Design], seeds: int, processes: int) -> None:
    """Measure all designs, a few filters at a time: 40 MB each at 32 bits per key."""
    with ProcessPoolExecutor(processes) as pool, Progress(console=console) as progress:
        bar = progress.add_task("filters", total=len(todo) * seeds)
        waiting: dict[Future[dict[str, float]], Design] = {
            pool.submit(measure, each.plan, seed, each.queries): each
            for each in todo
            for seed in range(seeds)
        }
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                design = waiting.pop(future)
                design.found.append(result := future.result())
                design.seconds += result["seconds"]
                progress.advance(bar)
                alone = design not in waiting.values()
                if alone and design.needs_more_seeds() and len(design.found) < MOST_SEEDS:
                    more = range(len(design.found), min(len(design.found) + 5, MOST_SEEDS))
                    progress.update(bar, total=(progress.tasks[0].total or 0) + len(more))
                    for seed in more:
                        waiting[pool.submit(measure, design.plan, seed, design.queries)] = design


def report(console: Console, found: list[Design]) -> None:
    """Print a row for each design: predictions, and how far the filters are from them in per cent."""
    table = Table(title="Plan, and the mean of the filters: difference in per cent")
    for name in ("design", "bits", "seeds", "fpr", "±", "reads", "miss", "overflow", "±", "counted", "out"):
        table.add_column(name, justify="left" if name in ("design", "out") else "right", no_wrap=True)
    for each in found:
        offs = {name: each.off(name) for name in BOUNDS}
        shown = {name: "" if off is None else f"{100 * off:+.2f}" for name, off in offs.items()}
        noise = "" if offs["overflow"] is None else f"{100 * each.scatter():.2f}"
        counted = f"{100 * (each.count() / sum(each.interval()) * 2 - 1):+.2f}" if each.queries else ""
        table.add_row(
            f"{each.plan.policy} {each.plan.block_bits} {each.name}", str(each.bits_per_key),
            str(len(each.found)), shown["fpr"], f"{100 * each.error('fpr') / each.mean('fpr'):.2f}",
            shown["reads"], shown["miss_reads"], shown["overflow"], noise, counted,
            ", ".join(each.problems()),
        )  # fmt: skip
    Console(width=max(console.width, 120), file=console.file).print(table)


@click.command()
@click.option("--keys", default="1e7", help="Keys of each filter.")
@click.option("--seeds", default=5, help="Filters of each design, at least.")
@click.option("--queries", default="1e8", help="Absent keys of each design up to 20 bits per key.")
@click.option("--processes", default=os.cpu_count() or 1, help="Filters at the same time.")
@click.option(
    "--json", "path", default=None, type=click.Path(path_type=Path), help="Write the numbers there."
)
@click.option("--quick", is_flag=True, help="A million keys, 10^7 queries, 8, 16 and 24 bits per key.")
def main(keys: str, seeds: int, queries: str, processes: int, path: Path | None, quick: bool) -> None:
    """Compare plans of balanced filters with filters."""
    console = Console()
    count, asked, bits = int(float(keys)), int(float(queries)), BITS
    if quick:
        count, asked, bits = min(count, 1_000_000), min(asked, 10_000_000), (8, 16, 24)
    started = time.perf_counter()
    todo = designs(count, bits, math.ceil(asked / seeds))
    run(console, todo, seeds, processes)
    report(console, todo)
    failed = [each for each in todo if each.problems()]
    seconds = time.perf_counter() - started
    filters = sum(len(each.found) for each in todo)
    console.print(
        f"{len(todo)} designs, {filters} filters of {count:,} keys in {seconds:.0f} s: "
        + (f"[red]{len(failed)} out of their bounds[/red]" if failed else "all within their bounds")
    )
    if path:
        data = {"keys": count, "bounds": BOUNDS, "level": LEVEL, "seconds": seconds}
        path.write_text(json.dumps(data | {"designs": [each.to_dict() for each in todo]}, indent=1))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
