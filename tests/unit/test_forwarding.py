"""Forwarding marks: the client's three walks, a node's marks, groups of nodes, the study."""

from __future__ import annotations

import doctest
import importlib
import random
from typing import Any

import numpy as np
import pytest

from evenbins import HashRing
from evenbins.rings.errors import RingFullError
from evenbins.rings.forwarding import ForwardingMarks, forget, locate, place
from evenbins.study.forwarding import forwarding_study
from evenbins.study.marked_nodes import MarkedNode, MarkedNodes
from reference.keys import splitmix
from reference.ring import BILLION, Ring

# ── the client ───────────────────────────────────────────────────────────────────────────────────────────


def test_place_asks_no_further_than_needed() -> None:
    asked: list[str] = []

    def offer(name: str) -> bool:
        asked.append(name)
        return name == "b"

    assert place(iter("abcd"), offer) == "b"
    assert asked == ["a", "b"]


@pytest.mark.parametrize("candidates", ["abc", ""])
def test_a_key_that_nobody_stores_leaves_no_mark(candidates: str) -> None:
    nodes = {name: MarkedNode(name, 0, marks=ForwardingMarks()) for name in candidates}
    with pytest.raises(RingFullError, match="candidate"):
        place(candidates, lambda name: nodes[name].offer(7), drop=lambda name: nodes[name].drop(7))
    assert all(len(node.marks or "") == 0 for node in nodes.values())
    with pytest.raises(OverflowError):
        place(candidates, lambda name: nodes[name].offer(7))
    assert all(len(node.marks or "") == 1 for node in nodes.values())


def test_a_call_that_fails_leaves_no_mark() -> None:
    node = MarkedNode("a", 0, marks=ForwardingMarks())

    def offer(name: str) -> str:
        if name == "b":
            raise ConnectionError("b is gone")
        return node.offer(7)

    with pytest.raises(ConnectionError):
        place("abc", offer, drop=lambda name: node.drop(7))  # type: ignore[arg-type]
    assert node.holds(7) == "miss"


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (["further", "hit"], "b"),
        ([True], "a"),
        ([False], None),
        (["further", "miss", "hit"], None),
        (["further", "further", "further"], None),
    ],
)
def test_locate_stops_at_the_first_hit_or_miss(answers: list[str | bool], found: str | None) -> None:
    by_name = dict(zip("abc", answers, strict=False))
    assert locate("abc", by_name.__getitem__) == found  # type: ignore[arg-type]


def test_forget_takes_nothing_from_a_key_that_is_not_there_if_it_may_ask() -> None:
    """Two digests of one fingerprint: to forget the absent one must not take the other's mark."""
    one, twin = [i for i in range(2000) if ForwardingMarks(fingerprint_bits=8)._fingerprint(i) == 7][:2]
    nodes = {name: MarkedNode(name, 1, marks=ForwardingMarks(fingerprint_bits=8)) for name in "ab"}
    nodes["a"].offer(5)
    assert place("ab", lambda name: nodes[name].offer(one)) == "b"
    assert nodes["a"].holds(twin) == "further"
    assert (
        forget("ab", lambda name: nodes[name].drop(twin), holds=lambda name: nodes[name].holds(twin)) is None
    )
    assert locate("ab", lambda name: nodes[name].holds(one)) == "b"
    assert forget("ab", lambda name: nodes[name].drop(twin)) is None  # not asked: the mark is gone
    assert locate("ab", lambda name: nodes[name].holds(one)) is None


@pytest.mark.parametrize("call", [place, locate, forget])
def test_an_answer_that_is_none_is_named(call: object) -> None:
    with pytest.raises(ValueError, match=r"'a'\) must be .*got 'perhaps' \(str\)"):
        call("ab", lambda name: "perhaps")  # type: ignore[operator]


# ── marks ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("options", [{}, {"exact": True}, {"fingerprint_bits": 8}, {"fingerprint_bits": 16}])
def test_marks_are_counted(options: dict[str, int]) -> None:
    marks = ForwardingMarks(**options)  # type: ignore[arg-type]
    digests = [splitmix(1, i) for i in range(300)]
    for digest in digests:
        marks.add(digest)
        marks.add(digest)
    assert len(marks) == 600
    for digest in digests:
        marks.remove(digest)
    assert all(digest in marks for digest in digests)
    for digest in digests:
        marks.remove(digest)
    assert (len(marks), marks.nbytes, marks.saturated) == (0, 0, False)
    assert not any(digest in marks for digest in digests)
    with pytest.raises(KeyError, match="no mark"):
        marks.remove(5)


def test_a_count_at_its_largest_saturates_instead_of_wrapping() -> None:
    marks = ForwardingMarks()
    for _ in range(2**16):
        marks.add(7)
    assert marks.saturated
    for _ in range(2**16 - 1):
        marks.remove(7)
    assert len(marks) == 1
    assert 7 in marks
    marks.remove(7)
    assert not marks.saturated
    assert 7 not in marks


