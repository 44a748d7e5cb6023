"""The answers of the page Tables: curves are those of the theory, stories those of MultilevelTable."""

from __future__ import annotations

import contextlib
import io
import itertools
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from evenbins import MultilevelTable, design
from evenbins.study.lab.app import create_app
from evenbins.study.lab.table_story import MAX_EVENTS, Watched, operations, small_plan, story
from evenbins.study.lab.tables import curves, designs, point, small_table
from evenbins.tables.multilevel import plan_multilevel
from evenbins.tables.multilevel_plan import SCHEMES
from evenbins.theory import optimise
from reference import ReferenceMultilevel

POINT: dict[str, Any] = {
    "keys": 10**6, "scheme": "second-chance", "levels": 4, "slots": 1, "goal": "overflow", "overflow": 0.002,
    "space": 1.3, "deletions": False,
}  # fmt: skip
TELL: dict[str, Any] = {
    "scheme": "second-chance", "levels": 3, "slots": 1, "keys": 40, "space": 1.05, "turns": 40,
    "deletions": True, "seed": 3,
}  # fmt: skip


def run(python: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(python, names)
    return names


# --- curves -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "levels", "slots", "deletions"),
    [
        ("standard", 4, 1, False), ("second-chance", 3, 1, False), ("extreme-second-chance", 2, 1, False),
        ("conservative", 4, 1, False), ("second-chance", 2, 2, False), ("second-chance", 3, 1, True),
        ("standard", 4, 8, True),
    ],
)  # fmt: skip
def test_the_kept_curves_are_those_of_the_theory(
    scheme: str, levels: int, slots: int, deletions: bool
) -> None:
    found = curves(levels=levels, deletions=deletions)["series"]
    kept = next(each["points"] for each in found if (each["scheme"], each["slots"]) == (scheme, slots))
    assert [y for _, y in kept] == sorted((y for _, y in kept), reverse=True)
    space, overflow = kept[len(kept) // 2]
    assert space == pytest.approx(
        optimise.space(scheme, levels, overflow, slots, deletions=deletions).space, rel=1e-4
    )


def test_every_predictable_scheme_has_a_curve() -> None:
    for levels in range(2, 7):
        found = {(each["scheme"], each["slots"]) for each in curves(levels=levels, deletions=False)["series"]}
        measured, slow = (4, 0) if levels <= 4 else (0, 1)
        assert len(found) == 4 + 1 + 4 + 1 + measured - slow, (levels, found)
        assert curves(levels=levels, deletions=False)["slow"] == ["second-chance with 8 slots"] * slow
        churned = curves(levels=levels, deletions=True)
        assert len(churned["series"]) == 4 + 1 + measured
        assert any("conservative" in each for each in churned["missing"])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_point_is_what_the_plan_says(scheme: str) -> None:
    found = point(**POINT | {"scheme": scheme, "levels": 3, "keys": 100_000})
    plan = plan_multilevel(100_000, scheme=scheme, levels=3, slots=1, overflow=0.002)
    assert found["space"] == pytest.approx(plan.space, rel=0.015)
    assert found["moves"] == pytest.approx(plan.moves, abs=0.01)
    back = point(**POINT | {"scheme": scheme, "levels": 3, "goal": "space", "space": found["space"]})
    assert back["overflow"] == pytest.approx(0.002, rel=0.03)


def test_a_point_that_is_not_known_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="scheme=conservative with levels=4 and slots=2 is not predicted"):
        point(**POINT | {"scheme": "conservative", "slots": 2})


@pytest.mark.parametrize(
    "changed", [{}, {"goal": "space"}, {"deletions": True}, {"scheme": "least-loaded", "slots": 8}]
)
def test_the_texts_to_copy_run(changed: dict[str, Any]) -> None:
    found = point(**POINT | {"keys": 100_000, "levels": 3} | changed)
    plan = run(found["python"])["table"].plan
    assert plan.overflow == pytest.approx(found["overflow"], rel=0.1)
    words = shlex.split(found["command"])
    assert words[:3] == ["evenbins", "design", "table"]
    if changed.get("deletions"):  # without them it takes seconds; the words are the same
        done = subprocess.run(
            [sys.executable, "-m", *words], capture_output=True, text=True, check=True, timeout=120
        )
        assert "second-chance" in done.stdout


