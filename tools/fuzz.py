"""Coverage-guided fuzzing of everything that reads what others wrote (`make fuzz`).

    fuzz/cpp/*.cpp        libFuzzer, with the address and undefined-behaviour sanitizers: files of every kind
    fuzz/python/*.py      atheris: classes from bytes and files, keys, arrays, Arrow columns, the command
                          line's readers, traces, the router over a socket and what it parses
    the lab's API         schemathesis, from its own /api/openapi.json

Each target runs on the seeds (golden files), the corpus in fuzz/corpus/<target>, and what earlier runs found
(build/fuzz/corpus/<target>). A crash, a sanitizer's report, an input of more than 5 s, an allocation above
the limit ends a target with exit code 1; its input lies in build/fuzz/findings/<target>-*: copy it to
fuzz/crashes/<target>/ once it is repaired, and tests/fuzz/test_fuzz_regressions.py keeps it so.

    make fuzz ARGS='--seconds 60'         each target for a minute
    make fuzz ARGS='--only rings paged'   some targets
    make fuzz ARGS='--minimise'           writes fuzz/corpus anew: the least of what earlier runs found that
                                          covers as much

The report (executions, executions a second, edges and features covered, slowest input, memory, findings) is
printed and written to fuzz/results/<date>.json, beside those of other targets of that day.

Tried and dropped: AFL++ (a fork for each input: a tenth of the executions); several jobs at once (two cores).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import records
from instrumented import link_package

from evenbins import _core, _study

ROOT = Path(__file__).parents[1]
FUZZ, BUILD = ROOT / "fuzz", ROOT / "build" / "fuzz"
GOLDEN = ROOT / "tests" / "golden"
FOLDERS = ("", "filters", "tables", "sketches", "rings", "routing")  # of the core's sources
CORE = [
    *(
        str(path.relative_to(ROOT / "cpp").with_suffix(""))
        for folder in FOLDERS
        for path in sorted((ROOT / "cpp" / folder).glob("*.cpp"))
    ),
    "platform/posix",
    "kernels/dispatch",
    "kernels/generic",
]
AVX512 = "-mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mbmi -mbmi2 -mpopcnt"
KERNELS = {
    "kernels/avx2": "-mavx2 -mbmi -mbmi2 -mpopcnt",
    "kernels/avx512": AVX512,
    "kernels/avx512vbmi": f"{AVX512} -mavx512vbmi",
}
FLAGS = ["-std=c++20", "-O2", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]
SANITIZERS = "address,undefined"

# Executions of a full run; the globs of tests/golden that are seeds; the longest input.
CPP: dict[str, tuple[int, str, int]] = {
    "filters": (1_500_000, "standard* blocked* balanced* counting* growing*", 2048),
    "fingerprint": (200_000, "fingerprint*", 6144),
    "fuse": (1_500_000, "fuse*", 2048),
    "window": (200_000, "window*", 6144),
    "sketches": (2_000_000, "count-min*", 2048),
    "tables": (2_000_000, "table*", 4096),
    "chained": (2_000_000, "chained*", 4096),
    "summaries": (1_800_000, "summary*", 4096),
    "rings": (1_000_000, "ring*", 4096),
    "paged": (200_000, "", 256),
}
PYTHON: dict[str, tuple[int, str, int]] = {
    "loaders": (250_000, "*", 4096),
    "keys": (300_000, "", 512),
    "arrow": (300_000, "", 512),
    "inputs": (100_000, "", 1024),
    "traces": (150_000, "", 1024),
    "router": (10_000, "", 1024),
    "route_parsers": (200_000, "", 256),
}
LAB_SECONDS = 600
INTERRUPTED = 72  # libFuzzer's exit code after Ctrl-C
LIMITS = ["-timeout=5", "-rss_limit_mb=1024", "-malloc_limit_mb=256", "-print_final_stats=1"]


def build(names: list[str]) -> None:
    """Compile the core and the targets by clang, what has changed alone."""
    if not names:
        return
    if shutil.which("clang++") is None:
        sys.exit("make fuzz needs clang++ with compiler-rt: apt-get install clang (Debian, Ubuntu)")
    BUILD.mkdir(parents=True, exist_ok=True)
    headers = [path for path in ROOT.glob("cpp/**/*.hpp") if path.parent.name != "bindings"]
    headers += FUZZ.glob("cpp/*.hpp")
    newest = max(each.stat().st_mtime for each in headers)
    include = ["-I", str(ROOT / "cpp" / "include")]
    objects = []
    x86 = os.uname().machine == "x86_64"
    for name, flags in {**dict.fromkeys(CORE, ""), **(KERNELS if x86 else {"kernels/neon": ""})}.items():
        source, target = ROOT / "cpp" / f"{name}.cpp", BUILD / f"{name.replace('/', '-')}.o"
        objects.append(target)
        if target.exists() and target.stat().st_mtime > max(newest, source.stat().st_mtime):
            continue
        print(f"clang++ {name}.cpp", flush=True)
        sanitize = f"-fsanitize=fuzzer-no-link,{SANITIZERS}"
        _run(["clang++", *FLAGS, sanitize, *flags.split(), *include, "-c", str(source), "-o", str(target)])
    for name in names:
        source, target = FUZZ / "cpp" / f"{name}.cpp", BUILD / name
        latest = max([newest, source.stat().st_mtime, *(each.stat().st_mtime for each in objects)])
        if not target.exists() or target.stat().st_mtime < latest:
            print(f"clang++ fuzz/cpp/{name}.cpp", flush=True)
            sanitize = f"-fsanitize=fuzzer,{SANITIZERS}"
            _run(["clang++", *FLAGS, sanitize, *include, str(source), *map(str, objects), "-o", str(target),
                  "-lpthread"])  # fmt: skip


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)


def folders(target: str, seeds: str) -> list[Path]:
    """Return the folders that a target reads: the first one gets what is new."""
    work, kept, crashes, golden = (
        BUILD / "corpus" / target,
        FUZZ / "corpus" / target,
        FUZZ / "crashes" / target,
        BUILD / "seeds" / target,
    )
    shutil.rmtree(golden, ignore_errors=True)
    for folder in (work, golden, BUILD / "findings"):
        folder.mkdir(parents=True, exist_ok=True)
    for pattern in seeds.split():
        for path in GOLDEN.glob(f"{pattern}.evenbins"):
            shutil.copy(path, golden)
    return [work, golden, *(folder for folder in (kept, crashes) if folder.is_dir())]


def command_of(target: str) -> list[str]:
    """Return the program of a target, which takes libFuzzer's options."""
    if target in CPP:
        return [str(BUILD / target)]
    return [sys.executable, str(FUZZ / "python" / "run.py"), target]


