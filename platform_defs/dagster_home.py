"""The folder of Dagster's instance, `DAGSTER_HOME`, and its configuration file `dagster.yaml`."""

import hashlib
import json
import re
import sys
from pathlib import Path

from platform_defs.settings import SettingsError, settings

FILE = "dagster.yaml"
_MARK = re.compile(r"# Written by Tidemark \((\w+)\); a file that you change is kept\.\n(.*)", re.DOTALL)
_EARLIER = "nux: {enabled: false}\ntelemetry: {enabled: false}\n"
"""The content of the file before November 2026, without a mark."""
_TEXT = """nux: {{enabled: false}}
telemetry: {{enabled: false}}
concurrency:
  pools: {{granularity: run, default_limit: 1}}
event_log_storage:
  module: platform_defs.resources.event_log
  class: EventLogStorage
  config: {{base_dir: {folder}}}
"""


def prepare(home: str) -> Path:
    """Create the folder and its `dagster.yaml`; a file that a user has written or changed is kept.

    Args:
        home: the folder.

    Returns:
        The folder.
    """
    folder = Path(home)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    text = _TEXT.format(folder=json.dumps(str(folder / "history" / "runs")))
    if not file.exists() or _is_ours(file.read_text(encoding="utf-8")):
        file.write_text(f"# Written by Tidemark ({_hash(text)}); a file that you change is kept.\n{text}", encoding="utf-8")
    return folder


def _is_ours(text: str) -> bool:
    """Whether a file is as a version of Tidemark wrote it."""
    found = _MARK.fullmatch(text)
    return text == _EARLIER or (found is not None and found[1] == _hash(found[2]))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def main() -> int:
    """Prepare the folder of the settings and print it, for use in scripts; the exit status is 1 if a setting is illegal."""
    try:
        home = settings().dagster_home
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{prepare(home)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
