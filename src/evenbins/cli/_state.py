"""The state of a deduplication that goes on later: loaded, checked against the options, locked, saved.

    lock ──▶ load ──▶ rows … ──▶ output durable ──▶ save, atomically ──▶ unlock

The state is never ahead of the output: it is saved when the output is on the disk. A crash in between leaves
the state as it was, so that the same run again keeps the same rows.

A second process that names the same state is refused. The lock is an advisory one (flock) on a file beside
the state, since the state itself is replaced; the kernel releases it whatever ends the process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import click

from evenbins import _platform
from evenbins._core import FormatError
from evenbins.deduplication.deduplicator import Deduplicator
from evenbins.structure import kind_of_file

__all__ = ["check_state", "load_state", "locked_state"]


@contextlib.contextmanager
def locked_state(path: str | None) -> Iterator[None]:
    """Hold the lock of a state; raise an error if another process holds it."""
    if path is None:
        yield
        return
    target = os.path.realpath(path)
    lock = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.lock")
    descriptor = _lock(path, lock)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock)  # while it is held: who waits for it finds that it is gone, and makes a new one
        os.close(descriptor)


def _lock(path: str, lock: str) -> int:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | _platform.OPEN, 0o600)
        try:
            _platform.lock(descriptor, exclusive=True)
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise click.ClickException(
                f"--state {path}: another process is using it: wait until it has ended, or name another state"
            ) from None
        except FileNotFoundError:
            pass  # the holder before removed it
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def load_state(path: str | None) -> Deduplicator | None:
    """Read a state; None if there is none yet."""
    if path is None or not os.path.exists(path):
        return None
    if not os.path.isfile(path):
        raise click.ClickException(f"--state {path}: not a regular file: name another one")
    try:
        if kind_of_file(path).name == "window":
            raise click.ClickException(f"--state {path}: it was made with --window: give the same --window")
        return Deduplicator.load(path)
    except FormatError as error:
        raise click.ClickException(
            f"--state {error}: name a file that 'evenbins dedup --state' wrote, or another one to start anew"
        ) from None


def check_state(path: str, state: Deduplicator, **options: Any) -> None:
    """Raise an error for an option that was given and differs from the state's own."""
    for name, value in options.items():
        if value is None or value is False or getattr(state, name) == value:
            continue
        if name == "exact":
            raise click.ClickException(
                f"--state {path}: it holds filters, not exact digests: leave out --exact, or name "
                "another state"
            )
        if name == "seed":
            raise click.ClickException(
                f"--state {path}: it was made with another --seed: give that one, or leave it out"
            )
        if state.exact:
            raise click.ClickException(
                f"--state {path}: it holds exact digests, which have no rate: leave out --{name}, or name "
                "another state"
            )
        raise click.ClickException(
            f"--state {path}: it was made with --{name} {getattr(state, name):g}, not {value:g}: give "
            "that one, or leave it out"
        )
