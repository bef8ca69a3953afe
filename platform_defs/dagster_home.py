"""The folder of Dagster's instance, `DAGSTER_HOME`, and its configuration file `dagster.yaml`."""

import json
import sys
from pathlib import Path

from platform_defs.settings import SettingsError, settings

FILE = "dagster.yaml"
MARK = "# Written by Tidemark. Delete this line to keep your own changes."
_EARLIER = "nux: {enabled: false}\ntelemetry: {enabled: false}\n"
"""The content of the file before November 2026, without a mark."""
_TEXT = """{mark}
nux: {{enabled: false}}
telemetry: {{enabled: false}}
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
    text = _TEXT.format(mark=MARK, folder=json.dumps(str(folder / "history" / "runs")))
    known = file.read_text(encoding="utf-8") if file.exists() else None
    if known is None or known == _EARLIER or (known.startswith(MARK) and known != text):
        file.write_text(text, encoding="utf-8")
    return folder


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
