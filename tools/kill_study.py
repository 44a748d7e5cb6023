"""One of eight memcached servers is killed under load and started again: what do requests notice?

    threads ──▶ RingMemcache ──▶ eight memcached processes on loopback; every now and then one gets SIGKILL

Most threads read and write, which may be repeated elsewhere: none of those may fail. Two threads count
(`incr`), which may not: each may fail once for each kill, if it was under way. Loads are counted here,
outside the ring.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))

from router_servers import memcached, running, until

from evenbins.cluster.health import Backoff, ServerDownError
from evenbins.cluster.memcached import RingMemcache


@dataclass
class Outcome:
    """What one run measured."""

    served: int  # requests answered
    idle_threads: int  # threads that had none
    failed: int  # requests that failed and should not have
    in_flight_failed: int  # counters' requests that were under way at a kill, and not repeated
    in_flight_most: int  # as many could have been
    repeats: int
    jumps: int
    moved: int  # keys of other servers that moved while one was down
    stayed: int  # keys of the dead server that did not move
    lost: int  # keys that did not return to their server
    most: int  # requests at one server at a time
    limit: int
    leases_left: int
    noticed: float  # seconds from a kill until the server was marked down, the longest
    returned: float  # seconds from the start until it served again, the longest


class _Loads:
    """Requests at each server, counted outside the ring; probes, which have no lease, are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: dict[str, int] = {}
        self.most = 0

    def watch(self, name: str, pool: Any) -> None:
        """Count the uses of a server's connections."""
        original = pool.use
        self._now[name] = 0

        def use(operate: Callable[[Any], Any]) -> Any:
            counts = threading.current_thread().name != "evenbins-probes"
            with self._lock:
                self._now[name] += counts
                self.most = max(self.most, self._now[name])
            try:
                return original(operate)
            finally:
                with self._lock:
                    self._now[name] -= counts

        pool.use = use


def run(
    folder: Path, *, servers: int = 8, threads: int = 12, limit: int = 3, kills: int = 1, pause: float = 0.4
) -> Outcome:
    """Kill and start servers in turn, with a pause before each, under the load of threads."""
    keys = [f"key:{number}" for number in range(400)]
    stop = threading.Event()
    served, failures, under_way = [0] * threads, [0] * threads, [0] * threads
    moved = stayed = lost = 0
    noticed = returned = 0.0
    with running(memcached, servers, folder) as started:
        names = [each.name for each in started]
        quick = Backoff(first=0.05, factor=1.5, most=0.2)
        with RingMemcache(names, limit=limit, backoff=quick, wait=5.0) as client:
            loads = _Loads()
            for name, pool in client._pools.items():
                loads.watch(name, pool)

            def work(number: int) -> None:
                rng = random.Random(number)
                while not stop.is_set():
                    key = rng.choice(keys)
                    try:
                        client.set(key, b"1") if rng.random() < 0.3 else client.get(key)
                        served[number] += 1
                    except Exception:
                        failures[number] += 1

            def count(number: int) -> None:
                while not stop.is_set():
                    try:
                        client.incr(f"counter:{number}:{served[number] % 50}", 1)
                        served[number] += 1
                    except ServerDownError:
                        under_way[number] += 1
                    except Exception:
                        failures[number] += 1

            jobs = [work] * (threads - 2) + [count] * 2
            workers = [threading.Thread(target=job, args=(number,)) for number, job in enumerate(jobs)]
            before = {key: client.server_for(key) for key in keys}
            for worker in workers:
                worker.start()
            try:
                for turn in range(kills):
                    victim = started[(3 + turn) % servers]
                    time.sleep(pause)
                    victim.kill()
                    begun = time.monotonic()
                    until(lambda name=victim.name: client.ring.states[name] == "down", what="the failure")
                    noticed = max(noticed, time.monotonic() - begun)
                    during = {key: client.server_for(key) for key in keys}
                    time.sleep(pause)
                    victim.start()
                    begun = time.monotonic()
                    until(lambda name=victim.name: client.ring.states[name] == "up", what="the return")
                    returned = max(returned, time.monotonic() - begun)
                    after = {key: client.server_for(key) for key in keys}
                    moved += sum(during[key] != before[key] != victim.name for key in keys)
                    stayed += sum(during[key] == victim.name for key in keys)
                    lost += sum(after[key] != before[key] for key in keys)
                time.sleep(pause)
            finally:
                stop.set()
                for worker in workers:
                    worker.join()
            status = client.status()
            return Outcome(
                served=sum(served), idle_threads=served.count(0), failed=sum(failures),
                in_flight_failed=sum(under_way), in_flight_most=2 * kills, repeats=status["repeats"],
                jumps=status["jumps"], moved=moved, stayed=stayed, lost=lost, most=loads.most, limit=limit,
                leases_left=sum(client.ring.lease_loads().values()), noticed=noticed, returned=returned,
            )  # fmt: skip


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--limit", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.5)
    options = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(Path(folder), **options)
    print(", ".join(f"{name} {value}" for name, value in options.items()) + "\n")
    for name, value in vars(outcome).items():
        print(f"{name.replace('_', ' '):18} {value if isinstance(value, int) else format(value, '.3f')}")


if __name__ == "__main__":
    main()
