"""The best loads of a filter's levels whose thresholds are given: Newton's method, for many filters at once.

A level of `load` arrivals per block has, with N its Poisson arrivals and f_n, c_n what an absent key meets
after n of them (`block`),

    F = E[f_N]    C = E[c_N]    w = E[sum of c_n over n < N] / load

and all that is asked of a filter nests level by level, as p + q * (the same of the levels below):

    blocks  1/load + w*…     rate  F + C*…     reads of an absent key  1 + C*…     keys that pass all  w*…

A derivative in the load is the expectation of a difference, E[f_(N+1) - f_N], so gradients and second
derivatives are as exact as the values. The least rate for a memory, or memory for a rate, is a stationary
point of Lagrange's function in the logarithms of the loads; bounds that would be broken are equations.
From a start that is right to a tenth a few steps are enough; a filter that does not converge is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins.theory import block

__all__ = ["Curves", "Found", "Nested", "best_loads", "measure"]

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_BLOCKS, _RATE, _MISS, _LISTED, _STORED, _READ = range(6)
_BOUNDED = {"miss_reads": (_MISS, None), "overflow": (_LISTED, _STORED), "reads": (_READ, _STORED)}
"""Which quantity a bound is on, and the one it is divided by."""
_STEPS = 16
_LONGEST = 0.15  # a step of the logarithm of a load, at most


class Curves:
    """What a block of each of several thresholds is after n = 0 .. most arrivals, as columns to average."""

    def __init__(self, positive: Vector, passes: Vector) -> None:
        size, count = positive.shape
        columns = np.zeros((size, 8, count))
        columns[:, 0], columns[:, 1] = positive, passes
        columns[1:, 2] = np.cumsum(positive[:-1], axis=0)
        columns[1:, 3] = np.cumsum(passes[:-1], axis=0)
        for source, slope in ((0, 4), (1, 5), (4, 6), (5, 7)):
            columns[:-1, slope] = columns[1:, source] - columns[:-1, source]
        self.columns, self.count = columns.reshape(size, 8 * count), count

    def at(self, loads: Vector, which: Integers) -> Vector:
        """Return F, C, their sums, slopes and second differences, [quantity, filter], a load for each."""
        chance = block.poisson(loads, len(self.columns) - 1)
        found = (chance @ self.columns).reshape(len(loads), 8, self.count)
        return np.ascontiguousarray(found[np.arange(len(loads)), :, which].T)


class Nested(NamedTuple):
    """Quantities of filters, [quantity, filter, …]: values, gradients, second derivatives in log(load)."""

    value: Vector
    slope: Vector
    bend: Vector

    def log(self, which: int, over: int | None = None) -> tuple[Vector, Vector, Vector]:
        """Return the logarithm of a quantity, or of a ratio, with its derivatives."""
        value = np.maximum(self.value[which], 1e-300)
        slope = self.slope[which] / value[:, None]
        bend = self.bend[which] / value[:, None, None] - slope[:, :, None] * slope[:, None, :]
        logs = np.log(value)
        if over is None:
            return logs, slope, bend
        less = self.log(over)
        return logs - less[0], slope - less[1], bend - less[2]


def measure(curves: Curves, which: Integers, logs: Vector, list_blocks: float) -> Nested:
    """Evaluate filters, from the last level up."""
    count, depth = logs.shape
    loads = np.exp(logs)
    found = curves.at(loads.ravel(), which.ravel()).reshape(8, count, depth)
    value = np.zeros((6, count))
    value[_BLOCKS], value[_LISTED], value[_STORED] = list_blocks, 1.0, 1.0
    slope, bend = np.zeros((6, count, depth)), np.zeros((6, count, depth, depth))
    own, factor = np.zeros((3, 6, count)), np.zeros((3, 6, count))  # p and q, with their derivatives
    for level in range(depth - 1, -1, -1):
        load = loads[:, level]
        f, c, f_sum, c_sum, f_slope, c_slope, f_bend, c_bend = found[:, :, level]
        passed, thinned = c_sum / load, f_sum / load
        turned = np.array([c, load * c_slope, load * c_slope + load * load * c_bend])
        w = np.array([passed, c - passed, turned[1] - c + passed])
        own[:, _RATE] = f, load * f_slope, load * f_slope + load * load * f_bend
        own[:, _BLOCKS] = 1.0 / load
        own[1, _BLOCKS] *= -1.0
        own[0, _MISS] = 1.0
        own[:, _STORED] = -w - np.array([thinned, f - thinned, own[1, _RATE] - f + thinned])
        own[0, _STORED] += 1.0
        own[:, _READ] = own[:, _STORED]
        for quantity in (_BLOCKS, _LISTED, _STORED, _READ):
            factor[:, quantity] = w
        factor[:, _RATE] = factor[:, _MISS] = turned
        for each in (value, slope, bend):  # a key that is passed on has one read more
            each[_READ] += each[_STORED]
        mixed = factor[1][:, :, None] * slope
        slope = factor[0][:, :, None] * slope
        slope[:, :, level] = own[1] + factor[1] * value
        bend = factor[0][:, :, None, None] * bend
        bend[:, :, level, :] = bend[:, :, :, level] = mixed
        bend[:, :, level, level] = own[2] + factor[2] * value
        value = own[0] + factor[0] * value
    return Nested(value, slope, bend)


def _downhill(bend: Vector, normals: Vector) -> Vector:
    """Turn second derivatives so that they are positive along the ties: a step then never leads uphill."""
    stiff = normals.transpose(0, 2, 1) @ normals
    scale = np.abs(bend).max(axis=(1, 2)) + 1e-12
    stiff *= (10.0 * scale / np.maximum(np.trace(stiff, axis1=1, axis2=2), 1e-12))[:, None, None]
    whole = bend + stiff
    values, vectors = np.linalg.eigh(whole)
    values = np.maximum(np.abs(values), 1e-3 * scale[:, None])
    return np.asarray((vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1) - stiff)


class Found(NamedTuple):
    """Filters with their best loads: [filter, level], and what is asked of each, [filter]."""

    loads: Vector
    rate: Vector
    blocks: Vector
    bounded: dict[str, Vector]
    converged: npt.NDArray[np.bool_]


def best_loads(
    curves: Curves, which: Integers, start: Vector, list_blocks: float, *, fpr: float | None,
    blocks: float | None, held: Mapping[str, float],
) -> Found:  # fmt: skip
    """Find the loads of least memory for a rate, or of least rate for a memory.

    Parameters
    ----------
    curves, which, start
        Thresholds, which of them each filter has, [filter, level], and loads to begin with.
    list_blocks
        Memory of a key on the list, in blocks.
    fpr, blocks
        The goal: one of them.
    held
        Bounds that hold as equations, by the names in `shape_search.Bounds`.
    """
    logs, begin = np.log(start), np.log(start)
    count = len(logs)
    aim = fpr if fpr is not None else blocks
    assert aim is not None
    limits = np.log([aim, *held.values()])
    value = np.zeros((6, count))
    converged = np.zeros(count, dtype=bool)
    rows = np.arange(count)  # those still under way
    for step in range(_STEPS):
        found = measure(curves, which[rows], logs[rows], list_blocks)
        value[:, rows] = found.value
        move, off = _newton_step(found, fpr is not None, limits, held)
        far = np.abs(move).max(axis=1)
        done = (far < 1e-5) & (off < 1e-7)
        converged[rows[done]] = True
        far = np.maximum(far, 1e-300)
        lost = ~(far < 50.0) | (np.abs(logs[rows] - begin[rows]).max(axis=1) > 1.0)
        if step >= _STEPS // 2:
            lost |= far > _LONGEST
        left = ~(done | lost)
        move *= np.minimum(1.0, _LONGEST / far)[:, None]
        rows = rows[left]
        if not len(rows):
            break
        logs[rows] += move[left]
    bounded = {
        name: value[which] / (1.0 if over is None else value[over])
        for name, (which, over) in _BOUNDED.items()
    }
    return Found(np.exp(logs), value[_RATE], value[_BLOCKS], bounded, converged)


def _newton_step(
    found: Nested, by_rate: bool, limits: Vector, held: Mapping[str, float]
) -> tuple[Vector, Vector]:
    """Return the step of each filter, [filter, level], and how far the equations are from holding."""
    goal, target = (_BLOCKS, _RATE) if by_rate else (_RATE, _BLOCKS)
    _, slope, bend = found.log(goal)
    count, depth = slope.shape
    size = depth + len(limits)
    system, right = np.zeros((count, size, size)), np.zeros((count, size, 1))
    right[:, :depth, 0] = -slope
    ties = [found.log(target), *(found.log(*_BOUNDED[name]) for name in held)]
    for place, (tie, limit) in enumerate(zip(ties, limits.tolist(), strict=True), depth):
        system[:, :depth, place] = system[:, place, :depth] = tie[1]
        right[:, place, 0] = limit - tie[0]
    off = np.abs(right[:, depth:, 0]).max(axis=1)
    np.nan_to_num(system, copy=False)
    np.nan_to_num(right, copy=False)
    normals = system[:, depth:, :depth]  # of the ties; their weights by least squares
    square = normals @ normals.transpose(0, 2, 1)
    corner = range(len(limits))
    square[:, corner, corner] += 1e-10 * np.trace(square, axis1=1, axis2=2)[:, None] + 1e-100
    weights = np.linalg.solve(square, normals @ right[:, :depth])[:, :, 0]
    for place, tie in enumerate(ties):
        bend = bend + weights[:, place, None, None] * tie[2]
    system[:, :depth, :depth] = _downhill(np.nan_to_num(bend), normals)
    system[:, range(depth, size), range(depth, size)] = -1e-12  # a tie that nothing moves: no step
    return np.linalg.solve(system, right)[:, :depth, 0], off
