"""Every kernel on few keys: a program for compute-sanitizer (tools/gpu_tests.py)."""

from __future__ import annotations

import cupy
import numpy as np

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    CountMinSketch,
    FingerprintFilter,
    cuda,
)
from evenbins.cuda import _partition


def main() -> None:
    keys = np.arange(20_001, dtype=np.uint64) * np.uint64(7919) % np.uint64(9000)
    for f in (
        BlockedBloomFilter(300_000, bits_per_key=16, hashes=10),
        BlockedBloomFilter(20_000, bits_per_key=16, hashes=8, block_bits=256),
        BloomFilter(20_000, bits_per_key=16, hashes=10),
    ):
        for by_regions, one_pass in ((False, 512), (True, 512), (True, 1)):
            _partition.pays = lambda table, n, by_regions=by_regions: by_regions
            _partition._ONE_PASS = one_pass
            g, h = cuda.to_device(f), f.copy()
            g.add_many(cupy.asarray(keys[:777]))
            h.add_many(keys[:777])
            assert np.array_equal(g.add_new_many(cupy.asarray(keys)).get(), h.add_new_many(keys))
            assert np.array_equal(g.contains_many(cupy.asarray(keys)).get(), h.contains_many(keys))
            assert g.to_host() == h
    for other in (
        FingerprintFilter(9500, fpr=1e-3, semantics="set"),
        FingerprintFilter(9500, fpr=0.1, semantics="set"),
        BalancedBloomFilter(9500, bits_per_key=20, policy="fill"),
        BalancedBloomFilter(9500, bits_per_key=24, policy="single"),
    ):
        made, same = cuda.to_device(other), other.copy()
        for part in (keys[:777], keys):
            assert np.array_equal(made.add_new_many(cupy.asarray(part)).get(), same.add_new_many(part))
        assert np.array_equal(made.contains_many(cupy.asarray(keys)).get(), same.contains_many(keys))
        assert made.to_host().to_bytes() == same.to_bytes()
        assert made.stats() == same.stats()
    s = CountMinSketch(1e-2, 1e-3)
    sketch = cuda.to_device(s)
    sketch.add_many(cupy.asarray(keys), keys)
    s.add_many(keys, keys)
    assert np.array_equal(sketch.count_many(cupy.asarray(keys)).get(), s.count_many(keys))
    assert sketch.to_host() == s
    print("every kernel gave the bytes of the CPU")


if __name__ == "__main__":
    main()
