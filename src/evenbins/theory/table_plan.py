"""From what a user asks of a multilevel table to the integers that it is built from (kirsch, chapter 5).

    capacity, scheme, levels, slots, space, shares ──▶ buckets of each level, overflow limit ──▶ bytes

The integer core is what a table stores and is compared by; predictions stand beside it. A level's number of
buckets is its share of the slots, rounded up: capacity * space * share / slots.

Invariants: a plan that is returned can be built; two plans are equal exactly when capacity, seed and core
are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from evenbins.theory import _arguments as arguments
from evenbins.theory import _show

__all__ = [
    "KEY_DTYPES", "SCHEMES", "VALUE_DTYPES", "TablePlan", "plan_of_table_core", "plan_table",
    "scaled_plan", "table_bytes",
]  # fmt: skip

SCHEMES = ("standard", "conservative", "second-chance", "extreme-second-chance", "least-loaded")
"""The schemes in the order of their numbers in a core, from 1."""
KEY_DTYPES = ("int64", "uint64", "digest")
VALUE_DTYPES = ("int64", "uint64", "float64")
SLOTS = (1, 2, 4, 8)
MAX_LEVELS = 8
MAX_LIMIT = 2**30
MAX_BUCKETS = 2**32
OCCUPANCY_BITS, NEXT_HASHES = 1, 2  # flags
_HEAD = 6  # numbers of a core before the buckets
_STATE_WORDS = 24
_DEFAULT_SPACE = {  # equal shares, four levels, one slot: Table 5.2's naive column; least-loaded: load 0.95
    "standard": 2.0, "conservative": 1.46, "second-chance": 1.41, "extreme-second-chance": 1.2,
    "least-loaded": 1 / 0.95,
}  # fmt: skip
_DEFAULT_OVERFLOW = {"least-loaded": 5e-5}
_OVERFLOW = 0.002
_IN_ONE_LINE = ("keys", "scheme", "levels", "slots", "space", "overflow_limit", "nbytes")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TablePlan:
    """A multilevel table's design, and what it predicts; a prediction that is not known is None.

    Equality and hash look at keys, seed and core alone.

    Attributes
    ----------
    keys : number of keys planned for (n)
    scheme : "standard", "conservative", "second-chance", "extreme-second-chance" or "least-loaded"
    levels : sub-tables (d)
    slots : keys that a bucket holds
    space : slots per key (c)
    shares : sizes of the levels, as fractions of all slots (the thesis' α_i, over their sum)
    fills : fraction of occupied slots, for each level, with `keys` keys in
    overflow : fraction of keys on the overflow list (w)
    overflow_limit : most keys that the list holds
    moves : fraction of insertions that move a key (m)
    reads, miss_reads : buckets read by a look-up of a present and of an absent key
    nbytes : bytes of the table, everything counted
    key_dtype, value_dtype : what is stored
    occupancy_bits, next_hashes : the helpers in fast memory
    seed : seed of the digests
    core : the integers stored and compared by: scheme, slots, key type, value type, flags, overflow limit,
        and the buckets of each level
    """

    keys: int
    scheme: str = field(compare=False)
    levels: int = field(compare=False)
    slots: int = field(compare=False)
    space: float = field(compare=False)
    shares: tuple[float, ...] = field(compare=False)
    fills: tuple[float, ...] | None = field(compare=False, default=None)
    overflow: float | None = field(compare=False, default=None)
    overflow_limit: int = field(compare=False)
    moves: float | None = field(compare=False, default=None)
    reads: float | None = field(compare=False, default=None)
    miss_reads: float | None = field(compare=False, default=None)
    nbytes: int = field(compare=False)
    key_dtype: str = field(compare=False)
    value_dtype: str = field(compare=False)
    occupancy_bits: bool = field(compare=False)
    next_hashes: bool = field(compare=False)
    seed: int
    core: tuple[int, ...]

    @property
    def buckets(self) -> tuple[int, ...]:
        """The number of buckets of each level."""
        return self.core[_HEAD:]

    def to_dict(self) -> dict[str, object]:
        """Give every field by name, as plain values that JSON can hold."""
        values = dict(self._rows())
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    def __repr__(self) -> str:
        return _show.line("TablePlan", [(name, getattr(self, name)) for name in _IN_ONE_LINE])

    def __str__(self) -> str:
        return _show.table("TablePlan", self._rows())

    def _repr_html_(self) -> str:
        return _show.html_table("TablePlan", self._rows())

    def _rows(self) -> list[tuple[str, object]]:
        return [(each.name, getattr(self, each.name)) for each in fields(self)]


def plan_table(
    capacity: int,
    *,
    scheme: str = "least-loaded",
    levels: int | None = None,
    slots: int | None = None,
    space: float | None = None,
    shares: Sequence[float] | None = None,
    overflow: float | None = None,
    overflow_limit: int | None = None,
    key_dtype: str = "int64",
    value_dtype: str = "int64",
    seed: int = 0,
    occupancy_bits: bool = True,
    next_hashes: bool = False,
) -> TablePlan:
    """Plan a table; the arguments are those of `MultilevelTable`.

    Examples
    --------
    >>> plan_table(10_000_000).buckets
    (657895, 657895)
    >>> plan_table(10_000, scheme="second-chance", shares=[0.47, 0.46, 0.25, 0.11]).buckets
    (5138, 5028, 2733, 1203)
    """
    keys = arguments.capacity(capacity)
    _one_of("scheme", scheme, SCHEMES)
    _one_of("key_dtype", key_dtype, KEY_DTYPES)
    _one_of("value_dtype", value_dtype, VALUE_DTYPES)
    seed = arguments.seed(seed)
    modern = scheme == "least-loaded"
    slots = 8 if slots is None and modern else 1 if slots is None else slots
    way_out = "Pass 8, a cache line of keys"
    if arguments.integer("slots", slots, 1, 8, way_out, rule="1, 2, 4 or 8") not in SLOTS:
        raise ValueError(arguments.problem("slots", "1, 2, 4 or 8", slots, way_out))
    if shares is not None and (isinstance(shares, str) or not hasattr(shares, "__len__")):
        raise TypeError(
            arguments.problem("shares", "a sequence of numbers", shares, "Pass one for each level")
        )
    if levels is None:
        levels = len(shares) if shares is not None else 2 if modern else 4
    least = 2 if modern else 1
    levels = arguments.integer("levels", levels, least, MAX_LEVELS, "Pass 2 to 5")
    total = _positive(
        "space", _DEFAULT_SPACE[scheme] if space is None else space, 1000, "Pass slots per key, such as 1.05"
    )
    parts = _shares(shares, levels)
    buckets = tuple(math.ceil(keys * total * part / slots - 1e-9) for part in parts)
    if max(buckets) > MAX_BUCKETS:
        raise ValueError(
            f"a level must have at most 2**32 buckets; this one has {max(buckets)}. Use more slots or levels"
        )
    limit = _limit(keys, scheme, overflow, overflow_limit)
    flags = OCCUPANCY_BITS * _flag("occupancy_bits", occupancy_bits) + NEXT_HASHES * _flag(
        "next_hashes", next_hashes
    )
    core = (
        SCHEMES.index(scheme) + 1, slots, KEY_DTYPES.index(key_dtype) + 1,
        VALUE_DTYPES.index(value_dtype) + 1, flags, limit, *buckets,
    )  # fmt: skip
    return plan_of_table_core(core, keys=keys, seed=seed)


def plan_of_table_core(core: Sequence[int], *, keys: int, seed: int = 0) -> TablePlan:
    """Give the plan of an integer core that is known to be right: a table's own, or a file's."""
    scheme, slots, key_type, value_type, flags, limit, *buckets = core
    total = sum(buckets)
    return TablePlan(
        keys=keys,
        scheme=SCHEMES[scheme - 1],
        levels=len(buckets),
        slots=slots,
        space=total * slots / keys,
        shares=tuple(each / total for each in buckets),
        overflow_limit=limit,
        nbytes=table_bytes(core),
        key_dtype=KEY_DTYPES[key_type - 1],
        value_dtype=VALUE_DTYPES[value_type - 1],
        occupancy_bits=bool(flags & OCCUPANCY_BITS),
        next_hashes=bool(flags & NEXT_HASHES),
        seed=seed,
        core=tuple(core),
    )


def scaled_plan(plan: TablePlan, capacity: int) -> TablePlan:
    """Plan the same table for another number of keys: buckets and limit in proportion."""
    keys = arguments.capacity(capacity)
    buckets = (math.ceil(each * keys / plan.keys) for each in plan.buckets)
    limit = min(MAX_LIMIT, max(plan.overflow_limit, math.ceil(plan.overflow_limit * keys / plan.keys)))
    return plan_of_table_core((*plan.core[: _HEAD - 1], limit, *buckets), keys=keys, seed=plan.seed)


def table_bytes(core: Sequence[int]) -> int:
    """Count the bytes of a table: every part in whole lines.

    Examples
    --------
    >>> round(table_bytes((5, 8, 1, 1, 1, 64, 657895, 657895)) / 10_000_000, 2)
    16.97
    """
    scheme, slots, key_type, _, flags, limit, *buckets = core
    total = sum(buckets) * slots
    words = 2 if KEY_DTYPES[key_type - 1] == "digest" else 1
    name = SCHEMES[scheme - 1]
    next_words = 0
    if flags & NEXT_HASHES and name != "standard":
        next_words = 1 if name == "second-chance" else len(buckets) - 1
    bits = -(-total // 8)
    index = 1 << (2 * limit - 1).bit_length() if limit else 0
    parts = (
        8 * _STATE_WORDS, bits, bits if name == "conservative" else 0, 8 * total * (words + 1),
        4 * total * next_words, 8 * limit * words, 8 * limit, 16 * limit, 4 * index,
    )  # fmt: skip
    return sum(-(-part // 64) * 64 for part in parts)


# --- arguments -----------------------------------------------------------------------------------------


def _one_of(name: str, value: object, known: Sequence[str]) -> None:
    if not isinstance(value, str):
        raise TypeError(arguments.problem(name, "a str", value, f"Pass one of {', '.join(map(repr, known))}"))
    if value not in known:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}. Pass {known[-1]!r}"
        )


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(arguments.problem(name, "True or False", value, "Pass a bool"))
    return value


def _positive(name: str, value: object, most: float, way_out: str) -> float:
    rule = f"a number above 0 and at most {most}"
    number = arguments.real(name, value, rule, way_out)
    if not 0 < number <= most:
        raise ValueError(arguments.problem(name, rule, value, way_out))
    return number


def _shares(shares: Sequence[float] | None, levels: int) -> list[float]:
    if shares is None:
        return [1 / levels] * levels
    if isinstance(shares, str) or not hasattr(shares, "__len__"):
        raise TypeError(
            arguments.problem("shares", "a sequence of numbers", shares, "Pass one for each level")
        )
    if len(shares) != levels:
        raise ValueError(f"shares must have one number for each of {levels} levels; got {len(shares)}")
    parts = [
        _positive(f"shares[{i}]", each, math.inf, "Pass relative sizes") for i, each in enumerate(shares)
    ]
    total = math.fsum(parts)
    if not math.isfinite(total):
        raise ValueError(arguments.problem("shares", "finite numbers", shares, "Pass relative sizes"))
    return [each / total for each in parts]


def _limit(keys: int, scheme: str, overflow: object, overflow_limit: object) -> int:
    way_out = "Leave it out for one that fits the overflow"
    if overflow_limit is not None:
        return arguments.integer("overflow_limit", overflow_limit, 0, MAX_LIMIT, way_out)
    rate = _DEFAULT_OVERFLOW.get(scheme, _OVERFLOW)
    if overflow is not None:
        rule = "a number from 0 to 1"
        rate = arguments.real("overflow", overflow, rule, "Pass a fraction such as 0.002")
        if not 0 <= rate <= 1:
            raise ValueError(arguments.problem("overflow", rule, overflow, "Pass a fraction such as 0.002"))
    mean = keys * rate
    return min(
        MAX_LIMIT, math.ceil(mean + 6 * math.sqrt(1.4 * mean) + 16)
    )  # the list is over-dispersed, up to 1.4
