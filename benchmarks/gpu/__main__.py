"""The acceptance table of evenbins.cuda: what is required beside what was measured, on this machine's GPU.

    python -m benchmarks.gpu [--small]

Rates are medians of five calls after a warm-up, timed by events of the device, in 10^9 keys per second.
Filters are filled to their plan, 16 bits per key, before they are asked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import cupyx
import numpy as np

from evenbins import cuda
from evenbins.cuda._kernels import compiled, launch_per_key
from evenbins.filters.balanced import plan_balanced
from evenbins.filters.blocked import plan_blocked
from evenbins.filters.fingerprint_plan import plan_fingerprint
from evenbins.filters.standard import plan_standard

RAW = str(Path(__file__).with_name("raw.cuh"))
U64 = "Integers<uint64_t>"
GIB = 1 << 30
ROWS: list[tuple[str, str, str]] = []


def keys_from(first: int, n: int) -> Any:
    found = cupy.arange(first, first + n, dtype=np.uint64)
    found *= np.uint64(0x9E3779B97F4A7C15)
    return found


def rate(call: Callable[[], object], n: int, rounds: int = 5) -> float:
    call()
    times = []
    for _ in range(rounds):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end))
    return n / float(np.median(times)) / 1e6


def row(measure: str, required: str, found: str) -> None:
    ROWS.append((measure, required, found))
    print(f"  {measure:62s} {required:34s} {found}", flush=True)


def release() -> None:
    cupy.get_default_memory_pool().free_all_blocks()


def blocked(size: int, required: float, n: int) -> None:
    """Query a full filter: keys that are in, and keys that are not."""
    capacity = size // 2
    made = cuda.build(plan_blocked(capacity, bits_per_key=16, hashes=10), keys_from(0, 0))
    step = min(n, capacity)
    for first in range(0, capacity, step):
        made.add_many(keys_from(first, min(step, capacity - first)))
    out = cupy.empty(n, np.uint8)
    bare = compiled(RAW, f"raw_lines<9,{U64},1>")
    arguments = (made._words, np.uint64(made.plan.core[0]))
    for name, first in (("hits", 0), ("misses", 1 << 40)):
        keys = keys_from(first, n)
        if name == "hits" and n > capacity:
            keys = cupy.tile(keys_from(0, capacity), n // capacity)
        bare_arguments = (*arguments, keys, np.uint64(0), made._hash, np.uint64(n), out)
        raw = rate(partial(launch_per_key, bare, n, bare_arguments), n)
        found = rate(partial(made.contains_many, keys), n)
        share = float(made.contains_many(keys).mean())
        row(
            f"query, blocked, {size / GIB:g} GiB, {name}",
            f">= {required:g}" + (" and >= 0.9 x bare" if required < 50 else ""),
            f"{found:.1f}, bare reads {raw:.1f} ({found / raw:.2f}); {share:.4%} answered True",
        )
        assert name == "misses" or share == 1.0


def additions(n: int) -> None:
    plan = plan_blocked(4 * GIB // 2, bits_per_key=16, hashes=10)
    made = cuda.build(plan, keys_from(0, 0))
    keys = keys_from(0, n)
    row(f"add, blocked, 4 GiB, {n:,} keys a call", ">= 20", f"{rate(partial(made.add_many, keys), n):.1f}")
    few = keys_from(0, 1 << 24)
    row(
        "  the same, 16.8 million keys a call (atomics)",
        "",
        f"{rate(partial(made.add_many, few), few.size):.1f}",
    )
    made = cuda.build(plan, keys_from(0, 0))

    def fresh() -> None:
        made._words.fill(0)
        made.add_new_many(keys)

    row("add_new_many, 4 GiB, empty filter, all new", ">= 4", f"{rate(fresh, n, 3):.1f}")
    row("  the same, all present", ">= 4", f"{rate(partial(made.add_new_many, keys), n, 3):.1f}")
    keys = keys % np.uint64(n // 3)
    row("  the same, two thirds repeats", ">= 4", f"{rate(fresh, n, 3):.1f}")


def standard(n: int) -> None:
    size = 4 * GIB
    capacity = size // 2
    made = cuda.build(
        plan_standard(int(capacity * 16 / 14.43), bits_per_key=14.43, hashes=10), keys_from(0, 0)
    )
    for first in range(0, made.plan.keys, 1 << 28):
        made.add_many(keys_from(first, min(1 << 28, made.plan.keys - first)))
    out = cupy.empty(n, np.uint8)
    bare = compiled(RAW, f"raw_sectors<{U64},4>")
    keys = keys_from(0, n)
    arguments = (made._words, np.uint64(made.plan.core[0]), keys, np.uint64(0), made._hash, np.uint64(n), out)
    sectors = rate(partial(launch_per_key, bare, n, arguments), 4 * n)
    fill = float(made.plan.fill)
    for name, first, reads in (("present", 0, 10.0), ("absent", 1 << 40, (1 - fill**10) / (1 - fill))):
        keys = keys_from(first, n)
        found = rate(partial(made.contains_many, keys), n)
        goal = 0.9 * sectors / reads
        row(
            f"standard, 10 hashes, 4 GiB, query {name}",
            f">= 0.9 x {sectors:.1f} / {reads:.2f} = {goal:.2f}",
            f"{found:.2f} ({found * reads / sectors:.2f})",
        )
    row("  the same, add", "", f"{rate(partial(made.add_many, keys), n, 3):.2f}")
    few = keys_from(1 << 41, 1 << 22)
    row("  the same, add_new_many", "", f"{rate(partial(made.add_new_many, few), few.size, 3):.2f}")


def fingerprints(n: int) -> None:
    """A fingerprint filter of about 4 GiB: built by sort, asked, and more keys added to it."""
    plan = plan_fingerprint(2_300_000_000 if n >= 1 << 28 else 8 * n, fpr=1e-3)
    size = f"{plan.nbytes / GIB:.2f} GiB"
    step = plan.keys // 4
    made = cuda.build(plan, keys_from(0, step))
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    made.add_many(keys_from(step, plan.keys - step))
    end.record()
    end.synchronize()
    found = plan.keys / cupy.cuda.get_elapsed_time(begin, end) / 1e6
    row(f"build, fingerprints, {size}: three quarters onto one, all sorted", "", f"{found:.2f} of all keys")
    out = cupy.empty(n, np.uint8)
    bare = compiled(RAW, f"raw_lines<9,{U64},1>")
    arguments = (made._words[8:], np.uint64(plan.lines))
    for name, first in (("hits", 0), ("misses", 1 << 40)):
        keys = keys_from(first, n)
        raw = rate(
            partial(launch_per_key, bare, n, (*arguments, keys, np.uint64(0), made._hash, np.uint64(n), out)),
            n,
        )
        found = rate(partial(made.contains_many, keys), n)
        share = float(made.contains_many(keys).mean())
        row(
            f"query, fingerprints, {size}, {name}",
            "",
            f"{found:.1f}, bare reads {raw:.1f} ({found / raw:.2f}); {share:.4%} answered True",
        )
        assert name == "misses" or share == 1.0
    del made, keys
    release()
    plan = plan_fingerprint(n, fpr=1e-3)
    keys = keys_from(0, n)
    row(
        f"build, fingerprints, empty filter, {n:,} keys",
        "",
        f"{rate(partial(cuda.build, plan, keys), n, 3):.2f}",
    )


def balanced(n: int) -> None:
    """Fill balanced filters level by level."""
    for policy in ("fill", "multilevel"):
        plan = plan_balanced(2 * n, bits_per_key=24, policy=policy)
        keys = keys_from(0, n)
        found = rate(partial(cuda.build, plan, keys), n, 3)
        row(f"build, balanced, {policy}, half full, {n:,} keys", "", f"{found:.2f}")


def others(n: int) -> None:
    made = cuda.build(plan_blocked(4 * GIB // 2, bits_per_key=16, hashes=10), keys_from(0, n))
    host = cupyx.empty_pinned(n, np.uint64)
    host[:] = np.arange(n, dtype=np.uint64)
    for name, keys, required in (("pinned", host, ">= 6"), ("ordinary", np.array(host), "")):
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            made.contains_many(keys)
            times.append(time.perf_counter() - begin)
        found = n / float(np.median(times)) / 1e9
        row(f"NumPy array, {name} memory, query end to end", required, f"{found:.2f}")
    del host
    m = n // 2
    strings = cuda.Strings(
        cupy.random.randint(0, 256, 16 * m, dtype=np.uint8), cupy.arange(m + 1, dtype=np.int64) * 16
    )
    row(
        "16-byte strings on the device, query",
        ">= 15",
        f"{rate(partial(made.contains_many, strings), m):.1f}",
    )
    row("16-byte strings on the device, add", "", f"{rate(partial(made.add_many, strings), m):.1f}")


def main() -> None:
    small = "--small" in sys.argv[1:]
    n = 1 << (24 if small else 28)
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    print(
        properties["name"].decode(), "CuPy", cupy.__version__, "driver", cupy.cuda.runtime.driverGetVersion()
    )
    steps: list[Callable[[], None]] = [
        partial(blocked, 32 << 20, 55, n),
        partial(blocked, 4 * GIB, 31, n),
        partial(blocked, 32 * GIB, 31, n),
        partial(additions, n),
        partial(standard, n // 4),
        partial(fingerprints, n),
        partial(balanced, n // 4),
        partial(others, n // 2),
    ]
    for step in steps:
        try:
            step()
        except Exception as error:  # one failure must not hide the other figures
            row("FAILED", "", f"{type(error).__name__}: {error}")
        release()
    print("\n| measure, 10^9 keys per second | required | measured |\n|---|---|---|")
    for each in ROWS:
        print("| " + " | ".join(each) + " |")


if __name__ == "__main__":
    main()
