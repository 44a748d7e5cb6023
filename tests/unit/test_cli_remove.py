"""`evenbins remove`: what it takes out, leaves and refuses; `inspect` and `merge` of both new kinds."""

from __future__ import annotations

import gzip
import json
import os
import stat
from pathlib import Path

import pytest
from test_cli import one_line, run

import evenbins
from evenbins import BlockedBloomFilter, CountingBloomFilter, FingerprintFilter, FuseFilter


def lines(numbers: range) -> bytes:
    return b"".join(b"%d\n" % i for i in numbers)


def built(path: Path, *options: object) -> Path:
    (path / "keys").write_bytes(lines(range(500)))
    assert run("build", path / "keys", "-o", path / "f", "--fpr", "1e-7", *options).status == 0
    return path / "f"


@pytest.mark.parametrize("kind", ["fingerprint", "counting"])
def test_the_file_is_that_of_the_other_keys(tmp_path, kind):
    file = built(tmp_path, "--kind", kind, "--capacity", "500")
    (tmp_path / "old.gz").write_bytes(gzip.compress(lines(range(100, 300))))
    done = run("remove", file, tmp_path / "old.gz", "-k", "7", "-k", "none of them")
    assert (done.status, done.out) == (0, b"")
    assert done.err == f"{file}: 201 keys removed, 1 key was not in it\n"
    (tmp_path / "keys").write_bytes(lines(range(7)) + lines(range(8, 100)) + lines(range(300, 500)))
    run(
        "build", tmp_path / "keys", "-o", tmp_path / "g", "--fpr", "1e-7", "--kind", kind, "--capacity", "500"
    )
    assert file.read_bytes() == (tmp_path / "g").read_bytes()


def test_copies_standard_input_and_json(tmp_path):
    file = tmp_path / "f"
    filter_ = FingerprintFilter(100, 1e-9)
    filter_.add_many(["a", "a", "b", "c\nd"])
    filter_.save(file)
    done = run("remove", file, "--json", stdin=b"a\nz\na\r\na\n")
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) == {"file": str(file), "removed": 2, "absent": 2, "nulls": 0}
    assert [evenbins.load(file).count(key) for key in ("a", "b", "c\nd")] == [0, 1, 1]
    assert run("remove", file, "-0", stdin=b"c\nd\0").status == 0
    assert run("remove", file, "-U", stdin=b"b\r\n").status == 1  # the return belongs to the key
    (tmp_path / "t.csv").write_bytes(b"id,name\n1,b\n")
    assert run("remove", file, tmp_path / "t.csv", "--column", "name").status == 0
    assert evenbins.load(file) == FingerprintFilter(100, 1e-9)


def test_a_file_is_replaced_in_one_step_or_not_at_all(tmp_path):
    file = built(tmp_path, "--kind", "fingerprint")
    os.chmod(file, 0o640)
    before = file.stat()
    assert run("remove", file, "-k", "absent").status == 1
    assert file.stat().st_ino == before.st_ino  # not written at all
    (tmp_path / "bad.gz").write_bytes(gzip.compress(lines(range(50)))[:-9])
    content = file.read_bytes()
    one_line(run("remove", file, tmp_path / "keys", tmp_path / "bad.gz"), "bad.gz")
    assert file.read_bytes() == content
    assert run("remove", file, "-k", "1").status == 0
    assert file.stat().st_ino != before.st_ino
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.gz", "f", "keys"]


def test_what_cannot_remove_says_so_in_one_line(tmp_path):
    BlockedBloomFilter(10).save(tmp_path / "blocked")
    FingerprintFilter(10, semantics="set").save(tmp_path / "set")
    FuseFilter.from_keys(["a"]).save(tmp_path / "fuse")
    CountingBloomFilter(10).save(tmp_path / "counting")
    remedy = "--kind fingerprint"
    one_line(run("remove", tmp_path / "blocked", "-k", "a"), "a blocked filter", remedy)
    one_line(run("remove", tmp_path / "set", "-k", "a"), 'semantics="set"', remedy)
    one_line(run("remove", tmp_path / "fuse", "-k", "a"), "a fuse filter", remedy)
    one_line(run("remove", tmp_path / "counting", tmp_path / "counting"), "one of the files of keys")
    one_line(run("remove", tmp_path / "counting", tmp_path / "nowhere"), "nowhere", "no such file")
    damaged = bytearray((tmp_path / "counting").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "counting").write_bytes(damaged)
    one_line(run("remove", tmp_path / "counting", "-k", "a"), "checksum")


def test_inspect_shows_the_levels_planned_beside_measured(tmp_path):
    file = built(tmp_path, "--kind", "fingerprint", "--capacity", "500")
    shown = run("inspect", file).out.decode()
    for words in ("in three levels", "fingerprints", "in level 1", "in level 3", "in the rest", "miss_reads"):
        assert words in shown
    stats = json.loads(run("inspect", file, "--json").out)["stats"]
    assert stats["distinct"] == stats["keys"] == 500
    assert sum(stats["shares"]) == pytest.approx(1)
    made = FuseFilter.from_keys(range(1000), 2**-8)
    made.save(tmp_path / "fuse")
    assert f"{made.plan.slots:_} of 8 bits" in run("inspect", tmp_path / "fuse").out.decode()


def test_merged_multisets_are_sums_and_sets_are_unions(tmp_path):
    for semantics, count in (("multiset", 2), ("set", 1)):
        parts = []
        for start in (0, 50):
            part = FingerprintFilter(500, 1e-7, semantics=semantics)
            part.add_many([str(i) for i in range(start, start + 100)])
            part.save(tmp_path / f"{semantics}{start}")
            parts.append(tmp_path / f"{semantics}{start}")
        assert run("merge", *parts, "-o", tmp_path / "both").status == 0
        both = evenbins.load(tmp_path / "both")
        assert both.count_many(["0", "70", "149", "150"]).tolist() == [1, count, 1, 0]
