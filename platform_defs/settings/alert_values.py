"""The types of the settings of alerts: each validates a text, and returns the legal value or raises an error that does not quote it."""

import re
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator

_MOST_ADDRESSES, _LONGEST_COMMAND = 50, 2_000
_ADDRESS = re.compile(r"[\w.+%-]+@[\w.-]+", re.ASCII)


def _split(value: str, schemes: tuple[str, ...], legal: str) -> SplitResult:
    """The parts of a URL of one of the schemes."""
    try:
        url = urlsplit(value)
        is_legal = url.scheme in schemes and bool(url.hostname) and url.port != 0
    except ValueError:  # a bad port or IPv6 address; its own text would quote the value
        raise ValueError(legal) from None
    if not is_legal or not value.isprintable() or " " in value:
        raise ValueError(legal)
    return url


def _has_query_or_fragment(value: str) -> bool:
    """Whether a URL has a query or a fragment, which may be empty: `urlsplit` gives the same for an empty one and for none."""
    return "?" in value or "#" in value


def _checked_webhook(value: str) -> str:
    legal = "legal: http://host/path or https://host/path, without user and password"
    if "@" in _split(value, ("http", "https"), legal).netloc:
        raise ValueError(legal)
    return value


def _checked_base(value: str) -> str:
    legal = "legal: http://host or https://host, with an optional path, and without user, `?` and `#`"
    url = _split(value, ("http", "https"), legal)
    if "@" in url.netloc or _has_query_or_fragment(value):
        raise ValueError(legal)
    return value.rstrip("/")


def _checked_smtp(value: str) -> str:
    legal = "legal: smtp://host:port or smtps://host:port; USER:PASSWORD@, percent-encoded, may precede the host"
    url = _split(value, ("smtp", "smtps"), legal)
    has_legal_login = "@" not in url.netloc or (bool(url.username) and url.password is not None)
    if url.path not in ("", "/") or _has_query_or_fragment(value) or not has_legal_login:
        raise ValueError(legal)
    return value


def _checked_addresses(value: str) -> str:
    addresses = [address.strip() for address in value.split(",")]
    if len(addresses) > _MOST_ADDRESSES or not value.isprintable() or not all(map(_ADDRESS.fullmatch, addresses)):
        raise ValueError(f"legal: mail addresses, separated by commas; at most {_MOST_ADDRESSES}")
    return ", ".join(addresses)


def _checked_command(value: str) -> str:
    if len(value) > _LONGEST_COMMAND or "\0" in value:
        raise ValueError(f"legal: a shell command of at most {_LONGEST_COMMAND:,} characters")
    return value


Webhook = Annotated[str, AfterValidator(_checked_webhook)]
BaseUrl = Annotated[str, AfterValidator(_checked_base)]
SmtpUrl = Annotated[str, AfterValidator(_checked_smtp)]
MailAddresses = Annotated[str, AfterValidator(_checked_addresses)]
ShellCommand = Annotated[str, AfterValidator(_checked_command)]
