"""The order of filter designs: a documented cost of time and memory; what filters must be able to do."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from sizes import size

from evenbins import GrowingFilter, WindowFilter, cli, design, structure
from evenbins.design import needs
from evenbins.design.best import WINNERS, best_plan
from evenbins.design.cost import COSTS, KEY_NS, READS, STEPS, cost_order, lookup_ns
from evenbins.filters import plan_balanced, plan_blocked, plan_standard

RATES = (0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)[:: size(4, 1)]
SIZES = (1_000_000, 10_000_000, 1_000_000_000)


@pytest.fixture(scope="module")
def grid() -> dict[tuple[int, float], design.FilterDesigns]:
    return {(keys, rate): design.filter(keys, fpr=rate) for keys in SIZES for rate in RATES}


# --- the order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", SIZES)
def test_the_best_changes_once(grid: dict[tuple[int, float], design.FilterDesigns], keys: int) -> None:
    """Blocked down to 1e-7; below, two-choice where the filter lies in a cache, else fill."""
    found = [grid[keys, rate].best.policy for rate in RATES]
    change = found.index(next(policy for policy in found if policy != "blocked"))
    assert RATES[change] <= 1e-7
    assert found == ["blocked"] * change + [found[-1]] * (len(found) - change)
    assert found[-1] == ("two-choice" if keys <= 1_000_000 else "fill")


@pytest.mark.parametrize("keys", SIZES)
def test_the_best_alone_is_the_first_of_all(
    grid: dict[tuple[int, float], design.FilterDesigns], keys: int
) -> None:
    for rate in RATES:
        assert best_plan(keys, fpr=rate) == grid[keys, rate].best.plan
        assert grid[keys, rate].best.policy in WINNERS
    for bits in (6, 16, 40):
        assert best_plan(keys, bits_per_key=bits) == design.filter(keys, bits_per_key=bits).best.plan


def test_few_keys_fit_in_a_page_and_the_time_decides() -> None:
    for keys in (1, 3, 100):
        assert design.filter(keys, fpr=1e-3).best.policy == best_plan(keys, fpr=1e-3).policy == "blocked"


def test_the_order_is_that_of_the_product(grid: dict[tuple[int, float], design.FilterDesigns]) -> None:
    for designs in grid.values():
        costs = [each.ns * each.plan.nbytes for each in designs]
        assert costs == sorted(costs)


def test_with_the_memory_given_the_rate_counts() -> None:
    designs = design.filter(10_000_000, bits_per_key=16)
    costs = [each.ns * each.plan.nbytes / -math.log(each.plan.fpr) for each in designs]
    assert costs == pytest.approx(sorted(costs))


@pytest.mark.parametrize(
    ("cost", "policy"),
    [
        ("memory", "standard"), ("time", "blocked"), ("fpr", "fill"), ("reads", "single"),
        ({"memory": 1}, "standard"), ({"time": 1}, "blocked"), ({"time": 1, "memory": 1}, "blocked"),
        ({"time": 1, "memory": 3}, "two-choice"), ({"time": 0, "memory": 2}, "standard"),
        ({"reads": 1}, "single"), ({"miss_reads": 5, "memory": 1}, "single"),
    ],
)  # fmt: skip
def test_weights(cost: object, policy: str) -> None:
    found = design.filter(10_000_000, fpr=1e-6, cost=cost)  # type: ignore[arg-type]
    assert found.best.policy == policy
    assert found.request["cost"] == cost


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ("size", 'cost must be one of "time", "memory", "fpr", "reads", "miss_reads"'),
        ({"size": 1}, "cost must be one of time, memory"),
        ({}, "cost must be one of time"),
        ({"time": 0}, "one is above 0"),
        ({"time": -1}, "cost.*must be a number from 0"),
        ({"time": math.nan}, "cost.*must be a number from 0"),
    ],
)
def test_wrong_costs(cost: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        design.filter(1000, cost=cost)  # type: ignore[arg-type]


@pytest.mark.parametrize("cost", [3, ["time"], {"time": "much"}, {"time": None}])
def test_wrong_types_of_costs(cost: object) -> None:
    with pytest.raises(TypeError, match="cost"):
        design.filter(1000, cost=cost)  # type: ignore[arg-type]


def test_shards_have_the_same_order() -> None:
    found = design.sharded_filter(1e9, fpr=1e-3, shard_bytes=2**28)
    assert found.best.policy == "blocked"
    assert design.sharded_filter(1e9, fpr=1e-3, shard_bytes=2**28, cost="memory").best.policy == "standard"


# --- the time of a look-up ------------------------------------------------------------------------------


def test_the_model_by_hand() -> None:
    (_, fast), (_, slower), (_, memory) = READS
    small = plan_blocked(1000, fpr=1e-3)
    assert lookup_ns(small) == pytest.approx(KEY_NS + fast.block)
    assert lookup_ns(plan_standard(1000, fpr=1e-3)) == pytest.approx(
        KEY_NS + fast.anywhere * (10 + 2.003) / 2, 1e-3
    )
    both = plan_balanced(1000, fpr=1e-3, policy="two-choice")
    assert lookup_ns(both) == pytest.approx(KEY_NS + fast.block + fast.independent)
    fill = plan_balanced(1000, fpr=1e-6, policy="fill")
    more = (fill.reads + fill.miss_reads) / 2 - 1
    assert lookup_ns(fill) == pytest.approx(KEY_NS + fast.block + STEPS.threshold + STEPS.dependent * more)
    large = SimpleNamespace(
        nbytes=2**30, reads=1.0, miss_reads=1.0, block_bits=512, thresholds=(), policy="blocked"
    )
    parts = 2**20 / 2**30, (2**25 - 2**20) / 2**30, 1 - 2**25 / 2**30
    expected = parts[0] * fast.block + parts[1] * slower.block + parts[2] * memory.block
    assert lookup_ns(large) == pytest.approx(KEY_NS + expected)


@pytest.mark.parametrize("policy", WINNERS)
def test_the_time_grows_with_the_memory_without_a_step(policy: str) -> None:
    plan = design.filter(1000, fpr=1e-4, policies=[policy]).best.plan
    names = ("reads", "miss_reads", "block_bits", "thresholds", "policy")
    known = {name: getattr(plan, name) for name in names}
    times = [lookup_ns(SimpleNamespace(nbytes=int(size), **known)) for size in np.geomspace(64, 2**40, 1000)]
    assert times == sorted(times)
    assert max(b / a for a, b in pairwise(times)) < 1.1


def test_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    found = design.filter(1_000_000, fpr=1e-3)
    head, *rows = str(found).splitlines()[1:-1]
    assert head.split()[5:7] == ["MiB", "ns"]
    assert len(rows) == len(found)
    assert found.to_dict()["designs"][0]["ns"] == found.best.ns  # type: ignore[index]
    assert f"{found.best.ns:.1f}" in rows[0]


def test_every_quantity_has_an_order() -> None:
    found = design.filter(10_000, fpr=1e-3)
    for name, measure in COSTS.items():
        values = [measure(each.plan) for each in sorted(found, key=cost_order(name, True))]
        assert values == sorted(values)


# --- needs ----------------------------------------------------------------------------------------------


def policies(*wanted: str) -> list[str]:
    return [each.policy for each in design.filter(10_000, fpr=1e-3, needs=list(wanted))]


def test_needs_in_other_words() -> None:
    assert policies("deletions") == policies("remove") == ["fingerprint", "counting"]
    assert policies("shared") == policies("redis")
    assert policies("unknown size") == policies("unknown-size") == policies("grow")


def test_an_unknown_size_is_built_as_a_growing_filter() -> None:
    found = design.filter(1000, fpr=1e-3, needs=["unknown size"])
    filter_ = found.build()
    assert isinstance(filter_, GrowingFilter)
    filter_.add_many(range(20_000))
    assert filter_.contains_many(range(20_000)).all()
    assert filter_.stats().fpr <= 1.1e-3
    assert found.best.plan == filter_._stages[0].plan  # the table shows the first stage
    assert found.request["fpr"] == 1e-3
    with pytest.raises(ValueError, match='fpr must be given where "unknown size" is needed'):
        design.filter(1000, bits_per_key=10, needs=["unknown size"])


@pytest.mark.parametrize(
    ("need", "nearest"),
    [
        ("on disk", "evenbins.open maps.*PagedTable"),
        ("on-disk", "evenbins.open maps.*PagedTable"),
    ],
)
def test_a_need_that_no_kind_meets_names_the_nearest(need: str, nearest: str) -> None:
    words = (
        f'needs has "{need.replace("-", " ")}", and no kind of filter can do that. The nearest is .*{nearest}'
    )
    with pytest.raises(ValueError, match=words):
        design.filter(1000, needs=[need])
    done = CliRunner().invoke(cli.commands, ["design", "filter", "--keys", "1k", "--needs", need])
    assert "--needs has" in str(done.output or done.exception)


def test_a_kind_that_is_registered_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of filters on disk would be proposed where one is needed, and nowhere else."""
    blocked = structure.kind_of_policy("blocked")
    on_disk = blocked._replace(name="on-disk", can=blocked.can | {"on-disk"}, policies=("pages",))
    kinds = [*structure.KINDS, on_disk]
    monkeypatch.setattr(needs, "that_can", lambda what: [kind for kind in kinds if what in kind.can])
    assert needs.policies_for(["on disk"], None) == ["pages"]
    assert "pages" not in needs.policies_for([], None)


