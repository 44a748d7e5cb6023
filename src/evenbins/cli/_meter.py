"""How far a run has come: bytes and keys done, a rate, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Meter", "short"]


class Meter:
    """Counts of what is done since `begin`.

    The time that is left follows from the bytes read, or from the keys where their number is known (a
    Parquet file's bytes are read in one go).
    """

    def __init__(self, nbytes: int | None, clock: Callable[[], float]) -> None:
        self._bytes, self._clock = nbytes, clock
        self.begin(None)

    def begin(self, keys: int | None) -> None:
        """Start from zero, with the number of keys if it is known."""
        self._begun, self._keys = self._clock(), keys
        self.done_bytes = self.done_keys = 0

    def fraction(self) -> float | None:
        """Return how much is done, 0 to 1; None where that is not known."""
        by_keys = self.done_keys / self._keys if self._keys else None
        by_bytes = self.done_bytes / self._bytes if self._bytes else None
        known = [part for part in (by_keys, by_bytes) if part is not None]
        return min(1.0, max(known)) if known else None

    def status(self) -> str:
        """Return what is done, how fast it goes, and how long the rest will take."""
        seconds = self._clock() - self._begun
        texts = []
        if self.done_bytes and self._bytes != 0:
            whole = "" if self._bytes is None else f" of {short(self._bytes)}"
            texts.append(f"{short(self.done_bytes)}{whole} bytes")
        if self.done_keys:
            texts.append(f"{short(self.done_keys)} keys")
        done = self.done_keys or self.done_bytes
        if done and seconds > 0:
            texts.append(f"{short(done / seconds)} a second")
        part = self.fraction()
        if part:
            left = round(seconds * (1 - part) / part)
            texts.append(f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left")
        return ", ".join(texts)


def short(number: float) -> str:
    """Return a number in three digits, such as 4.52M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.0f}"
