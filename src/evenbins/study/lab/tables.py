"""The page Tables: overflow against space for all schemes, and a small table that is filled step by step.

    tables/curves     the least space for each overflow, all schemes: from table_curves.json, so at once
    tables/point      the design that a slider stands at: between two points of its curve, and texts to copy
    tables/designs    design.table: every scheme planned exactly, best first; a job, since it takes seconds
    tables/story      a table of a few dozen keys: every look, move and overflow (table_story.py)

The curves of the thesis' schemes come from `theory.optimise`, which needs minutes for all of them; a tool
(tools/make_table_curves.py) writes them to a file, and a test computes some anew. Least-loaded is known by
measurement (theory/least_loaded.py). Between two points log(overflow) is taken as a straight line in the
space: good to a percent of space; the exact number is that of `tables/designs`.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from evenbins.study.lab.parameters import Choice, Endpoint, Flag, Number
from evenbins.study.lab.table_story import small_plan, story
from evenbins.study.lab.timing import lookup_ns
from evenbins.tables.multilevel_plan import SCHEMES, SLOTS, predictable
from evenbins.theory import least_loaded

__all__ = ["ENDPOINTS", "curves", "designs", "point", "small_table"]

LEVELS = (2, 6)
TIMED_KEYS = 100_000
Curve = list[tuple[float, float, float]]  # space, overflow, moves; space ascending


@cache
def _file() -> dict[str, Any]:
    text = resources.files("evenbins.study.lab").joinpath("table_curves.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def _name(scheme: str, levels: int, slots: int, deletions: bool) -> str:
    return f"{scheme} {levels}x{slots}" + (" deletions" if deletions else "")


@cache
def _curve(scheme: str, levels: int, slots: int, deletions: bool) -> Curve | None:
    """Return a curve; None where nothing is known."""
    if scheme == "least-loaded":
        if (levels, slots) not in least_loaded.DESIGNS:
            return None
        found = []
        for overflow in _file()["overflow"]:
            load = least_loaded.load_for(levels, slots, overflow, deletions)
            found.append((1 / load, overflow, least_loaded.behaviour(levels, slots, load, deletions).moves))
        return sorted(found)
    kept = _file()["curves"].get(_name(scheme, levels, slots, deletions))
    if kept is None:
        return None
    points = zip(kept["space"], _file()["overflow"], kept["moves"], strict=True)
    return sorted(each for each in points if each[0] is not None)


def curves(*, levels: int, deletions: bool) -> dict[str, Any]:
    """Return the curves of all schemes with so many levels."""
    found = [
        {"scheme": scheme, "slots": slots, "points": [[x, y] for x, y, _ in curve]}
        for scheme in SCHEMES
        for slots in SLOTS
        if predictable(scheme, slots, deletions)
        and (curve := _curve(scheme, levels, slots, deletions)) is not None
    ]
    lacking = [(s, n) for s in SCHEMES for n in SLOTS if _curve(s, levels, n, deletions) is None]
    slow = [each for each in lacking if each[0] != "least-loaded" and predictable(*each, deletions)]
    missing = [
        f"{scheme} with {_slots_text(few)} slots"
        for scheme in SCHEMES
        if (few := [n for s, n in lacking if s == scheme and (s, n) not in slow])
    ]
    return {
        "series": found,
        "missing": missing,
        "slow": [f"{scheme} with {slots} slots" for scheme, slots in slow],
    }


def _slots_text(slots: list[int]) -> str:
    return "any number of" if len(slots) == len(SLOTS) else ", ".join(map(str, slots))


def point(
    *, keys: int, scheme: str, levels: int, slots: int | str, goal: str, overflow: float, space: float,
    deletions: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return the point of a curve where the overflow or the space is as asked for, and texts to copy.

    Raises
    ------
    ValueError
        The scheme has no curve with these levels and slots.
    """
    slots = int(slots)
    curve = _curve(scheme, levels, slots, deletions)
    if curve is None:
        why = "under deletions " if deletions else ""
        raise ValueError(
            f"scheme={scheme} with levels={levels} and slots={slots} is not predicted {why}here: "
            "choose another number of slots or levels, or simulate it"
        )
    logs = [math.log(y) for _, y, _ in curve]  # descending
    spaces = [x for x, _, _ in curve]
    moves = [m for _, _, m in curve]
    if goal == "overflow":
        at = _fractional_index([-each for each in logs], -math.log(overflow))
        space = _interpolate(spaces, at)
    else:
        at = _fractional_index(spaces, space)
        overflow = min(1.0, math.exp(_interpolate(logs, at)))
    shown = {"space": float(f"{space:.4g}"), "overflow": float(f"{overflow:.3g}")}
    asked = f"overflow={shown['overflow']!r}" if goal == "overflow" else f"space={shown['space']!r}"
    more = ", deletions=True" if deletions else ""
    options = f'{keys}, scheme="{scheme}", levels={levels}, slots={slots}, {asked}{more}'
    if goal == "overflow":
        python = f"from evenbins import MultilevelTable\n\ntable = MultilevelTable({options})\n"
    else:
        python = (
            "from evenbins.tables.multilevel import MultilevelTable, plan_multilevel\n\n"
            f"table = MultilevelTable.from_plan(plan_multilevel({options}))\n"
        )
    python += "print(table.plan)\n"
    command = f"evenbins design table --keys {keys} --overflow {shown['overflow']!r} --levels {levels}"
    return {
        **shown,
        "moves": max(0.0, _interpolate(moves, at)),
        "inside": 0 <= at <= len(curve) - 1,
        "python": python,
        "command": command + (" --deletions" if deletions else ""),
    }


