"""Files: what was saved comes back, bit for bit; what was damaged does not; a save is whole or not at all.

`reference.format` is the oracle of the bytes. Files that no program of ours wrote are forged with its
constants: any field may be changed and the checksums are right again, so that each check is reached.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import mmap
import os
import random
import resource
import stat
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import ROUNDS

import evenbins
from evenbins import BalancedBloomFilter, BlockedBloomFilter, BloomFilter, FormatError, _files
from evenbins.study.levels import plan_levels
from reference import ReferenceBalanced, ReferenceBlocked, ReferenceBloom
from reference.bloom import ReferenceFilter
from reference.format import CHECKSUM, FIXED, header_bytes, pack, unpack
from reference.xxh3 import xxh3_64

AnyFilter = BloomFilter | BlockedBloomFilter | BalancedBloomFilter
KEYS: list[Any] = ["", "a", b"\0\xff", "ключ", "x" * 300, 0, -1, 2**64 - 1, -(2**63), *range(100, 110)]
ABSENT = [f"absent {i}" for i in range(200)]

MAKE: dict[str, Callable[[], AnyFilter]] = {
    "standard": lambda: BloomFilter(19, bits_per_key=12.7),  # 242 bits: the last word is not full
    "standard, seeded": lambda: BloomFilter(20, bits_per_key=12.8, hashes=40, seed=2**64 - 1),
    "blocked": lambda: BlockedBloomFilter(50, bits_per_key=16),
    "blocked 256": lambda: BlockedBloomFilter(40, bits_per_key=16, block_bits=256, hashes=20, seed=7),
    "balanced, a list": lambda: BalancedBloomFilter.from_plan(  # one half line; keys on the list, and spilled
        plan_levels(
            20, policy="single", blocks=[1], thresholds=[7], hashes=9, block_bits=256, coin=0.5,
            overflow_limit=6, seed=7,
        )
    ),
    "balanced, bits": lambda: BalancedBloomFilter.from_plan(
        plan_levels(20, policy="fill", blocks=[1, 1], thresholds=[90], hashes=11, block_bits=256)
    ),
}  # fmt: skip
each_kind = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE.keys())


def filled(make: Callable[[], AnyFilter]) -> AnyFilter:
    f = make()
    f.update(KEYS)
    return f


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "filter.evenbins"


# --- forged files --------------------------------------------------------------------------------

FIELDS = (
    "magic", "version", "kind", "hash_id", "hashing", "seed", "capacity",
    "payload_offset", "payload_bytes", "payload_checksum", "core_words",
)  # fmt: skip


def forge(
    data: bytes,
    *,
    core: list[int] | None = None,
    payload: bytes | None = None,
    padding: bytes = b"",
    **fields: int,
) -> bytes:
    """Change fields of a file; sizes and checksums follow, unless they are what is changed."""
    old = dict(zip(FIELDS, FIXED.unpack_from(data), strict=True))
    if core is None:
        core = list(struct.unpack_from(f"<{old['core_words']}Q", data, FIXED.size))
    if payload is None:
        payload = data[old["payload_offset"] :]
    size = header_bytes(len(core))
    new = old | {"payload_offset": size, "core_words": len(core)}
    new |= {"payload_bytes": len(payload), "payload_checksum": xxh3_64(payload)} | fields
    header = FIXED.pack(*new.values()) + struct.pack(f"<{len(core)}Q", *core) + padding
    header = header.ljust(size - CHECKSUM.size, b"\0")
    return header + CHECKSUM.pack(xxh3_64(header)) + payload


READERS: dict[str, Callable[[type[AnyFilter], Path], Any]] = {
    "from_bytes": lambda cls, path: cls.from_bytes(path.read_bytes()),
    "load": lambda cls, path: cls.load(path),
    "open": lambda cls, path: cls.open(path),
    "open, verify": lambda cls, path: cls.open(path, verify=True),
    "evenbins.load": lambda cls, path: evenbins.load(path),
    "evenbins.open": lambda cls, path: evenbins.open(path),
    "evenbins.open, verify": lambda cls, path: evenbins.open(path, verify=True),
}
VERIFYING = [name for name in READERS if "open" not in name or "verify" in name]


def assert_refused(
    data: bytes, cls: type[AnyFilter], path: Path, message: str, readers: Any = READERS
) -> None:
    path.write_bytes(data)
    for name in readers:
        with pytest.raises(FormatError, match=message):
            READERS[name](cls, path)


# --- round trips ---------------------------------------------------------------------------------


@each_kind
def test_a_saved_filter_comes_back_equal_by_every_way(make: Callable[[], AnyFilter], path: Path) -> None:
    f = filled(make)
    f.save(path)
    assert path.read_bytes() == f.to_bytes()
    for name, read in READERS.items():
        back = read(type(f), path)
        assert type(back) is type(f), name
        assert back == f, name
        assert back.to_bytes() == f.to_bytes(), name
        assert back.plan == f.plan
        assert back.plan.to_dict() == f.plan.to_dict(), name
        assert back.stats() == f.stats(), name
        assert (back.seed, back.capacity, back.nbytes) == (f.seed, f.capacity, f.nbytes)
        assert all(key in back for key in KEYS)
        assert back.contains_many(ABSENT).tolist() == f.contains_many(ABSENT).tolist()
        back._check()


@each_kind
def test_the_bytes_are_the_references_bytes(make: Callable[[], AnyFilter]) -> None:
    f = filled(make)
    twin: ReferenceFilter
    if isinstance(f, BloomFilter):
        bits, hashes = f.plan.core
        twin = ReferenceBloom(bits, hashes, f.seed)
    elif isinstance(f, BalancedBloomFilter):
        twin = ReferenceBalanced(f.plan.core, f.seed)
    else:
        blocks, block_bits, hashes = f.plan.core
        twin = ReferenceBlocked(blocks, block_bits, hashes, f.seed)
    for key in KEYS:
        twin.add(key)
    assert f.to_bytes() == pack(twin.kind, twin.hashing, f.seed, f.capacity, f.plan.core, twin.payload())


@each_kind
def test_the_payload_lies_on_a_cache_line_and_ends_the_file(make: Callable[[], AnyFilter]) -> None:
    f = filled(make)
    data = f.to_bytes()
    assert (len(data) - f.nbytes) % 64 == 0
    assert data[len(data) - f.nbytes :] == bytes(memoryview(f))


@each_kind
def test_an_empty_filter_and_one_of_one_key_come_back(make: Callable[[], AnyFilter]) -> None:
    f = make()
    assert type(f).from_bytes(f.to_bytes()) == f
    f.add("only")
    assert type(f).from_bytes(f.to_bytes()) == f


def test_any_bytes_like_object_is_read_however_it_is_aligned() -> None:
    f = filled(MAKE["blocked"])
    data = f.to_bytes()
    shifted = memoryview(b"123" + data)[3:]
    for each in (bytearray(data), memoryview(data), shifted, np.frombuffer(data, np.uint8)):
        assert BlockedBloomFilter.from_bytes(each) == f  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["text", None, 7, 1.5, ["list"]])
def test_what_is_not_bytes_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"bytes"):
        BloomFilter.from_bytes(wrong)


def test_a_loaded_filter_is_independent_of_its_file_and_of_the_bytes(path: Path) -> None:
    f = filled(MAKE["standard"])
    f.save(path)
    before = path.read_bytes()
    loaded = BloomFilter.load(path)
    data = bytearray(before)
    rebuilt = BloomFilter.from_bytes(data)  # type: ignore[arg-type]
    data[:] = bytes(len(data))
    loaded.add("more")
    assert rebuilt == f != loaded
    assert path.read_bytes() == before


def test_paths_may_be_str_or_path_and_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    f = filled(MAKE["blocked"])
    f.save("here")
    f.save(tmp_path / "there")
    assert (
        evenbins.load("here")
        == evenbins.load(str(tmp_path / "there"))
        == BlockedBloomFilter.open(Path("here"))
    )


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    f = filled(MAKE["blocked"])
    longest = tmp_path / ("ä" * 127 + "x")  # 255 bytes
    f.save(longest)
    assert evenbins.load(longest) == f


# --- damage --------------------------------------------------------------------------------------


@each_kind
def test_every_truncation_is_refused(make: Callable[[], AnyFilter], path: Path) -> None:
    f = filled(make)
    data = f.to_bytes()
    step = 1 if ROUNDS > 1 else 11  # test_corruption.py cuts one file of each class at every byte
    for size in sorted({*range(len(data) - f.nbytes), *range(0, len(data), step), len(data) - 1}):
        assert_refused(data[:size], type(f), path, "file")


@each_kind
def test_every_flipped_bit_is_refused(make: Callable[[], AnyFilter], path: Path) -> None:
    """Of header and payload by whatever verifies; of the header by `open` as well.

    In a short run a bit of every byte of the header, and of every twelfth of the payload; long runs of
    test_corruption.py flip all of them in every kind of file.
    """
    f = filled(make)
    data = f.to_bytes()
    header = len(data) - f.nbytes
    step, sparse = (1, 1) if ROUNDS > 1 else (9, 97)  # the bits of a byte in turn
    for bit in [*range(0, 8 * header, step), *range(8 * header, 8 * len(data), sparse)]:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert_refused(bytes(damaged), type(f), path, ".", READERS if bit < 8 * header else VERIFYING)


@each_kind
def test_open_without_verify_takes_a_damaged_payload_and_stays_sound(
    make: Callable[[], AnyFilter], path: Path
) -> None:
    """That is its price; whatever the bits, it answers and does not crash.

    What costs one look is checked even so: spare bits, words of state.
    """
    f = filled(make)
    data = bytearray(f.to_bytes())
    bits = f.plan.core[0] if f.plan.policy == "standard" else 8 * f.nbytes
    for fill in (0x00, 0x55, 0xFF):
        payload = int.from_bytes(bytes([fill]) * f.nbytes, "little") & ((1 << bits) - 1)
        state = bytes(memoryview(f))[-64:] if f.plan.overflow_limit else b""
        data[-f.nbytes :] = payload.to_bytes(f.nbytes, "little")[: f.nbytes - len(state)] + state
        path.write_bytes(data)
        opened = type(f).open(path)
        assert opened.contains_many(KEYS).all() == (fill == 0xFF)
        with pytest.raises(FormatError, match="payload"):
            type(f).open(path, verify=True)


@each_kind
def test_bytes_behind_the_end_are_refused(make: Callable[[], AnyFilter], path: Path) -> None:
    f = filled(make)
    for extra in (b"\0", b"\n", f.to_bytes()):
        assert_refused(f.to_bytes() + extra, type(f), path, "something follows")


@pytest.mark.parametrize(
    "data", [b"x", b"EVENBIN", b"\x89PNG\r\n\x1a\n" + bytes(500), b"evenbins" + bytes(500), bytes(500)]
)
def test_other_files_are_called_other_files(data: bytes, path: Path) -> None:
    assert_refused(data, BloomFilter, path, "not an evenbins file")


def test_an_empty_file_is_a_format_error_that_names_it_once(path: Path) -> None:
    path.touch()
    for name, read in READERS.items():
        with pytest.raises(FormatError) as caught:
            read(BloomFilter, path)
        if name != "from_bytes":
            assert str(caught.value).count(str(path)) == 1
            assert "empty" in str(caught.value)


def test_every_format_error_of_a_file_names_it(path: Path) -> None:
    path.write_bytes(b"nonsense")
    for name, read in READERS.items():
        with pytest.raises(FormatError) as caught:
            read(BloomFilter, path)
        assert (str(path) in str(caught.value)) == (name != "from_bytes")


def test_a_format_error_is_a_value_error() -> None:
    assert issubclass(FormatError, ValueError)


@pytest.mark.parametrize("read", [r for n, r in READERS.items() if n != "from_bytes"])
def test_a_missing_file_and_a_folder_are_os_errors(read: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        read(BloomFilter, tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        read(BloomFilter, tmp_path)


# --- files that say what cannot be ---------------------------------------------------------------

EVERY: dict[str, tuple[dict[str, Any], str]] = {
    "kind 0": ({"kind": 0}, "unknown kind 0"),
    "kind 4": ({"kind": 4}, "growing filter"),
    "kind 5": ({"kind": 5}, "counting filter"),
    "kind 99": ({"kind": 99}, "unknown kind 99"),
    "kind 2**32-1": ({"kind": 2**32 - 1}, "unknown kind 4294967295"),
    "hash 0": ({"hash_id": 0}, "hash 0"),
    "hash 2": ({"hash_id": 2}, "hash 2"),
    "hashing 0": ({"hashing": 0}, "hashing"),
    "hashing 9": ({"hashing": 9}, "hashing"),
    "no capacity": ({"capacity": 0}, "capacity"),
    "huge capacity": ({"capacity": 2**64 - 1}, "capacity"),
    "no core": ({"core": []}, "core"),
    "short core": ({"core": [8]}, "core"),
    "long core": ({"core": [8, 256, 7, 1]}, "core"),
    "very long core": ({"core": [1] * 1024}, "core"),
    "longer than any core": ({"core": [1] * 1025}, "contradict"),
    "core counted wrong": ({"core_words": 20}, "contradict"),
    "core count wraps around": ({"core_words": 2**61 + 2, "payload_offset": 128}, "contradict"),
    "largest core count": ({"core_words": 2**64 - 1}, "contradict"),
    "no payload offset": ({"payload_offset": 0}, "contradict"),
    "payload offset 64": ({"payload_offset": 64}, "contradict"),
    "payload offset 256": ({"payload_offset": 256}, "contradict"),
    "largest payload offset": ({"payload_offset": 2**64 - 64}, "contradict"),
    "payload size 0": ({"payload_bytes": 0}, "size"),
    "largest payload size": ({"payload_bytes": 2**64 - 1}, "size"),
    "payload too small": ({"payload": b""}, "size"),
    "payload too large": ({"payload": bytes(4096)}, "size"),
    "padding": ({"padding": b"\1"}, "padding"),
}  # fmt: skip
SHORT: dict[str, tuple[dict[str, Any], str]] = {  # where the core has two or three words
    "kind 3": ({"kind": 3}, "balanced filter|hashing"),
    "payload offset 192": ({"payload_offset": 192}, "contradict"),
}
BOTH = EVERY | SHORT
STANDARD: dict[str, tuple[dict[str, Any], str]] = {
    "hashing of the other kind": ({"hashing": 2}, "hashing"),
    "other kind": ({"kind": 2}, "hashing"),
    "no bits": ({"core": [0, 3], "payload": b""}, "bits"),
    "too many bits": ({"core": [2**56 + 1, 3]}, "bits"),
    "most bits": ({"core": [2**64 - 1, 3], "payload_bytes": 0}, "bits"),
    "huge": ({"core": [2**56, 3], "payload_bytes": 2**53}, "cut short"),
    "huge, size not": ({"core": [2**56, 3]}, "size"),
    "no hashes": ({"core": [242, 0]}, "hashes"),
    "too many hashes": ({"core": [242, 65]}, "hashes"),
    "most hashes": ({"core": [242, 2**32 + 3]}, "hashes"),
}
BLOCKED: dict[str, tuple[dict[str, Any], str]] = {
    "hashing of the other kind": ({"hashing": 1}, "hashing"),
    "other kind": ({"kind": 1}, "hashing"),
    "no blocks": ({"core": [0, 512, 3], "payload": b""}, "blocks"),
    "too many blocks": ({"core": [2**47 + 1, 512, 3]}, "blocks"),
    "size wraps around": ({"core": [2**55 + 2, 512, 3]}, "blocks"),
    "huge": ({"core": [2**47, 512, 3], "payload_bytes": 2**53}, "cut short"),
    "huge, size not": ({"core": [2**47, 512, 3]}, "size"),
    "no hashes": ({"core": [2, 512, 0]}, "hashes"),
    "too many hashes": ({"core": [2, 512, 33]}, "hashes"),
    "most hashes": ({"core": [2, 512, 2**32 + 3]}, "hashes"),
    **{
        f"blocks of {bits}": ({"core": [2, bits, 3]}, "block_bits")
        for bits in (0, 1, 128, 511, 1024, 2**32 + 512)
    },
}


def core_with(changes: dict[int, int], base: tuple[int, ...] = (1, 256, 9, 1, 2**31, 6, 0, 0, 1, 7)) -> Any:
    """The core of "balanced, a list" with some words changed."""
    return {"core": [changes.get(i, word) for i, word in enumerate(base)]}


SEQUENTIAL = (2, 256, 9, 3, 2**31, 6, 0, 5, 1, 7)
FILL = (4, 256, 9, 1, 0, 0, 0, 0, 1, 257)
TWO_CHOICE = (5, 256, 9, 2, 0, 0, 0, 0, 1, 0)
BALANCED: dict[str, tuple[dict[str, Any], str]] = {
    "hashing of the other kind": ({"hashing": 1}, "hashing"),
    "standard": ({"kind": 1}, "hashing"),
    "blocked": ({"kind": 2}, "core|three numbers|blocks"),
    "half a table": ({"core": [1, 256, 9, 1, 2**31, 6, 0, 0, 1]}, "core"),
    "no table": ({"core": [1, 256, 9, 1, 2**31, 6, 0, 0]}, "core"),
    "policy 0": (core_with({0: 0}), "policy"),
    "policy 6": (core_with({0: 6}), "policy"),
    "blocks of 128": (core_with({1: 128}), "block_bits"),
    "no hashes": (core_with({2: 0}), "hashes"),
    "33 hashes": (core_with({2: 33}), "hashes"),
    "no choice": (core_with({3: 0}, SEQUENTIAL), "choices"),
    "nine choices": (core_with({3: 9}, SEQUENTIAL), "choices"),
    "two choices of single": (core_with({3: 2}), "choice"),
    "one choice of two": (core_with({3: 1}, TWO_CHOICE), "choices"),
    "fewer tables than choices": (core_with({0: 3, 3: 2}), "tables"),
    "coin above one": (core_with({4: 2**32 + 1}), "coin"),
    "coin of fill": (core_with({4: 1}, FILL), "coin"),
    "coin of two-choice": (core_with({4: 1}, TWO_CHOICE), "coin"),
    "a list too long": (core_with({5: 2**40 + 1}), "list"),
    "largest list": (core_with({5: 2**64 - 1}), "list"),
    "list of fill": (core_with({5: 1}, FILL), "list"),
    "list of two-choice": (core_with({5: 1}, TWO_CHOICE), "list"),
    "spill 2": (core_with({6: 2}), "spill"),
    "spill of fill": (core_with({6: 1}, FILL), "spill"),
    "budget of single": (core_with({7: 1}), "budget"),
    "budget without a list": (core_with({5: 0}, SEQUENTIAL), "budget"),
    "no blocks": (core_with({8: 0}), "blocks"),
    "too many blocks": (core_with({8: 2**47 + 1}), "blocks"),
    "size wraps around": (core_with({8: 2**59 + 1}), "blocks"),
    "too many bits": ({"core": [3, 512, 9, 2, 0, 6, 0, 0, 2**47, 7, 1, 7]}, "2.56 bits"),
    "threshold too high": (core_with({9: 65535}), "threshold"),
    "largest threshold": (core_with({9: 2**64 - 1}), "threshold"),
    "last level of fill": (core_with({9: 258}, FILL), "last level"),
    "threshold of two-choice": (core_with({9: 1}, TWO_CHOICE), "threshold"),
    "no threshold of fill": ({"core": [4, 256, 9, 2, 0, 0, 0, 0, 1, 0, 1, 257]}, "threshold"),
    "huge": (core_with({1: 512, 8: 2**47}) | {"payload_bytes": 2**53 + 16 * 8 + 64}, "cut short"),
    "huge, size not": (core_with({8: 2**47}), "size"),
}


@pytest.mark.parametrize(("changes", "message"), (BOTH | STANDARD).values(), ids=(BOTH | STANDARD).keys())
def test_an_impossible_standard_filter_is_refused(changes: dict[str, Any], message: str, path: Path) -> None:
    """By every reader, `open` too, before anything is allocated: a size of 2**53 is no MemoryError."""
    assert_refused(forge(filled(MAKE["standard"]).to_bytes(), **changes), BloomFilter, path, message)


@pytest.mark.parametrize(("changes", "message"), (BOTH | BLOCKED).values(), ids=(BOTH | BLOCKED).keys())
def test_an_impossible_blocked_filter_is_refused(changes: dict[str, Any], message: str, path: Path) -> None:
    assert_refused(forge(filled(MAKE["blocked"]).to_bytes(), **changes), BlockedBloomFilter, path, message)


@pytest.mark.parametrize(("changes", "message"), (EVERY | BALANCED).values(), ids=(EVERY | BALANCED).keys())
def test_an_impossible_balanced_filter_is_refused(changes: dict[str, Any], message: str, path: Path) -> None:
    data = filled(MAKE["balanced, a list"]).to_bytes()
    assert_refused(forge(data, **changes), BalancedBloomFilter, path, message)


@pytest.mark.parametrize("base", ["standard", "blocked", "balanced, a list"])
def test_the_reference_refuses_the_same_files(base: str) -> None:
    """It is the specification in Python: what it takes, the core takes."""
    data = filled(MAKE[base]).to_bytes()
    taken = []
    own = {"standard": SHORT | STANDARD, "blocked": SHORT | BLOCKED, "balanced, a list": BALANCED}[base]
    for name, (changes, _) in (EVERY | own).items():
        with contextlib.suppress(ValueError):
            unpack(forge(data, **changes))
            taken.append(name)
    assert taken == []


@each_kind
def test_the_forge_itself_is_sound(make: Callable[[], AnyFilter]) -> None:
    data = filled(make).to_bytes()
    assert forge(data) == data
    assert type(make()).from_bytes(forge(data, capacity=2**48, seed=3)).seed == 3


@each_kind
@pytest.mark.parametrize("version", [0, 2, 3, 2**32 - 1])
def test_another_version_is_refused_by_name(make: Callable[[], AnyFilter], version: int, path: Path) -> None:
    """Whatever else its header looks like, and whether or not its checksum is one of ours."""
    f = filled(make)
    data = forge(f.to_bytes(), version=version)
    assert_refused(data, type(f), path, f"version {version};")
    assert_refused(data[:12] + random.Random(version).randbytes(500), type(f), path, f"version {version};")


def test_a_newer_version_says_what_to_do(path: Path) -> None:
    assert_refused(
        forge(filled(MAKE["blocked"]).to_bytes(), version=2), BlockedBloomFilter, path, "newer evenbins"
    )


def test_set_bits_behind_the_last_one_are_refused(path: Path) -> None:
    """A file whose checksums are right, of a filter that cannot be."""
    f = filled(MAKE["standard"])
    payload = bytearray(memoryview(f))
    assert f.plan.core[0] == 242
    for bit in range(242, 256):
        spoilt = bytearray(payload)
        spoilt[bit // 8] |= 1 << bit % 8
        assert_refused(forge(f.to_bytes(), payload=bytes(spoilt)), BloomFilter, path, "beyond", VERIFYING)


@pytest.mark.parametrize("read", ["from_bytes", "load", "open"])
def test_the_wrong_class_is_told_what_to_use(read: str, path: Path) -> None:
    standard, blocked = filled(MAKE["standard"]), filled(MAKE["blocked"])
    balanced = filled(MAKE["balanced, a list"])
    wrongs = [(standard, BlockedBloomFilter), (blocked, BalancedBloomFilter), (balanced, BloomFilter)]
    for f, wrong in wrongs:
        f.save(path)
        with pytest.raises(FormatError, match=r"another kind.*evenbins\.(load|open)"):
            READERS[read](wrong, path)
        assert type(evenbins.load(path)) is type(f)


@given(data=st.binary(max_size=400))
def test_random_bytes_are_refused(data: bytes) -> None:
    for each in (data, b"EVENBINS" + data, b"EVENBINS\1\0\0\0" + data):
        for cls in (BloomFilter, BlockedBloomFilter, BalancedBloomFilter):
            with pytest.raises(FormatError):
                cls.from_bytes(each)


NUMBERS = st.sampled_from([0, 1, 2, 3, 8, 64, 128, 255, 256, 512, 2**32, 2**47, 2**56, 2**63, 2**64 - 1])
FORGED_FIELDS = st.dictionaries(st.sampled_from(FIELDS[5:]), NUMBERS, max_size=3)
FORGED_CORE = st.none() | st.lists(NUMBERS | st.integers(1, 40), max_size=4)


@given(
    fields=FORGED_FIELDS, core=FORGED_CORE, payload=st.none() | st.integers(0, 20).map(lambda n: bytes(8 * n))
)
def test_a_forged_file_is_refused_or_is_a_sound_filter(fields: Any, core: Any, payload: Any) -> None:
    for make in MAKE.values():
        f = make()
        data = forge(f.to_bytes(), core=core, payload=payload, **fields)
        with contextlib.suppress(FormatError):
            found = type(f).from_bytes(data)
            found._check()
            found.add("key")
            assert "key" in found
            assert type(f).from_bytes(found.to_bytes()) == found


# --- opened files --------------------------------------------------------------------------------


def mappings(path: Path) -> list[tuple[int, int, str]]:
    """Where this process has the file mapped: start, end, permissions."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(path)):
            addresses, permissions = line.split()[:2]
            start, end = (int(each, 16) for each in addresses.split("-"))
            found.append((start, end, permissions))
    return found


