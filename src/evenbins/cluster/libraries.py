"""Client libraries, imported when they are first needed: a missing one names the extra that brings it."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["library"]


def library(module: str, extra: str) -> Any:
    """Import a module that an extra of this package installs; ImportError names the extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise  # the library is there and lacks something itself
        raise ImportError(
            f"{module.partition('.')[0]} is not installed: pip install 'evenbins[{extra}]'", name=error.name
        ) from None