def fuzz(target: str, seconds: int | None, runs: int | None) -> dict[str, Any]:
    """Run one target; return its report."""
    goal, seeds, longest = (CPP | PYTHON)[target]
    limit = [f"-max_total_time={seconds}"] if seconds else []
    goal = runs or goal
    if not seconds or runs:
        limit.append(f"-runs={goal}")
    where = BUILD / "findings" / f"{target}-"
    command = [*command_of(target), *LIMITS, *limit, f"-max_len={longest}", f"-artifact_prefix={where}",
               *map(str, folders(target, seeds))]  # fmt: skip
    if target in PYTHON:
        link_package(BUILD / "package", [Path(_core.__file__), Path(_study.__file__)])
    log = BUILD / f"{target}.log"
    began = time.monotonic()
    with log.open("wb") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=environment())
    text = log.read_text(errors="replace")
    report = parse_figures(text) | {
        "target": target,
        "engine": "libFuzzer" if target in CPP else "atheris",
        "seconds": round(time.monotonic() - began, 1),
        "exit": 0 if done.returncode == INTERRUPTED else done.returncode,
        "interrupted": done.returncode == INTERRUPTED,
        "findings": [] if done.returncode in (0, INTERRUPTED) else [text[-3000:]],
    }
    if target == "router":  # one input is sent on so many connections
        report["connections"] = 12 * report["executions"]
    report["executions_per_second"] = round(report["executions"] / max(report["seconds"], 0.1))
    return report


def environment() -> dict[str, str]:
    """Return the environment of a target: sanitizers that stop at the first report."""
    return os.environ | {
        "ASAN_OPTIONS": "quarantine_size_mb=16:malloc_context_size=4",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": os.pathsep.join([str(BUILD / "package"), str(FUZZ / "python")]),
    }


def parse_figures(text: str) -> dict[str, Any]:
    """Read the figures that libFuzzer prints."""

    def last(pattern: str) -> int:
        found = re.findall(pattern, text)
        return int(found[-1]) if found else 0

    executions = last(r"stat::number_of_executed_units:\s+(\d+)") or last(r"#(\d+)\s")
    return {
        "executions": executions,
        "edges": last(r"cov: (\d+)"),
        "features": last(r"ft: (\d+)"),
        "corpus": last(r"corp: (\d+)"),
        "slowest_seconds": last(r"stat::slowest_unit_time_sec:\s+(\d+)"),
        "peak_rss_mb": last(r"stat::peak_rss_mb:\s+(\d+)") or last(r"rss: (\d+)Mb"),
    }


