"""The duplicate filter in real crawls of a site on loopback, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from filter_servers import running
from scrapy.settings import Settings

from evenbins import Deduplicator
from evenbins.compat.scrapy import DupeFilter

PAGES = 25

SPIDER = """
import json, sys
import scrapy
from scrapy.crawler import CrawlerProcess

class Site(scrapy.Spider):
    name = "site"
    start_urls = [sys.argv[1] + "/page/0"]

    def parse(self, response):
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)

settings = {
    "DUPEFILTER_CLASS": "evenbins.compat.scrapy.DupeFilter", "LOG_LEVEL": "DEBUG", "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False, "RETRY_ENABLED": False, **json.loads(sys.argv[2]),
}
process = CrawlerProcess(settings)
crawler = process.create_crawler(Site)
process.crawl(crawler)
process.start()
print(json.dumps({name: value for name, value in crawler.stats.get_stats().items() if "dupefilter" in name}))
"""


class Site:
    """Pages that all link to one another, some links twice and in other spellings; hits are counted."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.hits[self.path.partition("?")[0]] += 1
                links = "".join(f'<a href="/page/{n}?b=1&a=2">{n}</a><a href="/page/{n}?a=2&b=1">{n}</a>'
                                for n in range(1, PAGES))  # fmt: skip
                body = f"<html>{links}</html>".encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def crawl(self, **settings: Any) -> tuple[dict[str, Any], str]:
        """Crawl it; return the stats and the log."""
        url = f"http://127.0.0.1:{self.server.server_address[1]}"
        done = subprocess.run(
            [sys.executable, "-c", SPIDER, url, json.dumps(settings)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found, done.stderr


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.server.shutdown()
    made.server.server_close()


OTHERS = {f"/page/{n}": 1 for n in range(1, PAGES)}


@pytest.mark.parametrize("exact", [False, True])
def test_every_page_is_fetched_once_and_not_again_after_a_restart(
    exact: bool, site: Site, tmp_path: Path
) -> None:
    settings = {
        "JOBDIR": str(tmp_path / "job"),
        "EVENBINS_DEDUP_EXACT": exact,
        "EVENBINS_DEDUP_SAVE_EVERY": 7,
    }
    stats, log = site.crawl(**settings)
    assert site.hits == {"/page/0": 1, **OTHERS}
    assert stats["dupefilter/evenbins/kept"] == PAGES - 1
    assert stats["dupefilter/filtered"] == stats["dupefilter/evenbins/rows"] - (PAGES - 1)
    assert stats["dupefilter/evenbins/expected_wrong"] < 1e-6
    assert log.count("Filtered duplicate request") == 1
    saved = Deduplicator.load(tmp_path / "job" / "requests.evb")
    assert (saved.exact, saved.stats().keys) == (exact, PAGES - 1)
    if exact:  # the next test begins again with a file that is not exact
        site.crawl(**settings)
        assert site.hits == {"/page/0": 2, **OTHERS}  # Scrapy does not filter the start


def test_without_a_file_and_with_one_of_its_own(site: Site, tmp_path: Path) -> None:
    _, log = site.crawl(DUPEFILTER_DEBUG=True)
    assert site.hits == {"/page/0": 1, **OTHERS}
    assert log.count("Filtered duplicate request") > 100
    site.hits.clear()
    for _ in range(2):
        site.crawl(EVENBINS_DEDUP_FILE=str(tmp_path / "seen.evb"), EVENBINS_DEDUP_CAPACITY=1000)
    assert site.hits == {"/page/0": 2, **OTHERS}
    assert Deduplicator.load(tmp_path / "seen.evb").capacity == 1000


def test_crawlers_share_a_filter_on_redis(site: Site) -> None:
    with running() as server:
        settings = {
            "EVENBINS_DEDUP_REDIS_URL": f"redis://127.0.0.1:{server.port}/0",
            "EVENBINS_DEDUP_CAPACITY": 10_000, "EVENBINS_DEDUP_FPR": 1e-6,
        }  # fmt: skip
        threads = [threading.Thread(target=site.crawl, kwargs=settings) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert site.hits == {"/page/0": 2, **OTHERS}


class Fingerprinter:
    @staticmethod
    def fingerprint(request: str) -> bytes:
        return request.encode()


class Crawler:
    """What DupeFilter asks of one."""

    request_fingerprinter = Fingerprinter()
    stats = None

    def __init__(self, **settings: object) -> None:
        self.settings: Any = Settings(settings)


def test_exact_with_redis_is_refused() -> None:
    """The filter on a server is approximate; nothing is connected to."""
    crawler = Crawler(EVENBINS_DEDUP_EXACT=True, EVENBINS_DEDUP_REDIS_URL="redis://127.0.0.1:1/0")
    with pytest.raises(ValueError, match=r"EXACT=True cannot be had with EVENBINS_DEDUP_REDIS_URL.*Remove"):
        DupeFilter.from_crawler(crawler)


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing" / "seen.evb")
    with pytest.raises(
        FileNotFoundError, match=r"EVENBINS_DEDUP_FILE: there is no folder .*missing'.*Make it"
    ):
        DupeFilter.from_crawler(Crawler(EVENBINS_DEDUP_FILE=missing))
    with pytest.raises(IsADirectoryError, match=r"EVENBINS_DEDUP_FILE: .* is a folder\. Name a file in it"):
        DupeFilter.from_crawler(Crawler(EVENBINS_DEDUP_FILE=str(tmp_path)))


def test_a_file_of_other_settings_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "seen.evb")
    Deduplicator(exact=True).save(path)
    crawler = Crawler(EVENBINS_DEDUP_FILE=path)
    with pytest.raises(ValueError, match=r"seen.evb: it was written with other settings.*another EVENBINS"):
        DupeFilter.from_crawler(crawler)
    crawler.settings = Settings({"EVENBINS_DEDUP_FILE": path, "EVENBINS_DEDUP_EXACT": True})
    found = DupeFilter.from_crawler(crawler)
    assert [found.request_seen(each) for each in ("a", "b", "a")] == [False, False, True]
    found.close("finished")
    assert DupeFilter.from_crawler(crawler).request_seen("b")


def test_a_file_that_cannot_be_saved_loses_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Plain:
        def fingerprint(self, request: bytes) -> bytes:
            return request

    seen = DupeFilter(Plain(), Deduplicator(), path=str(tmp_path / "seen.evb"), save_every=3)
    save, full = Deduplicator.save, OSError(28, "No space left on device")

    def fail(*_: Any) -> None:
        raise full

    monkeypatch.setattr(Deduplicator, "save", fail)
    assert [seen.request_seen(key) for key in (b"a", b"b", b"c", b"d", b"a")] == [False] * 4 + [True]
    assert "seen.evb could not be saved" in caplog.text
    with pytest.raises(OSError, match="No space"):
        seen.close("finished")
    monkeypatch.setattr(Deduplicator, "save", save)
    assert not seen.request_seen(b"e")
    seen.close("finished")
    assert Deduplicator.load(tmp_path / "seen.evb").stats().keys == 5
