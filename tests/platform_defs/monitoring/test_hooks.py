"""Alerts are delivered to a real HTTP server, a shell, and a real mail server of this machine. No test starts Spark."""

import errno
import json
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from platform_defs.monitoring import hooks
from platform_defs.monitoring.alert import Alert
from platform_defs.monitoring.hooks import HookError, hooks_of
from platform_defs.settings import Settings

ALERT = Alert("job advance", "failing", 3, 1_772_366_400.0, "4711", "order_wide: no rows", "https://dagster.invalid/runs/4711")
TEXT = (
    "Tidemark: job advance has failed 3 times in a row, since 2026-03-01 12:00:00Z.\norder_wide: no rows\nhttps://dagster.invalid/runs/4711"
)


class Webhook(ThreadingHTTPServer):
    """An HTTP server that keeps what is posted, and answers with a given status."""

    def __init__(self, status: int = 200) -> None:
        self.posts: list[tuple[str, str | None, Any]] = []
        self.status = status
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.posts.append((self.path, self.headers["Content-Type"], body))
                self.send_response(server.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/services/s3cret"


_POLL_S = 0.01
"""How often a server checks whether it must end, in seconds."""


@contextmanager
def running(server: Any) -> Iterator[Any]:
    """A server that answers in a thread."""
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Mailbox(socketserver.ThreadingTCPServer):
    """A mail server that keeps what it receives."""

    daemon_threads = True

    def __init__(self, login: str = "235 ok", ends: str = "221 bye", refused: str = "nobody") -> None:
        self.lines: list[str] = []
        server = self

        answers = {"EHLO": "250-here\r\n250 AUTH PLAIN", "AUTH": login, "DATA": "354 go on", "QUIT": ends}

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 ready\r\n")
                verb = ""
                while verb != "QUIT" and (line := self._line()):
                    verb = line.split(" ", 1)[0].upper()
                    answer = "550 unknown" if verb == "RCPT" and refused in line else answers.get(verb, "250 ok")
                    self.wfile.write(f"{answer}\r\n".encode())
                    if verb == "DATA":
                        while self._line() != ".":
                            pass
                        self.wfile.write(b"250 ok\r\n")

            def _line(self) -> str:
                server.lines.append(self.rfile.readline().decode().rstrip("\r\n"))
                return server.lines[-1]

        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, user: str = "") -> str:
        return f"smtp://{user}127.0.0.1:{self.server_address[1]}"


def _send(alert: Alert = ALERT, **values: Any) -> str | None:
    [hook] = hooks_of(Settings(**values)).values()
    return hook(alert)


def test_no_hook_is_set_by_default() -> None:
    assert hooks_of(Settings()) == {}
    assert [*hooks_of(Settings(alert_webhook="http://h/x", alert_command="cat", alert_mail="a@b.c", alert_smtp="smtp://h"))] == [
        "webhook",
        "command",
        "mail",
    ]


def test_a_webhook_gets_the_text_as_slack_reads_it() -> None:
    with running(Webhook()) as server:
        _send(alert_webhook=server.url)
    assert server.posts == [("/services/s3cret", "application/json; charset=utf-8", {"text": TEXT})]


@pytest.mark.parametrize("status", [302, 404, 500])
def test_an_answer_that_is_no_success_is_an_error_without_the_secret(status: int) -> None:
    with running(Webhook(status)) as server, pytest.raises(HookError) as refused:  # noqa: PT011 - the text is asserted below
        _send(alert_webhook=server.url)
    assert f"the webhook at 127.0.0.1 failed: it answered {status}; the alert is sent again" in str(refused.value)
    assert "s3cret" not in f"{refused.value!r} {refused.value.__cause__!r}"
    assert len(server.posts) == 1


def test_a_webhook_that_does_not_listen_is_an_error_without_the_secret() -> None:
    server = Webhook()
    server.server_close()
    with pytest.raises(HookError, match=r"the webhook at 127\.0\.0\.1 failed: Connection refused") as refused:
        _send(alert_webhook=server.url)
    assert "s3cret" not in str(refused.value)


