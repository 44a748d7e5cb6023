"""`evenbins seed`, and what --seed takes: N, random, or @FILE.

With a secret seed nobody can choose keys that collide, or that are found by accident. The seed is stored in
the file of the filter: who can read that can read the seed. So `build --seed random|@FILE` makes new files
that their owner alone can read, and `merge` none that more people can read than its inputs; a file that is
replaced keeps its mode, as its owner chose it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

import click

from evenbins._console import FILE, check_output, integer
from evenbins.cli._output import note

__all__ = ["SecretSeed", "keep_private", "seed", "seed_of"]

_MOST = 2**64 - 1


class SecretSeed(int):
    """A seed that was drawn, or kept in a file: not one that stands on a command line."""


def seed_of(text: str) -> int:
    """Read what --seed takes: a number, random, or @FILE."""
    if text == "random":
        return SecretSeed(_fresh())
    if text.startswith("@"):
        return SecretSeed(_of_file(text[1:]))
    try:
        number = integer(text)
    except click.BadParameter:
        raise click.BadParameter(
            f"{text!r} is no seed: give a number from 0 to 2**64-1, random, or @FILE"
        ) from None
    return _checked(number, "--seed")


@contextlib.contextmanager
def keep_private(forbidden: int) -> Iterator[None]:
    """Let files that are made meanwhile lack these bits of the mode, whatever the umask allows."""
    before = os.umask(0o077)
    os.umask(before | forbidden)
    try:
        yield
    finally:
        os.umask(before)


def _checked(number: int, where: str) -> int:
    if not 0 <= number <= _MOST:
        raise click.ClickException(f"{where} must be an integer from 0 to 2**64-1, not {number}")
    return number


def _fresh() -> int:
    return int.from_bytes(os.urandom(8), "little") or 1  # 0 is what everybody has


def _of_file(path: str) -> int:
    with open(path, encoding="ascii", errors="replace") as file:
        text = file.read(100).strip()
    try:
        number = int(text, 0)
    except ValueError:
        raise click.ClickException(
            f"--seed @{path}: the file must hold one number, as 'evenbins seed -o {path}' writes it"
        ) from None
    return _checked(number, f"--seed @{path}: the number")


@click.command(short_help="Write a new secret seed to a file.")
@click.option("-o", "--output", required=True, type=FILE, help="The file to write; it must not exist.")
def seed(output: str) -> None:
    """Draw a random 64-bit seed and write it to a file that only its owner can read.

    Use it as `evenbins build --seed @FILE`. Filters that are to be merged need the same seed. It is stored in
    what is built, which only its owner can read either, unless the file was there before.
    """
    check_output(output)
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise FileExistsError(
            errno.EEXIST, "it exists, and a seed is never overwritten: choose another name", output
        ) from None
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, 0o600)  # whatever the umask is
            file.write(f"{_fresh():#018x}\n")
    except BaseException:
        os.unlink(output)  # half a seed would stand in the way of a whole one
        raise
    note(f"{click.format_filename(output)}: a new seed, readable by its owner alone")
