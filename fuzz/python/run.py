"""Run one target by atheris: python fuzz/python/run.py TARGET [options of libFuzzer] [folders]."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    """Instrument the package, whenever a module of it is imported, and fuzz."""
    name = sys.argv.pop(1)
    # Atheris cannot instrument what an editable install's own loader reads: tools/fuzz.py puts the package
    # on PYTHONPATH as a plain folder.
    sys.meta_path[:] = [each for each in sys.meta_path if "Redirecting" not in type(each).__name__]
    atheris.instrument_imports(include=["evenbins", name]).__enter__()  # choices of the target count too
    target = import_module(name)
    atheris.Setup(sys.argv, target.one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
