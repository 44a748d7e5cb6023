"""Pictures of docs/tables.md."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenbins import ChainedTable, MultilevelTable
from evenbins.tables.multilevel import plan_multilevel
from pictures.canvas import BACK, FULL, INK, KEY, LINE, MUTED, PANEL, SENT, SOFT, Picture

_SHARES: dict[str, tuple[float, ...] | None] = {
    "standard": (0.786, 0.514, 0.315, 0.178),
    "second-chance": (0.470, 0.456, 0.251, 0.108),
    "extreme-second-chance": (0.378, 0.363, 0.286, 0.127),
    "least-loaded": None,
}
"""The best for 0.2 % of overflow, `optimise.space(scheme, 4, overflow=0.002)`, to three digits: the optimum
is flat, and a picture should not hang on the last digits of an optimiser."""


def insertion() -> Picture:
    """Draw an insertion with a second chance, step by step."""
    p = Picture(
        "tables-insertion", 640, 520, title="An insertion with a second chance",
        desc="Key x finds its bucket of level 1 taken by y, and its bucket of level 2 taken as well. "
        "Before x goes on to level 3, y gets a second chance: its own bucket of level 2 is free, "
        "so y moves there and x takes its place. At most one key moves.",
    )  # fmt: skip
    # buckets of x: T1 number 2, T2 number 3; of y: T1 number 2, T2 number 1
    taken = [{0, 2, 3, 5, 6}, {0, 3, 4}, {1}]
    sizes = [8, 5, 3]
    steps = [
        ("1", "x wants the bucket of y: taken", KEY),
        ("2", "its bucket of level 2 is taken too;", KEY),
        ("3", "y moves to its own bucket there, which is free,", SENT),
    ]
    notes = [
        ["Without moves x goes on", "until a level has room"],
        ["before x goes on, y gets", "a second chance"],
        ["and x takes its place. One", "move; nothing follows"],
    ]
    for frame, (digit, line, colour) in enumerate(steps):
        top = 26 + frame * 166
        p.circle(40, top + 14, 15, fill=colour)
        p.text(40, top + 20, digit, size=18, fill=BACK, anchor="middle", bold=True)
        p.text(64, top + 20, line, size=18, bold=True)
        p.text(376, top + 72, notes[frame][0], size=17, fill=MUTED)
        p.text(376, top + 94, notes[frame][1], size=17, fill=MUTED)
        at: dict[tuple[int, int], tuple[float, float]] = {}
        for level, size in enumerate(sizes):
            y = top + 48 + level * 36
            for bucket in range(size):
                x = 66 + bucket * 35
                at[level, bucket] = x + 15, y + 13
                held = bucket in taken[level]
                p.rect(x, y, 30, 26, fill=SOFT if held else PANEL, stroke=LINE, corner=5)
            p.text(56, y + 19, f"T{level + 1}", size=16, fill=MUTED, anchor="end")
        x1, y1 = at[0, 2]
        owner = "y" if frame < 2 else "x"
        p.rect(
            x1 - 15, y1 - 13, 30, 26, corner=5, stroke=FULL if frame < 2 else KEY, line=2.6,
            fill=SOFT if frame < 2 else KEY,
        )  # fmt: skip
        p.text(x1, y1 + 6, owner, size=18, anchor="middle", bold=True, fill=INK if frame < 2 else BACK)
        if frame == 1:
            x2, y2 = at[1, 3]
            p.rect(x2 - 15, y2 - 13, 30, 26, corner=5, stroke=FULL, line=2.6, fill=SOFT)
            p.arrow(x1 + 10, y1 + 14, x2 - 6, y2 - 16, stroke=KEY, line=2, head=8)
        if frame == 2:
            x2, y2 = at[1, 1]
            p.rect(x2 - 15, y2 - 13, 30, 26, corner=5, stroke=SENT, line=2.6, fill=SENT)
            p.text(x2, y2 + 6, "y", size=18, anchor="middle", bold=True, fill=BACK)
            p.arrow(x1 - 4, y1 + 14, x2 + 8, y2 - 15, stroke=SENT, line=2.4, head=8)
    return p


def levels() -> Picture:
    """Draw levels to scale, filled as in real tables."""
    keys = 100_000
    p = Picture(
        "tables-levels", 640, 500, title="Levels to scale, filled as measured",
        desc="Four real tables of 100,000 keys. The width of a level is its size, the height of its "
        "filling the occupied fraction. Standard needs 1.79 slots a key for 0.2 per cent of "
        "overflow, second-chance 1.29, extreme 1.15; least-loaded with eight slots a bucket 1.05 "
        "for far less overflow.",
    )  # fmt: skip
    p.text(24, 34, "Width: slots of a level. Height: how full it is", size=19, bold=True)
    scale = 590 / 1.8
    for i, (scheme, shares) in enumerate(_SHARES.items()):
        table = MultilevelTable.from_plan(plan_multilevel(keys, scheme=scheme, shares=shares, seed=1))
        table.insert_many(np.arange(keys), 0)
        plan, stats = table.plan, table.stats()
        top = 62 + i * 110
        slots = "" if plan.slots == 1 else f", {plan.slots} slots a bucket"
        p.text(24, top + 14, scheme + slots, size=17, bold=True)
        x = 24.0
        for share, fill in zip(plan.shares, stats.fills, strict=True):
            width = share * plan.slots * scale
            p.rect(x, top + 24, width - 3, 44, fill=PANEL, stroke=LINE, corner=4)
            p.rect(x + 2, top + 66 - 40 * fill, width - 7, 40 * fill, fill=KEY, corner=3, opacity=0.75)
            x += width
        p.text(
            24, top + 88,
            f"{plan.space:.2f} slots a key; {100 * stats.overflow:.2g} % on the list; "
            f"{100 * stats.moves:.3g} % of insertions move",
            size=16, fill=MUTED,
        )  # fmt: skip
    return p


def chains() -> Picture:
    """Draw the lengths of the chains of real tables."""
    p = Picture(
        "tables-chains", 640, 470, title="Lengths of chains in real tables of 80,000 keys, eight a bin",
        desc="With plain chaining lengths vary from 0 to over 20. With multilevel no chain but those "
        "of the overflow is longer than 9; with d-left nearly all are 7, 8 or 9.",
    )  # fmt: skip
    p.text(24, 34, "Chains by their length, 8 keys a bin", size=19, bold=True)
    keys, left, step = 80_000, 40, 26
    tables: list[tuple[str, dict[str, Any], str]] = [
        ("plain", {"policy": "single", "overflow": 0}, "1 read"),
        ("multilevel", {"policy": "multilevel", "reads": 1.2}, "1.2 reads an insertion"),
        ("d-left", {"policy": "d-left", "choices": 2}, "2 reads"),
    ]
    shares = []
    for _, arguments, _ in tables:
        table = ChainedTable(keys, load=8, seed=1, **arguments)
        table.insert_many(np.arange(keys), 0)
        stats = table.stats()
        shares.append((np.asarray(stats.loads, float) / sum(stats.loads), stats))
    scale = 96 / max(float(share.max()) for share, _ in shares)
    for i, ((name, _, note), (share, stats)) in enumerate(zip(tables, shares, strict=True)):
        base = 160 + i * 120
        for length, fraction in enumerate(share):
            if fraction > 0:
                height = max(float(fraction) * scale, 1.0)
                p.rect(
                    left + length * step - 9,
                    base - height,
                    18,
                    height,
                    fill=FULL if length > 12 else KEY,
                    corner=2,
                )
        p.line(left - 14, base, left + 22 * step, base, stroke=MUTED, line=1.2)
        p.text(610, base - 62, name, size=18, bold=True, anchor="end")
        p.text(610, base - 40, note, size=16, fill=MUTED, anchor="end")
        p.text(610, base - 18, f"longest {stats.max_load}", size=16, fill=MUTED, anchor="end")
    ticks = [(left + length * step, str(length)) for length in range(0, 21, 4)]
    p.axis(left - 14, left + 22 * step, 400, ticks, "keys in a chain")
    return p