def _fractional_index(ascending: list[float], value: float) -> float:
    """Return the fractional index of a value; beyond the ends the last segments are extended."""
    i = min(max(bisect_left(ascending, value), 1), len(ascending) - 1)
    return i - 1 + (value - ascending[i - 1]) / (ascending[i] - ascending[i - 1])


def _interpolate(values: list[float], at: float) -> float:
    i = min(max(math.floor(at), 0), len(values) - 2)
    return values[i] + (at - i) * (values[i + 1] - values[i])


def designs(
    *, keys: int, overflow: float, levels: int, deletions: bool, slots: str,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:  # fmt: skip
    """Plan every scheme exactly, as `design.table` does; the smallest first, the Pareto front marked.

    Look-ups are timed in a real table of the same shape with at most 100,000 keys.
    """
    from evenbins import design
    from evenbins.design._designs import beats
    from evenbins.design.tables import RESPECTS, TableDesign

    sizes = list(SLOTS) if slots == "all" else [int(slots)]
    wanted = [(s, n) for s in SCHEMES for n in sizes if _curve(s, levels, n, deletions) is not None]
    if not wanted:
        raise ValueError(f"nothing with slots={slots} and levels={levels} is planned here: choose others")
    plans = []
    for done, (scheme, size) in enumerate(wanted):  # one by one, so that it can be cancelled in between
        progress(done, len(wanted))
        request: dict[str, Any] = {"overflow": overflow, "levels": levels, "deletions": deletions}
        plans.append(design.table(keys, **request, schemes=[scheme], slots=[size])[0].plan)
    found = [
        TableDesign(plan, 8, pareto=not any(beats(other, plan, RESPECTS) for other in plans))
        for plan in plans
    ]
    found.sort(key=lambda each: (each.nbytes, each.plan.reads or 0.0))
    names = (
        "scheme", "levels", "slots", "space", "overflow", "overflow_limit", "moves", "reads", "miss_reads",
        "nbytes", "bytes_per_key", "pareto",
    )  # fmt: skip
    timed = min(keys, TIMED_KEYS)
    return {
        "rows": [{name: each.to_dict()[name] for name in names} | _times(each.plan, timed) for each in found],
        "timed": timed,
    }


def _times(plan: Any, keys: int) -> dict[str, float]:
    """Return the nanoseconds of a look-up of a present and of an absent key, in a table with so many keys."""
    from evenbins.tables.multilevel import MultilevelTable, plan_multilevel

    shares = [each / plan.keys for each in plan.buckets]
    small = plan_multilevel(
        keys, scheme=plan.scheme, slots=plan.slots, shares=shares, overflow_limit=1000 + keys // 5
    )
    table = MultilevelTable.from_plan(small)
    present = np.arange(keys)
    table.insert_many(present, present)
    return {"ns": lookup_ns(table, present), "miss_ns": lookup_ns(table, present + keys)}


def small_table(
    *, scheme: str, levels: int, slots: int | str, keys: int, space: float, turns: int, deletions: bool,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Return the story of a small table; with deletions, `turns` replacements follow the filling."""
    slots = int(slots)
    plan = small_plan(
        scheme, levels=levels, slots=slots, keys=keys, space=space, deletions=deletions, seed=seed,
        shares=_shares(scheme, levels, slots, deletions),
    )  # fmt: skip
    shares = ", ".join(f"{each}/{keys}" for each in plan.buckets)
    python = (
        "from evenbins.tables.multilevel import MultilevelTable, plan_multilevel\n\n"
        f'plan = plan_multilevel({keys}, scheme="{scheme}", slots={slots}, shares=[{shares}], '
        f"overflow_limit={keys}, seed={seed})\n"
        "table = MultilevelTable.from_plan(plan)\n"
        f"for key in range(1, {keys + 1}):\n    table[key] = 0\n"
    )
    if deletions:  # as `operations` does
        python = (
            "import random\n\n"
            + python
            + (
                f"\nrng = random.Random({seed})\npresent = list(range(1, {keys + 1}))\n"
                f"for new in range({keys + 1}, {keys + turns + 1}):\n"
                "    old = rng.randrange(len(present))\n    del table[present[old]]\n"
                "    present[old] = new\n    table[new] = 0\n"
            )
        )
    python += "print(table.stats())\n"
    return story(plan, turns if deletions else 0) | {
        "space": plan.space, "scheme": scheme, "python": python,
    }  # fmt: skip


def _shares(scheme: str, levels: int, slots: int, deletions: bool) -> list[float] | None:
    """Return the best shares for a table of one percent overflow: its own, or those of a close scheme."""
    kept = _file()["curves"]
    for each, churn in ((scheme, deletions), (scheme, False), ("second-chance", False), ("standard", False)):
        if (name := _name(each, levels, slots, churn)) in kept:
            found: list[float] = kept[name]["shares"]
            return found
    return None


_SCHEME = Choice("scheme", choices=SCHEMES, default="second-chance", help="how an insertion chooses")
_LEVELS = Number("levels", least=LEVELS[0], most=LEVELS[1], default=4, whole=True, help="sub-tables")
_KEYS = Number("keys", least=1000, most=1e12, default=1e6, whole=True, help="keys to plan for")
_OVERFLOW = Number("overflow", least=1e-6, most=0.1, default=0.002, help="fraction of keys on the list")
_DELETIONS = Flag("deletions", help="endless deletions and insertions")


_SLOTS = Choice("slots", choices=tuple(map(str, SLOTS)), default="1", help="keys of a bucket")

ENDPOINTS = [
    Endpoint("tables/curves", curves, [_LEVELS, _DELETIONS], "Overflow against space, all schemes"),
    Endpoint(
        "tables/point",
        point,
        [
            _KEYS, _SCHEME, _LEVELS, _SLOTS,
            Choice("goal", choices=("overflow", "space"), default="overflow", help="which is given"),
            _OVERFLOW,
            Number("space", least=0.9, most=6, default=1.3, help="slots per key"),
            _DELETIONS,
        ],
        "One design: its space, its overflow, and texts to copy",
    ),
    Endpoint(
        "tables/designs",
        designs,
        [
            _KEYS, _OVERFLOW, _LEVELS, _DELETIONS,
            Choice("slots", choices=("all", *map(str, SLOTS)), default="all", help="keys of a bucket"),
        ],
        "Every scheme planned exactly",
        job=True,
    ),
    Endpoint(
        "tables/story",
        small_table,
        [
            _SCHEME, _LEVELS, _SLOTS,
            Number("keys", least=4, most=160, default=40, whole=True, help="keys of the small table"),
            Number("space", least=0.8, most=3, default=1.1, help="slots per key"),
            Number("turns", least=0, most=160, default=40, whole=True, help="replacements, with deletions"),
            _DELETIONS,
            Number("seed", least=0, most=2**32 - 1, default=1, whole=True, help="seed of the table"),
        ],
        "A small table, filled step by step",
    ),
]  # fmt: skip
