"""Names of inputs: files, - for standard input, folders, and patterns that the shell left as they were.

    crawl/            every file below it whose suffix is known, sorted by path
    'crawl/**/*.gz'   the files that match, sorted; ** crosses folders
    -                 standard input

A name that exists is that file, though it has a star in it. Hidden files, and files in hidden folders, are
not found by a folder or a pattern.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

import click

from evenbins._console import check_readable

__all__ = [
    "CSV_SUFFIXES",
    "JSON_SUFFIXES",
    "PARQUET_SUFFIXES",
    "expand_names",
    "readable_names",
    "suffixes_of",
]

PARQUET_SUFFIXES = (".parquet", ".pq")
CSV_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".ndjson")
_TEXT_SUFFIXES = (".txt", ".text", ".lst", ".list", ".log")
_KNOWN = (*_TEXT_SUFFIXES, *CSV_SUFFIXES, *JSON_SUFFIXES, *PARQUET_SUFFIXES)
_PACKED = (".gz", ".zst", ".zstd")


def suffixes_of(name: str) -> tuple[str, str]:
    """Return the suffix that names a format, and that of the compression behind it ("" for none)."""
    stem, suffix = os.path.splitext(name)
    suffix = suffix.lower()
    if suffix not in _PACKED:
        return suffix, ""
    return os.path.splitext(stem)[1].lower(), suffix


def expand_names(names: Sequence[str]) -> list[str]:
    """Return the files that names, folders and patterns stand for, in the order of the names."""
    return [each for name in names for each in _expand(name)]


def readable_names(names: Sequence[str]) -> list[str]:
    """Return the files that the names stand for; raise an error for one that cannot be read."""
    found = expand_names(names)
    if found.count("-") > 1:
        raise click.ClickException("standard input (-) can be read only once")
    for name in found:
        if name != "-" and not stat.S_ISREG(check_readable(name)) and found.count(name) > 1:
            raise click.ClickException(f"{name} is not a regular file, and can be read only once")
    return found


def _expand(name: str) -> list[str]:
    if name == "-":
        return [name]
    if os.path.isdir(name):
        found = sorted(_files_below(name))
        if not found:
            raise click.ClickException(
                f"{name}: no file below this folder ends in {', '.join(_KNOWN)}, or one of these and "
                f"{', '.join(_PACKED)}: name the files, or a pattern such as '{os.path.join(name, '*')}'"
            )
        return found
    if os.path.lexists(name) or not any(mark in name for mark in "*?["):
        return [name]
    import glob

    _check_folders_of(name)
    found = sorted(each for each in glob.iglob(name, recursive=True) if os.path.isfile(each))
    if not found:
        raise click.ClickException(f"{name}: no file matches this pattern: check it")
    return found


def _check_folders_of(pattern: str) -> None:
    """Raise an error for a folder that a pattern leads into and that cannot be read; glob passes over it."""
    import glob

    folder, last = os.path.split(pattern)
    while folder and last:
        needed = os.R_OK | os.X_OK if glob.has_magic(last) else os.X_OK
        for each in glob.iglob(folder, recursive=True):
            if os.path.isdir(each) and not os.access(each, needed):
                raise _unreadable(each)
        folder, last = os.path.split(folder)


def _unreadable(folder: str) -> click.ClickException:
    return click.ClickException(
        f"{folder}: this folder cannot be read, and its files would be missing: check its owner and mode, or "
        "name the files"
    )


def _raise_walk_error(error: OSError) -> None:
    raise _unreadable(os.fsdecode(error.filename)) from None


def _files_below(folder: str) -> Iterator[str]:
    """Yield the files with a known suffix; pipes and devices are passed over, broken links are not."""
    for place, folders, files in os.walk(folder, onerror=_raise_walk_error):
        folders[:] = [each for each in folders if not each.startswith(".")]
        for file in files:
            suffix, packed = suffixes_of(file)
            known = suffix in _KNOWN or (packed and not suffix)
            path = os.path.join(place, file)
            if known and not file.startswith(".") and (os.path.isfile(path) or not os.path.exists(path)):
                yield path
