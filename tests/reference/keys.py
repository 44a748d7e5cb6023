"""From a key to its 64-bit digest, and the arithmetic the filters draw positions with.

A ``str`` is its UTF-8 bytes, and bytes go through XXH3-64 with the seed. An ``int`` goes through
"moremur" (Pelle Evensen, "Stronger, better, morer, Moremur", 2019), a bijection of 64-bit words,
here keyed twice by words drawn from the seed:

    x ──^ a──▶ shift, multiply ──+ b──▶ shift, multiply, shift ──▶ digest

Invariants: for one seed, no two integers of one sign share a digest. ``a`` depends on the sign, so
-1 and 2**64 - 1 differ, though both are the same 64-bit word. ``"a"`` and ``b"a"`` are one key; an
int and its bytes are two, whose digests are equal by chance alone. All arithmetic is modulo 2**64.

``mix`` and ``splitmix`` are SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014; the constants of Vigna's splitmix64.c).
"""

from __future__ import annotations

import operator
from typing import Final, SupportsIndex

from reference.xxh3 import xxh3_64

MASK: Final = 2**64 - 1
PHI: Final = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio, odd: the step of SplitMix64


def mix(z: int) -> int:
    """SplitMix64's finaliser: a bijection of 64-bit words whose output bits look independent."""
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def splitmix(seed: int, i: int) -> int:
    """Output number ``i`` (from 0) of SplitMix64 started at ``seed``."""
    return mix((seed + (i + 1) * PHI) & MASK)


def mulhi(x: int, m: int) -> int:
    """Map the 64-bit word ``x`` onto 0 .. m-1: the high word of the product, no division."""
    return (x * m) >> 64


def digest(key: object, seed: int = 0) -> int:
    """Return the 64-bit digest of ``key``.

    Raises
    ------
    TypeError
        ``key`` is no str, bytes-like or int (floats, None, arrays).
    ValueError
        ``key`` is a str with lone surrogates or an int outside -2**63 .. 2**64 - 1, or ``seed``
        is outside 0 .. 2**64 - 1.

    Examples
    --------
    >>> digest("a") == digest(b"a")
    True
    >>> digest(-1) == digest(2**64 - 1)
    False
    """
    seed = checked_seed(seed)
    value = canonical(key)
    return digest_of_int(value, seed) if isinstance(value, int) else xxh3_64(value, seed)


def digest_of_int(x: int, seed: int) -> int:
    """Moremur, keyed by three words of the seed: one for each sign, one in the middle."""
    a = splitmix(seed, 0) if x >= 0 else splitmix(seed, 2)
    b = splitmix(seed, 1)
    z = (x & MASK) ^ a
    z = ((z ^ z >> 27) * 0x3C79AC492BA7B653 + b) & MASK
    z = ((z ^ z >> 33) * 0x1C69B3F74AC4AE35) & MASK
    return z ^ z >> 27


def canonical(key: object) -> int | bytes:
    """Return what ``key`` stands for, an int in range or bytes; refuse everything else."""
    if isinstance(key, str):
        try:
            return str.encode(key, "utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                "key must be a str that UTF-8 can encode, got a lone surrogate at index "
                f"{error.start}; pass key.encode('utf-8', 'surrogatepass') instead"
            ) from error
    if isinstance(key, bytes):
        return memoryview(key).tobytes()

    # NumPy, known by its protocol and so without importing it. Arrays have a length, scalars have
    # none. Both export buffers, and an array of one integer has __index__ too: ask here, first.
    from_numpy = hasattr(type(key), "__array__")
    if from_numpy and hasattr(type(key), "__len__"):
        raise TypeError(
            f"key must be one str, bytes-like or int, got {type(key).__name__}; "
            "arrays are keys of the calls that end in _many"
        )
    if from_numpy and str(getattr(key, "dtype", None)) == "bool":
        return int(bool(key))  # numpy.bool has no __index__

    if isinstance(key, SupportsIndex):
        return in_range(operator.index(key))
    if not from_numpy:
        try:
            view = memoryview(key)  # type: ignore[arg-type]
        except TypeError:
            pass
        else:
            if view.itemsize == 1:
                return view.tobytes()
            raise TypeError(f"key must have items of one byte, got {view.itemsize}; pass bytes(key)")
    raise TypeError(
        f"key must be str, bytes-like or int, got {type(key).__name__}; "
        "pass str(key), or the bytes that identify it"
    )


def in_range(x: int) -> int:
    """Return ``x`` if it fits a signed or an unsigned 64-bit word."""
    if -(2**63) <= x < 2**64:
        return x
    raise ValueError(
        f"key must be an int in -2**63 .. 2**64 - 1, got {hex(x):.40}; pass its bytes or str(key)"
    )


def checked_seed(seed: int) -> int:
    """Return ``seed`` if it is an unsigned 64-bit word."""
    if 0 <= (seed := operator.index(seed)) < 2**64:
        return seed
    raise ValueError(f"seed must be in 0 .. 2**64 - 1, got {hex(seed):.40}")
