"""The package with a core that watches itself: built apart, run apart, never in the user's environment.

    build(name, options)       cmake, into build/<name>: the core, the bindings, the simulators
    build/<name>/package/      evenbins as a folder of links: the Python files of src/, this build's modules
    build/<name>/environment/  a virtual environment that sees that folder first, and the packages of the
                               Python that runs this, so that nothing is installed twice

The environment is its own because an editable install puts its finder before PYTHONPATH: the user's core
would win. What was tried and dropped: `pip install` with other flags (minutes for each build, and a wheel
that must never be mixed up with a real one).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = ("_core", "_study")
PROGRAMS = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


@dataclass(frozen=True)
class Build:
    """A build folder with its instrumented core."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter that imports this build's core."""
        return self.folder / "environment/bin/python"

    @property
    def core(self) -> Path:
        """The library of the core, without Python."""
        return self.folder / "libevenbins_core.a"

    @property
    def modules(self) -> list[Path]:
        """The compiled modules, _core and _study."""
        return [found for name in MODULES for found in self.folder.glob(f"{name}.*.so")]


def run(*command: str | Path) -> str:
    """Run a command; its output, or an end of this program that shows it."""
    done = subprocess.run(
        command, env={**os.environ, "PATH": PROGRAMS}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\nended with {done.returncode}")
    return done.stdout


def build(name: str, options: list[str], *, optimise: str = "-O1", jobs: int = 2) -> Build:
    """Build core and bindings with these compiler options into build/<name>; only what has changed."""
    made = Build(ROOT / "build" / name)
    made.folder.mkdir(parents=True, exist_ok=True)
    nanobind = run(sys.executable, "-m", "nanobind", "--cmake_dir").strip()
    generator = ["-G", "Ninja"] if shutil.which("ninja", path=PROGRAMS) else []
    run(
        "cmake", "-S", ROOT, "-B", made.folder, *generator, "-DSKBUILD=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dnanobind_DIR={nanobind}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DEVENBINS_OPTIMISE={optimise}",
        f"-DEVENBINS_INSTRUMENT={';'.join(options)}",
    )  # fmt: skip
    run("cmake", "--build", made.folder, "--parallel", str(jobs))
    link_package(made.folder / "package", made.modules)
    _environment(made)
    return made


def link_package(folder: Path, modules: list[Path]) -> Path:
    """Make evenbins as a plain folder in this one: links to the Python files, and to the compiled modules."""
    package = folder / "evenbins"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for each in (ROOT / "src/evenbins").iterdir():
        if each.suffix != ".so" and each.name != "__pycache__":
            (package / each.name).symlink_to(each)
    for module in modules:
        (package / module.name).symlink_to(module)
    return folder


def _environment(made: Build) -> None:
    folder = made.folder / "environment"
    if not made.python.exists():
        run(sys.executable, "-m", "venv", "--without-pip", folder)
    (site,) = folder.glob("lib/python*/site-packages")
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (site / "instrumented.pth").write_text("\n".join([str(made.folder / "package"), *shared]) + "\n")


def check_that_it_is_used(made: Build, environment: dict[str, str]) -> None:
    """End this program unless the environment imports the build's own modules."""
    names = ", ".join(f"evenbins.{name}" for name in MODULES)
    script = f"import os, {names}; print(*(os.path.realpath(each.__file__) for each in ({names})))"
    done = subprocess.run(
        [made.python, "-c", script],
        env=environment,
        text=True,
        capture_output=True,
        check=False,
        cwd=made.folder,
    )
    if done.returncode or done.stdout.split() != [str(each.resolve()) for each in made.modules]:
        sys.exit(f"{made.python} does not import {made.modules}:\n{done.stdout}{done.stderr}")
