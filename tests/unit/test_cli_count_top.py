"""`evenbins count` and `top`, and how `build` finds the number of keys: against a set and a Counter."""

from __future__ import annotations

import base64
import json
import os
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import evenbins
from evenbins import cli
from evenbins.cli._distinct import ExactSet
from evenbins.sketches.hyperloglog import HyperLogLog
from evenbins.structure import kind_of_file

LINES = st.lists(st.binary(max_size=4).filter(lambda line: not {*b"\n\r\0"} & {*line}), max_size=60)


class Done:
    def __init__(self, *args: object, stdin: bytes = b"") -> None:
        with CliRunner().isolation(input=stdin) as streams:
            with pytest.raises(SystemExit) as ended:
                cli.main([os.fspath(each) if isinstance(each, os.PathLike) else str(each) for each in args])
            self.status = ended.value.code
            self.out, self.err = streams[0].getvalue(), streams[1].getvalue().decode()


def run(*args: object, stdin: bytes = b"") -> Done:
    done = Done(*args, stdin=stdin)
    assert done.status == 0, done.err
    return done


def refused(*args: object, stdin: bytes = b"") -> str:
    done = Done(*args, stdin=stdin)
    assert (done.status, done.out) == (2, b"")
    assert done.err.startswith("evenbins: ")
    assert done.err.count("\n") == 1
    return done.err


def repeated(different: int, times: int, start: int = 0) -> bytes:
    lines = [b"https://example.org/%d\n" % number for number in range(start, start + different)]
    return b"".join(lines * times)


# --- count -------------------------------------------------------------------------------------------------


