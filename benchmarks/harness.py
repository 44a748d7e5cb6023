"""Times contenders side by side and reports ratios: what every benchmark of this library runs on.

    round 1   A B C        each: prepare (untimed), run (timed), check (untimed)
    round 2   B C A        the start moves on, so that nobody always follows the same neighbour
    round 3   C A B
    best of   A B C   ──▶  ratio = best of the contender / best of the first one ──▶ target met or missed

All contenders of a case do the same number of operations in one process, so a busy moment of the machine
hits all of them; the best round is the one it disturbed least. Times depend on the machine, ratios much
less: targets are ratios. A contender's `check` sees what it returned, after the clock: a wrong answer
stops the run, since the time of a wrong answer means nothing.

Cases come as an iterable and are dropped one by one, so a generator holds the data of one at a time.

Invariants: the first contender of a case is ours. Less is better, whatever the unit. All rounds are in the
JSON, not only the best.

Tried and dropped: progress by rich's spinner. Its thread takes the GIL several times a second, inside
the measured calls too.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import evenbins

__all__ = [
    "Case",
    "Contender",
    "Limit",
    "MissingPeerError",
    "Report",
    "Result",
    "Target",
    "Verdict",
    "Within",
    "WrongAnswerError",
    "import_peer",
    "publish",
    "run",
]

_SCHEMA = 2
_READABLE = (1, 2)  # 1 had one target a case
_MAX_STRETCH = 10  # a cheap case gets at most this many times the rounds asked for


class MissingPeerError(ImportError):
    """A package to compare with is not installed."""


class WrongAnswerError(AssertionError):
    """A contender answered wrongly while it was timed."""


def import_peer(module: str, distribution: str) -> Any:
    """Import a package to compare with, or say how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPeerError(
            f"the benchmark compares with {distribution}, which cannot be imported ({error}): "
            "pip install -r benchmarks/requirements.txt, or name the peers you have with --peers"
        ) from error


