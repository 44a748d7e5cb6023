"""The tests that need a GPU, on a machine that has one; no network is used.

    make test-gpu

Uses this very Python with its CuPy, PyTorch, JAX and pytest. Where the compiled core is not installed, it is
built first, with the nanobind of this Python, into build/gpu. Then tests/gpu, then every kernel under
compute-sanitizer (memcheck, racecheck, initcheck, synccheck) if that is installed. Writes trust/gpu.json.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time

import records

ROOT = records.ROOT
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def environment() -> dict[str, str]:
    """Return the environment of the tests; builds the core if this Python has none."""
    where = {**os.environ, "EVENBINS_GPU": "1"}
    if (
        subprocess.run(
            [sys.executable, "-c", "import evenbins._core"], capture_output=True, check=False
        ).returncode
        == 0
    ):
        return where
    build, package = ROOT / "build" / "gpu", ROOT / "build" / "gpu-package" / "evenbins"
    nanobind = subprocess.run(
        [sys.executable, "-m", "nanobind", "--cmake_dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    options = ["-DSKBUILD=ON", f"-Dnanobind_DIR={nanobind}", f"-DPython_EXECUTABLE={sys.executable}"]
    quiet = "-DCMAKE_CXX_FLAGS=-w"
    subprocess.run(["cmake", "-S", ROOT, "-B", build, *options, quiet], check=True, stdout=subprocess.DEVNULL)
    jobs = ["-j", str(os.cpu_count()), "--target", "_core"]
    subprocess.run(["cmake", "--build", build, *jobs], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(package.parent, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "evenbins", package)
    for each in build.glob("_core*.so"):
        shutil.copy(each, package)
    text = package / "cuda" / "text"
    shutil.copytree(ROOT / "cpp" / "cuda", text)
    shutil.copytree(ROOT / "cpp" / "include" / "evenbins", text / "evenbins")
    return {**where, "PYTHONPATH": str(package.parent)}


def main() -> None:
    """Run everything, and keep what it said."""
    begun, where = time.monotonic(), environment()
    tests = ROOT / "tests" / "gpu"
    arguments = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        tests / "pytest.ini",
        "--confcutdir",
        tests,
        tests,
    ]
    done = subprocess.run(
        [*map(str, arguments), *sys.argv[1:]], env=where, capture_output=True, text=True, check=False
    )
    print(done.stdout[-6000:], done.stderr[-2000:], flush=True)
    failed = done.returncode
    said = [done.stdout.strip().splitlines()[-1].strip("= ")]
    sanitizer = shutil.which("compute-sanitizer")
    for tool in TOOLS if sanitizer else ():
        command = [
            str(sanitizer),
            "--tool",
            tool,
            "--error-exitcode",
            "9",
            sys.executable,
            str(tests / "sanitized.py"),
        ]
        done = subprocess.run(command, env=where, capture_output=True, text=True, check=False)
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.+)", done.stdout)
        said.append(f"compute-sanitizer {tool}: {summary[-1] if summary else 'no summary'}")
        races = set(re.findall(r"Race reported between .+? at (\w+)", done.stdout))
        if races and all(name.startswith("cupy_") for name in races) and "(0 errors" in said[-1]:
            said[-1] += f", all in a kernel of CuPy's own: {', '.join(sorted(races))}"
            done.returncode = 0
        print(said[-1], flush=True)
        if done.returncode:
            print(done.stdout[-3000:], done.stderr[-2000:])
        failed |= done.returncode
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    said.append(gpu.stdout.strip())
    if not sys.argv[1:] and not failed:
        print(records.keep("gpu", "make test-gpu", said, time.monotonic() - begun))
    sys.exit(failed)


if __name__ == "__main__":
    main()
