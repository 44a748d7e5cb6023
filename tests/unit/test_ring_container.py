"""A HashRing as a container of nodes; `ring[key]` and `get_node`; weights in a list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbins import HashRing, NoNodesError
from evenbins.study.ring import ring as study_ring

NAMES = ["a", "b", "c"]


def test_iteration_in_len_and_bool_are_about_nodes() -> None:
    ring = HashRing(NAMES)
    ring.assign_many(["x", "y", "z", "w"])
    assert list(ring) == list(ring.names) == NAMES
    assert len(ring) == 3
    assert "a" in ring
    assert "x" not in ring
    assert (ring.key_count, ring.stats().keys) == (4, 4)
    assert set(ring) == {*ring.loads()}
    ring.mark_down("a")
    ring.drain("b")
    assert list(ring) == NAMES  # they are still nodes
    ring.remove_node("a")
    assert "a" not in ring
    assert len(ring) == 2
    assert bool(ring)
    ring.clear()
    assert bool(ring)
    assert ring.key_count == 0
    empty = HashRing()
    assert not empty
    assert list(empty) == []
    assert len(empty) == 0


@pytest.mark.parametrize("other", [7, None, b"a", 1.5, ("a",), ["a"], object(), "\ud800", "", "a\0"])
def test_what_is_no_name_is_not_in_a_ring(other: Any) -> None:
    assert other not in HashRing(NAMES)


def test_names_of_any_text_are_found() -> None:
    class Text(str):
        pass

    ring = HashRing(["é", "日本", "a\0b"])
    assert "é" in ring
    assert Text("日本") in ring
    assert "a\0b" in ring
    assert "a" not in ring


def test_iteration_is_over_the_nodes_of_one_moment() -> None:
    ring = HashRing(NAMES)
    found = []
    for name in ring:
        found.append(name)
        ring.remove_node(name)
    assert found == NAMES
    assert not ring


def test_ring_key_is_the_node_of_a_key() -> None:
    ring = HashRing(NAMES)
    for key in ("user:7", b"bytes", 7, -7, np.int64(3), *NAMES):
        assert ring[key] == ring.get_node(key) == ring.node(key)
    assert ring.key_count == 0  # nothing is assigned by asking
    for call in (ring.__getitem__, ring.get_node):
        with pytest.raises(TypeError, match="must be str, bytes or int"):
            call(1.5)  # type: ignore[arg-type]
        with pytest.raises(NoNodesError, match="use add_node"):
            getattr(HashRing(), call.__name__)("key")
    with pytest.raises(TypeError, match="must be str, bytes or int"):
        ring[0:2]  # type: ignore[index]
    with pytest.raises(TypeError):
        ring["key"] = "a"  # type: ignore[index]
    with pytest.raises(TypeError):
        del ring["key"]  # type: ignore[attr-defined]


def test_a_key_that_equals_the_name_of_a_node_is_a_key() -> None:
    ring = HashRing([f"n{i}" for i in range(50)])
    homes = {name: ring[name] for name in ring}
    assert any(name != home for name, home in homes.items())
    assert homes == dict(zip(ring, ring.node_many(list(ring)), strict=True))


@pytest.mark.parametrize(
    ("name", "instead"),
    [("add", "add_node"), ("append", "add_node"), ("remove", "remove_node"), ("discard", "remove_node"),
     ("get", r"ring\[key\]"), ("get_nodes", "nodes"), ("keys", "keys_of")],
)  # fmt: skip
def test_names_of_other_libraries_say_what_to_use(name: str, instead: str) -> None:
    ring = HashRing(NAMES)
    with pytest.raises(AttributeError, match=f"no attribute '{name}': use .*{instead}"):
        getattr(ring, name)
    assert not hasattr(ring, name)
    assert callable(ring.nodes)


def test_a_ring_in_an_array_is_one_object() -> None:
    """It has a length and a subscript, and is no sequence: NumPy must not ask for ring[0]."""
    found = np.array([HashRing(NAMES), HashRing(NAMES)], dtype=object)
    assert found.shape == (2,)


# --- weights -----------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.text("abcdef", min_size=1, max_size=3), st.floats(0.01, 100)), unique_by=lambda p: p[0]
    )
)
def test_weights_in_a_list_are_those_of_the_nodes_in_order(pairs: list[tuple[str, float]]) -> None:
    names, weights = [name for name, _ in pairs], [weight for _, weight in pairs]
    by_name = HashRing(names, weights=dict(pairs))
    for given_as in (weights, tuple(weights)):
        ring = HashRing(names, weights=given_as)
        assert ring.weights == dict(pairs)
        assert ring == by_name
        assert list(ring) == sorted(names)
    assert HashRing(iter(names), weights=weights) == by_name


@pytest.mark.parametrize("make", [HashRing, study_ring])
def test_wrong_weights_raise_descriptive_errors(make: Any) -> None:
    for weights in ([1, 2], [1, 2, 3, 4], ()):
        with pytest.raises(ValueError, match=f"a number for each of the 3 nodes; got {len(weights)}"):
            make(NAMES, weights=weights)
    for weight in (0, -1, float("nan"), float("inf"), 1e200):
        with pytest.raises(ValueError, match=r"weights\[1\] must be a positive number"):
            make(NAMES, weights=[1, weight, 1])
    for wrong in (None, "1", True):
        with pytest.raises(TypeError, match=r"weights\[2\] must be a positive number"):
            make(NAMES, weights=[1, 1, wrong])
    for weights in ("abc", b"abc", 3, {1, 2, 3}, iter([1, 2, 3]), np.ones(3)):
        with pytest.raises(TypeError, match="weights must be a dict of names to numbers, or a list"):
            make(NAMES, weights=weights)
    for nodes in ({"a", "b"}, frozenset(("a", "b"))):
        with pytest.raises(TypeError, match="a set has no order"):
            make(nodes, weights=[1, 2])
        assert make(nodes, weights={"a": 2}).weights == {"a": 2.0, "b": 1.0}
    assert make([], weights=[]).weights == {}


# --- against a dictionary ----------------------------------------------------------------------------------

NAME = st.sampled_from(["a", "b", "é", "key", "n1", "n2", "n3"])
CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "weigh", "down", "up", "assign"]), NAME), max_size=30
)


@given(st.sets(NAME), CHANGES)
def test_a_ring_has_the_nodes_of_a_dictionary(first: set[str], changes: list[tuple[str, str]]) -> None:
    """Whatever joins, leaves, fails or is assigned: the nodes, and only they, are in the ring."""
    ring, twin, keys = HashRing(first, policy="plain"), dict.fromkeys(sorted(first), 1.0), set()
    for what, name in changes:
        if what == "add" and name not in twin:
            ring.add_node(name, 2.0)
            twin[name] = 2.0
        elif what == "remove" and name in twin and (len(twin) > 1 or not keys):
            for each in twin:
                ring.mark_up(each)
            ring.remove_node(name)
            del twin[name]
        elif what == "weigh" and name in twin:
            ring.set_weight(name, 3.0)
            twin[name] = 3.0
        elif what in ("down", "up") and name in twin:
            (ring.mark_down if what == "down" else ring.mark_up)(name)
        elif what == "assign" and "up" in ring.states.values():
            assert ring.assign(name) in twin  # a key that may equal the name of a node
            keys.add(name)
        assert list(ring) == list(ring.names)
        assert (set(ring), len(ring), bool(ring)) == ({*twin}, len(twin), bool(twin))
        assert [each in ring for each in ("a", "b", "é", "key", "none")] == [
            each in twin for each in ("a", "b", "é", "key", "none")
        ]
        assert ring.weights == twin
        assert ring.key_count == len(keys)
        if "up" in ring.states.values():
            assert ring[name] == ring.node(name) == ring.get_node(name) in twin
