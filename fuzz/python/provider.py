"""Choices from the bytes of an input, one after the other; zeros when they are used up.

Not atheris' FuzzedDataProvider, so that the tests run every corpus file without atheris.
"""

from __future__ import annotations

__all__ = ["Provider"]


class Provider:
    """Bytes as choices."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def bytes(self, most: int) -> bytes:
        """Give so many of the next bytes, if there are."""
        found = self._data[self._at : self._at + most]
        self._at += len(found)
        return found

    def below(self, n: int) -> int:
        """Give a number below n, of one byte (n up to 256) or two."""
        return int.from_bytes(self.bytes(1 if n <= 256 else 2), "little") % n

    def signed(self, size: int) -> int:
        """Give an integer of so many bytes."""
        return int.from_bytes(self.bytes(size), "little", signed=True)

    def text(self) -> str:
        """Give some text."""
        return self.bytes(self.below(20)).decode("utf-8", "replace")

    def rest(self) -> bytes:
        """Give all that is left."""
        return self.bytes(len(self._data))
