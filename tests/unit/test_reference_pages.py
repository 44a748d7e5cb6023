"""The reference is complete.

docs/api.md has every public name, docs/costs.toml the cost of every method, docs/format.md every kind.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import api_pages

DOCS = Path(__file__).parents[2] / "docs"
MODULES = [
    "evenbins",
    "benchmarks",
    "evenbins.cluster",
    "evenbins.cluster.dask",
    "evenbins.cluster.fleet",
    "evenbins.cluster.health",
    "evenbins.cluster.http",
    "evenbins.cluster.memcached",
    "evenbins.cluster.shared_loads",
    "evenbins.cluster.sharded_redis",
    "evenbins.compat.huggingface",
    "evenbins.compat.scrapy",
    "evenbins.compat.uhashring",
    "evenbins.deduplication",
    "evenbins.design",
    "evenbins.rings.forwarding",
    "evenbins.routing",
    "evenbins.study.papers",
    "evenbins.study.papers.ring_simulation",
    "evenbins.study.papers.simulation",
    "evenbins.study.papers.summary_simulation",
    "evenbins.filters.protocols",
    "reference",
    "evenbins.rings",
    "evenbins.filters.sharded",
    "evenbins.study.simulate",
    "evenbins.study.llm",
    "evenbins.sketches",
    "evenbins.tables.summaries",
    "evenbins.tables",
    "evenbins.study.theory.balance",
    "evenbins.study.theory.rings",
    "evenbins.study.traces",
]


def documented() -> tuple[list[Any], set[str]]:
    """Give the objects that the page has an entry for, and the last parts of all names in its tables."""
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    module, found = "evenbins", []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if match := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = match[1]
        elif match := re.match(r"\.\. auto(?:class|function|exception):: (\S+)", line):
            path, _, name = (match[1] if "." in match[1] else f"{module}.{match[1]}").rpartition(".")
            found.append(getattr(import_module(path), name))
        elif match := re.match(r"\.\. automodule:: (\S+)", line):
            members = lines[number + 1].partition(":members:")[2].replace(",", " ").split()
            found += [
                getattr(import_module(match[1]), name) for name in members or import_module(match[1]).__all__
            ]
    told = set(re.findall(r"`[\w.]*?(\w+)`", text.partition("## Types and constants")[2]))
    return found, told


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_an_entry(module: str) -> None:
    found, told = documented()
    names = {id(each) for each in found}
    public = import_module(module)
    missing = [name for name in public.__all__ if id(getattr(public, name)) not in names and name not in told]
    assert not missing, f"docs/api.md lacks these of {module}"


def test_no_entry_stands_twice() -> None:
    found, _ = documented()
    twice = [each for each in found if sum(other is each for other in found) > 1]
    assert not twice


def test_every_class_has_a_page_and_every_name_a_link() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    pages, index = api_pages.pages(text), api_pages.index(text)
    found, _ = documented()
    classes = [each for each in found if isinstance(each, type) and not issubclass(each, BaseException)]
    assert len([name for name in pages if name[0].isupper() or "." in name]) == len(classes)
    for name in pages:
        assert f"_generated/api/{name}\n" in index
    assert "| `key in x` | O(1), 1 read |" in pages["BlockedBloomFilter"]
    assert (
        "{py:obj}`add_many <evenbins.BlockedBloomFilter.add_many>` | O(n) | Add many keys"
        in pages["BlockedBloomFilter"]
    )
    assert ":members: add_many" in pages["BlockedBloomFilter"]


@pytest.mark.parametrize("page", [name for name in api_pages.COSTS if name != "every"])
def test_every_method_has_its_cost(page: str) -> None:
    """In the sections of docs/costs.toml: no method without a cost, no cost without a method."""
    module, _, name = f"evenbins.{page}".rpartition(".")
    cls = getattr(import_module(module), name)
    names = api_pages.methods(cls)
    assert not {*api_pages.COSTS[page]} - {*names, "in"}
    assert not [name for name in names if api_pages.cost(page, cls, name) is None], (
        "docs/costs.toml lacks these"
    )


def test_every_kind_of_file_is_told() -> None:
    text = (DOCS / "format.md").read_text(encoding="utf-8")
    for kind in range(1, 15):
        assert re.search(rf"^\| {kind} \w", text, re.M), f"no row of kind {kind}"
