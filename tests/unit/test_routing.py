"""`evenbins.routing`: blocks, the index, and every decision against a plain statement of the policies."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sizes import size

from evenbins import NoNodesError, digest
from evenbins.routing import PrefixRouter, blocks_of
from reference.routing import LruCache, Router

NODES = ["a", "b", "c", "d", "e"]


def chats(rng: random.Random, count: int, recent: int = 12) -> Iterator[tuple[list[int], float]]:
    """Yield prompts of conversations that share a first block and grow, with the work of each."""
    chains: list[list[int]] = []
    for _ in range(count):
        if not chains or rng.random() < 0.4:
            chains.append([0, rng.getrandbits(40)])
        chain = rng.choice(chains[-recent:])
        chain += [rng.getrandbits(64) for _ in range(rng.randrange(3))]
        yield list(chain), len(chain) * rng.uniform(0.5, 1)


# --- blocks -------------------------------------------------------------------------------------------------


def test_a_block_is_numbered_by_all_before_it() -> None:
    text = "0123456789" * 10
    blocks = blocks_of(text, 16)
    assert len(blocks) == 7
    expected = 0
    for i, block in enumerate(blocks):
        expected = digest(text[16 * i : 16 * i + 16], expected)
        assert block == expected
    for cut in (16, 32, 96):
        assert blocks_of(text[:cut], 16) == blocks[: cut // 16]
    changed = blocks_of("x" + text[1:], 16)
    assert not set(changed) & set(blocks)
    assert blocks_of(text[:20] + "x" + text[21:], 16)[:1] == blocks[:1]


def test_text_is_its_bytes_and_tokens_are_integers_of_any_container() -> None:
    text = "naïve résumé " * 9
    same = [text.encode(), bytearray(text.encode()), memoryview(text.encode())]
    assert all(blocks_of(each, 10) == blocks_of(text, 10) for each in same)
    tokens = [5, 0, 2**40, 17, 3]
    containers = [tuple(tokens), np.array(tokens), np.array(tokens, np.uint64), range(0)]
    assert [blocks_of(each, 2) for each in containers] == [blocks_of(tokens, 2)] * 3 + [[]]
    assert len(blocks_of(tokens, 2)) == 3
    assert blocks_of("", 4) == blocks_of([], 4) == []


def test_a_seed_changes_every_number() -> None:
    assert not set(blocks_of("abc" * 20, 8, seed=1)) & set(blocks_of("abc" * 20, 8))


@pytest.mark.parametrize(
    ("text", "block_size", "what"),
    [
        ("abc", 0, "size"),
        ("abc", 1.5, "size"),
        ([1.5], 4, "text_or_tokens"),
        (7, 4, "text_or_tokens"),
        (None, 4, "text_or_tokens"),
        (["a"], 4, "text_or_tokens"),
        ([[1, 2], [3]], 4, "text_or_tokens"),
        ([2**70], 4, "text_or_tokens"),
        (np.array([2**63], np.uint64), 4, "text_or_tokens"),
        ("\ud800", 4, "text_or_tokens"),
    ],
)
def test_what_has_no_blocks_is_an_error(text: object, block_size: object, what: str) -> None:
    with pytest.raises((TypeError, ValueError), match=what):
        blocks_of(text, block_size)  # type: ignore[arg-type]


# --- the index ----------------------------------------------------------------------------------------------


def test_a_million_entries_take_five_bytes_each() -> None:
    """64 nodes that are sent more than they hold, so that the oldest steps expire."""
    router = PrefixRouter([f"n{i:02}" for i in range(64)], cache_blocks=16_000, ties="first")
    blocks = np.random.default_rng(1).integers(2**63, size=(64 * 20, 1000))
    for chain in blocks:
        router.route(chain)
    stats = router.stats()
    assert 0.96 * 64 * 16_000 < stats.entries <= 64 * 16_000
    assert stats.nbytes <= 5 * stats.entries
    assert {router.route(chain).depth for chain in blocks[-64:]} == {1000}


def test_the_index_expires_as_an_lru_cache_does() -> None:
    """One node with 96 blocks, where chats lose a fifth of theirs: 99 % of the depths are as in exact LRU."""
    router = PrefixRouter(["a"], cache_blocks=96)
    exact = Router({"a": 1.0}, policy="prefix", cache_blocks=96, cache=LruCache)
    endless = Router({"a": 1.0}, policy="prefix", cache_blocks=10**6, cache=LruCache)
    depths = np.array(
        [
            (
                router.route(blocks, work).depth,
                exact.route(blocks, work)[0][1],
                endless.route(blocks, work)[0][1],
            )
            for blocks, work in chats(random.Random(5), size(1500, 20_000), recent=60)
        ]
    )
    assert np.mean(depths[:, 0] == depths[:, 1]) >= 0.99
    found, held, seen = depths.sum(axis=0)
    assert held < 0.85 * seen
    assert found == pytest.approx(held, rel=0.005)


def test_a_small_cache_is_exact() -> None:
    """Steps have one block: the last 20 different ones are held, and no others."""
    router, rng, recent = PrefixRouter(["a"], cache_blocks=20), random.Random(6), []
    for _ in range(2000):
        block = rng.randrange(30)
        assert router.route([block]).depth == (block in recent[-20:])
        recent = [*(each for each in recent if each != block), block]
    assert router.stats().entries == 20


def test_blocks_that_nobody_holds_are_hardly_ever_found() -> None:
    """Two lines of at most 15 live entries, and 19 bits: a chance of at most 30 / 2**19 = 5.7e-5 each."""
    router = PrefixRouter([f"n{i:02}" for i in range(64)], cache_blocks=500)
    count = size(40_000, 4_000_000)
    numbers = iter(np.random.default_rng(2).integers(2**63, size=64_000 + count).tolist())
    for _ in range(2000):
        router.route([next(numbers) for _ in range(32)])
    before = router.stats().reasons["new"]
    for _ in range(count):
        router.route([next(numbers)])
    found = count - (router.stats().reasons["new"] - before)
    assert found < 5.7e-5 * count + 6 * (5.7e-5 * count) ** 0.5 + 6


def test_a_block_may_be_at_every_node_and_nodes_in_several_indexes() -> None:
    router = PrefixRouter([f"n{i:03}" for i in range(100)], cache_blocks=64)
    for i in range(40):
        router.add_node(f"x{i:02}")
    chain = list(range(20))
    for name in router.names:
        assert router.route(chain, avoid=set(router.names) - {name}).depth == 0
    assert router.stats().entries == 140 * 20
    assert all(router.route(chain, avoid=set(router.names) - {name}).depth == 20 for name in router.names)
    for name in router.names[::2]:
        router.remove_node(name)
    assert router.stats().entries == 70 * 20
    router.add_node("new")
    assert router.route(chain, avoid=set(router.names) - {"new"}).depth == 0


# --- decisions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", ["first", "spread"])
@pytest.mark.parametrize("load", ["work", "requests"])
@pytest.mark.parametrize("policy", ["prefix", "score", "hash"])
def test_every_choice_is_the_twins(policy: str, load: str, ties: str) -> None:
    """A few hundred requests, ends, nodes that come, go, drain and change, against tests/reference."""
    rng = random.Random(f"{policy} {load} {ties}")
    weights = {"a": 1.0, "b": 2.0, "c": 0.5, "d": 1.0, "e": 1.1}
    capacity = rng.choice([20, 70, 200])
    router = PrefixRouter(
        NODES, policy=policy, cache_blocks=capacity, load=load, ties=ties, weights=weights, seed=5
    )
    twin = Router(
        weights,
        policy=policy,
        cache_blocks=capacity,
        requests=load == "requests",
        spread=ties == "spread",
        seed=5,
    )
    tickets, seen = [], set()

    def both(change: str, *args: Any) -> None:
        getattr(router, change)(*args)
        getattr(twin, change)(*args)

    for blocks, work in chats(rng, size(250, 5000)):
        name, weight = rng.choice(list(twin.nodes)), rng.uniform(0.5, 3)
        match rng.randrange(60):
            case 0 if len(twin.nodes) > 2 and name != "a":
                both("remove_node", name)
            case 1:
                both("add_node", f"x{work}", weight)
            case 2 if name != "a":
                both("drain", name)
            case 3 | 4 if not twin.nodes[name].serves:
                both("mark_up", name)
            case 5:
                both("set_weight", name, weight)
        avoid = {name} - {"a"} if rng.random() < 0.1 else ()
        choice = router.route(blocks, work, avoid=avoid)
        expected, ticket = twin.route(blocks, work, avoid)
        assert (choice.node, choice.depth, choice.reason) == expected
        seen.add(choice.reason)
        tickets.append((choice, ticket))
        while tickets and rng.random() < 0.48:
            choice, ticket = tickets.pop(rng.randrange(len(tickets)))
            router.done(choice)
            twin.done(ticket)
        assert router.loads() == {name: node.load for name, node in twin.nodes.items()}
    assert seen >= ({"hash", "load"} if policy == "hash" else {"prefix", "load", "new"})
    stats = router.stats()
    assert stats.routed == twin.routed == sum(stats.reasons.values())
    assert stats.in_flight == len(tickets)
    assert stats.entries == sum(node.cache.total for node in twin.nodes.values())


@pytest.mark.parametrize("policy", ["prefix", "hash"])
def test_blocks_of_any_container_are_the_same(policy: str) -> None:
    router = PrefixRouter(["a"], policy=policy)
    numbers = [2**64 - 1, 0, 2**63, 17, -(2**63), 5, True]
    router.route(numbers)
    for blocks in (tuple(numbers), iter(numbers), np.array(numbers, object), map(int, numbers)):
        assert router.route(blocks, np.float32(2), avoid=()).depth == 7  # type: ignore[arg-type]
    for dtype in (np.uint64, np.int64, np.uint8, ">i4"):
        array = np.arange(40, 50).astype(dtype)
        assert router.route(array).depth == (10 if dtype != np.uint64 else 0)
        assert router.route(np.repeat(array, 2)[::2], 3).depth == 10


def test_avoided_nodes_count_as_drained() -> None:
    for policy in ("prefix", "score", "hash"):
        router = PrefixRouter(NODES, policy=policy)
        first = router.route([1, 2, 3])
        assert router.route([1, 2, 3], avoid=[first.node, "unknown"]).node != first.node
        with pytest.raises(NoNodesError):
            router.route([1, 2, 3], avoid=NODES)


@pytest.mark.parametrize("policy", ["prefix", "hash"])
def test_only_the_least_loaded_node_may_exceed_the_bound(policy: str) -> None:
    """One popular prefix: without the bound all requests would go to one node."""
    router = PrefixRouter(NODES, policy=policy, load="requests", epsilon=0.25)
    blocks = blocks_of("x" * 100, 10)
    for i in range(200):
        before = router.loads()
        choice = router.route(blocks)
        limit = 1.25 * (i + 1) / len(NODES)
        assert before[choice.node] < limit or before[choice.node] == min(before.values())
    assert max(router.loads().values()) <= 51


def test_a_popular_prompt_that_every_node_holds_still_has_a_load() -> None:
    """A whole prompt in the cache costs one block: such requests are spread as well."""
    router = PrefixRouter(NODES, policy="score")
    blocks = blocks_of("x" * 100, 10)
    for _ in range(500):
        router.route(blocks, work=10)
    assert max(router.loads().values()) < 1.2 * min(router.loads().values())


def test_a_long_prompt_leaves_its_beginning_in_the_index() -> None:
    router = PrefixRouter(["a"], cache_blocks=4)
    router.route(range(100, 110))
    assert router.route(range(100, 110)).depth == 4
    assert router.stats().entries == 4


def test_done_counts_once_and_leaves_no_remainder() -> None:
    router = PrefixRouter(NODES, ties="first")
    rng = random.Random(3)
    choices = [router.route([rng.getrandbits(64)], rng.uniform(1e-9, 1e9)) for _ in range(300)]
    rng.shuffle(choices)
    for choice in choices:
        router.done(choice)
        router.done(choice)
    assert set(router.loads().values()) == {0.0}
    assert router.stats().in_flight == 0
    with pytest.raises(ValueError, match="choice must be one that this router returned"):
        PrefixRouter(["a"]).done(choices[0])
    with pytest.raises(ValueError, match="choice must be"):
        router.done("a")  # type: ignore[arg-type]


def test_the_seed_and_the_calls_decide() -> None:
    def nodes(seed: int, policy: str) -> list[str]:
        router = PrefixRouter(NODES, policy=policy, seed=seed)
        return [router.route(blocks, work).node for blocks, work in chats(random.Random(2), 60)]

    for policy in ("prefix", "score", "hash"):
        assert nodes(1, policy) == nodes(1, policy)
        assert nodes(1, policy) != nodes(2, policy)


def test_the_order_of_the_names_makes_no_difference() -> None:
    routers = PrefixRouter(NODES, ties="first"), PrefixRouter(NODES[::-1], ties="first")
    for blocks, work in chats(random.Random(4), 60):
        assert len({router.route(blocks, work).node for router in routers}) == 1


# --- nodes --------------------------------------------------------------------------------------------------


def test_nodes_join_leave_drain_and_return() -> None:
    router = PrefixRouter(["a", "b"], ties="first")
    assert router.names == ("a", "b")
    first = router.route([1, 2, 3])
    assert (first.node, first.reason) == ("a", "new")
    router.drain("a")
    assert router.states == {"a": "draining", "b": "up"}
    assert router.route([1, 2, 3]).node == "b"
    router.mark_up("a")
    assert router.route([1, 2, 3], work=1e9).depth == 3
    router.add_node("c", 2.5)
    assert router.weights == {"a": 1.0, "b": 1.0, "c": 2.5}
    router.set_weight("c", 3)
    assert router.weights["c"] == 3.0
    router.remove_node("a")
    router.done(first)  # of a node that has left
    assert router.names == ("b", "c")
    assert set(router.loads()) == {"b", "c"}


def test_a_node_that_returns_has_an_empty_cache_and_no_load() -> None:
    """It may take the number that the index knew another node by."""
    router = PrefixRouter(["a", "b"], ties="first")
    old = router.route([1, 2, 3])
    router.remove_node("a")
    assert router.stats().entries == 0
    router.add_node("a")
    router.add_node("x")
    router.done(old)
    assert router.loads() == {"b": 0.0, "a": 0.0, "x": 0.0}
    assert router.route([1, 2, 3]).reason == "new"


def test_a_heavier_node_takes_more() -> None:
    router = PrefixRouter(["a", "b"], weights={"b": 3}, policy="score")
    for i in range(400):
        router.route([i])
    loads = router.loads()
    assert loads["b"] == pytest.approx(3 * loads["a"], rel=0.02)


def test_without_nodes_there_is_no_choice() -> None:
    router = PrefixRouter()
    with pytest.raises(NoNodesError, match="add_node"):
        router.route([1])
    router.add_node("a")
    router.drain("a")
    with pytest.raises(NoNodesError, match="mark_up"):
        router.route([1])
    assert router.stats().routed == 0


def test_a_prompt_without_blocks_goes_to_the_least_loaded() -> None:
    for policy in ("prefix", "score", "hash"):
        router = PrefixRouter(["a", "b"], policy=policy, ties="first")
        assert [router.route([]).node for _ in range(3)] == ["a", "b", "a"]


# --- threads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["prefix", "score", "hash"])
def test_threads_share_a_router(policy: str) -> None:
    """Requests, ends and changes of nodes from four threads: nothing is lost, nothing remains."""
    router = PrefixRouter(NODES, policy=policy, cache_blocks=50)
    count = size(150, 5000)
    failures = []

    def work(number: int) -> None:
        try:
            rng = random.Random(number)
            open_choices = []
            for blocks, each in chats(rng, count):
                open_choices.append(router.route(blocks, each))
                if number == 0 and rng.random() < 0.2:
                    router.add_node("extra")
                    router.set_weight("extra", 2)
                    router.remove_node("extra")
                if len(open_choices) > 5:
                    router.done(open_choices.pop(0))
            for choice in open_choices:
                router.done(choice)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert router.loads() == dict.fromkeys(NODES, 0.0)
    stats = router.stats()
    assert (stats.routed, stats.in_flight) == (4 * count, 0)
    assert stats.entries <= 50 * len(NODES)


def test_coroutines_route() -> None:
    router = PrefixRouter(NODES, load="requests")

    async def request(number: int) -> str:
        choice = router.route([number % 7])
        try:
            await asyncio.sleep(0)
            return choice.node
        finally:
            router.done(choice)

    async def main() -> list[str]:
        return await asyncio.gather(*(request(number) for number in range(100)))

    assert set(asyncio.run(main())) == set(NODES)
    assert router.stats().in_flight == 0


# --- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"policy": "random"}, "policy"),
        ({"load": "tokens"}, "load"),
        ({"ties": "last"}, "ties"),
        ({"cache_blocks": 0}, "cache_blocks"),
        ({"hash_blocks": 0}, "hash_blocks"),
        ({"epsilon": -1}, "epsilon"),
        ({"seed": -1}, "seed"),
        ({"weights": {"z": 1}}, "weights"),
        ({"nodes": "abc"}, "nodes"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], what: str) -> None:
    with pytest.raises((TypeError, ValueError), match=what):
        PrefixRouter(**({"nodes": NODES} | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda router: router.route("abc"), "blocks"),
        (lambda router: router.route(b"abc"), "blocks"),
        (lambda router: router.route(["a"]), "blocks"),
        (lambda router: router.route([1.5]), "blocks"),
        (lambda router: router.route(7), "blocks"),
        (lambda router: router.route([2**64]), r"blocks must be integers from -2\*\*63 to 2\*\*64 - 1"),
        (lambda router: router.route([1, -(2**63) - 1]), "blocks"),
        (lambda router: router.route(np.zeros((2, 2), np.uint64)), "blocks"),
        (lambda router: router.route(iter([1, None])), "blocks"),
        (lambda router: router.route([1], avoid="a"), "avoid"),
        (lambda router: router.route([1], True), "work"),
        (lambda router: router.route([1], 10**400), "work"),
        (lambda router: router.route([1], 0), "work"),
        (lambda router: router.route([1], float("nan")), "work"),
        (lambda router: router.route([1], float("inf")), "work"),
        (lambda router: router.route([1], "1"), "work"),
        (lambda router: router.add_node("a"), "'a' already"),
        (lambda router: router.remove_node("z"), "no node 'z'"),
        (lambda router: router.drain("z"), "no node 'z'"),
        (lambda router: router.set_weight("a", 0), "weight"),
    ],
)
def test_wrong_calls_change_nothing(call: Callable[[PrefixRouter], object], what: str) -> None:
    router = PrefixRouter(NODES)
    with pytest.raises((TypeError, ValueError, KeyError), match=what):
        call(router)
    assert router.stats() == PrefixRouter(NODES).stats()
    assert router.names == tuple(NODES)


def test_done_counts_work_that_rounds_to_nothing() -> None:
    router = PrefixRouter(["a"])
    router.done(router.route([1, 2]))
    router.done(router.route([1, 3], 5e-324))
    assert router.stats().in_flight == 0


def test_choices_and_routers_are_not_copied() -> None:
    """Each copy of a choice would take its work off once."""
    router = PrefixRouter(["a"])
    for thing in (router, router.route([1])):
        for copies in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                copies(thing)


@pytest.mark.parametrize("policy", ["hash", "score"])
def test_nodes_to_avoid_are_any_iterable_of_names(policy: str) -> None:
    router = PrefixRouter(["a", "b", "c"], policy=policy)
    for number in range(20):
        assert router.route([number], avoid=(name for name in "ab")).node == "c"
        assert router.route([number], avoid=np.array(["a", "b"])).node == "c"
    for wrong in (b"a", None, 5, [["a"]], [1]):
        with pytest.raises(TypeError, match="avoid must be several names"):
            router.route([1], avoid=wrong)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have() -> None:
    router = PrefixRouter(["a", "b"])
    choice = router.route([1])
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with router._lock:
            held.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        router.done(choice)
        os._exit(0 if router.stats().in_flight == 0 else 1)
    over.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


# --- interrupted changes of nodes --------------------------------------------------------------------------


class Interrupted(Exception):
    pass


def interrupt_at(step: int, call: Callable[[], object]) -> bool:
    """Raise before the bytecode of this number in the router's own code; return whether it was reached."""
    left = step

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith("routing/router.py"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise Interrupted
        return trace

    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for one such frame when tracing begins
    sys.settrace(trace)
    try:
        call()
        return False
    except Interrupted:
        return True
    finally:
        sys.settrace(None)


CHANGES: dict[str, Callable[[PrefixRouter], None]] = {
    "add": lambda router: router.add_node("z", 2),
    "remove": lambda router: router.remove_node("b"),
    "drain": lambda router: router.drain("b"),
    "mark_up": lambda router: router.mark_up("d"),
    "set_weight": lambda router: router.set_weight("b", 7),
}


@pytest.mark.parametrize("policy", ["prefix", "hash"])
@pytest.mark.parametrize("name", CHANGES)
def test_an_interrupted_change_of_nodes_is_made_or_not(name: str, policy: str) -> None:
    """Whatever bytecode a signal handler raises at; the ring and the compiled part agree afterwards."""
    steps = 0
    while True:
        router = PrefixRouter(NODES, policy=policy, cache_blocks=100)
        router.drain("d")
        before = router.names, router.weights, router.states
        was_interrupted = interrupt_at(steps, lambda router=router: CHANGES[name](router))  # type: ignore[misc]
        serving = {router.route([i, i + 1]).node for i in range(200)}
        after = router.names, router.weights, router.states
        assert serving == {node for node, state in router.states.items() if state == "up"}
        assert router.stats().serving == len(serving)
        assert set(router.loads()) == set(router.names) == set(router.weights)
        if not was_interrupted:
            assert after != before
            break
        if after != before:  # then it is made in whole
            CHANGES[name](other := PrefixRouter(NODES, policy=policy, cache_blocks=100))
            other.drain("d") if name != "mark_up" else None
            assert after == (other.names, other.weights, other.states)
        steps += 1
    assert steps > 20


def test_a_handler_that_asks_in_the_middle_of_a_change_does_not_undo_it() -> None:
    router = PrefixRouter(["a", "b"], cache_blocks=100)
    add = router._ring.add_node

    def add_and_ask(*arguments: Any) -> None:
        add(*arguments)
        assert router.route([1]).node in "abc"
        assert router.states["c"] == "up"

    router._change(add_and_ask, "c", 1.0)
    assert router.names == ("a", "b", "c")
    assert {router.route([i]).node for i in range(100)} == {"a", "b", "c"}
