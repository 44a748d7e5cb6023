"""Golden files: what was written once is read forever, and written the same way (tests/golden/README.md)."""

from __future__ import annotations

import hashlib
import runpy
from pathlib import Path
from typing import Any

import pytest

import evenbins
from evenbins import FormatError, GrowingFilter
from reference import format as reference

GOLDEN = Path(__file__).parents[1] / "golden"
MAKER = runpy.run_path(str(GOLDEN / "make_golden.py"))
FILTERS, DAMAGED, KEYS = MAKER["FILTERS"], MAKER["DAMAGED"], MAKER["KEYS"]
FUSED = MAKER["FUSED"]  # tested in test_fuse.py
WINDOWS = MAKER["WINDOWS"]  # tested in test_window.py
SKETCHES = MAKER["SKETCHES"]  # tested in test_countmin.py
DISTINCT = MAKER["DISTINCT"]  # tested in test_hyperloglog.py
HITTERS = MAKER["HITTERS"]  # tested in test_heavy_hitters.py
DEDUPLICATORS = MAKER["DEDUPLICATORS"]  # tested in test_deduplicator.py
CHAINED, TABLES = MAKER["CHAINED"], MAKER["TABLES"]  # tested in test_chained.py, test_tables.py
SETS = MAKER["SETS"]  # tested in test_exact_sets.py
SUMMARIES = MAKER["SUMMARIES"]  # tested in test_summaries.py
RINGS = MAKER["RINGS"]  # tested in test_rings.py
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
    "balanced-single": (1, 512, 9, 1, 2**31, 40, 0, 0, 3, 15),
    "balanced-single-random": (1, 256, 7, 1, 2**32, 0, 1, 0, 5, 9),
    "balanced-sequential": (2, 256, 8, 3, 2**30, 25, 0, 0, 5, 10),
    "balanced-sequential-budget": (2, 512, 11, 2, 0, 70, 0, 50, 3, 20),
    "balanced-multilevel": (3, 512, 10, 3, 2**31, 8, 0, 0, 2, 13, 1, 13, 1, 9),
    "balanced-multilevel-no-list": (3, 256, 17, 2, 0, 0, 0, 0, 5, 7, 3, 6),
    "balanced-fill": (4, 512, 9, 2, 0, 0, 0, 0, 2, 200, 1, 513),
    "balanced-fill-256": (4, 256, 24, 3, 0, 0, 0, 0, 5, 110, 2, 120, 1, 257),
    "balanced-two-choice": (5, 512, 12, 2, 0, 0, 0, 0, 3, 0),
    "balanced-two-choice-256": (5, 256, 32, 2, 0, 0, 0, 0, 7, 0),
    "counting": (1001, 4, 10, 0),
    "counting-2-bits": (300, 2, 7, 0),
    "counting-8-bits": (37, 8, 64, 0),
    "counting-16-bits": (1, 16, 1, 0),
    "counting-blocked": (1152, 4, 8, 512),
    "counting-blocked-2-bits": (768, 2, 24, 512),
    "counting-blocked-8-bits": (320, 8, 16, 512),
    "counting-blocked-16-bits": (64, 16, 32, 512),
    "fingerprint": (16, 28, 64, 1, 300, 1000, 0, 0),
    "fingerprint-11-bits": (16, 11, 50, 1, 400, 2000, 0, 0),
    "fingerprint-4-bits": (16, 4, 32, 1, 16, 400, 0, 0),
    "fingerprint-grown": (32, 11, 50, 1, 72, 131, 0, 2),
    "fingerprint-set": (32, 8, 40, 2, 8, 400, 1, 0),
}
STAGES = {
    "growing": [
        (4, 512, 8, 1, 0, 0, 0, 0, 1, 513), (4, 512, 9, 2, 0, 0, 0, 0, 1, 200, 1, 513),
        (4, 512, 10, 2, 0, 0, 0, 0, 2, 210, 1, 513),
    ],
    "growing-standard": [(221, 8), (570, 10), (1301, 11)],
}  # fmt: skip
IN_THE_PAYLOAD = {  # what only a look at it finds
    "flipped-payload", "spare-bit", "balanced-flipped", "balanced-load", "balanced-padding",
    "balanced-list-count", "balanced-out-of-reach", "growing-flipped", "counting-flipped", "fuse-flipped",
    "window-flipped", "window-slots", "window-line",
    "fingerprint-flipped", "fingerprint-set-of-copies", "fingerprint-copies", "fingerprint-state",
    "fingerprint-line", "fingerprint-rest", "fingerprint-after-the-rest",
}  # fmt: skip
each_file = pytest.mark.parametrize("name", FILTERS)


