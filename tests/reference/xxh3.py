"""XXH3-64 and XXH3-128 with a seed, after the published specification.

Source: Yann Collet, "xxHash fast digest algorithm", version 0.2.0, doc/xxhash_spec.md in
github.com/Cyan4973/xxHash; the names here are its names. The length of the input chooses the road:

    0 | 1 .. 3 | 4 .. 8 | 9 .. 16   small   one or two words, mixed with the secret
    17 .. 128 | 129 .. 240          medium  chunks of 16 bytes, each mixed, all summed
    241 ..                          large   8 accumulators; stripes of 64 bytes, blocks of 1024

Invariants: a word has 64 bits and arithmetic is modulo 2**64: a final ``& MASK`` takes in the whole
expression, since ``+`` and ``*`` bind tighter. Only a ``product`` has more bits. Bytes are read
little endian. XXH3-64 is the lower half of XXH3-128 for lengths 1 .. 3 and from 241 on, and has
nothing to do with it for the others.
"""

from __future__ import annotations

import struct
from typing import Final

MASK: Final = 2**64 - 1
MASK32: Final = 2**32 - 1

PRIME32_1: Final = 0x9E3779B1
PRIME32_2: Final = 0x85EBCA77
PRIME32_3: Final = 0xC2B2AE3D
PRIME64_1: Final = 0x9E3779B185EBCA87
PRIME64_2: Final = 0xC2B2AE3D27D4EB4F
PRIME64_3: Final = 0x165667B19E3779F9
PRIME64_4: Final = 0x85EBCA77C2B2AE63
PRIME64_5: Final = 0x27D4EB2F165667C5
PRIME_MX1: Final = 0x165667919E3779F9
PRIME_MX2: Final = 0x9FB21C651E98DF25

DEFAULT_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

STRIPE: Final = 64
STRIPES_PER_BLOCK: Final = (len(DEFAULT_SECRET) - STRIPE) // 8  # 16


def xxh3_64(data: bytes, seed: int = 0) -> int:
    """Return XXH3-64 of ``data`` as an int; ``seed`` is in 0 .. 2**64 - 1.

    Examples
    --------
    >>> hex(xxh3_64(b"evenbins"))
    '0xfca20501d9c88ac6'
    """
    length = len(data)
    if length == 0:
        return xxh3_64_empty(seed)
    if length <= 3:
        return xxh3_128_1to3(data, seed) & MASK
    if length <= 8:
        return xxh3_64_4to8(data, seed)
    if length <= 16:
        return xxh3_64_9to16(data, seed)
    if length <= 240:
        return xxh3_64_17to240(data, seed)
    return xxh3_128_large(data, seed) & MASK


def xxh3_128(data: bytes, seed: int = 0) -> int:
    """Return XXH3-128 of ``data`` as an int, its lower half in the low 64 bits.

    Examples
    --------
    >>> hex(xxh3_128(b"evenbins"))
    '0x2294a01c08f9f0879f3d123c766ba03f'
    """
    length = len(data)
    if length == 0:
        return xxh3_128_empty(seed)
    if length <= 3:
        return xxh3_128_1to3(data, seed)
    if length <= 8:
        return xxh3_128_4to8(data, seed)
    if length <= 16:
        return xxh3_128_9to16(data, seed)
    if length <= 240:
        return xxh3_128_17to240(data, seed)
    return xxh3_128_large(data, seed)


# Words and their mixing.


def words(data: bytes, start: int, count: int) -> tuple[int, ...]:
    """Read ``count`` 64-bit words from byte ``start`` on."""
    return struct.unpack_from(f"<{count}Q", data, start)


def words32(data: bytes, start: int, count: int) -> tuple[int, ...]:
    """Read ``count`` 32-bit words from byte ``start`` on."""
    return struct.unpack_from(f"<{count}I", data, start)


def bswap(x: int, size: int) -> int:
    """Reverse the bytes of a word of ``size`` bytes."""
    return int.from_bytes(x.to_bytes(size, "little"), "big")


def rotate_left(x: int, by: int, bits: int) -> int:
    """Rotate a word of ``bits`` bits."""
    return (x << by | x >> bits - by) & (1 << bits) - 1


def fold(a: int, b: int) -> int:
    """Multiply two words and XOR the halves of the product."""
    product = a * b
    return product & MASK ^ product >> 64


def join(low: int, high: int) -> int:
    """Make one 128-bit result of two halves."""
    return high << 64 | low


def avalanche(x: int) -> int:
    """Spread every bit of the state over the whole result."""
    x = (x ^ x >> 37) * PRIME_MX1 & MASK
    return x ^ x >> 32


def avalanche_xxh64(x: int) -> int:
    """Do the same as XXH64 does it: for the shortest inputs, which had no other mixing."""
    x = (x ^ x >> 33) * PRIME64_2 & MASK
    x = (x ^ x >> 29) * PRIME64_3 & MASK
    return x ^ x >> 32


