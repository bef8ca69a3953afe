"""The hooks that deliver alerts: a webhook, a shell command, and mail. Errors name only the host of a URL, which may be a secret."""

import json
import os
import signal
import smtplib
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from email.message import EmailMessage
from functools import partial
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote, urlsplit

from operators.errors import TidemarkError
from platform_defs.monitoring.alert import Alert
from platform_defs.safe_text import one_line, shortened
from platform_defs.settings import Settings

TIMEOUT_S = 10.0
_SMTP_PORT, _SMTPS_PORT = 587, 465
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")

Hook = Callable[[Alert], str | None]
"""Delivers an alert; returns what went wrong although it was delivered."""


class HookError(TidemarkError, RuntimeError):
    """A hook could not deliver an alert."""

    @classmethod
    def of(cls, hook: str, reason: object, way_out: str) -> "HookError":
        """Why a hook failed, and how to fix it."""
        return cls(f"the {hook} failed: {shortened(one_line(str(reason)))}; the alert is sent again at the sensor's next tick. {way_out}")


def hooks_of(values: Settings) -> Mapping[str, Hook]:
    """The hooks that the settings configure, by name."""
    hooks: dict[str, Hook] = {}
    if values.alert_webhook:
        hooks["webhook"] = partial(_post, values.alert_webhook)
    if values.alert_command:
        hooks["command"] = partial(_run, values.alert_command)
    if values.alert_mail and values.alert_smtp:
        sender = values.alert_mail_from or values.alert_mail.split(", ")[0]
        hooks["mail"] = partial(_mail, values.alert_smtp, sender, values.alert_mail)
    return hooks


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuse redirects: the POST would become a GET, and the alert would be lost."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, so that a redirect is an error."""


def _post(url: str, alert: Alert) -> None:
    """Post `{"text": ...}`, which Slack, Mattermost and others read."""
    name = f"webhook at {urlsplit(url).hostname}"
    body = json.dumps({"text": alert.text}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json; charset=utf-8"}, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S):
            return
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"it answered {error.code}"
    except urllib.error.URLError as error:
        reason = _reason(error.reason)
    except (OSError, HTTPException, ValueError) as error:
        reason = _reason(error)
    raise HookError.of(name, reason, "TIDEMARK_ALERT_WEBHOOK sets its URL")


def _run(command: str, alert: Alert) -> None:
    """Run a shell command with the alert as JSON on its standard input."""
    error_of_command = partial(HookError.of, "command of TIDEMARK_ALERT_COMMAND")
    nothing = subprocess.DEVNULL
    try:  # the command comes from the settings, which are trusted; the alert is on standard input only
        started = subprocess.Popen(
            command, shell=True, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, text=True, start_new_session=True
        )
    except OSError as error:  # the machine has no memory or no process left
        raise error_of_command(f"it could not be started: {_reason(error)}", "Free memory or processes of this machine") from error
    with started as process:
        try:
            process.communicate(json.dumps(alert.as_json()), TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the shell, and what it has started
            raise error_of_command(f"it did not end in {TIMEOUT_S:.0f} s", "Let it end sooner, or start another process") from None
    if process.returncode:
        raise error_of_command(f"it ended with exit code {process.returncode}", "Run it in a shell to see its error")


def _mail(server: str, sender: str, recipients: str, alert: Alert) -> str | None:
    """Send a mail; returns which recipients the server refuses. A password is sent only over TLS, or to this machine."""
    url, message = urlsplit(server), EmailMessage()
    message["Subject"], message["From"], message["To"] = one_line(alert.title), sender, recipients
    message.set_content(alert.text)
    host, context = url.hostname or "", ssl.create_default_context()
    error_of_server = partial(HookError.of, f"mail server {host}", way_out="TIDEMARK_ALERT_SMTP sets its URL")
    try:
        with closing(_connect(url.scheme, host, url.port, context)) as smtp:
            if url.scheme == "smtp" and smtp.has_extn("starttls"):
                smtp.starttls(context=context)
                smtp.ehlo()
            elif url.scheme == "smtp" and url.username is not None and host not in _THIS_MACHINE:
                raise error_of_server(reason="it offers no STARTTLS, so no password was sent")
            if url.username is not None:
                smtp.login(unquote(url.username), unquote(url.password or ""))
            refused = smtp.send_message(message)
            with suppress(OSError, smtplib.SMTPException):  # the server has the mail, however the session ends
                smtp.quit()
    except smtplib.SMTPRecipientsRefused:
        raise error_of_server(reason="it refuses every address of TIDEMARK_ALERT_MAIL") from None
    except smtplib.SMTPResponseException as error:  # the text of the server may quote the user
        raise error_of_server(reason=f"it answered {error.smtp_code}") from None
    except (OSError, ValueError, smtplib.SMTPException) as error:  # ValueError: a host, a user or a password that cannot be encoded
        raise error_of_server(reason=_reason(error)) from None
    return f"the mail server {host} refuses {one_line(', '.join(refused))} of TIDEMARK_ALERT_MAIL" if refused else None


def _connect(scheme: str, host: str, port: int | None, context: ssl.SSLContext) -> smtplib.SMTP:
    if scheme == "smtps":
        smtp: smtplib.SMTP = smtplib.SMTP_SSL(host, port or _SMTPS_PORT, timeout=TIMEOUT_S, context=context)
    else:
        smtp = smtplib.SMTP(host, port or _SMTP_PORT, timeout=TIMEOUT_S)
    smtp.ehlo()
    return smtp


def _reason(error: object) -> str:
    """An error of the network in words that quote no URL."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return "it did not answer in time" if isinstance(error, TimeoutError) else str(text)