# --- what to measure -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way to do the work of a case.

    Attributes
    ----------
    run : does the work once; where the case's unit is not "ns" it returns the measured number
    prepare : called before each run, off the clock (an empty filter, fresh keys)
    check : called after each run with what it returned, off the clock; False stops the benchmark
    facts : numbers shown beside the time, so that a reader sees whether the work is equal; `check` may
        fill them in
    """

    run: Callable[[], object]
    prepare: Callable[[], object] | None = None
    check: Callable[[Any], bool] | None = None
    facts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a target came out: its number, and the contender compared with (None: none).

    `met` is None if the number is beyond what is possible: then the machine was too busy to measure it.
    """

    number: float
    against: str | None
    met: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Ours must be at least this many times as fast as the fastest of some others.

    Attributes
    ----------
    text : the target in words
    against : labels; those that did not take part are passed over
    at_least : bound of (best of the fastest other) / (best of ours)
    ceiling : a ratio above this cannot be true, say two threads five times as fast as one
    of : the label of ours, if that is not the first contender
    """

    text: str
    against: Sequence[str]
    at_least: float
    ceiling: float | None = None
    of: str | None = None

    def judge(self, values: Mapping[str, float]) -> Verdict | None:
        """Compare; None if nobody to compare with took part."""
        ours = next(iter(values.values())) if self.of is None else values[self.of]
        others = {label: values[label] for label in self.against if label in values}
        if not others:
            return None
        fastest = min(others, key=others.__getitem__)
        ratio = others[fastest] / ours
        possible = self.ceiling is None or ratio <= self.ceiling
        return Verdict(ratio, fastest, ratio >= self.at_least if possible else None)

    @property
    def bound(self) -> str:
        """The bound as text."""
        return f"≥ {self.at_least:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the target as plain values."""
        return {
            "text": self.text,
            "among": list(self.against),
            "at_least": self.at_least,
            "ceiling": self.ceiling,
            "of": self.of,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """One contender must take at most this many times as long as another."""

    text: str
    of: str
    against: str
    at_most: float

    def judge(self, values: Mapping[str, float]) -> Verdict | None:
        """Compare the two."""
        ratio = values[self.of] / values[self.against]
        return Verdict(ratio, self.against, ratio <= self.at_most)

    @property
    def bound(self) -> str:
        """The bound as text."""
        return f"≤ {self.at_most:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the target as plain values."""
        return {"text": self.text, "of": self.of, "among": [self.against], "at_most": self.at_most}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """No contender's value may exceed a bound, in the unit of the case."""

    text: str
    at_most: float

    def judge(self, values: Mapping[str, float]) -> Verdict | None:
        """Compare the worst value with the bound."""
        worst = max(values.values())
        return Verdict(worst, None, worst <= self.at_most)

    @property
    def bound(self) -> str:
        """The bound as text."""
        return f"≤ {self.at_most:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the limit as plain values."""
        return {"text": self.text, "at_most": self.at_most}


Goal = Target | Within | Limit


def _goal_from(data: Mapping[str, Any]) -> Goal:
    if "at_most" in data and "of" in data:
        return Within(text=data["text"], of=data["of"], against=data["among"][0], at_most=data["at_most"])
    if "at_most" in data:
        return Limit(text=data["text"], at_most=data["at_most"])
    return Target(
        text=data["text"],
        against=tuple(data["among"]),
        at_least=data["at_least"],
        ceiling=data["ceiling"],
        of=data.get("of"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Contenders that do equal work, ours first; each target is a row of the table of targets.

    Attributes
    ----------
    name : what is measured
    contenders : label to contender; the first is ours
    operations : operations of one run, the same for all
    unit : "ns": the clock measures, per operation; anything else: `run` returns the number
    targets : what ours should reach; none: the case is reported as it comes out
    notes : how the others are configured, and in what they differ
    once : one round is enough: the number does not depend on the moment
    """

    name: str
    contenders: Mapping[str, Contender]
    operations: int = 1
    unit: str = "ns"
    targets: Sequence[Goal] = ()
    notes: str = ""
    once: bool = False

    def __post_init__(self) -> None:
        if not self.contenders:
            raise ValueError(f"case {self.name!r} has no contenders")
        if self.operations < 1:
            raise ValueError(f"case {self.name!r}: operations must be at least 1, not {self.operations}")


# --- measuring -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A measured case. `rounds` has every value of every contender, in the order of the rounds."""

    name: str
    unit: str
    operations: int
    notes: str
    rounds: Mapping[str, Sequence[float]]
    facts: Mapping[str, Mapping[str, float]]
    targets: Sequence[Goal]

    @property
    def best(self) -> dict[str, float]:
        """The best round of each contender."""
        return {label: min(values) for label, values in self.rounds.items()}

    @property
    def spreads(self) -> dict[str, float | None]:
        """Median round / best round of each contender: far above 1, the machine was busy with other work."""
        return {
            label: statistics.median(values) / min(values) if min(values) > 0 else None
            for label, values in self.rounds.items()
        }

    @property
    def ratios(self) -> dict[str, float | None]:
        """Best of each contender / best of the first; None where a limit binds each by itself."""
        best = self.best
        first = next(iter(best.values()))
        compared = first > 0 and not any(isinstance(each, Limit) for each in self.targets)
        return {label: value / first if compared else None for label, value in best.items()}

    @property
    def verdicts(self) -> list[Verdict | None]:
        """How each target came out; None with nobody to compare with."""
        return [each.judge(self.best) for each in self.targets]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        best, ratios = self.best, self.ratios
        return {
            "name": self.name,
            "unit": self.unit,
            "operations": self.operations,
            "notes": self.notes,
            "contenders": [
                {
                    "label": label,
                    "best": best[label],
                    "ratio": ratios[label],
                    "spread": self.spreads[label],
                    "rounds": list(values),
                    "facts": dict(self.facts[label]),
                }
                for label, values in self.rounds.items()
            ],
            "targets": [
                target.to_dict()
                | {
                    "number": None if verdict is None else verdict.number,
                    "against": None if verdict is None else verdict.against,
                    "met": None if verdict is None else verdict.met,
                }
                for target, verdict in zip(self.targets, self.verdicts, strict=True)
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """Rebuild from `to_dict`; what follows from the rounds is computed anew."""
        targets = data["targets"] if "targets" in data else [data["target"]]
        return cls(
            name=data["name"],
            unit=data["unit"],
            operations=data["operations"],
            notes=data["notes"],
            rounds={each["label"]: list(each["rounds"]) for each in data["contenders"]},
            facts={each["label"]: dict(each["facts"]) for each in data["contenders"]},
            targets=[_goal_from(each) for each in targets if each is not None],
        )


def run(
    cases: Iterable[Case],
    rounds: int = 3,
    *,
    seconds: float = 0.0,
    packages: Sequence[str] = (),
    quick: bool = False,
    progress: bool | None = None,
) -> Report:
    """Measure the cases one after the other.

    Parameters
    ----------
    cases
        Taken one at a time; a generator may build each when its turn comes.
    rounds
        Rounds of each case.
    seconds
        Cases whose measured time stays below this go on for more rounds, at most ten times as many:
        short runs need more of them to meet a quiet moment.
    packages
        Distributions whose versions belong into the report.
    quick
        Recorded in the report: the sizes were small.
    progress
        Show the current case and round on stderr; by default if that is a terminal.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    show = sys.stderr.isatty() if progress is None else progress
    environment = _environment(packages)  # before the work: the load average should be the others'
    results = []
    for case in cases:
        results.append(_measure(case, rounds, seconds, show))
        del case  # its data go before the generator makes the next
    if show:
        _say("")
    environment["machine"]["load_average_after"] = os.getloadavg()[0]
    return Report(results=results, rounds=rounds, quick=quick, **environment)


def _measure(case: Case, rounds: int, seconds: float, show: bool) -> Result:
    labels = list(case.contenders)
    values: dict[str, list[float]] = {label: [] for label in labels}
    spent = 0.0
    if case.once:
        rounds, seconds = 1, 0.0
    gc.collect()
    for turn in range(rounds * _MAX_STRETCH):
        if turn >= rounds and spent >= seconds:
            break
        if show:
            _say(f"{case.name}: round {turn + 1}")
        start = turn % len(labels)
        for label in labels[start:] + labels[:start]:
            elapsed, value = _run_once(case, label)
            spent += elapsed
            values[label].append(value)
    return Result(
        name=case.name,
        unit=case.unit,
        operations=case.operations,
        notes=case.notes,
        rounds=values,
        facts={label: dict(each.facts) for label, each in case.contenders.items()},
        targets=case.targets,
    )


def _run_once(case: Case, label: str) -> tuple[float, float]:
    """Run one contender once: elapsed seconds, and the value in the case's unit."""
    contender = case.contenders[label]
    if contender.prepare is not None:
        contender.prepare()
    collecting = gc.isenabled()
    gc.disable()  # as timeit does: a collection would hit whoever happens to be running
    try:
        start = time.perf_counter()
        answer = contender.run()
        elapsed = time.perf_counter() - start
    finally:
        if collecting:
            gc.enable()
    if contender.check is not None and not contender.check(answer):
        raise WrongAnswerError(f"{case.name}: {label} gave a wrong answer")
    if case.unit == "ns":
        return elapsed, elapsed * 1e9 / case.operations
    return elapsed, float(answer)  # type: ignore[arg-type]  # the contract of `run` for other units


def _say(line: str) -> None:
    sys.stderr.write(f"\r\x1b[K{line}")
    sys.stderr.flush()


# --- where it was measured -------------------------------------------------------------------------


def _environment(packages: Sequence[str]) -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in dict.fromkeys(["numpy", "evenbins", *packages])}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "kernel": evenbins.kernel(),
            "memory_bytes": _memory_bytes(),
            "huge_pages": _huge_pages(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "load_average": os.getloadavg()[0],
        },
        "versions": versions,
        "commit": _commit(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _huge_pages() -> str | None:
    """Return the kernel's setting of transparent huge pages: always, madvise or never."""
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return None
    return text.partition("[")[2].partition("]")[0] or None


def _commit() -> str | None:
    """Return the commit of the checkout this package runs from, with "+" if files differ from it."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        # No optional locks: reading must not write into somebody's repository.
        command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        top = Path(git("rev-parse", "--show-toplevel"))
        if not (top / "src" / "evenbins" / "__init__.py").exists():
            return None  # installed inside some other project's folder
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", str(top)) else "")
    except (OSError, subprocess.SubprocessError):
        return None


# --- the report ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was measured, where and with what."""

    results: Sequence[Result]
    date: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    commit: str | None
    rounds: int
    quick: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        return {
            "schema": _SCHEMA,
            "date": self.date,
            "quick": self.quick,
            "rounds": self.rounds,
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "commit": self.commit,
            "cases": [result.to_dict() for result in self.results],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """Rebuild a report from `to_dict`, or from the JSON that `write_json` wrote."""
        if data.get("schema") not in _READABLE:
            raise ValueError(
                f"the report has schema {data.get('schema')!r}; this version of evenbins reads "
                f"{' and '.join(map(str, _READABLE))}: run the benchmark again"
            )
        return cls(
            results=[Result.from_dict(each) for each in data["cases"]],
            date=data["date"],
            machine=data["machine"],
            versions=data["versions"],
            commit=data["commit"],
            rounds=data["rounds"],
            quick=data["quick"],
        )

    def write_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict()` to a file."""
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    def print(self) -> None:
        """Print the tables on a terminal."""
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        # Not a terminal: as wide as the content wants, not rich's 80 columns.
        console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
        for title, header, rows in (self._detail_table(), self._target_table()):
            table = Table(title=title, title_justify="left", header_style="bold")
            for name in header:
                table.add_column(name, justify="right" if name in _NUMBERS else "left", overflow="fold")
            for row, following in zip(rows, [*rows[1:], None], strict=True):
                new_case = following is not None and "" in (row[0], following[0]) and following[0] != ""
                cells = (f"[{_COLOURS[cell]}]{cell}" if cell in _COLOURS else escape(cell) for cell in row)
                table.add_row(*cells, end_section=new_case)
            console.print(table)
        for names, note in self._notes():
            console.print(f"[bold]{escape(names)}[/bold]: {escape(note)}")
        console.print(escape(self._caption()))

    def to_markdown(self, *, details: bool = True) -> str:
        """Return the table of targets for a document, with `details` that of all contenders.

        Without `details` the cases that have no target come in a table of one line each.
        """
        parts = []
        for title, header, rows in (
            self._target_table(),
            self._detail_table() if details else self._other_table(),
        ):
            if not rows:
                continue
            right = ["---:" if name in _NUMBERS else "---" for name in header]
            lines = [header, right, *rows]
            table = "\n".join("| " + " | ".join(_escaped(cell) for cell in line) + " |" for line in lines)
            parts.append(f"**{title}**\n\n{table}")
        if details and (notes := self._notes()):
            parts.append("\n".join(f"- {name}: {note}" for name, note in notes))
        parts.append(self._caption())
        return "\n\n".join(parts) + "\n"

    def targets(self) -> list[list[str]]:
        """Return a row for each target: case, target, bound, measured, against whom, verdict."""
        rows = []
        for result in self.results:
            for target, verdict in zip(result.targets, result.verdicts, strict=True):
                measured, against, met = "–", "–", "not measured"
                if verdict is not None:
                    measured = _number(verdict.number)
                    against = verdict.against or f"{result.unit}, worst of all"
                    met = {True: "met", False: "missed", None: "too noisy"}[verdict.met]
                rows.append([result.name, target.text, target.bound, measured, against, met])
        return rows

    def _target_table(self) -> tuple[str, list[str], list[list[str]]]:
        return "Targets", ["what", "target", "bound", "measured", "against", "verdict"], self.targets()

    def _other_table(self) -> tuple[str, list[str], list[list[str]]]:
        """Return the cases without a target, a line each: times as multiples of the first's."""
        rows = []
        for result in self.results:
            if result.targets:
                continue
            (first, best), *others = result.best.items()
            if result.unit == "ns":
                unit = "ns/op"
                texts = [f"{label} × {_number(value / best)}" for label, value in others]
            else:
                unit = result.unit
                texts = [f"{label} {_number(value)}" for label, value in others]
            rows.append([result.name, f"{first} {_number(best)} {unit}", ", ".join(texts)])
        return "Without a target", ["what", "first", "the others: × its time, or in its unit"], rows

    def _detail_table(self) -> tuple[str, list[str], list[list[str]]]:
        names = list(dict.fromkeys(
            name for result in self.results for facts in result.facts.values() for name in facts
        ))  # fmt: skip
        rows: list[list[str]] = []
        for result in self.results:
            best, ratios, spreads = result.best, result.ratios, result.spreads
            unit = "ns/op" if result.unit == "ns" else result.unit
            for place, label in enumerate(best):
                facts = result.facts[label]
                rows.append(
                    [result.name if place == 0 else "", label, _number(best[label]), unit]
                    + ["–" if x is None else _number(x) for x in (ratios[label], spreads[label])]
                    + [_number(facts[name]) if name in facts else "" for name in names]
                )
        return "Contenders", ["case", "contender", "best", "unit", "ratio", "spread", *names], rows

    def _notes(self) -> list[tuple[str, str]]:
        """Return each note once, with the names of all cases that have it."""
        users: dict[str, list[str]] = {}
        for result in self.results:
            if result.notes:
                users.setdefault(result.notes, []).append(result.name)
        return [("; ".join(names), note) for note, names in users.items()]

    def _caption(self) -> str:
        machine = self.machine
        memory = machine.get("memory_bytes")
        commit = self.commit
        parts = [
            f"{machine['cpu']}, {machine['cores']} cores",
            *([f"{memory / 2**30:.0f} GiB"] if memory else []),
            f"kernel {machine['kernel']}",
            *([f"huge pages {machine['huge_pages']}"] if machine.get("huge_pages") else []),
            f"load {machine['load_average']:.1f} before, {machine['load_average_after']:.1f} after",
            ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            f"best of at least {self.rounds} rounds" + (", quick (small sizes)" if self.quick else ""),
            self.date,
            *([f"commit {commit[:12]}{commit[40:]}"] if commit else []),
        ]
        return "; ".join(parts) + ". Ratio: best / best of the case's first; spread: median / best."


_NUMBERS = {"best", "ratio", "spread", "bound", "measured", "FPR", "bits/key"}
_COLOURS = {"met": "green", "missed": "red", "too noisy": "yellow"}


def _number(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.1e}"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def publish(report: Report, suite: str, *, json_path: str | None, markdown: bool, whole: bool) -> None:
    """Print a report; write its JSON to `json_path`, or with the other results.

    Without `json_path` a `whole` run (not quick, no peer left out) in a checkout writes
    benchmarks/results/<date>-<suite>.json; any other writes nothing.
    """
    if markdown:
        print(report.to_markdown())
    else:
        report.print()
    results = Path("benchmarks") / "results"
    if json_path is None and whole and results.is_dir():
        json_path = str(results / f"{datetime.now(UTC).date().isoformat()}-{suite}.json")
    if json_path is not None:
        report.write_json(json_path)
        print(f"written: {json_path}", file=sys.stderr)
