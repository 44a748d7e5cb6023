"""Which rows have a key that was not seen before? Over any number of batches, files and runs.

    batch ──digests──▶ stages of filters (64 bits of each key, approximate) ──▶ mask of the first occurrences
                   └─▶ sets of digests (128 bits of each key, exact)        ──▶

A batch is read and hashed whole before anything is added: a key that is refused leaves the Deduplicator as it
was. Calls from several threads take turns; of two that bring one key, one keeps it.

A file is one composite file like a growing filter's (docs/format.md): the counts are in its header's core,
the filters or sets in its payload, each a file of its own kind.
"""

from __future__ import annotations

import math
import struct
import threading
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core, _files, _show
from evenbins._bulk import Key
from evenbins._core import FormatError
from evenbins._files import StrPath
from evenbins.deduplication.digests import DigestSets
from evenbins.deduplication.fields import keys_of
from evenbins.deduplication.pieces import NOT_IN, Marks, answers_in, new_marks
from evenbins.deduplication.stages import MOST_STAGES, DeduplicatorFullError, Part, Stages
from evenbins.structure import Plan

__all__ = ["DedupPlan", "DedupStats", "Deduplicator", "DeduplicatorFullError"]

_KIND, _HASHING = 17, 1
_LINE = 64
_INDEX, _ENTRY = "<QQQdQ", 5  # a part in the payload's index: number, keys, measured_at, rate, bytes
_MOST_PARTS = MOST_STAGES  # and sets
_MOST_ROWS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class DedupPlan(Plan):
    """What a Deduplicator was built for; two with equal plans can be merged.

    Attributes
    ----------
    exact : whether 128-bit digests are kept, and not filters
    fpr : the promised rate at which new keys are dropped, at most; of an exact one 0
    capacity : the keys it was planned for; None if it grows from small
    keys : keys that fit into the memory it has now
    nbytes : bytes of that memory
    seed : seed of the digests
    """

    _identity = ("exact", "fpr", "capacity", "seed")
    _in_one_line = ("exact", "fpr", "capacity")

    exact: bool
    fpr: float
    capacity: int | None
    keys: int
    nbytes: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DedupStats(_show.ReprMixin):
    """What a Deduplicator has counted and measured.

    Attributes
    ----------
    rows : rows seen
    kept : rows that were first occurrences
    dropped : the others
    expected_wrong : expected number of rows among the dropped whose key was new. A new key is dropped with
        the rate of its moment, so every kept row stands for rate / (1 - rate) of them: this is the sum over
        the kept rows. Repeats add nothing: to drop them is right
    exact : as in the plan
    fpr : the rate now, measured: the probability that the next new key is dropped
    keys : distinct keys in; after merges of approximate ones, at most so many
    capacity : keys that fit into the memory it has now; it grows
    nbytes : bytes of memory, everything counted
    """

    rows: int
    kept: int
    dropped: int
    expected_wrong: float = 0.0
    exact: bool
    fpr: float
    keys: int
    capacity: int
    nbytes: int


class _Digests:
    """The digests of a batch, for the Deduplicator that made them."""

    __slots__ = ("words",)

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        self.words = words


