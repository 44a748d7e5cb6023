"""The reference, one page per class: what docs/conf.py calls when the documentation is built.

    docs/api.md, directives by section ──▶ docs/_generated/api/<class>.md     a table of methods, then all
                                       ├─▶ docs/_generated/api/<section>.md   its functions and errors
                                       └─▶ the index, which Sphinx shows in place of the directives (`index`)
    docs/costs.toml ───────────────────▶ the costs in the tables of methods

A new public name needs a line in docs/api.md and no more; tests/unit/test_reference_pages.py misses it.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COSTS: dict[str, dict[str, str]] = tomllib.loads((ROOT / "docs/costs.toml").read_text(encoding="utf-8"))


@dataclass
class Entry:
    """One directive of docs/api.md."""

    kind: str  # class, function, exception, module
    path: str  # with its module
    module: str  # of currentmodule
    options: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def page(self) -> str:
        """The name of a class's page: its path within the package."""
        return ".".join(self.path.split(".")[1:])

    @property
    def object(self) -> Any:
        """What it documents."""
        if self.kind == "module":
            return import_module(self.path)
        module, _, name = self.path.rpartition(".")
        return getattr(import_module(module), name)

    @property
    def members(self) -> list[str]:
        """The members that the directive names."""
        named = next((each.partition(":members:")[2] for each in self.options if ":members:" in each), "")
        return named.replace(",", " ").split()

    def directive(self) -> str:
        """Return the directive for Sphinx; of a structure with all its methods."""
        options = self.options
        if self.kind == "class" and self.page in COSTS:
            names = [each for each in methods(self.object) if inspect.getdoc(getattr(self.object, each))]
            native = [each for each in names if _is_native(self.object, each)]
            shown = ", ".join(each for each in names if each not in native)
            options = [f"   :members: {shown}", "   :inherited-members:"]
        return "\n".join(
            [f".. currentmodule:: {self.module}", "", f".. auto{self.kind}:: {self.path}", *options]
        )


@dataclass
class Section:
    """A section of docs/api.md: its title, its text, its entries."""

    title: str
    text: str
    entries: list[Entry]

    @property
    def slug(self) -> str:
        """The name of the page of its functions."""
        return re.sub(r"\W+", "-", self.title.lower())

    @property
    def classes(self) -> list[Entry]:
        """The entries with pages of their own."""
        return [each for each in self.entries if each.kind == "class"]

    @property
    def others(self) -> list[Entry]:
        """The entries of the page of functions."""
        return [each for each in self.entries if each.kind != "class"]


def read(text: str) -> tuple[str, list[Section], str]:
    """Split docs/api.md: what stands before the first section, the sections with directives, the rest."""
    head, *parts = re.split(r"^## ", text, flags=re.M)
    sections, rest = [], ""
    for part in parts:
        title, _, body = part.partition("\n")
        block = re.search(r"```\{eval-rst\}\n(.*?)```", body, re.S)
        if block is None:
            rest += f"## {part}"
            continue
        prose = (body[: block.start()] + body[block.end() :]).strip()
        sections.append(Section(title.strip(), prose, list(entries(block[1]))))
    return head, sections, rest


def entries(block: str) -> Iterator[Entry]:
    """Yield the directives of a block."""
    module, found = "evenbins", None
    for line in block.splitlines():
        if match := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = match[1]
        elif match := re.match(r"\.\. auto(class|function|exception|module):: (\S+)", line):
            if found:
                yield found
            full = match[1] == "module" or "." in match[2]
            found = Entry(match[1], match[2] if full else f"{module}.{match[2]}", module)
        elif found and line.startswith("   "):
            found.options.append(line)
    if found:
        yield found


def methods(cls: type) -> list[str]:
    """Return the public names of a class: constructors and calls first, then properties."""
    names = [name for name in dir(cls) if not name.startswith("_") and inspect.getdoc(getattr(cls, name))]
    names = [name for name in names if type(inspect.getattr_static(cls, name)).__name__ != "MissingName"]
    return sorted(names, key=lambda name: (_is_property(cls, name), name))


def _is_property(cls: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(cls, name), property) or inspect.isdatadescriptor(
        getattr(cls, name)
    )


def _is_native(cls: type, name: str) -> bool:
    """Whether a method is compiled: Sphinx cannot read its signature, so the table alone has it."""
    return type(inspect.getattr_static(cls, name)).__name__ in ("method_descriptor", "nb_method")


