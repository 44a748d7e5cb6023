"""The balanced filter's twin by itself: five policies, the list, spilling, budgets, merges, bytes, files.

Filters here are tiny, so that every block fills up and every list. Two tests show the power of the others:
a rule that is almost right, and loses keys.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from sizes import size

from reference import ReferenceBalanced, ReferenceBlocked, digest, mulhi, splitmix, xxh3_64
from reference.balanced import Policy, State, phi
from reference.blocked import ODD
from reference.format import CORE, Parsed, pack, payload_bytes, unpack

ALWAYS = 2**32
HALF = 2**31
LEAST, RANDOM = 0, 1


def core(
    policy: int,
    *tables: tuple[int, int],
    block_bits: int = 256,
    hashes: int = 4,
    choices: int | None = None,
    coin: int = 0,
    limit: int = 0,
    spill: int = LEAST,
    budget: int = 0,
) -> tuple[int, ...]:
    """Write an integer core; tables are pairs of blocks and threshold."""
    if choices is None:
        choices = {Policy.SEQUENTIAL: 3, Policy.TWO_CHOICE: 2}.get(Policy(policy), len(tables))
    flat = (word for table in tables for word in table)
    return (policy, block_bits, hashes, choices, coin, limit, spill, budget, *flat)


CORES = {
    "single": core(1, (5, 3), coin=HALF, limit=300),
    "single, no list": core(1, (5, 3), coin=HALF),
    "single, threshold 0": core(1, (5, 0), coin=HALF, limit=9),
    "single, threshold 0, coin 0": core(1, (5, 0), limit=9),
    "single, 512": core(1, (4, 5), block_bits=512, hashes=20, coin=ALWAYS, limit=7, spill=RANDOM),
    "single, widest counter": core(1, (3, 65534), limit=3),
    "sequential": core(2, (7, 2), coin=HALF, limit=300),
    "sequential, small list": core(2, (7, 2), coin=HALF, limit=10, spill=RANDOM),
    "sequential, no list": core(2, (7, 2), coin=HALF, choices=8),
    "sequential, one block": core(2, (1, 2), coin=HALF, limit=5),
    "sequential, budget": core(2, (9, 3), coin=HALF, limit=300, budget=25),
    "sequential, budget, small list": core(2, (9, 3), coin=HALF, limit=4, budget=25),
    "sequential, budget, random spill": core(2, (9, 3), coin=HALF, limit=4, budget=9, spill=RANDOM),
    "sequential, budget, 512": core(2, (9, 3), block_bits=512, hashes=3, limit=1, budget=1),
    "multilevel": core(3, (8, 4), (4, 3), (1, 2), coin=HALF, limit=300),
    "multilevel, small list": core(3, (8, 4), (4, 3), (1, 2), coin=HALF, limit=8),
    "multilevel, no list": core(3, (8, 4), (4, 3), (1, 2), coin=HALF),
    "multilevel, random spill": core(3, (8, 4), (4, 3), (1, 2), coin=HALF, spill=RANDOM),
    "multilevel, coin 0": core(3, (8, 4), (4, 3), limit=8),
    "multilevel, coin 1": core(3, (8, 4), (4, 3), coin=ALWAYS, limit=8),
    "multilevel, thresholds 0": core(3, *[(3, 0)] * 8, coin=HALF, limit=8),
    "multilevel, 512": core(3, (5, 4), (2, 3), block_bits=512, hashes=32, coin=HALF, limit=8),
    "fill": core(4, (8, 60), (3, 90), (1, 257)),
    "fill, one table": core(4, (5, 257)),
    "fill, 512": core(4, (5, 100), (2, 513), block_bits=512, hashes=17),
    "fill, extremes": core(4, (5, 1), (3, 250), (1, 257), hashes=32),
    "two-choice": core(5, (9, 0)),
    "two-choice, one block": core(5, (1, 0), hashes=2),
    "two-choice, 512": core(5, (5, 0), block_bits=512, hashes=24),
}
BUDGETS = {name: words for name, words in CORES.items() if words[7]}
COUNTED = {name: words for name, words in CORES.items() if words[0] <= 3}


def each(cores: dict[str, tuple[int, ...]]) -> Any:
    return pytest.mark.parametrize("words", cores.values(), ids=cores.keys())


def digests(count: int, seed: int = 1) -> list[int]:
    """Random digests, with the edges of the range among them."""
    rng = random.Random(seed)
    drawn = [0, 1, 2**63, 2**64 - 1, *(rng.getrandbits(64) for _ in range(count - 4))]
    rng.shuffle(drawn)
    return drawn


def filled(words: Sequence[int], keys: Sequence[int]) -> ReferenceBalanced:
    f = ReferenceBalanced(words, seed=5)
    for key in keys:
        f.add_digest(key)
    return f


def lost(f: ReferenceBalanced, keys: Sequence[int]) -> list[int]:
    return [key for key in keys if not f.contains_digest(key)]


def block_words(words: Sequence[int], digest: int) -> list[int]:
    """The key's words, from the definition; those behind the levels are for the list and the random spill."""
    return [digest, *(splitmix(digest, j) for j in range(1, words[3] + 2))]


