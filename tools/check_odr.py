"""Every name has one definition: both extensions together, compiled for link-time optimisation, with -Wodr.

    python tools/check_odr.py                    compile and link; fails if a name has two definitions
    python tools/check_odr.py --root ELSEWHERE   another tree

Two headers may define a type of the same name in the same namespace and never meet in one source file: no
compiler sees that, and the program has undefined behaviour. The link with -flto sees the types of all files.
Needs g++; takes a few minutes on two cores. Everything is written to a temporary folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nanobind

ROOT = Path(__file__).parents[1]
FLAGS = ["-std=c++20", "-O0", "-fPIC", "-flto", "-Wodr", "-Wlto-type-mismatch"]
WIDE = ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx2", "-mbmi", "-mbmi2", "-mpopcnt"]
KERNELS = {"avx2.cpp": WIDE[4:], "avx512.cpp": WIDE, "avx512vbmi.cpp": [*WIDE, "-mavx512vbmi"]}


def sources(root: Path) -> list[Path]:
    """Return the files of both modules; of kernels and systems those of this machine."""
    found = root.glob("cpp/**/*.cpp")
    foreign = {"neon.cpp"} if sysconfig.get_platform().endswith("x86_64") else set(KERNELS)
    foreign.add("windows.cpp")
    return sorted(each for each in found if each.name not in foreign)


def includes(root: Path) -> list[str]:
    """Return the options that name the folders of headers."""
    folders = [root / "cpp/include", root / "cpp", sysconfig.get_paths()["include"], nanobind.include_dir()]
    return [f"-I{each}" for each in folders]


def compile_file(root: Path, source: Path, folder: Path) -> Path:
    """Compile a file; return the object."""
    target = folder / f"{'-'.join(source.relative_to(root).with_suffix('').parts)}.o"
    options = [*FLAGS, *KERNELS.get(source.name, []), "-w", *includes(root)]
    subprocess.run(["g++", *options, "-c", source, "-o", target], check=True)
    return target


def link_warnings(objects: list[Path], folder: Path) -> str:
    """Link the objects into one, so that nanobind's own need not be there; return what the linker says."""
    command = ["g++", *FLAGS, "-r", "-flinker-output=nolto-rel", *objects, "-o", folder / "all.o"]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stderr


def main() -> None:
    """Check a tree, and end with an error if a name has two definitions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to check")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    arguments = parser.parse_args()
    files = sources(arguments.root)
    with (
        tempfile.TemporaryDirectory(prefix="evenbins-odr-") as name,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        folder = Path(name)
        objects = list(pool.map(lambda source: compile_file(arguments.root, source, folder), files))
        warnings = link_warnings(objects, folder)
    print(warnings, end="")
    count = warnings.count("[-Wodr]") + warnings.count("[-Wlto-type-mismatch]")
    print(f"{len(files)} files, {count} names with two definitions")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
