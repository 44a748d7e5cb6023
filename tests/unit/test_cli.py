"""The command line: bytes, exit codes and messages are promises to other programs.

What depends on the process (signals, closed streams, imports) runs in one; all else calls `main` here,
inside click's isolation. Filters are built with `--fpr 1e-12`, keys and seed are fixed: a filter then
answers as a set would, and a set is the model.
"""

import errno
import json
import os
import pty
import random
import resource
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import evenbins
from evenbins import BlockedBloomFilter, BloomFilter, _compressed, _files, cli
from evenbins.cli import _blocks, _inputs
from evenbins.study.hashing import plan_scheme

COMMAND = [sys.executable, "-m", "evenbins"]


@dataclass
class Done:
    status: int
    out: bytes
    err: str


def run(*args: object, stdin: bytes = b"") -> Done:
    """Run the command in this process."""
    with CliRunner().isolation(input=stdin) as streams:
        with pytest.raises(SystemExit) as ended:
            cli.main([os.fsdecode(os.fspath(a)) if isinstance(a, os.PathLike) else str(a) for a in args])
        return Done(ended.value.code, streams[0].getvalue(), streams[1].getvalue().decode())


def spawn(*args: object, **options) -> subprocess.CompletedProcess:
    """Run the command in a process of its own."""
    return subprocess.run([*COMMAND, *map(str, args)], capture_output=True, timeout=240, **options)


def build(folder: Path, data: bytes, *options: object) -> Path:
    """Build a filter that has practically no false positives."""
    source, target = folder / "list", folder / "list.evb"
    source.write_bytes(data)
    done = run("build", source, "-o", target, "--fpr", "1e-12", *options)
    assert done.status == 0, done.err
    return target


@pytest.fixture
def hundred(tmp_path) -> Path:
    """A filter of the lines 0 … 99."""
    return build(tmp_path, b"".join(b"%d\n" % i for i in range(100)))


def one_line(done: Done, *words: str) -> None:
    """Assert the form of every error: exit code 2, nothing on stdout, one line that names these things."""
    assert (done.status, done.out) == (2, b"")
    assert done.err.startswith("evenbins: ")
    assert done.err.count("\n") == 1
    assert done.err.endswith("\n")
    for word in words:
        assert word in done.err


# --- keys are the bytes of lines -------------------------------------------------------------------------


def key_of(line: bytes, *, null: bool = False) -> bytes:
    return line if null else line.removesuffix(b"\r")


def model(keys: bytes, lines: bytes, *, invert: bool = False, null: bool = False) -> bytes:
    """What grep would print, by a set."""
    end = b"\0" if null else b"\n"

    def split(data: bytes) -> list[bytes]:
        return data.removesuffix(end).split(end) if data else []

    known = {key_of(line, null=null) for line in split(keys)}
    return b"".join(line + end for line in split(lines) if (key_of(line, null=null) in known) != invert)


def mixed_lines(rng: random.Random, count: int, end: bytes) -> bytes:
    """Lines of all sorts: short, long, empty, blanks, no UTF-8, lone \\r, the other separator within."""
    sorts = [
        lambda: b"%d" % rng.randrange(count),
        lambda: b"",
        lambda: bytes(
            rng.choices(b"ab \t\xff\xc3\r" + (b"\n" if end == b"\0" else b"\0"), k=rng.randrange(5))
        ),
        lambda: b"x" * rng.randrange(3000),
    ]
    return b"".join(rng.choice(sorts)() + end for _ in range(count))


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last_end", [True, False])
def test_query_selects_what_a_set_would(tmp_path, null, end, last_end):
    rng = random.Random(1)
    end = b"\0" if null else end
    keys, lines = mixed_lines(rng, 300, end), mixed_lines(rng, 600, end)
    if not last_end:
        keys, lines = keys + b"last", lines + b"last"
    flags = ["-0"] if null else []
    file = build(tmp_path, keys, *flags)
    for invert in (False, True):
        expected = model(keys, lines, invert=invert, null=null)
        selected = expected.count(b"\0" if null else b"\n")
        flags_now = [*flags, *(["-v"] if invert else [])]
        done = run("query", file, *flags_now, stdin=lines)
        assert (done.status, done.out, done.err) == (0, expected, "")
        done = run("query", file, "-c", *flags_now, stdin=lines)
        assert (done.status, done.out) == (0, b"%d\n" % selected)