@each_kind
def test_an_opened_filter_uses_the_file_as_it_lies(make: Callable[[], AnyFilter], path: Path) -> None:
    """Its bits are the mapped file's: read-only, and shared by all processes that open it."""
    f = filled(make)
    f.save(path)
    opened = type(f).open(path)
    ((start, end, permissions),) = mappings(path)
    address = np.frombuffer(memoryview(opened), np.uint8).__array_interface__["data"][0]
    assert permissions == "r--s"
    assert start < address < address + opened.nbytes <= end
    assert address % 64 == 0


@each_kind
def test_an_opened_filter_cannot_be_changed_and_says_what_to_do(
    make: Callable[[], AnyFilter], path: Path
) -> None:
    f = filled(make)
    f.save(path)
    opened = type(f).open(path)
    changes: list[Callable[[], Any]] = [
        lambda: opened.add("new"),
        lambda: opened.add("a"),  # present already: still no
        lambda: opened.add_many(["new"]),
        lambda: opened.update([1]),
        lambda: opened.add_many(np.arange(5)),
        lambda: opened.__ior__(f),  # type: ignore[arg-type]
        opened.clear,
    ]
    for change in changes:
        with pytest.raises(ValueError, match=r"read-only: use load\(\) or copy\(\)"):
            change()
    assert memoryview(opened).readonly
    assert opened == f
    assert path.read_bytes() == f.to_bytes()


