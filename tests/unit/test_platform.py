"""What the package asks of the operating system: _platform.py. The core's half is in tools/selftest.cpp."""

from __future__ import annotations

import os
import stat
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
