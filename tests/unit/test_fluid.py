"""Fluid limits of multilevel tables: closed forms, gradients, simulations that share nothing with the
equations.

Simulations are plain: tables of stored hashes, key after key, all trials in parallel. A mean of trials lies
in Student's interval, missed once in a million, widened by half a key, by which a finite table may differ
from its limit (the bias does not grow with the keys); a variance lies in the interval of its own sampling
error at 1e-6, widened by a tenth, since it too is of the limit.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import poisson
from scipy.stats import t as student
from sizes import size

from evenbins.study.theory import tables
from evenbins.theory import fluid, fluid_noise, fluid_steady, optimise
from evenbins.theory.fluid_schemes import system

Ints = npt.NDArray[np.int64]

TABLES: dict[tuple[str, int], tuple[float, ...]] = {  # shares of Table 5.1(b), and more slots
    ("standard", 1): (0.7867, 0.5149, 0.3152, 0.1782),
    ("conservative", 1): (0.5214, 0.4134, 0.2802, 0.1774),
    ("second-chance", 1): (0.4694, 0.4562, 0.2512, 0.1082),
    ("extreme-second-chance", 1): (0.3774, 0.3624, 0.2857, 0.1276),
    ("standard", 2): (0.2970, 0.1735, 0.1059, 0.0493),
    ("second-chance", 2): (0.2048, 0.1961, 0.0954, 0.0299),
    ("standard", 4): (0.17, 0.08, 0.04, 0.02),
    ("second-chance", 3): (0.13, 0.13, 0.05, 0.025),
}
EACH = pytest.mark.parametrize(("scheme", "slots"), TABLES)


# --- closed forms and other solvers ----------------------------------------------------------------------


@pytest.mark.parametrize("scheme", fluid.SCHEMES)
@pytest.mark.parametrize("share", [0.05, 0.6, 3.0])
def test_one_level_is_exponential(scheme: str, share: float) -> None:
    found = fluid.solve(scheme, [share])
    assert found.fills[0] == pytest.approx(-math.expm1(-1 / share), rel=1e-7)
    assert found.overflow == pytest.approx(1 - share * -math.expm1(-1 / share), rel=1e-7)
    assert found.moves == 0


@pytest.mark.parametrize("slots", [1, 2, 5, 8])
def test_one_level_of_several_slots_is_a_cut_poisson_variable(slots: int) -> None:
    share = 1.1 / slots
    loads = np.minimum(np.arange(200), slots)
    held = share * float(loads @ poisson.pmf(np.arange(200), 1 / share))
    for scheme in ("standard", "second-chance"):
        found = fluid.solve(scheme, [share], slots)
        assert found.overflow == pytest.approx(1 - held, rel=1e-6)
        assert found.fills[0] == pytest.approx(held / share / slots, rel=1e-7)


def test_two_levels_of_every_moving_scheme_do_the_same() -> None:
    """With two levels a key can move one way only, and every scheme finds it."""
    overflows = [fluid.solve(scheme, [0.6, 0.6]).overflow for scheme in fluid.SCHEMES[1:]]
    assert overflows == pytest.approx([overflows[0]] * 3, rel=1e-6)


@EACH
def test_every_key_is_somewhere(scheme: str, slots: int) -> None:
    shares = TABLES[scheme, slots]
    for keys in (0.5, 1.0, 1.3):
        found = fluid.solve(scheme, shares, slots, keys=keys)
        held = slots * sum(share * fill for share, fill in zip(shares, found.fills, strict=True))
        assert held + found.overflow == pytest.approx(keys, rel=1e-9)
        assert 0 <= found.moves <= keys
        assert all(0 < fill < 1 for fill in found.fills)


@EACH
def test_the_overflow_is_accurate_even_if_it_is_small(scheme: str, slots: int) -> None:
    """Against steps that are far too small, relative 1e-6 down to 1e-10."""
    for scale in (1.0, 1.15):
        shares = scale * np.array(TABLES[scheme, slots])
        found = fluid.solve(scheme, shares, slots).overflow
        if found < 1e-10:
            break
        model = system(scheme, 4, slots)
        exact = fluid.integrate(model, shares, rtol=1e-12)[1][-2, -1]
        assert found == pytest.approx(exact, rel=1e-6)


def test_the_thesis_moves_and_overflows() -> None:
    moves = {("conservative", 1): 0.0166, ("second-chance", 1): 0.129, ("second-chance", 2): 0.147}
    for (scheme, slots), paper in moves.items():
        found = fluid.solve(scheme, TABLES[scheme, slots], slots)
        assert found.moves == pytest.approx(paper, abs=5e-4)
        assert found.overflow == pytest.approx(0.002, rel=0.1)


@EACH
def test_a_trajectory_leads_to_the_result(scheme: str, slots: int) -> None:
    found = fluid.solve(scheme, TABLES[scheme, slots], slots)
    way = tables.trajectory(found)
    assert way.times[0] == 0
    assert way.times[-1] == 1
    assert way.fills.shape == (len(way.times), 4)
    assert way.fills[-1] == pytest.approx(found.fills, rel=1e-6)
    assert way.overflow[-1] == pytest.approx(found.overflow, rel=1e-6)
    assert way.moves[-1] == pytest.approx(found.moves, rel=1e-6)
    for path in (way.overflow, way.moves, *way.fills.T):
        assert (np.diff(path) >= -1e-9).all()


@EACH
def test_more_room_less_overflow(scheme: str, slots: int) -> None:
    shares = np.array(TABLES[scheme, slots])
    overflows = [fluid.solve(scheme, scale * shares, slots).overflow for scale in (0.8, 0.9, 1.0, 1.1)]
    assert overflows == sorted(overflows, reverse=True)


@EACH
def test_gradients_are_those_of_differences(scheme: str, slots: int) -> None:
    shares = np.array(TABLES[scheme, slots])
    model = system(scheme, 4, slots)
    grid, _ = fluid.integrate(model, shares)
    value, slope = fluid.derivatives(scheme, shares, slots, grid)
    assert value == pytest.approx(fluid.solve(scheme, shares, slots).overflow, rel=1e-7)
    for i in range(4):
        step = 1e-5 * np.eye(4)[i]
        ends = [fluid.along(model, shares + sign * step, grid)[-2] for sign in (1, -1)]
        assert slope[i] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)


# --- against simulation ----------------------------------------------------------------------------------


def simulate(
    scheme: str, shares: tuple[float, ...], slots: int, keys: int, trials: int, seed: int
) -> tuple[Ints, Ints, tuple[float, ...]]:
    """Insert keys; give the overflows and the moves of all trials, and the shares as they are."""
    rng = np.random.default_rng(seed)
    d = len(shares)
    sizes = [int(share * keys) for share in shares]
    begin = np.concatenate([[0], np.cumsum(sizes)])
    every = np.arange(trials)
    load = np.zeros((trials, begin[-1]), np.int64)
    hashes = np.zeros((trials, begin[-1], slots, d), np.int64)  # of the stored keys
    marked = np.zeros((trials, begin[-1]), bool)
    overflow, moves = np.zeros(trials, np.int64), np.zeros(trials, np.int64)
    for _ in range(keys):
        h = np.stack([rng.integers(begin[i], begin[i + 1], trials) for i in range(d)], 1)
        full = load[every[:, None], h] >= slots
        level = np.where(full.all(1), d, full.argmin(1))  # where the new key goes
        moved, slot, to = (
            np.full(trials, -1) for _ in range(3)
        )  # the key that moves: level, slot, new level

        def free(i: int, s: int, k: int, h: Ints = h) -> npt.NDArray[np.bool_]:
            """Whether the key in slot s of level i could go to level k, where its bucket is full."""
            return load[every, hashes[every, h[:, i], s, k]] < slots

        def choose(which: npt.NDArray[np.bool_], i: int, s: int, k: int) -> None:
            level[which], moved[which], slot[which], to[which] = i, i, s, k  # noqa: B023

        if scheme == "second-chance":
            level[:] = -1
            for i in range(d):
                level[(level < 0) & ~full[:, i]] = i
                for s in range(slots if i < d - 1 else 0):
                    choose((level < 0) & full[:, i] & full[:, i + 1] & free(i, s, i + 1), i, s, i + 1)
            level[level < 0] = d
        elif scheme == "conservative":
            waiting = level == d
            for j in range(d - 1):
                tries = waiting & ~marked[every, h[:, j]]
                waiting &= ~tries
                marked[every[tries], h[tries, j]] = True
                for k in range(j + 1, d):
                    fits = tries & free(j, 0, k)
                    choose(fits, j, 0, k)
                    tries &= ~fits
        elif scheme == "extreme-second-chance":
            best = level.copy()
            for i in range(d - 1):
                for k in range(i + 1, d):
                    fits = full[:, i] & (k < best) & free(i, 0, k)
                    choose(fits, i, 0, k)
                    best[fits] = k
        goes = moved >= 0
        trial = every[goes]
        old = h[trial, moved[goes]]
        key = hashes[trial, old, slot[goes]].copy()
        new = key[np.arange(len(trial)), to[goes]]
        hashes[trial, new, load[trial, new]] = key
        load[trial, new] += 1
        hashes[trial, old, slot[goes]] = h[trial]
        moves += goes
        stays = ~goes & (level < d)
        trial = every[stays]
        bucket = h[trial, level[stays]]
        hashes[trial, bucket, load[trial, bucket]] = h[trial]
        load[trial, bucket] += 1
        overflow += level == d
    return overflow, moves, tuple(size / keys for size in sizes)


@EACH
def test_simulations_agree(scheme: str, slots: int) -> None:
    """200 trials of 1000 keys, 400 in a long run, levels of 0.9 times the usual size: overflow, its variance,
    moves.
    """
    keys, trials = 1000, size(200, 400)
    shares = tuple(0.9 * share for share in TABLES[scheme, slots])
    overflow, moves, real = simulate(scheme, shares, slots, keys, trials, seed=5)
    found = fluid.solve(scheme, real, slots)
    factor = student.ppf(1 - 0.5e-6, trials - 1) / math.sqrt(trials)
    assert overflow.mean() == pytest.approx(keys * found.overflow, abs=0.5 + factor * overflow.std(ddof=1))
    assert moves.mean() == pytest.approx(keys * found.moves, abs=0.5 + factor * moves.std(ddof=1))
    mean, variance = fluid_noise.variance(scheme, real, slots)
    assert mean == pytest.approx(found.overflow, rel=1e-5)
    squares = (overflow - overflow.mean()) ** 2
    spread = squares.std(ddof=1) / math.sqrt(trials)
    assert overflow.var(ddof=1) == pytest.approx(keys * variance, abs=4.9 * spread + 0.1 * keys * variance)


@EACH
def test_the_outcomes_of_an_insertion_have_the_mean_of_the_equations(scheme: str, slots: int) -> None:
    """The variance takes another way through each scheme than the rates: their means must agree."""
    model = system(scheme, 4, slots)
    shares = np.array(TABLES[scheme, slots])
    _, path = fluid.integrate(model, shares, times=np.array([0.2, 0.7, 1.0]))
    p = np.random.default_rng(1).normal(size=path.shape)
    first, second = fluid_noise.moments(model.outcomes(path, shares[:, None], p))
    assert first == pytest.approx((p * model.rates(path, shares[:, None])).sum(axis=0), rel=1e-10)
    assert (second > first**2).all()


def test_the_variance_of_one_level_is_that_of_empty_buckets() -> None:
    """Keys in a buckets each: n a (exp(-x) - (1 + x) exp(-2 x)) with x = 1/a (Weiss)."""
    a = 0.8
    x = 1 / a
    mean, variance = fluid_noise.variance("standard", (a,), 1)
    assert mean == pytest.approx(1 - a * -math.expm1(-x))
    assert variance == pytest.approx(a * (math.exp(-x) - (1 + x) * math.exp(-2 * x)), rel=1e-3)


# --- steady states ---------------------------------------------------------------------------------------


def test_the_steady_state_of_the_thesis() -> None:
    shares = optimise.shares("second-chance", 4, 2.0, deletions=True)
    assert fluid.steady_state("second-chance", shares).overflow == pytest.approx(1.445e-3, rel=1e-3)


def test_a_steady_state_of_one_level() -> None:
    for scheme in ("standard", "second-chance"):
        found = fluid.steady_state(scheme, [0.7])
        assert found.fills[0] == pytest.approx(1 / 1.7)
        assert found.overflow == pytest.approx(1 - 0.7 / 1.7)


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_a_standard_steady_state_is_where_its_equations_rest(slots: int) -> None:
    """The equations of section 5.9 for a long time, with prod over k < i of the full buckets."""
    shares = np.array([0.8, 0.5, 0.3]) / slots
    model = system("standard", 3, slots)

    def rates(_: float, y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        loads = y[:-2].reshape(3, slots)
        exactly = loads - np.concatenate([loads[:, 1:], np.zeros((3, 1))], axis=1)
        out = model.rates(y, shares)
        out[:-2] -= (np.arange(1, slots + 1) * exactly).ravel()
        out[-2] -= y[-2]
        return out

    end = solve_ivp(rates, (0, 60), model.start(()), rtol=1e-10, atol=1e-13).y[:, -1]
    found = fluid.steady_state("standard", shares, slots)
    assert found.overflow == pytest.approx(end[-2], rel=1e-6)
    assert found.fills == pytest.approx(model.fills(end), rel=1e-6)


@pytest.mark.parametrize("scheme", ["standard", "second-chance"])
@pytest.mark.parametrize("scale", [0.3, 1.0, 1.6])
def test_every_key_is_somewhere_in_a_steady_state(scheme: str, scale: float) -> None:
    shares = scale * np.array([0.62, 0.71, 0.45, 0.21])
    found = fluid.steady_state(scheme, shares)
    assert found.overflow == pytest.approx(1 - float(shares @ found.fills), abs=1e-13)


@pytest.mark.parametrize(("scheme", "slots"), [("standard", 1), ("standard", 4), ("second-chance", 1)])
def test_gradients_of_steady_states_are_those_of_differences(scheme: str, slots: int) -> None:
    shares = np.array([0.62, 0.71, 0.45, 0.21]) / slots
    columns = shares[:, None] + 1j * fluid_steady.STEP * np.eye(4)
    found = fluid_steady.solve(scheme, columns, slots).overflow
    for i in range(4):
        step = 1e-5 * np.eye(4)[i]
        ends = [fluid.steady_state(scheme, shares + sign * step, slots).overflow for sign in (1, -1)]
        assert found[i].imag / fluid_steady.STEP == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)
        assert found[i].real == pytest.approx(fluid.steady_state(scheme, shares, slots).overflow)


def test_no_pointer_is_lost() -> None:
    """The pointers into a level are those of the level before: its equation and theirs must agree.

    With dy/dt as the thesis prints it they do not (and the overflow at space 2 is 1.2 % less).
    """
    passed, before, share_before, share = np.array(1.0), np.array(0.62), np.array(0.62), np.array(0.71)
    level = fluid_steady._Level(passed, before, share_before, share)
    full, unknown, to_empty, to_taken = level.parts(fluid_steady._fixed_point(level))
    assert 0.1 < full < 0.9
    assert to_empty + to_taken == pytest.approx(before - unknown, rel=1e-12)


def test_a_steady_state_by_simulation() -> None:
    """The second-chance scheme, 150 trials of 400 keys and 10 * 400 replacements."""
    keys, trials, rounds = 400, 150, 10
    shares = (0.45, 0.4, 0.25, 0.1)
    rng = np.random.default_rng(3)
    sizes = [int(share * keys) for share in shares]
    begin = np.concatenate([[0], np.cumsum(sizes)])
    every = np.arange(trials)
    holds = np.full((trials, begin[-1]), -1)  # the key of a bucket
    hashes = np.zeros((trials, keys + 1, 4), np.int64)
    place = np.full((trials, keys + 1), -2)  # a key's bucket; -1 is the list, -2 nowhere
    spare = np.full(trials, keys)
    samples = []
    for step in range(keys * (1 + rounds)):
        new = np.full(trials, step) if step < keys else spare
        h = np.stack([rng.integers(begin[i], begin[i + 1], trials) for i in range(4)], 1)
        hashes[every, new] = h
        taken = holds[every[:, None], h] >= 0
        bucket = np.full(trials, -2)
        for i in range(4):
            here = (bucket == -2) & ~taken[:, i]
            bucket[here] = h[here, i]
            if i < 3:
                y = holds[every, h[:, i]]
                to = hashes[every, y, i + 1]
                swap = (bucket == -2) & taken[:, i] & taken[:, i + 1] & (holds[every, to] < 0)
                holds[every[swap], to[swap]] = y[swap]
                place[every[swap], y[swap]] = to[swap]
                bucket[swap] = h[swap, i]
        bucket[bucket == -2] = -1
        fits = bucket >= 0
        holds[every[fits], bucket[fits]] = new[fits]
        place[every, new] = bucket
        if step >= keys:
            old = rng.integers(0, keys, trials)
            old += old >= new
            gone = place[every, old]
            holds[every[gone >= 0], gone[gone >= 0]] = -1
            place[every, old] = -2
            spare = old
            if step >= 5 * keys and step % keys == 0:
                samples.append((place == -1).sum(axis=1))
    seen = np.array(samples).mean(axis=0)  # a trial's samples are not independent: their mean is one number
    found = fluid.steady_state("second-chance", tuple(size / keys for size in sizes)).overflow
    reach = student.ppf(1 - 0.5e-6, trials - 1) * seen.std(ddof=1) / math.sqrt(trials)
    assert seen.mean() == pytest.approx(keys * found, abs=0.5 + reach)


# --- results and arguments -------------------------------------------------------------------------------


def test_results_can_be_read_and_written() -> None:
    for found in (fluid.solve("standard", [1, 0.5]), fluid.steady_state("standard", [1, 0.5])):
        written = json.loads(json.dumps(asdict(found)))
        assert {"scheme", "slots", "shares", "overflow", "moves", "fills", "deletions"} <= set(written)
        assert tuple(written["fills"]) == found.fills
        assert found.space == 1.5
        assert found.levels == 2
        assert "overflow=" in repr(found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("least-loaded", [1.0]), "scheme must be one of"),
        (("cuckoo", [1.0]), "scheme must be one of"),
        (("standard", []), "shares must be 1 to 16 numbers"),
        (("standard", [0.0, 1.0]), "shares must be"),
        (("standard", [float("nan")]), "shares must be"),
        (("standard", [1.0], 0), "slots must be"),
        (("conservative", [1.0], 2), "slots must be 1 for scheme 'conservative'"),
        (("extreme-second-chance", [1.0], 4), '"second-chance" with any number of slots'),
    ],
)
def test_wrong_values(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        fluid.solve(*arguments)


def test_wrong_types_and_keys() -> None:
    with pytest.raises(TypeError, match="shares must be"):
        fluid.solve("standard", 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="shares must be"):
        fluid.solve("standard", ["a"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="slots must be"):
        fluid.solve("standard", [1.0], 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keys must be"):
        fluid.solve("standard", [1.0], keys=0)


@pytest.mark.parametrize(
    ("scheme", "slots"), [("conservative", 1), ("extreme-second-chance", 1), ("second-chance", 2)]
)
def test_steady_states_that_have_no_equations(scheme: str, slots: int) -> None:
    with pytest.raises(ValueError, match='"standard" with any number of slots and "second-chance" with 1'):
        fluid.steady_state(scheme, [1.0, 1.0], slots)
