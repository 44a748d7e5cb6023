"""The application: pages, endpoints and jobs behind the fence of security.py.

    /filters /fingerprints /tables …   index.html; its script mounts the page's module      / goes to /filters
    /static/…                          the modules and the style
    /docs/PAGE                         the documentation that a page is about (docs.py)
    /api/PATH                          an endpoint that answers at once; by POST one that gets a file
    /api/jobs/PATH, /api/jobs/ID       endpoints that take long: start, look, cancel
    /api/openapi.json                  the description of all of them

Functions run in threads, so that a page is served while another computes; `_AT_ONCE` of them at a time, and
no more than `_WAITING` wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import tempfile
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from evenbins.study.lab import docs
from evenbins.study.lab.jobs import Jobs
from evenbins.study.lab.openapi import describe
from evenbins.study.lab.parameters import Endpoint, RefusedError, read
from evenbins.study.lab.security import Fence, too_large

__all__ = ["PAGES", "create_app", "endpoints"]

PAGES = ("filters", "fingerprints", "tables", "rings", "routing", "dedup", "inspect", "papers")
STATIC = Path(__file__).parent / "static"
_AT_ONCE = 4
_WAITING = 32
_FILES_AT_ONCE = 2
_FILE_SECONDS = 60.0  # in which a file must have arrived: others wait for its place


def endpoints() -> list[Endpoint]:
    """Return the endpoints of all pages."""
    return [each for page in PAGES for each in import_module(f"evenbins.study.lab.{page}").ENDPOINTS]


def create_app(*, jobs: Jobs | None = None, pages: Iterable[Endpoint] | None = None) -> Starlette:
    """Make the application.

    Parameters
    ----------
    jobs
        Where jobs run; for tests with other bounds.
    pages
        The endpoints; those of all pages if not given.

    Examples
    --------
    >>> from starlette.testclient import TestClient
    >>> client = TestClient(create_app(), base_url="http://127.0.0.1:8765")
    >>> client.get("/nothing").json()["error"]  # doctest: +ELLIPSIS
    'there is no page /nothing: the pages are /filters, /fingerprints, ...'
    """
    known = list(endpoints() if pages is None else pages)
    running = Jobs() if jobs is None else jobs
    waiting = _Turns(_AT_ONCE)
    storing = _Turns(_FILES_AT_ONCE)
    description = describe(known)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        threading.Thread(target=_warm, name="lab warm-up", daemon=True).start()
        yield
        running.close()

    async def look(request: Request) -> Response:
        read((), request.query_params.multi_items())
        return _json(running.find(request.path_params["id"]).to_dict())

    async def cancel(request: Request) -> Response:
        read((), request.query_params.multi_items())
        return _json(running.cancel(request.path_params["id"]).to_dict())

    async def openapi(request: Request) -> Response:
        return _json(description)

    routes: list[Any] = [Route("/", _redirect_home)]
    routes += [Route(f"/{page}", _page) for page in PAGES]
    routes.append(Route("/favicon.ico", _icon))
    routes.append(Mount("/static", StaticFiles(directory=STATIC)))
    routes += docs.routes()
    routes.append(Route("/api/openapi.json", openapi))
    for each in known:
        if each.upload:
            routes.append(
                Route(each.url, partial(_inspect, each, storing, waiting, running), methods=["POST"])
            )
        elif each.job:
            routes.append(Route(each.url, partial(_start, each, running), methods=["POST"]))
        else:
            routes.append(Route(each.url, partial(_answer, each, waiting, running), methods=["GET"]))
    routes.append(Route("/api/jobs/{id}", look, methods=["GET"]))
    routes.append(Route("/api/jobs/{id}", cancel, methods=["DELETE"]))
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Fence, uploads={each.url: each.upload for each in known if each.upload})],
        exception_handlers={RefusedError: _refusal_response, HTTPException: _missing},
    )
    app.state.jobs = running
    return app


class _Turns:
    """At most `at_once` functions at a time, `_WAITING` in the queue."""

    def __init__(self, at_once: int) -> None:
        self._turn = asyncio.Semaphore(at_once)
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        if self._waiting >= _WAITING:
            raise RefusedError("the lab is busy: wait a moment and try again", status=503)
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turn.release()


async def _answer(endpoint: Endpoint, turns: _Turns, jobs: Jobs, request: Request) -> Response:
    """Answer an endpoint at once."""
    values = read(endpoint.parameters, request.query_params.multi_items())
    return await _run(endpoint, turns, jobs, values)


async def _inspect(
    endpoint: Endpoint, storing: _Turns, turns: _Turns, jobs: Jobs, request: Request
) -> Response:
    """Store the body in a temporary file, and answer an endpoint that takes one."""
    values = read(endpoint.parameters, request.query_params.multi_items())
    async with storing.take():
        with tempfile.TemporaryDirectory(prefix="evenbins-lab-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "file"
            size = 0
            try:
                async with asyncio.timeout(_FILE_SECONDS):
                    with path.open("wb") as file:
                        async for chunk in request.stream():
                            size += len(chunk)
                            if size > endpoint.upload:
                                raise RefusedError(too_large(endpoint.upload), status=413)
                            file.write(chunk)
            except TimeoutError:
                raise RefusedError(
                    f"the file did not arrive within {_FILE_SECONDS:g} seconds: send it again", status=408
                ) from None
            except ClientDisconnect:  # the page was left: nobody reads this
                raise RefusedError("the file was not sent to its end", status=400) from None
            return await _run(endpoint, turns, jobs, values | {"file": path})


async def _run(endpoint: Endpoint, turns: _Turns, jobs: Jobs, values: dict[str, Any]) -> Response:
    async with turns.take():
        try:
            with jobs.first():
                found = await run_in_threadpool(endpoint.function, **values)
        except ValueError as error:
            raise RefusedError(str(error)) from None
        except LookupError as error:
            raise RefusedError(str(error), status=404) from None
    if endpoint.media_type != "application/json":
        return Response(found, media_type=endpoint.media_type)
    return _json(found)


async def _start(endpoint: Endpoint, jobs: Jobs, request: Request) -> Response:
    """Start an endpoint as a job."""
    values = read(endpoint.parameters, request.query_params.multi_items())
    return _json(jobs.start(endpoint.path, endpoint.function, **values).to_dict(), status=202)


async def _redirect_home(request: Request) -> Response:
    return RedirectResponse("/filters", status_code=307)


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


async def _icon(request: Request) -> Response:
    return FileResponse(STATIC / "icon.svg")


async def _refusal_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return _json({"error": str(error)}, status=error.status)


async def _missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path[:80]
    if error.status_code == 405:
        text = f"{path} does not take {request.method}: /api/openapi.json says what it takes"
    elif error.status_code == 404 and path.startswith("/api/"):
        text = f"there is no {path}: /api/openapi.json lists what there is"
    elif error.status_code == 404:
        text = f"there is no page {path}: the pages are {', '.join('/' + page for page in PAGES)}"
        if "text/html" in request.headers.get("accept", ""):
            return FileResponse(STATIC / "index.html", status_code=404)  # its script says the same
    else:
        text = str(error.detail)
    return _json({"error": text}, status=error.status_code, headers=error.headers)


def _json(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    text = json.dumps(_plain(value), allow_nan=False, separators=(",", ":"))
    return Response(text, status, dict(headers or {}), "application/json")


def _plain(value: Any) -> Any:
    """Turn NumPy's numbers and arrays into JSON's; what is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _warm() -> None:
    """Import what the first answers need, behind the first picture."""
    for module in (
        "scipy.optimize", "scipy.stats", "evenbins.design", "evenbins.study.papers", "matplotlib.figure",
        "matplotlib.backends.backend_svg",
    ):  # fmt: skip
        with contextlib.suppress(Exception):  # the request that needs it says what is wrong
            import_module(module)
    with contextlib.suppress(Exception):
        import_module("evenbins.study.papers").experiments()  # imports all of them
