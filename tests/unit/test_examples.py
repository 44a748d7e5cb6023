"""The programs of examples/: routes against `ipaddress`, the service against files that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import doctest
import importlib.util
import sys
from collections.abc import AsyncIterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import ModuleType

import httpx
import numpy as np
import pytest

from evenbins import BlockedBloomFilter, CountMinSketch

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    """Import a program of examples/."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


lpm = example("longest_prefix_match")
service = example("blocklist_service")


def test_the_examples_of_the_docstrings() -> None:
    for module in (lpm, service):
        assert doctest.testmod(module).failed == 0


# --- longest prefix match --------------------------------------------------------------------------------


def longest(networks: dict[IPv4Network, int], address: int) -> int:
    """Look through all routes."""
    text = IPv4Address(address)
    found = [(network.prefixlen, hop) for network, hop in networks.items() if text in network]
    return max(found, default=(0, -1))[1]


def random_routes(count: int, seed: int, *, default: bool) -> dict[IPv4Network, int]:
    bits, lengths, hops = lpm.make_routes(count, seed=seed)
    routes = {
        IPv4Network((int(bit), int(length))): int(hop)
        for bit, length, hop in zip(bits, lengths, hops, strict=True)
    }
    return {IPv4Network("0.0.0.0/0"): count} | routes if default else routes


@pytest.mark.parametrize(("seed", "default"), [(1, False), (2, True)])
def test_both_searches_find_the_longest_prefix(seed: int, default: bool) -> None:
    """2 * 2000 addresses and 400 routes, beside `ipaddress`; some routes lie in others."""
    networks = random_routes(400, seed, default=default)
    arrays = lpm.arrays_of(networks)
    addresses = lpm.make_addresses(2000, arrays[0], arrays[1], seed=seed)
    expected = [longest(networks, int(address)) for address in addresses]
    assert len({*expected}) > 100
    for routes in (lpm.Routes.from_arrays(*arrays), lpm.BinaryRoutes(*arrays)):
        assert routes.lookup_many(addresses).tolist() == expected
        assert [routes.lookup(int(address)) for address in addresses] == expected


def test_routes_come_and_go() -> None:
    """400 routes in, half of them out, some of these in again with another hop."""
    networks = random_routes(400, 3, default=False)
    routes = lpm.Routes(500)
    for network, hop in networks.items():
        routes.add(network, hop)
    for network in list(networks)[::2]:
        routes.remove(network)
        del networks[network]
    with pytest.raises(KeyError):
        routes.remove(IPv4Network("1.2.3.0/24"))
    for network in list(networks)[::3]:
        routes.add(network, 1000)
        networks[network] = 1000
    bits, lengths, _ = lpm.arrays_of(networks)
    addresses = lpm.make_addresses(1000, bits, lengths, seed=4)
    assert routes.lookup_many(addresses).tolist() == [longest(networks, int(each)) for each in addresses]


def test_without_routes_there_is_no_hop() -> None:
    assert lpm.Routes(10).lookup(7) == -1


def test_a_summary_saves_nearly_all_reads_as_planned() -> None:
    """20,000 routes, 1000 addresses: of 15,000 absent probes 15 +- 4 cost three reads each.

    0.06 reads of an address are five standard deviations.
    """
    bits, lengths, hops = lpm.make_routes(20_000, seed=5)
    addresses = lpm.make_addresses(1000, bits, lengths, seed=6)
    for routes in (lpm.Routes.from_arrays(bits, lengths, hops), lpm.BinaryRoutes(bits, lengths, hops)):
        of = lpm.cost(routes, routes.table, addresses)
        assert of.counted == pytest.approx(of.planned, abs=0.06)
        assert of.counted < of.present + 0.1
        bare = lpm.new_table(len(routes.table), summary=False)
        bare.insert_many(np.fromiter(routes.table.keys(), np.int64), 0)
        assert lpm.cost(routes, bare, addresses).counted > 3 * of.counted


# --- the blocklist service -------------------------------------------------------------------------------


def write(path: Path, *urls: str) -> None:
    filter_ = BlockedBloomFilter(100, fpr=1e-9)
    filter_.update(urls)
    filter_.save(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "blocked.evb", "https://bad.example/", "https://worse.example/")
    return tmp_path / "blocked.evb"


@contextlib.asynccontextmanager
async def serving(path: Path, **options: float) -> AsyncIterator[httpx.AsyncClient]:
    """Run the service, and give a client of it."""
    app = service.make_app(path, **options)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        yield client


def test_the_service_answers_for_one_and_for_many(path: Path) -> None:
    async def talk() -> None:
        async with serving(path) as client:
            for url, blocked in (("https://bad.example/", True), ("https://good.example/", False)):
                answer = await client.get("/check", params={"url": url})
                assert answer.json() == {"url": url, "blocked": blocked}
            body = b"https://good.example/\r\nhttps://worse.example/\r\n\xff\nhttps://bad.example/"
            answer = await client.post("/check", content=body)
            assert answer.content == b"https://worse.example/\nhttps://bad.example/\n"
            assert (await client.post("/check", content=b"")).content == b""
            assert (await client.get("/check")).status_code == 400
            too_much = await client.post("/check", content=b"x" * (service.MAX_BODY + 1))
            assert too_much.status_code == 413
            status = (await client.get("/status")).json()
            assert (status["loads"], status["error"]) == (1, None)
            assert status["plan"]["keys"] == 100
            assert status["stats"]["keys"] == pytest.approx(2, abs=0.5)

    asyncio.run(talk())


def test_a_replaced_file_takes_over_and_a_damaged_one_does_not(path: Path) -> None:
    blocklist = service.Blocklist(path)
    assert blocklist.refresh() is False
    write(path, "https://new.example/")
    assert blocklist.blocks("https://bad.example/")  # until somebody looks
    assert blocklist.refresh() is True
    assert (blocklist.blocks("https://new.example/"), blocklist.blocks("https://bad.example/")) == (
        True,
        False,
    )

    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    other = path.with_suffix(".new")
    other.write_bytes(damaged)
    other.replace(path)
    assert blocklist.refresh() is False
    assert "damaged" in blocklist.status()["error"]
    path.unlink()
    assert blocklist.refresh() is False
    assert "No such file" in blocklist.status()["error"]
    CountMinSketch(0.1, 0.1).save(path)  # a good file, but no filter
    assert blocklist.refresh() is False
    assert blocklist.blocks("https://new.example/")

    write(path, "https://last.example/")
    assert blocklist.refresh() is True
    assert blocklist.status()["error"] is None
    assert blocklist.loads == 3


def test_the_service_looks_by_itself(path: Path) -> None:
    async def talk() -> None:
        async with serving(path, every=0.001) as client:
            write(path, "https://new.example/")
            while (await client.get("/status")).json()["loads"] == 1:
                await asyncio.sleep(0.001)
            answer = await client.get("/check", params={"url": "https://new.example/"})
            assert answer.json()["blocked"]

    asyncio.run(talk())


def test_a_service_needs_a_good_file_to_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        service.make_app(tmp_path / "none.evb")
