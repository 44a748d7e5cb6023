"""Caches of `theory` and `design` serve all threads: nothing in them changes, whatever is asked first."""

from __future__ import annotations

import ast
import gc
import importlib
import pkgutil
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import KINDS
from sizes import ROUNDS

import evenbins
from evenbins import design, filters, rings, sketches, tables, theory
from evenbins.filters import (
    plan_balanced,
    plan_blocked,
    plan_counting,
    plan_of_core,
    plan_sharded,
    plan_standard,
)
from evenbins.study import counter_summary
from evenbins.study.hashing import plan_scheme
from evenbins.study.levels import plan_levels
from evenbins.study.theory import hashing_law
from evenbins.tables import summaries
from evenbins.theory import levels, two_choices
from evenbins.theory.caching import cached, frozen

THREADS = 16

RATE = 1e-4 if ROUNDS > 1 else 1e-2  # plans of lower rates take longer

PLANNERS: dict[str, Callable[[], Any]] = {
    "plan_standard": lambda: plan_standard(30_000, fpr=1e-4),
    "plan_standard, double": lambda: plan_scheme("double", 30_000, bits_per_key=12),
    "plan_blocked": lambda: plan_blocked(30_000, fpr=1e-4),
    **{
        f"plan_balanced {policy}": lambda policy=policy: plan_balanced(30_000, policy=policy, fpr=RATE)
        for policy in ("single", "sequential", "multilevel", "fill", "two-choice")
    },
    "plan_balanced two-choice, few bits": lambda: plan_balanced(20_000, policy="two-choice", bits_per_key=11),
    "plan_levels": lambda: plan_levels(10_000, policy="fill", blocks=[400], hashes=8),
    "plan_of_core": lambda: plan_of_core("blocked", (1000, 512, 8), capacity=20_000, seed=0, hashing="lanes"),
    "plan_counting": lambda: plan_counting(30_000, fpr=1e-3),
    "plan_countmin": lambda: sketches.plan_countmin(epsilon=1e-4, delta=1e-3),
    "plan_of_sketch_core": lambda: sketches.countmin.plan_of_sketch_core(
        sketches.plan_countmin(epsilon=1e-4, delta=1e-3).core, seed=0
    ),
    "plan_multilevel": lambda: tables.plan_multilevel(30_000, scheme="least-loaded"),
    "plan_multilevel, standard": lambda: tables.plan_multilevel(
        30_000, scheme="standard", levels=2, slots=2, space=1.6
    ),
    "plan_of_table_core": lambda: tables.multilevel.plan_of_table_core(
        tables.plan_multilevel(30_000).core, keys=30_000, seed=0
    ),
    "plan_chains": lambda: tables.plan_chains(30_000),
    "plan_of_chain_core": lambda: tables.chained.plan_of_chain_core(
        tables.plan_chains(30_000).core, keys=30_000, seed=0
    ),
    "plan_paged": lambda: tables.plan_paged(30_000),
    "plan_of_paged_core": lambda: tables.paged.plan_of_paged_core(
        tables.plan_paged(30_000).core, keys=30_000, seed=0
    ),
    "plan_ring": lambda: rings.plan_ring(5, 500, epsilon=0.2),
    "plan_sharded": lambda: plan_sharded(300_000, shards=8, fpr=1e-3),
    "plan_summary": lambda: summaries.plan_summary(3000),
    "plan_counters": lambda: counter_summary.plan_counters(3000),
    "hashing_law.law": lambda: hashing_law.law("triple", 28_755, 20, 1000),
    "load_of_mean": lambda: [
        two_choices.load_of_mean(512, k, mean) for k in (7, 10) for mean in (80.3, 200.1)
    ],
    "design.filter": lambda: design.filter(30_000, fpr=1e-4, policies=("standard", "blocked", "two-choice")),
    "design.ring": lambda: design.ring(4, 200, overload=2.0),
    "design.summary": lambda: design.summary(2000),
    "design.table": lambda: design.table(30_000, schemes=("least-loaded",), slots=(2,)),
}


def filled(make: Callable[[], Any]) -> Any:
    made = make()
    made.add_many(range(500))
    return made


def structures() -> dict[str, Any]:
    """One of every kind that has stats()."""
    made: dict[str, Any] = {
        **{kind.name: filled(kind) for kind in KINDS},
        "growing": filled(lambda: evenbins.GrowingFilter(1e-3, first=100)),
        "sharded": filled(lambda: evenbins.ShardedFilter(1000, shards=3, policy="two-choice")),
        "sketch": filled(lambda: evenbins.CountMinSketch(epsilon=1e-3)),
        "multilevel table": evenbins.MultilevelTable(1000),
        "chained table": evenbins.ChainedTable(1000),
        "ring": evenbins.HashRing(["a", "b", "c"], limit=300),
    }
    for name in ("multilevel table", "chained table"):
        made[name].insert_many(range(500), range(500))
    made["ring"].assign_many(range(500))
    return made


