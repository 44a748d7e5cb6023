"""The twin of the fingerprint filter by itself: against a multiset, and its layout read back."""

from __future__ import annotations

import collections
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.fingerprint import ReferenceFingerprint, payload_bytes, slots
from reference.keys import digest, mulhi

SHAPES = [  # lines, remainder, quotients, group
    (16, 8, 64, 1),
    (32, 4, 64, 2),
    (48, 9, 37, 3),
    (64, 17, 50, 2),
    (16, 18, 64, 1),
    (64, 20, 33, 4),
    (32, 28, 32, 1),
]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def make(
    shape: tuple[int, int, int, int], *, rest: int = 64, limit: int = 10_000, is_set: int = 0
) -> ReferenceFingerprint:
    return ReferenceFingerprint(*shape, rest, limit, is_set)


def digests_in(f: ReferenceFingerprint, block: int, count: int, seed: int = 1) -> list[int]:
    """Return digests of one block, so that all its levels get work."""
    rng = random.Random(seed)
    low, high = ((block + i) * f.shape.block * 2**64 // f.shape.lines for i in (0, 1))
    return [rng.randrange(low + 1, high) for _ in range(count)]


def parts_of(f: ReferenceFingerprint, word: int) -> tuple[int, int, int]:
    """Cut a digest as the filter's definition does, word by word."""
    low = word * f.shape.lines % 2**64
    low2 = low * f.shape.quotients % 2**64
    return mulhi(word, f.shape.lines), mulhi(low, f.shape.quotients), low2 >> 64 - f.shape.remainder


def read_line(data: bytes, quotients: int, remainder: int) -> tuple[list[int], list[list[int]]]:
    """Return the occupied quotients of a line and the runs that it holds."""
    line, room = int.from_bytes(data, "little"), slots(quotients, remainder)
    planes, low_bits = divmod(remainder, 8)
    low_at = 8 * (64 - planes * room) - low_bits * room
    assert quotients + room <= low_at
    ends = line >> quotients & (1 << room) - 1
    runs: list[list[int]] = []
    run: list[int] = []
    for slot in range(ends.bit_length()):
        upper = [data[64 - (planes - p) * room + slot] for p in range(planes)]
        low = line >> low_at + low_bits * slot & (1 << low_bits) - 1
        run.append(int.from_bytes(bytes(upper), "big") << low_bits | low)
        if ends >> slot & 1:
            runs.append(run)
            run = []
    return [q for q in range(quotients) if line >> q & 1], runs


@each_shape
@pytest.mark.parametrize("fill", [0.3, 0.9, 1.3])
def test_every_fingerprint_can_be_read_back(shape: tuple[int, int, int, int], fill: float) -> None:
    """The bytes of all levels, read from the definition, are the multiset; and nothing else is set."""
    f = make(shape, rest=4000)
    c = f.shape
    digests = digests_in(f, 0, int(fill * slots(c.quotients, c.remainder) * c.block))
    digests += digests[: len(digests) // 10]
    expected = collections.Counter(parts_of(f, each) for each in digests)
    for each in digests:
        f.add_digest(each)
    data = f.payload()
    assert len(data) == payload_bytes(f.core)
    copies, _, in_rest, *_ = struct.unpack("<8Q", data[:64])
    assert copies == len(digests)
    at = 64
    found: collections.Counter[tuple[int, int, int]] = collections.Counter()
    moved: dict[tuple[int, int], set[int]] = {}
    for i in range(c.lines):
        occupied, runs = read_line(data[at : at + 64], c.quotients, c.remainder)
        for q, run in zip(occupied, runs, strict=False):
            assert run == sorted(run)
            found.update((i, q, r) for r in run)
        for q in occupied[len(runs) :]:
            j, m = divmod(i, c.group)
            moved.setdefault((j // 16 * 16 + (j + q) % 16, 4 * m + q % 4), set()).add(i)
        at += 64
    deeper: dict[int, set[int]] = {}
    for line2 in range(c.lines // c.group):
        occupied, runs = read_line(data[at : at + 64], 64, c.remainder + 4)
        assert {q for a, q in moved if a == line2} == set(occupied)
        for quotient, run in zip(occupied, runs, strict=False):
            found.update(from_level2(f, line2, quotient, r) for r in run)
        deeper[line2] = set(occupied[len(runs) :])
        at += 64
    for block in range(c.lines // c.block):
        form = "<16I" if c.remainder <= 17 else "<8Q"
        entries = struct.unpack(form, data[at : at + 64])
        assert list(entries) == sorted(entries, reverse=True)
        for key in (entry - 1 for entry in entries if entry):
            place, r = divmod(key, 1 << c.remainder + 4)
            line2, quotient = 16 * block + place // 64, place % 64
            assert quotient in deeper[line2]
            found[from_level2(f, line2, quotient, r)] += 1
        at += 64
    rest = struct.unpack(f"<{c.rest}Q", data[at:])
    assert list(rest[:in_rest]) == sorted(rest[:in_rest])
    assert not any(rest[in_rest:])
    for fingerprint in rest[:in_rest]:
        run, r = divmod(fingerprint, 1 << c.remainder)
        found[(*divmod(run, c.quotients), r)] += 1
    assert found == expected


def from_level2(f: ReferenceFingerprint, line2: int, quotient: int, remainder: int) -> tuple[int, int, int]:
    high, r = divmod(remainder, 1 << f.shape.remainder)
    q = 4 * high + quotient % 4
    j = line2 // 16 * 16 + (line2 - q) % 16
    return j * f.shape.group + quotient // 4, q, r


@each_shape
def test_the_way_leaves_no_trace(shape: tuple[int, int, int, int]) -> None:
    """Adds and removals in any order: the bytes of a fresh build from what is left."""
    rng = random.Random(5)
    f, g = make(shape, rest=4000), make(shape, rest=4000)
    digests = digests_in(f, 0, int(1.1 * slots(f.shape.quotients, f.shape.remainder) * f.shape.block))
    for each in digests:
        f.add_digest(each)
    rng.shuffle(digests)
    kept, gone = digests[::2], digests[1::2]
    for each in gone:
        assert f.remove_digest(each)
    for each in kept:
        g.add_digest(each)
    assert f.payload() == g.payload()
    for each in kept:
        assert f.remove_digest(each)
    assert not any(f.payload())


@settings(max_examples=60, deadline=None)
@given(keys=st.lists(st.integers(0, 60), max_size=150), removed=st.lists(st.integers(0, 60), max_size=60))
def test_it_is_a_multiset(keys: list[int], removed: list[int]) -> None:
    f = make((16, 4, 32, 1), rest=200)
    model: collections.Counter[int] = collections.Counter()
    fingerprints = [digest(key) * f.shape.fingerprints >> 64 for key in range(61)]
    for key in keys:
        f.add(key)
        model[fingerprints[key]] += 1
    for key in removed:
        assert f.remove(key) == (model[fingerprints[key]] > 0)
        model[fingerprints[key]] = max(model[fingerprints[key]] - 1, 0)
    assert [f.count(key) for key in range(61)] == [model[fingerprints[key]] for key in range(61)]
    assert f.copies == model.total()


def test_a_set_holds_each_once_and_merges() -> None:
    f, g, both = (make((16, 8, 64, 1), is_set=1) for _ in range(3))
    for key in range(100):
        f.add(key)
        f.add(key)
        both.add(key)
    for key in range(50, 150):
        g.add(key)
        both.add(key)
    f.merge(g)
    assert f.payload() == both.payload()
    assert f.copies == f.set_bits()


def test_a_full_filter_refuses_and_stays() -> None:
    f = make((16, 8, 64, 1), rest=3, limit=200)
    # One run: beyond the 49 slots of its line it goes to level 2, which has 34, and level 3, which has 16.
    for _ in range(49):
        f.add("same")
    before = f.payload()
    with pytest.raises(OverflowError):
        f.add("same")
    assert f.payload() == before
    g = make((16, 8, 64, 1), limit=5)
    for key in range(5):
        g.add(key)
    with pytest.raises(OverflowError):
        g.add(5)


@pytest.mark.parametrize(
    "core",
    [
        (16, 3, 64, 1, 0, 1, 0, 0), (16, 29, 64, 1, 0, 1, 0, 0), (16, 8, 31, 1, 0, 1, 0, 0),
        (16, 8, 65, 1, 0, 1, 0, 0), (16, 8, 64, 0, 0, 1, 0, 0), (272, 8, 64, 17, 0, 1, 0, 0),
        (17, 8, 64, 1, 0, 1, 0, 0), (0, 8, 64, 1, 0, 1, 0, 0), (16, 8, 64, 1, 0, 1, 2, 0),
        (2**40, 28, 64, 1, 0, 1, 0, 0), (16, 8, 64, 1, 0, 1, 0),
    ],
)  # fmt: skip
def test_an_impossible_core_is_refused(core: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"must|eight"):
        payload_bytes(core)
