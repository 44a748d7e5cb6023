"""Keys chosen by an enemy: what the default seed allows, what a secret seed stops, what holds in any case.

Who knows the code and the seed can compute where every key goes, and send only those that go to one place.
Each test is such an attack, carried out: the keys are found by search, as an attacker would. Then

- with the known seed the structure behaves as badly as the attacker wants, but keeps its *bounds*: no false
  negative, no limit exceeded, no key lost, `TableFullError` before anything is dropped;
- with a seed drawn after the keys were chosen the same keys behave like random ones: what is counted lies
  in the interval of the prediction, at 1e-6.

SECURITY.md is the account of it, with what a secret seed does not stop.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    ChainedTable,
    CountMinSketch,
    HashRing,
    MultilevelTable,
    TableFullError,
    digest_many,
)
from evenbins.study.stepwise import ReferenceMultilevel
from reference.bloom import ReferenceBloom
from reference.countmin import ReferenceCountMin

Keys = npt.NDArray[np.uint64]
SECRET = 0x5EC2E7_0F_A_5E2FE2  # drawn after the keys were chosen, as far as the attacker goes
LEVEL = 1e-6


def block_of(keys: Keys, blocks: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """The block of each key: the high half of digest times blocks (both below 2**53 here, so by floats)."""
    return (digest_many(keys, seed) / 2.0**64 * blocks).astype(np.int64)


def candidates(count: int = 4_000_000) -> Keys:
    return np.arange(count, dtype=np.uint64)


def blocks_of(filter_: BlockedBloomFilter) -> int:
    return sum(filter_.stats().loads[0])


def test_one_block_of_a_blocked_filter() -> None:
    """400 keys in one block, in a filter for 100,000: who asks for another key of that block hears yes."""
    open_, secret = BlockedBloomFilter(100_000, fpr=1e-3), BlockedBloomFilter(100_000, fpr=1e-3, seed=SECRET)
    keys = candidates()
    chosen = keys[block_of(keys, blocks_of(open_)) == 7]
    attack, victims = chosen[:400], chosen[400:]
    assert victims.size > 900
    for filter_ in (open_, secret):
        filter_.add_many(attack)
        assert filter_.contains_many(attack).all()
    assert open_.contains_many(victims).mean() > 0.95
    assert open_.stats().fpr < 1e-3  # nothing to see in the mean over all keys
    hits = int(secret.contains_many(victims).sum())
    assert stats.binom.sf(hits - 1, victims.size, secret.stats().fpr) > LEVEL


def test_a_balanced_filter_sends_an_attack_on_and_loses_nothing() -> None:
    """Keys of one block fill its successors too, then the list, then spill: never a false negative."""
    keys = candidates()
    for policy in ("multilevel", "fill", "single", "sequential"):
        open_ = BalancedBloomFilter(50_000, bits_per_key=24, policy=policy)
        first = open_.plan.core[8]
        attack = keys[block_of(keys, first) == 3]
        open_.add_many(attack)
        assert attack.size > 1_000
        assert open_.contains_many(attack).all()
        secret = BalancedBloomFilter(50_000, bits_per_key=24, policy=policy, seed=SECRET)
        secret.add_many(attack)
        assert secret.stats().fpr < 10 * secret.plan.fpr
        assert open_.stats().fpr > secret.stats().fpr


def test_few_keys_pollute_a_standard_filter() -> None:
    """Keys whose bits are all new set k bits each, where random ones meet bits that are set already.

    Gerbet, Kumar and Lauradoux, "The power of evil choices in Bloom filters" (2015): the fill rises to
    n k / m instead of 1 - exp(-n k / m).
    """
    open_ = BloomFilter(2_000, fpr=1e-3)
    bits, hashes = open_.plan.core[0], open_.plan.hashes
    twin = ReferenceBloom(bits, hashes)
    taken, attack = np.zeros(bits, dtype=bool), []
    for key, digest in enumerate(digest_many(np.arange(40_000, dtype=np.uint64)).tolist()):
        places = list(twin.positions(digest))
        if len(set(places)) == hashes and not taken[places].any():
            taken[places] = True
            attack.append(key)
    open_.add_many(attack)
    assert open_.contains_many(attack).all()
    share = len(attack) * hashes / bits
    assert open_.stats().fill == pytest.approx(share)
    secret = BloomFilter(2_000, fpr=1e-3, seed=SECRET)
    secret.add_many(attack)
    expected = -math.expm1(-share)
    assert open_.stats().fill > expected + 0.05
    spread = math.sqrt(expected * (1 - expected) / bits)
    assert abs(secret.stats().fill - expected) < 4.9 * spread


def test_one_pair_of_buckets_of_a_table() -> None:
    """Keys that share both buckets: the list takes the rest, then `TableFullError`; none is lost."""
    open_ = MultilevelTable(2_000, key_dtype="uint64")
    twin = ReferenceMultilevel(open_.plan.core)
    keys = candidates(2_000_000)
    same = keys[block_of(keys, twin.buckets[0]) == 5][:6_000]
    second = np.array([twin.bucket(key, 1) - twin.first[1] for key in same.tolist()])
    attack = same[second == np.bincount(second).argmax()]
    held = 0
    for key in attack.tolist():
        try:
            open_[key] = key
        except TableFullError:
            break
        held += 1
    assert 2 * open_.plan.slots <= held < attack.size
    assert len(open_) == held
    assert all(open_[key] == key for key in attack[:held].tolist())
    assert attack[held] not in open_
    secret = MultilevelTable(2_000, key_dtype="uint64", seed=SECRET)
    secret.insert_many(attack, attack.astype(np.int64))
    assert secret.stats().overflow == 0


def test_a_counter_of_a_sketch_for_each_row() -> None:
    """A key for each row that shares the victim's counter: together they lift its estimate at will."""
    open_ = CountMinSketch(epsilon=1e-2, delta=1e-2)
    secret = CountMinSketch(epsilon=1e-2, delta=1e-2, seed=SECRET)
    twin = ReferenceCountMin(open_.plan.core)
    victim = twin.positions(int(digest_many(np.array([1]))[0]))
    attack: dict[int, int] = {}
    for key, digest in enumerate(digest_many(np.arange(2, 20_000)).tolist(), 2):
        for row, place in enumerate(twin.positions(digest)):
            if place == victim[row]:
                attack.setdefault(row, key)
        if len(attack) == len(victim):
            break
    keys = np.array(sorted(attack.values()))
    for sketch in (open_, secret):
        sketch.add(1, 5)
        sketch.add_many(np.repeat(keys, 10_000))
        assert sketch.count(1) >= 5  # never an underestimate, whoever chose the keys
    assert open_.count(1) >= 10_005
    assert secret.count(1) == 5


