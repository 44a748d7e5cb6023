"""The shared filter against what people write first: a Bloom filter by GETBIT and SETBIT, on the same server.

    naive, bits       k GETBIT or SETBIT commands a key, in pipelines of the best size found
    naive, BITFIELD   one command a key with k sub-commands, in pipelines of the best size found

Same client library, same false-positive rate, same server: started here on loopback, without persistence. The
naive filters get their positions from the same code, so that the difference is in what goes over the network.
Single calls of the naive filters are one pipeline, or one command. Without the package hiredis the client
parses replies in Python, which is most of the naive filters'
time; ours has few replies. Loopback has no latency: on a network, single calls are counted in round trips.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Case, Contender, MissingPeerError, Target, import_peer
from benchmarks.shared import FULL, Sizes, int_keys, main_of
from evenbins.cluster import RedisFilter
from evenbins.filters import FilterPlan, plan_balanced, plan_blocked, plan_standard
from evenbins.hashing import digest, digest_many, mulhi, mulhi_many, splitmix, splitmix_many

__all__ = ["main_redis", "redis_cases", "running_server"]

BITS_PER_KEY = 24
BATCHES = (20, 100, 500, 2000)


@contextlib.contextmanager
def running_server(*options: str) -> Iterator[int]:
    """Start a Redis server of its own on loopback, without persistence, and give its port."""
    redis = import_peer("redis", "redis")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no",
            "--dir", folder, *options,
        ]  # fmt: skip
        try:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        except FileNotFoundError as error:
            raise MissingPeerError(
                "the program redis-server is missing: apt-get install redis-server"
            ) from error
        try:
            deadline = time.monotonic() + 20
            while True:
                with contextlib.suppress(redis.ConnectionError), redis.Redis("127.0.0.1", port) as client:
                    client.ping()
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("redis-server does not come up")
                time.sleep(0.02)
            yield port
        finally:
            process.kill()
            process.wait()


class _Naive:
    """A standard Bloom filter in one string value; a subclass says by which commands."""

    label: str

    def __init__(self, client: Any, plan: FilterPlan) -> None:
        self.client, self.plan = client, plan
        self.key = f"naive:{type(self).__name__}"
        self.batch = 100

    def clear(self) -> None:
        self.client.delete(self.key)
        self.client.setbit(self.key, self.plan.core[0] - 1, 0)

    def _positions(self, keys: object) -> list[list[int]]:
        bits, hashes = self.plan.core
        digests = digest_many(keys)
        found = np.stack([mulhi_many(splitmix_many(digests, i), bits) for i in range(hashes)], axis=1)
        return found.tolist()  # type: ignore[no-any-return]

    def add_many(self, keys: object) -> None:
        positions = self._positions(keys)
        for start in range(0, len(positions), self.batch):
            pipeline = self.client.pipeline(transaction=False)
            for each in positions[start : start + self.batch]:
                self._set(pipeline, each)
            pipeline.execute()

    def contains_many(self, keys: object) -> npt.NDArray[np.bool_]:
        positions = self._positions(keys)
        answers = np.empty(len(positions), np.bool_)
        for start in range(0, len(positions), self.batch):
            part = positions[start : start + self.batch]
            pipeline = self.client.pipeline(transaction=False)
            for each in part:
                self._get(pipeline, each)
            bits = np.array(pipeline.execute(), np.bool_).reshape(len(part), -1)
            answers[start : start + len(part)] = bits.all(axis=1)
        return answers

    def _positions_of_one(self, key: int) -> list[int]:
        bits, hashes = self.plan.core
        found = digest(key)
        return [mulhi(splitmix(found, i), bits) for i in range(hashes)]

    def add(self, key: int) -> None:
        pipeline = self.client.pipeline(transaction=False)
        self._set(pipeline, self._positions_of_one(key))
        pipeline.execute()

    def contains(self, key: int) -> bool:
        pipeline = self.client.pipeline(transaction=False)
        self._get(pipeline, self._positions_of_one(key))
        return all(pipeline.execute())

    def tune(self, keys: Any) -> None:
        """Find the best number of keys in a pipeline."""
        times = {}
        for self.batch in BATCHES:
            begun = time.perf_counter()
            self.contains_many(keys[: max(BATCHES)])
            times[self.batch] = time.perf_counter() - begun
        self.batch = min(times, key=times.__getitem__)

    def _set(self, pipeline: Any, positions: Sequence[int]) -> None:
        raise NotImplementedError

    def _get(self, pipeline: Any, positions: Sequence[int]) -> None:
        raise NotImplementedError


class _Bits(_Naive):
    label = "naive, GETBIT and SETBIT"

    def _set(self, pipeline: Any, positions: Sequence[int]) -> None:
        for position in positions:
            pipeline.setbit(self.key, position, 1)

    def _get(self, pipeline: Any, positions: Sequence[int]) -> None:
        for position in positions:
            pipeline.getbit(self.key, position)


class _BitField(_Naive):
    label = "naive, BITFIELD"

    def _set(self, pipeline: Any, positions: Sequence[int]) -> None:
        arguments = [item for position in positions for item in ("SET", "u1", position, 1)]
        pipeline.execute_command("BITFIELD", self.key, *arguments)

    def _get(self, pipeline: Any, positions: Sequence[int]) -> None:
        arguments = [item for position in positions for item in ("GET", "u1", position)]
        pipeline.execute_command("BITFIELD", self.key, *arguments)

    def add(self, key: int) -> None:
        self._set(_Direct(self.client), self._positions_of_one(key))

    def contains(self, key: int) -> bool:
        client = _Direct(self.client)
        self._get(client, self._positions_of_one(key))
        return all(client.reply)


class _Direct:
    """A command sent at once: cheaper than a pipeline of one."""

    reply: list[int]

    def __init__(self, client: Any) -> None:
        self.client = client

    def execute_command(self, *command: Any) -> None:
        self.reply = self.client.execute_command(*command)


class _Ours:
    def __init__(self, client: Any, plan: FilterPlan, label: str, traverse_on: str = "client") -> None:
        self.client, self.plan, self.label, self.traverse_on = client, plan, label, traverse_on
        self.name = f"bench-{plan.policy}-{traverse_on}"
        self.filter = RedisFilter.create(client, self.name, plan, traverse_on=traverse_on)

    def clear(self) -> None:
        RedisFilter.delete(self.client, self.name)
        self.filter = RedisFilter.create(self.client, self.name, self.plan, traverse_on=self.traverse_on)

    def add_many(self, keys: object) -> None:
        self.filter.add_many(keys)

    def contains_many(self, keys: object) -> npt.NDArray[np.bool_]:
        return self.filter.contains_many(keys)

    def add(self, key: int) -> None:
        self.filter.add(key)

    def contains(self, key: int) -> bool:
        return self.filter.contains(key)


def redis_cases(sizes: Sizes = FULL) -> Iterator[Case]:
    """Return the cases of this module, one at a time."""
    redis = import_peer("redis", "redis")
    with running_server() as port, redis.Redis("127.0.0.1", port) as client:
        yield from _cases(client, sizes.scalar_keys // 10, sizes.scalar_keys // 2000)


def _cases(client: Any, many: int, few: int) -> Iterator[Case]:
    multilevel = plan_balanced(many, bits_per_key=BITS_PER_KEY, policy="multilevel")
    naive = plan_standard(many, fpr=multilevel.fpr)
    others = [_Bits(client, naive), _BitField(client, naive)]
    two_choice = plan_balanced(many, fpr=multilevel.fpr, policy="two-choice")
    ours = [
        _Ours(client, multilevel, "evenbins, multilevel"),
        _Ours(client, multilevel, 'evenbins, multilevel, traverse_on="server"', "server"),
        _Ours(client, two_choice, "evenbins, two-choice"),
        _Ours(client, plan_blocked(many, fpr=multilevel.fpr), "evenbins, blocked"),
    ]
    present, absent = (each.column for each in int_keys(many, many))
    half = np.concatenate([present[: many // 2], absent[: many // 2]])
    subjects: list[Any] = [*ours, *others]
    for each in subjects:
        each.clear()
        each.add_many(present)
    for each in others:
        each.tune(present)
    found = {each.label: each.contains_many(absent) for each in subjects}
    bits = {each.label: 8 * each.filter.nbytes for each in ours} | dict.fromkeys(
        (each.label for each in others), naive.core[0]
    )
    facts = {
        label: {"FPR": float(answers.mean()), "bits/key": bits[label] / many}
        for label, answers in found.items()
    }

    def case(
        name: str,
        work: Callable[[Any], object],
        operations: int,
        at_least: float,
        check: Callable[[Any], bool],
        prepare: Callable[[Any], object] | None = None,
    ) -> Case:
        naive_bits, naive_field = others
        return Case(
            name=name,
            contenders={
                each.label: Contender(
                    run=partial(work, each),
                    prepare=None if prepare is None else partial(prepare, each),
                    check=check,
                    facts=facts[each.label],
                )
                for each in subjects
            },
            operations=operations,
            targets=[
                Target(
                    text=f"≥ {at_least:g} × the naive filter by GETBIT and SETBIT",
                    against=(naive_bits.label,),
                    at_least=at_least,
                ),
                Target(
                    text=f"≥ {at_least / 2:g} × the naive filter by BITFIELD",
                    against=(naive_field.label,),
                    at_least=at_least / 2,
                ),
            ],
            notes=f"capacity {many:,}, the naive filter with {naive.hashes} hashes; pipelines of "
            f"{naive_bits.batch} and {naive_field.batch} keys for the naive ones; redis-server on loopback.",
        )

    yield case(
        f"Redis, contains_many, {many:,} keys, half of them present",
        lambda subject: subject.contains_many(half),
        many,
        10,
        lambda answers: bool(answers[: many // 2].all()) and answers.sum() < many // 2 + many // 100 + 20,
    )
    singles = half[many // 2 - few // 2 : many // 2 + few // 2].tolist()
    yield case(
        f"Redis, one by one, {few:,} look-ups, half of them present",
        lambda subject: [subject.contains(key) for key in singles],
        few,
        2,
        lambda answers: all(answers[: few // 2]),
    )

    def add_singly(subject: Any) -> None:
        for key in present[many // 2 : many // 2 + few].tolist():
            subject.add(key)

    def half_full(subject: Any) -> None:
        subject.clear()
        if isinstance(subject, _Ours):  # how full a naive one is makes no difference
            subject.add_many(present[: many // 2])

    yield case(
        f"Redis, one by one, {few:,} adds to a filter half full",
        add_singly,
        few,
        2,
        lambda _: True,
        half_full,
    )
    yield case(
        f"Redis, add_many, {many:,} keys",
        lambda subject: subject.add_many(present),
        many,
        10,
        lambda _: True,
        lambda subject: subject.clear(),
    )


def main_redis(
    quick: bool = False, rounds: int | None = None, json_path: str | None = None, markdown: bool = False
) -> int:
    """Run the cases, print the tables, write the JSON; the exit status: 0, or 2 if it cannot run."""
    return main_of("redis", redis_cases, {"redis": "redis"}, quick, rounds, json_path, markdown)
