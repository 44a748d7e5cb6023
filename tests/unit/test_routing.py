"""`evenbins.routing`: blocks, the index, and every decision against a plain statement of the policies."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from sizes import size

from evenbins import HashRing, NoNodesError, digest
from evenbins.hashing import splitmix
from evenbins.routing import Choice, PrefixRouter, blocks_of
from evenbins.routing.index import LruIndex

NODES = ["a", "b", "c", "d", "e"]


def chats(rng: random.Random, count: int) -> Iterator[tuple[list[int], float]]:
    """Yield prompts of conversations that share a first block and grow, with the work of each."""
    chains: list[list[int]] = []
    for _ in range(count):
        if not chains or rng.random() < 0.4:
            chains.append([0, rng.getrandbits(40)])
        chain = rng.choice(chains[-12:])
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


def test_the_index_is_a_cache_per_node() -> None:
    """Random calls, against one list per node with the most recent block at its end."""
    rng = random.Random(1)
    index, lists = LruIndex(7), {node: [] for node in range(4)}  # type: ignore[var-annotated]
    for step in range(size(3000, 60_000)):
        node, block = rng.randrange(4), rng.randrange(24)
        if rng.random() < 0.005:
            index.forget(node)
            lists[node] = []
        index.note(block, node)
        lists[node] = [*(each for each in lists[node] if each != block), block][-7:]
        wanted = rng.randrange(24)
        assert index.holders(wanted) == sum(1 << node for node in lists if wanted in lists[node]), step
        assert len(index) == sum(map(len, lists.values()))


# --- decisions ----------------------------------------------------------------------------------------------


class Plain:
    """The policies, as docs/prefix_routing.md states them, without an index: the blocks of every node."""

    def __init__(self, policy: str, *, capacity: int, requests: bool, spread: bool, seed: int) -> None:
        self.policy, self.capacity, self.requests, self.spread = policy, capacity, requests, spread
        self.seed, self.routed = seed, 0
        self.weights: dict[str, float] = {}
        self.held: dict[str, list[int]] = {}
        self.open: dict[str, list[float]] = {}
        self.drained: set[str] = set()

    def add(self, name: str, weight: float) -> None:
        self.weights[name], self.held[name], self.open[name] = weight, [], []

    def route(self, blocks: list[int], work: float) -> tuple[str, int, str, float]:
        serving = [name for name in self.weights if name not in self.drained]
        work = 1.0 if self.requests else work
        start = splitmix(self.seed, self.routed) % len(serving) if self.spread else 0
        order = serving[start:] + serving[:start]
        self.routed += 1
        depths = dict.fromkeys(serving, 0)
        for name in serving:
            while depths[name] < len(blocks) and blocks[depths[name]] in self.held[name]:
                depths[name] += 1
        missing = {name: work * max(len(blocks) - depths[name], 1) / len(blocks) for name in serving}
        loads = {name: sum(self.open[name]) for name in serving}
        shares = {name: self.weights[name] / sum(self.weights[each] for each in serving) for name in serving}
        fits = {name: loads[name] < 1.25 * (sum(loads.values()) + work) * shares[name] for name in serving}
        least = min(order, key=lambda name: loads[name] / self.weights[name])
        deepest = max(depths.values())
        if self.policy == "score":
            node = min(order, key=lambda name: ((loads[name] + missing[name]) / self.weights[name],
                                                loads[name] / self.weights[name]))  # fmt: skip
            reason = "new" if not deepest else "prefix" if depths[node] == deepest else "load"
        elif self.policy == "prefix":
            holders = [name for name in order if deepest and depths[name] == deepest]
            best = min(holders, key=lambda name: loads[name] / self.weights[name], default=None)
            if best is not None and fits[best]:
                node, reason = best, "prefix"
            else:
                node, reason = least, "load" if deepest else "new"
        else:
            ring = HashRing(list(self.weights), weights=self.weights, seed=self.seed)
            for name in self.drained:
                ring.drain(name)
            probes = ring.candidates(blocks[min(2, len(blocks)) - 1])
            node = next((name for name in probes if fits[name]), least)
            reason = "hash" if node == probes[0] and fits[node] else "load"
        for block in reversed(blocks):
            self.held[node] = [*(each for each in self.held[node] if each != block), block]
        self.held[node] = self.held[node][-self.capacity :]
        load = 1.0 if self.requests else missing[node]
        self.open[node].append(load)
        return node, depths[node], reason, load


@pytest.mark.parametrize("ties", ["first", "spread"])
@pytest.mark.parametrize("load", ["work", "requests"])
@pytest.mark.parametrize("policy", ["prefix", "score", "hash"])
def test_every_choice_is_the_policys(policy: str, load: str, ties: str) -> None:
    """A few hundred requests with ends at random, drained nodes and weights, against `Plain`."""
    rng = random.Random(f"{policy} {load} {ties}")
    weights = {"a": 1.0, "b": 2.0, "c": 0.5, "d": 1.0, "e": 1.0}
    router = PrefixRouter(
        NODES, policy=policy, cache_blocks=20, load=load, ties=ties, weights=weights, seed=5
    )
    plain = Plain(policy, capacity=20, requests=load == "requests", spread=ties == "spread", seed=5)
    for name in NODES:
        plain.add(name, weights[name])
    open_choices: list[tuple[Choice, str, float]] = []
    seen = set()
    for blocks, work in chats(rng, size(250, 5000)):
        work = round(work * 64) / 64 * len(blocks)  # sums are exact in any order
        if rng.random() < 0.04:
            name = rng.choice(NODES[1:])
            if name in plain.drained:
                plain.drained.remove(name)
                router.mark_up(name)
            else:
                plain.drained.add(name)
                router.drain(name)
        choice = router.route(blocks, work)
        node, depth, reason, charged = plain.route(blocks, work)
        assert (choice.node, choice.depth, choice.reason) == (node, depth, reason)
        seen.add(reason)
        open_choices.append((choice, node, charged))
        while open_choices and rng.random() < 0.48:
            ended, name, charged = open_choices.pop(rng.randrange(len(open_choices)))
            router.done(ended)
            plain.open[name].remove(charged)
        assert router.loads() == pytest.approx({name: sum(plain.open[name]) for name in NODES})
    assert seen >= ({"hash", "load"} if policy == "hash" else {"prefix", "load", "new"})
    stats = router.stats()
    assert stats.routed == plain.routed == sum(stats.reasons.values())
    assert stats.in_flight == len(open_choices)
    assert stats.entries == sum(map(len, plain.held.values())) <= 20 * len(NODES)


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