def test_bytes_and_their_bound() -> None:
    for options, entry in (({}, 6), ({"fingerprint_bits": 8}, 3), ({"exact": True}, 10)):
        marks = ForwardingMarks(memory_bytes=5 * entry + 1, **options)  # type: ignore[arg-type]
        for i in range(5):
            marks.add(splitmix(4, i))
        assert (marks.nbytes, marks.saturated) == (5 * entry, False)
        marks.add(splitmix(4, 5))
        assert (marks.nbytes, marks.saturated, len(marks)) == (5 * entry, True, 6)
        assert "1 of them unstored" in repr(marks)
        marks.remove(splitmix(4, 0))
        assert marks.saturated  # there is room, but the sixth is not noted
        marks.remove(splitmix(4, 5))
        assert not marks.saturated
    nothing = ForwardingMarks(memory_bytes=0)
    assert 1 not in nothing
    nothing.add(2)
    assert 1 in nothing


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"fingerprint_bits": 12}, ValueError),
        ({"fingerprint_bits": 64}, ValueError),
        ({"fingerprint_bits": "8"}, TypeError),
        ({"memory_bytes": -1}, ValueError),
        ({"memory_bytes": 1.5}, TypeError),
    ],
)
def test_wrong_options_of_marks_are_refused(options: dict[str, int], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"{next(iter(options))} must be"):
        ForwardingMarks(**options)  # type: ignore[arg-type]


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────