@pytest.mark.parametrize("null", [False, True])
def test_query_is_byte_for_byte_grep(tmp_path, null):
    """LF or NUL lines, empty ones and bytes that are no text included, the last one unterminated."""
    rng = random.Random(2)
    end, other = (b"\0", b"\n") if null else (b"\n", b"\0")
    drop = bytes.maketrans(b"\r" + other, b"..")  # grep knows no \r\n, and patterns hold no newline
    keys, lines = (mixed_lines(rng, 500, end).translate(drop) + b"last" for _ in range(2))
    file = build(tmp_path, keys, *(["-0"] if null else []))
    (tmp_path / "patterns").write_bytes(keys.replace(b"\0", b"\n"))
    for flag in ([], ["-v"], ["-c"], ["-q"]):
        grep = subprocess.run(
            ["grep", "-a", "-F", "-x", "-f", tmp_path / "patterns", *flag, *(["-z"] if null else [])],
            input=lines, capture_output=True, env={**os.environ, "LC_ALL": "C"}, check=False,
        )  # fmt: skip
        done = run("query", file, *flag, *(["-0"] if null else []), stdin=lines)
        assert (done.status, done.out) == (grep.returncode, grep.stdout)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=60), size=st.integers(1, 8), null=st.booleans())
def test_every_line_is_found_again_wherever_blocks_end(tmp_path_factory, data, size, null):
    """`query` prints the file a filter was built from, whatever is in it; a missing last newline is added."""
    assume(_compressed.format_of(data) is None)
    folder = tmp_path_factory.mktemp("blocks")
    end, flags = (b"\0", ["-0"]) if null else (b"\n", [])
    with pytest.MonkeyPatch.context() as patch:
        for module in (_inputs, _blocks):
            patch.setattr(module, "BLOCK_BYTES", size)
        file = build(folder, data or end, *flags)
        done = run("query", file, folder / "list", *flags)
    data = data or end
    assert done.out == (data if data.endswith(end) else data + end)


def test_a_key_is_the_line_without_its_newline(tmp_path):
    keys = b"unix\ndos\r\n  blanks \n\n\xff\xfe\ncr\r\r\nlone\rcr\nnul\0\nlast"
    loaded = BlockedBloomFilter.load(build(tmp_path, keys))
    for key in (b"unix", b"dos", b"  blanks ", b"", b"\xff\xfe", b"cr\r", b"lone\rcr", b"nul\0", b"last"):
        assert key in loaded
    for key in (b"unix\n", b"dos\r", b"blanks", b"cr", b"lone", b"nul", b"\n", b"\r"):
        assert key not in loaded
    assert loaded.plan.keys == 9


def test_with_null_newlines_are_ordinary_bytes(tmp_path):
    loaded = BlockedBloomFilter.load(build(tmp_path, b"a\nb\0c\r\n\0", "-0"))
    assert b"a\nb" in loaded
    assert b"c\r\n" in loaded
    assert b"a" not in loaded
    assert b"c" not in loaded
    assert loaded.plan.keys == 2


def test_a_line_longer_than_a_block(tmp_path):
    data = b"x" * (3 * _inputs.BLOCK_BYTES + 5) + b"\nshort\n"
    file = build(tmp_path, data)
    assert run("query", file, stdin=data).out == data
    assert run("query", file, stdin=data[1:]).out == b"short\n"


# --- build -----------------------------------------------------------------------------------------------


def test_build_leaves_the_bytes_that_the_library_leaves(tmp_path):
    lines = [b"key %d" % i for i in range(1000)]
    (tmp_path / "keys").write_bytes(b"\n".join(lines))
    file = tmp_path / "f"
    cases = [
        ([], BlockedBloomFilter(1000, fpr=1e-3)),
        (["--fpr", "1e-4", "--block-bits", "256"], BlockedBloomFilter(1000, fpr=1e-4, block_bits=256)),
        (["--kind", "standard", "--fpr", "0.02"], BloomFilter(1000, fpr=0.02)),
        (["--bits-per-key", "12", "--hashes", "5"], BlockedBloomFilter(1000, bits_per_key=12, hashes=5)),
        (["--seed", "0xffffffffffffffff", "--capacity", "2e3", "--threads", "2"],
         BlockedBloomFilter(2000, fpr=1e-3, seed=2**64 - 1)),
    ]  # fmt: skip
    for options, expected in cases:
        assert run("build", tmp_path / "keys", "-o", file, *options).status == 0
        expected.add_many(lines)
        assert file.read_bytes() == expected.to_bytes()


