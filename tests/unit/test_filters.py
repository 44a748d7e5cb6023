"""The shared suite: what every filter of the library promises, run over all of them (kinds.KINDS).

No false negatives, ever; the bytes of the readable twin; errors that name the argument and a way out.
"""

from __future__ import annotations

import copy
import dataclasses
import doctest
import gc
import html.parser
import importlib
import json
import math
import operator
import pickle
import pkgutil
import random
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import FIRST_OF_CLASS, KINDS, VARIANTS, Kind

import evenbins
import reference
from evenbins import FilterPlan, FilterStats, FormatError, OverfilledWarning, digest, filters, theory
from evenbins.filters import (
    plan_balanced,
    plan_blocked,
    plan_counting,
    plan_fingerprint,
    plan_of_core,
    plan_standard,
    plan_window,
)
from reference import format as file_format

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
KEYS = ["apple", b"pear", 3, -3, "ключ", 2**64 - 1, b"", *range(50, 250)]
ABSENT = [f"absent-{i}" for i in range(300)]


def payload(f: Any) -> bytes:
    return bytes(memoryview(f))


def assert_same(f: Any, g: Any) -> None:
    """Equal, in every byte, and with the same plan."""
    assert f == g
    assert payload(f) == payload(g)
    assert f.plan == g.plan
    assert f.capacity == g.capacity
    assert f.seed == g.seed
    assert f.to_bytes() == g.to_bytes()


@pytest.fixture
def opened(kind: Kind, tmp_path: Path) -> Any:
    """A filter that holds KEYS, open read-only."""
    kind.filled(KEYS).save(tmp_path / "filter")
    return kind.cls.open(tmp_path / "filter")


each_class_of_bits = pytest.mark.parametrize(
    "class_kind", [each for each in FIRST_OF_CLASS if not each.runs], ids=lambda each: each.cls.__name__
)
each_class_that_merges = pytest.mark.parametrize(
    "class_kind", [each for each in FIRST_OF_CLASS if each.merges], ids=lambda each: each.cls.__name__
)
each_that_merges = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(each, marks=[pytest.mark.long] if each.name in VARIANTS else [])
        for each in KINDS
        if each.merges
    ],
    ids=lambda each: each.name,
)
each_that_overfills = pytest.mark.parametrize(  # test_fingerprint.py: the others raise FilterFullError
    "kind", [each for each in KINDS if not each.runs], ids=lambda each: each.name
)


# --- keys in, answers out ------------------------------------------------------------------------------


def test_an_empty_filter_contains_nothing(kind: Kind) -> None:
    f = kind()
    assert not any(key in f for key in KEYS)
    assert not f.contains_many(KEYS).any()
    assert not any(payload(f))
    f._check()


def test_a_key_that_was_added_is_found(kind: Kind) -> None:
    f = kind()
    for i, key in enumerate(KEYS):
        assert f.add(key) is None
        assert (key in f) is True
        assert all(earlier in f for earlier in KEYS[: i + 1])
        f._check()


def test_the_bytes_are_those_of_the_twin(kind: Kind, mixed_keys: list[Any]) -> None:
    f = kind(300)
    twin = kind.twin(f)
    for key in mixed_keys[:300]:
        f.add(key)
        twin.add(key)
    assert payload(f) == twin.payload()
    assert [key in f for key in mixed_keys] == [key in twin for key in mixed_keys]
    assert f._set_bits() == twin.set_bits()


def test_adding_again_changes_nothing_unless_repeats_count(kind: Kind) -> None:
    f = kind.filled(KEYS)
    before = payload(f)
    f.update(KEYS, KEYS)
    assert payload(f) == (payload(kind.filled([*KEYS] * 3)) if kind.repeats else before)
    assert (payload(f) == before) == (not kind.repeats)


@pytest.mark.parametrize("seed", range(3))
def test_bulk_calls_leave_the_bytes_of_single_ones_however_they_are_cut(
    kind: Kind, mixed_keys: list[Any], seed: int
) -> None:
    expected = kind.filled(mixed_keys)
    rng = random.Random(seed)
    f = kind()
    rest = list(mixed_keys)
    while rest:
        n = rng.choice([0, 1, 2, 15, 16, 17, 100, 1024])
        f.add_many(rest[:n])
        del rest[:n]
    assert_same(f, expected)


def test_the_order_of_the_keys_leaves_no_trace_unless_blocks_pass_keys_on(
    kind: Kind, mixed_keys: list[Any]
) -> None:
    shuffled = random.Random(1).sample(mixed_keys, len(mixed_keys))
    f = kind()
    f.add_many(shuffled)
    if kind.ordered:  # who came first has the first block; but the same order leaves the same bytes
        assert f != kind.filled(mixed_keys)
        assert_same(f, kind.filled(shuffled))
        assert f.contains_many(mixed_keys).all()
    else:
        assert_same(f, kind.filled(mixed_keys))


def test_contains_many_answers_as_in_does(kind: Kind, mixed_keys: list[Any]) -> None:
    f = kind.filled(mixed_keys[::2])
    answers = f.contains_many(mixed_keys)
    assert answers.dtype == np.bool_
    assert answers.shape == (len(mixed_keys),)
    assert answers.tolist() == [key in f for key in mixed_keys]
    assert answers[::2].all()


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (0, 3), (3, 0), (4, 5), (2, 3, 4), (1, 1, 1)])
def test_contains_many_keeps_the_shape_of_an_array(kind: Kind, shape: tuple[int, ...]) -> None:
    keys = np.arange(math.prod(shape)).reshape(shape)
    f = kind.filled(range(0, keys.size, 2))
    expected = [x in f for x in range(keys.size)]
    for array in (keys, keys.astype("S"), keys.astype("U"), keys.astype(object)):
        assert f.contains_many(array).shape == shape
    assert f.contains_many(keys).ravel().tolist() == expected
    assert f.contains_many(np.asfortranarray(keys)).ravel().tolist() == expected
    assert f.contains_many(keys.T).T.ravel().tolist() == expected


