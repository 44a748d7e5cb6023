"""Writes expected.json: hashes of what the CPU makes of the cases, for a machine without the compiled core.

    python tests/gpu/make_expected.py
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from cases import CORES, integers, strings

from evenbins import _bulk, _core


def hashed(data: object) -> str:
    return hashlib.sha256(memoryview(data)).hexdigest()[:16]  # type: ignore[arg-type]


def source(keys: object) -> _core.KeySource:
    return _bulk.key_source(keys)[0]


def main() -> None:
    found = {}
    data, offsets = strings(20_011, 300)
    listed = [data[a:b].tobytes() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    for name, arguments in CORES.items():
        rows = {}
        for dtype in ("uint64", "int64", "int32", "uint8"):
            f = _core.Filter(*arguments)
            f._add_from(source(integers(100_003, dtype)), 1)
            rows[f"add {dtype}"] = hashed(f)
            probe = integers(200_001, dtype)
            rows[f"contains {dtype}"] = hashed(f._contains_from(source(probe), 1))
        f = _core.Filter(*arguments)
        answers = [f._add_new_from(source(integers(n, "uint64", repeats=True)), 1) for n in (1, 33, 100_003)]
        rows["add_new"] = hashed(np.concatenate(answers))
        rows["add_new bytes"] = hashed(f)
        f = _core.Filter(*arguments)
        f._add_from(source(listed[:10_000]), 1)
        rows["add strings"] = hashed(f)
        rows["contains strings"] = hashed(f._contains_from(source(listed), 1))
        found[name] = rows
    path = Path(__file__).with_name("expected.json")
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
