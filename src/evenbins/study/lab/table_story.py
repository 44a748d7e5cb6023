"""A small table, step by step: what an insertion looks at, who moves, who goes to the list.

    plan ──▶ Watched (the twin of reference/multilevel.py, which logs what it does) ──▶ lists of events

    ["look", bucket, load]            the key's own bucket is looked at
    ["there", slot, bucket, load]     and a bucket where the resident of a slot may go
    ["move", slot, slot]              the one move
    ["put", slot]                     the key lands     ["list"]  or goes to the overflow list
    ["take", slot]  ["unlist"]        a deletion        ["retry", key]  the oldest key of the list tries again
    ["stay"]                          it finds no room  ["back", slot]  it finds some and leaves the list

The twin leaves the same state as `MultilevelTable`; a test compares the two at the end of stories. Nothing of
the schemes is written here a second time: `Watched` overrides what the twin calls anyway, and listens.

Invariants: at most `MAX_EVENTS` events; a longer story ends after a whole operation and says so.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from evenbins.study.stepwise import Choice, Insertion, ReferenceMultilevel
from evenbins.tables.multilevel import TablePlan, plan_multilevel
from evenbins.tables.multilevel_plan import predictable
from evenbins.theory import least_loaded

__all__ = ["MAX_EVENTS", "Watched", "operations", "small_plan", "story"]

MAX_EVENTS = 6000


class Watched(ReferenceMultilevel):
    """The twin, telling what it does."""

    def clear(self) -> None:
        """Remove everything, the log of events included."""
        super().clear()
        self.log: list[list[Any]] = []
        self._asked = -1  # the slot whose resident was last asked where it may go
        self._retrying = False

    def look_own(self, insertion: Insertion, level: int) -> int:
        """Look at the key's own bucket; each is logged once per operation."""
        load = super().look_own(insertion, level)
        event = ["look", insertion.own[level], load]
        if event not in self.log:
            self.log.append(event)
        return load

    def resident_bucket(self, slot: int, level: int) -> int:
        """Ask where a resident may go."""
        self._asked = slot
        return super().resident_bucket(slot, level)

    def look_there(self, insertion: Insertion, bucket: int) -> int:
        """Look at a bucket where a resident may go."""
        load = super().look_there(insertion, bucket)
        self.log.append(["there", self._asked, bucket, load])
        return load

    def put(self, choice: Choice, key: int, value: int) -> None:
        """Store a key, maybe after a move."""
        assert choice.slot is not None
        if choice.to is not None:
            self.log.append(["move", choice.slot, self.first_free(choice.to)])
        self.log.append(["back" if self._retrying else "put", choice.slot])
        super().put(choice, key, value)

    def list_add(self, key: int, value: int) -> None:
        """Put a key on the list."""
        self.log.append(["list"])
        super().list_add(key, value)

    def list_remove(self, entry: int) -> None:
        """Take a key off the list: deleted, or about to be put into a bucket."""
        if not self._retrying:
            self.log.append(["unlist"])
        super().list_remove(entry)

    def delete(self, key: int) -> bool:
        """Delete a key."""
        match self.find(key):
            case "slot", slot:
                self.log.append(["take", slot])
        return super().delete(key)

    def retry_oldest(self) -> None:
        """Try the oldest key of the list again."""
        self.log.append(["retry", self.entries[self.order[0]][0]])
        before = self.returns
        self._retrying = True
        super().retry_oldest()
        self._retrying = False
        if self.returns == before:
            self.log.append(["stay"])


def small_plan(
    scheme: str, *, levels: int, slots: int, keys: int, space: float, deletions: bool, seed: int,
    shares: list[float] | None,
) -> TablePlan:  # fmt: skip
    """Plan a small table whose list takes all keys; `shares` in proportion, None: equal levels."""
    return plan_multilevel(
        keys, scheme=scheme, levels=levels, slots=slots, space=space,
        shares=None if scheme == "least-loaded" else shares or [1.0] * levels, overflow_limit=keys,
        deletions=deletions, seed=seed,
    )  # fmt: skip


def operations(keys: int, turns: int, seed: int) -> Iterator[tuple[str, int]]:
    """Return insertions of the keys 1 … n, then turns of one deletion of a random key and one insertion."""
    rng = random.Random(seed)
    present = list(range(1, keys + 1))
    for key in present:
        yield "insert", key
    for turn in range(turns):
        gone = rng.randrange(len(present))
        yield "delete", present[gone]
        present[gone] = keys + turn + 1
        yield "insert", keys + turn + 1


