"""HeavyHitters as a Counter, as a structure with files, and merged; its promises: test_countmin.py, and
tests/property/test_heavy_hitters_merge.py after merges."""

from __future__ import annotations

import copy
import pickle
import runpy
import sys
import threading
from collections import Counter
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenbins
from evenbins import CountMinSketch, FormatError, HeavyHitters, _core
from evenbins.sketches import HittersPlan, HittersStats, plan_heavy_hitters
from evenbins.sketches.tracked_file import HITTERS_KIND

GOLDEN = Path(__file__).parents[1] / "golden"
MAKER = runpy.run_path(str(GOLDEN / "make_golden.py"))
STREAM = np.random.default_rng(8).zipf(1.3, 20_000) % 5000


def filled(k: int = 20, keys: Any = STREAM, **arguments: Any) -> HeavyHitters:
    h = HeavyHitters(k, **arguments)
    h.add_many(keys)
    return h


# --- as a Counter ------------------------------------------------------------------------------------------


def test_most_common_is_that_of_a_counter() -> None:
    words = ["a"] * 5 + ["b"] * 3 + ["c"] * 2 + ["d"]
    h, truth = filled(10, words), Counter(words)
    for n in (None, 0, 1, 2, 4, 9, 2**40, -1, np.int64(2), True + 1):
        assert h.most_common(n) == truth.most_common(n)
    assert h.most_common() == h.top()
    for wrong in ("2", 1.5, True, [1]):
        with pytest.raises(TypeError, match="n must be an integer or None"):
            h.most_common(wrong)  # type: ignore[arg-type]


def test_counts_by_subscript_and_in_bulk() -> None:
    h = filled(3)
    truth = Counter(STREAM.tolist())
    keys = np.arange(5000).reshape(50, 100)
    counts = h.count_many(keys)
    assert counts.shape == keys.shape
    assert counts.dtype == np.uint64
    for key in (0, 1, 7, 4999):
        assert h[key] == h.count(key) == counts.ravel()[key] >= truth[key]
    assert h["never"] == 0
    digests = evenbins.digest_many(keys, h.seed)
    assert (h.count_many(digests, digests=True) == counts).all()
    with pytest.raises(TypeError, match="must be str"):
        h[1.5]  # type: ignore[index]


@pytest.mark.parametrize("made", [HeavyHitters(3), CountMinSketch()], ids=lambda made: type(made).__name__)
def test_counts_are_no_sequence(made: Any) -> None:
    """`for` and `in` would try made[0], made[1], … for ever."""
    made.add(0)
    with pytest.raises(TypeError, match="not iterable"):
        list(made)
    with pytest.raises(TypeError, match="not a container"):
        0 in made  # noqa: B015
    with pytest.raises(TypeError, match="no len"):
        len(made)
    assert np.array([made], dtype=object).shape == (1,)


@pytest.mark.parametrize("name", ["most_common", "top", "elements", "keys", "items", "values"])
def test_a_sketch_without_keys_says_where_they_are_kept(name: str) -> None:
    s = CountMinSketch()
    with pytest.raises(AttributeError, match=f"no attribute '{name}': .* use HeavyHitters") as caught:
        getattr(s, name)
    assert caught.value.name == name
    assert not hasattr(s, name)
    with pytest.raises(AttributeError, match="'other'"):
        getattr(s, "other")  # noqa: B009


def test_update_adds_the_keys_of_each_argument() -> None:
    h = HeavyHitters(5)
    h.update(["a", "b"], ["a"], iter(["c", "a"]))
    h.update()
    assert dict(h.top()) == {"a": 3, "b": 1, "c": 1}
    with pytest.raises(TypeError, match="many keys, not one str"):
        h.update("abc")


