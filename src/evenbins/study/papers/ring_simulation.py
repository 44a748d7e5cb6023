"""Simulated hash rings for the papers (cpp/study/simulate_rings.hpp says what is simulated).

    simulate_ring    keys placed on rings by a policy: loads, full nodes, searches, steps
    ring_shares      the nodes' chances of the next key as nodes fill (Figure 7)
    ring_times       the same placements by the clock, in a real array

In the library's words: a bin is a node here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenbins import _study
from evenbins.study.papers.simulation import _whole

__all__ = ["SimulatedRings", "ring_shares", "ring_times", "simulate_ring"]

POLICIES = ("plain", "clockwise", "rehash", "rehash-bin", "jump")
LAYOUTS = ("sparse", "dense")
_NEVER = 2**64 - 1
_Counts = npt.NDArray[np.uint64]
_Floats = npt.NDArray[np.float64]
_Progress = Callable[[int, int], object] | None


@dataclass(frozen=True)
class SimulatedRings:
    """Counts of all trials, each of one ring; arrays are by trial.

    Parameters
    ----------
    limit
        C.
    keys, nodes
        n and k, after churn.
    variance, max_load
        Of the loads.
    first_full
        Keys placed when the first node became full; n if none did (`never_full`).
    never_full
        Whether no node became full.
    searches, steps
        Of one more key: places with a node it looks at; indices it looks at.
    all_searches, all_hashes
        Of all placements together; hashes of the dense layout only.
    removed, removed_searches, removed_steps
        Keys of the removed node, and what placing them anew took in all.
    loads
        ``loads[trial, i]``: nodes with i keys, the last: with `limit` or more.
    """

    limit: int
    keys: _Counts
    nodes: _Counts
    variance: _Floats
    max_load: _Counts
    first_full: _Counts
    never_full: npt.NDArray[np.bool_]
    searches: _Counts
    steps: _Counts
    all_searches: _Counts
    all_hashes: _Counts
    removed: _Counts
    removed_searches: _Counts
    removed_steps: _Counts
    loads: _Counts

    @property
    def full(self) -> _Floats:
        """Fraction of the nodes at the limit."""
        fractions: _Floats = self.loads[:, -1] / self.nodes
        return fractions

    @property
    def mean_searches(self) -> _Floats:
        """Searches of a placement, on average over all."""
        means: _Floats = self.all_searches / np.maximum(self.keys, 1)
        return means

    @property
    def mean_hashes(self) -> _Floats:
        """Hash evaluations of a placement, on average over all, beside the key's own digest."""
        means: _Floats = self.all_hashes / np.maximum(self.keys, 1)
        return means


