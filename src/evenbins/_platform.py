"""What operating systems do differently: files, folders, signals, memory. The core's half is platform.hpp.

                       Linux              macOS                Windows
    flush              fsync              F_FULLFSYNC, or      fsync (FlushFileBuffers)
                                          fsync if it cannot
    names in a folder  fsync              F_FULLFSYNC          by the file system's own journal
    lock               flock              flock                LockFileEx
    mode of a file     fchmod             fchmod               inherited from the folder

On Windows a file that somebody has open or mapped cannot be replaced: `os.replace` raises PermissionError,
and the file under the name is the old one.
"""

from __future__ import annotations

import errno
import os
import signal
import sys

from evenbins import _core

__all__ = [
    "ENDING_SIGNALS",
    "OPEN",
    "OPEN_AT_ONCE",
    "available_memory",
    "flush",
    "lock",
    "machine_memory",
    "open_folder",
    "peak_memory",
    "set_mode",
]

# Flags of every open: bytes as they are, and nothing for the programs that this process starts.
OPEN: int = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
OPEN_AT_ONCE: int = getattr(os, "O_NONBLOCK", 0)  # do not wait for the other end of a pipe
# What ends a command beside Ctrl-C.
ENDING_SIGNALS: tuple[int, ...] = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)


def lock(descriptor: int, *, exclusive: bool) -> None:
    """Lock an open file against other processes until it is closed; raise BlockingIOError if one has it.

    Any number of shared locks, or one exclusive lock.
    """
    _core.lock_file(descriptor, exclusive)


def flush(descriptor: int) -> None:
    """Return when the contents of a file are on the disk."""
    if sys.platform == "darwin":  # fsync ends there when the drive has them in its memory
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
        except OSError as error:  # a file system that cannot: network shares, exFAT
            if error.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
                raise
    os.fsync(descriptor)


def open_folder(folder: str | os.PathLike[str]) -> int | None:
    """Open a folder whose names will be flushed; None where that is not needed."""
    if sys.platform == "win32":
        return None
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | OPEN)


def set_mode(descriptor: int, mode: int) -> None:
    """Set the permissions of an open file."""
    if sys.platform != "win32":
        os.fchmod(descriptor, mode)


def peak_memory() -> int | None:
    """Return the most memory that this process has had, in bytes; None if it is not known."""
    if sys.platform == "win32":
        return None
    import resource

    return (1 if sys.platform == "darwin" else 1024) * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def available_memory() -> int:
    """Return the memory that processes may still take, in bytes; that of the machine if it is not known."""
    if sys.platform == "win32":
        return _memory_status()[2]
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return 1024 * int(line.split()[1])
    except OSError:
        pass
    return machine_memory()


def machine_memory() -> int:
    """Return the memory of this machine, in bytes."""
    if sys.platform == "win32":
        return _memory_status()[1]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


if sys.platform == "win32":

    def _memory_status() -> list[int]:
        """Return the words of a MEMORYSTATUSEX: its size and the load, the memory, what is available, …"""
        import ctypes

        words = (ctypes.c_uint64 * 8)(64)  # its size in bytes
        ctypes.windll.kernel32.GlobalMemoryStatusEx(words)
        return list(words)
