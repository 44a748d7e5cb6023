"""Files mapped read-only, and what the system is told about how they will be read (madvise).

    load, verify=True    once, from the first byte to the last    as preload; SEQUENTIAL if it is too large
    preload=True         all of it, now                           SEQUENTIAL and POPULATE_READ, in pieces
    open                 at random places                         NORMAL; RANDOM if it is too large

Too large is a file beyond half of the machine's memory. Measured by tools/mapped_study.py (Linux 6.18, ext4,
two busy cores; seconds):

    600 MB, not cached      1,000 keys     10,000 keys    100,000 keys     verify=True
            NORMAL            0.82            0.87            0.76            3.52
            RANDOM            0.18            1.58            9.29           16.25
        SEQUENTIAL            0.64            0.69            0.85            3.27
      preload=True            0.64            0.74            0.87            1.16

So reading ahead costs at most one reading of the file, and pays as soon as one page in some twenty is wanted.
If the file does not stay in memory that moment never comes: there each look-up reads its own page and nothing
else. Populating takes fewer page faults than touching byte after byte, however far the system reads ahead.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import sys
from collections.abc import Iterator

from evenbins import _arguments as arguments
from evenbins import _platform
from evenbins._core import FormatError

__all__ = ["advised", "checked_preload", "map_file", "preload_file"]

_PIECE = 4 << 20  # populated in one call, which holds the GIL: some milliseconds
_POPULATE_READ = 22 if sys.platform == "linux" else None  # MADV_POPULATE_READ: Linux 5.14, Python 3.14


def map_file(path: str | os.PathLike[str]) -> mmap.mmap:
    """Map a file read-only. The mapping lives as long as something uses its bytes."""
    with open(os.fspath(path), "rb", opener=_open_at_once) as file:  # fspath: a number would be a descriptor
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FormatError("it is not a regular file, and cannot be mapped")
        if status.st_size == 0:
            raise FormatError("the file is empty")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@contextlib.contextmanager
def advised(
    data: mmap.mmap, path: str | os.PathLike[str], *, whole: bool, preload: bool = False, nbytes: int = 0
) -> Iterator[None]:
    """Make a structure of a mapped file in the block, for look-ups at random places after it.

    Parameters
    ----------
    path
        The file, for errors.
    whole
        The block goes through all bytes: it copies or verifies them.
    preload
        Read the file into memory first.
    nbytes
        Bytes of all files that are opened together, if they are several.
    """
    fits = 2 * max(nbytes, len(data)) <= _platform.machine_memory()
    if preload or (whole and fits):
        _populate(data, path)
    elif whole:
        _advise(data, "MADV_SEQUENTIAL")
    yield
    if not fits or preload or whole:
        _advise(data, "MADV_NORMAL" if fits else "MADV_RANDOM")


def checked_preload(preload: object) -> bool:
    """Check the argument `preload`."""
    return arguments.flag("preload", preload, "Pass True to read the file into memory now")


def preload_file(path: str | os.PathLike[str]) -> None:
    """Read a file that is not mapped into the system's cache."""
    _populate(map_file(path), path)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | _platform.OPEN_AT_ONCE)  # do not wait for the writer of a pipe


def _advise(data: mmap.mmap, name: str, start: int = 0, length: int | None = None) -> None:
    """Pass advice on to the system; one that does not know it needs none."""
    advice = getattr(mmap, name, None)
    if advice is not None and start < len(data):
        try:
            data.madvise(advice, start, len(data) - start if length is None else length)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EBADF):
                raise


def _populate(data: mmap.mmap, path: str | os.PathLike[str]) -> None:
    """Read all pages of a mapping; between two pieces other threads run, and signals are handled."""
    _advise(data, "MADV_SEQUENTIAL")
    for start in range(0, len(data), _PIECE):
        _advise(data, "MADV_WILLNEED", start + _PIECE, min(_PIECE, max(0, len(data) - start - _PIECE)))
        try:
            _populate_piece(data, start, min(_PIECE, len(data) - start))
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.fsdecode(path)) from None


def _populate_piece(data: mmap.mmap, start: int, length: int) -> None:
    if _POPULATE_READ is not None:
        try:
            return data.madvise(_POPULATE_READ, start, length)
        except OSError as error:
            if error.errno != errno.EINVAL:  # an older Linux
                raise
    for at in range(start, start + length, mmap.PAGESIZE):
        data[at]
    return None