def keys_at(words: Sequence[int], *blocks: int | None, coins: str = "", seed: int = 1) -> Iterator[int]:
    """Yield random digests with the wanted block at each level (None: any) and the wanted coins ("+-?")."""
    rng = random.Random(seed)
    sizes = words[8::2] if len(words) > 10 else words[8:9] * words[3]
    while True:
        digest = rng.getrandbits(64)
        drawn = block_words(words, digest)
        at = [mulhi(word, size) for word, size in zip(drawn, sizes, strict=False)]
        fall = ["+" if splitmix(word, 0) >> 32 < words[4] else "-" for word in drawn]
        if all(b in (None, a) for a, b in zip(at, blocks, strict=False)) and all(
            c in ("?", f) for c, f in zip(coins, fall, strict=False)
        ):
            yield digest


# What must always hold.


@each(CORES)
def test_no_key_is_ever_lost(words: tuple[int, ...]) -> None:
    """After each add: all keys so far are found, bits and loads have only grown."""
    f = ReferenceBalanced(words)
    keys = digests(120)
    before: list[tuple[Counter[int], Counter[int]]] = [(Counter(), Counter()) for _ in f.tables]
    for count, key in enumerate(keys, start=1):
        f.add_digest(key)
        assert lost(f, keys[:count]) == []
        for table, (bits, loads) in zip(f.tables, before, strict=True):
            assert all(bits[i] & ~table.bits[i] == 0 and loads[i] <= table.loads[i] for i in bits)
            assert max(table.loads.values(), default=0) <= table.threshold + 1
            assert max(table.bits.values(), default=0) < 1 << table.span
        before = [(table.bits.copy(), table.loads.copy()) for table in f.tables]


@each(CORES)
@pytest.mark.parametrize("seed", range(size(2, 5)))
def test_no_key_is_lost_in_any_sequence_of_adds_and_merges(words: tuple[int, ...], seed: int) -> None:
    rng = random.Random(seed)
    f, known = ReferenceBalanced(words), set[int]()
    for _ in range(12):
        keys = digests(rng.randrange(4, 40), seed=rng.randrange(20))
        if rng.random() < 0.3:
            other = filled(words, keys)
            other.seed = f.seed
            f.merge(other)
        else:
            for key in keys:
                f.add_digest(key)
        known.update(keys)
        assert lost(f, sorted(known)) == []


@each(CORES)
def test_a_key_that_is_present_changes_nothing(words: tuple[int, ...]) -> None:
    """Added keys, and keys that are present by chance."""
    f = filled(words, digests(100))
    before = f.payload()
    probes = [*digests(100), *digests(3000, seed=2)]
    for key in probes:
        if f.contains_digest(key):
            f.add_digest(key)
    assert f.payload() == before


