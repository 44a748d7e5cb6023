"""Look words up in the built documentation as its search page does: `make docs` runs it after Sphinx.

    python tools/search_docs.py                 every word of SEARCHES must give its page first
    python tools/search_docs.py sticky session  the first ten pages for these words

The ranking is that of Sphinx's searchtools.js: main entries of the index first (up to 100 points), then
titles (15), objects (6 to 26) and words in the text (5). Words are not stemmed here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SEARCHES = {
    "dedup": "howto/dedup",
    "deduplicate": "howto/dedup",
    "sticky session": "howto/memcached_and_llm_routing",
    "vllm": "howto/vllm_production_stack",
    "kubernetes": "howto/vllm_production_stack",
    "docker": "routing",
    "union": "filters",
    "install": "quickstart",
    "windows": "platforms",
    "cite": "papers",
}
"""What people search for, and the page that must come first."""


def load(html: Path) -> dict[str, Any]:
    """Read the index of a build."""
    text = (html / "searchindex.js").read_text(encoding="utf-8")
    index: dict[str, Any] = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    return index


def rank(index: dict[str, Any], query: str) -> list[tuple[str, int]]:
    """Return the pages that a search finds with their best scores, best first."""
    query = query.lower().strip()
    scores: dict[str, int] = {}

    def found(file: int, score: float) -> None:
        name = index["docnames"][file]
        scores[name] = max(scores.get(name, -100), round(score))

    for entry, places in index["indexentries"].items():
        if query in entry and len(query) >= len(entry) / 2:
            for file, _, is_main in places:
                found(file, 100 * len(query) / len(entry) if is_main else -10)
    for title, places in index["alltitles"].items():
        if query in title.lower() and len(query) >= len(title) / 2:
            for file, _ in places:
                found(file, 15 * len(query) / len(title) + (index["titles"][file] == title))
    for prefix, objects in index["objects"].items():
        for file, _, priority, _, name in objects:
            full = f"{prefix}.{name}".lower()
            if query in full:
                last = full.rpartition(".")[2]
                match = 11 if query in (full, last) else 6 if query in last else 0
                found(file, match + {0: 15, 1: 5, 2: -5}.get(priority, 0))
    words = query.split()
    for terms, score in ((index["terms"], 5), (index["titleterms"], 15)):
        holders = [_files(terms.get(word, [])) for word in words]
        for file in set.intersection(*holders) if holders else ():
            found(file, score)
    return sorted(scores.items(), key=lambda each: (-each[1], each[0]))


def _files(value: int | list[int]) -> set[int]:
    return {value} if isinstance(value, int) else {*value}


def main(words: list[str]) -> int:
    """Show what a search finds, or check all of SEARCHES; the exit status."""
    index = load(ROOT / "docs/_build/html")
    if words:
        for name, score in rank(index, " ".join(words))[:10]:
            print(f"{score:4}  {name}")
        return 0
    wrong = 0
    for query, page in SEARCHES.items():
        first, *_ = [name for name, _ in rank(index, query)] or ["nothing"]
        if first != page:
            print(f"a search for {query!r} gives {first} first, not {page}", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
