"""Sphinx: everything offline, warnings are errors (`make docs`)."""

from evenbins import __version__

project = "evenbins"
author = "the evenbins authors"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "sphinx_mathjax_offline"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"evenbins {release}"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_numpy_docstring = True
exclude_patterns = ["_build"]
