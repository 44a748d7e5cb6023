"""The directory of a sharded filter: a file for each shard and a manifest that says what belongs together.

    DIRECTORY/manifest.json                  written last, in one step
    DIRECTORY/shards-<token>/00000.evb …     a file a shard, as `BlockedBloomFilter.save` writes it

    begin_directory ──▶ write_shard, each, by whoever has it ──▶ finish_directory

A directory is the filter that one `save` wrote or it is refused: the manifest has a checksum and those of
the shards' headers, which have those of the payloads. A crash at any moment leaves the old filter: a save
makes a new folder of shards, replaces the manifest, and only then removes the old folder. One process
saves at a time, but the shards of one save may be written by many (cluster/dask.py).

In the folder of the shards nothing else may lie; beside the manifest folders of interrupted saves may.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evenbins import _arguments as arguments
from evenbins import _core, _files, _mapped_files, structure
from evenbins._core import FormatError
from evenbins._files import StrPath
from evenbins.filters.base import BaseFilter
from evenbins.filters.plan import FilterPlan, plan_of_core
from evenbins.theory import sharding

__all__ = [
    "MANIFEST", "Manifest", "ShardFile", "begin_directory", "discard", "finish_directory", "header_checksum",
    "manifest_of", "manifest_text", "shard_name", "write_shard",
]  # fmt: skip

MANIFEST = "manifest.json"
_VERSION = 1
_FOLDER = re.compile(r"shards-[0-9a-f]{16}\Z")
_TEMPORARY = re.compile(r"\.evenbins-[0-9a-f]{16}\.tmp\Z")


class ShardFile(NamedTuple):
    """What the manifest knows of a shard's file."""

    name: str
    nbytes: int
    checksum: str  # of the header, which holds that of the payload


def shard_name(number: int) -> str:
    """Name the file of a shard."""
    return f"{number:05d}.evb"


def begin_directory(path: StrPath) -> Path:
    """Make the directory if need be, and in it a new folder for shards, which is returned."""
    folder = Path(os.fsdecode(path))
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder}: a sharded filter is saved as a directory, and this is a file")
    _make_durably(folder)
    if not (folder / MANIFEST).exists() and any(
        not _FOLDER.match(each.name) and not _TEMPORARY.match(each.name) for each in folder.iterdir()
    ):
        raise FileExistsError(f"{folder}: it holds other files and no {MANIFEST}. Name a new directory")
    target = folder / f"shards-{secrets.token_hex(8)}"
    try:
        _make_durably(target)  # before a manifest names it, or after a power cut it would name nothing
    except BaseException:
        discard(target)
        raise
    return target


def discard(target: Path) -> None:
    """Take away the shards of a save that failed.

    If the manifest names them the save did not fail: what came after it did (the sync of the folder, a
    Ctrl-C while the old shards were removed), and the shards are the filter now.
    """
    with contextlib.suppress(OSError, FormatError):
        if Manifest.read((target.parent / MANIFEST).read_bytes()).folder == target.name:
            return
    shutil.rmtree(target, ignore_errors=True)


def _make_durably(folder: Path) -> None:
    """Make a directory and those above it; each is on disk when its name in the one above is."""
    missing = [folder, *folder.parents]
    for each in reversed(missing[: next(i for i, each in enumerate(missing) if each.is_dir())]):
        each.mkdir(exist_ok=True)
        _files._sync_folder(each.parent)


def write_shard(target: Path, number: int, part: BaseFilter) -> ShardFile:
    """Write the file of a shard into the folder of `begin_directory`; doing it again changes nothing."""
    path = target / shard_name(number)
    part.save(path)
    with open(path, "rb") as file:
        head = file.read(48)
        (offset,) = struct.unpack_from("<Q", head, 40)
        file.seek(0)
        head = file.read(offset)
    return ShardFile(path.name, path.stat().st_size, header_checksum(head))


def finish_directory(target: Path, part: BaseFilter, keys: int, entries: Sequence[ShardFile]) -> None:
    """Write the manifest, which makes the shards in `target` the directory's; remove what it held before."""
    folder = target.parent
    for each in target.iterdir():
        if _TEMPORARY.match(each.name):  # of a writer that was killed
            each.unlink(missing_ok=True)
    _files._sync_folder(target)
    text = manifest_text(part, keys, target.name, entries)
    _files.replace_file(folder / MANIFEST, lambda descriptor: _files.write_all(descriptor, text))
    for each in list(folder.iterdir()):
        if _FOLDER.match(each.name) and each != target:
            shutil.rmtree(each, ignore_errors=True)


def manifest_text(part: BaseFilter, keys: int, folder: str, entries: Sequence[ShardFile]) -> bytes:
    """Write the manifest of shards like `part`."""
    content = {
        "format": "evenbins sharded filter",
        "version": _VERSION,
        "shards": len(entries),
        "keys": keys,
        "policy": part._policy,
        "hashing": part.plan.hashing,
        "seed": part.seed,
        "core": list(part._core),
        "shard_keys": part.capacity,
        "folder": folder,
        "files": [each._asdict() for each in entries],
    }
    return json.dumps(content | {"checksum": _checksum(content)}, indent=1).encode() + b"\n"


