"""J. Chen, B. Coleman, A. Shrivastava, "Revisiting consistent hashing with bounded loads": figures, theorems.

The figures' numbers are lost with the figures; what the text says of them is beside ours.

    chen-fig6                insertion time (also Figures 13, 19)
    chen-fig7                variance of the nodes' chances against the number of full nodes
    chen-fig20, -21, -22     removal of a node: searches, steps, time of each of its keys
    chen-appN                a biased hash function
    chen-thm1, -thm4         dominance (Theorems 1, 2), the first full node

Times are those of this machine and no seed decides them. The paper walks an array of 2^32 indices; ours has
2^20. Clockwise walks and jumps both grow with the array, so ratios stay; "jump, dense" is the same policy
without the sparse array.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from evenbins.study.papers import plots
from evenbins.study.papers.chen import EPSILONS, NODES, configuration
from evenbins.study.papers.registry import Context, Plot, Row, experiment, measured, row
from evenbins.study.papers.ring_simulation import ring_shares, ring_times, simulate_ring
from evenbins.study.theory import rings

__all__: list[str] = []

_TIME = "the median by the clock of this machine, in an array of 2^20"
_FASTER = "the paper: 2 to 7 times faster for small epsilon; here a walk reads memory in order, jumps do not"


def _times(context: Context, which: int) -> Iterator[Row]:
    points = [
        (keys, epsilon, copies)
        for keys in context.pick((10_000, 3000, 1000), (10_000,))
        for copies in context.pick((1, 7), (1,))
        for epsilon in context.pick((*EPSILONS[::2], 3.0), (0.1, 1.0))
    ]
    ways = (("clockwise", "sparse"), ("jump", "sparse"), ("jump", "dense"))
    for keys, epsilon, copies in context.track(points):
        mean = {}
        for policy, layout in ways:
            name = policy if layout == "sparse" else f"{policy}, {layout}"
            seen = ring_times(
                policy, keys=keys, nodes=NODES, limit=rings.ring_limit(keys, NODES, epsilon), copies=copies,
                layout=layout, probes=context.pick(200, 20), trials=context.pick(100, 2),
                seed=context.stream(keys, epsilon, copies, name),
            )[which]  # fmt: skip
            if not seen.size:
                continue
            mean[name] = float(np.median(seen))
            yield row(
                "nanoseconds", mean[name], sd=float(seen.std()), note=_TIME, keys=keys, epsilon=epsilon,
                copies=copies, policy=name,
            )  # fmt: skip
        if "clockwise" in mean and "jump" in mean:
            yield row(
                "speedup", mean["clockwise"] / mean["jump"], note=_FASTER, keys=keys, epsilon=epsilon,
                copies=copies, policy="jump",
            )  # fmt: skip


_TIME_PLOT = plots.lines(x="epsilon", y="nanoseconds", log=True, panel="copies", quantities=("nanoseconds",))


@experiment("chen-fig6", title="Time to place one more key", plot=_TIME_PLOT)
def fig6(context: Context) -> Iterator[Row]:
    """Wall clock time of key n + 1; Figures 13 and 19 too."""
    return _times(context, 0)


@experiment("chen-fig22", title="Removal of a node: time of a key", plot=_TIME_PLOT)
def fig22(context: Context) -> Iterator[Row]:
    """Wall clock time for each key of a removed node."""
    return _times(context, 1)


@experiment(
    "chen-fig7",
    title="Variance of the nodes' chances of the next key",
    plot=plots.lines(x="full", y="variance", log=True, panel="arcs"),
)
def fig7(context: Context) -> Iterator[Row]:
    """Clockwise, 1000 nodes of capacity 11: variance of the open nodes' chances of the next key.

    `variance`: nodes fill by keys; `variance_model`: in random order, as Theorem 6 assumes;
    `variance_theory`: its recursion, exactly; `variance_bound`: from the first full node on, the least growth
    of Theorem 6's proof. jump's is 0.
    """
    trials = context.pick(100, 10)
    for arcs in context.track(("equal", "random")):
        options: dict[str, Any] = {
            "random_arcs": arcs == "random", "trials": trials, "threads": context.threads,
        }  # fmt: skip
        by_keys = ring_shares(NODES, 11, seed=context.stream(arcs, "keys"), **options)
        by_chance = ring_shares(NODES, None, seed=context.stream(arcs, "model"), **options)
        start = rings.share_variance(NODES, 1) if arcs == "random" else 0.0
        bound = 0.0
        for full in range(NODES - 2):
            exact = rings.assignment_variance(NODES, 1, start=start) if full == 1 else 0.0
            bound = exact if full == 1 else bound * (rings.assignment_growth(NODES, full) if full else 1.0)
            if full % 50 and full not in (1, NODES - 10, NODES - 3):
                continue
            where: dict[str, Any] = {"arcs": arcs, "full": full}
            yield measured("variance", by_keys[:, full], **where)
            yield measured("variance_model", by_chance[:, full], **where)
            yield row("variance_theory", rings.assignment_variance(NODES, full, start=start), **where)
            if full:
                yield row("variance_bound", bound, **where)


def _removal(context: Context, quantity: str) -> Iterator[Row]:
    points = [
        (keys, epsilon, copies, policy)
        for keys in (10_000, 3000, 1000)
        for copies in (1, 7)
        for epsilon in context.pick(EPSILONS, (0.1, 1.0))
        for policy in ("clockwise", "jump")
    ]
    for keys, epsilon, copies, policy in context.track(points):
        seen = configuration(context, policy, keys, epsilon, copies, remove=True)
        had = seen.removed > 0
        each = getattr(seen, f"removed_{quantity}")[had] / seen.removed[had]
        yield measured(quantity, each, keys=keys, epsilon=epsilon, copies=copies, policy=policy)


def _removal_plot(quantity: str) -> Plot:
    return plots.lines(x="epsilon", y=quantity, log=True, panel="copies")


@experiment("chen-fig20", title="Removal of a node: searches of a key", plot=_removal_plot("searches"))
def fig20(context: Context) -> Iterator[Row]:
    """Searches for each key of a removed node, which looks again at what it once passed."""
    return _removal(context, "searches")


@experiment("chen-fig21", title="Removal of a node: steps of a key", plot=_removal_plot("steps"))
def fig21(context: Context) -> Iterator[Row]:
    """Steps, in an array of 2^32, for each key of a removed node."""
    return _removal(context, "steps")


@experiment(
    "chen-appN",
    title="A hash function that gives one output with 90 %",
    plot=plots.lines(x="epsilon", y="variance", log=True, panel="bias", quantities=("variance",)),
)
def app_n(context: Context) -> Iterator[Row]:
    """10,000 keys; the favoured index is "none", "between" two nodes, or "on" a node.

    Clockwise fills one node after the other from there: nearly all nodes are full or all but empty. jump
    never notices an index without a node, and one on a node only until that is full. (Its searches then
    repeat that node, nine tries of ten; they are not counted.)
    """
    for bias in context.track(("none", "between", "on")):
        for epsilon in (0.1, 0.3, 1.0, 3.0):
            for policy in ("clockwise", "rehash", "jump"):
                seen = simulate_ring(
                    policy, keys=10_000, nodes=NODES, limit=rings.ring_limit(10_000, NODES, epsilon),
                    bias=0.0 if bias == "none" else 0.9, bias_on_node=bias == "on",
                    trials=context.pick(200, 4), seed=context.stream(bias, epsilon, policy),
                    threads=context.threads,
                )  # fmt: skip
                where: dict[str, Any] = {"bias": bias, "epsilon": epsilon, "policy": policy}
                for quantity in ("variance", "full", "first_full"):
                    yield measured(quantity, np.asarray(getattr(seen, quantity), dtype=float), **where)


@experiment(
    "chen-thm1",
    title="Loads under jump are dominated by those under clockwise",
    plot=plots.lines(x="epsilon", y="variance", log=True, panel="keys", quantities=("variance",)),
)
def thm1(context: Context) -> Iterator[Row]:
    """Equal arcs, as the theorems assume: variance and full nodes (Theorem 1), all convex functions (2).

    Of the policy "clockwise - jump": `excess`, the least over c of the means' difference of max(load - c, 0),
    which decides all convex functions; `excess_error` its standard error there; `holds` 1 if none is negative
    beyond 5 errors.
    """
    for keys in (10_000, 3000, 1000):
        for epsilon in context.track(context.pick(EPSILONS, (0.1, 1.0))):
            seen = {
                policy: configuration(context, policy, keys, epsilon, 1, layout="dense")
                for policy in ("jump", "clockwise")
            }
            for policy, each in seen.items():
                for quantity in ("variance", "full"):
                    yield measured(
                        quantity, getattr(each, quantity), keys=keys, epsilon=epsilon, policy=policy
                    )
            for policy, layout in (("jump", None), ("clockwise", "dense")):
                plan = rings.plan_ring(
                    NODES, keys, policy=policy, layout=layout or "dense", epsilon=epsilon, limits="fixed"
                )
                for quantity in ("variance", "full"):
                    value = getattr(plan, quantity)
                    if value is not None:
                        yield row(f"{quantity}_theory", value, keys=keys, epsilon=epsilon, policy=policy)
            found = rings.dominance(seen["jump"].loads, seen["clockwise"].loads)
            least = int(np.argmin(found.excess - 5 * found.errors))
            where: dict[str, Any] = {"keys": keys, "epsilon": epsilon, "policy": "clockwise - jump"}
            yield row("excess", float(found.excess[least]), **where)
            yield row("excess_error", float(found.errors[least]), **where)
            yield row("holds", float(found.holds), **where)


@experiment(
    "chen-thm4",
    title="Keys until the first node is full, by how even the shares are",
    plot=plots.lines(x="limit", y="keys", quantities=("first_full", "first_full_theory")),
)
def thm4(context: Context) -> Iterator[Row]:
    """Stateless addressing with equal shares (jump), and with those of 1, 2, 7 and 30 random points a node.

    `first_full` is to the end, whatever n; `no_full` the chance that 3000 keys fill no node.
    """
    for limit in context.track(context.pick((4, 6, 11, 12, 13, 20), (4, 11))):
        for copies in (0, 1, 2, 7, 30):
            arcs = copies or None
            theory = rings.first_full(NODES, limit, copies=arcs)
            seen = simulate_ring(
                "plain", keys=round(3 * theory), nodes=NODES, limit=limit, copies=copies or 1,
                layout="sparse" if copies else "dense", trials=context.pick(1000, 20),
                seed=context.stream(limit, copies), threads=context.threads,
            )  # fmt: skip
            where: dict[str, Any] = {"limit": limit, "shares": f"{copies} points" if copies else "equal"}
            yield measured("first_full", seen.first_full, **where)
            yield row("first_full_theory", theory, **where)
            yield measured("no_full", seen.first_full > 3000, **where)
            yield row("no_full_theory", rings.no_full(NODES, limit, 3000, copies=arcs), **where)
