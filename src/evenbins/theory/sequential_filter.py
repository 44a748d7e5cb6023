"""A sequential filter predicted: attempts at one table, and the length of its list (see `levels`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenbins.theory import block
from evenbins.theory.behaviour import Behaviour, counted_loads, with_digest_floor
from evenbins.theory.cores import BalancedCore

__all__ = ["predict_sequential"]

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Path:
    """A sequential filter on its way: attempts per block, and what they have come to."""

    attempts: Vector
    positive: Vector  # F
    passes: Vector  # C
    keys: Vector  # per block, as all that follow
    spent: Vector
    changed: Vector
    listed: Vector


_POINTS = 257


def _path(design: BalancedCore, end: float, most: int) -> _Path:
    attempts = np.linspace(0.0, end, _POINTS)
    found = block.counted_level(
        design.key_bits[0], design.hashes, np.array([design.thresholds[0]]), design.coin, most
    )
    chance = block.poisson(attempts, most)
    positive, passes = chance @ found[0][:, 0], chance @ found[1][:, 0]
    choices = design.choices
    pace = 1.0 / block.geometric(passes, choices)  # keys to an attempt
    spent, changed, listed = block.per_key(positive, passes, choices)
    step = attempts[1] - attempts[0]
    sums = block.running_integral(np.stack([pace, spent * pace, changed * pace, listed * pace], axis=1), step)
    return _Path(attempts, positive, passes, sums[:, 0], sums[:, 1], sums[:, 2], sums[:, 3])


def predict_sequential(design: BalancedCore, keys: int, stop: str, *, noise: bool = True) -> Behaviour:
    """Predict a single or sequential filter of endless list; without `noise` no variance, no digest floor."""
    blocks, choices = design.blocks[0], design.choices
    load = keys / blocks
    end = min(_attempts(design, load), float(block.KEYS_PER_BIT * design.block_bits))
    path = _path(design, end, block.reach(end))
    exhausted = False
    later = 0.0  # keys per block that come when the budget is spent
    if design.budget and design.overflow_limit and path.spent[-1] * blocks > design.budget:
        exhausted = True
        end = float(np.interp(design.budget / blocks, path.spent, path.attempts))
        path = _path(design, end, block.reach(end))
        later = max(load - float(path.keys[-1]), 0.0)
    positive, passes = float(path.positive[-1]), float(path.passes[-1])
    most = block.reach(end)
    threshold = design.thresholds[0]
    found = block.counted_level(design.key_bits[0], design.hashes, np.array([threshold]), design.coin, most)
    chance = block.poisson(np.array([end]), most)[0]
    at, over = found[2][:, 0], found[3][:, 0]
    width = block.loads_to_follow(most, threshold)
    rates, thrown = block.effective_rates(design.key_bits[0], design.hashes, width + 2)
    loads = counted_loads(design, 0, chance, at, over, most)
    if stop == "threshold" and threshold <= most:
        passes += design.coin * float(chance @ at) * (1.0 - float(rates[threshold]))
    walks = float(block.geometric(np.array([passes]), choices)[0])
    rate = min(positive * walks, 1.0)
    unread = later * (1.0 - rate)
    beyond = 0.0 if exhausted else max(load - float(path.keys[-1]), 0.0)  # they find the table as it ends
    beyond *= float(path.passes[-1]) ** choices if beyond > 1e-3 * load else 0.0
    changed = float(path.changed[-1]) + unread + beyond
    listed = float(path.listed[-1]) + unread + beyond
    spent = float(path.spent[-1]) + choices * beyond
    bits = design.key_bits[0]
    mean_set = -bits * np.expm1(block.hashes_log(bits, design.hashes) * thrown)
    top = min(len(loads), len(mean_set))
    sd = math.sqrt(blocks * _list_noise(design, path, rates, most)) if noise else 0.0
    if exhausted:
        sd += 2.0 * math.sqrt(unread * blocks)
    list_reads = 0.0
    if design.overflow_limit:
        list_reads = 1.0 - rate if exhausted else passes**choices
    return Behaviour(
        fpr=with_digest_floor(rate, keys) if noise else rate,
        reads=spent / changed if changed else 1.0,
        miss_reads=walks,
        list_reads=list_reads,
        overflow=listed / changed if changed else 0.0,
        overflow_sd=sd,
        changed=min(changed / load, 1.0),
        fill=min(float(loads[:top] @ mean_set[:top]) / bits, 1.0),
        loads=(loads,),
        exhausted=exhausted,
    )


def _attempts(design: BalancedCore, load: float) -> float:
    """Find the attempts per block that `load` keys per block make."""
    most = float(block.KEYS_PER_BIT * design.block_bits)
    if design.choices == 1 or load >= most:
        return load
    end = min(1.25 * load + 1.0, most)
    while True:
        path = _path(design, end, block.reach(end))
        if path.keys[-1] >= load:
            break
        if end >= min(design.choices * load, most):
            return end
        end = min(1.7 * end, design.choices * load + 1.0, most)
    place = min(int(np.searchsorted(path.keys, load)), _POINTS - 1)
    low = max(min(place - 2, _POINTS - 4), 0)
    x, y = path.keys[low : low + 4], path.attempts[low : low + 4]
    total = 0.0
    for i in range(4):  # Lagrange, through four points of the inverse function
        others = [j for j in range(4) if j != i]
        total += float(y[i]) * math.prod((load - float(x[j])) / (float(x[i]) - float(x[j])) for j in others)
    return total


def _list_noise(design: BalancedCore, path: _Path, rates: Vector, most: int) -> float:
    """Compute the variance of the list's length, per block.

    Backwards through the filter's life, by the adjoint of the mean-field equation: worth[i] is by how
    much the final list grows for a block of load i more; each key's outcome varies around its mean.
    """
    threshold, coin, choices = design.thresholds[0], design.coin, design.choices
    if threshold > most:
        return 0.0
    if path.attempts[-1] > 200.0:  # steps would be too long for the equation
        return 2.0 * float(path.listed[-1])
    q = rates[: threshold + 2]
    accepts = 1.0 - q
    accepts[threshold] *= coin
    accepts[threshold + 1] = 0.0
    turns = np.zeros(threshold + 2)
    turns[threshold], turns[threshold + 1] = (1.0 - coin) * (1.0 - q[threshold]), 1.0 - q[threshold + 1]
    found = block.counted_level(design.key_bits[0], design.hashes, np.array([threshold]), coin, most)
    chance = block.poisson(path.attempts, most)
    width = block.loads_to_follow(most, threshold)
    chain, _ = block.chain(design.key_bits[0], design.hashes, most, width)
    state = np.concatenate(
        [chance @ chain[:, :threshold], chance @ found[2][:, :1], chance @ found[3][:, :1]], axis=1
    )
    flow = state * accepts
    c = path.passes
    walks = block.geometric(c, choices)
    slope = np.sum([j * c ** (j - 1) for j in range(1, choices)], axis=0) if choices > 1 else np.zeros_like(c)
    gain = np.zeros(threshold + 2)

    def change(point: int, worth: Vector) -> Vector:
        np.subtract(worth[1:], worth[:-1], out=gain[:-1])
        direct = accepts * gain
        through = slope[point] * float(flow[point] @ gain) + choices * c[point] ** (choices - 1)
        backwards: Vector = direct + turns * (through / walks[point])
        return backwards

    worth = np.zeros(threshold + 2)
    noise = np.zeros(_POINTS // 2 + 1)
    step = 2.0 * float(path.attempts[1] - path.attempts[0])
    for point in range(_POINTS - 1, -1, -2):
        np.subtract(worth[1:], worth[:-1], out=gain[:-1])
        share = walks[point] * flow[point]
        listed = float(c[point]) ** choices
        first = float(share @ gain) + listed
        second = float(share @ (gain * gain)) + listed
        noise[point // 2] = (second - first * first) / walks[point]
        if point:
            k1 = change(point, worth)
            k2 = change(point - 1, worth + 0.5 * step * k1)
            k3 = change(point - 1, worth + 0.5 * step * k2)
            k4 = change(point - 2, worth + step * k3)
            worth = worth + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    return max(float(block.running_integral(noise, step)[-1]), 0.0)
