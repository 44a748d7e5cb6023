"""What an endpoint takes: declared once; parsed, bounded, explained and described from the declaration.

    Endpoint("filters/designs", designs, [Number("keys", least=1, most=1e12, default=1e7, whole=True)])
        │                          │
        │                          └──▶ designs(keys=10_000_000), after `read` has checked the query string
        └──▶ GET /api/filters/designs?keys=1e7        with job=True: POST /api/jobs/filters/designs?keys=1e7

A message names the parameter, its rule, the value received and a remedy. Nothing is guessed: an unknown or
repeated name is refused, since a view that ignores half of its URL shows something else than it says.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evenbins._numbers import parse_count, parse_rate

__all__ = ["Choice", "Endpoint", "Flag", "Number", "Parameter", "RefusedError", "Text", "read"]

_LONGEST = 40


class RefusedError(Exception):
    """A request that cannot be answered: an HTTP status and a message for people."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Parameter(Protocol):
    """What every declaration has."""

    @property
    def name(self) -> str:
        """Its name in the query string and as a keyword."""

    @property
    def default(self) -> Any:
        """What is taken if it is not given."""

    @property
    def required(self) -> bool:
        """Whether it must be given."""

    @property
    def help(self) -> str:
        """What it means, in one line."""

    def parse(self, text: str) -> Any:
        """Return the value, or raise RefusedError."""

    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number with bounds: `whole` ones may be written 1e7, 10_000_000 or 10M, others 0.1% or 1/1000.

    With the default None the parameter may be left out, and the function gets None.

    Examples
    --------
    >>> keys = Number("keys", least=1, most=1e12, default=1e6, whole=True)
    >>> keys.parse("1e6")
    1000000
    >>> keys.parse("x")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    evenbins.study.lab.parameters.RefusedError: keys must be a whole number from 1 to 1e+12, not 'x': pass ...
    """

    name: str = field(kw_only=False)
    least: float
    most: float
    default: float | None = None
    whole: bool = False
    required: bool = False
    help: str = ""

    def parse(self, text: str) -> int | float:
        """Return the number, or raise RefusedError."""
        try:
            value = parse_count(text) if self.whole else parse_rate(text)
        except ValueError:
            raise self._refuse(text) from None
        if not self.least <= value <= self.most:
            raise self._refuse(text)
        return value

    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""
        least, most = (int(each) if self.whole else each for each in (self.least, self.most))
        found: dict[str, Any] = {
            "type": "integer" if self.whole else "number", "minimum": least, "maximum": most,
        }  # fmt: skip
        if self.default is not None:
            found["default"] = int(self.default) if self.whole else self.default
        return found

    def _refuse(self, text: str) -> RefusedError:
        kind = "a whole number" if self.whole else "a number"
        example = self.default if self.default is not None else self.least
        return RefusedError(
            f"{self.name} must be {kind} from {self.least:g} to {self.most:g}, not {_shown(text)}: "
            f"pass one such as {example:g}"
        )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of a few words.

    Examples
    --------
    >>> Choice("scheme", choices=("ch-bl", "rj-ch"), default="rj-ch").parse("RJ")
    Traceback (most recent call last):
    ...
    evenbins.study.lab.parameters.RefusedError: scheme must be one of ch-bl, rj-ch, not 'RJ': pass one of them
    """

    name: str = field(kw_only=False)
    choices: Sequence[str]
    default: str | None = None
    required: bool = False
    help: str = ""

    def parse(self, text: str) -> str:
        """Return the word, or raise RefusedError."""
        if text not in self.choices:
            close = difflib.get_close_matches(text[:100], self.choices, n=1)
            remedy = f"did you mean {close[0]}?" if close else "pass one of them"
            listed = ", ".join(self.choices)
            raise RefusedError(f"{self.name} must be one of {listed}, not {_shown(text)}: {remedy}")
        return text

    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""
        found: dict[str, Any] = {"type": "string", "enum": list(self.choices)}
        return found if self.default is None else found | {"default": self.default}


