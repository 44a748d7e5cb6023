"""The HTTP router between real sockets: what it passes on, whom it asks, what it answers to failures."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import random

import httpx
import pytest
from http_replicas import fleet, go, raw, served, soon
from scipy.stats import binom

from evenbins.cluster.health import Backoff
from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.http_keys import KeyRule
from evenbins.errors import ArgumentError, ArgumentTypeError

QUICK = Backoff(first=0.05, factor=1.5, most=0.2)


# --- keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("path", KeyRule("path")),
        ("url", KeyRule("url")),
        ("header:X-User", KeyRule("header", "x-user")),
        ("json:prompt", KeyRule("json", "prompt")),
        ("json:messages.0.content:256", KeyRule("json", "messages.0.content", 256)),
    ],
)
def test_rules_are_read(text, rule):
    assert KeyRule.parse(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "paths",
        "path:",
        "header",
        "header:",
        "header:a b",
        "json",
        "json:",
        "json:a:0",
        "json:a:x",
        "json:a..b",
    ],
)
def test_other_texts_are_no_rules(text):
    with pytest.raises(
        ValueError, match="key must be path, url, client, messages, prompt, header:NAME or json"
    ):
        KeyRule.parse(text)


@pytest.mark.parametrize(
    ("rule", "body", "key"),
    [
        ("json:prompt:3", '{"prompt": "abcdef"}', "abc"),
        ("json:prompt", '{"prompt": "äöü"}', "äöü"),
        ("json:messages.1.content", '{"messages": [{}, {"content": "x"}]}', "x"),
        ("json:messages", '{"messages": [{"b": 1, "a": 2}]}', '[{"a":2,"b":1}]'),
        ("json:n", '{"n": 17}', "17"),
        ("json:prompt", '{"prompt": "\\ud800"}', "?"),
    ],
)
def test_keys_of_bodies(rule, body, key):
    assert KeyRule.parse(rule).of_body(json.loads(body)) == key


# --- arguments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"upstreams": "http://a:1"}, TypeError, "several URLs"),
        ({"upstreams": []}, ValueError, "at least one"),
        ({"upstreams": 7}, TypeError, "several URLs"),
        ({"failures": 0}, ValueError, "failures must be"),
        ({"wait": -1}, ValueError, "wait must be"),
        ({"retries": 1.5}, TypeError, "retries must be"),
        ({"total_timeout": 0}, ValueError, "total_timeout must be"),
        ({"seed": -1}, ValueError, "seed must be"),
        ({"upstreams": ["a:1"]}, ValueError, "a URL such as"),
        ({"upstreams": ["http://a:99999"]}, ValueError, "a URL such as"),
        ({"upstreams": ["http://u:p@a:1"]}, ValueError, "a URL such as"),
        ({"upstreams": ["http://a:1", "http://a:1"]}, ValueError, "distinct"),
        ({"key": "cookie"}, ValueError, "key must be"),
        ({"epsilon": -1}, ValueError, "epsilon"),
        ({"epsilon": 0.1, "limit": 3}, ValueError, "exclude each other"),
        ({"health_path": "x"}, ValueError, "begin with '/'"),
        ({"read_timeout": 0}, ValueError, "read_timeout must be a number of seconds above 0"),
        ({"weights": {"http://b:1": 2}}, ValueError, "which is no node"),
        ({"body_buffer": -1}, ValueError, "body_buffer must be an integer"),
        ({"trusted_proxies": "10.0.0.0/8"}, TypeError, "several networks"),
        ({"trusted_proxies": ["10.0.0.0/33"]}, ValueError, "addresses or networks such as"),
        ({"trusted_proxies": ["proxy.example"]}, ValueError, "Names are not looked up"),
        ({"trusted_proxies": [7]}, TypeError, "addresses or networks such as"),
    ],
)
def test_wrong_arguments_are_refused(options, error, words):
    options = {"upstreams": ["http://a:1"]} | options
    with pytest.raises(error, match=words) as raised:
        RouterConfig(**options)
    assert isinstance(raised.value, ArgumentError | ArgumentTypeError)


def test_a_config_is_frozen_and_can_be_varied():
    config = RouterConfig(iter(["http://a:1", "http://b:1"]), weights={"http://b:1": 2}, seed=12345)
    assert config.upstreams == ("http://a:1", "http://b:1")
    assert "12345" not in repr(config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.limit = 3
    assert dataclasses.replace(config, limit=3).limit == 3
    assert Router(config).ring.weights == {"http://a:1": 1.0, "http://b:1": 2.0}
    with pytest.raises(TypeError, match="config must be a RouterConfig"):
        Router(["http://a:1"])


# --- what is passed on ----------------------------------------------------------------------------------


def test_requests_and_answers_pass_as_they_are():
    async def test():
        async with fleet(1) as (router, client, _):
            for _turn in range(2):
                client.cookies.clear()  # the router must not keep any, this client does
                answer = await client.request(
                    "PATCH", "/a%2Fb/%C3%A4;x?q=1&q=%20", content=b"\x00\xff" * 5000,
                    headers=[("X-Twice", "1"), ("X-Twice", "2"), ("Connection", "X-Mine"), ("TE", "trailers"),
                             ("X-Mine", "secret"), ("X-Forwarded-For", "10.9.9.9"),
                             ("X-Forwarded-Proto", "https")],
                )  # fmt: skip
                assert answer.status_code == 200
            seen = answer.json()
            assert seen["method"] == "PATCH"
            assert seen["target"] == "/a%2Fb/%C3%A4;x?q=1&q=%20"
            assert seen["body"] == "\x00\xff" * 5000
            headers = [(name, value) for name, value in seen["headers"]]
            names = [name for name, _ in headers]
            assert [value for name, value in headers if name == "x-twice"] == ["1", "2"]
            assert not {"x-mine", "te", "connection", "cookie"} & set(names)
            told = dict(headers)
            assert told["host"] == router.ring.names[0].removeprefix("http://")
            assert told["x-forwarded-for"] == "10.9.9.9, 127.0.0.1"
            assert told["x-forwarded-proto"] == "https"  # of a proxy on this machine, which is trusted
            assert told["x-forwarded-host"] == str(client.base_url).removeprefix("http://").rstrip("/")
            assert told["content-length"] == "10000"
            assert names.count("host") == names.count("user-agent") == 1
            assert answer.headers.get_list("x-own") == ["1", "2"]
            assert "keep-alive" not in answer.headers
            assert answer.headers["set-cookie"] == "a=b"
            assert (await client.head("/x")).content == b""

    go(test())


def test_a_path_of_the_upstream_comes_first_and_the_host_may_be_kept():
    async def test():
        async with fleet(1) as (router, _, _):
            other = Router(RouterConfig([router.ring.names[0] + "/base/"], keep_host=True))
            async with (
                served(other) as url,
                httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as client,
            ):
                seen = (await client.get(url + "/x", headers={"host": "example.org"})).json()
            assert seen["target"] == "/base/x?"
            assert dict(seen["headers"])["host"] == "example.org"

    go(test())


def test_bodies_stream_both_ways():
    """Beyond the bytes that are kept in memory: none here."""

    async def test():
        async with fleet(1, body_buffer=0) as (_, client, replicas):
            (replica,) = replicas.values()
            replica.hold.clear()
            rest = asyncio.Event()

            async def body():
                yield b"first"
                await asyncio.wait_for(rest.wait(), 10)
                yield b"last"

            async def listen():
                async with client.stream("POST", "/", content=body()) as answer:
                    pieces = answer.aiter_raw()
                    assert await anext(pieces) == b" "  # the answer's head and first piece, its end held back
                    replica.hold.set()
                    return b"".join([piece async for piece in pieces])

            task = asyncio.create_task(listen())
            await asyncio.wait_for(replica.began.wait(), 10)  # the first piece came before the last was sent
            assert replica.pieces == [b"first"]
            rest.set()
            assert json.loads(await task)["body"] == "firstlast"

    go(test())


def test_large_bodies_pass_whole_in_both_directions():
    async def echo(scope, receive, send):
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        body = []
        while more:
            message = await receive()
            body.append(message.get("body", b""))
            more = message.get("more_body", False)
        for piece in body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def test():
        data = random.Random(5).randbytes(6_000_000)

        async def chunks():
            for start in range(0, len(data), 100_000):
                yield data[start : start + 100_000]

        async with served(echo) as inner:
            for options, content in (
                ({"key": "path"}, data), ({"key": "url"}, chunks()), ({"body_buffer": 10**7}, chunks()),
            ):  # fmt: skip
                async with served(Router(RouterConfig([inner], **options))) as url:
                    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=20) as client:
                        answer = await client.post(url, content=content)
                    assert answer.content == data

    go(test())


# --- who is asked ---------------------------------------------------------------------------------------


def test_equal_keys_meet_the_same_replica_by_every_rule():
    async def test():
        cases = [
            ("path", [{"url": f"/p?{n}"} for n in range(5)]),
            ("header:x-user", [{"url": f"/{n}", "headers": {"X-User": "7"}} for n in range(5)]),
            ("json:p:4", [{"url": f"/{n}", "json": {"p": f"same{n}", "q": n}} for n in range(5)]),
        ]
        for rule, requests in cases:
            async with fleet(4, key=rule) as (router, client, _):
                used = {(await client.request("POST", **each)).json()["replica"] for each in requests}
                assert len(used) == 1
                spread = set()
                for number in range(40):
                    text = f"{number:04}"
                    answer = await client.request(
                        "POST", f"/{text}", headers={"X-User": text}, json={"p": text}
                    )
                    expected = {"path": "/" + text, "header:x-user": text, "json:p:4": text}[rule]
                    assert answer.json()["replica"] == router.ring.node(expected)
                    spread.add(answer.json()["replica"])
                assert len(spread) == 4

    go(test())


def test_a_rule_that_does_not_apply_is_passed_over():
    async def test():
        rules = ["json:prompt", "header:x-user"]
        async with fleet(4, key=rules, max_body=1000) as (router, client, replicas):

            async def pieces():
                for _ in range(20):
                    yield b"x" * 100

            for body in (b"{", b"[]", b"{}", b"\xff", b'{"prompt": "' + b"x" * 2000 + b'"}', pieces()):
                for path, headers in (("/a", {"X-User": "7"}), ("/b", {"X-User": "7"}), ("/a", {})):
                    answer = await client.post(path, content=body, headers=headers)
                    if not isinstance(body, bytes):
                        body = pieces()
                    expected = router.ring.node("7" if headers else path)
                    assert (answer.status_code, answer.json()["replica"]) == (200, expected)
            assert (await client.get("/models")).json()["replica"] == router.ring.node("/models")
            assert router.status()["rejected"] == {}
            assert sum(len(each.seen) for each in replicas.values()) == 19

    go(test())


def test_a_full_replica_passes_a_key_on_always_to_the_same_one_and_503_comes_last():
    async def test():
        async with fleet(3, limit=1) as (router, client, replicas):
            order = router.ring.candidates("/hot")
            for each in replicas.values():
                each.hold.clear()
            for _ in range(3):
                tasks = []
                for number, name in enumerate(order):
                    tasks.append(asyncio.create_task(client.get("/hot")))
                    await soon(lambda name=name: router.ring.lease_loads()[name] == 1)
                    assert sum(router.ring.lease_loads().values()) == number + 1
                answer = await client.get("/hot")
                assert answer.status_code == 503
                assert answer.headers["retry-after"] == "1"
                assert answer.text == "all upstreams are at their limit of requests: try again\n"
                for each in replicas.values():
                    each.hold.set()
                assert [(await task).json()["replica"] for task in tasks] == list(order)
                for each in replicas.values():
                    each.hold.clear()
            assert router.status()["rejected"] == {"full": 3}
            assert router.status()["jumps"] == 6

    go(test())


def test_a_request_may_wait_for_room():
    async def test():
        async with fleet(1, limit=1, wait=10.0) as (router, client, replicas):
            (replica,) = replicas.values()
            replica.hold.clear()
            first = asyncio.create_task(client.get("/a"))
            await soon(lambda: router.status()["in_flight"] == 1)
            second = asyncio.create_task(client.get("/b"))
            await asyncio.sleep(0.1)
            assert not second.done()
            replica.hold.set()
            assert {(await first).status_code, (await second).status_code} == {200}

    go(test())


def test_weights_share_requests_and_limits():
    """4000 keys; the heavier replica's are Binomial(4000, 3/4)."""

    async def test():
        async with fleet(2) as (router, _, _):
            small, large = router.ring.names
            weighted = Router(RouterConfig([small, large], weights={large: 3.0}, limit=2))
            counts = [weighted.ring.node(key) for key in range(4000)].count(large)
            least, most = binom.interval(1 - 1e-6, 4000, 3 / 4)
            assert least <= counts <= most
            async with (
                served(weighted) as url,
                httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as client,
            ):
                status = (await client.get(url + "/-/status")).json()
            assert [status["upstreams"][each]["weight"] for each in (small, large)] == [1.0, 3.0]

    go(test())


