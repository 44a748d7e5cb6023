"""The marks of one node: counted fingerprints in bounded memory, of which none is ever lost.

Invariant: see the proof in `ForwardingMarks`. Sorted arrays, because a node has few marks (one or two for
each key it holds): no empty room, and the bytes are what `nbytes` says.
"""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_left
from collections import Counter
from typing import Final

from evenbins import _arguments, _core
from evenbins._bulk import Key

__all__ = ["ForwardingMarks", "digest_of"]

PHI: Final = 0x9E3779B97F4A7C15
TYPES: Final = {8: "B", 16: "H", 32: "I", 64: "Q"}  # of the fingerprints
MOST: Final = 2**16 - 1  # marks of one fingerprint


def digest_of(key: Key) -> int:
    """Return an integer from 0 to 2**64 - 1 as it is, a digest; the digest of any other key.

    >>> digest_of(7), digest_of("a") == digest_of(b"a"), digest_of(-1) < 2**64
    (7, True, True)
    """
    try:
        number = operator.index(key)  # type: ignore[arg-type]
    except TypeError:
        return _core.digest(key, 0)
    return number if 0 <= number < 2**64 else _core.digest(number, 0)


class ForwardingMarks:
    """The marks of one node: which live keys passed it. No mark is ever lost.

    Keys are digests, or str, bytes or int, of which the marks compute the digest (`digest_of`).

    Parameters
    ----------
    exact
        Whether digests are stored whole; then ``in`` is exact while not saturated.
    fingerprint_bits
        Bits of the digest that are stored otherwise, 8, 16 or 32. With r different fingerprints a key
        without a mark is taken for one with, and looked up further, with probability
        ``r / 2**fingerprint_bits``.
    memory_bytes
        Bound of `nbytes`; None: no bound.

    Notes
    -----
    Sorted arrays of fingerprints and of counts, since several live keys may share a fingerprint. A mark
    that finds no memory (or whose count is at its largest, 65535) is counted in `unstored`. While
    `unstored` is not zero the marks are *saturated*: every digest is ``in`` them.

    No live key is lost. Let live(F) be the marks with fingerprint F that were added and not removed, and
    stored(F) the count kept. `add` lifts live(F) and either stored(F) or `unstored` by one. `remove` lowers
    live(F) and stored(F), or, only if stored(F) = 0, `unstored`. So u(F) = live(F) - stored(F) grows by one
    with each unstored mark and falls only when stored(F) = 0, when it is live(F) >= 1: it is never
    negative, and `unstored` is the sum of all u(F). If `unstored` is zero, all u(F) are, and stored = live;
    if not, everything is answered "further". It does not matter which of two keys of one fingerprint was
    the one that found no room.

    The premise is that `remove` is called for marks that were added, once. It is checked as far as it can be.

    Examples
    --------
    >>> marks = ForwardingMarks(memory_bytes=6)
    >>> marks.add(2**60); 2**60 in marks, 2**61 in marks, marks.saturated
    (True, False, False)
    >>> marks.add(2**61); 2**62 in marks, marks.saturated, marks.nbytes
    (True, True, 6)
    >>> marks.remove(2**61); 2**62 in marks, marks.saturated, len(marks)
    (False, False, 1)
    """

    def __init__(
        self, *, exact: bool = False, fingerprint_bits: int = 32, memory_bytes: int | None = None
    ) -> None:
        way_out = "Pass 8, 16 or 32, or exact=True for whole digests"
        bits = _arguments.integer("fingerprint_bits", fingerprint_bits, 8, 32, way_out, rule="8, 16 or 32")
        if bits not in TYPES:
            raise _arguments.error("fingerprint_bits", "8, 16 or 32", fingerprint_bits, way_out)
        if memory_bytes is not None:
            rule = "None or an integer >= 0"
            memory_bytes = _arguments.integer("memory_bytes", memory_bytes, 0, None, "Pass None", rule=rule)
        self.exact = bool(exact)
        self.fingerprint_bits = 64 if exact else bits
        self.memory_bytes = memory_bytes
        self.clear()

    def clear(self) -> None:
        """Remove all marks, the unstored ones too: before they are all made anew."""
        self._fingerprints = array(TYPES[self.fingerprint_bits])
        self._counts = array("H")
        self._marks = 0
        self.unstored = 0

    @property
    def saturated(self) -> bool:
        """Whether a live key has a mark that found no memory: then every digest is ``in``."""
        return self.unstored > 0

    @property
    def nbytes(self) -> int:
        """Bytes of the fingerprints and counts."""
        return len(self._counts) * self._entry_bytes

    @property
    def _entry_bytes(self) -> int:
        return self._fingerprints.itemsize + self._counts.itemsize

    def __len__(self) -> int:
        """Marks, with the unstored ones."""
        return self._marks

    def __contains__(self, digest: Key) -> bool:
        return self.unstored > 0 or self._find(self._fingerprint(digest))[1]

    def add(self, digest: Key) -> None:
        """Set a mark for a key; O(log marks) and one shift of the arrays' ends."""
        fingerprint = self._fingerprint(digest)
        at, found = self._find(fingerprint)
        self._marks += 1
        if found and self._counts[at] < MOST:
            self._counts[at] += 1
        elif found or not self._has_memory():
            self.unstored += 1
        else:
            self._fingerprints.insert(at, fingerprint)
            self._counts.insert(at, 1)

    def remove(self, digest: Key) -> None:
        """Take a mark away; KeyError if there is none, which is noticed unless saturated or shared."""
        at, found = self._find(self._fingerprint(digest))
        if not found:
            if not self.unstored:
                raise KeyError(f"no mark for {digest!r}: remove only what was added, and once")
            self.unstored -= 1
        elif self._counts[at] > 1:
            self._counts[at] -= 1
        else:
            del self._fingerprints[at], self._counts[at]
        self._marks -= 1

    def counts(self) -> Counter[int]:
        """Return the stored marks by fingerprint (exact: by digest)."""
        return Counter(dict(zip(self._fingerprints, self._counts, strict=True)))

    def __repr__(self) -> str:
        state = f", {self.unstored} of them unstored" if self.unstored else ""
        return f"<ForwardingMarks: {len(self)} marks{state}, {self.nbytes} bytes>"

    def _has_memory(self) -> bool:
        return self.memory_bytes is None or self.nbytes + self._entry_bytes <= self.memory_bytes

    def _fingerprint(self, key: Key) -> int:
        digest = digest_of(key)
        return digest if self.exact else (digest * PHI & 2**64 - 1) >> 64 - self.fingerprint_bits

    def _find(self, fingerprint: int) -> tuple[int, bool]:
        at = bisect_left(self._fingerprints, fingerprint)
        return at, at < len(self._fingerprints) and self._fingerprints[at] == fingerprint