# Small inputs: 0 .. 16 bytes.


def xxh3_64_empty(seed: int) -> int:
    """Hash no bytes at all: the seed and the secret remain."""
    s0, s1 = words(DEFAULT_SECRET, 56, 2)
    return avalanche_xxh64(seed ^ s0 ^ s1)


def xxh3_128_empty(seed: int) -> int:
    """Hash no bytes at all, to 128 bits."""
    s0, s1, s2, s3 = words(DEFAULT_SECRET, 64, 4)
    return join(avalanche_xxh64(seed ^ s0 ^ s1), avalanche_xxh64(seed ^ s2 ^ s3))


def xxh3_128_1to3(data: bytes, seed: int) -> int:
    """Hash one 32-bit word made of the bytes (the middle one may be the last) and the length."""
    length = len(data)
    combined = data[-1] | length << 8 | data[0] << 16 | data[length >> 1] << 24
    s0, s1, s2, s3 = words32(DEFAULT_SECRET, 0, 4)
    low = ((s0 ^ s1) + seed & MASK) ^ combined
    high = ((s2 ^ s3) - seed & MASK) ^ rotate_left(bswap(combined, 4), 13, bits=32)
    return join(avalanche_xxh64(low), avalanche_xxh64(high))


def modified_seed(seed: int) -> int:
    """XOR the byte-swapped lower half of the seed onto its higher half."""
    return seed ^ bswap(seed & MASK32, 4) << 32


def xxh3_64_4to8(data: bytes, seed: int) -> int:
    """Hash the first and the last four bytes, which may overlap."""
    (first,), (last,) = words32(data, 0, 1), words32(data, len(data) - 4, 1)
    s0, s1 = words(DEFAULT_SECRET, 8, 2)
    value = ((s0 ^ s1) - modified_seed(seed) & MASK) ^ (last | first << 32)
    value ^= rotate_left(value, 49, bits=64) ^ rotate_left(value, 24, bits=64)
    value = value * PRIME_MX2 & MASK
    value ^= (value >> 35) + len(data)
    value = value * PRIME_MX2 & MASK
    return value ^ value >> 28


def xxh3_128_4to8(data: bytes, seed: int) -> int:
    """Hash the first and the last four bytes, in the other order."""
    (first,), (last,) = words32(data, 0, 1), words32(data, len(data) - 4, 1)
    s0, s1 = words(DEFAULT_SECRET, 16, 2)
    value = ((s0 ^ s1) + modified_seed(seed) & MASK) ^ (first | last << 32)
    product = value * (PRIME64_1 + (len(data) << 2))
    low, high = product & MASK, product >> 64
    high = high + (low << 1) & MASK
    low ^= high >> 3
    low = (low ^ low >> 35) * PRIME_MX2 & MASK
    return join(low ^ low >> 28, avalanche(high))


def xxh3_64_9to16(data: bytes, seed: int) -> int:
    """Hash the first and the last eight bytes."""
    (first,), (last,) = words(data, 0, 1), words(data, len(data) - 8, 1)
    s0, s1, s2, s3 = words(DEFAULT_SECRET, 24, 4)
    low = ((s0 ^ s1) + seed & MASK) ^ first
    high = ((s2 ^ s3) - seed & MASK) ^ last
    return avalanche(len(data) + bswap(low, 8) + high + fold(low, high) & MASK)


def xxh3_128_9to16(data: bytes, seed: int) -> int:
    """Hash the first and the last eight bytes, by two long multiplications."""
    (first,), (last,) = words(data, 0, 1), words(data, len(data) - 8, 1)
    s0, s1, s2, s3 = words(DEFAULT_SECRET, 32, 4)
    val1 = ((s0 ^ s1) - seed & MASK) ^ first ^ last
    val2 = ((s2 ^ s3) + seed & MASK) ^ last
    product = val1 * PRIME64_1
    low = (product & MASK) + (len(data) - 1 << 54) & MASK
    high = (product >> 64) + val2 + (val2 & MASK32) * (PRIME32_2 - 1) & MASK
    product = join(low ^ bswap(high, 8), high) * PRIME64_2
    return join(avalanche(product & MASK), avalanche(product >> 64 & MASK))


# Medium inputs: 17 .. 240 bytes, in chunks of 16.


def mix_step(data: bytes, start: int, secret_offset: int, seed: int) -> int:
    """Mix the chunk at ``start`` with 16 bytes of the secret."""
    d0, d1 = words(data, start, 2)
    s0, s1 = words(DEFAULT_SECRET, secret_offset, 2)
    return fold(d0 ^ (s0 + seed & MASK), d1 ^ (s1 - seed & MASK))


