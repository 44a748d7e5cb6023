"""The count-min sketch (kirsch, section 3.8): what its counters promise, and primes for its rows.

Both bounds hold for any stream that does not know the seed; they come from Markov's inequality, so what is
measured lies far below them. Theorem 3.8.1 is printed with "δ ≥ ln 1/ε(1 − 1/2e²)": the proof needs that of
the *depth*. Section 3.8.2 builds 2⌈…⌉ copies where ⌈…⌉ copies with two hash functions each are meant.
"""

from __future__ import annotations

__all__ = ["classic_failure", "is_prime", "next_prime", "two_hash_failure"]


def classic_failure(epsilon: float, width: int, depth: int) -> float:
    """Bound the probability that an estimate is too large by more than epsilon * total: (1/(εw))^d.

    Examples
    --------
    >>> round(classic_failure(1e-3, 2719, 7), 6)
    0.00091
    """
    return min(1.0, 1 / (epsilon * width)) ** depth


def two_hash_failure(epsilon: float, width: int, depth: int, copies: int = 1) -> float:
    """Bound the same for the two-hash construction: Theorem 3.8.1, to the power of the copies.

    Examples
    --------
    >>> two_hash_failure(1e-3, 5437, 7) <= 1e-3
    True
    """
    meets_everywhere = 2 / (epsilon * width**2)
    return min(1.0, meets_everywhere + (2 / (epsilon * width)) ** depth) ** copies


def is_prime(n: int) -> bool:
    """Return whether n < 2**64 is prime (Miller-Rabin, with the bases that decide it up to there).

    Examples
    --------
    >>> [n for n in range(30) if is_prime(n)]
    [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    """
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    if n < 2 or any(n % p == 0 for p in bases):
        return n in bases
    twos = ((n - 1) & -(n - 1)).bit_length() - 1
    for base in bases:
        x = pow(base, (n - 1) >> twos, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def next_prime(n: int) -> int:
    """Return the least prime that is at least n.

    Examples
    --------
    >>> next_prime(5437), next_prime(5438)
    (5437, 5441)
    """
    n = max(2, n)
    while not is_prime(n):
        n += 1
    return n
