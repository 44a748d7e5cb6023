"""Experiments: what they give, how they are found, how they are run.

    names ──select──▶ Experiment ──run──▶ Result ──to_dict──▶ JSON
                                            └── rows ──▶ table, plot

A row compares one number of a paper with ours. Its form is a contract with other programs (`--json`):
`where` names the point, by the library's parameter names; `quantity` the number; `paper` is what the paper
prints, or None; `ours` is finite; `sd` is the standard deviation over trials, None where nothing was drawn.
A quantity with a plain name (`fpr`) was measured, or is exact; a suffix (`fpr_formula`) names another view of
it beside, mostly a prediction.

Invariants
- Rows depend on the experiment, `seed`, `quick` and `options` alone: not on threads, nor on what ran before.
- Within one experiment, where and quantity name a row: no two rows share both.
"""

from __future__ import annotations

import difflib
import fnmatch
import math
import operator
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

import evenbins
from evenbins.errors import EvenbinsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "PAPERS", "Context", "Experiment", "Plot", "Result", "Row", "UnknownExperimentError", "Value",
    "experiment", "experiments", "measured", "row", "run", "select",
]  # fmt: skip

_T = TypeVar("_T")

Value = str | int | float | bool
Plot = Callable[["Figure", Sequence["Row"]], None]

_PLACES = {
    "fig": "Figure", "table": "Table", "sec": "Section", "app": "Appendix", "thm": "Theorem",
}  # fmt: skip
PAPERS = {
    "kanizo": "Kanizo, Hay, Keslassy: Access-efficient balanced Bloom filters",
    "kirsch": "Kirsch: Hash-Based Data Structures for Extreme Conditions",
    "chen": "Chen, Coleman, Shrivastava: Revisiting consistent hashing with bounded loads",
}
"""Short names and titles of the papers; experiments of a paper are called `NAME-...`."""

_MODULES = (
    "kanizo",
    "kirsch",
    "kirsch_summaries",
    "kirsch_tables",
    "kirsch_moves",
    "chen",
    "chen_figures",
    "chen_cache",
)
"""Where the experiments are, in the order of the papers."""


@dataclass(frozen=True)
class Row:
    """One number: where, what, the paper's, ours."""

    where: Mapping[str, Value]
    quantity: str
    paper: float | None
    ours: float
    sd: float | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        for name in ("paper", "ours", "sd"):
            number = getattr(self, name)
            if number is None and name != "ours":
                continue
            number = float(number)  # NumPy's numbers become Python's
            if not math.isfinite(number):
                raise ValueError(
                    f"{name} must be finite, not {number}: {self.quantity} at {dict(self.where)}"
                )
            object.__setattr__(self, name, number)


def row(
    quantity: str,
    ours: float,
    *,
    paper: float | None = None,
    sd: float | None = None,
    note: str | None = None,
    **where: Value,
) -> Row:
    """Make a row; the other keywords say where.

    >>> row("overflow", 0.00587, paper=0.01, policy="sequential", reads=1.1).where
    {'policy': 'sequential', 'reads': 1.1}
    """
    return Row(where, quantity, paper, ours, sd, note)


def measured(
    quantity: str,
    samples: npt.ArrayLike,
    *,
    paper: float | None = None,
    note: str | None = None,
    **where: Value,
) -> Row:
    """Make a row from the numbers of several trials: their mean, and their standard deviation.

    >>> measured("reads", [1.0, 2.0, 3.0], policy="sequential")
    Row(where={'policy': 'sequential'}, quantity='reads', paper=None, ours=2.0, sd=1.0, note=None)
    """
    numbers = np.asarray(samples, dtype=float)
    sd = float(numbers.std(ddof=1)) if numbers.size > 1 else None
    return Row(where, quantity, paper, float(numbers.mean()), sd, note)


