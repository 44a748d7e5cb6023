"""Bulk work on blocks, in the order of the memory: see cpp/cuda/partition.cuh for the idea.

keys ──scatter──▶ coarse buckets ──scatter──▶ regions of 64 KiB ──▶ one region at a time, in shared memory
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import cupy
import numpy as np

from evenbins.cuda._kernels import compiled

__all__ = ["REGION_BYTES", "Blocks", "Regions", "add", "add_new", "pays", "scatter", "scratch_bytes"]

REGION_BYTES = 1 << 16
_TILE, _THREADS = 8192, 512  # keys of a tile; threads of a block
_ONE_PASS = 512  # regions that one pass may have


class Blocks(NamedTuple):
    """A table of blocks in device memory."""

    words: Any  # the payload from the table's start, uint64
    blocks: int
    block_log: int
    hashes: int

    @property
    def template(self) -> str:
        """The template arguments that kernels of it have first."""
        return f"{self.block_log},{self.hashes}"


class Regions(NamedTuple):
    """Digests by region: region r has those from starts[r] to the lesser of cursors[r] and ends[r]."""

    number: int
    starts: Any
    cursors: Any
    ends: Any
    digests: Any
    numbers: Any


def scratch_bytes(n: int, *, numbered: bool) -> int:
    """Return the device memory that `scatter` needs for n keys, about."""
    return int(2.3 * n * (12 if numbered else 8)) + (1 << 20)


def _even_ends(n: int, blocks: int, per_bucket: int, buckets: int) -> tuple[Any, Any, int]:
    """Return starts, ends and total of buckets that a uniform hash will hardly ever fill."""
    mean = n * min(per_bucket / blocks, 1.0)
    size = -(-int(mean + 6 * math.sqrt(mean) + 32) // 16) * 16
    starts = cupy.arange(buckets, dtype=np.uint32) * np.uint32(size)
    return starts, starts + np.uint32(size), size * buckets


def _exact_ends(counts: Any, n: int) -> tuple[Any, Any, int]:
    ends = cupy.cumsum(counts, dtype=np.uint32)
    return ends - counts, ends, n


def scatter(table: Blocks, keys: Any, key_hash: Any, *, exact: bool) -> Regions:
    """Bring the digests of the keys into regions; `exact`: with their numbers, and all of them.

    Otherwise keys that find their region full, since some key comes very often, are added at once.
    """
    n = keys.n
    region_log = 19 - table.block_log  # blocks of a region
    regions = -(-table.blocks // (1 << region_log))
    fine_log = 0 if regions <= _ONE_PASS else (regions.bit_length() + 1) // 2
    shift = region_log + fine_log
    buckets = -(-table.blocks // (1 << shift))
    blocks, tiles = np.uint64(table.blocks), -(-n // _TILE)
    source = (keys.data, keys.more, key_hash, np.uint64(n), np.uint32(shift), np.uint32(buckets))
    numbered = f"{table.template},{'true' if exact else 'false'}"
    counts = cupy.zeros(buckets if exact else 0, np.uint32)
    if exact:
        _launch(f"count_keys<{keys.type}>", (tiles,), (blocks, *source, counts), 4 * buckets)
        starts, ends, total = _exact_ends(counts, n)
    else:
        starts, ends, total = _even_ends(n, table.blocks, 1 << shift, buckets)
    coarse = _buckets(buckets, starts, ends, total, exact)
    name, shared = f"scatter_keys<{numbered},{keys.type}>", _tile_bytes(buckets, exact)
    _launch(name, (tiles,), (table.words, blocks, *source, *coarse[2:]), shared)
    if fine_log == 0:
        return coarse
    most = int(counts.max()) if exact else total // buckets
    grid = (max(-(-most // _TILE), 1), buckets)
    sizes = (np.uint32(fine_log), np.uint32(region_log), np.uint32(regions))
    if exact:
        counts = cupy.zeros(regions, np.uint32)
        _launch("count_buckets", grid, (blocks, starts, ends, coarse.digests, *sizes, counts), 4 << fine_log)
        starts, ends, total = _exact_ends(counts, n)
    else:
        starts, ends, total = _even_ends(n, table.blocks, 1 << region_log, regions)
    fine = _buckets(regions, starts, ends, total, exact)
    name, shared = f"scatter_buckets<{numbered}>", _tile_bytes(1 << fine_log, exact)
    _launch(name, grid, (table.words, blocks, *coarse[1:], *sizes, *fine[2:]), shared)
    return fine


def _buckets(number: int, starts: Any, ends: Any, total: int, numbered: bool) -> Regions:
    numbers = cupy.empty(total if numbered else 0, np.uint32)
    return Regions(number, starts, starts.copy(), ends, cupy.empty(total, np.uint64), numbers)


def add(table: Blocks, keys: Any, key_hash: Any) -> None:
    """Add keys to a blocked filter."""
    found = scatter(table, keys, key_hash, exact=False)
    arguments = (table.words, np.uint64(table.blocks), *found[1:5])
    _launch(f"add_regions<{table.template}>", (found.number,), arguments, REGION_BYTES)


def add_new(table: Blocks, keys: Any, key_hash: Any, out: Any) -> None:
    """Add keys to a blocked filter; out[i] = 1 for each that was new when its turn came, 0 for the others."""
    if keys.n == 0:
        return
    found = scatter(table, keys, key_hash, exact=True)
    arguments = (table.words, np.uint64(table.blocks), found.starts, *found[3:], out)
    claims = 8 * (REGION_BYTES * 8 >> table.block_log)
    _launch(f"add_new_regions<{table.template}>", (found.number,), arguments, REGION_BYTES + claims)


def pays(table: Blocks, n: int) -> bool:
    """Return whether n keys are added faster by regions: each region is read and written whole."""
    regions = -(-table.blocks * (1 << table.block_log) // (8 * REGION_BYTES))
    return n >= 512 * regions and n >= 1 << 20


def _tile_bytes(buckets: int, numbered: bool) -> int:
    return _TILE * (12 if numbered else 8) + 8 * buckets


def _launch(name: str, grid: tuple[int, ...], arguments: tuple[Any, ...], shared: int) -> None:
    kernel = compiled("partition.cuh", name)
    if shared > 48 << 10:  # more than every kernel may have
        kernel.max_dynamic_shared_size_bytes = shared
    kernel(grid, (_THREADS,), arguments, shared_mem=shared)
