"""The one-read table planned: pages of each level, blocks of its summary, and what to expect of them.

    capacity, load, page_bytes ──▶ pages of each level ──▶ keys that go on to each level (`theory.paged`)
    miss_reads                 ──▶ blocks of B0 for each page of level 1 ──▶ false positives, bytes in memory

What passes all levels goes to the overflow pages; `overrun` bounds the probability that it does not fit, by
Markov's inequality. A present key costs one read (the summary's list is exact), an absent one `miss_reads` =
the rate of B0.

Invariants: a plan that is returned can be built; two plans are equal exactly when keys, seed and core are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins._show import ReprMixin
from evenbins.structure import Plan
from evenbins.tables._keys import checked_dtypes, dtype_names
from evenbins.theory import fpr
from evenbins.theory.paged import level_loads, passed_on

__all__ = ["PagedPlan", "page_slots", "plan_of_paged_core", "plan_paged"]

LOAD, LEVELS, MISS_READS, PAGE_BYTES, OVERFLOW_PAGES = 0.9, 3, 0.001, 4096, 1
"""Keys per slot of level 1, levels, reads of an absent key, when nothing else is asked for."""
FILL = 0.6
"""Keys per slot of level 2, at most."""
PAGE_SIZES = (4096, 8192, 16384, 32768, 65536)
MAX_LEVELS, MAX_OVERFLOW_PAGES, MAX_PAGES = 8, 8, 2**36
_PAGE_HEAD, _BLOCK_BITS = 16, 512


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class PagedPlan(Plan):
    """A one-read table's design, and what it predicts.

    Equality and hash look at keys, seed and core alone.

    Attributes
    ----------
    keys : number of keys planned for (n)
    levels : sub-tables (d)
    slots : keys that a page holds
    pages : pages of each level
    load : keys per slot of level 1
    level_keys : expected keys in each level, and in the overflow pages
    fills : the same as a fraction of the level's slots; overflow pages not included
    overflow : fraction of keys in the overflow pages
    overrun : bound of the probability that `keys` keys do not fit
    reads, miss_reads : pages read by a look-up of a present and of an absent key
    bits_per_key, hashes : of the filter B0
    summary_bytes : bytes in memory
    nbytes : bytes of the file
    page_bytes, overflow_pages, key_dtype, value_dtype : the design
    seed : seed of the digests
    core : the integers stored and compared by: key type, value type, page_bytes, overflow pages, blocks of
        B0 for each page of level 1, its hashes, pages of each level
    """

    _in_one_line = (
        "keys", "levels", "slots", "pages", "load", "overflow", "reads", "miss_reads", "summary_bytes",
        "nbytes",
    )  # fmt: skip

    keys: int
    levels: int
    slots: int
    pages: tuple[int, ...]
    load: float
    level_keys: tuple[float, ...]
    fills: tuple[float, ...]
    overflow: float
    overrun: float
    reads: float
    miss_reads: float
    bits_per_key: float
    hashes: int
    summary_bytes: int
    nbytes: int
    page_bytes: int
    overflow_pages: int
    key_dtype: str
    value_dtype: str
    seed: int
    core: tuple[int, ...]

    def _rows(self) -> list[tuple[str, object]]:
        return [row for row in ReprMixin._rows(self) if row[0] != "seed"]


def page_slots(page_bytes: int, key_dtype: str = "int64") -> int:
    """Return the number of keys that a page holds.

    Examples
    --------
    >>> page_slots(4096), page_slots(4096, "digest")
    (255, 170)
    """
    return (page_bytes - _PAGE_HEAD) // (24 if key_dtype == "digest" else 16)


def plan_paged(
    capacity: SupportsIndex | SupportsFloat, *, load: float | None = None, levels: int | None = None,
    miss_reads: float | None = None, bits_per_key: float | None = None, page_bytes: int = PAGE_BYTES,
    overflow_pages: int = OVERFLOW_PAGES, key_dtype: str = "int64", value_dtype: str = "int64",
    seed: int = 0,
) -> PagedPlan:  # fmt: skip
    """Plan a one-read table.

    Parameters
    ----------
    capacity
        Keys to plan for (n).
    load
        Keys per slot of level 1, 0.1 ... 0.98; 0.9 by default, of which one key in a thousand goes on.
    levels
        Sub-tables (d), 1 ... 8; 3 by default: the second takes what the first passes on, and the last, of the
        same size, next to nothing.
    miss_reads
        Pages that a look-up of an absent key reads, at most; 0.001 by default.
    bits_per_key
        Bits of the filter B0 instead.
    page_bytes
        Bytes of a page: 4096, the default, or 8192 ... 65536. The unit of reading and of the journal.
    overflow_pages
        Pages for keys that find no room in any level, 0 ... 8.
    key_dtype, value_dtype, seed
        As for a MultilevelTable.

    Examples
    --------
    >>> plan = plan_paged(10_000_000)
    >>> plan.slots, plan.pages, plan.reads, plan.summary_bytes < 4 * plan.keys
    (255, (43573, 104, 104), 1.0, True)
    """
    keys = arguments.capacity(capacity)
    share = _fraction("load", LOAD if load is None else load, 0.1, 0.98)
    count = arguments.integer(
        "levels", LEVELS if levels is None else levels, 1, MAX_LEVELS, "Leave it out for three"
    )
    size = arguments.integer("page_bytes", page_bytes, 1, None, "Pass 4096, the usual page of a disk")
    if size not in PAGE_SIZES:
        raise arguments.error("page_bytes", "4096, 8192, 16384, 32768 or 65536", page_bytes, "Pass 4096")
    spare = arguments.integer("overflow_pages", overflow_pages, 0, MAX_OVERFLOW_PAGES, "Leave it out for one")
    types = checked_dtypes(key_dtype, value_dtype)
    number = arguments.seed(seed)
    slots = page_slots(size, key_dtype)
    pages = [max(1, math.ceil(keys / (share * slots)))]
    if pages[0] > MAX_PAGES:
        raise arguments.error("capacity", "at most 2**36 pages", capacity, "Use larger pages")
    if count > 1:
        going = passed_on(float(keys), pages[0], slots)
        most = going.mean + 6 * math.sqrt(going.variance)
        pages.append(max(1, math.ceil(most / (FILL * slots))))
        for _ in range(count - 3):
            pages.append(max(1, pages[-1] // 2))
        if count > 2:
            pages.append(pages[-1])  # the last as large as the one before (4.8)
    blocks, hashes = _filter(keys, pages[0], miss_reads, bits_per_key)
    return plan_of_paged_core((*types, size, spare, blocks, hashes, *pages), keys=keys, seed=number)


def _fraction(name: str, value: object, least: float, most: float) -> float:
    return arguments.real(name, value, "", "Leave it out", least=least, most=most)


def _filter(keys: int, pages: int, miss_reads: object, bits_per_key: object) -> tuple[int, int]:
    """Blocks of B0 for each page of level 1, and its hashes."""
    if miss_reads is not None and bits_per_key is not None:
        raise arguments.unmet(
            "miss_reads",
            " and bits_per_key exclude each other; got "
            f"{arguments.shown(miss_reads)} and {arguments.shown(bits_per_key)}. Pass one",
        )
    if bits_per_key is not None:
        bits = _fraction("bits_per_key", bits_per_key, 1.0, 64.0)
        blocks = max(1, math.ceil(bits * keys / (pages * _BLOCK_BITS)))
    else:
        goal = _fraction("miss_reads", MISS_READS if miss_reads is None else miss_reads, 1e-6, 0.5)
        blocks = max(1, math.ceil(fpr.blocked_blocks(keys, goal, _BLOCK_BITS) / pages))
    if blocks > 4096:
        raise ValueError("a page of level 1 has at most 4096 blocks of B0: ask for fewer bits_per_key")
    return blocks, fpr.best_hashes_blocked(blocks * pages, _BLOCK_BITS, keys)


def plan_of_paged_core(core: Sequence[int], *, keys: int, seed: int = 0) -> PagedPlan:
    """Predict the behaviour of a table from its integers."""
    key_type, value_type, page_bytes, spare, blocks, hashes, *pages = core
    key_dtype, value_dtype = dtype_names(key_type, value_type)
    slots = page_slots(page_bytes, key_dtype)
    placed, beyond = level_loads(keys, pages, slots)
    room = spare * slots
    total = sum(pages) + spare
    listed = (total - pages[0]) * slots // 2
    return PagedPlan(
        keys=keys,
        levels=len(pages),
        slots=slots,
        pages=tuple(pages),
        load=keys / (pages[0] * slots),
        level_keys=(*placed, min(beyond.mean, float(room))),
        fills=tuple(each / (count * slots) for each, count in zip(placed, pages, strict=True)),
        overflow=min(beyond.mean, float(room)) / keys,
        overrun=min(1.0, beyond.mean / (room + 1)),
        reads=1.0,
        miss_reads=fpr.blocked(blocks * pages[0], _BLOCK_BITS, hashes, keys),
        bits_per_key=blocks * pages[0] * _BLOCK_BITS / keys,
        hashes=hashes,
        summary_bytes=64 * blocks * pages[0] + 9 * max(64, listed * 3 // 2) + 2 * total,
        nbytes=(2 + total) * page_bytes,
        page_bytes=page_bytes,
        overflow_pages=spare,
        key_dtype=key_dtype,
        value_dtype=value_dtype,
        seed=seed,
        core=tuple(core),
    )