def xxh3_64_17to240(data: bytes, seed: int) -> int:
    """Sum the mixed chunks; above 128 bytes the secret is used again, three bytes on."""
    length = len(data)
    acc = length * PRIME64_1
    if length <= 128:
        for i in range((length + 31) // 32):  # from both ends; the chunks meet or overlap
            acc += mix_step(data, 16 * i, 32 * i, seed)
            acc += mix_step(data, length - 16 * i - 16, 32 * i + 16, seed)
    else:
        for i in range(8):
            acc += mix_step(data, 16 * i, 16 * i, seed)
        acc = avalanche(acc & MASK)
        for i in range(8, length // 16):
            acc += mix_step(data, 16 * i, 16 * (i - 8) + 3, seed)
        acc += mix_step(data, length - 16, 119, seed)
    return avalanche(acc & MASK)


def mix_two_chunks(
    acc: tuple[int, int], data: bytes, starts: tuple[int, int], secret_offset: int, seed: int
) -> tuple[int, int]:
    """Mix two chunks into two accumulators, each chunk into both."""
    chunk0, chunk1 = (sum(words(data, start, 2)) & MASK for start in starts)
    mixed0 = mix_step(data, starts[0], secret_offset, seed)
    mixed1 = mix_step(data, starts[1], secret_offset + 16, seed)
    return (acc[0] + mixed0 & MASK) ^ chunk1, (acc[1] + mixed1 & MASK) ^ chunk0


def xxh3_128_17to240(data: bytes, seed: int) -> int:
    """Mix chunks two by two. XOR does not commute with the sums: here the order counts."""
    length = len(data)
    acc = length * PRIME64_1 & MASK, 0
    if length <= 128:
        for i in reversed(range((length + 31) // 32)):
            acc = mix_two_chunks(acc, data, (16 * i, length - 16 * i - 16), 32 * i, seed)
    else:
        for i in range(4):
            acc = mix_two_chunks(acc, data, (32 * i, 32 * i + 16), 32 * i, seed)
        acc = avalanche(acc[0]), avalanche(acc[1])
        for i in range(4, length // 32):
            acc = mix_two_chunks(acc, data, (32 * i, 32 * i + 16), 32 * (i - 4) + 3, seed)
        acc = mix_two_chunks(acc, data, (length - 16, length - 32), 103, -seed)
    low = acc[0] + acc[1]
    high = acc[0] * PRIME64_1 + acc[1] * PRIME64_4 + (length - seed) * PRIME64_2
    return join(avalanche(low & MASK), -avalanche(high & MASK) & MASK)


# Large inputs: from 241 bytes on, in stripes of 64 and blocks of 1024.


def derive_secret(seed: int) -> bytes:
    """Add the seed to every even word of the secret and subtract it from every odd one."""
    secret = words(DEFAULT_SECRET, 0, 24)
    return struct.pack("<24Q", *(s + (-seed if i % 2 else seed) & MASK for i, s in enumerate(secret)))


def accumulate(acc: list[int], data: bytes, start: int, secret: bytes, secret_offset: int) -> None:
    """Take the stripe at ``start`` into the accumulators, each of its words into two of them."""
    stripe = words(data, start, 8)
    for i, (word, s) in enumerate(zip(stripe, words(secret, secret_offset, 8), strict=True)):
        value = word ^ s
        acc[i ^ 1] = acc[i ^ 1] + word & MASK
        acc[i] = acc[i] + (value & MASK32) * (value >> 32) & MASK


def scramble(acc: list[int], secret: bytes) -> None:
    """Stir the accumulators after a block with the end of the secret."""
    for i, s in enumerate(words(secret, len(secret) - STRIPE, 8)):
        acc[i] = (acc[i] ^ acc[i] >> 47 ^ s) * PRIME32_1 & MASK


def final_merge(acc: list[int], init_value: int, secret: bytes, secret_offset: int) -> int:
    """Merge the accumulators into one word, in pairs."""
    keyed = [a ^ s for a, s in zip(acc, words(secret, secret_offset, 8), strict=True)]
    pairs = zip(keyed[::2], keyed[1::2], strict=True)
    return avalanche(init_value + sum(fold(a, b) for a, b in pairs) & MASK)


def xxh3_128_large(data: bytes, seed: int) -> int:
    """Accumulate stripe by stripe, scramble after each block but the last, merge twice."""
    length = len(data)
    secret = derive_secret(seed)
    acc = [
        PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3,
        PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1,
    ]  # fmt: skip
    # The last stripe is the last 64 bytes, whatever their alignment, and has its own secret.
    for n in range((length - 1) // STRIPE):
        in_block = n % STRIPES_PER_BLOCK
        accumulate(acc, data, STRIPE * n, secret, 8 * in_block)
        if in_block == STRIPES_PER_BLOCK - 1:
            scramble(acc, secret)
    accumulate(acc, data, length - STRIPE, secret, len(secret) - 71)

    low = final_merge(acc, length * PRIME64_1, secret, 11)
    high = final_merge(acc, ~(length * PRIME64_2), secret, len(secret) - 75)
    return join(low, high)
