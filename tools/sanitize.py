"""The core and the bindings under AddressSanitizer, UBSan, LeakSanitizer and ThreadSanitizer.

    python tools/sanitize.py                 both builds, all tests of the lists below
    python tools/sanitize.py address         one of them; `thread` for the other
    python tools/sanitize.py address --tests tests/property    other tests
    python tools/sanitize.py address --again   files that had reports, once more; the others as they were

For each build, in build/sanitize/<name> (tools/instrumented.py), never in the user's environment:

    faults      sanitizers/faults.cpp: every fault that the build looks for is reported, no other
    self-test   tools/selftest.cpp: the C++ core alone, every kernel of this machine; leaks at its end
    tests       pytest, a process for each file and --jobs of them at a time, the sanitizer's runtime loaded
                first; PYTHONMALLOC=malloc, so that Python's objects are watched too; leaks by
                sanitizers/plugin.py

A report of any process ends up in build/sanitize/<name>/reports and makes this program fail, whatever the
tests say; so do nanobind's warnings of leaked objects. Undefined behaviour ends the process.

Nothing is suppressed. tests/unit/test_pool.py is in neither list: it forks among threads, which the
sanitizers' own allocators and bookkeeping do not survive, and exits while others are in a call.
ThreadSanitizer's list has no file that imports Polars, which crashes under it, without evenbins too. Its
build runs the generic kernel, whose look-ups during writes are atomic loads
(cpp/include/evenbins/shared_words.hpp). Leaks in which no compiled module allocates (NumPy, Arrow and the
interpreter keep things for ever) are counted, and shown as `others`.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import instrumented
import records
from instrumented import ROOT, Build

HERE = ROOT / "tools/sanitizers"
OURS = ("_core.", "_study.", "evenbins::", "selftest")  # in a frame of a leak: ours

# A test asked for more than there is, and got no memory: an answer, not a fault.
REFUSED = re.compile(r"^==\d+==WARNING: \w+Sanitizer failed to allocate .*\n", re.MULTILINE)

# Tests that measure what a sanitizer changes (memory, a limit of the address space), each with its reason.
NOT_UNDER_ADDRESS: dict[str, str] = {
    "tests/unit/test_bulk.py::test_building_from_an_array_copies_no_keys": "freed memory is kept for a while",
    "tests/unit/test_growing.py::test_adding_takes_no_memory_beside_the_filter": "likewise",
}
NOT_UNDER_THREAD: dict[str, str] = {
    "tests/unit/test_growing.py::test_adding_takes_no_memory_beside_the_filter": "it has memory of its own",
}


@dataclass(frozen=True)
class Sanitizer:
    """A build: its options, the libraries to load first, its settings, what runs on it."""

    name: str
    options: list[str]
    libraries: list[str]
    settings: dict[str, str]
    faults: dict[str, str]
    tests: list[str]
    without: dict[str, str] = field(default_factory=dict)


# gcc 13 stores vectors misaligned on the stack that finds uses after a return (its defect 110027).
STACK = f"detect_stack_use_after_return={int(not instrumented.run('g++', '-dumpversion').startswith('13'))}"
COMMON = ["-fno-omit-frame-pointer", "-g1"]
SANITIZERS = [
    Sanitizer(
        "address",
        ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", *COMMON],
        ["libasan.so", "libubsan.so", "libstdc++.so"],
        {
            "ASAN_OPTIONS": f"detect_leaks=1:leak_check_at_exit=0:{STACK}:"
            "strict_string_checks=1:check_initialization_order=1:allocator_may_return_null=1:log_path={reports}",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:log_path={reports}",
            "LSAN_OPTIONS": "report_objects=0:max_leaks=200",
        },
        {
            "overflow": "heap-buffer-overflow",
            "freed": "heap-use-after-free",
            "undefined": "signed integer overflow",
            "leak": "LeakSanitizer: detected memory leaks",
        },
        [
            "tests/property", "tests/unit/test_files.py", "tests/unit/test_corruption.py",
            "tests/unit/test_golden.py", "tests/unit/test_keys.py", "tests/unit/test_bulk.py",
            "tests/unit/test_kernels.py", "tests/unit/test_table_kernels.py", "tests/unit/test_filters.py",
            "tests/unit/test_balanced.py", "tests/unit/test_counting.py", "tests/unit/test_countmin.py",
            "tests/unit/test_growing.py", "tests/unit/test_sharded.py", "tests/unit/test_tables.py",
            "tests/unit/test_chained.py", "tests/unit/test_summaries.py", "tests/unit/test_paged.py",
            "tests/unit/test_rings.py", "tests/unit/test_cli_inputs.py", "tests/unit/test_concurrency.py",
            "tests/unit/test_simulate.py", "tests/unit/test_simulate_tables.py",
            "tests/unit/test_simulate_summaries.py", "tests/unit/test_simulate_rings.py",
            "tests/unit/test_simulate_cache.py", "tests/unit/test_traces.py", "tests/unit/test_add_new.py",
            "tests/unit/test_columns.py", "tests/unit/test_composites.py", "tests/unit/test_deduplicator.py",
            "tests/unit/test_exact_sets.py", "tests/unit/test_fingerprint.py",
            "tests/unit/test_fingerprint_core.py", "tests/unit/test_fingerprint_damage.py",
            "tests/unit/test_fingerprint_shards.py", "tests/unit/test_fuse.py",
            "tests/unit/test_growing_fingerprint.py", "tests/unit/test_heavy_hitters.py",
            "tests/unit/test_partitioned.py", "tests/unit/test_routing.py",
            "tests/unit/test_sketch_threads.py", "tests/unit/test_table_threads.py",
            "tests/unit/test_window.py",
        ],
        NOT_UNDER_ADDRESS,
    ),
    Sanitizer(
        "thread",
        ["-fsanitize=thread", *COMMON],
        ["libtsan.so", "libstdc++.so"],
        {
            "TSAN_OPTIONS": "halt_on_error=0:ignore_noninstrumented_modules=1:second_deadlock_stack=1:"
            "report_signal_unsafe=0:die_after_fork=0:history_size=4:allocator_may_return_null=1:log_path={reports}",
        },
        {"race": "ThreadSanitizer: data race"},
        [
            "tests/unit/test_threads.py", "tests/unit/test_concurrency.py", "tests/unit/test_rings.py",
            "tests/unit/test_calls_together.py", "tests/unit/test_composites.py",
            "tests/unit/test_exact_sets.py", "tests/unit/test_growing.py",
            "tests/unit/test_growing_fingerprint.py", "tests/unit/test_heavy_hitters.py",
            "tests/unit/test_partitioned.py", "tests/unit/test_routing.py",
            "tests/unit/test_sketch_threads.py", "tests/unit/test_table_threads.py",
            "tests/unit/test_window.py",
        ],
        NOT_UNDER_THREAD,
    ),
]  # fmt: skip


def _environment(sanitizer: Sanitizer, reports: Path) -> dict[str, str]:
    libraries = [
        str(Path(instrumented.run("g++", f"-print-file-name={name}").strip()).resolve())
        for name in sanitizer.libraries
    ]
    settings = {name: value.format(reports=reports) for name, value in sanitizer.settings.items()}
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {
        **plain,
        **settings,
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONMALLOC": "malloc",
        "EVENBINS_LEAK_WARNINGS": "1",
        "PYTHONPATH": str(HERE),
        "PATH": instrumented.PROGRAMS,
    }


def _without_random_addresses() -> list[str]:
    """ThreadSanitizer of gcc 12 needs its addresses where it expects them."""
    setarch = shutil.which("setarch")
    return [setarch, platform.machine(), "-R"] if setarch else []


@dataclass
class Reports:
    """What the processes of a run have reported."""

    ours: list[str]
    others: int

    @classmethod
    def of(cls, folder: Path) -> Reports:
        """Read all reports of a folder; leaks without an allocation by the compiled modules are others'."""
        ours: list[str] = []
        others = 0
        for path in sorted(folder.glob("report*")):
            text = REFUSED.sub("", path.read_text(errors="replace"))
            if "LeakSanitizer" not in text or "AddressSanitizer:" in text.split("LeakSanitizer")[0]:
                ours += [text] if text.strip() else []
                continue
            leaks = re.split(r"\n(?=(?:Direct|Indirect) leak of )", text)[1:]
            for leak in leaks:
                frames = re.findall(r"^ +#\d+ .*$", leak, re.MULTILINE)
                if any(name in frame for frame in frames[:12] for name in OURS):
                    ours.append(leak)
                else:
                    others += 1
        return cls(ours, others)


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _check_faults(sanitizer: Sanitizer, made: Build) -> int:
    """Show that each fault is reported and that no fault is not; the number of faults."""
    program = made.folder / "faults"
    instrumented.run(
        "g++", "-std=c++20", "-O1", *sanitizer.options, HERE / "faults.cpp", "-pthread", "-o", program
    )
    for fault, message in {**sanitizer.faults, "nothing": ""}.items():
        done = subprocess.run(
            [*_without_random_addresses(), program, fault], text=True, capture_output=True, check=False
        )
        if message not in done.stderr or (done.returncode == 0) != (fault == "nothing"):
            sys.exit(
                f"{sanitizer.name}: the fault {fault!r} is not reported as it should be "
                f"(expected {message!r}, ended with {done.returncode}):\n{done.stdout}{done.stderr}"
            )
    return len(sanitizer.faults)