@given(LINES)
@settings(max_examples=40, deadline=None)
def test_few_lines_are_counted_as_a_set_counts_them(lines: list[bytes]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    for options in (["-U"], ["-U", "--exact"]):
        done = run("count", *options, stdin=text)
        assert int(done.out) == len({*lines})
        assert f"of {len(lines):_} lines" in done.err


def test_many_lines_are_estimated_with_their_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(repeated(100_000, 2))
    found = json.loads(run("count", tmp_path / "a", "--json").out)
    assert found["lines"] == 200_000
    assert found["error"] == pytest.approx(0.0081, rel=0.01)
    assert abs(found["different"] / 100_000 - 1) < 6 * found["error"]
    better = json.loads(run("count", tmp_path / "a", "--json", "--error", "0.3%", "--threads", "2").out)
    assert better["error"] <= 0.003
    assert abs(better["different"] / 100_000 - 1) < 6 * better["error"]
    assert "standard error 0.81%" in run("count", tmp_path / "a").err
    exact = run("count", tmp_path / "a", "--exact")
    assert exact.out == b"100000\n"
    assert "exactly" in exact.err


def test_several_files_columns_and_separators(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,url\n1,x\n2,y\n3,x\n")
    pq.write_table(pa.table({"url": ["y", "z", None], "id": [1, 2, 3]}), tmp_path / "b.parquet")
    both = [tmp_path / "a.csv", tmp_path / "b.parquet"]
    for exact in ([], ["--exact"]):
        done = run("count", *both, "--column", "url", *exact)
        assert done.out == b"3\n"
        assert "1 rows are null" in done.err
        assert run("count", *both, "--column", "id", *exact).out == b"3\n"  # 1, 2, 3: integers as text
    assert run("count", "-0", stdin=b"a\nb\0a\nb\0c\0").out == b"2\n"
    assert run("count", stdin=b"a\r\na\n").out == b"1\n"
    assert run("count", "-U", stdin=b"a\r\na\n").out == b"2\n"
    assert run("count", stdin=b"").out == b"0\n"


@pytest.mark.parametrize("exact", [[], ["--exact"]])
def test_saved_counts_are_merged(tmp_path: Path, exact: list[str]) -> None:
    days = []
    for day in range(3):
        (tmp_path / f"{day}.txt").write_bytes(repeated(1000, 1, start=500 * day))
        days.append(tmp_path / f"{day}.evb")
        run("count", tmp_path / f"{day}.txt", "--save", days[-1], *exact)
    assert kind_of_file(days[0]).name == ("multilevel-table" if exact else "hyperloglog")
    whole = b"".join((tmp_path / f"{day}.txt").read_bytes() for day in range(3))
    expected = run("count", *exact, stdin=whole).out
    assert run("count", *days, *exact).out == expected
    assert run("count", days[0], tmp_path / "1.txt", days[2], *exact).out == expected
    total = tmp_path / "total.evb"
    run("count", days[0], "--save", total, *exact)
    run("count", total, days[1], tmp_path / "2.txt", "--save", total, *exact)  # one that grows
    assert run("count", total, *exact).out == expected
    assert json.loads(run("count", total, "--json", *exact).out)["sketches"] == [str(total)]
    assert run("inspect", total).status == 0


def test_an_exact_list_can_be_asked(tmp_path: Path) -> None:
    run("count", "--exact", "--save", tmp_path / "seen.evb", stdin=b"a\nb\na\n")
    assert run("query", tmp_path / "seen.evb", stdin=b"b\nc\n").out == b"b\n"


def test_wrong_uses_of_count(tmp_path: Path) -> None:
    run("count", "--save", tmp_path / "h.evb", stdin=b"a\n")
    run("count", "--save", tmp_path / "coarse.evb", "--error", "10%", stdin=b"a\n")
    run("build", "-", "-o", tmp_path / "f.evb", stdin=b"a\n")
    run("build", "-", "-o", tmp_path / "e.evb", "--exact", stdin=b"a\n")
    (tmp_path / "a").write_bytes(b"a\n")
    assert "--error is for estimates" in refused("count", "--exact", "--error", "1%", stdin=b"")
    assert "--error must be" in refused("count", "--error", "1e-9", stdin=b"")
    assert "'high' is not a rate" in refused("count", "--error", "high", stdin=b"")
    assert "a blocked filter" in refused("count", tmp_path / "f.evb")
    assert "'evenbins count --save' wrote" in refused("count", tmp_path / "e.evb")
    assert "no list of lines" in refused("count", "--exact", tmp_path / "h.evb")
    assert "same --error and --seed" in refused("count", tmp_path / "h.evb", tmp_path / "coarse.evb")
    assert "same --error and --seed" in refused("count", "--seed", "7", tmp_path / "h.evb")
    assert "no such file" in refused("count", tmp_path / "missing.evb")
    assert "one of the files of keys" in refused("count", tmp_path / "a", "--save", tmp_path / "a")
    assert "--save needs the name of a file" in refused("count", "--save", "-", stdin=b"")
    assert "only once" in refused("count", "-", "-", stdin=b"")


def test_a_secret_seed_keeps_the_sketch_private(tmp_path: Path) -> None:
    run("count", "--seed", "random", "--save", tmp_path / "h.evb", stdin=b"a\n")
    assert (tmp_path / "h.evb").stat().st_mode & 0o077 == 0
    assert HyperLogLog.load(tmp_path / "h.evb").seed != 0


def test_a_set_that_is_full_grows() -> None:
    from evenbins.cli._inputs import How, LineBatch

    found = ExactSet(10, 0)
    for start in range(0, 3000, 1000):
        found.add(LineBatch(repeated(1000, 2, start=start), How()))
    assert len(found) == 3000
    found.table._check()


# --- top ---------------------------------------------------------------------------------------------------


@given(LINES)
@settings(max_examples=40, deadline=None)
def test_few_lines_are_ranked_as_a_counter_ranks_them(lines: list[bytes]) -> None:
    done = run("top", "-U", "-n", "5", stdin=b"".join(line + b"\n" for line in lines))
    rows = [row.split(b"  ", 2) for row in done.out.split(b"\n")[:-1]]
    found = [(int(count), line) for count, _, line in ((a.strip(), b, c) for a, b, c in map(_three, rows))]
    exact = Counter(lines)
    assert [count for count, _ in found] == [count for _, count in exact.most_common(5)]
    assert all(exact[line] == count for count, line in found)
    assert f"of {len(lines):_} lines" in done.err


def _three(parts: list[bytes]) -> tuple[bytes, bytes, bytes]:
    """Split a row again: a share below ten percent begins with a blank more."""
    text = b"  ".join(parts)
    count, _, rest = text.strip(b" ").partition(b"  ") if text[:1] == b" " else text.partition(b"  ")
    share, _, line = rest.lstrip(b" ").partition(b"%  ")
    return count, share, line


def test_the_frequent_lines_of_many_are_found(tmp_path: Path) -> None:
    """Zipf-like: line i comes 20,000 / i times, among 50,000 that come once."""
    counts = {b"frequent-%d" % i: 20_000 // i for i in range(1, 31)}
    lines = [line for line, count in counts.items() for _ in range(count)]
    lines += [b"rare-%d" % i for i in range(50_000)]
    (tmp_path / "a").write_bytes(b"".join(line + b"\n" for line in lines))
    found = json.loads(run("top", tmp_path / "a", "--json").out)
    assert found["lines"] == len(lines)
    assert found["bound"] == int(len(lines) * 1e-4)
    assert [row["line"].encode() for row in found["top"]] == list(counts)[:20]
    for row in found["top"]:
        true = counts[row["line"].encode()]
        assert true <= row["count"] <= true + found["bound"]
        assert row["share"] == row["count"] / len(lines)
    text = run("top", tmp_path / "a", "-n", "1")
    assert text.out == b"20_000  %.3f%%  frequent-1\n" % (100 * 20_000 / len(lines))
    assert f"at most {found['bound']:_} too high, with a probability of 99.9%" in text.err


def test_columns_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,name\n1,"x, y"\n2,z\n3,"x, y"\n')
    pq.write_table(pa.table({"id": [7, 7, 3], "name": ["z", "z", "z"]}), tmp_path / "b.parquet")
    assert run("top", tmp_path / "a.csv", "--column", "name", "-n", "1").out == b"2  66.667%  x, y\n"
    both = run("top", tmp_path / "a.csv", tmp_path / "b.parquet", "--column", "name", "-n", "1")
    assert both.out == b"4  66.667%  z\n"
    assert run("top", tmp_path / "b.parquet", "--column", "id", "-n", "1").out == b"2  66.667%  7\n"
    assert run("top", "-n", "1", stdin=b"\xff\r\n\xff\n").out == b"2  100.000%  \xff\n"
    assert run("top", "-0", "-n", "1", stdin=b"a\nb\0a\nb\0").out == b"2  100.000%  a\nb\0"
    row = json.loads(run("top", "--json", stdin=b"\xff\n").out)["top"][0]
    assert base64.b64decode(row["base64"]) == b"\xff"
    assert run("top", stdin=b"").out == b""


def test_wrong_uses_of_top() -> None:
    assert "-n must be" in refused("top", "-n", "0", stdin=b"")
    assert "not a whole number" in refused("top", "-n", "few", stdin=b"")
    assert "--error must be" in refused("top", "--error", "0", stdin=b"")
    assert "no such file" in refused("top", "nowhere")


# --- build -------------------------------------------------------------------------------------------------


def test_build_plans_for_the_different_lines(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(repeated(20_000, 10))
    done = run("build", tmp_path / "a", "-o", tmp_path / "f", "--json")
    plan = json.loads(done.out)["plan"]
    assert 20_000 <= plan["keys"] <= 20_500
    again = run("build", "-", "-o", tmp_path / "g", "--threads", "2", stdin=(tmp_path / "a").read_bytes())
    assert "200_000 lines added, about 20_" in again.err
    assert (tmp_path / "f").read_bytes() == (tmp_path / "g").read_bytes()  # a pipe, and two threads
    found = evenbins.load(tmp_path / "f")
    assert found.contains_many([f"https://example.org/{i}" for i in range(20_000)]).all()
    assert found.stats().fpr <= 1.05e-3


def test_build_plans_for_all_lines_if_all_differ(tmp_path: Path) -> None:
    done = run("build", "-", "-o", tmp_path / "f", "--json", stdin=repeated(30_000, 1))
    assert json.loads(done.out)["plan"]["keys"] == 30_000


def test_build_takes_the_best_design(tmp_path: Path) -> None:
    for rate in ("10%", "1 in a billion"):
        done = run("build", "-", "-o", tmp_path / "f", "--fpr", rate, "--json", stdin=repeated(5000, 1))
        asked = run("design", "filter", "--keys", "5k", "--fpr", rate, "--json")
        assert json.loads(done.out)["kind"] == json.loads(asked.out)["designs"][0]["policy"]
    done = run("build", "-", "-o", tmp_path / "f", "--reads", "1.2", "--bits-per-key", "40", "--json",
               stdin=repeated(5000, 1))  # fmt: skip
    assert json.loads(done.out)["plan"]["reads"] <= 1.2
    done = run("build", "-", "-o", tmp_path / "f", "--fpr", "1e-9", "--hashes", "9", "--json", stdin=b"a\n")
    assert json.loads(done.out)["kind"] == "blocked"


def test_growing_and_counting_filters_are_built(tmp_path: Path) -> None:
    keys = [f"https://example.org/{i}" for i in range(5000)]
    for kind in ("growing", "counting"):
        run("build", "-", "-o", tmp_path / kind, "--kind", kind, "--fpr", "1e-4", stdin=repeated(5000, 2))
        assert kind_of_file(tmp_path / kind).name == kind
        assert evenbins.load(tmp_path / kind).contains_many(keys).all()
    counting = evenbins.load(tmp_path / "counting")
    counting.remove(keys[0])
    assert keys[0] in counting  # it came twice
    counting.remove(keys[0])
    assert keys[0] not in counting
    small = run(
        "build", "-", "-o", tmp_path / "g", "--kind", "growing", "--capacity", "1k", stdin=repeated(9000, 1)
    )
    assert "growing filter, 9_000 lines added" in small.err
    for options, words in (
        (["growing", "--bits-per-key", "9"], "--bits-per-key is for filters of a known size"),
        (["growing", "--hashes", "3"], "--hashes is for filters of a known size"),
        (["growing", "--fpr", "1e-30"], "--fpr must be"),
        (["growing", "--workers", "2"], "is built without --workers"),
        (["counting", "--scheduler", "x"], "is built without --workers"),
        (["counting", "--block-bits", "512"], "--block-bits is for"),
        (["counting", "--reads", "2"], "--reads is for --kind balanced"),
    ):
        assert words in refused("build", "-", "-o", tmp_path / "h", "--kind", *options, stdin=b"a\n")


def test_a_wrong_capacity_is_explained(tmp_path: Path) -> None:
    def built(capacity: str, *options: str) -> str:
        return run(
            "build", "-", "-o", tmp_path / "f", "--capacity", capacity, *options, stdin=repeated(4000, 2)
        ).err

    full = built("5")
    assert "the filter is full: --capacity 5 is far too small for 8_000 lines" in full
    assert "inf" not in full
    assert re.search("warning: about (3_9|4_0)", built("3000"))
    assert "in a filter planned for 3_000, so its false-positive rate is 0.00" in built("3000")
    roomy = built("1M")
    assert re.search("about (3_9|4_0).*--capacity 4[01]", roomy)
    assert "warning" not in roomy
    fitting = built("4000")
    assert "warning" not in fitting
    assert "different" not in fitting
    assert "warning" not in built("4k", "--kind", "standard")
