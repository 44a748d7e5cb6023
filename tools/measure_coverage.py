"""How much of the code the tests run: lines of Python, lines of the C++ core.

    python tools/measure_coverage.py        everything; fails below 95 % of Python, 90 % of the core
    python tools/measure_coverage.py --tests tests/unit/test_rings.py
    python tools/measure_coverage.py --again         the tests that failed, once more; lines are added

The core is built with gcov's counters into build/coverage (tools/instrumented.py), and one run of the tests
gives both figures: coverage.py counts the Python, subprocesses and the workers of pytest-xdist included; gcov
the C++, with the core's self-test (tools/selftest.cpp) beside. C++ means cpp/ without the bindings,
which are glue that Python's tests run, and which are listed for information.

tests/packaging is left out (it builds other cores); so are the NEON kernel, which is not compiled here and
runs there, and Python that only type checkers read. Everything else counts, the benchmark and the papers'
experiments too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import instrumented
import records
from instrumented import ROOT, Build

LEAST_PYTHON, LEAST_CORE = 95.0, 90.0
# Tests that the counting itself breaks, each with its reason.
WITHOUT = {
    "tests/unit/test_disk_trouble.py::test_a_full_disk_leaves_everything_as_it_was[limit]": "gcov writes",
}
OPTIONS = ["--coverage", "-fprofile-update=atomic", "-g1"]
SETTINGS = """\
[run]
source_pkgs = evenbins
parallel = true
concurrency = thread,multiprocessing
sigterm = true
disable_warnings = module-not-measured
data_file = {folder}/data
[report]
exclude_also =
    if TYPE_CHECKING:
    @overload
    : \\.\\.\\.$
[paths]
package =
    {source}
    {package}
"""


def _run_tests(made: Build, tests: list[str], workers: str, again: bool) -> int:
    """Run the tests and gather the counts; the tests' exit code."""
    python = made.folder / "python"
    if not again:
        shutil.rmtree(python, ignore_errors=True)
        python.mkdir()
        for counts in made.folder.rglob("*.gcda"):
            counts.unlink()
    settings = python / "settings"
    source, package = ROOT / "src/evenbins", made.folder / "package/evenbins"
    settings.write_text(SETTINGS.format(folder=python, source=source, package=package))
    environment = {**os.environ, "COVERAGE_RCFILE": str(settings), "PATH": instrumented.PROGRAMS}
    environment |= {"COVERAGE_PROCESS_START": str(settings)}
    environment.pop("PYTHONPATH", None)
    # Workers and other processes count too. The name: behind the file that tells where coverage.py is.
    (site,) = made.folder.glob("environment/lib/python*/site-packages")
    (site / "with_coverage.pth").write_text("import coverage; coverage.process_startup()\n")
    instrumented.check_that_it_is_used(made, environment)
    command = [str(made.python), "-m", "coverage", "run", "-m", "pytest", "-q", "-n", workers, *tests]
    command += ["-o", "faulthandler_timeout=7200"]
    command += [word for test in WITHOUT for word in ("--deselect", test)]
    command += ["--last-failed", "--last-failed-no-failures", "none"] if again else []
    done = subprocess.run(command, env=environment, cwd=ROOT, check=False)
    _self_test(made)
    for step in (["combine", "--quiet", "--append"], ["json", "--quiet", "-o", str(python / "lines.json")]):
        subprocess.run([str(made.python), "-m", "coverage", *step], env=environment, cwd=ROOT, check=True)
    return done.returncode


def _self_test(made: Build) -> None:
    program = made.folder / "selftest"
    instrumented.run(
        "g++", "-std=c++20", "-O1", "-I", ROOT / "cpp/include", ROOT / "tools/selftest.cpp",
        made.core, "--coverage", "-pthread", "-o", program,
    )  # fmt: skip
    instrumented.run(program)


