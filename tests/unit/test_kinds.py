"""Every kind in the registry is handled, or raises a descriptive error, wherever several kinds are treated.

A new family is one row of `evenbins.structure.KINDS`. What its row says that it can do is done here, and what
it does not say must raise an error that names it; a suite that leaves it out fails with the name of the file
to add it to.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.bag
import numpy as np
import pytest
import redis
from click.testing import CliRunner
from kinds import KINDS as TESTED
from structures import FIXED, KEYS, STRUCTURES

import evenbins
from evenbins import design, structure
from evenbins.cli import commands
from evenbins.cluster import RedisFilter
from evenbins.cluster.dask import build as build_by_dask
from evenbins.filters.growing import GrowingFilter
from evenbins.filters.sharded import ShardedFilter
from evenbins.structure import KINDS, Kind
from evenbins.study.lab import filters as filters_page
from evenbins.study.lab import rings as rings_page
from evenbins.study.lab import tables as tables_page
from evenbins.study.lab.parameters import RefusedError, read

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

import fixed_files
import kill_writes
from filter_servers import running
from soaks import in_memory, on_disk, over_network

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
ROW = "src/evenbins/structure.py, KINDS"
REDIS_LEAVES_OUT = {"sequential"}  # a policy of a kind that can: it needs one word that all clients count in


def by_name(kinds: Any) -> Any:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.name)


def names_of(kind: Kind) -> tuple[str, ...]:
    """The policies of a kind; its name if it has none, which calls that take a policy must refuse."""
    return kind.policies or (kind.name,)


def check(kind: Kind, capability: str, name: str, where: str, call: Callable[[], Any]) -> Any:
    """Make a call that a kind has the capability for, or that must raise an error which names it."""
    if capability in kind.can:
        try:
            return call()
        except Exception as error:
            pytest.fail(
                f"{ROW}: {kind.name} can {capability!r}, but {where} does not handle {name!r}: add it there, "
                f"or remove the capability ({type(error).__name__}: {error})"
            )
    try:
        call()
    except (ValueError, RefusedError) as error:
        message = str(error)
    else:
        pytest.fail(f"{where} handles {name!r}: add {capability!r} to the row of {kind.name} in {ROW}")
    assert name in message, f"{where} raises an error that does not name {name!r}"
    return None


def example(kind: Kind) -> Any:
    """Return the entry of tests/structures.py that makes the kind."""
    found = [each for each in (*STRUCTURES, *FIXED) if each.name.partition("-")[0] == kind.cls.__name__]
    assert found, f"add {kind.cls.__name__} to STRUCTURES in tests/structures.py"
    return found[0]


def saved(kind: Kind, folder: Path, keys: Any = KEYS[:50]) -> Path:
    """Return a file of the kind, with some keys."""
    folder.mkdir(exist_ok=True)
    made = example(kind).filled(folder, keys)
    if hasattr(made, "close"):  # a table in pages is a file already
        made.close()
        return Path(made.path)
    made.save(folder / "saved")
    return folder / "saved"


def command(*arguments: object) -> Any:
    return CliRunner().invoke(commands, [str(each) for each in arguments])


# --- the registry ------------------------------------------------------------------------------------------


def test_numbers_names_and_policies_are_distinct() -> None:
    assert len({kind.number for kind in KINDS}) == len({kind.name for kind in KINDS}) == len(KINDS)
    policies = [policy for kind in KINDS for policy in kind.policies]
    assert len(set(policies)) == len(policies)


def test_every_capability_is_documented() -> None:
    documented = set(re.findall(r"[a-z]+(?:-[a-z]+)*", Kind.__doc__ or ""))
    assert {capability for kind in KINDS for capability in kind.can} <= documented


@by_name(KINDS)
def test_a_kind_has_its_class_and_its_module(kind: Kind) -> None:
    cls = kind.cls
    assert cls.__name__ == kind.home.split(":")[1]
    assert getattr(cls, "_kind", None) in (None, kind.number)
    for policy in kind.policies:
        assert structure.kind_of_policy(policy) is kind
    if hasattr(cls, "_policies"):
        assert cls._policies == kind.policies


# --- files and commands ------------------------------------------------------------------------------------


@by_name(KINDS)
def test_load_open_and_inspect(kind: Kind, tmp_path: Path) -> None:
    path = saved(kind, tmp_path)
    assert structure.kind_of_file(path) is kind
    for read_file in (evenbins.load, evenbins.open):
        assert type(read_file(path)) is kind.cls
    for arguments in (["inspect", path], ["inspect", path, "--json"]):
        done = command(*arguments)
        assert done.exit_code == 0, f"src/evenbins/cli/inspect.py does not handle {kind.name}: {done.output}"


@by_name(KINDS)
def test_query(kind: Kind, tmp_path: Path) -> None:
    path = saved(kind, tmp_path)
    (tmp_path / "lines").write_text("a\nb\n")
    done = command("query", path, tmp_path / "lines")
    if "members" not in kind.can or kind.family == "tables":  # tables of integers hold no lines
        assert done.exit_code == 1, done.output
        assert kind.title in done.output
    else:
        assert done.exit_code in (0, 1), done.output
        assert not done.exception or isinstance(done.exception, SystemExit), done.exception


@by_name(KINDS)
def test_merge(kind: Kind, tmp_path: Path) -> None:
    one, other = saved(kind, tmp_path / "a", KEYS[:50]), saved(kind, tmp_path / "b", KEYS[50:100])
    done = command("merge", one, other, "-o", tmp_path / "out")
    if "merge" in kind.can:
        assert done.exit_code == 0, f"src/evenbins/cli/merge.py does not handle {kind.name}: {done.output}"
        assert example(kind).holds(evenbins.load(tmp_path / "out"), KEYS[:100]).all()
    else:
        assert done.exit_code != 0
        assert kind.title in done.output


@by_name(KINDS)
def test_remove(kind: Kind, tmp_path: Path) -> None:
    path = saved(kind, tmp_path)
    done = command("remove", path, "-k", "never added")
    if "remove" in kind.can and kind.family == "filters":
        assert "1 key was not in it" in done.output, f"src/evenbins/cli/remove.py does not handle {kind.name}"
    else:
        assert done.exit_code == 1
        assert kind.title in done.output


@by_name(KINDS)
def test_build(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a\nb\n")
    exact = kind.name == "multilevel-table"
    for name in names_of(kind):
        out = tmp_path / name
        how = ["--exact"] if exact else ["--kind", name]
        done = command("build", tmp_path / "keys", "-o", out, *how)
        if "build" in kind.can:
            assert done.exit_code == 0, f"src/evenbins/cli/build.py does not handle {name}: {done.output}"
            assert structure.kind_of_file(out) is kind
        else:
            assert done.exit_code == 2, f"`evenbins build` makes {name}: add 'build' to its row in {ROW}"
            assert name in done.output


# --- design, growing, shards, servers, workers -------------------------------------------------------------


@by_name(KINDS)
def test_a_filter_grows_or_says_why_not(kind: Kind) -> None:
    for name in names_of(kind):
        where = "src/evenbins/filters/growing.py"
        check(kind, "grow", name, where, lambda name=name: GrowingFilter(1e-3, policy=name))


@by_name(KINDS)
def test_a_filter_is_sharded_or_says_why_not(kind: Kind) -> None:
    for name in names_of(kind):
        where = "src/evenbins/theory/sharding.py"
        check(
            kind, "shard", name, where, lambda name=name: ShardedFilter(1000, fpr=1e-3, shards=2, policy=name)
        )


@pytest.fixture(scope="module")
def designed() -> set[Kind]:
    """The kinds that the design search proposes for tables, summaries, rings and shards."""
    built: list[Any] = [
        design.sharded_filter(10_000, fpr=1e-2, shard_bytes=5000, policies=["blocked"]).build(),
        design.table(1000, schemes=["standard"], slots=[1]).build(),
        design.ring(5, 1000).build(),
    ]
    built += [each.build().summary for each in design.summary(1000)]
    return {structure.kind_of_object(each) for each in built}


@by_name(KINDS)
def test_design(kind: Kind, designed: set[Kind]) -> None:
    where = "src/evenbins/design/"
    if "design" in kind.can and not kind.policies:
        assert kind in designed, f"no call of {where} proposes {kind.name}: add it, or change {ROW}"
        return
    assert kind not in designed, f"{where} proposes {kind.name}: add 'design' to its row in {ROW}"
    for name in names_of(kind):
        found = check(
            kind, "design", name, where, lambda name=name: design.filter(1000, fpr=1e-2, policies=[name])
        )
        if found is not None:
            assert structure.kind_of_object(found.build(["ant"])) is kind


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    with running() as server, server.client() as found:
        yield found


@by_name(KINDS)
def test_a_filter_lives_on_redis_or_says_why_not(kind: Kind, client: redis.Redis, tmp_path: Path) -> None:
    """A real server: created, filled, asked, and the same bytes as the local one."""
    if not kind.policies:
        with pytest.raises((TypeError, ValueError), match="plan"):
            RedisFilter.create(
                client, kind.name, example(kind).make(Path()).plan if kind.family != "tables" else None
            )
        return
    where = "src/evenbins/cluster/_segments.py, POLICIES"
    for name in kind.policies:
        more: dict[str, Any] = {"policy": name} if len(kind.policies) > 1 else {}
        if "window" in kind.can:
            more = {"capacity": 1000}
        if "fixed-set" in kind.can:
            with pytest.raises(ValueError, match=name):
                RedisFilter.create(client, name, kind.cls.from_keys(["ant"]).plan)
            continue
        local = kind.cls(1000, **more)
        able = kind if name not in REDIS_LEAVES_OUT else kind._replace(can=kind.can - {"redis"})
        shared = check(
            able,
            "redis",
            name,
            where,
            lambda local=local, name=name: RedisFilter.create(client, name, local.plan),
        )
        if shared is not None:
            shared.add_many(["ant", "bee"])
            local.add_many(["ant", "bee"])
            assert "bee" in shared
            assert shared.to_local() == local


@by_name(KINDS)
def test_a_filter_is_built_by_dask_or_says_why_not(kind: Kind) -> None:
    words = dask.bag.from_sequence(["ant", "bee", "cat", "dog"], npartitions=2)
    for name in names_of(kind):
        made = check(
            kind, "dask", name, "src/evenbins/cluster/dask.py",
            lambda name=name: build_by_dask(words, policy=name, fpr=1e-2, scheduler="synchronous"),
        )  # fmt: skip
        if made is not None:
            assert structure.kind_of_object(made) is kind
            assert "bee" in made


# --- the lab -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages() -> str:
    """What the pages Tables and Rings answer to their default questions, with the programs to copy."""
    quick = [each for page in (tables_page, rings_page) for each in page.ENDPOINTS if not each.job]
    return json.dumps([each.function(**read(each.parameters, [])) for each in quick])


@by_name(KINDS)
def test_the_lab(kind: Kind, pages: str) -> None:
    if "lab" in kind.can and not kind.policies:
        assert f"{kind.cls.__name__}(" in pages or f"{kind.cls.__name__}.from_plan" in pages, (
            f"{ROW}: {kind.name} can 'lab', but no page of src/evenbins/study/lab builds one: add it"
        )
        return
    measure = next(each for each in filters_page.ENDPOINTS if each.path == "filters/measure")
    for name in names_of(kind):

        def ask(name: str = name) -> Any:
            query = [("keys", "500"), ("fpr", "0.01"), ("policy", name), ("filters", "1")]
            return measure.function(**read(measure.parameters, query), progress=lambda done, total: None)

        found = check(kind, "lab", name, "src/evenbins/study/lab/filters.py", ask)
        assert found is None or found["policy"] == name


# --- the suites --------------------------------------------------------------------------------------------


@by_name(KINDS)
def test_the_golden_files(kind: Kind) -> None:
    if kind.number == 0:
        return  # a folder of files of other kinds
    files = [*GOLDEN.glob("*.evenbins"), GOLDEN / "paged" / "table"]
    paths = [path for path in files if structure.kind_of_file(path) is kind]
    assert paths, f"tests/golden has no file of {kind.name}: add one to tests/golden/make_golden.py"


@by_name(KINDS)
def test_the_corruption_suite(kind: Kind) -> None:
    """test_corruption.py damages every golden file of the kinds that it does not leave to another suite."""
    import test_corruption

    there = {structure.kind_of_file(path) for path in test_corruption.FILES}
    elsewhere = {"paged-table": "test_paged_damage.py", "sharded": "test_sharded.py"}
    assert kind in there or (ROOT / "tests" / "unit" / elsewhere.get(kind.name, "")).is_file(), (
        f"nothing damages {kind.name}: add a golden file of it, for tests/unit/test_corruption.py"
    )
    assert set(test_corruption.ELSEWHERE) == set(elsewhere)


@by_name(KINDS)
def test_the_thread_fork_signal_and_allocation_suites(kind: Kind, tmp_path: Path) -> None:
    """They run over tests/structures.py; those of filters, and threads=, over tests/kinds.py."""
    made = example(kind).new(tmp_path)
    assert structure.kind_of_object(made) is kind
    if kind.policies and "fixed-set" not in kind.can:
        tested = {each.cls for each in TESTED}
        assert kind.cls in tested, f"add {kind.cls.__name__} to KINDS in tests/kinds.py"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> set[Kind]:
    """The kinds whose bytes test_determinism.py and `make determinism` compare."""
    made = fixed_files.structures(1, fixed_files.KEYS, tmp_path_factory.mktemp("fixed"))
    return {structure.kind_of_object(each) for _, each in made}


@by_name(KINDS)
def test_the_determinism_suite(kind: Kind, compared: set[Kind]) -> None:
    assert kind in compared, f"add a {kind.cls.__name__} to Makers in tools/fixed_files.py"


@pytest.fixture(scope="module")
def soaked() -> set[Kind]:
    """The kinds that soaks in memory and on disk keep beside their oracle."""
    few = pytest.MonkeyPatch()
    for module in (in_memory, on_disk):
        few.setattr(module, "_KEYS", 2000)
    found = set()
    for case in (*in_memory.CASES, *on_disk.CASES):
        soak = case.make(np.random.default_rng(3))
        try:
            for value in vars(soak).values():
                if type(value).__module__.startswith("evenbins.") and hasattr(value, "stats"):
                    found.add(structure.kind_of_object(value))
        finally:
            soak.close()
    few.undo()
    return found


@by_name(KINDS)
def test_the_soak_suites(kind: Kind, soaked: set[Kind]) -> None:
    assert kind in soaked, f"add {kind.name} to CASES in tools/soaks/in_memory.py or on_disk.py"
    if "redis" in kind.can:
        names = {case.name for case in over_network.CASES}
        assert names & {f"Redis, {policy}" for policy in kind.policies}, (
            f"add {kind.name} on Redis to CASES in tools/soaks/over_network.py"
        )


@by_name(KINDS)
def test_the_crash_suite(kind: Kind) -> None:
    """tools/kill_writes.py kills saves, and the writes of a table in pages."""
    killed = {structure.kind_of_object(make()).name for make in kill_writes.MAKERS.values()} | {"paged-table"}
    assert kind.name in killed, f"add {kind.name} to MAKERS in tools/kill_writes.py"
