"""The rules of other routers in `evenbins simulate llm`: each by cases made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from evenbins import HashRing
from evenbins.study.llm import PEERS, LlmRequest, replay_llm
from evenbins.study.llm_peers import RULES, BlockCache, Peer, PeerSetting, make_peer

SETTING = PeerSetting(replicas=4, cache_blocks=100, block_tokens=512, epsilon=0.25, seed=3)
KEY = (1, 2)  # the second block is the key


def router(policy: str, loads: dict[int, int] | None = None) -> Peer:
    """Make a router with these requests in flight."""
    made = make_peer(policy, SETTING)
    for replica, load in (loads or {}).items():
        made.loads[replica] = load
    return made


def choose(made: Peer, blocks: Sequence[int] = KEY) -> int:
    return made.choose(0.0, blocks, 512 * len(blocks))


ORDER = [int(name) for name in HashRing([f"{i:04}" for i in range(4)], seed=3).candidates(2)]
HOME, NEXT, THIRD, LAST = ORDER


@pytest.mark.parametrize("policy", ["envoy", "haproxy", "kubeai"])
def test_the_key_is_the_second_block(policy: str) -> None:
    assert {choose(router(policy), blocks) for blocks in (KEY, (9, 2), (9, 2, 7))} == {HOME}
    ring = HashRing([f"{i:04}" for i in range(4)], seed=3)
    for key in range(20):
        expected = int(ring.candidates(key)[0])
        assert choose(router(policy), (key,)) == choose(router(policy), (5, key)) == expected
    assert 0 <= choose(router(policy), ()) < 4


def test_envoy_compares_before_the_request_is_counted() -> None:
    """Of 2 requests ceil(2.5) = 3 slots are one for each of four; a replica with one takes another."""
    assert choose(router("envoy", {HOME: 1})) == HOME
    assert choose(router("envoy", {HOME: 2})) == NEXT  # 3 requests: 4 slots, one each
    assert choose(router("envoy", {HOME: 2, NEXT: 2, THIRD: 2})) == HOME  # 7 requests: 9 slots, 3 each
    assert choose(router("envoy", {HOME: 4, NEXT: 4})) == THIRD  # 9: 12 slots, 3 each


def test_haproxy_counts_the_request() -> None:
    assert choose(router("haproxy", {HOME: 1})) == NEXT  # at most one each, for fewer than 4 slots
    assert choose(router("haproxy", {HOME: 1, NEXT: 1})) == THIRD
    assert choose(router("haproxy", {HOME: 1, NEXT: 1, THIRD: 1})) == (  # 4 requests: 5 slots, 1 1 1 2
        HOME if HOME == 3 else NEXT if NEXT == 3 else THIRD if THIRD == 3 else LAST
    )


def test_kubeai_returns_home_if_all_are_full() -> None:
    assert choose(router("kubeai", {HOME: 1})) == HOME  # the bound is 1.25 * 2 / 4: even an idle one is above
    assert choose(router("kubeai", {HOME: 2})) == HOME  # 1.25 * 3 / 4
    assert choose(router("kubeai", {HOME: 3})) == NEXT  # 1.25 * 4 / 4
    assert choose(router("kubeai", {HOME: 3, NEXT: 1})) == THIRD


def test_sglang_by_matches_and_sizes() -> None:
    made = router("sglang")
    assert choose(made, (1, 2, 3, 4)) == 0  # the first of the empty trees
    assert choose(made, (1, 2, 5)) == 0  # two of three blocks
    assert choose(made, (1, 6, 7, 8)) == 1  # a quarter is not above 0.3: the smallest tree
    assert choose(made, (1, 6, 9)) == 1
    assert [choose(made, (i, i + 1)) for i in (20, 30, 40)] == [2, 3, 2]
    assert choose(made, (1, 2, 3, 4)) == 0


def test_sglang_by_requests_in_flight() -> None:
    made = router("sglang", {0: 64, 1: 9, 2: 1})
    choose(made)
    assert choose(made) == 0  # 64 more than 0 is not above 64
    made.loads[0] = 65
    assert choose(made, (8, 9)) == 3  # the idle one
    assert choose(made) == 3  # whatever the others hold
    made.loads[:] = [66, 9, 1, 50]
    assert choose(made) == 2
    made = router("sglang-4", {0: 14, 1: 10, 2: 10, 3: 10})
    assert choose(made) == 0
    made.loads[0] = 15
    assert choose(made) == 0  # 15 is not above 1.5 * 10
    made.loads[0] = 16
    assert choose(made) == 1


def test_production_stack_follows_the_common_block() -> None:
    """One common block is enough: whoever got the first request gets all."""
    made = router("production-stack")
    first = choose(made, (1, 2))
    assert {choose(made, (1, i)) for i in range(3, 50)} == {first}
    assert {choose(made, (i, i + 1)) for i in range(100, 200, 2)} == {0, 1, 2, 3}  # nobody has them


def test_llm_d_weighs_prefix_and_queue() -> None:
    made = router("llm-d")
    first = choose(made, (1, 2, 3, 4))
    assert choose(made, (1, 2, 3, 4)) == first
    made.queues[first] = 1
    assert choose(made, (1, 2, 3, 9)) == first  # 3 * 0.75 + 0 is above 2
    assert choose(made, (1, 2, 10, 11)) != first  # 3 * 0.5 is not
    made.queues[:] = [1] * 4
    assert choose(made, (1, 2, 3, 4)) == first  # all queues alike


@pytest.mark.parametrize("policy", RULES)
def test_counts_end_with_prefill_and_answer(policy: str) -> None:
    made = router(policy)
    replica = made.choose(0.0, KEY, 1024)
    made.began(replica, 1.0, 2.0, 5.0)
    assert (made.queues[replica], made.loads[replica]) == (1, 1)
    made.choose(1.0, KEY, 1024)
    assert (made.queues[replica], made.loads[replica]) == (0, 1)
    made.choose(4.9, KEY, 1024)
    assert made.loads[replica] == 1
    made.choose(5.0, KEY, 1024)
    assert made.loads == made.queues == [0, 0, 0, 0]


def test_a_cache_drops_the_last_blocks_first() -> None:
    cache = BlockCache(3)
    assert cache.use((1, 2, 3, 4)) == 0
    assert (cache.depth((1, 2, 3, 4)), len(cache)) == (3, 3)
    assert cache.use((7,)) == 0
    assert cache.depth((1, 2, 3)) == 2


def test_all_are_replayed() -> None:
    """Two conversations that share their first block; replicas cache all of them."""
    requests = [LlmRequest(10.0 * i, 1536, 10, (0, 1 + i % 2, 3 + i % 2)) for i in range(40)]
    report = replay_llm(requests, replicas=4, policies=PEERS)
    assert [row.policy for row in report.rows] == [*PEERS]
    for row in report.rows:
        assert row.hit in (114 / 120, 115 / 120)  # the second finds the common block or not
    assert report.row("production-stack").max_load == 4.0
