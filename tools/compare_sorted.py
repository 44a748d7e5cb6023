"""Time random look-ups in a sorted array and in a MultilevelTable: ten million keys (docs/explain)."""

from __future__ import annotations

import time

import numpy as np

from evenbins import MultilevelTable

KEYS, ASKED, ROUNDS = 10_000_000, 1_000_000, 3


def main() -> None:
    """Print the times of each round, and the bytes of a key."""
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**63, KEYS)
    values = np.arange(KEYS)
    table = MultilevelTable(KEYS)
    table.insert_many(keys, values)
    order = np.argsort(keys)
    sorted_keys, sorted_values = keys[order], values[order]
    asked = rng.permutation(keys)[:ASKED]
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        found = table.get_many(asked)
        middle = time.perf_counter()
        expected = sorted_values[np.searchsorted(sorted_keys, asked)]
        ended = time.perf_counter()
        if not (found == expected).all():
            raise AssertionError("table and sorted array differ")
        ours, theirs = 1e9 * (middle - begun) / ASKED, 1e9 * (ended - middle) / ASKED
        print(f"get_many {ours:.0f} ns, np.searchsorted {theirs:.0f} ns a key")
    print(f"bytes a key: {table.nbytes / KEYS:.2f} and 16")


if __name__ == "__main__":
    main()
