"""What leaves the process: structures and routers on servers that their users already run.

    memcached.RingHasher, RingMemcache          keys on memcached servers (docs/routing.md)
    sharded_redis.ShardedRedis, AsyncShardedRedis    keys on independent Redis servers
    http.Router                                 requests to replicas: caches, LLM servers
    shared_loads.RedisLoads                     one count of requests in flight for many routers
    health, fleet                               what they share: failures, back-off, drain, leases

Nothing here needs an extra to be imported; the client library is asked for when a class is used.
"""
