"""The README's picture: three structures, one question. What does a full bin do with the next key?"""

from __future__ import annotations

import math

import numpy as np

from pictures.canvas import BACK, FAINT, FULL, KEY, LINE, LIST, MUTED, PANEL, SENT, SOFT, Picture

_PANEL = 376
_TOP = 100


def overview() -> Picture:
    """Draw filter, table and ring beside each other."""
    p = Picture(
        "overview", 1200, 520, title="The three structures of evenbins",
        desc="A key is hashed to a bin. In a balanced filter a full block sends the key on to a block "
        "of the next level. In a table one resident of a full bucket moves, and a small list "
        "takes what finds no room. On a ring a full server makes the key jump to another server.",
    )  # fmt: skip
    _filter(p, 18)
    _table(p, 18 + _PANEL + 18)
    _ring(p, 18 + 2 * (_PANEL + 18))
    return p


def _frame(p: Picture, x: float, name: str, question: str, answer: str) -> None:
    p.rect(x, 18, _PANEL, 484, fill=PANEL, stroke=FAINT, corner=16)
    p.text(x + 24, 62, name, size=33, bold=True)
    p.text(x + 24, 94, question, size=26, fill=MUTED)
    p.text(x + _PANEL / 2, 478, answer, size=25, fill=SENT, anchor="middle", bold=True)


def _block(
    p: Picture, x: float, y: float, fill: float, rng: np.random.Generator, *, full: bool = False
) -> None:
    """Draw a block of 4 × 5 bits of which a fraction is set."""
    side = 9
    bits = np.zeros(20, bool)
    bits[rng.permutation(20)[: round(20 * fill)]] = True
    p.rect(
        x,
        y,
        4 * side + 8,
        5 * side + 8,
        fill=BACK,
        stroke=FULL if full else LINE,
        line=3.2 if full else 1.8,
        corner=6,
    )
    for place, bit in enumerate(bits):
        row, column = divmod(place, 4)
        p.rect(
            x + 4 + column * side + 1, y + 4 + row * side + 1, side - 2, side - 2,
            fill=(FULL if full else KEY) if bit else FAINT, corner=1.5,
        )  # fmt: skip


def _filter(p: Picture, x: float) -> None:
    _frame(p, x, "Filter", "is this key in the set?", "a full block sends it on")
    rng = np.random.default_rng(4)
    left, step = x + 26, 55.5
    p.chip(x + 120, _TOP + 56, "key", size=27)
    for i, fill in enumerate([0.4, 0.55, 0.75, 0.45, 0.6, 0.35]):
        _block(p, left + i * step, _TOP + 134, fill, rng, full=i == 2)
    for i, fill in enumerate([0.4, 0.3, 0.5]):
        _block(p, left + (i + 3) * step, _TOP + 250, fill, rng)
    at = left + 2 * step + 22
    p.arrow(x + 130, _TOP + 82, at, _TOP + 128, stroke=KEY, line=3.4, head=15)
    p.arrow(at + 4, _TOP + 192, left + 4 * step + 22, _TOP + 246, stroke=SENT, line=4, bend=14, head=17)
    p.text(x + 128, _TOP + 112, "hash", size=24, fill=MUTED, anchor="end")
    p.text(x + 26, _TOP + 286, "level 2", size=26, fill=MUTED)


def _bucket(p: Picture, x: float, y: float, keys: int, slots: int = 4, *, full: bool = False) -> None:
    height = 19
    p.rect(
        x,
        y,
        42,
        slots * height + 8,
        fill=BACK,
        stroke=FULL if full else LINE,
        line=3.2 if full else 1.8,
        corner=6,
    )
    for slot in range(slots):
        taken = slot < keys
        p.rect(
            x + 5, y + 4 + (slots - 1 - slot) * height + 2, 32, height - 4,
            fill=(FULL if full else KEY) if taken else FAINT, corner=4, opacity=0.85 if taken else 1,
        )  # fmt: skip


def _table(p: Picture, x: float) -> None:
    _frame(p, x, "Table", "where is its record?", "at most one key moves")
    left, step = x + 26, 55.5
    p.chip(x + 120, _TOP + 56, "key", size=27)
    for i, keys in enumerate([3, 2, 4, 3, 1, 3]):
        _bucket(p, left + i * step, _TOP + 126, keys, full=i == 2)
    for i, keys in enumerate([2, 1, 3]):
        _bucket(p, left + (i + 2) * step, _TOP + 250, keys)
    at = left + 2 * step + 21
    p.arrow(x + 130, _TOP + 82, at, _TOP + 121, stroke=KEY, line=3.4, head=15)
    goal = left + 3 * step + 21
    p.rect(goal - 16, _TOP + 250 + 4 + 2 * 19 + 2, 32, 15, fill=SENT, corner=4)
    p.arrow(at + 10, _TOP + 214, goal, _TOP + 290, stroke=SENT, line=4, bend=12, head=17)
    p.text(x + 128, _TOP + 108, "hash", size=24, fill=MUTED, anchor="end")
    p.rect(x + _PANEL - 68, _TOP + 250, 42, 84, fill=BACK, stroke=LIST, line=2, corner=6, dash="5 4")
    for slot in range(2):
        p.rect(x + _PANEL - 63, _TOP + 254 + (3 - slot) * 19 + 2, 32, 15, fill=LIST, corner=4)
    p.text(x + 26, _TOP + 300, "level 2", size=26, fill=MUTED)
    p.text(x + _PANEL - 47, _TOP + 243, "list", size=26, fill=LIST, anchor="middle")


def _ring(p: Picture, x: float) -> None:
    _frame(p, x, "Ring", "which server owns it?", "a full server: it jumps")
    cx, cy, radius = x + _PANEL / 2 + 14, _TOP + 204, 118
    p.circle(cx, cy, radius, stroke=LINE, line=2.5)
    loads = [0.55, 0.8, 0.45, 0.65, 0.5, 0.75, 0.6, 1.0, 0.35, 0.7]
    place = {}
    for i, load in enumerate(loads):
        angle = 2 * math.pi * i / len(loads) - math.pi / 2
        sx, sy = cx + radius * math.cos(angle), cy + radius * math.sin(angle)
        place[i] = sx, sy
        full = load >= 1
        p.rect(
            sx - 19,
            sy - 25,
            38,
            50,
            fill=BACK,
            stroke=FULL if full else LINE,
            line=3.2 if full else 1.8,
            corner=7,
        )
        height = 42 * load
        p.rect(
            sx - 15, sy + 21 - height, 30, height, fill=FULL if full else SOFT if i != 3 else KEY, corner=4
        )
    (fx, fy), (gx, gy) = place[7], place[3]
    p.chip(x + 62, _TOP + 56, "key", size=27)
    p.arrow(x + 58, _TOP + 82, fx - 10, fy - 30, stroke=KEY, line=3.4, head=15, bend=-8)
    p.arrow(fx + 24, fy + 2, gx - 26, gy - 6, stroke=SENT, line=4, bend=22, head=17)
    p.text(cx, cy - 30, "servers", size=26, fill=MUTED, anchor="middle")
