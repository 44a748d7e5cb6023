"""The hash ring against consistent hashing of PyPI: the same keys to the same number of nodes.

    peer               one key                                 adding, removing
    uhashring          get_node; hashes by md5 (ketama), and   add_node, remove_node
                       with mmh3 given, which is faster
    xxhash + bisect    what one writes by hand: 160 points a   none
                       node, xxh3_64, bisect on a list

None of the peers bounds a load: `assign_many` keeps every node below its limit and remembers where each key
is; the peers only compute a node. All get str keys; ours takes them as an Arrow column in the bulk case.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.harness import Case, Contender, Target, import_peer
from benchmarks.shared import FULL, Sizes, arrow_column, count_text, hex_text, main_of, strings
from evenbins import HashRing

__all__ = ["main_rings", "ring_cases"]

_NODES = 1000
_POINTS = 160  # of a node on the ring written by hand; uhashring has as many
_OURS, _BY_HAND = "evenbins", "xxhash + bisect"
_MMH3, _KETAMA = "uhashring, mmh3", "uhashring"


def _names(count: int) -> list[str]:
    return [f"server-{i:04}:11211" for i in range(count)]


def _uhashring(names: list[str], label: str) -> Any:
    ring = import_peer("uhashring", "uhashring").HashRing
    return ring(names, hash_fn=import_peer("mmh3", "mmh3").hash) if label == _MMH3 else ring(names)


def _by_hand(names: list[str]) -> Callable[[str], str]:
    digest = import_peer("xxhash", "xxhash").xxh3_64_intdigest
    points = sorted((digest(f"{name}-{i}".encode()), name) for name in names for i in range(_POINTS))
    places, owners = [place for place, _ in points], [name for _, name in points]
    owners.append(owners[0])
    find = bisect.bisect

    def node(key: str) -> str:
        return owners[find(places, digest(key.encode()))]

    return node


def _each(call: Callable[[str], object], keys: list[str]) -> Callable[[], object]:
    def run() -> object:
        for key in keys:
            call(key)
        return call(keys[0])

    return run


def _shrunken(count: int) -> HashRing:
    ring = HashRing(_names(_NODES))
    for name in _names(_NODES)[:: _NODES // (_NODES - count)][: _NODES - count]:
        ring.remove_node(name)
    return ring


def ring_cases(sizes: Sizes = FULL) -> Iterator[Case]:
    """Return the cases of this module, one at a time."""
    count = max(20_000, sizes.scalar_keys // 5)
    text = hex_text(count)
    keys = strings(text)
    for nodes in (_NODES, 600):
        names = _names(nodes)
        ours = HashRing(names) if nodes == _NODES else _shrunken(nodes)
        yield Case(
            name=f"ring, node(key), 16-byte str, {nodes} nodes",
            contenders={
                _OURS: Contender(run=_each(ours.node, keys), check=partial(operator.contains, ours.names)),
                _MMH3: Contender(run=_each(_uhashring(names, _MMH3).get_node, keys)),
                _BY_HAND: Contender(run=_each(_by_hand(names), keys)),
            },
            operations=count,
            targets=[
                Target(text="≥ 25 × faster than uhashring with mmh3", against=(_MMH3,), at_least=25.0),
                Target(text="≥ 15 × faster than xxhash and bisect", against=(_BY_HAND,), at_least=15.0),
            ],
            notes=f"{count_text(count)} calls in a loop."
            + ("" if nodes == _NODES else f" Ours has {_NODES} slots, of which {_NODES - nodes} are empty."),
        )
    yield from _assigning(sizes)
    yield from _changing()


def _assigning(sizes: Sizes) -> Iterator[Case]:
    count, names = sizes.scalar_keys, _names(_NODES)
    text = hex_text(count)
    keys, column = strings(text), arrow_column(text)
    rings: dict[float, HashRing] = {}

    def assigning(epsilon: float) -> Contender:
        def prepare() -> None:
            rings[epsilon] = HashRing(names, epsilon=epsilon)

        return Contender(
            run=lambda: rings[epsilon].assign_many(column),
            prepare=prepare,
            check=lambda found: len(found) == count and rings[epsilon].stats().over == 0,
            facts={"epsilon": epsilon},
        )

    loose, tight = "evenbins, epsilon 0.25", "evenbins, epsilon 0.01"
    yield Case(
        name=f"ring, assign_many, {count_text(count)} 16-byte str, {_NODES} nodes",
        contenders={
            loose: assigning(0.25),
            tight: assigning(0.01),
            _KETAMA: Contender(run=_each(_uhashring(names, _KETAMA).get_node, keys)),
            _MMH3: Contender(run=_each(_uhashring(names, _MMH3).get_node, keys)),
        },
        operations=count,
        targets=[
            Target(
                text=f"{label}: ≥ 50 × faster than a loop of uhashring",
                against=(_KETAMA,),
                at_least=50.0,
                of=label,
            )
            for label in (loose, tight)
        ],
        notes="One thread; from an empty ring, its memory included. uhashring's get_node bounds nothing. Its "
        "own hash is md5; with mmh3, which its users must install, it is about twice as fast.",
    )


def _changing() -> Iterator[Case]:
    names = _names(_NODES)
    yield Case(
        name=f"ring, building {_NODES} nodes",
        contenders={
            _OURS: Contender(run=lambda: HashRing(names), check=lambda ring: len(ring.names) == _NODES),
            _MMH3: Contender(run=lambda: _uhashring(names, _MMH3)),
        },
        operations=1,
        targets=[Target(text="≥ 100 × faster than uhashring", against=(_MMH3,), at_least=100.0)],
        notes="One ring.",
    )
    ours, peer = HashRing(names), _uhashring(names, _MMH3)

    def case(what: str, call: str, before: str) -> Case:
        def contender(ring: Any) -> Contender:
            def clean() -> None:  # off the clock
                new = "new:11211" in (ring.names if ring is ours else ring.get_nodes())
                if new != (call == "remove_node"):
                    getattr(ring, before)("new:11211")

            return Contender(run=lambda: getattr(ring, call)("new:11211"), prepare=clean)

        return Case(
            name=f"ring, {what} one of {_NODES} nodes",
            contenders={_OURS: contender(ours), _MMH3: contender(peer)},
            operations=1,
            targets=[Target(text="≥ 1000 × faster than uhashring", against=(_MMH3,), at_least=1000.0)],
            notes="A ring without keys.",
        )

    yield case("adding", "add_node", "remove_node")
    yield case("removing", "remove_node", "add_node")


def main_rings(
    quick: bool = False, rounds: int | None = None, json_path: str | None = None, markdown: bool = False
) -> int:
    """Run the cases, print the tables, write the JSON; the exit status: 0, or 2 if it cannot run."""
    peers = {"uhashring": "uhashring", "mmh3": "mmh3", "xxhash": "xxhash", "pyarrow": "pyarrow"}
    return main_of("rings", ring_cases, peers, quick, rounds, json_path, markdown)