class Deduplicator(_files.Persistent):
    """First occurrences of keys, over many batches: `keep` returns which rows of a batch have a new key.

    Parameters
    ----------
    exact
        False: filters, about 7 bytes per key with a capacity; a row with a new key is dropped by mistake with
        a probability of at most `fpr`. True: 128-bit digests in exact sets, about 17 bytes per key with a
        capacity. Without one there is room for keys to come: just after it has grown 61 bytes per key at
        65,537 keys, 31 at 589,825 and 17 at 2.7 million; exact ones 34 below a million keys and 23 above.
    fpr
        The largest probability that a row with a new key is dropped; has no effect with `exact`.
    capacity
        Distinct keys to plan for. It grows beyond them, and without it, at the price of more memory and time
        per key.
    seed
        0 … 2**64-1. With a secret random seed nobody can choose keys that collide.

    Examples
    --------
    >>> d = Deduplicator()
    >>> d.keep(["a", "b", "a"])
    array([ True,  True, False])
    >>> d.keep(["b", "c"])
    array([False,  True])
    >>> d.stats().rows, d.stats().kept, d.stats().dropped
    (5, 3, 2)
    >>> d.stats().expected_wrong < 1e-9
    True
    """

    _own: ClassVar[tuple[str, ...]] = ("_state", "_rows", "_kept", "_open", "_writing")
    __slots__ = ("__dict__", "__weakref__", *_own)
    _state: Stages | DigestSets
    _open: Marks | None  # of a batch whose rows are not counted yet

    def __init__(
        self, *, exact: bool = False, fpr: float = 1e-9, capacity: int | None = None, seed: int = 0
    ) -> None:
        keys = None if capacity is None else arguments.capacity(capacity)
        rate, seed = arguments.rate(fpr), arguments.seed(seed)
        if arguments.flag("exact", exact):
            self._state = DigestSets(keys, seed)
        else:
            self._state = Stages(rate, keys, seed)
        self._rows = self._kept = 0
        self._open = None
        self._writing = threading.RLock()

    # --- keys in, answers out ----------------------------------------------------------------------

    def keep(self, batch: object, *, threads: int | None = None) -> npt.NDArray[np.bool_]:
        """Return for each row whether its key was not seen before, in this batch or an earlier one.

        The first of several equal keys is kept, in the order of the rows. The call is one step for other
        threads. A key that is refused (a null, a float) raises, and nothing of the batch has been added.
        After any other exception (Ctrl-C, no memory, DeduplicatorFullError) the first rows of the batch are
        in: the exception's attribute `answers` has their answers, one for each row that is in, and a note
        says how many they are. Every exception has `answers`, an empty array if nothing was added. After a
        second Ctrl-C, or without memory, rows behind these can be in too; an exact one of more than a million
        keys has their number in the note.

        Parameters
        ----------
        batch
            What bulk calls take: a NumPy array, an Arrow column or stream, a pandas or Polars column, a list.
            Rows of several fields: a list of tuples, a dataframe, an Arrow table, or `Fields` of columns.
        threads
            The most threads that share the work (None: as many as pay off, up to the cores of this process);
            the result does not depend on it.

        Examples
        --------
        >>> d = Deduplicator(exact=True)
        >>> d.keep([("a", "bc"), ("ab", "c"), ("a", "bc")])
        array([ True,  True, False])
        """
        marks = new_marks(0)
        try:
            workers = _bulk.checked_threads(threads)
            self._require_writable()
            digests = batch if isinstance(batch, _Digests) else self._digests(batch)
            self._require_turn()
            with self._writing:
                self._settle()
                marks = new_marks(len(digests.words))
                self._open = marks
                try:
                    answers = self._state.add_new(digests.words, workers, marks)
                finally:
                    self._settle()
        except BaseException as error:
            error.answers = answers_in(marks)  # type: ignore[attr-defined]
            if len(marks):
                error.add_note(_note(marks))
            raise
        return answers

    def _settle(self) -> None:
        """Count the rows of the last batch that are in; the caller holds the lock.

        An exception from a signal handler may come before they are counted: then the next call does it.
        """
        if self._open is not None:
            answers = answers_in(self._open)
            rows, kept = len(answers), int(np.count_nonzero(answers))
            self._rows += rows  # no call from here on, and so no signal handler
            self._kept += kept
            self._open = None

    def _require_turn(self) -> None:
        """Refuse a call from a signal handler or a destructor that runs inside another call of its thread."""
        if self._writing._is_owned():  # type: ignore[attr-defined]  # as threading.Condition asks
            raise RuntimeError(
                "this Deduplicator is in the middle of a call of the same thread: a signal handler or a "
                "destructor can ask `key in d`, and must leave keep, stats, merge, copy, save and clear to "
                "the code that it interrupts"
            )

    def _digests(self, batch: object) -> _Digests:
        """Return what `keep` takes instead of a batch, so that another thread can hash it."""
        return _Digests(self._state.digests(keys_of(batch, self._state.seed)))

    def _keep_with(
        self, keys: object, apart: npt.NDArray[np.bool_], digest: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.bool_]:
        """Return what `keep` does, for rows of which some are apart: these have one digest and no key."""
        words = np.empty((len(apart), *digest.shape[1:]), dtype=np.uint64)
        words[apart] = digest
        words[~apart] = self._digests(keys).words
        return self.keep(_Digests(words))

    def __contains__(self, key: Key, /) -> bool:
        return bool(self.contains_many([key])[0])

    def contains_many(self, batch: object, *, threads: int | None = None) -> npt.NDArray[np.bool_]:
        """Return for each row whether its key was seen before; nothing is added. For `threads` see `keep`."""
        workers = _bulk.checked_threads(threads)
        state = self._state
        return state.contains(state.digests(keys_of(batch, state.seed)), workers)

    def _require_writable(self) -> None:
        if self._state.read_only:
            raise ValueError(
                "this Deduplicator is open read-only: use load() or copy() for one that can be changed"
            )

    # --- what it knows of itself -------------------------------------------------------------------

    @property
    def fpr(self) -> float:
        """The promised rate at which new keys are dropped, at most; of an exact one 0."""
        return self._state.fpr

    @property
    def plan(self) -> DedupPlan:
        """What it was built for, and the memory it has now."""
        state = self._state
        return DedupPlan(
            exact=state.exact, fpr=state.fpr, capacity=state.capacity, keys=state.planned_keys,
            nbytes=state.nbytes, seed=state.seed,
        )  # fmt: skip

    @property
    def exact(self) -> bool:
        """Whether 128-bit digests are kept, and not filters."""
        return self._state.exact

    def stats(self) -> DedupStats:
        """Measure it: counts of rows and keys, the rate now, the expected errors, the memory."""
        self._require_turn()
        with self._writing:
            self._settle()
            keys, rate, wrong = self._state.measure()
            return DedupStats(
                rows=self._rows, kept=self._kept, dropped=self._rows - self._kept, expected_wrong=wrong,
                exact=self._state.exact, fpr=rate, keys=keys, capacity=self._state.planned_keys,
                nbytes=self._state.nbytes,
            )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes of memory, everything counted."""
        return self._state.nbytes

    def expected_wrong(self, rows: int) -> float:
        """Return how many of `rows` rows to come will be dropped wrongly, at most, on average: rows * fpr.

        With `exact`: the chance that two of their 128-bit digests, or one and one that is in, are equal.

        Examples
        --------
        >>> Deduplicator(fpr=1e-9).expected_wrong(20_000_000)
        0.02
        """
        remedy = "Pass the number of rows to come"
        return self._state.expected_errors(arguments.integer("rows", rows, 0, 2**63, remedy))

    @property
    def capacity(self) -> int | None:
        """The keys it was planned for; None if it grows from small."""
        return self._state.capacity

    @property
    def max_keys(self) -> int:
        """The most keys it can hold with its rate; a key after these raises DeduplicatorFullError.

        Examples
        --------
        >>> Deduplicator().max_keys
        1072234496
        """
        return self._state.max_keys

    # --- the whole ---------------------------------------------------------------------------------

    def clear(self) -> None:
        """Remove all keys and counts."""
        self._require_writable()
        self._require_turn()
        with self._writing:
            self._settle()
            self._state.clear()
            self._rows = self._kept = 0

    @property
    def seed(self) -> int:
        """The seed of the digests. Deduplicators with different seeds cannot be merged."""
        return self._state.seed

    def copy(self) -> Self:
        """Make an independent copy; it can be changed even if this one is open read-only."""
        self._require_turn()
        with self._writing:
            self._settle()
            twin = self._of(self._state.copy(), self._rows, self._kept)
        _files.attributes_of(twin).update(_files.attributes_of(self))
        return twin

    @classmethod
    def _of(cls, state: Stages | DigestSets, rows: int, kept: int) -> Self:
        made = cls.__new__(cls)
        made._state, made._rows, made._kept, made._open = state, rows, kept, None
        made._writing = threading.RLock()
        return made

    def merge(self, other: Deduplicator) -> None:
        """Add the keys and the counts of another one, built with the same arguments; as `|=`.

        Counts are added, so a key that both have kept counts as kept twice. Of approximate ones the stages
        are united where they have room, and both are kept where not: no key is lost, and the rate is at most
        the sum of both rates; `stats()` measures it. Memory and the time of a row then grow with each merge,
        and one that would leave more than 64 stages raises ValueError: build them with the capacity of their
        union, which lets stages be united, or with `exact`. A stage that both have is not added again. An
        error leaves this one as it was.
        """
        if not isinstance(other, Deduplicator):
            raise TypeError(f"other must be a Deduplicator, not {type(other).__name__}")
        mine, theirs = self.plan, other.plan
        self._require_writable()
        if mine != theirs:
            names = [name for name in mine._identity if getattr(mine, name) != getattr(theirs, name)]
            shown = ", ".join(
                "their seeds"
                if name == "seed"
                else f"{name} ({getattr(mine, name)}, {getattr(theirs, name)})"
                for name in names
            )
            raise ValueError(f"cannot merge: {shown} differ. Build both with the same arguments")
        if self is other:
            return
        source = other.copy()  # never two locks at once
        self._require_turn()
        with self._writing:
            self._settle()
            self._state.merge(source._state)  # type: ignore[arg-type]
            self._rows += source._rows
            self._kept += source._kept

    def __ior__(self, other: Deduplicator) -> Self:
        if isinstance(other, Deduplicator):
            self.merge(other)
            return self
        return NotImplemented

    __array_ufunc__ = None

    def __or__(self, other: Deduplicator) -> Self:
        return self.copy().__ior__(other) if isinstance(other, Deduplicator) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, Deduplicator):
            return False
        if self is other:
            return True
        first, second = sorted((self, other), key=id)  # in one order: two comparisons never deadlock
        first._require_turn()
        second._require_turn()
        with first._writing, second._writing:
            first._settle()
            second._settle()
            mine: Any = self._state
            return (
                (self._rows, self._kept, mine.exact, mine.wrong)
                == (other._rows, other._kept, other._state.exact, other._state.wrong)
            ) and mine.equals(other._state)

    __hash__ = None  # it changes

    # --- bytes and files ---------------------------------------------------------------------------

    def _encoded(self) -> tuple[bytes, bytearray]:
        """Return the header and the payload of a file; beside the payload no more than one part is copied."""
        self._require_turn()
        with self._writing:
            self._settle()
            state, count = self._state, self._state.part_count
            payload = bytearray(_padded(8 * _ENTRY * count))
            for place, part in enumerate(state.to_parts()):
                struct.pack_into(_INDEX, payload, 8 * _ENTRY * place, *part[:4], len(part.data))
                payload += part.data
                payload += bytes(_padded(len(payload)) - len(payload))
            core = [
                int(state.exact), _bits(state.fpr), state.capacity or 0, self._rows, self._kept,
                _bits(state.wrong), count, len(payload),
            ]  # fmt: skip
            header = _core.file_header(_KIND, _HASHING, state.seed, state.capacity or 1, core, payload)
        return header, payload

    def to_bytes(self) -> bytes:
        """Return it as bytes: those that `save` writes."""
        return b"".join(self._encoded())

    def save(self, path: StrPath) -> None:
        """Write a file, atomically and durably: after a crash the old or the new one is there."""
        pieces = self._encoded()

        def write(descriptor: int) -> None:
            for piece in pieces:
                _files.write_all(descriptor, memoryview(piece))

        _files.replace_file(path, write)

    @classmethod
    def _from_data(cls, data: Any, *, mapped: bool, verify: bool) -> Self:
        view = memoryview(data)
        copied = not mapped and not isinstance(view.obj, bytes)  # what is verified is then what is read
        view = memoryview(bytes(view)) if copied else view
        kind, seed, planned, core, offset = _core.file_parts(view, verify)
        if kind != _KIND:
            raise FormatError(f"the file holds another kind of structure ({kind}), which evenbins.load opens")
        mode, rate_bits, capacity, rows, kept, wrong_bits, count, _ = core
        fpr, wrong = _float(rate_bits), _float(wrong_bits)
        possible = (
            mode <= 1 and planned == (capacity or 1) and 1 <= count <= _MOST_PARTS
            and kept <= rows <= _MOST_ROWS and 0.0 <= wrong < math.inf
            and (fpr == 0.0 if mode else 0.0 < fpr < 1.0)
        )  # fmt: skip
        if not possible:
            raise FormatError("the header describes no possible Deduplicator")
        parts = _parts_in(view[offset:], count)
        state: Stages | DigestSets
        if mode:
            state = DigestSets.from_parts(parts, capacity or None, seed, mapped=mapped, verify=verify)
        else:
            state = Stages.from_parts(parts, fpr, capacity or None, seed, wrong, mapped=mapped, verify=verify)
        return cls._of(state, rows, kept)

    # --- for people --------------------------------------------------------------------------------

    def __repr__(self) -> str:
        state = self._state
        rows: list[tuple[str, object]] = [("exact", state.exact)]
        rows += [] if state.exact else [("fpr", state.fpr)]
        rows += [("rows", self._rows), ("kept", self._kept), ("nbytes", state.nbytes)]
        rows += [("seed", "set")] if state.seed else []  # a seed may be a secret
        rows += [("open", "read-only")] if state.read_only else []
        return _show.line(type(self).__name__, rows)

    def _repr_html_(self) -> str:
        return self.stats()._repr_html_()

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        assert 0 <= self._kept <= self._rows
        self._state.check()


def _note(marks: Marks) -> str:
    rows = len(answers_in(marks))
    after = int(np.count_nonzero(marks[rows:] != NOT_IN))
    return (
        f"evenbins: the first {rows} rows of the batch are in, and the exception's attribute `answers` has "
        "their answers" + (f"; {after} rows after them are in too" if after else "")
    )


def _bits(number: float) -> int:
    bits: int = struct.unpack("<Q", struct.pack("<d", number))[0]
    return bits


def _float(bits: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return number


def _padded(size: int) -> int:
    return -(-size // _LINE) * _LINE


def _parts_in(payload: memoryview, count: int) -> list[Part]:
    """Return the parts that the payload's index names; FormatError if they do not fill it exactly."""
    offset = _padded(8 * _ENTRY * count)
    if offset > len(payload):
        raise FormatError("the index of the parts does not fit into the payload")
    parts: list[Part] = []
    gaps = [payload[8 * _ENTRY * count : offset]]
    for number, keys, at, rate, size in struct.iter_unpack(_INDEX, payload[: 8 * _ENTRY * count]):
        end = offset + _padded(size)
        if end > len(payload):
            raise FormatError(f"part {len(parts)} does not fit into the payload")
        parts.append(Part(number, keys, at, rate, payload[offset : offset + size]))
        gaps.append(payload[offset + size : end])
        offset = end
    if offset != len(payload) or any(any(gap) for gap in gaps):
        raise FormatError("there are bytes between or behind the parts")
    return parts
