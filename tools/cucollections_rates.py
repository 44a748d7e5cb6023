"""False-positive rates of cuCollections' blocked filter beside ours, at equal memory and at equal rate.

    python tools/cucollections_rates.py

Needs no GPU. Its layout of 2024 (default_filter_policy_impl.cuh): blocks of eight 32-bit words, one bit in
each. The block is the hash modulo the number of blocks; word w has its bit from bits 5w … 5w+4 of the same
hash. If 2**z divides the number of blocks, all keys of a block share the last z bits of their hashes, and
with them their bits in the first words. The rate follows from the words that are left: `rate`. Its benchmark
of 2,000 MB has 2**19 * 125 blocks; `rate` gives what was published for it to a part in a thousand.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.stats import poisson

from evenbins.filters.blocked import plan_blocked

WORDS, WORD_BITS, INDEX_BITS = 8, 32, 5
PUBLISHED_MB, PUBLISHED_KEYS, PUBLISHED_RATE = 2000, 400_000_000, 0.0017157


def rate(bits_per_key: float, blocks: int) -> float:
    """Return the false-positive rate of the layout for uniform hashes and so many blocks."""
    keys = np.arange(4000)
    hit = np.ones(keys.size)
    shared = (blocks & -blocks).bit_length() - 1
    for _ in range(WORDS):
        fixed = min(shared, INDEX_BITS)
        shared -= fixed
        hit *= 1 - (1 - 1 / (WORD_BITS >> fixed)) ** keys
    return float(poisson.pmf(keys, WORDS * WORD_BITS / bits_per_key) @ hit)


def main() -> None:
    """Print the computed part of the table of docs/gpu.md."""
    blocks = PUBLISHED_MB * 2**20 * 8 // (WORDS * WORD_BITS)
    per_key = PUBLISHED_MB * 2**20 * 8 / PUBLISHED_KEYS
    print(
        f"{PUBLISHED_MB} MB, {per_key:.1f} bits per key: {rate(per_key, blocks):.5f} computed, "
        f"{PUBLISHED_RATE:.5f} published"
    )
    ours = plan_blocked(2_000_000_000, bits_per_key=16, hashes=10).fpr
    print(f"16 bits per key: ours {ours:.3%}")
    for name, count in (("2**19 * 125 blocks", blocks), ("an odd number of blocks", blocks + 1)):
        needed = brentq(lambda bits, count=count: rate(bits, count) - ours, 8, 400)
        theirs = rate(16, count)
        same = plan_blocked(2_000_000_000, fpr=theirs).bits_per_key
        print(
            f"  {name}: {theirs:.2%} at 16 bits per key, for which ours takes {same:.1f}; "
            f"{needed:.1f} bits for our rate"
        )
    same = plan_blocked(2_000_000_000, fpr=PUBLISHED_RATE).bits_per_key
    print(f"ours at {PUBLISHED_RATE:.5f}: {same:.1f} bits")


if __name__ == "__main__":
    main()