def group_of(nodes: int, keys: int, **options: object) -> tuple[Ring, MarkedNodes, list[int]]:
    ring = Ring.of([f"n{i}" for i in range(nodes)], rate=BILLION)
    group = MarkedNodes(ring.names, ring.candidates, limit=-(-keys * 11 // (10 * nodes)), **options)  # type: ignore[arg-type]
    digests = [splitmix(2, i) for i in range(keys)]
    for digest in digests:
        group.place(digest)
    return ring, group, digests


def replace_keys(group: MarkedNodes, digests: list[int], times: int) -> None:
    rng = random.Random(3)
    for i in range(times):
        at = rng.randrange(len(digests))
        group.evict(digests[at])
        digests[at] = splitmix(4, i)
        group._place(digests[at])


@pytest.mark.parametrize("options", [{}, {"exact": True}, {"fingerprint_bits": 8}, {"memory_bytes": 30}])
def test_with_marks_every_key_is_found_after_replacements(options: dict[str, int]) -> None:
    _, group, digests = group_of(20, 200, **options)
    replace_keys(group, digests, 400)
    assert all(group.locate(digest) == group.where[digest] for digest in digests)
    group.check()


def test_the_classical_rule_loses_keys() -> None:
    """The power of the tests here: the same keys, the same nodes, no marks."""
    _, group, digests = group_of(20, 200, marks=False)
    assert all(group.locate(digest) for digest in digests)
    replace_keys(group, digests, 400)
    lost = sum(group.locate(digest) is None for digest in digests)
    assert lost > 20


def test_a_join_is_not_repaired_by_marks_on_the_new_node_alone() -> None:
    """The order of two old nodes may change: what the head of the package says."""
    ring, group, digests = group_of(6, 120, exact=True)
    marked = {name: node.marks.counts() for name, node in group.nodes.items() if node.marks}
    ring.add_node("n9")
    assert group.join("n9") == []
    changed = [
        name
        for name, before in marked.items()
        if (marks := group.nodes[name].marks) and marks.counts() - before
    ]
    assert changed
    assert all(group.locate(digest) == group.where[digest] for digest in digests)
    group.check()


def test_nodes_fail_and_recover_with_their_keys_or_without() -> None:
    ring, group, _ = group_of(6, 60, exact=True)
    kept = list(group.nodes["n2"].held)
    for keep in (True, False):
        group.fail("n2")
        assert group.fail("n2") == []
        assert not any(group.locate(digest) for digest in kept)
        group.check()
        elsewhere = kept[0]
        group.limit = 100
        for node in group.nodes.values():
            node.limit = 100
        assert group.place(elsewhere) != "n2"
        assert group.recover("n2", keep=keep) == []
        assert group.recover("n2") == []
        group.check()
        assert group.locate(elsewhere) not in ("n2", None)
        assert all((group.locate(digest) == "n2") == keep for digest in kept[1:])
        kept = kept[1:]
        group.forget(elsewhere)
    ring.remove_node("n3")
    assert group.leave("n3") == []
    assert "n3" not in group.nodes
    group.check()
    group.fail("n4")
    ring.remove_node("n4")
    assert group.leave("n4") == []
    group.check()
    assert all(group.locate(digest) == name for digest, name in group.where.items())


def test_a_drained_nodes_keys_are_placed_anew_and_keys_without_room_are_named() -> None:
    ring, group, digests = group_of(5, 50)
    ring.drain("n1")
    lost = group.remark()
    assert not group.nodes["n1"].held
    assert len(lost) == 50 - 4 * 11
    assert all((group.locate(digest) is None) == (digest in lost) for digest in digests)


def test_forget_and_place_of_a_group() -> None:
    _, group, digests = group_of(5, 50)
    assert group.place(digests[3]) == group.where[digests[3]]
    assert group.forget(digests[3])
    assert not group.forget(digests[3])
    assert group.locate(digests[3]) is None
    with pytest.raises(ValueError, match="must be new"):
        group.join("n1")
    saturated = MarkedNodes("ab", lambda digest: "ab", 1, memory_bytes=0)
    assert [saturated.place(digest) for digest in (1, 2)] == ["a", "b"]
    with pytest.raises(RingFullError):
        saturated.place(3)
    saturated.check()
    assert saturated.refresh() == []
    assert saturated.forget(2)
    assert saturated.locate(1) == "a"


# ── the study ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_study_finds_all_keys_with_marks_and_loses_a_fifth_without() -> None:
    study = forwarding_study(200, 2000, replacements=(0, 1, 5))
    start, once, five = study.rows
    assert (start.found_classical, start.present_classical) == (1.0, start.present_marks)
    assert 0.74 < once.found_classical < 0.85
    assert 0.66 < five.found_classical < 0.76
    assert all(row.found_marks == 1.0 for row in study.rows)
    assert all(row.present_marks == pytest.approx(1 + row.marks) for row in study.rows)
    assert all(row.absent_marks < row.absent_classical for row in study.rows)
    assert study.to_dict()["limit"] == 11
    assert "2000 keys on 200 nodes" in str(study)


def test_the_study_takes_any_candidates() -> None:
    def factory(names: list[str]) -> object:
        return Ring.of(names, "clockwise", "dense", rate=BILLION).candidates

    study = forwarding_study(20, 200, replacements=(1,), candidates=factory)  # type: ignore[arg-type]
    assert study.rows[0].found_marks == 1.0


@pytest.mark.parametrize(
    "options",
    [{"nodes": 0}, {"keys": 0}, {"epsilon": -0.1}, {"epsilon": float("nan")}, {"replacements": (2, 1)}],
)
def test_wrong_options_of_the_study_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        forwarding_study(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    ["rings.forwarding.client", "rings.forwarding.marks", "study.marked_nodes", "study.forwarding"],
)
def test_the_examples_of_forwarding_run(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"evenbins.{name}"))
    assert failed == 0
    assert tried


@pytest.mark.parametrize("exact", [False, True])
def test_keys_of_every_type_are_placed_and_found(exact: bool) -> None:
    names = ["a", "b", "c"]
    ring = HashRing(names)
    group = MarkedNodes(names, ring.candidates, limit=3, exact=exact)
    keys = ["a", b"x", "zz", -5, 2**64 - 1, 7, "q", np.uint64(9)]
    for key in keys:
        group.place(key)
    group.check()
    assert None not in [group.locate(key) for key in keys]
    assert group.locate("absent") is None
    assert group.forget("a")
    assert group.locate("a") is None
    group.evict("zz")
    ring.remove_node("c")
    assert group.leave("c") == []
    group.fail("a")
    group.recover("a")
    group.check()
    marks = ForwardingMarks(exact=exact)
    marks.add("key")
    assert "key" in marks
    assert "other" not in marks
    with pytest.raises(KeyError, match="no mark for 'other'"):
        marks.remove("other")


@pytest.mark.parametrize("exact", [False, True])
def test_str_and_bytes_are_one_key(exact: bool) -> None:
    """As in every other structure; `candidates` gets the key itself, not its digest."""
    seen: list[object] = []

    def candidates(key: object) -> str:
        seen.append(key)
        return "abc"

    group = MarkedNodes("abc", candidates, limit=1, exact=exact)
    forms: list[Any] = ["x", b"x", bytearray(b"x"), memoryview(b"x")]
    assert {group.place(form) for form in forms} == {"a"}
    assert len(group.nodes["a"]) == len(group.where) == 1
    assert group.place(bytearray(b"\xff")) == "b"
    assert group.place(-1) == group.place(np.int64(-1)) == "c"
    assert [group.locate(form) for form in forms] == ["a"] * 4
    group.check()
    seen.clear()
    assert group.leave("a") == ["x"]  # no room is left
    assert set(seen) == {"x", b"\xff", -1}
    assert group.forget(b"\xff")
    assert group.place("y") == "b"
    group.evict(b"y")
    assert group.locate("y") is None
    group.check()
    node = MarkedNode("a", 1, marks=ForwardingMarks(exact=exact))
    assert (node.offer("x"), node.offer(b"x"), node.offer("y")) == ("stored", "stored", "full")
    assert (node.holds(bytearray(b"x")), node.holds(b"y"), node.drop(b"x")) == ("hit", "further", "dropped")
