"""Plans and predictions of the count-min sketch (kirsch, section 3.8).

    epsilon, delta, construction ──▶ width, depth, copies ──▶ failure probability, bytes

A sketch never estimates too little; it estimates more than `epsilon` times the stream's total too much with a
probability of at most `delta`, for each key. Two ways to get there:

    "classic"    w = ⌈e/ε⌉ counters in each of d = ⌈ln 1/δ⌉ rows, a hash for each row:
                     failure ≤ (1/(εw))^d
    "two-hash"   a prime w ≥ 2e/ε of counters in each of d = ⌈ln 1/(ε(1 − 1/(2e²)))⌉ tables, all from two
                 hash values, h1 + j·h2 mod w: that fails with a probability of at most ε, and so
                 ⌈(ln 1/δ)/(ln 1/ε)⌉ copies of it:
                     failure ≤ (2/(εw²) + (2/(εw))^d)^copies

Theorem 3.8.1 is printed with "δ ≥ ln 1/ε(1 − 1/2e²)": the proof needs that of the *depth*. Section 3.8.2
builds 2⌈…⌉ copies where ⌈…⌉ copies with two hash functions each are meant. Both bounds hold for any stream
that does not know the seed; they come from Markov's inequality, so what is measured lies far below them.

Invariants: a plan that is returned can be built and has failure ≤ delta; two plans are equal exactly when
seed and core are. All keys are told apart by 64-bit digests: two share one with probability 2^-64, which by
Markov's inequality adds about 2^-63/ε to the failure; a `delta` below that is refused.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from evenbins import _arguments as arguments
from evenbins._show import ReprMixin

__all__ = [
    "CONSTRUCTIONS", "SketchPlan", "classic_failure", "is_prime", "next_prime",
    "plan_countmin", "plan_of_sketch_core", "two_hash_failure",
]  # fmt: skip

CONSTRUCTIONS = ("two-hash", "classic")  # by their number in the core, from 1
MAX_ROWS = 1024
MAX_WIDTH = 2**32
_STATE_WORDS = 2
_IN_ONE_LINE = (
    "epsilon", "delta", "construction", "width", "depth", "copies", "failure", "conservative", "nbytes",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SketchPlan(ReprMixin):
    """A count-min sketch's design and what it promises.

    Equality and hash look at seed and core alone.

    Attributes
    ----------
    epsilon : an estimate is too large by at most this fraction of the stream's total, but for
    delta : the probability, for each key, that it is too large by more
    construction : "classic", a hash for each row, or "two-hash"
    width : counters of a row (w)
    depth : rows (d); of each copy
    copies : independent copies; 1 for "classic"
    hashes : hash values computed for a key
    failure : what the theorem proves in place of `delta`, for these integers
    conservative : whether counters rise only as far as the estimate needs
    nbytes : bytes of the sketch
    seed : seed of the digests
    core : the integers stored, compared and merged by: construction, width, depth, copies, conservative,
        and the bits of epsilon and delta
    """

    _in_one_line = _IN_ONE_LINE

    epsilon: float = field(compare=False)
    delta: float = field(compare=False)
    construction: str = field(compare=False)
    width: int = field(compare=False)
    depth: int = field(compare=False)
    copies: int = field(compare=False)
    hashes: int = field(compare=False)
    failure: float = field(compare=False)
    conservative: bool = field(compare=False)
    nbytes: int = field(compare=False)
    seed: int
    core: tuple[int, ...]

    def error_bound(self, total: float) -> float:
        """Return what an estimate exceeds the count by at most, but for `failure`, in a stream of this total.

        Examples
        --------
        >>> plan_countmin(1e-3, 1e-3).error_bound(1_000_000)
        1000.0
        """
        return self.epsilon * total


# --- predictions ---------------------------------------------------------------------------------


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


# --- planning ------------------------------------------------------------------------------------


def plan_countmin(
    epsilon: float,
    delta: float,
    *,
    construction: str = "classic",
    conservative: bool = False,
    seed: int = 0,
) -> SketchPlan:
    """Plan a count-min sketch.

    Parameters
    ----------
    epsilon, delta, construction, conservative, seed
        As for `CountMinSketch`; epsilon and delta between 0 and 1.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or the sketch would be too large.

    Examples
    --------
    >>> plan = plan_countmin(1e-3, 1e-3)
    >>> plan.width, plan.depth
    (2719, 7)
    >>> plan = plan_countmin(1e-3, 1e-6, construction="two-hash")
    >>> plan.width, plan.depth, plan.copies, plan.hashes
    (5437, 7, 2, 4)
    """
    epsilon, delta = _fraction("epsilon", epsilon), _fraction("delta", delta)
    least = 2.0**-63 / epsilon
    if delta < least:
        raise ValueError(
            f"delta must be at least 2**-63/epsilon = {least:.3g}, since keys are told apart by 64-bit "
            f"digests; got {arguments.shown(delta)}. Pass a larger delta"
        )
    construction = _construction(construction)
    if not isinstance(conservative, bool):
        remedy = "Pass conservative=True for smaller errors without merging"
        raise arguments.type_error("conservative", "True or False", conservative, remedy)
    seed = arguments.seed(seed)
    per_epsilon = math.e if construction == "classic" else 2 * math.e
    if per_epsilon / epsilon > MAX_WIDTH:
        raise ValueError(
            f"epsilon must be at least {per_epsilon / MAX_WIDTH:.3g}, for a width of 2**32 counters; "
            f"got {arguments.shown(epsilon)}. Pass a larger epsilon"
        )
    width, depth, copies = math.ceil(per_epsilon / epsilon), math.ceil(math.log(1 / delta)), 1
    if construction == "two-hash":
        width = next_prime(width)
        depth = math.ceil(-math.log(epsilon * (1 - 1 / (2 * math.e**2))))
        copies = math.ceil(math.log(delta) / math.log(epsilon))
        while two_hash_failure(epsilon, width, depth, copies) > delta:  # rounding alone: at most once
            copies += 1
    while construction == "classic" and classic_failure(epsilon, width, depth) > delta:
        depth += 1
    depth, copies = max(1, depth), max(1, copies)
    if depth * copies > MAX_ROWS:
        raise ValueError(
            f"the sketch must have at most {MAX_ROWS} rows; epsilon={arguments.shown(epsilon)} and "
            f"delta={arguments.shown(delta)} ask for {depth * copies} ({construction}). "
            'Pass a smaller epsilon, or construction="classic"'
        )
    return _plan(epsilon, delta, construction, width, depth, copies, conservative, seed)


def plan_of_sketch_core(core: Sequence[int], *, seed: int) -> SketchPlan:
    """Check an integer core and predict anew: the plan of a file that was loaded.

    Raises
    ------
    TypeError, ValueError
        The core is none that `plan_countmin` could have made.
    """
    rule = "the integers (construction, width, depth, copies, conservative, epsilon, delta) of a sketch"
    remedy = "Pass a sketch's plan.core"
    if isinstance(core, str | bytes) or not isinstance(core, Sequence):
        raise arguments.type_error("core", rule, core, remedy)
    if len(core) != 7:
        raise arguments.error("core", rule, core, remedy)
    limits = (
        ("construction", 1, 2), ("width", 1, MAX_WIDTH), ("depth", 1, MAX_ROWS), ("copies", 1, MAX_ROWS),
        ("conservative", 0, 1),
    )  # fmt: skip
    number, width, depth, copies, conservative = (
        arguments.integer(f"core[{i}] ({name})", core[i], least, most, remedy)
        for i, (name, least, most) in enumerate(limits)
    )
    epsilon, delta = (
        struct.unpack(
            "<d", struct.pack("<Q", arguments.integer(f"core[{i}]", core[i], 0, 2**64 - 1, remedy))
        )[0]
        for i in (5, 6)
    )
    epsilon, delta = _fraction("epsilon", epsilon), _fraction("delta", delta)
    construction = CONSTRUCTIONS[number - 1]
    if construction == "two-hash" and not is_prime(width):
        raise arguments.error("core[1] (width)", 'prime for "two-hash"', width, remedy)
    if construction == "classic" and copies != 1:
        raise arguments.error("core[3] (copies)", '1 for "classic"', copies, remedy)
    plan = _plan(epsilon, delta, construction, width, depth, copies, bool(conservative), arguments.seed(seed))
    if plan.failure > delta * (1 + 1e-9):  # pow may round otherwise where the file was written
        raise arguments.error("core", "enough rows and counters for its delta", core, remedy)
    return plan


def _plan(
    epsilon: float, delta: float, construction: str, width: int, depth: int, copies: int,
    conservative: bool, seed: int,
) -> SketchPlan:  # fmt: skip
    is_classic = construction == "classic"
    numbers = (CONSTRUCTIONS.index(construction) + 1, width, depth, copies, int(conservative))
    return SketchPlan(
        epsilon=epsilon,
        delta=delta,
        construction=construction,
        width=width,
        depth=depth,
        copies=copies,
        hashes=depth if is_classic else 2 * copies,
        failure=classic_failure(epsilon, width, depth)
        if is_classic
        else two_hash_failure(epsilon, width, depth, copies),
        conservative=conservative,
        nbytes=8 * (width * depth * copies + _STATE_WORDS),
        seed=seed,
        core=(*numbers, *struct.unpack("<2Q", struct.pack("<2d", epsilon, delta))),
    )


def _fraction(name: str, value: object) -> float:
    return arguments.real(name, value, "", "Pass for example 0.001", above=0.0, below=1.0)


def _construction(value: object) -> str:
    return arguments.one_of("construction", value, CONSTRUCTIONS, "Leave it out for the smaller one")