def test_digests_stand_for_their_keys(kind: Kind, mixed_keys: list[Any]) -> None:
    f, g = kind.filled(mixed_keys), kind()
    digests = evenbins.digest_many(mixed_keys, f.seed)
    g.add_many(digests, digests=True)
    assert_same(f, g)
    assert g.contains_many(digests, digests=True).all()


def test_update_takes_any_number_of_arguments(kind: Kind) -> None:
    f = kind()
    f.update()
    assert not any(payload(f))
    f.update(["a", b"b"], (3,), range(4, 6), np.array([7, 8]), {"k": 1})
    assert_same(f, kind.filled(["a", b"b", 3, 4, 5, 7, 8, "k"]))


@pytest.mark.parametrize("one", ["abc", b"abc", bytearray(b"abc"), memoryview(b"abc"), np.str_("abc")])
def test_one_key_where_many_are_due_is_a_type_error(kind: Kind, one: Any) -> None:
    f = kind()
    for call in (f.update, f.add_many, f.contains_many):
        with pytest.raises(TypeError, match=r"many keys.*list"):
            call(one)
    assert not any(payload(f))


@pytest.mark.parametrize("keys", [3, None, 1.5, object(), int])
def test_what_holds_no_keys_is_a_type_error(kind: Kind, keys: Any) -> None:
    f = kind()
    for call in (f.update, f.add_many, f.contains_many):
        with pytest.raises(TypeError, match=rf"keys must be .* not {type(keys).__name__}"):
            call(keys)


def test_single_calls_check_their_arguments(kind: Kind) -> None:
    f = kind()
    for call in (lambda: f.add(), lambda: f.add("a", "b"), lambda: f.add(key="a"), lambda: f.add(1.5)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError):
        1.5 in f  # noqa: B015
    assert not any(payload(f))


# --- union ---------------------------------------------------------------------------------------------


@each_that_merges
def test_a_union_holds_the_keys_of_both(kind: Kind, mixed_keys: list[Any]) -> None:
    left, right = kind.filled(mixed_keys[:200]), kind.filled(mixed_keys[150:400])
    before = payload(left), payload(right)
    both = left | right
    assert payload(both) == kind.merged(both, mixed_keys[:200], mixed_keys[150:400])
    assert both.contains_many(mixed_keys[:400]).all()
    if not kind.ordered:
        twice = mixed_keys[150:200] if kind.repeats else []
        assert_same(both, kind.filled([*mixed_keys[:400], *twice]))
    assert (payload(left), payload(right)) == before
    assert type(both) is kind.cls
    both._check()
    assert_same(right | left, both)

    identity = left
    left |= right
    assert left is identity
    assert_same(left, both)
    assert payload(right) == before[1]


@each_that_merges
def test_a_union_with_itself_or_with_nothing_changes_nothing(kind: Kind) -> None:
    f = kind.filled(KEYS)
    before = f.copy()
    f |= f
    if kind.repeats:
        assert_same(f, kind.filled([*KEYS] * 2))
        assert_same(before | before, f)
        before = f.copy()
    assert_same(f, before)
    f |= kind()
    if kind.counted:  # the list is written anew, in the order of the digests
        assert f._state() == before._state()
        assert f.stats() == before.stats()
        assert_same(kind() | f, f)
    else:
        assert_same(f, before)
        assert kind.repeats or f | f == before
        assert_same(kind() | f, before)


@each_that_merges
def test_merging_filters_of_different_seeds_is_a_value_error(kind: Kind) -> None:
    f, g = kind.filled(KEYS), kind(seed=12345)
    before = payload(f)
    for merge in (operator.or_, operator.ior):
        with pytest.raises(ValueError, match=r"seed"):
            merge(f, g)
    assert payload(f) == before


@each_that_merges
def test_merging_filters_of_different_sizes_is_a_value_error(kind: Kind) -> None:
    f, g = kind.filled(KEYS), kind(5000)
    before = payload(f)
    for merge in (operator.or_, operator.ior):
        with pytest.raises(ValueError, match=r"plans differ \(capacity 1000 and 5000, fpr .*same arguments"):
            merge(f, g)
    assert payload(f) == before


@each_class_that_merges
def test_an_error_of_a_merge_does_not_tell_the_seed(class_kind: Kind) -> None:
    """A seed may be a secret (the repr keeps it too), and errors end up in logs."""
    f, g = class_kind(seed=1234567890123), class_kind(seed=9876543210987)
    with pytest.raises(ValueError, match="seed") as caught:
        f |= g
    assert "1234567890123" not in str(caught.value)
    assert "9876543210987" not in str(caught.value)


def test_merging_with_anything_else_is_a_type_error(kind: Kind, all_kinds: list[Kind]) -> None:
    f = kind.filled(KEYS)
    before = payload(f)
    others: list[Any] = [each() for each in all_kinds if each.cls is not kind.cls]
    arrays = [np.zeros(1, np.uint8), np.frombuffer(f, np.uint8), np.uint8(1)]  # they would take the buffer
    for other in [*others, None, 3, {"a"}, ["a"], b"abc", payload(f), *arrays]:
        for merge in (operator.or_, operator.ior, lambda a, b: operator.or_(b, a)):
            with pytest.raises(TypeError):
                merge(f, other)
    assert payload(f) == before


