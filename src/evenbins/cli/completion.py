"""`evenbins completion`: the script that lets a shell complete commands, options and choices."""

from __future__ import annotations

import click

from evenbins._console import show

__all__ = ["completion"]

_VARIABLE = "_EVENBINS_COMPLETE"


@click.command(short_help="Print a shell's completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes `evenbins` in a SHELL.

    \b
    bash   put into ~/.bashrc:  eval "$(evenbins completion bash)"
    zsh    put into ~/.zshrc:   eval "$(evenbins completion zsh)"      (after compinit)
    fish   evenbins completion fish > ~/.config/fish/completions/evenbins.fish

    The script asks `evenbins` itself, which answers without importing what the commands need.
    """
    from click.shell_completion import get_completion_class

    from evenbins.cli import commands

    found = get_completion_class(shell)
    assert found is not None
    # The class' source() asks bash for its version first; the script is the same.
    made = found(commands, {}, "evenbins", _VARIABLE)
    show((made.source_template % made.source_vars()).strip())
