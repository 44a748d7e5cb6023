"""The benchmark of the shared filter runs, at a small size; its numbers are nobody's business here."""

from __future__ import annotations

import pytest
from filter_servers import running

from benchmarks import harness
from benchmarks import redis as bench


def test_every_case_runs_and_answers_rightly() -> None:
    with running() as server, server.client() as client:
        report = harness.run(bench._cases(client, many=200, few=10), rounds=1, progress=False)
    assert [len(each.rounds) for each in report.results] == [6] * 4
    assert all(each.targets for each in report.results)


def test_a_missing_server_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(harness.MissingPeerError, match="redis-server"), bench.running_server():
        pass
