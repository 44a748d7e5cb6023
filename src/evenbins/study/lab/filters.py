"""The page Filters: what a request costs under each policy, and whether a real filter keeps the promise.

    curves    rate over memory of the policies that plan at once     curve    of one that plans slowly (a job)
    designs   what meets the request, the chosen one, its texts      measure  real filters of it (a job)
    times     nanoseconds per look-up of each design, on this machine (a job)

Every number comes from `design.filter`, `theory` and the filters' own `stats`; this module only asks. Points
of the curves are remembered, so that a slider moved back costs nothing.

The slow curves are planned for the next power of ten of the keys: a rate depends on their number only through
rounding and the digests' floor, and a slider would else start them anew at every step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from evenbins import design
from evenbins._arguments import DEFAULT_FPR
from evenbins.cluster.libraries import library
from evenbins.design.filters import Request, designs_for
from evenbins.filters import build
from evenbins.filters.plan import FilterPlan, FilterStats, plan_of_core
from evenbins.structure import kind_of_policy, that_can
from evenbins.study.lab.parameters import Choice, Endpoint, Number
from evenbins.study.lab.timing import lookup_ns

__all__ = ["ENDPOINTS", "curve", "curves", "designs", "measure", "times"]

QUICK = ("standard", "blocked")
POLICIES = tuple(policy for kind in that_can("lab") for policy in kind.policies)
SLOW = tuple(policy for policy in POLICIES if policy not in QUICK)
BITS = (4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40)
"""Bits per key of the curves."""

MOST_KEYS = 20_000_000
MOST_BYTES = 2**28
_CHUNK = 1 << 18
_ENOUGH = 100  # false positives that are expected among the absent keys asked for, if that takes no longer
_MOST_ASKED = 10_000_000  # absent keys of a filter
_TIMED_KEYS = 1_000_000
_LEVEL = 0.95
_COMPARED = ("fpr", "fill", "reads", "miss_reads", "list_reads", "overflow", "spilled")

Progress = Callable[[int, int], None]


def curves(*, keys: int, block_bits: str, reads: float | None, miss_reads: float | None) -> dict[str, Any]:
    """Return rate over memory of the policies that plan at once."""
    found = {
        policy: [_rate(policy, keys, bits, int(block_bits), reads, miss_reads) for bits in BITS]
        for policy in QUICK
    }
    return {"keys": keys, "bits": list(BITS), "curves": found, "slow": list(SLOW)}


def curve(
    *, keys: int, policy: str, block_bits: str, reads: float | None, miss_reads: float | None,
    progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    """Return rate over memory of one policy."""
    if policy not in QUICK:
        keys = 10 ** round(math.log10(keys))
    found = []
    for done, bits in enumerate(BITS):
        progress(done, len(BITS))
        found.append(_rate(policy, keys, bits, int(block_bits), reads, miss_reads))
    return {"policy": policy, "keys": keys, "bits": list(BITS), "fpr": found}


@lru_cache(maxsize=4096)
def _rate(
    policy: str, keys: int, bits: float, block_bits: int, reads: float | None, miss_reads: float | None
) -> float | None:
    """Return the least rate within this memory, None where the policy cannot meet the bounds."""
    try:
        found = _find_designs(
            keys, bits_per_key=bits, reads=reads, miss_reads=miss_reads, block_bits=block_bits,
            policies=(policy,),
        )  # fmt: skip
    except ValueError:
        return None
    return found.best.plan.fpr


def designs(
    *, keys: int, fpr: float | None, bits_per_key: float | None, reads: float | None,
    miss_reads: float | None, block_bits: str, policy: str,
) -> dict[str, Any]:  # fmt: skip
    """Return all designs that meet the request, best first; which is chosen; and how to build it."""
    request = _request(fpr, bits_per_key, reads, miss_reads, block_bits)
    found = _find_designs(keys, **request)
    names = [each.policy for each in found]
    note = None
    chosen = names[0]
    if policy in names:
        chosen = policy
    elif policy != "best":
        note = f"{policy} cannot meet this request: {chosen} is shown instead"
    plan = found.by_policy(chosen).plan
    return {
        "designs": [_design(each) for each in found],
        "chosen": chosen,
        "note": note,
        "missing": [each for each in POLICIES if each not in names],
        "python": as_python(plan, request),
        "command": as_command(plan, request),
    }


@lru_cache(maxsize=256)
def _find_designs(keys: int, policies: Sequence[str] | None = None, **request: Any) -> design.FilterDesigns:
    return designs_for(Request(keys, **request), policies=policies)


def _request(
    fpr: float | None, bits_per_key: float | None, reads: float | None, miss_reads: float | None,
    block_bits: str,
) -> dict[str, Any]:  # fmt: skip
    if fpr is None and bits_per_key is None:
        fpr = DEFAULT_FPR
    return {
        "fpr": fpr, "bits_per_key": bits_per_key, "reads": reads, "miss_reads": miss_reads,
        "block_bits": int(block_bits),
    }  # fmt: skip


def _design(each: design.FilterDesign) -> dict[str, Any]:
    plan = each.plan
    names = (
        "policy", "hashes", "choices", "bits_per_key", "nbytes", "fpr", "reads", "miss_reads", "overflow",
    )  # fmt: skip
    found = {name: getattr(plan, name) for name in names}
    return found | {"thresholds": list(plan.thresholds), "pareto": each.pareto}


# --- texts to copy -----------------------------------------------------------------------------------------


def _options(plan: FilterPlan, request: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments besides the keys that give this plan."""
    goal = "fpr" if request["fpr"] is not None else "bits_per_key"
    options = {goal: request[goal]}
    if plan.policy == "standard":
        if request["reads"] is not None:
            options["hashes"] = plan.hashes
        return options
    if request["block_bits"] != 512:
        options["block_bits"] = request["block_bits"]
    if plan.policy != "blocked":
        options |= {each: request[each] for each in ("reads", "miss_reads") if request[each] is not None}
    return options


