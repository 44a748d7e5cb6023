"""`evenbins dedup --window`: rows that were seen lately, in a `WindowFilter` instead of a Deduplicator.

--window 1h       equal rows of the last hour, by the clock of this machine
--window 10M      equal rows among the last ten million
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from evenbins._console import with_option_errors
from evenbins._core import FilterFullError, FormatError
from evenbins._numbers import parse_count, parse_number
from evenbins.deduplication.deduplicator import DedupStats
from evenbins.deduplication.fields import keys_of
from evenbins.filters.window import WindowFilter, length_of, plan_window
from evenbins.hashing import digest_many

__all__ = ["WINDOW_FPR", "SeenLately", "load_window", "window_of"]

_STEPS = 8  # fewer in a window of fewer rows
WINDOW_FPR = 1e-7  # an age takes bits of a slot: lower rates take many more bits per key
_SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(rf"(.*?)\s*({'|'.join(_SECONDS)})", re.ASCII | re.IGNORECASE)

Words = npt.NDArray[np.uint64]


def window_of(text: str) -> timedelta | int:
    """Return a duration or a number of rows.

    Examples
    --------
    >>> window_of("90s"), window_of("1.5 h"), window_of("10M")
    (datetime.timedelta(seconds=90), datetime.timedelta(seconds=5400), 10000000)
    """
    if text.strip().endswith("m"):
        raise click.ClickException(f"--window {text}: write min for minutes, or M for millions of rows")
    try:
        if (found := _DURATION.fullmatch(text.strip())) is None:
            window: timedelta | int = parse_count(text)
            length_of(window, 1)
        else:
            window = timedelta(seconds=parse_number(found[1]) * _SECONDS[found[2].lower()])
            length_of(window, _STEPS)
        return window
    except (ValueError, OverflowError):
        raise click.ClickException(
            f"--window {text}: write a duration, such as 90s, 10min, 1h or 7d, or a number of rows, such as "
            "1_000_000 or 10M"
        ) from None


class SeenLately:
    """What a Deduplicator is to the passes of `dedup`, for the keys of a window.

    Attributes
    ----------
    fpr : rate at which rows are dropped wrongly, at most
    """

    exact = False

    def __init__(self, filter_: WindowFilter, *, remedy: str = "raise --capacity") -> None:
        self.filter, self._remedy = filter_, remedy
        self.seed, self.fpr, self.nbytes = filter_.seed, filter_.plan.fpr, filter_.nbytes
        self._rows = self._kept = 0

    @classmethod
    def planned(
        cls, window: timedelta | int, capacity: int, fpr: float, seed: int, most_bytes: int | None
    ) -> SeenLately:
        """Plan a filter for so many different keys in a window, of at most `most_bytes`."""
        steps = min(window, _STEPS) if isinstance(window, int) else _STEPS
        plan = with_option_errors(lambda: plan_window(window, capacity, fpr, steps=steps, seed=seed))
        if most_bytes is not None and plan.nbytes > most_bytes:
            raise click.ClickException(
                f"the window takes {plan.nbytes / 1e6:.3g} MB: raise --memory or --fpr, or give --capacity"
            )
        return cls(WindowFilter.from_plan(plan))

    def keep(self, batch: object, *, threads: int | None = None) -> npt.NDArray[np.bool_]:
        """Return for each row whether its key did not come within the window before it."""
        words = batch if isinstance(batch, np.ndarray) else self._digests(batch)
        try:
            found = self.filter.add_new_many(words, digests=True, threads=threads)
        except FilterFullError:
            raise click.ClickException(
                f"more different keys than {self.filter.capacity:_} in a window: {self._remedy}"
            ) from None
        self._rows += len(found)
        self._kept += int(np.count_nonzero(found))
        return found

    def _digests(self, batch: object) -> Words:
        return np.ravel(digest_many(keys_of(batch, self.seed), self.seed))

    def _keep_with(self, keys: object, apart: npt.NDArray[np.bool_], digest: Words) -> npt.NDArray[np.bool_]:
        """Return what `keep` does for one row that has a digest and no key."""
        return self.keep(digest)

    def expected_wrong(self, rows: int) -> float:
        """Return how many of `rows` rows will be dropped wrongly, at most, on average."""
        return rows * self.fpr

    def stats(self) -> DedupStats:
        """Measure it; `keys` are those of the window."""
        stats = self.filter.stats()
        return DedupStats(
            rows=self._rows, kept=self._kept, dropped=self._rows - self._kept, exact=False, fpr=stats.fpr,
            expected_wrong=self.expected_wrong(self._rows), keys=int(stats.keys),
            capacity=self.filter.capacity, nbytes=self.nbytes,
        )  # fmt: skip

    def save(self, path: str) -> None:
        """Write the filter."""
        self.filter.save(path)


def load_window(
    path: str | None, window: timedelta | int, fpr: float | None, seed: int | None, capacity: int | None
) -> SeenLately | None:
    """Read the filter of an earlier run, checked against the options; None if there is none yet."""
    if path is None or not os.path.exists(path):
        return None
    try:
        found = WindowFilter.load(path)
    except (FormatError, OSError) as error:
        raise click.ClickException(
            f"--state {error}: name a file that 'evenbins dedup --window --state' wrote, or another one to "
            "start anew"
        ) from None
    own: dict[str, tuple[Any, Any]] = {"window": (window, found.window), "seed": (seed, found.seed)}
    for name, (given, its) in own.items():
        if given is not None and given != its:
            raise click.ClickException(
                f"--state {path}: it was made with another --{name}: give that one, or name another state"
            )
    if fpr is not None and found.plan.fpr > fpr:
        raise click.ClickException(
            f"--state {path}: it has a rate of {found.plan.fpr:.2g}, not {fpr:g}: leave out --fpr, or name "
            "another state"
        )
    if capacity is not None and capacity > found.capacity:
        raise click.ClickException(
            f"--state {path}: it has room for {found.capacity:_} different keys in a window, not "
            f"{capacity:_}: leave out --capacity, or name another state"
        )
    return SeenLately(found, remedy=f"--state {path} has no room for more; name another one, with --capacity")
