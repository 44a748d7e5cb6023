"""The fuse filter: built from all keys at once, never changed, the same bytes from any order and threads."""

from __future__ import annotations

import pickle
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow
import pytest
from click.testing import CliRunner

import evenbins
import reference
from evenbins import FuseFilter, _bulk, _core, design, digest, digest_many
from evenbins.cli import commands
from evenbins.filters import plan_fuse
from evenbins.filters.fuse import FuseKeys, freeze_fingerprints
from evenbins.theory import fuse as theory

GOLDEN = Path(__file__).parents[1] / "golden"
RNG = np.random.default_rng(19)
DIGESTS = RNG.integers(0, 2**64, 2_300_000, dtype=np.uint64)  # two blocks
ABSENT = RNG.integers(0, 2**64, 100_000, dtype=np.uint64)


def of_digests(digests: Any, fpr: float = 2**-8, **options: Any) -> FuseFilter:
    return FuseFilter.from_keys(digests, fpr, digests=True, **options)


@pytest.fixture(scope="module")
def large() -> FuseFilter:
    return of_digests(DIGESTS, threads=1)


# --- what is in is found ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [*range(12), 20, 31, 50, 100, 333, 1000, 10_000])
def test_small_sets(count: int) -> None:
    for seed in range(5):
        f = FuseFilter.from_keys(range(count), 2**-8, seed=seed)
        f._check()
        assert all(key in f for key in range(count))
        assert f.contains_many(np.arange(count)).all()
        assert f.stats().keys == f.approx_items() == count
        assert bool(f) == (count > 0)


def test_a_filter_without_keys_answers_no() -> None:
    f = FuseFilter.from_keys([], fpr=2**-4)
    assert f.plan.fpr == f.stats().fpr == 0.0
    assert not f.contains_many(ABSENT).any()
    assert not any(key in f for key in range(200))


@pytest.mark.parametrize("bits", range(4, 33))
def test_remainders_of_every_width(bits: int) -> None:
    digests = DIGESTS[:3000]
    f = of_digests(digests, 2.0**-bits)
    assert f.plan.bits == bits
    assert f.plan.fpr == f.stats().fpr == 2.0**-bits
    assert f.contains_many(digests, digests=True).all()
    wrong = int(f.contains_many(ABSENT, digests=True).sum())
    assert wrong <= 2 * len(ABSENT) * 2.0**-bits + 10
    many = f.contains_many(np.arange(500))
    assert [key in f for key in range(500)] == many.tolist()


def test_two_blocks(large: FuseFilter) -> None:
    large._check()
    assert large.plan.core.blocks == 2
    for threads in (1, 2):
        assert large.contains_many(DIGESTS, digests=True, threads=threads).all()


def test_keys_of_all_kinds() -> None:
    words = [f"key {i}" for i in range(1000)]
    expected = FuseFilter.from_keys(words, 1e-3)
    column = pyarrow.array(words)
    many: list[Any] = [
        tuple(words), set(words), dict.fromkeys(words), iter(words), (word.encode() for word in words),
        np.array(words), np.array([word.encode() for word in words]).reshape(10, 100), column,
        pyarrow.chunked_array([column[:300], column[300:]]), np.array(words, dtype=object),
    ]  # fmt: skip
    for keys in many:
        assert FuseFilter.from_keys(keys, 1e-3) == expected
    digests = digest_many(words)
    assert FuseFilter.from_keys(digests, 1e-3, digests=True) == expected
    assert FuseFilter.from_keys(digests.tolist(), 1e-3, digests=True) == expected


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        (["a", 1.5], TypeError),
        ("abc", TypeError),
        (np.array([1.5]), TypeError),
        ([2**64], ValueError),
        (7, TypeError),
    ],
)
def test_what_is_no_key(keys: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="key"):
        FuseFilter.from_keys(keys)


# --- the same bytes --------------------------------------------------------------------------------------


