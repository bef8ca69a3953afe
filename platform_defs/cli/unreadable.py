"""The state of a table that cannot be read, for a status that shows the other tables."""

from collections.abc import Callable
from typing import Any

from platform_defs.cli import uncompared
from platform_defs.engine import Engine, ProgressError
from platform_defs.engine.lake.errors import LakeError

_NOT_KNOWN = (
    "operator",
    "steps",
    "ledger_entry",
    "closed_to",
    "watermark",
    "lag_seconds",
    "complete_to",
    "held_back_by",
    "held_back_seconds",
    "stale_seconds",
    "last_failure",
    "last_account",
)


def state_or_reason(state: Callable[[Engine, str], dict[str, Any]], engine: Engine, name: str) -> dict[str, Any]:
    """The state of a table. If it, or a table that it reads, cannot be read: the reason as `law.refused`, and None for unknown values."""
    try:
        return state(engine, name)
    except (LakeError, ProgressError) as error:
        law = {"holds": False, "broken": [], "ledger_differs_from_log": [], "refused": str(error)}
        table = engine.assets[name]
        return {**dict.fromkeys(_NOT_KNOWN), "streams_as": table.streams_as, "waits_for": [], "law": law, **uncompared.of_table(table)}
