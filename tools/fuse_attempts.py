"""How often blocks of fuse filters fail and are tried again: measured, beside what pairs of keys explain.

    python tools/fuse_attempts.py

theory/fuse.py sizes blocks so that two keys with all three slots in common are the one reason to fail: about
keys / (2.25 * segment_length**2) of the blocks. A shape with too few slots would fail far more often.
"""

from __future__ import annotations

import numpy as np

from evenbins import FuseFilter
from evenbins.theory import fuse

_KEYS = 20_000_000  # for each size


def main() -> None:
    """Print a line for each size."""
    print("    keys  slots/key   filters   retried   by pairs")
    rng = np.random.default_rng(1)
    for keys in (10, 100, 1000, 10_000, 100_000, 300_000, 700_000, 1_048_576, 1_400_000, 2_000_000):
        shape, count = fuse.shape(keys), min(max(_KEYS // keys, 10), 4000)
        retried = 0
        for _ in range(count):
            digests = rng.integers(0, 2**64, keys, dtype=np.uint64)
            retried += FuseFilter.from_keys(digests, 2**-8, digests=True).stats().retried
        pairs = keys / (2.25 * shape.segment_length**2)
        print(
            f"{keys:8} {shape.slots / keys:10.3f} {count:9} {retried / count:9.4f} {pairs:10.4f}", flush=True
        )


if __name__ == "__main__":
    main()