def test_one_server_of_a_ring() -> None:
    """All keys for one server: without state it gets them all; a ring that assigns keeps its limit."""
    servers = [f"server{i}" for i in range(50)]
    open_, secret = HashRing(servers, epsilon=0.25), HashRing(servers, epsilon=0.25, seed=SECRET)
    keys = candidates(200_000)
    owners = open_.node_many(keys)
    attack = keys[owners == "server7"]
    assert attack.size > 3_000
    assert {open_.node(int(key)) for key in attack[:50]} == {"server7"}
    open_.assign_many(attack)
    loads = open_.loads()
    limit = math.ceil(1.25 * attack.size / len(servers))
    assert max(loads.values()) <= limit
    assert sum(loads.values()) == attack.size
    assert open_.stats().placed_searches > 2  # the attack costs searches, not a hot spot
    spread = secret.node_many(attack)
    counts = np.unique(spread, return_counts=True)[1]
    assert counts.size == len(servers)
    assert stats.chisquare(counts).pvalue > LEVEL


def test_one_chain_of_a_chained_table() -> None:
    """600 keys of one bin: each look-up compares half of them; with a secret seed a few."""
    open_ = ChainedTable(2_000, policy="single", overflow=0, key_dtype="uint64")
    secret = ChainedTable(2_000, policy="single", overflow=0, key_dtype="uint64", seed=SECRET)
    keys = candidates()
    attack = keys[block_of(keys, open_.plan.core[6]) == 11][:600]
    assert attack.size == 600
    for table in (open_, secret):
        table.insert_many(attack, attack.astype(np.int64))
        assert all(table[key] == key for key in attack.tolist())
    assert open_.stats().max_load == 600
    assert open_.stats().query_mean == pytest.approx(300.5)
    bins = secret.plan.core[6]
    assert stats.poisson.sf(secret.stats().max_load - 1, 600 / bins) * bins > LEVEL


def test_a_secret_seed_does_not_stop_who_can_watch() -> None:
    """Answers tell: keys that were answered yes by accident stay so, and keys of a server are seen there.

    This is the limit that SECURITY.md states; a new seed ends it, until the attacker has watched again.
    """
    rng = np.random.default_rng(8)
    filter_ = BlockedBloomFilter(5_000, fpr=1e-2, seed=SECRET)
    filter_.add_many(rng.integers(0, 2**63, 5_000))
    tried = candidates(200_000)
    collected = tried[filter_.contains_many(tried)]
    assert collected.size > 1_000
    assert filter_.contains_many(collected).all()  # asked again: 100 % instead of 1 %
    fresh = BlockedBloomFilter(5_000, fpr=1e-2, seed=SECRET + 1)
    fresh.add_many(rng.integers(0, 2**63, 5_000))
    hits = int(fresh.contains_many(collected).sum())
    assert stats.binom.sf(hits - 1, collected.size, fresh.stats().fpr) > LEVEL
    ring = HashRing([f"server{i}" for i in range(10)], seed=SECRET)
    seen = [key for key in range(5_000) if ring.node(key) == "server3"]
    assert {ring.node(key) for key in seen} == {"server3"}
    assert len(seen) > 300


def test_keys_behind_a_keyed_hash_are_nobodys_choice() -> None:
    """The way out where XXH3 is not enough: BLAKE2b with a key, as digests. The seed is public here."""
    filter_ = BlockedBloomFilter(20_000, fpr=1e-3)
    keys = candidates(1_000_000)
    chosen = keys[block_of(keys, blocks_of(filter_)) == 7]
    attack, victims = chosen[:400], chosen[400:]
    assert victims.size > 800

    def digests(some: Keys) -> Keys:
        hashed = (
            hashlib.blake2b(key.tobytes(), digest_size=8, key=b"a secret of the owner").digest()
            for key in some
        )
        return np.frombuffer(b"".join(hashed), np.uint64)

    filter_.add_many(digests(attack), digests=True)
    assert filter_.contains_many(digests(attack), digests=True).all()
    hits = int(filter_.contains_many(digests(victims), digests=True).sum())
    assert stats.binom.sf(hits - 1, victims.size, filter_.stats().fpr) > LEVEL