@each_kind
def test_a_copy_of_an_opened_filter_can_be_changed(make: Callable[[], AnyFilter], path: Path) -> None:
    f = filled(make)
    f.save(path)
    opened = type(f).open(path)
    assert opened.copy() == f
    for twin in (opened.copy(), opened | f):  # type: ignore[operator]
        assert all(key in twin for key in KEYS)
        twin.add("new")
        assert "new" in twin
    assert path.read_bytes() == f.to_bytes()


def test_opening_and_loading_leave_nothing_behind(path: Path) -> None:
    f = filled(MAKE["blocked"])
    f.save(path)
    gc.collect()  # what other tests left
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        evenbins.load(path)
        evenbins.open(path, verify=True)
        with contextlib.suppress(FormatError):
            BloomFilter.open(path)
    gc.collect()
    assert mappings(path) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_view_keeps_the_mapping_alive(path: Path) -> None:
    f = filled(MAKE["blocked"])
    f.save(path)
    view = memoryview(BlockedBloomFilter.open(path))
    gc.collect()
    assert len(mappings(path)) == 1
    assert bytes(view) == bytes(memoryview(f))
    view.release()
    assert mappings(path) == []


def test_an_opened_filter_survives_deletion_and_replacement_of_its_file(path: Path) -> None:
    old, new = filled(MAKE["blocked"]), MAKE["blocked"]()
    new.update(ABSENT)
    old.save(path)
    before_replacement = BlockedBloomFilter.open(path)
    new.save(path)
    before_deletion = BlockedBloomFilter.open(path)
    path.unlink()
    assert before_replacement == old
    assert before_deletion == new
    assert all(key in before_replacement for key in KEYS)


