"""The kernels' text compiles for GPUs, with CuPy's compiler, NVRTC (its package on PyPI). Needs no GPU."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest

from evenbins.cuda._sources import OPTIONS, kernel_text

ROOT = Path(__file__).resolve().parents[2]
# What the tests on the emulator ask for by name, and so what evenbins.cuda asks NVRTC for.
NAMES = [
    line.removeprefix("KERNEL(").removesuffix(")")
    for line in (ROOT / "tests" / "emulator" / "kernels.inc").read_text(encoding="utf-8").splitlines()
]
TEXTS = (
    "keys.cuh",
    "blocked.cuh",
    "partition.cuh",
    "standard.cuh",
    "balanced.cuh",
    "countmin.cuh",
    "fingerprint.cuh",
    "measure.cuh",
)


def nvrtc() -> ctypes.CDLL:
    import nvidia.cu13

    folder = Path(next(iter(nvidia.cu13.__path__))) / "lib"
    ctypes.CDLL(str(next(folder.glob("libnvrtc-builtins.so.*"))), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(folder / "libnvrtc.so.13"))


def home_of(name: str) -> str:
    """Return the file that defines a kernel."""
    plain = name.split("<")[0]
    return next(
        text for text in TEXTS if f" {plain}(" in (ROOT / "cpp" / "cuda" / text).read_text(encoding="utf-8")
    )


def compile_for(library: Any, architecture: str, text: str, names: list[str]) -> None:
    program = ctypes.c_void_p()
    source = kernel_text(text).encode()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source, text.encode(), 0, None, None) == 0
    for name in names:
        assert library.nvrtcAddNameExpression(program, name.encode()) == 0
    options = [each.encode() for each in (*OPTIONS, f"-arch={architecture}")]
    result = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert result == 0, log.value.decode()
    for name in names:
        lowered = ctypes.c_char_p()
        assert library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(lowered)) == 0
    library.nvrtcDestroyProgram(ctypes.byref(program))


@pytest.mark.parametrize(
    ("architecture", "every"),
    [
        ("sm_80", False),
        ("sm_90", False),
        ("sm_100", False),
        pytest.param("sm_90", True, marks=pytest.mark.long),  # the time of a compiler is long
    ],
)
def test_kernels_compile(architecture: str, every: bool) -> None:
    """Of each text a few kernels; in a long run every kernel, for one architecture."""
    library = nvrtc()
    few = (
        "make_key_hash",
        "blocked_contains<8",
        "scatter_keys<8,8,true",
        "add_new_regions<8",
        "standard_new_claim",
        "fill_lines<1>",
    )
    for text in TEXTS:
        names = [name for name in NAMES if home_of(name) == text]
        if not every:
            names = [name for name in names if name.startswith(few)] or names[:1]
        elif text == "blocked.cuh":
            names = [name for name in names if "Strings" not in name or "contains" in name]
        if names:
            compile_for(library, architecture, text, names)


def test_the_text_holds_the_headers_of_the_core() -> None:
    """One source: the text has the core's own lines, and no file twice."""
    text = kernel_text("partition.cuh")
    for header in ("hash.hpp", "lanes.hpp", "xxh3.hpp"):
        lines = (ROOT / "cpp" / "include" / "evenbins" / header).read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.strip() and not line.startswith(("#include", "#pragma once"))]
        assert "\n".join(kept[-5:]) in text.replace("\n\n", "\n"), header
        assert text.count(f'#line 1 "evenbins/{header}"') == 1
    assert "#include" not in text


def test_a_wheel_has_every_header_that_the_kernels_include() -> None:
    listed = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    for text in TEXTS:
        for header in re.findall(r'#line 1 "(evenbins/.*?)"', kernel_text(text)):
            assert f"cpp/include/{header}" in listed, f"{text} includes {header}, which is not installed"
