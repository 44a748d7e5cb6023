"""The fluid limits of multilevel tables, scheme by scheme: how fast each fraction changes as keys arrive.

One class for each scheme of chapter 5 of the thesis, all with one face, so that one integrator, one gradient
and one variance serve them all:

    size                       entries of the state y; the last two are `overflow` and `moves`
    rates(y, shares)           dy/dt, t = keys inserted per planned key
    fills(y)                   fraction of slots occupied, per level
    outcomes(y, shares, p)     what one insertion may do, for the variance (see `fluid_noise`)

The state is an array of `size` rows; the other axes are free and work in parallel (several shares, several
times, several directions of a derivative). Nothing but sums and products happens to it, so that it may be
complex: a step of 1e-30 i in a share carries the exact derivative along.

Letters of the thesis: alpha_i `shares` (buckets of level i per key), f `full` or fills, g `known`, z
`passed`. `known` are keys whose next bucket has been found full, and which therefore never move again:
without deletions a full bucket stays full. Everything else about a key is still a fair draw (deferred
decisions).

Misprints put right, by derivation and by simulation (tests/unit/test_fluid.py): E[dF_i] carries 1/n; the
product of section 5.5 is prod (g_j + (f_j - g_j) f_{j+1}); G counts keys found full in line 7 *or* 8 of
Figure 5.1 (line 7: the new key itself, if it takes the place of a moved one); Std2 multiplies f_{k,2} over
k < i.

`overflow` is integrated as such: 1 - sum(alpha f) would lose all digits of a small one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["AVAILABLE", "SCHEMES", "Factor", "Outcome", "System", "system"]

Array = npt.NDArray[Any]  # float64 or complex128

SCHEMES = ("standard", "conservative", "second-chance", "extreme-second-chance")
AVAILABLE = (
    '"standard" and "second-chance" with any number of slots, '
    'and for "conservative" and "extreme-second-chance" with 1 slot'
)

Factor = tuple[Array, Array, Array]
"""What happens at one bucket, as moments of the effect p.v: probability, E[p.v], E[(p.v)**2]."""
Outcome = list[Factor]
"""Independent things that happen together: their probabilities multiply, their effects add."""


class System(ABC):
    """A scheme with its number of levels and of slots a bucket."""

    def __init__(self, levels: int, slots: int, size: int) -> None:
        self.levels, self.slots, self.size = levels, slots, size + 2

    def start(self, shape: tuple[int, ...], dtype: type = float) -> Array:
        """Return the state of an empty table."""
        return np.zeros((self.size, *shape), dtype=dtype)

    @abstractmethod
    def rates(self, y: Array, shares: Array) -> Array:
        """Compute dy/dt."""

    def fills(self, y: Array) -> Array:
        """Return the fraction of slots occupied, one row a level: the first rows, for one slot."""
        return y[: self.levels]

    @abstractmethod
    def outcomes(self, y: Array, shares: Array, p: Array) -> list[Outcome]:
        """Return what one insertion may do; p weighs the entries of the state, as its rows."""


class Standard(System):
    """Leftmost bucket with a free slot (sections 5.3, 5.7).

    Rows: level by level, buckets with at least 1 ... slots keys.
    """

    def __init__(self, levels: int, slots: int) -> None:
        super().__init__(levels, slots, levels * slots)

    def rates(self, y: Array, shares: Array) -> Array:
        loads = y[:-2].reshape(self.levels, self.slots, *y.shape[1:])
        passed = _before(loads[:, -1])
        out = np.zeros_like(y)
        grown = (passed[:-1] / shares)[:, None] * _gaps(loads)
        out[:-2] = grown.reshape(out[:-2].shape)
        out[-2] = passed[-1]
        return out

    def fills(self, y: Array) -> Array:
        rows = y[: self.levels * self.slots]
        return np.asarray(rows.reshape(self.levels, self.slots, *y.shape[1:]).mean(axis=1))

    def outcomes(self, y: Array, shares: Array, p: Array) -> list[Outcome]:
        found: list[Outcome] = []
        before: Outcome = []
        for i in range(self.levels):
            rows = slice(i * self.slots, (i + 1) * self.slots)
            found.append([*before, _arrival(_gaps(y[None, rows])[0], p[rows] / shares[i])])
            before = [*before, _certain(y[rows][-1])]
        return [*found, [*before, _worth(p[-2])]]


class Conservative(System):
    """Moves only what stands in the way of a key that fits nowhere (section 5.4).

    Rows: full_1 ... full_d, marked_1 ... marked_{d-1} (buckets that have tried).
    """

    def __init__(self, levels: int, slots: int) -> None:
        super().__init__(levels, slots, 2 * levels - 1)

    def rates(self, y: Array, shares: Array) -> Array:
        d = self.levels
        full, marked = y[:d], y[d : 2 * d - 1]
        out = np.zeros_like(y)
        after = [1.0 + 0.0 * full[0]]  # products of full over levels >= i, from the last down
        for i in reversed(range(d)):
            after.append(after[-1] * full[i])
        after.reverse()
        reach: Any = 1.0  # products of full over levels < i
        movers: Any = 0.0  # keys on the move that found all levels before i full
        all_marked: Any = 1.0
        for i in range(d):
            arriving = reach + movers
            out[i] = arriving * (1.0 - full[i]) / shares[i]
            out[-1] = out[-1] + movers * (1.0 - full[i])
            reach, movers = reach * full[i], movers * full[i]
            if i < d - 1:
                tries = all_marked * (full[i] - marked[i]) * after[i + 1]
                out[d + i] = tries / shares[i]
                movers = movers + tries
                all_marked = all_marked * marked[i]
        out[-2] = movers + all_marked * full[d - 1]
        return out

    def outcomes(self, y: Array, shares: Array, p: Array) -> list[Outcome]:
        d = self.levels
        full, marked = y[:d], y[d : 2 * d - 1]
        place = p[:d] / shares
        mark = p[d : 2 * d - 1] / shares[: d - 1]
        found: list[Outcome] = []
        for i in range(d):
            found.append([*map(_certain, full[:i]), _event(1.0 - full[i], place[i])])
        for j in range(d - 1):
            tries = [
                *map(_certain, marked[:j]),
                _event(full[j] - marked[j], mark[j]),
                *map(_certain, full[j + 1 :]),
            ]
            for k in range(j + 1, d):
                found.append(
                    [*tries, *map(_certain, full[j + 1 : k]), _event(1.0 - full[k], place[k] + p[-1])]
                )
            found.append([*tries, *map(_certain, full[j + 1 :]), _worth(p[-2])])
        found.append([*map(_certain, marked), _certain(full[d - 1]), _worth(p[-2])])
        return found


class SecondChance(System):
    """One level to the right for the key in the way, before the new key goes there (sections 5.5, 5.7).

    With several slots a bucket its keys are tried one after the other, and the first that can move does.
    Rows: level by level, buckets with at least 1 ... slots keys; then level by level, full buckets with at
    least 1 ... slots known keys (the last level has none).
    """

    def __init__(self, levels: int, slots: int) -> None:
        super().__init__(levels, slots, (2 * levels - 1) * slots)

    def _split(self, y: Array) -> tuple[Array, Array]:
        d, s = self.levels, self.slots
        rest = y.shape[1:]
        return y[: d * s].reshape(d, s, *rest), y[d * s : (2 * d - 1) * s].reshape(d - 1, s, *rest)

    def rates(self, y: Array, shares: Array) -> Array:
        return (self._rates_of_one_slot if self.slots == 1 else self._rates_of_slots)(y, shares)

    def _rates_of_slots(self, y: Array, shares: Array) -> Array:
        s = self.slots
        loads, known = self._split(y)
        full, after = loads[:-1, -1], loads[1:, -1]  # of each level but the last, and of the next
        exactly = _exactly(loads[:-1, -1:], known)
        out = np.zeros_like(y)
        loads_out, known_out = self._split(out)
        growth = exactly[:, 0] * after  # of "at least k+1 known": sum over r <= k of exactly_r after**(k+1-r)
        known_out[:, 0] = growth
        for k in range(1, s):
            growth = (growth + exactly[:, k]) * after
            known_out[:, k] = growth
        moved = exactly[:, s - 1]  # times 1 - after: the chance that one of the keys can move
        series: Any = 1.0
        for r in range(s - 2, -1, -1):
            series = 1.0 + after * series
            moved = moved + exactly[:, r] * series
        passed = _before(known[:, -1] + growth)  # new keys that found every bucket full, and nothing to move
        reach = passed[:-1]
        known_out *= (reach / shares[:-1])[:, None]
        tried = after * moved
        arriving = np.empty_like(loads[:, -1])
        arriving[0] = 1.0 / shares[0]
        arriving[1:] = reach * (full + tried) / shares[1:]
        loads_out[:] = arriving[:, None] * _gaps(loads)
        out[-1] = (reach * tried * (1.0 - after)).sum(axis=0)
        out[-2] = passed[-1] * loads[-1, -1]
        return out

    def _rates_of_one_slot(self, y: Array, shares: Array) -> Array:
        """Compute the same for buckets of one slot, in a third of the operations."""
        d = self.levels
        full, known = y[:d], y[d:-2]
        after = full[1:]
        tried = (full[:-1] - known) * after  # the key in the way is asked, and finds the next level full
        passed = np.ones((d, *y.shape[1:]), dtype=y.dtype)
        np.cumprod(known + tried, axis=0, out=passed[1:])
        reach = passed[:-1]
        asked = reach * tried
        free = 1.0 - full
        out = np.empty_like(y)
        out[0] = free[0] / shares[0]
        out[1:d] = (reach * full[:-1] + asked) * free[1:] / shares[1:]
        out[d:-2] = asked / shares[:-1]
        out[-2] = passed[-1] * full[-1]
        out[-1] = (asked * free[1:]).sum(axis=0)
        return out

    def fills(self, y: Array) -> Array:
        return np.asarray(self._split(y)[0].mean(axis=1))

    def outcomes(self, y: Array, shares: Array, p: Array) -> list[Outcome]:
        d, s = self.levels, self.slots
        loads, known = self._split(y)
        p_loads, p_known = self._split(p)
        gaps, counts = _gaps(loads), _exactly(loads[:-1, -1:], known)
        found: list[Outcome] = [[_arrival(gaps[0], p_loads[0] / shares[0])]]
        before: Outcome = []
        for i in range(d - 1):
            full, after, exactly = loads[i, -1], loads[i + 1, -1], counts[i]
            land = _arrival(gaps[i + 1], p_loads[i + 1] / shares[i + 1])
            worth = np.concatenate([np.zeros_like(p_known[i][:1]), np.cumsum(p_known[i] / shares[i], axis=0)])
            found.append([*before, _certain(full), land])
            stuck = [exactly[r] * after ** (s - r) for r in range(s + 1)]
            moved = [
                (exactly[r] * after**q, worth[r + q + 1] - worth[r] + p[-1])
                for r in range(s)
                for q in range(s - r)
            ]
            found.append([*before, _mix(moved), _certain(after), land])
            before = [*before, _mix([(chance, worth[s] - worth[r]) for r, chance in enumerate(stuck)])]
        found.append([*before, _certain(loads[d - 1, -1]), _worth(p[-2])])
        return found


class ExtremeSecondChance(System):
    """The leftmost free bucket of the new key or of any key in its way (section 5.6).

    Rows: full_1 ... full_d; then for i < j known_{i,j}: buckets of level i whose key is known to find the
    levels up to j full (g_{i,>=j}), j = 2 ... d, i = 1 ... j-1 in turn.
    """

    def __init__(self, levels: int, slots: int) -> None:
        super().__init__(levels, slots, levels + levels * (levels - 1) // 2)

    def rates(self, y: Array, shares: Array) -> Array:
        d = self.levels
        full = y[:d]
        out = np.zeros_like(y)
        passed: Any = 1.0  # nothing is free up to level j-1, for the new key and those in its way
        stuck = full[:0]  # one row for each level i < j: bucket taken, and its key stuck up to level j-1
        row = d
        for j in range(d):
            out[j] = passed / shares[j]
            if j:
                known = y[row : row + j]
                open_ = stuck - known  # not known at level j
                now = known + full[j] * open_
                first = _before(now)  # keys of lower levels are asked first
                later = _after(stuck)
                asked = full[j] * first[:-1] * later * open_
                out[row : row + j] = asked / shares[:j]
                out[-1] = out[-1] + (1.0 - full[j]) * asked.sum(axis=0)
                row += j
                stuck, still = now, first[-1] * full[j]
            else:
                still = full[0]
            out[j] = out[j] - still / shares[j]
            passed = still
            stuck = np.concatenate([stuck, full[j : j + 1]])
        out[-2] = passed
        return out

    def outcomes(self, y: Array, shares: Array, p: Array) -> list[Outcome]:
        d = self.levels
        full = y[:d]
        where = {}
        row = d
        for j in range(1, d):
            for i in range(j):
                where[i, j] = row
                row += 1

        def key(i: int, upto: int, *, moves: bool = False) -> Factor:
            """The key of level i in the way: stuck up to `upto`, where it asks now; or it moves there."""
            parts = []
            bounds = [full[i], *(y[where[i, j]] for j in range(i + 1, upto + 1))]
            for r in range(i, upto + (not moves)):  # known up to exactly r (at least, for the last)
                chance = bounds[r - i] - (bounds[r - i + 1] if r < upto else 0.0)
                worth = p[-1] if moves else 0.0 * p[0]
                for j in range(r + 1, upto + 1):
                    chance = chance if moves and j == upto else chance * full[j]
                    worth = worth + p[where[i, j]] / shares[i]
                parts.append((chance, worth))
            return _mix(parts)

        found: list[Outcome] = []
        for j in range(d):
            land = _event(1.0 - full[j], p[j] / shares[j])
            found.append([*(key(i, j - 1) for i in range(j)), land])
            for i in range(j):
                asked = [key(k, j) for k in range(i)]
                spared = [key(k, j - 1) for k in range(i + 1, j)]
                found.append([*asked, key(i, j, moves=True), *spared, _certain(full[j]), land])
        found.append([*(key(i, d - 1) for i in range(d)), _worth(p[-2])])
        return found


_SYSTEMS: dict[str, Callable[[int, int], System]] = {
    "standard": Standard,
    "conservative": Conservative,
    "second-chance": SecondChance,
    "extreme-second-chance": ExtremeSecondChance,
}


def system(scheme: str, levels: int, slots: int) -> System:
    """Return the system of a scheme whose arguments have been checked."""
    return _SYSTEMS[scheme](levels, slots)


# --- buckets ---------------------------------------------------------------------------------------------


def _gaps(at_least: Array) -> Array:
    """Turn "at least 1, 2, ... s keys" into "exactly 0, 1, ... s-1"; one row a level."""
    out = -at_least
    out[:, 1:] += at_least[:, :-1]
    out[:, 0] += 1.0
    return out


def _exactly(full: Array, known: Array) -> Array:
    """Turn "full, at least 1, ... s known" into "exactly 0, ... s known"; one row a level."""
    bounds = np.concatenate([full, known], axis=1)
    bounds[:, :-1] -= known
    return bounds


def _before(rows: Array) -> Array:
    """Return the products of the rows before each, and of all: one row more."""
    out = np.ones((rows.shape[0] + 1, *rows.shape[1:]), dtype=rows.dtype)
    np.cumprod(rows, axis=0, out=out[1:])
    return out


def _after(rows: Array) -> Array:
    """Return the products of the rows after each."""
    out = np.ones_like(rows)
    if rows.shape[0] > 1:
        out[:-1] = np.cumprod(rows[:0:-1], axis=0)[::-1]
    return out


# --- moments of one insertion's effect -------------------------------------------------------------------


def _certain(chance: Array) -> Factor:
    return chance, 0.0 * chance, 0.0 * chance


def _event(chance: Array, worth: Array) -> Factor:
    return chance, chance * worth, chance * worth**2


def _worth(worth: Array) -> Factor:
    return _event(1.0 + 0.0 * worth, worth)


def _mix(parts: list[tuple[Array, Array]]) -> Factor:
    """Return one of several events."""
    factors = [_event(chance, worth) for chance, worth in parts]
    return (
        np.asarray(sum(each[0] for each in factors)),
        np.asarray(sum(each[1] for each in factors)),
        np.asarray(sum(each[2] for each in factors)),
    )


def _arrival(gaps: Array, worth: Array) -> Factor:
    """Return a key that lands in a bucket with a free slot."""
    return gaps.sum(axis=0), (gaps * worth).sum(axis=0), (gaps * worth**2).sum(axis=0)
