"""Every command that README, CONTRIBUTING and the pages of docs/ show is run.

    page ──▶ commands, with their lines ──▶ the first rule of RULES that fits ──▶ run, small

What counts as a command:
- in a block fenced as `console`: what stands behind "$ ". What follows is its output, and is compared
  ("..." stands for anything, as in doctest);
- in a block fenced as `sh`: every line;
- in other blocks, indented or fenced: lines that begin with one of PROGRAMS;
- in the text: `inline code` that begins with one of PROGRAMS and a blank.

A page's commands run in the order of the page, in one folder for each page, which holds the files of
`prepare`. A page with `console` blocks is one story: its doctests run in that folder too, in their turn
(those of other pages are test_docs.py's). A command that fits no rule fails, with its page and line.

    python tests/unit/test_documented_commands.py docs/tutorial.md

writes the outputs in a page's `console` blocks anew.
"""

from __future__ import annotations

import contextlib
import doctest
import gzip
import importlib.util
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import evenbins
from benchmarks.__main__ import bench
from evenbins import BlockedBloomFilter, FingerprintFilter, cli
from evenbins.study.papers import registry

ROOT = Path(__file__).parents[2]
SOURCE = str(Path(evenbins.__file__).parents[1])  # src, or where an instrumented core is
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if not {"_build", "_generated"} & {*page.parts}),
]
PROGRAMS = ("evenbins", "make", "python", "pip", "eval", ".venv/bin/python", ".venv/bin/evenbins")


@dataclass
class Command:
    """One command of a page."""

    page: Path
    line: int
    text: str
    expected: str | None = None  # the output that is shown, if it is compared
    inline: bool = False

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.text}"


@dataclass
class Done:
    """How a command ended."""

    status: int
    output: str = ""


Run = Callable[[Command, Path], Done]


# --- the rules: the first that fits, top to bottom ----------------------------------------------------------

# Programs of the system that a page may use between ours.
SHELL = (
    *(
        "cat",
        "cmp",
        "comm",
        "cp",
        "cut",
        "echo",
        "grep",
        "gzip",
        "head",
        "ls",
        "mkdir",
        "mv",
        "printf",
        "seq",
    ),
    *("sort", "split", "tail", "wc"),
)

# What a study is given so that it takes seconds: arguments, or numbers in place of its constants. None: only
# its options are read, for the reason beside it.
SMALL_TOOLS: dict[str, str | dict[str, object] | None] = {
    "tools/architecture.py": {"measures": list},  # tests/unit/test_architecture.py takes its figures
    "tools/bench_dask.py": None,  # starts two clusters; tests/cluster/test_dask.py builds on Dask
    "tools/cache_assumptions.py": None,  # four minutes; tests/unit/test_papers_chen_cache.py has its replays
    "tools/check_odr.py": None,  # compiles everything
    "tools/compare_sorted.py": {"KEYS": 10_000, "ASKED": 1_000, "ROUNDS": 1},
    "tools/cucollections_rates.py": "",
    "tools/fault_study.py": None,  # minutes; tests/cluster/test_fault_study.py runs each of its kinds
    "tools/instructions.py": None,  # valgrind; tests/packaging/test_release.py calls its paths
    "tools/kill_study.py": None,  # starts servers; tests/cluster/test_memcached.py kills them
    "tools/lookup_times.py": {
        "RATES": (1e-2, 1e-9),
        "BATCH": 1 << 10,
        "ROUNDS": 1,
        "BATCHES": 2,
        "MOST_KEYS": 2000,
    },
    "tools/mapped_study.py": "--megabytes 4 --rounds 1",
    "tools/prefix_speed.py": "--cache-blocks 500 --rounds 1",
    "tools/redis_add_new.py": "--keys 30",
    "tools/redis_round_trips.py": None,  # tests/cluster/test_redis_round_trips.py counts them
    "tools/router_hostile.py": None,  # tests/cluster/test_router_hostile.py runs it
    "tools/route_speed.py": None,  # beside another tree, which is not here
    "tools/route_study.py": "--requests 20 --concurrency 5 --replicas 2 --policies jump",
    "tools/screenshots.py": None,  # starts a browser; tests/lab does
    "tools/soak_redis.py": "--keys 300",
    "tools/soak_rings.py": "--operations 1e4",
    "tools/soak_windows.py": "--operations 1e4",
}


