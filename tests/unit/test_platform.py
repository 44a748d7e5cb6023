"""What the package asks of the operating system: _platform.py. The core's half is in tools/selftest.cpp."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from pathlib import Path

import pytest

from evenbins import _platform


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | _platform.OPEN, 0o600)


def test_one_exclusive_lock_or_many_shared_ones(tmp_path: Path) -> None:
    one, two, three = (_open(tmp_path / "file") for _ in range(3))
    try:
        _platform.lock(one, exclusive=False)
        _platform.lock(two, exclusive=False)
        with pytest.raises(BlockingIOError):
            _platform.lock(three, exclusive=True)
        os.close(two)
        _platform.lock(one, exclusive=True)
        with pytest.raises(BlockingIOError):
            _platform.lock(three, exclusive=False)
    finally:
        os.close(one)
    _platform.lock(three, exclusive=True)
    os.close(three)
    with pytest.raises(OSError, match="Bad file descriptor"):
        _platform.lock(three, exclusive=True)


def test_files_are_not_inherited_and_have_the_mode_that_is_set(tmp_path: Path) -> None:
    descriptor = _open(tmp_path / "file")
    assert not os.get_inheritable(descriptor)
    _platform.set_mode(descriptor, 0o640)
    assert stat.S_IMODE(os.fstat(descriptor).st_mode) == 0o640
    os.close(descriptor)


def test_files_and_folders_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    folder = _platform.open_folder(tmp_path)
    assert folder is not None
    assert stat.S_ISDIR(os.fstat(folder).st_mode)
    _platform.flush(folder)
    os.close(folder)
    assert flushed == [folder]


def test_memory() -> None:
    peak = _platform.peak_memory()
    assert peak is not None
    assert 2**20 < peak < _platform.machine_memory()
    assert 2**20 < _platform.available_memory() <= _platform.machine_memory()


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.EIO])
def test_a_file_system_without_a_full_flush_gets_a_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """As on a network share of macOS; any other error is one."""

    def refuse(descriptor: int, operation: int) -> int:
        raise OSError(code, os.strerror(code))

    flushed: list[int] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    monkeypatch.setattr(os, "fsync", flushed.append)
    with (tmp_path / "file").open("wb") as file:
        if code == errno.ENOTSUP:
            _platform.flush(file.fileno())
            assert flushed == [file.fileno()]
        else:
            with pytest.raises(OSError, match=os.strerror(code)):
                _platform.flush(file.fileno())
