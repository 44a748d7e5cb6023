"""Each filter against its readable twin: after any operations, identical bits; and no false negative, ever.

The machine drives one filter through everything that changes, copies or stores it. Beside it go the
twin (reference), which says what the bits must be, and a plain set of the keys that went in,
which says what must be found. Filters are tiny, so that blocks are shared and fill up.
"""

from __future__ import annotations

import copy
import operator
import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sizes import size

import evenbins
import reference
from evenbins import digest_many
from reference import format as file_format

if TYPE_CHECKING:
    from kinds import Kind

INT64 = st.integers(-(2**63), 2**63 - 1)
INTEGERS = st.one_of(st.integers(-3, 20), INT64, st.integers(2**63, 2**64 - 1))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=20)
KEYS = st.one_of(INTEGERS, TEXT, BYTES)


def canonical(key: Any) -> Any:
    """One object for each key: "a" and b"a" are one."""
    return key.encode() if isinstance(key, str) else key


def no_nul_at_the_end(keys: list[Any]) -> list[Any]:
    """What NumPy's `S` and `U` arrays keep of the keys."""
    return [key.rstrip("\0" if isinstance(key, str) else b"\0") for key in keys]


# For each sort of keys, the forms in which many of them can be passed.
FORMS: dict[str, tuple[Any, list[Any]]] = {
    "any": (KEYS, [list, tuple, iter, lambda keys: np.array([None, *keys], object)[1:]]),
    "int64": (
        INT64,
        [
            lambda keys: np.array(keys, np.int64),
            lambda keys: np.array(keys, ">i8"),
            lambda keys: np.array([*keys, 0] * 2, np.int64)[: len(keys)],
            lambda keys: np.repeat(np.array(keys, np.int64), 2)[::2],
            lambda keys: pa.array(keys, pa.int64()),
            lambda keys: pa.array(keys, pa.int64()).dictionary_encode(),
        ],
    ),
    "uint64": (
        st.integers(0, 2**64 - 1),
        [
            lambda keys: np.array(keys, np.uint64),
            lambda keys: pa.array([*keys, 1], pa.uint64()).slice(0, len(keys)),
        ],
    ),
    "int8": (
        st.integers(-128, 127),
        [lambda keys: np.array(keys, np.int8), lambda keys: pa.array(keys, pa.int8())],
    ),
    "bool": (st.booleans(), [lambda keys: np.array(keys, bool), lambda keys: pa.array(keys, pa.bool_())]),
    "text": (
        TEXT,
        [
            lambda keys: pa.array(keys, pa.string()),
            lambda keys: pa.array(["first", *keys], pa.large_string()).slice(1),
            lambda keys: pa.array(keys, pa.string_view()),
            lambda keys: pa.array(keys, pa.string()).dictionary_encode(),
            lambda keys: pa.chunked_array([keys[:3], keys[3:]], pa.string()),
            lambda keys: np.array(keys, np.dtypes.StringDType()),
        ],
    ),
    "bytes": (
        BYTES,
        [lambda keys: pa.array(keys, pa.binary()), lambda keys: pa.array(keys, pa.binary_view())],
    ),
    "numpy text": (TEXT.map(lambda key: no_nul_at_the_end([key])[0]), [lambda keys: np.array(keys, "U20")]),
    "numpy bytes": (BYTES.map(lambda key: no_nul_at_the_end([key])[0]), [lambda keys: np.array(keys, "S20")]),
}


@st.composite
def many_keys(draw: st.DrawFn) -> tuple[list[Any], Any]:
    """Keys, and a function that puts them into one of the forms of a bulk call."""
    of_sort, forms = FORMS[draw(st.sampled_from(sorted(FORMS)))]
    return draw(st.lists(of_sort, max_size=12)), draw(st.sampled_from(forms))


