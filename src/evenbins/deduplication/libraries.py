"""Which library a column or a table is of, by its class: those of subclasses too, and nothing is imported."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

__all__ = ["is_of_library", "library_of", "rows_error"]

_CLASSES: Final = {
    "pandas": ("DataFrame", "Series", "Index"),
    "polars": ("DataFrame", "Series", "LazyFrame"),
    "pyarrow": ("Array", "ChunkedArray", "RecordBatch", "Table", "RecordBatchReader"),
}


def library_of(source: object) -> str:
    """Return the library that a column or a table is of: "numpy", "pandas", "polars", "pyarrow", or ""."""
    if isinstance(source, np.ndarray):
        return "numpy"
    for name, classes in _CLASSES.items():
        module: Any = sys.modules.get(name)
        if module is not None and any(isinstance(source, getattr(module, each, ())) for each in classes):
            return name
    pandas: Any = sys.modules.get("pandas")
    extensions = getattr(getattr(pandas, "api", None), "extensions", None)
    return "pandas" if isinstance(source, getattr(extensions, "ExtensionArray", ())) else ""


def is_of_library(value: object) -> bool:
    """Return whether the class of an object is one of these libraries' own, as that of an expression."""
    return type(value).__module__.partition(".")[0] in _CLASSES


def rows_error(source: object) -> TypeError | None:
    """Return the error for an object of these libraries that has no rows, as a schema or an expression."""
    kind = type(source)
    module = kind.__module__.partition(".")[0]
    if not is_of_library(source) or library_of(source):
        return None
    if hasattr(kind, "__arrow_c_stream__") or (hasattr(kind, "__next__") and "GroupBy" not in kind.__name__):
        return None
    wanted = ", ".join(_CLASSES[module])
    return TypeError(
        f"source must be a column or a table with rows, for {module} one of {wanted}; "
        f"not {module}.{kind.__name__}"
    )
