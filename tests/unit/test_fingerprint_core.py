"""The core of the fingerprint filter against multisets of fingerprints: every answer, and every byte.

A filter is `_core.Filter` of kind 18, without its public class. Its fingerprints follow from digests, in
Python: floor(digest · M / 2^64). Whatever is added and removed, answers are exactly those of a Counter of
fingerprints, and the bytes those of a new filter that got the surviving fingerprints in another order.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

import evenbins
from evenbins import _core

KIND, HASHING = 18, 2
KERNELS = _core.kernels()
each_kernel = pytest.mark.parametrize("kernel", KERNELS, indirect=True)  # avx512vbmi in short runs, too


class Core(NamedTuple):
    """The integers of a fingerprint filter."""

    lines: int
    remainder: int
    quotients: int
    group: int
    rest: int = 2_000
    limit: int = 1 << 40
    set: int = 0
    doublings: int = 0

    @property
    def slots(self) -> int:
        """Return the fingerprints that the lines of level 1 hold."""
        return self.lines * ((512 - self.quotients) // (self.remainder + 1))

    @property
    def size(self) -> int:
        """Return the number of different fingerprints."""
        return self.lines * self.quotients << self.remainder


# Remainders without a byte plane (with more than 64 slots, and fewer), with one, two and three; with low bits
# and without.
SHAPES = [
    Core(16 * 3, 4, 64, 3), Core(16 * 2, 5, 40, 2), Core(16 * 16, 7, 33, 16), Core(2 * 16 * 7, 8, 64, 7),
    Core(16, 8, 50, 1), Core(16 * 14, 11, 61, 14), Core(16 * 5, 12, 64, 5), Core(3 * 16 * 12, 16, 64, 12),
    Core(16 * 9, 17, 32, 9), Core(16 * 4, 18, 47, 4), Core(16 * 13, 21, 64, 13), Core(16 * 15, 24, 64, 15),
    Core(16 * 2, 28, 64, 2), Core(16 * 3, 10, 39, 3), Core(16 * 2, 24, 35, 2),
]  # fmt: skip


def make(core: Core) -> _core.Filter:
    """Return an empty filter."""
    return _core.Filter(KIND, HASHING, 1, 1_000, list(core))


def source(digests: np.ndarray) -> _core.KeySource:
    """Return digests as the source of a bulk call."""
    return _core.array_keys(np.ascontiguousarray(digests), "d", False)


def add(f: _core.Filter, digests: np.ndarray, threads: int = 1) -> None:
    """Add keys."""
    f._add_from(source(digests), threads)


def payload(f: _core.Filter) -> bytes:
    """Return the bytes of a filter."""
    return bytes(memoryview(f))


def fingerprints(core: Core, digests: np.ndarray) -> list[int]:
    """Return floor(digest · M / 2^64)."""
    return [int(digest) * core.size >> 64 for digest in digests]


def digests_of(core: Core, marks: list[int]) -> np.ndarray:
    """Return the least digests of fingerprints."""
    return np.array([-((-mark << 64) // core.size) for mark in marks], np.uint64)


def random_digests(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return digests as those of keys."""
    return rng.integers(0, 2**64, count, np.uint64)


def assert_exact(f: _core.Filter, core: Core, model: Counter[int], probes: np.ndarray) -> None:
    """Assert that look-ups and counts are those of the multiset, and the bytes those of a new filter."""
    wanted = [model[mark] for mark in fingerprints(core, probes)]
    assert f._contains_from(source(probes), 1).tolist() == [count > 0 for count in wanted]
    if not core.set:
        assert f._count_from(source(probes), 1).tolist() == wanted
    assert f._state()[0] == model.total()
    assert f._set_bits() == len(+model)
    assert f._invariant() == ""
    survivors = list(model.elements())
    np.random.default_rng(model.total()).shuffle(survivors)
    fresh = make(core)
    add(fresh, digests_of(core, survivors))
    assert payload(fresh) == payload(f)