def as_python(plan: FilterPlan, request: dict[str, Any]) -> str:
    """Write the program that builds the filter of a plan."""
    cls = kind_of_policy(plan.policy).cls.__name__
    options = {} if plan.policy in QUICK else {"policy": plan.policy}
    options |= _options(plan, request)
    written = ", ".join(f"{name}={json.dumps(value)}" for name, value in options.items())
    made = f"{cls}({plan.keys:_}, {written})"
    more = ""
    if "miss_reads" in options:  # a bound that the planner alone takes
        made = f"{cls}.from_plan(plan_balanced({plan.keys:_}, {written}))"
        more = "from evenbins.filters import plan_balanced\n"
    return (
        f"from evenbins import {cls}\n{more}\n"
        f"f = {made}\n"
        'f.add_many(["alpha", "beta"])  # any iterable, a NumPy array, an Arrow column\n'
        'print(f.contains_many(["alpha", "gamma"]))\n'
        "print(f.plan)\n"
    )


def as_command(plan: FilterPlan, request: dict[str, Any]) -> str:
    """Write the command that builds the filter of a plan from the lines of a file."""
    options = {"kind": plan.policy} | _options(plan, request) | {"capacity": plan.keys}
    written = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    return f"evenbins build keys.txt -o keys.evb {written}"


# --- real filters ------------------------------------------------------------------------------------------


