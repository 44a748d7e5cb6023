"""`evenbins reproduce`: the papers' experiments, and their numbers beside ours."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from evenbins._console import FILE, check_output, integer, render, show, show_json
from evenbins.study.commands._shared import Steps, cores, threads_option

if TYPE_CHECKING:
    from evenbins.study import papers

__all__ = ["reproduce"]


@click.command(short_help="Repeat the papers' experiments.")
@click.argument("ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All experiments.")
@click.option("--list", "listed", is_flag=True, help="List the experiments, and run none.")
@click.option("--quick", is_flag=True, help="Fewer trials: a look, not a result.")
@click.option("--seed", type=integer, default=1, show_default=True, help="Of all randomness: 0 to 2**64-1.")
@click.option(
    "--rows",
    type=click.Choice(["paper", "all"]),
    default="paper",
    show_default=True,
    help="Print the rows that the paper has a number for, or all.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, all rows: an object for one ID, else a list."
)
@click.option("--plot", type=FILE, help="Draw an SVG or PNG, by suffix; {id} stands for the id.")
@click.option("--trace", type=FILE, help="For chen-table1 and -table2: a log of requests of your own.")
@threads_option
def reproduce(
    ids: tuple[str, ...], everything: bool, listed: bool, quick: bool, seed: int, rows: str, as_json: bool,
    plot: str | None, trace: str | None, threads: int | None,
) -> None:  # fmt: skip
    """Run experiments of the papers, and print the papers' numbers beside ours, a verdict, and notes.

    An ID is that of one experiment (kanizo-fig5), a paper (kanizo: all of its experiments) or a pattern
    ('kanizo-fig*'). For several experiments the file's name needs {id}: --plot 'figures/{id}.svg'.
    """
    from evenbins.study import papers

    if everything and ids:
        raise click.ClickException(f"--all and {ids[0]} exclude each other: leave out one of the two")
    try:
        chosen = papers.select(papers.PAPERS if everything or (listed and not ids) else ids)
    except papers.UnknownExperimentError as error:
        raise click.ClickException(str(error)) from None
    if listed:
        return _list_experiments(chosen, as_json=as_json)
    if not chosen:
        raise click.ClickException("no experiment named: give an ID, or --all; --list lists them")
    if not 0 <= seed < 2**64:
        raise click.ClickException(f"--seed must be 0 to 2**64-1, not {seed}")
    places = _plot_places(plot, [each.id for each in chosen])
    options = _trace_options(trace, chosen)
    results = []
    with Steps(len(chosen)) as steps:
        for each in chosen:
            try:
                done = papers.run(
                    each,
                    seed=seed,
                    quick=quick,
                    threads=threads or cores(),
                    progress=steps.begin(each.id),
                    options=options if "trace" in each.options else {},
                )
            except OSError as error:
                raise click.ClickException(f"{error.filename or trace}: {error.strerror or error}") from None
            except ValueError as error:
                if trace is None:
                    raise
                raise click.ClickException(str(error)) from None
            steps.end()
            results.append(done)
            if plot is not None:
                from evenbins.study.papers import plots

                plots.save(each, done.rows, places[each.id])
            if not as_json:
                steps.above(partial(show, _result_text(each.title, done, every_row=rows == "all")))
    if as_json:
        one = ids == (results[0].id,)
        show_json(results[0].to_dict() if one else [each.to_dict() for each in results])


def _trace_options(trace: str | None, chosen: Sequence[papers.Experiment]) -> dict[str, Any]:
    if trace is None:
        return {}
    if not any("trace" in each.options for each in chosen):
        raise click.ClickException("--trace is for chen-table1 and chen-table2; neither is named")
    return {"trace": trace}


def _list_experiments(chosen: Sequence[papers.Experiment], *, as_json: bool) -> None:
    from evenbins.study.papers import table

    if as_json:
        return show_json([{"id": each.id, "source": each.source, "title": each.title} for each in chosen])
    show(render(table.listing(chosen)))


def _result_text(title: str, result: papers.Result, *, every_row: bool) -> str:
    from evenbins.study.papers import table

    how = f"{result.source}; seed {result.seed}{', quick' if result.quick else ''}; {result.seconds:.1f} s"
    head = click.style(result.id, bold=True) + f"  {title} ({how})\n"
    rows = table.shown(result, every_row=every_row)
    verdict = table.summary(rows)
    if len(rows) < len(result.rows):
        verdict += f" {len(result.rows) - len(rows):,} more rows have none: --rows all."
    return "\n".join([head, render(table.table(rows)), verdict, *table.notes(rows), ""])


def _plot_places(plot: str | None, ids: Sequence[str]) -> dict[str, str]:
    """Return where each figure goes, and raise an error for what cannot work before the experiments run."""
    if plot is None:
        return {}
    from evenbins.study.papers import plots

    if not plot.lower().endswith(plots.FORMATS):
        raise click.ClickException(f"--plot {plot}: the name must end in {' or '.join(plots.FORMATS)}")
    places = {id: plot.replace("{id}", id) for id in ids}
    if len(set(places.values())) < len(places):
        stem, suffix = os.path.splitext(plot)
        raise click.ClickException(
            f"--plot {plot} is one file for {len(ids)} experiments: put {{id}} in, as {stem}-{{id}}{suffix}"
        )
    for place in places.values():
        check_output(place)
    try:
        plots.check_available()
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    return places
