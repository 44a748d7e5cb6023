"""A fixed set of files, of every kind: their digests, as JSON on standard output.

    python tools/fixed_files.py --kernel avx2 --threads 2 --batch 1000

Whatever the kernel, the threads, the batch size and the Python, the digests are the same:
tools/determinism.py runs this in many of them and compares. Nearly every number that decides a byte is given,
by an integer core or an argument, so that libraries of mathematics, which may differ in the last bits of a
logarithm, take no part; the exceptions are the plans of growing and sharded filters, sketches and pages.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

KEYS = 20_000


def _numbers(seed: int, count: int) -> Any:
    """Return splitmix64's numbers: no generator of NumPy, whose streams may change."""
    import numpy as np

    state = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


class Makers:
    """One method for each kind of file; each gives a name and a structure, filled in batches."""

    def __init__(self, threads: int, batch: int) -> None:
        self.threads, self.batch = threads, batch
        self.keys = _numbers(1, KEYS)
        self.texts = [f"key {i} {'x' * (i % 50)}" for i in range(3000)]

    def batches(self, *columns: Any) -> Iterator[tuple[Any, ...]]:
        """Cut columns of the same length into batches."""
        for start in range(0, len(columns[0]), self.batch):
            yield tuple(each[start : start + self.batch] for each in columns)

    def filters(self) -> Iterator[tuple[str, Any]]:
        """Return filters of every kind and policy."""
        from evenbins import (
            BalancedBloomFilter,
            BlockedBloomFilter,
            BloomFilter,
            CountingBloomFilter,
            FingerprintFilter,
        )
        from evenbins.filters import plan_of_core
        from evenbins.study.hashing import plan_scheme

        half = 2**31
        cores: dict[str, tuple[int, ...]] = {
            "single": (1, 512, 9, 1, half, 9000, 0, 0, 600, 24),
            "sequential": (2, 256, 8, 3, half, 9000, 1, 30_000, 1300, 12),
            "multilevel": (3, 512, 10, 3, half, 9000, 0, 0, 520, 24, 90, 24, 15, 24),
            "fill": (4, 256, 7, 2, 0, 0, 0, 0, 1000, 120, 303, 257),
            "two-choice": (5, 512, 11, 2, 0, 0, 0, 0, 620, 0),
        }
        made: dict[str, Any] = {
            "standard": BloomFilter(KEYS, bits_per_key=10, hashes=7, seed=5),
            "standard-double": BloomFilter.from_plan(plan_scheme("double", KEYS, bits_per_key=10, hashes=7)),
            "standard-partition": BloomFilter.from_plan(
                plan_scheme("partition", KEYS, bits_per_key=10, hashes=7)
            ),
            "blocked-512": BlockedBloomFilter(KEYS, bits_per_key=12, hashes=8),
            "blocked-256": BlockedBloomFilter(
                KEYS, bits_per_key=12, hashes=9, block_bits=256, seed=2**64 - 1
            ),
            "counting": CountingBloomFilter.from_plan(
                plan_of_core("counting", (199_999, 4, 7, 0), capacity=KEYS, seed=1)
            ),
            "counting-blocked": CountingBloomFilter.from_plan(
                plan_of_core("counting", (128 * 2400, 4, 8, 512), capacity=KEYS, seed=2)
            ),
        }
        for name, core in {
            "fingerprint": (576, 11, 50, 12, 9000, 30_000, 0, 0),
            "fingerprint-set": (960, 8, 64, 10, 500, 30_000, 1, 0),
        }.items():
            plan: Any = plan_of_core("fingerprint", core, capacity=KEYS, seed=3, hashing="lanes")
            made[name] = FingerprintFilter.from_plan(plan)
        for policy, core in cores.items():
            made[policy] = BalancedBloomFilter.from_plan(plan_of_core(policy, core, capacity=KEYS, seed=8))
        for name, each in made.items():
            for (keys,) in self.batches(self.keys):
                each.add_many(keys, threads=self.threads)
            for (texts,) in self.batches(self.texts):
                each.add_many(texts, threads=self.threads)
            if name.startswith("counting") or name == "fingerprint":
                for (keys,) in self.batches(self.keys[: KEYS // 3]):
                    each.remove_many(keys)
            yield name, each

    def windows(self) -> Iterator[tuple[str, Any]]:
        """Return window filters, of time and of additions, in which keys have expired and some are swept."""
        from evenbins import WindowFilter
        from evenbins.filters import plan_of_core

        for name, core in {
            "window": (960, 11, 50, 10, 500, 30_000, 8, 1000, 0),
            "window-of-additions": (640, 8, 64, 10, 500, 30_000, 3, 7000, 1),
        }.items():
            plan: Any = plan_of_core("window", core, capacity=KEYS, seed=4, hashing="lanes")
            made = WindowFilter.from_plan(plan)
            for part in range(11):
                keys = self.keys[part * KEYS // 11 : (part + 1) * KEYS // 11]
                made.clock = functools.partial(float, (250 * part + 0.5) / 1e6)
                for (some,) in self.batches(keys):
                    made.add_many(some, threads=self.threads)
            yield name, made

    def fixed(self) -> Iterator[tuple[str, Any]]:
        """Return fuse filters: of texts, and of all keys, some of them twice."""
        from evenbins.filters.fuse import FuseFilter, FuseKeys

        yield "fuse-texts", FuseFilter.from_keys(self.texts, fpr=2**-9, threads=self.threads)
        keys = FuseKeys(11, self.threads)
        for read in (keys.count, keys.take):
            for (some,) in (*self.batches(self.keys), *self.batches(self.keys[:99])):
                read(some)
        yield "fuse", keys.build(FuseFilter, 2**-13)

    def growing(self) -> Iterator[tuple[str, Any]]:
        """Return a growing filter and one in shards."""
        from evenbins import GrowingFilter, ShardedFilter

        for name, each in (
            ("growing", GrowingFilter(0.01, first=2000, policy="blocked", seed=7)),
            ("sharded", ShardedFilter(KEYS, shards=4, policy="blocked", fpr=1e-3, seed=3)),
        ):
            for (keys,) in self.batches(self.keys):
                each.add_many(keys, threads=self.threads)
            yield name, each

    def deduplicators(self) -> Iterator[tuple[str, Any]]:
        """Return an approximate and an exact Deduplicator, each with keys that come twice."""
        from evenbins import Deduplicator

        for exact in (False, True):
            d = Deduplicator(exact=exact, capacity=5000, seed=9)
            for (keys,) in (
                *self.batches(self.keys),
                *self.batches(self.texts),
                *self.batches(self.keys[:99]),
            ):
                d.keep(keys, threads=self.threads)
            yield f"deduplicator-{'exact' if exact else 'approximate'}", d

    def sketches(self) -> Iterator[tuple[str, Any]]:
        """Return sketches of both constructions, heavy hitters, and HyperLogLogs of both forms."""
        from evenbins import CountMinSketch, HeavyHitters, HyperLogLog

        weights = self.keys % type(self.keys[0])(9)
        for construction in ("classic", "two-hash"):
            for conservative in (False, True):
                s = CountMinSketch(
                    0.0078125, 0.03125, construction=construction, conservative=conservative, seed=4
                )
                for keys, each in self.batches(self.keys, weights):
                    s.add_many(keys, each)
                yield f"count-min-{construction}-{'conservative' if conservative else 'plain'}", s
        for conservative in (False, True):
            hitters = HeavyHitters(300, epsilon=0.0078125, delta=0.03125, conservative=conservative, seed=4)
            for keys, each in self.batches(self.keys % type(self.keys[0])(5000), weights):
                hitters.add_many(keys, each)
            for (texts,) in self.batches(self.texts):
                hitters.add_many(texts)
            yield f"heavy-hitters-{'conservative' if conservative else 'plain'}", hitters
        for precision in (8, 18):
            h = HyperLogLog(precision, seed=4)
            for (keys,) in self.batches(self.keys):
                h.add_many(keys, threads=self.threads)
            yield f"hyperloglog-{precision}", h

    def tables(self) -> Iterator[tuple[str, Any]]:
        """Return tables of every scheme, chains of every policy."""
        from evenbins import ChainedTable, MultilevelTable
        from evenbins.tables.chained import plan_of_chain_core
        from evenbins.tables.multilevel import plan_of_table_core

        half = 2**31
        for scheme in range(1, 6):
            core = (scheme, 8 if scheme == 5 else 2, 2, 2, 1, 12_000, 3000, 1500, 700)
            core = core if scheme != 5 else (5, 8, 2, 2, 1, 12_000, 1400, 1400)
            yield f"table-{scheme}", MultilevelTable.from_plan(plan_of_table_core(core, keys=KEYS, seed=14))
        chains = (
            (1, 1, half, 2, 2, 50, 6000, 4), (2, 3, half, 2, 2, 40, 5000, 4),
            (3, 3, half, 2, 2, 30, 4000, 4, 1000, 4, 400, 4), (6, 2, 0, 2, 2, 0, 5000, 0),
            (7, 4, 0, 2, 2, 0, 1200, 0, 1200, 0, 1200, 0, 1000, 0),
        )  # fmt: skip
        for chain in chains:
            plan = plan_of_chain_core(chain, keys=KEYS, seed=15)
            yield f"chained-{chain[0]}", ChainedTable.from_plan(plan)

    def fill_tables(self) -> Iterator[tuple[str, Any]]:
        """Fill the tables, delete a third, overwrite some."""
        values = _numbers(2, KEYS)
        for name, table in self.tables():
            more = {"threads": self.threads} if name.startswith("table") else {}
            for keys, each in self.batches(self.keys, values):
                table.insert_many(keys, each, **more)
            for (keys,) in self.batches(self.keys[: KEYS // 3]):
                table.delete_many(keys, **more)
            for keys, each in self.batches(self.keys[KEYS // 2 :], values[: KEYS // 2]):
                table.insert_many(keys, each, **more)
            yield name, table

    def sets(self) -> Iterator[tuple[str, Any]]:
        """Fill exact sets of integers and of digests of integers and texts, and remove a third."""
        from evenbins import MultilevelTable
        from evenbins.tables.multilevel import plan_of_table_core

        for name, core in (
            ("uint64", (5, 8, 2, 0, 1, 12_000, 1400, 1400)),
            ("digest", (5, 8, 3, 0, 1, 12_000, 3200, 3200)),
            ("digest-second-chance", (3, 2, 3, 0, 3, 12_000, 12_000, 6000, 3000)),
        ):
            made = MultilevelTable.from_plan(plan_of_table_core(core, keys=2 * KEYS, seed=17))
            for (keys,) in self.batches(self.keys):
                made.add_new_many(keys, threads=self.threads)
            if name != "uint64":
                for (texts,) in self.batches(self.texts):
                    made.add_new_many(texts, threads=self.threads)
            for (keys,) in self.batches(self.keys[: KEYS // 3]):
                made.discard_many(keys, threads=self.threads)
            yield f"set-{name}", made

    def summaries(self) -> Iterator[tuple[str, Any]]:
        """Return summaries of every kind."""
        from evenbins.structure import kind_of_number
        from evenbins.tables.summaries import plan_of_summary_core

        cores = (
            (9, 5, 55, 25_000), (10, 5, 150_000, 15), (10, 4, 60_000, 6, 4, 3, 3, 2),
            (11, 4, 0, 200_000, 7, 1, 100_000, 13, 1, 50_000, 9, 1, 8000, 0, 1), (12, 10, 200_000, 3),
        )  # fmt: skip
        levels = [i * i % 4 + 1 for i in range(KEYS)]
        for number, *core in cores:
            plan = plan_of_summary_core(tuple(core), number=number, keys=KEYS, seed=16)
            kind = kind_of_number(number)
            assert kind is not None
            s = kind.cls.from_plan(plan)
            for keys, each in self.batches(self.keys, levels):
                s.add_many(keys, 1 if number == 12 else each)
            yield f"summary-{number}-{len(core)}", s

    def rings(self) -> Iterator[tuple[str, Any]]:
        """Return rings of every policy and layout, after churn."""
        from evenbins.study.ring import ring as study_ring

        for policy in ("plain", "clockwise", "rehash", "jump"):
            for layout in ("dense", "sparse"):
                more: dict[str, Any] = {} if policy == "plain" else {"epsilon": 0.25}
                if layout == "sparse":
                    more |= {"array_bits": 12, "copies": 2}
                ring = study_ring(
                    [f"server{i}" for i in range(12)], policy=policy, layout=layout, seed=17, **more
                )
                for (keys,) in self.batches(self.keys[:5000]):
                    ring.assign_many(keys)
                ring.mark_down("server3")
                ring.remove_node("server7")
                ring.add_node("another", 1.5)
                for (keys,) in self.batches(self.keys[:1000]):
                    ring.release_many(keys)
                yield f"ring-{policy}-{layout}", ring


def _pages(makers: Makers, folder: Path) -> Any:
    """Return a one-read table in a file."""
    import numpy as np

    from evenbins import PagedTable

    table = PagedTable.create(str(folder / "pages"), KEYS, key_dtype="uint64", durable=False)
    for (keys,) in makers.batches(makers.keys):
        table.insert_many(keys, np.full(len(keys), 7))
    return table


def structures(threads: int, batch: int, folder: Path) -> Iterator[tuple[str, Any]]:
    """Make every structure, with the name of its file; the one in pages is written in the folder."""
    makers = Makers(threads, batch)
    every: list[Callable[[], Iterator[tuple[str, Any]]]] = [
        makers.filters, makers.windows, makers.fixed, makers.growing, makers.deduplicators,
        makers.sketches, makers.fill_tables, makers.sets, makers.summaries, makers.rings,
    ]  # fmt: skip
    for make in every:
        yield from make()
    yield "pages", _pages(makers, folder)


def _bytes_of(name: str, structure: Any) -> bytes:
    """Return what is compared: the file; of pages what they hold, since the file has a random identity."""
    if name == "sharded":
        return b"".join(part.to_bytes() for part in structure.parts)
    if name != "pages":
        data: bytes = structure.to_bytes()
        return data
    with structure:
        items, keys = sorted(structure.items()), structure.stats().keys
    return repr((items, keys, Path(structure.path).stat().st_size)).encode()


def digests(threads: int, batch: int) -> dict[str, str]:
    """Make all files; the SHA-256 of each."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: hashlib.sha256(_bytes_of(name, each)).hexdigest()
            for name, each in structures(threads, batch, Path(folder))
        }


def main() -> None:
    """Print the digests, and what made them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernel", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=KEYS)
    parser.add_argument("--list-kernels", action="store_true")
    arguments = parser.parse_args()
    if arguments.kernel:
        os.environ["EVENBINS_KERNEL"] = arguments.kernel
    import evenbins

    if arguments.list_kernels:
        print(json.dumps(evenbins.kernels()))
        return
    result = {
        "python": sys.version.split()[0],
        "kernel": evenbins.kernel(),
        "files": digests(arguments.threads, arguments.batch),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
