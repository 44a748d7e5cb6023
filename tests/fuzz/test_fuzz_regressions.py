"""What fuzzing found once stays repaired: every input of the corpora and every crash, through the Python
targets.

`make fuzz` (tools/fuzz.py) is the fuzzer; here is no chance at all. An input of a C++ target is a file,
and goes through
`from_bytes`, `load` and `open` here, as it is and with right checksums; recipes for the one-read table
are for `make fuzz` alone
(fuzz/cpp/paged.cpp), what they found has tests of its own below.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from evenbins import ChainedTable, FormatError, MultilevelTable

FUZZ = Path(__file__).parents[2] / "fuzz"
sys.path.insert(0, str(FUZZ / "python"))
FILES = ("filters", "fingerprint", "fuse", "window", "sketches", "tables", "chained", "summaries", "rings")
TARGETS = ("loaders", "keys", "arrow", "inputs", "traces", "router", "route_parsers")


def inputs_of(target: str) -> Iterator[Path]:
    for kind in ("corpus", "crashes"):
        yield from sorted((FUZZ / kind / target).glob("*"))


@pytest.mark.parametrize("target", [*FILES, *TARGETS])
def test_every_input_of_the_corpus_and_every_crash(target: str) -> None:
    run: Any = import_module("loaders" if target in FILES else target)
    found = list(inputs_of(target))
    assert found, f"no corpus of {target}: make fuzz ARGS='--only {target}', then ARGS='--minimise'"
    for path in found:
        try:
            run.one(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{path.relative_to(FUZZ)}: {type(error).__name__}: {error}") from error


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in FUZZ.glob("corpus/*/*")) < 1_000_000


@pytest.mark.parametrize("cls", [MultilevelTable, ChainedTable])
def test_a_counter_forged_near_its_limit_does_not_make_the_next_file_unreadable(cls: Any) -> None:
    """The table goes on; what is written then is believed again, with every key."""
    forged = import_module("forge").forged
    table = cls(100)
    table.insert_many(range(50), 7)
    file = bytearray(table.to_bytes())
    (offset,) = struct.unpack_from("<Q", file, 40)
    known = struct.unpack_from("<64Q", file, offset)
    assert 50 in known
    accepted = 0
    for at, value in enumerate(known):
        if value != 50:
            continue
        again = bytearray(file)
        struct.pack_into("<Q", again, offset + 8 * at, 2**62)
        try:
            found = cls.from_bytes(forged(bytes(again)))
        except FormatError:
            continue
        accepted += 1
        found.insert_many(range(50, 90), 8)
        back = cls.from_bytes(found.to_bytes())
        assert len(back) == 90
        assert dict(back.items()) == {key: 7 if key < 50 else 8 for key in range(90)}
    assert accepted
