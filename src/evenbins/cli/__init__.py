"""The command `evenbins`: filters for the shell.

    evenbins build keys.txt -o keys.evb      lines ──▶ a filter in a file
    evenbins query keys.evb < lines          like grep: prints the lines that are in it
    evenbins remove keys.evb old.txt         keys out of a filter that can remove
    evenbins inspect keys.evb                plan beside stats, blocks by their load, checks
    evenbins count lines                     the number of different lines; `top`: the most frequent
    evenbins dedup crawl/ -o urls.txt        the first of equal rows, in their order and format
    evenbins design filter --keys 1e9 --fpr 1e-6    every design that meets it, best first
    evenbins reproduce kanizo-fig5           a paper's numbers beside ours
    evenbins lab                             all of it on a local page

One module per command, imported when it is called (_group.py); those for study are in `study.commands`.

A key is the bytes of one line, without its newline. Nothing is decoded, nothing is trimmed, an empty line
is the empty key: so `query` prints every line of the file that a filter was built from. Lines are read in
blocks of whole lines and passed to the core in bulk.

Invariants
- Standard output carries the answer alone, bytes as they came in; all else goes to standard error.
- Exit codes are grep's: 0 something selected (or done), 1 nothing selected, 2 an error; 130 after Ctrl-C. A
  reader that has gone (`| head`) ends the command as it ends grep, by SIGPIPE.
- An error is one line that says what to do. Commands raise; `_run` alone prints. An unexpected exception is
  one line too, and says that it is a bug; EVENBINS_DEBUG=1 shows the traceback.
- A command imports only what it needs: rich and scipy where they are used.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from evenbins._console import OutputError, integer
from evenbins.cli._group import LazyGroup, Row
from evenbins.cli._output import abandon_output, complain, describe, end_by_sigpipe, leaves_at_once

__all__ = ["commands", "integer", "main"]

_ROWS = (
    Row("build", "Build a filter from lines.", "evenbins.cli.build"),
    Row("completion", "Print a shell's completion script.", "evenbins.cli.completion"),
    Row("count", "Count the different lines.", "evenbins.cli.count"),
    Row("dedup", "Keep the first of equal rows.", "evenbins.cli.dedup"),
    Row("demo", "Show it at work on generated keys.", "evenbins.study.commands.demo"),
    Row("design", "Find the designs that meet a request, best first.", "evenbins.cli.design"),
    Row("help", "Show how a command is used.", "evenbins.cli.help"),
    Row("inspect", "Show a file: plan beside stats, and checks.", "evenbins.cli.inspect"),
    Row("lab", "Open the lab: pages to understand and to decide.", "evenbins.study.commands.lab"),
    Row("merge", "Merge files into one with the keys of all.", "evenbins.cli.merge"),
    Row("query", "Print the lines that are in a filter.", "evenbins.cli.query"),
    Row("remove", "Remove keys from a filter.", "evenbins.cli.remove"),
    Row("reproduce", "Repeat the papers' experiments.", "evenbins.study.commands.reproduce"),
    Row("route", "Pass HTTP requests on to replicas, by key.", "evenbins.cli.route"),
    Row("seed", "Write a new secret seed to a file.", "evenbins.cli.seed"),
    Row("simulate", "Replay a log through caches or LLM replicas.", "evenbins.study.commands.simulate"),
    Row("top", "Show the most frequent lines.", "evenbins.cli.top"),
)


@click.group(
    cls=LazyGroup,
    rows=_ROWS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(None, "-V", "--version", package_name="evenbins", message="%(prog)s %(version)s")
def commands() -> None:
    """Bloom filters that know their own behaviour: build, query and inspect them."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; the console script calls it through `evenbins._command`."""
    status = _run(args)
    if args is None and leaves_at_once():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, AttributeError, ValueError):
                stream.flush()
        os._exit(status)
    sys.exit(status)


def _run(args: Sequence[str] | None) -> int:
    try:
        status = commands.main(args, prog_name="evenbins", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return 130
    except OutputError as error:
        abandon_output()
        if isinstance(error.args[0], BrokenPipeError):
            end_by_sigpipe()
        return complain(describe(error.args[0], "standard output"))
    except click.UsageError as error:  # click's own; ours are plain ClickExceptions and say what to do
        message = error.format_message()
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            click.echo(message)
            return 0
        path = error.ctx.command_path if error.ctx else "evenbins"
        return complain(f"{message.rstrip('.')}{'' if message.endswith('?') else '.'} Try '{path} --help'")
    except click.ClickException as error:
        return complain(error.format_message())
    except MemoryError as error:
        return complain(str(error) or "not enough memory: use fewer keys or fewer bits")
    except OSError as error:
        return complain(describe(error))
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # while the core was imported
            return 130
        from evenbins._compressed import CompressedError
        from evenbins._core import FormatError

        if isinstance(error, CompressedError):
            return complain(str(error))
        if isinstance(error, ImportError) and "pip install" in str(error):  # of `cluster.libraries`
            return complain(str(error))
        if isinstance(error, FormatError):
            return complain(f"{error}. Name a file that 'evenbins build' wrote, or build it again")
        if os.environ.get("EVENBINS_DEBUG"):
            raise
        return complain(
            f"this is a bug in evenbins: {type(error).__name__}: {error} "
            "(set EVENBINS_DEBUG=1 for the traceback)"
        )