def _no_progress(done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class Context:
    """What an experiment may know: how much to do, where its randomness comes from, whom to tell.

    Parameters
    ----------
    id
        The experiment's own id; part of its streams of randomness.
    seed
        Of all randomness, 0 to 2**64-1.
    quick
        Fewer trials: a look, not a result.
    threads
        Threads for what can use them.
    progress
        Called with (done, total) as the work goes on.
    options
        What the experiment was given beside, such as a trace; only names it declares.
    """

    id: str
    seed: int = 1
    quick: bool = False
    threads: int = 1
    progress: Callable[[int, int], None] = _no_progress
    options: Mapping[str, Any] = field(default_factory=dict)

    def pick(self, full: _T, quick: _T) -> _T:
        """Return the first, or the second if it shall be quick."""
        return quick if self.quick else full

    def stream(self, *labels: Value) -> int:
        """Return 64 bits that depend on seed, experiment and labels: the seed of one of its parts."""
        return evenbins.digest("/".join([self.id, *map(str, labels)]), seed=self.seed)

    def rng(self, *labels: Value) -> np.random.Generator:
        """Return a generator of NumPy's for one part of the experiment."""
        return np.random.default_rng(self.stream(*labels))

    def track(self, items: Iterable[_T]) -> Iterator[_T]:
        """Go through the items, telling the progress."""
        everything = list(items)
        for done, each in enumerate(everything):
            self.progress(done, len(everything))
            yield each
        self.progress(len(everything), len(everything))


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    Parameters
    ----------
    id
        Its name: the paper's short name, a hyphen, the table or figure.
    source
        Where it stands in the paper.
    title
        What it shows, in one line.
    rows
        The function that does it.
    plot
        Draws rows into a figure.
    options
        Names of the options it takes beside those of every experiment.
    """

    id: str
    source: str
    title: str
    rows: Callable[[Context], Iterable[Row]]
    plot: Plot
    options: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Result:
    """What an experiment gave."""

    id: str
    source: str
    seed: int
    quick: bool
    seconds: float
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON's types, in the form that `evenbins reproduce --json` prints."""
        return asdict(self) | {
            "seconds": round(self.seconds, 3),
            "rows": [asdict(each) for each in self.rows],
        }


class UnknownExperimentError(EvenbinsError, LookupError):
    """No experiment has this name."""


_registered: dict[str, Experiment] = {}


def experiment(
    id: str, *, title: str, plot: Plot, source: str | None = None, options: Iterable[str] = ()
) -> Callable[[Callable[[Context], Iterable[Row]]], Callable[[Context], Iterable[Row]]]:
    """Register a function as an experiment; parameters as for `Experiment`.

    The source follows from the id if it is left out: that of "kanizo-fig4a" is "kanizo, Figure 4(a)".

    Raises
    ------
    ValueError
        If the id does not begin with a paper's name and a hyphen, or is taken.
    """
    if id.split("-")[0] not in PAPERS or "-" not in id:
        raise ValueError(f"id must be one of {', '.join(PAPERS)}, a hyphen and the rest, not {id!r}")
    if id in _registered:
        raise ValueError(f"id {id!r} is taken by {_registered[id].rows.__qualname__}: choose another")

    def register(function: Callable[[Context], Iterable[Row]]) -> Callable[[Context], Iterable[Row]]:
        _registered[id] = Experiment(id, source or _source_of(id), title, function, plot, frozenset(options))
        return function

    return register


def _source_of(id: str) -> str:
    paper, _, place = id.partition("-")
    found = re.fullmatch(r"([a-z]+)([A-Z]|[\d.]+)([a-z]?)", place)
    if found is None or found[1] not in _PLACES:
        raise ValueError(f"source is missing: {place!r} is not one of {', '.join(_PLACES)} with a number")
    return f"{paper}, {_PLACES[found[1]]} {found[2]}" + (f"({found[3]})" if found[3] else "")


def experiments() -> dict[str, Experiment]:
    """Return all experiments by id, in the order of the papers."""
    for module in _MODULES:
        import_module(f"evenbins.study.papers.{module}")
    return dict(_registered)


def select(names: Iterable[str]) -> list[Experiment]:
    """Return the experiments of these names, each once, in this order.

    Parameters
    ----------
    names
        Ids; short names of papers, for all of theirs; patterns such as ``kanizo-fig*``.

    Raises
    ------
    UnknownExperimentError
        If a name fits no experiment; the message lists those close to it.
    """
    known = experiments()
    chosen: dict[str, Experiment] = {}
    for name in names:
        if name in known:
            fitting = [name]
        elif name in PAPERS:
            fitting = [id for id in known if id.startswith(f"{name}-")]
        else:
            fitting = fnmatch.filter(known, name)
        if not fitting:
            close = [id for id in known if id.partition("-")[2] == name]  # without its paper's name
            close = close or difflib.get_close_matches(name, [*known, *PAPERS], n=4)
            hint = f"did you mean {', '.join(close)}? " if close else ""
            raise UnknownExperimentError(f"no experiment {name!r}: {hint}--list lists all")
        chosen |= {id: known[id] for id in fitting}
    return list(chosen.values())


def run(
    experiment: Experiment | str,
    *,
    seed: int = 1,
    quick: bool = False,
    threads: int = 1,
    progress: Callable[[int, int], None] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Result:
    """Run an experiment.

    Parameters
    ----------
    experiment
        An experiment, or its id.
    seed, quick, threads, progress, options
        As for `Context`.

    Raises
    ------
    UnknownExperimentError
        If no experiment has this id.
    ValueError
        If an argument is out of its range, or the experiment does not take an option.

    Examples
    --------
    >>> from evenbins.study import papers
    >>> result = papers.run("kanizo-fig2", quick=True)
    >>> result.source, result.rows[0].quantity
    ('kanizo, Figure 2', 'P(0)')
    """
    if isinstance(experiment, str):
        known = experiments()
        experiment = known[experiment] if experiment in known else _select_one(experiment)
    seed, threads = operator.index(seed), operator.index(threads)
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be 0 to 2**64-1, not {seed}")
    if threads < 1:
        raise ValueError(f"threads must be 1 or more, not {threads}")
    given = dict(options or {})
    for name in given:
        if name not in experiment.options:
            takers = [each.id for each in experiments().values() if name in each.options]
            remedy = f"{', '.join(takers)} take it" if takers else "no experiment takes it"
            raise ValueError(f"option {name!r} is not for {experiment.id}: {remedy}")
    context = Context(experiment.id, seed, bool(quick), threads, progress or _no_progress, given)
    begun = time.perf_counter()
    rows = tuple(experiment.rows(context))
    seconds = time.perf_counter() - begun
    return Result(experiment.id, experiment.source, seed, bool(quick), seconds, rows)


def _select_one(name: str) -> Experiment:
    """Resolve a name that is no id; it must still mean one experiment."""
    chosen = select([name])
    if len(chosen) > 1:
        raise UnknownExperimentError(
            f"{name!r} is several experiments: run those of select([{name!r}]) in turn"
        )
    return chosen[0]
