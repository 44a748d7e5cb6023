"""Set bits of a block whose keys had two blocks to choose from: a mean-field equation in time.

A key goes to the one of its two blocks whose rate it raises least. With many blocks the fraction that has x
set bits follows the differential equation of its mean change, time being keys per block:

    state, load ──step──▶ state, load + 1/4 ──step──▶ …      one path for each (block, hashes), kept

What is computed is a window of set bits: blocks below it, which have next to no keys yet, are rarer than
1e-11, and those above it add less than 1e-14 of the rate. Steps of Runge and Kutta; the rate is right to
5e-4.

Invariants: a state depends on its load alone, not on what was asked before. Of two blocks of equal harm, each
is taken with probability 1/2.

Source: M. Mitzenmacher's thesis (1996), for the limit. Tried and dropped: steps of one key and longer (blocks
that lag behind fill at rate 2: the method becomes unstable); methods of higher order, which save no
evaluations at this accuracy.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins.theory.block import KEYS_PER_BIT, advance, key_bands
from evenbins.theory.caching import cached, frozen

__all__ = ["load_of_mean", "pair"]

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_RARE = 1e-11
"""Fraction of blocks that have fewer set bits than the window's, and stay as they are."""
_TINY = 1e-14
"""Fraction of the rate that blocks of more set bits than the window's have."""


class _Window:
    """Pairs (set bits, new bits) of blocks of `first` to `last` - 1 set bits, in order of the harm done."""

    __slots__ = ("above_from", "after", "bands", "before", "equal_from", "first", "last", "tied")

    def __init__(self, equation: _Pair, first: int, last: int) -> None:
        self.first, self.last = first, last
        inside = (equation.before >= first) & (equation.before < last)
        self.before = equation.before[inside] - first
        self.after = equation.after[inside] - first
        self.bands = equation.bands[inside]
        harm = equation.harm[inside]
        differs = np.empty(len(harm) + 1, dtype=bool)  # from the pair before it
        differs[0] = differs[-1] = True
        np.not_equal(harm[1:], harm[:-1], out=differs[1:-1])
        self.tied = np.flatnonzero(~(differs[1:] & differs[:-1]))
        starts = np.flatnonzero(differs)
        group = np.searchsorted(starts, self.tied, side="right")
        self.equal_from, self.above_from = starts[group - 1], starts[group]
        frozen([self.before, self.after, self.bands, self.tied, self.equal_from, self.above_from])


class _Path(NamedTuple):
    """The states of an equation at loads 0, 1/4, 1/2, …, and the window that led to each; never changed."""

    loads: tuple[float, ...]
    states: tuple[Vector, ...]
    windows: tuple[_Window | None, ...]


