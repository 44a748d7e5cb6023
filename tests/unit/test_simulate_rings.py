"""The simulator of hash rings: its twin, its promises, its refusals.

The twin is `reference.ring_simulation`; both make the same draws, so all counts must be equal, trial
by trial. Distributions are checked in statistical/test_ring_loads.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evenbins import _study
from evenbins.study.papers.ring_simulation import SimulatedRings, ring_shares, ring_times, simulate_ring
from reference.ring_simulation import RingTwin
from reference.ring_slots import dense_slot

POLICIES = ["plain", "clockwise", "rehash", "rehash-bin", "jump"]


def assert_twins(**given: Any) -> None:
    seen = simulate_ring(trials=3, seed=9, threads=2, **given)
    for trial in range(3):
        for name, value in RingTwin(seed=9, trial=trial, **given).run().items():
            ours = getattr(seen, name)[trial]
            assert (ours == value).all() if name == "loads" else ours == value, name


@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("limit", [5, 6, 30])
def test_rings_are_those_of_the_twin(policy: str, layout: str, limit: int) -> None:
    for copies in (1, 3):
        assert_twins(policy=policy, layout=layout, nodes=20, keys=90, limit=limit, copies=copies,
                     array_bits=9, step_bits=13, remove=True)  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_empty_slots_churn_and_bias_are_those_of_the_twin(policy: str) -> None:
    given: dict[str, Any] = {"policy": policy, "nodes": 20, "keys": 90, "limit": 6}
    assert_twins(layout="dense", empty=17, remove=True, **given)
    assert_twins(churn=True, remove=True, **given)
    assert_twins(churn=True, layout="dense", **given)
    assert_twins(bias=0.9, array_bits=8, step_bits=8, **given)
    assert_twins(bias=0.9, bias_on_node=True, array_bits=8, step_bits=8, **given)
    assert_twins(bias=0.5, layout="dense", empty=3, **given)
    assert_twins(**given | {"keys": 0})


def test_a_dense_slot_is_uniform_and_moves_only_to_the_new_one() -> None:
    """20,000 words; a chi-square of 12 degrees of freedom is above 53 with a chance of 4e-7."""
    words = [int(each) for each in np.random.default_rng(1).integers(0, 2**64, 20_000, dtype=np.uint64)]
    slots = [dense_slot(word, 13) for word in words]
    counts = np.bincount(slots, minlength=13)
    assert counts.size == 13
    assert ((counts - len(words) / 13) ** 2 / (len(words) / 13)).sum() < 53
    for m in (1, 2, 3, 4, 7, 8, 12, 16, 31):
        for word in words[:500]:
            before, after = dense_slot(word, m), dense_slot(word, m + 1)
            assert after in (before, m)


def numbers(seen: SimulatedRings) -> list[Any]:
    return [np.asarray(each).tolist() for each in vars(seen).values()]


def test_threads_change_nothing_and_a_trial_depends_on_its_position_alone() -> None:
    def run(**changes: Any) -> list[Any]:
        given: dict[str, Any] = {
            "keys": 500,
            "nodes": 60,
            "limit": 9,
            "trials": 17,
            "seed": 7,
            "remove": True,
        }
        return numbers(simulate_ring("clockwise", **given | changes))

    assert run() == run(threads=2) == run(threads=64)
    assert [each[:5] if isinstance(each, list) else each for each in run()] == run(trials=5)
    assert run(seed=8) != run()


@pytest.mark.parametrize("policy", POLICIES)
def test_no_key_is_lost_and_no_limit_broken(policy: str) -> None:
    seen = simulate_ring(policy, keys=2000, nodes=100, limit=22, copies=3, trials=20, seed=3)
    if policy == "plain":
        assert (seen.max_load > 22).any()
        assert (seen.searches == 1).all()
    else:
        assert (seen.loads @ np.arange(23) == 2000).all()
        assert (seen.max_load <= 22).all()
    assert (seen.loads.sum(axis=1) == 100).all()
    assert (seen.first_full <= 2000).all()
    assert (seen.steps >= seen.searches).all()


def test_chances_of_nodes_are_merged_as_they_fill() -> None:
    for limit in (None, 3):
        for arcs in (False, True):
            seen = ring_shares(50, limit, random_arcs=arcs, trials=4, seed=2, threads=2)
            assert seen.shape == (4, 50)
            assert (seen[:, -1] < 1e-12).all()  # one node has everything
            assert (seen[:, 0] < 1e-15).all() == (not arcs)
            assert (np.diff(seen[:, :40].mean(axis=0)) > 0).mean() > 0.9


def test_times_are_positive() -> None:
    for layout in ("sparse", "dense"):
        for policy in ("plain", "clockwise", "rehash", "jump"):
            insert, removed = ring_times(policy, layout=layout, keys=300, nodes=30, limit=12, array_bits=10,
                                         probes=5, trials=2)  # fmt: skip
            assert insert.shape == (2,)
            assert (insert > 0).all()
            assert (removed > 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "walk"}, "policy must be one of plain"),
        ({"layout": "round"}, "layout must be 'sparse' or 'dense'"),
        ({"limit": 0}, "limit must be 1 to"),
        ({"limit": 5}, "limit must leave room for one key more than 100, not 5"),
        ({"keys": -1}, "keys must be 0 to"),
        ({"nodes": 400, "array_bits": 9}, "bins \\* copies must fill at most half"),
        ({"empty": 3}, "empty must be 0 to 2\\*\\*22, and 0 for the sparse layout, not 3"),
        ({"bias": 1.0}, "bias must be 0 to 1, 1 excluded"),
        ({"step_bits": 10}, "step_bits must be 20 to 40, not 10"),
        ({"trials": 0}, "trials must be 1 to"),
        ({"threads": 0}, "threads must be 1 to"),
        ({"nodes": 1, "limit": 200, "remove": True}, "bins must be 2 or more if one is removed"),
    ],
)
def test_what_is_out_of_range_is_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"policy": "jump", "keys": 100, "nodes": 20, "limit": 6}
    with pytest.raises(ValueError, match=message):
        simulate_ring(**given | changes)


def test_the_progress_is_told_and_its_error_stops_the_work() -> None:
    def stop(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        simulate_ring("rehash", keys=100_000, nodes=1000, limit=101, trials=10_000, progress=stop)
    with pytest.raises(ValueError, match="unknown policy: walk"):
        _study.ring_times(policy="walk", layout="dense", bins=2, copies=1, keys=1, limit=2, array_bits=8,
                         probes=1, trials=1, seed=0, progress=None)  # fmt: skip