def test_build_from_several_files_a_pipe_or_a_redirected_file_is_the_same(tmp_path):
    (tmp_path / "a").write_bytes(b"1\n2\n3")  # the line ends with the file
    (tmp_path / "b").write_bytes(b"4\n5\n")
    (tmp_path / "ab").write_bytes(b"1\n2\n3\n4\n5\n")
    whole = b"1\n2\n3\n4\n5\n"
    files = [tmp_path / f"{i}.evb" for i in range(5)]
    assert run("build", tmp_path / "ab", "-o", files[0]).status == 0
    assert run("build", tmp_path / "a", tmp_path / "b", "-o", files[1]).status == 0
    assert run("build", tmp_path / "a", "-", "-o", files[2], stdin=b"4\n5\n").status == 0
    assert spawn("build", "-", "-o", files[3], input=whole).returncode == 0
    with (tmp_path / "ab").open("rb") as stdin:
        assert spawn("build", "-", "-o", files[4], stdin=stdin).returncode == 0
    assert len({file.read_bytes() for file in files}) == 1
    assert evenbins.load(files[0]).plan.keys == 5


def test_build_tells_plan_beside_stats_on_stderr(tmp_path):
    done = run("build", "-", "-o", tmp_path / "f", stdin=b"".join(b"%d\n" % i for i in range(5000)))
    assert (done.status, done.out) == (0, b"")
    assert "5_000 lines added" in done.err
    rows = {line.split()[0]: line.split()[1:] for line in done.err.splitlines()[2:]}
    assert rows["keys"][0] == "5_000"
    assert {"fpr", "fill", "reads", "nbytes"} <= rows.keys()


def test_build_json(tmp_path):
    done = run("build", "-", "-o", tmp_path / "f", "--json", stdin=b"a\nb\na\n")
    report = json.loads(done.out)
    loaded = evenbins.load(tmp_path / "f")
    assert (done.status, done.err) == (0, "")
    assert (report["file"], report["lines"], report["kind"]) == (str(tmp_path / "f"), 3, "blocked")
    assert report["plan"] == loaded.plan.to_dict()
    assert report["stats"] == loaded.stats().to_dict()


def test_build_beyond_its_capacity_warns_and_json_stays_json(tmp_path):
    keys = b"".join(b"%d\n" % i for i in range(5000))
    done = run("build", "-", "-o", tmp_path / "f", "--capacity", "1", "--json", stdin=keys)
    assert done.status == 0
    assert "warning: the filter is full: --capacity 1 is far too small for 5_000 lines" in done.err
    assert json.loads(done.out)["stats"]["keys"] is None  # every bit is set: infinitely many


def test_build_an_empty_filter_on_request(tmp_path):
    assert run("build", "-", "-o", tmp_path / "f", "--capacity", "10").status == 0
    assert evenbins.load(tmp_path / "f").approx_items() == 0
    assert run("query", tmp_path / "f", stdin=b"a\n\n").status == 1


def test_names_that_are_no_text(tmp_path):
    source, target = tmp_path / os.fsdecode(b"k\xff"), tmp_path / os.fsdecode(b"f\xff\n")
    source.write_bytes(b"a\n")
    done = spawn("build", source, "-o", target)
    assert done.returncode == 0
    assert spawn("query", target, source).stdout == b"a\n"
    assert spawn("inspect", target).returncode == 0
    assert json.loads(spawn("inspect", "--json", target).stdout)["file"] == str(target)
    missing = spawn("query", tmp_path / os.fsdecode(b"g\xff\n"))
    assert (missing.returncode, missing.stderr.count(b"\n")) == (2, 1)


# --- query -----------------------------------------------------------------------------------------------


