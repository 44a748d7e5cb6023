"""The commands `evenbins simulate …`: what a cluster would do with your log.

    evenbins simulate cache --trace log.tsv.gz --servers 100 --cache-size 1000 --limit 500
    evenbins simulate cache --synthetic aol --config aol-1 --repeat 10 --json
    evenbins simulate llm --trace chats.jsonl.zst --replicas 16 --cache-blocks 4000     (simulate_llm)

Errors and exit codes are those of `evenbins.cli`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from evenbins._console import COUNT, check_readable, integer, show, show_json, with_option_errors
from evenbins.study.commands._shared import Steps, cores, threads_option
from evenbins.study.commands.simulate_llm import llm

if TYPE_CHECKING:
    from evenbins.study.simulate import CacheReport
    from evenbins.study.traces import Trace

__all__ = ["simulate"]

_CONFIGURATIONS = [f"{name}-{number}" for name in ("aol", "indiana") for number in range(1, 5)]
_MINUTES = {"stale_minutes": "--stale", "served_minutes": "--served", "recovery_minutes": "--recovery"}


@click.group(short_help="Replay a log through caches or LLM replicas.")
def simulate() -> None:
    """Simulate what a cluster would do."""


simulate.add_command(llm)


@simulate.command(short_help="Misses of cache servers that fill up and fail.")
@click.option(
    "--trace", "path", type=click.Path(readable=False), help="A log: CSV, TSV (.gz, .zst) or Parquet."
)
@click.option(
    "--synthetic", type=click.Choice(["aol", "indiana"]), help="Instead, a random trace of its counts."
)
@click.option("--requests", type=COUNT, help="Only the first ones.")
@click.option("--time-column", help="Its name, or its number from 0.  [default: found by its name, or 0]")
@click.option("--key-column", help="Its name, or its number from 0.  [default: found by its name, or 1]")
@click.option("--time-format", help="s, ms, us, ns, iso, or a pattern with %.  [default: by the first row]")
@click.option(
    "--config", type=click.Choice(_CONFIGURATIONS), help="The paper's Tables 3 and 4; options change it."
)
@click.option("--servers", type=COUNT, help="Number of servers.")
@click.option("--cache-size", help="Urls in a server's cache, at most; 'none': no bound.")
@click.option("--limit", help="Requests at once, with one more a server fails; 'none': it never does.")
@click.option("--stale", type=float, help="Minutes until a url not asked for is evicted.  [default: 300]")
@click.option("--served", type=float, help="Minutes a server works on a request.  [default: 10]")
@click.option("--recovery", type=float, help="Minutes until a failed server is back, empty.  [default: 20]")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(["plain", "clockwise", "rehash", "jump"]),
    help="May be given several times.  [default: clockwise and jump]",
)
@click.option("--copies", type=COUNT, default=1, show_default=True, help="Places of a server on the circle.")
@click.option("--seed", type=integer, default=0, help="Of all places: 0 to 2**64-1.")
@click.option("--repeat", type=COUNT, default=1, help="Replays, with seeds that follow: mean and deviation.")
@threads_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cache(
    path: str | None, synthetic: str | None, requests: int | None, time_column: str | None,
    key_column: str | None, time_format: str | None, config: str | None, servers: int | None,
    cache_size: str | None, limit: str | None, stale: float | None, served: float | None,
    recovery: float | None, policies: tuple[str, ...], copies: int, seed: int, repeat: int,
    threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Replay a log of timed requests, and count misses beyond those of one cache without limits.

    A full server passes a request on by the policy; one with more requests than its limit fails and
    comes back empty. Of the log the columns of times and of keys (urls) are read; see docs/cache_replay.md.
    """
    from evenbins.study.simulate import CONFIGURATIONS, replay_cache

    if (path is None) == (synthetic is None):
        what = "exclude each other: give one" if path is not None else "are both missing: give one"
        raise click.ClickException(f"--trace and --synthetic {what}")
    for option, given in (
        ("--time-column", time_column),
        ("--key-column", key_column),
        ("--time-format", time_format),
    ):
        if synthetic is not None and given is not None:
            raise click.ClickException(f"{option} is for --trace: leave out one of the two")
    arguments: dict[str, Any] = {"stale_minutes": 300.0, "served_minutes": 10.0, "recovery_minutes": 20.0}
    if config is not None:
        arguments = CONFIGURATIONS[config].to_dict()
    given_by_option = {
        "servers": servers, "stale_minutes": stale, "served_minutes": served, "recovery_minutes": recovery,
    }  # fmt: skip
    arguments |= {name: value for name, value in given_by_option.items() if value is not None}
    for name, text in (("cache_size", cache_size), ("limit", limit)):
        if text is not None:
            arguments[name] = None if text.lower() == "none" else integer(text)
    for name in ("servers", "cache_size", "limit"):
        if name not in arguments:
            option = "--" + name.replace("_", "-")
            none = "" if name == "servers" else f" ('{option} none': no bound)"
            raise click.ClickException(f"{option} is missing: give it, or a --config{none}")
    with Steps() as bar:
        report = _run(
            lambda: replay_cache(
                _trace(path, synthetic, requests, (time_column, key_column), time_format, seed, bar),
                policies=policies or ("clockwise", "jump"), copies=copies, seed=seed, repeat=repeat,
                threads=threads or cores(), progress=bar.begin("replaying"), **arguments,
            )
        )  # fmt: skip
    if as_json:
        show_json(report.to_dict())
    else:
        show(_text(report))


def _trace(
    path: str | None, synthetic: str | None, requests: int | None, columns: tuple[str | None, str | None],
    time_format: str | None, seed: int, bar: Steps,
) -> Trace:  # fmt: skip
    from dataclasses import replace

    from evenbins.study.traces import SYNTHETIC, read_trace, synthetic_trace

    if synthetic is not None:
        bar.begin("drawing")
        trace = replace(synthetic_trace(seed=seed, **SYNTHETIC[synthetic]), name=f"synthetic {synthetic}")
    else:
        check_readable(path or "")
        begun = bar.begin("reading")
        time, key = (int(each) if each is not None and each.isdecimal() else each for each in columns)
        trace = read_trace(path or "", time_column=time, key_column=key, time_format=time_format,
                           progress=lambda rows: begun(rows, None))  # fmt: skip
    return trace if requests is None else trace.head(requests)


def _run(call: Callable[[], CacheReport]) -> CacheReport:
    """Call the library; an error about an argument, or a column, becomes one about the option."""
    try:
        return with_option_errors(call, **_MINUTES)
    except click.ClickException as error:
        text = re.sub(r"\b(time|key)_(?=column\b)", r"--\1-", error.message)
        raise click.ClickException(text.replace("Pass None for", "Give 'none' for")) from None


def _text(report: CacheReport) -> str:
    """Write the report, and what can be compared."""
    lines = [str(report)]
    if {"clockwise", "jump"} <= set(report.policies):
        ratio = report.ratio("clockwise", "jump")
        what = f"{ratio:.3g}" if ratio is not None else "none: jump has no additional misses"
        lines += ["", f"additional misses, clockwise over jump: {what}"]
    return "\n".join(lines)
