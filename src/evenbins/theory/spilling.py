"""Filters whose list is too short, or that have none: where a key goes that nobody takes.

While every key finds a place by itself, a block's state depends on the number of its arrivals alone.
A key that all its blocks turn away goes into one of them by the spill rule, and which one depends on
all of them at that moment: so all tables are followed together in time, as the mean-field equation of

    loads below the threshold  ──▶  set bits at the threshold  ──coin, spill──▶  set bits above it

("fill" has set bits from the start, and neither list nor coin: `FillSpilling`.)

Set bits from the threshold on, because "least" compares them; with the loads alone the tail of the
fullest blocks, which decides the rate, would come out wrong. Steps of Runge and Kutta, 0.8 arrivals long.

Invariants: blocks and keys are conserved; the list takes keys first, and spilling begins when it is full.
Accuracy: within 1 % of simulations of 1e6 keys with "least", 2 % with "random", whose tail is heavy.

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient Balanced Bloom Filters" (2013), section 9.2, for
"random"; "least" is ours.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from evenbins.theory import block
from evenbins.theory.cores import BalancedCore

__all__ = ["FillSpilling", "Spilling"]

Vector = npt.NDArray[np.float64]

_MOST_PACE = 2.0**16
"""Keys per block of a level, at most: more would not be planned, and take long to follow."""
_TRACE = 1e-11
_STEP = 1.0
"""Keys that change a block in a step, at most, if more than `_TRACE` of all blocks are like it."""


def _least_of(at_least: list[Vector], above: list[Vector]) -> list[Vector]:
    """Return, by set bits, P(all other tables' blocks pass a key on and have more; or as many, if later).

    `at_least` and `above` are, for each table, P(its block passes the key on and has at least, or above, x
    set bits).
    """
    wins = []
    for table, own in enumerate(at_least):
        win = np.ones_like(own)
        for other in range(len(at_least)):
            if other != table:
                win = win * (above[other] if other < table else at_least[other])
        wins.append(win)
    return wins


class Spilling:
    """Mean-field equation of all tables in time: loads below the threshold, set bits from it on."""

    def __init__(self, design: BalancedCore, keys: int) -> None:
        self.design, self.keys = design, keys
        self.shared = design.policy == "sequential"
        tables = range(len(design.blocks))
        self.x = np.arange(design.block_bits + 1)
        keys = min(
            keys, block.KEYS_PER_BIT * design.block_bits * sum(design.blocks)
        )  # by then every bit is set
        self.pace = [min(keys / each, _MOST_PACE) for each in design.blocks]
        self.below: list[int] = []
        self.accepts: list[Vector] = []
        self.rates: list[Vector] = []
        self.enters: list[Vector] = []
        self.rate: list[Vector] = []
        self.kernel: list[Vector] = []
        low = design.block_bits
        for table in tables:
            bits, hashes = design.key_bits[table], design.hashes
            h = min(design.thresholds[table], block.reach(self.pace[table]))
            rates, thrown = block.effective_rates(bits, hashes, h + 2)
            rate = np.ones(design.block_bits + 1)
            rate[: bits + 1] = (np.arange(bits + 1) / bits) ** hashes
            n = float(thrown[h])
            rows = block.set_bits(bits, hashes, block.reach(n))
            enters = np.zeros(design.block_bits + 1)
            enters[: bits + 1] = rows[int(n)] * (1.0 - n % 1.0) + rows[int(n) + 1] * (n % 1.0)
            low = min(low, int(np.flatnonzero(enters > 1e-20)[0]))
            matrix = block.key_matrix(bits, hashes)
            change = np.zeros((design.block_bits + 1, design.block_bits + 1))
            stay = np.diagonal(matrix)
            change[: bits + 1, : bits + 1] = matrix / np.maximum(1.0 - stay, 1e-300)[:, None]
            np.fill_diagonal(change, 0.0)
            change[bits, bits] = 1.0
            self.below.append(h)
            self.rates.append(rates[:h])
            self.accepts.append(1.0 - rates[:h])
            self.enters.append(enters)
            self.rate.append(rate)
            self.kernel.append(change)
        self.low = low
        width = design.block_bits + 1 - low
        for table in tables:
            self.enters[table] = self.enters[table][low:]
            self.rate[table] = self.rate[table][low:]
            self.kernel[table] = np.ascontiguousarray(self.kernel[table][low:, low:])
        self.x = self.x[low:]
        sizes = [h + 2 * width for h in self.below]
        ends = np.cumsum([0, *sizes])
        self.places = [
            (int(s), int(s) + h, int(s) + h + width, int(s) + h + 2 * width)
            for s, h in zip(ends[:-1], self.below, strict=True)
        ]
        self.start = np.zeros(int(ends[-1]) + 4)  # then: listed, spilled, stored, reads, per key
        for table in tables:
            begin, at, _, _ = self.places[table]
            if self.below[table]:
                self.start[begin] = 1.0
            else:
                self.start[at : at + width] = self.enters[table]

    def meets(self, state: Vector) -> tuple[list[float], list[Vector], list[float]]:
        """Return F, the passing blocks by set bits, and C, of each table."""
        positive, passing, passes = [], [], []
        for table, (begin, at, over, end) in enumerate(self.places):
            here, above = state[at:over], state[over:end]
            rate = self.rate[table]
            positive.append(float(state[begin:at] @ self.rates[table] + (here + above) @ rate))
            passing.append(((1.0 - self.design.coin) * here + above) * (1.0 - rate))
            passes.append(float(passing[-1].sum()))
        return positive, passing, passes

    def _wins(self, passing: list[Vector], passes: list[float]) -> list[Vector]:
        """Return, by set bits, P(a key that all blocks turn away is put into this table's block)."""
        choices = self.design.choices
        if self.design.spill == "random":
            if self.shared:
                return [np.full_like(passing[0], passes[0] ** (choices - 1))]
            every = [math.prod(passes[:j] + passes[j + 1 :]) / choices for j in range(choices)]
            return [np.full_like(each, share) for each, share in zip(passing, every, strict=True)]
        at_least = [each[::-1].cumsum()[::-1] for each in passing]
        above = [whole - each for whole, each in zip(at_least, passing, strict=True)]
        if self.shared:
            win = np.zeros_like(passing[0])
            for j in range(choices):
                win += above[0] ** j * at_least[0] ** (choices - 1 - j)
            return [win]
        return _least_of(at_least, above)

    def change(self, state: Vector, listing: bool) -> Vector:
        """Return the state's change per unit of time, all keys coming in one unit."""
        coin, choices = self.design.coin, self.design.choices
        positive, passing, passes = self.meets(state)
        if self.shared:
            walk = [passes[0] ** j for j in range(choices)]
            waiting = passes[0] ** choices
            attempts = [self.pace[0] * math.fsum(walk)]
            accepted = [each * max(1.0 - positive[0] - passes[0], 0.0) for each in walk]
        else:
            walk = [math.prod(passes[:j]) for j in range(choices)]
            waiting = math.prod(passes)
            attempts = [pace * each for pace, each in zip(self.pace, walk, strict=True)]
            accepted = [
                each * max(1.0 - f - c, 0.0) for each, f, c in zip(walk, positive, passes, strict=True)
            ]
        wins = None if listing else self._wins(passing, passes)
        result = np.zeros_like(state)
        for table, (begin, at, over, end) in enumerate(self.places):
            arrive = attempts[table]
            turned = 1.0 - self.rate[table]
            here, above = state[at:over], state[over:end]
            coming = arrive * coin * here * turned
            if self.below[table]:
                flow = arrive * state[begin:at] * self.accepts[table]
                result[begin:at] -= flow
                result[begin + 1 : at] += flow[:-1]
                result[at:over] += flow[-1] * self.enters[table]
            result[at:over] -= coming
            if wins is not None:
                spill = self.pace[table] * turned * wins[table]
                spill_here = (1.0 - coin) * here * spill
                result[at:over] -= spill_here
                spill_above = above * spill
                result[over:end] -= spill_above
                coming = coming + spill_here + spill_above
            result[over:end] += coming @ self.kernel[table]
        stored = math.fsum(accepted) + waiting
        reads = math.fsum((j + 1) * each for j, each in enumerate(accepted)) + choices * waiting
        result[-4:] = (waiting if listing else 0.0, 0.0 if listing else waiting, stored, reads)
        return result

    def end(self) -> Vector:
        """Integrate over all keys; the list takes what it can, then spilling begins."""
        state, time = self.start, 0.0
        room = self.design.overflow_limit / self.keys
        listing = room > 0.0
        longest = 0.125
        while time < 1.0 - 1e-12:
            step = min(0.8 / max(self._fastest(state, listing), 0.1), 1.0 - time, longest)
            moved = self._step(state, step, listing)
            if moved.min() < -1e-6:  # a level that few keys reached so far began to fill within the step
                longest = 0.5 * step
                continue
            longest = max(2.0 * step, 1e-3)
            if listing and moved[-4] > room:
                part = (room - float(state[-4])) / float(moved[-4] - state[-4])
                moved = self._step(state, step * part, listing) if part > 0.0 else state
                time += step * part - step
                listing = False
            moved[:-4][np.abs(moved[:-4]) < 0.01 * _TRACE] = (
                0.0  # or it would grow where steps are too long for it
            )
            state, time = moved, time + step
        return state

    def _fastest(self, state: Vector, listing: bool) -> float:
        """Return the most keys per unit of time that change a block, rarer ones than `_TRACE` left out."""
        _, passing, passes = self.meets(state)
        wins = None if listing else self._wins(passing, passes)
        fastest = 0.0
        for table, (begin, at, over, end) in enumerate(self.places):
            if self.shared:
                arrive = self.pace[0] * math.fsum(passes[0] ** j for j in range(self.design.choices))
            else:
                arrive = self.pace[table] * math.prod(passes[:table])
            here, above = state[at:over] > _TRACE, state[over:end] > _TRACE
            if (state[begin:at] > _TRACE).any():
                fastest = max(fastest, arrive)
            elif here.any():
                fastest = max(fastest, self.design.coin * arrive)
            if wins is not None:
                spill = self.pace[table] * (1.0 - self.rate[table]) * wins[table]
                fastest = max(fastest, float(spill.max(initial=0.0, where=here | above)))
        return fastest

    def _step(self, state: Vector, step: float, listing: bool) -> Vector:
        return block.advance(lambda at: self.change(at, listing), state, step)


class FillSpilling:
    """Mean-field equation of a "fill" filter whose last level can be full: set bits of all tables in time."""

    def __init__(self, design: BalancedCore, keys: int) -> None:
        bits = design.block_bits
        self.choices = len(design.blocks)
        keys = min(keys, block.KEYS_PER_BIT * bits * sum(design.blocks))  # by then every bit is set
        self.pace = np.array([min(keys / each, _MOST_PACE) for each in design.blocks])
        self.rate = (np.arange(bits + 1) / bits) ** design.hashes
        self.full = np.arange(bits + 1) >= np.array(design.thresholds)[:, None]
        self.bands = block.key_bands(bits, design.hashes)

    def meets(self, state: Vector) -> tuple[list[float], Vector, list[float]]:
        """Return F, the passing blocks by set bits, and C, of each table."""
        passing = np.where(self.full, state * (1.0 - self.rate), 0.0)
        return (state @ self.rate).tolist(), passing, passing.sum(axis=1).tolist()

    def _placed_if_absent(self, passing: Vector, passes: list[float]) -> Vector:
        """Return, by set bits, P(a key that does not find its bits there is put into the table's block)."""
        at_least = list(passing[:, ::-1].cumsum(axis=1)[:, ::-1])
        wins = np.array(_least_of(at_least, [a - b for a, b in zip(at_least, passing, strict=True)]))
        walk = np.array([math.prod(passes[:j]) for j in range(self.choices)])
        return np.where(self.full, wins, walk[:, None])

    def change(self, state: Vector) -> tuple[Vector, Vector, Vector]:
        """Return the state's change per unit of time, that of (spilled, stored, reads) per key, and its pace.

        All keys come in one unit of time. The pace is that at which keys change a block of x set bits.
        """
        _, passing, passes = self.meets(state)
        given = self._placed_if_absent(passing, passes)
        pace = self.pace[:, None] * given
        flow = state * pace
        moved = np.zeros_like(state)
        for j in range(1, self.bands.shape[1]):
            part = flow * self.bands[:, j]
            moved -= part
            moved[:, j:] += part[:, : part.shape[1] - j]
        stored = (state * given * (1.0 - self.rate)).sum(axis=1)
        sums = np.array([math.prod(passes), stored.sum(), stored @ np.arange(1.0, self.choices + 1.0)])
        return moved, sums, pace * (1.0 - self.bands[:, 0])

    def end(self) -> tuple[Vector, Vector]:
        """Integrate over all keys: the set bits of each table's blocks, and (spilled, stored, reads) per key.

        Reads are those of a look-up: a key that spilled into a block of the first level is found there.
        """
        state = np.zeros((self.choices, len(self.rate)))
        state[:, 0] = 1.0
        sums, time = np.zeros(3), 0.0
        longest = 0.125
        while time < 1.0 - 1e-12:
            first, k1, pace = self.change(state)
            fastest = float(pace[state > _TRACE].max())
            step = min(_STEP / max(fastest, 0.1), 1.0 - time, longest)
            second, k2, _ = self.change(state + 0.5 * step * first)
            third, k3, _ = self.change(state + 0.5 * step * second)
            fourth, k4, _ = self.change(state + step * third)
            moved = state + step / 6.0 * (first + 2.0 * second + 2.0 * third + fourth)
            if moved.min() < -1e-6:  # a level that few keys reached so far began to fill within the step
                longest = 0.5 * step
                continue
            moved[np.abs(moved) < 0.01 * _TRACE] = 0.0  # or it would grow where steps are too long for it
            sums = sums + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
            state, time, longest = moved, time + step, max(2.0 * step, 1e-3)
        return state, sums
