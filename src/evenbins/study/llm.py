"""What a router does for LLM replicas: a trace of prompts replayed through caches of prefixes.

    trace ──▶ policy ──▶ replica: the longest prefix in its cache is free, the rest is queued and prefilled

The model. A replica prefills a fixed number of tokens per second, first come first served. The longest prefix
of a request's blocks that is in its cache is not prefilled; then the request's blocks become the most
recently used, its first block last, and the least recently used are evicted. The time to first token is the
prefill that is queued at the replica (its waiting work) plus the request's own. The answer then takes a fixed
time per token. It slows no prefill; it is how long a request is in flight, for policies that count requests.

    policy             what it knows
    "global"           no replicas: one cache of their total size
    "round-robin"      nothing
    "least-work"       the waiting work of every replica, exactly
    "hash"             PrefixRouter: first two blocks, bounded by requests in flight
    "prefix"           PrefixRouter: deepest known prefix, bounded by waiting work
    "score"            PrefixRouter: least waiting work plus own missing prefill
    "hash-1"           as "hash" by the first block: a key of fixed length, where all prompts begin alike
    "hash-work"        as "hash", bounded by waiting work
    "prefix-requests"  as "prefix", bounded by requests in flight
    "prefix-spread", "score-spread"      with PrefixRouter's default for ties; all others take the first node
    "session"          as "hash" without a bound: a ring of sessions
    "prefix-split-2", "-4", "score-split-2", "-4"    with the index split over workers: llm_split.py

All but the first three are `evenbins.routing.PrefixRouter` itself. The rules of other projects are in
llm_peers.py; "session" is one of them, too. PrefixRouter hears of a request's end when it comes, so that for
it a replica's waiting work falls in steps. A trace has the format of Mooncake's (Qin et al., FAST 2025): one
JSON object per line with timestamp (ms), input_length, output_length (tokens) and hash_ids.
"""

from __future__ import annotations

import heapq
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from evenbins import _show
from evenbins._arguments import error, integer, one_of, real, type_error
from evenbins._arguments import seed as checked_seed
from evenbins.routing.router import Choice, PrefixRouter
from evenbins.study.compressed_files import CompressedError, open_named
from evenbins.study.llm_peers import RULES, BlockCache, PeerSetting, make_peer
from evenbins.study.llm_split import SPLIT, SplitRouter
from evenbins.study.traces import TraceError

__all__ = ["FURTHER", "PEERS", "POLICIES", "LlmReport", "LlmRequest", "LlmRow", "read_requests", "replay_llm"]

POLICIES = ("global", "round-robin", "least-work", "hash", "prefix", "score")
FURTHER = ("hash-1", "hash-work", "prefix-requests", "prefix-spread", "score-spread")
PEERS = ("session", *RULES)

_ROUTERS: dict[str, dict[str, Any]] = {
    "hash": {"policy": "hash", "load": "requests", "ties": "first"},
    "prefix": {"policy": "prefix", "ties": "first"},
    "score": {"policy": "score", "ties": "first"},
    "hash-1": {"policy": "hash", "load": "requests", "ties": "first", "hash_blocks": 1},
    "hash-work": {"policy": "hash", "ties": "first"},
    "prefix-requests": {"policy": "prefix", "load": "requests", "ties": "first"},
    "prefix-spread": {"policy": "prefix"},
    "score-spread": {"policy": "score"},
    "session": {"policy": "hash", "load": "requests", "ties": "first", "epsilon": 1000},
}
_REPORTS = 200  # calls of `progress` for each policy
_MOST = 2**53  # a number in a trace
_FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")


class LlmRequest(NamedTuple):
    """One line of a trace.

    Attributes
    ----------
    seconds : when it came
    tokens, output_tokens : of its prompt and its answer
    blocks : its prompt's blocks, each numbered by the prompt up to its end
    """

    seconds: float
    tokens: int
    output_tokens: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LlmRow:
    """What a policy did.

    Attributes
    ----------
    policy : its name
    hit : fraction of all blocks that were found in the cache
    ttft_mean, ttft_p99 : seconds to the first token, mean and 99th percentile; None for "global"
    max_load : prefill work of the busiest replica over the mean of all; None for "global"
    """

    policy: str
    hit: float
    ttft_mean: float | None
    ttft_p99: float | None
    max_load: float | None


