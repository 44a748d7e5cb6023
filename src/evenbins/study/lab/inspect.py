"""The page Inspect: a file of evenbins that was dropped on it, as `evenbins inspect` shows it.

    inspect/file     POST with the file as the body: what it holds, planned beside measured, histograms

The file is stored under a temporary name, mapped and checked byte by byte by the library, and removed. It is
data all the way: nothing in it is executed or unpickled, and a damaged one raises the library's own message.
The seed may be a secret, so it is not shown.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from evenbins import _show
from evenbins.errors import EvenbinsError
from evenbins.structure import kind_of_file
from evenbins.study.inspection import compare, describe, draw_loads
from evenbins.study.lab.parameters import Endpoint, RefusedError, Text

__all__ = ["ENDPOINTS", "MOST_BYTES", "inspect"]

MOST_BYTES = 2**28
"""Of a file that is sent to the lab."""


def inspect(*, name: str, file: Path) -> dict[str, Any]:
    """Return what a file holds, in texts; `name` is what its owner calls it."""
    size = file.stat().st_size
    if not size:
        raise RefusedError(f"{name}: the file is empty: choose one that evenbins has written")
    try:
        kind = kind_of_file(file)
        structure = kind.cls.open(file, verify=True)
        stats = structure.stats()
    except EvenbinsError as error:
        raise RefusedError(str(error).replace(str(file), name)) from None
    path = f"./{name}" if name.startswith("-") else name  # else it is an option of the command
    seed = "set (evenbins inspect --show-seed prints it)" if structure.seed else "0"
    facts = [
        *describe(structure, stats), ("seed", seed), ("file", f"{_show.size(size)} ({size:_} bytes)"),
        ("checks", "every byte verified"),
    ]  # fmt: skip
    return {
        "name": name,
        "title": kind.title,
        "facts": facts,
        "rows": [
            (row, _show.text(row, planned), _show.text(row, measured))
            for row, planned, measured in compare(structure.plan, stats)
        ],
        "histograms": [each._asdict() for each in draw_loads(structure, stats)],
        "command": f"evenbins inspect {shlex.quote(path)}",
        "python": (
            f"import evenbins\n\ns = evenbins.load({json.dumps(name, ensure_ascii=False)})\n"
            "print(s.plan)\nprint(s.stats())\n"
        ),
    }


ENDPOINTS = [
    Endpoint(
        "inspect/file", inspect,
        (Text("name", longest=255, default="the file", help="What the file is called, for messages."),),
        "What a file holds, planned beside measured.", upload=MOST_BYTES,
    ),
]  # fmt: skip
