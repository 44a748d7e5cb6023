"""The committed pictures are what the library draws today, byte for byte, and can be read by all."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
PICTURES: dict[str, Callable[[], Any]] = runpy.run_path(str(ROOT / "tools" / "draw_pictures.py"))["PICTURES"]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_as_it_stands_there(name: str) -> None:
    drawn = PICTURES[name]()
    assert drawn.name == name
    assert drawn.svg() == (IMAGES / f"{name}.svg").read_text(encoding="utf-8"), "run make pictures"


def test_no_other_pictures_lie_there() -> None:
    assert {path.stem for path in IMAGES.glob("*.svg")} == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_can_be_read_by_all(name: str) -> None:
    """It has a title, a description, two palettes, no outside asset, and text large enough on a phone."""
    text = (IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert root.attrib["role"] == "img"
    assert len(root.findtext(f"{SVG}title") or "") > 10
    assert len(root.findtext(f"{SVG}desc") or "") > 60
    assert "prefers-color-scheme:dark" in text
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    width, height = (float(each) for each in root.attrib["viewBox"].split()[2:])
    for each in root.iter(f"{SVG}text"):
        assert float(each.attrib["font-size"]) >= (16 if width == 640 else 24)
        assert 0 < float(each.attrib["x"]) < width
        assert 0 < float(each.attrib["y"]) < height


def test_a_picture_is_referred_to() -> None:
    """Every picture stands on a page of the documentation or in README.md."""
    pages = "".join(
        path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    )
    for name in PICTURES:
        assert f"images/{name}.svg" in pages, f"nobody shows {name}"
