"""evenbins.cuda without a GPU: its kernels run as fibers of the CPU, its arrays are NumPy's (tests/emulator).

Every key and every byte is compared with the compiled core. Races between threads are not found here: `make
test-gpu` looks for those, on a machine with a GPU.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    CountingBloomFilter,
    CountMinSketch,
    FilterFullError,
    FingerprintFilter,
    OverfilledWarning,
)
from evenbins.filters.blocked import plan_blocked
from evenbins.structure import that_can
from evenbins.study.hashing import plan_scheme
from evenbins.theory.cores import BalancedCore

ROOT = Path(__file__).resolve().parents[2]
FILTERS = {
    "blocked": lambda: BlockedBloomFilter(30_000, bits_per_key=16, hashes=10, seed=7),
    "blocked-256": lambda: BlockedBloomFilter(30_000, bits_per_key=16, hashes=8, block_bits=256),
    "standard": lambda: BloomFilter(30_000, bits_per_key=16, hashes=10, seed=3),
}


def test_the_registry_names_what_can_be_on_a_gpu() -> None:
    from evenbins.cuda.transfer import CLASSES

    assert set(CLASSES) == {kind.name for kind in that_can("cuda")}


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sys.path.insert(0, str(ROOT / "tests" / "emulator"))
    import fake_cupy

    library = tmp_path_factory.mktemp("emulator") / "emulator.so"
    folders = [f"-I{ROOT / each}" for each in ("cpp/cuda", "cpp/include", "tests/emulator")]
    source = ROOT / "tests" / "emulator" / "emulator.cpp"
    subprocess.run(
        [
            "g++",
            "-std=c++20",
            "-O1",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wno-unknown-pragmas",
            *folders,
            source,
            "-o",
            library,
        ],
        check=True,
    )
    before = {
        name: module for name, module in sys.modules.items() if name.startswith(("cupy", "evenbins.cuda"))
    }
    for name in before:
        del sys.modules[name]
    sys.modules["cupy"], sys.modules["cupyx"] = fake_cupy.make(library)
    import evenbins.cuda

    yield evenbins.cuda
    for name in [name for name in sys.modules if name.startswith(("cupy", "evenbins.cuda"))]:
        del sys.modules[name]
    sys.modules.update(before)


def on_gpu(array: Any) -> Any:
    return sys.modules["cupy"].array(array)


def numbers(n: int, *, repeats: bool = False) -> Any:
    found = np.arange(n, dtype=np.uint64)
    if repeats:
        found = found * np.uint64(7919) % np.uint64(max(n // 3, 1))
    return found * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(n)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("n", [0, 1, 31, 33, 5003])
def test_the_same_bytes_and_answers(cuda: Any, name: str, n: int) -> None:
    f = FILTERS[name]()
    f.add_many(np.arange(100))
    g = cuda.to_device(f)
    keys, probes = numbers(n), numbers(2 * n)
    f.add_many(keys)
    g.add_many(on_gpu(keys))
    assert g.to_host() == f
    found = g.contains_many(on_gpu(probes))
    assert type(found).__name__ == "Array"
    assert found.dtype == np.bool_
    assert np.array_equal(found, f.contains_many(probes))


@pytest.mark.parametrize("name", FILTERS)
def test_stats_are_those_of_the_cpu(cuda: Any, name: str) -> None:
    f = FILTERS[name]()
    for n in (0, 900):
        f.add_many(numbers(n))
        assert cuda.to_device(f).stats() == f.stats()


@pytest.mark.parametrize("name", FILTERS)
def test_new_keys_are_those_of_the_cpu(cuda: Any, name: str) -> None:
    f = FILTERS[name]()
    g = cuda.to_device(f)
    for n in (1, 40, 3001):
        keys = numbers(n, repeats=True)
        assert np.array_equal(g.add_new_many(on_gpu(keys)), f.add_new_many(keys))
        assert g.to_host() == f
    same = np.full(700, 5, np.uint64)
    assert np.array_equal(g.add_new_many(on_gpu(same)), f.add_new_many(same))
    assert g.to_host() == f


@pytest.mark.parametrize("name", ["blocked", "blocked-256"])
@pytest.mark.parametrize("one_pass", [1, 512])
def test_partitioned_additions(cuda: Any, name: str, one_pass: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen regions, in one pass and in two; more copies of one key than its region has space for."""
    from evenbins.cuda import _partition

    monkeypatch.setattr(_partition, "_ONE_PASS", one_pass)
    monkeypatch.setattr(_partition, "pays", lambda table, n: True)
    made = {"blocked": (10, 512), "blocked-256": (8, 256)}[name]
    f = BlockedBloomFilter(500_000, bits_per_key=16, hashes=made[0], block_bits=made[1], seed=1)
    g = cuda.to_device(f)
    keys = np.concatenate([numbers(9001), np.full(4000, 77, np.uint64)])
    f.add_many(keys)
    g.add_many(on_gpu(keys))
    assert g.to_host() == f
    keys = np.concatenate([numbers(500), np.full(3000, 78, np.uint64), numbers(12_000)])
    assert np.array_equal(g.add_new_many(on_gpu(keys)), f.add_new_many(keys))
    assert g.to_host() == f


