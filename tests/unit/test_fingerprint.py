"""The fingerprint filter as a class: multisets and sets, what does not fit, plans, the command line.

The shared suites have the rest: test_filters.py and test_threads.py run over sets, test_fingerprint_twin.py
over any history, test_fingerprint_core.py over the lines.
"""

from __future__ import annotations

import operator
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from click.testing import CliRunner

import evenbins
from evenbins import ArgumentError, CountingBloomFilter, FilterFullError, FingerprintFilter, design
from evenbins.cli import commands
from evenbins.filters import plan_fingerprint, plan_of_core

RNG = np.random.default_rng(18)
SMALL = (16, 8, 64, 1, 3, 1500, 0, 0)  # lines overflow from 600 keys on, and the list takes three


def made(*core: int, seed: int = 0) -> FingerprintFilter:
    plan: Any = plan_of_core("fingerprint", core, capacity=100, seed=seed, hashing="lanes")
    return FingerprintFilter.from_plan(plan)


def digests_that_clump(count: int) -> np.ndarray:
    """Return digests of one run: they leave level 1 and level 2 together."""
    return (np.arange(count, dtype=np.uint64) << np.uint64(40)) + np.uint64(2**63)


# --- multisets and sets ----------------------------------------------------------------------------------


def test_a_multiset_counts_and_removes() -> None:
    f = FingerprintFilter(1000, 1e-6)
    f.add_many(["a", "b", "a"])
    assert (f.count("a"), f.count("b"), f.count("c")) == (2, 1, 0)
    f.remove("a")
    assert f.discard("a")
    assert "a" not in f
    with pytest.raises(KeyError):
        f.remove("a")
    assert f.remove_many(np.array(["b", "a"])).tolist() == [True, False]
    assert not f
    assert f == FingerprintFilter(1000, 1e-6)


def test_a_set_holds_a_key_once_and_refuses_removal() -> None:
    f = FingerprintFilter(1000, 1e-6, semantics="set")
    f.add_many(["a", "a"])
    f.add("a")
    assert f.stats().keys == 1
    assert f.count("a") == 1
    assert f.count_many(["a", "b"]).tolist() == [1, 0]
    for call in (f.remove, f.discard, lambda key: f.remove_many([key])):
        with pytest.raises(TypeError, match=r'semantics="set" has no remove'):
            call("a")
    assert "a" in f


def test_sum_and_union() -> None:
    f, g = FingerprintFilter(100, 1e-6), FingerprintFilter(100, 1e-6)
    f.add("a")
    g.add_many(["a", "b"])
    both = f + g
    assert (both.count("a"), both.count("b")) == (2, 1)
    f += g
    assert f == both
    for call in (lambda: f | g, lambda: f.union(g)):
        with pytest.raises(TypeError, match=r"Use \+"):
            call()
    one, other = (FingerprintFilter(100, 1e-6, semantics="set") for _ in range(2))
    one.add("a")
    other.add_many(["a", "b"])
    assert (one | other).stats().keys == 2
    with pytest.raises(TypeError, match=r"Use \|"):
        one + other  # type: ignore[unused-ignore]
    with pytest.raises(ValueError, match="semantics multiset and set"):
        f += one
    with pytest.raises(TypeError):
        f += CountingBloomFilter(100)  # type: ignore[arg-type]


def test_the_overlap_of_two_filters() -> None:
    for semantics in ("multiset", "set"):
        f, g = (FingerprintFilter(10_000, 1e-6, semantics=semantics) for _ in range(2))
        f.add_many(np.arange(4000))
        g.add_many(np.arange(3000, 6000))
        assert f.approx_intersection(g) == pytest.approx(1000, abs=2)
        with pytest.raises(TypeError, match="approx_intersection"):
            f & g


def test_equality_is_of_fingerprints_whatever_happened() -> None:
    f, g = FingerprintFilter(1000, 1e-3), FingerprintFilter(1000, 1e-3)
    f.add_many(np.arange(1000))
    f.remove_many(np.arange(500))
    g.add_many(np.arange(999, 499, -1))
    assert f == g
    assert f.to_bytes() == g.to_bytes()
    assert pickle.loads(pickle.dumps(f)) == f


def test_from_keys_plans_for_the_copies() -> None:
    f = FingerprintFilter.from_keys(iter(["a"] * 5), 1e-3)
    assert (f.capacity, f.count("a")) == (5, 5)
    assert FingerprintFilter.from_keys(["a"] * 5, 1e-3, semantics="set").capacity == 1


# --- what does not fit -----------------------------------------------------------------------------------

ARRAYS = {"numpy": np.asarray, "arrow": pyarrow.array}


@pytest.mark.parametrize("of", ARRAYS.values(), ids=ARRAYS.keys())
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("is_set", [0, 1])
def test_an_array_beyond_the_limit_adds_nothing(of: Any, threads: int, is_set: int) -> None:
    f = made(32, 16, 64, 2, 100, 300, is_set, 0)
    f.add_many(of(np.arange(200)), threads=threads)
    before = f.to_bytes()
    with pytest.raises(FilterFullError, match=r"at most 300.*none was added") as caught:
        f.add_many(of(np.arange(150, 400)), threads=threads)
    assert caught.value.added == 0
    assert f.to_bytes() == before
    f.add_many(of(np.arange(200, 300)), threads=threads)
    assert f.stats().keys == 300
    with pytest.raises(FilterFullError):
        f.add(1000)
    if is_set:
        f.add_many(of(np.arange(300)), threads=threads)  # all of them are in
    assert f.stats().keys == 300


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("is_set", [0, 1])
def test_an_array_for_which_the_overflow_list_is_too_short_adds_nothing(threads: int, is_set: int) -> None:
    """Far below the limit: digests that all belong to one line, some of them in already."""
    f = made(*SMALL[:6], is_set, 0)
    words = np.concatenate([RNG.integers(0, 2**64, 300, dtype=np.uint64), digests_that_clump(20)])
    f.add_many(words, digests=True, threads=threads)
    before = f.to_bytes()
    more = RNG.integers(0, 2**64, 1000, dtype=np.uint64)
    with pytest.raises(FilterFullError, match="none was added") as caught:
        f.add_many(np.concatenate([words[:50], more, words]), digests=True, threads=threads)
    assert caught.value.added == 0
    assert f.to_bytes() == before
    f._check()


