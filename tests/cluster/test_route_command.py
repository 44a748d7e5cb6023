"""The command `evenbins route` as a process: it serves, drains by SIGTERM, says in a line what is wrong."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from router_servers import until

COMMAND = [
    sys.executable, "-c",
    "from evenbins import cli; cli.main()",
    "route",
]  # fmt: skip


class Replica(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    go_on = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.go_on.wait(20)
        body = self.headers["X-Forwarded-For"].encode() if self.path == "/who" else b"ok"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def replica():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Replica)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Replica.go_on.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    Replica.go_on.set()
    server.shutdown()
    server.server_close()


def ask(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_it_serves_and_sigterm_lets_requests_finish(replica):
    process = subprocess.Popen(
        [*COMMAND, "--upstream", replica + "=2.5", "--port", "0", "--limit", "4"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"evenbins: routing to 1 on http://127\.0\.0\.1:(\d+)\n", line)
        assert found, line
        port = int(found[1])
        assert ask(port, "/x") == (200, b"ok")
        status = json.loads(ask(port, "/-/status")[1])
        assert status["upstreams"][replica]["weight"] == 2.5
        assert status["limit"] == 4
        answers: list[tuple[int, bytes]] = []
        slow = threading.Thread(target=lambda: answers.append(ask(port, "/slow")))
        slow.start()
        while json.loads(ask(port, "/-/status")[1])["in_flight"] == 0:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        until(lambda: not listens(port), what="the end of listening")
        assert process.poll() is None
        Replica.go_on.set()
        slow.join(20)
        assert answers == [(200, b"ok")]
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def test_slow_clients_are_answered_in_time_and_proxies_are_trusted_as_told(replica):
    options = ["--port", "0", "--read-timeout", "1.5", "--body-buffer", "1000", "--trusted-proxy", "none"]
    process = subprocess.Popen([*COMMAND, "--upstream", replica, *options], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition(":")[2])
        with contextlib.ExitStack() as stack:
            slow = [b"GET / HTTP/1.1\r\nHo", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx", b""]
            connections = []
            for data in slow:
                connections.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), 20)))
                connections[-1].sendall(data)
            answers = [b"".join(iter(lambda each=each: each.recv(9999), b"")) for each in connections]
        assert [each[:12] for each in answers] == [b"HTTP/1.1 408", b"HTTP/1.1 408", b""]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/who", headers={"X-Forwarded-For": "6.6.6.6"})
        assert connection.getresponse().read() == b"127.0.0.1"
        connection.close()
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--upstream is missing"),
        (["--upstream", "x:1"], "a URL such as"),
        (["--upstream", "http://a:1", "--upstream", "http://a:1=2"], "given twice"),
        (["--upstream", "http://a:1", "--upstream", "http://a:1/"], "given twice"),
        (["--upstream", "http://a:1=0"], "positive"),
        (["--upstream", "http://a=-1"], "-1 is no positive weight"),
        (["--upstream", "http://a=nan"], "nan is no positive weight"),
        (["--upstream", "http://a=1,5"], "1,5 is no positive weight"),
        (["--upstream", "http://a=x"], "x is no positive weight"),
        (["--upstream", "http://a:1", "--key", "cookie"], "key must be"),
        (["--upstream", "http://a:1", "--epsilon", "0.1", "--limit", "3"], "exclude each other"),
        (["--upstream", "http://a:1", "--host", "203.0.113.7"], "cannot listen on 203.0.113.7:8080"),
        (["--upstream", "http://a:1", "--shared-loads", "ftp://x"], "redis://"),
        (["--upstream", "http://a:1", "--port", "x"], "--port"),
        (["--upstream", "http://a:1", "--trusted-proxy", "10.0.0.0/40"], "addresses or networks such as"),
        (["--upstream", "http://a:1", "--body-buffer", "-1"], "is not a size in bytes"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments, words, capsys):
    from evenbins import cli

    with pytest.raises(SystemExit) as ended:
        cli.main(["route", *arguments])
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.out == ""
    assert said.err.startswith("evenbins: ")
    assert said.err.count("\n") == 1
    assert words in said.err
