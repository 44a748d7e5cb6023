"""What a long run printed last, kept for the documentation: trust/<name>.json.

    a tool at its full size ──▶ keep(name, command, said) ──▶ trust/<name>.json ──▶ docs/trust.md

`said` are lines as they were printed; tools/trust_page.py shows them beside the command, the day and the
commit. A run with other arguments than its defaults is a trial: it calls nothing here.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "trust"


def commit() -> str:
    """Return the short name of the commit that is checked out; empty outside a repository."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return done.stdout.strip()


def keep(name: str, command: str, said: list[str], seconds: float) -> Path:
    """Write what a command printed at its end."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    record = {
        "command": command, "said": said, "seconds": round(seconds),
        "date": datetime.date.today().isoformat(), "commit": commit(), "python": platform.python_version(),
        "machine": platform.machine(), "cores": os.cpu_count(),
    }  # fmt: skip
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
