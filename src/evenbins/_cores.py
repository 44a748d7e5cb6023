"""The number of threads of a bulk call: its argument `threads`, and what None stands for.

    cores       those on which the calling thread may run (affinity: taskset, os.sched_setaffinity, cpusets)
    quota       the processor time that the control groups of this process allow, in cores, rounded up
    setting     the environment variable EVENBINS_THREADS

None is the least of the three. Cores and setting are read for every call. The quota is read again if it was
read more than a second ago: orchestrators change it while a process runs, and reading takes longer than a
small bulk call.

References
----------
Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst (cpu.cfs_quota_us).
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from evenbins import _core

__all__ = ["available_threads", "checked_threads", "cores_of_quota", "useful_threads"]

_MAX_THREADS = 1024
_KEYS_PER_THREAD = 8192  # that pay for it; as in cpp/parallel.cpp
_SECONDS = 1.0  # between two readings of the quota

_quota: tuple[float, int] = -2 * _SECONDS, _MAX_THREADS  # when it was read, and what it was


def checked_threads(threads: object) -> int:
    """Check the argument `threads`; None is the number of cores that this process may use."""
    if threads is None:
        return available_threads()
    if isinstance(threads, bool):
        raise TypeError("threads must be an int or None, not bool")
    try:
        number = operator.index(threads)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"threads must be an int or None, not {type(threads).__name__}") from None
    if not 1 <= number <= _MAX_THREADS:
        raise ValueError(
            f"threads must be 1 to {_MAX_THREADS}, not {number}: leave it out to use the cores that there are"
        )
    return number


def useful_threads(threads: int, keys: int) -> int:
    """Return how many of these threads pay off for so many keys: at least one."""
    return max(1, min(threads, keys // _KEYS_PER_THREAD))


def available_threads() -> int:
    """Return the number of cores that this process may use, as the head of this file says.

    Raises
    ------
    ValueError
        EVENBINS_THREADS is not a number of threads.
    """
    global _quota  # the two numbers change together
    now = time.monotonic()
    read_at, quota = _quota
    if now - read_at > _SECONDS:
        quota = min(cores_of_quota() or _MAX_THREADS, _MAX_THREADS)
        _quota = now, quota
    return _core.thread_limit(quota)


def cores_of_quota(root: str | Path = "/") -> int | None:
    """Return the cores that the control groups of this process allow; None if they set no limit.

    The quota of a group holds for all groups below it, so the least one from the process's own group up to
    the top counts, of version 1 and version 2. A file that is missing or unreadable sets no limit.

    Parameters
    ----------
    root
        The folder that holds `proc` and `sys`, for tests.
    """
    quotas = [quota for folder in _groups(Path(root)) if (quota := _quota_in(folder)) is not None]
    return min(quotas, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folder of each control group that may limit the processor time of this process."""
    paths = {}  # of this process, by version: "0::/a/b" and "4:cpu,cpuacct:/a/b"
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            paths["cgroup2"] = path
        elif "cpu" in controllers.split(","):
            paths["cgroup"] = path
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = (*after.split(" "), "", "", "")[:3]
        fields = before.split(" ")
        if kind not in paths or len(fields) < 5 or (kind == "cgroup" and "cpu" not in options.split(",")):
            continue
        top, mounted_at = PurePosixPath(_unescaped(fields[3])), _unescaped(fields[4])
        own = PurePosixPath(paths[kind])
        # In a container the path may be the host's, of which only the container's own part is mounted.
        below = own.relative_to(top) if own.is_relative_to(top) and ".." not in own.parts else PurePosixPath()
        mount = root / mounted_at.lstrip("/")
        for part in (below, *below.parents):
            yield mount / part


def _quota_in(folder: Path) -> int | None:
    """Return the quota of one group in cores, rounded up."""
    try:
        if text := "".join(_lines(folder / "cpu.max")):  # version 2: "200000 100000", or "max 100000"
            quota, period = text.split()
        else:
            quota = "".join(_lines(folder / "cpu.cfs_quota_us"))
            period = "".join(_lines(folder / "cpu.cfs_period_us"))
        time_allowed, time_passed = int(quota), int(period)
    except ValueError:
        return None  # "max", or no file
    if time_allowed <= 0 or time_passed <= 0:
        return None  # version 1: a quota of -1 is no limit
    return -(-time_allowed // time_passed)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _unescaped(field: str) -> str:
    """Return a field of mountinfo, where a space is written as \\040."""
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        field = field.replace(f"\\{code}", character)
    return field
