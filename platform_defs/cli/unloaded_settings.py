"""Warns if a command uses the example shop, but the current folder has the settings of another pipeline, which were not loaded."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from platform_defs.settings import is_set

_VARIABLE = "TIDEMARK_PIPELINE"
_ASSIGNMENT = re.compile(rf"^[^#\n]*(?<![^\s;]){_VARIABLE}=(?!\"\"|'')[^\s;#]", re.MULTILINE)
_WARNING = f"{_VARIABLE} is not set, so this command uses the example shop; to load the settings of this folder: set -a; . ./.env; set +a"
_WITHOUT_PIPELINE = ("demo", "new", "serve", "spark-config", "sql")
"""Commands that do not use the configured pipeline."""


def warn_of_unloaded_settings(arguments: Sequence[str], warn: Callable[[str], None]) -> None:
    """Warn if the file `.env` in the current folder sets a pipeline, but the command is to use the default one.

    Args:
        arguments: the arguments of the command line, without the program's name.
        warn: prints a warning.
    """
    if not arguments or arguments[0] in (*_WITHOUT_PIPELINE, "--version") or "--help" in arguments or is_set("pipeline"):
        return
    try:
        text = Path(".env").read_text("utf-8", errors="replace")
    except OSError:
        return
    if _ASSIGNMENT.search(text):
        warn(_WARNING)
