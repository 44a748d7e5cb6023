"""The text of the kernels: files of cpp/cuda and the headers of the core that they include, as one string.

One string, because CuPy keeps compiled kernels under a hash of the text that it is given, which knows nothing
of included files; and because NVRTC then needs no folder to search.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

__all__ = ["OPTIONS", "kernel_text"]

OPTIONS = ("-std=c++20", "-default-device", "-device-int128")

_INCLUDE = re.compile(r'^#include ([<"])(.+)[>"]$')


def _folders() -> tuple[Path, ...]:
    """Return where the files lie: in a wheel beside this module, in a working tree in cpp/."""
    installed = Path(__file__).parent / "text"
    if installed.is_dir():
        return (installed,)
    tree = Path(__file__).parents[3] / "cpp"
    return tree / "cuda", tree / "include"


@cache
def kernel_text(name: str) -> str:
    """Return the text of a file of cpp/cuda (or any path), with everything that it includes, each file once.

    Headers of the standard library are left out: prelude.cuh has what is used of them.
    """
    done: set[str] = set()
    lines = _expanded("prelude.cuh", done) + _expanded(name, done)
    return "".join([*lines, "using namespace evenbins::gpu;  // for the names that NVRTC is asked for\n"])


def _expanded(name: str, done: set[str]) -> list[str]:
    if name in done:
        return []
    done.add(name)
    path = next(folder / name for folder in _folders() if (folder / name).is_file())  # name may be absolute
    lines = [f'#line 1 "{name}"\n']
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        include = _INCLUDE.match(line)
        if include is None:
            lines.append("\n" if line == "#pragma once" else line + "\n")
        elif include[1] == '"':
            lines += [*_expanded(include[2], done), f'#line {number + 1} "{name}"\n']
        else:
            lines.append("\n")
    return lines