@each(CORES)
def test_repeated_keys_change_nothing(words: tuple[int, ...]) -> None:
    keys = digests(80)
    twice = [key for i in range(80) for key in (keys[i], keys[i // 2], keys[i])]
    assert filled(words, twice).payload() == filled(words, keys).payload()


@each(CORES)
def test_an_empty_filter_contains_nothing(words: tuple[int, ...]) -> None:
    f = ReferenceBalanced(words)
    assert f.set_bits() == 0
    assert not any(f.payload())
    assert len(lost(f, digests(50))) == 50


@each(COUNTED)
def test_keys_are_where_the_state_says(words: tuple[int, ...]) -> None:
    """Loads that never saturated count the keys in the blocks; the others are on the list."""
    f = filled(words, keys := digests(100))
    state = f.state()
    assert state.keys <= 100
    assert state.listed == len(set(f.list)) <= words[5]
    assert set(f.list) <= set(keys)
    assert state.spent <= state.keys * words[3]
    assert state.flags & 1 == (0 in f.list)
    loads = sum(sum(table.loads.values()) for table in f.tables)
    assert loads <= state.keys - state.listed
    if state.spilled == 0:
        assert loads == state.keys - state.listed


@each(CORES)
def test_everything_overflows_here(words: tuple[int, ...]) -> None:
    """The cores above are no idle ones: lists fill up, keys spill, budgets end, where they can."""
    f = filled(words, digests(300))
    policy, limit, budget = words[0], words[5], words[7]
    if policy <= 3 and words[9] < 1000:
        assert f.state().listed == limit or limit == 300
        assert (f.state().spilled > 0) == (limit < 300)
        assert (f.state().flags & 2 > 0) == (budget > 0)
    if policy in (3, 4):
        assert all(table.bits for table in f.tables)


def test_keys_and_digests_are_the_same() -> None:
    words = CORES["multilevel"]
    by_key, by_digest = ReferenceBalanced(words, seed=9), ReferenceBalanced(words, seed=9)
    for key in ["", "a", b"b", 0, -1, 2**64 - 1]:
        by_key.add(key)
        by_digest.add_digest(digest(key, 9))
        assert key in by_key
        assert by_key.contains(key)
    assert by_key.payload() == by_digest.payload() != ReferenceBalanced(words).payload()


# The power of these tests: rules that are almost right.


class StopsWhateverTheCoin(ReferenceBalanced):
    """WRONG: a query ends at load = threshold, as if the key must have been accepted there."""

    def contains_digest(self, digest: int) -> bool:
        for choice in self.path(digest):
            if choice.present():
                return True
            if choice.table.loads[choice.block] <= choice.table.threshold:
                return False
        return digest in self.list


@pytest.mark.parametrize("name", ["single", "sequential", "multilevel"])
def test_the_wrong_stop_rule_loses_keys(name: str) -> None:
    """A key whose coin refused it at load = threshold has gone on; the wrong query does not follow it.

    Same bits (adds do not use the rule), 60 blocks and 200 keys: the wrong rule loses more than one key in a
    hundred, the right one none. So the tests above would see it.
    """
    sizes = {"single": [(60, 3)], "sequential": [(60, 3)], "multilevel": [(40, 3), (20, 3)]}
    words = core(Policy[name.upper()], *sizes[name], hashes=8, coin=2**30, limit=200)
    right, wrong = ReferenceBalanced(words), StopsWhateverTheCoin(words)
    keys = digests(200)
    for key in keys:
        right.add_digest(key)
        wrong.add_digest(key)
    assert right.payload() == wrong.payload()
    assert lost(right, keys) == []
    assert len(lost(wrong, keys)) > 2


class SpillsUnread(ReferenceBalanced):
    """WRONG: when the budget is spent and the list full, keys are spilled though a block accepts them."""

    def place(self, digest: int) -> int:
        if not self.exhausted:
            return super().place(digest)
        self.spilled += 1
        self.spill_choice(digest).insert()
        return self.shape.choices


@pytest.mark.parametrize("spill", [LEAST, RANDOM])
@pytest.mark.parametrize("merged", [False, True], ids=["added", "merged"])
def test_the_wrong_spill_rule_loses_keys(spill: int, merged: bool) -> None:
    """The budget is spent while blocks have room; then the list is full, by adds or by a merge.

    A query for such a key ends at the block with room, asks the list, and misses the block behind.
    """
    words = core(2, (60, 4), hashes=8, coin=HALF, limit=40, budget=40, spill=spill)
    keys = digests(160)
    losses = []
    for cls in (ReferenceBalanced, SpillsUnread):
        f, other = cls(words), cls(words)
        for i, key in enumerate(keys):
            (other if merged and i % 2 else f).add_digest(key)
        if merged:
            assert other.state().listed == f.state().listed == 40
            f.merge(other)
        assert f.state().flags & 2
        losses.append(len(lost(f, keys)))
    assert losses[0] == 0
    assert losses[1] > 3


# Worked by hand.


def test_figure_1_of_the_paper() -> None:
    """Tables of 4, 2 and 1 blocks, h = 3. y: 10 is full, so it goes to 01, whose load 2 becomes 3.

    x finds its three blocks full and is on the list. (The paper's counters have two bits, ours three: they
    count to h + 1.)
    """
    words = core(3, (4, 3), (2, 3), (1, 3), hashes=8, limit=10)
    f = ReferenceBalanced(words)
    first = keys_at(words, 2, 0)
    for _ in range(3):
        f.add_digest(next(first))
    assert [f.load(0, i) for i in range(4)] == [0, 0, 3, 0]
    second = keys_at(words, 2, 1)
    for _ in range(2):
        f.add_digest(next(second))
    assert [f.load(1, i) for i in range(2)] == [0, 2]
    assert f.state() == State(keys=5, listed=0, spent=3 + 2 * 2, flags=0, spilled=0)

    y = next(second)
    before = f.tables[1].bits[1]
    assert not f.contains_digest(y)
    f.add_digest(y)
    assert f.contains_digest(y)
    assert f.load(0, 2) == 3
    assert f.load(1, 1) == 3
    assert f.tables[1].bits[1] != before
    assert not f.tables[2].bits
    assert f.state() == State(keys=6, listed=0, spent=9, flags=0, spilled=0)

    third = keys_at(words, 2, 1, 0, seed=2)
    for _ in range(3):
        f.add_digest(next(third))
    assert f.load(2, 0) == 3
    x = next(third)
    bits = f.set_bits()
    f.add_digest(x)
    assert list(f.list) == [x]
    assert f.set_bits() == bits
    assert f.state() == State(keys=10, listed=1, spent=9 + 3 * 3 + 3, flags=0, spilled=0)


@each(CORES)
def test_each_level_has_a_word_of_its_own(words: tuple[int, ...]) -> None:
    """Blocks and coins, from the definition; a key's bits are those it has with its word as a digest."""
    f = ReferenceBalanced(words)
    for key in digests(20):
        path = list(f.path(key))
        drawn = block_words(words, key)[: words[3]]
        assert len(path) == len(drawn)
        for choice, table, word in zip(path, f.levels, drawn, strict=True):
            assert choice.table is table
            assert choice.block == word * table.blocks >> 64
            assert choice.coin == (splitmix(word, 0) >> 32 < words[4])
            alone = ReferenceBalanced(core(4, (1, 257))) if table.span == 256 else None
            if alone and words[2] == 4:
                alone.add_digest(word)
                assert choice.bits == alone.tables[0].bits[0]


def test_the_coin_decides_at_the_threshold_alone() -> None:
    """Below it every key is accepted, above it none; heads and tails both at it."""
    words = core(1, (1, 2), hashes=8, coin=HALF, limit=10)
    f = ReferenceBalanced(words)
    heads, tails = keys_at(words, 0, coins="+"), keys_at(words, 0, coins="-", seed=2)
    f.add_digest(next(tails))
    f.add_digest(next(tails))
    assert f.load(0, 0) == 2
    assert not f.contains_digest(next(heads))
    f.add_digest(next(tails))
    assert (f.load(0, 0), f.state().listed) == (2, 1)
    f.add_digest(next(heads))
    assert (f.load(0, 0), f.state().listed) == (3, 1)
    f.add_digest(next(heads))
    assert (f.load(0, 0), f.state().listed) == (3, 2)


@pytest.mark.parametrize(("coin", "most"), [(0, 2), (1, 2), (2**32 - 1, 3), (ALWAYS, 3)])
def test_a_coin_of_0_never_accepts_and_of_1_always(coin: int, most: int) -> None:
    f = filled(core(1, (3, 2), coin=coin, limit=100), digests(60))
    assert set(f.tables[0].loads.values()) == {most}


def test_the_coin_is_a_fair_one_and_its_own_at_each_level() -> None:
    """4000 keys, coin 1/4: expected 1000, standard deviation 27; both levels at once 250, 15. 1e-6: 4.9."""
    f = ReferenceBalanced(core(3, (10, 2), (10, 2), coin=2**30))
    tosses = [tuple(choice.coin for choice in f.path(key)) for key in digests(4000)]
    assert abs(sum(first for first, _ in tosses) - 1000) < 4.9 * 27.4
    assert abs(sum(second for _, second in tosses) - 1000) < 4.9 * 27.4
    assert abs(tosses.count((True, True)) - 250) < 4.9 * 15.4


def test_least_spills_into_the_fewest_bits_and_the_earlier_if_equal() -> None:
    words = core(2, (3, 0), hashes=6, choices=2)  # coin 0, threshold 0: every key is spilled
    f = ReferenceBalanced(words)
    f.add_digest(next(keys_at(words, 2, 1)))  # equal, both empty: block 2
    assert [f.load(0, i) for i in range(3)] == [0, 0, 1]
    f.add_digest(next(keys_at(words, 2, 0)))
    assert [f.load(0, i) for i in range(3)] == [1, 0, 1]
    f.add_digest(next(keys_at(words, 1, 0)))
    assert [f.load(0, i) for i in range(3)] == [1, 1, 1]
    f.add_digest(next(keys_at(words, 1, 1, seed=2)))
    assert [f.load(0, i) for i in range(3)] == [1, 1, 1]  # threshold + 1: stays
    assert f.state() == State(keys=4, listed=0, spent=8, flags=0, spilled=4)


def test_random_spills_where_the_last_word_says() -> None:
    words = core(3, (1, 0), (1, 0), (1, 0), hashes=8, spill=RANDOM)
    for key in digests(30):
        f = filled(words, [key])
        level = mulhi(block_words(words, key)[4], 3)
        assert [f.load(j, 0) for j in range(3)] == [int(j == level) for j in range(3)]
    assert len({mulhi(block_words(words, key)[4], 3) for key in digests(30)}) == 3


def test_fill_counts_set_bits() -> None:
    words = core(4, (1, 10), (1, 257), hashes=4)
    f = ReferenceBalanced(words)
    for key in digests(40):
        before, known = f.tables[0].bits[0], f.contains_digest(key)
        (first, second) = f.path(key)
        f.add_digest(key)
        accepted = before.bit_count() < 10 and not known
        assert f.tables[0].bits[0] == (before | first.bits if accepted else before)
        assert known or accepted or second.present()
    assert 10 <= f.tables[0].bits[0].bit_count() <= 13
    assert f.state() == State(0, 0, 0, 0, 0)
    assert f.load(0, 0) == 0


def test_two_choice_does_the_least_harm() -> None:
    """Block by block: into the empty one; the first of two empty ones; a copy of the rule for the rest."""
    words = core(5, (6, 0), hashes=5)
    f = ReferenceBalanced(words)
    first = next(keys_at(words, 4, 2))
    f.add_digest(first)
    assert f.set_bits() == f.tables[0].bits[4].bit_count() > 0
    f.add_digest(next(keys_at(words, 4, 1)))
    assert f.tables[0].bits[1]
    for key in digests(60):
        a, b = f.path(key)
        x = [f.tables[0].bits[c.block] for c in (a, b)]
        y = [bits | c.bits for bits, c in zip(x, (a, b), strict=True)]
        harm = [
            phi(new.bit_count(), 256, 5) - phi(old.bit_count(), 256, 5) for old, new in zip(x, y, strict=True)
        ]
        f.add_digest(key)
        if x[0] == y[0] or x[1] == y[1]:
            assert [f.tables[0].bits[c.block] for c in (a, b)] == x
        elif harm[0] <= harm[1]:
            assert f.tables[0].bits[a.block] == y[0]
        else:
            assert (f.tables[0].bits[a.block], f.tables[0].bits[b.block]) in [(x[0], y[1]), (y[1], y[1])]


def test_phi_is_the_rate_of_a_block() -> None:
    assert phi(0, 256, 3) == 0
    assert phi(256, 256, 32) == 2**62
    assert phi(128, 256, 3) == 2**59
    assert phi(1, 512, 8) == 0  # 2**-72: rounded down on the way
    assert [phi(x, 512, 1) for x in (1, 511)] == [2**53, 511 * 2**53]


# Budgets.


def test_a_budget_ends_the_reading() -> None:
    words = core(2, (50, 3), hashes=8, coin=HALF, limit=20, budget=30)
    f = ReferenceBalanced(words)
    keys = iter(digests(200))
    while f.state().spent < 30:
        f.add_digest(next(keys))
        assert f.state().flags & 2 == 0
    before = f.state()
    bits = f.set_bits()
    for count in range(1, 21 - before.listed):
        f.add_digest(next(keys))
        assert f.state()[:3] == (before.keys + count, before.listed + count, before.spent)
        assert f.state().flags & 2
    assert f.set_bits() == bits
    f.add_digest(key := next(keys))  # the list is full: this one is read after all
    assert f.state()[:3] == (before.keys + count + 1, 20, before.spent + 1)
    assert f.state().spilled == 0
    assert next(f.path(key)).present()  # its first block had room
    assert f.set_bits() > bits


def test_a_key_that_came_unread_is_known_when_the_list_is_full() -> None:
    """Its first block accepts it; but it is on the list, so nothing changes."""
    words = core(2, (50, 3), hashes=8, coin=HALF, limit=5, budget=3)
    f = filled(words, keys := digests(40))
    assert f.state().listed == 5
    listed = [key for key in f.list if next(f.path(key)).accepts()]
    assert listed
    before = f.payload()
    for key in keys:
        f.add_digest(key)
    assert f.payload() == before


@each(BUDGETS)
def test_a_known_key_spends_nothing(words: tuple[int, ...]) -> None:
    f = filled(words, keys := digests(20))
    before = f.state()
    for key in keys * 3:
        f.add_digest(key)
    assert f.state() == before


# The list.


def test_digest_0_is_listed_without_a_slot() -> None:
    words = core(1, (1, 0), limit=2)
    f = filled(words, [0])
    assert f.state() == State(keys=1, listed=1, spent=1, flags=1, spilled=0)
    assert f.contains_digest(0)
    assert f.payload() == bytes(64 + 8 * 16) + struct.pack("<8Q", 1, 1, 1, 1, 0, 0, 0, 0)
    f.add_digest(7)
    assert f.state().listed == 2
    f.add_digest(8)
    assert f.state() == State(keys=3, listed=2, spent=3, flags=1, spilled=1)


def test_the_list_probes_from_the_start_of_a_line_upwards_and_round_the_end() -> None:
    """Three lines of eight slots: nine keys of the last line, then one of the first."""
    words = core(1, (1, 0), hashes=1, limit=10)
    slots = (10 + 3 + 15) // 8 * 8
    assert slots == 24
    rng = random.Random(1)
    by_line: list[list[int]] = [[], [], []]
    while min(map(len, by_line)) < 9:
        key = rng.getrandbits(64)
        by_line[splitmix(key, 1) * 3 >> 64].append(key)
    keys = [*by_line[2][:9], by_line[0][0]]
    f = filled(words, keys)
    expected = [0] * slots
    expected[16:], expected[:2] = keys[:8], keys[8:]
    assert list(struct.unpack(f"<{slots}Q", f.payload()[64 : 64 + 8 * slots])) == expected
    assert lost(f, keys) == []


@pytest.mark.parametrize("limit", [1, 2, 5, 6, 7, 8, 9, 100])
def test_a_list_takes_its_limit_and_no_more(limit: int) -> None:
    words = core(1, (1, 0), hashes=20, limit=limit)
    f = filled(words, keys := digests(limit))  # four edges of the range at least
    f.add_digest(1234567)
    f.add_digest(7654321)
    assert f.state().listed == limit
    assert f.state().spilled == len(keys) + 2 - limit
    slots = struct.unpack_from(f"<{f.list.slots}Q", f.payload(), 64)
    assert sorted(filter(None, slots)) == sorted(filter(None, f.list))
    assert f.list.slots % 8 == 0
    assert limit + 8 <= f.list.slots <= limit * 4 // 3 + 16


# Merges.


def pair(words: Sequence[int], seed: int = 3) -> tuple[list[int], list[int]]:
    """Keys for two filters, some of them for both."""
    keys = digests(150, seed)
    return keys[:90], keys[60:]


@each(CORES)
def test_a_merge_loses_nothing_and_commutes(words: tuple[int, ...]) -> None:
    left, right = pair(words)
    forth, back = filled(words, left), filled(words, right)
    untouched = back.payload()
    forth.merge(back)
    assert back.payload() == untouched
    back.merge(filled(words, left))
    assert forth.payload() == back.payload()
    assert lost(forth, [*left, *right]) == []


@each(CORES)
def test_a_merge_adds_and_saturates(words: tuple[int, ...]) -> None:
    left, right = pair(words)
    a, b, both = filled(words, left), filled(words, right), filled(words, left)
    both.merge(b)
    excess = both.state().spilled - a.state().spilled - b.state().spilled
    for x, y, z in zip(a.tables, b.tables, both.tables, strict=True):
        for i in range(x.blocks):
            expected = min(x.loads[i] + y.loads[i], x.threshold + 1) if x.counted else 0
            assert z.loads[i] == expected or (excess and z.loads[i] > expected)
            assert z.bits[i] & (x.bits[i] | y.bits[i]) == x.bits[i] | y.bits[i]
            assert excess or z.bits[i] == x.bits[i] | y.bits[i]
    assert both.state().keys == a.state().keys + b.state().keys
    assert both.state().spent == a.state().spent + b.state().spent
    assert both.state().flags == a.state().flags | b.state().flags


@each(CORES)
def test_merging_an_empty_filter_in_keeps_all_but_the_order_of_the_list(words: tuple[int, ...]) -> None:
    f = filled(words, digests(80))
    merged = filled(words, digests(80))
    merged.merge(ReferenceBalanced(words, seed=5))
    assert merged.state() == f.state()
    assert sorted(merged.list) == sorted(f.list)
    assert [table.payload() for table in merged.tables] == [table.payload() for table in f.tables]


@each(CORES)
def test_a_merge_with_itself(words: tuple[int, ...]) -> None:
    f, g = filled(words, digests(80)), filled(words, digests(80))
    f.merge(g)
    g.merge(g)
    assert f.payload() == g.payload()


def test_the_excess_of_two_lists_is_spilled_in_the_order_of_the_digests() -> None:
    words = core(3, (1, 0), (1, 0), hashes=16, limit=3)
    a, b = filled(words, [50, 0, 20]), filled(words, [20, 40, 30])
    assert (a.state().listed, b.state().listed) == (3, 3)
    a.merge(b)
    assert sorted(a.list) == [0, 20, 30]
    assert a.state() == State(keys=6, listed=3, spent=12, flags=1, spilled=2)
    fresh = ReferenceBalanced(words)
    fresh.spill_choice(40).insert()
    fresh.spill_choice(50).insert()
    assert [t.payload() for t in a.tables] == [t.payload() for t in fresh.tables]
    ordered = ReferenceBalanced(words).list
    for key in (0, 20, 30):
        ordered.add(key)
    assert a.list.payload() == ordered.payload()


def test_the_excess_that_is_present_anyway_is_dropped() -> None:
    """Digest 50 lies on one list and, spilled, in a block of the other filter."""
    words = core(1, (1, 0), hashes=16, limit=2)
    a, b = filled(words, [50, 20]), filled(words, [10, 30, 50])
    assert (a.state().spilled, b.state().spilled) == (0, 1)
    a.merge(b)
    assert sorted(a.list) == [10, 20]
    assert a.state() == State(keys=5, listed=2, spent=5, flags=0, spilled=1 + 1)  # 30 alone
    assert lost(a, [10, 20, 30, 50]) == []


def test_a_merge_takes_over_the_end_of_the_budget() -> None:
    """Keys that came unread stay found, though their blocks have room in the merged filter too."""
    words = core(2, (50, 3), hashes=8, limit=100, budget=10)
    a, b = filled(words, digests(4)), filled(words, digests(60, seed=2))
    assert a.state().flags & 2 == 0
    assert b.state().flags & 2
    a.merge(b)
    assert a.state().flags & 2
    assert lost(a, [*digests(4), *digests(60, seed=2)]) == []


@pytest.mark.parametrize(
    "other",
    [
        ReferenceBalanced(core(1, (5, 3), limit=9)), ReferenceBalanced(core(1, (5, 3), limit=8), seed=1),
        ReferenceBlocked(5, 256, 4),
    ],
    ids=["core", "seed", "kind"],
)  # fmt: skip
def test_a_merge_of_different_filters_is_refused(other: Any) -> None:
    with pytest.raises(ValueError, match=r"^other must have"):
        ReferenceBalanced(core(1, (5, 3), limit=8)).merge(other)


# Bytes.


@pytest.mark.parametrize(
    ("words", "size"),
    [
        (core(1, (1, 3)), 64 + 64),
        (core(1, (3, 3)), 128 + 64),
        (core(1, (3, 3), block_bits=512), 192 + 64),
        (core(1, (3, 3), limit=1), 128 + 16 * 8 + 64),
        (core(2, (2, 3), limit=9, budget=5), 64 + 24 * 8 + 64),
        (core(3, (3, 3), (1, 3), limit=1000), 128 + 64 + 1344 * 8 + 64),
        (core(4, (3, 3), (1, 257)), 128 + 64),
        (core(5, (5, 0)), 192),
        (core(5, (5, 0), block_bits=512), 320),
    ],
)
def test_the_payload_has_the_length_of_the_specification(words: tuple[int, ...], size: int) -> None:
    assert payload_bytes(3, words) == len(ReferenceBalanced(words).payload()) == size


def test_a_huge_filter_takes_memory_for_its_keys_alone() -> None:
    words = core(3, (2**46, 3), (2**45, 3), limit=2**40)
    f = filled(words, keys := digests(50))
    assert lost(f, keys) == []
    assert payload_bytes(3, words) == (2**46 + 2**45) * 32 + ((2**40 + 2**40 // 3 + 15) // 8 * 8 + 8) * 8


@pytest.mark.parametrize("block_bits", [256, 512])
@pytest.mark.parametrize("hashes", [1, 2, 16, 17, 32])
@pytest.mark.parametrize("threshold", [0, 1, 2, 3, 6, 7, 65534])
def test_a_key_in_an_empty_filter_bit_by_bit(block_bits: int, hashes: int, threshold: int) -> None:
    """The definition once more, on real 32- and 64-bit words; the load is in the top bits of the block."""
    words = core(1, (4, threshold), block_bits=block_bits, hashes=hashes, coin=ALWAYS)
    counter_bits = int(np.ceil(np.log2(threshold + 2)))
    for key in digests(20):
        f = filled(words, [key])
        with np.errstate(over="ignore"):
            r = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
            r ^= r >> np.uint64(32)
            s = r * np.uint64(0xD1342543DE82EF95)
            s ^= s >> np.uint64(32)
            halves = np.array([r, s]).view(np.uint32).reshape(2, 2)
            products = np.concatenate([np.tile(h, 8) * np.array(ODD, np.uint32) for h in halves])[:hashes]
        positions = (products >> 9) * np.uint32(block_bits - counter_bits) >> np.uint32(23)
        block = np.zeros(block_bits, np.uint8)
        block[positions] = 1
        block[block_bits - counter_bits] = 1  # a load of 1
        expected = np.zeros((4, block_bits // 8), np.uint8)
        expected[(key * 4) >> 64] = np.packbits(block, bitorder="little")
        assert f.payload()[: 4 * block_bits // 8] == expected.tobytes()
        assert f.load(0, (key * 4) >> 64) == 1
        assert f.set_bits() == len(set(positions.tolist()))
        last_word = f.payload()[(((key * 4) >> 64) + 1) * block_bits // 8 - 8 :][:8]
        assert int.from_bytes(last_word, "little") >> 64 - counter_bits == 1


@pytest.mark.parametrize("block_bits", [256, 512])
def test_without_a_counter_a_block_is_that_of_the_blocked_filter(block_bits: int) -> None:
    f = filled(core(4, (7, block_bits + 1), block_bits=block_bits, hashes=9), digests(40))
    blocked = ReferenceBlocked(7, block_bits, 9)
    for key in digests(40):
        blocked.add_digest(key)
    size = 7 * block_bits // 8
    assert f.payload()[:size] == blocked.payload()
    assert not any(f.payload()[size:])


@each(CORES)
def test_the_histogram_counts_every_block(words: tuple[int, ...]) -> None:
    f = filled(words, digests(100))
    histograms = {id(f.levels[level]): f.set_bits_histogram(level) for level in range(words[3])}
    assert len(histograms) == len(f.tables)
    assert sum(sum(h.values()) for h in histograms.values()) == sum(words[8::2])
    bits = sum(n * count for h in histograms.values() for (_, n), count in h.items())
    assert bits == f.set_bits()
    loads = sum(n * count for h in histograms.values() for (n, _), count in h.items())
    assert loads == sum(f.load(j, i) for j, t in enumerate(f.tables) for i in range(t.blocks))


# Files.


@each(CORES)
def test_a_file_says_what_was_packed_and_the_filter_goes_on(words: tuple[int, ...]) -> None:
    keys = digests(100)
    f = filled(words, keys[:60])
    data = pack(f.kind, f.hashing, f.seed, 50, f.core, f.payload())
    read = unpack(data)
    assert read == Parsed(3, 2, 5, 50, words, f.payload())
    again = ReferenceBalanced.from_payload(read.core, read.seed, read.payload)
    assert again.state() == f.state()
    for key in keys[60:]:
        f.add_digest(key)
        again.add_digest(key)
    assert again.payload() == f.payload()
    assert lost(again, keys) == []


@each(COUNTED)
def test_spare_bits_and_contradictions_are_refused(words: tuple[int, ...]) -> None:
    """Bit by bit behind the tables: no payload whose list or flags or spare words were changed is read.

    (Every thirteenth bit of the long lists.) Keys, spent and spilled are numbers that nothing contradicts.
    """
    f = filled(words, digests(100))
    payload = f.payload()
    state = 8 * (len(payload) - 64)
    free = {*range(state, state + 64), *range(state + 128, state + 192), *range(state + 256, state + 320)}
    free |= {state + 192 + 1} if words[7] else set()  # the end of the budget
    tables = 8 * sum(len(table.payload()) for table in f.tables)
    for bit in range(tables, 8 * len(payload), 1 if words[5] < 100 else 13):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        in_use = bit < state and payload[bit // 64 * 8 :][:8] != bytes(8)
        if bit not in free and not in_use:
            with pytest.raises(ValueError, match=r"^payload has"):
                ReferenceBalanced.from_payload(words, 5, bytes(damaged))


def test_padding_loads_and_lengths_are_checked() -> None:
    words = core(3, (1, 4), (1, 4), limit=2)
    payload = filled(words, digests(9)).payload()
    for offset, value in [(32, 1), (63, 128), (96, 1)]:
        damaged = payload[:offset] + bytes([value]) + payload[offset + 1 :]
        with pytest.raises(ValueError, match="spare bits"):
            ReferenceBalanced.from_payload(words, 0, damaged)
    with pytest.raises(ValueError, match="load above"):
        ReferenceBalanced.from_payload(words, 0, payload[:31] + b"\xe0" + payload[32:])
    with pytest.raises(ValueError, match="must have"):
        ReferenceBalanced.from_payload(words, 0, payload[:-1])
    with pytest.raises(ValueError, match=r"^payload damaged: payload has spare bits"):
        pack(3, 2, 0, 9, words, payload[:32] + b"\1" + payload[33:])


# Cores.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "core must be 8 words and 2 for each"),
        (core(1), "core must be 8 words and 2 for each"),
        (core(1, (5, 3))[:-1], "core must be 8 words and 2 for each"),
        ((0, *core(1, (5, 3))[1:]), "policy must be in 1 .. 5, got 0"),
        ((6, *core(1, (5, 3))[1:]), "policy must be"),
        (core(1, (5, 3), block_bits=128), r"block_bits must be one of \(256, 512\), got 128"),
        (core(1, (5, 3), hashes=0), "hashes must be in 1 .. 32"),
        (core(1, (5, 3), hashes=33), "hashes must be"),
        (core(1, (5, 3), choices=2), "choices must be in 1 .. 1"),
        (core(1, (5, 3), (5, 3), choices=1), r"number of tables must be one of \(1,\), got 2"),
        (core(2, (5, 3), choices=0), "choices must be in 1 .. 8"),
        (core(2, (5, 3), choices=9), "choices must be"),
        (core(2, (5, 3), (5, 3), choices=2), "number of tables must be"),
        (core(3, (5, 3), choices=2), "number of tables must be"),
        (core(3, *[(5, 3)] * 9), "choices must be in 1 .. 8, got 9"),
        (core(4, (5, 3), (5, 257), choices=1), "number of tables must be"),
        (core(5, (5, 0), choices=1), "choices must be in 2 .. 2"),
        (core(5, (5, 0), (5, 0)), "number of tables must be"),
        (core(1, (5, 3), coin=-1), "coin must be in 0 .. 4294967296"),
        (core(1, (5, 3), coin=2**32 + 1), "coin must be"),
        (core(4, (5, 257), coin=1), "coin must be in 0 .. 0"),
        (core(5, (5, 0), coin=1), "coin must be"),
        (core(1, (5, 3), limit=2**40 + 1), "overflow_limit must be in"),
        (core(4, (5, 257), limit=1), "overflow_limit must be in 0 .. 0"),
        (core(5, (5, 0), limit=1), "overflow_limit must be"),
        (core(1, (5, 3), spill=2), "spill must be in 0 .. 1"),
        (core(4, (5, 257), spill=1), "spill must be in 0 .. 0"),
        (core(5, (5, 0), spill=1), "spill must be"),
        (core(1, (5, 3), limit=5, budget=1), "budget must be in 0 .. 0"),
        (core(3, (5, 3), limit=5, budget=1), "budget must be"),
        (core(2, (5, 3), budget=1), "budget must be"),
        (core(4, (5, 257), budget=1), "budget must be"),
        (core(2, (5, 3), limit=5, budget=2**64), "budget must be in 0 .. 18446744073709551615"),
        (core(1, (0, 3)), "blocks of table 0 must be in 1 .. 140737488355328, got 0"),
        (core(3, (5, 3), (2**47 + 1, 3)), "blocks of table 1 must be"),
        (core(1, (5, -1)), "threshold of table 0 must be in 0 .. 65534"),
        (core(1, (5, 65535)), "threshold of table 0 must be"),
        (core(4, (5, 0), (5, 257)), "threshold of table 0 must be in 1 .. 256"),
        (core(4, (5, 257), (5, 257)), "threshold of table 0 must be"),
        (core(4, (5, 100), (5, 258)), "threshold of table 1 must be in 1 .. 257"),
        (core(4, (5, 0), block_bits=512), "threshold of table 0 must be in 1 .. 513"),
        (core(5, (5, 1)), r"threshold of table 0 must be one of \(0,\)"),
        (core(3, (2**47, 3), (2**47, 3), block_bits=512), "total bits must be in 1 .. 72057594037927936"),
        (core(3, (2**47, 3), (1, 3), block_bits=512), "total bits must be"),
    ],
)
def test_an_invalid_core_is_refused_by_name(words: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        ReferenceBalanced(words)
    with pytest.raises(ValueError, match=r"^invalid core \[.*\]: " + message) as caught:
        payload_bytes(3, words)
    assert CORE[3] in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        core(3, (2**47, 65534), block_bits=512, hashes=32, coin=2**32, limit=2**40, spill=RANDOM),
        core(2, (2**47, 0), choices=8, limit=1, budget=2**64 - 1),
        core(3, (2**47, 3), (2**47, 3), block_bits=256),
    ],
    ids=["all at the top", "budget", "total bits"],
)
def test_the_ends_of_the_ranges_are_allowed(words: tuple[int, ...]) -> None:
    f = filled(words, [1, 2, 3])
    assert lost(f, [1, 2, 3]) == []


def test_a_seed_is_checked_and_a_core_may_be_a_list() -> None:
    assert ReferenceBalanced(list(CORES["fill"])).core == CORES["fill"]
    with pytest.raises(ValueError, match=r"^seed must be"):
        ReferenceBalanced(CORES["fill"], seed=2**64)


def test_payloads_are_frozen() -> None:
    """Files outlive programs: these numbers may never change."""
    frozen = {
        "single": "f9836ea2fcf9ef02",
        "sequential": "120c1c80b1010e17",
        "multilevel": "025f4805e532a689",
        "fill": "aae39abd519b4874",
        "two-choice": "ea1a887536d9292f",
    }
    found = {name: f"{xxh3_64(filled(CORES[name], digests(100)).payload()):016x}" for name in frozen}
    assert found == frozen
