"""The core and its self-test, built for every platform and run where this machine can: `make test-platforms`.

    python tools/test_platforms.py                     all platforms; writes trust/platforms.json
    python tools/test_platforms.py windows-x64 musl    some of them, without a record

    CMakeLists.txt ──▶ the compiler's commands ──▶ the same by another compiler ──▶ tools/selftest.cpp ──▶ run

CMake is asked for its commands (compile_commands.json), once for each processor; here the compiler in them is
replaced: by zig (`ziglang` on PyPI), a Clang with the headers and libraries of all these systems, or by
Debian's cross compiler. Objects stay in build/platforms, so that the next run compiles what has changed.

The self-test compares every kernel with the generic one and prints checksums of what they leave: they are the
same on every platform. Windows programs run under wine, those for aarch64 under qemu; nothing here can run
one for macOS, which is built and linked only. `no-int128` is this machine with the 128-bit integers that
compilers for Windows get (uint128.hpp).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import records

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build/platforms"
ZIG = (sys.executable, "-m", "ziglang", "c++", "-Wno-unknown-warning-option", "-target")
# zig passes neither on to the compiler of another system, and GCC's names of warnings are no one else's.
UNKNOWN = frozenset({"-fPIC", "-mtune=haswell"})


# What the C++ library of macOS has only from a later version on is an error, as with Apple's own headers:
# wheels are made for macOS 11 (pyproject.toml).
OLD_MACOS = (
    "-U_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS", "-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=1",
)  # fmt: skip


@dataclass(frozen=True)
class Platform:
    """A system and a processor: how to compile for it, and what runs its programs."""

    name: str
    title: str
    compiler: tuple[str, ...]
    processor: str = "x86_64"
    link: tuple[str, ...] = ()
    runner: tuple[str, ...] | None = ()  # before the program; None: nothing here can run it
    needs: str = ""  # the Debian package of the first program that is missing
    windows: bool = False


PLATFORMS = (
    Platform("linux-x64", "Linux x86-64 (glibc)", ("c++",), link=("-pthread",), needs="g++"),
    Platform("no-int128", "Linux x86-64, without __int128", ("c++", "-DEVENBINS_NO_INT128"),
             link=("-pthread",), needs="g++"),
    Platform("linux-arm64", "Linux aarch64 (glibc)", ("aarch64-linux-gnu-g++",), "aarch64",
             ("-pthread", "-static"), ("qemu-aarch64",), "g++-aarch64-linux-gnu qemu-user"),
    Platform("musl", "Linux x86-64 (musl)", (*ZIG, "x86_64-linux-musl"), link=("-static",)),
    Platform("windows-x64", "Windows x86-64", (*ZIG, "x86_64-windows-gnu"), runner=("wine",), needs="wine",
             windows=True),
    Platform("macos-arm64", "macOS arm64", (*ZIG, "aarch64-macos.11.0", *OLD_MACOS), "aarch64", runner=None),
    Platform("macos-x64", "macOS x86-64", (*ZIG, "x86_64-macos.11.0", *OLD_MACOS), runner=None),
)  # fmt: skip


@functools.cache
def compile_commands(processor: str) -> list[tuple[Path, list[str]]]:
    """Return the sources of the core and the options of each, as CMake gives them for a processor."""
    folder = BUILD / f"commands-{processor}"
    subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(folder), "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
         "-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={processor}", "-DEVENBINS_OPTIMISE=-O1"],
        check=True, stdout=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name != "CMAKE_CXX_COMPILER_LAUNCHER"},
    )  # fmt: skip
    found = []
    for entry in json.loads((folder / "compile_commands.json").read_text(encoding="utf-8")):
        words = shlex.split(entry["command"])[1:]
        options = words[: words.index("-o")]
        found.append((Path(entry["file"]), options))
    return found


def _newest_header() -> float:
    return max(path.stat().st_mtime for path in (ROOT / "cpp").rglob("*.hpp"))


def build(platform: Platform, jobs: int) -> Path:
    """Compile and link the self-test; raise CalledProcessError with the compiler's output."""
    folder = BUILD / platform.name
    folder.mkdir(parents=True, exist_ok=True)
    headers = _newest_header()
    environment = {
        **os.environ,
        "ZIG_GLOBAL_CACHE_DIR": str(BUILD / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(BUILD / "zig"),
    }

    def run(command: list[str]) -> None:
        subprocess.run(
            command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        )

    def compiled(source: Path, options: list[str]) -> Path:
        if platform.windows and source.name == "posix.cpp":
            source = source.with_name("windows.cpp")
        out = folder / (str(source.relative_to(ROOT)).replace("/", "_") + ".o")
        if not out.is_file() or out.stat().st_mtime < max(headers, source.stat().st_mtime):
            own = [word for word in options if word not in UNKNOWN]
            temporary = out.with_suffix(".new.o")
            run([*platform.compiler, *own, "-Werror", "-c", str(source), "-o", str(temporary)])
            temporary.replace(out)
        return out

    sources = compile_commands(platform.processor)
    plain = next(options for source, options in sources if source.name == "registry.cpp")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        objects = list(
            pool.map(lambda pair: compiled(*pair), [(ROOT / "tools/selftest.cpp", plain), *sources])
        )
    program = folder / ("selftest.exe" if platform.windows else "selftest")
    run([*platform.compiler, *map(str, objects), *platform.link, "-o", str(program)])
    return program


def run_program(platform: Platform, program: Path) -> list[str]:
    """Return the lines that the self-test prints; raise CalledProcessError if it fails."""
    assert platform.runner is not None
    done = subprocess.run(
        [*platform.runner, str(program)], check=True, text=True, capture_output=True,
        env={**os.environ, "WINEDEBUG": "-all", "WINEPREFIX": str(BUILD / "wine")},
    )  # fmt: skip
    return done.stdout.splitlines()


def tested(platform: Platform, jobs: int, expected: list[str]) -> tuple[str, str, bool]:
    """Return what the columns "built" and "self-test" say, and whether nothing failed.

    `expected` are the checksums of the first platform whose self-test ran; it is filled by that one.
    """
    missing = [each[0] for each in (platform.compiler, platform.runner) if each and not shutil.which(each[0])]
    if platform.compiler[0] in missing:
        return f"no: needs {platform.needs}", "no", False
    try:
        program = build(platform, jobs)
    except subprocess.CalledProcessError as error:
        print(error.stdout, file=sys.stderr)
        return "FAILED", "no", False
    if platform.runner is None:
        return "yes", "built, not run", True
    if missing:
        return "yes", f"built, not run: needs {platform.needs}", False
    try:
        first, *checksums = run_program(platform, program)
    except subprocess.CalledProcessError as error:
        print(error.stdout, error.stderr, file=sys.stderr)
        return "yes", "FAILED", False
    expected[:] = expected or checksums
    if checksums != expected:
        print(
            *(f"{a}   expected {b}" for a, b in zip(checksums, expected, strict=False) if a != b),
            sep="\n",
            file=sys.stderr,
        )
        return "yes", "FAILED: other checksums", False
    return "yes", f"passed: {first.removeprefix('kernels ')}", True


def main() -> None:
    """Test the platforms that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("platform", nargs="*", choices=[*(each.name for each in PLATFORMS), []])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    wanted = [each for each in PLATFORMS if not arguments.platform or each.name in arguments.platform]
    begun, fine, expected = time.monotonic(), True, list[str]()
    said = list[str]()
    for platform in wanted:
        built, ran, good = tested(platform, arguments.jobs, expected)
        said.append(f"{platform.title}: built: {built}; self-test: {ran}")
        print(said[-1], flush=True)
        fine = fine and good
    if not fine:
        sys.exit(1)
    if not arguments.platform:
        print(records.keep("platforms", "make test-platforms", said, time.monotonic() - begun))


if __name__ == "__main__":
    main()