def rules() -> list[tuple[str, Run]]:
    """Give the rules: a pattern of the whole command, and how it is run."""
    return [
        # the name of a command, where it could not run without arguments: its help
        (r"evenbins( [a-z]+)*", run_bare),
        # a form in the text, such as `evenbins reproduce ID`, `evenbins build --exact`: the options exist
        (r"evenbins .*", check_form),
        # experiments: their ids are looked up; tests/unit/test_papers*.py run every one of them, with --quick
        (r"evenbins reproduce .*", partial(run_evenbins, more="--list")),
        # benchmarks: options are read. Their suites run, tiny, in tests/unit/test_bench.py and tests/cluster
        (r"python -m benchmarks( .*)?", read_options),
        # servers: started, asked, stopped
        (r"evenbins route .*", partial(serve, path="/-/status")),
        (r"evenbins lab.*", partial(serve, path="/", more="--no-browser")),
        (r"python examples/blocklist_service\.py .*", partial(serve, path="/status")),
        # the demonstration: with fewer keys
        (r"evenbins demo.*", partial(run_evenbins, more="--keys 100000")),
        # all other commands of ours, as they are
        (r"(?:\.venv/bin/)?evenbins .*", run_evenbins),
        # targets: they exist, and make can say what it would do
        (r"make .*", dry_make),
        # packages: the extra exists
        (r"pip install .*", check_extra),
        # an interpreter without arguments, and with one line
        (r"\.venv/bin/python", run_shell),
        (r"python -c .*", check_syntax),
        (r"python -m timeit .*", time_once),
        (r"python tools/.*", run_tool),
        (r"python (examples|tests)/.*", run_shell),
        # a script of ours for the shell: bash reads it
        (r'eval "\$\(evenbins .*', run_shell),
        # of the shell, in blocks that are meant to be typed
        (rf"({'|'.join(SHELL)}) .*", run_shell),
    ]


