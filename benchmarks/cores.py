"""Every bulk call by 1, 2, 4, … threads, up to the cores of this process: wall time and CPU time per key.

    filters    add_many, contains_many, add_new_many   each family, in the cache (2 MiB) and in memory
    tables     insert_many, get_many, delete_many      ten million keys
    sketches   add_many, count_many                    count-min; HyperLogLog's add_many
    rings      node_many

The first contender of a case has the most threads; ratios say how many times as long fewer threads take. CPU
time is that of the whole process, all threads together: where it grows with the threads, they wait, or do
more work than one. After each call that changes a structure its bytes are compared with those that one thread
left. `tools/bench_cores.cpp` measures the core alone, on machines without this project's Python packages.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Case, Contender, Goal, Target
from benchmarks.shared import FULL, MIB, SEED, Sizes, count_text, main_of, size_text
from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    CountingBloomFilter,
    CountMinSketch,
    HashRing,
    HyperLogLog,
    MultilevelTable,
)

__all__ = ["core_cases", "main_cores"]

_FPR = 1e-3
_FILTERS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "blocked": (BlockedBloomFilter, {}),
    "standard": (BloomFilter, {}),
    "fill": (BalancedBloomFilter, {"policy": "fill"}),
    "multilevel": (BalancedBloomFilter, {"policy": "multilevel"}),
    "two-choice": (BalancedBloomFilter, {"policy": "two-choice"}),
    "counting": (CountingBloomFilter, {}),
}
_ADD_BY_TWO = {"blocked": 1.9, "standard": 1.8}  # times as fast as one thread, in memory


class _Threaded(Protocol):
    """A bulk call."""

    def __call__(self, *, threads: int) -> object: ...


def _numbers_of_threads() -> list[int]:
    cores = len(os.sched_getaffinity(0))
    return sorted({*(2**i for i in range(cores.bit_length())), cores}, reverse=True)


def _label(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def _case(
    name: str,
    call: _Threaded,
    keys: int,
    *,
    prepare: Callable[[], object] | None = None,
    check: Callable[[Any], bool] | None = None,
    by_two: float | None = None,
) -> Case:
    """Return one call as a case: the contenders are the numbers of threads."""
    contenders: dict[str, Contender] = {}
    for threads in _numbers_of_threads():
        facts: dict[str, float] = {}

        def run(threads: int = threads, facts: dict[str, float] = facts) -> object:
            begin = time.process_time()
            answer = call(threads=threads)
            spent = (time.process_time() - begin) / keys * 1e9
            facts["CPU ns"] = min(spent, facts.get("CPU ns", spent))
            return answer

        contenders[_label(threads)] = Contender(run=run, prepare=prepare, check=check, facts=facts)
    targets: list[Goal] = []
    if by_two is not None and "2 threads" in contenders:
        text = f"2 threads ≥ {by_two:g} × as fast as one"
        targets.append(Target(text=text, against=["1 thread"], at_least=by_two, ceiling=2.2, of="2 threads"))
    return Case(name=name, contenders=contenders, operations=keys, targets=targets)


def _same_bytes(structure: Callable[[], Any]) -> Callable[[Any], bool]:
    """Return a check: the structure is equal to what the first call left."""
    expected: list[Any] = []

    def check(_: object) -> bool:
        if not expected:
            expected.append(structure().copy())
        return bool(structure() == expected[0])

    return check


def _filter_cases(name: str, nbytes: int, most: int, keys: npt.NDArray[np.uint64]) -> Iterator[Case]:
    cls, arguments = _FILTERS[name]
    capacity = int(nbytes * 8 / cls(100_000, _FPR, **arguments).plan.bits_per_key)
    filter_ = cls(capacity, _FPR, seed=SEED, **arguments)
    count = min(capacity // 2, most)
    chosen, where = keys[:count], f"{name}, {size_text(nbytes)}"
    by_two = _ADD_BY_TWO.get(name) if nbytes >= 256 * MIB else None
    filter_.add_many(chosen, threads=1)
    same = _same_bytes(lambda: filter_)
    same(None)
    yield _case(
        f"add, {where}",
        partial(filter_.add_many, chosen),
        count,
        prepare=filter_.clear,
        check=same,
        by_two=by_two,
    )
    yield _case(
        f"query, {where}", partial(filter_.contains_many, chosen), count, check=lambda found: found.all()
    )
    if name in ("blocked", "standard"):
        yield _case(
            f"add_new, {where}",
            partial(filter_.add_new_many, chosen),
            count,
            prepare=filter_.clear,
            check=lambda found: bool(found.mean() > 0.99) and same(found),
        )


def _table_cases(keys: npt.NDArray[np.uint64]) -> Iterator[Case]:
    table = MultilevelTable(len(keys), key_dtype="uint64", value_dtype="uint64", seed=SEED)
    values = keys >> np.uint64(3)
    where = f"table of {count_text(len(keys))} keys"
    table.insert_many(keys, values, threads=1)
    same = _same_bytes(lambda: table)
    same(None)
    yield _case(
        f"insert_many, {where}",
        partial(table.insert_many, keys, values),
        len(keys),
        prepare=table.clear,
        check=same,
        by_two=1.6,
    )
    yield _case(
        f"get_many, {where}",
        partial(table.get_many, keys),
        len(keys),
        check=lambda found: bool((found == values).all()),
        by_two=1.8,
    )

    def fill() -> None:
        table.clear()
        table.insert_many(keys, values)

    yield _case(
        f"delete_many, {where}",
        partial(table.delete_many, keys[::2]),
        len(keys[::2]),
        prepare=fill,
        check=lambda _: len(table) == len(keys) - len(keys[::2]),
    )


def _sketch_cases(keys: npt.NDArray[np.uint64]) -> Iterator[Case]:
    for epsilon in (1e-4, 1e-6):
        sketch = CountMinSketch(epsilon, 1e-3, seed=SEED)
        where = f"count-min, {size_text(sketch.nbytes)}"
        sketch.add_many(keys, threads=1)
        same = _same_bytes(lambda sketch=sketch: sketch)  # type: ignore[misc]
        same(None)
        yield _case(
            f"add, {where}", partial(sketch.add_many, keys), len(keys), prepare=sketch.clear, check=same
        )
        yield _case(
            f"count, {where}",
            partial(sketch.count_many, keys),
            len(keys),
            check=lambda found: bool((found > 0).all()),
        )
    counter = HyperLogLog(seed=SEED)
    counter.add_many(keys, threads=1)
    same = _same_bytes(lambda: counter)
    same(None)
    yield _case(
        "add, HyperLogLog", partial(counter.add_many, keys), len(keys), prepare=counter.clear, check=same
    )


def _ring_cases(keys: npt.NDArray[np.uint64]) -> Iterator[Case]:
    ring = HashRing([f"server-{i}" for i in range(100)], seed=SEED)
    expected = ring.node_many(keys, threads=1)
    yield _case(
        "node_many, ring of 100 servers",
        partial(ring.node_many, keys),
        len(keys),
        check=lambda found: bool(np.array_equal(found, expected)),
    )


def core_cases(sizes: Sizes = FULL) -> Iterator[Case]:
    """Return the cases of this module, one at a time."""
    keys = np.random.default_rng(SEED).integers(0, 2**63, 2 * sizes.bulk_keys, dtype=np.uint64)
    for nbytes in (2 * MIB, sizes.thread_bytes):
        for name in _FILTERS:
            yield from _filter_cases(name, nbytes, sizes.thread_keys, keys)
    yield from _table_cases(keys[: sizes.bulk_keys])
    yield from _sketch_cases(keys[: sizes.bulk_keys // 2])
    yield from _ring_cases(keys[: sizes.bulk_keys // 2])


def main_cores(
    quick: bool = False, rounds: int | None = None, json_path: str | None = None, markdown: bool = False
) -> int:
    """Run the cases, print the tables, write the JSON; the exit status: 0."""
    return main_of("cores", core_cases, {}, quick, rounds, json_path, markdown)
