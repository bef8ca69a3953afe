"""Canonical paths: settings and arguments name a folder in any spelling, which becomes an absolute path, or the URI of a store.

Locks and offsets are found by a folder's path, so all spellings of one lake must give the same path.
"""

import os
import re
from pathlib import Path
from urllib.parse import unquote

from operators.errors import TidemarkError
from platform_defs.safe_text import shortened, without_credentials

STORES = ("s3a", "s3", "abfss", "abfs", "gs", "hdfs", "viewfs")
"""The schemes of URIs that both Spark and deltalake support."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?#]*)([^?#]*)([?#].*)?", re.DOTALL)
_REPLACED_SCHEMES = {"s3": "s3a"}
"""Schemes that are replaced by another one. Spark has no file system for `s3://`, and Tidemark's log store is set for `s3a://`."""
_HOST_IS_OPTIONAL = ("hdfs", "viewfs")
"""Schemes whose URIs may have no host, such as `hdfs:///lake`."""
_CONTAINER_BEFORE_HOST = ("abfss", "abfs")
"""Schemes whose URIs have a container before an `@`, such as `abfss://container@account/lake`; elsewhere an `@` follows credentials."""
_LEGAL = f"a path, file:///path, or a URI with one of {', '.join(f'{s}://' for s in STORES)}"
_NOT_IN_TABLES = "%|^"
"""Characters that the path of a table must not have. deltalake decodes `%41`, so it would use another folder than Spark; the other
two make deltalake panic."""
_LONGEST, _LONGEST_NAME = 4_096, 255
"""The longest path, in characters, and the longest name in a path, in bytes, that common file systems allow."""


class PathError(TidemarkError, ValueError):
    """A text is not a legal path or URI of a folder; the message says what is legal."""

    legal: str = ""
    """The part of the message that says what is legal."""

    @classmethod
    def of(cls, value: str, legal: str) -> "PathError":
        """The error for a value, which its message shows shortened and without credentials."""
        error = cls(f"{shortened(without_credentials(value))!r} is not a legal folder; legal: {legal}")
        error.legal = legal
        return error


def canonical(value: str, base: Path | None = None) -> str:
    """The canonical path of a folder on this machine, or the canonical URI of a folder in a store.

    In a path, `~` is expanded, links are followed, a relative path is resolved from `base`, and a trailing slash is removed. `file:/x`,
    `file:///x` and `file://localhost/x` become `/x`. In a URI, the scheme becomes lower case, `s3://` becomes `s3a://`, the name of S3 in
    Hadoop, repeated slashes become one, and a trailing slash is removed.

    Args:
        value: a path or a URI.
        base: the folder that relative paths start from; None for the current folder.

    Raises:
        PathError: the value is empty, too long or not printable, has a scheme that is not supported, contains credentials, or is no path.

    >>> canonical("file:///data/lake/"), canonical("s3a://bucket//lake/")
    ('/data/lake', 's3a://bucket/lake')
    """
    _check_characters(value)
    scheme = _SCHEME.match(value)
    if scheme is None:
        return _local(value, base)
    if scheme[1].lower() == "file":
        return _local(_path_of_file_uri(value), base)
    return _remote(value)


def canonical_of_tables(value: str, base: Path | None = None) -> str:
    """The canonical path of a folder with tables, which Spark and deltalake must find at the same path.

    Raises:
        PathError: as `canonical`; also if the path has a character that deltalake cannot read.
    """
    path = canonical(value, base)
    if set(path) & set(_NOT_IN_TABLES):
        resolved = "" if path == value else f" (it is {shortened(path)!r})"
        legal = f"a folder whose whole path{resolved} has none of the characters {' '.join(_NOT_IN_TABLES)}, which deltalake cannot read"
        raise PathError.of(value, f"{legal}; rename the folder, or name another one")
    return path


def canonical_local(value: str, base: Path | None = None) -> str:
    """The canonical path of a folder on this machine.

    Raises:
        PathError: as `canonical`; also if the value is the URI of a store.
    """
    path = canonical(value, base)
    if not is_local(path):
        raise PathError.of(value, "a folder on this machine")
    return path


def is_local(path: str) -> bool:
    """Whether a canonical path is on this machine, and not the URI of a store."""
    return "://" not in path


def is_in_s3(path: str) -> bool:
    """Whether a canonical path is a URI of Hadoop's file system for S3."""
    return path.startswith("s3a://")


def is_within(path: str, folder: str) -> bool:
    """Whether a canonical path is a canonical folder, or below it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def require_outside(path: str, folder: str) -> str:
    """Check that a canonical path is outside a lake; returns the path.

    Args:
        path: a canonical path.
        folder: the canonical folder of the lake.

    Raises:
        PathError: the path is the folder, contains it, or is inside it.
    """
    if is_within(path, folder) or is_within(folder, path):
        raise PathError.of(path, f"a folder outside the lake {folder!r}")
    return path


def _check_characters(value: str) -> None:
    if not value.strip():
        raise PathError.of(value, _LEGAL)
    if value != value.strip() or len(value) > _LONGEST or not value.isprintable():
        legal = f"at most {_LONGEST:,} printable characters, without spaces at either end"
        raise PathError.of(value, legal)


def _local(value: str, base: Path | None) -> str:
    """The absolute path of a folder on this machine, with links followed."""
    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in value.split("/")):
        raise PathError.of(value, f"a path whose names have at most {_LONGEST_NAME} bytes")
    try:
        path = (base or Path.cwd()) / Path(value).expanduser()
        return os.path.normpath(path.resolve())
    except (OSError, RuntimeError, ValueError) as error:  # an unknown home, a cycle of links, a name that the file system refuses
        raise PathError.of(value, f"a path that this machine can resolve ({error})") from None


def _path_of_file_uri(value: str) -> str:
    """The decoded absolute path of a `file:` URI."""
    after_scheme = value[len("file:") :]
    path = after_scheme
    if after_scheme.startswith("//"):
        host, slash, below = after_scheme[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise PathError.of(value, "file:///path; to use the files of another machine, mount its file system or use a store")
        path = slash + below
    decoded = unquote(path)
    if not path.startswith("/") or "?" in path or "#" in path or not decoded.isprintable():
        raise PathError.of(value, "file:///path with an absolute path, and %3F and %23 for ? and # in it")
    return decoded


def _remote(value: str) -> str:
    """The canonical URI of a folder in a store."""
    match = _URI.fullmatch(value)
    scheme = _REPLACED_SCHEMES.get(match[1].lower(), match[1].lower()) if match else ""
    if match is None or scheme not in STORES:
        raise PathError.of(value, f"{_LEGAL}; a path whose name has a colon is written ./name")
    _, host, path, query_or_fragment = match.groups()
    if "@" in host + path and not (
        scheme in _CONTAINER_BEFORE_HOST and host.count("@") == 1 and ":" not in host.partition("@")[0] and "@" not in path
    ):
        containers = " and ".join(f"{name}://" for name in _CONTAINER_BEFORE_HOST)
        legal = f"a URI without credentials, and without @ except after the container of {containers}"
        raise PathError.of(value, f"{legal}; put credentials into the store's own configuration")
    names = [name for name in path.split("/") if name]
    if query_or_fragment or {".", ".."} & {*names} or not (host or (scheme in _HOST_IS_OPTIONAL and names)):
        raise PathError.of(value, f"{scheme}://bucket/folder, without `.`, `..`, `?` and `#`")
    return "/".join([f"{scheme}://{host}", *names])