def test_query_exit_codes(hundred):
    assert run("query", hundred, stdin=b"5\nx\n").status == 0
    assert run("query", hundred, stdin=b"x\n").status == 1
    assert run("query", hundred, stdin=b"").status == 1
    assert run("query", hundred, "-v", stdin=b"5\n").status == 1
    assert run("query", hundred, "-v", stdin=b"x\n").status == 0
    assert run("query", hundred, "-c", stdin=b"x\n") == Done(1, b"0\n", "")
    assert run("query", hundred, "-q", stdin=b"5\n") == Done(0, b"", "")
    assert run("query", hundred, "-qc", stdin=b"x\n") == Done(1, b"", "")


def test_query_several_inputs_in_their_order(tmp_path, hundred):
    (tmp_path / "a").write_bytes(b"1\nx\n2")
    (tmp_path / "b").write_bytes(b"y\n3\n")
    assert run("query", hundred, tmp_path / "b", "-", tmp_path / "a", stdin=b"4\nz").out == b"3\n4\n1\n2\n"
    assert run("query", hundred, tmp_path / "a", tmp_path / "b", "-c").out == b"3\n"


def test_query_reads_standard_filters_too(tmp_path):
    assert run("query", build(tmp_path, b"a\n", "--kind", "standard"), stdin=b"b\na\n").out == b"a\n"


def test_a_slow_pipe_is_answered_at_once_and_ctrl_c_ends_quietly(hundred):
    process = subprocess.Popen([*COMMAND, "query", hundred], stdin=-1, stdout=-1, stderr=-1)
    for line in (b"7\n", b"8\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert select.select([process.stdout], [], [], 120)[0]
        assert os.read(process.stdout.fileno(), 100) == line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err.strip()) == (130, b"", b"")