def prepare(folder: Path) -> None:
    """Put the files there that the pages speak of, small."""
    keys = [f"key-{i}" for i in range(1000)]
    (folder / "keys.txt").write_text("\n".join(keys) + "\n")
    (folder / "lines").write_text("\n".join(["key-7", "other", *keys[10:20]]) + "\n")
    for name in ("blocklist.txt", "list.txt"):
        (folder / name).write_text((folder / "keys.txt").read_text())
    (folder / "access.log").write_text((folder / "lines").read_text())
    for part in ("a.evb", "b.evb"):
        made = BlockedBloomFilter(1000)
        made.add_many(keys)
        made.save(folder / part)
    sessions = FingerprintFilter(1000, 1e-6)
    sessions.add_many(keys)
    sessions.save(folder / "sessions.evb")
    for name in ("data", "figures", ".config/fish/completions"):
        (folder / name).mkdir(parents=True)
    for part in range(2):
        urls = [f"https://example.org/{part}/{i}" for i in range(500)]
        pq.write_table(pa.table({"url": urls}), folder / "data" / f"{part}.parquet")
    requests = [f"{second},https://example.org/{second * second % 97}" for second in range(2000)]
    table = "\n".join(["time,key", *requests]) + "\n"
    with pa.output_stream(str(folder / "log.csv.zst"), compression="zstd") as log:
        log.write(table.encode())
    tabs = table.replace(",", "\t").replace("time\tkey", "when\turl")
    (folder / "access.tsv.gz").write_bytes(gzip.compress(tabs.encode()))
    chat = '{"timestamp": %d, "input_length": 1500, "output_length": 9, "hash_ids": [0, %d, %d]}\n'
    (folder / "conversation_trace.jsonl").write_text(
        "".join(chat % (i, i % 9 + 1, i + 10) for i in range(50))
    )
    for name in ("benchmarks", "deploy", "examples", "tests", "tools"):
        (folder / name).symlink_to(ROOT / name)
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, call in (("evenbins", f"{sys.executable} -m evenbins"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {call} "$@"\n')
        (programs / name).chmod(0o755)


# --- ways to run -------------------------------------------------------------------------------------------


def arguments(text: str) -> list[str]:
    """Split a command as the shell would; the program's name is left out."""
    return shlex.split(text, comments=True)[1:]


def needs_shell(text: str) -> bool:
    """Tell whether pipes, redirections, patterns or variables stand outside of quotes."""
    return bool(re.search(r"[|<>&;$*?]", re.sub(r"'[^']*'|\"[^\"$]*\"", "", text)))


def run_evenbins(command: Command, folder: Path, more: str = "") -> Done:
    """Run it in this process, or by the shell if it has to be."""
    if needs_shell(command.text):
        return run_shell(command, folder, more=more)
    with contextlib.chdir(folder), CliRunner().isolation() as streams:
        try:
            cli.main([*arguments(command.text), *more.split()])
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        return Done(status, streams[2].getvalue().decode(errors="replace"))


def run_shell(command: Command, folder: Path, more: str = "") -> Done:
    """Run it by bash, with our programs first; `more` goes behind the command's own arguments."""
    text = re.sub(r"(?=\s*[|<>]|$)", f" {more}", command.text, count=1) if more else command.text
    programs = folder / ".venv" / "bin"
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")]),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        ["bash", "-c", text], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=120, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout.decode(errors="replace"))


def found(words: list[str], command: click.Command = cli.commands) -> tuple[click.Command, list[str]]:
    """Find the command that words name, and give the rest of them."""
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, sub, words = command.resolve_command(click.Context(command), words)
        assert sub is not None, name
        command = sub
    return command, words


def run_bare(command: Command, folder: Path) -> Done:
    """Run a command without arguments; where that cannot be, show its help."""
    words = arguments(command.text)
    sub, rest = found(words)
    if rest:  # no sub-command, so these are arguments: another rule's
        return apply(command, folder, after=run_bare)
    incomplete = isinstance(sub, click.Group) or any(each.required for each in sub.params)
    if incomplete or command.inline or words[0] == "route":
        return run_evenbins(command, folder, more="--help")
    return apply(command, folder, after=run_bare)


def check_form(command: Command, folder: Path) -> Done:
    """Look for the options of a command whose arguments are only named, or left out."""
    sub, rest = found(arguments(command.text))
    named = any(re.fullmatch(r"@?[A-Z]{2,}(\.\.\.)?", word) for word in rest)
    left_out = any(isinstance(each, click.Argument) and each.required for each in sub.params) and all(
        word.startswith("-") for word in rest
    )
    if not command.inline or not (named or left_out):  # complete: another rule's
        return apply(command, folder, after=check_form)
    known = {name for each in sub.params for name in (*each.opts, *each.secondary_opts)}
    unknown = {word.split("=")[0] for word in rest if word.startswith("-")} - known
    return Done(2 if unknown else 0, f"no such option: {unknown}")


def read_options(command: Command, folder: Path) -> Done:
    """Let the command read its options and arguments, and no more."""
    sub, rest = found(arguments(command.text)[2:], bench)
    if rest or not isinstance(sub, click.Group):
        sub.make_context(sub.name, rest)
    return Done(0)


def serve(command: Command, folder: Path, path: str, more: str = "") -> Done:
    """Start a server on a free port, ask it for a page, end it."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    words = [*arguments(re.sub(r"\s&$", "", command.text)), *more.split(), "--port", str(port)]
    start = ["-m", "evenbins"] if command.text.startswith("evenbins") else []
    process = subprocess.Popen(
        [sys.executable, *start, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": SOURCE},
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for _ in range(2400):
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                    assert answer.status == 200
                break
            if process.poll() is not None:
                return Done(process.returncode, process.stderr.read().decode())
            time.sleep(0.1)
        else:
            pytest.fail(f"{command}: no answer within four minutes")
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
    finally:
        process.kill()
        process.wait()
    return Done(0 if status in (0, 130, 143, -signal.SIGTERM) else status)


def dry_make(command: Command, folder: Path) -> Done:
    """Let make say what it would do; its shell then reads that without doing it."""
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")  # of the make that runs the tests
    said = subprocess.run(
        ["make", "--dry-run", *arguments(command.text)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in outer},
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode:
        return Done(said.returncode, said.stderr)
    read = subprocess.run(["bash", "-n"], input=said.stdout, capture_output=True, text=True, check=False)
    return Done(read.returncode, read.stderr)


def check_extra(command: Command, folder: Path) -> Done:
    """Look the extras up: `pip install 'evenbins[plot]'` needs no network here."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = re.fullmatch(r"evenbins(?:\[([a-z,]+)\])?", arguments(command.text)[1])
    if asked is None:
        return Done(2, "only packages of ours, evenbins[extra], can be looked up")
    missing = {*(asked[1] or "").split(",")} - {*extras, ""}
    return Done(2 if missing else 0, f"no such extra: {missing}")


def check_syntax(command: Command, folder: Path) -> Done:
    """Compile a line of Python."""
    compile(arguments(command.text)[1], str(command), "exec")
    return Done(0)


def time_once(command: Command, folder: Path) -> Done:
    """Let timeit run its statement once."""
    text = command.text.replace("-m timeit", "-m timeit -n 1 -r 1", 1)
    return run_shell(Command(command.page, command.line, text), folder)


def run_tool(command: Command, folder: Path) -> Done:
    """Run a study with few of everything."""
    name = arguments(command.text)[0]
    if name not in SMALL_TOOLS:
        pytest.fail(
            f"{command}: SMALL_TOOLS of {Path(__file__).name} does not say how to run this in seconds"
        )
    small = SMALL_TOOLS[name]
    if isinstance(small, dict):
        tool = importlib.util.spec_from_file_location(Path(name).stem, ROOT / name)
        assert tool is not None
        assert tool.loader is not None
        module = importlib.util.module_from_spec(tool)
        tool.loader.exec_module(module)
        vars(module).update(small)
        module.main()
        return Done(0)
    return run_shell(command, folder, more="--help" if small is None else small)


def apply(command: Command, folder: Path, after: Run | None = None) -> Done:
    """Run a command by the first rule that fits (behind another one)."""
    book = rules()
    start = 0 if after is None else 1 + next(i for i, (_, run) in enumerate(book) if run is after)
    text = re.sub(r"\s*\\\n\s*", " ", command.text)
    for pattern, run in book[start:]:
        if re.fullmatch(pattern, text, re.S):
            try:
                return run(replace(command, text=text), folder)
            except click.UsageError as error:  # of those that only look at a command
                return Done(2, error.format_message())
    pytest.fail(f"{command}: no rule of {Path(__file__).name} says how to run this")


# --- commands of a page ------------------------------------------------------------------------------------

_BEGINS = re.compile(rf"(?:{'|'.join(map(re.escape, PROGRAMS))})(?=\s|$)")


def _cleaned(text: str) -> str:
    """Take a remark away: behind " #", behind three blanks, or, of make's targets, behind two."""
    text = re.sub(r"\s+#.*", "", text)
    return re.split(r"\s{2,}" if text.startswith("make ") else r"\s{3,}", text.strip())[0]


@dataclass
class _Page:
    """What reading a page line by line has found."""

    path: Path
    commands: list[Command] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)  # the text with blank lines in place of blocks

    def read(self) -> list[Command]:
        lines = self.path.read_text().splitlines()
        fence: tuple[str, str] | None = None  # its marks, its language
        open_command: Command | None = None  # one that goes on behind a backslash
        shown: Command | None = None  # one whose output follows
        for number, line in enumerate(lines, 1):
            mark = re.match(r"\s*(```+|~~~+)\s*(\{?[\w-]*\}?)", line)
            if mark and (fence is None or line.strip() == fence[0]):
                fence = (mark[1], mark[2]) if fence is None else None
                open_command = shown = None
                self.prose.append("")
                continue
            if open_command is not None:
                open_command.text += "\n" + _cleaned(line)
                open_command = open_command if line.endswith("\\") else None
                self.prose.append("")
                continue
            text = line.strip()
            started = self._starts(line, fence[1] if fence else None)
            if started is not None:
                command = Command(self.path, number, _cleaned(started))
                self.commands.append(command)
                open_command = command if text.endswith("\\") else None
                shown = command if fence and fence[1] == "console" else None
                if shown:
                    shown.expected = ""
            elif shown is not None and shown.expected is not None:
                shown.expected += line + "\n"
            self.prose.append("" if fence or started is not None else line)
        self._read_inline()
        return sorted(self.commands, key=lambda each: each.line)

    def _starts(self, line: str, language: str | None) -> str | None:
        text = line.strip()
        if language == "console":
            return text[2:] if text.startswith("$ ") else None
        if language in ("sh", "bash"):
            return text if text and not text.startswith("#") else None
        if language == "python" or (language is None and not line.startswith("    ")):
            return None
        text = text.removeprefix("$ ")
        return text if _BEGINS.match(text) else None

    def _read_inline(self) -> None:
        text = "\n".join(self.prose)
        for code in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text):
            words = " ".join(code[1].split())
            if _BEGINS.match(words) and " " in words:
                self.commands.append(
                    Command(self.path, text[: code.start()].count("\n") + 1, words, inline=True)
                )


