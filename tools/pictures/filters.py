"""Pictures of docs/filters.md."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from evenbins import BalancedBloomFilter, BlockedBloomFilter, design
from pictures.canvas import BACK, FAINT, FULL, INK, KEY, LINE, LIST, MUTED, PANEL, SENT, SOFT, Picture, points

FloatArray = npt.NDArray[np.float64]

_KEYS, _BITS = 200_000, 24


def blocks() -> Picture:
    """Draw where a key's bits lie: standard, blocked, balanced."""
    p = Picture(
        "filters-blocks", 640, 372, title="Where the bits of a key lie",
        desc="Standard: anywhere, a memory read for each. Blocked: all in one block, one read. "
        "Balanced: in one of two blocks, the emptier one, two reads at once.",
    )  # fmt: skip
    rng = np.random.default_rng(2)
    rows = [
        ("standard", "bits anywhere: a read for each", [1, 4, 6, 9]),
        ("blocked", "all in one block: one read", [3, 3, 3, 3]),
        ("balanced", "one of two blocks: two reads, at once", [2, 7]),
    ]
    for i, (name, note, homes) in enumerate(rows):
        top = 20 + i * 117
        p.text(24, top + 20, name, size=19, bold=True)
        p.text(134, top + 20, note, size=17, fill=MUTED)
        left, width, gap = 24, 53, 6.4
        old = rng.random((10, 18)) < (0.36 if i == 0 else np.where(np.arange(10) == 7, 0.62, 0.36)[:, None])
        for block in range(10):
            x = left + block * (width + gap)
            chosen = block in homes
            crowded = i == 2 and block == 7
            p.rect(
                x, top + 52, width, 40, fill=PANEL, corner=6,
                stroke=FULL if crowded else KEY if chosen else LINE, line=2.6 if chosen else 1.5,
            )  # fmt: skip
            mine: set[int] = set()
            if chosen and not crowded:
                mine = {(7 * block) % 18} if i == 0 else {1, 6, 10, 15}
            for bit in range(18):
                row, column = divmod(bit, 6)
                fill = SENT if bit in mine else SOFT if old[block, bit] else FAINT
                p.rect(x + 4 + column * 7.6, top + 56 + row * 11, 6.2, 9.4, fill=fill, corner=1.5)
        for block in dict.fromkeys(homes):
            x = left + block * (width + gap) + width / 2
            p.arrow(x, top + 30, x, top + 49, stroke=FULL if i == 2 and block == 7 else KEY, line=2, head=8)
    return p


@cache
def _fill(policy: str) -> tuple[float, FloatArray, FloatArray]:
    """Fill a filter: its rate; by set bits the share of the blocks, and of the false positives they make."""
    made = (
        BlockedBloomFilter(_KEYS, bits_per_key=_BITS, seed=1)
        if policy == "blocked"
        else BalancedBloomFilter(_KEYS, bits_per_key=_BITS, policy=policy, seed=1)
    )
    made.add_many(np.arange(_KEYS))
    stats = made.stats()
    histogram = np.zeros(513)
    for level in stats.loads:
        histogram[: len(level)] += np.asarray(level, float)[:513]
    harm = histogram * (np.arange(513) / 512) ** made.plan.hashes
    return stats.fpr, histogram / histogram.sum(), harm / harm.sum()


def loads() -> Picture:
    """Draw how many bits are set in each block of real filters, and which blocks make the false positives."""
    p = Picture(
        "filters-loads", 640, 560, title="Set bits of a block: blocked and balanced filters of the same size",
        desc="Histograms of three real filters of 200,000 keys and 24 bits per key. The blocks of the "
        "blocked filter vary widely, and the fullest ones make most false positives. In fill and "
        "two-choice filters hardly any block is above the mean by much.",
    )  # fmt: skip
    low, high, width = 60, 360, 10
    left, right = 30, 610

    def at(bits: float) -> float:
        return left + (bits - low) / (high - low) * (right - left)

    p.text(24, 34, "Blocks by their set bits, of 512", size=19, bold=True)
    p.rect(24, 48, 14, 14, fill=SOFT, corner=3)
    p.text(44, 61, "share of the blocks", size=16, fill=MUTED)
    p.rect(220, 48, 14, 14, fill=FULL, corner=3)
    p.text(240, 61, "share of the false positives they make", size=16, fill=MUTED)
    edges = range(low, high, width)
    found = {policy: _fill(policy) for policy in ("blocked", "fill", "two-choice")}
    bars = {
        policy: [[float(share[edge : edge + width].sum()) for edge in edges] for share in shares]
        for policy, (_, *shares) in found.items()
    }
    scale = 118 / max(bar for both in bars.values() for each in both for bar in each)
    for i, policy in enumerate(found):
        base = 200 + i * 146
        for edge, blocks_here, positives in zip(edges, *bars[policy], strict=True):
            x, step = at(edge), at(edge + width) - at(edge)
            if blocks_here > 0:
                p.rect(x + 0.8, base - blocks_here * scale, step * 0.5, blocks_here * scale, fill=SOFT)
            if positives > 5e-4:
                p.rect(x + step * 0.54, base - positives * scale, step * 0.4, positives * scale, fill=FULL)
        p.line(left, base, right, base, stroke=MUTED, line=1.2)
        p.text(24, base - 84, policy, size=19, bold=True)
        p.text(24, base - 62, f"rate {found[policy][0]:.1e}", size=17, fill=MUTED)
    p.axis(left, right, 492, [(at(b), str(b)) for b in range(100, 360, 50)], "set bits in a block")
    return p


