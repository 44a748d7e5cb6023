"""The one-read table: pages of a file as buckets, skewed levels, a summary in memory (kirsch, 4.7.2, 4.8).

    capacity, load, page_bytes ──▶ pages of each level ──▶ keys that go on to each level, by page loads
    miss_reads                 ──▶ blocks of B0 for each page of level 1 ──▶ false positives, bytes in memory

A page of level 1 receives a binomial number X of keys and passes on Y = max(0, X - slots). Over all pages
the number M passed on has the mean pages*E[Y] exactly; its variance takes the fixed total into account,
pages*(Var Y - Cov(X, Y)**2/Var X), which is exact in the limit of many pages. Level 2 then receives M keys,
each at a page of its own choice, and so on; the law of M is taken as normal, as Poisson where it is small.
What passes all levels goes to the overflow pages; `overrun` bounds the probability that it does not fit, by
Markov's inequality.

A present key costs one read (the summary's list is exact), an absent one `miss_reads` = the rate of B0.

Invariants: a plan that is returned can be built; two plans are equal exactly when keys, seed and core are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple, SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins._show import ReprMixin
from evenbins.theory import fpr
from evenbins.theory.table_plan import KEY_DTYPES, VALUE_DTYPES

__all__ = ["PagedPlan", "PassedOn", "page_slots", "passed_on", "plan_of_paged_core", "plan_paged"]

LOAD, LEVELS, MISS_READS, PAGE_BYTES, OVERFLOW_PAGES = 0.9, 3, 0.001, 4096, 1
"""Keys per slot of level 1, levels, reads of an absent key, when nothing else is asked for."""
FILL = 0.6
"""Keys per slot of level 2, at most."""
PAGE_SIZES = (4096, 8192, 16384, 32768, 65536)
MAX_LEVELS, MAX_OVERFLOW_PAGES, MAX_PAGES = 8, 8, 2**36
_HEAD, _PAGE_HEAD, _BLOCK_BITS = 6, 16, 512
_IN_ONE_LINE = (
    "keys", "levels", "slots", "pages", "load", "overflow", "reads", "miss_reads", "summary_bytes", "nbytes"
)  # fmt: skip

Vector = npt.NDArray[np.float64]


class PassedOn(NamedTuple):
    """Keys that a level passes on: mean and variance of their number."""

    mean: float
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PagedPlan(ReprMixin):
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

    _in_one_line = _IN_ONE_LINE

    keys: int
    levels: int = field(compare=False)
    slots: int = field(compare=False)
    pages: tuple[int, ...] = field(compare=False)
    load: float = field(compare=False)
    level_keys: tuple[float, ...] = field(compare=False)
    fills: tuple[float, ...] = field(compare=False)
    overflow: float = field(compare=False)
    overrun: float = field(compare=False)
    reads: float = field(compare=False)
    miss_reads: float = field(compare=False)
    bits_per_key: float = field(compare=False)
    hashes: int = field(compare=False)
    summary_bytes: int = field(compare=False)
    nbytes: int = field(compare=False)
    page_bytes: int = field(compare=False)
    overflow_pages: int = field(compare=False)
    key_dtype: str = field(compare=False)
    value_dtype: str = field(compare=False)
    seed: int
    core: tuple[int, ...]

    def _rows(self) -> list[tuple[str, object]]:
        return [(each.name, getattr(self, each.name)) for each in fields(self) if each.name != "seed"]


def page_slots(page_bytes: int, key_dtype: str = "int64") -> int:
    """Return the number of keys that a page holds.

    Examples
    --------
    >>> page_slots(4096), page_slots(4096, "digest")
    (255, 170)
    """
    return (page_bytes - _PAGE_HEAD) // (24 if key_dtype == "digest" else 16)


def passed_on(keys: float, pages: int, slots: int, variance: float = 0.0) -> PassedOn:
    """Predict how many keys a level passes on.

    Parameters
    ----------
    keys, variance
        Mean and variance of the number of keys that come to the level, each at a random page.
    pages, slots
        Pages of the level, and keys that each holds.

    Examples
    --------
    >>> passed_on(10_000_000, 43_574, 255)  # doctest: +ELLIPSIS
    PassedOn(mean=13718.51490..., variance=132092.5069...)
    """
    if keys <= 0.0:
        return PassedOn(0.0, 0.0)
    if variance <= 0.0:
        return _passed_on_exactly(keys, pages, slots)
    deviation = math.sqrt(variance)
    if deviation < 1e-6 * keys:
        return _passed_on_exactly(keys, pages, slots)
    if keys < 50.0:  # few: Poisson, widened by nothing; the law's shape does not matter far below the slots
        counts = np.arange(0.0, int(keys + 12 * math.sqrt(keys) + 30))
        weights = _poisson(counts, keys)
    else:
        counts = np.unique(np.rint(np.linspace(max(0.0, keys - 8 * deviation), keys + 8 * deviation, 65)))
        weights = np.exp(-(((counts - keys) / deviation) ** 2) / 2)
        weights /= weights.sum()
    found = [_passed_on_exactly(float(count), pages, slots) for count in counts]
    means = np.array([each.mean for each in found])
    mean = float(weights @ means)
    spread = float(weights @ (means - mean) ** 2)
    return PassedOn(mean, float(weights @ np.array([each.variance for each in found])) + spread)


def _passed_on_exactly(keys: float, pages: int, slots: int) -> PassedOn:
    """The same for a number of keys that is known."""
    if keys <= slots:
        return PassedOn(0.0, 0.0)
    if pages == 1:
        return PassedOn(max(0.0, keys - slots), 0.0)
    mean, load = keys / pages, keys / pages
    most = int(mean + 40 * math.sqrt(mean) + 60)
    counts = np.arange(0, max(most, slots + 60) + 1, dtype=np.float64)
    chances = _binomial(counts, round(keys), 1.0 / pages)
    over = np.maximum(0.0, counts - slots)
    passed = float(chances @ over)
    second = float(chances @ over**2)
    cross = float(chances @ (over * (counts - load)))
    own = max(second - passed**2, 0.0)
    variance = pages * max(own - cross**2 / max(load * (1.0 - 1.0 / pages), 1e-300), 0.0)
    return PassedOn(pages * passed, variance)


def _binomial(counts: Vector, trials: int, chance: float) -> Vector:
    """P(X = count) for counts 0, 1, ...: products of ratios, in logarithms. scipy takes long to import."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.log(np.maximum(trials - counts[:-1], 0.0) / counts[1:]) + math.log(chance / (1.0 - chance))
    return np.exp(trials * math.log1p(-chance) + np.concatenate([[0.0], np.cumsum(steps)]))


