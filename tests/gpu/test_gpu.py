"""evenbins.cuda on a GPU against the CPU: every byte of the filters, every answer."""

from __future__ import annotations

import threading
from typing import Any

import cupy
import cupyx
import numpy as np
import pytest

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    CountMinSketch,
    FilterFullError,
    FingerprintFilter,
    cuda,
)

FILTERS = {
    "blocked": lambda: BlockedBloomFilter(200_000, bits_per_key=16, hashes=10, seed=7),
    "blocked-20": lambda: BlockedBloomFilter(200_000, bits_per_key=30, hashes=20),
    "blocked-256": lambda: BlockedBloomFilter(200_000, bits_per_key=16, hashes=8, block_bits=256),
    "one-block": lambda: BlockedBloomFilter(10, bits_per_key=16, hashes=3),
    "standard": lambda: BloomFilter(200_000, bits_per_key=16, hashes=10, seed=3),
    "standard-1": lambda: BloomFilter(1000, bits_per_key=3, hashes=1),
}
DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
SIZES = (0, 1, 31, 32, 33, 255, 257, 8191, 8193, 300_007)


def numbers(n: int, dtype: str = "uint64", *, values: int = 0) -> Any:
    """Return n integers over the whole type; with `values`, of that many different ones."""
    found = np.arange(n, dtype=np.uint64)
    if values:
        found = found * np.uint64(7919) % np.uint64(values)
    found = found * np.uint64(0x9E3779B97F4A7C15)
    found ^= found >> np.uint64(29)
    return found.astype(dtype)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("n", SIZES)
def test_bytes_and_answers(name: str, n: int) -> None:
    f = FILTERS[name]()
    f.add_many(np.arange(100))
    g = cuda.to_device(f)
    f.add_many(numbers(n))
    g.add_many(cupy.asarray(numbers(n)))
    assert g.to_host() == f
    probes = numbers(2 * n)
    answers = g.contains_many(cupy.asarray(probes))
    assert isinstance(answers, cupy.ndarray)
    assert np.array_equal(answers.get(), f.contains_many(probes))


