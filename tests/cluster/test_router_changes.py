"""A router that changes while it serves: files, SIGHUP, replicas by requests; no stream ends early."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import signal
import subprocess
from pathlib import Path

import pytest
from http_replicas import Replica, fleet, go, served, soon
from router_servers import until
from test_route_command import COMMAND, ask, replica  # noqa: F401

from evenbins.cluster.http import PoolConfig, Router, RouterConfig
from evenbins.cluster.http_admin import apply_change
from evenbins.cluster.http_keys import RequestKey
from evenbins.cluster.http_pool import Pool
from evenbins.cluster.http_settings import TOKEN_VARIABLE, ServerSettings, read_settings

# --- files ----------------------------------------------------------------------------------------------

GOOD = """
host = "0.0.0.0"
port = 9090
key = ["messages", "client"]
policy = "score"
max_body = "2 MiB"
upstreams = ["http://a:1", "http://b:1=2.5"]
limit = 8

[backoff]
most = 3.0

[pools.large]
models = ["m", "n"]
upstreams = ["http://c:1"]
"""


def test_a_file_has_all_options(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    file = tmp_path / "route.toml"
    file.write_text(GOOD)
    settings = read_settings(file, {"port": 7, "limit": 9})
    config, server = settings.config, settings.server
    assert (server.host, server.port, config.limit) == ("0.0.0.0", 7, 9)
    assert config.upstreams == ("http://a:1", "http://b:1")
    assert config.weights == {"http://a:1": 1.0, "http://b:1": 2.5, "http://c:1": 1.0}
    assert (config.max_body, config.backoff.most, config.admin_token) == (2**21, 3.0, "secret")
    assert config.pools == {"large": PoolConfig(["m", "n"], ["http://c:1"])}
    from evenbins.cli.route import route

    options = {each.name for each in route.params} - {"config", "help"}
    fields = {each.name for kind in (RouterConfig, ServerSettings) for each in dataclasses.fields(kind)}
    assert options <= fields


def test_the_example_is_right():
    settings = read_settings(Path(__file__).parents[2] / "deploy" / "route.toml")
    assert (settings.config.policy, settings.server.host) == ("score", "127.0.0.1")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("limit = 8", "limit = "), "line 8"),
        (("limit = 8", "limits = 8"), "line 8: there is no option limits; did you mean limit?"),
        (("limit = 8", "limit = 'x'"), "line 8: limit must be"),
        (("limit = 8", "retries = -1"), "line 8: retries must be"),
        (("limit = 8", "workers = 2"), "line 8: workers must be 1"),
        (('"score"', '"best"'), "line 5: policy must be"),
        (('"client"', '"cookie"'), "line 4: key must be"),
        (("9090", "90900"), "line 3: port must be"),
        (("2 MiB", "2 furlongs"), "line 6: max_body"),
        (("http://b:1=2.5", "http://a:1"), "line 7: upstreams: http://a:1 is given twice"),
        (("http://b:1=2.5", "b:1"), "a URL such as"),
        (("http://b:1=2.5", "http://b:1=1.2.3"), "line 7: upstreams: 1.2.3 is no positive weight"),
        (("most = 3.0", "mist = 3.0"), "line 10: backoff has"),
        (('models = ["m", "n"]', "models = 3"), "line 13: pools.large: models must be"),
        (("[pools.large]", "[pools.default]"), "choose another name"),
        (("models", "modules"), "line 13: pools must be tables with models and upstreams"),
        (("GOOD", "\udcff"), "utf-8"),
    ],
)
def test_a_wrong_file_names_the_line(tmp_path, change, words):
    file = tmp_path / "route.toml"
    text = GOOD.replace(*change) if change[0] in GOOD else change[1]
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=re.escape(words)) as raised:
        read_settings(file)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_sighup_reads_the_file_again_and_a_wrong_one_changes_nothing(replica, tmp_path):  # noqa: F811
    file = tmp_path / "route.toml"
    file.write_text(f'upstreams = ["{replica}"]\nport = 0\n')
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen(
            [*COMMAND, "--config", str(file), "--access-log"], stderr=subprocess.PIPE, text=True
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stderr is not None
        stack.callback(process.stderr.close)
        port = int(process.stderr.readline().rpartition(":")[2])
        assert ask(port, "/x") == (200, b"ok")
        line = rf'127\.0\.0\.1 "GET /x" 200 2 \d+\.\d+ upstream={replica} depth=0 reason=hash rule=path\n'
        assert re.fullmatch(line, process.stderr.readline())
        for text, answer in (
            ("port = 0\nlimit = x", "not reloaded, the old configuration stays: "),
            (f'upstreams = ["{replica}=3"]\nport = 0\nlimit = 7', "reloaded: routing to 1\n"),
            (f'upstreams = ["{replica}"]\nport = 1', "; a restart is needed for port\n"),
        ):
            file.write_text(text)
            process.send_signal(signal.SIGHUP)
            assert answer in process.stderr.readline()
            assert ask(port, "/x")[0] == 200
            process.stderr.readline()
        file.unlink()
        process.send_signal(signal.SIGHUP)
        assert "not reloaded" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_sighup_without_a_file_ends_nothing(replica):  # noqa: F811
    process = subprocess.Popen(
        [*COMMAND, "--upstream", replica, "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition(":")[2])
        until(lambda: ask(port, "/x") == (200, b"ok"))
        process.send_signal(signal.SIGHUP)
        assert "there is no file to reload" in process.stderr.readline()
        assert ask(port, "/x") == (200, b"ok")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_sighup_ends_nothing_while_it_starts(replica, tmp_path):  # noqa: F811
    file = tmp_path / "route.toml"
    file.write_text(f'upstreams = ["{replica}"]\nport = 0\n')
    process = subprocess.Popen([*COMMAND, "--config", str(file)], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition(":")[2])
        process.send_signal(signal.SIGHUP)
        assert "reloaded: routing to 1" in process.stderr.readline()
        assert ask(port, "/x") == (200, b"ok")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


# --- under streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["hash", "score"])
def test_no_stream_ends_early_when_replicas_come_and_go(policy):
    """200 streams, each held open at its replica while all replicas but one are exchanged, twice."""

    async def test():
        async def stream(path):
            reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            return answer

        async with contextlib.AsyncExitStack() as stack:
            router, client, replicas = await stack.enter_async_context(fleet(4, policy=policy))
            more = [Replica() for _ in range(2)]
            for each in more:
                each.url = await stack.enter_async_context(served(each))
            every = [*replicas.values(), *more]
            for each in every:
                each.hold.clear()
            stack.callback(lambda: [each.hold.set() for each in more])
            streams = [asyncio.create_task(stream(f"/{number}")) for number in range(200)]
            await soon(lambda: router.status()["in_flight"] == 200)
            config = router.config
            router.reconfigure(
                dataclasses.replace(config, upstreams=[every[0].url, more[0].url, more[1].url], weights=None)
            )
            assert set(router.ring.names) == {every[0].url, more[0].url, more[1].url}
            streams += [asyncio.create_task(stream(f"/late/{number}")) for number in range(20)]
            await soon(lambda: sum(len(each.seen) for each in every) == 220)
            assert any(each.seen for each in more)
            router.reconfigure(dataclasses.replace(router.config, limit=500, retries=1))
            router.pools["default"].add(every[1].url, 2.0)
            router.pools["default"].remove(every[0].url)
            for each in every:
                each.hold.set()
            answers = await asyncio.gather(*streams)
            assert all(each.startswith(b"HTTP/1.1 200 ") for each in answers)
            assert all(each.endswith(b"}\r\n0\r\n\r\n") for each in answers)  # whole
            assert (await client.get("/after")).status_code == 200
            assert router.status()["in_flight"] == 0
            assert router.status()["aborted"] == {}

    go(test())


# --- by requests ----------------------------------------------------------------------------------------


def test_replicas_are_changed_by_those_who_have_the_token():
    async def test():
        async with fleet(3, admin_token="s3cret") as (router, client, replicas):
            one, two, _ = replicas
            good = {"Authorization": "Bearer s3cret"}

            async def change(what, status, headers=good, **parameters):
                answer = await client.post(f"/-/{what}", params=parameters, headers=headers)
                assert answer.status_code == status, answer.text
                return answer

            for wrong in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"},
                          {"Authorization": "Bearer"}, {"Authorization": b"Bearer \xe4"}):  # fmt: skip
                for what in ("add", "remove", "weight", "drain", "undrain"):
                    answer = await change(what, 401, wrong, upstream=one)
                    assert answer.headers["www-authenticate"] == "Bearer"
            twice = [("Authorization", "Bearer s3cret"), ("Authorization", "Bearer x")]
            await change("drain", 401, twice, upstream=one)
            assert (await change("drain", 200, upstream=one)).json()[one]["state"] == "draining"
            assert (await change("undrain", 200, upstream=one)).json()[one]["state"] == "up"
            assert (await change("weight", 200, upstream=one, weight="2.5")).json()[one]["weight"] == 2.5
            assert router.ring.weights[one] == 2.5
            for weight in ("0", "-1", "nan", "inf", "x", ""):
                await change("weight", 400, upstream=one, weight=weight)
                await change("add", 400, upstream="http://new:1", weight=weight or "y")
            await change("weight", 400, upstream=one)
            await change("remove", 200, upstream=two)
            assert two not in router.ring.names
            for number in range(20):
                assert (await client.get(f"/{number}")).json()["replica"] != two
            await change("remove", 400, upstream=two)
            await change("add", 200, upstream=two, weight="3")
            await change("add", 409, upstream=two)
            await change("add", 400, upstream="ftp://x")
            await change("add", 400, upstream="http://new:1", pool="none")
            await change("add", 400)
            assert {(await client.get(f"/{number}")).json()["replica"] for number in range(40)} == set(
                replicas
            )
            for each in (two, one):
                await change("remove", 200, upstream=each)
            await change("remove", 409, upstream=router.ring.names[0])
            assert (await client.get("/-/add", headers=good)).status_code == 405

    go(test())


def test_without_a_token_only_draining_is_possible():
    async def test():
        async with fleet(1) as (router, client, _):
            (name,) = router.ring.names
            for what in ("add", "remove", "weight"):
                assert (await client.post(f"/-/{what}", params={"upstream": name})).status_code == 403
            assert (await client.post("/-/drain", params={"upstream": name})).status_code == 200

    go(test())


def test_the_token_is_not_shown():
    config = RouterConfig(["http://a:1"], admin_token="s3cret")
    assert "s3cret" not in repr(config)
    with pytest.raises(ValueError, match="must not be empty"):
        RouterConfig(["http://a:1"], admin_token=" ")


@pytest.mark.parametrize("policy", ["hash", "score"])
def test_replicas_that_came_and_went_leave_nothing_in_a_pool(policy):
    async def main():
        names = ["http://a:1"]
        pool = Pool(RouterConfig(names, policy=policy, limit=1, breaker_failures=1), names, {})
        for number in range(20):
            pool.add(f"http://pod{number}:1")
            places = [await pool.admit(RequestKey(key, (key,))) for key in range(2)]
            pool._bad[f"http://pod{number}:1"] += 1
            pool.remove(f"http://pod{number}:1")
            for place in places:
                place.release()
        assert [len(each) for each in (pool.in_flight, pool._bad, pool.breakers, pool._urls)] == [1, 0, 1, 1]

    asyncio.run(main())


def test_a_reload_without_the_memory_for_it_closes_nothing():
    async def main():
        config = RouterConfig(["http://127.0.0.1:1"], policy="score", cache_blocks=100)
        router = Router(config)
        pool = router.pools["default"]
        with pytest.raises(MemoryError):
            router.reconfigure(dataclasses.replace(config, cache_blocks=2**40))
        await asyncio.sleep(0)
        assert router.pools == {"default": pool}
        assert router.config is config
        assert not pool.fleet._closed
        assert not pool.connections["http://127.0.0.1:1"]._closed
        await router.close()

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["hash", "score"])
def test_a_reload_may_change_weights_by_any_factor(policy):
    async def main():
        names = ["http://a:1", "http://b:1"]
        router = Router(RouterConfig(names, policy=policy))
        for weights in ({names[0]: 8e10, names[1]: 4e10}, {names[0]: 1.0, names[1]: 1e-3}, {names[1]: 1e9}):
            config = RouterConfig(list(weights), policy=policy, weights=weights)
            router.reconfigure(config)
            assert router.ring.weights == weights
            assert router.config is config
            (await router.admit(router.pools["default"], RequestKey("key", (1,)), ())).release()
        assert apply_change(router, "weight", {"upstream": names[1], "weight": "1e40"})[0] == 400
        await router.close()

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["hash", "score"])
def test_replicas_stay_down_and_drained_when_loads_are_counted_anew(policy):
    async def main():
        names = ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"]
        config = RouterConfig(names, policy=policy)
        router = Router(config)
        router.drain(names[0])
        router.pool_with(names[1]).fleet.health.failed(names[1], OSError("refused"), at_once=True)
        router.reconfigure(dataclasses.replace(config, limit=5))
        assert list(router.ring.states.values()) == ["draining", "down", "up"]
        pools = {"other": PoolConfig(["model"], names[:2])}
        router.reconfigure(dataclasses.replace(config, upstreams=names[2:], pools=pools))
        assert list(router.pools["other"].ring.states.values()) == ["draining", "down"]
        router.undrain(names[0])
        assert router.pools["other"].ring.states[names[0]] == "up"
        await router.close()

    asyncio.run(main())