def story(plan: TablePlan, turns: int) -> dict[str, Any]:
    """Fill a small table, then replace keys; return every operation with its events and counts.

    Examples
    --------
    >>> size = {"levels": 2, "slots": 1, "keys": 2, "space": 2, "shares": None}
    >>> found = story(small_plan("standard", **size, deletions=False, seed=1), 0)
    >>> [each["op"] for each in found["operations"]], found["operations"][0]["events"]
    (['insert', 'insert'], [['look', 1, 0], ['put', 1]])
    """
    table = Watched(plan.core, plan.seed)
    rows: list[dict[str, Any]] = []
    events, truncated = 0, False
    for op, key in operations(plan.keys, turns, plan.seed):
        table.log = []
        if op == "insert":
            table.insert(key, 0)
        else:
            table.delete(key)
        if events + len(table.log) > MAX_EVENTS:
            truncated = True
            break
        events += len(table.log)
        rows.append({"op": op, "key": key, "events": table.log, "counts": _counts(table)})
    return {
        "keys": plan.keys,
        "buckets": list(plan.buckets),
        "slots": plan.slots,
        "levels": plan.levels,
        "operations": rows,
        "truncated": truncated,
        "predicted": predictions(plan),
    }


def _counts(table: ReferenceMultilevel) -> dict[str, Any]:
    placed = table.placed()
    listed = len(table.order)
    keys = sum(placed) + listed
    looked = sum(level * count for level, count in enumerate(placed, 1)) + table.levels * listed
    return {
        "keys": keys,
        "moves": table.moves,
        "insertions": table.insertions,
        "overflow": listed,
        "reads": round(looked / keys, 4) if keys else None,
        "returns": table.returns,
    }


def predictions(plan: TablePlan) -> dict[str, Any] | None:
    """Return what the theory says: while it fills, by keys inserted (0 … n); with deletions, in the long run.

    It is that of many keys: a table of forty scatters around it. None where a scheme has no equations.
    """
    steady = None
    if plan.deletions and plan.overflow is not None:
        steady = {"overflow": plan.overflow * plan.keys, "moves": plan.moves, "reads": plan.reads}
    if not predictable(plan.scheme, plan.slots):
        return None if steady is None else {"filling": None, "steady": steady}
    placed: list[list[float]]
    if plan.scheme == "least-loaded":
        if (plan.levels, plan.slots) not in least_loaded.DESIGNS:
            return None
        total = sum(plan.buckets) * plan.slots
        overflow, moves, placed, moved = [0.0], [0.0], [[0.0] * plan.levels], 0.0
        for keys in range(1, plan.keys + 1):
            found = least_loaded.behaviour(plan.levels, plan.slots, keys / total)
            overflow.append(keys * found.overflow)
            moved = max(moved, keys * found.moves)
            moves.append(moved)
            placed.append([f * b * plan.slots for f, b in zip(found.fills, plan.buckets, strict=True)])
    else:
        from evenbins.study.theory.tables import trajectory  # here: scipy takes longer than all other imports
        from evenbins.theory import fluid

        path = trajectory(fluid.solve(plan.scheme, plan.shares, plan.slots))
        at = [keys * (len(path.times) - 1) / plan.keys for keys in range(plan.keys + 1)]
        overflow = [max(0.0, plan.keys * _interpolate(path.overflow, each)) for each in at]
        moves = [max(0.0, plan.keys * _interpolate(path.moves, each)) for each in at]
        placed = [
            [_interpolate(path.fills[:, i], each) * b * plan.slots for i, b in enumerate(plan.buckets)]
            for each in at
        ]
    reads = [
        None if not keys
        else (sum(i * each for i, each in enumerate(placed[keys], 1)) + plan.levels * overflow[keys]) / keys
        for keys in range(plan.keys + 1)
    ]  # fmt: skip
    filling = {"overflow": _round_all(overflow), "moves": _round_all(moves), "reads": _round_all(reads)}
    return {"filling": filling, "steady": steady}


def _interpolate(values: Any, at: float) -> float:
    low = min(int(at), len(values) - 2)
    return float(values[low] + (at - low) * (values[low + 1] - values[low]))


def _round_all(values: list[Any]) -> list[float | None]:
    return [None if each is None else float(f"{each:.4g}") for each in values]
