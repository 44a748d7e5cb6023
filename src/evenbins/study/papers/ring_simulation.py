"""Simulated hash rings for the papers (cpp/study/simulate_rings.hpp says what is simulated).

    simulate_ring    keys placed on rings by a policy: loads, full nodes, searches, steps
    ring_shares      the nodes' chances of the next key as nodes fill (Figure 7)
    ring_times       the same placements by the clock, in a real array

In the library's words: a bin is a node here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from evenbins import _study
from evenbins.study.papers.trials import (
    Counts,
    Floats,
    Progress,
    Run,
    check_choice,
    checked_run,
    share,
    whole,
)

__all__ = ["SimulatedRings", "ring_shares", "ring_times", "simulate_ring"]

POLICIES = ("plain", "clockwise", "rehash", "rehash-bin", "jump")
LAYOUTS = ("sparse", "dense")
_NEVER = 2**64 - 1


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
    keys: Counts
    nodes: Counts
    variance: Floats
    max_load: Counts
    first_full: Counts
    never_full: npt.NDArray[np.bool_]
    searches: Counts
    steps: Counts
    all_searches: Counts
    all_hashes: Counts
    removed: Counts
    removed_searches: Counts
    removed_steps: Counts
    loads: Counts

    @property
    def full(self) -> Floats:
        """Fraction of the nodes at the limit."""
        return share(self.loads[:, -1], self.nodes)

    @property
    def mean_searches(self) -> Floats:
        """Searches of a placement, on average over all."""
        return share(self.all_searches, self.keys)

    @property
    def mean_hashes(self) -> Floats:
        """Hash evaluations of a placement, on average over all, beside the key's own digest."""
        return share(self.all_hashes, self.keys)


def simulate_ring(
    policy: str, *, keys: int, nodes: int, limit: int, copies: int = 1, layout: str = "sparse",
    empty: int = 0, array_bits: int = 20, step_bits: int | None = None, bias: float = 0.0,
    bias_on_node: bool = False, churn: bool = False, remove: bool = False, **run: Unpack[Run],
) -> SimulatedRings:  # fmt: skip
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
    run
        `trials`, `seed`, `threads`, `progress`: `evenbins.study.papers.trials.Run`.

    Examples
    --------
    >>> seen = simulate_ring("jump", keys=10_000, nodes=1000, limit=11, trials=100, seed=1)
    >>> round(float(seen.full.mean()), 2), round(float(seen.variance.mean()), 1)
    (0.63, 2.6)
    """
    check_choice("policy", policy, POLICIES)
    check_choice("layout", layout, LAYOUTS)
    ring = _checked_ring(policy, layout, nodes, copies, keys, limit, array_bits)
    counts, variance = _study.simulate_ring(
        **ring,
        empty=whole("empty", empty, 0, 2**22),
        step_bits=32 if step_bits is None else whole("step_bits", step_bits, array_bits, 40),
        bias=float(bias),
        bias_on_bin=bool(bias_on_node),
        churn=bool(churn),
        remove=bool(remove),
        **checked_run(run, most=2**24),
    )
    never = counts["first_full"] == np.uint64(_NEVER)
    return SimulatedRings(
        limit=ring["limit"],
        nodes=counts.pop("bins"),
        first_full=np.where(never, counts["keys"], counts.pop("first_full")),
        never_full=never,
        variance=variance,
        **counts,
    )


def _checked_ring(
    policy: str, layout: str, nodes: int, copies: int, keys: int, limit: int, array_bits: int, *,
    least_nodes: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """Return the arguments of a simulator that describe a ring."""
    return {
        "policy": policy,
        "layout": layout,
        "bins": whole("nodes", nodes, least_nodes, 2**22),
        "copies": whole("copies", copies, 1, 2**22),
        "keys": whole("keys", keys, 0, 2**28),
        "limit": whole("limit", limit, 1, 2**20),
        "array_bits": whole("array_bits", array_bits, 4, 26),
    }


def ring_shares(
    nodes: int, limit: int | None, *, random_arcs: bool = True, **run: Unpack[Run],
) -> Floats:  # fmt: skip
    """Return the variance of the open nodes' chances of the next key, clockwise: ``[trial, full nodes]``.

    Parameters
    ----------
    nodes
        k, with one point each.
    limit
        Keys that fill a node; None: nodes fill in random order, as Theorem 6 assumes.
    random_arcs
        Whether the points are random, or arcs equal.
    run
        As for `simulate_ring`.

    Examples
    --------
    >>> seen = ring_shares(1000, 11, random_arcs=False, trials=2)
    >>> seen.shape, float(seen[0, 0])
    ((2, 1000), 0.0)
    """
    seen = _study.ring_shares(
        bins=whole("nodes", nodes, 2, 2**20),
        limit=0 if limit is None else whole("limit", limit, 1, 2**20),
        random_arcs=bool(random_arcs),
        **checked_run(run, most=2**24),
    )
    seen[seen < 1e-17] = 0.0  # what rounding leaves of equal chances
    return seen


def ring_times(
    policy: str, *, keys: int, nodes: int, limit: int, copies: int = 1, layout: str = "sparse",
    array_bits: int = 20, probes: int = 200, trials: int = 1, seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Time one more key, and a key of a removed node: nanoseconds by trial, the mean of up to `probes` keys.

    The second has only the trials whose removed node had a key. Arguments as for `simulate_ring`; not for
    ``"rehash-bin"``.
    """
    insert, removed = _study.ring_times(
        **_checked_ring(policy, layout, nodes, copies, keys, limit, array_bits, least_nodes=2),
        probes=whole("probes", probes, 1, 2**24),
        trials=whole("trials", trials, 1, 2**24),
        seed=whole("seed", seed, 0, 2**64 - 1),
        progress=progress,
    )
    return insert, removed[removed >= 0]
