"""Exceptions: one base, and what an error about an argument carries."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil

import pytest

import evenbins
from evenbins import (
    ArgumentError,
    ArgumentTypeError,
    BloomFilter,
    EvenbinsError,
    FormatError,
    MultilevelTable,
)
from evenbins.errors import KeyRangeError, TableFullError


def test_the_base_of_our_exceptions() -> None:
    for cls in (ArgumentError, ArgumentTypeError, FormatError, KeyRangeError, TableFullError):
        assert issubclass(cls, EvenbinsError)
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(ArgumentTypeError, TypeError)


def test_every_public_exception_has_the_base() -> None:
    """Exceptions that leave the library; the command line and the lab have click's and starlette's."""
    strange = []
    for found in pkgutil.walk_packages(evenbins.__path__, "evenbins."):
        if found.name.startswith(
            ("evenbins.cli", "evenbins._console", "evenbins.study.lab")
        ) or found.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if error.name != "cupy":  # which modules of evenbins.cuda need
                raise
            continue
        for name, cls in vars(module).items():
            if not inspect.isclass(cls) or cls.__module__ != found.name or name.startswith("_"):
                continue
            if issubclass(cls, Exception) and not issubclass(cls, Warning | EvenbinsError):
                strange.append(f"{found.name}.{name}")
    # Not errors: what handlers of the router, and the readable table, tell their callers in the same module.
    assert set(strange) <= {
        "evenbins.cluster.http_bodies.ClientGoneError", "evenbins.cluster.http_bodies.SlowClientError",
        "evenbins.cluster.http_bodies.TooLargeError", "evenbins.study.stepwise.Full",
    }  # fmt: skip


def test_an_error_about_an_argument_carries_it() -> None:
    with pytest.raises(ArgumentError, match=r"fpr must be a number between 0 and 1") as caught:
        BloomFilter(10, fpr=2.0)
    error = caught.value
    assert (error.name, error.value) == ("fpr", 2.0)
    assert error.rule in str(error)
    assert error.remedy in str(error)
    assert str(error).startswith("fpr must be")
    assert error.message_for("--fpr") == "--" + str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (ArgumentError, str(error), vars(error))


def test_a_value_with_braces_is_shown_as_it_is() -> None:
    with pytest.raises(ArgumentError) as caught:
        MultilevelTable(10, scheme="{name}")
    assert "got '{name}'" in str(caught.value)
    assert "got '{name}'" in caught.value.message_for("--scheme")
