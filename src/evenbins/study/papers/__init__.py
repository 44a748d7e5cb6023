"""The papers' tables and figures, each as an experiment that can be run again.

    evenbins reproduce --list            what there is
    evenbins reproduce kanizo-fig5       the paper's numbers beside ours

An experiment is a function from a `Context` to rows, under a decorator that gives it a name:

    @experiment("kanizo-fig2", title="...", plot=lines(x="reads"))
    def fig2(context: Context) -> Iterator[Row]:
        yield row("P(8)", 0.14, reads=1.1)

It stands in the module of its paper (`kanizo`), which is imported when experiments are first asked for; a new
paper is a module and one line in `registry.PAPERS`.

    registry.py    rows, experiments, how to find and run them
    simulation.py  the balancing schemes by simulation, over the C++ core
    plots.py       figures (matplotlib)       table.py  tables for people (rich)
    kanizo.py      the experiments
"""

from evenbins.study.papers.registry import (
    PAPERS,
    Context,
    Experiment,
    Result,
    Row,
    UnknownExperimentError,
    experiment,
    experiments,
    measured,
    row,
    run,
    select,
)

__all__ = [
    "PAPERS",
    "Context",
    "Experiment",
    "Result",
    "Row",
    "UnknownExperimentError",
    "experiment",
    "experiments",
    "measured",
    "row",
    "run",
    "select",
]