@pytest.mark.parametrize("name", ["blocked", "standard"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_integer(name: str, dtype: str) -> None:
    f = FILTERS[name]()
    g = cuda.to_device(f)
    keys = numbers(5001, dtype)
    f.add_many(keys[::2])
    g.add_many(cupy.asarray(keys)[::2])  # strided
    assert g.to_host() == f
    assert np.array_equal(g.contains_many(cupy.asarray(keys)).get(), f.contains_many(keys))


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("n", SIZES)
def test_new_keys(name: str, n: int) -> None:
    f = FILTERS[name]()
    g = cuda.to_device(f)
    for values in (n // 3 + 1, 5, 2 * n + 1):
        keys = numbers(n, values=values)
        assert np.array_equal(g.add_new_many(cupy.asarray(keys)).get(), f.add_new_many(keys))
        assert g.to_host() == f


@pytest.mark.parametrize("capacity", [3_000_000, 30_000_000])
def test_partitioned(capacity: int) -> None:
    """Regions in one pass and in two; the second call has a key a million times."""
    f = BlockedBloomFilter(capacity, bits_per_key=16, hashes=10)
    g = cuda.to_device(f)
    for keys in (
        numbers(2_500_001),
        np.concatenate([numbers(999_999, values=7), numbers(2_000_000) + np.uint64(3)]),
    ):
        f.add_many(keys)
        g.add_many(cupy.asarray(keys))
        assert g.to_host() == f
    keys = np.concatenate([numbers(1_000_000, values=3), numbers(6_000_000, values=5_000_000) + np.uint64(9)])
    assert np.array_equal(g.add_new_many(cupy.asarray(keys)).get(), f.add_new_many(keys))
    assert g.to_host() == f


@pytest.mark.parametrize("offset", ["int32", "int64"])
@pytest.mark.parametrize("name", ["blocked", "standard"])
def test_strings(name: str, offset: str) -> None:
    rng = np.random.default_rng(1)
    words = [rng.bytes(int(size)) for size in rng.integers(0, 700, 3001)]
    offsets = cupy.asarray(np.cumsum([0, *map(len, words)]).astype(offset))
    data = cupy.asarray(np.frombuffer(b"".join(words), np.uint8))
    f = FILTERS[name]()
    g = cuda.to_device(f)
    f.add_many(words[:1500])
    g.add_many(cuda.Strings(data, offsets[:1501]))
    assert g.to_host() == f
    assert np.array_equal(g.contains_many(cuda.Strings(data, offsets)).get(), f.contains_many(words))
    assert np.array_equal(g.add_new_many(cuda.Strings(data, offsets)).get(), f.add_new_many(words))
    assert g.to_host() == f


def test_pytorch() -> None:
    import torch

    f = FILTERS["blocked"]()
    g = cuda.to_device(f)
    keys = torch.arange(-500, 5000, device="cuda")
    f.add_many(keys.cpu().numpy())
    g.add_many(keys)
    assert g.to_host() == f
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        more = torch.arange(100_000, device="cuda").reshape(100, 1000)
        answers = g.contains_many(more)
        assert isinstance(answers, torch.Tensor)
        assert answers.dtype == torch.bool
        assert answers.is_cuda
        count = int(answers.sum())
    assert count == int(f.contains_many(np.arange(100_000)).sum())
    assert answers.shape == (100, 1000)
    with pytest.raises(TypeError, match="integers, digests or"):
        g.add_many(torch.ones(3, device="cuda"))


def test_jax() -> None:
    import jax

    f = FILTERS["blocked"]()
    g = cuda.to_device(f)
    keys = jax.numpy.arange(5000)
    f.add_many(np.asarray(keys))
    g.add_many(keys)
    assert g.to_host() == f
    answers = g.contains_many(keys)
    assert isinstance(answers, jax.Array)
    assert bool(answers.all())


def test_keys_of_the_host() -> None:
    f = FILTERS["blocked"]()
    g = cuda.to_device(f)
    pinned = cupyx.empty_pinned(9_000_001, np.uint64)
    pinned[:] = numbers(pinned.size)
    for keys in (numbers(50_001), ["a", "b", 3], np.array(["x", "yz"]), np.arange(-5, 5, dtype=np.int16)):
        f.add_many(keys)
        g.add_many(keys)
    assert g.to_host() == f
    for keys in (pinned, np.array(pinned), pinned[:7].reshape(7, 1)):
        found = g.contains_many(keys)
        assert type(found) is np.ndarray
        assert np.array_equal(found, f.contains_many(keys))
    again = numbers(5_000_000, values=1_000_000)
    assert np.array_equal(g.add_new_many(again), f.add_new_many(again))
    f.add_many(pinned)
    g.add_many(pinned)
    assert g.to_host() == f


def test_streams_keep_the_order_of_calls() -> None:
    """A call on one stream sees what a call on another stream added before it."""
    g = cuda.to_device(BlockedBloomFilter(20_000_000, bits_per_key=16, hashes=10))
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    keys = [cupy.asarray(numbers(2_000_000) + np.uint64(i)) for i in range(6)]
    cupy.cuda.Device().synchronize()
    for i, each in enumerate(keys):
        with streams[i % 3]:
            g.add_many(each)
        with streams[(i + 1) % 3]:
            assert bool(g.contains_many(each).all())


def test_two_filters_at_once() -> None:
    made: dict[int, bool] = {}

    def work(seed: int) -> None:
        f = BlockedBloomFilter(500_000, bits_per_key=16, hashes=10, seed=seed)
        g = cuda.to_device(f)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(5):
                keys = numbers(300_000) * np.uint64(seed + 1)
                on_device = cupy.asarray(keys)
                found = g.add_new_many(on_device)
                stream.synchronize()
                assert np.array_equal(found.get(), f.add_new_many(keys))
        made[seed] = g.to_host() == f

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert made == dict.fromkeys(range(4), True)


def test_too_little_memory() -> None:
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    f = BlockedBloomFilter(100_000_000, bits_per_key=16, hashes=10)
    before = f.to_bytes()
    pool.set_limit(size=pool.total_bytes() + (1 << 20))
    try:
        with pytest.raises(
            cuda.DeviceError, match=r"copying the filter to the GPU needs 200,\d{3},\d{3} bytes"
        ):
            cuda.to_device(f)
        assert f.to_bytes() == before
    finally:
        pool.set_limit(size=0)
    g = cuda.to_device(f)  # the GPU can still be used
    keys = cupy.asarray(numbers(4_000_000))
    pool.free_all_blocks()
    pool.set_limit(size=pool.total_bytes() + (1 << 20))
    try:
        with pytest.raises(cuda.DeviceError, match="adding new keys needs"):
            g.add_new_many(keys)
    finally:
        pool.set_limit(size=0)
    assert np.array_equal(g.add_new_many(keys).get(), f.add_new_many(numbers(4_000_000)))
    assert g.to_host() == f


@pytest.mark.parametrize("policy", ["fill", "two-choice", "multilevel", "sequential", "single"])
@pytest.mark.parametrize("block_bits", [256, 512])
def test_balanced(policy: str, block_bits: int) -> None:
    f = BalancedBloomFilter(200_000, bits_per_key=20, policy=policy, block_bits=block_bits)
    f.add_many(numbers(250_000))
    g = cuda.to_device(f)
    probes = numbers(700_001)
    assert np.array_equal(g.contains_many(cupy.asarray(probes)).get(), f.contains_many(probes))
    assert g.to_host() == f
    assert g.stats() == f.stats()


@pytest.mark.parametrize("policy", ["fill", "multilevel", "single"])
@pytest.mark.parametrize("block_bits", [256, 512])
def test_balanced_additions(policy: str, block_bits: int) -> None:
    """To the plan, in calls of all sizes, with repeats; then beyond it, where keys spill."""
    f = BalancedBloomFilter(300_000, bits_per_key=20, policy=policy, block_bits=block_bits, seed=2)
    g = cuda.build(f.plan, cupy.empty(0, np.uint64))
    keys = numbers(300_000)
    for piece in (keys[:0], keys[:1], keys[:200_003], keys[199_000:210_000].repeat(2), keys[200_003:], keys):
        assert np.array_equal(g.add_new_many(cupy.asarray(piece)).get(), f.add_new_many(piece))
        assert g.to_host().to_bytes() == f.to_bytes()
    g.add_many(numbers(400_000))
    f.add_many(numbers(400_000))
    assert g.to_host().to_bytes() == f.to_bytes()


@pytest.mark.parametrize("fpr", [0.1, 1e-2, 1e-3, 1e-4, 1e-6])
@pytest.mark.parametrize("semantics", ["multiset", "set"])
def test_fingerprints(fpr: float, semantics: str) -> None:
    """Every level and the overflow list; odd sizes, repeats, a filter that is full."""
    f = FingerprintFilter(200_000, fpr=fpr, semantics=semantics, seed=3)
    g = cuda.build(f.plan, cupy.empty(0, np.uint64))
    keys = np.concatenate([numbers(198_000), np.full(80, 7, np.uint64)])
    for first, last in ((0, 0), (0, 1), (1, 34), (34, 8227), (8227, 150_001), (150_001, keys.size)):
        f.add_many(keys[first:last])
        g.add_many(cupy.asarray(keys[first:last]))
        assert g.to_host().to_bytes() == f.to_bytes()
    probes = numbers(500_009)
    assert np.array_equal(g.contains_many(cupy.asarray(probes)).get(), f.contains_many(probes))
    assert np.array_equal(g.contains_many(probes), f.contains_many(probes))
    assert np.array_equal(g.count_many(cupy.asarray(probes)).get(), f.count_many(probes))
    assert g.stats() == f.stats()
    again = np.concatenate([keys[:500], numbers(198_200)[-200:], numbers(198_200)[-200:]])
    assert np.array_equal(g.add_new_many(cupy.asarray(again)).get(), f.add_new_many(again))
    assert np.array_equal(g.add_new_many(again), f.add_new_many(again))
    before = g.to_host().to_bytes()
    assert before == f.to_bytes()
    for call in (g.add_many, g.add_new_many):
        with pytest.raises(FilterFullError, match="do not fit, and none was added") as error:
            call(cupy.asarray(probes))
        assert error.value.added == 0
    assert g.to_host().to_bytes() == before


def test_fingerprints_of_strings_tensors_and_unions() -> None:
    import torch

    f, other = (FingerprintFilter(50_000, fpr=1e-3, semantics="set") for _ in range(2))
    g, h = cuda.to_device(f), cuda.to_device(other)
    words = [b"word %d" % i for i in range(9001)]
    offsets = cupy.asarray(np.cumsum([0, *map(len, words)]))
    strings = cuda.Strings(cupy.asarray(np.frombuffer(b"".join(words), np.uint8)), offsets)
    assert np.array_equal(g.add_new_many(strings).get(), f.add_new_many(words))
    h.add_many(torch.arange(30_000, device="cuda"))
    other.add_many(np.arange(30_000))
    answers = h.add_new_many(torch.arange(29_990, 30_010, device="cuda").reshape(2, 10))
    assert isinstance(answers, torch.Tensor)
    assert (
        answers.cpu().numpy().tolist()
        == other.add_new_many(np.arange(29_990, 30_010).reshape(2, 10)).tolist()
    )
    g |= h
    f |= other
    assert g.to_host().to_bytes() == f.to_bytes()
    grows = FingerprintFilter(2000, fpr=1e-3, max_capacity=20_000)
    grows.add_many(numbers(4000))
    assert np.array_equal(
        cuda.to_device(grows).contains_many(cupy.asarray(numbers(9000))).get(),
        grows.contains_many(numbers(9000)),
    )


def test_fingerprints_with_too_little_memory() -> None:
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()  # so that nothing here lies in a larger block of before
    f = FingerprintFilter(3_000_000, fpr=1e-3)
    g = cuda.to_device(f)
    keys = cupy.asarray(numbers(2_900_000))
    g.add_many(keys[:1000])
    pool.free_all_blocks()
    pool.set_limit(size=pool.total_bytes() + (1 << 20))
    try:
        with pytest.raises(cuda.DeviceError, match="adding keys needs"):
            g.add_many(keys[1000:])
    finally:
        pool.set_limit(size=0)
    g.add_many(keys[1000:])
    f.add_many(numbers(2_900_000))
    assert g.to_host().to_bytes() == f.to_bytes()


def test_four_gib() -> None:
    """A filter of 4 GiB, built by the GPU and by the CPU: every byte, and the answers to 200 million keys."""
    f = BlockedBloomFilter(1 << 31, bits_per_key=16, hashes=10)
    g = cuda.to_device(f)
    for first in range(0, 1 << 29, 1 << 27):
        keys = np.arange(first, first + (1 << 27), dtype=np.uint64)
        f.add_many(keys)
        g.add_many(keys)
    probes = np.arange(1 << 28, (1 << 28) + 200_000_000, dtype=np.uint64) * np.uint64(3)
    assert np.array_equal(g.contains_many(probes), f.contains_many(probes))
    assert g.to_host() == f


@pytest.mark.parametrize("construction", ["classic", "two-hash"])
def test_sketches(construction: str) -> None:
    s = CountMinSketch(1e-2, 1e-4, construction=construction, seed=5)
    s.add_many(numbers(100))
    g = cuda.to_device(s)
    keys = numbers(300_001) % np.uint64(700)
    s.add_many(keys)
    g.add_many(cupy.asarray(keys))
    assert g.to_host() == s
    assert np.array_equal(g.count_many(cupy.asarray(keys)).get(), s.count_many(keys))
    assert np.array_equal(g.count_many(keys), s.count_many(keys))
    weights = keys % np.uint64(5) * np.uint64(1 << 30)
    for given, same in ((weights, cupy.asarray(weights)), (3, 3), (weights, weights)):
        s.add_many(keys, given)
        g.add_many(cupy.asarray(keys), same)
        g |= cuda.to_device(CountMinSketch(1e-2, 1e-4, construction=construction, seed=5))
        assert g.to_host() == s
    s.add_many(keys, weights)
    g.add_many(keys, weights)
    assert g.to_host() == s
    assert g.stats() == s.stats()
    fixed = cuda.to_device(CountMinSketch(conservative=True))
    with pytest.raises(cuda.DeviceError, match="conservative sketch is filled on the CPU"):
        fixed.add_many(cupy.asarray(keys))


def test_union_stats_build_digests() -> None:
    from evenbins import digest_many

    f, other = FILTERS["standard"](), FILTERS["standard"]()
    f.add_many(numbers(100))
    other.add_many(numbers(5000))
    g = cuda.to_device(f)
    g |= cuda.to_device(other)
    f |= other
    assert g.to_host() == f
    assert g.stats() == f.stats()
    digests = cupy.asarray(digest_many(numbers(5000), seed=3))
    assert cuda.build(other.plan, digests, digests=True).to_host() == other
