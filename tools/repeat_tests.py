"""Runs all tests again and again, one run after the other: a test that fails now and then fails here.

    python tools/repeat_tests.py             ten runs
    python tools/repeat_tests.py --runs 3    as many as there is time for
    python tools/repeat_tests.py --more      goes on behind the runs of the record, if the last one was green

After each run trust/repeated-tests.json says what all of them printed. The first red run ends the work; its
output is left in build/.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import records

NAME = "repeated-tests"
TESTS = ("make", "test", "ARGS=")  # make would hand on those of its caller
SUMMARY = re.compile(r"=+ (.*\b(?:passed|failed|errors?)\b.*) in [\d.]+s")
GREEN = re.compile(r"run \d+: [\d,]+ passed, [\d,]+ s, ")


def run_once(number: int, command: tuple[str, ...], log: Path) -> tuple[bool, str]:
    """Run the tests: whether all passed, and the line that says so."""
    begun = time.monotonic()
    with log.open("w") as output:
        done = subprocess.run(command, cwd=records.ROOT, stdout=output, stderr=subprocess.STDOUT, check=False)
    text = log.read_text(errors="replace")
    found = SUMMARY.findall(text)
    said = re.sub(r", \d+ warnings?", "", found[-1]) if found else "no result"
    said = re.sub(r"\d{4,}", lambda digits: f"{int(digits[0]):,}", said)
    when = f"{time.monotonic() - begun:,.0f} s, {datetime.date.today()}, {records.commit()}"
    said += f", status {done.returncode}" * (done.returncode != 0)
    line = f"run {number}: {said}, {when}"
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    return GREEN.match(line) is not None, ": ".join([line, *failed])


def recorded() -> tuple[list[str], int]:
    """Return the lines of the record and its seconds; none if its last run was red."""
    path = records.FOLDER / f"{NAME}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"said": [""]}
    return (found["said"], found["seconds"]) if GREEN.match(found["said"][-1]) else ([], 0)


def repeat(runs: int, *, more: bool, command: tuple[str, ...] = TESTS) -> bool:
    """Run the tests so often, and keep what they say; whether all were green."""
    lines, seconds = recorded() if more else ([], 0)
    log = records.ROOT / "build" / f"{NAME}.log"
    log.parent.mkdir(exist_ok=True)
    for _ in range(runs):
        begun = time.monotonic()
        is_green, line = run_once(len(lines) + 1, command, log)
        print(line, flush=True)
        lines = [*lines, line]
        seconds += max(1, round(time.monotonic() - begun))
        records.keep(NAME, "make test-repeated", lines, seconds)
        if not is_green:
            print(f"the whole output: {log.relative_to(records.ROOT)}")
            return False
    return True


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--more", action="store_true", help="go on behind the runs of the record")
    given = parser.parse_args()
    if given.runs < 1:
        parser.error(f"--runs must be at least 1, not {given.runs}")
    sys.exit(not repeat(given.runs, more=given.more))


if __name__ == "__main__":
    main()
