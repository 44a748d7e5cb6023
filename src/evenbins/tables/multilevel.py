"""Tables: where is this key's record? Keys of bounded buckets, one move at most, a small overflow list.

    key ──digest──▶ one bucket in each level ──scheme──▶ a slot, or a resident moves, or the list

Every look-up reads `levels` buckets at most, and the list if it is not empty; every insertion moves one
resident at most. That holds always, not on average (kirsch, chapter 5); `plan` predicts the averages,
`stats()` measures them.

Bulk calls, single calls and the twin in `reference` leave the same bytes. Threads: any number of look-ups,
or one writer; other callers block until it finishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins import _core
from evenbins._bulk import Key
from evenbins._core import TableFullError
from evenbins._files import StrPath, attributes_of
from evenbins._keywords import explain_keywords
from evenbins._show import ReprMixin
from evenbins.structure import Structure, kind_of_number
from evenbins.tables import multilevel_plan as planning
from evenbins.tables.exact_sets import SetMethods
from evenbins.tables.inference import FromKeys, inferred_items
from evenbins.tables.multilevel_plan import TableCore, TablePlan, plan_multilevel, plan_of_table_core
from evenbins.tables.page_files import is_paged
from evenbins.tables.paged import PagedTable, save_pages
from evenbins.tables.summaries import Summary
from evenbins.tables.summary_plan import KINDS, NUMBERS, SummaryPlan

__all__ = [
    "MultilevelTable", "TableFullError", "TablePlan", "TableStats", "plan_multilevel", "plan_of_table_core",
]  # fmt: skip

# Words of a table's state (cpp/include/evenbins/table_view.hpp).
_INSERTIONS, _MOVES, _INSERTION_READS, _LISTED, _PLACED = 0, 1, 2, 6, 16


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableStats(ReprMixin):
    """What a table measures on itself; each name means the same as in its plan.

    Attributes
    ----------
    keys : number of keys in the table
    scheme, levels, slots, fills, overflow, overflow_limit : as in the plan
    overflow_used : keys on the list
    moves : fraction of insertions that moved a resident
    reads : mean number of buckets that a look-up of a present key reads; exact, over the keys that are there
    miss_reads : the same for an absent key
    insertion_reads : mean number of buckets that an insertion read
    nbytes : bytes of the table, everything counted

    Of a table with a summary alone; `reads` and `miss_reads` are then counted, over all look-ups since the
    summary was attached (before the first: the plan's):

    summary : its kind
    summary_nbytes : bytes of the summary and of what lazy deletions keep; not part of `nbytes`
    summary_wrong : look-ups of present keys that it sent to a wrong level
    summary_false_positives : look-ups of absent keys that it sent to some level
    reserved : slots of deleted keys, until the next rebuild (lazy deletions)
    rebuilds, rebuild_moves : rebuilds done; keys that all of them moved
    """

    keys: int
    scheme: str
    levels: int
    slots: int
    fills: tuple[float, ...]
    overflow: float
    overflow_used: int
    overflow_limit: int
    moves: float
    reads: float
    miss_reads: float
    insertion_reads: float
    nbytes: int
    summary: str | None = None
    summary_nbytes: int | None = None
    summary_wrong: int | None = None
    summary_false_positives: int | None = None
    reserved: int | None = None
    rebuilds: int | None = None
    rebuild_moves: int | None = None

    def _rows(self) -> list[tuple[str, object]]:
        return [row for row in ReprMixin._rows(self) if row[1] is not None or self.summary is not None]


class GuideState(NamedTuple):
    """What a table's guide counts (cpp/include/evenbins/guided.hpp)."""

    hits: int
    hit_reads: int
    wrong: int
    misses: int
    miss_reads: int
    false_positives: int
    reserved: int
    due: int
    steps: int
    rebuilds: int
    rebuild_moves: int
    cursor: int
    nbytes: int
    rebuilding: int


class MultilevelTable(_core.Table, FromKeys, SetMethods, Structure[TablePlan]):
    """A mapping from keys to 64-bit numbers in a few flat arrays: a look-up reads `levels` buckets at most.

    It behaves as a dict does, as far as its keys and values go, and is a `MutableMapping`; `==` compares the
    items, also with a dict, and `same_bytes` compares everything. Nothing is allocated after construction: a
    table that has no room for a key says so (TableFullError), and stays as it was.

    Parameters
    ----------
    capacity
        Keys to plan for (n); or a mapping, whose items the table then has: its types are inferred, as
        `from_items` does, unless others than "int64" are passed.
    scheme
        How an insertion chooses among a key's buckets, one in each level. "standard": the leftmost with
        room (section 5.2). "conservative": if all are full, one resident that was never tried moves to the
        right (5.4). "second-chance": a resident makes room where the next level is full too (5.5).
        "extreme-second-chance": the key or a resident, whichever has room furthest to the left (5.6).
        "least-loaded": the bucket with fewest keys, and if all are full the resident whose other
        bucket has fewest makes room; the default, with 8 slots in 2 levels.
    levels, slots
        Sub-tables (d), and keys of a bucket: 1, 2, 4 or 8. Eight integers are a cache line.
    overflow
        Fraction of keys on the overflow list, at most: the least space that has it is planned. By default
        0.002; for "least-loaded" what a load of 0.95 gives, a few in 100_000.
    deletions
        Plan for endless deletions and insertions, under which the thesis' schemes overflow more.
        "least-loaded" has a list for both, whatever is said here. "lazy": for a summary that cannot forget
        (section 4.10.1); a deleted key holds its slot until a rebuild, which insertions and deletions do in
        small steps once a tenth of `capacity` are deleted; `plan.keys` counts these too.
    summary
        Keep a summary, and read the one bucket that it names (kirsch, chapter 4): "interpolation",
        "single-filter", "multiple-bloom", "counting-single-filter", "counting-multiple-bloom", or a
        SummaryPlan. Those without counters serve the schemes whose keys move to higher levels alone,
        "standard", "conservative" and "second-chance", and no deletions but lazy ones. It lies in memory of
        its own, and is no part of the table's bytes.
    key_dtype
        "int64", "uint64": stored exactly. "digest": str, bytes and int, of which the table stores 128
        bits: XXH3 with the seed, of an int its digest and the int itself; two of n keys are taken for one
        with a probability of n**2/2**129. Iterating over such a table gives the digests, as integers, which
        are not its keys.
    value_dtype
        "int64", "uint64" or "float64"; None for an exact set: keys alone, in 17 bytes per key for digests
        and half that for integers, with `add`, `add_new`, `discard` and `add_new_many`.
    seed
        0 … 2**64-1. With a secret random seed nobody can choose keys that collide.
    Examples
    --------
    >>> t = MultilevelTable(1_000_000)
    >>> t[5] = 7
    >>> t[5], t.get(6, -1), 5 in t, len(t)
    (7, -1, True, 1)
    >>> names = MultilevelTable(1_000, key_dtype="digest", value_dtype="float64")
    >>> names["pi"] = 3.14
    >>> names[b"pi"]
    3.14
    """

    __slots__ = ("_cached_plan",)
    _plan_class = TablePlan
    _types_at = 2
    _side_by_side = (
        "keys", "fills", "overflow", "overflow_limit", "moves", "reads", "miss_reads", "nbytes",
    )  # fmt: skip

    def _build(self, plan: TablePlan) -> None:
        super()._build(plan)
        if plan.summary is not None:
            self._attach(*planning.attachment(plan))

    def _plan_of_core(self) -> TablePlan:
        return plan_of_table_core(self._core, keys=self._capacity, seed=self._seed)

    def _shown(self) -> list[tuple[str, object]]:
        shape = TableCore.of(self._core)
        return [
            ("keys", len(self)), ("capacity", self._capacity), ("scheme", shape.scheme),
            ("levels", len(shape.buckets)), ("slots", shape.slots), ("key_dtype", self.key_dtype),
            ("value_dtype", self.value_dtype and str(self.value_dtype)), ("nbytes", self.nbytes),
        ]  # fmt: skip

    @explain_keywords
    def __init__(
        self, capacity: SupportsIndex | SupportsFloat | Mapping[Any, Any], *, scheme: str = "least-loaded",
        levels: int | None = None, slots: int | None = None, overflow: float | None = None,
        summary: str | SummaryPlan | None = None, deletions: bool | str = False, key_dtype: str = "int64",
        value_dtype: str | None = "int64", seed: int = 0,
    ) -> None:  # fmt: skip
        items = None
        if isinstance(capacity, Mapping):
            given = (None if each == "int64" else each for each in (key_dtype, value_dtype))
            items = inferred_items(capacity, key_dtype=next(given), value_dtype=next(given))
            capacity, key_dtype, value_dtype = max(1, len(items.keys)), items.key_dtype, items.value_dtype
        self._build(
            plan_multilevel(
                capacity, scheme=scheme, levels=levels, slots=slots, overflow=overflow, summary=summary,
                deletions=deletions, key_dtype=key_dtype, value_dtype=value_dtype, seed=seed,
            )
        )  # fmt: skip
        if items is not None:
            self.insert_many(items.keys, items.values)

    def probe(self, key: Key) -> tuple[int, int, bool]:
        """Return how a look-up of this key goes: its level, the buckets read, whether the list was asked.

        The level is counted from 1; it is 0 if the key is in none: on the list, or absent.
        """
        return self._probe(key)

    # --- the summary --------------------------------------------------------------------------------------

    def attach_summary(
        self,
        summary: str | SummaryPlan | None,
        *,
        deletions: bool | str = False,
        false_positives: float | None = None,
        failure: float | None = None,
    ) -> None:
        """Attach a summary, or another one, made by one scan of the keys; None removes it.

        The bytes of a table hold no summary: after `from_bytes` and `open` it has none until this is called.

        Parameters
        ----------
        summary, deletions, false_positives, failure
            Same as in `plan_multilevel`; for `deletions` only "lazy" has an effect.

        Examples
        --------
        >>> t = MultilevelTable(1000)
        >>> t.insert_many(range(1000), 0)
        >>> t.attach_summary("interpolation")
        >>> t.probe(5)[1], t.probe(-5)[1]            # buckets read
        (1, 0)
        """
        plan = plan_of_table_core(
            self._core, keys=self._capacity, seed=self._seed, deletions=self.plan.deletions
        )
        lazy = planning.is_lazy(deletions, summary)
        plan = planning.with_summary(
            plan, summary, lazy=lazy, false_positives=false_positives, failure=failure
        )
        self._attach(*planning.attachment(plan))
        self._cached_plan = plan

    def rebuild(self) -> None:
        """Rebuild the summary of a table with lazy deletions now, in one go: for a quiet hour.

        Slots of deleted keys become free; keys move to the leftmost of their buckets that has room; the
        new summary has none of the deleted keys. Without lazy deletions nothing happens.

        Examples
        --------
        >>> t = MultilevelTable(1000, scheme="standard", summary="multiple-bloom", deletions="lazy")
        >>> t.insert_many(range(1000), 0)
        >>> t.delete_many(range(50)), t.stats().reserved
        (50, 50)
        >>> t.rebuild()
        >>> t.stats().reserved, t.stats().rebuilds, len(t)
        (0, 1, 950)
        """
        self._rebuild()

    @property
    def summary(self) -> Summary | None:
        """A copy of the table's summary; None if it keeps none.

        It answers for the table's digests: of integer keys those of `evenbins.digest`.
        """
        try:
            data = self._summary_bytes()
        except ValueError:  # it has none
            return None
        kind = kind_of_number(int.from_bytes(data[12:16], "little"))  # in a file's header
        assert kind is not None
        found: Summary = kind.cls.from_bytes(data)
        plan = self.plan.summary
        if plan is not None and plan.core == tuple(found._core):
            found._cached_plan = plan
        return found

    @classmethod
    def load(cls, path: StrPath, *, summary: str | SummaryPlan | None = None) -> Self:
        """Read a file into memory, every byte checked, and make a summary if one is asked for."""
        table = super().load(path)
        if summary is not None:
            table.attach_summary(summary)
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        plan = self.plan
        if plan.summary is None:
            return super().__reduce__()
        return _restored, (type(self), self.to_bytes(), plan), attributes_of(self) or None

    def stats(self) -> TableStats:
        """Measure this very table, from the counts that it keeps: in constant time.

        Examples
        --------
        >>> t = MultilevelTable(1000)
        >>> t.insert_many(range(1000), 0)
        >>> t.stats().keys, t.stats().overflow, t.stats().miss_reads
        (1000, 0.0, 2.0)
        """
        state, guide, number, can_remove = self._measure()
        shape = TableCore.of(self._core)
        levels = len(shape.buckets)
        placed = state[_PLACED : _PLACED + levels]
        listed = state[_LISTED]
        keys = sum(placed) + listed
        insertions = max(1, state[_INSERTIONS])
        reads = (sum(level * count for level, count in enumerate(placed, 1)) + levels * listed) / max(1, keys)
        miss_reads = float(levels)
        more: dict[str, Any] = {}
        if kinds := [name for name in KINDS if NUMBERS[name] == number]:  # the one that counts is the last
            kind = kinds[-1 if can_remove else 0]
            reads, miss_reads, more = self._counted(kind, GuideState(*guide))
        return TableStats(
            keys=keys,
            scheme=shape.scheme,
            levels=levels,
            slots=shape.slots,
            fills=tuple(
                count / (buckets * shape.slots) for count, buckets in zip(placed, shape.buckets, strict=True)
            ),
            overflow=listed / max(1, keys),
            overflow_used=listed,
            overflow_limit=shape.overflow_limit,
            moves=state[_MOVES] / insertions,
            reads=reads,
            miss_reads=miss_reads,
            insertion_reads=state[_INSERTION_READS] / insertions,
            nbytes=self.nbytes,
            **more,
        )

    def _counted(self, kind: str, guide: GuideState) -> tuple[float, float, dict[str, Any]]:
        """Return what look-ups with the summary took, and its counts."""
        plan = self.plan
        reads = guide.hit_reads / guide.hits if guide.hits else 1.0 if plan.reads is None else plan.reads
        miss_reads = guide.miss_reads / guide.misses if guide.misses else plan.miss_reads or 0.0
        return reads, miss_reads, {
            "summary": kind, "summary_nbytes": guide.nbytes, "summary_wrong": guide.wrong,
            "summary_false_positives": guide.false_positives, "reserved": guide.reserved,
            "rebuilds": guide.rebuilds, "rebuild_moves": guide.rebuild_moves,
        }  # fmt: skip

    def grown(self, capacity: int) -> Self:
        """Make a new table for more keys, of the same design, with all the items of this one.

        They are those of one moment: changes of this table wait until the new one is made. Beside the new
        table the call takes 16 MiB, or 24 MiB for digests.

        Examples
        --------
        >>> t = MultilevelTable(1000)
        >>> t.insert_many(range(1000), 0)
        >>> larger = t.grown(5000)
        >>> larger.insert_many(range(5000), 1)
        >>> len(t), len(larger)
        (1000, 5000)
        """
        plan = planning.scaled_plan(self.plan, capacity)
        if plan.keys < len(self):
            raise arguments.unmet(
                "capacity", f" must be at least the number of keys, {len(self)}; got {capacity}"
            )
        table = self.from_plan(plan)
        table._store_all(self, are_new=True)
        return table

    def save(self, path: StrPath, *, layout: str = "memory", **options: Any) -> None:
        """Write a file, atomically and durably: after a crash the old or the new one is there.

        Parameters
        ----------
        layout
            "memory": the arrays as they lie in memory, to be loaded or mapped. "pages": a one-read table
            (`PagedTable`), whose pages stay in the file. Both hold the items of one moment: changes of this
            table wait until the file is written.
        **options
            Of layout "pages": `capacity`, `load`, `levels`, `miss_reads`, `bits_per_key`, `page_bytes`,
            `overflow_pages`, as for `PagedTable.create`.
        """
        if layout == "pages":
            self._require_values()
            return save_pages(self, path, **options)
        if layout != "memory":
            raise ValueError(f"layout must be 'memory' or 'pages'; got {layout!r}. Leave it out for 'memory'")
        if options:
            raise TypeError(f"{', '.join(options)}: options of layout='pages' alone")
        return super().save(path)

    @classmethod
    def open(  # type: ignore[override]
        cls, path: StrPath, *, verify: bool = False, preload: bool = False, summary: str | None = None
    ) -> Self | PagedTable:
        """Open a file without loading it: map it read-only, or, if it was saved in pages, as a `PagedTable`.

        Parameters
        ----------
        verify
            Read and check everything now; otherwise a mapped file's header, and a page when it is read.
        preload
            Read the file into memory now, so that no look-up waits for the disk while it stays there.
        summary
            What says which page or bucket to read. A file in pages has "multiple-bloom" in any case; for a
            mapped table it is made by one scan, as by `attach_summary`.
        """
        if is_paged(path):
            return PagedTable.open(path, summary=summary or "multiple-bloom", verify=verify, preload=preload)
        table = super().open(path, verify=verify, preload=preload)
        if summary is not None:
            try:
                table.attach_summary(summary)
            except ValueError as error:
                raise ValueError(
                    f"{error}. Or write the file with table.save(path, layout='pages')"
                ) from None
        return table

    def _check(self) -> None:
        super()._check()
        assert len(self) == sum(1 for _ in self)


def _restored(cls: type[MultilevelTable], data: bytes, plan: TablePlan) -> MultilevelTable:
    """Make a table from its pickle: its summary by a scan."""
    table = cls.from_bytes(data)
    table._attach(*planning.attachment(plan))
    table._cached_plan = plan
    return table
