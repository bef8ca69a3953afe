"""The types of settings: each validates a text, and returns the legal value or raises an error that says what is legal."""

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from assets.pipeline import EARLIEST_DAY, LATEST_DAY
from operators.timing import DAY_MS, length_ms
from operators.triggers import EveryInterval, EveryRows, read_trigger
from platform_defs.paths import PathError, canonical, canonical_local, canonical_of_tables
from platform_defs.settings.stream_trigger import StreamTrigger

PROJECT = Path(__file__).resolve().parents[2]
PREFIX = "TIDEMARK_"
"""The start of the name of each variable."""
LONGEST_DAYS = 36_500
YAML_ENDINGS = (".yaml", ".yml")
SQL_ENDING = ".sql"
_PIPELINE_FILE = re.compile(r"(.+\.py)(:[^\W\d]\w*)?")
_PIPELINE_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*)?")
_MEMORY = re.compile(r"([1-9]\d{0,8})([kmgt])b?", re.IGNORECASE)
_MIB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
_HOST = re.compile(r"[\w.:\-]{1,253}", re.ASCII)
_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d{0,3})(,[1-9]\d{0,3})?\])?|local-cluster\[\d+,\d+,\d+\]|yarn|(spark|k8s)://[\w.:/,\-\[\]]+", re.ASCII
)


def _checked_duration(value: str) -> str:
    if length_ms(value, "value") > LONGEST_DAYS * DAY_MS:
        raise ValueError(f"legal: at most {LONGEST_DAYS:,} days")
    return value


def _checked_positive(value: str) -> str:
    if length_ms(value, "value") == 0:
        raise ValueError("legal: a duration of more than zero")
    return value


def _checked_lease(value: str) -> str:
    if not 1_000 <= length_ms(value, "value") <= DAY_MS:
        raise ValueError("legal: from 1 second, so that heartbeats can renew the lease, to 1 day, so that a dead writer is replaced")
    return value


def _checked_day(value: str) -> str:
    legal = f"legal: a day, such as 2026-03-01, from {EARLIEST_DAY} to {LATEST_DAY}; each day is a partition"
    try:
        day = date.fromisoformat(value)
    except ValueError:
        raise ValueError(legal) from None
    if not EARLIEST_DAY <= day <= LATEST_DAY:
        raise ValueError(legal)
    return str(day)


def _checked_trigger(value: str) -> str:
    trigger = read_trigger(value)
    if isinstance(trigger, EveryInterval) and trigger.interval_ms > LONGEST_DAYS * DAY_MS:
        raise ValueError(f"legal: an interval of at most {LONGEST_DAYS:,} days")
    if isinstance(trigger, EveryRows) and trigger.rows > 10**12:
        raise ValueError("legal: at most 1,000,000,000,000 rows")
    return value


def _checked_stream_trigger(value: str) -> str:
    StreamTrigger.read(value)
    return value


def _checked_interval(value: str) -> str:
    if not 0 < length_ms(value, "value") <= DAY_MS:
        raise ValueError("legal: an interval of more than zero, and at most a day")
    return value


def _checked_host(value: str) -> str:
    if not _HOST.fullmatch(value):
        raise ValueError("legal: a name or an address of this machine, such as 127.0.0.1 or 0.0.0.0")
    return value


def memory_mib(value: str) -> float:
    """The size of a heap in MiB.

    Raises:
        ValueError: the size is not legal; the message says what is.
    """
    match = _MEMORY.fullmatch(value)
    mib = 0 if match is None else int(match[1]) * _MIB[match[2].lower()]
    if not 512 <= mib <= 1024 * 1024:
        raise ValueError("legal: a number and its unit, such as 3g or 800m, from 512m to 1t")
    return mib


def _checked_memory(value: str) -> str:
    memory_mib(value)
    return value