class _Pair:
    """Set bits of a block that two-choice keys fill, at every load: integrated as far as asked.

    One object serves all threads. All that it changes is `_path`, which is replaced as a whole by a longer
    one: a thread that extends an older path at the same time computes the same states again.
    """

    def __init__(self, bits: int, hashes: int) -> None:
        self.bits, self.hashes = bits, hashes
        self.rate = frozen((np.arange(bits + 1) / bits) ** hashes)
        self.weight = frozen(self.rate + 1e-30)  # without keys, too, something counts
        harm = _harm(bits, hashes)
        before = np.repeat(np.arange(bits), hashes)  # a block of all bits changes no more
        after = before + np.tile(np.arange(1, hashes + 1), bits)
        order = np.argsort(harm[np.minimum(after, bits)] - harm[before], kind="stable")
        self.before, self.after = frozen((before[order], np.minimum(after, bits)[order]))
        self.harm = frozen(harm[self.after] - harm[self.before])
        # a key that sets no new bit changes nothing
        self.bands = frozen(key_bands(bits, hashes)[:bits, 1:].ravel()[order])
        self._path = _Path((0.0,), (frozen(np.eye(1, bits + 1)[0]),), (None,))

    def _change(self, state: Vector, window: _Window) -> Vector:
        first, last = window.first, window.last
        offered = state[first:last][window.before] * window.bands
        least = np.zeros(len(offered) + 1)
        np.cumsum(offered[::-1], out=least[-2::-1])
        both = least[:-1] + least[1:]
        both[window.tied] = least[window.equal_from] + least[window.above_from]
        chosen = np.multiply(offered, both, out=offered)
        width = last - first + self.hashes
        change = np.zeros(self.bits + 1 + self.hashes)
        change[first : first + width] = np.bincount(window.after, chosen, width)
        change[first:last] -= np.bincount(window.before, chosen, last - first)
        return change[: self.bits + 1]

    def _fit_window(self, window: _Window | None, state: Vector) -> _Window:
        """Return the window if the state lies in it and fills it; another one otherwise."""
        k, top = self.hashes, self.bits
        first = int(np.searchsorted(np.cumsum(state), _RARE))
        weight = np.cumsum((state * self.weight)[::-1])
        last = top + 1 - int(np.searchsorted(weight, _TINY * weight[-1]))
        near = (min(last + k, top), min(last + 4 * k, top))
        if (
            window is not None
            and first - 2 * k <= window.first <= first
            and near[0] <= window.last <= near[1]
        ):
            return window
        return _Window(self, first, min(last + 3 * k, top))

    def _advance(self, state: Vector, step: float, window: _Window) -> Vector:
        return frozen(np.maximum(advance(lambda at: self._change(at, window), state, step), 0.0))

    def _extend(self, path: _Path, load: float) -> _Path:
        loads, states, windows = list(path.loads), list(path.states), list(path.windows)
        while loads[-1] < load:
            step = 0.25 if loads[-1] < 4.0 else 0.5 if loads[-1] < 128.0 else 1.0
            window = self._fit_window(windows[-1], states[-1])
            states.append(self._advance(states[-1], step, window))
            loads.append(loads[-1] + step)
            windows.append(window)
        return _Path(tuple(loads), tuple(states), tuple(windows))

    def _upto(self, load: float) -> tuple[_Path, int]:
        """Return a path that reaches the load, and the last place at or below it."""
        path = self._path
        if path.loads[-1] < load:
            self._path = path = self._extend(path, load)
        return path, bisect_right(path.loads, load) - 1

    def at(self, load: float) -> Vector:
        """Return P(x set bits) at `load` keys per block."""
        path, place = self._upto(load)
        state, rest = path.states[place], load - path.loads[place]
        if rest <= 1e-12:
            return state
        return self._advance(state, rest, self._fit_window(path.windows[place], state))

    def positive(self, load: float) -> float:
        """Compute F, the rate of one of the two blocks."""
        return min(float(self.at(load) @ self.rate), 1.0)

    def lost(self, load: float) -> float:
        """Return the fraction of the keys up to `load` that both blocks together took for present."""
        if load <= 0.0:
            return 0.0
        path, place = self._upto(load)
        loads = np.array([*path.loads[: place + 1], load])
        rates = np.array(
            [*(float(state @ self.rate) for state in path.states[: place + 1]), self.positive(load)]
        )
        if load - loads[-2] <= 1e-9:
            loads, rates = loads[:-1], rates[:-1]
        found = rates * (2.0 - rates)
        slopes = np.gradient(found, loads)
        steps = np.diff(loads)
        area = 0.5 * steps * (found[1:] + found[:-1]) - steps**2 / 12.0 * np.diff(slopes)
        return min(max(float(area.sum()) / load, 0.0), 1.0)


def _harm(bits: int, hashes: int) -> Integers:
    """Return 2**62 (x/bits)**hashes, rounded down after each factor as the core does; [x].

    Products of 71 bits: the halves of a number are multiplied one by one.
    """
    x = np.arange(bits + 1, dtype=np.int64)
    harm = np.full(bits + 1, 2**62, dtype=np.int64)
    shift = bits.bit_length() - 1
    assert bits == 1 << shift
    for _ in range(hashes):
        harm = ((harm >> 32) * x << (32 - shift)) + ((harm & 0xFFFFFFFF) * x >> shift)
    return harm


@cached(64)
def pair(bits: int, hashes: int) -> _Pair:
    """Return the two-choice equation of a block, which remembers how far it was integrated."""
    return _Pair(bits, hashes)


def load_of_mean(bits: int, hashes: int, mean: float) -> float:
    """Find the keys per block at which two-choice blocks have `mean` set bits."""
    if mean <= 0.0:
        return 0.0
    equation = pair(bits, hashes)
    x = np.arange(bits + 1)
    low, high = 0.0, float(KEYS_PER_BIT * bits)
    load = min(-bits / hashes * math.log1p(-min(mean / bits, 1.0 - 1e-9)), high)
    before: tuple[float, float] | None = None
    for _ in range(60):
        reached = float(equation.at(load) @ x) - mean
        if reached > 0.0:
            high = load
        else:
            low = load
        if abs(reached) < 1e-9 * mean or high - low < 1e-9 * high:
            break
        slope = hashes * (1.0 - mean / bits)
        if before is not None and before[0] != load and reached != before[1]:
            slope = (reached - before[1]) / (load - before[0])
        before = (load, reached)
        load -= reached / slope
        if not low < load < high:
            load = 0.5 * (low + high)
    return load
