"""The filter in shards: it answers and behaves as one filter, and its directory is whole or refused.

Its shards are filters with suites of their own; here it is about what lies between them: which key goes
where, what belongs together, and what a damaged, missing, extra or foreign file leads to.
"""

from __future__ import annotations

import copy
import json
import operator
import os
import pickle
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenbins
import reference
from evenbins import BlockedBloomFilter, Filter, FormatError, _core, digest, digest_many
from evenbins.filters import plan_blocked, plan_sharded
from evenbins.filters import sharded_files as directory
from evenbins.filters.sharded import ShardedFilter
from reference.sharded import shard_word

POLICIES = ["standard", "blocked", "single", "sequential", "multilevel", "fill", "two-choice"]
each_policy = pytest.mark.parametrize("policy", POLICIES)
KEYS: list[Any] = ["apple", b"pear", 3, -3, "ключ", 2**64 - 1, b"", *range(50, 1250)]
OTHERS: list[Any] = [f"other-{i}" for i in range(700)]
ABSENT = [f"absent-{i}" for i in range(2000)]


def small(policy: str = "blocked", capacity: int = 2000, shards: int = 5, **arguments: Any) -> ShardedFilter:
    arguments = {"fpr": 1e-3} | arguments
    return ShardedFilter(capacity, policy=policy, shards=shards, **arguments)


def filled(policy: str = "blocked", keys: Any = KEYS, **arguments: Any) -> ShardedFilter:
    f = small(policy, **arguments)
    f.add_many(keys)
    return f


# --- keys in, answers out ------------------------------------------------------------------------------


@each_policy
def test_no_key_is_lost_one_by_one_or_in_bulk_by_any_number_of_threads(policy: str) -> None:
    one = small(policy)
    for key in KEYS:
        one.add(key)
    for threads in (1, 2, 4, 8):
        many = small(policy)
        for start in range(0, len(KEYS), 300):
            many.add_many(KEYS[start : start + 300], threads=threads)
        assert many == one
        assert many.to_bytes() == one.to_bytes()
        assert many.contains_many(KEYS, threads=threads).all()
    assert all(key in one for key in KEYS)
    assert one.contains_many(digest_many(KEYS), digests=True).all()
    assert one.contains_many(ABSENT).tolist() == [key in one for key in ABSENT]
    one._check()


def test_every_shard_is_the_ordinary_filter_of_its_own_keys() -> None:
    f = filled()
    for number, part in enumerate(f.parts):
        own = BlockedBloomFilter.from_plan(f.sharding.shard)
        own.add_many([key for key in KEYS if f.shard_of(key) == number])
        assert part == own


def test_the_shard_is_a_second_hash_of_the_digest() -> None:
    f = small(shards=7)
    for key in KEYS:
        assert f.shard_of(key) == reference.mulhi(shard_word(digest(key)), 7)
    digests = digest_many(KEYS)
    words = _core.shard_words(digests)
    assert words.tolist() == [shard_word(int(each)) for each in digests]
    assert (_core.shard_digests(words) == digests).all()


def test_splitting_keeps_the_order_within_a_shard() -> None:
    digests = digest_many(range(10_000))
    grouped, starts, places = _core.split_by_shard(digests, 11, True)
    assert (digests[places] == grouped).all()
    assert starts[0] == 0
    assert starts[-1] == 10_000
    for shard in range(11):
        mine = places[int(starts[shard]) : int(starts[shard + 1])]
        assert (np.diff(mine) > 0).all()
        assert {_core.shard_of(int(each), 11) for each in digests[mine]} == {shard}
    with pytest.raises(ValueError, match="shards"):
        _core.split_by_shard(digests, 0, False)


def test_batches_larger_than_a_piece_are_cut() -> None:
    """Pieces have 2**18 keys: three of them here, looked up whole and in parts."""
    keys = np.random.default_rng(3).integers(0, 2**63, 600_000)
    f = ShardedFilter(len(keys), fpr=1e-2, shards=5)
    f.add_many(keys)
    assert f.contains_many(keys).all()
    others = keys ^ 1
    expected = np.concatenate([f.contains_many(part) for part in np.array_split(others, 29)])
    for threads in (1, 2, 7):
        assert (f.contains_many(others, threads=threads) == expected).all()


