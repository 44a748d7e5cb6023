"""Marks under any operations: every live key is found, marks are those of live keys, memory stays bounded.

The group goes with a model: the set of live keys by node, and, from the ring's candidates alone, the marks
that each node must have. The nodes are few and tight, so that most keys pass some of them.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from evenbins.rings.errors import RingFullError
from evenbins.rings.forwarding import ForwardingMarks
from evenbins.study.marked_nodes import MarkedNodes
from reference.keys import splitmix
from reference.ring import BILLION, WHOLE, Ring

DIGESTS = st.integers(0, 15).map(lambda i: splitmix(77, i))
NAMES = [f"n{i}" for i in range(8)]
WHICH = st.integers(0, 7)


OPTIONS: list[dict[str, Any]] = [
    {"exact": True},
    {"fingerprint_bits": 8},
    {"fingerprint_bits": 8, "memory_bytes": 9},
    {"exact": True, "memory_bytes": 20},
]
SHARING = [i for i in range(3000) if ForwardingMarks(fingerprint_bits=8)._fingerprint(i) in (4, 5, 200)][:13]


class GroupMachine(RuleBasedStateMachine):
    policy: str = "jump"
    options: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.ring = Ring.of(NAMES[:5], self.policy, rate=BILLION)
        self.limits = dict.fromkeys(NAMES, 2)
        self.group = MarkedNodes(NAMES[:5], self.ring.candidates, self.limits.__getitem__, **self.options)
        self.live: set[int] = set()
        self.unreachable: dict[str, set[int]] = {}

    def up(self) -> list[str]:
        return [name for name in self.ring.names if name not in self.unreachable]

    @rule(digest=DIGESTS)
    def place(self, digest: int) -> None:
        where = dict(self.group.where)
        try:
            name = self.group.place(digest)
        except RingFullError:
            assert digest not in self.live
            assert all(self.group.nodes[name].full for name in self.up())
            assert self.group.where == where
        else:
            assert where.get(digest, name) == name
            self.live.add(digest)

    @rule(digest=DIGESTS)
    def forget(self, digest: int) -> None:
        assert self.group.forget(digest) == (digest in self.live)
        self.live.discard(digest)

    @rule(name=st.sampled_from(NAMES), limit=st.integers(0, 4))
    def change_limit(self, name: str, limit: int) -> None:
        self.limits[name] = limit

    @rule(name=st.sampled_from(NAMES), quanta=st.sampled_from([WHOLE, 2 * WHOLE, WHOLE // 2]))
    def join(self, name: str, quanta: int) -> None:
        if name not in self.ring.names:
            self.ring.add_node(name, quanta)
            self.lose(self.group.join(name))

    @precondition(lambda self: len(self.ring.names) > 1)
    @rule(which=WHICH)
    def leave(self, which: int) -> None:
        name = self.ring.names[which % len(self.ring.names)]
        self.ring.remove_node(name)
        self.unreachable.pop(name, None)
        self.lose(self.group.leave(name))

    @precondition(lambda self: self.up())
    @rule(which=WHICH, tell_ring=st.booleans())
    def fail(self, which: int, tell_ring: bool) -> None:
        name = self.up()[which % len(self.up())]
        lost = {digest for digest, holder in self.group.where.items() if holder == name}
        if tell_ring:  # else clients skip the node all the same, for it does not answer
            self.ring.mark_down(name)
        self.lose(self.group.fail(name))
        self.unreachable[name] = lost
        self.live -= lost

    @precondition(lambda self: self.unreachable)
    @rule(which=WHICH, keep=st.booleans())
    def recover(self, which: int, keep: bool) -> None:
        name = sorted(self.unreachable)[which % len(self.unreachable)]
        back = self.unreachable.pop(name) - self.live
        self.ring.mark_up(name)
        self.lose(self.group.recover(name, keep=keep))
        if keep:
            self.live |= back

    @rule()
    def refresh(self) -> None:
        self.lose(self.group.refresh())

    def lose(self, digests: list[int]) -> None:
        """Keys that found no room when their node left: only if all nodes are full."""
        assert not digests or all(self.group.nodes[name].full for name in self.up())
        self.live -= set(digests)

    @invariant()
    def every_live_key_is_found_and_no_other(self) -> None:
        for digest in (splitmix(77, i) for i in range(16)):
            assert (self.group.locate(digest) is not None) == (digest in self.live)
        assert set(self.group.where) == self.live

    @invariant()
    def marks_are_the_live_keys_that_pass(self) -> None:
        self.group.check()
        model: dict[str, Counter[int]] = {name: Counter() for name in self.up()}
        for name in self.up():
            for digest in self.group.nodes[name].held:
                for passed in self.ring.candidates(digest):
                    if passed == name:
                        break
                    if passed in model:
                        model[passed][digest] += 1
        for name, counts in model.items():
            marks = self.group.nodes[name].marks
            assert marks is not None
            assert len(marks) == counts.total()
            if marks.exact and not marks.saturated:
                assert marks.counts() == counts


@pytest.mark.parametrize("policy", ["jump", "clockwise"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_live_key_is_ever_lost(policy: str, options: dict[str, Any]) -> None:
    machine = type("Machine", (GroupMachine,), {"policy": policy, "options": options})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=6, stateful_step_count=30, deadline=None, derandomize=True)
    )


@pytest.mark.parametrize("policy", ["jump", "clockwise"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_live_key_is_lost_in_a_long_run(policy: str, options: dict[str, Any]) -> None:
    """500 random steps of the same machine: states that short examples rarely reach."""
    machine = type("Machine", (GroupMachine,), {"policy": policy, "options": options})()
    rng = random.Random(f"{policy} {options}")
    for _ in range(500):
        which, digest, flag = rng.randrange(8), splitmix(77, rng.randrange(16)), rng.random() < 0.5
        step = rng.choices(range(7), [8, 3, 2, 2, 1, 1.5, 1.5])[0]
        if step == 0:
            machine.place(digest)
        elif step == 1:
            machine.forget(digest)
        elif step == 2:
            machine.change_limit(NAMES[which], rng.randrange(5))
        elif step == 3:
            machine.join(NAMES[which], rng.choice([WHOLE, 2 * WHOLE, WHOLE // 2]))
        elif step == 4 and len(machine.ring.names) > 1:
            machine.leave(which)
        elif step == 5 and len(machine.up()) > 2:
            machine.fail(which, flag)
        elif step == 6 and machine.unreachable:
            machine.recover(which, flag)
        machine.every_live_key_is_found_and_no_other()
        machine.marks_are_the_live_keys_that_pass()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=80),
    memory=st.sampled_from([None, 0, 3, 7, 12]),
)
def test_marks_against_a_multiset(steps: list[tuple[bool, int]], memory: int | None) -> None:
    """Thirteen digests of three fingerprints; nothing live is ever denied."""
    marks = ForwardingMarks(fingerprint_bits=8, memory_bytes=memory)
    live: Counter[int] = Counter()
    for adds, i in steps:
        digest = SHARING[i]
        if adds:
            marks.add(digest)
            live[digest] += 1
        elif live[digest]:
            marks.remove(digest)
            live[digest] -= 1
        assert len(marks) == live.total()
        assert memory is None or marks.nbytes <= memory
        assert all(each in marks for each in live if live[each])
        if not live.total():
            assert not marks.saturated
            assert marks.nbytes == 0
