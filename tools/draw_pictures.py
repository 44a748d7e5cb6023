"""Draw the pictures of README and docs (`make pictures`): docs/images/*.svg, the same bytes each time.

    .venv/bin/python tools/draw_pictures.py              all
    .venv/bin/python tools/draw_pictures.py overview     some, by name

The data in them come from the library at the moment of drawing, with fixed seeds; tests/unit/test_pictures.py
draws them again and compares bytes. So a picture that no longer shows what the library does fails a test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from pictures import filters, fingerprints, overview, rings, sketches, summaries, tables
from pictures.canvas import Picture

FOLDER = Path(__file__).parents[1] / "docs" / "images"

PICTURES: dict[str, Callable[[], Picture]] = {
    "overview": overview.overview,
    "filters-blocks": filters.blocks,
    "filters-loads": filters.loads,
    "filters-query": filters.query,
    "filters-bits": filters.bits,
    "fingerprint-line": fingerprints.line,
    "fingerprint-levels": fingerprints.levels,
    "tables-insertion": tables.insertion,
    "tables-levels": tables.levels,
    "tables-chains": tables.chains,
    "summaries-one-read": summaries.one_read,
    "summaries-filters": summaries.nested,
    "rings-cascade": rings.cascade,
    "rings-loads": rings.loads,
    "sketches-rows": sketches.rows,
    "sketches-error": sketches.error,
}
"""Every picture by the name of its file."""


def main(names: list[str]) -> None:
    """Write the pictures of these names, all if there are none."""
    for name in names or PICTURES:
        if name not in PICTURES:
            sys.exit(f"no picture {name!r}: there are {', '.join(PICTURES)}")
        path = FOLDER / f"{name}.svg"
        path.write_text(PICTURES[name]().svg(), encoding="utf-8")
        print(path.relative_to(FOLDER.parents[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
