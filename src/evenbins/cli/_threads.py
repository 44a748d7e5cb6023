"""The option --threads of the commands that make bulk calls."""

from __future__ import annotations

import click

__all__ = ["threads_option"]

threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    help="The most threads that share the work.  [default: the cores of this process]",
)