def _python_lines(made: Build) -> dict[str, tuple[int, int]]:
    """Lines run and lines in all, for each file of the package."""
    found = json.loads((made.folder / "python/lines.json").read_text())["files"]
    lines = {}
    for name, each in found.items():
        path = Path(name)
        parts = path.parts[len(path.parts) - path.parts[::-1].index("evenbins") :]
        lines["/".join(parts)] = (each["summary"]["covered_lines"], each["summary"]["num_statements"])
    return lines


def _core_lines(made: Build) -> dict[str, tuple[int, int]]:
    """The same for each file of cpp/, by gcovr."""
    report = made.folder / "core.json"
    instrumented.run(
        made.python, "-m", "gcovr", "--root", ROOT, "--filter", str(ROOT / "cpp") + "/",
        "--merge-mode-functions", "merge-use-line-max", "--gcov-ignore-parse-errors", "all",
        "--gcov-ignore-errors", "no_working_dir_found", "--json-summary", report, made.folder,
    )  # fmt: skip
    files = json.loads(report.read_text())["files"]
    return {
        each["filename"].removeprefix("cpp/"): (each["line_covered"], each["line_total"])
        for each in files
        if each["line_total"]
    }


def _show(title: str, lines: dict[str, tuple[int, int]], least: float) -> tuple[float, str]:
    """Print a table; the share of lines that were run, and a line that says it."""
    by_package: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, (hit, total) in lines.items():
        package = name.split("/")[0] if "/" in name else "."
        by_package[package][0] += hit
        by_package[package][1] += total
    print(f"{title}")
    for package, (hit, total) in sorted(by_package.items()):
        print(f"  {package:28} {hit:6} of {total:6} {100 * hit / max(1, total):6.1f} %")
    hit, total = (sum(each[i] for each in lines.values()) for i in (0, 1))
    share = 100 * hit / max(1, total)
    print(f"  {'all':28} {hit:6} of {total:6} {share:6.1f} %   (at least {least:.0f} %)")
    worst = sorted(lines.items(), key=lambda item: item[1][0] - item[1][1])[:12]
    print("  most lines not run: " + ", ".join(f"{name} {b - a}" for name, (a, b) in worst if b > a))
    return share, f"{title}: {hit:,} of {total:,} lines, {share:.1f} % (at least {least:.0f} %)"


def main() -> None:
    """Build, run the tests, print both figures; an error if one is too low."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tests", nargs="*", default=["tests", "--ignore=tests/packaging"])
    parser.add_argument("--workers", default="auto", help="of pytest-xdist")
    parser.add_argument("--jobs", type=int, default=2, help="of the compiler")
    parser.add_argument("--report", action="store_true", help="show what the last run left")
    parser.add_argument("--again", action="store_true", help="run what failed last, add its lines")
    arguments = parser.parse_args()
    begun = time.monotonic()
    made = instrumented.build("coverage", OPTIONS, jobs=arguments.jobs)
    failed = 0 if arguments.report else _run_tests(made, arguments.tests, arguments.workers, arguments.again)
    python, of_python = _show("Python, src/evenbins", _python_lines(made), LEAST_PYTHON)
    all_cpp = _core_lines(made)
    core, of_core = _show(
        "C++, cpp/ without bindings",
        {name: each for name, each in all_cpp.items() if "bindings/" not in name},
        LEAST_CORE,
    )
    _show("C++, bindings", {n: each for n, each in all_cpp.items() if "bindings/" in n}, 0)
    if failed:
        sys.exit(f"the tests ended with {failed}: coverage of tests that fail says little")
    if sys.argv[1:] in ([], ["--again"]):
        records.keep(
            "coverage",
            " ".join(["make coverage", *(["ARGS=--again"] if arguments.again else [])]),
            [of_python, of_core],
            time.monotonic() - begun,
        )
    if python < LEAST_PYTHON or core < LEAST_CORE:
        sys.exit(f"Python {python:.1f} %, core {core:.1f} %: less than promised")


if __name__ == "__main__":
    main()
