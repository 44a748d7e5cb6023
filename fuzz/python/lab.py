"""The lab's API by schemathesis, from its own description: every operation, valid and invalid requests,
each answer judged.

No answer 500, no status and no content that /api/openapi.json does not tell of, nothing that takes more
than 5 s. Jobs are started
and cancelled too; a lab that is busy (429, 503) says so, which is an answer.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

__all__ = ["report"]


def report(seconds: int) -> dict[str, Any]:
    """Start a lab, run schemathesis on it for so long, give figures and findings."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "lab.log"
        port = _free_port()
        command = [sys.executable, "-m", "evenbins", "lab", "--port", str(port), "--no-browser"]
        with log.open("wb") as file:
            lab = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        try:
            address = f"http://127.0.0.1:{port}"
            _until_it_answers(f"{address}/api/openapi.json")
            began = time.monotonic()
            done = _schemathesis(f"{address}/api/openapi.json", seconds, folder)
            took = time.monotonic() - began
            lives = lab.poll() is None
            with urllib.request.urlopen(f"{address}/api/openapi.json", timeout=5) as answer:
                lives = lives and answer.status == 200
        finally:
            lab.kill()
            lab.wait()
        told = log.read_text(errors="replace")
    text = done.stdout + done.stderr
    cases = [int(number) for number in re.findall(r"(\d[\d,]*) generated", text.replace(",", ""))]
    good = done.returncode == 0 and lives and "Traceback" not in told
    return {
        "target": "lab",
        "engine": "schemathesis",
        "executions": sum(cases),
        "seconds": round(took, 1),
        "executions_per_second": round(sum(cases) / max(took, 0.1)),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
        "slowest_seconds": 0,
        "exit": 0 if good else 1,
        "findings": [] if good else [text[-6000:], told[-3000:]],
    }


def _schemathesis(schema: str, seconds: int, folder: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("schemathesis")
    command = [
        str(program), "run", schema, "--header", "X-Evenbins-Lab: 1", "--max-time", str(seconds),
        "--request-timeout", "5", "--checks", "not_a_server_error,status_code_conformance,"
        "content_type_conformance,response_schema_conformance", "--seed", "1", "--phases", "coverage,fuzzing",
        "--no-color", "--generation-database", "none", "--suppress-health-check", "all",
    ]  # fmt: skip
    environment = os.environ | {"COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


def _free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _until_it_answers(url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    print(json.dumps(report(int(sys.argv[1])), indent=1))
