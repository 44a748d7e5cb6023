"""Look for an acknowledged key that a shared filter lost: processes add to it, and one of them is killed.

    python tools/soak_redis.py                                 4 processes, 250,000 keys each, multilevel
    python tools/soak_redis.py --keys 2000 --policy fill

Starts a Redis server of its own. Each process adds its keys singly and in batches in turn, and reports each
time how many are acknowledged. When the first one has half of its keys in, it gets SIGKILL, wherever it is.
Afterwards every key that was reported is asked for: in bulk, a sample one by one, and in the exported filter,
whose invariants are checked too. The exit status is 1 if one is missing.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import numpy as np
import redis

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.redis import running_server
from evenbins.cluster import RedisFilter
from evenbins.filters import FilterPlan, plan_balanced, plan_blocked, plan_standard

_NAME = "soak"
_SINGLY, _TOGETHER = 100, 400


def _plan(policy: str, keys: int) -> FilterPlan:
    if policy == "standard":
        return plan_standard(keys, bits_per_key=24)
    if policy == "blocked":
        return plan_blocked(keys, bits_per_key=24)
    return plan_balanced(keys, bits_per_key=24, policy=policy)


def _work(port: int, first: int, keys: int) -> None:
    """Add keys, and say after each step how many are acknowledged."""
    with redis.Redis("127.0.0.1", port, socket_timeout=30) as client:
        shared = RedisFilter.open(client, _NAME)
        done = 0
        while done < keys:
            for key in range(done, min(done + _SINGLY, keys)):
                shared.add(first + key)
                print(key + 1, flush=True)
            done = min(done + _SINGLY, keys)
            more = np.arange(done, min(done + _TOGETHER, keys))
            if more.size:
                shared.add_many(first + more)
                done += more.size
                print(done, flush=True)


class _Worker:
    """A process, and what it has reported."""

    def __init__(self, number: int, port: int, keys: int, kill_at: int | None) -> None:
        self.first, self.acknowledged, self.kill_at = number * keys, 0, kill_at
        command = [sys.executable, __file__, "--work", str(port), str(self.first), "--keys", str(keys)]
        command += ["--wait"] if kill_at is not None else []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.acknowledged = int(line)
            if self.kill_at is not None and self.acknowledged >= self.kill_at:
                self.process.send_signal(signal.SIGKILL)
                self.kill_at = None


@click.command()
@click.option("--keys", type=int, default=250_000, show_default=True, help="of each process")
@click.option("--processes", type=int, default=4, show_default=True)
@click.option(
    "--policy",
    type=click.Choice(["multilevel", "fill", "two-choice", "blocked", "standard"]),
    default="multilevel",
    show_default=True,
)
@click.option("--work", type=(int, int), hidden=True)
@click.option("--wait", is_flag=True, hidden=True)  # for the signal, should it come late
def main(keys: int, processes: int, policy: str, work: tuple[int, int] | None, wait: bool) -> None:
    """Add from several processes, kill one, and look for every acknowledged key."""
    if work is not None:
        _work(*work, keys)
        if wait:
            time.sleep(60)
        return
    with running_server() as port, redis.Redis("127.0.0.1", port) as client:
        shared = RedisFilter.create(client, _NAME, _plan(policy, processes * keys))
        begun = time.perf_counter()
        workers = [
            _Worker(number, port, keys, keys // 2 if number == 0 else None) for number in range(processes)
        ]
        for each in workers:
            each.thread.join()
            each.process.wait()
        seconds = time.perf_counter() - begun
        added = np.concatenate([each.first + np.arange(each.acknowledged) for each in workers])
        local = shared.to_local()
        local._check()
        lost = int((~shared.contains_many(added)).sum()) + int((~local.contains_many(added)).sum())
        sample = np.random.default_rng(1).choice(added, min(10_000, len(added)), replace=False).tolist()
        lost += sum(key not in shared for key in sample)
        ends = [each.process.returncode for each in workers]
        print(
            f"{policy}: {processes} processes, {keys:_} keys each, in {seconds:.0f} s; exit statuses {ends}"
        )
        print(f"  acknowledged  {[each.acknowledged for each in workers]}")
        print(f"  lost          {lost}")
        print(f"  {local.stats()!r}")
        as_planned = ends == [-signal.SIGKILL] + [0] * (processes - 1)
        complete = all(each.acknowledged == keys for each in workers[1:])
        sys.exit(0 if as_planned and complete and not lost else 1)


if __name__ == "__main__":
    main()