def test_of_an_iterable_the_keys_before_are_in() -> None:
    f = made(32, 16, 64, 2, 100, 300, 0, 0)
    with pytest.raises(FilterFullError) as caught:
        f.add_many(iter(range(400)))
    assert caught.value.added == f.stats().keys == 300


@pytest.mark.parametrize("is_set", [0, 1])
def test_filters_that_do_not_fit_in_one_are_left_as_they_are(is_set: int) -> None:
    f, g = (made(*SMALL[:6], is_set, 0) for _ in range(2))
    f.add_many(np.arange(700))
    g.add_many(np.arange(700, 1450))
    before = f.to_bytes()
    with pytest.raises(FilterFullError, match="do not fit in one"):
        (operator.ior if is_set else operator.iadd)(f, g)
    assert f.to_bytes() == before


def test_an_open_filter_says_that_it_is_read_only(tmp_path: Path) -> None:
    f = FingerprintFilter(100)
    f.save(tmp_path / "f")
    opened = FingerprintFilter.open(tmp_path / "f")
    with pytest.raises(ValueError, match="read-only"):
        opened += f
    with pytest.raises(ValueError, match="read-only"):
        opened.add_many(np.arange(3))


# --- plans -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fpr", "bits"), [(1e-3, 14.0), (1e-4, 18.4), (1e-6, 27.2)])
def test_the_bits_that_the_issue_asks_for(fpr: float, bits: float) -> None:
    plan = plan_fingerprint(10_000_000, fpr)
    assert plan.bits_per_key <= bits
    assert plan.fpr <= fpr
    assert plan.reads <= 1.05
    assert plan.miss_reads <= 1.02


def test_wrong_arguments() -> None:
    wrong: list[dict[str, Any]] = [
        {"semantics": "bag"},
        {"fpr": 0.0},
        {"bits_per_key": 2.0},
        {"fpr": 1e-3, "bits_per_key": 14},
    ]
    for arguments in wrong:
        with pytest.raises(ArgumentError):
            FingerprintFilter(10_000_000, **arguments)


def test_design_proposes_it_where_keys_are_removed() -> None:
    found = design.filter(1_000_000, fpr=1e-3, needs=["deletions"])
    assert [each.policy for each in found] == ["fingerprint", "counting"]
    f = found.build(["ant"])
    assert isinstance(f, FingerprintFilter)
    assert f.discard("ant")
    assert "fingerprint" not in {each.policy for each in design.filter(1_000_000, fpr=1e-3)}


# --- the command line ------------------------------------------------------------------------------------


def run(*arguments: object) -> Any:
    return CliRunner().invoke(commands, [str(each) for each in arguments])


def test_build_inspect_query_and_merge(tmp_path: Path) -> None:
    lines = [f"line {i}" for i in range(500)]
    for name in ("a", "b"):
        (tmp_path / name).write_text("\n".join([*lines, name, name]))
        done = run("build", tmp_path / name, "-o", tmp_path / f"{name}.f", "--kind", "fingerprint",
                   "--capacity", 2000)  # fmt: skip
        assert done.exit_code == 0, done.output
    done = run("merge", tmp_path / "a.f", tmp_path / "b.f", "-o", tmp_path / "both")
    assert done.exit_code == 0, done.output
    both = evenbins.load(tmp_path / "both")
    assert (both.count("a"), both.count("line 7")) == (2, 2)
    shown = run("inspect", tmp_path / "both").output
    assert "multiset" in shown
    assert "hashes" not in shown
    assert run("query", tmp_path / "both", tmp_path / "a").exit_code == 0


def test_build_takes_bits_per_key_without_a_capacity(tmp_path: Path) -> None:
    """It was checked for one key, which needs thousands of bits."""
    (tmp_path / "keys").write_text("".join(f"{i}\n" for i in range(20_000)))
    done = run(
        "build", tmp_path / "keys", "-o", tmp_path / "f", "--kind", "fingerprint", "--bits-per-key", 14
    )
    assert done.exit_code == 0, done.output
    assert evenbins.load(tmp_path / "f").plan.bits_per_key <= 14
    done = run("build", tmp_path / "keys", "-o", tmp_path / "f", "--kind", "fingerprint", "--bits-per-key", 2)
    assert done.exit_code != 0
    assert "--bits-per-key" in done.output


def test_build_says_that_a_filter_is_full(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("same\n" * 5000)
    done = run("build", tmp_path / "keys", "-o", tmp_path / "f", "--kind", "fingerprint")
    assert done.exit_code == 1
    assert "--capacity" in done.output
    for option in (["--hashes", "3"], ["--block-bits", "256"]):
        done = run("build", tmp_path / "keys", "-o", tmp_path / "f", "--kind", "fingerprint", *option)
        assert done.exit_code != 0
        assert option[0] in done.output


def test_merge_says_that_files_do_not_fit_in_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        f = FingerprintFilter(100)
        f.add_many(np.arange(80))
        f.save(tmp_path / name)
    done = run("merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "both")
    assert done.exit_code == 1
    assert "do not fit in one" in done.output
