"""The page Rings: CH-BL and RJ-CH side by side; keys arrive, servers fail, join, drain.

    events=k100.x3.k50.a ──parse──▶ replayed on two real HashRing objects ──▶ steps: path, node, loads, moves

A view is its list of events: the server keeps nothing and replays them all, so that an address shows the same
to everybody. CH-BL is the policy "clockwise" on the paper's array (layout "sparse"): servers stand where
their names hash to, so their arcs differ, and a key that finds a server full goes to the next. RJ-CH is
"jump", the default of the library. Both get the same keys, 0, 1, 2 …, and the same limits.

    kN   N keys arrive        xS   server S fails (mark_down)      dS   it is drained
    a    a server joins       uS   it serves again (mark_up)       rS   it is removed for good

Invariants: the circle shows servers in the order of their places in the array, the one that a clockwise walk
follows; `path` is `candidates` up to the server that took the key. Tests replay the Python text of a view
and compare loads.

Tried and dropped: the law of loads beside every step (600 laws for 600 keys); the page asks for the one it
shows (`theory`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenbins import HashRing, NoNodesError, RingFullError, digest_many
from evenbins.study.lab.parameters import Choice, Endpoint, Number, Parameter, Text
from evenbins.study.ring import ring as study_ring

__all__ = ["ENDPOINTS", "parse", "replay", "script", "theory"]

MAX_SERVERS = 60
MAX_KEYS = 1200
MAX_EVENTS = 60
_SAMPLES = 4096
POLICIES = ("clockwise", "jump")
_EVENT = re.compile(r"(k)([1-9]\d{0,3})|([xudr])(\d{1,3})|(a)", re.ASCII)
_SYNTAX = "events are k100 (keys), x3 (fail), u3 (up), d3 (drain), r3 (remove), a (add), joined by dots"

Event = tuple[str, int]


def parse(events: str, servers: int) -> list[Event]:
    """Read a list of events; ValueError, in words, for what cannot be.

    Examples
    --------
    >>> parse("k100.x3.a", 5)
    [('k', 100), ('x', 3), ('a', 5)]
    >>> parse("k100.x9", 5)
    Traceback (most recent call last):
    ...
    ValueError: events: x9 names server 9, which is not there: there are 0, 1, 2, 3, 4
    """
    parts = events.split(".") if events else []
    if len(parts) > MAX_EVENTS:
        raise ValueError(
            f"events: at most {MAX_EVENTS} are replayed, not {len(parts)}: join keys, as in k200"
        )
    found: list[Event] = []
    alive, born, keys = list(range(servers)), servers, 0
    for part in parts:
        match = _EVENT.fullmatch(part)
        if match is None:
            raise ValueError(f"events: {part[:20]!r} is no event: {_SYNTAX}")
        many, number, kind, server, _ = match.groups()
        if many:
            keys += int(number)
            if keys > MAX_KEYS:
                raise ValueError(f"events: at most {MAX_KEYS} keys arrive, not {keys}: start anew")
            found.append(("k", int(number)))
        elif kind:
            if int(server) not in alive:
                listed = ", ".join(map(str, alive[:12])) + (" …" if len(alive) > 12 else "")
                raise ValueError(
                    f"events: {part} names server {int(server)}, which is not there: there are "
                    f"{listed or 'none'}"
                )
            if kind == "r":
                alive.remove(int(server))
            found.append((kind, int(server)))
        else:
            if len(alive) == MAX_SERVERS:
                raise ValueError(f"events: the circle has room for {MAX_SERVERS} servers: remove one first")
            found.append(("a", born))
            alive.append(born)
            born += 1
    return found


def _name(server: int) -> str:
    return f"s{server:02}"


def _number(name: str) -> int:
    return int(name[1:])


def fixed_limit(keys: int, servers: int, epsilon: float) -> int:
    """Return the limit that a ring planned for so many keys has from the first on, as in the paper."""
    from evenbins.study.theory.rings import ring_limit

    return ring_limit(keys, servers, epsilon)


def _options(
    policy: str, *, servers: int, keys: int, epsilon: float, bound: str, copies: int, seed: int
) -> dict[str, Any]:
    """Return the arguments of a HashRing."""
    found: dict[str, Any] = {"policy": policy}
    if policy == "clockwise":
        found |= {"layout": "sparse", "copies": copies}
    if bound == "fixed":
        found["limit"] = fixed_limit(keys, servers, epsilon)
    else:
        found["epsilon"] = epsilon
    return found | {"seed": seed}


@dataclass
class _Side:
    """One of the two rings, and what it tells of each step."""

    ring: HashRing
    digests: dict[int, int]
    refused: int = 0

    def key(self, key: int) -> dict[str, Any]:
        """Assign a key."""
        order = [_number(name) for name in self.ring.candidates(key)]
        try:
            node = _number(self.ring.assign(key))
        except (RingFullError, NoNodesError):
            self.refused += 1
            return {"node": None, "path": order} | self.counts()
        return {"node": node, "path": order[: order.index(node) + 1]} | self.counts()

    def change(self, kind: str, server: int) -> dict[str, Any]:
        """Let a server come, go or fail."""
        name = _name(server)
        calls = {
            "x": self.ring.mark_down, "u": self.ring.mark_up, "r": self.ring.remove_node,
            "a": self.ring.add_node,
        }  # fmt: skip
        said: dict[str, Any] = {"moves": []}
        try:
            if kind == "d":
                self.ring.drain(name)
            else:
                said["moves"] = [
                    [self.digests[key], _number(old), _number(new)] for key, old, new in calls[kind](name)
                ]
        except (RingFullError, NoNodesError) as error:
            said["refused"] = str(error)
        return said | self.counts() | self.scene()

    def counts(self) -> dict[str, Any]:
        """Count what the page shows beside a circle."""
        rows = [row for row in self.ring._rows() if not (row[4] or row[5])]
        loads, limits = [row[7] for row in rows], [row[9] for row in rows]
        _, placements, searches, *_ = self.ring._counters()
        return {
            "limit": max(limits, default=0),
            "full": sum(load >= limit for load, limit in zip(loads, limits, strict=True)),
            "variance": round(float(np.var(loads)), 4) if loads else 0.0,
            "searches": round(searches / placements, 4) if placements else None,
            "next": round(self.ring._expected_searches(_SAMPLES), 4) if rows else None,  # as of stats()
        }

    def scene(self) -> dict[str, Any]:
        """Return loads and states by number."""
        states = self.ring.states
        return {
            "loads": {_number(name): load for name, load in self.ring.loads().items()},
            "states": {_number(name): state for name, state in states.items() if state != "up"},
        }


def _order(ring: HashRing) -> list[int]:
    """Return the servers in the order of the circle: by their first place in the array."""
    return [_number(row.name) for row in sorted(ring._node_rows(), key=lambda row: min(row.slots))]


def replay(
    *, servers: int, keys: int, epsilon: float, bound: str, copies: int, seed: int, events: str
) -> dict[str, Any]:
    """Replay events on both rings: every step with the path of its key, or the moves of its change.

    Parameters
    ----------
    servers
        At the beginning, numbered from 0.
    keys
        What a fixed limit is planned for.
    epsilon, bound
        The limit: ceil((1 + epsilon) * keys / servers), "fixed"; or, "growing", with the keys that there are
        over the servers that serve.
    copies
        Places of a server on the circle of CH-BL.
    seed
        Of both rings.
    events
        See `parse`.

    Raises
    ------
    ValueError
        The events are none, or too many.
    """
    listed = parse(events, servers)
    total = sum(number for kind, number in listed if kind == "k")
    digests = {
        int(digest): key for key, digest in enumerate(digest_many(np.arange(max(1, total)), seed=seed))
    }
    given: dict[str, Any] = {
        "servers": servers, "keys": keys, "epsilon": epsilon, "bound": bound, "copies": copies, "seed": seed,
    }  # fmt: skip
    sides = {
        policy: _Side(study_ring(map(_name, range(servers)), **_options(policy, **given)), digests)
        for policy in POLICIES
    }
    order = _order(sides["clockwise"].ring)
    start = {"order": order, **{policy: side.counts() | side.scene() for policy, side in sides.items()}}
    steps: list[dict[str, Any]] = []
    arrived = 0
    for place, (kind, number) in enumerate(listed):
        if kind == "k":
            for key in range(arrived, arrived + number):
                steps.append({"event": place, "kind": "k", "key": key})
                steps[-1] |= {policy: side.key(key) for policy, side in sides.items()}
            arrived += number
            continue
        steps.append({"event": place, "kind": kind, "server": number})
        steps[-1] |= {policy: side.change(kind, number) for policy, side in sides.items()}
        steps[-1]["order"] = _order(sides["clockwise"].ring)
    refused = any(side.refused for side in sides.values()) or any(
        "refused" in step[policy] for step in steps for policy in POLICIES if step["kind"] != "k"
    )
    return {
        "events": [f"{kind}{'' if kind == 'a' else number}" for kind, number in listed],
        "limit": fixed_limit(keys, servers, epsilon) if bound == "fixed" else None,
        "start": start,
        "steps": steps,
        "python": script(listed, given, careful=refused),
    }


def script(events: Sequence[Event], given: dict[str, Any], *, careful: bool = False) -> str:
    """Write the Python that replays events on both rings; `careful`: of a ring that refuses some."""
    lines = [f"servers = [f's{{i:02}}' for i in range({given['servers']})]", "rings = {}"]
    imports = "HashRing, NoNodesError, RingFullError" if careful else "HashRing"
    if careful:
        lines.insert(0, "full = contextlib.suppress(RingFullError, NoNodesError)")
    for policy in POLICIES:
        options = _options(policy, **given)
        arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
        maker = "paper_ring" if "layout" in options else "HashRing"
        lines.append(f"rings[{policy!r}] = {maker}(servers, {arguments})")
    lines += ["", "for policy, ring in rings.items():"]
    arrived = 0
    for kind, number in events:
        if kind == "k":
            if careful:
                lines.append(f"    for key in range({arrived}, {arrived + number}):")
                lines += ["        with full:", "            ring.assign(key)"]
            else:
                lines.append(f"    ring.assign_many(range({arrived}, {arrived + number}))")
            arrived += number
            continue
        call = {"x": "mark_down", "u": "mark_up", "d": "drain", "r": "remove_node", "a": "add_node"}[kind]
        text = f"ring.{call}({_name(number)!r})"
        lines += ["    with full:", f"        {text}"] if careful else [f"    {text}"]
    lines.append("    print(policy, ring.loads())")
    head = ["import contextlib", ""] if careful else []
    head += [f"from evenbins import {imports}", "from evenbins.study.ring import ring as paper_ring"]
    return "\n".join([*head, "", *lines]) + "\n"


def theory(
    *, servers: int, keys: int, epsilon: float, bound: str, limit: int | None, copies: int
) -> dict[str, Any]:
    """Predict loads for so many servers that serve and keys on them; None where no law is known.

    `limit` is the fixed one, which does not change when servers come and go; None: that of these keys. Laws
    are those of rings that were filled without churn.
    """
    from evenbins.study.theory import rings as laws

    if bound == "growing":
        found = {"jump": laws.growing_loads(keys, servers, epsilon) if keys else None, "clockwise": None}
        return {policy: _law_to_dict(law, servers) for policy, law in found.items()}
    limit = fixed_limit(keys, servers, epsilon) if limit is None else limit
    if not 0 < keys <= limit * servers:
        return dict.fromkeys(POLICIES)
    jump = laws.jump_loads(keys, servers, limit)
    clockwise = laws.clockwise_loads(keys, servers, limit, random_arcs=True) if copies == 1 else None
    return {"clockwise": _law_to_dict(clockwise, servers), "jump": _law_to_dict(jump, servers)}


def _law_to_dict(law: Any, servers: int) -> dict[str, Any] | None:
    if law is None:
        return None
    return {
        "loads": [round(float(each), 6) for each in law.loads],
        "variance": law.variance * (1 - 1 / servers),  # the sum of all loads is known
        "full": law.full * servers,
        "next": law.searches,
    }


_SHARED: list[Parameter] = [
    Number("servers", least=2, most=MAX_SERVERS, default=20, whole=True, help="servers at the beginning"),
    Number("keys", least=1, most=MAX_KEYS, default=200, whole=True, help="keys of a fixed limit"),
    Number("epsilon", least=0.02, most=3, default=0.25, help="what a server may hold above its share"),
    Choice("bound", choices=("fixed", "growing"), default="fixed", help="the limit: of the planned keys, or"
           " of those that are there"),
    Number("copies", least=1, most=16, default=1, whole=True, help="places of a server, CH-BL"),
]  # fmt: skip

ENDPOINTS = [
    Endpoint(
        "rings/replay",
        replay,
        [
            *_SHARED,
            Number("seed", least=0, most=2**32 - 1, default=12, whole=True, help="seed of both rings"),
            Text("events", longest=400, pattern=r"[a-z0-9.]*", default="k182",
                 rule="lower-case letters, digits and dots", help=_SYNTAX),
        ],
        "Replay events on a clockwise and a jump ring, step by step",
    ),
    Endpoint(
        "rings/theory",
        theory,
        [
            Number("servers", least=1, most=MAX_SERVERS, default=20, whole=True, help="servers that serve"),
            Number("keys", least=0, most=MAX_KEYS, default=200, whole=True, help="keys on them"),
            *_SHARED[2:],
            Number("limit", least=1, most=5000, whole=True, help="the fixed limit"),
        ],
        "Predict the loads of both rings",
    ),
]  # fmt: skip
