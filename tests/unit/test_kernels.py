"""Kernels differ in speed alone: each gives the bits and the answers of the readable twin.

The fixture `kernel` puts each kernel of this machine in force, one after the other; a filter keeps the
kernel it was made under.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import evenbins
import reference
from evenbins import BlockedBloomFilter, BloomFilter, _core, digest_many
from reference.bloom import ReferenceFilter
from reference.keys import MASK, PHI, mix, mulhi, splitmix

if TYPE_CHECKING:
    from kinds import Kind

BATCHES = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 127, 128, 129, 255, 257]


def payload(f: Any) -> bytes:
    return bytes(memoryview(f))


def extreme_digests(count: int, seed: int = 1) -> list[int]:
    """Random digests, and those at the edges of what a kernel multiplies, shifts and compares."""
    rng = random.Random(seed)
    edges = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 2**32, 2**64 - 2, 2**64 - 1]
    return edges + [rng.getrandbits(64) for _ in range(count - len(edges))]


def assert_twins(f: Any, twin: ReferenceFilter) -> None:
    """In bulk and one batch size after the other: the same bits, then the same answers."""
    digests = extreme_digests(120)
    rest = np.array(digests, np.uint64)
    for n in BATCHES:
        f.add_many(rest[:n], digests=True)
        rest = rest[n:]
    f.add_many(rest, digests=True)
    for digest in digests:
        twin.add_digest(digest)
    assert payload(f) == twin.payload()

    probes = [*digests, *extreme_digests(300, seed=2)]
    expected = [twin.contains_digest(digest) for digest in probes]
    assert f.contains_many(np.array(probes, np.uint64), digests=True).tolist() == expected
    for n in BATCHES:
        assert f.contains_many(np.array(probes[:n], np.uint64), digests=True).tolist() == expected[:n]
    f._check()


# --- the two filters against their twins ---------------------------------------------------------------


@pytest.mark.parametrize("hashes", range(1, 33))
@pytest.mark.parametrize("block_bits", [256, 512])
def test_blocked_filters_of_every_number_of_hashes(kernel: str, block_bits: int, hashes: int) -> None:
    """Seven blocks hold about 17 keys each, so that many probes fail at a late position."""
    f = BlockedBloomFilter(7, bits_per_key=block_bits, block_bits=block_bits, hashes=hashes)
    assert f.plan.core == (7, block_bits, hashes)
    assert_twins(f, reference.ReferenceBlocked(7, block_bits, hashes))


@pytest.mark.parametrize("hashes", [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64])
@pytest.mark.parametrize("bits", [1, 63, 64, 65, 1000, 4099])
def test_standard_filters_of_many_sizes(kernel: str, bits: int, hashes: int) -> None:
    f = (
        BloomFilter(1, bits_per_key=bits, hashes=hashes)
        if bits < 4096
        else BloomFilter(bits, bits_per_key=1, hashes=hashes)
    )
    assert f.plan.core == (bits, hashes)
    assert_twins(f, reference.ReferenceBloom(bits, hashes))


def test_single_keys_in_every_kernel(kernel: str, kind: Kind, mixed_keys: list[Any]) -> None:
    keys = mixed_keys[:200]
    f = kind.filled(keys, 200)
    twin = kind.twin(f)
    for key in keys:
        twin.add(key)
    assert payload(f) == twin.payload()
    assert [key in f for key in mixed_keys] == [key in twin for key in mixed_keys]


def test_bulk_and_threads_in_every_kernel(kernel: str, kind: Kind) -> None:
    """20,000 keys against the generic kernel's single adds: bytes, and answers to as many absent keys."""
    _core.use_kernel("generic")
    slow = kind.filled(range(20_000), 20_000)
    _core.use_kernel(kernel)
    probes = np.arange(10_000, 50_000)
    expected = [x in slow for x in probes.tolist()]
    for threads in (1, 3):
        fast = kind(20_000)
        fast.add_many(np.arange(20_000), threads=threads)
        assert payload(fast) == payload(slow)
        assert fast == slow
        assert fast.contains_many(probes, threads=threads).tolist() == expected
    assert [x in fast for x in range(15_000, 25_000)] == expected[5_000:15_000]


def test_filters_made_under_different_kernels_merge(kind: Kind) -> None:
    parts, keys = [], []
    for i, name in enumerate(_core.kernels()):
        before = _core.kernel()
        _core.use_kernel(name)
        keys.append(range(100 * i, 100 * i + 100))
        parts.append(kind.filled(keys[-1]))
        _core.use_kernel(before)
    merged = kind()
    if not kind.merges:
        with pytest.raises(TypeError, match="merge"):
            merged |= parts[0]
        return
    for part in parts:
        merged |= part
    assert payload(merged) == kind.merged(merged, [], *keys)
    assert merged.contains_many(range(100 * len(parts))).all()


# --- digests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i8", "u8", "i4", "u1", ">i8"])
@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_digests_of_arrays_in_every_kernel(kernel: str, dtype: str, seed: int) -> None:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(4)
    keys = rng.integers(limits.min, limits.max, 1500, np.dtype(dtype).newbyteorder("="), endpoint=True)
    keys[:3] = [limits.min, limits.max, 0]
    expected = [reference.digest(int(key), seed) for key in keys]
    assert digest_many(keys.astype(dtype), seed).tolist() == expected
    for n in BATCHES:
        assert digest_many(keys[:n].astype(dtype), seed).tolist() == expected[:n]