@pytest.mark.parametrize("make", [lambda: HeavyHitters(5), CountMinSketch])
def test_update_takes_the_counts_of_a_mapping(make: Any) -> None:
    """As Counter.update does; a table from keys to counts too."""
    h, truth = make(), Counter("a")
    h.update(["a"])
    for counts in (Counter({"a": 5, "b": 2}), {"b": 0, "c": 7}, {}, Counter("cc")):
        h.update(counts)
        truth.update(counts)
    h.update({"a": 1}, ["b", "b"])
    truth.update({"a": 1, "b": 2})
    assert {key: h[key] for key in truth} == truth
    assert h.total == truth.total()
    table = evenbins.MultilevelTable({1: 4, 2: 9})
    h.update(table)
    assert (h[1], h[2]) == (4, 9)
    exact = evenbins.MultilevelTable(10, value_dtype=None)
    exact.add(1)
    h.update(exact)
    assert h[1] == 5
    for wrong, error in (({"a": -1}, ValueError), ({"a": 1.5}, TypeError), ({"a": "x"}, TypeError)):
        with pytest.raises(error, match="weights"):
            h.update(wrong)
    assert h["a"] == truth["a"]


class Colour(str, Enum):  # noqa: UP042
    """A str whose own text is another."""

    RED = "red"


class Number(IntEnum):
    """An int with a name."""

    SEVEN = 7


class Index:
    """Something that is an integer."""

    def __index__(self) -> int:
        return -5


def test_keys_are_kept_as_built_in_types() -> None:
    h = HeavyHitters(20)
    for key in (Colour.RED, Number.SEVEN, Index(), np.uint64(2**64 - 1), np.str_("x"), bytearray(b"y"), True):
        h.add(key)
    h.add_many([np.bool_(False), memoryview(b"z"), np.bytes_(b"w")])
    h.add_many(np.array([b"q"]))
    h._check()
    kept = {key for key, _ in h.top()}
    assert kept == {"red", 7, -5, 2**64 - 1, "x", b"y", 1, 0, b"z", b"w", b"q"}
    assert {type(key) for key in kept} == {str, int, bytes}
    assert HeavyHitters.from_bytes(h.to_bytes()).top() == h.top()


# --- plan and stats ----------------------------------------------------------------------------------------


def test_plan_and_stats() -> None:
    h = filled(20, epsilon=0.01, delta=0.01, seed=5)
    plan, stats = h.plan, h.stats()
    assert isinstance(plan, HittersPlan)
    assert plan == plan_heavy_hitters(20, epsilon=0.01, delta=0.01, seed=5)
    assert plan != plan_heavy_hitters(21, epsilon=0.01, delta=0.01, seed=5)
    assert hash(plan) == hash(h.copy().plan)
    assert plan.core == h.sketch.plan.core
    assert plan.to_dict()["k"] == 20
    assert type(h.sketch.plan) is evenbins.SketchPlan
    assert HeavyHitters.from_plan(plan) == HeavyHitters(20, epsilon=0.01, delta=0.01, seed=5)
    assert isinstance(stats, HittersStats)
    assert (stats.total, stats.updates, stats.keys) == (20_000, 20_000, 20)
    assert stats.least == stats.untracked_bound == h.top()[-1][1]
    assert stats.error_bound == plan.error_bound(20_000) == 200.0
    assert stats.nbytes == h.nbytes == h.sketch.nbytes + 20 * 24
    assert {"keys", "least", "untracked_bound"} <= stats.to_dict().keys()
    assert repr(stats).startswith("HittersStats(total=20_000")
    assert "<th>untracked_bound</th>" in h._repr_html_()
    assert "seed='set'" in repr(h)
    with pytest.raises(AttributeError):
        stats.keys = 1  # type: ignore[misc]
    few = HeavyHitters(20).stats()
    assert (few.total, few.keys, few.least, few.untracked_bound) == (0, 0, 0, 0)


@pytest.mark.parametrize("plan", [None, CountMinSketch().plan, 5])
def test_from_plan_takes_its_own_plan_alone(plan: Any) -> None:
    with pytest.raises(TypeError, match="plan must be a HittersPlan"):
        HeavyHitters.from_plan(plan)