@each_class_that_merges
def test_the_capacity_is_outside_equality_and_merging(class_kind: Kind) -> None:
    """Two plans with one integer core make filters that can be compared and merged."""
    f = class_kind(1024)
    g = class_kind.cls.from_plan(plan_of_core(f.plan.policy, f.plan.core, capacity=512, seed=0))
    assert f.plan.core == g.plan.core
    assert f.capacity != g.capacity
    assert f == g
    g.add("a")
    assert f != g
    f |= g
    assert f == g
    assert "a" in f
    assert f.capacity == 1024


# --- comparing -----------------------------------------------------------------------------------------


def test_filters_are_equal_when_their_bits_are(kind: Kind) -> None:
    f, g = kind.filled(KEYS), kind.filled(KEYS if kind.ordered else reversed(KEYS))
    assert (f == g, f != g) == (True, False)
    assert f == f
    g.add("one more key")
    assert (f == g, f != g) == (False, True)


def test_comparing_with_anything_else_is_false_and_no_error(kind: Kind, all_kinds: list[Kind]) -> None:
    f = kind()
    others = [each() for each in all_kinds if each is not kind]
    for other in [*others, None, 3, "a", {"a"}, object(), payload(f), np.zeros(3), np.uint8(0), kind.cls]:
        assert (f == other) is False, other
        assert (other == f) is False, other
        assert (f != other) is True, other


def test_the_seed_is_part_of_equality(kind: Kind) -> None:
    assert kind(seed=1) != kind(seed=2)
    assert kind(seed=1) == kind(seed=1)


def test_a_filter_is_unhashable(kind: Kind) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(kind())


# --- copies --------------------------------------------------------------------------------------------

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy()": lambda f: f.copy(),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "bytes": lambda f: type(f).from_bytes(f.to_bytes()),
    "bytearray": lambda f: type(f).from_bytes(bytearray(f.to_bytes())),
    "memoryview": lambda f: type(f).from_bytes(memoryview(f.to_bytes())),
    **{f"pickle {n}": lambda f, n=n: pickle.loads(pickle.dumps(f, protocol=n)) for n in PROTOCOLS},
}
each_copy = pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES.keys())


@each_copy
def test_a_copy_is_equal_and_independent(kind: Kind, duplicate: Callable[[Any], Any]) -> None:
    f = kind.filled(KEYS)
    g = duplicate(f)
    assert g is not f
    assert type(g) is type(f)
    assert_same(f, g)
    g._check()
    g.add("only in the copy")
    assert "only in the copy" not in f
    f.add("only in the first")
    assert "only in the first" not in g
    f.clear()
    assert all(key in g for key in KEYS)


@each_copy
def test_a_copy_of_an_open_filter_can_be_changed(opened: Any, duplicate: Callable[[Any], Any]) -> None:
    g = duplicate(opened)
    assert g == opened
    g.add("another")
    assert "another" in g
    assert "another" not in opened
    g.clear()
    assert "apple" in opened


def test_pickle_keeps_shared_filters_shared(kind: Kind) -> None:
    f = kind.filled(KEYS)
    first, second = pickle.loads(pickle.dumps([f, f]))
    assert first is second
    first, second = copy.deepcopy([f, f])
    assert first is second


def test_clear_removes_all_keys(kind: Kind) -> None:
    f = kind.filled(KEYS)
    assert f.clear() is None
    assert_same(f, kind())
    f.add("again")
    assert "again" in f


# --- bytes and files -----------------------------------------------------------------------------------


def test_the_bytes_are_what_the_format_says(kind: Kind) -> None:
    f = kind.filled(KEYS)
    parsed = file_format.unpack(f.to_bytes())
    assert parsed.kind == kind.twin_class.kind
    assert parsed.hashing == kind.twin(f).hashing
    assert parsed.core == f.plan.core
    assert parsed.seed == f.seed
    assert parsed.capacity == f.capacity
    assert parsed.payload == payload(f)


@pytest.mark.parametrize("as_path", [str, Path], ids=["str", "Path"])
def test_save_load_and_open_give_the_same_filter(kind: Kind, tmp_path: Path, as_path: Any) -> None:
    f = kind.filled(KEYS)
    path = as_path(tmp_path / "filter.evenbins")
    assert f.save(path) is None
    assert Path(path).read_bytes() == f.to_bytes()
    found = [
        kind.cls.load(path), kind.cls.open(path), kind.cls.open(path, verify=True),
        evenbins.load(path), evenbins.open(path), evenbins.open(path, verify=True),
    ]  # fmt: skip
    for g in found:
        assert type(g) is kind.cls
        assert_same(f, g)
        assert g.contains_many(KEYS).all()
        assert [key in g for key in ABSENT] == [key in f for key in ABSENT]
        assert g.stats() == f.stats()
        g._check()


def test_a_loaded_filter_can_be_changed(kind: Kind, tmp_path: Path) -> None:
    kind.filled(KEYS).save(tmp_path / "f")
    for g in (kind.cls.load(tmp_path / "f"), evenbins.load(tmp_path / "f")):
        g.add("another")
        if kind.merges:
            g |= kind()
        g.clear()
        g._check()
    assert kind.cls.load(tmp_path / "f") == kind.filled(KEYS)