def test_order_repeats_and_threads_leave_no_trace(large: FuseFilter) -> None:
    expected = large.to_bytes()
    shuffled = RNG.permutation(np.concatenate([DIGESTS, DIGESTS[:300_000], np.repeat(DIGESTS[:3], 5000)]))
    for digests, threads in ((DIGESTS, 2), (DIGESTS[::-1], 3), (shuffled, 1), (shuffled, 2)):
        assert of_digests(digests, threads=threads).to_bytes() == expected


def test_batches_leave_no_trace(large: FuseFilter) -> None:
    keys = FuseKeys(0, 2)
    for read in (keys.count, keys.take):
        for start in range(0, len(DIGESTS), 100_003):
            read(DIGESTS[start : start + 100_003], digests=True)
    assert keys.build(FuseFilter, 2**-8) == large


@pytest.mark.parametrize("kernel", evenbins.kernels())
def test_kernels_leave_no_trace(kernel: str) -> None:
    before = evenbins.kernel()
    keys = np.arange(50_000)
    expected = FuseFilter.from_keys(keys, 2**-11, seed=3)
    _core.use_kernel(kernel)
    try:
        assert FuseFilter.from_keys(keys, 2**-11, seed=3).to_bytes() == expected.to_bytes()
    finally:
        _core.use_kernel(before)


def test_seeds() -> None:
    one, other = (FuseFilter.from_keys(range(1000), seed=seed) for seed in (1, 2))
    assert one != other
    assert one.seed == 1
    assert "seed='set'" in repr(one)
    assert bytes(memoryview(one)) != bytes(memoryview(other))
    assert other.contains_many(range(1000)).all()


def test_copies_files_and_pickles(large: FuseFilter, tmp_path: Path) -> None:
    large.save(tmp_path / "f")
    for twin in (
        large.copy(), pickle.loads(pickle.dumps(large)), FuseFilter.from_bytes(large.to_bytes()),
        FuseFilter.load(tmp_path / "f"), FuseFilter.open(tmp_path / "f"), evenbins.load(tmp_path / "f"),
    ):  # fmt: skip
        assert twin == large
        assert twin.plan == large.plan
        assert twin.contains_many(DIGESTS[:9999], digests=True).all()
        with pytest.raises(TypeError, match="never changes"):
            twin.add(1)


MAKER = runpy.run_path(str(GOLDEN / "make_golden.py"))


@pytest.mark.parametrize("name", MAKER["FUSED"])
def test_golden_files(name: str) -> None:
    data = (GOLDEN / f"{name}.evenbins").read_bytes()
    assert MAKER["golden_fuse"](name).to_bytes() == data
    f = evenbins.load(GOLDEN / f"{name}.evenbins")
    assert f.to_bytes() == data
    core, seed = MAKER["FUSED"][name]
    assert (f.plan.core, f.seed) == (core, seed)
    assert all(key in f for key in MAKER["KEYS"]) == (core[4] > 0)


# --- what it refuses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.add("a"), lambda f: f.add_new("a"), lambda f: f.add_many(["a"]),
        lambda f: f.update(["a"]),
        lambda f: f.add_new_many(["a"]), lambda f: f.clear(), lambda f: f.union(f), lambda f: f | f,
        lambda f: f.__ior__(f), lambda f: f & f, lambda f: f <= f, lambda f: f.approx_intersection(f),
        lambda f: FuseFilter(100), lambda f: FuseFilter.from_plan(f.plan),
    ],
)  # fmt: skip
def test_changes_raise_and_say_what_to_do(change: Callable[[FuseFilter], Any]) -> None:
    f = FuseFilter.from_keys(["a", "b"])
    before = f.to_bytes()
    with pytest.raises(TypeError, match="FuseFilter") as caught:
        change(f)
    assert any(word in str(caught.value) for word in ("from_keys", "build another", "Use ", "count the keys"))
    assert f.to_bytes() == before


