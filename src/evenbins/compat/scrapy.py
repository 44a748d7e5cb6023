"""A duplicate filter for Scrapy: request fingerprints in a Deduplicator, or in a filter on Redis.

    DUPEFILTER_CLASS = "evenbins.compat.scrapy.DupeFilter"

| setting | default | |
|---|---|---|
| EVENBINS_DEDUP_FILE | requests.evb in JOBDIR | the file that lives through restarts; without it and JOBDIR memory alone |
| EVENBINS_DEDUP_EXACT | False | 128-bit digests, and no request dropped by mistake; not with Redis |
| EVENBINS_DEDUP_FPR | 1e-9 | the largest probability that a new request is dropped |
| EVENBINS_DEDUP_CAPACITY | none | requests to plan for; needed with Redis, where it is 10 million by default |
| EVENBINS_DEDUP_SAVE_EVERY | 100_000 | requests after which the file is written again; it is written at the end anyway |
| EVENBINS_DEDUP_SEED | 0 | of the digests |
| EVENBINS_DEDUP_REDIS_URL | none | a Redis server: crawlers share a `RedisFilter`, and exactly one gets each request |
| EVENBINS_DEDUP_REDIS_NAME | "evenbins-requests" | the name of the filter there |

A crawler that is killed has forgotten the requests since the file was last written: it asks for them again.
"""  # noqa: E501

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Self

from evenbins.cluster.libraries import library
from evenbins.cluster.redis_errors import FilterMissingError
from evenbins.deduplication.deduplicator import Deduplicator

if TYPE_CHECKING:
    from evenbins.cluster import RedisFilter

__all__ = ["DupeFilter"]

_Base: Any = library("scrapy.dupefilters", "scrapy").BaseDupeFilter
_REDIS_CAPACITY = 10_000_000
_ATTEMPTS, _WAIT_SECONDS = 50, 0.1  # while another crawler creates the filter


