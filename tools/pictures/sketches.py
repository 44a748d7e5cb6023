"""Pictures of docs/sketches.md."""

from __future__ import annotations

import math
import struct

import numpy as np

from evenbins import CountMinSketch
from pictures.canvas import FAINT, FULL, KEY, LINE, LIST, MUTED, PANEL, SENT, Picture, points
from reference.countmin import ReferenceCountMin
from reference.keys import digest

_TEXT = "to be or not to be that is the question whether tis nobler in the mind to suffer the slings"
_STREAM = _TEXT.split()


def rows() -> Picture:
    """Draw the counters of a small sketch, and those of one key."""
    fractions = struct.unpack("<2Q", struct.pack("<2d", 0.25, 0.05))
    sketch = ReferenceCountMin([2, 11, 3, 1, 0, *fractions], seed=5)
    for word in _STREAM:
        sketch.add(word)
    asked = "the"
    places = sketch.positions(digest(asked, 5))
    found = [sketch.rows[row][place] for row, place in enumerate(places)]
    truth = _STREAM.count(asked)
    p = Picture(
        "sketches-rows", 640, 372, title="The rows of a count-min sketch",
        desc=f"Three rows of eleven counters after {len(_STREAM)} words. The word {asked!r} has one "
        f"counter in each row, with {found}; the least of them, {min(found)}, is the estimate; it "
        f"came {truth} times. Other words share its counters.",
    )  # fmt: skip
    p.chip(62, 44, asked, size=18)
    p.text(116, 50, f"has one counter in each row; {len(_STREAM)} words so far", size=17, fill=MUTED)
    least = min(found)
    for row, counters in enumerate(sketch.rows):
        y = 92 + row * 76
        p.text(24, y + 31, f"h{row + 1}", size=18, fill=MUTED, mono=True)
        for place, count in enumerate(counters):
            x = 64 + place * 50
            mine = place == places[row]
            best = mine and count == least
            p.rect(
                x, y, 45, 48, corner=7, stroke=LIST if best else SENT if mine else LINE,
                line=3 if mine else 1.5, fill=PANEL if count else FAINT,
            )  # fmt: skip
            p.text(
                x + 22.5, y + 31, str(count), size=20, anchor="middle", bold=mine,
                fill=LIST if best else SENT if mine else MUTED,
            )  # fmt: skip
    p.text(24, 346, "estimate:", size=18)
    p.text(120, 346, f"the least, {least}", size=18, fill=LIST, bold=True)
    p.text(256, 346, f"truth: {truth}; others have added", size=18, fill=MUTED)
    return p


def error() -> Picture:
    """Draw how far estimates of a real stream are above the truth."""
    epsilon = 1e-3
    p = Picture(
        "sketches-error", 640, 440, title="How far estimates are above the truth",
        desc="For a stream of 200,000 numbers by Zipf's law: the fraction of keys whose estimate "
        "exceeds the truth by more than so much. Plain updates stay below the bound epsilon times"
        " N; conservative updates far below.",
    )  # fmt: skip
    stream = np.minimum(np.random.default_rng(1).zipf(1.2, 200_000), 2**40)
    keys, counts = np.unique(stream, return_counts=True)
    left, right, top, base = 76, 600, 92, 350
    bound = epsilon * len(stream)

    def across(excess: float) -> float:
        return left + math.log10(1 + excess) / math.log10(1 + 1.6 * bound) * (right - left)

    def height(fraction: float) -> float:
        return base - (5 + max(math.log10(fraction), -5)) / 5 * (base - top)

    p.text(24, 34, "Keys whose estimate is too high by more than x", size=19, bold=True)
    p.text(24, 60, f"200,000 items, {len(keys):,} keys; epsilon 0.001, delta 0.01", size=16, fill=MUTED)
    for power in range(-5, 1):
        y = height(10.0**power)
        p.line(left, y, right, y, stroke=FAINT, line=1.2)
        p.text(left - 8, y + 5, f"1e{power}" if power else "1", size=16, fill=MUTED, anchor="end")
    x = across(bound)
    p.line(x, top, x, base, stroke=FULL, dash="5 5", line=2)
    p.text(x - 8, top + 18, "εN", size=18, fill=FULL, anchor="end", bold=True)
    for conservative, colour, name in ((False, KEY, "plain"), (True, LIST, "conservative")):
        sketch = CountMinSketch(epsilon, 0.01, conservative=conservative, seed=2)
        sketch.add_many(stream)
        excess = np.sort(sketch.count_many(keys).astype(np.int64) - counts)
        course: list[tuple[float, float]] = []
        for value in range(int(1.6 * bound) + 1):
            above = len(keys) - np.searchsorted(excess, value, side="right")
            if above == 0:
                course.append((across(value), base))
                break
            course.append((across(value), height(above / len(keys))))
        p.path(points(course), stroke=colour, line=3)
        x, y = course[len(course) // 2]
        if conservative:
            p.text(x - 14, y + 6, name, size=18, fill=colour, bold=True, anchor="end")
        else:
            p.text(x + 14, y, name, size=18, fill=colour, bold=True)
    ticks = [(across(value), str(value)) for value in (0, 1, 3, 10, 30, 100, 300)]
    p.axis(left, right, base, ticks, "estimate − truth")
    return p
