"""The files of a one-read table: opened without a leak, locked, made beside their place, recognised."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from evenbins import _core, _files, _platform
from evenbins._core import Descriptor, FormatError
from evenbins._files import StrPath
from evenbins.structure import kind_of_file
from evenbins.tables.paged_plan import PagedPlan

__all__ = ["is_paged", "keep_summary", "locked_files", "new_file", "open_file", "retry_while_locked"]


def open_file(path: str, flags: int, mode: int = 0o666) -> Descriptor:
    """Open a file, in one step: a signal handler that raises leaves no descriptor behind, and no lock."""
    return Descriptor(os.fsencode(path), flags, mode)


@contextlib.contextmanager
def locked_files(path: str, writable: bool) -> Iterator[tuple[Descriptor, Descriptor | None]]:
    """Open and lock a table's file, and open its journal if there is one; close what nobody took over."""
    flags = (os.O_RDWR if writable else os.O_RDONLY) | _platform.OPEN_AT_ONCE
    while True:
        file, journal = open_file(path, flags), None
        try:
            try:
                _platform.lock(file.fileno(), exclusive=writable)
            except BlockingIOError:
                text = "open already" if writable else "open for writing"
                text = f"it is {text}, here or in another process: close it there first"
                raise BlockingIOError(errno.EWOULDBLOCK, text, path) from None
            status = os.fstat(file.fileno())
            with contextlib.suppress(FileNotFoundError):
                if not os.path.samestat(status, os.stat(path)):  # replaced meanwhile
                    continue
            if writable:
                journal = open_file(path + ".journal", os.O_RDWR | os.O_CREAT, status.st_mode & 0o777)
                _files._sync_folder(Path(path).absolute().parent)
            else:
                with contextlib.suppress(FileNotFoundError):
                    journal = open_file(path + ".journal", os.O_RDONLY)
            yield file, journal
            return
        finally:  # what the table has not taken over: of an exception's traceback, or replaced
            file.close()
            if journal is not None:
                journal.close()


def retry_while_locked(recover: Callable[[], None]) -> None:
    """Call it again while another reader holds the lock, who may be doing the same."""
    for _ in range(100):
        with contextlib.suppress(BlockingIOError):
            return recover()
        time.sleep(0.02)
    return recover()


@contextlib.contextmanager
def new_file(target: str, plan: PagedPlan) -> Iterator[str]:
    """Yield the name of an empty table's file beside the target; remove it, and sync the folder."""
    folder = os.path.dirname(os.path.abspath(target))
    temporary = os.path.join(folder, f".evenbins-{secrets.token_hex(8)}.tmp")
    with _files.synced_folder(os.path.dirname(target), target):
        try:
            try:
                file = open_file(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
                uid = secrets.randbits(64)
                _core.create_pages(file, temporary, plan.keys, plan.seed, list(plan.core), uid)
                yield temporary
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
        except OSError as error:
            if error.errno is None or error.filename not in (temporary, None):
                raise
            raise OSError(error.errno, error.strerror, target) from error


def keep_summary(path: str, write: Callable[[int], None]) -> None:
    """Save a summary beside its table; `write` writes it to a descriptor.

    A full disk, or a folder without permission, is no failure.
    The table is whole without it: it is the table's pages in short, and made from them if it is missing.
    """
    with contextlib.suppress(OSError):
        _files.replace_file(path + ".summary", write)


def is_paged(path: StrPath) -> bool:
    """Return whether a file begins as a one-read table does. An unreadable file counts as not paged."""
    with contextlib.suppress(OSError, FormatError):
        return kind_of_file(path).name == "paged-table"
    return False
