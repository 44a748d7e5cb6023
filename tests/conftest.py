"""What all suites share: the list of filters, the kernels, keys of every sort.

    KINDS    every filter of the library, in several shapes. A new kind is added here, once; the shared
             suite (unit/test_filters.py), threads, kernels and state machines then run over it.
    kind     a test that takes it runs for each of KINDS
    kernel   a test that takes it runs under each kernel of this machine

No test of this project is skipped: a missing package must show.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings

from evenbins import BlockedBloomFilter, BloomFilter, _core, reference
from evenbins.reference.bloom import ReferenceFilter

# Machines are busy: an example that takes long is no failure. The same examples every time.
settings.register_profile("evenbins", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("evenbins")

SECRET = 0xC0FFEE_5EED_C0FFEE  # a seed that no other number in a test looks like


@dataclass(frozen=True)
class Kind:
    """A filter class with arguments, and its twin in `evenbins.reference`."""

    name: str
    cls: Any
    twin_class: Any
    size: str  # the twin's attribute that holds the first number of the core
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, capacity: int = 1000, **changes: Any) -> Any:
        return self.cls(capacity, **{**self.arguments, **changes})

    def filled(self, keys: Any, capacity: int = 1000) -> Any:
        """Make a filter that holds the keys, each put in by a single `add`."""
        made = self(capacity)
        for key in keys:
            made.add(key)
        return made

    def twin(self, made: Any) -> ReferenceFilter:
        """Make the empty twin of a filter."""
        twin: ReferenceFilter = self.twin_class(*made.plan.core, seed=made.seed)
        return twin

    def positions(self, made: Any) -> Callable[[int], set[int]]:
        """Give the twin's positions of a digest, without the twin's memory: for filters of many GiB."""
        size, *rest = made.plan.core
        twin = self.twin_class(1, *rest, seed=made.seed)
        setattr(twin, self.size, size)
        return lambda digest: set(twin.positions(digest))


def _standard(name: str, **arguments: Any) -> Kind:
    return Kind(name, BloomFilter, reference.ReferenceBloom, "bits", arguments)


def _blocked(name: str, **arguments: Any) -> Kind:
    return Kind(name, BlockedBloomFilter, reference.ReferenceBlocked, "blocks", arguments)


KINDS = [
    _standard("standard", fpr=1e-3),
    _standard("standard-1-hash", bits_per_key=9.3, hashes=1),
    _standard("standard-33-hashes", bits_per_key=50, hashes=33),
    _standard("standard-seeded", fpr=1e-2, seed=SECRET),
    _blocked("blocked-512", fpr=1e-3),
    _blocked("blocked-512-1-hash", bits_per_key=12, hashes=1),
    _blocked("blocked-512-24-hashes", bits_per_key=40, hashes=24),
    _blocked("blocked-512-seeded", fpr=1e-2, seed=SECRET),
    _blocked("blocked-256", fpr=1e-3, block_bits=256),
    _blocked("blocked-256-17-hashes", bits_per_key=31, hashes=17, block_bits=256),
]
FIRST_OF_CLASS = list({each.cls: each for each in reversed(KINDS)}.values())


@pytest.fixture(params=KINDS, ids=lambda each: each.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each filter of the library, in each shape."""
    found: Kind = request.param
    return found


@pytest.fixture(params=FIRST_OF_CLASS, ids=lambda each: each.cls.__name__)
def class_kind(request: pytest.FixtureRequest) -> Kind:
    """Each class of filters once, for what does not depend on the shape."""
    found: Kind = request.param
    return found


@pytest.fixture
def all_kinds() -> list[Kind]:
    """The whole list, for tests that compare kinds with one another."""
    return KINDS


@pytest.fixture(params=_core.kernels())
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Put each kernel of this machine in force, for filters made in the test."""
    before = _core.kernel()
    _core.use_kernel(request.param)
    yield request.param
    _core.use_kernel(before)


@pytest.fixture
def mixed_keys() -> list[object]:
    """Keys of every sort, all different; more than one internal batch of them."""
    texts = ["", "a", "é", "ключ", "東京", "𝄞 clef", "x" * 300, *(f"key-{i}" for i in range(800))]
    raw = [b"\0", b"b\0", b"\xff\xfe", bytes(range(256)), *(i.to_bytes(5, "big") for i in range(800))]
    numbers = [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), *range(10**6, 10**6 + 800)]
    return [key for three in zip(texts, raw, numbers, strict=False) for key in three]


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a piece of Python in a fresh process; one that hangs is killed and fails the test."""

    def run(code: str, *arguments: str, timeout: float = 60, **environment: str) -> Any:
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, **environment},
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    return run