def test_every_file_is_described() -> None:
    assert set(FILTERS) == CORES.keys() | STAGES.keys()


def path_of(name: str) -> Path:
    return GOLDEN / f"{name}.evenbins"


def test_no_golden_file_has_changed_or_gone() -> None:
    sums = dict(reversed(line.split()) for line in (GOLDEN / "SHA256SUMS").read_text().splitlines())
    files = {str(path.relative_to(GOLDEN)): path for path in GOLDEN.rglob("*.evenbins")}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == sums
    assert set(sums) == {
        f"{name}.evenbins"
        for family in (
            FILTERS,
            FUSED,
            WINDOWS,
            SKETCHES,
            DISTINCT,
            HITTERS,
            DEDUPLICATORS,
            CHAINED,
            TABLES,
            SETS,
            SUMMARIES,
            RINGS,
        )
        for name in family
    } | {f"damaged/{name}.evenbins" for name in DAMAGED}


@each_file
def test_a_golden_file_is_read_and_has_its_keys(name: str) -> None:
    for f in (evenbins.load(path_of(name)), evenbins.open(path_of(name), verify=True)):
        if name in STAGES:
            assert isinstance(f, GrowingFilter)
            assert [stage.plan.core for stage in f._stages] == STAGES[name]
        else:
            assert f.plan.core == CORES[name]
        assert all(key in f for key in KEYS)
        assert f.contains_many(KEYS).all()
        f._check()  # type: ignore[attr-defined]


@each_file
def test_a_golden_file_goes_on_as_a_filter(name: str) -> None:
    f = evenbins.load(path_of(name))
    before = f.to_bytes()
    if name.startswith("counting"):
        assert f.remove_many(KEYS).all()  # type: ignore[attr-defined]
        assert f.stats().fill == f.stats().saturated / CORES[name][0]
    elif name.startswith("fingerprint") and not CORES[name][6]:
        before = f.stats().keys
        assert f.remove_many(KEYS).all()  # type: ignore[attr-defined]
        assert f.stats().keys == before - len(KEYS)
    else:
        f.add_many(KEYS)
        assert f.to_bytes() == before
    f.add_many(KEYS)
    f.add_many(range(5000, 5100))
    assert f.contains_many([*KEYS, *range(5000, 5100)]).all()


@each_file
def test_the_same_filter_built_today_has_the_same_bytes(name: str) -> None:
    assert MAKER["golden_filter"](name).to_bytes() == path_of(name).read_bytes()
    one_by_one = FILTERS[name]()
    ordered = name.startswith(("balanced", "growing"))
    for key in KEYS if ordered else reversed(KEYS):
        one_by_one.add(key)
    assert one_by_one.to_bytes() == path_of(name).read_bytes()


@each_file
def test_a_golden_file_written_again_is_the_same_file(name: str, tmp_path: Path) -> None:
    evenbins.open(path_of(name)).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path_of(name).read_bytes()


@each_file
def test_the_reference_reads_a_golden_file_alike(name: str) -> None:
    """Of a growing filter, the file of each stage, as it lies in its own."""
    found: Any = evenbins.load(path_of(name))
    for f in found._stages if name in STAGES else [found]:
        data = f.to_bytes()
        assert data in path_of(name).read_bytes()
        parsed = reference.unpack(data)
        assert (parsed.core, parsed.seed, parsed.capacity) == (f.plan.core, f.seed, f.capacity)
        assert parsed.payload == bytes(memoryview(f))


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_with_its_reason(name: str) -> None:
    path = path_of(f"damaged/{name}")
    _, message = DAMAGED[name]
    readers: list[Any] = [evenbins.load, lambda path: evenbins.open(path, verify=True)]
    if name not in IN_THE_PAYLOAD:
        readers.append(evenbins.open)
    for read in readers:
        with pytest.raises(FormatError, match=message):
            read(path)