def test_strings_and_other_integers(cuda: Any) -> None:
    f = FILTERS["blocked"]()
    g = cuda.to_device(f)
    words = [bytes([65 + i % 26]) * (i % 300) for i in range(600)]
    offsets = np.cumsum([0, *map(len, words)])
    text = np.frombuffer(b"".join(words), np.uint8)
    f.add_many(words[:300])
    g.add_many(cuda.Strings(on_gpu(text), on_gpu(offsets[:301])))
    assert g.to_host() == f
    strings = cuda.Strings(on_gpu(text), on_gpu(offsets))
    assert np.array_equal(g.contains_many(strings), f.contains_many(words))
    signed = np.arange(-500, 500, dtype=np.int32)
    f.add_many(signed)
    g.add_many(on_gpu(signed))
    digests = numbers(50)
    f.add_many(digests, digests=True)
    g.add_many(on_gpu(digests), digests=True)
    assert g.to_host() == f
    assert g.contains_many(on_gpu(signed).reshape(10, 100)).shape == (10, 100)


def test_keys_on_the_host_are_streamed(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from evenbins.cuda import _streams

    monkeypatch.setattr(_streams, "PIECE", 256)
    f = FILTERS["blocked"]()
    g = cuda.to_device(f)
    keys = numbers(3000)
    f.add_many(keys)
    g.add_many(keys)
    f.add_many(["a", "b", 3])
    g.add_many(["a", "b", 3])
    assert g.to_host() == f
    probes = numbers(5000).reshape(50, 100)
    found = g.contains_many(probes)
    assert type(found) is np.ndarray
    assert np.array_equal(found, f.contains_many(probes))
    again = numbers(900, repeats=True)
    assert np.array_equal(g.add_new_many(again), f.add_new_many(again))
    assert g.to_host() == f


def test_union_stats_and_build(cuda: Any) -> None:
    f, other = FILTERS["blocked"](), FILTERS["blocked"]()
    other.add_many(numbers(500))
    f.add_many(numbers(300))
    g = cuda.to_device(f)
    g |= cuda.to_device(other)
    f |= other
    assert g.to_host() == f
    assert g.stats() == f.stats()
    assert cuda.build(other.plan, on_gpu(numbers(500))).to_host() == other
    with pytest.raises(ValueError, match="same plan"):
        g |= cuda.to_device(FILTERS["standard"]())


@pytest.mark.parametrize("policy", ["fill", "two-choice", "multilevel", "sequential", "single"])
def test_look_ups_in_balanced_filters(cuda: Any, policy: str) -> None:
    f = BalancedBloomFilter(3000, bits_per_key=24, policy=policy)
    f.add_many(numbers(4000))  # more than planned: full blocks, a full list
    g = cuda.to_device(f)
    probes = numbers(9000)
    assert np.array_equal(g.contains_many(on_gpu(probes)), f.contains_many(probes))
    assert g.to_host() == f
    assert g.stats() == f.stats()
    if policy in ("two-choice", "sequential"):
        with pytest.raises(cuda.DeviceError, match="is filled on the CPU"):
            g.add_many(on_gpu(probes))
    if policy in ("fill", "two-choice"):
        g |= g
        assert g.to_host() == f
    else:
        with pytest.raises(cuda.DeviceError, match="are united on the CPU"):
            g |= g


@pytest.mark.parametrize("policy", ["fill", "multilevel", "single"])
def test_balanced_filters_are_filled_level_by_level(
    cuda: Any, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every key finds a block or a place on the list, the digest 0 too; then there are too many keys."""
    from evenbins.cuda import balanced

    on_host: list[int] = []
    by_host = balanced.DeviceBalancedFilter._add_on_host

    def noted(self: Any, digests: Any) -> Any:
        on_host.append(digests.size)
        return by_host(self, digests)

    monkeypatch.setattr(balanced.DeviceBalancedFilter, "_add_on_host", noted)
    monkeypatch.setattr(balanced, "_BATCH", 2000)
    f = BalancedBloomFilter(6000, bits_per_key=20 if policy == "fill" else 24, policy=policy, seed=1)
    if policy == "multilevel":
        core = BalancedCore.of(policy, 512, 15, 2, 1 << 31, 150, "least", 0, (240, 40), (20, 18))
        f = BalancedBloomFilter.from_plan(type(f.plan).of_core(policy, core, 6000, 1, "lanes"))
    g = cuda.build(f.plan, on_gpu(numbers(0)))
    keys = numbers(5400)
    for piece in (keys[:1], keys[:3000], np.repeat(keys[2500:3500], 2), keys[3000:]):
        assert np.array_equal(g.add_new_many(on_gpu(piece)), f.add_new_many(piece))
        assert g.to_host().to_bytes() == f.to_bytes()
    if policy != "fill":
        same = np.zeros(30, np.uint64)
        digests = np.arange(
            24, dtype=np.uint64
        )  # all of one block, which is soon full: the others are listed
        for piece in (digests, same, digests + np.uint64(5)):
            assert np.array_equal(
                g.add_new_many(on_gpu(piece), digests=True), f.add_new_many(piece, digests=True)
            )
            assert g.to_host().to_bytes() == f.to_bytes()
        assert f.stats().overflow > 0
    assert not on_host
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverfilledWarning)
        f.add_many(numbers(9000))
    g.add_many(numbers(9000))
    assert g.to_host().to_bytes() == f.to_bytes()
    assert on_host


# Remainders of 6, 10 and 21 bits: more than 64 slots in a line; small and wide entries of level 3.
@pytest.mark.parametrize("fpr", [0.1, 1e-3, 1e-6])
@pytest.mark.parametrize("semantics", ["multiset", "set"])
def test_fingerprint_filters(cuda: Any, fpr: float, semantics: str) -> None:
    """Every level and the overflow list; calls into an empty filter, into a full one, from the host."""

    def new() -> FingerprintFilter:
        return FingerprintFilter(4000, fpr=fpr, semantics=semantics, seed=3)

    f = new()
    keys = np.concatenate([numbers(3700), np.full(60, 7, np.uint64)])
    g = cuda.build(f.plan, on_gpu(keys[:0]))
    for piece in (keys[:0], keys[:1], keys[1:3000]):
        f.add_many(piece)
        g.add_many(on_gpu(piece))
        assert g.to_host().to_bytes() == f.to_bytes()
    f.add_many(keys[3000:])
    g.add_many(keys[3000:])
    assert g.to_host().to_bytes() == f.to_bytes()
    if semantics == "multiset" and fpr < 0.1:
        assert f.stats().overflow > 0
        assert np.array_equal(g.count_many(on_gpu(keys)), f.count_many(keys))
    probes = numbers(7001)
    assert np.array_equal(g.contains_many(on_gpu(probes)), f.contains_many(probes))
    assert g.stats() == f.stats()
    again = np.concatenate([keys[:50], numbers(90)[-30:], numbers(90)[-30:]])
    assert np.array_equal(g.add_new_many(on_gpu(again)), f.add_new_many(again))
    assert np.array_equal(g.add_new_many(again), f.add_new_many(again))
    before = g.to_host().to_bytes()
    assert before == f.to_bytes()
    for call in (g.add_many, g.add_new_many):
        with pytest.raises(FilterFullError, match="do not fit, and none was added") as error:
            call(on_gpu(probes + np.uint64(1)))
        assert error.value.added == 0
    assert g.to_host().to_bytes() == before
    f, other = new(), new()
    f.add_many(keys[:900])
    other.add_many(keys[500:1500])
    g, h = cuda.to_device(f), cuda.to_device(other)
    if semantics == "set":
        g |= h
        f |= other
        with pytest.raises(TypeError, match=r"a set has no \+"):
            g += h
    else:
        g += h
        f += other
        with pytest.raises(TypeError, match=r"a multiset has no \|"):
            g |= h
    assert g.to_host().to_bytes() == f.to_bytes()


def test_fingerprint_filters_that_grow_or_are_too_large(cuda: Any) -> None:
    f = FingerprintFilter(2000, fpr=1e-3, max_capacity=20_000)
    f.add_many(numbers(4000))
    g = cuda.to_device(f)
    probes = numbers(5000)
    assert np.array_equal(g.contains_many(on_gpu(probes)), f.contains_many(probes))
    assert g.to_host() == f
    with pytest.raises(cuda.DeviceError, match="grows on the CPU alone: add the keys there"):
        g.add_many(on_gpu(probes))
    large = FingerprintFilter(4000, fpr=1e-6).plan
    core = large.core._replace(lines=1 << 29, group=1, quotients=32, remainder=28)
    with pytest.raises(cuda.DeviceError, match="has cells of 64 bits, and those of this one need"):
        cuda.build(type(large).of_core("fingerprint", core, 4000, 0, "lanes"), on_gpu(probes))
    with pytest.raises(cuda.DeviceError, match=r"has fewer than 2\*\*40 bits, and this one has 1,\d{3},"):
        cuda.build(plan_blocked(1 << 37, bits_per_key=8, hashes=4), on_gpu(probes))


@pytest.mark.parametrize("construction", ["classic", "two-hash"])
def test_sketches(cuda: Any, construction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from evenbins.cuda import _streams

    s = CountMinSketch(1e-2, 1e-4, construction=construction, seed=5)
    s.add_many(numbers(100))
    g = cuda.to_device(s)
    keys = numbers(3001) % np.uint64(700)
    s.add_many(keys)
    g.add_many(on_gpu(keys))
    assert g.to_host() == s
    assert np.array_equal(g.count_many(on_gpu(keys)), s.count_many(keys))
    assert np.array_equal(g.count_many(keys), s.count_many(keys))
    weights = keys % np.uint64(5) * np.uint64(1 << 40)
    for given in (weights, on_gpu(weights), 3, 0, weights.astype(np.int64).tolist()):
        s.add_many(keys, given)
        g.add_many(on_gpu(keys), given)
        assert g.to_host() == s
    monkeypatch.setattr(_streams, "PIECE", 500)
    s.add_many(keys, weights)
    g.add_many(keys, weights)
    assert g.to_host() == s
    h = cuda.to_device(s)
    h |= g
    s += s.copy()
    assert h.to_host() == s
    assert h.stats() == s.stats()
    before = g.to_host()
    for given, error, words in (
        (on_gpu(weights[:-1]), ValueError, "got 3000 weights for"),
        (on_gpu(np.append(weights, weights[:1])), ValueError, "got 3002 weights for 3001 keys"),
        (on_gpu(np.full(keys.size, 1 << 62, np.uint64)), OverflowError, "nothing was added"),
        (on_gpu(np.full(keys.size, -1)), ValueError, "must not be negative"),
        (on_gpu(np.ones(keys.size)), TypeError, "not an array of float64"),
        (2**63, OverflowError, "nothing was added"),
    ):
        for source in (keys, on_gpu(keys)):
            with pytest.raises(error, match=words):
                g.add_many(source, given)
    assert g.to_host() == before
    fixed = cuda.to_device(CountMinSketch(conservative=True))
    with pytest.raises(cuda.DeviceError, match="conservative sketch is filled on the CPU"):
        fixed.add_many(on_gpu(keys))


def test_errors_say_what_to_do(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import fake_cupy

    f = FILTERS["blocked"]()
    g = cuda.to_device(f)
    with pytest.raises(TypeError, match="a counting filter cannot be in device memory: use one of BloomFil"):
        cuda.to_device(CountingBloomFilter(1000, fpr=1e-3))
    with pytest.raises(TypeError, match="a set cannot be in device memory"):
        cuda.to_device({1, 2})
    with pytest.raises(TypeError, match="has independent hashing, not 'double'"):
        cuda.to_device(BloomFilter.from_plan(plan_scheme("double", 100, fpr=0.01)))
    with pytest.raises(TypeError, match=r"integers, digests or cuda\.Strings"):
        g.add_many(on_gpu([1.5]))
    with pytest.raises(TypeError, match="digests must be uint64"):
        g.add_many(on_gpu(np.arange(3, dtype=np.int64)), digests=True)
    elsewhere = on_gpu(numbers(3))
    monkeypatch.setattr(fake_cupy.Array, "device", type("Device", (), {"id": 1}))
    with pytest.raises(cuda.DeviceError, match="keys are on GPU 1 and the filter on GPU 0"):
        g.contains_many(elsewhere)
    monkeypatch.undo()
    cupy = sys.modules["cupy"]

    def no_memory(*_: object) -> None:
        raise fake_cupy.OutOfMemoryError

    with monkeypatch.context() as patched:
        patched.setattr(cupy, "empty", no_memory)
        with pytest.raises(
            cuda.DeviceError, match=r"needs 60,032 bytes .* 1,073,741,824 of 2,147,483,648 are free"
        ):
            cuda.to_device(f)
    before = f.to_bytes()
    with monkeypatch.context() as patched:

        def fails(*_: object, **__: object) -> None:
            raise fake_cupy.CUDARuntimeError("unspecified launch failure")

        patched.setattr(fake_cupy.Kernel, "__call__", fails)
        with pytest.raises(
            cuda.DeviceError, match="adding keys failed on the GPU, and the filter on the host is unch"
        ):
            g.add_many(on_gpu(numbers(3)))
    assert f.to_bytes() == before
    for other in (
        FingerprintFilter(1000, fpr=1e-3),
        BalancedBloomFilter(1000, bits_per_key=24, policy="fill"),
        CountMinSketch(),
    ):
        copy, before = cuda.to_device(other), other.to_bytes()
        with monkeypatch.context() as patched:
            patched.setattr(fake_cupy.Kernel, "__call__", fails)
            with pytest.raises(
                cuda.DeviceError, match="adding keys failed on the GPU, and the filter on the host"
            ):
                copy.add_many(on_gpu(numbers(3)))
            assert other.to_bytes() == before
    with monkeypatch.context() as patched:

        def no_driver() -> int:
            raise fake_cupy.CUDARuntimeError("cudaErrorInsufficientDriver")

        patched.setattr(cupy.cuda.runtime, "getDeviceCount", no_driver)
        with pytest.raises(cuda.DeviceError, match="driver does not answer: cudaErrorInsufficientDriver"):
            cuda.to_device(f)
    with monkeypatch.context() as patched:
        patched.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 0)
        with pytest.raises(cuda.DeviceError, match="finds none"):
            cuda.to_device(f)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "cupy", None)
        with pytest.raises(ImportError, match=r"pip install 'evenbins\[cuda\]'"):
            cuda.to_device(f)
