"""Measure a build on Dask: two workers against one, from Parquet, and whether the bytes are the same.

    python tools/bench_dask.py                              20 million strings, blocked, three rounds
    python tools/bench_dask.py --keys 2e6 --policy fill     fewer keys, another policy
    python tools/bench_dask.py --shards 16                  a sharded filter, written by the workers

The clusters are started first, one with one worker and one with two, a thread each; rounds alternate
between them, and the best of each counts. Prints a line a round and the ratio. Starting a cluster takes
about two seconds more, which a single build pays (`evenbins build --workers 2`).
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenbins.cluster.dask import build_files

FILES = 16


def write_keys(folder: Path, keys: int) -> None:
    """Write strings such as https://example.org/item/81985529216486895, in files of four row groups."""
    for number in range(FILES):
        mine = np.arange(number, keys, FILES, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        text = pc.binary_join_element_wise("https://example.org/item", pa.array(mine).cast(pa.string()), "/")
        pq.write_table(
            pa.table({"url": text}), folder / f"{number:02d}.parquet", row_group_size=-(-len(mine) // 4)
        )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=float, default=20e6)
    parser.add_argument("--policy", default="blocked")
    parser.add_argument("--fpr", type=float, default=1e-3)
    parser.add_argument("--shards", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_keys(folder, int(asked.keys))
        os.sync()  # else the system writes them out while we measure
        clusters = {
            count: distributed.LocalCluster(
                n_workers=count, threads_per_worker=1, processes=True, host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            )
            for count in asked.workers
        }  # fmt: skip
        clients = {count: distributed.Client(cluster) for count, cluster in clusters.items()}
        best = dict.fromkeys(asked.workers, float("inf"))
        made = set()
        for turn in range(asked.rounds + 1):
            for count, client in clients.items():
                built = build_files(
                    folder / "*.parquet", column="url", output=folder / f"out-{count}", scheduler=client,
                    policy=asked.policy, fpr=asked.fpr, shards=asked.shards,
                )  # fmt: skip
                made.add(hash(built.filter.to_bytes()))
                if turn:  # the first warms up
                    best[count] = min(best[count], built.seconds)
                    rate = built.rows / built.seconds
                    print(
                        f"workers {count}: {built.seconds:6.2f} s, {rate / 1e6:5.2f} million keys/s",
                        flush=True,
                    )
        for count in asked.workers:
            clients[count].close()
            clusters[count].close()
    first, *others = asked.workers
    size = f"{built.filter.nbytes / 1e6:.0f} MB"
    print(f"{int(asked.keys):_} strings, {asked.policy}, {size}, cores {os.cpu_count()}")
    for count in others:
        print(f"{count} workers against {first}: {best[first] / best[count]:.2f} x")
    print("identical bytes" if len(made) == 1 else "THE BYTES DIFFER")


if __name__ == "__main__":
    main()
