"""What `evenbins build --kind` builds: from the options to a function that plans, or makes, a filter.

Without --kind the best design is built, as `evenbins design filter` ranks them. Planning it takes a hundredth
of a second for rates down to 1e-4, and a quarter of a second below.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from evenbins._console import with_option_errors
from evenbins.filters import build as build_filter
from evenbins.filters.plan import planner_of
from evenbins.structure import kind_of_policy

__all__ = ["CHOICES", "DEFAULT_FPR", "Maker"]

_BALANCED = kind_of_policy("fill").policies
CHOICES = ("blocked", "standard", "balanced", *_BALANCED, "counting", "fingerprint", "fuse", "growing")
DEFAULT_FPR = 1e-3
_BOUNDS = ("reads", "miss_reads", "overflow")
_FIRST_STAGE = 1 << 16
_MANY = 10**8  # keys, of which few bits each are enough


class Maker:
    """A kind of filter and all that was asked of it but the number of keys."""

    def __init__(
        self, kind: str | None, fpr: float | None, bits_per_key: float | None, hashes: int | None,
        block_bits: str | None, seed: int, **bounds: float | None,
    ) -> None:  # fmt: skip
        if fpr is not None and bits_per_key is not None:
            raise click.ClickException("--fpr and --bits-per-key exclude each other: give one")
        if kind is None and (hashes is not None or block_bits is not None):
            kind = "blocked"
        given = {name: value for name, value in bounds.items() if value is not None}
        _check_together(kind, given, hashes=hashes, block_bits=block_bits, bits_per_key=bits_per_key)
        self.kind = kind
        goal = DEFAULT_FPR if fpr is None and bits_per_key is None else fpr
        options: dict[str, Any] = {
            "fpr": goal, "bits_per_key": bits_per_key, "hashes": hashes, "seed": seed,
            "block_bits": None if block_bits is None else int(block_bits), **given,
        }  # fmt: skip
        self.options = {name: value for name, value in options.items() if value is not None}

    @property
    def needs_capacity(self) -> bool:
        """Whether the number of keys must be known."""
        return self.kind != "growing"

    @property
    def is_fixed(self) -> bool:
        """Whether the filter is built from all keys at once."""
        return self.kind == "fuse"

    @property
    def counts_all(self) -> bool:
        """Whether a repeated key counts each time: such a filter is planned for all lines."""
        return self.kind in ("counting", "fingerprint")

    def check(self, capacity: int | None) -> None:
        """Raise an error for options that no filter can have: before the work, not after an hour of it."""
        if self.kind == "growing":
            self.make(min(capacity or 1, _FIRST_STAGE))  # a larger first stage changes no other rule
        elif self.kind is None and capacity is None:
            with_option_errors(partial(planner_of("blocked"), 1, **self._plain()))
        elif self.kind in ("fuse", "fingerprint"):  # few keys need many bits each
            self._plan(capacity or _MANY)
        else:
            self._plan(1 if capacity is None else capacity)

    def make(self, capacity: int | None) -> Any:
        """Build an empty filter for a number of keys."""
        if self.kind != "growing":
            assert capacity is not None
            return build_filter(self._plan(capacity))
        from evenbins.filters import GrowingFilter

        first = _FIRST_STAGE if capacity is None else capacity
        return with_option_errors(partial(GrowingFilter, first=first, **self.options), first="--capacity")

    def for_dask(self, capacity: int | None) -> dict[str, Any]:
        """Return the arguments of `cluster.dask.build_files` that name this filter."""
        if self.kind in ("counting", "fuse", "growing"):
            raise click.ClickException(
                f"--kind {self.kind} is built without --workers and --scheduler: leave out one of the two"
            )
        policy = self.kind or self._plan(capacity or _MANY).policy
        return self.options | ({} if policy == "balanced" else {"policy": policy})

    def _plain(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name not in _BOUNDS}

    def _plan(self, capacity: int) -> Any:
        plan: Callable[..., Any]
        if self.kind is not None:
            plan = planner_of(None if self.kind == "balanced" else self.kind)
        elif self.options.keys() & set(_BOUNDS):
            from evenbins import design

            return with_option_errors(partial(design.filter, capacity, **self.options)).best.plan
        else:
            from evenbins.design.best import best_plan as plan
        return with_option_errors(partial(plan, capacity, **self.options))


def _check_together(kind: str | None, bounds: dict[str, float], **options: object) -> None:
    """Refuse options that do not go together."""
    if kind in ("fingerprint", "fuse") and options["hashes"] is not None:
        raise click.ClickException(
            f"--hashes is for Bloom filters, not for --kind {kind}: leave out one of them"
        )
    if kind in ("standard", "counting", "fingerprint", "fuse") and options["block_bits"] is not None:
        raise click.ClickException(
            "--block-bits is for --kind blocked and balanced: leave out one of the two"
        )
    if bounds and kind is not None and kind != "balanced" and kind not in _BALANCED:
        option = "--" + next(iter(bounds)).replace("_", "-")
        raise click.ClickException(
            f"{option} is for --kind balanced and its policies: leave out one of the two"
        )
    if kind == "growing":
        for name in ("hashes", "bits_per_key"):
            if options[name] is not None:
                option = "--" + name.replace("_", "-")
                raise click.ClickException(
                    f"{option} is for filters of a known size, not for --kind growing: leave out one of them"
                )