@dataclass(frozen=True, kw_only=True)
class Flag:
    """Yes or no, written 1 or 0."""

    name: str = field(kw_only=False)
    default: bool = False
    required: bool = False
    help: str = ""

    def parse(self, text: str) -> bool:
        """Return the truth, or raise RefusedError."""
        if text not in ("0", "1"):
            raise RefusedError(f"{self.name} must be 0 or 1, not {_shown(text)}: 1 means yes")
        return text == "1"

    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""
        return {"type": "string", "enum": ["0", "1"], "default": str(int(self.default))}


@dataclass(frozen=True, kw_only=True)
class Text:
    """A short text; `pattern` must fit all of it, and `rule` says it in words."""

    name: str = field(kw_only=False)
    longest: int
    pattern: str = r"[^\x00-\x1f\x7f]*"
    rule: str = "printable characters"
    default: str | None = None
    required: bool = False
    help: str = ""

    def parse(self, text: str) -> str:
        """Return the text, or raise RefusedError."""
        if len(text) > self.longest or not re.fullmatch(self.pattern, text):
            raise RefusedError(
                f"{self.name} must be {self.rule}, at most {self.longest} of them, not {_shown(text)}: "
                f"{self.help or 'pass such a text'}"
            )
        return text

    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""
        found: dict[str, Any] = {"type": "string", "maxLength": self.longest, "pattern": f"^{self.pattern}$"}
        return found if self.default is None else found | {"default": self.default}


@dataclass(frozen=True)
class Endpoint:
    """One thing a page may ask.

    Parameters
    ----------
    path
        Below /api/, such as ``filters/designs``: the page's name and one word.
    function
        Takes the parameters as keywords and gives what JSON can hold; numbers that are not finite become
        null. Raises ValueError or RefusedError for what cannot be: the message is shown to the user. A job's
        function takes `progress` beside, and calls ``progress(done, total)`` often: it raises when the
        user has cancelled.
    parameters
        Their declarations.
    summary
        One line for the description of the API.
    job
        Whether it takes long: started by POST /api/jobs/PATH, asked for by its id.
    media_type
        Of the answer; anything but JSON means that the function gives text.
    upload
        The largest file, in bytes, that is sent as the body: the endpoint is asked by POST, and the function
        gets the keyword `file`, a path to it that is gone afterwards. 0 for none.
    """

    path: str
    function: Callable[..., Any]
    parameters: Sequence[Parameter] = ()
    summary: str = ""
    job: bool = False
    media_type: str = "application/json"
    upload: int = 0

    @property
    def method(self) -> str:
        """How it is asked."""
        return "POST" if self.job or self.upload else "GET"

    @property
    def url(self) -> str:
        """Its path on the server."""
        return f"/api/{'jobs/' if self.job else ''}{self.path}"


def read(parameters: Sequence[Parameter], query: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Read a query string: every parameter's value, given or default.

    Examples
    --------
    >>> read([Number("keys", least=1, most=100, default=7, whole=True)], [])
    {'keys': 7}
    >>> read([Number("keys", least=1, most=100, default=7)], [("key", "3")])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    evenbins.study.lab.parameters.RefusedError: there is no parameter 'key': did you mean keys? ...
    """
    known = {each.name: each for each in parameters}
    values: dict[str, Any] = {}
    for name, text in query:
        if name not in known:
            close = difflib.get_close_matches(name[:100], known, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            listed = f"There are: {', '.join(known)}" if known else "There are none here"
            raise RefusedError(f"there is no parameter {_shown(name)}: {hint}{listed}")
        if name in values:
            raise RefusedError(f"{name} must be given once, not twice: remove one of them")
        values[name] = known[name].parse(text)
    for name, each in known.items():
        if name not in values:
            if each.required:
                raise RefusedError(f"{name} is missing: {each.help or 'pass it'}")
            values[name] = _default(each)
    return {name: values[name] for name in known}


def _default(parameter: Parameter) -> Any:
    value = parameter.default
    if isinstance(parameter, Number) and parameter.whole and value is not None:
        return int(value)
    return value


def _shown(text: str) -> str:
    """Quote what was received, short and on one line."""
    return repr(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...")
