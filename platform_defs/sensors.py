"""The sensors: new files lead to an ingest, a ledger that has moved on leads to an advance. Neither starts Spark."""

from pathlib import Path
from urllib.parse import unquote, urlparse

import dagster as dg

from assets.keys import PAYMENT_ORDER_WIDE
from platform_defs.engine import Engine
from platform_defs.jobs import over


@dg.sensor(
    job_name="ingest", minimum_interval_seconds=30, description="Runs the ingest when a file has landed that the ledger does not tell of."
)
def new_input(context: dg.SensorEvaluationContext, engine: dg.ResourceParam[Engine]) -> dg.RunRequest | dg.SkipReason:
    """One run for each set of new files; the ledger decides what is new."""
    fresh = sorted(path for source, folder in engine.folders.items() for path in _landed(folder) - _known(engine, source))
    if not fresh:
        return dg.SkipReason("nothing new has landed")
    return dg.RunRequest(run_key=f"{engine.ledger.head}:{len(fresh)}:{fresh[-1]}")


@dg.sensor(
    job_name="advance", minimum_interval_seconds=30, description="Advances the payment-order wide table when the ledger has moved on."
)
def ledger_moved(context: dg.SensorEvaluationContext, engine: dg.ResourceParam[Engine]) -> dg.SensorResult | dg.SkipReason:
    """The cursor is the ledger's `seq`."""
    head = engine.ledger.head
    if head <= int(context.cursor or 0):
        return dg.SkipReason(f"the ledger still stands at entry {head}")
    days = engine.open_days(PAYMENT_ORDER_WIDE)
    requests = [dg.RunRequest(run_key=f"advance:{head}", tags=over(*days))] if days else []
    return dg.SensorResult(run_requests=requests, cursor=str(head))


def _landed(folder: str) -> set[str]:
    """The files below a local folder that a stream would take: no hidden ones, and none of no bytes."""
    root = Path(folder).resolve()
    files = (p for p in root.rglob("*") if p.is_file() and p.stat().st_size) if root.is_dir() else ()
    return {p.as_posix() for p in files if not any(part.startswith(("_", ".")) for part in p.relative_to(root).parts)}


def _known(engine: Engine, source: str) -> set[str]:
    """The files of a source that the ledger tells of."""
    return {unquote(urlparse(offset.split("|")[0]).path) for offset in engine.ledger.offsets(source)}
