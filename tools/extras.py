"""Print the requirements of some extras of pyproject.toml, one a line, for `pip install -r`.

`pip install '.[extra]'` would build the extension again; this installs only what is missing. The name
`build-system` stands for what the build itself needs: with it in the environment the build need not be
isolated, and a second one compiles only what has changed.
`benchmarks` stands for benchmarks/requirements.txt. An extra that names others, `evenbins[cli,theory]`,
stands for what they bring.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path


def requirements(extras: dict[str, list[str]], name: str) -> Iterator[str]:
    """Yield the requirements of an extra, those of the extras that it names instead of their names."""
    for each in extras[name]:
        ours = re.fullmatch(r"evenbins\[(.*)\]", each)
        if ours is None:
            yield each
        else:
            for other in ours[1].split(","):
                yield from requirements(extras, other)


if __name__ == "__main__":
    content = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    for extra in sys.argv[1:]:
        if extra == "build-system":
            print(*content["build-system"]["requires"], "cmake>=3.22", "ninja", sep="\n")
        elif extra == "benchmarks":
            print((Path(__file__).parents[1] / "benchmarks" / "requirements.txt").read_text())
        else:
            print(*requirements(content["project"]["optional-dependencies"], extra), sep="\n")
