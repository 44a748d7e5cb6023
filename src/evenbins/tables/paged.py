"""The one-read table: a mapping in a file, of which a few bytes a key lie in memory (kirsch, chapter 4).

    key ──digest──▶ summary in memory ──▶ absent: nothing is read
                                     └──▶ the one page that has it: one read of 4096 bytes

Three files: `path` holds the pages, `path.summary` the summary (made anew by one scan if it is missing or
of another time), `path.journal` what a crash would otherwise lose. cpp/include/evenbins/paged.hpp and
page_store.hpp say how they look and why no acknowledged change is lost; docs/one_read.md how to use them.

One process writes, or any number read: the file is locked (flock). In the process any number of threads
look up, one changes. A child process made by `fork` cannot use a table that its parent opened for writing.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsFloat, SupportsIndex

import numpy as np

from evenbins import _arguments as arguments
from evenbins import _core, _mapped_files, _platform, _show
from evenbins._bulk import Key
from evenbins._core import Descriptor, FormatError
from evenbins._files import StrPath
from evenbins._show import ReprMixin
from evenbins.tables import page_files
from evenbins.tables._keys import Words
from evenbins.tables.paged_bulk import PagedBulk, reads_of
from evenbins.tables.paged_plan import PagedPlan, plan_of_paged_core, plan_paged

if TYPE_CHECKING:
    from evenbins.tables import MultilevelTable

__all__ = [
    "PagedPlan", "PagedStats", "PagedTable", "plan_of_paged_core", "plan_paged", "save_pages",
]  # fmt: skip

_SAVED_AT_ONCE = 1 << 22  # items that `save_pages` sorts by page and writes at a time: 64 MiB
_SUMMARIES = ("multiple-bloom",)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PagedStats(ReprMixin):
    """What a one-read table measures on itself; each name means the same as in its plan.

    Attributes
    ----------
    keys : number of keys in the table
    levels, slots, fills, overflow : as in the plan
    level_keys : keys in each level, and in the overflow pages
    lookups, misses : look-ups since the table was opened: of keys that were there, and of others
    reads : pages that a look-up of a present key asked for, on average; 0 before the first
    miss_reads : the same for absent keys
    wrong : pages that look-ups of present keys asked for in vain
    fetched : pages that look-ups fetched from the file. Fewer than they asked for in bulk calls, where keys
        share a page; some are read only because they lie between two others
    summary_bytes : bytes in memory
    journal_bytes : bytes in the journal that a checkpoint has not yet taken over
    nbytes : bytes of the file
    """

    keys: int
    levels: int
    slots: int
    level_keys: tuple[int, ...]
    fills: tuple[float, ...]
    overflow: float
    lookups: int
    misses: int
    reads: float
    miss_reads: float
    wrong: int
    fetched: int
    summary_bytes: int
    journal_bytes: int
    nbytes: int


def _refusal(what: str) -> Callable[..., NoReturn]:
    """Return the method of a structure in memory that a table in its file does not have."""

    def refuse(*_: object) -> NoReturn:
        """Refuse: the table is its file."""
        raise TypeError(f"a PagedTable lives in its file and {what}: close it and copy the file")

    return refuse


class PagedTable(_core.Pages, PagedBulk):
    """A mapping from keys to 64-bit numbers in a file: one page read for a present key, none for others.

    Made by `PagedTable.create`, or from a table in memory by `MultilevelTable.save(path, layout="pages")`;
    opened by `PagedTable.open` or `MultilevelTable.open`. Used as a context manager it closes itself. A
    table that is not closed loses nothing: whoever opens it next takes over what the journal has.

    Every change is on disk when the call returns (`durable=False`: in the hands of the system, which
    survives the end of the process, not of the machine). A single change costs one sync of the disk; bulk
    calls sync once for a group of some thousand pages.

    Only the process that opened a table for writing can use it: in a child made by `fork` every call raises
    RuntimeError, which names the owner, and `close`, `with` and garbage collection write nothing. A table
    opened for reading can be read in the child too.

    Examples
    --------
    >>> import tempfile, os
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "users")
    >>> with PagedTable.create(path, 10_000) as t:
    ...     t.insert_many(range(10_000), range(10_000))
    ...     t[5] = 50
    >>> with PagedTable.open(path) as t:
    ...     t[5], t.get(-1), t.get_many([1, 2, -1], default=0).tolist()
    (50, None, [1, 2, 0])
    >>> folder.cleanup()
    """

    __slots__ = ("_path", "_plan")
    _path: str
    _plan: PagedPlan | None
    _types_at = 0

    def __init__(self) -> None:
        raise TypeError(
            "make one with PagedTable.create(path, capacity), or open one with PagedTable.open(path)"
        )

    # --- making and opening -----------------------------------------------------------------------------

    @classmethod
    def create(
        cls, path: StrPath, capacity: SupportsIndex | SupportsFloat, *, load: float | None = None,
        levels: int | None = None, miss_reads: float | None = None, bits_per_key: float | None = None,
        page_bytes: int = 4096, overflow_pages: int = 1, key_dtype: str = "int64",
        value_dtype: str = "int64", seed: int = 0, durable: bool = True,
    ) -> Self:  # fmt: skip
        """Make a new, empty table in a file and open it for writing. All its pages are written at once.

        Parameters
        ----------
        path
            Where; it must not exist.
        capacity, load, levels, miss_reads, bits_per_key, page_bytes, overflow_pages, key_dtype, value_dtype
            And `seed`: as for `plan_paged`.
        durable
            False: changes are not forced to the disk. After a crash of the machine the table is as it was
            at some moment before; nothing is ever half done.

        Raises
        ------
        FileExistsError
            There is something at `path`.
        """
        plan = plan_paged(
            capacity, load=load, levels=levels, miss_reads=miss_reads, bits_per_key=bits_per_key,
            page_bytes=page_bytes, overflow_pages=overflow_pages, key_dtype=key_dtype,
            value_dtype=value_dtype, seed=seed,
        )  # fmt: skip
        target = os.path.realpath(path)
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "it exists: open it, or choose another path", target)
        journal = target + ".journal"
        if os.path.exists(journal) and os.path.getsize(journal):
            raise FileExistsError(
                errno.EEXIST, "the journal of a table that was not closed: move it to its table", journal
            )
        with page_files.new_file(target, plan) as temporary:
            os.link(temporary, target)  # fails if somebody was faster
        return cls.open(target, writable=True, durable=durable)

    @classmethod
    def open(
        cls, path: StrPath, *, summary: str = "multiple-bloom", writable: bool = False, durable: bool = True,
        verify: bool = False, preload: bool = False,
    ) -> Self:  # fmt: skip
        """Open a table that lies in a file; its summary is read, or made anew by one scan.

        Parameters
        ----------
        summary
            The kind of summary: "multiple-bloom".
        writable
            Open for changes, which excludes all other processes. Otherwise any number may open it, and no
            permission to write is needed, unless a writer has died and left a journal.
        durable
            As for `create`.
        verify
            Read and check every page now; otherwise each is checked when it is read.
        preload
            Read all pages into the system's cache now, so that no look-up waits for the disk while they stay
            there.

        Raises
        ------
        FormatError
            The file is damaged, of a future version or of another kind.
        BlockingIOError
            Somebody writes to it, or, with writable=True, has it open.
        PermissionError
            A writer has died: its changes lie in the journal, and taking them over needs permission to write.
        """
        target = os.path.realpath(path)  # one file, one journal, by whatever name it is opened
        if summary not in _SUMMARIES:
            raise arguments.error("summary", "'multiple-bloom'", summary, "Leave it out: it is the only kind")
        _mapped_files.checked_preload(preload)
        try:
            if preload:
                _mapped_files.preload_file(target)
            return cls._open(target, bool(writable), bool(durable), bool(verify))
        except FormatError as error:
            raise FormatError(f"{target}: {error}") from None

    @classmethod
    def _open(cls, path: str, writable: bool, durable: bool, verify: bool) -> Self:
        table = cls._with_locked_file(path, writable, durable)
        recovered = False
        try:
            if writable:
                recovered = table._recover()
            elif table._groups_due():
                table._close()
                try:
                    # Opening it for writing takes the journal over.
                    page_files.retry_while_locked(lambda: cls._open(path, True, durable, False).close())
                except PermissionError as error:
                    raise PermissionError(
                        error.errno,
                        "a writer died and left changes in the journal; taking them over needs permission to "
                        "write: open it once as somebody who has it",
                        path,
                    ) from error
                except OSError as error:
                    if error.errno != errno.EROFS:
                        raise
                    raise PermissionError(
                        errno.EROFS, "the journal holds changes, and the file system is read-only", path
                    ) from error
                return cls._open(path, writable, durable, verify)
            if recovered:
                table._keep_summary()
            else:
                table._find_summary(scan=verify)
        except BaseException:
            table._close()
            raise
        return table

    @classmethod
    def _with_locked_file(cls, path: str, writable: bool, durable: bool) -> Self:
        with page_files.locked_files(path, writable) as (file, journal):
            return cls._of_files(file, journal, path, writable, durable)

    @classmethod
    def _of_files(
        cls, table: Descriptor, journal: Descriptor | None, path: str, writable: bool, durable: bool
    ) -> Self:
        made = cls.__new__(cls)
        made._path, made._plan = path, None
        _core.Pages.__init__(made, table, journal, path, writable, durable)
        return made

    def _find_summary(self, *, scan: bool) -> None:
        data = None
        with contextlib.suppress(OSError):
            data = Path(self._path + ".summary").read_bytes()
        if data is None or scan or not self._read_summary(data):
            self._build_summary()
            self._keep_summary()

    def _keep_summary(self) -> None:
        """Save the summary if that can be done: without it, or with an old one, the next `open` scans."""
        page_files.keep_summary(self._path, self._write_summary)

    # --- the end ------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write all changes in place and empty the journal; done by itself every 32 MiB, and by `close`."""
        self._checkpoint()

    def close(self) -> None:
        """Finish: changes go in place, the summary is saved beside the table. Closing again does nothing.

        In a child process of the one that opened it, nothing is written.
        """
        if self.closed:
            return
        try:
            if self.writable and self._is_own and not self._failed:
                before = self._generation
                self._checkpoint()
                if self._generation != before or not os.path.exists(self._path + ".summary"):
                    self._keep_summary()
        finally:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def probe(self, key: Key) -> tuple[int, int]:
        """Return how a look-up of this key goes: the level that has it, from 1, or 0; the pages read.

        Overflow pages are levels after the others.
        """
        return self._probe(key)

    def _each_batch(self, store: Callable[[Words, Words], object], most: int) -> None:
        """Call store(keys, values) once with all items of one moment, in a random order.

        They are read in the order of pages, which is that of hashes, so they are shuffled in memory.
        """
        parts: list[tuple[Words, Words]] = []
        self._page_batches(lambda keys, values: parts.append((keys, values)), most)
        if parts:
            keys, values = (np.concatenate(part) for part in zip(*parts, strict=True))
            parts.clear()
            order = np.random.default_rng(0).permutation(values.size)
            store(keys.reshape(values.size, -1)[order].ravel(), values[order])

    def _unchanging(self) -> PagedTable:
        return self  # it cannot be copied: keys are looked up while others may write

    def _clear(self) -> None:
        for keys, _ in iter(lambda: self._page(0, 0, 1 << 20)[:2], None):
            if not keys.size:
                return
            self._erase_words(keys, reads_of(), False)

    # --- the table as a whole -------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    @property
    def plan(self) -> PagedPlan:
        """The design, and what it predicts for `capacity` keys."""
        if self._plan is None:
            self._plan = plan_of_paged_core(self._core, keys=self._capacity, seed=self._seed)
        return self._plan

    def stats(self) -> PagedStats:
        """Measure this very table: what lies where, and the reads counted since it was opened."""
        plan = self.plan
        placed = self._level_keys()
        found, found_reads, missed, missed_reads, wrong, fetched = self._counters()
        keys = sum(placed)
        return PagedStats(
            keys=keys,
            levels=plan.levels,
            slots=plan.slots,
            level_keys=tuple(placed),
            fills=tuple(n / (pages * plan.slots) for n, pages in zip(placed, plan.pages, strict=False)),
            overflow=placed[-1] / max(1, keys),
            lookups=found,
            misses=missed,
            reads=found_reads / max(1, found),
            miss_reads=missed_reads / max(1, missed),
            wrong=wrong,
            fetched=fetched,
            summary_bytes=self.summary_bytes,
            journal_bytes=self._journal_bytes,
            nbytes=self.nbytes,
        )

    @property
    def seed(self) -> int:
        """The seed of the digests."""
        return self._seed

    copy = _refusal("cannot be copied in memory")
    to_bytes = _refusal("cannot be turned into bytes")
    save = _refusal("cannot be saved elsewhere")
    __reduce__ = _refusal("cannot be pickled")
    load = from_bytes = staticmethod(_refusal("is opened, not loaded, by PagedTable.open(path)"))
    same_bytes = _refusal("has no bytes in memory to compare")
    __or__ = __ror__ = _refusal("cannot be copied in memory: use |= or update()")
    __array_ufunc__ = None

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        broken = self._invariant()
        assert not broken, broken
        assert self.plan.core == tuple(self._core)
        assert self.nbytes == self.plan.nbytes

    def __repr__(self) -> str:
        if self.closed:
            return f"<closed PagedTable {self._path!r}>"
        if self.writable and not self._is_own:
            return f"<PagedTable {self._path!r}, open for writing in process {self._owner}>"
        rows: list[tuple[str, object]] = [
            ("path", self._path), ("keys", len(self)), ("capacity", self._capacity),
            ("key_dtype", self.key_dtype), ("value_dtype", str(self.value_dtype)), ("nbytes", self.nbytes),
            ("summary_bytes", self.summary_bytes), ("writable", self.writable),
        ]  # fmt: skip
        return _show.line(type(self).__name__, rows)

    def _repr_html_(self) -> str:
        plan, stats = self.plan, self.stats()
        names = ("keys", "level_keys", "fills", "overflow", "reads", "miss_reads", "summary_bytes", "nbytes")
        rows = [(name, getattr(plan, name), getattr(stats, name)) for name in names]
        return _show.html_comparison(type(self).__name__, ("plan", "stats()"), rows)


