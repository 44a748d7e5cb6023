"""How many keys the classical rule loses, and what marks cost: an experiment.

A group of nodes is filled; then keys are replaced, one at a time: a random one leaves, a new one is placed.
At some moments every live key is looked up, and as many absent ones, by both rules over the *same* state:
where keys are placed depends on the loads alone, so marks change nothing but the look-ups.

The limit is ceil((1 + epsilon) * keys / nodes) throughout, as in chen's static experiments, so that no key
is lost by the classical rule at first: it fails through deletions, not through the growth of a limit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from evenbins import _arguments
from evenbins.rings import HashRing
from evenbins.study.marked_nodes import MarkedNodes

__all__ = ["ForwardingRow", "ForwardingStudy", "forwarding_study"]

Candidates = Callable[[int], Iterable[str]]


@dataclass(frozen=True)
class ForwardingRow:
    """What was measured at one moment; `classical` and `marks` are the two rules.

    Attributes
    ----------
    replaced
        Replacements so far, in units of the number of keys.
    found_classical, found_marks
        Fraction of live keys that are found.
    present_classical, present_marks
        Nodes asked for each live key (by the classical rule, lost ones included).
    absent_classical, absent_marks
        Nodes asked for each absent key.
    marks, marks_bytes
        Marks for each live key, and bytes of marks for each live key.
    full
        Fraction of nodes that are full.
    """

    replaced: float
    found_classical: float
    found_marks: float
    present_classical: float
    present_marks: float
    absent_classical: float
    absent_marks: float
    marks: float
    marks_bytes: float
    full: float


@dataclass(frozen=True)
class ForwardingStudy:
    """The rows of a study; printed as a table."""

    nodes: int
    keys: int
    epsilon: float
    limit: int
    rows: tuple[ForwardingRow, ...]

    def to_dict(self) -> dict[str, object]:
        """Return everything as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        groups = ("", "keys found", "probes, present", "probes, absent", "marks")
        names = ("replaced", *3 * ("classical", "marks"), "per key", "bytes")
        lines = [
            f"{self.keys} keys on {self.nodes} nodes, epsilon {self.epsilon:g}, limit {self.limit}",
            f"{groups[0]:>10}" + "".join(f"{group:>21}" for group in groups[1:]),
            f"{names[0]:>10}"
            + "".join(f"{a:>12}{b:>9}" for a, b in zip(names[1::2], names[2::2], strict=True)),
        ]
        lines += [
            f"{row.replaced:>8g} n{row.found_classical:>12.2%}{row.found_marks:>9.2%}"
            f"{row.present_classical:>12.3f}{row.present_marks:>9.3f}"
            f"{row.absent_classical:>12.3f}{row.absent_marks:>9.3f}{row.marks:>12.3f}{row.marks_bytes:>9.2f}"
            for row in self.rows
        ]
        return "\n".join(lines)


def forwarding_study(
    nodes: int = 1000,
    keys: int = 10_000,
    *,
    epsilon: float = 0.1,
    replacements: Sequence[float] = (0, 1, 5),
    seed: int = 0,
    fingerprint_bits: int = 32,
    candidates: Callable[[list[str]], Candidates] | None = None,
) -> ForwardingStudy:
    """Measure look-ups without a map, by the classical rule and with forwarding marks.

    Parameters
    ----------
    nodes, keys
        Nodes and live keys.
    epsilon
        The limit of a node is ceil((1 + epsilon) * keys / nodes).
    replacements
        When to measure, in replacements for each key, ascending.
    seed
        Of the keys and of which one leaves.
    fingerprint_bits
        Of the marks.
    candidates
        ``candidates(names)`` gives the function from a digest to its candidates; a dense jump ring if left
        out.

    Raises
    ------
    TypeError, ValueError
        An argument breaks its rule.

    Examples
    --------
    >>> study = forwarding_study(100, 1000, replacements=(0, 2))
    >>> [(row.found_classical > 0.95, row.found_marks) for row in study.rows]
    [(True, 1.0), (False, 1.0)]
    """
    nodes = _arguments.integer("nodes", nodes, 1, 10**6, "Pass for example 1000")
    keys = _arguments.integer("keys", keys, 1, 10**8, "Pass for example 10_000")
    epsilon_rule = "a number from 0 on"
    epsilon = _arguments.real("epsilon", epsilon, epsilon_rule, "Pass for example 0.1")
    if not 0.0 <= epsilon < math.inf:
        raise _arguments.error("epsilon", epsilon_rule, epsilon, "Pass for example 0.1")
    if sorted(replacements) != list(replacements) or any(r < 0 for r in replacements):
        rule = "ascending numbers from 0 on"
        raise _arguments.error("replacements", rule, replacements, "Pass for example (0, 1, 5)")

    names = [f"node-{i}" for i in range(nodes)]
    limit = math.ceil(round((1 + epsilon) * 10**9) * keys / (10**9 * nodes))
    group = MarkedNodes(names, (candidates or _jump_ring)(names), limit, fingerprint_bits=fingerprint_bits)
    rng = random.Random(seed)
    live = [_new_key(group, rng) for _ in range(keys)]
    done = 0
    rows = []
    for moment in replacements:
        while done < moment * keys:
            at = rng.randrange(keys)
            group.evict(live[at])
            live[at] = _new_key(group, rng)
            done += 1
        rows.append(_measure(group, live, [rng.getrandbits(64) for _ in live], done / keys))
    return ForwardingStudy(nodes, keys, epsilon, limit, tuple(rows))


def _new_key(group: MarkedNodes, rng: random.Random) -> int:
    digest = rng.getrandbits(64)
    group.place(digest)
    return digest


def _measure(group: MarkedNodes, live: list[int], absent: list[int], replaced: float) -> ForwardingRow:
    def probes(digests: list[int], *, classical: bool) -> tuple[float, float]:
        before = group.probes
        found = sum(group.locate(digest, classical=classical) is not None for digest in digests)
        return found / len(digests), (group.probes - before) / len(digests)

    found_classical, present_classical = probes(live, classical=True)
    found_marks, present_marks = probes(live, classical=False)
    servers = group.nodes.values()
    marks = [node.marks for node in servers if node.marks is not None]
    return ForwardingRow(
        replaced=replaced,
        found_classical=found_classical,
        found_marks=found_marks,
        present_classical=present_classical,
        present_marks=present_marks,
        absent_classical=probes(absent, classical=True)[1],
        absent_marks=probes(absent, classical=False)[1],
        marks=sum(map(len, marks)) / len(live),
        marks_bytes=sum(each.nbytes for each in marks) / len(live),
        full=sum(node.full for node in servers) / len(group.nodes),
    )


def _jump_ring(names: list[str]) -> Candidates:
    return HashRing(names).candidates
