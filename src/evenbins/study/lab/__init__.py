"""The lab: a local web page to understand and to decide (`evenbins lab`).

    browser ──GET /filters──▶ index.html, ES modules, SVG         no outside request, no build step
       │
       ├──GET /api/filters/designs?keys=1e7──▶ a function of this package ──▶ JSON
       └──POST /api/jobs/filters/measure?…──▶ {id} ──GET /api/jobs/ID──▶ progress, result; DELETE cancels

Its pages: Filters, Fingerprints, Tables, Rings, Routing, Dedup, Inspect, Papers. What a page may ask the
server is a list `ENDPOINTS` in the module of its name; an endpoint is a plain function with declared, bounded
parameters (parameters.py). From the same declarations come the checks, their messages and /api/openapi.json.

    app.py         the application: pages, endpoints, jobs      security.py   who may ask, fenced answers
    parameters.py  declarations of parameters                   openapi.py    the description of the API
    jobs.py        long work: progress, cancelling, bounds      ../commands/lab.py    the command
    filters.py  fingerprints.py  tables.py  rings.py  routing.py  dedup.py  inspect.py
    papers.py      one module a page
    docs.py        links to the documentation                   timing.py     nanoseconds of look-ups
    static/        index.html, style.css and the ES modules; one module a page

Invariants
- Standard library and NumPy come first: scipy is imported by a thread at the start, behind the first picture.
- Every parameter has a type and bounds; what is unknown, repeated, malformed or out of range raises a
  descriptive error.
- An endpoint gives the same answer for the same parameters: a view is its URL. (Times of runs aside.)
- The server listens to this machine alone, and answers only to its own pages (security.py).

Tried and dropped: server-sent events for progress (a page holds six connections to one host at most; a poll
of some hundred bytes is simpler and survives a sleeping laptop); a process for each job (starting one takes
longer than most jobs; the core releases the GIL, and `progress` is asked often enough to cancel).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["create_app"]


def create_app() -> "Starlette":
    """Make the application: as `lab.app.create_app`, which needs starlette (`evenbins[lab]`)."""
    from evenbins.study.lab.app import create_app as create

    return create()
