"""`evenbins seed`, and what --seed takes: N, random, or @FILE.

With a secret seed nobody can choose keys that collide or are false positives. The seed is stored in the file
of the filter: whoever can read the file can read the seed. So `build --seed random|@FILE` makes new files
that their owner alone can read, and `merge` none that more people can read than its inputs; a file that is
replaced keeps its mode, as its owner chose it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

import click

from evenbins import _platform
from evenbins._console import FILE, check_output, integer
from evenbins.cli._output import note

__all__ = ["SecretSeed", "keep_private", "seed", "seed_of", "seed_option"]

_MOST = 2**64 - 1


class SecretSeed(int):
    """A seed that was drawn or read from a file, not written on a command line."""


def seed_of(text: str) -> int:
    """Read what --seed takes: a number, random, or @FILE."""
    if text == "random":
        return SecretSeed(_new_seed())
    if text.startswith("@"):
        return SecretSeed(_read_seed(text[1:]))
    try:
        number = integer(text)
    except click.BadParameter:
        raise click.BadParameter(
            f"{text!r} is not a seed: give a number from 0 to 2**64-1, random, or @FILE"
        ) from None
    return _check_seed(number, "--seed")


seed_option = click.option(
    "--seed", type=seed_of, default="0", metavar="N|random|@FILE",
    help="Hash seed: 0 to 2**64-1, random, or @FILE. Only its owner can read a new file with a secret seed.",
)  # fmt: skip


@contextlib.contextmanager
def keep_private(forbidden: int) -> Iterator[None]:
    """Create files without these bits of the mode inside the block, whatever the umask allows."""
    before = os.umask(0o077)
    os.umask(before | forbidden)
    try:
        yield
    finally:
        os.umask(before)


def _check_seed(number: int, where: str) -> int:
    if not 0 <= number <= _MOST:
        raise click.ClickException(f"{where} must be an integer from 0 to 2**64-1, not {number}")
    return number


def _new_seed() -> int:
    return int.from_bytes(os.urandom(8), "little") or 1  # 0 is the default


def _read_seed(path: str) -> int:
    with open(path, encoding="ascii", errors="replace") as file:
        text = file.read(100).strip()
    try:
        number = int(text, 0)
    except ValueError:
        raise click.ClickException(
            f"--seed @{path}: the file must hold one number, as 'evenbins seed -o {path}' writes it"
        ) from None
    return _check_seed(number, f"--seed @{path}: the number")


@click.command(short_help="Write a new secret seed to a file.")
@click.option("-o", "--output", required=True, type=FILE, help="The file to write; it must not exist.")
def seed(output: str) -> None:
    """Draw a random 64-bit seed and write it to a file that only its owner can read.

    Use it as `evenbins build --seed @FILE`. Filters that are to be merged need the same seed. It is stored in
    what is built, which only its owner can read either, unless the file was there before.
    """
    check_output(output)
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _platform.OPEN, 0o600)
    except FileExistsError:
        raise FileExistsError(
            errno.EEXIST, "it exists, and a seed is never overwritten: choose another name", output
        ) from None
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            _platform.set_mode(descriptor, 0o600)  # whatever the umask is
            file.write(f"{_new_seed():#018x}\n")
    except BaseException:
        os.unlink(output)  # a partial seed must not block the next attempt
        raise
    note(f"{click.format_filename(output)}: a new seed, readable by its owner alone")
