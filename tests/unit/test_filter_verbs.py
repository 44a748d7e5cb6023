"""Filters as people expect them: what a set can do, from_keys, and errors that lead from other libraries."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow
import pytest

import evenbins
from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    ChainedTable,
    CountingBloomFilter,
    CountMinSketch,
    GrowingFilter,
    HeavyHitters,
    HyperLogLog,
    MultilevelTable,
    NewlineWarning,
    ShardedFilter,
    digest_many,
)
from evenbins._keywords import HINTS
from evenbins.filters.from_keys import distinct_keys

PLAIN: list[Any] = [BloomFilter, BlockedBloomFilter, BalancedBloomFilter, CountingBloomFilter]
BITWISE: list[Any] = [BloomFilter, BlockedBloomFilter]
MAKERS: dict[str, Callable[..., Any]] = {
    **{cls.__name__: lambda cls=cls, **more: cls(1000, 1e-3, **more) for cls in PLAIN},
    "GrowingFilter": lambda **more: GrowingFilter(1e-3, first=2000, policy="blocked", **more),
    "ShardedFilter": lambda **more: ShardedFilter(1000, 1e-3, shards=4, **more),
}
each_filter = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
each_bitwise = pytest.mark.parametrize("cls", BITWISE)
OTHERS = [name for name in MAKERS if name not in ("BloomFilter", "BlockedBloomFilter")]


# --- from_keys --------------------------------------------------------------------------------------------

ROWS = np.arange(300_000) % 20_000


def _strings() -> list[str]:
    return [f"https://example.org/{number}" for number in ROWS[:60_000].tolist()]


SOURCES: dict[str, Callable[[], tuple[object, int]]] = {
    "integers": lambda: (ROWS, 20_000),
    "integers in two dimensions": lambda: (ROWS.reshape(2, -1), 20_000),
    "strided": lambda: (ROWS[::-3], 20_000),
    "NumPy strings": lambda: (np.array(_strings()), 20_000),
    "NumPy objects": lambda: (np.array(_strings(), object), 20_000),
    "list": lambda: (_strings(), 20_000),
    "generator": lambda: ((each for each in _strings()), 20_000),
    "set": lambda: (set(_strings()), 20_000),
    "dict": lambda: (dict.fromkeys(_strings()), 20_000),
    "range": lambda: (range(500), 500),
    "Arrow column": lambda: (pyarrow.chunked_array([_strings(), _strings()]), 20_000),
    "Arrow array": lambda: (pyarrow.array(ROWS), 20_000),
    "Polars column": lambda: (polars.Series(_strings()), 20_000),
    "one key": lambda: (["a"] * 1000, 1),
    "mixed": lambda: ([1, "1", b"1", -1, 2**63] * 10, 4),
}


def _classes_and_sources() -> Iterator[Any]:
    """Every class with every source; in a short run with every second one, in turn."""
    for (i, cls), (j, name) in itertools.product(enumerate(PLAIN), enumerate(SOURCES)):
        marks = [pytest.mark.long] if (i + j) % 2 else []
        yield pytest.param(cls, SOURCES[name], id=f"{cls.__name__}-{name}", marks=marks)


@pytest.mark.parametrize(("cls", "source"), list(_classes_and_sources()))
def test_from_keys_plans_for_the_different_keys(cls: Any, source: Callable[[], Any]) -> None:
    """At least as many as there are (three standard errors: these sources are fixed), hardly more."""
    keys, distinct = source()
    options = {"counter_bits": 16} if cls is CountingBloomFilter else {}
    made = cls.from_keys(keys, 1e-3, **options)
    assert distinct <= made.capacity <= 1.03 * distinct
    assert made.plan.fpr <= 1e-3
    keys, _ = source()
    assert made.contains_many(keys).all()
    again = cls(made.capacity, 1e-3, **options)
    again.add_many(source()[0])
    assert made == again


@pytest.mark.parametrize("threads", [1, 2])
def test_from_keys_of_the_filters_made_of_filters(threads: int) -> None:
    growing = GrowingFilter.from_keys(ROWS, 1e-3, threads=threads)
    assert growing.stages == 1
    assert growing.contains_many(ROWS).all()
    assert growing.stats().fpr <= 1.1e-3
    sharded = ShardedFilter.from_keys(iter(ROWS.tolist()), 1e-3, shards=3, threads=threads)
    assert 20_000 <= sharded.capacity <= 20_600
    assert sharded.shards == 3
    assert sharded.contains_many(ROWS).all()


def test_from_keys_of_a_few_keys_fills_one_stage_of_a_growing_filter() -> None:
    for keys in ([], ["a"], range(77)):
        made = GrowingFilter.from_keys(keys)
        assert (made.stages, made.approx_items()) == (1, len(keys))


def test_from_keys_reads_an_iterator_once_and_a_reader_of_batches() -> None:
    asked: list[int] = []

    def keys() -> Iterator[int]:
        for number in range(3000):
            asked.append(number)
            yield number % 1000

    made = BloomFilter.from_keys(keys(), 1e-3)
    assert asked == list(range(3000))
    assert 1000 <= made.capacity <= 1002
    column = pyarrow.chunked_array([ROWS])
    reader = pyarrow.RecordBatchReader.from_batches(
        pyarrow.schema([("key", column.type)]), pyarrow.table({"key": column}).to_batches()
    )
    assert BloomFilter.from_keys(reader) == BloomFilter.from_keys(
        ROWS
    )  # a stream of one column is that column


def test_from_keys_takes_digests_and_a_seed() -> None:
    digests = digest_many(ROWS, seed=5)
    made = BlockedBloomFilter.from_keys(digests, 1e-3, digests=True, seed=5)
    assert made == BlockedBloomFilter.from_keys(ROWS, 1e-3, seed=5)
    assert made == BlockedBloomFilter.from_keys(digests.tolist(), 1e-3, digests=True, seed=5)
    assert made.seed == 5


def test_from_keys_counts_nothing_if_the_capacity_is_known() -> None:
    made = BloomFilter.from_keys(iter(range(10)), capacity=5000)
    assert made.capacity == 5000
    assert made.contains_many(range(10)).all()
    assert GrowingFilter.from_keys(range(10), first=5000).capacity == 5000


def test_from_keys_of_nothing_is_an_empty_filter() -> None:
    for empty in ([], np.array([], int), iter(()), pyarrow.array([], pyarrow.string())):
        made = BloomFilter.from_keys(empty)
        assert made.capacity == 1
        assert not made


def test_from_keys_refuses_options_before_it_reads_a_key() -> None:
    keys = iter(range(10))
    with pytest.raises(TypeError, match=r"BloomFilter.from_keys\(\) got .*'error_rate'. Use fpr="):
        BloomFilter.from_keys(keys, error_rate=0.01)
    with pytest.raises(ValueError, match="fpr must be a number between 0 and 1"):
        BloomFilter.from_keys(keys, 2)
    with pytest.raises(ValueError, match="seed must be"):
        BloomFilter.from_keys(keys, seed=-1)
    with pytest.raises(ValueError, match="threads must be"):
        BloomFilter.from_keys(keys, threads=0)
    assert list(keys) == list(range(10))


@pytest.mark.parametrize("keys", ["abc", b"abc", 5, None, [None], [1.5], np.array([1.5]), np.array(3)])
def test_from_keys_refuses_what_add_many_refuses(keys: Any) -> None:
    with pytest.raises(TypeError) as found:
        BloomFilter.from_keys(keys)
    with pytest.raises(TypeError) as wanted:
        BloomFilter(10).add_many(keys)
    assert str(found.value).partition(" (")[0] == str(wanted.value).partition(" (")[0]


def test_from_keys_of_a_subclass_builds_one() -> None:
    class Named(BloomFilter):
        name = "mine"

    assert type(Named.from_keys([1, 2])) is Named


def test_distinct_keys_is_the_number_that_from_keys_plans_for() -> None:
    assert distinct_keys(ROWS) == BloomFilter.from_keys(ROWS).capacity


# --- union, intersection, subsets ---------------------------------------------------------------------------


@each_filter
def test_union_is_the_or_of_all(make: Callable[..., Any]) -> None:
    f, g, h = make(), make(), make()
    for number, each in enumerate((f, g, h)):
        each.add_many(range(100 * number, 100 * number + 100))
    before = f.to_bytes()
    assert f.union(g, h) == f | g | h
    assert f.union().to_bytes() == before == f.to_bytes()
    with pytest.raises(TypeError, match=r"union takes filters of the same class, \w+, not list: add keys by"):
        f.union([1, 2])


@each_bitwise
def test_the_intersection_holds_the_common_keys(cls: Any) -> None:
    f, g = cls(1000, 1e-9), cls(1000, 1e-9)
    f.add_many(range(600))
    g.add_many(range(400, 1000))
    both = f & g
    assert both.contains_many(range(400, 600)).all()
    assert not both.contains_many(range(400)).any()
    assert both == g & f == f.intersection(g)
    assert f.intersection() == f
    assert f.intersection(g, f) == both
    assert both <= f
    assert both <= g
    for same in (copy.copy(both), pickle.loads(pickle.dumps(both)), cls.from_bytes(both.to_bytes())):
        assert same == both
        same._check()
    h = f
    h &= g
    assert h is f
    assert f == both
    f &= f
    assert f == both


@each_bitwise
def test_the_bits_of_an_intersection_are_the_and_of_the_bits(cls: Any) -> None:
    f, g = cls(777, 1e-2, seed=9), cls(777, 1e-2, seed=9)
    f.add_many(range(600))
    g.add_many(range(400, 1000))
    wanted = np.frombuffer(f, np.uint8) & np.frombuffer(g, np.uint8)
    assert bytes(memoryview(f & g)) == wanted.tobytes()
    assert (f <= g) is False
    assert (f <= f | g) is True
    assert ((f | g) >= g) is True
    assert (g >= f | g) is False


@each_bitwise
def test_subset_and_superset(cls: Any) -> None:
    empty, some, all_ = cls(1000), cls(1000), cls(1000)
    some.add_many(range(100))
    all_.add_many(range(1000))
    assert empty <= some <= all_ <= all_
    assert all_ >= some >= empty
    assert some.issubset(all_)
    assert all_.issuperset(some)
    assert not all_.issubset(some)
    assert not some >= all_


@each_bitwise
def test_plans_that_differ_are_told_apart(cls: Any) -> None:
    f = cls(1000, 1e-2)
    calls: dict[str, Callable[[Any], Any]] = {
        "intersect": lambda g: f & g, "compare": lambda g: f <= g, "merge": lambda g: f | g,
    }  # fmt: skip
    for verb, call in calls.items():
        with pytest.raises(
            ValueError, match=rf"cannot {verb}: their plans differ \(capacity 1000 and 3000, fpr 0.0"
        ):
            call(cls(3000, 1e-2))
        with pytest.raises(ValueError, match=rf"cannot {verb}: their seeds differ\. Build both") as found:
            call(cls(1000, 1e-2, seed=987654321))
        assert "987654321" not in str(found.value)
    with pytest.raises(ValueError, match="cannot compare: their plans differ"):
        f.approx_intersection(cls(3000, 1e-2))


def test_a_difference_that_capacity_and_rate_do_not_show_is_named() -> None:
    f = BlockedBloomFilter(1000, bits_per_key=200, hashes=20)
    g = BlockedBloomFilter.from_plan(
        type(f.plan).of_core("blocked", (*f.plan.core[:2], 20), 1000, 0, "lanes")
    )
    assert f | g == f
    f, g = CountingBloomFilter(1000, 1e-3), CountingBloomFilter(1000, 1e-3, counter_bits=8)
    with pytest.raises(
        ValueError, match=r"capacity 1000 and 1000, fpr 0.001 and 0.001, nbytes .*counter_bits 4 and 8"
    ):
        f |= g


@each_bitwise
def test_a_read_only_filter_can_be_intersected_and_not_changed(cls: Any, tmp_path: Path) -> None:
    f = cls(100)
    f.update(range(50))
    f.save(tmp_path / "f")
    opened = cls.open(tmp_path / "f")
    assert opened & f == f == f & opened
    assert opened <= f <= opened
    assert opened
    assert opened.approx_intersection(f) == pytest.approx(f.approx_items())
    with pytest.raises(ValueError, match="read-only"):
        opened &= f


@each_bitwise
def test_threads_that_intersect_both_ways_neither_wait_for_ever_nor_miss_a_common_key(cls: Any) -> None:
    f, g = cls(50_000, 1e-3), cls(50_000, 1e-3)
    f.add_many(range(30_000))
    g.add_many(range(20_000, 50_000))
    common, missed = np.arange(20_000, 30_000), []

    def look(one: Any) -> None:
        missed.extend(np.flatnonzero(~one.contains_many(common)))

    def change(one: Any, other: Any) -> None:
        one &= other
        assert other.issuperset(one) or one.issuperset(other)

    with ThreadPoolExecutor(4) as pool:
        calls = [(look, f), (change, f, g), (change, g, f), (look, g)] * 20
        for done in [pool.submit(*call) for call in calls]:
            done.result(timeout=240)
    assert not missed
    assert f == g


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_kinds_say_why_they_have_no_intersection(name: str) -> None:
    why = {
        "BalancedBloomFilter": "depends on the keys that were added before it.*Use standard or blocked",
        "CountingBloomFilter": "the lesser of two counters.*approx_intersection",
        "GrowingFilter": "which stage a key is in depends.*approx_intersection",
        "ShardedFilter": r"each shard is a filter of its own.*from_shards.*approx_intersection",
    }[name]
    f, g = MAKERS[name](), MAKERS[name]()
    calls: list[Callable[[], object]] = [
        lambda: f & g, lambda: f <= g, lambda: f >= g, lambda: f.intersection(g), lambda: f.issubset(g),
        lambda: f.issuperset(g), lambda: f.__iand__(g), f.intersection,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(TypeError, match=rf"{name} has no &, <= or >=: .*{why}"):
            call()


def test_what_the_message_about_shards_proposes_works() -> None:
    f, g = (ShardedFilter(1000, 1e-6, shards=4) for _ in range(2))
    f.add_many(range(600))
    g.add_many(range(400, 1000))
    both = ShardedFilter.from_shards([a & b for a, b in zip(f.parts, g.parts, strict=True)], f.capacity)
    assert both.contains_many(range(1000)).sum() == 200


@each_filter
@pytest.mark.parametrize("other", [{1}, [1], None, 3, "a", BloomFilter(7, hashes=1).plan, HyperLogLog()])
def test_another_class_is_an_error_that_python_words(make: Callable[..., Any], other: Any) -> None:
    f = make()
    with pytest.raises(TypeError, match="unsupported operand"):
        f & other
    with pytest.raises(TypeError, match="unsupported operand"):
        f &= other
    with pytest.raises(TypeError, match="not supported between instances"):
        f <= other  # noqa: B015
    with pytest.raises(TypeError, match="not supported between instances"):
        f >= other  # noqa: B015
    for name in ("issubset", "issuperset", "approx_intersection"):
        with pytest.raises(
            TypeError, match=rf"other must be a {type(f).__name__}, not {type(other).__name__}"
        ):
            getattr(f, name)(other)


def test_a_filter_of_another_family_is_no_operand() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        BloomFilter(10) & BlockedBloomFilter(10)  # type: ignore[operator]
    with pytest.raises(
        TypeError, match="intersection takes filters of the same class, BloomFilter, not Blocked"
    ):
        BloomFilter(10).intersection(BlockedBloomFilter(10))  # type: ignore[arg-type]


# --- approx_intersection ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "BalancedBloomFilter"])
def test_the_overlap_is_estimated(name: str) -> None:
    f, g = MAKERS[name](), MAKERS[name]()
    assert f.approx_intersection(g) == 0.0
    f.add_many(range(600))
    assert f.approx_intersection(g) == 0.0
    g.add_many(range(400, 1000))
    before = f.to_bytes(), g.to_bytes()
    assert 150 < f.approx_intersection(g) < 250
    assert f.approx_intersection(f) == pytest.approx(600, rel=0.05)
    assert f.approx_intersection(g) == pytest.approx(g.approx_intersection(f))
    assert (f.to_bytes(), g.to_bytes()) == before
    with pytest.raises(ValueError, match="cannot compare: "):
        f.approx_intersection(MAKERS[name](seed=3))


@pytest.mark.parametrize("policy", ["single", "sequential", "multilevel", "fill", "two-choice"])
def test_the_overlap_of_balanced_filters_cannot_be_estimated(policy: str) -> None:
    f = BalancedBloomFilter(1000, bits_per_key=20, policy=policy)
    with pytest.raises(
        TypeError, match=r"the overlap of balanced filters cannot be estimated.*Use standard or"
    ):
        f.approx_intersection(f.copy())


def test_the_overlap_of_growing_filters_needs_one_stage_of_bits() -> None:
    f, g = (GrowingFilter(1e-3, first=100, policy="standard") for _ in range(2))
    f.add_many(range(50))
    g.add_many(range(25, 75))
    assert 20 < f.approx_intersection(g) < 30
    g.add_many(range(1000))
    with pytest.raises(TypeError, match=r"several stages cannot be estimated \(1 and 4 stages\).*first="):
        f.approx_intersection(g)
    with pytest.raises(TypeError, match="the overlap of balanced filters"):
        GrowingFilter().approx_intersection(GrowingFilter())
    with pytest.raises(ValueError, match="cannot compare: their parameters differ"):
        f.approx_intersection(GrowingFilter(1e-2, first=100, policy="standard"))


def test_shards_must_agree_before_they_are_compared() -> None:
    f = ShardedFilter(1000, shards=4)
    with pytest.raises(ValueError, match="cannot compare: 4 shards and 3"):
        f.approx_intersection(ShardedFilter(1000, shards=3))
    with pytest.raises(ValueError, match="cannot merge: their plans differ"):
        f |= ShardedFilter(9000, shards=4)


def test_a_filter_whose_bits_are_all_set_has_no_estimate() -> None:
    f, g = BloomFilter(2, 0.3), BloomFilter(2, 0.3)
    f.add_many(range(1000))
    with pytest.raises(ValueError, match="every bit of the two filters together is set"):
        f.approx_intersection(g)


# --- len and bool -------------------------------------------------------------------------------------------


@each_filter
def test_len_names_the_estimate_and_bool_is_false_when_empty(make: Callable[..., Any]) -> None:
    f = make()
    with pytest.raises(TypeError, match=r"has no len\(\): .*use approx_items\(\)"):
        len(f)
    assert not f
    f.add("a")
    assert f
    assert f.copy()
    assert type(f).from_bytes(f.to_bytes())
    f.clear()
    assert not f


@pytest.mark.parametrize("policy", ["single", "sequential", "multilevel", "fill", "two-choice"])
def test_every_policy_knows_when_it_is_empty(policy: str) -> None:
    f = BalancedBloomFilter(1000, bits_per_key=20, policy=policy)
    assert not f
    f.add_many(range(2000))
    assert f
    f.clear()
    assert not f


def test_a_counting_filter_is_empty_when_the_last_key_is_removed() -> None:
    f = CountingBloomFilter(100)
    f.add("a")
    f.remove("a")
    assert not f


# --- + ------------------------------------------------------------------------------------------------------


def test_plus_adds_the_counters_as_or_does() -> None:
    f, g = CountingBloomFilter(100), CountingBloomFilter(100)
    f.add_many(["a", "b"])
    g.add_many(["a", "c"])
    assert f + g == f | g
    assert (f + g).count("a") == 2
    both = f | g
    alias = f
    f += g
    assert f is alias
    assert f == both
    s, t = CountMinSketch(), CountMinSketch()
    s.add("a", 3)
    t.add("a", 4)
    assert (s + t).count("a") == 7
    assert s + t == s | t
    alias_of_sketch = s
    s += t
    assert s is alias_of_sketch
    assert s.count("a") == 7
    for one in (f, s):
        with pytest.raises(TypeError, match="unsupported operand"):
            one + 1  # type: ignore[operator]
        with pytest.raises(TypeError, match="unsupported operand"):
            one += 1  # type: ignore[operator, misc]
    with pytest.raises(ValueError, match="cannot merge: conservative"):
        CountMinSketch(conservative=True) + CountMinSketch(conservative=True)
    with pytest.raises(TypeError, match="unsupported operand"):
        BloomFilter(10) + BloomFilter(10)  # type: ignore[operator]


# --- arguments ----------------------------------------------------------------------------------------------


def test_capacity_and_rate_may_be_positional() -> None:
    for cls in PLAIN:
        assert cls(1000, 0.01).plan == cls(capacity=1000, fpr=0.01).plan
    assert GrowingFilter(0.01) == GrowingFilter(fpr=0.01)
    assert ShardedFilter(1000, 0.01, shards=2) == ShardedFilter(1000, shards=2, fpr=0.01)


MEANT = {
    "fpr": "error_rate fpp false_positive_rate p fp_prob probability",
    "capacity": "n expected_items max_elements est_elements expected_insertions",
    "hashes": "hash_count num_hashes k n_hashes",
    "bits_per_key": "m bits size num_bits",
    "seed": "salt random_state",
}


@pytest.mark.parametrize(
    ("ours", "theirs"), [(ours, each) for ours, names in MEANT.items() for each in names.split()]
)
@pytest.mark.parametrize("cls", [BloomFilter, BlockedBloomFilter, CountingBloomFilter])
def test_names_of_other_libraries_lead_to_ours(cls: Any, ours: str, theirs: str) -> None:
    text = rf"^{cls.__name__}\(\) got an unexpected keyword argument '{theirs}'\. Use {ours}=(, .*)?$"
    with pytest.raises(TypeError, match=text) as found:
        cls(1000, **{theirs: 3})
    assert found.value.__cause__ is None
    assert found.value.__suppress_context__
    with pytest.raises(TypeError, match=text.replace("^", "").replace(r"\(\)", r".from_keys\(\)", 1)):
        cls.from_keys([1], **{theirs: 3})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: BalancedBloomFilter(1000, error_rate=0.1), "BalancedBloomFilter.*Use fpr=$"),
        (lambda: BalancedBloomFilter(n=1000), "BalancedBloomFilter.*Use capacity=$"),
        (lambda: BalancedBloomFilter(1000, k=4), "Its arguments are capacity, fpr, bits_per_key, policy"),
        (lambda: GrowingFilter(0.1, n=10), "GrowingFilter.*Use first=$"),
        (lambda: GrowingFilter(capacity=10), "GrowingFilter.*Use first=$"),
        (lambda: GrowingFilter(error_rate=0.1), "GrowingFilter.*Use fpr=$"),
        (lambda: ShardedFilter(1000, fpp=0.1), "ShardedFilter.*Use fpr=$"),
        (lambda: CountMinSketch(width=1000), "CountMinSketch.*Use epsilon=, about e / width$"),
        (lambda: CountMinSketch(depth=4), r"Use delta=, about exp\(-depth\)$"),
        (lambda: CountMinSketch(confidence=0.9), "Use delta=, which is 1 - confidence$"),
        (lambda: CountMinSketch(error_rate=0.1), "Use epsilon=$"),
        (lambda: HyperLogLog(p=14), "HyperLogLog.*Use precision=$"),
        (lambda: HyperLogLog(error_rate=0.01), "HyperLogLog.*Use error=$"),
        (lambda: HeavyHitters(10, eps=0.1), "HeavyHitters.*Use epsilon=$"),
        (lambda: MultilevelTable(n=3), "MultilevelTable.*Use capacity=$"),
        (lambda: ChainedTable(size=3), "ChainedTable.*Use capacity=$"),
        (lambda: BloomFilter(1000, bits_per_keys=8), "Did you mean bits_per_key=\\?$"),
        (lambda: BloomFilter(1000, wheel=8), "Its arguments are capacity, fpr, bits_per_key, hashes, seed$"),
        (lambda: BloomFilter(1000, capacity=3), r"BloomFilter\(\): multiple values for argument 'capacity'"),
        (lambda: BloomFilter(), r"BloomFilter\(\): missing a required argument: 'capacity'"),
        (
            lambda: BloomFilter(1000, 0.1, 8),
            r"too many positional arguments. The positional .* capacity, fpr",
        ),
        (lambda: BalancedBloomFilter(1000, capacity=3), "BalancedBloomFilter.*multiple values for argument"),
        (lambda: GrowingFilter(0.1, 3), "GrowingFilter.*too many positional arguments"),
    ],
)
def test_wrong_arguments_are_explained(make: Callable[[], object], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()


def test_every_hint_leads_to_an_argument_that_some_constructor_has() -> None:
    import inspect

    makers: list[Any] = [*PLAIN, GrowingFilter, ShardedFilter, CountMinSketch, HyperLogLog, MultilevelTable]
    known = {name for cls in makers for name in inspect.signature(cls).parameters} | {"initial_capacity"}
    assert {ours for names in HINTS.values() for ours in names} <= known


def test_an_error_inside_a_constructor_stays_what_it_is() -> None:
    for make in (lambda: BloomFilter("many"), lambda: BalancedBloomFilter(None), lambda: GrowingFilter("x")):
        with pytest.raises(evenbins.ArgumentTypeError, match="must be"):
            make()  # type: ignore[no-untyped-call]


def test_the_message_about_a_policy_names_no_other_function() -> None:
    with pytest.raises(
        ValueError, match=r"policy must be one of .*; got 'fil' \(str\)\. Leave policy out"
    ) as found:
        BalancedBloomFilter(1000, policy="fil")
    assert "plan_" not in str(found.value)


# --- messages about keys ------------------------------------------------------------------------------------


@each_filter
def test_one_string_instead_of_many_keys(make: Callable[..., Any]) -> None:
    f = make()
    for name in ("add_many", "update", "add_new_many"):
        with pytest.raises(TypeError, match=r"not one str: use add\(key\), or put it into a list"):
            getattr(f, name)("abc")
    with pytest.raises(TypeError, match=r"not one bytes: use `key in f`, or put it into a list"):
        f.contains_many(b"abc")


def test_one_string_instead_of_many_keys_to_count_or_remove() -> None:
    f = CountingBloomFilter(10)
    with pytest.raises(TypeError, match=r"use count\(key\)"):
        f.count_many("abc")
    with pytest.raises(TypeError, match=r"use remove\(key\)"):
        f.remove_many("abc")
    with pytest.raises(TypeError, match=r"use count\(key\)"):
        CountMinSketch().count_many("abc")
    with pytest.raises(TypeError, match=r"use digest\(key\)"):
        digest_many("abc")


LINES = ["apple\n", "pear\n", "plum\n"]
WITH_NEWLINES: dict[str, Callable[[], object]] = {
    "list": lambda: LINES,
    "tuple": lambda: tuple(LINES),
    "bytes": lambda: [line.encode() for line in LINES],
    "text file": lambda: io.StringIO("".join(LINES)),
    "binary file": lambda: io.BytesIO("".join(LINES).encode() * 100),
    "generator": lambda: (line for line in LINES),
    "set": lambda: set(LINES),
    "many lines": lambda: LINES * 1000,
}


@pytest.mark.parametrize("source", WITH_NEWLINES.values(), ids=WITH_NEWLINES)
@pytest.mark.parametrize("call", ["add_many", "update", "contains_many", "add_new_many"])
def test_keys_that_end_with_a_newline_are_warned_of_once(call: str, source: Callable[[], Any]) -> None:
    """The warning points at the caller's line, whichever method was called; the keys are as they were."""
    f = BloomFilter(100)
    with pytest.warns(NewlineWarning, match=r"the first \d keys all end with a newline") as found:
        getattr(f, call)(source())
    assert [Path(each.filename).name for each in found] == ["test_filter_verbs.py"]
    if call != "contains_many":
        assert "apple\n" in f
        assert "apple" not in f


