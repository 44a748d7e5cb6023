"""Modules of routers: they import without any extra, name the one that is missing; their examples work."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest

MODULES = [
    "health",
    "fleet",
    "memcached",
    "sharded_redis",
    "http",
    "http_admin",
    "http_bodies",
    "http_breaker",
    "http_client",
    "http_config",
    "http_exchange",
    "http_headers",
    "http_keys",
    "http_metrics",
    "http_pool",
    "http_prometheus",
    "http_server",
    "http_settings",
    "http_workers",
    "shared_loads",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_work_as_printed(name):
    assert doctest.testmod(importlib.import_module(f"evenbins.cluster.{name}")).failed == 0


def test_modules_import_without_extras_and_name_them_when_used():
    program = f"""
import sys
for name in ("redis", "pymemcache", "httpx", "starlette", "uvicorn"):
    sys.modules[name] = None
for name in {MODULES}:
    __import__("evenbins.cluster." + name)
import evenbins.cli.route
from evenbins.cluster.memcached import RingHasher, RingMemcache
from evenbins.cluster.sharded_redis import AsyncShardedRedis, ShardedRedis
from evenbins.cluster.shared_loads import RedisLoads
from evenbins.cluster.http import Router, RouterConfig
RingHasher()
Router(RouterConfig(["http://a:1"]))
for make in (lambda: RingMemcache(["a:1"]), lambda: ShardedRedis(["a:1"]), lambda: AsyncShardedRedis(["a:1"]),
             lambda: RedisLoads(None, "x")):
    try:
        make()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "pymemcache is not installed: pip install 'evenbins[memcached]'",
        *["redis is not installed: pip install 'evenbins[redis]'"] * 3,
    ]
