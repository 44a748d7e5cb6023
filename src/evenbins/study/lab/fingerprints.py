"""The page Fingerprints: one block of a fingerprint filter, line by line: it fills, overflows and restores.

    fingerprints/block     the lines of a real filter with so many keys: which runs are where; plan and stats

The filter has one block: 128 lines of level 1 (17 slots each), 16 of level 2, one of level 3, and a rest. Its
keys are 0 … keys-1. With `turns` it held other keys before, as often replaced as that: the picture must be
the same, and the answer says whether the bytes are those of a fresh filter.

What is drawn is read from the filter's own bytes, as docs/fingerprint.md describes them; only how many keys a
run has that is not in its line is counted from the keys.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins import FingerprintFilter, digest_many
from evenbins.filters import plan_of_core
from evenbins.filters.fingerprint_plan import FingerprintCore, FingerprintPlan
from evenbins.filters.protocols import side_by_side
from evenbins.study.lab.parameters import Endpoint, Number
from evenbins.study.lab.timing import lookup_ns

__all__ = ["ENDPOINTS", "MOST_KEYS", "block"]

MOST_KEYS = 2250
"""Some more than level 1 has slots: the rest is used then."""
CORE = FingerprintCore(
    lines=128, remainder=24, quotients=64, group=8, rest=504, limit=MOST_KEYS + 50, set=0, doublings=0
)
_SLOTS = (17, 15, 8)  # of a line of each level; an entry of level 3 has 64 bits
_PLANNED = 1900
_TIMED = 1 << 15  # look-ups
_PIECES = 20  # in which the keys of a turn are replaced

Words = npt.NDArray[np.uint64]


def _plan(seed: int) -> FingerprintPlan:
    found = plan_of_core("fingerprint", CORE, capacity=_PLANNED, seed=seed, hashing="lanes")
    assert isinstance(found, FingerprintPlan)
    return found


def _filled(keys: int, turns: int, seed: int) -> FingerprintFilter:
    """Build the filter of the keys 0 … keys-1, in place of which it held others before."""
    made = FingerprintFilter.from_plan(_plan(seed))
    rng = np.random.default_rng(seed)

    def pieces(turn: int) -> list[npt.NDArray[np.int64]]:
        return np.array_split(turn * MOST_KEYS + rng.permutation(keys), _PIECES)

    old = pieces(turns)
    for piece in old:
        made.add_many(piece)
    for turn in reversed(range(turns)):
        new = pieces(turn)
        for gone, come in zip(rng.permutation(_PIECES), new, strict=True):
            made.remove_many(old[gone])
            made.add_many(come)
        old = new
    return made


def _levels(made: FingerprintFilter) -> tuple[Words, Words, Words]:
    """Return the words of the three levels, one row per line."""
    words = np.frombuffer(memoryview(made), dtype=np.uint64)[8:]
    ends = np.cumsum([8 * CORE.lines, 8 * (CORE.lines // CORE.group), 8])
    first, second, third, _ = np.split(words, ends)
    return first.reshape(-1, 8), second.reshape(-1, 8), third


def _bits(word: int) -> Iterator[int]:
    while word:
        yield (word & -word).bit_length() - 1
        word &= word - 1


def _runs(line: Words) -> tuple[list[list[int]], list[int]]:
    """Return the runs that a line holds, as [quotient, length], and the quotients whose runs are elsewhere.

    Its first word has the occupied quotients, the second the slots in which runs end.
    """
    occupied, ends = list(_bits(int(line[0]))), list(_bits(int(line[1]) & 2 ** _SLOTS[0] - 1))
    lengths = np.diff([-1, *ends]).tolist()
    return [list(run) for run in zip(occupied, lengths, strict=False)], occupied[len(ends) :]


def _run_lengths(keys: int, seed: int) -> Counter[tuple[int, int]]:
    """Count the keys of each line and quotient."""
    runs = CORE.lines * CORE.quotients
    found = (digest * runs >> 64 for digest in digest_many(np.arange(keys), seed).tolist())
    return Counter(divmod(run, CORE.quotients) for run in found)


@lru_cache(maxsize=32)
def _first_uses(seed: int) -> tuple[int, int, int]:
    """Return with how many keys level 2, level 3 and the rest are first used; more keys use them too."""

    def least(level: int) -> int:
        low, high = 0, MOST_KEYS
        while low < high:
            middle = (low + high) // 2
            made = _filled(middle, 0, seed)
            used = made.stats().shares[level:]
            low, high = (low, middle) if middle and sum(used) > 0 else (middle + 1, high)
        return low

    return least(1), least(2), least(3)


def block(*, keys: int, turns: int, seed: int) -> dict[str, Any]:
    """Return the lines of the filter, what was planned beside what is counted, and texts to copy.

    Examples
    --------
    >>> found = block(keys=3, turns=0, seed=1)
    >>> sum(n for line in found["lines"] for _, n in line["here"]), found["rest"], found["same"]
    (3, 0, True)
    """
    made, fresh = _filled(keys, turns, seed), _filled(keys, 0, seed)
    first, second, third = _levels(made)
    lengths = _run_lengths(keys, seed)
    below = [_runs(line) for line in second]
    lines = []
    for number, words in enumerate(first):
        here, away = _runs(words)
        group, member = divmod(number, CORE.group)
        elsewhere = []
        for quotient in away:
            line = (group + quotient) % 16
            is_there = 4 * member + quotient % 4 not in below[line][1]
            elsewhere.append([quotient, lengths[number, quotient], line, 2 if is_there else 3])
        lines.append({"here": here, "away": elsewhere})
    plan, stats = made.plan.with_keys(keys), made.stats()
    shown = ("fpr", "fill", "reads", "miss_reads")
    some = np.arange(_TIMED)
    return {
        "keys": keys,
        "slots": _SLOTS,
        "group": CORE.group,
        "lines": lines,
        "second": [{"here": here, "away": len(away)} for here, away in below],
        "third": int(np.count_nonzero(third)),
        "rest": round(stats.overflow * stats.keys),
        "rows": [row for row in side_by_side(plan, stats) if row[0] in shown or row[0].startswith("in ")],
        "ns": {
            "reads": lookup_ns(made, some % keys) if keys else None,
            "miss_reads": lookup_ns(made, some + MOST_KEYS),
        },
        "first_uses": _first_uses(seed),
        "same": made == fresh and made.to_bytes() == fresh.to_bytes(),
        "checksum": hashlib.sha256(made.to_bytes()).hexdigest()[:12],
        "python": (
            "from evenbins import FingerprintFilter\n"
            "from evenbins.filters import plan_of_core\n\n"
            f'plan = plan_of_core("fingerprint", {list(CORE)}, capacity={_PLANNED}, seed={seed}, '
            'hashing="lanes")\n'
            f"f = FingerprintFilter.from_plan(plan)\nf.add_many(range({keys}))\nprint(f.stats())\n"
        ),
    }


ENDPOINTS = [
    Endpoint(
        "fingerprints/block",
        block,
        [
            Number("keys", least=0, most=MOST_KEYS, default=1900, whole=True, help="keys in the filter"),
            Number("turns", least=0, most=5, default=0, whole=True, help="how often all keys were replaced"),
            Number("seed", least=0, most=2**32 - 1, default=1, whole=True, help="seed of the filter"),
        ],
        "One block of a fingerprint filter, line by line",
    ),
]  # fmt: skip
