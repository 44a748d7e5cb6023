"""What a filter on servers costs: requests predicted from its plan, and requests counted by its client.

A request is one command that a server answers (its `INFO commandstats` counts the same): a block read, a
block asked to take a key, a look at the overflow list. Requests to several segments that are known beforehand
go out together; a walk waits for each before the next.

    policy          present key                              absent key
    standard        distinct segments among k positions      the same
    blocked         1                                        1
    two-choice      2, or 1 if both blocks share a segment   the same
    multilevel      reads + overflow                         miss_reads + list_reads
    fill            reads                                    miss_reads
    … traverse_on="server": 1 for all blocks, and the list's; the same for an absent key
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from evenbins._show import ReprMixin
from evenbins.cluster._segments import HEAD, Layout
from evenbins.filters import FilterPlan

__all__ = ["Counts", "RedisPlan", "RedisStats", "plan_of_layout"]

_SINGLE = ("found", "absent", "added")  # outcomes of operations with one key


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RedisPlan(ReprMixin):
    """How a filter lies on servers, and the requests for one key when `filter.keys` keys are in it.

    Attributes
    ----------
    filter : the plan of the filter itself
    round_trips, miss_round_trips : requests for a present and for an absent key, the list's included
    add_round_trips : requests for the insertion of a new key
    segments, segment_bytes : string values, and bytes of blocks in each
    servers : independent servers; 1 for one server or a cluster
    nbytes : bytes of all segments with their heads; the list, stored the server's own way, is extra
    """

    _not_shown = ("filter",)

    filter: FilterPlan
    round_trips: float
    miss_round_trips: float
    add_round_trips: float
    segments: int
    segment_bytes: int
    servers: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RedisStats(ReprMixin):
    """What one client counted since it was made; each name means the same as in `RedisPlan`.

    Attributes
    ----------
    round_trips, miss_round_trips, add_round_trips : requests per single-key operation; nan before the
        first. Adds of keys that were there already count too
    found, absent, added : single-key operations
    bulk_keys, bulk_round_trips : keys of bulk calls, and their requests in total
    requests : all requests of this client, opening and exporting included
    """

    round_trips: float
    miss_round_trips: float
    add_round_trips: float
    found: int
    absent: int
    added: int
    bulk_keys: int
    bulk_round_trips: int
    requests: int


class Counts:
    """What a client counts: keys and requests of single-key operations and of bulk calls; all requests."""

    def __init__(self) -> None:
        self._keys: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self.requests = 0

    def add(self, outcome: str, keys: int, requests: int) -> None:
        """Count keys that were "found", "absent", "added", or part of a "bulk" call, and their requests."""
        self._keys[outcome] += keys
        self._requests[outcome] += requests

    def stats(self) -> RedisStats:
        """Return the means of what was counted."""
        keys, requests = self._keys, self._requests
        mean = {each: requests[each] / keys[each] if keys[each] else math.nan for each in _SINGLE}
        return RedisStats(
            round_trips=mean["found"], miss_round_trips=mean["absent"], add_round_trips=mean["added"],
            found=keys["found"], absent=keys["absent"], added=keys["added"], bulk_keys=keys["bulk"],
            bulk_round_trips=requests["bulk"], requests=self.requests,
        )  # fmt: skip


def plan_of_layout(layout: Layout) -> RedisPlan:
    """Predict the requests of a layout."""
    plan = layout.plan
    alone = layout.traverse_on == "client"
    if layout.plan.policy == "standard":
        added = float((1.0 - (1.0 - layout.tables[0].shares()) ** plan.hashes).sum())
        present = absent = added if alone else 1.0
    elif layout.plan.policy == "blocked":
        present = absent = added = 1.0
    elif layout.plan.policy == "two-choice":
        present = absent = 2.0 - float(np.square(layout.tables[0].shares()).sum()) if alone else 1.0
        added = present + 1.0
    else:
        list_asked = plan.overflow + plan.spilled if layout.limit else 0.0
        present = (plan.reads if alone else 1.0) + list_asked
        absent = (plan.miss_reads if alone else 1.0) + plan.list_reads
        spilling = 1.0 if layout.spill == "random" else 1.0 + layout.plan.choices
        added = present + plan.spilled * spilling
    return RedisPlan(
        filter=plan,
        round_trips=present,
        miss_round_trips=absent,
        add_round_trips=added,
        segments=layout.segments,
        segment_bytes=layout.segment_bytes,
        servers=layout.servers,
        nbytes=sum(table.blocks * table.block_bytes for table in layout.tables) + HEAD * layout.segments,
    )
