"""Key rules of the HTTP router in order, and the policies that use chains of blocks."""

from __future__ import annotations

import asyncio
import itertools
import json

import httpx
import pytest
from http_replicas import fleet, go, soon
from hypothesis import given
from hypothesis import strategies as st

from evenbins.cluster.http import Router
from evenbins.cluster.http_config import PoolConfig, RouterConfig
from evenbins.cluster.http_headers import TrustedProxies, client_address
from evenbins.cluster.http_keys import KeyRule, KeyRules

ALL = KeyRules(["messages", "prompt", "json:input.-1", "header:x-user", "client"], block_bytes=16)


def key(body, rules=ALL, headers=(), client="10.0.0.7"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return rules.key(b"/p", b"q=1", list(headers), client, data)


def chat(*texts):
    return {"messages": [{"role": "user", "content": each} for each in texts]}


def test_a_conversation_keeps_its_blocks_when_it_grows():
    texts = ["one question, and some more text", "its answer", "and another question about it"]
    chains = [key(chat(*texts[:n])).blocks for n in (1, 2, 3)]
    for shorter, longer in itertools.pairwise(chains):
        assert list(longer[: len(shorter) - 1]) == list(shorter[:-1])  # the last block may have been short
        assert len(longer) > len(shorter)
    assert key(chat("x" * 100)).work == 106
    parts = [{"role": "user", "content": [{"type": "text", "text": "a" * 50}]}]
    longer = [*parts, {"role": "assistant", "content": None, "tool_calls": []}]
    first, second = key({"messages": parts}).blocks, key({"messages": longer}).blocks
    assert list(second[: len(first) - 1]) == list(first[:-1])


def test_the_model_and_what_precedes_the_chat_are_part_of_the_key():
    keys = [
        key(chat("the same text") | extra).blocks[0]
        for extra in ({}, {"model": "a"}, {"model": "b"}, {"system": "Be brief."}, {"tools": [{"a": 1}]})
    ]
    assert len(set(keys)) == 5
    rules = KeyRules(["json:prompt"])
    assert len({key({"prompt": "x", "model": each}, rules).key for each in ("a", "b", "")}) == 3


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (chat("x"), "messages"),
        ({"prompt": "x"}, "prompt"),
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"prompt": [[1, 2], [3]]}, "prompt"),
        ({"prompt": ["x", "y"]}, "prompt"),
        ({"messages": [], "prompt": "x"}, "prompt"),
        ({"messages": "x", "prompt": "x"}, "prompt"),
        ({"messages": ["x"], "prompt": "x"}, "prompt"),
        ({"messages": [None]}, "header"),
        ({"messages": [{}]}, "messages"),
        ({"messages": [{"role": 7, "content": {"deep": [1, {}]}}]}, "messages"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
        ({"prompt": "\udfff"}, "prompt"),
        ({"prompt": ""}, "header"),
        ({"prompt": [True, False]}, "header"),
        ({"prompt": [1.5]}, "header"),
        ({"prompt": [2**70]}, "header"),
        ({"prompt": [[1], "x", [[2]]]}, "prompt"),
        ({"prompt": [[[1]]]}, "header"),
        ({"prompt": {"a": 1}}, "header"),
        ({"input": ["a", "b"]}, "json"),
        ({"input": []}, "header"),
        ({"input": None}, "header"),
        (b"", "header"),
        (b"{", "header"),
        (b"[]", "header"),
        (b"3", "header"),
        (b"\xff\xfe{}", "header"),
        (b'{"prompt": "\xe4"}', "header"),
        (b"[" * 100_000, "header"),
        (b'{"prompt":' * 5000, "header"),
        (b'{"messages": [' + b"[" * 900 + b"]" * 900 + b'], "prompt": "x"}', "prompt"),
        (b'{"messages": [{"content": ' + b"[" * 900 + b"]" * 900 + b"}]}", None),
        (b'{"prompt": "a", "prompt": "b"}', "prompt"),
        (b'{"prompt": ' + b"9" * 10_000 + b"}", "header"),
        (b'{"prompt": NaN, "input": [Infinity]}', "json"),
    ],
)
def test_the_first_rule_that_applies_is_used(body, rule):
    found = key(body, headers=[(b"x-user", b"7")])
    if rule is None:  # as deep as Python allows here: any rule, and no error
        assert found.rule in ("messages", "header")
    else:
        assert found.rule == rule
    assert found.blocks
    assert found.work >= 1


def test_the_last_resorts_are_the_client_and_the_path():
    assert key(b"{").key == b"10.0.0.7"
    assert key(b"{", client="").key == b"/p"
    assert KeyRules([]).key(b"/p", b"", [], "", None).key == b"/p"


def test_duplicate_names_count_by_their_last_value():
    assert key(b'{"prompt": "a", "prompt": "b"}').blocks == key({"prompt": "b"}).blocks


def test_elements_are_counted_from_the_end_too():
    rule = KeyRule.parse("json:messages.-1.content")
    assert rule.of_body(chat("a", "b", "c")) == "c"
    for text in ("-4", "3", "--1", "-", "x", "9" * 30, "-0x1", "+1", " 1"):
        assert KeyRule("json", f"messages.{text}.content").of_body(chat("a", "b", "c")) is None
    assert KeyRule("json", "messages.-3.content").of_body(chat("a", "b", "c")) == "a"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["role", "content", "a"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["messages", "prompt", "input", "model", "system"]), JSON))
def test_any_json_has_a_key(body):
    found = key(body)
    assert found.blocks
    assert all(0 <= each < 2**64 for each in found.blocks)


