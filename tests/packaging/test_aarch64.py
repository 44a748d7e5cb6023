"""The core on ARM: it compiles for aarch64 without a warning, and leaves the same bytes as here.

    CMakeLists.txt ──▶ libevenbins_core.a ──with tools/selftest.cpp──▶ a program
       built by this machine's compiler: generic, AVX2, AVX-512 (as for the package, once)
       built by Debian's cross compiler: generic, NEON; run by qemu-user: `make test-long`, with the package's
       -O3. `make test-platforms` does the same, for more systems. The objects stay in build/aarch64

The program compares every kernel with the generic one, for every filter and number of hashes, and prints
checksums of digests, bits and files. No Python takes part.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sizes import ROUNDS

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "cmake": "cmake",
    "g++": "g++",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
}


# Beside the system's programs, those of this Python environment: PyPI has a cmake too.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def require(*programs: str) -> None:
    missing = sorted(PACKAGES[program] for program in programs if shutil.which(program, path=PATH) is None)
    if missing:
        pytest.fail(
            f"this test needs: apt-get install --no-install-recommends {' '.join(missing)}", pytrace=False
        )


def run(*command: str | Path) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": PATH},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout


def build_core(folder: Path, compiler: str, *cmake: str) -> Path:
    run("cmake", "-S", ROOT, "-B", folder, f"-DCMAKE_CXX_COMPILER={compiler}", *cmake)
    run("cmake", "--build", folder, "--target", "evenbins_core", "--parallel", "2")
    return folder / "libevenbins_core.a"


def core_of_the_installed_package() -> Path | None:
    """The core as `make` built it for this checkout, unless a source is newer."""
    sources = [ROOT / "CMakeLists.txt", *(ROOT / "cpp").rglob("*.[ch]pp")]
    newest = max(path.stat().st_mtime for path in sources)
    built = [path for path in (ROOT / "build").glob("*/libevenbins_core.a") if path.stat().st_mtime > newest]
    return built[0] if built else None


def build_program(folder: Path, compiler: str, core: Path, *link: str) -> Path:
    program = folder / "selftest"
    run(
        compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "cpp/include",
        ROOT / "tools/selftest.cpp", core, "-pthread", *link, "-o", program,
    )  # fmt: skip
    return program


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the program prints on this machine."""
    require("cmake", "g++")
    folder = tmp_path_factory.mktemp("here")
    optimise = "-O3" if ROUNDS > 1 else "-O1"
    core = core_of_the_installed_package() or build_core(folder, "g++", f"-DEVENBINS_OPTIMISE={optimise}")
    return run(build_program(folder, "g++", core)).splitlines()


@pytest.fixture(scope="module")
def on_arm(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What it prints on aarch64, every compiler warning an error."""
    require("cmake", "aarch64-linux-gnu-g++", "qemu-aarch64")
    optimise = "-O3"
    folder = ROOT / "build" / "aarch64" / optimise.lstrip("-")  # a level deeper than the package's own build
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        core = build_core(
            folder,
            "aarch64-linux-gnu-g++",
            "-DCMAKE_SYSTEM_NAME=Linux",
            "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
            "-DCMAKE_CXX_FLAGS=-Werror",
            f"-DEVENBINS_OPTIMISE={optimise}",
        )
        # Static, so that the emulator needs no libraries of the other system.
        program = build_program(tmp_path_factory.mktemp("aarch64"), "aarch64-linux-gnu-g++", core, "-static")
    return run("qemu-aarch64", program).splitlines()


@pytest.mark.long
def test_neon_gives_what_the_generic_kernel_gives(on_arm: list[str]) -> None:
    """The program stops with an error at the first difference."""
    assert on_arm[0] == "kernels generic neon"


def test_every_kernel_here_gives_what_the_generic_kernel_gives(here: list[str]) -> None:
    assert here[0].startswith("kernels generic")


@pytest.mark.long
def test_arm_leaves_the_same_digests_bits_and_files(here: list[str], on_arm: list[str]) -> None:
    names = [line.split()[0] for line in on_arm[1:]]
    assert names == [
        "integer-digests",
        "xxh3",
        "standard",
        "blocked",
        "balanced",
        "files",
        "count-min",
        "tables",
        "rings",
        "chains",
        "summaries",
        "pages",
    ]
    assert on_arm[1:] == here[1:]
