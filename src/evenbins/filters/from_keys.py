"""A filter for keys that are there already: how many of them are different, then one that fits.

    keys ──▶ HyperLogLog ──count──▶ capacity ──▶ a filter ◀── the same keys

Rows are not keys: 200 million rows with 11 million different URLs need a filter for 11 million. Arrays and
columns are read twice, which takes no memory; of anything else the digests are kept, 8 bytes per key, so that
an iterator is read once.

The count is an estimate, with a relative standard error of 0.4 %. Three of these are added to it, and it is
cut at the number of rows, so about one filter in seven hundred is planned for slightly too few keys.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import KeysView, Mapping, Set, Sized
from typing import Any, ClassVar, Self

import numpy as np

from evenbins import _arguments as arguments
from evenbins import _bulk, _core
from evenbins._keywords import check_names

__all__ = ["FromKeys", "can_be_read_again", "distinct_keys"]

_PRECISION = 16  # of the sketch that counts: 64 kB, an error of 0.4 %
_DEVIATIONS = 3


class FromKeys:
    """A class with `from_keys`: filters of a known or unknown number of keys."""

    __slots__ = ()
    _capacity_name: ClassVar[str] = "capacity"

    @classmethod
    def from_keys(
        cls,
        keys: object,
        fpr: float | None = None,
        *,
        digests: bool = False,
        threads: int | None = None,
        **options: Any,
    ) -> Self:
        """Build a filter that holds these keys, planned for as many *different* keys as there are.

        The different keys are counted by a HyperLogLog, and a little more than its estimate is planned for:
        1.2 % more keys than there are in the mean, at most 2.5 % more, and not fewer, except for one filter
        in several hundred. A multiset of fingerprints is planned for all keys, copies counted.

        Parameters
        ----------
        keys, digests, threads
            As for `add_many`. Arrays and columns are read twice; of any other iterable 8 bytes per key are
            kept, and it is read once.
        fpr
            False-positive rate; as for the constructor if it is None.
        options
            Other arguments of the constructor. With its number of keys (`capacity=`; `first=` for a growing
            filter) nothing is counted: plan for keys that come later.

        Raises
        ------
        TypeError, ValueError
            As the constructor and `add_many` do; names of options are checked before any key is read.

        Examples
        --------
        >>> from evenbins import BloomFilter
        >>> f = BloomFilter.from_keys(["apple", "pear", "apple", "plum"], fpr=1e-3)
        >>> f.capacity, "pear" in f
        (3, True)
        >>> BloomFilter.from_keys(iter(range(1000)), 1e-3, capacity=5000).capacity
        5000
        """
        if fpr is not None:
            options["fpr"] = arguments.rate(fpr)
        check_names(f"{cls.__name__}.from_keys", inspect.signature(cls.__init__), options)
        threads = _bulk.checked_threads(threads)
        if options.get(cls._capacity_name) is None:
            seed = arguments.seed(options.get("seed", 0))
            copies = cls._holds_copies(options)
            keys, digests, count = _counted(keys, seed, digests=digests, threads=threads, copies=copies)
            options[cls._capacity_name] = cls._capacity_for(count)
        made: Any = cls(**options)
        made.add_many(keys, digests=digests, threads=threads)
        return made  # type: ignore[no-any-return]

    @classmethod
    def _holds_copies(cls, options: dict[str, Any]) -> bool:
        """Return whether a filter with these options takes room for each copy of a key."""
        del options
        return False

    @classmethod
    def _capacity_for(cls, count: int) -> int:
        """Return the capacity to plan for so many keys."""
        return max(count, 1)


def distinct_keys(keys: object, *, seed: int = 0, digests: bool = False, threads: int | None = None) -> int:
    """Return a number of keys to plan for: a little more than the different ones among these keys.

    It reads the keys, so an iterator is used up.
    """
    return _counted(keys, seed, digests=digests, threads=_bulk.checked_threads(threads))[2]


def _counted(
    keys: object, seed: int, *, digests: bool, threads: int, copies: bool = False
) -> tuple[object, bool, int]:
    """Return keys that can be read once more, whether they are digests, and how many are different.

    With `copies`, how many there are.
    """
    if isinstance(keys, Set | Mapping | KeysView | range) and not digests:  # they know that all differ
        return keys, False, len(keys)
    if digests:
        keys = _bulk.digest_array(keys)
    elif not can_be_read_again(keys):
        keys, digests = _core.digest_from(_bulk.key_source(keys)[0], seed, threads), True
    if copies:
        return keys, digests, _number_of(keys)
    from evenbins.sketches.hyperloglog import HyperLogLog

    sketch = HyperLogLog(_PRECISION, seed=seed)
    sketch.add_many(keys, digests=digests, threads=threads)
    found = sketch.stats()
    most = round(found.keys * (1.0 + _DEVIATIONS * found.error))
    return keys, digests, min(most, _number_of(keys))


def _number_of(keys: object) -> int:
    """Return the number of keys of an array or another collection."""
    shape = getattr(keys, "shape", None)
    return math.prod(shape) if isinstance(shape, tuple) else len(keys)  # type: ignore[arg-type]


def can_be_read_again(keys: object) -> bool:
    """Return whether the core reads the keys without Python, twice alike: an array or a column."""
    if isinstance(keys, np.ndarray) or _bulk.is_array_like(keys):
        return np.asanyarray(keys).dtype.kind in "iubSU"
    arrow = hasattr(keys, "__arrow_c_stream__") or hasattr(keys, "__arrow_c_array__")
    return arrow and isinstance(keys, Sized)
