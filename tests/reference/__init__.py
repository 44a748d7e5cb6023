"""Readable twins of the fast structures: the executable specification and the tests' oracle.

A twin leaves the same bytes as its fast counterpart, for the same keys in the same order; it is
slow and short. Nothing here needs the native core.

    xxh3      XXH3-64 and XXH3-128, from the published specification
    keys      a key's digest, and SplitMix64
    bloom     the standard filter
    blocked   the blocked filter
    balanced  the balanced filter, in its five policies
    chained   the chained table, in its five policies
    countmin  the count-min sketch, in its two constructions
    hyperloglog  HyperLogLog, sparse and dense
    counting  the counting filter
    fingerprint  the fingerprint filter
    fuse      the fuse filter
    window    the window filter
    multilevel  the multilevel table, in its five schemes
    summaries  summaries of multilevel tables
    paged     the one-read table's pages and journal
    guided    a multilevel table that keeps one
    ring      the ring of nodes with bounded loads
    sharded   a filter in shards, and the order in which workers fill it
    format    the file format
"""

from evenbins.study.stepwise import ReferenceMultilevel
from reference.balanced import ReferenceBalanced
from reference.blocked import ReferenceBlocked
from reference.bloom import ReferenceBloom
from reference.chained import ReferenceChained
from reference.counting import ReferenceCounting
from reference.countmin import ReferenceCountMin
from reference.fingerprint import ReferenceFingerprint
from reference.fuse import ReferenceFuse
from reference.hyperloglog import ReferenceHyperLogLog
from reference.keys import digest, mix, mulhi, splitmix
from reference.paged import ReferencePaged
from reference.ring import Ring as ReferenceRing
from reference.sharded import ReferenceSharded
from reference.window import ReferenceWindow
from reference.xxh3 import xxh3_64, xxh3_128

__all__ = [
    "ReferenceBalanced",
    "ReferenceBlocked",
    "ReferenceBloom",
    "ReferenceChained",
    "ReferenceCountMin",
    "ReferenceCounting",
    "ReferenceFingerprint",
    "ReferenceFuse",
    "ReferenceHyperLogLog",
    "ReferenceMultilevel",
    "ReferencePaged",
    "ReferenceRing",
    "ReferenceSharded",
    "ReferenceWindow",
    "digest",
    "mix",
    "mulhi",
    "splitmix",
    "xxh3_64",
    "xxh3_128",
]
