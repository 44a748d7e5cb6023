"""The ring's twin: what each operation does, by small examples that can be followed by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from evenbins.rings.errors import NoNodesError, RingFullError
from reference.keys import splitmix
from reference.ring import BILLION, POLICIES, WHOLE, Ring, dense_slot

LAYOUTS = ("dense", "sparse")


def ring_of(names: str, policy: str = "jump", layout: str = "dense", **more: object) -> Ring:
    more = {"rate": BILLION * 5 // 4, "array_bits": 8, **more}
    return Ring.of(list(names), policy, layout, **more)  # type: ignore[arg-type]


def fill(ring: Ring, keys: int, seed: int = 1) -> list[int]:
    digests = [splitmix(seed, i) for i in range(keys)]
    for digest in digests:
        ring.assign(digest)
    return digests


def test_a_slot_more_changes_a_draw_to_that_slot_or_not_at_all() -> None:
    for word in (splitmix(3, i) for i in range(200)):
        slots = [dense_slot(word, m) for m in range(1, 301)]
        assert slots[0] == 0
        assert all(new in (old, m) for m, (old, new) in enumerate(pairwise(slots), 1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_serving_node_is_a_candidate_once(policy: str, layout: str) -> None:
    ring = Ring.of(
        {"a": WHOLE, "b": WHOLE // 1000, "c": 3 * WHOLE, "d": WHOLE, "e": 1},
        policy,
        layout,
        rate=BILLION,
        array_bits=8,
    )
    ring.mark_down("d")
    for i in range(20):
        candidates = list(ring.candidates(splitmix(5, i)))
        assert sorted(candidates) == ["a", "b", "c", "e"]
        assert ring.node(splitmix(5, i)) == candidates[0]
        assert ring.nodes(splitmix(5, i), 2) == candidates[:2]
        assert ring.nodes(splitmix(5, i), 9) == candidates


@pytest.mark.parametrize("policy", ["clockwise", "rehash-bin"])
def test_the_second_candidate_of_a_circular_policy_follows_from_the_first(policy: str) -> None:
    """And not so for jump: this is the paper's point."""
    ring = ring_of("abcdefgh", policy)
    following = {tuple(ring.nodes(splitmix(8, i), 2)) for i in range(200)}
    assert len(following) == 8
    assert len({tuple(ring_of("abcdefgh").nodes(splitmix(8, i), 2)) for i in range(200)}) > 40
    assert (policy == "clockwise") == (("a", "b") in following and ("h", "a") in following)


