"""Limits of weighted rings, against exact fractions: weights from 1e-12 to 1e12 in any mixture.

    every placement       load <= ceil((1 + epsilon) * n * w / W), weights read as the decimals they are
                          written as, 1 + epsilon in billionths; or load <= ceil(limit * w)
    every operation       the twin in `reference` does the same

A weight that the ring's slots cannot stand for is a ValueError that names the range, and changes nothing.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sizes import size

from evenbins import HashRing, RingFullError
from evenbins.study.ring import ring as study_ring
from evenbins.theory import ring_laws as laws
from evenbins.theory.ring_limits import ring_limits
from reference.ring import Ring

BOUNDED = ("jump", "clockwise", "rehash", "rehash-bin")
NAMES = [f"n{i}" for i in range(6)]

_digits = st.one_of(st.just(1.0), st.floats(1, 9.999), st.sampled_from([1.1, 2.5, 3.3, 9.999999999999998]))
WEIGHTS = st.builds(lambda digits, power: float(f"{digits!r}e{power}"), _digits, st.integers(-12, 11))
NEAR = st.builds(lambda digits, power: float(f"{digits!r}e{power}"), _digits, st.integers(-2, 2))
CHANGES = st.one_of(
    st.tuples(st.just("weight"), st.sampled_from(NAMES), WEIGHTS),
    st.tuples(st.just("add"), st.sampled_from(NAMES), WEIGHTS),
    st.tuples(st.just("remove"), st.sampled_from(NAMES), st.just(1.0)),
    st.tuples(st.just("assign"), st.just(""), st.integers(1, 40)),
)


def exactly(weight: float) -> Fraction:
    return Fraction(repr(weight))


def exact_limit(ring: HashRing, name: str, n: int) -> int:
    weights = {each: exactly(weight) for each, weight in ring.weights.items()}
    if ring.limit is not None:
        return max(1, math.ceil(ring.limit * weights[name]))
    assert ring.epsilon is not None
    rate = round((1 + exactly(ring.epsilon)) * 10**9)
    return math.ceil(Fraction(rate * n, 10**9) * weights[name] / sum(weights.values()))


class Pair:
    """A ring, its twin, and keys that are placed in both."""

    def __init__(
        self, policy: str, layout: str, bound: dict[str, Any], weights: dict[str, float], **more: Any
    ) -> None:
        self.ring = study_ring(
            weights,
            weights=weights,
            policy=policy.removesuffix("-bin"),
            rehash="bin" if policy == "rehash-bin" else "object",
            layout=layout,
            **bound,
            **({"array_bits": 9} if layout == "sparse" else {}),
            **more,
        )
        rate, limit = self.ring._config()[4], self.ring._config()[7]
        self.twin = Ring.of(
            {name: self.ring._quanta(name, weight) for name, weight in weights.items()},
            policy,
            layout,
            caps={name: self.ring._cap(weight) for name, weight in weights.items()} if limit else None,
            weights={name: exactly(weight) for name, weight in weights.items()},
            rate=rate or None,
            array_bits=self.ring._config()[3],
        )
        self.digests = iter(np.random.default_rng(1).integers(0, 2**64, 10**4, np.uint64).tolist())
        self.ring._start_audit()

    def assign(self, count: int) -> None:
        ring = self.ring
        for _ in range(count):
            digest = next(self.digests)
            try:
                name = str(ring.assign_many([digest], digests=True)[0])
            except RingFullError:
                with pytest.raises(RingFullError):
                    self.twin.assign(digest)
                assert all(load >= exact_limit(ring, each, 0) for each, load in ring.loads().items())
                return
            assert ring.loads()[name] <= exact_limit(ring, name, ring.key_count)
            assert self.twin.assign(digest) == name

    def change(self, what: str, name: str, weight: float) -> None:
        ring, twin = self.ring, self.twin
        if (what == "add") == (name in ring.names):
            return
        if what == "remove":
            if len(ring.names) > 1 and ring.limit is None:
                assert ring.remove_node(name) == twin.remove_node(name)
            return
        if 2**10 < weight / ring._config()[5] <= 2**24:
            return  # possible, with so many slots that the twin takes minutes
        before = ring.to_bytes()
        try:
            moves = ring.add_node(name, weight) if what == "add" else ring.set_weight(name, weight)
        except ValueError as error:
            text = str(error)
            assert ring.to_bytes() == before
            assert any(each in text for each in ("2**24 times the ring's unit", "slots; it can have"))
            return
        quanta, exact = ring._quanta(name, weight), exactly(weight)
        if what == "add":
            assert moves == twin.add_node(name, quanta, ring._cap(weight) or None, weight=exact)
        else:
            assert moves == twin.set_weight(name, quanta, weight=exact)

    def check(self) -> None:
        ring, twin = self.ring, self.twin
        n = ring.key_count
        assert ring.loads() == twin.loads()
        assert ring.limits() == {name: exact_limit(ring, name, n) for name in ring.names}
        assert ring._audit()[1] == 0
        ring._check()


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("policy", BOUNDED)
@settings(max_examples=6)
@given(
    st.sampled_from([{"epsilon": 0}, {"epsilon": 0.1}, {"epsilon": 0.25}, {"limit": 3}]),
    st.lists(WEIGHTS, min_size=1, max_size=5),
    st.lists(CHANGES, max_size=5),
)
@example({"epsilon": 0}, [1.0, 1.0], [("weight", "n0", 1e-7), ("weight", "n1", 3e-7), ("assign", "", 40)])
@example({"epsilon": 0.25}, [64e9, 128e9], [("add", "n2", 1.0), ("assign", "", 40), ("add", "n3", 1e-12)])
def test_no_placement_exceeds_the_exact_limit(
    policy: str, layout: str, bound: dict[str, Any], weights: list[float], changes: list[Any]
) -> None:
    if "limit" in bound:
        changes = [each for each in changes if each[0] != "weight"]  # the twin's caps do not follow weights
        weights = [min(weight, 1e3) for weight in weights]
    pair = Pair(policy, layout, bound, dict(zip(NAMES, weights, strict=False)))
    pair.assign(30)
    for what, name, value in changes:
        if what == "assign":
            pair.assign(value)
        elif "limit" not in bound or value <= 1e3:
            pair.change(what, name, value)
        pair.check()
    pair.assign(10)
    pair.check()


@given(st.lists(NEAR, min_size=2, max_size=6), st.integers(1, 10**6), st.sampled_from([0, 0.1, 0.25, 1]))
@settings(max_examples=60)
def test_limits_of_the_ring_are_those_of_the_theory(weights: list[float], n: int, epsilon: float) -> None:
    named = dict(zip(NAMES, weights, strict=False))
    ring = HashRing(named, weights=named, epsilon=epsilon)
    n = min(n, 500)
    ring.assign_many(range(n))
    assert tuple(ring.limits().values()) == ring_limits(n, weights, epsilon)


@given(st.floats(1e-100, 1e100))
@example(2.0**-44)
@example(9007199254740993.0)
@example(1e22)
@example(5e-100)
@settings(max_examples=size(100, 300))
def test_the_core_reads_a_weight_as_python_writes_it(weight: float) -> None:
    """One key more than a third of the weight allows: off by one in the 17th digit and the limit differs."""
    other = float(np.nextafter(weight, 0 if weight > 1 else 1))
    ring = HashRing(["a", "b"], weights={"a": weight, "b": other}, epsilon=0)
    ring.assign_many(range(7))
    for name in ring.names:
        assert ring.limits()[name] == exact_limit(ring, name, 7)


@pytest.mark.parametrize("policy", BOUNDED)
def test_loads_of_weights_far_below_the_unit_follow_them(policy: str) -> None:
    more = {"rehash": "bin"} if policy == "rehash-bin" else {}
    ring = study_ring(["a", "b"], epsilon=0, policy=policy.removesuffix("-bin"), **more)  # type: ignore[arg-type]
    ring.set_weight("a", 1e-7)
    ring.set_weight("b", 3e-7)
    ring.assign_many(range(10_000))
    assert ring.loads() == {"a": 2500, "b": 7500}


@given(st.lists(WEIGHTS, min_size=1, max_size=12), st.integers(0, 10**5))
@settings(max_examples=4)
def test_plans_of_any_weights_are_answered(weights: list[float], keys: int) -> None:
    named = {f"n{i}": weight for i, weight in enumerate(weights)}
    ring = HashRing(named, weights=named)
    plan = laws.growing_loads(keys, len(weights), 0.25, weights=weights)
    assert math.isfinite(plan.variance)
    assert ring.plan.nodes == len(weights)
    assert ring._repr_html_()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: HashRing(["a"], weights={"a": 5e-324}), "from 1e-100 to 1e\\+100"),
        (lambda: HashRing(["a", "b"], weights={"a": 4.4e-323, "b": 5e-324}), "from 1e-100 to 1e\\+100"),
        (lambda: HashRing(["a"], limit=10, weights={"a": 1e300}), "from 1e-100 to 1e\\+100"),
        (
            lambda: HashRing(["a"], limit=10, weights={"a": 1e50}),
            "limit times weight must be at most 2\\*\\*60",
        ),
        (lambda: HashRing(["a", "b"], weights={"a": 1e-20, "b": 1e20}), "a factor of at most 1e30"),
        (lambda: HashRing(["a", "b"]).set_weight("a", 1e-31), "a factor of at most 1e30"),
        (lambda: HashRing(["a", "b"]).add_node("c", 1e-31), "a factor of at most 1e30"),
        (
            lambda: HashRing(["a"]).add_node("b", 1e9),
            "'b' must be at most 2\\*\\*24 times the ring's unit, 1.0",
        ),
        (
            lambda: HashRing(["a"]).set_weight("a", 1e12),
            "'a' must be at most 2\\*\\*24 times the ring's unit",
        ),
        (lambda: HashRing(["a"]).add_node("b", math.inf), "from 1e-100 to 1e\\+100"),
    ],
)
def test_weights_outside_the_range_are_named(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()
