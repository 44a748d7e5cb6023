"""The one-read table's files, written out: what every byte of the table and its journal means.

The twin keeps pages as lists of pairs and makes the same choices as cpp/tables/paged.cpp; `pages()` gives the
bytes that must lie in the file. `read_table` and `read_journal` read what the core wrote, with nothing of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reference.keys import digest, mulhi, splitmix
from reference.xxh3 import xxh3_64

__all__ = ["ReferencePaged", "TableFile", "read_journal", "read_table"]

_HEAD = struct.Struct("<8sIIII7Q")
_GROUP = struct.Struct("<8s5Q")


class ReferencePaged:
    """A table of integers in pages."""

    def __init__(self, core: Sequence[int], *, uid: int, seed: int = 0) -> None:
        self.key_type, self.value_type, self.page_bytes, self.spare, _, _, *self.level_pages = core
        self.uid, self.seed = uid, seed
        self.slots = (self.page_bytes - 16) // 16
        self.data: list[list[tuple[int, int]]] = [[] for _ in range(sum(self.level_pages) + self.spare)]

    def places(self, key: int) -> list[int]:
        """Give the pages of a key in the order of levels; the overflow pages last."""
        whole = digest(key, self.seed)
        first, found = 0, []
        for level, pages in enumerate(self.level_pages):
            word = splitmix(whole, level) if level else whole
            found.append(first + mulhi(word, pages))
            first += pages
        return [*found, *range(first, first + self.spare)]

    def insert(self, key: int, value: int) -> bool:
        """Store a key: where it is, or in its leftmost page with room. False: there is none."""
        places = self.places(key)
        for page in places:
            for slot, (other, _) in enumerate(self.data[page]):
                if other == key:
                    self.data[page][slot] = (key, value)
                    return True
        for page in places:
            if len(self.data[page]) < self.slots:
                self.data[page].append((key, value))
                return True
        return False

    def insert_many(self, keys: Iterable[int], values: Iterable[int]) -> bool:
        """Store in the order of the pages of level 1, and of the keys in each."""
        items = sorted(zip(keys, values, strict=True), key=lambda item: self.places(item[0])[0])
        return all(self.insert(key, value) for key, value in items)

    def delete(self, key: int) -> bool:
        """Take a key out; the last of its page takes its slot."""
        for page in self.places(key):
            here = self.data[page]
            for slot, (other, _) in enumerate(here):
                if other == key:
                    here[slot] = here[-1]
                    here.pop()
                    return True
        return False

    def pages(self) -> list[bytes]:
        """Give the bytes of each page."""
        return [self._image(number, items) for number, items in enumerate(self.data)]

    def _image(self, number: int, items: list[tuple[int, int]]) -> bytes:
        free = [0] * (self.slots - len(items))
        keys = [key % 2**64 for key, _ in items] + free
        values = [value % 2**64 for _, value in items] + free
        body = struct.pack(f"<II{2 * self.slots}Q", len(items), 0, *keys, *values)
        body += bytes(self.page_bytes - 8 - len(body))
        return struct.pack("<Q", xxh3_64(body, splitmix(self.uid, number))) + body


class TableFile(NamedTuple):
    """A table's file, read."""

    capacity: int
    seed: int
    uid: int
    generation: int
    stamp: int
    keys: int
    core: tuple[int, ...]
    pages: list[bytes]


def read_table(data: bytes) -> TableFile:
    """Read a file: the valid header of the higher generation, and the pages."""
    best: TableFile | None = None
    for start in (0, 4096):
        header = data[start : start + 4096]
        fields = _HEAD.unpack_from(header)
        magic, version, kind, hash_id, hashing, seed, capacity, words, uid, generation, stamp, keys = fields
        if header[4088:] != struct.pack("<Q", xxh3_64(header[:4088], 0)):
            continue
        if (magic, version, kind, hash_id, hashing) != (b"EVENBINS", 1, 13, 1, 1):
            continue
        core = struct.unpack_from(f"<{words}Q", header, _HEAD.size)
        size = core[2]
        pages = [data[i : i + size] for i in range(2 * size, len(data), size)]
        if best is None or generation > best.generation:
            best = TableFile(capacity, seed, uid, generation, stamp, keys, core, pages)
    if best is None:
        raise ValueError("no header is valid")
    return best


def read_journal(data: bytes, table: TableFile) -> list[dict[int, bytes]]:
    """Read the groups that are whole: pages by number, for each."""
    size, groups, at = table.core[2], [], 0
    while at + _GROUP.size <= len(data):
        magic, uid, number, count, _, checksum = _GROUP.unpack_from(data, at)
        if magic != b"EVBJRNL1" or uid != table.uid or checksum != xxh3_64(data[at : at + 40], 0):
            break
        end = at + _GROUP.size + count * (8 + size)
        body = data[at + _GROUP.size : end]
        if data[end : end + 8] != struct.pack("<Q", xxh3_64(body, number)):
            break
        numbers = struct.unpack_from(f"<{count}Q", body)
        images = [body[8 * count + i * size :][:size] for i in range(count)]
        groups.append(dict(zip(numbers, images, strict=True)))
        at = end + 8
    return groups
