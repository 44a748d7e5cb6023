"""Check that every place names the same version; for a release also the tag, from GITHUB_REF.

    python tools/check_version.py

pyproject.toml has the version; CITATION.cff repeats it, and a tag is v<version>.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def versions(reference: str) -> dict[str, str]:
    """Return the version that each place names."""
    found = {"pyproject.toml": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]}
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    found["CITATION.cff"] = cited[1] if cited else "none"
    if reference.startswith("refs/tags/v"):
        found[reference] = reference.removeprefix("refs/tags/v")
    return found


def main() -> None:
    """Print the version, or what differs."""
    found = versions(os.environ.get("GITHUB_REF", ""))
    if len(set(found.values())) > 1:
        sys.exit(f"the versions differ: {found}")
    print(found["pyproject.toml"])


if __name__ == "__main__":
    main()
