"""Files on disk: saved whole or not at all, read by mapping.

    write to a temporary file beside the target ──▶ fsync ──▶ rename over the target ──▶ fsync the folder

A crash or an error at any moment leaves the old file or the new one under the name, never a mixture.
What is inside a file is the core's business (docs/format.md).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from evenbins._core import FormatError

__all__ = ["map_file", "replace_file"]

StrPath = str | os.PathLike[str]


def replace_file(path: StrPath, write: Callable[[int], None]) -> None:
    """Put a new file in place of `path`, atomically and durably; `write` fills it by its descriptor."""
    target = Path(os.path.realpath(path))  # through a symbolic link: the file it points to is replaced
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(descriptor, target.stat().st_mode & 0o7777)
            write(descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def map_file(path: StrPath) -> mmap.mmap:
    """Map a file read-only. The mapping lives as long as something uses its bytes."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise FormatError(f"{os.fspath(path)}: the file is empty")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