class Manifest(NamedTuple):
    """What a manifest says."""

    keys: int
    policy: str
    hashing: str
    seed: int
    core: tuple[int, ...]
    shard_keys: int
    folder: str
    files: tuple[ShardFile, ...]

    @classmethod
    def read(cls, text: bytes) -> Manifest:
        """Read a manifest; nothing in it is believed before it is checked."""
        try:
            content = json.loads(text)
            if not isinstance(content, dict) or content.get("format") != "evenbins sharded filter":
                raise FormatError("the manifest is not one of a sharded filter")
            version = content.get("version")
            if version != _VERSION:
                raise FormatError(
                    f"the manifest has version {version!r}; this evenbins reads version {_VERSION}. "
                    "Install a newer evenbins, or it is damaged"
                )
            if content.pop("checksum") != _checksum(content):
                raise FormatError("the manifest's checksum is wrong: it is damaged")
            files = tuple(ShardFile(**each) for each in content["files"])
            found = cls(
                keys=content["keys"], policy=content["policy"], hashing=content["hashing"],
                seed=content["seed"], core=tuple(content["core"]), shard_keys=content["shard_keys"],
                folder=content["folder"], files=files,
            )  # fmt: skip
            found.plan()  # refuses what no filter has
            names = tuple(shard_name(i) for i in range(len(files)))
            if content["shards"] != len(files) or not files or tuple(each.name for each in files) != names:
                raise FormatError("the manifest's shards contradict its files")
            if found.folder and not _FOLDER.match(found.folder):
                raise FormatError("the manifest names an impossible folder")
            arguments.capacity(found.keys)
            sharding.checked_shards(len(files))
            if not all(isinstance(each.nbytes, int) and each.nbytes > 0 for each in files):
                raise FormatError("the manifest has impossible sizes")
        except FormatError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FormatError(f"the manifest is damaged ({type(error).__name__}: {error})") from None
        return found

    def plan(self) -> FilterPlan:
        """Return the plan of the shards."""
        return plan_of_core(
            self.policy, self.core, capacity=self.shard_keys, seed=self.seed, hashing=self.hashing
        )

    def shards_in(
        self, folder: Path, *, mapped: bool, verify: bool, preload: bool = False
    ) -> list[BaseFilter]:
        """Read all shards of a directory; refuse what is missing and what is too many."""
        strays = [each.name for each in folder.iterdir() if each.suffix == ".evb"]
        try:
            there = {each.name for each in (folder / self.folder).iterdir()}
        except (FileNotFoundError, NotADirectoryError):
            raise FormatError(f"the folder {self.folder} of the shards is missing") from None
        strays += [name for name in there if not _TEMPORARY.match(name)]
        extra = sorted(set(strays) - {each.name for each in self.files})
        missing = sorted({each.name for each in self.files} - there)
        if missing:
            raise FormatError(f"{_some(missing)} missing")
        if extra or len(strays) != len(self.files):
            raise FormatError(f"{_some(extra or sorted(strays))} not of this filter, or there twice")
        parts, nbytes = [], sum(each.nbytes for each in self.files)
        for each in self.files:
            path = folder / self.folder / each.name
            try:
                data = _mapped_files.map_file(path)
            except FileNotFoundError:
                raise FormatError(f"{each.name} is missing") from None
            except FormatError as error:
                raise FormatError(f"{each.name}: {error}") from None
            if len(data) != each.nbytes:
                raise FormatError(f"{each.name} has {len(data)} bytes and should have {each.nbytes}")
            whole = verify or not mapped
            with _mapped_files.advised(data, path, whole=whole, preload=preload, nbytes=nbytes):
                parts.append(self.shard(each, data, mapped=mapped, verify=verify))
        return parts

    def shard(self, entry: ShardFile, data: Any, *, mapped: bool, verify: bool) -> BaseFilter:
        """Read one shard; it must be the very one that the manifest means."""
        try:
            kind = structure.kind_of_number(_core.file_kind(data))
            if kind is None or self.policy not in kind.policies:
                raise FormatError("it holds another kind of filter")
            part: BaseFilter = kind.cls._from_data(data, mapped=mapped, verify=verify)
            if _header_checksum_of(part, data) != entry.checksum:
                raise FormatError("it is not the shard that the manifest means, or it is damaged")
        except FormatError as error:
            raise FormatError(f"{entry.name}: {error}") from None
        wanted = (self.policy, self.core, self.seed, self.shard_keys)
        if (part._policy, tuple(part._core), part.seed, part.capacity) != wanted:
            raise FormatError(f"{entry.name}: it is a shard of another plan than the manifest's")
        return part


def manifest_of(folder: Path) -> bytes:
    """Return the text of a directory's manifest."""
    try:
        return (folder / MANIFEST).read_bytes()
    except NotADirectoryError:
        raise FormatError(f"{folder}: this is a file, and a sharded filter is a directory") from None
    except FileNotFoundError:
        if not folder.exists():
            raise
        raise FormatError(f"{folder}: it has no {MANIFEST}, so it holds no sharded filter") from None


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{shown} {'is' if len(names) == 1 else 'are'}"


def _checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return f"{_core.xxh3_64(canonical):016x}"


def _header_checksum_of(part: BaseFilter, data: Any) -> str:
    """Return the checksum of a shard's header; of a copy it is computed, since `data` may change."""
    if part._read_only:
        return header_checksum(data)
    return header_checksum(
        _core.file_header(
            part._kind, part._hashing, part.seed, part.capacity, part._core, memoryview(part).cast("B")
        )
    )


def header_checksum(data: Any) -> str:
    """Return the checksum that a file's header ends with; the core tells whether it is right."""
    view = memoryview(data)
    with contextlib.suppress(struct.error):
        (offset,) = struct.unpack_from("<Q", view, 40)
        if 80 <= offset <= len(view):
            (found,) = struct.unpack_from("<Q", view, offset - 8)
            return f"{found:016x}"
    raise FormatError("the file ends within its header")
