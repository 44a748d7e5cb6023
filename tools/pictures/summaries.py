"""Pictures of docs/summaries.md."""

from __future__ import annotations

from evenbins.study.theory import multilevel
from pictures.canvas import BACK, FAINT, FULL, KEY, LINE, LIST, MUTED, PANEL, SENT, SOFT, Picture


def one_read() -> Picture:
    """Draw a look-up without and with a summary."""
    p = Picture(
        "summaries-one-read", 640, 430, title="A look-up without and with a summary",
        desc="Without a summary a look-up reads a bucket of each level of the slow table until it "
        "finds the key. With a summary in fast memory it reads the one bucket that holds the key;"
        " for an absent key it reads none.",
    )  # fmt: skip
    for i, (title, note) in enumerate(
        [
            ("without a summary", "up to a read for each level"),
            ("with a summary", "one read; for absent keys none"),
        ]
    ):
        left = 18 + i * 308
        p.rect(left, 18, 296, 394, fill=PANEL, stroke=FAINT, corner=14)
        p.text(left + 20, 50, title, size=19, bold=True)
        p.text(left + 20, 76, note, size=17, fill=MUTED)
        p.rect(left + 14, 214, 268, 184, fill=BACK, corner=10)
        p.text(left + 268, 388, "slow: disk, network", size=16, fill=MUTED, anchor="end")
        p.chip(left + 62, 116, "key", size=18)
        home = 3
        for level, count in enumerate((8, 5, 3)):
            y = 230 + level * 46
            for bucket in range(count):
                x = left + 28 + bucket * 31
                hot = bucket == (home, 2, 1)[level]
                found = hot and level == 2
                p.rect(
                    x, y, 27, 34, corner=4, fill=KEY if found else PANEL,
                    stroke=KEY if found else FULL if hot and i == 0 else LINE,
                    line=2.6 if hot and (found or i == 0) else 1.5,
                )  # fmt: skip
                if not found:
                    p.rect(
                        x + 4,
                        y + 22 - (bucket * 5 + level * 3) % 12,
                        19,
                        8 + (bucket * 5 + level * 3) % 12,
                        fill=SOFT,
                        corner=2,
                    )
    xs = [18 + 28 + (3, 2, 1)[level] * 31 + 13 for level in range(3)]
    p.arrow(78, 134, xs[0], 226, stroke=FULL, line=2.4, head=9)
    p.arrow(xs[0], 266, xs[1], 273, stroke=FULL, line=2.4, head=7)
    p.arrow(xs[1], 312, xs[2], 319, stroke=KEY, line=2.4, head=7)
    p.text(130, 160, "1st, 2nd, 3rd read", size=17, fill=FULL)
    left = 326
    p.rect(left + 112, 92, 166, 76, fill=PANEL, stroke=LIST, line=2.4, corner=10)
    p.text(left + 195, 122, "summary: 3", size=19, fill=LIST, anchor="middle", bold=True, mono=True)
    p.text(left + 195, 148, "fast memory", size=16, fill=MUTED, anchor="middle")
    p.arrow(left + 93, 116, left + 110, 122, stroke=LIST, line=2.4, head=8)
    p.arrow(left + 240, 170, left + 28 + 31 + 24, 336, stroke=SENT, line=2.8, bend=-34, head=10)
    return p


def nested() -> Picture:
    """Draw the keys that each filter of a multiple-Bloom summary holds, and their bits."""
    keys = 10_000
    sizes = [40_000, 10_000, 5_000, 2_500, 2_500]
    filters = [(106_000, 7), (87_500, 49), (5_500, 49), (500, 49), (100, 49)]
    passed = [float(keys)]
    for held in multilevel.expected_keys(keys, sizes)[:-1]:
        passed.append(passed[-1] - held)
    p = Picture(
        "summaries-filters", 640, 470,
        title="Multiple Bloom filters: each holds the keys that passed a level",
        desc="Filter B0 holds all 10,000 keys, B1 those not in level 1, about 1152, B2 about 64, B3 "
        "less than one. The bars show their bits: most are in B0 and B1. The answer is the number"
        " of filters that say yes.",
    )  # fmt: skip
    p.text(24, 34, "A filter for the keys that passed each level", size=19, bold=True)
    p.text(24, 60, "10,000 keys, the thesis' sizes (section 4.8); bars: bits", size=16, fill=MUTED)
    for i, ((bits, hashes), count) in enumerate(zip(filters, passed, strict=True)):
        y = 84 + i * 58
        p.text(24, y + 27, f"B{i}", size=19, bold=True, mono=True)
        width = max(bits / filters[0][0] * 300, 2)
        p.rect(66, y + 4, 300, 34, fill=FAINT, corner=6)
        p.rect(66, y + 4, width, 34, fill=KEY if i == 0 else LIST, corner=min(6, width / 2))
        number = f"{count:,.0f} keys" if count >= 10 else f"{count:.1g} keys"
        p.text(382, y + 18, number, size=17, bold=True)
        p.text(382, y + 39, f"{bits:,} bits, {hashes} hashes", size=16, fill=MUTED)
    p.line(24, 386, 616, 386, stroke=FAINT)
    p.text(24, 416, "B0 no", size=17, fill=FULL, bold=True, mono=True)
    p.text(222, 416, "absent: nothing is read", size=17)
    p.text(24, 444, "B0 B1 yes, B2 no", size=17, fill=LIST, bold=True, mono=True)
    p.text(222, 444, "level 2: one bucket is read", size=17)
    return p