def _poisson(counts: Vector, mean: float) -> Vector:
    """The same for the limit of many trials."""
    steps = math.log(mean) - np.log(counts[1:])
    return np.exp(-mean + np.concatenate([[0.0], np.cumsum(steps)]))


def _levels(keys: int, pages: Sequence[int], slots: int) -> tuple[list[float], PassedOn]:
    """Expected keys of each level, and what passes all of them."""
    arriving = PassedOn(float(keys), 0.0)
    placed = []
    for count in pages:
        going = passed_on(arriving.mean, count, slots, arriving.variance)
        placed.append(arriving.mean - going.mean)
        arriving = going
    return placed, arriving


def plan_paged(
    capacity: SupportsIndex | SupportsFloat,
    *,
    load: float | None = None,
    levels: int | None = None,
    miss_reads: float | None = None,
    bits_per_key: float | None = None,
    page_bytes: int = PAGE_BYTES,
    overflow_pages: int = OVERFLOW_PAGES,
    key_dtype: str = "int64",
    value_dtype: str = "int64",
    seed: int = 0,
) -> PagedPlan:
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
    for name, value, known in (
        ("key_dtype", key_dtype, KEY_DTYPES), ("value_dtype", value_dtype, VALUE_DTYPES)
    ):  # fmt: skip
        if value not in known:
            rule = f"one of {', '.join(known)}"
            raise arguments.error(name, rule, value, f"Pass {known[0]!r}")
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
    core = (
        KEY_DTYPES.index(key_dtype) + 1, VALUE_DTYPES.index(value_dtype) + 1, size, spare, blocks, hashes,
        *pages,
    )  # fmt: skip
    return plan_of_paged_core(core, keys=keys, seed=number)


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
    key_dtype = KEY_DTYPES[key_type - 1]
    slots = page_slots(page_bytes, key_dtype)
    placed, beyond = _levels(keys, pages, slots)
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
        value_dtype=VALUE_DTYPES[value_type - 1],
        seed=seed,
        core=tuple(core),
    )
