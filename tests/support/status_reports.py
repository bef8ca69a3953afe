"""The report of `tidemark status`, for tests of how it is printed."""

from typing import Any


def status_report(**parts: Any) -> dict[str, Any]:
    """The report of a lake without sources, tables and failures; `parts` replace its parts."""
    return {
        "lake": "/l",
        "ledger_head": 1,
        "ledger_retention": None,
        "sources": {},
        "assets": {},
        "sink_failures": {},
        "ingest_failure": None,
    } | parts
