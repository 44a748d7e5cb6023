"""The multilevel table against a dict and the fastest tables of PyPI: the same random keys and values.

    peer      insert                              get
    dict      d[k] = v in a loop                  map of d.__getitem__
    cykhash   Int64toInt64Map_from_buffers        Int64toInt64Map_to
    hirola    HashTable(n * 1.25).add             get, then values[index]
    pandas    Index(keys), its engine built       get_indexer, then values.take

Each by its fastest public interface; lists for the dict are made off the clock. hirola and pandas give an
index, which fetches the value from an array. pandas' engine is made of a whole array and takes no further
key; the others do. Look-ups are of all keys, each once, in random order.

`latency` times single insertions from C++, where nothing of Python is in the way, beside std::unordered_map,
which grows as it fills: the plot shows what "no operation is O(n)" means.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Case, Contender, Limit, Target, import_peer
from benchmarks.shared import FULL, QUICK, SEED, Sizes, count_text, main_of
from evenbins import _core
from evenbins.tables import MultilevelTable, plan_multilevel

__all__ = ["latency", "main_tables", "plot_latency", "table_cases"]

_OURS = "evenbins least-loaded"
_BULK = ("cykhash", "hirola", "pandas")
_PEERS = {"cykhash": "cykhash", "hirola": "hirola", "pandas": "pandas"}

Words = npt.NDArray[np.uint64]


class _Contestant:
    """A way to map the keys to the values; `bytes_per_key` of what it holds, where it says so."""

    def __init__(self, keys: Words, values: Words) -> None:
        self.keys, self.values = keys, values
        self.order: Words = np.random.default_rng(SEED + 1).permutation(keys)

    def insert(self) -> object:
        raise NotImplementedError

    def get(self, made: Any) -> object:
        raise NotImplementedError


class _Ours(_Contestant):
    def insert(self) -> MultilevelTable:
        made = MultilevelTable(len(self.keys), key_dtype="uint64", value_dtype="uint64")
        made.insert_many(self.keys, self.values)
        return made

    def get(self, made: MultilevelTable) -> object:
        return made.get_many(self.order)


class _Dict(_Contestant):
    def __init__(self, keys: Words, values: Words) -> None:
        super().__init__(keys, values)
        self.items = list(zip(keys.tolist(), values.tolist(), strict=True))
        self.asked = self.order.tolist()

    def insert(self) -> dict[int, int]:
        made = {}
        for key, value in self.items:
            made[key] = value
        return made

    def get(self, made: dict[int, int]) -> object:
        return list(map(made.__getitem__, self.asked))


class _Cykhash(_Contestant):
    def insert(self) -> Any:
        module = import_peer("cykhash", "cykhash")
        return module.Int64toInt64Map_from_buffers(self.keys.view(np.int64), self.values.view(np.int64))

    def get(self, made: Any) -> object:
        out = np.empty(len(self.order), np.int64)
        import_peer("cykhash", "cykhash").Int64toInt64Map_to(made, self.order.view(np.int64), out)
        return out


class _Hirola(_Contestant):
    def insert(self) -> Any:
        made = import_peer("hirola", "hirola").HashTable(len(self.keys) * 5 // 4 + 1, np.uint64)
        made.add(self.keys)
        return made

    def get(self, made: Any) -> object:
        return self.values[made.get(self.order)]


class _Pandas(_Contestant):
    def insert(self) -> Any:
        made = import_peer("pandas", "pandas").Index(self.keys)
        made.get_indexer(self.keys[:1])  # builds the engine
        return made

    def get(self, made: Any) -> object:
        return self.values.take(made.get_indexer(self.order))


_KINDS: dict[str, type[_Contestant]] = {
    _OURS: _Ours, "dict": _Dict, "cykhash": _Cykhash, "hirola": _Hirola, "pandas": _Pandas
}  # fmt: skip


def table_cases(sizes: Sizes = FULL, *, peers: bool = True) -> Iterator[Case]:
    """Return the cases of this module, one at a time."""
    count = sizes.bulk_keys
    keys = np.unique(np.random.default_rng(SEED).integers(0, 2**63, count + count // 1000, dtype=np.uint64))
    keys = np.random.default_rng(SEED + 2).permutation(keys)[:count]
    values = np.arange(count, dtype=np.uint64)
    contestants = {label: kind(keys, values) for label, kind in _KINDS.items() if peers or label == _OURS}
    made: dict[str, Any] = {}
    expected = values[np.argsort(keys)][np.searchsorted(np.sort(keys), contestants[_OURS].order)]

    def keep(label: str) -> Callable[[Any], bool]:
        def check(found: Any) -> bool:
            made[label] = found
            return True

        return check

    def drop(label: str) -> Callable[[], None]:
        def prepare() -> None:
            made.pop(label, None)

        return prepare

    def right(found: Any) -> bool:
        return bool((np.asarray(found).view(np.uint64) == expected).all())

    notes = f"{count_text(count)} random uint64 to uint64; one thread. Lists of Python ints off the clock."
    yield Case(
        name=f"insert_many, {count_text(count)} uint64",
        contenders={
            label: Contender(run=each.insert, prepare=drop(label), check=keep(label))
            for label, each in contestants.items()
        },
        operations=count,
        targets=[
            Target(text="≥ 6 × faster than a dict in a loop", against=["dict"], at_least=6.0),
            Target(text="≥ 1.5 × faster than the fastest peer", against=_BULK, at_least=1.5),
        ],
        notes=notes,
    )
    yield Case(
        name=f"get_many, {count_text(count)} random present uint64",
        contenders={
            label: Contender(run=lambda label=label, each=each: each.get(made[label]), check=right)  # type: ignore[misc]
            for label, each in contestants.items()
        },
        operations=count,
        targets=[
            Target(text="≥ 10 × faster than a dict in a loop", against=["dict"], at_least=10.0),
            Target(text="≥ 2 × faster than the fastest peer", against=_BULK, at_least=2.0),
        ],
        notes=notes,
    )
    ours: MultilevelTable = made[_OURS]
    yield Case(
        name=f"memory, {count_text(count)} uint64 to uint64",
        contenders={_OURS: Contender(run=lambda: ours.nbytes / count)},
        unit="bytes/key",
        targets=[Limit(text="≤ 17.5 bytes per key, list and metadata included", at_most=17.5)],
        once=True,
        notes=f"A dict of the same takes {_dict_bytes(made['dict']) / count:.0f}, its int objects included."
        if peers
        else "",
    )
    made.clear()
    times = latency(count)
    yield Case(
        name=f"worst of {count_text(count)} single insertions, from C++",
        contenders={
            label: Contender(
                run=lambda ns=ns: float(ns.max()) / 1e3,  # type: ignore[misc]
                facts={"median ns": float(np.median(ns)), "99.9999 % ns": float(np.quantile(ns, 0.999999))},
            )
            for label, ns in times.items()
        },
        unit="µs",
        once=True,
        notes="One by one; the clock's own time, some 20 ns, is in it. The system may interrupt either.",
    )


def _dict_bytes(made: dict[int, int]) -> int:
    some = list(made.items())[:1000]
    objects = sum(sys.getsizeof(key) + sys.getsizeof(value) for key, value in some) / len(some)
    return sys.getsizeof(made) + round(objects * len(made))


def latency(count: int) -> dict[str, npt.NDArray[np.uint32]]:
    """Time each of `count` insertions, from C++: ours, and a table that grows. Nanoseconds, in order."""
    keys = np.random.default_rng(SEED).integers(0, 2**63, count, dtype=np.uint64)
    plan = plan_multilevel(count, key_dtype="uint64", value_dtype="uint64")
    return {
        _OURS: _core.time_insertions(plan.keys, plan.seed, list(plan.core), keys, keys),
        "std::unordered_map": _core.time_growing_insertions(keys, keys),
    }


def plot_latency(times: dict[str, npt.NDArray[np.uint32]], path: str) -> None:
    """Draw the fraction of insertions that take longer than a time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5))
    axes = figure.add_subplot()
    for label, ns in times.items():
        ordered = np.sort(ns)[::-1].astype(float)
        places = np.unique(np.geomspace(1, len(ordered), 2000).astype(int)) - 1
        axes.step(ordered[places] / 1e3, (places + 1) / len(ordered), where="post", label=label)
    axes.set(
        xscale="log", yscale="log", xlabel="microseconds", ylabel="fraction of insertions that take longer",
        title=f"{len(ns):_} single insertions",
    )  # fmt: skip
    axes.grid(True, alpha=0.3)
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


def main_tables(
    quick: bool = False,
    rounds: int | None = None,
    json_path: str | None = None,
    markdown: bool = False,
    plot: str | None = None,
) -> int:
    """Run the cases, print the tables, write the JSON; the exit status: 0, or 2 if it cannot run."""
    status = main_of("tables", table_cases, _PEERS, quick, rounds, json_path, markdown)
    if plot is not None and status == 0:
        plot_latency(latency((QUICK if quick else FULL).bulk_keys), plot)
        print(f"written: {plot}", file=sys.stderr)
    return status