@pytest.mark.parametrize(
    "keys",
    [
        ["apple\n", "pear"],
        ["apple\n"],
        ["pear", "apple\n", "plum\n"],
        ["a\n"] * 7 + ["b"],
        [],
        [1, 2, 3],
        ["a", "b\n"],
        [b"\n", 1],
    ],
)
def test_other_keys_are_not(keys: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for source in (keys, tuple(keys), iter(keys), (key for key in keys)):
            f = BloomFilter(100)
            f.add_many(source)
            assert all(key in f for key in keys)


def test_a_warning_that_is_an_error_leaves_the_filter_usable() -> None:
    f = BloomFilter(100)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NewlineWarning)
        for source in (LINES, iter(LINES)):
            with pytest.raises(NewlineWarning):
                f.add_many(source)
    f._check()
    f.add("apple")
    assert "apple" in f


def test_sketches_and_tables_warn_too() -> None:
    for made in (CountMinSketch(), HyperLogLog()):
        with pytest.warns(NewlineWarning):
            made.add_many(LINES)


def test_an_iterator_that_fails_among_its_first_keys_has_added_those_before() -> None:
    def keys() -> Iterator[str]:
        yield "a\n"
        yield "b\n"
        raise RuntimeError("gone")

    f = BloomFilter(100)
    with pytest.raises(RuntimeError, match="gone") as found:
        f.add_many(keys())
    assert "item 2 of the keys; the keys before it have been added" in found.value.__notes__[0]
    assert "a\n" in f
    assert "b\n" in f