@each_kernel
@pytest.mark.parametrize("core", SHAPES, ids=lambda core: f"{core.remainder}-{core.quotients}-{core.group}")
def test_churn_is_exact(core: Core, kernel: str) -> None:
    """Rounds of additions and removals at loads up to 1.1, with repeated keys, against a multiset."""
    rng = np.random.default_rng(core.remainder)
    f, model = make(core), Counter[int]()
    live = np.empty(0, np.uint64)
    for load in (0.95, 1.1, 0.9, 0.2):
        wanted = int(load * core.slots)
        if wanted > live.size:
            new = random_digests(rng, wanted - live.size)
            repeats = rng.random(new.size) < 0.1
            new[repeats] = rng.choice(np.concatenate([live, new]), repeats.sum())
            add(f, new)
            model.update(fingerprints(core, new))
            live = np.concatenate([live, new])
        else:
            rng.shuffle(live)
            gone, live = live[wanted:], live[:wanted]
            asked = np.concatenate([gone, random_digests(rng, 200)])
            rng.shuffle(asked)
            removed = f._remove_from(source(asked), 1)
            for mark, answer in zip(fingerprints(core, asked), removed.tolist(), strict=True):
                assert answer == (model[mark] > 0)
                model[mark] -= answer
            # A random key may have taken the fingerprint of one that is live.
            live = digests_of(core, list((+model).elements()))
        assert_exact(f, core, +model, np.concatenate([random_digests(rng, 1_000), live[:1_000]]))
    rng.shuffle(live)
    assert f._remove_from(source(live), 1).all()
    assert f._is_empty()


@each_kernel
@pytest.mark.parametrize("remainder", [4, 9, 16])
def test_all_quotients_of_a_line(remainder: int, kernel: str) -> None:
    """A line with every quotient occupied, twice, and one key with more copies than a line has slots."""
    core = Core(32, remainder, 64, 2)
    marks = [q << remainder | 5 for q in range(64)] * 2 + [70 << remainder | 3] * 100
    f = make(core)
    add(f, digests_of(core, marks))
    assert_exact(f, core, Counter(marks), digests_of(core, [*marks, 63 << remainder, 71 << remainder]))
    assert f._remove_from(source(digests_of(core, marks[::-1])), 1).all()
    assert f._is_empty()


@each_kernel
@pytest.mark.parametrize("core", [SHAPES[1], SHAPES[5], SHAPES[7]], ids=lambda core: f"{core.remainder}")
def test_single_calls_are_bulk_calls(core: Core, kernel: str) -> None:
    """One key at a time: the same answers and bytes as many at once."""
    rng = np.random.default_rng(3)
    keys = rng.integers(0, core.slots, core.slots)
    one, many = make(core), make(core)
    digests = evenbins.digest_many(keys, seed=1)
    for key in keys.tolist():
        one.add(key)
    add(many, digests)
    assert payload(one) == payload(many)
    assert [one._count(key) for key in keys[:500].tolist()] == many._count_from(
        source(digests[:500]), 1
    ).tolist()
    assert [key in one for key in range(2_000)] == many._contains_from(
        source(evenbins.digest_many(np.arange(2_000), seed=1)), 1
    ).tolist()
    half = keys.size // 2
    assert [one._remove(key) for key in keys[:half].tolist()] == many._remove_from(
        source(digests[:half]), 1
    ).tolist()
    assert [one.add_new(key) for key in range(1_000)] == many._add_new_from(
        source(evenbins.digest_many(np.arange(1_000), seed=1)), 1
    ).tolist()
    assert payload(one) == payload(many)