# --- failures -------------------------------------------------------------------------------------------


def test_a_client_that_leaves_ends_the_request_and_its_lease():
    async def test():
        async with fleet(1, body_buffer=0) as (router, client, replicas):
            (replica,) = replicas.values()
            replica.hold.clear()
            host, port = client.base_url.host, client.base_url.port
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")
            await reader.readuntil(b"\r\n\r\n")
            assert router.status()["in_flight"] == 1
            writer.close()
            await asyncio.wait_for(replica.cancelled.wait(), 10)
            await soon(lambda: router.status()["in_flight"] == 0)
            assert router.status()["aborted"] == {"client": 1}
            reader, writer = await asyncio.open_connection(host, port)  # one that leaves within its body
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab")
            await soon(lambda: router.status()["in_flight"] == 1)
            writer.close()
            await soon(lambda: router.status()["in_flight"] == 0)
            assert router.status()["aborted"] == {"client": 2}
            assert set(router.ring.states.values()) == {"up"}

    go(test())


def test_a_client_that_leaves_before_the_answer_frees_its_place_too():
    async def silent(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        came.set()
        await reader.read()  # until the router hangs up
        left.set()

    async def test():
        async with raw(silent) as url:
            router = Router(RouterConfig([url]))
            async with served(router) as own:
                for method in (b"GET", b"DELETE"):
                    port = int(own.rpartition(":")[2])
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(method + b" / HTTP/1.1\r\nHost: x\r\n\r\n")
                    await asyncio.wait_for(came.wait(), 10)
                    assert router.status()["in_flight"] == 1
                    writer.close()
                    await asyncio.wait_for(left.wait(), 10)
                    await soon(lambda: router.status()["in_flight"] == 0)
                    came.clear()
                    left.clear()
                assert router.status()["aborted"] == {"client": 2}
                assert router.ring.states == {url: "up"}

    came, left = asyncio.Event(), asyncio.Event()
    go(test())


def test_a_replica_that_is_gone_is_passed_over_marked_down_and_found_again():
    async def test():
        async with fleet(2) as (inner, _, _):
            async with raw(lambda reader, writer: asyncio.sleep(0)) as dead:
                pass  # a port where nobody listens any more
            router = Router(RouterConfig([*inner.ring.names, dead], backoff=QUICK, failures=1))
            paths = [f"/{n}" for n in range(400)]
            before = {path: router.ring.node(path) for path in paths}
            mine = [path for path in paths if before[path] == dead]

            async def body():
                yield b"streamed"

            async with (
                served(router) as url,
                httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60) as client,
            ):
                answer = await client.post(mine[0], content=body())  # nothing was sent: it is repeated
                assert answer.json()["body"] == "streamed"
                assert router.ring.states[dead] == "down"
                during = {path: router.ring.node(path) for path in paths}
                assert all(during[path] == before[path] for path in paths if path not in mine)
                assert (await client.get(mine[1])).status_code == 200
                status = (await client.get("/-/status")).json()["upstreams"][dead]
                assert status["state"] == "down"
                assert "Connect" in status["error"]  # the request's ConnectError, or the probe's since then
                port = int(dead.rpartition(":")[2])
                server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)
                await soon(lambda: router.ring.states[dead] == "up")
                assert {path: router.ring.node(path) for path in paths} == before
                server.close()

    go(test())