# --- the same state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("conservative", [False, True])
def test_the_same_stream_leaves_the_same_bytes_in_any_batches(conservative: bool) -> None:
    """Most keys come once, so that nearly all places are decided between equal estimates."""
    keys = np.random.default_rng(3).integers(0, 3000, 4000)
    weights = np.random.default_rng(4).integers(0, 3, 4000)
    made = [HeavyHitters(50, epsilon=0.01, delta=0.01, conservative=conservative) for _ in range(4)]
    for key, weight in zip(keys.tolist(), weights.tolist(), strict=True):
        made[0].add(key, weight)
    for h, size in zip(made[1:], (4000, 7, 999), strict=True):
        for start in range(0, 4000, size):
            h.add_many(keys[start : start + size], weights[start : start + size])
    for h in made:
        h._check()
        assert h.to_bytes() == made[0].to_bytes()
        assert h == made[0]
        assert h.top() == made[0].top()


def test_copies_pickles_and_files_are_equal_and_independent(tmp_path: Path) -> None:
    h = filled(10, ["a"] * 3 + [b"\xff\0", "é", 5, -5, 2**63] * 2)
    h.save(tmp_path / "h")
    twins = [
        h.copy(), copy.copy(h), copy.deepcopy(h), pickle.loads(pickle.dumps(h)),
        HeavyHitters.from_bytes(h.to_bytes()), HeavyHitters.load(tmp_path / "h"),
        evenbins.load(tmp_path / "h"), evenbins.open(tmp_path / "h", verify=True).copy(),
    ]  # fmt: skip
    for twin in twins:
        assert type(twin) is HeavyHitters
        assert twin == h
        assert twin.to_bytes() == h.to_bytes()
        assert twin.top() == h.top()
        twin.add("more", 100)
        assert twin.top()[0] == ("more", 100)
        assert twin != h
        twin._check()
    assert h["more"] == 0
    with pytest.raises(TypeError, match="unhashable"):
        hash(h)
    assert h != h.sketch


def test_attributes_of_a_subclass_are_kept() -> None:
    class Named(HeavyHitters):
        pass

    Named.__qualname__ = "Named"
    globals()["Named"] = Named
    h = Named(3)
    h.label = "words"  # type: ignore[attr-defined]
    for twin in (h.copy(), copy.deepcopy(h), pickle.loads(pickle.dumps(h))):
        assert type(twin) is Named
        assert twin.label == "words"


def test_one_that_is_open_is_read_only(tmp_path: Path) -> None:
    h = filled(5, ["a", "b", "a"])
    h.save(tmp_path / "h")
    opened = HeavyHitters.open(tmp_path / "h")
    assert opened.top() == h.top()
    assert opened == h
    assert opened["a"] == 2
    assert "read-only" in repr(opened)
    for change in (
        lambda: opened.add("x"), lambda: opened.add_many(["x"]), opened.clear, lambda: opened.merge(h),
        lambda: opened.__ior__(h),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="open read-only: use load"):
            change()
    assert opened.top() == h.top()
    assert (opened | h).top() == [("a", 4), ("b", 2)]
    opened._check()


@pytest.mark.parametrize("golden", MAKER["HITTERS"])
def test_golden_files_are_read_and_written_the_same(golden: str) -> None:
    data = (GOLDEN / f"{golden}.evenbins").read_bytes()
    h = HeavyHitters.from_bytes(data)
    h._check()
    assert h.to_bytes() == data == MAKER["golden_hitters"](golden).to_bytes()
    truth: Counter[Any] = Counter()
    for keys in (MAKER["KEYS"], MAKER["KEYS"][::-1])[: 1 + (golden == "heavy-hitters-merged")]:
        for weight, key in enumerate(keys, 1):
            truth[evenbins.digest(key)] += weight
    found = dict(h.top())
    assert all(truth[evenbins.digest(key)] <= estimate for key, estimate in found.items())
    least = {evenbins.digest(key) for key in found}
    assert all(n <= h.stats().untracked_bound for key, n in truth.items() if key not in least)


