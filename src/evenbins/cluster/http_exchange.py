"""One request on its way: key, pool, place, replica, answer; again elsewhere where that is safe.

    key (http_keys) ──▶ pool of the model ──▶ place (http_pool) ──▶ replica (http_client) ──▶ client
                                               ▲                     │ failed, and nothing was answered
                                               └─────────────────────┘

Repeated at another replica: any request of which nothing was sent (no connection), up to `retries` times; and
once, if its connection broke before a head came, a safe one (GET, HEAD, OPTIONS without a body), or any with
`retry_unanswered`. All else is an error 502.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from evenbins.cluster.http_bodies import Answer, ClientGoneError, RequestBody, SlowClientError
from evenbins.cluster.http_client import (
    ConnectError,
    ConnectTimeoutError,
    UpstreamError,
    UpstreamTimeoutError,
)
from evenbins.cluster.http_headers import Scope, client_address, raw_path, upstream_headers
from evenbins.cluster.http_keys import RequestKey
from evenbins.cluster.http_pages import answer_page
from evenbins.cluster.http_pool import Place, Pool, QueueFullError
from evenbins.cluster.http_upstreams import is_exhausted
from evenbins.rings import NoNodesError, RingFullError

if TYPE_CHECKING:
    from evenbins.cluster.http import Router

__all__ = ["Exchange", "unless_left"]

_PATIENCE = 0.02  # seconds
_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))


class _AnswerError(Exception):
    """What to answer instead of a replica's answer: status and a line."""

    def __init__(self, status: int, line: str, retry_after: int = 1) -> None:
        super().__init__(line)
        self.status, self.line, self.retry_after = status, line, retry_after


