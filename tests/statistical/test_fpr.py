"""False-positive rates: counted, computed from the bits, and predicted, three numbers that must agree.

The prediction `plan.fpr` is an expectation over filters. One filter's own rate, `stats().fpr`, scatters
around it, since its keys happened to set a few bits more or fewer; and the count of false positives among
absent keys scatters around the filter's own rate. So an interval has two parts, and each part is checked
by itself, where nothing of the other blurs it:

    plan.fpr ───── bits ─────▶ stats().fpr ───── answers ─────▶ counted false positives
                derived sd                     binomial, exact

answers  Given the bits, an absent key with an ideal hash is a false positive with probability stats().fpr,
         independently of the others: the count is binomial. Over several filters it is a sum of binomials,
         which scatters less than the binomial of their mean rate (Hoeffding 1956): the interval errs on
         the wide side.
bits     The mean of stats().fpr over the filters, by its sd between filters, which is derived below.
         Standard: it is (X/m)^k, and X, the number of set bits after t throws, has the variance of
         classical occupancy; then the delta method (small filters: the exact distribution of X).
         Blocked: the mean of g(x) = (x/B)^k over b blocks, so that Var = Var g / b + (1 − 1/b)·Cov, with the
         covariance of two blocks, which share a fixed number of keys; both exact, from the distribution of
         a block's set bits given its keys. The tails are not quite normal: both ends move outwards by the
         Cornish-Fisher term of the skewness, which is taken too large rather than too small.
rate     The count against plan.fpr, with both variances: the sentence a user reads.

Every interval is two-sided at 1e-6 and every seed is fixed. `surprises` returns the checks that are out of
their interval; the power tests show that weak digests do not pass it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from evenbins import BlockedBloomFilter, BloomFilter, FilterPlan, digest_many
from evenbins.theory import block
from evenbins.theory import fpr as theory

LEVEL = 1e-6
Z = float(stats.norm.isf(LEVEL / 2))
PHI = 0x9E3779B97F4A7C15

Keys = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]
AnyFilter = BloomFilter | BlockedBloomFilter


def blocked_256(capacity: int, **arguments: Any) -> BlockedBloomFilter:
    return BlockedBloomFilter(capacity, block_bits=256, **arguments)


DESIGNS: dict[str, Callable[..., AnyFilter]] = {
    "standard": BloomFilter,
    "blocked": BlockedBloomFilter,
    "blocked 256": blocked_256,
}
each_design = pytest.mark.parametrize("design", DESIGNS)


# --- how much filters scatter --------------------------------------------------------------------


@dataclass(frozen=True)
class Scatter:
    """Mean, standard deviation and a bound of the skewness of a number, over filters."""

    mean: float
    sd: float
    skew: float

    def of_mean(self, filters: int) -> Scatter:
        """Give the scatter of the mean of several filters."""
        return Scatter(self.mean, self.sd / math.sqrt(filters), self.skew / math.sqrt(filters))

    def plus(self, sd: float) -> Scatter:
        """Add an independent deviation without skewness."""
        total = math.hypot(self.sd, sd)
        return Scatter(self.mean, total, self.skew * (self.sd / total) ** 3)

    def interval(self) -> tuple[float, float]:
        reach = self.sd * (Z + abs(self.skew) * (Z**2 - 1) / 6)
        return self.mean - reach, self.mean + reach


def moments(chance: Vector, value: Vector) -> Scatter:
    mean = float(chance @ value)
    variance, third = (float(chance @ (value - mean) ** n) for n in (2, 3))
    return Scatter(mean, math.sqrt(variance), third / variance**1.5)


def set_bits_of_standard(bits: int, throws: int) -> Scatter:
    """Classical occupancy: mean and sd of the number of set bits, written so that nothing cancels."""
    log_unset = throws * math.log1p(-1 / bits)
    unset = math.exp(log_unset)
    together = math.exp(2 * log_unset) * math.expm1(throws * math.log1p(-1 / (bits - 1) ** 2))
    variance = bits * unset * (1 - unset) + bits * (bits - 1) * together
    return Scatter(-bits * math.expm1(log_unset), math.sqrt(variance), 0.0)


@cache
def scatter_of_standard(bits: int, hashes: int, keys: int) -> Scatter:
    """Of (X/m)^k."""
    if keys * hashes <= 5000:
        chance = theory.occupancy(bits, keys * hashes)
        return moments(chance, (np.arange(len(chance)) / bits) ** hashes)
    set_bits = set_bits_of_standard(bits, keys * hashes)
    relative = hashes * set_bits.sd / set_bits.mean
    rate = (set_bits.mean / bits) ** hashes
    return Scatter(theory.standard(bits, hashes, keys), rate * relative, 3 * (hashes - 1) / hashes * relative)


@cache
def scatter_of_blocks(blocks: int, block_bits: int, hashes: int, keys: int, power: int) -> Scatter:
    """Of the mean of g(x) = (x/B)^power over all blocks; power = 1 is the fill."""
    loads = np.arange(keys + 1)
    likely = stats.binom.pmf(loads, keys, 1 / blocks) > 1e-18
    loads = loads[likely]
    chance = stats.binom.pmf(loads, keys, 1 / blocks)

    g = (np.arange(block_bits + 1) / block_bits) ** power
    throw = np.diag(np.arange(block_bits + 1) / block_bits) + np.diag(
        1 - np.arange(block_bits) / block_bits, 1
    )
    key = np.linalg.matrix_power(throw, hashes)
    given = np.zeros((len(loads), block_bits + 1))  # the set bits of a block, for each number of its keys
    given[0] = np.linalg.matrix_power(key, int(loads[0]))[0]
    for i in range(1, len(loads)):
        given[i] = given[i - 1] @ key

    block = moments(chance @ given, g)
    if blocks == 1:
        return block
    excess = given @ g - block.mean
    other = stats.binom.pmf(loads[None, :], keys - loads[:, None], 1 / (blocks - 1))  # a second block's keys
    covariance = float((chance * excess) @ (other @ excess))
    variance = block.sd**2 / blocks + (1 - 1 / blocks) * covariance
    return Scatter(
        block.mean, math.sqrt(variance), block.skew * (block.sd / blocks) ** 3 * blocks / variance**1.5
    )


def scatter_of_fpr(plan: FilterPlan, keys: int) -> Scatter:
    """How stats().fpr scatters between filters of this plan with that many keys."""
    if plan.policy == "standard":
        bits, hashes = plan.core
        return scatter_of_standard(bits, hashes, keys)
    blocks, block_bits, hashes = plan.core
    return scatter_of_blocks(blocks, block_bits, hashes, keys, hashes)


def scatter_of_approx_items(plan: FilterPlan, keys: int) -> Scatter:
    """How approx_items() scatters: the deviation of the set bits over their growth by one key."""
    if plan.policy == "standard":
        bits, hashes = plan.core
        sd = set_bits_of_standard(bits, keys * hashes).sd / bits
        now, next_ = (theory.standard_fill(bits, hashes, n) for n in (keys, keys + 1))
    else:
        blocks, block_bits, hashes = plan.core
        sd = scatter_of_blocks(blocks, block_bits, hashes, keys, 1).sd
        now, next_ = (theory.blocked_fill(blocks, block_bits, hashes, n) for n in (keys, keys + 1))
    return Scatter(keys, sd / (next_ - now), 0.0)


# --- measuring -----------------------------------------------------------------------------------


@dataclass
class Measured:
    """Several filters of one design, each with its own seed, and what they said of absent keys."""

    keys: int
    plan: FilterPlan
    queries: int = 0
    false_positives: int = 0
    own: list[float] = field(default_factory=list)  # stats().fpr of each filter


def measure(
    design: str,
    rate: float,
    keys_and_absent: Callable[[int], tuple[Keys, Keys]],
    *,
    filters: int = 1,
    digests: bool = False,
) -> Measured:
    """Build filters with the seeds 0, 1, …, planned for the keys of that seed, and query the absent ones."""
    found: Measured | None = None
    for seed in range(filters):
        keys, absent = keys_and_absent(seed)
        f = DESIGNS[design](len(keys), fpr=rate, seed=seed)
        f.add_many(keys, digests=digests)
        found = found or Measured(keys=len(keys), plan=f.plan)
        found.queries += len(absent)
        found.false_positives += int(f.contains_many(absent, digests=digests).sum())
        found.own.append(f.stats().fpr)
        assert f.contains_many(keys[:1000], digests=digests).all()
    assert found is not None
    return found


def surprises(found: Measured) -> list[str]:
    """Name the checks that are out of their interval, with the numbers; none if the hash is sound."""
    out = []

    def check(name: str, value: float, low: float, high: float) -> None:
        if not low <= value <= high:
            out.append(f"{name}: {value:.6g} is not in {low:.6g} … {high:.6g} ({found.plan.core})")

    own = float(np.mean(found.own))
    low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], found.queries, own)
    check("answers", found.false_positives, low, high)

    predicted = scatter_of_fpr(found.plan, found.keys).of_mean(len(found.own))
    assert math.isclose(predicted.mean, found.plan.fpr, rel_tol=1e-6)
    check("bits", own, *predicted.interval())

    counting = math.sqrt(predicted.mean * (1 - predicted.mean) / found.queries)
    check("rate", found.false_positives / found.queries, *predicted.plus(counting).interval())
    return out


def random_keys(keys: int, absent: int) -> Callable[[int], tuple[Keys, Keys]]:
    """Draw random 64-bit integers: that an absent one is a key has a chance below 1e-6 a test."""

    def draw(seed: int) -> tuple[Keys, Keys]:
        rng = np.random.default_rng([20_240_601, seed])
        drawn = rng.integers(0, 2**64, keys + absent, dtype=np.uint64)
        return drawn[:keys], drawn[keys:]

    return draw


def given(pair: tuple[Keys, Keys], seed: int) -> tuple[Keys, Keys]:
    """Take the same keys for every seed."""
    return pair


# --- the prediction ------------------------------------------------------------------------------


@each_design
@pytest.mark.parametrize(("rate", "filters"), [(1e-2, 5), (1e-3, 15), (1e-4, 15)])
def test_the_counted_rate_is_the_predicted_one(design: str, rate: float, filters: int) -> None:
    """500,000 random keys a filter; 1e7 absent keys over 5 filters at 1e-2, 3e7 over 15 at 1e-3 and 1e-4."""
    found = measure(design, rate, random_keys(500_000, 2_000_000), filters=filters)
    assert found.plan.fpr <= rate
    assert surprises(found) == []


@each_design
def test_at_1e_6_the_set_bits_give_the_predicted_rate(design: str) -> None:
    """20 filters of 200,000 keys: the sd of their mean is 0.1 … 1.6 %; a count would need 4e9 queries."""
    found = measure(design, 1e-6, random_keys(200_000, 500_000), filters=20)
    assert surprises(found) == []


@each_design
@pytest.mark.parametrize("rate", [1e-2, 1e-4])
def test_filters_scatter_as_much_as_derived(design: str, rate: float) -> None:
    """200 filters of 20,000 keys: the squared deviations of stats().fpr, in sd, against chi-square.

    So the sd under all other intervals holds. Squares of normal numbers have the variance 2; the excess
    kurtosis of these rates (0 … 0.45, from 3,000 filters of each design) adds to it. With 2.5, freedom and
    scale are chosen by mean and variance (Satterthwaite): 200 squares count as 160 of 1.25 times the size.
    """
    found = measure(design, rate, random_keys(20_000, 1), filters=200)
    one = scatter_of_fpr(found.plan, found.keys)
    squares = sum(((own - one.mean) / one.sd) ** 2 for own in found.own)
    low, high = 1.25 * stats.chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], len(found.own) / 1.25)
    assert low <= squares <= high


@pytest.mark.parametrize("design", ["blocked", "blocked 256"])
@pytest.mark.parametrize("rate", [1e-2, 1e-4])
def test_the_set_bits_of_blocks_have_the_predicted_distribution(design: str, rate: float) -> None:
    """All blocks of a filter of 2,000,000 keys (38,000 … 200,000 blocks), against theory, by chi-square."""
    keys, _ = random_keys(2_000_000, 0)(0)
    f = DESIGNS[design](len(keys), fpr=rate, seed=1)
    f.add_many(keys)
    blocks, block_bits, hashes = f.plan.core
    expected = blocks * block.set_bits_at_load(block_bits, hashes, len(keys) / blocks)
    seen = np.array(f.stats().loads[0], dtype=np.float64)
    common = expected >= 20
    expected = np.append(expected[common], expected[~common].sum())
    seen = np.append(seen[common], seen[~common].sum())
    distance = float(((seen - expected) ** 2 / expected).sum())
    low, high = stats.chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], len(seen) - 1)
    assert low <= distance <= high


@each_design
def test_approx_items_is_as_close_as_derived(design: str) -> None:
    """10 filters each, planned for 100,000 keys, with 1,000 to 250,000 of them in."""
    for keys in (1_000, 10_000, 100_000, 250_000):
        estimates = []
        for seed in range(10):
            f = DESIGNS[design](100_000, fpr=1e-3, seed=seed)
            f.add_many(random_keys(keys, 0)(seed)[0])
            estimates.append(f.approx_items())
        one = scatter_of_approx_items(f.plan, keys)
        low, high = one.of_mean(len(estimates)).interval()
        assert low <= np.mean(estimates) <= high, keys
        squares = sum(((estimate - keys) / one.sd) ** 2 for estimate in estimates)
        low, high = stats.chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], len(estimates))
        assert low <= squares <= high, keys
        assert one.sd / keys < 0.01  # what "approximately" means here


# --- keys that are not random --------------------------------------------------------------------


@each_design
def test_integers_at_any_stride_behave_like_random_ones(design: str) -> None:
    """Strides 2^0 … 2^56: 20,000 multiples in, the next 200,000 queried.

    Of large strides the range holds fewer multiples, 256 of 2^56: then an eighth are in, the others are
    queried, and as many filters are built, with seeds of their own, as make 200,000 queries.
    """
    out = []
    for exponent in range(57):
        multiples = 2 ** (64 - exponent)
        keys = min(20_000, multiples // 8)
        absent = min(200_000, multiples - keys)
        numbers = np.arange(keys + absent, dtype=np.uint64) << np.uint64(exponent)
        pair = numbers[:keys], numbers[keys:]
        found = measure(design, 1e-2, partial(given, pair), filters=-(-200_000 // absent))
        out += [f"stride 2^{exponent}: {each}" for each in surprises(found)]
    assert out == []


def reversed_bits(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    return (
        np.packbits(np.unpackbits(numbers.view(np.uint8)), bitorder="little").view(np.uint64).byteswap(False)
    )


def texts(first: int, last: int) -> Keys:
    """Make "key-0000001" and so on, as NumPy holds bytes."""
    digits = (np.arange(first, last)[:, None] // 10 ** np.arange(6, -1, -1)) % 10 + ord("0")
    prefix = np.broadcast_to(np.frombuffer(b"key-", np.uint8), (last - first, 4))
    return np.concatenate([prefix, digits.astype(np.uint8)], axis=1).view("S11").ravel()


N, Q = 200_000, 2_000_000
SEQUENCES: dict[str, Callable[[], tuple[Keys, Keys]]] = {
    "sequential": lambda: (np.arange(N), np.arange(N, N + Q)),
    "bit-reversed": lambda: (
        reversed_bits(np.arange(N, dtype=np.uint64)),
        reversed_bits(np.arange(N, N + Q, dtype=np.uint64)),
    ),
    "negative": lambda: (-np.arange(1, N + 1), -np.arange(N + 1, N + Q + 1)),
    "negative, and natural ones absent": lambda: (-np.arange(1, N + 1), np.arange(Q)),
    "negative ones absent, of the same bits": lambda: (
        np.arange(-N, 0).view(np.uint64),
        np.concatenate([np.arange(-N, 0), np.arange(-Q, -N)]),
    ),
    "32-bit floats as integers": lambda: (
        np.arange(N, dtype=np.float32).view(np.uint32),
        np.arange(N, N + Q, dtype=np.float32).view(np.uint32),
    ),
    "addresses": lambda: (
        0x7F00_0000_0000 + 48 * np.arange(N),
        0x7F00_0000_0000 + 48 * np.arange(N, N + Q),
    ),
    "texts": lambda: (texts(0, N), texts(N, N + Q)),
}


def _rates_and_sequences() -> Iterator[Any]:
    """Every sequence at both rates; in a short run at one of them, in turn."""
    for (i, keys), (j, rate) in itertools.product(enumerate(SEQUENCES), enumerate((1e-2, 1e-4))):
        yield pytest.param(rate, keys, marks=[pytest.mark.long] if (i + j) % 2 else [])


@each_design
@pytest.mark.parametrize(("rate", "keys"), list(_rates_and_sequences()))
def test_keys_in_a_row_behave_like_random_ones(design: str, rate: float, keys: str) -> None:
    """200,000 keys in, 2,000,000 others queried, in 2 filters of different seeds."""
    pair = SEQUENCES[keys]()
    found = measure(design, rate, partial(given, pair), filters=2)
    assert surprises(found) == []


def test_the_sequences_are_what_they_are_called() -> None:
    assert texts(9, 11).tolist() == [b"key-0000009", b"key-0000010"]
    assert reversed_bits(np.array([1, 2, 0x8000000000000001], dtype=np.uint64)).tolist() == [
        2**63,
        2**62,
        2**63 + 1,
    ]
    for make in SEQUENCES.values():
        keys, absent = make()
        both = {*keys[:2000].tolist(), *keys[-2000:].tolist()}
        assert not both & {*absent[:2000].tolist(), *absent[-2000:].tolist()}


# --- power: a broken hash is found ---------------------------------------------------------------


def counters(first: int, last: int) -> Keys:
    return np.arange(first, last, dtype=np.uint64)


def weak_32_bits(first: int, last: int) -> Keys:
    """A good hash of 32 bits, in both halves: keys collide with a chance of keys/2^32."""
    half = digest_many(counters(first, last)) >> np.uint64(32)
    return half << np.uint64(32) | half


WEAK: dict[str, Callable[[int, int], Keys]] = {
    "the key itself": counters,
    "the key in the upper half": lambda a, b: counters(a, b) << np.uint64(32),
    "multiples of the golden ratio": lambda a, b: counters(a, b) * np.uint64(PHI),
    "32 bits": weak_32_bits,
}


@pytest.mark.parametrize(
    ("design", "weak"),
    [
        ("blocked", "the key itself"),  # all in the first block
        ("blocked 256", "the key itself"),
        ("blocked", "the key in the upper half"),
        ("blocked", "multiples of the golden ratio"),  # the blocks fill too evenly
        ("standard", "multiples of the golden ratio"),  # SplitMix64's own step: neighbours share positions
        ("blocked", "32 bits"),
        ("standard", "32 bits"),
    ],
)
def test_weak_digests_are_found(design: str, weak: str) -> None:
    """500,000 keys, 2,000,000 absent ones, at 1e-4: the same checks as above are out of their intervals."""
    make = WEAK[weak]
    pair = make(0, 500_000), make(500_000, 2_500_000)
    assert surprises(measure(design, 1e-4, partial(given, pair), digests=True)) != []


@each_design
def test_good_digests_of_the_same_keys_are_not(design: str) -> None:
    digests = digest_many(counters(0, 2_500_000))
    found = measure(design, 1e-4, partial(given, (digests[:500_000], digests[500_000:])), digests=True)
    assert surprises(found) == []


def test_each_check_by_itself_finds_an_error_of_a_few_percent() -> None:
    """A count 2 % too high, and bits of a filter that got 1 % more keys than it says, are out."""
    found = measure("blocked", 1e-2, random_keys(500_000, 2_000_000), filters=5)
    assert surprises(found) == []
    found.false_positives = int(found.false_positives * 1.02)
    assert [each.split(":")[0] for each in surprises(found)] == ["answers", "rate"]
    crowded = measure("blocked", 1e-2, random_keys(505_000, 2_000_000), filters=5)
    crowded.plan, crowded.keys = found.plan, found.keys
    f = BlockedBloomFilter(500_000, fpr=1e-2)
    f.add_many(random_keys(505_000, 0)(0)[0])
    crowded.own = [f.stats().fpr] * 5
    assert "bits" in [each.split(":")[0] for each in surprises(crowded)]
