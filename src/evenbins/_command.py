"""The console script `evenbins`: starts the command line, or names the extra that brings what it needs."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line and exit."""
    missing = [name for name in ("click", "rich") if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        print(f"evenbins: the command needs {names}: pip install 'evenbins[cli]'", file=sys.stderr)
        sys.exit(2)
    try:
        from evenbins import cli

        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)
    except ImportError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            sys.exit(130)
        raise