def save_pages(table: MultilevelTable, path: StrPath, **options: Any) -> None:
    """Write a table of any kind as a one-read table; what `MultilevelTable.save(path, layout="pages")` does.

    The file takes the place of what was there, atomically; somebody who has the old one open for reading
    keeps it, and one who writes to it is left in peace by a BlockingIOError.

    Parameters
    ----------
    **options
        Of `plan_paged`: `capacity` (by default the table's), `load`, `levels`, `miss_reads`, ...
    """
    target = os.path.realpath(os.fspath(path))
    if os.path.lexists(target) and not os.path.isfile(target):
        raise OSError(errno.EINVAL, "not a regular file, so it cannot be replaced", os.fspath(path))
    capacity = options.pop("capacity", max(table._capacity, len(table)))
    plan = plan_paged(
        capacity, key_dtype=table.key_dtype, value_dtype=str(table.value_dtype), seed=table.seed, **options
    )
    old = None
    with contextlib.ExitStack() as stack:
        if os.path.isfile(target):
            old = os.open(target, os.O_RDONLY | _platform.OPEN)
            stack.callback(os.close, old)
            try:
                _platform.lock(old, exclusive=False)
            except BlockingIOError:
                raise BlockingIOError(
                    errno.EWOULDBLOCK, "it is open for writing: close it there first", target
                ) from None
        with page_files.new_file(target, plan) as temporary:
            if old is not None:
                os.chmod(temporary, os.fstat(old).st_mode & 0o7777)
            made = PagedTable._of_files(
                page_files.open_file(temporary, os.O_RDWR), None, temporary, True, True
            )
            try:
                table._each_batch(
                    lambda keys, values: made._insert_words(keys, values, reads_of()), _SAVED_AT_ONCE
                )
                made._checkpoint()
            finally:
                made._close()
            os.replace(temporary, target)
        # Of the old table, whose name is gone for good: by its uid nobody mistakes them for the new one's.
        for leftover in (".journal", ".summary"):
            with contextlib.suppress(OSError):
                os.unlink(target + leftover)
    page_files.keep_summary(target, made._write_summary)