def test_a_new_ring_sorts_its_nodes_and_gives_weights_their_slots() -> None:
    ring = Ring.of({"b": 5 * WHOLE // 2, "a": WHOLE // 2, "é": WHOLE}, rate=BILLION)
    assert ring.slots == ["a", "b", "b", "b", "é"]
    assert list(ring.fractions.values()) == [WHOLE // 2, WHOLE, WHOLE, WHOLE // 2, WHOLE]
    assert ring.names == ("a", "b", "é")


def test_freed_slots_are_used_again_the_own_first_then_the_longest_free() -> None:
    ring = Ring.of({"a": 2 * WHOLE, "b": WHOLE, "c": 2 * WHOLE}, rate=BILLION)
    ring.remove_node("c")
    ring.remove_node("a")
    assert ring.slots == [None, None, "b", None, None]
    assert ring.free == [3, 4, 0, 1]
    ring.add_node("d")
    assert ring.slots == [None, None, "b", "d", None]
    ring.add_node("a", 4 * WHOLE)
    assert ring.nodes_by_name["a"].slots == [0, 1, 4, 5]
    ring.set_weight("a", WHOLE // 2)
    assert ring.slots == ["a", None, "b", "d", None, None]
    assert ring.free == [1, 4, 5]
    ring.compact()
    assert ring.slots == ["a", "d", "b"] or ring.slots == ["a", "b", "d"]
    ring.check()


def test_compact_moves_the_highest_slots_into_the_lowest_holes() -> None:
    ring = ring_of("abcdef")
    ring.remove_node("b")
    ring.remove_node("c")
    ring.compact()
    assert ring.slots == ["a", "e", "f", "d"]
    assert (ring.free, ring.remembered, ring.size) == ([], {}, 4)


def test_sparse_places_do_not_depend_on_other_nodes_unless_they_meet() -> None:
    small, large = (ring_of(names, layout="sparse", copies=3, array_bits=20) for names in ("ab", "abcdefgh"))
    assert [p for p, name in small.places.items() if name == "a"] == [
        p for p, name in large.places.items() if name == "a"
    ]
    with pytest.raises(ValueError, match=r"257 places.* is full"):
        ring_of("", layout="sparse").add_node("a", 257 * WHOLE)
    full = ring_of("", layout="sparse")
    full.add_node("a", 256 * WHOLE)
    assert sorted(full.places) == list(range(256))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_epsilon_zero_is_perfectly_even(policy: str, layout: str) -> None:
    ring = ring_of("abcde", policy, layout, rate=BILLION)
    fill(ring, 100)
    assert (set(ring.loads().values()) == {20}) == (policy != "plain")
    assert len(ring.searches) == 100
    assert min(ring.searches) == 1
    assert ring.assign(splitmix(1, 3)) == ring.locate(splitmix(1, 3))
    assert ring.key_count == 100
    assert ring.release(splitmix(1, 3))
    assert not ring.release(splitmix(1, 3))
    assert ring.locate(splitmix(1, 3)) is None


def test_a_released_key_leaves_its_place_to_the_last() -> None:
    ring = ring_of("a")
    digests = fill(ring, 4)
    ring.release(digests[1])
    assert ring.members["a"] == [digests[0], digests[3], digests[2]]


def test_caps_bound_and_a_full_ring_says_so_before_anything_changes() -> None:
    ring = Ring.of(["a", "b"], rate=None, caps={"a": 2, "b": 3})
    fill(ring, 5)
    assert ring.loads() == {"a": 2, "b": 3}
    for call in (lambda: ring.assign(7), lambda: ring.remove_node("a")):
        with pytest.raises(RingFullError, match="add a node"):
            call()
    assert ring.loads() == {"a": 2, "b": 3}
    ring.add_node("c", cap=4)
    ring.drain("b")
    ring.assign(7)  # c has room, though the caps of a and c are not above the number of keys
    assert ring.key_count == 6
    ring.check()


def test_no_node_that_serves_is_an_error_that_changes_nothing() -> None:
    ring = ring_of("a")
    ring.assign(5)
    with pytest.raises(NoNodesError, match="add one"):
        ring.remove_node("a")
    ring.drain("a")
    for call in (ring.assign, ring.node, ring.lease):
        with pytest.raises(NoNodesError, match="add one"):
            call(6)
    assert ring.assign(5) == "a"  # it was there
    assert list(ring.candidates(6)) == []
    ring.mark_up("a")
    assert ring.assign(6) == "a"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_moves_of_a_join_go_to_the_new_node_and_of_a_leave_from_the_old(policy: str, layout: str) -> None:
    ring = ring_of("abcde", policy, layout)
    fill(ring, 100)
    moves = ring.add_node("f")
    assert moves
    assert {new for _, _, new in moves} == {"f"}
    assert ring.loads()["f"] == len(moves) == ring.moved
    held = ring.loads()["b"]
    moves = ring.remove_node("b")
    assert {old for _, old, _ in moves} == {"b"}
    assert len(moves) == held
    ring.check()


def test_a_lazy_node_gets_a_key_when_it_is_asked_for() -> None:
    ring, now = ring_of("abcd"), ring_of("abcd")
    digests = fill(ring, 60)
    fill(now, 60)
    assert ring.add_node("e", move="lazy") == []
    moves = now.add_node("e")
    for digest in digests:
        ring.assign(digest)
    assert {move[0] for move in ring.moves} == {move[0] for move in moves}
    assert ring.loads() == now.loads()


def test_keys_come_home_when_their_node_is_up_again() -> None:
    ring = ring_of("abcd")
    digests = fill(ring, 60)
    before = {digest: ring.locate(digest) for digest in digests}
    down = ring.mark_down("b")
    assert ring.loads()["b"] == 0
    assert set(ring.homes.values()) == {"b"}
    again = ring.mark_down("c")  # keys of b that went to c keep b as their home
    assert {ring.homes[digest] for digest, _, _ in again} == {"b", "c"}
    ring.release(down[0][0])
    assert down[0][0] not in ring.homes
    ring.mark_up("b")
    ring.mark_up("c")
    assert ring.homes == {}
    after = {digest: ring.locate(digest) for digest in digests[:]}
    changed = {digest for digest in digests if after[digest] != before[digest]}
    assert changed == {down[0][0]}


def test_a_key_that_found_another_home_is_not_called_back() -> None:
    ring = ring_of("abc")
    fill(ring, 30)
    digest, _, _ = ring.mark_down("b")[0]
    ring.release(digest)
    other = ring.assign(digest)
    ring.mark_down(other)
    assert ring.homes[digest] == other
    ring.mark_up("b")  # it is still on the list of b
    assert ring.homes[digest] == other
    ring.mark_up(other)
    assert ring.locate(digest) == other


def test_slots_freed_by_one_call_queue_in_ascending_order() -> None:
    ring = ring_of("abcd")
    ring.remove_node("d")
    ring.remove_node("a")
    ring.add_node("e", 2 * WHOLE)
    assert ring.nodes_by_name["e"].slots == [3, 0]
    ring.remove_node("e")
    assert ring.free == [0, 3]


def test_a_fallen_weight_sends_away_what_no_longer_belongs_and_a_risen_one_calls_it_back() -> None:
    ring = ring_of("abcd", rate=4 * BILLION)  # a bound that never matters
    fill(ring, 200)
    before = {name: set(members) for name, members in ring.members.items()}
    away = ring.set_weight("c", WHOLE // 4)
    assert away
    assert {old for _, old, _ in away} == {"c"}
    assert all(ring.node(digest) == ring.locate(digest) for digest in ring.where)
    back = ring.set_weight("c", WHOLE)
    assert {digest for digest, _, _ in back} == {digest for digest, _, _ in away}
    assert {name: set(members) for name, members in ring.members.items()} == before
    assert ring.set_weight("c", WHOLE) == []


def test_rebalance_brings_every_node_down_to_its_limit() -> None:
    ring = ring_of("abcdefgh", rate=BILLION)
    fill(ring, 80)
    for name in "abcd":
        for digest in list(ring.members[name]):
            ring.release(digest)
    assert list(ring.loads().values()) == [0, 0, 0, 0, 10, 10, 10, 10]
    assert len(ring.rebalance(1)) == 1
    assert len(ring.rebalance()) == 19
    assert set(ring.loads().values()) == {5}
    assert ring.rebalance() == []


def test_leases_are_a_load_of_their_own() -> None:
    ring = ring_of("abcd", rate=BILLION)
    fill(ring, 40)
    leases = [ring.lease(7) for _ in range(8)]
    assert sorted(node.name for node in leases) == sorted("abcd" * 2)
    assert (ring.leased, ring.key_count, len(ring.searches)) == (8, 40, 40)
    ring.remove_node("a")
    assert ring.leased == 6
    for node in leases:
        ring.end_lease(node)
    assert ring.leased == 0
    ring.check()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Ring("jumping"),
        lambda: Ring("jump", "loose"),
        lambda: Ring(copies=0),
        lambda: Ring(array_bits=7),
        lambda: Ring(rate=BILLION - 1),
        lambda: ring_of("a").add_node("a"),
        lambda: ring_of("a").add_node("b", 0),
        lambda: ring_of("a").add_node("b", move="never"),
        lambda: ring_of("a").set_weight("a", 0),
        lambda: ring_of("", rate=None).add_node("b"),
    ],
)
def test_wrong_arguments_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"must|needs|got"):
        wrong()  # type: ignore[operator]
