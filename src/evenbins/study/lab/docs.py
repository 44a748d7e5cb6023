"""The documentation that a page of the lab is about: /docs/PAGE, whatever form of it this machine has.

In a checkout in which `make docs` was run the built page, served from docs/_build/html; in another checkout
the page's source, as text; elsewhere, where the package's metadata names an address, a redirect to its page
there, or a sentence that names the file. What is on this machine comes first: it needs no network.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

__all__ = ["PAGES", "routes"]

PAGES = {
    "filters": "filters", "fingerprints": "fingerprint", "tables": "tables", "rings": "rings",
    "dedup": "dedup", "inspect": "cli", "papers": "papers", "routing": "prefix_routing", "lab": "lab",
}  # fmt: skip
"""The page of the documentation for each page of the lab; "lab" for the lab itself."""

FOLDER = Path(__file__).parents[4] / "docs"


def routes() -> list[Route]:
    """Return the routes below /docs."""
    return [Route("/docs/{page}", _redirect), Route("/docs/built/{path:path}", _built)]


async def _redirect(request: Request) -> Response:
    page = request.path_params["page"]
    if page not in PAGES:
        raise HTTPException(404)
    name = PAGES[page]
    if (FOLDER / "_build" / "html" / f"{name}.html").is_file():
        return RedirectResponse(f"/docs/built/{name}.html", status_code=307)
    if (FOLDER / f"{name}.md").is_file():
        return FileResponse(FOLDER / f"{name}.md", media_type="text/plain; charset=utf-8")
    address = _published()
    if address is not None:
        return RedirectResponse(f"{address}/{name}.html", status_code=307)
    return PlainTextResponse(
        f"This is documented in docs/{name}.md of the source of evenbins, which is not on this machine.\n"
    )


async def _built(request: Request) -> Response:
    folder = (FOLDER / "_build" / "html").resolve()
    try:
        path = (folder / request.path_params["path"]).resolve()
        found = path.is_relative_to(folder) and path.is_file()
    except (ValueError, OSError):  # a NUL, a name that is too long
        found = False
    if not found:
        raise HTTPException(404)
    return FileResponse(path)


def _published() -> str | None:
    """Return where the documentation is published, as the package's metadata says."""
    try:
        urls = metadata.metadata("evenbins").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return None
    named = (each.partition(",") for each in urls)
    return next((url.strip().rstrip("/") for name, _, url in named if name == "Documentation"), None)
