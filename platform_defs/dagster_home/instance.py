"""Creates the folder of Dagster's instance and its configuration file `dagster.yaml`, and keeps a file that a user has changed."""

import hashlib
import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent

from operators.errors import TidemarkError
from platform_defs.settings import SettingsError, settings

FILE = "dagster.yaml"
_MARK = re.compile(r"# Written by Tidemark \((\w+)\); a file that you change is kept\.\n(.*)", re.DOTALL)
_EARLIER = "nux: {enabled: false}\ntelemetry: {enabled: false}\n"
"""The content of the file before November 2026, when its first line did not have the hash yet."""
_TEXT = """nux: {{enabled: false}}
telemetry: {{enabled: false}}
concurrency:
  pools: {{granularity: run, default_limit: 1}}
event_log_storage:
{storage}"""
_STORAGE = """  module: platform_defs.dagster_home.event_log
  class: EventLogStorage
  config: {{base_dir: {folder}}}
"""
_OPENLINEAGE = "dagster_openlineage"
_WITH_OPENLINEAGE = f"""  module: {_OPENLINEAGE}
  class: OpenLineageEventLogStorage
  config:
    namespace: tidemark
    wrapped:
"""
"""The event log storage of the OpenLineage integration: it stores each event in Tidemark's storage, and sends the events of assets."""


class IntegrationError(TidemarkError, RuntimeError):
    """An integration is turned on, but cannot work."""

    @classmethod
    def not_installed(cls) -> "IntegrationError":
        """The package that sends OpenLineage events is not installed."""
        return cls(
            f"TIDEMARK_OPENLINEAGE is true, but the package {_OPENLINEAGE.replace('_', '-')} is not installed: install the dependency "
            "group with `uv sync --frozen --inexact --group openlineage`, or unset the variable"
        )

    @classmethod
    def not_in_file(cls, file: Path) -> "IntegrationError":
        """A `dagster.yaml` that a user has changed stores events without the integration."""
        return cls(
            f"TIDEMARK_OPENLINEAGE is true, but {file}, which you have changed, names no storage of {_OPENLINEAGE}: no event would be "
            f"sent. Set its event_log_storage to `module: {_OPENLINEAGE}`, `class: OpenLineageEventLogStorage` and `config: {{namespace: "
            "tidemark, wrapped: ...}`, where `wrapped` is the storage that it has now; or unset the variable"
        )


class InstanceFileError(TidemarkError, ValueError):
    """The configuration file `dagster.yaml` cannot be read."""

    @classmethod
    def not_utf8(cls, file: Path, error: UnicodeDecodeError) -> "InstanceFileError":
        """The file is in another encoding."""
        return cls(f"{file} cannot be read: {error}; legal: a file in UTF-8")


def prepare(home: str, *, openlineage: bool = False) -> Path:
    """Create the folder and its `dagster.yaml`; a file that a user has written or changed is kept, unless it is empty.

    Args:
        home: the folder.
        openlineage: whether OpenLineage events are sent.

    Returns:
        The folder.

    Raises:
        IntegrationError: OpenLineage events are to be sent, but the package that sends them is not installed, or the file of a user does
            not name it.
        InstanceFileError: the file is not in UTF-8.
        OSError: the folder or the file cannot be read or written.
    """
    if openlineage and find_spec(_OPENLINEAGE) is None:
        raise IntegrationError.not_installed()
    folder = Path(home)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    storage = _STORAGE.format(folder=json.dumps(str(folder / "history" / "runs")))
    text = _TEXT.format(storage=f"{_WITH_OPENLINEAGE}{indent(storage, '    ')}" if openlineage else storage)
    content = f"# Written by Tidemark ({_hash(text)}); a file that you change is kept.\n{text}"
    try:
        found = file.read_text(encoding="utf-8") if file.exists() else None
    except UnicodeDecodeError as error:
        raise InstanceFileError.not_utf8(file, error) from None
    if found is None or _is_ours(found):
        if found != content:
            _replace(file, content)
    elif openlineage and _OPENLINEAGE not in found:
        raise IntegrationError.not_in_file(file)
    return folder


def _replace(file: Path, content: str) -> None:
    """Write a file as a whole: after a kill, and for a Dagster that reads it now, it has the former content or the new one."""
    target = file.resolve()  # of a link, which stays
    new_file = target.with_name(f".{file.name}.{os.getpid()}.new")
    new_file.write_text(content, encoding="utf-8")
    new_file.replace(target)


def _is_ours(text: str) -> bool:
    """Whether a version of Tidemark wrote the file, and nobody has changed it. A kill of an earlier version may have left it empty."""
    match = _MARK.fullmatch(text)
    return not text or text == _EARLIER or (match is not None and match[1] == _hash(match[2]))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def main() -> int:
    """Prepare the folder of the settings and print it, for use in scripts.

    The exit status is 1 if a setting is illegal, or the folder or its file cannot be read or written.
    """
    try:
        folder = prepare(settings().dagster_home, openlineage=settings().openlineage)
    except (SettingsError, IntegrationError, InstanceFileError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{folder}\n")
    return 0
