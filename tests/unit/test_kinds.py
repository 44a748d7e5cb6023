"""Every kind in the registry is known, or refused with a reason, wherever several kinds are treated.

A new family is one row of `evenbins.structure.KINDS`; a list elsewhere that does not know it fails here.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kinds import KINDS as TESTED
from structures import STRUCTURES

import evenbins
from evenbins import design, structure
from evenbins.cli import commands
from evenbins.filters.growing import GrowingFilter
from evenbins.filters.sharded import ShardedFilter
from evenbins.structure import KINDS, Kind

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
FILTERS = [kind for kind in KINDS if kind.policies]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The classes of tests/structures.py."""
    return {type(each.new(tmp_path_factory.mktemp("made"))).__name__ for each in STRUCTURES}


def by_name(kinds: Any) -> Any:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.name)


def golden_of(kind: Kind) -> Path:
    """Return a golden file of a kind."""
    for path in sorted(GOLDEN.glob("*.evenbins")):
        if structure.kind_of_file(path) is kind:
            return path
    raise AssertionError(f"tests/golden has no file of {kind.title}: tests/golden/make_golden.py writes one")


def test_numbers_names_and_policies_are_distinct() -> None:
    assert len({kind.number for kind in KINDS}) == len({kind.name for kind in KINDS}) == len(KINDS)
    policies = [policy for kind in KINDS for policy in kind.policies]
    assert len(set(policies)) == len(policies)


@by_name(KINDS)
def test_a_kind_has_its_class_and_its_module(kind: Kind) -> None:
    cls = kind.cls
    assert cls.__name__ == kind.home.split(":")[1]
    assert getattr(cls, "_kind", None) in (None, kind.number)
    for policy in kind.policies:
        assert structure.kind_of_policy(policy) is kind
    if hasattr(cls, "_policies"):
        assert cls._policies == kind.policies


@by_name([kind for kind in KINDS if kind.name not in ("sharded", "paged-table")])
def test_load_open_inspect_and_the_golden_files_know_it(kind: Kind) -> None:
    path = golden_of(kind)
    loaded = evenbins.load(path)
    assert type(loaded) is kind.cls
    assert evenbins.open(path) == loaded
    assert structure.kind_of_object(loaded) is kind
    done = CliRunner().invoke(commands, ["inspect", str(path)])
    assert done.exit_code == 0, done.output


@by_name(KINDS)
def test_the_shared_suites_know_it(kind: Kind, made: set[str]) -> None:
    """Pairs of calls, forks, signals and allocation failure run over tests/structures.py."""
    assert kind.cls.__name__ in made
    if kind.policies:
        assert kind.cls in {each.cls for each in TESTED}


@by_name(FILTERS)
def test_a_filter_grows_or_says_why_not(kind: Kind) -> None:
    for policy in kind.policies:
        check("grow" in kind.can, policy, lambda policy=policy: GrowingFilter(1e-3, policy=policy))


@by_name(FILTERS)
def test_a_filter_is_sharded_or_says_why_not(kind: Kind) -> None:
    for policy in kind.policies:
        check(
            "shard" in kind.can,
            policy,
            lambda policy=policy: ShardedFilter(1000, fpr=1e-3, shards=2, policy=policy),
        )


@by_name(FILTERS)
def test_a_filter_is_designed_or_says_why_not(kind: Kind) -> None:
    for policy in kind.policies:
        check(
            "design" in kind.can,
            policy,
            lambda policy=policy: design.filter(1000, fpr=1e-3, policies=[policy]),
        )


@by_name(FILTERS)
def test_a_filter_lives_on_redis_or_says_why_not(kind: Kind) -> None:
    segments = importlib.import_module("evenbins.cluster._segments")
    known = set(segments.POLICIES)
    for policy in kind.policies:
        if policy in known:
            assert "redis" in kind.can
        else:
            assert any(known & set(kind.policies)) or "redis" not in kind.can


def check(possible: bool, policy: str, call: Callable[[], Any]) -> None:
    """Make the call: it works, or raises a ValueError that names the policy and what to pass."""
    if possible:
        call()
        return
    with pytest.raises(ValueError, match=re.escape(policy)):
        call()


@by_name([kind for kind in KINDS if "merge" not in kind.can and kind.name not in ("sharded", "paged-table")])
def test_merge_says_what_cannot_be_merged(kind: Kind, tmp_path: Path) -> None:
    path = str(golden_of(kind))
    done = CliRunner().invoke(commands, ["merge", path, path, "-o", str(tmp_path / "out")])
    assert done.exit_code != 0
    assert kind.title in done.output


@by_name([kind for kind in KINDS if "build" in kind.can and kind.policies])
def test_build_makes_it(kind: Kind, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a\nb\n")
    for policy in kind.policies:
        out = tmp_path / policy
        done = CliRunner().invoke(commands, ["build", str(keys), "-o", str(out), "--kind", policy])
        assert done.exit_code == 0, done.output
        assert structure.kind_of_file(out) is kind