# --- files that no stream leaves ---------------------------------------------------------------------------


def forged(h: HeavyHitters, change: Any) -> bytes:
    """Return the file of h with its core and its entries changed, and the checksums right."""
    data = h.to_bytes()
    _, seed, _, core, offset = _core.file_parts(data, True)
    begin = offset + -(-core[3] // 64) * 64
    core, sketch, keys = change(list(core), data[offset:begin], data[begin:])
    payload = sketch + keys
    return _core.file_header(HITTERS_KIND, 1, seed, 1, core, payload) + payload


def word(value: int) -> bytes:
    return value.to_bytes(8, "little")


CHANGES: dict[str, tuple[Any, str]] = {
    "nothing": (lambda core, sketch, keys: (core, sketch, keys), ""),
    "fewer keys than the header says": (
        lambda core, sketch, keys: ([core[0], 3, *core[2:4], len(keys)], sketch, keys), "cut short"
    ),
    "more keys than the header says": (
        lambda core, sketch, keys: ([core[0], 1, *core[2:4], len(keys)], sketch, keys), "do not fill"
    ),
    "out of order": (
        lambda core, sketch, keys: (core, sketch, keys[24:] + keys[:24]), "out of order"
    ),
    "the same key twice": (
        lambda core, sketch, keys: (core, sketch, keys[:24] * 2), "out of order"
    ),
    "padding": (
        lambda core, sketch, keys: (core, sketch, keys[:23] + b"x" + keys[24:]), "padding"
    ),
    "an estimate of 0": (
        lambda core, sketch, keys: (core, sketch, keys[:24] + word(0) + keys[32:]), "estimate"
    ),
    "an estimate above the sketch's": (
        lambda core, sketch, keys: (core, sketch, word(9) + keys[8:]), "estimate"
    ),
    "text that is not UTF-8": (
        lambda core, sketch, keys: (core, sketch, keys[:16] + b"\xff" + keys[17:]), "not valid UTF-8"
    ),
    "a longer key than the file": (
        lambda core, sketch, keys: (core, sketch, keys[:8] + word(2**63 + 1) + keys[16:]), "cut short"
    ),
    "an integer of one byte": (
        lambda core, sketch, keys: (core, sketch, keys[:8] + word(4 + 2) + keys[16:]), "no integer"
    ),
    "a negative integer that is not": (
        lambda core, sketch, keys: (core, sketch, keys[:8] + word(32 + 3) + keys[16:]), "no integer"
    ),
    "a bound without k keys": (
        lambda core, sketch, keys: ([*core[:2], 1, *core[3:]], sketch, keys), "cannot have been seen"
    ),
    "a bound above the total": (
        lambda core, sketch, keys: ([2, 2, 99, *core[3:]], sketch, keys), "cannot have been seen"
    ),
    "padding behind the sketch": (
        lambda core, sketch, keys: (core, sketch[:-1] + b"x", keys), "behind the sketch"
    ),
    "no sketch": (
        lambda core, sketch, keys: ([*core[:3], 0, core[4]], b"", keys), "."
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_no_stream_leaves_is_refused(name: str) -> None:
    change, message = CHANGES[name]
    h = filled(5, ["a", "a", "b"], epsilon=0.3, delta=0.3)
    data = forged(h, change)
    if name == "nothing":
        assert HeavyHitters.from_bytes(data) == h
        return
    with pytest.raises(FormatError, match=message):
        HeavyHitters.from_bytes(data)


def test_another_kind_and_another_seed_are_refused() -> None:
    with pytest.raises(FormatError, match="another kind"):
        HeavyHitters.from_bytes(CountMinSketch().to_bytes())
    with pytest.raises(FormatError, match="another kind"):
        CountMinSketch.from_bytes(filled().to_bytes())
    h, other = HeavyHitters(3, epsilon=0.3, seed=1), HeavyHitters(3, epsilon=0.3, seed=2)
    with pytest.raises(FormatError, match="another seed"):
        HeavyHitters.from_bytes(forged(h, lambda core, sketch, keys: (core, padded(other), keys)))


def padded(h: HeavyHitters) -> bytes:
    data = h.sketch.to_bytes()
    return data.ljust(-(-len(data) // 64) * 64, b"\0")


# --- merging -----------------------------------------------------------------------------------------------


def test_every_way_to_merge() -> None:
    a, b = filled(10, ["x"] * 3 + ["y"]), filled(10, ["y"] * 5 + ["z"])
    wanted = [("y", 6), ("x", 3), ("z", 1)]
    merged = a.copy()
    merged.merge(b)
    for one in (merged, a | b, b | a, a + b, b + a):
        assert one.top() == wanted
        assert one == merged
        assert one.total == 10
        one._check()
    for name in ("__ior__", "__iadd__"):
        changed = a.copy()
        assert getattr(changed, name)(b) is changed
        assert changed == merged
    assert a.total == 4
    a |= a
    assert a.top() == [("x", 6), ("y", 2)]
    assert (HeavyHitters(10) | b) == b


def test_forms_of_a_key_do_not_depend_on_the_order_of_a_merge() -> None:
    a, b = filled(5, ["x"]), filled(5, [b"x"])
    assert (a | b).top() == (b | a).top() == [("x", 2)]
    assert a | b == b | a


def test_a_merge_of_plain_counters_has_the_sketch_of_one_stream() -> None:
    parts = [filled(20, part, conservative=False) for part in np.array_split(STREAM, 3)]
    whole = filled(20, conservative=False)
    assert (parts[0] | parts[1] | parts[2]).sketch == whole.sketch


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (HeavyHitters(6), "they track 5 and 6 keys"),
        (HeavyHitters(5, seed=1), "their seeds differ"),
        (HeavyHitters(5, epsilon=0.01), "their parameters differ"),
        (HeavyHitters(5, conservative=False), "their parameters differ"),
    ],
)
def test_others_do_not_merge(other: HeavyHitters, message: str) -> None:
    h = filled(5, ["a"])
    before = h.to_bytes()
    for merge in (h.merge, h.__ior__, h.__or__, h.__add__, h.__iadd__):
        with pytest.raises(ValueError, match=f"cannot merge: {message}. Build both with the same arguments"):
            merge(other)
    assert h.to_bytes() == before


def test_what_is_no_heavy_hitters_does_not_merge() -> None:
    h = HeavyHitters(5)
    for other in (CountMinSketch(), {"a": 1}, None, np.zeros(3)):
        with pytest.raises(TypeError, match="other must be a HeavyHitters, not"):
            h.merge(other)  # type: ignore[arg-type]
        for operate in (lambda x, y: x | y, lambda x, y: x + y):
            with pytest.raises(TypeError, match=r"unsupported operand|does not support ufuncs"):
                operate(h, other)


def test_a_merge_beyond_the_counters_changes_nothing() -> None:
    a, b = HeavyHitters(5), HeavyHitters(5)
    a.add("x", 2**63)
    b.add("y", 2**63)
    before = a.to_bytes()
    with pytest.raises(OverflowError, match=r"would exceed 2\*\*64 - 1; nothing was changed"):
        a |= b
    assert a.to_bytes() == before


def test_the_first_promise_does_not_survive_a_merge_but_its_bound_does() -> None:
    """The key that is second on both sides came most often in all, and neither side tracks it."""
    a = filled(1, ["a"] * 10 + ["both"] * 9)
    b = filled(1, ["b"] * 10 + ["both"] * 9)
    merged = a | b
    stats = merged.stats()
    assert "both" not in dict(merged.top())
    assert stats.least == 10
    assert merged["both"] == 18 <= stats.untracked_bound == 20
    merged.add("b", 30)
    assert merged.stats().untracked_bound == merged.stats().least == 40


# --- threads -----------------------------------------------------------------------------------------------


def test_threads_that_add_merge_and_read(tmp_path: Path) -> None:
    """Nothing is lost, nothing counted twice, and every reader sees a whole state."""
    h = HeavyHitters(30, epsilon=0.01, delta=0.01)
    parts = np.array_split(STREAM, 4)
    part = filled(30, parts[0], epsilon=0.01, delta=0.01)
    errors: list[BaseException] = []
    done = threading.Event()

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    def read() -> None:
        while not done.is_set():
            twin = h.copy()
            twin._check()
            assert HeavyHitters.from_bytes(h.to_bytes()).total <= h.total
            assert h.stats().keys <= 30
            assert (h == twin) in (True, False)
            assert len(h.most_common(5)) <= 5

    writers = [
        threading.Thread(target=run, args=(work,))
        for work in (
            lambda: [h.add(key) for key in parts[1].tolist()],
            lambda: [h.add_many(some) for some in np.array_split(parts[2], 20)],
            lambda: h.add_many(iter(parts[3].tolist())),
            lambda: h.merge(part),
        )
    ]
    readers = [threading.Thread(target=run, args=(read,)) for _ in range(2)]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join(60)
    done.set()
    for thread in readers:
        thread.join(60)
    assert not errors
    h._check()
    assert h.total == len(STREAM)
    truth = Counter(STREAM.tolist())
    assert all(estimate >= truth[key] for key, estimate in h.top())  # type: ignore[index]
    found = dict(h.top())
    assert all(n <= h.stats().untracked_bound for key, n in truth.items() if key not in found)


def test_two_that_merge_each_other_do_not_deadlock() -> None:
    a, b = filled(5, range(100)), filled(5, range(50))
    threads = [
        threading.Thread(target=lambda x=x, y=y: [x.merge(y) for _ in range(5)])  # type: ignore[misc]
        for x, y in ((a, b), (b, a))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    a._check()
    b._check()


# --- interruptions: tests/property/test_messages.py ---------------------------------------------------------


def test_clear_leaves_an_empty_one() -> None:
    h = filled(5)
    h.merge(h)
    h.clear()
    assert h == HeavyHitters(5)
    h.add("a")
    assert h.top() == [("a", 1)]


# --- keys that change --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [bytearray, memoryview])
def test_an_iterator_may_reuse_its_buffer(form: Any) -> None:
    buffer = bytearray(4)

    def keys() -> Any:
        for i in range(1000):
            buffer[:] = b"%04d" % (i % 100)
            yield buffer if form is bytearray else memoryview(buffer)

    h, single = HeavyHitters(3), HeavyHitters(3)
    h.add_many(keys())
    for key in keys():
        single.add(key)
    assert h == single
    assert h.count(b"0000") == 10


class Counting:
    calls = 0

    def __index__(self) -> int:
        Counting.calls += 1
        return Counting.calls


@pytest.mark.parametrize("call", ["add", "add_many", "object array", "update"])
def test_a_key_is_read_once(call: str) -> None:
    h = HeavyHitters(5)
    keys = [Counting() for _ in range(20)]
    if call == "add":
        for key in keys:
            h.add(key)  # type: ignore[arg-type]
    elif call == "object array":
        h.add_many(np.array(keys, dtype=object))
    else:
        getattr(h, call)(keys)
    h._check()
    assert HeavyHitters.from_bytes(h.to_bytes()) == h


def test_rows_that_another_thread_writes_to_leave_a_whole_structure() -> None:
    rows = [bytearray(b"%08d" % i) for i in range(500)]
    end = threading.Event()

    def write() -> None:
        number = 0
        while not end.is_set():
            for row in rows:
                row[:] = b"%08d" % (number % 1000)
                number += 1

    thread = threading.Thread(target=write)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        for _ in range(20):
            h = HeavyHitters(50)
            h.add_many(rows)
            h.add(rows[0])  # type: ignore[arg-type]
            HeavyHitters.from_bytes(h.to_bytes())._check()
    finally:
        sys.setswitchinterval(before)
        end.set()
        thread.join()
