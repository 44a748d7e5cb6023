"""What leaves the process: structures and routers on servers that their users already run.

    RedisFilter, AsyncRedisFilter               a filter that many processes share (docs/redis.md)
    memcached.RingHasher, RingMemcache          keys on memcached servers (docs/routing.md)
    sharded_redis.ShardedRedis, AsyncShardedRedis    keys on independent Redis servers
    http.Router                                 requests to replicas: caches, LLM servers
    shared_loads.RedisLoads                     one count of requests in flight for many routers
    health, fleet                               what they share: failures, back-off, drain, leases
    dask.build(collection, column, …)           a filter from many files, by many workers (docs/dask.md)
    dask.dedup(collection, key=…)               first occurrences over all partitions (docs/dedup.md)

Nothing here needs an extra to be imported; the client library is asked for when a class is used, and one
that is missing is named with the extra that brings it.
"""

from evenbins.cluster.redis_errors import (
    FilterDamagedError,
    FilterMissingError,
    PlanMismatchError,
    RedisFilterError,
)
from evenbins.cluster.redis_filter import AsyncRedisFilter, RedisFilter
from evenbins.cluster.redis_plan import RedisPlan, RedisStats

__all__ = [
    "AsyncRedisFilter",
    "FilterDamagedError",
    "FilterMissingError",
    "PlanMismatchError",
    "RedisFilter",
    "RedisFilterError",
    "RedisPlan",
    "RedisStats",
]
