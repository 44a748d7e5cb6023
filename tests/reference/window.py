"""The window filter: the fingerprints of a filter of kind 18, each once, with the step of its last addition.

    x      the time: microseconds, or additions          t = x * steps // window   its step
    age    t % 2**p, in the last p bits of a slot        p = bits of 2 * steps + 2

A fingerprint of step e is found in step t if t - e <= steps. The twin keeps steps; the payload has ages.

Sweeping: a turn goes over the lines of level 1, and removes what has expired. Each addition sweeps one line
of the turn under way; when all are swept, the next turn begins if the step is another one by now. A later
step sweeps as many lines as make turns of at most D = (2**p - steps) // 3 steps, before its first addition.
After more than `steps` steps all has expired, and all is removed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from reference import fingerprint
from reference.bloom import ReferenceFilter
from reference.fingerprint import ReferenceFingerprint
from reference.keys import digest as digest_of

MAX_TIME: Final = 2**56


class Core(NamedTuple):
    """The integers of a filter; `counted` is 1 if the window counts additions."""

    lines: int
    remainder: int
    quotients: int
    group: int
    rest: int
    limit: int
    steps: int
    window: int
    counted: int

    @property
    def age_bits(self) -> int:
        """Bits of an age."""
        return (2 * self.steps + 2).bit_length()

    @property
    def inner(self) -> tuple[int, ...]:
        """The integers of a fingerprint filter with the same lines."""
        return (self.lines, self.remainder + self.age_bits, *self[2:6], 1, 0)


def payload_bytes(core: Iterable[int]) -> int:
    """Return the size of the payload; ValueError if it is no valid core."""
    integers = tuple(core)
    if len(integers) != len(Core._fields):
        raise ValueError(f"a window filter has nine numbers in its core, got {len(integers)}")
    c = Core(*integers)
    if not 1 <= c.steps <= 1000:
        raise ValueError(f"steps must be in 1 .. 1000, got {c.steps}")
    if c.remainder < 4:
        raise ValueError(f"remainder must be 4 or more, got {c.remainder}")
    if not c.steps <= c.window <= MAX_TIME:
        raise ValueError(f"window must be in steps .. 2**56, got {c.window}")
    if c.counted not in (0, 1):
        raise ValueError(f"counted must be 0 or 1, got {c.counted}")
    return fingerprint.payload_bytes(c.inner)


class ReferenceWindow(ReferenceFilter):
    """A filter with the integers of `Core`; `clock` is the time in microseconds.

    Examples
    --------
    >>> f = ReferenceWindow(16, 8, 64, 1, 8, 100, 8, 800, 0)
    >>> f.add("key")
    >>> f.clock = 800
    >>> "key" in f
    True
    >>> f.clock = 900
    >>> "key" in f
    False
    """

    kind = 20
    hashing = 2

    def __init__(
        self,
        lines: int,
        remainder: int,
        quotients: int,
        group: int,
        rest: int,
        limit: int,
        steps: int,
        window: int,
        counted: int,
        seed: int = 0,
    ) -> None:
        self.shape = Core(lines, remainder, quotients, group, rest, limit, steps, window, counted)
        payload_bytes(self.shape)
        super().__init__(tuple(self.shape), seed)
        self.clock = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew: no keys, no additions."""
        c = self.shape
        self.lines: list[dict[tuple[int, int], int]] = [{} for _ in range(c.lines)]  # steps of fingerprints
        self.additions = self.now = self.turn = self.began = self.next_line = 0

    @classmethod
    def from_payload(cls, core: Iterable[int], seed: int, payload: bytes) -> Self:
        """Read a payload; ValueError unless what it holds leaves these very bytes."""
        made = cls(*core, seed=seed)  # type: ignore[misc]
        c = made.shape
        copies, made.additions, in_rest, *steps = struct.unpack_from("<3Q4q", payload)
        made.now, made.turn, made.began, made.next_line = steps
        plain = struct.pack("<8Q", copies, 0, in_rest, 0, 0, 0, 0, 0) + payload[64:]
        inner = ReferenceFingerprint.from_payload(c.inner, seed, plain)
        for line, elements in zip(made.lines, inner.lines, strict=True):
            for q, slot in elements:
                remainder, age = divmod(slot, 1 << c.age_bits)
                if (q, remainder) in line:
                    raise ValueError("a fingerprint is in twice")
                line[q, remainder] = made.now - (made.now - age) % (1 << c.age_bits)
        made.check()
        if made.payload() != payload:
            raise ValueError("it is not what its fingerprints leave")
        return made

    def check(self) -> None:
        """Raise ValueError unless the state is possible."""
        c = self.shape
        if self.is_new:
            if self.slots or self.additions or self.now or self.turn:
                raise ValueError("a filter without additions has a state")
            return
        known = not self.additions
        if c.counted:
            known = self.step(self.additions - 1) <= self.now <= self.step(self.additions)
        idle = self.next_line == c.lines
        order = self.turn <= self.began <= self.now and 0 <= self.next_line <= c.lines
        limits = self.began - self.turn < 2 * self.turn_steps and self.now - self.began < self.turn_steps
        if not (known and order and limits and (not idle or self.turn == self.now)):
            raise ValueError("the steps of the state are impossible")
        if any(step < self.turn - c.steps for line in self.lines for step in line.values()):
            raise ValueError("a fingerprint is too old")
        if abs(self.now) > MAX_TIME or self.additions > MAX_TIME:
            raise ValueError("a time is impossible")

    @property
    def is_new(self) -> bool:
        """Whether nothing was added yet."""
        return self.next_line == 0 and self.began == self.turn

    # --- time --------------------------------------------------------------------------------

    @property
    def turn_steps(self) -> int:
        """The most steps that a turn takes, D."""
        return ((1 << self.shape.age_bits) - self.shape.steps) // 3

    def step(self, x: int) -> int:
        """Return the step of a time."""
        return x * self.shape.steps // self.shape.window

    def present(self) -> int:
        """Return the step that a look-up is in."""
        return max(self.now, self.time_step())

    def time_step(self) -> int:
        """Return the step by additions or by the clock, which may go back."""
        return self.step(self.additions if self.shape.counted else self.clock)

    def advance(self, now: int) -> None:
        """Go on to a later step."""
        if self.is_new or now - self.now > self.shape.steps:
            for line in self.lines:
                line.clear()
            self.now = self.turn = self.began = now
            self.next_line = self.shape.lines
            return
        passed = now - self.began
        if self.next_line < self.shape.lines:
            self.sweep(self.due(passed), now)
        if self.next_line == self.shape.lines:
            self.turn, self.began, self.next_line = self.began, now, 0
            self.sweep(self.due(passed - self.turn_steps), now)
        self.now = now
        self.end_turn()

    def due(self, passed: int) -> int:
        """Return how many lines must have been swept when so many steps have passed."""
        return self.shape.lines * min(max(passed, 0), self.turn_steps) // self.turn_steps

    def sweep(self, end: int, now: int) -> None:
        """Sweep the lines up to `end`: remove what has expired in step `now`."""
        for line in self.lines[self.next_line : end]:
            for element in [each for each, step in line.items() if now - step > self.shape.steps]:
                del line[element]
        self.next_line = max(self.next_line, end)

    def end_turn(self) -> bool:
        """If all lines are swept, begin another turn, unless nothing can have expired since."""
        if self.next_line == self.shape.lines:
            self.turn = self.began
            if self.began < self.now:
                self.began, self.next_line = self.now, 0
        return self.next_line == self.shape.lines

    def finish_turn(self) -> bool:
        """Sweep what is left of the turn; False if none is under way."""
        if self.next_line == self.shape.lines:
            return False
        self.sweep(self.shape.lines, self.now)
        self.end_turn()
        return True

    # --- keys --------------------------------------------------------------------------------

    def place(self, digest: int) -> tuple[dict[tuple[int, int], int], tuple[int, int]]:
        """Return the line of a digest, and its quotient and remainder."""
        c = self.shape
        run, remainder = divmod(digest * (c.lines * c.quotients << c.remainder) >> 64, 1 << c.remainder)
        line, quotient = divmod(run, c.quotients)
        return self.lines[line], (quotient, remainder)

    def add_digest(self, digest: int) -> None:
        """Add or renew a fingerprint; OverflowError if there is no room."""
        self.add_new_digest(digest)

    def add_new_digest(self, digest: int) -> bool:
        """Add or renew a fingerprint; return whether it was not found before."""
        c = self.shape
        if self.is_new or self.time_step() > self.now:
            self.advance(self.time_step())
        if self.next_line < c.lines:
            self.sweep(self.next_line + 1, self.now)
            self.end_turn()
        while True:
            line, element = self.place(digest)
            before = line.get(element)
            line[element] = self.now
            if before is None and (self.slots > c.limit or len(self.inner().rest()) > c.rest):
                del line[element]
                if self.finish_turn():
                    continue
                raise OverflowError("the filter is full")
            self.additions += c.counted
            return before is None or self.now - before > c.steps

    def contains_digest(self, digest: int) -> bool:
        """Tell whether a fingerprint is in, and has not expired."""
        line, element = self.place(digest)
        return element in line and self.present() - line[element] <= self.shape.steps

    def add_new(self, key: object) -> bool:
        """Add or renew a key; return whether it was not found before."""
        return self.add_new_digest(digest_of(key, self.seed))

    def _unite(self, other: Self) -> None:
        raise ValueError("window filters are not merged")

    @property
    def slots(self) -> int:
        """How many fingerprints are in, expired ones included."""
        return sum(map(len, self.lines))

    def set_bits(self) -> int:
        """Count the fingerprints that are found."""
        present = self.present()
        return sum(present - step <= self.shape.steps for line in self.lines for step in line.values())

    def inner(self) -> ReferenceFingerprint:
        """Return the fingerprint filter with the same lines."""
        c = self.shape
        made = ReferenceFingerprint(*c.inner, seed=self.seed)  # type: ignore[misc]
        for elements, line in zip(made.lines, self.lines, strict=True):
            slots = ((q, r << c.age_bits | step % (1 << c.age_bits)) for (q, r), step in line.items())
            elements += sorted(slots)
        return made

    def payload(self) -> bytes:
        """Return state, levels and rest, as they stand in a file."""
        inner = self.inner()
        steps = (self.now, self.turn, self.began, self.next_line, 0)
        state = struct.pack("<3Q5q", self.slots, self.additions, len(inner.rest()), *steps)
        return state + inner.payload()[64:]
