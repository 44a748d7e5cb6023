"""A log of requests replayed through cache servers: the twin of cpp/study/simulate_cache.cpp.

The same draws, with a dictionary for each server, looked through from end to end at every request, so that
all counts must be equal. What is simulated stands in cpp/study/simulate_cache.hpp.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from reference.keys import mix, mulhi, splitmix

__all__ = ["baseline_misses", "replay"]

_ARRAY_BITS = 20
_TAIL_KEY = 0x7A3D5C19E2B84F61


@dataclass
class _Server:
    back: int | None = None  # when it comes back, if it is down
    cache: dict[int, int] = field(default_factory=dict)  # url: when it was last used
    requests: list[int] = field(default_factory=list)  # when those that it works on began


def replay(
    times: Sequence[int],
    digests: Sequence[int],
    *,
    servers: int,
    cache_size: int | None,
    limit: int | None,
    stale: int,
    served: int,
    recovery: int,
    policy: str,
    copies: int = 1,
    seed: int = 0,
) -> tuple[int, int, int, int, int, int, int, int]:
    """Give misses, dropped, failures, routed, searches, longest walk, largest load, most requests at once."""
    slots = _slots(servers, copies, seed)
    room = math.inf if cache_size is None else cache_size
    most = math.inf if limit is None else limit
    all_servers = [_Server() for _ in range(servers)]
    misses = dropped = failures = max_load = max_requests = 0
    walks: list[int] = []
    for now, url in zip(times, digests, strict=True):
        for server in all_servers:
            server.cache = {each: used for each, used in server.cache.items() if used + stale > now}
            server.requests = [begun for begun in server.requests if begun + served > now]
            if server.back is not None and server.back <= now:
                server.back = None
        visits = 0
        for at in _walk(policy, slots, mix(url ^ splitmix(seed, 1))):
            server = all_servers[at]
            if server.back is not None:
                continue
            visits += 1
            full = len(server.cache) >= room
            if url not in server.cache and full and policy != "plain":
                continue
            if url not in server.cache:
                misses += 1
                dropped += full
            if url in server.cache or not full:
                server.cache[url] = now
            server.requests.append(now)
            walks.append(visits)
            max_load = max(max_load, len(server.cache))
            max_requests = max(max_requests, len(server.requests))
            if len(server.requests) > most:
                failures += 1
                all_servers[at] = _Server(back=now + recovery)
            break
        else:
            misses += 1
            dropped += 1
    return misses, dropped, failures, len(walks), sum(walks), max(walks, default=0), max_load, max_requests


def baseline_misses(times: Sequence[int], digests: Sequence[int], *, stale: int) -> int:
    """Give the misses of one cache without limits that never fails."""
    used: dict[int, int] = {}
    misses = 0
    for now, url in zip(times, digests, strict=True):
        misses += url not in used or used[url] + stale <= now
        used[url] = now
    return misses


def _slots(servers: int, copies: int, seed: int) -> list[tuple[int, int]]:
    """Give (place, server) of all copies, in the order of places."""
    taken: dict[int, int] = {}
    for i in range(servers):
        for j in range(copies):
            word, t = splitmix(splitmix(splitmix(seed, 0), i), j), 0
            while (place := splitmix(word, t) >> 64 - _ARRAY_BITS) in taken:
                t += 1
            taken[place] = i
    return sorted(taken.items())


def _walk(policy: str, slots: list[tuple[int, int]], d: int) -> Iterator[int]:
    """Give the servers in the order in which a url meets them, those that are down too."""
    owners = [server for _, server in slots]
    m = len(slots)

    def next_slot(word: int) -> int:
        return next((i for i, (place, _) in enumerate(slots) if place >= word >> 64 - _ARRAY_BITS), 0)

    if policy in ("plain", "clockwise"):
        first = next_slot(splitmix(d, 0))
        yield from owners[first:] + owners[:first]
        return
    for c in range(2 * m + 64):
        word = splitmix(d, c)
        yield owners[mulhi(word, m) if policy == "jump" else next_slot(word)]
    at = mulhi(splitmix(d ^ _TAIL_KEY, 0), m)
    stride = 1 if m == 1 else 1 + mulhi(splitmix(d ^ _TAIL_KEY, 1), m - 1)
    while math.gcd(stride, m) != 1:
        stride = 1 if stride == m else stride + 1
    for _ in range(m):
        yield owners[at]
        at = (at + stride) % m