def summary(thing: Any) -> str:
    """Return the first sentence of a docstring, as Markdown for a cell."""
    lines = (inspect.getdoc(thing) or "").splitlines() or [""]
    if re.match(r"\w+\(.*->", lines[0]):  # the signature that nanobind puts first
        lines = [each for each in lines[1:] if each] or [""]
    paragraph = " ".join(lines[: lines.index("") if "" in lines else None])
    first = re.split(r"(?<=[a-z`)0-9])\.(?:\s|$)|[:;]$", paragraph)[0].replace("``", "`")
    return first.replace("**", r"\*\*").replace("|", r"\|")


def cost(page: str, cls: type, name: str) -> str | None:
    """Return what a call costs; None where docs/costs.toml does not say it."""
    return COSTS[page].get(name) or COSTS["every"].get(name) or ("O(1)" if _is_property(cls, name) else None)


def table(entry: Entry) -> str:
    """Return the methods of a class, each with its cost and its first sentence."""
    cls, known = entry.object, entry.page in COSTS
    names = methods(cls) if known else [name for name in entry.members if hasattr(cls, name)]
    if not names:
        return ""
    lines = (
        ["| call | cost | what it does |", "|---|---|---|"]
        if known
        else ["| call | what it does |", "|---|---|"]
    )
    if known and "in" in COSTS[entry.page]:
        lines.append(f"| `key in x` | {COSTS[entry.page]['in']} | Whether the key is there |")
    for name in names:
        text = f"`{name}`" if _is_native(cls, name) else f"{{py:obj}}`{name} <{entry.path}.{name}>`"
        cells = [text, summary(getattr(cls, name))]
        if known:
            cells.insert(1, cost(entry.page, cls, name) or "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page_of_class(entry: Entry, section: Section) -> str:
    """Return the page of a class."""
    parts = [f"# {entry.name}", f"`{entry.path}` · [{section.title}](../../api.md)"]
    if methods_ := table(entry):
        parts.append(methods_)
        if entry.page in COSTS:
            parts.append(
                "*n*: the keys given; *M*: the bytes of the structure; a read: a cache line, on disk a page."
            )
    parts.append(f"```{{eval-rst}}\n{entry.directive()}\n```")
    return "\n\n".join(parts) + "\n"


def page_of_functions(section: Section) -> str:
    """Return the page of a section's functions and errors."""
    body = "\n\n".join(each.directive() for each in section.others)
    head = f"# {section.title}: functions\n\nThose of the section [{section.title}](../../api.md)."
    return f"{head}\n\n```{{eval-rst}}\n{body}\n```\n"


def pages(text: str) -> dict[str, str]:
    """Return the pages by name."""
    found = {}
    for section in read(text)[1]:
        for entry in section.classes:
            found[entry.page] = page_of_class(entry, section)
        if section.others:
            found[section.slug] = page_of_functions(section)
    return found


def index(text: str) -> str:
    """Return the page that stands in place of docs/api.md: every name, with a link and its first sentence."""
    head, sections, rest = read(text)
    parts = [head.strip()]
    for section in sections:
        lines = ["| name | what it is |", "|---|---|"]
        lines += [
            f"| [`{each.name}`](_generated/api/{each.page}.md) | {summary(each.object)} |"
            for each in section.classes
        ]
        for each in section.others:
            if each.kind == "module":
                names = " ".join(
                    f"{{py:obj}}`{name} <{each.path}.{name}>`" for name in each.members or each.object.__all__
                )
                lines.append(f"| [`{each.path}`](_generated/api/{section.slug}.md) | {names} |")
            else:
                lines.append(f"| {{py:obj}}`{each.name} <{each.path}>` | {summary(each.object)} |")
        names = [each.page for each in section.classes] + ([section.slug] if section.others else [])
        listed = "\n".join(f"_generated/api/{name}" for name in names)
        toctree = f"```{{toctree}}\n:hidden:\n\n{listed}\n```"
        parts += [f"## {section.title}", *([section.text] if section.text else []), "\n".join(lines), toctree]
    return "\n\n".join([*parts, rest.strip()]) + "\n"


def write(source: Path, generated: Path) -> None:
    """Write the pages; one whose text is as before is left alone, so that Sphinx skips it."""
    folder = generated / "api"
    folder.mkdir(parents=True, exist_ok=True)
    made = pages(source.read_text(encoding="utf-8"))
    for name, text in made.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.iterdir():
        if path.stem not in made:
            path.unlink()
