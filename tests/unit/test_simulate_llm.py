"""`evenbins simulate llm`: the model by hand, routers in it, what the command prints and refuses."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evenbins import cli
from evenbins.routing import router as routing
from evenbins.study.commands import simulate_llm
from evenbins.study.commands.simulate import simulate
from evenbins.study.llm import FURTHER, PEERS, POLICIES, LlmRequest, read_requests, replay_llm
from evenbins.study.llm_peers import PeerSetting
from evenbins.study.llm_split import SPLIT, SplitRouter
from evenbins.study.traces import TraceError

SMALL = ["--replicas", 4, "--cache-blocks", 60]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is a command of `evenbins`."""
    monkeypatch.setitem(cli.commands.commands, "simulate", simulate)


def chats(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Make lines of a trace: conversations that share their first block and grow, ten requests per second."""
    rng = random.Random(seed)
    conversations: list[list[int]] = []
    lines, number = [], 1
    for i in range(count):
        if not conversations or rng.random() < 0.25:
            conversations.append([0])
        chain = rng.choice(conversations[-25:])
        for _ in range(rng.randrange(1, 4)):
            chain.append(number)
            number += 1
        tokens = 512 * len(chain) - rng.randrange(512)
        lines.append(
            {"timestamp": 100 * i, "input_length": tokens, "output_length": 100, "hash_ids": [*chain]}
        )
    return lines


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "chats.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in chats(500)))
    return path


def run(*args: object) -> tuple[int, str, str]:
    with CliRunner().isolation() as streams:
        with pytest.raises(SystemExit) as ended:
            cli.main(["simulate", "llm", *map(str, args)])
        return ended.value.code, streams[0].getvalue().decode(), streams[1].getvalue().decode()


# --- the model ----------------------------------------------------------------------------------------------


def test_the_model_by_hand() -> None:
    """One replica, 1000 tokens per second, blocks of 512 tokens, a cache of three blocks."""
    requests = [
        LlmRequest(0.0, 1024, 5, (1, 2)),  # prefilled from 0 to 1.024
        LlmRequest(0.5, 1500, 5, (1, 2, 3)),  # waits 0.524; two blocks are there, 476 tokens: ends at 1.5
        LlmRequest(9.0, 100, 5, (4,)),  # 0.1; block 3 is evicted: the last blocks of a prompt go first
        LlmRequest(9.0, 1500, 5, (1, 2, 3)),  # waits 0.1; finds 1 and 2; 476 tokens
        LlmRequest(20.0, 900, 5, (1, 2)),  # all is there, and 1024 tokens are more than it has
    ]
    for policy in (*POLICIES, *FURTHER, *PEERS, *SPLIT)[1:]:
        report = replay_llm(
            requests, replicas=1, cache_blocks=3, tokens_per_second=1000, policies=["global", policy]
        )
        row = report.row(policy)
        waits = [1.024, 1.0, 0.1, 0.576, 0.0]
        assert row.hit == report.row("global").hit == (2 + 2 + 2) / 11
        assert (row.ttft_mean, row.ttft_p99) == (pytest.approx(sum(waits) / 5), pytest.approx(1.024))
        assert row.max_load == 1.0


def test_simple_policies_by_hand() -> None:
    """Two replicas that prefill a block in one second; prompts without anything in common."""
    requests = [
        LlmRequest(0.0, 512 * n, 1, tuple(range(9 * i, 9 * i + n))) for i, n in enumerate((4, 1, 1, 1))
    ]
    report = replay_llm(requests, replicas=2, cache_blocks=9, tokens_per_second=512)
    turns, least = report.row("round-robin"), report.row("least-work")
    assert turns.ttft_mean == pytest.approx((4 + 1 + 5 + 2) / 4)
    assert least.ttft_mean == pytest.approx((4 + 1 + 2 + 3) / 4)
    assert turns.max_load == pytest.approx(5 / 3.5)
    assert least.max_load == pytest.approx(4 / 3.5)


def test_routers_know_the_caches(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A router expects the depths that the replicas find, nearly: its index is LRU in steps of 2 blocks."""
    depths: list[int] = []
    route = routing.PrefixRouter.route

    def recording(self: routing.PrefixRouter, *args: Any, **options: Any) -> routing.Choice:
        choice = route(self, *args, **options)
        depths.append(choice.depth)
        return choice

    monkeypatch.setattr(routing.PrefixRouter, "route", recording)
    requests = read_requests(trace)
    for policy in ("hash", "prefix", "score"):
        depths.clear()
        row = replay_llm(requests, replicas=4, cache_blocks=60, policies=[policy]).rows[0]
        assert len(depths) == 500
        assert row.hit == pytest.approx(sum(depths) / sum(len(each.blocks) for each in requests), abs=0.015)


def test_prefixes_are_found_by_those_who_look_for_them(trace: Path) -> None:
    everything = (*POLICIES, *FURTHER)
    report = replay_llm(read_requests(trace), replicas=4, cache_blocks=200, policies=everything)
    hits = {row.policy: row.hit for row in report.rows}
    times = {row.policy: row.ttft_mean or 0.0 for row in report.rows}
    assert max(hits["round-robin"], hits["least-work"], hits["hash-1"]) + 0.1 < min(
        hits[policy] for policy in ("hash-work", "prefix", "prefix-spread", "score", "score-spread")
    )
    assert max(hits.values()) == hits["global"]
    assert max(times["prefix"], times["score"]) < min(times["round-robin"], times["least-work"])


@pytest.mark.parametrize("rule", ["prefix", "score"])
def test_one_worker_chooses_as_the_router_does(trace: Path, rule: str) -> None:
    """And several find less, since each knows a part of what was sent."""
    requests = read_requests(trace)
    report = replay_llm(requests, replicas=4, cache_blocks=60, policies=[rule, *SPLIT])
    names = [f"{i}" for i in range(4)]
    router = routing.PrefixRouter(names, policy=rule, cache_blocks=10_000, ties="first")
    alone = SplitRouter(rule, 1, PeerSetting(4, 10_000, 512, 0.25, 0))
    for each in requests[:200]:  # all at once, so that loads count
        chosen = alone.choose(0.0, each.blocks, each.tokens)
        assert router.route(each.blocks, each.tokens).node == str(chosen)
        alone.began(chosen, 1.0, 1.0, 1.0)
    hits = [report.row(name).hit for name in (rule, f"{rule}-split-2", f"{rule}-split-4")]
    assert hits == sorted(hits, reverse=True)


@pytest.mark.long
@pytest.mark.skipif("EVENBINS_LLM_TRACE" not in os.environ, reason="EVENBINS_LLM_TRACE names no trace")
def test_the_conversation_trace() -> None:
    """Mooncake's conversation_trace, against an independent replay of it, and what was asked for."""
    requests = read_requests(os.environ["EVENBINS_LLM_TRACE"])
    report = replay_llm(requests, policies=(*POLICIES, *FURTHER))
    expected = {"global": 0.359, "round-robin": 0.090, "least-work": 0.088, "hash": 0.250, "prefix": 0.297,
                "score": 0.323, "hash-1": 0.087, "prefix-requests": 0.288}  # fmt: skip
    assert {policy: report.row(policy).hit for policy in expected} == pytest.approx(expected, abs=0.01)
    prefix, score = report.row("prefix"), report.row("score")
    assert prefix.hit >= 0.285
    assert (prefix.ttft_mean or 9) <= 0.75
    assert score.hit >= 0.315
    assert (score.ttft_mean or 9) <= 0.72
    assert report.row("score-spread").hit >= score.hit
    few = replay_llm(requests, replicas=8, policies=["score"]).rows[0]
    assert few.hit >= 0.28
    assert (few.ttft_mean or 9) <= 0.82


# --- the command --------------------------------------------------------------------------------------------


def test_the_table_and_the_json(trace: Path) -> None:
    assert simulate_llm._POLICIES == POLICIES
    assert simulate_llm._FURTHER == FURTHER
    assert simulate_llm._PEERS == PEERS
    assert tuple(SPLIT) == simulate_llm._SPLIT
    report = replay_llm(read_requests(trace), replicas=4, cache_blocks=60, name="chats.jsonl")
    status, out, err = run("--trace", trace, *SMALL)
    assert (status, out, err) == (0, f"{report}\n", "")
    status, out, err = run("--trace", trace, *SMALL, "--json")
    assert (status, err) == (0, "")
    rows = json.loads(out)
    assert rows == report.to_dict()
    assert [*rows] == ["rows"]
    assert [row["policy"] for row in rows["rows"]] == [*POLICIES]
    assert all([*row] == ["policy", "hit", "ttft_mean", "ttft_p99", "max_load"] for row in rows["rows"])


def test_options_reach_the_replay(trace: Path) -> None:
    out = run("--trace", trace, *SMALL, "--policy", "score", "--policy", "hash-1", "--requests", 100,
              "--seed", 3, "--epsilon", 1, "--block-tokens", 256, "--tokens-per-second", "5e3",
              "--seconds-per-token", 0.1, "--json")[1]  # fmt: skip
    report = replay_llm(
        read_requests(trace)[:100], replicas=4, cache_blocks=60, policies=["score", "hash-1"], seed=3,
        epsilon=1, block_tokens=256, tokens_per_second=5000, seconds_per_token=0.1,
    )  # fmt: skip
    assert json.loads(out) == report.to_dict()
    out = run("--trace", trace, *SMALL, "--all", "--json")[1]
    assert [row["policy"] for row in json.loads(out)["rows"]] == [*POLICIES, *FURTHER]
    out = run("--trace", trace, *SMALL, "--peers", "--requests", 50, "--json")[1]
    assert [row["policy"] for row in json.loads(out)["rows"]] == [*POLICIES, *PEERS]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_traces(trace: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"chats.jsonl{suffix}"
    if suffix == ".gz":
        path.write_bytes(gzip.compress(trace.read_bytes()))
    else:
        path.write_bytes(pytest.importorskip("zstandard").compress(trace.read_bytes()))
    assert read_requests(path) == read_requests(trace)
    path.write_bytes(path.read_bytes()[:-9])
    status, _, err = run("--trace", path, *SMALL)
    assert status != 0
    assert str(path) in err


def test_requests_are_sorted_by_time(tmp_path: Path) -> None:
    lines = chats(40)
    path = tmp_path / "chats.jsonl"
    path.write_text("\n\n".join(json.dumps(line) for line in lines[::-1]) + "\n")  # empty lines, too
    assert [each.blocks for each in read_requests(path)] == [tuple(line["hash_ids"]) for line in lines]


GOOD = {"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1]}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "not JSON"),
        ("\xff", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a JSON object"),
        (json.dumps({"timestamp": 1}), "'input_length' is missing"),
        (json.dumps(GOOD | {"timestamp": "now"}), "'timestamp'"),
        (json.dumps(GOOD | {"timestamp": -1}), "'timestamp'"),
        (json.dumps(GOOD | {"timestamp": float("nan")}), "'timestamp'"),
        (json.dumps(GOOD | {"timestamp": float("inf")}), "'timestamp'"),
        (json.dumps(GOOD | {"timestamp": True}), "'timestamp'"),
        (json.dumps(GOOD | {"input_length": 1.5}), "'input_length'"),
        (json.dumps(GOOD | {"output_length": 2**60}), "'output_length'"),
        (json.dumps(GOOD | {"hash_ids": 7}), "'hash_ids'"),
        (json.dumps(GOOD | {"hash_ids": [1, "a"]}), "'hash_ids'"),
        (json.dumps(GOOD | {"hash_ids": [2**64]}), "'hash_ids'"),
        (json.dumps(GOOD | {"hash_ids": "x" * 500}), "'hash_ids'"),
    ],
    ids=range(16),
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{line}\n", encoding="latin-1")
    with pytest.raises(TraceError, match=f"line 2: .*{what}") as error:
        read_requests(path)
    assert len(str(error.value)) < 400 + len(str(path))
    status, out, err = run("--trace", path)
    assert (status, out) == (2, "")
    assert err.startswith(f"evenbins: {path}, line 2: ")  # not "this is a bug in evenbins"


def test_what_cannot_be_replayed(trace: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for arguments, words in [
        (["--trace", empty], "no requests"),
        (["--trace", tmp_path / "none.jsonl"], "no such file"),
        (["--trace", tmp_path], "is a directory"),
        ([], "--trace"),
        (["--trace", trace, "--replicas", 5000], "--replicas"),
        (["--trace", trace, "--epsilon", -1], "--epsilon"),
        (["--trace", trace, "--tokens-per-second", 0], "--tokens-per-second"),
        (["--trace", trace, "--policy", "random"], "random"),
        (["--trace", trace, "--policy", "hash", "--all"], "--policy excludes"),
        (["--trace", trace, "--policy", "hash", "--peers"], "--policy excludes"),
        (["--trace", trace, "--plot", tmp_path / "p.gif"], ".svg or .png"),
        (["--trace", trace, "--plot", tmp_path / "no" / "p.svg"], "no such folder"),
    ]:
        status, out, err = run(*arguments)
        assert status != 0
        assert out == ""
        assert words in err
        assert "Traceback" not in err


def test_a_plot_is_drawn(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    options = ["--policy", "global", "--policy", "score", "--requests", 50]
    for name, magic in (("p.svg", b"<?xml"), ("p.png", b"\x89PNG")):
        assert run("--trace", trace, *SMALL, *options, "--plot", tmp_path / name)[0] == 0
        assert (tmp_path / name).read_bytes().startswith(magic)
    drawing = (tmp_path / "p.svg").read_text()
    assert "mean time to first token" in drawing
    assert drawing.count(">score<") == 2
    assert drawing.count(">global<") == 1


def test_replays_need_policies_and_requests() -> None:
    requests = [LlmRequest(0.0, 10, 1, (1,))]
    with pytest.raises(ValueError, match="policies"):
        replay_llm(requests, policies=["random"])
    for policies in ([], "hash"):
        with pytest.raises(TypeError, match="policies"):
            replay_llm(requests, policies=policies)
    with pytest.raises(ValueError, match="requests"):
        replay_llm([])
    with pytest.raises(ValueError, match="policy"):
        replay_llm(requests, policies=["hash"]).row("score")


def test_progress_reaches_the_end(trace: Path) -> None:
    calls: list[tuple[int, int]] = []
    replay_llm(read_requests(trace), replicas=2, policies=["global", "score"],
               progress=lambda done, total: calls.append((done, total)))  # fmt: skip
    assert calls[-1] == (1000, 1000)
    assert calls == sorted(calls)
    assert len(calls) <= 2 * 250
