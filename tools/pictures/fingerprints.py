"""Pictures of docs/fingerprint.md: a line, and the levels of a block, of a real filter."""

from __future__ import annotations

from functools import cache
from typing import Any

from evenbins.study.lab.fingerprints import block
from pictures.canvas import BACK, FAINT, FULL, KEY, LINE, LIST, MUTED, PANEL, SENT, SOFT, Picture

_KEYS = 1900


@cache
def _block() -> dict[str, Any]:
    return block(keys=_KEYS, turns=0, seed=1)


def line() -> Picture:
    """Draw a full line: which quotients occur, which slots end a run, and where the runs are."""
    found = _block()
    slots = found["slots"][0]
    number, shown = next(
        (number, each)
        for number, each in enumerate(found["lines"])
        if len(each["away"]) == 2 and max(n for _, n in each["here"]) >= 3
    )
    p = Picture(
        "fingerprint-line", 640, 376, title="A full line of a fingerprint filter",
        desc="64 bits say which quotients occur. The runs of the first of them lie one behind the other in "
        "the slots, and a bit marks the end of each. Two quotients occur whose runs are not here.",
    )  # fmt: skip
    p.text(24, 34, f"Line {number} of a real filter: 64 bytes, {slots} slots", size=19, bold=True)
    here, away = dict(shown["here"]), {quotient for quotient, *_ in shown["away"]}
    p.text(24, 72, "occupied: one bit for each of 64 quotients", size=16, fill=MUTED)
    cell, step = 592 / 64, 592 / slots
    for quotient in range(64):
        fill = KEY if quotient in here else SENT if quotient in away else FAINT
        p.rect(24 + quotient * cell, 84, cell - 1.6, 24, fill=fill, corner=2)
    first = 0
    for i, (quotient, length) in enumerate(here.items()):
        from_, to = 24 + (quotient + 0.5) * cell, 24 + (first + length / 2) * step
        p.line(from_, 110, to, 162, stroke=SOFT, line=1.4)
        for slot in range(first, first + length):
            is_end = slot == first + length - 1
            p.rect(24 + slot * step, 164, step - 3, 20, fill=KEY if is_end else FAINT, corner=3)
            p.rect(24 + slot * step, 190, step - 3, 40, fill=SOFT if i % 2 else KEY, corner=4, opacity=0.8)
        first += length
    p.text(24, 252, "run ends: one bit for each slot; under them the remainders", size=16, fill=MUTED)
    names = ", ".join(str(quotient) for quotient in sorted(away))
    p.rect(24, 282, 14, 14, fill=KEY, corner=3)
    p.text(46, 295, f"{len(here)} quotients whose runs are here, {first} remainders", size=16, fill=MUTED)
    p.rect(24, 310, 14, 14, fill=SENT, corner=3)
    p.text(46, 323, f"quotients {names}: they occur, but there are no more run ends:", size=16, fill=MUTED)
    p.text(46, 346, "their runs are in level 2", size=16, fill=MUTED)
    return p


def levels() -> Picture:
    """Draw all lines of a block, filled as they are, and where whole runs went."""
    found = _block()
    slots = found["slots"]
    p = Picture(
        "fingerprint-levels", 640, 470, title="One block: lines, and what overflows them",
        desc="128 lines of level 1, most of them nearly full, some full. The runs that full lines have no "
        "room for are spread over 16 lines of level 2; what these cannot hold is in level 3.",
    )  # fmt: skip
    p.text(24, 34, f"One block with {_KEYS:,} keys: 128 lines of {slots[0]} slots", size=19, bold=True)
    width = 592 / 64
    for number, each in enumerate(found["lines"]):
        row, column = divmod(number, 64)
        x, base = 24 + column * width, 132 + row * 92
        used = sum(n for _, n in each["here"])
        p.rect(x, base - 74, width - 2, 74, fill=PANEL, stroke=LINE, line=0.8)
        p.rect(x, base - 74 * used / slots[0], width - 2, 74 * used / slots[0], fill=KEY, opacity=0.75)
        if each["away"]:
            p.rect(x, base + 3, width - 2, 6, fill=SENT, corner=1.5)
    sent = sum(n for each in found["lines"] for _, n, *_ in each["away"])
    lines = sum(bool(each["away"]) for each in found["lines"])
    p.rect(24, 246, 14, 14, fill=SENT, corner=3)
    p.text(
        46, 259, f"{lines} lines with runs elsewhere: {sent} keys, {sent / _KEYS:.1%}", size=16, fill=MUTED
    )
    p.arrow(330, 268, 330, 296, stroke=SENT, line=2.4)
    p.text(24, 320, f"level 2: 16 lines of {slots[1]} slots", size=17, bold=True)
    width = 592 / 16
    for number, each in enumerate(found["second"]):
        x, used = 24 + number * width, sum(n for _, n in each["here"])
        p.rect(x, 334, width - 5, 66, fill=PANEL, stroke=FULL if each["away"] else LINE, corner=3)
        p.rect(x, 400 - 66 * used / slots[1], width - 5, 66 * used / slots[1], fill=SENT, corner=3)
    p.text(24, 432, "level 3:", size=17, bold=True)
    for entry in range(slots[2]):
        fill = LIST if entry < found["third"] else BACK
        p.rect(104 + entry * 30, 414, 24, 24, fill=fill, stroke=LINE, corner=3)
    p.text(360, 432, f"the rest: {found['rest']} keys", size=16, fill=MUTED)
    return p