def measure(
    *, keys: int, fpr: float | None, bits_per_key: float | None, reads: float | None,
    miss_reads: float | None, block_bits: str, policy: str, filters: int, seed: int, progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    """Build real filters, and compare what they are with what was predicted.

    The keys are distinct integers; every filter has other ones, and its own seed. The rate is measured twice:
    from the filters' bits, and by asking for absent keys: as many as were added, or more if fewer than a
    hundred false positives are expected of them.
    """
    request = _request(fpr, bits_per_key, reads, miss_reads, block_bits)
    found = _find_designs(keys, **request, **({} if policy == "best" else {"policies": (policy,)}))
    plan = found.best.plan
    if plan.nbytes > MOST_BYTES:
        raise ValueError(
            f"a filter built here must have at most {MOST_BYTES >> 20} MiB, not {plan.nbytes >> 20}: "
            "take fewer keys or a higher rate"
        )
    asking = max(keys, min(_MOST_ASKED, math.ceil(_ENOUGH / (plan.fpr * filters))))
    each_keys = keys + asking
    total = each_keys * filters
    done = positives = 0
    measured: list[FilterStats] = []
    for number in range(filters):
        filter_ = build(plan_of_core(
            plan.policy, plan.core, capacity=plan.keys, seed=(seed + number) % 2**64, hashing=plan.hashing
        ))  # fmt: skip
        first = number * each_keys
        for start in range(first, first + each_keys, _CHUNK):
            progress(done, total)
            end = min(start + _CHUNK, first + each_keys)
            added = np.arange(start, max(start, min(end, first + keys)), dtype=np.uint64)
            asked = np.arange(max(start, first + keys), max(end, first + keys), dtype=np.uint64)
            filter_.add_many(added)
            positives += int(filter_.contains_many(asked).sum())
            done += end - start
        measured.append(filter_.stats())
    progress(total, total)
    asked_keys = asking * filters
    return {
        "policy": plan.policy,
        "plan": _design(found.by_policy(plan.policy)) | {"keys": plan.keys},
        "filters": filters,
        "rows": _rows(plan, measured),
        "asked": asked_keys,
        "positives": positives,
        "expected": plan.fpr * asked_keys,
        "interval": list(interval(positives, asked_keys)),
        "level": _LEVEL,
        "unit": plan.load_unit,
        "levels": _levels(plan, measured),
    }


def times(
    *, keys: int, fpr: float | None, bits_per_key: float | None, reads: float | None,
    miss_reads: float | None, block_bits: str, progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    """Time look-ups of present and of absent keys in a real filter of each design.

    One thread, integer keys in bulk, the best of seven rounds, at most a million keys: a filter that is
    larger than the caches takes longer.
    """
    real = min(keys, _TIMED_KEYS)
    found = _find_designs(real, **_request(fpr, bits_per_key, reads, miss_reads, block_bits))
    present = np.arange(real, dtype=np.uint64)
    absent = present + np.uint64(real)
    measured = {}
    for done, each in enumerate(found):
        progress(done, len(found))
        filter_ = build(each.plan)
        filter_.add_many(present)
        asked = (present[:_CHUNK], absent[:_CHUNK])
        measured[each.policy] = [lookup_ns(filter_, some) for some in asked]
    progress(len(found), len(found))
    return {"keys": real, "ns": measured}


def _rows(plan: FilterPlan, measured: list[FilterStats]) -> list[dict[str, Any]]:
    """Pair each prediction with the filters' mean and range.

    A filter without a list does not count the keys that spilled.
    """
    rows = []
    names = _COMPARED if plan.overflow or any(each.spilled for each in measured) else _COMPARED[:4]
    for name in names:
        values = [float(getattr(each, name)) for each in measured]
        predicted = float(getattr(plan, name))
        rows.append({
            "name": name, "predicted": predicted, "measured": sum(values) / len(values), "low": min(values),
            "high": max(values),
        })  # fmt: skip
    return rows


def _levels(plan: FilterPlan, measured: list[FilterStats]) -> list[dict[str, Any]]:
    """Return, for each level, the predicted and the measured shares of blocks by load."""
    if plan.block_bits is None:
        return []
    predicted = plan.planned_loads(sum(measured[0].loads[0]))
    levels = []
    for number, shares in enumerate(predicted):
        counts = np.zeros(max(len(each.loads[number]) for each in measured))
        for each in measured:  # as long as its fullest block
            counts[: len(each.loads[number])] += each.loads[number]
        levels.append({
            "blocks": sum(measured[0].loads[number]),
            "threshold": plan.thresholds[number] if number < len(plan.thresholds) else None,
            "measured": _sparse(counts / max(1, counts.sum())),
            "predicted": _sparse(np.asarray(shares)),
        })  # fmt: skip
    return levels


def _sparse(shares: np.ndarray[Any, Any]) -> list[list[float]]:
    """Return pairs of load and share, without what no picture shows."""
    return [[int(load), float(shares[load])] for load in np.flatnonzero(shares > 1e-9)]


def interval(hits: int, trials: int) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a rate: exact, two-sided, 95 %.

    Examples
    --------
    >>> [round(each, 4) for each in interval(10, 1000)]
    [0.0048, 0.0183]
    """
    special = library("scipy.special", "theory")

    tail = (1 - _LEVEL) / 2
    low = float(special.betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, trials - hits, 1 - tail)) if hits < trials else 1.0
    return low, high


# --- what may be asked -------------------------------------------------------------------------------------

_KEYS = Number("keys", least=1, most=1e12, default=1e7, whole=True, help="Number of keys.")
_FPR = Number(
    "fpr", least=1e-15, most=0.9, help="False-positive rate not to be exceeded; 0.01 without a goal."
)
_BITS = Number("bits_per_key", least=1, most=256, help="Memory not to be exceeded, everything counted.")
_READS = Number("reads", least=1, most=64, help="Mean memory reads of a present key, at most.")
_MISS_READS = Number("miss_reads", least=1, most=64, help="Mean memory reads of an absent key, at most.")
_BLOCK_BITS = Choice("block_bits", choices=("256", "512"), default="512", help="Bits of a block.")
_POLICY = Choice("policy", choices=("best", *POLICIES), default="best", help="The design to look at.")
_BOUNDS = (_READS, _MISS_READS, _BLOCK_BITS)

ENDPOINTS = [
    Endpoint(
        "filters/curves", curves, (_KEYS, *_BOUNDS),
        "Rate over bits per key of the policies that are planned at once.",
    ),
    Endpoint(
        "filters/curve", curve,
        (_KEYS, Choice("policy", choices=POLICIES, default="fill", help="Whose curve."), *_BOUNDS),
        "Rate over bits per key of one policy.", job=True,
    ),
    Endpoint(
        "filters/designs", designs, (_KEYS, _FPR, _BITS, *_BOUNDS, _POLICY),
        "Every design that meets a request, best first, and how to build the chosen one.",
    ),
    Endpoint(
        "filters/measure", measure,
        (
            Number("keys", least=1, most=MOST_KEYS, default=1e6, whole=True, help="Keys of a real filter."),
            _FPR, _BITS, *_BOUNDS, _POLICY,
            Number("filters", least=1, most=16, default=3, whole=True, help="How many filters are built."),
            Number("seed", least=0, most=2**32 - 1, default=1, whole=True, help="Of the first one's hashes."),
        ),
        "Build real filters and compare them with their plan.", job=True,
    ),
    Endpoint(
        "filters/times", times, (_KEYS, _FPR, _BITS, *_BOUNDS),
        "Nanoseconds per look-up of each design, on this machine.", job=True,
    ),
]  # fmt: skip
