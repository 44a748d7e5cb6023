"""Sphinx: everything offline, warnings are errors (`make docs`).

Some pages are made from the product itself each time, into docs/_generated: the command line's help; the
newest benchmarks (tools/benchmark_page.py); a page for each experiment (tools/gallery_pages.py), from
what `make gallery` kept in docs/gallery; the tables of trust.md (tools/trust_page.py); a page for each public
class (tools/api_pages.py), from the list in docs/api.md. Figures are drawn by matplotlib at that moment;
pictures (docs/images) are committed, and drawn by `make pictures`.
"""

import sys
from pathlib import Path

import click
from sphinx.application import Sphinx

from evenbins import __version__
from evenbins.cli import commands

here = Path(__file__).parent
sys.path[:0] = [str(here.parent / name) for name in ("tools", "tests", ".")]

import api_pages  # noqa: E402
import benchmark_page  # noqa: E402
import gallery_pages  # noqa: E402
import trust_page  # noqa: E402

project = "evenbins"
author = "the evenbins authors"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"evenbins {release}"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_numpy_docstring = True
# Attributes are told as "name : meaning": Sphinx takes words of the meaning for types, and finds several.
suppress_warnings = ["ref.python"]
exclude_patterns = ["_build", "_generated/*.md"]
html_static_path = ["_static"]
html_css_files = ["evenbins.css"]


def write_cli_page(command: click.Command = commands, name: str = "evenbins") -> str:
    """Give the help of a command, and of those below it."""
    context = click.Context(command, info_name=name, max_content_width=100)
    parts = [f"## `{name}`\n\n```text\n{command.get_help(context)}\n```\n"]
    if isinstance(command, click.Group):
        parts += [
            write_cli_page(command.commands[each], f"{name} {each}") for each in sorted(command.commands)
        ]
    return "\n".join(parts)


generated = here / "_generated"
generated.mkdir(exist_ok=True)
(generated / "cli.md").write_text(write_cli_page())
benchmark_page.write(here.parent / "benchmarks" / "results", generated)
gallery_pages.write(here / "gallery", generated)
trust_page.write(generated)
api_pages.write(here / "api.md", generated)


def show_index_of_api(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace the list of directives in api.md by an index of the pages made from it."""
    if docname == "api":
        source[0] = api_pages.index(source[0])


def setup(app: Sphinx) -> None:
    """Connect what changes pages while they are read."""
    app.connect("source-read", show_index_of_api)