def caches() -> Iterator[Any]:
    """Every cache of a function in theory and design."""
    for package in (theory, design, filters, tables, sketches, rings):
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            yield from (each for each in vars(module).values() if hasattr(each, "cache_clear"))


def clear_caches() -> None:
    for cache in caches():
        cache.cache_clear()


@contextmanager
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def exact(result: Any) -> str:
    """Show a result with all digits."""
    return repr(result.to_dict() if hasattr(result, "to_dict") else result)


def test_all_planners_and_stats_from_16_threads_give_the_answers_of_one() -> None:
    """From empty caches; every task is run by two of the threads, each in an order of its own.

    Answers are compared to the last digit: they may not depend on what was asked before either.
    """
    tasks = PLANNERS | {f"stats of {name}": made.stats for name, made in structures().items()}
    clear_caches()
    alone = {name: exact(task()) for name, task in reversed(tasks.items())}
    clear_caches()
    names = list(tasks)
    answers: list[dict[str, str]] = [{} for _ in range(THREADS)]
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def work(number: int) -> None:
        mine = [name for i, name in enumerate(names) if (i + number) % 8 == 0]
        turn = number // 8 * len(mine) // 2
        start.wait()
        try:
            for name in [*mine[turn:], *mine[:turn]]:
                answers[number][name] = exact(tasks[name]())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(THREADS)]
    with many_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert not errors
    assert set().union(*answers) == set(names)
    for found in answers:
        assert found == {name: alone[name] for name in found}
    assert {name: exact(task()) for name, task in tasks.items() if "two-choice" in name} == {
        name: alone[name] for name in names if "two-choice" in name
    }


def test_two_choice_plans_of_two_threads_at_once_are_those_of_one() -> None:
    """The defect: both extended the same equation, and every later plan of the process was wrong."""
    loads = [k / 7 for k in range(1, 400, 3)]
    two_choices.pair.cache_clear()  # type: ignore[attr-defined]
    alone = [two_choices.pair(512, 9).positive(load) for load in loads]
    for _ in range(3):
        two_choices.pair.cache_clear()  # type: ignore[attr-defined]
        found: list[list[float]] = []

        def work(found: list[list[float]] = found) -> None:
            equation = two_choices.pair(512, 9)
            found.append([equation.positive(load) for load in loads])

        threads = [threading.Thread(target=work) for _ in range(4)]
        with many_switches():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        assert found == [alone] * 4
    backwards = two_choices._Pair(512, 9)
    assert [backwards.positive(load) for load in reversed(loads)] == alone[::-1]


def within(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the arrays that a kept result leads to."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield value
        return
    ours = type(value).__module__.startswith("evenbins.")
    if ours or isinstance(value, tuple | list | dict) or type(value).__name__ == "_lru_list_elem":
        for each in gc.get_referents(value):
            if not isinstance(each, type | types.ModuleType | types.FunctionType):
                yield from within(each, seen)


def test_no_array_in_a_cache_can_be_written_to() -> None:
    for task in PLANNERS.values():
        task()
    checked = 0
    for cache in caches():
        seen: set[int] = set()
        for held in gc.get_referents(cache):
            for array in within(held, seen) if not callable(held) else ():
                assert not array.flags.writeable, (cache, array.shape)
                checked += 1
    assert checked > 100


def test_results_that_callers_get_are_theirs_or_cannot_be_changed() -> None:
    law = hashing_law.law("double", 28_755, 20, 1000)
    law.terms["same"] = 1.0
    assert hashing_law.law("double", 28_755, 20, 1000).terms["same"] < 1e-5
    plan = plan_blocked(1000, fpr=1e-3)
    core = plan_balanced(1000, policy="fill", fpr=1e-3).core
    with pytest.raises(ValueError, match="read-only"):
        levels.predict(core, 1000).loads[0][0] = 0.5
    assert plan == plan_blocked(1000, fpr=1e-3)


def test_cached_makes_arrays_read_only_wherever_they_are() -> None:
    @cached(2)
    def compute(n: int) -> Any:
        return np.zeros(n), ({"a": np.ones(n)}, [np.ones(1)])

    first, (named, listed) = compute(3)
    assert compute(3)[0] is first
    for array in (first, named["a"], listed[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    assert frozen("text") == "text"


def test_theory_and_design_keep_results_by_the_one_cache_only() -> None:
    """No other cache, and no change of `warnings`, whose filters all threads share."""
    for package in (theory, design, filters, tables, sketches, rings):
        for path in Path(package.__path__[0]).glob("*.py"):
            if path.name == "caching.py":
                continue
            names = {
                node.attr if isinstance(node, ast.Attribute) else node.id
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Attribute | ast.Name)
            }
            assert not names & {"lru_cache", "cache", "catch_warnings", "simplefilter"}, path.name


def test_design_leaves_the_filters_of_warnings_alone() -> None:
    before = list(warnings.filters)
    found = design.filter(20_000, fpr=1e-6, policies=("standard", "blocked"), reads=1)
    assert [each.plan.policy for each in found] == ["blocked"]  # one hash is not enough for that rate
    assert list(warnings.filters) == before
