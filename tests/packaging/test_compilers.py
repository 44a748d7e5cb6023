"""What other compilers and systems lack stays behind compiler.hpp and platform.hpp; its stand-ins are right.

`make test-platforms` builds the core for them; this is the part that needs neither their compilers nor time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYER = {"compiler.hpp", "uint128.hpp", "msvc.hpp", "posix.cpp", "windows.cpp"}
FORBIDDEN = re.compile(
    r"#\s*pragma GCC|__attribute__|\[\[gnu::|__int128|\basm\b|__builtin_cpu_|__builtin_ia32_"
    r"|#include <(sys/|unistd|pthread|fcntl|sched|windows)|\b(ssize_t|off_t|pid_t)\b(?<!Py_ssize_t)"
)

PROGRAM = r"""
#include "evenbins/uint128.hpp"
#include "evenbins/hash.hpp"

using Fallback = evenbins::uint128;
using Native = unsigned __int128;

static Native native(Fallback x) {
  return static_cast<Native>(static_cast<uint64_t>(x >> 64)) << 64 | static_cast<uint64_t>(x);
}
static_assert(evenbins::mulhi(~uint64_t{0}, 10) == 9 && std::is_class_v<Fallback>);

int main() {
  for (uint64_t i = 0; i < 20000; ++i) {
    // Of all sizes: the upper bits of some are zeros.
    uint64_t words[4];
    for (uint64_t j = 0; j < 4; ++j)
      words[j] = evenbins::splitmix(7, 8 * i + j) >> evenbins::splitmix(8, 8 * i + j) % 64;
    const Fallback a(words[0], words[1]), b(i % 3 == 0 ? 0 : words[2], words[3] | 1);
    const Native x = native(a), y = native(b);
    const uint64_t by = words[3] % 128;
    if (native(a + b) != x + y || native(a - b) != x - y) return 1;
    if (native(a * b) != x * y || native(a / b) != x / y) return 1;
    if (native(a & b) != (x & y) || native(a | b) != (x | y) || native(a ^ b) != (x ^ y)) return 2;
    if (native(a << by) != x << by || native(a >> by) != x >> by) return 3;
    if (native(~a) != ~x || native(-a) != -x) return 3;
    if ((a < b) != (x < y) || (a <= b) != (x <= y) || (a == b) != (x == y)) return 4;
    if (static_cast<bool>(a) != (x != 0)) return 4;
    const Native product = static_cast<Native>(words[0]) * words[1];
    if (evenbins::mulhi(words[0], words[1]) != static_cast<uint64_t>(product >> 64)) return 5;
  }
}
"""


def _code(path: Path) -> list[str]:
    """Return the lines of a file, without comments."""
    return [re.sub(r"//.*", "", line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_compilers_and_systems_differ_in_one_place() -> None:
    sources = [path for path in (ROOT / "cpp").rglob("*.[ch]pp") if path.name not in LAYER]
    assert len(sources) > 100
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources
        for number, line in enumerate(_code(path), 1)
        if FORBIDDEN.search(line)
    ]
    assert not found, "use compiler.hpp or platform.hpp:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line", ["#pragma GCC unroll 4", "  const __int128 x = 0;", "#include <unistd.h>", "  ssize_t n;"]
)
def test_it_would_be_found(line: str) -> None:
    assert FORBIDDEN.search(line)
    assert not FORBIDDEN.search("  Py_ssize_t n; EVENBINS_UNROLL(4) uint128 x;")


def test_the_stand_in_for_128_bits_computes_as_the_compiler_does(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler is not None, "this test needs g++ or clang++"
    source, program = tmp_path / "wide.cpp", tmp_path / "wide"
    source.write_text(PROGRAM, encoding="utf-8")
    built = subprocess.run(
        [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-DEVENBINS_NO_INT128",
         "-I", ROOT / "cpp/include", source, "-o", program],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert subprocess.run([program], check=False).returncode == 0
