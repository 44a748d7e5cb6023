"""The filter in shards against its readable twin and a plain set: identical bytes of every shard."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import size

import reference
from evenbins.filters.sharded import ShardedFilter
from reference.bloom import ReferenceFilter

KEYS = st.one_of(
    st.text(max_size=6), st.binary(max_size=6), st.integers(-(2**63), 2**64 - 1), st.integers(0, 40)
)


def twin_of(f: ShardedFilter) -> reference.ReferenceSharded:
    plan = f.sharding.shard

    def make() -> ReferenceFilter:
        if plan.policy == "standard":
            return reference.ReferenceBloom(*plan.core, seed=plan.seed)
        if plan.policy == "blocked":
            return reference.ReferenceBlocked(*plan.core, seed=plan.seed)
        return reference.ReferenceBalanced(plan.core, seed=plan.seed)

    return reference.ReferenceSharded(f.shards, make)


@pytest.mark.parametrize("policy", ["standard", "blocked", "multilevel", "fill", "two-choice"])
@settings(max_examples=size(12, 25))
@given(data=st.data(), shards=st.integers(1, 9), seed=st.sampled_from([0, 99]))
def test_the_bytes_are_those_of_the_twin_and_no_key_is_lost(
    policy: str, data: Any, shards: int, seed: int
) -> None:
    f = ShardedFilter(60, policy=policy, shards=shards, bits_per_key=20, seed=seed)
    g, twin, other = f.copy(), twin_of(f), twin_of(f)
    added: set[object] = set()
    for _ in range(data.draw(st.integers(1, 4))):
        keys = data.draw(st.lists(KEYS, max_size=30))
        how = data.draw(st.sampled_from(["one", "many", "merge"]))
        added |= set(keys)
        if how == "merge":
            g.add_many(keys, threads=2)
            for key in keys:
                other.add(key)
            f |= g
            twin.merge(other)
        else:
            for key in keys:
                twin.add(key)
                if how == "one":
                    f.add(key)
            if how == "many":
                f.add_many(keys)
    assert [bytes(memoryview(part)) for part in f.parts] == twin.payloads()
    assert all(key in f for key in added)
    asked = [*added, *data.draw(st.lists(KEYS, max_size=20))]
    assert f.contains_many(asked).tolist() == [key in twin for key in asked]
    f._check()
