"""Filters on servers, what needs no server: positions, segments, descriptions, predictions, arguments."""

from __future__ import annotations

import doctest
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbins import BalancedBloomFilter, BlockedBloomFilter, BloomFilter, CountingBloomFilter, _core
from evenbins.cluster import FilterDamagedError, FilterMissingError, RedisFilter, RedisFilterError
from evenbins.cluster._many_keys import place_keys
from evenbins.cluster._one_key import choose_block
from evenbins.cluster._scripts import PRESENT
from evenbins.cluster._segments import HEAD, Layout, in_rebuilding_order, list_slots, place
from evenbins.cluster.redis_plan import plan_of_layout
from evenbins.filters import plan_balanced, plan_blocked, plan_standard
from evenbins.hashing import coins, lane_positions_many, mulhi_many, splitmix_many
from evenbins.study.hashing import plan_scheme
from evenbins.study.levels import plan_levels
from reference import ReferenceBalanced
from reference.blocked import lane_positions
from reference.keys import mulhi, splitmix

WORDS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20)


@settings(max_examples=40)
@given(words=WORDS, m=st.integers(1, 2**56), i=st.integers(0, 70))
def test_words_of_arrays_are_those_of_numbers(words: list[int], m: int, i: int) -> None:
    array = np.array(words, np.uint64)
    assert mulhi_many(array, m).tolist() == [mulhi(each, m) for each in words]
    assert splitmix_many(array, i).tolist() == [splitmix(each, i) for each in words]


@settings(max_examples=40)
@given(words=WORDS, hashes=st.integers(1, 32), span=st.integers(200, 512), coin=st.integers(0, 2**32))
def test_positions_of_arrays_are_those_of_numbers(
    words: list[int], hashes: int, span: int, coin: int
) -> None:
    array = np.array(words, np.uint64)
    found = lane_positions_many(array, hashes, span).tolist()
    assert found == [list(lane_positions(each, hashes, span)) for each in words]
    assert coins(array, coin).tolist() == [splitmix(each, 0) >> 32 < coin for each in words]


@settings(max_examples=40)
@given(
    digests=st.lists(st.integers(0, 2**64 - 1), max_size=120),
    counted=st.booleans(),
    threshold=st.integers(0, 9),
    coin=st.sampled_from([0, 2**31, 2**32]),
    hashes=st.integers(1, 6),
)
def test_blocks_take_keys_as_the_twin_does(
    digests: list[int], counted: bool, threshold: int, coin: int, hashes: int
) -> None:
    """One level of few blocks: outcomes and bytes of `place_keys` are those of the reference, key by key."""
    if counted:
        plan = plan_levels(
            10, policy="single", blocks=(3,), thresholds=(threshold,), coin=coin / 2**32, hashes=hashes,
            block_bits=256, overflow_limit=200,
        )  # fmt: skip
    else:
        limits = (4 * threshold + 1,)
        plan = plan_levels(10, policy="fill", blocks=(3, 1), thresholds=limits, hashes=hashes, block_bits=256)
    twin, layout = ReferenceBalanced(plan.core), Layout("x", plan)
    words = np.array(list(dict.fromkeys(digests)), np.uint64)
    blocks = np.zeros((3, 32), np.uint8)
    outcomes = place_keys(layout, layout.tables[0], blocks, mulhi_many(words, 3), words)
    wanted = []
    for word in words.tolist():
        choice = next(iter(twin.path(word)))
        wanted.append(2 if choice.present() else int(choice.accepts()))
        if wanted[-1] == 1:
            choice.insert()
    assert outcomes.tolist() == wanted
    assert blocks.tobytes() == twin.tables[0].payload()[:96]


@settings(max_examples=40)
@given(digests=st.sets(st.integers(1, 2**64 - 1), max_size=30), choices=st.integers(1, 8))
def test_a_list_taken_apart_gives_the_same_slots(digests: set[int], choices: int) -> None:
    slots = list_slots(sorted(digests), 30, choices)
    again = in_rebuilding_order(slots)
    assert sorted(again) == sorted(digests)
    assert list_slots(again, 30, choices) == slots