class FilterMachine(RuleBasedStateMachine):
    """A filter, its twin and a set."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        super().__init__()
        self.kind = kind
        self.path = folder / "filter"
        self.filter = self.fresh()
        self.twin = kind.twin(self.filter)
        self.model: set[Any] = set()

    def fresh(self) -> Any:
        return self.kind(12)

    def expect(self, keys: list[Any]) -> None:
        """Tell the twin and the set that these keys went in."""
        for key in keys:
            self.twin.add(key)
            self.model.add(canonical(key))

    @rule(key=KEYS)
    def add(self, key: Any) -> None:
        self.filter.add(key)
        self.expect([key])
        assert key in self.filter

    @rule(many=many_keys(), threads=st.sampled_from([1, 2]))
    def add_many(self, many: tuple[list[Any], Any], threads: int) -> None:
        keys, form = many
        self.filter.add_many(form(keys), threads=threads)
        self.expect(keys)

    @rule(keys=st.lists(KEYS, max_size=12))
    def add_digests(self, keys: list[Any]) -> None:
        self.filter.add_many(digest_many(keys, self.filter.seed), digests=True)
        self.expect(keys)

    @rule(keys=st.lists(KEYS, max_size=12), others=st.lists(KEYS, max_size=3))
    def update(self, keys: list[Any], others: list[Any]) -> None:
        self.filter.update(keys, (key for key in others))
        self.expect([*keys, *others])

    @rule(keys=st.lists(KEYS, max_size=6), bad=st.sampled_from([None, 1.5, 2**64, "\ud800"]))
    def add_a_bad_key(self, keys: list[Any], bad: Any) -> None:
        with pytest.raises((TypeError, ValueError), match=rf"^keys\[{len(keys)}\]"):
            self.filter.add_many([*keys, bad, "later"])
        self.expect(keys)

    @rule(many=many_keys(), threads=st.sampled_from([1, 2]))
    def contains(self, many: tuple[list[Any], Any], threads: int) -> None:
        keys, form = many
        expected = [key in self.twin for key in keys]
        assert [key in self.filter for key in keys] == expected
        assert self.filter.contains_many(form(keys), threads=threads).tolist() == expected
        digests = digest_many(form(keys), self.filter.seed)
        assert self.filter.contains_many(digests, digests=True).tolist() == expected

    @rule(
        keys=st.lists(KEYS, max_size=8),
        merge=st.sampled_from([operator.or_, operator.ior, lambda f, g: g | f]),
    )
    def merge(self, keys: list[Any], merge: Any) -> None:
        other, twin = self.fresh(), self.kind.twin(self.filter)
        for key in keys:
            other.add(key)
            twin.add(key)
        self.filter = merge(self.filter, other)
        self.twin.merge(twin)
        self.model.update(map(canonical, keys))

    @rule(duplicate=st.sampled_from([lambda f: f.copy(), copy.copy, copy.deepcopy]))
    def copy(self, duplicate: Any) -> None:
        old, self.filter = self.filter, duplicate(self.filter)
        assert old == self.filter
        old.add("only in the old one")
        old.clear()

    @rule(protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
    def pickle(self, protocol: int) -> None:
        self.filter = pickle.loads(pickle.dumps(self.filter, protocol=protocol))

    @rule()
    def to_bytes_and_back(self) -> None:
        data = self.filter.to_bytes()
        assert file_format.unpack(data).payload == self.twin.payload()
        self.filter = self.kind.cls.from_bytes(data)
        assert self.filter.to_bytes() == data

    @rule(load=st.booleans(), any_kind=st.booleans())
    def save_and_back(self, load: bool, any_kind: bool) -> None:
        """Loaded, or opened, asked and copied; the old file is replaced."""
        self.filter.save(self.path)
        where = evenbins if any_kind else self.kind.cls
        if load:
            self.filter = where.load(self.path)
            return
        opened = where.open(self.path, verify=True)
        with pytest.raises(ValueError, match="read-only"):
            opened.add("key")
        assert all(key in opened for key in self.model)
        self.filter = opened.copy()

    @rule()
    def clear(self) -> None:
        self.filter.clear()
        self.twin = self.kind.twin(self.filter)
        self.model.clear()

    @invariant()
    def the_bits_are_those_of_the_twin(self) -> None:
        assert bytes(memoryview(self.filter)) == self.twin.payload()
        assert self.filter._set_bits() == self.twin.set_bits()
        self.filter._check()

    @invariant()
    def nothing_is_lost(self) -> None:
        assert all(key in self.filter for key in self.model)
        assert self.filter.contains_many(list(self.model)).all()

    @invariant()
    def it_is_still_the_same_filter(self) -> None:
        fresh = self.fresh()
        assert self.filter.plan == fresh.plan
        assert self.filter.capacity == 12
        assert (self.filter == fresh) == (not self.twin.set_bits())
        assert self.filter.approx_items() >= 0


def test_a_filter_and_its_twin_stay_the_same(kind: Kind) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_state_machine_as_test(
            lambda: FilterMachine(kind, Path(folder)),
            settings=settings(max_examples=size(5, 40), stateful_step_count=25),
        )


# --- properties that need no history -------------------------------------------------------------------


@settings(max_examples=size(60, 150))
@given(key=KEYS, seed=st.integers(0, 2**64 - 1))
def test_digests_are_those_of_the_twin(key: Any, seed: int) -> None:
    assert evenbins.digest(key, seed) == reference.digest(key, seed)


@settings(max_examples=size(50, 100))
@given(many=many_keys(), seed=st.integers(0, 2**64 - 1))
def test_digests_of_many_are_those_of_each(many: tuple[list[Any], Any], seed: int) -> None:
    keys, form = many
    assert digest_many(form(keys), seed).tolist() == [reference.digest(key, seed) for key in keys]


@settings(max_examples=size(50, 100))
@given(
    blocks=st.integers(1, 9), block_bits=st.sampled_from([256, 512]), hashes=st.integers(1, 32),
    seed=st.integers(0, 2**64 - 1), keys=st.lists(KEYS, max_size=30),
)  # fmt: skip
def test_a_blocked_filter_of_any_shape(
    blocks: int, block_bits: int, hashes: int, seed: int, keys: list[Any]
) -> None:
    f = evenbins.BlockedBloomFilter(
        blocks, bits_per_key=block_bits, block_bits=block_bits, hashes=hashes, seed=seed
    )
    twin = reference.ReferenceBlocked(blocks, block_bits, hashes, seed)
    f.add_many(keys)
    for key in keys:
        twin.add(key)
    assert bytes(f) == twin.payload()


@settings(max_examples=size(50, 100))
@given(
    bits=st.integers(1, 4096), hashes=st.integers(1, 64),
    seed=st.integers(0, 2**64 - 1), keys=st.lists(KEYS, max_size=30),
)  # fmt: skip
def test_a_standard_filter_of_any_shape(bits: int, hashes: int, seed: int, keys: list[Any]) -> None:
    f = evenbins.BloomFilter(1, bits_per_key=bits, hashes=hashes, seed=seed)
    twin = reference.ReferenceBloom(bits, hashes, seed)
    f.add_many(keys)
    for key in keys:
        twin.add(key)
    assert bytes(f) == twin.payload()