def test_an_opened_filter_can_be_saved_over_its_own_file(path: Path) -> None:
    f = filled(MAKE["standard"])
    f.save(path)
    opened = BloomFilter.open(path)
    opened.save(path)
    assert BloomFilter.load(path) == opened == f


@each_kind
def test_another_process_gets_the_same_answers(make: Callable[[], AnyFilter], path: Path) -> None:
    f = filled(make)
    f.save(path)
    script = """
        import sys, evenbins
        f = evenbins.open(sys.argv[1])
        print(f.to_bytes().hex())
        print([key in f for key in ("a", b"\\0\\xff", 0, -1, 2**64 - 1, *range(10_000))])
    """
    bytes_there, answers_there = python(script, path).stdout.splitlines()
    assert bytes.fromhex(bytes_there) == f.to_bytes()
    assert answers_there == str([key in f for key in ("a", b"\0\xff", 0, -1, 2**64 - 1, *range(10_000))])


def python(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


# --- saving: whole or not at all -----------------------------------------------------------------


@pytest.fixture
def old(path: Path) -> AnyFilter:
    """A filter that is in the file already."""
    f = filled(MAKE["blocked"])
    f.save(path)
    return f


@pytest.fixture
def new() -> AnyFilter:
    f = filled(MAKE["blocked"])
    f.update(ABSENT)
    return f


def assert_untouched(path: Path, old: AnyFilter) -> None:
    """The old file is there, and nothing else."""
    assert os.listdir(path.parent) == [path.name]
    assert evenbins.load(path) == old


@pytest.mark.parametrize("error", [OSError, MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_save_that_fails_leaves_the_old_file_and_no_other(
    step: str,
    error: type[BaseException],
    path: Path,
    old: AnyFilter,
    new: AnyFilter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise error("broken disk")

    def write_half(descriptor: int) -> None:
        os.write(descriptor, new.to_bytes()[:100])
        if step == "write":
            fail()

    if step != "write":
        monkeypatch.setattr(os, step, fail)
    with pytest.raises(error):
        _files.replace_file(path, write_half)
    monkeypatch.undo()
    assert_untouched(path, old)


def test_a_failed_first_save_leaves_nothing(
    path: Path, new: AnyFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="broken disk"):
        new.save(path)
    assert os.listdir(path.parent) == []


def test_a_full_disk_is_an_os_error(new: AnyFilter) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space left") as caught:
            new._write_to(descriptor)
    finally:
        os.close(descriptor)
    assert caught.value.errno == errno.ENOSPC


def test_a_save_that_hits_a_limit_halfway_leaves_the_old_file(path: Path, old: AnyFilter) -> None:
    """RLIMIT_FSIZE stops the write after 4 KiB of 1.2 MB, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    large = BloomFilter(1_000_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            large.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert_untouched(path, old)


def test_file_then_rename_then_folder_reach_the_disk_in_this_order(
    tmp_path: Path, new: AnyFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file complete before its name points to it; the folder synced is the one the file lies in."""
    folder = tmp_path / "folder"
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(folder / "file")
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            events.append(f"fsync file of {found.st_size} bytes")
        else:
            events.append(f"fsync folder {os.path.samestat(found, folder.stat())}")
        fsync(descriptor)

    def recorded_replace(source: Path, target: Path) -> None:
        assert Path(source).parent == folder  # the same file system, or it would not be atomic
        events.append(f"replace {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    new.save(link)
    assert events == [f"fsync file of {len(new.to_bytes())} bytes", "replace file", "fsync folder True"]


def test_a_symbolic_link_is_followed_and_stays_one(
    tmp_path: Path, old: AnyFilter, new: AnyFilter, path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    near, far = other / "near", other / "far"
    near.symlink_to(os.path.relpath(path, other))
    far.symlink_to("near")
    new.save(far)
    assert near.is_symlink()
    assert far.is_symlink()
    assert not path.is_symlink()
    assert evenbins.load(path) == evenbins.load(far) == new
    assert sorted(os.listdir(other)) == ["far", "near"]


def test_a_dangling_link_gets_its_file(tmp_path: Path, new: AnyFilter) -> None:
    (tmp_path / "link").symlink_to("target")
    new.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert evenbins.load(tmp_path / "target") == new


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_an_existing_file_keeps_its_mode(mode: int, path: Path, old: AnyFilter, new: AnyFilter) -> None:
    path.chmod(mode)
    new.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert evenbins.load(path) == new


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_mode_the_umask_leaves(umask: int, mode: int, path: Path, new: AnyFilter) -> None:
    before = os.umask(umask)
    try:
        new.save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_folder_that_cannot_take_the_file_is_an_os_error_that_names_it(path: Path, new: AnyFilter) -> None:
    """Missing, a file, or read-only even for root."""
    path.touch()
    for folder in (path.parent / "missing", path, Path("/proc")):
        with pytest.raises(OSError, match=str(folder / "name")):
            new.save(folder / "name")
    assert os.listdir(path.parent) == [path.name]


def test_a_folder_is_not_replaced(tmp_path: Path, new: AnyFilter) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    for way in (target, f"{target}/"):
        with pytest.raises(OSError, match="folder"):
            new.save(way)
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(target) == []


def test_a_device_or_pipe_is_not_replaced(tmp_path: Path, new: AnyFilter) -> None:
    """A rename would put a plain file in place of /dev/null, if root saves there."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="pipe"):
        new.save(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_two_threads_that_save_to_one_path_leave_one_of_the_two(
    path: Path, old: AnyFilter, new: AnyFilter
) -> None:
    def save(f: AnyFilter) -> None:
        for _ in range(50):
            f.save(path)

    threads = [threading.Thread(target=save, args=(f,)) for f in (old, new)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert evenbins.load(path) in (old, new)
    for thread in threads:
        thread.join()
    assert os.listdir(path.parent) == [path.name]


def test_a_filter_saved_while_another_thread_adds_is_a_whole_filter(path: Path) -> None:
    """No bit changes between the checksum and the bytes, so that every file loads."""
    f = BlockedBloomFilter(20_000)
    done = threading.Event()

    def add() -> None:
        for start in range(0, 10**9, 200):
            for key in range(start, start + 100):
                f.add(key)
            f.add_many(np.arange(start + 100, start + 200))
            if done.is_set():
                return
            if start % 20_000 == 0:
                f.clear()

    adder = threading.Thread(target=add)
    adder.start()
    try:
        for _ in range(50):
            f.save(path)
            BlockedBloomFilter.load(path)
            BlockedBloomFilter.from_bytes(f.to_bytes())
    finally:
        done.set()
        adder.join()


# --- saving: killed at any moment ----------------------------------------------------------------

FORK = """
    import os, signal, sys, time
    import evenbins
    from evenbins import BlockedBloomFilter, _files

    path = sys.argv[1]
    old, new = BlockedBloomFilter(500_000), BlockedBloomFilter(500_000)
    old.add("old"), new.add("new")
    die = lambda: os.kill(os.getpid(), signal.SIGKILL)

    def forked(work):
        child = os.fork()
        if child == 0:
            try:
                work()
            finally:
                os._exit(0)
        return child

    def found():
        f = evenbins.load(path)
        return "old" if f == old else "new" if f == new else "another"

    old.save(path)
"""


def test_a_kill_at_each_step_leaves_the_old_file_or_the_new_one(path: Path) -> None:
    """The process kills itself between the steps; the next save does not mind what it finds."""
    script = (
        FORK
        + """
    fsync, replace = os.fsync, os.replace

    def half(descriptor):
        os.write(descriptor, new.to_bytes()[:300_000])
        die()

    def patched(**functions):
        for name, function in functions.items():
            setattr(os, name, function)
        new.save(path)

    syncs = []
    def second_fsync(descriptor):
        syncs.append(descriptor)
        die() if len(syncs) == 2 else fsync(descriptor)

    steps = {
        "half written": lambda: _files.replace_file(path, half),
        "before fsync": lambda: patched(fsync=lambda d: die()),
        "after fsync": lambda: patched(fsync=lambda d: (fsync(d), die())),
        "before rename": lambda: patched(replace=lambda a, b: die()),
        "after rename": lambda: patched(replace=lambda a, b: (replace(a, b), die())),
        "before the folder's fsync": lambda: patched(fsync=second_fsync),
        "never": lambda: new.save(path),
    }
    for name, work in steps.items():
        old.save(path)
        _, status = os.waitpid(forked(work), 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(name, killed, found(), sep=": ")
    """
    )
    assert python(script, path).stdout.splitlines() == [
        "half written: True: old",
        "before fsync: True: old",
        "after fsync: True: old",
        "before rename: True: old",
        "after rename: True: new",
        "before the folder's fsync: True: new",
        "never: False: new",
    ]


def test_twenty_kills_in_the_middle_of_saves_leave_a_file_that_loads(path: Path) -> None:
    """A process saves two filters in turn, as fast as it can, and is killed from outside."""
    script = (
        FORK
        + """
    import random

    def endless():
        while True:
            new.save(path)
            old.save(path)

    rng = random.Random(1)
    for _ in range(20):
        child = forked(endless)
        time.sleep(rng.uniform(0.001, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print(found())
    """
    )
    answers = python(script, path).stdout.split()
    assert len(answers) == 20
    assert set(answers) <= {"old", "new"}


# --- what mapping means --------------------------------------------------------------------------


def test_a_file_too_large_to_load_opens_at_once(path: Path) -> None:
    """A sparse file of 2**40 bits: only the pages that a look-up touches are read."""
    blocks = 2**31
    small = BlockedBloomFilter(50, bits_per_key=16)
    header = forge(
        small.to_bytes(), core=[blocks, 512, 8], payload=b"", payload_bytes=64 * blocks, capacity=10**10
    )
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + 64 * blocks)
    opened = evenbins.open(path)
    assert opened.nbytes == 2**37
    assert not opened.contains_many(np.arange(8)).any()
    assert "key" not in opened


def test_the_mapping_is_read_only_in_the_eyes_of_the_system(path: Path, old: AnyFilter) -> None:
    mapped = _files.map_file(path)
    assert isinstance(mapped, mmap.mmap)
    with pytest.raises(TypeError):
        mapped[0] = 0


# --- somebody writes while we read --------------------------------------------------------------------


def many_keys() -> npt.NDArray[np.int64]:
    return np.arange(400_000)


def filled_with_many(made: Any) -> Any:
    made.add_many(many_keys())
    return made


def table_with_many(cls: Any) -> Any:
    made = cls(100_000)
    made.insert_many(np.arange(100_000), 1)
    return made


CHANGING: dict[str, Callable[[], Any]] = {
    "standard": lambda: filled_with_many(BloomFilter(400_000, bits_per_key=40)),
    "blocked": lambda: filled_with_many(BlockedBloomFilter(400_000, bits_per_key=40)),
    "counting": lambda: filled_with_many(evenbins.CountingBloomFilter(400_000)),
    "growing": lambda: filled_with_many(evenbins.GrowingFilter(1e-6, policy="blocked")),
    "sharded": lambda: filled_with_many(evenbins.ShardedFilter(400_000, shards=2, fpr=1e-6)),
    "sketch": lambda: filled_with_many(evenbins.CountMinSketch(1e-5, 1e-3)),
    "table": lambda: table_with_many(evenbins.MultilevelTable),
    "chained": lambda: table_with_many(evenbins.ChainedTable),
}


@pytest.mark.parametrize("name", CHANGING)
def test_bytes_that_change_while_they_are_loaded_are_refused_or_loaded_as_they_were(name: str) -> None:
    """A thread breaks and repairs the bytes again and again; what is accepted is what was saved.

    Code that checks the bytes and then copies them accepts broken ones within a few loads.
    """
    made = CHANGING[name]()
    data = bytearray(made.to_bytes())
    places = [len(data) // 8 * i + 500 for i in range(1, 8)]
    good = [data[at] for at in places]
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            for at, byte in zip(places, good, strict=True):
                data[at] = byte ^ 0xFF
            time.sleep(0.0005)
            for at, byte in zip(places, good, strict=True):
                data[at] = byte
            time.sleep(0.001)

    writer = threading.Thread(target=change)
    writer.start()
    accepted = refused = 0
    try:
        for _ in range(60):
            try:
                found = type(made).from_bytes(data)
            except FormatError:
                refused += 1
            else:
                accepted += 1
                assert found.to_bytes() == made.to_bytes()
    finally:
        done.set()
        writer.join()
    assert type(made).from_bytes(data).to_bytes() == made.to_bytes()
    assert accepted + refused == 60


def test_bytes_that_do_not_lie_in_a_row_are_read(path: Path) -> None:
    for made in (BloomFilter(50), evenbins.GrowingFilter(), evenbins.ShardedFilter(50, shards=2)):
        made.update(range(40))
        data = made.to_bytes()
        wide = bytearray(2 * len(data))
        wide[::2] = data
        views: list[Any] = [memoryview(wide)[::2], np.frombuffer(wide, np.uint8)[::2], bytearray(data)]
        if len(data) % 8 == 0:
            views += [np.frombuffer(data, "<u8"), np.frombuffer(data, ">u4").reshape(-1, 2)]
        for view in views:
            assert type(made).from_bytes(view) == made
    with pytest.raises(FormatError, match="EVENBINS"):
        BloomFilter.from_bytes(memoryview(bytes(400))[::2])


def test_paths_may_be_bytes(tmp_path: Path) -> None:
    """As Python's own `open` takes them; the error messages show them as text."""
    folder = os.fsencode(tmp_path)
    made: Any
    for i, made in enumerate(
        [
            BloomFilter(5),
            evenbins.GrowingFilter(),
            evenbins.ShardedFilter(50, shards=2),
            evenbins.MultilevelTable(5),
        ]
    ):
        name = os.path.join(folder, b"%d.evb" % i)
        made.save(name)
        assert type(made).load(name) == made
        assert type(made).open(name) == made
    (tmp_path / "junk").write_bytes(b"no filter")
    with pytest.raises(FormatError) as caught:
        evenbins.load(os.path.join(folder, b"junk"))
    assert str(caught.value).startswith(f"{tmp_path}/junk: ")
    with pytest.raises(OSError, match=r"\.evb") as failed:
        BloomFilter(5).save(os.path.join(folder, b"none", b"x.evb"))
    assert isinstance(failed.value.filename, str)