class Exchange:
    """One request and its answer; the router's configuration when it began counts to its end."""

    def __init__(self, router: Router, scope: Scope, body: RequestBody, answer: Answer) -> None:
        self._router, self._scope, self._body, self._answer = router, scope, body, answer
        self._config, self._rules, self._trusted = router.config, router.rules, router.trusted
        self._metrics = router.metrics
        self._begun = time.monotonic()
        self._place: Place | None = None  # the last one
        self._key: RequestKey | None = None

    async def run(self) -> None:
        """Answer the request."""
        try:
            if self._scope["path"].startswith("/-/"):
                await answer_page(self._router, self._scope, self._body, self._answer)
            else:
                await self._in_time()
        except _AnswerError as error:
            if error.status in (502, 504):
                self._metrics.aborted["timeout" if error.status == 504 else "upstream"] += 1
            if self._answer.begun:  # too late for another status: the answer ends early for the client too
                return
            close = error.status == 408 or not self._body.complete
            await self._answer.write(
                error.status, error.line + "\n", close=close, retry_after=error.retry_after
            )
            if error.status == 408:
                await self._answer.end()
                return
        self._body.release()
        if not self._body.complete:
            await self._body.linger()
        await self._answer.end()

    def log(self, gone: str = "") -> None:
        """Write the line of the access log, if there is one."""
        if self._config.access_log is None:
            return
        scope, place, key = self._scope, self._place, self._key
        target = raw_path(scope).decode("ascii", "backslashreplace")
        line = (
            f'{(scope.get("client") or ("-",))[0]} "{scope["method"]} {target}" {self._answer.status or "-"} '
            f"{self._answer.sent} {time.monotonic() - self._begun:.3f} "
            f"upstream={place.name if place else '-'} depth={place.depth if place else 0} "
            f"reason={place.reason if place else '-'} rule={key.rule if key else '-'}"
        )
        self._config.access_log(line + (f" aborted={gone}" if gone else ""))

    async def _in_time(self) -> None:
        config, rejected = self._config, self._metrics.rejected
        try:
            async with asyncio.timeout(config.total_timeout):
                await self._ask()
        except TimeoutError:
            raise _AnswerError(504, f"no complete answer within {config.total_timeout:g} s") from None
        except SlowClientError:
            if self._answer.begun:
                raise
            self._metrics.aborted["slow_client"] += 1
            raise _AnswerError(408, "the request did not arrive in time") from None
        except QueueFullError as error:
            rejected["queue"] += 1
            raise _AnswerError(429, str(error)) from None
        except RingFullError:
            rejected["full"] += 1
            raise _AnswerError(503, "all upstreams are at their limit of requests: try again") from None
        except NoNodesError:
            rejected["down"] += 1
            raise _AnswerError(503, "no upstream is up: try again", self._router.retry_after()) from None

    async def _ask(self) -> None:
        """Ask a replica, and others where that is safe, until one answers."""
        key = self._key = await self._find_key()
        pool = self._pool(key)
        failed: tuple[str, ...] = ()
        sent = False  # some replica may have seen the request
        failure: _AnswerError | None = None
        while True:
            try:
                place = self._place = await self._router.admit(pool, key, failed)
                self._metrics.place(place.reason, len(key.blocks), place.depth)
                try:
                    if self._config.on_admission is not None:
                        self._config.on_admission(key.key, place.name)
                    await self._attempt(pool, place)
                except UpstreamError as error:
                    failure = _failure(error)
                    again = not self._answer.begun and self._repeatable(error, sent)
                    if not again or len(failed) >= self._config.retries:
                        raise failure from error
                    sent = sent or not _no_connection(error)
                else:
                    return
                finally:
                    place.release()
            except NoNodesError:
                if failure is None:
                    raise
                raise failure from None
            except RingFullError:
                if failure is None:
                    raise
                self._metrics.rejected["full"] += 1
                line = f"{failure.line}, and all others are at their limit of requests: try again"
                raise _AnswerError(503, line) from None
            failed += (place.name,)
            self._router.repeats += 1

    async def _find_key(self) -> RequestKey:
        """Return the key of the request, whose body has arrived by then as far as it is kept."""
        scope, body, config = self._scope, self._body, self._config
        data = None
        if body.exists:
            parses = self._rules.needs_body or bool(config.pools)
            await body.buffer(max(config.max_body, config.body_buffer) if parses else config.body_buffer)
            if parses:
                data = body.whole(config.max_body)
        client = client_address(scope, self._trusted) if self._rules.needs_client else ""
        return self._rules.key(raw_path(scope), scope["query_string"], scope["headers"], client, data)

    def _pool(self, key: RequestKey) -> Pool:
        if key.model is None and self._config.pools and not self._body.complete:
            line = f"the body has more than {self._config.max_body} bytes: its model is not known"
            raise _AnswerError(413, line)
        pool = self._router.pool_of(key.model)
        if pool is None:
            raise _AnswerError(404, "no upstream serves this model")
        return pool

    async def _attempt(self, pool: Pool, place: Place) -> None:
        """Send the request to one replica and its answer to the client."""
        name, scope, body, config = place.name, self._scope, self._body, self._config
        epoch = pool.fleet.health.epoch(name)
        begun = time.monotonic()
        upstream = pool.url(name)
        target = upstream.path + raw_path(scope)
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        headers = upstream_headers(scope, None if config.keep_host else upstream.host, self._trusted)
        heard = False
        try:
            response = await pool.connections[name].send(
                scope["method"], target, headers, body.to_send(), connect_timeout=config.connect_timeout,
                timeout=config.read_timeout,
            )  # fmt: skip
            try:
                heard = True
                pool.answered(name, response.status)
                self._metrics.answered(name, response.status, time.monotonic() - begun)
                close = not body.complete
                body.release()
                await self._answer.relay(response, place, close=close, told=config.response_headers)
            finally:
                response.close()
        except UpstreamError as error:
            if _no_connection(error):
                if not is_exhausted(error):
                    heard = True
                    pool.not_connected(name, error, epoch)
            elif not isinstance(error, UpstreamTimeoutError):
                self._metrics.broken[name] += 1
            raise
        finally:
            if not heard:
                pool.abandoned(name)

    def _repeatable(self, error: UpstreamError, sent: bool) -> bool:
        if not self._body.resendable:
            return False
        if _no_connection(error):
            return True
        if isinstance(error, UpstreamTimeoutError):
            return False  # another replica would be asked for the same long work
        safe = self._scope["method"] in _SAFE and not self._body.exists
        return not sent and (safe or self._config.retry_unanswered)


def _no_connection(error: UpstreamError) -> bool:
    return isinstance(error, ConnectError | ConnectTimeoutError)


def _failure(error: UpstreamError) -> _AnswerError:
    if isinstance(error, UpstreamTimeoutError):
        return _AnswerError(504, f"upstream did not answer in time ({type(error).__name__})")
    return _AnswerError(502, f"upstream failed ({type(error).__name__})")


async def unless_left(body: RequestBody, exchange: Exchange) -> None:
    """Run an exchange; ClientGoneError if its client leaves before it ends.

    Most exchanges end before a task that waits for the client to leave is needed: it begins after a while.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    watcher: asyncio.Task[None] | None = None
    ended = left = False

    def leave(done: asyncio.Task[None]) -> None:
        nonlocal left
        if not ended and not done.cancelled():
            left = True
            task.cancel()

    def watch() -> None:
        nonlocal watcher
        watcher = loop.create_task(body.client_left())
        watcher.add_done_callback(leave)

    timer = loop.call_later(_PATIENCE, watch)
    try:
        await exchange.run()
    except asyncio.CancelledError:
        if not left:
            raise
        task.uncancel()
        raise ClientGoneError from None
    finally:
        ended = True
        timer.cancel()
        if watcher is not None:
            watcher.cancel()