def test_only_safe_requests_are_repeated_once_something_was_sent():
    async def hang_up(reader, writer):
        await reader.readuntil(b"\r\n\r\n")

    async def test():
        async with fleet(1) as (inner, _, _), raw(hang_up) as rude:
            router = Router(RouterConfig([*inner.ring.names, rude], failures=100))
            path = next(f"/{n}" for n in range(99) if router.ring.node(f"/{n}") == rude)
            async with (
                served(router) as url,
                httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60) as client,
            ):
                for method in ("GET", "HEAD", "OPTIONS"):
                    assert (await client.request(method, path)).status_code == 200
                assert router.status()["repeats"] == 3
                for method in ("POST", "PUT", "DELETE"):
                    answer = await client.request(method, path)
                    assert answer.status_code == 502
                    assert answer.text == "upstream failed (RemoteProtocolError)\n"
                assert (await client.request("GET", path, content=b"x")).status_code == 502
                assert (await client.request("DELETE", path)).status_code == 502
                assert router.status()["repeats"] == 3
                assert router.status()["in_flight"] == 0

    go(test())


def test_no_replica_at_all_is_503():
    async def test():
        async with raw(lambda reader, writer: asyncio.sleep(0)) as dead:
            pass
        router = Router(RouterConfig([dead], failures=1))
        async with (
            served(router) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60) as client,
        ):
            first = await client.get("/")
            assert first.status_code in (502, 503)
            answer = await client.get("/")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert (await client.get("/-/healthy")).status_code == 503

    go(test())


