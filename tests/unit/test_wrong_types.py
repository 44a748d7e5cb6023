"""Every public call with arguments of wrong types: whatever is raised says so in our own words.

Each public function and method is called with junk in each of its places, the others right or junk too. A
message that comes from the binding library ("incompatible function arguments", "std::bad_cast") tells nobody
what to pass instead. What a call answers or raises is not asked here, and junk may be right by accident.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenbins as eb
from evenbins.tables import summaries

JUNK: list[Any] = [
    None, object(), 1.5, float("nan"), 1j, "x", b"x", "\ud800", -1, 2**70, -(2**70), True, [], [None], {},
    {1: 2}, (), np.float64(1), np.array(1), np.zeros((2, 2)), np.array([[1, 2]]).view(np.matrix),
    np.array(["a"]), np.array([1], object),
    np.ma.masked_array([1, 2], [True, False]), memoryview(b"abc")[::2], range(3), int, len, slice(1, 2),
]  # fmt: skip
RAW = ("incompatible function arguments", "nanobind", "bad_cast", "bad cast", "std::", "_core")

STRUCTURES: dict[str, Callable[[], Any]] = {
    "BloomFilter": lambda: eb.BloomFilter(10),
    "BlockedBloomFilter": lambda: eb.BlockedBloomFilter(10),
    "BalancedBloomFilter": lambda: eb.BalancedBloomFilter(10),
    "CountingBloomFilter": lambda: eb.CountingBloomFilter(10),
    "GrowingFilter": lambda: eb.GrowingFilter(0.01),
    "ShardedFilter": lambda: eb.ShardedFilter(10, shards=2),
    "CountMinSketch": lambda: eb.CountMinSketch(0.01),
    "HeavyHitters": lambda: eb.HeavyHitters(3),
    "HyperLogLog": lambda: eb.HyperLogLog(4),
    "Deduplicator": lambda: eb.Deduplicator(capacity=10),
    "Deduplicator, exact": lambda: eb.Deduplicator(exact=True),
    "MultilevelTable": lambda: eb.MultilevelTable(10),
    "ChainedTable": lambda: eb.ChainedTable(10),
    "HashRing": lambda: eb.HashRing(["a", "b"]),
    "InterpolationSummary": lambda: summaries.InterpolationSummary(10),
    "SingleFilterSummary": lambda: summaries.SingleFilterSummary(10),
    "MultipleBloomSummary": lambda: summaries.MultipleBloomSummary(10),
}
DUNDERS = """
    __init__ __contains__ __getitem__ __setitem__ __delitem__ __ior__ __or__ __eq__ __lt__ __len__ __iter__
    __iand__ __and__ __le__ __ge__ __add__ __iadd__
    __copy__ __reduce_ex__ __setstate__ __bool__ __hash__ __format__ __getattr__
""".split()  # noqa: SIM905


def parameters_of(call: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that a caller can pass; of `*keys`, one."""
    if hasattr(call, "__nb_signature__"):
        names = re.findall(r"[(,] (\w+):", call.__nb_signature__[0][0].replace("(", "( "))
        return [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    try:
        found = list(inspect.signature(call).parameters.values())
    except ValueError:  # a slot of the type
        return [inspect.Parameter("key", inspect.Parameter.POSITIONAL_ONLY)]
    return [
        each.replace(kind=inspect.Parameter.POSITIONAL_ONLY, default=inspect.Parameter.empty)
        if each.kind is inspect.Parameter.VAR_POSITIONAL
        else each
        for each in found
        if each.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def attempts(call: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield arguments: junk in one place, and in the required ones before it keys that are right."""
    parameters = parameters_of(call)
    required = [each for each in parameters if each.default is inspect.Parameter.empty]
    for junk in JUNK:
        for right in (1, [1, 2], junk):
            values = {each.name: right for each in required}
            for target in parameters or []:
                chosen = values | {target.name: junk}
                positional = [
                    chosen.pop(each.name)
                    for each in parameters
                    if each.kind is not inspect.Parameter.KEYWORD_ONLY
                    and each.name in chosen
                    and each in required
                ]
                yield tuple(positional), chosen


def raw_messages(name: str, call: Callable[..., Any]) -> set[str]:
    """Call it with every junk; return the messages that are not ours."""
    found = set()
    for positional, named in attempts(call):
        try:
            call(*positional, **named)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if any(each in text for each in RAW) or isinstance(error, SystemError):
                found.add(f"{name}{positional!r:.80} {named!r:.80} -> {text:.160}")
    return found


def public_calls(cls: type, make: Callable[[], Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every public method, bound to a fresh object."""
    for name in sorted(dir(cls)):
        if name.startswith("_") and name not in DUNDERS:
            continue
        attribute = inspect.getattr_static(cls, name)
        if isinstance(attribute, property) or not callable(getattr(cls, name)):
            continue
        if name == "__init__":
            if cls is not eb.BalancedBloomFilter:  # its plans take long, and are Python from end to end
                yield name, cls
        else:
            yield name, getattr(make(), name)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some junk is the name of a file


@pytest.mark.parametrize("name", STRUCTURES)
def test_no_method_raises_a_message_of_the_binding_library(name: str) -> None:
    make = STRUCTURES[name]
    found: set[str] = set()
    for method, call in public_calls(type(make()), make):
        found |= raw_messages(f"{name}.{method}", call)
    assert not found, "\n".join(sorted(found))


FUNCTIONS = {
    "digest": eb.digest,
    "digest_many": eb.digest_many,
    "load": eb.load,
    "open": eb.open,
    "dedup": eb.dedup,
    "column": eb.column,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_raises_a_message_of_the_binding_library(name: str) -> None:
    assert raw_messages(name, FUNCTIONS[name]) == set()


def test_no_method_of_a_table_in_pages_raises_a_message_of_the_binding_library() -> None:
    table = eb.PagedTable.create("table.evb", 10, durable=False)
    found: set[str] = set()
    for method, call in public_calls(eb.PagedTable, lambda: table):
        if method not in ("create", "close"):  # plans take long
            found |= raw_messages(f"PagedTable.{method}", call)
    assert not found, "\n".join(sorted(found))


def test_a_number_is_no_path() -> None:
    """Python's `open` takes a number for a descriptor, which would be read and closed."""
    read_end, write_end = os.pipe()
    os.close(write_end)
    try:
        for cls in (
            eb.BloomFilter,
            eb.GrowingFilter,
            eb.ShardedFilter,
            eb.MultilevelTable,
            eb.PagedTable,
            eb,
        ):
            for call in ("load", "open"):
                with pytest.raises((TypeError, AttributeError)):
                    getattr(cls, call)(read_end)
        os.fstat(read_end)  # still open
    finally:
        os.close(read_end)
