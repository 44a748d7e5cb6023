"""Fingerprint filters of damaged files, opened unverified: they answer, and refuse to be built upon.

Lines are built from the fingerprints that a filter holds. Those of a damaged one may belong to other blocks,
or have no place at all: nothing but look-ups may use them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenbins import FingerprintFilter, FormatError, ShardedFilter, WindowFilter

KEYS = range(2000)


def damaged(path: Path, filter_: Any) -> Any:
    """Write a file, change some bytes of its lines, and map it."""
    data, rng = bytearray(filter_.to_bytes()), random.Random(3)
    start = int.from_bytes(data[40:48], "little") + 64  # behind the words of state
    for _ in range(40):
        data[rng.randrange(start, len(data))] = 255
    path.write_bytes(data)
    return type(filter_).open(path)


def filled(semantics: str) -> FingerprintFilter:
    f = FingerprintFilter(2200, 1e-4, semantics=semantics)
    f.add_many(KEYS)
    return f


@pytest.mark.parametrize(
    "use",
    [
        lambda sound, bad: bad.copy(), lambda sound, bad: bad.doubled(), lambda sound, bad: bad.freeze(),
        lambda sound, bad: sound | bad, lambda sound, bad: bad | sound, lambda sound, bad: sound - bad,
        lambda sound, bad: sound ^ bad, lambda sound, bad: sound.union(bad),
    ],
    ids=["copy", "doubled", "freeze", "or", "ror", "minus", "xor", "union"],
)  # fmt: skip
def test_what_builds_other_lines_refuses(tmp_path: Path, use: Callable[[Any, Any], Any]) -> None:
    sound = filled("set")
    before = sound.to_bytes()
    bad = damaged(tmp_path / "f", sound)
    assert len(bad.contains_many(KEYS)) == len(KEYS)
    assert bad.stats().keys >= 0
    with pytest.raises(FormatError, match="the mapped file is damaged"):
        use(sound, bad)
    assert sound.to_bytes() == before


def test_sums_shards_and_windows_refuse_too(tmp_path: Path) -> None:
    sound = filled("multiset")
    bad = damaged(tmp_path / "f", sound)
    with pytest.raises(FormatError, match="damaged"):
        sound += bad
    shards = ShardedFilter.from_shards([FingerprintFilter.from_plan(sound.plan) for _ in range(2)], 4000)
    other = ShardedFilter.from_shards([bad, bad], 4000)
    with pytest.raises(FormatError, match="damaged"):
        shards += other
    window = WindowFilter(2000, 2000, 1e-4)
    window.add_many(KEYS)
    with pytest.raises(FormatError, match="damaged"):
        damaged(tmp_path / "w", window).copy()


def test_a_sound_mapped_file_is_used(tmp_path: Path) -> None:
    filled("set").save(tmp_path / "f")
    opened = FingerprintFilter.open(tmp_path / "f")
    assert opened.copy() == opened.doubled().halved() == filled("set") | opened
