"""The same keys give the same bytes: over kernels, threads, batch sizes and every Python of this machine.

    python tools/determinism.py              every python3.11 or newer on PATH and under PYENV_ROOT
    python tools/determinism.py --here       this Python alone, without building anything

tools/fixed_files.py makes a file of every kind; here it runs

    in this Python       with every kernel × threads 1, 2, 3, 7, 16 × batches of 20,000, 997 and 64 keys
    in every other one   installed into an environment of its own in build/determinism, with each kernel;
                         free-threaded builds too, to which the module says that it needs the GIL: the import
                         turns it on, with a warning

and all digests are compared. ARM: tests/packaging/test_aarch64.py, the core alone, under an emulator.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import records

ROOT = Path(__file__).parents[1]
FILES = ROOT / "tools/fixed_files.py"
OLDEST = (3, 11)
THREADS, BATCHES = (1, 2, 3, 7, 16), (20_000, 997, 64)


def _run(*command: str | Path, **environment: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), env={**plain, **environment}, text=True, capture_output=True, check=False,
        cwd=ROOT,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def other_pythons() -> dict[str, Path]:
    """Find every supported Python but this one: its version (with "t" if free-threaded), its program."""
    folders = [Path(each) for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if each]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += sorted(root.glob("versions/*/bin"))
    script = (
        "import sys, sysconfig; print(*sys.version_info[:2], sys.prefix, sys.implementation.name, "
        "bool(sysconfig.get_config_var('Py_GIL_DISABLED')), sep='|')"
    )
    found: dict[str, Path] = {}
    for folder in folders:
        for program in sorted(folder.glob("python3.*")):
            if not re.fullmatch(r"python3\.\d+t?", program.name) or not os.access(program, os.X_OK):
                continue
            answer = subprocess.run(
                [program, "-c", script], text=True, capture_output=True, check=False
            ).stdout
            parts = answer.strip().split("|")
            if len(parts) != 5 or parts[3] != "cpython" or (int(parts[0]), int(parts[1])) < OLDEST:
                continue
            name = f"{parts[0]}.{parts[1]}{'t' if parts[4] == 'True' else ''}"
            if name != f"{sys.version_info[0]}.{sys.version_info[1]}":
                found.setdefault(name, program)
    return found


def _environment(name: str, program: Path) -> Path:
    """Build the wheel for a Python, if sources are newer, and install it; the environment's interpreter."""
    folder = ROOT / "build/determinism" / name
    python = folder / "bin/python"
    if not python.exists():
        _run(program, "-m", "venv", folder)
    sources = [ROOT / "CMakeLists.txt", *(ROOT / "cpp").rglob("*.[ch]pp"), *(ROOT / "src").rglob("*.py")]
    stamp = folder / "installed"
    if stamp.exists() and stamp.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return python
    _run(python, "-m", "pip", "install", "--quiet", ROOT)  # with its dependencies
    stamp.touch()
    return python


def _digests(python: str | Path, **options: object) -> dict[str, Any]:
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    result: dict[str, Any] = json.loads(_run(python, FILES, *words))
    return result


def main() -> None:
    """Compare all; an error at the first difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--here", action="store_true", help="this Python alone")
    arguments = parser.parse_args()
    begun, lines = time.monotonic(), []
    expected = _digests(sys.executable)["files"]
    runs = 1

    def compare(who: str, found: dict[str, str]) -> None:
        nonlocal runs
        wrong = sorted(name for name in expected if found.get(name) != expected[name])
        if wrong or found.keys() != expected.keys():
            sys.exit(f"{who}: other bytes than Python {sys.version.split()[0]} alone: {', '.join(wrong)}")
        runs += 1

    kernels = json.loads(_run(sys.executable, FILES, "--list-kernels"))
    for kernel in kernels:
        for threads in THREADS:
            for batch in BATCHES:
                found = _digests(sys.executable, kernel=kernel, threads=threads, batch=batch)
                assert found["kernel"] == kernel
                compare(f"kernel {kernel}, threads {threads}, batch {batch}", found["files"])
    lines.append(
        f"Python {sys.version.split()[0]}: {len(expected)} files, kernels {' '.join(kernels)}, threads "
        f"{THREADS}, batches {BATCHES}: the same bytes in {runs} runs"
    )
    print(lines[-1], flush=True)
    for name, program in {} if arguments.here else sorted(other_pythons().items()):
        python = _environment(name, program)
        for kernel in kernels:
            found = _digests(python, kernel=kernel, threads=2, batch=997)
            compare(f"Python {name}, kernel {kernel}", found["files"])
        lines.append(f"Python {found['python']}{'t' if name.endswith('t') else ''}: the same bytes")
        print(lines[-1], flush=True)
    lines.append(f"{runs} runs, {len(expected)} files each: no difference")
    print(lines[-1])
    if not arguments.here:
        records.keep("determinism", "make determinism", lines, time.monotonic() - begun)


if __name__ == "__main__":
    main()
