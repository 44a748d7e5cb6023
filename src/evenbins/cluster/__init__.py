"""What leaves the process: structures that live on servers their users already run.

    RedisFilter, AsyncRedisFilter    a filter shared through Redis or Valkey (docs/redis.md)

Nothing here needs an extra to be imported; the client library is asked for when a class is used.
"""

from evenbins.cluster.redis_errors import FilterDamaged, FilterMissing, PlanMismatch, RedisFilterError
from evenbins.cluster.redis_filter import AsyncRedisFilter, RedisFilter
from evenbins.cluster.redis_plan import RedisPlan, RedisStats

__all__ = [
    "AsyncRedisFilter",
    "FilterDamaged",
    "FilterMissing",
    "PlanMismatch",
    "RedisFilter",
    "RedisFilterError",
    "RedisPlan",
    "RedisStats",
]
