"""The ring's twin under any operations: the bound at every placement, moves that tell all, exact books.

A placement is watched where it happens (`_put`), since one operation may make many and the limit may be
lower at its end than it was then.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from evenbins.rings.errors import NoNodesError, RingFullError
from reference.keys import splitmix
from reference.ring import BILLION, WHOLE, Node, Ring

DIGESTS = st.integers(0, 60).map(lambda i: splitmix(99, i))
NAMES = st.sampled_from("abcdefgh")
WHICH = st.integers(0, 7)
QUANTA = st.sampled_from([WHOLE, WHOLE // 3, 5 * WHOLE // 2, 1])


class Watched(Ring):
    def _put(self, digest: int, node: Node) -> None:
        super()._put(digest, node)
        limit = self.limit(node)
        assert node.serves
        assert limit is None or len(node.members) <= limit


class RingMachine(RuleBasedStateMachine):
    policy, layout, rate = "jump", "dense", 5 * BILLION // 4

    def __init__(self) -> None:
        super().__init__()
        bound: Any = None if self.rate == 0 else self.rate
        self.ring = Watched(self.policy, self.layout, copies=2, rate=bound, seed=3, array_bits=8)
        self.keys: set[int] = set()
        self.leases: list[Node] = []

    def state(self) -> Any:
        ring = self.ring
        return (
            ring.loads(),
            dict(ring.where),
            ring.slots,
            ring.places,
            dict(ring.homes),
            ring.leased,
            ring.free,
        )

    def where(self) -> dict[int, str]:
        return {digest: node.name for digest, node in self.ring.where.items()}

    def moving(self, call: Any) -> list[tuple[int, str, str]]:
        """Run what returns moves: they, one after the other, lead from the old map to the new."""
        before, state = self.where(), self.state()
        try:
            moves: list[tuple[int, str, str]] = call()
        except (NoNodesError, RingFullError):
            assert self.state() == state
            return []
        for digest, old, new in moves:
            assert before[digest] == old != new
            before[digest] = new
        assert before == self.where()
        return moves

    @rule(digest=DIGESTS)
    def assign(self, digest: int) -> None:
        state, moved = self.state(), self.ring.moved
        try:
            name = self.ring.assign(digest)
        except RingFullError:
            assert all(n.cap == len(n.members) for n in self.ring.nodes_by_name.values() if n.serves)
            assert self.state() == state
        except NoNodesError:
            assert not any(n.serves for n in self.ring.nodes_by_name.values())
            assert self.state() == state
        else:
            assert self.ring.locate(digest) == name
            assert digest in self.keys or self.ring.moved == moved
            self.keys.add(digest)

    @rule(digest=DIGESTS)
    def release(self, digest: int) -> None:
        assert self.ring.release(digest) == (digest in self.keys)
        self.keys.discard(digest)

    @rule(name=NAMES, quanta=QUANTA, cap=st.integers(1, 12), move=st.sampled_from(["now", "now", "lazy"]))
    def add_node(self, name: str, quanta: int, cap: int, move: str) -> None:
        if name not in self.ring.names:
            first = {digest: next(self.ring.candidates(digest), None) for digest in self.keys}
            moves = self.moving(lambda: self.ring.add_node(name, quanta, cap, move))
            assert {new for _, _, new in moves} <= {name}
            assert move == "now" or not moves
            accepting = sum(2 * node.quanta for node in self.ring.nodes_by_name.values() if node.serves)
            few = accepting <= len(self.ring.slots or self.ring.places) * WHOLE // 4  # walks reach tails
            whole = 2 * quanta % WHOLE == 0 or (self.policy, self.layout) == ("jump", "sparse")
            if whole and not few:  # a slot that refuses draws disturbs others: the head of ring_slots
                assert all(next(self.ring.candidates(d)) in (first[d], name) for d in self.keys)

    @precondition(lambda self: self.ring.names)
    @rule(which=WHICH)
    def remove_node(self, which: int) -> None:
        name = self.ring.names[which % len(self.ring.names)]
        held = list(self.ring.members[name])
        moves = self.moving(lambda: self.ring.remove_node(name))
        assert [(digest, old) for digest, old, _ in moves] == [
            (d, name) for d in held if name not in self.ring.names
        ]

    @precondition(lambda self: self.ring.names)
    @rule(which=WHICH, quanta=QUANTA, what=st.sampled_from(["drain", "down", "up", "up", "weight"]))
    def change_node(self, which: int, quanta: int, what: str) -> None:
        name = self.ring.names[which % len(self.ring.names)]
        if what == "drain":
            self.ring.drain(name)
            return
        call = {"down": self.ring.mark_down, "up": self.ring.mark_up}.get(what)
        moves = self.moving(lambda: call(name) if call else self.ring.set_weight(name, quanta))
        assert all(name in (old, new) for _, old, new in moves)
        if what == "down" and self.ring.rate and any(n.serves for n in self.ring.nodes_by_name.values()):
            assert not self.ring.members[name]

    @rule(most=st.sampled_from([None, 0, 2]))
    def rebalance(self, most: int | None) -> None:
        moves = self.moving(lambda: self.ring.rebalance(most))
        assert most is None or len(moves) <= most
        if most is None:
            for node in self.ring.nodes_by_name.values():
                limit = self.ring.limit(node) if node.serves else None
                assert limit is None or len(node.members) <= limit

    @rule()
    def compact(self) -> None:
        self.moving(self.ring.compact)
        assert self.ring.layout == "sparse" or None not in self.ring.slots

    @rule(digest=DIGESTS)
    def lease(self, digest: int) -> None:
        try:
            self.leases.append(self.ring.lease(digest))
        except (NoNodesError, RingFullError):
            return
        node, ring = self.leases[-1], self.ring
        if ring.rate is not None and ring.policy != "plain":
            assert (node.leases - 1) * BILLION * ring.weight < ring.rate * ring.leased * node.quanta

    @precondition(lambda self: self.leases)
    @rule()
    def end_lease(self) -> None:
        self.ring.end_lease(self.leases.pop(0))

    @invariant()
    def books_are_exact(self) -> None:
        self.ring.check()
        assert set(self.ring.where) == self.keys


@pytest.mark.parametrize("rate", [5 * BILLION // 4, BILLION, 0], ids=["epsilon 0.25", "epsilon 0", "caps"])
@pytest.mark.parametrize(
    ("policy", "layout"),
    [
        ("jump", "dense"),
        ("jump", "sparse"),
        ("clockwise", "dense"),
        ("clockwise", "sparse"),
        ("rehash", "sparse"),
        ("rehash-bin", "dense"),
    ],
)
def test_the_twin_keeps_its_laws(policy: str, layout: str, rate: int) -> None:
    machine = type("Machine", (RingMachine,), {"policy": policy, "layout": layout, "rate": rate})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=5, stateful_step_count=30, deadline=None, derandomize=True)
    )


@pytest.mark.parametrize("rate", [5 * BILLION // 4, BILLION, 0], ids=["epsilon 0.25", "epsilon 0", "caps"])
@pytest.mark.parametrize(
    ("policy", "layout"),
    [
        ("jump", "dense"),
        ("jump", "sparse"),
        ("clockwise", "dense"),
        ("clockwise", "sparse"),
        ("rehash", "sparse"),
        ("rehash-bin", "dense"),
    ],
)
def test_the_twin_keeps_its_laws_in_a_long_run(policy: str, layout: str, rate: int) -> None:
    """300 random steps of the same machine: states that short examples rarely reach."""
    machine = type("Machine", (RingMachine,), {"policy": policy, "layout": layout, "rate": rate})()
    rng = random.Random(f"{policy} {layout} {rate}")
    for _ in range(300):
        which, digest = rng.randrange(8), splitmix(99, rng.randrange(61))
        quanta = rng.choice([WHOLE, WHOLE, WHOLE // 3, 5 * WHOLE // 2, 1])
        step = rng.choices(range(8), [10, 3, 3, 1, 4, 0.5, 0.5, 2])[0]
        if step == 0:
            machine.assign(digest)
        elif step == 1:
            machine.release(digest)
        elif step == 2:
            machine.add_node(
                "abcdefgh"[which], quanta, rng.randrange(1, 13), rng.choice(["now", "now", "lazy"])
            )
        elif step == 3 and len(machine.ring.names) > 2:
            machine.remove_node(which)
        elif step == 4 and machine.ring.names:
            machine.change_node(
                which, quanta, rng.choice(["drain", "down", "up", "up", "up", "weight", "weight"])
            )
        elif step == 5:
            machine.rebalance(rng.choice([None, 0, 2]))
        elif step == 6:
            machine.compact()
        elif step == 7:
            machine.lease(digest)
            if rng.random() < 0.5 and machine.leases:
                machine.end_lease()
        machine.books_are_exact()