def commands_of(page: Path) -> list[Command]:
    """Give the commands of a page, in their order."""
    return _Page(page).read()


# --- running a page ----------------------------------------------------------------------------------------

_CHECKER = doctest.OutputChecker()
_PARSER = doctest.DocTestParser()
_ran: set[str] = set()  # what need not run again for another page: it neither reads nor writes files
_WITHOUT_FILES = re.compile(r"(evenbins (design|reproduce|bench|route|lab)|make|pip|python tools/)\b.*")


def as_shown(output: str) -> str:
    return "".join(line.rstrip() + "\n" for line in output.splitlines())


def matches(command: Command, output: str) -> bool:
    """Compare what came out with what the page shows."""
    return command.expected is None or _CHECKER.check_output(
        as_shown(command.expected.rstrip("\n")), as_shown(output.rstrip("\n")), doctest.ELLIPSIS
    )


def is_story(page: Path) -> bool:
    """Tell whether commands and doctests of a page belong together."""
    return "```console" in page.read_text()


def run_page(page: Path, folder: Path) -> Iterator[tuple[Command, Done]]:
    """Run a page's commands, and in a story its doctests in between; give how each command ended."""
    prepare(folder)
    examples = _PARSER.get_examples(page.read_text(), str(page)) if is_story(page) else []
    names: dict[str, object] = {"__name__": "__main__"}
    for command in [*commands_of(page), None]:
        due = [each for each in examples if command is None or each.lineno < command.line]
        examples = examples[len(due) :]
        if due:
            said = io.StringIO()
            test = doctest.DocTest(due, names, page.name, str(page), 0, None)
            with contextlib.chdir(folder):
                doctest.DocTestRunner(verbose=False).run(test, out=said.write, clear_globs=False)
            names = test.globs
            assert not said.getvalue(), said.getvalue()
        if command is None or (command.expected is None and command.text in _ran):
            continue
        if _WITHOUT_FILES.fullmatch(command.text):
            _ran.add(command.text)
        yield command, apply(command, folder)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    for command, done in run_page(page, tmp_path):
        if command.expected is not None:  # a story may show a refusal, or that nothing was found
            assert matches(command, done.output), f"{command}\nshown:\n{command.expected}came:\n{done.output}"
            assert done.status == 0 or done.status in (1, 2), f"{command}: {done.status}"
            if "evenbins: " not in command.expected and "$?" not in command.text:
                assert done.status in (0, 1), f"{command}: {done.status}"
        else:
            assert done.status == 0, f"{command}: exit status {done.status}\n{done.output}"


