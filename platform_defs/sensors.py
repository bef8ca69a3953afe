"""The sensors: new files lead to an ingest, a ledger that has moved on to an advance, unless somebody writes just then; without Spark."""

import dagster as dg

from platform_defs.engine import Engine
from platform_defs.jobs import due
from platform_defs.resources.files import File, landed


@dg.sensor(
    job_name="ingest", minimum_interval_seconds=30, description="Runs the ingest when a file has landed that the ledger does not tell of."
)
def new_input(context: dg.SensorEvaluationContext, engine: dg.ResourceParam[Engine]) -> dg.RunRequest | dg.SkipReason:
    """One run for each set of new files; the ledger decides what is new."""
    fresh = [file for source, folder in sorted(engine.folders.items()) for file in _unknown(engine, source, folder)]
    if not fresh:
        return dg.SkipReason("nothing new has landed")
    if busy := engine.ingesting():
        return dg.SkipReason(busy)
    return dg.RunRequest(run_key=f"{engine.ledger.head}:{len(fresh)}:{max(f.offset for f in fresh)}")


@dg.sensor(job_name="advance", minimum_interval_seconds=30, description="Advances the derived tables when the ledger has moved on.")
def ledger_moved(context: dg.SensorEvaluationContext, engine: dg.ResourceParam[Engine]) -> dg.SensorResult | dg.SkipReason:
    """The cursor is the ledger's `seq`."""
    head = engine.ledger.head
    if head <= int(context.cursor or 0):
        return dg.SkipReason(f"the ledger still stands at entry {head}")
    if busy := engine.advancing():
        return dg.SkipReason(busy)
    request = due(engine, f"advance:{head}")
    return dg.SensorResult(run_requests=[request] if request else [], cursor=str(head))


def _unknown(engine: Engine, source: str, folder: str) -> list[File]:
    """The files that the ledger does not tell of as they are now."""
    files = list(landed(folder, source))
    known = engine.ledger.known(source, files)
    return [file for file in files if not known.holds(file)]
