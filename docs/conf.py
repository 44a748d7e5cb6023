"""Sphinx: everything offline, warnings are errors (`make docs`).

Two pages are made from the product itself each time: the command line's help, and the newest benchmark.
"""

import json
from pathlib import Path

import click

from evenbins import __version__
from evenbins.bench.harness import Report
from evenbins.cli import commands

project = "evenbins"
author = "the evenbins authors"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"evenbins {release}"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_numpy_docstring = True
exclude_patterns = ["_build", "_generated"]

here = Path(__file__).parent


def write_cli_page(command: click.Command = commands, name: str = "evenbins") -> str:
    """Give the help of a command, and of those below it."""
    context = click.Context(command, info_name=name, max_content_width=100)
    parts = [f"## `{name}`\n\n```text\n{command.get_help(context)}\n```\n"]
    if isinstance(command, click.Group):
        parts += [
            write_cli_page(command.commands[each], f"{name} {each}") for each in sorted(command.commands)
        ]
    return "\n".join(parts)


def write_benchmark_page() -> str:
    """Give the newest results of each suite that `make bench` wrote."""
    newest = {
        path.stem[11:]: path for path in sorted((here.parent / "benchmarks" / "results").glob("*.json"))
    }
    if not newest:
        return "No results yet: run `make bench`."
    return "\n".join(
        f"## {suite.capitalize()}\n\n{Report.from_dict(json.loads(path.read_text())).to_markdown()}"
        for suite, path in newest.items()
    )


generated = here / "_generated"
generated.mkdir(exist_ok=True)
(generated / "cli.md").write_text(write_cli_page())
(generated / "benchmarks.md").write_text(write_benchmark_page())