@dataclass(frozen=True, slots=True, repr=False)
class LlmReport:
    """What a trace did to the replicas, under each policy.

    Attributes
    ----------
    trace : its name
    requests, blocks, minutes : what it holds
    replicas, cache_blocks : the replicas, and the blocks in the cache of each
    rows : one for each policy
    """

    trace: str
    requests: int
    blocks: int
    minutes: float
    replicas: int
    cache_blocks: int
    rows: tuple[LlmRow, ...]

    def row(self, policy: str) -> LlmRow:
        """Return the row of a policy.

        Raises
        ------
        ValueError
            If the policy was not replayed.
        """
        for each in self.rows:
            if each.policy == policy:
                return each
        rule = f"one of {', '.join(each.policy for each in self.rows)}"
        raise error("policy", rule, policy, "Name one of these, or replay it")

    def to_dict(self) -> dict[str, Any]:
        """Return the rows as JSON's types."""
        return {"rows": [asdict(each) for each in self.rows]}

    def __repr__(self) -> str:
        rows: list[tuple[str, object]] = [("trace", self.trace), ("requests", self.requests)]
        return _show.line("LlmReport", rows + [(f"hit_{each.policy}", each.hit) for each in self.rows])

    def __str__(self) -> str:
        cells = [["policy", "hit", "mean TTFT (s)", "p99 TTFT (s)", "max load"]]
        cells += [
            [row.policy, f"{row.hit:.3f}", *(map(_number, (row.ttft_mean, row.ttft_p99, row.max_load)))]
            for row in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        head = (
            f"{self.trace}: {self.requests:_} requests, {self.blocks:_} blocks, {self.minutes:_.0f} minutes; "
            f"{self.replicas:_} replicas with {self.cache_blocks:_} blocks each"
        )
        lines = [head, ""]
        for first, *others in cells:
            columns = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *columns]))
        return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


# --- traces -----------------------------------------------------------------------------------------------


