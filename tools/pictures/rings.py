"""Pictures of docs/rings.md: real rings of forty servers."""

from __future__ import annotations

import math
from functools import cache

from evenbins import HashRing
from evenbins.study.ring import ring as study_ring
from pictures.canvas import FAINT, FULL, KEY, LINE, MUTED, PANEL, SENT, Picture

_NODES, _KEYS, _PERCENT, _SEED = 40, 400, 110, 3


@cache
def _place_keys(policy: str) -> tuple[list[str], list[int], list[tuple[int, int]], int, float]:
    """Place the keys: nodes around the ring, loads, (first, last) node of keys sent on, limit, searches."""
    names = [f"s{i:02}" for i in range(_NODES)]
    layout = "dense" if policy == "jump" else "sparse"
    limit = -(-_KEYS * _PERCENT // (100 * _NODES))  # in whole numbers: 1.1 * 10 is above 11 in floating point
    ring = study_ring(
        names, policy=policy, layout=layout, copies=1, limit=None if policy == "plain" else limit, seed=_SEED
    )
    keys = [f"key {i}" for i in range(_KEYS)]
    homes = [str(ring.node(key)) for key in keys]
    nodes = [str(each) for each in ring.assign_many(keys)]
    # around the circle: from each server the walk of a key that begins there tells the next one
    order = names if policy == "jump" else _clockwise(ring, names)
    place = {name: i for i, name in enumerate(order)}
    loads = ring.loads()
    sent = [(place[home], place[node]) for home, node in zip(homes, nodes, strict=True) if home != node]
    return order, [int(loads[name]) for name in order], sent, limit, float(ring.stats().placed_searches)


def _clockwise(ring: HashRing, names: list[str]) -> list[str]:
    """Return the servers in the order of the circle: the order in which any key would try them."""
    walk = [str(each) for each in ring.candidates("any")]
    return walk if len(walk) == len(names) else list(dict.fromkeys([*walk, *names]))


def cascade() -> Picture:
    """Draw where full servers send keys: along the circle, or across it."""
    p = Picture(
        "rings-cascade", 640, 470, title="Where full servers send their keys: CH-BL and jumps",
        desc="Two real rings of 40 servers and 400 keys, limit 11. Clockwise: what a full server turns"
        " away goes to its neighbour, which fills up and sends on in turn; long runs of full "
        "servers. Jump: each key goes to a server of its own, all over the circle.",
    )  # fmt: skip
    for i, (policy, title) in enumerate([("clockwise", "clockwise (CH-BL)"), ("jump", "jump (RJ-CH)")]):
        _, loads, sent, limit, searches = _place_keys(policy)
        left = 12 + i * 312
        p.rect(left, 12, 304, 446, fill=PANEL, stroke=FAINT, corner=14)
        p.text(left + 152, 46, title, size=19, anchor="middle", bold=True)
        cx, cy, inner, outer = left + 152, 206, 84, 128

        def spot(place: float, radius: float, cx: float = cx, cy: float = cy) -> tuple[float, float]:
            angle = 2 * math.pi * place / _NODES - math.pi / 2
            return cx + radius * math.cos(angle), cy + radius * math.sin(angle)

        p.circle(cx, cy, outer, stroke=LINE, line=1.2, dash="3 4")
        for place, load in enumerate(loads):
            full = load >= limit
            reach = inner + (outer - 5 - inner) * load / limit
            (x1, y1), (x2, y2) = spot(place, inner), spot(place, reach)
            x3, y3 = spot(place, outer - 5)
            p.line(x1, y1, x3, y3, stroke=FAINT, line=9)
            if load:
                p.line(x1, y1, x2, y2, stroke=FULL if full else KEY, line=9)
        for home, node in sent:
            (x1, y1), (x2, y2) = spot(home, inner - 8), spot(node, inner - 8)
            if policy == "clockwise":
                span = (node - home) % _NODES
                pull = max(0.18, 0.86 - span / _NODES * 1.6)
                mx, my = spot(home + span / 2, (inner - 8) * pull)
            else:
                mx, my = cx + (x1 + x2 - 2 * cx) * 0.18, cy + (y1 + y2 - 2 * cy) * 0.18
            p.path(
                f"M{x1:.1f} {y1:.1f}Q{mx:.1f} {my:.1f} {x2:.1f} {y2:.1f}", stroke=SENT, line=1.3, opacity=0.55
            )
        away = [((node - home) % _NODES) for home, node in sent]
        p.text(
            left + 152,
            372,
            f"{sum(each >= limit for each in loads)} of {_NODES} servers full",
            size=17,
            anchor="middle",
            fill=FULL,
        )
        p.text(left + 152, 398, f"{len(sent)} keys sent on", size=17, anchor="middle", fill=SENT)
        p.text(left + 152, 424, f"{searches:.2f} servers asked a key", size=17, anchor="middle", fill=MUTED)
        far = f"the furthest by {max(away)} places" if policy == "clockwise" else "each to a place of its own"
        p.text(left + 152, 448, far, size=16, anchor="middle", fill=MUTED)
    return p


def loads() -> Picture:
    """Draw the loads of all servers, largest first."""
    p = Picture(
        "rings-loads", 640, 480, title="Loads of forty servers, largest first",
        desc="Three real rings with the same 400 keys. Without a limit the largest server has several "
        "times its share; clockwise cuts at the limit but leaves servers nearly empty; jump is "
        "nearly even.",
    )  # fmt: skip
    p.text(24, 34, "Keys of each of 40 servers, largest first", size=19, bold=True)
    titles = {"plain": "plain: no limit", "clockwise": "clockwise (CH-BL)", "jump": "jump (RJ-CH)"}
    left, step, scale = 30, 14.6, 3.1
    for i, (policy, title) in enumerate(titles.items()):
        _, found, _, limit, _ = _place_keys(policy)
        base = 196 + i * 130
        mean = sum(found) / len(found)
        variance = sum((each - mean) ** 2 for each in found) / len(found)
        for place, load in enumerate(sorted(found, reverse=True)):
            over = load >= limit
            height = load * scale
            p.rect(left + place * step, base - height, 11, height, fill=FULL if over else KEY, corner=2)
        y = base - limit * scale
        p.line(left - 4, y, left + _NODES * step, y, stroke=MUTED, dash="4 5", line=1.4)
        p.line(left - 4, base, left + _NODES * step, base, stroke=MUTED, line=1.2)
        p.text(614, base - 78, title, size=18, anchor="end", bold=True)
        p.text(
            614,
            base - 55,
            f"least {min(found)}, most {max(found)}, variance {variance:.1f}",
            size=16,
            anchor="end",
            fill=MUTED,
        )
    return p
