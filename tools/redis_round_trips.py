"""Count the round trips of a shared filter: what the plan predicts, the client counts, the server counts.

    python tools/redis_round_trips.py                       a hundred thousand keys at 24 bits, multilevel
    python tools/redis_round_trips.py --policy fill --keys 20000

Starts a Redis server of its own, adds the keys, and asks one by one for a sample of them and for as many
others. The exit status is 1 if server and plan differ by more than 2 %.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import redis

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.redis import running_server
from evenbins.cluster import RedisFilter
from evenbins.filters import FilterPlan, plan_balanced, plan_standard
from evenbins.study.levels import plan_levels


def _best(keys: int, bits: float, policy: str) -> FilterPlan:
    bounds: Any = {"reads": 1.2, "choices": 3} if policy == "multilevel" else {}
    return plan_balanced(keys, bits_per_key=bits, policy=policy, **bounds)


def _paper(keys: int) -> FilterPlan:
    """Plan three levels of equal thresholds at 24 bits, as in the paper: 0.4 % of the keys on the list."""
    blocks = [round(keys * share) for share in (0.039, 0.00675, 0.001125)]
    return plan_levels(
        keys, policy="multilevel", blocks=blocks, thresholds=(21, 21, 21), coin=0.5, hashes=15,
        overflow_limit=keys // 180,
    )  # fmt: skip


@click.command()
@click.option("--keys", type=int, default=100_000, show_default=True)
@click.option("--sample", type=int, default=20_000, show_default=True)
@click.option("--bits", type=float, default=24.0, show_default=True)
@click.option("--policy", type=click.Choice(["multilevel", "fill", "two-choice"]), default="multilevel")
@click.option("--listed", is_flag=True, help="the paper's multilevel scheme, with an overflow list")
@click.option("--traverse-on", type=click.Choice(["client", "server"]), default="client", show_default=True)
def main(keys: int, sample: int, bits: float, policy: str, listed: bool, traverse_on: str) -> None:
    """Compare the three."""
    with running_server() as port, redis.Redis("127.0.0.1", port) as client:
        plan = _paper(keys) if listed else _best(keys, bits, policy)
        RedisFilter.create(client, "x", plan).add_many(range(keys))
        shared = RedisFilter.open(client, "x", traverse_on=traverse_on)
        _ = "a" in shared  # the server learns the script
        shared = RedisFilter.open(client, "x", traverse_on=traverse_on)
        counted = []
        for asked in (range(0, keys, max(1, keys // sample)), range(-sample, 0)):
            client.config_resetstat()
            for key in asked:
                _ = key in shared
            counted.append(client.info("commandstats")["cmdstat_evalsha"]["calls"] / len(asked))
        stats, predicted = shared.stats(), shared.plan
        naive = plan_standard(keys, fpr=plan.fpr)
        print(f"{policy}, {keys:_} keys, {plan.bits_per_key:.3g} bits per key, traverse_on={traverse_on!r};")
        print(f"a naive filter of its rate asks for {naive.hashes} bits")
        print(f"  {'round trips':<14}{'plan':>8}{'client':>8}{'server':>8}")
        rows = (
            ("present key", predicted.round_trips, stats.round_trips, counted[0]),
            ("absent key", predicted.miss_round_trips, stats.miss_round_trips, counted[1]),
        )
        for name, planned, own, measured in rows:
            print(f"  {name:<14}{planned:>8.3f}{own:>8.3f}{measured:>8.3f}   {measured / planned - 1:+.2%}")
        sys.exit(any(abs(row[3] / row[1] - 1) > 0.02 for row in rows))


if __name__ == "__main__":
    main()