def simulate_ring(
    policy: str,
    *,
    keys: int,
    nodes: int,
    limit: int,
    copies: int = 1,
    layout: str = "sparse",
    empty: int = 0,
    array_bits: int = 20,
    step_bits: int | None = None,
    bias: float = 0.0,
    bias_on_node: bool = False,
    churn: bool = False,
    remove: bool = False,
    trials: int = 1,
    seed: int = 0,
    threads: int = 1,
    progress: _Progress = None,
) -> SimulatedRings:
    """Place keys on rings with bounded loads, in several independent trials. Hashing is fully random.

    Parameters
    ----------
    policy
        ``"plain"``, ``"clockwise"`` (CH-BL), ``"rehash"`` (Appendix Q), ``"rehash-bin"`` (section 2.5) or
        ``"jump"`` (RJ-CH).
    keys, nodes, limit
        n, k and C, which is the same for all keys; for ``"plain"`` only what counts as full.
    copies
        Places of a node, the first counted.
    layout
        ``"sparse"``: an array of ``2**array_bits`` places; ``"dense"``: a slot for each copy, all as likely.
    empty
        Dense slots without a node beside these.
    array_bits, step_bits
        Of the sparse array, and of the one in which steps are counted: at least as large, 32 if not given.
    bias, bias_on_node
        Chance that a draw gives one fixed index (Appendix N), with a node at it or not.
    churn
        Whether keys and nodes first arrive and leave (Appendix P).
    remove
        Whether a node is removed at the end (Figures 20 to 22).
    trials
        Independent trials. A trial's numbers depend on `seed` and its position alone.
    seed
        0 to 2**64-1.
    threads
        Threads that share the trials.
    progress
        Called some times a second with trials done and trials in all.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> seen = simulate_ring("jump", keys=10_000, nodes=1000, limit=11, trials=100, seed=1)
    >>> round(float(seen.full.mean()), 2), round(float(seen.variance.mean()), 1)
    (0.63, 2.6)
    """
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, not {policy!r}")
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    limit = _whole("limit", limit, 1, 2**20)
    array_bits = _whole("array_bits", array_bits, 4, 26)
    counts, variance = _study.simulate_ring(
        policy=policy,
        layout=layout,
        bins=_whole("nodes", nodes, 1, 2**22),
        copies=_whole("copies", copies, 1, 2**22),
        keys=_whole("keys", keys, 0, 2**28),
        limit=limit,
        empty=_whole("empty", empty, 0, 2**22),
        array_bits=array_bits,
        step_bits=32 if step_bits is None else _whole("step_bits", step_bits, array_bits, 40),
        bias=float(bias),
        bias_on_bin=bool(bias_on_node),
        churn=bool(churn),
        remove=bool(remove),
        trials=_whole("trials", trials, 1, 2**24),
        seed=_whole("seed", seed, 0, 2**64 - 1),
        threads=_whole("threads", threads, 1, 1024),
        progress=progress,
    )
    never = counts["first_full"] == np.uint64(_NEVER)
    return SimulatedRings(
        limit=limit,
        nodes=counts.pop("bins"),
        first_full=np.where(never, counts["keys"], counts.pop("first_full")),
        never_full=never,
        variance=variance,
        **counts,
    )


def ring_shares(
    nodes: int,
    limit: int | None,
    *,
    random_arcs: bool = True,
    trials: int = 1,
    seed: int = 0,
    threads: int = 1,
    progress: _Progress = None,
) -> _Floats:
    """Return the variance of the open nodes' chances of the next key, clockwise: ``[trial, full nodes]``.

    Parameters
    ----------
    nodes
        k, with one point each.
    limit
        Keys that fill a node; None: nodes fill in random order, as Theorem 6 assumes.
    random_arcs
        Whether the points are random, or arcs equal.
    trials, seed, threads, progress
        As of `simulate_ring`.

    Examples
    --------
    >>> seen = ring_shares(1000, 11, random_arcs=False, trials=2)
    >>> seen.shape, float(seen[0, 0])
    ((2, 1000), 0.0)
    """
    seen = _study.ring_shares(
        bins=_whole("nodes", nodes, 2, 2**20),
        limit=0 if limit is None else _whole("limit", limit, 1, 2**20),
        random_arcs=bool(random_arcs),
        trials=_whole("trials", trials, 1, 2**24),
        seed=_whole("seed", seed, 0, 2**64 - 1),
        threads=_whole("threads", threads, 1, 1024),
        progress=progress,
    )
    seen[seen < 1e-17] = 0.0  # what rounding leaves of equal chances
    return seen


def ring_times(
    policy: str,
    *,
    keys: int,
    nodes: int,
    limit: int,
    copies: int = 1,
    layout: str = "sparse",
    array_bits: int = 20,
    probes: int = 200,
    trials: int = 1,
    seed: int = 0,
    progress: _Progress = None,
) -> tuple[_Floats, _Floats]:
    """Time one more key, and a key of a removed node: nanoseconds by trial, the mean of up to `probes` keys.

    The second has only the trials whose removed node had a key. Arguments as of `simulate_ring`; not for
    ``"rehash-bin"``.
    """
    insert, removed = _study.ring_times(
        policy=policy,
        layout=layout,
        bins=_whole("nodes", nodes, 2, 2**22),
        copies=_whole("copies", copies, 1, 2**22),
        keys=_whole("keys", keys, 0, 2**28),
        limit=_whole("limit", limit, 1, 2**20),
        array_bits=_whole("array_bits", array_bits, 4, 26),
        probes=_whole("probes", probes, 1, 2**24),
        trials=_whole("trials", trials, 1, 2**24),
        seed=_whole("seed", seed, 0, 2**64 - 1),
        progress=progress,
    )
    return insert, removed[removed >= 0]