def test_the_core_refuses_too() -> None:
    f = FuseFilter.from_keys(["a", "b"])
    before = f.to_bytes()
    base: Any = _core.Filter
    with pytest.raises(_core.FilterFullError):
        base.add(f, "c")
    with pytest.raises(_core.FilterFullError):
        base._add_from(f, _bulk.key_source(["c"])[0], 1)
    with pytest.raises(_core.FilterFullError):
        base._add_new_from(f, _bulk.key_source(np.arange(20_000))[0], 2)
    with pytest.raises(ValueError, match="never changes"):
        base._merge(f, f.copy())
    with pytest.raises(ValueError, match="never changes"):
        base._clear(f)
    assert f.to_bytes() == before


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"fpr": 0}, "fpr must be"), ({"fpr": 1e-10}, "fpr must be at least"), ({"fpr": "x"}, "fpr must be"),
        ({"bits_per_key": 3}, "bits_per_key must be at least"), ({"seed": -1}, "seed must be"),
        ({"fpr": 0.1, "bits_per_key": 9}, "exclude each other"), ({"threads": 0}, "threads must be"),
    ],
)  # fmt: skip
def test_wrong_arguments(options: dict[str, Any], match: str) -> None:
    with pytest.raises((ValueError, TypeError), match=match):
        FuseFilter.from_keys(range(1000), **options)


def _take_all(keys: FuseKeys, digests: Any) -> None:
    keys.take(digests, digests=True)
    keys.finish()


def test_keys_that_change_between_the_two_passes_are_noticed() -> None:
    for first, second in (
        (DIGESTS[:1000], DIGESTS[1000:2000]), (DIGESTS[:1000], DIGESTS[:999]), (DIGESTS[:5], DIGESTS[:6]),
    ):  # fmt: skip
        keys = FuseKeys(0, 1)
        keys.count(first, digests=True)
        with pytest.raises(RuntimeError, match="changed while they were read"):
            _take_all(keys, second)


def unmixed(hashed: int) -> int:
    """Return the digest of a hash: the inverse of splitmix(digest, 0)."""
    mask = 2**64 - 1
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        back = hashed
        for _ in range(3):
            back = hashed ^ back >> shift
        hashed = back * pow(factor, -1, 2**64) & mask
    return (hashed - 0x9E3779B97F4A7C15) & mask


def test_digests_that_were_chosen_to_fail_are_refused() -> None:
    chosen = [unmixed(i << 20) for i in range(1000)]
    assert reference.splitmix(chosen[7], 0) == 7 << 20
    with pytest.raises(ValueError, match="digests chosen"):
        of_digests(np.array(chosen, dtype=np.uint64))


