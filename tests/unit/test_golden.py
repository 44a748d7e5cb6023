"""Golden files: what was written once is read forever, and written the same way (tests/golden/README.md)."""

from __future__ import annotations

import hashlib
import runpy
from pathlib import Path
from typing import Any

import pytest

import evenbins
from evenbins import FormatError
from evenbins.reference import format as reference

GOLDEN = Path(__file__).parents[1] / "golden"
MAKER = runpy.run_path(str(GOLDEN / "make_golden.py"))
FILTERS, DAMAGED, KEYS = MAKER["FILTERS"], MAKER["DAMAGED"], MAKER["KEYS"]
CORES = {
    "standard": (700, 7),
    "standard-seed": (1120, 11),
    "standard-odd-bits": (923, 9),
    "standard-one-bit": (1, 1),
    "standard-64-hashes": (6510, 64),
    "blocked-512": (2, 512, 8),
    "blocked-512-seed": (3, 512, 16),
    "blocked-512-24-hashes": (5, 512, 24),
    "blocked-256": (4, 256, 7),
    "blocked-256-32-hashes": (14, 256, 32),
}
each_file = pytest.mark.parametrize("name", FILTERS)


def path_of(name: str) -> Path:
    return GOLDEN / f"{name}.evenbins"


def test_no_golden_file_has_changed_or_gone() -> None:
    sums = dict(reversed(line.split()) for line in (GOLDEN / "SHA256SUMS").read_text().splitlines())
    files = {str(path.relative_to(GOLDEN)): path for path in GOLDEN.rglob("*.evenbins")}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == sums
    assert set(sums) == {f"{name}.evenbins" for name in FILTERS} | {
        f"damaged/{name}.evenbins" for name in DAMAGED
    }


@each_file
def test_a_golden_file_is_read_and_has_its_keys(name: str) -> None:
    for f in (evenbins.load(path_of(name)), evenbins.open(path_of(name), verify=True)):
        assert f.plan.core == CORES[name]
        assert all(key in f for key in KEYS)
        assert f.contains_many(KEYS).all()
        f._check()


@each_file
def test_the_same_filter_built_today_has_the_same_bytes(name: str) -> None:
    assert MAKER["golden_filter"](name).to_bytes() == path_of(name).read_bytes()
    one_by_one = FILTERS[name]()
    for key in reversed(KEYS):
        one_by_one.add(key)
    assert one_by_one.to_bytes() == path_of(name).read_bytes()


@each_file
def test_a_golden_file_written_again_is_the_same_file(name: str, tmp_path: Path) -> None:
    evenbins.open(path_of(name)).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path_of(name).read_bytes()


@each_file
def test_the_reference_reads_a_golden_file_alike(name: str) -> None:
    parsed = reference.unpack(path_of(name).read_bytes())
    f = evenbins.load(path_of(name))
    assert (parsed.core, parsed.seed, parsed.capacity) == (f.plan.core, f.seed, f.capacity)
    assert parsed.payload == bytes(memoryview(f))


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_with_its_reason(name: str) -> None:
    path = path_of(f"damaged/{name}")
    _, message = DAMAGED[name]
    readers: list[Any] = [evenbins.load, lambda path: evenbins.open(path, verify=True)]
    if name not in ("flipped-payload", "spare-bit"):  # which only a look at the payload finds
        readers.append(evenbins.open)
    for read in readers:
        with pytest.raises(FormatError, match=message):
            read(path)