def test_saving_again_replaces_the_file_and_who_has_it_open_keeps_the_old_one(
    kind: Kind, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    old, new = kind.filled(["old"]), kind.filled(["new"])
    old.save(path)
    held = kind.cls.open(path)
    new.save(path)
    assert held == old
    assert kind.cls.open(path) == new
    held.save(path)
    assert kind.cls.load(path) == old
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


def test_bytes_of_another_kind_are_a_format_error(kind: Kind, all_kinds: list[Kind], tmp_path: Path) -> None:
    for other in all_kinds:
        if other.cls is kind.cls:
            continue
        data = other().to_bytes()
        (tmp_path / "f").write_bytes(data)
        for read in (kind.cls.load, kind.cls.open):
            with pytest.raises(FormatError, match=r"another kind.*evenbins.load"):
                read(tmp_path / "f")
        with pytest.raises(FormatError, match=r"another kind"):
            kind.cls.from_bytes(data)


def test_damaged_bytes_are_a_format_error(kind: Kind, tmp_path: Path) -> None:
    """A sample; the suite of the file format is about every bit."""
    data = kind.filled(KEYS).to_bytes()
    damaged = [b"", b"abc", data[:-1], data + b"\0", data[:64], bytes(len(data))]
    for at in (0, 8, 20, 30, 80, 127, 128, len(data) // 2, len(data) - 1):
        damaged.append(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    for each in damaged:
        with pytest.raises(FormatError):
            kind.cls.from_bytes(each)
        (tmp_path / "f").write_bytes(each)
        for read in (kind.cls.load, evenbins.load, lambda path: kind.cls.open(path, verify=True)):
            with pytest.raises(FormatError, match=r"f: "):
                read(tmp_path / "f")
    assert issubclass(FormatError, ValueError)


def test_from_bytes_wants_bytes(kind: Kind) -> None:
    for data in ("abc", None, 3, ["a"]):
        with pytest.raises(TypeError):
            kind.cls.from_bytes(data)


def test_a_missing_file_is_a_file_not_found_error(kind: Kind, tmp_path: Path) -> None:
    for read in (kind.cls.load, kind.cls.open, evenbins.load, evenbins.open):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none")


# --- open read-only ------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[Any], Any]] = {
    "add": lambda f: f.add("another"),
    "add a key that is in": lambda f: f.add("apple"),
    "add_many, a list": lambda f: f.add_many(["another"]),
    "add_many, an array": lambda f: f.add_many(np.arange(3)),
    "add_many, threads": lambda f: f.add_many(np.arange(30_000), threads=2),
    "update": lambda f: f.update(["another"]),
    "clear": lambda f: f.clear(),
}
MERGES: dict[str, Callable[[Any], Any]] = {
    "|=": lambda f: operator.ior(f, f.copy()),
    "|= itself": lambda f: operator.ior(f, f),
}


@each_that_merges
@pytest.mark.parametrize("write", MERGES.values(), ids=MERGES.keys())
def test_an_open_filter_refuses_to_be_merged_into(opened: Any, write: Any) -> None:
    test_an_open_filter_refuses_to_be_changed_and_says_what_to_do(opened, write)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_an_open_filter_refuses_to_be_changed_and_says_what_to_do(opened: Any, write: Any) -> None:
    before = payload(opened)
    with pytest.raises(ValueError, match=r"read-only.*copy\(\)") as caught:
        write(opened)
    assert "same arguments" not in str(caught.value)
    assert payload(opened) == before


@each_that_merges
def test_an_open_filter_answers_and_merges_into_others(kind: Kind, opened: Any) -> None:
    f = kind.filled(KEYS)
    assert opened == f
    assert opened.contains_many(KEYS).all()
    other = kind.filled(["more"])
    merged = opened | other
    assert payload(merged) == kind.merged(f, KEYS, ["more"])
    if not kind.ordered:
        assert_same(merged, kind.filled([*KEYS, "more"]))
    other |= opened
    assert_same(other, merged)
    assert opened.approx_items() == f.approx_items()
    assert "read-only" in repr(opened)
    assert "read-only" not in repr(opened.copy())


# --- the buffer ----------------------------------------------------------------------------------------


def test_the_buffer_is_a_live_read_only_view_of_the_bits(kind: Kind) -> None:
    f = kind()
    view = memoryview(f)
    assert view.readonly
    assert view.format == "B"
    assert view.nbytes == f.nbytes == len(payload(f))
    words = np.frombuffer(f, dtype="<u8")
    assert not words.flags.writeable
    assert not words.any()
    f.add("a")
    assert words.any()
    set_bits = int(np.bitwise_count(words).sum())
    assert set_bits > f._set_bits() if kind.counted else set_bits == f._set_bits()  # loads, words of state
    with pytest.raises(TypeError):
        view[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        words[0] = 1


def test_the_buffer_keeps_the_filter_alive(kind: Kind, tmp_path: Path) -> None:
    f = kind.filled(KEYS)
    f.save(tmp_path / "f")
    expected = payload(f)
    views = [memoryview(f), memoryview(kind.cls.open(tmp_path / "f"))]
    del f
    gc.collect()
    assert all(bytes(view) == expected for view in views)


# --- plan and stats ------------------------------------------------------------------------------------


def test_the_plan_says_how_the_filter_is_built(kind: Kind) -> None:
    f = kind(700)
    plan = f.plan
    assert isinstance(plan, FilterPlan)
    assert plan is f.plan
    assert plan.keys == f.capacity == 700
    assert plan.seed == f.seed == kind.arguments.get("seed", 0)
    assert plan.nbytes == f.nbytes
    assert plan.bits_per_key == 8 * f.nbytes / 700
    assert plan.hashes == plan.core[2 if kind.ordered or kind.repeats else -1]
    if "hashes" in kind.arguments:
        assert plan.hashes == kind.arguments["hashes"]
    if "fpr" in kind.arguments:
        assert plan.fpr <= kind.arguments["fpr"]
    json.dumps(plan.to_dict())
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.keys = 3


def test_the_plan_survives_every_way_of_copying(kind: Kind, tmp_path: Path) -> None:
    f = kind.filled(KEYS)
    f.save(tmp_path / "f")
    others = [
        f.copy(),
        pickle.loads(pickle.dumps(f)),
        kind.cls.load(tmp_path / "f"),
        kind.cls.open(tmp_path / "f"),
    ]
    for g in others:
        assert g.plan.to_dict() == f.plan.to_dict()


def test_plan_and_stats_share_their_names(kind: Kind) -> None:
    plan, stats = kind().plan, kind().stats()
    planned = {each.name for each in dataclasses.fields(plan)}
    measured = {each.name for each in dataclasses.fields(stats)}
    assert measured - planned <= {"loads", "distinct"}
    for name in (
        "keys", "policy", "bits_per_key", "block_bits", "hashes", "choices", "thresholds", "coin", "shares",
        "fpr", "reads", "miss_reads", "overflow", "overflow_limit", "nbytes",
    ):  # fmt: skip
        assert hasattr(plan, name)
    for name in ("keys", "fpr", "reads", "miss_reads", "overflow", "fill", "loads"):
        assert hasattr(stats, name)
    assert isinstance(plan, FilterPlan)
    assert isinstance(stats, FilterStats)


def test_stats_measure_the_filter(kind: Kind, mixed_keys: list[Any]) -> None:
    f = kind(len(mixed_keys))
    empty = f.stats()
    assert empty.keys == empty.fpr == empty.fill == empty.overflow == 0
    f.add_many(mixed_keys)
    stats = f.stats()
    assert stats.nbytes == f.nbytes
    assert stats.bits_per_key == f.plan.bits_per_key
    json.dumps(stats.to_dict())
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.keys = 3
    f.clear()
    assert f.stats() == empty


@pytest.mark.parametrize(
    "kind",
    [each for each in KINDS if not each.ordered and not each.repeats and not each.runs],
    ids=lambda each: each.name,
)
def test_stats_measure_the_bits(kind: Kind, mixed_keys: list[Any]) -> None:
    """Of the filters that are bits alone; test_balanced.py, test_counting.py and twins have the others."""
    f = kind(len(mixed_keys))
    f.add_many(mixed_keys)
    stats = f.stats()
    bits = f.plan.core[0] * (f.plan.block_bits or 1)
    set_bits = int(np.bitwise_count(np.frombuffer(f, np.uint8)).sum(dtype=np.int64))
    assert stats.fill == set_bits / bits
    assert stats.reads == f.plan.reads
    if f.plan.block_bits:
        blocks = np.frombuffer(f, np.uint8).reshape(f.plan.core[0], -1)
        loads = np.bincount(np.bitwise_count(blocks).sum(axis=1), minlength=f.plan.block_bits + 1)
        assert stats.loads == (tuple(loads.tolist()),)
        rates = (np.arange(f.plan.block_bits + 1) / f.plan.block_bits) ** f.plan.hashes
        assert stats.fpr == pytest.approx(float(loads @ rates) / f.plan.core[0], rel=1e-12)
    else:
        assert stats.loads == ()
        few = f.plan.hashing != "independent"  # fewer hashes than positions: these have a floor
        assert stats.fpr == pytest.approx(stats.fill**f.plan.hashes, rel=0.1 if few else 1e-12)
        assert not few or stats.fpr > stats.fill**f.plan.hashes


def test_approx_items_estimates_the_number_of_keys(kind: Kind) -> None:
    """5,000 keys; the estimate's standard deviation is below 2 % for every kind, and the keys are fixed."""
    f = kind(5000)
    assert f.approx_items() == 0
    f.add_many(range(5000))
    assert f.approx_items() == pytest.approx(5000, rel=0.1)
    if not kind.repeats and not kind.runs:  # test_counting.py has theirs; the others count fingerprints
        assert f.approx_items() == f.stats().keys
    f.add_many(range(5000))
    assert f.approx_items() == pytest.approx(5000, rel=0.1)
    f.clear()
    assert f.approx_items() == 0


@each_class_of_bits
def test_approx_items_of_a_filter_with_all_bits_set_is_infinite(class_kind: Kind) -> None:
    f = class_kind.planned(1, bits_per_key=64, hashes=8)
    f.add_many(range(20_000))
    assert f.stats().fill == 1
    assert f.stats().fpr == 1
    assert f.approx_items() == math.inf
    assert "new" in f
    repr(f)
    f._repr_html_()
    json.dumps(f.plan.to_dict())


def test_an_overfull_filter_still_has_no_false_negative(kind: Kind) -> None:
    f = kind(10)
    f.add_many(range(5000))
    assert f.contains_many(range(5000)).all()
    f._check()


def test_check_notices_a_broken_invariant(class_kind: Kind) -> None:
    """`_check` is no decoration: a plan that belongs to another filter does not pass."""
    f = class_kind()
    f._check()
    other = class_kind(5000).plan
    f._cached_plan = other
    if f.plan is not other:  # it is no more than a memory of the plan of this core
        f._check()
        return
    with pytest.raises(AssertionError):
        f._check()


# --- for people ----------------------------------------------------------------------------------------


def test_the_repr_tells_the_plan_and_keeps_the_seed(kind: Kind) -> None:
    f = kind(1234)
    assert repr(f).startswith(f"{kind.cls.__name__}(capacity=1_234, fpr=")
    assert kind.runs or f"hashes={f.plan.hashes}" in repr(f)
    assert "\n" not in repr(f)
    if f.seed:
        for text in (repr(f), f._repr_html_(), repr(f.plan), repr(f.stats())):
            assert str(f.seed) not in text
            assert f"{f.seed:_}" not in text
        assert "seed" in repr(f)


class Cells(html.parser.HTMLParser):
    """The texts of a piece of HTML whose tags are all closed, in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open_tags: list[str] = []
        self.texts: list[str] = []
        self.feed(source)
        assert self.open_tags == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_html_is_a_sound_table_of_plan_and_stats(kind: Kind) -> None:
    f = kind.filled(KEYS)
    for shown in (f, f.plan, f.stats()):
        assert {"keys", "fpr", "fill", "nbytes"} <= set(Cells(shown._repr_html_()).texts)
    assert {kind.cls.__name__, "plan", "stats()"} <= set(Cells(f._repr_html_()).texts)


# --- as a class ----------------------------------------------------------------------------------------


def test_every_filter_satisfies_the_protocol(kind: Kind, opened: Any) -> None:
    assert isinstance(kind(), evenbins.Filter)
    assert isinstance(opened, evenbins.Filter)
    assert not isinstance({"a"}, evenbins.Filter)


UNMADE: dict[str, Callable[[Any, Any], Any]] = {
    "in": lambda f, g: "x" in f,
    "in, no key": lambda f, g: 1.5 in f,
    "add": lambda f, g: f.add("x"),
    "update": lambda f, g: f.update(["x"]),
    "add_many": lambda f, g: f.add_many(["x"]),
    "contains_many": lambda f, g: f.contains_many(np.arange(3)),
    "memoryview": lambda f, g: memoryview(f),
    "frombuffer": lambda f, g: np.frombuffer(f, np.uint8),
    "bytes": lambda f, g: bytes(f),
    "repr": lambda f, g: repr(f),
    "html": lambda f, g: f._repr_html_(),
    "|": lambda f, g: f | g,
    "| it": lambda f, g: g | f,
    "|=": lambda f, g: operator.ior(f, g),
    "|= it": lambda f, g: operator.ior(g, f),
    "==": lambda f, g: f == g,
    "== it": lambda f, g: g == f,
    "copy": lambda f, g: f.copy(),
    "copy.copy": lambda f, g: copy.copy(f),
    "deepcopy": lambda f, g: copy.deepcopy(f),
    "pickle": lambda f, g: pickle.dumps(f),
    "clear": lambda f, g: f.clear(),
    "approx_items": lambda f, g: f.approx_items(),
    "stats": lambda f, g: f.stats(),
    "plan": lambda f, g: f.plan,
    "nbytes": lambda f, g: f.nbytes,
    "seed": lambda f, g: f.seed,
    "capacity": lambda f, g: f.capacity,
    "to_bytes": lambda f, g: f.to_bytes(),
    "save": lambda f, g: f.save("never-written"),
    "_check": lambda f, g: f._check(),
    "_set_bits": lambda f, g: f._set_bits(),
}


@pytest.mark.filterwarnings("ignore:nanobind:RuntimeWarning")  # beside its TypeError
@pytest.mark.parametrize("use", UNMADE.values(), ids=UNMADE.keys())
def test_an_object_without_init_raises_and_does_not_crash(
    class_kind: Kind, use: Callable[[Any, Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    f = class_kind.cls.__new__(class_kind.cls)
    with pytest.raises((RuntimeError, TypeError)):
        use(f, class_kind())
    assert not any(tmp_path.iterdir())


def test_a_constructor_that_failed_leaves_an_object_that_raises(class_kind: Kind) -> None:
    f = class_kind.cls.__new__(class_kind.cls)
    with pytest.raises(ValueError, match="capacity"):
        f.__init__(*class_kind.first, 0)
    with pytest.raises(RuntimeError, match="__init__"):
        f.add("x")


@pytest.mark.filterwarnings("ignore:nanobind:RuntimeWarning")
def test_init_cannot_be_called_twice(class_kind: Kind) -> None:
    """The buffer may be exported: a second __init__ must not free it."""
    f = class_kind.filled(KEYS)
    view = memoryview(f)
    before = bytes(view)
    with pytest.raises(TypeError):
        f.__init__(*class_kind.first, 10_000)
    assert bytes(view) == before
    f._check()
    assert all(key in f for key in KEYS)


def test_an_object_at_the_address_of_a_dead_one_is_not_taken_for_it(class_kind: Kind) -> None:
    """The core remembers the object asked last."""
    for _ in range(200):
        f = class_kind.make(10)
        f.add("x")
        assert "x" in f
        del f
        unmade = class_kind.cls.__new__(class_kind.cls)
        with pytest.raises(RuntimeError, match="__init__"):
            unmade.add("x")
        fresh = class_kind.make(10)
        assert "x" not in fresh
        del unmade, fresh


def test_calls_on_several_filters_in_turn_do_not_mix(kind: Kind) -> None:
    filters = [kind() for _ in range(5)]
    for i in range(500):
        filters[i % 5].add(i)
        assert i in filters[i % 5]
    for i, f in enumerate(filters):
        assert_same(f, kind.filled(range(i, 500, 5)))


@pytest.fixture
def subclass(class_kind: Kind, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A subclass in Python with a constructor and an instance dictionary of its own."""

    class Labelled(class_kind.cls):  # type: ignore[misc, name-defined]
        def __init__(self, label: str) -> None:
            super().__init__(*class_kind.first, 1000, **class_kind.arguments)
            self.label = label

        def shout(self) -> str:
            return self.label.upper()

    Labelled.__qualname__ = "Labelled"
    monkeypatch.setattr(sys.modules[__name__], "Labelled", Labelled, raising=False)
    return Labelled


@each_class_of_bits
def test_a_subclass_in_python_is_a_filter(class_kind: Kind, subclass: Any) -> None:
    f = subclass("mine")
    f.update(KEYS)
    assert f.shout() == "MINE"
    assert payload(f) == payload(class_kind.filled(KEYS))
    assert isinstance(f, evenbins.Filter)
    assert repr(f).startswith("Labelled(")
    f._check()
    assert type(f | subclass("other")) is subclass
    base = class_kind.filled(["in the base"])
    base |= f
    assert "apple" in base


@each_copy
def test_a_subclass_can_be_copied_and_pickled(subclass: Any, duplicate: Callable[[Any], Any]) -> None:
    f = subclass("mine")
    f.update(KEYS)
    g = duplicate(f)
    assert type(g) is subclass
    assert g == f
    assert all(key in g for key in KEYS)
    g._check()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_a_copy_of_a_subclass_keeps_its_attributes(subclass: Any, duplicate: Callable[[Any], Any]) -> None:
    """As for any Python object, a `set` among them."""
    assert duplicate(subclass("mine")).label == "mine"


def test_a_subclass_may_override_add(class_kind: Kind) -> None:
    class Lower(class_kind.cls):  # type: ignore[misc, name-defined]
        __slots__ = ()

        def add(self, key: Any, /) -> None:
            super().add(key.lower())

    class Lowest(Lower):
        __slots__ = ()

    for cls in (Lower, Lowest):
        f = cls(*class_kind.first, 100, fpr=1e-9)
        f.add("KEY")
        assert "key" in f
        assert "KEY" not in f


def test_filters_can_be_weakly_referenced(kind: Kind) -> None:
    f = kind()
    reference_ = weakref.ref(f)
    assert reference_() is f
    del f
    gc.collect()
    assert reference_() is None


# --- constructors --------------------------------------------------------------------------------------

BAD_ARGUMENTS: list[tuple[type[Exception], str, dict[str, Any]]] = [
    *((ValueError, "capacity", {"capacity": bad}) for bad in (0, -1, 1.5, math.nan, math.inf, 2**48 + 1)),
    *((TypeError, "capacity", {"capacity": bad}) for bad in ("10", None, True, [10], b"1", 1j)),
    *((ValueError, "fpr", {"fpr": bad}) for bad in (0, 1, -0.1, 1.5, math.nan, math.inf)),
    *((TypeError, "fpr", {"fpr": bad}) for bad in ("0.1", [0.1], True, 1j)),
    *((ValueError, "bits_per_key", {"bits_per_key": bad}) for bad in (0, -1, math.nan, math.inf, 4097)),
    *((TypeError, "bits_per_key", {"bits_per_key": bad}) for bad in ("8", [8], False)),
    (ValueError, "fpr and bits_per_key", {"fpr": 0.1, "bits_per_key": 8}),
    *((ValueError, "hashes", {"hashes": bad}) for bad in (0, -1, 65, 10**30)),
    *((TypeError, "hashes", {"hashes": bad}) for bad in (1.0, "3", True)),
    *((ValueError, "seed", {"seed": bad}) for bad in (-1, 2**64)),
    *((TypeError, "seed", {"seed": bad}) for bad in (1.0, "3", None, True)),
]


@pytest.mark.parametrize(
    ("error", "name", "arguments"),
    BAD_ARGUMENTS,
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_bad_argument_is_an_error_that_names_it(
    class_kind: Kind, error: type[Exception], name: str, arguments: dict[str, Any]
) -> None:
    make: Any = class_kind.make
    if "hashes" in arguments and class_kind.cls is evenbins.BalancedBloomFilter:
        make = plan_balanced  # which alone takes them
    elif "hashes" in arguments and class_kind.runs:  # which has none
        error, name = TypeError, rf"{class_kind.cls.__name__}(\.__init__)?\(\)"
    with pytest.raises(error, match=rf"^{name} ") as caught:
        make(**{"capacity": 100, **arguments})
    assert "got " in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("error", "arguments"),
    [(ValueError, {"block_bits": 128}), (ValueError, {"block_bits": 0}), (TypeError, {"block_bits": "512"}),
     (TypeError, {"block_bits": 512.0})],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("cls", [evenbins.BlockedBloomFilter, evenbins.BalancedBloomFilter])
def test_filters_of_blocks_check_their_own_arguments(
    cls: Any, error: type[Exception], arguments: dict[str, Any]
) -> None:
    with pytest.raises(error, match=rf"^{next(iter(arguments))} must be"):
        cls(100, **arguments)


def test_arguments_after_capacity_and_rate_are_keywords(class_kind: Kind) -> None:
    assert class_kind.make(100, 0.01) == class_kind.make(100, fpr=0.01)
    with pytest.raises(TypeError):
        class_kind.make(100, 0.01, 8)
    with pytest.raises(TypeError):
        class_kind.make()
    with pytest.raises(TypeError, match="colour"):
        class_kind.make(100, colour="red")


@pytest.mark.parametrize("capacity", [1, 2, 1e3, np.int32(7), np.float64(50), np.uint64(9)])
def test_a_capacity_is_any_whole_number(kind: Kind, capacity: Any) -> None:
    f = kind(capacity)
    assert f.capacity == capacity
    f.add_many(range(int(capacity)))
    assert f.contains_many(range(int(capacity))).all()
    f._check()


def test_the_default_is_one_percent(class_kind: Kind) -> None:
    assert class_kind.make(10_000).plan == class_kind.make(10_000, fpr=0.01).plan


@pytest.mark.filterwarnings("ignore:counter_bits")
def test_a_filter_that_does_not_fit_is_a_memory_error_with_its_size(class_kind: Kind) -> None:
    """2**48 keys take more than the address space of x86-64 and aarch64 (2**47 and 2**48 bytes)."""
    plan = {
        "BloomFilter": plan_standard, "BlockedBloomFilter": plan_blocked,
        "BalancedBloomFilter": plan_balanced, "CountingBloomFilter": plan_counting,
        "FingerprintFilter": plan_fingerprint, "WindowFilter": plan_window,
    }[class_kind.cls.__name__](*class_kind.first, 2**48)  # fmt: skip
    assert plan.nbytes > 2**48
    with pytest.raises(MemoryError, match=str(plan.nbytes)) as caught:
        class_kind.make(2**48)
    assert "GiB" in str(caught.value)


@pytest.mark.filterwarnings("ignore:counter_bits")
@each_class_of_bits
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_filter_of_more_than_five_gigabits_uses_all_of_them(class_kind: Kind, threads: int) -> None:
    """20 keys put in one by one, 20 in bulk: the bits set are exactly those of the twin, beyond 2**32 too."""
    f = class_kind.planned(500_000_000, bits_per_key=10.5, hashes=3)
    assert 8 * f.nbytes >= 5 * 10**9
    singles = [f"key-{i}" for i in range(20)]
    many = [digest(f"bulk-{i}") for i in range(20)]
    for key in singles:
        f.add(key)
    f.add_many(np.repeat(np.array(many, np.uint64), 200), digests=True, threads=threads)

    expected = class_kind.positions(f, [*map(digest, singles), *many])
    words = np.frombuffer(f, "<u8")
    found = {
        64 * int(at) + bit for at in np.flatnonzero(words) for bit in range(64) if int(words[at]) >> bit & 1
    }
    assert {bit // (f.plan.counter_bits or 1) for bit in found} == expected
    assert max(found) >= 2**32
    assert sum(p >= 2**32 for p in found) > len(found) / 20
    assert all(key in f for key in singles)
    assert f.contains_many(np.array(many, np.uint64), digests=True, threads=threads).all()
    assert not f.contains_many(ABSENT).any()
    assert f._set_bits() == len(expected)


# --- doctests ------------------------------------------------------------------------------------------


def documented_modules() -> list[str]:
    """Return the modules of the library whose examples no other test runs, and the twins."""
    names = ["evenbins", "evenbins._keywords", "evenbins.hashing", "evenbins.structure"]
    for package in (filters, theory, reference):
        names += [package.__name__]
        names += [f"{package.__name__}.{each.name}" for each in pkgutil.iter_modules(package.__path__)]
    return names


@pytest.mark.parametrize("name", documented_modules())
def test_the_examples_in_the_docstrings_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
    if name in ("evenbins", "evenbins.filters.standard", "evenbins.filters.counting"):
        assert results.attempted >= 4


@each_that_overfills
def test_overfilling_is_reported_once_and_by_stats(kind: Kind) -> None:
    """A warning when bulk calls have added over 1.1 times the keys; repeats alone cause none."""
    f = kind(capacity=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverfilledWarning)
        f.add_many(range(1500))
        if not kind.repeats:
            for _ in range(3):
                f.add_many(range(1500))
        else:
            f.clear()
            f.add_many(range(1500))
    assert f.stats().overfilled == 0
    with pytest.warns(OverfilledWarning, match=r"planned for 2000 keys holds about .*: its fpr is") as seen:
        f.update(range(1500, 105_000), range(105_000, 200_000))
    assert len(seen) == 1
    assert f.stats().overfilled > 1
    assert f.stats().to_dict()["overfilled"] == f.stats().overfilled
    f.clear()
    assert f.stats().overfilled == 0
    with pytest.warns(OverfilledWarning):
        f.add_many(np.arange(5000))


class _NoLength:
    """An iterable whose length is unknown although it has the method, such as tqdm around a generator."""

    def __iter__(self) -> Iterator[str]:
        return (str(i) for i in range(10))

    def __len__(self) -> int:
        return None  # type: ignore[return-value]


def test_keys_that_do_not_know_their_length_are_added(kind: Kind) -> None:
    f = kind(capacity=100)
    f.add_many(_NoLength())
    assert f.contains_many(list(_NoLength())).all()


@each_that_overfills
def test_a_warning_that_is_an_error_comes_after_the_keys_and_once(kind: Kind) -> None:
    f = kind(capacity=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverfilledWarning)
        with pytest.raises(OverfilledWarning):
            f.add_many(range(200_000))
        f.add_many(range(200_000, 202_500))
    assert f.contains_many(range(202_500)).all()
