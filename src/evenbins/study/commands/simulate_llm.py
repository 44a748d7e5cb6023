"""The command `evenbins simulate llm`: what a routing policy would find in the caches of LLM replicas.

evenbins simulate llm --trace conversation.jsonl.zst --replicas 16 --cache-blocks 4000
evenbins simulate llm --trace conversation.jsonl.zst --policy prefix --policy score --json
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from evenbins._console import (
    COUNT,
    FILE,
    NUMBER,
    check_output,
    check_readable,
    integer,
    show,
    show_json,
    with_option_errors,
)
from evenbins.study.commands._shared import Steps

if TYPE_CHECKING:
    from evenbins.study.llm import LlmReport

__all__ = ["llm"]

# Those of evenbins.study.llm, which is imported on use; a test compares them.
_POLICIES = ("global", "round-robin", "least-work", "hash", "prefix", "score")
_FURTHER = ("hash-1", "hash-work", "prefix-requests", "prefix-spread", "score-spread")
_PEERS = ("session", "envoy", "haproxy", "kubeai", "sglang", "sglang-4", "production-stack", "llm-d")
_SPLIT = ("prefix-split-2", "prefix-split-4", "score-split-2", "score-split-4")


@click.command(short_help="Prefix blocks found in the caches of LLM replicas.")
@click.option("--trace", "path", type=FILE, required=True, help="JSON lines (.gz, .zst), as Mooncake's.")
@click.option("--replicas", type=COUNT, default=16, show_default=True, help="Number of replicas.")
@click.option("--cache-blocks", type=COUNT, default=4000, show_default=True, help="Blocks in a cache.")
@click.option("--policy", "policies", multiple=True,
              type=click.Choice([*_POLICIES, *_FURTHER, *_PEERS, *_SPLIT]),
              help="May be given several times.  [default: the first six]")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Replay all policies of evenbins.")
@click.option("--peers", is_flag=True, help="Replay those of other routers, too.")
@click.option("--requests", type=COUNT, help="Only the first ones.")
@click.option(
    "--epsilon", type=NUMBER, default=0.25, show_default=True, help="A load above the mean, at most."
)
@click.option("--block-tokens", type=COUNT, default=512, show_default=True, help="Tokens in a block.")
@click.option("--tokens-per-second", type=NUMBER, default=12_000, show_default=True, help="Speed of prefill.")
@click.option("--seconds-per-token", type=NUMBER, default=0.02, show_default=True, help="Of an answer.")
@click.option("--seed", type=integer, default=0, help="Of the routers: 0 to 2**64-1.")
@click.option("--plot", type=FILE, help="Draw an SVG or PNG, by suffix.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def llm(
    path: str, replicas: int, cache_blocks: int, policies: tuple[str, ...], every: bool, peers: bool,
    requests: int | None, epsilon: float, block_tokens: int, tokens_per_second: float,
    seconds_per_token: float, seed: int, plot: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Replay a trace of prompts through replicas that cache prefixes, once for each policy.

    A line of the trace has timestamp (ms), input_length, output_length (tokens) and hash_ids, the ids of the
    prompt's blocks. TTFT is the time to first token; see docs/prefix_routing.md for the model.
    """
    if policies and (every or peers):
        raise click.ClickException("--policy excludes --all and --peers: name the policies, or give a group")
    if plot is not None:
        _check_plot(plot)
    from evenbins.study.llm import read_requests, replay_llm

    check_readable(path)
    chosen = policies or _POLICIES + _FURTHER * every + _PEERS * peers
    with Steps() as bar:
        begun = bar.begin("reading")
        trace = with_option_errors(lambda: read_requests(path, progress=lambda lines: begun(lines, None)))
        if requests is not None:
            trace = trace[:requests]
        report = with_option_errors(
            lambda: replay_llm(
                trace, replicas=replicas, cache_blocks=cache_blocks, policies=chosen, epsilon=epsilon,
                block_tokens=block_tokens, tokens_per_second=tokens_per_second,
                seconds_per_token=seconds_per_token, seed=seed, name=os.path.basename(path),
                progress=bar.begin("replaying"),
            )
        )  # fmt: skip
    if plot is not None:
        _draw(report, plot)
    if as_json:
        show_json(report.to_dict())
    else:
        show(str(report))


def _check_plot(plot: str) -> None:
    """Raise an error for a figure that cannot be written, before the replay."""
    from evenbins.study.papers import plots

    if not plot.lower().endswith(plots.FORMATS):
        raise click.ClickException(f"--plot {plot}: the name must end in {' or '.join(plots.FORMATS)}")
    check_output(plot, option="--plot")
    try:
        plots.check_available()
    except ImportError as error:
        raise click.ClickException(str(error)) from None


def _draw(report: LlmReport, path: str) -> None:
    """Draw hits and times to first token as bars, one for each policy."""
    import matplotlib
    from matplotlib.figure import Figure

    suffix = os.path.splitext(path)[1].lower()
    with matplotlib.rc_context({"svg.hashsalt": "llm", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, 4), dpi=150, layout="constrained")
        figure.suptitle(f"{report.trace}: {report.replicas} replicas, {report.cache_blocks} blocks each")
        left, right = figure.subplots(1, 2)
        left.barh([row.policy for row in report.rows], [row.hit for row in report.rows])
        left.set_xlabel("blocks found in the cache (fraction)")
        timed = [row for row in report.rows if row.ttft_mean is not None]
        right.barh([row.policy for row in timed], [row.ttft_mean or 0.0 for row in timed])
        right.set_xlabel("mean time to first token (s)")
        for axes in (left, right):
            axes.invert_yaxis()
            axes.grid(alpha=0.3, axis="x")
        figure.savefig(path, format=suffix[1:], metadata={"Date": None} if suffix == ".svg" else None)
