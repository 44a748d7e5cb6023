"""A fingerprint filter grows from its first size to its last: how long the longest `add` takes.

    python tools/growth_study.py --first 1e6 --keys 256e6

Every `add` is timed, from C++. For each size that the filter goes through: the mean, and the longest calls.
In the end it checks that no key is lost, that the measured rate is the one planned for, within five standard
deviations, and that a look-up reads one line. The longest times contain whatever else the machine does,
unless --alone is given.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from evenbins import FingerprintFilter, _core, digest_many

PIECE = 1 << 18
ABSENT = 10_000_000
Words = npt.NDArray[np.uint64]


def digests(first: int, end: int) -> Words:
    """Return the digests of the integers from `first` to `end` - 1."""
    return digest_many(np.arange(first, end))


def pieces(end: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of pieces of 0 … end - 1, and show how far they have come."""
    for first in range(0, end, PIECE):
        yield first, min(first + PIECE, end)
        if sys.stderr.isatty():
            done = min(first + PIECE, end) / end
            print(f"\r{'█' * round(40 * done):40} {done:4.0%}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r" + " " * 46 + "\r", end="", file=sys.stderr)


def grow(f: FingerprintFilter, keys: int, *, alone: bool) -> int:
    """Add the keys one by one, print the times of each size, and return the longest in nanoseconds."""
    names = ("capacity", "bits/key", "keys timed", "mean ns", "99.99 % µs", "longest µs")
    print("".join(f"{name:>12}" for name in names))
    longest, size, times = 0, f.capacity, [np.empty(0, np.uint32)]
    for first, end in pieces(keys):
        times.append(_core.time_additions(f, digests(first, end), alone))
        if f.capacity == size and end < keys:
            continue
        of_size = np.concatenate(times)
        high, worst = np.quantile(of_size, 0.9999) / 1e3, of_size.max() / 1e3
        bits = f.plan.bits_per_key
        print(
            f"{f.capacity:12} {bits:8.1f} {len(of_size):12} {of_size.mean():8.0f} {high:10.1f} {worst:10.1f}"
        )
        longest, size, times = max(longest, int(of_size.max())), f.capacity, []
    return longest


def main() -> None:
    """Run the study as the arguments say; exit with 1 if something is not as promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=float, default=1e6, help="keys to begin with")
    parser.add_argument("--keys", type=float, default=256e6, help="keys to grow to")
    parser.add_argument("--fpr", type=float, default=1e-3, help="false-positive rate in the end")
    parser.add_argument("--most", type=float, default=5.0, help="milliseconds that an add may take")
    parser.add_argument("--alone", action="store_true", help="leave out the time that other processes took")
    options = parser.parse_args()
    keys = int(options.keys)
    f = FingerprintFilter(options.first, options.fpr, max_capacity=keys)
    longest = grow(f, keys, alone=options.alone)
    lost = sum(
        int((~f.contains_many(digests(first, end), digests=True)).sum()) for first, end in pieces(keys)
    )
    found = f.stats()
    false = int(f.contains_many(digests(keys, keys + ABSENT), digests=True).sum())
    expected = found.fpr * ABSENT
    right = {
        f"longest add {longest / 1e6:.2f} ms, at most {options.most:g}": longest <= options.most * 1e6,
        f"{lost} of {keys} keys lost": lost == 0,
        f"rate {found.fpr:.3e}, at most {options.fpr:g}": found.fpr <= options.fpr,
        f"{false} false positives of {ABSENT}, expected {expected:.0f}": abs(false - expected)
        <= 5 * expected**0.5,
        f"{found.reads:.3f} lines read per look-up, {found.miss_reads:.3f} of an absent key": found.reads
        <= 1.05,
    }
    for text, holds in right.items():
        print("yes" if holds else "NO ", text)
    sys.exit(not all(right.values()))


if __name__ == "__main__":
    main()