def test_designs_are_those_of_design_table() -> None:
    seen: list[tuple[int, int]] = []
    found = designs(
        keys=10**5, overflow=0.002, levels=3, deletions=True, slots="all",
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen[0] == (0, seen[0][1])
    assert seen[-1] == (seen[0][1] - 1, seen[0][1])
    same = design.table(10**5, overflow=0.002, levels=3, deletions=True).to_dict()["designs"]
    assert isinstance(same, list)
    times = [row.pop(name) for row in found["rows"] for name in ("ns", "miss_ns")]
    assert all(0.1 < each < 1e5 for each in times)
    assert found["rows"] == [{name: each[name] for name in found["rows"][0]} for each in same]
    six = designs(
        keys=10**5, overflow=0.01, levels=6, deletions=True, slots="1", progress=lambda *_: None
    )  # least-loaded was not measured with six
    assert {row["scheme"] for row in six["rows"]} == {"standard", "second-chance"}


# --- stories ------------------------------------------------------------------------------------------------


def final_state(told: dict[str, Any]) -> tuple[dict[int, int], list[int]]:
    """Play a story as the page does: keys of slots, keys of the list."""
    slots: dict[int, int] = {}
    waiting: list[int] = []
    retried = 0
    for operation in told["operations"]:
        key = operation["key"]
        for what, *rest in operation["events"]:
            if what == "put":
                assert rest[0] not in slots
                slots[rest[0]] = key
            elif what == "move":
                slots[rest[1]] = slots.pop(rest[0])
            elif what == "list":
                waiting.append(key)
            elif what == "take":
                assert slots.pop(rest[0]) == key
            elif what == "unlist":
                waiting.remove(key)
            elif what == "retry":
                retried = rest[0]
                assert waiting[0] == retried
            elif what == "back":
                slots[rest[0]] = retried
                waiting.remove(retried)
            elif what == "stay":
                waiting.append(waiting.pop(0))
        assert len(slots) + len(waiting) == operation["counts"]["keys"]
        assert len(waiting) == operation["counts"]["overflow"]
    return slots, waiting


def _stories() -> Iterator[Any]:
    """Every scheme, bucket and turn; in a short run every two of them together."""
    for (i, scheme), (j, slots), deletions in itertools.product(
        enumerate(SCHEMES), enumerate((1, 2, 8)), (False, True)
    ):
        yield pytest.param(
            scheme, slots, deletions, marks=[pytest.mark.long] if (i + j + deletions) % 2 else []
        )


@pytest.mark.parametrize(("scheme", "slots", "deletions"), list(_stories()))
def test_a_story_ends_in_the_state_of_the_real_table(scheme: str, slots: int, deletions: bool) -> None:
    given = TELL | {"scheme": scheme, "slots": slots, "deletions": deletions, "keys": 60, "turns": 50}
    told = small_table(**given | {"space": 0.9})
    table = run(told["python"])["table"]
    kept, waiting = final_state(told)
    assert [kept[slot] for slot in sorted(kept)] + waiting == list(
        table
    )  # in the order of slots, then by age
    twin = ReferenceMultilevel(table.plan.core, given["seed"])
    for op, key in operations(60, 50 if deletions else 0, given["seed"]):
        if op == "insert":
            twin.insert(key, 0)
        else:
            twin.delete(key)
    assert {slot: each[0] for slot, each in enumerate(twin.table) if each} == kept
    assert table.stats().moves == pytest.approx(
        told["operations"][-1]["counts"]["moves"] / told["operations"][-1]["counts"]["insertions"]
    )
    assert told["operations"][-1]["counts"]["reads"] == pytest.approx(table.stats().reads, abs=1e-3)


def test_watching_changes_nothing() -> None:
    plan = small_plan(
        "second-chance", levels=3, slots=2, keys=50, space=0.95, deletions=False, seed=9, shares=None
    )
    watched, twin, fast = (
        Watched(plan.core, 9),
        ReferenceMultilevel(plan.core, 9),
        MultilevelTable.from_plan(plan),
    )
    for key in range(1, 51):
        watched.insert(key, 0)
        twin.insert(key, 0)
        fast[key] = 0
    assert watched.payload() == twin.payload()
    assert fast.to_bytes().endswith(twin.payload()) or twin.payload() in fast.to_bytes()


def test_a_story_has_moves_overflow_and_returns() -> None:
    told = small_table(
        **TELL | {"scheme": "least-loaded", "levels": 2, "slots": 2, "keys": 120, "turns": 120, "space": 1}
    )
    seen = {event[0] for each in told["operations"] for event in each["events"]}
    assert seen >= {"look", "there", "move", "put", "list", "take", "retry", "back"}
    assert told["predicted"]["steady"]["overflow"] > 0


def test_predictions_follow_the_filling() -> None:
    told = small_table(**TELL | {"deletions": False, "keys": 160, "space": 1.2})
    filling = told["predicted"]["filling"]
    assert len(filling["overflow"]) == len(filling["moves"]) == 161
    assert filling["overflow"][-1] == max(filling["overflow"]) > filling["overflow"][80]
    plan = small_plan(
        "second-chance", levels=3, slots=1, keys=160, space=1.2, deletions=False, seed=3,
        shares=[each / 160 for each in told["buckets"]],
    )  # fmt: skip
    assert filling["reads"][-1] == pytest.approx(plan.reads, rel=0.02)
    assert told["operations"][-1]["counts"]["moves"] == pytest.approx(filling["moves"][-1], abs=12)
    nothing = small_table(**TELL | {"scheme": "conservative", "slots": 4, "deletions": False})
    assert nothing["predicted"] is None


def test_a_story_is_bounded() -> None:
    plan = small_plan(
        "extreme-second-chance", levels=6, slots=8, keys=160, space=0.8, deletions=True, seed=1, shares=None
    )
    told = story(plan, 160)
    assert sum(len(each["events"]) for each in told["operations"]) <= MAX_EVENTS
    assert told["truncated"]


# --- the API ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(create_app(), base_url="http://127.0.0.1:8765")


def test_the_endpoints_answer_and_refuse_in_words(client: TestClient) -> None:
    assert client.get("/api/tables/curves").json()["series"]
    assert client.get("/api/tables/point").json()["space"] == pytest.approx(1.285, abs=0.01)
    assert len(client.get("/api/tables/story").json()["operations"]) == 40
    for path, part in (
        ("curves?levels=7", "levels must be"), ("point?scheme=secondchance", "did you mean second-chance"),
        ("point?slots=3", "one of 1, 2, 4, 8"), ("story?keys=1000", "keys must be"),
        ("story?space=x", "space must"),
        ("point?scheme=conservative&slots=2", "is not predicted"), ("point?overflow=0", "overflow must"),
        ("story?deletions=yes", "0 or 1"),
    ):  # fmt: skip
        answer = client.get(f"/api/tables/{path}")
        assert answer.status_code == 400, path
        assert part in answer.json()["error"]


def test_designs_are_a_job(client: TestClient) -> None:
    asked = "/api/jobs/tables/designs?keys=1e5&levels=3&deletions=1&slots=1"
    started = client.post(asked, headers={"X-Evenbins-Lab": "1"})
    assert started.status_code == 202
    for _ in range(2400):
        job = client.get(f"/api/jobs/{started.json()['id']}").json()
        if job["state"] != "running":
            break
        time.sleep(0.05)
    assert job["state"] == "done"
    assert {row["slots"] for row in job["result"]["rows"]} == {1}