@pytest.mark.parametrize("module", ["evenbins.cli", "evenbins.cli._inputs", "numpy", "evenbins._core"])
def test_ctrl_c_while_the_command_is_imported_ends_quietly(module):
    """Of an interrupt in the middle of the core's own import Python makes an ImportError."""
    code = f"""
import signal, sys
sys.argv = ["evenbins", "count"]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            if name == "evenbins._core":
                raise ImportError("Encountered an error") from KeyboardInterrupt()
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
from evenbins._command import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], input=b"", capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, b"", b"")


def test_quiet_does_not_wait_for_the_end_of_its_input(hundred):
    process = subprocess.Popen([*COMMAND, "query", "-q", hundred], stdin=-1)
    process.stdin.write(b"7\n")
    process.stdin.flush()
    assert process.wait(timeout=120) == 0
    process.stdin.close()


def test_a_reader_that_has_gone_ends_query_by_sigpipe(tmp_path, hundred):
    (tmp_path / "lines").write_bytes(b"1\n2\n3\n" * 500_000)
    process = subprocess.Popen([*COMMAND, "query", hundred, tmp_path / "lines"], stdout=-1, stderr=-1)
    assert process.stdout.read(4) == b"1\n2\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=120) == -signal.SIGPIPE


# --- inspect ---------------------------------------------------------------------------------------------


def test_inspect_shows_plan_stats_checks_and_blocks(tmp_path):
    file = build(tmp_path, b"".join(b"%d\n" % i for i in range(50_000)), "--fpr", "1e-3")
    done = run("inspect", file)
    assert (done.status, done.err) == (0, "")
    text = done.out.decode()
    facts, comparison, histogram = text.split("\n\n")
    loaded = evenbins.load(file)
    blocks = loaded.plan.nbytes // 64
    assert "blocked" in facts
    assert f"{blocks:_} of 512 bits" in facts
    assert f"{file.stat().st_size:_} bytes" in facts
    assert "every byte verified" in facts
    assert "planned" in comparison
    assert "50_000" in comparison
    rows = [row.replace("_", "").split("  ") for row in histogram.splitlines()[1:]]
    numbers = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert 10 <= len(rows) <= 20
    assert sum(int(row[2]) for row in numbers) == blocks
    assert abs(sum(int(row[1]) for row in numbers) - blocks) <= len(rows)
    assert max(len(row[3]) for row in numbers if len(row) > 3) == 40


@pytest.mark.parametrize("keys", [b"", b"a\n", b"".join(b"%d\n" % i for i in range(3000))])
def test_inspect_any_load(tmp_path, keys):
    """An empty filter, one block, and a block with every bit set."""
    file = build(tmp_path, keys, "--capacity", "5")
    assert run("inspect", file).status == 0


def test_inspect_a_standard_filter_has_no_blocks(tmp_path):
    text = run("inspect", build(tmp_path, b"a\n", "--kind", "standard")).out.decode()
    assert "standard" in text
    assert "block" not in text
    assert "set bits" not in text


def test_inspect_json(hundred):
    report = json.loads(run("inspect", hundred, "--json", "--no-verify").out)
    loaded = evenbins.load(hundred)
    assert report == {
        "file": str(hundred), "file_bytes": hundred.stat().st_size, "verified": False, "kind": "blocked",
        "plan": loaded.plan.to_dict(), "stats": loaded.stats().to_dict(),
    }  # fmt: skip


def test_inspect_keeps_a_seed_to_itself(tmp_path):
    file = build(tmp_path, b"a\n", "--seed", "123456789")
    assert b"123456789" not in run("inspect", file).out.replace(b"_", b"")
    assert json.loads(run("inspect", "--json", file).out)["plan"]["seed"] is None
    assert json.loads(run("inspect", "--json", "--show-seed", file).out)["plan"]["seed"] == 123456789
    assert b"123456789" in run("inspect", "--show-seed", file).out


def test_inspect_draws_in_ascii_where_it_must(hundred):
    done = spawn("inspect", hundred, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert b"##" in done.stdout


# --- wrong use: one line that says what to do, exit code 2 --------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["build", "KEYS"], ["Missing option", "-o", "evenbins build --help"]),
        (["build", "-o", "OUT"], ["Missing argument 'KEYS...'", "evenbins build --help"]),
        (["build", "nowhere", "-o", "OUT"], ["nowhere: no such file", "check the name"]),
        (["build", "FOLDER", "-o", "OUT"], ["no file below this folder ends in .txt", "name the files"]),
        (["build", "-", "-", "-o", "OUT"], ["(-) can be read only once"]),
        (["build", "-", "-o", "OUT"], ["no keys", "--capacity"]),
        (["build", "KEYS", "-o", "FOLDER"], ["is a directory"]),
        (["build", "KEYS", "-o", "FOLDER/no/OUT"], ["no such folder", "check the name"]),
        (["build", "KEYS", "-o", "KEYS"], ["one of the files of keys", "choose another name"]),
        (["build", "KEYS", "-o", "/dev/null"], ["not a regular file"]),
        (["build", "KEYS", "-o", "-"], ["-o needs the name of a file"]),
        (["build", "KEYS", "-o", "OUT", "--fpr", "x"], ["--fpr", "'x'"]),
        (["build", "KEYS", "-o", "OUT", "--fpr", "2"], ["--fpr must be", "between 0 and 1", "2.0", "0.001"]),
        (["build", "KEYS", "-o", "OUT", "--fpr", "nan"], ["--fpr", "'nan' is not a rate", "0.1%"]),
        (["build", "KEYS", "-o", "OUT", "--fpr", "1e-40"], ["--fpr must be at least"]),
        (["build", "KEYS", "-o", "OUT", "--bits-per-key", "0"], ["--bits-per-key must be", "above 0"]),
        (["build", "KEYS", "-o", "OUT", "--fpr", "0.1", "--bits-per-key", "9"], ["exclude each other"]),
        (["build", "KEYS", "-o", "OUT", "--hashes", "33"], ["--hashes must be", "1 to 32"]),
        (["build", "KEYS", "-o", "OUT", "--hashes", "1.5"], ["--hashes", "'1.5' is not a whole number"]),
        (["build", "KEYS", "-o", "OUT", "--capacity", "0"], ["--capacity must be", "got 0"]),
        (["build", "KEYS", "-o", "OUT", "--capacity", "inf"], ["--capacity", "not a whole number"]),
        (["build", "KEYS", "-o", "OUT", "--capacity", "1e14"], ["allocate", "fewer"]),
        (["build", "KEYS", "-o", "OUT", "--seed", "-1"], ["--seed must be", "2**64"]),
        (["build", "KEYS", "-o", "OUT", "--threads", "0"], ["--threads", "1<=x<=1024"]),
        (["build", "KEYS", "-o", "OUT", "--kind", "cuckoo"], ["--kind", "'blocked', 'standard'"]),
        (["build", "KEYS", "-o", "OUT", "--block-bits", "100"], ["--block-bits", "512"]),
        (["build", "KEYS", "-o", "OUT", "--kind", "standard", "--block-bits", "512"], ["--kind blocked"]),
        (["query"], ["Missing argument 'FILE'", "evenbins query --help"]),
        (["query", "nowhere"], ["nowhere: no such file", "check the name"]),
        (["query", "FOLDER"], ["is a directory", "name a file"]),
        (["query", "KEYS"], ["not an evenbins file", "build it again"]),
        (["query", "EMPTY"], ["the file is empty", "build it again"]),
        (["query", "CUT"], ["CUT", "build it again"]),
        (["query", "FILTER", "--verify", "nowhere"], ["nowhere: no such file"]),
        (["query", "DAMAGED", "--verify"], ["DAMAGED", "checksum", "build it again"]),
        (["query", "FILTER", "KEYS", "FOLDER"], ["no file below this folder ends in .txt"]),
        (["query", "/dev/null"], ["not a regular file", "copy it"]),
        (["query", "FILTER", "--colour"], ["--colour", "evenbins query --help"]),
        (["inspect", "nowhere"], ["nowhere: no such file"]),
        (["inspect", "DAMAGED"], ["DAMAGED", "checksum", "build it again"]),
        (["inspect", "FILTER", "FILTER"], ["unexpected extra argument"]),
        (["demo", "--keys", "3"], ["--keys must be", "not 3"]),
        (["demo", "--out", "KEYS"], ["--out", "is a file"]),
        (["frobnicate"], ["No such command 'frobnicate'", "evenbins --help"]),
        (["buidl"], ["No such command 'buidl'. Did you mean 'build'? Try 'evenbins --help'"]),
        (["help", "buidl"], ["No such command 'buidl'"]),
        (["help", "build", "more"], ["evenbins build has no command 'more'"]),
        (["--frobnicate"], ["--frobnicate", "evenbins --help"]),
    ],
)  # fmt: skip
def test_wrong_use(tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    Path("FOLDER").mkdir()
    Path("EMPTY").touch()
    Path("KEYS").write_bytes(b"a\nb\n")
    good = BlockedBloomFilter(10)
    good.save("FILTER")
    data = good.to_bytes()
    Path("CUT").write_bytes(data[:-1])
    Path("DAMAGED").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    one_line(run(*args), *words)
    assert not Path("OUT").exists()
    assert Path("KEYS").read_bytes() == b"a\nb\n"


@pytest.mark.parametrize("args", [[], ["design"]])
def test_without_a_command_there_is_help(args):
    done = run(*args)
    assert (done.status, done.err) == (0, "")
    assert b"Commands:" in done.out
    assert run("help", *args).out == run(*args, "--help").out


def test_no_permission(tmp_path, hundred, monkeypatch):
    """(The tests may run as root, who is permitted everything: the system's answer is replaced.)"""
    monkeypatch.setattr(os, "access", lambda *_: False)
    one_line(run("query", hundred), f"{hundred}: permission denied", "owner and mode")
    one_line(run("build", hundred, "-o", tmp_path / "x"), "permission denied")
    one_line(run("build", "-", "-o", tmp_path / "x", stdin=b"a\n"), f"{tmp_path}: permission denied")


def test_an_error_while_saving_names_the_file_and_leaves_the_old_one(hundred, monkeypatch):
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = hundred.read_bytes()
    monkeypatch.setattr(_files.os, "fsync", fsync)
    done = run("build", "-", "-o", hundred, stdin=b"a\n")
    one_line(done, f"{hundred}: no space left", "free some space")
    assert hundred.read_bytes() == before
    assert sorted(os.listdir(hundred.parent)) == ["list", "list.evb"]


@pytest.mark.parametrize("options", [["--capacity", "1e6"], []])
def test_a_file_that_grows_too_large(tmp_path, options):
    """The filter itself (given a capacity), or the temporary copy of what comes from a pipe."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = spawn("build", "-", "-o", tmp_path / "f", *options, input=b"key\n" * 300_000, preexec_fn=limit)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"ile too large" in done.stderr
    assert os.listdir(tmp_path) == []


def test_closed_or_full_standard_streams(tmp_path, hundred):
    (tmp_path / "lines").write_bytes(b"1\n2\n")
    cases = [
        (f"query {hundred} <&-", b"standard input: it is closed"),
        (f"build - -o {tmp_path}/f <&-", b"standard input: it is closed"),
        (f"query {hundred} {tmp_path}/lines >&-", b"standard output: it is closed"),
        (f"query {hundred} {tmp_path}/lines >/dev/full", b"standard output: no space left on device"),
        (f"query {hundred} {tmp_path}/lines -c >/dev/full", b"standard output: no space left on device"),
        (f"inspect {hundred} >/dev/full", b"standard output: no space left on device"),
    ]
    for line, message in cases:
        done = subprocess.run(["sh", "-c", f'"$0" -m evenbins {line}', sys.executable], capture_output=True)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
        assert message in done.stderr


def test_inspect_shows_counters_and_hashing_schemes(tmp_path):
    counting = evenbins.CountingBloomFilter(1000, fpr=1e-3, layout="blocked", counter_bits=8)
    counting.add_many(range(1000))
    counting.save(tmp_path / "counting.evb")
    shown = run("inspect", tmp_path / "counting.evb")
    assert shown.status == 0
    assert b"blocks with this many counters" in shown.out
    assert b"saturated" in shown.out
    BloomFilter.from_plan(plan_scheme("double", 1000, fpr=1e-3)).save(tmp_path / "double.evb")
    assert b"10 by double hashing" in run("inspect", tmp_path / "double.evb").out


# --- the command itself ------------------------------------------------------------------------


def test_version_and_help():
    assert run("--version").out == f"evenbins {evenbins.__version__}\n".encode() == run("-V").out
    for args in (["--help"], ["-h"], *([name, "--help"] for name in cli.commands.commands)):
        done = run(*args)
        assert (done.status, done.err) == (0, "")
        assert done.out.startswith(b"Usage: evenbins")


def test_every_option_is_explained():
    def visit(command: click.Command) -> None:
        assert command.help
        for option in command.params:
            assert isinstance(option, click.Argument) or option.help, option.name
        for each in getattr(command, "commands", {}).values():
            visit(each)

    visit(cli.commands)


def test_the_fast_path_imports_nothing_heavy(tmp_path, hundred):
    script = (
        "import sys\n"
        "from evenbins.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    (tmp_path / "lines").write_bytes(b"1\n")
    commands = (
        ["--version"], ["query", hundred, tmp_path / "lines"], ["inspect", hundred],
        ["build", tmp_path / "lines", "-o", tmp_path / "f", "--json"],
    )  # fmt: skip
    for args in commands:
        done = subprocess.run(
            [sys.executable, "-c", script, *args], capture_output=True, text=True, check=True
        )
        names = json.loads(done.stderr.splitlines()[-1].replace("'", '"'))
        modules = {name.partition(".")[0] for name in names}
        assert ("numpy" in modules) == (args != ["--version"])
        assert not modules & {"scipy", "rich", "pyarrow", "pandas", "starlette", "asyncio"}
        if args[0] in ("--version", "query"):
            assert not {name for name in names if name.startswith(("evenbins.theory", "evenbins.filters"))}


def test_a_progress_bar_on_a_terminal_only(tmp_path):
    """A run that takes long has a bar (here every run does); a pipe never sees one."""
    (tmp_path / "keys").write_bytes((b"x" * 999 + b"\n") * 10_000)
    at_once = (
        "from evenbins import cli; from evenbins.cli._progress import Bar; Bar.AFTER_SECONDS = 0; cli.main()"
    )
    args = [sys.executable, "-c", at_once, "build", str(tmp_path / "keys"), "-o", str(tmp_path / "f")]
    assert b"counting lines" not in subprocess.run(args, capture_output=True, check=True).stderr
    ours, theirs = pty.openpty()
    process = subprocess.Popen(args, stderr=theirs, stdout=-1, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    seen = b""
    try:
        while block := os.read(ours, 4096):
            seen += block
    except OSError:  # Linux: the other end was closed
        pass
    os.close(ours)
    assert process.stdout.read() == b""
    assert process.wait(timeout=120) == 0
    assert b"counting lines" in seen
    assert b"lines added" in seen
