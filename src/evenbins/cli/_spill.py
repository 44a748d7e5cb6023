"""More keys than memory: digests on disk, in parts that fit, and one bit for each row.

    pass 1   rows ──128-bit digests──▶ 2**7 parts on disk, by their leading bits; which part: one byte per row
    parts    one after the other in memory ──▶ for each of its rows, in order: the first of its key, or not
    pass 2   rows again; the byte of a row says whose next bit is its own

A part has whole keys, in the order of their rows, so each is decided exactly, unless two digests of 128 bits
are equal by chance. Rows whose key was among the last 2**16 seen are duplicates and take no space:
keys that come again and again never fill a part. A part that is too large after all is divided in the same
way, by the next bits.

The files have no name (O_TMPFILE, or unlinked at once): whatever ends the process, their space is free again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import click
import numpy as np

from evenbins import _core
from evenbins._files import write_all
from evenbins.cli._output import describe

if TYPE_CHECKING:
    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]
    Words = npt.NDArray[np.uint64]

__all__ = ["Spill", "answers_in_turn", "check_space", "folder_for"]

_BITS = 7
_PARTS = 1 << _BITS
_DUPLICATE, _KEPT = (
    255,
    254,
)  # instead of a part: a row that is certainly a duplicate; one that is always kept
_RECENT = 1 << 16
_GATHERED = 1 << 17  # rows whose digests are divided at once
_ROWS = 1 << 20  # whose answers are found at once in the second pass
_ROW_BYTES = (
    16 + 16 + 2
)  # of a part in memory: the digest, its place in a table at most half full, the answer
_LEAST_ROWS = 1 << 16
_DIGEST_BYTES = 16


def check_space(folder: str, rows: int) -> None:
    """Raise an error if the digests of so many rows will not fit on the disk."""
    needed, free = (_DIGEST_BYTES + 1) * rows, shutil.disk_usage(folder).free
    if needed > free:
        raise click.ClickException(
            f"{folder}: {needed:_} bytes are needed for the digests of {rows:_} rows, and {free:_} are free: "
            "free some space, set TMPDIR to another place, or raise --memory"
        )


class Spill:
    """Digests of rows, in files without a name; afterwards, for each row, whether it is the first of its key.

    Parameters
    ----------
    folder
        Where the files are.
    most_bytes
        Of memory for one part.
    """

    def __init__(self, folder: str, most_bytes: int, *, level: int = 0) -> None:
        self._folder, self._level = folder, level
        self._most_rows = max(_LEAST_ROWS, most_bytes // _ROW_BYTES)
        self._most_bytes = most_bytes
        self._parts: list[IO[bytes]] = []
        self._counts = np.zeros(_PARTS, np.int64)
        self._recent = np.zeros((_RECENT, 2), np.uint64)
        self._recent[0] = 1  # no digest with this low word is looked up there, nor with 0 elsewhere
        self._gathered: list[tuple[Words, Mask | None]] = []
        self._waiting = self.rows = 0
        self._order = self._new_file()
        self._parts = [self._new_file() for _ in range(_PARTS)]

    def close(self) -> None:
        """Free the space on the disk."""
        for file in (self._order, *self._parts):
            file.close()

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def nbytes(self) -> int:
        """Bytes on the disk so far."""
        return int(self._counts.sum()) * _DIGEST_BYTES + self.rows

    def _new_file(self) -> IO[bytes]:
        try:
            return tempfile.TemporaryFile(dir=self._folder, buffering=0)
        except OSError as error:
            raise self._error(error) from None

    def _error(self, error: OSError) -> click.ClickException:
        text = describe(error, f"{self._folder} (digests that do not fit into memory)")
        return click.ClickException(f"{text}, or set TMPDIR, or raise --memory")

    # --- pass 1 ---------------------------------------------------------------------------------------

    def add(self, words: Words, kept: Mask | None = None) -> None:
        """Add the digests of rows, two words each; rows of the mask `kept` are kept whatever theirs are."""
        self._gathered.append((words.reshape(-1, 2), kept))
        self._waiting += len(words)
        if self._waiting >= _GATHERED:
            self._divide()

    def _divide(self) -> None:
        words = np.concatenate([each for each, _ in self._gathered]) if self._gathered else None
        if words is None:
            return
        shift = np.uint64(
            64 - _BITS * (self._level + 1)
        )  # of the low word: the high one of an integer is no hash
        parts = ((words[:, 0] >> shift) & np.uint64(_PARTS - 1)).astype(np.uint8)
        places = (words[:, 0] & np.uint64(_RECENT - 1)).astype(np.int64)
        parts[(self._recent[places] == words).all(axis=1)] = _DUPLICATE
        self._recent[places] = words
        if any(kept is not None for _, kept in self._gathered):
            masks = [np.zeros(len(each), np.bool_) if kept is None else kept for each, kept in self._gathered]
            parts[np.concatenate(masks)] = _KEPT
        order = np.argsort(parts, kind="stable")
        counts = np.bincount(parts, minlength=256)[:_PARTS]
        data = words[order[: int(counts.sum())]].reshape(-1).view(np.uint8).data
        self._write(self._order, parts.data)
        begin = 0
        for part in np.flatnonzero(counts).tolist():
            end = begin + int(counts[part]) * _DIGEST_BYTES
            self._write(self._parts[part], data[begin:end])
            begin = end
        self._counts += counts
        self.rows += len(parts)
        self._gathered, self._waiting = [], 0

    def _write(self, file: IO[bytes], data: memoryview) -> None:
        try:
            write_all(file.fileno(), data)
        except OSError as error:
            raise self._error(error) from None

    # --- parts, and pass 2 ----------------------------------------------------------------------------

    def answers(self) -> Iterator[Mask]:
        """Yield for each row, in order, whether it is the first of its key; many rows at a time."""
        self._divide()
        self._recent = np.zeros((0, 2), np.uint64)
        bits = [self._answers_of(part) for part in range(_PARTS)]
        used = np.zeros(_PARTS, np.int64)
        self._order.seek(0)
        while block := self._order.read(_ROWS):
            parts = np.frombuffer(block, np.uint8)
            order = np.argsort(parts, kind="stable")
            counts = np.bincount(parts, minlength=256)
            answers = np.zeros(len(parts), np.bool_)
            begin = 0
            for part in np.flatnonzero(counts[:_PARTS]).tolist():
                count, first = int(counts[part]), int(used[part])
                found = np.unpackbits(bits[part][first // 8 : (first + count + 7) // 8])
                answers[order[begin : begin + count]] = found[first % 8 : first % 8 + count]
                used[part] += count
                begin += count
            if counts[_KEPT]:
                answers[parts == _KEPT] = True
            yield answers

    def _answers_of(self, part: int) -> npt.NDArray[np.uint8]:
        """Return the answers for the rows of a part, one bit each; its space on the disk is freed."""
        file, count = self._parts[part], int(self._counts[part])
        try:
            file.seek(0)
            if count <= self._most_rows or _BITS * (self._level + 2) > 64:
                words = np.fromfile(file, np.uint64, 2 * count)
                return np.packbits(_core.first_of_digests(words))
            with Spill(self._folder, self._most_bytes, level=self._level + 1) as inner:
                while block := file.read(_DIGEST_BYTES * _GATHERED):
                    inner.add(np.frombuffer(block, np.uint64))
                return np.packbits(np.concatenate(list(inner.answers())))
        except OSError as error:
            raise self._error(error) from None
        finally:
            file.close()


def answers_in_turn(answers: Iterator[Mask]) -> Any:
    """Return a function that returns the next n answers."""
    rest: Mask = np.zeros(0, np.bool_)

    def take(count: int) -> Mask:
        nonlocal rest
        while len(rest) < count:
            rest = np.concatenate([rest, next(answers)])
        taken, rest = rest[:count], rest[count:]
        return taken

    return take


def folder_for(output: str | None) -> str:
    """Return where temporary files go: TMPDIR if it is set, else beside an output that is a file."""
    is_file = output is not None and (os.path.isfile(output) or not os.path.exists(output))
    if os.environ.get("TMPDIR") or not is_file:
        return tempfile.gettempdir()
    return os.path.dirname(os.path.realpath(output or ""))
