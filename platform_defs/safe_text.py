"""Makes text safe to print: hides credentials of URLs, and escapes control characters."""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

HIDDEN = "***"
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]{0,31})://((?:[^\s'\"<>]|'(?![,;:)\]}]))*)")
"""A URL; the part before its last `@` is its user part. A quote is part of the URL, unless a separator follows the quote: then the URL
was in quotes, and ends there. The length of the scheme is limited, and a URL without an `@` is matched too, so that the time to search a
long text without spaces is not quadratic."""
_CONTAINER_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")
"""Schemes whose URLs have a container in place of the user: `abfss://container@account.dfs.core.windows.net`."""
_PICKED_UP = re.compile(r"^.*Picked up \w*_OPTIONS.*\n?", re.MULTILINE)


def without_credentials(text: str, secret_url: str | None = None) -> str:
    """Replace the user part of every URL in a text by `***`.

    Args:
        text: any text, such as a log, a message or one URL.
        secret_url: a URL with secrets: its `user:password` and its password, or its user if it has no password. A secret of at least three
            characters is replaced wherever it occurs in the text, as it is written in the URL or decoded.

    >>> without_credentials("GET http://user:s3cret@127.0.0.1:1/a failed")
    'GET http://***@127.0.0.1:1/a failed'
    """
    for secret in _secrets(secret_url):
        text = text.replace(secret, HIDDEN)
    return _URL.sub(_hide_user_part, text)


def without_java_options(text: str) -> str:
    """Remove the lines in which a JVM prints its options from the environment, which may contain a proxy's password."""
    return _PICKED_UP.sub("", text)


def printable(text: str) -> str:
    r"""Escape characters that control a terminal or are invisible, such as ESC and bidirectional overrides.

    These are all characters for which `str.isprintable` is false, except line feeds and tabs.

    >>> printable("a\x1b[31m\u202eb")
    'a\\x1b[31m\\u202eb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def one_line(text: str) -> str:
    """The text as `printable` returns it, in one line: line feeds are escaped too."""
    return printable(text).replace("\n", "\\n")


def shortened(text: str, longest: int = 200) -> str:
    """The text; if it is longer than `longest` characters, it is cut, and its length is added."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def first_texts(texts: Sequence[str], most: int) -> list[str]:
    """The first texts, at most `most`, and how many more there are.

    >>> first_texts(["a", "b", "c"], 2)
    ['a', 'b', 'and 1 more']
    """
    return [*texts[:most], *([f"and {len(texts) - most} more"] if len(texts) > most else [])]


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _hide_user_part(match: re.Match[str]) -> str:
    scheme, (user, at, rest) = match[1], match[2].rpartition("@")
    is_container = scheme.lower() in _CONTAINER_SCHEMES and ":" not in user and "/" not in user
    return match[0] if not at or is_container else f"{scheme}://{HIDDEN}@{rest}"


def _secrets(url: str | None) -> Iterable[str]:
    """The texts to hide: `user:password` and the password, or the user if there is no password; encoded and decoded, longest first."""
    match = _URL.match(url or "")
    user_part = match[2].rpartition("@")[0] if match else ""
    user, _, password = user_part.partition(":")
    secrets = {user_part, password or user}
    return sorted({form for secret in secrets for form in (secret, unquote(secret)) if len(form) > 2}, key=len, reverse=True)