FILTERS: dict[str, Callable[[], Any]] = {
    "standard": lambda: BloomFilter(3000, bits_per_key=10.3),
    "blocked": lambda: BlockedBloomFilter(3000, bits_per_key=12, seed=7),
    "blocked-256": lambda: BlockedBloomFilter(3000, bits_per_key=12, block_bits=256),
    "multilevel": lambda: BalancedBloomFilter(3000, bits_per_key=12, policy="multilevel", overflow=0.01),
    "fill-256": lambda: BalancedBloomFilter(3000, bits_per_key=24, policy="fill", block_bits=256),
    "two-choice": lambda: BalancedBloomFilter(3000, bits_per_key=24, policy="two-choice"),
    "single": lambda: BalancedBloomFilter(3000, bits_per_key=12, policy="single", overflow=0.05),
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("segment_bytes", [64, 1024, 65_408])
def test_segments_put_together_are_the_filter(name: str, segment_bytes: int) -> None:
    filter_ = FILTERS[name]()
    filter_.add_many(np.arange(3300))
    layout = Layout("x", filter_.plan, segment_bytes)
    blocks, listed, base = layout.take_apart(memoryview(filter_))
    assert [len(each) + HEAD for each in blocks] == [layout.value_bytes(i) for i in range(layout.segments)]
    assert max(len(each) for each in blocks) <= segment_bytes
    layout = Layout("x", filter_.plan, segment_bytes, base=base)
    payload = layout.payload(blocks, [(0, 0)] * layout.segments, listed)
    assert layout.local_filter(payload).to_bytes() == filter_.to_bytes()


def test_the_header_of_a_local_filter_takes_no_memory() -> None:
    """Of 64 MB: no other filter is built to learn the header, and the filter has one copy beside its own."""
    code = """
from evenbins.cluster._segments import Layout
from evenbins.filters import plan_blocked
from evenbins.filters.base import file_header

def peak():  # of this program alone; getrusage also counts the one that started it
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

layout = Layout("x", plan_blocked(53_687_091, bits_per_key=10))
payload = b"x" * layout.plan.nbytes
before = peak()
header = file_header(layout.plan, payload)
between = peak()
made = layout.local_filter(payload)
assert made.to_bytes()[: len(header)] == header
print((between - before) / made.nbytes, (peak() - before) / made.nbytes)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    header, whole = map(float, printed.split())
    assert header < 0.1
    assert whole < 2.4


@pytest.mark.parametrize("name", FILTERS)
def test_a_description_is_read_as_it_was_written(name: str) -> None:
    layout = Layout("x", FILTERS[name]().plan, 128, servers=3)
    found, server, ready = Layout.from_meta("x", layout.meta(2, ready=True))
    assert (found, server, ready) == (layout, 2, True)
    assert found.tables == layout.tables


def test_a_changed_description_is_refused() -> None:
    layout = Layout("x", plan_blocked(100))
    good = layout.meta(0, ready=True)
    for at in range(0, len(good), 7):
        bad = bytearray(good)
        bad[at] ^= 4
        with pytest.raises(FilterDamagedError):
            Layout.from_meta("x", bytes(bad))
    for bad_text in (b"", b"hello", good[:-1], good + b"x"):
        with pytest.raises(FilterDamagedError):
            Layout.from_meta("x", bad_text)
    with pytest.raises(FilterMissingError, match="there is no filter 'x'"):
        Layout.from_meta("x", None)


def test_a_future_format_is_refused_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenbins.cluster._segments.FORMAT", 2)
    future = Layout("x", plan_blocked(100)).meta(0, ready=True)
    monkeypatch.undo()
    with pytest.raises(RedisFilterError, match="format 2"):
        Layout.from_meta("x", future)


def test_segments_differ_in_their_hash_tags_and_share_them_with_their_masks() -> None:
    layout = Layout("x", plan_blocked(100))

    def tag(key: str) -> str:
        return key[key.index("{") : key.index("}")]

    assert tag(layout.segment_key(3)) == tag(layout.mask_key(3)) != tag(layout.segment_key(4))


def test_segments_are_placed_by_a_ring() -> None:
    """Evenly, and one server more takes its share from all others."""
    three, four = ([place(segment, servers) for segment in range(3000)] for servers in (3, 4))
    assert all(900 < three.count(server) < 1100 for server in range(3))
    moved = [new for old, new in zip(three, four, strict=True) if old != new]
    assert set(moved) == {3}
    assert 650 < len(moved) < 850
    assert {place(segment, 1) for segment in range(9)} == {0}


def test_predicted_round_trips() -> None:
    """At 24 bits per key; the numbers are those of the plan, and the naive filter has one for each hash."""
    multilevel = plan_balanced(100_000, bits_per_key=24, policy="multilevel", reads=1.2, choices=3)
    plan = plan_of_layout(Layout("x", multilevel))
    assert plan.round_trips == multilevel.reads + multilevel.overflow
    assert plan.miss_round_trips == multilevel.miss_reads + multilevel.list_reads
    assert plan.round_trips == pytest.approx(1.2, abs=0.1)
    assert plan.miss_round_trips == pytest.approx(2.3, abs=0.4)
    assert plan_of_layout(Layout("x", plan_blocked(1000))).round_trips == 1
    two = plan_of_layout(Layout("x", plan_balanced(10_000, fpr=1e-3, policy="two-choice"), 64))
    assert 1.99 < two.round_trips < 2
    assert two.add_round_trips == two.round_trips + 1
    standard = plan_of_layout(Layout("x", plan_standard(100_000, bits_per_key=24), 64))
    assert 16.9 < standard.round_trips < 17
    whole = plan_of_layout(Layout("x", plan_standard(1000, bits_per_key=24)))
    assert whole.round_trips == pytest.approx(1)
    found = json.loads(json.dumps(plan.to_dict()))
    assert found["filter"]["policy"] == "multilevel"
    assert found["segments"] == plan.segments == 6
    for text in (repr(plan), str(plan), plan._repr_html_()):
        assert "round_trips" in text


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Layout("a{b", plan_blocked(10)), ValueError, "name must be"),
        (lambda: Layout("", plan_blocked(10)), ValueError, "name must be"),
        (lambda: Layout(7, plan_blocked(10)), TypeError, "name must be"),  # type: ignore[arg-type]
        (lambda: Layout("x", "plan"), TypeError, "plan must be a FilterPlan"),  # type: ignore[arg-type]
        (lambda: Layout("x", CountingBloomFilter(10).plan), ValueError, "policies standard"),
        (
            lambda: Layout("x", plan_balanced(10, policy="sequential", fpr=0.1)),
            ValueError,
            "sequential",
        ),
        (
            lambda: Layout("x", plan_scheme("double", 1000, bits_per_key=8)),
            ValueError,
            "hashing",
        ),
        (lambda: Layout("x", plan_blocked(10), 100), ValueError, "multiple of 64"),
        (lambda: Layout("x", plan_blocked(10), 0), ValueError, "segment_bytes"),
        (lambda: RedisFilter.open("localhost", "x"), TypeError, "client must be a redis.Redis"),
        (lambda: RedisFilter.open([], "x"), ValueError, "at least one"),
    ],
)
def test_wrong_arguments_are_named(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_client_that_decodes_is_refused() -> None:
    import redis

    with pytest.raises(ValueError, match="decode_responses"):
        RedisFilter.open(redis.Redis(decode_responses=True), "x")


def test_the_package_imports_without_the_client_library() -> None:
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "from evenbins.cluster import RedisFilter\n"
        "try: RedisFilter.open(None, 'x')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'evenbins[redis]'" in done.stdout


@pytest.mark.parametrize("module", ["_redis_servers", "_segments", "redis_filter"])
def test_the_examples_in_the_modules(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"evenbins.cluster.{module}")).failed == 0


@settings(max_examples=40)
@given(
    digests=st.lists(st.integers(0, 2**64 - 1), max_size=80),
    blocks=st.integers(1, 4),
    hashes=st.integers(1, 32),
    block_bits=st.sampled_from([256, 512]),
)
def test_two_choices_are_those_of_the_twin(
    digests: list[int], blocks: int, hashes: int, block_bits: int
) -> None:
    """Blocks of a few keys each, also one for both choices; all at once and key by key."""
    plan = plan_levels(10, policy="two-choice", blocks=(blocks,), hashes=hashes, block_bits=block_bits)
    twin = ReferenceBalanced(plan.core)
    for digest in digests:
        twin.add_digest(digest)
    words = np.array(digests, np.uint64)
    rows = np.zeros((blocks, block_bits // 8), np.uint8)
    first, second = mulhi_many(words, blocks), mulhi_many(splitmix_many(words, 1), blocks)
    chosen = _core.choose_blocks(rows, first, second, words, hashes)
    assert rows.tobytes() == twin.tables[0].payload()[: rows.nbytes]
    one_by_one = np.zeros_like(rows)
    for i, digest in enumerate(digests):
        own = one_by_one[[first[i], second[i]]]
        choice = choose_block([each.tobytes() for each in own], digest, hashes)
        assert choice == chosen[i]
        if choice != PRESENT:
            at = (first, second)[choice][i]
            _core.choose_blocks(one_by_one, first[i : i + 1], second[i : i + 1], words[i : i + 1], hashes)
            assert one_by_one[at].any()
    assert np.array_equal(one_by_one, rows)


def test_a_look_at_a_block_answers_as_placement_does() -> None:
    rows, words = np.zeros((1, 64), np.uint8), np.arange(60, dtype=np.uint64) * np.uint64(2**57 + 12345)
    for word in [*words.tolist(), *words.tolist()]:
        before = rows.tobytes()
        looked = _core.look_at_block(before, word, 8, 20, 5, 2**31)
        assert rows.tobytes() == before
        placed = _core.place_in_blocks(
            rows, np.zeros(1, np.int64), np.array([word], np.uint64), 8, 20, 5, 2**31
        )
        assert placed.tolist() == [looked]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": [3]}, "no such block"),
        ({"rows": [-1]}, "no such block"),
        ({"rows": [0, 1]}, "as many rows"),
        ({"hashes": 0}, "hashes"),
        ({"hashes": 33}, "hashes"),
        ({"counter_bits": 25}, "counter_bits"),
        ({"block_bytes": 48}, "32 or 64 bytes"),
    ],
)
def test_placement_refuses_what_it_cannot_do(options: dict[str, Any], message: str) -> None:
    given_ = {"rows": [0], "hashes": 8, "counter_bits": 5, "block_bytes": 64} | options
    blocks, rows = np.zeros((3, given_["block_bytes"]), np.uint8), np.array(given_["rows"], np.int64)
    with pytest.raises((ValueError, IndexError), match=message):
        _core.place_in_blocks(
            blocks, rows, np.zeros(1, np.uint64), given_["hashes"], 20, given_["counter_bits"], 0
        )