class DupeFilter(_Base):  # type: ignore[misc]
    """Requests seen before; the settings are in the module's text.

    Parameters
    ----------
    fingerprinter
        What has `fingerprint(request)`, as `crawler.request_fingerprinter`.
    seen
        A Deduplicator, or a shared filter with `add_new`.
    path
        The file of the Deduplicator; None for memory alone.
    save_every
        Requests after which the file is written again.
    debug
        Log every request that is dropped, not only the first.
    """

    def __init__(
        self, fingerprinter: Any, seen: Deduplicator | RedisFilter, *, path: str | None = None,
        save_every: int = 100_000, debug: bool = False,
    ) -> None:  # fmt: skip
        self._fingerprinter, self.seen, self.path = fingerprinter, seen, path
        self._save_every, self._since_saved = save_every, 0
        self._log_all, self._log_next = debug, True
        self._stats: Any = None
        self._logger = logging.getLogger(__name__)

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Build the filter that the crawler's settings ask for; a file that is there is continued."""
        settings = crawler.settings
        capacity = settings.getint("EVENBINS_DEDUP_CAPACITY") or None
        fpr, seed = settings.getfloat("EVENBINS_DEDUP_FPR", 1e-9), settings.getint("EVENBINS_DEDUP_SEED", 0)
        path: str | None = None
        seen: Any
        exact = settings.getbool("EVENBINS_DEDUP_EXACT", False)
        if url := settings.get("EVENBINS_DEDUP_REDIS_URL"):
            if exact:
                raise ValueError(
                    "EVENBINS_DEDUP_EXACT=True cannot be had with EVENBINS_DEDUP_REDIS_URL: the filter on "
                    "Redis is approximate, with EVENBINS_DEDUP_FPR at most. Remove one of the two"
                )
            name = settings.get("EVENBINS_DEDUP_REDIS_NAME", "evenbins-requests")
            seen = _shared_filter(url, name, capacity or _REDIS_CAPACITY, fpr, seed)
        else:
            path = settings.get("EVENBINS_DEDUP_FILE")
            if path is None and (folder := settings.get("JOBDIR")):
                os.makedirs(folder, exist_ok=True)
                path = os.path.join(folder, "requests.evb")
            _check_folder(path)
            seen = _continued(path, Deduplicator(exact=exact, fpr=fpr, capacity=capacity, seed=seed))
        made = cls(
            crawler.request_fingerprinter, seen, path=path, debug=settings.getbool("DUPEFILTER_DEBUG"),
            save_every=settings.getint("EVENBINS_DEDUP_SAVE_EVERY", 100_000),
        )  # fmt: skip
        made._stats = crawler.stats
        return made

    def request_seen(self, request: Any) -> bool:
        """Return whether a request with this fingerprint came before; if not, it has now."""
        fingerprint = self._fingerprinter.fingerprint(request)
        if not isinstance(self.seen, Deduplicator):
            return not self.seen.add_new(fingerprint)
        is_new = bool(self.seen.keep([fingerprint])[0])
        self._since_saved += is_new
        if self.path is not None and self._since_saved >= self._save_every:
            try:
                self._save()
            except OSError:  # the request must not be lost: it counts as seen
                self._logger.exception("%s could not be saved, and is tried again later", self.path)
                self._since_saved = 0
        return not is_new

    def _save(self) -> None:
        assert isinstance(self.seen, Deduplicator)
        assert self.path is not None
        self.seen.save(self.path)
        self._since_saved = 0

    def close(self, reason: str) -> None:
        """Write the file, and report what was counted to the crawler's stats."""
        if not isinstance(self.seen, Deduplicator):
            return
        if self.path is not None:
            self._save()
        if self._stats is not None:
            found = self.seen.stats()
            for name in ("rows", "kept", "expected_wrong", "nbytes"):
                self._stats.set_value(f"dupefilter/evenbins/{name}", getattr(found, name))

    def log(self, request: Any, spider: Any) -> None:
        """Log a request that was dropped, and count it, as Scrapy's own filter does."""
        if self._log_all or self._log_next:
            more = "" if self._log_all else " - no more duplicates will be shown (see DUPEFILTER_DEBUG)"
            self._logger.debug("Filtered duplicate request: %s%s", request, more, extra={"spider": spider})
            self._log_next = False
        spider.crawler.stats.inc_value("dupefilter/filtered")


def _check_folder(path: str | None) -> None:
    """Raise if no file can be written there: at the start of a crawl, and not at its end."""
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"EVENBINS_DEDUP_FILE: there is no folder {folder!r} for {path!r}. Make it, or name another file"
        )
    if os.path.isdir(path):
        raise IsADirectoryError(f"EVENBINS_DEDUP_FILE: {path!r} is a folder. Name a file in it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(
            f"EVENBINS_DEDUP_FILE: the folder {folder!r} cannot be written. Name another file"
        )


def _continued(path: str | None, wanted: Deduplicator) -> Deduplicator:
    """Return the Deduplicator of a file, if there is one: it must be what the settings ask for."""
    if path is None or not os.path.exists(path):
        return wanted
    found = Deduplicator.load(path)
    if found.plan != wanted.plan:
        raise ValueError(
            f"{path}: it was written with other settings (EXACT, FPR, CAPACITY or SEED): it is {found!r}, "
            f"and the settings ask for {wanted!r}. Restore them, or name another EVENBINS_DEDUP_FILE"
        )
    return found


def _shared_filter(url: str, name: str, capacity: int, fpr: float, seed: int) -> Any:
    """Return the filter of that name on a server, which is made if it is not there."""
    from evenbins.cluster import RedisFilter, RedisFilterError
    from evenbins.filters import plan_blocked

    client = library("redis", "redis").Redis.from_url(url)
    plan = plan_blocked(capacity, fpr=fpr, seed=seed)
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FilterMissingError):
            return RedisFilter.open(client, name, plan=plan)
        with contextlib.suppress(RedisFilterError):  # another crawler was first, and is at it
            return RedisFilter.create(client, name, plan)
        time.sleep(_WAIT_SECONDS)
    return RedisFilter.open(client, name, plan=plan)