def test_many_keys_may_come_as_arrays_columns_and_iterables() -> None:
    f = small()
    f.update(np.arange(10).reshape(2, 5), pa.array(["a", "b"]), iter([b"c"]), [])
    assert f.contains_many(np.arange(10).reshape(2, 5)).shape == (2, 5)
    assert f.contains_many(np.arange(10).reshape(2, 5)).all()
    assert "a" in f
    assert f.contains_many([]).shape == (0,)
    with pytest.raises(TypeError, match="not one str"):
        f.add_many("abc")
    with pytest.raises(TypeError, match=r"keys\[1\].*float.*before it have been added"):
        f.add_many(["new", 1.5, "newer"])
    assert "new" in f
    assert "newer" not in f
    with pytest.raises(TypeError):
        f.add(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threads"):
        f.add_many([1], threads=0)


def test_it_satisfies_the_protocol() -> None:
    assert isinstance(small(), Filter)


# --- the filter as a whole -----------------------------------------------------------------------------


@each_policy
def test_a_union_holds_the_keys_of_both(policy: str) -> None:
    a, b = filled(policy), filled(policy, OTHERS)
    both = a | b
    assert both.contains_many(KEYS).all()
    assert both.contains_many(OTHERS).all()
    for mine, first, second in zip(both.parts, a.parts, b.parts, strict=True):
        assert mine == first | second
    a |= b
    assert a == both


def test_what_differs_cannot_be_merged() -> None:
    for other, what in [
        (small(seed=1), "seeds"), (small(shards=6), "shards"), (small(fpr=1e-2), "plans"),
        (small("fill"), "plans"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=what):
            operator.ior(small(), other)
        assert small() != other
    with pytest.raises(TypeError):
        operator.or_(small(), BlockedBloomFilter(10))
    assert small() != 3


@pytest.mark.parametrize("duplicate", [ShardedFilter.copy, copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_is_equal_and_independent(duplicate: Callable[[Any], Any]) -> None:
    f = filled()
    twin = duplicate(f)
    if isinstance(twin, bytes):
        twin = pickle.loads(twin)
    assert twin == f
    assert twin.plan == f.plan
    assert twin.capacity == f.capacity
    twin.add_many(OTHERS)
    assert twin != f
    twin.clear()
    assert twin == small()
    with pytest.raises(TypeError):
        hash(f)


@each_policy
def test_stats_are_those_of_the_shards_together(policy: str) -> None:
    f = filled(policy, range(2000))
    stats, plan, parts = f.stats(), f.plan, [part.stats() for part in f.parts]
    assert stats.keys == pytest.approx(sum(part.keys for part in parts))
    assert stats.fpr == pytest.approx(np.mean([part.fpr for part in parts]))
    assert stats.keys == pytest.approx(2000, rel=0.05)
    assert f.approx_items() == pytest.approx(stats.keys)
    assert plan.policy == "sharded"
    assert f.nbytes == plan.nbytes == stats.nbytes == sum(part.nbytes for part in f.parts)
    assert plan.bits_per_key == stats.bits_per_key
    assert plan.fpr <= 1e-3
    assert stats.reads == pytest.approx(plan.reads, rel=0.05)
    for level, counts in enumerate(stats.loads):
        assert sum(counts) == sum(sum(part.loads[level]) for part in parts)
    json.dumps([plan.to_dict(), stats.to_dict(), f.sharding.to_dict()])
    assert "shards=5" in repr(f)
    assert "<table>" in f._repr_html_()
    assert "<table>" in f.sharding._repr_html_()
    assert "exceed" in str(f.sharding)


def test_the_repr_keeps_the_seed(tmp_path: Path) -> None:
    f = small(seed=123456789)
    assert "seed='set'" in repr(f)
    assert "123456789" not in repr(f)
    f.save(tmp_path / "f")
    assert "read-only" in repr(ShardedFilter.open(tmp_path / "f"))


def test_shards_that_were_filled_elsewhere_are_put_together() -> None:
    f = filled()
    assert ShardedFilter.from_shards(f.parts, 2000) == f
    with pytest.raises(ValueError, match="shard 1 differs"):
        ShardedFilter.from_shards([f.parts[0], BlockedBloomFilter(10)], 2000)
    with pytest.raises(ValueError, match="one filter at least"):
        ShardedFilter.from_shards([], 2000)


def test_the_arguments_are_checked() -> None:
    for arguments, what in [
        ({}, "shards or shard_bytes"), ({"shards": 2, "shard_bytes": 100}, "shards or shard_bytes"),
        ({"shards": 0}, "shards must be"), ({"shards": 2**21}, "shards must be"),
        ({"shards": 1001}, "at most the number of keys"), ({"shard_bytes": 3}, "shard_bytes must be"),
        ({"shards": 2, "policy": "best"}, "policy must be"), ({"shards": 2, "fpr": 2}, "fpr must be"),
        ({"shards": 2, "fpr": 0.1, "bits_per_key": 3}, "exclude"),
        ({"shards": 2, "seed": -1}, "seed must be"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=what):
            ShardedFilter(1000, **arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ShardedPlan"):
        ShardedFilter.from_plan(plan_blocked(10))  # type: ignore[arg-type]


def test_a_plan_that_does_not_fit_is_a_memory_error_with_its_size() -> None:
    with pytest.raises(MemoryError, match=r"TB and this machine has"):
        ShardedFilter.from_plan(plan_sharded(1e13, fpr=1e-3, shard_bytes=2**32))


# --- the directory -------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    filled().save(tmp_path / "saved")
    return tmp_path / "saved"


def shard_folder(saved: Path) -> Path:
    (folder,) = saved.glob("shards-*")
    return folder


READERS = [
    ShardedFilter.load, ShardedFilter.open, lambda path: ShardedFilter.open(path, verify=True), evenbins.load,
    evenbins.open,
]  # fmt: skip
THOROUGH = [READERS[0], READERS[2], READERS[3]]


@each_policy
def test_what_is_saved_is_read(policy: str, tmp_path: Path) -> None:
    f = filled(policy, seed=7)
    f.save(tmp_path / "f")
    for read in READERS:
        g: Any = read(tmp_path / "f")
        assert isinstance(g, ShardedFilter)
        assert g == f
        assert g.to_bytes() == f.to_bytes()
        assert (g.plan, g.capacity, g.seed, g.shards) == (f.plan, 2000, 7, 5)
        assert g.contains_many(KEYS).all()
        g._check()


def test_an_open_filter_refuses_to_be_changed_and_says_what_to_do(saved: Path) -> None:
    f = ShardedFilter.open(saved)
    for change in (
        lambda: f.add("x"), lambda: f.add_many(["x"]), f.clear, lambda: operator.ior(f, f.copy()),
        lambda: f.update(["x"]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="read-only"):
            change()
    g = f.copy()
    g.add("x")
    assert "x" in g


def test_saving_again_replaces_the_filter_and_who_has_it_open_keeps_the_old_one(saved: Path) -> None:
    old = ShardedFilter.open(saved)
    new = filled(keys=OTHERS, shards=3)
    new.save(saved)
    assert ShardedFilter.load(saved) == new
    assert old == filled()
    assert sorted(each.name for each in shard_folder(saved).iterdir()) == [f"0000{i}.evb" for i in range(3)]


@pytest.mark.parametrize("step", range(6))
def test_a_save_that_fails_leaves_the_old_filter(
    saved: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the five files, then the manifest, cannot be written."""
    real, calls = evenbins._files.replace_file, []

    def failing(path: Any, write: Any) -> None:
        calls.append(path)
        if len(calls) == step + 1:
            raise OSError(28, "No space left on device")
        real(path, write)

    monkeypatch.setattr("evenbins._files.replace_file", failing)
    with pytest.raises(OSError, match="No space"):
        filled(keys=OTHERS).save(saved)
    assert ShardedFilter.load(saved) == filled()
    assert len(list(saved.glob("shards-*"))) == 1  # nothing is left of it


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_behind_the_manifest_leaves_the_new_filter(
    saved: Path, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest names the new shards already: to take them away would leave no filter at all."""
    real = evenbins._files.replace_file

    def failing(path: Any, write: Any) -> None:
        real(path, write)
        if Path(path).name == "manifest.json":
            raise error("broken")

    monkeypatch.setattr("evenbins._files.replace_file", failing)
    with pytest.raises(error):
        filled(keys=OTHERS).save(saved)
    monkeypatch.undo()
    assert ShardedFilter.load(saved) == filled(keys=OTHERS)
    filled().save(saved)
    assert len(list(saved.glob("shards-*"))) == 1


def test_what_an_interrupted_save_leaves_does_no_harm_and_goes_with_the_next(saved: Path) -> None:
    other = saved / f"shards-{0:016x}"
    shutil.copytree(shard_folder(saved), other)
    (other / "00004.evb").unlink()
    (saved / f".evenbins-{0:016x}.tmp").write_bytes(b"half")
    assert ShardedFilter.load(saved) == filled()
    filled().save(saved)
    assert not other.exists()


def test_a_reader_that_meets_a_save_reads_again(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between manifest and shards somebody saves: the old shards are gone, the new manifest is read."""
    real, calls = directory.manifest_of, []

    def interrupted(folder: Path) -> bytes:
        text = real(folder)
        if not calls:
            filled(keys=OTHERS).save(saved)
        calls.append(text)
        return text

    monkeypatch.setattr("evenbins.filters.sharded.manifest_of", interrupted)
    assert ShardedFilter.load(saved) == filled(keys=OTHERS)
    assert len(calls) == 3


@pytest.mark.parametrize("read", READERS)
def test_a_missing_directory_is_no_file(read: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")


def test_what_is_no_sharded_filter_is_said(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    BlockedBloomFilter(10).save(tmp_path / "file")
    for name in ("folder", "file"):
        with pytest.raises(FormatError, match=name):
            ShardedFilter.load(tmp_path / name)
    with pytest.raises(OSError, match="folder"):
        evenbins.load(tmp_path / "folder")
    with pytest.raises(NotADirectoryError, match="file"):
        small().save(tmp_path / "file")
    (tmp_path / "folder" / "letter.txt").write_text("dear")
    with pytest.raises(FileExistsError, match="other files"):
        small().save(tmp_path / "folder")
    assert [each.name for each in (tmp_path / "folder").iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("number", range(5))
def test_a_missing_shard_is_refused(read: Callable[..., Any], saved: Path, number: int) -> None:
    (shard_folder(saved) / f"{number:05d}.evb").unlink()
    with pytest.raises(FormatError, match=rf"{number:05d}\.evb is missing"):
        read(saved)


@pytest.mark.parametrize("read", READERS)
def test_a_missing_folder_is_refused(read: Callable[..., Any], saved: Path) -> None:
    shutil.rmtree(shard_folder(saved))
    with pytest.raises(FormatError, match=r"folder shards-.* is missing"):
        read(saved)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", ["00005.evb", "00000.evb.old", "shard", "../00000.evb", "../00009.evb"])
def test_an_extra_file_is_refused(read: Callable[..., Any], saved: Path, name: str) -> None:
    shutil.copy(shard_folder(saved) / "00000.evb", shard_folder(saved) / name)
    with pytest.raises(FormatError, match=name.removeprefix("../")):
        read(saved)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "foreign",
    [
        lambda: filled(keys=OTHERS).parts[2],  # of another filter of the same plan
        lambda: filled().parts[3],  # of this filter, but another shard
        lambda: filled(seed=1).parts[2],
        lambda: filled(fpr=1e-2).parts[2],
        lambda: filled("fill").parts[2],
        lambda: filled("standard").parts[2],
    ],
)
def test_a_foreign_shard_is_refused(
    read: Callable[..., Any], saved: Path, foreign: Callable[[], Any]
) -> None:
    foreign().save(shard_folder(saved) / "00002.evb")
    with pytest.raises(FormatError, match=r"00002\.evb"):
        read(saved)


@pytest.mark.parametrize("read", THOROUGH)
def test_every_flipped_bit_of_a_shard_is_found(read: Callable[..., Any], saved: Path) -> None:
    path = shard_folder(saved) / "00001.evb"
    whole = path.read_bytes()
    rng = random.Random(1)
    for at in [*range(0, 128, 11), *(rng.randrange(len(whole)) for _ in range(12)), len(whole) - 1]:
        broken = bytearray(whole)
        broken[at] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(FormatError, match=r"saved: 00001\.evb"):
            read(saved)


@pytest.mark.parametrize("read", READERS)
def test_a_shard_cut_short_or_too_long_is_refused(read: Callable[..., Any], saved: Path) -> None:
    path = shard_folder(saved) / "00001.evb"
    whole = path.read_bytes()
    for broken in [b"", whole[:30], whole[:100], whole[:-1], whole + b"\0"]:
        path.write_bytes(broken)
        with pytest.raises(FormatError, match=r"00001\.evb"):
            read(saved)


@pytest.mark.parametrize("read", READERS)
def test_every_changed_byte_of_the_manifest_is_found(read: Callable[..., Any], saved: Path) -> None:
    path = saved / "manifest.json"
    whole = path.read_bytes()
    for at in range(0, len(whole), 23):
        broken = bytearray(whole)
        broken[at] ^= 1
        path.write_bytes(broken)
        try:
            same = json.loads(broken) == json.loads(whole)  # a blank that became another
        except ValueError:
            same = False
        if not same:
            with pytest.raises(FormatError, match="saved"):
                read(saved)
    for broken in (b"", b"[]", b"{}", whole[: len(whole) // 2], b"\xff" * 50, b"[" * 100_000):
        path.write_bytes(broken)
        with pytest.raises(FormatError, match="saved"):
            read(saved)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"version": 2}, "version 2"), ({"shards": 4}, "contradict"), ({"files": []}, "contradict"),
        ({"folder": "../elsewhere"}, "folder"), ({"core": [0, 512, 9]}, "damaged"),
        ({"core": "abc"}, "damaged"),
        ({"core": [10, 512, 9]}, "00000.evb"), ({"seed": 5}, "00000.evb"), ({"shard_keys": 3}, "00000.evb"),
        ({"policy": "fill"}, "damaged"), ({"keys": 0}, "damaged"), ({"keys": "many"}, "damaged"),
        ({"format": "other"}, "not one of"),
    ],
)  # fmt: skip
def test_a_manifest_with_the_right_checksum_and_impossible_content_is_refused(
    saved: Path, change: dict[str, Any], what: str
) -> None:
    content = json.loads((saved / "manifest.json").read_text())
    del content["checksum"]
    content |= change
    text = json.dumps(content | {"checksum": directory._checksum(content)})
    (saved / "manifest.json").write_text(text)
    with pytest.raises(FormatError, match=what):
        ShardedFilter.load(saved)


def test_damaged_bytes_are_a_format_error() -> None:
    whole = filled(capacity=200, shards=2, keys=[1]).to_bytes()
    rng = random.Random(2)
    for at in [*range(16), *(rng.randrange(16, len(whole)) for _ in range(150))]:
        broken = bytearray(whole)
        broken[at] ^= 1 << rng.randrange(8)
        try:
            found = ShardedFilter.from_bytes(bytes(broken))
        except FormatError:
            continue
        assert found.to_bytes() == whole  # a blank of the manifest
    for broken in (whole[:-1], whole + b"\0", whole[:12], b"", whole[:200]):
        with pytest.raises(FormatError):
            ShardedFilter.from_bytes(bytes(broken))
    with pytest.raises(TypeError):
        ShardedFilter.from_bytes(3)  # type: ignore[arg-type]


def test_the_manifest_says_what_belongs_together(saved: Path) -> None:
    content = json.loads((saved / "manifest.json").read_text())
    assert content["shards"] == 5
    assert content["keys"] == 2000
    for entry in content["files"]:
        data = (shard_folder(saved) / entry["name"]).read_bytes()
        assert len(data) == entry["nbytes"]
        (offset,) = struct.unpack_from("<Q", data, 40)
        assert f"{struct.unpack_from('<Q', data, offset - 8)[0]:016x}" == entry["checksum"]
    assert os.path.basename(shard_folder(saved)) == content["folder"]


@pytest.mark.parametrize("policy", ["standard", "blocked", "fill", "two-choice"])
def test_the_plan_predicts_the_rate_of_an_overfilled_sharded_filter(policy: str) -> None:
    f = ShardedFilter(40_000, fpr=1e-3, shards=4, policy=policy)
    predicted = f.plan.overfilled_fpr
    assert predicted > 1.2 * f.plan.fpr
    f.add_many(range(44_000))
    assert f.stats().fpr == pytest.approx(predicted, rel=0.15)
    with pytest.raises(ValueError, match=r"Take a shard's plan, sharding\.shard"):
        f.plan.merged(2)
    assert f.sharding.shard.merged(2).fpr >= f.sharding.shard.fpr
