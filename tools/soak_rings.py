"""Look for a broken bound: random operations over threads and churn, each placement checked twice.

    python tools/soak_rings.py                         10**8 operations, four rings one after the other
    python tools/soak_rings.py --operations 1e6

Threads assign, release and lease, singly and in bulk, while another adds, removes, fails, drains and weighs
nodes.
Every placement is checked by a second reading of the bound (`HashRing._start_audit`). At the end all
invariants are checked, and a single-threaded pass compares the ring's map with a dict that knows the truth.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any

import click
import numpy as np
from rich.console import Console

from evenbins import HashRing, NoNodesError, RingFullError
from evenbins.study.ring import ring as study_ring

_RINGS: tuple[dict[str, Any], ...] = (
    {"epsilon": 0.05},
    {"epsilon": 0.25, "weights": True},
    {"limit": 5000},
    {"epsilon": 0.1, "policy": "clockwise"},
)
_BATCH = 2_000
_KEYS = 200_000  # about so many are assigned at a time


def soak(ring: HashRing, operations: int, seed: int) -> tuple[int, int]:
    """Run until this many operations are done; return operations and changes of nodes."""
    done, stop, lock = [0, 0], threading.Event(), threading.Lock()
    problems: list[BaseException] = []

    def count(n: int) -> None:
        with lock:
            done[0] += n
            if done[0] >= operations:
                stop.set()

    def run_guarded(work: Any, number: int) -> None:
        try:
            while not stop.is_set():
                work(np.random.default_rng((seed, number, done[0])))
        except BaseException as error:
            problems.append(error)
            stop.set()

    def bulk(rng: np.random.Generator) -> None:
        keys = rng.integers(0, 2 * _KEYS, _BATCH)
        with contextlib.suppress(RingFullError):
            ring.assign_many(keys, indices=True)
        ring.locate_many(keys, indices=True)
        ring.release_many(rng.integers(0, 2 * _KEYS, _BATCH))
        count(3 * _BATCH)
        time.sleep(0.0001)  # others want their turn

    def single(rng: np.random.Generator) -> None:
        for key in rng.integers(0, 2 * _KEYS, 500).tolist():
            try:
                with ring.lease(key % 1000), ring.lease(key, weight=1 + key % 977):
                    ring.assign(key)
            except RingFullError:
                pass
            ring.release(key ^ 1)
        count(6 * 500)

    def churn(rng: np.random.Generator) -> None:
        name = f"node{rng.integers(40):02}"
        try:
            match int(rng.integers(8)):
                case 0:
                    if name not in ring.names:
                        ring.add_node(
                            name, float(rng.choice([1, 1, 2, 0.5])), move=str(rng.choice(["now", "lazy"]))
                        )
                case 1:
                    if len(ring.names) > 20:
                        ring.remove_node(name)
                case 2:
                    if sum(state == "up" for state in ring.states.values()) > 15:
                        ring.mark_down(name)
                case 3 | 4 | 5:
                    ring.mark_up(name)
                case 6:
                    ring.set_weight(name, float(rng.choice([1, 1.5, 3])))
                case _:
                    ring.rebalance(1000)
        except (KeyError, RingFullError, NoNodesError):
            pass
        done[1] += 1
        time.sleep(0.001)

    work = [bulk, bulk, single, churn]
    threads = [threading.Thread(target=run_guarded, args=(each, i)) for i, each in enumerate(work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return done[0], done[1]


def map_is_exact(ring: HashRing, seed: int) -> None:
    """Compare with a dict, one operation after the other."""
    rng = np.random.default_rng(seed)
    truth: dict[int, str] = {}
    ring.clear()
    for key in rng.integers(0, 5000, 50_000).tolist():
        if key in truth and rng.random() < 0.5:
            assert ring.release(key)
            del truth[key]
        else:
            node = ring.assign(key)
            truth[key] = node  # a key that is there moves to a lazy node now and then
    assert ring.key_count == len(truth)
    assert all(ring.locate(key) == truth.get(key) for key in range(5000))


@click.command()
@click.option("--operations", type=float, default=1e8, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(operations: float, seed: int) -> None:
    """Run random operations, and look for a broken bound."""
    console = Console(stderr=True)
    worst = 0
    for options in _RINGS:
        names = [f"node{i:02}" for i in range(40)]
        arguments = dict(options)
        if arguments.pop("weights", False):
            arguments["weights"] = {name: 1 + i % 3 / 2 for i, name in enumerate(names)}
        ring = study_ring(names, seed=seed, **arguments)
        ring._start_audit()
        begun = time.perf_counter()
        done, changes = soak(ring, int(operations / len(_RINGS)), seed)
        placements, broken = ring._audit()
        ring._check()
        for name in ring.names:
            ring.mark_up(name)
        map_is_exact(ring, seed)
        worst += broken
        console.print(
            f"{options}: {done:,} operations and {changes:,} changes of nodes in "
            f"{time.perf_counter() - begun:.0f} s; {placements:,} placements judged, {broken} broke the bound"
        )
    print(f"bound broken: {worst}")
    sys.exit(worst != 0)


if __name__ == "__main__":
    main()
