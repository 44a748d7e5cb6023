"""The page Routing: its conversations, its job, and what it shows in a real browser."""

from __future__ import annotations

import contextlib
import io
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from evenbins.study.lab.app import create_app
from evenbins.study.lab.jobs import Cancelled
from evenbins.study.lab.routing import GROUPS, replay
from evenbins.study.llm_synthetic import synthetic_requests

SMALL: dict[str, Any] = {
    "requests": 120, "per_second": 4.0, "turns": 3.0, "shared": 1, "replicas": 3, "cache_blocks": 200,
    "epsilon": 0.25, "policies": "main", "seed": 1,
}  # fmt: skip


def test_conversations_grow_and_share_their_first_blocks() -> None:
    """Means within 6 standard errors of 4000 requests, conversations cut off at the end included."""
    options: dict[str, Any] = {"turns": 4.0, "turn_blocks": 6.0, "shared_blocks": 2, "pause": 1, "seed": 5}
    found = synthetic_requests(requests=4000, per_second=5.0, **options)
    assert len(found) == 4000
    assert [each.seconds for each in found] == sorted(each.seconds for each in found)
    last: dict[int, tuple[int, ...]] = {}
    first_turns = 0
    added = []
    for each in found:
        assert each.blocks[:2] == (0, 1)
        assert 512 * (len(each.blocks) - 1) < each.tokens <= 512 * len(each.blocks)
        before = last.get(each.blocks[2], (0, 1))
        first_turns += before == (0, 1)
        assert each.blocks[: len(before)] == before  # all that was said before
        added.append(len(each.blocks) - len(before))
        last[each.blocks[2]] = each.blocks
    assert len({block for each in found for block in each.blocks}) == 2 + sum(added)
    assert sum(added) / 4000 == pytest.approx(6.0, abs=6 * (30 / 4000) ** 0.5)
    assert first_turns / 4000 == pytest.approx(1 / 4, abs=0.05)
    assert found == synthetic_requests(requests=4000, per_second=5.0, **options)


def test_conversations_of_one_turn_and_without_pauses() -> None:
    found = synthetic_requests(requests=50, per_second=5.0, turns=1, turn_blocks=1, shared_blocks=0, pause=0)
    assert [each.blocks for each in found] == [(i,) for i in range(50)]
    with pytest.raises(ValueError, match="turns"):
        synthetic_requests(requests=50, per_second=5.0, turns=0.5)


@pytest.mark.parametrize("policies", GROUPS)
def test_the_rows_are_those_of_the_python_text(policies: str) -> None:
    steps: list[tuple[int, int]] = []
    found = replay(**SMALL | {"policies": policies}, progress=lambda done, total: steps.append((done, total)))
    assert [row["policy"] for row in found["rows"]] == [*GROUPS[policies]]
    assert steps[-1] == (120 * len(found["rows"]),) * 2
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(found["python"], names)
    assert names["report"].to_dict()["rows"] == found["rows"]
    assert "120 requests" in printed.getvalue()
    assert found["command"].startswith("evenbins simulate llm --trace TRACE --replicas 3 --cache-blocks 200")


def test_a_replay_ends_where_progress_says_so() -> None:
    def stop(done: int, total: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        replay(**SMALL, progress=stop)


def test_the_job_over_http() -> None:
    client = TestClient(create_app(), base_url="http://127.0.0.1:8765", headers={"X-Evenbins-Lab": "1"})
    started = client.post("/api/jobs/routing/replay", params=SMALL)
    assert started.status_code == 202
    address = f"/api/jobs/{started.json()['id']}"
    deadline = time.monotonic() + 60
    while (job := client.get(address).json())["state"] == "running" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert job["state"] == "done"
    assert job["result"]["requests"] == 120
    for name, value in {"requests": 10_001, "replicas": 65, "policies": "every", "turns": 0, "x": 1}.items():
        refused = client.post("/api/jobs/routing/replay", params=SMALL | {name: value})
        assert refused.status_code == 400
        assert name in refused.json()["error"]


def test_a_replay_is_shown_changed_and_cancelled_in_the_browser(page: Any) -> None:
    page.open("/routing?requests=200&replicas=4&cache_blocks=100")
    page.locator("[data-value=score-hit]").wait_for()
    assert page.locator("tbody tr").count() == 6
    assert page.locator("[data-value=score-ttft]").inner_text().endswith(" s")
    page.get_by_text("other routers").click()
    page.locator("[data-value=llm-d-hit]").wait_for()
    assert "policies=peers" in page.evaluate("location.search")
    assert "--peers" in page.get_by_label("command", exact=True).input_value()
    assert not page.scrolls_sideways()
    box = page.get_by_label("Requests, as a number", exact=True)
    box.fill("10000")
    box.press("Enter")
    page.get_by_role("button", name="Cancel").click()
    page.locator(".progress").wait_for(state="hidden")
    assert page.locator("[data-value=llm-d-hit]").count() == 1  # what was shown stays


def test_the_names_of_all_pages_fit_on_a_phone(phone: Any) -> None:
    phone.open("/routing?requests=20&replicas=2")
    phone.locator("[data-value=score-hit]").wait_for()
    assert not phone.scrolls_sideways()
    tops = phone.locator("nav a").evaluate_all("all => all.map((a) => a.getBoundingClientRect().top)")
    assert len(tops) == 8
    assert len({*tops}) == 2  # rows