def minimise(target: str) -> None:
    """Write fuzz/corpus anew: what covers as much as all; of atheris, which cannot merge, the shortest."""
    _, seeds, longest = (CPP | PYTHON)[target]
    kept = FUZZ / "corpus" / target
    others = folders(target, seeds)
    found = others[0]
    if target in CPP:
        found = BUILD / "merged" / target
        shutil.rmtree(found, ignore_errors=True)
        found.mkdir(parents=True)
        command = [*command_of(target), "-merge=1", f"-max_len={longest}", "-timeout=5", str(found)]
        with (BUILD / f"{target}-merge.log").open("wb") as log:
            subprocess.run(
                [*command, *map(str, others)], check=True, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
                env=environment(),
            )  # fmt: skip
        shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True, exist_ok=True)
    golden = {path.read_bytes() for path in GOLDEN.glob("*.evenbins")}
    size = sum(path.stat().st_size for path in kept.iterdir())
    for path in sorted(found.iterdir(), key=lambda path: (path.stat().st_size, path.name)):
        if path.read_bytes() in golden or size + path.stat().st_size > MOST_CORPUS_BYTES:
            continue
        size += path.stat().st_size
        shutil.copy(path, kept / path.name[:16])
    print(f"{target}: {len(list(kept.iterdir()))} inputs, {size:,} bytes")


MOST_CORPUS_BYTES = 60_000  # of each target


def show(reports: list[dict[str, Any]]) -> None:
    """Print the table."""
    columns = {"target": 13, "engine": 13, "executions": 12, "executions_per_second": 8, "edges": 7,
    "features": 9,
               "slowest_seconds": 8, "peak_rss_mb": 8, "exit": 5}  # fmt: skip
    titles = ["target", "engine", "executions", "a second", "edges", "features", "slowest", "RSS MB", "exit"]
    print("  ".join(title.rjust(width) for title, width in zip(titles, columns.values(), strict=True)))
    for each in reports:
        cells = (each.get(name, "") for name in columns)
        texts = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
        print("  ".join(text.rjust(width) for text, width in zip(texts, columns.values(), strict=True)))


def keep(reports: list[dict[str, Any]]) -> Path:
    """Add the reports to the day's file; a target's newest counts, unless it ran longer before without
    findings."""
    path = FUZZ / "results" / f"{datetime.date.today().isoformat()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = (
        {each["target"]: each for each in json.loads(path.read_text())["targets"]} if path.exists() else {}
    )
    for each in reports:
        before = known.get(each["target"])
        if before and not each["exit"] and not before["exit"] and before["executions"] > each["executions"]:
            continue
        known[each["target"]] = each
    about = {"commit": records.commit(), "machine": os.uname().machine, "cores": os.cpu_count()}
    order = [*CPP, *PYTHON, "lab"]
    targets = sorted(known.values(), key=lambda each: order.index(each["target"]))
    path.write_text(json.dumps(about | {"targets": targets}, indent=1) + "\n")
    return path


def main() -> None:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=int, help="for each target; left out: its number of executions")
    parser.add_argument("--runs", type=int, help="executions of each target")
    parser.add_argument("--only", nargs="+", choices=[*CPP, *PYTHON, "lab"], metavar="TARGET")
    parser.add_argument("--minimise", action="store_true", help="write fuzz/corpus anew from earlier runs")
    given = parser.parse_args()
    wanted = given.only or [*CPP, *PYTHON, "lab"]
    build([name for name in wanted if name in CPP])
    if given.minimise:
        for name in wanted:
            if name != "lab":
                minimise(name)
        return
    reports = []
    for name in wanted:
        print(f"--- {name}", flush=True)
        if name == "lab":
            sys.path.insert(0, str(FUZZ / "python"))
            import lab

            reports.append(lab.report(given.seconds or LAB_SECONDS))
        else:
            reports.append(fuzz(name, given.seconds, given.runs))
        show(reports[-1:])
        keep(reports[-1:])
    print()
    show(reports)
    bad = [each["target"] for each in reports if each["exit"]]
    if bad:
        sys.exit(
            f"findings in {', '.join(bad)}: build/fuzz/<target>.log says what, "
            "build/fuzz/findings has the inputs"
        )


if __name__ == "__main__":
    main()