@pytest.mark.parametrize(
    "core", [SHAPES[0], SHAPES[3], SHAPES[6], SHAPES[9]], ids=lambda core: f"{core.remainder}"
)
def test_sets(core: Core, kernel: str) -> None:
    """A set keeps one copy: adding is add_new without an answer. (The class in Python refuses removal.)"""
    core = core._replace(set=1)
    rng = np.random.default_rng(5)
    f, model = make(core), Counter[int]()
    for _ in range(3):
        new = random_digests(rng, core.slots // 3)
        new = np.concatenate([new, new[:100]])
        if rng.random() < 0.5:
            add(f, new)
        else:
            seen, answers = set(model), []
            for mark in fingerprints(core, new):
                answers.append(mark not in seen)
                seen.add(mark)
            assert f._add_new_from(source(new), 1).tolist() == answers
        model = Counter(set(model) | set(fingerprints(core, new)))
        assert_exact(f, core, model, np.concatenate([random_digests(rng, 500), new[:500]]))
    with pytest.raises(TypeError):
        f._count("a")


@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.parametrize("as_set", [False, True])
def test_threads_leave_the_same_bytes(threads: int, as_set: bool) -> None:
    """Additions, additions with answers and removals by several threads: answers and bytes as by one."""
    core = Core(40 * 16 * 4, 10, 64, 4, set=int(as_set))
    rng = np.random.default_rng(threads)
    digests = random_digests(rng, core.slots)
    digests[::50] = digests[7]
    digests[1::9] = digests[2::9][: digests[1::9].size]
    alone, together = make(core), make(core)
    add(alone, digests[:60_000])
    add(together, digests[:60_000], threads)
    assert payload(alone) == payload(together)
    later = digests[40_000:]
    assert (alone._add_new_from(source(later), 1) == together._add_new_from(source(later), threads)).all()
    assert payload(alone) == payload(together)
    if not as_set:
        gone = np.concatenate([digests[:50_000], random_digests(rng, 10_000)])
        assert (alone._remove_from(source(gone), 1) == together._remove_from(source(gone), threads)).all()
        assert payload(alone) == payload(together)
    assert together._invariant() == ""


def test_kernels_leave_the_same_bytes() -> None:
    """The same operations by every kernel."""
    states = []
    for name in KERNELS:
        before = _core.kernel()
        _core.use_kernel(name)
        try:
            found = []
            for core in SHAPES:
                rng = np.random.default_rng(1)
                digests = random_digests(rng, core.slots)
                f = make(core)
                add(f, digests)
                f._remove_from(source(digests[::3]), 1)
                found.append(payload(f))
            states.append(found)
        finally:
            _core.use_kernel(before)
    assert all(found == states[0] for found in states)


@each_kernel
@pytest.mark.parametrize("core", [SHAPES[1], SHAPES[3], SHAPES[9]], ids=lambda core: f"{core.remainder}")
def test_copies_of_one_key(core: Core, kernel: str) -> None:
    """1000 copies of a key beside others; then none."""
    rng = np.random.default_rng(8)
    others = random_digests(rng, core.slots * 3 // 4)
    f = make(core)
    add(f, others)
    before = payload(f)
    copies = np.repeat(random_digests(rng, 1), 1_000)
    own = f._count_from(source(copies[:1]), 1)[0]
    for start in range(0, 1_000, 250):
        add(f, copies[start : start + 250])
        assert f._count_from(source(copies[:1]), 1)[0] == own + start + 250
    assert f._invariant() == ""
    assert f._remove_from(source(copies), 1).all()
    assert payload(f) == before


@each_kernel
def test_a_full_filter_refuses_and_does_not_change(kernel: str) -> None:
    """At the limit, and when the rest has no room: by one key, many keys and several threads."""
    rng = np.random.default_rng(2)
    core = Core(16 * 4, 8, 64, 4, rest=5)
    f = make(core)
    digests = random_digests(rng, 5_000)
    with pytest.raises(_core.FilterFullError) as caught:
        add(f, digests)
    assert caught.value.added == f._state()[0]
    added = caught.value.added
    assert 2_000 < added < 5_000  # the rest was full first
    before = payload(f)
    fresh = make(core)
    add(fresh, digests[:added])
    assert payload(fresh) == before
    with pytest.raises(_core.FilterFullError):
        add(f, digests[added : added + 1])
    assert payload(f) == before
    limited = make(core._replace(limit=1_000))
    with pytest.raises(_core.FilterFullError) as caught:
        add(limited, digests)
    assert caught.value.added == 1_000
    present = limited._add_new_from(source(digests[:1_000]), 1)
    assert not present.any()
    assert limited._invariant() == ""


@pytest.mark.parametrize("as_set", [False, True])
def test_threads_that_overfill_take_back(as_set: bool) -> None:
    """Several threads for whose keys the rest has no room: as one thread, up to the first that is refused."""
    core = Core(10 * 16 * 4, 8, 64, 4, rest=20, set=int(as_set))
    digests = random_digests(np.random.default_rng(4), core.slots * 5 // 4)
    digests[1::30] = digests[::30][: digests[1::30].size]  # some are refused of which others are in
    alone, together, new = make(core), make(core), make(core)
    with pytest.raises(_core.FilterFullError) as by_one:
        add(alone, digests)
    with pytest.raises(_core.FilterFullError) as by_three:
        add(together, digests, 3)
    assert by_one.value.added == by_three.value.added
    assert payload(alone) == payload(together)
    with pytest.raises(_core.FilterFullError) as caught:
        new._add_new_from(source(digests), 3)
    answers = caught.value.answers  # type: ignore[attr-defined]
    assert np.count_nonzero(answers) == new._state()[0]
    assert new._invariant() == together._invariant() == ""


@pytest.mark.parametrize("as_set", [False, True])
@pytest.mark.parametrize("core", [SHAPES[1], SHAPES[3], SHAPES[9]], ids=lambda core: f"{core.remainder}")
def test_merging(core: Core, as_set: bool) -> None:
    """Multisets add, sets unite; a sum that does not fit leaves both as they were."""
    core = core._replace(set=int(as_set))
    rng = np.random.default_rng(6)
    digests = random_digests(rng, core.slots * 3 // 4)
    first, second = digests[: digests.size * 2 // 3], digests[digests.size // 3 :]
    a, b, both = make(core), make(core), make(core)
    add(a, first)
    add(b, second)
    add(both, np.concatenate([first, second]))
    a._merge(b)
    assert payload(a) == payload(both)
    small = make(core._replace(limit=1_000))
    other = make(core._replace(limit=1_000))
    add(small, digests[:900])
    add(other, digests[-900:])
    before = payload(small)
    with pytest.raises(ValueError, match="more keys"):
        small._merge(other)
    assert payload(small) == before


@pytest.mark.parametrize("core", SHAPES[1::3], ids=lambda core: f"{core.remainder}")
def test_damage_is_found(core: Core) -> None:
    """Flip bits of a payload that do not only change a remainder: quotients, run ends, unused slots, state.

    The bytes are a function of the fingerprints: with another remainder in order they are those of others.
    """
    core = core._replace(rest=200)
    rng = np.random.default_rng(7)
    f = make(core)
    digests = random_digests(rng, core.slots)
    add(f, digests[: core.slots * 85 // 100])
    add(f, np.repeat(digests[:1], 140))
    in_rest = f._state()[1]
    assert 0 < in_rest < 200
    sound = payload(f)
    slots = (512 - core.quotients) // (core.remainder + 1)
    flips = list(range(0, 512, 17))
    for line in rng.integers(1, 1 + core.lines, 12).tolist():
        flips += [512 * line + int(bit) for bit in rng.integers(0, core.quotients + slots, 10)]
    level2 = 1 + core.lines
    for line in rng.integers(level2, level2 + core.lines // core.group, 8).tolist():
        flips += [512 * line + int(bit) for bit in rng.integers(0, 64 + 448 // (core.remainder + 5), 10)]
    flips += [8 * len(sound) - 1 - 64 * word for word in range(0, 200 - in_rest, 20)]
    for bit in flips:
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        header = _core.file_header(KIND, HASHING, 1, 1_000, list(core), bytes(damaged))
        with pytest.raises(evenbins.FormatError):
            _core.Filter(header + bytes(damaged), KIND, False, True)
    header = _core.file_header(KIND, HASHING, 1, 1_000, list(core), sound)
    assert payload(_core.Filter(header + sound, KIND, False, True)) == sound


def test_cores_that_no_filter_has() -> None:
    """Integers outside their ranges raise."""
    good = Core(16 * 3, 8, 64, 3)
    make(good)
    for wrong in (
        {"lines": 16}, {"lines": 0}, {"lines": 3 << 44, "remainder": 20}, {"remainder": 3}, {"remainder": 29},
        {"quotients": 31}, {"quotients": 65}, {"group": 0}, {"group": 17}, {"limit": 0}, {"set": 2},
        {"doublings": 5},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must|may"):
            make(good._replace(**wrong))
