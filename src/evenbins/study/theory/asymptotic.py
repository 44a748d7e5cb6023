"""False-positive rates by the formulas of textbooks and papers, to compare with the exact ones of `fpr`.

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient Balanced Bloom Filters" (2013), section 9, for
`balanced_asymptotic`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory.fpr import checked_sizes, digest_floor

__all__ = ["balanced_asymptotic", "blocked_asymptotic", "partitioned", "poisson_loads", "standard_asymptotic"]

Vector = npt.NDArray[np.float64]


def partitioned(bits: int, hashes: int, keys: int) -> float:
    """Predict the rate of a standard filter cut into `hashes` parts, one bit a key in each.

    The product over the parts of P(a bit is set) = 1 - (1 - 1/size)**keys, and the digest floor;
    exact, since the parts are independent. Their sizes are equal, or differ by one bit where
    `hashes` does not divide `bits` (which must be at least `hashes`).
    """
    bits, hashes, keys = checked_sizes(bits=bits, hashes=hashes, keys=keys)
    if bits < hashes:
        raise arguments.error("bits", f"at least hashes={hashes}, one for each part", bits, "Pass more bits")
    if keys == 0:
        return 0.0
    size, larger = divmod(bits, hashes)
    rate = 1.0 if size == 1 else (-math.expm1(keys * math.log1p(-1 / size))) ** (hashes - larger)
    if larger:
        rate *= (-math.expm1(keys * math.log1p(-1 / (size + 1)))) ** larger
    return rate + (1.0 - rate) * digest_floor(keys)


def balanced_asymptotic(
    occupancy: Sequence[float] | Vector, block_bits: int, counter_bits: int, hashes: int, miss_reads: float
) -> float:
    """Compute the paper's miss_reads * sum of P(i)*(1 - exp(-hashes*i/(block_bits - counter_bits)))**hashes.

    For comparison only (kanizo, section 9.1; `miss_reads` is its E(P), `occupancy` its P): every
    level is taken to have one distribution of loads, and the block to be large. Too low, like
    `blocked_asymptotic`.
    """
    block_bits, hashes = checked_sizes(block_bits=block_bits, hashes=hashes)
    remedy = "Pass the bits of a block's counter"
    counter_bits = arguments.integer("counter_bits", counter_bits, 0, block_bits - 1, remedy)
    chance = np.asarray(occupancy, dtype=np.float64)
    fill = -np.expm1(-hashes * np.arange(len(chance)) / (block_bits - counter_bits))
    return float(miss_reads * (chance @ fill**hashes))


def standard_asymptotic(bits: int, hashes: int, keys: int) -> float:
    """Compute the textbook's (1 - exp(-hashes*keys/bits))**hashes: for comparison, too low."""
    bits, hashes, keys = checked_sizes(bits=bits, hashes=hashes, keys=keys)
    return float((-math.expm1(-hashes * keys / bits)) ** hashes)


def blocked_asymptotic(blocks: int, block_bits: int, hashes: int, keys: int) -> float:
    """Sum the literature's (1 - exp(-hashes*i/block_bits))**hashes over Poisson loads i.

    For comparison only, since a block is too small for the limit: too low by 3 % at 16 bits per
    key and by 9 % at 39 (512-bit blocks), by almost twice as much with 256-bit blocks.
    """
    blocks, block_bits, hashes, keys = checked_sizes(
        blocks=blocks, block_bits=block_bits, hashes=hashes, keys=keys
    )
    first, weights = poisson_loads(keys / blocks)
    loads = first + np.arange(len(weights))
    return float(weights @ (-np.expm1(-hashes * loads / block_bits)) ** hashes)


def poisson_loads(load: float) -> tuple[int, Vector]:
    """Return first index and weights of Poisson(`load`): all but a tail of about 1e-40 on each side.

    Ratios outward from the mode, then normalised: no logarithm of a large factorial to lose digits.
    """
    if not (math.isfinite(load) and load >= 0):
        raise ValueError(f"load must be a finite number of keys, at least 0; got {load!r}")
    mode = int(load)
    reach = int(15 * math.sqrt(load)) + 60
    low = max(mode - reach, 0)
    up = np.cumprod(load / np.arange(mode + 1.0, mode + reach + 1.0))
    down = np.cumprod(np.arange(float(mode), float(low), -1.0) / load) if mode else np.empty(0)
    weights = np.concatenate([down[::-1], [1.0], up])
    return low, weights / weights.sum()