@given(st.binary())
def test_any_bytes_have_a_key(body):
    assert key(body).blocks


def test_the_address_of_a_client_behind_trusted_proxies():
    trusted = TrustedProxies(["10.0.0.0/8"])
    for peer, forwarded, expected in (
        ("192.0.2.1", b"6.6.6.6", "192.0.2.1"),
        ("10.0.0.1", b"6.6.6.6, 192.0.2.9, 10.0.0.2", "192.0.2.9"),
        ("10.0.0.1", b"", "10.0.0.1"),
        ("10.0.0.1", b"10.0.0.8, 10.0.0.2", "10.0.0.8"),
    ):
        scope = {"client": (peer, 1), "headers": [(b"x-forwarded-for", forwarded)]}
        assert client_address(scope, trusted) == expected


# --- policies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["prefix", "score"])
def test_a_conversation_stays_where_its_prefix_is(policy):
    async def test():
        options = {"key": ["messages"], "policy": policy, "block_bytes": 64, "response_headers": True}
        async with fleet(4, **options) as (router, client, _):
            homes = set()
            for number in range(8):
                texts, used = [f"question {number} " * 20], set()
                for turn in range(4):
                    answer = await client.post("/chat", json=chat(*texts))
                    assert answer.status_code == 200
                    used.add(answer.json()["replica"])
                    assert answer.headers["x-evenbins-upstream"] == answer.json()["replica"]
                    assert (int(answer.headers["x-evenbins-depth"]) > 0) == (turn > 0)
                    assert answer.headers["x-evenbins-reason"] == ("prefix" if turn else "new")
                    texts.append(f"more of {number} " * 20)
                assert len(used) == 1
                homes |= used
            assert len(homes) > 1
            status = router.status()["upstreams"].values()
            assert all(each["load"] == 0 and each["in_flight"] == 0 for each in status)

    go(test())


def test_a_replica_that_was_down_has_nothing_in_its_cache():
    async def test():
        options = {"key": "prompt", "policy": "prefix", "response_headers": True}
        async with fleet(1, **options) as (router, client, _):
            health, (name,) = router.pools["default"].fleet.health, router.ring.names
            depths = []
            for turn in range(4):
                answer = await client.post("/", json={"prompt": "x" * 3000})
                depths.append(int(answer.headers["x-evenbins-depth"]))
                if turn == 1:
                    health.failed(name, OSError("gone"), at_once=True)
                    assert (await client.post("/", json={"prompt": "x"})).status_code == 503
                    health.recovered(name)
            assert depths == [0, 3, 0, 3]

    go(test())


@pytest.mark.parametrize(("load", "ends"), [("work", True), ("requests", False)])
def test_work_ends_at_the_first_byte_and_requests_at_the_last(load, ends):
    async def test():
        async with fleet(1, key="prompt", policy="score", load=load) as (router, client, replicas):
            (replica,) = replicas.values()
            replica.hold.clear()
            async with client.stream("POST", "/", json={"prompt": "x" * 50}) as answer:
                await anext(answer.aiter_raw())
                (status,) = router.status()["upstreams"].values()
                assert status["in_flight"] == 1
                assert (status["load"] == 0) == ends
                replica.hold.set()
            await soon(lambda: router.status()["in_flight"] == 0)

    go(test())


def test_a_limit_bounds_requests_under_every_policy():
    async def test():
        for policy in ("hash", "prefix", "score"):
            async with fleet(2, key="prompt", policy=policy, limit=1) as (router, client, replicas):
                for each in replicas.values():
                    each.hold.clear()
                tasks = [asyncio.create_task(client.post("/", json={"prompt": "x"})) for _ in range(2)]
                await soon(lambda router=router: router.status()["in_flight"] == 2)
                assert (await client.post("/", json={"prompt": "x"})).status_code == 503
                for each in replicas.values():
                    each.hold.set()
                assert {(await each).json()["replica"] for each in tasks} == set(replicas)

    go(test())


def test_models_have_pools_of_their_own():
    async def test():
        async with fleet(3) as (inner, _, _):
            a, b, c = inner.ring.names
            pools = {"large": PoolConfig(["l", "l-lora"], [b]), "small": PoolConfig(["s"], [c])}
            for default, expected in (((a,), 200), ((), 404)):
                router = Router(RouterConfig(default, pools=pools, key="messages", max_body=1000))
                transport = httpx.ASGITransport(router)
                async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
                    for model, home in (("l", b), ("l-lora", b), ("s", c)):
                        answer = await client.post("/", json=chat("x") | {"model": model})
                        assert answer.json()["replica"] == home
                    assert (await client.post("/", json=chat("x") | {"model": "?"})).status_code == expected
                    assert (await client.get("/models")).status_code == 200
                    pools_shown = {each["pool"] for each in router.status()["upstreams"].values()}
                    assert pools_shown == {"large", "small"} | ({"default"} if default else set())
                await router.close()

    go(test())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "best"}, "policy must be"),
        ({"load": "x"}, "load must be"),
        ({"key": ["path", "cookie"]}, "key must be"),
        ({"block_bytes": 0}, "block_bytes must be"),
        ({"pools": {"p": PoolConfig(["m"], ["http://a:1"])}}, "distinct"),
        (
            {"pools": {"p": PoolConfig(["m"], ["http://b:1"]), "q": PoolConfig(["m"], ["http://c:1"])}},
            "each model once",
        ),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        RouterConfig(["http://a:1"], **options)