# --- the test itself ---------------------------------------------------------------------------------------


def test_commands_are_found_wherever_they_stand(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Text with `evenbins inspect a.evb`, `evenbins.open`, `make\ntest` and `evenbins`.\n\n"
        "    evenbins build a \\\n        -o a.evb   # a remark\n"
        "    make docs    what it does\n    result 1\n\n"
        "```console\n$ evenbins query a.evb\none\ntwo\n$ seq 3 | wc -l\n3\n```\n\n"
        "```sh\ncurl --version\n```\n\n```python\nevenbins = 1\n```\n\n"
        "```text\n$ evenbins demo\nevenbins/\n```\n"
    )
    found = [(each.line, each.text, each.expected, each.inline) for each in commands_of(page)]
    assert found == [
        (1, "evenbins inspect a.evb", None, True),
        (1, "make test", None, True),
        (4, "evenbins build a \\\n-o a.evb", None, False),
        (6, "make docs", None, False),
        (10, "evenbins query a.evb", "one\ntwo\n", False),
        (13, "seq 3 | wc -l", "3\n", False),
        (18, "curl --version", None, False),
        (26, "evenbins demo", None, False),
    ]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("evenbins reproduce kanizo-fig99", "kanizo-fig99"),
        ("evenbins inspect nothing.evb", "nothing.evb"),
        ("evenbins design filter --keys 1e7 --frp 1e-3", "--frp"),
        ("make no-such-target", "no-such-target"),
        ("pip install 'evenbins[everything]'", "everything"),
        ("evenbins build KEYS --out FILE", "--out"),
        ("evenbins dream", "dream"),
        ("python -m benchmarks filters --rounds some", "some"),
        ("evenbins query keys.evb < lines", "keys.evb"),
    ],
)
def test_a_wrong_command_is_noticed(tmp_path: Path, text: str, word: str) -> None:
    prepare(tmp_path)
    done = apply(Command(ROOT / "README.md", 1, text, inline="KEYS" in text), tmp_path)
    assert done.status != 0
    assert word in done.output