def test_a_command_reads_the_alert_from_its_input(tmp_path: Path) -> None:
    file = tmp_path / "alert.json"
    hostile = Alert("job $(touch x); `touch y`", "failing", 1, 0.0)
    _send(hostile, alert_command=f"cat > '{file}'")
    stored = json.loads(file.read_text("utf-8"))
    assert stored == {
        "subject": "job $(touch x); `touch y`",
        "state": "failing",
        "failures": 1,
        "since_s": 0.0,
        "run_id": None,
        "reason": None,
        "url": None,
        "title": hostile.title,
        "text": "Tidemark: job $(touch x); `touch y` has failed, since 1970-01-01 00:00:00Z.",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["alert.json"]


def test_a_command_that_fails_or_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HookError, match=r"command of TIDEMARK_ALERT_COMMAND failed: it ended with exit code 3") as refused:
        _send(alert_command="echo s3cret >&2; exit 3")
    assert "s3cret" not in str(refused.value)
    monkeypatch.setattr(hooks, "TIMEOUT_S", 0.05)
    with pytest.raises(HookError, match="it did not end in 0 s"):
        _send(alert_command="sleep 30; true")


def test_a_command_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", no_memory)
    with pytest.raises(HookError, match=r"could not be started: Cannot allocate memory; .* Free memory or processes"):
        _send(alert_command="true")


def test_a_mail_has_the_title_and_the_text() -> None:
    with running(Mailbox()) as server:
        values = {"alert_smtp": server.url("user:p%40ss@"), "alert_mail_from": "tidemark@b.invalid"}
        assert _send(alert_mail="a@b.invalid,c@d.invalid", **values) is None
    head = ["Subject: Tidemark: job advance fails", "From: tidemark@b.invalid", "To: a@b.invalid, c@d.invalid"]
    assert {*head, *TEXT.split("\n")} <= {*server.lines}
    assert [line for line in server.lines if line.lower().startswith(("mail", "rcpt"))] == [
        "mail FROM:<tidemark@b.invalid>",
        "rcpt TO:<a@b.invalid>",
        "rcpt TO:<c@d.invalid>",
    ]
    assert "AUTH PLAIN AHVzZXIAcEBzcw==" in server.lines, "the user name, and the password p@ss"


def test_a_login_that_is_refused_is_an_error_without_the_password() -> None:
    with running(Mailbox("535 no s3cret")) as server, pytest.raises(HookError, match="it answered 535") as refused:
        _send(alert_mail="a@b.invalid", alert_smtp=server.url("user:s3cret@"))
    assert "s3cret" not in str(refused.value)


def test_a_mail_that_the_server_has_accepted_is_delivered_however_the_session_ends() -> None:
    with running(Mailbox(ends="421 closing")) as server:
        assert _send(alert_mail="a@b.invalid", alert_smtp=server.url()) is None
    assert "QUIT" in [line.upper() for line in server.lines]


def test_recipients_that_the_server_refuses_are_reported() -> None:
    with running(Mailbox(refused="c@d")) as server:
        problem = _send(alert_mail="a@b.invalid,c@d.invalid", alert_smtp=server.url())
    assert problem == "the mail server 127.0.0.1 refuses c@d.invalid of TIDEMARK_ALERT_MAIL"
    with running(Mailbox(refused="@")) as server, pytest.raises(HookError, match="it refuses every address of TIDEMARK_ALERT_MAIL"):
        _send(alert_mail="a@b.invalid,c@d.invalid", alert_smtp=server.url())


def test_a_password_is_not_sent_in_clear_text_to_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_THIS_MACHINE", ())
    with running(Mailbox()) as server, pytest.raises(HookError, match="it offers no STARTTLS, so no password was sent"):
        _send(alert_mail="a@b.invalid", alert_smtp=server.url("user:s3cret@"))
    assert not [line for line in server.lines if line.startswith("AUTH")]


def test_the_message_of_a_recovery() -> None:
    recovered = Alert("job advance", "recovered", 3, 1_772_366_400.0, "4712")
    assert recovered.title == "Tidemark: job advance succeeds again"
    assert recovered.text == "Tidemark: job advance succeeds again. It had failed since 2026-03-01 12:00:00Z.\nRun 4712."
