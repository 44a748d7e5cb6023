"""A group of commands that are imported when they are called, so that none waits for another's imports.

The group knows names and one-line helps without an import (a test compares them with the commands' own);
`commands`, its dict, imports a command when click, the documentation or completion reads it.

Classes here and in _inputs.py are plain ones: creating a dataclass takes a millisecond
of the start-up.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Sequence, ValuesView
from importlib import import_module
from typing import Any

import click

__all__ = ["LazyGroup", "Row"]


class Row:
    """A command that is not imported yet: its name, its line in --help, its home."""

    __slots__ = ("help", "module", "name")

    def __init__(self, name: str, help: str, module: str) -> None:
        self.name, self.help, self.module = name, help, module

    def load(self) -> click.Command:
        """Import it."""
        found: click.Command = getattr(import_module(self.module), self.name)
        return found


class _Commands(dict[str, Any]):
    """Commands by name; what is read out of it has been imported."""

    def __getitem__(self, name: str) -> click.Command:
        found: click.Command | Row = super().__getitem__(name)
        if isinstance(found, Row):
            found = self[name] = found.load()
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """Return a command, or the default."""
        return self[name] if name in self else default  # noqa: SIM401 (of this very method)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """Import all of them."""
        return {name: self[name] for name in self}.values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Import all of them."""
        return {name: self[name] for name in self}.items()

    def lines(self) -> Iterator[tuple[str, str]]:
        """Return names and one-line helps; imports nothing."""
        for name, found in sorted(super().items()):
            yield name, found.help if isinstance(found, Row) else found.get_short_help_str(100)


class LazyGroup(click.Group):
    """A group of commands given by rows."""

    def __init__(self, *args: Any, rows: Sequence[Row] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands: _Commands = _Commands({row.name: row for row in rows})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without an import."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands.lines()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete a command's name, without an import."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=line)
            for name, line in self.commands.lines()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)