def test_a_command_without_a_rule_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"README.md:7: sudo rm -r .*no rule"):
        apply(Command(ROOT / "README.md", 7, "sudo rm -r /"), tmp_path)


def test_another_output_is_noticed() -> None:
    command = Command(ROOT / "README.md", 1, "evenbins query a.evb", "one\n...\nthree\n")
    assert matches(command, "one\ntwo  \nthree\n")
    assert not matches(command, "one\ntwo\n")


def test_the_studies_of_the_rules_exist() -> None:
    assert all((ROOT / name).is_file() for name in SMALL_TOOLS)
    assert registry.experiments()


# --- writing outputs anew ----------------------------------------------------------------------------------


def write_outputs(page: Path, folder: Path) -> None:
    """Put what comes out today in place of what a page shows, where they differ."""
    lines = page.read_text().splitlines(keepends=True)
    changes = [
        (command, as_shown(done.output))
        for command, done in run_page(page, folder)
        if not matches(command, done.output)
    ]
    for command, output in reversed(changes):
        assert command.expected is not None
        first = command.line + command.text.count("\n")
        lines[first : first + command.expected.count("\n")] = [output]
    page.write_text("".join(lines))


if __name__ == "__main__":
    import tempfile

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as place:
            write_outputs(Path(name).resolve(), Path(place))
