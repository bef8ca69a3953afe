"""Warns if a command uses the example shop by mistake, in the folder of a pipeline whose settings are not loaded."""

from collections.abc import Callable, Sequence
from pathlib import Path

from platform_defs.settings import is_set

_VARIABLE = "TIDEMARK_PIPELINE"
_WARNING = f"{_VARIABLE} is not set, so this is the example shop; load the settings of this folder: set -a; . ./.env; set +a"
_WITHOUT_PIPELINE = ("demo", "new", "sql")
"""Commands that do not use the configured pipeline."""


def warn_of_unloaded_settings(arguments: Sequence[str], warn: Callable[[str], None]) -> None:
    """Warn of a command in a folder whose `.env` names a pipeline, if the environment does not.

    Args:
        arguments: the command line, without the program.
        warn: shows a warning.
    """
    if not arguments or arguments[0] in _WITHOUT_PIPELINE or "--help" in arguments or is_set("pipeline"):
        return
    try:
        text = Path(".env").read_text("utf-8", errors="replace")
    except OSError:
        return
    if _VARIABLE in text:
        warn(_WARNING)
