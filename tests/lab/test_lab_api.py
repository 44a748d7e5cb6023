"""What the lab's server answers: every endpoint by its own declaration, the fence, jobs, the description.

The tests go over `endpoints()`, so a new endpoint of any page is tested here as soon as it is declared.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import evenbins
from evenbins.cli import _spill
from evenbins.design.filters import Request, designs_for
from evenbins.errors import FormatError
from evenbins.filters import plan_blocked
from evenbins.study.lab import app, dedup, docs, filters, inspect, papers
from evenbins.study.lab.app import PAGES, STATIC, create_app, endpoints
from evenbins.study.lab.jobs import Cancelled, Jobs
from evenbins.study.lab.parameters import Choice, Endpoint, Flag, Number, Text
from evenbins.study.lab.security import HEADERS

BASE = "http://127.0.0.1:8765"
OURS = {"X-Evenbins-Lab": "1"}
ENDPOINTS = {each.path: each for each in endpoints()}
PARAMETERS = [(path, each) for path, endpoint in ENDPOINTS.items() for each in endpoint.parameters]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(), base_url=BASE, follow_redirects=False) as opened:
        yield opened


def ask(client: TestClient, path: str, query: str = "") -> Any:
    endpoint = ENDPOINTS[path]
    url = endpoint.url + (f"?{query}" if query else "")
    return client.post(url, headers=OURS) if endpoint.method == "POST" else client.get(url)


def finish(client: TestClient, started: Any) -> dict[str, Any]:
    """Follow a job to its end."""
    assert started.status_code == 202, started.text
    told: dict[str, Any] = started.json()
    for _ in range(12_000):
        if told["state"] != "running":
            return told
        time.sleep(0.01)
        told = client.get(f"/api/jobs/{told['id']}").json()
    raise AssertionError("the job did not end in two minutes")


# --- parameters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "parameter"), PARAMETERS, ids=[f"{path}-{each.name}" for path, each in PARAMETERS]
)
def test_wrong_values_are_refused_in_words(client: TestClient, path: str, parameter: Any) -> None:
    wrong = ["", "\x00", "x" * 2000, "nan", "1e999", "0x10", "１"]
    if isinstance(parameter, Number):
        wrong += [repr(parameter.least - 1), repr(parameter.most * 2 + 1), "1e", "--1", "1__0"]
        wrong += ["1.5"] if parameter.whole else []
    elif isinstance(parameter, Choice):
        wrong.append(parameter.choices[0].upper() + "?")
    elif isinstance(parameter, Flag):
        wrong += ["yes", "2", "true"]
    else:
        assert isinstance(parameter, Text)
        wrong = [each for each in wrong if len(each) > parameter.longest or "\x00" in each]
    for text in wrong:
        endpoint = ENDPOINTS[path]
        answer = (client.post if endpoint.method == "POST" else client.get)(
            endpoint.url, params={parameter.name: text}, headers=OURS
        )
        assert answer.status_code == 400, (text, answer.text)
        message = answer.json()["error"]
        assert message.startswith(f"{parameter.name} must be "), message
        assert len(message) < 600
        assert "\n" not in message


@pytest.mark.parametrize("path", ENDPOINTS)
def test_unknown_and_repeated_parameters_are_refused(client: TestClient, path: str) -> None:
    answer = ask(client, path, "nosuch=1")
    assert answer.status_code == 400
    assert "there is no parameter 'nosuch'" in answer.json()["error"]
    for each in ENDPOINTS[path].parameters[:1]:
        text = each.choices[0] if isinstance(each, Choice) else "1"
        answer = ask(client, path, f"{each.name}={text}&{each.name}={text}")
        assert answer.status_code == 400
        assert "once" in answer.json()["error"] or "must be" in answer.json()["error"]


@pytest.mark.parametrize("path", [path for path, each in ENDPOINTS.items() if each.method == "GET"])
def test_defaults_are_answered(client: TestClient, path: str) -> None:
    if path == "papers/figure" or any(each.required for each in ENDPOINTS[path].parameters):
        return  # needs something before: has a test of its own
    answer = ask(client, path)
    if answer.status_code == 400:  # defaults that need one more
        assert " is missing: " in answer.json()["error"], answer.text
        return
    assert answer.status_code == 200, answer.text
    if ENDPOINTS[path].media_type == "application/json":
        assert isinstance(answer.json(), dict)


def test_every_parameter_has_help_and_a_default_of_its_own_kind() -> None:
    for path, each in PARAMETERS:
        assert each.help, (path, each.name)
        if isinstance(each, Number) and each.default is not None:
            assert each.least <= each.default <= each.most
        if isinstance(each, Choice) and each.default is not None:
            assert each.default in each.choices


# --- the fence -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8765", "127.0.0.1:9999", "127.0.0.1", "", "0.0.0.0:8765",
        "127.0.0.1:8765.evil.example",
    ],
)  # fmt: skip
def test_other_hosts_are_refused(client: TestClient, host: str) -> None:
    answer = client.get("/filters", headers={"Host": host})
    assert answer.status_code == 403
    assert "Host" in answer.json()["error"]


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "LOCALHOST:8765"])
def test_loopback_names_are_ours(client: TestClient, host: str) -> None:
    assert client.get("/filters", headers={"Host": host}).status_code == 200


def test_what_changes_state_needs_our_header_and_our_origin(client: TestClient) -> None:
    url = "/api/jobs/papers/run?id=kanizo-fig5"
    for headers in ({}, {"X-Evenbins-Lab": "0"}, OURS | {"Origin": "http://evil.example"},
                    OURS | {"Origin": "null"}, OURS | {"Origin": "http://127.0.0.1:9999"},
                    OURS | {"Sec-Fetch-Site": "cross-site"}):  # fmt: skip
        assert client.post(url, headers=headers).status_code == 403, headers
        assert client.delete("/api/jobs/" + "0" * 32, headers=headers).status_code == 403, headers
    for origin in ("http://127.0.0.1:8765", "http://localhost:8765"):
        told = finish(client, client.post(url, headers=OURS | {"Origin": origin}))
        assert told["state"] == "done"


def test_foreign_pages_may_link_but_not_ask(client: TestClient) -> None:
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert client.get("/filters", headers=foreign).status_code == 200
    assert client.get("/api/filters/curves", headers=foreign).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/", "/filters", "/static/main.js", "/static/nosuch.js", "/nosuch", "/api/filters/curves",
        "/api/nosuch", "/api/filters/designs?keys=x", "/api/openapi.json", "/favicon.ico",
    ],
)  # fmt: skip
def test_every_answer_is_fenced(client: TestClient, path: str) -> None:
    answers = [client.get(path), client.get(path, headers={"Host": "evil.example"}), client.post(path)]
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert "'unsafe" not in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers


def test_lengths_are_bounded(client: TestClient) -> None:
    assert client.get("/filters?x=" + "y" * 5000).status_code == 414
    answer = client.post("/api/jobs/papers/run", headers=OURS, content=b"x" * 70_000)
    assert answer.status_code == 413


def test_what_is_not_there_is_said_in_words(client: TestClient) -> None:
    assert client.get("/").headers["location"] == "/filters"
    answer = client.get("/nosuch")
    assert answer.status_code == 404
    assert "/filters" in answer.json()["error"]
    answer = client.get("/nosuch", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "openapi.json" in client.get("/api/nosuch").json()["error"]
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/%2e%2e/app.py").status_code == 404
    answer = client.put("/api/filters/curves", headers=OURS)
    assert answer.status_code == 405
    assert "PUT" in answer.json()["error"]


def test_a_failure_of_ours_is_a_readable_500() -> None:
    def broken() -> None:
        raise RuntimeError("secret")

    app = create_app(pages=[Endpoint("filters/broken", broken)])
    with TestClient(app, base_url=BASE, raise_server_exceptions=False) as client:
        answer = client.get("/api/filters/broken")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "RuntimeError" in answer.json()["error"]
    assert answer.headers["content-security-policy"]


# --- jobs ----------------------------------------------------------------------------------------------


def wait_for(condition: Any) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen in a minute")


def test_jobs_run_fail_and_are_cancelled() -> None:
    stopped = threading.Event()

    def endless(*, progress: Any) -> None:
        try:
            while True:
                progress(1, 2)
                time.sleep(0.002)
        except Cancelled:
            stopped.set()
            raise

    def refusing(*, progress: Any) -> None:
        raise ValueError("keys must be fewer: take less")

    def broken(*, progress: Any) -> None:
        raise RuntimeError("secret")

    app = create_app(
        jobs=Jobs(at_once=2),
        pages=[
            Endpoint("filters/endless", endless, job=True),
            Endpoint("filters/refusing", refusing, job=True),
            Endpoint("filters/broken", broken, job=True),
        ],
    )
    with TestClient(app, base_url=BASE) as client:
        first = client.post("/api/jobs/filters/endless", headers=OURS).json()
        assert re.fullmatch("[0-9a-f]{32}", first["id"])
        client.post("/api/jobs/filters/endless", headers=OURS)
        third = client.post("/api/jobs/filters/endless", headers=OURS)
        assert third.status_code == 429
        assert "at most 2" in third.json()["error"]
        url = f"/api/jobs/{first['id']}"
        wait_for(lambda: client.get(url).json()["progress"] == [1, 2])
        assert client.delete(url, headers=OURS).json()["state"] == "cancelled"
        assert stopped.wait(60)
        wait_for(lambda: client.app.state.jobs.find(first["id"]).state == "cancelled")  # type: ignore[attr-defined]
        told = finish(client, client.post("/api/jobs/filters/refusing", headers=OURS))
        assert (told["state"], told["error"]) == ("failed", "keys must be fewer: take less")
        answer = client.delete(f"/api/jobs/{told['id']}", headers=OURS)
        assert (answer.status_code, answer.json()["state"]) == (200, "failed")  # it stays as it was
        told = finish(client, client.post("/api/jobs/filters/broken", headers=OURS))
        assert told["state"] == "failed"
        assert "secret" not in told["error"]
        missing = client.get("/api/jobs/" + "0" * 32)
        assert missing.status_code == 404
        assert "start it again" in missing.json()["error"]


def test_abandoned_jobs_end_and_old_ones_are_forgotten() -> None:
    jobs = Jobs(at_once=2, keep=3, patience=0.05)

    def endless(*, progress: Any) -> None:
        while True:
            progress(0, 1)
            time.sleep(0.005)

    job = jobs.start("endless", endless)
    wait_for(lambda: job.state == "cancelled")
    for number in range(6):
        last = jobs.start("quick", lambda progress, number=number: number)
        assert jobs.join(last.id, 60).result == number
    assert len(jobs._jobs) <= 3


# --- the description -----------------------------------------------------------------------------------


def test_the_description_is_complete(client: TestClient) -> None:
    told = client.get("/api/openapi.json").json()
    assert told["openapi"].startswith("3.1")
    for each in endpoints():
        operation = told["paths"][each.url][each.method.lower()]
        assert operation["summary"]
        listed = {one["name"]: one for one in operation["parameters"] if one["in"] == "query"}
        assert set(listed) == {one.name for one in each.parameters}
        for one in each.parameters:
            schema = listed[one.name]["schema"]
            if isinstance(one, Number):
                assert (schema["minimum"], schema["maximum"]) == (one.least, one.most)
            if isinstance(one, Choice):
                assert schema["enum"] == list(one.choices)
        statuses = set(operation["responses"])
        assert {"400", "403"} <= statuses
        assert ("429" if each.job else "503") in statuses
    assert {"403", "404"} <= set(told["paths"]["/api/jobs/{id}"]["delete"]["responses"])
    names = [op["operationId"] for path in told["paths"].values() for op in path.values()]
    assert len(names) == len(set(names))
    for reference in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(told)):
        assert reference in told["components"]["schemas"]


# --- filters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", filters.POLICIES)
@pytest.mark.parametrize(
    "query", ["fpr=1e-3", "bits_per_key=14&block_bits=256&miss_reads=3", "fpr=1e-4&reads=2.5"]
)
def test_the_texts_build_the_very_plan(client: TestClient, policy: str, query: str) -> None:
    answer = ask(client, "filters/designs", f"keys=2000&policy={policy}&{query}").json()
    if answer["chosen"] != policy:
        assert policy in answer["note"]
        return
    request: dict[str, Any] = {
        name: float(text) for name, _, text in (each.partition("=") for each in query.split("&"))
    }
    request |= {"block_bits": int(request.get("block_bits", 512))}
    planned = designs_for(Request(2000, **request)).by_policy(policy).plan
    names: dict[str, Any] = {}
    exec(answer["python"].replace("print(", "(lambda *_: None)("), names)
    assert names["f"].plan == planned
    assert "alpha" in names["f"]


def test_designs_say_what_cannot_be(client: TestClient) -> None:
    answer = ask(client, "filters/designs", "keys=1e6&fpr=1e-9&bits_per_key=8")
    assert answer.status_code == 400
    assert "bits_per_key=8 is too little" in answer.json()["error"]
    answer = ask(client, "filters/designs", "keys=1e12&fpr=1e-15")
    assert answer.status_code in (200, 400)
    assert ask(client, "filters/designs", "keys=1&bits_per_key=1").status_code in (200, 400)


@pytest.mark.parametrize("policy", filters.POLICIES)
def test_real_filters_meet_their_prediction(client: TestClient, policy: str) -> None:
    told = finish(client, ask(client, "filters/measure", f"keys=60000&fpr=0.01&policy={policy}&filters=2"))
    assert told["state"] == "done", told
    found = told["result"]
    rows = {each["name"]: each for each in found["rows"]}
    assert rows["fpr"]["low"] <= rows["fpr"]["measured"] <= rows["fpr"]["high"]
    assert rows["fpr"]["measured"] == pytest.approx(rows["fpr"]["predicted"], rel=0.03)
    assert rows["reads"]["measured"] == pytest.approx(rows["reads"]["predicted"], rel=0.01)
    low, high = found["interval"]
    assert low <= found["positives"] / found["asked"] <= high
    for level in found["levels"]:
        for name in ("measured", "predicted"):
            assert sum(share for _, share in level[name]) == pytest.approx(1, abs=1e-3)
    assert bool(found["levels"]) == (policy != "standard")


def test_the_interval_is_exact() -> None:
    """Clopper-Pearson at 3 of 50, by its definition: each tail has 2.5 %."""
    from scipy.stats import binom

    low, high = filters.interval(3, 50)
    assert binom.sf(2, 50, low) == pytest.approx(0.025)
    assert binom.cdf(3, 50, high) == pytest.approx(0.025)
    assert filters.interval(0, 10)[0] == 0
    assert filters.interval(10, 10)[1] == 1


def test_curves_are_the_planners(client: TestClient) -> None:
    found = ask(client, "filters/curves", "keys=1e6").json()
    at = found["bits"].index(16)
    assert found["curves"]["blocked"][at] == plan_blocked(10**6, bits_per_key=16).fpr
    told = finish(client, ask(client, "filters/curve", "keys=1e6&policy=blocked&reads=1"))
    assert told["result"]["fpr"] == found["curves"]["blocked"]


# --- papers --------------------------------------------------------------------------------------------


def test_papers_run_and_are_drawn(client: TestClient) -> None:
    listed = ask(client, "papers/list").json()
    assert [each["name"] for each in listed["papers"]] == ["kanizo", "kirsch", "chen"]
    assert sum(len(each["experiments"]) for each in listed["papers"]) >= 54
    missing = ask(client, "papers/figure", "id=kirsch-table4.1&seed=9")
    assert missing.status_code == 404
    assert "run it first" in missing.json()["error"]
    told = finish(client, ask(client, "papers/run", "id=kirsch-table4.1&seed=9"))
    found = told["result"]
    assert found["compared"] == 10
    assert {each["agreement"] for each in found["rows"]} <= {"close", "near", "apart"}
    drawn = ask(client, "papers/figure", "id=kirsch-table4.1&seed=9")
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    assert "<svg" in drawn.text


def test_unknown_experiments_are_said(client: TestClient) -> None:
    told = finish(client, ask(client, "papers/run", "id=kanizo-fig55"))
    assert told["state"] == "failed"
    assert "did you mean kanizo-fig5" in told["error"]
    assert ask(client, "papers/figure", "id=kanizo").status_code == 404


def test_the_papers_texts_run(client: TestClient) -> None:
    found = finish(client, ask(client, "papers/run", "id=kirsch-table4.1&seed=9"))["result"]
    names: dict[str, Any] = {"print": lambda *_: None}
    exec(found["python"], names)
    assert len(names["result"].rows) == len(found["rows"])
    assert found["command"] == "evenbins reproduce kirsch-table4.1 --seed 9 --quick"
    assert papers.NEAR > papers.CLOSE


# --- files that are inspected ------------------------------------------------------------------------------

GOLDEN = Path(__file__).parents[1] / "golden"


def test_a_damaged_file_gives_the_librarys_message_and_no_path(client: TestClient) -> None:
    for path in sorted((GOLDEN / "damaged").glob("*.evenbins"))[::8]:
        answer = client.post(
            "/api/inspect/file", params={"name": path.name}, content=path.read_bytes(), headers=OURS
        )
        assert answer.status_code == 400
        message = answer.json()["error"]
        assert message.startswith(f"{path.name}: ")
        if path.stat().st_size:
            with pytest.raises(FormatError) as raised:
                evenbins.open(path, verify=True)
            assert message == str(raised.value).replace(str(path), path.name)
        assert "/tmp" not in message


def test_a_seed_is_not_shown_and_files_need_our_header(client: TestClient) -> None:
    data = (GOLDEN / "standard-seed.evenbins").read_bytes()
    found = client.post("/api/inspect/file", content=data, headers=OURS)
    assert dict(found.json()["facts"])["seed"] == "set (evenbins inspect --show-seed prints it)"
    assert str(evenbins.load(GOLDEN / "standard-seed.evenbins").seed) not in found.text
    assert client.post("/api/inspect/file", content=data).status_code == 403


def test_a_file_that_is_too_large_is_refused_with_or_without_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sizes: list[int] = []
    endpoint = Endpoint(
        "inspect/file", lambda file: sizes.append(file.stat().st_size), upload=1000, summary="A file."
    )
    with TestClient(create_app(pages=[endpoint]), base_url=BASE) as client:
        for content in (b"x" * 1001, iter([b"x" * 600, b"x" * 600])):
            answer = client.post("/api/inspect/file", content=content, headers=OURS)
            assert answer.status_code == 413
            assert "evenbins inspect FILE" in answer.json()["error"]
        assert client.post("/api/inspect/file", content=b"x" * 1000, headers=OURS).status_code == 200
    assert sizes == [1000]
    assert list(tmp_path.iterdir()) == []  # nothing is left
    assert "const MOST = 2 ** 28;" in (STATIC / "inspect.js").read_text()
    assert inspect.MOST_BYTES == 2**28


@pytest.mark.parametrize("name", ["-rf.evb", "\N{GRINNING FACE}.evb", "a'b\"c.evb"])
def test_what_is_copied_names_the_file(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    evenbins.BlockedBloomFilter(100).save(name)
    data = Path(name).read_bytes()
    found = client.post("/api/inspect/file", params={"name": name}, content=data, headers=OURS).json()
    path = shlex.split(found["command"])[-1]
    assert not path.startswith("-")
    assert Path(path).samefile(name)
    exec(found["python"], {"print": lambda *_: None})


def test_a_file_that_does_not_arrive_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_FILE_SECONDS", 0.05)
    endpoint = Endpoint("inspect/file", lambda file: None, upload=1000, summary="A file.")
    served = create_app(pages=[endpoint])
    sent: list[dict[str, Any]] = []

    async def ask_slowly(last: dict[str, Any] | None) -> None:
        messages = [{"type": "http.request", "body": b"x", "more_body": True}]
        messages += [last] if last else []

        async def receive() -> Any:
            if messages:
                return messages.pop(0)
            return await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1:8765"), (b"x-evenbins-lab", b"1")]
        scope = {
            "type": "http", "method": "POST", "path": "/api/inspect/file", "raw_path": b"/api/inspect/file",
            "query_string": b"", "headers": headers, "server": ("127.0.0.1", 8765), "root_path": "",
        }  # fmt: skip
        await served(scope, receive, send)

    asyncio.run(ask_slowly(None))
    assert sent[0]["status"] == 408
    sent.clear()
    asyncio.run(ask_slowly({"type": "http.disconnect"}))
    assert sent[0]["status"] == 400  # and no traceback in the terminal


# --- deduplication -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", ["filter", "growing", "exact"])
def test_a_deduplicator_has_the_predicted_size_and_errors(client: TestClient, design: str) -> None:
    """With 70,000 keys, so that a second stage grows; errors to 5 %, since rates of real filters vary."""
    keys = 70_000
    found = ask(client, "dedup/sizes", f"keys={keys}&fpr=1e-3&design={design}").json()
    predicted = {each["name"]: each for each in found["designs"]}[design]
    names: dict[str, Any] = {"print": lambda *_: None}
    exec(found["python"], names)
    real = names["seen"]
    real.clear()
    real.keep(np.arange(keys))
    assert predicted["nbytes"] == real.nbytes
    assert predicted["wrong"] == pytest.approx(real.stats().expected_wrong, rel=0.05)
    assert found["command"].startswith(("evenbins dedup", "cat rows.jsonl | evenbins dedup"))


def test_designs_that_cannot_be_say_why_and_the_disk_has_room(client: TestClient) -> None:
    found = ask(client, "dedup/sizes", "keys=1e11&memory=1e9").json()
    assert found["chosen"] == "disk"
    assert "--memory 953M" in found["command"]
    problems = {each["name"]: each["problem"] for each in found["designs"]}
    assert "64-bit digests" in problems["filter"]
    assert "has room for at most 1072234496 keys" in problems["growing"]
    assert dedup.DISK_BYTES == _spill._DIGEST_BYTES + 1
    assert "every key has a row" in ask(client, "dedup/sizes", "keys=10&rows=5").json()["error"]
    told = finish(client, ask(client, "dedup/time", "keys=1e11&design=growing"))
    assert "at most 1072234496 keys" in told["error"]


# --- documentation -----------------------------------------------------------------------------------------


def test_every_page_has_its_documentation(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for page in (*PAGES, "lab"):
        assert (docs.FOLDER / f"{docs.PAGES[page]}.md").is_file()
        assert client.get(f"/docs/{page}").status_code in (200, 307)
    assert client.get("/docs/nosuch").status_code == 404
    for path in ("%2e%2e/%2e%2e/index.md", "%00", "x" * 2000, ""):
        assert client.get(f"/docs/built/{path}").status_code == 404
    monkeypatch.setattr(docs, "_published", lambda: "https://docs.example")
    assert "docs.example" not in client.get("/docs/rings").headers.get("location", "")  # it is here
    monkeypatch.setattr(docs, "FOLDER", tmp_path)
    assert client.get("/docs/rings").headers["location"] == "https://docs.example/rings.html"
    monkeypatch.setattr(docs, "_published", lambda: None)
    assert "docs/rings.md" in client.get("/docs/rings").text


def test_built_documentation_may_use_its_own_scripts(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "_build/html").mkdir(parents=True)
    (tmp_path / "_build/html/rings.html").write_text("<script>1</script>")
    monkeypatch.setattr(docs, "FOLDER", tmp_path)
    found = client.get("/docs/rings", follow_redirects=True)
    assert found.text == "<script>1</script>"
    assert "script-src 'self' 'unsafe-inline'" in found.headers["content-security-policy"]
    assert "unsafe-inline" not in client.get("/filters").headers["content-security-policy"]
