"""The exceptions of evenbins. All derive from `EvenbinsError`, and from the built-in one that fits.

An argument that breaks a rule raises `ArgumentError` (a ValueError) or `ArgumentTypeError` (a TypeError).
They carry the argument's name, the rule, the value and the remedy, so that the command line and the lab can
name their own option instead of the argument.
"""

from __future__ import annotations

from typing import Any, Self

from evenbins._core import EvenbinsError, FormatError, KeyRangeError, TableFullError

__all__ = [
    "ArgumentError", "ArgumentTypeError", "EvenbinsError", "FormatError", "KeyRangeError", "MissingName",
    "TableFullError",
]  # fmt: skip


class _AnyArgumentError(EvenbinsError):
    """What both exceptions about an argument carry.

    Attributes
    ----------
    name : the argument
    rule : what it must be
    value : what was passed
    remedy : what to pass instead
    """

    name: str
    rule: str
    value: object
    remedy: str
    _message: str

    @classmethod
    def of(cls, name: str, rule: str, value: object, remedy: str, message: str = "") -> Self:
        """Make the exception; `message`, if the usual one does not fit, has {name} for the argument."""
        message = (
            message or f"{{name}} must be {literal(rule)}; got {literal(shown(value))}. {literal(remedy)}"
        )
        error = cls(message.format(name=name))
        error.name, error.rule, error.value, error.remedy, error._message = name, rule, value, remedy, message
        return error

    def message_for(self, name: str) -> str:
        """Return the message with another name for the argument: that of an option, for example."""
        return self._message.format(name=name)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, self.__dict__


class ArgumentError(_AnyArgumentError, ValueError):
    """The value of an argument breaks a rule."""


class ArgumentTypeError(_AnyArgumentError, TypeError):
    """An argument has the wrong type."""


class MissingName:
    """A name that a class does not have: to ask an object for it is an AttributeError that says what to use.

    It is a descriptor, not a `__getattr__`, which would make every call of a method slower.
    """

    def __init__(self, advice: str) -> None:
        self._advice = advice
        self.__doc__ = None  # so that documentation leaves the name out

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        kind = type(instance).__name__
        text = f"{kind!r} object has no attribute {self._name!r}: {self._advice}"
        raise AttributeError(text, name=self._name, obj=instance)


def literal(text: str) -> str:
    """Return a text that `str.format` leaves as it is."""
    return text.replace("{", "{{").replace("}", "}}")


def shown(value: object) -> str:
    """Return the value received with its type, short even when the value is not."""
    if isinstance(value, int) and value.bit_length() > 128:  # Python refuses to print huge ones
        return f"an int of {value.bit_length()} bits"
    try:
        written = " ".join(repr(value).split())
    except ValueError:  # an int with more digits than Python prints
        return f"a {type(value).__name__} too long to print"
    if len(written) > 80:
        written = written[:77] + "..."
    return f"{written} ({type(value).__name__})"
