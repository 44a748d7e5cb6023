"""Run a build quietly and show how far it is: `make` calls it where it compiles the core.

    python tools/show_build.py pip install --verbose .

Of the output only ninja's counts ([12/120]) are shown: on one line of a terminal, elsewhere every tenth. If
the build fails all of its output is printed. The exit status is the build's.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TextIO

COUNT = re.compile(r"\[(\d+)/(\d+)\]")


def main(command: list[str], out: TextIO) -> int:
    """Run the command; return its exit status."""
    lines, tenth = [], -1
    print("compiling the core: about two minutes, later only what has changed", file=out, flush=True)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as build:
        for line in build.stdout or ():
            lines.append(line)
            if found := COUNT.search(line):
                done, total = int(found[1]), int(found[2])
                if out.isatty():
                    print(f"\r  {done} of {total} files", end="", file=out, flush=True)
                elif 10 * done // total > tenth:
                    tenth = 10 * done // total
                    print(f"  {done} of {total} files", file=out, flush=True)
    if out.isatty():
        print(file=out)
    if build.returncode:
        out.writelines(lines)
    return build.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout))
