"""Look for a lost key: a billion queries of keys that are in balanced filters, and none may be missed.

    python tools/soak.py                              10^9 queries, all policies, both block sizes
    python tools/soak.py --queries 1e8 --seed 7       fewer, and others
    python tools/soak.py --only multilevel-256 --round 31     one round again, as the report names it

A round is one history of one filter: a random shape (loads, coins, lists of any length or none, either spill
rule, budgets), then random steps: batches of 1 to 100,000 keys with repeats among them, by one to three
threads or singly; merges in both directions; copies, pickles, files loaded or mapped. After every step all
keys so far are asked. Rounds run in processes of their own, as many as there are cores.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from evenbins import BalancedBloomFilter, FilterPlan
from evenbins.study.levels import plan_levels

POLICIES = ("single", "sequential", "multilevel", "fill", "two-choice")
SHAPES = [(policy, block_bits) for policy in POLICIES for block_bits in (256, 512)]
ROUND = 10_000_000  # queries

Keys = npt.NDArray[np.int64]


@dataclass
class Outcome:
    """What came of a round."""

    name: str
    number: int
    shape: str
    queries: int = 0
    lost: int = 0
    keys: int = 0
    merges: int = 0
    reloads: int = 0
    listed: int = 0
    spilled: int = 0


def random_plan(rng: np.random.Generator, policy: str, block_bits: int) -> FilterPlan:
    """Draw a shape: from far too small to roomy, so that every rule is needed somewhere."""
    keys = int(10 ** rng.uniform(1, 5.5))
    total = max(1, round(keys * rng.uniform(4, 32) / block_bits))
    levels = int(rng.integers(1, 6)) if policy in ("multilevel", "fill") else 1
    shares = rng.dirichlet(np.ones(levels))
    blocks = [max(1, round(share * total)) for share in -np.sort(-shares)]
    arguments: dict[str, Any] = {"hashes": int(rng.integers(1, 33))}
    if policy in ("single", "sequential", "multilevel"):
        load = keys / sum(blocks)
        arguments["thresholds"] = [int(min(load * rng.uniform(0.3, 1.3), 65534)) for _ in blocks]
        arguments["coin"] = float(rng.choice([0.0, 0.5, 1.0, rng.random()]))
        arguments["overflow_limit"] = int(rng.choice([0, 1, keys // 100 + 1, keys // 4 + 1, 2 * keys]))
        arguments["spill"] = str(rng.choice(["least", "random"]))
    if policy == "sequential":
        arguments["choices"] = int(rng.integers(1, 9))
        if arguments["overflow_limit"]:
            arguments["budget"] = int(rng.choice([0, 1, keys // 2, keys + 1, 2 * keys]))
    if policy == "fill":
        arguments["thresholds"] = [int(rng.integers(1, block_bits + 1)) for _ in blocks[1:]]
    return plan_levels(
        keys, policy=policy, blocks=blocks, block_bits=block_bits, seed=int(rng.integers(2**63)), **arguments
    )


def draw(rng: np.random.Generator, known: Keys, plan: FilterPlan) -> Keys:
    """Draw new keys and some that are in already, the same ones twice among them."""
    count = int(min(10 ** rng.uniform(0, 5), max(plan.keys, 10)))
    fresh = rng.integers(-(2**63), 2**63, count)
    if len(known):
        again = rng.choice(known, int(rng.integers(0, count // 4 + 2)))
        fresh = np.concatenate([fresh, again, fresh[: len(again)]])
    return rng.permutation(fresh)


def reload(rng: np.random.Generator, f: BalancedBloomFilter, path: Path) -> BalancedBloomFilter:
    """Send the filter through one of the ways out and back."""
    match int(rng.integers(5)):
        case 0:
            return f.copy()
        case 1:
            return pickle.loads(pickle.dumps(f))
        case 2:
            return BalancedBloomFilter.from_bytes(f.to_bytes())
        case 3:
            f.save(path)
            return BalancedBloomFilter.load(path)
        case _:
            f.save(path)
            return BalancedBloomFilter.open(path, verify=bool(rng.integers(2))).copy()


def soak(policy: str, block_bits: int, seed: int, number: int, queries: int) -> Outcome:
    """Run one round; the same arguments give the same round."""
    rng = np.random.default_rng([seed, number, POLICIES.index(policy), block_bits])
    out = Outcome(f"{policy}-{block_bits}", number, "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "filter"
        while out.queries < queries:
            plan = random_plan(rng, policy, block_bits)
            out.shape = str(tuple(plan.core))
            f = BalancedBloomFilter.from_plan(plan)
            known: Keys = np.empty(0, np.int64)
            most = plan.keys * rng.uniform(0.8, 3)
            while len(known) < most and out.queries < queries and not out.lost:
                keys = draw(rng, known, plan)
                step = rng.random()
                if step < 0.55:
                    f.add_many(keys, threads=int(rng.integers(1, 4)))
                elif step < 0.7:
                    keys = keys[:300]
                    for key in keys.tolist():
                        f.add(key)
                else:
                    other = BalancedBloomFilter.from_plan(plan)
                    other.add_many(keys)
                    f = f | other if rng.random() < 0.5 else other | f
                    out.merges += 1
                if rng.random() < 0.25:
                    f = reload(rng, f, path)
                    out.reloads += 1
                known = np.concatenate([known, keys])
                answers = f.contains_many(known, threads=int(rng.integers(1, 3)))
                singles = [key in f for key in known[-50:].tolist()]
                out.queries += len(answers) + len(singles)
                out.lost += int((~answers).sum()) + singles.count(False)
            f._check()
            out.keys += len(known)
            if state := f._state():
                out.listed += state[1]
                out.spilled += state[4]
            if out.lost:
                break
    return out


def number_of(text: str) -> int:
    """Read 1e9 as well as 1000000000."""
    return int(float(text))


@click.command()
@click.option("--queries", default="1e9", help="Queries in all.")
@click.option("--seed", default=1, help="Of all randomness.")
@click.option("--processes", default=os.cpu_count() or 1, help="Rounds at the same time.")
@click.option("--only", default=None, help="One shape, for example multilevel-256.")
@click.option("--round", "one_round", default=None, type=int, help="One round of it, by its number.")
def main(queries: str, seed: int, processes: int, only: str | None, one_round: int | None) -> None:
    """Ask balanced filters for keys that are in, until none was lost in so many queries."""
    shapes = [(policy, bits) for policy, bits in SHAPES if only in (None, f"{policy}-{bits}")]
    if not shapes:
        names = ", ".join(f"{policy}-{bits}" for policy, bits in SHAPES)
        raise click.BadParameter(f"must be one of {names}", param_hint="--only")
    total = number_of(queries)
    size = max(min(ROUND, total // (len(shapes) * processes)), 10_000)
    rounds = math.ceil(total / size / len(shapes))
    tasks = [
        (policy, bits, seed, number, size)
        for number in (range(rounds) if one_round is None else [one_round])
        for policy, bits in shapes
    ]
    console = Console()
    started = time.perf_counter()
    found = run(console, tasks, processes)
    lost = report(console, found, time.perf_counter() - started, seed)
    sys.exit(1 if lost else 0)


def run(console: Console, tasks: list[tuple[str, int, int, int, int]], processes: int) -> list[Outcome]:
    """Run the rounds; stop at the first lost key."""
    found: list[Outcome] = []
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with ProcessPoolExecutor(processes) as pool, Progress(*columns, console=console) as progress:
        bar = progress.add_task("soak", total=sum(task[-1] for task in tasks), said="")
        waiting: set[Future[Outcome]] = {pool.submit(soak, *task) for task in tasks}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for each in done:
                if each.cancelled():
                    continue
                found.append(each.result())
                lost = sum(outcome.lost for outcome in found)
                said = f"{sum(outcome.queries for outcome in found):,} queries, {lost} lost"
                progress.update(bar, advance=found[-1].queries, said=said)
                if found[-1].lost:
                    pool.shutdown(wait=False, cancel_futures=True)
    return found


def short(count: int) -> str:
    """Write large numbers in thousands or millions."""
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1e3:,.0f} k" if count < 1_000_000 else f"{count / 1e6:,.1f} M"


def report(console: Console, found: list[Outcome], seconds: float, seed: int) -> int:
    """Print the table; return how many keys were lost."""
    table = Table(title="Queries of keys that are in")
    for name in ("filter", "rounds", "keys", "on lists", "spilled", "merges", "reloads", "queries", "lost"):
        table.add_column(name, justify="left" if name == "filter" else "right", no_wrap=True)
    names = list(dict.fromkeys(f"{policy}-{bits}" for policy, bits in SHAPES))
    for name in [*names, ""]:
        rows = [each for each in found if name in ("", each.name)]
        if not rows:
            continue
        counts = [
            sum(getattr(each, field) for each in rows)
            for field in ("keys", "listed", "spilled", "merges", "reloads", "queries", "lost")
        ]
        if not name:
            table.add_section()
        table.add_row(name or "all", f"{len(rows):,}", *map(short, counts))
    Console(width=max(console.width, 100), file=console.file).print(table)
    lost = sum(each.lost for each in found)
    asked = sum(each.queries for each in found)
    console.print(f"{asked:,} queries in {seconds:.0f} s, {lost} keys lost")
    for each in found:
        if each.lost:
            console.print(
                f"[red]lost {each.lost}[/red] in {each.name}, core {each.shape}: "
                f"python tools/soak.py --seed {seed} --only {each.name} --round {each.number}"
            )
    return lost


if __name__ == "__main__":
    main()
