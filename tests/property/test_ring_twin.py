"""HashRing and its twin do the same things: the same slots, keys in the same order, the same moves and
errors.

Any sequence of operations; the state is compared after each, and now and then the ring goes through a file.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import size

from evenbins import HashRing, NoNodesError, RingFullError, _core
from evenbins.study.ring import ring as study_ring
from reference.ring import Ring, dense_slot

POLICIES = ("jump", "clockwise", "rehash", "rehash-bin", "plain")
NAMES = [f"n{i}" for i in range(9)]
WEIGHTS = (1, 1, 1, 2, 2.5, 0.3)

_name = st.sampled_from(NAMES)
_digest = st.integers(0, 2**64 - 1)
_few = st.integers(0, 40)  # so that keys come again
OPERATIONS = st.one_of(
    st.tuples(st.just("assign"), st.one_of(_few, _digest)),
    st.tuples(st.just("assign"), _few),
    st.tuples(st.just("assign_some"), _digest, st.integers(1, 30)),
    st.tuples(st.just("release"), _few),
    st.tuples(st.just("add"), _name, st.sampled_from(WEIGHTS), st.sampled_from(["now", "lazy"])),
    st.tuples(st.just("remove"), _name),
    st.tuples(st.just("drain"), _name),
    st.tuples(st.just("down"), _name),
    st.tuples(st.just("up"), _name),
    st.tuples(st.just("weight"), _name, st.sampled_from(WEIGHTS)),
    st.tuples(st.just("rebalance"), st.sampled_from([None, 0, 3])),
    st.tuples(st.just("compact")),
    st.tuples(st.just("lease"), _digest),
    st.tuples(st.just("lease_weighted"), _digest, st.sampled_from([1, 0.1, 7.25, 3000, 0.000001])),
    st.tuples(st.just("file")),
)


class Pair:
    """A ring and its twin."""

    def __init__(
        self, policy: str, layout: str, copies: int, bound: dict[str, Any], weights: list[float]
    ) -> None:
        given_weights = dict(zip(NAMES, weights, strict=False))
        more: dict[str, Any] = {"array_bits": 11} if layout == "sparse" else {}
        self.ring = study_ring(
            given_weights,
            policy="rehash" if policy == "rehash-bin" else policy,
            rehash="bin" if policy == "rehash-bin" else "object",
            layout=layout,
            copies=copies,
            weights=given_weights,
            seed=5,
            **({} if policy == "plain" else bound),
            **more,
        )
        rate, limit = self.ring._config()[4], self.ring._config()[7]
        self.twin = Ring.of(
            {name: self.ring._quanta(name, weight) for name, weight in given_weights.items()},
            policy,
            layout,
            caps={name: self.ring._cap(weight) for name, weight in given_weights.items()} if limit else None,
            weights={name: exactly(weight) for name, weight in given_weights.items()},
            copies=copies,
            rate=rate or None,
            seed=5,
            array_bits=self.ring._config()[3],
        )
        self.bounded_by_caps = bool(limit)
        self.ring._start_audit()

    def do(self, operation: tuple[Any, ...]) -> None:
        what, *rest = operation
        ring, twin = self.ring, self.twin
        if what == "assign_some":
            digests = [(rest[0] + i * 0x9E3779B97F4A7C15) % 2**64 for i in range(rest[1])]
            same(
                lambda: ring.assign_many(digests, digests=True).tolist(),
                lambda: [twin.assign(d) for d in digests],
            )
        elif what == "assign":
            same(lambda: ring.assign_many(rest, digests=True)[0], lambda: twin.assign(rest[0]))
        elif what == "release":
            same(lambda: bool(ring.release_many(rest, digests=True)[0]), lambda: twin.release(rest[0]))
        elif what == "add":
            name, weight, move = rest
            if name in ring.names:
                return
            quanta, cap = ring._quanta(name, weight), ring._cap(weight) or None
            same(
                lambda: ring.add_node(name, weight, move=move),
                lambda: twin.add_node(name, quanta, cap, move, weight=exactly(weight)),
            )
        elif what == "lease":
            lease = ring._lease
            key = rest[0]  # an int is a key here; its digest is what the twin needs
            digest = _core.digest(key, ring.seed)
            same(lambda: lease(key, (), 0)[0], lambda: twin.lease(digest).name)
        elif what == "lease_weighted":
            key, load = rest
            digest, forced = _core.digest(key, ring.seed), ring._forced_leases
            same(
                lambda: (ring.lease(key, weight=load).acquire(), ring._forced_leases > forced),
                lambda: twin.lease_weighted(digest, exactly(load)),
            )
        elif what == "rebalance":
            same(lambda: ring.rebalance(rest[0]), lambda: twin.rebalance(rest[0]))
        elif what == "compact":
            same(ring.compact, twin.compact)
        elif what == "file":
            audit = ring._audit()
            assert audit[1] == 0
            self.ring = HashRing.from_bytes(ring.to_bytes())
            assert self.ring == ring
            assert self.ring.to_bytes() == ring.to_bytes()
            assert self.ring.fingerprint(assigned=True) == ring.fingerprint(assigned=True)
            self.ring._start_audit()
            for node in twin.nodes_by_name.values():  # leases are not stored
                twin.leased -= node.leases
                node.leases, node.lease_load = 0, Fraction(0)
        elif rest[0] in ring.names:
            name = rest[0]
            if what == "weight":
                if self.bounded_by_caps:
                    return  # the twin's caps do not follow weights
                quanta = ring._quanta(name, rest[1])
                same(
                    lambda: ring.set_weight(name, rest[1]),
                    lambda: twin.set_weight(name, quanta, weight=exactly(rest[1])),
                )
            else:
                ours = {
                    "remove": ring.remove_node,
                    "drain": ring.drain,
                    "down": ring.mark_down,
                    "up": ring.mark_up,
                }
                theirs = {
                    "remove": twin.remove_node,
                    "drain": twin.drain,
                    "down": twin.mark_down,
                    "up": twin.mark_up,
                }
                same(lambda: ours[what](name), lambda: theirs[what](name))

    def compare(self) -> None:
        ring, twin = self.ring, self.twin
        assert ring.names == twin.names
        assert ring.key_count == twin.key_count
        for name, _, quanta, _, down, draining, lazy, load, leases, limit, units, slots in ring._rows():
            node = twin.nodes_by_name[name]
            assert (quanta, down, draining, lazy) == (node.quanta, node.down, node.draining, node.lazy)
            assert slots == node.slots
            assert (load, leases) == (len(node.members), node.leases)
            assert units == node.lease_load * 10**6
            assert limit == (
                2**64 - 1
                if twin.policy == "plain"
                else twin.limit(node)
                if node.serves or twin.rate is None
                else 0
            )
            assert ring.keys_of(name).tolist() == node.members
        counters = ring._counters()
        assert counters[0] == twin.moved
        assert counters[1:3] == [len(twin.searches), sum(twin.searches)]
        for key in range(3):
            assert ring._candidates(key, 2**32) == tuple(twin.candidates(_core.digest(key, ring.seed)))
        assert ring._audit()[1] == 0
        ring._check()
        twin.check()


def exactly(weight: float) -> Fraction:
    """Return the decimal number that was written."""
    return Fraction(repr(weight))


def same(ours: Any, theirs: Any) -> Any:
    """Run both; the same answer or the same error."""
    outcomes = []
    for call in (ours, theirs):
        try:
            outcomes.append(call())
        except (RingFullError, NoNodesError) as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]
    return None if isinstance(outcomes[0], type) else outcomes[0]


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=size(8, 25))
@given(
    st.integers(1, 3),
    st.sampled_from([{"epsilon": 0}, {"epsilon": 0.1}, {"epsilon": 0.25}, {"epsilon": 1.0}, {"limit": 3}]),
    st.lists(st.sampled_from(WEIGHTS), min_size=0, max_size=7),
    st.lists(OPERATIONS, max_size=40),
)
def test_same_state(
    policy: str, layout: str, copies: int, bound: dict[str, Any], weights: list[float], operations: list[Any]
) -> None:
    pair = Pair(policy, layout, copies, bound, weights)
    pair.compare()
    for operation in operations:
        pair.do(operation)
        pair.compare()


@given(_digest, st.integers(1, 2**26))
def test_same_slot(word: int, m: int) -> None:
    assert _core.dense_slot(word, m) == dense_slot(word, m)
    assert _core.dense_slot(word, m + 1) in (dense_slot(word, m), m)