def read_requests(
    path: str | os.PathLike[str], *, progress: Callable[[int], object] | None = None
) -> list[LlmRequest]:
    """Read a trace of prompts, in the order of their times.

    Parameters
    ----------
    path
        One JSON object per line: `timestamp` (milliseconds), `input_length`, `output_length` (tokens),
        `hash_ids` (the ids of the prompt's blocks, each of which stands for the prompt up to its end). Names
        that end in .gz or .zst are unpacked (.zst needs Python 3.14, zstandard or pyarrow).
    progress
        Called with the number of lines read, every so often.

    Raises
    ------
    TraceError
        If the file is not such a trace, or has no request; names the line.
    OSError
        If the file cannot be read.
    """
    name = os.fspath(path)
    requests = []
    try:
        with open_named(name, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    requests.append(_parse_request(f"{name}, line {number}", line))
                if progress is not None and number % 1000 == 0:
                    progress(number)
    except CompressedError as broken:
        raise TraceError(str(broken)) from None
    if not requests:
        raise TraceError(f"{name}: no requests: the file is empty")
    requests.sort(key=lambda request: request.seconds)
    return requests


def _parse_request(where: str, line: bytes) -> LlmRequest:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as broken:
        raise TraceError(f"{where}: not JSON ({broken}): a trace has one JSON object per line") from None
    if not isinstance(found, dict):
        raise TraceError(f"{where}: not a JSON object: a trace has one per line, with {', '.join(_FIELDS)}")
    for field in _FIELDS:
        if field not in found:
            raise TraceError(f"{where}: {field!r} is missing: a request has {', '.join(_FIELDS)}")
    milliseconds, tokens, output, blocks = (found[field] for field in _FIELDS)
    if not _is_number(milliseconds, int | float):
        raise TraceError(f"{where}: 'timestamp' must be milliseconds, 0 to 2**53; got {_short(milliseconds)}")
    for field, value in (("input_length", tokens), ("output_length", output)):
        if not _is_number(value, int):
            raise TraceError(f"{where}: {field!r} must be tokens, 0 to 2**53; got {_short(value)}")
    if not isinstance(blocks, list):
        raise TraceError(f"{where}: 'hash_ids' must be a list of integers; got {_short(blocks)}")
    for block in blocks:
        if not isinstance(block, int) or isinstance(block, bool) or not -(2**63) <= block < 2**64:
            raise TraceError(
                f"{where}: 'hash_ids' must be integers from -2**63 to 2**64 - 1; got {_short(block)}"
            )
    return LlmRequest(milliseconds / 1000, tokens, output, tuple(blocks))


def _is_number(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and 0 <= value <= _MOST


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


# --- the replay -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    replicas: int
    cache_blocks: int
    block_tokens: int
    tokens_per_second: float
    seconds_per_token: float

    def prefill(self, request: LlmRequest, depth: int) -> float:
        """Return the seconds that the prefill of a request takes behind a prefix."""
        return max(request.tokens - depth * self.block_tokens, 0) / self.tokens_per_second


class _Router(Protocol):
    """What a policy is that has to be told of requests."""

    def choose(self, seconds: float, blocks: Sequence[int], tokens: int) -> int:
        """Return the replica of a request that comes now."""

    def began(self, replica: int, prefill: float, first_token: float, answered: float) -> None:
        """Note when the request chosen last begins, has its first token and ends."""


class _Routed:
    """A PrefixRouter, and the requests whose ends it has yet to be told."""

    def __init__(self, router: PrefixRouter, names: Sequence[str], ends_with_answer: bool) -> None:
        self._router, self._ends_with_answer = router, ends_with_answer
        self._replicas = {name: number for number, name in enumerate(names)}
        self._open: list[tuple[float, int, Choice]] = []
        self._count = 0

    def choose(self, seconds: float, blocks: Sequence[int], tokens: int) -> int:
        while self._open and self._open[0][0] <= seconds:
            self._router.done(heapq.heappop(self._open)[2])
        self._choice = self._router.route(blocks, work=max(tokens, 1))
        return self._replicas[self._choice.node]

    def began(self, replica: int, prefill: float, first_token: float, answered: float) -> None:
        self._count += 1
        end = answered if self._ends_with_answer else first_token
        heapq.heappush(self._open, (end, self._count, self._choice))


def replay_llm(
    requests: Sequence[LlmRequest],
    *,
    replicas: int = 16,
    cache_blocks: int = 4000,
    policies: Iterable[str] = POLICIES,
    epsilon: float = 0.25,
    block_tokens: int = 512,
    tokens_per_second: float = 12_000,
    seconds_per_token: float = 0.02,
    seed: int = 0,
    name: str = "trace",
    progress: Callable[[int, int], object] | None = None,
) -> LlmReport:
    """Replay a trace of prompts through replicas that cache prefixes, once for each policy.

    Parameters
    ----------
    requests
        As `read_requests` returns them: in the order of their times.
    replicas, cache_blocks
        How many replicas, and how many blocks the cache of each holds.
    policies
        Of POLICIES, FURTHER, PEERS and llm_split.SPLIT; see the head of this module.
    epsilon
        How far a replica's load may exceed the mean.
    block_tokens
        Tokens in one block.
    tokens_per_second
        How fast a replica prefills.
    seconds_per_token
        How long an answer takes after its first token, for policies that count requests.
    seed
        Of the routers.
    name
        The trace's, for the report.
    progress
        Called some times a second with (requests done, requests of all policies).

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type or outside its range.

    Examples
    --------
    >>> chats = [LlmRequest(float(i), 1024, 10, (i % 2, 2 + i % 2)) for i in range(8)]
    >>> report = replay_llm(chats, replicas=2, cache_blocks=2, policies=["global", "score", "score-spread"])
    >>> [row.hit for row in report.rows]       # "score" takes the first of two idle replicas, over and over
    [0.75, 0.0, 0.75]
    """
    if not requests:
        raise error("requests", "at least one request", requests, "Pass what read_requests returns")
    replicas = integer("replicas", replicas, 1, 4096, "Pass the number of replicas")
    model = _Model(
        replicas,
        integer("cache_blocks", cache_blocks, 1, 2**40, "Pass the blocks that a replica's cache holds"),
        integer("block_tokens", block_tokens, 1, 2**40, "Pass the tokens of one block"),
        real("tokens_per_second", tokens_per_second, "", "Pass for example 12000", above=0, most=1e12),
        real("seconds_per_token", seconds_per_token, "", "Pass for example 0.02", least=0, most=1e6),
    )
    epsilon = real("epsilon", epsilon, "", "Pass for example 0.25", least=0, most=1000)
    seed = checked_seed(seed)
    chosen = _checked_policies(policies)
    rows = []
    every = max(1, len(requests) // _REPORTS)

    def report_from(before: int) -> Callable[[int], None]:
        def report(done: int) -> None:
            if progress is not None and done % every == 0:
                progress(before + done, len(requests) * len(chosen))

        return report

    for number, policy in enumerate(chosen):
        report = report_from(number * len(requests))
        if policy == "global":
            rows.append(_replay_one_cache(requests, model, report))
        else:
            rows.append(_replay(policy, requests, model, epsilon, seed, report))
    return LlmReport(
        name, len(requests), sum(len(each.blocks) for each in requests),
        (requests[-1].seconds - requests[0].seconds) / 60, replicas, model.cache_blocks, tuple(rows),
    )  # fmt: skip


def _replay_one_cache(requests: Sequence[LlmRequest], model: _Model, report: Callable[[int], None]) -> LlmRow:
    cache = BlockCache(model.replicas * model.cache_blocks)
    hits = 0
    for done, request in enumerate(requests, 1):
        hits += cache.use(request.blocks)
        report(done)
    return LlmRow("global", _fraction(hits, requests), None, None, None)


def _replay(
    policy: str, requests: Sequence[LlmRequest], model: _Model, epsilon: float, seed: int,
    report: Callable[[int], None],
) -> LlmRow:  # fmt: skip
    caches = [BlockCache(model.cache_blocks) for _ in range(model.replicas)]
    idle_from = [0.0] * model.replicas  # when a replica has prefilled all that it was sent
    busy = [0.0] * model.replicas  # seconds of prefill
    router = None if policy in POLICIES[1:3] else _make_router(policy, model, epsilon, seed)
    hits, waits = 0, []
    for done, request in enumerate(requests, 1):
        now = request.seconds
        if router is not None:
            replica = router.choose(now, request.blocks, request.tokens)
        elif policy == "round-robin":
            replica = (done - 1) % model.replicas
        else:
            replica = min(range(model.replicas), key=lambda i: max(idle_from[i] - now, 0.0))
        depth = caches[replica].use(request.blocks)
        own = model.prefill(request, depth)
        first_token = max(idle_from[replica], now) + own
        idle_from[replica] = first_token
        hits += depth
        busy[replica] += own
        waits.append(first_token - now)
        if router is not None:
            answered = first_token + request.output_tokens * model.seconds_per_token
            router.began(replica, first_token - own, first_token, answered)
        report(done)
    waits.sort()
    p99 = waits[math.ceil(0.99 * len(waits)) - 1]
    mean_busy = sum(busy) / model.replicas
    max_load = max(busy) / mean_busy if mean_busy else 1.0
    return LlmRow(policy, _fraction(hits, requests), sum(waits) / len(waits), p99, max_load)


def _make_router(policy: str, model: _Model, epsilon: float, seed: int) -> _Router:
    setting = PeerSetting(model.replicas, model.cache_blocks, model.block_tokens, epsilon, seed)
    if policy in RULES:
        return make_peer(policy, setting)
    if policy in SPLIT:
        return SplitRouter(*SPLIT[policy], setting)
    names = [f"replica-{number:04}" for number in range(model.replicas)]
    options = {"epsilon": epsilon, **_ROUTERS[policy]}
    router = PrefixRouter(names, cache_blocks=model.cache_blocks, seed=seed, **options)
    return _Routed(router, names, options.get("load") == "requests")


def _fraction(hits: int, requests: Sequence[LlmRequest]) -> float:
    return hits / max(sum(len(each.blocks) for each in requests), 1)


def _checked_policies(policies: Iterable[str]) -> list[str]:
    remedy = "Pass a list such as ['prefix', 'score']"
    names = () if isinstance(policies, str) else dict.fromkeys(policies)
    if not names:
        raise type_error("policies", "a list of at least one name", policies, remedy)
    return [one_of("policies", name, (*POLICIES, *FURTHER, *PEERS, *SPLIT), remedy) for name in names]
