"""`evenbins demo`: all of it at work on generated keys."""

from __future__ import annotations

import click

from evenbins._console import COUNT, FILE, check_output

__all__ = ["demo"]


@click.command()
@click.option("--keys", type=COUNT, default=10_000_000, show_default=True, help="Keys to generate.")
@click.option(
    "--out", type=click.Path(file_okay=False), help="Keep the files in this folder, the report too."
)
@click.option(
    "--report", type=FILE, help="Where to write the report.  [default: evenbins-demo.html, or in --out]"
)
def demo(keys: int, out: str | None, report: str | None) -> int:
    """Show it at work on generated keys.

    Prediction beside measurement, speed, files; a few seconds. Writes a report with figures, one HTML file,
    and prints where it is. Exit status 1 if a claim does not hold.
    """
    from evenbins.cluster.libraries import library
    from evenbins.study.demo.steps import LEAST_KEYS, MOST_KEYS, run

    try:
        library("scipy.special", "theory")  # now, not after the first steps
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    if not LEAST_KEYS <= keys <= MOST_KEYS:
        raise click.ClickException(f"--keys must be {LEAST_KEYS:_} to {MOST_KEYS:_}, not {keys}")
    if report is None and out is None:
        report = "evenbins-demo.html"
    if report is not None:
        check_output(report)
    return run(keys=keys, out=out, report=report)
