"""The part of a status for monitoring: the sources that hold back tables, how stale tables are, and the newest failures."""

from collections.abc import Mapping
from typing import Any

from assets.factories.sentences import duration
from platform_defs.cli.render import instant, out, plain
from platform_defs.engine import Engine
from platform_defs.engine.advance.held_back import find_holding_source
from platform_defs.engine.operations.failures import Failure

_SHOWN_FROM_S = 60
"""A source that holds back tables is printed if it is at least this far behind the next one, since sources do not advance at the same
time. JSON has every such source."""


def of_table(engine: Engine, name: str) -> dict[str, Any]:
    """The source that holds back a table and by how much, how long the table has been stale, and the failure of its last advance."""
    freshness = engine.freshness
    holder, waiting = find_holding_source(freshness.workspace, name), freshness.waiting(name)
    behind_s = None if holder is None or holder.behind_ms is None else holder.behind_ms / 1000
    return {
        "held_back_by": None if holder is None else holder.source,
        "held_back_seconds": behind_s,
        "stale_seconds": 0.0 if waiting is None else max(0, engine.clock() - waiting.since) / 1000,
        "last_failure": failure(engine.failures.of(name)),
    }


def of_source(engine: Engine, name: str) -> dict[str, Any]:
    """If a source waits for another one of its alignment group: that other source, and how far it is behind the waiting source."""
    ahead = engine.ingestion.ahead.get(name)
    ahead_s = None if ahead is None or ahead.ahead_ms is None else ahead.ahead_ms / 1000
    return {"waits_for": None if ahead is None else ahead.source, "ahead_seconds": ahead_s}


def failure(recorded: Failure | None) -> dict[str, Any] | None:
    """A failure as plain data."""
    return None if recorded is None else {"at": instant(recorded.at), "error": recorded.error, "message": recorded.message}


def print_report(report: Mapping[str, Any]) -> None:
    """Print each source that waits, or holds back tables, and each failure."""
    for name, source in report["sources"].items():
        _print_ahead(name, source)
    _print_held_back(report)
    for name, asset in report["assets"].items():
        _print_failure(name, "advance", asset["last_failure"])
    for name, source in report["sources"].items():
        if (last_failure := source["last_failure"]) is not None:
            text = f"{plain(name)}: [red]some input is not read[/] since {last_failure['at']}: {plain(last_failure['message'])}"
            out.print(text, highlight=False, soft_wrap=True)
    for name, last_failure in report["sink_failures"].items():
        _print_failure(name, "publish to Kafka", last_failure)
    _print_failure("ingest", "run", report["ingest_failure"])


def _print_held_back(report: Mapping[str, Any]) -> None:
    tables_by_source: dict[str, dict[str, float | None]] = {}
    for name, asset in report["assets"].items():
        source, behind_s = asset["held_back_by"], asset["held_back_seconds"]
        if source is not None and (behind_s is None or behind_s >= _SHOWN_FROM_S):
            tables_by_source.setdefault(source, {})[name] = behind_s
    for source, tables in tables_by_source.items():
        known_delays_s = [seconds for seconds in tables.values() if seconds is not None]
        reason = (
            f"its watermark is {duration(max(known_delays_s))} behind that of the next source"
            if known_delays_s
            else "it has no watermark yet"
        )
        out.print(plain(f"Source {source} holds back {', '.join(tables)}: {reason}."), highlight=False, soft_wrap=True)


def _print_ahead(name: str, source: Mapping[str, Any]) -> None:
    if source["waits_for"] is not None:
        ahead_s = source["ahead_seconds"]
        other = source["waits_for"]
        reason = f"{other} has no watermark yet" if ahead_s is None else f"the watermark of {name} is {duration(ahead_s)} ahead"
        out.print(plain(f"Source {name} waits for {other} of its alignment group: {reason}."), highlight=False, soft_wrap=True)


def _print_failure(name: str, action: str, last_failure: Mapping[str, Any] | None) -> None:
    if last_failure is not None:
        text = f"{plain(f'{name}:')} [red]the last {action} failed[/] at {last_failure['at']}: {plain(last_failure['message'])}"
        out.print(text, highlight=False, soft_wrap=True)
