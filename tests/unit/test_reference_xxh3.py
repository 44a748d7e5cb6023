"""The pure-Python XXH3 against the `xxhash` package, bit for bit."""

from __future__ import annotations

import random

import pytest
import xxhash

from reference.xxh3 import xxh3_64, xxh3_128

RNG = random.Random(20240607)
DATA = RNG.randbytes(4096)
SEEDS = [0, 1, 2**64 - 1, RNG.getrandbits(64), RNG.getrandbits(64)]


@pytest.mark.parametrize("seed", SEEDS, ids=hex)
def test_every_length_up_to_2048_agrees_with_xxhash(seed: int) -> None:
    for length in range(2049):
        data = DATA[length : 2 * length]  # no two inputs share a beginning
        assert xxh3_64(data, seed) == xxhash.xxh3_64_intdigest(data, seed), length
        assert xxh3_128(data, seed) == xxhash.xxh3_128_intdigest(data, seed), length


@pytest.mark.parametrize("length", [3071, 3072, 3073, 3135, 3136, 3137, 4096])
def test_several_blocks_agree_with_xxhash(length: int) -> None:
    data = DATA[:length]
    assert xxh3_64(data, 7) == xxhash.xxh3_64_intdigest(data, 7)
    assert xxh3_128(data, 7) == xxhash.xxh3_128_intdigest(data, 7)


@pytest.mark.parametrize("fill", [b"\x00", b"\xff"])
def test_uniform_bytes_agree_with_xxhash(fill: bytes) -> None:
    """Carries and borrows at their extremes."""
    for length in [*range(260), 1024, 1025, 2048]:
        data = fill * length
        for seed in SEEDS:
            assert xxh3_64(data, seed) == xxhash.xxh3_64_intdigest(data, seed), length
            assert xxh3_128(data, seed) == xxhash.xxh3_128_intdigest(data, seed), length


def test_the_64_bit_digest_is_the_lower_half_of_the_128_bit_one_as_the_head_says() -> None:
    for length in range(300):
        data = DATA[:length]
        is_half = xxh3_64(data) == xxh3_128(data) & (2**64 - 1)
        assert is_half == (1 <= length <= 3 or length > 240), length
