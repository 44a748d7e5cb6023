"""Modules that are imported when a name of theirs is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["homes_of", "lazy_names"]


def homes_of(homes: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each name; `homes` has the names of each module, separated by spaces."""
    return {name: home for home, names in homes.items() for name in names.split()}


def lazy_names(package: dict[str, Any], homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`: it imports the module that a name comes from and keeps the value.

    Parameters
    ----------
    package
        The package's globals().
    homes
        For each module of it the names that come from there, separated by spaces.
    """
    name_of, home_of = package["__name__"], homes_of(homes)

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {name_of!r} has no attribute {name!r}")
        value = getattr(import_module(f"{name_of}.{home_of[name]}"), name)
        package[name] = value
        return value

    return get
