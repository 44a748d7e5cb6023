"""The answers of the page Rings: they are those of HashRing, whatever happens to the servers."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from evenbins import HashRing
from evenbins.study.lab.app import create_app
from evenbins.study.lab.rings import MAX_EVENTS, fixed_limit, parse, replay, theory

VIEW: dict[str, Any] = {
    "servers": 12, "keys": 120, "epsilon": 0.25, "bound": "fixed", "copies": 1, "seed": 5,
}  # fmt: skip
CHURN = "k100.x3.k10.a.d7.u3.r5.k15.x12.u7"


def run(python: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(python, names)
    return names


def numbered(loads: dict[str, int]) -> dict[int, int]:
    return {int(name[1:]): load for name, load in loads.items()}


@pytest.mark.parametrize("bound", ["fixed", "growing"])
@pytest.mark.parametrize("copies", [1, 7])
def test_steps_add_up_to_the_rings_of_the_python_text(bound: str, copies: int) -> None:
    found = replay(**VIEW | {"bound": bound, "copies": copies}, events=CHURN)
    rings = run(found["python"])["rings"]
    for policy, ring in rings.items():
        loads = dict(found["start"][policy]["loads"])
        for step in found["steps"]:
            side = step[policy]
            if step["kind"] == "k":
                loads[side["node"]] += 1
            else:
                after = dict(loads)
                for _, old, new in side["moves"]:
                    after[old] -= 1
                    after[new] = after.get(new, 0) + 1
                loads = side["loads"]
                assert loads == {server: after.get(server, 0) for server in loads}, step
        assert loads == numbered(ring.loads())
        last, stats = found["steps"][-1][policy], ring.stats()
        assert last["full"] == round(stats.full * stats.serving)
        assert last["variance"] == pytest.approx(stats.variance, abs=1e-3)
        assert last["searches"] == pytest.approx(stats.placed_searches, abs=1e-3)
        assert last["next"] == pytest.approx(stats.searches, abs=1e-3)
        assert last["limit"] == max(limit for limit in ring.limits().values() if limit)


def test_the_path_of_a_key_ends_where_the_key_is() -> None:
    found = replay(**VIEW | {"epsilon": 0.05}, events="k110")
    for policy in ("clockwise", "jump"):
        paths = [step[policy]["path"] for step in found["steps"]]
        assert all(path[-1] == step[policy]["node"] for path, step in zip(paths, found["steps"], strict=True))
        assert all(len(path) == len(set(path)) for path in paths)
        assert max(map(len, paths)) > 1, policy


def test_a_clockwise_path_follows_the_order_of_the_circle() -> None:
    found = replay(**VIEW, events="k110")
    order = found["start"]["order"]
    assert sorted(order) == list(range(12))
    for step in found["steps"]:
        path = step["clockwise"]["path"]
        at = order.index(path[0])
        assert path == [order[(at + i) % 12] for i in range(len(path))]


def test_a_killed_server_falls_on_its_neighbour_or_on_all() -> None:
    found = replay(**VIEW | {"epsilon": 1.0}, events="k110.x3")
    order, last = found["start"]["order"], found["steps"][-1]
    targets = {policy: {new for _, _, new in last[policy]["moves"]} for policy in ("clockwise", "jump")}
    after = [order[(order.index(3) + i) % 12] for i in range(1, 12)]
    assert targets["clockwise"] <= set(after[: len(targets["clockwise"])]) | set(after[:4])
    assert len(targets["jump"]) > len(targets["clockwise"])


def test_a_full_ring_refuses_and_the_text_still_runs() -> None:
    found = replay(**VIEW | {"keys": 24, "epsilon": 0.02}, events="k60.r1")
    assert found["steps"][-2]["jump"]["node"] is None
    assert "refused" in found["steps"][-1]["jump"]
    rings = run(found["python"])["rings"]
    assert rings["jump"].key_count == rings["clockwise"].key_count == 12 * fixed_limit(24, 12, 0.02)


def test_all_servers_down_is_no_failure() -> None:
    found = replay(**VIEW | {"servers": 2}, events="k5.x0.x1.k2")
    assert found["steps"][-1]["jump"]["node"] is None
    run(found["python"])


@pytest.mark.parametrize(
    ("events", "part"),
    [
        ("k0", "is no event"), ("q3", "is no event"), ("k5..a", "is no event"), ("x12", "names server 12"),
        ("r3.u3", "names server 3"), ("k1000.k201", "at most 1200 keys"),
        (".".join(["a"] * 49), "room for 60 servers"), (".".join(["k1"] * (MAX_EVENTS + 1)), "at most 60"),
    ],
)  # fmt: skip
def test_wrong_events_are_refused_in_words(events: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        parse(events, 12)


def test_theory_is_that_of_the_laws() -> None:
    """400 rings of 20 servers: mean variance and full servers within five standard errors, seeds 0 … 399."""
    given = {"servers": 20, "keys": 200, "epsilon": 0.25, "bound": "fixed", "limit": 13, "copies": 1}
    found = theory(**given)
    assert found["clockwise"]["full"] > 2 * found["jump"]["full"]
    full, variance = [], []
    for seed in range(400):
        ring = HashRing([f"s{i}" for i in range(20)], limit=13, seed=seed)
        ring.assign_many(np.arange(200))
        loads = list(ring.loads().values())
        full.append(sum(load >= 13 for load in loads))
        variance.append(np.var(loads))
    for name, seen in (("full", full), ("variance", variance)):
        error = np.std(seen) / 20
        assert abs(np.mean(seen) - found["jump"][name]) < 5 * error + 0.03 * found["jump"][name], name
    assert theory(**given | {"copies": 7})["clockwise"] is None
    assert theory(**given | {"bound": "growing"})["clockwise"] is None
    assert theory(**given | {"keys": 0}) == {"clockwise": None, "jump": None}
    assert theory(**given | {"limit": None}) == found


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(create_app(), base_url="http://127.0.0.1:8765")


def test_the_endpoints_answer_and_refuse_in_words(client: TestClient) -> None:
    assert len(client.get("/api/rings/replay").json()["steps"]) == 182
    assert client.get("/api/rings/theory?limit=13").json()["jump"]["full"] > 0
    for query, part in (
        ("events=K5", "lower-case"), ("events=x99", "names server 99"), ("servers=61", "from 2 to 60"),
        ("epsilon=0", "from 0.02 to 3"), ("bound=none", "one of fixed, growing"), ("seed=-1", "seed must"),
        ("copies=0", "copies must"), ("keys=1e9", "keys must"), ("event=k5", "did you mean events"),
        ("events=" + "a" * 401, "at most 400"),
    ):  # fmt: skip
        answer = client.get(f"/api/rings/replay?{query}")
        assert answer.status_code == 400
        assert part in answer.json()["error"]
