"""Files on disk: saved whole or not at all, read by mapping (_mapped_files.py).

    write to a temporary file beside the target ──▶ fsync ──▶ rename over the target ──▶ fsync the folder

A crash or an error at any moment leaves the old file or the new one under the name, never a mixture.
The core reads and writes the contents (docs/format.md).
"""

from __future__ import annotations

import contextlib
import copy
import errno
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from evenbins import _platform
from evenbins._core import FormatError
from evenbins._mapped_files import advised, checked_preload, map_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Loadable",
    "Persistent",
    "StrPath",
    "attributes_of",
    "replace_file",
    "synced_folder",
    "write_all",
]

StrPath = str | os.PathLike[str]


class Loadable:
    """Reading a structure from bytes or a file; a class implements `_from_data`."""

    __slots__ = ()

    @classmethod
    def _from_data(cls, data: Any, *, mapped: bool, verify: bool) -> Self:
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Rebuild a filter from `to_bytes`.

        Raises
        ------
        FormatError
            The bytes are damaged, cut short, of a future version or of another kind.
        """
        return cls._from_data(_byte_view(data), mapped=False, verify=True)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read a file into memory, and check every byte that was read.

        The file must not be truncated meanwhile (see `open`); if it is changed in any other way, what was
        read is whole or a FormatError.

        Raises
        ------
        FormatError
            The file is damaged, cut short, of a future version or of another kind.
        """
        return cls._from_file(path, mapped=False, verify=True)

    @classmethod
    def open(cls, path: StrPath, *, verify: bool = False, preload: bool = False) -> Self:
        """Map a file read-only: ready at once whatever its size, its memory shared between processes.

        The header is checked; `verify=True` checks the payload too, by reading all of it. `preload=True`
        reads the file into memory now, so that no look-up waits for the disk while it stays there.

        While it is open the file must not be truncated: the system kills a process that reads behind the end.
        (`save` never truncates: it puts a new file in place, and readers that have the old one open keep it.)
        """
        return cls._from_file(path, mapped=True, verify=verify, preload=preload)

    @classmethod
    def _from_file(cls, path: StrPath, *, mapped: bool, verify: bool, preload: bool = False) -> Self:
        checked_preload(preload)
        try:
            data = map_file(path)
            with advised(data, path, whole=verify or not mapped, preload=preload):
                return cls._from_data(data, mapped=mapped, verify=verify)
        except FormatError as error:
            raise FormatError(f"{os.fsdecode(path)}: {error}") from None


class Persistent(Loadable):
    """Copying, pickling and saving, for classes that have `copy`, `_to_bytes` and `_write_to`.

    Attributes of a user's subclass are copied and pickled too.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def copy(self) -> Self: ...
        def _to_bytes(self) -> bytes: ...
        def _write_to(self, descriptor: int, /) -> None: ...
        def _equal(self, other: Any, /) -> bool: ...

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = self.copy()
        attributes_of(twin).update(copy.deepcopy(attributes_of(self), memo))
        return twin

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._equal(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def to_bytes(self) -> bytes:
        """Return it as bytes: those that `save` writes."""
        return self._to_bytes()

    def save(self, path: StrPath) -> None:
        """Write a file, atomically and durably: after a crash the old or the new one is there."""
        replace_file(path, self._write_to)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(),), attributes_of(self) or None


def _byte_view(data: object) -> memoryview:
    """Return the bytes of an object with a buffer; they are copied if they do not lie in a row."""
    try:
        view = memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"data must be bytes, as of to_bytes, not {type(data).__name__}") from None
    if view.ndim == 1 and view.c_contiguous and view.format == "B":
        return view
    try:
        return view.cast("B")
    except TypeError:  # strided, or of items that Python has no name for
        return memoryview(view.tobytes())


def attributes_of(structure: object) -> dict[str, Any]:
    """Return the attributes of an instance of a user's subclass; empty otherwise."""
    return getattr(structure, "__dict__", {})


def replace_file(path: StrPath, write: Callable[[int], None]) -> None:
    """Put a new file in place of `path`, atomically and durably; `write` fills it by its descriptor."""
    from pathlib import Path  # here: a command that writes nothing starts without it

    target = Path(
        os.path.realpath(os.fsdecode(path))
    )  # through a symbolic link: the file it points to is replaced
    if target.exists() and not target.is_file():  # a folder, a device, a pipe
        raise OSError(errno.EINVAL, "not a regular file, so it cannot be replaced", os.fsdecode(path))
    try:
        with synced_folder(target.parent, path):
            _write_beside(target, write)
    except OSError as error:  # it names the temporary file, or no file
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fsdecode(path)) from error


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write bytes to a descriptor, however many at a time the system takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view[: 1 << 30]) :]


def _write_beside(target: Path, write: Callable[[int], None]) -> None:
    temporary = target.with_name(f".evenbins-{os.urandom(8).hex()}.tmp")
    try:  # from here on: a signal handler may raise as soon as the file is there
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _platform.OPEN, 0o666)
        try:
            with contextlib.suppress(FileNotFoundError):
                _platform.set_mode(descriptor, target.stat().st_mode & 0o7777)
            write(descriptor)
            _platform.flush(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            temporary.unlink()
        raise


@contextlib.contextmanager
def synced_folder(folder: StrPath, file: StrPath | None = None) -> Iterator[None]:
    """Sync a folder after the block has changed names in it; an error names the file concerned.

    It is opened first: a folder that may be written but not read cannot be synced, and that must be found
    before names have changed.
    """
    try:
        descriptor = _platform.open_folder(folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fsdecode(file or folder)) from error
    try:
        yield
        if descriptor is not None:
            _platform.flush(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    with synced_folder(folder):
        pass
