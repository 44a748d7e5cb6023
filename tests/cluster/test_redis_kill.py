"""Processes add to one filter, one is killed: no acknowledged key is lost. tools/soak_redis.py: full size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_killed_process_loses_no_acknowledged_key() -> None:
    command = [sys.executable, str(ROOT / "tools" / "soak_redis.py"), "--keys", "700"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exit statuses [-9, 0, 0, 0]" in done.stdout
    assert "lost          0" in done.stdout
