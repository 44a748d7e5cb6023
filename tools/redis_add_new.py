"""Count the requests of `add_new` beside those of `add`, for each policy; and the time of the bulk calls.

    python tools/redis_add_new.py                  a hundred thousand keys, one server
    python tools/redis_add_new.py --keys 20000

Starts a Redis server of its own. Half of the keys of a bulk call are present before. Times are the best of
three rounds, which take turns. The exit status is 1 if a bulk call of add_new takes more than two requests
more than add_many.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import redis

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.redis import running_server
from evenbins.cluster import RedisFilter
from evenbins.filters import FilterPlan, plan_balanced, plan_blocked, plan_standard

CASES = [
    ("blocked", "client"), ("multilevel", "client"), ("fill", "client"), ("two-choice", "client"),
    ("two-choice", "server"), ("standard", "client"), ("standard", "server"),
]  # fmt: skip
SINGLE = 500  # keys one by one; fewer if there are fewer keys


def _plan(policy: str, keys: int) -> FilterPlan:
    if policy in ("standard", "blocked"):
        return (plan_standard if policy == "standard" else plan_blocked)(keys, bits_per_key=24, seed=1)
    return plan_balanced(keys, bits_per_key=24, policy=policy, seed=1)


def _measure(
    client: Any, plan: FilterPlan, kind: str, keys: int, traverse_on: str
) -> tuple[float, int, float]:
    """Return requests per single call, requests of a bulk call, and its seconds."""
    client.flushall()
    shared = RedisFilter.create(client, "x", plan, traverse_on=traverse_on)
    shared.add_many(np.arange(0, keys, 2))
    before = shared.stats().requests
    calls = min(SINGLE, keys)
    for key in range(-calls, 0):
        getattr(shared, kind)(key)
    single = shared.stats().requests - before
    start = time.perf_counter()
    getattr(shared, f"{kind}_many")(np.arange(keys))
    seconds = time.perf_counter() - start
    return single / calls, shared.stats().requests - before - single, seconds


@click.command()
@click.option("--keys", type=int, default=100_000, show_default=True)
def main(keys: int) -> None:
    """Compare the two."""
    print(f"{keys:_} keys, 24 bits per key: requests per key, and of one bulk call with its time")
    print(f"  {'policy':<12}{'traverse_on':<13}{'add':>7}{'add_new':>9}{'add_many':>11}{'add_new_many':>14}")
    dearer = False
    with running_server() as port, redis.Redis("127.0.0.1", port) as client:
        for policy, traverse_on in CASES:
            plan = _plan(policy, keys)
            rounds = [
                [_measure(client, plan, kind, keys, traverse_on) for kind in ("add", "add_new")]
                for _ in range(3)
            ]
            (add, many, _), (add_new, new_many, _) = rounds[-1]
            ratio = min(new[2] for _, new in rounds) / min(old[2] for old, _ in rounds)
            print(
                f"  {policy:<12}{traverse_on:<13}{add:>7.2f}{add_new:>9.2f}{many:>11}{new_many:>14}"
                f"   {ratio:.2f} x the time"
            )
            dearer |= new_many > many + 2
    sys.exit(dearer)


if __name__ == "__main__":
    main()
