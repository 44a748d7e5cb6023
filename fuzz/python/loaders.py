"""Classes from bytes and from files: every kind, growing filters, manifests of shards, `evenbins.open`.

FormatError, or an object that does what its class promises: it is saved as the bytes it came from,
copies, pickles, tells
its plan and stats, takes keys and finds them. Other errors of construction are findings.
"""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from typing import Any

from forge import forged

import evenbins
from evenbins import FormatError, _core
from evenbins.filters import sharded_files
from evenbins.study.counter_summary import CounterSummary
from evenbins.tables import summaries

CLASSES: dict[int, Any] = {
    1: evenbins.BloomFilter, 2: evenbins.BlockedBloomFilter, 3: evenbins.BalancedBloomFilter,
    4: evenbins.GrowingFilter, 5: evenbins.CountingBloomFilter, 6: evenbins.CountMinSketch,
    7: evenbins.MultilevelTable, 8: evenbins.ChainedTable, 9: summaries.InterpolationSummary,
    10: summaries.SingleFilterSummary, 11: summaries.MultipleBloomSummary, 12: CounterSummary,
    14: evenbins.HashRing, 15: evenbins.HyperLogLog, 16: evenbins.HeavyHitters,
    18: evenbins.FingerprintFilter, 19: evenbins.FuseFilter, 20: evenbins.WindowFilter,
}  # fmt: skip
_FOLDER = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
_PATH = os.path.join(_FOLDER.name, "file.evenbins")
_KEYS = ["a", b"b", 3, -4, 2**64 - 1]


def one(data: bytes) -> None:
    """Read one input in all ways."""
    if data[:1] in (b"{", b"["):
        return _manifest(data)
    kind = data[12] if len(data) > 12 else 0
    cls = CLASSES.get(kind, evenbins.BloomFilter)
    if kind == 14 and len(data) > 104 and data[80] == 2 and int.from_bytes(data[96:104], "little") > 16:
        return None  # a sparse ring of more than 2**16 places: its plan, and slow
    _read(cls, data)
    file = forged(data)
    found = _read(cls, file)
    if found is not None:
        _use(found, file)
    if _core.xxh3_64(data, 1) % 16 == 0:
        _files(cls, file, found is not None)
    return None


def _read(cls: Any, data: bytes) -> Any:
    try:
        return cls.from_bytes(data)
    except FormatError:
        return None


def _use(found: Any, file: bytes) -> None:
    assert found.to_bytes() == file, "saved again, other bytes"
    if _is_rare(file):  # these cost milliseconds: they solve equations
        repr(found)
        if hasattr(found, "stats"):
            repr(found.stats())
        if hasattr(found, "plan"):
            repr(found.plan)
    if isinstance(found, summaries.Summary):
        _summary(found)
        return
    if _is_rare(file[::-1]):
        twin = pickle.loads(pickle.dumps(found))
        assert twin.to_bytes() == file, "pickled, other bytes"
        assert found.copy().to_bytes() == file, "copied, other bytes"
    if isinstance(found, evenbins.HashRing):
        for key in _KEYS:
            try:
                assert found.assign(key) == found.locate(key)
            except (evenbins.NoNodesError, evenbins.RingFullError):
                break
    elif isinstance(found, evenbins.FuseFilter):
        assert found.contains_many(_KEYS).tolist() == [key in found for key in _KEYS]
    elif isinstance(found, evenbins.WindowFilter):
        found.clock = float  # which returns 0: the shortest window does not pass meanwhile
        try:
            found.add_many(_KEYS)
        except evenbins.FilterFullError:
            return
        assert _KEYS[-1] in found, "a key that was just added is absent"
    elif isinstance(found, evenbins.HyperLogLog):
        found.add_many(_KEYS)
        assert found.count() > 1
    elif isinstance(found, evenbins.CountMinSketch | evenbins.HeavyHitters):
        try:
            found.add_many(_KEYS)
        except OverflowError:
            return
        assert all(found.count(key) >= 1 for key in _KEYS)
    elif isinstance(found, evenbins.MultilevelTable | evenbins.ChainedTable):
        keys: list[Any] = ["a", b"b"] if found.key_dtype == "digest" else [3, 4]
        try:
            for key in keys:
                found[key] = 7
        except evenbins.TableFullError:
            return
        assert all(found[key] == 7 for key in keys)
    elif hasattr(found, "add_many"):
        try:
            found.add_many(_KEYS)
        except (OverflowError, ValueError, evenbins.FilterFullError) as error:
            assert "full" in str(error), error
            return
        assert all(found.contains_many(_KEYS)), "a key that was added is absent"


def _summary(found: Any) -> None:
    found.level_many(_KEYS)
    if not isinstance(found, CounterSummary):
        found.add_many(_KEYS, [1] * len(_KEYS))
        assert all(found.level_many(_KEYS)), "a key that was added is absent"


def _is_rare(data: bytes) -> bool:
    return _core.xxh3_64(data, 0) % 64 == 0


def _files(cls: Any, file: bytes, good: bool) -> None:
    with open(_PATH, "wb") as target:
        target.write(file)
    for read in (cls.load, lambda path: cls.open(path, verify=True)):
        try:
            read(_PATH)
        except FormatError:
            assert not good, "a file is refused whose bytes are read"
        else:
            assert good, "a file is read whose bytes are refused"
    try:
        found = cls.open(_PATH)
    except FormatError:
        assert not good
    else:  # unverified: any answer, but an answer
        if hasattr(found, "contains_many"):
            keys = _KEYS
            if isinstance(found, evenbins.MultilevelTable | evenbins.ChainedTable):
                keys = ["a", b"b"] if found.key_dtype == "digest" else [3, 4]
            found.contains_many(keys)
    for any_kind in (evenbins.load, evenbins.open):
        try:
            any_kind(_PATH)
        except FormatError:
            continue


def _manifest(data: bytes) -> None:
    for text in (data, _sealed(data)):
        try:
            found = sharded_files.Manifest.read(text)
        except FormatError:
            continue
        found.plan()


def _sealed(data: bytes) -> bytes:
    try:
        content = json.loads(data)
        content.pop("checksum", None)
        return json.dumps(content | {"checksum": sharded_files._checksum(content)}).encode()
    except (ValueError, RecursionError, AttributeError, TypeError):
        return b"{}"