def _checked_master(value: str) -> str:
    if not _MASTER.fullmatch(value):
        raise ValueError("legal: local, local[4], local[*], spark://host:port, k8s://host:port or yarn")
    return value


def _checked_mirror(value: str) -> str:
    legal = "legal: http://host/path or https://host/path, without `?` and `#`; a user and a password may precede the host"
    try:
        url = urlsplit(value)
        host = url.hostname if url.port != 0 else None
    except ValueError:  # a bad port or IPv6 address; its own text would quote the value
        raise ValueError(legal) from None
    illegal = set(value) & set("?#\\<>\"'") or "@" in url.path or not value.isprintable() or " " in value
    if url.scheme not in ("http", "https") or not host or illegal:
        raise ValueError(legal)
    return value


def _folder(value: str) -> str:
    return _canonical(value, canonical_local)


def _input_folder(value: str) -> str:
    return _without_patterns(_canonical(value, canonical))


def _lake_folder(value: str) -> str:
    return _without_patterns(_canonical(value, canonical_of_tables))


def _without_patterns(folder: str) -> str:
    if folder == "/" or set(folder) & set("*?[]{}\\"):
        raise ValueError("legal: a folder below the root, without * ? [ ] { } and \\, which Spark takes as patterns")
    return folder


def _jar_folder(value: str) -> str:
    folder = _canonical(value, canonical_local)
    if set(folder) & set("*?[]{}\\,"):
        raise ValueError("legal: a folder on this machine, without * ? [ ] { } , and \\, which Spark takes as patterns")
    return folder


def _yaml_file(value: str) -> str:
    if not value.endswith(YAML_ENDINGS):
        raise ValueError("legal: the path of a file that ends in .yaml or .yml")
    return _canonical(value, canonical_local)


def _pipeline_name(value: str) -> str:
    """`MODULE`, `MODULE:NAME`, the canonical path of a file, or that of a Python file with `:NAME`."""
    if value.endswith((*YAML_ENDINGS, SQL_ENDING)):
        return _canonical(value, canonical_local)
    match = _PIPELINE_FILE.fullmatch(value)
    if match is not None:
        return f"{_canonical(match[1], canonical_local)}{match[2] or ''}"
    if not _PIPELINE_MODULE.fullmatch(value):
        paths = "a path FILE.py, FILE.py:NAME, FILE.yaml or FILE.sql"
        raise ValueError(f"legal: MODULE or MODULE:NAME of an importable module, such as rides.pipeline:pipeline, or {paths}")
    return value


def _canonical(value: str, resolve: Callable[[str, Path], str]) -> str:
    try:
        return resolve(value, PROJECT)
    except PathError as error:
        raise ValueError(f"legal: {error.legal}") from None


PipelineName = Annotated[str, AfterValidator(_pipeline_name)]
Duration = Annotated[str, AfterValidator(_checked_duration)]
PositiveDuration = Annotated[Duration, AfterValidator(_checked_positive)]
LeaseDuration = Annotated[str, AfterValidator(_checked_lease)]
Day = Annotated[str, AfterValidator(_checked_day)]
Trigger = Annotated[str, AfterValidator(_checked_trigger)]
StreamTriggerName = Annotated[str, AfterValidator(_checked_stream_trigger)]
Host = Annotated[str, AfterValidator(_checked_host)]
Interval = Annotated[str, AfterValidator(_checked_interval)]
Memory = Annotated[str, AfterValidator(_checked_memory)]
Master = Annotated[str, AfterValidator(_checked_master)]
Mirror = Annotated[str, AfterValidator(_checked_mirror)]
LocalFolder = Annotated[str, AfterValidator(_folder)]
JarFolder = Annotated[str, AfterValidator(_jar_folder)]
YamlFile = Annotated[str, AfterValidator(_yaml_file)]
InputFolder = Annotated[str, AfterValidator(_input_folder)]
LakeFolder = Annotated[str, AfterValidator(_lake_folder)]