def _self_test(sanitizer: Sanitizer, made: Build) -> str:
    """Run the core's own test; leaks are checked at its end. The kernels that took part."""
    program = made.folder / "selftest"
    instrumented.run(
        "g++", "-std=c++20", "-O1", *sanitizer.options, "-I", ROOT / "cpp/include",
        ROOT / "tools/selftest.cpp", made.core, "-pthread", "-o", program,
    )  # fmt: skip
    settings = {"ASAN_OPTIONS": f"detect_leaks=1:{STACK}", "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run(
        [*_without_random_addresses(), program], text=True, capture_output=True, check=False,
        env={**os.environ, **settings}, cwd=made.folder,
    )  # fmt: skip
    if done.returncode or done.stderr.strip():
        sys.exit(f"{sanitizer.name}: the self-test ended with {done.returncode}\n{done.stdout}{done.stderr}")
    kernels = done.stdout.splitlines()[0]
    if sanitizer.name == "thread" and kernels != "kernels generic":
        sys.exit(f"thread: the loads of vector kernels are not atomic, and this build runs {kernels}")
    return kernels


@dataclass
class Outcome:
    """Tests that passed, and what was reported."""

    passed: int = 0
    reports: list[str] = field(default_factory=list)
    others: int = 0


def _files(tests: list[str]) -> list[Path]:
    """Return the test files of a list of files and folders."""
    found = []
    for each in tests:
        path = ROOT / each
        found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    return found


