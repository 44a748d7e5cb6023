"""Soak every structure against an exact oracle: in memory, on disk, over the network.

    make soak                                               10**9, 10**7 and 10**6 operations: half an hour
    python tools/soak_all.py --quick                        a thousandth of it
    python tools/soak_all.py memory --only 'table' --seed 7

Prints a row for each structure and writes everything to soak/<date>.json: operations, lost keys or values,
broken bounds, drift of stats() against a recount, resident memory after each tenth. The exit status is 1 if
anything is above 0, or memory or open files grew. tools/soaks/ says what is done and what is compared.
"""

from __future__ import annotations

import datetime
import json
import multiprocessing
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from soaks import harness

import evenbins

SETTINGS = {"memory": 10**9, "disk": 10**7, "network": 10**6}


def cases_of(setting: str) -> list[harness.Case]:
    """Return the soaks of a setting; imported when needed."""
    if setting == "memory":
        from soaks.in_memory import CASES
    elif setting == "disk":
        from soaks.on_disk import CASES
    else:
        from soaks.over_network import CASES
    return CASES


def run_one(setting: str, number: int, operations: int, seed: int) -> harness.Outcome:
    """Run one soak, in a process of its own."""
    return harness.run(cases_of(setting)[number], setting, operations, seed, number)


@click.command()
@click.argument("settings", nargs=-1, type=click.Choice(list(SETTINGS)))
@click.option("--scale", default=1.0, show_default=True, help="Of the numbers of operations.")
@click.option("--quick", is_flag=True, help="The same as --scale 0.001.")
@click.option("--only", default="", help="Soaks whose name has this in it.")
@click.option("--seed", default=1, show_default=True)
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="Soaks at the same time.")
@click.option("--output", type=click.Path(path_type=Path), help="The JSON file; by default soak/<date>.json.")
def main(
    settings: tuple[str, ...], scale: float, quick: bool, only: str, seed: int, processes: int,
    output: Path | None,
) -> None:  # fmt: skip
    """Soak everything, and print what was lost."""
    found: list[harness.Outcome] = []
    console, begun = Console(width=132), time.perf_counter()
    for setting in settings or tuple(SETTINGS):
        cases = cases_of(setting)
        total = SETTINGS[setting] * (0.001 if quick else scale) / sum(case.share for case in cases)
        context = multiprocessing.get_context("forkserver")
        with ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=1) as pool:
            tasks = [
                (case, pool.submit(run_one, setting, number, max(int(total * case.share), 1000), seed))
                for number, case in enumerate(cases)
                if only in case.name
            ]
            for case, task in tasks:
                found.append(task.result())
                each = found[-1]
                console.print(
                    f"{setting:8}{case.name:32}{each.operations:>14,} operations {each.seconds:7.1f} s  "
                    f"{'fine' if each.fine else 'NOT FINE'}"
                )
    report(console, found)
    path = output or Path("soak") / f"{datetime.date.today().isoformat()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "seed": seed,
        "evenbins": evenbins.__version__, "python": platform.python_version(), "machine": platform.machine(),
        "cores": os.cpu_count(), "seconds": round(time.perf_counter() - begun, 1),
        "soaks": [each.to_dict() for each in found],
    }  # fmt: skip
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    console.print(f"written: {path}")
    sys.exit(any(not each.fine for each in found))


def report(console: Console, found: list[harness.Outcome]) -> None:
    """Print what was done and what was found."""
    table = Table(title="Soaks against exact oracles")
    for name in ("setting", "structure", "operations", "s", "lost", "broken", "drift", "MiB, first", "last"):
        table.add_column(name, justify="left" if name in ("setting", "structure") else "right", no_wrap=True)
    for each in found:
        table.add_row(
            each.setting, each.name, f"{each.operations:,}", f"{each.seconds:.1f}", str(each.lost),
            str(each.broken), str(each.drift), f"{each.rss[0] >> 20}", f"{each.rss[-1] >> 20}",
            style=None if each.fine else "red",
        )  # fmt: skip
    console.print(table)
    for setting in dict.fromkeys(each.setting for each in found):
        rows = [each for each in found if each.setting == setting]
        console.print(
            f"{setting}: {sum(each.operations for each in rows):,} operations on {len(rows)} structures, "
            f"{sum(each.lost for each in rows)} lost, {sum(each.broken for each in rows)} bounds broken, "
            f"{sum(each.drift for each in rows)} drifts, memory grew in {sum(each.grew > 0 for each in rows)}"
        )
    for each in found:
        for text in each.said:
            console.print(f"{each.name}: {text} (--only {each.name!r} --seed {each.seed})")


if __name__ == "__main__":
    main()