def test_slow_replicas_are_504_and_not_down():
    async def silent(reader, writer):
        await reader.read(100)
        await asyncio.sleep(5)

    async def test():
        async with raw(silent) as slow:
            for options in ({"read_timeout": 0.1}, {"total_timeout": 0.1}):
                router = Router(RouterConfig([slow], failures=1, **options))
                async with (
                    served(router) as url,
                    httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60) as client,
                ):
                    answer = await client.get("/")
                    assert answer.status_code == 504
                    assert answer.text.count("\n") == 1
                    assert set(router.ring.states.values()) == {"up"}
                    assert router.status()["in_flight"] == 0

    go(test())


def test_an_answer_that_breaks_off_breaks_off_here_too():
    async def broken(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()

    async def test():
        async with raw(broken) as url:
            router = Router(RouterConfig([url], failures=100))
            async with (
                served(router) as own,
                httpx.AsyncClient(base_url=own, trust_env=False, verify=False, timeout=60) as client,
            ):
                with pytest.raises(httpx.RemoteProtocolError):
                    await client.get("/")
                assert router.status()["aborted"] == {"upstream": 1}
                assert router.status()["in_flight"] == 0
                upstream = router.status()["upstreams"][url]
                assert (upstream["broken"], upstream["failures"]) == (1, 0)

    go(test())


def test_checks_take_a_replica_out_and_put_it_back():
    async def test():
        options = {"health_path": "/health", "health_interval": 0.05, "failures": 2, "backoff": QUICK}
        async with fleet(3, **options) as (router, client, replicas):
            assert (await client.get("/x")).status_code == 200
            ill = replicas[router.ring.names[0]]
            ill.health = 500
            await soon(lambda: router.ring.states[ill.url] == "down")
            assert "/health answered 500" in router.status()["upstreams"][ill.url]["error"]
            asked = len(ill.seen)
            for number in range(30):
                assert (await client.get(f"/{number}")).status_code == 200
            assert len(ill.seen) == asked
            ill.health = 204
            await soon(lambda: router.ring.states[ill.url] == "up")

    go(test())


# --- pages of its own -----------------------------------------------------------------------------------


def test_drain_by_request_from_this_machine():
    async def test():
        async with fleet(2) as (router, client, replicas):
            name, other = router.ring.names
            mine = next(f"/{n}" for n in range(99) if router.ring.node(f"/{n}") == name)
            replicas[name].hold.clear()
            under_way = asyncio.create_task(client.get(mine))
            await soon(lambda: router.status()["in_flight"] == 1)
            answer = await client.post("/-/drain", params={"upstream": name})
            assert answer.json()[name]["state"] == "draining"
            assert (await client.get(mine)).json()["replica"] == other
            replicas[name].hold.set()
            assert (await under_way).json()["replica"] == name
            answer = await client.post("/-/undrain", params={"upstream": name})
            assert answer.json()[name]["state"] == "up"
            assert (await client.get(mine)).json()["replica"] == name
            assert (await client.get("/-/drain", params={"upstream": name})).status_code == 405
            assert (await client.post("/-/drain", params={"upstream": "http://x"})).status_code == 400
            page = {"Origin": "http://evil.example"}
            refused = await client.post("/-/drain", params={"upstream": name}, headers=page)
            assert refused.status_code == 403
            assert (await client.get("/-/nothing")).status_code == 404
            assert (await client.get("/-/healthy")).text == "ok\n"

    go(test())


def test_metrics_are_prometheus_text():
    async def test():
        async with fleet(2) as (router, client, _):
            for number in range(10):
                await client.get(f"/{number}")
            answer = await client.get("/-/metrics")
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            values = {}
            for line in answer.text.splitlines():
                if line.startswith("#"):
                    assert line.split()[1] in ("HELP", "TYPE")
                else:
                    name, _, value = line.rpartition(" ")
                    assert name not in values
                    values[name] = float(value)
            names = [
                f'evenbins_route_requests_total{{upstream="{each}",code="200"}}' for each in router.ring.names
            ]
            counted = [values.get(name, 0) for name in names]
            assert sum(counted) == 10
            for each, count in zip(router.ring.names, counted, strict=True):
                assert values[f'evenbins_route_up{{upstream="{each}"}}'] == 1
                assert values[f'evenbins_route_in_flight{{upstream="{each}"}}'] == 0
                bucket = f'evenbins_route_first_byte_seconds_bucket{{upstream="{each}",le="+Inf"}}'
                assert values.get(bucket, 0) == count

    go(test())


def test_it_works_inside_another_application_without_lifespan():
    async def test():
        async with fleet(1) as (inner, _, _):
            router = Router(RouterConfig(inner.ring.names))
            transport = httpx.ASGITransport(router)
            async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
                assert (await client.get("/x")).json()["target"] == "/x?"
            await router.close()

    go(test())


def test_a_target_that_is_no_path_is_refused():
    async def test():
        async with fleet(1) as (_, client, replicas):
            for target in (b"http://127.0.0.1:9/x", b"*"):
                reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
                writer.write(b"OPTIONS " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answer = await reader.read()
                assert answer.startswith(b"HTTP/1.1 400 ")
                assert b"this is no forward proxy" in answer
                writer.close()
            assert [each.seen for each in replicas.values()] == [[]]

    go(test())


def test_a_web_socket_is_refused():
    async def test():
        sent = []

        async def receive():
            return {"type": "websocket.connect"}

        async def send(message):
            sent.append(message)

        await Router(RouterConfig(["http://127.0.0.1:1"]))({"type": "websocket", "path": "/"}, receive, send)
        assert sent[0]["type"] == "websocket.close"

    with contextlib.suppress(asyncio.CancelledError):
        go(test())