def _read_outcome(path: Path, reports: Path) -> Outcome | None:
    """Read what the run of a file left; None if it has not been run."""
    log = reports / "pytest.log"
    if not log.exists():
        return None
    text = log.read_text(errors="replace")
    found = Reports.of(reports)
    found.ours += re.findall(r" - leaked (?:instance|type) .*evenbins.*", text)  # others use nanobind too
    passed = sum(map(int, re.findall(r"(\d+) passed", text)))
    if not passed or re.search(r"\d+ (failed|error)", text):
        found.ours.append(f"{path.name}: tests failed\n{text[-5000:]}")
    return Outcome(passed, found.ours, found.others)


def _tests(sanitizer: Sanitizer, made: Build, tests: list[str], again: bool, jobs: int) -> Outcome:
    """Run pytest on the build, a process for each file: one that ends early hides no other."""
    instrumented.check_that_it_is_used(made, _environment(sanitizer, made.folder / "unused"))

    def one(path: Path) -> Outcome:
        start = time.monotonic()
        folder = made.folder / "reports" / path.stem
        found = _read_outcome(path, folder) if again else None
        if found is None or found.reports:
            _run_file(sanitizer, made, path, _fresh(folder))
            found = _read_outcome(path, folder)
            assert found is not None
        seconds = time.monotonic() - start
        print(
            f"  {path.name:36} {found.passed:5} passed {len(found.reports):3} reports {seconds:6.0f} s",
            flush=True,
        )
        return found

    whole = Outcome()
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(one, _files(tests)):
            whole.passed += found.passed
            whole.reports += found.reports
            whole.others += found.others
    return whole


def _run_file(sanitizer: Sanitizer, made: Build, path: Path, reports: Path) -> None:
    environment = _environment(sanitizer, reports / "report")
    without = [word for test in sanitizer.without for word in ("--deselect", test)]
    command = [
        *_without_random_addresses(), made.python, "-m", "pytest", "-n0", "-q", "-p", "plugin",
        "-o", "faulthandler_timeout=7200", "-p", "no:cacheprovider", *without, path,
    ]  # fmt: skip
    log = reports / "pytest.log"
    with log.open("w") as output:
        done = subprocess.run(
            list(map(str, command)), env=environment, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT,
            check=False,
        )  # fmt: skip
        if done.returncode:
            print(f"{path.name}: 1 error: pytest ended with {done.returncode}", file=output)


def main() -> None:
    """Build, prove, test; the end is an error if anything was reported."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="address, thread; both if none is given")
    parser.add_argument("--tests", nargs="*", help="instead of the lists of this program")
    parser.add_argument("--again", action="store_true", help="only files that had reports in the last run")
    parser.add_argument("--jobs", type=int, default=2, help="of the compiler, and test files at once")
    arguments = parser.parse_args()
    unknown = {*arguments.names} - {each.name for each in SANITIZERS}
    if unknown:
        sys.exit(
            f"names must be address or thread, not {', '.join(sorted(unknown))}: leave them out for both"
        )
    failed = False
    for sanitizer in SANITIZERS:
        if arguments.names and sanitizer.name not in arguments.names:
            continue
        start = time.monotonic()
        made = instrumented.build(f"sanitize/{sanitizer.name}", sanitizer.options, jobs=arguments.jobs)
        faults = _check_faults(sanitizer, made)
        kernels = _self_test(sanitizer, made)
        said = [f"{sanitizer.name}: {faults} faults put in and reported; self-test, {kernels}: no report"]
        print(said[0], flush=True)
        found = _tests(sanitizer, made, arguments.tests or sanitizer.tests, arguments.again, arguments.jobs)
        seconds = time.monotonic() - start
        said.append(
            f"{sanitizer.name}: {found.passed:,} tests passed, {len(sanitizer.without)} left out, "
            f"{len(found.reports)} reports, {found.others} leaks of others"
        )
        print(f"{said[1]}, {seconds / 60:.0f} minutes", flush=True)
        if not arguments.tests:
            words = f"'{sanitizer.name} --again'" if arguments.again else sanitizer.name
            command = f"make sanitize ARGS={words}"
            records.keep(f"sanitize-{sanitizer.name}", command, said, seconds)
        for report in found.reports[:10]:
            print(report[:6000])
        failed |= bool(found.reports)
    sys.exit(failed)


if __name__ == "__main__":
    main()