# --- beyond 32 bits ------------------------------------------------------------------------------------


def unmix(z: int) -> int:
    """SplitMix64's finaliser backwards."""
    z ^= z >> 31 ^ z >> 62
    z = z * pow(0x94D049BB133111EB, -1, 2**64) & MASK
    z ^= z >> 27 ^ z >> 54
    z = z * pow(0xBF58476D1CE4E5B9, -1, 2**64) & MASK
    return z ^ z >> 30 ^ z >> 60


def digest_with_word(word: int, i: int) -> int:
    """The digest whose i-th word is this one."""
    return (unmix(word) - (i + 1) * PHI) & MASK


def test_unmix_undoes_mix() -> None:
    for z in extreme_digests(100):
        assert mix(unmix(z)) == z
        assert splitmix(digest_with_word(z, 2), 2) == z


def set_positions(f: Any) -> set[int]:
    def found() -> Iterator[int]:
        words = np.frombuffer(f, "<u8")
        for at in np.flatnonzero(words):
            yield from (64 * int(at) + bit for bit in range(64) if int(words[at]) >> bit & 1)

    return set(found())


@pytest.mark.parametrize("bits", [2**32 - 1, 2**32, 2**32 + 1])
def test_a_standard_filter_around_two_to_the_32_bits(kernel: str, bits: int) -> None:
    """Positions 0 and bits-1, those where a 32-bit product carries, and some random ones; used sparsely."""
    f = BloomFilter(bits, bits_per_key=1, hashes=2)
    assert f.plan.core == (bits, 2)
    words = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 2**32, 2**64 - 1]
    digests = [digest_with_word(word, i) for word in words for i in range(2)] + extreme_digests(12)
    expected = {mulhi(splitmix(digest, i), bits) for digest in digests for i in range(2)}
    assert {0, bits - 1} <= expected
    f.add_many(np.array(digests, np.uint64), digests=True)
    assert set_positions(f) == expected
    assert f.contains_many(np.array(digests, np.uint64), digests=True).all()
    assert not f.contains_many(np.array(extreme_digests(1000, seed=9)[10:], np.uint64), digests=True).any()


@pytest.mark.parametrize("block_bits", [256, 512])
def test_a_blocked_filter_beyond_two_to_the_32_bits(kernel: str, block_bits: int) -> None:
    """The first and the last block, and their neighbours in the digest."""
    blocks = 2**32 // block_bits + 3
    f = BlockedBloomFilter(blocks, bits_per_key=block_bits, block_bits=block_bits, hashes=20)
    assert f.plan.core == (blocks, block_bits, 20)
    step = 2**64 // blocks
    digests = [*extreme_digests(16), step - 1, step, step + 1, 2**64 - step - 1, 2**64 - step]
    twin = reference.ReferenceBlocked(1, block_bits, 20)
    twin.blocks = blocks
    expected = {position for digest in digests for position in twin.positions(digest)}
    assert max(expected) >= 2**32
    f.add_many(np.array(digests, np.uint64), digests=True)
    assert set_positions(f) == expected
    assert f.contains_many(np.array(digests, np.uint64), digests=True).all()
    assert not f.contains_many(np.array(extreme_digests(1000, seed=9)[10:], np.uint64), digests=True).any()


# --- choosing ------------------------------------------------------------------------------------------


def test_the_best_kernel_is_in_force_and_generic_is_always_there() -> None:
    names = evenbins.kernels()
    assert names[0] == "generic"
    assert len(set(names)) == len(names)
    assert evenbins.kernel() in names


def test_an_unknown_kernel_is_a_value_error_that_names_the_known_ones() -> None:
    before = evenbins.kernel()
    with pytest.raises(ValueError, match=r"'abacus'.*generic"):
        _core.use_kernel("abacus")
    assert evenbins.kernel() == before


PROBE = """
import json, evenbins
f = evenbins.BlockedBloomFilter(1000)
f.add_many(range(1000))
print(json.dumps([evenbins.kernel(), evenbins.kernels(), bytes(f).hex()]))
"""


@pytest.mark.parametrize("name", _core.kernels())
def test_the_environment_forces_a_kernel(name: str, run_python: Any) -> None:
    f = BlockedBloomFilter(1000)
    f.add_many(range(1000))
    result = run_python(PROBE, EVENBINS_KERNEL=name)
    assert json.loads(result.stdout) == [name, evenbins.kernels(), payload(f).hex()]


def test_without_a_word_in_the_environment_the_best_is_chosen(run_python: Any) -> None:
    result = run_python(PROBE, EVENBINS_KERNEL="")
    assert json.loads(result.stdout)[0] == evenbins.kernels()[-1]


def test_an_unknown_kernel_in_the_environment_is_a_clear_import_error(run_python: Any) -> None:
    result = run_python("from evenbins import BloomFilter", EVENBINS_KERNEL="abacus")
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    for part in ("EVENBINS_KERNEL", "'abacus'", *evenbins.kernels()):
        assert part in last