def test_a_signal_stops_the_building() -> None:
    class StopError(Exception):
        pass

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise StopError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.03)
    try:
        with pytest.raises(StopError):
            of_digests(DIGESTS, threads=1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- plans -----------------------------------------------------------------------------------------------


def test_the_plan_is_that_of_the_filter(large: FuseFilter) -> None:
    assert plan_fuse(len(DIGESTS), 2**-8) == large.plan
    plan, stats = large.plan, large.stats()
    assert plan.nbytes == stats.nbytes == large.nbytes
    assert stats.keys == len(DIGESTS)
    assert abs(stats.fill - plan.fill) < 1e-3
    assert plan.overfilled_fpr == plan.fpr
    assert plan.to_dict()["bits"] == 8
    assert 0 <= stats.retried <= 2


@pytest.mark.parametrize("keys", [1, 2, 10, 1000, 10**6, 10**7, 10**9, 2**48])
def test_plans_of_all_sizes(keys: int) -> None:
    plan = plan_fuse(keys, 2**-8)
    assert plan.nbytes == reference.fuse.payload_bytes(plan.core)
    assert plan.keys == keys
    if keys >= 10**6:
        assert plan.bits_per_key <= 9.1
    for memory in (40, 60, 120):
        if keys >= 10:
            found = plan_fuse(keys, bits_per_key=memory)
            assert found.bits_per_key <= memory
            assert found.bits == 32 or plan_fuse(keys, 2.0 ** -(found.bits + 1)).bits_per_key > memory


MEMORY = """
import resource, sys
import numpy as np
from evenbins import FuseFilter
keys, threads = int(sys.argv[1]), int(sys.argv[2])
FuseFilter.from_keys(np.arange(1000, dtype=np.uint64), 2**-8, digests=True, threads=threads)
digests = np.random.default_rng(1).integers(0, 2**64, keys, dtype=np.uint64)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
FuseFilter.from_keys(digests, 2**-8, digests=True, threads=threads)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_building_takes_the_memory_that_is_stated(threads: int) -> None:
    """With 4.5 million digests: 8 bytes for each, the filter, a block per thread; 5 % and 8 MiB more."""
    keys = 4_500_000
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(keys), str(threads)], capture_output=True, text=True, check=True
    )
    stated = theory.build_bytes(keys, 8, threads)
    assert stated < (17 if threads > 1 else 13) * keys
    assert int(done.stdout) <= 1.05 * stated + 2**23


# --- fingerprints ----------------------------------------------------------------------------------------


def test_fingerprints() -> None:
    count, keys = 10**6 + 3, range(2000)
    prints = np.array([digest(key, 5) * count >> 64 for key in keys], dtype=np.uint64)
    f = freeze_fingerprints(prints, count, 2**-12, seed=5)
    held = len(set(prints.tolist()))
    assert f.contains_many(keys).all()
    assert all(key in f for key in keys)
    assert f.stats().keys == held
    assert f.plan.core.fingerprints == count
    assert f.plan.fpr == f.stats().fpr == pytest.approx(1 - (1 - held / count) * (1 - 2**-12))
    assert pickle.loads(pickle.dumps(f)) == f
    twin = reference.ReferenceFuse(f.plan.core, prints.tolist(), seed=5)
    assert twin.payload() == bytes(memoryview(f))
    asked = range(10_000, 30_000)
    assert f.contains_many(asked).tolist() == [key in twin for key in asked]


def test_equal_fingerprints_of_different_keys_are_found() -> None:
    """At n/M = 1/10 nearly all that is found of absent keys has a fingerprint of the set."""
    count = 5000
    prints = np.arange(0, count, 10, dtype=np.uint64)
    f = freeze_fingerprints(prints, count, 2**-20, seed=0)
    asked = range(50_000)
    expected = [(digest(key) * count >> 64) % 10 == 0 for key in asked]
    assert f.contains_many(asked).tolist() == expected


# --- wiring ----------------------------------------------------------------------------------------------


def test_design_proposes_it_for_fixed_sets_alone() -> None:
    assert [each.policy for each in design.filter(1000, fpr=1e-3, needs=["fixed set"])] == ["fuse"]
    assert "fuse" not in [each.policy for each in design.filter(1000, fpr=1e-3)]
    f = design.filter(1000, fpr=1e-3, needs=["fixed set"], seed=4).build(range(1000))
    assert f == FuseFilter.from_keys(range(1000), 1e-3, seed=4)
    with pytest.raises(TypeError, match="from_keys"):
        design.filter(1000, fpr=1e-3, needs=["fixed set"]).build()
    assert design.filter(10, fpr=1e-3).build(["a"]).stats().keys > 0.5


def test_the_command_line(tmp_path: Path) -> None:
    run = CliRunner().invoke
    lines = [f"line {i % 700}" for i in range(1000)]
    (tmp_path / "keys").write_text("\n".join(lines))
    out = tmp_path / "out"
    fuse = ["-o", str(out), "--kind", "fuse"]
    done = run(commands, ["build", "-", *fuse, "--fpr", "2e-3"], input="\n".join(lines))
    assert done.exit_code == 0, done.output
    assert "700 different" in done.output
    assert evenbins.load(out) == FuseFilter.from_keys(lines, 2e-3)
    done = run(commands, ["build", str(tmp_path / "keys"), *fuse, "--bits-per-key", "13"])
    assert done.exit_code == 0, done.output
    assert evenbins.load(out) == FuseFilter.from_keys(lines, bits_per_key=13)
    for option in (["--capacity", "900"], ["--hashes", "3"], ["--block-bits", "256"], ["--workers", "2"]):
        done = run(commands, ["build", str(tmp_path / "keys"), *fuse, *option])
        assert done.exit_code != 0
        assert option[0] in done.output
    assert "fuse" in run(commands, ["inspect", str(out)]).output


def test_a_filter_without_keys_shows_none():
    assert repr(FuseFilter.from_keys([])).startswith("FuseFilter(keys=0,")