def test_a_window_is_met_by_window_filters() -> None:
    """Of the last `keys` additions; not proposed where no window is needed."""
    assert policies("window") == ["window"]
    assert "window" not in policies()
    found = design.filter(1000, fpr=1e-3, needs=["window"]).build(range(3000))
    assert isinstance(found, WindowFilter)
    assert found.window == 1000
    assert found.contains_many(range(2000, 3000)).all()
    assert found.contains_many(range(1800)).sum() < 20


def test_needs_together() -> None:
    with pytest.raises(ValueError, match=r"needs must be met by one.*redis: standard.*remove: counting"):
        policies("deletions", "shared")
    by_itself = design.filter(10_000, fpr=1e-3, needs="deletions")
    assert [each.policy for each in by_itself] == policies("deletions")
    for wrong in ("speed", ["speed"], [3], None, 3):
        with pytest.raises(
            (ValueError, TypeError), match="needs must be one or a list of merge, remove, grow"
        ):
            design.filter(1000, needs=wrong)  # type: ignore[arg-type]


# --- the command ----------------------------------------------------------------------------------------


def test_the_command_takes_numbers_as_people_write_them() -> None:
    def ask(*words: str) -> dict[str, object]:
        done = CliRunner().invoke(cli.commands, ["design", "filter", "--json", *words])
        assert done.exit_code == 0, done.output
        found: dict[str, object] = json.loads(done.output)
        return found

    plain = ask("--keys", "1000000", "--fpr", "0.001")
    assert ask("--keys", "1 million", "--fpr", "0.1%") == plain
    assert ask("--keys", "1M", "--fpr", "1/1000") == plain
    assert ask("--keys", "1,000,000", "--fpr", "1 in a thousand") == plain
    weighed = ask("--keys", "1M", "--fpr", "0.1%", "--cost", "time=1,memory=9")
    assert weighed["request"]["cost"] == {"time": 1, "memory": 9}  # type: ignore[index]
    assert weighed["designs"][0]["policy"] == "standard"  # type: ignore[index]
    shards = ask("--keys", "1e9", "--shard-bytes", "256M")
    assert shards["request"]["shard_bytes"] == 2**28  # type: ignore[index]
    for option, text in (("--cost", "time=much"), ("--cost", "weight=1"), ("--shard-bytes", "big")):
        done = CliRunner().invoke(cli.commands, ["design", "filter", "--keys", "1M", option, text])
        assert done.exit_code != 0
        assert option in done.output + str(done.exception)
