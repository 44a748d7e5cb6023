"""The window filter: how many keys it holds, how many of them are found, and of which age they are.

A window of `steps` steps; a key of step e is found until step e + steps has passed. `capacity` different keys
come in a window, evenly::

    found     those of the steps t - steps … t, of which t has not ended:
              from capacity, when a step begins, to capacity * (1 + 1/steps), when it ends
    expired   those of step t - steps - 1, until their lines have been swept; a sweep takes as many additions
              as there are lines

    keys    ▲        ╱│    ╱│    found
    found   │      ╱  │  ╱  │
    capacity│────╱────│╱────│────  + what has expired and is not swept: capacity/steps, falling
            └──step───┴─step┴──▶ t

When a step begins as many keys expire as came in it, so slots for capacity * (1 + 1/steps) keys are needed if
keys come evenly, and of a window that counts additions always. A window of time has slots for 2/steps more
keys instead of 1/steps: in a single step twice as many may come as on average. `MARGIN` more have room, for
lines that have not been swept.

The false-positive rate is 1 - exp(-found/M): an expired fingerprint is not found. Lines, levels and what a
look-up reads are those of a fingerprint filter whose remainders are wider by the bits of an age.
"""

from __future__ import annotations

import math

from evenbins.theory import fingerprint_design as design

__all__ = ["MARGIN", "age_bits", "ages", "expired", "fewest_bits", "held", "lowest_rate", "most_found"]

MARGIN = 32
"""A filter has slots for 1/MARGIN of its keys, and half as many as MARGIN, that expired and are not swept."""


def age_bits(steps: int) -> int:
    """Return the bits of an age: more than two windows and the turn between them can be told apart.

    Examples
    --------
    >>> age_bits(8), age_bits(15), age_bits(1)
    (5, 6, 3)
    """
    return (2 * steps + 2).bit_length()


def held(capacity: int, steps: int, *, counted: bool) -> int:
    """Return for how many fingerprints a filter has slots; `counted`: its window counts additions.

    Examples
    --------
    >>> held(1_000_000, 8, counted=True), held(1_000_000, 8, counted=False)
    (1156266, 1281266)
    """
    later = -(-(1 if counted else 2) * capacity // steps)
    return min(capacity + later + capacity // MARGIN + MARGIN // 2, 2**48)


def most_found(capacity: int, steps: int) -> float:
    """Return the keys that are found at the end of a step, when they come evenly: for these the rate holds.

    Examples
    --------
    >>> most_found(1_000_000, 8)
    1125000.0
    """
    return capacity * (1.0 + 1.0 / steps)


def ages(capacity: int, steps: int) -> tuple[float, ...]:
    """Return how many keys were added 0, 1, … steps ago, in the middle of a step.

    Examples
    --------
    >>> ages(800, 4)
    (100.0, 200.0, 200.0, 200.0, 200.0)
    """
    each = capacity / steps
    return (each / 2, *[each] * steps)


def expired(lines: int) -> float:
    """Return how many keys have expired and are not swept yet, in the mean.

    As many expire as are added, a line is swept with each addition, and in the mean half of them come before
    that of a key (Little's law).

    Examples
    --------
    >>> expired(1000)
    500.0
    """
    return lines / 2


def fewest_bits(capacity: int, fpr: float, steps: int, *, counted: bool) -> design.Shape | None:
    """Find the shape of the fewest bytes; None if none is small enough. Its remainder includes the age."""
    slots = held(capacity, steps, counted=counted)
    rate = -math.expm1(math.log1p(-fpr) * slots / most_found(capacity, steps))  # if all slots were found
    return design.fewest_bits(slots, min(rate, math.nextafter(1.0, 0.0)), age_bits(steps))


def lowest_rate(capacity: int, bits: float, steps: int, *, counted: bool) -> design.Shape | None:
    """Find the shape of the lowest rate within so many bits; None if none is small enough."""
    return design.lowest_rate(held(capacity, steps, counted=counted), bits, age_bits(steps))
