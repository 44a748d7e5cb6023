"""What fuzzing found once stays repaired: every input of the corpora and every crash, through the Python
targets.

`make fuzz` (tools/fuzz.py) is the fuzzer; here is no chance at all. An input of a C++ target is a file,
and goes through
`from_bytes`, `load` and `open` here, as it is and with right checksums; recipes for the one-read table
are for `make fuzz` alone
(fuzz/cpp/paged.cpp), what they found has tests of its own below.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz"
sys.path.insert(0, str(FUZZ / "python"))
FILES = ("filters", "sketches", "tables", "chained", "summaries", "rings")
TARGETS = ("loaders", "keys", "arrow", "inputs", "traces", "router")


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
