"""What fuzzing of `evenbins route` found (fuzz/python/route_parsers.py): one test each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.http_admin import apply_change
from evenbins.cluster.http_settings import read_settings

NO_NAME = "http://é" + "x" * 70 + ":1"  # longer than a label of DNS may be


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("key = 5", "key must be one rule or several"),
        ("trusted_proxies = true", "trusted_proxies must be several networks"),
        ("health_path = 5", "health_path must begin"),
        ('health_path = "/a b"', "health_path must begin"),
        ('health_path = "/a\\r\\nX-Key: b"', "health_path must begin"),
        ("backoff = 5", "backoff must be a table"),
        ("x = " + "[" * 5000, "nest too deep"),
        ("[pools.p]\nupstreams = [[]]", "upstreams must be URLs"),
        (f'[pools.p]\nupstreams = ["{NO_NAME}"]', "an upstream must be a URL"),
    ],
)
def test_a_value_of_the_wrong_type_in_a_file_is_named(tmp_path: Path, line: str, words: str) -> None:
    """Each ended the command with a traceback; a reload by SIGHUP would have met it, too."""
    path = tmp_path / "route.toml"
    path.write_text(f'upstreams = ["http://a:1"]\n{line}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=words) as error:
        read_settings(path)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("policy", ["hash", "score"])
def test_an_upstream_that_cannot_be_added_leaves_nothing_behind(policy: str) -> None:
    """It was on the ring without connections: requests for it would have failed from then on."""
    router = Router(RouterConfig(["http://a:1"], policy=policy))
    for parameters in ({"upstream": NO_NAME}, {"upstream": "http://b:1", "weight": "nan"}):
        before: Any = router.status()["upstreams"]
        assert apply_change(router, "add", parameters)[0] == 400
        assert router.status()["upstreams"] == before
        (pool,) = router.pools.values()
        assert set(pool.connections) == set(pool.ring.names) == {"http://a:1"}
