"""`evenbins help`: what `--help` prints, asked for in words."""

from __future__ import annotations

import click

from evenbins._console import show

__all__ = ["help"]


@click.command(short_help="Show how a command is used.")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help(context: click.Context, words: tuple[str, ...]) -> None:
    """Show how COMMAND is used, as `evenbins COMMAND --help` does; without one, all commands."""
    place = context.find_root()
    rest = list(words)
    while rest:
        if not isinstance(place.command, click.Group):
            raise click.ClickException(f"{place.command_path} has no command {rest[0]!r}: leave it out")
        name, command, rest = place.command.resolve_command(place, rest)
        assert command is not None  # or else it has raised
        place = click.Context(command, info_name=name, parent=place)
    show(place.get_help())