def query() -> Picture:
    """Draw the way of a look-up through the levels."""
    p = Picture(
        "filters-query", 640, 400, title="The path of a look-up over three levels",
        desc="At each level one block is read. If all bits of the key are set the answer is present. "
        "If not, and the block is not full, the answer is absent: the key would have been put "
        "there. If the block is full, the look-up goes on to the next level, and at the end to "
        "the overflow list.",
    )  # fmt: skip
    p.chip(74, 62, "key", size=18)
    p.text(128, 68, "read its block of the level; all its bits set?", size=17, fill=MUTED)
    tops = [106, 186, 266]
    for i, top in enumerate(tops):
        width = (250, 150, 90)[i]
        p.text(24, top + 32, f"level {i + 1}", size=17, fill=MUTED)
        count = width // 30
        for block in range(count):
            hot = block == count // 2
            full = hot and i < 2
            x = 98 + block * 30
            p.rect(
                x,
                top,
                26,
                50,
                fill=PANEL,
                corner=5,
                stroke=FULL if full else KEY if hot else LINE,
                line=2.6 if hot else 1.5,
            )
            level = 0.86 if full else (0.3 + 0.5 * ((block * 7 + i * 3) % 10) / 10 if not hot else 0.5)
            p.rect(
                x + 4,
                top + 46 - 42 * level,
                18,
                42 * level,
                fill=FULL if full else KEY if hot else SOFT,
                corner=3,
            )
        hot_x = 98 + (count // 2) * 30 + 13
        if i < 2:
            nxt = ((250, 150, 90)[i + 1] // 30) // 2 * 30 + 98 + 13
            p.arrow(hot_x, top + 54, nxt, top + 77, stroke=SENT, line=2.4, head=9)
        p.line(98 + count * 30 + 2, top + 25, 366, top + 25, stroke=FAINT, line=1.5)
    p.text(372, 124, "yes: present", size=17, fill=KEY, bold=True)
    p.text(372, 148, "no, but full: go on", size=17, fill=SENT, bold=True)
    p.text(372, 204, "yes: present", size=17, fill=KEY, bold=True)
    p.text(372, 228, "no, but full: go on", size=17, fill=SENT, bold=True)
    p.text(372, 284, "no, and not full: absent.", size=17, fill=INK, bold=True)
    p.text(372, 308, "It would have been put here", size=17, fill=MUTED)
    p.rect(98, 346, 104, 32, fill=BACK, stroke=LIST, corner=6, dash="5 4", line=2)
    for i in range(3):
        p.rect(104 + i * 22, 353, 17, 18, fill=LIST, corner=3)
    p.text(372, 360, "the list is asked only if", size=17, fill=LIST)
    p.text(372, 382, "the last block is full too", size=17, fill=LIST)
    p.text(24, 367, "list", size=17, fill=LIST)
    p.arrow(141, 320, 141, 342, stroke=LINE, line=2, head=8, dash="4 4")
    p.line(206, 362, 366, 362, stroke=FAINT, line=1.5)
    return p


def bits() -> Picture:
    """Draw bits per key against the rate, over the least that is possible."""
    p = Picture(
        "filters-bits", 640, 430, title="Bits per key beyond log2(1/rate)",
        desc="A line for each filter: bits per key divided by log2 of one over the false-positive "
        "rate. Standard 1.44, two-choice and fill a little above, blocked rising to 2; a binary "
        "fuse filter, which cannot take new keys, 1.13.",
    )  # fmt: skip
    left, right, top, base = 64, 500, 74, 350
    exponents = [2, 3, 4, 5, 6, 7]

    def at(exponent: float, ratio: float) -> tuple[float, float]:
        x = left + (exponent - 2) / 5 * (right - left)
        return x, base - (ratio - 1) / 1.3 * (base - top)

    p.text(24, 34, "Bits per key, as a multiple of log2(1/rate)", size=19, bold=True)
    p.text(24, 58, "10 million keys; no filter can be below 1", size=16, fill=MUTED)
    for ratio in (1.0, 1.25, 1.5, 1.75, 2.0, 2.25):
        y = at(2, ratio)[1]
        p.line(left, y, right, y, stroke=FAINT if ratio > 1 else MUTED, line=1.2)
        p.text(left - 10, y + 5, f"{ratio:g}", size=16, fill=MUTED, anchor="end")
    curves: dict[str, list[tuple[float, float]]] = {}
    for exponent in exponents:
        found = design.filter(
            keys=1e7, fpr=10.0**-exponent, policies=["standard", "blocked", "fill", "two-choice"]
        )
        for each in found:
            curves.setdefault(each.plan.policy, []).append(
                at(exponent, each.plan.bits_per_key / (exponent * math.log2(10)))
            )
    curves["fuse"] = [at(exponent, 1.125) for exponent in exponents]
    colours = {"standard": INK, "blocked": FULL, "fill": LIST, "two-choice": KEY, "fuse": MUTED}
    lifts = {"standard": 12, "fill": -10, "two-choice": 3, "blocked": 6, "fuse": 6}
    for name, course in curves.items():
        course.sort()
        p.path(points(course), stroke=colours[name], line=3, dash="2 6" if name == "fuse" else "")
        x, y = course[-1]
        p.text(x + 12, y + lifts[name], name, size=17, fill=colours[name], bold=True)
    p.axis(left, right, base + 16, [(at(e, 1)[0], f"1e-{e}") for e in exponents], "false-positive rate")
    return p
